#!/usr/bin/env bash
# Elastic trainings: drills, hosts that come and go, notice, Ctrl-C, a supervisor that is killed, failures that repeat.
#
#     test_elastic.sh BUILD-DIRECTORY [--drills N]
#
# --drills: 3 of the first 40, drawn; N: the first N, for each of four systems.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
drills=
[ "${2:-}" != --drills ] || drills=${3:?--drills needs a number}
cd "$work"
mkdir tmp
export TMPDIR=$work/tmp
echo "HT_SEED=$seed"
small_llama 6 >llama.yaml
common=(--model llama.yaml --batch 12 --micro-batch 1 --seq 16 --data "$text")
needs_ranks "${common[@]}"

# left: processes of supervisors in this test's folder.
left() { grep -laz "HETBENCH_ELASTIC=$work" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 || true; }
# state STORE EXPRESSION: of the supervisor's journal
state() { json "$1/elastic/state.json" "$2"; }
# until_true COMMAND..: the time is a limit for a hang, no more. Gives up when the process $pid has ended.
until_true() {
    local i
    for ((i = 0; i < 600; i++)); do
        if "$@"; then return; fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.2
    done
    "$@" || fail "never true: $*: $(tail -n 3 err)"
}

drill=(--steps 14 --every 3 --hang-after 15)
if [ -n "$drills" ]; then
    for system in fsdp autohet cephalo gpipe; do
        run 0 elastic $system "${common[@]}" "${drill[@]}" --store drills --drills "$drills" --seed "$seed"
        cat out
    done
else
    systems=(fsdp autohet cephalo) i=0
    # shellcheck disable=SC2046 # words
    for number in $(drawn 3 $(seq 40)); do
        run 0 elastic "${systems[i++]}" "${common[@]}" "${drill[@]}" --store drills --drills 1 --seed "$number"
        grep "^drill" out || true
    done
fi
# A disk that is full: a real one, where it can be mounted.
run 0 elastic fsdp "${common[@]}" "${drill[@]}" --store drills --drills 1 --seed 1001
grep -q "^drill 1001: full:[0-9:]*: ok, 2 incarnations" out || fail "a full disk: $(cat out)"
[ ! -e drills ] || fail "left: $(find drills | head)"

# A node lost with its stores just after the first save: with its copies on other nodes, or the training begins anew.
run 0 elastic fsdp "${common[@]}" --store first --steps 6 --every 3 --inject node:3:628241
[ "$(state first 'd["saved"], d["safe"]')" = "(6, 6)" ] || fail "the first save: $(cat first/elastic/state.json)"

# Two nodes lost one after the other, each with its stores: the second one's shards are on others by then.
run 0 elastic fsdp "${common[@]}" --store lost --steps 9 --every 1 --inject node:3:1 --inject node:7:0 --json
[ "$(json <(tail -n 1 out) '(d["status"], [(r["from_step"] > 0, r["whole"]) for r in d["recoveries"]])')" = "('ok', [(True, True), (True, True)])" ] ||
    fail "two nodes lost: $(cat out)"
[ "$(state lost 'd["runs"][-1]["nodes"].count(",")')" = 1 ] || fail "nodes at the end: $(state lost 'd["runs"]')"

# Hosts: one comes, one has notice; Ctrl-C saves. Started again it goes on from there, to the bit.
printf 'localhost node=0\nlocalhost node=1\n' >hosts
"$hetbench" elastic gpipe "${common[@]}" --store hosts-store --hosts hosts --notice notice --quiet 0 --ask-every 1 --steps 30000 \
    --every 1000 >out 2>err &
pid=$!
incarnation() { [ "$(state hosts-store 'len([r for r in d["runs"] if "from" in r])' 2>/dev/null)" = "$1" ]; }
until_true incarnation 1
echo 'localhost node=3' >>hosts
until_true incarnation 2
echo 0 >notice
until_true incarnation 3
kill -INT $pid
status=0
wait $pid || status=$?
[ $status = 130 ] && tail -n 1 err | grep -q "^hetbench: interrupted after [0-9]* of 30000 steps" || fail "Ctrl-C: status $status: $(cat err)"
# Before the training listens to the signal, too. The last one's words are removed first: what is started may not have emptied the file yet.
rm err
"$hetbench" elastic fsdp "${common[@]}" --store early --steps 30000 >out 2>err &
pid=$! status=0
until_true grep -qs "incarnation 1" err
kill -INT $pid
wait $pid || status=$?
[ $status = 130 ] || fail "Ctrl-C at the start: status $status: $(cat err)"
saved=$(state hosts-store 'd["saved"]')
[ "$(state hosts-store '[r["nodes"] for r in d["runs"]]')" = "['0,1', '0,1,3', '1,3']" ] || fail "hosts: $(state hosts-store 'd["runs"]')"
[ "$(state hosts-store 'all(r["at_step"] == r["from_step"] for r in d["recoveries"])')" = True ] || fail "steps lost: $(state hosts-store 'd["recoveries"]')"
run 0 elastic gpipe "${common[@]}" --store hosts-store --hosts '!cat hosts' --steps $((saved + 2)) --losses resumed.csv
[ "$(wc -l <resumed.csv)" = $((saved + 3)) ] || fail "losses of $saved + 2 steps: $(wc -l <resumed.csv) lines"
[ "$(state hosts-store 'd["runs"][-1]["from"]')" = "$saved" ] || fail "goes on from $(state hosts-store 'd["runs"][-1]')"

# The supervisor is killed: so are all of its processes, and it goes on.
"$hetbench" elastic fsdp "${common[@]}" --store killed --steps 30000 --every 2 >out 2>err &
pid=$!
saved() { [ "$(state killed 'd["saved"]' 2>/dev/null || echo -1)" -gt 0 ]; }
until_true saved
kill -KILL $pid
wait $pid || true
for ((i = 0; i < 300; i++)); do
    [ -n "$(left)" ] || break
    sleep 0.1
done
[ -z "$(left)" ] || fail "the supervisor was killed; left: $(left)"
saved=$(state killed 'd["saved"]')
run 0 elastic fsdp "${common[@]}" --store killed --steps $((saved + 4))
[ "$(state killed 'd["runs"][-1]["from"]')" -ge "$saved" ] || fail "killed: $saved were saved: $(state killed 'd["runs"]')"

# The same failure at the same step, again and again, ends it with that failure. Other input's errors end it at once.
refused 1 "3 times in a row after step [0-9]+: .*No space left on device" elastic fsdp "${common[@]}" --store full --steps 20 --every 2 \
    --inject full:2:1 --inject full:2:1 --inject full:2:1 --json
run 0 elastic fsdp "${common[@]}" --store full --steps 4 --every 2
refused 2 "full: was made with --batch 12; this run has 24" elastic fsdp "${common[@]}" --batch 24 --store full --steps 6 --json
refused 2 "elastic: --store DIR is missing" elastic fsdp "${common[@]}"
refused 2 "--least: 5 nodes can never be there; expected at most the cluster's 4$" elastic fsdp "${common[@]}" --store x --least 5
refused 2 "elastic: --only-nodes is the supervisor's own" elastic fsdp "${common[@]}" --store x --only-nodes 0
refused 2 "--inject 'disk:1:2': expected KIND:STEP:NUMBER" elastic fsdp "${common[@]}" --store x --inject disk:1:2
refused 2 "--inject node:5:1: step 5 never comes; expected at most --steps, 4" elastic fsdp "${common[@]}" --store x --steps 4 --inject node:5:1
run 0 elastic gpipe "${common[@]}" --nodes 1 --store never --steps 2 --inject load:0:1
grep -q "^hetbench: warning: --inject load:0:1 did not happen$" err || fail "a fault that did not happen: $(cat err)"
printf "a b\n" >bad
refused 2 "--hosts: bad:1: 'b' was not expected" elastic fsdp "${common[@]}" --store x --hosts bad
refused 3 "there was 1 node for 0 s; expected at least 3" elastic fsdp "${common[@]}" --store x --hosts "!echo localhost" --least 3 --wait 0 --json
refused 2 "--inject-process 'full:1:2:3': a disk is full during a save" train in_memory "${common[@]}" --store y --inject-process full:1:2:3
refused 2 "--only-nodes: node 1 comes after node 2" train in_memory "${common[@]}" --nodes 4 --only-nodes 2,1
refused 2 "5 devices cannot be divided into 2 nodes" train in_memory "${common[@]}" --nodes 2 --ranks 5
[ -z "$(left)" ] || fail "processes are left: $(left)"
[ -z "$(ls tmp)" ] || fail "left in TMPDIR: $(ls tmp)"
finish

#!/usr/bin/env bash
# The emulated clock from the command line, in one process and over ranks: losses of a plain run, a trace that replays, the
# message for a run that is not a valid emulation, Ctrl-C and killed ranks in the middle of ops that are held for minutes.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
echo "HT_SEED=$seed"

common=(--batch 4 --seq 32 --data "$text" --numerics fp32 --steps 3)
scenario=("${common[@]:0:4}" --numerics fp32)
run 0 train in_memory --model gpt-tiny "${common[@]}" --micro-batch 2 --losses one.csv
run 0 train in_memory --model llama-tiny "${common[@]}" --micro-batch 1 --losses pipe.csv
run 0 train in_memory --model gpt-tiny "${common[@]}" --micro-batch 1 --losses ranks.csv

# emulated LOSSES SYSTEM ARGUMENTS...: on a cluster of the catalogue. A machine that is busy may need a larger scale.
emulated() {
    local losses=$1 system=$2 scale
    shift 2
    rm -f held.csv t.json
    for scale in auto auto 3000 10000; do
        ! "$hetbench" train "$system" "${common[@]}" --clock emu --emu-scale $scale --losses held.csv --trace t.json --json \
            "$@" >out 2>err || break
        tail -n 1 err | grep -q "^hetbench: INVALID emulation" || break
    done
    [ -e t.json ] || run 0 train "$system" "${common[@]}" --clock emu --emu-scale 30000 --losses held.csv --trace t.json --json "$@"
    cmp -s "$losses" held.csv || fail "$system $*: losses are not those of a plain run"
    "$python" - "$system" <<'PY' || fail "$system $*: the report"
import json, sys

d, clock = json.load(open("out")), json.loads(open("t.json").readline().rstrip(",[\n") + "[]}")["otherData"]["clock"]
e = d["emulation"]
assert (d["clock"], d["obtained"], clock) == ("emu", "emulated", "emu"), (d["clock"], d["obtained"], clock)
# As many steps of the steady state as there are, or a little more for the first one.
assert 0.99 <= e["estimated_s"] / (len(d["step_s"]) * e["scale"] * e["simulated_iteration_s"]) < 1.5, e
assert e["valid"] and e["overran"] * 100 <= e["ops"] and e["scale"] > 0, e
assert e["iteration_s"] > 0 and abs(100 * (e["iteration_s"] / e["simulated_iteration_s"] - 1) - e["error_percent"]) < 1e-6, e
assert sum(d["step_s"]) >= (len(d["step_s"]) - 2) * e["simulated_lower_bound_s"] > 0, (d["step_s"], e)
for m in d["memory"]:
    assert m["arena_peak_bytes"] == m["peak_bytes"] <= m["bound_bytes"], (sys.argv[1], m)
PY
}
replays() { run 0 sim "$@" "${scenario[@]}" --issue-ahead 0 --replay t.json; }

emulated one.csv autohete --model gpt-tiny --micro-batch 2 --cluster autohete-1gpu --device-memory 6MB
replays autohete --model gpt-tiny --micro-batch 2 --cluster autohete-1gpu --device-memory 6MB
grep -q "^rates (emulated)" out || fail "a replayed trace does not say that it was emulated"
emulated one.csv zero_offload --model gpt-tiny --micro-batch 2 --cluster autohete-1gpu --control rollback
# What a run says does not depend on its being a valid emulation, which a busy machine may not give.
scale=3000
"$hetbench" train stronghold --model gpt-tiny "${common[@]}" --micro-batch 2 --clock emu --emu-scale $scale --cluster autohete-1gpu >out 2>err ||
    tail -n 1 err | grep -q "^hetbench: INVALID emulation" || fail "stronghold: $(cat err)"
grep -Eq "^emulated clock: every op held for $scale times its modelled cost\$" out || fail "the scale is not in the report"
head -n 1 err | grep -Eq "^emulated clock: 3 steps of [0-9.]+ [um]s, held $scale times as long: about [0-9.]+ s\$" ||
    fail "there is no estimate before the run"
grep -Eq '^  iteration .* emulated, .* simulated: [+-]' out || fail "the error is not in the report"

# A scale at which nothing fits.
run 1 train zero_offload --model gpt-tiny "${common[@]}" --micro-batch 2 --clock emu --emu-scale 0.01 \
    --cluster autohete-1gpu --losses none.csv --trace none.json
tail -n 1 err | grep -Eq "^hetbench: INVALID emulation: [0-9]+ of [0-9]+ ops .* at scale 0.01; " || fail "a run that is no emulation passes"
grep -q ': INVALID$' out || fail "the report does not say INVALID"
[ ! -e none.csv ] && [ ! -e none.json ] || fail "an invalid run wrote files"
refused 2 "train: --clock 'wall' is not known; expected run or emu" train in_memory --model gpt-tiny "${common[@]}" --clock wall
refused 2 "train: --emu-scale needs --clock emu" train in_memory --model gpt-tiny "${common[@]}" --emu-scale 3
refused 2 "--emu-scale: 0 is out of range" train in_memory --model gpt-tiny "${common[@]}" --clock emu --emu-scale 0
refused 2 "--emu-scale: " train in_memory --model gpt-tiny "${common[@]}" --clock emu --emu-scale fast
refused 2 "train: --clock emu holds the ops of the CPU backend" train in_memory --model gpt-tiny "${common[@]}" --clock emu \
    --backend cuda

# began ARGUMENTS...: starts a training whose ops are held for minutes, as process $pid.
began() {
    "$python" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$hetbench" train zero_offload --model gpt-tiny "${common[@]}" --clock emu \
        --emu-scale 1e7 "$@" >out 2>err &
    pid=$!
    sleep 3
}
# gone SECONDS PIDS...: none of the processes is there any more after so long.
gone() {
    local seconds=$1 p
    shift
    for p in "$@"; do
        for ((i = 0; i < 10 * seconds && $(kill -0 "$p" 2>/dev/null && echo 1 || echo 0); i++)); do sleep 0.1; done
        ! kill -0 "$p" 2>/dev/null || fail "process $p is still there"
    done
}
interrupted() {
    local status=0
    kill -INT "$pid"
    gone 5 "$pid"
    wait "$pid" || status=$?
    [ "$status" = 130 ] || fail "Ctrl-C: status $status: $(cat err)"
    tail -n 1 err | grep -q '^hetbench: interrupted after [0-9]* of 3 steps' || fail "Ctrl-C says $(cat err)"
}
began --cluster autohete-1gpu
interrupted

if ! "$hetbench" train in_memory --model gpt-tiny "${common[@]}" --ranks 2 >out 2>err; then
    grep -Eq "^hetbench: (this build has no MPI|mpirun is not installed)" err || fail "two ranks: $(cat err)"
    echo "several ranks skipped: $(cat err)"
    finish
    exit
fi
emulated ranks.csv zero_offload --model gpt-tiny --cluster autohete-4gpu
replays zero_offload --model gpt-tiny --cluster autohete-4gpu
for system in $(drawn 1 mobius sysx); do emulated pipe.csv "$system" --model llama-tiny --micro-batch 1 --cluster sysx-1node; done
cat >nodes.yaml <<'YAML'
name: nodes
source: two nodes of the catalogue's parts
nodes:
  - {count: 2, cpu: epyc-7452, ram: 512 GB, gpus: [{type: v100-32gb-pcie, count: 2}], pcie: pcie3-x16, nic: infiniband-hdr}
YAML
emulated ranks.csv zero_offload --model gpt-tiny --cluster nodes.yaml
emulated pipe.csv mobius --model llama-tiny --micro-batch 1 --cluster nodes.yaml

for cluster in autohete-4gpu nodes.yaml; do
    began --cluster "$cluster"
    all=$(ranks_of "$pid")
    interrupted
    # shellcheck disable=SC2086 # words
    gone 1 $all
    for which in $(drawn 1 head tail); do
        began --cluster "$cluster"
        all=$(ranks_of "$pid") status=0
        kill -KILL "$(echo "$all" | $which -n 1)"
        # shellcheck disable=SC2086
        gone 10 "$pid" $all
        wait "$pid" || status=$?
        [ "$status" = 1 ] || fail "$cluster: status $status after a rank was killed"
        tail -n 1 err | grep -Eq '^hetbench: .*(is gone|killed by signal 9|ended without a report)' || fail "$cluster: a killed rank: $(cat err)"
    done
done
finish

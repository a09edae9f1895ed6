#!/usr/bin/env bash
# An elastic training over three hosts of tests/support/hosts, which are namespaces of this machine: one loses its power, comes back and
# joins; Ctrl-C saves. Each host's store is its own, so what is lost with a host comes from its replica. Then the same under Slurm.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
self=$(readlink -f "$0")
hosts=$root/tests/support/hosts/hosts
limit=120 # for a hang, no more
if [ "${2:-}" != inside ]; then
    cd "$work"
    needs_ranks --model gpt-tiny --batch 4 --micro-batch 1 --seq 16 --data "$text"
    if ! timeout "$limit" "$hosts" with 3 -- true 2>err; then
        echo "skipped: hosts of namespaces cannot be made here: $(tail -n 1 err)"
        exit 77
    fi
    status=0
    timeout 600 "$hosts" with 3 --slots 1 -- bash "$self" "$build" inside || status=1
    exit "$status"
fi
cd "$work"
emulated_nodes 3 1 >nodes.yaml
small_llama 6 >llama.yaml
export LSAN_OPTIONS=detect_leaks=0                                            # MPI never frees its memory
export OMPI_MCA_plm_rsh_agent=/run/bed/agent OMPI_MCA_plm_rsh_no_tree_spawn=1 # in place of ssh

state() { json "$state/state.json" "$1" 2>/dev/null || true; }
trained() { [ "$(state 'len([r for r in d["runs"] if "from" in r])')" = "$1" ]; }
saved() { [ "$(state 'd["saved"]')" -gt "$1" ] 2>/dev/null; }
safe() { [ "$(state 'd["safe"]')" -gt "$1" ] 2>/dev/null; } # its copies are written, too: a loss before that may leave no step whole
# until_true COMMAND..: the time is a limit for a hang, no more. Gives up when the supervisor has ended.
until_true() {
    local i
    for ((i = 0; i < 600; i++)); do
        if "$@"; then return; fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.2
    done
    "$@" || fail "never true: $*: $(tail -n 3 out err)"
}

# begin STATE WORDS...: starts a supervisor on the front end, in the background; WORDS go before the shell that becomes it.
begin() {
    state=$work/$1
    shift
    # shellcheck disable=SC2016 # the front end's shell expands it
    timeout -k 5 300 "$hosts" exec 0 "$@" sh -c 'echo $$ >pid; exec "$@"' sh "$hetbench" elastic fsdp --model llama.yaml \
        --cluster nodes.yaml --batch 12 --micro-batch 1 --seq 16 --data "$text" --store /dev/shm/"${state##*/}" --state "$state" \
        --hosts "$source" --quiet 0 --ask-every 1 --steps 100000 --every 20 --start-timeout 60 >out 2>err &
    pid=$!
    until_true trained 1
    until_true safe 0
}

# end NODES CAUSES: Ctrl-C, which saves. The incarnations' nodes and the causes of the recoveries have to be these. Each goes on from the
# newest step that is safe, or a newer one: what a lost host had not yet copied is lost with it. A join goes on from the last step.
end() {
    local status=0
    until_true saved "$(state 'd["runs"][-1]["from"]')"
    # shellcheck disable=SC2016
    "$hosts" exec 0 sh -c 'kill -INT $(cat pid)'
    wait "$pid" || status=$?
    [ "$status" = 130 ] || fail "Ctrl-C: status $status: $(cat err)"
    grep -q "^hetbench: interrupted after [0-9]* of 100000 steps" err || fail "Ctrl-C: $(cat err)"
    [ "$(state '[r["nodes"] for r in d["runs"]]')" = "$1" ] || fail "nodes: $(state 'd["runs"]')"
    [ "$(state '[r["cause"] for r in d["recoveries"]]')" = "$2" ] || fail "causes: $(state 'd["recoveries"]')"
    [ "$(state '[r["whole"] and r["from_step"] >= s["safe"] > 0 for r, s in zip(d["recoveries"], d["runs"][1:])]')" = "[True, True]" ] ||
        fail "steps lost: $(state 'd["recoveries"], d["runs"]')"
    [ "$(state 'all(r["at_step"] == r["from_step"] for r in d["recoveries"] if r["cause"] == "nodes changed")')" = True ] ||
        fail "the join lost steps: $(state 'd["recoveries"]')"
    state '[{k: r[k] for k in r if k.endswith("_s")} for r in d["recoveries"]]'
}

# The host is no longer named when it is lost, and named again when it is back.
source=hosts
printf 'h%d\n' 1 2 3 >hosts
begin power
"$hosts" kill 3
printf 'h%d\n' 1 2 >hosts
until_true trained 2
"$hosts" boot 3
printf 'h%d\n' 1 2 3 >hosts
until_true trained 3
end "['0,1,2', '0,1', '0,1,2']" "['host h3 lost', 'nodes changed']"
for k in 1 2 3; do
    for _ in $(seq 600); do
        "$hosts" exec $k sh -c "grep -lzE '[h]etbench|[o]rted' /proc/[0-9]*/cmdline" >left 2>/dev/null || break
        sleep 0.1
    done
    ! [ -s left ] || fail "left on h$k: $(cat left)"
    "$hosts" exec $k sh -c 'ls /run/tmp' >left
    ! [ -s left ] || fail "left on h$k in TMPDIR: $(cat left)"
done

# In an allocation of Slurm that outlives its nodes, where it is installed and this is root. One of its three nodes joins later, and is
# lost before Slurm misses it.
if command -v srun slurmctld munged >programs && [ "$(id -u)" = 0 ]; then
    unset OMPI_MCA_plm_rsh_agent OMPI_MCA_plm_rsh_no_tree_spawn
    "$hosts" slurm up
    cat >nodes.sh <<'SH'
scontrol show hostnames "$(squeue -h -j "$SLURM_JOB_ID" -o %N)" | grep -v -x -F -f without
SH
    source='!sh nodes.sh'
    echo h3 >without
    begin slurm salloc --no-kill -N3 -n3
    echo none >without
    until_true trained 2
    until_true saved "$(state 'd["runs"][-1]["from"]')"
    "$hosts" kill 3
    until_true trained 3
    end "['0,1', '0,1,2', '0,1']" "['nodes changed', 'host h3 lost']"
    "$hosts" slurm down
fi
finish

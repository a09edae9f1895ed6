#!/usr/bin/env bash
# Training over several hosts: two of tests/support/hosts, which are namespaces of this machine, joined by a network of their own.
# The same losses as on one machine; a wrong mapping, a killed rank and a lost host end all with one line that names the host.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
self=$(readlink -f "$0")
hosts=$root/tests/support/hosts/hosts
limit=120 # for a hang, no more
if [ "${2:-}" != inside ]; then
    cd "$work"
    # The guard of a host's daemon, with other programs as the daemon. One that finds mpirun lives as long as it likes, and its status is
    # the guard's; one that does not is ended, and one that left a daemon behind loses that.
    cat >daemon.py <<'PY'
import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
c = socket.create_connection(s.getsockname())
time.sleep(float(sys.argv[2]))
sys.exit(7)
PY
    port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    for patience in 1 4 16; do # on a busy machine the daemon may take longer to begin
        status=0
        timeout 60 "$hetbench" guard-daemon "$patience" "$python" daemon.py "$port" $((patience + 2)) \
            "0.0;tcp://10.9.9.9,127.0.0.1:$port;tcp6://[::1]:1" 2>err || status=$?
        if [ "$status" != 1 ] || [ "$(cat err)" != "hetbench: reached $(uname -n)" ]; then break; fi
    done
    { [ "$status" = 7 ] && grep -q "^hetbench: connected $(uname -n)$" err; } || fail "a guard of a daemon that lives: status $status, $(cat err)"
    status=0
    timeout 60 "$hetbench" guard-daemon 1 sh -c 'exec sleep 1000' "tcp://127.0.0.1:$port" 2>err || status=$?
    { [ "$status" = 1 ] && [ "$(cat err)" = "hetbench: reached $(uname -n)" ]; } || fail "a guard of a daemon that is lost: status $status, $(cat err)"
    timeout 60 "$hetbench" guard-daemon 1 sh -c 'sleep 1000 & echo $! >pid' --daemonize "tcp://127.0.0.1:$port" 2>err || fail "a guard: $(cat err)"
    gone 30 "$(cat pid)"
    timeout 60 "$hetbench" guard-daemon 1 none 2>err && fail "a guard of no program passes"
    grep -q "^none: No such file" err || fail "a guard of no program says $(cat err)"
    needs_ranks --model gpt-tiny --batch 4 --micro-batch 1 --seq 16 --data "$text"
    clocks=(--clock 100) # the hosts' clocks differ by minutes
    if ! timeout "$limit" "$hosts" with 2 "${clocks[@]}" -- true 2>err; then
        echo "the hosts have one clock, as time namespaces cannot be made here: $(tail -n 1 err)"
        clocks=()
    fi
    if ! timeout "$limit" "$hosts" with 2 "${clocks[@]}" -- true 2>err; then
        echo "skipped: hosts of namespaces cannot be made here: $(tail -n 1 err)"
        exit 77
    fi
    # A rate limit is seen in a trace.
    if ! timeout "$limit" "$hosts" with 1 --rate 100mbit -- true 2>err; then
        echo "links without a rate, as tc cannot limit them here: $(tail -n 1 err)"
    else
        timeout "$limit" "$root/tests/support/hosts/link" "$build" 100mbit || fail "a link's rate is not seen in a trace"
    fi
    status=$failures
    timeout 800 "$hosts" with 2 "${clocks[@]}" -- bash "$self" "$build" inside || status=1
    exit "$status"
fi
cd "$work"
emulated_nodes 2 2 >nodes.yaml
common=(--model gpt-tiny --cluster nodes.yaml --batch 4 --micro-batch 1 --seq 16 --data "$text")
export LSAN_OPTIONS=detect_leaks=0 # MPI never frees its memory
export OMPI_MCA_plm_rsh_agent=/run/bed/agent OMPI_MCA_plm_rsh_no_tree_spawn=1 # in place of ssh

# away STATUS ARGUMENTS...: trains from the front end.
patience=60 # the machine may be busy
away() {
    local expected=$1 status=0
    shift
    timeout -k 5 "$limit" "$hosts" exec 0 "$hetbench" train "$@" --start-timeout $patience >out 2>err || status=$?
    [ "$status" = "$expected" ] || fail "train $*: status $status, expected $expected: $(cat out err)"
}

# says PATTERN: the last command gave one error line like this.
says() {
    [ "$(grep -c '^hetbench: ' err)" = 1 ] || fail "expected one line of hetbench, found: $(cat err)"
    grep -Eq "^hetbench: $1" err || fail "expected '$1', found: $(cat err)"
}

# nothing_left: no process of a training is on the hosts, or soon none is. The time is a limit for a hang, no more.
nothing_left() {
    local k
    for k in 1 2; do
        for _ in $(seq 1200); do
            "$hosts" exec $k sh -c "grep -lzE '[h]etbench|[o]rted' /proc/[0-9]*/cmdline" >left 2>/dev/null || break
            sleep 0.1
        done
        ! [ -s left ] || fail "left on h$k: $("$hosts" exec $k cat "$(head -n 1 left)" | tr '\0' ' ')"
    done
}

for system in zero_offload fsdp gpipe; do
    run 0 train $system "${common[@]}" --steps 3 --losses one.csv
    away 0 $system "${common[@]}" --steps 3 --hosts h1:2,h2:2 --losses two.csv --trace two.json
    cmp -s one.csv two.csv || fail "$system: losses over two hosts: $(paste one.csv two.csv)"
done

# Node stores that only their own host sees: /dev/shm is each host's. The next run's nodes have changed places, so each rank's state
# comes from the other host, by message. A host's store is lost: its replica suffices.
mini=("${common[@]/gpt-tiny/gpt-mini}")
run 0 train fsdp "${mini[@]}" --steps 3 --losses one.csv
away 0 fsdp "${mini[@]}" --steps 1 --hosts h1:2,h2:2 --store /dev/shm/stored
away 0 fsdp "${mini[@]}" --steps 2 --hosts h2:2,h1:2 --store /dev/shm/stored --resume --replicas 1
grep -q "^read by rank 0 from peer: " out || fail "state from another host: $(cat out)"
"$hosts" exec 1 rm -r /dev/shm/stored
away 0 fsdp "${mini[@]}" --steps 3 --hosts h1:2,h2:2 --store /dev/shm/stored --resume --losses two.csv
cmp -s one.csv two.csv || fail "stores of two hosts: $(paste one.csv two.csv)"
for k in 1 2; do "$hosts" exec $k rm -r /dev/shm/stored; done

# The last trace, gpipe's, is of both hosts: by one clock, no message ends before its send has begun, in either direction. Half a
# round trip may be missing, which is long on a busy machine.
"$python" - <<'PY' || fail "a message is received before it was sent"
import json
events = [e for e in json.load(open("two.json"))["traceEvents"] if e["ph"] == "X" and e["cat"] in ("send", "receive")]
key = lambda e: (e["args"]["iteration"], e["name"])
sent = {key(e): e for e in events if e["cat"] == "send"}
crossing = 0
for e in events:
    if e["cat"] != "receive":
        continue
    s = sent[key(e)]
    crossing += e["pid"] // 2 != s["pid"] // 2
    assert e["args"]["end_ns"] >= s["args"]["start_ns"] - 50e6, (s, e)
assert crossing >= 12, crossing
PY
# The emulated clock, whose hosts each have a pacer. A machine that is busy may need a larger scale.
small=("${common[@]/gpt-tiny/gpt-mini}")
run 0 train fsdp "${small[@]}" --steps 2 --losses one.csv
for scale in 500 2000 8000; do
    ! timeout -k 5 "$limit" "$hosts" exec 0 "$hetbench" train fsdp "${small[@]}" --steps 2 --hosts h1:2,h2:2 --losses two.csv \
        --start-timeout $patience --clock emu --emu-scale $scale --json >out 2>err || break
    tail -n 1 err | grep -q "^hetbench: INVALID emulation" || break
done
cmp -s one.csv two.csv || fail "losses under the emulated clock: $(paste one.csv two.csv)" "$(cat err)"
"$python" - <<'PY' || fail "the emulated clock over two hosts: $(cat out)"
import json
e = json.load(open("out"))["emulation"]
assert e["valid"] and e["ops"] > 0, e
assert e["iteration_s"] >= e["simulated_iteration_s"] * 0.98, e # lateness is the machine's; being early would be a bug
PY

printf 'h1 slots=2 # of two\n\nh2 slots=2 max_slots=4\n' >hostfile
away 0 zero_offload "${common[@]}" --steps 3 --hostfile hostfile --losses two.csv
run 0 train zero_offload "${common[@]}" --steps 3 --losses one.csv
cmp -s one.csv two.csv || fail "losses with a hostfile: $(paste one.csv two.csv)"
timeout "$limit" "$hosts" run -n 4 -x LSAN_OPTIONS "$hetbench" train zero_offload "${common[@]}" --steps 3 --losses two.csv >out 2>err || fail "mpirun: $(cat err)"
cmp -s one.csv two.csv || fail "losses under mpirun: $(paste one.csv two.csv)"

away 2 zero_offload "${common[@]}" --hosts h1:1,h2:3
says "rank 0 is on host h1 and rank 1 on host h2, but both are of node 0"
away 2 zero_offload "${common[@]}" --hosts h1:2,h2:1
says "--hosts: 'h1:2,h2:1' has 3 slots; the job has 4 ranks"
away 2 zero_offload "${common[@]}" --hosts h1:x
says "--hosts: '.*': expected names and slots"
away 2 zero_offload "${common[@]}" --hosts h1:4 --hostfile hostfile
says "--hosts and --hostfile"
away 2 zero_offload --model gpt-tiny --data "$text" --hosts h1:2
says "the job has one rank"
away 1 zero_offload "${common[@]}" --hosts h1:2,h9:2
says "mpirun cannot start its daemon on host (h1 or )?h9: "

# A host that is cut off from the beginning: its daemon never finds mpirun, and is ended by its guard.
"$hosts" cut 2
patience=5
away 1 zero_offload "${common[@]}" --hosts h1:2,h2:2
says "host (h1 or )?h2 was lost, or did not start within 5 s"
nothing_left
patience=60
"$hosts" mend 2

# ends WHAT COMMAND...: something happens once the training, with the options of the array `with`, has begun.
with=()
ends() {
    local what=$1
    shift
    : >err
    away 1 zero_offload "${common[@]}" --steps 1000000 --hosts h1:2,h2:2 "${with[@]}" &
    for _ in $(seq 600); do
        ! grep -Eq "^(step|emulated clock)" err || break
        sleep 0.1
    done
    "$@"
    wait $!
    says "$what"
    nothing_left
}
# shellcheck disable=SC2016 # the host's shell expands it
kill_rank_2='kill -KILL $(for p in /proc/[0-9]*; do tr "\0" "\n" <$p/environ 2>/dev/null | grep -qx OMPI_COMM_WORLD_RANK=2 && basename $p; done)'
ends "rank 2 on host h2 was killed by signal 9" "$hosts" exec 2 sh -c "$kill_rank_2"
with=(--clock emu --emu-scale 1e7) # every op is held for minutes
ends "rank 2 on host h2 was killed by signal 9" "$hosts" exec 2 sh -c "$kill_rank_2"
with=()
ends "host h2 was lost" "$hosts" kill 2
"$hosts" boot 2
away 0 zero_offload "${common[@]}" --steps 3 --hosts h1:2,h2:2 --losses two.csv
cmp -s one.csv two.csv || fail "after the host is back: $(paste one.csv two.csv)"

# Slurm over the hosts, where it is installed and this is root.
if command -v srun slurmctld munged >programs && [ "$(id -u)" = 0 ]; then
    "$hosts" slurm up
    timeout "$limit" "$hosts" exec 0 srun -N2 -n4 "$hetbench" train zero_offload "${common[@]}" --steps 3 --losses two.csv >out 2>err || fail "srun: $(cat err)"
    cmp -s one.csv two.csv || fail "losses under srun: $(paste one.csv two.csv)"
    ! timeout "$limit" "$hosts" exec 0 srun --mpi=none -N2 -n4 "$hetbench" train zero_offload "${common[@]}" --steps 3 >out 2>err || fail "srun --mpi=none trained"
    says "srun started 4 tasks without PMIx"
    "$hosts" slurm down
fi
finish

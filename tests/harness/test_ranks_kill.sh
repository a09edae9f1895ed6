#!/usr/bin/env bash
# Eight ranks on two emulated nodes. Whichever process is killed in the middle of an iteration, and whenever Ctrl-C comes, once or
# twice, all end within seconds and one line says why. No process, shared memory or file is left the moment the launcher returns.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
mkdir tmp
export TMPDIR=$work/tmp
small_llama 16 >llama.yaml
emulated_nodes 2 4 >nodes.yaml
common=(--model llama.yaml --batch 8 --micro-batch 1 --seq 16 --data "$text" --numerics fp32)
needs_ranks "${common[@]}"
shm=$(find /dev/shm | sort)
slow=$([ -n "$sanitized" ] && echo 5 || echo 1)
echo "HT_SEED=$seed"

# job: all processes of the training, with any parent.
job() { grep -lzxF "HETBENCH_TEST=$work" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 || true; }

# began: starts a training of minutes, as process $pid. When it returns, signals are handled (a background job of a shell begins with
# SIGINT ignored).
began() {
    rm -f l.csv err events
    HETBENCH_TEST=$work "$hetbench" train sysx "${common[@]}" --cluster nodes.yaml --steps 4000 --losses l.csv --events events >out 2>err &
    pid=$!
    until grep -q '^SigCgt:.*4[0-9a-f][0-9a-f][23]$' "/proc/$pid/status" 2>/dev/null || ! kill -0 "$pid"; do sleep 0.01; done
}

# underway: waits until all eight ranks have the memory of their nodes and have made two iterations. Sets $ranks.
underway() {
    local i n=0 p
    for ((i = 0; i < 300 * slow && n < 8; i++)); do
        sleep 0.1
        n=0
        ranks=$(ranks_of "$pid")
        for p in $ranks; do ! grep -q memfd: "/proc/$p/maps" 2>/dev/null || n=$((n + 1)); done
    done
    [ "$n" = 8 ] || fail "$n of eight ranks began: $(tail -n 5 err)"
    for ((i = 0; i < 300 * slow; i++)); do
        [ ! -e events ] || [ "$(grep -c '"event": "step"' events)" -lt 2 ] || return 0
        sleep 0.1
    done
    fail "no second iteration: $(tail -n 5 err)"
}

# ended STATUS SECONDS PATTERN WHAT: the training has ended, or does so in about that time (twelve times that on a loaded machine), and
# nothing is left of it.
ended() {
    local status=0 began=$EPOCHSECONDS left
    wait "$pid" || status=$?
    left=$(job)
    [ $((EPOCHSECONDS - began)) -le $((12 * $2 * slow)) ] || fail "$4: it took $((EPOCHSECONDS - began)) s"
    [ "$status" = "$1" ] || fail "$4: status $status, expected $1: $(tail -n 5 err)"
    tail -n 1 err | grep -Eq "^hetbench: .*($3)" || fail "$4 says: $(tail -n 5 err)"
    # shellcheck disable=SC2086 # words
    [ -z "$left" ] || fail "$4: processes are left: $(ps -o pid,ppid,stat,args $left)"
    [ -z "$(ls tmp)" ] || fail "$4: left in TMPDIR: $(ls tmp)"
    [ ! -e l.csv ] || fail "$4: a file was written"
    shm_left "$4"
}

# vanished WHAT: the launcher was killed; others end all that is left of it. The time is a limit for a hang, no more.
vanished() {
    local i
    wait "$pid" 2>/dev/null || true
    for ((i = 0; i < 300 * slow; i++)); do
        [ -n "$(job)" ] || return 0
        sleep 0.1
    done
    # shellcheck disable=SC2046 # words
    fail "$1: processes are left: $(ps -o pid,ppid,stat,args $(job))"
}

# How a rank ended is not known where mpirun has asked the kernel first and tells of another one's end.
# A node's leader (rank 0 or 4) and another; the shared memory has no name and goes with the last process that has it.
for which in $(drawn 1 1 5) $(drawn 1 4 8); do
    began
    underway
    kill -KILL "$(echo "$ranks" | sed -n "${which}p")"
    ended 1 5 "rank $((which - 1)) (is gone|was killed by signal 9|ended without a report)" "rank $((which - 1)) killed"
    [ "$(grep -vc '^step ' err)" = 1 ] || fail "rank $((which - 1)) killed: expected one line: $(cat err)"
done
began
underway
kill -KILL "$(mpirun_of "$pid")"
ended 1 5 "mpirun was killed by signal 9" "mpirun killed"
began
underway
kill -KILL "$(pgrep -P "$pid")"
ended 1 5 "the process that keeps the ranks was killed" "the keeper killed"

# Before it has a keeper it leaves an empty folder, which the next launch removes.
for wait in $(drawn 1 0.05 0.2) underway; do
    began
    if [ "$wait" = underway ]; then underway; else sleep "$wait"; fi
    kill -KILL "$pid"
    vanished "the launcher killed ($wait)"
    left=$(ls tmp)
    [ "$wait" = underway ] || [ -n "$(find tmp -mindepth 2)" ] || left=
    [ -z "$left" ] || fail "the launcher killed ($wait): left in TMPDIR: $left"
done

# With its keeper it leaves the folder, which the next launch removes.
began
underway
keeper=$(pgrep -P "$pid")
kill -STOP "$keeper"
kill -KILL "$pid" "$keeper"
vanished "launcher and keeper killed"
[ "$(find tmp -mindepth 1 -maxdepth 1 | wc -l)" = 1 ] || fail "launcher and keeper killed: expected their folder: $(ls tmp)"
run 0 train in_memory "${common[@]}" --ranks 2 --steps 1
[ -z "$(ls tmp)" ] || fail "the next launch has left $(ls tmp)"

began
underway
until grep -q '^step ' err || ! kill -0 "$pid"; do sleep 0.1; done # progress, after two seconds of training
kill -INT "$pid"
ended 130 10 "interrupted after [0-9]+ of 4000 steps" "Ctrl-C"
grep -q '^step [0-9]*/4000  [0-9.e-]* s/step' err || fail "no progress is shown: $(head -n 3 err)"
! grep -q loss err || fail "one rank's part of the loss is shown: $(head -n 3 err)"
for gap in $(drawn 1 0 0.03 0.3); do
    began
    underway
    kill -INT "$pid"
    sleep "$gap"
    kill -INT "$pid" 2>/dev/null || true
    ended 130 3 "interrupted" "Ctrl-C twice, $gap s apart"
done

# While the ranks start, and before. A process that does not exist yet cannot get a signal.
for wait in $(drawn 2 0.02 0.06 0.1 0.15 0.2 0.3); do
    began
    sleep "$wait"
    kill -INT "$pid"
    ended 130 10 "interrupted" "Ctrl-C after $wait s"
done
for wait in $(drawn 1 0.05 0.15 0.3); do
    began
    sleep "$wait"
    kill -INT "$pid"
    kill -TERM "$pid" 2>/dev/null || true
    ended 130 3 "interrupted" "Ctrl-C and SIGTERM after $wait s"
done
finish

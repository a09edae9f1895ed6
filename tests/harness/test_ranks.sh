#!/usr/bin/env bash
# Several ranks for real: the losses of one rank whose micro-batches are the ranks' shares, to the last bit; what is said,
# and by whom; and no rank, no file and no shared memory is left behind, whichever process is killed.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
mkdir tmp
export TMPDIR=$work/tmp

refused 2 "5 ranks on cluster 'autohete-4gpu', which has 4 devices" sim zero_offload --model gpt-tiny \
    --cluster autohete-4gpu --ranks 5 --numerics fp32
common=(--model gpt-mini --batch 4 --seq 16 --data "$text")
needs_ranks "${common[@]}"
shm=$(find /dev/shm | sort)

limit=60 # for a hang, no more
refused 2 "/dev/zero: is neither a file nor a pipe" train in_memory "${common[@]}" --ranks 2 --hostfile /dev/zero
printf 'a slots=1\nb slts=1\n' >hostfile
refused 2 "hostfile:2: 'slts=1' is not understood; expected slots=N or max_slots=N" train in_memory "${common[@]}" --ranks 2 --hostfile hostfile
refused 2 "--hostfile: '/dev/fd/[0-9]+' has 1 slots; the job has 2 ranks" train in_memory "${common[@]}" --ranks 2 --hostfile <(echo a slots=1)
limit=

emulated_nodes 2 2 >nodes.yaml

# same RANKS SYSTEM ARGUMENTS...: with a micro-batch a rank, ranks add gradients in the order in which one rank would.
same() {
    local ranks=$1 system=$2
    shift 2
    run 0 train in_memory "${common[@]}" --micro-batch $((4 / ranks)) --steps 3 --losses one.csv
    run 0 train "$system" "${common[@]}" --steps 3 --losses ranks.csv "$@"
    cmp -s one.csv ranks.csv || fail "$system $*: losses are not those of one rank: $(paste one.csv ranks.csv)"
}
same 2 zero_offload --ranks 2
same 2 autohete --ranks 2
same 4 in_memory_ckpt --ranks 4
same 4 zero_offload --cluster nodes.yaml --trace t.json --json
[ "$(json out '(d["status"], len(d["losses"]), sorted(m["space"] for m in d["predicted_memory"])[-1])')" = "('ok', 3, 'host 1')" ] ||
    fail "the report of two nodes: $(cat out)"
# A process is larger than what its device's arena has touched.
[ "$(json out '[p > next(m["measured_bytes"] for m in d["predicted_memory"] if m["space"] == f"device {r}") > 0 for r, p in enumerate(d["training"]["resident_peak_bytes"])]')" = "[True, True, True, True]" ] ||
    fail "resident memory of four ranks: $(json out 'd["training"]["resident_peak_bytes"], d["predicted_memory"]')"
run 0 sim zero_offload "${common[@]:0:6}" --cluster nodes.yaml --replay t.json # order and times make sense, of all ranks

# Images go to the ranks as tokens do.
"$python" "$root/scripts/images" images.bin --count 20 --image 12 --channels 1 --classes 5
echo '{name: vit-nano, arch: vit, layers: 2, width: 16, heads: 2, image: 12, patch: 4, channels: 1, classes: 5, source: the tests}' >vit.yaml
run 0 train in_memory --model vit.yaml --batch 4 --data images.bin --micro-batch 1 --steps 3 --losses one.csv
run 0 train cephalo --model vit.yaml --batch 4 --data images.bin --ranks 4 --steps 3 --losses ranks.csv
cmp -s one.csv ranks.csv || fail "images: losses are not those of one rank: $(paste one.csv ranks.csv)"

# A pipeline's ranks send each other what they compute; every gradient is made in one place.
run 0 train in_memory --model "$llama_tiny" "${common[@]:2}" --micro-batch 1 --steps 3 --losses one.csv
pipeline() {
    run 0 train "$1" --model "$llama_tiny" "${common[@]:2}" --micro-batch 1 --steps 3 --losses ranks.csv "${@:2}"
    cmp -s one.csv ranks.csv || fail "$* over ranks: losses are not in_memory's: $(paste one.csv ranks.csv)"
}
pipeline gpipe --ranks 2
pipeline interleaved --ranks 2
pipeline sysx --ranks 2 # with a final check, on which the ranks agree
pipeline mobius --cluster nodes.yaml

# More micro-batches a rank: (a0 + b0) + (a1 + b1) instead of ((a0 + a1) + b0) + b1, so rounding differs, no more.
run 0 train in_memory "${common[@]}" --micro-batch 1 --steps 3 --losses one.csv
run 0 train zero_offload "${common[@]}" --micro-batch 1 --steps 3 --ranks 2 --losses ranks.csv
"$python" - <<'PY' || fail "two micro-batches a rank: $(paste one.csv ranks.csv)"
one, ranks = ([float(line.split(",")[1]) for line in list(open(name))[1:]] for name in ("one.csv", "ranks.csv"))
assert one[0] == ranks[0] and all(abs(a / b - 1) < 1e-6 for a, b in zip(one, ranks)), (one, ranks)
PY

refused 3 "OOM at " train zero_offload "${common[@]}" --ranks 2 --device-memory 1MB

# began ARGUMENTS...: starts a training that does not end by itself, as process $pid, and waits until its ranks are there.
began() {
    rm -f err # of the training before
    # A background job of a shell ignores SIGINT unless it is told otherwise; Python resets it.
    rm -f err # the last one's progress
    "$python" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$hetbench" train zero_offload "${common[@]}" --steps 20000 "$@" >out 2>err &
    pid=$!
    until grep -qs '^step ' err || ! kill -0 "$pid" 2>/dev/null; do sleep 0.1; done # progress, after two seconds of training
}

signal=INT
for where in "--ranks 2" "--cluster nodes.yaml"; do
    # shellcheck disable=SC2086 # two words
    began $where --json --losses l.csv
    all=$(ranks_of "$pid") status=0
    kill "-$signal" "$pid"
    wait "$pid" || status=$?
    [ "$status" = 130 ] || fail "$where: status $status after SIG$signal: $(cat err)"
    tail -n 1 err | grep -q '^hetbench: interrupted after [0-9]* of 20000 steps' || fail "$where: SIG$signal says $(cat err)"
    [ "$(json out 'd["status"], 0 < d["training"]["steps_done"] == len(d["losses"]) < 20000')" = "('interrupted', True)" ] ||
        fail "$where: an interrupted training does not report its steps"
    [ ! -e l.csv ] || fail "$where: SIG$signal left a file"
    # shellcheck disable=SC2086 # words
    gone 30 $all
    signal=HUP

    for which in head tail; do
        # shellcheck disable=SC2086
        began $where
        all=$(ranks_of "$pid") status=0
        kill -KILL "$(echo "$all" | $which -n 1)"
        wait "$pid" || status=$?
        [ "$status" = 1 ] || fail "$where: status $status after a rank was killed"
        tail -n 1 err | grep -Eq '^hetbench: .*(is gone|killed by signal 9|ended without a report)' || fail "$where: a killed rank: $(cat err)"
        # shellcheck disable=SC2086
        gone 30 $all
    done
done
[ -z "$(ls tmp)" ] || fail "left in TMPDIR: $(ls tmp)"
shm_left "ranks killed"

# Nothing is ever put into /dev/shm, so a kill at any moment can leave nothing there: the time of its last change stays. With a user's
# own mpirun, which tries it itself, neither do the ranks.
cat >untouched <<'SH'
mount -t tmpfs shm /dev/shm || exit 77
changed() { stat -c %y /dev/shm; }
began=$(changed)
"$@" || exit 1
[ "$(changed)" = "$began" ] || { echo "a file was made there"; exit 1; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_backing_directory=$TMPDIR
export -f changed
mpirun --oversubscribe -n 2 bash -c 'changed >>times; "$@"; changed >>times' ranks "$@" || exit 1
[ "$(sort -u times | wc -l)" = 1 ] || { echo "mpirun's ranks made a file there"; exit 1; }
SH
own=(unshare --mount)
[ "$(id -u)" = 0 ] || own+=(--user --map-root-user)
status=77
if "${own[@]}" true 2>out; then
    status=0
    LSAN_OPTIONS=detect_leaks=0 "${own[@]}" bash untouched "$hetbench" train in_memory "${common[@]}" --ranks 2 --steps 1 >out 2>&1 ||
        status=$?
fi
case $status in
0) ;;
77) echo "no /dev/shm of its own can be mounted here: $(tail -n 1 out)" ;;
*) fail "/dev/shm: $(tail -n 3 out)" ;;
esac

began --ranks 2
all=$(ranks_of "$pid")
kill -KILL "$pid"
wait "$pid" || true
# shellcheck disable=SC2086
gone 30 $all

# A service manager sends SIGTERM to every process of the job: an interrupt, whichever process it reaches first.
began --ranks 2
all="$(mpirun_of "$pid") $(ranks_of "$pid")" status=0
# shellcheck disable=SC2086
kill -TERM $all "$pid"
wait "$pid" || status=$?
[ "$status" = 130 ] && [ "$(grep -c '^hetbench: interrupted' err)" = 1 ] || fail "SIGTERM to all: status $status: $(cat err)"
# shellcheck disable=SC2086
gone 30 $all

# A rank has no memory for its tables, though the launcher had: the launcher reports it, once for all ranks.
if [ -z "$sanitized" ]; then
    mkdir bin
    printf '#!/bin/sh\nulimit -v 400000\nexec %s "$@"\n' "$(command -v mpirun)" >bin/mpirun
    chmod +x bin/mpirun
    status=0
    PATH=$work/bin:$PATH "$hetbench" train in_memory --model gpt-tiny --batch 8192 --micro-batch 1 --seq 32 --steps 1 --ranks 2 --data "$text" \
        --device-memory 20MB >out 2>err || status=$?
    [ "$status" = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -Eq "^hetbench: (rank [01]|a rank) ran out of memory" err || fail "a rank without memory: status $status, $(cat err)"
fi
finish

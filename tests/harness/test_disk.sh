#!/usr/bin/env bash
# States on disk: losses are in_memory's to the last bit and memory is what was predicted, whatever the directories, the way to the
# disk, the numerics and the budgets. Every fault of a disk is one line that names it and loses nothing that was saved. A killed
# training goes on from its last checkpoint, and no file is left in the directories.
#
#     test_disk.sh BUILD-DIRECTORY [--kills N]     4; some 0.5 s each
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
kills=4
if [ "${2:-}" = --kills ]; then kills=${3:?--kills needs a number}; fi
cd "$work"
mkdir a b
dirs=$work/a,$work/b
mini=(--model gpt-mini --batch 4 --micro-batch 2 --seq 16 --data "$text" --steps 5)

# nothing_left WHAT: the directories are as empty as before.
nothing_left() { [ -z "$(find a b -mindepth 1)" ] || fail "$1: left behind: $(find a b)"; }

# same ARGUMENTS...: zero_infinity has the losses of in_memory, and the peaks that were predicted.
same() {
    run 0 train zero_infinity "${common[@]}" --losses other.csv --json "$@"
    cmp -s in_memory.csv other.csv || fail "zero_infinity $*: losses are not in_memory's"
    "$python" - <<'PY' || fail "zero_infinity $*: memory"
import json, sys

d = json.load(open("out"))
for m in d["memory"]:
    assert m["arena_peak_bytes"] == m["peak_bytes"] <= m["bound_bytes"], m
for m in d["predicted_memory"]:
    if not m["space"].startswith("device"):
        assert m["measured_bytes"] == m["simulated_bytes"] == m["low_bytes"] == m["high_bytes"], m
PY
    nothing_left "$*"
}

numerics_tried=(fp32 bf16)
if [ -n "$sanitized" ]; then numerics_tried=(bf16); fi
for numerics in "${numerics_tried[@]}"; do
    common=("${mini[@]}" --numerics "$numerics")
    run 0 train in_memory "${common[@]}" --losses in_memory.csv
    for io in auto threads; do # auto is io_uring where there is one
        for disk in a "$dirs"; do same --disk "$disk" --disk-io "$io"; done
    done
    same --disk a --disk-checksums off
    same --disk /dev/shm
    same --disk a --host-memory 4MB --set sub_group=60000
    same --disk a --host-memory 2MB
    same --disk a --device-memory 3MB --host-memory 1200kB --set prefetch=2
    same --disk a --set grads=0 --set prefetch=9
    same --disk a --set params=0 --set sub_group=60000
    # how many sub-groups are in main memory at a time then depends on the disk: losses only
    run 0 train zero_infinity "${common[@]}" --losses other.csv --disk a --set params=0 --set pipeline=1 --set sub_group=60000 \
        --inject-disk read:flip:1000000
    grep -q "warning: --inject-disk read:flip:1000000: nothing was injected" err || fail "a drill that did nothing: $(cat err)"
    cmp -s in_memory.csv other.csv || fail "zero_infinity, pipelined: losses are not in_memory's"
    nothing_left "pipelined"
done
common=("${mini[@]}" --numerics bf16)
run 0 train in_memory "${common[@]}" --control gate --clip 0.5 --inject-overflow 3:1 --losses in_memory.csv
for control in gate rollback; do same --disk a --control "$control" --clip 0.5 --inject-overflow 3:1; done

# Under the emulated clock, of hardware with disks.
common=("${mini[@]}" --numerics fp32)
run 0 train in_memory "${common[@]}" --losses in_memory.csv
emulated_nodes 1 1 >disks.yaml
sed -i 's/    pcie: local-memcpy/    ssds: {type: p5510-3.84tb, count: 2}\n&/' disks.yaml
status=0 # 1: valid or not is a matter of the machine's load
"$hetbench" train zero_infinity "${common[@]}" --cluster disks.yaml --clock emu --disk a --json >out 2>err || status=$?
[ "$status" -le 1 ] || fail "zero_infinity under the emulated clock: status $status: $(tail -n 3 err)"
[ "$(json out '"\n".join("%.17g" % x for x in d["losses"])')" = "$(sed '1d; s/.*,//' in_memory.csv)" ] ||
    fail "zero_infinity under the emulated clock: losses are not in_memory's"

# ---- wrong input, and no room ----

refused 2 "'zero_infinity' keeps .* on disk; expected --disk DIR" train zero_infinity --cluster disks.yaml --clock emu "${mini[@]}"
refused 3 "zero_infinity keeps tensors on SSDs; the node of cluster 'local' has none" train zero_infinity "${mini[@]}"
refused 2 "--disk: '/nowhere': No such file" train zero_infinity "${mini[@]}" --disk a,/nowhere
refused 2 "--disk: a directory is empty" train zero_infinity "${mini[@]}" --disk a,
refused 2 "--disk: '$text' is a file" train zero_infinity "${mini[@]}" --disk "$text"
refused 2 "--disk-io 'dma' is not known; expected auto, uring or threads" train zero_infinity "${mini[@]}" --disk a --disk-io dma
refused 2 "--disk-checksums 'maybe': expected on or off" train zero_infinity "${mini[@]}" --disk a --disk-checksums maybe
refused 2 "--inject-disk 'write:flip:1': expected" train zero_infinity "${mini[@]}" --disk a --inject-disk write:flip:1
refused 2 "--disk-io, --disk-checksums and --inject-disk need --disk DIR" train in_memory "${mini[@]}" --disk-io threads
refused 3 "OOM .* on host 0" train zero_infinity "${mini[@]}" --disk a --host-memory 200kB
mkdir small
if mount -t tmpfs -o size=1m tmpfs small 2>/dev/null; then
    refused 3 "training 'zero_infinity' needs .* of disk space in small: No space left on device" train zero_infinity "${mini[@]}" \
        --disk a,small
    [ -z "$(ls -A small)" ] || fail "a full disk: left behind"
    umount small
else
    echo "no small file system here: tests/common/mem/test_disk.c has its own shim"
fi
nothing_left "refused"

# ---- faults ----

# The training in one piece, and another that stops after step 2, to go on from.
common=(--model gpt-mini --batch 2 --seq 16 --data "$text" --control gate --clip 1)
run 0 train in_memory "${common[@]}" --steps 12 --losses whole.csv
run 0 train zero_infinity "${common[@]}" --disk a --steps 2 --checkpoint start

# spoilt EXPECTED FAULT ARGUMENTS...: the fault ends the training with one line; its checkpoints are whole.
spoilt() {
    local expected=$1 fault=$2
    shift 2
    rm -rf run
    cp -r start run
    refused 1 "$expected" train zero_infinity "${common[@]}" --disk a,b --steps 12 --checkpoint run --every "$every" --resume --inject-disk "$fault" "$@"
    nothing_left "$fault"
    run 0 train zero_infinity "${common[@]}" --disk b --steps 12 --checkpoint run --every 3 --resume --losses other.csv
    cmp -s whole.csv other.csv || fail "$fault: losses of the resumed training"
}
op="schedule 'zero_infinity': op [0-9]+ \([A-Z0-9]+\) on the cpu backend: tensor [0-9]+ \([a-z ]+ of unit [0-9]\): "
at="disk file in (a|b), offset [0-9]+: "
every=100 # so that all but the first requests are those of steps
ways=(auto threads) bad_blocks=(1 55 95 115)
if [ -n "$sanitized" ]; then ways=(auto) bad_blocks=(95); fi
for io in "${ways[@]}"; do
    spoilt "$op${at}reading [0-9]+ bytes: Input/output error" read:eio:400 --disk-io "$io"
    spoilt "$op${at}writing [0-9]+ bytes: Input/output error" write:eio:400 --disk-io "$io"
    spoilt "$op${at}reading ended early; expected [0-9]+ bytes more" read:short:380 --disk-io "$io"
    spoilt "$op${at}the block is not what was written there: checksum [0-9a-f]+, expected [0-9a-f]+" read:flip:420 --disk-io "$io"
done
# While residents are filled, or a checkpoint reads them, there is no op; the checkpoint before is as it was. The first read is the
# rest of a block that a write of a part of it completes.
every=2
spoilt "${at}writing [0-9]+ bytes: Input/output error" write:eio:3
for n in "${bad_blocks[@]}"; do
    rm -rf run
    cp -r start run
    run 1 train zero_infinity "${common[@]}" --disk a --steps 12 --checkpoint run --every 1 --resume --inject-disk "read:flip:$n"
    run 0 train zero_infinity "${common[@]}" --disk a --steps 12 --checkpoint run --resume --losses other.csv
    cmp -s whole.csv other.csv || fail "a bad block at read $n: losses of the resumed training"
done

# ---- kills ----

# newest: the step of the newest checkpoint.
newest() { find run -maxdepth 1 -name 'step-*' -printf '%f\n' | sed 's/step-0*//' | sort -n | tail -n 1; }

# Each training may be another system's: checkpoints are nobody's own.
RANDOM=7
rm -rf run
cp -r start run
killed=(zero_infinity lohan lohan_zero lohan_g10)
for ((i = 0; i < kills; i++)); do
    "$hetbench" train "${killed[i / 2 % 4]}" "${common[@]}" --disk "$dirs" --steps 1000000 --checkpoint run --every 2 --resume >killed.out 2>killed.err &
    pid=$!
    before=$(newest)
    if ((i % 2)); then # in the middle of steps; otherwise while residents are filled, or shortly after
        while kill -0 "$pid" 2>/dev/null && [ "$(newest)" = "$before" ]; do sleep 0.02; done
    fi
    sleep "0.$(printf '%03d' $((RANDOM % 300)))"
    kill -KILL "$pid" || fail "kill $i: it had ended: $(tail -n 3 killed.err)"
    wait "$pid" 2>/dev/null || true
    nothing_left "kill $i"
done
step=$(newest)
[ "$step" -gt 2 ] || fail "the kills came too early"
run 0 train in_memory "${common[@]}" --steps $((step + 6)) --losses whole.csv
run 0 train zero_infinity "${common[@]}" --disk a --steps $((step + 6)) --checkpoint run --resume --losses other.csv
cmp -s whole.csv other.csv || fail "losses after $kills kills"
echo "$kills kills up to step $step; losses as if never stopped, nothing left in the directories"

# Ctrl-C, too.
"$hetbench" train zero_infinity "${common[@]}" --disk "$dirs" --steps 1000000 >killed.out 2>killed.err &
pid=$!
until grep -q '^SigCgt:.*4[0-9a-f][0-9a-f][23]$' "/proc/$pid/status" 2>/dev/null || ! kill -0 "$pid"; do sleep 0.01; done
kill -INT "$pid"
status=0
wait "$pid" || status=$?
[ "$status" = 130 ] || fail "Ctrl-C: status $status: $(cat killed.err)"
nothing_left "Ctrl-C"

# ---- several ranks ----

needs_ranks "${mini[@]}"
common=("${mini[@]}" --numerics fp32 --micro-batch 1 --ranks 2)
run 0 train in_memory "${common[@]}" --losses in_memory.csv
run 0 train zero_infinity "${common[@]}" --disk "$dirs" --losses other.csv --steps 3 --checkpoint ranks
run 0 train zero_infinity "${common[@]}" --disk a --losses other.csv --checkpoint ranks --resume --host-memory 4MB
cmp -s in_memory.csv other.csv || fail "zero_infinity over two ranks: losses are not in_memory's"
emulated_nodes 2 1 >nodes.yaml
sed -i 's/    pcie: local-memcpy/    ssds: {type: local-disk, count: 2}\n&/' nodes.yaml
run 0 train zero_infinity "${mini[@]}" --numerics fp32 --micro-batch 1 --cluster nodes.yaml --disk "$dirs" --losses other.csv
cmp -s in_memory.csv other.csv || fail "zero_infinity over two nodes: losses are not in_memory's"
run 1 train zero_infinity "${common[@]}" --disk "$dirs" --inject-disk read:eio:40
grep -q "Input/output error" err || fail "a disk fault on a rank: $(cat err)"
nothing_left "ranks"
finish

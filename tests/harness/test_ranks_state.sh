#!/usr/bin/env bash
# --init, --checkpoint, --resume and --save over several ranks: the very files of one rank, which any other number of ranks goes on
# from; a rank that is killed leaves the last whole checkpoint, and the folder free for the next run.
#
#     test_ranks_state.sh BUILD-DIRECTORY [--kills N] [--ranks-all]
#
# --kills: 2; a longer test takes about 2 s each. --ranks-all: 1 to 8 ranks of three models in two numerics; about 2 min.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
kills=2 ranks_all=
while [ $# -gt 1 ]; do
    case $2 in
    --kills) kills=${3:?--kills needs a number} && shift ;;
    --ranks-all) ranks_all=1 ;;
    esac
    shift
done
cd "$work"
without_mpirun
RANDOM=4
common=(--batch 4 --seq 16 --micro-batch 1 --data "$text")
needs_ranks "${common[@]}" --model gpt-mini

emulated_nodes 2 2 >nodes.yaml

same() { cmp -s "$1" "$2" || fail "$3: $1 and $2 differ"; }
same_folder() { diff -r -x .lock "$1" "$2" >differ 2>&1 || fail "$3: $(head -n 8 differ)"; }

# relay NAME ARGUMENTS... -- PARTS...: by one rank in one piece; then each part, "SYSTEM WHERE..", two steps further than the one
# before it. All files have the same bytes at the end.
relay() {
    local name=$1 args=() at=0 part
    shift
    while [ "$1" != -- ]; do
        args+=("$1")
        shift
    done
    shift
    run 0 train in_memory "${args[@]}" --steps $((2 * $#)) --losses whole.csv --checkpoint "whole-$name" --every 1 --save whole.safetensors
    rm -rf parts
    for part in "$@"; do
        # shellcheck disable=SC2086 # words
        run 0 train $part "${args[@]}" --steps $((at + 2)) --losses part.csv --checkpoint parts --every 1 --resume --save last.safetensors
        head -n $((at + 3)) whole.csv >wanted
        same wanted part.csv "$name: $part, from step $at on"
        at=$((at + 2))
    done
    same whole.safetensors last.safetensors "$name: weights"
    same_folder "whole-$name" parts "$name: checkpoints"
}

# Stages on each rank, two micro-batches of the gradient's sum beside them; shards on each rank: the same files.
relay llama --init "$root/tests/data/llama-nano" "${common[@]}" -- "gpipe --ranks 2" "sysx --ranks 2" "in_memory" "dapple --ranks 2"
relay gpt --init "$root/tests/data/gpt2-nano" "${common[@]}" -- "zero_offload --ranks 4" "autohete --cluster nodes.yaml" in_memory \
    "in_memory_ckpt --ranks 4"

# Units whose sizes do not divide by the ranks: the last shard is padded, or empty (12 elements over 7 ranks, and 8 over 5). In one
# piece or gone on from, the same files; in FP32 those of one rank, too. What as many ranks saved, one rank takes up, and the reverse.
# uneven RANKS ARGUMENTS...
uneven() {
    local n=$1
    shift
    local args=("$@" --batch "$n" --micro-batch 1 --data "$text") what="$n ranks of $*"
    rm -rf one many cut
    mkdir one many cut
    run 0 train zero_offload "${args[@]}" --ranks "$n" --steps 3 --losses many.csv --checkpoint many --every 2 --save many/saved
    run 0 train in_memory "${args[@]}" --steps 3 --losses one.csv --checkpoint one --every 2 --save one/saved
    if [[ $* != *--numerics* ]]; then
        same one.csv many.csv "$what: losses"
        same_folder one many "$what: after training"
    fi
    run 0 train zero_offload "${args[@]}" --ranks "$n" --steps 2 --checkpoint cut
    run 0 train patrickstar "${args[@]}" --ranks "$n" --steps 3 --checkpoint cut --resume --save cut/saved
    same_folder many cut "$what: gone on"
    run 0 train in_memory "${args[@]}" --steps 3 --checkpoint cut --resume --save back --losses back.csv
    same_folder many/saved back "$what: exported by one rank"
    same many.csv back.csv "$what: losses, exported by one rank"
    run 0 train in_memory "${args[@]}" --steps 4 --checkpoint cut --resume
    run 0 train in_memory "${args[@]}" --ranks "$n" --steps 3 --checkpoint one --resume --save back --losses back.csv
    same_folder one/saved back "$what: exported from one rank"
    same one.csv back.csv "$what: losses, exported from one rank"
    run 0 train in_memory_ckpt "${args[@]}" --init one/saved --lr 0 --ranks "$n" --steps 1 --save back
    same_folder one/saved back "$what: taken up from one rank"
}
echo '{name: narrow, arch: gpt, layers: 1, width: 6, heads: 2, vocab: 256, max_seq: 8, tied: true, source: the tests}' >narrow-gpt.yaml
echo '{name: narrow, arch: llama, layers: 1, width: 8, heads: 2, kv_heads: 1, ffn: 22, vocab: 256, tied: true, max_seq: 8, source: the tests}' \
    >narrow-llama.yaml
uneven 3 --model gpt-mini --seq 8
uneven 7 --model narrow-gpt.yaml --seq 8 --numerics fp16 --loss-scale dynamic --clip 1
uneven 5 --model narrow-llama.yaml --seq 8 --numerics bf16
for model in ${ranks_all:+gpt-mini gpt-tiny llama-tiny}; do
    for n in 1 2 3 4 5 6 7 8; do
        uneven "$n" --model "$model" --seq 8
        uneven "$n" --model "$model" --seq 8 --numerics bf16
    done
done

# With a final check: skipped iterations count on no rank as steps, and the loss scale continues.
llama=(--model "$llama_tiny" "${common[@]}" --numerics fp16 --inject-overflow 2:1 --inject-overflow 3:4)
run 0 train in_memory "${llama[@]}" --control gate --steps 6 --checkpoint whole-verdict --every 3 --losses whole.csv
run 0 train sysx "${llama[@]}" --control rollback --ranks 2 --steps 3 --checkpoint parts-verdict --every 3
run 0 train mobius "${llama[@]}" --control gate --cluster nodes.yaml --steps 6 --checkpoint parts-verdict --every 3 --resume --losses part.csv
same whole.csv part.csv "verdicts: losses after resuming"
same_folder whole-verdict parts-verdict "verdicts: checkpoints"
[ "$(json parts-verdict/step-0000000006/manifest.json 'set(d["checkpoint"]["optimizer_steps"]), d["checkpoint"]["loss_scale"]')" = "({4}, 16384.0)" ] ||
    fail "two skipped steps of six"

# Shards of any size, empty ones too: the very files of one rank, and any number of ranks goes on from them.
for n in 2 3 5; do
    shared=(--model gpt-mini --seq 8 --batch "$n" --micro-batch 1 --data "$text")
    rm -rf one
    run 0 train in_memory "${shared[@]}" --steps 2 --checkpoint one --every 1 --save one.safetensors
    for share in "" 0,3,1 0.2,0.7,0.1,0,0; do
        [ -z "$share" ] || [ "$(tr -dc , <<<"$share" | wc -c)" = $((n - 1)) ] || continue
        rm -rf many cut
        run 0 train fsdp "${shared[@]}" --ranks "$n" ${share:+--set share="$share"} --steps 2 --checkpoint many --every 1 --save many.safetensors
        same_folder one many "$n ranks of fsdp, shares '$share'"
        same one.safetensors many.safetensors "$n ranks of fsdp, shares '$share': weights"
        cp -r one cut && rm -r cut/step-0000000002
        run 0 train fsdp "${shared[@]}" --ranks "$n" ${share:+--set share="$share"} --steps 2 --checkpoint cut --resume
        same_folder one cut "$n ranks of fsdp, shares '$share': gone on"
    done
done

# No process has more of the state than its own and a few pieces of 4 MiB, whatever it does with it: checkpoints, weights in and
# out. The state has 101 MB here, a quarter or a third of it is a rank's. Peaks as the kernel counts them, beside those of the
# same training that reads and writes nothing.
if [ -z "$sanitized" ]; then
    echo '{name: wide, arch: gpt, layers: 8, width: 288, heads: 4, vocab: 256, max_seq: 16, tied: false, source: the tests}' >wide.yaml
    peaks_of() { # NAME ARGUMENTS...
        run 0 train "${@:2}" --model wide.yaml "${common[@]}" --device-memory 300MB --json
        echo "$1 $(json out 'd["training"]["resident_peak_bytes"]')" | tr -d '[],' >>peaks
    }
    rm -rf wide
    peaks_of plain fsdp --ranks 4 --steps 2
    peaks_of "checkpoint and save" fsdp --ranks 4 --steps 2 --checkpoint wide --every 1 --save wide.safetensors
    peaks_of plain fsdp --ranks 3 --set l=2,1,1 --set m=1 --set share=0.2,0.8,0 --steps 1
    peaks_of resume fsdp --ranks 3 --set l=2,1,1 --set m=1 --set share=0.2,0.8,0 --steps 3 --checkpoint wide --resume --every 9
    peaks_of plain in_memory --steps 1
    peaks_of "init and save" in_memory --init wide.safetensors --steps 1 --save again.safetensors
    peaks_of plain gpipe --ranks 4 --steps 1
    peaks_of "resume and save" gpipe --ranks 4 --steps 4 --checkpoint wide --resume --every 9 --save weights
    "$python" - <<'PY' || fail "a process has more of the state than its own"
lines = [line.split() for line in open("peaks")]
peaks = [(" ".join(w for w in line if not w.isdigit()), [int(w) / 1e6 for w in line if w.isdigit()]) for line in lines]
assert len(peaks) == 8, peaks
for (_, plain), (what, more) in zip(peaks[::2], peaks[1::2]):
    print(f"{what}: MB by rank:", *(f"{b:.0f} ({b - a:+.0f})" for a, b in zip(plain, more)))
    assert len(plain) == len(more) and all(b - a < 24 for a, b in zip(plain, more)), what
PY
fi

# What is wrong is one line, said by one.
refused 2 "--checkpoint: whole-gpt holds a training up to step 8" train in_memory --init "$root/tests/data/gpt2-nano" "${common[@]}" --ranks 2 \
    --steps 9 --checkpoint whole-gpt
refused 2 "--resume: --checkpoint DIR is missing" train in_memory --model gpt-mini "${common[@]}" --ranks 2 --resume
refused 2 "--save: .*none.*: cannot be" train in_memory --model gpt-mini "${common[@]}" --ranks 2 --save none/x.safetensors

# What is damaged is named, by one, and nothing is touched.
cp -r parts-verdict broken
newest=broken/step-0000000006 advice="the checkpoint is damaged: remove broken/step-0000000006 to resume from step 3"
damaged() { # PATTERN
    (cd broken && find . -type f ! -name .lock -exec cksum {} + | sort) >before.sums
    refused 2 "$1; $advice" train mobius "${llama[@]}" --control gate --cluster nodes.yaml --steps 9 --checkpoint broken --resume
    (cd broken && find . -type f ! -name .lock -exec cksum {} + | sort) | cmp -s - before.sums || fail "$1: files were changed"
}
printf '\377' | dd of=$newest/unit-0003.safetensors bs=1 seek=90000 conv=notrunc status=none
damaged "$newest/unit-0003.safetensors: has the hash .*; its manifest says [0-9a-f]*"
cp parts-verdict/step-0000000006/unit-0003.safetensors $newest/ && truncate -s 5000 $newest/manifest.json
damaged "$newest/manifest.json: has the hash .*; its own record says .*|$newest/manifest.json:[0-9]+:[0-9]+: .*"

# A disk that is full, in a mount of its own where the machine allows that: one line names the file, and what was whole is.
cat >on_disk <<'SH'
mount -t tmpfs -o "size=$1" disk disk || exit 77
shift
cp -r before/. disk
"$@" >out 2>err
status=$?
rm -rf kept
cp -r disk kept
exit $status
SH
on_disk() { # SIZE FILE ARGUMENTS...: beginning with what is in the folder before, and leaving what there is in the folder kept
    local status=0
    unshare -rm bash on_disk "$1" "$hetbench" train fsdp --model gpt-mini "${common[@]}" --ranks 4 --steps 3 "${@:3}" 2>why || status=$?
    if [ "$status" = 77 ] || grep -q "^unshare:" why; then
        echo "skipped: a full disk: $(cat why)"
        return 1
    fi
    [ "$status" = 1 ] && [ "$(wc -l <err)" = 1 ] && grep -Eq "^hetbench: disk/$2: cannot be written: No space left on device$" err ||
        fail "a disk of $1: status $status: $(cat err)"
}
mkdir disk before
if on_disk 4m '.partial-0000000002/.*' --checkpoint disk --every 1; then # room for one checkpoint and not for two
    [ "$(ls kept)" = step-0000000001 ] || fail "a full disk holds $(ls kept)"
    run 0 train fsdp --model gpt-mini "${common[@]}" --ranks 4 --steps 3 --checkpoint kept --every 1 --resume
    run 0 train fsdp --model gpt-mini "${common[@]}" --ranks 4 --steps 3 --checkpoint roomy --every 1
    same_folder roomy kept "after the disk was full"
    run 0 train fsdp --model gpt-mini "${common[@]}" --ranks 4 --steps 1 --save before
    on_disk 1500k 'model.safetensors' --save disk && same_folder before kept "a model that a full disk kept"
fi

# A rank is killed, whichever; then again. Every step has a checkpoint, so it is in one as a rule.
began() {
    "$hetbench" train sysx "${llama[@]}" --control rollback --ranks 2 --steps 100000 --checkpoint killed --every 1 --resume >out 2>err &
    pid=$!
}
mkdir killed
before=0
for ((i = 0; i < kills; i++)); do
    began
    for ((k = 0; k < 100; k++)); do
        sleep 0.1
        newest=$(find killed -maxdepth 1 -name 'step-*' -printf '%f\n' 2>/dev/null | sed 's/step-0*//' | sort -n | tail -n 1)
        [ "${newest:-0}" -le "$before" ] || break
    done
    sleep "0.0$((RANDOM % 9))"
    ranks=$(ranks_of "$pid" | shuf -n 1 --random-source=<(yes "$i"))
    [ -n "$ranks" ] || { fail "kill $i: no rank is there: $(cat err)" && kill "$pid"; } # which would train for hours
    kill -KILL "$ranks" || true
    status=0
    wait "$pid" || status=$?
    [ "$status" = 1 ] || fail "kill $i: status $status: $(cat err)"
    newest=$(find killed -maxdepth 1 -name 'step-*' -printf '%f\n' | sed 's/step-0*//' | sort -n | tail -n 1)
    [ "$newest" -gt "$before" ] || fail "kill $i: the newest checkpoint went from step $before to $newest"
    before=$newest
done
run 0 train in_memory "${llama[@]}" --control gate --steps $((before + 5)) --losses whole.csv --checkpoint never --every 1000000
run 0 train sysx "${llama[@]}" --control rollback --ranks 2 --steps $((before + 5)) --losses part.csv --checkpoint killed --every 5 --resume
same whole.csv part.csv "losses after $kills kills"
last=$(printf 'step-%010d' $((before + 5)))
same_folder "never/$last" "killed/$last" "the state after $kills kills"
echo "$kills kills up to step $before"
finish

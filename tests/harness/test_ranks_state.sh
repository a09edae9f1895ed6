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

# Under a verdict: what was skipped counts for nobody's steps, and the loss scale goes on.
llama=(--model llama-tiny "${common[@]}" --numerics fp16 --inject-overflow 2:1 --inject-overflow 3:4)
run 0 train in_memory "${llama[@]}" --control gate --steps 6 --checkpoint whole-verdict --every 3 --losses whole.csv
run 0 train sysx "${llama[@]}" --control rollback --ranks 2 --steps 3 --checkpoint parts-verdict --every 3
run 0 train mobius "${llama[@]}" --control gate --cluster nodes.yaml --steps 6 --checkpoint parts-verdict --every 3 --resume --losses part.csv
same whole.csv part.csv "verdicts: losses after resuming"
same_folder whole-verdict parts-verdict "verdicts: checkpoints"
[ "$(json parts-verdict/step-0000000006/manifest.json 'set(d["checkpoint"]["optimizer_steps"]), d["checkpoint"]["loss_scale"]')" = "({4}, 16384.0)" ] ||
    fail "two skipped steps of six"

# The report has the memory of the state: of one rank, of two with all of it each, of two of which one has half a pipeline.
ledger() { # EXPRESSION SYSTEM RANKS: of bytes in b, and params in p
    run 0 train "$2" --model llama-tiny --ranks "$3" "${common[@]}" --steps 1 --save saved --json
    [ "$(json out "(lambda b, p: $1)(d['state_io']['bytes'], d['scenario']['model']['params'])")" = True ] || fail "$2 on $3 ranks: $(json out 'd["state_io"]')"
}
ledger "b == 13 * p" in_memory 1
ledger "b == 2 * 13 * p" zero_offload 2
ledger "13 * p < b < 2 * 13 * p" gpipe 2
run 0 train in_memory --model gpt-mini "${common[@]}" --steps 1 --save saved
grep -q "^state I/O: .* of host memory outside the budget, 13 bytes for each parameter" out || fail "no line of state I/O"
run 0 train in_memory --model gpt-mini "${common[@]}" --steps 1
if grep -q "^state I/O" out; then fail "state I/O of nothing"; fi
refused 3 "OOM at the start of the iteration on device 0" train in_memory --model gpt-mini "${common[@]}" --device-memory 100kB --save saved
grep -q "^state I/O: " out || fail "no line of state I/O in the ledger of what does not fit"
# 16 bytes a parameter and 13 more are too many where 25 are what there is. (The limit: were it not refused, it would be tried.)
if [ -z "$sanitized" ]; then
    kb=$(awk '/^MemTotal/ {print $2}' /proc/meminfo)
    layers=$((kb * 1024 / 25 / 12 / 2048 / 2048))
    echo "{name: large, arch: gpt, layers: $layers, width: 2048, heads: 16, vocab: 256, max_seq: 16, source: the tests}" >large.yaml
    (
        ulimit -v 4000000
        refused 3 "training 'in_memory' with .* of state I/O \(13 bytes a parameter.*\) can take .* GB; this machine has" train in_memory \
            --model large.yaml "${common[@]}" --device-memory "${kb}kB" --steps 1 --save saved
        [ "$failures" = 0 ]
    ) || fail "the state is not held against the machine's memory"
fi

# Rank 0 holds the whole state while it keeps the files (13 bytes a parameter, 109 MB of 8.4 million here), the others the units that
# they have something of: three quarters less in a pipeline of four, of which half is asked for. Peaks as the kernel counts them.
if [ -z "$sanitized" ]; then
    echo '{name: wide, arch: llama, layers: 8, width: 288, heads: 4, kv_heads: 4, ffn: 832, vocab: 256, max_seq: 16, source: the tests}' >wide.yaml
    "$hetbench" train gpipe --model wide.yaml "${common[@]}" --ranks 4 --device-memory 200MB --steps 2 --checkpoint wide --every 1 >out 2>err &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        # shellcheck disable=SC2046 # words
        grep -Hs VmHWM $(ranks_of "$pid" | sed 's,.*,/proc/&/status,') /dev/null >>peaks || true
        sleep 0.05
    done
    wait "$pid" || fail "wide: status $?: $(cat err)"
    "$python" - <<'PY' || fail "each rank holds the whole state"
peaks = {}
for line in open("peaks"):
    path, kb, _ = line.split()
    pid = int(path.split("/")[2])
    peaks[pid] = max(peaks.get(pid, 0), int(kb) / 1000)
peaks = [peaks[pid] for pid in sorted(peaks)]
print("peaks of four ranks, MB:", *map(round, peaks))
assert len(peaks) == 4 and max(peaks[1:]) < peaks[0] - 50, peaks
PY
fi

# What is wrong is one line, said by one.
refused 2 "--checkpoint: whole-gpt holds a training up to step 8" train in_memory --init "$root/tests/data/gpt2-nano" "${common[@]}" --ranks 2 \
    --steps 9 --checkpoint whole-gpt
refused 2 "--resume: --checkpoint DIR is missing" train in_memory --model gpt-mini "${common[@]}" --ranks 2 --resume
refused 2 "--save: .*none.*: cannot be" train in_memory --model gpt-mini "${common[@]}" --ranks 2 --save none/x.safetensors

# A rank is killed, whichever; then again.
began() {
    "$hetbench" train sysx "${llama[@]}" --control rollback --ranks 2 --steps 100000 --checkpoint killed --every 5 --resume >out 2>err &
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
    [ -n "$ranks" ] || fail "kill $i: no rank is there: $(cat err)"
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

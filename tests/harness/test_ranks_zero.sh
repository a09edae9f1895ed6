#!/usr/bin/env bash
# States shared by the pipelines that have the same blocks (ZeRO-1, ZeRO-2), with and without tensor parallelism, and some of them in host
# memory: in_memory's losses, to the bit where sums are its own; in predicted memory; checkpoints that any other shape reads, with the
# bytes of one rank's; with each control.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
without_mpirun
four=(sim gpipe --model llama-tiny --cluster autohete-4gpu --batch 8 --micro-batch 1)
refused 2 "ZeRO-1 with one pipeline: expected several, which share the states" "${four[@]}" --set zero=1
refused 2 "ZeRO-2 with pipelines that differ" "${four[@]}" --set zero=2 --set pipelines=3,1 --set l=4,4
refused 2 "scatter is set beside zero=2; expected zero=1" "${four[@]}" --set zero=2 --set pipelines=2,2 --set scatter=0
refused 2 "segment is set beside recompute=0; expected recompute=1 or 2" "${four[@]}" --set segment=1
refused 2 "segment=2 is set beside recompute=2; expected 1" "${four[@]}" --set recompute=2 --set segment=2

gpt=(--model gpt-mini --seq 16 --data "$text" --steps 4 --micro-batch 1)
llama=(--model "$llama_tiny" --seq 16 --data "$text" --steps 4 --micro-batch 1)
needs_ranks "${gpt[@]}" --batch 8

# One micro-batch a pipeline: sums are those of one rank.
run 0 train in_memory "${llama[@]}" --batch 2 --losses one.csv
for set in 'zero=1' 'zero=1 --set scatter=0' 'zero=2' 'zero=1 --set steps=1 --set bucket=100000' 'bucket=100000 --set steps=1' \
    'zero=1 --set host=1,2' 'zero=2 --set host=2,0' 'host=0,1'; do
    # shellcheck disable=SC2086 # words
    run 0 train dapple "${llama[@]}" --batch 2 --ranks 4 --set pipelines=2,2 --set $set --losses u.csv
    cmp -s one.csv u.csv || fail "dapple $set: $(paste one.csv u.csv)"
done

# GPT's table is tied: the ranks of the embedding and of the head share it, in a pipeline of one stage the same.
run 0 train in_memory "${gpt[@]}" --batch 8 --losses gpt.csv
run 0 train in_memory "${llama[@]}" --batch 8 --losses llama.csv
while read -r model system; do
    [ "$model" = gpt ] && common=("${gpt[@]}") || common=("${llama[@]}")
    # shellcheck disable=SC2086 # words
    run 0 train $system "${common[@]}" --batch 8 --losses u.csv
    near 1e-6 "$model.csv" u.csv
    [[ $system = gpipe*zero=1* ]] || continue
    # Pipelines of one stage: others' peaks go by when messages come.
    grep -q "device 0 .*+0.00%" out || fail "$model, $system: the peak is not the predicted one: $(grep device out)"
done <<LIST
gpt gpipe --ranks=4 --set pipelines=2,2 --set tp=2 --set zero=1
gpt dapple --ranks=6 --set pipelines=4,2 --set tp=2 --set zero=1 --set recompute=1
gpt interleaved --ranks=4 --set pipelines=2,2 --set v=2 --set zero=2 --set recompute=2
gpt dapple --ranks=8 --set pipelines=4,4 --set tp=2 --set zero=2 --set order=1
llama gpipe --ranks=4 --set pipelines=1,3 --set zero=1 --set scatter=0
llama gpipe --ranks=8 --set pipelines=4,4 --set tp=2 --set zero=2
llama dapple --ranks=4 --set pipelines=2,2 --set place=3,0,2,1 --set zero=1
llama dapple --ranks=7 --set pipelines=2,2,3 --set l=3,3,2 --set zero=1 --set halves=3,5,3,5,1,4,3
LIST

for control in gate rollback; do
    judged=(--batch 8 --control "$control" --clip 0.5 --inject-overflow 2:3)
    run 0 train in_memory "${gpt[@]}" "${judged[@]}" --losses one.csv
    for zero in 1 2; do
        run 0 train dapple "${gpt[@]}" "${judged[@]}" --ranks 4 --set pipelines=2,2 --set zero=$zero --losses u.csv
        near 1e-6 one.csv u.csv
    done
done

# Blocks whose states are in host memory train the same bits: in all numerics, in pipelines of any order, parts, with each control.
for numerics in fp32 bf16 fp16; do
    control=$([ $numerics = fp16 ] && echo rollback || echo gate)
    common=("${llama[@]}" --numerics "$numerics" --batch 8 --control "$control" --clip 0.5 --inject-overflow 2:3)
    run 0 train in_memory "${common[@]}" --losses one.csv
    for system in 'gpipe --ranks 2 --set host=1,2' 'dapple --ranks 4 --set host=0,1,1,1' 'interleaved --ranks 2 --set v=2 --set host=1,0,1,1'; do
        # shellcheck disable=SC2086 # words
        run 0 train $system "${common[@]}" --losses u.csv
        cmp -s one.csv u.csv || fail "$system, $numerics: $(paste one.csv u.csv)"
    done
    run 0 train dapple "${common[@]}" --ranks 8 --set pipelines=4,4 --set tp=2 --set zero=1 --losses two.csv
    run 0 train dapple "${common[@]}" --ranks 8 --set pipelines=4,4 --set tp=2 --set zero=1 --set host=2,1 --losses u.csv
    cmp -s two.csv u.csv || fail "parts and shards, $numerics: $(paste two.csv u.csv)"
done

# A checkpoint of one rank, taken up by shards that do no step, is saved as the same bytes; one that shards have left goes on anywhere.
half() { run 0 train "$@" --batch 8 --steps 2 --checkpoint ck; }
for model in gpt llama; do
    for numerics in $(numerics_of $model); do
        near=$([ "$numerics" = fp32 ] && echo 1e-6 || echo 2e-3)
        [ $model = gpt ] && common=("${gpt[@]}") || common=("${llama[@]}")
        common+=(--numerics "$numerics")
        run 0 train in_memory "${common[@]}" --batch 8 --losses one.csv
        rm -rf ck
        half in_memory "${common[@]}" --save one.safetensors
        half gpipe "${common[@]}" --ranks 8 --set tp=2 --set pipelines=4,4 --set zero=1 --resume --save shards.safetensors
        cmp -s one.safetensors shards.safetensors || fail "$model, $numerics: shards save something else"
        rm -rf ck
        half dapple "${common[@]}" --ranks 8 --set tp=2 --set pipelines=4,4 --set zero=2 --set host=1,2
        for resumed in 'in_memory' 'dapple --ranks 6 --set pipelines=3,3 --set zero=1' 'gpipe --ranks 4 --set tp=2 --set host=2,0'; do
            cp -r ck other
            # shellcheck disable=SC2086 # words
            run 0 train $resumed "${common[@]}" --batch 8 --checkpoint other --resume --losses u.csv
            near "$near" one.csv u.csv
            rm -rf other
        done
    done
done
finish

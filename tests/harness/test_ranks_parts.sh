#!/usr/bin/env bash
# Stages cut into tensor-parallel parts, trained over ranks: in_memory's losses within the roundings of sums that are cut, on one node
# and across two, alone, in pipelines and in replicas, with each control, and in predicted memory.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
[ -z "$sanitized" ] || without_mpirun

four=(sim gpipe --model llama-tiny --cluster autohete-4gpu --batch 8 --micro-batch 1)
refused 2 "tp 3 does not divide the 4 devices of a pipeline" "${four[@]}" --set tp=3
refused 2 "tp 4 does not divide the 2 heads of keys of llama-tiny" "${four[@]}" --set tp=4
refused 2 "tp 2 does not divide the 3 devices of a pipeline" "${four[@]}" --set tp=2 --set pipelines=3,1 --set l=4,4
refused 2 "widths is set beside tp; expected one of them" "${four[@]}" --set tp=2 --set widths=1,2,1
refused 2 "widths adds up to 3 devices; expected the 4 of pipeline 0" "${four[@]}" --set widths=1,2

refused 2 "slices is set beside sequence=1" "${four[@]}" --set tp=2 --set sequence=1 --set slices=1

gpt=(--model gpt-mini --seq 16 --data "$text" --steps 4 --batch 6 --micro-batch 1)
llama=(--model "$llama_tiny" --seq 16 --data "$text" --steps 4 --batch 8 --micro-batch 1)
needs_ranks "${gpt[@]}"
emulated_nodes 2 1 >nodes.yaml

# One part is the whole.
run 0 train gpipe "${llama[@]}" --ranks 2 --losses one.csv
run 0 train gpipe "${llama[@]}" --ranks 2 --set tp=1 --losses u.csv
cmp -s one.csv u.csv || fail "tp=1: $(paste one.csv u.csv)"

# GPT's table is tied and its vocabulary, 256, is cut; LLaMA's two heads of keys are.
run 0 train in_memory "${gpt[@]}" --losses gpt.csv
run 0 train in_memory "${llama[@]}" --losses llama.csv
lines=0
while read -r devices system; do
    lines=$((lines + 1))
    for model in gpt llama; do
        # By turns under a sanitizer.
        if [ -n "$sanitized" ] && [ $model = "$([ $((lines % 2)) = 0 ] && echo gpt || echo llama)" ]; then continue; fi
        [ $model = gpt ] && common=("${gpt[@]}") || common=("${llama[@]}")
        case "$model $system" in *"tp=4"*) [ $model = gpt ] || continue ;; esac
        # shellcheck disable=SC2086 # words
        run 0 train $system "${common[@]}" $devices --losses u.csv
        near 1e-6 $model.csv u.csv
        [[ $system = gpipe* ]] || continue # others' peaks go by when messages come
        grep -q "device 1 .*+0.00%" out || fail "$model, $system: the peak is not the predicted one: $(grep device out)"
    done
done <<EOF
--ranks=2 gpipe --set tp=2
--ranks=4 gpipe --set tp=4
--cluster=nodes.yaml gpipe --set tp=2
--ranks=4 dapple --set tp=2 --set pipelines=2,2
--ranks=4 dapple --set widths=1,2,1
--ranks=5 dapple --set widths=2,1,2 --set recompute=1
--ranks=5 dapple --set widths=2,1,2 --set halves=3,2,3
--ranks=4 dapple --set widths=1,2,1 --set halves=1,2,5 --set recompute=1
--ranks=4 interleaved --set tp=2 --set v=2 --set recompute=1
EOF

# Slices are copies: the losses are those of whole messages, to the bit, over equal and other widths, on one node and over two.
while read -r devices system; do
    for slices in 0 1; do
        # shellcheck disable=SC2086 # words
        run 0 train $system "${llama[@]}" $devices --set slices=$slices --losses $slices.csv
    done
    cmp -s 0.csv 1.csv || fail "$system in slices: $(paste 0.csv 1.csv)"
    grep -q 'slices=1' out || fail "$system: the plan has no slices: $(grep plan: out)"
done <<EOF
--ranks=4 megatron_3d --set tp=2 --set pp=2 --numerics fp32
--ranks=4 interleaved --set tp=2 --set v=2 --numerics bf16
--ranks=8 dapple --set tp=2 --set pipelines=4,4 --set zero=1
--ranks=5 dapple --set widths=2,1,2 --set halves=3,2,3
--ranks=5 gpipe --set widths=1,2,2 --set recompute=1
EOF
emulated_nodes 2 2 >nodes4.yaml
for slices in 0 1; do
    run 0 train dapple "${llama[@]}" --cluster nodes4.yaml --set tp=2 --set slices=$slices --control rollback --clip 0.5 \
        --inject-overflow 2:3 --losses $slices.csv
done
cmp -s 0.csv 1.csv || fail "slices over nodes: $(paste 0.csv 1.csv)"

# Replicas of stages share each micro-batch. One of them is added up as in_memory's, which has micro-batches of one share: the same
# bits, and the predicted peaks. More of them are added up in another order.
while read -r ranks system; do
    run 0 train in_memory "${llama[@]}" --batch 4 --losses one.csv --save one.safetensors
    # shellcheck disable=SC2086 # words
    run 0 train $system "${llama[@]}" --batch 4 --micro-batch 4 --ranks "$ranks" --losses u.csv --save replicas.safetensors
    cmp -s one.safetensors replicas.safetensors || fail "$system saves something else"
    cmp -s one.csv u.csv || fail "$system: losses are not in_memory's: $(paste one.csv u.csv)"
    [[ $system = gpipe* ]] || continue
    [ "$(grep -c 'device [0-9].*+0.00%' out)" = "$ranks" ] || fail "$system: peaks are not the predicted ones: $(grep device out)"
done <<EOF
6 gpipe --set replicas=1,4,1
6 gpipe --set replicas=4,1,1 --set recompute=1
6 dapple --set replicas=1,1,4 --set halves=3,2,3
10 gpipe --set replicas=4,1,4,1
EOF
run 0 train in_memory "${llama[@]}" --numerics bf16 --accumulate 16 --batch 2 --losses one.csv
run 0 train dapple "${llama[@]}" --numerics bf16 --accumulate 16 --batch 2 --micro-batch 2 --ranks 4 --set replicas=1,2,1 --losses u.csv
cmp -s one.csv u.csv || fail "replicas in bf16: losses are not in_memory's: $(paste one.csv u.csv)"
while read -r ranks system; do
    # shellcheck disable=SC2086 # words
    run 0 train $system "${llama[@]}" --micro-batch 4 --ranks "$ranks" --losses u.csv
    near 1e-6 llama.csv u.csv
done <<EOF
4 dapple --set replicas=1,2,1
7 dapple --set replicas=2,4,1 --set halves=3,2,3 --set recompute=1
8 gpipe --set replicas=2,1,2 --set widths=1,2,2 --set slices=1
6 dapple --set replicas=1,2 --set tp=2 --set place=0,5,1,2,3,4
EOF
emulated_nodes 2 2 >nodes4.yaml
for control in gate rollback; do
    judged=(--control $control --clip 0.5 --inject-overflow 2:3 --batch 2)
    run 0 train in_memory "${llama[@]}" "${judged[@]}" --losses one.csv
    run 0 train dapple "${llama[@]}" "${judged[@]}" --micro-batch 2 --cluster nodes4.yaml --set replicas=1,2,1 --set halves=3,2,3 --losses u.csv
    near 1e-6 one.csv u.csv
done
while read -r batch sums; do
    rm -rf ck
    run 0 train dapple "${llama[@]}" --batch "$batch" --micro-batch 2 --steps 2 --ranks 4 --set replicas=1,2,1 --set halves=3,2,3 --checkpoint ck
    run 0 train in_memory "${llama[@]}" --batch "$batch" --checkpoint ck --resume --losses u.csv --json
    [ "$(json out 'd["training"]["resumed_sums"]')" = "$sums" ] || fail "batch $batch: $(json out 'd["training"]["resumed_sums"]') sums; expected $sums"
    run 0 train in_memory "${llama[@]}" --batch "$batch" --losses one.csv
    if [ "$sums" = same ]; then cmp one.csv u.csv || fail "$sums sums"; else near 1e-6 one.csv u.csv; fi
done <<EOF
2 same
4 other
EOF
refused 2 "the 2 replicas of a stage do not divide the 1 sequence of a micro-batch" train dapple "${llama[@]}" --ranks 4 --set replicas=1,2,1
refused 2 ".*interleaved has no variable 'replicas'" train interleaved "${llama[@]}" --ranks 4 --set replicas=1,2,1

# Every part has norms and biases; the norm counts them once.
for control in gate rollback; do
    judged=(--control $control --clip 0.5 --inject-overflow 2:3)
    run 0 train in_memory "${gpt[@]}" "${judged[@]}" --losses one.csv
    run 0 train dapple "${gpt[@]}" "${judged[@]}" --ranks 4 --set tp=2 --losses u.csv
    near 1e-6 one.csv u.csv
    run 0 train dapple "${gpt[@]}" "${judged[@]}" --ranks 4 --set widths=1,2,1 --set halves=3,2,3 --losses u.csv
    near 1e-6 one.csv u.csv
done

run 0 train in_memory "${llama[@]}" --numerics bf16 --losses one.csv
run 0 train gpipe "${llama[@]}" --numerics bf16 --ranks 2 --set tp=2 --losses u.csv
near 2e-3 one.csv u.csv

# A checkpoint is the whole model's, however it is divided into parts: parts take up what one rank has left, and leave the same bytes when they do
# no step; one rank takes up what parts have left.
half() { run 0 train "$@" --steps 2 --checkpoint ck; }
for model in gpt llama; do
    [ $model = gpt ] && common=("${gpt[@]}") || common=("${llama[@]}")
    for numerics in $(numerics_of $model); do
        rm -rf ck
        half in_memory "${common[@]}" --numerics $numerics --save one.safetensors
        half gpipe "${common[@]}" --numerics $numerics --ranks 2 --set tp=2 --resume --save parts.safetensors
        cmp -s one.safetensors parts.safetensors || fail "$model, $numerics: parts save something else"
        half dapple "${common[@]}" --numerics $numerics --ranks 4 --set widths=1,2,1 --set halves=1,6,1 --resume --save halves.safetensors
        cmp -s one.safetensors halves.safetensors || fail "$model, $numerics: halves of different widths save something else"
    done
    rm -rf ck
    half in_memory "${common[@]}"
    run 0 train dapple "${common[@]}" --ranks 4 --set tp=2 --checkpoint ck --resume --losses u.csv
    near 1e-6 $model.csv u.csv
    rm -rf ck
    half gpipe "${common[@]}" --ranks 4 --set tp=2 --set pipelines=2,2
    run 0 train in_memory "${common[@]}" --checkpoint ck --resume --losses u.csv
    near 1e-6 $model.csv u.csv
done
finish

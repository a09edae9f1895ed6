#!/usr/bin/env bash
# Stages that end behind any sub-op of a block, trained over ranks: in_memory's bits, also with what they recompute, in 16 bit, with
# each control, in tensor-parallel parts, and on GPUs of threads; checkpoints are the whole model's.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
without_mpirun

four=(sim dapple --model llama-tiny --cluster autohete-4gpu --batch 8 --micro-batch 1)
refused 2 "halves and sub_ops are both set; expected one of them" "${four[@]}" --set sub_ops=8,8,8,8 --set halves=2,2,2,2
refused 2 "sub_ops has 3 elements; expected 4, one a stage" "${four[@]}" --set sub_ops=9,8,15
refused 2 "the stages of a pipeline have 33 sub-ops: expected the 32 of llama-tiny" "${four[@]}" --set sub_ops=9,8,8,8
refused 2 "stages end in two places of block 1; expected in one" "${four[@]}" --set sub_ops=9,2,13,8
refused 2 "host is set beside sub_ops; expected blocks of each stage" "${four[@]}" --set sub_ops=8,8,8,8 --set host=1,1,1,1
refused 2 "stage 0, in 1 part, ends behind gelu, and the next is in 2; expected as many, or an end behind norm1, proj, norm2 or fc2" \
    "${four[@]}" --set widths=1,2,1 --set sub_ops=15,9,8

common=(--model "$llama_tiny" --seq 16 --data "$text" --steps 3 --batch 8 --micro-batch 1)
needs_ranks "${common[@]}"
for numerics in fp32 bf16; do run 0 train in_memory "${common[@]}" --numerics $numerics --losses $numerics.csv; done
run 0 train gpipe "${common[@]}" --ranks 2 --set tp=2 --losses tp.csv
gpus=$build/hetbench_fake_gpus

# cuts LOSSES SYSTEM OPTIONS...: trains two stages that end behind each sub-op of the second block: these losses, to the bit.
cuts() {
    for front in 1 2 3 5 6 7; do
        run 0 train "${@:2}" "${common[@]}" --set sub_ops=$((8 + front)),$((24 - front)) --losses u.csv
        cmp -s "$1" u.csv || fail "${*:2}, $front sub-ops: $(paste "$1" u.csv)"
    done
}
cuts fp32.csv gpipe --ranks 2
grep -q "device 1 .*+0.00%" out || fail "the peak is not the predicted one: $(grep device out)"
cuts fp32.csv dapple --ranks 2 --set again=7,127,239,97
cuts bf16.csv dapple --ranks 2 --numerics bf16 --set recompute=1
cuts tp.csv dapple --ranks 4 --set tp=2 --set slices=1
[ ! -x "$gpus" ] || HT_FAKE_GPUS=2 hetbench=$gpus cuts bf16.csv dapple --ranks 2 --numerics bf16 --set again=7,127,239,97 --backend cuda --transport host

run 0 train interleaved "${common[@]}" --ranks 2 --set v=2 --set sub_ops=7,4,6,15 --losses u.csv
cmp -s fp32.csv u.csv || fail "two stages a device: $(paste fp32.csv u.csv)"

# Pipelines of which one alone cuts the block; ZeRO; stages of other widths, and with replicas of their own.
run 0 train dapple "${common[@]}" --ranks 3 --set pipelines=1,2 --losses one.csv
run 0 train dapple "${common[@]}" --ranks 3 --set pipelines=1,2 --set sub_ops=32,11,21 --losses u.csv
cmp -s one.csv u.csv || fail "one of two pipelines: $(paste one.csv u.csv)"
while read -r ranks options; do
    # shellcheck disable=SC2086 # words
    run 0 train dapple "${common[@]}" --ranks "$ranks" $options --losses u.csv
    near 1e-6 fp32.csv u.csv
done <<EOF
4 --set pipelines=2,2 --set zero=1 --set sub_ops=10,22
4 --set pipelines=2,2 --set zero=2 --set sub_ops=15,17 --set recompute=2
4 --set widths=1,2,1 --set sub_ops=9,12,11
4 --set widths=1,2,1 --set sub_ops=13,12,7 --set slices=1
4 --micro-batch 2 --set replicas=1,2,1 --set sub_ops=11,12,9
EOF
for control in gate rollback; do
    judged=(--control $control --clip 0.5 --inject-overflow 2:3)
    run 0 train in_memory "${common[@]}" "${judged[@]}" --losses one.csv
    run 0 train dapple "${common[@]}" "${judged[@]}" --ranks 3 --set widths=2,1 --set sub_ops=13,19 --losses u.csv
    near 1e-6 one.csv u.csv
done

for cut in "3 dapple --set widths=1,2 --set sub_ops=9,23" "2 gpipe --set sub_ops=14,18"; do
    rm -rf ck
    run 0 train in_memory "${common[@]}" --checkpoint ck --save one.safetensors
    # shellcheck disable=SC2086 # words
    run 0 train ${cut#* } "${common[@]}" --ranks "${cut%% *}" --checkpoint ck --resume --save cut.safetensors
    cmp -s one.safetensors cut.safetensors || fail "$cut saves something else"
done
finish

#!/usr/bin/env bash
# Ranks with a GPU each, on GPUs of threads whose memory the host cannot touch (tests/support/fake_cuda.h): messages and collectives
# go through pinned memory and add up in the ranks' order, so losses are those of CPU ranks, to the bit.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
gpus=$build/hetbench_fake_gpus
[ -x "$gpus" ] || { echo "there is no $gpus"; exit 77; }
cd "$work"
without_mpirun
common=(--model "$llama_tiny" --seq 16 --data "$text" --steps 3)
needs_ranks "${common[@]:0:6}" --batch 8 --micro-batch 1

# same SYSTEM RANKS OPTIONS...: trains on CPU ranks and on GPUs; one, or one for each rank.
same() {
    local all=("$1" "${common[@]}" --ranks "$2" --micro-batch 1 "${@:3}")
    run 0 train "${all[@]}" --losses cpu.csv
    for n in 1 "$2"; do
        HT_FAKE_GPUS=$n hetbench=$gpus run 0 train "${all[@]}" --backend cuda --transport host --losses gpu.csv
        cmp -s cpu.csv gpu.csv || fail "$* on $n GPUs: $(paste cpu.csv gpu.csv)"
        grep -q 'GPU fake' out || fail "$*: no GPU in the report: $(tail -n 3 out)"
    done
}
while read -r system ranks options; do
    # shellcheck disable=SC2086 # words
    same "$system" "$ranks" $options
done <<LIST
in_memory 2 --batch 8 --numerics fp32
ddp 3 --numerics bf16 --batch 9
fsdp 2 --batch 8 --numerics bf16 --set l=5,3
zero_offload 2 --batch 8 --numerics fp16 --control gate
zero3_offload 2 --batch 8 --numerics fp32
gpipe 3 --batch 8 --numerics fp32 --set pipelines=1,2 --set halves=8,5,3
dapple 4 --batch 8 --numerics bf16 --set pipelines=2,2 --set zero=2
dapple 4 --batch 8 --numerics bf16 --set pipelines=2,2 --set zero=1 --set host=1,2
sysx 2 --batch 8 --numerics fp16 --control rollback --clip 0.5
autohet 4 --batch 8 --numerics fp32
megatron_3d 4 --batch 8 --numerics fp32 --set tp=2 --set pp=2
megatron_3d 2 --batch 8 --numerics bf16 --set tp=2 --set pp=1 --control rollback --clip 0.5 --inject-overflow 2:3
autohet 4 --batch 8 --numerics fp32 --set tp=2
gpipe 2 --batch 8 --numerics fp16 --set tp=2 --set sequence=1
dapple 4 --batch 8 --numerics fp32 --set widths=1,2,1
dapple 5 --batch 8 --numerics bf16 --set widths=2,1,2 --set slices=1
dapple 6 --batch 8 --micro-batch 4 --numerics bf16 --set replicas=1,4,1
LIST

# GPT's table is tied, and its vocabulary is cut.
common=(--model gpt-mini --seq 16 --data "$text" --steps 3)
same megatron_3d 4 --batch 8 --numerics fp32 --set tp=4 --set pp=1
same autohet 2 --batch 8 --numerics bf16 --set tp=2
finish

#!/usr/bin/env bash
# Some of test_ranks_nccl.sh for ThreadSanitizer: a race ends its rank, and with it the training.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
gpus=$build/hetbench_fake_gpus
export HT_NCCL=$build/libnccl_on_cpu.so HT_LAUNCH=local
[ "$sanitized" = thread ] || { echo "this build has no ThreadSanitizer"; exit 77; }
[ -x "$gpus" ] && [ -e "$HT_NCCL" ] || { echo "there is no $gpus or no $HT_NCCL"; exit 77; }
cd "$work"
while read -r system ranks options; do
    # shellcheck disable=SC2206 # words
    all=("$system" --model llama-tiny --seq 16 --data "$text" --steps 2 --ranks "$ranks" --micro-batch 1 $options)
    run 0 train "${all[@]}" --losses cpu.csv
    HT_FAKE_GPUS=$ranks hetbench=$gpus run 0 train "${all[@]}" --backend cuda --deterministic --losses nccl.csv
    grep -q 'messages by NCCL' out || fail "$system: not by NCCL: $(tail -n 3 out)"
    cmp -s cpu.csv nccl.csv || fail "$system: $(paste cpu.csv nccl.csv)"
done <<LIST
fsdp 2 --batch 8 --numerics bf16 --set l=5,3
dapple 4 --batch 8 --numerics bf16 --set pipelines=2,2 --set zero=2
megatron_3d 2 --batch 8 --numerics fp32 --set tp=2 --set pp=1
LIST
finish

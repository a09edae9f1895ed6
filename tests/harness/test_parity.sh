#!/usr/bin/env bash
# All systems, in every numerics and with every kind of model, beside in_memory: losses and weights bit for bit, in the smallest
# memory that each fits; with gradients that overflow at random places the same steps are skipped, and the loss scale follows.
# Which system trains which model in which numerics is drawn anew each time; scripts/parity does all, with more steps.
#
#     tests/harness/test_parity.sh BUILD [SEED]
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

# parity RUNS ARGUMENTS...: at least so many runs, all the same.
parity() {
    local least=$1 runs
    shift
    "$python" "$root/scripts/parity" --build "$build" --seq 16 "$@" >table || fail "parity $*"
    grep -v ' same$' table || true
    tail -n 1 table
    runs=$(tail -n 1 table | awk '{ print $1 }')
    [ "$runs" -ge "$least" ] || fail "parity $*: $runs runs, expected $least or more"
}

systems=$("$hetbench" list systems --json | "$python" -c 'import json, sys; print(len(json.load(sys.stdin)["systems"]))')
seed=${2:-$seed}
echo "HT_SEED=$seed"
models=gpt-tiny,llama-tiny,bert-tiny,vit-tiny steps=12
if [ -n "$sanitized" ]; then models=gpt-mini,gpt-mini,gpt-mini,gpt-mini steps=6; fi # ten times slower, and sizes do not matter there
parity $((4 * systems)) --models "$models" --steps 4 --batch 2 --micro-batch 1 --sample "$seed"
# Each system in one of the two numerics, under both controls; with HT_FULL=1 in both.
sample=(--sample "$seed") least=2
if [ "${HT_FULL:-0}" != 0 ]; then sample=() least=4; fi
parity $((least * systems)) --models gpt-mini --numerics fp32,fp16 --steps "$steps" --faults 5 --clip 1.5 --control gate,rollback \
    --seed "$seed" "${sample[@]}"

# What it is good for: a training that differs is found. The reference learns from other batches here.
if "$python" "$root/scripts/parity" --build "$build" --seq 16 --steps 2 --models gpt-mini --numerics bf16 --systems zero_offload \
    --reference-option=--data-seed=1 >table; then fail "parity does not see that losses differ"; fi
grep -q 'zero_offload .*loss of step 1 differs' table || fail "parity does not say what differs: $(cat table)"
finish

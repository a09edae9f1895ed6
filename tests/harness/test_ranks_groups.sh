#!/usr/bin/env bash
# Several pipelines that share the batch, of the same and of different depth, trained over ranks: in_memory's losses, with each control.
# Random pipelines of models whose head is tied.
#
#     test_ranks_groups.sh BUILD-DIRECTORY [--runs N]     3; some 1.5 s each
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
runs=3
if [ "${2:-}" = --runs ]; then runs=${3:?--runs needs a number}; fi
cd "$work"
[ -z "$sanitized" ] || without_mpirun
model=(--model llama-tiny --seq 16)

four=(sim gpipe "${model[@]}" --cluster autohete-4gpu --batch 8 --micro-batch 1)
refused 2 "the pipelines have 3 devices: expected all 4 of cluster 'autohete-4gpu'" "${four[@]}" --set pipelines=2,1 --set l=4,4
refused 2 "the pipelines have 7 micro-batches: expected the batch's 8" "${four[@]}" --set pipelines=2,2 --set l=4,3
refused 2 "l has 1 element; expected 2, one a pipeline" "${four[@]}" --set pipelines=2,2 --set l=8
refused 2 "3 pipelines do not divide the 8 micro-batches; expected l as well" "${four[@]}" --set pipelines=2,1,1
refused 2 "l is set without pipelines: expected pipelines as well" "${four[@]}" --set l=8
refused 2 "blocks has 2 elements; expected 4, one a stage" "${four[@]}" --set blocks=2,2
refused 2 "blocks has 3 elements; expected 4, one a stage" "${four[@]}" --set pipelines=3,1 --set l=4,4 --set blocks=2,1,1
refused 2 "the stages of a pipeline have 5 blocks: expected the 4 of llama-tiny" "${four[@]}" --set blocks=2,1,1,1

# Plans that are forced as a whole, in half blocks, too.
shape=(sim megatron_3d "${model[@]}" --cluster autohete-4gpu --batch 8 --micro-batch 1 "--set=pipelines=2,2" "--set=l=4,4")
run 0 "${shape[@]}" --set place=0,2,1,3 --set halves=3,5
grep -q "^plan: pipelines=2,2 l=4,4 halves=3,5 place=0,2,1,3" out || fail "forced half blocks: $(grep ^plan out)"
refused 2 "blocks is not set; expected pipelines, l, blocks and place together" "${shape[@]}" --set place=0,2,1,3
refused 2 "blocks is not set; expected" sim megatron_3d "${model[@]}" --cluster autohete-4gpu --batch 8 --set pipelines=2,2 --set l=4,4
refused 2 "l is not set; expected|pipelines is not set; expected" sim megatron_3d "${model[@]}" --cluster autohete-4gpu --batch 8 --set halves=3,5

common=("${model[@]}" --data "$text" --steps 4)
needs_ranks "${common[@]}"

# With one micro-batch a pipeline sums are those of one rank.
run 0 train in_memory "${common[@]}" --batch 2 --micro-batch 1 --losses one.csv
for shape in pipelines=2,2 pipelines=3,1; do
    run 0 train dapple "${common[@]}" --batch 2 --micro-batch 1 --ranks 4 --set $shape --losses u.csv
    cmp -s one.csv u.csv || fail "dapple $shape: $(paste one.csv u.csv)"
done

for control in none gate rollback; do
    judged=$([ $control = none ] || echo "--clip 0.5 --inject-overflow 2:3")
    # shellcheck disable=SC2086 # words
    run 0 train in_memory "${common[@]}" --batch 8 --micro-batch 1 --control $control $judged --losses one.csv
    for system in 'gpipe --set pipelines=2,2 --set blocks=3,1' 'dapple --set pipelines=3,1 --set l=3,5 --set blocks=1,2,1,4' 'interleaved --set v=2 --set pipelines=2,2'; do
        # shellcheck disable=SC2086 # words
        run 0 train $system "${common[@]}" --batch 8 --micro-batch 1 --ranks 4 --control $control $judged --losses u.csv
        near 1e-6 one.csv u.csv
    done
done

# What one shape has written another one reads.
pipelines=(--batch 8 --micro-batch 1 --ranks 4 --checkpoint ck)
run 0 train dapple "${model[@]}" --data "$text" --steps 2 "${pipelines[@]}" --set pipelines=3,1 --set l=3,5
run 0 train gpipe "${common[@]}" "${pipelines[@]}" --resume --set pipelines=1,3 --set l=6,2 --losses u.csv
run 0 train in_memory "${common[@]}" --batch 8 --micro-batch 1 --losses one.csv
near 1e-6 one.csv u.csv

# A tied table, and with it positions, is held by the embedding's stage and by the head's. Each adds up its own part of the gradient:
# all such pipelines have the same bits, and in_memory, which adds up both together, others. The number of the order says so.
echo '{name: tied-llama, arch: llama, layers: 4, width: 32, heads: 2, kv_heads: 1, ffn: 40, vocab: 256, tied: true, max_seq: 16, source: the tests}' >tied-llama.yaml
RANDOM=11
shapes=('gpipe --ranks 2' 'gpipe --ranks 4' 'dapple --ranks 3' 'dapple --ranks 2 --control rollback' 'interleaved --ranks 2 --set v=2'
    'gpipe --ranks 3 --set blocks=1,2,1')
for ((i = 0; i < runs; i++)); do
    of=$((RANDOM % 2)) micro_batch=$((1 + RANDOM % 2)) numerics=$((RANDOM % 3)) clip=$((RANDOM % 2))
    names=(gpt-tiny ./tied-llama.yaml) types=(fp32 fp32 bf16) clips=('' '--clip 0.5')
    common=(--model "${names[of]}" --seq 16 --data "$text" --steps 4 --micro-batch "$micro_batch" --batch $((micro_batch * 2 * (1 + RANDOM % 3)))
        --numerics "${types[numerics]}" --json)
    for which in 0 1; do
        # shellcheck disable=SC2086 # words
        run 0 train ${shapes[RANDOM % 3 + 3 * which]} "${common[@]}" ${clips[clip]} --checkpoint p$which
        mv out p$which.json
    done
    # shellcheck disable=SC2086 # words
    run 0 train in_memory "${common[@]}" ${clips[clip]}
    "$python" - "${types[numerics]}" <<'PY' || fail "tied ${names[of]} ${common[*]} ${clips[clip]}"
import json, sys
a, b, one = (json.load(open(name)) for name in ("p0.json", "p1.json", "out"))
assert a["losses"] == b["losses"], (a["losses"], b["losses"])
assert a["training"]["sum_order"] == b["training"]["sum_order"] != one["training"]["sum_order"]
near = 1e-6 if sys.argv[1] == "fp32" else 1e-3
assert all(abs(x - y) <= near for x, y in zip(a["losses"], one["losses"])), (a["losses"], one["losses"])
PY
    diff -r -x .lock -x manifest.json p0 p1 || fail "tied ${common[*]}: the states of two pipelines"
    rm -r p0 p1
done
model=(--model gpt-tiny --seq 16)
common=("${model[@]}" --data "$text" --steps 4)
run 0 train in_memory "${common[@]}" --batch 6 --micro-batch 1 --clip 0.5 --losses one.csv
run 0 train gpipe "${common[@]}" --batch 6 --micro-batch 1 --ranks 4 --set pipelines=3,1 --set l=2,4 --clip 0.5 --losses u.csv
near 1e-6 one.csv u.csv
refused 3 "gpt-tiny ties its head .* would be added up in host memory: expected an untied model" train sysx "${common[@]}" --batch 6 --micro-batch 1 --ranks 2
run 0 train in_memory "${common[@]}" --batch 6 --micro-batch 1 --losses one.csv
run 0 train gpipe "${model[@]}" --data "$text" --steps 2 --batch 6 --micro-batch 1 --ranks 3 --checkpoint tied
run 0 train in_memory "${common[@]}" --batch 6 --micro-batch 1 --checkpoint tied --resume --losses u.csv
near 1e-6 one.csv u.csv
run 0 train gpipe "${model[@]}" --data "$text" --steps 6 --batch 6 --micro-batch 1 --ranks 2 --checkpoint tied --resume
finish

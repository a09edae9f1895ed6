#!/usr/bin/env bash
# Several pipelines that share the batch, of the same and of different depth, trained over ranks: in_memory's losses, with each control.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
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

# A tied table, and with it positions, is held by the embedding's stage and by the head's.
model=(--model gpt-tiny --seq 16)
common=("${model[@]}" --data "$text" --steps 4)
run 0 train in_memory "${common[@]}" --batch 6 --micro-batch 1 --clip 0.5 --losses one.csv
while read -r ranks system; do
    # shellcheck disable=SC2086 # words
    run 0 train $system "${common[@]}" --batch 6 --micro-batch 1 --ranks "$ranks" --clip 0.5 --losses u.csv
    near 1e-6 one.csv u.csv
done << EOF
2 gpipe
3 dapple --control gate
2 interleaved --set v=2 --control rollback
4 gpipe --set pipelines=3,1 --set l=2,4
EOF
refused 3 "gpt-tiny ties its head .* would be added up in host memory: expected an untied model" train sysx "${common[@]}" --batch 6 --micro-batch 1 --ranks 2
run 0 train in_memory "${common[@]}" --batch 6 --micro-batch 1 --losses one.csv
run 0 train gpipe "${model[@]}" --data "$text" --steps 2 --batch 6 --micro-batch 1 --ranks 3 --checkpoint tied
run 0 train in_memory "${common[@]}" --batch 6 --micro-batch 1 --checkpoint tied --resume --losses u.csv
near 1e-6 one.csv u.csv
run 0 train gpipe "${model[@]}" --data "$text" --steps 6 --batch 6 --micro-batch 1 --ranks 2 --checkpoint tied --resume
finish

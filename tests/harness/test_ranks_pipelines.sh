#!/usr/bin/env bash
# Every pipeline over 2, 4 and 8 ranks, on one emulated node and on two: the losses of in_memory on one rank with the same
# micro-batches, to the last bit. A run that hangs is ended and fails.
#
#     test_ranks_pipelines.sh BUILD-DIRECTORY [--numerics fp32|bf16]     fp32
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
numerics=fp32
if [ "${2:-}" = --numerics ]; then numerics=${3:?--numerics needs a name}; fi
cd "$work"
small_llama 16 >llama.yaml # two stages a rank, where a system has several
common=(--model llama.yaml --batch 8 --micro-batch 1 --seq 16 --data "$text" --numerics "$numerics" --steps 3)
needs_ranks "${common[@]}"
limit=$([ -n "$sanitized" ] && echo 120 || echo 30)

run 0 train in_memory "${common[@]}" --losses one.csv
[ "$(wc -l <one.csv)" = 4 ] || fail "in_memory has no three losses: $(cat one.csv)"
for ranks in 2 4 8; do
    for nodes in 1 2; do
        emulated_nodes "$nodes" $((ranks / nodes)) >nodes.yaml
        for system in gpipe dapple interleaved mobius megatron sysx; do
            rm -f ranks.csv
            run 0 train "$system" "${common[@]}" --cluster nodes.yaml --losses ranks.csv
            cmp -s one.csv ranks.csv ||
                fail "$system, $ranks ranks on $nodes nodes, $numerics: losses are not in_memory's: $(paste one.csv ranks.csv)"
        done
    done
done
finish

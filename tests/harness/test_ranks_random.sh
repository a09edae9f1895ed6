#!/usr/bin/env bash
# A sample of pipelines taken at random, each for real: ranks, nodes, stages a rank, blocks beyond an even share, micro-batches,
# backward stages of a forward stage, and what else there is to choose. Losses of in_memory, to the last bit, and in time. More of them go
# through the verifier and the simulator (tests/common/draft/test_pipe.c).
#
#     test_ranks_random.sh BUILD-DIRECTORY [--samples N] [--seed N]     24, 1; about 1 s each
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
samples=24 seed=1
shift
while [ $# -gt 1 ]; do
    case $1 in
    --samples) samples=$2 ;;
    --seed) seed=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# = 0 ] || {
    echo "unknown argument '$1'"
    exit 2
}
cd "$work"
without_mpirun
RANDOM=$seed
small_llama 4 >llama.yaml
common=(--batch 4 --micro-batch 1 --seq 16 --data "$text" --numerics fp32 --steps 2)
needs_ranks --model llama.yaml "${common[@]}"
limit=$([ -n "$sanitized" ] && echo 120 || echo 30)

systems=(gpipe dapple interleaved mobius megatron sysx sysx_cfg0 sysx_cfg1 sysx_cfg2 sysx_cfg3 sysx_cfg4)
shapes=
for ((i = 0; i < samples; i++)); do
    # By turns, and from the second round on those of SysX, which has the most to choose from. (RANDOM is drawn in this shell: one
    # below it would have a seed of its own.)
    system=${systems[i < 11 ? i : 5 + RANDOM % 6]}
    nodes=$((1 + RANDOM % 2)) v=1 d=1
    ranks=$((nodes * (1 + RANDOM % (8 / nodes))))
    [ "$ranks" -gt 1 ] || ranks=2
    micro_batches=$((1 + RANDOM % 7))
    set=()
    case $system in
    gpipe | dapple)
        recompute=$((RANDOM % 3))
        set+=(--set "recompute=$recompute")
        [ $recompute != 1 ] || set+=(--set "segment=$((RANDOM % 3))")
        [ $recompute = 0 ] || set+=(--set "c=$((1 + RANDOM % 2))")
        ;;
    interleaved | megatron)
        v=$((1 + RANDOM % 2)) # in rounds, a micro-batch a rank
        micro_batches=$((ranks * (1 + RANDOM % 2)))
        ;;
    mobius)
        v=$((1 + RANDOM % 3))
        set+=(--set "early=$((RANDOM % 2))" --set "head=$((RANDOM % 2))" --set "segment=$((RANDOM % 3))")
        [ $((RANDOM % 2)) = 1 ] || set=(--set recompute=0)
        ;;
    sysx*)
        v=$((1 + RANDOM % 2))
        set+=(--set "early=$((RANDOM % 2))" --set "head=$((RANDOM % 2))" --set "strict=$((RANDOM % 2))")
        if [ "$system" != sysx_cfg0 ]; then
            d=$((1 + RANDOM % 3))
            set+=(--set "d=$d")
        fi
        ;;
    esac
    case $system in gpipe | dapple) ;; *) set+=(--set "v=$v") ;; esac
    layers=$((ranks * v * d + RANDOM % 3))
    small_llama "$layers" >llama.yaml
    emulated_nodes "$nodes" $((ranks / nodes)) >nodes.yaml
    common[1]=$micro_batches
    rm -f one.csv ranks.csv
    run 0 train in_memory --model llama.yaml "${common[@]}" --losses one.csv
    run 0 train "$system" --model llama.yaml "${common[@]}" --cluster nodes.yaml --losses ranks.csv "${set[@]}"
    what="sample $i of seed $seed: $system, $ranks ranks on $nodes nodes, $layers blocks, $micro_batches micro-batches, ${set[*]}"
    cmp -s one.csv ranks.csv || fail "$what: losses are not in_memory's: $(paste one.csv ranks.csv)"
    shapes="$shapes $system:$ranks/$nodes,v=$v,d=$d,m=$micro_batches"
done
echo "$samples samples:$shapes"
finish

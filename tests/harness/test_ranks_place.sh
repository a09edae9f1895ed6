#!/usr/bin/env bash
# Stages of pipelines on any ranks, with tensor-parallel parts, of GPT, LLaMA, BERT and ViT: in_memory's losses, to the last bit where no
# sum is cut (tp = 1, one micro-batch a pipeline), wherever the stages are, and where they end inside a block; what is saved goes on in
# another shape. Then layouts taken at
# random, each with a limit on its time. More of them go through the verifier and the simulator (tests/common/draft/test_place.c).
#
#     test_ranks_place.sh BUILD-DIRECTORY [--samples N] [--seed N]     6, 1; about 1 s each
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
samples=6 seed=1
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

four=(sim dapple --model llama-tiny --cluster autohete-4gpu --batch 8 --micro-batch 1)
refused 2 "place has 3 devices: expected the 4 of cluster 'autohete-4gpu'" "${four[@]}" --set place=0-2
refused 2 "place names device 1 twice: expected each once" "${four[@]}" --set place=0-2,1
refused 2 "place has device 0 behind 1 in one stage: expected a stage's devices in ascending order" \
    "${four[@]}" --set tp=2 --set place=1,0,2-3
refused 2 "tp 2 does not divide the 15 tokens of a micro-batch, which sequence=1 cuts" \
    "${four[@]}" --seq 15 --set tp=2 --set sequence=1
refused 2 "place and order are both set; expected one of them" "${four[@]}" --set place=0-3 --set order=1
refused 2 "halves has 3 elements; expected 4, one a stage" "${four[@]}" --set halves=3,3,2
refused 2 "the stages of a pipeline have 9 half blocks: expected the 8 of llama-tiny" "${four[@]}" --set halves=3,1,1,4
refused 2 "blocks and halves are both set; expected one of them" "${four[@]}" --set halves=3,1,1,3 --set blocks=1,1,1,1
refused 2 "order is set, and pipeline 0 has 3 of 4 devices; expected equal pipelines" \
    "${four[@]}" --set pipelines=3,1 --set l=4,4 --set order=1
# What is printed is what was asked for, and goes in again.
run 0 plan dapple "${four[@]:2}" --set pipelines=2,2 --set order=1
grep -q "place=0,2,1,3" out || fail "Megatron-LM's order is not 0,2,1,3: $(cat out)"
# GPT-3 of 175B on 64 GPUs: tensor, data, pipeline, with a distributed optimizer.
cat >175b.yaml <<'YAML'
{name: gpt-175b, arch: gpt, layers: 96, width: 12288, heads: 96, vocab: 51200, max_seq: 2048, flash: true, source: "Brown et al. 2020, Table 2.1"}
YAML
cat >dgx.yaml <<'YAML'
name: dgx
source: nodes as dgx-a100, with one link of 200 Gb/s each
nodes:
  - {count: 8, cpu: epyc-7742, ram: 2 TB, gpus: [{type: a100-80gb, count: 8}], pcie: pcie4-x16, nvlink: nvlink3, nic: infiniband-hdr}
YAML
run 0 sim dapple --model 175b.yaml --cluster dgx.yaml --batch 16 --micro-batch 1 --seq 2048 --set tp=8 --set pipelines=32,32 --set order=1 \
    --set zero=1 --set recompute=1 --iterations 1
grep -q "place='0-7,16-23,32-39,48-55,8-15,24-31,40-47,56-63'" out || fail "two pipelines are not in turn: $(grep plan: out)"

small_llama 4 >llama.yaml
sed 's/name: llama-4, arch: llama/name: gpt-4, arch: gpt/; s/ kv_heads: 1,//' llama.yaml >gpt.yaml
cat >bert.yaml <<'YAML'
{name: bert-4, arch: bert, layers: 4, width: 32, heads: 2, vocab: 256, max_seq: 16, classes: 5, source: the tests}
YAML
cat >vit.yaml <<'YAML'
{name: vit-4, arch: vit, layers: 4, width: 32, heads: 2, image: 12, patch: 4, channels: 1, classes: 5, source: the tests}
YAML
sed -i 's/kv_heads: 1/kv_heads: 2/' llama.yaml
"$python" "$root/scripts/images" images.bin --count 50 --image 12 --channels 1 --classes 5
needs_ranks --model llama.yaml --batch 4 --micro-batch 1 --data "$text"
limit=$([ -n "$sanitized" ] && echo 120 || echo 30)

# takes ARCH NUMERICS BATCH: the arguments of a training, in $common.
takes() {
    common=(--model "$1.yaml" --numerics "$2" --batch "$3" --micro-batch 1 --data "$text" --steps 2)
    [ "$1" != vit ] || common[9]=images.bin
}
# agrees SYSTEM-ARGUMENTS...: trains, and has one.csv's losses: to the bit if `exact`, else within the roundings of sums that are cut.
agrees() {
    rm -f u.csv
    run 0 train "$@" "${common[@]}" --losses u.csv
    if [ "$exact" = yes ]; then
        cmp -s one.csv u.csv || fail "$*: losses are not in_memory's: $(paste one.csv u.csv)"
    else
        near "$([ "$numerics" = fp32 ] && echo 1e-6 || echo 4e-3)" one.csv u.csv
    fi
}

for arch in gpt llama bert vit; do
    for numerics in $(numerics_of $arch); do
        takes $arch $numerics 2
        run 0 train in_memory "${common[@]}" --losses one.csv
        # Two pipelines of two stages, a micro-batch each. A tied table's sum is (h0 + e0) + (h1 + e1) on one device.
        exact=$([ $arch = gpt ] && echo no || echo yes)
        # The second cuts a block that the first has whole.
        agrees dapple --ranks 4 --set pipelines=2,2 --set place=2,1,3,0 "$([ $numerics = fp32 ] && echo --set=blocks=3,1 || echo --set=halves=4,4,3,5)"
        [ $arch != bert ] || agrees interleaved --ranks 2 --set v=2 --set place=1,0
        exact=no
        rm -rf ck
        agrees dapple --ranks 8 --set pipelines=4,4 --set tp=2 --set order=1 --set zero=1 --set halves=3,5 --checkpoint ck
        agrees gpipe --ranks 4 --set pipelines=4 --set tp=2 --set sequence=1 --set place=1,3,0,2 --set recompute=$((${#arch} % 3))
        grep -q "device 1 .*+0.00%" out || fail "$arch, $numerics, by rows: the peak is not the predicted one: $(grep device out)"
        # What it saves goes on in another shape.
        takes $arch $numerics 2
        common[11]=4
        run 0 train in_memory "${common[@]}" --losses one.csv
        agrees gpipe --ranks 6 --set pipelines=2,4 --set tp=2 --set place=4-5,1,3,0,2 --set halves=8,5,3 \
            --set recompute=1 --checkpoint ck --resume
    done
done

# ---- drawn layouts ----

RANDOM=$seed
archs=(gpt llama bert vit) all_numerics=(fp32 bf16) systems=(gpipe dapple) shapes=
for ((i = 0; i < samples; i++)); do
    arch=${archs[RANDOM % 4]} numerics=${all_numerics[RANDOM % 2]} system=${systems[RANDOM % 2]}
    tp=$((1 + RANDOM % 2)) left=$((8 / tp)) pipelines='' l='' batch=0 ranks=0 exact=yes
    while [ "$left" -gt 0 ] && { [ -z "$pipelines" ] || [ $((RANDOM % 3)) != 0 ]; }; do
        stages=$((1 + RANDOM % (left < 4 ? left : 4))) micro_batches=$((1 + RANDOM % 2))
        pipelines=$pipelines,$((stages * tp)) l=$l,$micro_batches
        left=$((left - stages)) ranks=$((ranks + stages * tp)) batch=$((batch + micro_batches))
        [ $micro_batches = 1 ] || exact=no
    done
    [ "$ranks" -gt 1 ] || { i=$((i - 1)); continue; }
    # One pipeline adds up its micro-batches as one device does, and two terms of 16 bits are rounded as often.
    case $pipelines in ,*,*) [ "$numerics" = fp32 ] || [ "$batch" -le 2 ] || exact=no ;; *) exact=yes ;; esac
    [ "$tp" = 1 ] && [ "$arch" != gpt ] || exact=no
    place=$("$python" -c 'import random, sys
tp, n, seed = map(int, sys.argv[1:])
r = random.Random(seed).sample(range(n), n)
print(",".join(str(x) for i in range(0, n, tp) for x in sorted(r[i:i + tp])))' $tp $ranks $((seed * 1000 + i)))
    # One in two has stages of half blocks, the same in pipelines of one depth.
    cut=$([ $((RANDOM % 2)) = 0 ] || "$python" -c 'import random, sys
tp, seed, *devices = map(int, sys.argv[1:])
halves = []
for n in (d // tp for d in devices):
    ends = [0, *sorted(random.Random(seed + n).sample(range(1, 8), n - 1)), 8]
    halves += [b - a for a, b in zip(ends, ends[1:])]
print("--set=halves=" + ",".join(map(str, halves)))' $tp $((seed * 1000 + i)) ${pipelines//,/ })
    case $pipelines in ,*,*) zero=$((RANDOM % 3)) ;; *) zero=0 ;; esac
    # Pipelines that differ cannot reduce in the order of their passes.
    [ $zero != 2 ] || [ "$(tr , '\n' <<<"${pipelines#,}" | sort -u | wc -l)$(tr , '\n' <<<"${l#,}" | sort -u | wc -l)" = 11 ] || zero=1
    nodes=$((ranks % 2 == 0 ? 1 + RANDOM % 2 : 1))
    emulated_nodes $nodes $((ranks / nodes)) >nodes.yaml
    takes "$arch" "$numerics" "$batch"
    rm -f one.csv
    run 0 train in_memory "${common[@]}" --losses one.csv
    agrees "$system" --cluster nodes.yaml --set tp=$tp --set "pipelines=${pipelines#,}" --set "l=${l#,}" --set "place=$place" \
        --set "recompute=$((RANDOM % 3))" --set "steps=$((RANDOM % 2))" --set zero=$zero --set "sequence=$((RANDOM % tp))" ${cut:+"$cut"}
    shapes="$shapes $arch/$numerics:${pipelines#,}/tp$tp/$nodes,zero=$zero${cut:+/${cut#*=}}"
done
echo "$samples samples:$shapes"
finish

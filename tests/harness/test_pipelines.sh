#!/usr/bin/env bash
# Pipelines on the command line: every one planned, proved, simulated and compared on the paper's cluster and on a small
# emulated one; what they cannot take is one line; the papers' figures are drawn, with the bubble ratios they print.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

cat >small.yaml <<'YAML'
name: small
source: two machines with two emulated devices each
nodes:
  - {count: 2, cpu: epyc-7452, ram: 64 GB, pcie: pcie3-x16, nic: infiniband-hdr, gpus: [{count: 2, type: {name: part,
     memory: 64 MB, fp32: 1 TFLOP/s, memory_bandwidth: 10 GB/s, gemm_efficiency: 0.7, memory_efficiency: 0.8, cores: 4, launch: 1 us,
     source: a test}}]}
YAML
all=(gpipe dapple interleaved mobius megatron sysx sysx_cfg0 sysx_cfg1 sysx_cfg2 sysx_cfg3 sysx_cfg4)
run 0 list systems --json
for system in "${all[@]}"; do
    [ "$(json out "[s['name'] for s in d['systems']].count('$system')")" = 1 ] || fail "$system is not in the list"
done
for system in "${all[@]}"; do
    run 0 verify "$system" --model llama-tiny --cluster small.yaml --batch 8
    run 0 sim "$system" --model llama-tiny --cluster small.yaml --batch 8 --json
    [ "$(json out 'd["status"], 0 < d["bubble_ratio"] < 1, d["scenario"]["micro_batch"]')" = "('ok', True, 2)" ] ||
        fail "$system on four emulated devices: $(cat out)"
done
big=(--model sysx-30b --cluster sysx-2node --batch 32 --micro-batch 2 --seq 1024 --accumulate 16)
for system in mobius megatron sysx sysx_cfg4; do
    run 0 plan "$system" "${big[@]}" --json
    [ "$(json out '[v["value"] for v in d["plan"]["variables"] if v["name"] == "v"]' 2>/dev/null || echo)" != "[]" ] || fail "$system has no v"
    run 0 sim "$system" "${big[@]}" --iterations 3
done
run 0 compare --systems mobius,megatron,sysx --models sysx-10b,sysx-19b --cluster sysx-1node --batch 16 --micro-batch 2 --seq 1024 \
    --accumulate 16
run 0 sim sysx "${big[@]}" --set v=1 --set d=2 --set strict=0 --set early=0 --set log=0
run 3 sim gpipe --model sysx-10b --cluster sysx-1node --batch 16 --micro-batch 2 # nothing is offloaded: out of memory
run 3 sim mobius --model sysx-19b --cluster sysx-1node --batch 256 --micro-batch 64 --seq 2048

run 3 sim mobius --model sysx-10b --cluster sysx-1node --batch 16 --micro-batch 1 --seq 2048 --set recompute=0
refused 2 "early=1 is set beside recompute=0; expected recompute=1" plan mobius --model llama-tiny --cluster sysx-1node --set recompute=0 --set early=1

refused 3 "llama-tiny has 4 blocks for 8 stages" verify mobius --model llama-tiny --cluster sysx-1node --batch 4 --set v=2
refused 3 ".*ties its head" sim sysx --model gpt-tiny --cluster sysx-1node --batch 4
refused 3 "the interleaved order cannot take 6 micro-batches: expected a multiple of 4" sim megatron --model llama-tiny --cluster sysx-1node --batch 6 --micro-batch 1
refused 2 "micro-batch 3 does not divide" sim sysx --model llama-tiny --cluster sysx-1node --batch 8 --micro-batch 3
for control in gate rollback; do
    for system in dapple interleaved mobius sysx_cfg2 sysx; do
        run 0 sim "$system" --model llama-tiny --cluster small.yaml --batch 8 --control "$control" --clip 1
    done
done
refused 3 "control 'rollback' with a step that keeps no log" sim sysx --model llama-tiny --cluster small.yaml --batch 8 --control rollback --set log=0
refused 2 ".*sysx_cfg0 has no variable 'd'" sim sysx_cfg0 --model llama-tiny --cluster sysx-1node --batch 8 --set d=2

/usr/bin/python3 -c 'import matplotlib' 2>/dev/null || finish
"$python" "$root/scripts/pipelines" --build "$build" --out figures >figures.txt || fail "the papers' figures are not drawn"
for line in "GPipe: iteration 21 units, bubble ratio 42.9%" "1F1B (DAPPLE): iteration 21 units, bubble ratio 42.9%" \
    "Mobius (Fig. 2): iteration 45 units, bubble ratio 46.7%" "SysX (Fig. 8): iteration 32 units, bubble ratio 25.0%" \
    "Fine backward stages (c): iteration 7 units, bubble ratio 14.3%" \
    "Asynchronous optimizer (b): iteration 8 units, bubble ratio 25.0%"; do
    grep -qxF "$line" figures.txt || fail "no line '$line' in: $(cat figures.txt)"
done
[ "$(head -c 4 figures/sysx-fig2-8.png | tail -c 3)" = PNG ] || fail "the figure is no PNG"
for system in mobius sysx; do
    run 0 sim "$system" --model llama-tiny --cluster small.yaml --batch 8 --trace "$system.json"
done
/usr/bin/python3 -B "$root/harness/report/pipeline.py" --out real.svg mobius.json sysx.json >real.txt || fail "real times are not drawn"
head -c 5 real.svg | grep -q '<?xml' || fail "the figure is no SVG"
[ "$(cut -d: -f1 real.txt | xargs)" = "mobius sysx" ] || fail "real times: $(cat real.txt)"
finish

#!/usr/bin/env bash
# Cephalo on GPUs of unlike speed and memory, trained under the emulated clock: losses, order, memory and idle time.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
mini=$root/tests/data/cephalo-a-mini.yaml

# mean: of the compute lanes' idle shares, in percent.
mean() { json out 'sum(100 * (1 - x["busy_share"]) for x in d["lane_busy"] if x["kind"] == "compute") / 8'; }
for system in cephalo 'cephalo --set objective=0 --set even=1 --set enlarge=1' 'fsdp --set c=24' 'whale --set c=24'; do
    # shellcheck disable=SC2086 # words
    run 0 sim $system --model "$root/tests/data/bert-large-mini.yaml" --cluster "$mini" --seq 32 --batch 128 --numerics fp32 --json
    mean
done >idle
"$python" -c "
cephalo, variant, fsdp, whale = map(float, open('idle'))
raise SystemExit(not (0 < variant < whale < fsdp and variant < cephalo < fsdp))" ||
    fail "idle in percent, of Cephalo, its variant, FSDP and Whale: $(paste -sd' ' idle)"

common=(--model gpt-tiny --data "$text" --seq 32 --steps 2)
needs_ranks "${common[@]}"

# Memory so scarce that the fast small GPUs take many samples and the slow ones hold none of the state.
sed -e 's/memory: 85 MB/memory: 12 MB/; s/memory: 171 MB/memory: 24 MB/; s/memory: 46 MB/memory: 4500 kB/' "$mini" >scarce.yaml
scenario=(--batch 64 --numerics fp32 --cluster scarce.yaml)
run 0 train in_memory "${common[@]}" --batch 64 --micro-batch 1 --numerics fp32 --losses one.csv
run 0 sim cephalo --model gpt-tiny --seq 32 "${scenario[@]}" --iterations 2 --json --trace simulated.t
mv out simulated.json
for scale in 20 20 60; do # a machine that is busy may need a larger scale
    rm -f emulated.t
    ! "$hetbench" train cephalo "${common[@]}" "${scenario[@]}" --clock emu --emu-scale $scale --losses held.csv --trace emulated.t --json >out 2>err ||
        break
    tail -n 1 err | grep -q "^hetbench: INVALID emulation" || break
done
if [ ! -e emulated.t ]; then
    tail -n 1 err | grep -q "^hetbench: INVALID emulation" || fail "the emulated run: $(tail -n 1 err)"
    echo "this machine is too busy to emulate at scale 60: not compared with the simulation"
    finish
    exit
fi
near 1e-6 one.csv held.csv
"$python" - <<'PY' || fail "the emulated run is not the simulated one"
import json

emulated, simulated = json.load(open("out")), json.load(open("simulated.json"))
plan = emulated["plan"]["variables"]
assert plan["share"][6] == plan["share"][7] == 0 < min(plan["share"][:6]) and plan["l"][6] > 1, plan
capacities, peaks = set(), set()
for a, b in zip(emulated["memory"], simulated["memory"]):
    assert a["arena_peak_bytes"] == a["peak_bytes"] == b["peak_bytes"] <= a["capacity_bytes"], (a, b)
    if a["tier"] == "device":
        capacities.add(a["capacity_bytes"]), peaks.add(a["peak_bytes"])
assert len(capacities) == len(peaks) == 3, (capacities, peaks)

def order(path):
    lanes = {}
    events = [e for e in json.load(open(path))["traceEvents"] if e["ph"] == "X"]
    for e in sorted(events, key=lambda e: (e["args"]["start_ns"], e["args"]["op"])):
        lanes.setdefault((e["pid"], e["tid"]), []).append(e["name"])
    return lanes
assert order("emulated.t") == order("simulated.t")
PY
finish

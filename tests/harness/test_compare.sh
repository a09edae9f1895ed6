#!/usr/bin/env bash
# A comparison goes on after rows that do not fit, and its files agree with its table and with sim.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

systems=in_memory,in_memory_ckpt,zero_offload,zero_offload_ckpt
run 0 compare --systems "$systems" --models autohete-2b,autohete-22b --cluster autohete-1gpu --out deep/er
[ "$(grep -c '^  out of memory: .*in_memory' out)" = 2 ] || fail "oom rows are not in one line a model: $(cat out)"
grep -q '\[1\]' out && fail "footnotes without --why: $(cat out)"
run 0 compare --systems "$systems" --models autohete-2b,autohete-22b --cluster autohete-1gpu --out deep/er --all
[ "$(grep -c ' oom ' out)" -ge 4 ] || fail "the table lacks its oom rows"
[ "$(awk '/^  [a-z].* oom /{next} /^  [a-z_0-9]+ +8 / {print $1}' out | head -1)" = in_memory_ckpt ] || fail "the best row is not the first: $(cat out)"
! grep -qF "\$1000" out || fail "a cluster without a price has one"
"$python" - <<'PY' || fail "compare.json and compare.csv disagree"
import csv, json

d = json.load(open("deep/er/compare.json"))
rows = list(csv.DictReader(open("deep/er/compare.csv")))
assert len(d["rows"]) == len(rows) == 8
assert d["obtained"] == "simulated" and d["commit"] and d["command"]
for a, b in zip(d["rows"], rows):
    assert (a["system"], a["status"]) == (b["system"], b["status"])
    assert a["scenario"]["model"]["name"] == b["model"]
    if a["status"] == "ok":
        assert a["samples_per_s"] == float(b["samples_per_s"]) and a["device_peak_bytes"] == int(b["device_peak_bytes"])
    else:
        assert a["reason"] == b["reason"] and a["reason"].startswith("OOM at") and not b["samples_per_s"]
PY
# Each row has the micro-batch of the fastest simulation.
many=$(json deep/er/compare.json 'd["rows"][3]["iteration_time_s"]')
best=$(for m in 1 2 4 8; do
    run 0 sim zero_offload_ckpt --model autohete-2b --cluster autohete-1gpu --micro-batch $m --json
    json out '(d["iteration_time_s"], d["scenario"]["micro_batch"])'
done | sort -V | head -1)
[ "$best" = "$(json deep/er/compare.json '(d["rows"][3]["iteration_time_s"], d["rows"][3]["scenario"]["micro_batch"])')" ] ||
    fail "sim's fastest is $best, compare says $many"
run 0 compare --systems zero_offload,gpipe --models gpt2-124m --clusters autohete-1gpu,autohete-4gpu --batch 8 --micro-batch 1 --json
[ "$(json out '[(r["system"], r["scenario"]["cluster"], r["scenario"]["micro_batch"]) for r in d["rows"]]')" = \
    "[('zero_offload', 'autohete-1gpu', 1), ('gpipe', 'autohete-1gpu', 1), ('zero_offload', 'autohete-4gpu', 1), ('gpipe', 'autohete-4gpu', 1)]" ] ||
    fail "rows of two clusters: $(json out '[(r["system"], r["scenario"]["cluster"]) for r in d["rows"]]')"
run 0 sim gpipe --model gpt2-124m --cluster autohete-4gpu --batch 8 --micro-batch 1 --json
cp out sim.json
run 0 compare --systems gpipe --models gpt2-124m --clusters autohete-4gpu --batch 8 --micro-batch 1 --json
[ "$(json out 'd["rows"][0]["iteration_time_s"]')" = "$(json sim.json 'd["iteration_time_s"]')" ] || fail "a cluster of several is another"

# Where the catalogue states prices, rates over them: a server of $14,098 with a GPU of $1,600 and SSDs of $308 each.
[ "$(json out 'any("usd" in key for key in d)')" = False ] || fail "a cluster without a price has one: $(cat out)"
for ssds in 12 3; do
    run 0 compare --systems zero_offload,in_memory --models gpt2-124m --cluster lohan-4090 --ssds "$ssds" --batch 4 --out priced
    grep -qF "tokens/s per \$1000" out || fail "the table lacks rates per price"
    run 0 sim zero_offload --model gpt2-124m --cluster lohan-4090 --ssds "$ssds" --batch 4
    grep -qF "price            \$$((15698 + 308 * ssds)) for the cluster: " out || fail "sim shows no price: $(cat out)"
    run 0 sim zero_offload --model gpt2-124m --cluster lohan-4090 --ssds "$ssds" --batch 4 --json
    "$python" - "$ssds" <<'PY' || fail "rates per price"
import csv, json, sys

sim, rows = json.load(open("out")), list(csv.DictReader(open("priced/compare.csv")))
assert sim["price_usd"] == 15698 + 308 * int(sys.argv[1])
assert abs(sim["tokens_per_s_per_1000_usd"] * sim["price_usd"] / 1000 / sim["tokens_per_s"] - 1) < 1e-12
assert abs(sim["tflops_per_1000_usd"] * sim["price_usd"] / 1000 / sim["tflops_per_gpu"] - 1) < 1e-12
assert float(rows[0]["tokens_per_s_per_1000_usd"]) == sim["tokens_per_s_per_1000_usd"] and float(rows[1]["price_usd"]) == sim["price_usd"]
PY
done
# A row whose input is refused says so, and the others are computed: a disk so slow that a copy takes more than 11 days.
sed 's/name: nodes/name: slow/; s/    nic:.*/    ssds: {type: {name: tape, capacity: 4 TB, read: 1 kB\/s, write: 1 kB\/s, duplex: false, latency: 1 ms, source: none}}/' \
    <(emulated_nodes 1 1) | sed 's/64 MB/90 GB/; s/ram: 1 GB/ram: 400 GB/' >slow.yaml
run 0 compare --systems zero_infinity,zero_offload --models autohete-2b --cluster slow.yaml --numerics fp32 --out slow --all --why
grep -Eq '^  zero_infinity +8 +refused .* refused \[1\]$' out || fail "a refused row: $(cat out)"
grep -q "^\[1\] work 'copy .*' takes more than 11 days" out || fail "a refused row has no reason: $(cat out)"
[ "$(json slow/compare.json '[r["status"] for r in d["rows"]], d["complete"]')" = "(['refused', 'ok'], True)" ] || fail "statuses: $(cat slow/compare.csv)"
refused 2 "work 'copy .*' takes more than 11 days" compare --systems zero_infinity --models autohete-2b --cluster slow.yaml --numerics fp32 --out never
refused 2 "zero_infinity on autohete-2b: work 'copy .*" compare --systems zero_infinity --models autohete-2b,autohete-4b --cluster slow.yaml \
    --numerics fp32 --out never

# Where GPUs send through host memory at a rate that was measured elsewhere, it says who is fastest at half and at double of it:
# the same systems as with --through-host.
for rate in "" 2.6 10.4; do
    run 0 compare --systems ddp,fsdp,dapple --models gpt-tiny,lohan-headless-760m --cluster lohan-2x4090 --batch 8 ${rate:+--through-host "$rate GB/s"} --json
    mv out rate$rate.json
done
"$python" - <<'PY' || fail "the fastest system at other rates"
import json

def fastest(name):
    best = {}
    for r in json.load(open(name))["rows"]:
        best.setdefault(r["scenario"]["model"]["name"], []).append((r.get("samples_per_s", 0), r["system"]))
    return {m: max(rows)[1] for m, rows in best.items()}

found = json.load(open("rate.json"))
assert found["assumed_rate"]["value"] == 5.2e9 and all(r["scenario"]["through_host_assumed"] for r in found["rows"])
of = lambda key: {m["model"]: m[key] for m in found["assumed_rate"]["fastest"]}
assert (of("half"), of("once"), of("double")) == (fastest("rate2.6.json"), fastest("rate.json"), fastest("rate10.4.json"))
assert of("half") != of("double"), of("half")
assert "assumed_rate" not in json.load(open("rate2.6.json"))
PY
run 0 compare --systems ddp,fsdp,dapple --models gpt-tiny,lohan-headless-760m --cluster lohan-2x4090 --batch 8
grep -q "^  gpt-tiny: fastest is .* at half of it, fsdp at it, fsdp at double$" out || fail "an assumed rate that decides: $(cat out)"
# A loaded graph's costs heed it, too.
ring=(--cluster lohan-2x4090 --through-host "0.1 GB/s" --json)
run 0 sim ddp --model gpt-tiny --batch 8 "${ring[@]}" --dump ring.yaml
built=$(json out 'd["iteration_time_s"]')
run 0 sim --load ring.yaml "${ring[@]}"
[ "$(json out 'd["iteration_time_s"]')" = "$built" ] || fail "--load with --through-host: $(json out 'd["iteration_time_s"]'), built $built"
run 0 sim --load ring.yaml --cluster lohan-2x4090 --json
[ "$(json out 'd["iteration_time_s"]')" != "$built" ] || fail "--through-host changes nothing"

refused 2 "--through-host: '8 GB' has the wrong unit 'GB'; expected a rate" compare --models gpt-tiny --cluster lohan-2x4090 --through-host '8 GB'

# Models are listed as in maxsize: names, patterns, files, a model of transformers by its folder or file, each once.
run 0 compare --systems in_memory --models "gpt-m*,gpt-mini,$root/tests/data/gpt2-nano,$root/tests/data/llama-nano/config.json" --cluster local \
    --device-memory 100MB --seq 16 --json
[ "$(json out '[r["scenario"]["model"]["name"] for r in d["rows"]]')" = "['gpt-mini', 'gpt2-nano', 'llama-nano']" ] || fail "models: $(cat out)"
refused 2 "no built-in model matches 'nope-\*'" compare --models 'nope-*' --cluster local --out never
refused 2 "slow.yaml/never: cannot be made: Not a directory" compare --models gpt-mini --cluster local --out slow.yaml/never
refused 2 "unknown system 'nope'" compare --systems nope --models autohete-2b --cluster autohete-1gpu --out never
refused 2 "unknown cluster 'nope'" compare --models gpt2-124m --clusters autohete-1gpu,nope --out never
refused 2 "expected --cluster, --gpus or --clusters" compare --models gpt2-124m --clusters autohete-1gpu --cluster autohete-1gpu --out never
[ ! -e never ] || fail "a refused comparison made its directory"
finish

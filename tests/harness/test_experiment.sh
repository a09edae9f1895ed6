#!/usr/bin/env bash
# Experiments: files that are wrong, files that agree, going on where Ctrl-C stopped, and the report made from them.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

# ---- what is wrong is one line with its place ----

refused 2 "experiment: expected NAME" experiment
refused 2 "unknown experiment 'autohete-fig33a'; expected 'autohete-fig3a'" experiment autohete-fig33a
refused 2 "nowhere.yaml: " experiment nowhere.yaml

# bad PATTERN TEXT: an experiment with TEXT in place of the lines that a good one has.
bad() {
    local pattern=$1
    printf '%b\n' "$2" >bad.yaml
    refused 2 "bad.yaml:$pattern" experiment bad.yaml --out never
    [ ! -e never ] || fail "a refused experiment made its directory"
}
head='name: bad\ncluster: autohete-1gpu\nmodels: [autohete-2b]\nsystems: [zero_offload]'
bad "4:11: key 'systems\[0\]': unknown system 'zero_ofload'" "${head%systems*}systems: [zero_ofload]"
bad "3:10: key 'models\[0\]': unknown model 'autohete-2c'" "name: bad\ncluster: autohete-1gpu\nmodels: [autohete-2c]\nsystems: [zero_offload]"
bad "2:10: key 'cluster': unknown cluster" "name: bad\ncluster: autohete-9gpu\nmodels: [autohete-2b]\nsystems: [zero_offload]"
bad "5:1: key 'batchs': .*batches" "$head\nbatchs: [8]"
bad "5:11: key 'batches\[0\]': " "$head\nbatches: [0]"
bad "5:14: key 'batches\[1\]': stands in the list twice" "$head\nbatches: [8, 8]"
bad "5:17: key 'device_memory\[0\]': '40' has no unit" "$head\ndevice_memory: [40]"
bad "5:8: key 'seqs\[0\]': .*1024" "$head\nseqs: [2048]"
bad "5:14: key 'micro_batch': 3 does not divide" "$head\nmicro_batch: 3"
bad "5:11: key 'numerics': .*fp16" "$head\nnumerics: fp8"
bad "5:10: key 'bad\[1\]': '9' is out of range; expected 1 to 8" "$head\nbad: [3, 9]"
bad "5:11: key 'software': unknown software 'eagre'; expected 'eager'" "$head\nsoftware: eagre"
bad "5:8: key 'along': " "$head\nalong: batch"
bad "5:13: key 'break_even': " "$head\nbreak_even: yes"
bad "5:16: key 'best': unknown key; expected label and best_of" "${head%[*}\n  - {label: x, best: [zero_offload], best_of: [zero_offload]}"
bad "5:13: key 'label': invalid label" "${head%[*}\n  - {label: 'a|b', best_of: [zero_offload]}"
bad "5:5: key 'systems\[0\]': .*best_of" "${head%[*}\n  - {label: x}"
bad "1:7: key 'name': invalid name '../x'" "name: ../x${head#name: bad}"
bad "5:12: key 'timelines': .*model" "$head\ntimelines: {systems: [zero_offload]}"
bad "1:1: .*name" "${head#name: bad\\n}"
printf 'name: bad\nmodels: [' >bad.yaml
refused 2 "bad.yaml:3:1: .*without a closing bracket" experiment bad.yaml --out never
printf '%b\n' "$head\ndevice_memory: [80 GB]" >big.yaml
refused 2 "bad, zero_offload on autohete-2b: .*80 GB" experiment big.yaml --out big
[ ! -e big ] || fail "an experiment without a point made its directory"

# ---- every model on every cluster ----

grid='name: grid\nmodels: [gpt2-124m, gpt-tiny]\nbatches: [4]\nseqs: [64]\nsystems: [ddp, zero_offload]\nfigure: wins\nbest_micro_batch: true\n'
bad "8:12: key 'clusters\[0\]': unknown cluster" "${grid}clusters: [autohete-9gpu]"
bad "8:27: key 'clusters\[1\]': stands in the list twice" "${grid}clusters: [autohete-1gpu, autohete-1gpu]"
bad "9:1: key 'clusters': not allowed beside 'cluster'" "${grid}cluster: autohete-1gpu\nclusters: [autohete-1gpu]"
bad "8:1: key 'micro_batch': not allowed beside 'best_micro_batch'" "${grid}micro_batch: 2\ncluster: autohete-1gpu"
printf '%b\n' "${grid}clusters: [autohete-1gpu, \"gpus=rtx4090:2;ram=64GB\"]" >grid.yaml
run 0 experiment grid.yaml --out grid
grep -Eq '^gpt-tiny +gpus=rtx4090:2;ram=64GB ' out || fail "the table does not name the cluster: $(cat out)"
"$python" - grid/results.json >cases <<'PY'
import json, sys

rows = json.load(open(sys.argv[1]))["rows"]
assert len(rows) == 8
for r in rows[1::2]:  # zero_offload, whose rows say the micro-batch
    print(r["scenario"]["model"]["name"], "--cluster autohete-1gpu" if r["scenario"]["cluster"] == "autohete-1gpu" else "--gpus rtx4090:2 --ram 64GB",
          r["scenario"]["micro_batch"], r["iteration_time_s"], sep=",")
PY
[ "$(wc -l <cases)" = 4 ] || fail "the grid has other rows: $(cat cases)"
while IFS=, read -r model cluster micro seconds; do
    for m in 1 2 4; do
        [ "$m" != 4 ] || [ "$cluster" = "--cluster autohete-1gpu" ] || continue
        # shellcheck disable=SC2086 # several words
        run 0 sim zero_offload --model "$model" $cluster --batch 4 --seq 64 --micro-batch "$m" --json
        [ "$(json out "d['iteration_time_s'] $([ "$m" = "$micro" ] && echo == || echo '>=') $seconds")" = True ] ||
            fail "$model on $cluster: $seconds s with micro-batches of $micro, and with $m $(json out 'd["iteration_time_s"]')"
    done
done <cases
run 0 report grid

# ---- on recovery ----

recovery='name: bad\nfigure: recovery\nmodels: [autohet-gpt3-3b]\n'
bad "1:1: .*'models'" 'name: bad\nfigure: recovery\nrecoveries: [{name: autohet-a}]'
bad "4:21: key 'name': unknown recovery 'autohet-d'" "${recovery}recoveries: [{name: autohet-d}]"
bad "4:13: key 'recoveries': the list has 0 entries" "${recovery}recoveries: []"
bad "3:10: key 'models\[0\]': unknown model" "name: bad\nfigure: recovery\nmodels: [x]\nrecoveries: [{name: autohet-a}]"
bad "2:9: key 'figure': " "name: bad\nfigure: lines\nmodels: [autohet-gpt3-3b]\nrecoveries: [{name: autohet-a}]"
bad "5:1: key 'seqs': " "${recovery}recoveries: [{name: autohet-a}]\nseqs: [8]"
run 0 experiment autohet-fig10 --out fig10
"$python" - <<'PY' || fail "recoveries: $(cat out)"
import csv, json

rows = list(csv.DictReader(open("fig10/results.csv")))
assert len(rows) == 24 == len(json.load(open("fig10/results.json"))["rows"])
for row in rows:
    # S / C: 14 bytes a parameter from a store of 1.2 GB/s, for each group: 2 in A and B, 5 in C; replicated tensors a little more.
    if row["from"] == "remote":
        groups = 5 if row["label"] == "C" else 2
        assert 0 <= float(row["recovery_time_s"]) / (groups * 14 * int(row["params"]) / 1.2e9) - 1 < 0.01, row
    assert (row["paper_speed_up"] != "") == (row["from"] == "stores" and row["label"] != "C")
PY
run 0 report fig10
[ -s fig10/figures/recovery-fig10.png ] && grep -q "autohet-gpt3-20b" fig10/report.html || fail "the report of recoveries"
printf '%b\n' "$head" >other.yaml
refused 2 "fig10/results.json: holds experiment 'autohet-fig10'; expected 'bad'" experiment other.yaml --out fig10

# ---- a small one: files agree with each other and with sim ----

cat >small.yaml <<'YAML'
name: small
title: Two models, two budgets
cluster: autohete-1gpu
models: [autohete-2b, autohete-6b]
batches: [4, 8]
device_memory: [16 GiB, all]
along: batches
systems:
  - autohete
  - {label: ZeRO-Offload, best_of: [zero_offload, zero_offload_ckpt]}
break_even: true
timelines: {model: autohete-2b, batch: 4, systems: [autohete, autohete_nops]}
YAML
run 0 experiment small.yaml --out small
grep -q 'ZeRO-Offload' out || fail "the table lacks a system"
grep -q '24 points: 24 simulated, 0 taken over' out || fail "the points are not counted"
"$python" - <<'PY' || fail "results.json and results.csv are not as they should be"
import csv, json

d = json.load(open("small/results.json"))
rows = list(csv.DictReader(open("small/results.csv")))
assert d["complete"] and d["obtained"] == "simulated" and d["commit"] and "experiment small.yaml" in d["command"]
assert d["along"] == "batches" and d["axes"]["device_memory"] == [16 << 30, None] and len(rows) == len(d["rows"]) == 24
for a, b in zip(d["rows"], rows):
    assert (a["series"], a["system"], a["status"]) == (b["series"], b["system"], b["status"])
    assert (b["chosen"] == "yes") == a["chosen"] and b["obtained"] == "simulated" and b["commit"] == d["commit"]
    assert str(a["device_memory_bytes"] or "") == b["device_memory_bytes"]
    if a["status"] == "ok":
        assert a["iteration_time_s"] == float(b["iteration_time_s"])
        assert a["break_even"]["pcie"]["needed"] == float(b["break_even_pcie_bytes_per_s"])
    else:
        assert a["reason"] == b["reason"] and not b["samples_per_s"]
# The faster variant that fits is chosen, one of each group.
groups = {}
for a in d["rows"]:
    groups.setdefault((a["series"], a["scenario"]["model"]["name"], a["scenario"]["batch"], a["device_memory_bytes"]), []).append(a)
assert len(groups) == 16
for group in groups.values():
    chosen = [a for a in group if a["chosen"]]
    assert len(chosen) == 1
    assert (chosen[0].get("samples_per_s") or 0) == max(a.get("samples_per_s") or 0 for a in group)
assert {len(g) for g in groups.values()} == {1, 2} and {a["status"] for a in d["rows"]} == {"ok", "oom"}
# Break-even: at the needed rate an iteration is within 1% of the unlimited one, just below it is not.
for a in d["rows"]:
    for rate in (a.get("break_even") or {}).values():
        assert rate["iteration_time_needed_s"] <= 1.01 * rate["iteration_time_free_s"]
        slower = [t for x, t in rate["curve"] if x < rate["needed_scale"] / 1.011]
        assert rate["needed_is_at_most"] or slower[-1] > 1.01 * rate["iteration_time_free_s"]
        assert dict(map(tuple, rate["curve"]))[1] == a["iteration_time_s"]
assert [t["system"] for t in d["traces"]] == ["autohete", "autohete_nops"]
PY

# Rows and files are the same on one processor.
"$python" -c 'import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.execv(sys.argv[1], sys.argv[1:])' "$hetbench" experiment small.yaml --out alone >out
cmp small/results.csv alone/results.csv || fail "results.csv depends on the number of threads"
"$python" - <<'PY' || fail "results.json depends on the number of threads"
import json

a, b = (json.load(open(f"{d}/results.json")) for d in ("small", "alone"))
for d in (a, b):
    del d["command"], d["machine"]
assert json.dumps(a) == json.dumps(b)
PY

# PatrickStar moves chunks and steps one after the other: with copies or steps x times as fast an iteration takes
# T(x) = a + b / x, so (T(1/16) - T(1)) / (T(1) - T(4)) = (16 - 1) / (1 - 1/4) = 20. (Beyond that DRAM limits copies.)
printf '%s\n' 'name: line' 'cluster: autohete-1gpu' 'models: [autohete-10b]' 'systems: [patrickstar_ckpt]' 'break_even: true' >line.yaml
run 0 experiment line.yaml --out line
sed '$a software: eager' line.yaml >eager.yaml # another software makes other points
run 0 experiment eager.yaml --out eager
cp -r line mixed
run 0 experiment eager.yaml --out mixed
grep -q '1 simulated, 0 taken over' out || fail "a row of other software was taken over"
"$python" - <<'PY' || fail "the software of an experiment"
import csv

(a,), (b,), (c,) = (list(csv.DictReader(open(f"{d}/results.csv"))) for d in ("line", "eager", "mixed"))
assert (a["software"], b["software"]) == ("fused", "eager") and b["iteration_time_s"] == c["iteration_time_s"]
assert float(b["iteration_time_s"]) > float(a["iteration_time_s"])
PY
for rate in pcie cpu_adam; do
    curve="dict(map(tuple, d['rows'][0]['break_even']['$rate']['curve']))"
    ratio=$(json line/results.json "next(round((t[1/16] - t[1]) / (t[1] - t[4]), 5) for t in [$curve])")
    [ "$ratio" = 20.0 ] || fail "$rate: T(x) is no a + b/x: $ratio instead of 20"
done

# sim answers the same of one graph: rates that suffice as in the experiment, each rate half and twice as high, and runs with jitter,
# each as if it were the only one.
line=(sim patrickstar_ckpt --model autohete-10b --cluster autohete-1gpu --json)
run 0 "${line[@]}"
cp out plain
for seed in 5 6 7; do
    run 0 "${line[@]}" --jitter 9 --seed "$seed"
    cp out "seed.$seed"
done
run 0 "${line[@]}" --break-even --what-if
cp out rates
run 0 "${line[@]}" --jitter 9 --seed 5 --runs 3
"$python" - <<'PY' || fail "variations of one graph"
import json

runs, plain, rates, line = (json.load(open(f)) for f in ("out", "plain", "rates", "line/results.json"))
alone = [json.load(open(f"seed.{seed}"))["iteration_time_s"] for seed in (5, 6, 7)]
r = runs["runs"]
assert r["iteration_s"] == alone and r["without_s"] == plain["iteration_time_s"] and len(set(alone)) == 3
assert (r["least_s"], r["median_s"], r["most_s"]) == tuple(sorted(alone)) and r["p95_s"] == max(alone) and r["p5_s"] == min(alone)
assert rates["break_even"] == line["rows"][0]["break_even"] and "runs" not in rates and "what_if" not in plain
# Nothing overlaps: T(x) = a + b / x, so (T(1/2) - T(1)) / (T(1) - T(2)) = 2.
what_if = {w["rate"]: w for w in rates["what_if"]}
assert set(what_if) == {"gpu", "pcie", "cpu_adam"}
for w in what_if.values():
    assert abs((w["half_s"] - plain["iteration_time_s"]) / (plain["iteration_time_s"] - w["double_s"]) - 2) < 1e-4, w
PY
for places in "autohete-4gpu links" "sysx-2node network"; do
    read -r cluster expected <<<"$places"
    run 0 sim ddp --model gpt-tiny --cluster "$cluster" --batch 16 --what-if --json
    found=$(json out '",".join(w["rate"] for w in d["what_if"] if w["rate"] in ("links", "network"))')
    [ "$found" = "$expected" ] || fail "$cluster: rates of exchanges: $found instead of $expected"
done
run 0 sim zero_offload_ckpt --model autohete-6b --cluster autohete-1gpu --batch 8 --json
[ "$(json out 'd["iteration_time_s"]')" = "$(json small/results.json '[r["iteration_time_s"] for r in d["rows"] if
    r["system"] == "zero_offload_ckpt" and r["scenario"]["batch"] == 8 and r["status"] == "ok"][-1]')" ] ||
    fail "sim and experiment disagree"

# ---- clusters by model, batches a node, lists of micro-batches, settings, bad iterations ----

cat >nodes.yaml <<'YAML'
name: nodes
models: [{name: llama-tiny, cluster: sysx-1node}, {name: cephalo-tiny-llama, cluster: sysx-2node}]
batches_per_node: [8, 16]
micro_batches: [1, 2]
seqs: [16]
along: batches
figure: rollback
bad: [3]
iterations: 4
warmup: 1
numerics: fp16
systems:
  - {label: SysX, best_of: [sysx v=1 d=1 log=0]}
  - mobius v=1
YAML
run 0 experiment nodes.yaml --out nodes
grep -q "^cluster sysx-1node or sysx-2node" out || fail "the clusters are not shown"
run 0 sim sysx --model cephalo-tiny-llama --cluster sysx-2node --batch 32 --micro-batch 2 --seq 16 --numerics fp16 --set v=1 --set d=1 --set log=0 \
    --iterations 4 --warmup 1 --bad 3 --json
mv out sim.json
"$python" - <<'PY' || fail "rows by node"
import json

d, sim = json.load(open("nodes/results.json")), json.load(open("sim.json"))
assert d["figure"] == "rollback" and d["cluster"] is None and d["axes"]["micro_batches"] == [1, 2]
assert {(r["scenario"]["cluster"], r["scenario"]["batch"], r["batch_per_node"], r["scenario"]["micro_batch"], r["variant"]) for r in d["rows"]} == {
    (c, n * b, b, m, v) for c, n in (("sysx-1node", 1), ("sysx-2node", 2)) for b in (8, 16) for m in (1, 2)
    for v in ("sysx v=1 d=1 log=0", "mobius v=1")}
(row,) = [r for r in d["rows"] if r["system"] == "sysx" and r["scenario"]["batch"] == 32 and r["scenario"]["micro_batch"] == 2]
for key in ("iteration_time_s", "bad_iteration_time_s", "ok_iteration_time_s", "bad_iterations"):
    assert row[key] == sim[key], key
PY
for figure in bars breakdown; do
    sed "s/figure: rollback/figure: $figure/" nodes.yaml >drawn.yaml
    run 0 experiment drawn.yaml --out "drawn-$figure"
done
sed 's/figure: rollback/figure: speedups/; s/along: batches/along: micro_batches/' nodes.yaml >drawn.yaml
run 0 experiment drawn.yaml --out drawn-speedups
# One model on two clusters, and figures of systems that give each rank a part of its own.
cat >parts.yaml <<YAML
name: nodes
models: [{name: gpt-tiny, cluster: $root/tests/data/mixed-2x2.yaml}, {name: gpt-tiny, cluster: $root/tests/data/nodes-2x2.yaml}]
batches: [8]
seqs: [16]
along: models
figure: parts
numerics: fp32
systems: [cephalo, cephalo m=2 l=1]
YAML
for figure in parts totals gains prediction; do
    sed "s/figure: parts/figure: $figure/" parts.yaml >drawn.yaml
    run 0 experiment drawn.yaml --out "drawn-$figure"
done
[ "$(json drawn-parts/results.json '[r["scenario"]["gpu_by_rank"] for r in d["rows"] if r["scenario"]["cluster"] == "mixed-2x2"][0]')" = \
    "['a100-40gb', 'a100-40gb', 'v100-32gb-pcie', 'v100-32gb-pcie']" ] || fail "devices by rank"
sed 's/, cephalo m=2 l=1//; s/figure: parts/figure: gains/' parts.yaml >bad.yaml
refused 2 "bad.yaml:6:9: key 'figure': one system; expected another one last" experiment bad.yaml --out never
sed 's/cephalo m=2 l=1/zero_offload/' parts.yaml >bad.yaml
run 0 experiment bad.yaml --out wrong-parts
# Throughput over the price of two servers, which have several numbers of disks; the largest batch of one model.
cat >priced.yaml <<YAML
name: nodes
models: [{name: gpt2-124m, cluster: lohan-4090}, {name: gpt2-124m, cluster: lohan-3090}]
batches: [4]
ssds: [1, 12]
along: ssds
figure: price
systems: [zero_offload, in_memory]
YAML
run 0 experiment priced.yaml --out drawn-price
[ "$(json drawn-price/results.json '[r["price_usd"] for r in d["rows"] if r["system"] == "in_memory"]')" = "[16006.0, 19394.0, 15905.0, 19293.0]" ] ||
    fail "prices: $(json drawn-price/results.json '[r["price_usd"] for r in d["rows"]]')"
sed 's/lohan-3090/autohete-1gpu/; /ssds/d' priced.yaml >bad.yaml
refused 2 "bad.yaml:4:9: key 'figure': cluster 'autohete-1gpu' has no price; expected 'price_usd' of its nodes" experiment bad.yaml --out never
cat >batches.yaml <<YAML
name: nodes
cluster: lohan-4090
models: [lohan-headless-760m]
batches: [8, 16]
host_memory: [2 GB, 64 GB]
along: host_memory
figure: sizes
systems: [zero_offload, in_memory]
YAML
run 0 experiment batches.yaml --out drawn-sizes
# Every mix of one and two devices of two kinds. FSDP cannot divide 8 sequences among three, which is an answer.
cat >mixes.yaml <<YAML
name: nodes
cluster: autohet-2a100-2h800
models: [autohet-bert-large]
mixes: {a100-80gb: 1, h800-80gb: 2}
batches: [8]
along: mixes
figure: mixes
numerics: bf16
systems: [autohet, fsdp]
YAML
run 0 experiment mixes.yaml --out drawn-mixes
[ "$(json drawn-mixes/results.json '[(r["mix"], r["status"]) for r in d["rows"] if r["system"] == "fsdp"]')" = \
    "[('h800-80gb:1', 'ok'), ('h800-80gb:2', 'ok'), ('a100-80gb:1', 'ok'), ('a100-80gb:1,h800-80gb:1', 'ok'), ('a100-80gb:1,h800-80gb:2', 'refused')]" ] ||
    fail "mixes: $(json drawn-mixes/results.json '[(r["mix"], r["status"]) for r in d["rows"]]')"
run 0 sim autohet --model autohet-bert-large --cluster autohet-2a100-2h800 --only a100-80gb:1,h800-80gb:2 --batch 8 --numerics bf16 --json
[ "$(json out 'd["iteration_time_s"]')" = "$(json drawn-mixes/results.json 'd["rows"][-2]["iteration_time_s"]')" ] || fail "a mix is not what --only is"
mixes() {
    sed "$1" mixes.yaml >bad.yaml
    refused 2 "bad.yaml:$2" experiment bad.yaml --out never
}
mixes 's/a100-80gb: 1/a100-80gb: 3/' "4:8: key 'mixes': a100-80gb: 3 is out of range; expected 1 to 2"
mixes 's/a100-80gb: 1, //' "4:8: key 'mixes': the map has 1 kinds of devices; expected two, each with its largest count"
mixes 's/h800-80gb: 2/h800-80gb: 99/' "4:8: key 'mixes': 199 mixes; expected at most 128"
mixes '/mixes: {/d; s/along: mixes/along: batches/' "6:9: key 'figure': key 'mixes' is missing; expected two kinds of devices with their counts"
if /usr/bin/python3 -c 'import matplotlib' 2>/dev/null; then
    refused 2 ".*nodes: figure 'parts' cannot show zero_offload; expected a system that plans m, l and share by rank" report wrong-parts
    for dir in nodes drawn-bars drawn-breakdown drawn-speedups drawn-parts drawn-totals drawn-gains drawn-prediction drawn-price drawn-sizes drawn-mixes; do
        run 0 report "$dir"
        [ "$(wc -c <"$dir/figures/throughput-nodes.png")" -gt 8000 ] || fail "$dir: no figure"
    done
fi
nodes() {
    sed "$1" nodes.yaml >bad.yaml
    refused 2 "bad.yaml:$2" experiment bad.yaml --out never
}
nodes 's/{name: llama-tiny, cluster: sysx-1node}/llama-tiny/' "2:10: key 'models\[0\]': has no cluster; expected {name: .., cluster: ..}"
nodes 's/sysx-2node/sysx-3node/' "2:[0-9]+: key 'cluster': unknown cluster 'sysx-3node'"
nodes 's/^seqs/batches: [8]\nseqs/' "3:1: key 'batches_per_node': not allowed beside 'batches'"
nodes 's/^seqs/micro_batch: 2\nseqs/' "5:1: key 'micro_batch': not allowed beside 'micro_batches'"
nodes 's/\[1, 2\]/[1, 3]/' "4:20: key 'micro_batches\[1\]': 3 does not divide the batch of 8"
nodes 's/figure: rollback/figure: rollbacks/' "7:9: key 'figure': "
nodes '/^bad/d' "7:9: key 'figure': key 'bad' is missing"
nodes '/mobius/d; s/rollback/speedups/' "7:9: key 'figure': one system; expected another one last"
nodes 's/mobius v=1/mobiu v=1/' "14:5: key 'systems\[1\]': unknown system 'mobiu'; expected 'mobius'"
nodes 's/^bad/timelines: {model: llama-tiny, systems: [mobius]}\nbad/' "8:1: key 'timelines': not allowed without 'cluster'"
sed 's/mobius v=1/mobius w=1/' nodes.yaml >bad.yaml
refused 2 "nodes, mobius w=1 on .*: --set 'w=1': mobius has no variable 'w'" experiment bad.yaml --out wrong

# ---- what is there is taken over, while it is of the same program, commit and file ----

run 0 experiment small.yaml --out small
grep -q '0 simulated, 24 taken over' out || fail "a second run simulates again"
sed -i 's/batches: \[4, 8\]/batches: [4, 8, 12]/' small.yaml
run 0 experiment small.yaml --out small
grep -q '36 points: 12 simulated, 24 taken over' out || fail "a longer list simulates more than is new"
"$python" -c 'import json
d = json.load(open("small/results.json"))
for r in d["rows"]: r["commit"] = "another"
json.dump(d, open("small/results.json", "w"))'
run 0 experiment small.yaml --out small
grep -q '36 simulated, 0 taken over' out || fail "rows of another commit are taken over"
sed 's/^name: small/name: other/' small.yaml >other.yaml
refused 2 "small/results.json: holds experiment 'small'; expected 'other'" experiment other.yaml --out small
mkdir broken && echo '{"rows": 7' >broken/results.json
refused 2 "broken/results.json: not a results file" experiment small.yaml --out broken
[ "$(cat broken/results.json)" = '{"rows": 7' ] || fail "a file that is not ours was overwritten"

# ---- Ctrl-C keeps what is done, and the same command goes on from there ----

n=$([ -n "$sanitized" ] && echo 40 || echo 48) # batches, 12 points each
points=$((12 * n))
{
    sed -e 's/^name: small/name: long/' -e '/^break_even/d' -e '/^timelines/d' -e '/^batches/d' -e 's/, autohete-6b//' small.yaml
    echo "iterations: $([ -n "$sanitized" ] && echo 200 || echo 1000)"
    echo "batches: [$(seq -s, 1 "$n")]"
    echo "seqs: [512, 1024]"
} >long.yaml
rm -f err
status=0
"$python" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$hetbench" experiment long.yaml --out long >out 2>err &
pid=$!
until grep -qs "[1-9][0-9]* of $points " err || ! kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
kill -INT "$pid" 2>/dev/null || fail "the long experiment had already ended"
wait "$pid" || status=$?
[ "$status" = 130 ] || fail "status $status after Ctrl-C, expected 130"
grep -q "hetbench: interrupted after .* of $points points" err || fail "does not say how far it came: $(cat err)"
[ "$(ls long)" = $'results.csv\nresults.json' ] || fail "Ctrl-C left $(ls long)"
kept=$(json long/results.json 'len(d["rows"]) if not d["complete"] else "complete"')
[ "$(($(wc -l <long/results.csv) - 1))" = "$kept" ] || fail "after Ctrl-C results.csv has other rows than results.json"
run 0 experiment long.yaml --out long
grep -q "$points points: $((points - kept)) simulated, $kept taken over" out || fail "does not go on after $kept: $(tail -n 2 out)"
[ "$(json long/results.json 'd["complete"], len(d["rows"])')" = "(True, $points)" ] || fail "the resumed run is not whole"

# ---- report ----

refused 2 ".*nowhere" report nowhere
mkdir -p empty
refused 2 "empty: holds no results.json" report empty
refused 2 "broken/results.json: not a results file" report broken
mkdir -p binary cut && printf '\377\0' >binary/results.csv && head -c 900 small/results.csv >cut/results.csv
refused 2 "binary: not results that hetbench experiment wrote: 'utf-8' codec can't decode byte 0xff" report binary
refused 2 "cut: not results that hetbench experiment wrote: " report cut
"$python" -c 'import matplotlib' 2>/dev/null || finish
"$python" -c 'import matplotlib' 2>/dev/null || exit 0
export MPLCONFIGDIR=$work/mpl
mkdir both && cp -r small both/ && run 0 experiment autohete-fig7 --out both/fig7
ln -s page.html both/report.html
run 0 report both
[ "$(head -n 1 out)" = both/report.html ] || fail "report does not say what it wrote"
[ -L both/report.html ] && [ -s both/page.html ] || fail "report.html was a link, and has been replaced"
"$python" - <<'PY' || fail "the page is not whole"
import base64, html.parser, pathlib, re

text = pathlib.Path("both/report.html").read_text()


class Check(html.parser.HTMLParser):
    ids, images, outside, stack = [], 0, [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        for name in ("src", "href"):
            value = attrs.get(name, "#")
            if value.startswith("data:image/png;base64,"):
                assert base64.b64decode(value.split(",")[1], validate=True)[:4] == b"\x89PNG"
                self.images += 1
            elif not value.startswith("#"):
                self.outside.append(value)
        if tag not in ("meta", "img"):
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, tag


check = Check()
check.feed(text)
assert not check.stack and not check.outside and "<script" not in text
assert check.ids == ["throughput", "timeline", "memory", "critical-path", "lower-bound", "break-even", "oom", "provenance"]
pictures = list(pathlib.Path("both/figures").glob("*.png"))
assert check.images == len(pictures) >= 9 and all(p.stat().st_size > 8000 for p in pictures)
for words in ("autohete-fig7", "Two models, two budgets", "simulated", "OOM at", "short by", "prefers-color-scheme"):
    assert words in text, words
assert "http" not in re.sub(r"base64,[^\"]*", "", text)
PY
# An interrupted experiment is drawn too, and says so.
"$python" -c 'import json
d = json.load(open("long/results.json"))
d["rows"], d["complete"] = d["rows"][:40], False
json.dump(d, open("long/results.json", "w"))'
run 0 report long --out page --json
[ "$(json out 'd["page"]')" = page/report.html ] || fail "--json does not name the page"
grep -q 'was interrupted: 40 points' page/report.html || fail "--out is not where the page is, or it hides that points are missing"
finish

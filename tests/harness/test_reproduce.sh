#!/usr/bin/env bash
# The ledgers load, their rows agree with sim and compare, a wrong claim fails nothing, and a bad ledger is one line.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

# ---- the built-in ledgers: table, CSV and JSON are the same ----

# Without whole iterations on up to 32 GPUs, which take a minute or two.
run 0 reproduce 'autohete.*' --out rows.csv
mv out table
run 0 reproduce 'autohete.*' --json
mv out rows.json
"$python" - <<'PY' || fail "table, CSV and JSON disagree"
import csv, json

d = json.load(open("rows.json"))
rows = list(csv.DictReader(open("rows.csv")))
table = open("table").read()
assert d["commit"] and d["command"] and d["costs"]
second = [r["id"] for r in d["rows"] if "reading" in r]
assert len(rows) == len(d["rows"]) == sum(d["row_counts"].values()) + len(second) and len(rows) - len(second) >= 48
assert len(second) == sum(d["second_readings"].values()) == sum(r["reading"] != "" for r in rows)
assert len({r["id"].split("/")[0] for r in d["rows"] if r["id"] not in second}) == sum(d["claims"].values())
assert d["row_counts"]["broken"] == 0, [r["why"] for r in d["rows"] if r["verdict"] == "broken"]
assert len({r["id"] for r in d["rows"]}) == len(rows)
counted = []
for a, b in zip(d["rows"], rows):
    assert (a["id"], a["verdict"], a["paper"]) == (b["id"], b["verdict"], b["paper"])
    assert a["ours"] == b["ours"] or a["how"].startswith("measured")  # two runs: what is simulated is the same
    assert a["id"] in table
    assert a["verdict"] not in ("not checkable", "not there yet") or a["why"]
    assert not (a["counts_in_mean"] and a["id"] in second)
    if a["counts_in_mean"]:
        assert abs(a["our_value"] / a["paper_value"] - 1 - a["deviation"]) < 1e-12
        counted.append(abs(a["deviation"]))
assert len(counted) == d["rows_in_mean"] and abs(sum(counted) / len(counted) - d["mean_absolute_deviation"]) < 1e-12
PY

# ---- setups with clusters, lengths and times of their own: the fields of every value ----

run 0 reproduce 'sysx.[ef][qi][3g][.58]*' --json --out units.csv
mv out units.json
run 0 reproduce sysx.s5.1.10b-oom-no-offload --json --out oom.csv
mv out oom.json
run 0 reproduce '*.fig5.*' --json
mv out both.json
"$python" - <<'PY' || fail "rows of SysX's ledger"
import csv, json

rows = {r["id"]: r for r in json.load(open("units.json"))["rows"]}
# SysX, Sec. 3.3: 21/45 and 8/32 of the time; Fig. 5; eq. 3 with four and four
for name, ours in {"sysx.fig8.bubble-mobius": 21 / 45, "sysx.fig8.bubble-sysx": 8 / 32, "sysx.eq3.gpipe": 3 / 7,
                   "sysx.fig5.bc/a": 9, "sysx.fig5.bc/b": 8, "sysx.fig5.bc/c": 7, "sysx.fig5.same-transfers": 2}.items():
    assert abs(rows[name]["our_value"] - ours) < 1e-8 and rows[name]["verdict"] == "within", rows[name]
assert rows["sysx.fig8.bubble-sysx"]["how"] == "units of time on 4 devices"
assert not any(r["counts_in_mean"] for r in rows.values())

(row,) = json.load(open("oom.json"))["rows"]
assert (row["ours"], row["verdict"]) == ("does not fit", "within") and "device memory fails" in row["why"], row
(value,) = row["values"]
assert {k: value[k] for k in ("system", "model", "cluster", "batch", "micro_batch", "seq")} == {
    "system": "Megatron without offloading", "model": "sysx-10b", "cluster": "sysx-1node", "batch": 16, "micro_batch": 2, "seq": 1024}
(row,) = csv.DictReader(open("oom.csv"))
assert (row["clusters"], row["seq"], row["batches"], row["micro_batch"]) == ("sysx-1node", "1024", "16 a node", "2"), row

both = json.load(open("both.json"))
assert {r["id"].split(".")[0] for r in both["rows"]} == {"autohete", "sysx"} and len(both["papers"]) == 5
PY

# ---- a row against sim: the ratio of two systems' throughputs, the better variant of each ----

cat >l.yaml <<'YAML'
paper: test
tolerances:
  ratio: {relative: 0.1, why: test}
  same: {absolute: 0, why: test}
systems:
  mine: [zero_offload_ckpt]
  theirs: [zero_offload, zero_offload_ckpt]
  nobody's: [there_is_none]
  pipe: [sysx log=0]
  other pipe: [mobius]
  fine pipe: [sysx d=2 log=0]
  uneven: ["fsdp l=5,2,1,0 m=1"]
setups:
  s: {models: [autohete-2b, autohete-14b], cluster: autohete-1gpu, batches: [8]}
  b: {models: [autohete-2b], cluster: autohete-1gpu, batches: [1, 2, 512]}
  four: {models: [autohete-2b], cluster: autohete-4gpu, batches: [8], micro_batch: 2}
  wide: {models: [{name: sysx-10b, cluster: sysx-1node}, {name: sysx-30b, cluster: sysx-2node}], batches_per_node: [16],
    micro_batch: 2, seq: [512, 1024], numerics: fp16, accumulate: 16, iterations: 3}
  m: {models: [autohete-2b], cluster: autohete-1gpu, batches: [8], memory: [16 GiB, 24 GiB, default]}
  fig8: {unit_times: {devices: 4, blocks: 16, forward: 0.5, backward: 1, fetch: 1, offload: 1, step: 2}, batches: [4],
    micro_batch: 1, bad: [5]}
claims:
  t.value: {where: x, statement: x, setup: s, systems: [mine], metric: throughput, kind: max, value: 1, tolerance: ratio}
  t.ratio: {where: x, statement: x, setup: s, systems: [mine], versus: theirs, metric: throughput, kind: average,
    value: 0.5, tolerance: ratio}
  t.fits: {where: x, statement: x, setup: b, systems: [theirs], metric: fits, kind: largest, over: batches, value: 2,
    fails_in: device, tolerance: same}
  t.absent: {where: x, statement: x, setup: s, systems: ["nobody's"], metric: throughput, kind: max, value: 1,
    tolerance: ratio}
  t.four: {where: x, statement: x, setup: four, systems: [mine], metric: fits, kind: largest, value: autohete-2b,
    tolerance: same}
  t.element: {where: x, statement: x, setup: four, systems: [uneven], metric: plan, variable: "l[1]", kind: value, value: 2,
    tolerance: same}
  t.unchecked: {where: x, statement: x, unchecked: because}
  t.wide: {where: x, statement: x, setup: wide, systems: [pipe], versus: other pipe, metric: throughput, kind: average, over: [models, seq],
    value: 1, tolerance: ratio}
  t.then: {where: x, statement: x, setup: wide, systems: [pipe], versus: other pipe, metric: throughput, kind: difference, over: seq,
    then: {kind: positive, over: models}, value: 1, tolerance: same}
  t.time: {where: x, statement: x, setup: wide, at: {models: sysx-30b, seq: 512}, systems: [pipe], metric: cpu_time, kind: value,
    value: 1, tolerance: ratio}
  t.undo: {where: x, statement: x, setup: fig8, systems: [fine pipe], metric: bad_time, kind: value, value: 34, tolerance: same}
  t.lost: {where: x, statement: x, setup: fig8, systems: [fine pipe], metric: bad_overhead, kind: value, value: 0.21875,
    tolerance: same}
  t.step: {where: x, statement: x, setup: fig8, systems: [fine pipe], metric: step_per_backward, kind: value, value: 0.5,
    tolerance: same}
  t.step/other: {where: x, statement: x, reading: of Mobius, setup: fig8, systems: [other pipe], metric: step_per_backward, kind: value,
    value: 0.6, tolerance: same}
  t.budgets: {where: x, statement: x, setup: m, systems: [theirs], metric: device_peak_share, kind: increment, over: memory,
    compare: below, value: 0, tolerance: same}
  t.skip: {where: x, statement: x, setup: fig8, systems: [other pipe], metric: bad_time, kind: value, value: 37, tolerance: same}
YAML
run 0 reproduce --ledger l.yaml --json --out l.csv
mv out l.json
run 0 compare --systems zero_offload,zero_offload_ckpt --models autohete-2b,autohete-14b --cluster autohete-1gpu --out cmp
"$python" - <<'PY' || fail "rows disagree with compare"
import json

rows = {r["id"]: r for r in json.load(open("l.json"))["rows"]}
tflops = {}
for r in json.load(open("cmp/compare.json"))["rows"]:
    tflops[r["system"], r["scenario"]["model"]["name"]] = r.get("tflops_per_gpu") or 0
models = ["autohete-2b", "autohete-14b"]
mine = [tflops["zero_offload_ckpt", m] for m in models]
best = [max(tflops["zero_offload", m], tflops["zero_offload_ckpt", m]) for m in models]
near = lambda a, b: abs(a - b) < 1e-9 * abs(b)
assert near(rows["t.value"]["our_value"], max(mine)), rows["t.value"]
assert rows["t.value"]["verdict"] == "outside"  # a wrong claim, shown as such, and the command ended with 0
ratios = [a / b for a, b in zip(mine, best) if a and b]
assert near(rows["t.ratio"]["our_value"], sum(ratios) / len(ratios)), rows["t.ratio"]
assert rows["t.fits"]["ours"] == "2" and rows["t.fits"]["verdict"] == "within", rows["t.fits"]
assert rows["t.absent"]["verdict"] == "not there yet" and "there_is_none" in rows["t.absent"]["why"]
assert rows["t.unchecked"]["verdict"] == "not checkable" and rows["t.unchecked"]["why"] == "because"
assert rows["t.element"]["our_value"] == 2 and rows["t.element"]["verdict"] == "within", rows["t.element"]
# SysX's Fig. 8 takes 32, of which 27 are passes; undoing a block takes as long as stepping it, 2, on every stage's own lane.
# Mobius takes 45, of which two stages of two blocks are stepped in 8, or not at all.
for name in ("undo", "lost", "skip"):
    assert rows[f"t.{name}"]["verdict"] == "within", rows[f"t.{name}"]
# A fine stage's step, 2, over its four backward passes of 1; a row of Mobius' is another reading, which no total counts.
assert rows["t.step"]["verdict"] == "within" and "reading" not in rows["t.step"], rows["t.step"]
assert rows["t.step/other"]["our_value"] == 0.5 and rows["t.step/other"]["reading"] == "of Mobius", rows["t.step/other"]
d = json.load(open("l.json"))
assert d["second_readings"]["outside"] == 1 and sum(d["row_counts"].values()) == len(rows) - 1 == sum(d["claims"].values()), d["claims"]
# Every figure has its unit, the values behind a row as well. A quotient of systems or of steps has none.
units = {"t.value": "TFLOP/s per GPU", "t.ratio": "ratio", "t.fits": "sequences", "t.element": "plan variable", "t.wide": "ratio",
         "t.then": "share", "t.time": "s", "t.undo": "unit of time", "t.lost": "share", "t.step": "ratio", "t.budgets": "share"}
assert {i: rows[i]["unit"] for i in units} == units and "unit" not in rows["t.unchecked"]
assert {v["unit"] for v in rows["t.then"]["values"]} == {"ratio"} and {v["unit"] for v in rows["t.fits"]["values"]} == {"0 or 1"}
import csv

table = {r["id"]: r for r in csv.DictReader(open("l.csv"))}
assert list(table) == list(rows) and all(table[i]["unit"] == u for i, u in units.items())
assert table["t.step/other"]["reading"] == "of Mobius" and table["t.step"]["reading"] == "", table["t.step/other"]
assert {v["device_memory_bytes"] for v in rows["t.budgets"]["values"]} == {16 << 30, 24 << 30, None}
assert rows["t.four"]["verdict"] in ("not there yet", "within"), rows["t.four"]
PY

# ---- a row over clusters and lengths against sim, one scenario at a time ----

for system in sysx mobius; do
    for seq in 512 1024; do
        for model in 10b:1 30b:2; do
            set=()
            [ "$system" = sysx ] && set=(--set log=0)
            run 0 sim "$system" "${set[@]}" --model "sysx-${model%:*}" --cluster "sysx-${model#*:}node" --batch $((16 * ${model#*:})) \
                --micro-batch 2 --seq "$seq" --numerics fp16 --accumulate 16 --iterations 3 --warmup 0 --json
            mv out "$system-${model%:*}-$seq.json"
        done
    done
done
"$python" - <<'PY' || fail "rows over clusters disagree with sim"
import json

rows = {r["id"]: r for r in json.load(open("l.json"))["rows"]}
sim = lambda system, model, seq: json.load(open(f"{system}-{model}-{seq}.json"))
gain = {(m, s): sim("mobius", m, s)["iteration_time_s"] / sim("sysx", m, s)["iteration_time_s"] for m in ("10b", "30b") for s in (512, 1024)}
near = lambda a, b: abs(a - b) < 1e-9 * abs(b)
assert near(rows["t.wide"]["our_value"], sum(gain.values()) / 4), (rows["t.wide"], gain)
assert {(v["model"], v["cluster"], v["batch"], v["seq"]) for v in rows["t.wide"]["values"]} == {
    (m, c, b, s) for m, c, b in (("sysx-10b", "sysx-1node", 16), ("sysx-30b", "sysx-2node", 32)) for s in (512, 1024)}
assert rows["t.then"]["our_value"] == sum(gain[m, 512] > gain[m, 1024] for m in ("10b", "30b")) / 2 and rows["t.then"]["then"] == "positive"
d = sim("sysx", "30b", 512)
assert near(rows["t.time"]["our_value"], d["iteration_time_s"] - d["passes_s"]), rows["t.time"]
assert len(rows["t.time"]["values"]) == 1 and rows["t.time"]["how"] == "simulated on sysx-2node"
PY

# ---- software: the ledger's, a setup's own, that of the command line; units of time and training have ours ----

cat >software.yaml <<'YAML'
paper: test
software: {name: eager, why: test}
tolerances: {same: {absolute: 0, why: test}}
systems: {mine: [zero_offload_ckpt]}
setups:
  s: {models: [autohete-2b], cluster: autohete-1gpu, batches: [8]}
  own: {models: [autohete-2b], cluster: autohete-1gpu, batches: [8], software: {name: megatron, why: test}}
  units: {unit_times: {devices: 1, blocks: 4, forward: 1, backward: 1, fetch: 1, offload: 1, step: 1}}
  trained: {models: [gpt-mini], cluster: local, batches: [2], seq: 16, train_steps: 2}
claims:
  t.s: {where: x, statement: x, setup: s, systems: [mine], metric: throughput, kind: value, value: 1, tolerance: same}
  t.own: {where: x, statement: x, setup: own, systems: [mine], metric: throughput, kind: value, value: 1, tolerance: same}
  t.units: {where: x, statement: x, setup: units, systems: [mine], metric: iteration_time, kind: value, value: 1, tolerance: same}
  t.trained: {where: x, statement: x, setup: trained, systems: [mine], versus: mine, metric: loss_difference, kind: value, value: 0,
    tolerance: same}
YAML
run 0 reproduce --ledger software.yaml --json --out software.csv
mv out software.json
run 0 reproduce --ledger software.yaml --software fused --json
mv out fused.json
for software in fused eager megatron; do
    run 0 sim zero_offload_ckpt --model autohete-2b --cluster autohete-1gpu --batch 8 --software $software --json
    mv out sim-$software.json
done
"$python" - <<'PY' || fail "the software of rows"
import csv, json

sim = {s: json.load(open(f"sim-{s}.json")) for s in ("fused", "eager", "megatron")}
rate = {s: r["tflops_per_gpu"] for s, r in sim.items()}
assert all(r["scenario"]["software"] == s for s, r in sim.items()) and rate["fused"] > rate["eager"] > rate["megatron"]  # its Adam has two threads
rows = {r["id"]: r["values"][0] for r in json.load(open("software.json"))["rows"]}
assert (rows["t.s"]["software"], rows["t.s"]["value"]) == ("eager", rate["eager"])
assert (rows["t.own"]["software"], rows["t.own"]["value"]) == ("megatron", rate["megatron"])
assert rows["t.units"]["software"] == rows["t.trained"]["software"] == "fused"
assert [r["software"] for r in csv.DictReader(open("software.csv"))] == ["eager", "megatron", "fused", "fused"]
rows = {r["id"]: r["values"][0] for r in json.load(open("fused.json"))["rows"]}
assert all(r["software"] == "fused" for r in rows.values())
assert rows["t.s"]["value"] == rows["t.own"]["value"] == rate["fused"]
PY
soft() { # soft SED-EXPRESSION PATTERN
    sed "$1" software.yaml >w.yaml
    refused 2 "$2" reproduce --ledger ./w.yaml
}
soft 's/name: eager/name: eagre/' "./w.yaml:2:18: key 'name': unknown software 'eagre'; expected 'eager'"
soft 's/eager, why: test/eager/' "./w.yaml:2:11: key 'software': the key 'why' is missing"
soft 's/megatron/metagron/' "./w.yaml:7:[0-9]+: key 'name': unknown software 'metagron'"
soft 's/step: 1}}/step: 1}, software: {name: eager, why: x}}/' "./w.yaml:8:[0-9]+: key 'software': not allowed beside 'unit_times'"
soft 's/train_steps: 2/train_steps: 2, software: {name: eager, why: x}/' "./w.yaml:9:[0-9]+: key 'software': not allowed beside 'train_steps'"

# ---- the largest size that fits, as maxsize finds it ----

cat >sizes.yaml <<'YAML'
paper: test
tolerances: {same: {absolute: 0, why: test}}
systems: {mine: [zero_offload]}
setups:
  b: {models: [autohete-2b, autohete-4b], cluster: autohete-1gpu, search: batch}
  m: {models: [autohete-2b], cluster: autohete-1gpu, batches: [8], search: model}
claims:
  t.batch: {where: x, statement: x, setup: b, systems: [mine], metric: batch, kind: spread, value: 1, tolerance: same}
  t.model: {where: x, statement: x, setup: m, systems: [mine], metric: parameters, kind: value, value: 1, tolerance: same}
YAML
run 0 reproduce --ledger sizes.yaml --json
mv out sizes.json
for model in autohete-2b autohete-4b; do
    run 0 maxsize zero_offload --model "$model" --cluster autohete-1gpu --of batch --json
    mv out "$model.json"
done
run 0 maxsize zero_offload --model autohete-2b --cluster autohete-1gpu --batch 8 --json
"$python" - <<'PY' || fail "sizes are not those of maxsize"
import json

rows = {r["id"]: r["values"] for r in json.load(open("sizes.json"))["rows"]}
found = [json.load(open(f"autohete-{n}b.json"))["rows"][0]["scenario"]["batch"] for n in (2, 4)]
assert [v["batch"] for v in rows["t.batch"]] == [v["value"] for v in rows["t.batch"]] == found, (rows, found)
params = json.load(open("out"))["rows"][0]["scenario"]["model"]["params"]
assert rows["t.model"][0]["params"] == rows["t.model"][0]["value"] == params > 2.3e9, (rows, params)
PY

# ---- patterns ----

run 0 reproduce 't.f*' --ledger l.yaml
[ "$(grep -c '^t\.' out)" = 2 ] || fail "the pattern 't.f*' does not pick two rows"
run 0 reproduce sysx.s5.1.no-recompute-oom
refused 2 "reproduce: unknown claim 'autohete.nothing'" reproduce autohete.nothing
refused 2 "reproduce: unexpected word" reproduce a b
refused 2 "reproduce: unknown option '--ledgr'; expected --ledger" reproduce --ledgr x

# ---- ledgers that are wrong in one place: file, line, column and key ----

wrong() { # wrong SED-EXPRESSION PATTERN
    sed "$1" l.yaml >w.yaml
    refused 2 "$2" reproduce --ledger ./w.yaml
}
refused 2 "./none.yaml: .*No such file" reproduce --ledger ./none.yaml
wrong 's/paper: test/papr: test/' "./w.yaml:1:1: key 'papr': .*paper"
wrong 's/relative: 0.1/relative: 10%/' "./w.yaml:3:21: key 'relative': "
wrong 's/relative: 0.1/relative: -1/' "./w.yaml:3:21: key 'relative': "
wrong 's/absolute: 0, //' "./w.yaml:4:3: key 'same': .*'relative' or 'absolute'"
wrong 's/autohete-14b\]/autohete-15b]/' "./w.yaml:14:29: key 'models\[1\]': unknown model"
wrong 's/cluster: autohete-4gpu/cluster: autohete-5gpu/' "./w.yaml:16:42: key 'cluster': unknown cluster"
wrong 's/512\]/0]/' "./w.yaml:15:70: key 'batches\[2\]': "
wrong 's/fails_in: device/fails_in: dsk/' "./w.yaml:[0-9]+:[0-9]+: key 'fails_in': "
wrong 's/versus: theirs/versus: their/' "./w.yaml:[0-9]+:[0-9]+: key 'versus': .*expected 'theirs'"
wrong 's/kind: average/kind: mean/' "./w.yaml:[0-9]+:[0-9]+: key 'kind': "
wrong 's/value: 2,/value: 3,/' "./w.yaml:[0-9]+:[0-9]+: key 'value': '3' is not among the batches"
wrong 's/unchecked: because/uncheckd: because/' "./w.yaml:[0-9]+:[0-9]+: key 'uncheckd': "
wrong 's/, unchecked: because//' "./w.yaml:[0-9]+:[0-9]+: key 't.unchecked': key 'setup' is missing"
wrong 's/cluster: sysx-2node/cluster: sysx-3node/' "./w.yaml:17:[0-9]+: key 'cluster': unknown cluster"
wrong 's/{name: sysx-30b, cluster: sysx-2node}/sysx-30b/' "./w.yaml:17:[0-9]+: key 'models\[1\]': has no cluster"
wrong 's/over: \[models, seq\]/over: [models, sequ]/' "./w.yaml:[0-9]+:[0-9]+: key 'over\[1\]': "
wrong 's/then: {kind: positive, over: models}/then: {kind: positive, over: seq}/' "./w.yaml:[0-9]+:[0-9]+: key 'over': list of the first step"
wrong 's/seq: 512}/seq: 513}/' "./w.yaml:[0-9]+:[0-9]+: key 'seq': '513' is not among the seq of setup 'wide'"
wrong 's/batches_per_node: \[16\]/batches: [16], batches_per_node: [16]/' "./w.yaml:17:[0-9]+: key 'batches_per_node': not allowed"
wrong 's/accumulate: 16/accumulate: 8/' "./w.yaml:18:[0-9]+: key 'accumulate': "
wrong 's/metric: device_peak_share, kind: increment/metric: device_peak_share, kind: bend/; s/24 GiB, //' "./w.yaml:[0-9]+:[0-9]+: key 'kind': memory has 2 entries; expected at least three"
wrong 's/unchecked: because/unchecked: because, reading: another/' "./w.yaml:[0-9]+:[0-9]+: key 'reading': not allowed in a row that is unchecked"
wrong 's/bad: \[5\]/bad: [9]/' "./w.yaml:21:[0-9]+: key 'bad\[0\]': '9' is out of range; expected 1 to 8"
wrong 's/, bad: \[5\]//' "./w.yaml:[0-9]+:[0-9]+: key 'metric': not for this setup; expected a setup with 'bad'"
wrong 's/metric: cpu_time/metric: plan, variable: "v[x]"/' "./w.yaml:[0-9]+:[0-9]+: key 'variable': invalid plan variable 'v\[x\]'"
wrong 's/l\[1\]/l[4]/' "./w.yaml:[0-9]+:[0-9]+: key 'variable': element 4 of l is out of range; the plan has 4 elements"
wrong 's/metric: cpu_time/metric: plan, variable: "v[1]"/' "./w.yaml:[0-9]+:[0-9]+: key 'variable': names an element of v, which is one number"
wrong 's/claims:/claims: []\nx:/' "./w.yaml:"
: >w.yaml
refused 2 "./w.yaml:" reproduce --ledger ./w.yaml
finish

#!/usr/bin/env bash
# The ledgers load, their rows agree with sim and compare, a wrong claim fails nothing, and a bad ledger is one line.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

# ---- the built-in ledgers: table, CSV and JSON are the same ----

run 0 reproduce --out rows.csv
mv out table
run 0 reproduce --json
mv out rows.json
"$python" - <<'PY' || fail "table, CSV and JSON disagree"
import csv, json

d = json.load(open("rows.json"))
rows = list(csv.DictReader(open("rows.csv")))
table = open("table").read()
assert d["commit"] and d["command"] and d["costs"]
assert len(rows) == len(d["rows"]) == sum(d["row_counts"].values()) >= 48
assert d["row_counts"]["broken"] == 0, [r["why"] for r in d["rows"] if r["verdict"] == "broken"]
assert len({r["id"] for r in d["rows"]}) == len(rows)
counted = []
for a, b in zip(d["rows"], rows):
    assert (a["id"], a["verdict"], a["paper"]) == (b["id"], b["verdict"], b["paper"])
    assert a["ours"] == b["ours"] or a["how"].startswith("measured")  # two runs: what is simulated is the same
    assert a["id"] in table
    assert a["verdict"] not in ("not checkable", "not there yet") or a["why"]
    if a["counts_in_mean"]:
        assert abs(a["our_value"] / a["paper_value"] - 1 - a["deviation"]) < 1e-12
        counted.append(abs(a["deviation"]))
assert len(counted) == d["rows_in_mean"] and abs(sum(counted) / len(counted) - d["mean_absolute_deviation"]) < 1e-12
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
setups:
  s: {models: [autohete-2b, autohete-14b], cluster: autohete-1gpu, batches: [8]}
  b: {models: [autohete-2b], cluster: autohete-1gpu, batches: [1, 2, 512]}
  four: {models: [autohete-2b], cluster: autohete-4gpu, batches: [8], micro_batch: 2}
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
  t.unchecked: {where: x, statement: x, unchecked: because}
YAML
run 0 reproduce --ledger l.yaml --json
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
assert rows["t.four"]["verdict"] in ("not there yet", "within"), rows["t.four"]
PY

# ---- patterns ----

run 0 reproduce 't.f*' --ledger l.yaml
[ "$(grep -c '^t\.' out)" = 2 ] || fail "the pattern 't.f*' does not pick two rows"
refused 2 "reproduce: no claim is called 'autohete.nothing'" reproduce autohete.nothing
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
wrong 's/autohete-14b\]/autohete-15b]/' "./w.yaml:10:29: key 'models\[1\]': unknown model"
wrong 's/cluster: autohete-4gpu/cluster: autohete-5gpu/' "./w.yaml:12:42: key 'cluster': unknown cluster"
wrong 's/512\]/0]/' "./w.yaml:11:70: key 'batches\[2\]': "
wrong 's/fails_in: device/fails_in: disk/' "./w.yaml:[0-9]+:[0-9]+: key 'fails_in': "
wrong 's/versus: theirs/versus: their/' "./w.yaml:[0-9]+:[0-9]+: key 'versus': .*expected 'theirs'"
wrong 's/kind: average/kind: mean/' "./w.yaml:[0-9]+:[0-9]+: key 'kind': "
wrong 's/value: 2,/value: 3,/' "./w.yaml:[0-9]+:[0-9]+: key 'value': '3' is not among the batches"
wrong 's/unchecked: because/uncheckd: because/' "./w.yaml:[0-9]+:[0-9]+: key 'uncheckd': "
wrong 's/, unchecked: because//' "./w.yaml:[0-9]+:[0-9]+: key 't.unchecked': lacks the key 'setup'"
wrong 's/claims:/claims: []\nx:/' "./w.yaml:"
: >w.yaml
refused 2 "./w.yaml:" reproduce --ledger ./w.yaml
finish

#!/usr/bin/env bash
# hetbench validate on the tree and on a damaged copy; the scripts whose predictions it reads make a row anew, and go on where they stopped.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

"$hetbench" validate --json >all.json || fail "validate"
"$python" - all.json <<'PY' || fail "the report does not hold together"
import json, sys
root = json.load(open(sys.argv[1]))
sets = {s["name"]: s for s in root["sets"]}
assert set(sets) >= {"sysx", "lohan", "nvme", "vtrain", "mist"}
for s in sets.values():
    assert s["ok"] + s["oom"] + s["other"] == s["rows"] and s["verdicts_right"] <= s["verdicts"]
    of = [r for r in root["residuals"] if r["set"] == s["name"]]
    for part, name in (("fitted", "fitted"), ("left out", "left_out")):
        n = sum(r["part"] == part for r in of)
        assert n == s[name]["n"] + s["memory_" + name]["n"], (s["name"], part)
for r in root["residuals"]:
    assert abs(r["error"] - (r["predicted"] / r["measured"] - 1)) < 1e-12
assert sets["vtrain"]["rows"] == 109 and sets["mist"]["rows"] == 48 and sets["vtrain"]["fitted"]["n"] == 0
worst = [abs(r["error"]) for r in root["residuals"]]
assert worst == sorted(worst, reverse=True)
PY
"$hetbench" validate >all.txt || fail "validate, as text"
grep -q "the largest errors" all.txt || fail "no table of errors"

mkdir -p tree/harness/claims tree/results
cp -r "$root/harness/claims/measured" tree/harness/claims/
cp -r "$root/results/sysx" "$root/results/lohan" "$root/results/validation" tree/results/
chmod -R u+w tree
"$hetbench" validate tree --json >tree.json || fail "validate DIR"
sed -i '3s/,[^,]*$//' tree/results/validation/nvme_zero3.csv
code=0
"$hetbench" validate tree >log 2>&1 || code=$?
[ $code = 2 ] && grep -q 'nvme_zero3.csv:3: has 5 cells; expected 6, as the header$' log || fail "exit $code: $(cat log)"
code=0
"$hetbench" validate nowhere >log 2>&1 || code=$?
[ $code = 2 ] && grep -q 'nowhere/harness/claims/measured/spipe.csv: No such file' log || fail "exit $code: $(cat log)"

# ---- the predictions: a row anew is the committed one, but for the commit; a row that is there is kept ----

anew() { # SCRIPT FILE ONLY COLUMNS-TO-COMPARE
    "$python" "$root/scripts/$1" --hetbench "$hetbench" --out "$2" --only "$3" 2>log || fail "$1: $(cat log)"
    "$python" - "$2" "$root/results/validation/$2" "$4" <<'PY' || fail "$1: other rows than those of the tree"
import csv, sys
new, old = (list(csv.DictReader(open(f))) for f in sys.argv[1:3])
columns = sys.argv[3].split(",")
key = lambda r: tuple(v for k, v in r.items() if k not in columns + ["status", "lanes", "commit", "iteration_s_left_out"])
known = {key(r): r for r in old}
assert new
for r in new:
    assert all(r[c] == known[key(r)][c] for c in columns), (r, known[key(r)])
PY
    sed -i 's/,ok,/,kept,/' "$2"
    "$python" "$root/scripts/$1" --hetbench "$hetbench" --out "$2" --only "$3" 2>log || fail "$1: $(cat log)"
    grep -q ',kept,' "$2" && ! grep -q ',ok,' "$2" || fail "$1 made a row again that was there"
    echo wrong >"$2"
    "$python" "$root/scripts/$1" --hetbench "$hetbench" --out "$2" --only "$3" 2>log && fail "$1 took a file with no rows"
    :
}
anew vtrain-predictions vtrain.csv 64,30,64 iteration_ms
anew mist-predictions mist.csv a10g-2.6b-4st iteration_s,peak_mib

# ---- what a block of Aceso's program keeps, in MiB by hand: X is 20, an array of scores 320 --------------------------

"$python" - "$root/scripts/mist-predictions" <<'PY' || fail "mist-predictions: what a block keeps"
import importlib.machinery, importlib.util, sys
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("mist", sys.argv[1])
mist = importlib.util.module_from_spec(importlib.util.spec_from_loader("mist", loader))
loader.exec_module(mist)
config = {"micro_batch": "1", "seq": "2048", "hidden": "5120", "heads": "40"}
X, S = 20, 320
for operators, segments, mib in [
        ((1, 13), [], 16 * X + 2.5 * S),          # 17 X with the input, and probabilities, dropped-out ones, their mask
        ((1, 13), [(3, 6)], 16 * X),              # queries, keys and values enter; context's output stays for dense
        ((1, 13), [(5, 6)], 16 * X + S),          # probabilities enter
        ((1, 13), [(8, 11)], 12 * X + 2.5 * S),   # dense's output enters; add1's and its mask are the closure's; ln2, gemm1 are not there
        ((1, 13), [(8, 13)], 6 * X + 2.5 * S),    # add2 is inside, so nothing is the closure's: ln1, qkv, context, dense
        ((1, 13), [(2, 13)], X), ((1, 13), [(1, 13)], 0),
        ((1, 9), [], 5 * X + 2.5 * S),            # what crosses, add1, its mask and ln2, is not counted
        ((10, 13), [], 8 * X),                    # nor is it behind; the mask that comes with add1's is taken off
        ((10, 13), [(10, 13)], 0)]:
    kept = mist.kept_of(operators, segments, mist.sizes(config, 1)) / 2**20
    assert kept == mib, (operators, segments, kept, mib)
# one of two parts, of a stage that ends behind gelu before one of another width: 20 + 30 + 400 + 10 + 40 MiB, less the other part's 40 of gelu,
# which crosses, but for a part's own
assert mist.kept_of((1, 11), [], mist.sizes(config, 2), 2) / 2**20 == 20 + 30 + 400 + 10 + 20 + 40 - 40
# outputs of operators as they were published
outputs = {"qkv": ["query", "key", "value"], "attn_dropout": ["attn_dropout", "attn_mask"], "add1": ["add1", "add1_mask"]}
rows = [r for r in mist.rows_of("mist_ops_l4.csv") if r["hidden"] == "5120" and r["micro_batch"] == "1" and r["op"] in mist.OPERATORS and r["tp"] in "12"]
for r in rows:
    size = mist.sizes(config, int(r["tp"]))
    if r["op"] not in ("add2", "gemm2"):
        mib = sum(size[name] for name in outputs.get(r["op"], [r["op"]])) / 2**20
        assert abs(mib - float(r["kept_mib"])) < 0.02, (r, mib)
assert len(rows) == 26
PY
finish

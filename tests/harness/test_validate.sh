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
finish

#!/usr/bin/env bash
# Open measurements: each configuration stays within 5% of both times that were measured, with the catalogue's devices.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
script=$root/scripts/fit-devices

"$python" "$script" --hetbench "$hetbench" --residuals --rows-only --out . >log 2>&1 || fail "$(cat log)"
"$python" - <<'PY' || fail "$(cat log)"
import csv

rows = list(csv.DictReader(open("fit.csv")))
assert len(rows) == 7, len(rows)  # eight rows, two of which are one configuration, with their mean
assert [r["iteration_ms"] for r in rows if r["system"] == "mobius"][0] == "11590"
for r in rows:
    assert abs(float(r["iteration_error"])) <= 0.05 and abs(float(r["gpu_error"])) <= 0.05, r
PY
"$python" "$script" --hetbench "$hetbench" --rows-only >log 2>&1 && fail "a fit to rows only was made"
grep -q "rows-only needs --residuals" log || fail "$(cat log)"
"$python" "$script" --hetbench "$hetbench" --paper lohan --residuals --out lohan >log 2>&1 || fail "$(cat log)"
"$python" - <<'PY' || fail "$(cat log)"
import csv

rows = list(csv.DictReader(open("lohan/fit.csv")))
assert [r["n_gpus"] for r in rows] == ["1"] * 9 + ["2"] * 2, rows
for r in rows:
    assert r["fitted"] == ("yes" if r["n_gpus"] == "1" else "no"), r
    assert abs(float(r["error_full"])) <= 0.05 or r["fitted"] == "no", r
PY
finish

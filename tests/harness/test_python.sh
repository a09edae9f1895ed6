#!/usr/bin/env bash
# python/hetbench.py: commands, rows and frames; pandas is optional.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
cat >use.py <<'PY'
import csv, sys
sys.dont_write_bytecode = True
root, folder = sys.argv[1:]
sys.path.insert(0, f"{root}/python")
import hetbench

one = {"model": "autohete-2b", "cluster": "autohete-1gpu"}
result = hetbench.run("sim", "zero_offload", **one, set={"c": 2})
assert result["schema"] == {"name": "result", "version": 1} and result["plan"]["variables"]["c"] == 2, result["plan"]
assert hetbench.command("sim", "x", set={"m": [4, 2, 1]}, only_nodes=[0, 1], all=True, why=False)[1:] == [
    "sim", "x", "--set", "m=4,2,1", "--only-nodes", "0,1", "--all"]

# Its rows have what the CSV of the same command has, under the same names.
document = hetbench.run("compare", models=["autohete-2b", "autohete-6b"], cluster="autohete-1gpu",
                        systems=["zero_offload", "autohete"], out=folder)
rows = hetbench.rows(document)
for row, cells in zip(rows, hetbench.read(f"{folder}/compare.csv"), strict=True):
    missing = [k for k, v in cells.items() if v is not None and row.get(k) != v]
    assert not missing, [(k, cells[k], row.get(k)) for k in missing]
assert {r["plan_c"] for r in rows} > {0} and rows[0]["samples_per_s"] > 0
assert len(hetbench.read(f"{folder}/compare.json")) == len(rows)

assert {r["name"] for r in hetbench.rows(hetbench.run("list", "systems"))} >= {"autohete", "cephalo"}
claims = hetbench.rows(hetbench.run("reproduce", "sysx.eq3*"))
assert claims and all(c["verdict"] == "within" for c in claims), claims

# What does not fit is an answer, bad input is an error with its line and status.
assert hetbench.run("sim", "in_memory", model="autohete-22b", cluster="autohete-1gpu")["status"] == "oom"
try:
    hetbench.run("sim", "autohet_", **one)
    raise AssertionError("an unknown system is no error")
except hetbench.Error as error:
    assert error.status == 2 and str(error).startswith("unknown system"), error

sys.modules["pandas"] = None
try:
    hetbench.frame("list", "gpus")
    raise AssertionError("a frame without pandas")
except ImportError as error:
    assert "needs pandas" in str(error), error
sys.modules["pandas"] = type(sys)("pandas")
sys.modules["pandas"].DataFrame = list
assert hetbench.frame("list", "gpus") == hetbench.rows(hetbench.run("list", "gpus"))
assert hetbench.frame(f"{folder}/compare.csv") == hetbench.read(f"{folder}/compare.csv")
del sys.modules["pandas"]
try:
    import pandas
except ImportError:
    sys.exit()
frame = hetbench.frame(f"{folder}/compare.csv")
assert list(frame["system"]) == [r["system"] for r in rows] and frame["samples_per_s"].dtype == float
PY
HETBENCH=$hetbench "${HT_PYTHON:-$python}" -B use.py "$root" "$work/out.d" >log 2>&1 || fail "hetbench.py: $(tail -3 log)"

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
grep -q "^version = \"$version\"" "$root/python/pyproject.toml" || fail "pyproject.toml has another version than $version"
grep -q "^__version__ = \"$version\"" "$root/python/hetbench.py" || fail "hetbench.py has another version than $version"
finish

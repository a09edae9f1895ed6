#!/usr/bin/env bash
# Every JSON document names its schema, and every CSV column is in docs/outputs.md with its unit.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
one=(--model autohete-2b --cluster autohete-1gpu)
tiny=(in_memory --model gpt-mini --batch 2 --seq 16 --data "$text" --steps 2)

# is SCHEMA ARGUMENTS..: the command prints a document of this schema, which the page names.
is() {
    local schema=$1
    shift
    run 0 "$@" --json
    [ -s out ] || return 0 # which has been said
    [ "$(json out 'list(d)[0], d["schema"]["name"], d["schema"]["version"]')" = "('schema', '$schema', 1)" ] ||
        fail "$* --json has the schema $(json out 'list(d)[0], d.get("schema")'), not $schema"
    grep -q "^|.*\`$schema\`.*|" "$root/docs/outputs.md" || fail "docs/outputs.md lacks the schema $schema"
}
is result plan zero_offload "${one[@]}"
is result sim zero_offload "${one[@]}"
is result verify zero_offload "${one[@]}"
is result train "${tiny[@]}" --losses losses.csv --events events
is compare compare --models autohete-2b --cluster autohete-1gpu --systems zero_offload,autohete --out .
is maxsize maxsize in_memory --models autohete-2b,autohete-4b --cluster autohete-1gpu --out .
is advice advise --gpus rtx4090:1 --ram 128GB --model gpt2-124m
is reproduction reproduce 'sysx.eq3*' --out claims.csv
is validation validate
is list list gpus
is variables list systems lohan
is file new cluster
day=(--model gpt2-355m --batch 32 --micro-batch 1 --seq 1024 --iterations 3 --warmup 1)
day+=(--draw nodes=4,hours=1,rate=0.5,instance=p3.2xlarge --policies varuna)
is study goodput "${day[@]}" --out day.csv
run 0 goodput "${day[@]}" --write-trace trace.csv
[ "$(json <(head -1 events) 'd["schema"]')" = "{'name': 'event', 'version': 1}" ] || fail "an event is $(head -1 events)"
printf '%s\n' 'name: own' 'cluster: autohete-1gpu' 'models: [autohete-2b]' 'systems: [zero_offload]' >own.yaml
run 0 experiment own.yaml --out own
[ "$(json compare.json 'list(d)[0], d["schema"]["name"]')" = "('schema', 'compare')" ] || fail "compare.json has no schema"

# Columns: those of new files, and those that the repository keeps.
"$python" - "$root" ./*.csv own/results.csv <<'PY' || fail "columns"
import csv, glob, re, sys
root, *files = sys.argv[1:]
page = open(f"{root}/docs/outputs.md", encoding="utf-8").read().split("## Columns")[1]
rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
units = {name: unit.strip() for cells, unit in rows for name in re.findall(r"`([^`]+)`", cells)}
plain = set(re.findall(r"`([^`]+)`", page.split("Without a unit")[1].split("\n\n")[0]))
wrong = [f"{name}: no unit" for name, unit in units.items() if not unit]
wrong += [f"{name}: with and without a unit" for name in plain & set(units)]
seen = set()
for path in files + glob.glob(f"{root}/results/*/results.csv") + glob.glob(f"{root}/results/claims/*.csv") + glob.glob(f"{root}/results/spot-replay/*.csv"):
    with open(path, encoding="utf-8", newline="") as file:
        header = next(csv.reader(file))
    seen |= set(header)
    wrong += [f"{path}: column '{c}' is not in docs/outputs.md" for c in header
              if c not in units and c not in plain and not c.startswith("plan_")]
wrong += [f"no file has column '{c}'" for c in (set(units) | plain) - seen - {"plan_NAME"}]
if len(files) < 7:
    wrong.append(f"only {files} were written")
print(*wrong, sep="\n")
sys.exit(bool(wrong))
PY

# A row's plan variables are columns; --set takes their values, and gives the row again: short vectors, and runs in long ones.
again() {
    local system=$1
    shift
    run 0 compare --systems "$system" --models "$@" --out again
    "$python" - "$hetbench" "$system" "$@" <<'PY' || fail "$system with its row's plan variables"
import csv, json, subprocess, sys
hetbench, system, *scenario = sys.argv[1:]
row = next(csv.DictReader(open("again/compare.csv", encoding="utf-8")))
plan = [f"{k[5:]}={v}" for k, v in row.items() if k.startswith("plan_") and k != "plan_why" and v]
assert len(plan) > 4, plan
forced = [word for variable in plan for word in ("--set", variable)]
got = subprocess.run([hetbench, "sim", system, "--model", *scenario, "--json", *forced], capture_output=True, text=True)
assert got.returncode == 0, got.stderr
seconds = json.loads(got.stdout)["iteration_time_s"]
assert abs(seconds / float(row["iteration_time_s"]) - 1) < 1e-9, (seconds, row["iteration_time_s"])
PY
}
again autohet opt-1.3b --cluster cephalo-a --batch 16 --micro-batch 1 --seq 512
grep -q '"[0-9]*,[0-9]*,' again/compare.csv || fail "no vector in compare.csv: $(cat again/compare.csv)"
again lohan opt-13b --cluster lohan-4090 --batch 16 --micro-batch 16 --seq 1024
grep -q '"1 x 40"' again/compare.csv || fail "no run in compare.csv: $(cat again/compare.csv)"
finish

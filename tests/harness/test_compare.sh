#!/usr/bin/env bash
# A comparison goes on after rows that do not fit, and its files agree with its table and with sim.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

systems=in_memory,in_memory_ckpt,zero_offload,zero_offload_ckpt
run 0 compare --systems "$systems" --models autohete-2b,autohete-22b --cluster autohete-1gpu --out deep/er
[ "$(grep -c ' oom ' out)" -ge 4 ] || fail "the table lacks its oom rows"
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
run 0 sim zero_offload_ckpt --model autohete-2b --cluster autohete-1gpu --json
one=$(json out 'd["iteration_time_s"]')
many=$(json deep/er/compare.json 'd["rows"][3]["iteration_time_s"]')
[ "$one" = "$many" ] || fail "sim says $one, compare $many"
refused 2 "unknown system 'nope'" compare --systems nope --models autohete-2b --cluster autohete-1gpu --out never
[ ! -e never ] || fail "a refused comparison made its directory"
finish

#!/usr/bin/env bash
# The pictures are made from what hetbench writes; without matplotlib the test is skipped.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
"$python" -c 'import matplotlib' 2>/dev/null || exit 77
export MPLCONFIGDIR=$work/mpl

# png FILE: is a picture of more than a few pixels.
png() {
    if [ "$(head -c 4 "$1" | tail -c 3)" != PNG ] || [ "$(wc -c <"$1")" -lt 8000 ]; then
        fail "$1 is no picture"
    fi
}

run 0 sim zero_offload --model gpt-mini --cluster local --batch 4 --micro-batch 2 --trace sim.json
run 0 train zero_offload --model gpt-mini --batch 4 --micro-batch 2 --data "$text" --steps 6 --trace run.json
"$python" "$root/harness/report/timeline.py" --out both.png --capacity 'device 0=4000000' sim.json run.json
png both.png
run 0 compare --models autohete-2b,autohete-4b --cluster autohete-1gpu --out .
"$python" "$root/harness/report/throughput.py" --out bars.png compare.json
png bars.png
"$python" "$root/harness/report/timeline.py" --out none.png out 2>why && fail "a file that is no trace is drawn"
[ "$(wc -l <why)" = 1 ] || fail "a file that is no trace is not refused in one line"

# Plan variables as hetbench prints them.
"$python" - "$root/harness/report" <<'PY' || fail "plan variables of reports"
import sys

sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import results

assert results.variable(3) == "3" and results.variable([0, 0.3, 0.7]) == "0,0.3,0.7"
assert results.variable([4] * 16 + [2] * 48) == "'4 x 16, 2 x 48'"
PY

# Both clocks name the same tracks.
tracks='sorted(e["args"]["name"] for e in d["traceEvents"] if e["name"] == "thread_name")'
[ "$(json sim.json "$tracks")" = "$(json run.json "$tracks")" ] || fail "simulated and real run have other tracks"
finish

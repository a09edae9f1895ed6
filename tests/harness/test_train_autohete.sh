#!/usr/bin/env bash
# AutoHete for real: every plan of a small model in exactly the memory that its safe sequence needs, and the planner's own
# choice under budgets. Losses are in_memory's to the last bit; memory is what the arenas say and within the bound.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

plan=(--model gpt-mini --batch 4 --micro-batch 2)
common=("${plan[@]}" --data "$text")

# same LOSSES ARGUMENTS...: a run's losses against a file of them.
same() {
    local losses=$1
    shift
    run 0 train "$@" --losses other.csv
    cmp -s "$losses" other.csv || fail "$*: losses are not in_memory's"
}

# L = 4: all (c, p, o) with p <= o, each with a device of as many bytes as its safe sequence needs; a seventh under a sanitizer.
run 0 train in_memory "${common[@]}" --steps 5 --device-memory 64MB --losses in_memory.5.csv
for system in autohete autohete_nops; do
    for o in 0 1 2 3 4; do
        for p in $(seq 0 "$o"); do
            for c in 0 1 2 3 4; do
                if [ -n "$sanitized" ] && [ $(((c + 2 * p + 3 * o) % 7)) != 0 ]; then continue; fi
                set=(--set "c=$c" --set "p=$p" --set "o=$o")
                run 0 verify "$system" "${plan[@]}" --cluster local --device-memory 64MB "${set[@]}" --json
                need=$(json out 'd["memory"][0]["safe_sequence_bytes"]')
                same in_memory.5.csv "$system" "${common[@]}" --steps 5 --device-memory "${need}B" "${set[@]}"
            done
        done
    done
done

# Each planner's choice under budgets, 50 steps; with a memory ledger that adds up.
steps=50
if [ -n "$sanitized" ]; then steps=5; fi
run 0 train in_memory "${common[@]}" --steps "$steps" --device-memory 64MB --losses in_memory.csv
for row in "autohete 7MB" "autohete 4MB" "autohete 2.5MB" "autohete_period 4MB"; do
    read -r system budget <<<"$row"
    same in_memory.csv "$system" "${common[@]}" --steps "$steps" --device-memory "$budget"
    run 0 train "$system" "${common[@]}" --steps 5 --device-memory "$budget" --json
    "$python" - "$row" <<'PY' || fail "$row: measured memory"
import json, sys

for m in json.load(open("out"))["memory"]:
    assert m["arena_peak_bytes"] == m["peak_bytes"] <= m["bound_bytes"] <= m["capacity_bytes"], (sys.argv[1], m)
PY
done
refused 3 "" train autohete "${common[@]}" --steps 1 --device-memory 0.5MB
finish

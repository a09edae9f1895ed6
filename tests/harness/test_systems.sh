#!/usr/bin/env bash
# Every system trains a few steps, with one micro-batch and with several: also what ThreadSanitizer looks at.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

run 0 list systems --json
cp out systems.json
for system in $(json systems.json '" ".join(s["name"] for s in d["systems"])'); do
    for micro in 2 1; do
        common=(--model gpt-mini --batch 2 --micro-batch "$micro" --seq 16 --device-memory 64MB)
        run 0 verify "$system" "${common[@]}" --cluster local
        run 0 train "$system" "${common[@]}" --data "$text" --steps 4 --json
        [ "$(json out 'len(d["losses"])')" = 4 ] || fail "$system: no four losses"
    done
done
finish

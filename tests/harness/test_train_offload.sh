#!/usr/bin/env bash
# PatrickStar and StrongHold for real: whatever is moved where, the losses are in_memory's to the last bit, and the memory
# is what the arenas say and within the bound.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

# same SYSTEM BUDGET ARGUMENTS...: 5 steps within the budget, with in_memory's losses at this micro-batch.
same() {
    local system=$1 budget=$2
    shift 2
    run 0 train "$system" "${common[@]}" --device-memory "$budget" --losses other.csv "$@"
    cmp -s in_memory.csv other.csv || fail "$system in $budget, micro-batch $micro, $*: losses are not in_memory's"
}

# The least budgets in steps of 0.1 MB; in_memory needs 9.0, 6.9 and 5.4 MB for micro-batches of 4, 2 and 1.
declare -A least=(
    [patrickstar.4]=8.7 [patrickstar_ckpt.4]=3.8 [stronghold.4]=7.5 [stronghold_ckpt.4]=3.7
    [patrickstar.2]=4.9 [patrickstar_ckpt.2]=2.3 [stronghold.2]=4.6 [stronghold_ckpt.2]=2.8
    [patrickstar.1]=3.0 [patrickstar_ckpt.1]=1.6 [stronghold.1]=3.1 [stronghold_ckpt.1]=2.2)
micro_batches=(4 2 1)
if [ -n "$sanitized" ]; then micro_batches=(1); fi
for micro in "${micro_batches[@]}"; do
    common=(--model gpt-mini --batch 4 --micro-batch "$micro" --data "$text" --steps 5)
    run 0 train in_memory "${common[@]}" --device-memory 64MB --losses in_memory.csv
    for system in patrickstar patrickstar_ckpt stronghold stronghold_ckpt; do
        same "$system" 64MB
        same "$system" 10MB
        same "$system" "${least[$system.$micro]}MB"
        refused 3 "OOM (in $system )?at " train "$system" "${common[@]}" \
            --device-memory "$("$python" -c "print(round(${least[$system.$micro]} - 0.1, 1))")MB"
    done
    # chunks of one unit, of two, of all; states of no, some and all chunks on the device
    for set in "chunk=50112 os=0" "chunk=50112 os=2" "chunk=50112 os=5" "chunk=100096 os=1" "chunk=221000 os=0" \
        "chunk=221000 os=1"; do
        # shellcheck disable=SC2086 # two words
        same patrickstar 64MB --set ${set% *} --set ${set#* }
    done
    for m in 1 2 3 4; do
        same stronghold 64MB --set "m=$m" --set e=0
        same stronghold 64MB --set "m=$m" --set e=1 --set c=2
    done
done

# Host memory is an answer too, before anything runs.
refused 3 "OOM in patrickstar on the host" sim patrickstar --model autohete-22b --cluster autohete-1gpu \
    --micro-batch 1 --set c=29 --set cpu_ratio=70

# The arenas' account: what the semantics counted, and never above the bound of the graph.
for system in patrickstar_ckpt stronghold_ckpt; do
    run 0 train "$system" "${common[@]}" --device-memory 2.5MB --json
    "$python" - "$system" <<'PY' || fail "$system: measured memory"
import json, sys

for m in json.load(open("out"))["memory"]:
    assert m["arena_peak_bytes"] == m["peak_bytes"] <= m["bound_bytes"], (sys.argv[1], m)
PY
done
finish

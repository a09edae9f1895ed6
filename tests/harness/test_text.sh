#!/usr/bin/env bash
# Reports say the same thing in their tables, their error line and their JSON, and say it completely.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

# says PATTERN: the last report has it on one line.
says() {
    grep -Eq -- "$1" "$work/out" || {
        fail "no line of the report matches '$1'"
        head -n 12 "$work/out"
    }
}

cluster() {
    printf 'name: %s\nsource: "made up"\nnodes:\n  - {cpu: epyc-7713, ram: 440 GB, gpus: [%s], pcie: pcie4-x16}\n' "$1" "$2" >"$1.yaml"
}
cluster two '{type: rtx4090, count: 2}'
cluster mixed '{type: a100-40gb, count: 4}, {type: v100-32gb, count: 4}'

# ---- "short by": what is needed minus what there is, in the table, in the line and in JSON ----

big=(--model llama-7b --cluster two.yaml --batch 8)
short_by() { sed -n 's/.*short by \([0-9.]* [kMGT]*B\).*/\1/p' "$work/err"; }
for command in sim plan verify; do
    run 3 "$command" in_memory "${big[@]}"
    says "^  device 0 .* $(short_by) +[0-9.]+ GB"
    [ "$(short_by)" = "92.1 GB" ] || fail "$command: short by '$(short_by)', expected 92.1 GB"
    run 3 "$command" in_memory "${big[@]}" --json
    [ "$(json out '[m["short_bytes"] - (m["safe_sequence_bytes"] - m["capacity_bytes"]) for m in d["memory"]]')" = "[0, 0]" ] ||
        fail "$command: short_bytes is not need minus capacity"
done
run 3 train in_memory --model gpt-tiny --data "$text" --device-memory 5MB --batch 2
says "^  device 0 .* $(short_by) +[0-9.]+ MB"
run 0 sim zero_offload_ckpt "${big[@]}" --json
[ "$(json out '{m["short_bytes"] for m in d["memory"]}')" = "{0}" ] || fail "what fits is short of something"
finish

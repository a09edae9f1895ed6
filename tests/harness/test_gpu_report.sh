#!/usr/bin/env bash
# scripts/gpu-report, as far as a machine without a GPU can tell: what it would do, a rehearsal on the CPU backend, and what
# it says where there is no GPU.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
report=$root/scripts/gpu-report
cd "$work"

"$python" "$report" --dry-run --prebuilt --out dry >out || fail "a dry run ends with $?"
for word in "== kernels" "== parity" "== step" "== profile" "== copies" "== offload" "--backend cuda" "train autohete"; do
    grep -q -e "$word" out || fail "the dry run does not tell of '$word'"
done
[ ! -e dry ] || fail "the dry run wrote something"

# Every part once, with tiny models: all trainings have in_memory's bits, and the files are there and few.
"$python" "$report" --rehearse --bin "$build" --minutes 4 --out done >out 2>&1 || {
    fail "the rehearsal ends with $?"
    tail -n 20 out
}
[ "$(ls done | wc -l)" -le 8 ] || fail "more than eight files: $(ls done)"
for file in README.md report.json parity.csv step.csv offload.csv profile.yaml; do
    [ -s "done/$file" ] || fail "$file is missing"
done
cp done/report.json out
[ "$(json out 'd["parts"]["parity"]["ran"] >= 20 and d["parts"]["parity"]["ran"] == d["parts"]["parity"]["bit_identical"]')" = \
    True ] || fail "not all trainings of the rehearsal have in_memory's losses"
[ "$(json out 'len(d["parts"]["offload"]["speedups"]) >= 1 and d["parts"]["profile"]["works"] > 10')" = True ] ||
    fail "the rehearsal has no speedup or no profile"
grep -q "say nothing about a GPU" done/README.md || fail "a rehearsal reads like a measurement"

if ! command -v nvidia-smi >/dev/null; then
    status=0
    "$python" "$report" --bin "$build" --out none 2>err || status=$?
    [ "$status" = 3 ] || fail "without a GPU: status $status, expected 3"
    grep -q "no GPU" err || fail "without a GPU: no line says so"
fi

for backend in train profile; do
    words=()
    [ $backend = profile ] || words=(in_memory --data "$text")
    status=0
    "$hetbench" $backend "${words[@]}" --model gpt-tiny --backend cuda >out 2>err || status=$?
    [ "$status" = 0 ] || [ "$status" = 3 ] || fail "$backend --backend cuda: status $status"
    [ "$status" = 0 ] || [ "$(wc -l <err)" = 1 ] || fail "$backend --backend cuda says more than a line: $(cat err)"
done
finish

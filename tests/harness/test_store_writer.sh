#!/usr/bin/env bash
# The thread that writes saves behind the training: several in a row, over all stores, at a pace, ended by Ctrl-C and by a disk that
# fails. It is also what ThreadSanitizer looks at.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
train=(train in_memory --model gpt-mini --batch 2 --seq 16 --micro-batch 1 --data "$text" --every 1)

run 0 train in_memory --model gpt-mini --batch 2 --seq 16 --micro-batch 1 --data "$text" --steps 8 --losses whole.csv
run 0 "${train[@]}" --steps 8 --losses saved.csv --store disk --store-memory memory --store-remote remote --json
cmp -s whole.csv saved.csv || fail "saving changes the losses"
[ "$(json out '(lambda s: (s["saved"], s["safe_step"], s["oldest_s"] > 0))(d["training"]["stores"])')" = "(8, 8, True)" ] ||
    fail "stores: $(json out 'd["training"]["stores"]')"

# A pace that the remote store cannot keep up with: Ctrl-C ends the copy and the training, and what was whole is.
"$hetbench" "${train[@]}" --steps 100000 --store slow --store-memory slow-memory --store-remote slow-remote --store-remote-rate 4MB/s \
    >out 2>err &
pid=$!
for ((k = 0; k < 3000; k++)); do
    sleep 0.1
    [ -z "$(find slow/node-0000 -name rank-0000.json 2>/dev/null)" ] || break
done
kill -INT "$pid"
status=0
wait "$pid" || status=$?
[ "$status" = 130 ] || fail "Ctrl-C while a save is written: status $status: $(cat err)"
run 0 list stores slow slow-memory --check --json
[ "$(json out 'any(v["whole"] for v in d["versions"])')" = True ] || fail "after Ctrl-C: $(cat out)"

# The writer's failure is the next save's: one line, and the saves before it stay.
"$hetbench" "${train[@]}" --steps 100000 --store failing --store-memory failing-memory --store-remote failing-remote \
    --store-remote-rate 4MB/s >out 2>err &
pid=$!
for ((k = 0; k < 3000; k++)); do
    sleep 0.1
    [ -z "$(find failing/node-0000 -name rank-0000.json 2>/dev/null)" ] || break
done
rm -rf failing-remote
touch failing-remote
status=0
wait "$pid" || status=$?
[ "$status" = 1 ] && [ "$(grep -c '^hetbench:' err)" = 1 ] && grep -q "failing-remote" err || fail "a remote store that went away: status $status: $(cat err)"
run 0 list stores failing failing-memory --check --json
[ "$(json out 'any(v["whole"] for v in d["versions"])')" = True ] || fail "after a failed copy: $(cat out)"
finish

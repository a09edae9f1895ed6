#!/usr/bin/env bash
# README's scoreboard and answers are those of the results in the tree and of hetbench; with HT_FULL=1 the slow answer as well.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
quick=(--quick)
[ "${HT_FULL:-0}" = 0 ] || quick=()
mkdir -p tree/scripts tree/results
cp "$root/scripts/scoreboard" tree/scripts/
cp "$root/README.md" tree/
cp -r "$root/results/"{claims,sysx,lohan,validation,verdicts.csv} tree/results/
mkdir -p tree/harness/claims
cp -r "$root/harness/claims/measured" tree/harness/claims/
chmod -R u+w tree
board=("$python" -B tree/scripts/scoreboard --hetbench "$hetbench" "${quick[@]}")
"${board[@]}" --check || fail "README is stale"

# A verdict that changes makes it stale; written anew it is another README, and no longer stale.
sed -i '0,/"within"/s//"outside"/' tree/results/claims/sysx.csv
"${board[@]}" --check 2>why && fail "a changed verdict is not seen"
grep -q "^README.md is stale: scoreboard;" why || fail "$(cat why)"
"${board[@]}" && "${board[@]}" --check || fail "written anew, README is stale"
cmp -s tree/README.md "$root/README.md" && fail "nothing was written"
sed -i '/<!-- scoreboard -->/d' tree/README.md
"${board[@]}" --check 2>why && fail "a README without the block is taken"
grep -q "no block 'scoreboard'" why || fail "$(cat why)"
finish

#!/usr/bin/env bash
# docs/write-your-own-system.md: its commands run as they stand there, and its code is what the file has.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$root"

page=docs/write-your-own-system.md
n=0
while read -r _ words; do
    # shellcheck disable=SC2086 # words of a command
    run 0 $words
    n=$((n + 1))
done < <(grep '^    build/hetbench ' "$page")
[ "$n" -ge 4 ] || fail "$page has $n commands"

[ "$(wc -l <examples/stream.c)" -lt 150 ] || fail "examples/stream.c is no longer small"
for line in 'ht_draft_place_states(g, u, HT_HOST);' 'ht_draft_forward(g, u, j, HT_ALL_SUB_OPS);' \
    'if (!is_streamed(g, u)) ht_draft_place(g, g->param[u], HT_DEVICE);'; do
    for file in "$page" examples/stream.c; do
        grep -qF "$line" "$file" || fail "'$line' is not in $file"
    done
done
finish

#!/usr/bin/env bash
# docs/write-your-own-system.md: its commands run as they stand there, its code is what the files have, its policies come out as it says.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"

page=$root/docs/write-your-own-system.md
[ "$(wc -l <"$root/examples/stream.c")" -lt 150 ] || fail "examples/stream.c is no longer small"
[ "$(wc -l <"$root/examples/by_speed.c")" -lt 150 ] || fail "examples/by_speed.c is no longer small"
# in_both FILE LINE..: the page and the file have each line.
in_both() {
    local file=$root/$1 line
    shift
    for line in "$@"; do
        for each in "$page" "$file"; do grep -qF "$line" "$each" || fail "'$line' is not in $each"; done
    done
}
in_both examples/stream.c 'ht_draft_place_states(g, u, HT_HOST);' 'ht_draft_forward(g, u, j, HT_ALL_SUB_OPS);' \
    'if (!is_streamed(g, u)) ht_draft_place(g, g->param[u], HT_DEVICE);'
in_both examples/by_speed.c 'int64_t ns = ht_query_pass(&q, HT_OP_FORWARD, 1) + ht_query_pass(&q, HT_OP_BACKWARD, 1);' \
    'if ((l[r] + 1) * ns[r] < (l[first] + 1) * ns[first]) first = r;'

cd "$work"
ln -s "$root/tests" tests
n=0
while read -r _ words; do
    # shellcheck disable=SC2086 # words of a command
    run 0 $words
    n=$((n + 1))
done < <(grep -E '^ {4,6}build/hetbench ' "$page")
[ "$n" -ge 8 ] || fail "$page has $n commands"

# The page's Python, but what needs pandas.
sed -n '/^```python$/,/^```$/p' "$page" | grep -v '^```' | grep -vE '^(rows =|print\(rows)' >policy.py
PYTHONPATH=$root/python HETBENCH=$hetbench "$python" -B policy.py >policies 2>&1 || fail "its Python: $(tail -2 policies)"
[ "$(cut -d' ' -f1-2 policies | head -1)" = "even ok" ] || fail "an even plan: $(cat policies)"
grep -q "^by speed oom " policies || fail "by speed alone: $(cat policies)"
"$python" - mixed/compare.csv policies <<'PY' || fail "the rows of mixed GPUs"
import csv, re, sys
rate = lambda name: float(re.search(rf"^{name} ok ([0-9.]+)", open(sys.argv[2]).read(), re.M)[1])
assert rate("states to the slow") > 1.5 * rate("even"), (rate("states to the slow"), rate("even"))
rows = {r["system"]: r for r in csv.DictReader(open(sys.argv[1], encoding="utf-8"))}
own = rows["example_by_speed"]
slow0, slow1, fast0, fast1 = map(int, own["plan_l"].split(","))
assert slow0 == slow1 < fast0 == fast1, own["plan_l"]
assert float(own["samples_per_s"]) > float(rows["fsdp"]["samples_per_s"]), "it is no faster than FSDP"
assert float(own["samples_per_s"]) < float(rows["cephalo_cb"]["samples_per_s"]), "it is faster than Cephalo's balance"
PY
finish

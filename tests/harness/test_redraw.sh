#!/usr/bin/env bash
# The pictures in the tree are those of their data and of the code that draws them (scripts/redraw).
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
mkdir -p tree/docs
cp -r "$root/"{scripts,harness,python,results,README.md} tree/
cp -r "$root/docs/images" tree/docs/
chmod -R u+w tree
redraw=("$python" -B tree/scripts/redraw --build none)
"${redraw[@]}" --check || fail "pictures are stale"

# Data, code and claims are noticed, each in its own pictures; comments are not.
sed -i '2s/"ok",[0-9.]*/"ok",1000/' tree/results/autohete-fig4/results.csv
echo '# a comment' >>tree/harness/report/groups.py
echo 'MORE = 1' >>tree/harness/report/published.py
cp tree/docs/images/timeline.png tree/results/figures/nobody.png
"${redraw[@]}" --check 2>why && fail "stale pictures are not seen"
grep -q "^results/figures/bound-autohete-fig4.png: other data$" why || fail "data: $(cat why)"
grep -q "^results/figures/paper-autohete-fig5.png: other code$" why || fail "code: $(cat why)"
grep -q "^results/figures/nobody.png: of nothing in results$" why || fail "owner: $(cat why)"
grep -q "fig3a.png: other data\|plan-autohet" why && fail "too many: $(cat why)"

# Another code's pictures can be kept, other data's cannot.
"${redraw[@]}" --keep 2>/dev/null || true
"${redraw[@]}" --check 2>why && fail "pictures of other data are kept"
grep -q "^results/figures/bound-autohete-fig4.png: other data$" why && ! grep -q "paper-" why || fail "kept: $(cat why)"

# Drawn anew a picture is no longer stale, and one without hashes is.
"${redraw[@]}" cephalo-fig12 2>/dev/null | grep -q "^cephalo-fig12: 1 drawn$" || fail "nothing is drawn"
"${redraw[@]}" --check cephalo-fig12 2>why && fail "the index is stale by now"
grep -q "latency.png" why && fail "drawn anew, it is stale: $(cat why)"
"$python" - tree/docs/images/sysx-fig2-8.png <<'PY'
import re, sys
data = open(sys.argv[1], "rb").read()
open(sys.argv[1], "wb").write(data.replace(b"hetbench\0code", b"hotbench\0code"))
PY
"${redraw[@]}" --check sysx-fig2-8 2>why && fail "a picture without hashes passes"
grep -q "sysx-fig2-8.png: no hashes in it" why || fail "$(cat why)"
"${redraw[@]}" nothing 2>why && fail "unknown names pass"
grep -q "no pictures of 'nothing'" why || fail "$(cat why)"
finish

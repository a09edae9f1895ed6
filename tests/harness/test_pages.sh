#!/usr/bin/env bash
# The pages read well on a telephone and on a desk: quickstart's, a report, and the index of results. Skipped without matplotlib or chromium.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
# shellcheck source=tests/harness/browser.sh
. "$(dirname "$0")/browser.sh"
cd "$work"
export MPLCONFIGDIR=$work/mpl
"$python" -c 'import matplotlib' 2>/dev/null || exit 77

# Quickstart's page, of small runs in place of its own.
mkdir quick
one=(--model gpt-tiny --batch 2 --micro-batch 1)
run 0 compare --systems zero_offload,in_memory --models autohete-2b,autohete-22b --cluster autohete-1gpu --batch 8 --out quick
cp out quick/compare.txt
"$python" "$root/harness/report/throughput.py" --out quick/throughput.png quick/compare.json
run 3 train in_memory "${one[@]}" --data "$text" --device-memory 12MB
cat out err >quick/train_refused.txt
run 0 train zero_offload "${one[@]}" --data "$text" --device-memory 12MB --steps 3 --losses losses.csv
cp out quick/train_zero_offload.txt
{
    echo "step  in_memory (64MB)       zero_offload (12MB)    same bits"
    awk -F, 'NR > 1 { printf "%4d  %-21s  %-21s  yes\n", $1, $2, $2 }' losses.csv
    echo "All 3 losses are equal to the last bit (measured)."
} >quick/losses.txt
"$python" -B "$root/harness/report/index.py" quick || fail "index.py"
grep -q 'class="warn">OOM at ' quick/index.html || fail "quickstart's page does not say what does not fit"
grep -q "<th>same bits</th>.*<td class=\"good\">yes</td>" quick/index.html || fail "quickstart's page has no table of losses"

# A report of an experiment's results.
mkdir -p some/figures
cp -r "$root/results/autohete-fig7" "$root/results/autohet-fig10" some
run 0 report some

# Nothing is wider than the page, unless it can be scrolled; no letters are small; pictures have a size at which they can be read; a long
# text in a fixed pitch is folded.
cat >probe.js <<'JS'
const every = [...document.querySelectorAll("body *")], fits = e => e.getBoundingClientRect().right <= innerWidth + 1;
const written = e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()) && !e.closest("script, style");
const say = [innerWidth, document.documentElement.scrollWidth <= innerWidth, every.filter(e => !fits(e) && !e.closest(".scroll, figure")).length,
    every.filter(e => written(e) && parseFloat(getComputedStyle(e).fontSize) < 11).length,
    [...document.querySelectorAll("figure img")].filter(e => e.getBoundingClientRect().width < Math.min(e.naturalWidth, 780)).length,
    [...document.querySelectorAll("pre")].filter(e => !e.closest("details")).length, document.querySelectorAll("h2").length > 0];
JS
for page in quick/index.html some/report.html "$root/results/index.html"; do
    for width in 420 1280; do
        status=0
        said=$(in_browser "$width" "$page" <probe.js) || status=$?
        [ "$status" != 77 ] || exit 77
        [ "$said" = "$width true 0 0 0 0 true" ] || fail "$page at $width pixels: '$said', expected '$width true 0 0 0 0 true'"
    done
done
finish

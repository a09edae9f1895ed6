#!/usr/bin/env bash
# --plot draws reports as SVG, PNG and pages; what cannot be drawn is one line before anything runs. Without matplotlib the pictures are skipped.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
# shellcheck source=tests/harness/browser.sh
. "$(dirname "$0")/browser.sh"
cd "$work"
export MPLCONFIGDIR=$work/mpl
one=(--model gpt-mini --cluster local --batch 4 --micro-batch 2)

# ---- the interactive timeline, which needs no matplotlib: its data are the trace's ----

run 0 sim zero_offload "${one[@]}" --trace t.json --plot t.html
"$python" -B - "$root/harness/report" <<'PY' || fail "the page is not the trace"
import json, re, sys

sys.path.insert(0, sys.argv[1])
import traces

page, trace = open("t.html").read(), traces.Trace("t.json")
data = json.loads(re.search(r"<script>const data = (.*);\n", page)[1].replace("<\\/", "</"))
k = trace.steady()
own = [o for o in data["ops"] if o[5]]
want = [o for o in trace.ops if o.iteration == k and o.duration]
assert len(own) == len(want) and {o[4] for o in own} == {o.name for o in want}
assert {o[7] for o in own} == {o.bytes for o in want} and any(o[7] for o in own)
# The critical path: without gaps its ops fill the iteration; each begins when its cause has ended.
path = [o for o in data["ops"] if o[6]]
assert path and sum(o[2] for o in path) <= data["length"] * 1.5
for o in data["ops"]:
    if o[8] >= 0:
        cause = data["ops"][o[8]]
        assert cause[1] + cause[2] <= o[1] + 2e-9, (o, cause)
begin, end = data["begin"], data["begin"] + data["length"]
covered = sum(min(o[1] + o[2], end) - max(o[1], begin) for o in path)
assert 0.5 * data["length"] < covered <= data["length"] + 1e-6, (covered, data["length"])
assert not re.search(r'(src|href)="http|@import|url\(http', page), "the page loads something"
assert {s["name"] for s in data["spaces"]} == set(trace.memory)
PY

# A browser, where there is one: it draws every lane, zooms, and says what an op waited for.
if [ -z "$sanitized" ]; then
    cat >probe.js <<'JS'
const say = [innerWidth, document.querySelectorAll("#timeline rect[data-op]").length > 3, document.documentElement.scrollWidth <= innerWidth];
zoom(0.25, data.begin + data.length / 2); say.push(to - from < 0.3 * data.length);
const at = data.ops.findIndex(o => o[5] && o[8] >= 0); say.push(opText(at).includes("waited for"), chain(at).length > 1);
reset(); say.push(Math.abs(to - from - data.length) < 1e-9);
JS
    for width in 420 1280; do
        said=$(in_browser "$width" t.html <probe.js) || { echo "no chromium, or it does not start here"; break; }
        [ "$said" = "$width true true true true true true" ] || fail "the page at $width pixels: '$said'"
    done
fi

# A link stays, and its target is replaced, with its mode.
mkdir real
echo old >real/page.html
chmod 640 real/page.html
ln -s real/page.html link.html
run 0 sim zero_offload "${one[@]}" --plot link.html
[ -L link.html ] && grep -q "<script>const data" real/page.html || fail "a link has been replaced"
[ "$(stat -c %a real/page.html)" = 640 ] && [ "$(ls real)" = page.html ] || fail "behind a link: $(ls -l real)"

# ---- what cannot be drawn ----

refused 2 "plot.py: x.pdf: expected a name that ends in .svg, .png or .html" sim zero_offload "${one[@]}" --plot x.pdf
refused 2 "none/x.svg: cannot be written: No such file or directory" train zero_offload "${one[@]}" --data "$text" --plot none/x.svg
ln -s /dev/null null.svg
refused 2 "null.svg: cannot be written: not a plain file" sim zero_offload "${one[@]}" --plot null.svg
refused 2 "none/x.svg: cannot be written: No such file or directory" sim zero_offload "${one[@]}" --draw none/x.svg
refused 2 "--plot: x.html is what --trace writes, too" sim zero_offload "${one[@]}" --trace x.html --plot x.html
mkdir -p without
echo 'raise ImportError("none here")' >without/matplotlib.py
PYTHONPATH=$work/without refused 2 "plot.py: draws with matplotlib, which this Python cannot import" compare --models gpt-mini --cluster local --plot x.svg
PYTHONPATH=$work/without run 0 sim zero_offload "${one[@]}" --plot y.html

# A disk that is full, in a mount of its own where the machine allows that: a failure, and no part of a file is left.
mkdir disk
full() { # FILE ARGUMENTS..
    local status=0
    unshare -rm bash -c 'mount -t tmpfs -o size=8k disk disk || exit 77; "$@" >out 2>err; status=$?; ls -A disk >left; exit $status' - \
        "$hetbench" "${@:2}" "disk/$1" 2>why || status=$?
    if [ "$status" = 77 ] || grep -q "^unshare:" why; then
        echo "skipped: a full disk: $(cat why)"
    elif [ "$status" != 1 ] || [ "$(cat err)" != "hetbench: ${script:-plot.py}: disk/$1: cannot be written: No space left on device" ] || [ -s left ]; then
        fail "a full disk: status $status: $(cat err left)"
    fi
}
full x.html sim zero_offload "${one[@]}" --plot

# ---- pictures ----

"$python" -c 'import matplotlib' 2>/dev/null || finish
is() { # FILE START: is a picture of that kind
    if [ "$(head -c ${#2} "$1")" != "$2" ] || [ "$(wc -c <"$1")" -lt 5000 ]; then fail "$1 is no picture"; fi
}
run 0 sim zero_offload "${one[@]}" --plot sim.svg
is sim.svg '<?xml'
full x.svg sim zero_offload "${one[@]}" --plot
full x.png sim zero_offload "${one[@]}" --plot
for word in "computes nothing" "gradients copied" "busy" "gpt-mini" "cluster local" "simulated at"; do
    grep -q "$word" sim.svg || fail "the timeline does not say '$word'"
done
cp sim.svg again.svg
run 0 sim zero_offload "${one[@]}" --plot sim.svg
diff <(grep -v hetbench sim.svg) <(grep -v hetbench again.svg) >/dev/null || fail "drawn again, the picture is another"
run 0 sim dapple --model gpt-mini --cluster local --ranks 2 --batch 4 --micro-batch 1 --plot pipe.svg
grep -q "bubble ratio" pipe.svg && grep -q "GPU 1" pipe.svg || fail "a pipeline is not drawn as one"
run 0 train zero_offload "${one[@]}" --data "$text" --steps 3 --plot train.html
grep -q '"tag">measured<' train.html || fail "a training's page does not say that it is measured"
run 3 plan in_memory "${one[@]}" --device-memory 1MB --plot plan.svg
grep -q "short by" plan.svg || fail "the plan's picture does not say what is short"
run 0 compare --systems in_memory,zero_offload --models autohete-2b,autohete-8b --cluster autohete-1gpu --plot compare.html
grep -q "<svg" compare.html && grep -q "in_memory: OOM" compare.html || fail "the comparison's page lacks who does not fit"
run 0 advise --model gpt2-124m --gpus rtx4090:1 --ram 64GB --systems in_memory,zero_offload --plot advise.png
is advise.png "$(printf '\211PNG')"
finish

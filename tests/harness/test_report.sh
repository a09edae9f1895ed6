#!/usr/bin/env bash
# The pictures are made from what hetbench writes; without matplotlib the test is skipped.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
"$python" -c 'import matplotlib' 2>/dev/null || exit 77
export MPLCONFIGDIR=$work/mpl

# png FILE: is a picture of more than a few pixels.
png() {
    if [ "$(head -c 4 "$1" | tail -c 3)" != PNG ] || [ "$(wc -c <"$1")" -lt 8000 ]; then
        fail "$1 is no picture"
    fi
}

run 0 sim zero_offload --model gpt-mini --cluster local --batch 4 --micro-batch 2 --trace sim.json
run 0 train zero_offload --model gpt-mini --batch 4 --micro-batch 2 --data "$text" --steps 6 --trace run.json
"$python" "$root/harness/report/timeline.py" --out both.png --capacity 'device 0=4000000' sim.json run.json
png both.png
run 0 compare --models autohete-2b,autohete-4b --cluster autohete-1gpu --out .
"$python" "$root/harness/report/throughput.py" --out bars.png compare.json
png bars.png
"$python" "$root/harness/report/timeline.py" --out none.png out 2>why && fail "a file that is no trace is drawn"
[ "$(wc -l <why)" = 1 ] || fail "a file that is no trace is not refused in one line"

# report draws a comparison, and what a clone of the repository has of results: CSV, beside figures that stay.
run 0 report . --out compared
grep -q "autohete-4b" compared/report.html || fail "the page of a comparison lacks a model"
png compared/figures/throughput-compare.png
mkdir -p clone/figures
cp -r "$root/results/autohete-fig7" "$root/results/lohan-fig2a" clone
cp bars.png clone/figures/throughput-lohan-fig2a.png
run 0 report clone
grep -q "Largest trainable model" clone/report.html && grep -q "<th>billion parameters</th>" clone/report.html || fail "the page of sizes has no sizes"
cmp -s bars.png clone/figures/throughput-lohan-fig2a.png || fail "a figure that needs results.json was drawn without it"
png clone/figures/throughput-autohete-fig7.png

# Beside results.csv the pictures of a clone stay as they are, with the hashes in them, of plans all.
mkdir -p tree/figures
cp -r "$root/results/autohet-fig7-gpt" "$root/results/claims" tree
cp "$root"/results/figures/*-autohet-fig7-gpt*.png tree/figures
rm -f tree/*/results.json
(cd tree/figures && sha256sum ./*.png) >before
grep -q plan-autohet-fig7-gpt-5 before && grep -q paper- before || fail "no pictures to keep"
run 0 report tree
(cd tree/figures && sha256sum ./*.png) | cmp -s - before || fail "the page of a clone changes its pictures"

# results.csv alone is drawn as results.json is: the same figure along the same list, of a list with an order and of one without, and
# as the file says rather than by default.
own() { printf 'name: %s\ncluster: autohete-1gpu\nmodels: [%s]\nbatches: [%s]\nsystems: [zero_offload, autohete]\n' "$@" >"$1.yaml"; }
own ordered autohete-2b "8, 16, 32"
own unordered "autohete-2b, autohete-4b" 8
own told autohete-2b "4, 8, 16"
printf '%s\n' 'micro_batches: [1, 2]' 'along: micro_batches' 'figure: bars' >>told.yaml
for name in ordered unordered told; do
    run 0 experiment "$name.yaml" --out "$name"
done
"$python" -B - "$root/harness/report" <<'PY' || fail "results.csv is drawn unlike results.json"
import pathlib, sys

sys.path.insert(0, sys.argv[1])
import results

for name, figure, has_order, n in (("ordered", "lines", True, 1), ("unordered", "lines", False, 1), ("told", "bars", True, 3)):
    whole, rows = (results.Experiment(pathlib.Path(name) / f"results.{ending}") for ending in ("json", "csv"))
    for e in (whole, rows):
        assert (e.figure, e.ordered(), len(e.panels())) == (figure, has_order, n), (name, e.figure, e.along, e.panels())
    assert whole.along == rows.along and whole.panels() == rows.panels(), (name, rows.along, rows.panels())
    assert [whole.tick(p) for p in whole.places()] == [rows.tick(p) for p in rows.places()]
    assert {k: r["tflops_per_gpu"] for k, r in whole.chosen.items()} == {k: r["tflops_per_gpu"] for k, r in rows.chosen.items()}
PY

mkdir pies cores
sed 's/"bars"/"pies"/' told/results.csv >pies/results.csv
sed 's/"micro_batches"/"cores"/' told/results.csv >cores/results.csv
refused 2 "pies: figure is 'pies'; expected one of lines, " report pies
refused 2 "cores/results.csv: not a results file that hetbench experiment wrote: along is 'cores'; expected one of models, " report cores

# A picture of more than 256 colours keeps those of its bars to the bit; a legend breaks into rows that are no wider than asked, in order.
"$python" -B - "$root/harness/report" <<'PY' || fail "colours or legends"
import sys

sys.path.insert(0, sys.argv[1])
import look
import matplotlib.pyplot as plt
from matplotlib.patches import Patch
try:
    from PIL import Image
except ImportError:
    Image = None

figure, axes = plt.subplots(1, 2)
axes[0].imshow([[x * y for x in range(30)] for y in range(30)], cmap="viridis")
axes[1].bar(range(3), [1, 2, 3], color=look.SERIES_COLOURS[:3])
look.write(figure, "shades.png")
if Image:
    # Drawn again with the same pixels, a picture keeps what is noted in it.
    from PIL.PngImagePlugin import PngInfo

    def bars(height):
        figure, ax = plt.subplots()
        ax.bar(range(2), [1, height])
        look.write(figure, "bars.png")

    bars(2)
    note = PngInfo()
    note.add_text("hetbench", "noted")
    Image.open("bars.png").save("bars.png", pnginfo=note)
    for height, noted in ((2, "noted"), (3, None)):
        bars(height)
        assert Image.open("bars.png").info.get("hetbench") == noted, height
    found = {c for _, c in Image.open("shades.png").convert("RGB").getcolors(1 << 24)}
    assert len(found) == 256, len(found)
    for colour in look.SERIES_COLOURS[:3]:
        assert tuple(int(colour[i:i + 2], 16) for i in (1, 3, 5)) in found, colour

# Five letters take 0.5 + 5 x 0.078 = 0.89 inches: two fit 2 inches, and one that is too wide stands alone.
names = ["alpha", "gamma", "delta", "x" * 40, "omega"]
rows = look.rows_of([Patch(label=n) for n in names], 9.5, 2)
assert [[h.get_label() for h in row] for row in rows] == [names[:2], names[2:3], names[3:4], names[4:]], rows
PY

# What does not fit is marked with the system that does not.
"$python" -B - "$root/harness/report" "$root/results/sysx-fig10/results.csv" <<'PY' || fail "OOM stands at another system"
import pathlib, sys

sys.path.insert(0, sys.argv[1])
import bars, results

e, marks = results.Experiment(pathlib.Path(sys.argv[2])), []
for row in e.rows:
    row.raw["passes_s"] = row.ok and row["iteration_time_s"] / 2
bars.missing = lambda ax, x, y, row, name=None, colour=None: marks.append((name, row.series))
bars.speedups(e, "marks.png")
pairs = [(e.chosen["SysX", p].ok, e.chosen["Mobius", p].ok) for p in e.places()]
for name, (sysx, mobius) in {"Mobius": (True, False), "SysX": (False, True), "both": (False, False)}.items():
    assert sum(n == name for n, _ in marks) == 3 * pairs.count((sysx, mobius)), (name, marks)
assert pairs.count((True, False)) and all(series == ("Mobius" if n == "Mobius" else "SysX") for n, series in marks)
PY

# Names of ticks that would run into each other stand aslant; lines count by the longest. A table takes the place of too many bars.
"$python" -B - "$root/harness/report" "$root/results/cephalo-variants/results.csv" <<'PY' || fail "names of ticks, or gains"
import pathlib, sys

sys.path.insert(0, sys.argv[1])
import look, plans, results
import matplotlib.pyplot as plt

for names, slant in ((["a100"] * 4, 0), (["two\nlines"] * 6, 0), (["gpt-6.7b, cephalo-b-25g"] * 6, 25)):
    figure, ax = plt.subplots(figsize=(5, 3))
    look.name_ticks(ax, range(len(names)), names)
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {slant}, names
e, cells = results.Experiment(pathlib.Path(sys.argv[2])), []
for row in e.rows:
    row.raw["memory"] = [{"tier": "device", "peak_bytes": row["device_peak_bytes"]}]
plans.cell = lambda ax, y, x, colour, text: cells.append((y, x, text))
plans.gains(e, "gains.png")
n = len(e.series) - 1
assert len(cells) == 2 * n * len(e.places())
for y, x, text in cells[:n * len(e.places())]:
    ours, theirs = (e.chosen[s, e.places()[x]] for s in (e.series[y], e.series[-1]))
    want = f"{100 * (ours['samples_per_s'] / theirs['samples_per_s'] - 1):+.0f}" if ours.ok and theirs.ok else "fits" if ours.ok else "\u2013"
    assert text == {"+0": "0", "-0": "0"}.get(want, want), (y, x, text, want)
PY

# The programs run as the docs say; -h is help, and a Python without matplotlib is one line.
mkdir -p without
echo 'raise ImportError("none here")' >without/matplotlib.py
for script in timeline throughput pipeline report index; do
    for path in "" "$work/without"; do
        PYTHONPATH=$path "$python" -B "$root/harness/report/$script.py" -h >out 2>err || fail "$script.py -h: $(cat err)"
        [ -s out ] || fail "$script.py -h says nothing"
    done
    [ -x "$root/harness/report/$script.py" ] || fail "$script.py is not executable"
done
for script in timeline throughput pipeline; do
    status=0
    PYTHONPATH=$work/without "$python" -B "$root/harness/report/$script.py" --out x.png sim.json 2>err || status=$?
    [ "$status, $(wc -l <err)" = "2, 1" ] && grep -q "^$script.py: draws with matplotlib" err || fail "$script.py without matplotlib: $status, $(cat err)"
done

# Plan variables as hetbench prints them.
"$python" - "$root/harness/report" <<'PY' || fail "plan variables of reports"
import sys

sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import results

assert results.variable(3) == "3" and results.variable([0, 0.3, 0.7]) == "0,0.3,0.7"
assert results.variable([4] * 16 + [2] * 48) == "'4 x 16, 2 x 48'"
PY

# Both clocks name the same tracks.
tracks='sorted(e["args"]["name"] for e in d["traceEvents"] if e["name"] == "thread_name")'
[ "$(json sim.json "$tracks")" = "$(json run.json "$tracks")" ] || fail "simulated and real run have other tracks"
finish

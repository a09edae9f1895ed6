#!/usr/bin/env python3
"""Draws figures and writes one self-contained HTML page from the results of experiments; `hetbench report` runs it.

    report.py [--out DIR] [--json] DIR

DIR holds a results.json or results.csv of `hetbench experiment`, a compare.json of `hetbench compare --out`, or folders with one each. Writes report.html and figures/*.png.
An error is one line on standard error; the exit status is 2 for bad input, 3 if matplotlib is missing.
"""

import argparse
import csv
import html
import json
import os
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from traces import shown
from writing import status_of


def stop(code, text):
    print(shown(text), file=sys.stderr)
    sys.exit(code)


try:
    import figures
except ImportError as why:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        sys.exit(0)
    stop(3, f"report draws with matplotlib, which Python cannot import ({why}); Debian has it as python3-matplotlib")
import bars
import days
import groups
import look
import mixes
import pipeline
import plans
import published
import recoveries
import replays
import results
import timeline
from page import Page
from results import BadInput, seconds


def file_of(folder, name):
    return folder / "figures" / f"{name}.png"


# ---- sections ----------------------------------------------------------------------------------------------------------


# How an experiment is drawn, and a sentence on what is shown.
DRAWINGS = {
    "lines": (figures.throughput, None),
    "bars": (bars.throughput, None),
    "speedups": (bars.speedups, "Speed-ups over {}: of the whole iteration; of the devices' passes, from the first forward to the "
                                "last backward; of the time beyond them, in which the host steps. A mark in place of a bar is of "
                                "the bar's system, unless it names another, or both."),
    "breakdown": (bars.breakdown, "An iteration in two parts: the devices' passes, from the first forward to the last backward, and "
                                  "the rest, in which the host steps."),
    "sizes": (bars.sizes, "The largest of the models that fits; of one model, the largest batch."),
    "price": (figures.price, "Throughput over the price of the whole cluster, as the catalogue states it."),
    "rollback": (bars.rollback, "An iteration whose gradients overflow, beyond the devices' passes: the steps that nothing hides, "
                                "and what the overflow adds."),
    "wins": (plans.wins, "The fastest system of each model on each cluster, and its tokens/s. Every system has the micro-batch at which it is "
                         "fastest, where the experiment says so."),
    "totals": (plans.totals, "Of all GPUs together."),
    "gains": (plans.gains, "Throughput over that of {}, and the highest peak of any device over its."),
    "parts": (plans.parts, "What each GPU takes of the batch, what it holds of the training state, and how full its memory is at the peak."),
    "prediction": (plans.prediction, "The iteration time that the planner expects against the simulated one."),
    "mixes": (mixes.mixes, "Every mix of the two kinds of devices. Throughputs within 1% count as equal: small squares are systems as fast as the "
                           "one that colours the cell. What a device brings is against the mix without it, each system on all devices of its "
                           "mix; bold: it hurts."),
    "times": (figures.times, "Iteration time; below, the lane on which the critical path spends most time: what binds."),
}


def head(page, e):
    """Opens an experiment: its name, source and setting."""
    page.heading(f"{e.name}: {e.title}" if e.title != e.name else e.name)
    source = html.escape(e.root.get("source") or "")
    page.text(f'<span class="soft">{source + ". " if source else ""}{html.escape(e.setting())}</span>')
    if e.csv:
        page.text('<span class="soft">From results.csv; the pictures are those beside it, where there are some. '
                  f"hetbench experiment {html.escape(e.name)} makes the rest.</span>")


def drawn(e, kind, folder, draw):
    """Returns an experiment's figure. Of results.csv, which has less than a drawing needs, that is the one that is there, if any."""
    path = file_of(folder, f"{kind}-{e.name}")
    there = file_of(e.folder.parent, f"{kind}-{e.name}")
    if e.csv and there.is_file():
        if there != path:
            path.write_bytes(there.read_bytes())
        return path
    return path if draw(e, path) is not False else None


def warn(page, e):
    if not e.root["complete"]:
        page.warning(f"This experiment was interrupted: {len(e.rows)} points are there.")


OF_CSV = ("lines", "bars", "sizes", "price", "mixes", "wins")  # what results.csv has the columns for


def throughput(page, experiments, folder):
    page.section("throughput", "Throughput",
                 "Useful TFLOP/s per GPU: 3 × forward matrix products of the batch, recomputation not counted. Where a "
                 "system has variants (with and without checkpointing), the fastest that fits stands for it. A cross "
                 "under the axis: none of them fits.")
    for e in experiments:
        if e.figure == "sizes":
            continue
        if e.figure not in DRAWINGS:
            raise BadInput(f"{e.folder}: figure is '{e.figure}'; expected one of {', '.join(DRAWINGS)}")
        head(page, e)
        draw, caption = DRAWINGS[e.figure]
        if e.csv and e.figure not in OF_CSV and not file_of(e.folder.parent, f"throughput-{e.name}").is_file():
            draw, caption = bars.throughput if e.along == "models" else figures.throughput, None
        page.figure(drawn(e, "throughput", folder, draw), f"{e.title}: {', '.join(e.series)}")
        if caption:
            page.text(caption.format(html.escape(e.series[-1])))
        warn(page, e)
        papers(page, e, folder)
        ratios = e.ratios()
        if ratios:
            page.table([f"{e.series[0]} against", "mean", "least", "most", "over"],
                       [[label] + [(f"{v:.2f}×", "n") for v in (mean, least, most)] + [(f"{n} points", "n")]
                        for label, mean, least, most, n in ratios])
        rows = []
        for place in e.places():
            cells = [e.describe(place)]
            for series in e.series:
                row = e.chosen.get((series, place))
                if row and row.ok:
                    cells.append((f"{row['tflops_per_gpu']:.4g}", "n", f"{row.system}, {seconds(row['iteration_time_s'])}"))
                else:
                    cells.append((row.status if row else "-", "n bad" if row else "n"))
            rows.append(cells)
        page.table(["TFLOP/s per GPU", *e.series], rows, "All numbers, with the variant that was fastest")


def papers(page, e, folder):
    """Adds the paper's values that belong to an experiment, where the folder of results has them checked."""
    rows = published.rows_of(e.name, e.folder.parent)
    if not rows:
        return
    path = drawn(e, "paper", folder, lambda of, to: published.beside(rows, to, of))
    if path:
        page.text("The paper's values beside ours. Each is a row of <code>hetbench reproduce</code>, which takes the scenarios and the averages "
                  "that the paper states.")
        page.figure(path, "the paper's values and ours")
    page.table(["claim", "paper", "ours", "verdict", "statement"],
               [[r["id"], (r["paper"], "n"), (r["ours"], "n"), (r["verdict"], "good" if r["verdict"] == "within" else "bad"), r["statement"]]
                for r in rows], f"All {len(rows)} checked statements about it")


def sizes(page, experiments, folder):
    """Adds a section for the experiments that ask what fits, if there are any."""
    asking = [e for e in experiments if e.figure == "sizes"]
    if not asking:
        return
    page.section("sizes", "Largest sizes", DRAWINGS["sizes"][1])
    for e in asking:
        head(page, e)
        page.figure(drawn(e, "throughput", folder, bars.sizes), f"{e.title}: {', '.join(e.series)}")
        warn(page, e)
        of_models, values, panels = e.largest()
        at = results.AXES.index(e.along)
        rows = []
        for places, best in panels:
            for value in values:
                cells = [e.describe_without(next(p for p in places if p[at] == value), 0 if of_models else 1)]
                for series in e.series:
                    row = best[series, value]
                    size = row and (f"{row.scenario['model']['params'] / 1e9:.4g}" if of_models else f"{row.place[1]}")
                    cells.append((size, "n", f"{e.short(row.place[0])}, {row.system}") if row else ("none", "n bad"))
                rows.append(cells)
        page.table(["billion parameters" if of_models else "sequences", *e.series], rows)


def recovery(page, found, folder):
    """Adds a section for the experiments on recovery, if there are any."""
    if not found:
        return
    page.section("recovery", "Recovery",
                 "The time until all ranks have read the state after nodes were lost or have joined: from stores on the nodes, and "
                 "from the remote store alone. Copies are simulated over disks, NICs and the link to the remote store.")
    for e in found:
        page.heading(f"{e.name}: {e.title}" if e.title != e.name else e.name)
        page.text(f'<span class="soft">{html.escape(e.source)}</span>')
        path = file_of(folder, f"recovery-{e.name}")
        recoveries.draw(e, path)
        page.figure(path, e.title)
        page.table(["recovery", "model", "from", "time", "speed-up", "paper"],
                   [[r["label"], r["model"], r["from"], (seconds(r["recovery_time_s"]), "n"), (f"{r['speed_up']:.3f}", "n"),
                     (f"{r['paper']:g}" if r["paper"] else "-", "n")] for r in e.rows], "All times")


def first_rank(trace):
    """Keeps only the lanes and spaces of rank 0 and its node: the other ranks do the same work."""
    lanes = {tid: name for tid, name in trace.lanes.items() if name.startswith("rank 0 ")}
    if len(lanes) < len(trace.lanes):
        trace.lanes, trace.ops = lanes, [op for op in trace.ops if op[1] in lanes]
        trace.memory = {space: samples for space, samples in trace.memory.items() if space.endswith(" 0")}
    return trace


def load_traces(e):
    """Returns [(raw row, Trace)] for the traces whose files exist."""
    out = []
    for raw in e.traces:
        path = e.folder / raw["file"] if raw.get("file") else None
        if path and path.is_file():
            trace = first_rank(timeline.Trace(path))
            trace.path = path
            out.append((raw, trace))
    return out


def timelines(page, traced, folder):
    page.section("timeline", "Timeline with and without priority scheduling",
                 "One iteration of the steady state on all lanes, and who holds the memory; neighbours in pale; of several "
                 "ranks the first. With priorities the gradient copy and the optimizer step of an <em>earlier</em> block go "
                 "first, because the next iteration's forward pass waits for those. Where the processor has little left "
                 "to do when the backward pass ends, the two are the same. Of pipelines all ranks are shown, as their papers draw "
                 "them: passes by stage, and the optimizer steps below.")
    for e, traces in traced:
        pair = [t for t in traces if t[0]["system"] in ("autohete", "autohete_nops")] or traces[:2]
        sc = pair[0][0]["scenario"]
        page.heading(f"{e.name}: {sc['model']['name']}, batch {sc['batch']}")
        path = file_of(folder, f"timeline-{e.name}")
        if pipeline.is_pipeline(traces[0][1]):
            pair = [t for t in traces if pipeline.is_pipeline(t[1])]
            shown = pipeline.figure_of([pipeline.Pipeline(t.path, None) for _, t in pair])
            look.stamp(shown, f"{e.title}: timelines, {e.point(pair[0][0])}", f"{e.name}. {e.provenance([sc])}")
            look.write(shown, path)
        else:
            figures.timelines(pair, path, e)
        page.figure(path, "timelines of " + " and ".join(t[0]["system"] for t in pair))
        page.table(["system", "iteration", "useful TFLOP/s", "bubble", "lower bound", "set by", "plan"],
                   [[raw["system"], (seconds(raw["iteration_time_s"]), "n"), (f"{raw['tflops_per_gpu']:.4g}", "n"),
                     (f"{100 * raw['bubble_ratio']:.1f}%", "n"), (seconds(raw["lower_bound_s"]), "n"),
                     results.Row(dict(raw, series="")).bound_by(),
                     " ".join(f"{k}={results.variable(v)}" for k, v in raw["plan"]["variables"].items())] for raw, _ in traces])
    if not traced:
        page.text("These results hold no traces: an experiment with <code>timelines:</code> keeps some.")


def memory(page, traced, folder):
    page.section("memory", "Memory over time by tensor class",
                 "One iteration each, at its own scale of time and a common scale of bytes. The red line is the capacity.")
    for e, traces in traced:
        path = file_of(folder, f"memory-{e.name}")
        figures.memory(traces, path, e)
        page.heading(f"{e.name}: {traces[0][0]['scenario']['model']['name']}, batch {traces[0][0]['scenario']['batch']}")
        page.figure(path, "memory over time")
    if not traced:
        page.text("These results hold no traces: an experiment with <code>timelines:</code> keeps some.")


MOST_PLANS = 6  # drawn of an experiment


def pipelines_of(e):
    """Returns (position, plan) of the first series where it plans pipelines, as many as are drawn."""
    out = []
    for place in e.places() if not e.csv and e.figure != "mixes" else []:
        row = e.chosen.get((e.series[0], place))
        try:
            out += [(place, groups.Plan(row.raw))] if row and row.ok else []
        except ValueError:
            pass  # another kind of plan
    return out[:MOST_PLANS]


def plans_of_pipelines(page, experiments, folder):
    """Adds a section for the experiments whose first system plans unlike pipelines, if there are any."""
    drawn_of = [(e, found) for e in experiments if (found := pipelines_of(e))]
    if not drawn_of:
        return
    page.section("plans", "Plans of pipelines",
                 "Which devices have which layers of which group, and who reduces gradients with whom; the memory of each device at its worst "
                 "moment, and the share of an iteration in which it computes nothing. <code>hetbench sim --plot FILE.svg</code> draws "
                 "one of them with its schedule.")
    for e, found in drawn_of:
        for i, (place, plan) in enumerate(found):
            page.heading(f"{e.name}: {e.series[0]}, {e.describe(place)}")
            path = file_of(folder, f"plan-{e.name}-{i}" if i else f"plan-{e.name}")
            look.stamp(drawn_plan := groups.figure_of(plan, titled=False), f"{e.title}: {e.series[0]}, {e.describe(place)}",
                       f"{e.name}. {e.provenance([plan.root['scenario']])}")
            look.write(drawn_plan, path)
            page.figure(path, "who has which layers")


def critical(page, experiments, folder):
    page.section("critical-path", "Where the time goes",
                 "The critical path, back from the end of the steady state: which op made which op wait. Its share on a "
                 "lane is what a faster lane could gain at most, until another path becomes the longest.")
    for e in experiments:
        if e.figure in ("sizes", "mixes", "wins"):  # what fits is asked there, or too many points are
            continue
        path = drawn(e, "critical", folder, lambda e, path: not e.csv and figures.critical(e, path))
        if path:
            page.heading(e.name)
            if len(e.panels()) > figures.CRITICAL_PANELS:
                page.text(f"The first {figures.CRITICAL_PANELS} of {len(e.panels())} panels.")
            page.figure(path, "critical path by lane")


def bounds(page, experiments, folder):
    page.section("lower-bound", "Achieved time over lower bound",
                 "The lower bound is the largest of the busiest lane, the busiest resource and the longest dependency "
                 "chain: no schedule of these ops on this hardware is faster. Ratio 1: the hardware is the limit. Above: the "
                 "order is, or the waiting that the method asks for. The bound is of each system's own plan, so a slow plan "
                 "can be close to its bound.")
    for e in experiments:
        if e.figure in ("sizes", "mixes", "wins"):
            continue
        path = drawn(e, "bound", folder, figures.bounds)
        page.heading(e.name)
        page.figure(path, "iteration time over lower bound")
        rows = []
        for place in e.places():
            cells = [e.describe(place)]
            for series in e.series:
                row = e.chosen.get((series, place))
                if not row or not row.ok or not row["lower_bound_s"]:
                    cells.append((row.status if row else "-", "n"))
                    continue
                ratio = row["iteration_time_s"] / row["lower_bound_s"]
                kind = "good" if ratio < 1.05 else "mid" if ratio < 1.3 else "bad"
                cells.append((f"{ratio:.2f}×", f"n {kind}", row.bound_by()))
            rows.append(cells)
        page.table(["time / bound, and what sets the bound", *e.series], rows, "Each point, with what sets the bound")


def needed_cell(data):
    if not data:
        return ("not used", "n")
    if data["needed_is_at_most"]:
        return (f"≤ {data['needed'] / 1e9:.3g}", "n good", "a sixteenth suffices")
    scale = data["needed_scale"]
    kind = "good" if scale <= 1 else "mid" if scale <= 2 else "bad"
    return (f"{data['needed'] / 1e9:.3g}", f"n {kind}",
            f"{scale:.2f} × now" + (f", free: {data['gain']:+.0%}" if scale > 1 else ""))


def break_even(page, experiments, folder):
    page.section("break-even", "Break-even bandwidth",
                 "The same plan and graph simulated again with one rate scaled. Break-even is the lowest rate at which an "
                 "iteration is within 1% of what it would be if that rate were unlimited: faster buys nothing. The planner is "
                 "not asked again, so this is what <em>these decisions</em> need. CPU Adam's rate is of the whole host, and "
                 "DRAM keeps up with it; for PCIe it stays, so copies never get faster than DRAM. "
                 "In the tables: how much that is of what the machine has, and how much faster an iteration would be if "
                 "the rate were unlimited. A curve can fall a little where a faster link changes the order of the ops.")
    found = [e for e in experiments if any(r.raw.get("break_even") for r in e.rows)]
    for e in found:
        page.heading(e.name)
        with_rates = [p for p in e.places() if any((r := e.chosen.get((s, p))) and r["break_even"] for s in e.series)]
        traced = [t["scenario"]["model"]["name"] for t in e.traces if "scenario" in t]
        # Shows the point at which most systems run, preferably that of the timelines.
        place = max(with_rates, key=lambda p: (sum(e.chosen[(s, p)].ok for s in e.series if (s, p) in e.chosen),
                                               p[0] in traced))
        path = file_of(folder, f"break-even-{e.name}")
        if figures.break_even(e, place, path):
            page.text(f"{html.escape(e.spell(place))}. The dotted line is what the machine has.")
            page.figure(path, "throughput against bandwidth")
        for rate, title in (("pcie", "PCIe needed, GB/s"), ("cpu_adam", "CPU Adam needed, 10⁹ params/s")):
            rows = []
            for p in with_rates:
                cells = [e.describe(p)]
                for series in e.series:
                    row = e.chosen.get((series, p))
                    if not row or not row.ok:
                        cells.append((row.status if row else "-", "n"))
                        continue
                    data = (row["break_even"] or {}).get(rate)
                    if data:
                        data = dict(data, gain=row["iteration_time_s"] / data["iteration_time_free_s"] - 1)
                    cells.append(needed_cell(data))
                rows.append(cells)
            page.table([title, *e.series], rows)
    if not found:
        page.text("These results hold no break-even rates: an experiment with <code>break_even: true</code> finds them.")


def does_not_fit(page, experiments):
    page.section("oom", "What does not fit, and why",
                 "Proved from the op graph before anything runs: the first op that cannot be given its memory when ops run "
                 "one at a time in order, and who holds the rest.")
    columns = ["experiment", "point", "system", "status", "reason"]
    for chosen, summary in ((True, None), (False, "Variants that do not fit where another one does, or as well")):
        rows = [[e.name, e.describe(r.place), r.system, r.status, r.reason]
                for e in experiments for r in e.rows if not r.ok and r.chosen == chosen]
        if rows:
            page.table(columns, rows, summary and f"{summary} ({len(rows)})")
        elif chosen:
            page.text("At every point every system fits in at least one of its variants.")


def provenance(page, experiments):
    page.section("provenance", "Where the numbers come from",
                 "Every number on this page is <strong>simulated</strong>: the op graph of one training iteration in virtual "
                 "time, with costs modelled from the hardware catalogue's datasheet figures. No factor belongs to a system "
                 "or an experiment. Nothing here was measured on the hardware named.")
    rows = []
    for e in experiments:
        costs = next((r.raw["costs"] for r in e.rows if r.raw.get("costs")), {"name": "-", "source": ""})
        command = e.root.get("command", "unknown")
        rows.append([e.name, e.root.get("obtained", "?"), command, e.root.get("commit", "unknown"),
                     e.root.get("machine", "unknown"), (costs["name"], "", costs["source"]),
                     f"{len(e.rows)}{'' if e.root['complete'] else ', interrupted'}"])
    page.table(["experiment", "obtained", "command", "commit", "simulated on", "costs of", "points"], rows)


def write(path, text):
    path = path.resolve()  # keeps a link and replaces its target
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def simulated(page, experiments, folder):
    """Adds the sections of simulated training."""
    traced = [(e, t) for e in experiments if (t := load_traces(e))]
    throughput(page, experiments, folder)
    sizes(page, experiments, folder)
    timelines(page, traced, folder)
    memory(page, traced, folder)
    plans_of_pipelines(page, experiments, folder)
    critical(page, experiments, folder)
    bounds(page, experiments, folder)
    break_even(page, experiments, folder)
    does_not_fit(page, experiments)
    provenance(page, experiments)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--out", help="where page and figures go [DIR]")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")
    args = parser.parse_args()
    try:
        of_days = days.load(args.folder) if pathlib.Path(args.folder).is_dir() else []
        replayed = replays.load(args.folder) if pathlib.Path(args.folder).is_dir() else []
        experiments = results.load(args.folder, may_lack=bool(of_days or replayed))
    except (ValueError, TypeError, csv.Error) as why:  # TypeError: a line of CSV that was cut off
        raise BadInput(f"{args.folder}: not results that hetbench experiment wrote: {why}") from None
    found = recoveries.load(args.folder) + of_days + replayed
    folder = pathlib.Path(args.out or args.folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    # Figures of results.csv come from results.json, which is not there; those of recoveries and replays are drawn over.
    csv_alone = [e.name for e in experiments if e.csv] + [d.name for d in of_days if not d.studies]
    kept = {*csv_alone, *(f"{name}-{i}" for name in csv_alone for i in range(1, 10)), *(r.name for r in found if r not in of_days)}
    for old in (folder / "figures").glob("*.png"):
        if old.stem.removeprefix("break-even-") not in kept and old.stem.partition("-")[2] not in kept:
            old.unlink()
    figures.style()
    page = Page("hetbench report")
    taken = pathlib.Path(args.folder)
    stale = [p for p in sorted([*taken.glob("results.json"), *taken.glob("*/results.json")]) if results.is_stale(p)]
    for p in stale:
        page.warning(f"{p}: older than results.csv beside it, from which this page is made.")
    recovery(page, [f for f in found if f not in of_days + replayed], folder)
    days.report(page, of_days, folder)
    replays.report(page, replayed, folder)
    if experiments:
        simulated(page, experiments, folder)
    commits = ", ".join(dict.fromkeys(e.root.get("commit", "unknown") for e in experiments + found))
    intro = (f'<p class="soft"><span class="tag">simulated</span> {sum(len(e.rows) for e in experiments + found)} points of '
             f"{len(experiments + found)} experiment{'s' if len(experiments + found) > 1 else ''}, commit {html.escape(commits)}</p>")
    path = folder / "report.html"
    write(path, page.html(intro))
    pictures = sorted(str(p) for p in (folder / "figures").glob("*.png"))
    if args.json:
        print(json.dumps({"schema": {"name": "report", "version": 1}, "page": str(path), "figures": pictures, "experiments": [e.name for e in experiments + found]}, indent=2))
    else:
        for p in stale:
            print(f"{shown(str(p))}: is older than results.csv beside it, which was taken")
        print(f"{shown(str(path))}\n{len(pictures)} figures in {shown(str(folder / 'figures'))}")


if __name__ == "__main__":
    try:
        main()
    except BadInput as why:
        stop(2, str(why))
    except BrokenPipeError:
        stop(1, "standard output cannot be written")
    except OSError as why:
        stop(status_of(why), f"{why.filename or 'the report'}: cannot be written or read: {why.strerror or why}")
    except KeyboardInterrupt:
        sys.exit(130)

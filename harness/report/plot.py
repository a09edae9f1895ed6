#!/usr/bin/env python3
"""Draws a report of hetbench; --plot of sim, train, plan, compare and advise runs it.

    plot.py --out FILE.svg|FILE.png|FILE.html REPORT.json [TRACE.json]

REPORT is what the command prints with --json; TRACE is of the same run. A simulation or training is a timeline, of pipelines the schedule as
papers draw it; as HTML an interactive one. A plan is its memory, and of unlike pipelines its layers; a comparison bars; an advice its ways
and what a change brings.
"""

import argparse
import io
import json
import os
import sys

sys.dont_write_bytecode = True

import traces
from page import Page
from traces import stop
from writing import unwritten

KINDS = (".svg", ".png", ".html")


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            root = json.load(file)
        if not isinstance(root, dict):
            raise ValueError("expected an object")
        return root
    except (OSError, ValueError) as why:
        stop(f"{path}: not a report that hetbench wrote: {why}")


# ---- pictures: each returns a figure, its title and what stands below it ------------------------------------------------


def beside(ax, x, y, text, color="black"):
    """Writes a text behind the end of a bar. A space in front of it would not do: SVG drops it."""
    ax.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=8.5, color=color)


def of_comparison(root):
    import throughput
    if not root["rows"]:
        stop("no rows to draw; expected at least one")
    return throughput.figure_of(root["rows"]), *throughput.words(root)


def of_advice(root):
    import matplotlib.pyplot as plt
    best, changes = root["best"], root["changes"]
    names = [f"{w['system']} on {w['cards']}" for w in best]
    figure, axes = plt.subplots(1, 2, figsize=(12.5, 0.42 * max(len(best), len(changes) + 1) + 1.1), constrained_layout=True)
    rates = [w["tokens_per_s"] for w in best]
    changed = [("as it is", rates[0])] + [(c["change"], c["tokens_per_s"]) for c in changes]
    for ax, labels, values, title in ((axes[0], names, rates, "the fastest ways"), (axes[1], *zip(*changed), "with one change")):
        rows = range(len(labels))
        ax.barh(rows, values, 0.66, color=["#009e73" if v > 1.005 * rates[0] else "#0072b2" if v > 0.995 * rates[0] else "#9db8c9" for v in values])
        for y, v in zip(rows, values):
            change = f" ({100 * (v / rates[0] - 1):+.1f}%)" if abs(v / rates[0] - 1) > 0.0005 else ""
            beside(ax, v, y, f"{v:,.0f}{change}")
        ax.set_yticks(rows, labels)
        ax.set_ylim(len(labels) - 0.4, -0.6)
        ax.set_xlim(0, 1.32 * max(values))
        ax.set_xlabel("tokens/s")
        ax.set_title(title)
        ax.grid(axis="y", visible=False)
    return (figure, f"The fastest way to train {root['model']} on {root['devices']}",
            f"{root['cluster_source']}; {root['seq']} tokens a sequence, {root['best'][0]['numerics']}; {root['obtained']} at {root['commit']}")


def of_memory(root):
    """Draws what each space holds at its worst moment, by class, beside its capacity; each on a scale of its own, since a disk holds a
    thousand times what a device does."""
    import look
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch
    spaces = [m for m in root["memory"] if m["peak_bytes"] or m.get("safe_sequence_bytes")]
    if not spaces:
        stop("the report has no memory to draw")
    figure, axes = plt.subplots(len(spaces), 1, figsize=(12.5, 0.75 * len(spaces) + 0.4), squeeze=False, constrained_layout=True)
    classes = []
    for ax, m in zip(axes[:, 0], spaces):
        held, capacity, left = sum(m["by_class"].values()), m["capacity_bytes"] or 0, 0
        scale, unit = traces.scale_of(max(held, 1), traces.BYTE_UNITS)
        for name, value in sorted(m["by_class"].items(), key=lambda pair: -pair[1]):
            classes.append(name)
            ax.barh(0, value / scale, 0.62, left=left / scale, color=traces.CLASS_COLOURS.get(name, traces.OTHER))
            left += value
        short = f", short by {traces.size(m['short_bytes'])}" if m.get("short_bytes") else ""
        beside(ax, held / scale, 0, f"{traces.size(held)}{f' of {traces.size(capacity)}' if capacity else ''}{short}",
               color="#c00000" if 0 < capacity < held else "black")
        shown = capacity if capacity <= 2 * held else 0
        if shown:
            ax.plot([capacity / scale] * 2, [-0.42, 0.42], color="#c00000", linewidth=1.8)
        ax.set_yticks([0], [f"{m['space']}\n{unit}"])
        ax.set_ylim(0.5, -0.5)
        ax.set_xlim(0, 1.25 * max(held, shown) / scale)
        ax.grid(axis="y", visible=False)
    axes[-1, 0].set_xlabel("at the worst moment; red: the capacity")
    look.legend(figure, [Patch(color=c, label=n) for n, c in traces.in_order(classes).items()], below=True, points=8.5)
    return figure, *traces.describe(root)


def of_result(root, trace):
    if isinstance(root.get("plan", {}).get("variables", {}).get("pipelines"), list):
        import groups
        return groups.figure_of(groups.Plan(root), trace, titled=False), *traces.describe(root)
    if not trace:
        return of_memory(root)
    import pipeline
    import timeline
    loaded = traces.Trace(trace)
    if pipeline.is_pipeline(loaded):
        return pipeline.figure_of([pipeline.Pipeline(trace, None)]), *traces.describe(root)
    return timeline.figure_of([loaded], capacities(root)), *traces.describe(root)


def capacities(root):
    return {m["space"]: m["capacity_bytes"] for m in root.get("memory") or [] if m["capacity_bytes"]}


def picture(root, trace):
    import look
    look.style()
    try:
        drawn = of_comparison(root) if "rows" in root else of_advice(root) if "best" in root else of_result(root, trace)
    except (KeyError, TypeError) as why:
        stop(f"not a report that can be drawn: it lacks {why}")
    figure, title, note = drawn
    look.stamp(figure, title, note)
    return figure, title, note


# ---- pages ----------------------------------------------------------------------------------------------------------------


def page(root, trace):
    """Returns the report as a page: an interactive timeline, or the picture as SVG."""
    if trace and "rows" not in root and "best" not in root:
        import timeline_page
        return timeline_page.page_of(traces.Trace(trace), *traces.describe(root), capacities(root))
    figure, title, _ = picture(root, None)
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    svg = out.getvalue()
    text = Page(title)
    text.parts.append(f'<figure class="drawn">{svg[svg.index("<svg"):]}</figure>')
    return text.html(f'<p class="soft"><code>{root.get("command", "").replace("&", "&amp;").replace("<", "&lt;")}</code></p>').replace(
        "</style>", "figure.drawn{overflow-x:auto}figure.drawn svg{width:100%;height:auto;min-width:34rem}</style>", 1).replace("<nav></nav>", "")


def write_page(text, path):
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def check(path):
    """Ends with one line where the file cannot be written, or its kind is unknown or cannot be drawn here."""
    if not path.lower().endswith(KINDS):
        stop(f"{traces.shown(path)}: expected a name that ends in {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        stop(f"{traces.shown(path)}: cannot be written: No such file or directory")
    if not path.lower().endswith(".html"):
        import backend  # noqa: F401: says what is missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("report", nargs="?", metavar="REPORT.json")
    parser.add_argument("trace", nargs="?", metavar="TRACE.json")
    parser.add_argument("--out", required=True, help="SVG, PNG or HTML to write, by its ending")
    parser.add_argument("--check", action="store_true", help="only check that --out can be drawn here")
    args = parser.parse_args()
    check(args.out)
    if args.check:
        return
    if not args.report:
        stop("REPORT.json is missing")
    root = load(args.report)
    try:
        if args.out.lower().endswith(".html"):
            write_page(page(root, args.trace), args.out)
        else:
            figure = picture(root, args.trace)[0]
            import look
            look.write(figure, args.out)
    except OSError as why:
        unwritten(args.out, why)


if __name__ == "__main__":
    main()

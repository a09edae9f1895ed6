"""The figures of a report: each function draws one PNG from experiments (results.py) or traces (timeline.py)."""

import textwrap

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import look
import timeline
from look import DPI, SERIES_COLOURS, WIDTH, legend, style  # noqa: F401: for those who import them from here

SERIES_MARKERS = "osD^vPX*h<>dp"  # with 11 colours and 13 markers no pair comes twice
CRITICAL_PANELS = 4  # of the sweep; the data has all of them
CRITICAL_COLUMNS = 6
VISIBLE = 0.3  # % of the critical path: a smaller share is less than a pixel
LANE_COLOURS = {"compute": "#56b4e9", "h2d": "#009e73", "d2h": "#8fd3b6", "cpu": "#cc79a7", "gather": "#0072b2",
                "reduce": "#1b2a4a", "collectives": "#1f4e8c", "messages": "#e69f00", "get": "#d55e00", "disk": "#b5651d",
                "disk in": "#e8b878", "disk out": "#8c4a12", "waiting": "#dddddd"}
LANE_NAMES = {"compute": "device compute", "h2d": "copy to device", "d2h": "copy to host", "cpu": "CPU optimizer steps",
              "gather": "all-gather", "reduce": "reduce-scatter", "collectives": "all-gather, reduce-scatter",
              "messages": "messages between stages", "get": "read of another node", "disk": "disk", "disk in": "read from disk", "disk out": "write to disk",
              "waiting": "waiting"}
MORE_COLOURS = ["#e69f00", "#0072b2", "#d55e00", "#f0e442", "#999999"]


def save(figure, path, of=None, what="", note="", scenarios=None):
    """Writes a figure; of: the experiment whose title and source stand on it; what: what of it this is; note: more to say below;
    scenarios: those of the experiment that are drawn, if not all."""
    figure.tight_layout()
    if of:
        more = f" {note}" if note else ""
        look.stamp(figure, f"{of.title}{f': {what}' if what else ''}", f"{of.name}. {of.provenance(scenarios) if scenarios else of.provenance()}{more}")
    look.write(figure, path)


def grid(n, height):
    """Returns a figure with n plots that share their axis of values, three or four in a row, so that no row is almost empty."""
    columns = 4 if n in (4, 7, 8) else min(n, 3)
    rows = -(-n // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, height if rows == 1 else 0.8 * height * rows + 0.3),
                                sharey=True, squeeze=False)
    axes = list(axes.flat)
    for ax in axes[n:]:
        ax.set_visible(False)
    return figure, axes[:n], columns


def flops_unit(most):
    """Returns factor and unit for a figure whose largest value is that many TFLOP/s."""
    return (1, "TFLOP/s") if most >= 1 else (1000, "GFLOP/s")


def colour_of(experiment, series):
    return SERIES_COLOURS[experiment.series.index(series) % len(SERIES_COLOURS)]


def beside(experiment, i):
    """Returns where the i-th series stands around the tick of an entry: entries without an order have their series side by side."""
    return 0 if experiment.ordered() else 0.72 * ((i + 0.5) / len(experiment.series) - 0.5)


def style_of(experiment, i):
    """Returns the line of the i-th series: none between entries without an order."""
    return ((0, (4, 2)) if i == 1 else "-") if experiment.ordered() else "none"


def filled(experiment):
    """Returns the panels in which something runs, and a sentence about the others."""
    panels = experiment.panels()
    runs = [(t, p) for t, p in panels if any((r := experiment.chosen.get((s, place))) and r.ok for s in experiment.series for place in p)]
    empty = [t for t, p in panels if (t, p) not in runs]
    return runs or panels, f"No panel, since nothing fits: {'; '.join(empty)}." if empty and runs else ""


def ticks(ax, experiment, places):
    """Names the entries of the list along the figure. Those without an order stand in bands, whose points belong together."""
    pairs = [experiment.tick(p) for p in places]
    look.name_ticks(ax, [x for x, _ in pairs], [label for _, label in pairs])
    ax.set_xlabel(experiment.axis_title())
    xs = [x for x, _ in pairs]
    margin = 0.05 * (max(xs) - min(xs)) if experiment.ordered() else 0.5
    margin = margin or 0.5
    ax.set_xlim(min(xs) - margin, max(xs) + margin)  # points that do not fit keep their place
    if not experiment.ordered():
        ax.grid(axis="x", visible=False)
        for x in xs[::2]:
            ax.axvspan(x - 0.5, x + 0.5, color="#f3f4f6", linewidth=0, zorder=0)


def throughput(experiment, path):
    """Draws useful FLOP/s per GPU, a line a series."""
    factor, unit = flops_unit(max(r["tflops_per_gpu"] or 0 for r in experiment.rows))
    lines(experiment, path, lambda row: factor * (row["tflops_per_gpu"] or 0), f"useful {unit} per GPU")


def price(experiment, path):
    """Draws throughput over the price of the cluster, a line a series."""
    lines(experiment, path, lambda row: row["tokens_per_s_per_1000_usd"] or 0, "tokens/s per 1,000 USD")


FITS_NOT = Line2D([], [], color="#555555", marker="x", linestyle="", markeredgewidth=1.8, label="does not fit")


def failing_in(experiment):
    """Returns the series that do not fit somewhere."""
    return [s for s in experiment.series if any(r.series == s and r.chosen and not r.ok for r in experiment.rows)]


def cross(axes, columns, experiment, panels, level, points=8):
    """Marks what does not fit: a row of crosses for each series that fails somewhere, `level(k)` high, and its name beside the last panel of a line."""
    failing = failing_in(experiment)
    for ax, (_, places) in zip(axes, panels):
        for k, series in enumerate(failing):
            rows = [experiment.chosen.get((series, p)) for p in places]
            at = [experiment.tick(r.place)[0] + beside(experiment, experiment.series.index(series)) for r in rows if r and not r.ok]
            ax.plot(at, [level(k)] * len(at), "x", color=colour_of(experiment, series), markersize=0.75 * points, markeredgewidth=1.8, zorder=4)
    for ax in axes[columns - 1::columns] or axes[-1:]:
        for k, series in enumerate(failing):
            ax.text(1.005, level(k), f"no: {series}" if k == 0 else series, transform=ax.get_yaxis_transform(), fontsize=points, va="center",
                    color=colour_of(experiment, series))


def lines(experiment, path, value_of, title_of_values):
    """Draws a line a series of what `value_of` says of a row; a point that does not fit is a cross at the bottom, at its position
    on the axis."""
    panels, note = filled(experiment)
    figure, axes, columns = grid(len(panels), 3.9)
    top = max(value_of(r) for r in experiment.rows) or 1
    failing = failing_in(experiment)
    for ax, (title, places) in zip(axes, panels):
        drawn = []
        for i, series in enumerate(experiment.series):
            rows = [experiment.chosen.get((series, p)) for p in places]
            colour, marker = colour_of(experiment, series), SERIES_MARKERS[i % len(SERIES_MARKERS)]
            shift = beside(experiment, i)
            xs = [experiment.tick(r.place)[0] + shift for r in rows if r and r.ok]
            drawn.append((xs, [value_of(r) for r in rows if r and r.ok], colour, marker, i))
        # Drawn last to first, the first series thickest: lines that coincide stay visible.
        for xs, ys, colour, marker, i in reversed(drawn):
            ax.plot(xs, ys, color=colour, marker=marker, markersize=5.5, linewidth=2.2 if i == 0 else 1.6, linestyle=style_of(experiment, i),
                    zorder=3 if i == 1 else 2)
        ax.axhline(0, color="black", linewidth=0.8)
        ticks(ax, experiment, places)
        if title:
            ax.set_title(title)
    for ax in axes:
        low = -top * (0.045 + 0.05 * len(failing)) if failing else 0
        ax.set_ylim(low, top * 1.06)
        ax.set_yticks([t for t in matplotlib.ticker.MaxNLocator(6).tick_values(0, top) if t <= top * 1.06])
    for ax in axes[::columns]:
        ax.set_ylabel(title_of_values)
    cross(axes, columns, experiment, panels, lambda k: -top * (0.045 + 0.05 * k))
    handles = [Line2D([], [], color=colour_of(experiment, s), marker=SERIES_MARKERS[i % len(SERIES_MARKERS)],
                      linestyle=style_of(experiment, i), label=s) for i, s in enumerate(experiment.series)]
    legend(figure, handles + [FITS_NOT] * bool(failing))
    save(figure, path, experiment, note=note)


BINDS = {"compute": "GPU", "h2d": "in", "d2h": "out", "cpu": "CPU", "disk": "SSD", "disk in": "SSD in", "disk out": "SSD out"}
BINDS_COLOURS = {"compute": "#cfe8f6", "h2d": "#a8dcc5", "d2h": "#d5f0e4", "cpu": "#eed3e2", "disk": "#eac9a4"}


def times(experiment, path):
    """Draws a line a series of iteration times, and under it a table of what binds: the lane on which the critical path spends most
    time. A point that does not fit has a dash in the table and none in the plot."""
    panels, series = experiment.panels(), experiment.series
    figure, axes = plt.subplots(2, len(panels), figsize=(WIDTH, 3.6 + 0.21 * len(series)), squeeze=False,
                                gridspec_kw={"height_ratios": [3.4, 0.21 * len(series)]})
    for (title, places), (ax, table) in zip(panels, axes.T):
        for i, name in enumerate(series):
            rows = [experiment.chosen.get((name, p)) for p in places]
            at = [k for k, r in enumerate(rows) if r and r.ok]
            ax.plot(at, [rows[k]["iteration_time_s"] for k in at], color=colour_of(experiment, name), markersize=5,
                    marker=SERIES_MARKERS[i % len(SERIES_MARKERS)], linewidth=2.2 if i == 0 else 1.3,
                    linestyle="-" if experiment.ordered() else "none", zorder=3 if i == 0 else 2)
            for k, row in enumerate(rows):
                lanes = {lane: s for lane, s in row.lanes().items() if lane != "waiting"} if row and row.ok else {}
                most = max(lanes, key=lanes.get) if lanes else None
                colour = BINDS_COLOURS.get((most or "").split(" ")[0], "#f2f2f2")
                table.add_patch(plt.Rectangle((k - 0.48, i - 0.46), 0.96, 0.92, color=colour, linewidth=0))
                table.text(k, i, BINDS.get(most, most) if most else "\u2013", ha="center", va="center", fontsize=8)
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda v, _: f"{v:g}"))
        ax.yaxis.set_minor_formatter(matplotlib.ticker.FuncFormatter(lambda v, _: f"{v:g}" if f"{v:e}"[0] in "25" else ""))
        ax.set_title(title or experiment.short(places[0][0]))
        for shown in (ax, table):
            shown.set_xlim(-0.5, len(places) - 0.5)
        ax.set_xticks(range(len(places)), [])
        table.set_xticks(range(len(places)), [experiment.tick(p)[1] for p in places])
        table.set_xlabel(experiment.axis_title())
        table.set_ylim(len(series) - 0.5, -0.5)
        table.set_yticks(range(len(series)), series if table is axes[1][0] else [""] * len(series), fontsize=8.5)
        table.tick_params(length=0)
        table.grid(False)
        for side in ("left", "bottom"):
            table.spines[side].set_visible(False)
    axes[0][0].set_ylabel("iteration, s")
    handles = [Line2D([], [], color=colour_of(experiment, s), marker=SERIES_MARKERS[i % len(SERIES_MARKERS)], label=s)
               for i, s in enumerate(series)]
    legend(figure, handles)
    save(figure, path, experiment, note="Below: the lane on which the critical path spends most time; \u2013: does not fit.")


def lane_colour(lane, seen):
    if lane in LANE_COLOURS:
        return LANE_COLOURS[lane]
    if lane not in seen:
        seen.append(lane)
    return MORE_COLOURS[seen.index(lane) % len(MORE_COLOURS)]


def statuses(rows):
    """Explains the words that stand where rows do not run."""
    return "INFEASIBLE: the planner finds no plan that fits." if any(r.status == "infeasible" for r in rows) else ""


def critical(experiment, path):
    """Draws shares of the critical path: a plot a panel of the sweep and series, a stacked bar a point. A series that runs nowhere has its
    name alone."""
    def runs(series, places):
        return any(row and row.ok for row in (experiment.chosen.get((series, p)) for p in places))

    every = [(t, p) for t, p in experiment.panels() if any(runs(s, p) for s in experiment.series)]
    panels, series = every[:CRITICAL_PANELS], experiment.series
    if not panels:
        return False
    columns = -(-len(series) // -(-len(series) // CRITICAL_COLUMNS))  # as equal rows as can be
    rows = len(panels) * -(-len(series) // columns)
    longest = max(len(experiment.tick(p)[1]) for _, places in panels for p in places)  # upright names of so many letters take room
    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, (2.9 + 0.08 * max(0, longest - 12)) * rows + 0.4), sharey=True, squeeze=False)
    lanes, more, marked, lines_left = [], [], [], list(axes)
    for title, places in panels:
        lines = [lines_left.pop(0) for _ in range(-(-len(series) // columns))]
        plots = [ax for line in lines for ax in line]
        for ax in plots[len(series):]:
            ax.set_visible(False)
        for ax, name in zip(plots, series):
            wrapped = textwrap.fill(name, int(10 * WIDTH / columns))
            ax.set_title(wrapped + ("\n" if columns > 3 else ", ") + title if title else wrapped)
            ax.set_ylim(0, 100)
            if not runs(name, places):
                ax.text(0, 0.94, "does not fit", transform=ax.transAxes, va="top", color="#555555")
                ax.set_frame_on(False)
                ax.grid(False)
                ax.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
                continue
            for i, place in enumerate(places):
                row = experiment.chosen.get((name, place))
                if not row:
                    continue
                if not row.ok:
                    marked.append(row)
                    ax.text(i, 2, row.status.upper(), rotation=90, ha="center", va="bottom", fontsize=8, color="#555555")
                    continue
                below = 0
                for lane, spent in row.lanes().items():
                    share = 100 * spent / row["iteration_time_s"]
                    if share < VISIBLE:
                        continue
                    if lane not in lanes:
                        lanes.append(lane)
                    ax.bar(i, share, 0.8, bottom=below, color=lane_colour(lane, more), linewidth=0)
                    below += share
            names = [experiment.tick(p)[1] for p in places]
            ax.set_xticks(range(len(places)), names, rotation=90 if 0.09 * sum(len(n) + 1 for n in names) > WIDTH / columns - 0.8 else 0)
            ax.set_xlabel(experiment.axis_title())
            ax.set_xlim(-0.6, len(places) - 0.4)
            ax.grid(axis="x", visible=False)
        for line in lines:
            line[0].set_ylabel("share of critical path, %")
    order = [lane for lane in LANE_NAMES if lane in lanes] + [lane for lane in lanes if lane not in LANE_NAMES]
    legend(figure, [Patch(color=lane_colour(lane, more), label=LANE_NAMES.get(lane, lane)) for lane in order])
    part = f"The first {CRITICAL_PANELS} of {len(every)} panels." if len(every) > CRITICAL_PANELS else ""
    save(figure, path, experiment, "where the critical path is", " ".join(filter(None, (part, statuses(marked)))))
    return True


def bounds(experiment, path):
    """Draws achieved time over lower bound along the sweep; a better schedule of these ops could gain the rest."""
    panels, note = filled(experiment)
    failing = failing_in(experiment)
    figure, axes, columns = grid(len(panels), 2.9 + 0.12 * len(failing))
    top = 1
    for ax, (title, places) in zip(axes, panels):
        for i, series in reversed(list(enumerate(experiment.series))):
            rows = [experiment.chosen.get((series, p)) for p in places]
            rows = [r for r in rows if r and r.ok and r["lower_bound_s"]]
            ratios = [r["iteration_time_s"] / r["lower_bound_s"] for r in rows]
            top = max([top] + ratios)
            xs = [experiment.tick(r.place)[0] + beside(experiment, i) for r in rows]
            if not experiment.ordered():
                ax.vlines(xs, 1, ratios, color=colour_of(experiment, series), linewidth=1.6)
            ax.plot(xs, ratios, color=colour_of(experiment, series), marker=SERIES_MARKERS[i % len(SERIES_MARKERS)],
                    markersize=5, linewidth=1.6, linestyle=style_of(experiment, i))
        ax.axhline(1, color="black", linewidth=0.8)
        ticks(ax, experiment, places)
        if title:
            ax.set_title(title)
    span = max(top - 1, 0.05)
    for ax in axes:
        ax.set_ylim(1 - (0.06 + 0.11 * len(failing)) * span, 1 + 1.08 * span)
        ax.set_yticks([t for t in matplotlib.ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(1, 1 + span) if 1 <= t <= 1 + 1.08 * span])
    cross(axes, columns, experiment, panels, lambda k: 1 - (0.1 + 0.11 * k) * span, 7)
    for ax in axes[::columns]:
        ax.set_ylabel("time / lower bound")
    handles = [Line2D([], [], color=colour_of(experiment, s), marker=SERIES_MARKERS[i % len(SERIES_MARKERS)],
                      linestyle=style_of(experiment, i), label=s) for i, s in enumerate(experiment.series)]
    legend(figure, handles + [FITS_NOT] * bool(failing))
    save(figure, path, experiment, "time over the lower bound", note)


RATE_TITLES = {"pcie": "PCIe bandwidth, GB/s per direction", "cpu_adam": "CPU Adam, billion parameters/s"}


def break_even(experiment, place, path):
    """Draws throughput at one point against PCIe bandwidth and against the rate of CPU Adam, all else equal."""
    rows = [(s, experiment.chosen.get((s, place))) for s in experiment.series]
    rows = [(s, r) for s, r in rows if r and r.ok and r["break_even"]]
    if not rows:
        return False
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.6), sharey=True)
    factor, unit = flops_unit(max(r["tflops_per_gpu"] for _, r in rows))
    for ax, rate in zip(axes, RATE_TITLES):
        for i, (series, row) in reversed(list(enumerate(rows))):
            data = row["break_even"].get(rate)
            if not data or not data["now"]:
                continue
            flops = factor * row["tflops_per_gpu"] * row["iteration_time_s"]
            curve = data["curve"]
            if curve[0][0] < data["needed_scale"] < curve[-1][0]:
                curve = sorted(curve + [[data["needed_scale"], data["iteration_time_needed_s"]]])
            colour = colour_of(experiment, series)
            ax.plot([scale * data["now"] / 1e9 for scale, _ in curve], [flops / t for _, t in curve], color=colour,
                    linewidth=1.7, linestyle=(0, (4, 2)) if experiment.series.index(series) == 1 else "-")
            ax.plot([data["now"] / 1e9], [factor * row["tflops_per_gpu"]], "o", color=colour, markersize=5)
            if data["needed_scale"] <= 16 and not data["needed_is_at_most"]:
                ax.plot([data["needed"] / 1e9], [flops / data["iteration_time_needed_s"]], "D", markersize=6,
                        markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.6)
        now = [r["break_even"][rate]["now"] / 1e9 for _, r in rows if r["break_even"].get(rate)]
        ax.set_xscale("log", base=2)
        if now and max(now) < 1.05 * min(now):
            ax.axvline(now[0], color="#777777", linewidth=0.9, linestyle=(0, (2, 2)))
        ax.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda v, _: f"{v:.3g}"))
        ax.set_xlabel(RATE_TITLES[rate])
    axes[0].set_ylabel(f"useful {unit} per GPU")
    axes[0].set_ylim(bottom=0)
    handles = [Line2D([], [], color=colour_of(experiment, s), label=s,
                      linestyle=(0, (4, 2)) if experiment.series.index(s) == 1 else "-") for s, _ in rows]
    handles += [Line2D([], [], color="#555555", marker="o", linestyle="", label="as it is"),
                Line2D([], [], color="#555555", marker="D", markerfacecolor="white", linestyle="", label="break-even")]
    legend(figure, handles)
    save(figure, path, experiment, f"throughput by rate, {experiment.spell(place)}")
    return True


def capacities(raw):
    return {m["space"]: m["capacity_bytes"] for m in raw.get("memory") or [] if m["capacity_bytes"]}


def timelines(traces, path, of):
    """Draws traces, [(raw row, timeline.Trace)], one above the other on one scale of time."""
    figure = timeline.figure_of([t for _, t in traces], capacities(traces[0][0]), names=[of.label_of(raw["system"]) for raw, _ in traces])
    look.stamp(figure, f"{of.title}: timelines, {of.point(traces[0][0])}", f"{of.name}. {of.provenance([traces[0][0]['scenario']])}")
    look.write(figure, path)


def memory(traces, path, of):
    """Draws memory by tensor class over one iteration: a column a system, a row a space, one scale a row."""
    spaces = list(dict.fromkeys(s for _, t in traces for s in t.memory))
    figure, axes = plt.subplots(len(spaces), len(traces), figsize=(WIDTH, 2.35 * len(spaces) + 0.6), sharey="row",
                                sharex="col", squeeze=False)
    classes = []
    for row, space in enumerate(spaces):
        top = 0
        for column, (raw, trace) in enumerate(traces):
            ax = axes[row][column]
            begin, length = trace.span(trace.steady())
            scale, unit = timeline.scale_of(length, timeline.TIME_UNITS)
            if space in trace.memory:
                classes += [c for c in timeline.draw_memory(ax, trace, space, begin, length, (0, length), scale,
                                                            capacities(raw).get(space)) if c not in classes]
                top = max(top, ax.get_ylim()[1])
            ax.set_xlim(0, length / scale)
            ax.grid(axis="x", visible=False)
            if column:
                ax.set_ylabel("")
            if row == 0:
                ax.set_title(of.label_of(raw["system"]))
            if row == len(spaces) - 1:
                ax.set_xlabel(f"time, {unit}")
        axes[row][0].set_ylim(0, top)
    legend(figure, [Patch(color=c, label=label) for label, c in timeline.in_order(classes).items()])
    save(figure, path, of, f"memory over an iteration, {of.point(traces[0][0])}", scenarios=[traces[0][0]["scenario"]])


"""Figures of plans that give every rank a part of its own, of a planner's own times, and of gains over a last series. Each function
draws one PNG from an experiment (results.py)."""

import pathlib
import re

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

import look
from bars import clusters, missing, shade, split
from figures import SERIES_COLOURS, WIDTH, colour_of, legend, save
from mixes import NONE, cell
from results import AXES, BadInput, size

SWEEP = pathlib.Path(__file__).resolve().parent.parent / "sweep"
PARTS = (("share of the batch, %", "#0072b2"), ("share of the state, %", "#d55e00"), ("peak of its memory, %", "#7f7f7f"))


def totals(experiment, path):
    """Draws the throughput of all devices together: a bar a series."""
    places = experiment.places()
    figure, ax = plt.subplots(figsize=(WIDTH * 0.62, 3.6))
    width, x_of = clusters(ax, [experiment.tick(p)[1] for p in places], len(experiment.series))
    for b, series in enumerate(experiment.series):
        for g, place in enumerate(places):
            row = experiment.chosen.get((series, place))
            if not row or not row.ok:
                missing(ax, x_of(g, b), 0, row)
                continue
            value = row["tflops_per_gpu"] * row.scenario["devices"]
            ax.bar(x_of(g, b), value, width * 0.7, linewidth=0, color=colour_of(experiment, series))
            ax.text(x_of(g, b), value, f"{value:.0f}", ha="center", va="bottom", fontsize=8)
    ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
    ax.set_ylabel("useful TFLOP/s of all GPUs")
    ax.set_xlabel(experiment.axis_title())
    legend(figure, [Patch(color=colour_of(experiment, s), label=s) for s in experiment.series])
    save(figure, path, experiment)


def peak(row):
    """Returns the highest peak of any device, in bytes."""
    return max(m["peak_bytes"] for m in row["memory"] if m["tier"] == "device")


MOST_BARS = 60  # of gains, in one plot


def gains(experiment, path):
    """Draws throughput and the highest device peak of every series over those of the last one, in groups by position."""
    places, base = experiment.places(), experiment.series[-1]
    shown = list(reversed(experiment.series))
    if len(places) * len(shown) > MOST_BARS:
        gain_cells(experiment, path)
        return
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.6))
    for ax, title, of in ((axes[0], f"throughput over {base}", lambda row: row["samples_per_s"]),
                          (axes[1], f"highest device peak over {base}", peak)):
        width, x_of = clusters(ax, [experiment.tick(p)[1] for p in places], len(shown))
        ax.axhline(1, color="black", linewidth=0.8)
        for b, series in enumerate(shown):
            for g, place in enumerate(places):
                row, against = experiment.chosen.get((series, place)), experiment.chosen.get((base, place))
                if not row or not row.ok or not against or not against.ok:
                    missing(ax, x_of(g, b), 0, row if row and not row.ok else against)
                    continue
                value = of(row) / of(against)
                ax.bar(x_of(g, b), value, width * 0.94, linewidth=0, color=colour_of(experiment, series))
                ax.text(x_of(g, b), value, f"{value:.2f}", ha="center", va="bottom", fontsize=8)
        ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
        ax.set_ylabel(title)
        ax.set_xlabel(experiment.axis_title())
    legend(figure, [Patch(color=colour_of(experiment, s), label=s) for s in shown])
    save(figure, path, experiment)


def gain_cells(experiment, path):
    """Draws gains as two tables: a row a series, a column a position, in a cell the percentage over the last series."""
    places, shown, base = experiment.places(), experiment.series[:-1], experiment.series[-1]
    figure, axes = plt.subplots(2, 1, figsize=(WIDTH, 0.62 * len(shown) + 1.6), sharex=True)
    for ax, title, of, good in ((axes[0], f"throughput over {base}, %", lambda row: row["samples_per_s"], 1),
                                (axes[1], f"highest device peak over {base}, %", peak, -1)):
        for y, series in enumerate(shown):
            for x, place in enumerate(places):
                row, against = experiment.chosen.get((series, place)), experiment.chosen.get((base, place))
                if not row or not row.ok or not against or not against.ok:
                    cell(ax, y, x, NONE, "fits" if row and row.ok else "\u2013")
                    continue
                percent = 100 * (of(row) / of(against) - 1)
                cell(ax, y, x, plt.cm.BrBG(0.5 + 0.4 * good * max(-1, min(percent / 25, 1))), f"{percent:+.0f}" if abs(percent) >= 0.5 else "0")
        ax.set_title(title)
        ax.set_xlim(-0.5, len(places) - 0.5)
        ax.set_ylim(len(shown) - 0.5, -0.5)
        ax.set_yticks(range(len(shown)), shown)
        ax.tick_params(length=0)
        ax.grid(False)
        for side in ax.spines.values():
            side.set_visible(False)
    look.name_ticks(axes[1], range(len(places)), [experiment.describe(p) for p in places])
    save(figure, path, experiment, note=f"Teal is better, brown worse. \u2013: does not fit; fits: {base} does not.")


def shares(row):
    """Returns for each rank its percentages of the batch, of the state, and of its device's memory at the peak."""
    plan = row["plan"]["variables"]
    batches = [m * l for m, l in zip(plan["m"], plan["l"])]
    peaks = [100 * m["peak_bytes"] / m["capacity_bytes"] for m in row["memory"] if m["tier"] == "device"]
    return [(100 * b / sum(batches), 100 * s / sum(plan["share"]), p) for b, s, p in zip(batches, plan["share"], peaks)]


def parts(experiment, path):
    """Draws plans: for each rank, named by its device, what it takes and holds. A row a series, a column a position."""
    places, n = experiment.places(), len(experiment.series)
    figure, axes = plt.subplots(n, len(places), figsize=(WIDTH, 3.3 * n + 0.3), sharey=True, squeeze=False)
    for ax, (series, place) in zip(axes.flat, [(s, p) for s in experiment.series for p in places]):
        row = experiment.chosen.get((series, place))
        if not row or not row.ok:
            ax.set_title(f"{series}, {experiment.describe(place)}: {row.status.upper() if row else 'not simulated'}")
            continue
        plan = row["plan"]["variables"]
        if not all(isinstance(plan.get(name), list) for name in ("m", "l", "share")):
            raise BadInput(f"{experiment.name}: figure 'parts' cannot show {row.system}; expected a system that plans m, l and share by rank")
        names = [f"{name}\n{l} x {m}" if l else f"{name}\nnone" for name, m, l in
                 zip(row.scenario["gpu_by_rank"], plan["m"], plan["l"])]
        width, x_of = clusters(ax, names, len(PARTS))
        ax.tick_params(axis="x", labelsize=7.5)
        for g, values in enumerate(shares(row)):
            for b, (value, (_, colour)) in enumerate(zip(values, PARTS)):
                ax.bar(x_of(g, b), value, width * 0.94, linewidth=0, color=colour)
                ax.text(x_of(g, b), value, f"{value:.0f}", ha="center", va="bottom", fontsize=6.5)
        ax.set_title(f"{series}, {experiment.describe(place)}")
    for ax in axes[-1]:
        ax.set_xlabel("GPU, micro-batches x sequences")
    for line in axes:
        line[0].set_ylabel("%")
    legend(figure, [Patch(color=c, label=name) for name, c in PARTS])
    save(figure, path, experiment)


def prediction(experiment, path):
    """Draws how far the planner's iteration time is from the simulated one, in percent: bars by model, a colour a batch."""
    batches = split(experiment, [AXES.index("batches")])
    models = list(dict.fromkeys(p[0] for p in experiment.places()))
    figure, ax = plt.subplots(figsize=(WIDTH * 0.75, 3.6))
    width, x_of = clusters(ax, [experiment.short(m) for m in models], len(batches))
    errors = []
    for b, ((batch,), places) in enumerate(batches.items()):
        for g, model in enumerate(models):
            row = experiment.chosen.get((experiment.series[0], next(p for p in places if p[0] == model)))
            if not row or not row.ok or not row["plan"]["planned_iteration_s"]:
                missing(ax, x_of(g, b), 0, row)
                continue
            error = 100 * (row["plan"]["planned_iteration_s"] / row["iteration_time_s"] - 1)
            errors.append(abs(error))
            ax.bar(x_of(g, b), error, width * 0.9, linewidth=0, color=SERIES_COLOURS[b])
            ax.text(x_of(g, b), error, f"{error:+.1f}", ha="center", va="bottom" if error >= 0 else "top", fontsize=8)
    ax.axhline(0, color="black", linewidth=0.8)
    low, high = ax.get_ylim()
    ax.set_ylim(1.15 * min(low, 0), 1.15 * max(high, 0) or 1)
    ax.set_ylabel("planned over simulated iteration, %")
    ax.set_xlabel("model")
    if errors:
        ax.set_title(f"mean absolute error {sum(errors) / len(errors):.1f}%, worst {max(errors):.1f}%")
    legend(figure, [Patch(color=SERIES_COLOURS[b], label=f"batch {batch}") for b, (batch,) in enumerate(batches)])
    save(figure, path, experiment)


def tokens(rate):
    """Describes tokens/s in three digits: "21,600"."""
    digits = len(str(int(rate)))
    return f"{round(rate, 3 - digits):,.0f}" if digits > 2 else f"{rate:.3g}"


APART = (0, 2, 4, 3, 5, 6, 7, 1, 10, 9, 8)  # of the series' colours: neighbours are unlike


def main_memory(rows, cluster):
    """Describes the main memory of a cluster's first node: ", 128 GB"; "" where neither a row nor the experiment's entry tells it."""
    for (name, _), found in rows.items():
        for row in found if name == cluster else []:
            for space in row.raw.get("memory") or []:
                if space["tier"] == "host" and space["capacity_bytes"]:
                    return f", {size(space['capacity_bytes'])}"
    told = re.search(rf"gpus={re.escape(cluster)};ram=(\d+)([TG]B)", (SWEEP / "grid.yaml").read_text(encoding="utf-8"))
    return f", {told[1]} {told[2]}" if told else ""


def machine(cluster):
    """Describes a cluster that is written as --gpus takes it: '4 x a10, 4 x a10' for a10:4/a10:4, two nodes. Others keep their names."""
    if ":" not in cluster:
        return cluster
    return ", ".join(" + ".join(" x ".join(reversed(kind.split(":"))) for kind in node.split(",")) for node in cluster.split("/"))


def wins(experiment, path):
    """Draws a grid of clusters by models. A cell has the colour of the fastest series, and says which of its systems that is and its
    tokens/s. A cell whose points are not all there is left empty."""
    rows, cells = {}, {}
    for row in experiment.rows:
        rows.setdefault((row.scenario["cluster"], row.scenario["model"]["name"]), []).append(row)
    of_all = sum(len(v) for v in experiment.variants.values())
    for at, found in rows.items():
        if len(found) == of_all:
            cells[at] = max((r for r in found if r.ok), key=lambda r: r["tokens_per_s"], default=None)
    models = sorted({m for _, m in rows}, key=lambda m: next(r.scenario["model"]["params"] for r in experiment.rows
                                                             if r.scenario["model"]["name"] == m))
    clusters_of = list(dict.fromkeys(c for c, _ in rows))
    won = [s for s in experiment.series if any(c and c.series == s for c in cells.values())]
    colours = {s: SERIES_COLOURS[APART[i % len(APART)]] for i, s in enumerate(won)}
    names = [f"{machine(c)}{main_memory(rows, c)}" for c in clusters_of]
    figure, ax = plt.subplots(figsize=(WIDTH, 0.52 * len(clusters_of) + 0.9))
    for (cluster, model), best in cells.items():
        x, y = models.index(model), clusters_of.index(cluster)
        face = shade(colours[best.series], 0.45) if best else "#f2f2f2"
        ax.add_patch(plt.Rectangle((x + 0.02, y + 0.04), 0.96, 0.92, facecolor=face, linewidth=0))
        ax.text(x + 0.5, y + 0.36, best.system if best else "nothing fits", ha="center", va="center", fontsize=8,
                color="black" if best else "#777777")
        if best:
            ax.text(x + 0.5, y + 0.7, f"{tokens(best['tokens_per_s'])} tokens/s", ha="center", va="center", fontsize=7.5, color="#333333")
    ax.set_xlim(0, len(models))
    ax.set_ylim(len(clusters_of), 0)
    ax.set_xticks([i + 0.5 for i in range(len(models))], models)
    ax.set_yticks([i + 0.5 for i in range(len(clusters_of))], names)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.grid(False)
    for side in ax.spines.values():
        side.set_visible(False)
    legend(figure, [Patch(color=shade(colours[s], 0.45), label=s) for s in won], below=True)
    save(figure, path, experiment, note="A row: GPUs, a comma between nodes, and a node's main memory. A cell names the fastest system; its colour is the family.")

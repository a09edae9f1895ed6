"""Figures of experiments as bars: speed-ups over another system, parts of an iteration, rollback. Each function draws one PNG."""

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

import look
from figures import WIDTH, colour_of, filled, flops_unit, legend, save, statuses
from results import AXES

GPU, CPU, MORE = "#56b4e9", "#cc79a7", "#d55e00"
SHADES = (1, 0.72, 0.5, 0.34, 0.24, 0.17)  # of a series' colour, for the entries of the list along the figure


def times(row):
    """Returns (iteration, passes of the devices, what remains), in seconds."""
    return row["iteration_time_s"], row["passes_s"], row["iteration_time_s"] - row["passes_s"]


PARTS = (("iteration", 0), ("devices' passes", 1), ("beyond the passes", 2))


def shade(colour, factor):
    """Returns a colour mixed with white."""
    rgb = [int(colour[i:i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - c) * factor):02x}" for c in rgb)


def clusters(ax, names, n_bars):
    """Prepares an axis for len(names) groups of n_bars bars. Returns the bars' width and their places."""
    width = 0.84 / n_bars
    look.name_ticks(ax, range(len(names)), names)
    ax.set_xlim(-0.55, len(names) - 0.45)
    ax.grid(axis="x", visible=False)
    return width, lambda group, bar: group - 0.42 + (bar + 0.5) * width


def missing(ax, x, y, row, name=None, colour="#666666"):
    """Writes the status of a row that does not fit in place of its bar: in the bar's colour, or with the name of whom it is."""
    if row:
        status = row.status.upper()
        ax.text(x, y, f"{name}: {status}" if name else status, rotation=90, ha="center", va="bottom", fontsize=7, color=colour,
                fontweight="normal" if name else "bold")


def split(experiment, axes):
    """Groups the positions by the values of some axes: {values: [place]}."""
    groups = {}
    for place in experiment.places():
        groups.setdefault(tuple(place[a] for a in axes), []).append(place)
    return groups


def speedups(experiment, path):
    """Draws speed-ups over the last series: a row for each part of an iteration, a column for each sequence length, groups of bars
    by model, and in a group a bar for each other series and entry of the list along the figure."""
    base, others = experiment.series[-1], experiment.series[:-1]
    at = AXES.index(experiment.along)
    steps = [None] if at == 0 else list(dict.fromkeys(p[at] for p in experiment.places()))
    columns = split(experiment, [AXES.index("seqs")])
    models = list(dict.fromkeys(p[0] for p in experiment.places()))
    bars = [(s, v) for s in others for v in steps]
    figure, grid = plt.subplots(len(PARTS), len(columns), figsize=(WIDTH, 2.25 * len(PARTS) + 0.4), sharex="col", sharey="row",
                                squeeze=False)
    for column, ((seq,), places) in enumerate(columns.items()):
        for row, (part, index) in enumerate(PARTS):
            ax = grid[row][column]
            width, x_of = clusters(ax, [experiment.short(m) for m in models], len(bars))
            ax.axhline(1, color="black", linewidth=0.8)
            for b, (series, value) in enumerate(bars):
                for g, model in enumerate(models):
                    place = next((p for p in places if p[0] == model and (at == 0 or p[at] == value)), None)
                    ours, theirs = experiment.chosen.get((series, place)), experiment.chosen.get((base, place))
                    if not ours or not theirs:
                        continue
                    if not (ours.ok and theirs.ok):
                        who = base if ours.ok else "both" if not theirs.ok else series if len(others) == 1 else None
                        missing(ax, x_of(g, b), 1.02, theirs if ours.ok else ours, who, *[] if who else [colour_of(experiment, series)])
                        continue
                    ratio = times(theirs)[index] / times(ours)[index]
                    ax.bar(x_of(g, b), ratio, width * 0.94, linewidth=0, color=colour(experiment, series, value, steps))
            if row == 0:
                ax.set_title(f"{seq} tokens")
            if column == 0:
                ax.set_ylabel(f"{part}:\nspeed-up over {base}")
            if row == len(PARTS) - 1:
                ax.set_xlabel("model")
    for line in grid:
        top = max((p.get_height() for ax in line for p in ax.patches), default=1)
        marked = any(ax.texts for ax in line)  # a mark begins at 1, and is as long as a third of the axis
        line[0].set_ylim(0, max(1.12 * max(top, 1), 1.55 if marked else 0))
    handles = [Patch(color=colour(experiment, s, v, steps), label=s if v is None else f"{s}, {experiment.entry(v, at)}")
               for s, v in bars]
    legend(figure, handles)
    save(figure, path, experiment)


def colour(experiment, series, value, steps):
    base = colour_of(experiment, series)
    return base if value is None else shade(base, SHADES[steps.index(value) % len(SHADES)])


def throughput(experiment, path):
    """Draws throughput by the list along the figure: a bar a series, a panel for each other scenario."""
    panels, note = filled(experiment)
    figure, axes = plt.subplots(1, len(panels), figsize=(WIDTH, 3.6), sharey=True, squeeze=False)
    factor, unit = flops_unit(max(r["tflops_per_gpu"] or 0 for r in experiment.rows))
    narrow = len(experiment.series) * len(experiment.places()) > 40
    for ax, (title, places) in zip(axes[0], panels):
        width, x_of = clusters(ax, [experiment.tick(p)[1] for p in places], len(experiment.series))
        for b, series in enumerate(experiment.series):
            for g, place in enumerate(places):
                row = experiment.chosen.get((series, place))
                if not row or not row.ok:
                    missing(ax, x_of(g, b), 0.01 * ax.get_ylim()[1], row, colour=colour_of(experiment, series))
                    continue
                value = factor * row["tflops_per_gpu"]
                ax.bar(x_of(g, b), value, width * 0.94, linewidth=0, color=colour_of(experiment, series))
                ax.text(x_of(g, b), value, f" {value:.3g}" if narrow else f"{value:.3g}", ha="center", va="bottom",
                        fontsize=7, rotation=90 if narrow else 0)
        ax.set_title(title)
        ax.set_xlabel(experiment.axis_title())
        ax.margins(y=0.12 if narrow else 0.05)
    axes[0][0].set_ylabel(f"useful {unit} per GPU")
    legend(figure, [Patch(color=colour_of(experiment, s), label=s) for s in experiment.series])
    save(figure, path, experiment, note=" ".join(filter(None, (note, statuses(r for r in experiment.rows if r.chosen and not r.ok)))))


def sizes(experiment, path):
    """Draws the largest of the models that fits, or of one model the largest batch, by the list along the figure: a bar a series, a
    panel for each other list."""
    at, open_ended = AXES.index(experiment.along), False
    of_models, values, panels = experiment.largest()
    others = [i for i in range(len(AXES)) if i not in (0 if of_models else AXES.index("batches"), at)]
    narrow = len(values) * len(experiment.series) * len(panels) >= 30
    figure, axes = plt.subplots(1, len(panels), figsize=(WIDTH, 3.6), sharey=True, squeeze=False)
    for ax, (places, largest) in zip(axes[0], panels):
        steps = [next(p for p in places if p[at] == v) for v in values]
        width, x_of = clusters(ax, [experiment.tick(p)[1] for p in steps], len(experiment.series))
        for b, series in enumerate(experiment.series):
            for g, value in enumerate(values):
                best = largest[series, value]
                if not best:
                    ax.text(x_of(g, b), 0, "none", rotation=90, ha="center", va="bottom", fontsize=7, color="#777777")
                    continue
                height = best.scenario["model"]["params"] / 1e9 if of_models else best.place[1]
                ax.bar(x_of(g, b), height, width * 0.94, linewidth=0, color=colour_of(experiment, series))
                ends = height == (max(r.scenario["model"]["params"] for r in experiment.rows) / 1e9 if of_models else max(r.place[1] for r in experiment.rows))
                open_ended = open_ended or ends
                label = ("\u2265 " if ends else "") + (experiment.short(best.place[0]) if of_models else f"{height}")
                ax.text(x_of(g, b), height, f" {label}" if narrow else label, ha="center", va="bottom", fontsize=7,
                        rotation=90 if narrow else 0)
        varying = [i for i in others if len(experiment.axes[AXES[i]]) > 1]
        ax.set_title(", ".join(experiment.label(places[0], i) for i in varying))
        ax.set_xlabel(experiment.axis_title())
    axes[0][0].set_ylabel("largest model that fits,\nbillion parameters" if of_models else "largest batch that fits,\nsequences")
    axes[0][0].set_ylim(0, 1.12 * axes[0][0].get_ylim()[1])
    legend(figure, [Patch(color=colour_of(experiment, s), label=s) for s in experiment.series])
    save(figure, path, experiment, note="\u2265: the list of sizes ends there." if open_ended else "")


def stacks(experiment, path, parts_of, unit):
    """Draws stacked bars, a bar a series and position, a panel for each scenario off the figure's list."""
    panels, _ = filled(experiment)
    figure, axes = plt.subplots(1, len(panels), figsize=(WIDTH, 3.6), sharey=True, squeeze=False)
    several = len(experiment.series) > 1
    for ax, (title, places) in zip(axes[0], panels):
        names, labels, at = [], [], 0
        for place in places:
            start = at
            for series in experiment.series:
                row = experiment.chosen.get((series, place))
                below = 0
                for height, shade_of in parts_of(row) if row and row.ok else []:
                    ax.bar(at, height, 0.84, bottom=below, color=shade_of, linewidth=0)
                    below += height
                if row and row.ok:
                    ax.text(at, below, f"{below:.3g}", ha="center", va="bottom", fontsize=7)
                else:
                    missing(ax, at, 0, row)
                names.append((at, series))
                at += 1
            labels.append(((start + at - 1) / 2, experiment.tick(place)[1]))
            at += 0.6
        if several:
            ax.set_xticks([x for x, _ in names], [n for _, n in names], fontsize=7.5)
            for x, label in labels:
                ax.text(x, -0.1, label, transform=ax.get_xaxis_transform(), ha="center", va="top")
        else:
            ax.set_xticks([x for x, _ in labels], [n for _, n in labels])
        ax.set_xlabel(experiment.axis_title(), labelpad=18 if several else 4)
        ax.set_title(title)
        ax.grid(axis="x", visible=False)
    axes[0][0].set_ylim(0, 1.06 * axes[0][0].get_ylim()[1])
    axes[0][0].set_ylabel(unit)
    return figure


def breakdown(experiment, path):
    """Draws the two parts of an iteration: the devices' passes, and the rest, in which the host steps."""
    figure = stacks(experiment, path, lambda row: zip(times(row)[1:], (GPU, CPU)), "iteration, s")
    legend(figure, [Patch(color=GPU, label="first forward to last backward"),
                    Patch(color=CPU, label="time beyond the passes: steps that nothing hides, copies")])
    save(figure, path, experiment)


def rollback(experiment, path):
    """Draws an iteration whose gradients overflow beyond the passes, as shares of an ok iteration: what an ok one takes there, too,
    and what the overflow adds. Where steps wait for the check, it takes less than an ok one."""
    def parts_of(row):
        ok, bad, passes = row["ok_iteration_time_s"], row["bad_iteration_time_s"], row["passes_s"]
        return [(100 * (min(ok, bad) - passes) / ok, CPU), (100 * max(bad - ok, 0) / ok, MORE)]

    figure = stacks(experiment, path, parts_of, "beyond the passes,\n% of an ok iteration")
    legend(figure, [Patch(color=CPU, label="steps that nothing hides, copies"), Patch(color=MORE, label="added by the overflow: undo")])
    save(figure, path, experiment)

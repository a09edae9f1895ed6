"""The figure of mixes of two kinds of devices: who is fastest on each, how fast, and what one more device of each kind brings."""

import matplotlib.pyplot as plt
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Patch, Rectangle

from figures import WIDTH, colour_of, legend, save
from results import AXES

TIE = 0.01  # throughputs within this share of each other count as equal
NONE = "#eeeeee"


def counts(mix):
    """Reads 'a100-80gb:3,h800-80gb:5' as {kind: count}."""
    return {kind: int(count or 1) for kind, _, count in (part.partition(":") for part in mix.split(","))}


class Map:
    """Throughput of each series by mix: rates[(a, b)] = {series: sequences/s}, a and b the counts of the two kinds."""

    def __init__(self, experiment):
        at = AXES.index("mixes")
        places = [p for p in experiment.places() if p[at]]
        self.series = experiment.series
        self.kinds = list(dict.fromkeys(k for p in reversed(places) for k in counts(p[at])))
        self.rates = {}
        for place in places:
            n = counts(place[at])
            rows = [(s, experiment.chosen.get((s, place))) for s in experiment.series]
            self.rates[tuple(n.get(k, 0) for k in self.kinds)] = {s: r["samples_per_s"] for s, r in rows if r and r.ok}
        self.most = [max(c[k] for c in self.rates) for k in (0, 1)]

    def best(self, cell):
        return max(self.rates.get(cell, {}).values(), default=0)

    def of(self, series, cell):
        return self.rates.get(cell, {}).get(series, 0)

    def winners(self, cell):
        """Returns the series within TIE of the best, in their order."""
        return [s for s in self.series if self.of(s, cell) > (1 - TIE) * self.best(cell) > 0]


def prepare(ax, m, title):
    ax.set_title(title, fontsize=9)
    ax.set_xlim(-0.5, m.most[1] + 0.5)
    ax.set_ylim(-0.5, m.most[0] + 0.5)
    ax.set_aspect("equal")
    ax.set_xticks(range(m.most[1] + 1))
    ax.set_yticks(range(m.most[0] + 1))
    ax.tick_params(length=0, labelsize=8)
    ax.grid(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)


def cell(ax, a, b, colour, text="", bold=False):
    """Draws a mix's cell. Text is white on dark colours."""
    red, green, blue = colour[:3] if not isinstance(colour, str) else (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    ax.add_patch(Rectangle((b - 0.47, a - 0.47), 0.94, 0.94, facecolor=colour, linewidth=0))
    if text:
        ax.text(b, a, text, ha="center", va="center", fontsize=7, fontweight="bold" if bold else "normal",
                color="white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.52 else "black")


def who(ax, m, experiment):
    """Colours each mix by its fastest system; small squares are others that are as fast. The number is the lead over the next one."""
    for (a, b), rates in m.rates.items():
        equal = m.winners((a, b))
        if not equal:
            cell(ax, a, b, NONE, "–")
            continue
        next_best = max((r for s, r in rates.items() if s not in equal), default=0)
        lead = f"{100 * (m.best((a, b)) / next_best - 1):.0f}" if next_best else ""
        cell(ax, a, b, colour_of(experiment, equal[0]), lead)
        for i, series in enumerate(equal[1:]):
            ax.add_patch(Rectangle((b - 0.43 + 0.2 * i, a - 0.43), 0.17, 0.17, facecolor=colour_of(experiment, series),
                                   edgecolor="white", linewidth=0.5))


def speed(ax, m, value_of, form):
    """Shades mixes by a value from 0."""
    values = {c: value_of(c) for c in m.rates}
    top = max(values.values()) or 1
    for (a, b), value in values.items():
        cell(ax, a, b, plt.cm.Blues(0.08 + 0.8 * value / top) if value else NONE, form.format(value) if value else "–")


def gain(ax, m, value_of, kind):
    """Shows by how many percent the throughput grows with the last device of a kind; red where it falls."""
    norm = TwoSlopeNorm(0, -25, 100)
    for c in m.rates:
        a, b = c
        before = (a - 1, b) if kind == 0 else (a, b - 1)
        if min(before) < 0 or sum(before) == 0:
            continue
        old, new = value_of(before), value_of(c)
        if not old or not new:
            cell(ax, a, b, NONE, "first" if new else "–")
            continue
        percent = 100 * (new / old - 1)
        shown = 0 if abs(percent) < 0.5 else percent
        cell(ax, a, b, plt.cm.RdYlGn(norm(max(-25, min(percent, 100)))), f"{shown:+.0f}" if shown else "0", percent < -100 * TIE)


def short(kind):
    return kind.partition("-")[0].upper()


def mixes(experiment, path):
    """Draws eight maps over the counts of both kinds: of the fastest system above, of the first series below."""
    m = Map(experiment)
    first = experiment.series[0]
    figure, axes = plt.subplots(2, 4, figsize=(WIDTH, 7.2), sharex=True, sharey=True)
    names = [short(k) for k in m.kinds]
    prepare(axes[0][0], m, "fastest system; its lead over\nthe next one, %")
    who(axes[0][0], m, experiment)
    prepare(axes[1][0], m, f"{first} over the fastest, %")
    speed(axes[1][0], m, lambda c: 100 * m.of(first, c) / m.best(c) if m.best(c) else 0, "{:.0f}")
    for row, (name, value_of) in enumerate((("the fastest", m.best), (first, lambda c: m.of(first, c)))):
        prepare(axes[row][1], m, f"{name}: sequences/s")
        speed(axes[row][1], m, value_of, "{:.3g}")
        for kind in (0, 1):
            ax = axes[row][2 + kind]
            prepare(ax, m, f"{name}: what its last {names[kind]}\nbrings, %")
            gain(ax, m, value_of, kind)
    for ax in axes[1]:
        ax.set_xlabel(names[1])
    for line in axes:
        line[0].set_ylabel(names[0])
    legend(figure, [Patch(color=colour_of(experiment, s), label=s) for s in experiment.series])
    save(figure, path, experiment, note=f"Small squares: systems that are as fast, within {100 * TIE:.0f}%. Bold: the device makes it slower. \u2013: it does not fit; first: it does not fit without the device.")

"""The paper's values beside ours: rows of `hetbench reproduce --out results/claims/PAPER.csv` that belong to an experiment."""

import csv
import textwrap

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from figures import WIDTH, legend, save

OURS, OUTSIDE, BAND = "#0072b2", "#d55e00", "#dcebdc"


def rows_of(name, folder):
    """Returns the checked rows whose ids begin with the experiment's name: of autohet-fig8 those of autohet.fig8."""
    path = folder / "claims" / f"{name.partition('-')[0]}.csv"
    if not path.is_file():
        return []
    prefix = name.replace("-", ".")
    with open(path, encoding="utf-8", newline="") as file:
        return [r for r in csv.DictReader(file) if r["id"].startswith(prefix) and r["verdict"] in ("within", "outside") and not r["reading"]]


def number(text):
    """Reads a value, also of a bound such as '<= 0.92'."""
    try:
        return float(text.lstrip("<>= "))
    except ValueError:
        return None


def drawable(rows):
    """Returns the rows with a figure of the paper's that is a ratio. Orders (more than 1) and plan variables are for the table."""
    return [r for r in rows if r["unit"] in ("ratio", "fraction") and number(r["ours"]) is not None and number(r["paper"]) is not None
            and (number(r["paper"]) != 1 or r["paper"] == "1")]


def band(row, right=0):
    """Returns the ends of what the row's tolerance allows, on an axis from 0 to `right`."""
    value, text = number(row["paper"]), row["tolerance"] or "0"
    off = value * float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if row["paper"].startswith(">"):
        return value - off, right
    return (0 if row["paper"].startswith("<") else value - off), value + off


def beside(rows, path, of):
    """Draws a dumbbell a claim over the band of its tolerance. Returns False if no row can be drawn."""
    rows = drawable(rows)
    if not rows:
        return False
    names = [textwrap.fill(r["statement"].rstrip("."), 54) for r in rows]
    figure, ax = plt.subplots(figsize=(WIDTH, (0.36 if "\n" not in "".join(names) else 0.46) * len(rows) + 0.9))
    right = max(max(1.12 * number(r["paper"]), 1.12 * number(r["ours"]), 1.04 * band(r)[1]) for r in rows)
    left = min(0, 1.3 * min(number(r["ours"]) for r in rows))
    for y, row in enumerate(rows):
        paper, ours = number(row["paper"]), number(row["ours"])
        low, high = band(row, right)
        low = max(low, 0) if high > 0 else left
        ax.barh(y, max(high - low, 0.004 * right), 0.62, left=low, color=BAND, linewidth=0)
        ax.plot([paper, ours], [y, y], color="#999999", linewidth=1.6, zorder=2)
        ax.plot([paper], [y], "|", color="black", markersize=13, markeredgewidth=2, zorder=3)
        ax.plot([ours], [y], "o", color=OURS if row["verdict"] == "within" else OUTSIDE, markersize=7, zorder=4)
        ax.text(1.005, y, f"paper {row['paper'].replace('<=', '≤').replace('>=', '≥')}, ours {ours:.3g}", transform=ax.get_yaxis_transform(), va="center", fontsize=8)
    ax.axvline(1, color="black", linewidth=0.8, linestyle=(0, (3, 3)))
    ax.set_yticks(range(len(rows)), names, fontsize=8.5)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(left, right)
    ax.set_xlabel(rows[0]["unit"])
    ax.grid(axis="y", visible=False)
    ours = [Line2D([], [], color=colour, marker="o", linestyle="", label=f"ours, {verdict}") for verdict, colour in (("within", OURS), ("outside", OUTSIDE))
            if any(r["verdict"] == verdict for r in rows)]
    legend(figure, [Line2D([], [], color="black", marker="|", linestyle="", markersize=11, markeredgewidth=2, label="the paper's"), *ours,
                    Patch(color=BAND, label="tolerance")])
    save(figure, path, of, "the paper's values beside ours")
    return True

"""The paper's values beside ours: rows of `hetbench reproduce --out results/claims/PAPER.csv` that belong to an experiment."""

import csv

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

from figures import WIDTH, legend, save

PAPER, OURS = "#7f7f7f", "#0072b2"


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


def beside(rows, path):
    """Draws two bars a claim. Returns False if no row can be drawn."""
    rows = drawable(rows)
    if not rows:
        return False
    figure, ax = plt.subplots(figsize=(WIDTH * 0.8, 0.62 * len(rows) + 0.7))
    for i, row in enumerate(rows):
        for text, colour, at in ((row["paper"], PAPER, -0.18), (row["ours"], OURS, 0.18)):
            ax.barh(i + at, number(text), 0.33, color=colour, linewidth=0)
            sign = text[:2] + " " if text[0] in "<>" else ""
            ax.text(number(text), i + at, f" {sign}{number(text):.3g}", va="center", ha="left", fontsize=8)
    ax.axvline(1, color="black", linewidth=0.8, linestyle=(0, (3, 3)))
    ax.set_yticks(range(len(rows)), [r["id"].partition(".")[2] for r in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, 1.08 * max(max(number(r["paper"]), number(r["ours"])) for r in rows))
    ax.set_xlabel(rows[0]["unit"])
    ax.grid(axis="y", visible=False)
    legend(figure, [Patch(color=PAPER, label="the paper's"), Patch(color=OURS, label="ours, simulated")])
    save(figure, path)
    return True

#!/usr/bin/env python3
"""Draws the throughput of several systems over several models, from the compare.json that `hetbench compare --out DIR` writes.

    throughput.py --out FILE.png|FILE.svg COMPARE.json

A bar a system and model; OOM marks a system that does not fit.
"""

import argparse
import json
import sys

sys.dont_write_bytecode = True

import backend
import look
import matplotlib.pyplot as plt
from matplotlib.patches import Patch
from look import SERIES_COLOURS

from results import setting

def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            root = json.load(file)
        return root, root["rows"]
    except (OSError, ValueError, KeyError, TypeError) as why:
        backend.stop(f"{path}: not a comparison that hetbench wrote: {why}")


def words(root):
    """Returns title and provenance of a comparison."""
    systems, models = ({r["system"] for r in root["rows"]}, {r["scenario"]["model"]["name"] for r in root["rows"]})
    return (f"Throughput of {len(systems)} systems on {len(models)} model{'s' if len(models) > 1 else ''}", f"{setting([r['scenario'] for r in root['rows']])}. {root['obtained'].capitalize()} at "
            f"{root.get('commit', 'unknown')}. TFLOP/s: 3 x forward matrix products.")


def figure_of(rows):
    """Draws a bar a system and model; a system that does not fit has its status in place of the bar."""
    models = list(dict.fromkeys(r["scenario"]["model"]["name"] for r in rows))
    systems = list(dict.fromkeys(r["system"] for r in rows))
    by = {(r["scenario"]["model"]["name"], r["system"]): r for r in rows}
    width = 0.84 / len(systems)
    figure, ax = plt.subplots(figsize=(max(8, 0.24 * len(models) * len(systems) + 1.5), 4.4), constrained_layout=True)
    top = max([r.get("tflops_per_gpu") or 0 for r in rows] + [1])
    for i, system in enumerate(systems):
        colour = SERIES_COLOURS[i % len(SERIES_COLOURS)]
        for j, model in enumerate(models):
            row = by.get((model, system))
            if row is None:
                continue
            x = j + (i + 0.5) * width - 0.42
            value = row.get("tflops_per_gpu")
            if value:
                ax.bar(x, value, width * 0.92, color=colour)
                ax.text(x, value + top * 0.008, f"{value:.0f}" if top >= 20 else f"{value:.2g}", ha="center", va="bottom", fontsize=7)
            else:
                ax.text(x, top * 0.012, f"{system}: {row['status'].upper()}", ha="center", va="bottom", rotation=90, fontsize=7, color="#555555")
    ax.set_xticks(range(len(models)), models, fontsize=8.5, rotation=20 if len(models) > 7 else 0)
    ax.set_xlim(-0.5, len(models) - 0.5)
    ax.set_ylim(0, top * 1.1)
    ax.set_ylabel("useful TFLOP/s per GPU")
    ax.grid(axis="x", visible=False)
    runs = [s for s in systems if any(r.get("tflops_per_gpu") for r in rows if r["system"] == s)]
    look.legend(figure, [Patch(color=SERIES_COLOURS[systems.index(s) % len(SERIES_COLOURS)], label=s) for s in runs])
    return figure


def draw(root, rows, out):
    look.style()
    figure = figure_of(rows)
    look.stamp(figure, *words(root))
    look.write(figure, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("compare", metavar="COMPARE.json")
    parser.add_argument("--out", required=True, help="PNG or SVG to write, by its ending")
    args = parser.parse_args()
    root, rows = load(args.compare)
    if not rows:
        backend.stop(f"{args.compare}: no rows; expected at least one")
    draw(root, rows, args.out)


if __name__ == "__main__":
    main()

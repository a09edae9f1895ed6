#!/usr/bin/env python3
"""Draws the throughput of several systems over several models, from the compare.json that `hetbench compare --out DIR` writes.

    throughput.py --out FILE.png COMPARE.json

A bar a system and model; OOM marks a system that does not fit.
"""

import argparse
import json
import sys

sys.dont_write_bytecode = True

import backend
import matplotlib.pyplot as plt

from results import setting

COLOURS = ["#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#999999",
           "#332288", "#117733", "#882255", "#aa9944"]


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            root = json.load(file)
        return root, root["rows"]
    except (OSError, ValueError, KeyError, TypeError) as why:
        backend.stop(f"{path}: not a comparison that hetbench wrote: {why}")


def draw(root, rows, out):
    models = list(dict.fromkeys(r["scenario"]["model"]["name"] for r in rows))
    systems = list(dict.fromkeys(r["system"] for r in rows))
    by = {(r["scenario"]["model"]["name"], r["system"]): r for r in rows}
    width = 0.84 / len(systems)
    figure, ax = plt.subplots(figsize=(max(8, 0.24 * len(models) * len(systems) + 1.5), 4.4), constrained_layout=True)
    top = max([r.get("tflops_per_gpu") or 0 for r in rows] + [1])
    for i, system in enumerate(systems):
        label = system
        for j, model in enumerate(models):
            row = by.get((model, system))
            if row is None:
                continue
            x = j + (i + 0.5) * width - 0.42
            value = row.get("tflops_per_gpu")
            if value:
                ax.bar(x, value, width * 0.92, color=COLOURS[i % len(COLOURS)], label=label)
                label = None
                ax.text(x, value + top * 0.008, f"{value:.0f}", ha="center", va="bottom", fontsize=7)
            else:
                ax.text(x, top * 0.012, row["status"].upper(), ha="center", va="bottom", rotation=90, fontsize=7,
                        color="#555555")
        if label:
            ax.bar(0, 0, 0, color=COLOURS[i % len(COLOURS)], label=label)
    heading = f"{setting([r['scenario'] for r in rows])} ({root['obtained']})"
    ax.set_title(heading.replace("; ", "\n"), loc="left", fontsize=9)
    ax.set_xticks(range(len(models)), models, fontsize=8, rotation=20 if len(models) > 7 else 0)
    ax.set_xlim(-0.5, len(models) - 0.5)
    ax.set_ylim(0, top * 1.1)
    ax.set_ylabel("useful TFLOP/s per GPU\n(3 x forward matrix products)", fontsize=9)
    ax.grid(axis="y", linewidth=0.3)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    figure.legend(fontsize=8, frameon=False, ncol=min(len(systems), 6), loc="lower left", bbox_to_anchor=(0.05, 1))
    figure.savefig(out, dpi=110, bbox_inches="tight")
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("compare", metavar="COMPARE.json")
    parser.add_argument("--out", required=True, help="PNG to write")
    args = parser.parse_args()
    root, rows = load(args.compare)
    if not rows:
        backend.stop(f"{args.compare}: no rows; expected at least one")
    draw(root, rows, args.out)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws timelines from traces: a Gantt chart with one row a lane, and below it the memory by tensor class.

    timeline.py --out FILE.png [--capacity "device 0=12000000"] [--iteration K] TRACE [TRACE ...]

A trace is what `hetbench sim --trace` and `hetbench train --trace` write (Chrome trace events; common/trace/perfetto.c).
Several traces are drawn one above the other on the same scale of time. One iteration of the steady state has
full colours; the ends of its neighbours are pale.
"""

import argparse
import json
import sys

import backend
import matplotlib.pyplot as plt
from matplotlib import ticker
from matplotlib.patches import Patch, Rectangle

# Okabe and Ito's palette, which colour-blind readers can tell apart.
KIND_COLOURS = {
    "forward": "#56b4e9", "recompute": "#a6d8f2", "backward": "#e69f00", "copy": "#009e73", "accumulate": "#66c2a5",
    "optimizer_step": "#cc79a7", "undo": "#d55e00", "all_gather": "#0072b2", "reduce_scatter": "#3d6ea8",
    "all_reduce": "#22577a", "send": "#7a9e3d", "receive": "#b5c98e", "validate": "#888888", "restore": "#555555",
    "transpose": "#b2182b",
}
CLASS_COLOURS = {
    "param": "#0072b2", "master": "#3d6ea8", "momentum": "#cc79a7", "variance": "#e3b3cd", "grad": "#d55e00",
    "activation": "#56b4e9", "checkpoint": "#009e73", "act_grad": "#e69f00", "logits": "#f0e442",
    "workspace": "#999999", "staging": "#bbbbbb", "comm": "#666666",
}
OTHER = "#cccccc"
MARGIN = 0.06  # of an iteration, shown before and after it


class Trace:
    """The lanes, ops and memory of one file; times in seconds."""

    def __init__(self, path):
        try:
            with open(path, encoding="utf-8") as file:
                root = json.load(file)
            self.head, events = root["otherData"], root["traceEvents"]
        except (OSError, ValueError, KeyError, TypeError) as why:
            backend.stop(f"{path}: not a trace that hetbench wrote: {why}")
        self.lanes, self.ops, self.memory = {}, [], {}
        for e in events:
            if e["ph"] == "M" and e["name"] == "thread_name":
                self.lanes[e["tid"]] = e["args"]["name"]
            elif e["ph"] == "X":
                self.ops.append((e["args"]["iteration"], e["tid"], e["ts"] * 1e-6, e["dur"] * 1e-6, e["cat"], e["name"]))
            elif e["ph"] == "C":
                self.memory.setdefault(e["name"], []).append((e["ts"] * 1e-6, e["args"]))
        if not self.ops:
            backend.stop(f"{path}: no ops; expected at least one")
        self.obtained = {"sim": "simulated", "emu": "emulated"}.get(self.head["clock"], "measured")
        self.schedule = self.head["schedule"]

    def span(self, iteration):
        """Returns the iteration's start and its length, up to the start of the next one or to its own end."""
        own = [o for o in self.ops if o[0] == iteration]
        if not own:
            backend.stop(f"iteration {iteration} is out of range; the trace has {self.head['iterations']}")
        begin = min(o[2] for o in own)
        after = [o[2] for o in self.ops if o[0] == iteration + 1]
        return begin, (min(after) if after else max(o[2] + o[3] for o in own)) - begin

    def steady(self):
        """Returns an iteration far from both ends of the trace, of median length, so that no outlier is shown as typical."""
        n = self.head["iterations"]
        inner = list(range(min(2, n - 1), max(n - 1, min(2, n - 1) + 1)))
        by_length = sorted(inner, key=lambda k: self.span(k)[1])
        return by_length[len(by_length) // 2]


def quantity(value, unit, steps):
    for factor, prefix in steps:
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def seconds(value):
    return quantity(value, "s", [(1, ""), (1e-3, "m"), (1e-6, "µ")])


def size(value):
    return quantity(value, "B", [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")])


def scale_of(largest, units):
    for factor, name in units:
        if largest >= factor:
            return factor, name
    return units[-1]


TIME_UNITS = [(1, "s"), (1e-3, "ms"), (1e-6, "µs")]
BYTE_UNITS = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")]


def draw_lanes(ax, trace, iteration, begin, length, window, time_scale, inches_per_s):
    """Draws one row a lane; a bar has its name in it if that fits."""
    rows = {tid: i for i, tid in enumerate(sorted(trace.lanes))}
    left, right = begin + window[0], begin + window[1]
    kinds = []
    for k, tid, start, duration, kind, name in trace.ops:
        if start + duration < left or start > right:
            continue
        own = k == iteration
        if own and kind not in kinds:
            kinds.append(kind)
        x, width = (start - begin) / time_scale, duration / time_scale
        inches, colour = duration * inches_per_s, KIND_COLOURS.get(kind, OTHER)
        ax.add_patch(Rectangle((x, rows[tid] - 0.4), width, 0.8, facecolor=colour, linewidth=0.5,
                               edgecolor="white" if inches > 0.04 else colour, alpha=1 if own else 0.3))
        if own and inches > 0.075 * len(name) + 0.04:
            ax.text(x + width / 2, rows[tid], name, ha="center", va="center", fontsize=7, clip_on=True)
        elif own and inches > 0.13 and len(name) <= 12:
            ax.text(x + width / 2, rows[tid], name, ha="center", va="center", fontsize=6, rotation=90, clip_on=True)
    for x in (0, length / time_scale):
        ax.axvline(x, color="black", linewidth=0.7, linestyle=(0, (4, 3)))
    ax.set_yticks(range(len(rows)), [trace.lanes[tid] for tid in sorted(trace.lanes)])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    return kinds


def draw_memory(ax, trace, space, begin, length, window, time_scale, capacity):
    """Draws stacked steps, the largest class at the bottom."""
    samples = trace.memory[space]
    left, right = begin + window[0], begin + window[1]
    before = [s for s in samples if s[0] <= left][-1:]
    shown = [(left, before[0][1])] if before else []
    shown += [s for s in samples if left < s[0] < right]
    if not shown:
        shown = samples[-1:]
    shown.append((right, shown[-1][1]))
    classes = [c for c in samples[0][1] if any(s[1].get(c) for s in shown)]
    classes.sort(key=lambda c: -min(s[1].get(c, 0) for s in shown))
    peak = max(sum(s[1].values()) for s in shown)
    unit, unit_name = scale_of(max(peak, 1), BYTE_UNITS)
    ax.stackplot([(s[0] - begin) / time_scale for s in shown],
                 [[s[1].get(c, 0) / unit for s in shown] for c in classes],
                 colors=[CLASS_COLOURS.get(c, OTHER) for c in classes], step="post", linewidth=0)
    top = peak
    if capacity and capacity <= 1.5 * peak:
        ax.axhline(capacity / unit, color="#c00000", linewidth=1.3)
        ax.annotate(f"capacity {size(capacity)}", (1, capacity / unit), (-4, 2), color="#c00000", fontsize=7.5,
                    ha="right", va="bottom", xycoords=ax.get_yaxis_transform(), textcoords="offset points")
        top = max(peak, capacity)
    note = f"peak {size(peak)}" + (f" of {size(capacity)}" if capacity and capacity > 1.5 * peak else "")
    ax.text(0.004, 0.965, note, fontsize=7.5, va="top", transform=ax.transAxes,
            bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.5})
    ax.set_ylim(0, top / unit * 1.2)
    ax.set_ylabel(f"{space}\n{unit_name}", fontsize=8)
    ax.yaxis.set_major_locator(ticker.MaxNLocator(4))
    ax.grid(axis="y", linewidth=0.3)
    for x in (0, length / time_scale):
        ax.axvline(x, color="black", linewidth=0.7, linestyle=(0, (4, 3)))
    return classes


def draw(traces, out, capacities, wanted):
    picks = []
    for trace in traces:
        iteration = trace.steady() if wanted is None else wanted
        picks.append((trace, iteration, *trace.span(iteration)))
    longest = max(p[3] for p in picks)
    window = (-MARGIN * longest, (1 + MARGIN) * longest)
    time_scale, time_unit = scale_of(longest, TIME_UNITS)
    width = 13
    inches_per_s = (width - 1.6) / (window[1] - window[0])
    heights = []
    for trace, *_ in picks:
        heights += [0.42 * len(trace.lanes) + 0.2] + [1.25] * len(trace.memory)
    height = sum(heights) + 0.4 * len(heights) + 0.6
    figure, axes = plt.subplots(len(heights), 1, figsize=(width, height), sharex=True, squeeze=False,
                                gridspec_kw={"height_ratios": heights}, constrained_layout=True)
    axes = axes[:, 0]
    kinds, classes, at = [], [], 0
    for trace, iteration, begin, length in picks:
        axes[at].set_title(f"{trace.schedule}, {trace.obtained}: iteration {iteration + 1} of "
                           f"{trace.head['iterations']}, {seconds(length)}", fontsize=10, loc="left", fontweight="bold")
        kinds += [k for k in draw_lanes(axes[at], trace, iteration, begin, length, window, time_scale, inches_per_s)
                  if k not in kinds]
        at += 1
        for space in trace.memory:
            classes += [c for c in draw_memory(axes[at], trace, space, begin, length, window, time_scale,
                                               capacities.get(space)) if c not in classes]
            at += 1
    axes[-1].set_xlabel(f"time since the iteration began, {time_unit}", fontsize=9)
    axes[-1].set_xlim(window[0] / time_scale, window[1] / time_scale)
    for ax in axes:
        ax.tick_params(labelsize=8)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    for y, title, names, colours in ((0, "ops:", kinds, KIND_COLOURS), (-0.24 / height, "memory:", classes, CLASS_COLOURS)):
        handles = [Patch(color=colours.get(name, OTHER), label=name.replace("_", " ")) for name in names]
        legend = figure.legend(handles=[Patch(alpha=0, label=title)] + handles, loc="upper left", fontsize=8,
                               bbox_to_anchor=(0.04, y), ncol=len(names) + 1, frameon=False, handlelength=1.2,
                               columnspacing=1.2)
        legend.get_texts()[0].set_fontweight("bold")
    figure.savefig(out, dpi=110, bbox_inches="tight")
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--out", required=True, help="PNG to write")
    parser.add_argument("--capacity", action="append", default=[], metavar="PLACE=BYTES",
                        help='line in the memory plot, such as "device 0=12000000"; may be repeated')
    parser.add_argument("--iteration", type=int, help="which iteration, from 0 [a typical one of the steady state]")
    args = parser.parse_args()
    capacities = {}
    for text in args.capacity:
        place, _, value = text.partition("=")
        if not value.isdigit():
            backend.stop(f"invalid --capacity {text!r}: expected PLACE=BYTES")
        capacities[place] = int(value)
    draw([Trace(path) for path in args.traces], args.out, capacities, args.iteration)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws timelines from traces: a Gantt chart with one row a lane, and below it the memory by tensor class.

    timeline.py --out FILE.png|FILE.svg [--capacity "device 0=12000000"] [--iteration K] TRACE [TRACE ...]

A trace is what `hetbench sim --trace` and `hetbench train --trace` write (Chrome trace events; common/trace/perfetto.c).
Several traces are drawn one above the other on the same scale of time. One iteration of the steady state has
full colours; the ends of its neighbours are pale.
"""

import argparse
import sys

sys.dont_write_bytecode = True

import backend
import look
import matplotlib.pyplot as plt
from matplotlib import ticker
from matplotlib.patches import Patch, Rectangle

from traces import BYTE_UNITS, CLASS_COLOURS, OTHER, TIME_UNITS, Trace, in_order, scale_of, seconds, size

MARGIN = 0.06  # of an iteration, shown before and after it
HATCH = {"facecolor": "#f4f4f4", "edgecolor": "#c4c4c4", "hatch": "////", "linewidth": 0}


def draw_lanes(ax, trace, iteration, begin, length, window, time_scale, inches_per_s):
    """Draws one row a lane; a bar has its name in it if that fits. What a compute lane does not use is hatched. Returns the groups of
    ops that are shown, with their colours."""
    rows = {tid: i for i, tid in enumerate(trace.used())}
    left, right = begin + window[0], begin + window[1]
    groups = {}
    for tid, row in rows.items():
        if trace.computes(tid):
            ax.add_patch(Rectangle((0, row - 0.38), length / time_scale, 0.76, zorder=0.5, **HATCH))
        ax.text(1.004, row, f"{100 * trace.busy(tid, begin, length):.0f}%", transform=ax.get_yaxis_transform(), va="center", fontsize=8,
                color="#444444")
    ax.text(1.004, -0.62, "busy", transform=ax.get_yaxis_transform(), va="bottom", fontsize=7.5, color="#444444")
    for o in trace.ops:
        if o.start + o.duration < left or o.start > right or o.lane not in rows:
            continue
        own = o.iteration == iteration
        group, colour = o.group()
        if own:
            groups.setdefault(group, colour)
        x, width = (o.start - begin) / time_scale, o.duration / time_scale
        inches = o.duration * inches_per_s
        ax.add_patch(Rectangle((x, rows[o.lane] - 0.4), width, 0.8, facecolor=colour, linewidth=0.5,
                               edgecolor="white" if inches > 0.04 else colour, alpha=1 if own else 0.3))
        letters = {"ha": "center", "va": "center", "clip_on": True, "color": look.letters_on(colour)}
        if own and inches > 0.075 * len(o.name) + 0.04:
            ax.text(x + width / 2, rows[o.lane], o.name, fontsize=7, **letters)
        elif own and inches > 0.13 and len(o.name) <= 5:
            ax.text(x + width / 2, rows[o.lane], o.name, fontsize=6, rotation=90, **letters)
    for x in (0, length / time_scale):
        ax.axvline(x, color="black", linewidth=0.7, linestyle=(0, (4, 3)))
    ax.set_yticks(range(len(rows)), [trace.lanes[tid] for tid in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    return groups


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
                    ha="right", va="bottom", xycoords=ax.get_yaxis_transform(), textcoords="offset points",
                    bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8})
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


def figure_of(traces, capacities, wanted=None, names=None):
    """Draws traces one above the other on one scale of time. names: of the systems, in place of those in the traces."""
    picks = []
    for i, trace in enumerate(traces):
        iteration = wanted[min(i, len(wanted) - 1)] if wanted else trace.steady()
        picks.append((trace, iteration, *trace.span(iteration)))
    longest = max(p[3] for p in picks)
    window = (-MARGIN * longest, (1 + MARGIN) * longest)
    time_scale, time_unit = scale_of(longest, TIME_UNITS)
    width = 13
    inches_per_s = (width - 1.6) / (window[1] - window[0])
    heights = []
    for trace, *_ in picks:
        heights += [0.42 * len(trace.used()) + 0.2] + [1.25] * len(trace.memory)
    height = sum(heights) + 0.4 * len(heights) + 0.6
    figure, axes = plt.subplots(len(heights), 1, figsize=(width, height), sharex=True, squeeze=False,
                                gridspec_kw={"height_ratios": heights}, constrained_layout=True)
    axes = axes[:, 0]
    groups, classes, at = {}, [], 0
    for trace, iteration, begin, length in picks:
        axes[at].set_title(f"{names[traces.index(trace)] if names else trace.schedule}, {trace.obtained}: iteration {iteration + 1} of "
                           f"{trace.head['iterations']}, {seconds(length)}", fontsize=10, loc="left", fontweight="bold")
        groups.update(draw_lanes(axes[at], trace, iteration, begin, length, window, time_scale, inches_per_s))
        axes[at].grid(False)
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
    ops = [Patch(color=colour, label=label) for label, colour in groups.items()] + [Patch(label="computes nothing", **HATCH)]
    rows = look.legend(figure, ops, below=True, points=8.5, heading="ops:")
    look.legend(figure, [Patch(color=c, label=label) for label, c in in_order(classes).items()], below=True, points=8.5, heading="memory:", drop=rows)
    return figure


def draw(traces, out, capacities, wanted, title=None, note=None):
    look.style()
    figure = figure_of(traces, capacities, wanted)
    if title:
        look.stamp(figure, title, note or "")
    look.write(figure, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--out", required=True, help="PNG or SVG to write, by its ending")
    parser.add_argument("--capacity", action="append", default=[], metavar="PLACE=BYTES",
                        help='line in the memory plot, such as "device 0=12000000"; may be repeated')
    parser.add_argument("--iteration", action="append", type=int, default=[],
                        help="which iteration, from 0 [a typical one of the steady state]; repeated, one a trace")
    parser.add_argument("--title", help="title of the picture")
    parser.add_argument("--note", help="line below the picture, such as the cluster and the commit")
    args = parser.parse_args()
    capacities = {}
    for text in args.capacity:
        place, _, value = text.partition("=")
        if not value.isdigit():
            backend.stop(f"invalid --capacity {text!r}: expected PLACE=BYTES")
        capacities[place] = int(value)
    draw([Trace(path) for path in args.traces], args.out, capacities, args.iteration, args.title, args.note)


if __name__ == "__main__":
    main()

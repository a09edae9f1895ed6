#!/usr/bin/env python3
"""Timelines of pipelines from traces, as the papers draw them: a row for each GPU and one for its CPU optimizer.

    pipeline.py --out FILE.png|FILE.svg [--unit SECONDS] [--iteration K] [--title TEXT] [--heading TEXT] [--note TEXT] TRACE [TRACE ...]

A trace is what `hetbench sim SYSTEM --trace FILE` writes of a pipeline: passes are named f<stage>.<micro-batch> and
b<stage>.<micro-batch> (common/draft/pipe.h). Blue tints are forward stages, yellow to brown tints backward stages, in the
order in which a GPU comes to them; green are optimizer steps on the CPU; thin bars under a GPU are parameters coming (green)
and gradients leaving (red). Several traces are drawn one above the other on one scale of time. Prints each one's
iteration and bubble ratio: the share of the GPUs' time in which they compute nothing. --unit: what the axis counts in.
"""

import argparse
import re
import sys

import backend
import look
import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

import timeline
from writing import unwritten

FORWARD = ["#9ecae1", "#4f9bd0", "#2b6ca8", "#c6dbef"]
BACKWARD = ["#fff3b0", "#ffd64d", "#f5a623", "#c8742a", "#8c4a1f", "#e8b98a", "#d9a441", "#a65f2b"]
STEP, STEP_DEVICE, UNDO, CHECK = "#74c476", "#41ab5d", "#d55e00", "#999999"
FETCH, OFFLOAD = "#009e73", "#d55e00"  # parameters and gradients, as in timeline.py
PASS = re.compile(r"([fb])(\d+)\.(\d+)$")
COMPUTE = ("forward", "recompute", "backward", "accumulate")
WIDTH = 13


class Pipeline:
    """One iteration of a trace by GPU. Times are seconds since the iteration began."""

    def __init__(self, path, iteration):
        trace = timeline.Trace(path)
        self.name, self.obtained = trace.schedule, trace.obtained
        self.iteration = trace.steady() if iteration is None else iteration
        self.begin, self.length = self.span(trace)
        rank_of = {tid: int(m.group(1)) if (m := re.match(r"rank (\d+) ", name)) else 0
                   for tid, name in trace.lanes.items()}
        self.ranks = 1 + max(rank_of.values())
        compute_lanes = {o.lane for o in trace.ops if o.kind in COMPUTE}
        self.passes = [[] for _ in range(self.ranks)]  # (f or b, stage, micro-batch, [(start, end)])
        self.host = [[] for _ in range(self.ranks)]    # (kind, stage, start, end)
        self.moves = [[] for _ in range(self.ranks)]   # (to the device?, start, end)
        self.busy = [0.0] * self.ranks
        for k, tid, start, duration, kind, name, *_ in sorted(trace.ops, key=lambda op: op.start):
            if k != self.iteration or duration <= 0:
                continue
            rank, start = rank_of[tid], start - self.begin
            end = start + duration
            if tid in compute_lanes:
                self.busy[rank] += duration
                self.add_compute(rank, kind, name, start, end)
            elif kind in ("optimizer_step", "undo", "validate"):
                self.host[rank].append((kind, re.sub(r"\D", "", name), start, end))
            elif kind == "copy":
                self.moves[rank].append((trace.lanes[tid].split()[-1] in ("h2d", "fetch"), start, end))
            elif kind == "receive" and trace.lanes[tid].endswith((" get", " remote")):
                self.moves[rank].append((True, start, end))
        if not any(any(p[0] in "fb" for p in passes) for passes in self.passes):
            timeline.backend.stop(f"{path}: no op is named as a pass of a pipeline (f0.0, b3.1)")
        forward = {p[1] for passes in self.passes for p in passes if p[0] == "f"}
        backward = {p[1] for passes in self.passes for p in passes if p[0] == "b"}
        self.d = max(1, len(backward) // max(1, len(forward)))
        self.bubble = 1 - sum(self.busy) / (self.ranks * self.length)

    def span(self, trace):
        """Returns Trace.span of the ops that take time; others may begin while the previous iteration still runs."""
        trace.ops = [op for op in trace.ops if op.duration > 0]
        return trace.span(self.iteration)

    def add_compute(self, rank, kind, name, start, end):
        """Adds an op to the box of its pass; a pass that waits in between has several spans."""
        match = PASS.match(name)
        which = (match.group(1), int(match.group(2)), int(match.group(3))) if match else ("u", 0, 0)
        passes = self.passes[rank]
        if passes and passes[-1][:3] == which:
            spans = passes[-1][3]
            if start - spans[-1][1] < 1e-6 * self.length:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        else:
            passes.append((*which, [(start, end)]))

    def label(self, letter, stage, micro_batch):
        """Returns the texts for a box, the best first, with their approximate widths in letters."""
        place = f"{stage // self.d},{stage % self.d}" if letter != "f" and self.d > 1 else f"{stage}"
        wide = 1 + 0.62 * len(place)
        if micro_batch is None:
            return [(f"${letter}_{{{place}}}$", wide)]
        return [(f"${letter}_{{{place}}}^{{{micro_batch}}}$", wide), (f"{micro_batch}", len(f"{micro_batch}"))]


def shades(passes):
    """Returns the colours of a GPU's stages, {(f or b, stage): colour}, by the order of their first passes, and the numbers of
    forward and backward stages."""
    order = {"f": [], "b": []}
    for letter, stage, *_ in passes:
        if letter in order and stage not in order[letter]:
            order[letter].append(stage)
    colours = {("f", s): FORWARD[i % len(FORWARD)] for i, s in enumerate(order["f"])}
    colours.update({("b", s): BACKWARD[i % len(BACKWARD)] for i, s in enumerate(order["b"])})
    return colours, len(order["f"]), len(order["b"])


def box(ax, y, height, start, end, colour, scale, text="", points=9):
    ax.add_patch(Rectangle((start / scale, y - height / 2), (end - start) / scale, height, facecolor=colour,
                           linewidth=0.5 if points else 0, edgecolor="#444444"))
    if not text:
        return
    ax.text((start + end) / 2 / scale, y, text, ha="center", va="center", fontsize=points, color=look.letters_on(colour), clip_on=True)


def fitting(texts, inches):
    """Returns the index of the first of texts (text, letters wide) that fits into a box, and the size of its letters. Index None:
    none fits; size 0: the box is too narrow for a frame, too."""
    for i, (_, wide) in enumerate(texts):
        for points in (9, 7.5, 6):
            if inches > wide * points * 0.0092 + 0.03:
                return i, points
    return None, 9 if inches > 0.05 else 0


def sub_rows(ops):
    """Returns a row for each optimizer step and the number of rows: steps that run at the same time get different rows."""
    ends, rows = [], []
    for _, _, start, end in ops:
        row = next((i for i, e in enumerate(ends) if e <= start + 1e-12), len(ends))
        if row == len(ends):
            ends.append(end)
        ends[row] = end
        rows.append(row)
    return rows, max(1, len(ends))


def draw(ax, p, window, scale, inches_per_s, row_inches):
    if row_inches < 0.3:
        inches_per_s = 0  # rows too low for text and frames
    ax.grid(False)
    has_host = any(p.host)
    ticks, labels, y = [], [], 0.0
    forwards = backwards = 0
    for rank in range(p.ranks):
        colours, n_forward, n_backward = shades(p.passes[rank])
        forwards, backwards = max(forwards, n_forward), max(backwards, n_backward)
        ticks.append(y)
        labels.append(f"GPU {rank}")
        ax.add_patch(Rectangle((0, y - 0.37), p.length / scale, 0.74, zorder=0.5, **timeline.HATCH))
        ax.text(1.004, y, f"{100 * p.busy[rank] / p.length:.0f}%", transform=ax.get_yaxis_transform(), va="center", color="#444444",
                fontsize=8 if row_inches >= 0.3 else 5.5)
        widths = {}
        for letter, stage, _, spans in p.passes[rank]:
            widths.setdefault((letter, stage), []).append(max(end - start for start, end in spans))
        # All boxes of a stage have labels of the same form.
        ways = {stage: fitting(p.label(*stage, 0), sorted(w)[len(w) // 2] * inches_per_s) for stage, w in widths.items()}
        for letter, stage, micro_batch, spans in p.passes[rank]:
            way, points = ways[letter, stage]
            longest = max(spans, key=lambda s: s[1] - s[0])
            for span in spans:
                text = p.label(letter, stage, micro_batch)[way][0] if span == longest and letter != "u" and way is not None else ""
                box(ax, y, 0.78, *span, colours.get((letter, stage), STEP_DEVICE), scale, text, points if inches_per_s else 0)
        for to_device, start, end in p.moves[rank]:
            box(ax, y + 0.47 if to_device else y + 0.57, 0.09, start, end, FETCH if to_device else OFFLOAD, scale, points=0)
        y += 1.0
        if not has_host:
            continue
        rows, n = sub_rows(p.host[rank])
        ticks.append(y - 0.08)
        labels.append(f"CPU {rank}")
        for (kind, stage, start, end), row in zip(p.host[rank], rows):
            height = 0.6 / n
            colour = {"optimizer_step": STEP, "undo": UNDO}.get(kind, CHECK)
            texts = p.label("o", int(stage), None) if kind == "optimizer_step" and stage and n < 3 else []
            way, points = fitting(texts, (end - start) * inches_per_s)
            box(ax, y - 0.08 - 0.3 + (row + 0.5) * height, height, start, end, colour, scale,
                texts[way][0] if way is not None else "", points if inches_per_s else 0)
        y += 0.85
    ax.text(1.004, -0.5, "busy", transform=ax.get_yaxis_transform(), va="bottom", fontsize=7.5, color="#444444")
    ax.set_yticks(ticks, labels)
    ax.set_ylim(y - 0.4, -0.55)
    ax.set_xlim(window[0] / scale, window[1] / scale)
    ax.tick_params(axis="y", length=0, labelsize=9 if p.ranks <= 8 else 6)
    ax.tick_params(axis="x", labelsize=9)
    for x in (0, p.length / scale):
        ax.axvline(x, color="black", linewidth=0.8, linestyle=(0, (4, 3)))
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    return forwards, backwards


def nth(n):
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(n, f"{n}th")


def handles(pipelines, forwards, backwards):
    out = [Patch(facecolor=FORWARD[i % len(FORWARD)], edgecolor="#444444", linewidth=0.5,
                 label=f"forward{f', {nth(i + 1)} stage' if forwards > 1 else ''}") for i in range(min(forwards, len(FORWARD)))]
    out += [Patch(facecolor=BACKWARD[i % len(BACKWARD)], edgecolor="#444444", linewidth=0.5,
                  label=f"backward{f', {nth(i + 1)}' if backwards > 1 else ''}") for i in range(min(backwards, len(BACKWARD)))]
    kinds = {kind for p in pipelines for ops in p.host for kind, *_ in ops}
    moves = {to_device for p in pipelines for ops in p.moves for to_device, *_ in ops}
    on_device = any(q[0] == "u" for p in pipelines for passes in p.passes for q in passes)
    for there, colour, label in (("optimizer_step" in kinds, STEP, "optimizer step (CPU)"), (on_device, STEP_DEVICE, "optimizer step"),
                                 ("undo" in kinds, UNDO, "undone"), ("validate" in kinds, CHECK, "gradients checked"),
                                 (True in moves, FETCH, "parameters in"), (False in moves, OFFLOAD, "gradients out")):
        if there:
            out.append(Patch(facecolor=colour, edgecolor="#444444", linewidth=0.5, label=label))
    out.append(Patch(label="computes nothing", **timeline.HATCH))
    return out


def amount(seconds, unit):
    return f"{seconds / unit:.4g} units" if unit else timeline.seconds(seconds)


def is_pipeline(trace):
    return any(o.kind == "forward" and PASS.match(o.name) for o in trace.ops)


def figure_of(pipelines, unit=None):
    """Draws pipelines one above the other, the longest iteration as wide as the figure. unit: seconds that are 1 on the axis."""
    longest = max(p.length for p in pipelines)
    window = (-0.01 * longest, 1.01 * longest)
    scale, unit_name = (unit, "units") if unit else timeline.scale_of(longest, timeline.TIME_UNITS)
    inches_per_s = (WIDTH - 0.9) / (window[1] - window[0])
    row = 0.5 if max(p.ranks for p in pipelines) <= 8 else 0.16
    heights = [row * p.ranks * (1.85 if any(p.host) else 1.0) + 0.3 for p in pipelines]
    figure, axes = plt.subplots(len(pipelines), 1, figsize=(WIDTH, sum(heights) + 0.45 * len(heights) + 0.3), squeeze=False,
                                sharex=True, gridspec_kw={"height_ratios": heights}, constrained_layout=True)
    forwards = backwards = 0
    for ax, p in zip(axes[:, 0], pipelines):
        f, b = draw(ax, p, window, scale, inches_per_s, row)
        forwards, backwards = max(forwards, f), max(backwards, b)
        ax.set_title(f"{p.name}, {p.obtained}: {amount(p.length, unit)} an iteration, bubble ratio {100 * p.bubble:.1f}%",
                     fontsize=11, loc="left", fontweight="bold")
    axes[-1, 0].set_xlabel(f"time, {unit_name}", fontsize=9)
    look.legend(figure, handles(pipelines, forwards, backwards), below=True, points=8.5)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--out", required=True, help="PNG or SVG to write, by its ending")
    parser.add_argument("--unit", type=float, help="seconds that are 1 on the axis, such as T_f [ms or s]")
    parser.add_argument("--iteration", type=int, help="which iteration, from 0 [a typical one of the steady state]")
    parser.add_argument("--title", action="append", default=[], help="instead of the schedule's name; one a trace")
    parser.add_argument("--heading", help="title of the whole picture")
    parser.add_argument("--note", default="", help="line below the picture, such as the cluster and the commit")
    args = parser.parse_args()
    pipelines = [Pipeline(path, args.iteration) for path in args.traces]
    for p, title in zip(pipelines, args.title):
        p.name = title
    for p in pipelines:
        print(f"{p.name}: iteration {amount(p.length, args.unit)}, bubble ratio {100 * p.bubble:.1f}%")
    try:
        look.style()
        figure = figure_of(pipelines, args.unit)
        if args.heading:
            look.stamp(figure, args.heading, args.note)
        look.write(figure, args.out)
    except OSError as why:
        unwritten(args.out, why)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()

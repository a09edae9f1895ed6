#!/usr/bin/env python3
"""Draws a plan of pipelines, which may be unlike: which devices have which layers of which group, who reduces gradients with whom, the
memory of each device, and of a simulation its idle share and the schedule. `hetbench plan --draw` and `hetbench sim --draw` run it.

    groups.py --out FILE.png|FILE.svg RESULT.json [TRACE.json]

RESULT is the --json of plan or sim of a system that plans `pipelines`, `blocks` and `place`; TRACE is of the same simulation.
"""

import argparse
import json
import sys

sys.dont_write_bytecode = True

import backend  # noqa: F401: sets matplotlib up
import look
import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

import pipeline
import timeline
from writing import status_of

WIDTH = 12.5
KIND_COLOURS = ["#a6cee3", "#fdbf6f", "#b2df8a", "#cab2d6", "#fb9a99", "#dddddd"]
INSIDE, ACROSS = "#c9d8c5", "#e7b98a"  # a ring within a node, and over several
STATES = ("param", "master", "momentum", "variance", "grad")
MEMORY = (("states", "#332288"), ("activations", "#44aa99"), ("other", "#999999"))  # as in timelines


class Plan:
    """A result's groups: stages[j] = [(first layer, layers, [rank])] of each."""

    def __init__(self, root):
        try:
            self.root, scenario, v = root, root["scenario"], root["plan"]["variables"]
            self.kinds, self.nodes = scenario["gpu_by_rank"], scenario["node_by_rank"]
            self.layers, self.tp, self.micro_batches = scenario["model"]["layers"], v.get("tp", 1), v["l"]
            self.title = (f"{root['title']}: {scenario['model']['name']} on {scenario['gpus_text']}; batch {scenario['batch']} "
                          f"in micro-batches of {scenario['micro_batch']}")
            place, blocks = iter(v["place"]), iter(v["blocks"])
            self.stages = []
            for devices in v["pipelines"]:
                first, group = 0, []
                for _ in range(devices // self.tp):
                    n = next(blocks)
                    group.append((first, n, [next(place) for _ in range(self.tp)]))
                    first += n
                self.stages.append(group)
        except (KeyError, TypeError, StopIteration):
            raise ValueError("the plan has no pipelines; expected a system that plans pipelines, l, blocks and place") from None
        self.of_space = {m["space"]: m for m in root.get("memory") or []}
        self.busy = {lane["rank"]: lane["busy_share"] for lane in root.get("lane_busy") or [] if lane["kind"] == "compute"}

    def ranks(self):
        """Returns the ranks by group, stage and part."""
        return [r for group in self.stages for _, _, ranks in group for r in ranks]

    def holders(self, layer):
        """Returns for each group the stage's ranks that have a layer; -1: the embedding, `layers`: the head."""
        at = min(max(layer, 0), self.layers - 1)
        return [next(ranks for first, n, ranks in group if first <= at < first + n) for group in self.stages]

    def rings(self):
        """Returns [(first layer, layers, [ranks of each group])]: the layers that the same devices reduce."""
        out = []
        for layer in range(-1, self.layers + 1):
            ranks = self.holders(layer)
            if out and out[-1][2] == ranks:
                out[-1][1] += 1
            else:
                out.append([layer, 1, ranks])
        return out

    def inside(self, ranks):
        """Returns whether each part's ring stays within a node."""
        return all(len({self.nodes[group[q]] for group in ranks}) == 1 for q in range(self.tp))

    def colours(self):
        kinds = list(dict.fromkeys(self.kinds))
        return {k: KIND_COLOURS[i % len(KIND_COLOURS)] for i, k in enumerate(kinds)}


def numbers(ranks):
    """Formats ranks: 3, 0,2, or 4-7."""
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))


def text_in(ax, x, y, width, texts, inches):
    """Writes the first of some texts that fits a box of this width, in layers; `inches` a layer."""
    for text in texts:
        longest = max(len(line) for line in text.split("\n"))
        for points in (8.5, 7.5, 6.5):
            if width * inches > longest * points * 0.0085 + 0.04:
                ax.text(x + width / 2, y, text, ha="center", va="center", fontsize=points, linespacing=1.15)
                return


def box(ax, x, y, width, height, colour):
    ax.add_patch(Rectangle((x, y - height / 2), width, height, facecolor=colour, edgecolor="white", linewidth=1.4))


def ring_texts(plan, ranks):
    """Returns texts for a ring's members, one GPU of each group: the best first. A ring of each part, if there are few parts."""
    if plan.tp > 2:
        return [sign.join(numbers(r) for r in ranks) for sign in (" + ", "+")]
    return ["\n".join(sign.join(str(r[q]) for r in ranks) for q in range(plan.tp)) for sign in (" + ", "+")]


def draw_groups(ax, plan):
    """Draws a row a group, a box a stage over its layers; below, who reduces which layers."""
    inches, colours = (WIDTH - 1.6) / (plan.layers + 2), plan.colours()
    labels = []
    for j, group in enumerate(plan.stages):
        labels.append(f"group {j}\n{plan.micro_batches[j]} micro-batches")
        for s, (first, n, ranks) in enumerate(group):
            left = first - (s == 0)
            right = first + n + (s == len(group) - 1)
            kind, node = plan.kinds[ranks[0]], plan.nodes[ranks[0]]
            box(ax, left, j, right - left, 0.82, colours[kind])
            whose = f"GPU{'s' if len(ranks) > 1 else ''} {numbers(ranks)}"
            text_in(ax, left, j, right - left,
                    (f"{whose}: {kind}, node {node}\n{n} layer{'s' if n > 1 else ''}, {first}-{first + n - 1}",
                     f"{whose}\nnode {node}\n{n} layer{'s' if n > 1 else ''}", f"{numbers(ranks)}\n{n}", numbers(ranks)), inches)
    y = len(plan.stages)
    if len(plan.stages) > 1:
        labels.append("gradients\nare reduced by")
        for first, n, ranks in plan.rings():
            box(ax, first, y, n, 0.6, INSIDE if plan.inside(ranks) else ACROSS)
            text_in(ax, first, y, n, ring_texts(plan, ranks), inches)
        y += 1
    ax.set_xlim(-1.02, plan.layers + 1.02)
    ax.set_ylim(y - 0.45, -0.5)
    ax.set_yticks(range(len(labels)), labels, fontsize=8.5)
    step = next(s for s in (1, 2, 4, 8, 16, 32) if plan.layers / s <= 32)
    ax.set_xticks([-0.5] + [i + 0.5 for i in range(0, plan.layers, step)] + [plan.layers + 0.5],
                  ["emb."] + list(range(0, plan.layers, step)) + ["head"], fontsize=8)
    ax.set_xlabel("layer", fontsize=9)


def draw_memory(ax, plan):
    """Draws each device's memory at its worst moment by what has it, and its capacity."""
    for i, rank in enumerate(plan.ranks()):
        space = plan.of_space.get(f"device {rank}")
        if not space:
            continue
        by_class = space["by_class"]
        states = sum(by_class.get(c, 0) for c in STATES)
        kept = by_class.get("activation", 0) + by_class.get("checkpoint", 0)
        below = 0
        for (_, colour), value in zip(MEMORY, (states, kept, sum(by_class.values()) - states - kept)):
            ax.bar(i, value / 1e9, 0.72, bottom=below / 1e9, color=colour, linewidth=0)
            below += value
        full = space["capacity_bytes"] and below > 0.9 * space["capacity_bytes"]  # the number stands under the bar's top
        ax.text(i, below / 1e9, f"{below / 1e9:.0f}" if below >= 1e10 else f"{below / 1e9:.2g}", ha="center",
                va="top" if full else "bottom", fontsize=7.5)
        if space["capacity_bytes"]:
            ax.plot([i - 0.42, i + 0.42], [space["capacity_bytes"] / 1e9] * 2, color="#cc0000", linewidth=1.4)
    ax.set_ylabel("memory, GB", fontsize=9)
    ax.set_ylim(0, 1.08 * ax.get_ylim()[1])


def draw_idle(ax, plan):
    """Draws the share of an iteration in which each device computes nothing."""
    colours = plan.colours()
    for i, rank in enumerate(plan.ranks()):
        idle = 100 * (1 - plan.busy.get(rank, 0))
        ax.bar(i, idle, 0.72, color=colours[plan.kinds[rank]], linewidth=0)
        ax.text(i, idle, f"{idle:.0f}", ha="center", va="bottom", fontsize=7.5)
    ax.set_ylabel("idle, % of the iteration", fontsize=9)
    ax.set_ylim(0, 1.12 * max(ax.get_ylim()[1], 5))


def name_devices(ax, plan, inches):
    """Labels bars by rank, with the groups below them. inches: the width of the plot."""
    ranks = plan.ranks()
    ax.set_xticks(range(len(ranks)), ranks, fontsize=8)
    ax.set_xlim(-0.6, len(ranks) - 0.4)
    at = 0
    for j, group in enumerate(plan.stages):
        n = sum(len(r) for _, _, r in group)
        if j:
            ax.axvline(at - 0.5, color="#bbbbbb", linewidth=0.8, linestyle=(0, (3, 3)))
        room = inches * n / len(ranks)
        name = next((t for t in (f"{'GPU' if n == 1 else 'GPUs'} of group {j}", f"group {j}") if 0.075 * len(t) < room), f"{j}")
        ax.annotate(name, (at + (n - 1) / 2, 0), (0, -17), xycoords=("data", "axes fraction"), textcoords="offset points", ha="center", va="top",
                    fontsize=8)
        at += n
    ax.tick_params(axis="x", length=0)


def draw_schedule(ax, p, row):
    window = (-0.01 * p.length, 1.01 * p.length)
    scale, unit = timeline.scale_of(p.length, timeline.TIME_UNITS)
    forwards, backwards = pipeline.draw(ax, p, window, scale, (WIDTH - 0.9) / (window[1] - window[0]), row)
    ax.set_xlabel(f"time, {unit}", fontsize=9)
    return pipeline.handles([p], forwards, backwards)


STYLE = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": False, "font.size": 9}


@plt.rc_context(STYLE)
def figure_of(plan, trace=None, titled=True):
    """Draws a plan, and the schedule of a trace's typical iteration below it."""
    p = pipeline.Pipeline(trace, None) if trace else None
    row = (0.3 if len(plan.kinds) <= 16 else 0.16) if p else 0
    rows = len(plan.stages) + (len(plan.stages) > 1)
    heights = [0.62 * rows + 0.35, 2.2] + ([row * p.ranks + 0.5] if p else [])
    figure = plt.figure(figsize=(WIDTH, sum(heights) + 1.1 + 0.6 * bool(p)), constrained_layout=True)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    top = figure.add_subplot(grid[0, :])
    draw_groups(top, plan)
    outcome = f"\n{plan.root['iteration_time_s']:.3f} s an iteration, simulated" if plan.root.get("iteration_time_s") else ""
    top.set_title((plan.title if titled else "") + (outcome if titled else outcome.strip()), loc="left", fontsize=10, fontweight="bold")
    top.tick_params(axis="y", length=0)
    for side in ("left", "bottom"):
        top.spines[side].set_visible(False)
    plots = [(draw_memory, figure.add_subplot(grid[1, 0] if plan.busy else grid[1, :]))]
    if plan.busy:
        plots.append((draw_idle, figure.add_subplot(grid[1, 1])))
    for draw, ax in plots:
        draw(ax, plan)
        name_devices(ax, plan, (WIDTH - 1.6) / len(plots))
    handles = [Patch(color=c, label=k) for k, c in plan.colours().items()]
    if len(plan.stages) > 1:
        rings = {plan.inside(ranks) for _, _, ranks in plan.rings()}
        handles += [Patch(color=c, label=f"ring {where}") for i, c, where in ((True, INSIDE, "in a node"), (False, ACROSS, "over nodes")) if i in rings]
    handles += [Patch(color=c, label=name) for name, c in MEMORY] + [plt.Line2D([], [], color="#cc0000", label="capacity")]
    if p:
        handles += draw_schedule(figure.add_subplot(grid[2, :]), p, row)
    look.legend(figure, handles, below=True, points=8.5)
    return figure


def save(figure, path):
    """Writes the picture whole, or not at all."""
    try:
        look.write(figure, path)
    except OSError as why:
        said(f"{path}: cannot be written: {why.strerror or why}")
        sys.exit(status_of(why))


def said(text):
    """Prints an error as one line. Returns the exit status of bad input."""
    print(text, file=sys.stderr)
    return 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("trace", nargs="?", metavar="TRACE.json")
    parser.add_argument("--out", required=True, help="PNG or SVG to write, by its ending")
    args = parser.parse_args()
    if not args.out.lower().endswith((".png", ".svg")):
        sys.exit(said(f"{args.out}: expected a name that ends in .png or .svg"))
    try:
        with open(args.result, encoding="utf-8") as file:
            plan = Plan(json.load(file))
    except (OSError, ValueError) as why:
        sys.exit(said(why if args.result.startswith("/dev/fd/") else f"{args.result}: {why}"))
    save(figure_of(plan, args.trace), args.out)


if __name__ == "__main__":
    main()

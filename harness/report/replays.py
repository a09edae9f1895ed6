"""Replays of spot traces with real processes: the picture and tables of what `hetbench replay --out replay.csv` writes (harness/days/replay.h)."""

import csv
import pathlib

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

import days
import figures
import hetbench
import look
from results import BadInput

PARTS = {"detect_s": "detection", "plan_s": "planning", "relaunch_s": "relaunch", "load_s": "loading", "stop_s": "stopping", "stall_s": "a save"}
SIDES = ("measured", "simulated")
TITLES = {"autohet": "AutoHet", "varuna": "Varuna", "megatron": "Megatron-LM", "restart": "restart"}
TRACES = pathlib.Path(__file__).resolve().parent.parent / "days/traces"


class Replay:
    def __init__(self, path):
        self.folder, self.name, self.title = path.parent, path.parent.name, "A recorded spot trace, replayed with real processes"
        try:
            self.rows = hetbench.read(path, text=("trace", "policy", "losses_equal", "commit", "command"))
            self.first = self.rows[0]
            self.root = {"commit": ", ".join(dict.fromkeys(r["commit"] for r in self.rows))}
            self.rows = [dict(r, colour=days.colour(r, i)) for i, r in enumerate(self.rows)]
            self.nodes = nodes_of(self.first)
        except (OSError, ValueError, KeyError, TypeError, IndexError) as why:
            raise BadInput(f"{path}: not a file that hetbench replay wrote: {why}") from None

    def setting(self):
        f = self.first
        return (f"Trace {f['trace']}, {f['hours']:.1f} modelled hours at {f['speed']:g} modelled seconds a second; {f['local_nodes']} nodes of {f['cluster']}, "
                f"of which ceil({f['local_nodes']} x live / most) are there: {f['changing']} events change them ({f['joins']} joins, {f['losses']} losses); "
                f"{f['model']}, a save every {f['save_steps']} steps")

    def provenance(self):
        return (f"{self.setting()}. Measured under the emulated clock, with processes that are really killed; simulated with parts from drills of other seeds. "
                f"At {', '.join(c[:7] for c in self.root['commit'].split(', '))}.")


def nodes_of(row):
    """Returns [(time in hours, local nodes)] of a replay of one built-in trace whose nodes are of one kind. None: of another, since the file
    does not say which nodes were there."""
    path = TRACES / f"{row['trace'].rpartition('=')[2].replace('-', '_')}.csv"
    if "," in row["trace"] or not path.is_file():
        return None
    with path.open(encoding="utf-8") as file:
        events = [(float(e["time_s"]), {"joined": 1, "lost": -1}.get(e["event"], 0)) for e in csv.DictReader(file)]
    live, at = 0, {}
    for time, step in events:
        live += step
        at[(time - events[0][0]) / 3600] = live
    most = max(at.values())
    nodes = [(hour, -(-row["local_nodes"] * n // most)) for hour, n in at.items() if hour <= row["hours"] + 1e-6]
    steps = [b - a for (_, a), (_, b) in zip(nodes, nodes[1:])]
    told = sum(s for s in steps if s > 0) == row["joins"] and -sum(s for s in steps if s < 0) == row["losses"]
    return nodes if told else None


def load(folder):
    """Loads the replays in a folder and in the folders in it."""
    folder = pathlib.Path(folder)
    paths = [f / "replay.csv" for f in [folder, *sorted(f for f in folder.iterdir() if f.is_dir())]]
    return [Replay(p) for p in paths if p.is_file()]


def title_of(row):
    return TITLES.get(row["policy"], row["policy"]) + (f" on {row['keep_nodes']} nodes" if row["keep_nodes"] else "")


def draw_nodes(ax, e):
    hours, nodes = zip(*e.nodes, (e.first["hours"], e.nodes[-1][1]))
    ax.fill_between(hours, nodes, step="post", color=days.KIND_COLOURS[0], linewidth=0)
    ax.set_xlim(0, e.first["hours"])
    ax.set_ylim(0, e.first["local_nodes"] + 0.5)
    ax.set_title("nodes that are there")
    ax.set_xlabel("modelled hours")


def bars(ax, names, rows, colours, form):
    """Draws a pair of horizontal bars a name: measured full, simulated pale, with their values behind them."""
    most = max(max(r) for r in rows) or 1
    for i, (pair, colour) in enumerate(zip(rows, colours)):
        for k, value in enumerate(pair):
            y = len(names) - 1 - i + (0.2, -0.2)[k]
            ax.barh(y, value, height=0.38, color=colour, alpha=(1, 0.4)[k], linewidth=0)
            ax.text(value, y, f" {value:{form}}", va="center", fontsize=8)
    ax.set_yticks(range(len(names)), reversed(names))
    ax.set_xlim(0, 1.2 * most)
    ax.grid(axis="y", visible=False)


def picture(e, path):
    """Draws the day's nodes and each policy's ETTR; below, what a recovery takes in parts, measured beside simulated."""
    figure = plt.figure(figsize=(figures.WIDTH, 6.2), layout="constrained")
    top, below = figure.subfigures(2, 1, height_ratios=[1.15, 1])
    n = 2 if e.nodes else 1
    axes = top.subplots(1, n, squeeze=False, width_ratios=[1.5, 1][2 - n:])[0]
    if e.nodes:
        draw_nodes(axes[0], e)
    bars(axes[-1], [title_of(r) for r in e.rows], [[r[f"ettr_{s}"] for s in SIDES] for r in e.rows], [r["colour"] for r in e.rows], ".3f")
    axes[-1].set_title("effective training time ratio")
    axes[-1].set_xlim(0, 1.12)
    panels = below.subplots(1, len(e.rows), sharey=True, squeeze=False)[0]
    for ax, r in zip(panels, e.rows):
        bars(ax, list(PARTS.values()), [[r[f"{s}_{part}"] for s in SIDES] for part in PARTS], [r["colour"]] * len(PARTS), ".1f")
        ax.set_title(title_of(r))
        ax.set_xlabel("mean of each, modelled s")
    look.legend(figure, [Patch(color="#333333", label="measured, with real kills"), Patch(color="#333333", alpha=0.4, label="simulated")])
    look.stamp(figure, e.title, e.provenance())
    look.write(figure, path)


def report(page, replays, folder):
    """Adds the section of replays; draws their figures into folder/figures."""
    if not replays:
        return
    page.section("replays", "Days with real processes",
                 "The nodes of a small cluster come and go as those of a spot trace, and ranks of lost nodes are killed. ETTR: useful steps' time over "
                 "all. Of own parts: simulated with the replay's own recovery parts in place of the drills'.")
    for e in replays:
        page.heading(f"{e.name}: {e.title}")
        path = folder / "figures" / f"replay-{e.name}.png"
        picture(e, path)
        page.figure(path, f"replay: {e.first['trace']}")
        page.table(["policy", "ETTR measured", "simulated", "points apart", "of own parts", "steps", "simulated", "lost", "simulated", "recoveries", "simulated",
                    "changes", "simulated", "killed processes", "losses"],
                   [[title_of(r), f"{r['ettr_measured']:.3f}", f"{r['ettr_simulated']:.3f}", f"{r['difference_points']:+.1f}", f"{r['ettr_of_own_parts']:.3f}",
                     *(f"{r[f'{s}_{k}']}" for k in ("steps", "lost_steps", "recoveries", "changes") for s in SIDES), f"{r['killed_processes']}",
                     f"bit-equal over {r['checked_steps']} steps" if r["losses_equal"] == "yes" else "not compared"] for r in e.rows])

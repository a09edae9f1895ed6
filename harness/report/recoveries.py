"""Results of experiments on recovery: results.csv of `hetbench experiment` with a column `recovery`. One figure each."""

import pathlib
import re
import textwrap

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bars import clusters
from figures import WIDTH, legend, save
from results import BadInput, built_in, common_prefix, hetbench, recoveries_in

STORES, REMOTE, PAPER = "#0072b2", "#999999", "#d55e00"


CASES = pathlib.Path(__file__).resolve().parents[2] / "common/store/recoveries.yaml"


def case(name):
    """Returns the title and the rates of a recovery of the catalogue, as texts; {}: it is not there."""
    entry = re.search(rf"^{re.escape(name)}:\n((?:  .*\n)*)", CASES.read_text(encoding="utf-8"), re.MULTILINE) if CASES.is_file() else None
    return dict(re.findall(r"^  (title|cloud|disk|nic): (.*)$", entry[1], re.MULTILINE)) if entry else {}


class Recoveries:
    def __init__(self, path):
        self.name, self.folder = path.parent.name, path.parent
        told = built_in(self.name)
        self.title, self.source = told.get("title", self.name), told.get("source", "")
        try:
            self.rows = [dict(line, recovery_time_s=float(line["recovery_time_s"]), speed_up=float(line["speed_up"]),
                              paper=line["paper_speed_up"]) for line in hetbench.read(path)]
        except (OSError, ValueError, KeyError, TypeError) as why:
            raise BadInput(f"{path}: not a results file that hetbench experiment wrote: {why}") from None
        self.root = {"commit": ", ".join(dict.fromkeys(str(r.get("commit")) for r in self.rows))}
        self.labels = list(dict.fromkeys(r["label"] for r in self.rows))
        self.models = list(dict.fromkeys(r["model"] for r in self.rows))
        self.prefix = common_prefix(self.models) if self.models else ""
        self.cases = {r["label"]: case(r["recovery"]) for r in self.rows}
        self.by = {(r["label"], r["model"], r["from"]): r for r in self.rows}

    def provenance(self):
        rates = "; ".join(dict.fromkeys(f"Disks {c['disk']}, NICs {c['nic']}, remote store {c['cloud']}" for c in self.cases.values() if c))
        return f"{self.source}. {rates and rates + '. '}Simulated at {', '.join(c[:7] for c in self.root['commit'].split(', '))}."


def draw(e, path):
    """Draws times of recovery, a panel for each recovery, a pair of bars a model; below, the speed-ups and what the paper prints."""
    figure, axes = plt.subplots(2, len(e.labels), figsize=(WIDTH, 5.2), sharey="row", squeeze=False,
                                gridspec_kw={"height_ratios": [3, 2]})
    names = [m.removeprefix(e.prefix) for m in e.models]
    for (times, gains), label in zip(axes.T, e.labels):
        width, x_of = clusters(times, names, 2)
        gain_width, gain_x = clusters(gains, names, 1)
        for g, model in enumerate(e.models):
            stores, remote = (e.by[label, model, way] for way in ("stores", "remote"))
            for b, (row, colour) in enumerate(((stores, STORES), (remote, REMOTE))):
                times.bar(x_of(g, b), row["recovery_time_s"], width * 0.94, linewidth=0, color=colour)
                times.text(x_of(g, b), row["recovery_time_s"], f"{row['recovery_time_s']:.{0 if row['recovery_time_s'] >= 100 else 1}f}", ha="center", va="bottom", fontsize=7)
            gains.bar(gain_x(g, 0), stores["speed_up"], gain_width * 0.7, linewidth=0, color=STORES)
            gains.text(gain_x(g, 0), 0.5 * stores["speed_up"], f"{stores['speed_up']:.2f}", ha="center", va="center", fontsize=8,
                       color="white")
        paper = e.by[label, e.models[0], "stores"]["paper"]
        if paper:
            gains.axhline(paper, color=PAPER, linewidth=1.4, linestyle=(0, (4, 2)))
            gains.text(len(names) - 0.47, paper, f"{paper:g}", color=PAPER, ha="right", va="bottom", fontsize=8)
        title = e.cases[label].get("title")
        times.set_title(textwrap.fill(f"{label}: {title}" if title else label, 46))
    axes[0][0].set_ylabel("recovery, s")
    axes[1][0].set_ylabel("speed-up")
    for row in axes:
        row[0].set_ylim(0, 1.14 * max(p.get_height() for ax in row for p in ax.patches))
    legend(figure, [Patch(color=STORES, label="stores on the nodes"), Patch(color=REMOTE, label="remote store alone"),
                    Line2D([], [], color=PAPER, linestyle=(0, (4, 2)), label="speed-up that the paper prints")])
    save(figure, path, e)


def load(folder):
    """Loads those of a folder, and of the folders in it, by name."""
    folder = pathlib.Path(folder)
    folders = [folder, *sorted(f for f in folder.iterdir() if f.is_dir())]
    return [Recoveries(p) for p in map(recoveries_in, folders) if p]

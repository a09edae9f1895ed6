"""Days on spot instances: the figures and tables of `hetbench experiment autohet-spot-day` and files like it (harness/days/study.h)."""

import csv
import json
import pathlib

import matplotlib.pyplot as plt

import figures
import look
import results
import timeline

PHASES = ["useful", "lost", "stalls", "loading", "relaunch", "planning", "detection", "waiting"]
# No colour is a policy's or an instance's; a day that waits for nodes is hatched, as a lane that computes nothing.
PHASE_COLOURS = {"useful": "#ddcc77", "lost": "#882255", "stalls": "#cc6677", "loading": "#88ccee", "relaunch": "#332288",
                 "planning": "#aa4499", "detection": "#999933"}
KIND_COLOURS = ["#9fb4c7", "#d3b4c9", "#b7cfae", "#d9c7a0"]
POLICY_COLOURS = {"autohet": "#0072b2", "varuna": "#d55e00", "megatron": "#009e73", "restart": "#7f7f7f"}


def colour(policy, i):
    return POLICY_COLOURS.get(policy["policy"], figures.SERIES_COLOURS[i % len(figures.SERIES_COLOURS)])


class Days:
    """An experiment of days. Of results.csv alone there are rows for tables, and the figures that lie beside it."""

    def __init__(self, path):
        self.folder, self.name = path.parent, path.parent.name
        if path.suffix == ".json":
            self.root = json.loads(path.read_text(encoding="utf-8"))
            self.name, self.title = self.root["experiment"], self.root["title"]
            self.studies = self.root["rows"]
            self.rows = [dict(p, day=s["label"], model=s["model"]) for s in self.studies for p in s["policies"]]
        else:
            self.title, self.studies = self.name, []
            with path.open(encoding="utf-8") as file:
                self.rows = list(csv.DictReader(file))
            self.root = {"commit": ", ".join(dict.fromkeys(r.get("commit") or "unknown" for r in self.rows))}


def load(folder):
    """Loads the experiments of days in a folder and in the folders in it."""
    folder = pathlib.Path(folder)
    found = []
    for f in [folder, *sorted(f for f in folder.iterdir() if f.is_dir())]:
        path = next(iter(results.fresh(f, ("results.json", "results.csv"))), None)
        if path and results.is_of_days(path):
            found.append(Days(path))
    return found


def steps(moments, column, end):
    """Returns times in hours and values of a moment's column as a staircase that ends at `end` hours."""
    times = [m[0] / 3600 for m in moments] + [end]
    values = [m[column] for m in moments]
    return times, values + values[-1:]


def draw_gpus(ax, study, begin, end):
    """Draws the GPUs that are there, kind upon kind."""
    moments = study["policies"][0]["moments"]
    below = [0] * (len(moments) + 1)
    for k, instance in enumerate(study["instances"]):
        times, nodes = steps(moments, 1 + k, end)
        above = [b + n * instance["gpus"] for b, n in zip(below, nodes)]
        ax.fill_between([t - begin for t in times], below, above, step="post", color=KIND_COLOURS[k % len(KIND_COLOURS)], linewidth=0,
                        label=f"{instance['gpu']} ({instance['name']})")
        below = above
    ax.set_ylim(0, 1.25 * max(below))
    ax.set_ylabel("GPUs there")
    ax.legend(loc="upper left", ncol=4, fontsize=8.5)


def means(moments, begin, end, hours):
    """Returns times in hours and the mean samples/s of each span of so many hours, stops included."""
    times, rates = steps(moments, -1, end)
    n = max(1, round((end - begin) / hours))
    edges = [begin + (end - begin) * k / n for k in range(n + 1)]
    sums = [0.0] * n
    for t0, t1, rate in zip(times, times[1:], rates):
        for k in range(max(0, int((t0 - begin) / (end - begin) * n) - 1), n):
            if edges[k] >= t1:
                break
            sums[k] += rate * max(0.0, min(t1, edges[k + 1]) - max(t0, edges[k]))
    return edges, [s * n / (end - begin) for s in sums]


def draw_rates(ax, study, begin, end):
    span = study["hours"] / 48
    for i, p in enumerate(study["policies"]):
        edges, rates = means(p["moments"], begin, end, span)
        ax.step([t - begin for t in edges], rates + rates[-1:], where="post", color=colour(p, i), linewidth=1.6)
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"samples/s, {60 * span:.0f}-minute means")


def draw_recoveries(ax, study, begin):
    """Draws a bar for each recovery, as long as it takes: filled after a loss, pale for a change that the policy chose."""
    policies = study["policies"]
    for i, p in enumerate(policies):
        for planned in (False, True):
            spans = [(r[0] / 3600 - begin, r[1] / 3600) for r in p["recoveries"] if r[4] == planned]
            ax.broken_barh(spans, (len(policies) - 1 - i - 0.38, 0.76), color=colour(p, i), alpha=0.35 if planned else 1, linewidth=0)
    ax.set_yticks(range(len(policies)), [p["title"] for p in reversed(policies)])
    for label, i in zip(ax.get_yticklabels(), range(len(policies))[::-1]):
        label.set_color(colour(policies[i], i))
    ax.set_ylim(-0.6, len(policies) - 0.4)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("hours")


def draw_money(axes, study):
    """Draws, for each policy, what it delivered, what a sample cost, and where the time went."""
    policies = study["policies"]
    names = [p["title"] for p in policies]
    colours = [colour(p, i) for i, p in enumerate(policies)]
    where = list(range(len(policies)))[::-1]
    for ax, title, values, form in ((axes[0], "samples, thousands", [p["samples"] / 1000 for p in policies], "{:,.0f}"),
                                    (axes[1], "USD per 1,000 samples", [p["usd_per_1000_samples"] or 0 for p in policies], "{:.3f}")):
        ax.barh(where, values, color=colours, height=0.7)
        for y, v in zip(where, values):
            ax.text(v, y, " " + (form.format(v) if v else "none"), va="center", fontsize=8.5)
        ax.set_xlim(0, 1.25 * (max(values) or 1))
        ax.set_title(title)
    left = [0.0] * len(policies)
    for phase in PHASES:
        shares = [100 * p["seconds"][phase] / 3600 / study["hours"] for p in policies]
        style = {"color": PHASE_COLOURS[phase], "linewidth": 0} if phase in PHASE_COLOURS else timeline.HATCH
        axes[2].barh(where, shares, left=left, height=0.7, label=phase, **style)
        left = [a + b for a, b in zip(left, shares)]
    axes[2].set_xlim(0, 100)
    axes[2].set_title("where the time goes, %")
    axes[2].legend(loc="upper center", bbox_to_anchor=(0.45, -0.16), ncol=4, fontsize=8, columnspacing=0.9, handlelength=1)
    for ax in axes:
        ax.set_yticks(where, names)
        ax.grid(axis="y", visible=False)


def title_of(days, study):
    """Returns the title of a day's picture, which names the policies itself."""
    return f"{days.title.partition(':')[0]}: {study['label']}"


def provenance(days, study):
    """Says where the numbers of a day come from."""
    nodes = ", ".join(f"{i['name']} ({i['gpus']} x {i['gpu']})" for i in study["instances"])
    return (f"{days.name}. {days.root.get('source', '')}. Nodes: {nodes}; {study['model']}, batch {study['batch']}; simulated at "
            f"{str(days.root.get('commit', 'unknown'))[:7]}.")


def picture(study, path, days):
    """Draws a day: GPUs, throughput and recoveries over time; beside them samples, cost and time by policy."""
    begin = study["policies"][0]["moments"][0][0] / 3600
    end = begin + study["hours"]
    figure = plt.figure(figsize=(figures.WIDTH, 6.6))
    outer = figure.add_gridspec(1, 2, width_ratios=[2.6, 1], wspace=0.28)
    left = outer[0].subgridspec(3, 1, height_ratios=[1.2, 1.8, 1], hspace=0.2)
    right = outer[1].subgridspec(3, 1, hspace=0.55)
    axes = [figure.add_subplot(left[0])]
    axes += [figure.add_subplot(left[k], sharex=axes[0]) for k in (1, 2)]
    draw_gpus(axes[0], study, begin, end)
    draw_rates(axes[1], study, begin, end)
    draw_recoveries(axes[2], study, begin)
    for ax in axes[:2]:
        ax.tick_params(labelbottom=False)
    axes[0].set_xlim(0, study["hours"])
    axes[0].set_title(f"{study['model']}, batch {study['batch']}")
    axes[2].set_title("recoveries", fontsize=9.5)
    draw_money([figure.add_subplot(right[k]) for k in range(3)], study)
    look.stamp(figure, title_of(days, study), f"{provenance(days, study)} A pale recovery is a change of nodes that the policy chose.")
    look.write(figure, path)


def sweeps(study, path, days):
    """Draws samples an hour over the rate of losses, and ETTR over the interval of saves. Returns false without sweeps."""
    if not study["speeds"] or not study["intervals"]:
        return False
    figure, axes = plt.subplots(1, 2, figsize=(figures.WIDTH, 3.8))
    for i, p in enumerate(study["policies"]):
        style = {"color": colour(p, i), "marker": figures.SERIES_MARKERS[i], "markersize": 5, "linewidth": 1.6, "label": p["title"]}
        axes[0].plot([r["losses_per_hour"] for r in study["speeds"]],
                     [r["samples_per_hour"][p["policy"]] / 1000 for r in study["speeds"]], **style)
        axes[1].plot([r["save_every_s"] for r in study["intervals"]], [r["ettr"][p["policy"]] for r in study["intervals"]], **style)
    for b in study["break_even"]:
        axes[0].axvline(b["losses_per_hour"], color="#999999", linewidth=0.8, linestyle=":")
    axes[0].axvline(study["losses_per_hour"], color="black", linewidth=0.8)
    axes[0].set_xlabel("losses of nodes an hour (black: the day as it was; dotted: two policies change places)")
    axes[0].set_ylabel("thousand samples an hour")
    axes[1].set_xlabel("seconds between saves")
    axes[1].set_ylabel("effective training time ratio")
    for ax, points, key in ((axes[0], study["speeds"], "losses_per_hour"), (axes[1], study["intervals"], "save_every_s")):
        ax.set_xscale("log", base=2)
        ax.set_xticks([r[key] for r in points], [f"{r[key]:.3g}" for r in points])
        ax.minorticks_off()
        ax.set_ylim(bottom=0)
    axes[1].set_ylim(0, 1)
    figures.legend(figure, axes[0].get_legend_handles_labels()[0])
    figure.tight_layout()
    look.stamp(figure, f"{title_of(days, study)}, by the rate of losses and of saves", provenance(days, study))
    look.write(figure, path)
    return True


def tables(page, days):
    """Adds a row for each day and policy."""
    rows = []
    for r in days.rows:
        n = {k: float(r[k] or 0) for k in ("samples", "samples_per_hour", "ettr", "lost_steps", "losses", "changes", "idle_gpu_hours",
                                           "gpu_hours", "usd")}
        each = r["usd_per_1000_samples"]
        rows.append([r["day"], r["policy"], f"{n['samples']:,.0f}", f"{n['samples_per_hour']:,.0f}", f"{n['ettr']:.3f}",
                     f"{n['lost_steps']:.0f}", f"{n['losses']:.0f}", f"{n['changes']:.0f}",
                     f"{n['idle_gpu_hours']:.0f} of {n['gpu_hours']:.0f}", f"{n['usd']:.2f}" if r["usd"] else "not known", f"{float(each):.3f}" if each else "none"])
    page.table(["day", "policy", "samples", "an hour", "ETTR", "lost steps", "recoveries", "changes", "idle GPU hours", "USD",
                "USD per 1,000"], rows)


def report(page, experiments, folder):
    """Adds the section of all experiments of days; draws their figures into folder/figures."""
    if not experiments:
        return
    page.section("days", "Days on spot instances",
                 "What policies make of a trace of nodes that join and are lost. ETTR: useful steps' time over all. Idle GPU hours: "
                 "rented, while no step ran on the GPU. A pale recovery is a change of nodes that the policy chose.")
    for days in experiments:
        page.heading(f"{days.name}: {days.title}" if days.title != days.name else days.name)
        for i, study in enumerate(days.studies):
            for kind, draw in (("day", picture), ("rates", sweeps)):
                path = folder / "figures" / f"{kind}-{days.name}-{i + 1}.png"
                if draw(study, path, days) is not False:
                    page.figure(path, f"{kind}: {study['label']}")
        for path in sorted((folder / "figures").glob(f"*-{days.name}-[0-9].png")) if not days.studies else []:
            page.figure(path, path.stem)
        tables(page, days)

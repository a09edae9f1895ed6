"""Results as the figures and the page need them: results.json of `hetbench experiment`, its results.csv where that is all there is, as in
a clone of the repository, and compare.json of `hetbench compare`."""

import csv
import itertools
import json
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import hetbench

GIB = 1 << 30
AXES = ("models", "batches", "device_memory", "seqs", "micro_batches", "host_memory", "ssds", "mixes")
AXIS_TITLES = {"models": "model", "batches": "batch, sequences", "device_memory": "device memory, GiB",
               "seqs": "tokens per sequence", "micro_batches": "micro-batch, sequences",
               "host_memory": "main memory, GB", "ssds": "SSDs", "mixes": "devices"}
MOST_NAMED = 3  # values of a setting that one line lists


class BadInput(Exception):
    """Bad input; the text is one line for the user."""


def size(value):
    """Formats bytes: multiples of a quarter GiB in GiB (2.5 GiB), others in decimal units."""
    if value % (GIB // 4) == 0:
        return f"{value / GIB:g} GiB"
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value} B"


def size_of(text):
    """Reads a size that `size` formatted. Returns (bytes, text)."""
    value, _, unit = text.partition(" ")
    return float(value) * {"GiB": GIB, "TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1}[unit], text


def seconds(value):
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.{3 if value < 1000 else 4}g} {unit}"
    return f"{value * 1e9:.3g} ns"


def variable(value):
    """Formats a plan variable as hetbench does: 3, 4,2,1,1, and '4 x 16, 2 x 48' for more than eight elements."""
    if not isinstance(value, list):
        return f"{value:.9f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    if len(value) <= 8:
        return ",".join(map(variable, value))
    runs = [(variable(v), len(list(same))) for v, same in itertools.groupby(value)]
    return "'" + ", ".join(f"{v} x {n}" if n > 1 else v for v, n in runs) + "'"


def common_prefix(names):
    """Returns 'autohete-' for autohete-2b and autohete-22b: the common prefix up to its last '-', if more than a letter is left of each name."""
    prefix = names[0]
    for name in names[1:]:
        while not name.startswith(prefix):
            prefix = prefix[:-1]
    prefix = prefix[:prefix.rfind("-") + 1]
    return prefix if len(names) > 1 and all(len(n) > len(prefix) + 1 for n in names) else ""


def distinct(scenarios, key):
    """Returns the different values of a setting as texts."""
    return list(dict.fromkeys(str(s[key]) for s in scenarios if s.get(key) is not None))


def listed(values):
    """Formats values that differ: '8, 16 or 32'; of more numbers the least and the largest."""
    if len(values) > MOST_NAMED and all(v.isdigit() for v in values):
        return f"{min(map(int, values))} to {max(map(int, values))}"
    return " or ".join([", ".join(values[:-1]), values[-1]] if len(values) > 1 else values)


def hardware(scenarios):
    """Describes the clusters and their devices: all of them, or of more than two their number and kinds, since the picture has their names."""
    clusters, devices = distinct(scenarios, "cluster"), distinct(scenarios, "gpus_text")
    first = scenarios[0]
    if not devices:
        devices = [f"{first['devices']} x {first['gpu']}"] if "gpu" in first else []
    bare = list(dict.fromkeys(re.sub(r" \([^)]*\)", "", d) for d in devices))
    kinds = ", ".join(dict.fromkeys(part.partition(" x ")[2] for d in bare for part in d.split(" + ")))
    if len(clusters) > 2:
        return f"{len(clusters)} clusters{kinds and ' of ' + kinds}"
    if len(devices) > 2:
        sizes = [size_of(text) for d in devices for text in re.findall(r"\(([^)]*)\)", d)]
        memory = f" of {min(sizes, key=lambda s: s[0])[1]} to {max(sizes, key=lambda s: s[0])[1]}" if sizes else ""
        devices = [f"{bare[0]}{memory}" if len(bare) == 1 else f"{len(bare)} mixes of {kinds}"]
    return f"{' or '.join(clusters)}{': ' if devices else ''}{' or '.join(devices)}"


def setting(scenarios):
    """Describes devices, batch, micro-batch, sequence length and numerics in one line, and lists the values that differ. Results
    of older versions name fewer of them."""
    note = listed(distinct(scenarios, "rate_note") or [""])
    sizes = listed(distinct(scenarios, "micro_batch")) or "the plan's sizes"
    numerics = listed(distinct(scenarios, "numerics_text") or distinct(scenarios, "numerics"))
    return (f"{hardware(scenarios)}; batch {listed(distinct(scenarios, 'batch'))} x {listed(distinct(scenarios, 'seq'))} tokens in micro-batches of "
            f"{sizes}; {numerics}{note and '; ' + note}")


class Row:
    """One simulated point. `place` is its position in the sweep: a value of each axis."""

    def __init__(self, raw, by_micro_batch=False):
        scenario = raw["scenario"] if "scenario" in raw else {}
        self.raw, self.series, self.system = raw, raw["series"], raw.get("system", "?")
        self.chosen, self.status, self.reason = raw.get("chosen", False), raw["status"], raw.get("reason", "")
        self.ok = raw.get("iteration_time_s") is not None
        batch = raw.get("batch_per_node") or scenario.get("batch")
        micro_batch = scenario["micro_batch"] if by_micro_batch else None  # some systems plan their own
        self.place = (scenario["model"]["name"], batch, raw.get("device_memory_bytes"), scenario.get("seq"), micro_batch,
                      raw.get("host_memory_bytes"), raw.get("ssds"), raw.get("mix"))
        self.scenario = scenario

    def __getitem__(self, field):
        return self.raw.get(field)

    def lanes(self):
        """Returns the seconds that an iteration's critical path spends on each lane, by the lane's name; the rest is waiting. Lanes
        of one kind on a rank (cpu 3, act out) share a name."""
        out = {}
        for lane in self.raw["lane_busy"]:
            name = re.sub(" [0-9]+$", "", lane["lane"])
            name = "messages" if re.match("(act|grad|ckpt) (in|out)$", name) else name
            out[name] = out.get(name, 0) + lane["critical_s"]
        out["waiting"] = self.raw["critical_wait_s"]
        return out

    def bound_by(self):
        name = re.sub(" of rank [0-9]+$", "", self.raw["lower_bound_of"]).removeprefix("resource ").removeprefix("lane ")
        return "CPU steps" if name == "cpu" else name


def built_in(name):
    """Returns title, source, figure and along of a built-in experiment, as far as its entry in harness/sweep/*.yaml or days/days.yaml has
    them."""
    harness = pathlib.Path(__file__).resolve().parent.parent
    for path in [*sorted((harness / "sweep").glob("*.yaml")), harness / "days/days.yaml"]:
        entry = re.search(rf"^{re.escape(name)}:\n((?:[ #].*\n|\n)*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if entry:
            return dict(re.findall(r'^  (title|source|figure|along): "?(.*?)"?$', entry[1], re.MULTILINE))
    return {}


def from_csv(path):
    """Returns what results.csv has of a results.json: no lanes, no break-even curves, no traces. Figure and the list along it are those of the
    built-in experiment's entry, else the file's own; those of a file without them are the defaults of harness/sweep/experiment.h. None: the
    file is not of an experiment."""
    scenario = ("cluster", "batch", "micro_batch", "seq", "numerics", "software")
    rows = hetbench.read(path, text=("model", "series", "system"))
    if not rows or not {"series", "variant", "chosen", "model", *scenario, "status"} <= set(rows[0]):
        return None
    for row in rows:
        row["chosen"] = row["chosen"] == "yes"
        row["scenario"] = {k: row[k] for k in scenario} | {"model": {"name": row["model"], "params": row["params"]}}
    keys = ("model", "batch", "device_memory_bytes", "seq", "micro_batch", "host_memory_bytes", "ssds", "mix")
    axes = {axis: list(dict.fromkeys(r.get(key) for r in rows)) for axis, key in zip(AXES, keys)}
    told = {k: rows[0][k] for k in ("figure", "along") if rows[0].get(k)} | built_in(path.parent.name)
    if "micro_batches" != told.get("along"):
        axes["micro_batches"] = [None]  # systems that plan their own differ in it, too
    labels = list(dict.fromkeys(r["series"] for r in rows))
    return {"experiment": path.parent.name, "title": path.parent.name, "axes": axes, "rows": rows, "traces": [], "complete": True,
            "along": max(axes, key=lambda a: len(axes[a])), "figure": "lines",
            "series": [{"label": s, "systems": list(dict.fromkeys(r["variant"] for r in rows if r["series"] == s))} for s in labels],
            "obtained": rows[0].get("obtained"), "commit": ", ".join(dict.fromkeys(str(r.get("commit")) for r in rows)), "csv": True,
            **told}


def from_comparison(root):
    """Returns a compare.json as a results.json: a series a system, along the models."""
    if not isinstance(root.get("rows"), list):
        return root
    for row in root["rows"]:
        row.update(series=row["system"], chosen=True)
        row["scenario"]["seq_of_model"] = row["scenario"].pop("seq", None)  # each model's longest; no list of its own
    axes = {"models": list(dict.fromkeys(r["scenario"]["model"]["name"] for r in root["rows"]))}
    labels = dict.fromkeys(r["system"] for r in root["rows"])
    return {"experiment": "compare", "title": "Comparison", "along": "models", "figure": "bars", "axes": axes, "traces": [],
            "series": [{"label": s, "systems": [s]} for s in labels], "complete": True, **root}


class Experiment:
    def __init__(self, path):
        try:
            if path.suffix == ".csv":
                root = from_csv(path)
            else:
                with open(path, encoding="utf-8") as file:
                    root = json.load(file)
            if path.name == "compare.json":
                root = from_comparison(root)
            self.name, self.title, self.along = root["experiment"], root["title"], root["along"]
            if self.along not in AXES:
                raise ValueError(f"along is '{self.along}'; expected one of {', '.join(AXES)}")
            self.axes = {a: root["axes"].get(a, [None]) for a in AXES}  # results of older versions have fewer
            self.figure, self.per_node = root.get("figure", "lines"), root.get("batches_per_node", False)
            self.series = [s["label"] for s in root["series"]]
            self.variants = {s["label"]: s["systems"] for s in root["series"]}
            self.rows = [Row(r, len(self.axes["micro_batches"]) > 1) for r in root["rows"]]
            self.traces = root["traces"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
            kind = f"no key {why}" if isinstance(why, KeyError) else str(why)
            raise BadInput(f"{path}: not a results file that hetbench experiment wrote: {kind}") from None
        self.root, self.folder = root, path.parent
        self.csv = root.get("csv", False)
        clusters = {}
        for row in self.rows:
            clusters.setdefault(row.place[0], set()).add(row.scenario.get("cluster"))
        self.by_cluster = any(len(c) > 1 for c in clusters.values())  # one model on several: these stand along the axis
        for row in self.rows if self.by_cluster else []:
            cluster = row.scenario["cluster"]
            row.place = (cluster if len(clusters) == 1 else f"{row.place[0]}, {cluster}", *row.place[1:])
        models = list(dict.fromkeys(r.place[0] for r in self.rows))
        self.prefix = common_prefix(models) if models else ""
        self.chosen = {(r.series, r.place): r for r in self.rows if r.chosen}

    def setting(self, scenarios=None):
        return setting(scenarios or [r.scenario for r in self.rows])

    def label_of(self, system):
        """Returns the label of a system's series, or the system where that is not one."""
        labels = [label for label, systems in self.variants.items() if system in systems]
        return labels[0] if len(labels) == 1 else system

    def point(self, raw):
        """Names the point of a raw row."""
        return f"{raw['scenario']['model']['name']}, batch {raw['scenario']['batch']}"

    def provenance(self, scenarios=None):
        """Says where the numbers come from: the scenarios, all or those given, how they were obtained, and by which commit."""
        source = self.root.get("source") or ""
        return (f"{source + '. ' if source and source != 'ours' else ''}{self.setting(scenarios)}. {(self.root.get('obtained') or 'simulated').capitalize()} at "
                f"{', '.join(c[:7] for c in str(self.root.get('commit', 'unknown')).split(', '))}.")

    def places(self):
        """Returns all positions of the sweep that have rows, in the sweep's order."""
        return list(dict.fromkeys(r.place for r in self.rows))

    def panels(self):
        """Groups the positions by all axes but the one along the figure: [(title, [place])]."""
        at, groups = AXES.index(self.along), {}
        for place in self.places():
            groups.setdefault(place[:at] + place[at + 1:], []).append(place)
        return [(self.panel_title(places[0], len(groups)), places) for places in groups.values()]

    def panel_title(self, place, n):
        varying = [i for i, a in enumerate(AXES) if a != self.along and len(self.axes[a]) > 1]
        return ", ".join(self.label(place, i) for i in varying) if n > 1 else ""

    def label(self, place, axis):
        return self.entry(place[axis], axis)

    def axis_title(self):
        """Describes the list along the figure."""
        if self.along == "models" and self.by_cluster:
            return "cluster"
        return AXIS_TITLES[self.along] + (" a node" if self.along == "batches" and self.per_node else "")

    def entry(self, value, axis):
        """Describes an entry of a list."""
        if axis == 0:
            return self.short(value)
        if axis == 1:
            return f"batch {value} a node" if self.per_node else f"batch {value}"
        if axis == 2:
            return size(value) if value else "all memory"
        if axis == 5:
            return f"{size(value)} of main memory" if value else "all main memory"
        if axis == 6:
            return f"{value} SSD{'' if value == 1 else 's'}" if value else "all SSDs"
        if axis == 7:
            return " + ".join(" ".join(reversed(kind.split(":"))) for kind in value.split(",")) if value else "all devices"
        return f"{value} tokens" if axis == 3 else f"micro-batch {value}"

    def short(self, model):
        return model.removeprefix(self.prefix)

    def describe(self, place):
        """Describes a position by the axes that vary in the sweep, for tables."""
        varying = [i for i, a in enumerate(AXES) if len(self.axes[a]) > 1] or [0]
        return ", ".join(self.label(place, i) for i in varying)

    def describe_without(self, place, without):
        """Describes a position by the axes that vary, except one."""
        varying = [i for i, a in enumerate(AXES) if i != without and (len(self.axes[a]) > 1 or a == self.along)]
        return ", ".join(self.label(place, i) for i in varying) or self.name

    def spell(self, place):
        """Describes the whole scenario of a position."""
        memory = f", {size(place[2])} of device memory" if place[2] else ""
        host = f", {size(place[5])} of main memory" if place[5] else ""
        ssds = f", {self.entry(place[6], 6)}" if place[6] else ""
        mix = f", {self.entry(place[7], 7)}" if place[7] else ""
        return f"{place[0]}, batch {place[1]}{memory}{host}{ssds}{mix}, {place[3]} tokens"

    def capacity(self, place):
        """Returns the bytes of the first device."""
        for row in self.rows:
            if row.place == place:
                for space in row.raw.get("memory") or []:
                    if space["tier"] == "device" and space["capacity_bytes"]:
                        return space["capacity_bytes"]
        return place[2]

    def ordered(self):
        """Returns whether the list along the figure has numbers, so that a line between two of them means something."""
        return self.along not in ("models", "mixes")

    def tick(self, place):
        """Returns (coordinate, label) along the figure's axis; entries without an order stand side by side."""
        at = AXES.index(self.along)
        value = place[at]
        if not self.ordered():
            return list(dict.fromkeys(p[at] for p in self.places())).index(value), self.entry(value, at)
        if at == 2:
            whole = self.capacity(place) or 0
            return (value or whole) / GIB, f"{value / GIB:g}" if value else "all"
        if at == 5:
            return (value or 0) / 1e9, f"{value / 1e9:g}" if value else "all"
        return value, str(value)

    def largest(self):
        """Finds what figure `sizes` shows: the largest of the models that fits, or of one model the largest batch, by the list along the
        figure. Returns (whether of models, values of the list, [(positions of a panel, {(series, value): row or None})])."""
        at = AXES.index(self.along)
        of_models = len(self.axes["models"]) > 1 or self.along == "batches"
        others = [i for i in range(len(AXES)) if i not in (0 if of_models else AXES.index("batches"), at)]
        values = list(dict.fromkeys(p[at] for p in self.places()))
        panels = {}
        for place in self.places():
            panels.setdefault(tuple(place[i] for i in others), []).append(place)
        found = []
        for places in panels.values():
            best = {}
            for series, value in itertools.product(self.series, values):
                rows = [self.chosen.get((series, p)) for p in places if p[at] == value]
                fitting = [r for r in rows if r and r.ok]
                best[series, value] = max(fitting, default=None, key=lambda r: r.scenario["model"]["params"] if of_models else r.place[1])
            found.append((places, best))
        return of_models, values, found

    def ratios(self):
        """Compares the first series with each other one: (label, mean, least, most, count), over the positions where both run."""
        out = []
        for other in self.series[1:]:
            pairs = [(self.chosen.get((self.series[0], p)), self.chosen.get((other, p))) for p in self.places()]
            values = [a["samples_per_s"] / b["samples_per_s"] for a, b in pairs if a and b and a.ok and b.ok]
            if values:
                out.append((other, sum(values) / len(values), min(values), max(values), len(values)))
        return out


def recoveries_in(folder):
    """Returns the results.csv of a folder if it is of an experiment on recovery, or None."""
    path = folder / "results.csv"
    if not path.is_file():
        return None
    with open(path, encoding="utf-8", newline="") as file:
        return path if "recovery" in (csv.DictReader(file).fieldnames or ()) else None


def is_of_days(path):
    """Returns true for a results.json or results.csv of days."""
    with path.open(encoding="utf-8") as file:
        if path.suffix == ".csv":
            return file.readline().startswith("day,model,policy,")
        return '"figure": "days"' in file.read(65536)


def is_stale(path):
    """Returns whether a results.json is older than results.csv beside it, which is written after it, by over a minute: it is of another run."""
    rows = path.with_name("results.csv")
    return path.name == "results.json" and rows.is_file() and path.stat().st_mtime < rows.stat().st_mtime - 60


def fresh(folder, names):
    """Returns those of a folder's files that are there and not stale, in the order of names. results.json has more than results.csv."""
    return [p for p in (folder / name for name in names) if p.is_file() and not is_stale(p)]


def results_in(folder):
    """Returns the results file of a folder, or None. Those on recovery are recoveries.py's."""
    if recoveries_in(folder):
        return None
    for path in fresh(folder, ("results.json", "compare.json", "results.csv")):
        if (path.suffix != ".csv" or from_csv(path)) and not is_of_days(path):
            return path
    return None


def load(folder, may_lack=False):
    """Loads the results of a folder: its own, and those of the folders in it, by name. may_lack: none is no error."""
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder}: not a folder; expected one that hetbench experiment wrote")
    folders = [folder, *sorted(f for f in folder.iterdir() if f.is_dir())]
    paths = [p for p in map(results_in, folders) if p]
    if not paths and (may_lack or any(map(recoveries_in, folders))):
        return []
    if not paths:
        raise BadInput(f"{folder}: holds no results.json, compare.json or results.csv, nor do the folders in it; expected what "
                       "hetbench experiment or compare wrote")
    experiments = [Experiment(p) for p in paths]
    if not any(e.rows for e in experiments):
        raise BadInput(f"{folder}: no rows in its results; expected at least one")
    return [e for e in experiments if e.rows]

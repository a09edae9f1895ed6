"""Traces as drawings need them: lanes, ops, memory; units; and the one set of colours. Needs no matplotlib."""

import json
import pathlib
import sys
import typing

# Okabe and Ito's palette for ops, which colour-blind readers can tell apart, with tints of it.
KIND_COLOURS = {
    "forward": "#56b4e9", "recompute": "#a6d8f2", "backward": "#e69f00", "accumulate": "#f3cf80",
    "optimizer_step": "#cc79a7", "undo": "#5b2c1a", "all_gather": "#0072b2", "reduce_scatter": "#1b2a4a",
    "all_reduce": "#22577a", "send": "#7a9e3d", "receive": "#b5c98e", "validate": "#888888", "restore": "#555555",
    "transpose": "#b2182b",
}
# Of copies, by what they move: the classes of each, its colour. Writes to a disk are darker than reads.
MOVED = {
    "parameters": (("param",), "#009e73", "#00694c"), "gradients": (("grad",), "#d55e00", "#8f3f00"),
    "states": (("master", "momentum", "variance"), "#9a6fc0", "#5e3a82"),
    "activations": (("activation", "checkpoint", "act_grad", "logits"), "#e8d629", "#9c8f00"),
}
# Paul Tol's muted palette for memory, with a brown for the variance: no colour of an op's.
CLASS_COLOURS = {
    "param": "#332288", "master": "#7d73b8", "momentum": "#882255", "variance": "#9c6b4f", "grad": "#cc6677",
    "activation": "#44aa99", "checkpoint": "#117733", "act_grad": "#999933", "logits": "#ddcc77",
    "workspace": "#999999", "staging": "#bbbbbb", "comm": "#666666",
}
# As reports print them (common/schedule/names.c); the others are said as they are written.
CLASS_NAMES = {"param": "parameters", "master": "master parameters", "grad": "gradients", "activation": "activations", "checkpoint": "checkpoints",
               "act_grad": "activation gradients", "comm": "communication"}
OTHER = "#cccccc"
TIME_UNITS = [(1, "s"), (1e-3, "ms"), (1e-6, "µs")]
BYTE_UNITS = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")]


def stop(text):
    """Ends the program with one line; the exit status is that of bad input."""
    print(f"{pathlib.Path(sys.argv[0]).name}: {text}", file=sys.stderr)
    sys.exit(2)


def shown(text):
    """Returns a file's name as common/base/text.h prints it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


class Op(typing.NamedTuple):
    """An op of one iteration; times in seconds. bytes: what it moves, 0 if nothing; after: (iteration, op) that its start waited for."""

    iteration: int
    lane: int
    start: float
    duration: float
    kind: str
    name: str
    op: int
    bytes: int
    moves: str
    write: bool
    after: tuple

    def group(self):
        """Returns what a legend calls it, and its colour."""
        if self.kind == "copy":
            for name, (classes, colour, dark) in MOVED.items():
                if self.moves in classes:
                    return (f"{name}, written to disk", dark) if self.write else (f"{name} copied", colour)
            return "copy", "#66c2a5"
        return self.kind.replace("_", " "), KIND_COLOURS.get(self.kind, OTHER)


class Trace:
    """The lanes, ops and memory of one file; times in seconds."""

    def __init__(self, path):
        try:
            with open(path, encoding="utf-8") as file:
                root = json.load(file)
            self.head, events = root["otherData"], root["traceEvents"]
        except (OSError, ValueError, KeyError, TypeError) as why:
            stop(f"{path}: not a trace that hetbench wrote: {why}")
        self.lanes, self.ops, self.memory = {}, [], {}
        for e in events:
            if e["ph"] == "M" and e["name"] == "thread_name":
                self.lanes[e["tid"]] = e["args"]["name"]
            elif e["ph"] == "X":
                a = e["args"]
                self.ops.append(Op(a["iteration"], e["tid"], e["ts"] * 1e-6, e["dur"] * 1e-6, e["cat"], e["name"], a["op"], a.get("bytes", 0),
                                   a.get("moves", ""), "write" in a, tuple(a.get("after", ()))))
            elif e["ph"] == "C":
                self.memory.setdefault(e["name"], []).append((e["ts"] * 1e-6, e["args"]))
        if not self.ops:
            stop(f"{path}: no ops; expected at least one")
        self.obtained = {"sim": "simulated", "emu": "emulated"}.get(self.head["clock"], "measured")
        self.schedule = self.head["schedule"]

    def span(self, iteration):
        """Returns the iteration's start and its length, up to the start of the next one or to its own end."""
        own = [o for o in self.ops if o.iteration == iteration]
        if not own:
            stop(f"iteration {iteration} is out of range; the trace has {self.head['iterations']}")
        begin = min(o.start for o in own)
        after = [o.start for o in self.ops if o.iteration == iteration + 1]
        return begin, (min(after) if after else max(o.start + o.duration for o in own)) - begin

    def used(self):
        """Returns the lanes that run ops which take time."""
        return sorted({o.lane for o in self.ops if o.duration > 0 and o.lane in self.lanes})

    def steady(self):
        """Returns an iteration far from both ends of the trace, of median length, so that no outlier is shown as typical."""
        n = self.head["iterations"]
        inner = list(range(min(2, n - 1), max(n - 1, min(2, n - 1) + 1)))
        by_length = sorted(inner, key=lambda k: self.span(k)[1])
        return by_length[len(by_length) // 2]

    def critical(self, begin, end):
        """Returns the ops of the critical path of a window, as (iteration, op): back from the op that ends last in it."""
        by_key = {(o.iteration, o.op): o for o in self.ops}
        inside = [o for o in self.ops if o.start + o.duration <= end * (1 + 1e-9)]
        at, path = max(inside, key=lambda o: (o.start + o.duration, o.iteration, o.op), default=None), []
        while at and at.start + at.duration > begin:
            path.append((at.iteration, at.op))
            at = by_key.get(at.after)
        return set(path)

    def busy(self, lane, begin, length):
        """Returns the share of a window in which a lane runs ops."""
        spent = sum(max(0, min(o.start + o.duration, begin + length) - max(o.start, begin)) for o in self.ops if o.lane == lane)
        return spent / length if length else 0

    def computes(self, lane):
        return self.lanes[lane].endswith("compute")


def in_order(classes):
    """Returns tensor classes with their colours and names, in the order of CLASS_COLOURS."""
    known = [c for c in CLASS_COLOURS if c in classes] + [c for c in classes if c not in CLASS_COLOURS]
    return {CLASS_NAMES.get(c, c): CLASS_COLOURS.get(c, OTHER) for c in known}


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


def describe(result):
    """Returns title and provenance of a drawing of one result: (system and model, [scenario; how and by which commit])."""
    s = result["scenario"]
    sizes = f" in micro-batches of {s['micro_batch']}" if s.get("micro_batch") else ""
    title = f"{result['title']}: {s['model']['name']} on {s['gpus_text']}"
    return title, (f"cluster {s['cluster']}; batch {s['batch']} x {s['seq']} tokens{sizes}; {s['numerics_text']}; {result['obtained']} at "
                   f"{result['commit']}")

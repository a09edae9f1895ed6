#!/usr/bin/env python3
"""Writes an interactive timeline of a trace as one self-contained page: zoom, what an op moves and waited for, the critical path, memory.

    timeline_page.py --out FILE.html [--title TEXT] [--note TEXT] [--iteration K] TRACE

A trace is what `hetbench sim --trace` and `hetbench train --trace` write. `hetbench sim --plot FILE.html` runs this. Needs no matplotlib.
"""

import argparse
import html
import json
import pathlib
import sys

sys.dont_write_bytecode = True

from page import Page
from traces import CLASS_COLOURS, CLASS_NAMES, OTHER, Trace, in_order, seconds
from writing import unwritten

AROUND = 0.35  # of an iteration: how much of its neighbours the page has
STYLE = """
#bar{display:flex;flex-wrap:wrap;gap:.4rem .9rem;align-items:center;margin:.6rem 0;font-size:.9rem}
button{font:inherit;min-width:2.2rem;padding:.15rem .6rem;border:1px solid var(--line);border-radius:6px;background:var(--card);color:var(--fg)}
#frame{background:#fff;border:1px solid var(--line);border-radius:8px;overflow:hidden;touch-action:pan-y}
svg{display:block;font:11px system-ui,sans-serif;user-select:none;cursor:grab}
.label{fill:#222}.tick{fill:#666;font-size:10.5px}.name{font-size:10.5px;fill:#111;pointer-events:none}
.grid{stroke:#e4e4e4}.axis{stroke:#888}.edge{stroke:#000;stroke-dasharray:4 3}.capacity{stroke:#c00000;stroke-width:1.4}
.idle{fill:url(#hatch)}.critical{stroke:#000;stroke-width:1.3}.lit{fill:#c00000;pointer-events:none}
.picked{fill:none;stroke:#000;stroke-width:2.4;pointer-events:none}.cause{fill:none;stroke:#c00000;stroke-width:2.2;pointer-events:none}
.wait{stroke:#c00000;stroke-width:1.6;pointer-events:none}
#tip{position:fixed;background:#222;color:#fff;font-size:.82rem;line-height:1.4;padding:.4rem .6rem;border-radius:6px;pointer-events:none;z-index:9;
max-width:min(24rem,92vw)}
i{display:inline-block;width:.75em;height:.75em;margin-right:.4em;border-radius:2px;vertical-align:-.05em}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;font-size:.85rem;margin:.4rem 0}
#pinned{font-size:.88rem;min-height:1.4em}
"""


def lanes_of(trace, begin, length):
    """Returns the lanes that have ops in the window."""
    used = {o.lane for o in trace.ops if o.duration and o.start < begin + (1 + AROUND) * length and o.start + o.duration > begin - AROUND * length}
    return sorted(used)


def ops_of(trace, iteration, begin, length):
    """Returns the ops of the window, and their groups. A cause is an index of the list, or -1 where it is outside."""
    left, right = begin - AROUND * length, begin + (1 + AROUND) * length
    shown = sorted((o for o in trace.ops if o.duration and o.start < right and o.start + o.duration > left), key=lambda o: (o.start, o.op))
    lanes = lanes_of(trace, begin, length)
    critical = trace.critical(begin, begin + length)
    index = {(o.iteration, o.op): i for i, o in enumerate(shown)}
    groups = dict(o.group() for o in shown)
    names = list(groups)
    rows = [[lanes.index(o.lane), round(o.start, 9), round(o.duration, 9), names.index(o.group()[0]), o.name, int(o.iteration == iteration),
             int((o.iteration, o.op) in critical), o.bytes, index.get(o.after, -1)] for o in shown]
    return rows, [{"name": n, "colour": c} for n, c in groups.items()]


def space_of(trace, name, capacity, begin, length):
    """Returns a space's memory in the window: values by class and time, the largest class first."""
    samples, left, right = trace.memory[name], begin - AROUND * length, begin + (1 + AROUND) * length
    first = max((i for i, s in enumerate(samples) if s[0] <= left), default=0)
    shown = [s for s in samples[first:] if s[0] < right] or samples[-1:]
    classes = [c for c in shown[0][1] if any(s[1].get(c) for s in shown)]
    classes.sort(key=lambda c: -min(s[1].get(c, 0) for s in shown))
    return {"name": name, "capacity": capacity, "classes": [CLASS_NAMES.get(c, c) for c in classes],
            "colours": [CLASS_COLOURS.get(c, OTHER) for c in classes], "times": [round(s[0], 9) for s in shown],
            "values": [[s[1].get(c, 0) for s in shown] for c in classes], "peak": max(sum(s[1].values()) for s in shown) or 1}


def legend(entries):
    return '<div class="legend">' + "".join(f'<span><i style="background:{c}"></i>{html.escape(n)}</span>' for n, c in entries) + "</div>"


def page_of(trace, title, note, capacities, wanted=None):
    """Returns the page as text. capacities: {space: bytes}."""
    iteration = trace.steady() if wanted is None else wanted
    begin, length = trace.span(iteration)
    ops, groups = ops_of(trace, iteration, begin, length)
    spaces = [space_of(trace, s, capacities.get(s) or 0, begin, length) for s in trace.memory]
    data = {"lanes": [{"name": trace.lanes[t], "computes": trace.computes(t), "busy": trace.busy(t, begin, length)} for t in lanes_of(trace, begin, length)],
            "groups": groups, "ops": ops, "spaces": spaces, "begin": begin, "length": length}
    page = Page(title)
    classes = in_order([c for t in trace.memory.values() for c in t[0][1] if any(s[1].get(c) for s in t)])
    script = (pathlib.Path(__file__).resolve().parent / "timeline.js").read_text(encoding="utf-8")
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    page.parts.append(
        '<div id="bar"><button id="in" aria-label="zoom in">+</button><button id="out" aria-label="zoom out">−</button>'
        '<button id="reset">whole iteration</button><label><input type="checkbox" id="dim"> only the critical path</label></div>'
        '<div id="frame"><svg id="timeline" role="img" aria-label="timeline"></svg></div><div id="tip" hidden></div><p id="pinned"></p>'
        + legend([(g["name"], g["colour"]) for g in groups] + [("critical path (red line)", "#c00000")]) + legend(classes.items())
        + '<p class="soft">Wheel or two fingers: zoom; drag: move; hover: what an op moves and what it waited for; click: the chain of ops that '
        "it waited for; keys + - 0 and arrows. Hatched: a device computes nothing. h2d, d2h: copies to the device and back. In percent: how busy "
        "a lane is over the iteration. Pale: the iterations before and after.</p><noscript><p class=\"warn\">This page draws with JavaScript.</p></noscript>"
        f"<script>const data = {text};\n{script}</script>")
    intro = (f'<p class="soft"><span class="tag">{trace.obtained}</span> iteration {iteration + 1} of {trace.head["iterations"]}, {seconds(length)}'
             f'{"; " + html.escape(note) if note else ""}</p>')
    return page.html(intro).replace("</style>", STYLE + "</style>", 1).replace("<nav></nav>", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument("--out", required=True, help="HTML to write")
    parser.add_argument("--title", help="title of the page [the schedule's name]")
    parser.add_argument("--note", default="", help="where the numbers come from")
    parser.add_argument("--iteration", type=int, help="which iteration, from 0 [a typical one of the steady state]")
    args = parser.parse_args()
    trace = Trace(args.trace)
    try:
        pathlib.Path(args.out).write_text(page_of(trace, args.title or trace.schedule, args.note, {}, args.iteration), encoding="utf-8")
    except OSError as why:
        unwritten(args.out, why)


if __name__ == "__main__":
    main()

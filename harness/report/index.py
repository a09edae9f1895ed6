#!/usr/bin/env python3
"""One self-contained HTML page of a quickstart's results.

    index.py DIR          reads DIR/*.txt and DIR/*.png, writes DIR/index.html
"""

import html
import pathlib
import re
import sys

sys.dont_write_bytecode = True

from page import Page

# The sections in order: name, heading, explanation, pictures, what of reports stands open, folded reports.
SECTIONS = [
    ("fit", "Would it fit, and how fast?", "Simulated: one A100 40 GB with modelled costs.", ["throughput.png"], [], ["compare.txt"]),
    ("why", "Why that fast?", "Simulated: one iteration of ZeRO-Offload with full checkpointing on the 4B model. "
     '<a href="timeline_4b.html">timeline_4b.html</a> is the same to zoom into: what each op moves and waited for, and the critical path.',
     ["timeline_4b.png"], [], ["sim_4b.txt"]),
    ("refused", "It does not fit in plain memory", "Computed before anything runs: who needs what.", [], ["train_refused.txt"], ["train_refused.txt"]),
    ("trains", "Offloading trains it", "Measured on this machine: the losses beside those of plain training.", [], ["losses.txt"],
     ["train_zero_offload.txt", "train_in_memory.txt"]),
    ("clocks", "The same graph under two clocks", "Simulated above, measured below.", ["timeline.png"], [], ["sim_tiny.txt"]),
]


def add_losses(page, text):
    """Adds the losses of both trainings: a row a step, and the sentence on their bits."""
    head, *lines = text.splitlines()
    rows = [line.split() for line in lines]
    steps = [row for row in rows if row and row[0].isdigit() and len(row) == 4]
    page.table(re.split(r" {2,}", head.strip()),
               [[(step, "n"), (f"{float(a):.7f}", "n"), (f"{float(b):.7f}", "n"), (same, "good" if same == "yes" else "bad")] for step, a, b, same in steps])
    page.text(html.escape(lines[-1]))


def add_refusal(page, text):
    page.warning(text.splitlines()[-1].removeprefix("hetbench: "))


OPEN = {"losses.txt": add_losses, "train_refused.txt": add_refusal}


def folded(path):
    text = path.read_text(encoding="utf-8")
    return (f"<details><summary>the whole report, {path.name} ({len(text.splitlines())} lines)</summary>"
            f"<div class=scroll><pre>{html.escape(text)}</pre></div></details>")


def main():
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else "")
    if len(sys.argv) != 2 or not folder.is_dir():
        print("index.py: expected DIR, the folder of a quickstart's results", file=sys.stderr)
        sys.exit(2)
    page = Page("hetbench: quickstart")
    for name, heading, text, pictures, shown, whole in SECTIONS:
        if not any((folder / n).exists() for n in pictures + shown + whole):
            continue
        page.section(name, heading, text)
        for path in (folder / n for n in pictures if (folder / n).exists()):
            page.figure(path, path.stem)
        for path in (folder / n for n in shown if (folder / n).exists()):
            OPEN[path.name](page, path.read_text(encoding="utf-8"))
        page.parts += [folded(folder / n) for n in whole if (folder / n).exists()]
    (folder / "index.html").write_text(page.html('<p class="soft">What <code>./quickstart</code> made on this machine.</p>'), encoding="utf-8")


if __name__ == "__main__":
    main()

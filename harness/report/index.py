#!/usr/bin/env python3
"""One self-contained HTML page of a quickstart's results.

    index.py DIR          reads DIR/*.txt and DIR/*.png, writes DIR/index.html
"""

import html
import pathlib
import sys

sys.dont_write_bytecode = True

from page import Page

# The sections in order: name, heading, explanation, pictures, reports that are short enough to stand open, folded reports.
SECTIONS = [
    ("fit", "Would it fit, and how fast?", "Simulated: one A100 40 GB with modelled costs.", ["throughput.png"], [], ["compare.txt"]),
    ("why", "Why that fast?", "Simulated: one iteration of ZeRO-Offload with full checkpointing on the 4B model. "
     '<a href="timeline_4b.html">timeline_4b.html</a> is the same to zoom into: what each op moves and waited for, and the critical path.',
     ["timeline_4b.png"], [], ["sim_4b.txt"]),
    ("refused", "It does not fit in plain memory", "Computed before anything runs: who needs what.", [], [], ["train_refused.txt"]),
    ("trains", "Offloading trains it", "Measured on this machine: the losses beside those of plain training.", [], ["losses.txt"],
     ["train_zero_offload.txt", "train_in_memory.txt"]),
    ("clocks", "The same graph under two clocks", "Simulated above, measured below.", ["timeline.png"], [], ["sim_tiny.txt"]),
]


def report(path, folded):
    text = path.read_text(encoding="utf-8")
    block = f"<div class=scroll><pre>{html.escape(text)}</pre></div>"
    return f"<details><summary>the whole report, {path.name} ({len(text.splitlines())} lines)</summary>{block}</details>" if folded else block


def main():
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else "")
    if len(sys.argv) != 2 or not folder.is_dir():
        print("index.py: expected DIR, the folder of a quickstart's results", file=sys.stderr)
        sys.exit(2)
    page = Page("hetbench: quickstart")
    for name, heading, text, pictures, shown, folded in SECTIONS:
        if not any((folder / n).exists() for n in pictures + shown + folded):
            continue
        page.section(name, heading, text)
        for path in (folder / n for n in pictures if (folder / n).exists()):
            page.figure(path, path.stem)
        page.parts += [report(folder / n, n in folded) for n in shown + folded if (folder / n).exists()]
    (folder / "index.html").write_text(page.html('<p class="soft">What <code>./quickstart</code> made on this machine.</p>'), encoding="utf-8")


if __name__ == "__main__":
    main()

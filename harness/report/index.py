#!/usr/bin/env python3
"""One self-contained HTML page of a quickstart's results.

    index.py DIR          reads DIR/*.txt and DIR/*.png, writes DIR/index.html
"""

import base64
import html
import pathlib
import sys

# The sections in order: heading, explanation, files.
SECTIONS = [
    ("Would it fit, and how fast?", "Simulated: one A100 40 GB with modelled costs.", ["throughput.png", "compare.txt"]),
    ("Why that fast?", "Simulated: one iteration of ZeRO-Offload with full checkpointing on the 4B model.",
     ["timeline_4b.png", "sim_4b.txt"]),
    ("It does not fit in plain memory", "Computed before anything runs: who needs what.", ["train_refused.txt"]),
    ("Offloading trains it", "Measured on this machine: the losses beside those of plain training.",
     ["losses.txt", "train_zero_offload.txt", "train_in_memory.txt"]),
    ("The same graph under two clocks", "Simulated above, measured below.", ["timeline.png", "sim_tiny.txt"]),
]

STYLE = """body{font:15px/1.45 sans-serif;max-width:1250px;margin:2em auto;padding:0 1em;color:#222}
pre{background:#f6f6f4;padding:.8em;overflow-x:auto;font-size:12px;line-height:1.35}img{max-width:100%}
h2{margin-top:2em;border-bottom:1px solid #ccc}"""


def block(path):
    if path.suffix == ".png":
        data = base64.b64encode(path.read_bytes()).decode()
        return f'<img alt="{path.stem}" src="data:image/png;base64,{data}">'
    return f"<pre>{html.escape(path.read_text())}</pre>"


def main():
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else "")
    if len(sys.argv) != 2 or not folder.is_dir():
        print("index.py: expected DIR, the folder of a quickstart's results", file=sys.stderr)
        sys.exit(2)
    parts = []
    for heading, text, names in SECTIONS:
        found = [block(folder / n) for n in names if (folder / n).exists()]
        if found:
            parts.append(f"<h2>{heading}</h2><p>{text}</p>" + "\n".join(found))
    page = f"<!doctype html><meta charset=utf-8><title>hetbench</title><style>{STYLE}</style><h1>hetbench: quickstart</h1>"
    (folder / "index.html").write_text(page + "\n".join(parts) + "\n")


if __name__ == "__main__":
    main()

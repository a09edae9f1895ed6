#!/usr/bin/env python3
"""
Gives docs/lesson.md's lesson: runs its commands, draws its pictures, and computes its answers.

    lesson.py ROOT BUILD

A comment of the page, <!-- VALUE = EXPRESSION -->, says what a number of its step's answer is computed from: d has the documents of the step's
commands, s[N] those of step N. The value is to come out with as many digits as it is written with, and to stand in the step's text.
"""
import math
import os
import pathlib
import re
import shlex
import sys
import tempfile

sys.dont_write_bytecode = True
root, build = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
sys.path.insert(0, str(root / "python"))
os.environ["HETBENCH"] = str(build / "hetbench")
import hetbench


def row(document, **where):
    """Returns the one row that has these values; the document of maxsize has its best as that."""
    found = [r for r in hetbench.rows(document) if all(r.get(k) == v for k, v in where.items())]
    assert len(found) == 1, (where, len(found))
    return found[0]


def lane(document, name, rank=0):
    return next(x for x in document["lane_busy"] if x["lane"] == name and x["rank"] == rank)


def classes(document, space):
    return next(m["by_class"] for m in document["memory"] if m["space"] == space)


def params(document):
    return document["scenario"]["model"]["params"]


def check(step, text, documents):
    """Returns what is wrong with a step's answers, and how many it has."""
    names = {"d": documents[step], "s": documents, "row": row, "lane": lane, "classes": classes, "params": params, "math": math}
    wrong, answers = [], re.findall(r"^<!-- ([0-9.]+) = (.*) -->$", text, re.M)
    shown = re.sub(r"<!--.*?-->", "", text)
    for value, expression in answers:
        digits = len(value.partition(".")[2])
        try:
            got = f"{eval(expression, names):.{digits}f}"
        except Exception as error:
            got = repr(error)
        if got != value:
            wrong.append(f"step {step}: {expression} is {got}, not {value}")
        if not re.search(rf"(?<![0-9.]){re.escape(value)}(?![0-9]|\.[0-9])", shown):
            wrong.append(f"step {step}: {value} is not in its text")
    return wrong, len(answers)


def main():
    page = (root / "docs/lesson.md").read_text(encoding="utf-8")
    documents, wrong, pictures = {}, [], []
    with tempfile.TemporaryDirectory(prefix="hetbench-lesson-") as folder:
        os.chdir(folder)
        for heading, text in re.findall(r"^## (\d+\. .*)\n((?:(?!## ).*\n)*)", page, re.M):
            step = int(heading.split(".")[0])
            documents[step] = []
            for command in re.findall(r"^    (\S.*)$", text, re.M):
                words = shlex.split(command)
                documents[step].append(hetbench.run(words[1], *words[2:]))
                pictures += [words[at + 1] for at, word in enumerate(words) if word == "--plot"]
            if not documents[step] or "**Question.**" not in text or "<summary>Answer</summary>" not in text:
                wrong.append(f"step {step} lacks a command, a question or an answer")
            said, n = check(step, text, documents)
            wrong += said + ([] if n else [f"step {step}: nothing is computed"])
            if not any(p.startswith(f"{step}.") for p in pictures):
                wrong.append(f"step {step} draws no picture")
        wrong += [f"{p} is empty" for p in pictures if not os.path.getsize(p)]
        os.chdir("/")
    minutes = [tuple(map(int, m)) for m in re.findall(r"^\| (\d+) to (\d+) \|", page, re.M)]
    if [a for a, _ in minutes] != [0] + [b for _, b in minutes[:-1]] or minutes[-1][1] != 45 or len(minutes) != len(documents):
        wrong.append(f"the minutes do not make up 45: {minutes}")
    print(*wrong, f"{len(documents)} steps, {len(pictures)} pictures", sep="\n")
    return bool(wrong) or len(documents) < 8


if __name__ == "__main__":
    sys.exit(main())

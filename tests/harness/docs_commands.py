#!/usr/bin/env python3
"""
Runs the commands of README.md and of the documents, as they stand there, and says which end with another status than 0.

    docs_commands.py ROOT BUILD [--full] DOCUMENT..

A document's commands run one after another in a folder of its own, where later ones find what earlier ones left. FILE and text.txt
are the repository's text, DIR and /mnt/.. folders there. Without --full trainings make at most eight steps, and what takes
minutes is left out. Folders in /tmp become the document's own.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

LONG = r"hetbench (reproduce( --json| --out| '(cephalo|autohet)\.\*'|.*--out results|$)|experiment|report|advise|profile|replay|goodput --model gpt2-1\.5b --batch 128 --trace)|--profile costs|--clock emu"
# What a document writes about but does not make, or writes about because it fails.
LEFT_OUT = [
    (r"\[(--|[A-Z])|hetbench COMMAND|^\S+ sim$| \.\.\.", "is no whole command"),
    (r"STORE\.\.|/data/run|--ledger my\.yaml|my-sweep\.yaml|sweep\.yaml|nodes\.yaml|mixed\.yaml", "is about files of the reader's"),
    (r"gpt2/|--init gpt2|gpt-352m\.yaml|train\.u16", "is about a model of the reader's"),
    (r"--backend cuda", "needs a GPU"),
    (r"plan in_memory --model autohete-4b", "shows a model that does not fit"),
]


def commands(path):
    """Yields (line, command) for the commands in a document's indented blocks and between backticks."""
    lines = open(path, encoding="utf-8").read().split("\n")
    at = 0
    while at < len(lines):
        found = re.match(r"^    (?:\$ )?((?:build/)?hetbench\s.*)", lines[at])
        first = at + 1
        if found:
            command = found.group(1)
            while command.endswith("\\"):
                at += 1
                command = command[:-1] + lines[at].strip()
            command = re.sub(r"(hetbench (sim|plan|verify|train|compare|elastic)) +(?=\S)", r"\1 ", command)  # never without an argument
            command = re.sub(r"(hetbench \w+) {1,2}(?=\S)", r"\1 ", command)
            yield first, re.split(r"\s{3,}", command)[0].split(" && ")[0]
        else:
            yield from ((first, c) for c in inline(lines[at]))
        at += 1


def inline(line):
    """Yields the whole commands between backticks: not the mere name of one, nor one with a placeholder or a single option."""
    for command in re.findall(r"`((?:build/)?hetbench [^`]+)`", line):
        words = command.split()[1:]
        whole = len(words) > 1 and (not words[1].startswith("-") or len(words) > 3)
        if whole and not re.search(r"\b[A-Z]{2,}\b|\.\.(?!\w)", re.sub(r"\d+GB", "", command)):
            yield command


def fill_in(command, full):
    command = re.sub(r"--data FILE\b", "--data text.txt", command)
    command = command.replace("/tmp/", "./")
    command = re.sub(r"--disk (DIR|FOLDER|/mnt/\S+|/var/tmp)\b", "--disk .", command)
    if not full:
        if re.search(r"hetbench train \w+ --model gpt-tiny", command) and "--steps" not in command:
            command += " --steps 8"
        command = re.sub(r"--steps (\d+)", lambda m: f"--steps {min(int(m.group(1)), 8)}", command)
    return command


def main():
    full = "--full" in sys.argv
    root, build, *documents = [a for a in sys.argv[1:] if a != "--full"]
    root, build = os.path.abspath(root), os.path.abspath(build)
    listed = subprocess.run([f"{build}/hetbench", "list", "experiments", "--json"], check=True, text=True, capture_output=True).stdout
    experiments = {e["name"] for e in json.loads(listed)["experiments"]}
    failed = ran = 0
    for document in documents:
        folder = tempfile.mkdtemp(prefix="hetbench-docs-")
        os.symlink(build, f"{folder}/build")
        os.symlink(f"{root}/tests", f"{folder}/tests")
        os.symlink(f"{root}/tests/data/kjv-200k.txt", f"{folder}/text.txt")
        for line, text in commands(f"{root}/{document}"):
            name = re.search(r"hetbench experiment ([a-z0-9-]+)(?![a-z0-9.-])", text)
            if name and name[1] not in experiments:
                failed += 1
                print(f"FAILED: {document}:{line}: {text}: no such experiment")
            why = next((why for pattern, why in LEFT_OUT if re.search(pattern, text)), None)
            if why or (not full and re.search(LONG, text)):
                continue
            command = fill_in(text, full)
            path = {**os.environ, "PATH": f"{build}:{os.environ['PATH']}"}
            ran += 1
            got = subprocess.run(["bash", "-c", command], cwd=folder, env=path, text=True, capture_output=True)
            if got.returncode:
                failed += 1
                print(f"FAILED: {document}:{line}: {command}: status {got.returncode}: {got.stderr.strip()[-400:]}")
        shutil.rmtree(folder)
    print(f"{ran} commands, {failed} failed")
    return failed > 0 or ran == 0


if __name__ == "__main__":
    sys.exit(main())

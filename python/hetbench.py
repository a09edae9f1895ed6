"""Runs hetbench and returns its results: documents, rows, and pandas' DataFrames.

    import hetbench
    hetbench.run("sim", "autohete", model="autohete-2b", cluster="autohete-1gpu")["iteration_time_s"]
    hetbench.frame("compare", models="autohete-2b,autohete-4b", cluster="autohete-1gpu", systems=["zero_offload", "autohete"])

Only `frame` needs pandas. docs/outputs.md lists documents and columns with their units.
"""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess

__all__ = ["Error", "command", "executable", "frame", "read", "rows", "run"]
__version__ = "0.5.0"
LEADING = ("system", "model", "params", "status")  # columns that pandas should not fold away
LISTS = ("rows", "policies", "best", "residuals", "versions", "variables")  # members that hold a document's rows


class Error(Exception):
    """A command that failed: `status` is 1 failed while running, 2 bad input, 3 does not fit, 130 interrupted."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def executable():
    """Returns the program's path: $HETBENCH, else that of this installation or tree, else the one on the PATH."""
    here = pathlib.Path(__file__).resolve().parent
    beside = (here / "../../../bin/hetbench", here / "../build/hetbench")  # PREFIX/share/hetbench/python; TREE/python
    found = os.environ.get("HETBENCH") or next((str(p.resolve()) for p in beside if p.is_file()), None) or shutil.which("hetbench")
    if not found:
        raise FileNotFoundError("hetbench is neither beside hetbench.py nor on the PATH; expected its path in $HETBENCH")
    return found


def _text(value):
    if isinstance(value, dict):
        return ",".join(f"{k}={_text(v)}" for k, v in value.items())
    return ",".join(map(_text, value)) if isinstance(value, (list, tuple)) else str(value)


def command(name, *words, **options):
    """Returns the argument list. An option's name has '_' for '-'; True stands for an option without a value, None and False for none,
    a list for a list with commas. `set` is a dictionary of plan variables, `profile` may be a list of files."""
    out = [executable(), name, *map(str, words)]
    for key, value in options.items():
        flag = f"--{key.rstrip('_').replace('_', '-')}"
        if value is None or value is False:
            continue
        if value is True:
            out.append(flag)
        elif key == "set" and isinstance(value, dict):
            out += [x for k, v in value.items() for x in (flag, f"{k}={_text(v)}")]
        elif key in ("set", "profile", "bad") and isinstance(value, (list, tuple)):
            out += [x for v in value for x in (flag, str(v))]
        else:
            out += [flag, _text(value)]
    return out


def run(name, *words, **options):
    """Runs a command with --json and returns its document. Raises Error with the program's line unless its status is 0; a plan that does
    not fit is a document too, whose `status` says so."""
    got = subprocess.run(command(name, *words, json=True, **options), capture_output=True, text=True, check=False)
    if got.returncode not in (0, 3) or not got.stdout.strip():
        raise Error(got.returncode, got.stderr.strip().removeprefix("hetbench: "))
    return json.loads(got.stdout)


def _flat(row):
    """Returns a row's scalars: who and what (LEADING), its scenario's, its own, and its plan's variables as plan_NAME."""
    scenario, plan = row.get("scenario") or {}, row.get("plan") or {}
    model = scenario.get("model") or {}
    own = {k: v for k, v in row.items() if not isinstance(v, (dict, list))}
    more = {k: v for k, v in scenario.items() if not isinstance(v, (dict, list))}
    named = {"model": model["name"], "params": model["params"]} if model else {}
    variables = {f"plan_{k}": _text(v) if isinstance(v, list) else v for k, v in plan.get("variables", {}).items()}
    flat = {**more, **own, **named, **variables, **({"plan_why": plan["why"]} if plan.get("why") else {})}
    return {**{k: flat[k] for k in LEADING if k in flat}, **flat}


def rows(document):
    """Returns the rows of a document as flat dictionaries: one a system, claim, policy, residual or entry; else the document as one."""
    key = next((k for k in LISTS if isinstance(document.get(k), list)), None)
    if document.get("schema", {}).get("name") == "list":
        key = next(k for k, v in document.items() if isinstance(v, list))
    if key is None:
        return [_flat({k: v for k, v in document.items() if k != "schema"})]
    found = []
    for row in document[key]:
        if isinstance(row.get("policies"), list):  # a day of several
            found += [{"day": row.get("label"), "model": row.get("model"), **_flat(p)} for p in row["policies"]]
        else:
            found.append(_flat(row))
    return found


def _cell(text):
    """Returns what a CSV's cell holds: a number, None where it is empty, else text."""
    try:
        return int(text) if re.fullmatch("-?[0-9]+", text) else float(text) if text else None
    except ValueError:
        return text


def read(path, text=()):
    """Reads the rows of a CSV file as dictionaries of numbers, texts and None, or of a JSON document. The columns in `text` stay text."""
    path = pathlib.Path(path)
    if path.suffix == ".json":
        return rows(json.loads(path.read_text(encoding="utf-8")))
    with open(path, encoding="utf-8", newline="") as file:
        return [{k: v if k in text else _cell(v) for k, v in line.items()} for line in csv.DictReader(file)]


def frame(name, *words, **options):
    """Runs a command and returns its rows as a DataFrame of pandas. A path to a CSV or JSON file in place of a command is read."""
    try:
        import pandas
    except ImportError:
        raise ImportError("hetbench.frame needs pandas; hetbench.rows(hetbench.run(..)) gives the same rows without it") from None
    is_file = not words and not options and str(name).endswith((".csv", ".json"))
    return pandas.DataFrame(read(name) if is_file else rows(run(name, *words, **options)))

#!/usr/bin/env python3
"""The executor's share of a training step.

    bench/executor_share.py [BUILD-DIRECTORY]

In-memory training puts every op on one lane, one after the other, so whatever part of a step that lane is not busy is the
executor's: choosing the next op, granting and freeing memory, the step's bookkeeping. Nine runs of the quickstart's model;
median, least and most. First the losses of all runs are compared: they have to be equal to the last bit. The reference is
the step itself, in the same run.
"""
import json
import os
import statistics
import subprocess
import sys

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "build")
command = [os.path.join(build, "hetbench"), "train", "in_memory", "--model", "gpt-tiny", "--batch", "4", "--micro-batch", "1",
           "--data", os.path.join(root, "tests/data/kjv-200k.txt"), "--steps", "30", "--device-memory", "64MB", "--json"]

runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(9)]
if any(run["losses"] != runs[0]["losses"] for run in runs):
    sys.exit("WRONG: the losses of nine runs differ")
share = sorted(100 * run["bubble_ratio"] for run in runs)
step = sorted(1e3 * run["iteration_time_s"] for run in runs)
print(f"executor's share of the step {statistics.median(share):.2f}% ({share[0]:.2f} to {share[-1]:.2f}), "
      f"step {statistics.median(step):.2f} ms ({step[0]:.2f} to {step[-1]:.2f}), n = {len(runs)}")

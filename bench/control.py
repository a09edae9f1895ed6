#!/usr/bin/env python3
"""What control costs: optimizer steps that wait until all gradients are known to be good (gate), or are made at once with a
log and undone when they were not (rollback), beside neither.

    bench/control.py [BUILD-DIRECTORY]

ZeRO-Offload on the emulated device, batches of one sequence of 64 tokens, so that the optimizer counts: its step streams through
every parameter, and so do judging and logging. All gradients are good. First the losses of all runs are compared: the three have to
agree to the last bit. Then 9 rounds of the three in turn; medians of the runs' median steps, least and most.
"""
import json
import os
import statistics
import subprocess
import sys

ROUNDS = 9
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "build")
if build in ("-h", "--help"):
    sys.exit(print(__doc__))
if not os.path.exists(os.path.join(build, "hetbench")):
    print(f"control.py: {build} has no hetbench; expected a build directory", file=sys.stderr)
    sys.exit(2)
command = [os.path.join(build, "hetbench"), "train", "zero_offload", "--model", os.path.join(root, "bench/gpt-256.yaml"),
           "--batch", "1", "--seq", "64", "--data", os.path.join(root, "tests/data/kjv-200k.txt"), "--steps", "40",
           "--device-memory", "256MB", "--json"]
modes = ("none", "gate", "rollback")


def train(numerics, mode):
    options = ["--numerics", numerics, "--control", mode]
    return json.loads(subprocess.run(command + options, check=True, capture_output=True).stdout)


for numerics in ("fp32", "bf16"):
    rounds = [{mode: train(numerics, mode) for mode in modes} for _ in range(ROUNDS)]
    if any(run["losses"] != rounds[0]["none"]["losses"] for turn in rounds for run in turn.values()):
        sys.exit(f"WRONG: the losses differ ({numerics})")
    print(f"{numerics}: losses equal")
    none = statistics.median(turn["none"]["median_step_s"] for turn in rounds)
    for mode in modes:
        step = sorted(1e3 * turn[mode]["median_step_s"] for turn in rounds)
        print(f"  {mode:<9} {statistics.median(step):7.3f} ms ({step[0]:.3f} to {step[-1]:.3f}), "
              f"{statistics.median(step) / (1e3 * none):.3f} of none")

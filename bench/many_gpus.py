#!/usr/bin/env python3
"""What a graph of many GPUs takes: GPT-3 of 175B parameters (Brown et al. 2020) on 64, 512 and 1,024 A100, one iteration of 1,536
sequences.

    bench/many_gpus.py [BUILD-DIRECTORY] [GPUS..]

Pipelines of eight stages of eight parts, as many as there are GPUs for, in Megatron-LM's order; micro-batches of one sequence, every
block recomputed. First `verify` builds the graph and proves it, then `sim --every-replica` does that and simulates an iteration, then
`sim` alone, which does it for one part of one of equal pipelines (common/schedule/fold.h). Time is that of the processor, user and
system, so that other work on the machine counts little; memory is the most that was resident. The reference is the first line's time
and memory for an op of the whole graph.
"""
import json
import os
import subprocess
import sys
import tempfile

BATCH, STAGES, PARTS = 1536, 8, 8
MODEL = "{name: gpt-175b, arch: gpt, layers: 96, width: 12288, heads: 96, vocab: 51200, max_seq: 2048, source: Brown et al. 2020}\n"
CLUSTER = """name: many
source: nodes as dgx-a100, with one link of 200 Gb/s each
nodes:
  - {count: %d, cpu: epyc-7742, sockets: 2, ram: 2 TB, gpus: [{type: a100-80gb, count: 8}], pcie: pcie4-x16, nvlink: nvlink3, nic: infiniband-hdr}
"""


def run(folder, name, command):
    """Returns the output of a command, its processor time in s and its largest memory in bytes."""
    path = os.path.join(folder, name)
    with open(path, "w") as out:
        child = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"many_gpus.py: {' '.join(command)}: exit status {child.returncode}")
    with open(path) as out:
        return json.load(out), usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss


def measure(hetbench, folder, gpus):
    pipelines = gpus // (STAGES * PARTS)
    model, cluster = os.path.join(folder, "model.yaml"), os.path.join(folder, "cluster.yaml")
    with open(model, "w") as f:
        f.write(MODEL)
    with open(cluster, "w") as f:
        f.write(CLUSTER % (gpus // 8))
    scenario = ["dapple", "--json", "--model", model, "--cluster", cluster, "--batch", str(BATCH), "--micro-batch", "1", "--seq", "2048",
                "--set", f"tp={PARTS}", "--set", "recompute=1"]
    if pipelines > 1:
        scenario += ["--set", "order=1", "--set", "pipelines=" + ",".join([str(STAGES * PARTS)] * pipelines)]
    _, proved_s, proved_bytes = run(folder, "proved", [hetbench, "verify", *scenario])
    simulation = [hetbench, "sim", *scenario, "--iterations", "1", "--warmup", "0"]
    whole, all_s, all_bytes = run(folder, "simulated", [*simulation, "--every-replica"])
    folded, folded_s, folded_bytes = run(folder, "folded", simulation)
    if folded["iteration_time_s"] != whole["iteration_time_s"] or folded["memory"] != whole["memory"]:
        sys.exit(f"many_gpus.py: {gpus} GPUs: the folded graph has other results than the whole one")
    return whole["ops"], proved_s, proved_bytes, all_s, all_bytes, folded_s, folded_bytes


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(print(__doc__))
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "build")
    hetbench = os.path.join(build, "hetbench")
    if not os.path.exists(hetbench):
        print(f"many_gpus.py: {build} has no hetbench; expected a build directory", file=sys.stderr)
        sys.exit(2)
    print(" gpus       ops   build, prove               and simulate              folded              an op            of the first")
    first = None
    for gpus in [int(n) for n in sys.argv[2:]] or [64, 512, 1024]:
        with tempfile.TemporaryDirectory() as folder:
            ops, proved_s, proved_bytes, all_s, all_bytes, folded_s, folded_bytes = measure(hetbench, folder, gpus)
        each = (1e6 * all_s / ops, all_bytes / ops)
        first = first or each
        print(f"{gpus:5} {ops:9}   {proved_s:6.1f} s, {1e-9 * proved_bytes:5.2f} GB   {all_s:6.1f} s, {1e-9 * all_bytes:5.2f} GB   {folded_s:6.1f} s, {1e-9 * folded_bytes:5.2f} GB   "
              f"{each[0]:5.2f} us, {each[1]:5.0f} bytes   {each[0] / first[0]:.2f}, {each[1] / first[1]:.2f}", flush=True)


if __name__ == "__main__":
    main()

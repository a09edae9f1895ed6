#!/usr/bin/env python3
"""
Measures how long advise searches over all systems: until it has a first answer, and until the best one is proven.

    advise.py HETBENCH [CASE..]        default: all cases

A case is interrupted once the process has used as many seconds of processor time as a first answer may take, and has to
have one: on two free cores that is no later than the limit. Then it runs to its end. The processor's time stands beside the
clock's, which others on the machine lengthen. The answers of both runs are verified: the first must not be faster than the
proven one.
"""
import json
import os
import resource
import signal
import subprocess
import sys
import time

CASES = {  # arguments, seconds to a first answer, seconds to the proof
    "8 GPUs, two kinds": (["--model", "llama-7b", "--gpus", "a100-40gb:4,v100-32gb:4", "--ram", "512GB"], 10, 60),
    "8 GPUs, one kind": (["--model", "llama-13b", "--gpus", "a100-80gb:8", "--ram", "2TB"], 10, 60),
    "64 GPUs": (["--model", "llama-30b", "--gpus", "a100-80gb:8x8", "--ram", "2TB", "--nic", "infiniband-hdr"], 30, 600),
}


def processor_s(pid):
    """Returns the processor time that a child has used so far."""
    fields = open(f"/proc/{pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def search(hetbench, arguments, interrupt_s=None):
    """Returns (answer, seconds, processor seconds)."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen([hetbench, "advise", "--json", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    while interrupt_s and process.poll() is None:
        if processor_s(process.pid) >= interrupt_s:
            process.send_signal(signal.SIGINT)
            break
        time.sleep(0.05)
    out, _ = process.communicate()
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in (0, 130):
        sys.exit(f"advise {' '.join(arguments)}: status {process.returncode}")
    return json.loads(out), took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rate(answer):
    return answer["best"][0]["tokens_per_s"] if answer["best"] else 0


def main():
    hetbench, names = sys.argv[1], sys.argv[2:] or list(CASES)
    print(f"{'case':20} {'limit':>6} {'then':>18} {'proven after':>12} {'processor':>10} {'limit':>6} {'best':>18}")
    for name in names:
        arguments, first_s, proof_s = CASES[name]
        first, _, _ = search(hetbench, arguments, first_s)
        whole, took, busy = search(hetbench, arguments)
        if rate(first) > rate(whole):
            sys.exit(f"{name}: interrupted it has {rate(first)} tokens/s, proven {rate(whole)}")
        said = f"{rate(first):,.0f} tokens/s" if rate(first) else "no answer"
        print(f"{name:20} {first_s:>4} s {said:>18} {took:>10.1f} s {busy:>8.1f} s {proof_s:>4} s {rate(whole):>11,.0f} tokens/s", flush=True)


main()

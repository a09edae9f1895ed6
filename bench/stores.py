#!/usr/bin/env python3
"""What saves of a training cost: by way of rank 0 (--checkpoint), by stores that are written behind (--store, --store-memory), and what
fio writes to the same disk.

    /usr/bin/python3 bench/stores.py DIR [ROUNDS [MODEL|FILE [EVERY]]]

DIR is on the disk; memory is /dev/shm. In each round (3), in turn: a training that does not save; one that saves by way of rank 0; one
that saves into stores; a single save that is written while training waits; fio, which writes as many bytes in blocks of 1 MiB, 8 in flight,
past the page cache, into a new file, and syncs. All trainings are of one process, EVERY steps (3) a save, four saves. The losses of all
three are compared. A figure is the median, with the lowest and the highest.
"""

import json
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAVES = 4


def cpu_s():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def train(folder, model, steps, losses, *options):
    command = [ROOT / "build/hetbench", "train", "in_memory", "--model", model, "--batch", "1", "--seq", "16", "--micro-batch", "1", "--data",
               ROOT / "tests/data/kjv-200k.txt", "--steps", str(steps), "--losses", losses, "--json", *options]
    before = cpu_s()
    done = subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout) | {"cpu_s": cpu_s() - before}


def fio(folder, bytes_):
    done = subprocess.run(["fio", "--output-format=json", "--ioengine=io_uring", "--direct=1", "--bs=1M", "--iodepth=8", "--rw=write",
                           f"--size={bytes_ >> 20}M", "--end_fsync=1", "--fallocate=native", "--name=x", f"--filename={folder}/fio"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"fio failed; expected it installed, with io_uring: {done.stderr}")
    job = json.loads(done.stdout)["jobs"][0]
    (pathlib.Path(folder) / "fio").unlink()
    return job["write"]["io_bytes"] / (job["job_runtime"] * 1e-3)


def text(values, scale=1, unit=""):
    return f"{statistics.median(values) * scale:8.3f} {unit} ({min(values) * scale:.3f} to {max(values) * scale:.3f})"


def one_round(folder, memory, model, every):
    for name in ("old", "new", "alone"):
        shutil.rmtree(pathlib.Path(folder) / name, ignore_errors=True)
        shutil.rmtree(pathlib.Path(memory) / name, ignore_errors=True)
    steps = SAVES * every
    behind = ("--every", every, "--store", "new", "--store-memory", f"{memory}/new")
    plain = train(folder, model, steps, "plain.csv")
    old = train(folder, model, steps, "old.csv", "--every", every, "--checkpoint", "old")
    shutil.rmtree(pathlib.Path(folder) / "old")
    new = train(folder, model, steps, "new.csv", *behind)
    if not (pathlib.Path(folder, "plain.csv").read_bytes() == pathlib.Path(folder, "old.csv").read_bytes()
            == pathlib.Path(folder, "new.csv").read_bytes()):
        sys.exit("saving has changed the losses")
    shutil.rmtree(pathlib.Path(folder) / "new")
    shutil.rmtree(pathlib.Path(memory) / "new")
    alone = train(folder, model, 1, "alone.csv", "--store", "alone", "--store-memory", f"{memory}/alone")["training"]["stores"]
    s, checkpoints = new["training"]["stores"], old["training"]
    return {"old": checkpoints["checkpoints_s"] / checkpoints["checkpoints"], "first": s["first_stall_s"],
            "later": (s["stall_s"] - s["waited_s"] - s["first_stall_s"]) / (s["saved"] - 1), "waited": s["waited_s"] / (s["saved"] - 1),
            "bytes": s["bytes"] / s["saved"], "behind": s["bytes"] / s["written_s"], "alone": alone["bytes"] / alone["written_s"],
            "fio": fio(folder, alone["bytes"]), "step": statistics.mean(plain["step_s"]), "slowed": statistics.mean(new["step_s"]),
            "cpu_old": max((old["cpu_s"] - plain["cpu_s"]) / SAVES, 0), "cpu_new": max((new["cpu_s"] - plain["cpu_s"]) / SAVES, 0)}


def main():
    if len(sys.argv) not in (2, 3, 4, 5):
        sys.exit(__doc__)
    if not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(f"stores.py: {sys.argv[1]}: no such folder")
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    model = sys.argv[3] if len(sys.argv) > 3 else "gpt2-124m"
    model = pathlib.Path(model).resolve() if pathlib.Path(model).is_file() else model
    every = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        found = [one_round(folder, memory, model, every) for _ in range(rounds)]
    of = {key: [r[key] for r in found] for key in found[0]}
    ratios = {"first": "first", "later": "later"}
    print(f"{getattr(model, 'name', model)}: {of['bytes'][0] / 1e9:.3f} GB a save, {SAVES} saves, every {every} steps, {rounds} rounds; losses are the same")
    print(f"stall, by rank 0           {text(of['old'], 1, 's')}")
    for key in ratios:
        shares = [new / old for new, old in zip(of[key], of["old"])]
        print(f"stall, stores, {key:5} save  {text(of[key], 1, 's')}, of rank 0's in a round {text(shares)}")
    print(f"waited for the one before  {text(of['waited'], 1, 's')} a save")
    print(f"CPU time of a save         {text(of['cpu_old'], 1, 's')} by rank 0, {text(of['cpu_new'], 1, 's')} by stores, of which a part is behind")
    print(f"rate by rank 0             {text([b / s for b, s in zip(of['bytes'], of['old'])], 1e-9, 'GB/s')}")
    print(f"fio                        {text(of['fio'], 1e-9, 'GB/s')}")
    for key, name in (("alone", "while training waits"), ("behind", "while training goes on")):
        print(f"written, {name:22}{text(of[key], 1e-9, 'GB/s')}, of fio's in a round {text([a / f for a, f in zip(of[key], of['fio'])])}")
    print(f"a step                     {text(of['step'], 1, 's')}; with stores {text(of['slowed'], 1, 's')}, "
          f"{text([a / b for a, b in zip(of['slowed'], of['step'])], 1, 'times')}")


if __name__ == "__main__":
    main()

#!/usr/bin/env bash
# The predictions of SysX's evaluation: the grid is all there, once each; an interrupted run goes on; what must be monotone is.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
script=$root/scripts/sysx-predictions

# ---- one small model anew: a row is made once, kept when it is there, made again when it is not ----

"$python" "$script" --hetbench "$hetbench" --out some.csv --only v100,1,10B,2 2>log || fail "$(cat log)"
head -n 3 some.csv >kept.csv
sed -i '2s/,ok$/,oom/' kept.csv # a mark: a row that is there is not made again
"$python" "$script" --hetbench "$hetbench" --out kept.csv --only v100,1,10B,2 2>log || fail "$(cat log)"
"$python" - <<'PY' || fail "an interrupted run does not end as one that was not"
some, kept = (open(f).read().splitlines() for f in ("some.csv", "kept.csv"))
assert len(some) == 1 + 5 * 3 and kept[1].endswith(",oom") and some[1].endswith(",ok")
assert some[0] == kept[0] and some[2:] == kept[2:]
PY
echo wrong >bad.csv
"$python" "$script" --hetbench "$hetbench" --out bad.csv --only v100,1,10B,2 2>log && fail "other columns were taken"
grep -q "has other columns" log || fail "$(cat log)"

# ---- the whole grid, as it is in the tree ----

"$python" - some.csv "$root/results/sysx/predictions.csv" <<'PY' || fail "predictions do not hold together"
import csv, itertools, sys

NODES = {"10B": 1, "19B": 1, "30B": 2, "40B": 2, "52B": 4, "69B": 4, "88B": 8, "110B": 8}
new, all_rows = (list(csv.DictReader(open(f))) for f in sys.argv[1:])
assert list(all_rows[0]) == "cluster,nodes,model,micro_batch,global_batch,seq,system,iteration_ms,gpu_ms,status".split(",")
keys = [tuple(r[k] for k in list(r)[:7]) for r in all_rows]
shapes = {(2, 16, 1024), (2, 16, 2048), (1, 32, 1024), (2, 32, 1024), (4, 32, 1024), (8, 32, 1024), (2, 8, 1024), (2, 24, 1024)}
want = {(c, str(n), m, str(mb), str(b * n), str(s), system) for c in ("v100", "rtx3090") for m, n in NODES.items()
        for mb, b, s in shapes for system in ("mobius", "megatron", "sysx")}
assert len(keys) == len(set(keys)) == len(want) == 384 and set(keys) == want

def held(rows):
    at = {}
    for r in rows:
        assert r["status"] in ("ok", "oom")
        assert (r["status"] == "oom") == (r["iteration_ms"] == "") == (r["gpu_ms"] == "")
        if r["status"] == "ok":
            assert 0 < float(r["gpu_ms"]) < float(r["iteration_ms"])
        at[r["cluster"], r["model"], int(r["micro_batch"]), int(r["global_batch"]) // NODES[r["model"]], int(r["seq"]), r["system"]] = r
    time = lambda k, f="iteration_ms": float(at[k][f]) if k in at and at[k]["status"] == "ok" else None
    checked = 0
    for k in at:
        c, m, mb, b, s, system = k
        for more in ((c, m, mb, b + 8, s, system), (c, m, mb, b, 2 * s, system)):  # more tokens are never faster
            if time(k) and time(more):
                assert time(more) > time(k) and time(more, "gpu_ms") > time(k, "gpu_ms"), (k, more)
                checked += 1
        longer = (c, m, mb, b, 2 * s, system)
        if longer in at and at[k]["status"] == "oom":  # nor do they need less memory
            assert at[longer]["status"] == "oom", longer
        if system == "mobius" and time(k) and time((*k[:5], "sysx")):
            assert time((*k[:5], "sysx")) < time(k), k
            checked += 1
    larger = [("10B", "19B"), ("30B", "40B"), ("52B", "69B"), ("88B", "110B")]
    for k, (small, big) in itertools.product(at, larger):  # on the same nodes a larger model takes longer
        other = (k[0], big, *k[2:])
        if k[1] == small and time(k) and time(other):
            assert time(other) > time(k), other
            checked += 1
    return checked

assert held(new) >= 5 + 9 and held(all_rows) > 300, held(all_rows)
PY
finish

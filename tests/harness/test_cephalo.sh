#!/usr/bin/env bash
# Cephalo: GPUs that take and hold unlike parts: planned on a mixed cluster, trained over ranks, its collectives counted.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
model=(--model gpt-tiny --seq 16)
mixed=$root/tests/data/mixed-2x2.yaml

refused 2 "l is forced alone: expected m as well" sim cephalo "${model[@]}" --cluster "$mixed" --batch 8 --set l=2
refused 2 "the GPUs' micro-batches have 9 sequences: expected the batch's 8" sim cephalo "${model[@]}" --cluster "$mixed" --batch 8 --set l=5,2,1,1 --set m=1
refused 2 "the 4 GPUs do not divide the batch of 6 sequences" sim cephalo_mb "${model[@]}" --cluster "$mixed" --batch 6
refused 3 ".*" sim cephalo --model autohete-22b --cluster "$mixed" --batch 8 --set usable=50

# The faster half takes more than the other, and all of them less time than even parts.
large=(--model autohete-2b --seq 512 --cluster "$mixed" --batch 64 --json)
run 0 sim cephalo "${large[@]}"
json out 'd["iteration_time_s"]' >times
each=$(json out '[m * l for m, l in zip(d["plan"]["variables"]["m"], d["plan"]["variables"]["l"])]')
"$python" -c "import sys; each = $each; sys.exit(not (sum(each) == 64 and min(each[:2]) > max(each[2:]) > 0))" || fail "parts of the batch: $each"
run 0 sim fsdp "${large[@]}" --micro-batch 4
json out 'd["iteration_time_s"]' >>times
[ "$(sort -g times | head -n 1)" = "$(head -n 1 times)" ] || fail "FSDP is faster: $(cat times)"

# Units are gathered beside the passes over the unit before them, or with overlap=0 between the two.
beside_passes() {
    "$python" - <<'PY'
import json
d = [e for e in json.load(open("t.json"))["traceEvents"] if e["ph"] == "X"]
of = lambda letters: [(e["pid"], e["args"]["start_ns"], e["args"]["end_ns"]) for e in d if e["name"].startswith(letters)]
print(sum(r == q and a < f and b < e for r, a, e in of("AG") for q, b, f in of(("F", "R0", "R1", "R2", "R3", "B"))))
PY
}
run 0 sim cephalo "${model[@]}" --cluster "$mixed" --batch 9 --set m=1 --set l=5,2,1,1 --trace t.json
[ "$(beside_passes)" -gt 0 ] || fail "no unit is gathered beside a pass"
run 0 sim cephalo "${model[@]}" --cluster "$mixed" --batch 9 --set m=1 --set l=5,2,1,1 --set overlap=0 --trace t.json
[ "$(beside_passes)" = 0 ] || fail "overlap=0: $(beside_passes) all-gathers run beside a pass"

# Collectives of uneven units take 1.15 times those of even ones, in the plan as in the simulation, or what a software file says.
# factor WANTED: of the planner, and of the trace's AG2 where nothing runs beside it, over what even shards take.
factor() {
    "$python" - "$1" <<'PY'
import json, sys
inputs = {name: x["value"] for name, x in json.load(open("uneven.json"))["plan"]["inputs"].items()}
def alone(file):
    events = [e["args"] for e in json.load(open(file))["traceEvents"] if e["ph"] == "X" and e["name"] == "AG2"]
    return min(e["end_ns"] - e["start_ns"] for e in events)
want = float(sys.argv[1])
seen = [inputs[n + " uneven"] / inputs[n] for n in ("AG", "RS")] + [alone("uneven.t") / alone("even.t")]
sys.exit("factors %s, expected %s" % (seen, want) if any(abs(x / want - 1) > 1e-3 for x in seen) else 0)
PY
}
large=(--model cephalo-gpt-1.3b --seq 512 --cluster cephalo-a --batch 16 --numerics fp32 --json)
run 0 plan cephalo "${large[@]}"
mv out uneven.json
run 0 sim cephalo "${large[@]}" --set m=2 --set l=1 --set share=1,1,4,0,1,1,0,0 --trace uneven.t --dump uneven.yaml
hash=$(json out 'd["schedule_hash"]')
run 0 verify --load uneven.yaml
grep -q "hash $hash$" out || fail "a dumped graph of uneven shards loads as another: $(cat out)"
run 0 sim cephalo "${large[@]}" --set m=2 --set l=1 --set share=1 --trace even.t --dump even.yaml
grep -q even_bytes uneven.yaml || fail "uneven collectives are not marked"
! grep -q even_bytes even.yaml || fail "even collectives are marked"
factor 1.15 || fail "collectives of uneven shards"
sed -n '/^fused:/,/^$/p' "$root/common/model/software.yaml" | sed -e '1d' -e 's/^  //' -e 's/uneven: 1.15/uneven: 1.4/' >slower.yaml
echo 'name: slower' >>slower.yaml
run 0 plan cephalo "${large[@]}" --software ./slower.yaml
mv out uneven.json
run 0 sim cephalo "${large[@]}" --software ./slower.yaml --set m=2 --set l=1 --set share=1,1,4,0,1,1,0,0 --trace uneven.t
factor 1.4 || fail "a software file's factor"

# Cephalo-CB balances compute alone: even shares, at most one micro-batch each, no offloading.
run 0 plan cephalo_cb "${large[@]}"
[ "$(json out '[max(d["plan"]["variables"]["l"]), set(d["plan"]["variables"]["share"]), d["plan"]["variables"]["offload"]]')" = "[1, {0.125}, 0]" ] ||
    fail "Cephalo-CB: $(json out 'd["plan"]["variables"]')"

# The GPU with most memory has most of the state, and every GPU takes a part of the batch. With even=1 the state is even, since that fits.
run 0 sim cephalo "${large[@]}"
json out 'd["plan"]["variables"]["share"]' >share
"$python" -c "s = $(cat share); raise SystemExit(not (s[2] == max(s) > min(s) > 0 and abs(sum(s) - 1) < 1e-8))" || fail "balanced: $(cat share)"
[ "$(json out 'min(d["plan"]["variables"]["l"])')" -gt 0 ] || fail "a GPU is idle: $(json out 'd["plan"]')"
run 0 plan cephalo "${large[@]}" --set even=1 --set idle=1
[ "$(json out 'len(set(d["plan"]["variables"]["share"])), min(d["plan"]["variables"]["l"])')" = "(1, 0)" ] ||
    fail "an uneven state, or no GPU is idle: $(json out 'd["plan"]')"
# Without enlarge=1 the GPUs have micro-batches as small as the time allows (here an L4 takes 14 sequences in two, or in one).
large=(--model cephalo-gpt-1.3b --seq 512 --cluster cephalo-a --batch 128 --numerics fp32 --software eager --json)
run 0 plan cephalo "${large[@]}"
json out 'sum(d["plan"]["variables"]["l"])' >counts
run 0 plan cephalo "${large[@]}" --set enlarge=1
json out 'sum(d["plan"]["variables"]["l"])' >>counts
[ "$(head -n 1 counts)" -gt "$(tail -n 1 counts)" ] || fail "micro-batches, and enlarged: $(paste -sd' ' counts)"
refused 3 "Cephalo has no plan: no micro-batches of 8 GPUs make up a batch of 4 .constraint I.; each takes at least one, all at most 32" plan cephalo --model gpt-tiny --cluster cephalo-a --batch 4
# GPUs that are alike hold as much.
run 0 plan cephalo --model cephalo-gpt-6.7b --seq 512 --cluster cephalo-16v100 --batch 256 --numerics fp32 --json
[ "$(json out 'set(d["plan"]["variables"]["share"])')" = "{0.0625}" ] || fail "16 V100: $(json out 'd["plan"]["variables"]')"

common=("${model[@]}" --data "$text" --steps 4)
needs_ranks "${common[@]}"

# count KIND: of its ops in an iteration of a rank, by the trace.
count() {
    "$python" - "$1" <<'PY'
import json, sys
d = json.load(open("t.json"))
ranks = [sum(e["ph"] == "X" and e.get("pid") == r and e["name"].startswith(sys.argv[1]) for e in d["traceEvents"]) for r in range(4)]
assert len(set(ranks)) == 1, ranks
print(ranks[0] // d["otherData"]["iterations"])
PY
}

# With one micro-batch a rank sums are those of one rank, however the state is divided.
run 0 train in_memory "${common[@]}" --batch 4 --micro-batch 1 --losses one.csv
for share in 0,0.3,0.7,0 3,1,1,1; do
    run 0 train cephalo "${common[@]}" --batch 4 --ranks 4 --set m=1 --set l=1 --set share=$share --losses u.csv
    cmp -s one.csv u.csv || fail "share=$share: $(paste one.csv u.csv)"
done

for ranks in 2 3 8; do
    run 0 train in_memory "${common[@]}" --batch $ranks --micro-batch 1 --losses one.csv
    share=$(seq -s, $((ranks - 1)) -1 0) # the last rank holds nothing
    run 0 train cephalo "${common[@]}" --batch $ranks --ranks $ranks --set m=1 --set l=1 --set share="$share" --losses u.csv
    cmp -s one.csv u.csv || fail "$ranks ranks: $(paste one.csv u.csv)"
done

# Rank 0 averages three samples, rank 1 one: each counts as much as every other. (Unweighted, rank 1's would count three times.)
run 0 train in_memory "${common[@]}" --batch 4 --micro-batch 1 --losses one.csv
run 0 train cephalo "${common[@]}" --batch 4 --ranks 2 --set m=3,1 --set l=1 --losses u.csv
near 1e-6 one.csv u.csv

# Of U = 6 units and two micro-batches FSDP-GA gathers 2 U and reduces U in each, Cephalo in both together.
run 0 train cephalo "${common[@]}" --batch 8 --ranks 4 --set m=1 --set l=2 --trace t.json
layered="$(count AG) $(count RS)"
run 0 train fsdp_ga "${common[@]}" --batch 8 --ranks 4 --set m=1 --set l=2 --trace t.json
[ "$layered, $(count AG) $(count RS)" = "12 6, 24 12" ] || fail "all-gathers and reduce-scatters: $layered, FSDP-GA $(count AG) $(count RS)"

# Collectives do not depend on micro-batches: 2 U all-gathers of U = 6 units, of which the head saves one and a tied table takes one.
for of in gpt-tiny llama-tiny; do
    common=(--model $of --seq 16 --data "$text" --steps 4)
    run 0 train in_memory "${common[@]}" --batch 9 --micro-batch 1 --losses one.csv
    for parts in '--set l=5,2,1,1' '--set l=0,5,0,4 --set share=0.5,0,0,0.5' '--set l=5,2,1,1 --set offload=0 --set overlap=0'; do
        # shellcheck disable=SC2086 # words
        run 0 train cephalo "${common[@]}" --batch 9 --ranks 4 --set m=1 $parts --losses u.csv --trace t.json
        near 1e-6 one.csv u.csv
        [ "$(count AG) $(count RS)" = "$([ $of = gpt-tiny ] && echo 12 || echo 11) 6" ] || fail "$of: $(count AG) all-gathers, $(count RS) reduce-scatters"
    done
done
run 0 train in_memory "${common[@]}" --batch 9 --micro-batch 1 --numerics bf16 --clip 0.5 --losses one.csv
run 0 train cephalo "${common[@]}" --batch 9 --ranks 4 --set m=1,2,1,1 --set l=3,1,1,3 --numerics bf16 --clip 0.5 --losses u.csv
near 1e-3 one.csv u.csv
# The planner has other micro-batches for other ranks. A checkpoint goes on with them.
run 0 train cephalo_cb "${common[@]}" --batch 9 --ranks 4 --checkpoint ck
longer=(--model llama-tiny --seq 16 --data "$text" --steps 6 --batch 9)
run 0 train cephalo "${longer[@]}" --ranks 2 --checkpoint ck --resume --losses u.csv --json
[ "$(json out 'd["training"]["resumed_sums"]')" = other ] || fail "other ranks: $(cat out)"
run 0 train in_memory "${longer[@]}" --micro-batch 1 --losses one.csv
near 1e-6 one.csv u.csv
run 0 train cephalo_mb "${common[@]}" --batch 8 --ranks 4
finish

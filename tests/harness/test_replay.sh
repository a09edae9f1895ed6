#!/usr/bin/env bash
# Spot traces that happen to real processes: bad input in one line, twelve changes of four nodes with losses bit-equal to those without
# kills. HT_FULL=1 takes three policies, and a job that waits for its shape.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
mkdir tmp
export TMPDIR=$work/tmp
sed 's/count: 8/count: 4/' "$root/tests/data/spot-mini.yaml" >mini.yaml
common=(--model gpt-mini --batch 8 --micro-batch 1 --seq 16 --numerics fp32 --data "$text")
needs_ranks "${common[@]}"
replay=("${common[@]}" --cluster mini.yaml --store replay --every 2 --remote-rate 1MB/s)
left() { grep -laz "HETBENCH_ELASTIC=$work" /proc/[0-9]*/environ 2>/dev/null || true; }

refused 2 "replay: --trace is missing; hetbench list traces shows some" replay "${replay[@]}"
refused 2 "replay: --store DIR is missing" replay "${common[@]}" --cluster mini.yaml --trace oobleck-p3
refused 2 "unknown trace 'oobleck-p4'; expected 'oobleck-p3'\?$" replay "${replay[@]}" --trace oobleck-p4
refused 2 "cluster 'spot-mini' has no node with 'instance: p5'" replay "${replay[@]}" --trace p5=oobleck-p3
refused 2 "--cluster: 'local' has one node; expected several, which come and go" replay "${common[@]}" --store replay --trace oobleck-p3
refused 2 "--speed: the day would take [0-9.e+]* s for each policy" replay "${replay[@]}" --trace oobleck-p3 --speed 0.01
refused 2 "unknown policy 'varna'; expected 'varuna'\?$" replay "${replay[@]}" --trace oobleck-p3 --policies varna
refused 2 "unknown policy 'varna'; expected 'varuna'\?$" elastic varuna "${common[@]}" --store other --policy varna
refused 2 "--policy: 'varuna' plans with 'varuna'; expected that instead of 'fsdp'$" elastic fsdp "${common[@]}" --store other --policy varuna
refused 2 "--policy: 'varuna' loads from the remote store; --store-remote DIR is missing$" elastic varuna "${common[@]}" --store other --policy varuna
refused 2 "--load-remote: --store-remote DIR is missing beside it$" train in_memory "${common[@]}" --store other2 --resume --load-remote
mkdir -p left/varuna-after
refused 2 "--store: left/varuna-after is there, as a replay that was stopped leaves it; expected a folder without it$" replay "${replay[@]}" \
    --trace oobleck-p3 --policies autohet,varuna --store left
[ ! -e replay ] || fail "refused, but made: $(find replay)"

# The remote store alone is read: step 2 of it, though the node's own store has step 4. A first step that never became whole begins anew.
own=("${common[@]}" --store own --store-remote remote --every 2)
loaded() { "$python" -c 'import json, sys
print([e["step"] for e in map(json.loads, open(sys.argv[1])) if e["event"] == "loaded"])' "$1"; }
run 0 train in_memory "${own[@]}" --steps 4
rm -r remote/step-*4.*
run 0 train in_memory "${own[@]}" --steps 6 --resume --load-remote --events far.jsonl
[ "$(loaded far.jsonl)" = "[2]" ] || fail "--load-remote: $(cat far.jsonl)"
run 0 train in_memory "${own[@]}" --steps 8 --resume --events near.jsonl
[ "$(loaded near.jsonl)" = "[6]" ] || fail "without --load-remote: $(cat near.jsonl)"
rm -r remote own
run 0 train in_memory "${own[@]}" --steps 2
rm remote/step-*2.*/unit-0003.*
rm -rf own
run 0 train in_memory "${own[@]}" --steps 2 --resume --load-remote --events anew.jsonl
grep -q "^remote: step 2 never became whole: it is removed$" err && [ "$(loaded anew.jsonl)" = "[0]" ] || fail "a first step that is not whole: $(cat anew.jsonl err)"
rm -rf own remote

# Two of eight nodes are one local node. Twelve changes, a notice among them, in 18 seconds.
{
    echo time_s,node,event
    for node in a b c d e f g h; do echo "0,$node,joined"; done
    printf '%s\n' 300,a,lost 300,b,lost 500,i,joined 500,j,joined 700,c,notice 700,d,notice 800,c,lost 800,d,lost 900,e,lost 900,f,lost \
        1050,k,joined 1050,l,joined 1150,m,joined 1150,n,joined 1250,i,lost 1250,j,lost 1400,g,lost 1400,h,lost 1500,o,joined \
        1500,p,joined 1600,k,lost 1600,l,lost 1700,q,joined 1700,r,joined 1800,s,joined 1800,t,joined
} >trace.csv
policies=$(drawn 1 autohet varuna megatron | tr ' ' ',')
run 0 replay "${replay[@]}" --trace trace.csv --policies "$policies" --drill-changes 2 --check --json --out replay.csv
"$python" - <<'PY' || fail "the replay: $(cat out)"
import json

d = json.load(open("out"))
assert (d["local_nodes"], d["changing"], d["joins"], d["losses"], d["speed"]) == (4, 12, 6, 6, 100), d
for p in d["policies"]:
    assert p["losses_equal"] is True and p["checked_steps"] >= 1, p
    assert p["killed_processes"] >= 1 and p["incarnations"] >= 2, p
    assert 0 <= p["ettr_measured"] < 1 and 0 <= p["ettr_simulated"] < 1, p
    for side in "measured", "simulated":
        s = p[side]
        parts = s["useful_s"] + s["lost_s"] + s["stalls_s"] + s["other_s"]
        assert abs(parts - (1800 if side == "simulated" else 100 * p["wall_s"])) < 1e-3 * parts, (side, s)
PY
grep -q "^replay: ${policies%%,*}, [0-9]* of 18 s, event [0-9]* of [0-9]*, incarnation [0-9]*$" err || fail "no progress where standard error is no terminal: $(cat err)"
[ "$(wc -l <replay.csv)" = $((1 + $(tr , '\n' <<<"$policies" | wc -l))) ] || fail "replay.csv: $(cat replay.csv)"

# A policy that keeps its shape waits while a node is lacking: it trains on four nodes or not at all.
if [ "${HT_FULL:-0}" != 0 ]; then
    printf '%s\n' time_s,node,event 0,a,joined 0,b,joined 0,c,joined 0,d,joined 200,a,lost 300,b,lost 500,e,joined 900,f,joined >waits.csv
    run 0 replay "${replay[@]}" --trace waits.csv --policies restart --restart-nodes 4 --drill-changes 2 --json
    [ "$(json out '[(p["keep_nodes"], p["simulated"]["changes"], p["measured"]["changes"]) for p in d["policies"]]')" = "[(4, 0, 0)]" ] ||
        fail "a policy that waits: $(cat out)"
fi
[ ! -e replay ] || fail "left: $(find replay | head)"
[ -z "$(left)" ] || fail "processes are left: $(left)"
[ -z "$(ls tmp)" ] || fail "left in TMPDIR: $(ls tmp)"
finish

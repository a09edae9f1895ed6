#!/usr/bin/env bash
# advise needs no file, prints commands that sim takes and confirms, fits a terminal of 80 columns, and keeps what it has at Ctrl-C.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

systems=in_memory,zero_offload,fsdp,cephalo,gpipe,lohan
mixed=(--model gpt2-124m --gpus rtx4090:2,t4:2 --ram 64GB --systems "$systems" --batch 16)
run 0 advise "${mixed[@]}"
[ "$(awk 'length > 80' out | wc -l)" = 0 ] || fail "lines of over 80 columns: $(awk 'length > 80' out)"
for text in 'not LoRA' '^1[.] .*tokens/s: ' '^3[.] ' '^What each kind of card brings, beside the others, by the type of numbers' 'cards  *fp16  *bf16' 'x t4 ' 'one more rtx4090 ' 'for want of disks: lohan$' 'is assumed'; do
    grep -q "$text" out || fail "no '$text' in: $(cat out)"
done
cp out text
"$python" -c 'import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.execv(sys.argv[1], sys.argv[1:])' "$hetbench" advise "${mixed[@]}" >alone 2>/dev/null
[ "$(tail -1 alone)" = "$(tail -1 text)" ] && grep -q '^[0-9]* plans compared' alone ||
    fail "the count depends on the number of threads: $(tail -qn 1 alone text)"

# The printed commands, as a shell reads them, give the rates of the plans.
run 0 advise "${mixed[@]}" --json
cp out advice.json
"$python" - >commands <<'PY'
import json
d = json.load(open("advice.json"))
assert d["obtained"] == "simulated" and d["complete"] and len(d["best"]) == 3
assert sum(p["sequences"] * (p["last_rank"] - p["first_rank"] + 1) for p in d["split"]) == d["best"][0]["batch"]
assert abs(sum(t["share"] for t in d["time"]) - 1) < 0.05
for b in d["best"]:
    print(b["tokens_per_s"], b["command"], sep="\t")
PY
while IFS=$'\t' read -r rate command; do
    eval "set -- $command"
    shift
    run 0 "$@" --json
    [ "$(json out "abs(d['tokens_per_s'] / $rate - 1) < 1e-9")" = True ] || fail "$*: $(json out 'd["tokens_per_s"]') tokens/s, not $rate"
done <commands
"$python" - <<'PY'
import re
text = open("text").read()
block = re.search(r"^1[.].*\n((?:   .*\n)+)", text, re.M)[1]
assert " ".join(line.rstrip("\\").strip() for line in block.splitlines()) in open("commands").read(), block
PY

# What was asked for of the cluster stays in the commands, and counts once.
run 0 advise --model gpt2-124m --gpus rtx4090:2,t4:2 --ram 64GB --ssd 990pro:1 --ranks 3 --ssds 0 --host-memory 32GB --numerics fp16 \
    --systems zero_offload,lohan --batch 6 --json
"$python" - <<'PY' || fail "another cluster: $(json out 'd["devices"], d["host_bytes"], d["disks"], d["best"][0]["command"])')"
import json
d = json.load(open("out"))
assert d["devices"].startswith("2 x rtx4090") and " + 1 x t4" in d["devices"], d["devices"]
assert d["host_bytes"] == 32e9 and d["disks"] == 0
command = d["best"][0]["command"]
assert "--ssds 0" in command and "--host-memory 32000000000B" in command and "--numerics fp16" in command, command
assert "--ranks 3" in command or "--only rtx4090:" in command or "--only t4:1" in command, command
PY

# A rate that was measured on another machine is named, one's own is not.
mini=(advise --model gpt2-124m --gpus rtx4090:2 --ram 64GB --systems ddp)
run 0 "${mini[@]}"
tr '\n' ' ' <out | grep -q 'rings at 5.2 GB/s (assumed: measured on another machine); --through-host takes yours' || fail "$(cat out)"
run 0 "${mini[@]}" --through-host 8GB/s
{ grep -q 'rings at 8 GB/s$' out && ! grep -q 'another machine' out; } || fail "$(cat out)"

# Equal parts of the default batch can be cut into micro-batches: 64 over three cards would be 22 each, in twos at most.
run 0 advise --model llama-7b --gpus rtx4090:3 --ram 128GB --systems stronghold_ckpt --json
[ "$(json out '[d["best"][0]["batch"], d["best"][0]["micro_batch"]]')" = '[72, 8]' ] ||
    fail "three cards: $(json out 'd["best"][0]')"

# Where cards are better left out, changes are tried without them, too: more memory never slows.
run 0 advise --model gpt2-124m --cluster cephalo-a --only p40:2,l4 --batch 8 --systems cephalo,fsdp,dapple --json
"$python" - <<'PY' || fail "a change of a machine whose best plan leaves cards out: $(json out 'd["best"][0], d["changes"]')"
import json
d = json.load(open("out"))
best = d["best"][0]
assert best["cards"] != "all cards", best
assert [c for c in d["changes"] if "memory" in c["change"]][0]["tokens_per_s"] >= best["tokens_per_s"]
PY
run 0 advise --model gpt-tiny --cluster local --ranks 2 --device-memory 100MB --batch 8 --systems zero_offload,ddp

# A batch and a micro-batch that were asked for stay; what does not fit says so.
run 0 advise --model gpt2-124m --gpus rtx4090 --ram 64GB --systems zero_offload --batch 6 --micro-batch 3 --json
[ "$(json out '(d["best"][0]["batch"], d["best"][0]["micro_batch"])')" = "(6, 3)" ] || fail "another batch: $(json out 'd["best"][0]')"
run 3 advise --model gpt2-124m --gpus rtx4090:3 --ram 64GB --systems zero_offload,ddp --micro-batch 5
grep -q '^    zero_offload: micro-batch 5 does not divide the batch of 72 sequences$' out || fail "no reason: $(cat out)"
run 3 advise --model llama-13b --gpus rtx3090 --ram 64GB --systems zero_offload,lohan
grep -q 'Nothing here trains this model' out || fail "no answer: $(cat out)"
grep -q 'disks a node .*it runs .*lohan' out || fail "disks would make lohan run: $(cat out)"

# Prices: the catalogue's, or one's own in any unit; none where neither is there.
one=(--model gpt2-124m --systems zero_offload --batch 4)
run 0 advise "${one[@]}" --cluster lohan-4090 --json
[ "$(json out 'd["price"], d["price_unit"]')" = "($((15698 + 12 * 308)).0, 'USD')" ] || fail "the catalogue's price: $(json out 'd["price"]')"
run 0 advise "${one[@]}" --gpus rtx4090 --ram 64GB --json
[ "$(json out 'd["price"]')" = None ] || fail "a machine without a price has one"
rate=$(json out 'd["best"][0]["tokens_per_s"]')
run 0 advise "${one[@]}" --gpus rtx4090 --ram 64GB --price 2000
said=$(sed -n 's/^   \([0-9,.]*\) tokens\/s per 1000 units .*/\1/p' out | tr -d ,)
"$python" -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a / (b / 2) - 1) > 0.006)' "$said" "$rate" ||
    fail "$rate tokens/s for 2000 are said to be $said per 1000"
refused 2 "--price: -1 is out of range" advise "${one[@]}" --gpus rtx4090 --ram 64GB --price -1
refused 2 "--model is missing" advise --gpus rtx4090 --ram 64GB
refused 2 "--gpus or --cluster is missing" advise --model gpt-tiny
refused 2 "the memory of a node is missing; expected for example --ram 128GB" advise --model gpt-tiny --gpus rtx4090
refused 2 "unknown gpu 'rtx4091'" advise --model gpt-tiny --gpus rtx4091 --ram 64GB
refused 2 "advise: expected --cluster or --gpus, not both" advise --model gpt-tiny --gpus rtx4090 --ram 64GB --cluster lohan-4090
refused 2 "the cluster has no 't4'" advise --model gpt-tiny --gpus rtx4090 --ram 64GB --only t4

# What new prints loads; that of parts is the cluster that the parts are.
for kind in cluster model experiment; do
    run 0 new $kind
    cp out "new-$kind.yaml"
done
run 0 plan zero3_offload_ckpt --model new-model.yaml --cluster new-cluster.yaml --batch 2 --seq 512 --host-memory 256GB
run 0 experiment new-experiment.yaml --out new-results
run 0 new cluster --gpus rtx4090:2,t4:2 --ram 64GB
cp out parts.yaml
run 0 sim zero_offload --model gpt2-124m --cluster parts.yaml --batch 8 --json
cp out a.json
run 0 sim zero_offload --model gpt2-124m --gpus rtx4090:2,t4:2 --ram 64GB --batch 8 --json
[ "$(json out 'd["iteration_time_s"]')" = "$("$python" -c 'import json; print(json.load(open("a.json"))["iteration_time_s"])')" ] ||
    fail "new cluster prints another cluster than its parts"
refused 2 "new: unknown kind 'things'" new things

# Ctrl-C: exit code 130, and what was found.
"$hetbench" advise --model llama-7b --gpus a100-40gb:8 --ram 1TB --batch 2048 --systems in_memory,zero_offload,fsdp,stronghold,sysx,autohete \
    >out 2>err &
pid=$!
sleep 2
kill -INT "$pid"
status=0
wait "$pid" || status=$?
[ "$status" = 130 ] || fail "after Ctrl-C: exit code $status: $(cat out err)"
grep -q 'partial: interrupted' out || fail "Ctrl-C says nothing of what it has: $(cat out err)"
finish

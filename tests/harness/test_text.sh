#!/usr/bin/env bash
# Reports say the same thing in their tables, their error line and their JSON, and say it completely.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

# says PATTERN: the last report has it on one line.
says() {
    grep -Eq -- "$1" "$work/out" || {
        fail "no line of the report matches '$1'"
        head -n 12 "$work/out"
    }
}

cluster() {
    printf 'name: %s\nsource: "made up"\nnodes:\n  - {cpu: epyc-7713, ram: 440 GB, gpus: [%s], pcie: pcie4-x16}\n' "$1" "$2" >"$1.yaml"
}
cluster two '{type: rtx4090, count: 2}'
cluster mixed '{type: a100-40gb, count: 4}, {type: v100-32gb, count: 4}'

# ---- "short by": what is needed minus what there is, in the table, in the line and in JSON ----

big=(--model llama-7b --cluster two.yaml --batch 8)
short_by() { sed -n 's/.*short by \([0-9.]* [kMGT]*B\).*/\1/p' "$work/err"; }
for command in sim plan verify; do
    run 3 "$command" in_memory "${big[@]}"
    says "^  device 0 .* $(short_by) +[0-9.]+ GB"
    [ "$(short_by)" = "92.1 GB" ] || fail "$command: short by '$(short_by)', expected 92.1 GB"
    run 3 "$command" in_memory "${big[@]}" --json
    [ "$(json out '[m["short_bytes"] - (m["safe_sequence_bytes"] - m["capacity_bytes"]) for m in d["memory"]]')" = "[0, 0]" ] ||
        fail "$command: short_bytes is not need minus capacity"
done
run 3 train in_memory --model gpt-tiny --data "$text" --device-memory 5MB --batch 2
says "^  device 0 .* $(short_by) +[0-9.]+ MB"
run 0 sim zero_offload_ckpt "${big[@]}" --json
[ "$(json out '{m["short_bytes"] for m in d["memory"]}')" = "{0}" ] || fail "what fits is short of something"

# ---- headings: devices of every kind, batch, micro-batch, sequence length, numerics; what in_memory is on several ----

devices='4 x a100-40gb \(42.41 GB\) \+ 4 x v100-32gb \(34.36 GB\)'
units="v100-32gb has no bf16 units: priced at the f32 rate, also for MFU"
mixed=(--model llama-7b --cluster mixed.yaml --batch 16 --micro-batch 1 --seq 512)
for command in sim plan verify; do
    run 0 "$command" in_memory "${mixed[@]}" --numerics bf16
    says "^In memory, ZeRO-3 \(in_memory\), model llama-7b "
    says "^cluster mixed: $devices, data-parallel with ZeRO-3: .*sharded$"
    says "^batch 16 x 512 tokens in micro-batches of 1; bf16 parameters and gradients, summed in f32$"
    says "^$units$"
    says "^plan: .*ZeRO-3: .*sharded over 8 devices"
done
run 0 sim gpipe "${mixed[@]}" --numerics fp16 --accumulate 16 --json
[ "$(json out '[(g["name"], g["count"], g["rate"]) for g in d["scenario"]["gpus"]]')" = \
    "[('a100-40gb', 4, 'f16'), ('v100-32gb', 4, 'f16')]" ] || fail "JSON has other devices"
[ "$(json out '[d["scenario"][k] for k in ("parallelism", "rate_note")], d["scenario"]["dtypes"]["accumulate"]')" = \
    "(['pipeline', None], 'f16')" ] || fail "JSON has another scenario"
# 4 x 312 + 4 x 125 TFLOP/s, and with no bf16 units 4 x 312 + 4 x 15.7
[ "$(json out 'd["peak_flops_per_s"]')" = 1748000000000000.0 ] || fail "the peak in fp16 is not that of all devices"
run 0 sim in_memory "${mixed[@]}" --numerics bf16 --json
[ "$(json out 'd["peak_flops_per_s"]')" = 1310800000000000.0 ] || fail "the peak in bf16 is not that of all devices"
[ "$(json out '(d["title"], d["scenario"]["parallelism"], [g["rate"] for g in d["scenario"]["gpus"]], d["scenario"]["rate_note"])')" = \
    "('In memory, ZeRO-3', 'zero3', ['bf16', 'f32'], '$units')" ] || fail "JSON does not say what in_memory is"
run 0 sim in_memory_ckpt --model gpt-tiny --cluster autohete-1gpu
says "^In memory, full checkpointing \(in_memory_ckpt\)"
says "^cluster autohete-1gpu: 1 x a100-40gb \(42.41 GB\)$"
grep -q "units\|ZeRO" out && fail "one A100 is ZeRO-3 or lacks units"
run 0 train in_memory --model gpt-mini --data "$text" --steps 1 --batch 2 --micro-batch 1 --seq 16
says "^batch 2 x 16 tokens in micro-batches of 1; f32 throughout$"
run 0 profile --model gpt-mini --systems in_memory --repeat 1 --batch 2 --micro-batch 1 --seq 16
says "^batch 2 x 16 tokens in micro-batches of 1; f32 throughout$"

# ---- compare: every reason as the planner or the verifier gave it, below the table and in the files ----

run 0 compare --systems in_memory,zero_offload,gpipe,patrickstar --models autohete-2b,llama-7b --cluster mixed.yaml --batch 16 \
    --numerics bf16 --device-memory 8GB --out both --all --why
says "^cluster mixed: 4 x a100-40gb \(8 GB\) \+ 4 x v100-32gb \(8 GB\)$"
says "^batch 16 x 1024 or 2048 tokens in each system's fastest micro-batches; bf16 parameters and gradients, summed in f32$"
says "^$units$"
cp out table
"$python" - <<'PY' || fail "compare cuts reasons"
import csv, json

rows = json.load(open("both/compare.json"))["rows"]
lines = open("table").read().splitlines()
notes = {line.split("] ", 1)[0] + "]": line.split("] ", 1)[1] for line in lines if line.startswith("[")}
refused = [r for r in rows if r["status"] != "ok"]
assert {r["status"] for r in refused} == {"oom", "infeasible"}, refused
table = {}
for line in lines:  # a table for each model
    if line.startswith(("autohete-2b:", "llama-7b:")):
        model = line.split(":")[0]
    elif line.startswith("  ") and line.split()[0] in {r["system"] for r in rows}:
        table[model, line.split()[0]] = line
assert len(table) == len(rows) == 8
for row, cells in zip(rows, csv.DictReader(open("both/compare.csv"))):
    line = table[row["scenario"]["model"]["name"], row["system"]]
    assert cells["reason"] == row.get("reason", "") and cells["plan_why"] == row["plan"]["why"], (row, cells)
    if row["status"] != "ok":
        assert notes["[" + line.rsplit("[", 1)[1]] == row["reason"], line
    if row["status"] == "oom":
        memory = next(m for m in row["memory"] if m["space"] == row["short_of"])
        assert row["short_bytes"] == memory["short_bytes"] == int(cells["short_bytes"]) > 0
        shortfall = row["reason"].rsplit("short by ", 1)[1]
        assert f'{row["short_of"]} short by {shortfall} [' in line, line
assert set(notes.values()) == {r["reason"] for r in refused}
PY

# ---- what a first look shows ----

run 3 plan patrickstar --model autohete-2b --cluster autohete-1gpu
says "^plan: c=0 .*  \\(does not fit\\)$"
run 3 plan autohete --model autohete-22b --cluster autohete-1gpu --device-memory 4GB
says "^plan: none that fits$"
run 0 plan in_memory "${mixed[@]}"
says "^  device 0 to device 7, each at its worst: .*, master parameters .*, activation gradients "
run 0 plan autohete --model autohete-4b --cluster autohete-1gpu
says "^  input of the planner +value$"
says "^  L +21$"
says "^  M_gpu +42.41 GB$"
says "^  t_fp +[0-9.]+ ms$"
run 0 list gpus
says "^v100-32gb +34.36 GB +15.7 TFLOP/s +125 TFLOP/s +- +900 GB/s$"
says "^a100-40gb +42.41 GB +19.5 TFLOP/s +312 TFLOP/s +312 TFLOP/s"
run 0 list clusters
says "^sysx-2node +2  8 x v100-32gb-pcie \\(34.09 GB\\) "
run 0 list software
grep -q '^eager .* 36+92 ' out || fail "list software does not say what an RMS norm moves: $(cat out)"
run 0 list systems --all --why
says "^in_memory +everything on the device; on several devices ZeRO-3 \\(sharded states\\)"
says "^fsdp .* m l share keep communicators c$"
says "^m=4,2,.. by rank +sequences of a micro-batch of each rank "
says "^m +blocks in the working window +stronghold stronghold_ckpt"
says "^  fsdp_ga: Zhao et al., VLDB 2023$"
[ "$(awk 'length > 200' out | wc -l)" = 0 ] || fail "list systems is too wide: $(awk 'length > 200' out | head -1)"
run 0 list systems lohan_cap
says "^fc1=1,2,.. +0 +3 +by block: 0 recomputed, 1 main memory, "
run 2 list systems no_such
run 2 list models gpt-tiny
run 0 plan fsdp --model llama-tiny --cluster autohete-4gpu --seq 16 --set m=4,2,1,1 --set l=1 --set share=0,0.3,0.7,0
says "^plan: m=4,2,1,1 l=1,1,1,1 share=0,0.3,0.7,0 keep=0 communicators=1 c=0  \\("
run 0 plan fsdp --model llama-tiny --cluster sysx-8node --batch 128 --seq 16 --set l=1 --set 'm=8 x 4, 4 x 20, 2 x 8'
says "^plan: m='8 x 4, 4 x 20, 2 x 8' l='1 x 32' share='0.03125 x 32' keep=0 communicators=1 c=0  \\("
finish

#!/usr/bin/env bash
# maxsize says what sim and verify say: its largest size fits, the next one does not, by as many bytes.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

tiny=(--cluster local --device-memory 60MB)
run 0 maxsize in_memory,zero_offload --models gpt-mini,gpt-tiny --of batch "${tiny[@]}" --seq 64 --out deep/er
[ "$(grep -cE '^(in_memory|zero_offload) +gpt-(mini|tiny) ' out)" = 4 ] || fail "the table lacks a row: $(cat out)"
while IFS=, read -r system model largest next short; do
    scenario=(--model "$model" --seq 64 "${tiny[@]}")
    run 0 verify "$system" "${scenario[@]}" --batch "$largest"
    run 3 sim "$system" "${scenario[@]}" --batch "$next" --json
    [ "$(json out 'd["short_bytes"]')" = "$short" ] || fail "$system, $model: sim is short by other bytes than $short"
done < <("$python" - <<'PY'
import csv, json

d = json.load(open("deep/er/maxsize.json"))
rows = list(csv.DictReader(open("deep/er/maxsize.csv")))
assert len(d["rows"]) == len(rows) == 4 and d["obtained"] == "simulated" and d["commit"] and d["command"]
for a, b in zip(d["rows"], rows):
    assert a["largest"]["batch"] == int(float(b["amount"])) == int(b["batch"])
    assert a["next_short_bytes"] == int(b["next_short_bytes"]) > 0 and a["next_reason"] == b["next_reason"]
    print(a["system"], b["model"], a["largest"]["batch"], a["next"]["batch"], a["next_short_bytes"], sep=",")
PY
)
run 0 maxsize --models 'gpt-m*' --cluster local --device-memory 8MB --batch 4 --all
[ "$(grep -c ' gpt-mini ' out)" = "$("$hetbench" list systems --json | "$python" -c 'import json, sys; print(len(json.load(sys.stdin)["systems"]))')" ] ||
    fail "not every system has a row: $(cat out)"
run 0 maxsize in_memory,zero_offload,stronghold --models 'gpt-m*' --cluster local --device-memory 8MB --batch 4 --json
[ "$(json out '[x["amount"] for x in d["rows"]] == sorted((x["amount"] for x in d["rows"]), reverse=True)')" = True ] ||
    fail "rows are not ordered by size: $(json out '[(x["system"], x["amount"]) for x in d["rows"]]')"

# On cluster local the devices' memory is the machine's, too: what is found can be trained.
run 0 maxsize zero_offload_ckpt --models gpt2-124m --cluster local --batch 1 --seq 64 --json
[ "$(json out 'd["rows"][0]["device_peak_bytes"] + d["rows"][0]["host_peak_bytes"] < '"$(getconf _PHYS_PAGES) * $(getconf PAGE_SIZE)"' * 0.9')" = True ] ||
    fail "found more than this machine has: $(json out 'd["rows"][0]')"

# A model that refuses every size has a row that says so. Models of transformers are taken by folder or file.
run 0 maxsize zero_offload --of seq --models "vit-tiny,$root/tests/data/gpt2-nano" "${tiny[@]}" --json
[ "$(json out '[(r["scenario"]["model"]["name"], r["status"], r["amount"] > 0) for r in d["rows"]]')" = \
    "[('gpt2-nano', 'ok', True), ('vit-tiny', 'refused', False)]" ] || fail "a ViT has no sequence: $(cat out)"
run 0 maxsize zero_offload --of batch --models "$root/tests/data/gpt2-nano/config.json" "${tiny[@]}"
refused 2 "model 'vit-tiny' has 65 tokens an image" maxsize zero_offload --of seq --models vit-tiny "${tiny[@]}" --out never

refused 2 "unknown system 'nope'" maxsize nope --models gpt-mini "${tiny[@]}" --out never
refused 2 "no built-in model matches 'nope-\*'" maxsize --models 'nope-*' "${tiny[@]}" --out never
refused 2 "--models is missing" maxsize in_memory "${tiny[@]}"
refused 2 "--gpus or --cluster is missing" maxsize in_memory --models gpt-mini
refused 2 "--of: unknown size 'width'" maxsize in_memory --models gpt-mini "${tiny[@]}" --of width
refused 2 "--batch is given, and --of batch looks for it" maxsize in_memory --models gpt-mini "${tiny[@]}" --of batch --batch 4
refused 2 "numerics 'fp8' is not known" maxsize in_memory --models gpt-mini "${tiny[@]}" --numerics fp8
refused 2 "the list of systems is empty" maxsize '' --models gpt-mini "${tiny[@]}" --out never
refused 2 "--disk: '/nowhere': No such file" maxsize lohan --models gpt-mini --cluster local --disk /nowhere
[ ! -e never ] || fail "a refused search made its directory"
finish

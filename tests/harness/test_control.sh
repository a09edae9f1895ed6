#!/usr/bin/env bash
# --control, --clip, --loss-scale, --accumulate: in every command that has a scenario, and in experiment files.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

gpu=(--model gpt-mini --cluster autohete-1gpu --batch 4)

# Every single-device system, in either way, is proved and simulated.
for system in in_memory in_memory_ckpt zero_offload zero_offload_ckpt patrickstar patrickstar_ckpt stronghold \
    stronghold_ckpt autohete autohete_nops example_stream; do
    for control in gate rollback; do
        for clip in "" "--clip 1"; do
            # shellcheck disable=SC2086 # no clip is no word
            run 0 sim "$system" "${gpu[@]}" --control $control $clip --json
            [ "$(json out 'd["status"], d["scenario"]["control"], d["scenario"]["dynamic_loss_scale"], d["scenario"]["loss_scale"]')" = \
                "('ok', '$control', True, 65536.0)" ] || fail "$system --control $control $clip says something else"
        done
    done
done

# Without it nothing is said, and nothing is different.
run 0 sim autohete "${gpu[@]}" --json
[ "$(json out '[k for k in d["scenario"] if k in ("control", "clip", "loss_scale", "accumulate")]')" = "[]" ] ||
    fail "a scenario without control speaks of it"
hash=$(json out 'd["schedule_hash"]')
run 0 sim autohete "${gpu[@]}" --control none --json
[ "$(json out 'd["schedule_hash"]')" = "$hash" ] || fail "--control none makes another graph"
run 0 sim autohete "${gpu[@]}" --control gate --json
[ "$(json out 'd["schedule_hash"]')" != "$hash" ] || fail "--control gate makes the same graph"

run 0 plan zero_offload "${gpu[@]}" --numerics bf16 --micro-batch 2 --accumulate 16 --control rollback --clip 0.5
grep -q '^batch 4 x .*, bf16, 16-bit sums, control rollback, clip 0.5$' out || fail "plan does not say which control"
run 0 plan zero_offload "${gpu[@]}" --control gate --loss-scale 1024
grep -q '^batch 4 x .*, f16, control gate, loss scale 1024$' out || fail "plan does not say which loss scale"

# A dumped graph loads and is proved again.
run 0 sim zero_offload "${gpu[@]}" --control rollback --clip 1 --dump graph.yaml
run 0 verify --load graph.yaml

# For real: whatever the system, gate and rollback give the same losses to the last bit, with gradients that overflow in
# two steps, and clipped in the others. The first steps' logs have no room, so they are left out and made again.
reference=
for control in gate rollback; do
    for system in in_memory zero_offload patrickstar stronghold autohete example_stream; do
        budget=(--device-memory 24MB)
        [ $system = patrickstar ] && budget+=(--set chunk=200000)
        [ $system = in_memory ] && budget=()
        run 0 train $system --model gpt-tiny --data "$text" --numerics bf16 --steps 6 --batch 4 --micro-batch 2 --seq 64 \
            --control $control --clip 0.5 --inject-overflow 1:2 --inject-overflow 3:0:nan --losses losses.csv "${budget[@]}" --json
        losses=$(cut -d, -f1,2 losses.csv)
        [ "$(json out 'd["control"]["skipped"], d["control"]["redone"]')" = "(2, $([ $control = gate ] && echo 0 || echo 4))" ] ||
            fail "$system --control $control: $(json out 'd["control"]')"
        [ "${reference:=$losses}" = "$losses" ] || fail "$system --control $control has other losses"
    done
done

refused 2 "control 'gates' is not known; expected none, gate or rollback" sim in_memory "${gpu[@]}" --control gates
refused 2 "clipping needs to know all gradients" sim in_memory "${gpu[@]}" --clip 1
refused 2 "a dynamic loss scale needs" sim in_memory "${gpu[@]}" --loss-scale dynamic
refused 2 "--clip: 0 is out of range" sim in_memory "${gpu[@]}" --control gate --clip 0
refused 2 "accumulation in 'bf16' is not known" sim in_memory "${gpu[@]}" --accumulate bf16
refused 2 "--load stands for a whole scenario" verify --load graph.yaml --control gate
for system in in_memory autohete stronghold patrickstar; do
    refused 3 ".*one device only: the 4 ranks" sim "$system" --model autohete-2b --cluster autohete-4gpu --batch 8 --control gate
done

# The same in an experiment, whose rows do not go for those of another control.
cat >e.yaml <<'YAML'
name: e
cluster: autohete-1gpu
models: [autohete-2b]
systems: [zero_offload]
control: rollback
clip: 1
loss_scale: "512"
YAML
run 0 experiment e.yaml --out e
[ "$(json e/results.json 'd["rows"][0]["scenario"]["control"], d["rows"][0]["scenario"]["loss_scale"], d["rows"][0]["scenario"]["clip"]')" = \
    "('rollback', 512.0, 1.0)" ] || fail "an experiment's control is another"
with=$(json e/results.json 'd["rows"][0]["key"]')
sed -i '/^control\|^clip\|^loss/d' e.yaml
run 0 experiment e.yaml --out e
[ "$(json e/results.json 'd["rows"][0]["key"]')" != "$with" ] || fail "rows with and without control have one key"
sed -i '$a control: gates' e.yaml
refused 2 "e.yaml:5:10: key 'control': .*none, gate or rollback" experiment e.yaml --out e
finish

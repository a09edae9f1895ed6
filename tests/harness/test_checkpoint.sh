#!/usr/bin/env bash
# Checkpoints: a resumed training cannot be told from one that was not stopped, in any system; a kill at any moment leaves the
# last complete one; what is damaged is named, and nothing is overwritten.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
nano=(--init "$root/tests/data/gpt2-nano" --batch 4 --data "$text")

# same A B: both files have the same bytes.
same() { cmp -s "$1" "$2" || fail "$3: $1 and $2 differ"; }
steps_in() { find "$1" -maxdepth 1 -name 'step-*' -printf '%f\n' | sed 's/step-0*//' | sort -n | tr '\n' ' '; }

# ---- resumed, by every system after every other ----

run 0 train in_memory "${nano[@]}" --micro-batch 2 --steps 30 --losses whole.csv --save whole
at=0
for system in in_memory zero_offload patrickstar autohete zero_offload_ckpt stronghold; do
    run 0 train "$system" "${nano[@]}" --micro-batch 2 --device-memory 64MB --steps $((at + 5)) --checkpoint across --every 2 \
        --resume --losses part.csv --save last
    head -n $((at + 6)) whole.csv | tail -n 5 >wanted
    tail -n +2 part.csv >got
    same wanted got "$system, from step $at on"
    at=$((at + 5))
    [ "$(steps_in across)" = "$((at - at % 2 - (at % 2 ? 0 : 2))) $at " ] || fail "$system: kept $(steps_in across)"
done
same whole/model.safetensors last/model.safetensors "weights after six systems"

# LLaMA too, and a model that differs in nothing but an eps is another.
llama=(--init "$root/tests/data/llama-nano" --batch 4 --data "$text")
run 0 train in_memory "${llama[@]}" --steps 10 --save whole
run 0 train in_memory "${llama[@]}" --steps 5 --checkpoint llama
run 0 train zero_offload "${llama[@]}" --device-memory 64MB --steps 10 --checkpoint llama --resume --save last
same whole/model.safetensors last/model.safetensors "LLaMA resumed"
sed 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-06/' "$root/tests/data/llama-nano/config.json" >config.json
refused 2 "llama/step-0000000010/manifest.json: is of another model: its norm_eps is 1" train in_memory --model ./config.json \
    "${llama[@]}" --steps 20 --checkpoint llama --resume

# Without --init: the same, from initial values by seed. Trace and losses of a training cut into five runs are of one piece.
tiny=(--model gpt-mini --batch 4 --data "$text" --steps 5)
run 0 train zero_offload "${tiny[@]}" --device-memory 64MB --losses whole.csv
run 0 train zero_offload "${tiny[@]}" --device-memory 64MB --losses cut.csv --checkpoint seeded --every 1 --keep 3 --json --trace t.json --dump g.yaml
same whole.csv cut.csv "cut into five runs"
[ "$(json out '[d["training"][k] for k in ("first_step", "steps_done", "checkpoints")]')" = "[0, 5, 5]" ] || fail "json of checkpoints"
[ "$(steps_in seeded)" = "3 4 5 " ] || fail "--keep 3 kept $(steps_in seeded)"
peaks=$(json out '[m["peak_bytes"] for m in d["memory"]]')
run 0 sim --load g.yaml --cluster local --replay t.json --json
[ "$(json out '[m["peak_bytes"] for m in d["memory"]]')" = "$peaks" ] || fail "the joined trace has other peaks"

# ---- killed at random moments ----

RANDOM=20
systems=(in_memory zero_offload autohete)
before=0 killed=0 in_save=0
for i in $(seq 30); do
    "$hetbench" train "${systems[i % 3]}" "${nano[@]}" --device-memory 64MB --steps 1000000 --checkpoint killed --every 2 --resume \
        >killed.out 2>killed.err &
    pid=$!
    sleep "0.$(printf '%03d' $((40 + RANDOM % 400)))"
    kill -KILL "$pid" && killed=$((killed + 1))
    wait "$pid" 2>/dev/null || true
    grep -v 'holds no checkpoint: beginning\|s/step' killed.err && fail "kill $i: the run before it complained"
    [ -z "$(find killed -maxdepth 1 -name '.partial-*' -o -maxdepth 1 -name '.removed-*')" ] || in_save=$((in_save + 1))
    newest=$(steps_in killed | awk '{ print $NF + 0 }')
    [ "$newest" -ge "$before" ] || fail "kill $i: the newest checkpoint went from step $before to $newest"
    before=$newest
done
echo "$killed kills up to step $before, $in_save of them while a checkpoint was written or removed"
[ "$killed" = 30 ] && [ "$before" -gt 0 ] || fail "the kills came too early or too late"
run 0 train in_memory "${nano[@]}" --steps $((before + 20)) --losses whole.csv --save whole
run 0 train in_memory "${nano[@]}" --steps $((before + 20)) --checkpoint killed --resume --losses resumed.csv --save last
tail -n 20 whole.csv >wanted
tail -n +2 resumed.csv >got
same wanted got "resumed after 30 kills"
same whole/model.safetensors last/model.safetensors "resumed after 30 kills"
[ -z "$(find killed -maxdepth 1 -name '.partial-*' -o -maxdepth 1 -name '.removed-*')" ] || fail "leftovers of kills are not swept"

# ---- what is wrong: one line, and nothing is touched ----

contents() { (cd "$1" && find . -type f ! -name .lock -exec cksum {} + | sort); }
refuse() { # PATTERN ARGUMENTS...
    contents broken >contents.before
    refused 2 "$1" train in_memory "${nano[@]}" --checkpoint broken "${@:2}"
    contents broken | cmp -s - contents.before || fail "$1: files were changed"
}
fresh() { rm -rf broken && cp -r across broken; }
newest=broken/step-0000000030 advice="the checkpoint is damaged: remove broken/step-0000000030 to resume from step 28"
fresh
refuse "--checkpoint: broken holds a training up to step 30; --resume goes on with it" --micro-batch 2 --steps 40
refuse "--steps: broken is at step 30 already" --micro-batch 2 --steps 30 --resume
refuse "$newest/manifest.json: was made with --micro-batch 2; this run has 4" --steps 40 --resume
refuse "$newest/manifest.json: was made with --lr 0.0003; this run has 0.001" --micro-batch 2 --lr 0.001 --steps 40 --resume
refuse "$newest/manifest.json: is of another model: its layers is 2, that of this run's model 4" \
    --micro-batch 2 --model gpt-mini --seq 32 --steps 40 --resume
head -c 300 across/step-0000000030/manifest.json >$newest/manifest.json
refuse "$newest/manifest.json:[0-9]*:[0-9]*: .*; $advice" --micro-batch 2 --steps 40 --resume
sed 's/"step": 30/"step": 31/' across/step-0000000030/manifest.json >$newest/manifest.json
refuse "$newest/manifest.json: has the hash .*; its own record says .*; $advice" --micro-batch 2 --steps 40 --resume
fresh
rm $newest/manifest.json
refuse "$newest/manifest.json: cannot be opened: No such file or directory; $advice" --micro-batch 2 --steps 40 --resume
fresh
truncate -s -1 $newest/unit-0002.safetensors
refuse "$newest/unit-0002.safetensors: has [0-9]* bytes; its manifest says [0-9]*; $advice" --micro-batch 2 --steps 40 --resume
fresh
printf '\377' | dd of=$newest/unit-0001.safetensors bs=1 seek=9000 conv=notrunc status=none
refuse "$newest/unit-0001.safetensors: has the hash .*; its manifest says .*; $advice" --micro-batch 2 --steps 40 --resume
rm -r $newest # as the advice says
run 0 train in_memory "${nano[@]}" --micro-batch 2 --steps 30 --checkpoint broken --resume --save last
run 0 train in_memory "${nano[@]}" --micro-batch 2 --steps 30 --save whole
same whole/model.safetensors last/model.safetensors "resumed from the one before"
refused 2 "--resume: --checkpoint DIR is missing" train in_memory "${nano[@]}" --resume
refused 2 "--every: --checkpoint DIR is missing" train in_memory "${nano[@]}" --every 3
refused 2 "/proc/none: cannot be made" train in_memory "${nano[@]}" --checkpoint /proc/none
exec 9>broken/.lock
flock -n 9 || fail "the lock is still held"
refuse "broken: another process keeps its checkpoints there" --micro-batch 2 --steps 40 --resume
finish

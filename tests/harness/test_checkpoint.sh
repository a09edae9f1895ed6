#!/usr/bin/env bash
# Checkpoints: a resumed training is identical to one that was not stopped, in any system, numerics and control; what is
# damaged is named, and nothing is overwritten. Kills at any moment: test_kill.sh.
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
    head -n $((at + 6)) whole.csv >wanted
    same wanted part.csv "$system, from step $at on"
    at=$((at + 5))
    [ "$(steps_in across)" = "$((at - at % 2 - (at % 2 ? 0 : 2))) $at " ] || fail "$system: kept $(steps_in across)"
done
same whole/model.safetensors last/model.safetensors "weights after six systems"

# At the last step already: exported without a step, to new files as to old ones, once and again; what is in the way is not overwritten.
finished=("${nano[@]}" --micro-batch 2 --device-memory 64MB --steps 30 --checkpoint across --resume)
for losses in part.csv fresh.csv fresh.csv; do
    run 0 train autohete "${finished[@]}" --losses "$losses" --save exported
    [ "$(cat out)" = "across is at step 30 already: no step was run; its weights are in exported" ] || fail "exported: $(cat out)"
    same whole.csv "$losses" "exported losses"
    same whole/model.safetensors exported/model.safetensors "exported weights"
done
run 0 train in_memory "${finished[@]}"
[ "$(cat out)" = "across is at step 30 already: no step was run" ] || fail "nothing to do: $(cat out)"
run 0 train in_memory "${finished[@]}" --json --save exported.safetensors
[ "$(json out 'd["status"], d["losses"], d["training"]["first_step"], d["training"]["steps_done"]')" = "('ok', [], 30, 0)" ] ||
    fail "json of an export"
# Weights that cannot be written take the losses with them neither here nor after a training.
mkdir -p bad/model.safetensors/taken
run 1 train in_memory "${finished[@]}" --losses despite.csv --save bad
same whole.csv despite.csv "losses beside weights that cannot be written"
cp "$text" $'text\xff.txt'
run 0 train in_memory "${finished[@]}" --data $'text\xff.txt' --json
[ "$(json out 'd["training"]["data"]')" = 'text\xff.txt' ] || fail "a name that is not UTF-8: $(cat out)"
printf 'step,loss\n1,2.5\n2,x\n' >notes.csv
cp notes.csv before.csv
refused 2 "notes.csv:3: expected a file of losses: 'step,loss', then a row a step" train in_memory "${finished[@]}" --losses notes.csv
same before.csv notes.csv "a file that has no losses"
# Rows after the checkpoint's step are run again.
(cat whole.csv && echo 31,9.5 && echo 32,9.5) >longer.csv
cp -r across further
run 0 train in_memory "${nano[@]}" --micro-batch 2 --steps 31 --checkpoint further --resume --losses longer.csv --json
[ "$(json out 'd["training"]["resumed_sums"]')" = same ] || fail "sums of a training that goes on as it began: $(cat out)"
[ "$(head -n 31 longer.csv | cmp - whole.csv && wc -l <longer.csv)" = 32 ] && ! grep -qF ,9.5 longer.csv || fail "rows after the checkpoint: $(cat longer.csv)"
rm -r further

# With micro-batches of another size it is the same training but for the order of sums, of which the report tells.
cp -r across further
run 0 train zero_offload "${nano[@]}" --micro-batch 4 --steps 31 --checkpoint further --resume --losses other.csv --json
near 1e-6 longer.csv other.csv
[ "$(json out 'd["training"]["resumed_sums"]')" = other ] || fail "sums in another order: $(cat out)"
run 0 train in_memory "${nano[@]}" --micro-batch 2 --steps 32 --checkpoint further --resume
grep -q "^resumed after step 31 with gradients added up in another order (--micro-batch was 4): losses may differ" out || fail "sums in another order: $(cat out)"
rm -r further

# A training that is refused, or stopped before a checkpoint, leaves no folder that it made; one that another process has stays.
new=(--checkpoint new --save new-model)
refused 2 "/nowhere: " train in_memory "${nano[@]}" --init /nowhere --model gpt2-124m --seq 16 "${new[@]}"
! ls -d new new-model 2>/dev/null || fail "a refused training left a folder"
(
    exec "$hetbench" train in_memory "${nano[@]}" --steps 1000000 --every 1000000 "${new[@]}" >/dev/null 2>said
) &
pid=$!
until grep -q '^step ' said || ! kill -0 "$pid"; do sleep 0.1; done
refused 2 "new-model: another process saves its model there" train in_memory "${nano[@]}" "${new[@]}"
refused 2 "new: another process keeps its checkpoints there" train in_memory "${nano[@]}" --checkpoint new
[ -e new/.lock ] && [ -e new-model ] || fail "another process's folder was removed"
kill -TERM "$pid"
wait "$pid" || true
! ls -d new new-model 2>/dev/null || fail "a stopped training left a folder"

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

# ---- other numerics, another control ----

# With gate or rollback, and iterations that are skipped before and after the cut, the optimizer's step count and the loss scale
# continue, in another system, too.
watched=(--model gpt-mini --seq 16 --batch 4 --micro-batch 2 --data "$text" --loss-scale dynamic --clip 1.5)
faults=(--inject-overflow 2:1 --inject-overflow 3:0:nan --inject-overflow 6:5:square --inject-overflow 11:3)
for numerics in fp32 bf16 fp16; do
    rm -rf watched
    run 0 train in_memory "${watched[@]}" --numerics "$numerics" "${faults[@]}" --steps 16 --control gate --losses whole.csv --save whole.safetensors --json
    cp out whole.json
    at=0
    for part in 'zero_offload gate 4' 'autohete rollback 7' 'patrickstar gate 12' 'in_memory_ckpt rollback 16'; do
        read -r system control end <<<"$part"
        run 0 train "$system" "${watched[@]}" --numerics "$numerics" "${faults[@]}" --steps "$end" --control "$control" --device-memory 64MB \
            --checkpoint watched --resume --losses part.csv --save last.safetensors
        head -n $((end + 1)) whole.csv >wanted
        same wanted part.csv "$numerics: $system under $control, from step $at on"
        at=$end
    done
    same whole.safetensors last.safetensors "$numerics: weights after four systems under gate and rollback"
    "$python" - watched/step-0000000016/manifest.json <<'PY' || fail "$numerics: the manifest counts otherwise than the whole run"
import json, sys

have, want = json.load(open(sys.argv[1]))["checkpoint"], json.load(open("whole.json"))["control"]
verdicts = want["verdicts"]
assert [verdicts[k - 1] for k in (2, 3, 11)] == 3 * ["skipped"], verdicts
good = next(k for k, v in enumerate(reversed(verdicts)) if v == "skipped")
assert set(have["optimizer_steps"]) == {16 - verdicts.count("skipped")}, have["optimizer_steps"]
assert have["loss_scale"] == want["loss_scale_next"] == 65536 / 2 ** verdicts.count("skipped"), have["loss_scale"]
assert have["good_iterations"] == good == 5, have["good_iterations"]
PY
done

# A training may go on in other numerics: said in a line, not to the same bits, and its scale begins anew.
for numerics in fp32 bf16; do
    rm -rf other && cp -r watched other
    run 0 train in_memory "${watched[@]}" --numerics "$numerics" --control gate --steps 18 --checkpoint other --resume --json
    grep -q "^other was made with --numerics .*; going on with .* from its FP32 state, with the loss scale begun anew" err ||
        fail "$numerics: another numerics is not said: $(cat err)"
    [ "$(json out 'd["training"]["first_step"], d["control"]["loss_scale_first"]')" = "(16, 65536.0)" ] ||
        fail "$numerics: the scale did not begin anew"
done
refused 2 "watched/step-0000000016/manifest.json: was made with --clip 1.5; this run has 2" train in_memory "${watched[@]}" --clip 2 \
    --numerics fp16 --control gate --steps 18 --checkpoint watched --resume

# ---- a checkpoint that an older version wrote (tests/data/README.md) ----

stored=(--model "$root/tests/data/checkpoint/model.yaml" --seq 8 --batch 7 --micro-batch 1 --numerics fp16 --clip 1 --data "$text" --checkpoint stored --resume)
cp -r "$root/tests/data/checkpoint" stored
run 0 train in_memory "${stored[@]}" --steps 3 --save stored.safetensors --save-dtype f32
"$python" - stored/step-0000000003 <<'PY' || fail "the stored checkpoint's weights are not those that were saved"
import json, struct, sys

def tensors(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    return {k: (v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in header.items() if k != "__metadata__"}

saved, n = tensors("stored.safetensors"), 0
names = [("", "{}.weight"), ("h.0.", "{}"), ("", "{}")]
for unit, (prefix, form) in enumerate(names):
    for name, (shape, data) in tensors(f"{sys.argv[1]}/unit-{unit:04}.safetensors").items():
        if not name.startswith("param."): continue
        got_shape, got = saved["transformer." + prefix + form.format(name[6:])]
        rows, cols = shape
        if len(got_shape) == 2 and prefix and rows > 1: # a Conv1D
            data = b"".join(data[4 * (r * cols + c):][:4] for c in range(cols) for r in range(rows))
        assert got == data, name
        n += 1
assert n == len(saved) == 16, (n, len(saved))
PY
run 0 train in_memory "${stored[@]}" --steps 5 --losses stored.csv
grep -q "^resumed after step 3; the checkpoint does not say in which order gradients were added up" out || fail "an older version's sums: $(cat out)"
head -n 4 stored.csv | cmp -s - "$root/tests/data/checkpoint/step-0000000003/losses.csv" || fail "the stored losses: $(cat stored.csv)"
[ "$(json stored/step-0000000005/manifest.json 'd["checkpoint"]["optimizer_steps"], d["checkpoint"]["loss_scale"]')" = "([4, 4, 4], 32768.0)" ] ||
    fail "the stored checkpoint's counts went on otherwise"

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
refuse "--steps: broken is at step 30 already; expected at least that" --micro-batch 2 --steps 29 --resume
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

#!/usr/bin/env bash
# The drill: a gradient of one stage is spoilt at places taken at random, in pipelines over 2 and 4 ranks, FP32 and FP16. All ranks
# skip the step, or take back what they have stepped: outcomes, norms, loss scales and losses of all steps are in_memory's on one
# rank, and so is every bit of parameters, momentum and variance, both of which are those of a training that never took the step.
#
#     test_ranks_overflow.sh BUILD-DIRECTORY [--places N]     20: each system with either number of ranks and either numerics
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
places=20
if [ -n "$sanitized" ]; then places=5; fi
if [ "${2:-}" = --places ]; then places=${3:?--places needs a number}; fi
cd "$work"
without_mpirun
RANDOM=10
llama=(--model "$llama_tiny" --batch 4 --seq 16 --micro-batch 1 --data "$text" --loss-scale dynamic --steps 6 --every 6 --json)
needs_ranks --model gpt-mini --batch 4 --seq 16 --data "$text"

systems=(sysx mobius megatron gpipe interleaved) kinds=(inf nan square)
controls=(rollback gate gate gate rollback rollback rollback gate rollback gate)
seen=
for ((i = 0; i < places; i++)); do
    system=${systems[i % 5]} control=${controls[i % 10]} ranks=$((2 + 2 * (i / 5 % 2)))
    numerics=$([ $(((i / 10 + i) % 2)) = 0 ] && echo fp32 || echo fp16)
    # In FP16 the largest number is no overflow where its square is finite, so that "square" is for FP32.
    step=$((1 + RANDOM % 6)) unit=$((RANDOM % 6)) kind=${kinds[RANDOM % ($([ "$numerics" = fp32 ] && echo 3 || echo 2))]}
    place=(--numerics "$numerics" --inject-overflow "$step:$unit:$kind")
    run 0 train in_memory "${llama[@]}" "${place[@]}" --control gate --checkpoint one
    cp out one.json
    run 0 train "$system" "${llama[@]}" "${place[@]}" --control "$control" --ranks "$ranks" --checkpoint ranks
    what="place $i: $system, $ranks ranks, $numerics, step $step, unit $unit, $kind"
    "$python" - "$step" <<'PY' || fail "$what: not what one rank does"
import json, sys

one, ranks = json.load(open("one.json")), json.load(open("out"))
assert one["losses"] == ranks["losses"], (one["losses"], ranks["losses"])
for key in ("verdicts", "norms", "loss_scales", "loss_scale_next", "skipped", "redone", "clip_factors"):
    assert one["control"][key] == ranks["control"][key], (key, one["control"], ranks["control"])
verdicts = ["ok"] * 6
verdicts[int(sys.argv[1]) - 1] = "skipped"
assert ranks["control"]["verdicts"] == verdicts, ranks["control"]
PY
    diff -r -x .lock one ranks >differ || fail "$what: parameters, momentum or variance: $(cat differ)"
    [ "$(json ranks/step-0000000006/manifest.json 'set(d["checkpoint"]["optimizer_steps"])')" = "{5}" ] ||
        fail "$what: not every unit has been stepped five times of six"
    rm -r one ranks
    seen="$seen $unit"
done
echo "$places places in units$seen"

# The gate of one rank above never took the spoilt step. Seen from the start, too: when the first step is spoilt, momentum and
# variance are the zeros that they began with, and parameters those of the file.
for ((i = 0; i < 2; i++)); do
    run 0 train "${systems[i]}" --init "$root/tests/data/llama-nano" "${llama[@]:2:8}" --loss-scale dynamic --steps 1 --inject-overflow "1:$((RANDOM % 4))" \
        --control "${controls[i]}" --ranks 2 --checkpoint first --save first.safetensors --save-dtype f32
    run 0 train "${systems[i]}" --init "$root/tests/data/llama-nano" "${llama[@]:2:8}" --loss-scale dynamic --steps 1 --control "${controls[i]}" \
        --ranks 2 --save stepped.safetensors --save-dtype f32
    "$python" - "$root/tests/data/llama-nano/model.safetensors" <<'PY' || fail "${systems[i]}: a spoilt first step left something behind"
import glob, json, sys

def tensors(path):
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    return {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in header.items() if k != "__metadata__"}

begun, left, stepped = tensors(sys.argv[1]), tensors("first.safetensors"), tensors("stepped.safetensors")
assert left == begun, "parameters"
assert stepped != begun, "nothing would have been stepped"
files = glob.glob("first/step-0000000001/unit-*.safetensors")
states = {(f, k): v for f in files for k, v in tensors(f).items() if not k.startswith("param.")}
assert len(files) == 4 and states and not any(any(v) for v in states.values()), "momentum or variance"
PY
    rm -r first
done
# Norms that are clipped: the gate steps with the factor, rollback takes back the steps and makes them again with it.
clipped=("${llama[@]:0:10}" --steps 6 --json --numerics fp32 --clip 0.5)
run 0 train in_memory "${clipped[@]}" --control gate
cp out one.json
for system in sysx mobius gpipe; do
    for control in gate rollback; do
        run 0 train "$system" "${clipped[@]}" --control "$control" --ranks 2
        "$python" - "$control" <<'PY' || fail "$system: clipping by $control over two ranks is not what one rank does"
import json, sys

one, ranks = json.load(open("one.json")), json.load(open("out"))
assert one["losses"] == ranks["losses"], (one["losses"], ranks["losses"])
for key in ("norms", "clip_factors"):
    assert one["control"][key] == ranks["control"][key], (key, one["control"], ranks["control"])
assert min(ranks["control"]["clip_factors"]) < 1, ranks["control"]
assert (ranks["control"]["redone"] > 0) == (sys.argv[1] == "rollback"), ranks["control"]
PY
    done
done

# A gradient twenty times as large as those before it is not bad, but its step makes more exceptions than an undo log has room
# for: all ranks take their steps back, and make them again.
if [ -z "$sanitized" ]; then
    small_llama 16 >spike.yaml
    spike=(--model spike.yaml --batch 4 --seq 16 --micro-batch 1 --data "$text" --numerics fp32 --steps 145)
    run 0 train in_memory "${spike[@]}" --losses one.csv
    run 0 train sysx "${spike[@]}" --ranks 2 --control rollback --losses ranks.csv --json
    cmp -s one.csv ranks.csv || fail "a step that its log has no room for: losses are not in_memory's"
    [ "$(json out 'd["control"]["redone"] > 0 and d["control"]["skipped"] == 0')" = True ] || fail "no step was redone: $(json out 'd["control"]["verdicts"]')"
fi
finish

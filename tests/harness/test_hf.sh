#!/usr/bin/env bash
# A GPT-2 that transformers saved: loaded, trained as PyTorch trains it, and given back. tests/reference/hf_gpt2.py made the
# model and the numbers, and can check the way back with transformers itself.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
nano=$root/tests/data/gpt2-nano
common=(--batch 4 --data "$text" --steps 20 --lr 1e-3)

# ---- PyTorch's losses and weights ----

run 0 train in_memory --init "$nano" --save saved "${common[@]}" --json --losses in_memory.csv
"$python" - "$root" <<'PY' || fail "the losses or the saved weights are not PyTorch's"
import array, json, struct, sys

want = json.load(open(sys.argv[1] + "/tests/reference/hf_gpt2_losses.json"))
got = json.load(open("out"))["losses"]
worst = max(abs(a - b) / b for a, b in zip(got, want["losses"]))
print(f"relative difference from PyTorch over {len(got)} steps: at most {worst:.1e}")
assert len(got) == len(want["losses"]) == 20 and worst <= 1e-5, worst

raw = open("saved/model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8:8 + n])
assert header.pop("__metadata__") == {"format": "pt"}
assert want["sums"].keys() < header.keys() and len(header) == 28, header.keys()
worst = 0
for name, (total, squares) in want["sums"].items():
    begin, end = header[name]["data_offsets"]
    values = array.array("f", raw[8 + n + begin:8 + n + end])
    worst = max(worst, abs(sum(values) - total) / len(values), abs(sum(v * v for v in values) - squares) / squares)
print(f"saved weights: mean and norm differ from PyTorch's by at most {worst:.1e}")
assert worst < 1e-5, worst
config = json.load(open("saved/config.json"))
asked = json.load(open(sys.argv[1] + "/tests/data/gpt2-nano/config.json"))
for key in ("model_type", "n_layer", "n_embd", "n_head", "n_positions", "vocab_size", "activation_function",
            "layer_norm_epsilon", "tie_word_embeddings"):
    assert config[key] == asked[key], key
PY

# ---- every system, the same bits ----

for system in zero_offload zero_offload_ckpt patrickstar autohete; do
    run 0 train "$system" --init "$nano" --save other "${common[@]}" --micro-batch 4 --device-memory 64MB --losses other.csv
    cmp -s in_memory.csv other.csv || fail "$system: losses are not in_memory's"
    cmp -s saved/model.safetensors other/model.safetensors || fail "$system: saved weights are not in_memory's"
done

# ---- there and back: nothing learnt, nothing changed; by folder, file, with a model named ----

run 0 train in_memory --init saved --save back --batch 4 --data "$text" --steps 1 --lr 0
cmp -s saved/model.safetensors back/model.safetensors || fail "a round trip changes the weights"
run 0 train in_memory --init saved/model.safetensors --model saved/config.json --save back2 --batch 4 --data "$text" --steps 1 --lr 0
cmp -s saved/model.safetensors back2/model.safetensors || fail "a round trip by file changes the weights"
[ -z "$(find . -name '*.partial')" ] || fail "leftovers: $(find . -name '*.partial')"
run 0 sim zero_offload --model "$nano/config.json" --cluster local --device-memory 100MB

# ---- what is wrong ----

train() { refused 2 "$1" train in_memory --batch 4 --data "$text" --steps 1 "${@:2}"; }
train "--init none: is no folder with a config.json" --init none
train "none: cannot be opened: No such file" --init none --model gpt-tiny
train ".*gpt2-nano/model.safetensors: tensor 'transformer.wte.weight': its shape is \[256, 16\]; expected \[256, 128\] for" \
    --init "$nano" --model gpt-tiny
train "--save: /proc/none: cannot be made" --init "$nano" --save /proc/none
mkdir broken
cp "$nano/config.json" broken/config.json
train "broken: holds neither model.safetensors nor model.safetensors.index.json" --init broken
head -c 40000 "$nano/model.safetensors" >broken/model.safetensors
train "broken/model.safetensors: tensor '[a-z0-9._]*': its data ends at [0-9]*, and the file has [0-9]* bytes of data: it is truncated" \
    --init broken
cp "$nano/model.safetensors" broken
printf x >>broken/model.safetensors
train "broken/model.safetensors: 1 bytes after the last tensor belong to none" --init broken
sed 's/transformer.h.1.ln_2.bias/transformer.h.1.ln_3.bias/' "$nano/model.safetensors" >broken/model.safetensors
train "broken/model.safetensors: tensor 'transformer.h.1.ln_2.bias' of shape \[16\] is missing" --init broken
cp "$nano/model.safetensors" broken
config() { sed "s/$1/$2/" "$nano/config.json" >broken/config.json; }
config '"n_layer": 2' '"n_layer": 1'
train "broken/model.safetensors: tensor 'transformer.h.1.attn.c_attn.bias' has no place in this model" --init broken
config '"n_layer": 2' '"n_layer": 3'
train "broken/model.safetensors: tensor 'transformer.h.2.ln_1.weight' of shape \[16\] is missing" --init broken
config '"n_head": 2' '"n_head": 3'
train "broken/config.json:[0-9]*:[0-9]*: key 'n_head': 3 heads do not divide the width 16" --init broken
config gelu_new relu
train "broken/config.json:[0-9]*:[0-9]*: key 'activation_function': 'relu' has no kernel" --init broken
config '"gpt2"' '"bert"'
train "broken/config.json:[0-9]*:[0-9]*: key 'model_type': 'bert' is not known here; expected gpt2" --init broken
printf '{' >broken/config.json
train "broken/config.json:" --init broken
finish

#!/usr/bin/env bash
# A GPT-2 and a LLaMA that transformers saved: loaded, trained as PyTorch trains them, and given back. tests/reference/hf_models.py
# made the models and the numbers, and can check the way back with transformers itself.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
nano=$root/tests/data/gpt2-nano
common=(--batch 4 --data "$text" --steps 20 --lr 1e-3)

# ---- PyTorch's losses and weights ----

for name in llama-nano gpt2-nano; do # the last one is what follows goes on with
    run 0 train in_memory --init "$root/tests/data/$name" --save saved "${common[@]}" --json --losses in_memory.csv
    "$python" - "$root" "$name" <<'PY' || fail "$name: the losses or the saved weights are not PyTorch's"
import array, json, struct, sys

root, name = sys.argv[1:]
want = json.load(open(root + "/tests/reference/hf_models.json"))[name]
got = json.load(open("out"))["losses"]
worst = max(abs(a - b) / b for a, b in zip(got, want["losses"]))
print(f"{name}: relative difference from PyTorch over {len(got)} steps: at most {worst:.1e}")
assert len(got) == len(want["losses"]) == 20 and worst <= 1e-5, worst

raw = open("saved/model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8:8 + n])
assert header.pop("__metadata__") == {"format": "pt"}
assert len(header) == {"gpt2-nano": 28, "llama-nano": 21}[name] and want["sums"].keys() <= header.keys(), header.keys()
worst = 0
for key, (total, squares) in want["sums"].items():
    begin, end = header[key]["data_offsets"]
    values = array.array("f", raw[8 + n + begin:8 + n + end])
    worst = max(worst, abs(sum(values) - total) / len(values), abs(sum(v * v for v in values) - squares) / squares)
print(f"{name}: saved weights: mean and norm differ from PyTorch's by at most {worst:.1e}")
assert worst < 1e-5, worst
config = json.load(open("saved/config.json"))
asked = json.load(open(root + "/tests/data/" + name + "/config.json"))
same = {"gpt2-nano": ("n_layer", "n_embd", "n_head", "n_positions", "activation_function", "layer_norm_epsilon"),
        "llama-nano": ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "rms_norm_eps",
                       "intermediate_size", "max_position_embeddings", "hidden_act")}[name]
for key in same + ("model_type", "vocab_size", "tie_word_embeddings"):
    assert config[key] == asked[key], key
PY
    run 0 train in_memory --init saved --save back --batch 4 --data "$text" --steps 1 --lr 0
    cmp -s saved/model.safetensors back/model.safetensors || fail "$name: a round trip changes the weights"
done

# ---- every system, the same bits ----

for system in zero_offload zero_offload_ckpt patrickstar autohete; do
    run 0 train "$system" --init "$nano" --save other "${common[@]}" --micro-batch 4 --device-memory 64MB --losses other.csv
    cmp -s in_memory.csv other.csv || fail "$system: losses are not in_memory's"
    cmp -s saved/model.safetensors other/model.safetensors || fail "$system: saved weights are not in_memory's"
done

# ---- a file alone, with a model named; a config for other commands ----

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
train "broken/config.json:[0-9]*:[0-9]*: key 'model_type': 'bert' is not known here; expected gpt2 or llama" --init broken
llama() { sed "s/$1/$2/" "$root/tests/data/llama-nano/config.json" >broken/config.json; }
llama '"rope_type": "default"' '"rope_type": "llama3"'
train "broken/config.json:[0-9]*:[0-9]*: key 'rope_type': has no kernel; expected default" --init broken
llama '"num_key_value_heads": 2' '"num_key_value_heads": 3'
train "broken/config.json:[0-9]*:[0-9]*: key 'num_key_value_heads': 3 heads of keys do not divide the 4 heads" --init broken
printf '{' >broken/config.json
train "broken/config.json:" --init broken
finish

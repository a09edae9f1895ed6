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

# ---- BERT: names of BertForSequenceClassification, and the way back ----

cat >nano.yaml <<'YAML'
{name: bert-nano, arch: bert, layers: 2, width: 16, heads: 2, vocab: 256, max_seq: 32, classes: 5, source: the tests}
YAML
run 0 train in_memory --model nano.yaml --save bert --batch 4 --data "$text" --steps 3
"$python" - <<'PY' || fail "BERT: the names, the shapes or the config are not Hugging Face's"
import json, struct

raw = open("bert/model.safetensors", "rb").read()
header = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
got = {k: v["shape"] for k, v in header.items() if k != "__metadata__"}
C, F, pair = 16, 64, lambda name, out, *inner: {name + ".weight": [out, *inner], name + ".bias": [out]}
want = {f"bert.embeddings.{k}_embeddings.weight": [n, C] for k, n in (("word", 256), ("position", 32), ("token_type", 2))}
want |= pair("bert.embeddings.LayerNorm", C) | pair("bert.pooler.dense", C, C) | pair("classifier", 5, C)
for i in range(2):
    layer = f"bert.encoder.layer.{i}."
    for k in ("query", "key", "value"):
        want |= pair(layer + "attention.self." + k, C, C)
    want |= pair(layer + "attention.output.dense", C, C) | pair(layer + "attention.output.LayerNorm", C)
    want |= pair(layer + "intermediate.dense", F, C) | pair(layer + "output.dense", C, F) | pair(layer + "output.LayerNorm", C)
assert got == want, (got, want)
config = json.load(open("bert/config.json"))
assert config["model_type"] == "bert" and config["num_labels"] == 5 and config["layer_norm_eps"] == 1e-5, config
PY
run 0 train in_memory --init bert --save back --batch 4 --data "$text" --steps 1 --lr 0
cmp -s bert/model.safetensors back/model.safetensors || fail "BERT: a round trip changes the weights"
mkdir -p published
cp bert/model.safetensors published
sed 's/gelu_new/gelu/' bert/config.json >published/config.json
refused 2 "published/config.json:[0-9]*:[0-9]*: key 'hidden_act': 'gelu' has no kernel; expected gelu_new" train in_memory --init published \
    --batch 4 --data "$text" --steps 1
sed '/layer_norm_eps/d' bert/config.json >published/config.json
refused 2 "published/config.json:1:1: without 'layer_norm_eps' it is 1e-12; the kernels have another: expected 1e-05" train in_memory \
    --init published --batch 4 --data "$text" --steps 1

# ---- ViT: names of ViTForImageClassification, images, and the way back ----

"$python" "$root/scripts/images" images.bin --count 50 --image 12 --channels 1 --classes 5
cat >nano-vit.yaml <<'YAML'
{name: vit-nano, arch: vit, layers: 2, width: 16, heads: 2, image: 12, patch: 4, channels: 1, classes: 5, source: the tests}
YAML
run 0 train in_memory --model nano-vit.yaml --save vit --batch 4 --data images.bin --steps 3
"$python" - <<'PY' || fail "ViT: the names, the shapes or the config are not Hugging Face's"
import json, struct

raw = open("vit/model.safetensors", "rb").read()
header = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
got = {k: v["shape"] for k, v in header.items() if k != "__metadata__"}
C, F, pair = 16, 64, lambda name, out, *inner: {name + ".weight": [out, *inner], name + ".bias": [out]}
want = {"vit.embeddings.cls_token": [1, 1, C], "vit.embeddings.position_embeddings": [1, 10, C]}
want |= pair("vit.embeddings.patch_embeddings.projection", C, 1, 4, 4) | pair("vit.layernorm", C) | pair("classifier", 5, C)
for i in range(2):
    layer = f"vit.encoder.layer.{i}."
    for k in ("query", "key", "value"):
        want |= pair(layer + "attention.attention." + k, C, C)
    want |= pair(layer + "attention.output.dense", C, C) | pair(layer + "intermediate.dense", F, C)
    want |= pair(layer + "output.dense", C, F) | pair(layer + "layernorm_before", C) | pair(layer + "layernorm_after", C)
assert got == want, (got, want)
config = json.load(open("vit/config.json"))
assert config["model_type"] == "vit" and config["num_labels"] == 5 and config["patch_size"] == 4, config
PY
run 0 train in_memory --init vit --save back --batch 4 --data images.bin --steps 1 --lr 0
cmp -s vit/model.safetensors back/model.safetensors || fail "ViT: a round trip changes the weights"
sed 's/gelu_new/gelu/' vit/config.json >published/config.json
refused 2 "published/config.json:[0-9]*:[0-9]*: key 'hidden_act': 'gelu' has no kernel; expected gelu_new" train in_memory --init published \
    --batch 4 --data images.bin --steps 1
refused 2 "images.bin: has 7250 bytes, not a multiple of 3073; expected images" train in_memory --model vit-tiny --batch 4 --data images.bin --steps 1
head -c 290 "$text" >text.bin # two records' worth
refused 2 "text.bin: image 0, at byte 0, has label [0-9]*; the model's classes are 0 to 4" train in_memory --model nano-vit.yaml --batch 4 \
    --data text.bin --steps 1
refused 2 "--data-format text: the model reads images; expected images" train in_memory --model nano-vit.yaml --batch 4 --data "$text" \
    --data-format text --steps 1
refused 2 "--data-format images: the model reads tokens; expected text, u16 or u32" train in_memory --model gpt-mini --batch 4 --data images.bin \
    --data-format images --steps 1
refused 2 "sequence length 9 does not fit model 'vit-nano'; its images have 10 tokens" train in_memory --model nano-vit.yaml --batch 4 \
    --data images.bin --seq 9 --steps 1

# ---- every system, the same bits ----

for system in zero_offload zero_offload_ckpt patrickstar autohete; do
    run 0 train "$system" --init "$nano" --save other "${common[@]}" --micro-batch 4 --device-memory 64MB --losses other.csv
    cmp -s in_memory.csv other.csv || fail "$system: losses are not in_memory's"
    cmp -s saved/model.safetensors other/model.safetensors || fail "$system: saved weights are not in_memory's"
done

# ---- a file alone, with a model named; a config for other commands ----

run 0 train in_memory --init saved/model.safetensors --model saved/config.json --save back2 --batch 4 --data "$text" --steps 1 --lr 0
cmp -s saved/model.safetensors back2/model.safetensors || fail "a round trip by file changes the weights"
short=(train in_memory --init saved --batch 4 --data "$text" --steps 1 --lr 0)
mkfifo pipe.safetensors
refused 2 "--save: pipe.safetensors: is a device or a pipe; expected a plain file or a folder" "${short[@]}" --save pipe.safetensors
touch private.safetensors
chmod 600 private.safetensors back2/model.safetensors
run 0 "${short[@]}" --save private.safetensors
run 0 "${short[@]}" --save back2
[ "$(stat -c %a private.safetensors back2/model.safetensors | uniq)" = 600 ] || fail "a save has changed the mode of a file"
[ -z "$(find . -name '*.partial')" ] || fail "leftovers: $(find . -name '*.partial')"
run 0 sim zero_offload --model "$nano/config.json" --cluster local --device-memory 100MB

# ---- 16 bits and shards ----

# What transformers saved in 16 bits, whole or in shards, comes out as it went in.
give_back() { run 0 train in_memory --batch 2 --data "$text" --steps 1 --lr 0 "$@"; }
same_tensors() { # A B: two folders hold the same tensors, byte by byte, and their configs name the same type
    "$python" - "$1" "$2" <<'PY' || fail "$1 and $2 do not hold the same"
import glob, json, struct, sys

def read(folder):
    tensors, where = {}, {}
    for path in sorted(glob.glob(folder + "/*.safetensors")):
        raw = open(path, "rb").read()
        n = struct.unpack("<Q", raw[:8])[0]
        for name, t in json.loads(raw[8:8 + n]).items():
            if name == "__metadata__":
                continue
            begin, end = t["data_offsets"]
            tensors[name] = t["dtype"], t["shape"], raw[8 + n + begin:8 + n + end]
            where[name] = path.split("/")[-1]
    index = glob.glob(folder + "/*.index.json")
    if index:
        stated = json.load(open(index[0]))
        assert stated["weight_map"] == where, where
        total = sum(len(t[2]) for t in tensors.values())
        assert stated["metadata"] == {"total_size": total, "total_parameters": total // 2}, stated["metadata"]
    else:
        assert set(where.values()) == {"model.safetensors"}, where
    config = json.load(open(folder + "/config.json"))
    return tensors, len(set(where.values())) > 1, config.get("dtype", config.get("torch_dtype"))

a, b = (read(folder) for folder in sys.argv[1:])
assert a == b, (a[0].keys() ^ b[0].keys(), a[1:], b[1:])
PY
}
data=$root/tests/data
give_back --init "$data/gpt2-nano-bf16" --save half --save-dtype bf16
same_tensors "$data/gpt2-nano-bf16" half
give_back --init "$data/llama-nano-f16" --save half --save-dtype f16 --save-shard 10kB # the other kind, into the same folder
same_tensors "$data/llama-nano-f16" half
give_back --init half --save wide                                                     # widened, and narrow again
give_back --init wide --save half --save-dtype f16                                      # the shards and their index go
[ "$(cd half && echo *)" = "config.json model.safetensors" ] || fail "a whole model beside: $(ls half)"
give_back --init half --save half.safetensors --save-dtype f16
cmp -s half/model.safetensors half.safetensors || fail "a file alone holds something else than a folder"
sed 's/"vocab_size": 256/"vocab_size": 257/' half/config.json >config.json
refused 2 "half.safetensors: tensor 'model.embed_tokens.weight': its shape is \[256, 16\]; expected \[257, 16\]" \
    train in_memory --init half.safetensors --model ./config.json --data "$text" --steps 1
# 70000 has no number in F16: it becomes infinite, which is said.
"$python" - <<'PY'
raw = bytearray(open("saved/model.safetensors", "rb").read())
raw[-4:] = bytes.fromhex("00b88847")
open("saved/model.safetensors", "wb").write(raw)
PY
give_back --init saved --save inf --save-dtype f16
grep -q "warning: inf: 1 weights are beyond F16 and became infinite" err || fail "no warning of weights beyond F16: $(cat err)"

# ---- a model over an older one ----

# tests/common/ckpt/test_save.c goes through all ways of stopping in between. Here: a folder by a link, a file by a link, a disk that is
# full, and a folder that another process saves to.
(cd half && echo '{}' >tokenizer.json && sed -i 's/"eos_token_id": null/"eos_token_id": 7/' config.json && cp config.json ../users.json)
ln -s half by-link
give_back --init half --save by-link --save-dtype f16 --save-shard 10kB
[ -L by-link ] && [ ! -e half/model.safetensors ] && [ -f half/tokenizer.json ] || fail "a folder by a link: $(ls half)"
cmp -s half/config.json users.json || fail "the user's config.json was changed"
give_back --init half --save half --save-dtype f16 --save-shard 10kB
# An index that cannot be read now names shards all the same: a save that fails leaves them.
cp -r half unmounted
rm unmounted/model.safetensors.index.json
ln -s elsewhere unmounted/model.safetensors.index.json
ls unmounted/model*-of-* >shards
(trap '' XFSZ && ulimit -f 4 && ! "$hetbench" train in_memory --init half --save unmounted --batch 4 --data "$text" --steps 1 --lr 0 >full.out 2>full.err) ||
    fail "a save with no room succeeds"
[ "$(ls unmounted/model*-of-*)" = "$(cat shards)" ] || fail "a failed save has removed shards: $(ls unmounted)"
[ "$(cd half && echo model-v2-*)" != "model-v2-*" ] || fail "the same shards again have other names: $(ls half)"
ln -s real.safetensors alone.safetensors
give_back --init half --save alone.safetensors --save-dtype f16
[ -L alone.safetensors ] && cmp -s real.safetensors half.safetensors || fail "a file by a link"
cp -r half before
(
    trap '' XFSZ
    ulimit -f 8
    status=0
    "$hetbench" train in_memory --batch 2 --data "$text" --steps 1 --init half --save half --losses full.csv >out 2>err || status=$?
    [ "$status" = 1 ]
) || fail "a full disk: $(cat err)"
grep -q "^hetbench: half/model.safetensors: cannot be written: File too large" err || fail "a full disk: $(cat err)"
[ "$(wc -l <full.csv)" = 2 ] && grep -q "^step time" out || fail "a full disk takes losses and report with it"
diff -r before half || fail "a full disk: the old model was changed"
exec 8<half
flock -n 8 || fail "the lock is still held"
refused 2 "half: another process saves its model there" train in_memory --batch 2 --data "$text" --steps 1000000 --init half --save half
exec 8<&-

# ---- transformers itself, where there is a Python with torch and transformers ----

if [ -n "${TORCH_PYTHON:-}" ]; then
    PYTHONDONTWRITEBYTECODE=1 "$TORCH_PYTHON" "$root/tests/reference/hf_models.py" check "$hetbench" 2>torch.err ||
        fail "transformers does not load what was saved: $(tail -n 5 torch.err)"
else
    echo "TORCH_PYTHON is not set: skipped what transformers itself makes of the saved models"
fi

# ---- what is wrong ----

train() { refused 2 "$1" train in_memory --batch 4 --data "$text" --steps 1 "${@:2}"; }
train "--init none: not a folder with a config.json" --init none
train "none: cannot be opened: No such file" --init none --model gpt-tiny
train ".*gpt2-nano/model.safetensors: tensor 'transformer.wte.weight': its shape is \[256, 16\]; expected \[256, 128\] for" \
    --init "$nano" --model gpt-tiny
train "--save: /proc/none: cannot be made" --init "$nano" --save /proc/none
train "--save-dtype 'fp16' is not known; expected f32, f16 or bf16" --init "$nano" --save x --save-dtype fp16
train "--save-dtype: --save is missing beside it" --init "$nano" --save-dtype f16
train "--save-shard: --save is missing beside it" --init "$nano" --save-shard 1MB
train "--save-shard: 'x.safetensors' is one file" --init "$nano" --save x.safetensors --save-shard 1MB
train "--save: none/x.safetensors: cannot be written: No such file" --init "$nano" --save none/x.safetensors
mkdir x.safetensors
train "--save: x.safetensors: is a folder" --init "$nano" --save x.safetensors
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
config '"gpt2"' '"t5"'
train "broken/config.json:[0-9]*:[0-9]*: key 'model_type': 't5' is not known here; expected gpt2, llama, mistral, qwen2, bert or vit" --init broken
llama() { sed "s/$1/$2/" "$root/tests/data/llama-nano/config.json" >broken/config.json; }
llama '"rope_type": "default"' '"rope_type": "llama3"'
train "broken/config.json:[0-9]*:[0-9]*: key 'rope_type': 'llama3' has no kernel; expected default" --init broken
llama '"num_key_value_heads": 2' '"num_key_value_heads": 3'
train "broken/config.json:[0-9]*:[0-9]*: key 'num_key_value_heads': 3 heads of keys do not divide the 4 heads" --init broken
printf '{' >broken/config.json
train "broken/config.json:" --init broken
# ---- configs of usual models under any file name: planned and simulated; what has no kernel stops a training ----

small='"hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
       "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "vocab_size": 256, "hidden_act": "silu", "tie_word_embeddings": false'
scaling='{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}'
echo "{\"model_type\": \"llama\", \"rope_theta\": 500000.0, \"rope_scaling\": $scaling, $small}" >llama3.json
echo "{\"model_type\": \"qwen2\", \"use_sliding_window\": false, \"sliding_window\": 131072, $small}" >my_qwen2
echo "{\"model_type\": \"mistral\", \"sliding_window\": 32, $small}" >mistral.config
machine=(--gpus rtx4090:2 --ram 64GB --batch 4)
for config in llama3.json my_qwen2 mistral.config; do
    run 0 plan zero_offload --model "$config" "${machine[@]}"
    run 0 sim zero_offload --model "$config" "${machine[@]}"
    run 0 compare --models "$config" --systems zero_offload,ddp "${machine[@]}"
    run 0 maxsize zero_offload --models "$config" "${machine[@]}"
    run 0 advise --model "$config" --systems zero_offload,ddp "${machine[@]}"
    run 2 train in_memory --model "$config" --data "$text" --steps 1
    [ "$(wc -l <err)" = 1 ] || fail "$config: not one line: $(cat err)"
    grep -q 'can be planned and simulated, not trained' err || fail "$config: $(cat err)"
done
finish

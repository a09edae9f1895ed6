#!/usr/bin/env python3
"""A tiny GPT-2 and a tiny LLaMA of Hugging Face's transformers, and their losses in PyTorch: what tests/harness/test_hf.sh
is held against.

    python tests/reference/hf_models.py make             writes tests/data/gpt2-nano/, llama-nano/, the same in 16 bits,
                                                         and hf_models.json
    python tests/reference/hf_models.py check HETBENCH   trains with the program HETBENCH, saves, loads the result with
                                                         transformers, compares every weight; in 16 bits, too

needs numpy, torch, transformers. The batches are the suite's own (harness/run/tokens.h). AdamW decays every parameter, as ours
does. The weights after the last step are stored as sums, so that the test needs no transformers: sum and sum of squares
of every tensor (but c_attn.bias, whose key part has no gradient but rounding, which AdamW blows up).
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from torch_gpt import random_below

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "kjv-200k.txt"
OUT = HERE / "hf_models.json"
MODELS = {name: HERE.parent / "data" / name for name in ("gpt2-nano", "llama-nano")}
# The same in 16 bits, the LLaMA in shards: made from, type, largest shard.
HALVES = {"gpt2-nano-bf16": ("gpt2-nano", torch.bfloat16, "1GB"), "llama-nano-f16": ("llama-nano", torch.float16, "10KB")}
WIDTH, STEPS, BATCH, SEQ, DATA_SEED = 16, 20, 4, 32, 5678
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def make_model(name):
    """Initial values larger than usual, so that attention is not uniform; biases and norms are not trivial either."""
    torch.manual_seed(11)
    common = {"vocab_size": 256, "initializer_range": 0.2, "bos_token_id": None, "eos_token_id": None}
    if name == "gpt2-nano":
        model = GPT2LMHeadModel(GPT2Config(n_positions=32, n_embd=WIDTH, n_layer=2, n_head=2, resid_pdrop=0.0,
                                           embd_pdrop=0.0, attn_pdrop=0.0, **common))
    else:
        model = LlamaForCausalLM(LlamaConfig(
            max_position_embeddings=32, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, intermediate_size=40, rms_norm_eps=1e-5, **common))
    with torch.no_grad():
        for _, p in model.named_parameters():
            if p.dim() == 1:
                p.add_(0.1 * torch.randn_like(p))
    return model


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder)


def batch(data, step):
    """Tokens and targets, each (BATCH, SEQ)."""
    starts = len(data) - SEQ - 1
    at = [random_below(DATA_SEED, step * BATCH + b, starts) for b in range(BATCH)]
    rows = np.stack([data[a:a + SEQ + 1] for a in at]).astype(np.int64)
    return torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, 1:])


def train(model, dtype):
    """Losses before each of the steps; the model is left as the last step leaves it."""
    data = np.fromfile(DATA, dtype=np.uint8)
    model = model.to(dtype).train()
    model.config._attn_implementation = "eager"
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses = []
    for step in range(STEPS):
        x, y = batch(data, step)
        logits = model(x).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, model


def make():
    result = {"torch": torch.__version__, "batch": BATCH, "seq": SEQ, "data_seed": DATA_SEED, "lr": ADAMW["lr"]}
    for name, folder in MODELS.items():
        make_model(name).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        (folder / "model.safetensors").chmod(0o644)
        single, _ = train(load(folder), torch.float32)
        double, trained = train(load(folder), torch.float64)
        sums = {n: [float(p.detach().sum()), float((p.detach() ** 2).sum())] for n, p in trained.named_parameters()
                if not n.endswith("c_attn.bias")}
        rounding = max(abs(a - b) / b for a, b in zip(single, double))
        result[name] = {"rounding": rounding, "losses": double, "sums": sums}
        print(f"{name}: losses {double[0]:.6f} .. {double[-1]:.6f}; float32 is within {rounding:.1e} of float64")
    for name, (source, dtype, shard) in HALVES.items():
        folder = HERE.parent / "data" / name
        load(MODELS[source]).to(dtype).save_pretrained(folder, max_shard_size=shard)
        (folder / "generation_config.json").unlink(missing_ok=True)
        for path in folder.glob("*.safetensors"):
            path.chmod(0o644)
    OUT.write_text(json.dumps(result, indent=1) + "\n")


def run(hetbench, folder, work, steps, lr, *options):
    done = subprocess.run([hetbench, "train", "in_memory", "--init", folder, "--save", work, "--batch", str(BATCH),
                           "--data", DATA, "--steps", str(steps), "--lr", str(lr), "--json", *options],
                          check=True, capture_output=True)
    return json.loads(done.stdout)["losses"]


def distance(model, wanted):
    """Largest difference between two models' weights, but for what has no gradient."""
    worst = 0.0
    for (name, a), (other, b) in zip(model.named_parameters(), wanted.named_parameters()):
        assert name == other
        apart = (a.detach().double() - b.detach().double()).abs()
        if name.endswith("c_attn.bias"):
            apart[WIDTH:2 * WIDTH] = 0  # softmax does not see a key's bias: its gradient is rounding alone
        worst = max(worst, float(apart.max()))
    return worst


def check(hetbench, name, folder):
    want = json.loads(OUT.read_text())[name]
    _, trained = train(load(folder), torch.float64)
    with tempfile.TemporaryDirectory() as shards, tempfile.TemporaryDirectory() as work:
        # In several files with an index, and back in one. A training without a learning rate gives back what it got.
        load(folder).save_pretrained(shards, max_shard_size="20KB")
        assert (pathlib.Path(shards) / "model.safetensors.index.json").exists()
        for source in (shards, folder):
            run(hetbench, source, work, 1, 0)
            model, info = AutoModelForCausalLM.from_pretrained(work, output_loading_info=True)
            assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
            for (key, a), (_, b) in zip(model.named_parameters(), load(folder).named_parameters()):
                assert torch.equal(a, b), key
        losses = run(hetbench, folder, work, STEPS, ADAMW["lr"])
        apart = distance(load(work), trained)
    worst = max(abs(a - b) / b for a, b in zip(losses, want["losses"]))
    print(f"{name}: read and given back bit by bit; losses differ by at most {worst:.1e} (relative), trained weights by "
          f"{apart:.1e}")
    assert worst <= 1e-5 and apart < 1e-4


def loaded(folder, dtype):
    """The model in the type that its config and its files say, which is this one; nothing missing, nothing left over."""
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    assert {p.dtype for p in model.parameters()} == {dtype}, (folder, dtype)
    return model


def assert_same_weights(a, b):
    for (key, x), (_, y) in zip(a.named_parameters(), b.named_parameters(), strict=True):
        assert torch.equal(x, y), key


def check_half(hetbench, name, folder, numerics, dtype):
    """A model in FP32 becomes one in 16 bits, in shards; trained in 16 bits, what was saved is what transformers computes with."""
    want = json.loads(OUT.read_text())[name]
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as again:
        run(hetbench, folder, work, 1, 0, "--numerics", numerics, "--save-shard", "8kB")
        assert len(list(pathlib.Path(work).glob("model-*.safetensors"))) > 1
        assert_same_weights(loaded(work, dtype), load(folder).to(dtype))
        losses = run(hetbench, folder, work, STEPS, ADAMW["lr"], "--numerics", numerics)
        model = loaded(work, dtype).to(torch.float32).eval()
        x, y = batch(np.fromfile(DATA, dtype=np.uint8), 0)
        theirs = float(torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten()))
        ours = run(hetbench, work, again, 1, 0, "--numerics", "fp32")[0]
        half = run(hetbench, work, again, 1, 0, "--numerics", numerics)[0]
        assert_same_weights(loaded(again, dtype), loaded(work, dtype))
    worst = max(abs(a - b) / b for a, b in zip(losses, want["losses"]))
    print(f"{name}, {numerics}: losses differ from PyTorch's in double by at most {worst:.1e} (relative); of what was saved "
          f"transformers has the loss {theirs:.6f}, ours is {ours:.6f} in fp32, {half:.6f} in {numerics}")
    assert worst <= 2e-2 and abs(theirs / ours - 1) <= 1e-5 and abs(theirs / half - 1) <= 1e-2


def check_stored(hetbench):
    """What transformers saved in 16 bits is read, and widened without loss."""
    for name, (_, dtype, _) in HALVES.items():
        with tempfile.TemporaryDirectory() as work:
            run(hetbench, HERE.parent / "data" / name, work, 1, 0)
            assert_same_weights(loaded(work, torch.float32), loaded(HERE.parent / "data" / name, dtype).to(torch.float32))
    print("16-bit files of transformers: read as they are")


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        for model_name, model_folder in MODELS.items():
            check(sys.argv[2], model_name, model_folder)
            check_half(sys.argv[2], model_name, model_folder, "bf16", torch.bfloat16)
            check_half(sys.argv[2], model_name, model_folder, "fp16", torch.float16)
        check_stored(sys.argv[2])
    else:
        sys.exit(__doc__)

#!/usr/bin/env python3
"""A tiny GPT-2 of Hugging Face's transformers, and its losses in PyTorch: what tests/harness/test_hf.sh is held against.

    python tests/reference/hf_gpt2.py make             writes tests/data/gpt2-nano/ and hf_gpt2_losses.json
    python tests/reference/hf_gpt2.py check HETBENCH   trains with the program HETBENCH, saves, loads the result with
                                                       transformers, compares every weight

needs numpy, torch, transformers. The batches are the suite's own (harness/text.h). AdamW decays every parameter, as ours
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
from transformers import GPT2Config, GPT2LMHeadModel

from torch_gpt import random_below

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "data" / "gpt2-nano"
DATA = HERE.parent / "data" / "kjv-200k.txt"
OUT = HERE / "hf_gpt2_losses.json"
WIDTH, STEPS, BATCH, SEQ, DATA_SEED = 16, 20, 4, 32, 5678
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def make_model():
    """Initial values larger than usual, so that attention is not uniform; biases and norms are not trivial either."""
    torch.manual_seed(11)
    config = GPT2Config(vocab_size=256, n_positions=32, n_embd=WIDTH, n_layer=2, n_head=2, initializer_range=0.2,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.add_(0.1 * torch.randn_like(p))
    return model


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
    model = make_model()
    model.save_pretrained(MODEL)
    (MODEL / "generation_config.json").unlink(missing_ok=True)
    (MODEL / "model.safetensors").chmod(0o644)
    single, _ = train(GPT2LMHeadModel.from_pretrained(MODEL), torch.float32)
    double, trained = train(GPT2LMHeadModel.from_pretrained(MODEL), torch.float64)
    sums = {n: [float(p.detach().sum()), float((p.detach() ** 2).sum())] for n, p in trained.named_parameters()
            if not n.endswith("c_attn.bias")}
    result = {"torch": torch.__version__, "batch": BATCH, "seq": SEQ, "data_seed": DATA_SEED, "lr": ADAMW["lr"],
              "rounding": max(abs(a - b) / b for a, b in zip(single, double)), "losses": double, "sums": sums}
    OUT.write_text(json.dumps(result, indent=1) + "\n")
    print(f"losses {double[0]:.6f} .. {double[-1]:.6f}; float32 is within {result['rounding']:.1e} of float64")


def check(hetbench):
    want = json.loads(OUT.read_text())
    _, trained = train(GPT2LMHeadModel.from_pretrained(MODEL), torch.float64)
    with tempfile.TemporaryDirectory() as shards, tempfile.TemporaryDirectory() as work:
        # In several files with an index, and back in one.
        GPT2LMHeadModel.from_pretrained(MODEL).save_pretrained(shards, max_shard_size="20KB")
        assert (pathlib.Path(shards) / "model.safetensors.index.json").exists()
        subprocess.run([hetbench, "train", "in_memory", "--init", shards, "--save", work, "--batch", str(BATCH), "--data",
                        DATA, "--steps", "1", "--lr", "0"], check=True, capture_output=True)
        for (_, a), (name, b) in zip(GPT2LMHeadModel.from_pretrained(work).named_parameters(),
                                     GPT2LMHeadModel.from_pretrained(MODEL).named_parameters()):
            assert torch.equal(a, b), name
        print(f"{len(list(pathlib.Path(shards).glob('*.safetensors')))} shards: read and given back bit by bit")
        # A training without a learning rate gives back the bits that it was given.
        for lr, wanted in (("0", GPT2LMHeadModel.from_pretrained(MODEL)), (str(ADAMW["lr"]), trained)):
            done = subprocess.run([hetbench, "train", "in_memory", "--init", MODEL, "--save", work, "--batch", str(BATCH),
                                   "--data", DATA, "--steps", str(STEPS), "--lr", lr, "--json"],
                                  check=True, capture_output=True)
            model, info = GPT2LMHeadModel.from_pretrained(work, output_loading_info=True)
            assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
            worst = 0.0
            for (name, a), (other, b) in zip(model.named_parameters(), wanted.named_parameters()):
                assert name == other
                distance = (a.detach().double() - b.detach().double()).abs()
                if name.endswith("c_attn.bias") and lr != "0":
                    distance[WIDTH:2 * WIDTH] = 0  # softmax does not see a key's bias: its gradient is rounding alone
                worst = max(worst, float(distance.max()))
            print(f"lr {lr}: saved weights differ from torch's by at most {worst:.1e}")
            assert worst == 0 if lr == "0" else worst < 1e-4, worst
            losses = json.loads(done.stdout)["losses"]
        worst = max(abs(a - b) / b for a, b in zip(losses, want["losses"]))
        print(f"losses: relative difference at most {worst:.1e}")
        assert worst <= 1e-5


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        check(sys.argv[2])
    else:
        sys.exit(__doc__)

#!/usr/bin/env python3
"""Losses of small GPT models trained with PyTorch: what tests/common/kernels/test_torch.c is held against.

    python tests/reference/torch_gpt.py        (numpy and torch; writes torch_gpt_losses.json beside this file)

Initial parameters and batches are the suite's own (common/base/rng.h, ht_unit_init in common/kernels/unit.h), made again
here with numpy; everything after that is plain torch. Each case is run in float32 and in float64: the distance
between the two is what rounding alone does to the losses.
"""

import hashlib
import json
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "kjv-200k.txt"
MASK = (1 << 64) - 1
STEPS = 20
ADAMW = {"lr": 3e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}

# Model and batch by case: "square" has round numbers, the others have none.
CASES = [
    {"name": "square", "layers": 4, "width": 64, "heads": 4, "ffn": 256, "vocab": 256, "max_seq": 64, "tied": True,
     "batch": 4, "seq": 64, "init_seed": 1234, "data_seed": 5678},
    {"name": "odd_untied", "layers": 3, "width": 39, "heads": 3, "ffn": 101, "vocab": 261, "max_seq": 83, "tied": False,
     "batch": 3, "seq": 71, "init_seed": 7, "data_seed": 11},
    {"name": "odd_tied", "layers": 2, "width": 50, "heads": 5, "ffn": 131, "vocab": 257, "max_seq": 130, "tied": True,
     "batch": 1, "seq": 129, "init_seed": 42, "data_seed": 43},
]


def mix64(x):
    """splitmix64's mixer; x: a uint64 array."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def random_u64(seed, index):
    with np.errstate(over="ignore"):
        return mix64(mix64(np.array(seed, np.uint64)) + np.asarray(index, np.uint64))


def random_below(seed, index, n):
    return int(random_u64(seed, index)) * n >> 64


def random_float(seed, index):
    return (random_u64(seed, index) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def unit_parts(case, unit):
    """(name, shape) of a unit's parameters, in the order in which they lie in its flat buffer."""
    c, f, v = case["width"], case["ffn"], case["vocab"]
    if unit == 0:
        return [("wte", (v, c)), ("wpe", (case["max_seq"], c))]
    if unit <= case["layers"]:
        return [
            ("ln_1.weight", (c,)), ("ln_1.bias", (c,)),
            ("attn.c_attn.weight", (3 * c, c)), ("attn.c_attn.bias", (3 * c,)),
            ("attn.c_proj.weight", (c, c)), ("attn.c_proj.bias", (c,)),
            ("ln_2.weight", (c,)), ("ln_2.bias", (c,)),
            ("mlp.c_fc.weight", (f, c)), ("mlp.c_fc.bias", (f,)),
            ("mlp.c_proj.weight", (c, f)), ("mlp.c_proj.bias", (c,)),
        ]
    head = [("ln_f.weight", (c,)), ("ln_f.bias", (c,))]
    return head if case["tied"] else head + [("lm_head.weight", (v, c))]


def init_unit(case, unit):
    """The unit's parameters as a dict of float32 arrays."""
    stream = int(random_u64(case["init_seed"], unit))
    params, offset = {}, 0
    for name, shape in unit_parts(case, unit):
        n = math.prod(shape)
        if len(shape) == 1:
            value = np.full(n, 1.0 if name.endswith("weight") else 0.0, np.float32)
        else:
            a = 0.02 * math.sqrt(3.0)
            if name.endswith("c_proj.weight"):
                a /= math.sqrt(2.0 * case["layers"])
            u = random_float(stream, np.arange(offset, offset + n, dtype=np.uint64))
            value = np.float32(a) * (np.float32(2) * u - np.float32(1))
        params[name] = value.reshape(shape)
        offset += n
    return params


def batch_of(case, data, step):
    """Token ids and targets, (B,T) each: sequence b of a step is bytes from a random offset, targets are one later."""
    b, t = case["batch"], case["seq"]
    starts = [random_below(case["data_seed"], step * b + i, len(data) - t - 1) for i in range(b)]
    x = np.stack([data[s : s + t] for s in starts])
    y = np.stack([data[s + 1 : s + 1 + t] for s in starts])
    return torch.from_numpy(x.astype(np.int64)), torch.from_numpy(y.astype(np.int64))


def block(case, p, x):
    b, t, c = x.shape
    h = case["heads"]
    n = F.layer_norm(x, (c,), p["ln_1.weight"], p["ln_1.bias"], 1e-5)
    q, k, v = F.linear(n, p["attn.c_attn.weight"], p["attn.c_attn.bias"]).split(c, dim=2)
    q, k, v = (z.view(b, t, h, c // h).transpose(1, 2) for z in (q, k, v))
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // h)
    future = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
    probs = scores.masked_fill(future, float("-inf")).softmax(-1)
    a = (probs @ v).transpose(1, 2).reshape(b, t, c)
    x = x + F.linear(a, p["attn.c_proj.weight"], p["attn.c_proj.bias"])
    n = F.layer_norm(x, (c,), p["ln_2.weight"], p["ln_2.bias"], 1e-5)
    g = F.gelu(F.linear(n, p["mlp.c_fc.weight"], p["mlp.c_fc.bias"]), approximate="tanh")
    return x + F.linear(g, p["mlp.c_proj.weight"], p["mlp.c_proj.bias"])


def loss_of(case, units, tokens, targets):
    t = tokens.shape[1]
    x = units[0]["wte"][tokens] + units[0]["wpe"][:t]
    for p in units[1:-1]:
        x = block(case, p, x)
    head = units[-1]
    n = F.layer_norm(x, (case["width"],), head["ln_f.weight"], head["ln_f.bias"], 1e-5)
    logits = F.linear(n, units[0]["wte"] if case["tied"] else head["lm_head.weight"])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # where the model is in 16 bit
    return F.cross_entropy(logits.view(-1, case["vocab"]), targets.view(-1))


def train(case, data, dtype):
    units = [
        {k: torch.from_numpy(v).to(dtype).requires_grad_() for k, v in init_unit(case, u).items()}
        for u in range(case["layers"] + 2)
    ]
    optimizer = torch.optim.AdamW(
        [p for unit in units for p in unit.values()], lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]),
        eps=ADAMW["eps"], weight_decay=ADAMW["weight_decay"], foreach=False,
    )
    losses = []
    for step in range(STEPS):
        loss = loss_of(case, units, *batch_of(case, data, step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    data = np.frombuffer(DATA.read_bytes(), np.uint8)
    result = {
        "torch": torch.__version__,
        "data": f"tests/data/{DATA.name}",
        "data_bytes": len(data),
        "data_sha256": hashlib.sha256(data.tobytes()).hexdigest(),
        "steps": STEPS,
        "adamw": ADAMW,
        "cases": [],
    }
    for case in CASES:
        losses, exact = train(case, data, torch.float32), train(case, data, torch.float64)
        apart = max(abs(a - b) / b for a, b in zip(losses, exact))
        print(f"{case['name']}: {losses[0]:.6f} -> {losses[-1]:.6f}, float32 from float64 by {apart:.1e}")
        result["cases"].append(case | {"losses": losses, "losses_f64": exact})
    (HERE / "torch_gpt_losses.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

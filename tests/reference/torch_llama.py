#!/usr/bin/env python3
"""Losses of small LLaMA models trained with PyTorch: what tests/common/kernels/test_torch.c is held against.

    python tests/reference/torch_llama.py      (numpy, torch, transformers; writes torch_llama_losses.json beside this)

As torch_gpt.py, whose initial values and batches are used: each case is run in float32 and float64 by the plain torch
below, which reads as the paper, and in float32 by transformers' own LlamaForCausalLM from the same weights.
"""

import hashlib
import json
import math

import numpy as np
import torch
import torch.nn.functional as F
import transformers

from torch_gpt import ADAMW, DATA, HERE, STEPS, batch_of, random_float, random_u64

# As many heads of keys as queries, half, a quarter; "square" has round numbers, the others have none.
CASES = [
    {"name": "square", "arch": "llama", "layers": 4, "width": 64, "heads": 4, "kv_heads": 2, "ffn": 176, "vocab": 256,
     "max_seq": 64, "tied": False, "rope_theta": 10000.0, "norm_eps": 1e-5, "batch": 4, "seq": 64, "init_seed": 1234,
     "data_seed": 5678},
    {"name": "own_keys", "arch": "llama", "layers": 3, "width": 42, "heads": 3, "kv_heads": 3, "ffn": 101, "vocab": 261,
     "max_seq": 83, "tied": False, "rope_theta": 500000.0, "norm_eps": 1e-6, "batch": 3, "seq": 71, "init_seed": 7,
     "data_seed": 11},
    {"name": "one_key_tied", "arch": "llama", "layers": 2, "width": 56, "heads": 4, "kv_heads": 1, "ffn": 131,
     "vocab": 257, "max_seq": 130, "tied": True, "rope_theta": 10000.0, "norm_eps": 1e-5, "batch": 1, "seq": 129,
     "init_seed": 42, "data_seed": 43},
]


def unit_parts(case, unit):
    """(name, shape) of a unit's parameters, in the order in which they lie in its flat buffer."""
    c, f, v = case["width"], case["ffn"], case["vocab"]
    k = c // case["heads"] * case["kv_heads"]
    if unit == 0:
        return [("embed_tokens.weight", (v, c))]
    if unit <= case["layers"]:
        return [
            ("input_layernorm.weight", (c,)),
            ("self_attn.q_proj.weight", (c, c)), ("self_attn.k_proj.weight", (k, c)),
            ("self_attn.v_proj.weight", (k, c)), ("self_attn.o_proj.weight", (c, c)),
            ("post_attention_layernorm.weight", (c,)),
            ("mlp.gate_proj.weight", (f, c)), ("mlp.up_proj.weight", (f, c)), ("mlp.down_proj.weight", (c, f)),
        ]
    head = [("norm.weight", (c,))]
    return head if case["tied"] else head + [("lm_head.weight", (v, c))]


def init_unit(case, unit):
    """The unit's parameters as a dict of float32 arrays: norms 1, everything else uniform of deviation 0.02."""
    stream = int(random_u64(case["init_seed"], unit))
    params, offset = {}, 0
    for name, shape in unit_parts(case, unit):
        n = math.prod(shape)
        if len(shape) == 1:
            value = np.ones(n, np.float32)
        else:
            u = random_float(stream, np.arange(offset, offset + n, dtype=np.uint64))
            value = np.float32(0.02 * math.sqrt(3.0)) * (np.float32(2) * u - np.float32(1))
        params[name] = value.reshape(shape)
        offset += n
    return params


def rms_norm(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rotate(case, x):
    """x: (B, heads, T, D). Element d and d + D/2 are turned by t theta^(-2d/D)."""
    t, d = x.shape[-2:]
    frequency = case["rope_theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.arange(t, dtype=torch.float64)[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    low, high = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def block(case, p, x):
    b, t, c = x.shape
    h, hkv = case["heads"], case["kv_heads"]
    n = rms_norm(x, p["input_layernorm.weight"], case["norm_eps"])
    q, k, v = (
        F.linear(n, p[f"self_attn.{z}_proj.weight"]).view(b, t, -1, c // h).transpose(1, 2) for z in ("q", "k", "v")
    )
    q, k = rotate(case, q), rotate(case, k)
    k, v = (z.repeat_interleave(h // hkv, dim=1) for z in (k, v))
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // h)
    future = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
    a = (scores.masked_fill(future, float("-inf")).softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
    x = x + F.linear(a, p["self_attn.o_proj.weight"])
    n = rms_norm(x, p["post_attention_layernorm.weight"], case["norm_eps"])
    gated = F.silu(F.linear(n, p["mlp.gate_proj.weight"])) * F.linear(n, p["mlp.up_proj.weight"])
    return x + F.linear(gated, p["mlp.down_proj.weight"])


def loss_of(case, units, tokens, targets):
    x = units[0]["embed_tokens.weight"][tokens]
    for p in units[1:-1]:
        x = block(case, p, x)
    n = rms_norm(x, units[-1]["norm.weight"], case["norm_eps"])
    logits = F.linear(n, units[0]["embed_tokens.weight"] if case["tied"] else units[-1]["lm_head.weight"])
    return F.cross_entropy(logits.view(-1, case["vocab"]), targets.view(-1))


def train(case, data, parameters, loss):
    """STEPS losses; loss(tokens, targets) depends on the parameters."""
    optimizer = torch.optim.AdamW(
        parameters, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"],
        weight_decay=ADAMW["weight_decay"], foreach=False,
    )
    losses = []
    for step in range(STEPS):
        value = loss(*batch_of(case, data, step))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def train_plain(case, data, dtype):
    units = [
        {k: torch.from_numpy(v).to(dtype).requires_grad_() for k, v in init_unit(case, u).items()}
        for u in range(case["layers"] + 2)
    ]
    return train(case, data, [p for u in units for p in u.values()], lambda x, y: loss_of(case, units, x, y))


def full_name(case, unit, name):
    """The name in a checkpoint of transformers: the units' names are relative to these."""
    if 1 <= unit <= case["layers"]:
        return f"model.layers.{unit - 1}.{name}"
    return name if name.startswith("lm_head") else f"model.{name}"


def train_transformers(case, data):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=case["width"], num_hidden_layers=case["layers"], num_attention_heads=case["heads"],
        num_key_value_heads=case["kv_heads"], intermediate_size=case["ffn"], vocab_size=case["vocab"],
        max_position_embeddings=case["max_seq"], tie_word_embeddings=case["tied"], rms_norm_eps=case["norm_eps"],
        rope_parameters={"rope_type": "default", "rope_theta": case["rope_theta"]}, attn_implementation="eager",
        bos_token_id=None, eos_token_id=None, use_cache=False,
    ))
    state = {
        full_name(case, u, k): torch.from_numpy(v) for u in range(case["layers"] + 2) for k, v in init_unit(case, u).items()
    }
    missing = set(model.state_dict()) ^ set(state)
    assert missing <= ({"lm_head.weight"} if case["tied"] else set()), missing
    model.load_state_dict(state, strict=not case["tied"])
    model.train()
    vocab = case["vocab"]
    return train(case, data, list(model.parameters()),
                 lambda x, y: F.cross_entropy(model(x).logits.view(-1, vocab), y.view(-1)))


def apart(a, b):
    return max(abs(x - y) / y for x, y in zip(a, b))


def main():
    torch.set_num_threads(1)
    data = np.frombuffer(DATA.read_bytes(), np.uint8)
    result = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "data": f"tests/data/{DATA.name}",
        "data_bytes": len(data),
        "data_sha256": hashlib.sha256(data.tobytes()).hexdigest(),
        "steps": STEPS,
        "adamw": ADAMW,
        "cases": [],
    }
    for case in CASES:
        losses, exact = train_plain(case, data, torch.float32), train_plain(case, data, torch.float64)
        theirs = train_transformers(case, data)
        print(f"{case['name']}: {losses[0]:.6f} -> {losses[-1]:.6f}; from float64: float32 {apart(losses, exact):.1e}, "
              f"transformers {apart(theirs, exact):.1e}")
        result["cases"].append(case | {"losses": losses, "losses_f64": exact, "losses_transformers": theirs})
    (HERE / "torch_llama_losses.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The training step of a GPT or LLaMA in PyTorch on a GPU, as it is usually written for speed.

    python bench/bench_gpu_step_torch.py bench/gpt2-1.5b.yaml --batch 8 --seq 1024 [--steps 10] [--modes eager,compiled]

BF16 through autocast over FP32 parameters, scaled_dot_product_attention, AdamW(fused=True). First eager, then with
torch.compile. Prints a line of JSON for each of the two when it has been measured, so that a compilation that fails or is
cut off leaves the eager step: the median of the steps after the warm-up, their spread, the memory that PyTorch allocated
at most, and the seconds that the first step took, compilation included. The model file is read as far as hetbench's own
are simple: `key: value` lines.

What is compiled is one block and the head with its loss, not the model: its 48 blocks have the same code and take their
parameters as inputs, so one graph serves all of them. Unrolled they take minutes to compile.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

WARM_UP = 4


def load(path):
    model = {"tied": None, "rope_theta": 10000.0, "norm_eps": 1e-5}
    for line in open(path, encoding="utf-8"):
        key, _, value = line.split("#")[0].partition(":")
        if value.strip():
            model[key.strip()] = value.strip()
    for key in ("layers", "width", "heads", "vocab", "max_seq", "ffn", "kv_heads"):
        if key in model:
            model[key] = int(model[key])
    model.setdefault("ffn", 4 * model["width"])
    model.setdefault("kv_heads", model["heads"])
    model["tied"] = model["arch"] == "gpt" if model["tied"] is None else model["tied"] == "true"
    return model


def attention(q, k, v, m):
    b, t, _ = q.shape
    size = m["width"] // m["heads"]
    q = q.view(b, t, m["heads"], size).transpose(1, 2)
    k, v = (z.view(b, t, m["kv_heads"], size).transpose(1, 2) for z in (k, v))
    return q, k, v


class GptBlock(nn.Module):
    def __init__(self, m):
        super().__init__()
        c = m["width"]
        self.m = m
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.fc, self.out = nn.Linear(c, m["ffn"]), nn.Linear(m["ffn"], c)

    def forward(self, x, rotation):
        q, k, v = attention(*self.qkv(self.ln_1(x)).split(self.m["width"], dim=2), self.m)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(x.shape))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


def turn(x, rotation):
    cos, sin = rotation
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, m):
        super().__init__()
        c, kv = m["width"], m["width"] // m["heads"] * m["kv_heads"]
        self.m, self.kv = m, kv
        self.norm_1, self.norm_2 = (nn.RMSNorm(c, eps=float(m["norm_eps"])) for _ in range(2))
        self.qkv, self.proj = nn.Linear(c, c + 2 * kv, bias=False), nn.Linear(c, c, bias=False)
        self.up, self.out = nn.Linear(c, 2 * m["ffn"], bias=False), nn.Linear(m["ffn"], c, bias=False)

    def forward(self, x, rotation):
        c = self.m["width"]
        q, k, v = attention(*self.qkv(self.norm_1(x)).split([c, self.kv, self.kv], dim=2), self.m)
        a = F.scaled_dot_product_attention(turn(q, rotation), turn(k, rotation), v, is_causal=True,
                                           enable_gqa=self.m["kv_heads"] != self.m["heads"])
        x = x + self.proj(a.transpose(1, 2).reshape(x.shape))
        gate, up = self.up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.out(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, m):
        super().__init__()
        gpt = m["arch"] == "gpt"
        self.m = m
        self.wte = nn.Embedding(m["vocab"], m["width"])
        self.wpe = nn.Embedding(m["max_seq"], m["width"]) if gpt else None
        self.blocks = nn.ModuleList((GptBlock if gpt else LlamaBlock)(m) for _ in range(m["layers"]))
        self.norm = nn.LayerNorm(m["width"]) if gpt else nn.RMSNorm(m["width"], eps=float(m["norm_eps"]))
        self.head = nn.Linear(m["width"], m["vocab"], bias=False)
        if m["tied"]:
            self.head.weight = self.wte.weight

    def forward(self, tokens, targets):
        x, t = self.wte(tokens), tokens.shape[1]
        rotation = None
        if self.wpe is not None:
            x = x + self.wpe.weight[:t]
        else:
            size = self.m["width"] // self.m["heads"]
            rate = float(self.m["rope_theta"]) ** (-torch.arange(0, size, 2, device=x.device) / size)
            angle = torch.arange(t, device=x.device)[:, None] * rate
            rotation = angle.cos(), angle.sin()
        for block in self.blocks:
            x = block(x, rotation)
        return self.loss(x, targets)

    def loss(self, x, targets):
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())

    def compile_parts(self):
        """Every block has the same forward function, and torch.compile keeps its graph with the function."""
        for block in self.blocks:
            block.compile()
        self.loss = torch.compile(self.loss)


def measure(model, optimizer, ids, steps, device):
    """Seconds of the first step, seconds of the measured ones, and the last loss."""
    times, gpu = [], device == "cuda"
    for _ in range(WARM_UP + steps):
        if gpu:
            torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.autocast(device, torch.bfloat16):
            loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return times[0], times[WARM_UP:], loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--modes", default="eager,compiled", help="in this order [eager,compiled]")
    parser.add_argument("--device", default="cuda")
    o = parser.parse_args()
    m = load(o.model)
    seq = o.seq or m["max_seq"]
    gpu = o.device == "cuda"
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with torch.device(o.device):  # initial values are drawn there: on the host 1.5 billion take half a minute
        model = Model(m)
        ids = torch.randint(0, min(256, m["vocab"]), (o.batch, seq + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    for mode in o.modes.split(","):
        if mode == "compiled":
            model.compile_parts()
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        first, times, loss = measure(model, optimizer, ids, o.steps, o.device)
        median = statistics.median(times)
        print(json.dumps({"torch": torch.__version__, "mode": mode, "model": m["name"], "batch": o.batch, "seq": seq,
                          "n": len(times), "parameters": sum(p.numel() for p in model.parameters()),
                          "first_step_s": first, "median_step_s": median,
                          "spread": (max(times) - min(times)) / median,
                          "peak_bytes": torch.cuda.max_memory_allocated() if gpu else None, "last_loss": loss}),
              flush=True)


if __name__ == "__main__":
    main()

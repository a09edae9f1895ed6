#!/usr/bin/env python3
"""The training step of bench_train_step.c in PyTorch: same model, parameters, batch and statistics.

    python bench/bench_train_step_torch.py [threads] [f32|f16|bf16]

Prints the losses of the first two steps (stored in bench_train_step.c) and the median of 9 steps with their spread, once
with attention from plain operations and once with scaled_dot_product_attention. The optimizer is AdamW(fused=True). In
16 bit it steps float32 masters, which are then rounded to the parameters; the loss is computed from the logits in float32.
"""

import pathlib
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "reference"))
import torch_gpt  # noqa: E402

B, T, WARM_UP, REPEATS, TOKEN_SEED = 4, 256, 2, 9, 2
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
SCALE = {torch.float32: 1, torch.float16: 1024, torch.bfloat16: 1}
CASE = {"layers": 4, "width": 256, "heads": 4, "ffn": 1024, "vocab": 8192, "max_seq": T, "tied": True,
        "batch": B, "seq": T, "init_seed": 1}


def fused_block(case, p, x):
    """torch_gpt.block with the library's attention."""
    b, t, c = x.shape
    h = case["heads"]
    n = F.layer_norm(x, (c,), p["ln_1.weight"], p["ln_1.bias"], 1e-5)
    q, k, v = F.linear(n, p["attn.c_attn.weight"], p["attn.c_attn.bias"]).split(c, dim=2)
    q, k, v = (z.view(b, t, h, c // h).transpose(1, 2) for z in (q, k, v))
    a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
    x = x + F.linear(a, p["attn.c_proj.weight"], p["attn.c_proj.bias"])
    n = F.layer_norm(x, (c,), p["ln_2.weight"], p["ln_2.bias"], 1e-5)
    g = F.gelu(F.linear(n, p["mlp.c_fc.weight"], p["mlp.c_fc.bias"]), approximate="tanh")
    return x + F.linear(g, p["mlp.c_proj.weight"], p["mlp.c_proj.bias"])


def measure(label, threads, dtype):
    masters = [torch.from_numpy(v) for u in range(CASE["layers"] + 2) for v in torch_gpt.init_unit(CASE, u).values()]
    units = [
        {k: torch.from_numpy(v).to(dtype).requires_grad_() for k, v in torch_gpt.init_unit(CASE, u).items()}
        for u in range(CASE["layers"] + 2)
    ]
    params = [p for unit in units for p in unit.values()]
    stepped = params if dtype == torch.float32 else masters
    n = B * T
    draw = [torch_gpt.random_below(TOKEN_SEED, i, CASE["vocab"]) for i in range(2 * n)]
    tokens, targets = (torch.from_numpy(np.array(z, np.int64).reshape(B, T)) for z in (draw[:n], draw[n:]))
    optimizer = torch.optim.AdamW(stepped, lr=3e-4, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1, fused=True)

    def step():
        loss = torch_gpt.loss_of(CASE, units, tokens, targets)
        for p in params:
            p.grad = None
        (loss * SCALE[dtype]).backward()
        if stepped is masters:
            for w, p in zip(masters, params):
                w.grad = p.grad.float() / SCALE[dtype]
        optimizer.step()
        if stepped is masters:
            with torch.no_grad():
                torch._foreach_copy_(params, masters)
        return loss.item()

    print(label, "losses:", *(f"{step():.9f}" for _ in range(WARM_UP)))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    times.sort()
    median = times[REPEATS // 2]
    print(f"{label}, {str(dtype)[6:]}: torch {torch.__version__}, {threads} threads: median of {REPEATS} steps {median * 1e3:.2f} ms "
          f"({times[0] * 1e3:.2f} to {times[-1] * 1e3:.2f}), {n / median:.0f} tokens/s")


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    dtype = DTYPES[sys.argv[2] if len(sys.argv) > 2 else "f32"]
    torch.set_num_threads(threads)
    measure("plain attention", threads, dtype)
    torch_gpt.block = fused_block
    measure("library attention", threads, dtype)


if __name__ == "__main__":
    main()

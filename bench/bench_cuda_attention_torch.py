"""PyTorch's attention (FlashAttention) for the shapes of bench_cuda_kernels: the reference. Needs a GPU and PyTorch.

    python3 bench/bench_cuda_attention_torch.py [--json]

--json prints an object a line, with the names and shapes of `bench_cuda_kernels attention --json`.
"""
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = [(8, 1024, 32, 32, 64), (4, 4096, 32, 32, 64), (8, 1024, 16, 16, 128), (4, 4096, 16, 16, 128),
          (1, 16384, 16, 16, 128), (4, 4096, 32, 8, 128), (4, 2048, 20, 20, 80), (4, 2048, 16, 16, 96)]


def median_s(run):
    times = []
    for i in range(23):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times)


print(torch.cuda.get_device_name(), "PyTorch", torch.__version__, file=sys.stderr)
for batch, seq, heads, kv_heads, size in SHAPES:
    q = torch.randn(batch, heads, seq, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.randn(batch, kv_heads, seq, size, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in "kv")
    flops = 2 * batch * heads * seq * seq * size
    shape = f"B {batch} T {seq} H {heads} KV {kv_heads} D {size}"
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        def attend():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != heads)
        out = attend()
        grad = torch.randn_like(out)
        forward = flops / median_s(attend) * 1e-12
        backward = 2.5 * flops / median_s(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)) * 1e-12
    for name, rate in (("forward", forward), ("backward", backward)):
        if "--json" in sys.argv:
            print(json.dumps({"kind": "attention", "name": f"attention {name}", "type": "bf16", "shape": shape,
                              "unit": "TFLOP/s", "rate": rate}), flush=True)
        else:
            print(f"bf16 {shape} {name}: {rate:.1f} TFLOP/s", flush=True)

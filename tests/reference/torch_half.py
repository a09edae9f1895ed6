#!/usr/bin/env python3
"""Logits and losses of small GPT and LLaMA models in 16 bit: what tests/common/kernels/test_torch_half.c is held against.

    python tests/reference/torch_half.py       (numpy, torch, transformers; writes torch_half.json beside this file)

The models of torch_gpt.py and torch_llama.py as transformers' GPT2LMHeadModel and LlamaForCausalLM, with parameters,
activations and gradients in float32, float16 and bfloat16. In 16 bit torch's AdamW steps float32 master copies, which
are rounded to the model's parameters before every step; the loss is computed from the logits in float32. Stored are 20
losses and the first logits of one token, so that 16 bit can be compared with float32 on both sides.
"""

import hashlib
import json

import numpy as np
import torch
import torch.nn.functional as F
import transformers

import torch_gpt
import torch_llama
from torch_gpt import ADAMW, DATA, HERE, STEPS, batch_of

LOSS_SCALE = {"f32": 1.0, "f16": 1024.0, "bf16": 1.0}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def gpt2(case):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=case["width"], n_layer=case["layers"], n_head=case["heads"], n_inner=case["ffn"],
        vocab_size=case["vocab"], n_positions=case["max_seq"], tie_word_embeddings=case["tied"], resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0, attn_implementation="eager", bos_token_id=None, eos_token_id=None, use_cache=False,
    ))
    state = {}
    for u in range(case["layers"] + 2):
        for name, value in torch_gpt.init_unit(case, u).items():
            if 1 <= u <= case["layers"]:
                value = value.T.copy()  # transformers' Conv1D keeps (in, out)
                name = f"transformer.h.{u - 1}.{name}"
            elif name in ("wte", "wpe"):
                name = f"transformer.{name}.weight"
            elif name != "lm_head.weight":
                name = f"transformer.{name}"
            state[name] = torch.from_numpy(value)
    return model, state


def llama(case):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=case["width"], num_hidden_layers=case["layers"], num_attention_heads=case["heads"],
        num_key_value_heads=case["kv_heads"], intermediate_size=case["ffn"], vocab_size=case["vocab"],
        max_position_embeddings=case["max_seq"], tie_word_embeddings=case["tied"], rms_norm_eps=case["norm_eps"],
        rope_parameters={"rope_type": "default", "rope_theta": case["rope_theta"]}, attn_implementation="eager",
        bos_token_id=None, eos_token_id=None, use_cache=False,
    ))
    state = {
        torch_llama.full_name(case, u, name): torch.from_numpy(value)
        for u in range(case["layers"] + 2) for name, value in torch_llama.init_unit(case, u).items()
    }
    return model, state


def train(case, data, dtype):
    """20 losses, and the first logits of the first sequence's last token."""
    model, state = llama(case) if case.get("arch") == "llama" else gpt2(case)
    missing = set(model.state_dict()) ^ set(state)
    assert missing <= ({"lm_head.weight"} if case["tied"] else set()), missing
    model.load_state_dict(state, strict=not case["tied"])
    model.train()
    masters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    model = model.to(DTYPES[dtype])
    optimizer = torch.optim.AdamW(masters, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"],
                                  weight_decay=ADAMW["weight_decay"], foreach=False)
    losses, first = [], None
    for step in range(STEPS):
        tokens, targets = batch_of(case, data, step)
        with torch.no_grad():
            for p, w in zip(model.parameters(), masters):
                p.copy_(w)
        logits = model(tokens).logits.float()
        first = logits[0, -1].tolist() if first is None else first
        loss = F.cross_entropy(logits.view(-1, case["vocab"]), targets.view(-1))
        model.zero_grad()
        (loss * LOSS_SCALE[dtype]).backward()
        for p, w in zip(model.parameters(), masters):
            assert p.grad.isfinite().all()
            w.grad = p.grad.float() / LOSS_SCALE[dtype]
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "logits": [float(f"{x:.7g}") for x in first]}


def apart(a, b):
    return max(abs(x - y) / y for x, y in zip(a, b))


def norm_apart(a, b):
    return float(np.linalg.norm(np.subtract(a, b)) / np.linalg.norm(b))


def main():
    torch.set_num_threads(1)
    data = np.frombuffer(DATA.read_bytes(), np.uint8)
    result = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "data": f"tests/data/{DATA.name}",
        "data_bytes": len(data),
        "data_sha256": hashlib.sha256(data.tobytes()).hexdigest(),
        "adamw": ADAMW,
        "loss_scale": LOSS_SCALE,
        "cases": [],
    }
    for case in torch_gpt.CASES + torch_llama.CASES:
        runs = {dtype: train(case, data, dtype) for dtype in DTYPES}
        for dtype in ("f16", "bf16"):
            print(f"{case.get('arch', 'gpt')} {case['name']} {dtype}: from float32 losses "
                  f"{apart(runs[dtype]['losses'], runs['f32']['losses']):.1e}, logits "
                  f"{norm_apart(runs[dtype]['logits'], runs['f32']['logits']):.1e}")
        result["cases"].append(case | runs)
    (HERE / "torch_half.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

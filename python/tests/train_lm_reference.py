#!/usr/bin/env python3
"""Prints what PyTorch makes of the first 20 steps of tests/train/char_lm_test.cpp, one loss a line:

    TENON_CHAR_LM_WEIGHTS=FILE build/release/tests/train/test_train "train: a character model*"
    python3 python/tests/train_lm_reference.py FILE > tests/train/data/char_lm_losses.txt

Needs torch and safetensors.
"""
import sys

import torch
from safetensors.torch import load_file
from torch.nn import functional as F

BATCH, CONTEXT, VOCABULARY, LAYERS, HEADS, STEPS = 4, 32, 96, 2, 4, 20


def batch(step):
    """The same characters as ids_of() in the test."""
    step %= 3  # seen again and again, so that the loss falls
    rows = [[((17 * step + 31 * b + t) * (t + 3 * b + 1) + t * t // 3) % VOCABULARY for t in range(CONTEXT + 1)]
            for b in range(BATCH)]
    return torch.tensor(rows)


def forward(p, ids):
    x = p["tokens.weight"][ids] + p["positions.weight"][: ids.shape[1]]
    width = x.shape[-1]
    for i in range(LAYERS):
        b = {name.removeprefix(f"blocks.{i}."): value for name, value in p.items() if name.startswith(f"blocks.{i}.")}
        y = F.layer_norm(x, (width,), b["before_attention.weight"], b["before_attention.bias"])
        q, k, v = F.linear(y, b["qkv.weight"], b["qkv.bias"]).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.linear(seen, b["out.weight"], b["out.bias"])
        y = F.layer_norm(x, (width,), b["before_mlp.weight"], b["before_mlp.bias"])
        x = x + F.linear(F.gelu(F.linear(y, b["up.weight"], b["up.bias"])), b["down.weight"], b["down.bias"])
    x = F.layer_norm(x, (width,), p["norm.weight"], p["norm.bias"])
    return F.linear(x, p["head.weight"], p["head.bias"])


def main(path):
    p = {name: value.requires_grad_() for name, value in load_file(path).items()}
    optimizer = torch.optim.AdamW(p.values(), lr=3e-3, weight_decay=0.01)
    for step in range(STEPS):
        ids = batch(step)
        loss = F.cross_entropy(forward(p, ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        print(f"{loss.item():.7f}")


if __name__ == "__main__":
    main(sys.argv[1])

#!/usr/bin/env python3
"""Writes what PyTorch's optimisers do to a small network, for tests/train/optimizers_test.cpp:

    python3 python/tests/train_reference.py tests/train/data/optimizers.safetensors

A perceptron (tanh, cross-entropy) takes STEPS steps on the same batch, in f64. Per optimiser NAME the
file has NAME.losses [STEPS] before each step, and the parameters afterwards. Lion is not in PyTorch; its
update is written out here after the paper. Needs torch, numpy and safetensors.
"""
import sys

import numpy as np
import torch
from safetensors.numpy import save_file

STEPS, RATE = 12, 0.05


def lion(parameters, state, rate=RATE, beta1=0.9, beta2=0.99, decay=0.1):
    with torch.no_grad():
        for name, p in parameters.items():
            m, g = state.setdefault(name, torch.zeros_like(p)), p.grad
            p.mul_(1 - rate * decay).sub_(rate * torch.sign(beta1 * m + (1 - beta1) * g))
            state[name] = beta2 * m + (1 - beta2) * g


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=RATE),
    "momentum": lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=RATE, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=0.1),
    "lion": None,
    "clipped": lambda p: torch.optim.SGD(p, lr=RATE),
}


def main(path):
    rng = np.random.default_rng(7)
    start = {"up.weight": rng.normal(0, 0.5, (6, 5)), "up.bias": rng.normal(0, 0.1, 6),
             "down.weight": rng.normal(0, 0.5, (3, 6)), "down.bias": rng.normal(0, 0.1, 3)}
    x, labels = rng.normal(size=(8, 5)), rng.integers(0, 3, 8)
    arrays = {f"start.{name}": value for name, value in start.items()} | {"x": x, "labels": labels}
    for optimizer, make in OPTIMIZERS.items():
        p = {name: torch.tensor(value, requires_grad=True) for name, value in start.items()}
        torch_optimizer = make(list(p.values())) if make else None
        losses, state = [], {}
        for _ in range(STEPS):
            hidden = torch.tanh(torch.tensor(x) @ p["up.weight"].T + p["up.bias"])
            loss = torch.nn.functional.cross_entropy(hidden @ p["down.weight"].T + p["down.bias"],
                                                     torch.tensor(labels))
            for value in p.values():
                value.grad = None
            loss.backward()
            losses.append(loss.item())
            if optimizer == "clipped":
                torch.nn.utils.clip_grad_norm_(p.values(), 0.1)
            if torch_optimizer:
                torch_optimizer.step()
            else:
                lion(p, state)
        arrays[f"{optimizer}.losses"] = np.array(losses)
        arrays |= {f"{optimizer}.{name}": value.detach().numpy() for name, value in p.items()}
    save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, path)


if __name__ == "__main__":
    main(sys.argv[1])

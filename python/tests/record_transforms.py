#!/usr/bin/env python3
"""Writes what torch.func makes of two functions, for python/tests/package/test_vmap.py:

    python3 python/tests/record_transforms.py tests/train/data/transforms.safetensors

scores(w, b, x) = softmax(tanh(w x + b)), and loss(w, b, x) = log(sum exp(w x + b)) + sum w^3. Products with the Jacobian
(jvp, vjp), Jacobians by each argument, the Hessian of the loss by w, its product, and gradients of each example of `xs`.
Needs torch and safetensors.
"""
import sys

import torch
from safetensors.torch import save_file
from torch import func


def scores(w, b, x):
    return torch.softmax(torch.tanh(w @ x + b), -1)


def loss(w, b, x):
    return torch.logsumexp(w @ x + b, -1) + (w**3).sum()


def main(path):
    torch.manual_seed(4)
    torch.set_default_dtype(torch.float64)
    w, b, x = torch.randn(4, 3), torch.randn(4), torch.randn(3)
    tangents = torch.randn(4, 3), torch.randn(4), torch.randn(3)
    xs, u = torch.randn(5, 3), torch.randn(4)
    made = {"w": w, "b": b, "x": x, "xs": xs, "u": u}
    made |= {f"tangent.{name}": one for name, one in zip("wbx", tangents)}
    _, made["jvp"] = func.jvp(scores, (w, b, x), tangents)
    pulled = func.vjp(scores, w, b, x)[1](u)
    made |= {f"vjp.{name}": one for name, one in zip("wbx", pulled)}
    made |= {f"jacobian.{name}": one for name, one in zip("wbx", func.jacrev(scores, argnums=(0, 1, 2))(w, b, x))}
    made["hessian"] = func.hessian(loss)(w, b, x)
    made["hvp"] = func.jvp(func.grad(loss), (w, b, x), tangents)[1]
    made["gradients"] = func.vmap(func.grad(loss), in_dims=(None, None, 0))(w, b, xs)
    made["jacobians"] = func.vmap(func.jacrev(scores, argnums=2), in_dims=(None, None, 0))(w, b, xs)
    save_file({name: one.contiguous() for name, one in made.items()}, path)


if __name__ == "__main__":
    main(sys.argv[1])

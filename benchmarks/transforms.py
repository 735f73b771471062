#!/usr/bin/env python3
"""Times functions of functions (tenon.vmap, jacobian, hessian) and CTC beside torch.func and PyTorch, one thread:

    PYTHONPATH=build/release/python taskset -c 0 python3 benchmarks/transforms.py [--rounds 3]

The shortest call of each in interleaved rounds, in ms, from arrays to arrays. Needs torch.
"""
import argparse
import time

import numpy as np
import tenon
import torch
from tenon import ops
from torch import func

F = torch.nn.functional


def shortest(call, repeat=30):
    call()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def cases(rng):
    """(name, Tenon's call, PyTorch's)"""
    def real(*shape):
        return (rng.normal(size=shape) / np.sqrt(shape[-1])).astype("f4")

    tensor = torch.tensor
    up, down, x, labels = real(256, 128), real(10, 256), real(64, 128), rng.integers(0, 10, 64)
    ours = tenon.vmap(tenon.grad(lambda p, x, y: ops.cross_entropy(ops.linear(ops.linear(x, p[0]).tanh(), p[1]), y)),
                      (None, 0, 0))
    theirs = func.vmap(func.grad(lambda p, x, y: F.cross_entropy(F.linear(F.linear(x, p[0]).tanh(), p[1]), y)), (None, 0, 0))
    given = [tensor(up), tensor(down)], tensor(x), tensor(labels)
    yield "gradients of 64 examples, perceptron 128-256-10", lambda: ours([up, down], x, labels), lambda: theirs(*given)

    filters, images = (real(16, 3, 3, 3), real(32, 16, 3, 3)), real(32, 3, 32, 32)
    of_images = tenon.vmap(tenon.grad(lambda p, x: (ops.relu(ops.conv2d(ops.relu(ops.conv2d(
        x.reshape(1, 3, 32, 32), p[0])), p[1])) ** 2.0).mean()), (None, 0))
    of_tensors = func.vmap(func.grad(lambda p, x: (F.relu(F.conv2d(F.relu(F.conv2d(
        x.reshape(1, 3, 32, 32), p[0])), p[1])) ** 2.0).mean()), (None, 0))
    wanted = tuple(map(tensor, filters)), tensor(images)
    yield "gradients of 32 examples, two convolutions", lambda: of_images(filters, images), lambda: of_tensors(*wanted)

    a, v = real(64, 64), real(64)
    b, u = tensor(a), tensor(v)
    hessian = tenon.hessian(lambda x: ops.logsumexp((a @ x).tanh()))
    yield ("Hessian, 64 numbers", lambda: hessian(v),
           lambda: func.hessian(lambda x: torch.logsumexp((b @ x).tanh(), -1))(u))
    rows, columns = (one(lambda x: (a @ x).tanh() @ a) for one in (tenon.jacrev, tenon.jacfwd))
    yield "Jacobian by rows, 64 x 64", lambda: rows(v), lambda: func.jacrev(lambda x: (b @ x).tanh() @ b)(u)
    yield "Jacobian by columns, 64 x 64", lambda: columns(v), lambda: func.jacfwd(lambda x: (b @ x).tanh() @ b)(u)

    scores, words = real(200, 16, 64), rng.integers(1, 64, (16, 30))
    steps, counts = np.full(16, 200), np.full(16, 30)
    ctc = tenon.value_and_grad(lambda x, *rest: ops.ctc_loss(ops.log_softmax(x), *rest))
    x, rest = tensor(scores).requires_grad_(), list(map(tensor, (words, steps, counts)))

    def torch_ctc():
        x.grad = None
        F.ctc_loss(x.log_softmax(-1), *rest).backward()

    yield "CTC and its gradient, 200 steps of 16 sequences, 64 classes", lambda: ctc(scores, words, steps, counts), torch_ctc


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for name, ours, theirs in cases(np.random.default_rng(0)):
        times = [(shortest(ours), shortest(theirs)) for _ in range(rounds)]
        tenon_ms, torch_ms = (min(column) for column in zip(*times))
        print(f"{name:60} Tenon {tenon_ms:8.3f}  PyTorch {torch_ms:8.3f}  {tenon_ms / torch_ms:5.2f}")


if __name__ == "__main__":
    main()

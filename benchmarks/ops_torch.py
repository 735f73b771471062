#!/usr/bin/env python3
"""Single ops in Tenon and PyTorch, in one run: transforms, factorisations, functions, short rows, views.

    PYTHONPATH=build/release/python python3 benchmarks/ops_torch.py [--only WORD] [-t THREADS] [-r ROUNDS]

Needs a Python with numpy and torch (PyPI). Results are compared before anything is timed. Runs of the two are
interleaved, so that noise affects both, each round for about a hundredth of a second; medians are printed in
milliseconds of one call. With one thread, times are processor times. A ratio above 1: Tenon is faster.
TENON_CPU_ISA=avx2 and ATEN_CPU_CAPABILITY=avx2 with MKL_ENABLE_INSTRUCTIONS=AVX2 hold both to AVX2.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin would take the other's cores

import numpy as np
import torch

import tenon
from tenon import ops

CLOCK = time.perf_counter
TYPES = {"float32": "f32", "float16": "f16", "float64": "f64"}


def uniform(shape, low=-2.0, high=2.0):
    return np.random.default_rng(7).uniform(low, high, shape).astype("f4")


def normal(shape):
    return np.random.default_rng(7).standard_normal(shape).astype("f4")


def definite(shape):
    a = normal(shape)
    return a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1], dtype="f4")


def pairs(z):
    return torch.view_as_real(z)


def views():
    """Along other axes than the last, of permuted and reversed operands, of narrow and wide types."""
    square, wide, long = (64, 64, 32, 32), (8, 64, 56, 56), (100000, 8)
    for dtype in ("f4", "f2", "f8"):
        for axis in (0, 2, 3):
            x = uniform(wide).astype(dtype)
            for name, other in (("sum", torch.sum), ("max", torch.amax)):
                yield (f"{name} {dtype} {wide} axis {axis}", lambda x, f=getattr(ops, name), a=axis: f(x, [a]),
                       lambda x, f=other, a=axis: f(x, dim=a), x)
            for name in ("softmax", "cumsum"):
                yield (f"{name} {dtype} {wide} axis {axis}", lambda x, f=getattr(ops, name), a=axis: f(x, a),
                       lambda x, f=getattr(torch, name), a=axis: f(x, a), x)
        for order, axis in (((0, 2, 3, 1), 1), ((0, 3, 1, 2), 0), ((3, 2, 1, 0), 1)):
            yield (f"sum {dtype} {square} as {order}, axis {axis}",
                   lambda x, o=order, a=axis: ops.sum(ops.permute(x, list(o)), [a]),
                   lambda x, o=order, a=axis: torch.sum(x.permute(o), dim=a), uniform(square).astype(dtype))
        x = uniform((1024, 1024)).astype(dtype)
        yield f"1.5 x.T {dtype} 1024", lambda x: ops.permute(x, [1, 0]) * 1.5, lambda x: x.T.contiguous() * 1.5, x
        yield f"flip {dtype} 1024 axis 1", lambda x: ops.flip(x, [1]), lambda x: torch.flip(x, [1]), x
        yield f"cumsum {dtype} {long} axis 1", lambda x: ops.cumsum(x, 1), lambda x: torch.cumsum(x, 1), uniform(
            long).astype(dtype)


def cases():
    """Name, what Tenon runs, what PyTorch runs, the input, and how to compare."""
    for shape in ((1, 1024), (1, 65536), (64, 400), (64, 512), (64, 1000), (64, 1024), (1000, 400), (1024, 256),
                  (16, 16384)):
        x = uniform(shape)
        bins = uniform((*shape[:-1], shape[-1] // 2 + 1, 2))
        size = shape[-1]
        yield f"rfft {shape}", lambda x: ops.rfft(x, -1), lambda x: pairs(torch.fft.rfft(x)), x
        yield (f"irfft {shape}", lambda x, n=size: ops.irfft(x, n, -2),
               lambda x, n=size: torch.fft.irfft(torch.view_as_complex(x), n), bins)
        z = uniform((*shape, 2))
        yield (f"fft {shape}", lambda x: ops.fft(x, -2), lambda x: pairs(torch.fft.fft(torch.view_as_complex(x))), z)
    for shape in ((256, 256), (512, 512), (8, 128, 128), (1024, 1024)):
        yield (f"fft2 {shape}", lambda x: ops.fft2(x), lambda x: pairs(torch.fft.fft2(torch.view_as_complex(x))),
               uniform((*shape, 2)))
    for n in (32, 64, 128, 256, 512, 1024):
        yield f"cholesky {n}", lambda x: ops.cholesky(x), torch.linalg.cholesky, definite((n, n))
        yield f"lu {n}", lambda x: ops.lu(x)[0], lambda x: torch.linalg.lu_factor(x)[0], normal((n, n))
        yield f"qr {n}", lambda x: ops.qr(x)[0], lambda x: torch.linalg.qr(x)[0], normal((n, n))
        yield f"slogdet {n}", lambda x: ops.slogdet(x)[1], lambda x: torch.linalg.slogdet(x)[1], normal((n, n))
        b = normal((n, 16))
        yield (f"solve {n}", lambda x, b=b: ops.solve(x, b), lambda x, b=torch.from_numpy(b): torch.linalg.solve(x, b),
               normal((n, n)))
    for shape in ((256, 32, 32), (1000, 8, 8)):
        yield f"cholesky {shape}", lambda x: ops.cholesky(x), torch.linalg.cholesky, definite(shape)
    for size in (16384, 1 << 20):
        for name in ("exp", "exp2", "log", "tanh", "lgamma", "digamma"):
            low, high = (0.1, 40.0) if name in ("log", "lgamma", "digamma") else (-8.0, 8.0)
            yield (f"{name} {size}", lambda x, f=getattr(ops, name): f(x), getattr(torch, name),
                   uniform((size,), low, high))
        yield f"lgamma of -10..40, {size}", lambda x: ops.lgamma(x), torch.lgamma, uniform((size,), -10, 40)
    yield from views()
    for columns in (10, 32, 33, 48, 49, 64, 80, 100, 128, 200, 256, 300, 1024):
        for rows in (1 << 17, 1 << 21):
            x = uniform((rows // columns, columns))
            for name in ("sum", "mean", "amax"):
                mine = {"amax": "max"}.get(name, name)
                yield (f"{name} {x.shape}", lambda x, f=getattr(ops, mine): f(x, (1,)),
                       lambda x, f=getattr(torch, name): f(x, 1), x)


def seconds(run, times):
    begin = CLOCK()
    for _ in range(times):
        run()
    return (CLOCK() - begin) / times


def main():
    global CLOCK
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("-r", "--rounds", type=int, default=21)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.threads == 1:
        CLOCK = time.process_time
    print("| op | Tenon, ms | PyTorch, ms | ratio | apart |\n|---|---|---|---|---|")
    for name, mine, theirs, x in cases():
        if options.only not in name:
            continue
        program = tenon.export(lambda x, f=mine: f(x), x=f"{TYPES[str(x.dtype)]}{list(x.shape)}")
        session = tenon.Session(program, threads=options.threads)
        a, b = tenon.array(x), torch.from_numpy(x)
        got, wanted = session.forward(a)[0].numpy(), theirs(b).numpy()
        with np.errstate(all="ignore"):
            if name.startswith("qr"):
                got = got * np.sign(np.sum(got * wanted, -2, keepdims=True))
            apart = float(np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)))
        runs = (lambda: session.forward(a), lambda: theirs(b))
        times = [max(1, int(0.01 / max(seconds(run, 3), 1e-7))) for run in runs]
        rounds = [[seconds(run, count) for run, count in zip(runs, times)] for _ in range(options.rounds)]
        ours, other = (statistics.median(one) * 1e3 for one in zip(*rounds))
        print(f"| {name} | {ours:.4f} | {other:.4f} | {other / ours:.2f} | {apart:.1e} |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Ops called from Python at once, beside numpy: the time of a chain of 20 element-wise ops, per op.

    PYTHONPATH=build/release/python python3 benchmarks/eager.py

Both run interleaved, 200 times for about a millisecond; the best times, which other programs on the machine
disturb least. The chain is v = v * 1.01 + 0.5, ten times, of f32.
"""

import time

import numpy as np

import tenon


def chain(v):
    for _ in range(10):
        v = v * 1.01 + 0.5
    return v


def seconds(run, times):
    begin = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - begin) / times


def main():
    print("| elements | Tenon, us per op | numpy, us per op | Tenon / numpy |\n|---|---|---|---|")
    for elements in (1, 1_000, 10_000, 100_000, 1_000_000):
        a = np.linspace(-1, 1, elements, dtype="f4")
        x = tenon.array(a)
        np.testing.assert_allclose(chain(x).numpy(), chain(a), rtol=1e-5)
        times = max(1, 50_000 // max(elements, 1_000))
        rounds = [(seconds(lambda: chain(x), times), seconds(lambda: chain(a), times)) for _ in range(200)]
        ours, theirs = (min(one) / 20 * 1e6 for one in zip(*rounds))
        print(f"| {elements:,} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")


if __name__ == "__main__":
    main()

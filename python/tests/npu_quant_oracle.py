#!/usr/bin/env python3
"""Thresholds, multipliers and int8 weights as numpy computes them from the headers' formulas.

Writes lines that tests/npu/driver_quantize_test.cpp reads; floats are hexadecimal:
    sample VALUE...
    observe KIND PERCENTILE BINS THRESHOLD (of the sample above)
    multiplier PROFILE FACTOR M S
    scale ACC BIAS M S RESULT
    weights PER_CHANNEL O K STEP... | VALUE... | REAL...

    npu_quant_oracle.py --out tests/npu/data/driver_quantize.txt
"""

import argparse

import numpy as np


def histogram(values, bins):
    magnitude = np.abs(values.astype(np.float64))
    largest = magnitude.max()
    span = 2.0 ** (np.floor(np.log2(largest)) + 1)
    edges = np.arange(bins + 1) * (span / bins)
    return np.histogram(magnitude, edges)[0], span / bins, largest


def percentile(values, percent, bins):
    counts, width, largest = histogram(values, bins)
    reached = np.nonzero(np.cumsum(counts) >= len(values) * percent / 100)[0][0]
    return min((reached + 1) * width, largest)


def entropy(values, bins):
    counts, width, largest = histogram(values[values != 0], bins)
    used = np.nonzero(counts)[0][-1] + 1
    best, least = used, np.inf
    for n in range(min(128, used), used + 1):
        raw = counts[:n].astype(np.float64)
        p = raw.copy()
        p[-1] += counts[n:].sum()
        q = np.zeros(n)
        for level in range(128):
            part = slice(level * n // 128, (level + 1) * n // 128)
            filled = raw[part] > 0
            if filled.any():
                q[part][filled] = raw[part].sum() / filled.sum()
        if raw.sum() < 0.99 * counts.sum() or ((p > 0) & (q == 0)).any():
            continue
        p, q = p / p.sum(), q / q.sum()
        mass = p > 0
        kl = float(np.sum(p[mass] * np.log(p[mass] / q[mass])))
        if kl < least - 1e-12:
            best, least = n, kl
    return min(best * width, largest)


def multiplier(factor, profile):
    m_max, s_min, s_max = (32767, 1, 47) if profile == "m15" else (255, 8, 21)
    shifts = np.arange(s_min, s_max + 1)
    m = np.rint(factor * 2.0 ** shifts)
    fits = np.nonzero(m <= m_max)[0][-1]
    return max(int(m[fits]), 1), int(shifts[fits])


def line(*words):
    return " ".join(w.hex() if isinstance(w, float) else str(w) for w in words)


def observe_cases(rng):
    samples = [rng.standard_normal(500), rng.standard_t(2, 500) * 100, rng.uniform(-1, 3, 500),
               np.maximum(rng.standard_normal(500), 0), np.exp(rng.standard_normal(500) * 2),
               np.array([0.0, -2.0, 1.0]), np.array([1e-30, 3e-30, -2e-30]), np.array([4.0] * 7)]
    for sample in samples:
        values = sample.astype(np.float32)
        floats = [float(v) for v in values]
        yield line("sample", *floats)
        yield line("observe", "min_max", 99.0, 4096, float(np.abs(values).max()))
        for bins in (256, 2048):
            for percent in (50.0, 99.0, 99.9, 100.0):
                yield line("observe", "percentile", percent, bins,
                           float(percentile(values, percent, bins)))
            yield line("observe", "entropy", 99.0, bins, float(entropy(values, bins)))


def multiplier_cases(rng):
    for _ in range(200):
        for profile, low, high in (("m15", -40, 13), ("m8", -19, -1)):
            factor = float(2.0 ** rng.uniform(low, high))
            yield line("multiplier", profile, factor, *multiplier(factor, profile))
    for profile, factor in (("m15", 1.0), ("m15", 32767.4 / 2), ("m15", 2.0 ** -60), ("m15", 0.5),
                            ("m8", 2.0 ** -30), ("m8", 255.4 / 256), ("m8", 0.25)):
        yield line("multiplier", profile, factor, *multiplier(factor, profile))


def scale_cases(rng):
    for _ in range(300):
        s, m = int(rng.integers(1, 48)), int(rng.integers(1, 32768))
        bias = int(rng.integers(-(2**24) + 1, 2**24))
        low = -(2**31) - bias if bias < 0 else -(2**31)
        acc = int(rng.integers(max(low, -(2**31)), 2**31 - max(bias, 0)))
        # Round half up, in exact integers.
        result = ((acc + bias) * m * 2 + 2**s) // 2 ** (s + 1)
        yield line("scale", acc, bias, m, s, result)


def weight_cases(rng):
    for o, k, per_channel in ((1, 1, 1), (3, 7, 1), (3, 7, 0), (16, 9, 1)):
        real = (rng.standard_normal((o, k)) * 2.0 ** rng.uniform(-6, 3, (o, 1))).astype(np.float32)
        if o == 3:
            real[1] = 0
        most = np.abs(real.astype(np.float64)).max(axis=1)
        if not per_channel:
            most = np.full(o, most.max())
        steps = np.where(most > 0, most / 127, 1.0)
        q = np.rint(real / steps[:, None]).astype(int)
        yield line("weights", per_channel, o, k, *[float(s) for s in steps], "|", *q.ravel(), "|",
                   *[float(r) for r in real.ravel()])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    rng = np.random.default_rng(20250)
    cases = [*observe_cases(rng), *multiplier_cases(rng), *scale_cases(rng), *weight_cases(rng)]
    with open(parser.parse_args().out, "w", encoding="ascii") as out:
        out.write("\n".join(cases) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Fit the polynomials of backends/cpu/elementwise/half_segments.hpp, and say how good those in it are.

    python/fit_half_functions.py [HEADER]

A function is split into 32 segments of its argument. On each a polynomial in t, the distance to the
segment's middle in segments, is fitted so that the largest relative error is least (Lawson's iteration:
least squares whose weights grow where errors are large). Prints, per function and segment, the error of
the fit and of the header's numbers, and the fit's coefficients. Where results of f16 are subnormal, the
header's are weighted by their last place instead. Needs numpy.
"""

import math
import pathlib
import re
import sys

import numpy as np

SEGMENTS = 32


def normal_tail(a):
    return np.array([0.5 * math.erfc(x / math.sqrt(2)) for x in a])


def gelu_tanh_tail(a):
    return 1 / (1 + np.exp(2 * math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))


def tanh_slope(a):
    return np.where(a < 1e-6, 1 - a * a / 3, np.tanh(a) / np.maximum(a, 1e-300))


FUNCTIONS = {"normal_tail": normal_tail, "gelu_tanh_tail": gelu_tanh_tail, "tanh_slope": tanh_slope}


def points(segment, scale):
    """Places t within a segment, close together at its ends, and the arguments there."""
    low = 0.0 if segment == 0 else -0.5  # arguments begin with 0
    t = (low + 0.5) / 2 - (0.5 - low) / 2 * np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    return t, (segment + t) / scale


def fit(t, y, degree):
    """The coefficients of t^0, t^1, ... with the least largest relative error."""
    powers = np.vander(t, degree + 1, increasing=True)
    weights = np.full(t.size, 1 / t.size)
    best, least = None, math.inf
    for _ in range(100):
        root = np.sqrt(weights) / y
        coefficients = np.linalg.lstsq(powers * root[:, None], y * root, rcond=None)[0]
        error = np.abs(powers @ coefficients / y - 1)
        if error.max() < least:
            best, least = coefficients, error.max()
        weights = weights * error
        weights /= weights.sum()
    return best, least


def tables(text):
    """Name, scale and rows of coefficients of each function in the header's text."""
    for match in re.finditer(r"constexpr Segments<(\d)> (\w+)\{(.*?)\}\}\};", text, re.S):
        numbers = [float(n) for n in re.findall(r"-?\d[\d.]*(?:e-?\d+)?(?=f?\b)", match[3])]
        yield match[2], numbers[0], np.array(numbers[1:]).reshape(int(match[1]), SEGMENTS)


def main():
    header = pathlib.Path(__file__).parent.parent / "backends/cpu/elementwise/half_segments.hpp"
    text = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else header).read_text()
    found = list(tables(text))
    if not found:
        sys.exit("no Segments in this file")
    for name, scale, rows in found:
        print(f"{name}: {len(rows)} coefficients a segment, segments of {1 / scale:.6f}")
        for segment in range(SEGMENTS):
            t, a = points(segment, scale)
            y = FUNCTIONS[name](a)
            coefficients, error = fit(t, y, len(rows) - 1)
            there = np.abs(sum(row[segment] * t**i for i, row in enumerate(rows)) / y - 1).max()
            shown = ", ".join(f"{c:.9g}" for c in coefficients)
            print(f"  {segment:2}  fit 2^{math.log2(error):.1f}, header 2^{math.log2(there):.1f}   {shown}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Errors that ggml's quantiser leaves with an importance for each column, for tests/core/quant_importance_test.cpp.

    importance_oracle.py --ggml libggml-base.so

libggml-base.so is in wheels of llama-cpp-python (these figures: 0.3.36), or is built from its source. The rows and the
importances are those of the test, made of integers so that both have the same floats. Prints for each type the sum of
importance times squared error over that of importance times square; Python's `gguf` decodes the blocks.
"""

import argparse
import ctypes

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

TYPES = ["q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "iq1_s", "iq1_m",
         "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"]
ROWS, COLUMNS = 16, 512


def numbers(count, state=1):
    """Sixteen bits each, of a linear congruential generator."""
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        yield state >> 16


def data():
    """Importances 2^0 to 2^13, and rows of sums of twelve uniform numbers, whose variance is 1."""
    stream = numbers(COLUMNS + 12 * ROWS * COLUMNS)
    importance = np.exp2(np.array([next(stream) % 14 for _ in range(COLUMNS)], dtype=np.float32))
    sums = [sum(next(stream) for _ in range(12)) - 6 * 65536 for _ in range(ROWS * COLUMNS)]
    return np.array(sums, dtype=np.float32).reshape(ROWS, COLUMNS) / np.float32(65536), importance.astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ggml", required=True)
    ggml = ctypes.CDLL(parser.parse_args().ggml)
    pointer, long = ctypes.c_void_p, ctypes.c_int64
    ggml.ggml_row_size.argtypes = [ctypes.c_int, long]
    ggml.ggml_row_size.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, long, long, long, pointer]
    x, importance = data()
    for name in TYPES:
        kind = GGMLQuantizationType[name.upper()]
        ggml.ggml_quantize_init(kind)
        blocks = np.empty((ROWS, ggml.ggml_row_size(kind, COLUMNS)), dtype=np.uint8)
        ggml.ggml_quantize_chunk(kind, x.ctypes.data, blocks.ctypes.data, 0, ROWS, COLUMNS, importance.ctypes.data)
        difference = dequantize(blocks, kind).reshape(x.shape).astype(np.float64) - x
        print(name, f"{np.sum(importance * difference**2) / np.sum(importance * x.astype(np.float64)**2):.4e}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Blocks of every quantised type with the floats they stand for, as `gguf.quants` computes them.

Writes records that tests/core/quant_test.cpp reads. A record is, little-endian:
    type name, 8 bytes, zero-padded; u32 kind (0: dequantise, 1: quantise); u32 bytes; u32 floats;
    the block bytes; the f32 values.
Dequantise records have random codes and scales (normal, subnormal, negative, both zeros) and the
floats to expect; quantise records have floats and the bytes to expect.

    quant_oracle.py --out tests/core/data/quant_fixture.bin
"""

import argparse
import struct

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

# Type -> byte offsets of its f16 scales.
DECODED = {
    "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0],
    "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208],
    "iq4_nl": [0], "iq4_xs": [0], "iq1_s": [0], "iq1_m": [], "iq2_xxs": [0], "iq2_xs": [0],
    "iq2_s": [0], "iq3_xxs": [0], "iq3_s": [0], "tq1_0": [52], "tq2_0": [64], "mxfp4": [], "nvfp4": [],
}
ENCODED = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"]
EDGE_SCALES = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x3C00,
                        0xBC00, 0x7BFF, 0xFBFF], dtype="<u2")


def random_scales(rng, count):
    values = rng.standard_normal(count) * np.exp2(rng.uniform(-24, 8, count))
    bits = values.astype("<f2").view("<u2")
    edges = min(count, len(EDGE_SCALES))
    bits[:edges] = EDGE_SCALES[:edges]
    return rng.permutation(bits)


def decode_record(rng, name, blocks):
    kind = GGMLQuantizationType[name.upper()]
    size = GGML_QUANT_SIZES[kind][1]
    data = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
    for offset in DECODED[name]:
        data[:, offset:offset + 2] = random_scales(rng, blocks).view(np.uint8).reshape(blocks, 2)
    if name == "iq1_m":  # its scale: the top four bits of the last four words
        scales = random_scales(rng, blocks)
        words = np.ascontiguousarray(data[:, 48:]).view("<u2")
        for i in range(4):
            nibble = (scales >> (4 * i)) & 15
            words[:, i] = (words[:, i] & 0x0FFF) | (nibble << 12)
        data[:, 48:] = words.view(np.uint8)
    return name, 0, data, dequantize(data, kind)


def decode_q8_k_record(rng, blocks):
    """The type of quantised activations has no function in gguf: y = d q from its layout."""
    d = (rng.standard_normal(blocks) * np.exp2(rng.uniform(-30, 8, blocks))).astype("<f4")
    q = rng.integers(-128, 128, (blocks, 256), dtype=np.int8)
    sums = q.reshape(blocks, 16, 16).sum(axis=2, dtype=np.int16)
    data = np.concatenate([d.view(np.uint8).reshape(blocks, 4), q.view(np.uint8),
                           sums.view(np.uint8).reshape(blocks, 32)], axis=1)
    return "q8_k", 0, data, d[:, None] * q.astype(np.float32)


def decode_codes_record(rng, name, size, bits, step, blocks):
    """Types that gguf has no function for: y = d (step q - 1) from their layout."""
    d = random_scales(rng, blocks)
    q = rng.integers(0, 1 << bits, (blocks, size), dtype=np.uint8)
    places = np.arange(0, 8, bits, dtype=np.uint8)
    packed = (q.reshape(blocks, -1, 8 // bits) << places).sum(axis=2, dtype=np.uint8)
    data = np.concatenate([d.view(np.uint8).reshape(blocks, 2), packed], axis=1)
    return name, 0, data, d.view("<f2").astype(np.float32)[:, None] * (step * q.astype(np.float32) - 1)


def plain_record(rng, name, count):
    bits = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    exponent = 0x7C00 if name == "f16" else 0x7F80
    bits = bits[((bits & exponent) != exponent) | ((bits & ~np.uint16(0x8000)) == exponent)]  # no NaN
    kind = GGMLQuantizationType[name.upper()]
    return name, 0, bits.view(np.uint8), dequantize(bits.view(np.uint8), kind)


def encode_record(rng, name, blocks):
    x = rng.standard_normal((blocks, 32)) * np.exp2(rng.uniform(-20, 10, (blocks, 1)))
    special = [
        np.zeros(32), np.full(32, 3.25), np.full(32, -0.7), np.arange(32) - 16.0, np.arange(32) / 4,
        -np.arange(32) / 2 - 1, np.eye(32)[5], -np.eye(32)[31] * 1e-3, np.resize([1.0, -1.0], 32),
        np.resize([-1.0, 1.0], 32), np.resize([127.0, 0.5, 1.5, -2.5], 32), np.full(32, 1e-7),
        np.full(32, 4e4), rng.standard_normal(32) * 1e-30,
    ]
    for i, row in enumerate(special[:blocks]):
        x[i] = row
    x = x.astype("<f4")
    return name, 1, quantize(x, GGMLQuantizationType[name.upper()]), x


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=20240229)
    parser.add_argument("--superblocks", type=int, default=8, help="blocks of 256 for each type")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    superblocks = arguments.superblocks

    records = [decode_q8_k_record(rng, superblocks), decode_codes_record(rng, "q1_0", 128, 1, 2, 3 * superblocks),
               decode_codes_record(rng, "q2_0", 64, 2, 1, 3 * superblocks)]
    for name in DECODED:
        size = GGML_QUANT_SIZES[GGMLQuantizationType[name.upper()]][0]
        records.append(decode_record(rng, name, superblocks if size == 256 else 3 * superblocks))
    for name in ("f16", "bf16"):
        records.append(plain_record(rng, name, 64 * superblocks))
    for name in ENCODED:
        records.append(encode_record(rng, name, 3 * superblocks))

    with open(arguments.out, "wb") as out:
        for name, kind, data, values in records:
            data, values = np.ascontiguousarray(data), np.ascontiguousarray(values, dtype="<f4")
            out.write(struct.pack("<8sIII", name.encode(), kind, data.size, values.size))
            out.write(data.tobytes())
            out.write(values.tobytes())


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A copy of a GGUF file that `tenon quantize` wrote, its weights quantised by ggml instead.

    tenon quantize f16.gguf ours.gguf --type q4_k_m
    quantize_by_ggml.py --ggml libggml-base.so f16.gguf ours.gguf ggml.gguf

Every tensor has the same type in both, so that `tenon score` of the two compares the quantisers alone.
Needs numpy, gguf and safetensors.
"""

import argparse

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from quantize_error import by_ggml_bytes, load_ggml


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ggml", required=True)
    parser.add_argument("source")
    parser.add_argument("ours")
    parser.add_argument("out")
    arguments = parser.parse_args()
    ggml = load_ggml(arguments.ggml)
    source = {tensor.name: tensor for tensor in GGUFReader(arguments.source).tensors}
    with open(arguments.ours, "rb") as file:
        data = bytearray(file.read())
    for tensor in GGUFReader(arguments.ours).tensors:
        before = source[tensor.name]
        if tensor.tensor_type == before.tensor_type:
            continue
        x = dequantize(before.data, before.tensor_type).astype(np.float32)
        made = by_ggml_bytes(ggml, tensor.tensor_type, np.ascontiguousarray(x.reshape(-1, x.shape[-1])))
        assert made.nbytes == tensor.n_bytes, tensor.name
        data[tensor.data_offset:tensor.data_offset + tensor.n_bytes] = made.tobytes()
    with open(arguments.out, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Mean squared error of the weights that `tenon quantize` writes, beside those of ggml's quantiser.

    quantize_error.py --tenon build/release/tools/tenon --ggml libggml-base.so --weights model.safetensors

Both get the same f32 matrices, cut into rows of 256, and no importance matrix; Python's `gguf` decodes
both results. libggml-base.so is in wheels of llama-cpp-python, or is built from ggml.c and
ggml-quants.c of its source. Errors are relative: the sum of squared differences over the sum of
squares. Needs numpy, gguf and safetensors. Exit status 1 where a tensor of ours is worse.
"""

import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize
from safetensors.numpy import load_file

# The main type of a mix -> the mix whose --pure file has it.
TYPES = {
    "q8_0": "q8_0", "q6_k": "q6_k", "q5_k": "q5_k_m", "q5_1": "q5_1", "q5_0": "q5_0",
    "q4_k": "q4_k_m", "q4_1": "q4_1", "q4_0": "q4_0", "iq4_nl": "iq4_nl", "iq4_xs": "iq4_xs",
    "mxfp4": "mxfp4_moe", "q3_k": "q3_k_m", "iq3_s": "iq3_s", "iq3_xxs": "iq3_xxs", "q2_k": "q2_k",
    "iq2_s": "iq2_m", "tq2_0": "tq2_0", "tq1_0": "tq1_0",
}


def load_ggml(path):
    ggml = ctypes.CDLL(path)
    ggml.ggml_quantize_init.argtypes = [ctypes.c_int]
    ggml.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
    ggml.ggml_row_size.restype = ctypes.c_size_t
    pointer = ctypes.c_void_p
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, ctypes.c_int64,
                                         ctypes.c_int64, ctypes.c_int64, pointer]
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    return ggml


def by_ggml_bytes(ggml, kind, x):
    ggml.ggml_quantize_init(kind)
    rows, columns = x.shape
    out = np.empty((rows, ggml.ggml_row_size(kind, columns)), dtype=np.uint8)
    ggml.ggml_quantize_chunk(kind, x.ctypes.data, out.ctypes.data, 0, rows, columns, None)
    return out


def by_ggml(ggml, kind, x):
    return dequantize(by_ggml_bytes(ggml, kind, x), kind).reshape(x.shape)


def by_tenon(tenon, source, target, mix):
    subprocess.run([tenon, "quantize", source, target, "--type", mix, "--pure"], check=True,
                   stdout=subprocess.DEVNULL)
    return {t.name: (t.tensor_type, dequantize(t.data, t.tensor_type))
            for t in GGUFReader(target).tensors}


def matrices(path, most):
    """2-D weights in rows of 256, the largest first."""
    found = []
    for name, data in load_file(path).items():
        if data.ndim == 2 and data.size % 256 == 0:
            rows = np.ascontiguousarray(data.astype(np.float32).reshape(-1, 256))
            found.append((name, rows[:4096]))
    found.sort(key=lambda item: (-item[1].size, item[0]))
    return {f"{i}.weight": rows for i, (_, rows) in enumerate(found[:most])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tenon", required=True)
    parser.add_argument("--ggml", required=True)
    parser.add_argument("--weights", required=True, help="a safetensors file of floats")
    parser.add_argument("--tensors", type=int, default=12)
    parser.add_argument("--types", default=",".join(TYPES))
    arguments = parser.parse_args()
    ggml = load_ggml(arguments.ggml)
    weights = matrices(arguments.weights, arguments.tensors)
    worse = 0
    print(f"{len(weights)} tensors, {sum(x.size for x in weights.values()) / 1e6:.1f} million weights")
    print("| type | ours | ggml | ours / ggml | worst tensor | s ours | s ggml |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        source, target = (str(pathlib.Path(folder) / name) for name in ("source.gguf", "target.gguf"))
        writer = GGUFWriter(source, "none")
        for name, x in weights.items():
            writer.add_tensor(name, x)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        for name in arguments.types.split(","):
            kind = GGMLQuantizationType[name.upper()]
            start = time.perf_counter()
            ours = by_tenon(arguments.tenon, source, target, TYPES[name])
            middle = time.perf_counter()
            theirs = {tensor: by_ggml(ggml, kind, x) for tensor, x in weights.items()}
            end = time.perf_counter()
            errors, power, ratios = np.zeros(2), 0.0, []
            for tensor, x in weights.items():
                assert ours[tensor][0] == kind, (tensor, ours[tensor][0])
                pair = [float(np.sum((y.reshape(x.shape).astype(np.float64) - x) ** 2))
                        for y in (ours[tensor][1], theirs[tensor])]
                errors += pair
                power += float(np.sum(x.astype(np.float64) ** 2))
                ratios.append(pair[0] / pair[1])
            worse += sum(ratio > 1 + 1e-6 for ratio in ratios)
            print(f"| {name} | {errors[0] / power:.3e} | {errors[1] / power:.3e} | "
                  f"{errors[0] / errors[1]:.3f} | {max(ratios):.3f} | {middle - start:.1f} | "
                  f"{end - middle:.1f} |", flush=True)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())

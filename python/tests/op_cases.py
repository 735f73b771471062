"""Writes op cases: inputs, attributes and the expected output, for tests/support/op_cases.hpp.

One .safetensors file holds the arrays; its metadata key "cases" holds a JSON list:

    {"name": "sum 3", "op": "sum", "attributes": {"axes": [1]},
     "inputs": [{"array": "sum 3.0", "dtype": "f32", "shape": [2, 3]}],
     "output": {"array": "sum 3.out", "dtype": "f32", "shape": [2]},
     "absolute": 1e-6, "relative": 1e-6}

Types and shapes are spelled as Tenon spells them; an array of a block type ("q4_0") is stored as its
bytes (U8). Attribute words and types are strings, axes are resolved and non-negative.

A script per family imports this, makes cases from a seed, and calls `main`:
    python3 python/tests/op_cases_array.py OUTPUT.safetensors [--seed N] [--small]
"""
import argparse
import json
import struct
import warnings

import numpy as np

_STORED = {
    "bool": ("BOOL", np.bool_), "i8": ("I8", np.int8), "i16": ("I16", np.int16),
    "i32": ("I32", np.int32), "i64": ("I64", np.int64), "u8": ("U8", np.uint8),
    "u16": ("U16", np.uint16), "u32": ("U32", np.uint32), "u64": ("U64", np.uint64),
    "c64": ("C64", np.complex64), "f16": ("F16", np.float16),
    "bf16": ("BF16", np.uint16), "f32": ("F32", np.float32), "f64": ("F64", np.float64),
}
_NAMES = {np.dtype(kind): name for name, (_, kind) in _STORED.items() if name != "bf16"}

# |got - want| <= absolute + relative * |want|: a few units in the last place of each type.
TOLERANCE = {"f16": (1e-6, 2e-3), "bf16": (1e-6, 1.6e-2), "f32": (1e-6, 2e-6), "f64": (1e-12, 1e-12)}


class Bf16:
    """An array of bfloat16, made from floats by rounding to nearest, ties to even."""

    def __init__(self, values):
        bits = np.array(values, np.float32).view(np.uint32)
        rounded = bits + 0x7FFF + ((bits >> 16) & 1)
        nan = (bits & 0x7FFFFFFF) > 0x7F800000
        self.bits = np.where(nan, (bits >> 16) | 0x40, rounded >> 16).astype(np.uint16)
        self.shape = self.bits.shape

    def to_float(self):
        return (self.bits.astype(np.uint32) << 16).view(np.float32)


class Blocks:
    """An array of a block type: its bytes, and the shape of what they decode to."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape = dtype, tuple(shape)
        self.data = np.ascontiguousarray(data, np.uint8).reshape(-1)


def as_type(values, dtype):
    """`values` (floats or integers) as an array of the type spelled `dtype`."""
    if dtype == "bf16":
        return Bf16(values)
    return np.asarray(values).astype(_STORED[dtype][1])


def to_double(array):
    """The values of an array made by `as_type`, as float64."""
    return (array.to_float() if isinstance(array, Bf16) else array).astype(np.float64)


class Cases:
    """Collects cases and writes them."""

    def __init__(self, seed, small):
        self.rng = np.random.default_rng(seed)
        self.small = small  # a fixture for the tree: a few cases of each op
        self._cases, self._arrays, self._counts = [], {}, {}

    def add(self, op, inputs, output, attributes=None, tolerance=None):
        """One case; `tolerance` is (absolute, relative), by default a few ulp of the output's type."""
        number = self._counts[op] = self._counts.get(op, -1) + 1
        name = f"{op} {number}"
        entry = {"name": name, "op": op, "attributes": attributes or {},
                 "inputs": [self._store(f"{name}.{i}", array) for i, array in enumerate(inputs)],
                 "output": self._store(f"{name}.out", output)}
        absolute, relative = tolerance or TOLERANCE.get(entry["output"]["dtype"], (0, 0))
        entry["absolute"], entry["relative"] = absolute, relative
        self._cases.append(entry)

    def _store(self, name, array):
        if isinstance(array, Blocks):
            dtype, stored, data = array.dtype, "U8", array.data
        elif isinstance(array, Bf16):
            dtype, stored, data = "bf16", "BF16", array.bits
        else:
            data = np.asarray(array)
            dtype = _NAMES[data.dtype]
            stored = _STORED[dtype][0]
        self._arrays[name] = (stored, list(data.shape), data.tobytes())
        return {"array": name, "dtype": dtype, "shape": list(array.shape)}

    def write(self, path):
        header, offset, parts = {"__metadata__": {"cases": json.dumps(self._cases)}}, 0, []
        for name, (stored, shape, data) in self._arrays.items():
            header[name] = {"dtype": stored, "shape": shape, "data_offsets": [offset, offset + len(data)]}
            offset += len(data)
            parts.append(data)
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def main(generate, doc):
    """Command line of a script: `generate(cases)` adds its cases."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="the fixture kept in the tree")
    arguments = parser.parse_args()
    cases = Cases(arguments.seed, arguments.small)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mean of nothing is a NaN: that is a case, not a mistake
        generate(cases)
    cases.write(arguments.output)

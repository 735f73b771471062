"""Reads weights from safetensors and GGUF files. A file is not trusted: nothing outside of it is read."""
import json
import mmap
import pathlib

import numpy as np

from .errors import Error
from .tensors import DTYPES, NUMPY, Array, Type, bytes_shape, is_block

SAFETENSORS = {"BOOL": "bool", "F16": "f16", "F32": "f32", "F64": "f64", "BF16": "bf16", "F8_E4M3": "f8_e4m3",
               "F8_E5M2": "f8_e5m2", "I8": "i8", "I16": "i16", "I32": "i32", "I64": "i64", "U8": "u8", "U16": "u16",
               "U32": "u32", "U64": "u64", "C64": "c64"}
GGUF = dict(zip((0, 1, 2, 3, 6, 7, 8, *range(10, 31), 34, 35, *range(39, 43)),
                """f32 f16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k q8_k iq2_xxs iq2_xs iq3_xxs iq1_s iq4_nl
                iq3_s iq2_s iq4_xs i8 i16 i32 i64 f64 iq1_m bf16 tq1_0 tq2_0 mxfp4
                nvfp4 q1_0 q2_0""".split()))
# Bytes of the types of GGUF's metadata; 8 is a string, 9 an array.
GGUF_VALUES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
HEADER_BYTES = 100 << 20


def read_weights(path):
    """{name: Array} of a safetensors or GGUF file. Elements stay in the file until they are used, but for
    the types that numpy has not."""
    path = pathlib.Path(path)
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise Error("NotFound" if isinstance(error, FileNotFoundError) else "IoError", str(error),
                    file=str(path)) from None
    try:
        return _read_gguf(data) if data[:4] == b"GGUF" else _read_safetensors(data)
    except Error as error:
        raise Error(error.code, error.message, file=str(path)) from None


def _require(condition, code, message):
    if not condition:
        raise Error(code, message)


def _array(data, name, type_, begin, size=None):
    """The elements of a tensor; `size` is what the file says of its bytes."""
    if is_block(type_.dtype):
        facts, stored = DTYPES[type_.dtype], np.uint8
        count, shape = type_.elements // facts.block * facts.bytes, bytes_shape(type_)
    else:
        stored = stored_type(type_.dtype)
        count, shape = type_.elements, type_.dims
    needed = count * np.dtype(stored).itemsize
    _require(size in (None, needed), "BadOffset", f"'{name}' of {type_} has {size} bytes")
    _require(begin + needed <= len(data), "BadOffset", f"'{name}' ends outside of the file")
    elements = np.frombuffer(data, stored, count, begin).reshape(shape) if count else np.zeros(shape, stored)
    return Array(type_, from_stored(elements, type_.dtype))


def stored_type(dtype):
    """The type that has the bits of a plain type."""
    return np.dtype({"bf16": np.uint16, "f8_e4m3": np.uint8, "f8_e5m2": np.uint8}.get(dtype, NUMPY[dtype]))


def to_stored(values, dtype):
    """The bits of bf16 and of 8-bit floats, whose values are float32; others as they are."""
    if dtype == "bf16":
        return (np.asarray(values, order="C").view(np.uint32) >> 16).astype(np.uint16)
    if dtype == "f8_e5m2":
        return (np.asarray(values.astype(np.float16), order="C").view(np.uint16) >> 8).astype(np.uint8)
    if dtype == "f8_e4m3":  # of ascending numbers, 0 to 448, and a NaN
        numbers = from_stored(np.arange(127, dtype=np.uint8), dtype)
        codes = np.where(np.isnan(values), 127, np.searchsorted(numbers, np.abs(values)))
        return (codes | np.signbit(values) * 0x80).astype(np.uint8)
    return values


def from_stored(elements, dtype):
    """Bits of bf16 or of an 8-bit float as float32; others as they are."""
    if dtype == "bf16":
        return np.asarray(elements.astype(np.uint32) << 16).view(np.float32)
    if dtype == "f8_e5m2":  # the upper half of an f16
        return np.asarray(elements.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if dtype == "f8_e4m3":
        code = elements.astype(np.int32) & 0x7F
        exponent, mantissa = code >> 3, code & 7
        value = np.where(exponent, np.ldexp(1 + mantissa / 8, exponent - 7), np.ldexp(mantissa / 8, -6))
        value = np.where(code == 0x7F, np.nan, value)
        return np.where(elements & 0x80, -value, value).astype(np.float32)
    return elements


def _read_safetensors(data):
    _require(len(data) >= 8, "Truncated", "shorter than a header's length")
    length = int.from_bytes(data[:8], "little")
    _require(length <= min(HEADER_BYTES, len(data) - 8), "Truncated", f"a header of {length} bytes")
    try:
        header = json.loads(data[8:8 + length].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Error("Syntax", f"the header is no JSON: {error}") from None
    _require(isinstance(header, dict), "Syntax", "the header is no object")
    arrays = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        _require(isinstance(entry, dict) and entry.get("dtype") in SAFETENSORS, "BadType",
                 f"'{name}' has no known dtype")
        shape, offsets = entry.get("shape"), entry.get("data_offsets")
        for numbers in (shape, offsets):
            is_good = isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)
            _require(is_good, "Syntax", f"'{name}' has no shape and data_offsets")
        _require(len(offsets) == 2 and offsets[0] <= offsets[1], "BadOffset", f"'{name}' has data_offsets {offsets}")
        arrays[name] = _array(data, name, Type(SAFETENSORS[entry["dtype"]], shape), 8 + length + offsets[0],
                              offsets[1] - offsets[0])
    return arrays


class _Reader:
    """Little-endian values, one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 4

    def skip(self, size):
        _require(size <= len(self.data) - self.at, "Truncated", "the header ends outside of the file")
        self.at += size

    def number(self, size):
        self.skip(size)
        return int.from_bytes(self.data[self.at - size:self.at], "little")

    def text(self):
        size = self.number(8)
        self.skip(size)
        return self.data[self.at - size:self.at].decode("utf-8", "replace")

    def value(self, kind, depth=0):
        """A value of the metadata; None for what nobody here needs."""
        if kind == 8:
            return self.text()
        if kind == 9:
            _require(depth < 4, "DepthLimit", "arrays inside each other")
            kind, count = self.number(4), self.number(8)
            if kind in GGUF_VALUES:
                return self.skip(GGUF_VALUES[kind] * count)
            for _ in range(count):
                self.value(kind, depth + 1)
            return None
        _require(kind in GGUF_VALUES, "BadType", f"metadata of type {kind}")
        return self.number(GGUF_VALUES[kind])


def _read_gguf(data):
    reader = _Reader(data)
    version = reader.number(4)
    _require(version in (2, 3), "UnsupportedVersion", f"GGUF version {version}")
    tensors, pairs = reader.number(8), reader.number(8)
    alignment = 32
    for _ in range(pairs):
        key, kind = reader.text(), reader.number(4)
        value = reader.value(kind)
        alignment = value if key == "general.alignment" else alignment
    _require(isinstance(alignment, int) and 0 < alignment <= 1 << 20, "BadAlignment", f"an alignment of {alignment}")
    entries = []
    for _ in range(tensors):
        name, rank = reader.text(), reader.number(4)
        _require(rank <= 4, "BadShape", f"'{name}' has rank {rank}")
        dims = [reader.number(8) for _ in range(rank)]
        kind, offset = reader.number(4), reader.number(8)
        _require(kind in GGUF, "BadType", f"'{name}' has type {kind}")
        entries.append((name, Type(GGUF[kind], dims[::-1]), offset))
    base = -(-reader.at // alignment) * alignment
    return {name: _array(data, name, type_, base + offset) for name, type_, offset in entries}

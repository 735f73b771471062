"""Element types of ONNX, of Tenon and of numpy, and the arrays of TensorProto."""

import math
import os
import pathlib

import numpy as np
import onnx

from ..importing.errors import malformed, unsupported_type
from ..importing.types import NUMPY

NUMBERS = {"f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11,
            "u32": 12, "u64": 13, "bf16": 16, "f8_e4m3": 17, "f8_e5m2": 19}
NAMES = {number: name for name, number in NUMBERS.items()}
CODES = "codes"  # Value.origin is (CODES, bits) for codes of a few bits
# Those codes, which arrays hold in a byte each: UINT4, INT4, UINT2, INT2.
_NARROW = {21: ("u8", 4), 22: ("i8", 4), 25: ("u8", 2), 26: ("i8", 2)}
MAX_ELEMENTS = 2**31   # of an array in a file


def type_name(number):
    """What ONNX calls a type: FLOAT8E8M0."""
    try:
        return onnx.TensorProto.DataType.Name(number)
    except ValueError:
        return f"element type {number}"


def tenon_type(number, where):
    """The word for an element type of ONNX: 1 is "f32"."""
    if number not in NAMES:
        raise unsupported_type(where, f"{type_name(number)} is no type of Tenon")
    return NAMES[number]


def code_bits(tensor):
    """The bits of a TensorProto's codes where they are fewer than a byte, else None."""
    return _NARROW.get(tensor.data_type, (None, None))[1]


def array_of(tensor, folder, where):
    """The numpy array of a TensorProto, that of codes of a few bits as bytes; external data lies in `folder`."""
    where = f"{where}: tensor '{tensor.name}'"
    bits = code_bits(tensor)
    dtype = _NARROW[tensor.data_type][0] if bits else tenon_type(tensor.data_type, where)
    dims = [int(d) for d in tensor.dims]
    if any(d < 0 for d in dims) or math.prod(dims) > MAX_ELEMENTS:
        raise malformed(where, f"sizes {dims}", "BadShape")
    if tensor.HasField("segment"):
        raise malformed(where, "segments are not read")
    if bits:
        return _codes(tensor, bits, dtype, dims, folder, where)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, dtype, dims, folder, where)
    _check_length(tensor, dtype, dims, where)
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor)).astype(NUMPY[dtype], copy=False).reshape(dims)
    except (ValueError, TypeError, OverflowError, AssertionError) as error:
        raise malformed(where, str(error)) from None


def unpacked(array, bits):
    """Codes of some bits in bytes, the lowest ones of a byte first, along the last axis."""
    parts = [(array >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*array.shape[:-1], -1)


def _codes(tensor, bits, dtype, dims, folder, where):
    """Numbers of some bits, the first one in the lowest bits of a byte."""
    count, each = math.prod(dims), 8 // bits
    size = [-(-count // each)]
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        packed = _external(tensor, "u8", size, folder, where)
    elif tensor.HasField("raw_data"):
        _check_length(tensor, "u8", size, where)
        packed = np.frombuffer(tensor.raw_data, np.uint8)
    else:  # a byte in each number
        numbers = np.array(tensor.int32_data, np.int64)
        if len(numbers) != size[0] or (numbers != numbers & 255).any():
            raise malformed(where, f"{len(numbers)} numbers for {dtype}{dims} of {bits} bits", "Truncated")
        packed = numbers.astype(np.uint8)
    codes = unpacked(packed, bits)[:count]
    if dtype == "i8":
        codes = ((codes ^ (1 << (bits - 1))).astype(np.int8) - np.int8(1 << (bits - 1)))
    return codes.astype(NUMPY[dtype], copy=False).reshape(dims)


def _check_length(tensor, dtype, dims, where):
    if not tensor.HasField("raw_data"):
        return
    want = math.prod(dims) * NUMPY[dtype].itemsize
    if len(tensor.raw_data) != want:
        raise malformed(where, f"{len(tensor.raw_data)} bytes of {dtype}{dims}, which has {want}", "Truncated")


def _external(tensor, dtype, dims, folder, where):
    entries = {entry.key: entry.value for entry in tensor.external_data}
    want = math.prod(dims) * NUMPY[dtype].itemsize
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", want))
    except ValueError:
        raise malformed(where, "an offset or a length that is no number") from None
    path = _inside(folder, entries.get("location", ""), where)
    if offset < 0 or length != want or offset + length > path.stat().st_size:
        raise malformed(where, f"bytes {offset} to {offset + length} of '{path.name}' for {dtype}{dims}", "Truncated")
    if want == 0:
        return np.zeros(dims, NUMPY[dtype])
    return np.memmap(path, np.uint8, "r", offset, (length,)).view(NUMPY[dtype]).reshape(dims) \
        if offset % NUMPY[dtype].itemsize == 0 else \
        np.fromfile(path, np.uint8, length, offset=offset).view(NUMPY[dtype]).reshape(dims)


def _inside(folder, location, where):
    """The path of external data, which has to be a file below the model's folder."""
    if folder is None:
        raise malformed(where, "external data of a model that is no file: give `folder`", "NotFound")
    root = pathlib.Path(folder).resolve()
    if not location or "\0" in location or os.path.isabs(location):
        raise malformed(where, f"external data at {location!r}", "PathEscape")
    try:
        path = (root / location).resolve()
        is_file = path.is_file()
    except (OSError, RuntimeError, UnicodeError):  # too long, links in a ring, no text
        path, is_file = root, False
    if not path.is_relative_to(root):
        raise malformed(where, f"external data at {location!r}, outside of the model's folder", "PathEscape")
    if not is_file:
        raise malformed(where, f"no file {location[:200]!r} beside the model", "NotFound")
    return path

"""Element types of ONNX, of Tenon and of numpy, and the arrays of TensorProto."""

import math
import os
import pathlib

import ml_dtypes
import numpy as np
import onnx

from .errors import malformed, unsupported_type

_table = [
    (1, "f32", np.float32), (2, "u8", np.uint8), (3, "i8", np.int8), (4, "u16", np.uint16), (5, "i16", np.int16),
    (6, "i32", np.int32), (7, "i64", np.int64), (9, "bool", np.bool_), (10, "f16", np.float16),
    (11, "f64", np.float64), (12, "u32", np.uint32), (13, "u64", np.uint64), (16, "bf16", ml_dtypes.bfloat16),
    (17, "f8_e4m3", ml_dtypes.float8_e4m3fn), (19, "f8_e5m2", ml_dtypes.float8_e5m2),
]
NAMES = {number: name for number, name, _ in _table}
NUMBERS = {name: number for number, name, _ in _table}
NUMPY = {name: np.dtype(kind) for _, name, kind in _table}
_OF_NUMPY = {np.dtype(kind): name for _, name, kind in _table}
FLOATS = {"f16", "bf16", "f32", "f64"}
INTEGERS = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
MAX_ELEMENTS = 2**31   # of an array in a file
MAX_COMPUTED = 2**26   # of an array that is computed while a model is read


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


def type_of(array):
    """The word for the type of a numpy array."""
    return _OF_NUMPY[array.dtype]


def limits(dtype):
    """The least and the greatest number of a type."""
    if dtype in FLOATS:
        return -math.inf, math.inf
    info = np.iinfo(NUMPY[dtype])
    return int(info.min), int(info.max)


def check_computed(where, sizes):
    """Refuses to compute an array of these known sizes while a model is read if that takes too much memory."""
    known = [size for size in sizes if isinstance(size, int)]
    if any(size < 0 for size in known):
        raise malformed(where, f"sizes {list(sizes)}", "BadShape")
    if math.prod(known) > MAX_COMPUTED:
        raise malformed(where, f"{list(sizes)} is more than {MAX_COMPUTED} elements, computed while a model is read",
                        "LimitExceeded")


def array_of(tensor, folder, where):
    """The numpy array of a TensorProto; external data lies in `folder`."""
    where = f"{where}: tensor '{tensor.name}'"
    dtype = tenon_type(tensor.data_type, where)
    dims = [int(d) for d in tensor.dims]
    if any(d < 0 for d in dims) or math.prod(dims) > MAX_ELEMENTS:
        raise malformed(where, f"sizes {dims}", "BadShape")
    if tensor.HasField("segment"):
        raise malformed(where, "segments are not read")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, dtype, dims, folder, where)
    _check_length(tensor, dtype, dims, where)
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor)).astype(NUMPY[dtype], copy=False).reshape(dims)
    except (ValueError, TypeError, OverflowError, AssertionError) as error:
        raise malformed(where, str(error)) from None


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
    path = (root / location).resolve()
    if not path.is_relative_to(root):
        raise malformed(where, f"external data at {location!r}, outside of the model's folder", "PathEscape")
    if not path.is_file():
        raise malformed(where, f"no file '{location}' beside the model", "NotFound")
    return path

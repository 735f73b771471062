"""Element types: Tenon's words for them, and numpy's."""

import math

import numpy as np

from .errors import malformed, wrong_call

try:
    import ml_dtypes
except ImportError:  # bf16 and 8-bit floats as numpy's need it
    ml_dtypes = None

FLOATS = {"f16", "bf16", "f32", "f64"}
INTEGERS = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
NUMPY = {
    "f32": np.float32, "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "bool": np.bool_, "f16": np.float16, "f64": np.float64, "u32": np.uint32, "u64": np.uint64,
    "c64": np.complex64,
}
if ml_dtypes is not None:
    NUMPY |= {"bf16": ml_dtypes.bfloat16, "f8_e4m3": ml_dtypes.float8_e4m3fn, "f8_e5m2": ml_dtypes.float8_e5m2}
NUMPY = {name: np.dtype(kind) for name, kind in NUMPY.items()}
_OF_NUMPY = {kind: name for name, kind in NUMPY.items()}
MAX_COMPUTED = 2**26   # elements of an array that is computed while a model is read


def type_of(array):
    """The word for the type of a numpy array."""
    return _OF_NUMPY[array.dtype]


def type_of_or_none(array):
    return _OF_NUMPY.get(array.dtype)


def as_array(where, name, value, dtype=None):
    """What a caller gives for an input, as a numpy array; numbers and lists of Python's become the type that is declared
    where that loses no integer."""
    is_plain = not hasattr(value, "dtype") and not hasattr(value, "__array__")
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of several lengths
        raise wrong_call(where, f"input '{name}': {error}") from None
    if is_plain and dtype in NUMPY and array.dtype.kind in "iuf":
        made = array.astype(NUMPY[dtype]) if NUMPY[dtype].kind in "iuf" else array
        if array.dtype.kind == "f" and made.dtype.kind == "f" or (array == made).all():
            array = made
    if type_of_or_none(array) is None:
        what = type(value).__name__ if is_plain else array.dtype
        raise wrong_call(where, f"input '{name}': {what} is no {'array of numbers' if is_plain else 'type of Tenon'}")
    return array


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

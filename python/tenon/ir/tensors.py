"""Element types, tensor types and arrays.

Only numpy is needed. numpy has no bf16 and no 8-bit floats: their arrays are float32 arrays whose
elements are values of the type. Arrays of a block type are their bytes, a row of the innermost axis
after the other.
"""
import json
import math
import pathlib
from dataclasses import dataclass

import numpy as np

from .errors import Error

SCHEMA = json.loads(pathlib.Path(__file__).with_name("schema.json").read_text("utf-8"))
MAX_RANK = 8
INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class DType:
    """kind: boolean, integer, floating, block; stored: moved and cast, but not computed with; object, or linear
    object, which changes: a class."""

    name: str
    kind: str
    block: int  # elements in one block; 1 for plain types
    bytes: int  # of one block
    written: bool = True  # whether `quantize` and caches can make it


DTYPES = {entry["name"]: DType(**entry) for entry in SCHEMA["dtypes"]}
NUMPY = {"bool": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64,
         "bf16": np.float32, "f8_e4m3": np.float32, "f8_e5m2": np.float32, "c64": np.complex64}
NUMPY.update({f"{sign}{bits}": np.dtype(f"{sign}{bits // 8}").type
              for sign in "iu" for bits in (8, 16, 32, 64)})
# Bits after the point, exponent of the smallest normal number, largest number, what lies beyond.
SMALL_FLOATS = {"bf16": (7, -126, (2 - 2**-7) * 2.0**127, math.inf),
                "f8_e4m3": (3, -6, 448.0, math.nan), "f8_e5m2": (2, -14, 57344.0, math.inf)}


def is_floating(dtype):
    return DTYPES[dtype].kind == "floating"


def is_integer(dtype):
    return DTYPES[dtype].kind == "integer"


def is_block(dtype):
    return DTYPES[dtype].kind == "block"


def is_stored(dtype):
    return DTYPES[dtype].kind == "stored"


def is_object(dtype):
    return DTYPES[dtype].kind.endswith("object")


def is_linear_object(dtype):
    return DTYPES[dtype].kind == "linear object"


@dataclass(frozen=True)
class Type:
    """An element type and sizes. A size is a number, a name (the same number wherever it occurs in
    one call of a function), or None: unknown."""

    dtype: str
    dims: tuple = ()

    def __post_init__(self):
        object.__setattr__(self, "dims", tuple(self.dims))
        if len(self.dims) > MAX_RANK:
            raise Error("BadShape", f"rank {len(self.dims)} exceeds {MAX_RANK}")
        count, counted = 1, True
        for dim in self.dims:
            if not isinstance(dim, int):
                counted = False
                continue
            if dim < 0:
                raise Error("BadShape", f"a size of {dim}")
            count *= max(dim, 1)
            if count > INT64_MAX:
                raise Error("ShapeOverflow", f"{self} has more than 2^63 - 1 elements")
        facts = DTYPES[self.dtype]
        inner = self.dims[-1] if self.dims else 1
        if isinstance(inner, int) and inner % facts.block:
            raise Error("BadShape", f"{inner} columns are not a multiple of {self.dtype}'s block of "
                                    f"{facts.block}")
        if counted and count // facts.block * facts.bytes > INT64_MAX:
            raise Error("ShapeOverflow", f"{self} has more than 2^63 - 1 bytes")

    def __str__(self):
        """As in messages: a scalar is f32[], an object its class."""
        if is_object(self.dtype) and not self.dims:
            return self.dtype
        return f"{self.dtype}[{', '.join('_' if dim is None else str(dim) for dim in self.dims)}]"

    @property
    def rank(self):
        return len(self.dims)

    @property
    def is_static(self):
        return all(isinstance(dim, int) for dim in self.dims)

    @property
    def elements(self):
        return math.prod(self.dims)

    def with_dtype(self, dtype):
        return Type(dtype, self.dims)

    def with_dim(self, axis, size):
        axis %= self.rank
        return Type(self.dtype, self.dims[:axis] + (size,) + self.dims[axis + 1:])

    def text(self):
        """As an annotation: a scalar is f32, since Python has no empty index."""
        return str(self) if self.dims else self.dtype


@dataclass(frozen=True, eq=False)
class Array:
    """A value of a run. numpy takes it where it takes an array."""

    type: Type
    data: np.ndarray

    @property
    def dtype(self):
        return self.type.dtype

    @property
    def shape(self):
        return self.type.dims

    def numpy(self):
        """bf16 and 8-bit floats as float32; a block type as the float32 that it stands for."""
        if is_block(self.dtype):
            from .blocks import decode
            return decode(self)
        return self.data

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.numpy(), dtype)

    def __repr__(self):
        if is_object(self.dtype):
            return f"{self.type} {self.data!r}"
        return f"{self.type} {np.array2string(self.numpy(), threshold=20, precision=5)}"


def bytes_shape(type_):
    """The shape of `Array.data` for a block type."""
    facts = DTYPES[type_.dtype]
    return type_.dims[:-1] + (type_.dims[-1] // facts.block * facts.bytes,)


def rounded(values, dtype):
    """float64 rounded once, to nearest and ties to even, to an array of a floating type."""
    if dtype not in SMALL_FLOATS:
        return np.asarray(values, NUMPY[dtype])
    bits, least, largest, beyond = SMALL_FLOATS[dtype]
    values = np.asarray(values, np.float64)
    exponent = np.maximum(np.frexp(values)[1] - 1, least)
    step = np.ldexp(1.0, exponent - bits)
    result = np.where(np.isfinite(values), np.rint(values / step) * step, values)
    result = np.where(np.abs(result) > largest, np.copysign(beyond, result), result)
    return result.astype(np.float32)


def cast(values, dtype):
    """numpy values as an array of a plain type by the rules of the op `cast`: floating to integer
    truncates and saturates, integers saturate, a NaN is 0; to bool is != 0."""
    values = np.asarray(values)
    if dtype == "bool":
        return values != 0
    if dtype in SMALL_FLOATS or is_floating(dtype):
        if dtype in SMALL_FLOATS or values.dtype.kind in "fb":
            values = values.astype(np.float64)
        return rounded(values, dtype)
    if dtype == "c64":
        return values.astype(np.complex64)
    limits = np.iinfo(NUMPY[dtype])
    if values.dtype.kind != "f":
        if values.dtype.kind == "b":
            return values.astype(NUMPY[dtype])
        own = np.iinfo(values.dtype)
        low, high = max(limits.min, own.min), min(limits.max, own.max)
        return np.clip(values, values.dtype.type(low), values.dtype.type(high)).astype(NUMPY[dtype])
    exact = np.trunc(np.nan_to_num(values.astype(np.float64), posinf=np.inf, neginf=-np.inf))
    inside = (exact >= float(limits.min)) & (exact < float(limits.max))  # 2^63 is beyond i64
    result = np.where(inside, exact, 0).astype(NUMPY[dtype])
    result = np.where(exact >= float(limits.max), NUMPY[dtype](limits.max), result)
    return np.where(exact < float(limits.min), NUMPY[dtype](limits.min), result)


_NARROW = {"bfloat16": "bf16", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2"}  # of the package ml_dtypes


def array_of(values, type_):
    """What a caller passes for a value of this type: an Array, or anything numpy makes one of. An
    element type that numpy has must be that one; float32 stands for bf16 and 8-bit floats."""
    if isinstance(values, Array):
        if values.dtype != type_.dtype:
            raise Error("BadInput", f"needs {type_}, got {values.type}")
        return values
    if is_object(type_.dtype):
        from .objects import load_object
        return load_object(type_.dtype, values)
    if is_block(type_.dtype):
        raise Error("BadInput", f"needs an Array of {type_.dtype}")
    plain = np.asarray(values)
    if isinstance(values, (int, float, list, tuple, bool)):
        held = cast(plain, type_.dtype)
        if held.dtype.kind in "iu" and not np.array_equal(held, plain):
            raise Error("BadInput", f"numbers that {type_.dtype} does not hold")
        plain = held
    if _NARROW.get(plain.dtype.name) == type_.dtype:
        plain = plain.astype(np.float32)
    if plain.dtype != NUMPY[type_.dtype]:
        raise Error("BadInput", f"needs {type_}, got an array of {plain.dtype}")
    if type_.dtype in SMALL_FLOATS:
        plain = rounded(plain, type_.dtype)
    return Array(Type(type_.dtype, plain.shape), plain)

"""Arrays from sizes and values."""

from math import ceil as _ceil

from .. import _tenon
from .operands import _SIGNED, _UNSIGNED, _WHOLE, Buffer, _cast, _like, _ops, _public
from .shaping import _sizes


def _held(value, dtype, what):
    """A number that elements are filled with, as one of Python's; refused where the type does not hold it."""
    value = value.item() if hasattr(value, "item") else value
    name = _tenon.DType(dtype).name
    if name not in _SIGNED and name not in _UNSIGNED:
        return value if isinstance(value, int) else float(value)
    if not isinstance(value, int):
        if not float(value).is_integer():
            raise TypeError(f"{what}: {value!r} among elements of {name}, which are integers")
        value = int(value)
    low, high = (-1 << _SIGNED[name] - 1, (1 << _SIGNED[name] - 1) - 1) if name in _SIGNED else \
        (0, (1 << _UNSIGNED[name]) - 1)
    if not low <= value <= high:
        raise OverflowError(f"{what}: {value} among elements of {name}, which are from {low} to {high}")
    return value


def _is_real(value):
    """Whether attributes, which are real numbers, hold a number as it is."""
    return not isinstance(value, int) or abs(value) <= 2**53 or not -2**63 <= value < 2**64


@_public
def full(dims, value, dtype="f32"):
    """An array of one value."""
    if isinstance(dtype, int):
        raise TypeError(f"{dtype} is no type: sizes are a tuple, such as ({dims}, {dtype})")
    dims = _sizes(dims, ())
    value = _held(value, dtype, "full")
    if not _is_real(value):
        return _ops["broadcast_to"](Buffer(value).astype(dtype), dims=dims)
    return _ops["full"](value=float(value), dims=dims, dtype=dtype)


@_public
def zeros(dims, dtype="f32"):
    """An array of zeros."""
    return full(dims, 0, dtype)


@_public
def ones(dims, dtype="f32"):
    """An array of ones."""
    return full(dims, 1, dtype)


@_public
def full_like(x, value, dtype=None):
    """An array of one value with the sizes of x, also of those that are not known."""
    x = _like(x)
    dtype = dtype or x.dtype
    if all(isinstance(size, int) for size in x.shape):
        return full(x.shape, value, dtype)
    return _ops["broadcast_to"](full((), value, dtype), x)


@_public
def zeros_like(x, dtype=None):
    """Zeros with the sizes of x, and its type where none is given."""
    return full_like(x, 0, dtype)


@_public
def ones_like(x, dtype=None):
    """Ones with the sizes of x, and its type where none is given."""
    return full_like(x, 1, dtype)


@_public
def eye(size, dtype="f32"):
    """The matrix with ones on its diagonal."""
    places = arange(size)
    return _cast(places[:, None] == places, dtype)


@_public
def one_hot(indices, count, dtype="f32"):
    """1 at each index along a new last axis of `count`, else 0."""
    indices = _like(indices)
    return _cast(indices[..., None] == _ops["iota"](size=count, dtype=indices.dtype), dtype)


@_public
def tril(x, diagonal=0):
    """The lower triangle of each matrix, up to a diagonal above the main one, or below it; 0 elsewhere."""
    return _triangle(x, diagonal, _ops["le"])


@_public
def triu(x, diagonal=0):
    """The upper triangle, from a diagonal on."""
    return _triangle(x, diagonal, _ops["ge"])


def _triangle(x, diagonal, kept):
    x = _like(x)
    rows, columns = (_ops["iota"](x, axis=axis, dtype="i64") for axis in (x.ndim - 2, x.ndim - 1))
    return _ops["where"](kept(columns - rows[:, None], diagonal), x, zeros_like(x))


@_public
def linspace(start, stop, count, dtype="f32"):
    """`count` numbers from start to stop, which is the last one; of integers those below, as numpy has it."""
    start, stop = float(start), float(stop)
    places = _ops["iota"](size=count, dtype="f64")
    made = places * ((stop - start) / (count - 1) if count > 1 else 0.0) + start
    if count > 1:
        made = _ops["where"](places == count - 1.0, stop, made)
    return _cast(_ops["floor"](made) if _tenon.DType(dtype).name in _WHOLE else made, dtype)


@_public
def arange(start, stop=None, step=1, dtype=None):
    """start, start + step, ... before stop; i64, or f32 where a number is not an integer."""
    if stop is None:
        start, stop = 0, start
    start, stop, step = (one.item() if hasattr(one, "item") else one for one in (start, stop, step))
    if isinstance(stop, str) or isinstance(start, str):
        raise TypeError(f"arange: the size {stop!r} is known in a run only: ops.iota(x, axis=...) counts along an axis")
    if _all_whole(start, stop, step):
        size = len(range(start, stop, step))
        return _ops["iota"](size=size, start=start, step=step, dtype=dtype or "i64")
    size = max(_ceil((stop - start) / step), 0)
    return _cast(_ops["iota"](size=size, dtype="f64") * float(step) + float(start), dtype or "f32")


def _all_whole(*numbers):
    return all(isinstance(one, int) for one in numbers)

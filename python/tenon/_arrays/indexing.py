"""Subscripts: x[1, ..., ::2], x[mask], x[rows, columns]."""

from builtins import complex as _complex
from typing import NamedTuple

from ..errors import Error
from .operands import Buffer, Tensor, _cast, _is_whole, _like, _ops, _public, functions
from .shaping import _TO_END, slice_axis, unsqueeze


@_public
def index(x, at):
    """x[at], as numpy has it: integers, slices, None, Ellipsis, arrays or lists of integers, and masks whose values are
    known. Of tensors of a graph, computed indices count from the front."""
    x = _like(x)
    at = _subscripts(x, at if isinstance(at, tuple) else (at,))
    # Beside an array, integers are arrays of no axes, whose places count for where the arrays' axes go.
    arrays, places, axis = [], [], 0
    for place, one in enumerate(at):
        if one is Ellipsis:  # of no axes, which parts what stands around it all the same
            continue
        if one is None:
            x = unsqueeze(x, axis)
            axis += 1
        elif isinstance(one, slice):
            if one != slice(None):
                x = slice_axis(x, axis, one.start, one.stop, 1 if one.step is None else one.step)
            axis += 1
        elif isinstance(one, int):
            x = _picked(x, axis, one)
            places.append((place, axis))
        else:
            if isinstance(one, _Mask):
                if one.is_new:
                    x = unsqueeze(x, axis)
                if isinstance(x.shape[axis], int) and one.size != x.shape[axis]:
                    raise IndexError(f"a mask of {one.size} elements for axis {axis} of {x.type!r}")
                one = one.places
            arrays.append((axis, one))
            places.append((place, axis))
            axis += 1
    if not arrays:
        return x
    together = all(b - a == 1 for (a, _), (b, _) in zip(places, places[1:]))
    return _gathered(x, arrays, places[0][1] if together else 0)


@_public
def take_along(x, index, axis=-1):
    """y[.., i, ..] = x[.., index[.., i, ..], ..] along the last axis or another: numpy.take_along_axis."""
    return _ops["take_along"](_like(x), index, axis=axis)


@_public
def scatter(x, index, source, axis=-1, mode=""):
    """x with the source's elements at index[.., i, ..] along the last axis or another: torch.scatter. `mode` "add", "mul",
    "min" or "max" combines them with what is there."""
    return _ops["scatter"](_like(x), index, source, axis=axis, mode=mode)


def _subscripts(x, at):
    """One for each axis of x, and Nones: masks as arrays of integers, Ellipsis as slices where it stands for axes."""
    found = []
    for one in at:
        if one is None or one is Ellipsis or isinstance(one, slice):
            found.append(one)
        elif isinstance(one, int) and not isinstance(one, bool):
            found.append(one)
        elif not hasattr(one, "shape") and hasattr(one, "__index__") and not isinstance(one, bool):
            found.append(one.__index__())
        else:
            found += _indices(one)
    taken = sum(1 for one in found if one is not None and one is not Ellipsis
                and not (isinstance(one, _Mask) and one.is_new))
    if taken > x.ndim:
        raise IndexError(f"{taken} indices for {x.type!r}")
    dots = [i for i, one in enumerate(found) if one is Ellipsis]
    if len(dots) > 1:
        raise IndexError("more than one Ellipsis")
    position = dots[0] if dots else len(found)
    rest = [slice(None)] * (x.ndim - taken) or found[position:position + 1]
    return [*found[:position], *rest, *found[position + 1:]]


class _Mask(NamedTuple):
    """One axis of a mask: the places where it is true, and its size. That of a bool without axes is a new one."""
    places: Buffer
    size: int
    is_new: bool = False


def _indices(one):
    """An array of integers as it is, a mask as one _Mask for each of its axes."""
    if isinstance(one, (str, float, _complex)):
        raise IndexError(f"{one!r} is no subscript: integers, slices, None, Ellipsis and arrays of integers are")
    is_empty_list = isinstance(one, (list, tuple)) and len(one) == 0
    one = functions["zeros"]((0,), "i64") if is_empty_list else _like(one)
    if one.dtype == "bool":
        if isinstance(one, Tensor):
            raise IndexError("a mask decides the result's size by its values, which are not known while a program is "
                             "recorded: use where(), or arrays of numpy's")
        if not one.ndim:
            return [_Mask(functions["zeros"]((int(one.item()),), "i64"), 1, is_new=True)]
        return [_Mask(Buffer(places), size) for places, size in zip(one.numpy().nonzero(), one.shape)]
    if not _is_whole(one):
        raise IndexError(f"{one.type!r} is no array of integers")
    return [one if one.dtype in ("i32", "i64") else _cast(one, "i64")]


def _picked(x, axis, at):
    """Element `at` of an axis."""
    size = x.shape[axis]
    if isinstance(size, int):
        if not -size <= at < size:
            raise IndexError(f"index {at} of axis {axis}, which has {size} elements")
        at %= size
    end = at + 1 if at != -1 else _TO_END
    return _ops["squeeze"](_ops["slice"](x, axis=axis, begin=at, end=end), axis=axis)


def _gathered(x, arrays, to):
    """Elements at arrays of integers, [(axis, array), ...], which are broadcast; their axes stand at axis `to`."""
    if len(arrays) == 1:
        axis, one = arrays[0]
        if isinstance(x, Tensor) or isinstance(one, Tensor):
            made = _ops["gather"](x, _from_front(one, x.shape[axis], axis), axis=axis)
        else:
            try:  # most indices count from the front
                made = _ops["gather"](x, one, axis=axis)
            except Error as error:
                if error.code != "OutOfRange":
                    raise
                made = _ops["gather"](x, _from_front(one, x.shape[axis], axis), axis=axis)
            if not made.size:  # of which no index is read
                _from_front(one, x.shape[axis], axis)
        return made if axis == to else _moved(made, axis, one.ndim, to)
    arrays = [(axis, _from_front(one, x.shape[axis], axis)) for axis, one in arrays]
    first = arrays[0][0]
    order = [axis for axis, _ in arrays]
    rest = [axis for axis in range(x.ndim) if axis not in order]
    before = [axis for axis in rest if axis < first]
    x = _ops["permute"](x, order=tuple(before + order + rest[len(before):]))
    sizes = x.shape[first:first + len(order)]
    if not all(isinstance(size, int) for size in sizes[1:]):
        raise IndexError(f"arrays as subscripts of axes of {x.type!r} whose sizes are not known")
    flat, is_valid = None, None
    for size, (_, one) in zip(sizes, arrays):
        one = _cast(one, "i64")
        if isinstance(one, Tensor) and isinstance(size, int):  # what is out of range must not be another's place
            fits = (one >= 0) & (one < size)
            is_valid = fits if is_valid is None else is_valid & fits
        flat = one if flat is None else flat * size + one
    if is_valid is not None:
        flat = _ops["where"](is_valid, flat, -1)
    made = _ops["gather"](_ops["merge_axes"](x, axis=first, count=len(order)), flat, axis=first)
    return made if first == to else _moved(made, first, flat.ndim, to)


def _moved(x, axis, count, to):
    """`count` axes from `axis` on, moved to `to`."""
    moved = list(range(axis, axis + count))
    rest = [one for one in range(x.ndim) if one not in moved]
    return _ops["permute"](x, order=tuple(rest[:to] + moved + rest[to:]))


def _from_front(one, size, axis):
    """Indices whose values are known, as those that count from the front; IndexError where they are out of range."""
    if isinstance(one, Tensor) or 0 in one.shape:
        return one
    values = one.numpy()
    low, high = int(values.min()), int(values.max())
    if isinstance(size, int) and not -size <= low <= high < size:
        raise IndexError(f"index {low if low < -size else high} of axis {axis}, which has {size} elements")
    if low >= 0:
        return one
    if not isinstance(size, int):
        raise IndexError(f"index {low} of axis {axis}, whose size is not known: arrays of indices count from the front")
    return Buffer((values + size * (values < 0)).astype(values.dtype))

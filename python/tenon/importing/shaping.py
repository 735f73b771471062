"""Sizes of results, and slices: what ops of several formats need."""

from .._tenon import all_ops
from . import sizes as sz
from .errors import NotKnown
from .types import INTEGERS, NUMPY, limits

_END = 2**63 - 1


def shaped(value, shape):
    """The value, which has these sizes; None where they are not known."""
    return value if shape is None else value.has_shape(shape)


def broadcast_shape(*values):
    """The sizes of values that are broadcast together; None where two that are not known may differ."""
    return broadcast_sizes(*(one.shape for one in values))


def broadcast_sizes(*shapes):
    rank = max(map(len, shapes))
    shapes = [(1,) * (rank - len(one)) + tuple(one) for one in shapes]
    result = []
    for sizes in zip(*shapes):
        others = [size for size in sizes if size != 1]
        known = [size for size in others if isinstance(size, int)]
        if not known and len(set(others)) > 1:
            return None
        result.append(known[0] if known else others[0] if others else 1)
    return tuple(result)


def items(value):
    """The numbers of a scalar or vector that are known as sizes: a list, or None."""
    if value.sizes is not None:
        return value.sizes if isinstance(value.sizes, list) else [value.sizes]
    if value.is_known and value.dtype == "i64" and value.rank <= 1 and value.array.size <= 64:
        return [int(one) for one in value.array.reshape(-1)]
    return None


def wrapped(n, x, to):
    """A cast whose integers keep their lower bits, where Tenon's cast takes the nearest integer of the type."""
    if x.dtype not in INTEGERS or to not in INTEGERS or x.dtype == to:
        return n.b.cast(x, to)
    if x.is_known:
        return n.known_like(x.array.astype(NUMPY[to]), x)
    if x.dtype == "u64":
        return wrapped(n, shaped(n.b.bitcast(x, dtype="i64"), x.shape), to)
    if to == "u64":
        return shaped(n.b.bitcast(n.b.cast(x, "i64"), dtype="u64"), x.shape)
    (low, high), (least, most) = limits(to), limits(x.dtype)
    if low <= least and most <= high:
        return n.b.cast(x, to)
    wide = n.b.cast(x, "i64")
    bits = n.b.bitwise_and(wide - low, high - low)
    return shaped(n.b.cast(bits + low, to), x.shape)


def new_sizes(n, have, dims, allow_zero):
    """The sizes that Reshape's second input stands for: 0 keeps one, -1 is what remains."""
    dims = list(dims)
    if dims.count(-1) > 1 or any(isinstance(d, int) and d < -1 for d in dims):
        raise n.malformed(f"a shape of {dims}")
    if not allow_zero:
        for axis, d in enumerate(dims):
            if d == 0:
                if axis >= len(have):
                    raise n.malformed(f"size 0 of axis {axis} keeps a size of {list(have)}")
                dims[axis] = have[axis]
    total = sz.product(have)
    if -1 in dims:
        rest = sz.product(d for d in dims if d != -1)
        if rest == 0:
            raise n.malformed(f"-1 beside a size of 0 in {dims}")
        if isinstance(total, int) and isinstance(rest, int) and total % rest:
            raise n.malformed(f"{list(have)} does not divide into {dims}")
        dims[dims.index(-1)] = sz.divide(total, rest)
    made = sz.product(dims)
    if isinstance(total, int) and isinstance(made, int) and total != made:
        raise n.malformed(f"{list(have)} has {total} elements, {dims} has {made}")
    return tuple(dims)


def sliced(n, x, axis, begin, end, step):
    """x[begin:end:step] of an axis of known size, or with bounds that hold for every size."""
    whole = x.shape[axis]
    if x.is_known:
        at = [slice(None)] * x.rank
        at[axis] = slice(begin, end, step)
        return n.known_like(x.array[tuple(at)], x)
    if isinstance(whole, int):
        begin, end, step = slice(begin, end, step).indices(whole)
        count = len(range(begin, end, step))
        if (count, begin, step) == (whole, 0, 1):
            return x
        if count == 0:
            begin, end, step = 0, 0, 1
        elif step < 0 and end < 0:
            end = _END
        size = count
    else:
        begin, end = _far_bounds(begin, end, step)
        if step < 0 and begin < -1:  # the first element where the axis is shorter
            raise NotKnown(n.where, f"backwards from {begin} of {x!r}: give `shapes`", x.inputs)
        if end != _END and (begin < 0) == (end < 0) and (end <= begin if step > 0 else end >= begin):
            begin, end, step = 0, 0, 1  # no element, whatever the size
        size = _sliced_size(n, x, whole, begin, end, step)
        if size == whole and step == 1:
            return x
    made = n.b.call(all_ops()["slice"], x, axis=axis, begin=begin, end=end, step=step)
    return shaped(made, (*x.shape[:axis], size, *x.shape[axis + 1:])) if size is not None else made


def _far_bounds(begin, end, step):
    """Bounds beyond 31 bits, by which files mean an axis's first and last element: as the op has them."""
    if step > 0:
        return (0 if begin <= -(2**31) else begin), (_END if end is None or end >= 2**31 - 1 else end)
    return (-1 if begin >= 2**31 - 1 else begin), (_END if end is None or end <= -(2**31) else end)


def _sliced_size(n, x, whole, begin, end, step):
    """The size of a slice of an axis whose size is a name, or None."""
    if step != 1:
        return None
    far = end >= 2**31 - 1
    if begin >= 0:
        return sz.sub(whole, begin) if far else end - begin if end >= 0 else sz.sub(sz.add(whole, end), begin)
    return -begin if far else end - begin if end < 0 else None


def clamped(begin, end, step, size):
    """Bounds within an axis; of a negative step, the end before the first element is None."""
    begin, end = (one + size if one < 0 else one for one in (begin, end))
    if step > 0:
        return min(max(begin, 0), size), min(max(end, 0), size)
    end = min(max(end, -1), size - 1)
    return min(max(begin, 0), max(size - 1, 0)), None if end < 0 else end


def _from_end(place, whole):
    """A place of an axis that is so many elements before its end as a negative number."""
    if isinstance(place, int):
        return place
    distance = sz.sub(whole, place)
    if not isinstance(distance, int) or distance < 0:
        return place
    return -distance if distance else _END


def sliced_by_sizes(n, x, axis, begin, end, step):
    """A slice whose bounds are sizes of inputs: rows picked by their numbers."""
    if step != 1:
        raise NotKnown(n.where, f"from {begin!r} to {end!r} in steps of {step}: give `shapes`", x.inputs)
    if end == x.shape[axis] or isinstance(end, int) and end >= 2**31 - 1:
        end = x.shape[axis]
        if begin == 0:
            return x
    first, last = (_from_end(one, x.shape[axis]) for one in (begin, end))
    if isinstance(first, int) and isinstance(last, int):
        return sliced(n, x, axis, first, last, 1)
    begin, end = (sz.add(x.shape[axis], one) if sz.order(one, 0) == -1 else one for one in (begin, end))
    if begin == 0 and end == x.shape[axis]:
        return x
    count = sz.sub(end, begin)
    if count == x.shape[axis]:
        return x
    places = n.b.iota(count) + n.b.scalar_size(begin)
    made = n.b.gather(x, places, axis=axis)
    return shaped(made, (*x.shape[:axis], count, *x.shape[axis + 1:]))


def repeated(n, x, axis, count, inner=False):
    """An axis `count` times after itself, or each of its elements `count` times."""
    if count == 1:
        return x
    shape = x.shape
    if shape[axis] == 1:
        return n.b.broadcast(x, (*shape[:axis], count, *shape[axis + 1:]))
    at = axis + 1 if inner else axis
    wide = n.b.broadcast(n.b.reshape_to(x, (*shape[:at], 1, *shape[at:])), (*shape[:at], count, *shape[at:]))
    return n.b.reshape_to(wide, (*shape[:axis], sz.mul(count, shape[axis]), *shape[axis + 1:]))


def triangle(n, x, diagonal, upper):
    """x with zeros below a diagonal, or above it, of its last two axes."""
    rows, columns = x.shape[-2:]
    row = n.b.unsqueeze(n.b.iota(rows), 1)
    keep = (n.b.ge if upper else n.b.le)(n.b.iota(columns), row + diagonal)
    if x.dtype == "bool":
        return shaped(n.b.logical_and(x, keep), x.shape)
    return shaped(n.b.where(keep, x, n.b.number(0, x.dtype)), x.shape)


def fitted(n, x, axis, size):
    """x cut off or filled with zeros to `size` elements of an axis."""
    if not 1 <= size <= 2**24:
        raise n.malformed(f"a transform of {size} elements")
    have = n.known_size(x, axis)
    if have >= size:
        return sliced(n, x, axis, 0, size, 1)
    return n.b.pad(x, before=(0,) * x.rank, after=tuple(size - have if i == axis else 0 for i in range(x.rank)))

"""The same elements in another shape or order."""

from math import prod as _prod

from .operands import Buffer, Tensor, _axes, _axis_of, _like, _ops, _public


def _is_number(x):
    """Whether x is an integer, Python's or numpy's, and no array of them."""
    return hasattr(x, "__index__") and not getattr(x, "shape", ())


def _sizes(dims, more):
    """Sizes that are given as a tuple or one after the other: numbers, and names of those that are not known."""
    given = (dims, *more) if more or _is_number(dims) or isinstance(dims, str) else dims
    if not hasattr(given, "__iter__"):
        raise TypeError(f"{given!r} where sizes are needed, numbers or names, as a tuple")
    return tuple(int(size) if hasattr(size, "__index__") else size for size in given)


@_public
def reshape(x, dims, *more):
    """The same elements under other sizes, a tuple or one after the other, of which one may be -1; or under those of
    another array."""
    x = _like(x)
    if isinstance(dims, (Tensor, Buffer)):
        return _ops["reshape"](x, dims)
    dims = _sizes(dims, more)
    if all(isinstance(size, int) for size in (*x.shape, *dims)):
        if -1 in dims:
            rest = _prod(d for d in dims if d != -1)
            dims = tuple(_prod(x.shape) // rest if d == -1 and rest else d for d in dims)
        return _ops["reshape"](x, dims=dims)
    return _reshape_open(x, dims)


def _reshape_open(x, dims):
    """Among sizes that are symbols, or not known: axes are merged, and those of known sizes split. Symbols stay in
    order; the axis of -1 is made of what is left."""
    given = x

    def fail():
        raise ValueError(f"reshape: {given.type!r} to {dims}: axes that are next to each other are merged, and those "
                         "of known sizes split; symbols stay in their order")

    wanted = [size for size in dims if size != 1]  # axes of 1 come last
    whole = x = squeeze(x)
    if wanted.count(-1) > 1:
        fail()
    symbols = [size for size in x.shape if not isinstance(size, int)]
    if -1 in wanted and symbols == [size for size in wanted if not isinstance(size, int)]:
        rest = _prod(size for size in wanted if isinstance(size, int) and size != -1)
        known = _prod(size for size in x.shape if isinstance(size, int))
        if not rest or known % rest:
            fail()
        wanted[wanted.index(-1)] = known // rest
        if known == rest:
            wanted.remove(1)
    at = wanted.index(-1) if -1 in wanted else len(wanted)
    front, left = _paired(x.shape, wanted[:at])
    back, right = _paired(x.shape[left:][::-1], wanted[at + 1:][::-1])
    if front is None or back is None or (at == len(wanted) and left < x.ndim):
        fail()
    groups = front + ([(x.ndim - left - right, (-1,))] if at < len(wanted) else [])
    groups += [(count, sizes[::-1]) for count, sizes in back[::-1]]
    end = whole.ndim
    for count, sizes in reversed(groups):  # from the last axis, so that the places of the others stay
        end -= count
        if count > 1:
            x = _ops["merge_axes"](x, axis=end, count=count)
        if not count:
            x = _ops["unsqueeze"](x, axis=end)
        elif len(sizes) > 1:
            x = _ops["split_axis"](x, axis=end, sizes=sizes)
    was_left = -1 in dims and -1 not in wanted and len(wanted) < sum(size != 1 for size in dims)
    for place, size in enumerate(dims):
        if size == 1 or (size == -1 and was_left):
            x = _ops["unsqueeze"](x, axis=place)
    return x


def _paired(have, want):
    """Which axes become which, from the front: [(how many, their new sizes), ...] until `want` is used up, and how many
    in all; (None, 0) where they do not fit. No size is 1."""
    groups, i, want = [], 0, list(want)
    while want:
        if i < len(have) and have[i] is not None and have[i] == want[0]:
            groups.append((1, (want.pop(0),)))
            i += 1
            continue
        ours, theirs, begin, sizes = 1, 1, i, []
        while ours != theirs or not sizes:
            is_ours = ours <= theirs
            part = (have[i] if i < len(have) else None) if is_ours else (want[0] if want else None)
            if not isinstance(part, int) or part < 1:
                return None, 0
            if is_ours:
                ours, i = ours * part, i + 1
            else:
                sizes.append(want.pop(0))
                theirs *= part
        groups.append((i - begin, tuple(sizes)))
    return groups, i


@_public
def broadcast_to(x, dims, *more):
    """x again and again along new axes in front and those of size 1: to these sizes, or to those of another array."""
    if isinstance(dims, (Tensor, Buffer)):
        return _ops["broadcast_to"](_like(x), dims)
    return _ops["broadcast_to"](_like(x), dims=_sizes(dims, more))


@_public
def permute(x, order, *more):
    """Axes in another order, a tuple or one after the other."""
    order = (order, *more) if more or isinstance(order, int) else order
    return _ops["permute"](_like(x), order=tuple(order))


@_public
def transpose(x, *order, axes=None):
    """All axes in reverse, two of them swapped, or an order of all of them, as a tuple or one after the other."""
    x, axes = _like(x), order if axes is None else (axes,)
    if len(axes) == 1 and axes[0] is not None:
        axes = tuple(axes[0])
        return _ops["permute"](x, order=axes)
    if len(axes) > 2:
        return _ops["permute"](x, order=axes)
    return swapaxes(x, *axes) if len(axes) == 2 else _ops["permute"](x, order=tuple(range(x.ndim))[::-1])


@_public
def swapaxes(x, a, b):
    """Two axes swapped."""
    x = _like(x)
    order = list(range(x.ndim))
    a, b = _axis_of(x, a, "swapaxes"), _axis_of(x, b, "swapaxes")
    order[a], order[b] = order[b], order[a]
    return _ops["permute"](x, order=tuple(order))


@_public
def flatten(x, first=0, last=-1):
    """Merges axes first..last."""
    x = _like(x)
    if x.ndim == 0:
        return _ops["unsqueeze"](x, axis=0)
    first, last = _axis_of(x, first, "flatten"), _axis_of(x, last, "flatten")
    return _ops["merge_axes"](x, axis=first, count=last - first + 1)


@_public
def squeeze(x, axis=None):
    """Without an axis of size 1, several such, or all of them (None)."""
    x = _like(x)
    if axis is None:
        axis = [i for i, size in enumerate(x.shape) if size == 1]
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    for one in sorted((a % x.ndim if -x.ndim <= a < x.ndim else a for a in axes), reverse=True):
        x = _ops["squeeze"](x, axis=one)
    return x


@_public
def chunk(x, count, axis=0):
    """As many parts of an axis, of one size but for the last one."""
    x = _like(x)
    size = x.shape[_axis_of(x, axis, "chunk")]
    if not isinstance(size, int):
        raise ValueError(f"chunk: axis {axis} of {x.type!r} has a size that is not known")
    if count < 1:
        raise ValueError(f"chunk: {count} parts")
    step = max(-(-size // count), 1)
    return [slice_axis(x, axis, begin, begin + step) for begin in range(0, max(size, 1), step)]


@_public
def concat(arrays, *more, axis=0):
    """Arrays one after the other along an axis: concat([a, b], 1), or concat(a, b, axis=1)."""
    if len(more) == 1 and _is_number(more[0]):
        axis = more[0]
    elif more:
        arrays = (arrays, *more)
    arrays = [_like(one) for one in arrays]
    return _ops["concat"](*arrays, axis=axis)


@_public
def stack(arrays, axis=0):
    """Arrays of one shape side by side along a new axis."""
    arrays = [_like(one) for one in arrays]
    if not arrays:
        raise ValueError("stack: no arrays")
    axis = _axis_of(arrays[0], axis, "stack", arrays[0].ndim + 1)
    return concat([unsqueeze(one, axis) for one in arrays], axis)


@_public
def unsqueeze(x, axis):
    """A new axis of size 1 before `axis`; negative ones count from the end of the result."""
    x = _like(x)
    return _ops["unsqueeze"](x, axis=_axis_of(x, axis, "unsqueeze", x.ndim + 1))


@_public
def slice_axis(x, axis, begin, end=None, step=1):
    """Elements begin, begin + step, ... before `end` of one axis, as Python's slices count them."""
    x = _like(x)
    size = x.shape[_axis_of(x, axis, "slice_axis")]
    if isinstance(size, int):
        begin, end, step = slice(begin, end, step).indices(size)
        if begin == end or (begin > end) == (step > 0):
            begin, end, step = 0, 0, 1
        elif end < 0:
            end = _TO_END
    else:  # what counts from the end stays so in the program
        begin = (0 if step > 0 else -1) if begin is None else begin
        end = _TO_END if end is None else end
    return _ops["slice"](x, axis=axis, begin=begin, end=end, step=step)


_TO_END = 2**63 - 1


@_public
def flip(x, axis=None):
    """x backwards along one axis, several, or all (None)."""
    x = _like(x)
    for one in _axes(x, axis):
        x = slice_axis(x, one, None, None, -1)
    return x

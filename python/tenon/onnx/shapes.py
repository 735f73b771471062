"""Ops on sizes and positions: shape arithmetic, reshapes, slices, gathers, pads."""

import math

import numpy as np

from ..importing import sizes as sz
from ..importing.errors import NotKnown
from ..importing.padding import cropped, padded
from ..importing.shaping import clamped, items, new_sizes, repeated, shaped, sliced, sliced_by_sizes, triangle
from ..importing.types import NUMPY, check_computed
from .node import op
from .types import array_of

_END = 2**63 - 1


@op("Shape")
def shape(n, x):
    start, end = n.attribute("start", 0), n.attribute("end", None)
    first, last, _ = slice(start, end).indices(x.rank)
    return n.b.of_sizes(list(x.shape[first:last]), x.inputs if not x.is_static else frozenset())


@op("Size")
def size(n, x):
    return n.b.of_sizes(sz.product(x.shape), x.inputs if not x.is_static else frozenset())


@op("Reshape")
def reshape(n, x, target=None):
    dims = n.attribute("shape") if target is None else n.sizes(target, "the shape")
    computed = [i for i, size in enumerate(dims) if size in n.b.computed]
    if len(computed) == 1 and -1 not in dims:
        dims = [-1 if i in computed else size for i, size in enumerate(dims)]
    dims = new_sizes(n, x.shape, dims, n.attribute("allowzero", 0))
    if x.sizes is not None and len(dims) <= 1:
        return _reshaped_sizes(n, x, dims)
    return n.b.reshape_to(x, dims)


def _reshaped_sizes(n, x, dims):
    held = items(x)
    if len(held) != (dims[0] if dims else 1):
        raise n.malformed(f"{len(held)} numbers to {list(dims)}")
    return n.b.of_sizes(held if dims else held[0], x.inputs)


@op("Flatten")
def flatten(n, x):
    axis = n.attribute("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise n.malformed(f"attribute 'axis': {axis} of {x!r}")
    axis = axis + x.rank if axis < 0 else axis
    return n.b.reshape_to(x, (sz.product(x.shape[:axis]), sz.product(x.shape[axis:])))


def axes_of(n, given, rank, default=None):
    """Axes from the attribute `axes` or an input, counted from the front; each once."""
    axes = n.attribute("axes", None) if given is None else n.integers(given, "the axes")
    if axes is None:
        return default
    axes = [n.axis(axis, rank, "axes") for axis in axes]
    if len(set(axes)) != len(axes):
        raise n.malformed(f"axes {axes}, one of them twice")
    return axes


@op("Squeeze")
def squeeze(n, x, given=None):
    axes = axes_of(n, given, x.rank)
    if axes is None:
        axes = [i for i, one in enumerate(x.shape) if one == 1]
        if not x.is_static:
            raise NotKnown(n.where, f"no axes for {x!r}: give `shapes`", x.inputs)
    if any(isinstance(x.shape[axis], int) and x.shape[axis] != 1 for axis in axes):
        raise n.malformed(f"axes {axes} of {x!r} are not of size 1")
    if x.sizes is not None:
        return n.b.of_sizes(items(x)[0], x.inputs) if axes else x
    made = x
    for axis in sorted(axes, reverse=True):
        made = n.b.squeeze(made, axis=axis)
    return shaped(made, tuple(one for i, one in enumerate(x.shape) if i not in axes))


@op("Unsqueeze")
def unsqueeze(n, x, given=None):
    axes = n.attribute("axes") if given is None else n.integers(given, "the axes")
    rank = x.rank + len(axes)
    axes = sorted(n.axis(axis, rank, "axes") for axis in axes)
    if len(set(axes)) != len(axes):
        raise n.malformed(f"axes {axes}, one of them twice")
    if x.sizes is not None and rank == 1:
        return n.b.of_sizes(items(x), x.inputs)
    kept = iter(x.shape)
    return n.b.reshape_to(x, tuple(1 if i in axes else next(kept) for i in range(rank)))


@op("Transpose")
def transpose(n, x):
    order = n.attribute("perm", list(range(x.rank))[::-1])
    if sorted(order) != list(range(x.rank)):
        raise n.malformed(f"attribute 'perm': {order} of {x!r}")
    if x.is_known:
        return n.known_like(np.transpose(x.array, order), x)
    if order == list(range(x.rank)):
        return x
    return shaped(n.b.permute(x, order), tuple(x.shape[i] for i in order))


@op("Concat")
def concat(n, *values):
    rank = values[0].rank
    if any(one.rank != rank for one in values):
        raise n.malformed(f"ranks differ: {values}")
    axis = n.axis(n.attribute("axis", 1) if n.version < 4 else n.attribute("axis"), rank)
    if rank == 1 and any(one.sizes is not None for one in values):
        held = [items(one) if items(one) is not None else n.b.computed_size(one) for one in values]
        if all(one is not None for one in held):
            return n.b.of_sizes(sum(held, []), frozenset().union(*(one.inputs for one in values)))
    total = 0
    for one in values:
        total = sz.add(total, one.shape[axis])
    made = n.b.concat(values, axis)
    return shaped(made, (*values[0].shape[:axis], total, *values[0].shape[axis + 1:]))


@op("Split")
def split(n, x, given=None):
    axis = n.axis(n.attribute("axis", 0), x.rank)
    sizes = n.attribute("split", None) if given is None else n.integers(given, "the split")
    if sizes is None:
        count = n.attribute("num_outputs", len(n.proto.output))
        if not 1 <= count <= len(n.proto.output):
            raise n.malformed(f"attribute 'num_outputs': {count} of {len(n.proto.output)} outputs")
        whole = n.known_size(x, axis)
        part = -(-whole // count)
        sizes = [max(min(part, whole - i * part), 0) for i in range(count)]
    if isinstance(x.shape[axis], int) and sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise n.malformed(f"parts of {sizes} for axis {axis} of {x!r}")
    made, begin = [], 0
    for one in sizes:
        made.append(sliced(n, x, axis, begin, begin + one, 1))
        begin += one
    return tuple(made)


@op("Slice")
def slice_axes(n, x, starts=None, ends=None, axes=None, steps=None):
    if n.version < 10:
        starts, ends = n.attribute("starts"), n.attribute("ends")
        axes, steps = n.attribute("axes", None), None
    else:
        starts, ends = n.sizes(starts, "starts"), n.sizes(ends, "ends")
        axes = n.integers(axes, "axes") if axes is not None else None
        steps = n.integers(steps, "steps") if steps is not None else None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise n.malformed(f"starts {starts}, ends {ends}, axes {axes}, steps {steps}")
    if isinstance(x.sizes, list) and all(isinstance(one, int) for one in (*starts, *ends)):
        held = x.sizes
        for begin, end, step in zip(starts, ends, steps):
            begin, end = clamped(begin, end, step, len(held))
            held = held[begin:end:step]
        return n.b.of_sizes(held, x.inputs)
    for begin, end, axis, step in zip(starts, ends, axes, steps):
        axis = n.axis(axis, x.rank, "axes")
        if isinstance(begin, int) and isinstance(end, int):
            if isinstance(x.shape[axis], int):
                begin, end = clamped(begin, end, step, x.shape[axis])
            x = sliced(n, x, axis, begin, end, step)
        else:
            x = sliced_by_sizes(n, x, axis, begin, end, step)
    return x


@op("Expand")
def expand(n, x, target):
    dims = n.sizes(target, "the shape")
    rank = max(len(dims), x.rank)
    have = (1,) * (rank - x.rank) + x.shape
    want = (1,) * (rank - len(dims)) + tuple(dims)
    for a, b in zip(have, want):
        if a != b and 1 not in (a, b):
            if isinstance(a, int) and isinstance(b, int):
                raise n.malformed(f"{x!r} to {dims}")
            raise NotKnown(n.where, f"{x!r} to {dims}: give `shapes`", x.inputs)
    return n.b.broadcast(x, tuple(b if a == 1 else a for a, b in zip(have, want)))


@op("Tile")
def tile(n, x, repeats):
    counts = n.sizes(repeats, "the repeats")
    if len(counts) != x.rank or any(isinstance(c, int) and c < 0 for c in counts):
        raise n.malformed(f"repeats {counts} for {x!r}")
    check_computed(n.where, counts)
    for axis, count in enumerate(counts):
        x = repeated(n, x, axis, count)
    return x


@op("ConstantOfShape")
def constant_of_shape(n, target):
    number = np.zeros(1, np.float32)
    if n.has("value"):
        number = array_of(n.attribute("value"), n.importer.folder, n.where)
    if number.size != 1:
        raise n.malformed("attribute 'value' is not one number")
    dims = n.sizes(target, "the shape")
    check_computed(n.where, dims)
    number = number.reshape(())
    if all(isinstance(d, int) for d in dims):
        return n.known_like(np.broadcast_to(number, dims), target)
    return n.b.broadcast(n.b.known(number), dims)


@op("Range")
def range_(n, start, limit, delta):
    ends = [items(one) for one in (start, limit, delta)]
    if all(one is not None and len(one) == 1 for one in ends) and any(one.sizes is not None
                                                                      for one in (start, limit, delta)):
        first, last, step = (one[0] for one in ends)
        if not isinstance(step, int) or abs(step) != 1:
            raise NotKnown(n.where, f"from {first!r} to {last!r} in steps of {step!r}: give `shapes`", start.inputs)
        count = sz.sub(last, first) if step == 1 else sz.sub(first, last)
        made = n.b.iota(count, "i64", 0, step)
        return made if first == 0 else shaped(made + n.b.scalar_size(first), (count,))
    first, last, step = (n.array(one, what).reshape(()) for one, what in
                         ((start, "start"), (limit, "limit"), (delta, "delta")))
    if step == 0:
        raise n.malformed("a delta of 0")
    count = max(math.ceil((float(last) - float(first)) / float(step)), 0)
    check_computed(n.where, [count])
    made = (np.arange(count).astype(first.dtype) * step + first).astype(first.dtype)
    return n.known_like(made, start, limit, delta)


@op("EyeLike")
def eye_like(n, x):
    rows, columns = n.static(x)
    check_computed(n.where, [rows, columns])
    return n.b.known(np.eye(rows, columns, n.attribute("k", 0), dtype=NUMPY[n.type("dtype", x.dtype)]))


@op("Pad")
def pad(n, x, pads=None, value=None, axes=None):
    if n.version < 11:
        widths, number = n.attribute("pads"), n.attribute("value", 0.0)
        number = n.b.number(number, x.dtype)
    else:
        widths, number = n.integers(pads, "the pads"), value
    axes = list(range(x.rank)) if axes is None else [n.axis(a, x.rank, "axes") for a in n.integers(axes, "axes")]
    if len(widths) != 2 * len(axes):
        raise n.malformed(f"pads {widths} for {len(axes)} axes")
    mode = n.words("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    before, after = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = widths[i], widths[i + len(axes)]
    x, before, after = cropped(n, x, before, after)
    if mode == "wrap":
        x = _wound(n, x, before, after)
    if not any(before) and not any(after):
        return x
    sizes = tuple(sz.add(one, b + a) for one, b, a in zip(x.shape, before, after))
    return shaped(padded(n, x, before, after, mode, number), sizes)


def _wound(n, x, before, after):
    """Pads that are wider than their axis, whose elements come again and again: x with them, which leaves none."""
    for axis, size in enumerate(x.shape):
        if isinstance(size, int) and 0 < size < max(before[axis], after[axis]):
            check_computed(n.where, [before[axis] + size + after[axis]])
            places = np.arange(-before[axis], size + after[axis]) % size
            x = n.b.gather(x, n.b.known(places), axis=axis)
            before[axis] = after[axis] = 0
    return x


@op("DepthToSpace")
def depth_to_space(n, x):
    block = n.attribute("blocksize")
    mode = n.words("mode", "DCR", ("DCR", "CRD"))
    count, channels, rows, columns = x.shape
    if block < 1 or n.known_size(x, 1) % (block * block):
        raise n.malformed(f"attribute 'blocksize': {block} for {x!r}")
    depth = channels // (block * block)
    if mode == "DCR":
        parts, order = (count, block, block, depth, rows, columns), [0, 3, 4, 1, 5, 2]
    else:
        parts, order = (count, depth, block, block, rows, columns), [0, 1, 4, 2, 5, 3]
    moved = shaped(n.b.permute(n.b.reshape_to(x, parts), order), tuple(parts[i] for i in order))
    return n.b.reshape_to(moved, (count, depth, sz.mul(rows, block), sz.mul(columns, block)))


@op("SpaceToDepth")
def space_to_depth(n, x):
    block = n.attribute("blocksize")
    count, channels, rows, columns = n.static(x)
    if block < 1 or rows % block or columns % block:
        raise n.malformed(f"attribute 'blocksize': {block} for {x!r}")
    parts = n.b.reshape_to(x, (count, channels, rows // block, block, columns // block, block))
    is_dcr = n.words("mode", "DCR", ("DCR", "CRD")) == "DCR"
    moved = n.b.permute(parts, [0, 3, 5, 1, 2, 4] if is_dcr else [0, 1, 3, 5, 2, 4])
    return n.b.reshape_to(moved, (count, channels * block * block, rows // block, columns // block))


@op("Trilu")
def trilu(n, x, k=None):
    offset = 0 if k is None else int(n.number(k, "k"))
    offset = max(min(offset, 2**31), -2**31)
    return triangle(n, x, offset, n.attribute("upper", 1))


@op("CenterCropPad")
def center_crop_pad(n, x, target):
    wanted = n.integers(target, "the shape")
    axes = axes_of(n, None, x.rank, list(range(x.rank)))
    if len(axes) != len(wanted):
        raise n.malformed(f"{len(wanted)} sizes for {len(axes)} axes")
    for axis, want in zip(axes, wanted):
        have = n.known_size(x, axis)
        if have > want:
            begin = (have - want) // 2
            x = sliced(n, x, axis, begin, begin + want, 1)
        elif have < want:
            before, after = [0] * x.rank, [0] * x.rank
            before[axis] = (want - have) // 2
            after[axis] = want - have - before[axis]
            x = n.b.pad(x, before=tuple(before), after=tuple(after))
    return x


@op("BitCast")
def bit_cast(n, x):
    to = n.type("to")
    if NUMPY[to].itemsize != NUMPY[x.dtype].itemsize:
        raise n.error(f"{x.dtype} as {to}", "to")
    array = n.array(x, "x, whose bits no op takes,")
    made = np.frombuffer(array.tobytes(), NUMPY[to]).reshape(array.shape)
    return n.known_like(made, x)

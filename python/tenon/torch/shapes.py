"""Ops on sizes and places: views, slices, joins, repeats, pads."""

import numpy as np

from ..importing import sizes as sz
from ..importing.padding import cropped, padded
from ..importing.shaping import broadcast_shape, clamped, repeated, shaped, sliced, sliced_by_sizes
from ..importing.values import Value
from .node import op

_LARGEST = 2**63 - 1


def _sizes(n, have, size):
    """The sizes that a view has, with the one that -1 stands for."""
    size = list(size)
    if size.count(-1) > 1 or any(isinstance(one, int) and one < -1 for one in size):
        raise n.malformed(f"argument 'size': {size}")
    if -1 in size:
        place = size.index(-1)
        if n.metas[0] is not None and n.shape[place] is not None:
            size[place] = n.shape[place]
        else:
            size[place] = sz.divide(sz.product(have), sz.product(one for one in size if one != -1))
    total, made = sz.product(have), sz.product(size)
    if isinstance(total, int) and isinstance(made, int) and total != made:
        raise n.malformed(f"sizes {list(have)} as {size}")
    return tuple(size)


@op("reshape.default", "reshape_as.default", "_unsafe_view.default", "_reshape_copy.default")
@op("view.default", "view_as.default", view=True)
def view(n, self, size=None, shape=None, other=None):
    wanted = other.shape if other is not None else size if shape is None else shape
    return n.b.reshape_to(self, _sizes(n, self.shape, wanted))


@op("view.dtype", view=True)
def view_as_type(n, self, dtype):
    if dtype == self.dtype:
        return self
    raise n.error("the bits as another type", "dtype")


@op("ravel.default")
def ravel(n, self):
    return n.b.reshape_to(self, (sz.product(self.shape),))


@op("flatten.using_ints")
def flatten(n, self, start_dim=0, end_dim=-1):
    if not self.rank:
        return n.b.reshape_to(self, (1,))
    first, last = n.axis(start_dim, self.rank, "start_dim"), n.axis(end_dim, self.rank, "end_dim")
    inner = sz.product(self.shape[first:last + 1])
    return n.b.reshape_to(self, (*self.shape[:first], inner, *self.shape[last + 1:]))


@op("unflatten.int", view=True)
def unflatten(n, self, dim, sizes):
    axis = n.axis(dim, self.rank, "dim")
    sizes = list(sizes)
    if -1 in sizes:
        rest = sz.product(one for one in sizes if one != -1)
        sizes[sizes.index(-1)] = sz.divide(self.shape[axis], rest)
    return n.b.reshape_to(self, (*self.shape[:axis], *sizes, *self.shape[axis + 1:]))


@op("broadcast_tensors.default")
def broadcast_tensors(n, tensors):
    return [n.b.broadcast(one, broadcast_shape(*tensors)) for one in tensors]


@op("expand.default", "expand_as.default", "broadcast_to.default", view=True)
def expand(n, self, size=None, implicit=False, other=None):
    size = list(other.shape if size is None else size)
    have = (1,) * (len(size) - self.rank) + self.shape
    if len(have) != len(size):
        raise n.malformed(f"{self!r} to {size}")
    return n.b.broadcast(self, tuple(h if one == -1 or one == h else one for one, h in zip(size, have)))


@op("permute.default", "t.default", "transpose.int", "movedim.int", "moveaxis.int", "movedim.intlist",
    "moveaxis.intlist", "numpy_T.default", "mT.default", "swapaxes.default", "swapdims.default", view=True)
def permute(n, self, dims=None, dim0=None, dim1=None, source=None, destination=None, axis0=None, axis1=None):
    order = list(range(self.rank))
    if dims is not None:
        order = n.axes(dims, self.rank, "dims")
        if len(order) != self.rank:
            raise n.malformed(f"argument 'dims': {dims} of {self!r}")
    elif isinstance(source, (list, tuple)):
        moved = [n.axis(one, self.rank, "source") for one in source]
        to = [n.axis(one, self.rank, "destination") for one in destination]
        rest = iter(i for i in range(self.rank) if i not in moved)
        order = [moved[to.index(i)] if i in to else next(rest) for i in range(self.rank)]
    elif source is not None:
        order.insert(n.axis(destination, self.rank, "destination"), order.pop(n.axis(source, self.rank, "source")))
    elif ".t." in n.op or "numpy_T" in n.op:
        order = order[::-1]
    else:
        first, second = (dim0, dim1) if dim0 is not None else (axis0, axis1) if axis0 is not None else (-2, -1)
        if self.rank:
            first, second = n.axis(first, self.rank, "dim0"), n.axis(second, self.rank, "dim1")
            order[first], order[second] = second, first
    return permuted(n, self, order)


def permuted(n, x, order):
    if list(order) == list(range(x.rank)):
        return x
    if x.is_known:
        return n.known_like(x.array.transpose(order), x)
    return shaped(n.b.permute(x, list(order)), tuple(x.shape[i] for i in order))


@op("unsqueeze.default", view=True)
def unsqueeze(n, self, dim):
    axis = n.axis(dim, self.rank + 1, "dim")
    if self.sizes is not None and not self.rank:
        return n.b.of_sizes([self.sizes], self.inputs)
    return n.b.reshape_to(self, (*self.shape[:axis], 1, *self.shape[axis:]))


@op("squeeze.default", "squeeze.dim", "squeeze.dims", view=True)
def squeeze(n, self, dim=None):
    axes = n.listed_axes(dim, self.rank)
    return n.b.reshape_to(self, tuple(one for i, one in enumerate(self.shape) if i not in axes or one != 1))


# Slices


def slice_bounds(n, whole, start, end, step):
    """Bounds of a slice as torch means them: (begin, end), integers or sizes."""
    start = 0 if start is None else start
    end = _LARGEST if end is None else end
    n.integer(step, "step")
    if step < 1:
        raise n.malformed(f"argument 'step': {step}")
    if isinstance(whole, int) and isinstance(start, int) and isinstance(end, int):
        start, end = clamped(start, end, 1, whole)
        return start, max(start, end)
    return start, end


@op("narrow_copy.default")
@op("slice.Tensor", "narrow.default", view=True)
def slice_(n, self, dim=0, start=None, end=None, step=1, length=None):
    axis = n.axis(dim, self.rank, "dim")
    if length is not None:
        start = sz.add(self.shape[axis], start) if isinstance(start, int) and start < 0 else start
        end = sz.add(start, length)
    return sliced_as(n, self, axis, start, end, step)


def sliced_as(n, x, axis, start, end, step=1):
    start, end = slice_bounds(n, x.shape[axis], start, end, step)
    if isinstance(start, Value) or isinstance(end, Value):
        raise n.not_known("bounds that the program computes")
    if isinstance(start, int) and isinstance(end, int):
        return sliced(n, x, axis, start, end, step)
    return sliced_by_sizes(n, x, axis, start, end, step)


@op("select.int", view=True)
def select(n, self, dim, index):
    axis = n.axis(dim, self.rank, "dim")
    if self.sizes is not None and isinstance(index, int):
        return n.b.of_sizes(self.sizes[index], self.inputs)
    return selected(n, self, axis, index)


def selected(n, x, axis, index):
    """One slice along an axis, without that axis."""
    whole, rest = x.shape[axis], (*x.shape[:axis], *x.shape[axis + 1:])
    if isinstance(index, Value):
        return shaped(n.b.gather(x, n.cast(n.b.reshape_to(index, ()), "i64"), axis=axis), rest)
    if isinstance(index, int) and isinstance(whole, int) and not -whole <= index < whole:
        raise n.malformed(f"index {index} of axis {axis} of {x!r}")
    if isinstance(index, int) and (isinstance(whole, int) or index >= 0 or index == -1):
        index = index + whole if index < 0 and isinstance(whole, int) else index
        end = None if index == -1 else index + 1
        return n.b.reshape_to(sliced(n, x, axis, index, end, 1), rest)
    place = sz.add(whole, index) if isinstance(index, int) else index
    return shaped(n.b.gather(x, n.b.constant(n.b.of_sizes(place)), axis=axis), rest)


@op("split.Tensor", "split_with_sizes.default", "split.sizes", "chunk.default", "unsafe_split.Tensor",
    "unsafe_chunk.default", "tensor_split.sections", "tensor_split.indices", view=True)
def split(n, self, split_size=None, split_sizes=None, chunks=None, sections=None, indices=None, dim=0):
    axis = n.axis(dim, self.rank, "dim")
    begin, made = 0, []
    for one in parts(n, self.shape[axis], split_size, split_sizes, chunks, sections, indices):
        made.append(sliced_as(n, self, axis, begin, sz.add(begin, one)))
        begin = sz.add(begin, one)
    return made


def parts(n, whole, split_size, split_sizes, chunks, sections, indices):
    if isinstance(split_size, list):
        split_sizes = split_size
    if split_sizes is not None:
        return split_sizes
    if isinstance(whole, sz.Size) or isinstance(split_size, sz.Size):
        count = len(n.metas)
        if split_size is not None and isinstance(whole, sz.Size):
            return [split_size] * (count - 1) + [sz.sub(whole, sz.mul(split_size, count - 1))]
        raise n.not_known(f"parts of an axis of {whole!r}: give `shapes`")
    if indices is not None:
        places = [min(max(one + whole if one < 0 else one, 0), whole) for one in indices]
        return [max(b - a, 0) for a, b in zip([0, *places], [*places, whole])]
    if sections is not None:
        return [whole // sections + (i < whole % sections) for i in range(sections)]
    size = split_size if chunks is None else -(-whole // chunks)
    if size == 0:
        return [whole] * (len(n.metas) or 1)
    return [min(size, whole - at) for at in range(0, whole, size)] or [0] * max(len(n.metas), 1)


@op("unbind.int", view=True)
def unbind(n, self, dim=0):
    axis = n.axis(dim, self.rank, "dim")
    return [selected(n, self, axis, i) for i in range(n.known_size(self, axis))]


@op("diagonal.default", view=True)
def diagonal_(n, self, offset=0, dim1=0, dim2=1):
    first, second = n.axis(dim1, self.rank, "dim1"), n.axis(dim2, self.rank, "dim2")
    rest = [i for i in range(self.rank) if i not in (first, second)]
    rows, columns = n.known_size(self, first), n.known_size(self, second)
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    x = permuted(n, self, [*rest, first, second])
    flat = n.b.reshape_to(x, (*x.shape[:-2], rows * columns))
    places = (n.arange(count) - min(offset, 0)) * columns + n.arange(count) + max(offset, 0)
    return shaped(n.b.gather(flat, n.b.known(places), axis=flat.rank - 1), (*flat.shape[:-1], count))


# Joins


@op("cat.default", "concat.default", "concatenate.default")
def cat(n, tensors, dim=0):
    parts = [one for one in tensors if one.shape != (0,)] or tensors[:1]  # torch leaves out empty vectors
    axis = n.axis(dim, parts[0].rank, "dim")
    return joined(n, [n.cast(one, n.dtype) for one in parts], axis)


def joined(n, parts, axis):
    if any(one.rank != parts[0].rank for one in parts):
        raise n.malformed(f"ranks differ: {parts}")
    total = 0
    for one in parts:
        total = sz.add(total, one.shape[axis])
    if len(parts) == 1:
        return parts[0]
    return shaped(n.b.concat(parts, axis), (*parts[0].shape[:axis], total, *parts[0].shape[axis + 1:]))


@op("stack.default")
def stack(n, tensors, dim=0):
    axis = n.axis(dim, tensors[0].rank + 1, "dim")
    parts = [n.b.reshape_to(n.cast(one, n.dtype), (*one.shape[:axis], 1, *one.shape[axis:])) for one in tensors]
    return joined(n, parts, axis)


@op("hstack.default", "vstack.default", "dstack.default", "column_stack.default")
def side_by_side(n, tensors):
    name = n.op.split(".")[1]
    parts = [n.cast(one, n.dtype) for one in tensors]
    if name == "vstack":
        parts = [n.b.reshape_to(one, (1,) * (2 - one.rank) + one.shape) for one in parts]
    elif name == "dstack":
        parts = [n.b.reshape_to(one, (1,) * (2 - one.rank) + one.shape) if one.rank < 2 else one for one in parts]
        parts = [n.b.reshape_to(one, (*one.shape, 1)) if one.rank == 2 else one for one in parts]
        return joined(n, parts, 2)
    elif name == "column_stack":
        parts = [n.b.reshape_to(one, one.shape + (1,) * (2 - one.rank)) for one in parts]
    else:
        parts = [n.b.reshape_to(one, (1,)) if not one.rank else one for one in parts]
    return joined(n, parts, 1 if name != "vstack" and parts[0].rank > 1 else 0)


@op("atleast_1d.Sequence", "atleast_2d.Sequence", "atleast_3d.Sequence")
@op("atleast_1d.default", "atleast_2d.default", "atleast_3d.default", view=True)
def at_least(n, self=None, tensors=None):
    """Axes of one element until there are so many: in front, and the third behind."""
    if self is None:
        return [at_least(n, one) for one in tensors]
    count, sizes = int(n.op.split("atleast_")[1][0]), self.shape
    if len(sizes) < min(count, 2):
        sizes = (1,) * (min(count, 2) - len(sizes)) + sizes
    return n.b.reshape_to(self, (*sizes, 1) if len(sizes) < count else sizes)


@op("block_diag.default")
def block_diag(n, tensors):
    """The matrices beside each other along a diagonal, zeros elsewhere."""
    blocks = [n.cast(n.b.reshape_to(one, (1,) * (2 - one.rank) + one.shape), n.dtype) for one in tensors]
    columns, left, rows = sum(n.known_size(one, 1) for one in blocks), 0, []
    for one in blocks:
        width = one.shape[1]
        row = padded(n, one, [0, left], [0, columns - left - width], "constant", None)
        rows.append(shaped(row, (one.shape[0], columns)))
        left += width
    return joined(n, rows, 0)


@op("cartesian_prod.default")
def cartesian_product(n, tensors):
    if len(tensors) == 1:
        return tensors[0]
    axes = [n.b.reshape_to(one, (sz.product(one.shape), 1)) for one in meshgrid(n, tensors)]
    return joined(n, axes, 1)


@op("diag_embed.default")
def diag_embed(n, self, offset=0, dim1=-2, dim2=-1):
    axes = [n.axis(dim1, self.rank + 1, "dim1"), n.axis(dim2, self.rank + 1, "dim2")]
    if axes[0] == axes[1]:
        raise n.malformed(f"argument 'dim1': {dim1}, which is 'dim2'")
    made = on_diagonal(n, self, n.integer(offset, "offset"))
    rest = [i for i in range(made.rank) if i not in axes]
    order = [axes.index(i) + made.rank - 2 if i in axes else rest.index(i) for i in range(made.rank)]
    return permuted(n, made, order)


def on_diagonal(n, x, offset):
    """Matrices whose diagonal, so far right of the main one, is the last axis of x."""
    rest, size = x.shape[:-1], sz.add(x.shape[-1], abs(offset))
    places = n.b.iota(size)
    hit = n.b.eq(n.b.unsqueeze(places, 1) + n.value(offset, "i64"), places)
    if offset:
        x = shaped(padded(n, x, [0] * x.rank, [0] * (x.rank - 1) + [abs(offset)], "constant", None), (*rest, size))
    along = n.b.unsqueeze(x, x.rank if offset >= 0 else x.rank - 1)
    return shaped(n.b.where(hit, along, n.b.number(0, x.dtype)), (*rest, size, size))


@op("diag.default", "diagflat.default")
def diag(n, self, diagonal=0, offset=0):
    offset = n.integer(diagonal or offset, "offset")
    if "diagflat" in n.op:
        return on_diagonal(n, n.b.reshape_to(self, (sz.product(self.shape),)), offset)
    return on_diagonal(n, self, offset) if self.rank == 1 else diagonal_(n, self, offset)


@op("tril_indices.default", "triu_indices.default")
def triangle_indices(n, row, col, offset=0, **_):
    rows, columns, offset = n.integer(row, "row"), n.integer(col, "col"), n.integer(offset, "offset")
    n.arange(rows, columns)
    made = (np.tril_indices if "tril" in n.op else np.triu_indices)(rows, offset, columns)
    return n.cast(n.b.known(np.stack(made).astype(np.int64)), n.dtype)


# Repeats


@op("repeat.default", "tile.default")
def repeat(n, self, repeats=None, dims=None):
    counts = list(repeats if dims is None else dims)
    counts = [1] * (self.rank - len(counts)) + counts
    x = n.b.reshape_to(self, (1,) * (len(counts) - self.rank) + self.shape)
    for axis, count in enumerate(counts):
        x = repeated(n, x, axis, count)
    return x


@op("repeat_interleave.self_int")
def repeat_interleave(n, self, repeats, dim=None, output_size=None):
    x = self if dim is not None else n.b.reshape_to(self, (sz.product(self.shape),))
    return repeated(n, x, n.axis(dim or 0, x.rank, "dim"), repeats, inner=True)


@op("repeat_interleave.self_Tensor", "repeat_interleave.Tensor")
def repeat_interleave_by(n, self=None, repeats=None, dim=None, output_size=None):
    counts = n.array(repeats, "how often each is repeated")
    places = np.repeat(np.arange(counts.size), counts) if counts.size != 1 or self is None else None
    if self is None:
        return n.known_like(places.astype(np.int64), repeats)
    x = self if dim is not None else n.b.reshape_to(self, (sz.product(self.shape),))
    axis = n.axis(dim or 0, x.rank, "dim")
    if places is None:
        return repeated(n, x, axis, int(counts.item()), inner=True)
    if x.shape[axis] != counts.size:
        raise n.malformed(f"{counts.size} numbers for axis {axis} of {x!r}", "repeats")
    return n.b.gather(x, n.b.known(places), axis=axis)


@op("flip.default", "fliplr.default", "flipud.default")
def flip(n, self, dims=None):
    if dims is None:
        dims = [1 if "fliplr" in n.op else 0]
    for axis in n.axes(dims, self.rank, "dims") if dims else []:
        self = sliced(n, self, axis, -1, None, -1)
    return self


@op("rot90.default")
def rot90(n, self, k=1, dims=(0, 1)):
    first, second = (n.axis(one, self.rank, "dims") for one in dims)
    turns = n.integer(k, "k") % 4
    for axis in {1: [second], 2: [first, second], 3: [first]}.get(turns, []):
        self = sliced(n, self, axis, -1, None, -1)
    order = list(range(self.rank))
    order[first], order[second] = order[second], order[first]
    return permuted(n, self, order) if turns % 2 else self


@op("roll.default")
def roll(n, self, shifts, dims=()):
    if not dims:
        flat = n.b.reshape_to(self, (sz.product(self.shape),))
        return n.b.reshape_to(rolled(n, flat, 0, shifts[0]), self.shape)
    for shift, axis in zip(shifts, dims):
        self = rolled(n, self, n.axis(axis, self.rank, "dims"), shift)
    return self


def rolled(n, x, axis, shift):
    size = n.known_size(x, axis)
    shift = shift % size if size else 0
    if not shift:
        return x
    return joined(n, [sliced(n, x, axis, size - shift, size, 1), sliced(n, x, axis, 0, size - shift, 1)], axis)


# Pads


@op("constant_pad_nd.default", "pad.default", "reflection_pad1d.default", "reflection_pad2d.default",
    "reflection_pad3d.default", "replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default",
    "circular_pad1d.default")
def pad(n, self, pad=None, padding=None, value=None, mode="constant"):
    widths = pad if padding is None else padding
    name = n.op.split(".")[1]
    mode = {"refl": "reflect", "repl": "edge", "circ": "circular"}.get(name[:4], mode)
    mode = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "edge": "edge",
            "circular": "wrap"}.get(mode) or n.words(mode, "mode", ("constant", "reflect", "replicate", "circular"))
    widths = [n.integer(one, "pad") for one in widths]
    if len(widths) % 2 or len(widths) > 2 * self.rank:
        raise n.malformed(f"argument 'pad': {widths} of {self!r}")
    before, after = [0] * self.rank, [0] * self.rank
    for i in range(len(widths) // 2):
        before[self.rank - 1 - i], after[self.rank - 1 - i] = widths[2 * i], widths[2 * i + 1]
    if mode in ("reflect", "edge") and min(before + after) < 0:  # what is cut off is mirrored all the same
        x = _padded(n, self, [max(one, 0) for one in before], [max(one, 0) for one in after], mode)
        return cropped(n, x, [min(one, 0) for one in before], [min(one, 0) for one in after])[0]
    x, before, after = cropped(n, self, before, after)
    return _padded(n, x, before, after, mode, value)


def _padded(n, x, before, after, mode, value=None):
    if not any(before) and not any(after):
        return x
    number = None if value is None or mode != "constant" else n.value(value, x.dtype)
    sizes = tuple(sz.add(one, b + a) for one, b, a in zip(x.shape, before, after))
    return shaped(padded(n, x, before, after, mode, number), sizes)


@op("pixel_shuffle.default", "pixel_unshuffle.default")
def pixel_shuffle(n, self, upscale_factor=None, downscale_factor=None):
    *batch, channels, rows, columns = self.shape
    lead = len(batch)
    if upscale_factor is not None:
        r = upscale_factor
        parts = n.b.reshape_to(self, (*batch, channels // (r * r), r, r, rows, columns))
        order = [*range(lead), lead, lead + 3, lead + 1, lead + 4, lead + 2]
        return n.b.reshape_to(permuted(n, parts, order), (*batch, channels // (r * r), sz.mul(rows, r),
                                                          sz.mul(columns, r)))
    r = downscale_factor
    parts = n.b.reshape_to(self, (*batch, channels, sz.divide(rows, r), r, sz.divide(columns, r), r))
    order = [*range(lead), lead, lead + 2, lead + 4, lead + 1, lead + 3]
    return n.b.reshape_to(permuted(n, parts, order), (*batch, channels * r * r, sz.divide(rows, r),
                                                      sz.divide(columns, r)))


@op("channel_shuffle.default")
def channel_shuffle(n, self, groups):
    count, channels, *spatial = self.shape
    parts = n.b.reshape_to(self, (count, groups, channels // groups, *spatial))
    return n.b.reshape_to(permuted(n, parts, [0, 2, 1, *range(3, parts.rank)]), self.shape)


@op("meshgrid.default", "meshgrid.indexing")
def meshgrid(n, tensors, indexing="ij"):
    n.words(indexing, "indexing", ("ij", "xy"))
    if indexing == "xy" and len(tensors) > 1:
        made = meshgrid(n, [tensors[1], tensors[0], *tensors[2:]])
        return [made[1], made[0], *made[2:]]
    sizes = tuple(one.shape[0] if one.rank else 1 for one in tensors)
    made = []
    for i, one in enumerate(tensors):
        form = tuple(size if i == k else 1 for k, size in enumerate(sizes))
        made.append(n.b.broadcast(n.b.reshape_to(one, form), sizes))
    return made


@op("diff.default")
def diff(n, self, n_=1, dim=-1, prepend=None, append=None):
    axis = n.axis(dim, self.rank, "dim")
    parts = [one for one in (prepend, self, append) if one is not None]
    x = joined(n, [n.cast(one, n.dtype) for one in parts], axis)
    for _ in range(n.integer(n_, "n")):
        after, before = sliced_as(n, x, axis, 1, None), sliced_as(n, x, axis, 0, -1)
        x = n.b.logical_xor(after, before) if x.dtype == "bool" else n.b.sub(after, before)
        x = shaped(x, after.shape)
    return x


@op("unfold.default", view=True)
def unfold(n, self, dimension, size, step):
    axis = n.axis(dimension, self.rank, "dimension")
    whole = n.known_size(self, axis)
    count = (whole - size) // step + 1
    places = n.arange(count)[:, None] * step + n.arange(size)[None]
    windows = n.b.gather(self, n.b.known(places), axis=axis)
    order = [i for i in range(self.rank + 1) if i != axis + 1] + [axis + 1]
    return permuted(n, windows, order)

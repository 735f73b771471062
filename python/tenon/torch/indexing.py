"""Ops that pick and put elements by their numbers."""

import numpy as np

from ..importing import sizes as sz
from ..importing.picking import positions
from ..importing.shaping import broadcast_shape, shaped
from ..importing.types import FLOATS, INTEGERS, limits
from ..importing.values import Value
from .node import op, refuse
from .shapes import permuted, sliced_as

refuse("its result's places depend on values", "nonzero_static.default")
refuse("max_norm changes the table as it is read: limit its rows before the export", "embedding_renorm.default")


def _places(n, index, size):
    """Indices as i32 or i64, of which negative ones count from the end."""
    if index.dtype not in INTEGERS:
        raise n.malformed(f"indices of {index.dtype}")
    return positions(n, index if index.dtype in ("i32", "i64") else n.cast(index, "i64"), size)


@op("embedding.default")
def embedding(n, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    shape = (*indices.shape, weight.shape[1])
    if weight.dtype in FLOATS and not (weight.is_known and indices.is_known):
        table = n.b.tensor(weight)
        from .. import ops
        rows = shaped(n.b.recorded(ops.embedding(n.b.tensor(n.cast(indices, "i64")), table, dtype=weight.dtype),
                                   indices, weight), shape)
        if padding_idx == -1:
            return rows
        # the padding's row gets no gradient
        is_padding = n.b.eq(n.cast(indices, "i64"), n.value(n.integer(padding_idx, "padding_idx"), "i64"))
        return shaped(n.b.where(n.b.unsqueeze(is_padding, indices.rank), n.b.stop_gradient(rows), rows), shape)
    return shaped(n.b.gather(weight, _places(n, indices, weight.shape[0]), axis=0), shape)


def _bag_length(offsets, count, with_end):
    """The length of all bags of `count` indices, where they are known to have one; else 0."""
    if not offsets.is_known or not isinstance(count, int):
        return 0
    begins = [int(place) for place in offsets.array]
    ends = begins[1:] if with_end else [*begins[1:], count]
    lengths = {end - begin for begin, end in zip(begins, ends)}
    if len(lengths) != 1 or begins[0] != 0 or ends[-1] != count:
        return 0
    return max(lengths.pop(), 0)


@op("embedding_bag.default", "embedding_bag.padding_idx", "_embedding_bag.default",
    "_embedding_bag_forward_only.default")
def embedding_bag(n, weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=-1):
    if mode not in (0, 1, 2):
        raise n.malformed(f"argument 'mode': {mode}")
    if any(n.wants(output) for output in (1, 2, 3)):
        raise n.error("results beside the bags")
    length = _bag_length(offsets, indices.shape[0], include_last_offset)
    if length and mode != 2 and per_sample_weights is None and padding_idx in (-1, None):
        bags = n.b.reshape_to(n.cast(indices, "i64"), (indices.shape[0] // length, length))
        rows = shaped(n.b.gather(weight, bags, axis=0), (*bags.shape, weight.shape[1]))
        fold = n.b.mean if mode == 1 else n.b.sum
        made = shaped(fold(rows, axis=[1], keep_dims=False), (bags.shape[0], weight.shape[1]))
        return (made, None, None, None) if "_embedding_bag" in n.op else made
    rows = shaped(n.b.gather(weight, n.cast(indices, "i64"), axis=0), (*indices.shape, weight.shape[1]))
    if per_sample_weights is not None:
        rows = rows * n.b.unsqueeze(per_sample_weights, 1)
    count = sz.add(offsets.shape[0], -1) if include_last_offset else offsets.shape[0]
    begun = n.b.le(n.b.unsqueeze(n.cast(offsets, "i64"), 0), n.b.unsqueeze(n.b.iota(indices.shape[0]), 1))
    bag = shaped(n.b.sum(n.cast(begun, "i64"), axis=[1], keep_dims=False), indices.shape) - n.value(1, "i64")
    in_bag = n.b.eq(n.b.unsqueeze(n.b.iota(count), 1), n.b.unsqueeze(bag, 0))
    if padding_idx not in (-1, None):
        if mode == 1 and per_sample_weights is not None:
            raise n.malformed("weights of the samples of a mean")
        used = n.b.ne(n.cast(indices, "i64"), n.value(n.integer(padding_idx, "padding_idx"), "i64"))
        in_bag = n.b.logical_and(in_bag, n.b.unsqueeze(used, 0))
    in_bag = shaped(in_bag, (count, indices.shape[0]))
    sizes = (count, weight.shape[1])
    if mode == 2:
        held = n.b.any(in_bag, axis=[1], keep_dims=True)
        lowest, zero = n.b.number(limits(weight.dtype)[0], weight.dtype), n.b.number(0, weight.dtype)
        if padding_idx not in (-1, None):
            rows = n.b.where(n.b.unsqueeze(used, 1), rows, lowest)
        places = n.b.broadcast(n.b.unsqueeze(bag, 1), (indices.shape[0], weight.shape[1]))
        made = n.b.constant(n.b.full(sizes, lowest.array.item(), weight.dtype))
        made = n.b.scatter(made, places, rows, axis=0, mode="max")
        made = shaped(n.b.where(held, made, zero), sizes)
    else:
        in_bag = n.cast(in_bag, weight.dtype)
        made = shaped(n.b.matmul(in_bag, rows), sizes)
    if mode == 1:
        held = n.b.sum(in_bag, axis=[1], keep_dims=True)
        made = made / n.b.maximum(held, n.value(1, weight.dtype))
    return (made, None, None, None) if "_embedding_bag" in n.op else made


@op("index_select.default")
def index_select(n, self, dim, index):
    if not self.rank:
        return self
    axis = n.axis(dim, self.rank, "dim")
    index = n.b.reshape_to(index, (1,)) if not index.rank else index
    index = _places(n, index, self.shape[axis])
    return shaped(n.b.gather(self, index, axis=axis), (*self.shape[:axis], index.shape[0], *self.shape[axis + 1:]))


@op("gather.default", "take_along_dim.default")
def gather(n, self, dim=None, index=None, sparse_grad=False, indices=None):
    index = indices if index is None else index
    if not self.rank or not index.rank:
        made = gather(n, _vector(n, self), dim, _vector(n, index))
        return n.b.reshape_to(made, index.shape)
    axis = n.axis(dim, self.rank, "dim")
    index = _places(n, index, self.shape[axis])
    if "take_along" in n.op:
        sizes = tuple(a if b == 1 else b for a, b in zip(self.shape, index.shape))
        index = n.b.broadcast(index, tuple(index.shape[i] if i == axis else one for i, one in enumerate(sizes)))
        self = n.b.broadcast(self, tuple(self.shape[i] if i == axis else one for i, one in enumerate(sizes)))
    return shaped(n.b.take_along(_no_larger(n, self, index, axis), index, axis=axis), index.shape)


def _vector(n, x):
    """A scalar as a vector of one element, for ops that take it so."""
    return x if x.rank else n.b.reshape_to(x, (1,))


def _no_larger(n, x, index, axis):
    """x without what lies beyond the index outside of an axis."""
    for at in range(x.rank):
        if at != axis and index.shape[at] != x.shape[at]:
            x = sliced_as(n, x, at, 0, index.shape[at])
    return x


_MODES = {None: "set", "add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@op("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add.default",
    "scatter_reduce.two")
def scatter(n, self, dim, index, src=None, value=None, reduce=None, include_self=True):
    if not self.rank or not index.rank:  # one number, or one place of a vector
        one = n.b.reshape_to(self, (1,)) if not self.rank else self
        source = src if isinstance(src, Value) else n.value(value, self.dtype)
        made = scatter(n, one, dim, _vector(n, index), _vector(n, source), None, reduce, include_self)
        return n.b.reshape_to(made, self.shape)
    axis = n.axis(dim, self.rank, "dim")
    index = _places(n, index, self.shape[axis])
    if src is None:
        src = n.b.broadcast(n.value(value, self.dtype), index.shape)
    src = _no_larger(n, src, index, -1)
    if "scatter_reduce" in n.op:
        return _combined(n, self, index, src, axis, reduce, include_self)
    mode = "add" if "scatter_add" in n.op else _MODES.get(reduce)
    if mode is None:
        raise n.malformed(f"argument 'reduce': {reduce!r}")
    return put(n, self, index, src, axis, mode)


def _combined(n, x, index, source, axis, reduce, include_self):
    """What lies at the same place combined, with the element of x that is there or without."""
    n.words(reduce, "reduce", ("sum", "prod", "amax", "amin", "mean"))
    source = n.cast(source, x.dtype)
    made = x
    if not include_self:
        low, high = limits(x.dtype) if x.dtype != "bool" else (False, True)
        first = n.value({"prod": 1, "amax": low, "amin": high}.get(reduce, 0), x.dtype)
        made = put(n, x, index, n.b.broadcast(first, index.shape), axis)
    made = put(n, made, index, source, axis, "add" if reduce == "mean" else _MODES[reduce])
    if reduce != "mean":
        return made
    ones = n.b.constant(n.b.full(x.shape, 1, "i64"))
    if not include_self:
        ones = put(n, ones, index, n.b.full(index.shape, 0, "i64"), axis)
    counts = put(n, ones, index, n.b.full(index.shape, 1, "i64"), axis, "add")
    if x.dtype in FLOATS:
        return shaped(made / n.cast(counts, x.dtype), x.shape)
    counts = n.cast(counts, x.dtype)
    rest = n.b.remainder(made, counts)
    return shaped((made - rest) / counts, x.shape)


def put(n, x, index, source, axis, mode="set"):
    if x.dtype == "bool" and mode != "set":  # a sum is `or`, a product `and`
        bits = put(n, n.cast(x, "u8"), index, n.cast(n.cast(source, "bool"), "u8"), axis,
                   "max" if mode in ("add", "max") else "min")
        return n.cast(bits, "bool")
    return shaped(n.b.scatter(x, index, n.cast(source, x.dtype), axis=axis, mode=mode), x.shape)


def _rows(n, x, axis, index, source, mode, alpha=1):
    """Slices of `source` put at the places of an index along an axis."""
    index = _places(n, n.b.reshape_to(index, (1,)) if not index.rank else index, x.shape[axis])
    form = tuple(index.shape[0] if i == axis else 1 for i in range(x.rank))
    sizes = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1:])
    source = n.b.broadcast(n.cast(source, x.dtype), sizes)
    if alpha != 1:
        source = source * n.value(alpha, x.dtype)
    return put(n, x, n.b.broadcast(n.b.reshape_to(index, form), sizes), source, axis, mode)


@op("index_copy.default", "index_add.default", "index_fill.int_Scalar", "index_fill.int_Tensor", "index_reduce.default")
def index_put_along(n, self, dim, index, source=None, value=None, alpha=1, reduce=None, include_self=True):
    if "index_reduce" in n.op:
        axis = n.axis(dim, self.rank, "dim")
        index = _places(n, index, self.shape[axis])
        form = tuple(index.shape[0] if i == axis else 1 for i in range(self.rank))
        index = n.b.broadcast(n.b.reshape_to(index, form), source.shape)
        return _combined(n, self, index, source, axis, reduce, include_self)
    mode = "add" if "index_add" in n.op else _MODES[reduce]
    source = n.value(value, self.dtype) if source is None else source
    return _rows(n, self, n.axis(dim, self.rank, "dim"), index, source, mode, alpha)


# x[a, :, b] and x[a, :, b] = y


class _Indices:
    """Advanced indices: the axes that have one, brought to the front, and the numbers of rows that they pick."""

    def __init__(self, n, x, indices):
        indices = [part for one in indices for part in ([None] if one is None else self._whole(n, one))]
        self.axes = [i for i, one in enumerate(indices) if one is not None]
        if not self.axes or len(indices) > x.rank:
            raise n.malformed(f"{len(indices)} indices for {x!r}")
        held = [_places(n, indices[i], x.shape[i]) for i in self.axes]
        self.shape = broadcast_shape(*held)
        if self.shape is None:
            raise n.not_known(f"indices {held}: give `shapes`")
        self.rest = [i for i in range(x.rank) if i not in self.axes]
        self.order = [*self.axes, *self.rest]
        self.count = sz.product(x.shape[i] for i in self.axes)
        self.kept = tuple(x.shape[i] for i in self.rest)
        rows = None
        for axis, one in zip(self.axes, held):
            size = x.shape[axis]
            scale = size if isinstance(size, int) else n.cast(n.b.scalar_size(size), one.dtype)
            one = n.cast(one, "i64")
            rows = one if rows is None else rows * n.value(scale, "i64") + one
        self.rows = n.b.broadcast(rows, self.shape)
        self.at = self.axes[0] if self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes))) else 0

    @staticmethod
    def _whole(n, index):
        """An index as one of integers; a mask as one for each of its axes."""
        if index.dtype != "bool":
            return [index]
        array = n.array(index, "a mask, whose values decide the result's size,")
        if not array.ndim:
            raise n.error("a mask of no axes")
        return [n.known_like(one.astype(np.int64), index) for one in np.nonzero(array)]

    def order_of_result(self):
        """Where the axes of [indices, rest] stand in the result."""
        picked = len(self.shape)
        return [*range(picked, picked + self.at), *range(picked), *range(picked + self.at, picked + len(self.rest))]


@op("index.Tensor", "_unsafe_index.Tensor")
def index(n, self, indices):
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype != "bool" and indices[0].rank <= 7:
        places = _places(n, indices[0], self.shape[0])
        return shaped(n.b.gather(self, places, axis=0), (*places.shape, *self.shape[1:]))
    one = _Indices(n, self, indices)
    if len(one.axes) == 1:
        axis = one.axes[0]
        return shaped(n.b.gather(self, one.rows, axis=axis), (*self.shape[:axis], *one.shape, *self.shape[axis + 1:]))
    table = n.b.reshape_to(permuted(n, self, one.order), (one.count, *one.kept))
    made = shaped(n.b.gather(table, one.rows, axis=0), (*one.shape, *one.kept))
    return permuted(n, made, one.order_of_result())


@op("index_put.default", "_unsafe_index_put.default")
def index_put(n, self, indices, values, accumulate=False):
    if all(one is None or one.dtype == "bool" for one in indices) and values.rank == 0 and not accumulate:
        made = _masked(n, self, indices, values)
        if made is not None:
            return made
    one = _Indices(n, self, indices)
    mode = "add" if accumulate else "set"
    order = one.order_of_result()
    wanted = tuple((*one.shape, *one.kept)[i] for i in order)
    values = n.b.broadcast(n.cast(values, self.dtype), wanted)
    values = permuted(n, values, [order.index(i) for i in range(len(order))])
    if len(one.axes) == 1 and len(one.shape) == 1:
        axis = one.axes[0]
        back = [*range(1, axis + 1), 0, *range(axis + 1, self.rank)]
        return _rows(n, self, axis, one.rows, permuted(n, values, back), mode)
    table = n.b.reshape_to(permuted(n, self, one.order), (one.count, *one.kept))
    rows = n.b.reshape_to(one.rows, (sz.product(one.shape),))
    values = n.b.reshape_to(values, (sz.product(one.shape), *one.kept))
    made = _rows(n, table, 0, rows, values, mode)
    made = n.b.reshape_to(made, tuple(self.shape[i] for i in one.order))
    return permuted(n, made, [one.order.index(i) for i in range(self.rank)])


def _masked(n, x, indices, value):
    """x[mask] = number."""
    if len(indices) != 1 or indices[0].rank > x.rank:
        return None
    mask = n.b.reshape_to(indices[0], indices[0].shape + (1,) * (x.rank - indices[0].rank))
    return shaped(n.b.where(mask, n.cast(value, x.dtype), x), x.shape)


# Views with other elements


@op("select_scatter.default")
def select_scatter(n, self, src, dim, index):
    axis = n.axis(dim, self.rank, "dim")
    source = n.b.reshape_to(src, (*self.shape[:axis], 1, *self.shape[axis + 1:]))
    if isinstance(index, int) and not isinstance(self.shape[axis], int) and index < 0:
        index = sz.add(self.shape[axis], index)
    place = n.b.reshape_to(n.value(index, "i64"), (1,)) if not isinstance(index, sz.Size) else \
        n.b.reshape_to(n.b.constant(n.b.of_sizes(index)), (1,))
    return _rows(n, self, axis, place, source, "set")


@op("slice_scatter.default")
def slice_scatter(n, self, src, dim=0, start=None, end=None, step=1):
    axis = n.axis(dim, self.rank, "dim")
    whole = self.shape[axis]
    places = sliced_as(n, n.b.iota(whole), 0, start, end, step)
    if places.shape == (whole,) and step == 1:
        return n.b.broadcast(n.cast(src, self.dtype), self.shape)
    return _rows(n, self, axis, places, src, "set")


def _places_that_are_not_zero(n, x):
    """One array of places per axis."""
    array = n.array(x, "a value that decides the result's size")
    return [one.astype(np.int64) for one in np.nonzero(np.atleast_1d(array))]


@op("nonzero.default")
def nonzero(n, self):
    places = np.stack(_places_that_are_not_zero(n, self), 1)
    return n.known_like(places[:, :self.rank], self)  # of a value without axes: [count, 0]


@op("nonzero_numpy.default")
def nonzero_by_axis(n, self):
    return [n.known_like(one, self) for one in _places_that_are_not_zero(n, self)]


@op("where.default")
def where(n, condition):
    return nonzero_by_axis(n, condition)


def _common_shape(n, *values):
    shape = broadcast_shape(*values)
    if shape is None:
        raise n.not_known(f"the sizes of {values}: give `shapes`")
    return shape


@op("masked_select.default")
def masked_select(n, self, mask):
    shape = _common_shape(n, self, mask)
    return index(n, n.b.broadcast(self, shape), [n.b.broadcast(mask, shape)])


@op("one_hot.default")
def one_hot(n, self, num_classes=-1):
    if n.integer(num_classes, "num_classes") < 1:
        raise n.error("the number of classes is computed", "num_classes")
    return n.cast(n.b.eq(n.b.unsqueeze(self, self.rank), n.b.known(n.arange(num_classes))), "i64")


@op("masked_scatter.default")
def masked_scatter(n, self, mask, source):
    shape = _common_shape(n, self, mask)
    x, hit = n.b.broadcast(self, shape), n.b.broadcast(mask, shape)
    count = sz.product(source.shape)
    if count == 0:
        return x
    flat = n.b.reshape_to(hit, (sz.product(shape),))
    places = n.b.cumsum(n.cast(flat, "i64"), axis=0) - n.value(1, "i64")
    places = n.b.where(flat, places, n.value(0, "i64"))
    picked = n.b.gather(n.b.reshape_to(n.cast(source, x.dtype), (count,)), shaped(places, flat.shape), axis=0)
    return shaped(n.b.where(hit, n.b.reshape_to(shaped(picked, flat.shape), shape), x), shape)


@op("take.default")
def take(n, self, index):
    count = sz.product(self.shape)
    flat = n.b.reshape_to(self, (count,))
    return shaped(n.b.gather(flat, _places(n, index, count), axis=0), index.shape)


@op("put.default")
def put_at(n, self, index, source, accumulate=False):
    count, size = sz.product(self.shape), sz.product(index.shape)
    places = n.b.reshape_to(_places(n, index, count), (size,))
    made = put(n, n.b.reshape_to(self, (count,)), places, n.b.reshape_to(source, (size,)), 0,
               "add" if accumulate else "set")
    return n.b.reshape_to(made, self.shape)

"""Elements by where they lie: as_strided, by the memory of its operand, which the graph records, and any view."""

import math

import numpy as np

from ..importing import sizes as sz
from ..importing.types import check_computed
from .archive import get
from .indexing import put
from .node import HANDLERS, op
from .shapes import permuted


@op("as_strided.default", "as_strided_copy.default", view=True)
def as_strided(n, self, size, stride, storage_offset=None):
    picked = places(n, self, size, stride, storage_offset)
    flat = in_memory(n, self)
    first = int(picked.flat[0]) if picked.size else 0
    if np.array_equal(picked.reshape(-1), np.arange(first, first + picked.size)):
        return n.b.reshape_to(n.b.slice(flat, axis=0, begin=first, end=first + picked.size), picked.shape)
    return n.b.gather(flat, n.b.known(picked), axis=0)


@op("resize_.default", view=True)
def resize(n, self, size, memory_format=None):
    """The first elements in memory under other sizes, which are dense. Of more elements the others have no value."""
    if memory_format is not None:
        raise n.error("with a memory format", "memory_format")
    return as_strided(n, self, size, dense_strides(n, size), None)


def dense_strides(n, size):
    size = [n.integer(one, "size") for one in size]
    return [math.prod(size[axis + 1:]) for axis in range(len(size))]


@op("sym_is_contiguous.default", "is_contiguous.default")
def is_contiguous(n, self, memory_format=None):
    """Whether PyTorch had the elements in the order of the axes."""
    if memory_format is not None:
        raise n.error("with a memory format", "memory_format")
    sizes, strides = ([n.importer.size(one, n.where) for one in get(n.source, field, list, n.where)]
                      for field in ("sizes", "strides"))
    dense = 1
    for size, stride in reversed(list(zip(sizes, strides))):
        if size != 1 and stride != dense:
            return False
        dense = sz.mul(dense, size)
    return True


@op("as_strided_scatter.default")
def as_strided_scatter(n, self, src, size, stride, storage_offset=None):
    picked = n.b.known(places(n, self, size, stride, storage_offset).reshape(-1))
    changed = put(n, in_memory(n, self), picked, n.b.reshape_to(n.cast(src, self.dtype), picked.shape), 0)
    return from_memory(n, changed, self)


def places(n, x, size, stride, storage_offset):
    """The numbers of the elements of x, in the order of memory, that lie at these places of its memory."""
    size, stride = ([n.integer(one, name) for one in values] for name, values in (("size", size), ("stride", stride)))
    begin = get(get(n.source, "storage_offset", dict, n.where), "as_int", int, n.where)
    offset = begin if storage_offset is None else n.integer(storage_offset, "storage_offset")
    if len(size) != len(stride) or len(size) > 8 or min((*size, *stride, offset, begin), default=0) < 0:
        raise n.malformed(f"sizes {size} and strides {stride} from {offset}")
    check_computed(n.where, size)
    first = offset - begin
    last = first + sum((one - 1) * by for one, by in zip(size, stride))
    if math.prod(size) and not 0 <= first <= last < math.prod(_layout(n, x)[0]):
        raise n.error(f"elements {first} to {last}, which are not those of {x!r}, but of another value in its memory")
    picked = np.full((), first, np.int64)
    for one, by in zip(size, stride):
        picked = picked[..., None] + np.arange(one, dtype=np.int64) * by
    return picked


def in_memory(n, x):
    """The elements of x in the order in which they lie in memory."""
    sizes, order = _layout(n, x)
    return n.b.reshape_to(permuted(n, x, order), (math.prod(sizes),))


def from_memory(n, flat, x):
    """A value with the sizes and the order of x, of its elements in the order of memory."""
    sizes, order = _layout(n, x)
    made = n.b.reshape_to(flat, tuple(sizes[axis] for axis in order))
    return permuted(n, made, [order.index(axis) for axis in range(len(order))])


def _layout(n, x):
    """(sizes, axes from the outermost in memory to the innermost) of the node's first argument, x."""
    sizes = [n.integer(one, "self") for one in x.shape]
    strides = [n.importer.size(one, n.where) for one in get(n.source, "strides", list, n.where)]
    if len(strides) != len(sizes) or not all(isinstance(one, int) for one in strides):
        raise n.malformed(f"strides {strides} of {x!r}")
    order = sorted(range(len(sizes)), key=lambda axis: -strides[axis])
    dense = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != dense and 0 not in sizes:
            raise n.error(f"{x!r} lies in memory with strides {strides}, others between its elements", "self")
        dense *= sizes[axis]
    return sizes, order


def by_places(n, view, first, base, new, output, arguments):
    """The base with the elements of one of its views replaced: the same view of their numbers says where they are."""
    sizes = [one if isinstance(one, int) else None for one in base.shape]
    if None in sizes:
        raise n.not_known("its result is changed in place, and its sizes are not known: give `shapes`")
    check_computed(n.where, sizes)
    numbers = n.b.known(np.arange(math.prod(sizes)).reshape(sizes))
    made = view(n, **{first: numbers}, **arguments)
    places = n.array(made[output] if isinstance(made, (tuple, list)) else made, "its place").reshape(-1)
    if len(np.unique(places)) != len(places):
        raise n.error("its result has elements more than once, and is changed in place, which is not supported")
    flat = n.b.reshape_to(base, (math.prod(sizes),))
    changed = put(n, flat, n.b.known(places), n.b.reshape_to(n.cast(new, base.dtype), places.shape), 0)
    return n.b.reshape_to(changed, base.shape)


@op("diagonal_scatter.default")
def diagonal_scatter(n, self, src, offset=0, dim1=0, dim2=1):
    return by_places(n, HANDLERS["aten.diagonal.default"], "self", self, src, 0,
                     {"offset": offset, "dim1": dim1, "dim2": dim2})

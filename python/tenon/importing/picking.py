"""Places of elements."""

import numpy as np

from . import sizes as sz
from .shaping import shaped, sliced


def positions(n, index, size):
    """Indices of which negative ones count from the end."""
    if index.dtype not in ("i32", "i64"):
        raise n.malformed(f"indices of {index.dtype}")
    if index.is_known:
        if isinstance(size, int):
            array = index.array
            if array.size and (array.min() < -size or array.max() >= size):
                raise n.malformed(f"an index outside of [-{size}, {size})")
            return n.known_like(np.where(array < 0, array + size, array).astype(array.dtype), index)
        if not index.array.size or index.array.min() >= 0:
            return index
    length = n.b.cast(n.b.scalar_size(size), index.dtype)
    return shaped(n.b.where(n.b.lt(index, 0), index + length, index), index.shape)


def flat_index(n, x, index, batch=0):
    """Row numbers of x, whose first axes after `batch` are merged, for indices along those axes: [.., k] gives [..]."""
    depth = n.known_size(index, index.rank - 1)
    sizes = x.shape[batch:batch + depth]
    total = n.b.full(index.shape[:-1], 0, index.dtype) if not depth else None
    refused = None  # where a further index is none of its axis, which the sum might hide
    for i, one in enumerate(sizes):
        column = n.b.squeeze(sliced(n, index, index.rank - 1, i, i + 1, 1), axis=index.rank - 1)
        size = one if isinstance(one, int) else n.b.cast(n.b.scalar_size(one), index.dtype)
        place = positions(n, column, one)
        if i and not (column.is_known and isinstance(one, int)):
            outside = n.b.logical_or(n.b.lt(place, 0), n.b.ge(place, size))
            refused = outside if refused is None else n.b.logical_or(refused, outside)
        total = place if not i else total * size + place
    if refused is not None:
        total = n.b.where(refused, n.b.full((), -1, index.dtype), total)
    return shaped(total, index.shape[:-1]), sz.product(sizes)

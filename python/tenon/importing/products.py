"""Matrix products."""

import numpy as np

from .shaping import broadcast_sizes, shaped
from .types import FLOATS


def multiplied(n, a, b):
    """The matrix product, with numpy's rules; a known matrix on the right becomes a linear layer."""
    if not a.rank or not b.rank:
        raise n.malformed(f"a scalar among {a!r} and {b!r}")
    left, right = a.shape[-1], b.shape[-2 if b.rank > 1 else 0]
    if isinstance(left, int) and isinstance(right, int) and left != right:
        raise n.malformed(f"{a!r} times {b!r}")
    rows = a.shape[-2:-1] if a.rank > 1 else ()
    columns = b.shape[-1:] if b.rank > 1 else ()
    batch = broadcast_sizes(a.shape[:-2], b.shape[:-2])
    sizes = None if batch is None else batch + rows + columns
    if b.is_known and not a.is_known and b.rank == 2 and b.dtype in FLOATS:
        return shaped(n.b.linear(a, transposed(n, b)), sizes)
    return shaped(n.b.matmul(a, b), sizes)


def transposed(n, weight):
    """A known matrix with its axes swapped, once for all its users."""
    array, kept = weight.array, n.b.transposed
    if isinstance(array.base, np.ndarray) and array.flags.f_contiguous and array.T.flags.c_contiguous and \
            array.base.shape == array.T.shape and array.base.ctypes.data == array.ctypes.data and \
            array.base.dtype == array.dtype:  # those of bf16 may be views of integers
        return n.b.known(array.base, name=weight.name, inputs=weight.inputs)  # itself made by swapping axes
    if id(array) not in kept:
        made = n.b.known(np.ascontiguousarray(array.T), name=weight.name, inputs=weight.inputs)
        kept[id(array)] = (array, made)
    return kept[id(array)][1]

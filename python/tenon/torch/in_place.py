"""Views that are changed in place: the value that they are views of, with their elements replaced."""

from ..importing import sizes as sz
from .indexing import select_scatter, slice_scatter
from .node import SAME_IF_EQUAL
from .shapes import parts, permuted

PUTS = {}  # op: function(n, base, new, output, **arguments) that returns the new base


def _put(*names):
    def mark(function):
        for name in names:
            PUTS[f"aten.{name}"] = function
        return function
    return mark


@_put("alias.default", "detach.default", "contiguous.default", *(name.removeprefix("aten.") for name in SAME_IF_EQUAL))
def same(n, base, new, output, **_):
    return new


@_put("view.default", "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "flatten.using_ints",
      "unflatten.int", "view_as.default", "reshape.default", "reshape_as.default")
def reshaped(n, base, new, output, **_):
    return n.b.reshape_to(new, base.shape)


@_put("permute.default")
def permute(n, base, new, output, dims):
    order = [n.axis(one, base.rank) for one in dims]
    return permuted(n, new, [order.index(i) for i in range(base.rank)])


@_put("transpose.int", "t.default")
def transpose(n, base, new, output, dim0=0, dim1=1):
    order = list(range(base.rank))
    if base.rank > 1:
        first, second = n.axis(dim0, base.rank), n.axis(dim1, base.rank)
        order[first], order[second] = second, first
    return permuted(n, new, order)


@_put("select.int")
def select(n, base, new, output, dim, index):
    return select_scatter(n, base, new, dim, index)


@_put("slice.Tensor")
def slice_(n, base, new, output, dim=0, start=None, end=None, step=1):
    return slice_scatter(n, base, new, dim, start, end, step)


@_put("narrow.default")
def narrow(n, base, new, output, dim, start, length):
    return slice_scatter(n, base, new, dim, start, sz.add(start, length))


@_put("split.Tensor", "split_with_sizes.default", "chunk.default", "split.sizes")
def split(n, base, new, output, split_size=None, split_sizes=None, chunks=None, dim=0):
    axis = n.axis(dim, base.rank)
    sizes = parts(n, n.known_size(base, axis), split_size, split_sizes, chunks, None, None)
    begin = sum(sizes[:output])
    return slice_scatter(n, base, new, axis, begin, begin + sizes[output])


@_put("unbind.int")
def unbind(n, base, new, output, dim=0):
    return select_scatter(n, base, new, dim, output)

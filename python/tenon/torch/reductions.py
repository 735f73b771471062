"""Sums, extremes, orders and running sums."""

from ..importing import reductions
from ..importing import sizes as sz
from ..importing.shaping import shaped, sliced
from ..importing.types import FLOATS, limits
from .node import op, refuse

refuse("its result's size depends on values", "unique_consecutive.default", "_unique2.default")


def kept(x, axes, keepdim):
    """The sizes of a reduction's result."""
    return tuple(1 if i in axes else one for i, one in enumerate(x.shape) if keepdim or i not in axes)


def reduced(n, function, x, axes, keepdim, dtype=None):
    """A reduction along axes; along none it is the value itself."""
    made = function(x, axis=axes, keep_dims=keepdim) if axes else x
    made = shaped(made, kept(x, axes, keepdim))
    return made if dtype is None else n.cast(made, dtype)


@op("sum.default", "sum.dim_IntList", "mean.default", "mean.dim")
def total(n, self, dim=None, keepdim=False, dtype=None):
    axes = n.axes(dim, self.rank)
    wide = n.cast(self, n.dtype)
    return reduced(n, n.b.sum if ".sum." in n.op else n.b.mean, wide, axes, keepdim)


@op("prod.default", "prod.dim_int")
def product(n, self, dim=None, keepdim=False, dtype=None):
    return reduced(n, n.b.prod, n.cast(self, n.dtype), n.axes(dim, self.rank), keepdim)


@op("amax.default", "amin.default", "max.default", "min.default", "max.dim", "min.dim", "aminmax.default")
def extreme(n, self, dim=None, keepdim=False):
    axes = n.axes(dim, self.rank)
    if "aminmax" in n.op:
        return _extreme(n, self, axes, keepdim, False), _extreme(n, self, axes, keepdim, True)
    is_max = "max" in n.op.split(".")[1]
    best = _extreme(n, self, axes, keepdim, is_max)
    if not n.op.endswith(".dim"):
        return best
    return best, _place(n, self, axes, keepdim, is_max)


def _extreme(n, x, axes, keepdim, is_max):
    if not axes:
        return x
    if any(x.shape[axis] == 0 for axis in axes):
        raise n.malformed(f"the extreme of no elements of {x!r}")
    return shaped(reductions.extreme(n, x, axes, keepdim, is_max), kept(x, axes, keepdim))


def _place(n, x, axes, keepdim, is_max):
    if not axes:
        return n.b.full((), 0, "i64")
    x = n.cast(x, "u8") if x.dtype == "bool" else x
    find = n.b.argmax if is_max else n.b.argmin
    return shaped(find(x, axis=axes[0], keep_dims=keepdim, dtype="i64"), kept(x, axes, keepdim))


@op("cummax.default", "cummin.default")
def running_extreme(n, self, dim):
    if n.wants(1):
        raise n.error("the places of running extremes are not computed")
    function = n.b.cummax if "cummax" in n.op else n.b.cummin
    return shaped(function(self, axis=n.axis(dim, self.rank, "dim")), self.shape) if self.rank else self, None


@op("argmax.default", "argmin.default")
def arg_extreme(n, self, dim=None, keepdim=False):
    is_max = "argmax" in n.op
    if dim is None:
        flat = n.b.reshape_to(self, (sz.product(self.shape),))
        made = _place(n, flat, [0], False, is_max)
        return n.b.reshape_to(made, (1,) * self.rank) if keepdim else made
    return _place(n, self, n.axes(dim, self.rank), keepdim, is_max)


@op("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims")
def connective(n, self, dim=None, keepdim=False):
    function = n.b.any if ".any." in n.op else n.b.all
    return n.cast(reduced(n, function, n.cast(self, "bool"), n.axes(dim, self.rank), keepdim), n.dtype)


@op("var.correction", "var.dim", "var.default", "std.correction", "std.dim", "std.default", "var_mean.correction",
    "std_mean.correction", "var_mean.dim", "std_mean.dim")
def variance(n, self, dim=None, correction=None, keepdim=False, unbiased=True):
    axes = n.axes(dim, self.rank)
    correction = float(unbiased) if correction is None else correction
    count = sz.product(self.shape[axis] for axis in axes)
    mean = n.b.mean(self, axis=axes, keep_dims=True) if axes else self
    squares = n.b.square(self - mean)
    sums = reduced(n, n.b.sum, squares, axes, keepdim)
    if isinstance(count, int):
        divisor = n.value(float(max(count - correction, 0)), self.dtype)
    else:
        divisor = n.cast(n.b.scalar_size(count), self.dtype) - float(correction)
    made = sums / divisor
    made = n.b.sqrt(made) if "std" in n.op else made
    made = shaped(made, kept(self, axes, keepdim))
    if "_mean" not in n.op:
        return made
    return made, n.b.reshape_to(shaped(mean, kept(self, axes, True)), kept(self, axes, keepdim))


@op("logsumexp.default")
def logsumexp(n, self, dim, keepdim=False):
    axes = n.axes(dim, self.rank)
    return shaped(reductions.log_sum_exp(n, n.cast(self, n.dtype), axes, keepdim), kept(self, axes, keepdim))


@op("norm.ScalarOpt_dim", "linalg_vector_norm.default", "norm.Scalar", "norm.ScalarOpt_dim_dtype")
def norm(n, self, p=2, ord=2, dim=None, keepdim=False, dtype=None):
    order = ord if "vector_norm" in n.op else 2 if p is None else p
    axes = n.axes(dim, self.rank)
    x = n.b.abs(n.cast(self, n.dtype))
    if order in (float("inf"), float("-inf")):
        return _extreme(n, x, axes, keepdim, order > 0)
    if order == 0:
        return reduced(n, n.b.sum, n.cast(n.cast(x, "bool"), x.dtype), axes, keepdim)
    if order == 1:
        return reduced(n, n.b.sum, x, axes, keepdim)
    if order == 2:
        return n.b.sqrt(reduced(n, n.b.sum, n.b.square(x), axes, keepdim))
    return n.b.pow(reduced(n, n.b.sum, n.b.pow(x, float(order)), axes, keepdim), 1 / order)


@op("linalg_norm.default")
def linalg_norm(n, self, ord=None, dim=None, keepdim=False, dtype=None):
    if ord not in (None, 2) or ord is not None and (self.rank > 1 and not isinstance(dim, int) and
                                                    len(dim or range(self.rank)) > 1):
        raise n.error(f"{ord!r} of {self!r}", "ord")
    axes = n.axes(dim, self.rank)
    return n.b.sqrt(reduced(n, n.b.sum, n.b.square(n.cast(self, n.dtype)), axes, keepdim))


@op("cumsum.default", "cumprod.default")
def cumulative(n, self, dim, dtype=None):
    x = n.cast(self, n.dtype)
    if not x.rank:
        return x
    return shaped((n.b.cumsum if "cumsum" in n.op else n.b.cumprod)(x, axis=n.axis(dim, x.rank, "dim")), x.shape)


@op("topk.default")
def topk(n, self, k, dim=-1, largest=True, sorted=True):
    axis, count = n.axis(dim, self.rank, "dim"), n.integer(k, "k")
    if isinstance(self.shape[axis], int) and not 0 <= count <= self.shape[axis]:
        raise n.malformed(f"argument 'k': {count} of axis {axis} of {self!r}")
    if largest:
        places = n.b.topk(self, k=count, axis=axis)
    else:
        places = sliced(n, n.b.argsort(self, axis=axis, descending=False), axis, 0, count, 1)
    return _taken(n, self, places, axis, (*self.shape[:axis], count, *self.shape[axis + 1:]))


def _taken(n, x, places, axis, sizes):
    return shaped(n.b.take_along(x, places, axis=axis), sizes), shaped(n.cast(places, "i64"), sizes)


@op("sort.default", "sort.stable", "argsort.default", "argsort.stable")
def sort(n, self, dim=-1, descending=False, stable=False):
    axis = n.axis(dim, self.rank, "dim")
    places = n.b.argsort(self, axis=axis, descending=bool(descending))
    made = _taken(n, self, places, axis, self.shape)
    return made[1] if "argsort" in n.op else made


@op("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default", "_safe_softmax.default")
def softmax(n, self, dim, half_to_float=False, dtype=None):
    x = n.cast(self, n.dtype)
    if not x.rank:
        return n.b.full((), 0 if "log" in n.op else 1, x.dtype)
    axis = n.axis(dim, x.rank, "dim")
    made = shaped((n.b.log_softmax if "log_softmax" in n.op else n.b.softmax)(x, axis=axis), x.shape)
    if "_safe" in n.op:
        hidden = n.b.eq(n.b.max(x, axis=[axis], keep_dims=True), n.b.number(limits(x.dtype)[0], x.dtype))
        made = shaped(n.b.where(hidden, n.b.number(0, x.dtype), made), x.shape)
    return made


@op("bucketize.Tensor", "searchsorted.Tensor")
def searchsorted(n, self=None, boundaries=None, sorted_sequence=None, out_int32=False, right=False, side=None,
                 sorter=None):
    if sorter is not None:
        raise n.error("is not supported", "sorter")
    edges = boundaries if boundaries is not None else sorted_sequence
    right = right if side is None else side == "right"
    if edges.rank > 1:
        raise n.error(f"several rows of edges: {edges!r}")
    dtype = edges.dtype if edges.dtype in FLOATS else self.dtype
    return n.b.searchsorted(n.cast(edges, dtype), n.cast(self, dtype), right=bool(right))

"""Sums, extremes, orders and running sums."""

import math

import numpy as np

from ..importing import reductions
from ..importing import sizes as sz
from ..importing.padding import padded
from ..importing.shaping import shaped, sliced
from ..importing.types import FLOATS, check_computed, limits
from .linear_algebra import matrix_norm
from .node import in_f32, op, refuse
from .pointwise import log_add_exp, power_of_size, root
from .shapes import permuted

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
    x, axes = n.cast(self, n.dtype), n.axes(dim, self.rank)
    if x.dtype != "c64":
        return reduced(n, n.b.prod, x, axes, keepdim)
    for axis in axes:
        size = n.known_size(x, axis)
        x = sliced(n, _doubled(n, x, axis, n.b.mul, 1), axis, size - 1, size, 1) if size else \
            n.b.full(kept(x, [axis], True), 1, "c64")
    return n.b.reshape_to(x, kept(self, axes, keepdim))


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
    if not self.rank:
        return self, n.b.full((), 0, "i64")
    if self.dtype == "bool":
        made, places = running_extreme(n, n.cast(self, "u8"), dim)
        return n.cast(made, "bool"), places
    axis = n.axis(dim, self.rank, "dim")
    made = shaped((n.b.cummax if "cummax" in n.op else n.b.cummin)(self, axis=axis), self.shape)
    if not n.wants(1):
        return made, None
    # the last place up to here whose element is the extreme; of what has no number, the last of these
    hit = n.b.eq(self, made)
    hit = n.b.logical_or(hit, n.b.is_nan(self)) if self.dtype in FLOATS else hit
    form = tuple(one if i == axis else 1 for i, one in enumerate(self.shape))
    places = n.b.reshape_to(n.b.iota(self.shape[axis]), form)
    places = shaped(n.b.where(hit, places, n.b.number(0, "i64")), self.shape)
    return made, shaped(n.b.cummax(places, axis=axis), self.shape)


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
    return n.cast(reduced(n, function, n.cast(self, "bool"), n.listed_axes(dim, self.rank), keepdim), n.dtype)


@op("var.correction", "var.dim", "var.default", "std.correction", "std.dim", "std.default", "var_mean.correction",
    "std_mean.correction", "var_mean.dim", "std_mean.dim", "var_mean.default", "std_mean.default")
@in_f32
def variance(n, self, dim=None, correction=None, keepdim=False, unbiased=True):
    axes = n.axes(dim, self.rank)
    correction = float(unbiased) if correction is None else correction
    count = sz.product(self.shape[axis] for axis in axes)
    mean = n.b.mean(self, axis=axes, keep_dims=True) if axes else self
    apart = self - mean
    squares = n.b.square(n.b.abs(apart) if self.dtype == "c64" else apart)
    sums = reduced(n, n.b.sum, squares, axes, keepdim)
    if isinstance(count, int):
        divisor = n.value(float(max(count - correction, 0)), squares.dtype)
    else:
        divisor = n.cast(n.b.scalar_size(count), squares.dtype) - float(correction)
    made = sums / divisor
    made = root(n, made) if "std" in n.op else made
    made = shaped(made, kept(self, axes, keepdim))
    if "_mean" not in n.op:
        return made
    return made, n.b.reshape_to(shaped(mean, kept(self, axes, True)), kept(self, axes, keepdim))


@op("logsumexp.default", "special_logsumexp.default")
@in_f32
def logsumexp(n, self, dim, keepdim=False):
    axes = n.axes(dim, self.rank)
    return shaped(reductions.log_sum_exp(n, n.cast(self, n.dtype), axes, keepdim), kept(self, axes, keepdim))


@op("norm.ScalarOpt_dim", "linalg_vector_norm.default", "norm.Scalar", "norm.ScalarOpt_dim_dtype")
@in_f32
def norm(n, self, p=2, ord=2, dim=None, keepdim=False, dtype=None):
    order = ord if "vector_norm" in n.op else 2 if p is None else p
    axes = n.axes(dim, self.rank)
    x = n.cast(n.b.abs(self), n.dtype) if self.dtype == "c64" else n.b.abs(n.cast(self, n.dtype))
    if order in (float("inf"), float("-inf")):
        return _extreme(n, x, axes, keepdim, order > 0)
    if order == 0:
        return reduced(n, n.b.sum, n.cast(n.cast(x, "bool"), x.dtype), axes, keepdim)
    if order == 1:
        return reduced(n, n.b.sum, x, axes, keepdim)
    if order == 2:
        return root(n, reduced(n, n.b.sum, n.b.square(x), axes, keepdim))
    return power_of_size(n, reduced(n, n.b.sum, power_of_size(n, x, float(order)), axes, keepdim), 1 / order)


@op("linalg_norm.default")
@in_f32
def linalg_norm(n, self, ord=None, dim=None, keepdim=False, dtype=None):
    axes = n.axes(dim, self.rank)
    if ord is not None and len(axes) == 2:
        if self.dtype == "c64":
            raise n.error(f"{ord!r} of {self!r}", "ord")
        return matrix_norm(n, self, ord, axes, keepdim)
    if ord is not None:
        return norm(n, self, p=ord, dim=axes, keepdim=keepdim)
    x = n.cast(n.b.abs(self) if self.dtype == "c64" else self, n.dtype)
    return root(n, reduced(n, n.b.sum, n.b.square(x), axes, keepdim))


@op("cumsum.default", "cumprod.default")
def cumulative(n, self, dim, dtype=None):
    x = n.cast(self, n.dtype)
    if not x.rank:
        return x
    axis = n.axis(dim, x.rank, "dim")
    if x.dtype == "c64" and "cumprod" in n.op:
        return _doubled(n, x, axis, n.b.mul, 1)
    return shaped((n.b.cumsum if "cumsum" in n.op else n.b.cumprod)(x, axis=axis), x.shape)


@op("logcumsumexp.default")
def running_log_sum_exp(n, self, dim):
    """Sums of two at a time, so that none ever holds exp of a large number."""
    x = n.cast(self, n.dtype)
    if not x.rank or x.dtype not in FLOATS:
        if x.dtype not in FLOATS:
            raise n.error(f"of {self!r}")
        return x
    return _doubled(n, x, n.axis(dim, x.rank, "dim"), lambda a, b: log_add_exp(n, a, b), -math.inf)


def _doubled(n, x, axis, join, neutral):
    """What `join` makes of all elements up to each: of 1, 2, 4, ... before it at a time."""
    reach, size = 1, n.known_size(x, axis)
    while reach < size:
        before = [reach if i == axis else 0 for i in range(x.rank)]
        earlier = padded(n, sliced(n, x, axis, 0, size - reach, 1), before, [0] * x.rank, "constant",
                         n.b.number(neutral, x.dtype))
        x = shaped(join(x, shaped(earlier, x.shape)), x.shape)
        reach *= 2
    return x


@op("trapz.dx", "trapezoid.dx", "trapezoid.x", "trapz.x", "cumulative_trapezoid.dx", "cumulative_trapezoid.x")
def trapezoids(n, y, dx=1, dim=-1, x=None):
    axis = n.axis(dim, y.rank, "dim")
    size = n.known_size(y, axis)
    wide = n.cast(y, n.dtype)
    if size < 2 and "cumulative" not in n.op:
        return n.b.full(kept(y, [axis], False), 0, n.dtype)
    areas = sliced(n, wide, axis, 1, size, 1) + sliced(n, wide, axis, 0, max(size - 1, 0), 1)
    if x is None:
        areas = areas * n.value(dx / 2, n.dtype)
    else:
        steps = n.cast(x, n.dtype)
        at = axis if x.rank > 1 else 0
        count = n.known_size(x, at)
        steps = sliced(n, steps, at, 1, count, 1) - sliced(n, steps, at, 0, count - 1, 1)
        if x.rank == 1:
            steps = n.b.reshape_to(steps, (count - 1,) + (1,) * (y.rank - 1 - axis))
        areas = areas * steps * n.value(0.5, n.dtype)
    if "cumulative" in n.op:
        return n.b.cumsum(areas, axis=axis)
    return reduced(n, n.b.sum, areas, [axis], False)


@op("topk.default")
def topk(n, self, k, dim=-1, largest=True, sorted=True):
    axis, count = n.axis(dim, self.rank, "dim"), n.integer(k, "k")
    if not self.rank and count == 1:
        return self, n.b.full((), 0, "i64")
    if not self.rank or isinstance(self.shape[axis], int) and not 0 <= count <= self.shape[axis]:
        raise n.malformed(f"argument 'k': {count} of axis {axis} of {self!r}")
    if largest:
        places = n.b.largest(self, count, axis)
    else:
        places = sliced(n, _order(n, self, axis), axis, 0, count, 1)
    return _taken(n, self, places, axis, (*self.shape[:axis], count, *self.shape[axis + 1:]))


def _taken(n, x, places, axis, sizes):
    return shaped(n.b.take_along(x, places, axis=axis), sizes), shaped(n.cast(places, "i64"), sizes)


def _order(n, x, axis, descending=False):
    """The places of the elements in order; of bool, False comes first."""
    return n.b.argsort(n.cast(x, "u8") if x.dtype == "bool" else x, axis=axis, descending=bool(descending))


@op("sort.default", "sort.stable", "argsort.default", "argsort.stable")
def sort(n, self, dim=-1, descending=False, stable=False):
    if not self.rank:
        return n.b.full((), 0, "i64") if "argsort" in n.op else (self, n.b.full((), 0, "i64"))
    axis = n.axis(dim, self.rank, "dim")
    places = _order(n, self, axis, descending)
    made = _taken(n, self, places, axis, self.shape)
    return made[1] if "argsort" in n.op else made


@op("softmax.int", "special_softmax.default", "_softmax.default", "log_softmax.int", "special_log_softmax.default",
    "_log_softmax.default", "_safe_softmax.default")
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
    dtype = edges.dtype if edges.dtype in FLOATS else self.dtype
    if edges.rank > 1:  # a row of edges for each row of values: how many of them are before a value
        behind = (n.b.gt if right else n.b.ge)(n.b.unsqueeze(n.cast(edges, dtype), edges.rank - 1),
                                               n.b.unsqueeze(n.cast(self, dtype), self.rank))  # never of a NaN
        counts = n.b.sum(n.cast(n.b.logical_not(behind), "i64"), axis=[self.rank], keep_dims=False)
        return shaped(counts, self.shape)
    return n.b.searchsorted(n.cast(edges, dtype), n.cast(self, dtype), right=bool(right))


@op("msort.default")
def msort(n, self):
    return _taken(n, self, _order(n, self, 0), 0, self.shape)[0] if self.rank else self


@op("kthvalue.default")
def kthvalue(n, self, k, dim=-1, keepdim=False):
    if not self.rank:
        return self, n.b.full((), 0, "i64")
    axis, count = n.axis(dim, self.rank, "dim"), n.integer(k, "k")
    if isinstance(self.shape[axis], int) and not 1 <= count <= self.shape[axis]:
        raise n.malformed(f"argument 'k': {count} of axis {axis} of {self!r}")
    return _at_rank(n, self, axis, count - 1, keepdim)


def _at_rank(n, x, axis, rank, keepdim):
    """(the element with so many before it in ascending order, its place)"""
    order = _order(n, x, axis)
    made = _taken(n, x, sliced(n, order, axis, rank, rank + 1, 1), axis, kept(x, [axis], True))
    return tuple(n.b.reshape_to(one, kept(x, [axis], keepdim)) for one in made)


@op("median.dim", "median.default", "nanmedian.dim", "nanmedian.default")
def median(n, self, dim=None, keepdim=False):
    """The lower of two; of elements among which some are no numbers, one of these, or with `nan` the others' median."""
    x = n.b.reshape_to(self, (sz.product(self.shape),)) if dim is None or not self.rank else self
    axis = n.axis(dim if self.rank and dim is not None else 0, x.rank, "dim")
    size, skips = n.known_size(x, axis), "nanmedian" in n.op
    if not size:
        if dim is None and x.dtype in FLOATS:
            return n.b.full((), float("nan"), x.dtype)
        raise n.malformed(f"the median of no elements of {self!r}")
    sizes = () if not self.rank else kept(x, [axis], keepdim)
    is_nan = n.b.is_nan(x) if x.dtype in FLOATS else None
    order = n.b.argsort(x, axis=axis, descending=False)
    if skips and is_nan is not None:
        count = n.b.sum(n.cast(n.b.logical_not(is_nan), "i64"), axis=[axis], keep_dims=True)
        rank = n.b.maximum(count - n.value(1, "i64"), n.value(0, "i64")) / n.value(2, "i64")
        places = n.b.take_along(order, n.cast(rank, "i64"), axis=axis)
    else:
        places = sliced(n, order, axis, (size - 1) // 2, (size - 1) // 2 + 1, 1)
    places = n.cast(places, "i64")
    if is_nan is not None and not skips:
        first = n.b.argmax(n.cast(is_nan, "u8"), axis=axis, keep_dims=True, dtype="i64")
        places = n.b.where(n.b.any(is_nan, axis=[axis], keep_dims=True), first, places)
    values, places = _taken(n, x, places, axis, kept(x, [axis], True))
    values, places = n.b.reshape_to(values, sizes), n.b.reshape_to(places, sizes)
    return values if dim is None else (values, places)


@op("quantile.scalar", "quantile.default")
def quantile(n, self, q, dim=None, keepdim=False, interpolation="linear"):
    n.words(interpolation, "interpolation", ("linear", "lower", "higher", "nearest", "midpoint"))
    x = n.b.reshape_to(self, (sz.product(self.shape),)) if dim is None else self
    axis = n.axis(0 if dim is None else dim, x.rank, "dim")
    size = n.known_size(x, axis)
    if not size:
        raise n.malformed(f"quantiles of no elements of {self!r}")
    sizes = kept(self, n.axes(dim, self.rank), keepdim) if self.rank else ()
    rows = permuted(n, x, [*(i for i in range(x.rank) if i != axis), axis])
    order = n.b.argsort(rows, axis=x.rank - 1, descending=False)
    ordered = n.b.take_along(rows, order, axis=x.rank - 1)
    at = n.cast(n.value(q, x.dtype), "f64") * float(size - 1)  # PyTorch: a rank in double precision
    at = n.b.round(at) if interpolation == "nearest" else at
    below, above = n.b.floor(at), n.b.ceil(at)
    low, high = (n.b.gather(ordered, n.cast(one, "i64"), axis=x.rank - 1) for one in (below, above))
    weight = {"lower": 0.0, "nearest": 0.0, "higher": 1.0, "midpoint": 0.5}.get(interpolation)
    part = n.value(weight, x.dtype) if weight is not None else n.cast(at - below, x.dtype)
    made = n.b.where(n.b.eq(low, high), low, low + (high - low) * part)  # infinities have no difference
    nans = n.b.any(n.b.is_nan(rows), axis=[x.rank - 1], keep_dims=at.rank > 0)
    made = n.b.where(nans, n.b.number(float("nan"), x.dtype), made)
    if not at.rank:
        return n.b.reshape_to(shaped(made, rows.shape[:-1]), sizes)
    made = permuted(n, shaped(made, (*rows.shape[:-1], *at.shape)), [x.rank - 1, *range(x.rank - 1)])
    return n.b.reshape_to(made, (*at.shape, *sizes))


@op("nansum.default", "nanmean.default")
def without_nans(n, self, dim=None, keepdim=False, dtype=None):
    axes, wide = n.axes(dim, self.rank), n.cast(self, n.dtype)
    if wide.dtype not in FLOATS:
        return reduced(n, n.b.sum, wide, axes, keepdim)
    is_nan = n.b.is_nan(wide)
    made = reduced(n, n.b.sum, n.b.where(is_nan, n.b.number(0, wide.dtype), wide), axes, keepdim)
    if "nansum" in n.op:
        return made
    return made / reduced(n, n.b.sum, n.cast(n.b.logical_not(is_nan), wide.dtype), axes, keepdim)


@op("count_nonzero.default", "count_nonzero.dim_IntList")
def count_nonzero(n, self, dim=None):
    return reduced(n, n.b.sum, n.cast(n.cast(self, "bool"), "i64"), n.axes(dim, self.rank), False)


@op("trace.default")
def trace(n, self):
    rows, columns = n.known_size(self, 0), n.known_size(self, 1)
    flat = n.b.reshape_to(self, (rows * columns,))
    picked = n.b.gather(flat, n.b.known(n.arange(min(rows, columns)) * (columns + 1)), axis=0)
    return shaped(n.b.sum(n.cast(picked, n.dtype), axis=[0], keep_dims=False), ())


@op("bincount.default")
def bincount(n, self, weights=None, minlength=0):
    """How often each number occurs, or the sum of its weights; the greatest number decides the result's size."""
    found = n.array(self, "the numbers, whose greatest decides the result's size,")
    if found.ndim != 1 or found.size and found.min() < 0:
        raise n.malformed(f"the numbers {self!r}")
    count = max(n.integer(minlength, "minlength"), int(found.max()) + 1 if found.size else 0)
    check_computed(n.where, [count])
    if weights is None:
        return n.known_like(np.bincount(found.astype(np.int64), minlength=count).astype(np.int64), self)
    made = n.b.scatter(n.b.constant(n.b.full((count,), 0, n.dtype)), n.b.known(found.astype(np.int64)),
                       n.cast(weights, n.dtype), axis=0, mode="add")
    return shaped(made, (count,))


@op("histc.default")
def histc(n, self, bins=100, min=0, max=0):
    """How many elements lie in each of equal parts of [min, max]; of that of the elements where both are the same."""
    count = n.integer(bins, "bins")
    if count < 1 or count > 2**20 or not min <= max:
        raise n.malformed(f"{count} parts of [{min}, {max}]")
    x = n.b.reshape_to(self, (sz.product(self.shape),))
    zeros = n.b.full((count,), 0, x.dtype)
    if x.shape[0] == 0:
        return zeros
    low, high = n.value(float(min), x.dtype), n.value(float(max), x.dtype)
    if min == max:
        if not isinstance(x.shape[0], int):
            raise n.not_known(f"the range of {self!r}, which may be empty: give `min` and `max`, or `shapes`")
        low, high = (one(x, axis=[0], keep_dims=False) for one in (n.b.min, n.b.max))
        is_one = n.b.eq(low, high)
        low, high = n.b.where(is_one, low - 1.0, low), n.b.where(is_one, high + 1.0, high)
    inside = n.b.logical_and(n.b.ge(x, low), n.b.le(x, high))
    place = n.b.where(inside, (x - low) * float(count) / (high - low), n.b.number(0, x.dtype))
    place = n.b.minimum(n.cast(place, "i64"), n.value(count - 1, "i64"))
    made = n.b.scatter(n.b.constant(zeros), shaped(place, x.shape), shaped(n.cast(inside, x.dtype), x.shape), axis=0,
                       mode="add")
    return shaped(made, (count,))

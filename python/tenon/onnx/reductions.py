"""Reductions, orders and running sums."""

from . import sizes as sz
from .node import op
from .pointwise import items, shaped, wrapped
from .shapes import axes_of, sliced
from .types import FLOATS, limits


@op("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare")
def reduce(n, x, given=None):
    keep = bool(n.attribute("keepdims", 1))
    axes = axes_of(n, given, x.rank)
    if axes is not None and not axes:
        axes = None
    if axes is None:
        if n.attribute("noop_with_empty_axes", 0):
            return n.b.cast(_FUNCTIONS[n.op](n, x, [], True), x.dtype)
        axes = list(range(x.rank))
    if n.op == "ReduceProd" and x.sizes is not None:
        total = sz.product(items(x))
        return n.b.of_sizes([total] if keep else total, x.inputs)
    made = _FUNCTIONS[n.op](n, x, axes, keep)
    sizes = tuple(1 if i in axes else one for i, one in enumerate(x.shape) if keep or i not in axes)
    return shaped(n.b.cast(made, x.dtype), sizes)


def _total(n, x, axes, keep):
    return n.b.cast(n.b.sum(x, axis=axes, keep_dims=keep), x.dtype)


def _mean(n, x, axes, keep):
    if x.dtype in FLOATS:
        return n.b.mean(x, axis=axes, keep_dims=keep)
    return n.b.mean(n.b.cast(x, "f64"), axis=axes, keep_dims=keep)


def _extreme(n, x, axes, keep):
    is_max = n.op == "ReduceMax"
    if any(x.shape[axis] == 0 for axis in axes):
        sizes = [1 if i in axes else one for i, one in enumerate(x.shape) if keep or i not in axes]
        bounds = (False, True) if x.dtype == "bool" else limits(x.dtype)
        return n.b.full(tuple(sizes), bounds[0] if is_max else bounds[1], x.dtype)
    if x.dtype == "bool":
        return (n.b.any if is_max else n.b.all)(x, axis=axes, keep_dims=keep)
    return (n.b.max if is_max else n.b.min)(x, axis=axes, keep_dims=keep)


def _log_sum_exp(n, x, axes, keep):
    wide = x if x.dtype in FLOATS else n.b.cast(x, "f64")
    if any(x.shape[axis] == 0 for axis in axes) or not axes:
        return n.b.log(_total(n, n.b.exp(wide), axes, keep))
    top = n.b.max(wide, axis=axes, keep_dims=True)
    top = n.b.where(n.b.is_finite(top), top, n.b.number(0, wide.dtype))
    sums = n.b.sum(n.b.exp(wide - top), axis=axes, keep_dims=keep)
    return n.b.log(sums) + (top if keep else n.b.sum(top, axis=axes, keep_dims=False))


def _l2(n, x, axes, keep):
    wide = x if x.dtype in FLOATS else n.b.cast(x, "f64")
    return n.b.sqrt(n.b.sum(n.b.square(wide), axis=axes, keep_dims=keep))


def _log_sum(n, x, axes, keep):
    wide = x if x.dtype in FLOATS else n.b.cast(x, "f64")
    return n.b.log(n.b.sum(wide, axis=axes, keep_dims=keep))


_FUNCTIONS = {
    "ReduceSum": _total, "ReduceMean": _mean, "ReduceMax": _extreme, "ReduceMin": _extreme,
    "ReduceProd": lambda n, x, axes, keep: n.b.prod(x, axis=axes, keep_dims=keep),
    "ReduceL1": lambda n, x, axes, keep: _total(n, n.b.abs(x) if x.dtype[0] != "u" else x, axes, keep),
    "ReduceL2": _l2, "ReduceLogSum": _log_sum, "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda n, x, axes, keep: _total(n, n.b.square(x), axes, keep),
}


@op("ArgMax", "ArgMin")
def arg_extreme(n, x):
    axis = n.axis(n.attribute("axis", 0), x.rank)
    keep = bool(n.attribute("keepdims", 1))
    find = n.b.argmax if n.op == "ArgMax" else n.b.argmin
    if not n.attribute("select_last_index", 0):
        made = find(x, axis=axis, keep_dims=keep, dtype="i64")
    else:
        size = n.known_size(x, axis)
        backwards = sliced(n, x, axis, size - 1, None, -1)
        made = n.b.neg(find(backwards, axis=axis, keep_dims=keep, dtype="i64")) + (size - 1)
    return shaped(made, tuple(1 if i == axis else one for i, one in enumerate(x.shape) if keep or i != axis))


@op("TopK")
def top_k(n, x, k=None):
    axis = n.axis(n.attribute("axis", -1), x.rank)
    count = n.attribute("k") if k is None else int(n.number(k, "k"))
    if count < 0 or isinstance(x.shape[axis], int) and count > x.shape[axis]:
        raise n.malformed(f"{count} of axis {axis} of {x!r}")
    if n.attribute("largest", 1):
        places = n.b.topk(x, k=count, axis=axis)
    else:
        places = sliced(n, n.b.argsort(x, axis=axis, descending=False), axis, 0, count, 1)
    sizes = (*x.shape[:axis], count, *x.shape[axis + 1:])
    return shaped(n.b.take_along(x, places, axis=axis), sizes), shaped(n.b.cast(places, "i64"), sizes)


@op("CumSum", "CumProd")
def cumulative(n, x, given=None):
    axis = n.axis(int(n.number(given, "the axis")) if given is not None else n.attribute("axis"), x.rank)
    exclusive, reverse = n.attribute("exclusive", 0), n.attribute("reverse", 0)
    made = sliced(n, x, axis, -1, None, -1) if reverse else x
    run = n.b.cumsum if n.op == "CumSum" else n.b.cumprod
    made = wrapped(n, run(made, axis=axis), x.dtype)
    if exclusive:
        size = n.known_size(x, axis)
        before = tuple(int(i == axis) for i in range(x.rank))
        if size:
            made = n.b.pad(sliced(n, made, axis, 0, size - 1, 1), before=before, after=(0,) * x.rank,
                           value=0.0 if n.op == "CumSum" else 1.0)
    made = sliced(n, made, axis, -1, None, -1) if reverse else made
    return shaped(made, x.shape)


@op("Softmax", "LogSoftmax", "Hardmax")
def softmax(n, x):
    axis = n.axis(n.attribute("axis", -1 if n.version >= 13 else 1), x.rank)
    if n.version >= 13 or axis == x.rank - 1:
        return shaped(_softmax(n, x, axis), x.shape)
    matrix = n.b.reshape_to(x, (sz.product(x.shape[:axis]), sz.product(x.shape[axis:])))
    return n.b.reshape_to(shaped(_softmax(n, matrix, 1), matrix.shape), x.shape)


def _softmax(n, x, axis):
    if x.rank == 0:
        raise n.malformed("a scalar")
    if n.op == "Hardmax":
        size = n.known_size(x, axis)
        form = (size,) + (1,) * (x.rank - 1 - axis)
        best = n.b.argmax(x, axis=axis, keep_dims=True, dtype="i64")
        return n.b.cast(n.b.eq(best, n.b.known(n.arange(size).reshape(form))), x.dtype)
    return (n.b.softmax if n.op == "Softmax" else n.b.log_softmax)(x, axis=axis)

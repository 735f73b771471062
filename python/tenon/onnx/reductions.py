"""Reductions, orders and running sums."""

from ..importing import sizes as sz
from ..importing.reductions import extreme, l2, log_sum_exp, mean, total, widened
from ..importing.shaping import items, shaped, sliced, wrapped
from ..importing.types import FLOATS
from .node import op
from .shapes import axes_of


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
        product = sz.product(items(x))
        return n.b.of_sizes([product] if keep else product, x.inputs)
    made = _FUNCTIONS[n.op](n, x, axes, keep)
    sizes = tuple(1 if i in axes else one for i, one in enumerate(x.shape) if keep or i not in axes)
    return shaped(n.b.cast(made, x.dtype), sizes)


def _log_sum(n, x, axes, keep):
    return n.b.log(n.b.sum(widened(n, x), axis=axes, keep_dims=keep))


_FUNCTIONS = {
    "ReduceSum": total, "ReduceMean": mean, "ReduceMax": lambda n, x, axes, keep: extreme(n, x, axes, keep, True),
    "ReduceMin": lambda n, x, axes, keep: extreme(n, x, axes, keep, False),
    "ReduceProd": lambda n, x, axes, keep: n.b.prod(x, axis=axes, keep_dims=keep),
    "ReduceL1": lambda n, x, axes, keep: total(n, n.b.abs(x) if x.dtype[0] != "u" else x, axes, keep),
    "ReduceL2": l2, "ReduceLogSum": _log_sum, "ReduceLogSumExp": log_sum_exp,
    "ReduceSumSquare": lambda n, x, axes, keep: total(n, n.b.square(widened(n, x) if x.dtype in FLOATS else x), axes, keep),
}


@op("ArgMax", "ArgMin")
def argextreme(n, x):
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
        places = n.b.largest(x, count, axis)
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
        if size == 0:
            return x
        form = (size,) + (1,) * (x.rank - 1 - axis)
        best = n.b.argmax(x, axis=axis, keep_dims=True, dtype="i64")
        return n.b.cast(n.b.eq(best, n.b.known(n.arange(size).reshape(form))), x.dtype)
    return (n.b.softmax if n.op == "Softmax" else n.b.log_softmax)(x, axis=axis)

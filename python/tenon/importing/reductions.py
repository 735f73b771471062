"""Sums, extremes and what is made of them."""

from .types import FLOATS, limits


def total(n, x, axes, keep):
    return n.b.cast(n.b.sum(x, axis=axes, keep_dims=keep), x.dtype)


def mean(n, x, axes, keep):
    if x.dtype in FLOATS:
        return n.b.mean(x, axis=axes, keep_dims=keep)
    return n.b.mean(n.b.cast(x, "f64"), axis=axes, keep_dims=keep)


def extreme(n, x, axes, keep, is_max):
    if any(x.shape[axis] == 0 for axis in axes):
        sizes = [1 if i in axes else one for i, one in enumerate(x.shape) if keep or i not in axes]
        bounds = (False, True) if x.dtype == "bool" else limits(x.dtype)
        return n.b.full(tuple(sizes), bounds[0] if is_max else bounds[1], x.dtype)
    if x.dtype == "bool":
        return (n.b.any if is_max else n.b.all)(x, axis=axes, keep_dims=keep)
    return (n.b.max if is_max else n.b.min)(x, axis=axes, keep_dims=keep)


def widened(n, x):
    """x in a type that holds sums of squares of its numbers: of f16 and bf16 in f32, of integers in f64."""
    return n.b.cast(x, "f32" if x.dtype in ("f16", "bf16") else x.dtype if x.dtype in FLOATS else "f64")


def log_sum_exp(n, x, axes, keep):
    wide = widened(n, x)
    if any(x.shape[axis] == 0 for axis in axes) or not axes:
        return n.b.log(total(n, n.b.exp(wide), axes, keep))
    top = n.b.max(wide, axis=axes, keep_dims=True)
    top = n.b.where(n.b.is_finite(top), top, n.b.number(0, wide.dtype))
    sums = n.b.sum(n.b.exp(wide - top), axis=axes, keep_dims=keep)
    return n.b.log(sums) + (top if keep else n.b.sum(top, axis=axes, keep_dims=False))


def l2(n, x, axes, keep):
    return n.b.sqrt(n.b.sum(n.b.square(widened(n, x)), axis=axes, keep_dims=keep))

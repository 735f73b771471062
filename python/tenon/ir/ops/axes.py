"""Along axes: reductions, running values, sorting, norms."""
import numpy as np

from . import op


def reduce(function, x, axes, keep_dims, **options):
    return function(x, axis=tuple(axes), keepdims=keep_dims, **options)


@op
def sum_(x, axes, keep_dims):
    return reduce(np.sum, x, axes, keep_dims, dtype=x.dtype if x.dtype.kind == "f" else np.int64)


@op
def prod(x, axes, keep_dims):
    return reduce(np.prod, x, axes, keep_dims, dtype=x.dtype if x.dtype.kind == "f" else np.int64)


@op
def mean(x, axes, keep_dims):
    count = np.prod([x.shape[axis] for axis in axes])
    return reduce(np.sum, x, axes, keep_dims) / count  # NaN for none, without numpy's warning


def mean_of_last(x):
    return mean(x, [x.ndim - 1], True)


@op
def max_(x, axes, keep_dims):
    return reduce(np.max, x, axes, keep_dims)


@op
def min_(x, axes, keep_dims):
    return reduce(np.min, x, axes, keep_dims)


@op
def any_(x, axes, keep_dims):
    return reduce(np.any, x, axes, keep_dims)


@op
def all_(x, axes, keep_dims):
    return reduce(np.all, x, axes, keep_dims)


@op
def argmax(x, axis, keep_dims, dtype):
    return np.argmax(x, axis=axis, keepdims=keep_dims)


@op
def argmin(x, axis, keep_dims, dtype):
    return np.argmin(x, axis=axis, keepdims=keep_dims)


@op
def cumsum(x, axis):
    return np.cumsum(x, axis=axis, dtype=x.dtype if x.dtype.kind == "f" else np.int64)


@op
def cumprod(x, axis):
    return np.cumprod(x, axis=axis, dtype=x.dtype if x.dtype.kind == "f" else np.int64)


@op
def cummax(x, axis):
    return np.maximum.accumulate(x, axis=axis)


@op
def cummin(x, axis):
    return np.minimum.accumulate(x, axis=axis)


def order(x, axis, descending):
    """The indices that sort an axis: of equals the lower first, in both directions; a NaN is largest."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backwards, axis)


@op
def argsort(x, axis, descending):
    return order(x, axis, descending)


@op
def sort(x, axis, descending):
    return np.take_along_axis(x, order(x, axis, descending), axis)


@op
def topk(x, k, axis):
    return np.take(order(x, axis, True), range(k), axis=axis)


@op
def searchsorted(ordered, values, right):
    side = "right" if right else "left"
    if ordered.ndim == 1:
        return np.searchsorted(ordered, values, side)
    result = np.zeros(values.shape, np.int64)
    for row in np.ndindex(values.shape[:-1]):
        result[row] = np.searchsorted(ordered[row], values[row], side)
    return result


@op
def softmax(x, axis):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=axis, keepdims=True)


@op
def log_softmax(x, axis):
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def normalised(x, eps):
    """Shifted and scaled to mean 0 and variance 1 along the last axis."""
    centred = x - mean_of_last(x)
    return centred / np.sqrt(mean_of_last(np.square(centred)) + eps)


def scaled(y, weight, bias):
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@op
def layer_norm(x, weight=None, bias=None, *, eps):
    return scaled(normalised(x, eps), weight, bias)


@op
def rms_norm(x, weight=None, *, eps):
    return scaled(x / np.sqrt(mean_of_last(np.square(x)) + eps), weight, None)


def along_channels(parameter, x):
    """A vector of axis 1 of x, so that it broadcasts."""
    return None if parameter is None else parameter.reshape((-1,) + (1,) * (x.ndim - 2))


@op
def batch_norm(x, mean, variance, weight=None, bias=None, *, eps):
    y = (x - along_channels(mean, x)) / np.sqrt(along_channels(variance, x) + eps)
    return scaled(y, along_channels(weight, x), along_channels(bias, x))


@op
def group_norm(x, weight=None, bias=None, *, groups, eps):
    size = np.prod(x.shape[1:], dtype=int) // groups
    y = normalised(x.reshape(x.shape[0], groups, size), eps).reshape(x.shape)
    return scaled(y, along_channels(weight, x), along_channels(bias, x))

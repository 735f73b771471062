"""Functions of elements and layers that are more than one op or read better with other arguments."""

from math import log10 as _math_log10
from numbers import Integral as _Integral

from .operands import _like, _ops, _public, functions
from .reductions import _no_out


@_public
def linear(x, w, bias=None, residual=None):
    """x times the transpose of w, of [N, K]: y[..., n] = sum_k x[..., k] * w[n, k] + bias[n] + residual[..., n]."""
    return _ops["linear"](_like(x), _like(w), bias=bias, residual=residual)


def _scales(weight, bias):
    """The operands of a norm that are given: with ones in the place of a weight where there is a bias alone."""
    if bias is None:
        return () if weight is None else (weight,)
    return functions["ones_like"](bias) if weight is None else weight, bias


@_public
def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """Each slice along the last axis with mean 0 and variance 1, times weight, plus bias."""
    return _ops["layer_norm"](x, *_scales(weight, bias), eps=eps)


@_public
def rms_norm(x, weight=None, eps=1e-5):
    """Each slice along the last axis with a root mean square of 1, times weight."""
    return _ops["rms_norm"](x, *_scales(weight, None), eps=eps)


@_public
def group_norm(x, weight=None, bias=None, groups=1, eps=1e-5):
    """Groups of the channels (axis 1) of each image with mean 0 and variance 1, channels times weight, plus bias."""
    return _ops["group_norm"](x, *_scales(weight, bias), groups=groups, eps=eps)


@_public
def batch_norm(x, mean, variance, weight=None, bias=None, eps=1e-5):
    """(x - mean) / sqrt(variance + eps) * weight + bias, each of them one number a channel (axis 1)."""
    return _ops["batch_norm"](x, mean, variance, *_scales(weight, bias), eps=eps)


@_public
def gelu(x, approximate=False):
    """x * (1 + erf(x / sqrt(2))) / 2, or its approximation by tanh: True, or PyTorch's words "tanh" and "none"."""
    if approximate not in (False, True, "none", "tanh"):
        raise ValueError(f"gelu: approximate={approximate!r} is none of False, True, 'none' and 'tanh'")
    return _ops["gelu_tanh" if approximate in (True, "tanh") else "gelu"](_like(x))


@_public
def swiglu(x, y):
    """silu(x) * y."""
    return _ops["silu"](x) * y


@_public
def clip(x, low=None, high=None, out=None):
    """x within [low, high]; None is no limit. Limits may be arrays."""
    _no_out("clip", out)
    x = _like(x)
    if all(isinstance(one, float) or isinstance(one, int) and abs(one) <= 2**53 for one in (low, high)):
        return _ops["clamp"](x, min=float(low), max=float(high))
    if low is not None:
        x = _ops["maximum"](x, low)
    return x if high is None else _ops["minimum"](x, high)


@_public
def round(x, decimals=0, out=None):
    """The nearest integer, or multiple of 10^-decimals; halves go to the even one."""
    _no_out("round", out)
    x = _like(x)
    if decimals and x.dtype.is_floating:
        return _ops["round"](x * 10.0**decimals) / 10.0**decimals
    return _ops["round"](x) if x.dtype.is_floating else x


@_public
def log10(x):
    """The logarithm to base 10."""
    return _ops["log2"](_like(x)) * _math_log10(2)


@_public
def pad(x, before=(), after=(), value=0.0, mode=""):
    """Elements around x: how many before and after each axis, as two tuples or as numpy has them, one pair for each
    axis, one for all, or a number for all. mode: "constant", "edge", "reflect" or "circular", which numpy and PyTorch
    call "wrap", and "edge" "replicate"."""
    x = _like(x)
    if isinstance(before, int) and after == ():
        before = ((before, before),) * x.ndim
    if len(before) == 2 and after == () and all(isinstance(one, int) for one in before):
        before = (tuple(before),) * x.ndim
    if after == () and before and all(isinstance(one, (tuple, list)) and len(one) == 2 for one in before):
        before, after = tuple(zip(*before))
    value = int(value) if isinstance(value, _Integral) else float(value)  # the op refuses what no double holds
    return _ops["pad"](x, before=tuple(before), after=tuple(after), value=value, mode=_PAD_MODES.get(mode, mode))


_PAD_MODES = {"wrap": "circular", "replicate": "edge"}

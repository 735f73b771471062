"""Functions of elements and layers that are more than one op or read better with other arguments."""

from math import log10 as _math_log10

from .making import _held, _is_real, full, zeros_like
from .operands import (EPSILONS, _UNSIGNED, _as_real, _cast, _is_whole, _like, _operand, _ops, _public, common,
                       functions)
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
    """x within [low, high]; None is no limit. Limits may be arrays. Integers beside a floating limit become f32."""
    _no_out("clip", out)
    x, low, high = _like(x), *(one if one is None else _operand(one) for one in (low, high))
    if isinstance(low, float) or isinstance(high, float):
        x = _as_real(x)
    elif x.dtype == "bool" and (type(low) is int or type(high) is int):
        x = _cast(x, "i64")
    if x.dtype != "u64" and all(isinstance(one, float) or isinstance(one, int) and abs(one) <= 2**53
                                for one in (low, high)):
        return _ops["clamp"](x, min=float(low), max=float(high))
    if low is not None:
        x = _ops["maximum"](*common(x, low))
    return x if high is None else _ops["minimum"](*common(x, high))


@_public
def round(x, decimals=0, out=None):
    """The nearest integer, or multiple of 10^-decimals; halves go to the even one."""
    _no_out("round", out)
    x = _like(x)
    if not x.dtype.is_floating:
        return _round_whole(x, 10**-decimals) if decimals < 0 and x.dtype != "bool" else x
    if decimals < 0:
        return _ops["round"](x / 10.0**-decimals) * 10.0**-decimals
    return _ops["round"](x * 10.0**decimals) / 10.0**decimals if decimals else _ops["round"](x)


def _round_whole(x, unit):
    """Integers as the nearest multiple of a unit, which is even."""
    if unit > 2**63:  # more than twice any i64
        return zeros_like(x)
    wide = x if x.dtype == "u64" else _cast(x, "i64")
    below = functions["floor_divide"](wide, unit)
    rest, half = wide - below * unit, unit // 2
    is_up = _ops["logical_or"](rest > half, _ops["logical_and"](_ops["eq"](rest, half), _ops["eq"](below % 2, 1)))
    return _cast((below + _cast(is_up, wide.dtype)) * unit, x.dtype)


@_public
def log10(x):
    """The logarithm to base 10: an integer of a power of 10, which the product of two rounded numbers may be just below."""
    x = _as_real(_like(x))
    made = _ops["log2"](x) * _math_log10(2)
    whole = _ops["round"](made)
    power = _ops["pow"](full((), 10.0, made.dtype), _ops["abs"](whole))
    ratio = _ops["where"](whole < 0.0, x * power, x / power)
    is_power = _ops["logical_and"](whole != 0.0, _ops["abs"](ratio - 1.0) <= EPSILONS[x.dtype.name])
    return made + _ops["stop_gradient"](_ops["where"](is_power, whole - made, zeros_like(made)))


@_public
def pad(x, before=(), after=(), value=0.0, mode=""):
    """Elements around x: how many before and after each axis, as two tuples or as numpy has them, one pair for each
    axis, one for all, or a number for all. mode: "constant", "edge", "reflect" or "circular", which numpy and PyTorch
    call "wrap", and "edge" "replicate"."""
    x = _like(x)
    before, after = _widths(x.ndim, before, after)
    value, mode = _held(value, x.dtype, "pad"), _PAD_MODES.get(mode, mode)
    if _is_real(value):
        return _ops["pad"](x, before=before, after=after, value=float(value), mode=mode)
    is_around = _ops["pad"](zeros_like(x, "bool"), before=before, after=after, value=1.0, mode=mode)
    return _ops["where"](is_around, full((), value, x.dtype), _ops["pad"](x, before=before, after=after, mode=mode))


def _widths(rank, before, after):
    """How many elements before each axis, and how many after, however they are given."""
    before, after = (one.tolist() if hasattr(one, "tolist") else one for one in (before, after))
    if not isinstance(after, int) and not len(after):
        if isinstance(before, int):
            before = (before,)
        pairs = [tuple(one) if isinstance(one, (tuple, list)) else one for one in before]
        if len(pairs) == 1:  # for all axes: a number, or a pair
            pairs = (pairs if isinstance(pairs[0], tuple) else [(pairs[0],) * 2]) * rank
        elif len(pairs) == 2 and not any(isinstance(one, tuple) for one in pairs):
            pairs = [tuple(pairs)] * rank
        if pairs and all(isinstance(one, tuple) and len(one) == 2 for one in pairs):
            return tuple(zip(*pairs)) if rank else ((), ())
        before = pairs
    return tuple(before), tuple(after)


_PAD_MODES = {"wrap": "circular", "replicate": "edge"}

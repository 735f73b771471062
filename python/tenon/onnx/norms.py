"""Normalisations."""

from ..importing import sizes as sz
from ..importing.reductions import widened
from ..importing.shaping import shaped, sliced
from ..importing.types import FLOATS
from .node import op


def _by_channel(n, value, x):
    """A number for each channel of x, broadcastable to it."""
    return n.b.reshape_to(value, (value.shape[0],) + (1,) * (x.rank - 2))


@op("BatchNormalization")
def batch_norm(n, x, scale, bias, mean, variance):
    eps, momentum = n.attribute("epsilon", 1e-5), n.attribute("momentum", 0.9)
    training = n.attribute("training_mode", 0) if n.version >= 14 else n.wants(1)
    if n.version < 7 and not n.attribute("is_test", 0):
        training = True
    if training and n.version < 14:
        raise n.error("training before opset 14")
    if not training:
        return shaped(_normalised(n, x, mean, variance, scale, bias, eps), x.shape)
    axes = [axis for axis in range(x.rank) if axis != 1]
    wide = x if x.dtype in ("f32", "f64") else n.b.cast(x, "f32")
    now = n.b.mean(wide, axis=axes, keep_dims=True)
    spread = n.b.mean(n.b.square(wide - now), axis=axes, keep_dims=False)
    now = n.b.cast(n.b.reshape_to(now, spread.shape), mean.dtype)
    spread = n.b.cast(spread, variance.dtype)
    return (_normalised(n, x, now, spread, scale, bias, eps), mean * momentum + now * (1 - momentum),
            variance * momentum + spread * (1 - momentum))


def _normalised(n, x, mean, variance, scale, bias, eps):
    if x.rank >= 2:
        operands = [n.b.cast(one, x.dtype) for one in (mean, variance, scale, bias)]
        return n.b.batch_norm(x, *operands, eps=eps)
    raise n.malformed(f"{x!r} has no channels")


@op("InstanceNormalization")
def instance_norm(n, x, scale, bias):
    channels = n.known_size(x, 1)
    return shaped(n.b.group_norm(x, scale, bias, groups=channels, eps=n.attribute("epsilon", 1e-5)),
                  x.shape)


@op("GroupNormalization")
def group_norm(n, x, scale, bias):
    groups, channels = n.attribute("num_groups"), n.known_size(x, 1)
    if groups < 1 or channels % groups:
        raise n.malformed(f"attribute 'num_groups': {groups} for {x!r}")
    if n.version < 21:  # a number for each group
        scale, bias = (n.b.reshape_to(n.b.broadcast(n.b.reshape_to(one, (groups, 1)), (groups, channels // groups)),
                                      (channels,)) for one in (scale, bias))
    return shaped(n.b.group_norm(x, scale, bias, groups=groups, eps=n.attribute("epsilon", 1e-5)), x.shape)


@op("LayerNormalization")
def layer_norm(n, x, scale, bias=None, *, default_eps=1e-5):
    axis = n.axis(n.attribute("axis", -1), x.rank)
    eps = n.attribute("epsilon", default_eps)
    stash = n.type("stash_type", "f32")
    weights = [one for one in (scale, bias) if one is not None]
    if not n.wants(1) and not n.wants(2) and (stash == "f32" or x.dtype == "f64"):
        made = _norm_of_rows(n, x, axis, weights, lambda rows, *ws: n.b.layer_norm(rows, *ws, eps=eps))
        if made is not None:
            return made
    axes = list(range(axis, x.rank))
    wide = n.b.cast(x, stash)
    mean = n.b.mean(wide, axis=axes, keep_dims=True)
    centred = wide - mean
    inverse = n.b.rsqrt(n.b.mean(n.b.square(centred), axis=axes, keep_dims=True) + eps)
    made = n.b.cast(centred * inverse, x.dtype) * scale
    return shaped(made if bias is None else made + bias, x.shape), mean, inverse


def _norm_of_rows(n, x, axis, weights, norm):
    """A norm of the last axes, merged as one; None where a weight has other sizes."""
    inner = x.shape[axis:]
    if not inner or any(one.shape != inner or one.dtype not in FLOATS for one in weights):
        return None
    length = sz.product(inner)
    if not isinstance(length, int):
        return None
    rows = n.b.reshape_to(x, (*x.shape[:axis], length))
    return n.b.reshape_to(shaped(norm(rows, *(n.b.reshape_to(one, (length,)) for one in weights)), rows.shape), x.shape)


@op("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(n, x, scale, *, default_eps=1e-5):
    axis = n.axis(n.attribute("axis", -1), x.rank)
    eps = n.attribute("epsilon", default_eps)
    stash = n.type("stash_type", "f32")
    if stash == "f32" or x.dtype == "f64":
        made = _norm_of_rows(n, x, axis, [scale], lambda rows, w: n.b.rms_norm(rows, w, eps=eps))
        if made is not None:
            return made
    axes = list(range(axis, x.rank))
    wide = n.b.cast(x, stash)
    inverse = n.b.rsqrt(n.b.mean(n.b.square(wide), axis=axes, keep_dims=True) + eps)
    return shaped(n.b.cast(wide * inverse, x.dtype) * scale, x.shape)


@op("LRN")
def local_response_norm(n, x):
    size, alpha = n.attribute("size"), n.attribute("alpha", 1e-4)
    beta, bias = n.attribute("beta", 0.75), n.attribute("bias", 1.0)
    channels = n.known_size(x, 1)
    if not 1 <= size <= 2**16:
        raise n.malformed(f"attribute 'size': {size}")
    before = min((size - 1) // 2, channels)
    after = min(size - 1 - (size - 1) // 2, channels)
    pads = tuple(int(axis == 1) for axis in range(x.rank))
    wide = n.b.pad(n.b.square(widened(n, x)), before=tuple(p * before for p in pads), after=tuple(p * after for p in pads))
    total = None
    for first in range(before + after + 1):
        part = sliced(n, wide, 1, first, first + channels, 1)
        total = part if total is None else total + part
    return n.b.cast(widened(n, x) / n.b.pow(total * (alpha / size) + bias, beta), x.dtype)


@op("LpNormalization")
def lp_norm(n, x):
    axis, power = n.axis(n.attribute("axis", -1), x.rank), n.attribute("p", 2)
    if power not in (1, 2):
        raise n.error(f"{power}", "p")
    wide = widened(n, x)
    if power == 1:
        norm = n.b.sum(n.b.abs(wide), axis=[axis], keep_dims=True)
    else:
        norm = n.b.sqrt(n.b.sum(n.b.square(wide), axis=[axis], keep_dims=True))
    zero = n.b.number(0, wide.dtype)
    return shaped(n.b.cast(n.b.where(n.b.eq(norm, zero), zero, wide / norm), x.dtype), x.shape)


@op("MeanVarianceNormalization")
def mean_variance_norm(n, x):
    axes = [n.axis(axis, x.rank, "axes") for axis in n.attribute("axes", [0, 2, 3])]
    wide = widened(n, x)
    apart = wide - n.b.mean(wide, axis=axes, keep_dims=True)
    spread = n.b.sqrt(n.b.mean(n.b.square(apart), axis=axes, keep_dims=True))
    return shaped(n.b.cast(apart / (spread + 1e-9), x.dtype), x.shape)

"""Normalisations."""

from .._arrays.operands import EPSILONS
from ..importing import sizes as sz
from ..importing.shaping import shaped
from .node import op
from .pointwise import root


def _numbers(n, mean, inverse, metas):
    """Second and third results of the native_* ops, where the graph knows of them."""
    return [None if meta is None else n.b.reshape_to(n.cast(one, meta[0]), meta[1])
            for one, meta in zip((mean, inverse), metas)]


@op("layer_norm.default", "native_layer_norm.default")
def layer_norm(n, input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    depth = len(normalized_shape)
    inner = input.shape[input.rank - depth:]
    length = sz.product(inner)
    rows = n.b.reshape_to(input, (*input.shape[:input.rank - depth], length))
    weight = n.b.full((length,), 1, rows.dtype) if weight is None and bias is not None else weight
    weights = [n.b.reshape_to(one, (length,)) for one in (weight, bias) if one is not None]
    made = n.b.reshape_to(shaped(n.b.layer_norm(rows, *weights, eps=eps), rows.shape), input.shape)
    if "native" not in n.op:
        return made
    wide = n.cast(input, "f32") if input.dtype != "f64" else input
    axes = list(range(input.rank - depth, input.rank))
    mean = n.b.mean(wide, axis=axes, keep_dims=True)
    inverse = n.b.rsqrt(n.b.mean(n.b.square(wide - mean), axis=axes, keep_dims=True) + eps)
    sizes = (*input.shape[:input.rank - depth], *(1,) * depth)
    return made, shaped(mean, sizes), shaped(inverse, sizes)


@op("rms_norm.default", "_fused_rms_norm.default")
def rms_norm(n, input, normalized_shape, weight=None, eps=None):
    depth = len(normalized_shape)
    eps = EPSILONS.get(input.dtype, 2.0**-23) if eps is None else eps
    length = sz.product(input.shape[input.rank - depth:])
    rows = n.b.reshape_to(input, (*input.shape[:input.rank - depth], length))
    weights = [] if weight is None else [n.b.reshape_to(weight, (length,))]
    made = n.b.reshape_to(shaped(n.b.rms_norm(rows, *weights, eps=eps), rows.shape), input.shape)
    if "fused" not in n.op:
        return made
    wide = n.cast(input, "f32") if input.dtype != "f64" else input
    squares = n.b.mean(n.b.square(wide), axis=list(range(input.rank - depth, input.rank)), keep_dims=True)
    return made, n.b.rsqrt(squares + eps)


@op("group_norm.default", "native_group_norm.default")
def group_norm(n, input, weight=None, bias=None, N=None, C=None, HxW=None, group=None, num_groups=None, eps=1e-5,
               cudnn_enabled=True):
    groups = group if num_groups is None else num_groups
    made = grouped(n, input, weight, bias, groups, eps)
    if "native" not in n.op:
        return made
    parts = n.b.reshape_to(n.cast(input, "f32") if input.dtype != "f64" else input,
                           (input.shape[0], groups, sz.divide(sz.product(input.shape[1:]), groups)))
    mean = n.b.mean(parts, axis=[2], keep_dims=True)
    inverse = n.b.rsqrt(n.b.mean(n.b.square(parts - mean), axis=[2], keep_dims=True) + eps)
    sizes = (input.shape[0], groups)
    return made, n.b.reshape_to(shaped(mean, (*sizes, 1)), sizes), n.b.reshape_to(shaped(inverse, (*sizes, 1)), sizes)


def grouped(n, x, weight, bias, groups, eps):
    channels = n.known_size(x, 1)
    if not isinstance(groups, int) or groups < 1 or channels % groups:
        raise n.malformed(f"{groups} groups of {x!r}")
    if weight is None and bias is not None:
        weight = n.b.full((channels,), 1, x.dtype)
    weights = [n.cast(one, x.dtype) for one in (weight, bias) if one is not None]
    return shaped(n.b.group_norm(x, *weights, groups=groups, eps=eps), x.shape)


@op("instance_norm.default")
def instance_norm(n, input, weight=None, bias=None, running_mean=None, running_var=None, use_input_stats=True,
                  momentum=0.1, eps=1e-5, cudnn_enabled=True):
    if not use_input_stats:
        return _normalised(n, input, running_mean, running_var, weight, bias, eps)
    if running_mean is not None:
        raise n.error("training changes running statistics", "use_input_stats")
    return grouped(n, input, weight, bias, n.known_size(input, 1), eps)


@op("batch_norm.default", "_native_batch_norm_legit_no_training.default", "native_batch_norm.default",
    "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_functional.default",
    "_native_batch_norm_legit.default")
def batch_norm(n, input, weight=None, bias=None, running_mean=None, running_var=None, training=False, momentum=0.1,
               eps=1e-5, cudnn_enabled=True):
    if not training:
        made = _normalised(n, input, running_mean, running_var, weight, bias, eps)
        if n.op.startswith("aten.batch_norm"):
            return made
        nothing = n.b.full((0,), 0, "f32")
        after = (running_mean, running_var) if "functional" in n.op else ()
        return (made, nothing, nothing, *after)
    return _trained(n, input, weight, bias, running_mean, running_var, momentum, eps)


def _trained(n, x, weight, bias, running_mean, running_var, momentum, eps):
    """With the batch's own statistics; only the functional form says what becomes of the running ones."""
    functional = "functional" in n.op
    if running_mean is not None and not functional:
        raise n.error("changes running statistics: export with run_decompositions()", "training")
    axes = [axis for axis in range(x.rank) if axis != 1]
    wide = n.cast(x, "f32") if x.dtype != "f64" else x
    mean = n.b.mean(wide, axis=axes, keep_dims=True)
    variance = n.b.mean(n.b.square(wide - mean), axis=axes, keep_dims=False)
    mean = n.b.reshape_to(mean, variance.shape)
    made = _normalised(n, x, mean, variance, weight, bias, eps)
    if n.op.startswith("aten.batch_norm"):
        return made
    inverse = n.b.rsqrt(variance + eps)
    if not functional:
        return made, mean, inverse
    count = sz.divide(sz.product(x.shape), x.shape[1])
    if not isinstance(count, int):
        count = n.cast(n.b.scalar_size(count), variance.dtype)
        unbiased = variance * (count / (count - 1.0))
    else:
        unbiased = variance * (count / max(count - 1, 1))
    after = [old * (1 - momentum) + n.cast(now, old.dtype) * momentum
             for old, now in ((running_mean, mean), (running_var, unbiased))]
    return (made, mean, inverse, *after)


def _normalised(n, x, mean, variance, weight, bias, eps):
    if mean is None or variance is None or x.rank < 2:
        raise n.malformed(f"no statistics for {x!r}")
    if weight is None and bias is not None:
        weight = n.b.full(mean.shape, 1, x.dtype)
    operands = [n.cast(one, x.dtype) for one in (mean, variance, weight, bias) if one is not None]
    return shaped(n.b.batch_norm(x, *operands, eps=eps), x.shape)


@op("_weight_norm.default", "_weight_norm_interface.default")
def weight_norm(n, v, g, dim=0):
    others = [axis for axis in range(v.rank) if dim == -1 or axis != n.axis(dim, v.rank, "dim")]
    norm = root(n, n.b.sum(n.b.square(v), axis=others, keep_dims=True)) if others else n.b.abs(v)
    made = shaped(v * (g / norm), v.shape)
    return (made, norm) if "interface" in n.op else made

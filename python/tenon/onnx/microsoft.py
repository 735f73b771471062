"""Ops of the domain com.microsoft, into which ONNX Runtime's optimiser, quantiser and model builder turn models."""

import math

import numpy as np

from ..importing import sizes as sz
from ..importing.picking import positions
from ..importing.products import multiplied
from ..importing.shaping import shaped, sliced
from . import norms, quantised
from .blocks import packed
from .images import average_pool
from .node import op
from .pointwise import gelu
from .products import conv, gemm
from .recurrent import lstm
from .types import unpacked

_DOMAIN = "com.microsoft"


def _op(*names):
    return op(*names, domain=_DOMAIN)


def _joined(n, parts, axis):
    """Arrays along an axis, which may be empty."""
    parts = [one for one in parts if one.shape[axis] != 0] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    sizes = list(parts[0].shape)
    for one in parts[1:]:
        sizes[axis] = sz.add(sizes[axis], one.shape[axis])
    return shaped(n.b.concat(parts, axis), tuple(sizes))


def _swapped(n, x):
    return n.b.permute(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


# Activations and norms


@_op("Gelu")
def plain_gelu(n, x):
    return gelu(n, x)


@_op("BiasGelu", "FastGelu")
def bias_gelu(n, x, bias=None):
    x = x if bias is None else x + bias
    return shaped(n.b.gelu_tanh(x), x.shape) if n.op == "FastGelu" else gelu(n, x)


@_op("QuickGelu")
def quick_gelu(n, x):
    return shaped(x * n.b.sigmoid(x * n.attribute("alpha", 1.702)), x.shape)


def _activated(n, x, parameters=()):
    """The activation that a node has been fused with."""
    name = n.attribute("activation", "")
    alpha, beta = (list(parameters) + [None, None])[:2]
    if not name:
        return x
    plain = {"Relu": n.b.relu, "Tanh": n.b.tanh, "Sigmoid": n.b.sigmoid, "Softplus": n.b.softplus,
             "Softsign": lambda x: x / (n.b.abs(x) + 1.0)}
    if name in plain:
        return shaped(plain[name](x), x.shape)
    if name == "LeakyRelu":
        return shaped(n.b.leaky_relu(x, alpha=0.01 if alpha is None else alpha), x.shape)
    if name == "Clip":
        return shaped(n.b.clamp(x, min=-math.inf if alpha is None else alpha, max=math.inf if beta is None else beta),
                      x.shape)
    if name == "HardSigmoid":
        made = x * (0.2 if alpha is None else alpha) + (0.5 if beta is None else beta)
        return shaped(n.b.clamp(made, min=0.0, max=1.0), x.shape)
    raise n.error(f"{name!r}", "activation")


_EPS = 1e-12  # the default of these norms


@_op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(n, x, skip, scale, *rest):
    """A norm of a sum, which is the fourth output."""
    is_simple = "Simplified" in n.op
    offset = None if is_simple else (list(rest) + [None])[0]
    bias = (list(rest) + [None, None])[0 if is_simple else 1]
    total = x + skip if bias is None else x + skip + bias
    total = shaped(total, x.shape)
    made = (norms.rms_norm(n, total, scale, default_eps=_EPS) if is_simple else
            norms.layer_norm(n, total, scale, offset, default_eps=_EPS))
    made = made if isinstance(made, tuple) else (made,)
    if n.wants(2) and len(made) < 3:
        raise n.error("the second and third output are used")
    return (*made, None, None)[:3] + (total,)


@_op("EmbedLayerNormalization")
def embed_norm(n, ids, segments, words, places, kinds, scale, bias, mask=None, position_ids=None):
    if position_ids is None:
        position_ids = n.b.unsqueeze(n.b.iota(ids.shape[1]), 0)
    total = n.b.gather(words, ids, axis=0) + n.b.gather(places, position_ids, axis=0)
    if segments is not None:
        total = total + n.b.gather(kinds, segments, axis=0)
    total = shaped(total, (*ids.shape, words.shape[1]))
    made = norms.layer_norm(n, total, scale, bias, default_eps=_EPS)
    counts = n.b.full((ids.shape[0],), 0, "i32")
    if mask is not None:
        counts = n.b.cast(n.b.sum(mask, axis=[1], keep_dims=False), "i32")
    return made[0] if isinstance(made, tuple) else made, counts, total


# Products


@_op("FusedMatMul", "TransposeMatMul")
def fused_matmul(n, a, b):
    a, b = (n.b.permute(one, [*range(1, one.rank - 1), 0, one.rank - 1])  # the first axis becomes the rows
            if n.attribute(f"transBatch{side}", 0) and one.rank > 2 else one for one, side in ((a, "A"), (b, "B")))
    a, b = (_swapped(n, one) if n.attribute(f"trans{side}", 0) and one.rank > 1 else one
            for one, side in ((a, "A"), (b, "B")))
    made, alpha = multiplied(n, a, b), n.attribute("alpha", 1.0)
    return made if alpha == 1 else shaped(made * alpha, made.shape)


@_op("FusedGemm")
def fused_gemm(n, a, b, c=None):
    given = [n.attribute(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    return _activated(n, gemm(n, a, b, c), given)


@_op("FusedConv")
def fused_conv(n, x, w, bias=None, more=None):
    made = conv(n, x, w, bias)
    made = made if more is None else shaped(made + more, made.shape)
    return _activated(n, made, n.attribute("activation_params", []))


@_op("Inverse")
def inverse(n, x):
    size = n.known_size(x, x.rank - 1)
    one = n.b.broadcast(n.b.known(np.eye(size, dtype=np.float32 if x.dtype == "f32" else np.float64)), x.shape)
    return shaped(n.b.solve(x, one), x.shape)


@_op("MatMulNBits")
def matmul_n_bits(n, x, codes, scales, zeros=None, order=None, bias=None):
    """A product with a weight of 2, 4 or 8 bits. Where the model (accuracy_level 4) or its reader allows x in 8 bits,
    the weight stays in a block type that holds it; else it is widened while the model is read."""
    width, rows = n.attribute("K"), n.attribute("N")
    bits, block = n.attribute("bits", 4), n.attribute("block_size")
    if bits not in (2, 4, 8) or order is not None:
        raise n.error(f"{bits}" if order is None else "an order of the rows", "bits" if order is None else "g_idx")
    blocks = -(-width // block)
    whole = _unpacked(n, n.array(codes, "the weight"), bits).reshape(rows, blocks, -1)[:, :, :block]
    scale = n.array(scales, "the scales").reshape(rows, blocks)
    if zeros is None:
        zero = np.full((rows, blocks), 1 << (bits - 1), np.float32)
    else:
        zero = n.array(zeros, "the zero points")
        zero = (_unpacked(n, zero.reshape(rows, -1), bits) if zero.dtype == np.uint8 else zero.reshape(rows, -1))
        zero = zero[:, :blocks].astype(np.float32)
    keeps = n.importer.packed if n.importer.packed is not None else n.attribute("accuracy_level", 0) == 4
    stored = None
    if keeps:
        stored = packed(whole.reshape(rows, -1)[:, :width], zero, scale, bits, block)
    if stored is None:
        wide = ((whole - zero[..., None]) * scale[..., None]).reshape(rows, -1)[:, :width]
        weight = n.b.known(wide.astype(scale.dtype))
    else:
        weight = n.b.stored(stored, codes.name)
    options = {} if bias is None else {"bias": bias}
    return shaped(n.b.linear(x, weight, **options), (*x.shape[:-1], rows))


@_op("GatherBlockQuantized")
def gather_blocks(n, codes, index, scales, zeros=None):
    """Rows of a table in codes of 2, 4 or 8 bits, which stays in a block type that holds it; else it is widened."""
    block, bits = n.attribute("block_size", 128), n.attribute("bits", 4)
    if bits not in (2, 4, 8):
        raise n.error(f"{bits}", "bits")
    data, scale = _unpacked(n, n.array(codes, "the table"), bits), n.array(scales, "the scales")
    axis = n.axis(n.attribute("gather_axis", 0), data.ndim)
    if n.axis(n.attribute("quantize_axis", 1), data.ndim) != data.ndim - 1:
        raise n.error("not the last axis", "quantize_axis")
    if zeros is None:
        zero = np.full(scale.shape, 1 << (bits - 1), np.float32)
    else:
        zero = _unpacked(n, n.array(zeros, "the zero points"), bits)[..., :scale.shape[-1]]
    width = data.shape[-1]
    if scale.shape != (*data.shape[:-1], -(-width // block)) or zero.shape != scale.shape:
        raise n.malformed(f"scales {scale.shape} and zero points {zero.shape} of {data.shape}")
    index = positions(n, index, data.shape[axis])
    sizes = (*data.shape[:axis], *index.shape, *data.shape[axis + 1:])
    stored = None
    if n.importer.packed is not False and data.ndim == 2 and axis == 0:
        stored = packed(data, zero, scale, bits, block, exactly=not n.importer.packed)
    if stored is not None:
        rows, kind = n.b.embedding(index, n.b.stored(stored, codes.name)), n.b.known(scale).dtype
        return shaped(rows if rows.dtype == kind else n.b.cast(rows, kind), sizes)
    zero, step = (np.repeat(one.astype(np.float32), block, axis=-1)[..., :width] for one in (zero, scale))
    return shaped(n.b.gather(n.b.known(((data - zero) * step).astype(scale.dtype)), index, axis=axis), sizes)


def _unpacked(n, array, bits):
    """Numbers of some bits, the lowest ones of a byte first, as f32."""
    if array.dtype != np.uint8:
        raise n.malformed(f"codes in {array.dtype}, not in uint8")
    return unpacked(array, bits).astype(np.float32)


# Codes

op("QuantizeLinear", domain=_DOMAIN)(quantised.quantize_linear)
op("DequantizeLinear", domain=_DOMAIN)(quantised.dequantize_linear)


def _real(n, x, scale, zero):
    wide = n.b.cast(x, "f32") if zero is None else n.b.cast(x, "f32") - n.b.cast(zero, "f32")
    return shaped(wide * scale, x.shape)


def _coded(n, x, scale, zero, dtype):
    return quantised._quantized(n, x, scale, zero, zero.dtype if zero is not None else dtype, 0, 0)


@_op("QLinearAdd", "QLinearMul")
def of_two_codes(n, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero=None):
    a_real, b_real = _real(n, a, a_scale, a_zero), _real(n, b, b_scale, b_zero)
    return _coded(n, a_real + b_real if n.op == "QLinearAdd" else a_real * b_real, scale, zero, a.dtype)


@_op("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearGlobalAveragePool", "QLinearAveragePool")
def of_codes(n, x, x_scale, x_zero, scale, zero=None):
    real = _real(n, x, x_scale, x_zero)
    last = n.attribute("channels_last", 0)
    if last:
        real = n.b.permute(real, [0, x.rank - 1, *range(1, x.rank - 1)])
    if n.op == "QLinearSigmoid":
        made = n.b.sigmoid(real)
    elif n.op == "QLinearLeakyRelu":
        made = n.b.leaky_relu(real, alpha=n.attribute("alpha", 0.01))
    elif n.op == "QLinearSoftmax":
        if n.attribute("opset", 13) < 13 and n.attribute("axis", -1) not in (-1, x.rank - 1):
            raise n.error("of several axes", "opset")
        made = n.b.softmax(real, axis=n.axis(n.attribute("axis", -1), x.rank))
    elif n.op == "QLinearAveragePool":
        made = average_pool(n, real)
    else:
        made = n.b.mean(real, axis=list(range(2, x.rank)), keep_dims=True)
        made = shaped(made, (*real.shape[:2], *[1] * (x.rank - 2)))
    made = _coded(n, made, scale, zero, x.dtype)
    return n.b.permute(made, [0, *range(2, x.rank), 1]) if last else made


@_op("QLinearConcat")
def joined_codes(n, scale, zero, *parts):
    if len(parts) % 3 or not parts:
        raise n.malformed(f"{len(parts)} inputs besides scale and zero point: three for each array are needed")
    real = [_real(n, *parts[i:i + 3]) for i in range(0, len(parts), 3)]
    return _coded(n, _joined(n, real, n.axis(n.attribute("axis"), real[0].rank)), scale, zero, zero.dtype)


@_op("QGemm")
def gemm_of_codes(n, a, a_scale, a_zero, b, b_scale, b_zero, c=None, scale=None, zero=None):
    a, b = (_swapped(n, one) if n.attribute(f"trans{side}", 0) else one for one, side in ((a, "A"), (b, "B")))
    sums = quantised._sums(n, a, b, a_zero, b_zero)
    sums = sums if c is None else sums + c
    made = n.b.cast(sums, "f32") * (a_scale * b_scale * n.attribute("alpha", 1.0))
    return made if scale is None else _coded(n, made, scale, zero, a.dtype)


@_op("MatMulIntegerToFloat")
def real_products(n, a, b, a_scale, b_scale, a_zero=None, b_zero=None, bias=None):
    made = n.b.cast(quantised._sums(n, a, b, a_zero, b_zero), "f32") * (a_scale * b_scale)
    return made if bias is None else made + bias


@_op("DynamicQuantizeMatMul")
def dynamic_products(n, x, b, scale, zero=None, bias=None):
    every = list(range(x.rank))
    nought = n.b.number(0, "f32")
    low = n.b.minimum(n.b.min(x, axis=every, keep_dims=False), nought)
    high = n.b.maximum(n.b.max(x, axis=every, keep_dims=False), nought)
    step = (high - low) / n.b.number(255, "f32")
    first = n.b.cast(n.b.clamp(n.b.round((nought - low) / step), min=0.0, max=255.0), "u8")
    codes = shaped(n.b.quantize_linear(x, step, first, axis=0, dtype="u8"), x.shape)
    return real_products(n, codes, b, step, scale, first, zero, bias)


@_op("QEmbedLayerNormalization")
def embed_norm_of_codes(n, ids, segments, *rest):
    codes, mask, scales, zeros = rest[:5], rest[5], rest[6:11], rest[11:16]
    return embed_norm(n, ids, segments, *(None if one is None else _real(n, one, scale, zero)
                                          for one, scale, zero in zip(codes, scales, zeros)), mask)


@_op("DynamicQuantizeLSTM")
def dynamic_lstm(n, x, w, r, bias, lengths, initial, cell, peepholes, w_scale, w_zero, r_scale, r_zero):
    """An LSTM of weights in codes, [directions, inputs, 4 H], which are widened; x and states are not made codes."""
    weights = []
    for code, scale, zero in ((w, w_scale, w_zero), (r, r_scale, r_zero)):
        scale, zero = (n.b.reshape_to(one, (one.shape[0], 1, one.shape[1] if one.rank > 1 else 1))
                       for one in (scale, zero))
        weights.append(_swapped(n, _real(n, code, scale, zero)))
    return lstm(n, x, *weights, bias, lengths, initial, cell, peepholes)


# Attention


def _heads(n, x, count):
    """[B, S, H D] as [B, S, H, D]; what has heads already, [B, H, S, D], the same."""
    if x.rank == 4:
        return n.b.permute(x, [0, 2, 1, 3])
    width = n.known_size(x, 2)
    if count < 1 or width % count:
        raise n.malformed(f"{count} heads of {x!r}")
    return n.b.reshape_to(x, (*x.shape[:2], count, width // count))


def _with_past(n, keys, past):
    """Keys [B, T, H, D] after those of past calls, [B, H, P, D]; and both as past calls have them."""
    if past is not None:
        keys = _joined(n, [n.b.permute(past, [0, 2, 1, 3]), keys], 1)
    return keys, n.b.permute(keys, [0, 2, 1, 3])


def _attended(n, q, k, v, masks, causal, past=0, scale=0.0):
    """Attention of heads [B, S, H, D], with what masks add to scores; rows come after `past` others."""
    rows, columns = q.shape[1], k.shape[1]
    if causal:
        last = n.b.unsqueeze(n.b.iota(rows), 1)
        if past != 0:
            last = last + (n.b.scalar_size(past) if isinstance(past, sz.Size) else past)
        hidden = n.b.gt(n.b.unsqueeze(n.b.iota(columns), 0), last)
        masks = [*masks, n.b.where(hidden, n.b.number(-math.inf, "f32"), n.b.number(0, "f32"))]
    options = {}
    if masks:
        total = masks[0]
        for one in masks[1:]:
            total = total + one
        options["mask"] = n.b.cast(total, "f32")
    made = n.b.attention(q, k, v, causal=False, scale=float(scale), **options)
    width = n.known_size(v, 3) * n.known_size(q, 2)
    return n.b.reshape_to(shaped(made, (*q.shape[:3], v.shape[3])), (*q.shape[:2], width))


def _key_mask(n, mask, columns, first=None):
    """What a mask of keys adds to scores: their numbers [B], or 1 where one counts, [B, T] or [B, S, T]; `first`, [B],
    are the first keys that count."""
    low = n.attribute("mask_filter_value", -10000.0)
    if mask.rank == 1:
        places = n.b.unsqueeze(n.b.iota(columns, "i32"), 0)
        seen = n.b.lt(places, n.b.unsqueeze(mask, 1))
        if first is not None:
            seen = n.b.logical_and(seen, n.b.ge(places, n.b.unsqueeze(first, 1)))
    else:
        seen = n.b.ne(mask, n.b.number(0, mask.dtype))
    made = n.b.where(seen, n.b.number(0, "f32"), n.b.number(low, "f32"))
    for axis in range(1, 5 - max(mask.rank, 2) if mask.rank < 4 else 1):
        made = n.b.unsqueeze(made, axis)
    return made


def _check_plain(n, *names):
    for name in names:
        if n.attribute(name, 0) not in (0, 0.0, -1):
            raise n.error("is not supported", name)


@_op("Attention")
def attention(n, x, weights, bias=None, mask=None, past=None, more=None, past_length=None):
    made = multiplied(n, x, weights)
    made = made if bias is None else shaped(made + bias, made.shape)
    return _self_attention(n, made, mask, past, more)


@_op("QAttention")
def attention_of_codes(n, x, weights, bias, x_scale, w_scale, mask=None, x_zero=None, w_zero=None, past=None):
    made = n.b.cast(quantised._sums(n, x, weights, x_zero, w_zero), "f32") * (x_scale * w_scale) + bias
    return _self_attention(n, shaped(made, (*x.shape[:2], weights.shape[1])), mask, past)


def _self_attention(n, made, mask, past=None, more=None):
    """Attention of queries, keys and values side by side, [B, S, widths]."""
    _check_plain(n, "do_rotary", "past_present_share_buffer")
    heads = n.attribute("num_heads")
    widths = n.attribute("qkv_hidden_sizes", None) or [n.known_size(made, 2) // 3] * 3
    first = None
    if mask is not None and mask.rank == 1 and made.shape[0] != mask.shape[0]:  # where keys end, and where they begin
        both = n.b.reshape_to(mask, (2, made.shape[0]))
        mask, first = (n.b.squeeze(sliced(n, both, 0, i, i + 1, 1), axis=0) for i in (0, 1))
    ends = [0, widths[0], widths[0] + widths[1], sum(widths)]
    q, k, v = (_heads(n, sliced(n, made, 2, a, b, 1), heads) for a, b in zip(ends, ends[1:]))
    before = [None, None]
    if past is not None:
        before = [n.b.reshape_to(sliced(n, past, 0, i, i + 1, 1), past.shape[1:]) for i in (0, 1)]
    (k, keys), (v, values) = (_with_past(n, one, old) for one, old in zip((k, v), before))
    masks = ([] if mask is None else [_key_mask(n, mask, k.shape[1], first)]) + ([] if more is None else [more])
    result = _attended(n, q, k, v, masks, n.attribute("unidirectional", 0), 0 if past is None else past.shape[3],
                       n.attribute("scale", 0.0))
    if not n.wants(1):
        return result
    return result, _joined(n, [n.b.unsqueeze(one, 0) for one in (keys, values)], 0)


@_op("MultiHeadAttention")
def multi_head_attention(n, q, k=None, v=None, bias=None, mask=None, more=None, past_key=None, past_value=None, *rest):
    if k is None or v is None or q.rank != 3 or any(one is not None for one in rest):
        raise n.error("queries, keys and values in one array, or a cache of both")
    heads = n.attribute("num_heads")
    if bias is not None:
        widths = [n.known_size(q, 2), n.known_size(q, 2), n.known_size(bias, 0) - 2 * n.known_size(q, 2)]
        ends = [0, widths[0], widths[0] + widths[1], sum(widths)]
        parts = [sliced(n, bias, 0, a, b, 1) for a, b in zip(ends, ends[1:])]
        q, k, v = (shaped(one + part, one.shape) if one.rank == 3 else one for one, part in zip((q, k, v), parts))
    q, k, v = (_heads(n, one, heads) for one in (q, k, v))
    (k, keys), (v, values) = (_with_past(n, one, old) for one, old in ((k, past_key), (v, past_value)))
    masks = ([] if mask is None else [_key_mask(n, mask, k.shape[1])]) + ([] if more is None else [more])
    result = _attended(n, q, k, v, masks, n.attribute("unidirectional", 0),
                       0 if past_key is None else past_key.shape[2], n.attribute("scale", 0.0))
    return result, keys, values


def _turned(n, x, places, cosines, sines, interleaved):
    """Heads [B, S, H, D] turned by the angles of their places, [B, S] or [1, S], of tables [places, D / 2]."""
    half = n.known_size(cosines, 1)
    width = n.known_size(x, 3)
    cos, sin = (n.b.unsqueeze(n.b.gather(one, places, axis=0), 2) for one in (cosines, sines))
    rest = [sliced(n, x, 3, 2 * half, width, 1)] if 2 * half < width else []
    if interleaved:
        pairs = n.b.reshape_to(sliced(n, x, 3, 0, 2 * half, 1), (*x.shape[:3], half, 2))
        a, b = (n.b.reshape_to(sliced(n, pairs, 4, i, i + 1, 1), (*x.shape[:3], half)) for i in (0, 1))
    else:
        a, b = sliced(n, x, 3, 0, half, 1), sliced(n, x, 3, half, 2 * half, 1)
    parts = [shaped(one, a.shape) for one in (a * cos - b * sin, b * cos + a * sin)]
    if interleaved:
        made = n.b.reshape_to(_joined(n, [n.b.unsqueeze(one, 4) for one in parts], 4), (*x.shape[:3], 2 * half))
        parts = [made]
    return _joined(n, [*parts, *rest], 3)


@_op("RotaryEmbedding")
def rotary_embedding(n, x, places, cosines, sines):
    _check_plain(n, "is_packed_batching")
    is_flat = x.rank == 3
    heads = n.attribute("num_heads", 0)
    if is_flat and not heads:
        heads = n.known_size(x, 2) // (2 * n.known_size(cosines, 1))
    turned = _heads(n, x, heads)
    if places.rank == 1:  # the first of all rows
        places = n.b.unsqueeze(n.b.iota(turned.shape[1]) + n.b.cast(places, "i64"), 0)
    made = _turned(n, turned, places, cosines, sines, n.attribute("interleaved", 0))
    return n.b.reshape_to(made, x.shape) if is_flat else n.b.permute(made, [0, 2, 1, 3])


@_op("GroupQueryAttention")
def group_query_attention(n, q, k, v, past_key, past_value, lengths, total, cosines=None, sines=None, places=None,
                          more=None, *rest):
    """Attention with a cache, of which keys of a batch's sequences are as `lengths`, less one each, says."""
    _check_plain(n, "local_window_size", "softcap", "smooth_softmax")
    if any(one is not None for one in rest):
        raise n.error("sinks, or norms of heads")
    heads, groups = n.attribute("num_heads"), n.attribute("kv_num_heads")
    if k is None:  # all in one array
        size = n.known_size(q, 2) // (heads + 2 * groups)
        ends = [0, heads * size, (heads + groups) * size, (heads + 2 * groups) * size]
        q, k, v = (sliced(n, q, 2, a, b, 1) for a, b in zip(ends, ends[1:]))
    q, k, v = _heads(n, q, heads), _heads(n, k, groups), _heads(n, v, groups)
    rows, before = q.shape[1], 0 if past_key is None else past_key.shape[2]
    batch_lengths = n.b.reshape_to(n.b.cast(lengths, "i64"), (q.shape[0], 1))
    steps = n.b.unsqueeze(n.b.iota(rows), 0)
    if before != 0:
        steps = steps + (batch_lengths - (n.b.scalar_size(sz.sub(rows, 1)) if isinstance(rows, sz.Size) else rows - 1))
    if n.attribute("do_rotary", 0):
        interleaved = n.attribute("rotary_interleaved", 0)
        q, k = (_turned(n, one, steps if places is None else places, cosines, sines, interleaved) for one in (q, k))
    masks = [] if more is None else [more]
    if before == 0:
        keys, values = (n.b.permute(one, [0, 2, 1, 3]) for one in (k, v))
        return _attended(n, q, k, v, masks, True, 0, n.attribute("scale", 0.0)), keys, values
    whole = int(n.number(total, "total_sequence_length"))
    if rows != 1 and whole != before + rows:
        raise n.error(f"{rows} rows at once after {before} keys, of {whole} in all")
    if rows == 1:  # at a place of its own in each sequence
        size = max(whole, before)
        k, v = (_put(n, old, new, batch_lengths, size) for old, new in ((past_key, k), (past_value, v)))
    else:
        k, v = (_with_past(n, new, old)[0] for old, new in ((past_key, k), (past_value, v)))
    seen = n.b.le(n.b.unsqueeze(n.b.unsqueeze(n.b.iota(k.shape[1]), 0), 0), n.b.unsqueeze(steps, 2))
    masks.append(n.b.unsqueeze(n.b.where(seen, n.b.number(0, "f32"), n.b.number(-math.inf, "f32")), 1))
    keys, values = (n.b.permute(one, [0, 2, 1, 3]) for one in (k, v))
    return _attended(n, q, k, v, masks, False, 0, n.attribute("scale", 0.0)), keys, values


def _put(n, past, new, at, size):
    """Keys [B, size, H, D]: those of past calls, [B, H, P, D], a new one, [B, 1, H, D], at a place each, and zeros."""
    wide = n.b.permute(past, [0, 2, 1, 3])
    if size > past.shape[2]:
        wide = n.b.pad(wide, before=(0, 0, 0, 0), after=(0, size - past.shape[2], 0, 0), value=0.0)
    places = n.b.unsqueeze(n.b.iota(size), 0)
    here, before = (n.b.reshape_to(function(places, at), (past.shape[0], size, 1, 1))
                    for function in (n.b.eq, n.b.lt))
    made = n.b.where(here, new, n.b.where(before, wide, n.b.number(0, wide.dtype)))
    return shaped(made, (past.shape[0], size, past.shape[1], past.shape[3]))

"""How each op of Tenon is written as nodes: functions of the exporter, the operands' names and the attributes."""

import math

import numpy as np

from ..importing.types import FLOATS, INTEGERS, limits
from .types import NUMBERS

WRITERS = {}
_FAR = 2**63 - 1


def writes(*names):
    def mark(function):
        for name in names:
            WRITERS[name] = function
        return function

    return mark


_SAME = {
    "abs": "Abs", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "sign": "Sign", "reciprocal": "Reciprocal", "sigmoid": "Sigmoid", "softplus": "Softplus",
    "mish": "Mish", "hardswish": "HardSwish", "is_nan": "IsNaN", "is_inf": "IsInf", "logical_not": "Not",
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "eq": "Equal", "logical_and": "And", "logical_or": "Or",
    "logical_xor": "Xor", "minimum": "Min", "maximum": "Max", "matmul": "MatMul", "det": "Det",
    "stop_gradient": "Identity",
}


def _same(name):
    return lambda e, *operands: e.node(_SAME[name], operands)


WRITERS.update({name: _same(name) for name in _SAME})


@writes("after")
def after(e, x, event):
    return e.node("Identity", [x])


_ORDER = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


@writes(*_ORDER)
def order(e, *operands):
    if e.dtype(operands[0]) == "bool":
        operands = [e.cast(one, "i32") for one in operands]
    return e.node(_ORDER[e.at.op], operands)


@writes("neg")
def neg(e, x):
    return e.node("Sub", [e.number(0, x), x]) if e.dtype(x)[0] == "u" else e.node("Neg", [x])


@writes("relu")
def relu(e, x):
    return e.node("Identity" if e.dtype(x)[0] == "u" else "Relu", [x])


@writes("where")
def where(e, condition, a, b):
    if e.dtype(a) != "bool":
        return e.node("Where", [condition, a, b])
    # ONNX Runtime has no Where of bool.
    return e.node("Or", [e.node("And", [condition, a]), e.node("And", [e.node("Not", [condition]), b])])


@writes("softmax", "log_softmax")
def softmax(e, x, axis):
    return e.node("Softmax" if e.at.op == "softmax" else "LogSoftmax", [x], axis=axis)


@writes("square")
def square(e, x):
    return e.node("Mul", [x, x])


@writes("rsqrt")
def rsqrt(e, x):
    return e.node("Reciprocal", [e.node("Sqrt", [x])])


@writes("exp2")
def exp2(e, x):
    return e.node("Pow", [e.number(2, x), x])


@writes("log2")
def log2(e, x):
    return e.node("Mul", [e.node("Log", [x]), e.number(1 / math.log(2), x)])


@writes("expm1")
def expm1(e, x):
    """tanh(x / 2) (exp(x) + 1), which loses nothing near 0."""
    half = e.node("Tanh", [e.node("Mul", [x, e.number(0.5, x)])])
    return e.node("Mul", [half, e.node("Add", [e.node("Exp", [x]), e.number(1, x)])])


@writes("log1p")
def log1p(e, x):
    """log(u) of u = 1 + x, near 0 times x / (u - 1), which makes up for what u is rounded by."""
    one = e.number(1, x)
    u = e.node("Add", [x, one])
    log = e.node("Log", [u])
    near = e.node("Mul", [log, e.node("Div", [x, e.node("Sub", [u, one])])])
    near = e.node("Where", [e.node("Equal", [u, one]), x, near])
    return e.node("Where", [e.node("Less", [e.node("Abs", [x]), e.number(0.5, x)]), near, log])


@writes("trunc")
def trunc(e, x):
    return e.node("Mul", [e.node("Sign", [x]), e.node("Floor", [e.node("Abs", [x])])])


@writes("erfc")
def erfc(e, x):
    raise e.error("1 - Erf is not accurate where the result is small")


@writes("relu6")
def relu6(e, x):
    return e.node("Clip", [x, e.number(0, x), e.number(6, x)])


@writes("silu")
def silu(e, x):
    return e.node("Mul", [x, e.node("Sigmoid", [x])])


@writes("gelu", "gelu_tanh")
def gelu(e, x):
    return e.node("Gelu", [x], approximate="tanh" if e.at.op == "gelu_tanh" else "none")


@writes("hardsigmoid")
def hardsigmoid(e, x):
    return e.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)


@writes("leaky_relu", "elu")
def with_alpha(e, x, alpha):
    return e.node("LeakyRelu" if e.at.op == "leaky_relu" else "Elu", [x], alpha=alpha)


@writes("clamp")
def clamp(e, x, min, max):
    if e.dtype(x) in INTEGERS:
        low, high = limits(e.dtype(x))
        min = low if min <= low else math.ceil(min)
        max = high if max >= high else math.floor(max)
        made = _limited(e, x, min, max)
        return e.cast(made, e.dtype(x)) if e.dtype(x) in _WIDER else made
    return e.node("Clip", [x, e.number(min, x), e.number(max, x)])


_WIDER = {"i16": "i32", "u16": "i32"}  # types for which ONNX Runtime has few kernels


def _limited(e, x, low, high):
    """Integers within bounds, those of 16 bits as i32. ONNX Runtime's Clip, Max and Min are wrong for some of i64."""
    kind = e.dtype(x)
    if kind in _WIDER:
        kind = _WIDER[kind]
        x = e.cast(x, kind)
    low, high = e.array(low, kind), e.array(high, kind)
    if kind == "i64":
        x = e.node("Where", [e.node("Less", [x, low]), low, x])
        return e.node("Where", [e.node("Greater", [x, high]), high, x])
    return e.node("Clip", [x, low, high])


@writes("cast")
def cast(e, x, dtype):
    have = e.dtype(x)
    if dtype in INTEGERS and have in FLOATS:
        return _whole(e, x, dtype)
    if dtype in INTEGERS and have in INTEGERS:
        low, high = limits(dtype)
        least, most = limits(have)
        if least < low or most > high:
            x = _limited(e, x, max(low, least), min(high, most))
    if dtype.startswith("f8"):
        return e.node("Cast", [x], to=NUMBERS[dtype], saturate=1)
    return e.cast(x, dtype)


def _whole(e, x, dtype):
    """A float as an integer: beyond the type's limits the nearest one, and 0 for a NaN, which ONNX leaves open."""
    if dtype == "u64" or e.dtype(x) == "bf16":
        raise e.error(f"{e.dtype(x)} as {dtype}")
    if e.dtype(x) == "f16":
        x = e.cast(x, "f32")
        kind = "f32"
    else:
        kind = e.dtype(x)
    low, high = limits(dtype)
    to = _WIDER.get(dtype, dtype)
    above = e.node("GreaterOrEqual", [x, e.array(float(high) + 1, kind)])
    below = e.node("LessOrEqual", [x, e.array(float(low), kind)])
    outside = e.node("Or", [e.node("Or", [above, below]), e.node("IsNaN", [x])])
    inside = e.cast(e.node("Where", [outside, e.array(0, kind), x]), to)
    made = e.node("Where", [above, e.array(high, to), inside])
    made = e.node("Where", [below, e.array(low, to), made])
    return made if to == dtype else e.cast(made, dtype)


@writes("is_finite")
def is_finite(e, x):
    return e.node("Not", [e.node("Or", [e.node("IsNaN", [x]), e.node("IsInf", [x])])])


@writes("ne")
def ne(e, a, b):
    return e.node("Not", [e.node("Equal", [a, b])])


@writes("remainder")
def remainder(e, a, b):
    if e.dtype(a) in INTEGERS:
        return e.node("Mod", [a, b], fmod=0)
    rest, zero = e.node("Mod", [a, b], fmod=1), e.number(0, a)
    other_sign = e.node("Xor", [e.node("Less", [rest, zero]), e.node("Less", [b, zero])])
    moved = e.node("And", [other_sign, e.node("Not", [e.node("Equal", [rest, zero])])])
    return e.node("Where", [moved, e.node("Add", [rest, b]), rest])


@writes("fmod")
def fmod(e, a, b):
    return e.node("Mod", [a, b], fmod=1)


@writes("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
def bitwise(e, *operands):
    word = e.at.op[8:].capitalize()
    return e.node(word if e.dtype(operands[0]) == "bool" else f"Bitwise{word}", operands)


@writes("shift_left", "shift_right")
def shift(e, a, b):
    if e.dtype(a)[0] != "u":
        raise e.error(f"BitShift takes no {e.dtype(a)}")
    return e.node("BitShift", [a, b], direction="LEFT" if e.at.op == "shift_left" else "RIGHT")


# Reductions and orders

_REDUCE = {"sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


@writes(*_REDUCE)
def reduce(e, x, axes, keep_dims):
    have, to = e.dtype(x), e.result().dtype
    if not axes:
        return e.node("Identity", [x]) if to == have else e.cast(x, to)
    wide = {**_WIDER, "u32": "f64"}.get(have, have) if e.at.op in ("max", "min") else to
    made = x if wide == have else e.cast(x, wide)
    made = e.node(_REDUCE[e.at.op], [made, e.array(axes)], keepdims=int(keep_dims))
    return made if wide == to else e.cast(made, to)


@writes("any", "all")
def any_all(e, x, axes, keep_dims):
    if not axes:
        return e.node("Identity", [x])
    op = "ReduceMax" if e.at.op == "any" else "ReduceMin"
    return e.cast(e.node(op, [e.cast(x, "i32"), e.array(axes)], keepdims=int(keep_dims)), "bool")


@writes("argmax", "argmin")
def arg_extreme(e, x, axis, keep_dims, dtype):
    made = e.node("ArgMax" if e.at.op == "argmax" else "ArgMin", [x], axis=axis, keepdims=int(keep_dims))
    return made if dtype == "i64" else e.cast(made, dtype)


@writes("cumsum")
def cumsum(e, x, axis):
    wide = x if e.dtype(x) == e.result().dtype else e.cast(x, e.result().dtype)
    return e.node("CumSum", [wide, e.array(axis)])


@writes("topk")
def topk(e, x, k, axis):
    return e.cast(e.node("TopK", [x, e.array([k])], 2, axis=axis, largest=1, sorted=1)[1], "i32")


@writes("sort", "argsort")
def sort(e, x, axis, descending):
    values, places = e.node("TopK", [x, _size(e, x, axis)], 2, axis=axis, largest=int(descending), sorted=1)
    return values if e.at.op == "sort" else e.cast(places, "i32")


def _size(e, x, axis):
    """The size of an axis: i64[1]."""
    size = e.sizes(x)[axis]
    return e.array([size]) if size is not None else e.node("Shape", [x], start=axis, end=axis + 1)


# Shapes


@writes("reshape")
def reshape(e, x, *like, dims):
    if like:
        return e.node("Reshape", [x, e.node("Shape", like)], allowzero=1)
    return e.reshaped(x, dims)


@writes("split_axis")
def split_axis(e, x, axis, sizes):
    return _with_axes(e, x, axis, 1, sizes)


@writes("merge_axes")
def merge_axes(e, x, axis, count):
    sizes = e.sizes(x)[axis:axis + count]
    return _with_axes(e, x, axis, count, [-1 if None in sizes else math.prod(sizes)])


def _with_axes(e, x, axis, count, sizes):
    """x with `sizes` in place of some axes; the others stay."""
    have = e.sizes(x)
    others = have[:axis] + have[axis + count:]
    if None not in others:
        return e.reshaped(x, have[:axis] + list(sizes) + have[axis + count:])
    parts = [e.node("Shape", [x], start=0, end=axis), e.array(sizes),
             e.node("Shape", [x], start=axis + count, end=len(have))]
    return e.node("Reshape", [x, e.node("Concat", parts, axis=0)])


@writes("unsqueeze")
def unsqueeze(e, x, axis):
    return e.node("Unsqueeze", [x, e.array([axis])])


@writes("squeeze")
def squeeze(e, x, axis):
    return e.node("Squeeze", [x, e.array([axis])])


@writes("permute")
def permute(e, x, order):
    return e.node("Transpose", [x], perm=order)


@writes("slice")
def slice_(e, x, axis, begin, end, step):
    if step < 0 and end == _FAR:
        end = -_FAR
    return e.node("Slice", [x, e.array([begin]), e.array([end]), e.array([axis]), e.array([step])])


@writes("broadcast_to")
def broadcast_to(e, x, *like, dims):
    if like:
        return e.node("Expand", [x, e.node("Shape", like)])
    return e.node("Expand", [x, e.array([1 if d == -1 else d for d in dims])])


@writes("concat")
def concat(e, *parts, axis):
    return e.node("Concat", parts, axis=axis)


@writes("pad")
def pad(e, x, before, after, value, mode):
    mode = {"": "constant", "circular": "wrap"}.get(mode, mode)
    operands = [x, e.array([*before, *after])] + ([e.number(value, x)] if mode == "constant" else [])
    return e.node("Pad", operands, mode=mode)


@writes("gather")
def gather(e, x, index, axis):
    return e.node("Gather", [x, index], axis=axis)


@writes("take_along")
def take_along(e, x, index, axis):
    return e.node("GatherElements", [x, index], axis=axis)


@writes("scatter")
def scatter(e, x, index, source, axis, mode):
    return e.node("ScatterElements", [x, index, source], axis=axis, reduction="none" if mode in ("", "set") else mode)


@writes("select")
def select(e, x, index):
    return e.node("Gather", [x, index], axis=0)


@writes("update_slice")
def update_slice(e, x, index, y):
    place = e.node("Reshape", [e.cast(index, "i64"), e.array([1, 1])])
    return e.node("ScatterND", [x, place, e.node("Unsqueeze", [y, e.array([0])])])


@writes("full")
def full(e, value, dims, dtype):
    from onnx import numpy_helper

    from .types import NUMPY
    number = numpy_helper.from_array(np.array([value], NUMPY[dtype]))
    return e.node("ConstantOfShape", [e.array(np.array(dims, np.int64))], value=number)


@writes("iota")
def iota(e, *x, size, axis, start, step, dtype):
    if not x:
        return e.node("Identity", [e.array(start + step * np.arange(size), dtype)])
    count = e.node("Squeeze", [_size(e, x[0], axis), e.array([0])])
    places = e.node("Range", [e.array(0), count, e.array(1)])
    made = e.node("Add", [e.node("Mul", [places, e.array(step)]), e.array(start)])
    return made if dtype == "i64" else e.cast(made, dtype)


@writes("embedding")
def embedding(e, ids, table, dtype):
    made = e.node("Gather", [table, ids], axis=0)
    return made if dtype == e.dtype(table) else e.cast(made, dtype)


# Products and images


@writes("linear")
def linear(e, x, w, *others, has_bias, has_residual):
    if w in e.known:
        weight = e.array(e.known[w].T, e.dtype(w))
    else:
        weight = e.node("Transpose", [w], perm=[1, 0])
    if e.dtype(w) != e.dtype(x):
        weight = e.cast(weight, e.dtype(x))
    made = e.node("MatMul", [x, weight])
    for one in others:
        made = e.node("Add", [made, one if e.dtype(one) == e.dtype(x) else e.cast(one, e.dtype(x))])
    return made


def _pads(padding):
    """top, bottom, left, right as ONNX orders them: first the beginnings."""
    if len(padding) == 2:
        padding = [padding[0], padding[0], padding[1], padding[1]]
    return [*padding[0::2], *padding[1::2]] if padding else [0, 0, 0, 0]


@writes("conv2d", "conv2d_integer")
def conv2d(e, *operands, stride, padding, dilation, groups, has_bias=False):
    zeros = e.known.get(operands[3]) if e.at.op == "conv2d_integer" and len(operands) > 3 else None
    if zeros is not None and zeros.size and (zeros == zeros.flat[0]).all():  # ONNX Runtime takes one for all channels
        operands = (*operands[:3], e.array(zeros.flat[0], e.dtype(operands[3])))
    return e.node("Conv" if e.at.op == "conv2d" else "ConvInteger", operands, strides=stride or [1, 1],
                  pads=_pads(padding), dilations=dilation or [1, 1], group=groups)


@writes("conv_transpose2d")
def conv_transpose2d(e, *operands, stride, padding, output_padding, dilation, groups, has_bias):
    if any(more >= step for more, step in zip(output_padding or [], stride or [1, 1])):
        raise e.error(f"output_padding {output_padding} is not below the stride {stride}, as ONNX Runtime needs it")
    return e.node("ConvTranspose", operands, strides=stride or [1, 1], pads=_pads(padding),
                  output_padding=output_padding or [0, 0], dilations=dilation or [1, 1], group=groups)


@writes("max_pool2d")
def max_pool2d(e, x, kernel, stride, padding, dilation):
    return e.node("MaxPool", [x], kernel_shape=kernel, strides=stride or kernel, pads=_pads(padding),
                  dilations=dilation or [1, 1])


@writes("avg_pool2d")
def avg_pool2d(e, x, kernel, stride, padding, count_include_pad):
    return e.node("AveragePool", [x], kernel_shape=kernel, strides=stride or kernel, pads=_pads(padding),
                  count_include_pad=int(count_include_pad))


@writes("resize")
def resize(e, x, sizes, mode, coordinates, rounding, cubic_coefficient):
    have = e.sizes(x)
    axes = list(range(len(have) - len(sizes), len(have)))
    return e.node("Resize", [x, "", "", e.array(sizes)], axes=axes, mode=mode or "linear",
                  coordinate_transformation_mode=coordinates or "half_pixel",
                  nearest_mode=rounding or "round_prefer_floor", cubic_coeff_a=cubic_coefficient)


@writes("grid_sample")
def grid_sample(e, x, grid, mode, padding, align_corners):
    return e.node("GridSample", [x, grid], mode={"": "linear", "bilinear": "linear"}.get(mode, mode),
                  padding_mode=padding or "zeros", align_corners=int(align_corners))


@writes("roi_align")
def roi_align(e, x, boxes, images, size, scale, sampling_ratio, aligned):
    return e.node("RoiAlign", [x, boxes, e.cast(images, "i64")], output_height=size[0], output_width=size[1],
                  spatial_scale=scale, sampling_ratio=sampling_ratio, mode="avg",
                  coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel")


# Norms


def _ones(e, size, like, value=1):
    return e.array(np.full(size, value), e.dtype(like))


@writes("layer_norm")
def layer_norm(e, x, *weights, eps):
    size = e.sizes(x)[-1]
    if size is None:
        raise e.error("rows whose size is not known")
    weights = [one if e.dtype(one) == e.dtype(x) else e.cast(one, e.dtype(x)) for one in weights]
    return e.node("LayerNormalization", [x, *(weights or [_ones(e, size, x)])], axis=-1, epsilon=eps)


@writes("rms_norm")
def rms_norm(e, x, *weights, eps):
    square = e.node("ReduceMean", [e.node("Mul", [x, x]), e.array([-1])], keepdims=1)
    made = e.node("Div", [x, e.node("Sqrt", [e.node("Add", [square, e.number(eps, x)])])])
    return e.node("Mul", [made, *weights]) if weights else made


@writes("group_norm")
def group_norm(e, x, *weights, groups, eps):
    channels = e.sizes(x)[1]
    if channels is None:
        raise e.error("a number of channels that is not known")
    weights = [*weights, *[_ones(e, channels, x), _ones(e, channels, x, 0)][len(weights):]]
    return e.node("GroupNormalization", [x, *weights], num_groups=groups, epsilon=eps)


@writes("batch_norm")
def batch_norm(e, x, mean, variance, *weights, eps):
    channels = e.static(mean)[0]
    weights = [*weights, *[_ones(e, channels, x), _ones(e, channels, x, 0)][len(weights):]]
    return e.node("BatchNormalization", [x, *weights, mean, variance], epsilon=eps)


# Codes


@writes("quantize_linear", "dequantize_linear")
def quantize(e, x, scale, *zero, axis, dtype="u8"):
    attributes = {"axis": axis} if e.rank(scale) else {}
    if e.at.op == "dequantize_linear":
        return e.node("DequantizeLinear", [x, scale, *zero], **attributes)
    if not zero:
        zero = [e.array(np.zeros(e.static(scale)), dtype)]
    return e.node("QuantizeLinear", [x, scale, *zero], **attributes)


@writes("matmul_integer")
def matmul_integer(e, *operands):
    return e.node("MatMulInteger", operands)


# Attention and gates

@writes("glu")
def glu(e, x, y, activation):
    if activation in ("", "sigmoid", "relu"):
        made = e.node("Relu" if activation == "relu" else "Sigmoid", [x])
    elif activation == "silu":
        made = silu(e, x)
    elif activation in ("gelu", "gelu_tanh"):
        made = e.node("Gelu", [x], approximate="tanh" if activation == "gelu_tanh" else "none")
    else:
        raise e.error(f"activation {activation!r}")
    return e.node("Mul", [made, y])


@writes("attention")
def attention(e, q, k, v, *others, causal, window, scale, softcap, has_position, has_mask, has_sinks, has_table):
    if has_position or has_sinks or has_table or window:
        raise e.error("a position, sinks, a table of pages or a window")
    size, heads, kv_heads = e.sizes(q)[3], e.sizes(q)[2], e.sizes(k)[2]
    if None in (size, heads, kv_heads):
        raise e.error("heads whose number or size is not known")
    queries = e.node("Transpose", [q], perm=[0, 2, 1, 3])
    keys = _heads(e, k, heads // kv_heads, [0, 2, 3, 1])
    values = _heads(e, v, heads // kv_heads, [0, 2, 1, 3])
    scores = e.node("Mul", [e.node("MatMul", [queries, keys]), e.number(scale or size**-0.5, q)])
    if softcap:
        scaled = e.node("Tanh", [e.node("Div", [scores, e.number(softcap, q)])])
        scores = e.node("Mul", [scaled, e.number(softcap, q)])
    if causal:
        (rows, columns) = (e.sizes(q)[1], e.sizes(k)[1])
        if rows is None or columns is None:
            raise e.error("causal, with a number of queries or keys that is not known")
        hidden = np.triu(np.full((rows, columns), -np.inf), columns - rows + 1)
        scores = e.node("Add", [scores, e.array(hidden, e.dtype(q))])
    if has_mask:
        mask = others[0] if e.dtype(q) == "f32" else e.cast(others[0], e.dtype(q))
        scores = e.node("Add", [scores, mask])
    shares = e.node("Softmax", [scores], axis=-1)
    return e.node("Transpose", [e.node("MatMul", [shares, values])], perm=[0, 2, 1, 3])


def _heads(e, x, times, order):
    """[B, T, heads, D] in another order, each head `times` times in a row."""
    if times > 1:
        wide = e.node("Unsqueeze", [x, e.array([3])])
        sizes = e.sizes(x)
        wide = e.node("Expand", [wide, e.array([1, 1, 1, times, 1])])
        parts = [e.node("Shape", [x], start=0, end=2), e.array([sizes[2] * times, sizes[3]])]
        x = e.node("Reshape", [wide, e.node("Concat", parts, axis=0)])
    return e.node("Transpose", [x], perm=order)


@writes("fft", "rfft")
def fft(e, x, axis, inverse=False):
    if e.at.op == "fft":
        return e.node("DFT", [x, "", e.array(axis)], inverse=int(inverse))
    wide = e.node("Unsqueeze", [x, e.array([e.rank(x)])])
    return e.node("DFT", [wide, "", e.array(axis)], onesided=1)

"""Ops on single elements: functions, arithmetic, comparisons, bits, types."""

import math

import numpy as np

from .._tenon import all_ops
from . import patterns
from ..importing import sizes as sz
from ..importing.shaping import broadcast_shape, items, shaped, wrapped
from ..importing.types import FLOATS, NUMPY
from .node import op
from .types import tenon_type

_SAME = {
    "Abs": "abs", "Neg": "neg", "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan",
    "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh",
    "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf", "Floor": "floor", "Ceil": "ceil", "Round": "round",
    "Sign": "sign", "Reciprocal": "reciprocal", "Sigmoid": "sigmoid", "Relu": "relu", "Softplus": "softplus",
    "Mish": "mish", "Not": "logical_not", "BitwiseNot": "bitwise_not", "HardSwish": "hardswish", "IsNaN": "is_nan",
}


@op(*_SAME)
def same(n, x):
    made = shaped(getattr(n.b, _SAME[n.op])(x), x.shape)
    if n.op == "Erf":
        made.origin = (n.op, x)
    return made


@op("Identity")
def identity(n, x):
    return x


@op("Add", "Sub", "Mul", "Div")
def arithmetic(n, a, b):
    b, a = legacy_broadcast(n, a, b), a
    made = on_sizes(n, a, b)
    if made is not None:
        return made
    if a.is_known and b.is_known or a.dtype != b.dtype:
        return getattr(n.b, n.op.lower())(a, b)
    gelu = patterns.gelu_of(a, b) if n.op == "Mul" else None
    if gelu is not None:
        return shaped(n.b.call(all_ops()["gelu"], gelu), gelu.shape)
    if n.op == "Div":
        made = patterns.quotient(n.b, a, b)
    made = shaped(made or getattr(n.b, n.op.lower())(a, b), broadcast_shape(a, b))
    made.origin = (n.op, a, b)
    return made


def legacy_broadcast(n, a, b):
    """The second operand of opset 6 and earlier, whose axes begin at `axis`."""
    if n.version >= 7 or not n.attribute("broadcast", 0):
        return b
    axis = n.attribute("axis", a.rank - b.rank)
    axis = axis + a.rank if axis < 0 else axis
    return n.b.reshape_to(b, tuple(b.shape) + (1,) * (a.rank - axis - b.rank))


def _quotient(x, y):
    """x / y as ONNX divides integers: cut off, where sizes, which are never negative, are rounded down."""
    signs = sz.order(x, 0), sz.order(y, 0)
    x, y = (sz.mul(-1, one) if sign == -1 else one for one, sign in zip((x, y), signs))
    made = sz.divide(x, y)
    return sz.mul(-1, made) if signs.count(-1) == 1 else made


def on_sizes(n, a, b):
    """Arithmetic of sizes, where one of the operands has them."""
    if a.sizes is None and b.sizes is None:
        return None
    left, right = items(a), items(b)
    if left is None or right is None or (len(left) != len(right) and 1 not in (len(left), len(right))):
        return None
    count = max(len(left), len(right))
    left, right = (one * count if len(one) == 1 else one for one in (left, right))
    function = {"Add": sz.add, "Sub": sz.sub, "Mul": sz.mul, "Div": _quotient}[n.op]
    if n.op == "Div" and any(one == 0 for one in right):
        return None
    made = [function(x, y) for x, y in zip(left, right)]
    return n.b.of_sizes(made if max(a.rank, b.rank) else made[0], a.inputs | b.inputs)


@op("And", "Or", "Xor")
def logical(n, a, b):
    made = getattr(n.b, "logical_" + n.op.lower())(a, legacy_broadcast(n, a, b))
    return shaped(made, broadcast_shape(a, b))


@op("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(n, a, b):
    return shaped(getattr(n.b, "bitwise_" + n.op[7:].lower())(a, b), broadcast_shape(a, b))


@op("BitShift")
def bit_shift(n, a, b):
    direction = n.words("direction", "", ("LEFT", "RIGHT"))
    return (n.b.shift_left if direction == "LEFT" else n.b.shift_right)(a, b)


_COMPARE = {"Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge", "Equal": "eq"}


@op(*_COMPARE)
def compare(n, a, b):
    if n.op == "Equal" and (a.sizes is not None or b.sizes is not None):
        made = _equal_sizes(n, a, b)
        if made is not None:
            return made
    made = getattr(n.b, _COMPARE[n.op])(a, legacy_broadcast(n, a, b))
    return shaped(made, broadcast_shape(a, b))


def _equal_sizes(n, a, b):
    """Whether sizes are equal, where that is known: none is negative."""
    left, right = items(a), items(b)
    if left is None or right is None or len(left) != len(right) and 1 not in (len(left), len(right)):
        return None
    count = max(len(left), len(right))
    left, right = (one * count if len(one) == 1 else one for one in (left, right))
    made = []
    for x, y in zip(left, right):
        difference = sz.sub(x, y)
        if isinstance(difference, int):
            made.append(difference == 0)
        elif min((one for one in (x, y) if isinstance(one, int)), default=1) < 0:
            made.append(False)
        else:
            return None
    return n.known_like(np.array(made if max(a.rank, b.rank) else made[0]), a, b)


def _extreme_size(n, values):
    """The least or greatest of single sizes, where that is the same one for all sizes that inputs may have."""
    held = [items(one) for one in values]
    if any(one is None or len(one) != 1 for one in held):
        return None
    best = held[0][0]
    for (one,) in held[1:]:
        order = sz.order(one, best)
        if order is None:
            return None
        best = one if (order > 0) == (n.op == "Max") else best
    rank = max(one.rank for one in values)
    return n.b.of_sizes([best] if rank else best, frozenset().union(*(one.inputs for one in values)))


@op("Min", "Max", "Sum", "Mean")
def variadic(n, *values):
    if not values:
        raise n.malformed("no inputs")
    if n.op in ("Min", "Max") and any(one.sizes is not None for one in values):
        made = _extreme_size(n, values)
        if made is not None:
            return made
    function = {"Min": n.b.minimum, "Max": n.b.maximum}.get(n.op, n.b.add)
    result = values[0]
    for one in values[1:]:
        result = shaped(function(result, one), broadcast_shape(result, one))
    return result / float(len(values)) if n.op == "Mean" else result


@op("Pow")
def power(n, x, y):
    if x.dtype in FLOATS and y.is_known and y.array.size == 1 and y.rank <= x.rank:
        number = float(y.array.reshape(()))
        if number in (2, 3):
            square = n.b.square(x)
            return shaped(square if number == 2 else square * x, x.shape)
    if x.dtype == y.dtype:
        return shaped(n.b.pow(x, y), broadcast_shape(x, y))
    if x.dtype in FLOATS:
        return shaped(n.b.pow(x, n.b.cast(y, x.dtype)), broadcast_shape(x, y))
    if y.dtype in FLOATS:
        return n.b.cast(n.b.pow(n.b.cast(x, "f64"), n.b.cast(y, "f64")), x.dtype)
    return n.b.pow(x, n.b.cast(y, x.dtype))


@op("Mod")
def modulo(n, a, b):
    if n.attribute("fmod", 0):
        return n.b.fmod(a, b)
    return n.b.remainder(a, b)


@op("Clip")
def clip(n, x, low=None, high=None):
    if n.version < 11:
        low, high = (n.known_like(np.array(n.attribute(name), NUMPY[x.dtype])) if n.has(name) else None
                     for name in ("min", "max"))
    if x.dtype != "u64" and all(one is None or one.is_known and one.array.size == 1 for one in (low, high)):
        ends = [None if one is None else one.array.reshape(()).item() for one in (low, high)]
        bounds = [-math.inf if ends[0] is None else ends[0], math.inf if ends[1] is None else ends[1]]
        if bounds[0] <= bounds[1] and all(abs(one) < 2**53 or math.isinf(one) for one in bounds):
            return shaped(n.b.clamp(x, min=float(bounds[0]), max=float(bounds[1])), x.shape)
    made = x if low is None else n.b.maximum(x, low)
    return shaped(made if high is None else n.b.minimum(made, high), x.shape)


@op("Where")
def where(n, condition, a, b):
    if condition.is_known and (a.sizes is not None or b.sizes is not None):
        left, right = items(a), items(b)
        if left is not None and right is not None and condition.rank <= 1:
            chosen = condition.array.reshape(-1).tolist()
            count = max(len(left), len(right), len(chosen))
            left, right, chosen = (one * count if len(one) == 1 else one for one in (left, right, chosen))
            made = [x if c else y for c, x, y in zip(chosen, left, right)]
            rank = max(condition.rank, a.rank, b.rank)
            return n.b.of_sizes(made if rank else made[0], a.inputs | b.inputs | condition.inputs)
    return shaped(n.b.where(condition, a, b), broadcast_shape(condition, a, b))


@op("Cast")
def cast(n, x):
    to = tenon_type(n.attribute("to"), f"{n.where}: attribute 'to'")
    return converted(n, x, to)


@op("CastLike")
def cast_like(n, x, like):
    return converted(n, x, like.dtype)


def converted(n, x, to):
    """A cast with ONNX's rules."""
    if x.sizes is not None and to in ("i64", "i32"):
        return x if to == "i64" else n.b.cast(x, to)
    if to in ("f8_e4m3", "f8_e5m2"):
        return _to_f8(n, x, to)
    return wrapped(n, x, to)


def _to_f8(n, x, to):
    if x.dtype not in FLOATS:
        return n.b.cast(x, to)
    return to_f8(n, n.b.cast(x, "f32"), to)


def to_f8(n, wide, to):
    """f32 to an 8-bit float. Without `saturate` what rounds beyond the greatest value is a NaN, or infinite."""
    greatest = 448.0 if to == "f8_e4m3" else 57344.0
    made = n.b.cast(n.b.clamp(wide, min=-greatest, max=greatest), to)
    if n.attribute("saturate", 1):
        return made
    size = n.b.abs(wide)
    if to == "f8_e4m3":
        return n.b.where(n.b.gt(size, 464.0), n.b.number(math.nan, to), made)
    endless = n.b.where(n.b.lt(wide, 0.0), n.b.number(-math.inf, to), n.b.number(math.inf, to))
    return n.b.where(n.b.ge(size, 61440.0), endless, made)


@op("Constant")
def constant(n):
    if n.has("value"):
        return n.importer.known(n.attribute("value"), n.where, n.proto.output[0])
    for name, kind in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64),
                       ("value_ints", np.int64)):
        if n.has(name):
            return n.b.known(np.array(n.attribute(name), kind), name=n.proto.output[0])
    for name in ("sparse_value", "value_string", "value_strings"):
        if n.has(name):
            raise n.error("is not supported", name)
    raise n.malformed("no value")


@op("LeakyRelu")
def leaky_relu(n, x):
    return shaped(n.b.leaky_relu(x, alpha=n.attribute("alpha", 0.01)), x.shape)


@op("Elu")
def elu(n, x):
    return shaped(n.b.elu(x, alpha=n.attribute("alpha", 1.0)), x.shape)


@op("Selu")
def selu(n, x):
    alpha, gamma = n.attribute("alpha", 1.67326319217681884765625), n.attribute("gamma", 1.05070102214813232421875)
    return n.b.elu(x, alpha=alpha) * gamma


@op("Celu")
def celu(n, x):
    alpha = n.attribute("alpha", 1.0)
    return n.b.maximum(x, 0.0) + n.b.minimum(n.b.expm1(x / alpha) * alpha, 0.0)


@op("PRelu")
def prelu(n, x, slope):
    return shaped(n.b.where(n.b.lt(x, 0.0), x * slope, x), x.shape)


@op("ThresholdedRelu")
def thresholded_relu(n, x):
    return n.b.where(n.b.gt(x, n.attribute("alpha", 1.0)), x, n.b.number(0, x.dtype))


@op("HardSigmoid")
def hard_sigmoid(n, x):
    alpha, beta = n.attribute("alpha", 0.2), n.attribute("beta", 0.5)
    return shaped(n.b.clamp(x * alpha + beta, min=0.0, max=1.0), x.shape)


@op("Softsign")
def softsign(n, x):
    return x / (n.b.abs(x) + 1.0)


@op("Gelu")
def gelu(n, x):
    approximate = n.words("approximate", "none", ("none", "tanh"))
    return shaped(n.b.gelu_tanh(x) if approximate == "tanh" else n.b.call(all_ops()["gelu"], x), x.shape)


@op("Shrink")
def shrink(n, x):
    bias, bound = n.attribute("bias", 0.0), n.attribute("lambd", 0.5)
    wide = x if x.dtype in FLOATS else n.b.cast(x, "f64")
    zero = n.b.number(0, wide.dtype)
    made = n.b.where(n.b.lt(wide, -bound), wide + bias, n.b.where(n.b.gt(wide, bound), wide - bias, zero))
    return n.b.cast(made, x.dtype)


@op("IsInf")
def is_inf(n, x):
    positive, negative = n.attribute("detect_positive", 1), n.attribute("detect_negative", 1)
    if positive and negative:
        return n.b.is_inf(x)
    if not positive and not negative:
        return n.b.full(x.shape, False, "bool")
    return n.b.logical_and(n.b.is_inf(x), (n.b.gt if positive else n.b.lt)(x, 0.0))


@op("Dropout")
def dropout(n, x, ratio=None, training=None):
    if n.version < 7 and not n.attribute("is_test", 0):
        raise n.error("0: training draws random numbers", "is_test")
    if training is not None and n.number(training, "training_mode"):
        if ratio is None or n.number(ratio, "ratio") != 0:
            raise n.error("training draws random numbers", "training_mode")
    if not n.wants(1):
        return x
    # ONNX Runtime's masks: none of the elements is kept before opset 12, where the mask says so.
    return x, n.b.full(x.shape, n.version >= 12, "bool" if n.version >= 10 else x.dtype)


@op("Binarizer", domain="ai.onnx.ml")
def binarizer(n, x):
    return n.b.cast(n.b.gt(x, n.attribute("threshold", 0.0)), x.dtype)

"""Ops on single elements, with the types that torch gives their results."""

import math

from .._tenon import all_ops
from ..importing import sizes as sz
from ..importing.shaping import broadcast_shape, shaped
from ..importing.types import FLOATS, INTEGERS
from ..importing.values import Value
from .node import common_type, in_f32, op, with_exact_numbers

_FUNCTIONS = {
    "abs": "abs", "neg": "neg", "sqrt": "sqrt", "rsqrt": "rsqrt", "exp": "exp", "exp2": "exp2", "expm1": "expm1",
    "log": "log", "log2": "log2", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin",
    "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh",
    "acosh": "acosh", "atanh": "atanh", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "floor": "floor",
    "ceil": "ceil", "trunc": "trunc", "fix": "trunc", "sign": "sign", "sgn": "sign", "reciprocal": "reciprocal",
    "sigmoid": "sigmoid", "relu": "relu", "relu6": "relu6", "silu": "silu", "mish": "mish", "hardsigmoid":
    "hardsigmoid", "hardswish": "hardswish", "lgamma": "lgamma", "digamma": "digamma", "square": "square",
    "absolute": "abs", "negative": "neg", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "special_expit": "sigmoid", "special_erf": "erf", "special_erfc": "erfc",
    "special_erfinv": "erfinv", "special_exp2": "exp2", "special_expm1": "expm1", "special_log1p": "log1p",
    "special_gammaln": "lgamma", "special_digamma": "digamma", "special_psi": "digamma",
}
_OF_WHOLE = {"absolute", "negative", "abs", "neg", "floor", "ceil", "trunc", "fix", "sign", "sgn", "relu", "relu6",
             "square"}  # keep integers


@op(*(f"{name}.default" for name in _FUNCTIONS))
def function(n, self):
    name = n.op.split(".")[1].rstrip("_")
    if name in _OF_WHOLE and self.dtype not in FLOATS and self.dtype != "c64":
        if name in ("floor", "ceil", "trunc", "fix"):
            return self
        if name in ("sign", "sgn", "abs", "absolute") and (self.dtype[0] == "u" or self.dtype == "bool"):
            return self if name.startswith("abs") else n.cast(n.cast(self, "bool"), self.dtype)
        if name == "relu6":
            return n.b.clamp(self, min=0.0, max=6.0)
    x = self if self.dtype == "c64" else n.cast(self, n.dtype)  # abs of complex numbers is real
    made = getattr(n.b, _FUNCTIONS[name])(x)
    if name in ("sign", "sgn") and x.dtype in FLOATS:  # 0 of a NaN
        made = n.b.where(n.b.is_nan(x), n.b.number(0, x.dtype), made)
    return shaped(made, x.shape)


@op("frac.default")
def frac(n, self):
    return self - n.b.trunc(self)


@op("round.default", "round.decimals")
@in_f32
def round_(n, self, decimals=0):
    if self.dtype in INTEGERS:
        return self
    if not decimals:
        return n.b.round(self)
    scale = 10.0**abs(n.integer(decimals, "decimals"))
    return n.b.round(self * scale) / scale if decimals > 0 else n.b.round(self / scale) * scale


@op("log10.default")
@in_f32
def log10(n, self):
    """Of a power of 10 an integer, which the quotient of two rounded logarithms may be just below."""
    x = n.cast(self, n.dtype)
    made = n.b.log(x) / math.log(10)
    if x.dtype not in FLOATS:
        return made
    whole = n.b.round(made)
    power = n.b.pow(n.value(10.0, x.dtype), n.b.abs(whole))
    ratio = n.b.where(n.b.lt(whole, n.value(0.0, x.dtype)), x * power, x / power)
    is_near = n.b.le(n.b.abs(ratio - 1.0), n.value(2.0**(-52 if x.dtype == "f64" else -23), x.dtype))
    is_power = n.b.logical_and(is_near, n.b.ne(whole, n.value(0.0, x.dtype)))
    off = n.b.stop_gradient(n.b.where(is_power, whole - made, n.value(0.0, x.dtype)))
    return shaped(made + off, x.shape)


@op("logical_not.default")
def logical_not(n, self):
    return n.b.logical_not(n.cast(self, "bool"))


@op("bitwise_not.default")
def bitwise_not(n, self):
    return n.b.bitwise_not(self)


@op("isnan.default", "isinf.default", "isfinite.default")
def predicate(n, self):
    name = n.op.split(".")[1]
    if self.dtype not in FLOATS and self.dtype != "c64":
        return n.b.full(self.shape, name == "isfinite", "bool")
    return {"isnan": n.b.is_nan, "isinf": n.b.is_inf, "isfinite": n.b.is_finite}[name](self)


# Two operands


def operands(n, *values, dtype=None):
    """Operands in the type that the op computes in, that of its result unless `dtype` says otherwise."""
    dtype = dtype or n.dtype
    return [n.value(one, dtype) for one in values]


def _scaled(n, value, alpha):
    return value if alpha == 1 else n.b.mul(value, n.value(alpha, value.dtype))


def _sizes(n, function, self, other, alpha=1):
    """Arithmetic of values that are sizes, as long as they are."""
    if not isinstance(self, Value) or self.sizes is None or isinstance(self.sizes, list) or alpha != 1:
        return None
    number = other
    if isinstance(other, Value):
        number = other.sizes if other.sizes is not None else \
            int(other.array) if other.is_known and other.array.ndim == 0 and other.dtype == "i64" else None
    if isinstance(number, bool) or not isinstance(number, (int, sz.Size)):
        return None
    return n.b.of_sizes(function(self.sizes, number), self.inputs)


@op("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar")
def add(n, self, other, alpha=1):
    is_add = n.op.split(".")[1].startswith("add")
    made = _sizes(n, sz.add if is_add else sz.sub, self, other, alpha)
    if made is not None:
        return made
    a, b = operands(n, self, other)
    if a.dtype == "bool":
        return n.b.logical_or(a, _scaled(n, b, alpha))
    made = (n.b.add if is_add else n.b.sub)(a, _scaled(n, b, alpha))
    return shaped(made, broadcast_shape(a, b))


@op("rsub.Scalar", "rsub.Tensor")
def rsub(n, self, other, alpha=1):
    a, b = operands(n, self, other)
    return shaped(n.b.sub(b, _scaled(n, a, alpha)), broadcast_shape(a, b))


@op("mul.Tensor", "mul.Scalar", "multiply.Tensor", "multiply.Scalar")
@with_exact_numbers
def mul(n, self, other):
    made = _sizes(n, sz.mul, self, other)
    if made is not None:
        return made
    a, b = operands(n, self, other)
    made = n.b.logical_and(a, b) if a.dtype == "bool" else n.b.mul(a, b)
    return shaped(made, broadcast_shape(a, b))


@op("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "true_divide.Tensor",
    "true_divide.Scalar", "divide.Tensor", "divide.Scalar", "divide.Tensor_mode", "divide.Scalar_mode",
    "floor_divide.default", "floor_divide.Scalar")
@with_exact_numbers
def div(n, self, other, rounding_mode=None):
    if n.op.split(".")[1].startswith("floor_divide"):
        rounding_mode = "floor"
    n.words(rounding_mode, "rounding_mode", (None, "trunc", "floor"))
    a, b = operands(n, self, other)
    shape = broadcast_shape(a, b)
    if rounding_mode is None:
        return shaped(n.b.div(a, b), shape)
    if rounding_mode == "trunc":
        return shaped(n.b.div(a, b) if a.dtype in INTEGERS else n.b.trunc(n.b.div(a, b)), shape)
    if a.dtype not in FLOATS:
        zero, whole = n.b.number(0, a.dtype), n.b.div(a, b)
        rest = n.b.sub(a, n.b.mul(whole, b))
        is_off = n.b.logical_and(n.b.logical_and(n.b.ne(rest, zero), n.b.ne(b, zero)),
                                 n.b.logical_xor(n.b.lt(rest, zero), n.b.lt(b, zero)))
        return shaped(n.b.where(is_off, n.b.sub(whole, n.b.number(1, a.dtype)), whole), shape)
    zero, quotient, rest = n.b.number(0, a.dtype), n.b.div(a, b), n.b.fmod(a, b)
    is_off = n.b.logical_and(n.b.ne(rest, zero), n.b.logical_xor(n.b.lt(rest, zero), n.b.lt(b, zero)))
    whole = n.b.round(n.b.div(n.b.sub(a, rest), b))
    whole = n.b.where(is_off, n.b.sub(whole, n.b.number(1, a.dtype)), whole)
    whole = n.b.where(n.b.eq(whole, zero), n.b.mul(quotient, zero), whole)  # the quotient's sign
    return shaped(n.b.where(n.b.eq(b, zero), quotient, whole), shape)


@op("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor", "fmod.Tensor", "fmod.Scalar")
def remainder(n, self, other):
    a, b = operands(n, self, other)
    made = (n.b.fmod if ".fmod" in n.op else n.b.remainder)(a, b)
    return shaped(made, broadcast_shape(a, b))


@op("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(n, self, exponent):
    if not isinstance(exponent, Value) and exponent in (2, 3, 0.5) and self.dtype in ("f32", "f64", "c64"):
        x = self
        made = n.b.sqrt(x) if exponent == 0.5 else n.b.square(x) if exponent == 2 else n.b.mul(n.b.square(x), x)
        return shaped(made, x.shape)
    a, b = operands(n, self, exponent)
    return shaped(n.b.pow(a, b), broadcast_shape(a, b))


@op("maximum.default", "minimum.default", "max.other", "min.other", "fmax.default", "fmin.default")
def extreme(n, self, other):
    name = n.op.split(".")[1]
    a, b = operands(n, self, other)
    if a.dtype == "bool":
        return (n.b.logical_or if "max" in name else n.b.logical_and)(a, b)
    made = (n.b.maximum if "max" in name else n.b.minimum)(a, b)
    if name[0] == "f" and a.dtype in FLOATS:  # a NaN gives way to a number
        made = n.b.where(n.b.is_nan(a), b, n.b.where(n.b.is_nan(b), a, made))
    return shaped(made, broadcast_shape(a, b))


@op("atan2.default", "arctan2.default", "hypot.default")
def of_two(n, self, other):
    a, b = operands(n, self, other)
    return shaped((n.b.hypot if ".hypot" in n.op else n.b.atan2)(a, b), broadcast_shape(a, b))


@op("logical_and.default", "logical_or.default", "logical_xor.default")
def logical(n, self, other):
    a, b = operands(n, self, other, dtype="bool")
    return shaped(getattr(n.b, n.op.split(".")[1].rstrip("_"))(a, b), broadcast_shape(a, b))


@op("bitwise_and.Tensor", "bitwise_and.Scalar", "bitwise_or.Tensor", "bitwise_or.Scalar", "bitwise_xor.Tensor",
    "bitwise_xor.Scalar", "__and__.Tensor", "__or__.Tensor", "__xor__.Tensor", "__and__.Scalar", "__or__.Scalar",
    "__xor__.Scalar")
def bitwise(n, self, other):
    a, b = operands(n, self, other)
    name = n.op.split(".")[1].strip("_").removeprefix("bitwise_")
    return shaped(getattr(n.b, f"bitwise_{name}")(a, b), broadcast_shape(a, b))


@op("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "bitwise_right_shift.Tensor",
    "bitwise_right_shift.Tensor_Scalar", "__lshift__.Scalar", "__rshift__.Scalar")
def shift(n, self, other):
    a, b = operands(n, self, other)
    is_left = "left" in n.op or "lshift" in n.op
    return shaped((n.b.shift_left if is_left else n.b.shift_right)(a, b), broadcast_shape(a, b))


_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_LONGER = {"not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}


@op(*(f"{name}.{form}" for name in (*_COMPARE, *_LONGER) for form in ("Tensor", "Scalar")))
def compare(n, self, other):
    dtype = common_type(self, other)
    a, b = operands(n, self, other, dtype=dtype)
    name = n.op.split(".")[1].rstrip("_")
    return shaped(getattr(n.b, _LONGER.get(name, name))(a, b), broadcast_shape(a, b))


@op("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(n, condition, self, other):
    condition = n.cast(condition, "bool")
    a, b = operands(n, self, other)
    return shaped(n.b.where(condition, a, b), broadcast_shape(condition, a, b))


@op("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(n, self, mask, value):
    filler = n.value(value, self.dtype)
    return shaped(n.b.where(mask, filler, self), broadcast_shape(mask, self))


# Bounds


@op("clamp.default", "clamp.Tensor", "clip.default", "clip.Tensor", "clamp_min.default", "clamp_max.default",
    "clamp_min.Tensor", "clamp_max.Tensor", "hardtanh.default")
def clamp(n, self, min=None, max=None, min_val=-1.0, max_val=1.0):
    if n.op.split(".")[1].startswith("hardtanh"):
        min, max = min_val, max_val
    x = n.value(self, n.dtype)
    bounds = [one for one in (min, max) if one is not None]
    if all(isinstance(one, (int, float)) and abs(one) < 2**53 or one in (math.inf, -math.inf)
           for one in bounds if not isinstance(one, Value)) and not any(isinstance(one, (Value, sz.Size))
                                                                        for one in bounds):
        low, high = -math.inf if min is None else min, math.inf if max is None else max
        if low <= high:
            return shaped(n.b.clamp(x, min=float(low), max=float(high)), x.shape)
    for function, bound in ((n.b.maximum, min), (n.b.minimum, max)):
        if bound is not None:
            other = n.value(bound, n.dtype)
            x = shaped(function(x, other), broadcast_shape(x, other))
    return x


# Activations


@op("gelu.default")
def gelu(n, self, approximate="none"):
    n.words(approximate, "approximate", ("none", "tanh"))
    return shaped(n.b.gelu_tanh(self) if approximate == "tanh" else n.b.call(all_ops()["gelu"], self), self.shape)


@op("leaky_relu.default")
def leaky_relu(n, self, negative_slope=0.01):
    return shaped(n.b.leaky_relu(self, alpha=float(negative_slope)), self.shape)


@op("rrelu.default")
def rrelu(n, self, lower=1 / 8, upper=1 / 3, training=False, generator=None):
    if training:
        raise n.error("draws random numbers", "training")
    return leaky_relu(n, self, (lower + upper) / 2)


@op("rrelu_with_noise_functional.default")
def rrelu_with_noise(n, self, noise, lower=1 / 8, upper=1 / 3, training=False, generator=None):
    return [rrelu(n, self, lower, upper, training), noise]


@op("elu.default", "celu.default", "selu.default")
@in_f32
def elu(n, self, alpha=1.0, scale=1.0, input_scale=1.0):
    name = n.op.split(".")[1].rstrip("_")
    if name == "selu":
        alpha, scale = 1.6732632423543772, 1.0507009873554805
    if name == "celu":
        input_scale = 1 / alpha
    if input_scale != 1:
        is_above = n.b.gt(self, 0.0)
        # Of numbers above 0 the exponential is not used, but its gradient could be 0 * inf.
        low = n.b.where(is_above, n.b.number(0.0, self.dtype), self)
        made = n.b.where(is_above, self, n.b.expm1(low * float(input_scale)) * float(alpha))
    else:
        made = n.b.elu(self, alpha=float(alpha))
    return shaped(made if scale == 1 else made * float(scale), self.shape)


@op("prelu.default", "_prelu_kernel.default")
def prelu(n, self, weight):
    if "kernel" not in n.op and weight.rank and self.rank > 1:
        weight = n.b.reshape_to(weight, (weight.shape[0],) + (1,) * (self.rank - 2))
    return shaped(n.b.where(n.b.gt(self, 0.0), self, self * weight), self.shape)


@op("softplus.default")
@in_f32
def softplus(n, self, beta=1, threshold=20):
    scaled = self * float(beta)
    made = n.b.softplus(scaled) / float(beta)
    return shaped(n.b.where(n.b.gt(scaled, float(threshold)), self, made), self.shape)


@op("log_sigmoid.default", "log_sigmoid_forward.default")
def log_sigmoid(n, self):
    made = n.b.neg(n.b.softplus(n.b.neg(self)))
    return (made, n.b.full(n.metas[1][1], 0, self.dtype)) if n.wants(1) else (made, None) if "forward" in n.op else made


@op("softsign.default")
def softsign(n, self):
    return self / (n.b.abs(self) + 1.0)


@op("tanhshrink.default", "hardshrink.default", "softshrink.default")
def shrink(n, self, lambd=0.5):
    if "tanhshrink" in n.op:
        return self - n.b.tanh(self)
    zero, bound = n.b.number(0, self.dtype), float(lambd)
    if "hardshrink" in n.op:
        return n.b.where(n.b.le(n.b.abs(self), bound), zero, self)
    far = n.b.where(n.b.gt(self, zero), self - bound, self + bound)
    return n.b.where(n.b.le(n.b.abs(self), bound), zero, far)


@op("threshold.default")
def threshold(n, self, threshold, value):
    return n.b.where(n.b.le(self, float(threshold)), n.value(value, self.dtype), self)


@op("glu.default")
@in_f32
def glu(n, self, dim=-1):
    from ..importing.shaping import sliced
    axis = n.axis(dim, self.rank, "dim")
    half = n.known_size(self, axis) // 2
    return sliced(n, self, axis, 0, half, 1) * n.b.sigmoid(sliced(n, self, axis, half, 2 * half, 1))


@op("lerp.Scalar", "lerp.Tensor")
@in_f32
def lerp(n, self, end, weight):
    """From the nearer end, so that a weight of 1 gives `end`."""
    apart, weight = end - self, n.value(weight, self.dtype)
    one, is_near = n.value(1.0, self.dtype), n.b.lt(n.b.abs(weight), n.value(0.5, self.dtype))
    made = n.b.where(is_near, self + apart * weight, end - apart * (one - weight))
    return shaped(made, broadcast_shape(self, end, weight))


@op("addcmul.default", "addcdiv.default")
@in_f32
def addc(n, self, tensor1, tensor2, value=1):
    part = tensor1 * tensor2 if "addcmul" in n.op else tensor1 / tensor2
    return self + _scaled(n, part, value)


@op("logaddexp.default")
@in_f32
def logaddexp(n, self, other):
    a, b = operands(n, self, other)
    return shaped(log_add_exp(n, a, b), broadcast_shape(a, b))


def log_add_exp(n, a, b):
    return n.b.maximum(a, b) + n.b.log1p(n.b.exp(_below(n, a, b)))


def _below(n, a, b):
    """-|a - b|, which is 0 of infinities that are the same."""
    zero, same = n.b.number(0, a.dtype), n.b.eq(a, b)
    return n.b.neg(n.b.abs(n.b.where(same, zero, a) - n.b.where(same, zero, b)))


def root(n, x):
    """A square root whose gradient at 0 is 0, as that of PyTorch's lengths and deviations."""
    is_zero = n.b.eq(x, n.b.number(0, x.dtype))
    return n.b.where(is_zero, x, n.b.sqrt(n.b.where(is_zero, n.b.number(1, x.dtype), x)))


def power_of_size(n, x, exponent):
    """The same of a power of what is not negative."""
    if exponent <= 0:
        return n.b.pow(x, exponent)
    is_zero = n.b.eq(x, n.b.number(0, x.dtype))
    return n.b.where(is_zero, n.b.number(0, x.dtype), n.b.pow(n.b.where(is_zero, n.b.number(1, x.dtype), x), exponent))


@op("signbit.default")
def signbit(n, self):
    if self.dtype == "bool" or self.dtype[0] == "u":
        return n.b.full(self.shape, False, "bool")
    return _has_sign(n, self)


def _has_sign(n, x):
    """Whether numbers are negative, -0 among them."""
    below = n.b.lt(x, n.b.number(0, x.dtype))
    if x.dtype not in FLOATS:
        return shaped(below, x.shape)
    one = n.b.number(1, x.dtype)
    zero = n.b.logical_and(n.b.eq(x, n.b.number(0, x.dtype)), n.b.lt(one / x, n.b.number(0, x.dtype)))
    return shaped(n.b.logical_or(below, zero), x.shape)


@op("copysign.Tensor", "copysign.Scalar")
def copysign(n, self, other):
    a, b = operands(n, self, other)
    size = n.b.abs(a)
    return shaped(n.b.where(_has_sign(n, b), n.b.neg(size), size), broadcast_shape(a, b))


@op("nan_to_num.default")
def nan_to_num(n, self, nan=None, posinf=None, neginf=None):
    if self.dtype not in FLOATS:
        return self
    import numpy as np

    from ..importing.types import NUMPY
    try:
        greatest = float(np.finfo(NUMPY[self.dtype]).max)
    except ValueError:
        greatest = 3.3895313892515355e38  # bf16
    number = {name: n.b.number(value, self.dtype) for name, value in (
        ("nan", nan or 0.0), ("high", greatest if posinf is None else posinf),
        ("low", -greatest if neginf is None else neginf))}
    made = n.b.where(n.b.is_nan(self), number["nan"], self)
    made = n.b.where(n.b.eq(made, n.b.number(math.inf, self.dtype)), number["high"], made)
    return shaped(n.b.where(n.b.eq(made, n.b.number(-math.inf, self.dtype)), number["low"], made), self.shape)


# Types and copies


@op("_to_copy.default", "to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as.default", "float.default")
def to(n, self, dtype=None, **_):
    if self.dtype == "c64" and n.dtype != "c64":  # with a warning, in torch
        self = shaped(n.b.real(self), self.shape)
    return n.cast(self, n.dtype)


@op("clone.default", "contiguous.default", "lift_fresh_copy.default")
def clone(n, self, memory_format=None):
    return self


@op("detach.default", view=True)
def detach(n, self):
    return self if self.tensor is None else n.b.stop_gradient(self)


@op("alias.default", "lift_fresh.default", "positive.default", view=True)
def same(n, self, memory_format=None):
    return self


@op("dropout.default", "feature_dropout.default", "alpha_dropout.default", "native_dropout.default")
def dropout(n, input=None, self=None, p=0.5, train=False):
    input = self if input is None else input
    if train and p:
        raise n.error("training draws random numbers", "train")
    return (input, n.b.full(input.shape, True, "bool")) if "native" in n.op else input


@op("copy.default")
def copy(n, self, src, non_blocking=False):
    return n.b.broadcast(n.cast(src, self.dtype), self.shape)


@op("fill.Scalar", "fill.Tensor")
def fill(n, self, value):
    return n.b.broadcast(n.value(value, self.dtype), self.shape)


@op("zero.default")
def zero(n, self):
    return n.b.full(self.shape, 0, self.dtype)


# Made of others


@op("deg2rad.default", "rad2deg.default")
def turned(n, self):
    return n.cast(self, n.dtype) * (math.pi / 180 if "deg2rad" in n.op else 180 / math.pi)


@op("isposinf.default", "isneginf.default")
def infinite(n, self):
    if self.dtype not in FLOATS:
        return n.b.full(self.shape, False, "bool")
    return n.b.eq(self, n.b.number(math.inf if "pos" in n.op else -math.inf, self.dtype))


@op("sinc.default", "special_sinc.default")
@in_f32
def sinc(n, self):
    x = n.cast(self, n.dtype) * math.pi
    is_zero = n.b.eq(x, n.b.number(0, x.dtype))
    safe = n.b.where(is_zero, n.b.number(1, x.dtype), x)
    return shaped(n.b.where(is_zero, n.b.number(1, x.dtype), n.b.sin(safe) / safe), self.shape)


@op("logit.default", "special_logit.default")
def logit(n, self, eps=None):
    x = n.cast(self, n.dtype)
    x = x if eps is None else shaped(n.b.clamp(x, min=float(eps), max=1 - float(eps)), x.shape)
    return n.b.log(x / (n.value(1, x.dtype) - x))


@op("heaviside.default")
def heaviside(n, self, values):
    a, b = operands(n, self, values)
    zero = n.b.number(0, a.dtype)
    step = n.b.where(n.b.gt(a, zero), n.b.number(1, a.dtype), zero)
    step = n.b.where(n.b.is_nan(a), zero, step) if a.dtype in FLOATS else step
    return shaped(n.b.where(n.b.eq(a, zero), b, step), broadcast_shape(a, b))


@op("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self", "special_xlogy.default", "special_xlogy.other_scalar",
    "special_xlogy.self_scalar", "special_xlog1py.default", "special_xlog1py.other_scalar",
    "special_xlog1py.self_scalar")
def xlogy(n, self, other):
    """x log(y), which is 0 where x is 0 and y any number."""
    a, b = operands(n, self, other)
    one_more = "log1p" in n.op
    zero, least = n.b.number(0, a.dtype), n.b.number(-1 if one_more else 0, a.dtype)
    beyond = n.b.logical_or(n.b.le(b, least), n.b.eq(b, n.b.number(math.inf, a.dtype)))  # no finite logarithm
    is_zero = n.b.logical_and(n.b.eq(a, zero), beyond)
    logs = (n.b.log1p if one_more else n.b.log)(n.b.where(is_zero, n.b.number(1, a.dtype), b))
    return shaped(n.b.where(is_zero, zero, a * logs), broadcast_shape(a, b))


@op("special_entr.default")
def entropy(n, self):
    """-x log(x), 0 of 0, -inf below."""
    x = n.cast(self, n.dtype)
    zero = n.b.number(0, x.dtype)
    made = n.b.where(n.b.eq(x, zero), zero, n.b.neg(x * n.b.log(n.b.abs(x))))
    return shaped(n.b.where(n.b.lt(x, zero), n.b.number(-math.inf, x.dtype), made), x.shape)


@op("special_ndtr.default")
def normal_distribution(n, self):
    x = n.cast(self, n.dtype)
    return n.b.erfc(x * -math.sqrt(0.5)) * 0.5


@op("logaddexp2.default")
def logaddexp2(n, self, other):
    a, b = operands(n, self, other)
    made = n.b.maximum(a, b) + n.b.log1p(n.b.exp2(_below(n, a, b))) / math.log(2)
    return shaped(made, broadcast_shape(a, b))


@op("ldexp.Tensor")
def ldexp(n, self, other):
    a, b = operands(n, self, other)
    return shaped(a * n.b.exp2(b), broadcast_shape(a, b))


@op("float_power.Tensor_Tensor", "float_power.Tensor_Scalar", "float_power.Scalar")
def float_power(n, self, exponent):
    a, b = operands(n, self, exponent)
    return shaped(n.b.pow(a, b), broadcast_shape(a, b))


@op("isclose.default")
def isclose(n, self, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    dtype = common_type(self, other)
    a, b = operands(n, self, other, dtype=dtype)
    shape, same = broadcast_shape(a, b), n.b.eq(a, b)
    if dtype == "bool":
        return shaped(same, shape)
    if equal_nan and dtype in FLOATS:
        same = n.b.logical_or(same, n.b.logical_and(n.b.is_nan(a), n.b.is_nan(b)))
    a, b = (one if dtype in FLOATS else n.cast(one, "f64") for one in (a, b))
    apart, allowed = n.b.abs(a - b), n.b.abs(b) * float(rtol) + float(atol)
    near = n.b.logical_and(n.b.is_finite(apart), n.b.le(apart, allowed))
    return shaped(n.b.logical_or(same, near), shape)


@op("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def isin(n, elements=None, test_elements=None, element=None, test_element=None, assume_unique=False, invert=False):
    some = elements if element is None else element
    tests = test_elements if test_element is None else test_element
    a, b = operands(n, some, tests, dtype=common_type(some, tests))
    flat = n.b.reshape_to(b, (sz.product(b.shape),))
    hit = n.b.any(n.b.eq(n.b.unsqueeze(a, a.rank), flat), axis=[a.rank], keep_dims=False)
    return shaped(n.b.logical_not(hit) if invert else hit, a.shape)

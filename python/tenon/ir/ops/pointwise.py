"""Functions of single elements."""
import math

import numpy as np

from . import REFERENCES, op
from ..tensors import cast as cast_values


def vectorized(function):
    return np.vectorize(function, otypes=[np.float64])


erf, erfc = vectorized(math.erf), vectorized(math.erfc)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.logaddexp(0, x)


def gelu(x):
    return x * erfc(-x / math.sqrt(2)) / 2


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def relu(x):
    return np.maximum(x, x.dtype.type(0))


def silu(x):
    return x * sigmoid(x)


def hardsigmoid(x):
    return np.clip(x + 3, 0, 6) / 6


def divide(a, b):
    if a.dtype.kind == "f":
        return a / b
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // divisor
    below = (a - quotient * divisor != 0) & ((a < 0) != (b < 0))  # numpy rounds down, not towards zero
    return np.where(b == 0, 0, quotient + below)


def power(a, b):
    if a.dtype.kind == "f":
        return np.power(a, b)
    result = np.power(a, np.maximum(b, b.dtype.type(0)))
    unit = np.where(a == 1, 1, np.where(a + a.dtype.type(1) == 0, np.where(b & b.dtype.type(1), -1, 1), 0))
    return np.where(b < 0, unit, result)


ONE_OPERAND = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "tanh": np.tanh, "erf": erf, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "round": np.rint, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erfc": erfc, "sigmoid": sigmoid, "relu": relu, "relu6": lambda x: np.clip(x, 0, 6),
    "silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh, "softplus": softplus,
    "gelu_derivative": lambda x: (1 + erf(x / np.sqrt(2))) / 2 + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "hardsigmoid": hardsigmoid, "hardswish": lambda x: x * hardsigmoid(x), "is_nan": np.isnan, "is_inf": np.isinf,
    "is_finite": np.isfinite, "logical_not": np.logical_not, "bitwise_not": np.invert,
}
TWO_OPERANDS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": divide, "pow": power, "minimum": np.minimum,
    "maximum": np.maximum, "remainder": np.remainder, "fmod": np.fmod, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor, "atan2": np.arctan2, "hypot": np.hypot,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift, "shift_right": np.right_shift,
}
ACTIVATIONS = {function.__name__: function for function in (silu, gelu, gelu_tanh, relu, sigmoid)}
REFERENCES.update((name, ("computes", function)) for name, function in {**ONE_OPERAND, **TWO_OPERANDS}.items())


@op
def leaky_relu(x, alpha):
    return np.where(x < 0, alpha * x, x)


@op
def elu(x, alpha):
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


@op
def clamp(x, min, max):
    if x.dtype.kind == "f":
        return np.clip(x, min, max)
    low, high = cast_values(np.ceil(min), "i64"), cast_values(np.floor(max), "i64")
    return np.minimum(np.maximum(x.astype(np.int64), low), high)


@op(kind="raw")
def cast(x, dtype, result):
    return cast_values(x.data, dtype)


@op
def where(condition, a, b):
    return np.where(condition, a, b)


@op
def glu(gate, up, activation):
    return ACTIVATIONS[activation](gate) * up

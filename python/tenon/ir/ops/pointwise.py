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


def erfinv(x):
    """Newton's method on erfc, which is accurate near 1; the start is Winitzki's (2008)."""
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    size = abs(x)
    if size < 1e-8:
        return x * math.sqrt(math.pi) / 2
    log = math.log1p(-size * size)
    half = 2 / (math.pi * 0.147) + log / 2
    y = math.sqrt(math.sqrt(half * half - log / 0.147) - half)
    for _ in range(6):
        y += (math.erfc(y) - (1 - size)) * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


def lgamma(x):
    if abs(x) == math.inf or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def digamma(x):
    """Recurrence up to 20, then the asymptotic series (Abramowitz and Stegun 6.3.5, 6.3.7, 6.3.18)."""
    x = np.float64(x)  # whose operations give infinities where those of Python's numbers throw
    if x == 0:
        return math.copysign(math.inf, -x)
    if x < 0:
        return math.nan if x == np.floor(x) else digamma(1 - x) - math.pi / np.tan(math.pi * x)
    result = 0.0
    while x < 20:
        result -= 1 / x
        x += 1
    square = 1 / (x * x)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return result + np.log(x) - 1 / (2 * x) - series


def zeta(s, x):
    """Hurwitz's function, x > 0: terms below 20, then Euler and Maclaurin's formula."""
    total = 0.0
    while x < 20:
        total += x**-s
        x += 1
    total += x ** (1 - s) / (s - 1) + x**-s / 2
    factor, term = s, x ** (-s - 1)
    for k, bernoulli in enumerate((1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)):
        total += bernoulli * factor * term
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2)
        term /= x * x
    return total


def derived_digamma(order, x):
    x = np.float64(x)
    if x == 0:
        return math.inf if order % 2 else math.copysign(math.inf, -x)
    if order == 1 and x < 0 and x == np.floor(x):
        return math.inf
    if x < 0:
        if order > 1:
            return math.nan
        return (math.pi / np.sin(math.pi * x)) ** 2 - derived_digamma(1, 1 - x)
    return (-1) ** (order + 1) * math.factorial(order) * zeta(order + 1, x)


ONE_OPERAND = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "tanh": np.tanh, "erf": erf, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "round": np.rint, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erfc": erfc, "erfinv": vectorized(erfinv), "lgamma": vectorized(lgamma),
    "digamma": vectorized(digamma), "sigmoid": sigmoid, "relu": relu, "relu6": lambda x: np.clip(x, 0, 6),
    "silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh, "softplus": softplus, "mish": lambda x: x * np.tanh(softplus(x)),
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
def polygamma(x, order):
    return np.vectorize(derived_digamma, otypes=[np.float64])(order, x)


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

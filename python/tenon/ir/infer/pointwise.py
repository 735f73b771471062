"""Types of functions of single elements."""
import numpy as np

from . import broadcast, common, computed, dtype, floating, number, one_dtype, plain, require, rule
from ..tensors import NUMPY, Type, is_block, is_integer


INTEGER_UNARY = ("neg", "abs", "sign", "square", "relu")
REAL_UNARY = tuple(name for name in """sqrt rsqrt reciprocal exp exp2 expm1 log log2 log1p sin cos tan asin acos atan
    tanh erf floor ceil trunc round sinh cosh asinh acosh atanh erfc erfinv lgamma digamma sigmoid relu6 silu gelu
    gelu_tanh gelu_derivative softplus mish hardsigmoid hardswish leaky_relu elu""".split())


@rule(*REAL_UNARY)
def _(op, ins, a):
    floating(ins[0])
    return ins[0]


@rule(*INTEGER_UNARY)
def _(op, ins, a):
    number(ins[0])
    return ins[0]


@rule("polygamma")
def _(op, ins, a):
    floating(ins[0])
    require(1 <= a.order <= 100, "BadAttribute", f"order {a.order} is not in [1, 100]")
    return ins[0]


@rule("clamp")
def _(op, ins, a):
    number(ins[0])
    require(a.min <= a.max, "BadAttribute", f"min {a.min} is not at most max {a.max}")
    if is_integer(ins[0].dtype):
        limits = np.iinfo(NUMPY[ins[0].dtype])
        # Numbers of Python, which compares them with integers exactly.
        low, high = float(np.ceil(a.min)), float(np.floor(a.max))
        require(low <= high and low <= int(limits.max) and high >= int(limits.min), "BadAttribute",
                f"no {ins[0].dtype} is in [{a.min}, {a.max}]", ins[0])
    return ins[0]


@rule("cast")
def _(op, ins, a):
    plain(ins[0])
    require(not is_block(a.dtype), "UnsupportedDType", f"to {a.dtype}: that takes quantize", ins[0])
    require("c64" not in (ins[0].dtype, a.dtype), "UnsupportedDType", f"to {a.dtype}: complex numbers are not cast",
            ins[0])
    return ins[0].with_dtype(a.dtype)


@rule("is_nan", "is_inf", "is_finite")
def _(op, ins, a):
    floating(ins[0])
    return ins[0].with_dtype("bool")


@rule("add", "sub", "mul", "div", "pow", "minimum", "maximum", "remainder", "fmod")
def _(op, ins, a):
    one_dtype(*ins)
    number(ins[0])
    return Type(ins[0].dtype, broadcast(*ins))


@rule("atan2", "hypot")
def _(op, ins, a):
    one_dtype(*ins)
    floating(ins[0])
    return Type(ins[0].dtype, broadcast(*ins))


@rule("eq", "ne", "lt", "le", "gt", "ge")
def _(op, ins, a):
    one_dtype(*ins)
    computed(ins[0])
    return Type("bool", broadcast(*ins))


@rule("logical_and", "logical_or", "logical_xor", "logical_not")
def _(op, ins, a):
    for type_ in ins:
        dtype(type_, "bool")
    return Type("bool", broadcast(*ins))


@rule("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right")
def _(op, ins, a):
    one_dtype(*ins)
    is_bool = ins[0].dtype == "bool" and not op.startswith("shift")
    require(is_integer(ins[0].dtype) or is_bool, "UnsupportedDType", "needs an integer type", ins[0])
    return Type(ins[0].dtype, broadcast(*ins))


@rule("where")
def _(op, ins, a):
    dtype(ins[0], "bool")
    one_dtype(*ins[1:])
    plain(ins[1])
    return Type(ins[1].dtype, broadcast(*ins))


@rule("glu")
def _(op, ins, a):
    words = ("silu", "gelu", "gelu_tanh", "relu", "sigmoid")
    require(a.activation in words, "BadAttribute", f"no activation '{a.activation}'; there are {', '.join(words)}")
    floating(*ins)
    require(ins[0].rank == ins[1].rank and ins[0].dtype == ins[1].dtype, "ShapeMismatch", "gate and up differ", *ins)
    return Type(ins[0].dtype, [common(ins[0], i, ins[1], i, f"axis {i}") for i in range(ins[0].rank)])

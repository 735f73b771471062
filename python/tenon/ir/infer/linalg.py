"""Types of Fourier transforms and linear algebra."""
from . import agree, axis_of, checked, known, require, rule
from ..tensors import Type


def _real_type(type_):
    require(type_.dtype in ("f32", "f64"), "UnsupportedDType", "needs f32 or f64", type_)


def _complex(x, axis):
    _real_type(x)
    require(x.rank >= 2 and agree(x.dims[-1], 2), "ShapeMismatch", "needs a last axis of 2", x)
    require(0 <= axis < x.rank - 1, "AxisOutOfRange", f"axis {axis} out of range", x)


@rule("fft")
def _(op, ins, a):
    _complex(ins[0], a.axis)
    return ins[0]


@rule("rfft")
def _(op, ins, a):
    x = ins[0]
    _real_type(x)
    size = x.dims[axis_of(x, a.axis)]
    require(known(size) and size > 0, "BadShape", f"needs a known size above 0 along axis {a.axis}", x)
    return Type(x.dtype, x.with_dim(a.axis, size // 2 + 1).dims + (2,))


@rule("irfft")
def _(op, ins, a):
    x = ins[0]
    _complex(x, a.axis)
    require(a.size >= 1 and agree(x.dims[a.axis], a.size // 2 + 1), "BadShape",
            f"{a.size} numbers have another number of bins", x)
    return Type(x.dtype, x.with_dim(a.axis, a.size).dims[:-1])


def _square(x):
    _real_type(x)
    require(x.rank >= 2 and agree(x.dims[-2], x.dims[-1]), "ShapeMismatch", "needs square matrices", x)


@rule("cholesky", "det", "slogdet", "eigh", "lu")
def _(op, ins, a):
    x = ins[0]
    _square(x)
    if op == "det":
        return Type(x.dtype, x.dims[:-2])
    if op == "slogdet":
        return Type(x.dtype, x.dims[:-2] + (2,))
    if op == "cholesky":
        return x
    return x.with_dim(-2, x.dims[-2] + 1 if known(x.dims[-2]) else None)


@rule("svd", "qr")
def _(op, ins, a):
    x = ins[0]
    _real_type(x)
    require(x.rank >= 2, "ShapeMismatch", "needs matrices", x)
    m, n = x.dims[-2:]
    require(known(m) and known(n), "BadShape", "needs known sizes", x)
    return Type(x.dtype, x.dims[:-2] + (min(m, n), checked(m + n + (op == "svd"))))


@rule("solve", "triangular_solve")
def _(op, ins, a):
    x, y = ins
    require(x.dtype == y.dtype, "UnsupportedDType", "dtypes differ", *ins)
    _square(x)
    require(y.rank >= 2 and agree(x.dims[-1], y.dims[-2]), "ShapeMismatch", "heights differ", *ins)
    require(x.rank == y.rank and all(map(agree, x.dims[:-2], y.dims[:-2])), "ShapeMismatch", "leading axes differ",
            *ins)
    return y

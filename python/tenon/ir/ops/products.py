"""Matrix products."""
import numpy as np

from . import inside, op


@op
def matmul(a, b):
    return np.matmul(a, b)


@op
def linear(x, w, *rest, has_bias, has_residual):
    y = x @ w.T
    for term in rest:  # the bias, then the residual
        y = y + term
    return y


@op
def grouped_linear(x, w, group, bias=None, *, has_bias):
    inside(group, w.shape[0], "group")
    x = np.broadcast_to(x, group.shape + x.shape[-1:])
    y = np.einsum("...k,...nk->...n", x, w[group])
    return y if bias is None else y + bias[group]


def less_zero(codes, zero):
    """Codes in int64, less their zero points, which broadcast."""
    return codes.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))


@op
def matmul_integer(a, b, a_zero=None, b_zero=None):
    return np.matmul(less_zero(a, a_zero), less_zero(b, b_zero))

"""Decompositions of matrices, as tuples."""

from .making import eye
from .operands import _cast, _like, _ops, _public
from .shaping import swapaxes


@_public
def eigh(a):
    """(values [.., n], ascending, vectors [.., n, n], in columns) of a symmetric matrix: numpy.linalg.eigh."""
    made = _ops["eigh"](_like(a))
    return made[..., 0, :], made[..., 1:, :]


@_public
def svd(a):
    """(u [.., m, k], values [.., k], descending, v [.., k, n]): a = u diag(values) v, numpy.linalg.svd without
    full_matrices."""
    a = _like(a)
    rows, made = a.shape[-2], _ops["svd"](a)
    return swapaxes(made[..., :rows], -1, -2), made[..., rows], made[..., rows + 1:]


@_public
def qr(a):
    """(q [.., m, k], r [.., k, n]): a = q r, numpy.linalg.qr."""
    a = _like(a)
    rows, made = a.shape[-2], _ops["qr"](a)
    return swapaxes(made[..., :rows], -1, -2), made[..., rows:]


@_public
def lu(a):
    """(factors [.., n, n]: u, and under its diagonal l without its ones; rows i64[.., n]: row i of l u is row
    rows[i] of a)."""
    made = _ops["lu"](_like(a))
    return made[..., 1:, :], _cast(made[..., 0, :], "i64")


@_public
def slogdet(a):
    """(the determinant's sign, the logarithm of its absolute value): numpy.linalg.slogdet."""
    made = _ops["slogdet"](_like(a))
    return made[..., 0], made[..., 1]


@_public
def inverse(a):
    """The inverse of each matrix; infinities or NaN for a singular one."""
    a = _like(a)
    return _ops["solve"](a, _ops["broadcast_to"](eye(a.shape[-1], a.dtype), dims=a.shape))

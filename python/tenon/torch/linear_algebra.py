"""Systems of equations, and factorisations of matrices."""

import math

import numpy as np

from .._tenon import all_ops
from ..importing.shaping import broadcast_sizes, shaped, sliced, triangle
from ..importing.types import NUMPY
from ..importing.values import Value
from .node import op
from .pointwise import root
from .shapes import permuted


def _op(n, name, *values, **attributes):
    return n.b.call(all_ops()[name], *values, **attributes)


def _transposed(n, x):
    return permuted(n, x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _rows(n, x, first, last):
    """Rows of matrices."""
    return sliced(n, x, x.rank - 2, first, last, 1)


def _row(n, x, at):
    return n.b.reshape_to(_rows(n, x, at, at + 1), (*x.shape[:-2], x.shape[-1]))


def _symmetric(n, a, upper):
    """A symmetric matrix of one triangle, which is what torch reads."""
    half = triangle(n, a, 0, upper)
    rest = triangle(n, a, 1 if upper else -1, upper)
    return shaped(half + _transposed(n, rest), a.shape)


def _batched(n, *values):
    """Matrices with the same leading axes."""
    lead = broadcast_sizes(*(one.shape[:-2] for one in values))
    if lead is None:
        raise n.not_known(f"leading axes of {values}: give `shapes`")
    return [n.b.broadcast(one, (*lead, *one.shape[-2:])) for one in values]


def _identity(n, a):
    size = n.known_size(a, a.rank - 1)
    return n.b.broadcast(n.b.known(np.eye(size, dtype=NUMPY[a.dtype])), a.shape)


def _fine(n, a):
    """The result `info`: torch raises an error where it would not be 0, this library gives NaN or infinities."""
    return n.b.full(a.shape[:-2], 0, "i32")


def _inverse(n, a):
    return shaped(_op(n, "solve", a, _identity(n, a)), a.shape)


@op("linalg_inv.default", "inverse.default", "linalg_inv_ex.default")
def inverse(n, self=None, A=None, check_errors=False):
    a = self if A is None else A
    made = _inverse(n, a)
    return (made, _fine(n, a)) if "_ex" in n.op else made


def _lower(n, a, upper):
    made = shaped(_op(n, "cholesky", _symmetric(n, a, upper)), a.shape)
    return _transposed(n, made) if upper else made


@op("linalg_cholesky.default", "linalg_cholesky_ex.default", "cholesky.default")
def cholesky(n, self, upper=False, check_errors=False):
    made = _lower(n, self, upper)
    return (made, _fine(n, self)) if "_ex" in n.op else made


def _solved(n, a, b, function):
    """function(a, b) of matrices that are broadcast, where b may be vectors, as torch.linalg.solve takes them."""
    is_vector = b.rank == 1 or a.rank - 1 == b.rank and b.shape == a.shape[:-1]
    a, b = _batched(n, a, n.b.unsqueeze(b, b.rank) if is_vector else b)
    made = shaped(function(a, b), b.shape)
    return n.b.reshape_to(made, made.shape[:-1]) if is_vector else made


@op("linalg_solve.default", "linalg_solve_ex.default", "_linalg_solve_ex.default")
def solve(n, A, B, left=True, check_errors=False):
    if not left:
        made = _transposed(n, _solved(n, _transposed(n, A), _transposed(n, B), lambda a, b: _op(n, "solve", a, b)))
    else:
        made = _solved(n, A, B, lambda a, b: _op(n, "solve", a, b))
    if n.op.startswith("aten.linalg_solve."):
        return made
    if "_linalg" not in n.op:
        return made, _fine(n, A)
    if n.wants(1) or n.wants(2):
        raise n.error("the factors are used")
    return made, None, None, _fine(n, A)


@op("linalg_solve_triangular.default", "triangular_solve.default")
def solve_triangular(n, self, A=None, B=None, upper=True, left=True, unitriangular=False, transpose=False):
    A, b = (self, B) if A is None else (A, self)
    a, b = (A, b) if left else (_transposed(n, A), _transposed(n, b))
    upper = upper if left else not upper
    a, b = _batched(n, a, b)
    made = shaped(_op(n, "triangular_solve", a, b, lower=not upper, transposed=bool(transpose),
                      unit=bool(unitriangular)), b.shape)
    made = made if left else _transposed(n, made)
    return (made, A) if B is None else made


@op("cholesky_solve.default", "cholesky_inverse.default")
def cholesky_solve(n, self, input2=None, upper=False):
    factor, b = (self, _identity(n, self)) if input2 is None else (input2, self)
    factor, b = _batched(n, _transposed(n, factor) if upper else factor, b)
    made = _op(n, "triangular_solve", factor, b, lower=True, transposed=False, unit=False)
    return shaped(_op(n, "triangular_solve", factor, shaped(made, b.shape), lower=True, transposed=True, unit=False),
                  b.shape)


@op("linalg_det.default", "det.default", "_linalg_det.default")
def determinant(n, self=None, A=None):
    a = self if A is None else A
    made = shaped(_op(n, "det", a), a.shape[:-2])
    return (made, *_no_factors(n, 1)) if "_linalg" in n.op else made


def _no_factors(n, first):
    if n.wants(first) or n.wants(first + 1):
        raise n.error("the factors are used")
    return None, None


@op("linalg_slogdet.default", "slogdet.default", "_linalg_slogdet.default", "logdet.default")
def log_determinant(n, self=None, A=None):
    a = self if A is None else A
    parts = shaped(_op(n, "slogdet", a), (*a.shape[:-2], 2))
    sign, size = (n.b.reshape_to(sliced(n, parts, parts.rank - 1, i, i + 1, 1), a.shape[:-2]) for i in (0, 1))
    if "logdet.d" in n.op and "slog" not in n.op:
        none = n.b.number(float("nan"), a.dtype)
        return shaped(n.b.where(n.b.lt(sign, n.b.number(0, a.dtype)), none, size), sign.shape)
    return (sign, size, *_no_factors(n, 2)) if "_linalg" in n.op else (sign, size)


@op("linalg_qr.default")
def qr(n, A, mode="reduced"):
    rows, columns = n.known_size(A, A.rank - 2), n.known_size(A, A.rank - 1)
    if mode == "complete" and rows > columns:
        raise n.error("'complete' of more rows than columns", "mode")
    least = min(rows, columns)
    made = shaped(_op(n, "qr", A), (*A.shape[:-2], least, rows + columns))
    q = _transposed(n, sliced(n, made, made.rank - 1, 0, rows, 1))
    return q, sliced(n, made, made.rank - 1, rows, rows + columns, 1)


@op("linalg_eigh.default", "_linalg_eigh.default", "linalg_eigvalsh.default")
def eigh(n, A=None, self=None, UPLO="L", compute_v=True):
    a = self if A is None else A
    size = n.known_size(a, a.rank - 1)
    made = shaped(_op(n, "eigh", _symmetric(n, a, UPLO.upper() == "U")), (*a.shape[:-2], size + 1, size))
    values = _row(n, made, 0)
    return values if "eigvalsh" in n.op else (values, _rows(n, made, 1, size + 1))


def _svd(n, a):
    """(u, values, v transposed) of the least size."""
    rows, columns = n.known_size(a, a.rank - 2), n.known_size(a, a.rank - 1)
    least = min(rows, columns)
    made = shaped(_op(n, "svd", a), (*a.shape[:-2], least, rows + 1 + columns))
    last = made.rank - 1
    values = n.b.reshape_to(sliced(n, made, last, rows, rows + 1, 1), (*a.shape[:-2], least))
    return _transposed(n, sliced(n, made, last, 0, rows, 1)), values, sliced(n, made, last, rows + 1,
                                                                             rows + 1 + columns, 1)


@op("linalg_svd.default", "_linalg_svd.default", "svd.default", "linalg_svdvals.default")
def svd(n, A=None, self=None, full_matrices=False, some=True, compute_uv=True, driver=None):
    a = self if A is None else A
    if (full_matrices or not some) and a.shape[-1] != a.shape[-2] and compute_uv and (n.wants(0) or n.wants(2)):
        raise n.error("of matrices that are not square", "full_matrices")
    u, values, v = _svd(n, a)
    if "svdvals" in n.op:
        return values
    return u, values, _transposed(n, v) if n.op.startswith("aten.svd") else v


@op("linalg_pinv.default", "linalg_pinv.atol_rtol_float", "linalg_pinv.atol_rtol_tensor",
    "pinverse.default")
def pseudo_inverse(n, self, rcond=1e-15, atol=None, rtol=None, hermitian=False):
    u, values, v = _svd(n, self)
    if "atol" in n.op:
        rcond = rtol
        if rcond is None:
            rcond = max(self.shape[-2:]) * float(np.finfo(NUMPY[self.dtype]).eps) if atol is None else 0.0
    least = n.b.max(values, axis=[values.rank - 1], keep_dims=True) * _bound(n, rcond, self.dtype)
    least = n.b.maximum(least, _bound(n, 0.0 if atol is None else atol, self.dtype))
    zero = n.b.number(0, self.dtype)
    inverse_ = shaped(n.b.where(n.b.gt(values, least), n.value(1.0, self.dtype) / values, zero), values.shape)
    scaled = n.b.unsqueeze(inverse_, inverse_.rank - 1) * _transposed(n, v)
    return n.b.matmul(scaled, _transposed(n, u))


def _bound(n, number, dtype):
    """A number, or one for each matrix."""
    made = n.value(number if isinstance(number, Value) else float(number), dtype)
    return n.b.unsqueeze(made, made.rank) if made.rank else made


@op("linalg_matrix_norm.default", "linalg_matrix_norm.str_ord", "frobenius_norm.dim", "linalg_norm.ord_str")
def matrix_norm(n, self, ord="fro", dim=(-2, -1), keepdim=False, dtype=None):
    x = n.cast(self, n.dtype)
    first, second = n.axes((-2, -1) if dim is None else dim, x.rank)
    axes = [first, second]
    if ord == "fro":
        return root(n, n.b.sum(n.b.square(x), axis=axes, keep_dims=bool(keepdim)))
    if ord in (1, -1, math.inf, -math.inf):
        summed = first if ord in (1, -1) else second
        sums = n.b.sum(n.b.abs(x), axis=[summed], keep_dims=True)
        least = n.b.max if ord > 0 else n.b.min
        made = least(sums, axis=[first + second - summed], keep_dims=True)
        return made if keepdim else n.b.reshape_to(made, tuple(x.shape[i] for i in range(x.rank) if i not in axes))
    if ord not in ("nuc", 2, -2) or keepdim:
        raise n.error(f"{ord!r}", "ord")
    _, values, _ = _svd(n, permuted(n, x, [*(i for i in range(x.rank) if i not in axes), first, second]))
    made = {"nuc": n.b.sum, 2: n.b.max, -2: n.b.min}[ord]
    return made(values, axis=[values.rank - 1], keep_dims=False)


@op("linalg_vecdot.default")
def vector_products(n, x, y, dim=-1):
    a, b = n.cast(x, n.dtype), n.cast(y, n.dtype)
    product = (n.b.conj(a) if a.dtype == "c64" else a) * b
    return n.b.sum(product, axis=[n.axis(dim, product.rank, "dim")], keep_dims=False)

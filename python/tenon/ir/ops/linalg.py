"""Fourier transforms and linear algebra, matrix by matrix."""
import numpy as np

from . import op


def parts(z):
    return np.stack([z.real, z.imag], axis=-1)


def joined(x):
    return x[..., 0] + 1j * x[..., 1]


@op
def fft(x, axis, inverse):
    if 0 in x.shape:
        return x
    return parts((np.fft.ifft if inverse else np.fft.fft)(joined(x), axis=axis))


@op
def rfft(x, axis):
    if x.size == 0:
        return np.zeros(x.shape[:axis] + (x.shape[axis] // 2 + 1,) + x.shape[axis + 1:] + (2,))
    return parts(np.fft.rfft(x, axis=axis))


@op
def irfft(x, axis, size):
    return np.fft.irfft(joined(x), size, axis=axis)


def each(function, shape, *stacks):
    """`function` of every matrix; NaN where numpy finds no result."""
    y = np.full(stacks[0].shape[:-2] + tuple(shape), np.nan)
    for at in np.ndindex(y.shape[:stacks[0].ndim - 2]):
        try:
            y[at] = function(*(stack[at] for stack in stacks))
        except np.linalg.LinAlgError:
            pass
    return y


def symmetric(a):
    return (a + a.T) / 2


@op
def cholesky(a):
    def factor(a):
        y = np.linalg.cholesky(symmetric(a))
        return np.full_like(y, np.nan) if np.isnan(y).any() else y

    return np.tril(each(factor, a.shape[-2:], a))


@op
def solve(a, b):
    return each(np.linalg.solve, b.shape[-2:], a, b)


@op
def triangular_solve(a, b, lower, transposed, unit):
    def substitute(a, b):
        a = np.tril(a) if lower else np.triu(a)
        a = a.T if transposed else a
        x = b.copy()
        rows = range(len(a)) if lower != transposed else reversed(range(len(a)))
        for i in rows:
            others = np.arange(len(a)) != i
            x[i] -= a[i, others & (a[i] != 0)] @ x[others & (a[i] != 0)]
            x[i] = x[i] if unit else x[i] / a[i, i]
        return x

    return each(substitute, b.shape[-2:], a, b)


@op
def det(a):
    return np.linalg.det(a)


@op
def slogdet(a):
    return np.stack(np.linalg.slogdet(a), axis=-1)


def sign_of_largest(v, axis):
    """Of each vector, the sign of the component of the largest absolute value."""
    return np.sign(np.take_along_axis(v, np.abs(v).argmax(axis, keepdims=True), axis))


@op
def eigh(a):
    def factors(a):
        values, vectors = np.linalg.eigh(symmetric(a))
        return np.vstack([values, vectors * sign_of_largest(vectors, 0) if len(a) else vectors])

    return each(factors, (a.shape[-2] + 1, a.shape[-1]), a)


@op
def svd(a):
    def factors(a):
        u, s, v = np.linalg.svd(a, full_matrices=False)
        if s.size:
            sign = sign_of_largest(v, 1)
            u, v = u * sign.T, v * sign
        return np.hstack([u.T, s[:, None], v])

    m, n = a.shape[-2:]
    return each(factors, (min(m, n), m + 1 + n), a)


@op
def lu(a):
    def factors(a):
        a, rows = a.copy(), np.arange(len(a), dtype=np.float64)
        for k in range(len(a)):
            pivot = k + int(np.abs(a[k:, k]).argmax())
            a[[k, pivot]], rows[[k, pivot]] = a[[pivot, k]], rows[[pivot, k]]
            if a[k, k] != 0:
                a[k + 1:, k] /= a[k, k]
                a[k + 1:, k + 1:] -= np.outer(a[k + 1:, k], a[k, k + 1:])
        return np.vstack([rows, a])

    return each(factors, (a.shape[-2] + 1, a.shape[-1]), a)


@op
def qr(a):
    def factors(a):
        q, r = np.linalg.qr(a)
        sign = np.where(np.diagonal(r) < 0, -1.0, 1.0)
        return np.hstack([(q * sign).T, r * sign[:, None]])

    m, n = a.shape[-2:]
    return each(factors, (min(m, n), m + n), a)

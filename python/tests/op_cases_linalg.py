"""Cases of factors of matrices: lu and qr. Expected values come from NumPy in float64, rounded once to the
output's type."""
import numpy as np

from op_cases import Cases, as_type, main, to_double


def packed_lu(a):
    """Row exchanges and both factors of a matrix, as the op packs them."""
    n = a.shape[-1]
    a, rows = a.copy(), np.arange(n)
    for k in range(n):
        pivot = k + int(np.abs(a[k:, k]).argmax())
        a[[k, pivot]], rows[[k, pivot]] = a[[pivot, k]], rows[[pivot, k]]
        a[k + 1:, k] /= a[k, k]
        a[k + 1:, k + 1:] -= np.outer(a[k + 1:, k], a[k, k + 1:])
    return np.concatenate([rows[None], a])


def packed_qr(a):
    q, r = np.linalg.qr(a)
    sign = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
    return np.concatenate([np.swapaxes(q * sign[..., None, :], -1, -2), r * sign[..., None]], -1)


def each(function, a, shape):
    if a.size == 0:
        return np.zeros(shape)
    return np.stack([function(matrix) for matrix in a.reshape((-1,) + a.shape[-2:])]).reshape(shape)


def generate(cases: Cases):
    rng = cases.rng

    def pick(values):
        return values[int(rng.integers(len(values)))]

    for n in [1, 3, 5] if cases.small else [0, 1, 2, 4, 7, 16, 17, 33, 70]:
        dtype, lead = pick(["f32", "f64"]), pick([[], [2], [2, 2]])
        tolerance = (1e-4, 1e-4) if dtype == "f32" else (1e-10, 1e-10)
        # Pivots differ clearly: rows of a matrix with a large diagonal, in another order.
        a = rng.uniform(-1, 1, lead + [n, n]) + (n + 2) * np.eye(n) * rng.choice([-1, 1])
        a = as_type(a[..., rng.permutation(n), :], dtype)
        cases.add("lu", [a], as_type(each(packed_lu, to_double(a), lead + [n + 1, n]), dtype), None, tolerance)
        for m in {max(n, 1), n + 3, max(n - 2, 1)}:
            k = min(m, n)
            a = rng.uniform(-1, 1, lead + [m, n]) + 3 * np.eye(m, n) * rng.choice([-1, 1])
            a = as_type(a, dtype)
            y = packed_qr(to_double(a)).reshape(lead + [k, m + n])
            cases.add("qr", [a], as_type(y, dtype), None, (10 * tolerance[0], tolerance[1]))


if __name__ == "__main__":
    main(generate, __doc__)

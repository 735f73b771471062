"""Quantiles, covariances, histograms, interpolation and distances."""

from .composed import _composed, _run
from .operands import _as_real, _like, _operand, _public, common


def _quantile(name, x, q, axis, keep_dims, method, ignore_nan):
    x = _as_real(_like(x))
    if method not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise ValueError(f"{name}: method={method!r} is none of 'linear', 'lower', 'higher', 'nearest' and 'midpoint'")
    is_one = not hasattr(q, "__len__") or getattr(q, "ndim", 1) == 0
    several = (float(q),) if is_one else tuple(float(each) for each in q)
    return _run("quantile", (x, several, is_one, axis, keep_dims, method, ignore_nan),
                ("x", "q", "is_one", "axis", "keep_dims", "method", "ignore_nan"))


@_public
def quantile(x, q, axis=None, keep_dims=False, method="linear"):
    """numpy.quantile along one axis, several, or all (None): q in [0, 1], or several of them, along a new first axis.
    method: "linear", "lower", "higher", "nearest" or "midpoint" between two elements. A NaN makes it NaN."""
    return _quantile("quantile", x, q, axis, keep_dims, method, False)


@_public
def nanquantile(x, q, axis=None, keep_dims=False, method="linear"):
    """quantile of the elements that are no NaN."""
    return _quantile("nanquantile", x, q, axis, keep_dims, method, True)


@_public
def median(x, axis=None, keep_dims=False):
    """numpy.median: of an even number of elements the mean of the two in the middle. torch's, the lower one of them, is
    quantile(x, 0.5, axis, method="lower")."""
    return _quantile("median", x, 0.5, axis, keep_dims, "linear", False)


@_public
def nanmedian(x, axis=None, keep_dims=False):
    """median of the elements that are no NaN."""
    return _quantile("nanmedian", x, 0.5, axis, keep_dims, "linear", True)


@_composed
def nansum(x, axis=None, keep_dims=False):
    """The sum of the elements that are no NaN."""
    return _as_real(_like(x)), axis, keep_dims


@_composed
def nanmean(x, axis=None, keep_dims=False):
    """The mean of the elements that are no NaN; NaN where there are none."""
    return _as_real(_like(x)), axis, keep_dims


@_composed
def cov(x, correction=1):
    """[V, V]: covariances of the rows of x over its columns, divided by the number of columns less `correction`."""
    return _as_real(_like(x)), correction


@_composed
def corrcoef(x):
    """[V, V]: correlations of the rows of x over its columns."""
    return (_as_real(_like(x)),)


@_public
def histogram(x, bins=10, range=None, weights=None, density=False):
    """(counts, edges): how many elements lie in each of `bins` equally wide bins, from the least to the largest element or
    in `range`, or in those between given edges: numpy.histogram. With `density`, counts by their sum and the bin's
    width."""
    x = _as_real(_like(x))
    low, high = (0.0, 0.0) if range is None else map(float, range)
    if range is not None and low == high:
        low, high = low - 0.5, high + 0.5
    bins = _operand(bins)
    edges = None if isinstance(bins, int) else common(x, bins)[1]
    count = bins if edges is None else 1
    weights = None if weights is None else _like(weights)
    return _run("histogram", (x, count, edges, low, high, weights, density),
                ("x", "bins", "edges", "low", "high", "weights", "density"))


@_composed
def interp(x, xs, ys, left=None, right=None):
    """The line through the points (xs, ys) at x: numpy.interp. xs ascends; left and right of it are `left` and `right`, or
    the first and the last of ys."""
    x = _as_real(_like(x))
    return x, common(x, xs)[1], common(x, ys)[1], left, right


@_composed
def trapezoid(y, x=None, step=1.0, axis=-1):
    """The integral along an axis by the trapezoidal rule, of places x or `step` (numpy's dx) apart."""
    y = _as_real(_like(y))
    return y, None if x is None else common(y, x)[1], step, axis


@_composed
def cdist(a, b, p=2.0):
    """[.., P, R]: p-norms of the differences of the rows of a [.., P, M] and b [.., R, M]."""
    a, b = common(_as_real(_like(a)), b)
    return a, b, p


@_composed
def cosine_similarity(a, b, axis=-1, eps=1e-8):
    """sum(a b) / (max(|a|, eps) max(|b|, eps)) along an axis."""
    a, b = common(_as_real(_like(a)), b)
    return a, b, axis, eps

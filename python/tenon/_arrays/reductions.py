"""Functions along axes: sums, extremes, sorts, statistics."""

from .composed import _run
from .operands import _as_real, _axes, _axis_of, _cast, _like, _ops, _public, functions
from .shaping import flatten, reshape


def _no_out(name, out):
    if out is not None:
        raise TypeError(f"{name}: results are new arrays: no out=")


def _reduction(name):
    op = _ops[name]

    def reduce(x, axis=None, keep_dims=False, *, dtype=None, out=None):
        _no_out(name, out)
        x = _like(x)
        if dtype is not None:
            x = _cast(x, dtype)
        elif name == "mean":
            x = _as_real(x)
        elif name in ("any", "all") and x.dtype != "bool":
            x = x != 0
        if x.dtype == "bool" and name in _OF_BOOLEANS:
            if 0 in x.shape:  # where numbers are refused, too
                return _cast(reduce(_cast(x, "u8"), axis, keep_dims), "bool")
            return _OF_BOOLEANS[name](x, axes=_axes(x, axis), keep_dims=keep_dims)
        return op(x, axes=_axes(x, axis), keep_dims=keep_dims)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"`{name}` over one axis, several, or all (None), of x as `dtype` where that is given."
    return reduce


_OF_BOOLEANS = {"max": _ops["any"], "min": _ops["all"]}

for _name in ("sum", "mean", "prod", "max", "min", "any", "all"):
    functions[_name] = _reduction(_name)


def _refuse_numpys(name, given, known):
    """TypeError for words that numpy's functions give to methods, so that they find another way."""
    for word in ("kind", "order", "stable", "out", "dtype"):
        if word in given and word not in known:
            raise TypeError(f"{name}() got an unexpected keyword argument {word!r}")


_OF_BOOLEANS_AS_BYTES = ("sort", "argsort", "cummax", "cummin")


def _along(name):
    op = _ops[name]

    def along(x, axis=-1, *more, **attributes):
        _refuse_numpys(name, attributes, op.attributes)
        x = _like(x)
        if axis is None:  # all elements, in order
            x, axis = flatten(x), 0
        if x.dtype == "bool" and name in _OF_BOOLEANS_AS_BYTES:
            made = along(_cast(x, "u8"), axis, *more, **attributes)
            return made if name == "argsort" else _cast(made, "bool")
        return op(x, axis, *more, **attributes) if more else op(x, axis=axis, **attributes)

    along.__name__ = along.__qualname__ = name
    along.__doc__ = f"`{name}` along an axis, the last one by default, or of all elements in order (None): {op!r}."
    return along


for _name in ("softmax", "log_softmax", "cumsum", "cumprod", "cummax", "cummin", "sort", "argsort"):
    functions[_name] = _along(_name)


def _place(name):
    op = _ops[name]

    def place(x, axis=None, keep_dims=False, *, dtype="i32", out=None):
        _no_out(name, out)
        x = _like(x)
        if x.dtype == "bool":
            x = _cast(x, "u8")
        if axis is not None:
            return op(x, axis=axis, keep_dims=keep_dims, dtype=dtype)
        made = op(flatten(x), axis=0, dtype=dtype)
        return reshape(made, (1,) * x.ndim) if keep_dims else made

    place.__name__ = place.__qualname__ = name
    place.__doc__ = f"`{name}` along an axis, or of all elements in order (None), as numpy has it: {op!r}."
    return place


for _name in ("argmax", "argmin"):
    functions[_name] = _place(_name)


def _reduced(name, given_name, x, axis, keep_dims, *more):
    """What a builder of the library reduces along axes; to it, no axes are all of them."""
    axes = tuple(_axis_of(x, one, given_name) for one in _axes(x, axis))
    if not axes and x.ndim:  # none: each element by itself
        x, axes, keep_dims = x[..., None], (x.ndim,), False
    return _run(name, (x, axes, *more, keep_dims), ("x", "axis", *("correction" for _ in more), "keep_dims"))


@_public
def logsumexp(x, axis=None, keep_dims=False):
    """log(sum(exp(x))) without overflow."""
    return _reduced("logsumexp", "logsumexp", _as_real(_like(x)), axis, keep_dims)


@_public
def variance(x, axis=None, correction=1, keep_dims=False):
    """The mean of the squared distances from the mean, of n - correction; correction 0 is numpy's var."""
    return _reduced("variance", "variance", _as_real(_like(x)), axis, keep_dims, correction)


def _spread(name, given_name, x, axis, ddof, keep_dims, dtype, out):
    _no_out(given_name, out)
    x = _as_real(_like(x)) if dtype is None else _cast(_like(x), dtype)
    return _reduced(name, given_name, x, axis, keep_dims, ddof)


@_public
def var(x, axis=None, ddof=0, keep_dims=False, *, dtype=None, out=None):
    """The variance, as numpy has it: the squared distances from the mean by n - ddof. PyTorch's default is ddof=1."""
    return _spread("variance", "var", x, axis, ddof, keep_dims, dtype, out)


@_public
def std(x, axis=None, ddof=0, keep_dims=False, *, dtype=None, out=None):
    """The square root of var."""
    return _spread("standard_deviation", "std", x, axis, ddof, keep_dims, dtype, out)

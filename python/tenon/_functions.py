"""What tenon.ops has besides single ops, and the operators and methods of arrays and tensors.

Names such as `sum` and `slice` are Python's own in this file: `functions` has ours.
"""

from math import ceil as _ceil
from math import prod as _prod

from . import _tenon

_ops = _tenon.all_ops()
functions = {}

Tensor = _tenon.Tensor
Buffer = _tenon.Buffer


def _public(function):
    functions[function.__name__] = function
    return function


def _like(x):
    """x as something with a shape: numpy arrays and lists become buffers."""
    return x if isinstance(x, (Tensor, Buffer)) else Buffer(x)


def _axes(x, axis):
    """The axes of a reduction as ops take them: all for None."""
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)


def _reduction(name):
    op = _ops[name]

    def reduce(x, axis=None, keep_dims=False):
        x = _like(x)
        return op(x, axes=_axes(x, axis), keep_dims=keep_dims)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"`{name}` over one axis, several, or all (None)."
    return reduce


for _name in ("sum", "mean", "prod", "max", "min", "any", "all"):
    functions[_name] = _reduction(_name)


def _along(name):
    op = _ops[name]

    def along(x, axis=-1, **attributes):
        return op(_like(x), axis=axis, **attributes)

    along.__name__ = along.__qualname__ = name
    along.__doc__ = f"`{name}` along an axis, the last one by default: {op!r}."
    return along


for _name in ("softmax", "log_softmax", "cumsum", "cumprod", "cummax", "cummin", "sort", "argsort", "argmax",
              "argmin"):
    functions[_name] = _along(_name)


def _sizes(dims, more):
    """Sizes that are given as a tuple or one after the other: numbers, and names of those that are not known."""
    given = (dims, *more) if more or isinstance(dims, (int, str)) else dims
    return tuple(int(size) if hasattr(size, "__index__") else size for size in given)


@_public
def reshape(x, dims, *more):
    """The same elements under other sizes, a tuple or one after the other, of which one may be -1; or under those of
    another array."""
    x = _like(x)
    if isinstance(dims, (Tensor, Buffer)):
        return _ops["reshape"](x, dims)
    dims = _sizes(dims, more)
    if -1 in dims:
        known = [d for d in x.shape if not isinstance(d, int)] + [d for d in dims if not isinstance(d, int)]
        if known:
            raise ValueError(f"reshape: -1 among sizes that are not known: {x.type!r} to {dims}")
        rest = _prod(d for d in dims if d != -1)
        dims = tuple(_prod(x.shape) // rest if d == -1 and rest else d for d in dims)
    return _ops["reshape"](x, dims=dims)


@_public
def broadcast_to(x, dims, *more):
    """x again and again along new axes in front and those of size 1: to these sizes, or to those of another array."""
    if isinstance(dims, (Tensor, Buffer)):
        return _ops["broadcast_to"](_like(x), dims)
    return _ops["broadcast_to"](_like(x), dims=_sizes(dims, more))


@_public
def permute(x, order, *more):
    """Axes in another order, a tuple or one after the other."""
    order = (order, *more) if more or isinstance(order, int) else order
    return _ops["permute"](_like(x), order=tuple(order))


@_public
def transpose(x, a=-2, b=-1):
    """Swaps two axes."""
    x = _like(x)
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return _ops["permute"](x, order=tuple(order))


@_public
def flatten(x, first=0, last=-1):
    """Merges axes first..last."""
    x = _like(x)
    first, last = first % x.ndim, last % x.ndim
    return _ops["merge_axes"](x, axis=first, count=last - first + 1)


@_public
def concat(arrays, axis=0):
    arrays = [_like(one) for one in arrays]
    return _ops["concat"](*arrays, axis=axis)


@_public
def stack(arrays, axis=0):
    """Arrays of one shape side by side along a new axis."""
    arrays = [_like(one) for one in arrays]
    axis = axis % (arrays[0].ndim + 1)
    return concat([unsqueeze(one, axis) for one in arrays], axis)


@_public
def unsqueeze(x, axis):
    """A new axis of size 1 before `axis`; negative ones count from the end of the result."""
    x = _like(x)
    return _ops["unsqueeze"](x, axis=axis % (x.ndim + 1))


@_public
def slice_axis(x, axis, begin, end=None, step=1):
    """Elements begin, begin + step, ... before `end` of one axis, as Python's slices count them."""
    x = _like(x)
    size = x.shape[axis]
    if isinstance(size, int):
        begin, end, step = slice(begin, end, step).indices(size)
        if step < 0 and end < 0:
            end = 2**63 - 1
    else:
        if (begin or 0) < 0 or (end or 0) < 0 or step < 0:
            raise IndexError(f"{x.type!r} counted from the end of axis {axis}, whose size is not known")
        end = 2**63 - 1 if end is None else end
    return _ops["slice"](x, axis=axis, begin=begin, end=end, step=step)


@_public
def index(x, at):
    """x[at]: integers, slices, None, Ellipsis, and at most one array of integers."""
    x = _like(x)
    at = at if isinstance(at, tuple) else (at,)
    taken = sum(1 for one in at if one is not None and one is not Ellipsis)
    if taken > x.ndim:
        raise IndexError(f"{taken} indices for {x.type!r}")
    dots = [i for i, one in enumerate(at) if one is Ellipsis]
    if len(dots) > 1:
        raise IndexError("more than one Ellipsis")
    if not dots:
        at = (*at, Ellipsis)
    position = dots[0] if dots else len(at) - 1
    at = at[:position] + (slice(None),) * (x.ndim - taken) + at[position + 1:]
    axis = 0
    for one in at:
        if one is None:
            x = unsqueeze(x, axis)
            axis += 1
        elif isinstance(one, slice):
            if one != slice(None):
                x = slice_axis(x, axis, one.start or 0 if (one.step or 1) > 0 else one.start, one.stop, one.step or 1)
            axis += 1
        elif isinstance(one, int) and not isinstance(one, bool):
            size = x.shape[axis]
            if isinstance(size, int):
                if not -size <= one < size:
                    raise IndexError(f"index {one} of axis {axis}, which has {size} elements")
                one %= size
            x = _ops["squeeze"](slice_axis(x, axis, one, one + 1), axis=axis)
        else:
            one = _like(one)
            if one.dtype == "bool":
                raise IndexError("a mask decides the result's size by its values: use where(), or arrays of numpy's")
            x = _ops["gather"](x, one, axis=axis)
            axis += one.ndim
    return x


@_public
def full(dims, value, dtype="f32"):
    """An array of one value."""
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    return _ops["full"](value=float(value), dims=dims, dtype=dtype)


@_public
def zeros(dims, dtype="f32"):
    return full(dims, 0, dtype)


@_public
def ones(dims, dtype="f32"):
    return full(dims, 1, dtype)


@_public
def arange(start, stop=None, step=1, dtype=None):
    """start, start + step, ... before stop; i64, or f32 where a number is not whole."""
    if stop is None:
        start, stop = 0, start
    if _all_whole(start, stop, step):
        size = len(range(start, stop, step))
        return _ops["iota"](size=size, start=start, step=step, dtype=dtype or "i64")
    size = max(_ceil((stop - start) / step), 0)
    return _ops["iota"](size=size, dtype=dtype or "f32") * float(step) + float(start)


def _all_whole(*numbers):
    return all(isinstance(one, int) for one in numbers)


@_public
def view_as_real(z):
    """f32[..., 2] of c64, in the same memory: real and imaginary parts."""
    return _ops["bitcast"](_of_type(z, "c64", "view_as_real"), dtype="f32")


@_public
def view_as_complex(x):
    """c64 of f32[..., 2], in the same memory where that is dense."""
    return _ops["bitcast"](_of_type(x, "f32", "view_as_complex"), dtype="c64")


def _of_type(x, dtype, name):
    x = _like(x)
    if x.dtype != dtype:
        raise TypeError(f"{name}: {x.type!r} is not {dtype}")
    return x


@_public
def complex(re, im):
    """re + im i, of two arrays of f32."""
    return view_as_complex(stack([re, im], -1))


@_public
def polar(magnitude, angle):
    """magnitude * e^(i angle)."""
    magnitude, angle = _like(magnitude), _like(angle)
    return complex(magnitude * _ops["cos"](angle), magnitude * _ops["sin"](angle))


@_public
def real(x):
    """The real parts; x itself if it is real."""
    x = _like(x)
    return view_as_real(x)[..., 0] if x.dtype == "c64" else x


@_public
def imag(x):
    """The imaginary parts."""
    return view_as_real(_of_type(x, "c64", "imag"))[..., 1]


@_public
def conj(x):
    x = _like(x)
    return complex(real(x), -imag(x)) if x.dtype == "c64" else x


@_public
def angle(x):
    """The angle in [-pi, pi]; of real numbers 0 or pi."""
    x = _like(x)
    return _ops["atan2"](imag(x), real(x)) if x.dtype == "c64" else _ops["atan2"](0.0, x)


def _transform_axis(dtype, axis):
    """Without an axis: the last one for complex numbers, as numpy has it, and 0 for pairs, as the ops have it."""
    return axis if axis is not None else -1 if dtype == "c64" else 0


@_public
def fft(x, axis=None, inverse=False):
    """The Fourier transform along an axis: of c64, or of pairs, f32[..., 2] or f64[..., 2]."""
    x = _like(x)
    return _ops["fft"](x, axis=_transform_axis(x.dtype, axis), inverse=inverse)


@_public
def ifft(x, axis=None):
    return fft(x, axis, True)


@_public
def rfft(x, axis=None, dtype=None):
    """The transform of real numbers, half of which says all: as pairs, or as complex numbers, `dtype="c64"`."""
    made = _ops["rfft"](_like(x), axis=_transform_axis(dtype, axis))
    return view_as_complex(made) if dtype == "c64" else made


@_public
def irfft(x, size, axis=None):
    """`size` real numbers of the half of their transform."""
    x = _like(x)
    return _ops["irfft"](x, axis=_transform_axis(x.dtype, axis), size=size)


@_public
def linear(x, w, bias=None, residual=None):
    """x times the transpose of w, of [N, K]: y[..., n] = sum_k x[..., k] * w[n, k] + bias[n] + residual[..., n]."""
    return _ops["linear"](_like(x), _like(w), bias=bias, residual=residual)


@_public
def gelu(x, approximate=False):
    return _ops["gelu_tanh" if approximate else "gelu"](_like(x))


@_public
def swiglu(x, y):
    """silu(x) * y."""
    return _ops["silu"](x) * y


@_public
def clip(x, low, high):
    return _ops["clamp"](_like(x), min=float(low), max=float(high))


@_public
def variance(x, axis=None, correction=1, keep_dims=False):
    """The mean of the squared distances from the mean, of n - correction; correction 0 is numpy's var."""
    x = _like(x)
    axes = _axes(x, axis)
    difference = x - functions["mean"](x, axes, True)
    squares = functions["mean"](difference * difference, axes, keep_dims)
    if correction == 0:
        return squares
    sizes = [x.shape[a] for a in axes]
    if not all(isinstance(size, int) for size in sizes):
        raise ValueError(f"variance: correction {correction} over a size that is not known, of {x.type!r}")
    count = _prod(sizes)
    return squares * (count / (count - correction) if count != correction else float("nan"))


def install():
    """Methods of arrays and tensors, the functions of the same names, and the operators that the compiled part lacks."""

    def reflected(op):
        return lambda a, b: op(b, a)

    methods = (
        "reshape permute transpose flatten unsqueeze sum mean prod max min any all softmax log_softmax cumsum sort "
        "argsort argmax argmin clip variance gelu conj angle"
    ).split()
    plain = "abs neg sign square sqrt rsqrt exp log sin cos tanh sigmoid relu silu floor ceil round squeeze".split()
    for kind in (Tensor, Buffer):
        for name in ("and", "or", "xor"):
            function = _logical(f"bitwise_{name}")
            setattr(kind, f"__{name}__", function)
            setattr(kind, f"__r{name}__", reflected(function))
        kind.__hash__ = object.__hash__
        kind.__invert__ = lambda self: _ops["logical_not" if self.dtype == "bool" else "bitwise_not"](self)
        kind.__getitem__ = index
        kind.__array_ufunc__ = None  # numpy leaves `ndarray + x` to us
        kind.T = property(transpose)
        kind.real = property(real)
        kind.imag = property(imag)
        for name in methods:
            setattr(kind, name, functions[name])
        for name in plain:
            setattr(kind, name, (lambda op: lambda self, **attributes: op(self, **attributes))(_ops[name]))
    Buffer.__contains__ = lambda self, value: (self == value).any().item()
    Buffer.__index__ = _as_index
    Buffer.__format__ = lambda self, spec: format(self.item() if spec else str(self), spec)
    Buffer.tolist = lambda self: self.numpy().tolist()
    Buffer._repr_html_ = _tenon.HostBuffer._repr_html_ = _array_html
    Tensor.cast = lambda self, dtype: _ops["cast"](self, dtype=dtype)
    Tensor.astype = Tensor.cast


def _as_index(array):
    value = array.item()
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{array.type!r} is no integer")
    return value


def _array_html(array):
    from .pictures import array_html  # and numpy, which not every program needs

    return array_html(array)


def _logical(op):
    of_booleans = _ops[{"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}[op]]
    of_bits = _ops[op]
    return lambda a, b: (of_booleans if _like(a).dtype == "bool" else of_bits)(a, b)

"""Complex numbers and Fourier transforms."""

from .making import zeros_like
from .operands import _axis_of, _like, _ops, _public, functions
from .shaping import slice_axis, stack


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
    """The imaginary parts; 0 if x is real."""
    x = _like(x)
    return view_as_real(x)[..., 1] if x.dtype == "c64" else zeros_like(x)


@_public
def conj(x):
    """Complex numbers with the sign of their imaginary part changed; real ones as they are."""
    x = _like(x)
    return complex(real(x), -imag(x)) if x.dtype == "c64" else x


@_public
def angle(x):
    """The angle in [-pi, pi]; of real numbers 0 or pi."""
    x = _like(x)
    return _ops["atan2"](imag(x), real(x)) if x.dtype == "c64" else _ops["atan2"](0.0, x)


def _transform_axis(x, axis):
    """Without an axis the last one, of pairs the last before these, as in C++."""
    return axis if axis is not None else -1 if x.dtype == "c64" else -2


@_public
def fft(x, axis=None, inverse=False):
    """The Fourier transform along an axis: of c64, or of pairs, f32[..., 2] or f64[..., 2]."""
    x = _like(x)
    return _ops["fft"](x, axis=_transform_axis(x, axis), inverse=inverse)


@_public
def ifft(x, axis=None):
    """The inverse of fft."""
    return fft(x, axis, True)


@_public
def rfft(x, axis=None, dtype=None):
    """The transform of real numbers, half of which says all: as pairs, or as complex numbers, `dtype="c64"`."""
    made = _ops["rfft"](_like(x), axis=-1 if axis is None else axis)
    return view_as_complex(made) if dtype == "c64" else made


@_public
def irfft(x, size=None, axis=None):
    """`size` real numbers of the half of their transform, 2 (bins - 1) without it. Where the
    number of bins is known, further ones are left out, and 0 stands for those that lack."""
    x = _like(x)
    axis = _axis_of(x, _transform_axis(x, axis), "irfft")
    bins = x.shape[axis]
    if size is None:
        if not isinstance(bins, int):
            raise ValueError(f"irfft: the bins of {x.type!r} along axis {axis} are known in a run only: give a size")
        size = 2 * (bins - 1)
    if isinstance(bins, int) and bins and size > 0:
        x = _fitted(x, axis, bins, size // 2 + 1)
    return _ops["irfft"](x, axis=axis, size=size)


def _fitted(x, axis, size, wanted):
    """x with `wanted` elements along an axis: the first ones, or zeros behind all."""
    if wanted <= size:
        return x if wanted == size else slice_axis(x, axis, 0, wanted)
    if x.dtype == "c64":
        return view_as_complex(_fitted(view_as_real(x), axis, size, wanted))
    after = [wanted - size if at == axis else 0 for at in range(x.ndim)]
    return _ops["pad"](x, before=[0] * x.ndim, after=after, value=0.0)

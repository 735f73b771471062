"""Complex numbers and Fourier transforms."""

import numpy as np

from ..importing import sizes as sz
from ..importing.shaping import broadcast_shape, fitted, shaped
from ..importing.types import check_computed
from .in_place import puts
from .node import op, refuse
from .shapes import permuted, rolled

refuse("export with run_decompositions({})", "istft.default")

# A transform of N elements is divided by N to this power, forwards and back.
_NORMS = {None: (0, 1), "backward": (0, 1), "ortho": (0.5, 0.5), "forward": (1, 0)}
_CODES = (0, 0.5, 1)  # of torch's fft_norm_mode


# Parts


@op("view_as_real.default", view=True)
def view_as_real(n, self):
    return shaped(n.b.view_as_real(self), (*self.shape, 2))


@op("view_as_complex.default", view=True)
def view_as_complex(n, self):
    return shaped(n.b.view_as_complex(self), self.shape[:-1])


@op("real.default", "imag.default", view=True)
def part(n, self):
    return shaped((n.b.real if ".real." in n.op else n.b.imag)(self), self.shape)


@puts("view_as_real.default")
def _put_real(n, base, new, output):
    return view_as_complex(n, new)


@puts("view_as_complex.default")
def _put_complex(n, base, new, output):
    return view_as_real(n, new)


@puts("real.default")
def _put_real_part(n, base, new, output):
    return shaped(n.b.complex(new, n.b.imag(base)), base.shape) if base.dtype == "c64" else new


@puts("imag.default")
def _put_imaginary_part(n, base, new, output):
    return shaped(n.b.complex(n.b.real(base), new), base.shape)


@op("_conj_physical.default", "conj_physical.default")
@op("_conj.default", "conj.default", view=True)
def conj(n, self):
    return shaped(n.b.conj(self), self.shape)


@op("adjoint.default", "mH.default", "matrix_H.default", view=True)
def adjoint(n, self):
    """The last two axes swapped, and complex numbers conjugated."""
    swapped = permuted(n, self, [*range(self.rank - 2), self.rank - 1, self.rank - 2]) if self.rank > 1 else self
    return conj(n, swapped) if self.dtype == "c64" else swapped


@puts("adjoint.default", "mH.default", "matrix_H.default")
def _put_adjoint(n, base, new, output):
    return adjoint(n, new)


@op("resolve_conj.default", "resolve_neg.default")
def resolved(n, self):
    return self


@op("angle.default")
def angle(n, self):
    return shaped(n.b.angle(self if self.dtype == "c64" else n.cast(self, n.dtype)), self.shape)


@op("complex.default")
def complex_(n, real, imag):
    return _of_two(n, n.b.complex, real, imag)


@op("polar.default")
def polar(n, abs, angle):
    return _of_two(n, n.b.polar, abs, angle)


def _of_two(n, function, a, b):
    shape = broadcast_shape(a, b)
    if shape is None:
        raise n.not_known(f"the sizes of {a!r} and {b!r}: give `shapes`")
    return shaped(function(n.b.broadcast(a, shape), n.b.broadcast(b, shape)), shape)


# Transforms


def _scaled(n, x, axes, power):
    """x times the number of elements along these axes, to the power."""
    if power == 0:
        return x
    count = sz.product(x.shape[axis] for axis in axes)
    if isinstance(count, int):
        factor = n.b.number(float(count) ** power if count else 0.0, "f32")
    else:
        factor = n.b.pow(n.value(count, "f32"), n.b.number(power, "f32"))
    return shaped(n.b.mul(x, factor), x.shape)


def _all_axes(n, x, axes, inverse, power):
    """c64 to c64; a transform back already divides by the number of elements."""
    made = n.cast(x, "c64")
    for axis in axes:
        made = shaped(n.b.fft(made, axis=axis, inverse=inverse), x.shape)
    return _scaled(n, made, axes, inverse - power)


def _half(n, x, axes, power):
    """Real to the first half, along the last axis, of c64."""
    *others, last = axes
    if x.dtype != "f32":
        x = n.cast(x, "f32")
    size = n.known_size(x, last)
    made = n.b.rfft(x, axis=last, dtype="c64")
    shaped(made, (*x.shape[:last], size // 2 + 1, *x.shape[last + 1:]))
    for axis in others:
        made = shaped(n.b.fft(made, axis=axis), made.shape)
    if power == 0:
        return made
    made = _scaled(n, made, others, -power) if others else made
    return shaped(n.b.mul(made, n.b.number(float(size) ** -power, "f32")), made.shape)


def _of_half(n, x, axes, size, power):
    """The inverse, of `size` elements along the last axis."""
    *others, last = axes
    made = n.cast(x, "c64")
    for axis in others:
        made = shaped(n.b.fft(made, axis=axis, inverse=True), x.shape)
    made = n.b.irfft(fitted(n, made, last, size // 2 + 1), size, axis=last)
    shaped(made, (*x.shape[:last], size, *x.shape[last + 1:]))
    return _scaled(n, made, axes, 1 - power)


def _transform(n, x, axes, sizes, norm):
    n.words(norm, "norm", _NORMS)
    name = n.op.split(".")[1].removeprefix("fft_")
    is_inverse, is_half = name.startswith("i"), "rfft" in name
    power = _NORMS[norm][is_inverse]
    if not axes:
        raise n.malformed(f"a transform of {x!r} along no axes")
    last_size = None
    for axis, size in zip(axes, sizes or [None] * len(axes)):
        if size is not None and size != -1:
            if is_half and is_inverse and axis == axes[-1]:
                last_size = n.integer(size, "s")
            else:
                x = fitted(n, x, axis, n.integer(size, "s"))
    if not is_half:
        return _all_axes(n, x, axes, is_inverse, power)
    if not is_inverse:
        return _half(n, x, axes, power)
    return _of_half(n, x, axes, last_size or 2 * (n.known_size(x, axes[-1]) - 1), power)


@op("fft_fft.default", "fft_ifft.default", "fft_rfft.default", "fft_irfft.default")
def transform(n, self, n_=None, dim=-1, norm=None):
    return _transform(n, self, [n.axis(dim, self.rank, "dim")], [n_], norm)


@op("fft_hfft.default")
def hermitian(n, self, n_=None, dim=-1, norm=None):
    """Of half of a Hermitian signal: real, as the inverse of its conjugate is, but for the factor."""
    n.words(norm, "norm", _NORMS)
    axis = n.axis(dim, self.rank, "dim")
    size = 2 * (n.known_size(self, axis) - 1) if n_ is None else n.integer(n_, "n")
    half = n.cast(self, "c64")
    return _of_half(n, shaped(n.b.conj(half), half.shape), [axis], size, _NORMS[norm][False])


@op("fft_ihfft.default")
def to_hermitian(n, self, n_=None, dim=-1, norm=None):
    n.words(norm, "norm", _NORMS)
    axis = n.axis(dim, self.rank, "dim")
    x = self if n_ is None else fitted(n, self, axis, n.integer(n_, "n"))
    made = _half(n, x, [axis], _NORMS[norm][True])
    return shaped(n.b.conj(made), made.shape)


@op("fft_fft2.default", "fft_ifft2.default", "fft_rfft2.default", "fft_irfft2.default")
def transform_2(n, self, s=None, dim=(-2, -1), norm=None):
    return _transform(n, self, n.axes(list(dim), self.rank), s, norm)


@op("fft_fftn.default", "fft_ifftn.default", "fft_rfftn.default", "fft_irfftn.default")
def transform_n(n, self, s=None, dim=None, norm=None):
    if dim is None and s is not None:
        dim = list(range(-len(s), 0))
    return _transform(n, self, n.listed_axes(dim, self.rank), s, norm)


def _power(n, normalization):
    if normalization not in range(len(_CODES)):
        raise n.malformed(f"argument 'normalization': {normalization!r}")
    return _CODES[normalization]


@op("_fft_c2c.default")
def c2c(n, self, dim, normalization, forward):
    return _all_axes(n, self, n.axes(dim, self.rank), not forward, _power(n, normalization))


@op("_fft_r2c.default")
def r2c(n, self, dim, normalization, onesided):
    axes, power = n.axes(dim, self.rank), _power(n, normalization)
    return _half(n, self, axes, power) if onesided else _all_axes(n, self, axes, False, power)


@op("_fft_c2r.default")
def c2r(n, self, dim, normalization, last_dim_size):
    size = n.integer(last_dim_size, "last_dim_size")
    return _of_half(n, self, n.axes(dim, self.rank), size, _power(n, normalization))


@op("fft_fftshift.default", "fft_ifftshift.default")
def shift(n, self, dim=None):
    for axis in n.axes(dim, self.rank):
        size = n.known_size(self, axis)
        self = rolled(n, self, axis, size // 2 if ".fft_fftshift" in n.op else -(size // 2))
    return self


@op("fft_fftfreq.default", "fft_rfftfreq.default")
def frequencies(n, n_, d=1.0, dtype=None, layout=None, device=None, pin_memory=None):
    check_computed(n.where, [n.integer(n_, "n")])
    made = (np.fft.rfftfreq if "rfftfreq" in n.op else np.fft.fftfreq)(n_, d)
    return n.cast(n.b.known(made), n.dtype)


@op("hann_window.default", "hann_window.periodic", "hamming_window.default", "hamming_window.periodic")
def window(n, window_length, periodic=True, dtype=None, layout=None, device=None, pin_memory=None):
    size = n.integer(window_length, "window_length")
    check_computed(n.where, [size])
    middle = 0.5 if "hann" in n.op else 0.54
    places = np.arange(size) / max(size if periodic else size - 1, 1)
    made = middle - (1 - middle) * np.cos(2 * np.pi * places) if size != 1 else np.ones(1)
    return n.cast(n.b.known(made), n.dtype)


@op("stft.default")
def stft(n, self, n_fft, hop_length=None, win_length=None, window=None, normalized=False, onesided=None,
         return_complex=None, align_to_window=None):
    if not return_complex:
        raise n.error("results that are not complex", "return_complex")
    size = n.integer(n_fft, "n_fft")
    hop = n.integer(hop_length, "hop_length") if hop_length is not None else size // 4
    width = n.integer(win_length, "win_length") if win_length is not None else size
    total = n.known_size(self, self.rank - 1)
    if align_to_window or not (0 < width <= size <= total and hop > 0):
        raise n.malformed(f"frames of {size}, windows of {width}, in steps of {hop} of {self!r}")
    count = (total - size) // hop + 1
    check_computed(n.where, [count, size])
    places = n.b.known(hop * np.arange(count)[:, None] + np.arange(size))
    frames = shaped(n.b.gather(self, places, axis=self.rank - 1), (*self.shape[:-1], count, size))
    if window is None and width < size:
        window = n.b.known(np.ones(width, np.float32))
    if window is not None:
        left = (size - width) // 2
        padded = n.b.pad(window, before=(left,), after=(size - width - left,)) if width < size else window
        frames = shaped(n.b.mul(frames, padded), frames.shape)
    axes, power = [frames.rank - 1], 0.5 if normalized else 0
    is_half = self.dtype != "c64" if onesided is None else onesided
    made = _half(n, frames, axes, power) if is_half else _all_axes(n, frames, axes, False, power)
    order = (*range(made.rank - 2), made.rank - 1, made.rank - 2)
    return shaped(n.b.permute(made, order), tuple(made.shape[i] for i in order))

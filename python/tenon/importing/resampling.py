"""Images of other sizes."""

import math

import numpy as np

from . import sizes as sz
from .errors import NotKnown
from .shaping import repeated, shaped
from .types import FLOATS, NUMPY, check_computed


class Resampling:
    """One Resize: axes, and for each its scale and its size."""

    def __init__(self, n, x, axes, scales, sizes, mode, places, rounding="floor", cubic=-0.75, exclude=False,
                 antialias=False, ratio="stretch", roi=None, filler=0.0, multiplies=False):
        """`multiplies`: places are multiplied by what a scale is the reciprocal of, as PyTorch does. `rounding`
        "outwards": up along axes that become shorter, down along others. `places` "half_pixel_by_corners": half pixels
        by the scale that aligns the corners, which is what PyTorch does where it smooths."""
        self.multiplies = multiplies
        self.n, self.x, self.mode, self.places, self.rounding = n, x, mode, places, rounding
        self.cubic, self.exclude, self.ratio, self.roi, self.filler = cubic, exclude, ratio, roi, filler
        self.antialias = antialias and mode != "nearest"
        have = [x.shape[axis] for axis in axes]
        any_size = roi is None and ratio == "stretch"  # an axis of no elements may keep them, too
        kept = [i for i, size in enumerate(have) if (any_size or not isinstance(size, int)) and
                (scales[i] == 1 or multiplies and mode == "linear" and math.floor(size * scales[i]) == size
                 if scales is not None else sizes[i] == size)]
        axes, have, scales, sizes = ([one[i] for i in range(len(have)) if i not in kept] if one is not None else None
                                     for one in (axes, have, scales, sizes))
        self.axes, self.repeats = axes, self._whole_factors(have, scales, sizes)
        if self.repeats:
            return
        have = [n.known_size(x, axis) for axis in axes]
        if scales is not None:
            if min(scales, default=1) <= 0 or not all(map(math.isfinite, scales)):
                raise n.malformed(f"scales {scales}")
            round_scale = float if self.multiplies else np.float32  # ONNX's scales are f32, and products of them, too
            sizes = [math.floor(round_scale(size) * round_scale(scale)) for size, scale in zip(have, scales)]
        else:
            sizes, scales = self._kept_ratio(have, sizes)
        if min(sizes, default=1) < 1 or math.prod(sizes) > 2**31 or any(size < 1 for size in have):
            raise n.malformed(f"sizes {sizes} for {x!r}")
        if places == "half_pixel_by_corners":
            self.places = "half_pixel"
            scales = [(size - 1) / (one - 1) if min(size, one) > 1 else math.inf for size, one in zip(sizes, have)]
        self.sizes, self.scales = sizes, scales

    def _whole_factors(self, have, scales, sizes):
        """For sizes that are not known: how often each element occurs, where each does so equally often."""
        floors = self.places == "asymmetric" and self.rounding in ("floor", "outwards")
        rounds = self.places in ("half_pixel", "pytorch_half_pixel") and self.rounding.startswith("round")
        if self.mode != "nearest" or not floors and not rounds or all(isinstance(one, int) for one in have):
            return None
        factors = scales or [sz.divide(size, one) if size != 0 else 0 for size, one in zip(sizes, have)]
        whole = all(isinstance(one, (int, float)) and one >= 1 and int(one) == one for one in factors)
        return [int(one) for one in factors] if whole else None

    def _repeated(self):
        made = self.x
        for axis, factor in zip(self.axes, self.repeats):
            made = repeated(self.n, made, axis, factor, inner=True)
        return made

    def _kept_ratio(self, have, sizes):
        if any(not isinstance(size, int) for size in sizes):
            raise NotKnown(self.n.where, f"sizes {sizes}: give `shapes`", self.x.inputs)
        if self.ratio != "stretch":
            pick = min if self.ratio == "not_larger" else max
            scale = pick(size / one for size, one in zip(sizes, have))
            return [math.floor(scale * one + 0.5) for one in have], [scale] * len(have)
        return sizes, [size / one for size, one in zip(sizes, have)]

    def run(self):
        n, x = self.n, self.x
        if self.repeats:
            return self._repeated()
        moved = [i for i, axis in enumerate(self.axes) if self.roi or self.sizes[i] != x.shape[axis]
                 or self.scales[i] != 1]
        if not moved:
            return x
        if self._is_plain(moved):
            return self._by_op(moved)
        dtype = x.dtype
        wide = x if dtype in FLOATS else n.b.cast(x, "f32")
        outside = [None] * x.rank
        for i in moved:
            wide, outside[self.axes[i]] = self._along(wide, i)
        made = self._extrapolated(wide, outside)
        return made if dtype in FLOATS else n.b.cast(n.b.round(made) if self.mode != "nearest" else made, dtype)

    def _is_plain(self, moved):
        """Whether the op `resize` computes this: the same scale as the sizes', exactly."""
        plain = {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"}
        axes = [self.axes[i] for i in moved]
        fits = all(self.scales[i] * self.x.shape[self.axes[i]] == self.sizes[i] for i in moved) and \
            all(isinstance(size, int) for size in self.x.shape[min(axes):])  # the op names the sizes of all of these
        fits = fits and len({self._rounding(i) for i in moved}) == 1
        return (fits and self.places in plain and not self.antialias and self.x.dtype in FLOATS
                and not (self.exclude and self.mode == "cubic") and min(axes) >= self.x.rank - 3
                and (self.mode != "nearest" or all(map(self._is_exact, moved))))

    def _is_exact(self, i):
        """Whether rounding places to f32 changes none of the nearest elements: the op rounds nothing."""
        outputs, inputs = self.sizes[i], self.x.shape[self.axes[i]]
        at = self.n.arange(outputs).astype(np.float64)
        if self.places == "align_corners":
            return True
        exact = at * inputs / outputs if self.places == "asymmetric" else \
            ((2 * at + 1) * inputs - outputs) / (2 * outputs)
        return np.array_equal(self._nearest(self._position(i, inputs), i), self._nearest(exact, i))

    def _rounding(self, i):
        if self.rounding != "outwards":
            return self.rounding
        return "ceil" if self.scales[i] < 1 else "floor"

    def _nearest(self, places, i):
        last = self.x.shape[self.axes[i]] - 1
        return np.clip(_rounded(places.astype(np.float64), self._rounding(i)), 0, last).astype(np.int64)

    def _by_op(self, moved):
        n, x = self.n, self.x
        first = min(self.axes[i] for i in moved)
        wanted = dict(zip(self.axes, self.sizes))
        sizes = tuple(wanted.get(axis, x.shape[axis]) for axis in range(first, x.rank))
        made = n.b.resize(x, sizes=sizes, mode=self.mode, coordinates=self.places,
                          rounding=self._rounding(moved[0]), cubic_coefficient=self.cubic)
        return shaped(made, (*x.shape[:first], *sizes))

    def _position(self, i, inputs):
        """Where the elements of the result lie among the inputs, and which of them lie outside."""
        outputs, scale = self.sizes[i], self.scales[i]
        at = self.n.arange(outputs).astype(np.float64)
        if self.mode == "nearest":  # rounded as ONNX Runtime and PyTorch do: it decides which of two elements is taken
            kind = np.float64 if self.multiplies and self.x.dtype == "f64" else np.float32
            at, scale = at.astype(kind), kind(scale)
            if self.multiplies:
                factor = kind(1 / self.scales[i])
                return at * factor if self.places == "asymmetric" else (at + kind(0.5)) * factor - kind(0.5)
        if self.places == "asymmetric":
            return at / scale
        if self.places == "align_corners":
            length = scale * inputs
            return at * ((inputs - 1) / (length - 1) if length != 1 else 0)
        if self.places == "tf_half_pixel_for_nn":
            return (at + 0.5) / scale
        if self.places == "tf_crop_and_resize":
            first, last = self.roi[i], self.roi[i + len(self.axes)]
            if outputs == 1:
                return at + 0.5 * (first + last) * (inputs - 1)
            return first * (inputs - 1) + at * (last - first) * (inputs - 1) / (outputs - 1)
        if self.places == "pytorch_half_pixel" and outputs == 1:
            return at * 0
        places = (at + 0.5) / scale - 0.5
        if self.places == "half_pixel_symmetric":
            places += inputs / 2 * (1 - outputs / (scale * inputs))
        return places

    def _along(self, x, i):
        axis = self.axes[i]
        inputs = x.shape[axis]
        places = self._position(i, inputs)
        outside = (places < 0) | (places > inputs - 1) if self.roi else None
        if self.mode == "nearest":
            return self.n.b.gather(x, self.n.b.known(self._nearest(places, i)), axis=axis), outside
        weights = self._weights(places, self.scales[i], inputs)
        if weights.size > 2**26:
            raise self.n.error(f"{inputs} to {len(places)} elements with these attributes", "mode")
        last = [axis if k == x.rank - 1 else x.rank - 1 if k == axis else k for k in range(x.rank)]
        made = self.n.b.matmul(self.n.b.permute(x, last), self.n.b.known(weights.T.astype(NUMPY[x.dtype])))
        return self.n.b.permute(made, last), outside

    def _weights(self, places, scale, inputs):
        """The share of each input, a column, in each result, a row."""
        scale = min(scale, 1.0) if self.antialias else 1.0
        reach = (1 if self.mode == "linear" else 2) / scale
        base = np.ceil(places) - 1
        check_computed(self.n.where, [len(places), math.ceil(2 * reach)])
        taps = np.arange(math.floor(-reach) + 1, 2 - (math.floor(-reach) + 1))
        at = (base[:, None] + taps).astype(np.int64)
        distance = np.abs(taps - (places - base)[:, None]) * scale
        share = np.clip(1 - distance, 0, 1) if self.mode == "linear" else _keys(distance, self.cubic)
        if self.antialias:
            share = share / share.sum(1, keepdims=True)
        if self.exclude:
            share = np.where((at >= 0) & (at < inputs), share, 0)
            share = share / share.sum(1, keepdims=True)
        weights = np.zeros((len(places), inputs))
        np.add.at(weights, (np.arange(len(places))[:, None], np.clip(at, 0, inputs - 1)), share)
        return weights

    def _extrapolated(self, x, outside):
        """With a region, what lies outside of the image has one value."""
        if self.roi is None:
            return x
        mask = np.zeros((1,) * x.rank, bool)
        for axis, one in enumerate(outside):
            if one is not None:
                form = [1] * x.rank
                form[axis] = len(one)
                mask = mask | one.reshape(form)
        return self.n.b.where(self.n.b.known(mask), self.n.b.number(self.filler, x.dtype), x)


def _rounded(places, rounding):
    if rounding == "floor":
        return np.floor(places)
    if rounding == "ceil":
        return np.ceil(places)
    return np.ceil(places - 0.5) if rounding == "round_prefer_floor" else np.floor(places + 0.5)


def _keys(distance, a):
    """The cubic of Keys."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))

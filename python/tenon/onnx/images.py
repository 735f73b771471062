"""Pools, resampling, boxes."""

import math

import numpy as np

from . import sizes as sz
from .errors import NotKnown
from .node import op
from .pointwise import shaped
from .products import Window, convolved, interleaved, narrow_pads, widened
from .shapes import sliced
from .types import FLOATS, NUMPY, check_computed, limits

_MAX_TAPS = 4096


def _kernel(n):
    return n.attribute("kernel_shape")


@op("MaxPool")
def max_pool(n, x):
    window = Window(n, x, _kernel(n), ceil_allowed=True)
    sizes = (*x.shape[:2], *window.sizes)
    if n.wants(1):
        return _max_with_places(n, x, window, n.attribute("storage_order", 0))
    if window.rank > 2 or x.dtype not in FLOATS:
        return _max_of_taps(n, x, window)[0]
    ends = window.ends(n.static(x)[2:]) if window.ceil else window.after
    flat = window.rank == 1
    made = widened(n, x) if flat else x
    kernel, strides, dilations, extent, before, after = (
        [fill] * flat + one for fill, one in ((1, window.kernel), (1, window.strides), (1, window.dilations),
                                              (1, window.extent), (0, window.before), (0, ends)))
    made, before, after = narrow_pads(n, made, before, after, extent, -math.inf)
    made = n.b.max_pool2d(made, kernel=tuple(kernel), stride=tuple(strides), dilation=tuple(dilations),
                          padding=interleaved(before, after))
    return shaped(n.b.squeeze(made, axis=2) if flat else made, sizes)


def _taps(n, x, window, filler):
    """For each place within the window, in order: the place, and what each window has there."""
    if math.prod(window.kernel) > _MAX_TAPS:
        raise n.error(f"more than {_MAX_TAPS} elements: {window.kernel}", "kernel_shape")
    ends = window.ends(n.static(x)[2:])
    wide = n.b.pad(x, before=(0, 0, *window.before), after=(0, 0, *ends), value=float(filler))
    for tap in np.ndindex(*window.kernel):
        part = wide
        for axis, place in enumerate(tap):
            first = place * window.dilations[axis]
            part = sliced(n, part, axis + 2, first, first + (window.sizes[axis] - 1) * window.strides[axis] + 1,
                          window.strides[axis])
        yield tap, part


def _max_of_taps(n, x, window, number=None):
    """Maxima, and where `number` gives a number to each element, that of the first maximum."""
    best, places = None, None
    for tap, part in _taps(n, x, window, limits(x.dtype)[0]):
        if number is None:
            best = part if best is None else n.b.maximum(best, part)
            continue
        here = n.b.known(number(tap))
        if best is None:
            best, places = part, n.b.broadcast(here, part.shape)
            continue
        better = n.b.gt(part, best)
        places = n.b.where(better, here, places)
        best = n.b.where(better, part, best)
    return best, places


def _max_with_places(n, x, window, column_major):
    spatial = n.static(x)[2:]
    steps = [math.prod(spatial[:i] if column_major else spatial[i + 1:]) for i in range(window.rank)]
    check_computed(n.where, [*x.shape[:2], *window.sizes])
    planes = n.arange(*x.shape[:2]).reshape(x.shape[0], x.shape[1], *(1,) * window.rank)

    def number(tap):
        total = planes * math.prod(spatial)
        for axis, place in enumerate(tap):
            at = n.arange(window.sizes[axis]) * window.strides[axis] + place * window.dilations[axis]
            form = [1] * x.rank
            form[axis + 2] = len(at)
            total = total + ((at - window.before[axis]) * steps[axis]).reshape(form)
        return total

    return _max_of_taps(n, x, window, number)


@op("AveragePool")
def average_pool(n, x):
    window = Window(n, x, _kernel(n), ceil_allowed=True)
    with_pads = bool(n.attribute("count_include_pad", 0))
    sizes = (*x.shape[:2], *window.sizes)
    plain = window.rank <= 2 and max(window.dilations) == 1 and not (window.ceil and with_pads)
    plain = plain and all(max(b, a) < e for b, a, e in zip(window.before, window.after, window.extent))
    if not plain:
        return shaped(_averages(n, x, window, with_pads), sizes)
    ends = window.ends(n.static(x)[2:]) if window.ceil else window.after
    flat = window.rank == 1
    made = n.b.avg_pool2d(widened(n, x) if flat else x, kernel=tuple([1] * flat + window.kernel),
                          stride=tuple([1] * flat + window.strides),
                          padding=interleaved([0] * flat + window.before, [0] * flat + list(ends)),
                          count_include_pad=with_pads)
    return shaped(n.b.squeeze(made, axis=2) if flat else made, sizes)


def _averages(n, x, window, with_pads):
    """Sums of windows, divided by how many elements each has."""
    spatial = n.static(x)[2:]
    check_computed(n.where, [*window.sizes, *window.kernel])
    counts = np.ones(window.sizes)
    for axis in range(window.rank):
        at = np.arange(window.sizes[axis])[:, None] * window.strides[axis] - window.before[axis] + \
            np.arange(window.kernel[axis]) * window.dilations[axis]
        low, high = (-window.before[axis], spatial[axis] + window.after[axis]) if with_pads else (0, spatial[axis])
        form = [1] * window.rank
        form[axis] = -1
        counts = counts * ((at >= low) & (at < high)).sum(1).reshape(form)
    return _window_sums(n, x, window) / n.b.known(counts.astype(NUMPY[x.dtype]))


def _window_sums(n, x, window):
    """The sum of each window: a convolution of planes with ones."""
    count, channels = n.static(x)[:2]
    planes = n.b.reshape_to(x, (count * channels, 1, *x.shape[2:]))
    if window.ceil:
        window.after, window.ceil = window.ends(x.shape[2:]), False
    check_computed(n.where, window.kernel)
    ones = n.b.known(np.ones((1, 1, *window.kernel), NUMPY[x.dtype]))
    made = convolved(n, planes, ones, None, window, 1, n.b.conv2d)
    return n.b.reshape_to(made, (count, channels, *window.sizes))


@op("LpPool")
def lp_pool(n, x):
    power = float(n.attribute("p", 2))
    window = Window(n, x, _kernel(n), ceil_allowed=True)
    powers = n.b.square(x) if power == 2 else n.b.pow(n.b.abs(x), power)
    sums = _window_sums(n, powers, window)
    return n.b.sqrt(sums) if power == 2 else n.b.pow(sums, 1 / power)


@op("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(n, x):
    axes = list(range(2, x.rank))
    sizes = (*x.shape[:2], *(1,) * len(axes))
    if n.op == "GlobalLpPool":
        power = float(n.attribute("p", 2))
        made = n.b.pow(n.b.sum(n.b.pow(n.b.abs(x), power), axis=axes, keep_dims=True), 1 / power)
    else:
        made = (n.b.mean if n.op == "GlobalAveragePool" else n.b.max)(x, axis=axes, keep_dims=True)
    return shaped(made, sizes)


@op("MaxUnpool")
def max_unpool(n, x, places, output=None):
    rank = x.rank - 2
    kernel = _kernel(n)
    strides, pads = n.attribute("strides", [1] * rank), n.attribute("pads", [0] * 2 * rank)
    if len(kernel) != rank or len(strides) != rank or len(pads) != 2 * rank:
        raise n.malformed(f"a window of {kernel} for {x!r}")
    sizes = [*n.static(x)[:2], *((size - 1) * s + k - pads[i] - pads[i + rank]
                                 for i, (size, s, k) in enumerate(zip(x.shape[2:], strides, kernel)))]
    total = math.prod(sizes)
    zeros = n.b.full((total,), 0, x.dtype)
    count = math.prod(x.shape)
    made = n.b.scatter(zeros, n.b.reshape_to(places, (count,)), n.b.reshape_to(x, (count,)), axis=0, mode="set")
    made = n.b.reshape_to(made, tuple(sizes))
    if output is not None:
        wanted = n.integers(output, "the output's shape")
        after = tuple(want - have for want, have in zip(wanted, sizes))
        if len(wanted) != x.rank or min(after) < 0:
            raise n.malformed(f"an output of {wanted} for {sizes}")
        made = n.b.pad(made, before=(0,) * x.rank, after=after)
    return made


# Resampling


@op("Upsample")
def upsample(n, x, scales=None):
    given = n.attribute("scales") if scales is None else n.array(scales, "the scales").reshape(-1).tolist()
    mode = n.words("mode", "nearest", ("nearest", "linear"))
    return _Resampling(n, x, list(range(x.rank)), given, None, mode, "asymmetric", "floor").run()


@op("Resize")
def resize(n, x, *given):
    roi, scales, sizes = (list(given) + [None] * 3)[:3] if n.version >= 11 else (None, given[0], None)
    axes = n.attribute("axes", list(range(x.rank)))
    axes = [n.axis(axis, x.rank, "axes") for axis in axes]
    mode = n.words("mode", "nearest", ("nearest", "linear", "cubic"))
    places = n.attribute("coordinate_transformation_mode", "half_pixel" if n.version >= 11 else "asymmetric")
    rounding = n.attribute("nearest_mode", "round_prefer_floor" if n.version >= 11 else "floor")
    held = None if scales is None else n.array(scales, "the scales").reshape(-1).astype(np.float64).tolist()
    wanted = None if sizes is None else n.sizes(sizes, "the sizes")
    held, wanted = held or None, wanted or None
    if (held is None) == (wanted is None) or len(held or wanted) != len(axes):
        raise n.malformed("one of scales and sizes, with a number for each axis")
    made = _Resampling(n, x, axes, held, wanted, mode, places, rounding)
    if places == "tf_crop_and_resize":
        made.roi = n.array(roi, "the region").reshape(-1).astype(np.float64).tolist()
    return made.run()


class _Resampling:
    """One Resize: axes, and for each its scale and its size."""

    def __init__(self, n, x, axes, scales, sizes, mode, places, rounding):
        self.n, self.x, self.mode, self.places, self.rounding = n, x, mode, places, rounding
        self.roi = None
        words = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
                 "half_pixel_symmetric", "tf_half_pixel_for_nn")
        if places not in words:
            raise n.error(f"{places!r}", "coordinate_transformation_mode")
        if rounding not in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            raise n.error(f"{rounding!r}", "nearest_mode")
        self.cubic = n.attribute("cubic_coeff_a", -0.75)
        self.exclude = bool(n.attribute("exclude_outside", 0))
        self.antialias = bool(n.attribute("antialias", 0)) and mode != "nearest"
        have = [x.shape[axis] for axis in axes]
        kept = [i for i, size in enumerate(have) if not isinstance(size, int) and
                (scales[i] == 1 if scales is not None else sizes[i] == size)]
        axes, have, scales, sizes = ([one[i] for i in range(len(have)) if i not in kept] if one is not None else None
                                     for one in (axes, have, scales, sizes))
        self.axes, self.repeats = axes, self._whole_factors(have, scales, sizes)
        if self.repeats:
            return
        have = [n.known_size(x, axis) for axis in axes]
        if scales is not None:
            if min(scales) <= 0 or not all(map(math.isfinite, scales)):
                raise n.malformed(f"scales {scales}")
            sizes = [math.floor(size * scale) for size, scale in zip(have, scales)]
        else:
            sizes, scales = self._kept_ratio(have, sizes)
        if min(sizes, default=1) < 1 or math.prod(sizes) > 2**31 or any(size < 1 for size in have):
            raise n.malformed(f"sizes {sizes} for {x!r}")
        self.sizes, self.scales = sizes, scales

    def _whole_factors(self, have, scales, sizes):
        """For sizes that are not known: how often each element occurs, where each does so equally often."""
        floors = self.places == "asymmetric" and self.rounding == "floor"
        rounds = self.places in ("half_pixel", "pytorch_half_pixel") and self.rounding.startswith("round")
        if self.mode != "nearest" or not floors and not rounds or all(isinstance(one, int) for one in have):
            return None
        factors = scales or [sz.divide(size, one) if size != 0 else 0 for size, one in zip(sizes, have)]
        whole = all(isinstance(one, (int, float)) and one >= 1 and int(one) == one for one in factors)
        return [int(one) for one in factors] if whole else None

    def _repeated(self):
        made = self.x
        for axis, factor in zip(self.axes, self.repeats):
            shape = made.shape
            wide = self.n.b.broadcast(self.n.b.reshape_to(made, (*shape[:axis + 1], 1, *shape[axis + 1:])),
                                      (*shape[:axis + 1], factor, *shape[axis + 1:]))
            made = self.n.b.reshape_to(wide, (*shape[:axis], sz.mul(shape[axis], factor), *shape[axis + 1:]))
        return made

    def _kept_ratio(self, have, sizes):
        policy = self.n.words("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
        if any(not isinstance(size, int) for size in sizes):
            raise NotKnown(self.n.where, f"sizes {sizes}: give `shapes`", self.x.inputs)
        if policy != "stretch":
            pick = min if policy == "not_larger" else max
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
        fits = all(self.scales[i] * self.x.shape[self.axes[i]] == self.sizes[i] for i in moved)
        return (fits and self.places in plain and not self.antialias and self.x.dtype in FLOATS
                and not (self.exclude and self.mode == "cubic") and min(axes) >= self.x.rank - 3)

    def _by_op(self, moved):
        n, x = self.n, self.x
        first = min(self.axes[i] for i in moved)
        wanted = dict(zip(self.axes, self.sizes))
        sizes = tuple(wanted.get(axis, x.shape[axis]) for axis in range(first, x.rank))
        made = n.b.resize(x, sizes=sizes, mode=self.mode, coordinates=self.places, rounding=self.rounding,
                          cubic_coefficient=self.cubic)
        return shaped(made, (*x.shape[:first], *sizes))

    def _position(self, i, inputs):
        """Where the elements of the result lie among the inputs, and which of them lie outside."""
        outputs, scale = self.sizes[i], self.scales[i]
        at = self.n.arange(outputs).astype(np.float64)
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
            index = np.clip(_rounded(places, self.rounding), 0, inputs - 1).astype(np.int64)
            return self.n.b.gather(x, self.n.b.known(index), axis=axis), outside
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
        return self.n.b.where(self.n.b.known(mask), self.n.b.number(self.n.attribute("extrapolation_value", 0.0),
                                                                   x.dtype), x)


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


@op("GridSample")
def grid_sample(n, x, grid):
    mode = n.attribute("mode", "linear")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    padding = n.words("padding_mode", "zeros", ("zeros", "border", "reflection"))
    if mode not in ("bilinear", "nearest", "bicubic") or x.rank < 3 or grid.rank != x.rank:
        raise n.error(f"{mode!r} of {x!r}", "mode")
    aligned = bool(n.attribute("align_corners", 0))
    if x.rank != 4 or mode == "bicubic":
        if padding != "zeros":
            raise n.error(f"{padding!r} with {mode!r} of {x!r}", "padding_mode")
        places = _grid_places(n, x, grid, aligned)
        return _sampled(n, x, places, mode, grid.shape[1:-1])
    made = n.b.grid_sample(x, grid, mode=mode, padding=padding, align_corners=aligned)
    return shaped(made, (*x.shape[:2], *grid.shape[1:3]))


def _grid_places(n, x, grid, aligned):
    """For each axis of an image, where a grid's points lie: [N, points]."""
    count, _, *spatial = n.static(x)
    made = []
    for axis, size in enumerate(spatial):
        last = grid.shape[-1] - 1 - axis  # the grid's last axis counts from the innermost axis on
        at = n.b.reshape_to(sliced(n, grid, grid.rank - 1, last, last + 1, 1),
                            (count, math.prod(n.static(grid)[1:-1])))
        made.append((at + 1.0) * (0.5 * (size - 1)) if aligned else ((at + 1.0) * float(size) - 1.0) * 0.5)
    return made


def _sampled(n, x, at, mode, sizes):
    """Places of an array of any rank, with zeros outside of it: a weighted sum over the elements around each."""
    count, channels, *spatial = n.static(x)
    places = math.prod(sizes)
    total, flat = None, n.b.reshape_to(x, (count, channels, math.prod(spatial)))
    axes = [_around(n, one, mode) for one in at]
    for choice in np.ndindex(*(len(one) for one in axes)):
        weight, index, inside = None, None, None
        for (at, share), size, step in ((axes[i][k], spatial[i], math.prod(spatial[i + 1:]))
                                        for i, k in enumerate(choice)):
            within = n.b.logical_and(n.b.ge(at, 0.0), n.b.le(at, float(size - 1)))
            place = n.b.cast(n.b.clamp(at, min=0.0, max=float(size - 1)), "i64") * step
            weight = share if weight is None else weight * share
            index = place if index is None else index + place
            inside = within if inside is None else n.b.logical_and(inside, within)
        weight = n.b.where(inside, weight, n.b.number(0, x.dtype))
        picked = n.b.take_along(flat, n.b.broadcast(n.b.unsqueeze(index, 1), (count, channels, places)), axis=2)
        part = picked * n.b.unsqueeze(weight, 1)
        total = part if total is None else total + part
    return n.b.reshape_to(total, (count, channels, *sizes))


def _around(n, at, mode):
    """The elements around a place of an axis, and their weights."""
    if mode == "nearest":
        return [(n.b.round(at), n.b.number(1, at.dtype))]
    base = n.b.floor(at)
    rest = at - base
    if mode == "bilinear":
        return [(base, 1.0 - rest), (base + 1.0, rest)]
    a = -0.75
    near, far = (lambda d: ((d * (a + 2) - (a + 3)) * d) * d + 1.0,
                 lambda d: ((d * a - 5 * a) * d + 8 * a) * d - 4 * a)
    return [(base - 1.0, far(rest + 1.0)), (base, near(rest)), (base + 1.0, near(1.0 - rest)),
            (base + 2.0, far(2.0 - rest))]


@op("DeformConv")
def deform_conv(n, x, w, offset, bias=None, mask=None):
    kernel = n.attribute("kernel_shape", list(n.static(w, "w")[2:]))
    window = Window(n, x, kernel)
    if window.rank != 2:
        raise n.error(f"of {x!r}", "kernel_shape")
    groups = n.attribute("offset_group", 1)
    count, channels, height, width = n.static(x)
    rows, columns = window.sizes
    taps = math.prod(kernel)
    if groups < 1 or channels % groups or n.static(offset) != (count, groups * taps * 2, rows, columns):
        raise n.malformed(f"offsets {offset!r} for {x!r} and {window.kernel}")
    parts = n.b.reshape_to(x, (count * groups, channels // groups, height, width))
    offsets = n.b.reshape_to(offset, (count * groups, taps, 2, rows, columns))
    masks = None if mask is None else n.b.reshape_to(mask, (count * groups, taps, rows, columns))
    pieces = []
    for number, tap in enumerate(np.ndindex(*kernel)):
        places = []
        for axis in (0, 1):
            form = [1, 1, 1]
            form[axis + 1] = -1
            base = n.arange(window.sizes[axis]) * window.strides[axis] - window.before[axis] + \
                tap[axis] * window.dilations[axis]
            shift = sliced(n, sliced(n, offsets, 1, number, number + 1, 1), 2, axis, axis + 1, 1)
            at = n.b.reshape_to(shift, (count * groups, rows, columns)) + \
                n.b.known(base.reshape(form).astype(NUMPY[x.dtype]))
            places.append(n.b.reshape_to(at, (count * groups, rows * columns)))
        piece = _sampled(n, parts, places, "bilinear", (rows, columns))
        if masks is not None:
            piece = piece * sliced(n, masks, 1, number, number + 1, 1)
        pieces.append(n.b.unsqueeze(piece, 2))
    columns_of = n.b.reshape_to(n.b.concat(pieces, 2), (count, channels * taps, rows, columns))
    filters = n.b.reshape_to(w, (w.shape[0], w.shape[1] * taps, 1, 1))
    options = {} if bias is None else {"bias": bias}
    return n.b.conv2d(columns_of, filters, groups=n.attribute("group", 1), **options)


@op("RoiAlign")
def roi_align(n, x, boxes, images):
    n.words("mode", "avg", ("avg",))
    places = n.attribute("coordinate_transformation_mode", "half_pixel" if n.version >= 16 else "output_half_pixel")
    if places not in ("half_pixel", "output_half_pixel"):
        raise n.error(f"{places!r}", "coordinate_transformation_mode")
    size, ratio = (n.attribute("output_height", 1), n.attribute("output_width", 1)), n.attribute("sampling_ratio", 0)
    if not 0 <= ratio <= _MAX_TAPS or math.prod(size) > _MAX_TAPS**2:
        raise n.malformed(f"attributes 'sampling_ratio' and sizes: {ratio}, {size}")
    return n.b.roi_align(x, boxes, images, size=size, scale=n.attribute("spatial_scale", 1.0), sampling_ratio=ratio,
                         aligned=places == "half_pixel")


@op("NonMaxSuppression")
def non_max_suppression(n, boxes, scores, most=None, overlap=None, least=None):
    kept = 0 if most is None else int(n.number(most, "max_output_boxes_per_class"))
    if not boxes.is_known or not scores.is_known:
        n.array(boxes if not boxes.is_known else scores, "what decides how many boxes are kept")
    count, classes, total = scores.shape
    options = {} if least is None else {"score_threshold": float(n.number(least, "score_threshold"))}
    made = n.b.non_max_suppression(
        boxes, scores, capacity=count * classes * min(max(kept, 0), total), max_per_class=max(kept, 0),
        iou_threshold=0.0 if overlap is None else float(n.number(overlap, "iou_threshold")),
        center_point_box=bool(n.attribute("center_point_box", 0)), **options)
    return n.known_like(made.array[made.array[:, 0] >= 0], boxes, scores)

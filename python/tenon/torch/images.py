"""Pools, resampling, grids, and the ops of torchvision."""

import math

import numpy as np

from ..importing.deformed import deform_conv2d
from ..importing.pools import MAX_TAPS, max_of_taps, maxima, means
from ..importing.resampling import Resampling
from ..importing.sampling import sampled
from ..importing.shaping import shaped, sliced
from ..importing.types import check_computed
from ..importing.windows import Window, interleaved
from .node import op, refuse
from .products import _listed


def _batched(n, x, rank):
    """x with a batch, which torch's ops may leave out."""
    if x.rank == rank + 2:
        return x
    if x.rank != rank + 1:
        raise n.malformed(f"{x!r} for windows of {rank} axes")
    return n.b.unsqueeze(x, 0)


def _unbatched(n, made, x, rank):
    return made if x.rank == rank + 2 else n.b.squeeze(made, axis=0)


def _rank(n):
    return int(next(c for c in n.op if c.isdigit()))


@op("max_pool1d.default", "max_pool2d.default", "max_pool3d.default", "max_pool2d_with_indices.default",
    "max_pool3d_with_indices.default", "max_pool1d_with_indices.default")
def max_pool(n, self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    rank = _rank(n)
    kernel, pads = _listed(kernel_size, rank, 1), _listed(padding, rank, 0)
    strides = _listed(stride or kernel, rank, 1)
    x = _batched(n, self, rank)
    window = Window(n, x, kernel, strides, _listed(dilation, rank, 1), pads * 2, bool(ceil_mode))
    if "indices" in n.op and n.wants(1):
        best, places = max_of_taps(n, x, window, _plane_numbers(n, x, window))
        return _unbatched(n, best, self, rank), _unbatched(n, places, self, rank)
    made = _unbatched(n, maxima(n, x, window), self, rank)
    return (made, None) if "indices" in n.op else made


def _plane_numbers(n, x, window):
    """For a tap, the numbers of the elements that windows have there, within their plane."""
    spatial = n.spatial(x)

    def number(tap):
        total = np.zeros((1,) * x.rank, np.int64)
        for axis, place in enumerate(tap):
            at = n.arange(window.sizes[axis]) * window.strides[axis] + place * window.dilations[axis]
            form = [1] * x.rank
            form[axis + 2] = len(at)
            total = total + ((at - window.before[axis]) * math.prod(spatial[axis + 1:])).reshape(form)
        return total

    return number


@op("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def avg_pool(n, self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
             divisor_override=None):
    rank = _rank(n)
    kernel, pads = _listed(kernel_size, rank, 1), _listed(padding, rank, 0)
    x = _batched(n, self, rank)
    window = Window(n, x, kernel, _listed(stride or kernel, rank, 1), None, pads * 2, bool(ceil_mode))
    if divisor_override is not None:
        if n.integer(divisor_override, "divisor_override") == 0:
            raise n.malformed("argument 'divisor_override': 0")
        count_include_pad = True
        if ceil_mode:  # else the mean of a window that reaches beyond the padding is of fewer elements
            ends = [max(end, 0) for end in window.ends(n.spatial(x))]
            window = Window(n, x, kernel, window.strides, None, [*pads, *ends])
    made = means(n, x, window, bool(count_include_pad))
    if divisor_override is not None:
        made = made * (math.prod(kernel) / divisor_override)
    return _unbatched(n, made, self, rank)


@op("adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default",
    "_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default", "adaptive_max_pool1d.default",
    "adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def adaptive_pool(n, self, output_size):
    rank = _rank(n)
    sizes = _listed(output_size, rank, 1)
    is_max = "max" in n.op
    if is_max and n.wants(1):
        return _adapted_with_places(n, self, sizes)
    x = self
    for i, size in enumerate(sizes):
        x = _adapted(n, x, x.rank - rank + i, size, is_max)
    return (x, None) if is_max else x


def _adapted(n, x, axis, size, is_max):
    """An axis in `size` parts, as equal as possible, which may share elements: their means or maxima."""
    have = x.shape[axis]
    sizes = (*x.shape[:axis], size, *x.shape[axis + 1:])
    reduce = n.b.max if is_max else n.b.mean
    if have == size:
        return x
    if size == 1:
        return shaped(reduce(x, axis=[axis], keep_dims=True), sizes)
    have, size = n.known_size(x, axis), n.integer(size, "output_size")
    if size and have % size == 0:
        parts = n.b.reshape_to(x, (*x.shape[:axis], size, have // size, *x.shape[axis + 1:]))
        return shaped(reduce(parts, axis=[axis + 1], keep_dims=False), sizes)
    parts = [reduce(sliced(n, x, axis, i * have // size, -(-(i + 1) * have // size), 1), axis=[axis], keep_dims=True)
             for i in n.arange(size).tolist()]
    return shaped(n.b.concat(parts, axis), sizes)


def _adapted_with_places(n, x, sizes):
    """Maxima of parts of the last axes, and the number of each first one within its plane."""
    rank = len(sizes)
    axes = range(x.rank - rank, x.rank)
    have = [n.known_size(x, axis) for axis in axes]
    sizes = [n.integer(one, "output_size") for one in (h if size is None else size for h, size in zip(have, sizes))]
    lead, firsts, widths, made = x.shape[:x.rank - rank], [], [], x
    for i in reversed(range(rank)):  # an axis becomes its parts and their elements, the last one repeated
        at = n.arange(sizes[i])
        first, end = at * have[i] // sizes[i], -(-(at + 1) * have[i] // sizes[i])
        width = int((end - first).max()) if sizes[i] else 1
        check_computed(n.where, [sizes[i], width])
        index = np.minimum(first[:, None] + np.arange(width), end[:, None] - 1)
        made = n.b.gather(made, n.b.known(index.astype(np.int64)), axis=len(lead) + i)
        firsts.insert(0, first)
        widths.insert(0, width)
    shaped(made, (*lead, *(size for pair in zip(sizes, widths) for size in pair)))
    order = [*range(len(lead)), *(len(lead) + 2 * i for i in range(rank)), *(len(lead) + 2 * i + 1 for i in range(rank))]
    made = n.b.reshape_to(shaped(n.b.permute(made, order), (*lead, *sizes, *widths)),
                          (*lead, *sizes, math.prod(widths)))
    best = shaped(n.b.max(made, axis=[made.rank - 1], keep_dims=False), (*lead, *sizes))
    rest = n.cast(n.b.argmax(made, axis=made.rank - 1, keep_dims=False), "i64")
    shaped(rest, best.shape)
    total = 0
    for i in reversed(range(rank)):
        form = [1] * best.rank
        form[len(lead) + i] = sizes[i]
        place = n.b.remainder(rest, widths[i]) + n.b.known(firsts[i].astype(np.int64).reshape(form))
        rest = n.b.div(rest, widths[i])
        total = place * math.prod(have[i + 1:]) + total
    return best, shaped(total, best.shape)


@op("max_unpool2d.default", "max_unpool3d.default")
def max_unpool(n, self, indices, output_size, stride=None, padding=None):
    sizes = [n.integer(one, "output_size") for one in output_size]
    lead = self.shape[:self.rank - len(sizes)]
    check_computed(n.where, sizes)
    flat = [n.b.reshape_to(one, (*lead, math.prod(n.known_size(one, axis) for axis in range(len(lead), one.rank))))
            for one in (indices, self)]
    zeros = n.b.full((*lead, math.prod(sizes)), 0, self.dtype)
    made = n.b.scatter(zeros, *flat, axis=len(lead), mode="set")
    return n.b.reshape_to(shaped(made, zeros.shape), (*lead, *sizes))


# Resampling



def resampled(n, x, size, scales, mode, aligned, antialias=False):
    rank = _rank(n)
    axes = list(range(x.rank - rank, x.rank))
    if mode == "nearest":
        places, rounding = "asymmetric", "floor"
    elif mode == "nearest-exact":
        mode, places, rounding = "nearest", "half_pixel", "round_prefer_ceil"
    else:
        places, rounding = "align_corners" if aligned else "half_pixel", "floor"
        if aligned and antialias:
            places = "half_pixel_by_corners"
    cubic = -0.5 if antialias else -0.75
    if scales is not None and size is not None and not all(_follows(x.shape[axis], scale, want) for axis, scale, want
                                                           in zip(axes, scales, size)):
        scales = None
    if scales is None or aligned:
        size = size if size is not None else [math.floor(n.known_size(x, axis) * scale)
                                              for axis, scale in zip(axes, scales)]
        scales = None
    else:
        size = None
    return Resampling(n, x, axes, scales, size, mode, places, rounding, cubic, antialias, antialias,
                      multiplies=True).run()


def _follows(have, scale, want):
    return scale is not None and isinstance(have, int) and math.floor(have * scale) == want


_NEAREST = [f"{exact}upsample_nearest{way}{rank}d.{form}" for exact, way in (("", ""), ("_", "_exact"))
            for rank in (1, 2, 3) for form in ("vec", "default")]
_OTHERS = [f"upsample_{name}{rank}d.{form}" for name, rank in (("linear", 1), ("bilinear", 2), ("trilinear", 3),
                                                               ("bicubic", 2)) for form in ("vec", "default")]
_SMOOTH = [f"_upsample_{name}2d_aa.{form}" for name in ("bilinear", "bicubic") for form in ("vec", "default")]


@op(*_NEAREST, *_OTHERS, *_SMOOTH)
def upsample(n, self=None, input=None, output_size=None, align_corners=False, scale_factors=None, scales=None,
             scales_d=None, scales_h=None, scales_w=None):
    x = self if input is None else input
    name = n.op.split(".")[1]
    mode = "nearest-exact" if "nearest_exact" in name else "nearest" if "nearest" in name else \
        "cubic" if "cubic" in name else "linear"
    given = [one for one in (scales_d, scales_h, scales_w) if one is not None] or ([scales] if scales else None)
    factors = scale_factors or given
    factors = factors if factors and len(factors) == _rank(n) else None
    return resampled(n, x, output_size or None, factors, mode, bool(align_corners), name.endswith("_aa"))


@op("grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(n, input, grid, interpolation_mode, padding_mode, align_corners):
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    if not 0 <= interpolation_mode < 3 or not 0 <= padding_mode < 3:
        raise n.malformed(f"interpolation_mode {interpolation_mode}, padding_mode {padding_mode}")
    if input.rank != 4 or interpolation_mode == 2:
        return sampled(n, input, grid, modes[interpolation_mode], paddings[padding_mode], bool(align_corners))
    made = n.b.grid_sample(input, grid, mode=modes[interpolation_mode], padding=paddings[padding_mode],
                           align_corners=bool(align_corners))
    return shaped(made, (*input.shape[:2], *grid.shape[1:3]))


@op("im2col.default", "col2im.default")
def columns(n, self, kernel_size, dilation, padding, stride, output_size=None):
    if self.rank not in (3, 4) if output_size is None else self.rank not in (2, 3):
        raise n.error(f"of {self!r}")
    pads = interleaved(padding, padding)
    options = {"kernel": tuple(kernel_size), "stride": tuple(stride), "padding": pads, "dilation": tuple(dilation)}
    if output_size is None:
        x = _batched(n, self, 2)
        return _unbatched(n, n.b.unfold2d(x, **options), self, 2)
    x = self if self.rank == 3 else n.b.unsqueeze(self, 0)
    made = n.b.fold2d(x, size=tuple(output_size), **options)
    return made if self.rank == 3 else n.b.squeeze(made, axis=0)


@op("affine_grid_generator.default")
def affine_grid(n, theta, size, align_corners):
    lengths = [n.integer(one, "size") for one in size[2:]]
    rank = len(lengths)
    check_computed(n.where, lengths)
    base = np.ones((*lengths, rank + 1))
    for axis, length in enumerate(lengths):  # the last axis comes first
        at = np.linspace(-1, 1, length) if length > 1 else np.zeros(length)
        at = at if align_corners or length == 0 else at * (length - 1) / length
        base[..., rank - 1 - axis] = at.reshape(-1, *[1] * (rank - 1 - axis))
    base = n.value(n.b.known(base.reshape(1, math.prod(lengths), rank + 1)), theta.dtype)
    made = n.b.matmul(base, n.b.permute(theta, [0, 2, 1]))
    return n.b.reshape_to(shaped(made, (theta.shape[0], math.prod(lengths), rank)), (theta.shape[0], *lengths, rank))


# torchvision

refuse("how many boxes are kept is decided by their values", "nms.default", domain="torchvision")


@op("roi_align.default", domain="torchvision")
def roi_align(n, input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio=-1, aligned=False):
    size = n.integer(pooled_height, "pooled_height"), n.integer(pooled_width, "pooled_width")
    if sampling_ratio > MAX_TAPS or math.prod(size) > MAX_TAPS**2:
        raise n.malformed(f"arguments 'sampling_ratio' and sizes: {sampling_ratio}, {size}")
    images = n.b.reshape_to(n.cast(sliced(n, rois, 1, 0, 1, 1), "i64"), (rois.shape[0],))
    made = n.b.roi_align(input, sliced(n, rois, 1, 1, 5, 1), images, size=size, scale=float(spatial_scale),
                         sampling_ratio=max(sampling_ratio, 0), aligned=bool(aligned))
    return shaped(made, (rois.shape[0], input.shape[1], *size))


@op("deform_conv2d.default", domain="torchvision")
def deform_conv(n, input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups,
                offset_groups, use_mask):
    window = Window(n, input, n.static(weight, "weight")[2:], [stride_h, stride_w], [dilation_h, dilation_w],
                    [pad_h, pad_w] * 2)
    return deform_conv2d(n, input, weight, offset, mask if use_mask else None, bias, window, groups, offset_groups)

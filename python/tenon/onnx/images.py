"""Pools, resampling, boxes."""

import math

import numpy as np

from ..importing.deformed import deform_conv2d
from ..importing.pools import MAX_TAPS, max_with_places, maxima, means, window_sums
from ..importing.resampling import Resampling
from ..importing.sampling import sampled
from ..importing.shaping import shaped
from ..importing.types import NUMPY, check_computed
from .node import op
from .products import window_of



_PLACES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
           "half_pixel_symmetric", "tf_half_pixel_for_nn")


def _kernel(n):
    return n.attribute("kernel_shape")


@op("MaxPool")
def max_pool(n, x):
    window = window_of(n, x, _kernel(n), ceil_allowed=True)
    if n.wants(1):
        return max_with_places(n, x, window, n.attribute("storage_order", 0))
    return maxima(n, x, window)


@op("AveragePool")
def average_pool(n, x):
    window = window_of(n, x, _kernel(n), ceil_allowed=True)
    return means(n, x, window, bool(n.attribute("count_include_pad", 0)))


@op("LpPool")
def lp_pool(n, x):
    power = float(n.attribute("p", 2))
    window = window_of(n, x, _kernel(n), ceil_allowed=True)
    powers = n.b.square(x) if power == 2 else n.b.pow(n.b.abs(x), power)
    sums = window_sums(n, powers, window)
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
    return Resampling(n, x, list(range(x.rank)), given, None, mode, "asymmetric", "floor").run()


@op("Resize")
def resize(n, x, *given):
    roi, scales, sizes = (list(given) + [None] * 3)[:3] if n.version >= 11 else (None, given[0], None)
    axes = n.attribute("axes", list(range(x.rank)))
    axes = [n.axis(axis, x.rank, "axes") for axis in axes]
    mode = n.words("mode", "nearest", ("nearest", "linear", "cubic"))
    places = n.words("coordinate_transformation_mode", "half_pixel" if n.version >= 11 else "asymmetric", _PLACES)
    rounding = n.words("nearest_mode", "round_prefer_floor" if n.version >= 11 else "floor",
                       ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if n.version < 11 and mode == "nearest":
        rounding = "outwards"
    held = None if scales is None else n.array(scales, "the scales").reshape(-1).astype(np.float64).tolist()
    wanted = None if sizes is None else n.sizes(sizes, "the sizes")
    held, wanted = held or None, wanted or None
    if (held is None) == (wanted is None) or len(held or wanted) != len(axes):
        raise n.malformed("one of scales and sizes, with a number for each axis")
    ratio = n.words("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    region = None
    if places == "tf_crop_and_resize":
        region = n.array(roi, "the region").reshape(-1).astype(np.float64).tolist()
    return Resampling(n, x, axes, held, wanted, mode, places, rounding, n.attribute("cubic_coeff_a", -0.75),
                      bool(n.attribute("exclude_outside", 0)), bool(n.attribute("antialias", 0)), ratio, region,
                      n.attribute("extrapolation_value", 0.0)).run()


@op("GridSample")
def grid_sample(n, x, grid):
    mode = n.attribute("mode", "linear")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    padding = n.words("padding_mode", "zeros", ("zeros", "border", "reflection"))
    if mode not in ("bilinear", "nearest", "bicubic") or x.rank < 3 or grid.rank != x.rank:
        raise n.error(f"{mode!r} of {x!r}", "mode")
    aligned = bool(n.attribute("align_corners", 0))
    if x.rank != 4 or mode == "bicubic":
        return sampled(n, x, grid, mode, padding, aligned)
    made = n.b.grid_sample(x, grid, mode=mode, padding=padding, align_corners=aligned)
    return shaped(made, (*x.shape[:2], *grid.shape[1:3]))


@op("AffineGrid")
def affine_grid(n, theta, size):
    """Not as ONNX's function: that one drops the axis of a single grid."""
    lengths = n.integers(size, "the size")[2:]
    rank = len(lengths)
    have = [n.known_size(theta, axis) for axis in range(1, theta.rank)]
    if have != [rank, rank + 1] or rank not in (2, 3) or min(lengths) < 0:
        raise n.malformed(f"{theta!r} for {lengths}")
    check_computed(n.where, [*lengths, rank + 1])
    base = np.ones((*lengths, rank + 1))
    for axis, length in enumerate(lengths):  # the last axis comes first
        if n.attribute("align_corners", 0):
            at = np.linspace(-1, 1, length)
        else:
            at = (2 * np.arange(length) + 1) / max(length, 1) - 1
        base[..., rank - 1 - axis] = at.reshape(-1, *[1] * (rank - 1 - axis))
    base = n.b.known(base.reshape(1, math.prod(lengths), rank + 1).astype(NUMPY[theta.dtype]))
    made = n.b.matmul(base, n.b.permute(theta, [0, 2, 1]))
    return n.b.reshape_to(shaped(made, (theta.shape[0], math.prod(lengths), rank)), (theta.shape[0], *lengths, rank))


@op("DeformConv")
def deform_conv(n, x, w, offset, bias=None, mask=None):
    kernel = n.attribute("kernel_shape", list(n.static(w, "w")[2:]))
    window = window_of(n, x, kernel)
    if window.rank != 2:
        raise n.error(f"of {x!r}", "kernel_shape")
    return deform_conv2d(n, x, w, offset, mask, bias, window, n.attribute("group", 1), n.attribute("offset_group", 1))


@op("RoiAlign")
def roi_align(n, x, boxes, images):
    n.words("mode", "avg", ("avg",))
    places = n.attribute("coordinate_transformation_mode", "half_pixel" if n.version >= 16 else "output_half_pixel")
    if places not in ("half_pixel", "output_half_pixel"):
        raise n.error(f"{places!r}", "coordinate_transformation_mode")
    size, ratio = (n.attribute("output_height", 1), n.attribute("output_width", 1)), n.attribute("sampling_ratio", 0)
    if not 0 <= ratio <= MAX_TAPS or math.prod(size) > MAX_TAPS**2:
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

"""Types of ops of images."""
import math

from . import (agree, checked, common, count, either, finite, floating, index, known, one_dtype, product, rank,
               require, rule)
from .products import require_codes, require_zero_points
from ..tensors import Type


def pair(name, given, absent, least):
    """Two values, rows and columns, or the default where there are none."""
    if not given:
        return (absent, absent)
    require(len(given) == 2 and min(given) >= least, "BadAttribute",
            f"{name} {given} needs two values of at least {least}")
    return tuple(given)


def window(a, taps, default_stride=(1, 1), hides=True):
    """For rows and columns (taps, stride, dilation, padding before, padding after); with `hides`, a
    padding that hides a whole window is an error."""
    strides = pair("stride", a.stride, 0, 1) if a.stride else default_stride
    dilations = pair("dilation", getattr(a, "dilation", []), 1, 1)
    pads = a.padding
    if len(pads) != 4:
        both = pair("padding", pads, 0, 0)
        pads = (both[0], both[0], both[1], both[1])
    require(min(pads) >= 0, "BadAttribute", f"padding {list(pads)} is negative")
    product(*taps)
    axes = [(taps[i], strides[i], dilations[i], pads[2 * i], pads[2 * i + 1]) for i in range(2)]
    for axis in axes:
        if hides and known(axis[0]):
            require(max(axis[3:]) < extent(axis), "BadAttribute",
                    f"padding {axis[3:]} is not smaller than the window's extent {extent(axis)}")
    return axes


def extent(axis):
    """Elements from the first tap to the last, both counted."""
    return checked(checked((axis[0] - 1) * axis[2]) + 1)


def outputs(axis, size):
    """Places of a window along one axis."""
    if not known(axis[0]):
        return None
    padding = checked(axis[3] + axis[4])
    if not known(size):
        return size if axis[1] == 1 and padding == extent(axis) - 1 else None
    slack = checked(size + padding) - extent(axis)
    require(slack >= 0, "BadShape",
            f"a window of extent {extent(axis)} exceeds {size} elements with {padding} of padding")
    return slack // axis[1] + 1


def _images(ins):
    floating(*ins)
    rank(ins[0], 4)
    rank(ins[1], 4)
    if len(ins) > 2:
        rank(ins[2], 1)
    one_dtype(*ins)


def _channels(a, x, w):
    divides = a.groups >= 1 and all(not known(c) or c % a.groups == 0 for c in (x.dims[1], w.dims[0]))
    require(divides, "BadAttribute", f"{a.groups} groups do not divide the channels", x, w)
    if known(x.dims[1]):
        require(agree(x.dims[1] // a.groups, w.dims[1]), "ShapeMismatch", "channels of x and w differ", x, w)


def _convolved(a, x, w, channels, result):
    require(0 not in w.dims[2:], "BadShape", "the kernel has no elements", w)
    rows, columns = window(a, w.dims[2:])
    return Type(result, [x.dims[0], channels, outputs(rows, x.dims[2]), outputs(columns, x.dims[3])])


@rule("conv2d")
def _(op, ins, a):
    count(ins, 2 + a.has_bias)
    _images(ins)
    x, w = ins[:2]
    _channels(a, x, w)
    channels = common(w, 0, ins[2], 0, "the output axis") if a.has_bias else w.dims[0]
    return _convolved(a, x, w, channels, x.dtype)


@rule("conv2d_integer")
def _(op, ins, a):
    require_codes(ins)
    x, w = ins[:2]
    rank(x, 4)
    rank(w, 4)
    _channels(a, x, w)
    require_zero_points(ins, w.dims[0])
    return _convolved(a, x, w, w.dims[0], "i32")


@rule("conv2d_filter_backward")
def _(op, ins, a):
    count(ins, 2)
    x, upstream = ins
    floating(*ins)
    rank(x, 4)
    rank(upstream, 4)
    require(x.dtype == upstream.dtype and agree(x.dims[0], upstream.dims[0]), "ShapeMismatch",
            "dtypes or batches differ", *ins)
    c, o = x.dims[1], upstream.dims[1]
    require(known(c) and known(o), "Unsupported", "the channels are not known", *ins)
    require(a.groups >= 1 and c % a.groups == 0 and o % a.groups == 0, "BadAttribute",
            f"{a.groups} groups do not divide the channels", *ins)
    require(a.kernel, "BadAttribute", "kernel is missing")
    taps = pair("kernel", a.kernel, 1, 1)
    window(a, taps, hides=False)
    return Type(x.dtype, [o, c // a.groups, *taps])


@rule("conv_transpose2d")
def _(op, ins, a):
    count(ins, 2 + a.has_bias)
    _images(ins)
    x, w = ins[:2]
    inputs = either(x.dims[1], w.dims[0])
    require(a.groups >= 1 and (not known(inputs) or inputs % a.groups == 0), "BadAttribute",
            f"{a.groups} groups do not divide the channels", *ins)
    require(agree(x.dims[1], w.dims[0]), "ShapeMismatch", "channels of x and w differ", x, w)
    channels = w.dims[1] if a.groups == 1 else product(w.dims[1], a.groups)
    if a.has_bias:
        require(agree(channels, ins[2].dims[0]), "ShapeMismatch", "the output axis differs", *ins)
        channels = either(channels, ins[2].dims[0])
    axes = window(a, w.dims[2:], hides=False)
    added = pair("output_padding", a.output_padding, 0, 0)
    for axis, more in zip(axes, added):
        require(more < axis[1] or more < axis[2], "BadAttribute",
                f"output_padding {more} is below neither the stride nor the dilation")
    require(0 not in w.dims[2:], "BadShape", "the kernel has no elements", w)
    sizes = [_transposed_size(axis, more, size) for axis, more, size in zip(axes, added, x.dims[2:])]
    return Type(x.dtype, [x.dims[0], channels, *sizes])


def _transposed_size(axis, added, size):
    if not known(axis[0]):
        return None
    cut, reach = checked(axis[3] + axis[4]), checked(extent(axis) + added)
    if not known(size):
        return size if axis[1] == 1 and reach == cut + 1 else None
    result = checked(checked((size - 1) * axis[1]) + reach - cut)
    require(result >= 0, "BadShape", f"{size} elements make a result of size {result}")
    return result


@rule("unfold2d")
def _(op, ins, a):
    x = ins[0]
    floating(x)
    rank(x, 4)
    rows, columns = _fold_window(a)
    down, across = outputs(rows, x.dims[2]), outputs(columns, x.dims[3])
    return Type(x.dtype, [x.dims[0], product(x.dims[1], rows[0] * columns[0]), product(down, across)])


@rule("fold2d")
def _(op, ins, a):
    x = ins[0]
    floating(x)
    rank(x, 3)
    rows, columns = _fold_window(a)
    require(a.size, "BadAttribute", "needs a size of two values")
    height, width = pair("size", a.size, 0, 0)
    places = product(outputs(rows, height), outputs(columns, width))
    taps, channels = rows[0] * columns[0], x.dims[1]
    require((not known(channels) or channels % taps == 0) and agree(x.dims[2], places), "ShapeMismatch",
            f"windows of {taps} elements at {places} places do not make this up", x)
    return Type(x.dtype, [x.dims[0], channels // taps if known(channels) else None, height, width])


def _fold_window(a):
    require(a.kernel, "BadAttribute", "needs a kernel of two values")
    return window(a, pair("kernel", a.kernel, 1, 1), hides=False)


@rule("max_pool2d", "avg_pool2d", "max_pool2d_backward", "avg_pool2d_backward")
def _(op, ins, a):
    x = ins[0]
    floating(x)
    rank(x, 4)
    require(a.kernel, "BadAttribute", "needs a kernel of two values")
    taps = pair("kernel", a.kernel, 1, 1)
    rows, columns = window(a, taps, default_stride=taps)
    y = Type(x.dtype, [*x.dims[:2], outputs(rows, x.dims[2]), outputs(columns, x.dims[3])])
    if not op.endswith("_backward"):
        return y
    _same_shape(ins[1], y)
    return x


def _same_shape(upstream, y):
    require(upstream.rank == y.rank and upstream.dtype == y.dtype and all(map(agree, upstream.dims, y.dims)),
            "ShapeMismatch",
            f"upstream is not {y}", upstream)


@rule("resize", "resize_backward")
def _(op, ins, a):
    x = ins[0]
    floating(x)
    require(1 <= len(a.sizes) <= 3 and min(a.sizes) >= 0, "BadAttribute",
            f"sizes {a.sizes} need one to three values of at least 0")
    words = {"mode": ("nearest", "linear", "cubic"),
             "coordinates": ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
             "rounding": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")}
    _require_words(a, words)
    require(finite(a.cubic_coefficient), "BadAttribute", f"cubic_coefficient {a.cubic_coefficient}")
    require(x.rank >= len(a.sizes), "ShapeMismatch", f"{len(a.sizes)} sizes", x)
    y = Type(x.dtype, x.dims[:x.rank - len(a.sizes)] + tuple(a.sizes))
    small, large = (x, y) if op == "resize" else (y, x)
    require(all(s != 0 or l == 0 for s, l in zip(small.dims[-len(a.sizes):], large.dims[-len(a.sizes):])), "BadShape",
            "an axis without elements", x)
    return y


def _require_words(a, words):
    for name, allowed in words.items():
        word = getattr(a, name)
        require(word in ("",) + allowed, "BadAttribute", f"no {name} '{word}'; there are {', '.join(allowed)}")


@rule("grid_sample", "grid_sample_backward", "grid_sample_grid_backward")
def _(op, ins, a):
    x, grid = ins[:2]
    floating(*ins)
    for type_ in ins:
        rank(type_, 4)
        one_dtype(x, type_)
    require(agree(x.dims[0], grid.dims[0]) and agree(grid.dims[3], 2), "ShapeMismatch", "grid does not fit x", x,
            grid)
    _require_words(a, {"mode": ("bilinear", "nearest"), "padding": ("zeros", "border", "reflection")})
    require(0 not in x.dims[2:], "BadShape", "no pixels", x)
    y = Type(x.dtype, [either(x.dims[0], grid.dims[0]), x.dims[1], *grid.dims[1:3]])
    if op == "grid_sample":
        return y
    _same_shape(ins[2], y)
    return x if op == "grid_sample_backward" else grid


@rule("roi_align", "roi_align_backward")
def _(op, ins, a):
    x, boxes, images = ins[:3]
    floating(x, boxes)
    index(images)
    rank(x, 4)
    rank(boxes, 2)
    rank(images, 1)
    require(x.dtype == boxes.dtype and agree(boxes.dims[0], images.dims[0]) and agree(boxes.dims[1], 4),
            "ShapeMismatch", "operands do not fit", *ins)
    is_good = len(a.size) == 2 and min(a.size) >= 1 and a.scale > 0 and finite(a.scale) and \
        0 <= a.sampling_ratio <= 1 << 20
    require(is_good, "BadAttribute", f"size {a.size}, scale {a.scale}, sampling_ratio {a.sampling_ratio}")
    y = Type(x.dtype, [either(boxes.dims[0], images.dims[0]), x.dims[1], *a.size])
    if op == "roi_align":
        return y
    _same_shape(ins[3], y)
    return x


@rule("non_max_suppression")
def _(op, ins, a):
    boxes, scores = ins
    floating(*ins)
    rank(boxes, 3)
    rank(scores, 3)
    fits = boxes.dtype == scores.dtype and agree(boxes.dims[0], scores.dims[0])
    fits = fits and agree(boxes.dims[1], scores.dims[2])
    require(fits and agree(boxes.dims[2], 4), "ShapeMismatch", "operands do not fit", *ins)
    is_good = a.capacity >= 0 and a.max_per_class >= 0 and 0 <= a.iou_threshold <= 1
    is_good = is_good and not math.isnan(a.score_threshold)
    require(is_good, "BadAttribute",
            f"capacity {a.capacity}, max_per_class {a.max_per_class}, iou_threshold {a.iou_threshold}, "
                                     f"score_threshold {a.score_threshold}")
    return Type("i64", [a.capacity, 3])

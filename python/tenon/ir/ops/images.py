"""Ops of images [N, C, H, W]."""
import math
from types import SimpleNamespace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from . import inside, op
from ..infer.images import outputs, window
from .products import less_zero


def axes_of(taps, stride=(), padding=(), dilation=(), default_stride=(1, 1)):
    """(taps, stride, dilation, padding before and after) of rows and of columns."""
    attributes = SimpleNamespace(stride=list(stride), padding=list(padding), dilation=list(dilation))
    return window(attributes, tuple(taps), default_stride, hides=False)


def windows(x, axes, fill=0.0):
    """[N, C, H', W', KH, KW] of the padded images."""
    pads = [(0, 0), (0, 0), *(axis[3:] for axis in axes)]
    padded = np.pad(x, pads, constant_values=fill)
    (kh, sh, dh, *_), (kw, sw, dw, *_) = axes
    view = sliding_window_view(padded, ((kh - 1) * dh + 1, (kw - 1) * dw + 1), axis=(2, 3))
    return view[:, :, ::sh, ::sw, ::dh, ::dw]


def add_windows(parts, axes, height, width):
    """The opposite: [N, C, H', W', KH, KW] added up at their places in images of this size."""
    n, c, down, across = parts.shape[:4]
    (kh, sh, dh, top, bottom), (kw, sw, dw, left, right) = axes
    reach = [(down - 1) * sh + (kh - 1) * dh + 1, (across - 1) * sw + (kw - 1) * dw + 1]
    full = np.zeros((n, c, max(height + top, reach[0], 0), max(width + left, reach[1], 0)))
    for r, s in np.ndindex(kh, kw):
        rows = slice(r * dh, r * dh + (down - 1) * sh + 1, sh)
        columns = slice(s * dw, s * dw + (across - 1) * sw + 1, sw)
        full[:, :, rows, columns] += parts[..., r, s]
    return full[:, :, top:top + height, left:left + width]


def by_group(x, groups):
    """The channels of each group: [N, groups, C / groups, ...]."""
    return x.reshape(x.shape[0], groups, -1, *x.shape[2:])


def convolve(x, w, groups, axes):
    view = windows(x, axes)
    view = view.reshape(x.shape[0], groups, x.shape[1] // groups, *view.shape[2:])
    filters = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    y = np.einsum("ngcijrs,gocrs->ngoij", view, filters)
    return y.reshape(x.shape[0], w.shape[0], *y.shape[3:])


@op
def conv2d(x, w, bias=None, *, stride, padding, dilation, groups, has_bias):
    y = convolve(x, w, groups, axes_of(w.shape[2:], stride, padding, dilation))
    return y if bias is None else y + bias[:, None, None]


@op
def conv2d_integer(x, w, x_zero=None, w_zero=None, *, stride, padding, dilation, groups):
    w_zero = None if w_zero is None else w_zero.reshape(-1, 1, 1, 1)
    x_zero = None if x_zero is None else x_zero.reshape(())
    return convolve(less_zero(x, x_zero), less_zero(w, w_zero), groups,
                    axes_of(w.shape[2:], stride, padding, dilation))


@op
def conv2d_filter_backward(x, upstream, kernel, stride, padding, dilation, groups):
    axes = axes_of(kernel, stride, padding, dilation)
    # As many zeros behind x as the windows reach, which need not end in it.
    for i, (size, places) in enumerate(zip(x.shape[2:], upstream.shape[2:])):
        taps, step, spread, before, _ = axes[i]
        reach = max(places - 1, 0) * step + (taps - 1) * spread + 1
        axes[i] = (taps, step, spread, before, max(reach - size - before, 0))
    view = windows(x, axes)[:, :, :upstream.shape[2], :upstream.shape[3]]
    view = view.reshape(x.shape[0], groups, x.shape[1] // groups, *view.shape[2:])
    given = upstream.reshape(x.shape[0], groups, upstream.shape[1] // groups, *upstream.shape[2:])
    y = np.einsum("ngoij,ngcijrs->gocrs", given, view)
    return y.reshape(upstream.shape[1], x.shape[1] // groups, *kernel)


@op
def conv_transpose2d(x, w, bias=None, *, stride, padding, output_padding, dilation, groups, has_bias):
    axes = axes_of(w.shape[2:], stride, padding, dilation)
    added = output_padding or (0, 0)
    given = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    filters = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    parts = np.einsum("ngcij,gcors->ngoijrs", given, filters)
    parts = parts.reshape(x.shape[0], groups * w.shape[1], *parts.shape[3:])
    sizes = [(size - 1) * axis[1] - axis[3] - axis[4] + axis[2] * (axis[0] - 1) + 1 + more
             for size, axis, more in zip(x.shape[2:], axes, added)]
    y = add_windows(parts, axes, *sizes)
    return y if bias is None else y + bias[:, None, None]


@op
def unfold2d(x, kernel, stride, padding, dilation):
    view = windows(x, axes_of(kernel, stride, padding, dilation))
    n, c, down, across, kh, kw = view.shape
    return view.transpose(0, 1, 4, 5, 2, 3).reshape(n, c * kh * kw, down * across)


@op
def fold2d(x, size, kernel, stride, padding, dilation):
    axes = axes_of(kernel, stride, padding, dilation)
    down, across = (outputs(axis, length) for axis, length in zip(axes, size))
    channels = x.shape[1] // (kernel[0] * kernel[1])
    parts = x.reshape(x.shape[0], channels, *kernel, down, across)
    return add_windows(parts.transpose(0, 1, 4, 5, 2, 3), axes, *size)


@op
def max_pool2d(x, kernel, stride, padding, dilation):
    return windows(x, axes_of(kernel, stride, padding, dilation, kernel), -np.inf).max(axis=(4, 5))


@op
def max_pool2d_backward(x, upstream, kernel, stride, padding, dilation):
    axes = axes_of(kernel, stride, padding, dilation, kernel)
    y = np.zeros(x.shape)
    for n, c, i, j in np.ndindex(*upstream.shape):
        best = None
        for r, s in np.ndindex(*kernel):
            row, column = (at * axis[1] + tap * axis[2] - axis[3] for at, tap, axis in zip((i, j), (r, s), axes))
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                value = x[n, c, row, column]
                if best is None or value > x[best] or np.isnan(value):
                    best = n, c, row, column
        if best is not None:
            y[best] += upstream[n, c, i, j]
    return y


def window_sizes(x, axes, count_include_pad):
    """What the sum over each window is divided by."""
    if count_include_pad:
        return axes[0][0] * axes[1][0]
    return windows(np.ones((1, 1) + x.shape[2:]), axes).sum(axis=(4, 5))


@op
def avg_pool2d(x, kernel, stride, padding, count_include_pad):
    axes = axes_of(kernel, stride, padding, (), kernel)
    return windows(x, axes).sum(axis=(4, 5)) / window_sizes(x, axes, count_include_pad)


@op
def avg_pool2d_backward(x, upstream, kernel, stride, padding, count_include_pad):
    axes = axes_of(kernel, stride, padding, (), kernel)
    parts = upstream / window_sizes(x, axes, count_include_pad)
    return add_windows(np.broadcast_to(parts[..., None, None], parts.shape + tuple(kernel)), axes, *x.shape[2:])


# --- resampling, as one matrix for each axis


def resize_matrix(length, outs, mode, coordinates, rounding, a):
    """The weight of each element in each result, and which of them are looked at."""
    matrix, is_tap = np.zeros((outs, length)), np.zeros((outs, length), bool)
    for i in range(outs):
        # The position is numerator / denominator, exactly.
        if coordinates == "asymmetric":
            numerator, denominator = i * length, outs
        elif outs == 1 and coordinates in ("pytorch_half_pixel", "align_corners"):
            numerator, denominator = 0, 1
        elif coordinates == "align_corners":
            numerator, denominator = i * (length - 1), outs - 1
        else:
            numerator, denominator = (2 * i + 1) * length - outs, 2 * outs
        below = numerator // denominator
        t = (numerator - below * denominator) / denominator
        if mode == "nearest":
            up = {"floor": False, "ceil": t > 0, "round_prefer_ceil": t >= 0.5}.get(rounding, t > 0.5)
            taps = [(below + up, 1.0)]
        elif mode == "cubic":
            taps = [(below + k, keys(abs(t - k), a)) for k in range(-1, 3)]
        else:
            taps = [(below, 1 - t), (below + 1, t)]
        for place, weight in taps:
            matrix[i, min(max(place, 0), length - 1)] += weight
            is_tap[i, min(max(place, 0), length - 1)] = True
    return matrix, is_tap


def keys(d, a):
    """The cubic of Keys (1981) at the distance d."""
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0


def resample(x, sizes, back, mode, coordinates, rounding, cubic_coefficient):
    for i, size in enumerate(sizes):
        axis = x.ndim - len(sizes) + i
        own = x.shape[axis]
        source, target = (size, own) if back else (own, size)
        matrix, is_tap = resize_matrix(source, target, mode, coordinates, rounding, cubic_coefficient)
        if back:
            matrix, is_tap = matrix.T, is_tap.T
        terms = matrix * np.moveaxis(x, axis, -1)[..., None, :]
        x = np.moveaxis(np.where(is_tap, terms, 0).sum(axis=-1), -1, axis)
    return x


@op
def resize(x, sizes, **words):
    return resample(x, sizes, False, **words)


@op
def resize_backward(upstream, sizes, **words):
    return resample(upstream, sizes, True, **words)


# --- images at the places of a grid


def grid_axis(g, size, padding, align_corners):
    """The places along one axis in pixels, and their derivative by g."""
    scale = (size - 1) / 2 if align_corners else size / 2
    place = (g + 1) * scale - (0 if align_corners else 0.5)
    slope = np.full(g.shape, scale)
    if padding == "reflection":
        low, span = (0, size - 1) if align_corners else (-0.5, size)
        if span == 0:
            place, slope = np.zeros(g.shape), np.zeros(g.shape)
        else:
            turn = np.remainder(place - low, 2 * span)  # a triangle wave
            slope = np.where(turn < span, slope, -slope)
            place = np.where(turn < span, turn, 2 * span - turn) + low
    if padding in ("border", "reflection"):
        slope = np.where((place > 0) & (place < size - 1), slope, 0.0)
        place = np.clip(place, 0, size - 1)
    return np.where(np.isnan(place), -2.0, place), slope


def grid_taps(grid, height, width, mode, padding, align_corners):
    """For each pixel around the places: (row, column, weight, derivatives of it by x and y), each
    [N, H', W']; weights of pixels outside are 0."""
    x, dx = grid_axis(grid[..., 0], width, padding, align_corners)
    y, dy = grid_axis(grid[..., 1], height, padding, align_corners)
    if mode == "nearest":
        zero = np.zeros(x.shape)
        corners = [(np.rint(y), np.rint(x), zero + 1, zero, zero)]
    else:
        left, top = np.floor(x), np.floor(y)
        a, b = x - left, y - top
        corners = [(top, left, (1 - a) * (1 - b), (b - 1) * dx, (a - 1) * dy),
                   (top, left + 1, a * (1 - b), (1 - b) * dx, -a * dy),
                   (top + 1, left, (1 - a) * b, -b * dx, (1 - a) * dy),
                   (top + 1, left + 1, a * b, b * dx, a * dy)]
    for row, column, *weights in corners:
        is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        yield (np.where(is_inside, row, 0).astype(int), np.where(is_inside, column, 0).astype(int),
               *(np.where(is_inside, weight, 0.0) for weight in weights))


def of_image(n):
    """The number of the image for [N, H', W']."""
    return np.arange(n)[:, None, None]


@op
def grid_sample(x, grid, **words):
    y = np.zeros(grid.shape[:3] + x.shape[1:2])
    for row, column, weight, _, _ in grid_taps(grid, *x.shape[2:], **defaults(words)):
        y += np.where(weight != 0, weight, 0)[..., None] * x[of_image(len(x)), :, row, column]
    return np.moveaxis(y, 3, 1)


def defaults(words):
    return {**words, "mode": words["mode"] or "bilinear", "padding": words["padding"] or "zeros"}


@op
def grid_sample_backward(x, grid, upstream, **words):
    y = np.zeros(x.shape)
    for row, column, weight, _, _ in grid_taps(grid, *x.shape[2:], **defaults(words)):
        np.add.at(y, (of_image(len(x)), slice(None), row, column), weight[..., None] * np.moveaxis(upstream, 1, 3))
    return y


@op
def grid_sample_grid_backward(x, grid, upstream, **words):
    y = np.zeros(grid.shape)
    for row, column, _, by_x, by_y in grid_taps(grid, *x.shape[2:], **defaults(words)):
        product = (x[of_image(len(x)), :, row, column] * np.moveaxis(upstream, 1, 3)).sum(axis=-1)
        y += product[..., None] * np.stack([by_x, by_y], axis=-1)
    return y


# --- boxes


def roi_axis(at, length):
    """(place, weight) of the pixels that a sample is made of."""
    if not -1 <= at <= length:
        return []
    at = max(at, 0.0)
    low = min(int(at), length - 1)
    return [(low, 1.0)] if low == length - 1 else [(low, low + 1 - at), (low + 1, at - low)]


def roi_taps(box, height, width, size, scale, sampling_ratio, aligned):
    """(cell's row and column, pixel's row and column, weight) of all pixels of a box."""
    x1, y1, x2, y2 = (value * scale - (0.5 if aligned else 0) for value in box)
    extent = [y2 - y1, x2 - x1] if aligned else [max(y2 - y1, 1.0), max(x2 - x1, 1.0)]
    cell = [length / cells for length, cells in zip(extent, size)]
    parts = [sampling_ratio or max(math.ceil(length), 0) for length in cell]
    for i, j in np.ndindex(*size):
        for r, s in np.ndindex(*parts):
            for row, a in roi_axis(y1 + (i + (r + 0.5) / parts[0]) * cell[0], height):
                for column, b in roi_axis(x1 + (j + (s + 0.5) / parts[1]) * cell[1], width):
                    yield i, j, row, column, a * b / (parts[0] * parts[1])


@op
def roi_align(x, boxes, images, **attributes):
    y = np.zeros((len(boxes), x.shape[1], *attributes["size"]))
    inside(images, len(x), "image")
    for n, (box, image) in enumerate(zip(boxes, images)):
        for i, j, row, column, weight in roi_taps(box, *x.shape[2:], **attributes):
            y[n, :, i, j] += weight * x[image, :, row, column]
    return y


@op
def roi_align_backward(x, boxes, images, upstream, **attributes):
    y = np.zeros(x.shape)
    inside(images, len(x), "image")
    for n, (box, image) in enumerate(zip(boxes, images)):
        for i, j, row, column, weight in roi_taps(box, *x.shape[2:], **attributes):
            y[image, :, row, column] += weight * upstream[n, :, i, j]
    return y


@op
def non_max_suppression(boxes, scores, capacity, max_per_class, iou_threshold, score_threshold, center_point_box):
    rows = []
    for image, kind in np.ndindex(*scores.shape[:2]):
        corners = [corners_of(box, center_point_box) for box in boxes[image]]
        score, kept = scores[image, kind], []
        for i in sorted(range(len(score)), key=lambda i: (-score[i], i)):
            if score[i] > score_threshold and len(kept) < max_per_class:
                if all(not overlap(corners[i], corners[other]) > iou_threshold for other in kept):
                    kept.append(i)
        rows += [(image, kind, i) for i in kept]
    y = np.full((capacity, 3), -1, np.int64)
    for i, row in enumerate(rows[:capacity]):
        y[i] = row
    return y


def corners_of(box, center_point_box):
    """top, left, bottom, right"""
    if center_point_box:
        x, y, width, height = box
        return y - height / 2, x - width / 2, y + height / 2, x + width / 2
    y1, x1, y2, x2 = box
    return min(y1, y2), min(x1, x2), max(y1, y2), max(x1, x2)


def overlap(a, b):
    """Intersection by union; 0 for boxes with a NaN."""
    def area(box):
        return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)

    both = area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))
    union = area(a) + area(b) - both
    return both / union if both > 0 else 0.0

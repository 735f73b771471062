"""Op cases of images: transposed convolutions, windows as columns, gradients of pools, resizing,
sampling and boxes: numpy in float64, written from the definitions.

    python3 python/tests/op_cases_vision.py OUTPUT.safetensors [--seed N] [--small]

The formulas were compared with PyTorch 2.15's functions once.
"""
import math
from fractions import Fraction

import numpy as np

from op_cases import TOLERANCE, as_type, main, to_double

FLOATS = ["f32", "f16", "bf16", "f64"]


def normal(cases, shape, dtype="f32", scale=1.0):
    return as_type(cases.rng.normal(size=shape) * scale, dtype)


def size(cases, low=1, high=9):
    return int(cases.rng.integers(low, high + 1))


def pick(cases, options):
    return options[int(cases.rng.integers(len(options)))]


def flag(cases):
    return bool(cases.rng.integers(2))


def outputs(length, taps, stride, dilation, before, after):
    return (length + before + after - ((taps - 1) * dilation + 1)) // stride + 1


def random_window(cases, lengths, max_taps=3):
    """A window that fits: kernel, stride, padding (before and after of each axis), dilation."""
    kernel, stride, padding, dilation = [], [], [], []
    for length in lengths:
        taps, step = size(cases, 1, max_taps), size(cases, 1, 3)
        spread = 1 if taps == 1 else size(cases, 1, 2)
        extent = (taps - 1) * spread + 1
        before, after = size(cases, 0, extent - 1), size(cases, 0, extent - 1)
        if length + before + after < extent:
            taps, spread, before, after = 1, 1, 0, 0
        kernel.append(taps), stride.append(step), dilation.append(spread)
        padding += [before, after]
    return kernel, stride, padding, dilation


# Transposed convolutions and columns.

def conv_transpose2d(x, w, bias, stride, padding, added, dilation, groups):
    n, c, h, width = x.shape
    kh, kw = w.shape[2:]
    group, o = c // groups, w.shape[1]
    full = np.zeros((n, o * groups, (h - 1) * stride[0] + (kh - 1) * dilation[0] + 1 + added[0],
                     (width - 1) * stride[1] + (kw - 1) * dilation[1] + 1 + added[1]))
    for g in range(groups):
        part, filters = x[:, g * group:(g + 1) * group], w[g * group:(g + 1) * group]
        for r in range(kh):
            for s in range(kw):
                rows = slice(r * dilation[0], r * dilation[0] + (h - 1) * stride[0] + 1, stride[0])
                columns = slice(s * dilation[1], s * dilation[1] + (width - 1) * stride[1] + 1, stride[1])
                full[:, g * o:(g + 1) * o, rows, columns] += np.einsum(
                    "nchw,co->nohw", part, filters[:, :, r, s])
    top, bottom, left, right = padding
    y = full[:, :, top:full.shape[2] - bottom, left:full.shape[3] - right]
    return y if bias is None else y + bias[:, None, None]


def unfold2d(x, kernel, stride, padding, dilation):
    n, c, h, w = x.shape
    top, bottom, left, right = padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    down = outputs(h, kernel[0], stride[0], dilation[0], top, bottom)
    across = outputs(w, kernel[1], stride[1], dilation[1], left, right)
    y = np.zeros((n, c, kernel[0], kernel[1], down, across))
    for r in range(kernel[0]):
        for s in range(kernel[1]):
            y[:, :, r, s] = padded[:, :, r * dilation[0]:r * dilation[0] + (down - 1) * stride[0] + 1:stride[0],
                                   s * dilation[1]:s * dilation[1] + (across - 1) * stride[1] + 1:stride[1]]
    return y.reshape(n, c * kernel[0] * kernel[1], down * across)


def conv2d_filter_backward(x, upstream, kernel, stride, padding, dilation, groups):
    (n, c), (o, down, across) = x.shape[:2], upstream.shape[1:]
    top, bottom, left, right = padding
    reach = [(size - 1) * stride[a] + (kernel[a] - 1) * dilation[a] + 1 for a, size in enumerate((down, across))]
    padded = np.zeros((n, c, max(reach[0], x.shape[2] + top), max(reach[1], x.shape[3] + left)))
    padded[:, :, top:top + x.shape[2], left:left + x.shape[3]] = x
    y = np.zeros((o, c // groups, *kernel))
    for g in range(groups):
        outs, ins = slice(g * o // groups, (g + 1) * o // groups), slice(g * c // groups, (g + 1) * c // groups)
        for r in range(kernel[0]):
            for s in range(kernel[1]):
                seen = padded[:, ins, r * dilation[0]:r * dilation[0] + (down - 1) * stride[0] + 1:stride[0],
                              s * dilation[1]:s * dilation[1] + (across - 1) * stride[1] + 1:stride[1]]
                y[outs, :, r, s] = np.einsum("noij,ncij->oc", upstream[:, outs], seen)
    return y


def filter_cases(cases, count):
    for i in range(count):
        h, w = size(cases, 1, 8), size(cases, 1, 8)
        groups = size(cases, 1, 3)
        n, c, o = size(cases, 0 if i % 6 == 5 else 1, 3), groups * size(cases, 1, 3), groups * size(cases, 1, 4)
        kernel, stride, padding, dilation = random_window(cases, (h, w))
        result = [outputs(length, kernel[a], stride[a], dilation[a], *padding[2 * a:2 * a + 2])
                  for a, length in enumerate((h, w))]
        if i % 4 == 3:  # windows beyond the image, and fewer than fit
            result = [result[0] + size(cases, 0, 2), max(1, result[1] - 1)]
            padding = [p + size(cases, 0, 3) for p in padding]
        dtype = pick(cases, FLOATS)
        x, upstream = normal(cases, (n, c, h, w), dtype), normal(cases, (n, o, *result), dtype)
        want = conv2d_filter_backward(to_double(x), to_double(upstream), kernel, stride, padding, dilation, groups)
        cases.add("conv2d_filter_backward", [x, upstream], as_type(want, dtype),
                  {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "groups": groups},
                  wider(dtype))


def fold2d(x, shape, kernel, stride, padding, dilation):
    n, height, width = x.shape[0], *shape
    top, bottom, left, right = padding
    down = outputs(height, kernel[0], stride[0], dilation[0], top, bottom)
    across = outputs(width, kernel[1], stride[1], dilation[1], left, right)
    parts = x.reshape(n, x.shape[1] // (kernel[0] * kernel[1]), *kernel, down, across)
    full = np.zeros((n, parts.shape[1], height + top + bottom, width + left + right))
    for r in range(kernel[0]):
        for s in range(kernel[1]):
            full[:, :, r * dilation[0]:r * dilation[0] + (down - 1) * stride[0] + 1:stride[0],
                 s * dilation[1]:s * dilation[1] + (across - 1) * stride[1] + 1:stride[1]] += parts[:, :, r, s]
    return full[:, :, top:top + height, left:left + width]


def transposed_cases(cases, count):
    for i in range(count):
        h, w = size(cases, 1, 7), size(cases, 1, 7)
        kernel, stride, padding, dilation = random_window(cases, (h, w), 4)
        added = [size(cases, 0, max(s, d) - 1) for s, d in zip(stride, dilation)]
        for axis, length in enumerate((h, w)):
            extent = (kernel[axis] - 1) * dilation[axis] + 1
            if (length - 1) * stride[axis] + extent + added[axis] - sum(padding[2 * axis:2 * axis + 2]) < 0:
                padding[2 * axis:2 * axis + 2] = [0, 0]
        groups = size(cases, 1, 3)
        c, o = groups * size(cases, 1, 3), size(cases, 1, 3)
        n, dtype = size(cases, 0 if i % 7 == 6 else 1, 2), pick(cases, FLOATS)
        x, weights = normal(cases, (n, c, h, w), dtype), normal(cases, (c, o, *kernel), dtype)
        inputs = [x, weights]
        bias = normal(cases, (o * groups,), dtype) if flag(cases) else None
        want = conv_transpose2d(to_double(x), to_double(weights), None if bias is None else to_double(bias),
                                stride, padding, added, dilation, groups)
        cases.add("conv_transpose2d", inputs + ([] if bias is None else [bias]), as_type(want, dtype),
                  {"stride": stride, "padding": padding, "output_padding": added, "dilation": dilation,
                   "groups": groups, "has_bias": bias is not None})


def column_cases(cases, count):
    for i in range(count):
        h, w = size(cases, 1, 8), size(cases, 1, 8)
        kernel, stride, padding, dilation = random_window(cases, (h, w))
        n, c, dtype = size(cases, 0 if i % 7 == 6 else 1, 2), size(cases, 1, 3), pick(cases, FLOATS)
        attributes = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
        x = normal(cases, (n, c, h, w), dtype)
        columns = unfold2d(to_double(x), kernel, stride, padding, dilation)
        cases.add("unfold2d", [x], as_type(columns, dtype), attributes)
        x = normal(cases, columns.shape, dtype)
        want = fold2d(to_double(x), (h, w), kernel, stride, padding, dilation)
        cases.add("fold2d", [x], as_type(want, dtype), {"size": [h, w]} | attributes)


# Gradients of pools.

def pool_windows(length, taps, stride, dilation, before, after):
    """The inputs in the window of each output, along one axis."""
    return [[p for p in (i * stride + t * dilation - before for t in range(taps)) if 0 <= p < length]
            for i in range(outputs(length, taps, stride, dilation, before, after))]


def max_pool2d_backward(x, upstream, kernel, stride, padding, dilation):
    y = np.zeros_like(x)
    rows, columns = (pool_windows(x.shape[2 + a], kernel[a], stride[a], dilation[a],
                                  *padding[2 * a:2 * a + 2]) for a in range(2))
    for n, c, i, j in np.ndindex(*upstream.shape):
        places = [(r, s) for r in rows[i] for s in columns[j]]
        if places:
            best = max(places, key=lambda p: x[n, c, p[0], p[1]])  # the first of equals
            y[n, c, best[0], best[1]] += upstream[n, c, i, j]
    return y


def avg_pool2d_backward(x, upstream, kernel, stride, padding, count_pad):
    y = np.zeros_like(x)
    rows, columns = (pool_windows(x.shape[2 + a], kernel[a], stride[a], 1,
                                  *padding[2 * a:2 * a + 2]) for a in range(2))
    for n, c, i, j in np.ndindex(*upstream.shape):
        count = kernel[0] * kernel[1] if count_pad else len(rows[i]) * len(columns[j])
        for r in rows[i]:
            for s in columns[j]:
                y[n, c, r, s] += upstream[n, c, i, j] / count
    return y


def pool_cases(cases, count):
    for i in range(count):
        h, w = size(cases, 1, 7), size(cases, 1, 7)
        n, c, dtype = size(cases, 0 if i % 7 == 6 else 1, 2), size(cases, 1, 2), pick(cases, FLOATS)
        kernel, stride, padding, dilation = random_window(cases, (h, w))
        # Few values, so that there are ties.
        x = as_type(np.round(cases.rng.normal(size=(n, c, h, w)) * 2) / 2, dtype)
        result = [outputs(length, kernel[a], stride[a], dilation[a], *padding[2 * a:2 * a + 2])
                  for a, length in enumerate((h, w))]
        upstream = normal(cases, (n, c, *result), dtype)
        want = max_pool2d_backward(to_double(x), to_double(upstream), kernel, stride, padding, dilation)
        cases.add("max_pool2d_backward", [x, upstream], as_type(want, dtype),
                  {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation})
        padding = [min(p, kernel[a // 2] - 1) for a, p in enumerate(padding)]
        if any(length + sum(padding[2 * a:2 * a + 2]) < kernel[a] for a, length in enumerate((h, w))):
            kernel, padding = [1, 1], [0, 0, 0, 0]
        result = [outputs(length, kernel[a], stride[a], 1, *padding[2 * a:2 * a + 2])
                  for a, length in enumerate((h, w))]
        upstream, count_pad = normal(cases, (n, c, *result), dtype), flag(cases)
        want = avg_pool2d_backward(to_double(x), to_double(upstream), kernel, stride, padding, count_pad)
        cases.add("avg_pool2d_backward", [x, upstream], as_type(want, dtype),
                  {"kernel": kernel, "stride": stride, "padding": padding, "count_include_pad": count_pad})


# Resizing, as one matrix for each axis.

def resize_matrix(length, outs, mode, coordinates, rounding, a):
    y = np.zeros((outs, length))
    for i in range(outs):
        if coordinates == "asymmetric":
            position = Fraction(i * length, outs)
        elif outs == 1 and coordinates != "half_pixel":
            position = Fraction(0)
        elif coordinates == "align_corners":
            position = Fraction(i * (length - 1), outs - 1)
        else:
            position = Fraction((2 * i + 1) * length, 2 * outs) - Fraction(1, 2)
        below = math.floor(position)
        t = float(position - below)
        if mode == "nearest":
            half = Fraction(1, 2)
            place = {"floor": below, "ceil": math.ceil(position),
                     "round_prefer_floor": math.ceil(position - half),
                     "round_prefer_ceil": math.floor(position + half)}[rounding]
            taps = {place: 1.0}
        elif mode == "linear":
            taps = {below: 1 - t, below + 1: t}
        else:
            taps = {}
            for k in range(-1, 3):
                d = abs(k - t)
                if d <= 1:
                    taps[below + k] = (a + 2) * d**3 - (a + 3) * d**2 + 1
                else:
                    taps[below + k] = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        for place, weight in taps.items():
            y[i, min(max(place, 0), length - 1)] += weight
    return y


def resize(x, sizes, attributes, backward=False):
    for i, outs in enumerate(sizes):
        axis = x.ndim - len(sizes) + i
        source, target = (outs, x.shape[axis]) if backward else (x.shape[axis], outs)
        matrix = resize_matrix(source, target, attributes["mode"], attributes["coordinates"],
                               attributes["rounding"], attributes["cubic_coefficient"])
        x = np.moveaxis(np.tensordot(matrix.T if backward else matrix, x, axes=(1, axis)), 0, axis)
    return x


def resize_cases(cases, count):
    modes = ["nearest", "linear", "cubic", "linear"]
    for i in range(count):
        dtype, axes = pick(cases, FLOATS), 1 + i % 3
        lead = tuple(size(cases, 0 if i % 8 == 7 else 1, 2) for _ in range(size(cases, 0, 2)))
        x = normal(cases, lead + tuple(size(cases, 1, 6) for _ in range(axes)), dtype)
        sizes = [size(cases, 1, 9 if axes < 3 else 5) for _ in range(axes)]
        attributes = {"mode": modes[i % 4], "rounding":
                      pick(cases, ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
                      "coordinates": pick(cases, ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]),
                      "cubic_coefficient": float(pick(cases, [-0.75, -0.5]))}
        want = resize(to_double(x), sizes, attributes)
        cases.add("resize", [x], as_type(want, dtype), {"sizes": sizes} | attributes, wider(dtype))
        upstream = normal(cases, want.shape, dtype)
        sizes = list(x.shape[len(lead):])
        want = resize(to_double(upstream), sizes, attributes, backward=True)
        cases.add("resize_backward", [upstream], as_type(want, dtype), {"sizes": sizes} | attributes, wider(dtype))


def wider(dtype):
    """Sums of many terms cancel."""
    absolute, relative = TOLERANCE[dtype]
    return 10 * absolute, relative


# Images at the places of a grid.

def grid_axis(g, length, padding, align):
    """The place along one axis, in pixels, and its derivative by g."""
    place, slope = ((g + 1) / 2 * (length - 1), (length - 1) / 2) if align else (((g + 1) * length - 1) / 2, length / 2)
    if padding == "reflection":
        low, span = (0, length - 1) if align else (-0.5, length)
        if span == 0:
            return 0.0, 0.0
        turn = (place - low) % (2 * span)  # a triangle wave
        place, slope = (turn + low, slope) if turn < span else (2 * span - turn + low, -slope)
    if padding != "zeros":
        if not 0 < place < length - 1:
            slope = 0.0
        place = min(max(place, 0), length - 1)
    return place, slope


def grid_taps(g, h, w, mode, padding, align):
    """(row, column, weight, its derivatives by the grid) of each pixel inside."""
    (x, dx), (y, dy) = grid_axis(g[0], w, padding, align), grid_axis(g[1], h, padding, align)
    if mode == "nearest":
        taps = [(int(np.rint(y)), int(np.rint(x)), 1.0, 0.0, 0.0)]
    else:
        left, top = math.floor(x), math.floor(y)
        a, b = x - left, y - top
        taps = [(top, left, (1 - a) * (1 - b), (b - 1) * dx, (a - 1) * dy),
                (top, left + 1, a * (1 - b), (1 - b) * dx, -a * dy),
                (top + 1, left, (1 - a) * b, -b * dx, (1 - a) * dy),
                (top + 1, left + 1, a * b, b * dx, a * dy)]
    return [t for t in taps if 0 <= t[0] < h and 0 <= t[1] < w]


def grid_sample(x, grid, mode, padding, align):
    y = np.zeros((x.shape[0], x.shape[1], *grid.shape[1:3]))
    for n, i, j in np.ndindex(*grid.shape[:3]):
        for row, column, weight, _, _ in grid_taps(grid[n, i, j], *x.shape[2:], mode, padding, align):
            y[n, :, i, j] += weight * x[n, :, row, column]
    return y


def grid_sample_backward(shape, grid, upstream, mode, padding, align):
    y = np.zeros(shape)
    for n, i, j in np.ndindex(*grid.shape[:3]):
        for row, column, weight, _, _ in grid_taps(grid[n, i, j], *shape[2:], mode, padding, align):
            y[n, :, row, column] += weight * upstream[n, :, i, j]
    return y


def grid_sample_grid_backward(x, grid, upstream, mode, padding, align):
    y = np.zeros_like(grid)
    for n, i, j in np.ndindex(*grid.shape[:3]):
        for row, column, _, by_x, by_y in grid_taps(grid[n, i, j], *x.shape[2:], mode, padding, align):
            product = (x[n, :, row, column] * upstream[n, :, i, j]).sum()
            y[n, i, j] += product * np.array([by_x, by_y])
    return y


def grid_cases(cases, count):
    for i in range(count):
        dtype = pick(cases, ["f32", "f64"])
        n, c = size(cases, 0 if i % 8 == 7 else 1, 2), size(cases, 1, 3)
        x = normal(cases, (n, c, size(cases, 1, 6), size(cases, 1, 6)), dtype)
        grid = normal(cases, (n, size(cases, 1, 4), size(cases, 1, 4), 2), dtype)
        mode, padding, align = ["bilinear", "nearest"][i % 2], pick(cases, ["zeros", "border", "reflection"]), flag(cases)
        words = {"mode": mode, "padding": padding, "align_corners": align}
        want = grid_sample(to_double(x), to_double(grid), mode, padding, align)
        cases.add("grid_sample", [x, grid], as_type(want, dtype), words, wider(dtype))
        upstream = normal(cases, want.shape, dtype)
        want = grid_sample_backward(x.shape, to_double(grid), to_double(upstream), mode, padding, align)
        cases.add("grid_sample_backward", [x, grid, upstream], as_type(want, dtype), words, wider(dtype))
        want = grid_sample_grid_backward(to_double(x), to_double(grid), to_double(upstream), mode, padding, align)
        cases.add("grid_sample_grid_backward", [x, grid, upstream], as_type(want, dtype), words, wider(dtype))


# Boxes.

def roi_axis(at, length):
    if not -1 <= at <= length:
        return []
    at = max(at, 0.0)
    low = min(int(at), length - 1)
    return [(low, 1.0)] if low == length - 1 else [(low, 1 - (at - low)), (low + 1, at - low)]


def roi_taps(box, h, w, cells, scale, ratio, aligned):
    """(cell row, cell column, row, column, weight) of each pixel of each cell."""
    x1, y1, x2, y2 = (v * scale - (0.5 if aligned else 0) for v in box)
    extent = [y2 - y1, x2 - x1] if aligned else [max(y2 - y1, 1.0), max(x2 - x1, 1.0)]
    cell = [e / c for e, c in zip(extent, cells)]
    parts = [ratio or max(math.ceil(c), 0) for c in cell]
    for i, j in np.ndindex(*cells):
        for r, s in np.ndindex(*parts):
            for row, a in roi_axis(y1 + i * cell[0] + (r + 0.5) * cell[0] / parts[0], h):
                for column, b in roi_axis(x1 + j * cell[1] + (s + 0.5) * cell[1] / parts[1], w):
                    yield i, j, row, column, a * b / (parts[0] * parts[1])


def roi_align(x, boxes, images, cells, scale, ratio, aligned):
    y = np.zeros((len(boxes), x.shape[1], *cells))
    for n, box in enumerate(boxes):
        for i, j, row, column, weight in roi_taps(box, *x.shape[2:], cells, scale, ratio, aligned):
            y[n, :, i, j] += weight * x[images[n], :, row, column]
    return y


def roi_align_backward(shape, boxes, images, upstream, cells, scale, ratio, aligned):
    y = np.zeros(shape)
    for n, box in enumerate(boxes):
        for i, j, row, column, weight in roi_taps(box, *shape[2:], cells, scale, ratio, aligned):
            y[images[n], :, row, column] += weight * upstream[n, :, i, j]
    return y


def roi_cases(cases, count):
    for i in range(count):
        dtype = pick(cases, ["f32", "f64"])
        x = normal(cases, (size(cases, 1, 2), size(cases, 1, 3), size(cases, 2, 8), size(cases, 2, 8)), dtype)
        r = size(cases, 0 if i % 6 == 5 else 1, 3)
        corners = cases.rng.uniform(-3, 12, (r, 2))
        boxes = as_type(np.concatenate([corners, corners + cases.rng.uniform(0, 12, (r, 2))], axis=1), dtype)
        images = cases.rng.integers(0, x.shape[0], r).astype(pick(cases, [np.int32, np.int64]))
        cells = [size(cases, 1, 3), size(cases, 1, 3)]
        attributes = {"size": cells, "scale": float(pick(cases, [1.0, 0.5])), "sampling_ratio": size(cases, 0, 2),
                      "aligned": flag(cases)}
        options = (attributes["scale"], attributes["sampling_ratio"], attributes["aligned"])
        want = roi_align(to_double(x), to_double(boxes), images, cells, *options)
        cases.add("roi_align", [x, boxes, images], as_type(want, dtype), attributes, wider(dtype))
        upstream = normal(cases, want.shape, dtype)
        want = roi_align_backward(x.shape, to_double(boxes), images, to_double(upstream), cells, *options)
        cases.add("roi_align_backward", [x, boxes, images, upstream], as_type(want, dtype), attributes, wider(dtype))


def non_max_suppression(boxes, scores, capacity, most, iou, least, centred):
    rows = []
    for image, kind in np.ndindex(*scores.shape[:2]):
        def corners(box):
            a, b, c, d = box
            if centred:
                return b - d / 2, a - c / 2, b + d / 2, a + c / 2
            return min(a, c), min(b, d), max(a, c), max(b, d)

        kept = []
        for i in sorted(range(scores.shape[2]), key=lambda i: (-scores[image, kind, i], i)):
            if scores[image, kind, i] <= least or len(kept) == most:
                continue
            top, left, bottom, right = corners(boxes[image, i])
            hidden = False
            for other in kept:
                t, l, b, r = corners(boxes[image, other])
                common = max(min(bottom, b) - max(top, t), 0) * max(min(right, r) - max(left, l), 0)
                union = (bottom - top) * (right - left) + (b - t) * (r - l) - common
                hidden = hidden or (common > 0 and common / union > iou)
            if not hidden:
                kept.append(i)
        rows += [(image, kind, i) for i in kept]
    rows = rows[:capacity] + [(-1, -1, -1)] * (capacity - len(rows))
    return np.array(rows, np.int64).reshape(capacity, 3)


def suppression_cases(cases, count):
    for i in range(count):
        dtype = pick(cases, ["f32", "f16"])
        b, k, kinds = size(cases, 1, 2), size(cases, 0 if i % 5 == 4 else 1, 12), size(cases, 1, 2)
        centred = flag(cases)
        first = cases.rng.uniform(0, 4, (b, k, 2))
        second = cases.rng.uniform(0.5, 4, (b, k, 2)) + (0 if centred else first)
        boxes = as_type(np.concatenate([first, second], axis=2), dtype)
        scores = as_type(np.round(cases.rng.uniform(0, 1, (b, kinds, k)) * 16) / 16, dtype)
        most = pick(cases, [2**63 - 1, 2])
        attributes = {"capacity": size(cases, 0, 16), "max_per_class": most, "iou_threshold": pick(cases, [0.0, 0.3, 0.5]),
                      "score_threshold": pick(cases, [0.25, 0.0]), "center_point_box": centred}
        want = non_max_suppression(to_double(boxes), to_double(scores), attributes["capacity"], most,
                                   attributes["iou_threshold"], attributes["score_threshold"], centred)
        cases.add("non_max_suppression", [boxes, scores], want, attributes)


# Norms of groups of channels.

def group_norm(x, groups, weight, bias, eps):
    flat = x.reshape(x.shape[0], groups, -1)
    centred = flat - flat.mean(-1, keepdims=True)
    y = (centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps)).reshape(x.shape)
    along = (-1,) + (1,) * (x.ndim - 2)
    return y * (1 if weight is None else weight.reshape(along)) + (0 if bias is None else bias.reshape(along))


def group_norm_cases(cases, count):
    for i in range(count):
        dtype, groups = pick(cases, FLOATS), size(cases, 1, 3)
        c = groups * size(cases, 1, 3)
        shape = (size(cases, 1, 2), c) + tuple(size(cases, 1, 5) for _ in range(i % 4))
        x, eps = normal(cases, shape, dtype, 2), float(pick(cases, [1e-5, 0.1]))
        if np.prod(shape[1:]) == groups:
            eps = 0.1  # the variance is 0
        parameters = [normal(cases, (c,), dtype) for _ in range(i % 3)]
        weight, bias = ([to_double(p) for p in parameters] + [None, None])[:2]
        want = group_norm(to_double(x), groups, weight, bias, eps)
        absolute, relative = TOLERANCE[dtype]
        cases.add("group_norm", [x] + parameters, as_type(want, dtype), {"groups": groups, "eps": eps},
                  (max(2e-6, absolute) if dtype != "f64" else absolute, relative))


def batch_norm_cases(cases, count):
    for i in range(count):
        dtype, eps = pick(cases, FLOATS), float(pick(cases, [1e-5, 0.1]))
        shape = (size(cases, 0 if i % 6 == 5 else 1, 2), size(cases, 1, 4)) + tuple(size(cases, 1, 5) for _ in range(i % 4))
        x, mean = normal(cases, shape, dtype, 2), normal(cases, shape[1:2], dtype)
        variance = as_type(cases.rng.uniform(0.1, 2, shape[1:2]), dtype)
        parameters = [normal(cases, shape[1:2], dtype) for _ in range(i % 3)]
        along = (-1,) + (1,) * (len(shape) - 2)
        y = (to_double(x) - to_double(mean).reshape(along)) / np.sqrt(to_double(variance).reshape(along) + eps)
        if len(parameters) > 0:
            y = y * to_double(parameters[0]).reshape(along)
        if len(parameters) > 1:
            y = y + to_double(parameters[1]).reshape(along)
        cases.add("batch_norm", [x, mean, variance] + parameters, as_type(y, dtype), {"eps": eps}, wider(dtype))


def generate(cases):
    many = (lambda small, large: small if cases.small else large)
    transposed_cases(cases, many(9, 60))
    column_cases(cases, many(5, 30))
    filter_cases(cases, many(6, 40))
    pool_cases(cases, many(5, 30))
    resize_cases(cases, many(12, 60))
    grid_cases(cases, many(5, 30))
    roi_cases(cases, many(4, 24))
    suppression_cases(cases, many(5, 30))
    group_norm_cases(cases, many(6, 30))
    batch_norm_cases(cases, many(5, 30))


if __name__ == "__main__":
    main(generate, __doc__)

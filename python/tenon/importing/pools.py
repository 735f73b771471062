"""Maxima and means of windows."""

import math

import numpy as np

from . import sizes as sz
from .shaping import shaped, sliced
from .types import FLOATS, NUMPY, check_computed, limits
from .windows import convolved, interleaved, narrow_pads, widened


MAX_TAPS = 4096


def maxima(n, x, window):
    """The maximum of each window."""
    if window.rank > 2 or x.dtype not in FLOATS:
        return max_of_taps(n, x, window)[0]
    ends = window.ends(n.spatial(x)) if window.ceil else window.after
    flat = window.rank == 1
    made = widened(n, x) if flat else x
    kernel, strides, dilations, extent, before, after = (
        [fill] * flat + list(one) for fill, one in ((1, window.kernel), (1, window.strides), (1, window.dilations),
                                                    (1, window.extent), (0, window.before), (0, ends)))
    made, before, after = narrow_pads(n, made, before, after, extent, -math.inf)
    made = n.b.max_pool2d(made, kernel=tuple(kernel), stride=tuple(strides), dilation=tuple(dilations),
                          padding=interleaved(before, after))
    return shaped(n.b.squeeze(made, axis=2) if flat else made, (*x.shape[:2], *window.sizes))


def means(n, x, window, with_pads):
    """The mean of each window, whose padding counts as zeros or not at all."""
    plain = window.rank <= 2 and max(window.dilations) == 1 and not (window.ceil and with_pads) and x.dtype in FLOATS
    if not plain or any(max(b, a) >= e for b, a, e in zip(window.before, window.after, window.extent)):
        return shaped(_averages(n, x, window, with_pads), (*x.shape[:2], *window.sizes))
    ends = window.ends(n.spatial(x)) if window.ceil else window.after
    flat = window.rank == 1
    made = n.b.avg_pool2d(widened(n, x) if flat else x, kernel=tuple([1] * flat + window.kernel),
                          stride=tuple([1] * flat + window.strides),
                          padding=interleaved([0] * flat + window.before, [0] * flat + list(ends)),
                          count_include_pad=with_pads)
    return shaped(n.b.squeeze(made, axis=2) if flat else made, (*x.shape[:2], *window.sizes))


def _taps(n, x, window, filler):
    """For each place within the window, in order: the place, and what each window has there."""
    if math.prod(window.kernel) > MAX_TAPS:
        raise n.error(f"more than {MAX_TAPS} elements: {window.kernel}", "kernel_shape")
    ends = window.ends(n.spatial(x))
    wide = n.b.pad(x, before=(0, 0, *window.before), after=(0, 0, *ends), value=float(filler))
    for tap in np.ndindex(*window.kernel):
        part = wide
        for axis, place in enumerate(tap):
            first = place * window.dilations[axis]
            part = sliced(n, part, axis + 2, first, first + (window.sizes[axis] - 1) * window.strides[axis] + 1,
                          window.strides[axis])
        yield tap, part


def max_of_taps(n, x, window, number=None):
    """Maxima, and where `number` gives a number to each element, that of the first maximum, or the last NaN."""
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
        if x.dtype in FLOATS:
            better = n.b.logical_or(better, n.b.is_nan(part))  # the last one, as in PyTorch
        places = n.b.where(better, here, places)
        best = n.b.where(better, part, best)
    return best, places


def max_with_places(n, x, window, column_major):
    spatial = n.spatial(x)
    steps = [math.prod(spatial[:i] if column_major else spatial[i + 1:]) for i in range(window.rank)]
    check_computed(n.where, window.sizes)

    def number(tap):
        total = np.zeros((1,) * x.rank, np.int64)
        for axis, place in enumerate(tap):
            at = n.arange(window.sizes[axis]) * window.strides[axis] + place * window.dilations[axis]
            form = [1] * x.rank
            form[axis + 2] = len(at)
            total = total + ((at - window.before[axis]) * steps[axis]).reshape(form)
        return total

    best, places = max_of_taps(n, x, window, number)
    planes = n.b.reshape_to(n.b.iota(sz.mul(*x.shape[:2])), (*x.shape[:2], *(1,) * window.rank))
    return best, shaped(places + planes * math.prod(spatial), best.shape)


def _averages(n, x, window, with_pads):
    """Sums of windows, divided by how many elements each has."""
    spatial = n.spatial(x)
    check_computed(n.where, [*window.sizes, *window.kernel])
    counts = np.ones(window.sizes)
    for axis in range(window.rank):
        at = np.arange(window.sizes[axis])[:, None] * window.strides[axis] - window.before[axis] + \
            np.arange(window.kernel[axis]) * window.dilations[axis]
        low, high = (-window.before[axis], spatial[axis] + window.after[axis]) if with_pads else (0, spatial[axis])
        form = [1] * window.rank
        form[axis] = -1
        counts = counts * ((at >= low) & (at < high)).sum(1).reshape(form)
    return window_sums(n, x, window) / n.b.known(counts.astype(NUMPY[x.dtype]))


def window_sums(n, x, window):
    """The sum of each window: a convolution of planes with ones."""
    count, channels = x.shape[:2]
    planes = n.b.reshape_to(x, (sz.mul(count, channels), 1, *x.shape[2:]))
    if window.ceil:
        window.after, window.ceil = window.ends(n.spatial(x)), False
    check_computed(n.where, window.kernel)
    ones = n.b.known(np.ones((1, 1, *window.kernel), NUMPY[x.dtype]))
    made = convolved(n, planes, ones, None, window, 1, n.b.conv2d)
    return n.b.reshape_to(made, (count, channels, *window.sizes))

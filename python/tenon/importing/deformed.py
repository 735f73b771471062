"""Convolutions whose taps are moved by offsets."""

import math

import numpy as np

from . import sizes as sz
from .sampling import sampled_at
from .shaping import sliced
from .types import NUMPY


def deform_conv2d(n, x, w, offset, mask, bias, window, groups, offset_groups):
    """Offsets are [N, groups * taps * 2, rows, columns], of which rows come first; masks have no axis of two."""
    count, channels, (height, width) = x.shape[0], n.known_size(x, 1), n.spatial(x)
    rows, columns = window.sizes
    taps = math.prod(window.kernel)
    if offset_groups < 1 or channels % offset_groups or \
            tuple(offset.shape) != (count, offset_groups * taps * 2, rows, columns):
        n.static(offset, "the offsets")  # sizes that are not known need not differ
        raise n.malformed(f"offsets {offset!r} for {x!r} and {window.kernel}")
    many = sz.product((count, offset_groups))
    parts = n.b.reshape_to(x, (many, channels // offset_groups, height, width))
    offsets = n.b.reshape_to(offset, (many, taps, 2, rows, columns))
    masks = None if mask is None else n.b.reshape_to(mask, (many, taps, rows, columns))
    pieces = []
    for number, tap in enumerate(np.ndindex(*window.kernel)):
        places = []
        for axis in (0, 1):
            form = [1, 1, 1]
            form[axis + 1] = -1
            base = n.arange(window.sizes[axis]) * window.strides[axis] - window.before[axis] + \
                tap[axis] * window.dilations[axis]
            shift = sliced(n, sliced(n, offsets, 1, number, number + 1, 1), 2, axis, axis + 1, 1)
            at = n.b.reshape_to(shift, (many, rows, columns)) + \
                n.b.known(base.reshape(form).astype(NUMPY[x.dtype]))
            places.append(n.b.reshape_to(at, (many, rows * columns)))
        piece = sampled_at(n, parts, places, "bilinear", (rows, columns))
        if masks is not None:
            piece = piece * sliced(n, masks, 1, number, number + 1, 1)
        pieces.append(n.b.unsqueeze(piece, 2))
    columns_of = n.b.reshape_to(n.b.concat(pieces, 2), (count, channels * taps, rows, columns))
    filters = n.b.reshape_to(w, (w.shape[0], w.shape[1] * taps, 1, 1))
    options = {} if bias is None else {"bias": bias}
    return n.b.conv2d(columns_of, filters, groups=groups, **options)

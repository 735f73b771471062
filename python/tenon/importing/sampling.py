"""Elements of images at computed places: grid_sample of three dimensions, by cubics, and beyond the borders."""

import math

import numpy as np

from .shaping import sliced


def sampled(n, x, grid, mode, padding, aligned):
    """The elements of images [N, C, sizes] at the places of a grid, [N, places, axes], which counts from the last axis.

    Places are from -1 to 1, which are the centres of the first and the last element if `aligned`, else their outer
    edges.
    """
    count, spatial = x.shape[0], n.spatial(x)
    sizes = [n.known_size(grid, axis) for axis in range(1, grid.rank - 1)]
    places = []
    for axis, size in enumerate(spatial):
        last = grid.shape[-1] - 1 - axis
        at = n.b.reshape_to(sliced(n, grid, grid.rank - 1, last, last + 1, 1), (count, math.prod(sizes)))
        at = (at + 1.0) * (0.5 * (size - 1)) if aligned else ((at + 1.0) * float(size) - 1.0) * 0.5
        places.append(at if mode == "bicubic" else _within(n, at, size, padding, aligned))
    return sampled_at(n, x, places, mode, sizes, padding, aligned)


def sampled_at(n, x, where, mode, sizes, padding="zeros", aligned=False):
    """Weighted sums over the elements around places, [N, places] for each axis, in elements from the first one."""
    count, channels, spatial = x.shape[0], n.known_size(x, 1), n.spatial(x)
    places = math.prod(sizes)
    flat = n.b.reshape_to(x, (count, channels, math.prod(spatial)))
    total, axes = None, []
    for at, size in zip(where, spatial):
        axes.append([(one, share, n.b.logical_and(n.b.ge(one, 0.0), n.b.le(one, float(size - 1))))
                     for one, share in _around(n, at, mode)])
    for choice in np.ndindex(*map(len, axes)):
        weight, index, inside = None, None, None
        for axis, pick in enumerate(choice):
            at, share, seen = axes[axis][pick]
            at = _within(n, at, spatial[axis], padding, aligned)
            place = n.b.cast(n.b.clamp(at, min=0.0, max=float(spatial[axis] - 1)), "i64") * \
                math.prod(spatial[axis + 1:])
            weight = share if weight is None else weight * share
            index = place if index is None else index + place
            inside = seen if inside is None else n.b.logical_and(inside, seen)
        if padding == "zeros":
            weight = n.b.where(inside, weight, n.b.number(0, x.dtype))
        picked = n.b.take_along(flat, n.b.broadcast(n.b.unsqueeze(index, 1), (count, channels, places)), axis=2)
        part = picked * n.b.unsqueeze(n.b.broadcast(weight, (count, places)), 1)
        total = part if total is None else total + part
    return n.b.reshape_to(total, (count, channels, *sizes))


def _within(n, at, size, padding, aligned):
    """Places beyond the borders at the border, or mirrored at it."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if aligned else (-0.5, float(size))
        if span:
            turned = n.b.remainder(at - low, n.b.number(2 * span, at.dtype))
            at = n.b.minimum(turned, 2 * span - turned) + low
    return n.b.clamp(at, min=0.0, max=float(size - 1))


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

"""Windows that move over images: convolutions."""

import math

import numpy as np

from . import sizes as sz
from .shaping import shaped, sliced
from .types import check_computed
from .values import Value


class Window:
    """A window that moves over the last axes of x: kernel, strides, dilations, and pads at both ends.

    `pads` are those of all axes at their beginnings, then at their ends; `auto` is a word of ONNX's auto_pad.
    """

    def __init__(self, n, x, kernel, strides=None, dilations=None, pads=None, ceil=False, auto="NOTSET"):
        self.rank = x.rank - 2
        self.kernel = list(kernel)
        if self.rank < 1 or len(self.kernel) != self.rank:
            raise n.malformed(f"a window of {self.kernel} for {x!r}")
        self.strides = self._list(n, "strides", strides)
        self.dilations = self._list(n, "dilations", dilations)
        if min(self.kernel + self.strides + self.dilations) < 1 or max(self.kernel) > 2**31:
            raise n.malformed(f"kernel {self.kernel}, strides {self.strides}, dilations {self.dilations}")
        self.extent = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]
        pads = [0] * 2 * self.rank if pads is None else list(pads)
        if len(pads) != 2 * self.rank:
            raise n.malformed(f"{n.part} 'pads': {pads} for {x!r}")
        self.before, self.after = pads[:self.rank], pads[self.rank:]
        self._auto(n, x, auto)
        if min(self.before + self.after) < 0:
            raise n.error(f"negative: {pads}", "pads")
        self.ceil = ceil
        self.sizes = [self._outputs(one, axis) for axis, one in enumerate(x.shape[2:])]
        if any(isinstance(one, int) and one < 1 for one in self.sizes):
            raise n.malformed(f"a window of {self.extent} does not fit into {x!r}")

    def _list(self, n, name, values):
        values = [1] * self.rank if values is None else list(values)
        if len(values) != self.rank:
            raise n.malformed(f"{n.part} '{name}': {values} for {self.rank} axes")
        return values

    def _auto(self, n, x, mode):
        if mode == "VALID":
            self.before, self.after = [0] * self.rank, [0] * self.rank
        if not mode.startswith("SAME"):
            return
        self.before, self.after = [], []
        for axis, (stride, extent) in enumerate(zip(self.strides, self.extent)):
            size = 0 if stride == 1 else n.known_size(x, axis + 2)
            total = extent - 1 if stride == 1 else max((-(-size // stride) - 1) * stride + extent - size, 0)
            low, high = total // 2, total - total // 2
            self.before.append(low if mode == "SAME_UPPER" else high)
            self.after.append(high if mode == "SAME_UPPER" else low)

    def _outputs(self, size, axis):
        stride = self.strides[axis]
        room = sz.add(size, self.before[axis] + self.after[axis] - self.extent[axis])
        if isinstance(room, int) and room < 0 and (not self.ceil or room + stride <= 0):
            return 0
        if not self.ceil:
            return sz.add(sz.divide(room, stride), 1)
        count = sz.add(sz.divide(sz.add(room, stride - 1), stride), 1)
        if isinstance(count, int) and (count - 1) * stride >= size + self.before[axis]:
            count -= 1  # no window begins in the padding at the end
        return count

    def ends(self, sizes):
        """Pads at the end that make room for every window, with those that `ceil_mode` adds."""
        if not self.ceil:
            return self.after
        return [max(after, (count - 1) * stride + extent - size - before)
                for after, count, stride, extent, size, before in
                zip(self.after, self.sizes, self.strides, self.extent, sizes, self.before)]


def widened(n, x, axes=1):
    """[N, C, W] as [N, C, 1, W]."""
    return n.b.reshape_to(x, (*x.shape[:2], *(1,) * axes, *x.shape[2:]))


def interleaved(before, after):
    """Pads of rows and columns as Tenon's ops order them: top, bottom, left, right."""
    return tuple(one for pair in zip(before, after) for one in pair)


def convolved(n, x, w, bias, window, groups, conv2d, filler=0.0):
    """The convolution along one, two or three axes, as one along two."""
    if groups < 1 or w.shape[0] % groups:
        raise n.malformed(f"{n.part} 'group': {groups} for {w!r}")
    if window.rank > 3:
        raise n.error(f"a window of {window.rank} axes")
    if window.rank == 3:
        return _conv3d(n, x, w, bias, window, groups, conv2d, filler)
    flat = window.rank == 1
    if flat:
        x, w = widened(n, x), n.b.reshape_to(w, (*w.shape[:2], 1, w.shape[2]))
    strides, dilations, before, after, extent = ([1 if i < 2 or i == 4 else 0] * flat + one for i, one in enumerate(
        (window.strides, window.dilations, window.before, window.after, window.extent)))
    x, before, after = narrow_pads(n, x, before, after, extent, filler)
    options = {} if bias is None else {"bias": bias}
    made = conv2d(x, w, stride=tuple(strides), dilation=tuple(dilations), padding=interleaved(before, after),
                  groups=groups, **options)
    if flat:
        made = n.b.squeeze(made, axis=2)
    return made


def narrow_pads(n, x, before, after, extent, filler):
    """Pads as wide as the window are made beforehand: the ops take narrower ones."""
    wide = [i for i in range(len(before)) if max(before[i], after[i]) >= extent[i]]
    if not wide:
        return x, before, after
    front, back = ([one[i] if i in wide else 0 for i in range(len(one))] for one in (before, after))
    sizes = tuple(sz.add(one, b + a) for one, b, a in zip(x.shape, (0, 0, *front), (0, 0, *back)))
    x = shaped(padded(n, x, (0, 0, *front), (0, 0, *back), filler), sizes)
    return x, [b - f for b, f in zip(before, front)], [a - b for a, b in zip(after, back)]


def padded(n, x, before, after, filler):
    """x with a number around it, which the program may compute."""
    if not isinstance(filler, Value):
        return n.b.pad(x, before=before, after=after, value=filler)
    inside = np.ones((1, 1, *n.spatial(x)), bool)
    check_computed(n.where, [one + b + a for one, b, a in zip(inside.shape, before, after)])
    inside = n.b.known(np.pad(inside, list(zip(before, after))))
    return n.b.where(inside, n.b.pad(x, before=before, after=after), filler)


def _conv3d(n, x, w, bias, window, groups, conv2d, filler):
    """Each slice of the result is a convolution of images, whose channels are those of the slices that it sees."""
    n.spatial(x)
    count, channels = x.shape[0], n.known_size(x, 1)
    taps, rows, columns = window.kernel
    depth = window.sizes[0]
    x = padded(n, x, (0, 0, window.before[0], 0, 0), (0, 0, window.after[0], 0, 0), filler)
    slices = []
    for tap in range(taps):
        first = tap * window.dilations[0]
        part = sliced(n, x, 2, first, first + (depth - 1) * window.strides[0] + 1, window.strides[0])
        slices.append(n.b.unsqueeze(part, 2))
    stack = n.b.concat(slices, 2)                          # [N, C, taps, D, H, W]
    sizes = (sz.mul(count, depth), channels * taps, *x.shape[3:])
    images = n.b.reshape_to(n.b.permute(stack, [0, 3, 1, 2, 4, 5]), sizes)
    filters = n.b.reshape_to(w, (w.shape[0], w.shape[1] * taps, rows, columns))
    before, after = window.before[1:], window.after[1:]
    images, before, after = narrow_pads(n, images, before, after, window.extent[1:], filler)
    options = {} if bias is None else {"bias": bias}
    made = conv2d(images, filters, stride=tuple(window.strides[1:]), dilation=tuple(window.dilations[1:]),
                  padding=interleaved(before, after), groups=groups, **options)
    made = n.b.reshape_to(made, (count, depth, w.shape[0], *window.sizes[1:]))
    return n.b.permute(made, [0, 2, 1, 3, 4])


def conv_transposed(n, x, w, bias, strides, dilations, before, after, extra, groups):
    if len(strides) == 3:
        return conv_transposed3d(n, x, w, bias, strides, dilations, before, after, extra, groups)
    flat = len(strides) == 1
    if flat:
        x, w = widened(n, x), n.b.reshape_to(w, (*w.shape[:2], 1, w.shape[2]))
        strides, dilations = [1, *strides], [1, *dilations]
        before, after, extra = [0, *before], [0, *after], [0, *extra]
    beyond = [e + max(-a, 0) for e, a in zip(extra, after)]
    fits = all(b >= 0 for b in before) and all(e < max(s, d) for e, s, d in zip(beyond, strides, dilations))
    if not fits:
        raise n.error(f"{beyond} rows and columns after the last window", "output_padding")
    options = {} if bias is None else {"bias": bias}
    if groups == 1 and w.is_known and max(dilations) == 1 and (max(strides) == 1 or math.prod(strides) > 2):
        made = _by_phases(n, x, w, bias, strides, before, after, beyond)
        if made is not None:
            return n.b.squeeze(made, axis=2) if flat else made
    made = n.b.conv_transpose2d(x, w, stride=tuple(strides), dilation=tuple(dilations), output_padding=tuple(beyond),
                                padding=interleaved(before, [max(a, 0) for a in after]), groups=groups, **options)
    return n.b.squeeze(made, axis=2) if flat else made


def _by_phases(n, x, w, bias, strides, before, after, extra):
    """A convolution that gives each run of `stride` results as channels, which then take turns as rows and columns.

    None where rows or columns are wanted beyond those runs.
    """
    inputs, outputs, *kernel = w.shape
    counts = [-(-k // s) for k, s in zip(kernel, strides)]
    cut = [m * s - k - e + max(a, 0) for m, s, k, e, a in zip(counts, strides, kernel, extra, after)]
    if min(cut) < 0:
        return None
    wide = np.zeros((inputs, outputs, *(m * s for m, s in zip(counts, strides))), w.array.dtype)
    wide[:, :, :kernel[0], :kernel[1]] = w.array
    parts = wide.reshape(inputs, outputs, counts[0], strides[0], counts[1], strides[1])[:, :, ::-1, :, ::-1]
    phases = math.prod(strides)
    filters = n.known_like(np.ascontiguousarray(parts.transpose(1, 3, 5, 0, 2, 4)).reshape(
        outputs * phases, inputs, *counts), w)
    options = {} if bias is None else {"bias": n.b.reshape_to(
        n.b.broadcast(n.b.reshape_to(bias, (outputs, 1)), (outputs, phases)), (outputs * phases,))}
    made = n.b.conv2d(x, filters, padding=tuple(m - 1 for m in counts), **options)
    sizes = [sz.add(size, m - 1) for size, m in zip(x.shape[2:], counts)]
    if phases > 1:
        made = n.b.split_axis(made, axis=1, sizes=(outputs, *strides))
        made = n.b.permute(made, [0, 1, 4, 2, 5, 3])
        made = n.b.merge_axes(n.b.merge_axes(made, axis=4, count=2), axis=2, count=2)
    made = shaped(made, (x.shape[0], outputs, *(sz.mul(size, s) for size, s in zip(sizes, strides))))
    for axis in (0, 1):
        made = sliced(n, made, axis + 2, before[axis], -cut[axis] if cut[axis] else None, 1)
    return made


def conv_transposed3d(n, x, w, bias, strides, dilations, before, after, extra, groups):
    """The sum over the filter's slices of transposed convolutions of images, at their depths."""
    count, channels, depth, rows, columns = x.shape[0], n.known_size(x, 1), *n.spatial(x)
    images = n.b.reshape_to(n.b.permute(x, [0, 2, 1, 3, 4]), (sz.mul(count, depth), channels, rows, columns))
    total = None
    for tap in range(w.shape[2]):
        filters = n.b.squeeze(sliced(n, w, 2, tap, tap + 1, 1), axis=2)
        part = conv_transposed(n, images, filters, None, strides[1:], dilations[1:], before[1:], after[1:], extra[1:],
                               groups)
        height, width = part.shape[2:]
        part = n.b.permute(n.b.reshape_to(part, (count, depth, part.shape[1], height, width)), [0, 2, 1, 3, 4])
        part = spread(n, part, 2, strides[0])
        first = tap * dilations[0]
        part = n.b.pad(part, before=(0, 0, first, 0, 0),
                       after=(0, 0, (w.shape[2] - 1) * dilations[0] - first + extra[0] + max(-after[0], 0), 0, 0))
        total = part if total is None else total + part
    made = sliced(n, total, 2, before[0], total.shape[2] - max(after[0], 0), 1)
    return made if bias is None else made + n.b.reshape_to(bias, (bias.shape[0], 1, 1, 1))


def spread(n, x, axis, step):
    """The elements of an axis with step - 1 zeros between them."""
    sizes, size = x.shape, n.known_size(x, axis)
    if step == 1 or size == 0:
        return x
    wide = n.b.unsqueeze(x, axis + 1)
    after = [0] * wide.rank
    after[axis + 1] = step - 1
    wide = n.b.pad(wide, before=(0,) * wide.rank, after=tuple(after))
    made = n.b.reshape_to(wide, (*sizes[:axis], size * step, *sizes[axis + 1:]))
    return sliced(n, made, axis, 0, (size - 1) * step + 1, 1)

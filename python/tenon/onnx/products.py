"""Matrix products and convolutions."""

import math

import numpy as np

from . import sizes as sz
from .node import op
from .pointwise import broadcast_sizes, shaped
from .shapes import sliced
from .types import FLOATS


@op("MatMul")
def matmul(n, a, b):
    _check_product(n, a, b)
    sizes = _product_shape(a, b)
    if b.is_known and not a.is_known and b.rank == 2 and b.dtype in FLOATS:
        return shaped(n.b.linear(a, _transposed(n, b)), sizes)
    return shaped(n.b.matmul(a, b), sizes)


def _check_product(n, a, b):
    if not a.rank or not b.rank:
        raise n.malformed(f"a scalar among {a!r} and {b!r}")
    left, right = a.shape[-1], b.shape[-2 if b.rank > 1 else 0]
    if isinstance(left, int) and isinstance(right, int) and left != right:
        raise n.malformed(f"{a!r} times {b!r}")


def _product_shape(a, b):
    rows = a.shape[-2:-1] if a.rank > 1 else ()
    columns = b.shape[-1:] if b.rank > 1 else ()
    batch = broadcast_sizes(a.shape[:-2], b.shape[:-2])
    return None if batch is None else batch + rows + columns


def _transposed(n, weight):
    """A known matrix with its axes swapped, once for all its users."""
    kept = n.importer.transposed
    if id(weight.array) not in kept:
        made = n.b.known(np.ascontiguousarray(weight.array.T), name=weight.name, inputs=weight.inputs)
        kept[id(weight.array)] = (weight.array, made)
    return kept[id(weight.array)][1]


@op("Gemm")
def gemm(n, a, b, c=None):
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    if a.rank != 2 or b.rank != 2:
        raise n.malformed(f"{a!r} times {b!r}: not matrices")
    a = n.b.permute(a, [1, 0]) if n.attribute("transA", 0) else a
    whole = a.dtype not in FLOATS
    if whole and not (float(alpha).is_integer() and float(beta).is_integer()):
        raise n.error(f"{alpha} and {beta} of {a.dtype}", "alpha")
    alpha, beta = (int(alpha), int(beta)) if whole else (alpha, beta)
    transposed = n.attribute("transB", 0)
    sizes = (a.shape[0], b.shape[0] if transposed else b.shape[1])
    if alpha != 1:
        a = a * alpha
    if whole or not b.is_known and not transposed:
        made = n.b.matmul(a, n.b.permute(b, [1, 0]) if transposed else b)
    else:
        weight = b if transposed else _transposed(n, b)
        if c is not None and beta == 1 and c.shape == (sizes[1],) and c.dtype == a.dtype:
            return shaped(n.b.linear(a, weight, bias=c), sizes)
        made = n.b.linear(a, weight)
    if c is not None and beta != 0:
        made = made + (c if beta == 1 else c * beta)
    return shaped(made, sizes)


@op("Einsum")
def einsum(n, *values):
    text = n.attribute("equation").replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise n.malformed(f"attribute 'equation': {text!r} for {len(values)} inputs")
    terms, dots = _with_letters_for_dots(n, terms, values)
    if not arrow:
        letters = "".join(terms)
        right = dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots))
    right = right.replace("...", dots)
    size = {}
    for term, value in zip(terms, values):
        for letter, one in zip(term, value.shape):
            size[letter] = one if size.get(letter, 1) == 1 else size[letter]
    if any(c not in size for c in right) or len(set(right)) != len(right):
        raise n.malformed(f"attribute 'equation': {text!r}")
    values = [_diagonals(n, term, value) for term, value in zip(terms, values)]
    terms = ["".join(dict.fromkeys(term)) for term in terms]
    while len(values) > 1:
        rest = set(right) | set("".join(terms[2:]))
        term, value = _contracted(n, terms[0], values[0], terms[1], values[1], rest)
        terms, values = [term, *terms[2:]], [value, *values[2:]]
    term, value = _summed(n, terms[0], values[0], set(right))
    return n.b.broadcast(n.b.permute(value, [term.index(c) for c in right]) if right else value,
                         tuple(size[c] for c in right))


def _with_letters_for_dots(n, terms, values):
    """Letters of their own for the axes that an ellipsis stands for."""
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in "".join(terms)]
    ranks = [value.rank - len(term.replace("...", "")) for term, value in zip(terms, values)]
    for term, rank in zip(terms, ranks):
        if rank < 0 or rank and "..." not in term or not term.replace("...", "").isalpha() and term not in ("", "..."):
            raise n.malformed(f"attribute 'equation': the term {term!r}")
    count = max((rank for term, rank in zip(terms, ranks) if "..." in term), default=0)
    dots = "".join(free[:count])
    return [term.replace("...", dots[count - rank:]) for term, rank in zip(terms, ranks)], dots


def _diagonals(n, term, value):
    """A letter that occurs twice in a term takes the diagonal."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            size = n.known_size(value, first)
            form = [1] * value.rank
            form[second] = size
            index = n.b.broadcast(n.b.known(n.arange(size).reshape(form)),
                                  tuple(1 if i == first else one for i, one in enumerate(n.static(value))))
            value = n.b.squeeze(n.b.take_along(value, index, axis=first), axis=first)
            term = term[:first] + term[first + 1:]
    return value


def _summed(n, term, value, keep):
    axes = [i for i, c in enumerate(term) if c not in keep]
    if axes:
        value = n.b.cast(n.b.sum(value, axis=axes, keep_dims=False), value.dtype)
    return "".join(c for c in term if c in keep), value


def _contracted(n, left, a, right, b, rest):
    """Two terms as one: a product of matrices over the letters that no other term has."""
    left, a = _summed(n, left, a, rest | set(right))
    right, b = _summed(n, right, b, rest | set(left))
    both = [c for c in left if c in right and c in rest]
    summed = [c for c in left if c in right and c not in rest]
    own_a = [c for c in left if c not in right]
    own_b = [c for c in right if c not in left]
    a_sizes, b_sizes = dict(zip(left, a.shape)), dict(zip(right, b.shape))
    shared = {c: b_sizes[c] if a_sizes[c] == 1 else a_sizes[c] for c in both + summed}
    a = _ordered(n, left, a, both + own_a + summed, {**a_sizes, **shared})
    b = _ordered(n, right, b, both + summed + own_b, {**b_sizes, **shared})
    batch = tuple(shared[c] for c in both)
    inner = sz.product(shared[c] for c in summed)
    a = n.b.reshape_to(a, (*batch, sz.product(a_sizes[c] for c in own_a), inner))
    b = n.b.reshape_to(b, (*batch, inner, sz.product(b_sizes[c] for c in own_b)))
    made = shaped(n.b.matmul(a, b), (*a.shape[:-1], b.shape[-1]))
    sizes = (*batch, *(a_sizes[c] for c in own_a), *(b_sizes[c] for c in own_b))
    return "".join(both + own_a + own_b), n.b.reshape_to(made, sizes)


def _ordered(n, term, value, order, sizes):
    moved = shaped(n.b.permute(value, [term.index(c) for c in order]), tuple(value.shape[term.index(c)] for c in order))
    return n.b.broadcast(moved, tuple(sizes[c] for c in order))


@op("Det")
def det(n, x):
    return n.b.det(x)


# Convolutions


class Window:
    """A window that moves over the last axes of x: kernel, strides, dilations, and pads at both ends."""

    def __init__(self, n, x, kernel, ceil_allowed=False):
        self.rank = x.rank - 2
        self.kernel = list(kernel)
        if self.rank < 1 or len(self.kernel) != self.rank:
            raise n.malformed(f"a window of {self.kernel} for {x!r}")
        self.strides = self._list(n, "strides", 1)
        self.dilations = self._list(n, "dilations", 1)
        if min(self.kernel + self.strides + self.dilations) < 1 or max(self.kernel) > 2**31:
            raise n.malformed(f"kernel {self.kernel}, strides {self.strides}, dilations {self.dilations}")
        self.extent = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]
        pads = n.attribute("pads", [0] * 2 * self.rank)
        if len(pads) != 2 * self.rank:
            raise n.malformed(f"attribute 'pads': {pads} for {x!r}")
        self.before, self.after = pads[:self.rank], pads[self.rank:]
        self._auto(n, x)
        if min(self.before + self.after) < 0:
            raise n.error(f"negative: {pads}", "pads")
        self.ceil = bool(ceil_allowed and n.attribute("ceil_mode", 0))
        self.sizes = [self._outputs(one, axis) for axis, one in enumerate(x.shape[2:])]
        if any(isinstance(one, int) and one < 1 for one in self.sizes):
            raise n.malformed(f"a window of {self.extent} does not fit into {x!r}")

    def _list(self, n, name, default):
        values = n.attribute(name, [default] * self.rank)
        if len(values) != self.rank:
            raise n.malformed(f"attribute '{name}': {values} for {self.rank} axes")
        return values

    def _auto(self, n, x):
        mode = n.words("auto_pad", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""))
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
        if isinstance(room, int) and room < 0:
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


@op("Conv")
def conv(n, x, w, bias=None):
    kernel = n.attribute("kernel_shape", list(n.static(w, "w")[2:]))
    if list(w.shape[2:]) != list(kernel) or w.rank != x.rank or x.rank < 3:
        raise n.malformed(f"attribute 'kernel_shape': {kernel} of {w!r}, for {x!r}")
    window = Window(n, x, kernel)
    made = convolved(n, x, w, bias, window, n.attribute("group", 1), n.b.conv2d)
    return shaped(made, (x.shape[0], w.shape[0], *window.sizes))


def convolved(n, x, w, bias, window, groups, conv2d, filler=0.0):
    """The convolution along one, two or three axes, as one along two."""
    if groups < 1 or w.shape[0] % groups:
        raise n.malformed(f"attribute 'group': {groups} for {w!r}")
    if window.rank > 3:
        raise n.error(f"of {window.rank} axes", "kernel_shape")
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
    x = shaped(n.b.pad(x, before=(0, 0, *front), after=(0, 0, *back), value=filler), sizes)
    return x, [b - f for b, f in zip(before, front)], [a - b for a, b in zip(after, back)]


def _conv3d(n, x, w, bias, window, groups, conv2d, filler):
    """Each slice of the result is a convolution of images, whose channels are those of the slices that it sees."""
    count, channels = n.static(x)[:2]
    taps, rows, columns = window.kernel
    depth = window.sizes[0]
    x = n.b.pad(x, before=(0, 0, window.before[0], 0, 0), after=(0, 0, window.after[0], 0, 0), value=filler)
    slices = []
    for tap in range(taps):
        first = tap * window.dilations[0]
        part = sliced(n, x, 2, first, first + (depth - 1) * window.strides[0] + 1, window.strides[0])
        slices.append(n.b.unsqueeze(part, 2))
    stack = n.b.concat(slices, 2)                          # [N, C, taps, D, H, W]
    images = n.b.reshape_to(n.b.permute(stack, [0, 3, 1, 2, 4, 5]), (count * depth, channels * taps, *x.shape[3:]))
    filters = n.b.reshape_to(w, (w.shape[0], w.shape[1] * taps, rows, columns))
    before, after = window.before[1:], window.after[1:]
    images, before, after = narrow_pads(n, images, before, after, window.extent[1:], filler)
    options = {} if bias is None else {"bias": bias}
    made = conv2d(images, filters, stride=tuple(window.strides[1:]), dilation=tuple(window.dilations[1:]),
                  padding=interleaved(before, after), groups=groups, **options)
    made = n.b.reshape_to(made, (count, depth, w.shape[0], *window.sizes[1:]))
    return n.b.permute(made, [0, 2, 1, 3, 4])


@op("ConvTranspose")
def conv_transpose(n, x, w, bias=None):
    rank = x.rank - 2
    kernel = n.attribute("kernel_shape", list(n.static(w, "w")[2:]))
    if not 1 <= rank <= 3 or list(w.shape[2:]) != list(kernel) or w.rank != x.rank:
        raise n.malformed(f"attribute 'kernel_shape': {kernel} of {w!r}, for {x!r}")
    strides, dilations = n.attribute("strides", [1] * rank), n.attribute("dilations", [1] * rank)
    extra = n.attribute("output_padding", [0] * rank)
    if not len(strides) == len(dilations) == len(extra) == rank or min(strides + dilations) < 1 or min(extra) < 0:
        raise n.malformed(f"strides {strides}, dilations {dilations}, output_padding {extra} for {x!r}")
    groups = n.attribute("group", 1)
    full = [sz.add(sz.mul(sz.sub(size, 1), s), (k - 1) * d + 1 + e)
            for size, s, k, d, e in zip(x.shape[2:], strides, kernel, dilations, extra)]
    before, after = _transposed_pads(n, x, full, strides)
    made = _conv_transpose(n, x, w, bias, strides, dilations, before, after, extra, groups)
    sizes = tuple(sz.sub(one, b + a) for one, b, a in zip(full, before, after))
    return shaped(made, (x.shape[0], w.shape[1] * groups, *sizes))


def _transposed_pads(n, x, full, strides):
    """What is cut off at both ends; negative where the result is wider than what the windows reach."""
    rank = len(full)
    mode = n.words("auto_pad", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""))
    wanted = n.attribute("output_shape", None)
    if wanted is None and not mode.startswith("SAME"):
        pads = [0] * 2 * rank if mode == "VALID" else n.attribute("pads", [0] * 2 * rank)
        if len(pads) != 2 * rank:
            raise n.malformed(f"attribute 'pads': {pads} for {x!r}")
        return pads[:rank], pads[rank:]
    if wanted is None:
        wanted = [n.known_size(x, i + 2) * s for i, s in enumerate(strides)]
    wanted = wanted[-rank:]
    totals = [sz.sub(one, want) for one, want in zip(full, wanted)]
    if not all(isinstance(one, int) for one in totals):
        n.static(x)
    before = [one // 2 if mode == "SAME_UPPER" else one - one // 2 for one in totals]
    before = [0 if total < 0 else one for one, total in zip(before, totals)]
    return before, [total - one for total, one in zip(totals, before)]


def _conv_transpose(n, x, w, bias, strides, dilations, before, after, extra, groups):
    if len(strides) == 3:
        return _conv_transpose3d(n, x, w, bias, strides, dilations, before, after, extra, groups)
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
    """A convolution that gives each stretch of `stride` results as channels, which then take turns as rows and columns.

    None where rows or columns are wanted beyond those stretches.
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


def _conv_transpose3d(n, x, w, bias, strides, dilations, before, after, extra, groups):
    """The sum over the filter's slices of transposed convolutions of images, at their depths."""
    count, channels, depth, rows, columns = n.static(x)
    images = n.b.reshape_to(n.b.permute(x, [0, 2, 1, 3, 4]), (count * depth, channels, rows, columns))
    total = None
    for tap in range(w.shape[2]):
        filters = n.b.squeeze(sliced(n, w, 2, tap, tap + 1, 1), axis=2)
        part = _conv_transpose(n, images, filters, None, strides[1:], dilations[1:], before[1:], after[1:], extra[1:],
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
    sizes = n.static(x)
    if step == 1 or sizes[axis] == 0:
        return x
    wide = n.b.unsqueeze(x, axis + 1)
    after = [0] * wide.rank
    after[axis + 1] = step - 1
    wide = n.b.pad(wide, before=(0,) * wide.rank, after=tuple(after))
    made = n.b.reshape_to(wide, (*sizes[:axis], sizes[axis] * step, *sizes[axis + 1:]))
    return sliced(n, made, axis, 0, (sizes[axis] - 1) * step + 1, 1)


@op("Col2Im")
def col2im(n, x, image, block):
    sizes, kernel = n.integers(image, "the image's sizes"), n.integers(block, "the block's sizes")
    rank = len(sizes)
    strides, dilations = n.attribute("strides", [1] * rank), n.attribute("dilations", [1] * rank)
    pads = n.attribute("pads", [0] * 2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank or min(pads) < 0 or \
            min(kernel + strides + dilations + sizes) < 1 or math.prod(kernel) > 2**12:
        raise n.malformed(f"blocks of {kernel} in an image of {sizes}")
    count, rows, _ = n.static(x)
    channels = rows // math.prod(kernel)
    counts = [(s + pads[i] + pads[i + rank] - (k - 1) * d - 1) // t + 1
              for i, (s, k, d, t) in enumerate(zip(sizes, kernel, dilations, strides))]
    parts = n.b.reshape_to(x, (count, channels, math.prod(kernel), *counts))
    total = None
    for number, tap in enumerate(np.ndindex(*kernel)):
        part = n.b.squeeze(sliced(n, parts, 2, number, number + 1, 1), axis=2)
        before, after = [0, 0], [0, 0]
        for axis in range(rank):
            part = spread(n, part, axis + 2, strides[axis])
            before.append(tap[axis] * dilations[axis])
            after.append(sizes[axis] + pads[axis] + pads[axis + rank] - before[-1] - part.shape[axis + 2])
        part = n.b.pad(part, before=tuple(before), after=tuple(after))
        total = part if total is None else total + part
    for axis in range(rank):
        total = sliced(n, total, axis + 2, pads[axis], pads[axis] + sizes[axis], 1)
    return total

"""Matrix products and convolutions."""

import math

import numpy as np

from ..importing import contraction
from ..importing import sizes as sz
from ..importing.products import multiplied, transposed
from ..importing.shaping import shaped, sliced
from ..importing.types import FLOATS
from ..importing.windows import Window, conv_transposed, convolved, spread
from .blocks import packed_weight
from .node import op


@op("MatMul")
def matmul(n, a, b):
    stored = packed_weight(b) if n.importer.packed and not a.is_known and a.rank > 1 else None
    if stored is not None:
        return shaped(n.b.linear(a, n.b.stored(stored, b.name)), (*a.shape[:-1], b.shape[1]))
    return multiplied(n, a, b)


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
    turned = n.attribute("transB", 0)
    sizes = (a.shape[0], b.shape[0] if turned else b.shape[1])
    if alpha != 1:
        a = a * alpha
    if whole or not b.is_known and not turned:
        made = n.b.matmul(a, n.b.permute(b, [1, 0]) if turned else b)
    else:
        weight = b if turned else transposed(n, b)
        if c is not None and beta == 1 and c.shape == (sizes[1],) and c.dtype == a.dtype:
            return shaped(n.b.linear(a, weight, bias=c), sizes)
        made = n.b.linear(a, weight)
    if c is not None and beta != 0:
        made = made + (c if beta == 1 else c * beta)
    return shaped(made, sizes)


@op("Einsum")
def einsum(n, *values):
    return contraction.einsum(n, n.attribute("equation"), values)


@op("Det")
def det(n, x):
    return n.b.det(x)


# Convolutions


def window_of(n, x, kernel, ceil_allowed=False):
    """The window that a node's attributes describe."""
    auto = n.words("auto_pad", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""))
    ceil = bool(ceil_allowed and n.attribute("ceil_mode", 0))
    return Window(n, x, kernel, *(n.attribute(name, None) for name in ("strides", "dilations", "pads")), ceil, auto)


@op("Conv")
def conv(n, x, w, bias=None):
    kernel = n.attribute("kernel_shape", list(n.static(w, "w")[2:]))
    if list(w.shape[2:]) != list(kernel) or w.rank != x.rank or x.rank < 3:
        raise n.malformed(f"attribute 'kernel_shape': {kernel} of {w!r}, for {x!r}")
    window = window_of(n, x, kernel)
    made = convolved(n, x, w, bias, window, n.attribute("group", 1), n.b.conv2d)
    return shaped(made, (x.shape[0], w.shape[0], *window.sizes))


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
    made = conv_transposed(n, x, w, bias, strides, dilations, before, after, extra, groups)
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

"""Codes with scales and zero points."""

import math

import numpy as np

from ..importing import sizes as sz
from ..importing.shaping import shaped, sliced
from ..importing.types import NUMPY, limits
from ..importing.windows import convolved
from .blocks import BLOCKS
from .node import op
from .pointwise import to_f8
from .products import window_of
from .types import CODES

_BYTES = ("i8", "u8")


def _axis(n, x, scale):
    """The axis of a scale's numbers, of which a single one has none."""
    axis = n.attribute("axis", 1)
    return 0 if scale.is_static and math.prod(scale.shape) == 1 else n.axis(axis, x.rank)


def _along(n, value, x, axis, block):
    """A scale or zero point as an operand of x: a number for each index of an axis, or for each block."""
    if value.rank == 0 or value.is_static and math.prod(value.shape) == 1:
        return n.b.reshape_to(value, ())
    if block:
        sizes = value.shape
        if value.rank != x.rank:
            raise n.malformed(f"a scale of {value!r} for blocks of {x!r}")
        wide = n.b.broadcast(n.b.reshape_to(value, (*sizes[:axis + 1], 1, *sizes[axis + 1:])),
                             (*sizes[:axis + 1], block, *sizes[axis + 1:]))
        wide = n.b.reshape_to(wide, (*sizes[:axis], sz.mul(sizes[axis], block), *sizes[axis + 1:]))
        return sliced(n, wide, axis, 0, n.known_size(x, axis), 1)
    if value.rank != 1:
        raise n.malformed(f"a scale of {value!r} for axis {axis} of {x!r}")
    return n.b.reshape_to(value, value.shape + (1,) * (x.rank - axis - 1))


def _code_type(n, zero):
    given = n.type("output_dtype") if n.attribute("output_dtype", 0) else None
    return given or (zero.dtype if zero is not None else "u8")


@op("QuantizeLinear")
def quantize_linear(n, x, scale, zero=None):
    dtype, axis, block = _code_type(n, zero), _axis(n, x, scale), n.attribute("block_size", 0)
    if n.has("precision") and n.attribute("precision"):
        raise n.error(f"{n.attribute('precision')}", "precision")
    if scale.dtype == x.dtype == "f32" and dtype in _BYTES and not block:
        if scale.rank == 1 and scale.shape[0] == 1:
            scale = n.b.reshape_to(scale, ())
            zero = None if zero is None else n.b.reshape_to(zero, ())
        operands = [x, scale] if zero is None else [x, scale, zero]
        return shaped(n.b.quantize_linear(*operands, axis=axis, dtype=dtype), x.shape)
    return shaped(_quantized(n, x, scale, zero, dtype, axis, block), x.shape)


def _quantized(n, x, scale, zero, dtype, axis, block):
    """To other codes than those of 8 bits, op by op."""
    wide = "f32" if x.dtype in ("f16", "bf16", "i32") else x.dtype
    quotient = n.b.cast(x, wide) / n.b.cast(_along(n, scale, x, axis, block), wide)
    if dtype.startswith("f8"):
        if zero is not None and n.array(zero, "the zero point").astype(np.float32).any():
            raise n.error("a zero point other than 0 for 8-bit floats")
        return to_f8(n, n.b.cast(quotient, "f32"), dtype)
    codes = n.b.round(quotient)
    if zero is not None:
        codes = codes + n.b.cast(_along(n, zero, x, axis, block), wide)
    low, high = limits(dtype)
    return n.b.cast(n.b.clamp(codes, min=float(low), max=float(high)), dtype)


@op("DequantizeLinear")
def dequantize_linear(n, x, scale, zero=None):
    axis, block = _axis(n, x, scale), n.attribute("block_size", 0)
    to = n.type("output_dtype") if n.attribute("output_dtype", 0) else scale.dtype
    if x.origin and x.origin[0] == CODES and scale.is_known and (zero is None or zero.is_known):
        return _widened(n, x, scale, zero, axis, block, to)
    if x.is_known and x.rank > 1:
        x = n.b.constant(x)  # a weight stays a weight of codes
    if scale.dtype == to == "f32" and x.dtype in (*_BYTES, "i32") and not block:
        if scale.rank == 1 and scale.shape[0] == 1:
            scale = n.b.reshape_to(scale, ())
            zero = None if zero is None else n.b.reshape_to(zero, ())
        operands = [x, scale] if zero is None else [x, scale, zero]
        return shaped(n.b.dequantize_linear(*operands, axis=axis), x.shape)
    wide = n.b.cast(x, "f32")
    if zero is not None:
        wide = wide - n.b.cast(_along(n, zero, x, axis, block), "f32")
    return shaped(n.b.cast(wide * n.b.cast(_along(n, scale, x, axis, block), "f32"), to), x.shape)


def _widened(n, x, scale, zero, axis, block, to):
    """A weight of a few bits as numbers, computed while the model is read; MatMul may keep it in blocks."""
    codes, steps = x.array.astype(np.float32), scale.array.astype(np.float32)
    middle = np.zeros_like(steps) if zero is None else zero.array.astype(np.float32)
    if zero is not None and middle.shape != steps.shape:
        raise n.malformed(f"zero points {zero!r} of scales {scale!r}")

    def along(one):
        if one.size == 1:
            return one.reshape(())
        if block:
            return np.take(np.repeat(one, block, axis=axis), np.arange(codes.shape[axis]), axis=axis)
        return one.reshape(-1, *[1] * (codes.ndim - axis - 1))

    fits = steps.size == 1 or (steps.ndim == codes.ndim and block and all(
        have == (-(-size // block) if i == axis else size)
        for i, (have, size) in enumerate(zip(steps.shape, codes.shape, strict=True)))) or \
        (not block and steps.shape == codes.shape[axis:axis + 1])
    if not fits:
        raise n.malformed(f"a scale of {scale!r} for {x!r}")
    made = n.b.known(((codes - along(middle)) * along(steps)).astype(NUMPY[to]), name=x.name, inputs=x.inputs)
    if block and axis == 0 and codes.ndim == 2:
        made.origin = (BLOCKS, x.array, middle, steps, x.origin[1], block)
    return made


@op("MatMulInteger")
def matmul_integer(n, a, b, a_zero=None, b_zero=None):
    return _sums(n, a, b, a_zero, b_zero)


def _sums(n, a, b, a_zero, b_zero):
    """Exact sums of products in i32."""
    a_zero = _one(n, a_zero)
    if a_zero is not None and a_zero.rank:  # a zero point for each row
        a = n.b.cast(a, "i32") - n.b.cast(n.b.reshape_to(a_zero, (*a_zero.shape, 1)), "i32")
        b = n.b.cast(b, "i32")
        b = b if b_zero is None else b - n.b.cast(b_zero, "i32")
        return n.b.matmul(a, b)
    b_zero = _one(n, b_zero)
    if b_zero is not None and b_zero.rank > 1:
        raise n.error(f"zero points of {b_zero!r}")
    zeros = _zeros(n, a, a_zero, b_zero, b)
    return n.b.matmul_integer(a, b, *zeros)


def _zeros(n, a, a_zero, b_zero, b):
    if a_zero is None and b_zero is None:
        return []
    first = a_zero if a_zero is not None else n.b.number(0, a.dtype)
    return [first] if b_zero is None else [first, b_zero]


def _one(n, value):
    """A scale or zero point of one element as a single number."""
    if value is not None and value.is_static and math.prod(value.shape) == 1:
        return n.b.reshape_to(value, ())
    return value


@op("ConvInteger")
def conv_integer(n, x, w, x_zero=None, w_zero=None):
    return _conv_sums(n, x, w, x_zero, w_zero)


def _conv_sums(n, x, w, x_zero, w_zero):
    kernel = n.attribute("kernel_shape", list(n.static(w, "w")[2:]))
    window = window_of(n, x, kernel)
    zeros = _zeros(n, x, _one(n, x_zero), _one(n, w_zero), w)
    filler = 0.0 if not zeros else float(n.number(zeros[0], "the zero point")) if zeros[0].is_known else zeros[0]

    def product(images, filters, **options):
        return n.b.conv2d_integer(images, filters, *zeros, **options)

    made = convolved(n, x, w, None, window, n.attribute("group", 1), product, filler)
    return shaped(made, (x.shape[0], w.shape[0], *window.sizes))


@op("QLinearConv")
def qlinear_conv(n, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None):
    sums = _conv_sums(n, x, w, x_zero, w_zero)
    if bias is not None:
        sums = sums + n.b.reshape_to(bias, bias.shape + (1,) * (x.rank - 2))
    return _requantized(n, sums, _one(n, x_scale) * _one(n, w_scale) / _one(n, y_scale), _one(n, y_zero), 1)


def _requantized(n, sums, multiplier, zero, axis):
    if multiplier.rank > 1 or multiplier.dtype != "f32":
        raise n.error(f"scales of {multiplier!r}")
    real = n.b.dequantize_linear(sums, multiplier, axis=axis)
    one = n.b.number(1, "f32")
    return n.b.quantize_linear(real, one, zero, axis=axis, dtype=zero.dtype)


@op("QLinearMatMul")
def qlinear_matmul(n, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
    sums = _sums(n, a, b, a_zero, b_zero)
    scales = [_one(n, one) for one in (a_scale, b_scale, y_scale)]
    if a.dtype not in _BYTES or b.dtype not in _BYTES:
        raise n.error(f"codes of {a.dtype} and {b.dtype}")
    if any(one.dtype != "f32" for one in scales):
        scales = [n.b.cast(one, "f32") for one in scales]
    return _requantized(n, sums, scales[0] * scales[1] / scales[2], _one(n, y_zero), sums.rank - 1)

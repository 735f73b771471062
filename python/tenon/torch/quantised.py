"""Codes: the ops of pt2e, quantize_per_tensor and its like."""

import numpy as np

from ..importing.shaping import shaped
from ..importing.types import limits
from ..importing.values import Value
from .node import op


def _operand(n, number, dtype):
    if isinstance(number, Value):
        return n.b.reshape_to(n.cast(number, dtype), number.shape)
    return n.b.known(np.array(number, np.dtype({"f32": "float32", "i8": "int8", "u8": "uint8"}[dtype])))


def _check(n, dtype, quant_min, quant_max):
    if dtype not in ("i8", "u8"):
        raise n.error(f"codes of {dtype}", "dtype")
    if (quant_min, quant_max) != limits(dtype):
        return (quant_min, quant_max)
    return None


@op("quantize_per_tensor.default", "quantize_per_tensor.tensor", "quantize_per_channel.default",
    domain="quantized_decomposed")
def quantize(n, input, scale=None, zero_point=None, scales=None, zero_points=None, axis=0, quant_min=None,
             quant_max=None, dtype=None):
    bounds = _check(n, dtype, quant_min, quant_max)
    scale, zero = (scale, zero_point) if scales is None else (scales, zero_points)
    made = n.b.quantize_linear(input, _operand(n, scale, "f32"), _operand(n, zero, dtype), axis=axis, dtype=dtype)
    if bounds is not None:
        made = n.b.clamp(made, min=float(bounds[0]), max=float(bounds[1]))
    return shaped(made, input.shape)


@op("dequantize_per_tensor.default", "dequantize_per_tensor.tensor", "dequantize_per_channel.default",
    domain="quantized_decomposed")
def dequantize(n, input, scale=None, zero_point=None, scales=None, zero_points=None, axis=0, quant_min=None,
               quant_max=None, dtype=None, out_dtype=None):
    _check(n, input.dtype, *limits(input.dtype))
    scale, zero = (scale, zero_point) if scales is None else (scales, zero_points)
    zero = 0 if zero is None else zero
    codes = n.b.constant(input) if input.is_known else input  # it stays in codes
    made = n.b.dequantize_linear(codes, _operand(n, scale, "f32"), _operand(n, zero, input.dtype), axis=axis)
    return shaped(made, input.shape)

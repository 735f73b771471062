"""Between numbers and codes."""
import numpy as np

from . import op, raw
from ..blocks import decode, encode
from ..tensors import NUMPY, cast


@raw
def dequantize(x, dtype, result):
    return cast(decode(x), dtype)


@raw
def quantize(x, dtype, result):
    return encode(x.data.astype(np.float64), dtype)


def along(parameter, x, axis):
    """A scale or zero point, so that it broadcasts."""
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


@op
def quantize_linear(x, scale, zero=None, *, axis, dtype):
    codes = np.rint((x / along(scale, x, axis)).astype(np.float32)).astype(np.float64)
    if zero is not None:
        codes = codes + along(zero, x, axis)
    limits = np.iinfo(NUMPY[dtype])
    return np.clip(np.where(np.isnan(codes), limits.min, codes), limits.min, limits.max)


@op
def dequantize_linear(x, scale, zero=None, *, axis):
    codes = x.astype(np.int32)
    if zero is not None:
        codes = codes - along(zero, x, axis).astype(np.int32)
    return codes.astype(np.float32).astype(np.float64) * along(scale, x, axis)

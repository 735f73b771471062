"""Weights of a few bits with scales, as ONNX Runtime stores them, in the block types that Tenon computes with."""

import numpy as np

from .. import _tenon

# Value.origin is (BLOCKS, codes [K, N], zero points, scales [groups, N], bits, codes of a group) for a known weight
# that codes of a few bits were widened to.
BLOCKS = "blocks"
_BLOCK = 32


def packed(codes, zeros, scales, bits, size, exactly=False):
    """A weight (codes - zeros) * scales as an array of q4_0, q4_1 or q8_0, or None where none of them holds it.

    Codes are whole numbers of 2, 4 or 8 bits, [N, K]; zeros and scales are [N, groups], of `size` adjacent codes each.
    Scales, and their products with zero points, are rounded to f16; `exactly`: not even that."""
    rows, width = codes.shape
    if size % _BLOCK or width % _BLOCK:
        return None
    blocks = width // _BLOCK
    zeros, scales = (np.repeat(one, size // _BLOCK, axis=1)[:, :blocks].astype(np.float32) for one in (zeros, scales))
    codes = codes.reshape(rows, blocks, _BLOCK)
    middle = 1 << (bits - 1)
    symmetric = (zeros == middle).all()
    if bits == 8 and not symmetric:
        return None
    numbers = [scales] if symmetric else [scales, -zeros * scales]
    with np.errstate(over="ignore"):
        halves = [one.astype(np.float16) for one in numbers]
    share = np.float32(0 if exactly else 2**-11)
    if not all(_is_near(half, one, share) for half, one in zip(halves, numbers, strict=True)):
        return None
    if bits == 8:
        stored, kind = (codes.astype(np.int16) - middle).astype(np.int8).view(np.uint8), "q8_0"
    else:
        wide = codes.astype(np.uint8) + (8 - middle if symmetric else 0)
        stored, kind = wide[..., :_BLOCK // 2] | wide[..., _BLOCK // 2:] << 4, "q4_0" if symmetric else "q4_1"
    heads = [half[..., None].view(np.uint8) for half in halves]
    return _tenon.HostBuffer(np.concatenate([*heads, stored], axis=-1).tobytes(), _tenon.Shape((rows, width), kind))


def packed_weight(weight):
    """A known weight [K, N] of such codes as an array [N, K] of a block type, or None where none holds it."""
    if not weight.origin or weight.origin[0] != BLOCKS:
        return None
    _, codes, zeros, scales, bits, size = weight.origin
    middle = 1 << (bits - 1) if codes.dtype == np.int8 else 0  # codes of block types have no sign
    return packed((codes.T.astype(np.int16) + middle).astype(np.float32), zeros.T + middle, scales.T, bits, size)


def _is_near(half, one, share):
    """Whether numbers, [N, groups], lost no more than a share of their row's largest: f16 loses 2^-11."""
    return (np.abs(half.astype(np.float32) - one) <= np.abs(one).max(axis=1, keepdims=True) * share).all()

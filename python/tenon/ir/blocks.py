"""Block types: what their bytes stand for, as the GGUF specification has it.

A decoder takes the blocks of an array as bytes, [blocks, bytes], and gives float32 [blocks, elements].
"""
import functools
import json
import pathlib

import numpy as np

from .errors import Unsupported
from .tensors import DTYPES

IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)  # doubled


def decode(array):
    """The float32 values of an Array of a block type."""
    facts = DTYPES[array.dtype]
    if array.dtype not in _DECODERS:
        raise Unsupported(f"there is no numpy reference that decodes {array.dtype}")
    if array.data.size == 0:
        return np.zeros(array.shape, np.float32)
    blocks = np.ascontiguousarray(array.data).reshape(-1, facts.bytes)
    with np.errstate(all="ignore"):
        return _DECODERS[array.dtype](blocks).astype(np.float32).reshape(array.shape)


def encode(values, dtype):
    """The bytes of numbers along the last axis, by the arithmetic in f32 of llama.cpp's own encoders."""
    facts = DTYPES[dtype]
    if dtype not in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0"):
        raise Unsupported(f"there is no numpy reference that encodes {dtype}")
    x = np.asarray(values, np.float32).reshape(-1, 32)
    with np.errstate(all="ignore"):
        parts = _encoded(x, dtype)
    blocks = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts], axis=1)
    return blocks.reshape(values.shape[:-1] + (values.shape[-1] // facts.block * facts.bytes,))


def _encoded(x, dtype):
    """The parts of blocks, in their order."""
    half = np.float32(0.5)
    if dtype == "q8_0":
        d = np.abs(x).max(axis=1, keepdims=True, initial=0) / np.float32(127)
        scaled = x * _inverse(d)
        # Halves go away from zero; 0.5 itself would carry what is just below one up as well.
        codes = np.trunc(scaled + np.copysign(np.nextafter(half, np.float32(0)), scaled))
        return d.astype(np.float16), codes.astype(np.int8)
    levels = 16 if dtype.startswith("q4") else 32
    if dtype.endswith("_0"):  # around the middle, the element of largest magnitude at code 0
        middle = np.float32(levels // 2)
        d = np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), 1) / -middle
        scales = [d.astype(np.float16)]
        codes = x * _inverse(d) + (middle + half)
    else:  # between the smallest and the largest element
        m = x.min(axis=1, keepdims=True)
        d = (x.max(axis=1, keepdims=True) - m) / np.float32(levels - 1)
        scales = [d.astype(np.float16), m.astype(np.float16)]
        codes = (x - m) * _inverse(d) + half
    codes = np.clip(np.nan_to_num(codes, nan=0), 0, levels - 1).astype(np.uint8)
    high = [] if levels == 16 else [np.packbits(codes >> 4, axis=1, bitorder="little")]
    return *scales, *high, codes[:, :16] & 15 | (codes[:, 16:] & 15) << 4


def _inverse(d):
    """1 / d, and 0 where that is no finite number: the block then rounds to zeros."""
    inverse = np.float32(1) / d
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def _half(blocks, at):
    """The f16 at a byte offset of each block, as a column of float32."""
    return np.ascontiguousarray(blocks[:, at:at + 2]).view(np.float16).astype(np.float32)


def _nibbles(bytes_):
    """The lower four bits of all bytes, then the upper ones."""
    return np.concatenate([bytes_ & 15, bytes_ >> 4], axis=-1)


def _bits(blocks, at):
    """The 32 bits of a word, lowest first."""
    return np.unpackbits(blocks[:, at:at + 4], axis=1, bitorder="little")


def _q4_0(b):
    return _half(b, 0) * (_nibbles(b[:, 2:]).astype(np.float32) - 8)


def _q4_1(b):
    return _half(b, 0) * _nibbles(b[:, 4:]) + _half(b, 2)


def _q5_0(b):
    return _half(b, 0) * ((_nibbles(b[:, 6:]) | _bits(b, 2) << 4).astype(np.float32) - 16)


def _q5_1(b):
    return _half(b, 0) * (_nibbles(b[:, 8:]) | _bits(b, 4) << 4) + _half(b, 2)


def _q8_0(b):
    return _half(b, 0) * b[:, 2:].view(np.int8)


def _pairs_of_bits(bytes_):
    """[blocks, 32 k] bytes: for each 32 of them the two lowest bits, then the next, ...; as [blocks, 128 k]."""
    groups = bytes_.reshape(len(bytes_), -1, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)
    return (groups >> shifts & 3).reshape(len(bytes_), -1)


def _q2_k(b):
    q = _pairs_of_bits(b[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    scale, least = (b[:, :16] & 15).astype(np.float32), (b[:, :16] >> 4).astype(np.float32)
    d, m = _half(b, 80) * scale, _half(b, 82) * least
    return d[..., None] * q - m[..., None]


def _q3_k(b):
    q = _pairs_of_bits(b[:, 32:96]).astype(np.int8)
    high = (b[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & 1).reshape(len(b), 256)
    q = q - np.where(high, 0, 4).astype(np.int8)
    low = _nibbles(b[:, 96:104])
    top = (b[:, None, 104:108] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3).reshape(len(b), 16)
    scale = (low | top << 4).astype(np.int8) - 32
    return (_half(b, 108) * scale)[..., None] * q.reshape(-1, 16, 16)


def _scales_and_minima(s):
    """Eight scales and eight minima of six bits each, in twelve bytes."""
    scale = np.concatenate([s[:, :4] & 63, (s[:, 8:] & 15) | (s[:, :4] >> 6) << 4], axis=1)
    least = np.concatenate([s[:, 4:8] & 63, (s[:, 8:] >> 4) | (s[:, 4:8] >> 6) << 4], axis=1)
    return scale.astype(np.float32), least.astype(np.float32)


def _q4_k(b):
    scale, least = _scales_and_minima(b[:, 4:16])
    q = _nibbles(b[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (_half(b, 0) * scale)[..., None] * q - (_half(b, 2) * least)[..., None]


def _q5_k(b):
    scale, least = _scales_and_minima(b[:, 4:16])
    high = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    q = _nibbles(b[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | high << 4
    return (_half(b, 0) * scale)[..., None] * q - (_half(b, 2) * least)[..., None]


def _q6_k(b):
    low = _nibbles(b[:, :128].reshape(-1, 2, 64)).reshape(-1, 256)
    q = (low | _pairs_of_bits(b[:, 128:192]) << 4).astype(np.float32) - 32
    scale = _half(b, 208) * b[:, 192:208].view(np.int8)
    return scale[..., None] * q.reshape(-1, 16, 16)


def _q8_k(b):
    return np.ascontiguousarray(b[:, :4]).view(np.float32) * b[:, 4:260].view(np.int8)


def _iq4_nl(b):
    return _half(b, 0) * IQ4[_nibbles(b[:, 2:])]


def _iq4_xs(b):
    top = np.ascontiguousarray(b[:, 2:4]).view(np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = (b[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15).reshape(len(b), 8)
    scale = (low | top << 4).astype(np.float32) - 32
    return (_half(b, 0) * scale)[..., None] * IQ4[_nibbles(b[:, 8:].reshape(-1, 8, 16))]


def _trits(bytes_, count):
    """`count` digits to base 3 of each byte: first those of all bytes, then the next."""
    powers = np.array([1, 3, 9, 27, 81], np.uint8)[:count, None]
    return (((bytes_[:, None] * powers).astype(np.uint16) * 3) >> 8).reshape(len(bytes_), -1)


def _tq1_0(b):
    q = np.concatenate([_trits(b[:, :32], 5), _trits(b[:, 32:48], 5), _trits(b[:, 48:52], 4)], axis=1)
    return _half(b, 52) * (q.astype(np.float32) - 1)


def _tq2_0(b):
    return _half(b, 64) * (_pairs_of_bits(b[:, :64]).astype(np.float32) - 1)


def _mxfp4(b):
    return np.ldexp(np.float32(1), b[:, :1].astype(np.int32) - 128) * FP4[_nibbles(b[:, 1:])]


def _nvfp4(b):
    scale = b[:, :4].astype(np.int32)
    exponent, mantissa = scale >> 3 & 15, (scale & 7).astype(np.float32)
    value = np.where(exponent == 0, mantissa * np.float32(2**-10), np.ldexp(1 + mantissa / 8, exponent - 8))
    value = np.where(scale == 0x7F, np.float32(0), value).astype(np.float32)
    return value[..., None] * FP4[_nibbles(b[:, 4:].reshape(-1, 4, 8))]


def _q1_0(b):
    return _half(b, 0) * _signs(b[:, 2:] ^ 0xFF).astype(np.float32)


def _q2_0(b):
    return _half(b, 0) * (_fields(b[:, 2:], 2, 4).astype(np.float32) - 1)


# --- types whose elements come from a lattice, eight or four at a time, under odd scales


@functools.cache
def _lattice(name):
    """The levels of each entry of a lattice: [entries, 8], for iq3 [entries, 4]."""
    text = json.loads(pathlib.Path(__file__).with_name("lattices.json").read_text("utf-8"))[name]
    entries = np.frombuffer(bytes.fromhex(text), ">u2").astype(np.int32)[:, None]
    return entries >> np.arange(0, 12, 3) & 7 if name.startswith("iq3") else entries >> np.arange(0, 16, 2) & 3


def _words(bytes_, kind):
    """Little-endian words of the bytes of each block."""
    return np.ascontiguousarray(bytes_).view(kind).astype(np.int64)


def _fields(words, bits, count):
    """`count` fields of each word, lowest first: [blocks, words * count]."""
    return (words[..., None] >> np.arange(count) * bits & (1 << bits) - 1).reshape(len(words), -1)


def _signs(bits, count=8):
    """1 and -1 for the lowest bits of each number: [blocks, numbers * count]."""
    return 1 - 2 * _fields(bits, 1, count)


def _even(seven):
    """Eight signs from the seven that are stored: the number of negative ones is even."""
    odd = _fields(seven, 1, 7).reshape(*seven.shape, 7).sum(axis=-1) & 1
    return seven | odd << 7


def _scaled(d, scales, levels):
    """d (2 scale + 1) levels, with a scale for each part of the elements; exact but for the last product."""
    scale = d * (2 * scales + 1).astype(np.float32)
    return scale[..., None] * levels.reshape(len(d), scales.shape[1], -1).astype(np.float32)


def _iq1(d, entries, scales, is_below):
    """Levels -1, 0, 1, each shifted up or down by an eighth."""
    levels = 8 * (_lattice("iq1")[entries] - 1) + np.where(is_below, -1, 1)[..., None]
    return _scaled(d / 8, scales, levels)


def _iq1_s(b):
    high = _words(b[:, 34:], "<u2")
    entries = b[:, 2:34] | _fields(high, 3, 4) << 8
    return _iq1(_half(b, 0), entries, high >> 12 & 7, np.repeat(high >> 15, 4, axis=1))


def _iq1_m(b):
    scales, high = _words(b[:, 48:], "<u2"), _fields(b[:, 32:48].astype(np.int64), 4, 2)
    d = (scales >> 12 << np.arange(4) * 4).sum(axis=1).astype(np.uint16).view(np.float16).astype(np.float32)[:, None]
    return _iq1(d, b[:, :32] | (high & 7) << 8, _fields(scales, 3, 4), high >> 3)


IQ2, IQ3_XXS = np.array([8, 25, 43, 0]), np.array([4, 12, 20, 28, 36, 44, 52, 62])


def _iq2(b, name, entries, signs, scales):
    magnitudes = IQ2[_lattice(name)[entries]].reshape(len(b), -1)
    return _scaled(_half(b, 0) / 8, scales, magnitudes * signs)


def _iq2_xxs(b):
    words = _words(b[:, 2:], "<u4")  # pairs: four entries; signs and a scale
    return _iq2(b, "iq2_xxs", _fields(words[:, ::2], 8, 4), _signs(_even(_fields(words[:, 1::2], 7, 4))),
                words[:, 1::2] >> 28)


def _iq2_xs(b):
    codes = _words(b[:, 2:66], "<u2")
    return _iq2(b, "iq2_xs", codes & 511, _signs(_even(codes >> 9)), _fields(b[:, 66:].astype(np.int64), 4, 2))


def _iq2_s(b):
    b = b.astype(np.int64)
    entries = b[:, 2:34] | _fields(b[:, 66:74], 2, 4) << 8
    return _iq2(b.astype(np.uint8), "iq2_s", entries, _signs(b[:, 34:66]), _fields(b[:, 74:], 4, 2))


def _iq3_xxs(b):
    words = _words(b[:, 66:], "<u4")
    levels = IQ3_XXS[_lattice("iq3_xxs")[b[:, 2:66]]].reshape(len(b), -1) * _signs(_even(_fields(words, 7, 4)))
    return _scaled(_half(b, 0) / 4, words >> 28, levels)


def _iq3_s(b):
    wide = b.astype(np.int64)
    entries = wide[:, 2:66] | _fields(wide[:, 66:74], 1, 8) << 8
    levels = (2 * _lattice("iq3_s")[entries] + 1).reshape(len(b), -1) * _signs(wide[:, 74:106])
    return _scaled(_half(b, 0), _fields(wide[:, 106:], 4, 2), levels)


_DECODERS = {name[1:]: function for name, function in list(globals().items())
             if name[1:] in DTYPES and name.startswith("_")}

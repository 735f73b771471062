"""Fourier transforms."""

import numpy as np

from ..importing.shaping import fitted
from ..importing.types import NUMPY, check_computed
from .node import op


@op("DFT")
def dft(n, x, length=None, given=None):
    if n.version < 20:
        axis = n.attribute("axis", 1)
    else:
        axis = -2 if given is None else int(n.number(given, "the axis"))
    axis = n.axis(axis, x.rank)
    inverse, onesided = bool(n.attribute("inverse", 0)), bool(n.attribute("onesided", 0))
    if axis == x.rank - 1 or n.known_size(x, x.rank - 1) not in (1, 2):
        raise n.malformed(f"axis {axis} of {x!r}")
    size = n.known_size(x, axis) if length is None else int(n.number(length, "dft_length"))
    if inverse and onesided:
        if length is None:
            size = (n.known_size(x, axis) - 1) * 2
        made = n.b.irfft(fitted(n, x, axis, size // 2 + 1), axis=axis, size=size)
        return n.b.unsqueeze(made, made.rank)
    x = fitted(n, x, axis, size)
    if onesided:
        if x.shape[-1] == 2:
            raise n.malformed(f"one side of complex numbers: {x!r}")
        return n.b.rfft(n.b.squeeze(x, axis=x.rank - 1), axis=axis)
    return n.b.fft(_complex(n, x), axis=axis, inverse=inverse)


def _complex(n, x):
    if x.shape[-1] == 2:
        return x
    return n.b.pad(x, before=(0,) * x.rank, after=(0,) * (x.rank - 1) + (1,))


@op("STFT")
def stft(n, signal, step, window=None, length=None):
    stride = int(n.number(step, "frame_step"))
    size = int(n.number(length, "frame_length")) if length is not None else n.known_size(window, 0)
    if signal.rank == 2:  # not as ONNX says, but ONNX Runtime takes it
        signal = n.b.unsqueeze(signal, 2)
    total = n.known_size(signal, 1)
    if stride < 1 or not 1 <= size <= total:
        raise n.malformed(f"frames of {size} in steps of {stride} of {signal!r}")
    check_computed(n.where, [(total - size) // stride + 1, size])
    places = np.arange(0, total - size + 1, stride)[:, None] + np.arange(size)
    frames = n.b.gather(signal, n.b.known(places), axis=1)     # [B, frames, size, 1 or 2]
    if window is not None:
        frames = frames * n.b.reshape_to(window, (size, 1))
    if n.attribute("onesided", 1) and signal.shape[-1] == 1:
        return n.b.rfft(n.b.squeeze(frames, axis=3), axis=2)
    return n.b.fft(_complex(n, frames), axis=2, inverse=False)


@op("MelWeightMatrix")
def mel_weights(n, bins, length, rate, lower, upper):
    bins, length, rate = (int(n.number(one, "an input")) for one in (bins, length, rate))
    lower, upper = float(n.number(lower, "the lower edge")), float(n.number(upper, "the upper edge"))
    if not (0 < bins <= 2**16 and 0 < length <= 2**24 and rate > 0):
        raise n.malformed(f"{bins} bins of {length} elements at a rate of {rate}")
    check_computed(n.where, [bins, length])
    mels = 2595 * np.log10(1 + lower / 700) + np.arange(bins + 2) * (
        (2595 * np.log10(1 + upper / 700) - 2595 * np.log10(1 + lower / 700)) / (bins + 2))
    edges = np.floor((length + 1) * (700 * (10 ** (mels / 2595) - 1)) / rate).astype(np.int64)
    at = np.arange(length // 2 + 1)[:, None]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where((at >= low) & (at <= middle), np.where(low == middle, 1.0, (at - low) / (middle - low)), 0)
        down = np.where((at >= middle) & (at < high), (high - at) / (high - middle), 0)
    made = np.where(at == middle, 1.0, np.where(at < middle, np.where(low == middle, 0, up), down))
    return n.b.known(made.astype(NUMPY[n.type("output_datatype", "f32")]))

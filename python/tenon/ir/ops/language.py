"""Ops of language models."""
import math

import numpy as np

from . import inside, number, op, raw
from ..blocks import encode
from ..errors import Error
from ..tensors import is_block, rounded


@op
def embedding(ids, table, dtype):
    return table[inside(ids, table.shape[0], "id")]


@op
def attention(q, k, v, *rest, causal, window, scale, softcap, has_position, has_mask, has_sinks, has_table):
    (batch, steps, heads, size), (pages, page_size, shared) = q.shape, k.shape[:3]
    rest = list(rest)
    table = rest.pop() if has_table else None
    keys = page_size * table.shape[1] if has_table else page_size
    position = np.broadcast_to(rest.pop(0) if has_position else keys - steps, batch)
    mask = np.broadcast_to(rest.pop(0), (batch, heads, steps, keys)) if has_mask else None
    sinks = rest.pop(0).reshape(shared, -1, 1) if has_sinks else None
    if has_position and ((position < 0) | (position + steps > keys)).any():
        raise Error("OutOfRange", f"{steps} steps from position {position} among {keys} keys")
    y = np.zeros((batch, steps, heads, v.shape[3]))
    for b, s in np.ndindex(batch, steps):
        at = int(position[b]) + s
        begin, end = 0, at + 1 if causal else int(position[b]) + steps
        if window:
            begin, end = max(0, at - window + 1), min(end, at + window)
        if begin >= end:
            continue
        places = (b, slice(begin, end))
        if has_table:
            seen = np.arange(begin, end)
            places = (inside(table[b, seen // page_size], pages, "page"), seen % page_size)
        # [key head, query head of it, key]
        score = np.einsum("hgd,thd->hgt", q[b, s].reshape(shared, -1, size), k[places])
        score = score * (scale or 1 / math.sqrt(size))
        if softcap:
            score = softcap * np.tanh(score / softcap)
        if mask is not None:
            score = score + mask[b, :, s, begin:end].reshape(score.shape)
        peak = score.max(axis=-1, keepdims=True)
        if sinks is not None:
            peak = np.maximum(peak, sinks)
        peak = np.where(np.isneginf(peak), 0, peak)  # nothing to see: all weights are 0
        weights = np.exp(score - peak)
        total = weights.sum(axis=-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks - peak)
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
        y[b, s] = np.einsum("hgt,thd->hgd", weights, v[places]).reshape(heads, -1)
    return y


@op
def selective_scan(x, dt, a, into, out, state, lengths=None, *, has_lengths):
    batch, steps, heads, _ = x.shape
    if has_lengths:
        inside(lengths, steps + 1, "length")
    group = np.arange(heads) // (heads // into.shape[2])
    state = state.copy()
    y = np.zeros_like(x)
    for b, s in np.ndindex(batch, steps):
        if has_lengths and s >= lengths[b]:
            continue
        now = dt[b, s][:, None]  # [heads, 1]
        decay = np.exp(now * a)
        state[b] = decay.T[:, :, None] * state[b] + np.einsum("jn,jp->njp", into[b, s, group], now * x[b, s])
        y[b, s] = np.einsum("jn,njp->jp", out[b, s, group], state[b])
    return np.concatenate([y, state], axis=1)


@op
def wkv7(r, w, k, v, a, b, state, lengths=None, *, has_lengths, every_state):
    batch, steps = v.shape[:2]
    if has_lengths:
        inside(lengths, steps + 1, "length")
    state = state.copy()
    states = np.repeat(state[:, None], steps, axis=1)
    y = np.zeros_like(v)
    for row, s in np.ndindex(batch, steps):
        if has_lengths and s >= lengths[row]:
            states[row, s] = state[row]
            continue
        mixed = np.einsum("jn,njp->jp", a[row, s], state[row])
        state[row] = (w[row, s].T[:, :, None] * state[row] + np.einsum("jn,jp->njp", b[row, s], mixed)
                      + np.einsum("jn,jp->njp", k[row, s], v[row, s]))
        y[row, s] = np.einsum("jn,njp->jp", r[row, s], state[row])
        states[row, s] = state[row]
    return states if every_state else np.concatenate([y, state], axis=1)


@raw
def cache_update(cache, layer, x, position, table=None, *, has_table, result):
    batch, steps = x.shape[:2]
    size = cache.shape[3]
    capacity = size * table.shape[1] if has_table else size
    layer = int(inside(layer.data, cache.shape[0], "layer"))
    first = np.broadcast_to(position.data, batch).astype(np.int64)
    if ((first < 0) | (first + steps > capacity)).any():
        raise Error("OutOfRange", f"{steps} steps from position {first} in a cache of {capacity}")
    values = number(x)
    values = encode(values, cache.dtype) if is_block(cache.dtype) else rounded(values, cache.dtype)
    y = cache.data.copy()
    places = []
    for b, s in np.ndindex(batch, steps):
        row, at = b, int(first[b]) + s
        if has_table:
            row, at = int(inside(table.data[b, at // size], cache.shape[1], "page")), at % size
        places.append((row, at, values[b, s]))
    for row, at, value in places:
        y[layer, row, :, at] = value
    return y


@op
def rope(x, positions, freq_factors=None, *, theta, dims, interleaved, scaling, sections, sections_interleaved,
         has_freq_factors,
         **numbers):
    n = dims or x.shape[3]
    frequency, magnitude = rope_frequencies(n, theta, scaling, **numbers)
    if has_freq_factors:
        frequency = frequency / freq_factors
    # Each pair's position: [B or 1, S, n / 2].
    section = sections_of_pairs(n // 2, sections, sections_interleaved)
    if sections:
        positions = np.moveaxis(positions[..., section, :], -2, -1)
    else:
        positions = positions[..., None]
    angle = positions * frequency
    angle = angle[..., None, :]  # heads
    cosine, sine = magnitude * np.cos(angle), magnitude * np.sin(angle)
    y = x.copy()
    p, q = (slice(0, n, 2), slice(1, n, 2)) if interleaved else (slice(0, n // 2), slice(n // 2, n))
    y[..., p] = x[..., p] * cosine - x[..., q] * sine
    y[..., q] = x[..., q] * cosine + x[..., p] * sine
    return y


def rope_frequencies(n, theta, scaling, factor, low_freq_factor, high_freq_factor, original_context, attention_factor,
                     beta_fast,
                     beta_slow):
    """Frequencies of the pairs before freq_factors, and the factor m of the rotated pairs."""
    i = np.arange(n // 2, dtype=np.float64)
    f = theta ** (-2 * i / n)
    magnitude = attention_factor or 1.0
    if scaling == "linear":
        f = f / factor
    elif scaling == "llama3":
        turns = original_context * f / (2 * math.pi)  # context over wavelength
        smooth = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
        f = (1 - smooth) * f / factor + smooth * f
    elif scaling == "yarn":
        def turn(beta):
            return n * math.log(original_context / (2 * math.pi * beta)) / (2 * math.log(theta))

        low, high = max(math.floor(turn(beta_fast)), 0), min(math.ceil(turn(beta_slow)), n - 1)
        high = low + 0.001 if low == high else high
        ramp = np.clip((i - low) / (high - low), 0, 1)
        f = ramp * f / factor + (1 - ramp) * f
        magnitude = attention_factor or (0.1 * math.log(factor) + 1 if factor > 1 else 1.0)
    return f, magnitude


def sections_of_pairs(pairs, sections, interleaved):
    """Which of a step's positions turns each pair."""
    i, count = np.arange(pairs), len(sections)
    if not sections:
        return np.zeros(pairs, int)
    if interleaved:
        own = i % count
        return np.where(i < count * np.array(sections)[own], own, 0)
    return np.minimum(np.searchsorted(np.cumsum(sections), i, "right"), count - 1)

"""Ops on objects. What they update, they return changed, and leave as it was."""
import math

import numpy as np

from . import number, raw
from ..errors import Error
from ..objects import copied


@raw
def generator_uniform(generator, result, dims, dtype):
    numbers = copied(generator.data).draw(math.prod(dims), dtype)
    return numbers.astype(np.float32 if dtype == "f32" else np.float64).reshape(dims)


@raw
def generator_skip(generator, result, dims, dtype):
    after = copied(generator.data)
    after.draw(math.prod(dims), dtype)
    return after


@raw
def kv_append(cache, layer, keys, values, result):
    after = copied(cache.data)
    after.append(int(layer.data), number(keys), number(values))
    return after


@raw
def kv_length(cache, layer, result):
    return np.int64(cache.data.length(int(layer.data)))


@raw
def kv_attention(cache, layer, q, result, scale, value_size):
    batch, steps, heads, size = q.shape
    keys, values = cache.data[int(layer.data)] or (np.zeros((batch, 0, heads, size)), np.zeros((batch, 0, heads, size)))
    length, shared = keys.shape[1:3]
    fits = keys.shape[0] == batch and keys.shape[3] == size and values.shape[3] == result.dims[3]
    if q.data.size and not (fits and shared and heads % shared == 0 and steps <= length):
        raise Error("ShapeMismatch", f"queries {q.type} for {length} positions of {shared} heads")
    y = np.zeros(result.dims)
    for s in range(steps):
        end = length - steps + s + 1
        query = q.data[:, s].astype(np.float64).reshape(batch, shared, -1, size)
        score = np.einsum("bhgd,bthd->bhgt", query, keys[:, :end]) * (scale or 1 / math.sqrt(max(size, 1)))
        weight = np.exp(score - score.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        y[:, s] = np.einsum("bhgt,bthd->bhgd", weight, values[:, :end]).reshape(batch, heads, -1)
    return y.astype(np.float32)


@raw
def tokenize(tokenizer, text, result, capacity, add_special, parse_special, fill):
    read = text.data.tobytes().decode("utf-8", "surrogateescape")
    ids = tokenizer.data.encode(read, add_special=add_special, parse_special=parse_special)
    if len(ids) > capacity:
        raise Error("OutOfRange", f"{len(ids)} tokens, a capacity of {capacity}")
    return np.array(list(ids) + [fill] * (capacity - len(ids)), np.int32)


@raw
def detokenize(tokenizer, ids, result, capacity, skip_special):
    text = tokenizer.data.decode_bytes([int(one) for one in ids.data if one >= 0], skip_special=skip_special)
    if len(text) > capacity:
        raise Error("OutOfRange", f"{len(text)} bytes, a capacity of {capacity}")
    return np.frombuffer(text.ljust(capacity, b"\0"), np.uint8)

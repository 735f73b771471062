"""Elements in other places: views, joining, picking and putting; and values from nothing."""
from types import SimpleNamespace

import numpy as np

from . import inside, moves, op, raw
from ..infer.shapes import slice_range
from ..tensors import DTYPES, bytes_shape, cast, is_block
from ..weights import from_stored, stored_type, to_stored


@raw
def reshape(x, *like, dims, result):
    return x.data.reshape(bytes_shape(result) if is_block(x.dtype) else result.dims)


for name in ("split_axis", "merge_axes", "unsqueeze", "squeeze"):
    @raw(name=name)
    def other_sizes(x, *, result, **attributes):
        return reshape(x, dims=None, result=result)


@raw
def bitcast(x, dtype, result):
    bits = np.asarray(to_stored(x.data, x.dtype), order="C")
    kind = stored_type(dtype)
    own = bits.dtype.itemsize
    if own < kind.itemsize and not bits.size:
        return from_stored(np.zeros(result.dims, kind), dtype)
    if own > kind.itemsize:
        bits = bits[..., None]
    bits = bits.view(kind)
    return from_stored(bits[..., 0] if own < kind.itemsize else bits, dtype)


@moves
def permute(x, order):
    return x.transpose(order)


@raw
def slice_(x, axis, begin, end, step, result):
    first, last = slice_range(SimpleNamespace(begin=begin, end=end, step=step), x.shape[axis])
    if is_block(x.dtype) and axis == len(x.shape) - 1:
        facts = DTYPES[x.dtype]
        first, last = (place // facts.block * facts.bytes for place in (first, last))
    return np.take(x.data, range(first, last, step), axis=axis)


@moves
def broadcast_to(x, *like, dims):
    if like:
        return np.broadcast_to(x, like[0].shape)
    sizes = (1,) * (len(dims) - x.ndim) + x.shape
    return np.broadcast_to(x, [own if wanted == -1 else wanted for own, wanted in zip(sizes, dims)])


@moves
def stop_gradient(x):
    return x


@moves
def after(x, event):
    return x


@moves
def concat(*parts, axis):
    return np.concatenate(parts, axis=axis)


@raw
def pad(x, before, after, value, mode, result):
    widths = list(zip(before, after))
    if mode in ("", "constant"):
        return np.pad(x.data, widths, constant_values=cast(value, x.dtype)) if widths else x.data
    return np.pad(x.data, widths, mode={"circular": "wrap"}.get(mode, mode)) if widths else x.data


@moves
def gather(x, index, axis):
    return np.take(x, inside(index, x.shape[axis], "index"), axis=axis)


@moves
def take_along(x, index, axis):
    inside(index, x.shape[axis], "index")
    places = np.indices(index.shape, sparse=True)
    return x[tuple(index if i == axis else place for i, place in enumerate(places))]


@op
def scatter(x, index, source, axis, mode):
    inside(index, x.shape[axis], "index")
    places = tuple(index if i == axis else place for i, place in enumerate(np.indices(index.shape)))
    y = x.copy()
    if mode in ("", "set"):
        for at, value in zip(zip(*(place.ravel() for place in places)), source.ravel()):  # the last one stays
            y[at] = value
    else:
        {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[mode].at(y, places, source)
    return y


@moves
def select(x, index):
    return x[inside(index, x.shape[0], "index")]


@moves
def update_slice(x, index, y):
    result = x.copy()
    result[inside(index, x.shape[0], "index")] = y
    return result


@raw
def full(value, dims, dtype, result):
    return np.full(dims, cast(value, dtype))


@raw
def iota(*x, size, axis, start, step, dtype, result):
    return cast(start + np.arange(result.dims[0], dtype=np.int64) * step, dtype)


@op
def random_bits(key, *others, dims, stream, like_last):
    dims = others[-1].shape if like_last else dims
    first = others[0] if len(others) > like_last else None
    count = int(np.prod(dims, dtype=np.int64))
    first = 0 if first is None else int(np.asarray(first).reshape(-1)[0])
    low = np.arange(-(-count // 4), dtype=np.uint64) + np.uint64(first % 2**64)
    high = np.full_like(low, stream % 2**64)
    return philox(low, high, [int(k) for k in key]).reshape(-1)[:count].reshape(dims)


def philox(low, high, key):
    """Philox4x32-10 (Salmon et al., 2011): four words for each counter."""
    word, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = low & word, low >> shift, high & word, high >> shift
    for step in range(10):
        k0, k1 = ((k + step * weyl) & 0xFFFFFFFF for k, weyl in zip(key, (0x9E3779B9, 0xBB67AE85)))
        p, q = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (q >> shift) ^ c1 ^ np.uint64(k0), q & word, (p >> shift) ^ c3 ^ np.uint64(k1), p & word
    return np.stack([c0, c1, c2, c3], axis=-1)

"""Ops that pick and put elements by their numbers."""

import math

import numpy as np

from ..importing import sizes as sz
from ..importing.picking import flat_index, positions
from ..importing.shaping import items, shaped, sliced
from ..importing.types import NUMPY
from .node import op


@op("Gather")
def gather(n, x, index):
    axis = n.axis(n.attribute("axis", 0), x.rank)
    held = items(x)
    if x.sizes is not None and index.is_known and isinstance(x.sizes, list) and index.rank <= 1:
        places = index.array.reshape(-1).tolist()
        if any(not -len(held) <= one < len(held) for one in places):
            raise n.malformed(f"an index outside of {len(held)} sizes")
        chosen = [held[one] for one in places]
        return n.b.of_sizes(chosen if index.rank else chosen[0], x.inputs)
    index = positions(n, index, x.shape[axis])
    sizes = (*x.shape[:axis], *index.shape, *x.shape[axis + 1:])
    if index.is_known and index.array.size == 1 and not x.is_known:
        at = int(index.array.reshape(()))
        part = sliced(n, x, axis, at, at + 1, 1)
        return n.b.reshape_to(part, sizes)
    if index.is_known and x.is_known:
        return n.known_like(np.take(x.array, index.array, axis), x, index)
    return shaped(n.b.gather(x, index, axis=axis), sizes)


@op("GatherElements")
def gather_elements(n, x, index):
    axis = n.axis(n.attribute("axis", 0), x.rank)
    index = positions(n, index, x.shape[axis])
    for at in range(x.rank):
        if at != axis and index.shape[at] != x.shape[at]:
            x = sliced(n, x, at, 0, n.known_size(index, at), 1)
    return shaped(n.b.take_along(x, index, axis=axis), index.shape)


@op("Scatter", "ScatterElements")
def scatter_elements(n, x, index, updates):
    axis = n.axis(n.attribute("axis", 0), x.rank)
    mode = n.words("reduction", "none", ("none", "add", "mul", "min", "max"))
    index = positions(n, index, x.shape[axis])
    return shaped(_scatter(n, x, index, updates, axis, mode), x.shape)


def _scatter(n, x, index, updates, axis, mode):
    if x.dtype == "bool" and mode != "none":
        raise n.error(f"{mode!r} of bool", "reduction")
    return n.b.scatter(x, index, updates, axis=axis, mode="set" if mode == "none" else mode)


@op("GatherND")
def gather_nd(n, x, index):
    batch = n.attribute("batch_dims", 0)
    if not 0 <= batch < min(x.rank, index.rank):
        raise n.malformed(f"attribute 'batch_dims': {batch} for {x!r} and {index!r}")
    depth = n.known_size(index, index.rank - 1)
    if not 1 <= depth <= x.rank - batch:
        raise n.malformed(f"indices of {depth} axes for {x!r}")
    rows, count = flat_index(n, x, index, batch)
    rest = x.shape[batch + depth:]
    if batch == 0:
        table = n.b.reshape_to(x, (count, *rest))
        return shaped(n.b.gather(table, rows, axis=0), (*index.shape[:-1], *rest))
    n.static(x), n.static(index)
    groups = math.prod(x.shape[:batch])
    rows = n.b.reshape_to(n.b.broadcast(rows, index.shape[:-1]), (groups, _count(index, batch, groups)))
    first = n.known_like((n.arange(groups) * count).astype(NUMPY[index.dtype]).reshape(groups, 1))
    table = n.b.reshape_to(x, (groups * count, *rest))
    made = n.b.gather(table, n.b.reshape_to(rows + first, (math.prod(index.shape[:-1]),)), axis=0)
    return n.b.reshape_to(made, (*index.shape[:-1], *rest))


def _count(index, batch, groups):
    return math.prod(index.shape[batch:-1]) if groups else 0


@op("ScatterND")
def scatter_nd(n, x, index, updates):
    mode = n.words("reduction", "none", ("none", "add", "mul", "min", "max"))
    depth = n.known_size(index, index.rank - 1)
    if not 0 <= depth <= x.rank:
        raise n.malformed(f"indices of {depth} axes for {x!r}")
    n.static(x), n.static(index)
    rows, count = flat_index(n, x, index)
    row = math.prod(x.shape[depth:])
    picked = math.prod(index.shape[:-1])
    places = n.b.broadcast(n.b.reshape_to(n.b.broadcast(rows, index.shape[:-1]), (picked, 1)), (picked, row))
    table = n.b.reshape_to(x, (count, row))
    made = _scatter(n, table, places, n.b.reshape_to(updates, (picked, row)), 0, mode)
    return n.b.reshape_to(made, x.shape)


@op("OneHot")
def one_hot(n, index, depth, values):
    count = int(n.number(depth, "depth"))
    axis = n.axis(n.attribute("axis", -1), index.rank + 1)
    whole = n.b.cast(index, "i64")
    whole = n.b.where(n.b.lt(whole, 0), whole + count, whole)
    places = n.b.known(n.arange(count).reshape((count,) + (1,) * (index.rank - axis)))
    hit = n.b.eq(n.b.unsqueeze(whole, axis), places)
    off, on = (n.b.squeeze(sliced(n, values, 0, i, i + 1, 1), axis=0) for i in (0, 1))
    return n.b.where(hit, on, off)


@op("NonZero")
def non_zero(n, x):
    array = n.array(x, "x, whose values decide the result's size,")
    return n.known_like(np.array(np.nonzero(np.atleast_1d(array)), np.int64), x)


@op("Compress")
def compress(n, x, condition):
    chosen = n.array(condition, "the condition").reshape(-1)
    axis = n.attribute("axis", None)
    if axis is None:
        x, axis = n.b.reshape_to(x, (sz.product(x.shape),)), 0
    axis = n.axis(axis, x.rank)
    places = np.nonzero(chosen[:n.known_size(x, axis)])[0]
    return n.b.gather(x, n.known_like(places.astype(np.int64), condition), axis=axis)


@op("Unique")
def unique(n, x):
    array = n.array(x, "x, whose values decide the result's size,")
    axis = n.attribute("axis", None)
    values, first, inverse, counts = np.unique(array, True, True, True, axis=axis)
    order = np.arange(len(first)) if n.attribute("sorted", 1) else np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    values = np.take(values, order, 0 if axis is None else axis)
    made = (values, first[order].astype(np.int64), rank[inverse.reshape(-1)].astype(np.int64),
            counts[order].astype(np.int64))
    return tuple(n.known_like(one, x) for one in made)


@op("ReverseSequence")
def reverse_sequence(n, x, lengths):
    time, batch = n.attribute("time_axis", 0), n.attribute("batch_axis", 1)
    if sorted((time, batch)) != [0, 1]:
        raise n.malformed(f"attributes 'time_axis' and 'batch_axis': {time}, {batch}")
    return reversed_steps(n, x, lengths, time, batch)


def reversed_steps(n, x, lengths, time, batch):
    """The first `lengths[b]` steps of each row in the opposite order."""
    sizes = n.static(x)
    steps = sizes[time]
    form = [1] * x.rank
    form[time] = steps
    step = n.b.known(n.arange(steps).reshape(form))
    form = [1] * x.rank
    form[batch] = sizes[batch]
    length = n.b.reshape_to(n.b.cast(lengths, "i64"), tuple(form))
    index = n.b.where(n.b.lt(step, length), length - step - 1, step)
    return n.b.take_along(x, n.b.broadcast(index, sizes), axis=time)


@op("TensorScatter")
def tensor_scatter(n, cache, update, starts=None):
    mode = n.words("mode", "linear", ("linear", "circular"))
    axis = n.axis(n.attribute("axis", -2), cache.rank)
    sizes, new = n.static(cache), n.static(update)
    step = n.arange(new[axis])
    form = [1] * cache.rank
    form[axis] = new[axis]
    places = n.b.known(step.reshape(form))
    if starts is not None:
        places = places + n.b.reshape_to(n.b.cast(starts, "i64"), (sizes[0],) + (1,) * (cache.rank - 1))
    if mode == "circular":
        places = n.b.remainder(places, sizes[axis])
    return n.b.scatter(cache, n.b.broadcast(places, new), update, axis=axis, mode="set")

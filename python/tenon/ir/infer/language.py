"""Types of ops of language models."""
from . import (agree, common, count, dtype, either, finite, floating, index, known, plain, product, rank,
               require, rule, values)
from ..tensors import MAX_RANK, Type, is_block, is_floating


@rule("embedding")
def _(op, ins, a):
    ids, table = ins
    index(ids)
    values(table)
    require(is_floating(a.dtype), "BadAttribute", f"dtype {a.dtype} is not floating")
    rank(table, 2)
    require(ids.rank < MAX_RANK, "BadShape", f"the result's rank exceeds {MAX_RANK}", *ins)
    return Type(a.dtype, ids.dims + table.dims[1:])


@rule("attention")
def _(op, ins, a):
    count(ins, 3 + a.has_position + a.has_mask + a.has_sinks + a.has_table)
    q, k, v, *rest = ins
    position = rest.pop(0) if a.has_position else None
    mask = rest.pop(0) if a.has_mask else None
    sinks = rest.pop(0) if a.has_sinks else None
    table = rest.pop(0) if a.has_table else None
    floating(q)
    values(k)
    values(v)
    for type_ in (q, k, v):
        rank(type_, 4)
    if position:
        require(position.rank <= 1, "ShapeMismatch", "position has rank above 1", position)
        dtype(position, "i32")
    if sinks:
        rank(sinks, 1)
        dtype(sinks, "f32")
    if table:
        rank(table, 2)
        dtype(table, "i32")
    require(k.dtype == v.dtype, "ShapeMismatch", "dtypes of k and v differ", k, v)
    common(k, 0, v, 0, "the number of pages" if table else "the batch")
    if not table:
        common(q, 0, v, 0, "the batch")
    batch = common(q, 0, table or k, 0, "the batch")
    common(k, 1, v, 1, "the page size" if table else "the number of keys")
    common(k, 2, v, 2, "the number of key heads")
    common(q, 3, k, 3, "the head's size")
    if position and position.rank:
        common(q, 0, position, 0, "the batch")
    if sinks:
        common(q, 2, sinks, 0, "the number of heads")
    heads, shared = q.dims[2], either(k.dims[2], v.dims[2])
    if known(heads) and known(shared):
        require(heads % shared == 0 if shared else heads == 0, "ShapeMismatch",
                f"{heads} heads are not a multiple of {shared} key heads", q, k)
    if mask:
        dtype(mask, "f32")
        require(mask.rank <= 4, "ShapeMismatch", "mask has rank above 4", mask)
        keys = either(k.dims[1], v.dims[1])
        if table:
            keys = product(keys, table.dims[1])
        scores = (batch, heads, q.dims[1], keys)[4 - mask.rank:]
        require(all(m == 1 or agree(m, s) for m, s in zip(mask.dims, scores)), "ShapeMismatch",
                "mask does not broadcast to [B, Hq, S, T]", *ins)
    require(0 <= a.window <= 2**62, "BadAttribute", f"window {a.window} outside [0, 2^62]")
    require(a.softcap >= 0 and finite(a.softcap, a.scale), "BadAttribute",
            f"softcap {a.softcap} is negative or not finite, or scale {a.scale} is not finite")
    return Type(q.dtype, [batch, q.dims[1], heads, v.dims[3]])


def common_size(what, *places):
    """The size that axes (type, axis) have, known where one of them is."""
    first, axis = places[0]
    found = first.dims[axis]
    for other, along in places[1:]:
        found = common(Type(first.dtype, [found]), 0, other, along, what)
    return found


def recurrence(ins, ranks):
    """What operands of a recurrence over steps must be: one real type, but for lengths."""
    first = ins[0]
    require(first.dtype in ("f32", "f64"), "UnsupportedDType", "needs f32 or f64", *ins)
    for type_ in ins[len(ranks):]:
        dtype(type_, "i32")
    for type_ in ins[1:len(ranks)]:
        require(type_.dtype == first.dtype, "ShapeMismatch", "dtypes differ", *ins)
    for type_, wanted in zip(ins, (*ranks, 1)):
        rank(type_, wanted)


def known_sum(a, b):
    return a + b if known(a) and known(b) else None


@rule("selective_scan")
def _(op, ins, a):
    count(ins, 6 + a.has_lengths)
    x, dt, decay, into, out, state, *lengths = ins
    recurrence(ins, (4, 3, 2, 4, 4, 4))
    rows = common_size("the batch", *((type_, 0) for type_ in (x, dt, into, out, state, *lengths)))
    steps = common_size("the number of steps", (x, 1), (dt, 1), (into, 1), (out, 1))
    heads = common_size("the number of heads", (x, 2), (dt, 2), (decay, 0), (state, 2))
    channels = common_size("the head's size", (x, 3), (state, 3))
    groups = common_size("the number of groups", (into, 2), (out, 2))
    states = common_size("the size of the state", (into, 3), (out, 3), (state, 1))
    if decay.dims[1] != 1:
        common_size("the size of the state", (decay, 1), (into, 3), (out, 3), (state, 1))
    require(states != 0, "ShapeMismatch", "a state without numbers", *ins)
    if known(groups):
        require(groups != 0 and (not known(heads) or heads % groups == 0), "ShapeMismatch",
                f"{heads} heads do not divide into {groups} groups", *ins)
    return Type(x.dtype, [rows, known_sum(steps, states), heads, channels])


@rule("wkv7")
def _(op, ins, a):
    count(ins, 7 + a.has_lengths)
    recurrence(ins, (4,) * 7)
    v, state = ins[3], ins[6]
    keys = [type_ for i, type_ in enumerate(ins[:6]) if i != 3]
    rows = common_size("the batch", *((type_, 0) for type_ in ins))
    steps = common_size("the number of steps", *((type_, 1) for type_ in ins[:6]))
    heads = common_size("the number of heads", *((type_, 2) for type_ in ins[:7]))
    states = common_size("the size of keys", *((type_, 3) for type_ in keys), (state, 1))
    values_ = common_size("the size of values", (v, 3), (state, 3))
    require(states != 0, "ShapeMismatch", "a state without numbers", *ins)
    if a.every_state:
        return Type(v.dtype, [rows, steps, states, heads, values_])
    return Type(v.dtype, [rows, known_sum(steps, states), heads, values_])


@rule("cache_update")
def _(op, ins, a):
    count(ins, 4 + a.has_table)
    cache, layer, x, position = ins[:4]
    rank(cache, 5)
    rank(layer, 0)
    rank(x, 4)
    require(position.rank <= 1, "ShapeMismatch", "position has rank above 1", position)
    if a.has_table:
        rank(ins[4], 2)
    values(cache)
    floating(x)
    dtype(layer, "i64")
    dtype(position, "i32")
    if a.has_table:
        dtype(ins[4], "i32")
        common(ins[4], 0, x, 0, "the batch")
    else:
        common(cache, 1, x, 0, "the batch")
    if position.rank:
        common(position, 0, x, 0, "the batch")
    common(cache, 2, x, 2, "the number of heads")
    common(cache, 4, x, 3, "the head's size")
    capacity = cache.dims[3]
    if a.has_table:
        capacity = product(capacity, ins[4].dims[1])
    if known(x.dims[1]) and known(capacity):
        require(x.dims[1] <= capacity, "ShapeMismatch", "more steps than the cache holds", *ins)
    return cache


@rule("rope")
def _(op, ins, a):
    count(ins, 2 + a.has_freq_factors)
    x, positions = ins[:2]
    rank(x, 4)
    least = 2 if a.sections else 1
    require(positions.rank in (least, least + 1), "ShapeMismatch", f"positions need rank {least} or {least + 1}",
            positions)
    floating(x)
    dtype(positions, "i32")
    common(x, 1, positions, -1, "the number of steps")
    if positions.rank == least + 1:
        common(x, 0, positions, 0, "the batch")
    if a.sections:
        require(agree(positions.dims[-2], len(a.sections)), "ShapeMismatch",
                f"{len(a.sections)} sections need as many positions", *ins)
    d = x.dims[3]
    fits = a.dims >= 0 and a.dims % 2 == 0 and (not known(d) or a.dims <= d)
    require(fits and not (a.dims == 0 and known(d) and d % 2), "BadAttribute",
            f"dims {a.dims} must be even and within the last axis", x)
    _rope_scaling(a)
    rotated = a.dims or d
    left = rotated // 2 if known(rotated) else None
    for section in a.sections:
        require(section >= 0 and (left is None or section <= left), "BadAttribute",
                f"a section of {section} where {left} pairs are left")
        left = None if left is None else left - section
    require(not a.sections or not left, "BadAttribute", f"sections leave {left} pairs")
    if a.has_freq_factors:
        rank(ins[2], 1)
        dtype(ins[2], "f32")
        require(not known(rotated) or agree(ins[2].dims[0], rotated // 2), "ShapeMismatch",
                f"{rotated} dims need half as many freq_factors", ins[2])
    return x


def _rope_scaling(a):
    def positive(*names):
        for name in names:
            value = float(getattr(a, name))
            require(value > 0 and finite(value), "BadAttribute", f"{name} {value} is not positive and finite")

    positive("theta", *(["attention_factor"] if a.attention_factor != 0 else []))
    if a.scaling in ("", "none"):
        return
    require(a.scaling in ("linear", "llama3", "yarn"), "BadAttribute",
            f"scaling '{a.scaling}' is none of none, linear, llama3, yarn")
    positive("factor")
    if a.scaling == "linear":
        return
    positive("original_context")
    if a.scaling == "llama3":
        positive("low_freq_factor", "high_freq_factor")
        require(a.high_freq_factor > a.low_freq_factor, "BadAttribute",
                "high_freq_factor does not exceed low_freq_factor")
    else:
        positive("beta_fast", "beta_slow")
        require(a.theta != 1, "BadAttribute", "yarn needs a theta other than 1")


@rule("select")
def _(op, ins, a):
    x, at = ins
    require(x.rank >= (2 if is_block(x.dtype) else 1), "ShapeMismatch", "x has no axis to select from", x)
    rank(at, 0)
    index(at)
    return Type(x.dtype, x.dims[1:])


@rule("update_slice")
def _(op, ins, a):
    x, at, y = ins
    require(x.rank >= 1 and y.rank == x.rank - 1, "ShapeMismatch", "y is no slice of x", x, y)
    for i in range(y.rank):
        common(x, i + 1, y, i, "the slice")
    rank(at, 0)
    plain(x)
    index(at)
    require(x.dtype == y.dtype, "ShapeMismatch", "dtypes of x and y differ", x, y)
    return x

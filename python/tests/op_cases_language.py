"""Op cases of language models: attention with a position for each row and with sinks, caches with a
position for each row and with pages, rotary embeddings with sections. numpy in float64, written from
the definitions.

    python3 python/tests/op_cases_language.py OUTPUT.safetensors [--seed N] [--small]
"""
import math

import numpy as np

from op_cases import Blocks, as_type, main, to_double
from op_cases_layers import (BLOCKS, FLOATS, flag, normal, pick, random_blocks, rope_frequencies,
                             scalar, size)

try:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize as gguf_dequantize, quantize as gguf_quantize
except ImportError:
    gguf_quantize = None


def attention_row(q, k, v, past, op, mask, sinks):
    """One row of the batch: q [S, Hq, D], k [T, Hkv, D], v [T, Hkv, Dv], mask [Hq, S, T] or None."""
    steps, heads, d = q.shape
    group = heads // k.shape[1]
    y = np.zeros((steps, heads, v.shape[2]))
    for s in range(steps):
        for h in range(heads):
            end = past + s + 1 if op["causal"] else past + steps
            begin = 0
            if op["window"]:
                begin = max(0, past + s - op["window"] + 1)
                end = min(end, past + s + op["window"])
            if begin >= end:
                continue
            score = k[begin:end, h // group] @ q[s, h] * (op.get("scale") or 1 / math.sqrt(d))
            if op.get("softcap"):
                score = op["softcap"] * np.tanh(score / op["softcap"])
            if mask is not None:
                score = score + mask[h, s, begin:end]
            if np.all(np.isneginf(score)):
                continue
            joined = score if sinks is None else np.append(score, sinks[h])
            weights = np.exp(joined - joined.max())
            weights = (weights / weights.sum())[:end - begin]
            y[s, h] = weights @ v[begin:end, h // group]
    return y


def keys_of(cases, shape, never_read, kv_type):
    """Keys or values, [B, T, H, D] by type; NaN where nothing reads. -> (operand, values)"""
    values = cases.rng.normal(size=shape)
    for b, first in enumerate(never_read):
        values[b, first:] = np.nan
    array = as_type(values, kv_type)
    return array, np.nan_to_num(to_double(array))


def in_pages(cases, arrays, pasts, steps, op):
    """Keys and values [B, T, H, D] of equal T in the pages of a table: (pools, table). NaN and entries of no page
    where nothing reads."""
    rows, t = arrays[0].shape[:2]
    page_size = size(cases, 1, 6)
    most = -(-t // page_size) + size(cases, 0, 1)
    pages = rows * most + size(cases, 0, 2)
    table = cases.rng.permutation(pages)[:rows * most].reshape(rows, most).astype(np.int32)
    pools = [np.full((pages, page_size, *array.shape[2:]), np.nan) for array in arrays]
    for row in range(rows):
        for key in range(t):
            for pool, array in zip(pools, arrays):
                pool[table[row, key // page_size], key % page_size] = array[row, key]
        end = int(pasts[row]) + steps
        begin = max(0, int(pasts[row]) - op["window"] + 1) if op["window"] else 0
        seen = range(begin // page_size, -(-end // page_size))
        for entry in set(range(most)) - set(seen):
            table[row, entry] = int(pick(cases, [-1, pages, 2**31 - 1]))
    return pools, table


def attention(cases, count):
    for i in range(count):
        b, s, kv_heads = size(cases, 1, 3), size(cases, 1, 5), size(cases, 1, 2)
        if i % 3 == 2:
            s = int(pick(cases, [7, 8, 17, 33]))  # more than a few queries: another kernel
        heads = kv_heads * size(cases, 1, 3)
        d, dv = size(cases, 1, 17), size(cases, 1, 9)
        op = {"causal": flag(cases), "window": pick(cases, [0, 0, 1, 3, 100])}
        if flag(cases):
            op["scale"] = 0.25
        if flag(cases):
            op["softcap"] = 2.5
        kind = ["rows", "sinks", "rows and sinks"][i % 3]
        has_rows, has_sinks, has_mask = "rows" in kind, "sinks" in kind, flag(cases)
        has_scalar = not has_rows and flag(cases)
        pasts = cases.rng.integers(0, 10, b)
        if not has_rows:
            pasts[:] = pasts[0]
        t = int(pasts.max()) + s + (size(cases, 0, 5) if has_rows or has_scalar else 0)
        q_type, kv_type = pick(cases, FLOATS), pick(cases, FLOATS)
        q = normal(cases, (b, s, heads, d), q_type)
        unread = pasts + s
        k, k_values = keys_of(cases, (b, t, kv_heads, d), unread, kv_type)
        v, v_values = keys_of(cases, (b, t, kv_heads, dv), unread, kv_type)
        has_table, table = (has_rows or has_scalar) and flag(cases), None
        if has_table:
            (k, v), table = in_pages(cases, (to_double(k), to_double(v)), pasts, s, op)
            k, v = as_type(k, kv_type), as_type(v, kv_type)
            t = k.shape[1] * table.shape[1]
            k_values, v_values = (np.pad(x, ((0, 0), (0, t - x.shape[1]), (0, 0), (0, 0)))
                                  for x in (k_values, v_values))
        inputs, mask, sinks = [q, k, v], None, None
        if has_rows:
            inputs.append(pasts.astype(np.int32))
        elif has_scalar:
            inputs.append(scalar(int(pasts[0]), "i32"))
        if has_mask:
            shape = [1 if flag(cases) else n for n in (b, heads, s, t)][int(cases.rng.integers(4)):]
            mask = cases.rng.normal(size=shape)
            mask = np.where(cases.rng.random(shape) < 0.3, -np.inf, mask).astype(np.float32)
            inputs.append(mask)
            mask = np.broadcast_to(mask.astype(np.float64), (b, heads, s, t))
        if has_sinks:
            sinks = cases.rng.normal(size=heads, scale=3).astype(np.float32)
            if flag(cases):
                sinks[int(cases.rng.integers(heads))] = -np.inf
            inputs.append(sinks)
            sinks = sinks.astype(np.float64)
        if has_table:
            inputs.append(table)
        want = np.stack([attention_row(to_double(q)[row], k_values[row], v_values[row],
                                       int(pasts[row]), op, None if mask is None else mask[row],
                                       sinks) for row in range(b)])
        cases.add("attention", inputs, as_type(want, q_type),
                  op | {"has_position": has_rows or has_scalar, "has_mask": has_mask,
                        "has_sinks": has_sinks, "has_table": has_table})


def block_attention(cases, count):
    """Keys and values in q8_0, of which a row sees some; every other time in pages that both rows share."""
    if gguf_quantize is None:
        return
    for i in range(count):
        b, s, t = 2, int(pick(cases, [1, 8])), 12
        pasts = np.array([size(cases, 0, t - s), size(cases, 0, t - s)])
        kind = GGMLQuantizationType.Q8_0
        operands, values = [], []
        for _ in range(2):
            data = gguf_quantize(cases.rng.normal(size=(b, t, 1, 32)).astype(np.float32), kind)
            operands.append(Blocks("q8_0", (b, t, 1, 32), data))
            values.append(gguf_dequantize(data, kind).reshape(b, t, 1, 32).astype(np.float64))
        q = normal(cases, (b, s, 2, 32), "f32")
        sinks = cases.rng.normal(size=2).astype(np.float32)
        op = {"causal": True, "window": 0}
        table = []
        if i % 2:
            page_size = int(pick(cases, [1, 3, 4]))
            pages = b * t // page_size
            table = [cases.rng.integers(0, pages, (b, t // page_size)).astype(np.int32)]
            operands = [Blocks("q8_0", (pages, page_size, 1, 32), x.data) for x in operands]
            values = [x.reshape(pages, page_size, 1, 32)[table[0]].reshape(b, t, 1, 32) for x in values]
        want = np.stack([attention_row(to_double(q)[row], values[0][row], values[1][row],
                                       int(pasts[row]), op, None, sinks.astype(np.float64))
                         for row in range(b)])
        cases.add("attention", [q, *operands, pasts.astype(np.int32), sinks, *table], as_type(want, "f32"),
                  op | {"has_position": True, "has_sinks": True, "has_table": bool(table)})


def caches(cases, count):
    for i in range(count):
        layers, b, h, d = size(cases, 1, 2), size(cases, 1, 3), size(cases, 1, 3), size(cases, 1, 5)
        t, dtype = size(cases, 1, 8), pick(cases, FLOATS)
        s, layer = size(cases, 0, t), size(cases, 0, layers - 1)
        x = normal(cases, (b, s, h, d), pick(cases, FLOATS))
        positions = cases.rng.integers(0, t - s + 1, b)
        rows = to_double(x)
        if i % 2 == 0:
            cache = normal(cases, (layers, b, h, t, d), dtype)
            want = to_double(cache).copy()
            for row, past in enumerate(positions):
                want[layer, row, :, past:past + s] = rows[row].transpose(1, 0, 2)
            inputs = [cache, scalar(layer, "i64"), x, positions.astype(np.int32)]
            cases.add("cache_update", inputs, as_type(want, dtype))
            continue
        page_size = size(cases, 1, 4)
        most = -(-t // page_size)
        pages = b * most + size(cases, 0, 2)
        table = cases.rng.permutation(pages)[:b * most].reshape(b, most).astype(np.int32)
        cache = normal(cases, (layers, pages, h, page_size, d), dtype)
        want = to_double(cache).copy()
        if i % 4 == 1:
            positions[:] = positions[0]
        for row, past in enumerate(positions):
            for step in range(s):
                page = table[row, (past + step) // page_size]
                want[layer, page, :, (past + step) % page_size] = rows[row, step]
            used = set(range(past // page_size, (past + s - 1) // page_size + 1)) if s else set()
            for unused in set(range(most)) - used:
                table[row, unused] = -1  # never read
        position = scalar(int(positions[0]), "i32") if i % 4 == 1 else positions.astype(np.int32)
        cases.add("cache_update", [cache, scalar(layer, "i64"), x, position, table],
                  as_type(want, dtype), {"has_table": True})


def rope(cases, count):
    for i in range(count):
        b, s, h = size(cases, 1, 2), size(cases, 1, 4), size(cases, 1, 2)
        parts = int(pick(cases, [3, 3, 4, 1, 2]))
        sections = [size(cases, 0 if parts > 2 else 1, 6) for _ in range(parts)]
        sections[0] += 1
        pairs = sum(sections)
        d = 2 * pairs + (0 if flag(cases) else size(cases, 1, 3))
        dims = 2 * pairs if d != 2 * pairs or flag(cases) else 0
        theta = float(pick(cases, [10000.0, 1e6]))
        attributes = {"theta": theta, "dims": dims, "interleaved": flag(cases),
                      "sections": sections, "sections_interleaved": bool(i % 2)}
        frequency, _ = rope_frequencies(2 * pairs, theta, {})
        dtype = pick(cases, FLOATS)
        x = normal(cases, (b, s, h, d), dtype)
        has_rows = flag(cases)
        positions = cases.rng.integers(0, 5000, (b, parts, s) if has_rows else (parts, s))
        angles = positions[..., None] * frequency  # [(b,) p, s, pairs]
        angles = np.broadcast_to(angles, (b, parts, s, pairs))
        if attributes["sections_interleaved"]:  # as transformers' apply_interleaved_mrope
            mixed = angles[:, 0].copy()
            for part in range(1, parts):
                own = slice(part, min(sections[part] * parts, pairs), parts)
                mixed[..., own] = angles[:, part][..., own]
        else:  # as its apply_multimodal_rotary_pos_emb: chunks, each from the next position
            ends = np.cumsum([0] + sections)
            mixed = np.concatenate([angles[:, part][..., ends[part]:ends[part + 1]]
                                    for part in range(parts)], axis=-1)
        values = to_double(x)
        head, rest = values[..., :2 * pairs], values[..., 2 * pairs:]
        cosine, sine = np.cos(mixed)[:, :, None], np.sin(mixed)[:, :, None]
        is_beside = attributes["interleaved"]
        first = head[..., 0::2] if is_beside else head[..., :pairs]
        second = head[..., 1::2] if is_beside else head[..., pairs:]
        turned = [first * cosine - second * sine, second * cosine + first * sine]
        head = (np.stack(turned, axis=-1).reshape(head.shape) if is_beside
                else np.concatenate(turned, axis=-1))
        want = as_type(np.concatenate([head, rest], axis=-1), dtype)
        cases.add("rope", [x, positions.astype(np.int32)], want, attributes,
                  (1e-10, 1e-10) if dtype == "f64" else None)


def grouped_linear(cases, count):
    for i in range(count):
        w_type = pick(cases, FLOATS) if i % 2 else pick(cases, list(BLOCKS))
        x_type = pick(cases, FLOATS)
        groups, n = size(cases, 1, 3), pick(cases, [3, 16] if cases.small else [1, 5, 16, 32, 48])
        if cases.small and w_type in BLOCKS:
            w_type = "q4_0"
        k = BLOCKS[w_type][0] if w_type in BLOCKS else size(cases, 0 if i % 6 == 5 else 1, 9)
        if w_type in BLOCKS:
            w, w_values = random_blocks(cases, w_type, groups * n, k)
            w = Blocks(w_type, (groups, n, k), w.data)
            w_values = w_values.reshape(groups, n, k)
        else:
            w = normal(cases, (groups, n, k), w_type)
            w_values = to_double(w)
        leading = [size(cases, 1, 5) for _ in range(int(cases.rng.integers(0, 3)))]
        choices = size(cases, 1, 4)
        x = normal(cases, leading + [pick(cases, [1, choices]), k], x_type)
        group = cases.rng.integers(0, groups, leading + [choices])
        inputs = [x, w, group.astype(pick(cases, [np.int32, np.int64]))]
        want = np.einsum("...jk,...jnk->...jn", np.broadcast_to(to_double(x), leading + [choices, k]),
                         w_values[group])
        has_bias = flag(cases)
        if has_bias:
            inputs.append(normal(cases, (groups, n), pick(cases, ["f32", x_type])))
            want = want + to_double(inputs[-1])[group]
        cases.add("grouped_linear", inputs, as_type(want, x_type), {"has_bias": has_bias})


def selective_scan(cases, count):
    for i in range(count):
        b, s = size(cases, 0 if i % 9 == 8 else 1, 3), size(cases, 0 if i % 7 == 6 else 1, 6)
        j = size(cases, 1, 2 if cases.small else 5)
        p = 1 if i % 3 == 0 else size(cases, 1, 5)  # Mamba, Mamba-2
        if i % 4 == 1:
            p = int(pick(cases, [17] if cases.small else [7, 16, 17, 33]))
        groups = int(pick(cases, [d for d in range(1, j + 1) if j % d == 0]))
        n = size(cases, 1, 5 if cases.small else 9)
        dtype = "f64" if i % 5 == 4 else "f32"
        x = normal(cases, (b, s, j, p), dtype)
        dt = as_type(cases.rng.random((b, s, j)), dtype)
        a = as_type(-np.exp(cases.rng.normal(size=(j, 1 if flag(cases) else n))), dtype)
        into, out = normal(cases, (b, s, groups, n), dtype), normal(cases, (b, s, groups, n), dtype)
        state = normal(cases, (b, n, j, p), dtype)
        inputs, lengths = [x, dt, a, into, out, state], np.full(b, s)
        has_lengths = flag(cases)
        if has_lengths:
            lengths = cases.rng.integers(0, s + 1, b)
            inputs.append(lengths.astype(np.int32))
        y, h = np.zeros((b, s, j, p)), to_double(state).copy()
        heads = np.arange(j) // (j // groups)
        for row in range(b):
            for step in range(lengths[row]):
                decay = np.exp(to_double(dt)[row, step][:, None] * to_double(a))  # [J, N or 1]
                added = to_double(dt)[row, step][:, None] * to_double(x)[row, step]  # [J, P]
                h[row] *= np.broadcast_to(decay, (j, n)).T[:, :, None]
                h[row] += np.einsum("jn,jp->njp", to_double(into)[row, step][heads], added)
                y[row, step] = np.einsum("jn,njp->jp", to_double(out)[row, step][heads], h[row])
        cases.add("selective_scan", inputs, as_type(np.concatenate([y, h], axis=1), dtype),
                  {"has_lengths": has_lengths})


def wkv7(cases, count):
    for i in range(count):
        b, s = size(cases, 0 if i % 9 == 8 else 1, 3), size(cases, 0 if i % 7 == 6 else 1, 6)
        j, n = size(cases, 1, 2 if cases.small else 4), size(cases, 1, 5 if cases.small else 9)
        p = int(pick(cases, [3, 17] if cases.small else [1, 5, 7, 16, 17, 33]))
        dtype = "f64" if i % 5 == 4 else "f32"
        r, k, a, into = (normal(cases, (b, s, j, n), dtype) for _ in range(4))
        w = as_type(cases.rng.random((b, s, j, n)), dtype)
        v, state = normal(cases, (b, s, j, p), dtype), normal(cases, (b, n, j, p), dtype)
        inputs, lengths = [r, w, k, v, a, into, state], np.full(b, s)
        has_lengths = flag(cases)
        if has_lengths:
            lengths = cases.rng.integers(0, s + 1, b)
            inputs.append(lengths.astype(np.int32))
        y, last = np.zeros((b, s, j, p)), to_double(state).copy()
        states = np.repeat(last[:, None], s, axis=1)  # [B, S, N, J, P]
        for row, head in np.ndindex(b, j):
            h = last[row, :, head].copy()  # [N, P]
            for step in range(lengths[row]):
                at = [to_double(x)[row, step, head] for x in (r, w, k, v, a, into)]
                transition = np.diag(at[1]) + np.outer(at[5], at[4])
                h = transition @ h + np.outer(at[2], at[3])
                y[row, step, head] = at[0] @ h
                states[row, step:, :, head] = h
            last[row, :, head] = h
        every_state = i % 4 == 3
        result = states if every_state else np.concatenate([y, last], axis=1)
        rounding = 1e-6 * max(1, np.abs(states).max(initial=0))  # of sums of f32 whose terms cancel
        cases.add("wkv7", inputs, as_type(result, dtype), {"has_lengths": has_lengths, "every_state": every_state},
                  {"f64": (1e-9, 1e-9), "f32": (rounding, 2e-6)}.get(dtype))


def generate(cases):
    many = (lambda small, large: small if cases.small else large)
    attention(cases, many(9, 90))
    block_attention(cases, many(2, 8))
    caches(cases, many(8, 40))
    rope(cases, many(8, 40))
    grouped_linear(cases, many(8, 60))
    selective_scan(cases, many(10, 200))
    wkv7(cases, many(8, 200))


if __name__ == "__main__":
    main(generate, __doc__)

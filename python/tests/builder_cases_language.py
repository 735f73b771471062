"""Cases of builders of language models: masks of attention, pages of caches. NumPy in float64.

    python3 python/tests/builder_cases_language.py OUTPUT.safetensors [--seed N] [--small]
"""
import math

import numpy as np

from op_cases import Cases, as_type, main, to_double


def slopes_of(heads, most):
    """As ggml's soft_max_ext."""
    whole = 2 ** math.floor(math.log2(heads))
    m0, m1 = 2.0 ** (-most / whole), 2.0 ** (-(most / 2.0) / whole)
    return np.array([m0 ** (h + 1) if h < whole else m1 ** (2 * (h - whole) + 1)
                     for h in range(heads)])


def hiding(sees):
    return np.where(sees, 0.0, -np.inf).astype(np.float32)


def mixture_of_experts(cases, count):
    """As transformers' Qwen3MoeSparseMoeBlock, and with a sigmoid DeepseekV3TopkRouter of one group."""
    rng = cases.rng
    for i in range(count):
        experts, used = int(rng.integers(2, 7)), int(rng.integers(1, 3))
        width, hidden = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        leading = [int(n) for n in rng.integers(1, 4, i % 3)]
        x, router, gate, up, down = (
            rng.normal(size=shape).astype(np.float32)
            for shape in ((*leading, width), (experts, width), (experts, hidden, width),
                          (experts, hidden, width), (experts, width, hidden)))
        scores_name, normalized = ["softmax", "sigmoid"][i % 2], bool(rng.integers(2))
        scale = float(rng.choice([1.0, 2.5]))
        inputs = [x, router, gate, up, down]
        rows = to_double(x).reshape(-1, width)
        logits = rows @ to_double(router).T
        scores = 1 / (1 + np.exp(-logits))
        if scores_name == "softmax":
            scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        compared = scores
        if i % 4 == 3:
            inputs.append(rng.normal(size=experts).astype(np.float32))
            compared = scores + to_double(inputs[-1])
        want = np.zeros_like(rows)
        for row, (score, order) in enumerate(zip(scores, np.argsort(-compared, axis=1))):
            chosen = order[:used]
            weights = score[chosen] * scale / (score[chosen].sum() if normalized else 1)
            for expert, weight in zip(chosen, weights):
                wide = to_double(gate)[expert] @ rows[row]
                inner = wide / (1 + np.exp(-wide)) * (to_double(up)[expert] @ rows[row])
                want[row] += weight * (to_double(down)[expert] @ inner)
        cases.add("mixture_of_experts", inputs, as_type(want.reshape(x.shape), "f32"),
                  {"used": used, "scores": scores_name, "normalized": normalized, "scale": scale},
                  (1e-4, 1e-4))


def generate(cases: Cases):
    rng = cases.rng
    for i in range(3 if cases.small else 14):
        b, s, t = (int(n) for n in rng.integers(1, (3, 6, 9)))
        t += s
        heads, most = int(rng.integers(1, 25)), float(rng.choice([8.0, 4.0]))
        cases.add("alibi_slopes", [np.zeros(1, np.float32)], as_type(slopes_of(heads, most), "f32"),
                  {"heads": heads, "max_bias": most}, (1e-7, 1e-6))
        kind = ["none", "one", "rows"][i % 3]
        position = {"none": np.array([t - s]), "one": rng.integers(0, t - s + 1, 1),
                    "rows": rng.integers(0, t - s + 1, b)}[kind].astype(np.int32)
        places = position[:, None, None, None] + np.arange(s)[:, None]  # [1 or B, 1, S, 1]
        keys = np.arange(t)
        given = {"none": [], "one": [position[0].reshape(())], "rows": [position]}[kind]
        shaped = (lambda x: x if kind == "rows" else x[0, 0])
        sizes = {"queries": s, "keys": t}

        slopes = rng.uniform(0.01, 0.9, 3).astype(np.float32)
        bias = -slopes.astype(np.float64)[:, None, None] * np.abs(keys - places)
        cases.add("alibi_mask", [slopes, *given],
                  as_type(bias if kind == "rows" else bias[0], "f32"), sizes)
        window, first = int(rng.integers(0, 5)), int(rng.integers(0, 4))
        sees = (keys <= places) & ((keys < first) | (keys > places - window))
        cases.add("streaming_mask", [np.zeros(1, np.float32), *given], hiding(shaped(sees)),
                  sizes | {"window": window, "first": first})
        prefix = rng.integers(0, t + 1, b if kind == "rows" else 1).astype(np.int32)
        sees = (keys <= places) | (keys < prefix[:, None, None, None])
        cases.add("prefix_mask", [prefix if kind == "rows" else prefix[0].reshape(()), *given],
                  hiding(shaped(sees)), sizes)

        of_queries, of_keys = (rng.integers(0, 3, (b, n)).astype(np.int32) for n in (s, t))
        cases.add("segment_mask", [of_queries, of_keys],
                  hiding(of_queries[:, None, :, None] == of_keys[:, None, None, :]))
        blocks = [int(n) for n in rng.integers(0, 4, int(rng.integers(0, 4)))]
        cases.add("segments_of", [np.zeros(1, np.float32)],
                  np.repeat(np.arange(len(blocks)), blocks).astype(np.int32), {"sizes": blocks})

        layers, pages, h, d, page_size, most_pages = (int(n) for n in rng.integers(1, (3, 7, 3, 5, 4, 4)))
        dtype = str(rng.choice(["f32", "f16"]))
        cache = as_type(rng.normal(size=(layers, pages, h, page_size, d)), dtype)
        layer = int(rng.integers(layers))
        table = rng.integers(0, pages, (b, most_pages)).astype(np.int32)
        rows = to_double(cache)[layer][table].transpose(0, 1, 3, 2, 4)
        cases.add("gather_pages", [cache, np.array(layer, np.int64), table],
                  as_type(rows.reshape(b, most_pages * page_size, h, d), dtype), {}, (0, 0))
    mixture_of_experts(cases, 4 if cases.small else 40)


if __name__ == "__main__":
    main(generate, __doc__)

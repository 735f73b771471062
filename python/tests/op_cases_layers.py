"""Op cases of linear layers, attention and images: numpy in float64, written from the definitions.

Frequencies of `rope` follow Hugging Face's modeling_rope_utils.py formula by formula. Convolutions,
pools and matrix products are also compared with ONNX Runtime where it is installed.

    python3 python/tests/op_cases_layers.py OUTPUT.safetensors [--seed N] [--small]
"""
import math

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize
from gguf.quants import quantize as gguf_quantize
from numpy.lib.stride_tricks import sliding_window_view

from op_cases import Blocks, as_type, main, to_double

try:
    import onnx
    import onnxruntime
except ImportError:
    onnxruntime = None

FLOATS = ["f32", "f16", "bf16", "f64"]
# Block type: (elements, bytes, byte offsets of its f16 scales).
BLOCKS = {"q4_0": (32, 18, [0]), "q4_1": (32, 20, [0, 2]), "q5_0": (32, 22, [0]),
          "q5_1": (32, 24, [0, 2]), "q8_0": (32, 34, [0]), "q2_k": (256, 84, [80, 82]),
          "q3_k": (256, 110, [108]), "q4_k": (256, 144, [0, 2]), "q5_k": (256, 176, [0, 2]),
          "q6_k": (256, 210, [208]), "iq4_nl": (32, 18, [0]), "iq4_xs": (256, 136, [0]),
          "iq1_s": (256, 50, [0]), "iq1_m": (256, 56, []), "iq2_xxs": (256, 66, [0]),
          "iq2_xs": (256, 74, [0]), "iq2_s": (256, 82, [0]), "iq3_xxs": (256, 98, [0]),
          "iq3_s": (256, 110, [0]), "tq1_0": (256, 54, [52]), "tq2_0": (256, 66, [64]),
          "mxfp4": (32, 17, [])}
LATER_BLOCKS = {"nvfp4": (64, 36, [])}  # with cases of their own, at the end


def normal(cases, shape, dtype="f32", scale=1.0):
    return as_type(cases.rng.normal(size=shape) * scale, dtype)


def size(cases, low=1, high=9):
    return int(cases.rng.integers(low, high + 1))


def pick(cases, options):
    return options[int(cases.rng.integers(len(options)))]


def flag(cases):
    return bool(cases.rng.integers(2))


def scalar(value, dtype):
    return as_type(np.array(value), dtype)


def random_blocks(cases, dtype, rows, columns):
    """A matrix of random codes under small random scales, and what it decodes to."""
    elements, width, scales = {**BLOCKS, **LATER_BLOCKS}[dtype]
    count = rows * columns // elements
    data = cases.rng.integers(0, 256, (count, width), dtype=np.uint8)
    for offset in scales:
        values = (cases.rng.normal(size=count) * 0.01).astype(np.float16)
        data[:, offset:offset + 2] = values.view(np.uint8).reshape(count, 2)
    if dtype == "mxfp4":  # a power of two
        data[:, 0] = cases.rng.integers(118, 126, count)
    if dtype == "nvfp4":  # 2^-10 to 2^-4
        data[:, :4] = cases.rng.integers(1, 40, (count, 4))
    if dtype == "iq1_m":  # the top four bits of the last four words
        values = (cases.rng.normal(size=count) * 0.01).astype(np.float16).view(np.uint16)
        for i in range(4):
            data[:, 49 + 2 * i] = (data[:, 49 + 2 * i] & 15) | ((values >> (4 * i)) & 15) << 4
    if count == 0:
        return Blocks(dtype, (rows, columns), data), np.zeros((rows, columns))
    kind = GGMLQuantizationType[dtype.upper()]
    decoded = gguf_dequantize(data.reshape(rows, -1), kind).reshape(rows, columns)
    return Blocks(dtype, (rows, columns), data), decoded.astype(np.float64)


def onnx_run(op, inputs, **attributes):
    """The op as ONNX Runtime computes it in f32."""
    names = [f"i{i}" for i in range(len(inputs))]
    node = onnx.helper.make_node(op, names, ["y"], **attributes)
    info = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, a.shape)
            for n, a in zip(names, inputs)]
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", info, [out]), ir_version=8,
                                   opset_imports=[onnx.helper.make_opsetid("", 17)])
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    return session.run(None, {n: a.astype(np.float32) for n, a in zip(names, inputs)})[0]


def agree(op, inputs, want, **attributes):
    """Checks `want` against ONNX Runtime, which does not take empty arrays everywhere."""
    if onnxruntime is None or want.size == 0 or any(a.size == 0 for a in inputs):
        return
    got = onnx_run(op, inputs, **attributes)
    assert got.shape == want.shape, (op, got.shape, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=op)


# Contractions.

def matmul(cases, count):
    for i in range(count):
        dtype = FLOATS[i % 4] if i % 3 else pick(cases, ["f32", "i8", "u8", "i32", "i64", "u16"])
        m, k, n = (size(cases, 0, 13) for _ in range(3))
        batch = [size(cases, 1, 3) for _ in range(int(cases.rng.integers(0, 3)))]
        a_batch = [1 if flag(cases) else d for d in batch]
        b_batch = batch[int(cases.rng.integers(0, len(batch) + 1)):]
        a_shape = a_batch + [m, k] if batch or i % 5 else [k]
        b_shape = b_batch + [k, n] if b_batch or i % 7 else [k]
        if dtype in FLOATS:
            a, b = normal(cases, a_shape, dtype), normal(cases, b_shape, dtype)
            want = to_double(a) @ to_double(b)
            if dtype == "f32":
                agree("MatMul", [a, b], want)
            cases.add("matmul", [a, b], as_type(want, dtype))
        else:
            a = as_type(cases.rng.integers(-1000, 1000, a_shape), dtype)
            b = as_type(cases.rng.integers(-1000, 1000, b_shape), dtype)
            cases.add("matmul", [a, b], np.asarray(np.matmul(a, b)))


def linear(cases, count, weights=(*FLOATS, *BLOCKS)):
    for i in range(count):
        w_type = weights[i % len(weights)] if not cases.small else pick(cases, weights)
        x_type = pick(cases, FLOATS)
        n = size(cases, 0 if i % 5 == 4 else 1, 19)
        if w_type not in FLOATS:
            k = {**BLOCKS, **LATER_BLOCKS}[w_type][0] * size(cases, 1, 1 if cases.small else 2)
            w, w_values = random_blocks(cases, w_type, n, k)
        else:
            k = size(cases, 0 if i % 6 == 5 else 1, 40)
            w = normal(cases, (n, k), w_type)
            w_values = to_double(w)
        leading = [size(cases, 1, 4) for _ in range(int(cases.rng.integers(0, 3)))]
        x = normal(cases, leading + [k], x_type)
        inputs, want = [x, w], to_double(x) @ w_values.T
        has_bias, has_residual = flag(cases), flag(cases)
        if has_bias:
            inputs.append(normal(cases, (n,), pick(cases, ["f32", x_type])))
            want = want + to_double(inputs[-1])
        if has_residual:
            inputs.append(normal(cases, leading + [n], x_type))
            want = want + to_double(inputs[-1])
        cases.add("linear", inputs, as_type(want, x_type),
                  {"has_bias": has_bias, "has_residual": has_residual})


def embedding(cases, count):
    for i in range(count):
        rows = size(cases, 1, 12)
        dtype = pick(cases, FLOATS + list(BLOCKS))
        if dtype in BLOCKS:
            table, values = random_blocks(cases, dtype, rows, BLOCKS[dtype][0])
        else:
            table = normal(cases, (rows, size(cases, 0, 9)), dtype)
            values = to_double(table)
        ids = cases.rng.integers(0, rows, [size(cases, 0, 3) for _ in range(i % 3)])
        out = pick(cases, ["f32", "f32", "f16", "bf16", "f64"])
        cases.add("embedding", [as_type(ids, pick(cases, ["i32", "i64"])), table],
                  as_type(values[ids], out), {"dtype": out})


def dequantize_all(cases, blocks_of):
    for dtype, (elements, _, _) in blocks_of.items():
        blocks, values = random_blocks(cases, dtype, 1 if cases.small else 2, elements)
        out = pick(cases, ["f32", "f64"])
        cases.add("dequantize", [blocks], as_type(values, out), {"dtype": out}, (0, 0))


def dequantize(cases):
    dequantize_all(cases, BLOCKS)
    for dtype in ["q4_0", "q8_0", "q5_1"]:
        x = cases.rng.normal(size=(3, 64)).astype(np.float32)
        kind = GGMLQuantizationType[dtype.upper()]
        data = gguf_quantize(x, kind)
        cases.add("dequantize", [Blocks(dtype, x.shape, data)],
                  gguf_dequantize(data, kind).reshape(x.shape).astype(np.float32), {}, (0, 0))


# Rotary embedding.

def rope_frequencies(dims, theta, scaling):
    """Inverse frequencies and attention factor as transformers' ROPE_INIT_FUNCTIONS give them."""
    inv_freq = 1.0 / theta ** (np.arange(0, dims, 2, dtype=np.float64) / dims)
    kind = scaling.get("scaling", "none")
    factor = scaling.get("factor", 1.0)
    if kind == "linear":
        return inv_freq / factor, 1.0
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        old_context = scaling["original_context"]
        wavelen = 2 * math.pi / inv_freq
        llama = np.where(wavelen > old_context / low, inv_freq / factor, inv_freq)
        smooth = (old_context / wavelen - low) / (high - low)
        smoothed = (1 - smooth) * llama / factor + smooth * llama
        is_medium = ~(wavelen < old_context / high) & ~(wavelen > old_context / low)
        return np.where(is_medium, smoothed, llama), 1.0
    if kind == "yarn":
        context = scaling["original_context"]
        beta_fast = scaling.get("beta_fast", 32.0)
        beta_slow = scaling.get("beta_slow", 1.0)

        def correction_dim(rotations):
            return dims * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(theta))

        low = max(math.floor(correction_dim(beta_fast)), 0)
        high = min(math.ceil(correction_dim(beta_slow)), dims - 1)
        if low == high:
            high += 0.001
        ramp = np.clip((np.arange(dims // 2, dtype=np.float64) - low) / (high - low), 0, 1)
        keep = 1 - ramp
        frequencies = inv_freq / factor * (1 - keep) + inv_freq * keep
        factor_of_attention = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
        return frequencies, scaling.get("attention_factor") or factor_of_attention
    return inv_freq, 1.0


def rotate_half(x):
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], axis=-1)


def rope(cases, count):
    kinds = ["none", "linear", "llama3", "yarn"]
    for i in range(count):
        b, s, h = size(cases, 1, 2), size(cases, 0 if i % 6 == 5 else 1, 4), size(cases, 1, 3)
        d = 2 * size(cases, 1, 33)
        dims = 0 if flag(cases) else 2 * size(cases, 1, d // 2)
        n = dims or d
        theta = float(pick(cases, [10000.0, 500000.0, 1e6, 100.0]))
        attributes = {"theta": theta, "dims": dims, "interleaved": flag(cases)}
        kind = kinds[i % 4]
        if kind != "none":
            attributes |= {"scaling": kind, "factor": float(pick(cases, [2.0, 8.0, 32.0, 1.5]))}
        if kind == "llama3":
            attributes |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_context": int(pick(cases, [8192, 256]))}
        if kind == "yarn":
            attributes["original_context"] = int(pick(cases, [4096, 64]))
            if flag(cases):
                attributes |= {"beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.25}
        inv_freq, magnitude = rope_frequencies(n, theta, attributes)
        dtype = pick(cases, FLOATS)
        x = normal(cases, (b, s, h, d), dtype)
        positions = cases.rng.integers(0, 100000, (b, s) if flag(cases) else (s,)).astype(np.int32)
        inputs = [x, positions]
        if flag(cases):
            factors = cases.rng.uniform(0.5, 8, n // 2).astype(np.float32)
            inputs.append(factors)
            inv_freq = inv_freq / factors.astype(np.float64)
            attributes["has_freq_factors"] = True
        angles = np.broadcast_to(positions, (b, s))[..., None] * inv_freq  # [b, s, n/2]
        values = to_double(x)
        head, rest = values[..., :n], values[..., n:]
        if attributes["interleaved"]:  # a complex number for each pair
            pairs = head[..., 0::2] + 1j * head[..., 1::2]
            turned = pairs * (magnitude * np.exp(1j * angles))[:, :, None, :]
            head = np.stack([turned.real, turned.imag], axis=-1).reshape(head.shape)
        else:
            doubled = np.concatenate([angles, angles], axis=-1)[:, :, None, :]
            head = head * np.cos(doubled) * magnitude + rotate_half(head) * np.sin(doubled) * magnitude
        # An angle of 1e5 in f64 is itself known to 1e-11.
        tolerance = (1e-10, 1e-10) if dtype == "f64" else None
        want = as_type(np.concatenate([head, rest], axis=-1), dtype)
        cases.add("rope", inputs, want, attributes, tolerance)


# Attention.

def attention_value(q, k, v, past, op, mask):
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    scale = op.get("scale") or 1 / math.sqrt(q.shape[3])
    scores = np.einsum("bshd,bthd->bhst", q, k) * scale
    if op.get("softcap"):
        scores = op["softcap"] * np.tanh(scores / op["softcap"])
    if mask is not None:
        scores = scores + mask
    queries = past + np.arange(q.shape[1])[:, None]
    keys = np.arange(k.shape[1])[None, :]
    visible = keys < past + q.shape[1]
    if op["causal"]:
        visible = visible & (keys <= queries)
    if op["window"]:
        visible = visible & (keys > queries - op["window"]) & (keys < queries + op["window"])
    scores = np.where(visible, scores, -np.inf)
    peak = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.einsum("bhst,bthd->bshd", weights, v)


def attention(cases, count):
    for i in range(count):
        b, s, kv_heads = size(cases, 1, 2), size(cases, 1, 7), size(cases, 1, 2)
        heads = kv_heads * size(cases, 1, 3)
        d, dv = size(cases, 1, 17), size(cases, 1, 9)
        op = {"causal": flag(cases), "window": pick(cases, [0, 0, 1, 3, 100])}
        if flag(cases):
            op["scale"] = 0.25
        if flag(cases):
            op["softcap"] = 2.5
        has_position, has_mask = flag(cases), flag(cases)
        past = size(cases, 0, 9)
        t = past + s + (size(cases, 0, 5) if has_position else 0)
        if not has_position and i % 5 == 4:  # queries before every key
            t, past = max(t - past - 2, 0), max(t - past - 2, 0) - s
        q_type, kv_type = pick(cases, FLOATS), pick(cases, FLOATS)
        q = normal(cases, (b, s, heads, d), q_type)
        k_values = cases.rng.normal(size=(b, t, kv_heads, d))
        v_values = cases.rng.normal(size=(b, t, kv_heads, dv))
        k_values[:, past + s:], v_values[:, past + s:] = np.nan, np.nan  # never read
        k, v = as_type(k_values, kv_type), as_type(v_values, kv_type)
        inputs, mask = [q, k, v], None
        if has_position:
            inputs.append(scalar(past, "i32"))
        if has_mask:
            shape = [1 if flag(cases) else n for n in (b, heads, s, t)][int(cases.rng.integers(4)):]
            mask = cases.rng.normal(size=shape)
            mask = np.where(cases.rng.random(shape) < 0.3, -np.inf, mask).astype(np.float32)
            inputs.append(mask)
        want = attention_value(to_double(q), np.nan_to_num(to_double(k)), np.nan_to_num(to_double(v)),
                               past, op, None if mask is None else mask.astype(np.float64))
        cases.add("attention", inputs, as_type(want, q_type),
                  op | {"has_position": has_position, "has_mask": has_mask})


def caches(cases, count):
    for i in range(count):
        layers, b, h, t, d = size(cases, 1, 3), size(cases, 1, 2), size(cases, 1, 3), size(cases, 1, 8), size(cases, 1, 5)
        dtype = pick(cases, FLOATS)
        cache = normal(cases, (layers, b, h, t, d), dtype)
        s = size(cases, 0, t)
        x = normal(cases, (b, s, h, d), pick(cases, FLOATS))
        layer, position = size(cases, 0, layers - 1), size(cases, 0, t - s)
        want = to_double(cache).copy()
        want[layer, :, :, position:position + s] = to_double(x).transpose(0, 2, 1, 3)
        cases.add("cache_update", [cache, scalar(layer, "i64"), x, scalar(position, "i32")],
                  as_type(want, dtype))
        cases.add("select", [cache, scalar(layer, pick(cases, ["i32", "i64"]))],
                  as_type(to_double(cache)[layer], dtype), {}, (0, 0))
        slice_dtype = dtype if i % 2 else "i16"
        stack, part = normal(cases, (layers, h, d), slice_dtype), normal(cases, (h, d), slice_dtype)
        want = to_double(stack).copy()
        want[layer] = to_double(part)
        cases.add("update_slice", [stack, scalar(layer, pick(cases, ["i32", "i64"])), part],
                  as_type(want, slice_dtype), {}, (0, 0))


def glu(cases, count):
    erf = np.vectorize(math.erf, otypes=[np.float64])
    activations = {
        "silu": lambda g: g / (1 + np.exp(-g)),
        "gelu": lambda g: g * (1 + erf(g / math.sqrt(2))) / 2,
        "gelu_tanh": lambda g: g * (1 + np.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g ** 3))) / 2,
        "relu": lambda g: np.maximum(g, 0),
        "sigmoid": lambda g: 1 / (1 + np.exp(-g)),
    }
    for i in range(count):
        word = list(activations)[i % len(activations)]
        shape = [size(cases, 0 if i % 6 == 5 else 1, 17) for _ in range(int(cases.rng.integers(0, 4)))]
        dtype = pick(cases, FLOATS)
        gate, up = normal(cases, shape, dtype, 3), normal(cases, shape, dtype)
        want = activations[word](to_double(gate)) * to_double(up)
        cases.add("glu", [gate, up], as_type(want, dtype), {"activation": word})


# Images.

def window_of(cases, h, w, max_taps=4):
    """A window that fits: kernel, stride, padding (top, bottom, left, right), dilation."""
    kernel, stride, padding, dilation = [], [], [], []
    for length in (h, w):
        taps, step = size(cases, 1, max_taps), size(cases, 1, 3)
        spread = 1 if taps == 1 else size(cases, 1, 2)
        extent = (taps - 1) * spread + 1
        before, after = size(cases, 0, extent - 1), size(cases, 0, extent - 1)
        if length + before + after < extent:
            taps, spread, before, after = 1, 1, 0, 0
        kernel.append(taps), stride.append(step), dilation.append(spread)
        padding += [before, after]
    return kernel, stride, padding, dilation


def onnx_pads(p):
    return [p[0], p[2], p[1], p[3]]  # all begins, then all ends


def windows(x, kernel, stride, padding, dilation, fill):
    """[n, c, h', w', kh, kw] of the padded image."""
    top, bottom, left, right = padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    view = sliding_window_view(padded, extent, axis=(2, 3))
    return view[:, :, ::stride[0], ::stride[1], ::dilation[0], ::dilation[1]]


def conv2d(cases, count):
    for i in range(count):
        h, w = size(cases, 1, 9), size(cases, 1, 9)
        kernel, stride, padding, dilation = window_of(cases, h, w)
        groups = size(cases, 1, 3)
        c, o = groups * size(cases, 1, 3), groups * size(cases, 1, 3)
        n, dtype = size(cases, 0 if i % 7 == 6 else 1, 2), pick(cases, FLOATS)
        x = normal(cases, (n, c, h, w), dtype)
        weights = normal(cases, (o, c // groups, *kernel), dtype)
        view = windows(to_double(x), kernel, stride, padding, dilation, 0.0)
        parts = [np.einsum("ncijrs,ocrs->noij", part, kernel_part)
                 for part, kernel_part in zip(np.split(view, groups, axis=1),
                                              np.split(to_double(weights), groups, axis=0))]
        inputs, want = [x, weights], np.concatenate(parts, axis=1)
        has_bias = flag(cases)
        if has_bias:
            inputs.append(normal(cases, (o,), dtype))
            want = want + to_double(inputs[-1])[:, None, None]
        if dtype == "f32":
            agree("Conv", inputs, want, strides=stride, pads=onnx_pads(padding),
                  dilations=dilation, group=groups)
        cases.add("conv2d", inputs, as_type(want, dtype),
                  {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups,
                   "has_bias": has_bias})


def pools(cases, count):
    for i in range(count):
        h, w = size(cases, 1, 9), size(cases, 1, 9)
        n, c, dtype = size(cases, 0 if i % 7 == 6 else 1, 2), size(cases, 1, 3), pick(cases, FLOATS)
        x = normal(cases, (n, c, h, w), dtype)
        values = to_double(x)
        kernel, stride, padding, dilation = window_of(cases, h, w)
        want = windows(values, kernel, stride, padding, dilation, -np.inf).max(axis=(4, 5))
        # ONNX Runtime wants paddings below the number of taps, dilated or not.
        narrow = all(p < kernel[j // 2] for j, p in enumerate(padding))
        if dtype == "f32" and narrow:
            # A window of padding alone has no maximum: -inf here, the lowest f32 there.
            agree("MaxPool", [x], np.maximum(want, np.finfo(np.float32).min), kernel_shape=kernel, strides=stride,
                  pads=onnx_pads(padding), dilations=dilation)
        cases.add("max_pool2d", [x], as_type(want, dtype),
                  {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation})

        kernel, stride, padding, _ = window_of(cases, h, w)
        padding = [min(p, kernel[j // 2] - 1) for j, p in enumerate(padding)]
        if any(length + before + after < taps for length, before, after, taps in
               ((h, *padding[:2], kernel[0]), (w, *padding[2:], kernel[1]))):
            kernel, padding = [1, 1], [0, 0, 0, 0]
        count_pad = flag(cases)
        view = windows(values, kernel, stride, padding, [1, 1], 0.0)
        inside = windows(np.ones_like(values), kernel, stride, padding, [1, 1], 0.0)
        taps = kernel[0] * kernel[1] if count_pad else inside.sum(axis=(4, 5))
        want = view.sum(axis=(4, 5)) / taps
        if dtype == "f32":
            agree("AveragePool", [x], want, kernel_shape=kernel, strides=stride,
                  pads=onnx_pads(padding), count_include_pad=int(count_pad))
        cases.add("avg_pool2d", [x], as_type(want, dtype),
                  {"kernel": kernel, "stride": stride, "padding": padding,
                   "count_include_pad": count_pad})


def generate(cases):
    many = (lambda small, large: small if cases.small else large)
    matmul(cases, many(8, 60))
    linear(cases, many(10, 64))
    embedding(cases, many(6, 30))
    dequantize(cases)
    rope(cases, many(12, 64))
    attention(cases, many(14, 120))
    caches(cases, many(4, 30))
    glu(cases, many(6, 30))
    conv2d(cases, many(10, 80))
    pools(cases, many(8, 60))
    dequantize_all(cases, LATER_BLOCKS)
    linear(cases, 2, list(LATER_BLOCKS))


if __name__ == "__main__":
    main(generate, __doc__)

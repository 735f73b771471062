"""Cases of builders for images: convolutions along one and three axes, pools, blocks of pixels,
norms. Expected values come from NumPy in float64, written from the definitions; they were compared
with PyTorch 2.15's functions once."""
import itertools
import math

import numpy as np

from op_cases import TOLERANCE, as_type, main, to_double

# Not f16: squares and cubes between the steps of a builder leave its range.
FLOATS = ["f32", "f32", "bf16", "f64"]


def size(cases, low=1, high=9):
    return int(cases.rng.integers(low, high + 1))


def pick(cases, options):
    return options[int(cases.rng.integers(len(options)))]


def flag(cases):
    return bool(cases.rng.integers(2))


def normal(cases, shape, dtype="f32"):
    return as_type(cases.rng.normal(size=shape), dtype)


def loose(dtype, factor=4):
    """Builders round between their steps."""
    absolute, relative = TOLERANCE[dtype]
    return max(factor * absolute, relative), factor * relative


# Convolutions along any number of axes.

def conv(x, w, stride, padding, dilation, groups):
    """Padding: the same on both sides of each axis."""
    axes = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding])
    outs = [(x.shape[2 + a] - (w.shape[2 + a] - 1) * dilation[a] - 1) // stride[a] + 1 for a in range(axes)]
    group, o = x.shape[1] // groups, w.shape[0] // groups
    y = np.zeros((x.shape[0], w.shape[0], *outs))
    for tap in np.ndindex(*w.shape[2:]):
        part = x[(slice(None), slice(None)) + tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilation, outs, stride))]
        for g in range(groups):
            y[:, g * o:(g + 1) * o] += np.einsum("nc...,oc->no...", part[:, g * group:(g + 1) * group],
                                                 w[(slice(g * o, (g + 1) * o), slice(None)) + tap])
    return y


def conv_transpose(x, w, stride, padding, added, dilation, groups):
    axes = x.ndim - 2
    full = [(x.shape[2 + a] - 1) * stride[a] + (w.shape[2 + a] - 1) * dilation[a] + 1 + added[a] for a in range(axes)]
    group, o = x.shape[1] // groups, w.shape[1]
    y = np.zeros((x.shape[0], o * groups, *full))
    for tap in np.ndindex(*w.shape[2:]):
        place = tuple(slice(t * d, t * d + (n - 1) * s + 1, s)
                      for t, d, n, s in zip(tap, dilation, x.shape[2:], stride))
        for g in range(groups):
            y[(slice(None), slice(g * o, (g + 1) * o)) + place] += np.einsum(
                "nc...,co->no...", x[:, g * group:(g + 1) * group],
                w[(slice(g * group, (g + 1) * group), slice(None)) + tap])
    return y[(slice(None), slice(None)) + tuple(slice(p, n - p) for p, n in zip(padding, full))]


def convolutions(cases, count):
    for i in range(count):
        dtype, groups = pick(cases, FLOATS), size(cases, 1, 2)
        for builder, axes in (("conv3d", 3), ("conv_transpose1d", 1), ("conv_transpose3d", 3)):
            c, o = groups * size(cases, 1, 2), size(cases, 1, 2)
            lengths = [size(cases, 3, 5) for _ in range(axes)]
            kernel = [size(cases, 1, 3) for _ in range(axes)]
            stride = [size(cases, 1, 2) for _ in range(axes)]
            dilation = [1 if k == 3 else size(cases, 1, 2) for k in kernel]
            padding = [size(cases, 0, (k - 1) * d) for k, d in zip(kernel, dilation)]
            padding = [min(p, 1) for p in padding]
            x = normal(cases, (size(cases, 1, 2), c, *lengths), dtype)
            attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
            if builder == "conv3d":
                w = normal(cases, (o * groups, c // groups, *kernel), dtype)
                y = conv(to_double(x), to_double(w), stride, padding, dilation, groups)
            else:
                added = [s - 1 if axes == 3 and flag(cases) else 0 for s in stride]
                w = normal(cases, (c, o, *kernel), dtype)
                y = conv_transpose(to_double(x), to_double(w), stride, padding, added, dilation, groups)
                attributes["output_padding"] = added
            inputs = [x, w]
            if flag(cases):
                inputs.append(normal(cases, (o * groups,), dtype))
                y = y + to_double(inputs[2]).reshape(-1, *[1] * axes)
            if axes == 1:
                attributes = {k: v[0] if isinstance(v, list) else v for k, v in attributes.items()}
            cases.add(builder, inputs, as_type(y, dtype), attributes, loose(dtype, 32))


# Pools.

def pool(x, kernel, stride, padding, dilation, ceil_mode, reduce):
    """reduce(elements inside of x, how many the window has on x and its padding)."""
    axes, windows = len(kernel), []
    for a in range(axes):
        length, extent = x.shape[2 + a], (kernel[a] - 1) * dilation[a] + 1
        before, after = padding[2 * a:2 * a + 2]
        slack = length + before + after - extent
        outs = (-(-slack // stride[a]) if ceil_mode else slack // stride[a]) + 1
        if ceil_mode and (outs - 1) * stride[a] >= length + before:
            outs -= 1
        taps = [[i * stride[a] + t * dilation[a] - before for t in range(kernel[a])] for i in range(outs)]
        windows.append([([p for p in w if 0 <= p < length], sum(p < length + after for p in w)) for w in taps])
    y = np.zeros((*x.shape[:2], *map(len, windows)))
    for place in np.ndindex(*y.shape[2:]):
        seen = [windows[a][place[a]] for a in range(axes)]
        part = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *[s[0] for s in seen])]
        y[(slice(None), slice(None)) + place] = reduce(part.reshape(*x.shape[:2], -1), math.prod(s[1] for s in seen))
    return y


def pools(cases, count):
    for i in range(count):
        axes, dtype = 1 + i % 3, pick(cases, FLOATS)
        x = normal(cases, (size(cases, 1, 2), size(cases, 1, 2), *[size(cases, 3, 6) for _ in range(axes)]), dtype)
        kernel, stride = [size(cases, 1, 3) for _ in range(axes)], [size(cases, 1, 3) for _ in range(axes)]
        padding = list(itertools.chain(*[(size(cases, 0, k // 2), size(cases, 0, k // 2)) for k in kernel]))
        dilation, ceil_mode, values = [size(cases, 1, 2) if k == 2 else 1 for k in kernel], flag(cases), to_double(x)
        attributes = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
        y = pool(values, kernel, stride, padding, dilation, ceil_mode, lambda p, n: p.max(-1, initial=-np.inf))
        cases.add("max_pool", [x], as_type(y, dtype), attributes | {"dilation": dilation})
        plain, count_pad = [1] * axes, flag(cases)
        y = pool(values, kernel, stride, padding, plain, ceil_mode,
                 lambda p, n: p.sum(-1) / (n if count_pad else p.shape[-1]))
        cases.add("avg_pool", [x], as_type(y, dtype), attributes | {"count_include_pad": count_pad}, loose(dtype))
        p = pick(cases, [1.0, 2.0, 3.0])
        y = pool(values, kernel, stride, padding, plain, ceil_mode,
                 lambda part, n: (np.abs(part) ** p).sum(-1) ** (1 / p))
        cases.add("lp_pool", [x], as_type(y, dtype), attributes | {"p": p}, loose(dtype, 8))
        sizes = [pick(cases, [1, 2, 3, 4, 7, -1]) for _ in range(axes)]
        for builder, reduce in (("adaptive_avg_pool", np.mean), ("adaptive_max_pool", np.max)):
            y = values
            for a, outs in enumerate(sizes):
                if outs != -1:
                    n = y.shape[2 + a]
                    y = np.stack([reduce(np.take(y, range(o * n // outs, -(-(o + 1) * n // outs)), 2 + a), axis=2 + a)
                                  for o in range(outs)], axis=2 + a)
            cases.add(builder, [x], as_type(y, dtype), {"sizes": sizes}, loose(dtype))
        over = tuple(range(2, 2 + axes))
        cases.add("global_avg_pool", [x], as_type(values.mean(over, keepdims=True), dtype), {}, loose(dtype))
        cases.add("global_max_pool", [x], as_type(values.max(over, keepdims=True), dtype))


# Blocks of pixels.

def blocks(cases, count):
    for _ in range(count):
        n, c, h, w, r = (size(cases, 1, 3) for _ in range(5))
        x = normal(cases, (n, c * r * r, h, w), pick(cases, ["f32", "f16"]))
        crd = x.reshape(n, c, r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c, h * r, w * r)
        dcr = x.reshape(n, r, r, c, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c, h * r, w * r)
        cases.add("pixel_shuffle", [x], np.ascontiguousarray(crd), {"r": r}, (0, 0))
        cases.add("pixel_unshuffle", [np.ascontiguousarray(crd)], x, {"r": r}, (0, 0))
        cases.add("depth_to_space", [x], np.ascontiguousarray(dcr), {"r": r}, (0, 0))
        cases.add("space_to_depth", [np.ascontiguousarray(dcr)], x, {"r": r}, (0, 0))


# Norms.

def norms(cases, count):
    for i in range(count):
        dtype, axes, eps = pick(cases, FLOATS), i % 4, 1e-3
        shape = (size(cases, 2, 3), size(cases, 1, 4), *[size(cases, 2, 4) for _ in range(axes)])
        x, along = normal(cases, shape, dtype), (-1,) + (1,) * axes
        values = to_double(x)
        weight, bias = normal(cases, shape[1:2], dtype), normal(cases, shape[1:2], dtype)

        def scaled(y):
            return y * to_double(weight).reshape(along) + to_double(bias).reshape(along)

        centre, spread = normal(cases, shape[1:2], dtype), as_type(cases.rng.uniform(0.2, 2, shape[1]), dtype)
        y = (values - to_double(centre).reshape(along)) / np.sqrt(to_double(spread).reshape(along) + eps)
        cases.add("batch_norm", [x, centre, spread], as_type(y, dtype), {"eps": eps}, loose(dtype, 16))
        cases.add("batch_norm", [x, centre, spread, weight, bias], as_type(scaled(y), dtype), {"eps": eps},
                  loose(dtype, 16))
        over = (0, *range(2, 2 + axes))
        mean, variance = values.mean(over, keepdims=True), values.var(over, keepdims=True)
        y = scaled((values - mean) / np.sqrt(variance + eps))
        for name, want in (("", y), ("_mean", mean.reshape(-1)), ("_variance", variance.reshape(-1))):
            cases.add("batch_norm_training" + name, [x, weight, bias], as_type(want, dtype), {"eps": eps},
                      loose(dtype, 16))
        if axes:
            over = tuple(range(2, 2 + axes))
            y = (values - values.mean(over, keepdims=True)) / np.sqrt(values.var(over, keepdims=True) + eps)
            cases.add("instance_norm", [x, weight, bias], as_type(scaled(y), dtype), {"eps": eps}, loose(dtype, 16))
        axis = size(cases, 0, len(shape) - 1)
        y = values / np.maximum(np.linalg.norm(values, axis=axis, keepdims=True), 1e-12)
        cases.add("l2_normalize", [x], as_type(y, dtype), {"axis": axis}, loose(dtype, 16))
        window, c = size(cases, 1, 5), shape[1]
        sums = np.stack([np.square(values[:, max(0, j - (window - 1) // 2):j + window // 2 + 1]).sum(1)
                         for j in range(c)], axis=1)
        y = values / (1.5 + 0.1 / window * sums) ** 0.75
        cases.add("local_response_norm", [x], as_type(y, dtype),
                  {"size": window, "alpha": 0.1, "beta": 0.75, "k": 1.5}, loose(dtype))


def generate(cases):
    many = (lambda small, large: small if cases.small else large)
    convolutions(cases, many(3, 20))
    pools(cases, many(4, 30))
    blocks(cases, many(1, 10))
    norms(cases, many(4, 20))


if __name__ == "__main__":
    main(generate, __doc__)

"""Random single nodes, by Tenon and by ONNX Runtime: sizes, attributes and opsets that nobody planned.

    python python/tests/onnx_suite/random_nodes.py --count 20000 [--seed 1] [--match Conv] [--open]

With --open, sizes other than 1 have names while a model is read: equal ones the same.
"""

import argparse
import collections
import pathlib
import random
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import tenon
import tenon.onnx

MAKERS = {}
FLOAT = onnx.TensorProto.FLOAT
# Without it, ONNX Runtime's products of u8 and i8 saturate pairs of products at 16 bits.
HAS_VNNI = "vnni" in pathlib.Path("/proc/cpuinfo").read_text()


def makes(*ops):
    def mark(function):
        for op in ops:
            MAKERS[op] = function
        return function

    return mark


class Draw:
    """Random choices of one case."""

    def __init__(self, seed):
        self.pick = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.opset = self.pick.choice((9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22))

    def sizes(self, rank, low=1, high=6):
        return [self.pick.randint(low, high) for _ in range(rank)]

    def array(self, sizes, dtype=np.float32):
        if np.dtype(dtype).kind == "f":
            return (self.rng.standard_normal(sizes) * 2).astype(dtype)
        if dtype == bool:
            return self.rng.random(sizes) < 0.5
        return self.rng.integers(0 if np.dtype(dtype).kind == "u" else -9, 9, sizes).astype(dtype)

    def dtype(self):
        return self.pick.choice((np.float32, np.float32, np.float64, np.int32, np.int64))

    def maybe(self, chance=0.5):
        return self.pick.random() < chance

    def ints(self, count, low, high):
        return [self.pick.randint(low, high) for _ in range(count)]

    def some(self, attributes):
        """Some of these attributes."""
        return {name: value for name, value in attributes.items() if self.maybe(0.6)}


def windows(d, rank, kernel_low=1):
    kernel = d.ints(rank, kernel_low, 4)
    made = {"strides": d.ints(rank, 1, 3)}
    if d.maybe(0.25):
        made["auto_pad"] = d.pick.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif d.maybe(0.7):
        made["pads"] = [d.pick.randint(0, max(k - 1, 0)) for k in kernel * 2]
    return kernel, d.some(made)


@makes("Conv")
def conv(d, op):
    rank, groups = d.pick.randint(1, 3), d.pick.choice((1, 1, 2, 3))
    kernel, attributes = windows(d, rank)
    inner, outer = d.pick.randint(1, 3), d.pick.randint(1, 3)
    if "auto_pad" not in attributes and d.maybe(0.4):
        attributes["dilations"] = d.ints(rank, 1, 3)
    x = d.array([d.pick.randint(1, 2), inner * groups, *d.sizes(rank, 4, 12)])
    w = d.array([outer * groups, inner, *kernel])
    bias = [d.array([outer * groups])] if d.maybe() else []
    return [x, w, *bias], {**attributes, "group": groups, **({"kernel_shape": kernel} if d.maybe() else {})}


@makes("ConvTranspose")
def conv_transpose(d, op):
    rank, groups = d.pick.randint(1, 2), d.pick.choice((1, 1, 2))
    kernel, attributes = windows(d, rank)
    inner, outer = d.pick.randint(1, 3), d.pick.randint(1, 3)
    strides = attributes.get("strides", [1] * rank)
    if d.maybe(0.3):
        attributes["output_padding"] = [d.pick.randint(0, s - 1) for s in strides]
    if d.maybe(0.3) and "auto_pad" not in attributes:
        attributes["dilations"] = d.ints(rank, 1, 2)
    if attributes.get("auto_pad", "").startswith("SAME"):  # kernels below the stride: ONNX Runtime pads nothing
        kernel = [max(k, s) for k, s in zip(kernel, strides)]
    x = d.array([1, inner * groups, *d.sizes(rank, 3, 7)])
    bias = [d.array([outer * groups])] if d.maybe() else []
    return [x, d.array([inner * groups, outer, *kernel]), *bias], {**attributes, "group": groups}


@makes("MaxPool", "AveragePool", "LpPool")
def pool(d, op):
    rank = d.pick.randint(1, 3)
    kernel, attributes = windows(d, rank)
    if op == "AveragePool" and d.maybe():
        attributes["count_include_pad"] = 1
    if (op == "MaxPool" and d.opset >= 10 or op == "AveragePool" and d.opset >= 19) and d.maybe(0.4) \
            and "auto_pad" not in attributes:
        attributes["dilations"] = d.ints(rank, 1, 2)
    if op != "LpPool" and d.opset >= 10 and d.maybe(0.4) and "auto_pad" not in attributes:
        attributes["ceil_mode"] = 1
    if attributes.get("auto_pad", "").startswith("SAME"):  # kernels below the stride: LpPool crops
        kernel = [max(k, s) for k, s in zip(kernel, attributes.get("strides", [1] * rank))]
    return [d.array([d.pick.randint(1, 2), 2, *d.sizes(rank, 4, 10)])], {**attributes, "kernel_shape": kernel}


@makes("Resize")
def resize(d, op):
    d.opset = max(d.opset, 11)
    rank = d.pick.randint(1, 2)
    x = d.array([1, 2, *d.sizes(rank, 2, 7)])
    mode = d.pick.choice(("nearest", "linear", "cubic") if rank == 2 else ("nearest", "linear"))
    attributes = {"mode": mode, "coordinate_transformation_mode": d.pick.choice(
        ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"))}
    if mode == "nearest":
        attributes["nearest_mode"] = d.pick.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes |= d.some({"cubic_coeff_a": -0.5, "exclude_outside": 1})
    roi = np.array([], np.float32)
    if d.maybe():
        # With corners aligned, ONNX Runtime rounds the scaled sizes first, which the node tests do not.
        whole = attributes["coordinate_transformation_mode"] == "align_corners" or mode == "nearest"
        factors = [d.pick.choice((1, 2, 3) if whole else (0.5, 1, 2, 3, 1.5, 0.6)) for _ in range(rank)]
        return [x, roi, np.array([1, 1, *factors], np.float32)], attributes
    return [x, roi, roi, np.array([1, 2, *d.sizes(rank, 1, 12)])], attributes


@makes("Slice")
def slice_(d, op):
    x = d.array(d.sizes(d.pick.randint(1, 4)), d.dtype())
    axes = d.pick.sample(range(x.ndim), d.pick.randint(1, x.ndim))
    begins, ends = d.ints(len(axes), -9, 9), d.ints(len(axes), -9, 9)
    if d.opset < 10:
        return [x], {"starts": begins, "ends": ends, "axes": axes}
    steps = [d.pick.choice((1, 1, 2, 3, -1, -2)) for _ in axes]
    # Beyond the end and backwards, ONNX Runtime takes the greatest integer for "to the beginning".
    ends = [d.pick.choice((e, e, 2**63 - 1 if step > 0 else -2**63)) for e, step in zip(ends, steps)]
    axes = [a - x.ndim if d.maybe(0.3) else a for a in axes]
    return [x, *(np.array(one) for one in (begins, ends, axes, steps))], {}


@makes("Pad")
def pad(d, op):
    x = d.array(d.sizes(d.pick.randint(1, 4), 2, 6))
    mode = d.pick.choice(("constant", "reflect", "edge"))
    low, high = (-1, 3) if mode == "constant" else (0, 1)
    pads = [d.pick.randint(low, min(high, size - 1)) for size in x.shape * 2]
    if d.opset < 11:
        return [x], {"mode": mode, "pads": pads, **({"value": 1.5} if mode == "constant" else {})}
    return [x, np.array(pads), *([np.float32(2.5).reshape(())] if d.maybe() and mode == "constant" else [])], \
        {"mode": mode}


@makes("Gather", "GatherElements", "ScatterElements")
def gather(d, op):
    if op != "Gather":
        d.opset = max(d.opset, 11)
    x = d.array(d.sizes(d.pick.randint(1, 3)), d.dtype())
    axis = d.pick.randint(-x.ndim, x.ndim - 1)
    size = x.shape[axis]
    if op == "Gather":
        low = -size if d.opset >= 11 else 0
        index = d.rng.integers(low, size, d.sizes(d.pick.randint(0, 2), 1, 3))
        return [x, np.asarray(index)], {"axis": axis}
    sizes = [d.pick.randint(1, s) for s in x.shape]
    index = d.rng.integers(-size, size, sizes)
    if op == "GatherElements":
        return [x, index], {"axis": axis}
    if d.opset < 16:
        index = np.argsort(d.rng.random(x.shape), axis=axis)[tuple(slice(s) for s in sizes)]
        return [x, index, d.array(sizes, x.dtype)], {"axis": axis}
    return [x, index, d.array(sizes, x.dtype)], {"axis": axis, "reduction": d.pick.choice(("add", "mul"))}


@makes("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
       "ReduceSumSquare")
def reduce(d, op):
    x = d.array(d.sizes(d.pick.randint(1, 4)), d.pick.choice((np.float32, np.float32, np.int32)))
    if op in ("ReduceLogSumExp", "ReduceProd"):  # where integers are truncated on the way, and overflow
        x = x.astype(np.float32)
    axes = d.pick.sample(range(x.ndim), d.pick.randint(1, x.ndim))
    axes = [a - x.ndim if d.opset >= 11 and d.maybe() else a for a in axes]
    attributes = d.some({"keepdims": d.pick.randint(0, 1)})
    by_input = d.opset >= (13 if op == "ReduceSum" else 18)
    if by_input:
        attributes |= d.some({"noop_with_empty_axes": d.pick.randint(0, 1)})
        return [x, *([np.array(axes)] if d.maybe(0.7) else [])], attributes
    return [x], {**attributes, **({"axes": axes} if d.maybe(0.7) else {})}


@makes("ArgMax", "ArgMin")
def arg(d, op):
    x = d.rng.integers(0, 4, d.sizes(d.pick.randint(1, 3))).astype(d.pick.choice((np.float32, np.int32)))
    attributes = {"axis": d.pick.randint(0 if d.opset < 11 else -x.ndim, x.ndim - 1),
                  **d.some({"keepdims": d.pick.randint(0, 1)})}
    if d.opset >= 12:
        attributes |= d.some({"select_last_index": 1})
    return [x], attributes


@makes("TopK")
def top_k(d, op):
    d.opset = max(d.opset, 11)
    x = d.rng.permutation(np.arange(60, dtype=np.float32))[:d.pick.choice((12, 24, 60))].reshape(2, -1)
    axis = d.pick.randint(-2, 1)
    return [x, np.array([d.pick.randint(0, x.shape[axis])])], {"axis": axis, "largest": d.pick.randint(0, 1)}, 2


@makes("Softmax", "LogSoftmax", "Hardmax")
def softmax(d, op):
    x = d.array(d.sizes(d.pick.randint(1, 4)))
    axis = d.pick.randint(0 if d.opset < 11 else -x.ndim, x.ndim - 1)
    return [x], {"axis": axis} if d.maybe(0.8) else {}


@makes("MatMul", "Gemm")
def matmul(d, op):
    m, k, n = d.ints(3, 1, 6)
    if op == "Gemm":
        t = d.ints(2, 0, 1)
        a, b = d.array((k, m) if t[0] else (m, k)), d.array((n, k) if t[1] else (k, n))
        c = [d.array(d.pick.choice(([n], [1, n], [m, 1], [m, n], [1], [])))] if d.opset < 11 or d.maybe() else []
        return [a, b, *c], {"transA": t[0], "transB": t[1], **d.some({"alpha": 0.5, "beta": 2.0})}
    batch = d.sizes(d.pick.randint(0, 2), 1, 3)
    other = batch[d.pick.randint(0, len(batch)):]
    a, b = d.array([*batch, m, k]), d.array([*other, k, n])
    if d.maybe(0.2):
        a = a[..., 0, :] if a.ndim == 2 else a
    if d.maybe(0.2):
        b = b[..., 0] if b.ndim == 2 else b
    return [np.ascontiguousarray(a), np.ascontiguousarray(b)], {}


@makes("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Less", "Greater", "Equal")
def binary(d, op):
    rank = d.pick.randint(0, 4)
    sizes = d.sizes(rank, 1, 4)
    both = [[s if d.maybe(0.7) else 1 for s in sizes][d.pick.randint(0, rank):] for _ in range(2)]
    dtype = np.float32 if op in ("Pow", "Max", "Min", "Less", "Greater") else d.dtype()
    a, b = d.array(both[0], dtype), d.array(both[1], dtype)
    if op == "Pow":
        a, b = np.abs(a), d.pick.choice((b, np.asarray(d.pick.choice((2, 3, 0.5, -1)), np.float32)))
    if op == "Div" and a.dtype.kind == "i":
        b = np.where(b == 0, 3, b).astype(dtype)
    return [a, b], {}


@makes("Mod")
def mod(d, op):
    d.opset = max(d.opset, 10)
    dtype = d.pick.choice((np.int32, np.int64, np.float32, np.uint8))
    a, b = d.array([4, 5], dtype), d.array([5], dtype)
    b = np.where(b == 0, 2, b).astype(dtype)
    return [a, b], {"fmod": 1 if dtype == np.float32 else d.pick.randint(0, 1)}


@makes("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Tile", "Expand", "Concat", "Split")
def shapes(d, op):
    x = d.array(d.sizes(d.pick.randint(1, 4), 1, 4), d.dtype())
    rank = x.ndim
    if op == "Reshape":
        sizes = list(x.shape)
        d.pick.shuffle(sizes)
        sizes = [*sizes[:1], int(np.prod(sizes[1:]))] if d.maybe() else sizes
        if d.maybe():
            sizes[d.pick.randrange(len(sizes))] = -1
        if sizes[0] == x.shape[0] and d.maybe():
            sizes[0] = 0
        return [x, np.array(sizes)], {}
    if op == "Flatten":
        return [x], {"axis": d.pick.randint(0 if d.opset < 11 else -rank, rank)}
    if op == "Transpose":
        return [x], {"perm": d.pick.sample(range(rank), rank)} if d.maybe(0.8) else {}
    if op == "Tile":
        return [x, np.array(d.ints(rank, 0, 3))], {}
    if op == "Expand":
        x = np.where(True, x, x)[tuple(slice(None) if d.maybe() else slice(1) for _ in range(rank))]
        sizes = [s if s > 1 else d.pick.randint(1, 3) for s in x.shape]
        return [np.ascontiguousarray(x), np.array(sizes[d.pick.randint(0, rank):] or [1])], {}
    if op == "Concat":
        axis = d.pick.randint(0 if d.opset < 11 else -rank, rank - 1)
        other = list(x.shape)
        other[axis] = d.pick.randint(0, 3)
        return [x, d.array(other, x.dtype), x], {"axis": axis}
    if op == "Split":
        axis = d.pick.randint(0 if d.opset < 11 else -rank, rank - 1)
        first = d.pick.randint(0, x.shape[axis])
        parts = [first, x.shape[axis] - first]
        return ([x], {"axis": axis, "split": parts}, 2) if d.opset < 13 else ([x, np.array(parts)], {"axis": axis}, 2)
    axes = d.pick.sample(range(rank), d.pick.randint(1, rank))
    if op == "Squeeze":
        x = x.reshape([1 if i in axes else s for i, s in enumerate(np.ones(rank, int) * 2)][:rank]) if x.size == \
            2 ** (rank - len(axes)) else d.array([1 if i in axes else 2 for i in range(rank)], x.dtype)
    axes = sorted(axes)
    return ([x], {"axes": axes}) if d.opset < 13 else ([x, np.array(axes)], {})


@makes("LSTM", "GRU", "RNN")
def recurrent(d, op):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    steps, batch, inner, hidden = d.pick.choice((1, 3, 7)), *d.ints(3, 1, 4)
    direction = d.pick.choice(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    inputs = [d.array([steps, batch, inner]), d.array([count, gates * hidden, inner]),
              d.array([count, gates * hidden, hidden]) * 0.5]
    if d.maybe():
        inputs.append(d.array([count, 2 * gates * hidden]))
        if d.maybe():
            inputs.append(d.rng.integers(1, steps + 1, batch).astype(np.int32))
            if d.maybe():
                inputs.append(d.array([count, batch, hidden]))
                if op == "LSTM" and d.maybe():
                    inputs.append(d.array([count, batch, hidden]))
    attributes = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attributes |= d.some({"linear_before_reset": 1})
    attributes |= d.some({"clip": 1.5}) if d.maybe(0.3) else {}
    return inputs, attributes, 3 if op == "LSTM" else 2


@makes("LayerNormalization")
def layer_norm(d, op):
    d.opset = max(d.opset, 17)
    x = d.array(d.sizes(d.pick.randint(2, 4), 2, 5))
    axis = d.pick.randint(-x.ndim, x.ndim - 1)
    inner = x.shape[axis:]
    return [x, d.array(inner), *([d.array(inner)] if d.maybe() else [])], {"axis": axis, **d.some({"epsilon": 1e-3})}


@makes("InstanceNormalization", "BatchNormalization")
def channel_norm(d, op):
    x = d.array([2, 3, *d.sizes(d.pick.randint(1, 3), 2, 5)])
    weights = [d.array([3]), d.array([3])]
    if op == "BatchNormalization":
        weights += [d.array([3]), np.abs(d.array([3])) + 0.1]
    return [x, *weights], d.some({"epsilon": 1e-3})


@makes("Cast")
def cast(d, op):
    kinds = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.float32, np.float64, bool]
    have, to = d.pick.choice(kinds), d.pick.choice(kinds)
    if np.dtype(have).kind == "f":
        x = d.array([3, 4], have)
        x = np.abs(x) if np.dtype(to).kind == "u" else x
    elif have is bool:
        x = d.array([3, 4], bool)
    else:
        info = np.iinfo(have)
        x = d.rng.integers(info.min, info.max, [3, 4], dtype=have)
    return [x], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))}


@makes("QLinearConv", "ConvInteger", "MatMulInteger", "QLinearMatMul", "DynamicQuantizeLinear")
def codes(d, op):
    d.opset = max(d.opset, 11)
    left = d.pick.choice((np.uint8, np.uint8, np.int8))
    # int8 images by uint8 weights have no kernel there.
    right = d.pick.choice((np.int8, np.uint8)) if left is np.uint8 else np.int8
    if left is np.uint8 and not HAS_VNNI:
        right = np.uint8
    lower, upper = (d.rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, sizes, dtype=kind)
                    for kind, sizes in ((left, [2, 3, 9, 8]), (right, [4, 3, *d.ints(2, 1, 3)])))
    scale = [np.asarray(d.rng.random() * 0.05 + 0.01, np.float32) for _ in range(3)]
    zero = np.asarray(d.rng.integers(0, 20), left)
    if op == "DynamicQuantizeLinear":
        return [d.array([3, 5])], {}, 3
    if op.endswith("MatMul") or op.startswith("MatMul"):
        a, b = lower[0, :, :, :5], d.rng.integers(0, 100, (3, 5, 4)).astype(right)
        if op == "MatMulInteger":
            return [a, b, *([zero, np.asarray(3, right)] if d.maybe() else [])], {}
        return [a, scale[0], zero, b, scale[1], np.asarray(3, right), scale[2], np.asarray(7, left)], {}
    attributes = d.some({"strides": d.ints(2, 1, 2), "pads": [0, 0] + [min(s - 1, 1) for s in upper.shape[2:]]})
    if op == "ConvInteger":
        return [lower.astype(np.uint8), upper.astype(np.uint8), np.asarray(9, np.uint8)], attributes
    if right is np.uint8:
        w_scale, w_zero = scale[1], np.asarray(5, right)
    else:
        w_scale, w_zero = (d.rng.random(4) * 0.02 + 0.01).astype(np.float32), np.zeros(4, right)
    bias = [d.rng.integers(-999, 999, 4).astype(np.int32)] if d.maybe() else []
    return [lower, scale[0], zero, upper, w_scale, w_zero, scale[2], np.asarray(7, left), *bias], attributes


@makes("GridSample", "RoiAlign", "Trilu", "ReverseSequence", "GatherND", "ScatterND", "Upsample")
def places(d, op):
    if op == "GridSample":
        d.opset = max(d.opset, 16)
        words = ("bilinear", "nearest") if d.opset < 20 else ("linear", "nearest")
        grid = (d.rng.random((2, 4, 3, 2)) * 3 - 1.5).astype(np.float32)
        return [d.array([2, 3, 5, 6]), grid], {"mode": d.pick.choice(words), "align_corners": d.pick.randint(0, 1),
                                               "padding_mode": d.pick.choice(("zeros", "border", "reflection"))}
    if op == "RoiAlign":
        corner = d.rng.random((3, 2)) * 5
        boxes = np.concatenate([corner, corner + d.rng.random((3, 2)) * 4], 1).astype(np.float32)
        modes = {"coordinate_transformation_mode": d.pick.choice(("half_pixel", "output_half_pixel"))}
        return [d.array([2, 3, 8, 9]), boxes, np.array([0, 1, 1])], {
            "output_height": 3, "output_width": 2, "sampling_ratio": d.pick.randint(0, 3),
            "spatial_scale": d.pick.choice((1.0, 0.5)), **(modes if d.opset >= 16 else {})}
    if op == "Trilu":
        d.opset = max(d.opset, 14)
        return [d.array([2, 4, 5]), np.array(d.pick.randint(-6, 6))], {"upper": d.pick.randint(0, 1)}
    if op == "ReverseSequence":
        d.opset = max(d.opset, 10)
        time = d.pick.randint(0, 1)
        return [d.array([4, 4, 2]), d.rng.integers(1, 5, 4)], {"time_axis": time, "batch_axis": 1 - time}
    if op == "Upsample":
        d.opset = 9
        return [d.array([1, 2, 3, 4]), np.array([1, 1, 2, 3], np.float32)], {"mode": "nearest"}
    d.opset = max(d.opset, 16)
    depth = d.pick.randint(1, 3)
    x = d.array([3, 4, 2])
    index = np.stack([d.rng.integers(-s, s, (2, 3)) for s in x.shape[:depth]], -1)
    if op == "GatherND":
        if d.maybe(0.3):
            return [x, d.rng.integers(0, 4, (3, 2, 1))], {"batch_dims": 1}
        return [x, index], {}
    return [x, index, d.array([2, 3, *x.shape[depth:]])], {"reduction": "add"}


@makes("DepthToSpace", "LRN", "CumSum", "OneHot", "Clip", "QuantizeLinear", "DequantizeLinear", "Where", "Einsum")
def others(d, op):
    if op == "DepthToSpace":
        return [d.array([2, 12, 2, 3])], {"blocksize": 2, **({"mode": d.pick.choice(("DCR", "CRD"))}
                                                            if d.opset >= 11 else {})}
    if op == "LRN":
        return [d.array([1, 5, 3, 2])], {"size": d.pick.choice((1, 3, 5, 7)), **d.some({"alpha": 0.3, "bias": 2.0})}
    if op == "CumSum":
        d.opset = max(d.opset, 11)
        x = d.array([3, 4, 2], d.pick.choice((np.float32, np.int32)))
        return [x, np.array(d.pick.randint(-3, 2))], d.some({"exclusive": 1, "reverse": 1})
    if op == "OneHot":
        return [d.rng.integers(-4, 4, [2, 3]), np.array(4), np.array([1.5, 3], np.float32)], \
            {"axis": d.pick.randint(-3 if d.opset >= 11 else -1, 2)}
    if op == "Clip":
        x = d.array([3, 4])
        return ([x], d.some({"min": -1.0, "max": 0.5})) if d.opset < 11 else \
            ([x, np.array(-1, np.float32), *([np.array(0.5, np.float32)] if d.maybe() else [])], {})
    if op == "Where":
        return [d.array([3, 1], bool), d.array([1, 4]), d.array([4])], {}
    if op == "Einsum":
        d.opset = max(d.opset, 12)
        text, *sizes = d.pick.choice((("ij,jk->ik", [2, 3], [3, 4]), ("bij,bjk->bik", [2, 2, 3], [2, 3, 4]),
                                      ("ii->i", [3, 3]), ("ij->ji", [2, 3]), ("ij->", [2, 3]), ("i,j->ij", [2], [3]),
                                      ("...ij,...jk->...ik", [2, 1, 2, 3], [4, 3, 2]), ("bhqd,bhkd->bhqk",
                                                                                       [1, 2, 3, 4], [1, 2, 5, 4])))
        return [d.array(one) for one in sizes], {"equation": text}
    d.opset = max(d.opset, 10)
    dtype = d.pick.choice((np.uint8, np.int8))
    per_axis = d.opset >= 13 and d.maybe()
    scale = (d.rng.random(4 if per_axis else ()) * 0.1 + 0.01).astype(np.float32)
    zero = d.array(scale.shape, dtype)
    x = d.array([2, 4, 3]) if op == "QuantizeLinear" else d.array([2, 4, 3], dtype)
    return [x, np.asarray(scale), np.asarray(zero)], {"axis": 1} if per_axis else {}


def case(seed, match=""):
    """(op, model, inputs), with all inputs but the first two constants in one of two cases."""
    d = Draw(seed)
    ops = [op for op in MAKERS if match in op]
    op = d.pick.choice(ops)
    made = MAKERS[op](d, op)
    arrays, attributes, outputs = made if len(made) == 3 else (*made, 1)
    names = [f"x{i}" for i in range(len(arrays))]
    constant = range(1, len(arrays)) if d.maybe() else ()
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for i, (n, a) in enumerate(zip(names, arrays)) if i not in constant]
    held = [onnx.numpy_helper.from_array(arrays[i], names[i]) for i in constant]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info(one) for one in results], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", d.opset)], ir_version=8)
    return op, model, {n: a for i, (n, a) in enumerate(zip(names, arrays)) if i not in constant}


def opened(model):
    """The model with names for its inputs' sizes."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for one in made.graph.input:
        for dim in one.type.tensor_type.shape.dim:
            if dim.dim_value != 1:
                dim.dim_param = f"s{dim.dim_value}"
    for one in made.graph.output:
        one.type.Clear()
    return made


def run_open(model, inputs):
    """By a program with open sizes; inputs of integers are constants where they have to be."""
    try:
        program, fixed = tenon.onnx.load(opened(model)), {}
    except tenon.UnsupportedError:
        fixed = {name: one for name, one in inputs.items() if one.dtype.kind == "i" and one.size <= 16 and one.ndim < 2}
        program = tenon.onnx.load(opened(model), values=fixed)
    session = tenon.Session(program, threads=1)
    return [one.numpy() for one in session.forward(*(one for name, one in inputs.items() if name not in fixed))]


def outcome(model, inputs, is_open=False):
    """(word, detail)."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        model = onnx.shape_inference.infer_shapes(model)
        wanted = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                              providers=["CPUExecutionProvider"]).run(None, inputs)
    except Exception as error:  # noqa: BLE001: no such model, or no kernel
        return "not by ONNX Runtime", str(error)[:100]
    try:
        got = run_open(model, inputs) if is_open else tenon.onnx.Model(model, threads=1).run(inputs)
    except tenon.Error as error:
        return "refused", str(error)
    except Exception as error:  # noqa: BLE001: a finding
        return "crashed", repr(error)
    for a, b in zip(got, wanted, strict=True):
        b = np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return "wrong", f"{a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if b.dtype == np.uint8 or b.dtype == np.int8:
            far = np.abs(a.astype(int) - b.astype(int)).max(initial=0) > 0
        else:
            largest = np.abs(b[np.isfinite(b)]).max(initial=0) if b.dtype.kind == "f" else 0
            far = not np.allclose(a, b, rtol=1e-4, atol=1e-5 * max(largest, 1), equal_nan=True)
        if far:
            return "wrong", f"{a.ravel()[:5]}, not {b.ravel()[:5]}"
    return "equal", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--match", default="")
    parser.add_argument("--open", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts, refused = collections.defaultdict(collections.Counter), collections.Counter()
    bad = 0
    for seed in range(options.seed, options.seed + options.count):
        op, model, inputs = case(seed, options.match)
        word, detail = outcome(model, inputs, options.open)
        counts[op][word] += 1
        if word in ("wrong", "crashed"):
            bad += 1
            node = model.graph.node[0]
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            print(f"seed {seed}: {op} {model.opset_import[0].version} {attributes} "
                  f"{[a.shape for a in inputs.values()]}: {word}: {detail}", flush=True)
        if word == "refused":
            refused[detail[:110]] += 1
    for op, words in sorted(counts.items()):
        print(op, dict(words))
    for detail, count in refused.most_common(12):
        print(count, detail)
    print(f"{options.count} cases from seed {options.seed}: {bad} wrong")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())

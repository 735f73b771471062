"""Quantised layers as ONNX Runtime computes them, for tests/int8/qlinear_test.cpp.

QLinearConv and QLinearMatMul in the file format of op_cases.py. A case's op is the integer product
with its attributes; its inputs are those of the ONNX operator in the order
x, w, x_zero, w_zero, x_scale, w_scale, y_scale, y_zero and, for some convolutions, bias.

    python3 python/tests/qlinear_oracle.py OUTPUT.safetensors [--seed N] [--small]
"""
import numpy as np

from op_cases import main
from op_cases_layers import flag, onnx_pads, pick, size
from op_cases_quantized import CODES, codes, convolved, onnx_run, random_convolution, scales, weights


def result_scale(sums, x_scale, w_scale):
    """A scale under which most results are within the range of the codes, some outside."""
    spread = float(np.abs(sums).max() * x_scale * np.mean(w_scale)) or 1.0
    return np.float32(spread / 120)


def qlinear_conv2d(cases, count):
    for i in range(count):
        x, w, groups, (kernel, stride, padding, dilation) = random_convolution(cases, i)
        if x.size == 0:
            continue
        # ONNX Runtime wants zero points of 0 with weights of i8, and one scale or one for each.
        outputs = w.shape[0]
        if x.dtype == np.int8:
            w = w.view(np.int8)  # it has no kernel for other weights
        w_zero = np.zeros((), w.dtype) if w.dtype == np.int8 else codes(cases, (), "u8")
        x_zero, y_zero = (codes(cases, (), "i8" if x.dtype == np.int8 else "u8") for _ in range(2))
        x_scale, w_scale = scales(cases, ()), scales(cases, pick(cases, [(), (outputs,)]))
        sums = convolved(x.astype(np.int64) - x_zero, w.astype(np.int64) - w_zero, groups, kernel,
                         stride, padding, dilation)
        y_scale = result_scale(sums, x_scale, w_scale)
        inputs = [x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero]
        bias = [cases.rng.integers(-3000, 3000, outputs).astype(np.int32)] if flag(cases) else []
        want = onnx_run("QLinearConv", inputs + bias, x.dtype, strides=stride,
                        pads=onnx_pads(padding), dilations=dilation, group=groups)
        cases.add("conv2d_integer",
                  [x, w, x_zero, w_zero, x_scale, w_scale, y_scale, y_zero] + bias, want,
                  {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups})


def qlinear_matmul(cases, count):
    for i in range(count):
        m, k, n = size(cases, 1, 20), size(cases, 1, 70), size(cases, 1, 40)
        batch = [size(cases, 1, 3) for _ in range(i % 3)]
        x = codes(cases, batch + [m, k], pick(cases, list(CODES)))
        w = weights(cases, [k, n], "i8" if x.dtype == np.int8 else pick(cases, list(CODES)))
        x_zero, y_zero = (codes(cases, (), "i8" if x.dtype == np.int8 else "u8") for _ in range(2))
        w_zero = codes(cases, (), "i8" if w.dtype == np.int8 else "u8")
        x_scale, w_scale = scales(cases, ()), scales(cases, pick(cases, [(), (n,)]))
        w_zero = np.broadcast_to(w_zero, w_scale.shape).copy()
        sums = np.matmul(x.astype(np.int64) - x_zero, w.astype(np.int64) - w_zero)
        y_scale = result_scale(sums, x_scale, w_scale)
        inputs = [x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero]
        want = onnx_run("QLinearMatMul", inputs, x.dtype)
        cases.add("matmul_integer", [x, w, x_zero, w_zero, x_scale, w_scale, y_scale, y_zero], want)


def generate(cases):
    many = (lambda small, large: small if cases.small else large)
    qlinear_conv2d(cases, many(12, 100))
    qlinear_matmul(cases, many(8, 80))


if __name__ == "__main__":
    main(generate, __doc__)

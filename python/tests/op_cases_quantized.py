"""Op cases of codes of 8 bits: quantize_linear, dequantize_linear, and products with i32 sums.

numpy in int64 and float32, written from ONNX's definitions, and the same from ONNX Runtime where it
is installed: both must agree in every bit.

    python3 python/tests/op_cases_quantized.py OUTPUT.safetensors [--seed N] [--small]
"""
import numpy as np

from op_cases import main
from op_cases_layers import flag, onnx_pads, pick, size, window_of, windows

try:
    import onnx
    import onnxruntime
except ImportError:
    onnxruntime = None

CODES = {"i8": np.int8, "u8": np.uint8}


def onnx_run(op, inputs, output_type, **attributes):
    """The op as ONNX Runtime computes it, unoptimised."""
    names = [f"i{i}" for i in range(len(inputs))]
    node = onnx.helper.make_node(op, names, ["y"], **attributes)
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for a in inputs]
    info = [onnx.helper.make_tensor_value_info(n, k, a.shape)
            for n, k, a in zip(names, kinds, inputs)]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(output_type))
    out = onnx.helper.make_tensor_value_info("y", kind, None)
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", info, [out]), ir_version=8,
                                   opset_imports=[onnx.helper.make_opsetid("", 17)])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    return session.run(None, {n: np.asarray(a) for n, a in zip(names, inputs)})[0]


def agree(op, inputs, want, **attributes):
    if onnxruntime is None or want.size == 0 or any(a.size == 0 for a in inputs):
        return
    np.testing.assert_array_equal(onnx_run(op, inputs, want.dtype, **attributes), want, err_msg=op)


def codes(cases, shape, dtype):
    info = np.iinfo(CODES[dtype])
    return cases.rng.integers(info.min, info.max + 1, shape).astype(CODES[dtype])


def weights(cases, shape, dtype):
    """Codes of which ONNX Runtime's sums of pairs fit in 16 bits on every instruction set."""
    return (codes(cases, shape, dtype) // 2).astype(CODES[dtype])


def scales(cases, shape):
    return (2.0 ** cases.rng.uniform(-7, 1, shape)).astype(np.float32)


def along(parameter, axis, rank):
    """A scale or zero point as it broadcasts: one number, or one for each index of `axis`."""
    if parameter.size == 1:
        return parameter.reshape([1] * rank)
    return parameter.reshape([-1 if i == axis else 1 for i in range(rank)])


def parameters_shape(cases, shape):
    """The axis of scales, and the shape of scale and zero point: (), (1,) or that axis' size."""
    axis = int(cases.rng.integers(0, max(len(shape), 1)))
    kinds = [(), (1,)] + ([(shape[axis],)] * 2 if shape else [])
    return axis, pick(cases, kinds)


def quantize_linear(cases, count):
    for i in range(count):
        shape = [size(cases, 0 if i % 9 == 8 else 1, 7) for _ in range(int(cases.rng.integers(0, 5)))]
        dtype = pick(cases, list(CODES))
        axis, kind = parameters_shape(cases, shape)
        scale = scales(cases, kind)
        # Ties too: multiples of half a step.
        x = (cases.rng.normal(size=shape) * 8).astype(np.float32)
        if flag(cases):
            x = (np.round(x) * np.float32(0.5)).astype(np.float32)
            scale = np.full(kind, 0.25 if flag(cases) else 1.0, np.float32)
        if i % 5 == 4 and x.size > 2:
            x.flat[0], x.flat[1], x.flat[2] = np.inf, -np.inf, 3e38
        inputs, zero = [x, scale], np.zeros(kind, CODES[dtype])
        if flag(cases):
            zero = codes(cases, kind, dtype)
            inputs.append(zero)
        info = np.iinfo(CODES[dtype])
        rounded = np.rint(x / along(scale, axis, x.ndim)).astype(np.float64)
        want = np.clip(rounded + along(zero, axis, x.ndim), info.min, info.max)
        want = want.astype(CODES[dtype]).reshape(shape)
        agree("QuantizeLinear", [x, scale, zero], want, axis=axis)
        cases.add("quantize_linear", inputs, want, {"axis": axis, "dtype": dtype})


def dequantize_linear(cases, count):
    for i in range(count):
        shape = [size(cases, 0 if i % 9 == 8 else 1, 7) for _ in range(int(cases.rng.integers(0, 5)))]
        axis, kind = parameters_shape(cases, shape)
        dtype = pick(cases, ["i8", "u8", "i32"])
        scale = scales(cases, kind)
        if dtype == "i32":
            x = np.asarray(cases.rng.integers(-2**31, 2**31, shape), np.int32)
        else:
            x = codes(cases, shape, dtype)
        inputs, zero = [x, scale], np.zeros(kind, x.dtype)
        if dtype != "i32" and flag(cases):
            zero = codes(cases, kind, dtype)
            inputs.append(zero)
        difference = x.astype(np.int32) - along(zero, axis, x.ndim).astype(np.int32)
        want = (difference.astype(np.float32) * along(scale, axis, x.ndim)).astype(np.float32)
        want = want.reshape(shape)
        agree("DequantizeLinear", inputs, want, axis=axis)
        cases.add("dequantize_linear", inputs, want, {"axis": axis}, tolerance=(0, 0))


def zero_points(cases, i, x, w, outputs):
    """None, one of x, or both: the operands that follow x and w, and their values."""
    given = i % 3
    x_zero = codes(cases, pick(cases, [(), (1,)]), "i8" if x.dtype == np.int8 else "u8")
    w_zero = codes(cases, pick(cases, [(), (outputs,)]), "i8" if w.dtype == np.int8 else "u8")
    if given < 2:
        w_zero = np.zeros((), w.dtype)
    if given < 1:
        x_zero = np.zeros((), x.dtype)
    return [x_zero, w_zero][:given], x_zero.astype(np.int64), w_zero.astype(np.int64)


def matmul_integer(cases, count):
    for i in range(count):
        m, n = size(cases, 0 if i % 9 == 8 else 1, 21), size(cases, 1, 40)
        k = size(cases, 0 if i % 7 == 6 else 1, 70)
        batch = [size(cases, 1, 3) for _ in range(int(cases.rng.integers(0, 3)))]
        a = codes(cases, batch + [m, k], pick(cases, list(CODES)))
        b_batch = batch if flag(cases) else []
        b = weights(cases, b_batch + [k, n], pick(cases, list(CODES)))
        zeros, a_zero, b_zero = zero_points(cases, i, a, b, n)
        want = np.matmul(a.astype(np.int64) - a_zero.reshape(-1)[0],
                         b.astype(np.int64) - b_zero).astype(np.int32)
        # ONNX Runtime's zero points of columns go with one matrix for all batches.
        if b_zero.size == 1 or b.ndim == 2:
            agree("MatMulInteger", [a, b] + zeros, want)
        cases.add("matmul_integer", [a, b] + zeros, want)


def convolved(x, w, groups, kernel, stride, padding, dilation):
    """Sums of x and w, in int64 and less their zero points."""
    view = windows(x, kernel, stride, padding, dilation, 0)
    parts = [np.einsum("ncijrs,ocrs->noij", part, kernel_part) for part, kernel_part in
             zip(np.split(view, groups, axis=1), np.split(w, groups, axis=0))]
    return np.concatenate(parts, axis=1)


def random_convolution(cases, i):
    """Operands of a convolution: x, w, groups and its window."""
    h, w = size(cases, 1, 9), size(cases, 1, 9)
    window = window_of(cases, h, w)
    groups = pick(cases, [1, 1, 2, 3])
    depthwise = i % 4 == 3
    channels, outputs = (1, 1) if depthwise else (size(cases, 1, 9), size(cases, 1, 20))
    n = size(cases, 0 if i % 9 == 8 else 1, 2)
    x = codes(cases, (n, groups * channels, h, w), pick(cases, list(CODES)))
    kernel = weights(cases, (groups * outputs, channels, *window[0]), pick(cases, list(CODES)))
    return x, kernel, groups, window


def conv2d_integer(cases, count):
    for i in range(count):
        x, w, groups, (kernel, stride, padding, dilation) = random_convolution(cases, i)
        zeros, x_zero, w_zero = zero_points(cases, i, x, w, w.shape[0])
        wide = w.astype(np.int64) - w_zero.reshape(-1, 1, 1, 1)
        want = convolved(x.astype(np.int64) - x_zero.reshape(-1)[0], wide, groups, kernel, stride,
                         padding, dilation).astype(np.int32)
        # ONNX Runtime's ConvInteger takes u8 images and one zero point for all outputs.
        if x.dtype == np.uint8 and w_zero.size == 1:
            agree("ConvInteger", [x, w] + zeros, want, strides=stride, pads=onnx_pads(padding),
                  dilations=dilation, group=groups)
        cases.add("conv2d_integer", [x, w] + zeros, want,
                  {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups})


def generate(cases):
    many = (lambda small, large: small if cases.small else large)
    quantize_linear(cases, many(12, 80))
    dequantize_linear(cases, many(12, 80))
    matmul_integer(cases, many(9, 60))
    conv2d_integer(cases, many(12, 80))


if __name__ == "__main__":
    main(generate, __doc__)

"""Small networks as exporters write them, built by onnx.helper: (model, sizes of its inputs) by name."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NETWORKS = {}


def network(function):
    NETWORKS[function.__name__] = function
    return function


class Net:
    """A graph under construction: values are names."""

    def __init__(self, opset, seed=0):
        self.opset, self.rng = opset, np.random.default_rng(seed)
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []

    def input(self, name, sizes, kind=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, kind, sizes))
        return name

    def op(self, op, *operands, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, operands, names, name=f"n{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def array(self, values, dtype=np.int64):
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def constant(self, values, dtype=np.int64):
        """A constant as a node."""
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(values, dtype)))

    def weight(self, *sizes, scale=None):
        fan = max(int(np.prod(sizes[1:])), 1)
        return self.array(self.rng.standard_normal(sizes) * (scale or fan**-0.5), np.float32)

    def around(self, size, centre=1.0):
        return self.array(centre + 0.1 * self.rng.random(size), np.float32)

    def model(self, *results):
        outputs = [helper.make_empty_tensor_value_info(one) for one in results]
        graph = helper.make_graph(self.nodes, "net", self.inputs, outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    # Parts of networks

    def conv(self, x, a, b, kernel=3, stride=1, groups=1, bias=True):
        pad = kernel // 2
        return self.op("Conv", x, self.weight(b, a // groups, kernel, kernel), *([self.weight(b)] if bias else []),
                       kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, group=groups)

    def norm(self, x, size):
        return self.op("BatchNormalization", x, self.around(size), self.around(size, 0), self.around(size, 0),
                       self.around(size))

    def linear(self, x, a, b):
        return self.op("Add", self.op("MatMul", x, self.weight(a, b, scale=a**-0.5)), self.weight(b))

    def layer_norm(self, x, size):
        """As exporters wrote it before opset 17."""
        if self.opset >= 17:
            return self.op("LayerNormalization", x, self.around(size), self.around(size, 0))
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        square = self.op("ReduceMean", self.op("Pow", centred, self.array(2, np.float32)), axes=[-1])
        root = self.op("Sqrt", self.op("Add", square, self.array(1e-5, np.float32)))
        return self.op("Add", self.op("Mul", self.op("Div", centred, root), self.around(size)), self.around(size, 0))

    def gelu(self, x):
        """As exporters wrote it before opset 20."""
        half = self.op("Erf", self.op("Div", x, self.array(2**0.5, np.float32)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", half, self.array(1, np.float32))),
                       self.array(0.5, np.float32))

    def size(self, x, axis):
        """A size as exporters read it: i64[1]."""
        one = self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)
        return self.op("Unsqueeze", one, axes=[0]) if self.opset < 13 else self.op("Unsqueeze", one, self.array([0]))

    def heads(self, x, heads, width, order):
        sizes = self.op("Concat", self.size(x, 0), self.size(x, 1), self.array([heads]), self.array([width // heads]),
                        axis=0)
        return self.op("Transpose", self.op("Reshape", x, sizes), perm=order)

    def attention(self, x, heads, width, mask=None, past=None):
        """Self-attention, with keys and values before it where `past` has them; also the keys and values of all."""
        q, k, v = (self.linear(x, width, width) for _ in range(3))
        q = self.heads(q, heads, width, [0, 2, 1, 3])
        k, v = self.heads(k, heads, width, [0, 2, 1, 3]), self.heads(v, heads, width, [0, 2, 1, 3])
        if past:
            k, v = (self.op("Concat", one, new, axis=2) for one, new in zip(past, (k, v)))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Div", scores, self.array((width // heads)**0.5, np.float32))
        if mask:
            scores = self.op("Add", scores, mask)
        made = self.op("MatMul", self.op("Softmax", scores, axis=-1 if self.opset >= 13 else 3), v)
        sizes = self.op("Concat", self.size(x, 0), self.size(x, 1), self.array([width]), axis=0)
        made = self.op("Reshape", self.op("Transpose", made, perm=[0, 2, 1, 3]), sizes)
        return self.linear(made, width, width), k, v


@network
def resnet(opset=9):
    net = Net(opset)
    x = net.op("Relu", net.norm(net.conv(net.input("x", ["N", 3, 32, 32]), 3, 16, bias=False), 16))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for _ in range(2):
        y = net.op("Relu", net.norm(net.conv(x, 16, 16), 16))
        x = net.op("Relu", net.op("Add", net.norm(net.conv(y, 16, 16), 16), x))
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model(net.op("Gemm", x, net.weight(10, 16), net.weight(10), transB=1)), {"x": (2, 3, 32, 32)}


@network
def mobilenet(opset=11):
    net = Net(opset)
    x = net.op("Clip", net.conv(net.input("x", ["N", 3, "H", "W"]), 3, 16, stride=2), net.array(0, np.float32),
               net.array(6, np.float32))
    for _ in range(2):
        y = net.op("HardSwish" if opset >= 14 else "Relu", net.norm(net.conv(x, 16, 32, 1), 32))
        y = net.conv(y, 32, 32, groups=32)
        squeezed = net.op("HardSigmoid", net.conv(net.op("GlobalAveragePool", y), 32, 32, 1), alpha=1 / 6)
        x = net.op("Add", x, net.conv(net.op("Mul", y, squeezed), 32, 16, 1))
    x = net.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    return net.model(net.linear(x, 16, 5)), {"x": (1, 3, 33, 40)}


@network
def unet(opset=13):
    net = Net(opset)
    first = net.op("LeakyRelu", net.conv(net.input("x", ["N", 2, "H", 32]), 2, 8), alpha=0.1)
    deep = net.op("InstanceNormalization", net.conv(first, 8, 16, stride=2), net.around(16), net.around(16, 0))
    up = net.op("ConvTranspose", deep, net.weight(16, 8, 2, 2), net.weight(8), strides=[2, 2], kernel_shape=[2, 2])
    wide = net.op("Resize", deep, net.array([], np.float32), net.array([1, 1, 2, 2], np.float32), mode="nearest",
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    x = net.op("Concat", first, up, wide, axis=1)
    return net.model(net.op("Sigmoid", net.conv(x, 32, 1))), {"x": (1, 2, 20, 32)}


@network
def bert(opset=12):
    net = Net(opset)
    ids = net.input("ids", ["batch", "sequence"], TensorProto.INT64)
    mask = net.input("mask", ["batch", "sequence"], TensorProto.INT64)
    places = net.op("Slice", net.array(np.arange(64)[None]), net.array([0]), net.size(ids, 1), net.array([1]))
    x = net.op("Add", net.op("Gather", net.weight(100, 32, scale=1), ids),
               net.op("Gather", net.weight(64, 32, scale=1), places))
    x = net.layer_norm(x, 32)
    hidden = net.op("Unsqueeze", mask, axes=[1, 2]) if opset < 13 else net.op("Unsqueeze", mask, net.array([1, 2]))
    hidden = net.op("Sub", net.array(1, np.float32), net.op("Cast", hidden, to=TensorProto.FLOAT))
    hidden = net.op("Mul", hidden, net.array(-1e9, np.float32))
    for _ in range(2):
        x = net.layer_norm(net.op("Add", x, net.attention(x, 4, 32, hidden)[0]), 32)
        x = net.layer_norm(net.op("Add", x, net.linear(net.gelu(net.linear(x, 32, 64)), 64, 32)), 32)
    return net.model(x), {"ids": (2, 7), "mask": (2, 7)}


@network
def gpt2(opset=17):
    net = Net(opset)
    ids = net.input("ids", ["batch", "sequence"], TensorProto.INT64)
    past = [net.input(name, ["batch", 4, "past", 8]) for name in ("past_k", "past_v")]
    before = net.op("Gather", net.op("Shape", past[0]), net.constant(2), axis=0)
    total = net.op("Add", before, net.op("Gather", net.op("Shape", ids), net.constant(1), axis=0))
    places = net.op("Range", before, total, net.constant(1))
    table = net.weight(100, 32, scale=1)
    x = net.op("Add", net.op("Gather", table, ids), net.op("Gather", net.weight(64, 32, scale=1), places))
    ends = [net.op("Unsqueeze", one, net.array([0])) for one in (before, total)]
    rows = net.op("Slice", net.array(np.triu(np.full((1, 1, 64, 64), -1e9), 1), np.float32), ends[0], ends[1],
                  net.array([2]))
    mask = net.op("Slice", rows, net.array([0]), ends[1], net.array([3]))
    made, k, v = net.attention(net.layer_norm(x, 32), 4, 32, mask, past)
    x = net.op("Add", x, made)
    x = net.op("Add", x, net.linear(net.gelu(net.linear(net.layer_norm(x, 32), 32, 64)), 64, 32))
    return net.model(net.op("MatMul", x, net.op("Transpose", table, perm=[1, 0])), k, v), \
        {"ids": (2, 3), "past_k": (2, 4, 5, 8), "past_v": (2, 4, 5, 8)}


@network
def lstm(opset=14):
    net = Net(opset)
    ids = net.input("ids", [12, "batch"], TensorProto.INT64)
    x = net.op("Gather", net.weight(50, 8, scale=1), ids)
    y = net.op("LSTM", x, net.weight(2, 64, 8), net.weight(2, 64, 16), net.weight(2, 128), hidden_size=16,
               direction="bidirectional", outputs=3)[0]
    y = net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3]), net.array([0, 0, -1]))
    y, last = net.op("GRU", y, net.weight(1, 24, 32), net.weight(1, 24, 8), net.weight(1, 48), hidden_size=8,
                     linear_before_reset=1, outputs=2)
    return net.model(net.op("Squeeze", y, net.array([1])), last), {"ids": (12, 3)}


@network
def vocoder(opset=18):
    net = Net(opset)
    x = net.op("Conv", net.input("mel", ["N", 10, "frames"]), net.weight(16, 10, 7), net.weight(16), pads=[3, 3])
    x = net.op("ConvTranspose", net.op("LeakyRelu", x, alpha=0.1), net.weight(16, 8, 8), net.weight(8), strides=[4],
               pads=[2, 2])
    parts = [net.op("Conv", net.op("LeakyRelu", x, alpha=0.1), net.weight(8, 8, 3), net.weight(8), dilations=[d],
                    pads=[d, d]) for d in (1, 3, 5)]
    x = net.op("Add", x, net.op("Sum", *parts))
    return net.model(net.op("Tanh", net.op("Conv", x, net.weight(1, 8, 7), pads=[3, 3]))), {"mel": (1, 10, 9)}


@network
def qdq(opset=13):
    """A convolution, a residual, a pool and a linear layer of codes."""
    net = Net(opset)

    def codes(x, scale=0.05, zero=128):
        pair = net.array(scale, np.float32), net.array(zero, np.uint8)
        return net.op("DequantizeLinear", net.op("QuantizeLinear", x, *pair), *pair)

    def weight(*sizes):
        scale = net.array(0.01 + 0.005 * net.rng.random(sizes[0]), np.float32)
        return net.op("DequantizeLinear", net.array(net.rng.integers(-127, 128, sizes), np.int8), scale,
                      net.array(np.zeros(sizes[0]), np.int8), axis=0)

    x = codes(net.input("x", ["N", 8, 12, 12]))
    y = codes(net.op("Relu", net.op("Conv", x, weight(8, 8, 3, 3), pads=[1, 1, 1, 1])))
    x = codes(net.op("Add", x, y), 0.1)
    x = codes(net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 0.1)
    x = codes(net.op("Flatten", net.op("GlobalAveragePool", x)), 0.05)
    return net.model(codes(net.op("Gemm", x, weight(10, 8), transB=1))), {"x": (2, 8, 12, 12)}


def in_half(model):
    """The same network in f16."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.value_info[:]
    tensors = [*made.graph.initializer, *(a.t for node in made.graph.node for a in node.attribute if a.HasField("t"))]
    for one in tensors:
        if one.data_type == TensorProto.FLOAT:
            one.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one).astype(np.float16), one.name))
    for node in made.graph.node:
        for one in node.attribute:
            if node.op_type == "Cast" and one.name == "to" and one.i == TensorProto.FLOAT:
                one.i = TensorProto.FLOAT16
    for one in (*made.graph.input, *made.graph.output):
        if one.type.tensor_type.elem_type == TensorProto.FLOAT:
            one.type.tensor_type.elem_type = TensorProto.FLOAT16
    return made


def inputs_of(sizes, seed=0):
    """Numbers for inputs of these sizes: integers where the name says so."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, one in sizes.items():
        if name == "ids":
            made[name] = rng.integers(0, 50, one)
        elif name == "mask":
            made[name] = (np.arange(one[1]) < rng.integers(1, one[1] + 1, (one[0], 1))).astype(np.int64)
        else:
            made[name] = rng.standard_normal(one).astype(np.float32)
    return made

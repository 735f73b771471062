#!/usr/bin/env python3
"""A BERT sentence encoder's folder (model.safetensors, config.json) as ONNX, for other runtimes.

    encoder_onnx.py FOLDER OUT.onnx [--int8]

Inputs input_ids and attention_mask, i64 [batch, sequence]; output embeddings, f32 [batch, width]: mean pooling
and length 1 are part of the graph, as they are in Tenon's program. Nodes are spelt as PyTorch's exporter spells
them, which is what the runtimes' fusions look for. --int8 quantises with ONNX Runtime's own tool: weights per
channel, activations while running. Needs numpy and onnx, and onnxruntime for --int8.
"""

import argparse
import json
import pathlib
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[8 + size + begin : 8 + size + end], np.float32).reshape(entry["shape"])
    return tensors


class Graph:
    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, name, values):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, op, *inputs, **attributes):
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output


def build(folder):
    config = json.loads((folder / "config.json").read_text())
    weights = read_safetensors(folder / "model.safetensors")
    prefix = "" if "embeddings.word_embeddings.weight" in weights else "bert."
    width, heads = config["hidden_size"], config["num_attention_heads"]
    size, eps = width // heads, config["layer_norm_eps"]
    g = Graph()

    def i64(*values):
        return g.constant(f"i64_{len(g.constants)}", np.array(values, np.int64))

    def f32(value):
        return g.constant(f"f32_{len(g.constants)}", np.array(value, np.float32))

    def weight(name):
        return g.constant(name, weights[prefix + name])

    def linear(x, name):
        matrix = g.constant(name + ".weight_t", weights[prefix + name + ".weight"].T)
        return g.node("Add", g.node("MatMul", x, matrix), weight(name + ".bias"))

    def norm(x, name):
        return g.node("LayerNormalization", x, weight(name + ".weight"), weight(name + ".bias"), axis=-1, epsilon=eps)

    def split_heads(x, order):
        return g.node("Transpose", g.node("Reshape", x, i64(0, 0, heads, size)), perm=order)

    length = g.node("Slice", g.node("Shape", "input_ids"), i64(1), i64(2))
    positions = g.node("Slice", weight("embeddings.position_embeddings.weight"), i64(0), length, i64(0))
    words = g.node("Gather", weight("embeddings.word_embeddings.weight"), "input_ids")
    kind = g.constant("token_type", weights[prefix + "embeddings.token_type_embeddings.weight"][0])
    x = norm(g.node("Add", g.node("Add", words, positions), kind), "embeddings.LayerNorm")

    mask = g.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    wide = g.node("Unsqueeze", mask, i64(1, 2))
    hide = g.node("Mul", g.node("Sub", f32(1), wide), f32(-1e9))
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}."
        query = split_heads(linear(x, name + "attention.self.query"), [0, 2, 1, 3])
        key = split_heads(linear(x, name + "attention.self.key"), [0, 2, 3, 1])
        value = split_heads(linear(x, name + "attention.self.value"), [0, 2, 1, 3])
        scores = g.node("Div", g.node("MatMul", query, key), f32(size**0.5))
        chances = g.node("Softmax", g.node("Add", scores, hide), axis=-1)
        mixed = g.node("Transpose", g.node("MatMul", chances, value), perm=[0, 2, 1, 3])
        mixed = g.node("Reshape", mixed, i64(0, 0, width))
        y = g.node("Add", linear(mixed, name + "attention.output.dense"), x)
        y = norm(y, name + "attention.output.LayerNorm")
        up = linear(y, name + "intermediate.dense")
        erf = g.node("Add", g.node("Erf", g.node("Div", up, f32(2**0.5))), f32(1))
        gelu = g.node("Mul", g.node("Mul", up, erf), f32(0.5))
        x = norm(g.node("Add", linear(gelu, name + "output.dense"), y), name + "output.LayerNorm")

    column = g.node("Unsqueeze", mask, i64(2))
    total = g.node("ReduceSum", g.node("Mul", x, column), i64(1), keepdims=0)
    mean = g.node("Div", total, g.node("ReduceSum", mask, i64(1), keepdims=1))
    root = g.node("Sqrt", g.node("ReduceSum", g.node("Mul", mean, mean), i64(1), keepdims=1))
    g.nodes.append(helper.make_node("Div", [mean, root], ["embeddings"]))

    tokens = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "sequence"]) for n in ("input_ids", "attention_mask")]
    result = [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", width])]
    graph = helper.make_graph(g.nodes, "sentence_encoder", tokens, result, g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--int8", action="store_true")
    args = parser.parse_args()
    model = build(args.folder)
    if not args.int8:
        onnx.save(model, args.out)
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as temporary:
        plain = pathlib.Path(temporary) / "f32.onnx"
        onnx.save(model, plain)
        quantize_dynamic(plain, args.out, per_channel=True, weight_type=QuantType.QInt8)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Two convolutional networks in Tenon, ONNX Runtime and OpenVINO, in one run.

    vision.py [--int8] [--tenon PATH] [-n resnet mobilenet] [-b 1 8] [-t THREADS] [-r ROUNDS] [--dir FOLDER]

Needs a Python with numpy, onnx, onnxruntime and openvino (all from PyPI). The networks are ResNet-50 and
MobileNetV2 at 224 by 224 with random weights from a fixed seed, batch norms folded; the same weights go to
Tenon as safetensors and to the others as ONNX, and are kept in FOLDER. Outputs are compared before
anything is timed. Runs of the three are interleaved, so that noise affects all; medians are printed, with the
share of the f32 limit that bench_vision measures in the same run. OpenVINO is told to compute in f32: on
machines with bf16 tiles it would round to bf16 otherwise. TENON_CPU_ISA=avx2 and ONEDNN_MAX_CPU_ISA=AVX2
hold Tenon and OpenVINO to a lower instruction set; ONNX Runtime cannot be held.

With --int8 all three are calibrated on the same images by smallest and largest value: Tenon by
quant::calibrate, ONNX Runtime by its static quantisation (QDQ, per channel; activations u8 and i8, the
faster counts), OpenVINO by NNCF (PyPI: nncf), with the precision of what is left its own choice. Instead
of being compared to each other, outputs are compared to ONNX Runtime's in f32, on images of their own, by --only-prepare.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIDE = 224
CLASSES = 1000


class Network:
    """Collects the ONNX nodes and the weights of one network, and counts its operations."""

    def __init__(self):
        self.random = np.random.default_rng(1)
        self.weights, self.nodes, self.operations = {}, [], 0
        self.channels, self.side = 3, SIDE

    def node(self, op, inputs, **attributes):
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, name, shape, scale):
        self.weights[name] = (self.random.standard_normal(shape) * scale).astype(np.float32)
        return name

    def conv(self, x, name, outputs, size, stride=1, depthwise=False, gain=2.0):
        """x as (value, channels, side); the variance of what comes out is about `gain` / 2 that of x."""
        value, channels, side = x
        groups = channels if depthwise else 1
        fan = channels // groups * size * size
        w = self.constant(f"{name}.weight", (outputs, channels // groups, size, size), (gain / fan) ** 0.5)
        b = self.constant(f"{name}.bias", (outputs,), 0.05)
        side = (side - 1) // stride + 1
        self.operations += 2 * outputs * fan * side * side
        pad = [size // 2] * 4
        y = self.node("Conv", [value, w, b], strides=[stride] * 2, pads=pad, group=groups, kernel_shape=[size] * 2)
        return y, outputs, side

    def relu(self, x):
        return self.node("Relu", [x[0]]), *x[1:]

    def relu6(self, x):
        for name, limit in (("zero", 0.0), ("six", 6.0)):
            self.weights.setdefault(f"limits.{name}", np.float32(limit).reshape(()))
        return self.node("Clip", [x[0], "limits.zero", "limits.six"]), *x[1:]

    def add(self, x, y):
        return self.node("Add", [x[0], y[0]]), *x[1:]

    def head(self, x):
        value, channels, _ = x
        w = self.constant("head.weight", (CLASSES, channels), (1 / channels) ** 0.5)
        b = self.constant("head.bias", (CLASSES,), 0.05)
        self.operations += 2 * CLASSES * channels
        flat = self.node("Flatten", [self.node("GlobalAveragePool", [value])], axis=1)
        return self.node("Gemm", [flat, w, b], transB=1)


def resnet(net):
    x = net.relu(net.conv(("images", 3, SIDE), "stem", 64, 7, 2))
    x = net.node("MaxPool", [x[0]], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64, 56
    index = 0
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for i in range(count):
            name, stride = f"blocks.{index}", 2 if stage > 0 and i == 0 else 1
            h = net.relu(net.conv(x, f"{name}.reduce", width, 1))
            h = net.relu(net.conv(h, f"{name}.conv", width, 3, stride))
            h = net.conv(h, f"{name}.expand", 4 * width, 1, gain=0.5)
            x = net.relu(net.add(h, net.conv(x, f"{name}.shortcut", 4 * width, 1, stride, gain=1.0) if i == 0 else x))
            index += 1
    return net.head(x)


def mobilenet(net):
    x = net.relu6(net.conv(("images", 3, SIDE), "stem", 32, 3, 2))
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    index = 0
    for factor, channels, count, first in stages:
        for i in range(count):
            name, stride, h = f"blocks.{index}", first if i == 0 else 1, x
            if factor != 1:
                h = net.relu6(net.conv(h, f"{name}.expand", x[1] * factor, 1))
            h = net.relu6(net.conv(h, f"{name}.depthwise", h[1], 3, stride, depthwise=True))
            h = net.conv(h, f"{name}.project", channels, 1, gain=1.0)
            x = net.add(x, h) if stride == 1 and x[1] == channels else h
            index += 1
    return net.head(net.relu6(net.conv(x, "last", 1280, 1)))


NETWORKS = {"resnet": resnet, "mobilenet": mobilenet}


def write_safetensors(path, arrays):
    header, offset = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).tobytes())


def make(name, folder):
    """Writes NAME.safetensors and NAME.onnx; returns the operations for one image."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    net = Network()
    result = NETWORKS[name](net)
    inputs = [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])]
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, ["n", CLASSES])]
    constants = [numpy_helper.from_array(array, key) for key, array in net.weights.items()]
    graph = helper.make_graph(net.nodes, name, inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / f"{name}.onnx")
    weights = {key: array for key, array in net.weights.items() if not key.startswith("limits.")}
    write_safetensors(folder / f"{name}.safetensors", weights)
    return net.operations


class Tenon:
    title = "Tenon"

    def __init__(self, args, name, folder, images):
        write_safetensors(folder / "images.safetensors", {"images": images})
        command = [args.tenon, name, folder / f"{name}.safetensors", folder / "images.safetensors", "--threads", args.t]
        if args.int8:
            write_safetensors(folder / "samples.safetensors", {"images": samples()})
            command += ["--int8", folder / "samples.safetensors"]
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.result = folder / "result.f32"

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"bench_vision ended with {self.process.wait()}")
        return answer.strip()

    def output(self):
        self.ask(f"output {self.result}")
        return np.fromfile(self.result, np.float32).reshape(-1, CLASSES)

    def times(self, count):
        return [float(part) for part in self.ask(f"run {count}").split()]


class Peer:
    def times(self, count):
        result = []
        for _ in range(count):
            begin = time.perf_counter()
            self.output()
            result.append(time.perf_counter() - begin)
        return result


class OnnxRuntime(Peer):
    title = "ONNX Runtime"
    suffix = ""

    def __init__(self, args, name, folder, images):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = args.t, 1
        path = str(folder / f"{name}{self.suffix}.onnx")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.feed = {"images": images}

    def output(self):
        return self.session.run(None, self.feed)[0]


class OnnxRuntimeU8(OnnxRuntime):
    title, suffix = "ORT u8", "_u8"


class OnnxRuntimeS8(OnnxRuntime):
    title, suffix = "ORT i8", "_i8"


class OpenVino(Peer):
    title = "OpenVINO"

    def __init__(self, args, name, folder, images):
        import openvino

        core = openvino.Core()
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": args.t}
        if args.int8:
            model = core.read_model(folder / f"{name}_nncf.xml")
        else:
            model = core.read_model(folder / f"{name}.onnx")
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        model.reshape(list(images.shape))
        self.request = core.compile_model(model, "CPU", settings).create_infer_request()
        self.tensor = openvino.Tensor(images, shared_memory=True)
        self.request.set_input_tensor(self.tensor)

    def output(self):
        self.request.infer()
        return self.request.get_output_tensor().data


def samples():
    """The images that ranges are taken from."""
    return np.random.default_rng(3).standard_normal((16, 3, SIDE, SIDE)).astype(np.float32)


def quantize(name, folder):
    """Writes NAME_u8.onnx, NAME_i8.onnx and NAME_nncf.xml where they are not there yet."""
    import nncf
    import openvino
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            self.images = iter(samples())

        def get_next(self):
            image = next(self.images, None)
            return None if image is None else {"images": image[None]}

    for suffix, kind in (("u8", q.QuantType.QUInt8), ("i8", q.QuantType.QInt8)):
        to = folder / f"{name}_{suffix}.onnx"
        if not to.exists():
            q.quantize_static(folder / f"{name}.onnx", to, Reader(), activation_type=kind,
                              quant_format=q.QuantFormat.QDQ, weight_type=q.QuantType.QInt8, per_channel=True)
    to = folder / f"{name}_nncf.xml"
    if not to.exists():
        model = openvino.Core().read_model(folder / f"{name}.onnx")
        images = nncf.Dataset([image[None] for image in samples()])
        with contextlib.redirect_stdout(sys.stderr):  # it shows its progress
            quantized = nncf.quantize(model, images, subset_size=len(samples()))
        openvino.save_model(quantized, to, compress_to_fp16=False)


def describe_accuracy(args, name, folder):
    """Prints how close each is to f32, on images that no range was taken from."""
    images = np.random.default_rng(4).standard_normal((16, 3, SIDE, SIDE)).astype(np.float32)
    want = np.array(OnnxRuntime(args, name, folder, images).output())
    for kind in (Tenon, OnnxRuntimeU8, OnnxRuntimeS8, OpenVino):
        got = np.array(kind(args, name, folder, images).output())
        cosine = [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(got, want)]
        same = int((got.argmax(1) == want.argmax(1)).sum())
        print(f"{name:10} {kind.title:14} cosine with f32 {min(cosine):.4f} at least, {statistics.mean(cosine):.4f} "
              f"in the mean; the same class {same} of {len(images)} times", flush=True)


def compare(runners):
    want = np.array(runners[1].output())
    scale = np.abs(want).max()
    for runner in runners:
        got = runner.output()
        worst = np.abs(got - want).max() / scale
        if not np.isfinite(got).all() or worst > 1e-4:
            sys.exit(f"{runner.title} differs from {runners[1].title} by {worst:.2e} of the largest output")


def measure(args, name, batch, folder, operations):
    images = np.random.default_rng(2).standard_normal((batch, 3, SIDE, SIDE)).astype(np.float32)
    runners = [kind(args, name, folder, images) for kind in kinds(args)]
    if not args.int8:
        compare(runners)
    limit = float(runners[0].ask("limit"))
    times = {runner.title: [] for runner in runners}
    for _ in range(args.r):
        for runner in runners:
            time.sleep(0.02)  # threads of the one before stop spinning
            times[runner.title] += runner.times(args.runs)[1:]
    medians = {title: statistics.median(list_) for title, list_ in times.items()}
    best = min(medians[runner.title] for runner in runners[1:])
    line = f"{name:10}{batch:3}"
    for title, seconds in medians.items():
        rate = operations * batch / seconds
        line += f"{seconds * 1e3:10.2f} ms {rate * 1e-9:5.0f} ({rate / limit:4.0%})"
    print(f"{line}{best / medians['Tenon']:9.2f}x", flush=True)
    return runners[0].ask("level"), limit


def kinds(args):
    return (Tenon, OnnxRuntimeU8, OnnxRuntimeS8, OpenVino) if args.int8 else (Tenon, OnnxRuntime, OpenVino)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenon", default=ROOT / "build/release/benchmarks/bench_vision")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--only-prepare", action="store_true", help="make the files, compare accuracy, time nothing")
    parser.add_argument("-n", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("-b", nargs="+", type=int, default=[1, 8])
    parser.add_argument("-t", type=int, default=os.cpu_count())
    parser.add_argument("-r", type=int, default=5, help="rounds")
    parser.add_argument("--runs", type=int, default=4, help="runs in a round, the first not counted")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "build/vision")
    args = parser.parse_args()

    args.dir.mkdir(parents=True, exist_ok=True)
    titles = "".join(f"{kind.title:>16} Gop/s  " for kind in kinds(args))
    print(f"network batch{titles}   ratio to the faster")
    for name in args.n:
        operations = make(name, args.dir)
        if args.int8:
            quantize(name, args.dir)
        if args.int8 and args.only_prepare:
            describe_accuracy(args, name, args.dir)
        for batch in [] if args.only_prepare else args.b:
            level, limit = measure(args, name, batch, args.dir, operations)
    if not args.only_prepare:
        print(f"level {level}, {args.t} threads, f32 limit {limit * 1e-9:.0f} Gop/s; medians of {args.r} interleaved rounds")


if __name__ == "__main__":
    main()

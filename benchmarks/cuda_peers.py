#!/usr/bin/env python3
"""PyTorch and ONNX Runtime at what bench_cuda measures, on the same GPU.

    cuda_peers.py gemm|attention|points|order|resnet|resnet_onnx...

Prints bench_cuda's JSON: rows of the same names. Times are medians by the device's clock, of ONNX Runtime by the
CPU's with arrays bound on the device.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F


def seconds(run, rounds=10):
    run()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def gemm():
    for rows, columns, depth in [(512, 14336, 4096), (4096, 14336, 4096), (4096, 4096, 14336)]:
        x = torch.randn(rows, depth, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(columns, depth, device="cuda", dtype=torch.bfloat16)
        took = seconds(lambda: F.linear(x, w))
        yield f"gemm bf16 {rows} x {columns} x {depth}", 2 * rows * columns * depth / took / 1e12, "TFLOP/s"


def attention():
    for length in [8192, 32768]:
        q = torch.randn(1, 32, length, 128, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(1, 8, length, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        took = seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), 5)
        yield f"attention bf16, {length} keys", 2 * 32 * 128 * length * length / took / 1e12, "TFLOP/s"


@torch.inference_mode()
def points():
    for name, dtype in TYPES.items():
        x, a, b = (torch.randn(1 << 26, device="cuda", dtype=dtype) for _ in range(3))
        took = seconds(lambda: torch.clamp(torch.tanh(x * a + x) * b, -1, 1))
        yield f"5 element-wise steps {name}", 4 * x.nbytes / took / 1e9, "GB/s"


@torch.inference_mode()
def order():
    sizes = (4096, 8192), (1 << 26,), (1 << 20,), (65, 131072), (1 << 22,)
    rows, everything, line, vocabulary, unsorted = (torch.randn(*size, device="cuda") for size in sizes)
    for what, x, run in (
        ("sum of all", everything, torch.sum),
        ("sum of rows", rows, lambda x: x.sum(1)),
        ("sum of columns", rows, lambda x: x.sum(0)),
        ("running sum of rows", rows, lambda x: x.cumsum(1)),
        ("running sum of all", line, lambda x: x.cumsum(0)),
        ("top 40 of rows", vocabulary, lambda x: x.topk(40).values),
        ("sort of all", unsorted, lambda x: x.sort(dim=0, stable=True).values),
        ("sort of rows", rows, lambda x: x.sort(dim=1, stable=True).values),
    ):
        yield what, x.numel() / seconds(lambda: run(x), 5) / 1e6, "M elements/s"


class ResNet(torch.nn.Module):
    """ResNet-50 without batch norms, as bench_cuda has it."""

    def __init__(self):
        super().__init__()
        self.convolutions = torch.nn.ModuleList()
        self.add(3, 64, 7, 2)
        channels = 64
        for stage, count in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                if i == 0:
                    self.add(channels, 4 * width, 1, stride)
                self.add(channels, width, 1)
                self.add(width, width, 3, stride)
                self.add(width, 4 * width, 1)
                channels = 4 * width

    def add(self, inputs, outputs, size, stride=1):
        self.convolutions.append(torch.nn.Conv2d(inputs, outputs, size, stride, size // 2))

    def forward(self, x):
        layers = iter(self.convolutions)
        x = F.max_pool2d(F.relu(next(layers)(x)), 3, 2, 1)
        for count in (3, 4, 6, 3):
            for i in range(count):
                shortcut = next(layers)(x) if i == 0 else x
                h = F.relu(next(layers)(x))
                h = F.relu(next(layers)(h))
                x = F.relu(next(layers)(h) + shortcut)
        return x.mean((2, 3))


class Onnx:
    """Writes ONNX files, as protocol buffers: here is ONNX Runtime, but not the package onnx."""

    def __init__(self):
        self.nodes, self.weights = [], []

    @staticmethod
    def varint(value):
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes([*out, value])

    @classmethod
    def field(cls, number, value):
        if isinstance(value, int):
            return cls.varint(number << 3) + cls.varint(value)
        value = value.encode() if isinstance(value, str) else value
        return cls.varint(number << 3 | 2) + cls.varint(len(value)) + value

    @classmethod
    def message(cls, *fields):
        return b"".join(cls.field(*field) for field in fields)

    def weight(self, tensor):
        name = f"w{len(self.weights)}"
        dims = [(1, size) for size in tensor.shape]
        kind = 10 if tensor.dtype == torch.float16 else 1
        data = tensor.detach().cpu().numpy().tobytes()
        self.weights.append(self.message(*dims, (2, kind), (8, name), (9, data)))
        return name

    def node(self, op, inputs, **lists):
        name = f"v{len(self.nodes)}"
        attributes = [(5, self.message((1, key), *[(8, value) for value in values], (20, 7)))
                      for key, values in lists.items()]
        self.nodes.append(self.message(*[(1, x) for x in inputs], (2, name), (4, op), *attributes))
        return name

    def value(self, name, images, sizes):
        kind = 10 if images.dtype == torch.float16 else 1
        shape = self.message(*[(1, self.message((1, size))) for size in sizes])
        return self.message((1, name), (2, self.message((1, self.message((1, kind), (2, shape))))))

    def file(self, images, result, sizes):
        graph = self.message(*[(1, node) for node in self.nodes], (2, "g"), *[(5, w) for w in self.weights],
                             (11, self.value("x", images, images.shape)), (12, self.value(result, images, sizes)))
        return self.message((1, 8), (7, graph), (8, self.message((1, ""), (2, 13))))


def onnx_of(network, images):
    """The network's file, and the name of its result."""
    file, layers = Onnx(), iter(network.convolutions)

    def conv(x, relu=True):
        layer = next(layers)
        inputs = [x, file.weight(layer.weight), file.weight(layer.bias)]
        y = file.node("Conv", inputs, strides=layer.stride, pads=layer.padding * 2, kernel_shape=layer.kernel_size)
        return file.node("Relu", [y]) if relu else y

    x = file.node("MaxPool", [conv("x")], strides=[2, 2], pads=[1] * 4, kernel_shape=[3, 3])
    for count in (3, 4, 6, 3):
        for i in range(count):
            shortcut = conv(x, relu=False) if i == 0 else x
            h = conv(conv(conv(x)), relu=False)
            x = file.node("Relu", [file.node("Add", [h, shortcut])])
    x = file.node("GlobalAveragePool", [x])
    return file.file(images, x, (len(images), 2048, 1, 1)), x


TYPES = {"f32": torch.float32, "f16": torch.float16}


def networks():
    for name, dtype in TYPES.items():
        for batch in (1, 32):
            images = torch.randn(batch, 3, 224, 224, device="cuda", dtype=dtype)
            yield f"ResNet-50 {name} of {batch}", batch, ResNet().to("cuda", dtype).eval(), images


@torch.inference_mode()
def resnet():
    torch.backends.cudnn.allow_tf32 = False
    for what, batch, network, images in networks():
        yield what, batch / seconds(lambda: network(images)), "images/s"


@torch.inference_mode()
def resnet_onnx():
    import onnxruntime
    provider = ("CUDAExecutionProvider", {"use_tf32": "0"})
    if provider[0] not in onnxruntime.get_available_providers():
        raise SystemExit("this ONNX Runtime has no CUDA provider")
    for what, batch, network, images in networks():
        file, result = onnx_of(network, images)
        session = onnxruntime.InferenceSession(file, providers=[provider])
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(images.cpu().numpy(), "cuda", 0))
        binding.bind_output(result, "cuda")
        times = []
        for _ in range(12):
            begin = time.perf_counter()
            session.run_with_iobinding(binding)
            times.append(time.perf_counter() - begin)
        yield what, batch / statistics.median(times[2:]), "images/s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=("gemm", "attention", "points", "order", "resnet", "resnet_onnx"))
    args = parser.parse_args()
    rows = [dict(zip(("what", "value", "unit"), row)) for what in args.what for row in globals()[what]()]
    print(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

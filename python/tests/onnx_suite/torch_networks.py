"""Twelve networks with random weights, exported by PyTorch into a folder, each with an input's arrays beside it.

    python python/tests/onnx_suite/torch_networks.py FOLDER [NAME ...] [--dynamo]

Needs torch, torchvision, transformers, onnxscript and, for the quantised one, onnxruntime. compare_networks.py runs the
files.
"""

import argparse
import pathlib
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

NETWORKS = {}


def network(name, inputs, dynamic, outputs=("y",), opset=17):
    """Marks what makes a network: (module, example arguments). `dynamic`: axes with names, by input or output."""

    def mark(make):
        NETWORKS[name] = (make, inputs, dynamic, outputs, opset)
        return make

    return mark


BATCH = {0: "batch"}


def vision(make, size=224):
    return make, (torch.randn(1, 3, size, size),)


@network("resnet50", ["x"], {"x": BATCH, "y": BATCH}, opset=13)
def resnet50():
    from torchvision.models import resnet50 as make
    return vision(make(weights=None))


@network("mobilenet_v3", ["x"], {"x": BATCH, "y": BATCH}, opset=11)
def mobilenet():
    from torchvision.models import mobilenet_v3_large as make
    return vision(make(weights=None))


@network("efficientnet_b0", ["x"], {"x": BATCH, "y": BATCH}, opset=9)
def efficientnet():
    from torchvision.models import efficientnet_b0 as make
    return vision(make(weights=None))


class ConvBlock(nn.Module):
    def __init__(self, a, b, kernel=1, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(b)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


class Csp(nn.Module):
    """Half of the channels go through residual blocks."""

    def __init__(self, a, b, count):
        super().__init__()
        self.first, self.last = ConvBlock(a, b), ConvBlock((2 + count) * b // 2, b)
        self.blocks = nn.ModuleList(nn.Sequential(ConvBlock(b // 2, b // 2, 3), ConvBlock(b // 2, b // 2, 3))
                                    for _ in range(count))

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(parts[-1] + block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """A detector: backbone, pyramid, and heads whose boxes are decoded on anchors."""

    def __init__(self, classes=20):
        super().__init__()
        w = (16, 32, 64, 128)
        self.stem = ConvBlock(3, w[0], 3, 2)
        self.stages = nn.ModuleList(nn.Sequential(ConvBlock(a, b, 3, 2), Csp(b, b, 1)) for a, b in zip(w, w[1:]))
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.spp = ConvBlock(4 * w[3], w[3])
        self.up = Csp(w[3] + w[2], w[2], 1)
        self.heads = nn.ModuleList(nn.Conv2d(c, classes + 4, 1) for c in (w[2], w[3]))

    def forward(self, x):
        x = self.stem(x)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        pools = [x]
        for _ in range(3):
            pools.append(self.pool(pools[-1]))
        deep = self.spp(torch.cat(pools, 1))
        fine = self.up(torch.cat([F.interpolate(deep, scale_factor=2.0, mode="nearest"), maps[1]], 1))
        found = []
        for head, features, stride in zip(self.heads, (fine, deep), (8, 16)):
            made = head(features)
            count, channels, rows, columns = made.shape
            made = made.view(count, channels, rows * columns).permute(0, 2, 1)
            ys, xs = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            anchors = torch.stack((xs, ys), -1).view(1, rows * columns, 2).to(made.dtype) + 0.5
            centre, size, scores = made.split((2, 2, channels - 4), -1)
            found.append(torch.cat(((centre.sigmoid() * 2 - 1 + anchors) * stride, size.exp() * stride,
                                    scores.sigmoid()), -1))
        return torch.cat(found, 1)


@network("yolo", ["x"], {"x": {0: "batch", 2: "rows", 3: "columns"}, "y": {0: "batch", 1: "boxes"}}, opset=12)
def yolo():
    return vision(Yolo(), 320)


class UNet(nn.Module):
    def __init__(self, w=(16, 32, 64, 128)):
        super().__init__()
        def pair(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.InstanceNorm2d(b, affine=True), nn.LeakyReLU(0.1),
                                 nn.Conv2d(b, b, 3, padding=1), nn.GroupNorm(8, b), nn.ReLU())
        self.down = nn.ModuleList(pair(a, b) for a, b in zip((3, *w), w))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(w, w[1:]))
        self.join = nn.ModuleList(pair(2 * a, a) for a in w[:-1])
        self.last = nn.Conv2d(w[0], 2, 1)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for i in reversed(range(len(self.rise))):
            x = self.join[i](torch.cat([self.rise[i](x), kept[i]], 1))
        return F.interpolate(self.last(x), scale_factor=2, mode="bilinear", align_corners=False)


@network("unet", ["x"], {"x": BATCH, "y": BATCH}, opset=16)
def unet():
    return vision(UNet(), 128)


@network("vit", ["x"], {"x": BATCH, "y": BATCH})
def vit():
    from torchvision.models import VisionTransformer
    made = VisionTransformer(224, 16, 6, 6, 384, 1536, num_classes=100)
    nn.init.normal_(made.heads.head.weight, std=0.05)  # zeros by default
    return vision(made)


def hugging_face(kind, config, **changes):
    """A model of transformers with random weights and attention of plain ops."""
    import transformers
    made = getattr(transformers, config)(**changes)
    made._attn_implementation = "eager"
    return getattr(transformers, kind)(made)


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = hugging_face("BertModel", "BertConfig", hidden_size=256, num_hidden_layers=4,
                                  num_attention_heads=4, intermediate_size=1024, vocab_size=2000)

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[0]


TEXT = {0: "batch", 1: "sequence"}


@network("bert", ["input_ids", "attention_mask", "token_type_ids"],
         {"input_ids": TEXT, "attention_mask": TEXT, "token_type_ids": TEXT, "y": TEXT}, opset=14)
def bert():
    ids = torch.randint(0, 2000, (2, 48))
    mask = torch.ones_like(ids)
    mask[1, 40:] = 0
    return Bert(), (ids, mask, torch.zeros_like(ids))


class WhisperEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = hugging_face("WhisperModel", "WhisperConfig", d_model=384, encoder_layers=4, decoder_layers=1,
                                  encoder_attention_heads=6, encoder_ffn_dim=1536, vocab_size=200, pad_token_id=0,
                                  bos_token_id=1, eos_token_id=2, decoder_start_token_id=1).encoder

    def forward(self, features):
        return self.model(features)[0]


@network("whisper_encoder", ["features"], {"features": BATCH, "y": BATCH})
def whisper():
    return WhisperEncoder(), (torch.randn(1, 80, 3000),)


class Gpt2(nn.Module):
    """GPT-2 with its keys and values as inputs and results."""

    def __init__(self, layers=4, width=256, heads=4, vocabulary=2000, context=256):
        super().__init__()
        self.heads = heads
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
            "norm2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
        }) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("seen", torch.tril(torch.ones(context, context, dtype=torch.bool))[None, None])

    def forward(self, ids, past_keys, past_values):
        count, length = ids.shape
        before = past_keys.shape[3]
        x = self.tokens(ids) + self.places(torch.arange(before, before + length, device=ids.device))
        keys, values = [], []
        for i, block in enumerate(self.blocks):
            q, k, v = (one.view(count, length, self.heads, -1).transpose(1, 2)
                       for one in block["qkv"](block["norm1"](x)).chunk(3, -1))
            k, v = torch.cat((past_keys[i], k), 2), torch.cat((past_values[i], v), 2)
            scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
            seen = self.seen[:, :, before:before + length, :before + length]
            scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
            made = (scores.softmax(-1) @ v).transpose(1, 2).reshape(count, length, -1)
            x = x + block["out"](made)
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x)), approximate="tanh"))
            keys.append(k)
            values.append(v)
        return self.norm(x) @ self.tokens.weight.T, torch.stack(keys), torch.stack(values)


@network("gpt2", ["ids", "past_keys", "past_values"],
         {"ids": TEXT, "past_keys": {1: "batch", 3: "past"}, "past_values": {1: "batch", 3: "past"},
          "logits": TEXT, "keys": {1: "batch", 3: "total"}, "values": {1: "batch", 3: "total"}},
         outputs=("logits", "keys", "values"))
def gpt2():
    return Gpt2(), (torch.randint(0, 2000, (2, 7)), torch.randn(4, 2, 4, 20, 64), torch.randn(4, 2, 4, 20, 64))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(500, 64)
        self.lstm = nn.LSTM(64, 128, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(256, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, ids):
        x, _ = self.lstm(self.table(ids))
        x, last = self.gru(x)
        return F.log_softmax(self.head(x + last.transpose(0, 1)), -1)


@network("lstm", ["ids"], {"ids": BATCH, "y": BATCH}, opset=15)
def lstm():
    return Lstm(), (torch.randint(0, 500, (2, 40)),)


class Vocoder(nn.Module):
    """HiFi-GAN's generator: transposed convolutions between stacks of dilated ones."""

    def __init__(self, width=128):
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.rises, self.stacks = nn.ModuleList(), nn.ModuleList()
        for i, (rate, kernel) in enumerate(((8, 16), (8, 16), (2, 4), (2, 4))):
            c = width >> (i + 1)
            self.rises.append(nn.ConvTranspose1d(2 * c, c, kernel, rate, (kernel - rate) // 2))
            self.stacks.append(nn.ModuleList(nn.ModuleList(
                nn.Conv1d(c, c, size, dilation=d, padding=d * (size - 1) // 2) for d in (1, 3, 5)) for size in (3, 7)))
        self.last = nn.Conv1d(width >> 4, 1, 7, padding=3)

    def forward(self, mel):
        x = self.first(mel)
        for rise, stacks in zip(self.rises, self.stacks):
            x = rise(F.leaky_relu(x, 0.1))
            total = 0
            for stack in stacks:
                y = x
                for conv in stack:
                    y = y + conv(F.leaky_relu(y, 0.1))
                total = total + y
            x = total / len(stacks)
        return torch.tanh(self.last(F.leaky_relu(x, 0.1)))


@network("vocoder", ["mel"], {"mel": {0: "batch", 2: "frames"}, "y": {0: "batch", 2: "samples"}}, opset=18)
def vocoder():
    return Vocoder(), (torch.randn(1, 80, 50),)


@network("qdq_cnn", ["x"], {"x": BATCH, "y": BATCH}, opset=13)
def qdq_cnn():
    from torchvision.models import resnet18
    return vision(resnet18(weights=None))


def settle(module, seed):
    """Random weights that keep activations near 1, and statistics as a trained network has them."""
    torch.manual_seed(seed)
    for name, one in module.named_buffers():
        if name.endswith("running_mean"):
            one.normal_(0, 0.1)
        if name.endswith("running_var"):
            one.uniform_(0.5, 1.5)
    return module.eval()


def quantised(path, arrays):
    """Rewrites an f32 model as one of codes in QDQ form."""
    from onnxruntime import quantization as q

    class Samples(q.CalibrationDataReader):
        def __init__(self):
            rng = np.random.default_rng(0)
            self.left = [{name: rng.standard_normal(one.shape).astype("float32") for name, one in arrays.items()}
                         for _ in range(4)]

        def get_next(self):
            return self.left.pop() if self.left else None

    q.quantize_static(str(path), str(path), Samples(), quant_format=q.QuantFormat.QDQ, per_channel=True,
                      activation_type=q.QuantType.QUInt8, weight_type=q.QuantType.QInt8)


def export(name, folder, dynamo=False, seed=0):
    """Writes NAME.onnx and NAME.npz, and returns the model's path."""
    make, inputs, dynamic, outputs, opset = NETWORKS[name]
    torch.manual_seed(seed)
    torch.backends.mha.set_fastpath_enabled(False)  # whose op has no form in ONNX
    module, arguments = make()
    module = settle(module, seed)
    path = pathlib.Path(folder) / f"{name}{'_dynamo' if dynamo else ''}.onnx"
    options = {"input_names": inputs, "output_names": list(outputs)}
    if dynamo:
        options |= {"dynamic_shapes": tuple({a: torch.export.Dim.AUTO for a in dynamic.get(one, {})} for one in inputs),
                    "external_data": False}
    else:
        options |= {"dynamic_axes": dynamic, "opset_version": opset}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, arguments, str(path), dynamo=dynamo, **options)
    arrays = {one: array.numpy() for one, array in zip(inputs, arguments)}
    if name.startswith("qdq"):
        quantised(path, arrays)
    np.savez(path.with_suffix(".npz"), **arrays)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--dynamo", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or NETWORKS:
        try:
            print(export(name, options.folder, options.dynamo), flush=True)
        except Exception as error:  # noqa: BLE001: the exporter's failures are its own
            print(f"{name}: not exported: {type(error).__name__}: {str(error)[:200]}", flush=True)


if __name__ == "__main__":
    main()

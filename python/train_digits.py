#!/usr/bin/env python3
"""Trains the two digit classifiers that the repository carries, in numpy.

Data: the 1797 images, 8x8 pixels of 0..16, that scikit-learn's load_digits() has from the UCI set
"Optical Recognition of Handwritten Digits": digits that people wrote, scanned. Pixels are divided by 16.
A shuffle seeded with 0 gives 1437 training images and 360 held-out ones, which training never sees.

    mlp: up [64 -> 128], silu, down [128 -> 10]                               of a flat image
    cnn: conv1 3x3 [1 -> 16], relu, max pool 2x2, conv2 3x3 [16 -> 32], relu, max pool 2x2,
         head [128 -> 10]                                                      of NCHW images

Both convolutions pad by 1. Matrices are [out, in], kernels [out, in, row, column], as in PyTorch.

    train_digits.py --out examples/data

writes digits_mlp.safetensors, digits_cnn.safetensors, the held-out images and labels as
digits_test.safetensors, those of training as digits_train.safetensors, and digits.json: how many of them each model gets right when it runs in f32,
by how much the closest decision was won, and the logits of the first images.

Needs numpy, scikit-learn and safetensors. Every run on one machine gives the same bits; another BLAS
may round differently.
"""

import argparse
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file
from sklearn.datasets import load_digits

SEED = 0
HELD_OUT = 360
SHOWN = 4  # images whose logits are recorded


def split_digits():
    """Training images and labels, held-out images and labels; images f32 [n, 8, 8] in 0..1."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    images = (digits.images[order] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    return images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT]


class Linear:
    def __init__(self, name, inputs, outputs, rng):
        bound = np.sqrt(6 / inputs)  # He et al. (2015), uniform
        self.name = name
        self.weight = rng.uniform(-bound, bound, (outputs, inputs))
        self.bias = np.zeros(outputs)

    def forward(self, x):
        self.x = x
        return x @ self.weight.T + self.bias

    def backward(self, dy):
        self.d_weight = dy.T @ self.x
        self.d_bias = dy.sum(0)
        return dy @ self.weight


class Conv3x3:
    """Stride 1, padding 1: the image keeps its size."""

    def __init__(self, name, inputs, outputs, rng):
        bound = np.sqrt(6 / (9 * inputs))
        self.name = name
        self.weight = rng.uniform(-bound, bound, (outputs, inputs, 3, 3))
        self.bias = np.zeros(outputs)

    def forward(self, x):
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        # [n, c, h, w, 3, 3]
        self.windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        y = np.einsum("nchwrs,ocrs->nohw", self.windows, self.weight, optimize=True)
        return y + self.bias[:, None, None]

    def backward(self, dy):
        self.d_weight = np.einsum("nchwrs,nohw->ocrs", self.windows, dy, optimize=True)
        self.d_bias = dy.sum((0, 2, 3))
        padded = np.pad(dy, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        flipped = self.weight[:, :, ::-1, ::-1]
        return np.einsum("nohwrs,ocrs->nchw", windows, flipped, optimize=True)


class Relu:
    def forward(self, x):
        self.positive = x > 0
        return x * self.positive

    def backward(self, dy):
        return dy * self.positive


class Silu:
    def forward(self, x):
        self.x = x
        self.sigmoid = 1 / (1 + np.exp(-x))
        return x * self.sigmoid

    def backward(self, dy):
        return dy * self.sigmoid * (1 + self.x * (1 - self.sigmoid))


class MaxPool2x2:
    def forward(self, x):
        n, c, h, w = x.shape
        cells = x.reshape(n, c, h // 2, 2, w // 2, 2)
        y = cells.max((3, 5))
        self.wins = cells == y[:, :, :, None, :, None]
        return y

    def backward(self, dy):
        dx = self.wins * dy[:, :, :, None, :, None]
        n, c, h, _, w, _ = dx.shape
        return dx.reshape(n, c, 2 * h, 2 * w)


class Flatten:
    def forward(self, x):
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, dy):
        return dy.reshape(self.shape)


def make_mlp(rng):
    return [Flatten(), Linear("up", 64, 128, rng), Silu(), Linear("down", 128, 10, rng)]


def make_cnn(rng):
    return [
        Conv3x3("conv1", 1, 16, rng), Relu(), MaxPool2x2(),
        Conv3x3("conv2", 16, 32, rng), Relu(), MaxPool2x2(),
        Flatten(), Linear("head", 128, 10, rng),
    ]


def forward(layers, images):
    x = images[:, None]  # NCHW with one channel
    for layer in layers:
        x = layer.forward(x)
    return x


def shifted(images, rng):
    """Each image moved by up to one pixel, zeros coming in: people do not write on a grid."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    rows, columns = rng.integers(0, 3, (2, len(images)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 8), (1, 2))
    return windows[np.arange(len(images)), rows, columns]


def train(layers, images, labels, rng, epochs, batch=64, peak_rate=4e-3, decay=0.02):
    """Cross-entropy, AdamW (Loshchilov and Hutter, 2019), learning rate falling along a cosine."""
    weighted = [layer for layer in layers if hasattr(layer, "weight")]
    moments = {(id(layer), kind): [0.0, 0.0] for layer in weighted for kind in ("weight", "bias")}
    steps = epochs * (len(images) // batch)
    step = 0
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for start in range(0, len(images) - batch + 1, batch):
            chosen = order[start : start + batch]
            logits = forward(layers, shifted(images[chosen], rng))
            exps = np.exp(logits - logits.max(1, keepdims=True))
            gradient = exps / exps.sum(1, keepdims=True)
            gradient[np.arange(batch), labels[chosen]] -= 1
            gradient /= batch
            for layer in reversed(layers):
                gradient = layer.backward(gradient)

            step += 1
            rate = peak_rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            for layer in weighted:
                for kind in ("weight", "bias"):
                    value = getattr(layer, kind)
                    slope = getattr(layer, f"d_{kind}")
                    moment = moments[id(layer), kind]
                    moment[0] = 0.9 * moment[0] + 0.1 * slope
                    moment[1] = 0.999 * moment[1] + 0.001 * slope**2
                    mean = moment[0] / (1 - 0.9**step)
                    spread = np.sqrt(moment[1] / (1 - 0.999**step))
                    value -= rate * mean / (spread + 1e-8)
                    if kind == "weight":
                        value -= rate * decay * value


def training_file(images, labels):
    """Pixels as they are in the set, 0..16, in one byte each."""
    return {"images": (images * 16).astype(np.uint8), "labels": labels.astype(np.uint8)}


def weights_of(layers):
    return {
        f"{layer.name}.{kind}": np.ascontiguousarray(getattr(layer, kind), np.float32)
        for layer in layers
        if hasattr(layer, "weight")
        for kind in ("weight", "bias")
    }


def judge(layers, images, labels):
    """What the f32 weights make of the held-out images."""
    for layer in layers:
        if hasattr(layer, "weight"):
            layer.weight = layer.weight.astype(np.float32)
            layer.bias = layer.bias.astype(np.float32)
    logits = forward(layers, images)
    assert logits.dtype == np.float32
    best = np.sort(logits, 1)
    correct = int((logits.argmax(1) == labels).sum())
    return {
        "correct": correct,
        "accuracy": correct / len(labels),
        "smallest_margin": float((best[:, -1] - best[:, -2]).min()),
        "first_logits": [[round(float(v), 6) for v in row] for row in logits[:SHOWN]],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out

    images, labels, test_images, test_labels = split_digits()
    report = {"held_out": HELD_OUT, "trained_on": len(labels)}
    for name, make, epochs in (("mlp", make_mlp, 200), ("cnn", make_cnn, 80)):
        rng = np.random.default_rng(SEED)
        layers = make(rng)
        train(layers, images.astype(np.float64), labels, rng, epochs)
        save_file(weights_of(layers), out / f"digits_{name}.safetensors")
        report[name] = judge(layers, test_images, test_labels)
        print(f"{name}: {report[name]['correct']} of {HELD_OUT} held-out digits right "
              f"({report[name]['accuracy']:.1%})")
    save_file({"images": test_images, "labels": test_labels}, out / "digits_test.safetensors")
    save_file(training_file(images, labels), out / "digits_train.safetensors")
    (out / "digits.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

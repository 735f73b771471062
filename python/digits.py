#!/usr/bin/env python3
"""The images of examples/data, and what its three networks make of them in numpy, for tests to compare with.

    digits.py --out examples/data [--images]

writes digits.json and digits_mobilenet.json: how many of the held-out images each network of that folder gets right in
f32, by how much the closest decision was won, and the logits of the first images. examples/train_digits.cpp trains the
networks (examples/data/digits.md); this script states their layers a second time.

With --images it first writes digits_test.safetensors and digits_train.safetensors: the 1797 images, 8x8 pixels of 0..16,
that scikit-learn's load_digits() has from the UCI set "Optical Recognition of Handwritten Digits": digits that people
wrote, scanned. A shuffle seeded with 0 gives 1437 training images and 360 held-out ones.

Needs numpy and safetensors, with --images scikit-learn.
"""

import argparse
import json
import pathlib

import numpy as np
from safetensors.numpy import load_file, save_file

HELD_OUT, SHOWN = 360, 4
SIDE = 32  # of the images of the inverted residuals
BLOCK_STRIDES = [1, 2, 1, 2, 1, 1, 1]


def write_images(out):
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.images[order], digits.target[order]
    save_file({"images": (images[:HELD_OUT] / 16).astype(np.float32), "labels": labels[:HELD_OUT].astype(np.int32)},
              out / "digits_test.safetensors")
    save_file({"images": images[HELD_OUT:].astype(np.uint8), "labels": labels[HELD_OUT:].astype(np.uint8)},
              out / "digits_train.safetensors")


def enlarge(images):
    """[n, 1, 8, 8] -> [n, 1, SIDE, SIDE], bilinear: pixel centres at halves, edges repeated."""
    small = images.shape[-1]
    centres = np.clip((np.arange(SIDE) + 0.5) * small / SIDE - 0.5, 0, small - 1)
    low = np.minimum(centres.astype(int), small - 2)
    weights = np.zeros((SIDE, small))
    weights[np.arange(SIDE), low] = 1 - (centres - low)
    weights[np.arange(SIDE), low + 1] = centres - low
    return np.einsum("yr,ncrs,xs->ncyx", weights, images, weights).astype(np.float32)


class Network:
    def __init__(self, weights):
        self.weights = weights

    def linear(self, x, name):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def conv(self, x, name, stride=1):
        """Padded so that a stride of 1 keeps the size; one channel a group where the kernel has one."""
        weight = self.weights[f"{name}.weight"]
        side = weight.shape[-1]
        padded = np.pad(x, ((0, 0), (0, 0), (side // 2, side // 2), (side // 2, side // 2)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), (2, 3))[:, :, ::stride, ::stride]
        if weight.shape[1] == 1 and x.shape[1] > 1:
            y = np.einsum("nohwrs,ors->nohw", windows, weight[:, 0], optimize=True)
        else:
            y = np.einsum("nchwrs,ocrs->nohw", windows, weight, optimize=True)
        return y + self.weights[f"{name}.bias"][:, None, None]


def mlp(net, images):
    wide = net.linear(images.reshape(len(images), -1), "up")
    return net.linear(wide / (1 + np.exp(-wide)), "down")


def cnn(net, images):
    def stage(x, name):
        n, c, h, w = x.shape
        y = np.maximum(net.conv(x, name), 0)
        return y.reshape(n, -1, h // 2, 2, w // 2, 2).max((3, 5))

    return net.linear(stage(stage(images, "conv1"), "conv2").reshape(len(images), -1), "head")


def mobilenet(net, images):
    def relu6(x):
        return np.clip(x, 0, 6)

    x = relu6(net.conv(enlarge(images), "stem", 2))
    for i, stride in enumerate(BLOCK_STRIDES):
        block = f"block{i}"
        wide = relu6(net.conv(x, f"{block}.expand")) if f"{block}.expand.weight" in net.weights else x
        y = net.conv(relu6(net.conv(wide, f"{block}.depthwise", stride)), f"{block}.project")
        x = x + y if x.shape == y.shape else y
    return net.linear(relu6(net.conv(x, "last")).mean((2, 3)), "head")


def judge(logits, labels):
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
    parser.add_argument("--images", action="store_true")
    args = parser.parse_args()
    if args.images:
        write_images(args.out)
    test = load_file(args.out / "digits_test.safetensors")
    images, labels = test["images"][:, None], test["labels"]
    trained_on = len(load_file(args.out / "digits_train.safetensors")["labels"])

    found = {}
    for forward in (mlp, cnn, mobilenet):
        net = Network(load_file(args.out / f"digits_{forward.__name__}.safetensors"))
        found[forward.__name__] = judge(forward(net, images), labels)
        print(f"{forward.__name__}: {found[forward.__name__]['correct']} of {HELD_OUT} held-out digits right")
    counts = {"held_out": HELD_OUT, "trained_on": trained_on}
    small = counts | {name: found[name] for name in ("mlp", "cnn")}
    (args.out / "digits.json").write_text(json.dumps(small, indent=1) + "\n")
    (args.out / "digits_mobilenet.json").write_text(json.dumps(counts | found["mobilenet"], indent=1) + "\n")


if __name__ == "__main__":
    main()

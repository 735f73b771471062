#!/usr/bin/env python3
"""Trains the MobileNet-like digit classifier that the repository carries, in JAX.

Data: the images of train_digits.py, with its split: 1437 for training, 360 held out. Each is enlarged
from 8x8 to 32x32 with bilinear weights, pixel centres at halves, edges repeated.

The network has MobileNetV2's parts (Sandler et al., 2018): a 3x3 stem, inverted residuals and a 1x1
convolution, each convolution followed by batch normalisation and, but for the projections, relu6; then
the mean of each channel and a linear layer.

    stem        3x3 / 2                  [1 -> 16]
    block0      t 1, s 1                 [16 -> 16]     the input is added
    block1..2   t 4, s 2 and 1           [16 -> 24]     block2 adds
    block3..5   t 4, s 2, 1 and 1        [24 -> 32]     block4 and block5 add
    block6      t 4, s 1                 [32 -> 48]
    last        1x1                      [48 -> 128]
    head        linear                   [128 -> 10]

A block expands t times (`expand`, missing where t is 1), convolves each channel 3x3 (`depthwise`) and
projects (`project`). 3x3 convolutions pad by 1 all around. Training ends with the statistics of all
training images, which are folded into weights and biases: nothing of the normalisation is stored.

    train_mobilenet.py --out examples/data

writes digits_mobilenet.safetensors (f32, as in PyTorch: kernels [out, in, row, column]) and
digits_mobilenet.json: how many held-out images are right in f32, and the logits of the first ones.

Needs numpy, scikit-learn, safetensors and jax (CPU). The seed fixes weights, order and shifts; another
processor or another jax may round differently, and end elsewhere. The files of the repository were made with
jax 0.10.2 and XLA_FLAGS=--xla_cpu_multi_thread_eigen=false.
"""

import argparse
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from train_digits import HELD_OUT, SEED, SHOWN, split_digits

SIDE = 32
BLOCKS = [  # expansion, stride, outputs
    (1, 1, 16), (4, 2, 24), (4, 1, 24), (4, 2, 32), (4, 1, 32), (4, 1, 32), (4, 1, 48),
]
STEM, LAST, CLASSES = 16, 128, 10
EPOCHS, BATCH, PEAK_RATE, DECAY = 16, 48, 6e-3, 0.04
EPSILON = 1e-3


def enlarge(images):
    """[n, 8, 8] -> [n, 32, 32], bilinear."""
    small = images.shape[1]
    centres = np.clip((np.arange(SIDE) + 0.5) * small / SIDE - 0.5, 0, small - 1)
    low = np.minimum(centres.astype(int), small - 2)
    weights = np.zeros((SIDE, small))
    weights[np.arange(SIDE), low] = 1 - (centres - low)
    weights[np.arange(SIDE), low + 1] = centres - low
    return np.einsum("yr,nrc,xc->nyx", weights, images, weights).astype(np.float32)


def layers():
    """Every convolution: name, kernel shape [row, column, in per group, out], stride, relu6."""
    yield "stem", (3, 3, 1, STEM), 2, True
    inputs = STEM
    for i, (expansion, stride, outputs) in enumerate(BLOCKS):
        wide = expansion * inputs
        if expansion > 1:
            yield f"block{i}.expand", (1, 1, inputs, wide), 1, True
        yield f"block{i}.depthwise", (3, 3, 1, wide), stride, True
        yield f"block{i}.project", (1, 1, wide, outputs), 1, False
        inputs = outputs
    yield "last", (1, 1, inputs, LAST), 1, True


def initial(rng):
    parameters = {}
    for name, shape, _, _ in layers():
        fan_in = shape[0] * shape[1] * shape[2]
        parameters[name] = {
            "kernel": rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32),
            "gain": np.ones(shape[3], np.float32),
            "shift": np.zeros(shape[3], np.float32),
        }
    bound = np.sqrt(3 / LAST)
    parameters["head"] = {
        "kernel": rng.uniform(-bound, bound, (LAST, CLASSES)).astype(np.float32),
        "shift": np.zeros(CLASSES, np.float32),
    }
    return parameters


def convolve(x, kernel, stride):
    """NHWC; 1x1, or with one input per output: XLA's grouped convolutions are slow on CPUs."""
    rows, columns, _, _ = kernel.shape
    if rows == 1:
        return x @ kernel[0, 0]
    height, width = x.shape[1] // stride, x.shape[2] // stride
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = jnp.stack([
        padded[:, r : r + stride * height : stride, c : c + stride * width : stride]
        for r in range(rows) for c in range(columns)
    ])
    return jnp.einsum("tnhwc,tc->nhwc", taps, kernel.reshape(-1, kernel.shape[3]))


def forward(parameters, images, statistics=None):
    """Logits, and the mean and variance that each layer saw; with `statistics` those are used."""
    x = images[..., None]
    seen = {}
    kept = None
    for name, _, stride, bounded in layers():
        if name.endswith(("expand", "depthwise")) and kept is None:
            kept = x
        layer = parameters[name]
        x = convolve(x, layer["kernel"], stride)
        seen[name] = (x.mean((0, 1, 2)), x.var((0, 1, 2)))
        mean, variance = seen[name] if statistics is None else statistics[name]
        x = (x - mean) * (layer["gain"] / jnp.sqrt(variance + EPSILON)) + layer["shift"]
        if bounded:
            x = jnp.clip(x, 0, 6)
        elif name.endswith("project"):
            if kept.shape == x.shape:
                x = x + kept
            kept = None
    head = parameters["head"]
    return x.mean((1, 2)) @ head["kernel"] + head["shift"], seen


def moved(images, rng):
    """Each image shifted by up to three pixels, paper coming in."""
    reach = 3
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach)))
    rows, columns = rng.integers(0, 2 * reach + 1, (2, len(images)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (SIDE, SIDE), (1, 2))
    return np.ascontiguousarray(windows[np.arange(len(images)), rows, columns])


def loss(parameters, images, labels):
    logits, _ = forward(parameters, images)
    smooth = 0.9 * jax.nn.one_hot(labels, CLASSES) + 0.1 / CLASSES
    return -(smooth * jax.nn.log_softmax(logits)).sum(1).mean()


@jax.jit
def update(parameters, moments, step, rate, images, labels):
    """AdamW (Loshchilov and Hutter, 2019); only kernels decay."""
    error, slopes = jax.value_and_grad(loss)(parameters, images, labels)

    def one(kind, value, moment, slope):
        first = 0.9 * moment[0] + 0.1 * slope
        second = 0.999 * moment[1] + 0.001 * slope**2
        change = (first / (1 - 0.9**step)) / (jnp.sqrt(second / (1 - 0.999**step)) + 1e-8)
        decay = DECAY if kind == "kernel" else 0.0
        return value - rate * (change + decay * value), (first, second)

    changed = {}
    kept = {}
    for name, layer in parameters.items():
        changed[name], kept[name] = {}, {}
        for kind, value in layer.items():
            changed[name][kind], kept[name][kind] = one(
                kind, value, moments[name][kind], slopes[name][kind])
    return changed, kept, error


def train(images, labels, rng):
    parameters = initial(rng)
    moments = {
        name: {kind: (np.zeros_like(value), np.zeros_like(value)) for kind, value in layer.items()}
        for name, layer in parameters.items()
    }
    steps = EPOCHS * (len(images) // BATCH)
    step = 0
    for epoch in range(EPOCHS):
        order = rng.permutation(len(images))
        for start in range(0, len(images) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            step += 1
            rate = PEAK_RATE * 0.5 * (1 + np.cos(np.pi * step / steps)) * min(1, step / 100)
            parameters, moments, error = update(
                parameters, moments, jnp.float32(step), jnp.float32(rate),
                moved(images[chosen], rng), labels[chosen])
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {float(error):.3f}", flush=True)
    return parameters


def folded(parameters, statistics):
    """Weights and biases of convolutions without normalisation."""
    tensors = {}
    for name, _, _, _ in layers():
        layer = {kind: np.asarray(value, np.float64) for kind, value in parameters[name].items()}
        mean, variance = (np.asarray(value, np.float64) for value in statistics[name])
        factor = layer["gain"] / np.sqrt(variance + EPSILON)
        tensors[f"{name}.weight"] = np.transpose(layer["kernel"] * factor, (3, 2, 0, 1))
        tensors[f"{name}.bias"] = layer["shift"] - mean * factor
    tensors["head.weight"] = np.asarray(parameters["head"]["kernel"]).T
    tensors["head.bias"] = np.asarray(parameters["head"]["shift"])
    return {name: np.ascontiguousarray(value, np.float32) for name, value in tensors.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out

    images, labels, test_images, test_labels = split_digits()
    images, test_images = enlarge(images), enlarge(test_images)
    parameters = train(images, labels, np.random.default_rng(SEED))
    # All training images at once, unmoved: what running averages would only approach.
    _, statistics = jax.jit(forward)(parameters, images)
    logits = np.asarray(jax.jit(forward)(parameters, test_images, statistics)[0])
    correct = int((logits.argmax(1) == test_labels).sum())
    best = np.sort(logits, 1)
    report = {
        "held_out": HELD_OUT,
        "trained_on": len(labels),
        "correct": correct,
        "accuracy": correct / HELD_OUT,
        "smallest_margin": float((best[:, -1] - best[:, -2]).min()),
        "first_logits": [[round(float(v), 6) for v in row] for row in logits[:SHOWN]],
    }
    save_file(folded(parameters, statistics), out / "digits_mobilenet.safetensors")
    (out / "digits_mobilenet.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{correct} of {HELD_OUT} held-out digits right ({correct / HELD_OUT:.1%})")


if __name__ == "__main__":
    main()

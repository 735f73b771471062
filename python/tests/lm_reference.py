#!/usr/bin/env python3
"""Reference of decoder language models: numpy, weights from a GGUF file as `gguf` dequantises them.

Teacher-forced logits, every position computed at once, nothing quantised but the weights. Covers
the GGUF architectures llama, qwen2, qwen2moe, qwen3, qwen3moe and gemma3, llama with experts too.

    lm_reference.py MODEL --tokens ids.json|ids.npy|1,2,3 --out logits.npy [--dtype f64] [--last K]
"""

import argparse
import json
import re

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


class Weights:
    """Tensors and metadata of a GGUF file. Tensors come in numpy order: [out, in] for a matrix."""

    def __init__(self, path, dtype):
        reader = GGUFReader(path)
        self.dtype = dtype
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.fields = reader.fields
        self.arch = self.fields["general.architecture"].contents()

    def __contains__(self, name):
        return name in self.tensors

    def __getitem__(self, name):
        tensor = self.tensors[name]
        return dequantize(tensor.data, tensor.tensor_type).astype(self.dtype)

    def rows(self, name, index):
        """Only the rows that `index` (a slice or an array) names."""
        tensor = self.tensors[name]
        return dequantize(tensor.data[index], tensor.tensor_type).astype(self.dtype)

    def row_count(self, name):
        return self.tensors[name].data.shape[0]

    def get(self, key, default=None):
        field = self.fields.get(f"{self.arch}.{key}")
        return default if field is None else field.contents()


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(epsilon)) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3)))


def rope(x, theta, interleaved, divisor):
    """Rotates [positions, heads, size] by its position; angles are f64 whatever the dtype.

    Pairs are (2i, 2i + 1) where `interleaved`, else (i, i + size / 2); `divisor` divides each
    pair's frequency.
    """
    half = x.shape[-1] // 2
    frequency = theta ** (-np.arange(half) / half) / divisor
    angle = np.arange(x.shape[0])[:, None] * frequency
    cos = np.cos(angle).astype(x.dtype)[:, None, :]
    sin = np.sin(angle).astype(x.dtype)[:, None, :]
    first, second = ((x[..., 0::2], x[..., 1::2]) if interleaved else
                     (x[..., :half], x[..., half:]))
    rotated = np.empty_like(x)
    turned = (first * cos - second * sin, first * sin + second * cos)
    if interleaved:
        rotated[..., 0::2], rotated[..., 1::2] = turned
    else:
        rotated[..., :half], rotated[..., half:] = turned
    return rotated


def attention(q, k, v, window):
    """Causal attention; q [n, heads, size], k and v [n, kv_heads, size]. A position sees itself and
    the `window` - 1 before it, or all before it where `window` is None."""
    n, heads, size = q.shape
    group = heads // k.shape[1]
    position = np.arange(n)
    hidden = position[None, :] > position[:, None]
    if window is not None:
        hidden |= position[:, None] - position[None, :] >= window
    out = np.empty((n, heads, v.shape[-1]), dtype=q.dtype)
    for head in range(heads):
        scores = q[:, head] @ k[:, head // group].T / np.sqrt(size).astype(q.dtype)
        scores[hidden] = -np.inf
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = scores @ v[:, head // group] / scores.sum(axis=1, keepdims=True)
    return out.reshape(n, -1)


class Model:
    """A decoder of one of the covered architectures, read layer by layer when it runs."""

    def __init__(self, path, dtype=np.float64):
        self.weights = w = Weights(path, dtype)
        if w.arch not in ("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma3"):
            raise SystemExit(f"{path}: no reference for architecture {w.arch}")
        self.is_gemma = w.arch == "gemma3"
        self.width = w.get("embedding_length")
        self.layers = w.get("block_count")
        self.heads = w.get("attention.head_count")
        self.kv_heads = w.get("attention.head_count_kv", self.heads)
        self.head_size = w.get("attention.key_length", self.width // self.heads)
        self.epsilon = w.get("attention.layer_norm_rms_epsilon")
        self.theta = w.get("rope.freq_base", 10000.0)
        self.window = w.get("attention.sliding_window") if self.is_gemma else None
        self.experts_used = w.get("expert_used_count", 0)
        self.act = gelu_tanh if self.is_gemma else silu
        if w.get("rope.dimension_count", self.head_size) != self.head_size:
            raise SystemExit(f"{path}: rotary embedding of a part of each head is not covered")

        scaling = w.get("rope.scaling.type", "none")
        if scaling not in ("none", "linear"):
            raise SystemExit(f"{path}: rotary scaling {scaling} is not covered")
        self.rope_divisor = w.get("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0
        if "rope_freqs.weight" in w:
            self.rope_divisor = self.rope_divisor * w["rope_freqs.weight"]

    def linear(self, x, name):
        y = x @ self.weights[name + ".weight"].T
        bias = name + ".bias"
        return y + self.weights[bias] if bias in self.weights else y

    def norm(self, x, name):
        return rms_norm(x, self.weights[name + ".weight"], self.epsilon)

    def mix(self, x, layer):
        """The attention part of a layer, from its normalised input."""
        prefix = f"blk.{layer}."
        n = len(x)
        q = self.linear(x, prefix + "attn_q").reshape(n, self.heads, self.head_size)
        k = self.linear(x, prefix + "attn_k").reshape(n, self.kv_heads, self.head_size)
        v = self.linear(x, prefix + "attn_v").reshape(n, self.kv_heads, -1)
        if prefix + "attn_q_norm.weight" in self.weights:
            q = self.norm(q, prefix + "attn_q_norm")
            k = self.norm(k, prefix + "attn_k_norm")

        is_local = self.is_gemma and (layer + 1) % 6 != 0
        theta, divisor = (10000.0, 1.0) if is_local else (self.theta, self.rope_divisor)
        interleaved = self.weights.arch == "llama"  # GGUF stores llama's rows in that order
        q = rope(q, theta, interleaved, divisor)
        k = rope(k, theta, interleaved, divisor)
        mixed = attention(q, k, v, self.window if is_local else None)
        return self.linear(mixed, prefix + "attn_output")

    def feed_forward(self, x, layer, suffix=""):
        prefix = f"blk.{layer}.ffn_"
        gate = self.act(self.linear(x, prefix + "gate" + suffix))
        return self.linear(gate * self.linear(x, prefix + "up" + suffix), prefix + "down" + suffix)

    def mixture(self, x, layer):
        """The feed-forward parts that each position chooses, and the shared one."""
        prefix = f"blk.{layer}.ffn_"
        scores = self.linear(x, prefix + "gate_inp")
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        gate, up, down = (self.weights[f"{prefix}{part}_exps.weight"]
                          for part in ("gate", "up", "down"))
        y = np.zeros_like(x)
        for row, score in enumerate(scores):
            chosen = np.lexsort((np.arange(len(score)), -score))[:self.experts_used]
            weights = score[chosen]
            if self.weights.arch != "qwen2moe":
                weights = weights / weights.sum()
            for expert, weight in zip(chosen, weights):
                hidden = self.act(gate[expert] @ x[row]) * (up[expert] @ x[row])
                y[row] += weight * (down[expert] @ hidden)
        if prefix + "up_shexp.weight" in self.weights:
            shared = self.feed_forward(x, layer, "_shexp")
            share = x @ self.weights[prefix + "gate_inp_shexp.weight"].reshape(-1, 1)
            y += shared / (1 + np.exp(-share))
        return y

    def hidden(self, tokens, watch=lambda output: None):
        """The normalised outputs of the last layer: [positions, width]. `watch` gets every layer's output."""
        x = self.weights.rows("token_embd.weight", np.asarray(tokens))
        if self.is_gemma:
            x = x * np.sqrt(self.width).astype(x.dtype)
        for layer in range(self.layers):
            prefix = f"blk.{layer}."
            mixed = self.mix(self.norm(x, prefix + "attn_norm"), layer)
            if self.is_gemma:
                mixed = self.norm(mixed, prefix + "post_attention_norm")
            x = x + mixed
            part = self.mixture if self.experts_used else self.feed_forward
            fed = part(self.norm(x, prefix + "ffn_norm"), layer)
            if self.is_gemma:
                fed = self.norm(fed, prefix + "post_ffw_norm")
            x = x + fed
            watch(x)
        return self.norm(x, "output_norm")

    def logits(self, hidden):
        """Logits [positions, vocabulary], the head dequantised a slice at a time."""
        head = "output.weight" if "output.weight" in self.weights else "token_embd.weight"
        size = self.weights.row_count(head)
        out = np.empty((len(hidden), size), dtype=hidden.dtype)
        for start in range(0, size, 16384):
            part = slice(start, min(start + 16384, size))
            out[:, part] = hidden @ self.weights.rows(head, part).T
        return out


def log_softmax(logits):
    """In f64, over the last axis."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def read_tokens(source):
    """Token ids from a .npy file, a .json file (a list, or FILE.json:KEY) or "1,2,3"."""
    if source.endswith(".npy"):
        return np.load(source)
    if match := re.fullmatch(r"(.*\.json)(?::(\w+))?", source):
        with open(match[1], encoding="utf-8") as file:
            value = json.load(file)
        return np.array(value[match[2]] if match[2] else value)
    return np.array([int(token) for token in source.split(",")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", required=True, help="FILE.npy, FILE.json, FILE.json:KEY or 1,2,3")
    parser.add_argument("--out", required=True, help="logits as an f32 .npy, [positions, vocabulary]")
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f64")
    parser.add_argument("--last", type=int, help="logits of the last positions only")
    arguments = parser.parse_args()

    model = Model(arguments.model, np.float32 if arguments.dtype == "f32" else np.float64)
    hidden = model.hidden(read_tokens(arguments.tokens))
    if arguments.last is not None:
        hidden = hidden[len(hidden) - arguments.last:]
    np.save(arguments.out, model.logits(hidden).astype(np.float32))


if __name__ == "__main__":
    main()

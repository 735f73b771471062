#!/usr/bin/env python3
"""Reference of BERT sentence encoders: numpy, weights from a safetensors file, sums in f64.

Reads a model folder as sentence-transformers writes it (config.json, model.safetensors,
tokenizer.json, sentence_bert_config.json). The embedding of a text is the mean of its tokens'
outputs, [CLS] and [SEP] among them, scaled to length 1.

    bert_reference.py MODEL_FOLDER --file sentences.txt --out embeddings.npy
"""

import argparse
import json
import math
import pathlib

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer

erf = np.frompyfunc(math.erf, 1, 1)


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)).astype(x.dtype))


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


class Model:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if self.config["hidden_act"] != "gelu" or self.config["model_type"] != "bert":
            raise SystemExit(f"{folder}: no reference for this kind of encoder")
        with safe_open(folder / "model.safetensors", "np") as file:
            self.weights = {key: file.get_tensor(key) for key in file.keys()}
        for key, value in self.weights.items():
            if value.dtype.kind == "f":
                self.weights[key] = value.astype(np.float64)

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        limits = folder / "sentence_bert_config.json"
        limit = (json.loads(limits.read_text(encoding="utf-8"))["max_seq_length"]
                 if limits.exists() else self.config["max_position_embeddings"])
        self.tokenizer.enable_truncation(max_length=limit)

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def norm(self, x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.config["layer_norm_eps"])
        return x * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def attention(self, x, name):
        heads = self.config["num_attention_heads"]
        split = (len(x), heads, -1)
        q = self.linear(x, name + ".query").reshape(split).transpose(1, 0, 2)
        k = self.linear(x, name + ".key").reshape(split).transpose(1, 0, 2)
        v = self.linear(x, name + ".value").reshape(split).transpose(1, 0, 2)
        scores = softmax(q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1]))
        return (scores @ v).transpose(1, 0, 2).reshape(len(x), -1)

    def hidden(self, ids, watch=lambda output: None):
        """Outputs of the last layer for one text's token ids: [tokens, width]. `watch` gets every layer's output."""
        embedding = {part: self.weights[f"embeddings.{part}_embeddings.weight"]
                     for part in ("word", "position", "token_type")}
        x = embedding["word"][ids] + embedding["position"][:len(ids)] + embedding["token_type"][0]
        x = self.norm(x, "embeddings.LayerNorm")
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"encoder.layer.{layer}."
            mixed = self.attention(x, prefix + "attention.self")
            mixed = self.linear(mixed, prefix + "attention.output.dense")
            x = self.norm(x + mixed, prefix + "attention.output.LayerNorm")
            fed = gelu(self.linear(x, prefix + "intermediate.dense"))
            fed = self.linear(fed, prefix + "output.dense")
            x = self.norm(x + fed, prefix + "output.LayerNorm")
            watch(x)
        return x

    def embed(self, text):
        mean = self.hidden(self.tokenizer.encode(text).ids).mean(axis=0)
        return mean / np.linalg.norm(mean)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--file", required=True, help="UTF-8, a text a line")
    parser.add_argument("--out", required=True, help="f32 .npy, [texts, width]")
    arguments = parser.parse_args()
    model = Model(arguments.model)
    texts = pathlib.Path(arguments.file).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    np.save(arguments.out, np.array([model.embed(text) for text in texts], dtype=np.float32))


if __name__ == "__main__":
    main()

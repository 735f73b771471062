"""BERT: an encoder of texts, with its pooler where the folder has one."""

import numpy as np

from .. import build, ops
from .folder import Model


class Bert(Model):
    def forward(self, ids, types, mask):
        """Tokens, their segments and which of them count, i32[B, S] each: the last layer's outputs, the pooler's."""
        hidden = ops.where(mask == 0, ops.full((), -np.inf), ops.full((), 0)).unsqueeze(1).unsqueeze(1)
        x = ops.embedding(ids, self.table("word", self.vocabulary))
        x = x + ops.embedding(types, self.table("token_type", self.types))
        x = x + ops.embedding(ops.iota(ids, axis=1), self.table("position", self.positions))
        x = ops.layer_norm(x, *self.norm(self.prefix + "embeddings.LayerNorm", self.width), eps=self.eps)

        def block(w, index, x):
            q, k, v = (ops.split_axis(ops.linear(x, *w[part]), axis=2, sizes=(self.heads, self.width // self.heads))
                       for part in ("query", "key", "value"))
            h = ops.linear(ops.attention(q, k, v, mask=hidden).flatten(2), *w["attention"], residual=x)
            x = ops.layer_norm(h, *w["attention_norm"], eps=self.eps)
            h = self.activation(ops.linear(x, *w["up"]))
            return ops.layer_norm(ops.linear(h, *w["down"], residual=x), *w["norm"], eps=self.eps)

        x = build.repeat([self.layer(i) for i in range(self.layers)], x, block)
        if not self.pools:
            return x
        return x, ops.linear(x[:, 0], *self.linear(self.prefix + "pooler.dense", self.width, self.width)).tanh()

    def inputs(self):
        return {name: "i32[B, S]" for name in ("ids", "types", "mask")}

    def __call__(self, ids, types=None, mask=None):
        """The program's results; without `types` all of the first segment, without `mask` all tokens count."""
        ids = np.asarray(ids, "i4")
        return super().__call__(ids, np.zeros_like(ids) if types is None else types,
                                np.ones_like(ids) if mask is None else mask)

    def read_config(self, config):
        self.vocabulary = config.integer("vocab_size", high=2**24)
        self.read_sizes(config)
        self.positions = config.integer("max_position_embeddings")
        self.types = config.integer("type_vocab_size", 2)
        self.eps = config.real("layer_norm_eps", 1e-12, high=1)
        self.activation = config.activation("hidden_act", "gelu")
        config.only("position_embedding_type", "absolute")
        config.only("is_decoder", False)
        if self.width % self.heads:
            config.refuse("num_attention_heads", f"divisors of {self.width}")
        self.prefix = "" if "embeddings.word_embeddings.weight" in self.file else "bert."
        self.pools = self.prefix + "pooler.dense.weight" in self.file

    def norm(self, name, size):
        old = name + ".gamma" in self.file  # folders of the first years
        return tuple(self.weight(f"{name}.{part}", size) for part in (("gamma", "beta") if old else ("weight", "bias")))

    def table(self, name, rows):
        return self.weight(f"{self.prefix}embeddings.{name}_embeddings.weight", rows, self.width)

    def layer(self, i):
        name, width = f"{self.prefix}encoder.layer.{i}.", self.width
        layer = {part: self.linear(f"{name}attention.self.{part}", width, width) for part in ("query", "key", "value")}
        return {**layer,
                "attention": self.linear(name + "attention.output.dense", width, width),
                "attention_norm": self.norm(name + "attention.output.LayerNorm", width),
                "up": self.linear(name + "intermediate.dense", self.inner, width),
                "down": self.linear(name + "output.dense", width, self.inner),
                "norm": self.norm(name + "output.LayerNorm", width)}

"""Llama 1 to 3, SmolLM2, Mistral, and others of their form."""

from .. import build, ops
from .decoder import Decoder, last, of_layer, rope_settings


class Llama(Decoder):
    def forward(self, ids, position, keys, values, every=False):
        """Tokens i32[B, S] at `position`, and the caches of those before: logits, and the caches."""
        positions = ops.iota(ids, axis=1, dtype="i32") + position
        table = self.embedding_table()

        def block(w, index, x, keys, values):
            h = ops.rms_norm(x, w["input_layernorm"], eps=self.eps)
            q, k, v = self.project(h, w)
            keys = ops.cache_update(keys, index, ops.rope(k, positions, **self.rope), position)
            values = ops.cache_update(values, index, v, position)
            h = ops.attention(ops.rope(q, positions, **self.rope), of_layer(keys, index), of_layer(values, index),
                              position=position, causal=True, window=w["window"])
            x = ops.linear(h.flatten(2), *w["o_proj"], residual=x)
            h = ops.rms_norm(x, w["post_attention_layernorm"], eps=self.eps)
            h = self.activation(ops.linear(h, *w["gate_proj"])) * ops.linear(h, *w["up_proj"])
            return ops.linear(h, *w["down_proj"], residual=x), keys, values

        layers = [self.layer(i) for i in range(self.layers)]
        x, keys, values = build.repeat(layers, (ops.embedding(ids, table), keys, values), block)
        x = ops.rms_norm(x if every else last(x, ids), self.weight("model.norm.weight", self.width), eps=self.eps)
        return ops.linear(x, self.head(table)), keys, values

    norms = ("input_layernorm", "post_attention_layernorm")
    head_norms = ()
    ties = False

    def read_config(self, config):
        super().read_config(config)
        self.activation = config.activation("hidden_act", "silu")
        self.rope = rope_settings(config, self.size)
        self.biases = self.parts_with_bias(config)

    def parts_with_bias(self, config):
        attention = ("q_proj", "k_proj", "v_proj", "o_proj") if config.flag("attention_bias", False) else ()
        return attention + (("gate_proj", "up_proj", "down_proj") if config.flag("mlp_bias", False) else ())

    def layer(self, i):
        return {**super().layer(i), "window": self.window(i)}

    def window(self, i):
        """How many positions layer i looks back, its own included; 0: all."""
        return 0


class Mistral(Llama):
    def window(self, i):
        return self.config.integer("sliding_window", 0)

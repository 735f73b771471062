"""Gemma 3, texts alone: layers with a sliding window, every sixth one without, and norms on both sides of each part."""

from .. import build, ops
from .decoder import Decoder, last, of_layer, rope_settings
from .folder import Config


class Gemma3(Decoder):
    def forward(self, ids, position, keys, values, every=False):
        """Tokens i32[B, S] at `position`, and the caches of those before: logits, and the caches."""
        positions = ops.iota(ids, axis=1, dtype="i32") + position
        table = self.embedding_table()

        def block(w, index, x, keys, values):
            q, k, v = self.project(self.normed(x, w["input_layernorm"]), w)
            q, k = (ops.rope(self.normed(heads, w[norm]), positions, **w["rope"])
                    for heads, norm in ((q, "q_norm"), (k, "k_norm")))
            keys = ops.cache_update(keys, index, k, position)
            values = ops.cache_update(values, index, v, position)
            h = ops.attention(q, of_layer(keys, index), of_layer(values, index), position=position, causal=True,
                              window=w["window"], scale=self.scale)
            x = x + self.normed(ops.linear(h.flatten(2), *w["o_proj"]), w["post_attention_layernorm"])
            h = self.normed(x, w["pre_feedforward_layernorm"])
            h = self.activation(ops.linear(h, *w["gate_proj"])) * ops.linear(h, *w["up_proj"])
            return x + self.normed(ops.linear(h, *w["down_proj"]), w["post_feedforward_layernorm"]), keys, values

        layers = [self.layer(i) for i in range(self.layers)]
        x = ops.embedding(ids, table) * self.width**0.5
        x, keys, values = build.repeat(layers, (x, keys, values), block)
        x = self.normed(x if every else last(x, ids), self.weight("model.norm.weight", self.width))
        logits = ops.linear(x, self.head(table))
        if self.logits_cap:
            logits = ops.tanh(logits / self.logits_cap) * self.logits_cap
        return logits, keys, values

    norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    head_norms = ("q_norm", "k_norm")
    ties = True

    def normed(self, x, weight):
        """The weights of Gemma's norms are what is added to 1."""
        return ops.rms_norm(x, ops.cast(weight, "f32") + 1.0, eps=self.eps)

    def read_config(self, config):
        super().read_config(config)
        self.activation = config.activation("hidden_activation", "gelu_pytorch_tanh")
        self.scale = config.real("query_pre_attn_scalar", 256.0, low=1e-6) ** -0.5
        # A setting of Gemma 2's, attn_logit_softcapping, is read by transformers too, and not used.
        self.logits_cap = config.real("final_logit_softcapping", 0.0)
        config.only("use_bidirectional_attention", False)
        attention = ("q_proj", "k_proj", "v_proj", "o_proj")
        self.biases = attention if config.flag("attention_bias", False) else ()
        both = config.section("rope_parameters")
        if "full_attention" in both:
            self.global_rope = rope_settings(both, self.size, "full_attention")
            self.local_rope = rope_settings(both, self.size, "sliding_attention")
        else:
            self.global_rope = rope_settings(Config({"rope_theta": 1e6, **config.values}, config.where), self.size)
            theta = config.real("rope_local_base_freq", 10000.0, low=1)
            self.local_rope = {"theta": theta, "dims": self.size}

    def layer(self, i):
        slides = self.slides(i)
        window = self.config.integer("sliding_window", 4096) if slides else 0
        return {**super().layer(i), "window": window, "rope": self.local_rope if slides else self.global_rope}

    def slides(self, i):
        """Whether layer i sees a window only."""
        kinds = self.config.words("layer_types", self.layers)
        if kinds:
            return kinds[i] == "sliding_attention"
        return (i + 1) % self.config.integer("sliding_window_pattern", 6) != 0

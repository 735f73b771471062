#!/usr/bin/env python3
"""Gemma 3 in Python: recorded as a program, saved as text, and run.

    PYTHONPATH=build/release/python python3 examples/gemma3.py MODEL.gguf [PROMPT]

Takes any GGUF file of the architecture gemma3. The text of the program is written to gemma3.tenon.
"""

import tenon
from smollm2 import main, rope_settings  # beside this file; main() reads the arguments
from tenon import ops


class Gemma3:
    def __init__(self, file, context):
        data = {key.removeprefix("gemma3."): value for key, value in file.metadata.items()}
        self.file = file
        self.layers = data["block_count"]
        self.heads = data["attention.head_count"]
        self.kv_heads = data["attention.head_count_kv"]
        self.width = data["embedding_length"]
        self.size = data.get("attention.key_length", self.width // self.heads)
        self.eps = data["attention.layer_norm_rms_epsilon"]
        self.window = data["attention.sliding_window"]
        self.period = data.get("attention.sliding_window_pattern", 6)
        self.rope = rope_settings(data, self.size)
        self.local_rope = {"theta": data.get("rope.freq_base_swa", 10000.0), "dims": self.size}
        self.cache = f"f16[{self.layers}, 1, {self.kv_heads}, {context}, {self.size}]"

    def weight(self, name):
        return tenon.build.weight(name, self.file.type(name))

    def layer(self, i):
        """Weights of layer i, how far it looks back (0: to the beginning), and how it turns positions."""
        parts = ("attn_norm attn_q attn_k attn_v attn_q_norm attn_k_norm attn_output post_attention_norm ffn_norm "
                 "ffn_gate ffn_up ffn_down post_ffw_norm").split()
        weights = {part: self.weight(f"blk.{i}.{part}.weight") for part in parts}
        if (i + 1) % self.period == 0:
            return weights | {"window": 0, "rope": self.rope}
        return weights | {"window": self.window, "rope": self.local_rope}

    def forward(self, ids, position, keys, values):
        """Tokens i32[1, S] at `position` and the caches before them: the next token's logits, and the caches."""
        positions = ops.iota(ids, axis=1, dtype="i32") + position
        table = self.weight("token_embd.weight")

        def norm(x, weight):
            return ops.rms_norm(x, weight, eps=self.eps)

        def block(w, index, x, keys, values):
            h = norm(x, w["attn_norm"])
            q, k, v = (ops.split_axis(ops.linear(h, w[part]), axis=2, sizes=(heads, self.size))
                       for part, heads in zip(("attn_q", "attn_k", "attn_v"), (self.heads, *[self.kv_heads] * 2)))
            q, k = (ops.rope(norm(heads, w[part]), positions, **w["rope"])
                    for heads, part in ((q, "attn_q_norm"), (k, "attn_k_norm")))
            keys = ops.cache_update(keys, index, k, position)
            values = ops.cache_update(values, index, v, position)
            k, v = (ops.permute(ops.select(cache, index), (0, 2, 1, 3)) for cache in (keys, values))
            mixed = ops.attention(q, k, v, position=position, causal=True, window=w["window"])
            x = x + norm(ops.linear(mixed.flatten(2), w["attn_output"]), w["post_attention_norm"])
            h = norm(x, w["ffn_norm"])
            h = ops.glu(ops.linear(h, w["ffn_gate"]), ops.linear(h, w["ffn_up"]), activation="gelu_tanh")
            return x + norm(ops.linear(h, w["ffn_down"]), w["post_ffw_norm"]), keys, values

        layers = [self.layer(i) for i in range(self.layers)]
        x = ops.embedding(ids, table) * self.width**0.5
        x, keys, values = tenon.repeat(layers, (x, keys, values), block)
        x = ops.gather(x, ops.max(ops.iota(ids, axis=1, dtype="i32")), axis=1)
        head = self.weight("output.weight") if "output.weight" in self.file else table
        return ops.linear(norm(x, self.weight("output_norm.weight")), head), keys, values


if __name__ == "__main__":
    main(Gemma3, "gemma3.tenon")

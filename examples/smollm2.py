#!/usr/bin/env python3
"""SmolLM2 in Python: recorded as a program, saved as text, and run.

    PYTHONPATH=build/release/python python3 examples/smollm2.py MODEL.gguf [PROMPT]

Takes any GGUF file of the architecture llama. The text of the program is written to smollm2.tenon.
"""

import sys

import tenon
from tenon import ops


def rope_settings(data, size):
    """Attributes of ops.rope by a file's metadata."""
    scaling = data.get("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise NotImplementedError(f"rope scaling {scaling}")
    return {"theta": data.get("rope.freq_base", 10000.0), "dims": data.get("rope.dimension_count", size),
            "scaling": scaling, "factor": data.get("rope.scaling.factor", 1.0)}


class Llama:
    def __init__(self, file, context):
        data = {key.removeprefix("llama."): value for key, value in file.metadata.items()}
        self.file = file
        self.layers = data["block_count"]
        self.heads = data["attention.head_count"]
        self.kv_heads = data.get("attention.head_count_kv", self.heads)
        self.size = data.get("attention.key_length", data["embedding_length"] // self.heads)
        self.eps = data["attention.layer_norm_rms_epsilon"]
        self.rope = {**rope_settings(data, self.size), "interleaved": True}
        self.cache = f"f16[{self.layers}, 1, {self.kv_heads}, {context}, {self.size}]"

    def weight(self, name):
        return tenon.build.weight(name, self.file.type(name))

    def layer(self, i):
        parts = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down".split()
        return {part: self.weight(f"blk.{i}.{part}.weight") for part in parts}

    def forward(self, ids, position, keys, values):
        """Tokens i32[1, S] at `position` and the caches before them: the next token's logits, and the caches."""
        positions = ops.iota(ids, axis=1, dtype="i32") + position
        table = self.weight("token_embd.weight")
        factors = self.weight("rope_freqs.weight") if "rope_freqs.weight" in self.file else None

        def rope(x):
            return ops.rope(x, positions, freq_factors=factors, **self.rope)

        def block(w, index, x, keys, values):
            h = ops.rms_norm(x, w["attn_norm"], eps=self.eps)
            q, k, v = (ops.split_axis(ops.linear(h, w[part]), axis=2, sizes=(heads, self.size))
                       for part, heads in zip(("attn_q", "attn_k", "attn_v"), (self.heads, *[self.kv_heads] * 2)))
            keys = ops.cache_update(keys, index, rope(k), position)
            values = ops.cache_update(values, index, v, position)
            k, v = (ops.permute(ops.select(cache, index), (0, 2, 1, 3)) for cache in (keys, values))
            mixed = ops.attention(rope(q), k, v, position=position, causal=True)
            x = ops.linear(mixed.flatten(2), w["attn_output"], residual=x)
            h = ops.rms_norm(x, w["ffn_norm"], eps=self.eps)
            h = ops.glu(ops.linear(h, w["ffn_gate"]), ops.linear(h, w["ffn_up"]), activation="silu")
            return ops.linear(h, w["ffn_down"], residual=x), keys, values

        layers = [self.layer(i) for i in range(self.layers)]
        x, keys, values = tenon.repeat(layers, (ops.embedding(ids, table), keys, values), block)
        last = ops.max(ops.iota(ids, axis=1, dtype="i32"))
        x = ops.rms_norm(ops.gather(x, last, axis=1), self.weight("output_norm.weight"), eps=self.eps)
        head = self.weight("output.weight") if "output.weight" in self.file else table
        return ops.linear(x, head), keys, values


def main(kind, name):
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} MODEL.gguf [PROMPT]")
    path, prompt = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "The capital of France is"
    file = tenon.open(path)
    model = kind(file, context=512)
    program = tenon.export(model.forward, ids="i32[1, S]", position="i32[]", keys=model.cache, values=model.cache)
    text = str(program)
    with open(name, "w", encoding="utf-8") as out:
        out.write(text)
    print(f"{len(text.splitlines())} lines in {name}", file=sys.stderr)

    session = tenon.Session(tenon.parse(text), file.weights())
    tokenizer = tenon.Tokenizer.from_file(path)
    shape = tenon.Shape(model.cache).dims
    keys, values = ops.zeros(shape, "f16"), ops.zeros(shape, "f16")
    tokens = tokenizer.encode(prompt)
    position, step = 0, tokens
    for _ in range(16):
        logits, keys, values = session.forward([step], position, keys.donate(), values.donate())
        position += len(step)
        step = [int(logits.numpy()[0].argmax())]
        tokens += step
    print(tokenizer.decode(tokens))


if __name__ == "__main__":
    main(Llama, "smollm2.tenon")

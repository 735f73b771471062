#!/usr/bin/env python3
"""Writes one tiny GGUF model per decoder architecture, with the logits of the f64 reference.

The weights are random, so the text means nothing; but every branch of the architectures is there
(biases, norms of queries and keys, grouped heads, sliding windows with every sixth layer global, two
rotary bases, scaled and per-pair rotary frequencies, own and tied heads) and several block types, so
that models can be tested where no real file is at hand.

    OUT/tiny_NAME.gguf           the model, with a byte-level tokenizer of 272 tokens
    OUT/tiny_NAME_logits.npy     f32 [48, 272], for the tokens 0, 7, 14, ... modulo 272

    tiny_models.py --out tests/models/data
"""

import argparse
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from lm_reference import Model

VOCABULARY = 272
TOKENS = np.arange(48) * 7 % VOCABULARY
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "i n", "a n", "Ġ the", "r e", "o n", "e r", "o u", "Ġ a", "an d", "in g",
          "Ġ w"]


def byte_spellings():
    """Byte-level BPE's visible character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelling = {byte: chr(byte) for byte in plain}
    for place, byte in enumerate(byte for byte in range(256) if byte not in spelling):
        spelling[byte] = chr(256 + place)
    return [spelling[byte] for byte in range(256)]


def add_tokenizer(writer):
    tokens = SPECIAL + byte_spellings() + [merge.replace(" ", "") for merge in MERGES]
    assert len(tokens) == VOCABULARY
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * len(SPECIAL) +
                           [gguf.TokenType.NORMAL] * (VOCABULARY - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


class Builder:
    """Random tensors of a model of width 32 with two heads and one head of keys and values."""

    width, feed_forward, heads, kv_heads = 32, 64, 2, 1
    experts, experts_used = 5, 2

    def __init__(self, path, arch, layers, head_size, seed, has_experts=False):
        self.has_experts = has_experts
        self.rng = np.random.default_rng(seed)
        self.arch, self.layers, self.head_size = arch, layers, head_size
        self.writer = writer = gguf.GGUFWriter(str(path), arch)
        writer.add_context_length(1024)
        writer.add_embedding_length(self.width)
        writer.add_block_count(layers)
        if has_experts:
            writer.add_expert_count(self.experts)
            writer.add_expert_used_count(self.experts_used)
            writer.add_expert_feed_forward_length(self.feed_forward)
        if not has_experts or arch == "llama":
            writer.add_feed_forward_length(self.feed_forward)
        if arch == "qwen2moe":
            writer.add_expert_shared_feed_forward_length(self.feed_forward)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_vocab_size(VOCABULARY)
        if head_size * self.heads != self.width:
            writer.add_key_length(head_size)
            writer.add_value_length(head_size)
        add_tokenizer(writer)

    def matrix(self, name, rows, columns, kind, scale=None):
        scale = 1 / np.sqrt(columns) if scale is None else scale
        values = (self.rng.standard_normal((rows, columns)) * scale).astype(np.float32)
        data = gguf.quants.quantize(values, kind)
        self.writer.add_tensor(name, data, raw_dtype=kind)

    def stack(self, name, rows, columns, kind):
        shape = (self.experts, rows, columns)
        values = self.rng.standard_normal(shape).astype(np.float32) / np.sqrt(columns)
        data = gguf.quants.quantize(values.astype(np.float32), kind)
        self.writer.add_tensor(name, data, raw_dtype=kind)

    def mixture(self, prefix):
        self.matrix(prefix + "ffn_gate_inp.weight", self.experts, self.width, Type.F32, 0.5)
        self.stack(prefix + "ffn_gate_exps.weight", self.feed_forward, self.width, Type.Q4_1)
        self.stack(prefix + "ffn_up_exps.weight", self.feed_forward, self.width, Type.Q5_0)
        self.stack(prefix + "ffn_down_exps.weight", self.width, self.feed_forward, Type.Q8_0)
        if self.arch == "qwen2moe":
            self.matrix(prefix + "ffn_gate_shexp.weight", self.feed_forward, self.width, Type.Q4_1)
            self.matrix(prefix + "ffn_up_shexp.weight", self.feed_forward, self.width, Type.Q5_0)
            self.matrix(prefix + "ffn_down_shexp.weight", self.width, self.feed_forward, Type.BF16)
            self.vector(prefix + "ffn_gate_inp_shexp.weight", self.width, 0.0, 0.5)

    def vector(self, name, size, mean, spread):
        self.writer.add_tensor(name, (mean + spread * self.rng.standard_normal(size)).astype("<f4"))

    def layer(self, index):
        prefix = f"blk.{index}."
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        is_gemma = self.arch == "gemma3"
        norms = ["attn_norm", "ffn_norm"]
        norms += ["post_attention_norm", "post_ffw_norm"] if is_gemma else []
        for norm in norms:
            self.vector(prefix + norm + ".weight", self.width, 1.0, 0.2)
        if self.arch in ("qwen3", "qwen3moe", "gemma3"):
            for norm in ("attn_q_norm", "attn_k_norm"):
                self.vector(prefix + norm + ".weight", self.head_size, 1.0, 0.2)
        self.matrix(prefix + "attn_q.weight", q, self.width, Type.Q4_0, 0.4)
        self.matrix(prefix + "attn_k.weight", kv, self.width, Type.Q8_0, 0.4)
        self.matrix(prefix + "attn_v.weight", kv, self.width, Type.F16)
        self.matrix(prefix + "attn_output.weight", self.width, q, Type.Q5_1)
        if self.arch in ("qwen2", "qwen2moe"):
            for name, size in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
                self.vector(prefix + name + ".bias", size, 0.0, 0.5)
        if self.has_experts:
            self.mixture(prefix)
            return
        self.matrix(prefix + "ffn_gate.weight", self.feed_forward, self.width, Type.Q4_1)
        self.matrix(prefix + "ffn_up.weight", self.feed_forward, self.width, Type.Q5_0)
        self.matrix(prefix + "ffn_down.weight", self.width, self.feed_forward, Type.BF16)

    def write(self, own_head):
        self.matrix("token_embd.weight", VOCABULARY, self.width, Type.Q8_0, 0.5)
        self.vector("output_norm.weight", self.width, 1.0, 0.2)
        if own_head:
            self.matrix("output.weight", VOCABULARY, self.width, Type.F32, 0.5)
        for index in range(self.layers):
            self.layer(index)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def write_model(path, arch, seed):
    if arch.endswith("moe") or arch == "mixtral":
        gguf_arch = "llama" if arch == "mixtral" else arch
        builder = Builder(path, gguf_arch, 2, 32 if arch == "qwen3moe" else 16, seed, True)
        builder.writer.add_rope_freq_base(1e6)
        builder.write(own_head=False)
        return
    if arch == "llama":
        builder = Builder(path, arch, 2, 16, seed)
        builder.writer.add_rope_freq_base(10000.0)
        builder.writer.add_rope_dimension_count(16)
        divisors = np.linspace(1, 8, 8).astype("<f4")
        builder.writer.add_tensor("rope_freqs.weight", divisors)
        builder.write(own_head=True)
    elif arch == "qwen2":
        builder = Builder(path, arch, 2, 16, seed)
        builder.writer.add_rope_freq_base(1e6)
        builder.write(own_head=False)
    elif arch == "qwen3":
        builder = Builder(path, arch, 2, 32, seed)
        builder.writer.add_rope_freq_base(1e6)
        builder.write(own_head=False)
    else:
        builder = Builder(path, arch, 7, 32, seed)
        builder.writer.add_rope_freq_base(1e6)
        builder.writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        builder.writer.add_rope_scaling_factor(8.0)
        builder.writer.add_sliding_window(8)
        builder.write(own_head=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    architectures = ("llama", "qwen2", "qwen3", "gemma3", "mixtral", "qwen2moe", "qwen3moe")
    for seed, arch in enumerate(architectures):
        path = arguments.out / f"tiny_{arch}.gguf"
        write_model(path, arch, seed)
        model = Model(path)
        logits = model.logits(model.hidden(TOKENS)).astype(np.float32)
        np.save(arguments.out / f"tiny_{arch}_logits.npy", logits)


if __name__ == "__main__":
    main()

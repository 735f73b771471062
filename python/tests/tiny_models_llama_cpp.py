#!/usr/bin/env python3
"""Writes one tiny GGUF model for each architecture whose logits llama.cpp computes, not lm_reference.py.

As tiny_models.py's, with random weights of several types. llama.cpp gets the same weights widened to f32,
so that it rounds no activation; needs `llama-cpp-python` beside numpy and gguf.

    OUT/tiny_NAME.gguf           the model, with a byte-level tokenizer of 272 tokens
    OUT/tiny_NAME_logits.npy     f32 [16, 272], of the last of the 48 tokens 0, 7, 14, ... modulo 272;
                                 [48, 272] where they were written before 2026-11-27

    OUT/tiny_llama4_far_logits.npy    of the last of 8200 tokens: chunks of its attention have 8192

    tiny_models_llama_cpp.py --out tests/models/data [NAME ...]
"""

import argparse
import functools
import pathlib
import tempfile

import gguf
import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

from tiny_models import TOKENS, VOCABULARY, add_tokenizer


class Writer:
    """A GGUF file of random tensors."""

    def __init__(self, path, arch, layers, width, seed):
        self.rng = np.random.default_rng(seed)
        self.file = file = gguf.GGUFWriter(str(path), arch)
        self.layers, self.width = layers, width
        self.is_deep = False  # matrices of layers are of q4_0, and small: many layers do not amplify rounding
        file.add_context_length(1024)
        file.add_embedding_length(width)
        file.add_block_count(layers)
        file.add_layer_norm_rms_eps(1e-5)
        file.add_vocab_size(VOCABULARY)
        add_tokenizer(file)

    def values(self, shape, mean=0.0, spread=1.0):
        return (mean + spread * self.rng.standard_normal(shape)).astype(np.float32)

    def tensor(self, name, values, kind=Type.F32):
        self.file.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def matrix(self, name, shape, kind=Type.F32, scale=None):
        scale = 1 / np.sqrt(shape[-1]) if scale is None else scale
        if self.is_deep and name.startswith("blk."):
            scale, kind = 0.3 * scale, Type.Q4_0
        self.tensor(name + ".weight", self.values(shape, spread=scale), kind)

    def vector(self, name, size, mean=0.0, spread=0.5):
        self.tensor(name, self.values(size, mean, spread))

    def norm(self, name, size):
        self.vector(name + ".weight", size, 1.0, 0.2)

    def dense(self, prefix, hidden, suffix="", kinds=(Type.Q8_0, Type.Q4_1, Type.F16)):
        for part, kind in zip(("gate", "up", "down"), kinds):
            shape = (self.width, hidden) if part == "down" else (hidden, self.width)
            self.matrix(f"{prefix}ffn_{part}{suffix}", shape, kind)

    def experts(self, prefix, experts, hidden, kinds=(Type.Q4_1, Type.Q5_0, Type.Q8_0), parts=("gate", "up", "down"),
                read=None):
        """`read`: the width of what experts read and make, where it is not that of the stream."""
        read = read or self.width
        self.matrix(prefix + "ffn_gate_inp", (experts, self.width), scale=0.5)
        for part, kind in zip(parts, kinds):
            shape = (read, hidden) if part == "down" else (hidden, read)
            self.matrix(f"{prefix}ffn_{part}_exps", (experts, *shape), kind)

    def attention(self, prefix, heads, kv_heads, head_size):
        kinds = (Type.Q4_0, Type.Q8_0, Type.F16)
        for part, count, kind in zip("qkv", (heads, kv_heads, kv_heads), kinds):
            self.matrix(f"{prefix}attn_{part}", (count * head_size, self.width), kind,
                        0.4 if part != "v" else None)
        self.matrix(prefix + "attn_output", (self.width, heads * head_size), Type.Q5_1)

    def first_mamba(self, prefix, inner, states, rank, taps):
        self.matrix(prefix + "ssm_in", (2 * inner, self.width), Type.Q8_0)
        self.matrix(prefix + "ssm_conv1d", (inner, taps), scale=0.5)
        self.vector(prefix + "ssm_conv1d.bias", inner)
        self.tensor(prefix + "ssm_a", -np.exp(self.values((inner, states))))
        self.vector(prefix + "ssm_d", inner, 1.0)
        self.matrix(prefix + "ssm_x", (rank + 2 * states, inner), Type.Q5_0)
        self.matrix(prefix + "ssm_dt", (inner, rank))
        self.vector(prefix + "ssm_dt.bias", inner, -1.0, 1.0)
        self.matrix(prefix + "ssm_out", (self.width, inner), Type.Q4_1)

    def second_mamba(self, prefix, inner, states, heads, groups, taps, has_norm=True):
        convolved = inner + 2 * groups * states
        self.matrix(prefix + "ssm_in", (inner + convolved + heads, self.width), Type.Q8_0)
        self.matrix(prefix + "ssm_conv1d", (convolved, taps), scale=0.5)
        self.vector(prefix + "ssm_conv1d.bias", convolved)
        self.tensor(prefix + "ssm_a", -np.exp(self.values((heads, 1))))
        self.vector(prefix + "ssm_d", (heads, 1), 1.0)
        self.vector(prefix + "ssm_dt.bias", heads, -1.0, 1.0)
        if has_norm:
            self.vector(prefix + "ssm_norm.weight", (groups, inner // groups), 1.0, 0.2)
        self.matrix(prefix + "ssm_out", (self.width, inner), Type.Q4_1)

    def write(self, layer, own_head=True, last_norm="output_norm"):
        self.matrix("token_embd", (VOCABULARY, self.width), Type.Q8_0, 0.5)
        if last_norm is not None:
            self.norm(last_norm, self.width)
        if own_head:
            self.matrix("output", (VOCABULARY, self.width), Type.Q8_0, 0.5)
        for index in range(self.layers):
            layer(f"blk.{index}.", index)
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def write_olmoe(path):
    writer = Writer(path, "olmoe", 2, 32, 11)
    writer.file.add_head_count(2)
    writer.file.add_head_count_kv(2)
    writer.file.add_feed_forward_length(32)
    writer.file.add_expert_count(5)
    writer.file.add_expert_used_count(2)

    def layer(prefix, _):
        for norm in ("attn_norm", "attn_q_norm", "attn_k_norm", "ffn_norm"):
            writer.norm(prefix + norm, 32)
        writer.attention(prefix, 2, 2, 16)
        writer.experts(prefix, 5, 32)

    writer.write(layer)


def write_nvfp4(path, has_experts):
    """Weights in nvfp4 with a scale of each whole weight, or of each expert's: llama, with biases of its attention, or
    qwen3moe. (llama.cpp scales the biases of feed-forward parts, too.)"""
    writer = Writer(path, "qwen3moe" if has_experts else "llama", 2, 64, 241 + has_experts)
    writer.file.add_head_count(4)
    writer.file.add_head_count_kv(4)
    writer.file.add_feed_forward_length(64)
    if has_experts:
        writer.file.add_expert_count(5)
        writer.file.add_expert_used_count(2)
        writer.file.add_expert_feed_forward_length(64)

    def matrix(name, shape, size):
        """Of random codes; scales of the parts of two magnitudes, and one of the whole that makes them about `size`."""
        blocks = writer.rng.integers(0, 256, (*shape[:-1], shape[-1] // 64, 36), dtype=np.uint8)
        blocks[..., :4] = writer.rng.integers(40, 56, blocks[..., :4].shape)  # 2^-4 to 2^-2
        writer.file.add_tensor(name + ".weight", blocks.reshape(*shape[:-1], -1), raw_dtype=Type.NVFP4)
        count = shape[0] if len(shape) == 3 else 1
        factors = size * np.exp2(writer.rng.uniform(-0.5, 0.5, count))
        writer.tensor(name + ".scale", factors.astype(np.float32))

    def layer(prefix, _):
        for norm in ("attn_norm", "ffn_norm"):
            writer.norm(prefix + norm, 64)
        for norm in ("attn_q_norm", "attn_k_norm") if has_experts else ():
            writer.norm(prefix + norm, 16)
        for part in ("q", "k", "v", "output"):
            matrix(f"{prefix}attn_{part}", (64, 64), 0.2)
            if not has_experts:
                writer.vector(f"{prefix}attn_{part}.bias", 64)
        if has_experts:
            writer.matrix(prefix + "ffn_gate_inp", (5, 64), scale=0.5)
        for part in ("gate", "up", "down"):
            name = f"{prefix}ffn_{part}" + ("_exps" if has_experts else "")
            matrix(name, (5, 64, 64) if has_experts else (64, 64), 0.15)

    writer.write(layer)


def write_gpt_oss(path):
    writer = Writer(path, "gpt-oss", 2, 32, 12)
    writer.file.add_head_count(4)
    writer.file.add_head_count_kv(2)
    writer.file.add_key_length(32)
    writer.file.add_value_length(32)
    writer.file.add_sliding_window(8)
    writer.file.add_expert_count(4)
    writer.file.add_expert_used_count(2)
    writer.file.add_expert_feed_forward_length(32)
    writer.file.add_rope_freq_base(150000.0)
    writer.file.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.file.add_rope_scaling_factor(4.0)
    writer.file.add_rope_scaling_orig_ctx_len(16)

    def layer(prefix, _):
        writer.norm(prefix + "attn_norm", 32)
        writer.norm(prefix + "post_attention_norm", 32)
        writer.attention(prefix, 4, 2, 32)
        for part, size in (("q", 128), ("k", 64), ("v", 64), ("output", 32)):
            writer.vector(f"{prefix}attn_{part}.bias", size)
        writer.vector(prefix + "attn_sinks.weight", 4, 1.0, 1.0)
        writer.experts(prefix, 4, 32, (Type.MXFP4,) * 3)
        writer.vector(prefix + "ffn_gate_inp.bias", 4)
        # Beyond the limits of the activation, now and then.
        writer.vector(prefix + "ffn_gate_exps.bias", (4, 32), 0.0, 5.0)
        writer.vector(prefix + "ffn_up_exps.bias", (4, 32), 0.0, 5.0)
        writer.vector(prefix + "ffn_down_exps.bias", (4, 32))

    writer.write(layer)


def write_deepseek2(path, is_lite, is_split=True):
    """Lite as DeepSeek-V2-Lite: queries without a latent vector, softmax, no groups. Not split: as files before 2025."""
    rank, plain, rotated, value, heads = 32, 32, 16, 16, 2
    writer = Writer(path, "deepseek2", 2, 32, 15 + is_lite if is_split else 218)
    file = writer.file
    file.add_head_count(heads)
    if is_split:
        file.add_head_count_kv(1)
        file.add_key_length(rank + rotated)
        file.add_value_length(rank)
        file.add_key_length_mla(plain + rotated)
        file.add_value_length_mla(value)
    else:
        file.add_head_count_kv(heads)
        file.add_key_length(plain + rotated)
        file.add_value_length(value)
    file.add_kv_lora_rank(rank)
    file.add_q_lora_rank(0 if is_lite else 32)
    file.add_rope_dimension_count(rotated)
    file.add_feed_forward_length(64)
    file.add_leading_dense_block_count(1)
    file.add_expert_count(8)
    file.add_expert_used_count(3)
    file.add_expert_shared_count(2)
    file.add_expert_feed_forward_length(32)
    file.add_expert_weights_scale(1.5)
    file.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    file.add_rope_scaling_factor(4.0)
    file.add_rope_scaling_orig_ctx_len(16)
    file.add_rope_scaling_yarn_log_mul(0.1 * (0.707 if is_lite else 1.0))
    file.add_expert_weights_norm(not is_lite)
    gating = gguf.ExpertGatingFuncType.SOFTMAX if is_lite else gguf.ExpertGatingFuncType.SIGMOID
    file.add_expert_gating_func(gating)
    if not is_lite:
        file.add_expert_group_count(4)
        file.add_expert_group_used_count(2)

    def layer(prefix, index):
        writer.norm(prefix + "attn_norm", 32)
        writer.norm(prefix + "ffn_norm", 32)
        queries = heads * (plain + rotated)
        if is_lite:
            writer.matrix(prefix + "attn_q", (queries, 32), Type.Q4_0)
        else:
            writer.matrix(prefix + "attn_q_a", (32, 32), Type.Q8_0)
            writer.norm(prefix + "attn_q_a_norm", 32)
            writer.matrix(prefix + "attn_q_b", (queries, 32), Type.Q4_0)
        writer.matrix(prefix + "attn_kv_a_mqa", (rank + rotated, 32), Type.F16)
        writer.norm(prefix + "attn_kv_a_norm", rank)
        if is_split:
            writer.matrix(prefix + "attn_k_b", (heads, rank, plain), Type.Q8_0)
            writer.matrix(prefix + "attn_v_b", (heads, value, rank), Type.Q4_0)
        else:
            writer.matrix(prefix + "attn_kv_b", (heads * (plain + value), rank), Type.Q8_0)
        writer.matrix(prefix + "attn_output", (32, heads * value), Type.Q5_1)
        if index == 0:
            writer.dense(prefix, 64)
            return
        writer.experts(prefix, 8, 32)
        if not is_lite:
            writer.vector(prefix + "exp_probs_b.bias", 8, 0.0, 0.3)
        writer.dense(prefix, 64, "_shexp")

    writer.write(layer)


def write_mamba(path, is_second):
    inner, taps, states = 64, 4, 16
    heads, groups, rank = 4, 2, 4
    writer = Writer(path, "mamba2" if is_second else "mamba", 2, 32, 17 + is_second)
    file = writer.file
    file.add_head_count(0)
    file.add_feed_forward_length(0)
    file.add_ssm_conv_kernel(taps)
    file.add_ssm_inner_size(inner)
    file.add_ssm_state_size(states)
    file.add_ssm_time_step_rank(heads if is_second else rank)
    if is_second:
        file.add_ssm_group_count(groups)

    def layer(prefix, _):
        writer.norm(prefix + "attn_norm", 32)
        if is_second:
            writer.second_mamba(prefix, inner, states, heads, groups, taps)
            return
        writer.first_mamba(prefix, inner, states, rank, taps)

    writer.write(layer, own_head=is_second)


def write_rwkv7(path):
    """One head: llama.cpp computes heads of multiples of 64 numbers only."""
    width, head_size, rank = 64, 64, 8
    writer = Writer(path, "rwkv7", 2, width, 19)
    file = writer.file
    file.add_layer_norm_eps(1e-5)
    file.add_head_count(0)
    file.add_feed_forward_length(64)
    file.add_wkv_head_size(head_size)
    file.add_decay_lora_rank(rank)
    file.add_iclr_lora_rank(rank)
    file.add_value_residual_mix_lora_rank(rank)
    file.add_gate_lora_rank(rank)
    file.add_token_shift_count(2)

    def layer_norm(name):
        writer.norm(name, width)
        writer.vector(name + ".bias", width, 0.0, 0.2)

    layer_norm("token_embd_norm")
    writer.vector("output_norm.bias", width, 0.0, 0.2)

    def layer(prefix, _):
        for norm in ("attn_norm", "attn_norm_2", "time_mix_ln"):
            layer_norm(prefix + norm)
        for part in "wavg":
            writer.matrix(f"{prefix}time_mix_{part}1", (rank, width), Type.F16)
            writer.matrix(f"{prefix}time_mix_{part}2", (width, rank), Type.F16)
            if part != "g":
                writer.vector(f"{prefix}time_mix_{part}0.weight", width, -1.0 if part == "w" else 0.0)
        writer.vector(prefix + "time_mix_lerp_fused.weight", (6, 1, 1, width), 0.5, 0.3)
        for name, mean in (("k_k", 0.8), ("k_a", 1.0), ("r_k", 0.0)):
            writer.vector(f"{prefix}time_mix_{name}.weight", width, mean, 0.2)
        for name, kind in (("key", Type.Q5_1), ("value", Type.Q5_0), ("receptance", Type.Q4_1),
                           ("output", Type.Q4_0)):
            writer.matrix(f"{prefix}time_mix_{name}", (width, width), kind)
        writer.vector(prefix + "channel_mix_lerp_k.weight", (1, 1, width), 0.5, 0.3)
        writer.matrix(prefix + "channel_mix_key", (64, width), Type.Q4_0)
        writer.matrix(prefix + "channel_mix_value", (width, 64), Type.Q8_0)

    writer.write(layer)


def write_rwkv6(path):
    """One head: llama.cpp computes heads of multiples of 64 numbers only. What the second of three layers gives is halved."""
    width, head_size, rank, low = 64, 64, 8, 16
    writer = Writer(path, "rwkv6", 3, width, 217)
    file = writer.file
    file.add_layer_norm_eps(1e-5)
    file.add_head_count(0)
    file.add_feed_forward_length(96)
    file.add_wkv_head_size(head_size)
    file.add_time_mix_extra_dim(rank)
    file.add_time_decay_extra_dim(low)
    file.add_rescale_every_n_layers(2)

    def layer_norm(name):
        writer.norm(name, width)
        writer.vector(name + ".bias", width, 0.0, 0.2)

    layer_norm("token_embd_norm")
    writer.vector("output_norm.bias", width, 0.0, 0.2)

    def layer(prefix, _):
        for norm in ("attn_norm", "attn_norm_2", "time_mix_ln"):
            layer_norm(prefix + norm)
        writer.matrix(prefix + "time_mix_w1", (5 * rank, width), Type.F16)
        writer.matrix(prefix + "time_mix_w2", (5, width, rank), Type.F16)
        writer.vector(prefix + "time_mix_lerp_x.weight", (1, 1, width), 0.5, 0.3)
        writer.vector(prefix + "time_mix_lerp_fused.weight", (5, 1, 1, width), 0.5, 0.3)
        writer.vector(prefix + "time_mix_first.weight", (width // head_size, head_size), 0.3, 0.5)
        writer.vector(prefix + "time_mix_decay.weight", width, -2.0, 1.5)
        writer.matrix(prefix + "time_mix_decay_w1", (low, width))
        writer.matrix(prefix + "time_mix_decay_w2", (width, low))
        for name, kind in (("key", Type.Q5_1), ("value", Type.Q5_0), ("receptance", Type.Q4_1), ("gate", Type.Q8_0),
                           ("output", Type.Q4_0)):
            writer.matrix(f"{prefix}time_mix_{name}", (width, width), kind)
        for part in "kr":
            writer.vector(f"{prefix}channel_mix_lerp_{part}.weight", (1, 1, width), 0.5, 0.3)
        writer.matrix(prefix + "channel_mix_key", (96, width), Type.Q4_0)
        writer.matrix(prefix + "channel_mix_value", (width, 96), Type.Q8_0)
        writer.matrix(prefix + "channel_mix_receptance", (width, width), Type.Q5_1)

    writer.write(layer)


def write_transformer(path, seed, arch, *, norm="rms", first_norms=True, last_norms=False, one_norm=False,
                      second_norm="ffn_norm", head_norms=None, fused_qkv=False, biases="", gate="own", has_head=True,
                      head_bias=False, positions=False, experts=0, shared=False, heads=2, kv_heads=1, head_size=16,
                      dense_layers=None, rotated=None, layers=2, stated_hidden=32, embedding_norm=False,
                      more=lambda writer: None):
    """A decoder of width 32. `norm`: "rms", or "layer", with bias or "bare", or None; `head_norms`: of "all" heads as one, one
    "head" for all, or "each"; `biases`: of q, k and v ("qkv"), output ("o"), feed-forward ("f") and its gate ("g")."""
    width, hidden = 32, 32
    first_experts = int(shared) if dense_layers is None else dense_layers
    writer = Writer(path, arch, layers, width, seed)
    file = writer.file
    file.add_layer_norm_eps(1e-5)
    file.add_head_count(heads)
    file.add_head_count_kv(kv_heads)
    file.add_feed_forward_length(stated_hidden)
    if heads * head_size != width:
        file.add_key_length(head_size)
        file.add_value_length(head_size)
    if not positions:
        file.add_rope_dimension_count(rotated or head_size)
    if experts:
        file.add_expert_count(experts)
        file.add_expert_used_count(2)
        file.add_expert_feed_forward_length(hidden)
    more(writer)
    queries, keys = heads * head_size, kv_heads * head_size

    def add_norm(name, size=width):
        if norm is None:
            return
        writer.norm(name, size)
        if norm == "layer":
            writer.vector(name + ".bias", size, 0.0, 0.2)

    def add_attention(prefix):
        if fused_qkv:
            writer.matrix(prefix + "attn_qkv", (queries + 2 * keys, width), Type.Q8_0, 0.3)
            if "q" in biases:
                writer.vector(prefix + "attn_qkv.bias", queries + 2 * keys)
            writer.matrix(prefix + "attn_output", (width, queries), Type.Q5_1)
        else:
            writer.attention(prefix, heads, kv_heads, head_size)
            for part, size in zip("qkv", (queries, keys, keys)):
                if part in biases:
                    writer.vector(f"{prefix}attn_{part}.bias", size)
        if "o" in biases:
            writer.vector(prefix + "attn_output.bias", width)
        for part, count in (("q", heads), ("k", kv_heads)):
            sizes = {"head": head_size, "all": count * head_size, "each": (count, head_size)}
            if head_norms is not None:
                writer.norm(f"{prefix}attn_{part}_norm", sizes[head_norms])

    def add_feed_forward(prefix, suffix=""):
        if gate == "own":
            writer.dense(prefix, hidden, suffix)
        else:
            rows = 2 * hidden if gate == "fused" else hidden
            writer.matrix(prefix + "ffn_up", (rows, width), Type.Q4_1)
            writer.matrix(prefix + "ffn_down", (width, hidden), Type.F16)
        if "f" in biases:
            writer.vector(prefix + "ffn_up.bias", hidden)
            writer.vector(prefix + "ffn_down.bias", width)
        if "g" in biases:
            writer.vector(prefix + "ffn_gate.bias", hidden)

    def layer(prefix, index):
        names = ["attn_norm", second_norm] if first_norms else []
        names += ["post_attention_norm", "post_ffw_norm"] if last_norms else []
        for name in names[:1] if one_norm else names:
            add_norm(prefix + name)
        add_attention(prefix)
        if experts and index >= first_experts:
            writer.experts(prefix, experts, hidden)
            if shared:
                writer.dense(prefix, hidden, "_shexp")
        else:
            add_feed_forward(prefix)

    if norm == "layer":
        writer.vector("output_norm.bias", width, 0.0, 0.2)
    if embedding_norm:
        add_norm("token_embd_norm")
    if positions:
        writer.matrix("position_embd", (1024, width), Type.Q4_0, 0.5)
    if head_bias:
        writer.vector("output.bias", VOCABULARY, 0.0, 1.0)
    writer.write(layer, has_head, None if norm is None else "output_norm")


def write_lfm2(path, has_experts):
    """Short convolutions, attention in the third of four layers."""
    width, heads, head_size, taps = 32, 2, 16, 3
    writer = Writer(path, "lfm2moe" if has_experts else "lfm2", 4, width, 201 + has_experts)
    file = writer.file
    file.add_head_count(heads)
    file.add_head_count_kv([0, 0, 1, 0])
    file.add_feed_forward_length(32)
    file.add_rope_freq_base(1e6)
    file.add_shortconv_l_cache(taps)
    if has_experts:
        file.add_leading_dense_block_count(1)
        file.add_expert_count(5)
        file.add_expert_used_count(2)
        file.add_expert_feed_forward_length(32)
        file.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)

    def layer(prefix, index):
        writer.norm(prefix + "attn_norm", width)
        writer.norm(prefix + "ffn_norm", width)
        if index == 2:
            writer.attention(prefix, heads, 1, head_size)
            for part in "qk":
                writer.norm(f"{prefix}attn_{part}_norm", head_size)
        else:
            writer.matrix(prefix + "shortconv.in_proj", (3 * width, width), Type.Q4_1)
            writer.matrix(prefix + "shortconv.conv", (width, taps), scale=0.5)
            writer.matrix(prefix + "shortconv.out_proj", (width, width), Type.Q8_0)
        if has_experts and index > 0:
            writer.experts(prefix, 5, 32)
            writer.vector(prefix + "exp_probs_b.bias", 5, 0.0, 0.3)
        else:
            writer.dense(prefix, 32)

    writer.write(layer, own_head=False, last_norm="token_embd_norm")


def write_granite_hybrid(path):
    """Mamba-2, attention without positions in the second of three layers, experts with a shared part."""
    width, heads, head_size, inner, states, groups = 32, 2, 16, 64, 16, 1
    writer = Writer(path, "granitehybrid", 3, width, 203)
    file = writer.file
    file.add_head_count(heads)
    file.add_head_count_kv([0, 1, 0])
    file.add_feed_forward_length(32)
    file.add_expert_count(5)
    file.add_expert_used_count(2)
    file.add_expert_shared_feed_forward_length(32)
    file.add_rope_scaling_finetuned(False)
    file.add_rope_dimension_count(head_size)
    second_mamba_sizes(file, inner, states, 4, groups)
    scales(writer)

    def layer(prefix, index):
        writer.norm(prefix + "attn_norm", width)
        writer.norm(prefix + "ffn_norm", width)
        if index == 1:
            writer.attention(prefix, heads, 1, head_size)
        else:
            writer.second_mamba(prefix, inner, states, 4, groups, 4)
        writer.experts(prefix, 5, 32)
        writer.dense(prefix, 32, "_shexp")

    writer.write(layer, own_head=False)


def write_falcon_h1(path):
    """Attention beside Mamba-2 in each layer."""
    width, heads, head_size, inner, states, groups = 32, 2, 16, 32, 16, 1
    writer = Writer(path, "falcon-h1", 2, width, 207)
    file = writer.file
    file.add_head_count(heads)
    file.add_head_count_kv(1)
    file.add_key_length(head_size)
    file.add_value_length(head_size)
    file.add_feed_forward_length(32)
    second_mamba_sizes(file, inner, states, 2, groups)

    def layer(prefix, _):
        writer.norm(prefix + "attn_norm", width)
        writer.vector(prefix + "ffn_norm", width, 1.0, 0.2)  # without ".weight", as the converter names it
        writer.attention(prefix, heads, 1, head_size)
        writer.second_mamba(prefix, inner, states, 2, groups, 4, has_norm=False)
        writer.dense(prefix, 32)

    writer.write(layer)


def write_nemotron_h(path, has_experts, latent=0):
    """Each of five layers is one part: Mamba-2, feed-forward, Mamba-2, attention, feed-forward. `latent`: the width of
    what experts read and make, in the place of the stream's."""
    width, heads, head_size, inner, states, groups = 32, 2, 16, 32, 16, 2
    seed = 226 if latent else 210 if has_experts else 208
    writer = Writer(path, "nemotron_h_moe" if has_experts else "nemotron_h", 5, width, seed)
    file = writer.file
    file.add_layer_norm_eps(1e-5)
    file.add_head_count(heads)
    file.add_head_count_kv([0, 0, 0, 1, 0])
    file.add_key_length(head_size)
    file.add_value_length(head_size)
    file.add_feed_forward_length([0, 32, 0, 0, 32])
    if has_experts:
        file.add_expert_count(5)
        file.add_expert_used_count(2)
        file.add_expert_feed_forward_length(32)
        file.add_expert_shared_feed_forward_length(32)
        file.add_expert_shared_count(1)
        file.add_expert_weights_norm(True)
        file.add_expert_weights_scale(1.5)
    if latent:
        file.add_uint32("nemotron_h_moe.moe_latent_size", latent)
    second_mamba_sizes(file, inner, states, 4, groups)

    def layer(prefix, index):
        writer.norm(prefix + "attn_norm", width)
        if index in (0, 2):
            writer.second_mamba(prefix, inner, states, 4, groups, 4)
        elif index == 3:
            writer.attention(prefix, heads, 1, head_size)
        else:
            suffix = "_shexp" if has_experts else ""
            writer.matrix(f"{prefix}ffn_up{suffix}", (32, width), Type.Q4_1)
            writer.matrix(f"{prefix}ffn_down{suffix}", (width, 32), Type.F16)
            if has_experts:
                writer.experts(prefix, 5, 32, parts=("up", "down"), read=latent or width)
                writer.vector(prefix + "exp_probs_b.bias", 5, 0.0, 0.3)
            if latent:
                writer.matrix(prefix + "ffn_latent_down", (latent, width), Type.Q8_0)
                writer.matrix(prefix + "ffn_latent_up", (width, latent))

    writer.write(layer)


def write_jamba(path):
    """Mamba with norms of its parameters, attention in the second of three layers, experts in that one."""
    width, heads, head_size, inner, states, rank, taps = 32, 2, 16, 64, 16, 4, 4
    writer = Writer(path, "jamba", 3, width, 209)
    file = writer.file
    file.add_head_count(heads)
    file.add_head_count_kv([0, 1, 0])
    file.add_feed_forward_length(32)
    file.add_expert_count(5)
    file.add_expert_used_count(2)
    file.add_ssm_conv_kernel(taps)
    file.add_ssm_inner_size(inner)
    file.add_ssm_state_size(states)
    file.add_ssm_time_step_rank(rank)

    def layer(prefix, index):
        writer.norm(prefix + "attn_norm", width)
        writer.norm(prefix + "ffn_norm", width)
        if index == 1:
            writer.attention(prefix, heads, 1, head_size)
            writer.experts(prefix, 5, 32)
        else:
            writer.first_mamba(prefix, inner, states, rank, taps)
            for part, size in (("dt", rank), ("b", states), ("c", states)):
                writer.norm(f"{prefix}ssm_{part}_norm", size)
            writer.dense(prefix, 32)

    writer.write(layer)


def write_llama4(path):
    """A rotation in three of four layers, of chunks of 8192 positions; experts in every second layer."""
    width, heads, head_size = 32, 2, 16
    writer = Writer(path, "llama4", 4, width, 212)
    file = writer.file
    file.add_head_count(heads)
    file.add_head_count_kv(1)
    file.add_rope_dimension_count(head_size)
    file.add_rope_freq_base(500000.0)
    file.add_feed_forward_length(64)
    file.add_expert_count(5)
    file.add_expert_used_count(2)
    file.add_expert_feed_forward_length(32)
    file.add_interleave_moe_layer_step(2)
    file.kv_data[0]["llama4.context_length"].value = 16384

    def layer(prefix, index):
        writer.norm(prefix + "attn_norm", width)
        writer.norm(prefix + "ffn_norm", width)
        writer.attention(prefix, heads, 1, head_size)
        if index % 2 == 1:
            writer.experts(prefix, 5, 32)
            writer.dense(prefix, 32, "_shexp")
        else:
            writer.dense(prefix, 64)

    writer.write(layer)


def write_gemma3n(path):
    """22 layers, as llama.cpp (0.3.36) has sizes for Gemma 3n's own models: the first 20 have keys and values, the first
    10 sparse activations, streams are 4, the rank is 64, and each layer's embeddings are 256 wide."""
    width, heads, head_size, layers, own, streams, rank = 32, 2, 16, 22, 256, 4, 64
    writer = Writer(path, "gemma3n", layers, width, 213)
    file = writer.file
    file.add_head_count(heads)
    file.add_head_count_kv(1)
    file.add_key_length(head_size)
    file.add_value_length(head_size)
    file.add_rope_freq_base(1e6)
    file.add_feed_forward_length([32] * layers)
    file.add_sliding_window(8)
    file.add_sliding_window_pattern([index % 2 == 0 for index in range(layers)])
    file.add_shared_kv_layers(layers - 20)
    file.add_altup_active_idx(0)
    file.add_altup_num_inputs(streams)
    file.add_embedding_length_per_layer_input(own)
    file.add_activation_sparsity_scale([1.6448533535003662] * 10 + [float("-inf")] * (layers - 10))
    writer.matrix("altup_proj", (streams - 1, width, width), Type.F16)
    writer.matrix("altup_unembd_proj", (streams - 1, width, width), Type.Q8_0)
    writer.matrix("per_layer_token_embd", (VOCABULARY, layers * own), Type.TQ1_0, 0.5)
    writer.matrix("per_layer_model_proj", (layers * own, width), Type.Q4_0)
    writer.norm("per_layer_proj_norm", own)

    def layer(prefix, _):
        for name in ("attn_norm", "ffn_norm", "altup_router_norm", "altup_correct_scale"):
            writer.norm(prefix + name, width)
        # What parts add is small beside the stream: many layers do not amplify llama.cpp's table of GELU.
        for name in ("post_attention_norm", "post_ffw_norm", "post_norm", "laurel_post_norm"):
            writer.vector(f"{prefix}{name}.weight", width, 0.3, 0.1)
        for part in "qk":
            writer.norm(f"{prefix}attn_{part}_norm", head_size)
        writer.attention(prefix, heads, 1, head_size)
        writer.dense(prefix, 32)
        writer.matrix(prefix + "altup_router", (streams, width), scale=4.0)
        writer.matrix(prefix + "altup_predict_coef", (streams * streams, streams), scale=0.1)
        writer.matrix(prefix + "altup_correct_coef", (streams, streams), scale=0.1)
        writer.matrix(prefix + "laurel_l", (rank, width), Type.Q4_1)
        writer.matrix(prefix + "laurel_r", (width, rank), Type.Q5_0)
        writer.matrix(prefix + "inp_gate", (own, width), Type.Q4_0)
        writer.matrix(prefix + "proj", (width, own), Type.Q4_0)

    writer.write(layer, own_head=False)


def write_gemma4(path, kind, seed):
    """Layers with a window have heads of another size than the others. `kind`: "dense" (the 31B, whose layers without a
    window have fewer heads of keys and no projection of values), "inputs" (E2B: each layer's own inputs, and shared keys
    and values) or "experts" (26B, experts beside the dense part, their gates with the others in one tensor)."""
    width, heads, layers = 32, 4, 6
    wide, narrow, own = 64, 32, 32
    shared = 3 if kind == "inputs" else 0
    is_local = [index not in ({"dense": (2, 5), "inputs": (2, 5), "experts": (3, 5)}[kind]) for index in range(layers)]
    kv_heads = [2 if local else 1 for local in is_local] if kind == "dense" else [1] * layers
    widths = [64 if index >= layers - shared and shared else 32 for index in range(layers)]
    writer = Writer(path, "gemma4", layers, width, seed)
    file = writer.file
    file.add_head_count(heads)
    file.add_head_count_kv(kv_heads if kind == "dense" else 1)
    file.add_feed_forward_length(widths if kind == "inputs" else widths[0])
    file.add_key_length(wide)
    file.add_value_length(wide)
    file.add_key_length_swa(narrow)
    file.add_value_length_swa(narrow)
    file.add_rope_dimension_count(wide)
    file.add_rope_dimension_count_swa(narrow if kind != "dense" else narrow // 2)
    file.add_rope_freq_base(1e6)
    file.add_rope_freq_base_swa(1e4)
    file.add_sliding_window(8)
    file.add_sliding_window_pattern(is_local)
    file.add_shared_kv_layers(shared)
    file.add_embedding_length_per_layer_input(own if kind == "inputs" else 0)
    if kind != "experts":
        file.add_final_logit_softcapping(20.0)
    writer.tensor("rope_freqs.weight", np.where(np.arange(wide // 2) < wide // 8, 1, 1e30).astype(np.float32))
    if kind == "inputs":
        writer.matrix("per_layer_token_embd", (VOCABULARY, layers * own), Type.Q8_0, 0.5)
        writer.matrix("per_layer_model_proj", (layers * own, width), Type.F16)
        writer.norm("per_layer_proj_norm", own)
    if kind == "experts":
        file.add_expert_count(5)
        file.add_expert_used_count(2)
        file.add_expert_feed_forward_length(32)

    def layer(prefix, index):
        size = narrow if is_local[index] else wide
        for name in ("attn_norm", "ffn_norm"):
            writer.norm(prefix + name, width)
        # As of Gemma 3n: llama.cpp's table of GELU is not amplified.
        for name in ("post_attention_norm", "post_ffw_norm"):
            writer.vector(f"{prefix}{name}.weight", width, 0.3, 0.1)
        writer.vector(prefix + "layer_output_scale.weight", 1, 0.8, 0.2)
        writer.vector(prefix + "attn_q_norm.weight", size, 0.5, 0.1)
        writer.matrix(prefix + "attn_q", (heads * size, width), Type.Q4_0)
        if index < layers - shared:
            writer.vector(prefix + "attn_k_norm.weight", size, 0.5, 0.1)
            writer.matrix(prefix + "attn_k", (kv_heads[index] * size, width), Type.Q8_0)
            if kind != "dense" or is_local[index]:
                writer.matrix(prefix + "attn_v", (kv_heads[index] * size, width), Type.F16)
        writer.matrix(prefix + "attn_output", (width, heads * size), Type.Q5_1)
        writer.dense(prefix, widths[index])
        if kind == "inputs":
            writer.matrix(prefix + "inp_gate", (own, width), Type.Q4_0)
            writer.matrix(prefix + "proj", (width, own), Type.Q4_1)
            writer.vector(prefix + "post_norm.weight", width, 0.3, 0.1)
        if kind == "experts" and index != 1:
            writer.matrix(prefix + "ffn_gate_inp", (5, width), scale=1.0)
            writer.vector(prefix + "ffn_gate_inp.scale", width, 1.0, 0.2)
            for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                writer.norm(prefix + name, width)
            if index % 2:
                writer.matrix(prefix + "ffn_gate_exps", (5, 32, width), Type.Q4_1)
                writer.matrix(prefix + "ffn_up_exps", (5, 32, width), Type.Q5_0)
            else:
                writer.matrix(prefix + "ffn_gate_up_exps", (5, 64, width), Type.Q4_1)
            writer.matrix(prefix + "ffn_down_exps", (5, width, 32), Type.Q8_0)
            if index != 2:
                writer.vector(prefix + "ffn_down_exps.scale", 5, 1.0, 0.3)

    writer.write(layer, own_head=kind == "experts")


def write_grok(path, has_dense, seed):
    """Grok 1, which has experts only and whose numbers files need not say, or Grok 2 with a dense part beside them."""
    width, heads, kv_heads, head_size = 32, 2, 1, 16
    writer = Writer(path, "grok", 2, width, seed)
    file = writer.file
    file.add_head_count(heads)
    file.add_head_count_kv(kv_heads)
    file.add_feed_forward_length(64 if has_dense else 32)
    file.add_expert_count(5)
    file.add_expert_used_count(2)
    if has_dense:
        file.add_expert_feed_forward_length(32)
        file.add_embedding_scale(4.0)
        file.add_logit_scale(0.5)
        file.add_key_value("grok.attention.output_scale", 0.3, gguf.GGUFValueType.FLOAT32)
        file.add_attn_logit_softcapping(5.0)
        file.add_final_logit_softcapping(10.0)
        file.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        file.add_rope_scaling_factor(4.0)
        file.add_rope_scaling_orig_ctx_len(16)

    def layer(prefix, _):
        writer.norm(prefix + "attn_norm", width)
        writer.norm(prefix + "ffn_norm", width)
        # As of Gemma 3n: llama.cpp's table of GELU is not amplified.
        for name in ("attn_output_norm", "post_ffw_norm" if has_dense else "layer_output_norm"):
            writer.vector(f"{prefix}{name}.weight", width, 0.3, 0.1)
        writer.attention(prefix, heads, kv_heads, head_size)
        writer.experts(prefix, 5, 32)
        if has_dense:
            writer.dense(prefix, 64)

    writer.write(layer, own_head=has_dense)


def write_expanded(path, arch, seed):
    """Latent attention whose heads have keys and values of their own: projections are one tensor."""
    width, rank, plain, rotated, value, heads = 32, 32, 16, 8, 16, 2
    is_plm = arch == "plm"
    writer = Writer(path, arch, 2, width, seed)
    file = writer.file
    file.add_head_count(heads)
    file.add_head_count_kv(heads)
    file.add_key_length(plain + rotated)
    file.add_kv_lora_rank(rank)
    file.add_rope_dimension_count(rotated)
    file.add_feed_forward_length(64)
    if is_plm:
        file.add_value_length(value)
    else:
        file.add_q_lora_rank(32)
        for part, last in (("long", 6), ("short", 2)):
            writer.tensor(f"rope_factors_{part}.weight", np.linspace(1, last, rotated // 2).astype(np.float32))
        file.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        file.add_rope_scaling_orig_ctx_len(32)

    def layer(prefix, _):
        writer.norm(prefix + "attn_norm", width)
        writer.norm(prefix + "ffn_norm", width)
        queries = heads * (plain + rotated)
        if is_plm:
            writer.matrix(prefix + "attn_q", (queries, width), Type.Q4_0)
        else:
            writer.matrix(prefix + "attn_q_a", (32, width), Type.Q8_0)
            writer.norm(prefix + "attn_q_a_norm", 32)
            writer.matrix(prefix + "attn_q_b", (queries, 32), Type.Q4_0)
        writer.matrix(prefix + "attn_kv_a_mqa", (rank + rotated, width), Type.F16)
        writer.norm(prefix + "attn_kv_a_norm", rank)
        writer.matrix(prefix + "attn_kv_b", (heads * (plain + value), rank), Type.Q8_0)
        writer.matrix(prefix + "attn_output", (width, heads * value), Type.Q5_1)
        if is_plm:
            writer.matrix(prefix + "ffn_up", (64, width), Type.Q4_1)
            writer.matrix(prefix + "ffn_down", (width, 64), Type.F16)
        else:
            writer.dense(prefix, 64)

    writer.write(layer, own_head=False)


def write_deci(path):
    """Layers of both parts, of no attention, of one projection in its place, of nothing, and again of both."""
    width, heads, head_size = 32, 2, 16
    hidden = [64, 32, 32, 0, 96]
    writer = Writer(path, "deci", 5, width, 216)
    file = writer.file
    file.add_head_count([2, 0, 2, 0, 2])
    file.add_head_count_kv([1, 0, 0, 0, 1])
    file.add_feed_forward_length(hidden)
    file.add_key_length(head_size)
    file.add_value_length(head_size)
    file.add_rope_dimension_count(head_size)

    def layer(prefix, index):
        if index in (0, 4):
            writer.attention(prefix, heads, 1, head_size)
        if index == 2:
            writer.matrix(prefix + "attn_output", (width, width), Type.Q5_1)
        if index in (0, 2, 4):
            writer.norm(prefix + "attn_norm", width)
        if hidden[index]:
            writer.norm(prefix + "ffn_norm", width)
            writer.dense(prefix, hidden[index])

    writer.write(layer)


def write_qwen35(path, arch, seed):
    """Gated delta nets, and gated attention in the last of four layers."""
    has_experts, has_one_step = arch != "qwen35", arch == "qwen3next"
    width, heads, head_size = 32, 2, 16
    states, groups, delta_heads, taps = 16, 2, 4, 4
    writer = Writer(path, arch, 4, width, seed)
    file = writer.file
    file.add_head_count(heads)
    file.add_head_count_kv(1)
    file.add_key_length(head_size)
    file.add_value_length(head_size)
    file.add_rope_dimension_count(8)
    if not has_one_step:
        file.add_rope_dimension_sections([2, 1, 1, 0])
    file.add_rope_freq_base(1e6)
    file.add_ssm_conv_kernel(taps)
    file.add_ssm_inner_size(delta_heads * states)
    file.add_ssm_state_size(states)
    file.add_ssm_time_step_rank(delta_heads)
    file.add_ssm_group_count(groups)
    if has_experts:
        file.add_expert_count(5)
        file.add_expert_used_count(2)
        file.add_expert_feed_forward_length(32)
        file.add_expert_shared_feed_forward_length(32)
    else:
        file.add_feed_forward_length(32)
    inner = delta_heads * states
    convolved = inner + 2 * groups * states

    def layer(prefix, index):
        writer.norm(prefix + "attn_norm", width)
        writer.norm(prefix + "post_attention_norm", width)
        if index == 3:
            writer.matrix(prefix + "attn_q", (2 * heads * head_size, width), Type.Q4_0, 0.4)
            writer.matrix(prefix + "attn_k", (head_size, width), Type.Q8_0, 0.4)
            writer.matrix(prefix + "attn_v", (head_size, width), Type.F16)
            writer.matrix(prefix + "attn_output", (width, heads * head_size), Type.Q5_1)
            for part in "qk":
                writer.norm(f"{prefix}attn_{part}_norm", head_size)
        else:
            writer.matrix(prefix + "attn_qkv", (convolved, width), Type.Q8_0)
            writer.matrix(prefix + "attn_gate", (inner, width), Type.Q4_1)
            writer.matrix(prefix + "ssm_conv1d", (convolved, taps), scale=0.5)
            writer.vector(prefix + "ssm_dt.bias", delta_heads, -1.0, 1.0)
            writer.tensor(prefix + "ssm_a", -np.exp(writer.values(delta_heads)))
            if has_one_step:
                writer.matrix(prefix + "ssm_ba", (2 * delta_heads, width))
            else:
                writer.matrix(prefix + "ssm_beta", (delta_heads, width))
                writer.matrix(prefix + "ssm_alpha", (delta_heads, width))
            writer.norm(prefix + "ssm_norm", states)
            writer.matrix(prefix + "ssm_out", (width, inner), Type.Q5_0)
        if has_experts:
            writer.experts(prefix, 5, 32)
            writer.dense(prefix, 32, "_shexp")
            writer.vector(prefix + "ffn_gate_inp_shexp.weight", width)
        else:
            writer.dense(prefix, 32)

    writer.write(layer, own_head=False)


def windows(writer):
    writer.file.add_sliding_window(8)


def scales(writer, has_attention=True):
    writer.file.add_embedding_scale(3.0)
    writer.file.add_residual_scale(0.4)
    if has_attention:
        writer.file.add_attention_scale(0.2)
    writer.file.add_logit_scale(2.0)


def alibi(writer):
    writer.file.add_max_alibi_bias(8.0)


def clip(writer):
    writer.file.add_clamp_kqv(1.0)


def xielu(writer):
    writer.file.add_xielu_alpha_n([0.3, 1.2])
    writer.file.add_xielu_alpha_p([0.7, 0.2])
    writer.file.add_xielu_beta([0.5, 0.6])
    writer.file.add_xielu_eps([-1e-6, -1e-6])


def sections(writer):
    writer.file.add_rope_dimension_sections([3, 3, 2, 0])


def sections_without_eps(writer):
    """llama.cpp (0.3.36) does not read Qwen2-VL's."""
    sections(writer)
    writer.file.kv_data[0]["qwen2vl.attention.layer_norm_rms_epsilon"].value = 0.0


def local_rope(writer):
    windows(writer)
    writer.file.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.file.add_rope_scaling_factor(4.0)
    writer.file.add_rope_scaling_orig_ctx_len(16)


def temperature(writer):
    writer.file.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.file.add_rope_scaling_factor(4.0)
    writer.file.add_rope_scaling_orig_ctx_len(16)
    writer.file.add_rope_scaling_yarn_log_mul(0.5)
    writer.file.add_attn_temperature_scale(0.4)


def shared_expert(writer):
    writer.file.add_expert_shared_count(1)
    writer.file.add_expert_shared_feed_forward_length(32)


def second_mamba_sizes(file, inner, states, heads, groups):
    file.add_ssm_conv_kernel(4)
    file.add_ssm_inner_size(inner)
    file.add_ssm_state_size(states)
    file.add_ssm_time_step_rank(heads)
    file.add_ssm_group_count(groups)


def caps(writer):
    windows(writer)
    writer.file.add_attn_logit_softcapping(5.0)
    writer.file.add_final_logit_softcapping(4.0)


def long_rope(writer):
    """Conversations of the tests have 64 positions, llama.cpp's here 1024: both more than 32."""
    writer.file.add_rope_scaling_orig_ctx_len(32)
    writer.file.add_rope_scaling_attn_factors(1.19)
    writer.tensor("rope_factors_long.weight", np.linspace(1, 6, 6).astype(np.float32))
    writer.tensor("rope_factors_short.weight", np.linspace(1, 2, 6).astype(np.float32))


def gated_experts(writer):
    writer.file.add_leading_dense_block_count(1)
    writer.file.add_expert_shared_count(1)
    writer.file.add_expert_weights_scale(1.5)


def sigmoid_experts(writer):
    gated_experts(writer)
    writer.file.add_expert_weights_norm(True)
    writer.file.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def glm4moe_experts(writer):
    sigmoid_experts(writer)
    router_bias(writer, 1)


def router_bias(writer, first):
    for index in range(first, writer.layers):
        writer.vector(f"blk.{index}.exp_probs_b.bias", 5, 0.0, 0.3)


def ernie_experts(writer):
    writer.file.add_leading_dense_block_count(1)
    writer.file.add_interleave_moe_layer_step(1)
    shared_expert(writer)
    writer.vector("blk.1.exp_probs_b.bias", 5, 0.0, 0.1)


def minimax_experts(writer):
    writer.file.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    router_bias(writer, 0)


def exaone_experts(writer):
    windows(writer)
    sigmoid_experts(writer)
    writer.file.add_expert_shared_feed_forward_length(32)
    router_bias(writer, 1)


def bailing_experts(writer):
    shared_expert(writer)
    writer.file.add_expert_weights_norm(True)
    writer.file.add_expert_weights_scale(1.5)


PLAIN = {"norm": "layer", "gate": "none"}
TRANSFORMERS = {  # further ones at the end: a model's seed is its place
    "qwen": dict(fused_qkv=True, biases="qkv", kv_heads=2, stated_hidden=64),
    "gemma": dict(has_head=False, head_size=32),
    "gemma2": dict(has_head=False, last_norms=True, head_size=32, layers=3, more=caps),
    "phi2": dict(**PLAIN, one_norm=True, biases="qkvof", head_bias=True, kv_heads=2, rotated=8),
    "phi3": dict(fused_qkv=True, gate="fused", rotated=12, more=long_rope),
    "smollm3": dict(has_head=False, layers=5),
    "olmo2": dict(first_norms=False, last_norms=True, head_norms="all"),
    "granite": dict(has_head=False, more=scales),
    "granitemoe": dict(experts=5, more=scales),
    "minicpm": dict(more=functools.partial(scales, has_attention=False)),
    "internlm2": dict(),
    "xverse": dict(kv_heads=2),
    "orion": dict(norm="layer", kv_heads=2),
    "exaone": dict(),
    "exaone4": dict(first_norms=False, last_norms=True, head_norms="head"),
    "chatglm": dict(fused_qkv=True, biases="qkv", gate="fused", rotated=8),
    "glm4": dict(biases="qkv", gate="fused", rotated=8, last_norms=True),
    "glm4moe": dict(biases="qkv", rotated=8, second_norm="post_attention_norm", head_norms="head", experts=5,
                    shared=True, more=glm4moe_experts),
    "deepseek": dict(experts=5, shared=True, kv_heads=2, more=gated_experts),
    "dots1": dict(experts=5, shared=True, kv_heads=2, head_norms="head", more=sigmoid_experts),
    "ernie4_5": dict(has_head=False),
    "seed_oss": dict(second_norm="post_attention_norm", biases="qkv"),
    "arcee": dict(gate="none"),
    "nemotron": dict(**PLAIN, rotated=8),
    "stablelm": dict(norm="layer", biases="qkv", rotated=4),
    "starcoder2": dict(**PLAIN, biases="qkvof", has_head=False),
    "command-r": dict(norm="bare", one_norm=True, has_head=False,
                      more=lambda writer: writer.file.add_logit_scale(0.25)),
    "cohere2": dict(norm="bare", one_norm=True, has_head=False, layers=5,
                    more=lambda writer: (windows(writer), writer.file.add_logit_scale(0.25))),
    "falcon": dict(**PLAIN, one_norm=True, fused_qkv=True),
    "gptneox": dict(**PLAIN, fused_qkv=True, biases="qkvof", kv_heads=2, rotated=4,
                    more=lambda writer: writer.file.add_parallel_residual(True)),
    "gpt2": dict(**PLAIN, fused_qkv=True, biases="qkvof", kv_heads=2, positions=True, has_head=False),
    "starcoder": dict(**PLAIN, fused_qkv=True, biases="qkvof", positions=True),
    "bloom": dict(**PLAIN, fused_qkv=True, biases="qkvof", kv_heads=2, has_head=False, embedding_norm=True),
    "mpt": dict(norm="bare", gate="none", fused_qkv=True, kv_heads=2, has_head=False,
                more=lambda writer: (alibi(writer), clip(writer))),
    "jais": dict(norm="layer", fused_qkv=True, biases="qkvofg", kv_heads=2, more=alibi),
    "refact": dict(heads=3, head_size=32),
    "baichuan_13b": dict(arch="baichuan", layers=40, kv_heads=2, more=lambda writer: setattr(writer, "is_deep", True)),
    "stablelm_12b": dict(arch="stablelm", norm="layer", one_norm=True, head_norms="each", rotated=4),
    "qwen2vl": dict(biases="qkv", has_head=False, more=sections_without_eps),
    "qwen3vl": dict(head_norms="head", has_head=False, more=sections),
    "qwen3vlmoe": dict(head_norms="head", experts=5, more=sections),
    "ernie4_5-moe": dict(experts=5, shared=True, has_head=False, more=ernie_experts),
    "hunyuan-dense": dict(head_norms="head", has_head=False),
    "hunyuan-moe": dict(head_norms="head", experts=5, shared=True, dense_layers=0, has_head=False, more=shared_expert),
    "maincoder": dict(head_norms="head"),
    "bailingmoe": dict(experts=5, shared=True, dense_layers=0, more=bailing_experts),
    "bailingmoe2": dict(fused_qkv=True, head_norms="head", experts=5, shared=True, rotated=8, more=glm4moe_experts),
    "minimax-m2": dict(experts=5, head_norms="all", rotated=8, more=minimax_experts),
    "mellum": dict(experts=5, head_norms="head", layers=4, more=local_rope),
    "pangu-embedded": dict(biases="qkvo", has_head=False),
    "jais2": dict(**PLAIN, biases="qkvof", has_head=False),
    "dbrx": dict(norm="bare", second_norm="attn_output_norm", fused_qkv=True, experts=5, more=clip),
    "codeshell": dict(**PLAIN, biases="qkvof"),
    "mistral3": dict(has_head=False, more=temperature),
    "olmo": dict(norm=None, has_head=False, more=clip),
    "apertus": dict(gate="none", head_norms="head", more=xielu),
    "exaone-moe": dict(head_norms="head", experts=5, shared=True, layers=4, more=exaone_experts),
}

MODELS = {
    "olmoe": write_olmoe,
    "llama_nvfp4": lambda path: write_nvfp4(path, False),
    "qwen3moe_nvfp4": lambda path: write_nvfp4(path, True),
    "gpt-oss": write_gpt_oss,
    "deepseek2": lambda path: write_deepseek2(path, False),
    "deepseek2_lite": lambda path: write_deepseek2(path, True),
    "deepseek2_unsplit": lambda path: write_deepseek2(path, True, False),
    "mamba": lambda path: write_mamba(path, False),
    "mamba2": lambda path: write_mamba(path, True),
    "rwkv7": write_rwkv7,
    "lfm2": lambda path: write_lfm2(path, False),
    "lfm2moe": lambda path: write_lfm2(path, True),
    "granitehybrid": write_granite_hybrid,
    "qwen35": lambda path: write_qwen35(path, "qwen35", 204),
    "qwen35moe": lambda path: write_qwen35(path, "qwen35moe", 205),
    "qwen3next": lambda path: write_qwen35(path, "qwen3next", 206),
    "falcon-h1": write_falcon_h1,
    "nemotron_h": lambda path: write_nemotron_h(path, False),
    "nemotron_h_moe": lambda path: write_nemotron_h(path, True),
    "nemotron_h_moe_latent": lambda path: write_nemotron_h(path, True, 64),
    "jamba": write_jamba,
    "llama4": write_llama4,
    "gemma3n": write_gemma3n,
    "gemma4": lambda path: write_gemma4(path, "dense", 221),
    "gemma4_inputs": lambda path: write_gemma4(path, "inputs", 222),
    "gemma4_experts": lambda path: write_gemma4(path, "experts", 223),
    "grok": lambda path: write_grok(path, False, 224),
    "grok_2": lambda path: write_grok(path, True, 225),
    "minicpm3": lambda path: write_expanded(path, "minicpm3", 214),
    "plm": lambda path: write_expanded(path, "plm", 215),
    "deci": write_deci,
    "rwkv6": write_rwkv6,
    **{
        name: functools.partial(write_transformer, seed=100 + number, **{"arch": name, **options})
        for number, (name, options) in enumerate(TRANSFORMERS.items())
    },
}


def write_widened(path, wide):
    """The model with every tensor in f32."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(str(wide), reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, part = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), kind, part)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_adapters(path, model, names, rank=3, alpha=6.0):
    """Low-rank adapters of these weights of a model, in every layer, of f32."""
    reader, rng = gguf.GGUFReader(model), np.random.default_rng(31)
    writer = gguf.GGUFWriter(str(path), reader.fields["general.architecture"].contents())
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for tensor in reader.tensors:
        if not any(tensor.name.endswith(f".{name}.weight") for name in names):
            continue
        width, rows = (int(size) for size in tensor.shape)
        for factor, shape in (("a", (rank, width)), ("b", (rows, rank))):
            values = rng.uniform(-0.3, 0.3, shape).astype(np.float32)
            writer.add_tensor(f"{tensor.name}.lora_{factor}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_cpp_logits(path, tokens, adapters=None):
    with tempfile.TemporaryDirectory() as folder:
        wide = pathlib.Path(folder) / "wide.gguf"
        write_widened(path, wide)
        model = llama_cpp.Llama(str(wide), n_ctx=max(1024, len(tokens)), n_batch=512, n_threads=1, logits_all=True,
                                type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
                                lora_path=adapters and str(adapters), verbose=False)
        model.eval([int(token) for token in tokens])
        return np.array(model.scores[:len(tokens)], dtype=np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*MODELS, []], default=[])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--adapters", type=pathlib.Path, help="where to write adapters: tests/train/data")
    arguments = parser.parse_args()
    for name in arguments.names or MODELS:
        path = arguments.out / f"tiny_{name}.gguf"
        MODELS[name](path)
        np.save(arguments.out / f"tiny_{name}_logits.npy", llama_cpp_logits(path, TOKENS)[-16:])
        if name == "phi3" and arguments.adapters:  # whose queries, keys and values are one weight, and gate and up
            adapters = arguments.adapters / "phi3_adapters.gguf"
            write_adapters(adapters, path, ("attn_qkv", "attn_output", "ffn_up"))
            np.save(arguments.adapters / "phi3_adapters_logits.npy", llama_cpp_logits(path, TOKENS, adapters)[-16:])
        if name == "llama4":
            far = 7 * np.arange(8200) % VOCABULARY
            np.save(arguments.out / "tiny_llama4_far_logits.npy", llama_cpp_logits(path, far)[-16:])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes the further language-model files that llm.py is run on.

    models.py SOURCE.gguf FOLDER [KIND ...]

Kinds are, all of them unless some are named:

    requantised  SOURCE (Gemma 3 270M, say) as F16, Q8_0 and Q4_0, by llama.cpp's own quantiser
    llama        1.1 billion weights in the shape of a Llama: 22 layers, width 2048, 32 heads on 4
    experts      the shape of OLMoE, with 4 of its 16 layers: 64 experts of 1024, 8 of them used
    mamba        the shape of Mamba 130M: 24 layers, width 768, 16 states
    mamba2       the shape of Mamba-2 130M: 24 layers, width 768, 24 heads, 128 states
    rwkv7        the shape of RWKV-7 0.1B: 12 layers, width 768, heads of 64
    phi3         the shape of Phi-3 mini, with 8 of its 32 layers: width 3072, queries, keys and values in one weight
    lfm2         the shape of LFM2 350M: 16 layers, 6 of them with attention, width 1024

All but the first have random weights and SOURCE's tokenizer, are Q4_K_M, and serve for speed only. Files that are there
already stay. Needs numpy, gguf and llama-cpp-python from PyPI, and 5 GB of disk while it runs.
"""

import argparse
import ctypes
import pathlib

import gguf
import llama_cpp
import numpy as np

def requantise(source, target, file_type):
    if target.exists():
        return
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    params.allow_requantize = True
    partial = target.with_suffix(".partial")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(partial).encode(), ctypes.byref(params)) != 0:
        raise SystemExit(f"{target.name}: llama.cpp's quantiser failed")
    partial.rename(target)
    print(target)


class RandomModel:
    """A file of normal weights in F16; norms are ones."""

    def __init__(self, source, target, arch, layers, width):
        reader = gguf.GGUFReader(source)
        self.file = file = gguf.GGUFWriter(target, arch)
        self.layers, self.width = layers, width
        self.tokens = len(reader.fields["tokenizer.ggml.tokens"].data)
        self.random = np.random.default_rng(1)
        file.add_name(f"random {arch}")
        file.add_block_count(layers)
        file.add_context_length(2048)
        file.add_embedding_length(width)
        file.add_layer_norm_rms_eps(1e-5)
        file.add_vocab_size(self.tokens)
        for name, field in reader.fields.items():
            if not name.startswith("tokenizer."):
                continue
            kind = field.types[0]
            sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            file.add_key_value(name, field.contents(), kind, sub)

    def matrix(self, name, *shape):
        weights = self.random.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
        self.file.add_tensor(name + ".weight", weights.astype(np.float16))

    def tensor(self, name, *shape, mean=0.0, spread=0.1):
        values = mean + spread * self.random.standard_normal(shape, dtype=np.float32)
        self.file.add_tensor(name, values.astype(np.float32))

    def norm(self, name, size=None):
        self.file.add_tensor(name + ".weight", np.ones(size or self.width, np.float32))

    def attention(self, name, heads, kv_heads, head):
        self.matrix(name + "attn_q", heads * head, self.width)
        self.matrix(name + "attn_k", kv_heads * head, self.width)
        self.matrix(name + "attn_v", kv_heads * head, self.width)
        self.matrix(name + "attn_output", self.width, heads * head)

    def write(self, layer, last_norm="output_norm"):
        self.matrix("token_embd", self.tokens, self.width)
        self.matrix("output", self.tokens, self.width)
        self.norm(last_norm)
        for index in range(self.layers):
            layer(f"blk.{index}.")
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def write_llama(source, target):
    heads, kv_heads, hidden = 32, 4, 5632
    model = RandomModel(source, target, "llama", 22, 2048)
    model.file.add_feed_forward_length(hidden)
    model.file.add_head_count(heads)
    model.file.add_head_count_kv(kv_heads)
    model.file.add_rope_dimension_count(model.width // heads)
    model.file.add_rope_freq_base(10000.0)

    def layer(name):
        model.norm(name + "attn_norm")
        model.norm(name + "ffn_norm")
        model.attention(name, heads, kv_heads, model.width // heads)
        model.matrix(name + "ffn_gate", hidden, model.width)
        model.matrix(name + "ffn_up", hidden, model.width)
        model.matrix(name + "ffn_down", model.width, hidden)

    model.write(layer)


def write_experts(source, target):
    heads, experts, hidden = 16, 64, 1024
    model = RandomModel(source, target, "olmoe", 4, 2048)
    model.file.add_head_count(heads)
    model.file.add_head_count_kv(heads)
    model.file.add_feed_forward_length(hidden)
    model.file.add_expert_count(experts)
    model.file.add_expert_used_count(8)

    def layer(name):
        for norm in ("attn_norm", "attn_q_norm", "attn_k_norm", "ffn_norm"):
            model.norm(name + norm)
        model.attention(name, heads, heads, model.width // heads)
        model.matrix(name + "ffn_gate_inp", experts, model.width)
        model.matrix(name + "ffn_gate_exps", experts, hidden, model.width)
        model.matrix(name + "ffn_up_exps", experts, hidden, model.width)
        model.matrix(name + "ffn_down_exps", experts, model.width, hidden)

    model.write(layer)


def write_mamba(source, target, is_second):
    taps, states, heads, rank = 4, 128 if is_second else 16, 24, 48
    model = RandomModel(source, target, "mamba2" if is_second else "mamba", 24, 768)
    inner = 2 * model.width
    file = model.file
    file.add_head_count(0)
    file.add_feed_forward_length(0)
    file.add_ssm_conv_kernel(taps)
    file.add_ssm_inner_size(inner)
    file.add_ssm_state_size(states)
    file.add_ssm_time_step_rank(heads if is_second else rank)
    if is_second:
        file.add_ssm_group_count(1)
    convolved = inner + 2 * states if is_second else inner

    def layer(name):
        model.norm(name + "attn_norm")
        model.matrix(name + "ssm_in", inner + convolved + (heads if is_second else 0), model.width)
        model.tensor(name + "ssm_conv1d.weight", convolved, taps)
        model.tensor(name + "ssm_conv1d.bias", convolved)
        model.tensor(name + "ssm_a", *((heads, 1) if is_second else (inner, states)), mean=-1.0)
        model.tensor(name + "ssm_d", *((heads, 1) if is_second else (inner,)), mean=1.0)
        model.tensor(name + "ssm_dt.bias", heads if is_second else inner)
        if is_second:
            model.tensor(name + "ssm_norm.weight", 1, inner, mean=1.0)
        else:
            model.matrix(name + "ssm_x", rank + 2 * states, inner)
            model.matrix(name + "ssm_dt", inner, rank)
        model.matrix(name + "ssm_out", model.width, inner)

    model.write(layer)


def write_rwkv7(source, target):
    head, hidden = 64, 3072
    model = RandomModel(source, target, "rwkv7", 12, 768)
    width, file = model.width, model.file
    ranks = {"w": 64, "a": 64, "v": 32, "g": 128}
    file.add_layer_norm_eps(1e-5)
    file.add_head_count(0)
    file.add_feed_forward_length(hidden)
    file.add_wkv_head_size(head)
    file.add_decay_lora_rank(ranks["w"])
    file.add_iclr_lora_rank(ranks["a"])
    file.add_value_residual_mix_lora_rank(ranks["v"])
    file.add_gate_lora_rank(ranks["g"])
    file.add_token_shift_count(2)

    def layer_norm(name):
        model.norm(name)
        model.tensor(name + ".bias", width)

    layer_norm("token_embd_norm")
    model.tensor("output_norm.bias", width)

    def layer(name):
        for norm in ("attn_norm", "attn_norm_2", "time_mix_ln"):
            layer_norm(name + norm)
        for part, rank in ranks.items():
            if part == "v" and name == "blk.0.":  # which nothing reads there
                rank = ranks["a"]
            model.matrix(f"{name}time_mix_{part}1", rank, width)
            model.matrix(f"{name}time_mix_{part}2", width, rank)
            if part != "g":
                model.tensor(f"{name}time_mix_{part}0.weight", width)
        model.tensor(name + "time_mix_lerp_fused.weight", 6, 1, 1, width, mean=0.5)
        for part in ("k_k", "k_a", "r_k"):
            model.tensor(f"{name}time_mix_{part}.weight", width, mean=0.5)
        for part in ("key", "value", "receptance", "output"):
            model.matrix(f"{name}time_mix_{part}", width, width)
        model.tensor(name + "channel_mix_lerp_k.weight", 1, 1, width, mean=0.5)
        model.matrix(name + "channel_mix_key", hidden, width)
        model.matrix(name + "channel_mix_value", width, hidden)

    model.write(layer)


def write_phi3(source, target):
    heads, head, hidden = 32, 96, 8192
    model = RandomModel(source, target, "phi3", 8, heads * head)
    model.file.add_head_count(heads)
    model.file.add_head_count_kv(heads)
    model.file.add_feed_forward_length(hidden)
    model.file.add_rope_dimension_count(head)

    def layer(name):
        model.norm(name + "attn_norm")
        model.norm(name + "ffn_norm")
        model.matrix(name + "attn_qkv", 3 * model.width, model.width)
        model.matrix(name + "attn_output", model.width, model.width)
        model.matrix(name + "ffn_up", 2 * hidden, model.width)
        model.matrix(name + "ffn_down", model.width, hidden)

    model.write(layer)


def write_lfm2(source, target):
    heads, kv_heads, head, hidden, taps = 16, 8, 64, 4608, 3
    with_attention = (2, 5, 8, 10, 12, 14)
    model = RandomModel(source, target, "lfm2", 16, heads * head)
    model.file.add_head_count(heads)
    model.file.add_head_count_kv([kv_heads if layer in with_attention else 0 for layer in range(model.layers)])
    model.file.add_feed_forward_length(hidden)
    model.file.add_rope_freq_base(1e6)
    model.file.add_shortconv_l_cache(taps)

    def layer(name):
        model.norm(name + "attn_norm")
        model.norm(name + "ffn_norm")
        if int(name.split(".")[1]) in with_attention:
            model.attention(name, heads, kv_heads, head)
            model.norm(name + "attn_q_norm", head)
            model.norm(name + "attn_k_norm", head)
        else:
            model.matrix(name + "shortconv.in_proj", 3 * model.width, model.width)
            model.tensor(name + "shortconv.conv.weight", model.width, taps)
            model.matrix(name + "shortconv.out_proj", model.width, model.width)
        model.matrix(name + "ffn_gate", hidden, model.width)
        model.matrix(name + "ffn_up", hidden, model.width)
        model.matrix(name + "ffn_down", model.width, hidden)

    model.write(layer, last_norm="token_embd_norm")


RANDOM = {
    "llama": ("random-llama-1.1b", write_llama),
    "experts": ("random-olmoe-4-layers", write_experts),
    "mamba": ("random-mamba-130m", lambda source, target: write_mamba(source, target, False)),
    "mamba2": ("random-mamba2-130m", lambda source, target: write_mamba(source, target, True)),
    "rwkv7": ("random-rwkv7-0.1b", write_rwkv7),
    "phi3": ("random-phi3-8-layers", write_phi3),
    "lfm2": ("random-lfm2-350m", write_lfm2),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="requantised, " + ", ".join(RANDOM))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    quiet = llama_cpp.llama_log_callback(lambda *a: None)  # kept: the library calls it later
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    kinds = args.kinds or ["requantised", *RANDOM]
    if unknown := set(kinds) - {"requantised", *RANDOM}:
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    if "requantised" in kinds:
        stem = args.source.stem.rsplit("-", 1)[0]
        for name, file_type in (("f16", llama_cpp.LLAMA_FTYPE_MOSTLY_F16), ("q8_0", llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0),
                                ("q4_0", llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0)):
            requantise(args.source, args.folder / f"{stem}-{name}.gguf", file_type)
    for kind, (name, write) in RANDOM.items():
        target = args.folder / f"{name}-q4_k_m.gguf"
        if kind not in kinds or target.exists():
            continue
        wide = args.folder / f"{name}-f16.partial"
        write(args.source, wide)
        requantise(wide, target, llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M)
        wide.unlink()


if __name__ == "__main__":
    main()

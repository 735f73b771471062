#!/usr/bin/env python3
"""Writes one tiny GGUF model for each architecture whose logits Hugging Face's transformers computes, since llama.cpp
computes other ones than the model does.

As tiny_models_llama_cpp.py's; needs `transformers` (4.57) and `torch` beside numpy and gguf.

    OUT/tiny_phimoe.gguf           norms with mean, routing by SparseMixer
    OUT/tiny_phimoe_logits.npy     f32 [16, 272], of the last of the 48 tokens 0, 7, 14, ... modulo 272

    tiny_models_transformers.py --out tests/models/data
"""

import argparse
import pathlib

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize
from transformers import PhimoeConfig, PhimoeForCausalLM

from tiny_models import TOKENS, VOCABULARY, add_tokenizer

LAYERS, WIDTH, HEADS, KV_HEADS, EXPERTS, HIDDEN = 2, 32, 2, 1, 5, 32
HEAD_SIZE = WIDTH // HEADS


def write_phimoe(path):
    rng = np.random.default_rng(226)
    file = gguf.GGUFWriter(str(path), "phimoe")
    file.add_context_length(1024)
    file.add_embedding_length(WIDTH)
    file.add_block_count(LAYERS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_vocab_size(VOCABULARY)
    add_tokenizer(file)
    file.add_head_count(HEADS)
    file.add_head_count_kv(KV_HEADS)
    file.add_feed_forward_length(HIDDEN)
    file.add_rope_dimension_count(HEAD_SIZE)
    file.add_rope_freq_base(10000.0)
    file.add_sliding_window(1024)
    file.add_expert_count(EXPERTS)
    file.add_expert_used_count(2)

    def tensor(name, shape, kind=Type.F32, mean=0.0, spread=1.0):
        values = (mean + spread * rng.standard_normal(shape)).astype(np.float32)
        file.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def linear(name, out, width, kind, spread=None):
        tensor(name + ".weight", (out, width), kind, spread=width ** -0.5 if spread is None else spread)
        tensor(name + ".bias", (out,), spread=0.3)

    def norm(name):
        tensor(name + ".weight", (WIDTH,), mean=1.0, spread=0.2)
        tensor(name + ".bias", (WIDTH,), spread=0.3)

    tensor("token_embd.weight", (VOCABULARY, WIDTH), Type.Q8_0, spread=0.5)
    norm("output_norm")
    linear("output", VOCABULARY, WIDTH, Type.Q8_0, 0.5)
    for index in range(LAYERS):
        prefix = f"blk.{index}."
        norm(prefix + "attn_norm")
        norm(prefix + "ffn_norm")
        linear(prefix + "attn_q", HEADS * HEAD_SIZE, WIDTH, Type.Q4_0, 0.4)
        linear(prefix + "attn_k", KV_HEADS * HEAD_SIZE, WIDTH, Type.Q8_0, 0.4)
        linear(prefix + "attn_v", KV_HEADS * HEAD_SIZE, WIDTH, Type.F16)
        linear(prefix + "attn_output", WIDTH, HEADS * HEAD_SIZE, Type.Q5_1)
        # Logits often near each other, so that some experts share a weight.
        tensor(prefix + "ffn_gate_inp.weight", (EXPERTS, WIDTH), spread=0.05)
        for part, kind in (("gate", Type.Q4_1), ("up", Type.Q5_0), ("down", Type.Q8_0)):
            shape = (EXPERTS, WIDTH, HIDDEN) if part == "down" else (EXPERTS, HIDDEN, WIDTH)
            tensor(f"{prefix}ffn_{part}_exps.weight", shape, kind, spread=shape[-1] ** -0.5)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def phimoe_logits(path):
    """In f64, and how many of the weights are shared."""
    config = PhimoeConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
                          num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=1024,
                          rms_norm_eps=1e-5, tie_word_embeddings=False, rope_theta=10000.0, sliding_window=None,
                          num_experts_per_tok=2, num_local_experts=EXPERTS, attention_bias=True, lm_head_bias=True,
                          attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2)
    weights = {}
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate_inp": "block_sparse_moe.gate"}
    outer = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    experts = {"ffn_gate_exps": "w1", "ffn_down_exps": "w2", "ffn_up_exps": "w3"}
    for tensor in gguf.GGUFReader(path).tensors:
        values = torch.tensor(dequantize(tensor.data, tensor.tensor_type).astype(np.float64))
        *place, name, kind = tensor.name.split(".")
        if not place:
            weights[f"{outer[name]}.{kind}"] = values
            continue
        prefix = f"model.layers.{place[1]}."
        if name in names:
            weights[f"{prefix}{names[name]}.{kind}"] = values
        else:
            for expert, part in enumerate(values):
                weights[f"{prefix}block_sparse_moe.experts.{expert}.{experts[name]}.{kind}"] = part
    model = PhimoeForCausalLM(config).double().eval()
    model.load_state_dict(weights, strict=True)
    with torch.no_grad():
        return model(torch.tensor(TOKENS)[None], use_cache=False).logits[0].float().numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out
    write_phimoe(out / "tiny_phimoe.gguf")
    np.save(out / "tiny_phimoe_logits.npy", phimoe_logits(out / "tiny_phimoe.gguf")[-16:])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes the further language-model files that llm.py is run on.

    models.py SOURCE.gguf FOLDER

From SOURCE (Gemma 3 270M, say), with llama.cpp's own quantiser: the same model as F16, Q8_0 and Q4_0. And
a model of 1.1 billion random weights in the shape of a Llama (22 layers, width 2048, 32 heads on 4, feed
forward 5632, SOURCE's tokenizer) as Q4_K_M, for speed only. Files that are there already stay. Needs numpy, gguf and
llama-cpp-python from PyPI, and 5 GB of disk while it runs.
"""

import argparse
import ctypes
import pathlib

import gguf
import llama_cpp
import numpy as np

LAYERS, WIDTH, HEADS, KV_HEADS, FEED_FORWARD, CONTEXT = 22, 2048, 32, 4, 5632, 2048


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


def write_random_llama(source, target):
    """F16, normal with the deviation 0.02; norms are ones."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    tokens = len(reader.fields["tokenizer.ggml.tokens"].data)
    writer.add_name("random llama 1.1B")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(tokens)
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub)
    random = np.random.default_rng(1)

    def add(name, *shape):
        weights = random.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
        writer.add_tensor(name, weights.astype(np.float16))

    def add_norm(name):
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    head = WIDTH // HEADS
    add("token_embd.weight", tokens, WIDTH)
    add("output.weight", tokens, WIDTH)
    add_norm("output_norm.weight")
    for layer in range(LAYERS):
        name = f"blk.{layer}."
        add_norm(name + "attn_norm.weight")
        add_norm(name + "ffn_norm.weight")
        add(name + "attn_q.weight", WIDTH, WIDTH)
        add(name + "attn_k.weight", KV_HEADS * head, WIDTH)
        add(name + "attn_v.weight", KV_HEADS * head, WIDTH)
        add(name + "attn_output.weight", WIDTH, WIDTH)
        add(name + "ffn_gate.weight", FEED_FORWARD, WIDTH)
        add(name + "ffn_up.weight", FEED_FORWARD, WIDTH)
        add(name + "ffn_down.weight", WIDTH, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    quiet = llama_cpp.llama_log_callback(lambda *a: None)  # kept: the library calls it later
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    stem = args.source.stem.rsplit("-", 1)[0]
    for name, file_type in (("f16", llama_cpp.LLAMA_FTYPE_MOSTLY_F16), ("q8_0", llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0),
                            ("q4_0", llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0)):
        requantise(args.source, args.folder / f"{stem}-{name}.gguf", file_type)
    target = args.folder / "random-llama-1.1b-q4_k_m.gguf"
    if not target.exists():
        wide = args.folder / "random-llama-1.1b-f16.partial"
        write_random_llama(args.source, wide)
        requantise(wide, target, llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M)
        wide.unlink()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares tenon.hf with `transformers` on random tiny models, and records such models for the tests.

    hf_oracle.py --record python/tests/package/hf      one folder per model: config.json, model.safetensors, and what
                                                       transformers computes, expected.safetensors
    hf_oracle.py --sweep 20 --seed 1                   so many random models of each kind, compared

Needs torch and transformers, which nothing else here does; and the package tenon for --sweep.
"""

import argparse
import json
import pathlib
import random
import sys
import tempfile

import numpy as np
import torch
import transformers as hf
from safetensors.numpy import save_file

VOCABULARY, TOKENS = 40, 12


def decoder(draw, **more):
    heads, size = draw.choice([(4, 8), (2, 4), (3, 8)])
    kv_heads = draw.choice([k for k in (1, heads // 2, heads) if k and heads % k == 0])
    return dict(vocab_size=VOCABULARY, hidden_size=heads * size, intermediate_size=draw.choice([24, 40, 33]),
                num_hidden_layers=draw.choice([1, 2, 3]), num_attention_heads=heads, num_key_value_heads=kv_heads,
                max_position_embeddings=64, tie_word_embeddings=draw.random() < 0.5, bos_token_id=None,
                eos_token_id=None, pad_token_id=None, rms_norm_eps=draw.choice([1e-5, 1e-6])) | more


def llama(draw):
    ropes = [{"rope_type": "default", "rope_theta": 10000.0},
             {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
             {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
             {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}]
    return hf.LlamaForCausalLM, hf.LlamaConfig(**decoder(
        draw, rope_parameters=draw.choice(ropes), attention_bias=draw.random() < 0.3, mlp_bias=draw.random() < 0.3,
        hidden_act=draw.choice(["silu", "silu", "gelu", "relu"])))


def mistral(draw):
    return hf.MistralForCausalLM, hf.MistralConfig(**decoder(draw, sliding_window=draw.choice([None, 1, 5])))


def qwen2(draw):
    window = draw.random() < 0.5
    return hf.Qwen2ForCausalLM, hf.Qwen2Config(**decoder(
        draw, use_sliding_window=window, sliding_window=5 if window else None, max_window_layers=1))


def qwen3(draw):
    window = draw.random() < 0.3
    return hf.Qwen3ForCausalLM, hf.Qwen3Config(**decoder(
        draw, head_dim=draw.choice([8, 16]), use_sliding_window=window, sliding_window=4 if window else None,
        max_window_layers=1, attention_bias=draw.random() < 0.3))


def gemma3(draw):
    ropes = {"full_attention": draw.choice([{"rope_type": "default", "rope_theta": 1e6},
                                            {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}]),
             "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    return hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(**decoder(
        draw, num_hidden_layers=draw.choice([3, 7]), head_dim=draw.choice([8, 16]), sliding_window=draw.choice([1, 4]),
        query_pre_attn_scalar=draw.choice([16, 24]), rope_parameters=ropes, attn_logit_softcapping=None,
        final_logit_softcapping=draw.choice([None, 2.0]), attention_bias=draw.random() < 0.3))


def encoder(draw):
    heads = draw.choice([1, 2, 4])
    return dict(hidden_size=8 * heads, intermediate_size=draw.choice([16, 31]), num_attention_heads=heads,
                num_hidden_layers=draw.choice([1, 2]),
                hidden_act=draw.choice(["gelu", "gelu", "gelu_new", "relu", "quick_gelu"]))


def bert(draw):
    kind = draw.choice([hf.BertModel, hf.BertModel, hf.BertForMaskedLM, hf.BertForSequenceClassification])
    return kind, hf.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=20, pad_token_id=0, **encoder(draw))


def vit(draw):
    patch = draw.choice([2, 3, 4])
    return hf.ViTForImageClassification, hf.ViTConfig(
        image_size=patch * draw.choice([1, 3]) + draw.choice([0, 0, 1]), patch_size=patch,
        num_channels=draw.choice([1, 3]), num_labels=draw.choice([2, 5]), qkv_bias=draw.random() < 0.7, **encoder(draw))


def whisper(draw):
    heads = draw.choice([1, 2, 3])
    return hf.WhisperForConditionalGeneration, hf.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=draw.choice([5, 8]), encoder_layers=draw.choice([1, 2]),
        decoder_layers=draw.choice([1, 2]), encoder_attention_heads=heads, decoder_attention_heads=heads,
        encoder_ffn_dim=24, decoder_ffn_dim=draw.choice([16, 24]), d_model=8 * heads,
        max_source_positions=draw.choice([6, 9]), max_target_positions=24, scale_embedding=draw.random() < 0.5,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None,
        begin_suppress_tokens=None)


KINDS = {one.__name__: one for one in (llama, mistral, qwen2, qwen3, gemma3, bert, vit, whisper)}


def make(kind, seed, dtype):
    """A model with random weights, of a spread that makes its layers matter."""
    torch.manual_seed(seed)
    model_class, config = KINDS[kind](random.Random(f"{kind} {seed}"))
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            fan = parameter.shape[-1] if parameter.ndim > 1 else 4
            parameter.copy_(torch.randn(parameter.shape) * fan**-0.5 + (name.endswith("norm.weight") or
                                                                      name.endswith("LayerNorm.weight")))
            parameter.copy_(parameter.to(dtype))  # computes in f32 with what the file will hold
    return model


def expected(kind, model, draw):
    """Inputs and what the model makes of them, by name."""
    config, integers = model.config, lambda *shape, high=VOCABULARY: torch.from_numpy(draw.integers(0, high, shape))
    with torch.no_grad():
        if kind == "bert":
            arrays = {"ids": integers(3, 11), "types": integers(3, 11, high=2), "mask": integers(3, 11, high=2)}
            arrays["mask"][:, 0] = 1
            inner = getattr(model, "bert", model)
            out = inner(arrays["ids"], token_type_ids=arrays["types"], attention_mask=arrays["mask"])
            arrays["hidden"] = out.last_hidden_state
            if out.pooler_output is not None:
                arrays["pooled"] = out.pooler_output
        elif kind == "vit":
            pixels = torch.from_numpy(draw.standard_normal((3, config.num_channels, config.image_size,
                                                            config.image_size), "f4"))
            arrays = {"pixels": pixels, "logits": model(pixels).logits}
        elif kind == "whisper":
            spectrogram = torch.from_numpy(draw.standard_normal((1, config.num_mel_bins,
                                                                 2 * config.max_source_positions), "f4"))
            tokens = greedy(lambda ids: model(spectrogram, decoder_input_ids=ids).logits, [3, 5, 7])
            ids = torch.tensor([tokens])
            arrays = {"spectrogram": spectrogram, "ids": ids,
                      "logits": model(spectrogram, decoder_input_ids=ids).logits}
        else:
            tokens = greedy(lambda ids: model(ids).logits, [int(t) for t in integers(7)])
            ids = torch.cat([torch.tensor([tokens]), integers(1, len(tokens))])
            arrays = {"ids": ids, "logits": model(ids).logits}
    return {name: np.ascontiguousarray(array.numpy().astype("i4" if array.dtype == torch.int64 else "f4"))
            for name, array in arrays.items()}


def greedy(logits, tokens):
    for _ in range(TOKENS):
        tokens = tokens + [int(logits(torch.tensor([tokens]))[0, -1].argmax())]
    return tokens


def write(kind, seed, folder, dtype=torch.float32):
    model = make(kind, seed, dtype)
    arrays = expected(kind, model, np.random.default_rng(seed))
    model.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(arrays, folder / "expected.safetensors")


def record(out):
    types = {"llama": torch.bfloat16, "gemma3": torch.float16, "whisper": torch.float16}
    seeds = {"llama": 31, "qwen2": 17, "qwen3": 40, "gemma3": 21, "bert": 10, "vit": 17, "whisper": 4}
    for kind, seed in seeds.items():
        write(kind, seed, out / kind, types.get(kind, torch.float32))


def sweep(count, seed):
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "package"))
    from test_hf import check
    wrong = 0
    for kind in KINDS:
        worst = 0.0
        for i in range(count):
            with tempfile.TemporaryDirectory() as folder:
                write(kind, seed + i, pathlib.Path(folder))
                try:
                    worst = max(worst, check(pathlib.Path(folder)))
                except Exception as error:  # noqa: BLE001  told with what it happened to
                    wrong += 1
                    print(kind, seed + i, json.dumps(json.loads((pathlib.Path(folder) / "config.json").read_text())),
                          repr(error)[:500])
        print(f"{kind}: {count} models from seed {seed} on, largest difference {worst:.2g}")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--sweep", type=int)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    hf.utils.logging.disable_progress_bar()
    if arguments.record:
        record(arguments.record)
    return sweep(arguments.sweep, arguments.seed) if arguments.sweep else 0


if __name__ == "__main__":
    sys.exit(main())

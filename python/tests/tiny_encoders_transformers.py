#!/usr/bin/env python3
"""Writes what Hugging Face's transformers make, in f64, of those of tiny_encoders_llama_cpp.py's models that they know.

Unlike llama.cpp they compute BERT's gelu as it is. Needs `transformers` (4.57), `tokenizers` and `torch` beside numpy and gguf.

    OUT/roberta/             a folder of XLM-RoBERTa with a tokenizer of whole words, and of the pooling "cls"
    OUT/transformers.json    {NAME: embeddings or scores}, of the token ids in OUT/llama_cpp.json; "roberta": {"texts", "embeddings"}

    tiny_encoders_transformers.py --out tests/models/data/encoders
"""

import argparse
import json
import pathlib

import gguf
import torch
import transformers as hf
from gguf.quants import dequantize
from tokenizers import Tokenizer, models, pre_tokenizers, processors

torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)


def weights_of(path):
    return {tensor.name: torch.tensor(dequantize(tensor.data, tensor.tensor_type)).double()
            for tensor in gguf.GGUFReader(path).tensors}


def split(weights, prefix):
    """Queries, keys and values of one weight as three."""
    for suffix in ("weight", "bias"):
        if f"{prefix}attn_qkv.{suffix}" in weights:
            parts = weights.pop(f"{prefix}attn_qkv.{suffix}").chunk(3)
            weights |= {f"{prefix}attn_{part}.{suffix}": value for part, value in zip("qkv", parts)}


BERT = {"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
        "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
        "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm"}


def bert(weights):
    embeddings = {"token_embd.weight": "word_embeddings.weight", "token_types.weight": "token_type_embeddings.weight",
                  "position_embd.weight": "position_embeddings.weight", "token_embd_norm.weight": "LayerNorm.weight",
                  "token_embd_norm.bias": "LayerNorm.bias"}
    state = {"embeddings." + to: weights[name] for name, to in embeddings.items()}
    for index in range(3):
        split(weights, f"blk.{index}.")
        for name, to in BERT.items():
            for suffix in ("weight", "bias"):
                state[f"encoder.layer.{index}.{to}.{suffix}"] = weights[f"blk.{index}.{name}.{suffix}"]
    model = hf.BertModel(hf.BertConfig(
        vocab_size=len(weights["token_embd.weight"]), hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=128, type_vocab_size=len(weights["token_types.weight"]),
        layer_norm_eps=1e-5, attn_implementation="eager"), add_pooling_layer=False)
    model.load_state_dict(state)
    return model


def modern_bert(weights):
    names = {"attn_norm": "attn_norm", "attn_qkv": "attn.Wqkv", "attn_output": "attn.Wo", "ffn_norm": "mlp_norm",
             "ffn_up": "mlp.Wi", "ffn_down": "mlp.Wo"}
    state = {"embeddings.tok_embeddings.weight": weights["token_embd.weight"],
             "embeddings.norm.weight": weights["token_embd_norm.weight"], "final_norm.weight": weights["output_norm.weight"]}
    for index in range(4):
        for name, to in names.items():
            if f"blk.{index}.{name}.weight" in weights:
                state[f"layers.{index}.{to}.weight"] = weights[f"blk.{index}.{name}.weight"]
    model = hf.ModernBertModel(hf.ModernBertConfig(
        vocab_size=len(weights["token_embd.weight"]), hidden_size=32, num_hidden_layers=4, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=128, local_attention=8, global_attn_every_n_layers=3, norm_eps=1e-5,
        pad_token_id=0, attn_implementation="eager", reference_compile=False))
    model.load_state_dict(state)
    return model


def gemma(weights):
    names = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
             "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
             "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    # Files have 1 added to the weights of norms.
    state = {"embed_tokens.weight": weights["token_embd.weight"], "norm.weight": weights["output_norm.weight"] - 1}
    for index in range(4):
        for name, to in names.items():
            value = weights[f"blk.{index}.{name}.weight"]
            state[f"layers.{index}.{to}.weight"] = value - 1 if name.endswith("norm") else value
    # The configuration halves the window itself.
    model = hf.Gemma3TextModel(hf.Gemma3TextConfig(
        vocab_size=len(weights["token_embd.weight"]), hidden_size=32, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, intermediate_size=64, max_position_embeddings=128, sliding_window=8,
        rms_norm_eps=1e-5, rope_theta=1e6, rope_local_base_freq=1e4, query_pre_attn_scalar=16, sliding_window_pattern=3,
        layer_types=["full_attention" if index % 3 == 2 else "sliding_attention" for index in range(4)],
        use_bidirectional_attention=True, attn_implementation="eager"))
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys, missing
    return model


def head(weights, x, activation):
    x = activation(x @ weights["cls.weight"].T + weights.get("cls.bias", 0))
    if "cls.norm.weight" in weights:
        x = torch.nn.functional.layer_norm(x, (32,), weights["cls.norm.weight"], eps=1e-5)
    return (x @ weights["cls.output.weight"].T + weights["cls.output.bias"])[0].item()


def results(name, record, path):
    weights = weights_of(path)
    make = bert if name.startswith(("bert", "xlm")) else modern_bert if name.startswith("modern") else gemma
    model = make(dict(weights)).eval()
    found = []
    for ids in record["ids"]:
        x = model(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.int64)).last_hidden_state[0]
        if name == "xlm_roberta_rank":
            found.append(head(weights, x[0], torch.tanh))
        elif name == "modern-bert_rank":
            found.append(head(weights, x.mean(0), torch.nn.functional.gelu))
        elif record["pooling"] == "none":
            found.append(x.tolist())
        else:
            y = x.mean(0) if record["pooling"] == "mean" else x[0]
            if "dense_2.weight" in weights:
                y = weights["dense_3.weight"] @ (weights["dense_2.weight"] @ y)
            found.append(y.tolist())
    return found


def write_roberta(folder):
    torch.manual_seed(320)
    model = hf.XLMRobertaModel(hf.XLMRobertaConfig(
        vocab_size=14, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=20, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5)).eval()
    for weight in model.parameters():
        weight.add_(0.2 * torch.randn_like(weight))
    model.half().save_pretrained(folder)
    words = ["<s>", "<pad>", "</s>", "<unk>", *"a red blue house the cat is on mat .".split()]
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(words[:4])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(
        json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}) + "\n")
    model.double()
    texts = ["a red house", "the cat is on the mat .", "", "the old cat " * 8]
    found = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        ids = ids if len(ids) <= 18 else ids[:17] + [2]  # 20 positions but two
        found.append(model(torch.tensor([ids])).last_hidden_state[0, 0].tolist())
    return {"texts": texts, "embeddings": rounded(found)}


def rounded(values):
    return [rounded(one) if isinstance(one, list) else float(f"{one:.7g}") for one in values]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out
    records = json.loads((out / "llama_cpp.json").read_text())
    lines = []
    for name in ("bert", "bert_cls", "bert_tokens", "xlm_roberta_rank", "modern-bert", "modern-bert_rank", "gemma-embedding"):
        made = rounded(results(name, records[name], out / f"{name}.gguf"))
        lines.append(f"{json.dumps(name)}: {json.dumps(made)}")
    lines.append(f'"roberta": {json.dumps(write_roberta(out / "roberta"))}')
    (out / "transformers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

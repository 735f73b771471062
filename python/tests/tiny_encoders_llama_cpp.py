#!/usr/bin/env python3
"""Writes one tiny GGUF model for each kind of sentence encoder and reranker, and what llama.cpp makes of a few texts.

As tiny_models_llama_cpp.py's, with random weights of several types, which llama.cpp gets widened to f32; needs
`llama-cpp-python` beside numpy and gguf. llama.cpp computes BERT's gelu as its tanh approximation, from a table of f16
values, where the models have the error function: its embeddings are that much off.

    OUT/NAME.gguf        the model, with a tokenizer of its kind
    OUT/llama_cpp.json   {NAME: {"pooling": ..., "texts": [...], "ids": [[...], ...], "embeddings": [[...], ...]}};
                         embeddings are not normalised. Of rerankers {"query", "documents", "ids", "scores"};
                         of pooling "none" one embedding for each token

    tiny_encoders_llama_cpp.py --out tests/models/data/encoders [NAME ...]
"""

import argparse
import json
import pathlib
import tempfile

import gguf
import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType as Type, PoolingType

import tiny_models
from tiny_models_llama_cpp import Writer, write_widened

TEXTS = ["a red house", "the cats sat on a mat with the dogs, and the other cats in the garden of the old house.",
         "in", "Hello, World! an owl; the end", ""]
QUERY = "where is the cat"
DOCUMENTS = ["the cat is on the mat", "a red house in the garden, behind the other houses and the old owl", "in", ""]
LETTERS = "abcdefghijklmnopqrstuvwxyz.,;!"
WORDS = ["the", "cat", "house", "and", "on", "red", "is"]
SPACE = "▁"
RERANK = "<|im_start|>judge\n<Query>: {query}\n<Document>: {document}<|im_end|>\nanswer "


def add_wordpiece(file, says_what_it_adds):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(SPACE + letter for letter in LETTERS),
              *(SPACE + word for word in WORDS), "ous", "er"]
    file.add_tokenizer_model("bert")
    file.add_tokenizer_pre("default")
    file.add_token_list(tokens)
    file.add_token_types([gguf.TokenType.CONTROL] * 5 + [gguf.TokenType.NORMAL] * (len(tokens) - 5))
    file.add_pad_token_id(0)
    file.add_unk_token_id(1)
    file.add_bos_token_id(2)
    file.add_sep_token_id(3)
    file.add_mask_token_id(4)
    file.add_token_type_count(2)
    if says_what_it_adds:
        file.add_eos_token_id(3)
        file.add_add_bos_token(True)
        file.add_add_eos_token(True)
        file.add_add_sep_token(False)
    return len(tokens)


def add_unigram(file):
    tokens = ["<s>", "<pad>", "</s>", "<unk>", SPACE, *LETTERS, *(SPACE + word for word in WORDS), "ous", "er", "<mask>"]
    scores = [0.0] * 4 + [-4.0] + [-5.0 - 0.1 * at for at in range(len(tokens) - 6)] + [0.0]
    file.add_tokenizer_model("t5")
    file.add_tokenizer_pre("default")
    file.add_token_list(tokens)
    file.add_token_scores(scores)
    file.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.UNKNOWN] +
                         [gguf.TokenType.NORMAL] * (len(tokens) - 5) + [gguf.TokenType.CONTROL])
    file.add_add_space_prefix(True)
    file.add_remove_extra_whitespaces(True)
    file.add_token_type_count(1)
    for name, token in (("bos", 0), ("pad", 1), ("eos", 2), ("sep", 2), ("unk", 3)):
        getattr(file, f"add_{name}_token_id")(token)
    file.add_add_bos_token(True)
    file.add_add_eos_token(True)
    file.add_add_sep_token(True)
    return len(tokens)


def add_bytes(file, adds_end):
    """Byte-level BPE: "<|im_start|>" begins a text, "<|im_end|>" ends it."""
    tiny_models.add_tokenizer(file)
    file.kv_data[-1].pop("tokenizer.ggml.add_bos_token")
    file.add_add_bos_token(adds_end == "both")
    file.add_add_eos_token(bool(adds_end))
    file.add_sep_token_id(2)
    file.add_token_type_count(2)
    if adds_end == "both":
        file.add_add_sep_token(True)
    return tiny_models.VOCABULARY


class EncoderWriter(Writer):
    """A model of width 32 with two heads."""

    hidden, heads = 64, 2

    def __init__(self, path, arch, seed, tokenizer, pooling, layers=3, norm="layer", kv_heads=None):
        self.rng = np.random.default_rng(seed)
        self.file = file = gguf.GGUFWriter(str(path), arch)
        self.layers, self.width, self.is_deep, self.arch = layers, 32, False, arch
        file.add_context_length(128)
        file.add_embedding_length(self.width)
        file.add_block_count(layers)
        file.add_feed_forward_length(self.hidden)
        file.add_head_count(self.heads)
        if kv_heads:
            file.add_head_count_kv(kv_heads)
        (file.add_layer_norm_eps if norm == "layer" else file.add_layer_norm_rms_eps)(1e-5)
        if pooling is not None:
            file.add_pooling_type(pooling)
        self.vocabulary = tokenizer(file)
        file.add_vocab_size(self.vocabulary)

    def mean_norm(self, name, has_bias=True):
        self.norm(name, self.width)
        if has_bias:
            self.vector(name + ".bias", self.width)

    def classifier(self, labels=1, dense=True, bias=True):
        if dense:
            self.matrix("cls", (self.width, self.width), Type.Q8_0)
        self.matrix("cls.output", (labels, self.width))
        if bias:
            if dense:
                self.vector("cls.bias", self.width)
            self.vector("cls.output.bias", labels)

    def finish(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def write_bert_family(path, arch, seed, tokenizer, pooling, *, is_fused=False, biases=True, gate=None, norms=False,
                      second_norm=False, experts=0, more=None):
    """`gate`: "own", "fused" above the other weight, or none."""
    writer = EncoderWriter(path, arch, seed, tokenizer, pooling)
    writer.file.add_causal_attention(False)
    if experts:
        writer.file.add_expert_count(experts)
        writer.file.add_expert_used_count(2)
        writer.file.add_moe_every_n_layers(2)
    width, hidden = writer.width, writer.hidden
    writer.matrix("token_embd", (writer.vocabulary, width), Type.Q8_0, 0.5)
    writer.matrix("token_types", (1 if tokenizer is add_unigram else 2, width), scale=0.3)
    if arch == "bert":
        writer.matrix("position_embd", (128, width), scale=0.3)
    writer.mean_norm("token_embd_norm")
    for index in range(writer.layers):
        prefix = f"blk.{index}."

        def linear(name, shape, kind, scale=None, has_bias=biases):
            writer.matrix(prefix + name, shape, kind, scale)
            if has_bias:
                writer.vector(f"{prefix}{name}.bias", shape[0], spread=0.2)

        if is_fused:
            linear("attn_qkv", (3 * width, width), Type.Q8_0, 0.35)
        else:
            for part, kind, scale in (("q", Type.Q4_0, 0.4), ("k", Type.Q8_0, 0.4), ("v", Type.F16, None)):
                linear(f"attn_{part}", (width, width), kind, scale)
        linear("attn_output", (width, width), Type.Q5_1)
        if norms:
            writer.mean_norm(prefix + "attn_q_norm")
            writer.mean_norm(prefix + "attn_k_norm")
        writer.mean_norm(prefix + "attn_output_norm")
        if second_norm:
            writer.mean_norm(prefix + "attn_norm_2")
        if experts and index % 2 == 1:
            writer.experts(prefix, experts, hidden, parts=("up", "down"))
        else:
            if gate == "own":
                linear("ffn_gate", (hidden, width), Type.Q4_1, has_bias=False)
            linear("ffn_up", ((2 if gate == "fused" else 1) * hidden, width), Type.Q8_0)
            linear("ffn_down", (width, hidden), Type.Q8_0)
        writer.mean_norm(prefix + "layer_output_norm")
    if more:
        more(writer)
    writer.finish()


def write_modern_bert(path, seed, pooling, is_ranked):
    writer = EncoderWriter(path, "modern-bert", seed, lambda file: add_bytes(file, "both"), pooling, layers=4)
    file, width = writer.file, writer.width
    file.add_causal_attention(False)
    file.add_rope_freq_base(160000.0)
    file.add_rope_freq_base_swa(10000.0)
    file.add_sliding_window(8)
    file.add_sliding_window_pattern(3)
    file.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.matrix("token_embd", (writer.vocabulary, width), Type.Q8_0, 0.5)
    for name in ("token_embd_norm", "output_norm"):
        writer.mean_norm(name, False)
    for index in range(writer.layers):
        prefix = f"blk.{index}."
        if index:
            writer.mean_norm(prefix + "attn_norm", False)
        writer.mean_norm(prefix + "ffn_norm", False)
        writer.matrix(prefix + "attn_qkv", (3 * width, width), Type.Q8_0, 0.35)
        writer.matrix(prefix + "attn_output", (width, width), Type.Q5_1)
        writer.matrix(prefix + "ffn_up", (2 * writer.hidden, width), Type.Q8_0)
        writer.matrix(prefix + "ffn_down", (width, writer.hidden), Type.Q4_1)
    if is_ranked:
        writer.classifier(dense=True, bias=False)
        writer.mean_norm("cls.norm", False)
        writer.vector("cls.output.bias", 1)
    writer.finish()


def write_neo_bert(path, seed):
    writer = EncoderWriter(path, "neo-bert", seed, lambda file: add_wordpiece(file, True), PoolingType.CLS, norm="rms")
    width = writer.width
    writer.file.add_causal_attention(False)
    writer.file.add_rope_freq_base(10000.0)
    writer.file.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.matrix("token_embd", (writer.vocabulary, width), Type.Q8_0, 0.5)
    writer.norm("enc.output_norm", width)
    for index in range(writer.layers):
        prefix = f"blk.{index}."
        writer.norm(prefix + "attn_norm", width)
        writer.norm(prefix + "ffn_norm", width)
        writer.matrix(prefix + "attn_qkv", (3 * width, width), Type.Q8_0, 0.35)
        writer.matrix(prefix + "attn_output", (width, width), Type.Q5_1)
        writer.matrix(prefix + "ffn_up", (2 * writer.hidden, width), Type.Q8_0)
        writer.matrix(prefix + "ffn_down", (width, writer.hidden), Type.Q4_1)
    writer.finish()


def write_decoder(path, arch, seed, pooling, *, adds_end=None, head_norms=False, last_norms=False, is_causal=True, more=None,
                  layers=3, kv_heads=1):
    writer = EncoderWriter(path, arch, seed, lambda file: add_bytes(file, adds_end), pooling, norm="rms", layers=layers,
                           kv_heads=kv_heads)
    width = writer.width
    if not is_causal:
        writer.file.add_causal_attention(False)
    writer.matrix("token_embd", (writer.vocabulary, width), Type.Q8_0, 0.5)
    writer.norm("output_norm", width)
    for index in range(writer.layers):
        prefix = f"blk.{index}."
        for name in ("attn_norm", "ffn_norm") + (("post_attention_norm", "post_ffw_norm") if last_norms else ()):
            writer.norm(prefix + name, width)
        writer.attention(prefix, 2, kv_heads, 16)
        if head_norms:
            writer.norm(prefix + "attn_q_norm", 16)
            writer.norm(prefix + "attn_k_norm", 16)
        writer.dense(prefix, writer.hidden)
    if more:
        more(writer)
    writer.finish()


def gemma_parts(writer):
    writer.file.add_sliding_window(8)
    writer.file.add_sliding_window_pattern(3)
    writer.file.add_rope_freq_base(1000000.0)
    writer.file.add_key_length(16)
    writer.file.add_value_length(16)
    writer.file.add_dense_features_dims("dense_2", 32, 64)
    writer.file.add_dense_features_dims("dense_3", 64, 32)
    writer.matrix("dense_2", (64, 32), Type.Q8_0)
    writer.matrix("dense_3", (32, 64))


def xlm_roberta_classifier(writer):
    writer.file.add_classifier_output_labels(["LABEL_0"])
    writer.classifier()


def jina_classifier(writer):
    writer.matrix("cls", (1, 32))
    writer.vector("cls.bias", 1)


def qwen_reranker(writer):
    writer.file.add_classifier_output_labels(["yes", "no"])
    writer.file.add_chat_template([{"name": "rerank", "template": RERANK}])
    writer.classifier(labels=2, dense=False, bias=False)


MODELS = {
    "bert": lambda path: write_bert_family(path, "bert", 301, lambda file: add_wordpiece(file, False), PoolingType.MEAN),
    "bert_cls": lambda path: write_bert_family(path, "bert", 302, lambda file: add_wordpiece(file, True),
                                               PoolingType.CLS, is_fused=True),
    "bert_tokens": lambda path: write_bert_family(path, "bert", 303, add_unigram, PoolingType.NONE),
    "xlm_roberta_rank": lambda path: write_bert_family(path, "bert", 304, add_unigram, PoolingType.RANK,
                                                       more=xlm_roberta_classifier),
    "nomic-bert": lambda path: write_bert_family(path, "nomic-bert", 305, lambda file: add_wordpiece(file, True),
                                                 PoolingType.MEAN, is_fused=True, biases=False, gate="own",
                                                 more=lambda writer: writer.file.add_rope_freq_base(1000.0)),
    "nomic-bert-moe": lambda path: write_bert_family(path, "nomic-bert-moe", 306, add_unigram, PoolingType.MEAN,
                                                     is_fused=True, experts=5),
    "jina-bert-v2": lambda path: write_bert_family(path, "jina-bert-v2", 307, lambda file: add_wordpiece(file, True),
                                                   PoolingType.MEAN, gate="fused"),
    "jina-bert-v2_code": lambda path: write_bert_family(path, "jina-bert-v2", 308, lambda file: add_bytes(file, "both"),
                                                        PoolingType.RANK, gate="own", norms=True, second_norm=True,
                                                        more=jina_classifier),
    "jina-bert-v3": lambda path: write_bert_family(path, "jina-bert-v3", 309, add_unigram, PoolingType.MEAN,
                                                   is_fused=True),
    "modern-bert": lambda path: write_modern_bert(path, 310, PoolingType.CLS, False),
    "modern-bert_rank": lambda path: write_modern_bert(path, 311, PoolingType.RANK, True),
    "neo-bert": lambda path: write_neo_bert(path, 312),
    "eurobert": lambda path: write_decoder(path, "eurobert", 313, PoolingType.MEAN, is_causal=False),
    "llama-embed": lambda path: write_decoder(path, "llama-embed", 314, PoolingType.MEAN, is_causal=False),
    "gemma-embedding": lambda path: write_decoder(path, "gemma-embedding", 315, PoolingType.MEAN, adds_end="both",
                                                  head_norms=True, last_norms=True, is_causal=False, layers=4,
                                                  more=gemma_parts),
    "qwen3_embedding": lambda path: write_decoder(path, "qwen3", 316, PoolingType.LAST, adds_end="end", head_norms=True),
    "qwen3_rank": lambda path: write_decoder(path, "qwen3", 317, PoolingType.RANK, head_norms=True, more=qwen_reranker),
    "qwen2_mutual": lambda path: write_decoder(path, "qwen2", 318, PoolingType.LAST, adds_end="end", is_causal=False),
}


class Oracle:
    """llama.cpp on one model."""

    def __init__(self, path):
        with tempfile.TemporaryDirectory() as folder:
            wide = pathlib.Path(folder) / "wide.gguf"
            write_widened(path, wide)
            self.model = llama_cpp.Llama(str(wide), n_ctx=128, n_batch=128, n_ubatch=128, n_threads=1, embedding=True,
                                         type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, verbose=False)
        self.context = self.model._ctx.ctx
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model._model.model)

    def tokens(self, text, add_special=True, special=True):
        return self.model.tokenize(text.encode(), add_bos=add_special, special=special)

    def pair(self, query, document):
        """As its server joins them."""
        template = llama_cpp.llama_model_chat_template(self.model._model.model, b"rerank")
        if template:
            text = template.decode().replace("{query}", query).replace("{document}", document)
            return self.tokens(text, add_special=False)
        vocabulary = self.vocabulary
        end = llama_cpp.llama_vocab_eos(vocabulary)
        end = llama_cpp.llama_vocab_sep(vocabulary) if end < 0 else end
        ids = [llama_cpp.llama_vocab_bos(vocabulary)] if llama_cpp.llama_vocab_get_add_bos(vocabulary) else []
        ids += self.tokens(query, False, False)
        ids += [end] if llama_cpp.llama_vocab_get_add_eos(vocabulary) else []
        ids += [llama_cpp.llama_vocab_sep(vocabulary)] if llama_cpp.llama_vocab_get_add_sep(vocabulary) else []
        ids += self.tokens(document, False, False)
        return ids + ([end] if llama_cpp.llama_vocab_get_add_eos(vocabulary) else [])

    def run(self, ids, numbers):
        memory = llama_cpp.llama_get_memory(self.context)
        if memory:
            llama_cpp.llama_memory_clear(memory, True)
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for at, token in enumerate(ids):
            batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.seq_id[at][0] = token, at, 1, 0
            batch.logits[at] = 1
        assert llama_cpp.llama_decode(self.context, batch) == 0
        llama_cpp.llama_batch_free(batch)
        if llama_cpp.llama_pooling_type(self.context) == llama_cpp.LLAMA_POOLING_TYPE_NONE:
            return [list(llama_cpp.llama_get_embeddings_ith(self.context, at)[:numbers]) for at in range(len(ids))]
        return list(llama_cpp.llama_get_embeddings_seq(self.context, 0)[:numbers])


def rounded(values):
    return [rounded(one) if isinstance(one, list) else float(f"{one:.7g}") for one in values]


def recorded(path):
    oracle = Oracle(path)
    pooling = llama_cpp.llama_pooling_type(oracle.context)
    result = {"pooling": ("none", "mean", "cls", "last", "rank")[pooling]}
    if pooling == llama_cpp.LLAMA_POOLING_TYPE_RANK:
        ids = [oracle.pair(QUERY, document) for document in DOCUMENTS]
        scores = [oracle.run(one, 1)[0] for one in ids]
        return {**result, "query": QUERY, "documents": DOCUMENTS, "ids": ids, "scores": rounded(scores)}
    texts = [text for text in TEXTS if oracle.tokens(text)]
    ids = [oracle.tokens(text) for text in texts]
    return {**result, "texts": texts, "ids": ids, "embeddings": rounded([oracle.run(one, 32) for one in ids])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*MODELS, []], default=[])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    record = arguments.out / "llama_cpp.json"
    known = json.loads(record.read_text()) if record.exists() else {}
    for name in arguments.names or MODELS:
        path = arguments.out / f"{name}.gguf"
        MODELS[name](path)
        known[name] = recorded(path)
    lines = [f"{json.dumps(name)}: {json.dumps(known[name])}" for name in MODELS if name in known]
    record.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

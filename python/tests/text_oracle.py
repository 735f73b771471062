#!/usr/bin/env python3
"""Expected token ids from Hugging Face's `tokenizers`, for tests/text.

    text_oracle.py fixtures tests/text/data          small vocabularies and cases, kept in git
    text_oracle.py compare PROGRAM [--count 10000]  real vocabularies from $TENON_TEST_MODELS:
                                                     writes cases to a temporary folder and lets
                                                     PROGRAM (tenon_text_compare) check them
    text_oracle.py vocabularies PROGRAM             the same with llama.cpp's vocabulary-only files in
                                                     $TENON_TEST_VOCABULARIES
    text_oracle.py trained PROGRAM [--count 5000]   the same with tokenizers of every kind, trained
                                                     here, and every name of a pre-tokenizer

Exits with 77 (skipped) where the models or the packages are missing. A folder of cases holds
strings.txt (one string a line, escaped), NAME.ids (a line of ids per string), for some NAME.text
(what decoding those gives) and cases.json, which says what NAME was made with.
"""

import argparse
import base64
import itertools
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

try:
    import gguf
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers, processors, trainers
except ImportError as missing:
    python = os.environ.get("TENON_ORACLE_PYTHON", sys.executable)
    # A virtual environment's Python is a link to this very file, so only its name tells them apart.
    if python != sys.executable and "TENON_ORACLE_RETRIED" not in os.environ:
        os.execve(python, [python, *sys.argv], {**os.environ, "TENON_ORACLE_RETRIED": "1"})
    print(f"SKIPPED: {missing}; set TENON_ORACLE_PYTHON to a Python that has it")
    sys.exit(77)

import pretokenizer_names
import text_strings
import tokenizer_kinds

SEED = 20240229
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# --- pre-tokenizers, as the families' own tokenizer.json files have them ----------------------------

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEEPSEEK_LETTERS = "".join(
    chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in [
        (0x41, 0x5A), (0x61, 0x7A), (0xB5, 0xB5), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x1BA),
        (0x1BC, 0x1BF), (0x1C4, 0x293), (0x295, 0x2AF), (0x370, 0x373), (0x376, 0x376),
        (0x377, 0x377), (0x37B, 0x37D), (0x37F, 0x37F), (0x386, 0x386), (0x388, 0x38A),
        (0x38C, 0x38C), (0x38E, 0x3A1), (0x3A3, 0x3F5), (0x3F7, 0x481), (0x48A, 0x52F),
        (0x531, 0x556), (0x10A0, 0x10C5), (0x13A0, 0x13F5), (0x13F8, 0x13FD), (0x1C90, 0x1CBA),
        (0x1CBD, 0x1CBF), (0x1D00, 0x1D2B), (0x1D6B, 0x1D77), (0x1D79, 0x1D9A), (0x1E00, 0x1F15),
        (0x1F18, 0x1F1D), (0x1F20, 0x1F45), (0x1F48, 0x1F4D), (0x1F50, 0x1F57), (0x1F59, 0x1F59),
        (0x1F5B, 0x1F5B), (0x1F5D, 0x1F5D), (0x1F5F, 0x1F7D), (0x1F80, 0x1FB4), (0x1FB6, 0x1FBC),
        (0x1FBE, 0x1FBE), (0x1FC2, 0x1FC4), (0x1FC6, 0x1FCC), (0x1FD0, 0x1FD3), (0x1FD6, 0x1FDB),
        (0x1FE0, 0x1FEC), (0x1FF2, 0x1FF4), (0x1FF6, 0x1FFC), (0x2102, 0x2102), (0x2107, 0x2107),
        (0x210A, 0x2113), (0x2115, 0x2115), (0x2119, 0x211D), (0x2124, 0x2124), (0x2126, 0x2126),
        (0x2128, 0x2128), (0x212A, 0x212D), (0x212F, 0x2134), (0x2139, 0x2139), (0x213C, 0x213F),
        (0x2145, 0x2149), (0x214E, 0x214E), (0x2183, 0x2183), (0x2184, 0x2184), (0x2C00, 0x2C7B),
        (0x2C7E, 0x2CE4), (0x2CEB, 0x2CEE), (0x2CF2, 0x2CF2), (0x2CF3, 0x2CF3), (0xA640, 0xA66D),
        (0xA680, 0xA69B), (0xA722, 0xA76F), (0xA771, 0xA787), (0xA78B, 0xA78E), (0xAB70, 0xABBF),
        (0xFB00, 0xFB06), (0xFB13, 0xFB17), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A), (0x10400, 0x1044F),
        (0x104B0, 0x104D3), (0x104D8, 0x104FB), (0x10C80, 0x10CB2), (0x10CC0, 0x10CF2),
        (0x118A0, 0x118DF), (0x1E900, 0x1E943)])
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def isolate(regex):
    return pre_tokenizers.Split(Regex(regex), "isolated")


def byte_level(use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def pretokenizer(name):
    digits = pre_tokenizers.Digits(individual_digits=True)
    for names, expressions in pretokenizer_names.RECIPES:
        if name in names:
            return pre_tokenizers.Sequence([isolate(e) for e in expressions] + [byte_level()])
    steps = {
        "falcon": [pre_tokenizers.Punctuation("contiguous"), byte_level(True),
                   pre_tokenizers.Digits(individual_digits=False), isolate("[0-9][0-9][0-9]")],
        "deepseek-llm": [isolate("[\r\n]"), isolate(r"\s?[" + DEEPSEEK_LETTERS + "]+"),
                         isolate("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
                         isolate(r"\s+$"), isolate(CJK), digits, byte_level()],
        "deepseek-coder": [isolate("[\r\n]"), isolate(r"\s?\p{L}+"), isolate(r"\s?\p{P}+"),
                           isolate(CJK), digits, byte_level()],
        # No published family: what GGUF readers do where a file names none.
        "default": [isolate(r"[\p{P}\$\+<=>\^~\|]+"), isolate(GPT2), isolate(r"\p{N}+"),
                    isolate("[0-9][0-9][0-9]"), byte_level()],
    }[name]
    return pre_tokenizers.Sequence(steps)


# Every name, those with one way of splitting together, and the ones with fixtures in git.
NAMES = [names for names, _ in pretokenizer_names.RECIPES]
NAMES += [["falcon"], ["deepseek-llm"], ["deepseek-coder"], ["default"]]
FAMILIES = ["gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm", "deepseek-coder", "falcon",
            "starcoder", "refact", "command-r", "mpt", "default", "gpt-4o", "deepseek-v3", "tiny_aya"]
COMPOSING = {"qwen2", "command-r", "mpt", "deepseek-r1-qwen", "f2llmv2", "olmo", "stablelm2"}
CHARACTERS = {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}
WHOLE_WORDS = {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
               "jina-v5-nano", "glm4", "glm5", "minicpm5", "youtu", "tekken", "granite-embed-multi-97m"}

# --- vocabularies as GGUF files hold them -----------------------------------------------------------


def from_gguf(path):
    reader = gguf.GGUFReader(path)
    take = lambda key: (f := reader.fields.get("tokenizer.ggml." + key)) and f.contents()
    v = {"model": {"gpt2": "bpe", "gemma4": "bpe", "llama": "spm"}[take("model")],
         "pre": "gemma4" if take("model") == "gemma4" else take("pre") or "default",
         "tokens": take("tokens"), "types": take("token_type")}
    for key in ("scores", "merges"):
        if take(key):
            v[key] = take(key)
    for key, field in [("bos", "bos_token_id"), ("eos", "eos_token_id"), ("unk", "unknown_token_id"),
                       ("pad", "padding_token_id"), ("add_bos", "add_bos_token"),
                       ("add_space_prefix", "add_space_prefix")]:
        if take(field) is not None:
            v[key] = take(field)
    return v


def merges_by_score(v):
    """The merges that Hugging Face's converter of SentencePiece models lists."""
    scores = {t: s for t, s, k in zip(v["tokens"], v["scores"], v["types"]) if k in (NORMAL, USER_DEFINED)}
    ids = {t: i for i, t in enumerate(v["tokens"])}
    merges = []
    for token, score in scores.items():
        local = [(token[:i], token[i:], score) for i in range(1, len(token))
                 if token[:i] in scores and token[i:] in scores]
        merges += sorted(local, key=lambda m: (ids[m[0]], ids[m[1]]))
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [(left, right) for left, right, _ in merges]


def to_hugging_face(v):
    vocab = {token: i for i, token in enumerate(v["tokens"])}
    # A token may begin with a space of its own.
    merges = [(m[:at], m[at + 1:]) for m in v.get("merges", []) for at in [m.index(" ", 1)]]
    if v["model"] == "bpe" and v["pre"] not in CHARACTERS:
        t = Tokenizer(models.BPE(vocab, merges, ignore_merges=v["pre"] in WHOLE_WORDS))
        if v["pre"] in COMPOSING:
            t.normalizer = normalizers.NFC()
        t.pre_tokenizer = pretokenizer(v["pre"])
        t.decoder = decoders.ByteLevel()
    else:
        t = Tokenizer(models.BPE(vocab, merges or merges_by_score(v), unk_token=v["tokens"][v.get("unk", 0)],
                                 fuse_unk=True, byte_fallback=True))
        adds_space = v.get("add_space_prefix", v["model"] == "spm")
        steps = [normalizers.Prepend("▁")] if adds_space else []
        t.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", "▁")])
        t.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
            + ([decoders.Strip(" ", 1, 0)] if adds_space else []))
    added = [(token, kind == USER_DEFINED) for token, kind in zip(v["tokens"], v["types"])
             if kind in (CONTROL, UNKNOWN, USER_DEFINED)]
    for is_users, group in itertools.groupby(added, key=lambda entry: entry[1]):  # thousands, one by one, take seconds
        tokens = [AddedToken(token, special=not is_users, normalized=False) for token, _ in group]
        (t.add_tokens if is_users else t.add_special_tokens)(tokens)
    return t


# --- cases ------------------------------------------------------------------------------------------


def escape(data):
    """One line, whatever the bytes: UTF-8 as it is, control characters and broken bytes as \\xHH."""
    try:
        data.decode()
        escaped = rb"[\x00-\x1f\x5c\x7f]"
    except UnicodeDecodeError:
        escaped = rb"[^\x20-\x7e]|\x5c"
    return re.sub(escaped, lambda byte: b"\\x%02x" % byte[0][0], data) + b"\n"


class Folder:
    """Cases on their way to a folder."""

    def __init__(self, path, strings):
        self.path, self.cases = pathlib.Path(path), []
        self.strings = list(strings)
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "strings.txt").write_bytes(b"".join(map(escape, self.strings)))

    def add(self, name, tokenizer, vocabulary, add_special=False, parse_special=True,
            decodes=True, **extra):
        """`vocabulary`: the file that C++ reads; where it ends in tokenizer.json, as that."""
        tokenizer.encode_special_tokens = not parse_special
        texts = [s.decode("utf-8", errors="replace") for s in self.strings]
        ids = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=add_special)]
        (self.path / f"{name}.ids").write_text(
            "".join(" ".join(map(str, line)) + "\n" for line in ids), encoding="ascii")
        if decodes:
            texts = tokenizer.decode_batch(ids, skip_special_tokens=True)
            (self.path / f"{name}.text").write_bytes(b"".join(escape(t.encode()) for t in texts))
        self.cases.append({"name": name, "vocabulary": vocabulary, "add_special": add_special,
                           "parse_special": parse_special, "decodes": decodes, **extra})

    def write_vocabulary(self, name, v):
        text = json.dumps(v, ensure_ascii=False, separators=(",", ":"))
        (self.path / name).write_text(text, encoding="utf-8")

    def finish(self):
        (self.path / "cases.json").write_text(json.dumps(self.cases, indent=1) + "\n", encoding="ascii")


# --- small vocabularies -----------------------------------------------------------------------------


def corpus():
    prose = text_strings.PROSE
    return prose * 3 + [f"{a} {b}" for a, b in zip(prose, prose[1:])] + ["12 123 1234 12345"] * 9


def crossing_bpe(size):
    """A byte-level vocabulary trained without splitting: its tokens cross every boundary that a
    pre-tokenizer could draw, so that a boundary in the wrong place changes the ids."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = byte_level()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, show_progress=False, max_token_length=12,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return {"model": "bpe", "pre": "default", "tokens": tokens,
            "types": [CONTROL] * 3 + [NORMAL] * (len(tokens) - 3),
            "merges": [" ".join(m) if isinstance(m, list) else m for m in model["merges"]],
            "bos": 1, "eos": 2, "add_bos": False}


def scored_spm(size, adds_space):
    """A SentencePiece-style vocabulary: control, bytes, then pieces by score."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, show_progress=False, limit_alphabet=150, max_token_length=10))
    model = json.loads(t.to_str())["model"]
    alphabet = [x for x in sorted(model["vocab"], key=model["vocab"].get) if len(x) == 1]
    pieces = [x for x in sorted(model["vocab"], key=model["vocab"].get) if len(x) > 1]
    user = ["\n\n", "\n\n\n", "  ", "   ", "[tool]"]
    specials = ["<unk>", "<s>", "</s>", "<start_of_turn>"]
    tokens = specials + user + [f"<0x{b:02X}>" for b in range(256)]
    types = [UNKNOWN] + [CONTROL] * 3 + [USER_DEFINED] * len(user) + [BYTE] * 256
    scores = [0.0] * len(tokens)
    pieces = [x for x in pieces if x not in tokens]
    alphabet = [x for x in alphabet if x not in tokens]
    tokens += pieces + alphabet
    types += [NORMAL] * (len(pieces) + len(alphabet))
    scores += [-float(i) for i in range(len(pieces) + len(alphabet))]
    return {"model": "spm", "pre": "default", "tokens": tokens, "types": types, "scores": scores,
            "unk": 0, "bos": 1, "eos": 2, "add_bos": True, "add_space_prefix": adds_space}


def characters_bpe(size):
    """A vocabulary of merges over characters with "▁" for spaces, and bytes as fallback (Gemma 4)."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(" ", "▁")
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, show_progress=False, limit_alphabet=150, max_token_length=10))
    model = json.loads(t.to_str())["model"]
    tokens = ["<unk>", "<bos>"] + [f"<0x{b:02X}>" for b in range(256)]
    types = [UNKNOWN, CONTROL] + [BYTE] * 256
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    return {"model": "bpe", "pre": "gemma4", "tokens": tokens + pieces, "types": types + [NORMAL] * len(pieces),
            "merges": [" ".join(m) if isinstance(m, list) else m for m in model["merges"]],
            "unk": 0, "bos": 1, "add_bos": False}


def whitespace_words(size):
    """Merges over the characters of words, white space left out, and the vocabulary of it."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Lowercase()
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=size, show_progress=False, limit_alphabet=200))
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return t, {"model": "bpe", "pre": "whitespace", "tokens": tokens, "types": [NORMAL] * len(tokens),
               "merges": [" ".join(m) if isinstance(m, list) else m for m in model["merges"]], "lowercase": True}


def small_wordpiece(lowercase):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=900, show_progress=False, limit_alphabet=250,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))])
    t.decoder = decoders.WordPiece()
    return t


def small_json_bpe():
    """Byte-level BPE with every way in which a tokenizer.json lets added tokens take their surroundings."""
    t = to_hugging_face({**crossing_bpe(500), "pre": "qwen2"})
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False),
                          AddedToken("<|user|>", rstrip=True, normalized=False),
                          AddedToken("[both]", lstrip=True, rstrip=True, normalized=False)])
    t.add_tokens([AddedToken("alone", single_word=True, normalized=False),
                  AddedToken("caf\u00e9", normalized=True), AddedToken("e\u0301t", normalized=True)])
    t.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|>",
        special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)])
    return t


def small_metaspace(scheme, split):
    v = scored_spm(600, False)
    t = to_hugging_face(v)
    t.normalizer = None
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|", "<unk>", "<s>", "</s>",
            "<start_of_turn>", "[tool]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "[mask]", "<mask>",
            "<|user|>", "[both]", "alone", "café", "cafe\u0301", "été", "e\u0301te\u0301", "<eos>",
            "<bos>", "<end_of_turn>", "<unused7>", "[multimodal]", "<table>", "<repo_name>"]


def write_fixtures(path):
    strings = [s for s in text_strings.generate(420, SEED, SPECIALS) if len(s) < 140][:200]
    folder = Folder(path, strings)

    v = crossing_bpe(900)
    folder.write_vocabulary("bpe.vocabulary.json", v)
    for family in FAMILIES:
        folder.add(f"bpe_{family}", to_hugging_face({**v, "pre": family}), "bpe.vocabulary.json", pre=family,
                   decodes=family == "smollm")
    folder.add("bpe_plain_specials", to_hugging_face({**v, "pre": "qwen2"}), "bpe.vocabulary.json",
               pre="qwen2", parse_special=False)

    for name, adds_space in [("spm_prefix", True), ("spm", False)]:
        v = scored_spm(700, adds_space)
        folder.write_vocabulary(f"{name}.vocabulary.json", v)
        folder.add(name, to_hugging_face(v), f"{name}.vocabulary.json")

    for name, t in [("wordpiece_uncased", small_wordpiece(True)), ("wordpiece_cased", small_wordpiece(False)),
                    ("json_bpe", small_json_bpe()), ("json_metaspace_first", small_metaspace("first", True)),
                    ("json_metaspace_always", small_metaspace("always", False))]:
        t.save(str(folder.path / f"{name}.tokenizer.json"), pretty=False)
        # Hugging Face takes letters of added tokens for the byte alphabet's and garbles them.
        folder.add(name, t, f"{name}.tokenizer.json", add_special=True, decodes=name != "json_bpe")
    add_kinds(folder, [("json_unigram", dict(tokenizer_kinds.unigrams())["unigram_xlm"])])
    add_reference(folder, "unigram", sentencepiece_unigram(True))
    folder.finish()
    print(f"seed {SEED}, {len(strings)} strings, {len(folder.cases)} tokenizers")


def compare(program, count, seed, keep):
    root = pathlib.Path(os.environ.get("TENON_TEST_MODELS", "/nonexistent"))
    smollm2 = root / "SmolLM2-135M-Instruct.Q4_1.gguf"
    gemma = root / "gemma-3-270m-q4_k_m.gguf"
    minilm = root / "all-MiniLM-L6-v2" / "tokenizer.json"
    if not (smollm2.exists() and gemma.exists() and minilm.exists()):
        print("SKIPPED: TENON_TEST_MODELS does not name a folder with the models")
        return 77
    with tempfile.TemporaryDirectory() as temporary:
        strings = list(text_strings.generate(count, seed, SPECIALS))
        strings += [s.encode() for s in text_strings.every_character()]
        print(f"seed {seed}, {len(strings)} strings", flush=True)
        folder = Folder(keep or temporary, strings)
        v = from_gguf(smollm2)
        folder.write_vocabulary("smollm2.vocabulary.json", v)
        folder.add("smollm2", to_hugging_face(v), "smollm2.vocabulary.json")
        v = from_gguf(gemma)
        folder.write_vocabulary("gemma.vocabulary.json", v)
        folder.add("gemma", to_hugging_face(v), "gemma.vocabulary.json")
        t = Tokenizer.from_file(str(minilm))
        t.no_truncation()
        t.no_padding()
        folder.add("minilm", t, str(minilm.resolve()), add_special=True)
        folder.finish()
        return subprocess.run([program, str(folder.path)], check=False).returncode


def xlm_roberta(path):
    """A unigram vocabulary of a GGUF file with the steps of XLM-RoBERTa's tokenizer.json."""
    fields = gguf.GGUFReader(path).fields
    take = lambda key: fields["tokenizer.ggml." + key].contents()
    pieces = list(zip(take("tokens"), take("scores")))[:250002]  # without the unused ones
    t = Tokenizer(models.Unigram(pieces, take("unknown_token_id")))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(bytes(take("precompiled_charsmap"))),
                                         normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    t.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return t


def vocabularies(program, count, seed, keep):
    root = pathlib.Path(os.environ.get("TENON_TEST_VOCABULARIES", "/nonexistent"))
    files = sorted(root.glob("*.gguf"))
    if not files:
        print("SKIPPED: TENON_TEST_VOCABULARIES names no folder of llama.cpp's vocabulary-only files")
        return 77
    with tempfile.TemporaryDirectory() as temporary:
        folder = Folder(keep or temporary, text_strings.generate(count, seed, SPECIALS))
        print(f"seed {seed}, {count} strings", flush=True)
        for file in files:
            name = file.stem.removeprefix("ggml-vocab-")
            if name == "bert-bge":
                continue  # no tokenizer of Hugging Face's is made of it here
            if name == "nomic-bert-moe":
                add_kinds(folder, [(name, xlm_roberta(file))])
                continue
            v = from_gguf(file)
            folder.write_vocabulary(f"{name}.vocabulary.json", v)
            folder.add(name, to_hugging_face(v), f"{name}.vocabulary.json", decodes=False)
        folder.finish()
        return subprocess.run([program, str(folder.path)], check=False).returncode


# --- models that Hugging Face has no counterpart of, and SentencePiece's way to prepare text -----------


class Ids:
    """The part of an encoding that Folder.add asks for."""

    def __init__(self, ids):
        self.ids = ids


class Reference:
    """A tokenizer as Folder.add uses it, of a function from a text to ids and one from ids to bytes."""

    encode_special_tokens = False

    def __init__(self, encode, decode):
        self.encode, self.decode = encode, decode

    def encode_batch(self, texts, add_special_tokens):
        return [Ids(self.encode(text)) for text in texts]

    def decode_batch(self, lines, skip_special_tokens):
        return [self.decode(ids).decode("utf-8", errors="replace") for ids in lines]


def rwkv():
    """Greedy longest match over bytes, by a dictionary."""
    pieces = {bytes([b]) for b in range(256)}
    pieces |= {w.encode() for line in text_strings.PROSE for w in line.split(" ") if w}
    pieces |= {(" " + w).encode()[:6] for w in text_strings.words()} | {b"\n\n", b"\r\n", b"\\x", b"\\n"}
    pieces = sorted(pieces, key=lambda p: (len(p), p))
    escapes = {0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}

    def spelled(piece):
        try:
            return "".join(escapes.get(ord(c), c) for c in piece.decode())
        except UnicodeDecodeError:
            return "".join(f"\\x{b:02x}" for b in piece)

    ids = {piece: i + 1 for i, piece in enumerate(pieces)}
    longest = max(map(len, pieces))

    def encode(text):
        data, at, out = text.encode(), 0, []
        while at < len(data):
            size = next(n for n in range(longest, 0, -1) if data[at:at + n] in ids)
            out.append(ids[data[at:at + size]])
            at += size
        return out

    # The bytes that are no characters by themselves have a token "\\xHH".
    tokens = ["<s>"] + [spelled(p) for p in pieces]
    v = {"model": "rwkv", "tokens": tokens, "types": [CONTROL] + [NORMAL] * len(pieces)}
    return v, Reference(encode, lambda line: b"".join(pieces[i - 1] for i in line))


def plamo2(seed):
    """The way with the highest sum of rounded scores from right to left, by trying all tokens."""
    rng = random.Random(seed)
    pieces = sorted({w[:n] for line in text_strings.PROSE for w in line.split(" ") for n in (1, 2, 3, 5)
                     if w[:n] and rng.randrange(4)} | {" ", "  ", "\n", "th", "he", "the"})
    scores = [-rng.randrange(1, 40) / 2 for _ in pieces]  # so coarse that equal sums are common
    tokens = ["<|plamo:unk|>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces
    v = {"model": "plamo2", "tokens": tokens, "types": [UNKNOWN] + [BYTE] * 256 + [NORMAL] * len(pieces),
         "scores": [0.0] * 257 + scores, "unk": 0}
    units = {p: (round(s * 1e4), 257 + i) for i, (p, s) in enumerate(zip(pieces, scores))}
    longest = max(map(len, pieces))

    def encode(text):
        text = text.removeprefix("\ufeff")
        best = [(0, None, None)] * (len(text) + 1)
        for at in range(len(text) - 1, -1, -1):
            best[at] = (best[at + 1][0] - 10**7, 1, None)
            for size in range(1, min(longest, len(text) - at) + 1):
                found = units.get(text[at:at + size])
                if found and best[at + size][0] + found[0] >= best[at][0]:
                    best[at] = (best[at + size][0] + found[0], size, found[1])
        at, out = 0, []
        while at < len(text):
            _, size, token = best[at]
            out += [token] if token is not None else [1 + b for b in text[at].encode()]
            at += size
        return out

    spell = lambda i: bytes([i - 1]) if i < 257 else pieces[i - 257].encode()
    return v, Reference(encode, lambda line: b"".join(map(spell, line)))


def hybrid_dna():
    """Byte-level BPE by Hugging Face, and a dictionary of six bases between <dna> and </dna>."""
    v = crossing_bpe(900)
    words = to_hugging_face({**v, "pre": "gpt-2"})
    first = len(v["tokens"])
    bases = ["".join(b) for b in itertools.product("ACGT", repeat=6)]
    ids = {b: first + 3 + i for i, b in enumerate(bases)}
    v = {**v, "model": "hybriddna", "pre": "gpt-2", "types": v["types"] + [NORMAL] * (3 + len(bases)),
         "tokens": v["tokens"] + ["<dna>", "</dna>", "<oov>"] + [b + "\ue000" for b in bases]}

    def encode(text):
        out = []
        for i, part in enumerate(re.split("(<dna>.*?(?:</dna>|$))", text, flags=re.DOTALL | re.ASCII)):
            if i % 2 == 0:
                out += words.encode(part).ids
                continue
            inner = part.removeprefix("<dna>").removesuffix("</dna>").encode()
            sixes = [inner[at:at + 6].upper().ljust(6, b"A").decode("latin-1") for at in range(0, len(inner), 6)]
            out += [first] + [ids.get(six, first + 2) for six in sixes] + [first + 1] * part.endswith("</dna>")
        return out

    words.encode_special_tokens = True
    return v, Reference(encode, None)


def sentencepiece_unigram(removes_spaces):
    """A unigram vocabulary as GGUF files hold it: SentencePiece's steps, written out, before
    Hugging Face's model."""
    model = tokenizer_kinds.unigram(pre=pre_tokenizers.Metaspace(split=False))
    saved = json.loads(model.to_str())["model"]
    for piece in saved["vocab"]:  # GGUF files hold scores in f32, whose rounding decides among equals
        piece[1] = struct.unpack("f", struct.pack("f", piece[1]))[0]
    rules = tokenizer_kinds.rules()
    longest = max(map(len, rules))
    # Hugging Face's model finds control tokens in text, so they get spellings that no text has.
    pieces = [(chr(0xF0000 + i), score) for i, (_, score) in enumerate(saved["vocab"][:3])]
    inner = Tokenizer(models.Unigram(pieces + [tuple(p) for p in saved["vocab"][3:]], saved["unk_id"]))

    def prepared(text):
        data, at, out = text.encode(), 0, bytearray()
        while at < len(data):
            size = next((n for n in range(longest, 0, -1) if data[at:at + n] in rules), 0)
            out += rules[data[at:at + size]] if size else data[at:at + 1]
            at += size or 1
        text = out.decode()
        if removes_spaces:
            text = " ".join(part for part in text.split(" ") if part)
        return "▁" + text.replace(" ", "▁") if text else ""

    tokens = [piece for piece, _ in saved["vocab"]]
    v = {"model": "unigram", "tokens": tokens, "types": [UNKNOWN, CONTROL, CONTROL] + [NORMAL] * (len(tokens) - 3),
         "scores": [score for _, score in saved["vocab"]], "unk": 0, "eos": 2, "add_eos": False,
         "add_space_prefix": True, "remove_extra_spaces": removes_spaces,
         "charsmap": base64.b16encode(tokenizer_kinds.precompiled(rules)).decode()}

    def encode(text):
        return inner.encode(prepared(text)).ids if prepared(text) else []

    def decode(ids):
        text = "".join(tokens[i] for i in ids if i > 2).replace("▁", " ")
        return text.removeprefix(" ").encode()

    return v, Reference(encode, decode)


def add_reference(folder, name, made, decodes=True):
    v, reference = made
    folder.write_vocabulary(f"{name}.vocabulary.json", v)
    folder.add(name, reference, f"{name}.vocabulary.json", parse_special=False, decodes=decodes)


def trained(program, count, seed, keep):
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(keep or temporary)
        bases = ["<dna>", "</dna>", "<dna>ACGTACGTTTGACA</dna>", "<dna>acgtn</dna>"]
        strings = list(text_strings.generate(count, seed, SPECIALS + bases))
        print(f"seed {seed}, {len(strings)} strings", flush=True)
        # Each way of splitting with every string and, with 5,000 of them, every character, each name with some.
        characters = [s.encode() for s in text_strings.every_character()]
        step = max(1, 5000 // max(1, count))
        ways = Folder(root / "ways", strings + characters[seed % step :: step])
        names = Folder(root / "names", strings[:200])
        crossing = crossing_bpe(4000)
        for folder, chosen in [(ways, [group[0] for group in NAMES]),
                               (names, [name for group in NAMES for name in group])]:
            folder.write_vocabulary("crossing.vocabulary.json", crossing)
            for name in chosen:
                folder.add(name, to_hugging_face({**crossing, "pre": name}), "crossing.vocabulary.json", pre=name)
        kinds = Folder(root / "kinds", strings)
        add_kinds(kinds, [*tokenizer_kinds.unigrams(), *tokenizer_kinds.words()])
        for name, normalizer, pre in tokenizer_kinds.step_cases():
            t = to_hugging_face({**crossing_bpe(900), "pre": "gpt-2"})
            t.normalizer = normalizer
            t.pre_tokenizer = pre_tokenizers.Sequence([pre] * (pre is not None) + [byte_level()])
            add_kinds(kinds, [(name, t)], decodes=False)
        v = characters_bpe(900)
        kinds.write_vocabulary("characters.vocabulary.json", v)
        for name in sorted(CHARACTERS):
            kinds.add(name, to_hugging_face({**v, "pre": name}), "characters.vocabulary.json", pre=name)
        t, v = whitespace_words(900)
        kinds.write_vocabulary("whitespace.vocabulary.json", v)
        kinds.add("whitespace", t, "whitespace.vocabulary.json", decodes=False)
        add_reference(kinds, "rwkv", rwkv())
        add_reference(kinds, "hybriddna", hybrid_dna(), decodes=False)
        add_reference(kinds, "plamo2", plamo2(seed))
        for removes_spaces in (False, True):
            add_reference(kinds, f"unigram_gguf_{removes_spaces}", sentencepiece_unigram(removes_spaces))
        codes = []
        for folder in (ways, names, kinds):
            folder.finish()
            codes.append(subprocess.run([program, str(folder.path)], check=False).returncode)
        return max(codes)


def add_kinds(folder, tokenizers, decodes=True):
    for name, t in tokenizers:
        t.save(str(folder.path / f"{name}.tokenizer.json"), pretty=False)
        folder.add(name, t, f"{name}.tokenizer.json", add_special=True, decodes=decodes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    fixtures = commands.add_parser("fixtures")
    fixtures.add_argument("folder")
    against = commands.add_parser("compare")
    against.add_argument("program")
    against.add_argument("--count", type=int, default=int(os.environ.get("TENON_TEXT_STRINGS", "10000")))
    against.add_argument("--seed", type=int, default=SEED)
    against.add_argument("--keep", help="write the cases to this folder and leave them there")
    for name in ("trained", "vocabularies"):
        small = commands.add_parser(name)
        small.add_argument("program")
        small.add_argument("--count", type=int, default=int(os.environ.get("TENON_TEXT_STRINGS", "5000")))
        small.add_argument("--seed", type=int, default=SEED)
        small.add_argument("--keep", help="write the cases to this folder and leave them there")
    arguments = parser.parse_args()
    if arguments.command == "fixtures":
        write_fixtures(arguments.folder)
        return 0
    run = {"compare": compare, "trained": trained, "vocabularies": vocabularies}[arguments.command]
    return run(arguments.program, arguments.count, arguments.seed, arguments.keep)


if __name__ == "__main__":
    sys.exit(main())

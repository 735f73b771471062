#!/usr/bin/env python3
"""Expected token ids from Hugging Face's `tokenizers`, for tests/text.

    text_oracle.py fixtures tests/text/data          small vocabularies and cases, kept in git
    text_oracle.py compare PROGRAM [--count 10000]  real vocabularies from $TENON_TEST_MODELS:
                                                     writes cases to a temporary folder and lets
                                                     PROGRAM (tenon_text_compare) check them

Exits with 77 (skipped) where the models or the packages are missing. A folder of cases holds
strings.txt (one string a line, escaped), NAME.ids (a line of ids per string), for some NAME.text
(what decoding those gives) and cases.json, which says what NAME was made with.
"""

import argparse
import json
import os
import pathlib
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

import text_strings

SEED = 20240229
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# --- pre-tokenizers, as the families' own tokenizer.json files have them ----------------------------

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
LLAMA3 = WORDS + r"|\p{N}{1,3}" + TAIL
QWEN2 = WORDS + r"|\p{N}" + TAIL
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
    steps = {
        "gpt-2": [byte_level(True)],
        "mpt": [byte_level(True)],
        "smollm": [digits, byte_level(True)],
        "starcoder": [digits, byte_level(True)],
        "refact": [digits, byte_level(True)],
        "command-r": [digits, byte_level(True)],
        "llama-bpe": [isolate(LLAMA3), byte_level()],
        "qwen2": [isolate(QWEN2), byte_level()],
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


FAMILIES = ["gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm", "deepseek-coder", "falcon",
            "starcoder", "refact", "command-r", "mpt", "default"]
COMPOSING = {"qwen2", "command-r", "mpt"}

# --- vocabularies as GGUF files hold them -----------------------------------------------------------


def from_gguf(path):
    reader = gguf.GGUFReader(path)
    take = lambda key: (f := reader.fields.get("tokenizer.ggml." + key)) and f.contents()
    v = {"model": {"gpt2": "bpe", "llama": "spm", "bert": "wordpiece"}[take("model")],
         "pre": take("pre"), "tokens": take("tokens"), "types": take("token_type")}
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
    if v["model"] == "bpe":
        merges = [tuple(m.split(" ")) for m in v["merges"]]
        t = Tokenizer(models.BPE(vocab, merges, ignore_merges=v["pre"] == "llama-bpe"))
        if v["pre"] in COMPOSING:
            t.normalizer = normalizers.NFC()
        t.pre_tokenizer = pretokenizer(v["pre"])
        t.decoder = decoders.ByteLevel()
    else:
        t = Tokenizer(models.BPE(vocab, merges_by_score(v), unk_token=v["tokens"][v["unk"]],
                                 fuse_unk=True, byte_fallback=True))
        adds_space = v.get("add_space_prefix", True)
        steps = [normalizers.Prepend("▁")] if adds_space else []
        t.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", "▁")])
        t.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
            + ([decoders.Strip(" ", 1, 0)] if adds_space else []))
    for token, kind in zip(v["tokens"], v["types"]):
        if kind in (CONTROL, UNKNOWN, USER_DEFINED):
            added = AddedToken(token, special=kind != USER_DEFINED, normalized=False)
            (t.add_tokens if kind == USER_DEFINED else t.add_special_tokens)([added])
    return t


# --- cases ------------------------------------------------------------------------------------------


def escape(data):
    """One line, whatever the bytes: UTF-8 as it is, control characters and broken bytes as \\xHH."""
    try:
        data.decode()
        keep = lambda b: b >= 0x20 and b not in (0x5C, 0x7F)
    except UnicodeDecodeError:
        keep = lambda b: 0x20 <= b < 0x7F and b != 0x5C
    return b"".join(bytes([b]) if keep(b) else b"\\x%02x" % b for b in data) + b"\n"


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
        crossing = crossing_bpe(4000)
        folder.write_vocabulary("smollm2.vocabulary.json", v)
        folder.write_vocabulary("crossing.vocabulary.json", crossing)
        folder.add("smollm2", to_hugging_face(v), "smollm2.vocabulary.json")
        for family in FAMILIES:
            folder.add(f"crossing_{family}", to_hugging_face({**crossing, "pre": family}),
                       "crossing.vocabulary.json", pre=family)
        v = from_gguf(gemma)
        folder.write_vocabulary("gemma.vocabulary.json", v)
        folder.add("gemma", to_hugging_face(v), "gemma.vocabulary.json")
        t = Tokenizer.from_file(str(minilm))
        t.no_truncation()
        t.no_padding()
        folder.add("minilm", t, str(minilm.resolve()), add_special=True)
        folder.finish()
        return subprocess.run([program, str(folder.path)], check=False).returncode


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
    arguments = parser.parse_args()
    if arguments.command == "fixtures":
        write_fixtures(arguments.folder)
        return 0
    return compare(arguments.program, arguments.count, arguments.seed, arguments.keep)


if __name__ == "__main__":
    sys.exit(main())

"""Small tokenizers of every kind that a tokenizer.json can hold, trained with Hugging Face's `tokenizers`."""

import base64
import json
import struct
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

import text_strings

SPECIALS = ["<unk>", "<s>", "</s>"]


def corpus():
    return text_strings.PROSE * 3


# --- SentencePiece's tables of replacements -----------------------------------------------------------


def precompiled(rules):
    """The table of {bytes: bytes}: a double-array trie as Darts-clone lays it out, and the results."""
    replacements, places = bytearray(), {}
    for value in rules.values():
        if value not in places:
            places[value] = len(replacements)
            replacements += value + b"\0"
    units, used, bases = [None], {0}, set()

    def grow(size):
        while len(units) < size:
            units.append(None)

    def place(prefix, node, label):
        """Lays out the children of a node, whose unit is `node`, and returns the unit's word."""
        keys = sorted({k[len(prefix)] for k in rules if k.startswith(prefix) and len(k) > len(prefix)})
        has_value = prefix in rules
        wanted = ([0] if has_value else []) + keys
        base = 0
        # A unit knows its label only, so that no two nodes may have the same base.
        while base in bases or base == 0 or any((base ^ c) in used for c in wanted):
            base += 1
        bases.add(base)
        used.update(base ^ c for c in wanted)
        grow(max((base ^ c) for c in wanted) + 1 if wanted else 1)
        if has_value:
            units[base] = (1 << 31) | places[rules[prefix]]
        for key in keys:
            child = base ^ key
            grow(child + 1)
            units[child] = place(prefix + bytes([key]), child, key)
        offset = node ^ base
        assert offset < 1 << 21
        return (offset << 10) | label | ((1 << 8) if has_value else 0)

    units[0] = place(b"", 0, 0)
    trie = b"".join(struct.pack("<I", u if u is not None else 0xFF) for u in units)
    return struct.pack("<I", len(trie)) + trie + bytes(replacements)


def rules():
    """Part of NFKC, and entries of several characters whose beginnings are entries, too."""
    wanted = {c: unicodedata.normalize("NFKC", c) for c in map(chr, range(0xA0, 0x2100))
              if unicodedata.normalize("NFKC", c) != c}
    for c in map(chr, [*range(0x2460, 0x24FF), *range(0xFB00, 0xFB07), *range(0xFF01, 0xFFEF)]):
        wanted[c] = unicodedata.normalize("NFKC", c)
    wanted |= {"e\u0301": "é", "A\u030a": "Å", "\r\n": " ", "\t": " ", "\n": " ", "\u3000": " ", "\x0b": "",
               "\u200b": "", "ſ": "s", "ſſ": "ß", "ab́": "X", "1\u20e3": "one", "が": "が", "\u1100\u1161": "가"}
    return {k.encode(): v.encode() for k, v in wanted.items()}


# --- unigram ------------------------------------------------------------------------------------------


def unigram(size=1800, byte_fallback=False, pre=None, normalizer=None, alphabet=150):
    t = Tokenizer(models.Unigram())
    if normalizer is not None:
        t.normalizer = normalizer
    t.pre_tokenizer = pre or pre_tokenizers.Metaspace()
    bytes_ = [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, unk_token="<unk>", special_tokens=SPECIALS + bytes_,
        initial_alphabet=list("abc ▁")))
    if byte_fallback or alphabet:
        saved = json.loads(t.to_str())
        vocab = saved["model"]["vocab"]
        # Some characters lose their token, so that there is something unknown in the corpus itself.
        kept = [[p, s] for i, (p, s) in enumerate(vocab)
                if i < 3 + len(bytes_) or len(p) > 1 or p == "▁" or i % 5 != 0]
        if byte_fallback:
            saved["added_tokens"] = [a for a in saved["added_tokens"] if a["id"] < 3]
        saved["model"].update(vocab=kept, byte_fallback=byte_fallback)
        t = Tokenizer.from_str(json.dumps(saved))
    t.decoder = decoders.Metaspace() if not byte_fallback else decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def unigrams():
    nfkc = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(),
                                 normalizers.Replace(Regex(" {2,}"), " ")])
    table = normalizers.Precompiled(precompiled(rules()))
    yield "unigram", unigram()
    yield "unigram_nmt", unigram(normalizer=nfkc)
    yield "unigram_t5", unigram(
        normalizer=table, pre=pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]))
    yield "unigram_xlm", unigram(
        normalizer=normalizers.Sequence([table, normalizers.Replace(Regex(" {2,}"), " ")]))
    yield "unigram_albert", unigram(normalizer=normalizers.Sequence(
        [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
         normalizers.StripAccents(), normalizers.Lowercase(), table,
         normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]))
    yield "unigram_bytes", unigram(size=2000, byte_fallback=True)
    yield "unigram_whole", unigram(pre=pre_tokenizers.Metaspace(split=False))
    yield "unigram_first", unigram(pre=pre_tokenizers.Metaspace(prepend_scheme="first"))
    yield "unigram_scripts_apart", unigram(pre=pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation(), pre_tokenizers.Digits(True), pre_tokenizers.Metaspace()]))


# --- words ----------------------------------------------------------------------------------------------


def word_level(pre, normalizer=None, decoder=None):
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.pre_tokenizer = pre
    if normalizer is not None:
        t.normalizer = normalizer
    t.train_from_iterator(corpus(), trainers.WordLevelTrainer(
        vocab_size=1500, show_progress=False, special_tokens=SPECIALS))
    if decoder is not None:
        t.decoder = decoder
    return t


def characters_bpe(pre, normalizer=None, suffix="", prefix="", unk=True, fuse=False, decoder=None):
    affixes = {key: value for key, value in [("end_of_word_suffix", suffix), ("continuing_subword_prefix", prefix)]
               if value}
    t = Tokenizer(models.BPE(**({"unk_token": "<unk>"} if unk else {}), fuse_unk=fuse, **affixes))
    t.pre_tokenizer = pre
    if normalizer is not None:
        t.normalizer = normalizer
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=900, show_progress=False, special_tokens=SPECIALS, limit_alphabet=200, **affixes))
    if decoder is not None:
        t.decoder = decoder
    return t


def word_piece(pre, normalizer=None):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    t.pre_tokenizer = pre
    if normalizer is not None:
        t.normalizer = normalizer
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=900, show_progress=False, limit_alphabet=250, special_tokens=["[UNK]", "[CLS]"]))
    t.decoder = decoders.WordPiece(cleanup=False)
    t.add_tokens([AddedToken("alone", single_word=True, normalized=False)])
    return t


def words():
    space = pre_tokenizers.Whitespace()
    clip = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                 normalizers.Lowercase()])
    yield "wordlevel", word_level(space)
    yield "wordlevel_delimiter", word_level(pre_tokenizers.CharDelimiterSplit("e"))
    yield "wordlevel_length", word_level(pre_tokenizers.FixedLength(2))
    yield "wordlevel_bert", word_level(pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer())
    yield "bpe_suffix", characters_bpe(space, clip, suffix="</w>")
    yield "bpe_continuing", characters_bpe(pre_tokenizers.WhitespaceSplit(), prefix="##", fuse=True)
    yield "bpe_no_unknown", characters_bpe(space, normalizers.NFKC(), unk=False)
    yield "wordpiece_generic", word_piece(
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("removed")]),
        normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]))


# --- steps, each before byte-level BPE whose tokens cross every boundary ---------------------------------


def step_cases():
    """Names, normalizers and pre-tokenizers; every step at least once, and their combinations."""
    N, P = normalizers, pre_tokenizers
    for name, n in [("nfc", N.NFC()), ("nfd", N.NFD()), ("nfkc", N.NFKC()), ("nfkd", N.NFKD()),
                    ("lowercase", N.Lowercase()), ("strip_accents", N.StripAccents()), ("nmt", N.Nmt()),
                    ("strip", N.Strip()), ("strip_left", N.Strip(True, False)), ("prepend", N.Prepend("x ")),
                    ("replace", N.Replace("e", "Ee")), ("replace_regex", N.Replace(Regex(r"[aeiou]{2}|\d+"), "#")),
                    ("precompiled", N.Precompiled(precompiled(rules()))),
                    ("bert", N.BertNormalizer(clean_text=True, handle_chinese_chars=True,
                                              strip_accents=True, lowercase=True))]:
        yield f"normalizer_{name}", n, None
    behaviors = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
    for behavior in behaviors:
        yield f"split_{behavior}", None, P.Split(Regex(r"\s|[a-e]+"), behavior)
        yield f"split_{behavior}_inverted", None, P.Split(Regex(r"\w+"), behavior, invert=True)
        yield f"split_{behavior}_text", None, P.Split("e", behavior)
        yield f"punctuation_{behavior}", None, P.Punctuation(behavior)
    for name, p in [("whitespace", P.Whitespace()), ("whitespace_split", P.WhitespaceSplit()),
                    ("bert", P.BertPreTokenizer()), ("digits", P.Digits(False)), ("digit", P.Digits(True)),
                    ("metaspace", P.Metaspace("_", "always")), ("metaspace_first", P.Metaspace("_", "first", False)),
                    ("delimiter", P.CharDelimiterSplit(" ")), ("length", P.FixedLength(3)),
                    ("prefix_space", P.Sequence([P.Whitespace(), P.ByteLevel(add_prefix_space=True)]))]:
        yield f"pre_{name}", None, p
    for name, regex in [("lazy", r"a.*?b|\S"), ("word_edge", r"\b\w+\b"), ("line", r"^\s*.+$"),
                        ("nested", r"(?:(?:a|b)+c?){1,3}|[^a-c]+"), ("counts", r"\w{2,4}|\W{3}|\s"),
                        ("case", r"(?i:the|is|k|[s-u]+)"), ("possessive", r"\p{L}++|\p{^L}?+\d"),
                        ("properties", r"\p{Lu}\p{Ll}*|\p{Han}+|\p{Mn}+|\p{Sc}\p{Nd}+|\P{L}"),
                        ("sets", r"[\p{L}&&[^a-m]]+|[^\s\p{L}&&\p{P}]{2,}|[\x{41}-\u005A\-\]]+"),
                        ("not_edge", r"\B\w|\w(?=\s)|\d(?!\d)")]:
        yield f"regex_{name}", None, P.Split(Regex(regex), "isolated")
    yield "sequence", N.Sequence([N.NFKC(), N.Lowercase()]), P.Sequence(
        [P.WhitespaceSplit(), P.Digits(True), P.Punctuation("merged_with_next")])

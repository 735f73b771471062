"""How the pre-tokenizer names of GGUF files split text: the expressions of llama.cpp's llama-vocab.cpp
or, where its comments quote the one of the family's own tokenizer.json, those. What it adapts to C++'s
expressions is undone: it spells out both cases of (?i:...).

Four names are in text_oracle.py as the families' files have them (falcon, deepseek-llm, deepseek-coder)
or apart (default); gemma4, granite-embed-multi-311m, sarvam-moe and whitespace take no byte alphabet.
"""

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
FIRST = r"[^\r\n\p{L}\p{N}]?"
WORDS = CONTRACTIONS + "|" + FIRST + r"\p{L}+"
SPACES = r"\s+(?!\S)|\s+"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + SPACES
SLASHED_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|" + SPACES
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PUNCTUATED = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
MARKED = r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"


def cased_words(suffix, upper=UPPER, lower=LOWER):
    return f"{FIRST}{upper}*{lower}+{suffix}|{FIRST}{upper}+{lower}*{suffix}"


def without_han(letters):
    return letters[:-1] + r"&&[^\p{Han}]]"


# Names with the same expressions, and these, each applied inside the pieces of the one before.
RECIPES = [
    (["minicpm5"],
     [r"\p{N}{1,3}",
      WORDS + r"|\p{N}+" + REST]),
    (["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
      "jina-v5-nano", "dbrx", "smaug-bpe", "chatglm-bpe", "glm4", "glm5"],
     [WORDS + r"|\p{N}{1,3}" + REST]),
    (["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"],
     [r"\p{N}{1,3}",
      r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      PUNCTUATED + MARKED + r"[\r\n]*|\s*[\r\n]+|" + SPACES]),
    (["spark2_5"],
     [r"\p{N}{1,3}",
      r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      PUNCTUATED + MARKED + r"|[\r\n]|" + SPACES,
      r"\p{N}"]),
    (["youtu"],
     [r"[\uac00-\ud7a3\u3131-\u318e]+"
      + r"|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
      + r"|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      cased_words(CONTRACTIONS + "?") + r"|\p{N}" + SLASHED_REST]),
    (["mpt", "gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0",
      "mellum", "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "olmo", "jais", "exaone4",
      "trillion", "granite-docling"],
     [r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"]),
    (["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
     [r"\p{N}",
      r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"]),
    (["jais-2"],
     [WORDS
      + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)"
      + r"|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"]),
    (["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "grok-2",
      "solar-open"],
     [WORDS + r"|\p{N}" + REST]),
    (["qwen35"],
     [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|" + SPACES]),
    (["poro-chat", "bloom", "gpt3-finnish"],
     [r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"]),
    (["viking"],
     [r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",
      r"\p{N}"]),
    (["tekken"],
     [cased_words("") + r"|\p{N}" + SLASHED_REST]),
    (["exaone-moe"],
     [CONTRACTIONS
      + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+"
      + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|"
      + SPACES]),
    (["chameleon"],
     [r"<sentinel:[0-9]+>",
      r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
      r"([\t\n]|    |  )",
      r"\p{N}",
      r"[\p{P}!-/:-@\[-`{-~]",
      r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"]),
    (["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
     [cased_words(CONTRACTIONS + "?") + r"|\p{N}{1,3}" + SLASHED_REST]),
    (["granite-embed-multi-97m"],
     [cased_words(CONTRACTIONS + "?", r"((?=[\p{L}\p{M}])([^a-z]))", r"((?=[\p{L}\p{M}])([^A-Z]))")
      + r"|\p{N}{1,3}" + SLASHED_REST]),
    (["tiny_aya", "cohere2moe"],
     [r"\d{1,3}(?=(?:\d{3})*\b)",
      cased_words(CONTRACTIONS + "?") + r"|\p{N}{1,3}" + SLASHED_REST]),
    (["superbpe"],
     [r"\p{N}+",
      r"(?=(\d{3})+(?!\d))"]),
    (["bailingmoe", "bailingmoe2", "llada-moe"],
     [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+"
      + r"|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
      + SPACES]),
    (["seed-coder"],
     [WORDS + r"|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|" + SPACES]),
    (["kimi-k2"],
     [r"[\p{Han}]+|" + cased_words(CONTRACTIONS + "?", without_han(UPPER), without_han(LOWER))
      + r"|\p{N}{1,3}" + REST]),
    (["ufakzeka"],
     [r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST]),
    (["afmoe"],
     [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
      r"[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
      r"\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
      PUNCTUATED + MARKED + r"[\r\n]*|\s*[\r\n]+|" + SPACES]),
    (["laguna"],
     [r"[^\n]+|[\n]+",
      WORDS + r"|\p{N}" + REST]),
]

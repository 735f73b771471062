#!/usr/bin/env python3
"""Tokenizing 1 MB of text on one thread: Tenon and Hugging Face's `tokenizers`, side by side.

    benchmarks/tokenizing.py build/release/benchmarks/bench_tokenizing

Needs the packages of scripts/oracle_requirements.txt. The vocabularies are trained here: on the prose of
python/tests/text_strings.py and the documentation, which are the text, too. Both sides encode the whole text
at once; the shortest of several runs counts, in processor time.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"  # before the package is loaded
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python" / "tests"))

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers, Regex  # noqa: E402

import pretokenizer_names  # noqa: E402
import text_strings  # noqa: E402


def text():
    parts = text_strings.PROSE * 4 + [p.read_text(encoding="utf-8") for p in sorted((ROOT / "docs").glob("*.md"))]
    whole = "\n".join(parts)
    return (whole * (1_000_000 // len(whole.encode()) + 1))[:1_000_000]


def expression(name):
    return next(e for names, e in pretokenizer_names.RECIPES if name in names)


def bpe(name, corpus):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(e), "isolated") for e in expression(name)]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=16000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def unigram(corpus):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(corpus, trainers.UnigramTrainer(
        vocab_size=16000, show_progress=False, unk_token="<unk>", special_tokens=["<unk>"]))
    t.decoder = decoders.Metaspace()
    return t


def shortest(run):
    best = 1e9
    for _ in range(5):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def main():
    program = sys.argv[1]
    whole = text()
    corpus = whole[:400_000].split("\n")
    print("| tokenizer | Tenon, MB/s | `tokenizers`, MB/s | ratio |\n|---|---|---|---|")
    for name, t in [("BPE, split like Qwen2", bpe("qwen2", corpus)), ("BPE, split like GPT-4o", bpe("gpt-4o", corpus)),
                    ("BPE, split like DeepSeek-V3", bpe("deepseek-v3", corpus)), ("unigram, NFKC", unigram(corpus))]:
        with tempfile.TemporaryDirectory() as folder:
            files = [f"{folder}/tokenizer.json", f"{folder}/text"]
            t.save(files[0])
            pathlib.Path(files[1]).write_text(whole, encoding="utf-8")
            said = subprocess.run([program, *files], check=True, capture_output=True, text=True).stdout.split()
        expected = len(t.encode(whole).ids)
        assert int(said[0]) == expected, f"{name}: {said[0]} tokens, not {expected}"
        size = len(whole.encode()) / 1e6
        ours, theirs = size / float(said[2]), size / shortest(lambda: t.encode(whole))
        print(f"| {name} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.1f} |", flush=True)


if __name__ == "__main__":
    main()

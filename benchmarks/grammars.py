#!/usr/bin/env python3
"""Times the mask of allowed tokens beside llama.cpp's, along random texts of the grammars of record_grammars.py.

Needs the package tenon and `llama-cpp-python`; both work in one thread. Prints milliseconds per mask, their mean and
median of both, interleaved:

    benchmarks/grammars.py MODEL.gguf...
"""

import ctypes
import pathlib
import random
import statistics
import sys
import time

import llama_cpp
import numpy as np

import tenon

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python/tests"))
from record_grammars import GRAMMARS

NAMES = {1: "words and numbers", 2: "JSON", 3: "arithmetic", 4: "Japanese, Cyrillic", 5: "a block of code", 7: "chess"}


def times(vocabulary, count, tokenizer, grammar, generator):
    """Seconds of each mask: (llama.cpp, Tenon)."""
    data = (llama_cpp.llama_token_data * count)()
    view = np.frombuffer(data, dtype=[("id", "i4"), ("logit", "f4"), ("p", "f4")])
    sampler = llama_cpp.llama_sampler_init_grammar(vocabulary, grammar.encode(), b"root")
    constraint = tenon.TokenConstraint(tenon.Grammar.parse(grammar), tokenizer)
    measured = []
    for _ in range(40):
        view["id"], view["logit"] = np.arange(count), 0
        tokens = llama_cpp.llama_token_data_array(data=data, size=count, selected=-1, sorted=False)
        begin = time.perf_counter()
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(tokens))
        middle = time.perf_counter()
        allowed = constraint.allowed()[:count]
        measured.append((middle - begin, time.perf_counter() - middle))
        choices = [token for token in np.nonzero(allowed & (view["logit"] == 0))[0].tolist()
                   if not tokenizer.is_eog(token)]
        if not choices:
            break
        token = generator.choice(choices)
        constraint.push(token)
        llama_cpp.llama_sampler_accept(sampler, token)
    return measured


def main():
    print("| grammar | tokens | llama.cpp mean | median | Tenon mean | median |\n|---|---|---|---|---|---|")
    for path in sys.argv[1:]:
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        vocabulary = llama_cpp.llama_model_get_vocab(model)
        count = llama_cpp.llama_vocab_n_tokens(vocabulary)
        tokenizer = tenon.LanguageModel(path, context=64).tokenizer
        for number, name in NAMES.items():
            generator, measured = random.Random(3), []
            for _ in range(4):
                measured += times(vocabulary, count, tokenizer, GRAMMARS[number], generator)
            columns = [f"{1e3 * value:.2f}" for one in zip(*measured)
                       for value in (statistics.mean(one), statistics.median(one))]
            print(f"| {name} | {count:,} | {' | '.join(columns)} |")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Records which tokens llama.cpp's samplers leave, and how probable they are.

Needs `llama-cpp-python` beside numpy. Each case has options of nn::SamplerOptions, the tokens before, and a seed of the
logits: 272 numbers, as many as tests/models/data/tiny_llama.gguf has tokens, whose vocabulary finds the sequence breakers
of DRY. Samplers run one after the other in the order of nn::SamplerOptions, which is llama.cpp's but for the temperature.

    OUT/samplers_llama_cpp.json    {"cases": [{"seed", "history", "options", "kept": [[token, probability], ...]}, ...]}

    record_samplers.py --data tests/models/data
"""

import argparse
import ctypes
import json
import math
import pathlib
import random

import llama_cpp
import numpy as np

VOCABULARY = 272
SPREAD = 16


def logits_of(seed, history):
    """The same numbers as logits_of() of sampler_llama_cpp_test.cpp: exact but for the last rounding. Tokens of the
    history are probable ones, so that it shows what penalties do to them."""
    values = []
    for token in range(VOCABULARY):
        seed = (1103515245 * seed + 12345) % 2**31
        part = (seed >> 16) / 32768
        value = SPREAD * part * part - SPREAD / 2
        values.append(value / 4 + 8 if token in history else value)
    return np.array(values, dtype=np.float32)


def samplers_of(options, vocabulary):
    """llama.cpp's samplers for these options, in order."""
    get = options.get
    temperature, is_last = get("temperature", 1), get("temperature_last", False) or get("dynatemp_range", 0) > 0
    texts = [text.encode() for text in get("dry_breakers", [])]
    breakers = (ctypes.c_char_p * len(texts))(*texts)
    yield llama_cpp.llama_sampler_init_penalties(
        VOCABULARY, get("repetition_window", 64), get("repetition_penalty", 1), get("frequency_penalty", 0),
        get("presence_penalty", 0))
    yield llama_cpp.llama_sampler_init_dry(
        vocabulary, get("dry_multiplier", 0), get("dry_base", 1.75), get("dry_allowed_length", 2),
        get("dry_window", 64), breakers, len(texts))
    if get("mirostat", 0):
        yield llama_cpp.llama_sampler_init_temp(temperature)
        tau, eta = get("mirostat_tau", 5), get("mirostat_eta", 0.1)
        if options["mirostat"] == 1:
            yield llama_cpp.llama_sampler_init_mirostat(VOCABULARY, 1, tau, eta, 100)
        else:
            yield llama_cpp.llama_sampler_init_mirostat_v2(1, tau, eta)
        return
    yield llama_cpp.llama_sampler_init_top_n_sigma(get("top_n_sigma", -1))
    if not is_last:
        yield llama_cpp.llama_sampler_init_temp(temperature)
    yield llama_cpp.llama_sampler_init_top_k(get("top_k", 0))
    yield llama_cpp.llama_sampler_init_typical(get("typical_p", 1), 0)
    yield llama_cpp.llama_sampler_init_top_p(get("top_p", 1), 0)
    yield llama_cpp.llama_sampler_init_min_p(get("min_p", 0), 0)
    yield llama_cpp.llama_sampler_init_xtc(get("xtc_probability", 0), get("xtc_threshold", 0.1), 0, 1)
    if is_last:
        yield llama_cpp.llama_sampler_init_temp_ext(temperature, get("dynatemp_range", 0), get("dynatemp_exponent", 1))
    if get("adaptive_target", -1) >= 0:
        yield llama_cpp.llama_sampler_init_adaptive_p(options["adaptive_target"], get("adaptive_decay", 0.9), 1)


def drop_excluded(array):
    """Top-n-sigma leaves the tokens that it excludes in the array, with a logit of -inf. Typical-p's entropy would be NaN
    because of them, and the dynamic temperature would count them."""
    left = [(one.id, one.logit, one.p) for one in array.data[:array.size] if one.logit > -math.inf]
    for place, (token, logit, probability) in enumerate(left):
        array.data[place] = llama_cpp.llama_token_data(token, logit, probability)
    array.size = len(left)


def kept_by_llama_cpp(options, history, seed, vocabulary):
    """[[token, probability], ...], the most probable first."""
    data = (llama_cpp.llama_token_data * VOCABULARY)(
        *(llama_cpp.llama_token_data(i, value, 0) for i, value in enumerate(logits_of(seed, history))))
    array = llama_cpp.llama_token_data_array(data=data, size=VOCABULARY, selected=-1, sorted=False)
    for sampler in samplers_of(options, vocabulary):
        for token in history:
            llama_cpp.llama_sampler_accept(sampler, token)
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
        llama_cpp.llama_sampler_free(sampler)
        drop_excluded(array)
    left = np.array([(array.data[i].id, array.data[i].logit) for i in range(array.size)], dtype=np.float64)
    weights = np.exp(left[:, 1] - left[:, 1].max())
    weights /= weights.sum()
    pairs = sorted(((-weight, int(token)) for weight, token in zip(weights, left[:, 0]) if weight > 0))
    return [[token, float(f"{-weight:.7g}")] for weight, token in pairs]


def history_of(rng):
    """Tokens that repeat each other: "\\n", ":", "A", "B", "a", "b", "c", "th", "the", "in", "an", " a", "and"."""
    motif = [rng.choice([13, 61, 68, 69, 100, 101, 102, 259, 260, 261, 262, 268, 269]) for _ in range(rng.randint(2, 7))]
    tokens = []
    while len(tokens) < rng.randint(8, 48):
        tokens += motif if rng.random() < 0.7 else [rng.randint(32, 126)]
    return tokens[:len(tokens) - rng.randint(0, 3)]


def options_of(rng):
    """Options at random; few enough tokens are left."""
    options = {"temperature": rng.choice([0.5, 0.8, 1, 1.5])}
    chosen = {
        "repetition": {"repetition_penalty": rng.choice([0.9, 1.1, 1.5]), "repetition_window": rng.choice([4, 16, 64])},
        "counted": {"frequency_penalty": rng.choice([-0.3, 0.2, 1]), "presence_penalty": rng.choice([0, 0.5, -1])},
        "dry": {"dry_multiplier": rng.choice([0.5, 2]), "dry_base": rng.choice([1, 1.75]),
                "dry_allowed_length": rng.choice([1, 2, 3]), "dry_window": rng.choice([8, 20, 64]),
                "dry_breakers": rng.choice([[], [":"], ["\n", ":"], ["an"], ["A", "bcc", "Bab", "ca"],
                                             ["hea", "nda", "ana"], ["thei", "bth", "aa", "nin"]])},
        "sigma": {"top_n_sigma": rng.choice([0.5, 1, 1.5])},
        "typical": {"typical_p": rng.choice([0.2, 0.5, 0.9])},
        "top_p": {"top_p": rng.choice([0.5, 0.9])},
        "min_p": {"min_p": rng.choice([0.02, 0.1])},
        "xtc": {"xtc_probability": 1, "xtc_threshold": rng.choice([0.03, 0.08, 0.2])},
        "last": {"temperature_last": True},
        "dynamic": {"dynatemp_range": rng.choice([0.3, 0.6, 2]), "dynatemp_exponent": rng.choice([0.5, 1, 2])},
        "adaptive": {"adaptive_target": rng.choice([0, 0.1, 0.5]), "adaptive_decay": rng.choice([0, 0.9])},
    }
    for name in rng.sample(sorted(chosen), rng.randint(1, 5)):
        options.update(chosen[name])
    if rng.random() < 0.6 or not {"top_n_sigma", "typical_p", "top_p", "min_p"} & set(options):
        options["top_k"] = rng.choice([5, 20, 40])
    if "typical_p" in options and "dry_base" in options:
        options["dry_base"] = 1  # its entropy is NaN where a probability underflows
    return options


def cases(rng):
    for tau in (0.1, 1, 2, 3, 4):
        yield {"temperature": rng.choice([0.7, 1, 1.4]), "mirostat": 1, "mirostat_tau": tau}
        yield {"temperature": rng.choice([0.7, 1, 1.4]), "mirostat": 2, "mirostat_tau": tau, "top_k": 1,
               "repetition_penalty": rng.choice([1, 1.3])}
    for _ in range(110):
        yield options_of(rng)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(arguments.data / "tiny_llama.gguf").encode(), parameters)
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    rng = random.Random(13)
    lines = []
    for number, options in enumerate(cases(rng)):
        seed, history = 104729 * number + 12345, history_of(rng)
        lines.append(json.dumps({"seed": seed, "history": history, "options": options,
                                 "kept": kept_by_llama_cpp(options, history, seed, vocabulary)}))
    head = json.dumps({"llama_cpp_python": llama_cpp.__version__})[1:-1]
    out = arguments.data / "samplers_llama_cpp.json"
    out.write_text("{" + head + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

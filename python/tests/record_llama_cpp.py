#!/usr/bin/env python3
"""Records how far llama.cpp's logits lie from the f64 reference, on the same tokens.

The figures are a yardstick for kernels that quantise activations. Needs `llama-cpp-python` beside
numpy and gguf. Per model and token list, p being the reference's and q llama.cpp's distribution at a
position, and every figure a mean over the positions:
    kl              sum p log(p / q) over the vocabulary
    kl_top10        the same sum over p's ten most likely tokens
    kl_top10_rest   over those ten and one token that stands for all others
    top1_agreement  share of positions where both put the same token first
    mean_abs_logp   mean |log p - log q| over p's ten most likely tokens
    max_abs_logp    the largest of those (not a mean)

    record_llama_cpp.py --data tests/models/data smollm2=MODEL.gguf gemma3=MODEL.gguf
"""

import argparse
import hashlib
import importlib.metadata
import json
import pathlib
import platform

import llama_cpp
import numpy as np

from lm_reference import Model, log_softmax


default_parameters = llama_cpp.llama_model_default_params


def plain_parameters():
    """Weights stay as the file has them: its repacked AMX kernels crash where GCC 12 built them, and
    the arithmetic of the plain kernels is what most machines run."""
    parameters = default_parameters()
    parameters.use_extra_bufts = False
    return parameters


def llama_cpp_logits(path, tokens):
    llama_cpp.llama_cpp.llama_model_default_params = plain_parameters
    model = llama_cpp.Llama(str(path), n_ctx=1024, n_batch=512, n_threads=2, logits_all=True,
                            verbose=False)
    model.eval([int(token) for token in tokens])
    return np.array(model.scores[:len(tokens)], dtype=np.float32)


def figures(reference, other):
    """The figures above, from two arrays of logits [positions, vocabulary]."""
    rows = []
    for p_logits, q_logits in zip(reference, other):
        p, q = log_softmax(p_logits), log_softmax(q_logits)
        best = np.argsort(-p, kind="stable")[:10]
        probability = np.exp(p)
        p_top, q_top = p[best], q[best]
        p_rest, q_rest = max(1 - np.exp(p_top).sum(), 1e-300), max(1 - np.exp(q_top).sum(), 1e-300)
        top10 = np.sum(np.exp(p_top) * (p_top - q_top))
        difference = np.abs(p_top - q_top)
        rows.append((np.sum(probability * (p - q)), top10,
                     top10 + p_rest * np.log(p_rest / q_rest), best[0] == np.argmax(q),
                     difference.mean(), difference.max()))
    kl, kl_top10, kl_top10_rest, agreement, mean_abs, max_abs = np.array(rows, dtype=np.float64).T
    return {"positions": len(rows), "kl": kl.mean(), "kl_top10": kl_top10.mean(),
            "kl_top10_rest": kl_top10_rest.mean(), "top1_agreement": agreement.mean(),
            "mean_abs_logp": mean_abs.mean(), "max_abs_logp": max_abs.max()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    parser.add_argument("--data", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    record = {
        "llama_cpp_python": llama_cpp.__version__,
        "system": llama_cpp.llama_print_system_info().decode(),
        "settings": "n_ctx=1024 n_batch=512, KV cache f16, 2 threads, CPU, weights not repacked",
        "gguf": importlib.metadata.version("gguf"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "models": {},
    }
    for pair in arguments.models:
        name, path = pair.split("=", 1)
        digest = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
        model = Model(path, np.float64)
        lists = json.loads((arguments.data / f"{name}_tokens.json").read_text(encoding="utf-8"))
        results = {}
        for text, tokens in lists.items():
            reference = model.logits(model.hidden(tokens))
            results[text] = figures(reference, llama_cpp_logits(path, tokens))
            print(name, text, json.dumps(results[text]))
        record["models"][name] = {"sha256": digest, "texts": results}
    out = arguments.data / "llama_cpp_figures.json"
    out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

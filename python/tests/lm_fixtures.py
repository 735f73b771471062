#!/usr/bin/env python3
"""Writes the reference's most likely tokens of every position, for tests that run without Python.

For MODEL named NAME and each token list in DATA/NAME_tokens.json, say "passage":
    DATA/NAME_passage_top_ids.npy     i32 [positions, 20], most likely first
    DATA/NAME_passage_top_logp.npy    f32 [positions, 20], natural logarithms of the probabilities
from the f64 reference; ties go to the smaller id.

    lm_fixtures.py --data tests/models/data smollm2=MODEL.gguf gemma3=MODEL.gguf
"""

import argparse
import json
import pathlib

import numpy as np

from lm_reference import Model, log_softmax

TOP = 20


def top(row):
    """Ids of the TOP largest values, largest first."""
    nearly = np.flatnonzero(row >= np.partition(row, -TOP)[-TOP])
    return nearly[np.lexsort((nearly, -row[nearly]))][:TOP]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    parser.add_argument("--data", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    for pair in arguments.models:
        name, path = pair.split("=", 1)
        model = Model(path, np.float64)
        lists = json.loads((arguments.data / f"{name}_tokens.json").read_text(encoding="utf-8"))
        for text, tokens in lists.items():
            ids = np.empty((len(tokens), TOP), dtype=np.int32)
            logp = np.empty((len(tokens), TOP), dtype=np.float32)
            for i, row in enumerate(model.logits(model.hidden(tokens))):
                row = log_softmax(row)
                ids[i] = top(row)
                logp[i] = row[ids[i]]
            np.save(arguments.data / f"{name}_{text}_top_ids.npy", ids)
            np.save(arguments.data / f"{name}_{text}_top_logp.npy", logp)


if __name__ == "__main__":
    main()

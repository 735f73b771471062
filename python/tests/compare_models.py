#!/usr/bin/env python3
"""`tenon compare` and `tenon imatrix` on real models against numpy, which computes in f64 from the same file: the output of
every layer, and the squares of what each weight is multiplied with.

    compare_models.py TENON MODELS

TENON is the tool, MODELS the folder of scripts/fetch_models.py. Exit status 77 where it has no model.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGUFReader
from safetensors.numpy import save_file

import bert_reference
import lm_reference

TOKENS = [3, 1504, 260, 982, 28, 665, 88, 4321, 11, 2001, 42, 900, 7, 1999]
SENTENCE = "The cat sits on the mat, and nobody knows why."


def decoder(path):
    model = lm_reference.Model(path)
    layers = []
    model.hidden(TOKENS, layers.append)
    return {"ids": np.array([TOKENS], np.int64)}, layers


def encoder(path):
    model = bert_reference.Model(path)
    ids = model.tokenizer.encode(SENTENCE).ids
    layers = []
    model.hidden(ids, layers.append)
    return {"ids": np.array([ids], np.int64), "mask": np.ones((1, len(ids)), np.int64)}, layers


def check(tool, path, recorded, layers, folder):
    arrays = {f"layer[{i}]": layer[None].astype(np.float32) for i, layer in enumerate(layers)}
    file = folder / "recorded.safetensors"
    save_file({**recorded, **arrays}, file)
    command = [tool, "compare", path, file, "--precision", "exact", "--relative", "2e-4", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    worst = max(value["max"] / value["largest"] for value in result["values"])
    print(f"{path.name}: {len(result['values'])} layers, within {worst:.1e} of each one's largest number")
    assert len(result["values"]) == len(layers), result["unknown"]
    assert result["first"] is None and result["unknown"] == []

    # A layer that differs is the first that is named, whatever follows from it.
    middle = len(layers) // 2
    changed = arrays[f"layer[{middle}]"].copy()
    changed[0, 1, 2] += np.abs(changed).max() / 100
    save_file({**recorded, **arrays, f"layer[{middle}]": changed}, file)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stdout + done.stderr
    assert json.loads(done.stdout)["first"] == f"layer[{middle}]", done.stdout


class Watched(lm_reference.Model):
    """Sums the squares of what the layers' weights are multiplied with."""

    def linear(self, x, name):
        if name.startswith("blk."):
            self.sums[name + ".weight"] = (x * x).sum(axis=0)
        return super().linear(x, name)


def check_importance(tool, path, folder):
    text, out = folder / "text.txt", folder / "imatrix.gguf"
    text.write_text(SENTENCE)
    tokens = subprocess.run([tool, "tokenize", path, SENTENCE, "--json"], capture_output=True, text=True, check=True)
    model = Watched(path)
    model.sums = {}
    model.hidden(json.loads(tokens.stdout)["ids"])
    subprocess.run([tool, "imatrix", path, "-f", text, "-o", out, "--precision", "exact"], check=True)
    found = {tensor.name: tensor.data.ravel() for tensor in GGUFReader(out).tensors}
    assert set(found) == {name + end for name in model.sums for end in (".in_sum2", ".counts")}
    worst = max(np.abs(found[name + ".in_sum2"] - sums).max() / sums.max() for name, sums in model.sums.items())
    print(f"{path.name}: importance of {len(model.sums)} weights, within {worst:.1e} of each one's largest number")
    assert worst < 2e-4


def main():
    tool, models = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    found = [(path, decoder) for path in sorted(models.glob("*.gguf"))]
    found += [(path, encoder) for path in sorted(models.iterdir()) if (path / "config.json").exists()]
    if not found:
        print(f"SKIPPED: no models in {models}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        for path, reference in found:
            recorded, layers = reference(path)
            check(tool, path, recorded, layers, pathlib.Path(folder))
            if reference is decoder:
                check_importance(tool, path, pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())

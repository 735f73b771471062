"""Language models: the programs that the library records from GGUF files, run with the files' weights by numpy,
against logits that another script computed (python/tests/lm_reference.py)."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np

from support import ROOT
from tenon.ir import Array, parse, read_weights
from tenon.ir.tensors import NUMPY

DATA = ROOT / "tests/models/data"


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class Models(unittest.TestCase):
    def logits(self, path, tokens):
        """The logits after each of the tokens, which are given one by one."""
        with tempfile.TemporaryDirectory() as folder:
            folded = pathlib.Path(folder) / "folded.safetensors"
            text = subprocess.run([os.environ["TENON_IR_MODEL"], path, folded], check=True, capture_output=True).stdout
            program, weights = parse(text, path.name), {**read_weights(path), **read_weights(folded)}
        caches = program.main.parameters[2:]
        state = [Array(value.type, np.zeros(value.type.dims, NUMPY[value.type.dtype])) for value in caches]
        for step, token in enumerate(tokens):
            row, *state = program.run([np.full((1, 1), token, np.int32), step, *state], weights)
            yield row.numpy()[0].astype(np.float64)

    def check(self, name, tokens, rows):
        """The last of so many tokens, whose logits are those rows of the file's."""
        want = np.load(DATA / f"tiny_{name}_logits.npy")[rows].astype(np.float64)
        got = np.stack(list(self.logits(DATA / f"tiny_{name}.gguf", [7 * i % 272 for i in range(tokens)])))
        worst = np.abs(log_softmax(got[-len(want):]) - log_softmax(want)).max()
        print(f"\n{name}: log-probabilities differ by {worst:.1e} at most")
        self.assertLess(worst, 1e-4)

    def test_architectures(self):
        for path in sorted(DATA.glob("tiny_*_logits.npy")):
            name = path.name.removeprefix("tiny_").removesuffix("_logits.npy")
            if len(np.load(path, mmap_mode="r")) < 48:  # of the last tokens only: below
                continue
            with self.subTest(name):
                self.check(name, 12, slice(12))

    def test_architectures_to_the_last_token(self):
        for name in ("phi3", "cohere2", "lfm2", "qwen35", "refact", "falcon-h1", "nemotron_h", "mistral3"):
            with self.subTest(name):
                self.check(name, 48, slice(None))

    def test_a_real_model(self):
        """Two tokens of SmolLM2 135M; numpy takes some seconds for each."""
        model = pathlib.Path(os.environ.get("TENON_TEST_MODELS", "")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
        if not model.is_file():
            self.skipTest("TENON_TEST_MODELS names no folder with SmolLM2")
        tokens = json.loads((DATA / "smollm2_tokens.json").read_text("utf-8"))["passage"][:2]
        best, want = (np.load(DATA / f"smollm2_passage_top_{what}.npy") for what in ("ids", "logp"))
        for i, row in enumerate(self.logits(model, tokens)):
            self.assertLess(np.abs(log_softmax(row)[best[i]] - want[i]).max(), 1e-4)


if __name__ == "__main__":
    unittest.main()

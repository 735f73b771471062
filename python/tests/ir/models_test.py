"""Language models: the programs that the library records from GGUF files, run with the files' weights by numpy,
against logits that another script computed (python/tests/lm_reference.py)."""
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
    def logits(self, path, count):
        """The logits after each of the first tokens 0, 7, 14, ..., which are given one by one."""
        with tempfile.TemporaryDirectory() as folder:
            folded = pathlib.Path(folder) / "folded.safetensors"
            text = subprocess.run([os.environ["TENON_IR_MODEL"], path, folded], check=True,
                                  capture_output=True).stdout
            program, weights = parse(text, path.name), {**read_weights(path), **read_weights(folded)}
        token, position, *caches = program.main.parameters
        state = [Array(value.type, np.zeros(value.type.dims, NUMPY[value.type.dtype])) for value in caches]
        rows = []
        for step in range(count):
            row, *state = program.run([np.full((1, 1), 7 * step % 272, np.int32), step, *state], weights)
            rows.append(row.numpy()[0])
        return np.stack(rows)

    def test_every_architecture(self):
        for path in sorted(DATA.glob("tiny_*_logits.npy")):
            model = path.with_name(path.name.replace("_logits.npy", ".gguf"))
            with self.subTest(model.name):
                want = np.load(path)[:12]
                got = self.logits(model, len(want))
                worst = np.abs(log_softmax(got.astype(np.float64)) - log_softmax(want.astype(np.float64))).max()
                print(f"\n{model.name}: log-probabilities differ by {worst:.1e} at most")
                self.assertLess(worst, 1e-4)


if __name__ == "__main__":
    unittest.main()

"""Runs the code of docs/python.md, block after block, as one program."""

import contextlib
import io
import os
import pathlib
import re
import unittest

PAGE = pathlib.Path(__file__).parents[3] / "docs/python.md"


class Page(unittest.TestCase):
    def test_code_runs(self):
        models = sorted(pathlib.Path(os.environ.get("TENON_TEST_MODELS", "no-models")).glob("*mol*.gguf"))
        if models:
            os.environ["TENON_MODEL"] = str(models[0])
        text = PAGE.read_text()
        blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S))
        self.assertGreater(len(blocks), 6)
        names = {}
        printed = io.StringIO()
        for block in blocks:
            line = text[: block.start(1)].count("\n")
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * line + block[1], str(PAGE), "exec"), names)
        for want in ("Buffer f32[3, 4]", "def forward", "repeat(", "(5, 8)", "linear", "npu", "ShapeMismatch"):
            self.assertIn(want, printed.getvalue())
        if models:
            self.assertIn("Paris", printed.getvalue())


if __name__ == "__main__":
    unittest.main()

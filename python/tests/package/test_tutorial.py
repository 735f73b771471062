"""Runs the code of docs/tutorial-ir.md; what a block prints is compared with the block after it."""

import contextlib
import io
import pathlib
import re
import unittest

PAGE = pathlib.Path(__file__).parents[3] / "docs/tutorial-ir.md"


class Tutorial(unittest.TestCase):
    def test_code_runs(self):
        text = PAGE.read_text("utf-8")
        names, printed, compared = {"__name__": "tutorial"}, "", 0
        for block in re.finditer(r"^```(python)?\n(.*?)^```", text, re.M | re.S):
            line = text[: block.start(2)].count("\n")
            if not block[1]:
                self.assertEqual(printed, block[2], f"{PAGE}:{line}")
                compared += 1
                continue
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("\n" * line + block[2], str(PAGE), "exec"), names)
            printed = out.getvalue()
        self.assertGreater(compared, 10)


if __name__ == "__main__":
    unittest.main()

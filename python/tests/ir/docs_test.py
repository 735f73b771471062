"""The code blocks of docs/ir.md, in their order; what a block prints is compared with the block after it."""
import contextlib
import io
import re
import unittest

from support import ROOT


class Docs(unittest.TestCase):
    def test_code_blocks(self):
        page = (ROOT / "docs/ir.md").read_text("utf-8")
        blocks = re.findall(r"```(python)?\n(.*?)```", page, re.DOTALL)
        names, printed, compared = {"__name__": "docs"}, "", 0
        for language, code in blocks:
            if language != "python":
                self.assertEqual(printed, code)
                compared += 1
                continue
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, "docs/ir.md", "exec"), names)
            printed = out.getvalue()
        self.assertGreaterEqual(len(blocks), 5)
        self.assertEqual(compared, 1)
        self.assertEqual(names["y0"].shape, (2, 8))


if __name__ == "__main__":
    unittest.main()

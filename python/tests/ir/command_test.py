"""python -m tenon.ir, and programs as files that Python runs."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from support import HEADER, ROOT

TEXT = HEADER + """
def forward(x: f32[S, 3], w: f32[3, 3]):
    y = linear(x, w)
    z: f32[S, 3] = softmax(y, axis=1)
    return z
"""


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.write("model.tenon", TEXT)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, "utf-8")
        return path

    def python(self, *arguments, status=0):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run([sys.executable, "-B", *map(str, arguments)], env=environment, cwd=self.folder,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def test_run(self):
        printed = self.python("-m", "tenon.ir", "run", self.file, "--size", "S=2").stdout
        self.assertTrue(printed.startswith("z: f32[2, 3] [["), printed)
        self.assertEqual(self.python(self.file, "--size", "S=2").stdout, printed, "python model.tenon")
        traced = self.python("-m", "tenon.ir", "run", self.file, "--trace").stdout
        self.assertIn("    7 forward.y: f32[2, 3] ", traced)

    def test_inputs_and_results(self):
        np.save(self.folder / "x.npy", np.zeros((1, 3), np.float32))
        self.python("-m", "tenon.ir", "run", self.file, "--input", "x=x.npy", "--save", "out")
        np.testing.assert_allclose(np.load(self.folder / "out/z.npy"), np.full((1, 3), 1 / 3), rtol=1e-6)
        wrong = self.python("-m", "tenon.ir", "run", self.file, "--input", "q=x.npy", status=2)
        self.assertIn("no parameter 'q'", wrong.stderr)
        self.assertIn("nothing.npy",
                      self.python("-m", "tenon.ir", "run", self.file, "--input", "x=nothing.npy", status=2).stderr)

    def test_check(self):
        self.assertEqual(self.python("-m", "tenon.ir", "check", "model.tenon").stdout,
                         "model.tenon: 1 functions, 2 instructions\n")
        self.write("bad.tenon", TEXT.replace("axis=1", "axis=2").replace("linear(x, w)", "linear(x, v)"))
        wrong = self.python("-m", "tenon.ir", "check", "model.tenon", "bad.tenon", "nothing.tenon", status=3).stderr
        self.assertIn("BadReference: bad.tenon:7:19: 'v' is not defined\n    y = linear(x, v)\n                  ^\n",
                      wrong)
        self.assertIn("nothing.tenon", wrong)

    def test_fmt(self):
        spaced = TEXT.replace("axis=1", "axis = 1").replace("linear(x, w)", "linear(x,w)  # comment")
        path = self.write("spaced.tenon", spaced)
        self.assertEqual(self.python("-m", "tenon.ir", "fmt", path).stdout, TEXT)
        self.python("-m", "tenon.ir", "fmt", "--write", path)
        self.assertEqual(path.read_text("utf-8"), TEXT)

    def test_diff(self):
        other = self.write("other.tenon", TEXT.replace("axis=1", "axis=0").replace(" = softmax", " = log_softmax"))
        self.assertEqual(self.python("-m", "tenon.ir", "diff", self.file, self.file).stdout, "")
        self.assertIn("+     z: f32[S, 3] = log_softmax(y)",
                      self.python("-m", "tenon.ir", "diff", self.file, other, status=1).stdout)

    def test_a_program_is_not_imported(self):
        self.write("model_text.py", TEXT)
        self.assertIn("load(path)", self.python("-c", "import model_text", status=1).stderr)

    def test_needs_only_numpy(self):
        code = """if True:
            import sys
            before = set(sys.modules)
            import tenon.ir
            others = {name.partition('.')[0] for name in set(sys.modules) - before if 'cython' not in name}
            print(*sorted(others - set(sys.stdlib_module_names)))
        """
        self.assertEqual(self.python("-c", code).stdout, "numpy tenon\n")


if __name__ == "__main__":
    unittest.main()

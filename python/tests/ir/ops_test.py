"""The numpy references and `infer` against every committed op case."""
import collections
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

from support import HEADER, ROOT, agrees, op_cases, seeded
from tenon.ir import Array, Error, Type, Unsupported, parse
from tenon.ir.blocks import encode
from tenon.ir.infer import RULES
from tenon.ir.ops import REFERENCES, evaluate
from tenon.ir.schema import OPS
from tenon.ir.tensors import cast, rounded


class OpCases(unittest.TestCase):
    def check(self, cases):
        done, unsupported = 0, collections.Counter()
        for case, operands, want in cases:
            op = OPS[case["op"]]
            attributes = {name: op.attribute(name).accepts(value) for name, value in case["attributes"].items()}
            try:
                got = evaluate(op.name, operands, attributes)
            except Unsupported as error:
                unsupported[op.name, error.message] += 1
                continue
            done += 1
            self.assertTrue(agrees(got, want, case["absolute"], case["relative"]),
                            f"{case['name']} {attributes}\n{got!r}\n{want!r}")
        print(f"\n{done} op cases agree")
        for (op, why), count in sorted(unsupported.items()):
            print(f"  {count} of {op} not run: {why}")
        self.assertFalse(unsupported)
        return done

    def test_committed_cases(self):
        self.assertGreater(self.check(op_cases()), 600)

    def test_generated_cases(self):
        """Some thousand more of the same scripts."""
        seed = str(seeded("op cases").randrange(10**6))
        with tempfile.TemporaryDirectory() as folder:
            for script in sorted((ROOT / "python/tests").glob("op_cases_*.py")):
                made = pathlib.Path(folder) / f"{script.stem}.safetensors"
                done = subprocess.run([sys.executable, "-B", script, made, "--seed", seed], capture_output=True,
                                      text=True)
                if "ModuleNotFoundError" in done.stderr:
                    print(f"\n{script.name} SKIPPED: {done.stderr.splitlines()[-1]}")
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
                with self.subTest(script.name, seed=seed):
                    self.assertGreater(self.check(op_cases([made])), 20)

    def test_what_ops_have(self):
        cases = {case["op"] for case, _, _ in op_cases()}
        for what, known in (("reference", REFERENCES), ("rule of types", RULES), ("case", cases)):
            self.assertFalse(set(known) - set(OPS))
            print(f"\nops without a {what}:", ", ".join(name for name in OPS if name not in known) or "none", end="")
        self.assertFalse(set(OPS) - set(RULES))

    def test_an_op_without_a_reference(self):
        text = HEADER + "def forward(x: f32[2]):\n    y = exp(x)\n    z = tanh(y)\n    return z\n"
        with mock.patch.dict(REFERENCES), mock.patch.dict(RULES):
            del REFERENCES["tanh"], RULES["tanh"]
            program = parse(text, "t.tenon")
            with self.assertRaises(Unsupported) as raised:
                program.run([np.zeros(2, np.float32)])
        self.assertIn("Unsupported: t.tenon:7:9: forward: ", str(raised.exception))
        self.assertIn("tanh", str(raised.exception))

    def test_a_changed_result_is_noticed(self):
        for case, operands, want in op_cases():
            if want.data.dtype.kind == "f" and want.data.size and np.isfinite(want.data).all():
                wrong = Array(want.type, want.data + np.asarray(1, want.data.dtype))
                self.assertFalse(agrees(wrong, want, case["absolute"], case["relative"]))
                return
        self.fail("no case")


class Numbers(unittest.TestCase):
    def test_rounding(self):
        self.assertEqual(rounded(1 + 2**-8, "bf16"), 1)  # a tie, to even
        self.assertEqual(rounded(1 + 3 * 2**-8, "bf16"), 1 + 2**-6)
        self.assertEqual(rounded(1 + 2**-8 + 2**-40, "bf16"), 1 + 2**-7)  # once, not by way of f32
        self.assertEqual(rounded(3.4e38, "bf16"), np.inf)
        self.assertEqual(rounded(2.0**-133, "bf16"), np.float32(2.0**-133))
        self.assertEqual(rounded(464.0, "f8_e4m3"), 448)
        self.assertTrue(np.isnan(rounded(465.0, "f8_e4m3")))
        self.assertEqual(rounded(61440.0, "f8_e5m2"), np.inf)
        self.assertEqual(rounded(-0.0, "bf16").view(np.uint32), 0x80000000)

    def test_cast(self):
        x = np.array([0.9, -0.9, 300, -300, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)
        self.assertEqual(cast(x, "i8").tolist(), [0, 0, 127, -128, 127, -128, 127, -128, 0])
        self.assertEqual(cast(x, "u8").tolist(), [0, 0, 255, 0, 255, 0, 255, 0, 0])
        self.assertEqual(cast(x, "i64").tolist()[4:8], [2**63 - 1, -2**63, 2**63 - 1, -2**63])
        self.assertEqual(cast(np.array([-1, 2**40], np.int64), "u32").tolist(), [0, 2**32 - 1])

    def test_encoding(self):
        """Bytes are those of the gguf package."""
        try:
            from gguf import GGMLQuantizationType
            from gguf.quants import quantize
        except ImportError as missing:
            self.skipTest(str(missing))
        rng = np.random.default_rng(seeded("encoding").randrange(10**6))
        x = (rng.normal(size=(400, 64)) * 10.0 ** rng.uniform(-6, 4, (400, 1))).astype(np.float32)
        x[0], x[1, :32], x[2] = 0, 3, np.round(x[2] * 4) / 4
        for dtype in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0"):
            want = quantize(x, GGMLQuantizationType[dtype.upper()])
            np.testing.assert_array_equal(encode(x, dtype), want.reshape(400, -1), err_msg=dtype)
        with self.assertRaises(Unsupported):
            encode(x, "q4_k")
        self.assertEqual(encode(np.zeros((0, 32)), "q4_0").shape, (0, 18))

    def test_no_windows(self):
        """A filter's gradient where the window is larger than the image: there is no place for it."""
        x, upstream = (Array(Type("f32", dims), np.zeros(dims, np.float32)) for dims in ((2, 2, 1, 4), (2, 8, 1, 0)))
        made = evaluate("conv2d_filter_backward", [x, upstream], {
            "kernel": [2, 3], "stride": [1, 1], "padding": [1, 0, 0, 1], "dilation": [1, 2], "groups": 2})
        self.assertEqual(made.type, Type("f32", [8, 1, 2, 3]))
        self.assertFalse(made.data.any())

    def test_errors_in_data(self):
        x, index = Array(Type("f32", [3]), np.zeros(3, np.float32)), Array(Type("i32"), np.asarray(3, np.int32))
        for operands in ([x, index], [x, Array(Type("i32"), np.asarray(-1, np.int32))]):
            with self.assertRaises(Error) as raised:
                evaluate("select", operands, {})
            self.assertEqual(raised.exception.code, "OutOfRange")


if __name__ == "__main__":
    unittest.main()

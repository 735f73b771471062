"""c64 and u64 in Python: exchange with numpy, files, programs, errors. Arithmetic has cases in tests/builders."""

import contextlib
import io
import pathlib
import pickle
import re
import tempfile
import unittest

import numpy as np

import tenon
from tenon import ops
from tenon.ir import parse

SEED = np.random.SeedSequence().entropy


class Complex(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}")
        self.random = np.random.default_rng(SEED)

    def array(self, *shape):
        return (self.random.standard_normal(shape) + 1j * self.random.standard_normal(shape)).astype("c8")

    def close(self, got, want):
        got = got.numpy()
        self.assertEqual(got.shape, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

    def test_exchange(self):
        for shape in ((), (0, 3), (3, 4)):
            z = self.array(*shape)
            one = tenon.array(z)
            self.assertEqual(one.dtype, "complex64")
            self.assertEqual(one.numpy().dtype, np.complex64)
            np.testing.assert_array_equal(one.numpy(), z)
            np.testing.assert_array_equal(np.from_dlpack(one), z)
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(one)).numpy(), z)
        z = self.array(3, 4)
        self.assertTrue(np.shares_memory(tenon.array(z).numpy(), z))
        self.assertTrue(np.shares_memory(ops.view_as_real(z).numpy(), z))
        np.testing.assert_array_equal(tenon.array(z[:, ::-2]).numpy(), z[:, ::-2])
        np.testing.assert_array_equal(tenon.array([1 + 2j, 3]).numpy(), np.array([1 + 2j, 3], "c8"))
        np.testing.assert_array_equal(tenon.array(z.real.copy()).astype("c64").numpy(), z.real)
        self.assertIn("1-2.5j", str(tenon.array([1 - 2.5j])))
        self.assertIn("<table>", tenon.array(z)._repr_html_())

    def test_files(self):
        z = self.array(3, 5)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            tenon.save_safetensors(folder / "z.safetensors", {"z": tenon.array(z)})
            np.testing.assert_array_equal(tenon.open(folder / "z.safetensors")["z"].numpy(), z)
            tenon.write_npy(folder / "z.npy", tenon.array(z))
            np.testing.assert_array_equal(np.load(folder / "z.npy"), z)
            for other in (z, z.astype(">c8"), np.asfortranarray(z)):
                np.save(folder / "other.npy", other)
                np.testing.assert_array_equal(tenon.read_npy(folder / "other.npy").numpy(), z)

    def test_at_once(self):
        z, w, x = self.array(3, 4), self.array(4), self.random.standard_normal((3, 4)).astype("f4")
        a = tenon.array(z)
        for got, want in ((a + w, z + w), (a * x, z * x), (x - a, x - z), (a / w, z / w), (2j * a, 2j * z),
                          (1 - a, 1 - z), (a * 0.5, z * 0.5), (1 / a, 1 / z), (-a, -z), (a**2.0, z**2),
                          (abs(a), abs(z)), (a @ ops.conj(a).T, z @ z.conj().T), (a.real, z.real), (a.imag, z.imag),
                          (a.angle(), np.angle(z)), (a.sum(0), z.sum(0)), (a.mean(), z.mean()), (a == z, z == z),
                          (ops.complex(x, x), x + 1j * x), (ops.polar(x, x), x * np.exp(1j * x)),
                          (tenon.array(x) * 1j, x * 1j), (a[1:, ::-1], z[1:, ::-1]), (ops.angle(x), np.angle(x)),
                          (ops.fft(a), np.fft.fft(z)), (ops.ifft(a, axis=0), np.fft.ifft(z, axis=0)),
                          (ops.rfft(x, dtype="c64"), np.fft.rfft(x)), (ops.cast(x, "c64"), x.astype("c8")),
                          (ops.irfft(ops.rfft(x, dtype="c64"), 4), x)):
            self.close(got, np.asarray(want))

    def test_without_an_axis(self):
        x = np.random.default_rng(5).random((2, 3, 8), "float32")
        whole, half = np.fft.fft(x), np.fft.rfft(x)

        def pairs(z):
            return np.stack([z.real, z.imag], -1).astype("float32")

        self.close(ops.rfft(x), pairs(half))
        self.close(ops.fft(pairs(x + 0j)), pairs(whole))
        self.close(ops.ifft(pairs(whole)), pairs(x + 0j))
        self.close(ops.irfft(pairs(half), 8), x)

    def test_programs(self):
        z, x = self.array(5, 4), self.random.standard_normal(4).astype("f4")
        program = tenon.export(lambda z, x: ops.ifft(ops.fft(z) * ops.conj(z)) / (1 + 2j) + x,
                               z="c64[B, 4]", x="f32[4]")
        self.assertEqual(tenon.parse(str(program)), program)
        want = np.fft.ifft(np.fft.fft(z) * z.conj()) / (1 + 2j) + x
        for backend in ("cpu", "reference"):
            self.close(tenon.Session(program, backends=[tenon.Backend(backend)]).forward(z, x)[0], want)
        npu = tenon.Backend("npu://sim", calibration=tenon.calibrate(program, {}, [[z, x]]))
        [got] = tenon.Session(program, backends=[npu, "cpu"]).forward(z, x)
        self.assertLess(np.max(np.abs(got.numpy() - want)), 0.1 * np.max(np.abs(want)))
        np.testing.assert_allclose(parse(str(program)).run([z, x])[0].numpy(), want, rtol=1e-4, atol=1e-4)
        with tempfile.TemporaryDirectory() as name:
            session = tenon.Session(program)
            session.forward(z, x)
            session.save(pathlib.Path(name) / "z.snap")
            self.close(tenon.Session.load(pathlib.Path(name) / "z.snap").forward(z, x)[0], want)

    def test_gradient_of_a_loss_that_does_not_depend_on_it(self):
        z, x = np.ones(2, "c8"), np.ones(2, "f4")
        by_z = tenon.grad(lambda z, x: x.sum(), allow_unused=True)(z, x)
        self.assertEqual((repr(by_z.type), by_z.numpy().tolist()), ("c64[2]", [0, 0]))

    def test_gradient(self):
        z = self.array(3, 4)
        program = tenon.export(lambda z: (abs(z * z) ** 2.0).sum(), z="c64[3, 4]").gradient(["z"])
        self.close(tenon.Session(program).forward(z)[1], 4 * abs(z) ** 2 * z)

    def test_page(self):
        page = (pathlib.Path(__file__).parents[3] / "docs/complex.md").read_text()
        [block] = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, "complex.md", "exec"), {})
        self.assertIn("f32[2, 2, 2]", printed.getvalue())

    def test_inverse_transforms_of_any_number_of_bins(self):
        z = self.array(3, 5)
        for size in (None, 1, 3, 6, 8, 9, 14):
            want = np.fft.irfft(z, size)
            self.close(ops.irfft(z, size), want)
            self.close(ops.irfft(np.stack([z.real, z.imag], -1), size), want)
        self.close(ops.irfft(z, axis=0), np.fft.irfft(z, axis=0))
        for size in (5, 14):  # beside an axis of any size
            open_rows = tenon.Session(tenon.export(lambda x, size=size: ops.irfft(x, size), x="c64[N, 5]"))
            self.close(open_rows.forward(z)[0], np.fft.irfft(z, size))
        with self.assertRaisesRegex(ValueError, "known in a run only: give a size"):
            tenon.export(lambda x: ops.irfft(x), "c64[N]")

    def test_errors(self):
        z = tenon.array(self.array(3))
        for call, word in ((lambda: ops.softmax(z), "softmax"), (lambda: z < z, "lt"), (lambda: z.astype("f32"), "c64"),
                           (lambda: ops.cast(z, "f32"), "real"), (lambda: tenon.array(np.zeros(2, "c16")), "128")):
            with self.assertRaises(tenon.Error) as caught:
                call()
            self.assertIn(word, str(caught.exception))
        with self.assertRaises(TypeError):
            ops.view_as_real(np.zeros(2, "f4"))

    def test_u64(self):
        a = self.random.integers(0, 2**64, 20, np.uint64)
        b = np.maximum(self.random.integers(0, 2**64, 20, np.uint64) >> np.uint64(20), 1).astype("u8")
        one = tenon.array(a)
        for got, want in ((one + b, a + b), (one // b, a // b), (one % b, a % b), (one > b, a > b), (one.max(), a.max()),
                          (one & b, a & b), (one >> 3, a >> np.uint64(3)), (one.sum(), a.sum()),
                          (one.sort(), np.sort(a))):
            np.testing.assert_array_equal(got.numpy(), want)


if __name__ == "__main__":
    unittest.main()

"""What users of numpy, PyTorch and JAX do with arrays without looking it up: the results are numpy's."""

import operator
import os
import pathlib
import pydoc
import tempfile
import threading
import unittest

import numpy as np

import tenon
from tenon import ops

SEED = int(os.environ.get("TENON_TEST_SEED") or np.random.SeedSequence().entropy % 10**9)
WHOLE = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


class Habits(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(SEED)

    def array(self, *dims):
        return self.random.standard_normal(dims).astype("f4")

    def whole(self, dtype, *dims):
        return self.random.integers(0, 100, dims).astype(dtype)

    def same(self, got, want, message=None, tolerance=0.0):
        got = np.asarray(got)
        self.assertEqual(got.shape, np.shape(want), message)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=str(message))

    def test_division_of_integers(self):
        for dtype in WHOLE:
            a = self.whole(dtype, 3, 4)
            want = a.astype("f4") / np.float32(3)
            for x in (tenon.array(a), tenon.array(a).to_host()):
                for got in (x / 3, x / np.int32(3), x / 3.0, x / tenon.array(np.float32(3))):
                    self.assertEqual(got.dtype, "f32")
                    self.same(got, want, dtype, 1e-6)
            program = tenon.export(lambda x: (x / 3, 1 / (x + 1.0)), tenon.array(a).type)
            for got, one in zip(tenon.Session(program).forward(a), (want, 1 / (a.astype("f4") + 1))):
                self.same(got, one, dtype, 1e-6)
        picture = self.whole("u1", 5, 5, 3)
        self.same(tenon.array(picture) / 255, picture / np.float32(255), tolerance=1e-6)
        half = tenon.array(np.arange(4)) / tenon.array(np.ones(4, "f2"))
        self.assertEqual(half.dtype, "f16")

    def test_quotients_rounded_down(self):
        for dtype in ("i4", "i8", "f4", "u2"):
            a, b = self.random.integers(0, 50, 40), self.random.integers(1, 9, 40)
            if dtype[0] != "u":
                a, b = a - 25, np.where(self.random.integers(0, 2, 40), b, -b)
            a, b = a.astype(dtype), b.astype(dtype)
            x, y = tenon.array(a), tenon.array(b)
            self.same(x // y, a // b, f"seed {SEED} {dtype}")
            self.same(x // 7, a // np.asarray(7, dtype), f"seed {SEED} {dtype}")
            for got, want in zip(divmod(x, y), np.divmod(a, b)):
                self.same(got, want, f"seed {SEED} {dtype}")
        ends = np.array([-2 ** 31, -2 ** 31 + 1, 2 ** 31 - 1, -1, 1, 2], "i4")  # no step in between overflows
        a, b = (one.reshape(-1) for one in np.meshgrid(ends, ends))
        with np.errstate(over="ignore"):
            self.same(tenon.array(a) // tenon.array(b), a // b)
            self.same(tenon.array(ends) // 3, ends // np.int32(3))
        self.same(tenon.array([1.0, -1.0, 0.0, 7.5]) // 0.1, np.array([1, -1, 0, 7.5], "f4") // np.float32(0.1))
        for zero in (tenon.array([0.0, 0.0]), 0, 0.0):
            self.same(tenon.array([1.0, -2.0]) // zero, [np.inf, -np.inf])

    def test_u64_beside_numbers(self):
        a = np.array([1, 5, 2**63 + 3], "u8")
        x = tenon.array(a)
        for got, want in ((x / 2, a / np.uint64(2)), (x + 0.5, a + 0.5), (x < 1.5, a < 1.5), (2.0 * x, 2.0 * a),
                          (x + 2**63, a + np.uint64(2**63)), (x == 2**63 + 3, a == 2**63 + 3), (x // 2, a // 2),
                          (x.clip(2, 7), a.clip(2, 7)), (x * np.float32(2), a * np.float32(2))):
            self.same(got, want, tolerance=1e-6)
        self.assertEqual((x + tenon.array([1.0, 2.0, 3.0])).dtype, "f32")
        self.same(tenon.array([1.0]) + 2**63, np.array([1.0], "f4") + 2.0**63)
        [got] = tenon.Session(tenon.export(lambda x: x + (2**63 + 1), "u64[3]")).forward(a)
        self.same(got, a + np.uint64(2**63 + 1))
        for call in (lambda: x * -1, lambda: x + [-1, 0, 0], lambda: tenon.array([1]) + 2**63, lambda: ops.add(x, -1.0),
                     lambda: tenon.Session(tenon.export(lambda x: x, "u64[1]")).forward([-1])):
            with self.assertRaises(tenon.Error):
                call()

    def test_booleans_as_numbers(self):
        a, b = np.array([True, False, True]), np.array([True, True, True])
        x, y = tenon.array(a), tenon.array(b)
        for got, want in ((x // y, a // b), (x % y, a % b), (x**y, a**b), (x << y, a << b), (x // True, a // True)):
            self.assertEqual(got.dtype, "i8")
            self.same(got, want)
        [got] = tenon.Session(tenon.export(lambda x, y: x // y, "bool[3]", "bool[3]")).forward(a, b)
        self.same(got, a // b)
        self.same(x.sort(), np.sort(a))
        self.same(ops.argsort(x), np.argsort(a, kind="stable"))
        self.same(ops.cummax(x), np.maximum.accumulate(a))

    def test_functions_of_numpy_of_integers(self):
        for dtype in WHOLE:
            a = self.whole(dtype, 5)
            for name in ("isnan", "isinf", "isfinite"):
                got = getattr(np, name)(tenon.array(a))
                self.assertIsInstance(got, tenon.Buffer)
                self.same(got, getattr(np, name)(a), dtype)
            with np.errstate(divide="ignore"):
                self.same(np.log10(tenon.array(a)), np.log10(a), dtype, 1e-3)
            for name in ("arctan2", "hypot"):
                wide = a.astype("f4")
                for other in (a, 2):
                    got = getattr(np, name)(tenon.array(a), other)
                    self.same(got, getattr(np, name)(wide, np.asarray(other, "f4")), (dtype, name), 1e-3)

    def test_types_that_numpy_spells_otherwise(self):
        for word, meant in (("f4", "f32"), ("i4", "i32"), ("u2", "u16"), ("c8", "c64")):
            with self.assertRaisesRegex(tenon.Error, f"'{word}' is no element type: numpy's is {meant} here"):
                tenon.array([1]).astype(word)

    def test_integers_and_booleans_that_stay(self):
        for dtype in WHOLE:
            a = self.whole(dtype, 4)
            for name in ("floor", "ceil", "trunc"):
                got = getattr(np, name)(tenon.array(a))
                self.assertEqual(got.dtype.numpy_name, a.dtype.name)
                self.same(got, a)
        m = np.array([True, False])
        self.same(np.fmod(tenon.array(m), True), np.fmod(m, True))
        self.same(tenon.array(m).clip(1, 5), m.clip(1, 5))
        for name in ("max", "min"):
            for call in (lambda x: getattr(x, name)(), lambda x: getattr(x, name)(1)):
                with self.assertRaises(ValueError):
                    call(tenon.array(np.zeros((2, 0), bool)))
            self.assertEqual(getattr(tenon.array(np.zeros((2, 0), bool)), name)(0).type, tenon.Shape((0,), "bool"))
        self.assertNotIn(-1, tenon.array(np.array([255], "u1")))

    def test_comparisons_with_numbers_that_the_type_does_not_hold(self):
        for dtype in WHOLE[1:]:
            a = self.whole(dtype, 3)
            for number in (-1, -2**7, -2**40, 2**8, 2**40, -2**63, 2**63, 2**64 - 1, -2**64, 2**64, 2**100):
                for name in ("lt", "le", "gt", "ge", "eq", "ne"):
                    compare = getattr(operator, name)
                    self.same(compare(tenon.array(a), number), compare(a, number), (dtype, name, number))
                    self.same(compare(number, tenon.array(a)), compare(number, a), (dtype, name, number))
        [got] = tenon.Session(tenon.export(lambda x: x > -1, "u8[N]")).forward(np.arange(3, dtype="u1"))
        self.same(got, [True] * 3)

    def test_what_is_in_an_array(self):
        x = tenon.array([1, 2, 3])
        self.assertIn(2, x)
        for other in (5, None, "text"):
            self.assertNotIn(other, x)

    def test_indices_of_empty_results(self):
        for at in ((slice(None), [7]), (slice(None), [-4]), ([0], [1])):
            for where in (tenon.array(np.zeros((0, 3))), np.zeros((0, 3))):
                with self.assertRaises(IndexError):
                    where[at]
        self.assertEqual(tenon.array(np.zeros((0, 3)))[:, [2, -3]].shape, (0, 2))

    def test_elements_at_places(self):
        a = self.array(3, 4)
        for x in (tenon.array(a), tenon.HostBuffer(a)):
            self.assertEqual((x.item(5), x.item(2, 1), x.item(-1)), (a.item(5), a.item(2, 1), a.item(-1)))
            for at in ((12,), (3, 0), (0, 0, 0)):
                with self.assertRaises((IndexError, ValueError)):
                    x.item(*at)
            self.same(x.take([0, 5, -1]), a.take([0, 5, -1]))
            self.same(x.take([[0], [2]], axis=0), a.take([[0], [2]], axis=0))
            self.same(x.take(1, 1), a.take(1, 1))
            self.same(x.repeat(2), a.repeat(2))
            self.same(x.repeat(repeats=2, axis=0), a.repeat(2, 0))
            for got, want in zip(x.nonzero(), a.nonzero()):
                self.same(got, want)
            with self.assertRaises(IndexError):
                x.take([12])

    def test_functions_of_numpy_recorded(self):
        a, m = self.array(2, 4), np.array([True, False, False, True])
        for call in (lambda x: np.vstack([x, x]), lambda x: np.vstack([x[0], x[1]]), lambda x: np.hstack([x, x]),
                     lambda x: np.hstack([x[0], x[1]]), lambda x: np.diff(x), lambda x: np.diff(x, 2, axis=-1),
                     lambda x: np.diff(x, axis=0), lambda x: np.take(x, [0, 7]), lambda x: np.take(x, [1], axis=1),
                     lambda x: np.isclose(x, x + 1e-3, rtol=0, atol=1e-2), lambda x: np.vstack([x, a[0]])):
            [got] = tenon.Session(tenon.export(call, "f32[2, 4]")).forward(a)
            self.same(got, call(a), tolerance=1e-6)
        [got] = tenon.Session(tenon.export(np.diff, "bool[4]")).forward(m)
        self.same(got, np.diff(m))
        with self.assertRaisesRegex(TypeError, "nonzero: .* has no value"):
            tenon.export(lambda x: np.nonzero(x)[0], "f32[2, 4]")

    def test_operators_of_two_types(self):
        """The wider integer, and the floating one of an integer and a floating type, as torch.promote_types says."""
        x = {name: tenon.array(self.whole(name, 3)) for name in (*WHOLE, "f4", "f2", "f8")}
        for a, b, want in (("i1", "u1", "i16"), ("i4", "u4", "i64"), ("i2", "i8", "i64"), ("bool", "u1", "u8"),
                           ("u1", "u4", "u32"), ("i8", "f4", "f32"), ("bool", "f2", "f16"), ("u1", "f8", "f64")):
            for left, right in ((x[a], x[b]), (x[b], x[a])):
                self.assertEqual((left + right).dtype, want, (a, b))
                self.same(left * right, left.numpy().astype("f8") * right.numpy(), (a, b), 1e-6)
                self.assertEqual((left < right).dtype, "bool")
        self.assertEqual((x["i4"] * 0.5).dtype, "f32")
        self.assertEqual((x["i4"] * 2.0).dtype, "f32")
        self.assertEqual((x["i4"] ** 0.5).dtype, "f32")
        self.assertEqual((x["bool"] + 1).dtype, "i64")
        self.assertEqual((np.int64(2) * x["f4"]).dtype, "f32")
        self.assertEqual((x["f2"] * np.float32(0.5)).dtype, "f16")
        self.same(tenon.array([1, 2]) == np.array([1, 3], "i4"), [True, False])
        for other in ([1, 2, 3], (1, 2, 3), np.arange(3), np.array([True, False, True]), np.arange(3, dtype="u1")):
            self.assertEqual((x["f4"] + other).dtype, "f32")
            self.same(other * x["f4"], np.asarray(other) * x["f4"].numpy())
        program = tenon.export(lambda x: x + [1, 2, 3], "f32[3]")
        self.same(tenon.Session(program).forward(x["f4"])[0], x["f4"].numpy() + [1, 2, 3])
        with self.assertRaisesRegex(tenon.ArgumentError, r"test_habits.py:\d+: mul: .*captured0', test_habits.py:"):
            tenon.export(lambda x: x * np.array(2.0), "f32[3]")
        with self.assertRaisesRegex(tenon.ArgumentError, "f32.* f64|f64.* f32"):
            x["f4"] + x["f8"]
        self.assertFalse(x["f4"] == None)  # noqa: E711
        self.assertTrue(x["f4"] != None)  # noqa: E711
        self.assertFalse(x["f4"] == "text")

    def test_indices(self):
        """Random subscripts, at once and recorded."""
        for _ in range(150):
            dims = tuple(self.random.integers(1, 5, self.random.integers(1, 5)))
            a = np.arange(np.prod(dims), dtype="i4").reshape(dims)
            at = self.subscript(dims)
            want, message = a[at], f"seed {SEED}: {dims} {at}"
            self.same(tenon.array(a)[at], want, message)
            self.same(tenon.array(a).to_host()[tuple(tenon.array(one) if isinstance(one, np.ndarray) else one
                                                     for one in at)], want, message)
            [got] = tenon.Session(tenon.export(lambda x: x[at], tenon.array(a).type)).forward(a)
            self.same(got, want, message)

    def subscript(self, dims):
        at, axis, arrays = [], 0, tuple(self.random.integers(1, 4, self.random.integers(0, 3)))
        while axis < len(dims):
            kind, size = self.random.integers(0, 7), dims[axis]
            if kind == 0:
                at.append(int(self.random.integers(-size, size)))
            elif kind == 1:
                if sum(one is None for one in at) < 2:  # at most 8 axes are possible
                    at.append(None)
                continue
            elif kind == 2:
                at.append(slice(*self.random.integers(-size, size + 1, 2), self.random.choice([-1, 1, 2])))
            elif kind in (3, 4):
                at.append(self.random.integers(-size, size, arrays))
            elif kind == 5:
                at.append(self.random.integers(0, 2, size).astype(bool) if not any(
                    isinstance(one, np.ndarray) for one in at) else slice(None))
                if isinstance(at[-1], np.ndarray):
                    arrays = (int(at[-1].sum()),)
            else:
                at.append(slice(None))
            axis += 1
        return tuple(at)

    def test_indices_of_computed_arrays(self):
        a = self.array(3, 4, 5)

        def pick(x, i, j):
            return x[i, j], x[:, i, j], x[i, :, j], x[i], x[:, i]

        session = tenon.Session(tenon.export(pick, "f32[A, 4, 5]", "i32[N]", "i64[N]"))
        i, j = np.array([0, 2, 1, 1], "i4"), np.array([3, 0, 2, 1])
        for got, want in zip(session.forward(a, i, j), pick(a, i, j)):
            self.same(got, want)
        with self.assertRaisesRegex(tenon.Error, "outside"):
            session.forward(a, i, j + 2)  # 5 of axis 1 is not the 1 of the next row
        for wrong in (5, [0, -4], [[0], [3]], (0, 0, 9), "a", 1.5, (0, 0, 0, 0), np.array([0.5])):
            with self.assertRaises(IndexError, msg=wrong):
                tenon.array(a)[wrong]
        with self.assertRaisesRegex(IndexError, "a mask"):
            tenon.export(lambda x: x[x > 0], "f32[3]")
        with self.assertRaisesRegex(TypeError, "do not change"):
            tenon.array(a)[0] = 1.0
        self.same(tenon.array(a)[tenon.array(a) > 0], a[a > 0])
        self.same(tenon.array(a)[[]], a[[]])

    def test_reshapes_with_words(self):
        """Random reshapes of random sizes, of which some are symbols, as far as symbols stay in order."""
        done = 0
        for _ in range(200):
            dims = tuple(int(one) for one in self.random.choice([1, 2, 3, 4, 6, 12], self.random.integers(1, 5)))
            a = np.arange(np.prod(dims), dtype="i4").reshape(dims)
            is_word = self.random.integers(0, 2, len(dims))
            have = [f"S{i}" if word else size for i, (word, size) in enumerate(zip(is_word, dims))]
            want, run = [], 1
            for size in (*have, "end"):  # runs of known sizes are factored otherwise
                if isinstance(size, int):
                    run *= size
                    continue
                factors = [f for f in (1, 2, 3, 4, 6, 12) if run % f == 0]
                first = int(self.random.choice(factors))
                want += [first, run // first] if run > 1 or self.random.integers(0, 2) else []
                want += [size]
                run = 1
            want = want[:-1]
            sizes = [dims[int(size[1:])] if isinstance(size, str) else size for size in want]
            if want and self.random.integers(0, 2):  # one axis, or several from there on, is what is left
                at = int(self.random.integers(0, len(want)))
                if isinstance(want[at], int) or not self.random.integers(0, 2):
                    want, sizes = [*want[:at], -1, *want[at + 1:]], [*sizes[:at], -1, *sizes[at + 1:]]
            if not 0 < len(want) <= 8:
                continue
            message = f"seed {SEED}: {have} to {want}"
            with self.subTest(message):
                program = tenon.export(lambda x: x.reshape(*want), tenon.Shape(have, "i32"))
                [got] = tenon.Session(program).forward(a)
                self.same(got, a.reshape(sizes), message)
                done += 1
        self.assertGreater(done, 100)
        program = tenon.export(lambda x: x.reshape(x.shape[0], x.shape[1], 3, 4).permute(0, 2, 1, 3), "f32[B, S, 12]")
        self.assertIn("split_axis", str(program))

    def test_axes_that_methods_take_by_default_are_those_of_numpy(self):
        x = np.arange(24, dtype="f").reshape(2, 3, 4) / 8
        for name in ("cumsum", "cumprod", "diagonal", "trace", "sort", "argsort", "argmax", "sum", "std", "squeeze", "round"):
            want = np.sort(x) if name == "sort" else getattr(x, name)()
            np.testing.assert_allclose(getattr(tenon.array(x), name)().numpy(), want, rtol=1e-5, err_msg=name)
        for given in ({"axis": 1}, {"dim": 1}):
            np.testing.assert_allclose(tenon.array(x).cumsum(**given).numpy(), x.cumsum(1))
        np.testing.assert_array_equal(tenon.array(x).diagonal(1, 2, 1).numpy(), x.diagonal(1, 2, 1))

    def test_truth_and_axes_that_are_none(self):
        x = tenon.array(np.ones((2, 3), "f"))
        with self.assertRaisesRegex(ValueError, r"bool: bool\[2, 3\] is not one number: .any\(\) or .all\(\)"):
            bool(x == x)
        with self.assertRaisesRegex(ValueError, r"float: f32\[2, 3\] is not one number$"):
            float(x)
        for call in (lambda: x.mean(("a",)), lambda: x.sum([0, "b"]), lambda: x.permute("a", "b")):
            with self.assertRaisesRegex(tenon.ArgumentError, r"'(axes|order)' cannot be .*'[ab]'"):
                call()
        with self.assertRaisesRegex(TypeError, "std: 'a' is no axis"):
            x.std("a")
        with self.assertRaisesRegex(IndexError, "var: axis 2 out of range"):
            x.var(2)

    def test_functions_of_numpy(self):
        a, b = self.array(3, 4), self.array(4)
        x, y = tenon.array(a), tenon.array(b)
        for call in (np.exp, np.tanh, np.abs, np.negative, np.sqrt, np.floor, np.isnan, np.sign, np.square, np.arctan,
                     np.rint, np.log1p):
            with np.errstate(invalid="ignore"):
                for given in (x, x.to_host()):
                    got = call(given)
                    self.assertIsInstance(got, tenon.Buffer)
                    self.same(got, call(a), call, 2e-6)
        for call in (np.add, np.subtract, np.maximum, np.minimum, np.arctan2, np.less, np.multiply, np.matmul):
            other = y if call is not np.matmul else tenon.array(self.array(4, 2))
            self.same(call(x, other), call(a, other.numpy()), call, 2e-6)
            self.same(call(a, other), call(a, other.numpy()), call, 2e-6)
        for call in (np.sum, np.mean, np.prod, np.max, np.min, np.std, np.var, np.any, np.all, np.argmax, np.argmin,
                     np.cumsum):
            for axis in (None, 0, 1, -1):
                self.same(call(x, axis=axis), call(a, axis=axis), (call, axis), 1e-5)
        self.same(np.sum(x, axis=1, keepdims=True), a.sum(1, keepdims=True), tolerance=1e-5)
        self.same(np.clip(x, -0.5, 0.5), np.clip(a, -0.5, 0.5))
        self.same(np.round(x, 2), np.round(a, 2), tolerance=1e-6)
        self.same(np.argsort(-x), np.argsort(-a))
        self.same(np.transpose(x), a.T)
        self.same(np.squeeze(x[:1]), a[0])
        self.same(np.logaddexp(x, y), np.logaddexp(a, b), tolerance=1e-6)  # numpy's own
        self.same(np.add.reduce(x, 0), np.add.reduce(a, 0), tolerance=1e-6)
        self.same(np.exp(tenon.array([1, 2])), np.exp(np.array([1, 2], "f4")), tolerance=1e-6)
        program = tenon.export(lambda x: np.exp(x) * np.float32(2), "f32[N]")
        self.same(tenon.Session(program).forward(b)[0], np.exp(b) * 2, tolerance=1e-6)
        for wrong in (np.logaddexp, np.nextafter):
            with self.assertRaisesRegex(TypeError, "no value while it is recorded"):
                tenon.export(lambda x: wrong(x, x), "f32[N]")

    def test_methods(self):
        a = self.array(3, 1, 4)
        x = tenon.array(a)
        for name, arguments in (
                ("squeeze", ()), ("squeeze", (1,)), ("std", ()), ("std", (0,)), ("var", (-1, )), ("ravel", ()),
                ("swapaxes", (0, 2)), ("argmax", ()), ("argmin", (0,)), ("clip", (-0.5, 0.5)), ("clip", (0, None)),
                ("round", (1,)), ("cumsum", (None,)), ("flatten", ()), ("transpose", ()), ("copy", ()), ("tolist", ()),
                ("mean", ((0, 2),)), ("astype", ("float64",))):
            for given in (x, x.to_host()):
                self.same(getattr(given, name)(*arguments), getattr(a, name)(*arguments), name, 1e-5)
        for name in ("T", "mT", "size", "ndim", "itemsize", "nbytes", "shape", "real", "imag"):
            self.same(getattr(x, name), getattr(a, name), name)
        self.same((x > 0).mean(), (a > 0).mean(), tolerance=1e-6)
        for given in (x, x.to_host()):
            self.assertEqual(given.cast("i32").dtype, "i32")
            self.same(given.dot(np.ones((4, 2), "f4")), a.dot(np.ones((4, 2), "f4")), tolerance=1e-6)
        recorded = set(dir(tenon.Tensor)) - set(dir(tenon.Buffer))  # what runs recorded runs at once
        self.assertEqual(recorded, {"graph", "name", "op", "__array_function__"})
        self.same(tenon.array([1, 2, 4]).mean(), 7 / 3, tolerance=1e-6)
        self.same(x.any(), True)
        self.same(x.sum(1, keepdims=True), a.sum(1, keepdims=True))
        with self.assertRaisesRegex(TypeError, "axis and axes are the same"):
            x.sum(axis=0, axes=[1])
        with self.assertRaisesRegex(TypeError, "multiple values for argument 'axis'"):
            x.sum(0, dim=1)
        self.same(x.argmax(0, keepdims=True), a.argmax(0, keepdims=True))
        self.same(x.clamp(min=0.0), np.maximum(a, 0))
        self.same(x.clip(tenon.array([0.0, 0.1, 0.2, 0.3])), np.maximum(a, np.array([0, 0.1, 0.2, 0.3], "f4")))
        self.assertEqual([one.shape for one in x.chunk(2)], [(2, 1, 4), (1, 1, 4)])
        self.assertEqual([one.shape for one in x], [(1, 4)] * 3)
        self.assertEqual((+x).tolist(), a.tolist())
        self.same(round(x, 1), a.round(1), tolerance=1e-6)
        self.assertEqual(f"{x[0, 0, 0]:.3f} {tenon.array(2)}", f"{a[0, 0, 0]:.3f} 2")
        for wrong in (iter, len):
            with self.assertRaises(TypeError):
                wrong(tenon.array(1.0))
            with self.assertRaisesRegex(TypeError, "known"):
                tenon.export(lambda x: wrong(x), "f32[N, 2]")
        self.assertEqual(str(tenon.export(lambda x: tuple(x), "f32[2, 3]")).count("= slice("), 2)

    def test_other_names_of_arguments(self):
        """Axes and sizes are called as the op, numpy and PyTorch call them."""
        a = self.array(3, 4, 5)
        x = tenon.array(a)
        for name in ("sum", "mean", "prod", "max", "min", "var", "std"):
            for axis in (1, (0, 2), [0, -1], range(2), np.array([0, 1]), np.int64(-1)):
                want = getattr(np, name)(a, axis=tuple(axis) if hasattr(axis, "__len__") else axis, keepdims=True)
                for words in ({"axis": axis, "keepdims": True}, {"axes": axis, "keep_dims": True},
                              {"dim": axis, "keepdim": True}):
                    self.same(getattr(ops, name)(a, **words), want, (name, words), 1e-5)
                    self.same(getattr(x, name)(**words), want, (name, words), 1e-5)
        for axis in ("axis", "dim", "axes"):
            at = {axis: 1}
            self.same(ops.norm(x, **at), np.linalg.norm(a, axis=1), axis, 1e-5)
            self.same(ops.logsumexp(x, **at), np.log(np.exp(a).sum(1)), axis, 1e-5)
            self.same(ops.count_nonzero(x, keepdims=True, **at), np.full((3, 1, 5), 4))
            self.same(ops.sort(x, **at), np.sort(a, 1))
            self.same(ops.argmax(x, **at), a.argmax(1))
            self.same(ops.flip(x, **at), np.flip(a, 1))
            self.same(ops.concat([x, a], **at), np.concatenate([a, a], 1))
            self.same(ops.stack([x, a], **at), np.stack([a, a], 1))
            self.same(ops.unsqueeze(x, **at), a[:, None])
        self.same(ops.sort(x, 1, True), -np.sort(-a, 1))
        self.same(ops.concat(x, a, axis=-1), np.concatenate([a, a], -1))
        for order in ("order", "axes", "dims"):
            self.same(ops.permute(x, **{order: (2, 0, 1)}), a.transpose(2, 0, 1))
        self.same(ops.transpose(x, axes=(2, 0, 1)), a.transpose(2, 0, 1))
        for shape in ("dims", "shape", "size"):
            self.same(ops.full(value=2.0, **{shape: (2, 3)}), np.full((2, 3), 2.0))
            self.same(ops.full(fill_value=2.0, **{shape: np.int64(2)}), np.full(2, 2.0))
            self.same(ops.reshape(x, **{shape: (12, 5)}), a.reshape(12, 5))
            self.same(ops.broadcast_to(x, **{shape: (2, 3, 4, 5)}), np.broadcast_to(a, (2, 3, 4, 5)))
        self.same(ops.clip(x, a_min=-1, a_max=1), a.clip(-1, 1))
        for count, axis in ((1, None), (-7, None), ((1, -2), (0, 1)), (3, (0, 2)), (1, 1)):
            self.same(ops.roll(x, count, axis), np.roll(a, count, axis), (count, axis))
        for count, axis in ((1, 1), (-2, 0), (0, 1), ((1, -2), (0, 1))):
            program = tenon.export(lambda x: ops.roll(x, count, axis), "f32[N, M, 5]")
            self.same(tenon.Session(program).forward(a)[0], np.roll(a, count, axis), (count, axis))
        for count in (2, (2, 1, 3), (2, 3), (2, 1, 1, 2)):
            self.same(ops.tile(x, count), np.tile(a, count), count)
        self.same(ops.repeat_interleave(x, 2), np.repeat(a, 2))
        for mode in ("wrap", "edge", "reflect", "constant"):
            self.same(ops.pad(x, ((0, 0), (1, 1), (2, 0)), mode=mode), np.pad(a, ((0, 0), (1, 1), (2, 0)), mode=mode))

    def test_functions_of_numpy_that_are_recorded(self):
        a, ones = self.array(3, 3, 4), np.ones((4, 2), "f4")
        for call in (
                lambda x: np.concatenate([x, x], axis=1), lambda x: np.stack((x, x), -1),
                lambda x: np.where(x > 0, x, 0), lambda x: np.where(x, x, -1.0), lambda x: np.reshape(x, (4, -1)), lambda x: np.dot(x, ones),
                lambda x: np.einsum("abc,dbc->ad", x, x), lambda x: np.linalg.norm(x, axis=-1, keepdims=True),
                np.linalg.norm, lambda x: np.linalg.norm(x, 1, -1),
                lambda x: np.pad(x, ((0, 0), (1, 1), (0, 2)), "wrap"), lambda x: np.pad(x, 1, constant_values=2), np.trace, np.diagonal, lambda x: np.repeat(x, 2, axis=1),
                lambda x: np.tile(x, (2, 1, 1)), lambda x: np.roll(x, 1), lambda x: np.expand_dims(x, 0), np.cumsum,
                lambda x: np.sort(x, axis=0), lambda x: np.sum(x, axis=(0, 1)), lambda x: np.std(x, axis=0, ddof=1),
                lambda x: np.clip(x, -1, 1), np.transpose, np.ravel, lambda x: np.full_like(x, 3) * x,
                lambda x: np.moveaxis(x, 0, -1), lambda x: np.split(x, 2, axis=2)[1]):
            [got] = tenon.Session(tenon.export(call, "f32[3, 3, 4]")).forward(a)
            self.same(got, call(a), call, 1e-5)
        for call in (lambda x: np.linalg.trace(x[..., :3], offset=1), np.linalg.diagonal, lambda x: np.reshape(x, (4, 9), "C"),
                     lambda x: np.concatenate([x, x], axis=None), lambda x: np.pad(x, ((1, 2),))):
            [got] = tenon.Session(tenon.export(call, "f32[3, 3, 4]")).forward(a)
            self.same(got, call(a), call, 1e-5)
        buffer = np.zeros((6, 3, 4), "f4")
        for call, words in ((lambda x: np.reshape(x, (4, 9), order="F"), "order='F'"), (lambda x: np.ravel(x, "F"), "'F'"),
                            (lambda x: np.concatenate([x, x], out=buffer), "no array to write to"),
                            (lambda x: np.concatenate([x, x], 0, buffer), "no array to write to"),
                            (lambda x: np.einsum("abc->c", x, out=buffer), "no array to write to")):
            with self.assertRaisesRegex(TypeError, words):
                tenon.export(call, "f32[3, 3, 4]")
        for wrong in (np.cross, lambda x: np.dot(x, x), lambda x: np.linalg.norm(x, 2, (0, 1))):
            with self.assertRaisesRegex(TypeError, "ops"):
                tenon.export(lambda x: wrong(x, x) if wrong is np.cross else wrong(x), "f32[3, 3, 4]")

    def test_cross_entropy(self):
        logits, labels = self.array(5, 4), np.array([0, 3, -100, 1, 9])
        shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        rows = np.array([0, 1, 3])
        want = -(0.9 * shares[rows, labels[rows]] + 0.1 * shares[rows].mean(-1)).mean()
        got = ops.cross_entropy(logits, np.where(labels == 9, -100, labels), label_smoothing=0.1)
        self.same(got, want, tolerance=1e-5)
        self.same(ops.cross_entropy(logits[:4], labels[:4], ignore_index=-100), -shares[rows, labels[rows]].mean(),
                  tolerance=1e-5)
        # Ignored by default, as in PyTorch and in C++, with smoothing and without.
        self.same(ops.cross_entropy(logits[:4], labels[:4]), -shares[rows, labels[rows]].mean(), tolerance=1e-5)
        with self.assertRaises(tenon.ArgumentError):
            ops.cross_entropy(logits, labels)
        with self.assertRaises(tenon.ArgumentError):
            ops.cross_entropy(logits[:4], labels[:4], ignore_index=None)

    def test_cross_entropy_of_weighted_classes_and_single_rows(self):
        logits, labels, weight = self.array(2, 3, 4), np.array([[0, 3, -100], [1, 2, 1]]), np.array([1, 0.5, 2, 3], "f4")
        shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        kept = labels != -100
        chosen = np.take_along_axis(shares, np.where(kept, labels, 0)[..., None], -1)[..., 0]
        for w in (None, weight):
            of_class = kept * (np.ones(4, "f4") if w is None else w)[np.where(kept, labels, 0)]
            for s in (0.0, 0.2):
                even = (shares * (1 if w is None else w)).mean(-1)
                rows = -((1 - s) * of_class * chosen + s * kept * even)
                options = {"weight": w, "label_smoothing": s}
                self.same(ops.cross_entropy(logits, labels, reduction="none", **options), rows, options, 1e-5)
                self.same(ops.cross_entropy(logits, labels, reduction="sum", **options), rows.sum(), options, 1e-5)
                self.same(ops.cross_entropy(logits, labels, **options), rows.sum() / of_class.sum(), options, 1e-5)
        self.same(ops.cross_entropy(logits[1], labels[1], reduction="none", ignore_index=None), -chosen[1], tolerance=1e-5)
        with self.assertRaisesRegex(ValueError, "reduction='median'"):
            ops.cross_entropy(logits, labels, reduction="median")

    def test_words_for_gelu(self):
        x = self.array(20)
        for word, want in (("none", ops.gelu(x)), ("tanh", ops.gelu_tanh(x)), (True, ops.gelu_tanh(x))):
            self.same(ops.gelu(x, approximate=word), want)
        with self.assertRaisesRegex(ValueError, "approximate='sigmoid'"):
            ops.gelu(x, "sigmoid")

    def test_norms_with_a_bias_alone(self):
        x, bias = self.array(2, 4, 3, 4), self.array(4)
        mean, deviation = x.mean((2, 3), keepdims=True), np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
        want = (x - mean) / deviation + bias[:, None, None]
        self.same(ops.group_norm(x, None, bias, groups=4), want, tolerance=1e-4)
        self.same(ops.group_norm(x, bias=bias, num_groups=4), want, tolerance=1e-4)
        self.same(ops.instance_norm(x, None, bias), want, tolerance=1e-4)
        want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) + bias
        self.same(ops.layer_norm(x, None, bias), want, tolerance=1e-4)
        [got] = tenon.Session(tenon.export(lambda x: ops.layer_norm(x, bias=bias), "f32[N, 4, 3, 4]")).forward(x)
        self.same(got, want, tolerance=1e-4)
        zero = np.zeros(4, "f4")
        self.same(ops.batch_norm(x, zero, zero + 1, None, bias, eps=0.0), x + bias[:, None, None], tolerance=1e-6)
        codes = self.whole("u1", 2, 3)
        with self.assertRaisesRegex(tenon.ArgumentError, "operand 3 is None, and operand 4 after it is given"):
            ops.matmul_integer(codes, codes.T, None, np.uint8(1))

    def test_ellipsis_and_bools_that_stand_for_no_axis(self):
        a = self.array(4, 5, 6)
        for at in ((-2, [4, 0, 3], ..., -2), (slice(0, 2), [4, 0, 3], ..., -2), (slice(0, 2), [1, 2, 3], ..., [0, 1, 2]),
                   (None, [0, 1], 2, ..., [1, 2]), (1, 0, ..., [1, 2]), True, False, np.True_, np.array(True), (0, True),
                   (True, [0, 1]), (slice(None), True), ([0, 1], True, [1, 2]), (..., True), (True, True), (False, 0),
                   (True, ..., [0, 1])):
            self.same(tenon.array(a)[at], a[at], at)
            [got] = tenon.Session(tenon.export(lambda x: x[at], tenon.array(a).type)).forward(a)
            self.same(got, a[at], at)

    def test_booleans_are_added_multiplied_and_compared(self):
        a, b = np.array([[True, False, True], [False, False, True]]), np.array([True, True, False])
        for function in (lambda x, y: x * y, lambda x, y: x + y, lambda x, y: y * x, lambda x, y: x + True,
                         lambda x, y: False * x, lambda x, y: abs(x), lambda x, y: x.max(), lambda x, y: x.min(1),
                         lambda x, y: x.argmax(1), lambda x, y: x.argmin(), lambda x, y: np.maximum(x, y),
                         lambda x, y: np.minimum(x, y), lambda x, y: np.maximum(x, False)):
            want = function(a, b)
            for got in (function(tenon.array(a), tenon.array(b)), function(tenon.array(a), b),
                        tenon.Session(tenon.export(function, "bool[2, 3]", "bool[3]")).forward(a, b)[0]):
                self.assertEqual(got.dtype == "bool", want.dtype == bool)
                self.same(got.numpy() + 0, want + 0)

    def test_buffers_of_python_that_are_no_arrays_of_numbers(self):
        import ctypes
        self.same(tenon.array((ctypes.c_float * 3)(1, 2, 3)), np.array([1, 2, 3], "f4"))
        self.same(tenon.array(((ctypes.c_int32 * 2) * 2)((1, 2), (3, 4))), np.array([[1, 2], [3, 4]], "i4"))
        self.same(tenon.array(b"abc"), np.frombuffer(b"abc", "u1"))
        for date in (np.datetime64("2020"), np.timedelta64(3, "s"), np.array(["2020"], "M8[D]")):
            for call in (lambda: tenon.array(date), lambda: tenon.array([1.0]) + date):
                with self.assertRaises((tenon.Error, TypeError)):
                    call()

    def test_masks_have_the_sizes_of_their_axes(self):
        a = self.array(3, 4)
        self.same(tenon.array(a)[:, a[0] > 0], a[:, a[0] > 0])
        self.same(tenon.Session(tenon.export(lambda x: x[:, a[0] > 0], "f32[N, M]")).forward(a)[0], a[:, a[0] > 0])
        for mask in (np.array([True, False]), np.ones((3, 3), bool), np.ones((4, 3), bool)):
            with self.assertRaisesRegex(IndexError, "a mask of [234] elements for axis [01] of f32"):
                tenon.array(a)[mask]

    def test_axes_out_of_range(self):
        x = tenon.array(self.array(3, 4))
        for call in (lambda: ops.unsqueeze(x, 4), lambda: ops.stack([x, x], -4), lambda: ops.flatten(x, 2),
                     lambda: ops.split(x, 2, 2), lambda: ops.chunk(x, 2, -3), lambda: ops.swapaxes(x, 0, 2)):
            with self.assertRaisesRegex(IndexError, r": axis -?[234] out of range for f32\[3, 4\]"):
                call()
        with self.assertRaisesRegex(tenon.ArgumentError, "softmax: axis -5 out of range"):
            ops.softmax(x, -5)

    def test_numbers_that_a_type_does_not_hold(self):
        x = tenon.array(np.array([250, 5], "u1"))
        self.same(x + 5, [255, 10])
        for call, words in ((lambda: x + 300, "300 beside an array of u8, which holds numbers up to 255"),
                            (lambda: x * -1, "-1 beside an array of u8, which holds numbers from 0"),
                            (lambda: ops.lt(x, 256), "up to 255"), (lambda: ops.maximum(x.astype("i32"), 1e10), "i32"),
                            (lambda: tenon.export(lambda x: x - 300, x.type), "up to 255"),
                            (lambda: x.astype("f32") + 2**70, "more than 64 bits"), (lambda: x - 2**70, "more than 64 bits")):
            with self.assertRaisesRegex(tenon.Error, words):
                call()

    def test_numbers_that_arrays_are_filled_with(self):
        large, small = 2**60 + 1, tenon.array(np.array([1], "u1"))
        for program in (False, True):
            call = (lambda f: tenon.Session(tenon.export(f, x="i64[2]")).forward([1, 2])[0]) if program else \
                lambda f: f(tenon.array([1, 2]))
            self.same(call(lambda x: ops.pad(x, 1, value=large)), [large, 1, 2, large])
            self.same(call(lambda x: x + ops.full((2,), np.int64(large), "i64")), [large + 1, large + 2])
        self.same(ops.pad(tenon.array([1, 2]), 1, value=3.0), [3, 1, 2, 3])
        self.assertEqual(ops.full((1,), 2**64 - 1, "u64").tolist(), [2**64 - 1])
        for call in (lambda: ops.pad(small, 1, value=300), lambda: ops.pad(small, 1, value=-1),
                     lambda: ops.full((1,), 2**60, "u8"), lambda: ops.full_like(small, 256)):
            with self.assertRaisesRegex(OverflowError, "among elements of u8, which are from 0 to 255"):
                call()
        for value in (1.5, float("nan")):
            with self.assertRaisesRegex(TypeError, "i64, which are integers"):
                ops.pad(tenon.array([1, 2]), 1, value=value)

    def test_operators_beside_what_is_no_array(self):
        for x in (tenon.array([1, 2]), tenon.array([1.0, 2.0]), tenon.array([True, False])):
            for other in (None, "a", object(), {1}, int):
                self.assertIs(x == other, False)
                self.assertIs(x != other, True)
                for call in (lambda: x + other, lambda: other * x, lambda: x / other, lambda: x // other, lambda: x < other):
                    with self.assertRaises(TypeError):
                        call()
            self.same(x + range(2), x.numpy() + np.arange(2))
            self.assertEqual((tenon.array([2, 1]) * (1, 2)).tolist(), [2, 2])

    def test_integers_that_are_clipped_and_rounded(self):
        a = np.array([-15, -5, 0, 5, 14, 15, 25, 125])
        for dtype in ("i1", "u1", "i4", "i8", "u8"):
            x = np.abs(a).astype(dtype) if dtype[0] == "u" else a.astype(dtype)
            for decimals in (0, 1, -1, -2, -25):
                self.same(tenon.array(x).round(decimals), np.round(x, decimals), (dtype, decimals))
        self.same(ops.round(tenon.array(a * 1.0), -1), np.round(a * 1.0, -1))
        for low, high in ((0.5, 14.5), (None, 0.5), (0.5, None), (0, 2.0), (1, 14), (np.int64(1), 14), (np.float32(0.5), 3),
                          (float("-inf"), 5)):
            got = ops.clip(tenon.array(a), low, high)
            self.same(got, np.clip(a, low, high), (low, high))
            self.assertEqual(got.dtype.is_floating, np.clip(a, low, high).dtype.kind == "f", (low, high))
        self.same(ops.clip(tenon.array([0, 1, 2]), np.array([0.5, 0.5, 1.5], "f4")), [0.5, 1, 2])

    def test_numbers_in_steps(self):
        for arguments, dtype in (((0.0, 3.5, 1), "i4"), ((0.0, 1000.0, 0.1), "f4"), ((0.0, 2.0**24 + 5), "f4"), ((1, 0, -0.25), "f8"),
                                 ((0.0, 0.0), "f4")):
            self.same(ops.arange(*arguments, dtype=np.dtype(dtype)), np.arange(*arguments).astype(dtype), arguments)
        for arguments in ((0, 10, 5), (-10, 0, 5), (3, 3, 2), (0, 1, 1), (0, 1, 0)):
            for dtype in ("i4", "f4", "f8"):
                self.same(ops.linspace(*arguments, np.dtype(dtype)), np.linspace(*arguments, dtype=dtype), (arguments, dtype))
        for count in range(2, 200):
            self.assertEqual(ops.linspace(0.1, 0.7, count)[-1].item(), np.float32(0.7))
        self.assertEqual([ops.arange(np.int64(5)).dtype, ops.arange(np.float32(5)).dtype, ops.arange(tenon.array(2)).dtype],
                         ["i64", "f32", "i64"])
        [got] = tenon.Session(tenon.export(lambda x: x * ops.linspace(0, 1, 5) + ops.arange(0, 0.5, 0.1), x="f32[5]")).forward(
            np.ones(5, "f4"))
        self.same(got, np.linspace(0, 1, 5) + np.arange(0, 0.5, 0.1), tolerance=1e-6)

    def test_numbers(self):
        self.assertEqual(tenon.array(np.array(2**64 - 3, "u8")).item(), 2**64 - 3)
        z = tenon.array([1 + 2j, 3])
        self.assertEqual((z[0].item(), complex(z[0]), complex(tenon.array(2.0))), (1 + 2j, 1 + 2j, 2 + 0j))
        for kind in (float, int):
            with self.assertRaisesRegex(TypeError, "complex"):
                kind(z[0])
        self.assertEqual((float(tenon.array([2.5])), int(tenon.array(7).to_host())), (2.5, 7))
        for what in (float, int, complex, bool, np.asarray, lambda x: x.item(), lambda x: x.numpy(),
                     lambda x: x.tolist(), lambda x: "abc"[x]):
            with self.assertRaisesRegex(TypeError, "no value while"):
                tenon.export(what, "f32[]")

    def test_types(self):
        x = tenon.array(self.array(2))
        for same in (np.float32, np.dtype("f4"), "float32", "f32", tenon.f32):
            self.assertTrue(x.dtype == same, same)
        for other in (np.float64, "f16", None, 5, int, object(), "nothing"):
            self.assertFalse(x.dtype == other, other)
        self.assertEqual(np.dtype(x.dtype.numpy_name), np.dtype("f4"))
        self.assertFalse(hasattr(x.dtype, "dtype"))  # numpy, and JAX with it, would not take x for an array
        self.assertEqual(x.to("f16").dtype, "f16")
        self.assertEqual(x.to_host().to(np.float64).dtype, "f64")
        self.assertEqual(x.to("cpu").dtype, "f32")
        with self.assertRaisesRegex(TypeError, "no device"):
            x.to(5)

    def test_what_is_no_array(self):
        for wrong, message in ((None, "None is no array"), ({"a": 1}, "dict"), ([[1, 2], [3]], "inhomogeneous"),
                               ("text", "str"), (object(), "object"), ([1, None], "list")):
            with self.assertRaisesRegex(tenon.Error, message):
                tenon.array(wrong)
        a = self.array(2)
        session = tenon.Session(tenon.export(lambda x, y: x + y, x="f32[N]", y="f32[N]"))
        for given in (([a, None],), ({"x": a, "y": a},), ((a, a[:1]),)):
            with self.assertRaisesRegex(tenon.ArgumentError, r"input 'x': .*one by one"):
                session.forward(*given)
        with self.assertRaisesRegex(tenon.ArgumentError, "input 'y': None is no array"):
            session.forward(a, None)

    def test_donated_arrays_come_back(self):
        """A call that fails, also before it runs, gives back what it was given."""
        session = tenon.Session(tenon.export(lambda x, y: x + y, x="f32[N]", y="f32[N]"))
        x, y = tenon.array(self.array(3)) + 0, tenon.array(self.array(3)) + 0
        kept = x.numpy().copy()
        for given in (lambda: (x.donate(), None), lambda: (x.donate(), x.donate()), lambda: (x.donate(), x),
                      lambda: (x.donate(), self.array(2)), lambda: (x.donate(),), lambda: (x.donate(), y, y)):
            with self.assertRaises(tenon.Error):
                session.forward(*given())
            self.same(x, kept)
            for call in (session.submit, lambda *arrays: session.step_to(session.program.op_names()[-1], *arrays)):
                with self.assertRaises(tenon.Error):
                    call(*given())
                self.same(x, kept)
        with self.assertRaises(tenon.Error):
            session.step_to("none", x.donate(), y)
        self.same(x, kept)
        self.same(session.step_to(session.program.op_names()[-1], x.donate(), y), kept + y.numpy())
        x = tenon.array(kept) + 0
        self.same(session.submit(x.donate(), y)[0], kept + y.numpy())
        x = tenon.array(kept) + 0
        self.same(session.forward(x.donate(), y)[0], kept + y.numpy())

    def test_lists_of_numbers_as_inputs(self):
        for dtype, given in (("i32", [1.0, -2.0]), ("f64", [0.1, 2]), ("u8", (255, 0)), ("i64", (True, 2**62)), ("f16", (1, 0.1)),
                             ("bool", [1, 0]), ("u64", [2**64 - 1, 0]), ("c64", [1j, 2]), ("c64", (1, 2))):
            session = tenon.Session(tenon.export(lambda x: ops.concat([x, x]), x=f"{dtype}[2]"))
            self.same(session.forward(given)[0], np.array(given, tenon.DType(dtype).numpy_name).tolist() * 2, dtype)
        for dtype, given in (("i32", [1.7, -2.9]), ("u8", (300, 0)), ("u8", [-1, 0]), ("i32", [float("nan"), 0]),
                             ("i64", [2**64 - 1, 0]), ("i32", (1e10, 0)), ("bool", [0.5, 0])):
            session = tenon.Session(tenon.export(lambda x: ops.concat([x, x]), x=f"{dtype}[2]"))
            with self.assertRaisesRegex(tenon.ArgumentError, f"input 'x': numbers .* {dtype} does not hold"):
                session.forward(given)

    def test_large_integers(self):
        large = 2**53 + 1
        self.assertEqual(ops.full((2,), large, "i64").tolist(), [large] * 2)
        program = tenon.export(lambda x: x + ops.full((2,), large, "i64"), "i64[2]")
        self.assertEqual(tenon.Session(program).forward([1, 2])[0].tolist(), [large + 1, large + 2])
        self.assertEqual(tenon.array([0, 2**60]).clip(0, large).tolist(), [0, large])

    def test_help(self):
        self.assertIn("The nearest integer", ops.round.__doc__)
        self.assertIn("Scaled dot-product attention", ops.attention.__doc__)
        self.assertIn("causal=False", ops.attention.__doc__)
        self.assertIn("The error function", ops.erf.__doc__)
        self.assertIn("Scaled dot-product attention", pydoc.render_doc(ops.attention))

    def test_integers_that_no_double_holds(self):
        n = 2**53 + 1
        x = np.array([1, n], "i8")
        for one in (n, np.int64(n)):
            self.assertEqual(ops.full((1,), one, "i64").item(), n)
            self.assertEqual(ops.clip(x, one, one).numpy().tolist(), [n, n])
            self.assertEqual(ops.pad(x, (1,), (0,), one).numpy().tolist(), [n, 1, n])
            with self.assertRaisesRegex(tenon.ArgumentError, "'min' cannot be"):
                ops.clamp(x, min=one)
        largest = np.iinfo("i8").max
        self.assertEqual(ops.pad(x, (1,), (0,), largest).numpy().tolist(), [largest, 1, n])

    def test_an_array_as_an_attribute(self):
        """It has __index__, which raises TypeError."""
        a = self.array(3)
        for given in (a, tenon.array(a), [a], (1, (2, 3)), {"a": 1}):
            with self.assertRaisesRegex(tenon.ArgumentError, "cannot be"):
                ops.softmax(a, axis=given)
            with self.assertRaisesRegex(tenon.ArgumentError, "cannot be"):
                ops.conv2d(np.ones((1, 1, 3, 3), "f4"), np.ones((1, 1, 2, 2), "f4"), stride=given)

        @tenon.op(beta=1.0)
        def habits_scaled(x, beta):
            return x * np.float32(beta)

        with self.assertRaisesRegex(tenon.ArgumentError, "operands come before"):
            habits_scaled(a, a)
        self.same(habits_scaled(a, 2.0), a * 2)

    def test_windows_and_edges(self):
        a = self.array(1, 2, 6, 6)
        w = self.array(3, 2, 3, 3)
        self.same(ops.conv2d(a, w, stride=2, padding=1), ops.conv2d(a, w, stride=(2, 2), padding=(1, 1)))
        self.same(ops.max_pool2d(a, 2), a.reshape(1, 2, 3, 2, 3, 2).max((3, 5)))
        for width in (1, (1, 2), ((0, 0), (0, 1), (2, 1), (1, 0)), ((1, 2),), (1,), np.int64(2), np.arange(8).reshape(4, 2)):
            self.same(ops.pad(a, width), np.pad(a, width), width)
        self.same(ops.pad(a, (0, 0, 1, 2), (0, 0, 3, 4)), np.pad(a, ((0, 0), (0, 0), (1, 3), (2, 4))))

    def test_decompositions(self):
        a = self.array(2, 4, 3)
        square = a @ a.swapaxes(-1, -2) + np.eye(4, dtype="f4")
        values, vectors = ops.eigh(square)
        self.same(values, np.linalg.eigh(square)[0], tolerance=1e-5)
        self.same(square @ vectors, vectors * values[..., None, :], tolerance=1e-4)
        u, s, v = ops.svd(a)
        self.same(s, np.linalg.svd(a, compute_uv=False), tolerance=1e-5)
        self.same((u * s[..., None, :]) @ v, a, tolerance=1e-5)
        q, r = ops.qr(a)
        self.same(q @ r, a, tolerance=1e-5)
        self.same(q.mT @ q, np.broadcast_to(np.eye(3), (2, 3, 3)), tolerance=1e-5)
        factors, rows = ops.lu(square)
        lower, upper = np.tril(factors, -1) + np.eye(4), np.triu(factors)
        self.same(np.take_along_axis(square, rows.numpy()[..., None], -2), lower @ upper, tolerance=1e-4)
        for got, want in zip(ops.slogdet(square), np.linalg.slogdet(square)):
            self.same(got, want, tolerance=1e-5)
        self.same(ops.inverse(square), np.linalg.inv(square), tolerance=1e-3)
        [first, _] = tenon.Session(tenon.export(lambda x: ops.eigh(x), "f32[2, 4, 4]")).forward(square)
        self.same(first, values)

    def test_classes(self):
        logits, labels = self.array(5, 7), self.random.integers(0, 7, 5)
        shifted = logits.astype("f8") - logits.max(1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        self.same(ops.cross_entropy(logits, labels), -log_p[np.arange(5), labels].mean(), tolerance=1e-5)
        self.same(ops.one_hot(labels, 7), np.eye(7)[labels])
        self.same(ops.eye(3), np.eye(3))
        powers = np.arange(-37, 39)
        for dtype in ("f2", "f4", "f8"):
            held = powers[abs(powers) < (5 if dtype == "f2" else 99)]
            # Exactly: numpy's log10(f32 100) is 2.0000002 on some machines.
            self.same(ops.log10(np.array([f"1e{one}" for one in held], dtype)), held)
        for dtype in ("f2", "f4", "f8"):  # beside 1, of which the logarithm is 0
            near = np.nextafter(np.ones(2, dtype), np.array([0, 2], dtype))
            np.testing.assert_allclose(ops.log10(near).numpy(), np.log10(near.astype("f8")), rtol=2e-3)
        x = np.array([0.3, 7, 1e4, 1e-5])
        self.same(ops.log10(x), np.log10(x), tolerance=1e-15)
        self.same(ops.log10(np.array([0, np.inf, np.nan], "f4")), [-np.inf, np.inf, np.nan])
        self.same(tenon.grad(lambda x: ops.log10(x).sum())(x), 1 / x / np.log(10), tolerance=1e-9)

    def test_more_functions(self):
        a = self.array(2, 4, 5)
        for axis in (None, 0, (1, 2)):
            self.same(ops.flip(a, axis), np.flip(a, axis))
        for diagonal in (-2, 0, 1):
            self.same(ops.tril(a, diagonal), np.tril(a, diagonal))
            self.same(ops.triu(a, diagonal), np.triu(a, diagonal))
            program = tenon.export(lambda x: ops.tril(x, diagonal), "f32[2, N, M]")
            self.same(tenon.Session(program).forward(a)[0], np.tril(a, diagonal))
        large = a * 300
        for axis in (None, 1, (0, 2)):
            shift = large.max(axis, keepdims=True)
            want = np.log(np.exp((large - shift).astype("f8")).sum(axis, keepdims=True)) + shift
            self.same(ops.logsumexp(large, axis, keepdims=True), want, axis, 1e-3)
            self.same(ops.logsumexp(large, axis), np.squeeze(want, axis), axis, 1e-3)
        self.same(ops.logsumexp(np.full(3, -np.inf, "f4")), -np.inf)
        self.same(ops.linspace(-1, 2, 7), np.linspace(-1, 2, 7), tolerance=1e-6)
        self.same(ops.linspace(3, 4, 1), [3])
        self.same(ops.mse_loss(a, a[:1]), ((a - a[:1])**2).mean(), tolerance=1e-5)

    def test_a_sample_is_what_forward_takes(self):
        x = self.array(4, 8)
        program = tenon.export(lambda x: ops.linear(x, np.eye(8, dtype="f4")), x="f32[4, 8]")
        tables = {tenon.calibrate(program, None, samples) for samples in ([[x]], [x], [{"x": x}])}
        self.assertEqual(len(tables), 1)
        session = tenon.Session(program)
        for inputs in ([x], x, {"x": x}):
            [recorded] = tenon.record_activations(session, inputs).values()
            self.same(recorded, x)
            self.assertIsNone(tenon.compare_activations(session, inputs, {"linear0": x}).first)

    def test_files_are_mappings(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "a.safetensors")
            arrays = {"a": self.array(2, 3), "b": np.arange(3)}
            tenon.save_safetensors(path, arrays)
            for name, array in tenon.open(path).items():
                self.same(array, arrays[name])
                self.same(array * 2, arrays[name] * 2)
            self.assertEqual(sorted(one.shape for one in tenon.open(path).values()), [(2, 3), (3,)])
            for wrong in ([self.array(2)], None, 5, {1: self.array(2)}):
                with self.assertRaisesRegex((tenon.ArgumentError, TypeError), "no mapping|incompatible"):
                    tenon.save_safetensors(path, wrong)

    def test_a_snapshot_without_plans(self):
        """Weights that plans need are none before there are plans: the file would run nowhere."""
        program = tenon.export(lambda x: x @ tenon.build.weight("w", "f32[8, 8]"), x="f32[N, 8]")
        session, x = tenon.Session(program, {"w": self.array(8, 8)}), self.array(2, 8)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "net.snapshot")
            with self.assertRaisesRegex(tenon.ArgumentError, "prepare"):
                session.save(path, weights="needed")
            [want] = session.forward(x)
            session.save(path, weights="needed")
            self.same(tenon.Session.load(path).forward(x)[0], want)

    def test_gradients_are_of_what_is_recorded(self):
        with self.assertRaisesRegex(TypeError, "gradient"):
            tenon.grad(tenon.array(1.0), [])

    def test_threads(self):
        a, failed = self.array(30, 20), []

        def work():
            try:
                for _ in range(20):
                    self.same(tenon.array(a)[[1, -1], [0, 3]] * 2 // 1, a[[1, -1], [0, 3]] * 2 // 1)
            except BaseException as error:  # noqa: BLE001
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])


if __name__ == "__main__":
    print(f"TENON_TEST_SEED={SEED}")
    unittest.main()

"""Programs from Python, sessions, snapshots, gradients, files."""

import collections
import dataclasses
import logging
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np

import tenon
from tenon import ops

SEED = np.random.SeedSequence().entropy


def mlp(x):
    w0, w1 = tenon.build.weight("up", "f32[16, 8]"), tenon.build.weight("down", "f32[4, 16]")
    return ops.softmax(ops.linear(ops.linear(x, w0).relu(), w1))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Programs(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}")
        self.random = np.random.default_rng(SEED)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def array(self, *shape):
        return self.random.standard_normal(shape).astype("f4")

    def test_session_of_a_text(self):
        text = str(tenon.export(lambda x: x + 1.0, "f32[2]"))
        self.assertEqual(tenon.Session(text).forward([1.0, 2.0])[0].tolist(), [2.0, 3.0])
        with self.assertRaises(tenon.InputError):
            tenon.Session("no program")
        with self.assertRaises(TypeError):
            tenon.Session(3)

    def test_value_and_grad(self):
        calls = []

        def loss(p, x, scale):
            calls.append(scale)
            h = ops.tanh(x @ p["up"][0] + p["bias"])
            return (h * h).sum() * scale if isinstance(scale, float) else (h * h).mean()

        p = {"up": [self.array(4, 3)], "bias": self.array(3)}
        x = self.array(5, 4)
        step = tenon.value_and_grad(loss, argnums=(0, 1))
        value, (dp, dx) = step(p, x, None)
        h = np.tanh(x @ p["up"][0] + p["bias"])
        inner = 2 * h * (1 - h * h) / h.size
        self.assertAlmostEqual(value.item(), (h * h).mean(), places=5)
        np.testing.assert_allclose(dp["up"][0].numpy(), x.T @ inner, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(dp["bias"].numpy(), inner.sum(0), rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(dx.numpy(), inner @ p["up"][0].T, rtol=2e-4, atol=1e-5)
        again, _ = step({"up": [p["up"][0] * 2], "bias": p["bias"]}, x, None)  # recorded once
        self.assertNotEqual(again.item(), value.item())
        self.assertEqual(len(calls), 1)
        step(p, x[:2], None)
        step(p, x, "sum")
        self.assertEqual(len(calls), 3)
        last, d = tenon.value_and_grad(lambda a, b: a * b, argnums=-1)(2.0, 3.0)
        self.assertEqual((last.item(), d.item()), (6, 2))
        for wrong, numbers in ((lambda a: 3, 0), (lambda a: a, 1)):
            with self.assertRaises(TypeError):
                tenon.value_and_grad(wrong, argnums=numbers)(1.0)
        with self.assertRaises(tenon.Error):  # no scalar
            tenon.value_and_grad(lambda a: a * 2.0)(x)

    def test_grad_of_a_function(self):
        x, w = np.float32([1, 2, 3]), np.float32([2, 0, 1])
        def loss(x, w):
            return (x * x * w).sum()

        np.testing.assert_array_equal(tenon.grad(loss)(x, w).numpy(), 2 * x * w)
        for made in (tenon.grad(loss, (1, 0)), tenon.grad(loss, argnums=(1, 0))):
            dw, dx = made(x, w)
            np.testing.assert_array_equal(dw.numpy(), x * x)
            np.testing.assert_array_equal(dx.numpy(), 2 * x * w)
        cubes = tenon.grad(lambda x: tenon.grad(lambda x: (x ** 3.0).sum())(x).sum())
        np.testing.assert_allclose(cubes(x).numpy(), 6 * x, rtol=1e-6)

    def test_value_and_grad_of_gradients(self):
        x = self.array(3, 4)

        def energy(p, scale):
            return (ops.tanh(p["x"]) ** 3.0).sum() * scale

        def penalty(p, scale):
            value, g = tenon.value_and_grad(energy)(p, scale)
            return (g["x"] ** 2.0).sum() + value

        value, d = tenon.value_and_grad(penalty)({"x": x}, 2.0)
        t = np.tanh(x.astype("f8"))
        first, second = 6 * t**2 * (1 - t**2), 2 * (6 * t - 12 * t**3) * (1 - t**2)
        self.assertAlmostEqual(value.item(), (first**2).sum() + 2 * (t**3).sum(), places=3)
        np.testing.assert_allclose(d["x"].numpy(), 2 * first * second + first, rtol=1e-3, atol=1e-4)

        # b is computed from a: the inner gradient by a leaves b as it is, the outer one does not.
        def of_both(a):
            _, g = tenon.value_and_grad(lambda a, b: (a * a * b).sum())(a, a * 3.0)
            return g.sum()

        _, d = tenon.value_and_grad(of_both)(x)
        np.testing.assert_allclose(d.numpy(), 12 * x, rtol=1e-5)  # of 2 a (3 a)

        def of_array(a):
            _, (g, h) = tenon.value_and_grad(lambda a, b: (a * b).sum(), (0, 1))(a, np.float32(5))
            return g.sum() * h

        value, _ = tenon.value_and_grad(of_array)(x)
        self.assertAlmostEqual(value.item(), 5 * x.size * float(x.sum()), places=2)

    def weights(self):
        return {"up": self.array(16, 8), "down": self.array(4, 16)}

    def test_export_and_run(self):
        program = tenon.export(mlp, x="f32[B, 8]")
        self.assertEqual(program.name, "mlp")
        self.assertEqual([name for name, _ in program.parameters()], ["x"])
        self.assertEqual(sorted(program.constants()), ["down", "up"])
        weights = self.weights()
        session = tenon.Session(program, weights)
        for batch in (3, 1, 0, 5):
            x = self.array(batch, 8)
            want = softmax(np.maximum(x @ weights["up"].T, 0) @ weights["down"].T) if batch else np.zeros((0, 4))
            for run in (lambda: session.forward(x), lambda: session.forward(x=x), lambda: session.submit(x)):
                [y] = run()
                np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)
        self.assertEqual(pickle.loads(pickle.dumps(program)), program)

    def test_text_is_read_back(self):
        program = tenon.export(mlp, x="f32[B, 8]")
        self.assertEqual(str(tenon.parse(str(program))), str(program))
        self.assertEqual(tenon.parse(str(program)), program)
        with self.assertRaises(tenon.Error) as raised:
            tenon.parse(str(program).replace("softmax", "softmaxx"), "mine.tenon")
        self.assertRegex(raised.exception.where, r"mine\.tenon:\d+:\d+")
        errors = tenon.check(str(program).replace("linear(", "linear_(") + "\nwhat")
        self.assertGreaterEqual(len(errors), 1)
        self.assertGreater(errors[0]["line"], 1)

    def test_arrays_become_constants(self):
        table = self.array(5, 3)
        program = tenon.export(lambda i: ops.embedding(i, table) + 1, i="i32[N]")
        self.assertEqual(len(program.folded), 1)
        [y] = tenon.Session(program).forward([0, 4, 2])
        np.testing.assert_allclose(y.numpy(), table[[0, 4, 2]] + 1)
        copy = pickle.loads(pickle.dumps(program))
        [y] = tenon.Session(copy).forward([1])
        np.testing.assert_allclose(y.numpy(), table[[1]] + 1)

    def test_constants_with_names(self):
        with tenon.Graph() as graph:
            x = graph.input("x", "f32[N, 2]")
            w = graph.capture("first.w", np.array([2, 3], "f4"))
            with self.assertRaisesRegex(tenon.Error, "there is a constant 'first.w'"):
                graph.capture("first.w", np.zeros(2, "f4"))
            y = x * w
        program = graph.program([y])
        self.assertEqual(list(program.folded), ["first.w"])
        [y] = tenon.Session(program).forward(np.ones((1, 2), "f4"))
        np.testing.assert_array_equal(y.numpy(), [[2, 3]])

    def test_names_of_arrays_are_those_that_no_constant_has(self):
        with tenon.Graph() as graph:
            x = graph.input("x", "f32[2]")
            first = graph.capture("captured1", np.array([1, 2], "f4"))
            given = graph.constant("captured2", "f32[2]")
            y = x * first + np.array([10, 20], "f4") + given + np.array([300, 400], "f4")
            with self.assertRaisesRegex(tenon.Error, "'captured1' is an array that the program has"):
                graph.constant("captured1", "f32[2]")
        session = tenon.Session(graph.program([y]), {"captured2": np.array([5000, 6000], "f4")})
        np.testing.assert_array_equal(session.forward(np.ones(2, "f4"))[0].numpy(), [5311, 6422])

    def test_graphs_are_left_in_the_order_that_they_were_entered_in(self):
        with self.assertRaisesRegex(tenon.Error, "not the graph that was entered last") as raised:
            tenon.Graph().__exit__(None, None, None)
        self.assertEqual(raised.exception.code, "CallOrder")
        with tenon.Graph() as outer, tenon.Graph() as inner:
            with self.assertRaisesRegex(tenon.Error, "not the graph that was entered last"):
                outer.__exit__(None, None, None)
            self.assertIs(ops.zeros((2,)).graph, inner)
            failed = []

            def leave():
                try:
                    inner.__exit__(None, None, None)
                except tenon.Error as error:
                    failed.append(error.code)

            other = threading.Thread(target=leave)
            other.start()
            other.join()
            self.assertEqual(failed, ["CallOrder"])

    def test_results_get_names(self):
        def model(x):
            y = x + 1.0
            return y, y * 2.0, y, x

        program = tenon.export(model, x="f32[2]")
        before = [name for name, _ in program.results()]
        program.name_results(["first", "second", "third", "fourth"])
        self.assertEqual([name for name, _ in program.results()], ["first", "second", "first", "x"])
        self.assertEqual(tenon.parse(str(program)), program)
        program.name_results(["x", "first"])  # names that others have
        self.assertEqual([name for name, _ in program.results()], ["first", "second", "first", "x"])
        self.assertNotEqual(before[0], "first")
        with self.assertRaises(tenon.Error):
            program.name_results(["1 2"])

    def test_large_integers_are_refused(self):
        ones = np.ones(2, "f4")
        for call in (lambda: ops.add(ones, 2**70), lambda: tenon.export(lambda x: x + 2**70, "f32[2]")):
            with self.assertRaises(tenon.Error):
                call()
        with self.assertRaisesRegex(tenon.ArgumentError, "'axes' cannot be"):
            ops.sum(ones, axis=2**70)

    def test_repeated_layers_are_one_function(self):
        count = 6

        def forward(x):
            layers = [{"w": tenon.build.weight(f"layer.{i}.w", "f32[8, 8]")} for i in range(count)]
            return tenon.repeat(layers, x, lambda layer, index, x: x + ops.linear(x, layer["w"]).tanh())

        program = tenon.export(forward, x="f32[N, 8]")
        self.assertEqual(len(program.functions), 2)
        self.assertIn(f", {count}, ", str(program))
        self.assertEqual(program.constants(), [f"layer.{i}.w" for i in range(count)])
        weights = {f"layer.{i}.w": self.array(8, 8) * 0.1 for i in range(count)}
        x = self.array(2, 8)
        [y] = tenon.Session(program, weights).forward(x)
        for i in range(count):
            x = x + np.tanh(x @ weights[f"layer.{i}.w"].T)
        np.testing.assert_allclose(y.numpy(), x, rtol=1e-4, atol=1e-5)

    def test_loops_with_a_condition(self):
        def collatz(n):
            zero = ops.full((), 0, "i64")
            return tenon.while_loop(
                lambda n, steps: n != 1,
                lambda n, steps: (tenon.cond((n % 2) == 0, lambda: ops.shift_right(n, 1), lambda: n * 3 + 1),
                                  steps + 1),
                (n, zero))[1]

        session = tenon.Session(tenon.export(collatz, n="i64[]"))
        for n, steps in ((1, 0), (2, 1), (27, 111), (97, 118)):
            self.assertEqual(session.forward(n)[0].item(), steps)
        limited = tenon.export(
            lambda x: tenon.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, x, limit=3), x="f32[]")
        self.assertIn("condition=0", str(limited))
        self.assertEqual(tenon.Session(limited).forward(1.0)[0].item(), 8)
        with self.assertRaises(tenon.Error):
            tenon.export(lambda x: tenon.while_loop(lambda x: x, lambda x: x, x), x="f32[]")

    def test_values_with_infinities_are_not_computed_in_int8(self):
        rng = np.random.default_rng(5)
        w, x = (rng.standard_normal((8, 8)).astype("f4") for _ in range(2))
        mask = np.triu(np.full((8, 8), -np.inf, "f4"), 1)
        for name, f in {
            "mask": lambda x: ops.linear(ops.softmax(x @ ops.swapaxes(x, -1, -2) + mask, axis=1), w),
            "fill": lambda x: ops.linear(ops.softmax(ops.masked_fill(x, mask < 0, -np.inf), axis=1), w),
        }.items():
            program = tenon.export(f, x="f32[8, 8]")
            want = tenon.Session(program, backends=["reference"]).forward(x)[0].numpy()
            npu = tenon.Backend("npu://sim", calibration=tenon.calibrate(program, {}, [[x]]))
            session = tenon.Session(program, backends=[npu, "cpu"])
            got = session.forward(x)[0].numpy()
            self.assertLess(np.abs(got - want).max(), 0.03 * np.abs(want).max(), name)
            backends = [part["backend"] for part in session.report("f32[8, 8]")["parts"]]
            self.assertTrue("npu" in backends and "cpu" in backends, (name, backends))
        program = tenon.export(lambda x: ops.linear(ops.maximum(ops.log(ops.relu(x)), -5.0), w), x="f32[8, 8]")
        npu = tenon.Backend("npu://sim", calibration=tenon.calibrate(program, {}, [[x]]))
        with self.assertRaisesRegex(tenon.Error, "log0: it had infinities or NaN when it was calibrated"):
            tenon.Session(program, backends=[npu, "cpu"]).forward(x)

    def test_functions_of_arrays_hold_tensors_from_around_them(self):
        x, w = self.array(5, 4), self.array(4, 3)

        def penalty(make):
            return tenon.grad(lambda w: make(lambda x: ops.tanh(x @ w).sum()))(w).numpy()

        want = penalty(lambda f: (tenon.vjp(f, x)[1](1.0)[0] ** 2.0).sum())
        for make in (lambda f: (tenon.grad(f)(x) ** 2.0).sum(), lambda f: (tenon.value_and_grad(f)(x)[1] ** 2.0).sum(),
                     lambda f: (tenon.grad(tenon.compiled(f))(x) ** 2.0).sum()):
            np.testing.assert_allclose(penalty(make), want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(penalty(lambda f: tenon.compiled(f)(x)), penalty(lambda f: f(x)), rtol=1e-5, atol=1e-6)

    def test_vectors_of_matrices_whose_gradients_are_zero(self):
        rng = np.random.default_rng(3)
        for name, f, sizes in (("eigh", lambda a: ops.eigh(a + ops.transpose(a))[1], (4, 4)),
                               ("svd", lambda a: ops.svd(a)[0], (5, 3)), ("svd v", lambda a: ops.svd(a)[2], (3, 5))):
            a, v, h = rng.normal(size=sizes), rng.normal(size=sizes), 1e-6

            def slope(f):
                return (f(a + h * v) - f(a - h * v)) / (2 * h)

            def at(a):
                return np.asarray(f(a))

            np.testing.assert_allclose(tenon.jvp(f, (a,), (v,))[1].numpy(), slope(at), atol=1e-6, err_msg=name)
            best = at(a)

            def loss(a):
                return ((f(a) - best) ** 2.0).sum()

            want = slope(lambda a: tenon.grad(loss)(a).numpy())
            np.testing.assert_allclose(tenon.hvp(loss, (a,), (v,))[0].numpy(), want, atol=1e-5, err_msg=name)

    def test_branches_update_what_they_carry(self):
        def put(on, table, row, at):
            return tenon.cond(on, lambda now: ops.update_slice(now, at, row), lambda now: now, carry=table)

        table, row, at = self.array(4, 3), self.array(3), np.array(2)
        want = table.copy()
        want[2] = row
        types = {"on": "bool[]", "table": "f32[4, 3]", "row": "f32[3]", "at": "i64[]"}
        session = tenon.Session(tenon.export(put, **types))
        for on in (True, False):
            np.testing.assert_array_equal(session.forward(on, table, row, at)[0].numpy(), want if on else table)
            np.testing.assert_array_equal(put(on, tenon.array(table), row, at).numpy(), want if on else table)

        def state(on, table, row, at):  # a structure
            def add(table, total):
                return {"rows": (ops.update_slice(table, at, row), total + 1.0)}

            made = tenon.cond(on, lambda s: add(*s["rows"]), lambda s: s, carry={"rows": (table, row.sum())})
            return made["rows"]

        for on in (True, False):
            got, total = tenon.Session(tenon.export(state, **types)).forward(on, table, row, at)
            np.testing.assert_array_equal(got.numpy(), want if on else table)
            np.testing.assert_allclose(total.item(), row.sum() + on, rtol=1e-6, atol=1e-6)
        with self.assertRaisesRegex(tenon.Error, "updates a value from outside of a branch; carry it"):
            tenon.Session(tenon.export(lambda on, table, row, at: tenon.cond(
                on, lambda: ops.update_slice(table, at, row), lambda: table), **types))
        with self.assertRaisesRegex(TypeError, "`empty` and `carry`"):
            tenon.cond(True, lambda x: x, lambda x: x, (row,), carry=row)

    def test_scan(self):
        def cumulative(x, decay):
            def step(carry, row):
                carry = carry * decay + row
                return carry, (carry, carry.sum())

            return tenon.scan(step, ops.zeros((4,)), x)

        def forward(x, decay):
            last, (every, sums) = cumulative(x, decay)
            return last, every, sums

        program = tenon.export(forward, x="f32[6, 4]", decay="f32[]")
        self.assertEqual(len(program.functions), 2)
        x = self.array(6, 4)
        want, now = [], np.zeros(4, "f4")
        for row in x:
            now = now * np.float32(0.5) + row
            want.append(now)
        last, every, sums = tenon.Session(program).forward(x, 0.5)
        np.testing.assert_allclose(every.numpy(), want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(last.numpy(), want[-1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(sums.numpy(), np.sum(want, 1), rtol=1e-4, atol=1e-5)
        with self.assertRaisesRegex(ValueError, r"first axes of .*f32\[N, 4\].* are not of one size"):
            tenon.export(lambda x, y: tenon.scan(lambda c, a, b: (c, a), 0.0, (x, y)), x="f32[N, 4]", y="f32[M]")

    def test_scan_of_any_number_of_rows(self):
        def forward(x):
            (total, count), outputs = tenon.scan(
                lambda carry, row: ((carry[0] + row, carry[1] + 1), (carry[0] * row, row.sum() > 0, carry[1])),
                (np.zeros(3, "f4"), 0), x)
            return total, count, *outputs

        open_, known = (tenon.Session(tenon.export(forward, x=type_)) for type_ in ("f32[N, 3]", "f32[4, 3]"))
        for rows in (0, 1, 4, 9):
            x = self.array(rows, 3)
            before = np.concatenate([np.zeros((1, 3), "f4"), np.cumsum(x, 0, dtype="f4")])
            for results in (open_.forward(x), forward(x), *([known.forward(x)] if rows == 4 else [])):
                total, count, products, signs, numbers = (one.numpy() for one in results)
                np.testing.assert_allclose(total, before[-1], rtol=1e-5, atol=1e-5)
                np.testing.assert_allclose(products, before[:-1] * x, rtol=1e-5, atol=1e-5)
                np.testing.assert_array_equal(signs, x.sum(1) > 0)
                self.assertEqual((int(count), numbers.tolist()), (rows, list(range(rows))))
        later = tenon.Session(tenon.export(
            lambda x: tenon.scan(lambda c, row: (c + row, c), 0.0, x[1:])[1], x="f32[N]"))
        for rows in (1, 2, 6):  # of a size that has no name
            self.assertEqual(later.forward(np.ones(rows, "f4"))[0].tolist(), list(range(rows - 1)))
        many = tenon.Session(tenon.export(lambda x: tenon.scan(lambda c, row: (c + row, row), 0, x)[0], x="i64[N]"))
        with self.assertRaisesRegex(tenon.Error, "outside"):
            many.forward(np.zeros(2**20 + 1, "int64"))

    def test_numbers_and_arrays_among_what_loops_carry(self):
        x, start = np.array([1, 2, 3], "f4"), np.zeros(3, "f4")
        for carry, returned, words in ((x, None, "NoneType where a tensor, an array or a number is needed"),
                                       ({"a": x}, x, "the body's carry is '...', and {'a': '...'} before")):
            for run in (lambda f: f(tenon.array(x)), lambda f: tenon.export(f, x="f32[3]")):
                with self.assertRaisesRegex(TypeError, words):
                    run(lambda x: tenon.while_loop(lambda y: True, lambda y: returned, carry))
        for function, want in (
                (lambda x: tenon.while_loop(lambda i, y, z: i < 5, lambda i, y, z: (i + 1, y * z, z),
                                            (0, x, start + 2))[1], x * 32),
                (lambda x: tenon.while_loop(lambda y, z: y.sum() < 99, lambda y, z: (y + x, z), (start, start + 1))[1],
                 start + 1),
                (lambda x: tenon.while_loop(lambda y: y.sum() < 100, lambda y: y + x, start), x * 17),
                (lambda x: tenon.while_loop(lambda y: y < x.sum(), lambda y: y * 2.0, 1.0), 8),
                (lambda x: tenon.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, 7), (0, x.sum()))[1], 7),
                (lambda x: tenon.repeat(3, (0, start), lambda layer, i, n, y: (n + 2, y + x))[1], x * 3),
                (lambda x: tenon.cond(x.sum() > 0, lambda: 1.5, lambda: start.sum()), 1.5),
                (lambda x: tenon.scan(lambda c, row: (c + row, c), 0.0, x)[1], [0, 1, 3])):
            [recorded] = tenon.Session(tenon.export(function, x="f32[3]")).forward(x)
            for result in (recorded, function(tenon.array(x))):
                np.testing.assert_allclose(np.asarray(result), want)

    def test_ops_of_ones_own(self):
        @tenon.op(limit=1.0, name="python_soft_clip")
        def soft_clip(x, limit):
            return x / (1 + abs(x) / limit)

        x = self.array(3, 5)
        np.testing.assert_allclose(soft_clip(x, limit=2.0).numpy(), x / (1 + abs(x) / 2), rtol=1e-6)
        program = tenon.export(lambda x: soft_clip(x * 2.0, limit=3).sum(0), x="f32[N, 5]")
        self.assertIn("python_soft_clip(mul0, limit=3.0)", str(program))
        again = tenon.parse(str(program))
        self.assertEqual(again, program)
        session = tenon.Session(again)
        [y] = session.forward(x)
        np.testing.assert_allclose(y.numpy(), (2 * x / (1 + abs(2 * x) / 3)).sum(0), rtol=1e-5, atol=1e-6)
        self.assertIn("reference", {part["backend"] for part in session.report("f32[2, 5]")["parts"]})

        @tenon.op(infer=lambda x, y, axis: tenon.Shape((x.dims[0], y.dims[0]), "i64"), axis=-1, name="python_matches")
        def matches(x, y, axis):
            return (x[:, None] == y[None]).sum(axis)

        a, b = np.arange(6).reshape(3, 2), np.array([[0, 5], [2, 3]])
        np.testing.assert_array_equal(matches(a, b).numpy(), (a[:, None] == b[None]).sum(-1))

        @tenon.op(name="python_wrong")
        def wrong(x):
            return x[:1] if mode == "shape" else x > 0 if mode == "type" else x.no_such

        for mode, kind, text in (("shape", tenon.Error, "returned f32"), ("type", tenon.Error, "returned bool"),
                                 ("error", AttributeError, "no_such")):
            with self.assertRaisesRegex(kind, text):
                wrong(x)
        with self.assertRaises(tenon.InputError):  # the name is taken
            tenon.op(name="softmax")(lambda x: x)
        with self.assertRaises(tenon.Error):
            soft_clip(x, limit="much")
        with self.assertRaises(ValueError):
            tenon.op(name="python_any")(lambda *x: x[0])

    def test_ops_of_ones_own_in_plain_python(self):
        @tenon.op("python_first", infer=lambda x, by, k, d: tenon.Shape(x.dims[1:], x.dtype), by=1.0, k=(1, 2),
                  d=tenon.DType("f16"))
        def first(x, by, k, d):
            if not isinstance(k, tuple) or d != "f16":
                raise TypeError("attributes of other types")
            return x[0] * by + len(k)

        x = self.array(2, 3)
        program = tenon.export(lambda x: first(x, by=3.0, k=(1,)) * 2.0, x="f32[N, 3]")
        read = tenon.ir.parse(str(program))
        self.assertEqual(tenon.ir.print_program(read), str(program))
        [made] = read.run([x])
        np.testing.assert_allclose(made.numpy(), tenon.Session(program).forward(x)[0].numpy(), rtol=1e-6)
        tenon.op("python_narrow", infer=lambda x: "f32[2]")(lambda x: x)
        with self.assertRaisesRegex(tenon.ir.Error, "python_narrow.*returned"):
            tenon.ir.call("python_narrow", x[0])
        with self.assertRaisesRegex(tenon.ir.Error, "another op"):
            tenon.ir.add_op("softmax", lambda x: x)

    def test_gradients_of_ops_of_ones_own(self):
        def slopes(x, y, made, upstream, scale):
            return upstream * y * scale, None if scale == 0 else upstream * x * scale

        @tenon.op("scaled_product", gradient=slopes, scale=2.0)
        def scaled_product(x, y, scale):
            return x * y * np.float32(scale)

        x, y = self.array(3, 4), self.array(3, 4)
        program = tenon.export(lambda x, y: ops.sum(scaled_product(ops.sin(x), y, scale=3.0)), "f32[3, 4]", "f32[3, 4]")
        _, at_x, at_y = tenon.Session(program.gradient(["x", "y"])).forward(x, y)
        np.testing.assert_allclose(at_x.numpy(), 3 * y * np.cos(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(at_y.numpy(), 3 * np.sin(x), rtol=1e-5, atol=1e-6)

        def loss(x, y):
            return tenon.grad(ops.sum(scaled_product(x, y)), [x, y])

        at_x, at_y = tenon.Session(tenon.export(loss, "f32[3, 4]", "f32[3, 4]")).forward(x, y)
        np.testing.assert_allclose(at_x.numpy(), 2 * y, rtol=1e-6)

        tenon.op("no_slope")(lambda x: x)
        for name, wrong, code in (("few", lambda x, y, made, upstream: upstream, "BadArgument"),
                                  ("wide", lambda x, y, made, upstream: (upstream, ops.sum(upstream)), "ShapeMismatch"),
                                  ("own_array", lambda x, y, made, upstream: (upstream, upstream * x.graph.constant(
                                      "c", "f32[3, 4]")), "Unsupported")):
            own = tenon.op(name, gradient=wrong)(lambda x, y: x + y)
            with self.assertRaises(tenon.Error) as raised:
                tenon.export(lambda x, y: ops.sum(own(x, y)), "f32[3, 4]", "f32[3, 4]").gradient(["x"])
            self.assertEqual(raised.exception.code, code)

    def test_wrong_ops_of_ones_own_say_what_is_wrong(self):
        @tenon.op
        def python_bare(x):
            return x + 1

        x = self.array(2, 3)
        np.testing.assert_array_equal(python_bare(x).numpy(), x + 1)
        for i, (made, text) in enumerate((
                (None, "returned None"), (np.float32, "float32"), ("f32[", "`infer` returned no type"),
                ("f33[2]", "`infer` returned no type"), ("f32[A, B]", "whose sizes are known"))):
            own = tenon.op(f"python_infer{i}", infer=lambda x, made=made: made)(lambda x: x)
            with self.assertRaisesRegex(tenon.Error, f"python_infer{i}.*{text}"):
                own(x)
        for function, text in ((lambda x, **more: x, "attributes by name"), (lambda x, *, much: x, "'much'")):
            with self.assertRaisesRegex(ValueError, text):
                tenon.op("python_any")(function)

    def own_clip(self):
        @tenon.op("python_clip", gradient=lambda x, y, upstream, limit: upstream / ops.square(1 + abs(x) / limit),
                  limit=1.0)
        def clip(x, limit):
            return x / (1 + abs(x) / limit)

        return clip, lambda x: x / (1 + abs(x) / 2), lambda x: 1 / (1 + abs(x) / 2) ** 2

    def test_ops_of_ones_own_within_loops_and_branches(self):
        clip, want, slope = self.own_clip()
        x = self.array(3, 4)

        def layers(x):
            scales = [{"w": tenon.build.weight(f"layer.{i}.w", "f32[4]")} for i in range(3)]
            return tenon.repeat(scales, x, lambda layer, i, x: clip(x * layer["w"], limit=2.0))

        weights = {f"layer.{i}.w": np.full(4, i + 1, "f4") for i in range(3)}
        result, slopes = x, np.ones_like(x)
        for i in range(3):
            slopes = slopes * slope(result * (i + 1)) * (i + 1)
            result = want(result * (i + 1))
        program = tenon.export(layers, x="f32[N, 4]")
        self.assertIn("repeat(", str(program))
        for rows in (3, 1):
            [y] = tenon.Session(program, weights).forward(x[:rows])
            np.testing.assert_allclose(y.numpy(), result[:rows], rtol=1e-5, atol=1e-6)
        [y] = tenon.ir.parse(str(program)).run([x], weights)
        np.testing.assert_allclose(y.numpy(), result, rtol=1e-5, atol=1e-6)
        gradient = tenon.export(lambda x: layers(x).sum(), x="f32[3, 4]").gradient(["x"])
        np.testing.assert_allclose(tenon.Session(gradient, weights).forward(x)[1].numpy(), slopes, rtol=1e-4, atol=1e-5)

        def folded(x):
            return tenon.scan(lambda carry, x: (clip(carry + x, limit=2.0), carry), ops.zeros((4,)), x)

        last, every = tenon.Session(tenon.export(folded, x="f32[3, 4]")).forward(x)
        now = np.zeros(4, "f4")
        for row, before in zip(x, every.numpy()):
            np.testing.assert_allclose(before, now, rtol=1e-5, atol=1e-6)
            now = want(now + row)
        np.testing.assert_allclose(last.numpy(), now, rtol=1e-5, atol=1e-6)

        chosen = tenon.Session(tenon.export(
            lambda x: tenon.cond(x.sum() > 0, lambda: clip(x, limit=2.0), lambda: x - 1), x="f32[3, 4]"))
        for x in (np.abs(x), -np.abs(x)):
            [y] = chosen.forward(x)
            np.testing.assert_allclose(y.numpy(), want(x) if x.sum() > 0 else x - 1, rtol=1e-6)

        small = tenon.Session(tenon.export(
            lambda x: tenon.while_loop(lambda x: x.sum() > 0.1, lambda x: clip(x, limit=2.0), x), x="f32[N]"))
        [y] = small.forward(np.ones(3, "f4"))
        value = np.ones(3, "f4")
        while value.sum() > 0.1:
            value = want(value)
        np.testing.assert_allclose(y.numpy(), value, rtol=1e-5)

    def test_loops_and_branches_name_the_types_that_change(self):
        x = np.ones(3, "f4")

        def run(function):
            return lambda: function(x), lambda: tenon.export(function, x="f32[3]")

        for calls, words in (
                (run(lambda x: tenon.while_loop(lambda x: x.sum() < 50, lambda x: ops.concat([x, x]), x)),
                 r"while_loop: the body returns f32\[6\] where value 0 was f32\[3\]"),
                (run(lambda x: tenon.scan(lambda h, a: (h.astype("f16"), h), x, np.ones((2, 3), "f4"))),
                 r"scan: the body returns a carry of f16\[3\] where value 0 was f32\[3\]"),
                (run(lambda x: tenon.cond(x.sum() > 0, lambda: x, lambda: x.astype("i32")))[1:],
                 r"cond: a branch returns i32\[3\] where value 0 was f32\[3\]"),
                (run(lambda x: tenon.cond(x.sum() > 0, lambda x: x, lambda x: x[:2], carry=x))[1:],
                 r"cond: a branch returns f32\[2\] where value 0 was f32\[3\]")):
            for call in calls:
                with self.assertRaisesRegex(tenon.ArgumentError, words):
                    call()
        for call in run(lambda x: tenon.while_loop(lambda x: x.sum() < 50, lambda x: (x, x), x)):
            with self.assertRaisesRegex(TypeError, "while_loop: the body returns 2 values where there were 1"):
                call()

    def test_messages_come_to_pythons_logging(self):
        path = self.folder / "n.json"
        tenon.save_network(tenon.export(lambda x: x + 1.0, x="f32[2]"), {}, path, self.folder / "n.raw")
        path.write_text(path.read_text().replace("{", '{"other": 1, ', 1))

        def read():
            tenon.load_network(path)

        with self.assertLogs("tenon", "WARNING") as logged:
            read()
            thread = threading.Thread(target=read)
            thread.start()
            thread.join()
        self.assertEqual([one.getMessage() for one in logged.records],
                         ["n.json: 1 keys that the format does not know, the first at //other"] * 2)
        code = f"import tenon; tenon.load_network({str(path)!r})"
        made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertIn("the format does not know", made.stderr)

        def with_handler(raised):
            raising = unittest.mock.Mock(level=0, handle=unittest.mock.Mock(side_effect=raised))
            logging.getLogger("tenon").addHandler(raising)
            try:
                read()
            finally:
                logging.getLogger("tenon").removeHandler(raising)
            raising.handle.assert_called_once()

        with_handler(ValueError)  # dropped
        with self.assertRaises(KeyboardInterrupt):
            with_handler(KeyboardInterrupt)

    def test_ops_of_ones_own_in_other_forms(self):
        clip, want, _ = self.own_clip()
        x = self.array(3, 4)
        program = tenon.export(lambda x: clip(x, limit=2.0), x="f32[N, 4]")
        again = pickle.loads(pickle.dumps(program))
        tenon.Session(again).save(self.folder / "own.snap")
        tenon.save_network(again, {}, self.folder / "own.json", self.folder / "own.raw")
        read, _ = tenon.load_network(self.folder / "own.json", self.folder / "own.raw")
        for session in (tenon.Session(again), tenon.Session.load(self.folder / "own.snap"), tenon.Session(read)):
            np.testing.assert_allclose(session.forward(x)[0].numpy(), want(x), rtol=1e-6)
        with self.assertRaisesRegex(tenon.UnsupportedError, "python_clip"):
            tenon.compile_to(program, self.folder / "own.hpp")
        code = f"import sys, tenon; tenon.Session.load({str(self.folder / 'own.snap')!r})"
        made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertIn("there is no op 'python_clip'", made.stderr)

    def test_ops_of_ones_own_on_several_threads(self):
        clip, want, _ = self.own_clip()
        session = tenon.Session(tenon.export(lambda x: clip(x, limit=2.0), x="f32[N, 4]"))
        failed = []

        def work(number, fork):
            random = np.random.default_rng(number)
            for _ in range(30):
                x = random.standard_normal((number + 1, 4)).astype("f4")
                for y in (fork.forward(x)[0], clip(x, limit=2.0)):
                    if not np.allclose(y.numpy(), want(x), rtol=1e-6):
                        failed.append(number)

        threads = [threading.Thread(target=work, args=(i, session.fork())) for i in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(failed, [])

    def test_arrays_that_an_op_of_ones_own_is_filling_are_waited_for(self):
        code = """
import time, numpy as np, tenon
from tenon import ops

@tenon.op
def slow(x):
    time.sleep(0.05)
    return x.copy()

x, w = np.ones((4, 16), "f4"), np.ones((8, 16), "f4")
program = tenon.export(lambda x: ops.relu(ops.linear(slow(x), w)), "f32[4, 16]")
npu = tenon.Backend("npu://sim", calibration=tenon.calibrate(program, {}, [x]))
there = tenon.Session(program, None, [npu, "reference"], results_on_device=True)
here = tenon.Session(tenon.export(lambda x: slow(x), "f32[4, 16]"), None, "reference")

def recorded(pending):
    with tenon.Graph() as graph:
        graph.input("x", "f32[4, 16]") + pending

reads = {"numpy": lambda: there.submit(x)[0].numpy(), "array": lambda: np.asarray(there.submit(x)[0]),
         "cast": lambda: tenon.Buffer(here.submit(x)[0], "f64"), "recorded": lambda: recorded(here.submit(x)[0])}
for read in reads.values():
    read()
print("read", len(reads))
pending = here.submit(x)  # the process ends once its op has
"""
        made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((made.returncode, made.stdout), (0, "read 4\n"), made.stderr)

    def test_an_op_is_defined_again(self):
        def define(factor, **options):
            @tenon.op("python_again", by=1.0, **options)
            def again(x, by):
                return x * np.float32(factor * by)
            return again

        x = self.array(3)
        first = define(2)
        session = tenon.Session(tenon.export(lambda x: first(x, by=0.5), "f32[3]"))
        np.testing.assert_allclose(session.forward(x)[0].numpy(), x)
        second = define(6, gradient=lambda x, made, upstream, by: upstream * by)
        np.testing.assert_allclose(second(x).numpy(), 6 * x, rtol=1e-6)
        np.testing.assert_allclose(session.forward(x)[0].numpy(), 3 * x, rtol=1e-6)
        program = tenon.export(lambda x: ops.sum(second(x)), "f32[3]")
        np.testing.assert_array_equal(tenon.Session(program.gradient(["x"])).forward(x)[1].numpy(), np.ones(3))
        shrunk = tenon.op("python_again", infer=lambda x, by: "f32[2]", by=1.0)(lambda x, by: x[:2])
        np.testing.assert_array_equal(shrunk(x).numpy(), x[:2])
        for make in (lambda: tenon.op("python_again", by=2.0)(lambda x, by: x),
                     lambda: tenon.op("python_again", to=1.0)(lambda x, to: x),
                     lambda: tenon.op("python_again", by=1.0)(lambda x, y, by: x)):
            with self.assertRaises(tenon.Error) as raised:
                make()
            self.assertEqual(raised.exception.code, "DuplicateName")

    def test_an_interpreter_without_its_lock_is_refused(self):
        code = "import sys; sys._is_gil_enabled = lambda: {}; import tenon; tenon.array([1.0]); print('loaded')"
        for enabled, says in ((True, "loaded"), (False, "tenon needs Python's global lock")):
            made = subprocess.run([sys.executable, "-c", code.format(enabled)], capture_output=True, text=True)
            self.assertIn(says, made.stdout + made.stderr)

    def test_errors_say_where_python_recorded(self):
        def wrong(x):
            y = x * 2
            return y + tenon.build.weight("w", "f32[3]")

        with self.assertRaises(tenon.ArgumentError) as raised:
            tenon.export(wrong, x="f32[4]")
        line = wrong.__code__.co_firstlineno + 2
        self.assertEqual(raised.exception.where, f"test_programs.py:{line}: add")
        self.assertNotIn(".cpp", str(raised.exception))

    def test_exports_that_are_none(self):
        for make, says in ((lambda: tenon.export(lambda x: x, x=np.ones((2, 3), "f4")), r"given ndarray.*f32\[2, 3\]"),
                           (lambda: tenon.export(lambda x: x, "f32[2]", y=3), "given int"),
                           (lambda: tenon.export(lambda x: {"a": x}, x="f32[2]"), "returns dict"),
                           (lambda: tenon.export(lambda x: np.ones(2), x="f32[2]"), "returns ndarray"),
                           (lambda: tenon.export(lambda x: (x, (x, x)), x="f32[2]"), "a tuple among its results"),
                           (lambda: tenon.export(lambda x: (x, 1.0), x="f32[2]"), "returns float")):
            with self.assertRaisesRegex(TypeError, says):
                make()

    def test_a_session_says_what_it_is(self):
        self.assertRegex(repr(tenon.Session(tenon.export(mlp, x="f32[B, 8]"))), "Session of 'mlp' on cpu")

    def test_compiled_programs_are_compared(self):
        one, other = (tenon.export(f, x="f32[B]", name="net") for f in (lambda x: x.exp() + 1, lambda x: x.sin() + 1))
        self.assertEqual(tenon.ir.diff(one, tenon.parse(str(one))), [])
        self.assertIn("+     sin0: f32[B] = sin(x)", tenon.ir.diff(one, str(other)))

    def test_loops_and_branches_of_arrays_run_at_once(self):
        x = tenon.array([1.0, 2.0])
        self.assertEqual(tenon.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, x).tolist(), [64, 128])
        self.assertEqual(tenon.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, x, limit=3).tolist(), [8, 16])
        one, other = tenon.while_loop(lambda a, b: a.sum() < 9, lambda a, b: (a + b, b), (x, x * 2))
        self.assertEqual((one.tolist(), other.tolist()), ([3, 6], [2, 4]))
        for predicate, want in ((tenon.array(True), [1, 2]), (False, [-1, -2])):
            self.assertEqual(tenon.cond(predicate, lambda: x, lambda: -x).tolist(), want)
        rows = tenon.array([1.0, 2, 3])
        last, every = tenon.scan(lambda total, row: (total + row, total * row), tenon.array(0.0), rows)
        self.assertEqual((last.item(), every.tolist()), (6, [0, 2, 9]))
        (a, b), (c, d) = tenon.scan(lambda carry, row: ((carry[1], row), (row * 2, carry[0])), (x, x), tenon.array(
            np.arange(6, dtype="f4").reshape(3, 2)))
        self.assertEqual((a.tolist(), b.tolist(), c.shape, d.shape), ([2, 3], [4, 5], (3, 2), (3, 2)))
        self.assertEqual(tenon.repeat(3, x, lambda layer, index, x: x * 2).tolist(), [8, 16])
        program = tenon.export(lambda x: tenon.repeat(3, x, lambda layer, index, x: x * 2), x="f32[2]")
        self.assertEqual(tenon.Session(program).forward(x)[0].tolist(), [8, 16])
        with self.assertRaisesRegex(TypeError, "not \\(carry, outputs\\)"):
            tenon.scan(lambda total, row: total + row, tenon.array(0.0), rows)

    def test_branching_on_a_tensor_is_refused(self):
        with self.assertRaisesRegex(TypeError, "cannot branch"):
            tenon.export(lambda x: x if x.sum() > 0 else -x, x="f32[2]")
        with self.assertRaisesRegex(TypeError, "not a tensor"):
            tenon.export(lambda x: [1], x="f32[2]")

    def test_errors_name_the_line_that_recorded_the_value(self):
        @tenon.op("without_slope")
        def without_slope(x):
            return x + 1

        def line_of(call):
            with self.assertRaises(tenon.Error) as raised:
                call()
            return raised.exception.where.split(": ")[0], raised.exception.message

        def model(x):
            return ops.sum(without_slope(x))

        here = f"{pathlib.Path(__file__).name}:{model.__code__.co_firstlineno + 1}"
        program = tenon.export(model, x="f32[3]")
        self.assertEqual(line_of(lambda: program.gradient(["x"]))[0], here)
        where, message = line_of(lambda: tenon.compile_to(program, self.folder / "own.hpp"))
        self.assertEqual((where, "without_slope" in message), (here, True))
        for body, says in ((lambda x: x * 2, "f32[3]"), (lambda x: ops.cast(x, "i32").sum(), "i64[]")):
            where, message = line_of(lambda body=body: tenon.export(body, x="f32[3]").gradient(["x"]))
            self.assertEqual(where, f"{pathlib.Path(__file__).name}:{body.__code__.co_firstlineno}")
            self.assertIn(says, message)
        for names, says in ((["i"], "not floating"), (["y"], "does not depend")):
            program = tenon.export(lambda x, i, y: ops.sum(x) + ops.cast(i, "f32").sum(), x="f32[3]", i="i32[2]",
                                   y="f32[2]")
            where, message = line_of(lambda names=names, program=program: program.gradient(names))
            self.assertEqual(where, "forward")
            self.assertIn(says, message)
        with tenon.Graph() as graph:
            x = graph.input("x", "f32[3]")
            graph.place = ("layer.py", 7)
            self.assertEqual(line_of(lambda: ops.matmul(x, ops.ones((2, 2))))[0], "layer.py:7")

    def test_a_scan_of_arrays_calls_its_body_once_per_row(self):
        called = []

        def body(total, row):
            called.append(row)
            return total + row, total * row

        for rows in (1, 5):
            called.clear()
            total, products = tenon.scan(body, np.float32(1), np.arange(rows, dtype="f4"))
            self.assertEqual(len(called), rows)
            self.assertEqual((float(total), products.shape), (1 + sum(range(rows)), (rows,)))

    def test_gradients_of_loops(self):
        def doubled(x):
            return tenon.while_loop(lambda a: a.sum() < 9, lambda a: a * 2, (x,), limit=10)[0].sum()

        session = tenon.Session(tenon.export(doubled, x="f32[3]").gradient(["x"]))
        for start, slope in ((1.0, 4.0), (0.4, 8.0), (5.0, 1.0)):
            loss, gradient = session.forward(np.full(3, start, "f4"))
            self.assertAlmostEqual(float(loss), 3 * start * slope, places=5)
            np.testing.assert_array_equal(np.asarray(gradient), np.full(3, slope))

        def rolled(x, w):
            def step(carry, row):
                carry = ops.tanh(carry @ w + row)
                return carry, carry * carry

            last, all_of_them = tenon.scan(step, ops.zeros((4,)), x)
            return all_of_them.sum() + last.sum()

        x, w = np.random.default_rng(1).standard_normal((5, 4)), np.random.default_rng(2).standard_normal((4, 4)) * 0.5
        x, w = x.astype("f4"), w.astype("f4")
        value, (by_x, by_w) = tenon.value_and_grad(rolled, (0, 1))(x, w)
        for array, gradient in ((x, by_x), (w, by_w)):
            for place in ((0, 0), (1, 3), (3, 2)):
                ends = []
                for step in (-1e-2, 1e-2):
                    moved = array.copy()
                    moved[place] += step
                    arguments = (moved, w) if array is x else (x, moved)
                    ends.append(float(tenon.value_and_grad(rolled)(*arguments)[0]))
                self.assertAlmostEqual(np.asarray(gradient)[place], (ends[1] - ends[0]) / 2e-2, delta=2e-3)

    def test_structures_in_loops(self):
        """Carries, inputs and outputs of loops are structures, at once and recorded."""
        @dataclasses.dataclass
        class State:
            h: object
            count: object

        start, rows, one = np.zeros(3, "f4"), self.array(4, 3), np.ones(3, "f4")

        def scanned(h, xs):
            last, made = tenon.scan(lambda c, x, y: ({"n": c["n"] + 1, "h": c["h"] + x}, {"a": y, "b": [c["h"]]}),
                                    {"h": h, "n": 0}, [xs, xs * 2.0])
            return last["h"], last["n"], made["a"], made["b"][0]

        sums = np.concatenate([start[None], rows.cumsum(0)])
        cases = [
            (scanned, (start, rows), [sums[-1], 4, rows * 2, sums[:-1]]),
            (lambda h, xs: tenon.scan(lambda c, x: (c + x["a"], None), h, {"a": xs})[0], (start, rows), [sums[-1]]),
            (lambda h, xs: tenon.scan(lambda s, x: ((s[0] + x, (s[1][0] + 1,)), x), (h, (0,)), xs)[0][1][0],
             (start, rows), [4]),
            (lambda x: tenon.while_loop(lambda s: s.count < 5, lambda s: State(s.h * 2.0, s.count + 1), State(x, 0)).h,
             (one,), [one * 32]),
            (lambda x: tenon.while_loop(lambda i, s: i < 5, lambda i, s: (i + 1, [s[0] * 2.0, s[1]]),
                                        (0, [x, x]))[1][0], (one,), [one * 32]),
            (lambda x: tenon.repeat([{"w": np.eye(3, dtype="f4") * k} for k in (1, 2, 3)], {"x": x},
                                    lambda layer, i, s: {"x": s["x"] @ layer["w"]})["x"], (one,), [one * 6]),
            (lambda x: tenon.cond(x.sum() > 0, lambda: {"x": x, "y": (x + 1,)}, lambda: {"y": (x,), "x": -x})["y"][0],
             (-one,), [-one]),
        ]
        for number, (function, arguments, want) in enumerate(cases):
            at_once = function(*map(tenon.array, arguments))
            types = [tenon.array(one).type for one in arguments]
            recorded = tenon.Session(tenon.export(function, *types)).forward(*arguments)
            for results in (at_once if isinstance(at_once, tuple) else [at_once], recorded):
                for got, one in zip(results, want, strict=True):
                    np.testing.assert_allclose(np.asarray(got), one, rtol=1e-5, atol=1e-6, err_msg=str(number))
        for wrong in (lambda x: tenon.scan(lambda c, y: ({"g": c["h"]}, None), {"h": x}, x),
                      lambda x: tenon.repeat(2, {"h": x}, lambda layer, i, s: s["h"]),
                      lambda x: tenon.cond(x.sum() > 0, lambda: {"h": x}, lambda: {"h": (x,)})):
            with self.assertRaisesRegex(TypeError, "'h': '...'} before|and {'h'"):
                tenon.export(wrong, "f32[3]")

    def test_arguments_of_gradients(self):
        @dataclasses.dataclass(frozen=True)
        class Layer:
            w: object
            scale: object

        pair = collections.namedtuple("Pair", "w scale")
        x = self.array(3, 4)
        for kind in (Layer, pair):
            found = tenon.value_and_grad(lambda p: (p.w * 2.0).sum() + p.scale.sum())(kind(x, x))[1]
            self.assertIs(type(found), kind)
            np.testing.assert_array_equal(found.w.numpy(), np.full((3, 4), 2))
            np.testing.assert_array_equal(found.scale.numpy(), np.ones((3, 4)))
        step = tenon.value_and_grad(lambda w, f, scale, name: (f(w) * scale).sum() if name == "a" else w.sum())
        for scale in (2.0, 3.0):
            found = step(x, lambda w: w * w, scale=scale, name="a")[1]
            np.testing.assert_allclose(found.numpy(), 2 * x * scale, rtol=1e-6)
        (value, aux), found = tenon.value_and_grad(lambda w: ((w * w).sum(), {"y": w * 2.0, "n": 3, "no": None}),
                                                   has_aux=True)(x)
        np.testing.assert_allclose(value.item(), (x * x).sum(), rtol=1e-5)
        np.testing.assert_array_equal(aux["y"].numpy(), x * 2)
        self.assertEqual((aux["n"].item(), aux["no"]), (3, None))
        found, y = tenon.grad(lambda w: ((w * w).sum(), w), has_aux=True)(x)
        np.testing.assert_array_equal(y.numpy(), x)
        for wrong, words in ((lambda w: (w.sum(), w), "has_aux=True takes"), (3, "int is no function")):
            with self.assertRaisesRegex(TypeError, words):
                tenon.value_and_grad(wrong)(x)
        with self.assertRaisesRegex(TypeError, "has_aux the function returns"):
            tenon.value_and_grad(lambda w: w.sum(), has_aux=True)(x)

    def test_gradients(self):
        program = tenon.export(lambda x, w: ((x @ w) ** 2.0).sum(), x="f32[3, 4]", w="f32[4, 2]")
        gradients = tenon.Session(program.gradient(["w"]))
        x, w = self.array(3, 4), self.array(4, 2)
        loss, dw = gradients.forward(x, w)
        np.testing.assert_allclose(dw.numpy(), 2 * x.T @ (x @ w), rtol=1e-4, atol=1e-5)
        self.assertAlmostEqual(loss.item() / float(((x @ w) ** 2).sum()), 1, places=5)

        opened = tenon.Session(tenon.export(lambda x: (x * x).sum(), x="f32[N, 4]").gradient(["x"]))
        for rows in (0, 3):
            given = self.array(rows, 4)
            np.testing.assert_allclose(opened.forward(given)[1].numpy(), 2 * given)
        row = tenon.array([1.0, 2])
        for sizes in ((3, 2), [3, 2], np.array([3, 2]), tenon.array(np.zeros((3, 2), "f4"))):
            self.assertEqual(tenon.ops.broadcast_to(row, sizes).tolist(), [[1, 2]] * 3)
        self.assertEqual(tenon.ops.reshape(row, tenon.array(np.zeros((2, 1), "f4"))).tolist(), [[1], [2]])
        with self.assertRaisesRegex(tenon.InputError, r"broadcast_to: attribute 'dims' is \[N, 4\]"):
            tenon.export(lambda x: tenon.ops.broadcast_to(x.sum(), x.shape), x="f32[N, 4]")

        def inside(x, w):
            loss = ((x @ w) ** 2.0).sum()
            return tenon.grad(loss, [w])[0]

        [again] = tenon.Session(tenon.export(inside, x="f32[3, 4]", w="f32[4, 2]")).forward(x, w)
        np.testing.assert_allclose(again.numpy(), dw.numpy(), rtol=1e-5, atol=1e-6)

    def test_steps_callbacks_and_times(self):
        program = tenon.export(mlp, x="f32[B, 8]")
        weights, x = self.weights(), self.array(2, 8)
        session = tenon.Session(program, weights)
        seen = []
        session.set_merge(False)
        session.set_post_callback(lambda step: seen.append((step["op"], step["outputs"][0].numpy().copy())))
        session.enable_time_profile()
        [y] = session.forward(x)
        self.assertEqual([op for op, _ in seen][-1], "softmax")
        np.testing.assert_array_equal(seen[-1][1], y.numpy())
        self.assertEqual(len(session.step_times()), len(seen))
        self.assertIn("softmax", session.profile_table())
        self.assertGreater(session.total_time, 0)

        def fails(step):
            raise KeyError("mine")

        session = tenon.Session(program, weights)
        session.set_pre_callback(fails)
        with self.assertRaises(Exception) as raised:
            session.forward(x)
        self.assertIn("mine", str(raised.exception))

        stepped = tenon.Session(program, weights)
        names = program.op_names()
        first = stepped.step_to(names[0], x)
        self.assertEqual(first.shape, (2, 16))
        np.testing.assert_array_equal(stepped.step_to(names[-1]).numpy(), y.numpy())

    def test_reports(self):
        program = tenon.export(mlp, x="f32[B, 8]")
        session = tenon.Session(program, self.weights(), "reference")
        report = session.report("f32[2, 8]")
        self.assertEqual({part["backend"] for part in report["parts"]}, {"reference"})
        self.assertEqual(session.backends, ["reference"])
        self.assertTrue(session.explain(program.op_names()[0], "f32[2, 8]"))
        with self.assertRaises(tenon.UnsupportedError):
            tenon.Session(program, backends="no_such_backend")

    def test_code(self):
        weights = self.array(4)
        program = tenon.export(lambda x: tenon.ops.mul(x, weights), x="f32[B, 4]")
        header, source = self.folder / "net.hpp", self.folder / "other.cpp"
        self.assertEqual(tenon.compile_to(program, header), [header, header.with_suffix(".safetensors")])
        self.assertIn("eager_.run(tenon::Mul{}, std::move(x), ", header.read_text())
        saved = tenon.open(header.with_suffix(".safetensors"))
        self.assertEqual(list(saved), program.constants())
        np.testing.assert_array_equal(saved[program.constants()[0]].numpy(), weights)
        self.assertEqual(tenon.compile_to(tenon.export(lambda x: x + 1, x="f32[2]"), source), [source])
        self.assertIn("int main(", source.read_text())

    def test_snapshots(self):
        program = tenon.export(mlp, x="f32[B, 8]")
        weights, x = self.weights(), self.array(2, 8)
        session = tenon.Session(program, weights)
        [want] = session.forward(x)
        session.save(self.folder / "net.snap", weights="needed")
        [got] = tenon.Session.load(self.folder / "net.snap").forward(x)
        np.testing.assert_array_equal(got.numpy(), want.numpy())
        tenon.Session(program, weights, "cpu").save(self.folder / "net.snap")  # without the reference
        [got] = tenon.Session.load(self.folder / "net.snap").forward(x)
        np.testing.assert_array_equal(got.numpy(), want.numpy())
        with self.assertRaises(tenon.ArgumentError):
            session.save(self.folder / "net.snap", weights="some")
        (self.folder / "bad.snap").write_bytes((self.folder / "net.snap").read_bytes()[:-1])
        with self.assertRaises(tenon.InputError):
            tenon.Session.load(self.folder / "bad.snap")

    def test_int8_on_the_npu(self):
        def hidden(x):
            return ops.linear(ops.linear(x, tenon.build.weight("up", "f32[16, 8]")).relu(),
                              tenon.build.weight("down", "f32[4, 16]"))

        program = tenon.export(hidden, x="f32[2, 8]")
        weights = self.weights()
        samples = [[self.array(2, 8)] for _ in range(8)]
        table = tenon.calibrate(program, weights, samples)
        self.assertTrue(table.startswith("tenon-calibration 1"))
        npu = tenon.Backend("npu://sim", calibration=table)
        session = tenon.Session(program, weights, [npu, "cpu"])
        [y] = session.forward(samples[0][0])
        # Steps of integers are those of the calibrated range: of all samples, which this one need not fill.
        exact = tenon.Session(program, weights)
        every = [exact.forward(*sample)[0].numpy() for sample in samples]
        largest = max(abs(one).max() for one in every)
        np.testing.assert_allclose(y.numpy(), every[0], atol=0.04 * largest)
        self.assertIn("npu", {part["backend"] for part in session.report("f32[2, 8]")["parts"]})

    def test_an_npus_options_counters_and_networks(self):
        weight = self.array(8, 3, 3, 3)
        program = tenon.export(lambda x: ops.relu(ops.conv2d(x, weight, padding=1)).mean((2, 3)), "f32[1, 3, 8, 8]")
        x = self.array(1, 3, 8, 8)
        table = tenon.calibrate(program, {}, [x])
        npu = tenon.Backend("npu://sim", calibration=table, profile_layers=True, placement="none", deadline=5)
        session = tenon.Session(program, backends=[npu, "cpu"])
        [y] = session.forward(x)
        self.assertEqual((npu.state, npu.counters["runs"], npu.counters["faults"], npu.precheck()), ("open", 1, 0, 0))
        [network] = npu.networks
        self.assertIn("[conv2d0 relu0]", network["text"])
        self.assertEqual((network["placement"], network["macs"]), ("none", 8 * 8 * 8 * 27))
        run = npu.last_run
        self.assertEqual((run["macs"], len(run["layers"])), (network["macs"], network["layers"]))
        self.assertIn(["conv2d0", "relu0"], [layer["values"] for layer in run["layers"]])

        def result(*backends):
            return tenon.Session(program, backends=[*backends, "cpu"]).forward(x)[0].numpy()

        np.testing.assert_array_equal(result(tenon.Backend("npu://sim", calibration=table, mode="exact")), y.numpy())
        broken = tenon.Backend("npu://sim?fault=bus_error@1", calibration=table, host_fallback=True, retries=0)
        np.testing.assert_array_equal(result(broken), y.numpy())
        self.assertEqual((broken.state, broken.counters["host_fallbacks"]), ("faulted", 1))

        # What was saved needs no calibration.
        session.save(self.folder / "npu.snap", weights="needed")
        for device in ("npu://sim", tenon.Device.open("npu://sim"), tenon.Backend("npu://sim", retries=2)):
            [same] = tenon.Session.load(self.folder / "npu.snap", [device, "cpu"]).forward(x)
            np.testing.assert_array_equal(same.numpy(), y.numpy())

        for options, says in (({"mode": "fast"}, "'fast' is none of 'device', 'exact'"), ({"speed": 1}, "no option 'speed'"),
                              ({"retries": "2"}, "another type"), ({"deadline": -1}, "deadline")):
            with self.assertRaisesRegex(tenon.ArgumentError, says):
                tenon.Backend("npu://sim", calibration=table, **options)
        with self.assertRaisesRegex(tenon.ArgumentError, "'cpu' has no option 'mode'"):
            tenon.Backend("cpu", mode="exact")
        with self.assertRaisesRegex(tenon.ArgumentError, "'cpu' is no NPU"):
            tenon.Backend("cpu").counters
        with self.assertRaisesRegex(tenon.ArgumentError, "calibration=calibrate"):
            tenon.Backend("npu://sim")
        with self.assertRaisesRegex(tenon.Error, "nobody serves a device"):
            tenon.Device.open(f"npu://unix:{self.folder}/nobody")

    def test_a_text_lacks_what_its_program_computed(self):
        program, _ = tenon.export(lambda x: x + ops.arange(4, dtype="f32") * 2.0, "f32[4]").optimized()
        self.assertTrue([name for name in program.folded if name.startswith("folded:")])
        with self.assertRaisesRegex(tenon.InputError, "a program's text has no arrays; save_network"):
            tenon.Session(tenon.parse(str(program))).forward(np.ones(4, "f4"))

    def test_the_first_layer_that_differs(self):
        def forward(x):
            layers = [{"w": tenon.build.weight(f"layer.{i}.w", "f32[8, 8]")} for i in range(5)]
            return tenon.repeat(layers, x, lambda layer, index, x: ops.linear(x, layer["w"]).tanh())

        program = tenon.export(forward, x="f32[N, 8]")
        weights = {f"layer.{i}.w": self.array(8, 8) for i in range(5)}
        x = self.array(3, 8)
        recorded, y = {}, x
        for i in range(5):
            y = np.tanh(y @ weights[f"layer.{i}.w"].T)
            recorded[f"layer[{i}]"] = y
        session = tenon.Session(program, weights)
        same = tenon.compare_activations(session, [x], recorded, relative=1e-4)
        self.assertEqual((same.first, same.unknown, len(same.values)), (None, [], 5))
        recorded["layer[2]"] = recorded["layer[2]"] + 1
        recorded["other"] = x
        found = tenon.compare_activations(session, [x], recorded)
        self.assertEqual((found.first, found.unknown), ("layer[2]", ["other"]))
        self.assertAlmostEqual(found.values[2]["max"], 1, places=4)
        self.assertIn("differs", str(found))
        self.assertEqual(len(tenon.record_activations(session, [x])), 10)
        self.assertEqual(list(tenon.record_activations(session, [x], ["layer[4]"])), ["layer[4]"])

    def test_donated_state_is_updated_in_place(self):
        def forward(cache, x, position):
            cache = ops.cache_update(cache, ops.full((), 0, "i64"), x, position)
            return cache.sum(), cache

        program = tenon.export(forward, cache="f32[1, 1, 1, 8, 4]", x="f32[1, S, 1, 4]", position="i32[]")
        session = tenon.Session(program)
        cache = ops.zeros((1, 1, 1, 8, 4))
        x = self.array(1, 2, 1, 4)
        where = cache.numpy().__array_interface__["data"][0]
        total, updated = session.forward(cache.donate(), x, 3)
        self.assertEqual(updated.numpy().__array_interface__["data"][0], where)
        np.testing.assert_array_equal(updated.numpy()[0, 0, 0, 3:5], x[0, :, 0])
        self.assertAlmostEqual(total.item(), float(x.sum()), places=4)
        with self.assertRaises(tenon.Error) as raised:
            cache.numpy()
        self.assertEqual(raised.exception.code, "CallOrder")

        # A call that fails gives it back; a view of it, or another handle, keeps it from being overwritten.
        with self.assertRaises(tenon.Error):
            session.forward(updated.donate(), x, 7)
        self.assertEqual(updated.numpy().__array_interface__["data"][0], where)
        with self.assertRaises(tenon.ArgumentError):
            session.forward(updated.donate(), x[..., :3], 0)
        view = updated.numpy()
        before = view.copy()
        _, another = session.forward(updated.donate(), x, 0)
        np.testing.assert_array_equal(view, before)
        self.assertNotEqual(another.numpy().__array_interface__["data"][0], where)
        kept = another.numpy().copy()
        session.forward(another, x, 5)  # not donated
        np.testing.assert_array_equal(another.numpy(), kept)

    def test_wrong_inputs(self):
        session = tenon.Session(tenon.export(mlp, x="f32[B, 8]"), self.weights())
        for call in (lambda: session.forward(), lambda: session.forward(self.array(2, 7)),
                     lambda: session.forward(self.array(2, 8), self.array(2, 8)),
                     lambda: session.forward(y=self.array(2, 8)),
                     lambda: session.forward(self.array(2, 8).astype("f8"))):
            with self.assertRaises(tenon.ArgumentError):
                call()
        unbound = tenon.Session(tenon.export(mlp, x="f32[B, 8]"))
        with self.assertRaises(tenon.Error):
            unbound.forward(self.array(2, 8))

    def test_forks_run_at_once(self):
        weights = self.weights()
        session = tenon.Session(tenon.export(mlp, x="f32[B, 8]"), weights)
        x = self.array(64, 8)
        [want] = session.forward(x)
        errors = []

        def work(fork):
            try:
                for _ in range(100):
                    np.testing.assert_array_equal(fork.forward(x)[0].numpy(), want.numpy())
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=work, args=(session.fork(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_budget(self):
        def long(x):
            for _ in range(30):
                x = ops.exp(x)
            return x

        with self.assertRaisesRegex(tenon.MachineError, "budget of 4096 bytes.*export\\(budget_bytes=\\)"):
            tenon.export(long, "f32[2]", budget_bytes=4096)
        self.assertEqual(str(tenon.export(long, "f32[2]", budget_bytes=1 << 20)).count("exp("), 30)

    def test_timeout(self):
        session = tenon.Session(tenon.export(mlp, x="f32[B, 8]"), self.weights())
        session.set_timeout(-1)
        with self.assertRaises(tenon.EndedEarlyError) as raised:
            session.forward(self.array(2, 8))
        self.assertEqual(raised.exception.code, "Timeout")
        for never in None, float("inf"), 1e30:
            session.set_timeout(never)
            [y] = session.forward(self.array(2, 8))
            self.assertTrue(y.wait(1e300))
        with self.assertRaisesRegex(tenon.ArgumentError, "nan"):
            session.set_timeout(float("nan"))

    def test_files(self):
        arrays = {"a": self.array(3, 4), "b": np.arange(5), "c": np.float32(2.5).reshape(())}
        tenon.save_safetensors(self.folder / "m.safetensors", arrays, {"key": "value"})
        file = tenon.open(self.folder / "m.safetensors")
        self.assertEqual(sorted(file), sorted(arrays))
        self.assertEqual(file.metadata, {"key": "value"})
        for name, array in arrays.items():
            np.testing.assert_array_equal(file[name].numpy(), array)
            self.assertTrue(file[name].is_read_only)
        self.assertEqual(file.type("a"), tenon.Shape("f32[3, 4]"))
        self.assertEqual(sorted(file.weights()), sorted(arrays))

        entries = {"general.architecture": "test", "n": 7, "x": 0.5, "yes": True, "words": ["a", "ü"], "list": [1, 2]}
        tenon.save_gguf(self.folder / "m.gguf", {"a": tenon.array(self.array(2, 64)).astype("q4_0")}, entries)
        file = tenon.open(self.folder / "m.gguf")
        self.assertEqual({key: file.metadata[key] for key in entries}, entries)
        self.assertEqual(file["a"].dtype, "q4_0")
        with self.assertRaises(tenon.Error) as raised:
            file["A"]
        self.assertEqual(raised.exception.code, "BadReference")

        tenon.write_npy(self.folder / "a.npy", arrays["a"])
        np.testing.assert_array_equal(np.load(self.folder / "a.npy"), arrays["a"])
        np.testing.assert_array_equal(tenon.read_npy(self.folder / "a.npy").numpy(), arrays["a"])

        program = tenon.export(mlp, x="f32[B, 8]")
        weights = self.weights()
        tenon.save_network(program, weights, self.folder / "n.json", self.folder / "n.raw")
        again, read = tenon.load_network(self.folder / "n.json")
        self.assertEqual(again, program)
        np.testing.assert_array_equal(read["up"].numpy(), weights["up"])


class ExactProducts(unittest.TestCase):
    def test_a_weight_that_is_known_gives_the_bits_of_one_that_is_not(self):
        random = np.random.default_rng(5)
        for rows in 1, 3:
            x, w = random.standard_normal(96).astype("f"), random.standard_normal((rows, 96)).astype("f")
            given = tenon.Session(tenon.export(lambda a, b: ops.linear(a, b), a="f32[96]", b=f"f32[{rows},96]"), exact=True)
            known = tenon.Session(tenon.export(lambda a: ops.linear(a, w), a="f32[96]"), exact=True)
            [one], [other] = given.forward(a=x, b=w), known.forward(a=x)
            self.assertEqual(one.numpy().tobytes(), other.numpy().tobytes())


if __name__ == "__main__":
    unittest.main()

"""vmap, jvp, vjp, Jacobians and Hessians: beside the examples one by one, closed forms and finite differences."""

import pathlib
import unittest

import numpy as np

import tenon
from tenon import ops
from test_ops import read_cases

DATA = pathlib.Path(__file__).parents[3] / "tests/train/data/transforms.safetensors"
SEED = int(np.random.SeedSequence().entropy) % 2**32

# Ops that are known to run in a loop over examples, or do where more than their first operand has examples.
LOOPED = {"embedding", "grid_sample", "grid_sample_backward", "grid_sample_grid_backward", "grouped_linear", "rope",
          "attention", "selective_scan", "solve", "triangular_solve", "searchsorted", "roi_align", "roi_align_backward",
          "random_bits", "quantize_linear", "dequantize_linear", "matmul_integer", "conv2d_integer",
          "non_max_suppression", "quantize", "dequantize"}


class EveryOp(unittest.TestCase):
    def test_every_op_of_every_choice_of_operands(self):
        print(f"seed {SEED}")
        random = np.random.default_rng(SEED)
        known, done, looped = tenon._tenon.all_ops(), set(), set()
        for case, inputs, _ in read_cases():
            name = case["op"]
            op = known[name]
            arrays = [np.asarray(one) for one in inputs]
            if name in ("after", "cache_update") or not arrays or any(one.dtype.kind not in "fiub" for one in arrays):
                continue
            chosen = [bool(random.integers(2)) for _ in arrays]
            chosen[int(random.integers(len(arrays)))] = True
            keeps = name in ("searchsorted", "selective_scan", "non_max_suppression", "attention") or \
                name.startswith("roi_align")
            others = [one if keeps else np.array(np.flip(one), order="C") for one in arrays]
            stacks = [np.stack([one, other, one]) if flag else one for one, other, flag in zip(arrays, others, chosen)]

            def of_one(*operands):
                return op(*operands, **case["attributes"])

            mapped = tenon.vmap(of_one, tuple(0 if flag else None for flag in chosen))
            with self.subTest(name, chosen=chosen, case=case["name"]):
                made = mapped(*stacks).numpy()
                if mapped.looped:
                    looped |= mapped.looped
                for i in range(3):
                    one = of_one(*(np.asarray(stack[i]) if flag else stack for stack, flag in zip(stacks, chosen))).numpy()
                    self.assertEqual(made[i].shape, one.shape)
                    if one.dtype.kind not in "biu":
                        tolerance = 1e-5 if one.dtype in ("f4", "f8") else 1e-2
                        np.testing.assert_allclose(made[i].astype("f8"), one.astype("f8"), rtol=tolerance, atol=tolerance)
                    else:
                        np.testing.assert_array_equal(made[i], one)
                done.add(name)
        print(f"{len(done)} ops; in a loop: {sorted(looped)}")
        self.assertGreater(len(done), 130)
        self.assertLessEqual(looped, LOOPED)


class Vmap(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(SEED)

    def values(self, *shape):
        return self.random.standard_normal(shape).astype("f4")

    def check(self, function, *arrays, in_axes=0, looped=(), tolerance=1e-5):
        """Beside the examples one by one."""
        axes = (in_axes,) * len(arrays) if in_axes is None or isinstance(in_axes, int) else in_axes
        mapped = tenon.vmap(function, in_axes)
        made = mapped(*arrays)
        self.assertEqual(mapped.looped, set(looped))
        size = next(one.shape[axis] for one, axis in zip(arrays, axes) if axis is not None)
        one_by_one = tenon.compiled(function)
        for i in range(size):
            want = one_by_one(*(one if axis is None else np.take(one, i, axis) for one, axis in zip(arrays, axes)))
            for a, b in zip(made if isinstance(made, tuple) else [made], want if isinstance(want, tuple) else [want]):
                self.assertEqual(a.numpy()[i].shape, b.numpy().shape)
                np.testing.assert_allclose(a.numpy()[i], b.numpy(), rtol=tolerance, atol=tolerance)

    def test_axes(self):
        x, w = self.values(4, 3, 5), self.values(2, 3)
        self.check(lambda x, w: ops.matmul(w, x), x, w, in_axes=(0, None))
        self.check(lambda x, w: ops.matmul(w, x), x, self.values(2, 4), in_axes=(2, None))
        self.check(lambda x, w: ops.matmul(w, x).sum(), x, self.values(4), in_axes=(-1, None))
        made = tenon.vmap(lambda p, x: {"y": p["w"] @ x, "n": x.sum()}, ({"w": None}, 1), {"y": -1, "n": 0})(
            {"w": w}, self.values(3, 7))
        self.assertEqual((made["y"].shape, made["n"].shape), ((2, 7), (7,)))
        same = tenon.vmap(lambda x, w: (x, w * 2.0), (0, None), (0, None))(x, w)
        np.testing.assert_array_equal(same[1].numpy(), 2 * w)
        self.assertEqual(tenon.vmap(lambda x, w: w, (0, None))(x, w).shape, (4, 2, 3))
        with self.assertRaisesRegex(tenon.Error, "depends on the examples"):
            tenon.vmap(lambda x: x, 0, None)(x)
        with self.assertRaisesRegex(tenon.Error, "which are not one"):
            tenon.vmap(lambda x, w: x.sum() + w.sum())(x, w)
        with self.assertRaisesRegex(tenon.Error, "no argument has examples"):
            tenon.vmap(lambda x: x, None)(x)

    def test_layers(self):
        x, w, b, k = self.values(3, 2, 5), self.values(4, 5), self.values(4), self.values(6, 2, 3, 3)
        self.check(lambda x, w, b: ops.linear(x, w, b).tanh(), x, w, b, in_axes=(0, None, None))
        self.check(ops.linear, self.values(3, 2, 5), self.values(3, 4, 5), self.values(3, 4))
        self.check(ops.linear, self.values(2, 5), self.values(3, 4, 5), self.values(4), in_axes=(None, 0, None))
        self.check(lambda x, b: ops.layer_norm(x, b, b), self.values(3, 2, 4), self.values(3, 4))
        self.check(lambda x, k: ops.max_pool2d(ops.conv2d(x, k), kernel=(2, 2)), self.values(3, 1, 2, 8, 8), k,
                   in_axes=(0, None))
        self.check(lambda x, k: ops.conv2d(x, k), self.values(3, 1, 2, 8, 8), self.values(3, 4, 2, 3, 3),
                   tolerance=1e-4)
        image, filters = self.values(3, 2, 2, 6, 6), self.values(4, 2, 3, 3)
        self.check(tenon.grad(lambda k, x: (ops.conv2d(x, k, stride=(2, 1)) ** 2.0).sum()), filters, image,
                   in_axes=(None, 0), tolerance=1e-4)
        seeds = np.asarray(tenon.vmap(lambda i: ops.fold_in(ops.random_key(7), i))(np.arange(3)))
        self.check(lambda key: ops.random_normal(key, (5,)), seeds, looped=["random_bits"])
        self.assertEqual(len(np.unique(seeds[:, 0])), 3)
        self.check(ops.embedding, self.random.integers(0, 5, (3, 4)), self.values(3, 5, 2))
        q, keys = self.values(3, 2, 4, 2, 8), self.values(3, 2, 6, 2, 8)
        self.check(lambda q, k: ops.attention(q, k, k), q, keys)
        self.check(lambda q, k: ops.attention(q, k, k, causal=True), q[0], keys, in_axes=(None, 0))
        mask = np.where(self.random.random((3, 4, 6)) < 0.3, np.float32("-inf"), np.float32(0))
        self.check(lambda q, k, m: ops.attention(q, k, k, mask=m), q, keys, mask[0], in_axes=(0, 0, None))
        self.check(lambda x, i: ops.gather(x, i, axis=1), self.values(3, 2, 5), self.random.integers(0, 5, (3, 4)))
        self.check(lambda x, i: x[i], self.values(3, 5), np.array([2, 0, 4]))
        labels = np.array([[1, 0], [3, 2], [0, 1]])
        self.check(ops.cross_entropy, self.values(3, 2, 4), labels)
        self.check(lambda x: ops.sort_with_indices(x), self.values(3, 7))
        self.check(lambda x: ops.quantile(x, 0.3), self.values(3, 7))

    def test_linear_of_several_types(self):
        random = np.random.default_rng(3)
        x, w, bias = (random.standard_normal(size) for size in ((2, 4, 5), (2, 3, 5), (3,)))
        want = np.einsum("nik,njk->nij", x, w)
        for types in ("f2", "f2", "f4"), ("f2", "f4", "f4"):
            given = [one.astype(of) for one, of in zip((x, w, bias), types)]
            made = tenon.vmap(ops.linear, (0, 0, None))(*given).numpy()
            np.testing.assert_allclose(made.astype("f8"), want + bias, rtol=0.02, atol=0.02)
            made = tenon.vmap(ops.linear, (0, None, 0))(given[0], given[1][0], np.stack([given[2]] * 2)).numpy()
            np.testing.assert_allclose(made.astype("f8"), x @ w[0].T + bias, rtol=0.02, atol=0.02)

    def test_an_open_number_of_examples(self):
        w, table = self.values(2, 3), self.values(5, 3)

        def f(x, i, w):
            y = ops.linear(x, w).tanh()
            z = tenon.scan(lambda c, row: (c + row, c * row), ops.zeros((3,)), x)[1]
            best = tenon.while_loop(lambda a: a.sum() < 5.0, lambda a: a * 2.0 + 1.0, ops.abs(x[0]), 20)
            return ops.cross_entropy(y, i), ops.gather(x, i[:2], axis=0), z.reshape(-1), best, x[i[0]] + ops.sort(x, -1)[0]

        def mapped(x, i, w):
            return tenon.vmap(f, (0, 0, None))(x, i, w)

        session = tenon.Session(tenon.export(mapped, "f32[B, 4, 3]", "i64[B, 4]", "f32[2, 3]"))
        for count in (1, 5):
            x, i = self.values(count, 4, 3), self.random.integers(0, 2, (count, 4))
            for got, want in zip(session.forward(x, i, w), tenon.vmap(f, (0, 0, None))(x, i, w)):
                np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
        gradients = tenon.vmap(tenon.grad(lambda w, x: (ops.linear(x, w).exp()).sum()), (None, 0))
        program = tenon.export(lambda w, x: gradients(w, x), "f32[2, 3]", "f32[B, 4, 3]")
        np.testing.assert_allclose(tenon.Session(program).forward(w, x)[0].numpy(), gradients(w, x).numpy(), rtol=1e-4,
                                   atol=1e-5)

    def test_loops(self):
        xs = self.values(4, 6, 3)

        def cumulated(x, start):
            return tenon.scan(lambda c, row: ((c + row).tanh(), c * row), start, x)

        self.check(cumulated, xs, self.values(3), in_axes=(0, None))
        self.check(cumulated, xs[0], self.values(4, 3), in_axes=(None, 0))
        self.check(lambda x: tenon.repeat(5, x, lambda layer, i, y: y * 1.1 + i.cast("f32")), self.values(4, 3))
        self.check(lambda x: tenon.while_loop(lambda y: y.sum() < 20.0, lambda y: y * 2.0 + 1.0, x, 40),
                   np.abs(self.values(4, 3)))
        self.check(lambda x: tenon.cond(x.sum() > 0.0, lambda: x * 2.0, lambda: x - 1.0), self.values(6, 3))
        self.check(lambda n: tenon.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2.0), (0, 1.0), 50)[1],
                   np.array([3, 0, 7]))

    def test_arrays_in_bodies_of_loops(self):
        w = self.values(3, 3)

        def scanned(x):
            return tenon.scan(lambda c, row: (c * 2.0 + ops.matmul(w, row * row), None), np.zeros(3, "f4"), x)[0]

        self.check(scanned, self.values(4, 6, 3))
        self.check(lambda x: tenon.while_loop(lambda y: y.sum() < 20.0, lambda y: ops.matmul(w * w, y) + 1.0, x, 40),
                   np.abs(self.values(4, 3)))
        self.check(lambda x: tenon.cond(x.sum() > 0.0, lambda: ops.matmul(w, x), lambda: x - 1.0), self.values(6, 3))
        h = tenon.hessian(lambda x: scanned(x).sum())(self.values(2, 3)).numpy()
        want = np.zeros((2, 3, 2, 3))
        for i, factor in enumerate((2, 1)):
            want[i, :, i, :] = np.diag(2 * factor * w.sum(0))
        np.testing.assert_allclose(h, want, rtol=1e-5, atol=1e-6)

    def test_bodies_are_valid_for_examples_that_do_not_run_them(self):
        table, tables = self.values(4), self.values(5, 4)

        def summed(i, table):
            return tenon.while_loop(lambda i, _: i < 4, lambda i, total: (i + 1, total + table[i]), (i, 0.0), 9)[1]

        def chosen(i, table):
            return tenon.cond(i < 4, lambda: table[i] * 2.0, lambda: table.sum())

        def changed(i, table):
            return tenon.cond(i < 4, lambda i, a: (i, ops.scatter(a, i.reshape(1), ops.ones((1,)), axis=0, mode="add")), lambda i, a: (i, -a), carry=(i, table))[1]

        starts = np.array([0, 9, 2, 4, 3])
        for function in (summed, chosen, changed):
            self.check(function, starts, table, in_axes=(0, None))
            self.check(function, starts, tables)
        gradients = tenon.vmap(tenon.grad(lambda table, i: chosen(i, table)), (None, 0))(table, starts).numpy()
        np.testing.assert_array_equal(gradients, [2 * np.eye(4)[i] if i < 4 else np.ones(4) for i in starts])

    def test_composed_transforms(self):
        x, y = self.values(4, 3), self.values(5, 3)
        made = tenon.vmap(tenon.vmap(lambda a, b: (a * b).sum(), (None, 0)), (0, None))(x, y)
        np.testing.assert_allclose(made.numpy(), x @ y.T, rtol=1e-5, atol=1e-5)

        def of_whole(w, x):
            return (tenon.vmap(lambda w, x: ops.linear(x, w).tanh().sum(), (None, 0))(w, x) ** 2.0).sum()

        w = self.values(2, 3)
        got = tenon.grad(of_whole)(w, x)
        want = tenon.grad(lambda w, x: (ops.linear(x, w).tanh().sum(-1) ** 2.0).sum())(w, x)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
        step = tenon.compiled(lambda w, x: tenon.vmap(tenon.grad(lambda w, x: (x @ w).sum().exp()), (None, 0))(w, x).sum(0))
        w = self.values(3)
        np.testing.assert_allclose(step(w, x).numpy(), (np.exp(x @ w)[:, None] * x).sum(0), rtol=1e-4)

    def test_tensors_from_around_a_function(self):
        x, y, w = self.values(4, 3), self.values(5, 3), self.values(3)
        pairs = tenon.vmap(lambda a: tenon.vmap(lambda b: (a * b).sum())(y))
        np.testing.assert_allclose(pairs(x).numpy(), x @ y.T, rtol=1e-5, atol=1e-5)

        @tenon.compiled
        def of_all(p, x):
            scaled = p["w"] * 2.0

            def net(row):
                return (scaled * row).sum() + p["b"]

            gradients = tenon.vmap(lambda row: tenon.grad(lambda r: net(r).exp())(row))(x)
            _, pushed = tenon.jvp(net, (y[0],), (y[1],))
            _, pull = tenon.vjp(net, y[0])
            return tenon.vmap(net)(x), gradients, tenon.jacobian(lambda r: net(r) * r)(x[0]), pushed, pull(1.0)[0]

        values, gradients, jacobian, pushed, pulled = of_all({"w": w, "b": np.float32(0.5)}, x)
        want = x @ (2 * w) + 0.5
        np.testing.assert_allclose(values.numpy(), want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(gradients.numpy(), np.exp(want)[:, None] * 2 * w, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(jacobian.numpy(), want[0] * np.eye(3) + np.outer(x[0], 2 * w), rtol=1e-4, atol=1e-5)

        np.testing.assert_allclose(pushed.numpy(), (2 * w * y[1]).sum(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(pulled.numpy(), 2 * w, rtol=1e-4, atol=1e-5)

        class Holder:
            pass

        def hidden(w, x):
            held = Holder()
            held.w = w
            return tenon.vmap(lambda row: (row * held.w).sum())(x)

        with self.assertRaisesRegex(tenon.Error, "in_axes=None"):
            tenon.compiled(hidden)(w, x)

    def test_derivatives_of_complex_numbers_are_refused(self):
        z = np.array([1 + 2j, -1j], np.complex64)
        real = np.array([1.0, 2.0], np.float32)

        def squares(z):
            return (ops.abs(z) * ops.abs(z)).sum()

        with self.assertRaisesRegex(tenon.Error, "an argument is c64"):
            tenon.vjp(squares, z)[1](np.float32(1))
        with self.assertRaisesRegex(tenon.Error, "an argument is c64"):
            tenon.jvp(squares, (z,), (z,))
        with self.assertRaisesRegex(tenon.Error, "an argument is c64"):
            tenon.hvp(squares, (z,), (z,))
        with self.assertRaisesRegex(tenon.Error, "a result is c64"):
            tenon.jvp(lambda x: ops.complex(x, x), (real,), (real,))


class Derivatives(unittest.TestCase):
    def setUp(self):
        self.data = {name: np.asarray(one) for name, one in tenon.open(DATA).items()}
        self.primals = tuple(self.data[name] for name in "wbx")

    def same(self, got, name):
        self.assertEqual(got.numpy().shape, self.data[name].shape)
        np.testing.assert_allclose(got.numpy(), self.data[name], rtol=1e-10, atol=1e-10, err_msg=name)

    @staticmethod
    def scores(w, b, x):
        return ops.softmax((w @ x + b).tanh())

    @staticmethod
    def loss(w, b, x):
        return ops.logsumexp(w @ x + b) + (w ** 3.0).sum()

    def test_they_are_pytorchs(self):
        tangents = tuple(self.data[f"tangent.{name}"] for name in "wbx")
        value, pushed = tenon.jvp(self.scores, self.primals, tangents)
        self.same(pushed, "jvp")
        again, pull = tenon.vjp(self.scores, *self.primals)
        np.testing.assert_allclose(again.numpy(), value.numpy())
        for name, one in zip("wbx", pull(self.data["u"])):
            self.same(one, f"vjp.{name}")
        for jacobian in (tenon.jacrev, tenon.jacfwd, tenon.jacobian):
            for name, one in zip("wbx", jacobian(self.scores, argnums=(0, 1, 2))(*self.primals)):
                self.same(one, f"jacobian.{name}")
            self.same(jacobian(self.scores, argnums=-1)(*self.primals), "jacobian.x")
        self.same(tenon.hessian(self.loss)(*self.primals), "hessian")
        w, b, x = self.primals
        [product] = tenon.hvp(lambda w: self.loss(w, b, x), (w,), tangents[:1])
        want = np.einsum("ijkl,kl->ij", self.data["hessian"], tangents[0])
        np.testing.assert_allclose(product.numpy(), want, rtol=1e-9, atol=1e-9)
        self.same(tenon.hvp(self.loss, self.primals, tangents)[0], "hvp")
        self.same(tenon.vmap(tenon.grad(self.loss), (None, None, 0))(w, b, self.data["xs"]), "gradients")
        self.same(tenon.vmap(tenon.jacrev(self.scores, argnums=2), (None, None, 0))(w, b, self.data["xs"]), "jacobians")

    def test_within_a_program(self):
        tangents = tuple(self.data[f"tangent.{name}"] for name in "wbx")

        @tenon.compiled
        def all_of_them(primals, tangents, u):
            _, pushed = tenon.jvp(self.scores, primals, tangents)
            _, pull = tenon.vjp(self.scores, *primals)
            return pushed, pull(u), tenon.jacobian(self.scores)(*primals), tenon.hvp(self.loss, primals, tangents)

        pushed, pulled, jacobian, products = all_of_them(self.primals, tangents, self.data["u"])
        self.same(pushed, "jvp")
        self.same(pulled[2], "vjp.x")
        self.same(jacobian, "jacobian.w")
        self.same(products[0], "hvp")

    def test_structures(self):
        x = np.array([1.0, 2.0, 3.0])

        def both(p, n):
            return {"square": p["a"] * p["a"], "mixed": (p["a"].sum() * p["b"], n)}

        p = {"a": x, "b": np.array([4.0])}
        j = tenon.jacobian(both, has_aux=False)(p, 3)
        np.testing.assert_allclose(j["square"]["a"].numpy(), np.diag(2 * x))
        np.testing.assert_allclose(j["square"]["b"].numpy(), np.zeros((3, 1)))
        np.testing.assert_allclose(j["mixed"][0]["a"].numpy(), np.full((1, 3), 4.0))
        np.testing.assert_allclose(j["mixed"][0]["b"].numpy(), [[6.0]])
        jacobian, second = tenon.jacfwd(lambda a: (a * a, a.sum()), has_aux=True)(x)
        np.testing.assert_allclose(jacobian.numpy(), np.diag(2 * x))
        self.assertEqual(second.item(), 6)
        value, along = tenon.jvp(both, (p, 3), ({"a": x, "b": np.zeros(1)}, 0))
        np.testing.assert_allclose(along["mixed"][0].numpy(), [24.0])
        h = tenon.hessian(lambda p: (p["a"] ** 3.0).sum() * p["b"].sum())(p)
        np.testing.assert_allclose(h["a"]["b"].numpy(), 3 * x[:, None] ** 2)
        np.testing.assert_allclose(h["b"]["b"].numpy(), [[0.0]])

    def test_loops_and_long_loops(self):
        def last(x):
            return tenon.repeat(20, x, lambda layer, i, y: (y * y[::-1]).sin() + x)

        x = np.array([0.3, -0.2, 0.5])
        want = np.stack([(np.asarray(tenon.compiled(last)(x + e)) - np.asarray(tenon.compiled(last)(x - e))) / 2e-6
                         for e in 1e-6 * np.eye(3)], -1)
        for jacobian in (tenon.jacrev, tenon.jacfwd):
            np.testing.assert_allclose(jacobian(last)(x).numpy(), want, rtol=1e-6, atol=1e-6)

    def test_what_is_refused(self):
        rows = np.arange(6, dtype="float32").reshape(2, 3)
        for wrong in 3, -1:  # would be an element of the example beside
            with self.assertRaisesRegex(tenon.Error, rf"OutOfRange: .* index {wrong} outside \[0, 3\)"):
                tenon.vmap(ops.gather)(rows, np.array([[0], [wrong]], "int32")).numpy()
        self.assertEqual(tenon.vmap(ops.gather)(rows, np.array([[2], [0]], "int32")).numpy().tolist(), [[2], [3]])
        x = np.ones(3)
        with self.assertRaisesRegex(tenon.Error, "a tangent is f64"):
            tenon.jvp(lambda a: a * 2.0, (x,), (np.ones(2),))
        with self.assertRaisesRegex(tenon.Error, "2 tangents for 1 arguments"):
            tenon.jvp(lambda a: a * 2.0, (x,), (x, x))
        with self.assertRaisesRegex(tenon.Error, "no scalar"):
            tenon.hvp(lambda a: a * 2.0, (x,), (x,))
        with self.assertRaisesRegex(tenon.Error, "has no derivatives"):
            tenon.jacobian(lambda a: a * 2)(np.arange(3))
        with self.assertRaisesRegex(TypeError, "there is no argument 1 of 1"):
            tenon.jacobian(lambda a: a, argnums=1)(x)


if __name__ == "__main__":
    unittest.main()

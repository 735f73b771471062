"""Quantiles, covariances, histograms, interpolation and distances of tenon.ops, at once and recorded, beside numpy."""

import itertools
import unittest

import numpy as np

import tenon
from tenon import ops

SEED = int(np.random.SeedSequence().entropy) % 2**32


class Statistics(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}")
        self.random = np.random.default_rng(SEED)

    def values(self, *shape):
        return self.random.standard_normal(shape).astype("f4")

    def check(self, want, function, *arrays, tolerance=2e-5, types=None):
        """At once and as a program, of these types or the arrays'."""
        with tenon.Graph() as graph:
            inputs = [graph.input("", one) for one in types or [tenon.array(one).type for one in arrays]]
            program = graph.program(function(*inputs))
        wanted = want if isinstance(want, (tuple, list)) else [want]
        at_once = function(*arrays)
        for results in (at_once if isinstance(at_once, tuple) else [at_once],
                        tenon.Session(program).forward(*arrays)):
            self.assertEqual(len(results), len(wanted))
            for result, one in zip(results, wanted):
                self.assertEqual(result.numpy().shape, np.shape(one))
                np.testing.assert_allclose(result.numpy(), one, rtol=tolerance, atol=tolerance)

    def test_quantiles(self):
        x = self.values(3, 5, 4)
        holes = np.where(self.random.random(x.shape) < 0.3, np.float32("nan"), x)
        holes[1, :, 2] = np.nan
        with np.errstate(all="ignore"), self.subTest("quantiles"):
            import warnings

            warnings.simplefilter("ignore")
            for axis, keep, method in itertools.product((None, 0, -1, (0, 2)), (False, True),
                                                        ("linear", "lower", "higher", "nearest", "midpoint")):
                for q in (0.0, 0.37, 1.0, [0.25, 0.5, 0.9]):
                    named = {"axis": axis, "keepdims": keep, "method": method}
                    exact = {**named, "q": np.asarray(q, "f8")}
                    self.check(np.quantile(x.astype("f8"), **exact), lambda y: ops.quantile(y, q, **named), x)
                    self.check(np.nanquantile(holes.astype("f8"), **exact), lambda y: ops.nanquantile(y, q, **named),
                               holes)
                self.check(np.quantile(holes.astype("f8"), 0.4, axis=axis, keepdims=keep),
                           lambda y: ops.quantile(y, 0.4, axis, keep), holes)
            for axis in (None, 1, (1, 2)):
                self.check(np.median(x, axis), lambda y: ops.median(y, axis), x)
                self.check(np.nanmedian(holes, axis), lambda y: ops.nanmedian(y, axis), holes)
                self.check(np.nansum(holes, axis), lambda y: ops.nansum(y, axis), holes)
                self.check(np.nanmean(holes, axis), lambda y: ops.nanmean(y, axis), holes)
        self.check(np.median(x, 1), lambda y: ops.median(y, 1), x, types=["f32[3, N, 4]"])
        self.check(np.quantile(x, [0.3, 0.8]), lambda y: ops.quantile(y, [0.3, 0.8]), x, types=["f32[A, B, C]"])
        self.check(np.median(np.arange(6)), ops.median, np.arange(6))
        infinite = np.array([1, np.inf, np.inf, 2, np.inf], "f4")
        self.assertEqual(ops.quantile(infinite, 0.9).item(), np.inf)
        with self.assertRaisesRegex(tenon.Error, r"outside \[0, 1\]"):
            ops.quantile(x, 1.5)
        with self.assertRaisesRegex(ValueError, "method='cubic'"):
            ops.quantile(x, 0.5, method="cubic")
        with self.assertRaisesRegex(tenon.Error, "no elements"):
            ops.median(np.zeros((0, 3), "f4"), 0)

    def test_numpys_functions_of_tensors(self):
        x = self.values(3, 8)
        for function in (lambda y: np.median(y, axis=1), lambda y: np.quantile(y, 0.3, keepdims=True), np.nanmean, np.cov,
                         lambda y: np.cov(y, ddof=0), np.corrcoef, lambda y: np.nansum(y, 0), np.trapezoid
                         if hasattr(np, "trapezoid") else np.nanmedian):
            np.testing.assert_allclose(tenon.compiled(function)(x).numpy(), function(x), rtol=1e-4, atol=1e-5)
        counts, edges = tenon.compiled(lambda y: np.histogram(y, 4))(x)
        np.testing.assert_array_equal(counts.numpy(), np.histogram(x, 4)[0])

    def test_gradients(self):
        x = self.values(4, 7)
        order = np.argsort(x, -1)
        want = np.zeros_like(x)
        np.put_along_axis(want, order[:, 2:3], 0.2, -1)  # place 0.3 * 6 = 1.8
        np.put_along_axis(want, order[:, 1:2], 0.2, -1)
        np.put_along_axis(want, order[:, 1:2], 1 - 0.8, -1)
        np.put_along_axis(want, order[:, 2:3], 0.8, -1)
        np.testing.assert_allclose(tenon.grad(lambda y: ops.quantile(y, 0.3, -1).sum())(x).numpy(), want, atol=1e-6)
        x[1, 3] = np.nan
        np.testing.assert_array_equal(tenon.grad(ops.nansum)(x).numpy(), (~np.isnan(x)).astype("f4"))
        np.testing.assert_allclose(tenon.grad(ops.nanmean)(x).numpy(), (~np.isnan(x)) / 27, atol=1e-7)
        xs, ys = np.array([0.0, 1.0, 3.0], "f4"), np.array([1.0, 3.0, -1.0], "f4")
        at = np.array([-1.0, 0.5, 2.0, 4.0], "f4")
        slope, by_ys = tenon.grad(lambda x, y: ops.interp(x, xs, y).sum(), argnums=(0, 1))(at, ys)
        np.testing.assert_allclose(slope.numpy(), [0, 2, -2, 0])
        np.testing.assert_allclose(by_ys.numpy(), [1.5, 1.0, 1.5])

    def test_covariances(self):
        x = self.values(4, 9)
        self.check(np.cov(x), ops.cov, x)
        self.check(np.cov(x, ddof=0), lambda y: ops.cov(y, correction=0), x)
        self.check(np.cov(x[0]), ops.cov, x[0])
        self.check(np.corrcoef(x), ops.corrcoef, x)
        self.check(np.corrcoef(x), ops.corrcoef, x, types=["f32[V, N]"])
        with self.assertRaisesRegex(tenon.Error, "a vector or a matrix"):
            ops.cov(self.values(2, 2, 2))

    def test_histograms(self):
        x = self.values(7, 30)
        for bins in (1, 10, 33):
            self.check(np.histogram(x, bins), lambda y: ops.histogram(y, bins), x)
            self.check(np.histogram(x, 3), lambda y: ops.histogram(y, np.int64(3)), x)
            self.check(np.histogram(x, bins, (-0.7, 1.2)), lambda y: ops.histogram(y, bins, (-0.7, 1.2)), x)
            self.check(np.histogram(x, bins, density=True), lambda y: ops.histogram(y, bins, density=True), x)
        weights = self.random.random(x.shape).astype("f4")
        self.check(np.histogram(x, 8, weights=weights), lambda y, w: ops.histogram(y, 8, weights=w), x, weights)
        edges = np.array([-2, -0.5, 0, 0.1, 3], "f4")
        self.check(np.histogram(x, edges), lambda y, e: ops.histogram(y, e), x, edges)
        self.check(np.histogram(np.ones(4, "f4"), 5), lambda y: ops.histogram(y, 5), np.ones(4, "f4"))
        self.check(np.histogram(np.arange(12), 5), lambda y: ops.histogram(y, 5), np.arange(12))
        ends = np.array([0, 1, 1, 0.5, np.nan, -1, 2], "f4")
        self.assertEqual(ops.histogram(ends, 2, (0, 1))[0].numpy().tolist(), [1, 3])
        with self.assertRaisesRegex(tenon.Error, "0 bins"):
            ops.histogram(x, 0)

    def test_interpolation_and_integrals(self):
        xs = np.sort(self.values(9))
        ys, x = self.values(9), self.values(4, 11) * 2
        x[0, 0], x[1, 1], x[2, 2] = xs[0], xs[-1], xs[4]
        self.check(np.interp(x, xs, ys), ops.interp, x, xs, ys)
        self.check(np.interp(x, xs, ys, -7, 8), lambda *a: ops.interp(*a, left=-7, right=8), x, xs, ys)
        self.check(np.interp(x, xs[:1], ys[:1]), ops.interp, x, xs[:1], ys[:1])
        y = self.values(3, 6, 5)
        for axis in (0, 1, -1):
            n = y.shape[axis]
            trapezoid = getattr(np, "trapezoid", None) or np.trapz
            self.check(trapezoid(y, axis=axis), lambda z: ops.trapezoid(z, axis=axis), y)
            self.check(trapezoid(y, dx=0.3, axis=axis), lambda z: ops.trapezoid(z, dx=0.3, axis=axis), y)
            places = np.sort(self.values(n))
            self.check(trapezoid(y, places, axis=axis), lambda z, p: ops.trapezoid(z, p, axis=axis), y, places)
            places = np.sort(self.values(*y.shape), axis)
            self.check(trapezoid(y, places, axis=axis), lambda z, p: ops.trapezoid(z, p, axis=axis), y, places)

    def test_numbers_without_a_difference(self):
        for values in ([-np.inf, 1], [-3e38, 3e38], [-np.inf, -np.inf], [np.inf, 2, 3]):
            x = np.array(values, "f4")
            self.assertEqual(ops.median(x).item(), float(np.median(x.astype("f8"))))
            self.assertEqual(ops.nanmedian(x).item(), float(np.median(x.astype("f8"))))

    def test_the_words_of_numpy(self):
        x = self.values(20)
        counts, edges = tenon.compiled(lambda a: np.histogram(a, 4, (-1.0, 1.0), True))(x)
        want = np.histogram(x, 4, (-1.0, 1.0), True)
        np.testing.assert_allclose(counts, want[0], rtol=1e-6)
        np.testing.assert_allclose(edges, want[1], rtol=1e-6)
        with self.assertRaisesRegex(TypeError, "no array to write to"):
            tenon.compiled(lambda a: np.median(a, out=np.zeros(())))(x)

    def test_distances(self):
        a, b = self.values(2, 5, 3), self.values(2, 4, 3)
        gap = np.abs(a[:, :, None] - b[:, None])
        self.check(np.sqrt((gap**2).sum(-1)), ops.cdist, a, b)
        self.check(gap.sum(-1), lambda x, y: ops.cdist(x, y, 1.0), a, b)
        self.check(gap.max(-1), lambda x, y: ops.cdist(x, y, float("inf")), a, b)
        self.check((gap**3).sum(-1)**(1 / 3), lambda x, y: ops.cdist(x, y, p=3.0), a, b)
        a, b = self.values(4, 6), self.values(4, 6)
        lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        self.check((a * b).sum(-1) / lengths, ops.cosine_similarity, a, b)
        self.assertEqual(ops.cosine_similarity(np.zeros(3, "f4"), np.ones(3, "f4")).item(), 0)
        self.assertTrue(np.isfinite(tenon.grad(lambda x: ops.cdist(x, x).sum())(a).numpy()).all())


if __name__ == "__main__":
    unittest.main()

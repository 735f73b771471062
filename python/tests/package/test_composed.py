"""Builders of the library as functions of tenon.ops: of arrays at once and recorded, beside numpy."""

import math
import pathlib
import re
import threading
import unittest

import numpy as np

import tenon
from tenon import _tenon, ops

SEED = int(np.random.SeedSequence().entropy) % 2**32


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def halves(x, axis=-1):
    return np.split(x, 2, axis)


def convolved(x, w, strides, padding, dilation):
    """x [N, C, ...], w [O, C, ...] with the same padding on both sides."""
    axes = w.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(padding, padding)] * axes)
    reach = [(n - 1) * dilation + 1 for n in w.shape[2:]]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, 2 + axes)))
    view = view[(slice(None), slice(None)) + (slice(None, None, strides),) * axes +
                (slice(None, None, dilation),) * axes]
    return np.moveaxis(np.tensordot(view, w, axes=([1, *range(2 + axes, 2 + 2 * axes)], [1, *range(2, 2 + axes)])),
                       -1, 1)


def windows(x, kernel):
    """Of x [N, C, ...], side by side, their elements along the last axis."""
    axes = x.ndim - 2
    view = np.lib.stride_tricks.sliding_window_view(x, (kernel,) * axes, axis=tuple(range(2, 2 + axes)))
    view = view[(slice(None), slice(None)) + (slice(None, None, kernel),) * axes]
    return view.reshape(*view.shape[:2 + axes], -1)


def shuffled(x, r):
    n, c, h, w = x.shape
    return x.reshape(n, c // r // r, r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // r // r, h * r, w * r)


class Composed(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}")
        self.random = np.random.default_rng(SEED)

    def values(self, *shape):
        return self.random.standard_normal(shape).astype("f4")

    def check(self, want, name, *arguments, tolerance=2e-5, **named):
        """An array for each array of `arguments` is an input of the recorded form; lists of arrays stay lists."""
        function = getattr(ops, name)
        with self.subTest(name):
            at_once = function(*arguments, **named)
            again = function(*arguments, **named)
            arrays = [one for one in arguments if isinstance(one, np.ndarray)]
            with tenon.Graph() as graph:
                tensors = iter([graph.input("", tenon.array(one).type) for one in arrays])
                made = function(*[next(tensors) if isinstance(one, np.ndarray) else one for one in arguments], **named)
                program = graph.program(made)
            recorded = tenon.Session(program).forward(*arrays)
            wanted = want if isinstance(want, (tuple, list)) else [want]
            for results in (at_once, again, recorded):
                results = results if isinstance(results, (tuple, list)) else [results]
                self.assertEqual(len(results), len(wanted))
                for result, one in zip(results, wanted):
                    result = np.asarray(result)
                    self.assertEqual(result.shape, np.shape(one))
                    np.testing.assert_allclose(result, one, rtol=tolerance, atol=tolerance)

    def test_activations(self):
        x = self.values(3, 8) * 3
        self.check(np.where(x > 0, x, 1.5 * np.expm1(x / 1.5)), "celu", x, alpha=1.5)
        self.check(np.where(np.abs(x) > 0.5, x, 0), "hardshrink", x)
        self.check(-np.log1p(np.exp(-x)), "logsigmoid", x)
        slope = self.values(8)
        self.check(np.where(x > 0, x, slope * x), "prelu", x, slope)
        self.check(x * sigmoid(1.702 * x), "quick_gelu", x)
        alpha, scale = 1.6732632423543772, 1.0507009873554805
        self.check(scale * np.where(x > 0, x, alpha * np.expm1(x)), "selu", x)
        self.check(np.sign(x) * np.maximum(np.abs(x) - 0.3, 0), "softshrink", x, 0.3)
        self.check(x / (1 + np.abs(x)), "softsign", x)
        self.check(x - np.tanh(x), "tanhshrink", x)
        self.check(np.where(x > 1, x, 0), "thresholded_relu", x)
        for name, gate in [("geglu", gelu), ("reglu", lambda a: np.maximum(a, 0))]:
            for x, axis in [(self.values(3, 8), -1), (self.values(4, 3), 0)]:
                a, b = halves(x, axis)
                self.check(gate(a) * b, name, x, axis=axis)

    def test_shapes(self):
        x, like = self.values(2, 3, 4), self.values(5, 2, 3, 4)
        self.check(np.broadcast_to(x, like.shape), "broadcast_like", x, like)
        self.check(np.repeat(x, 3, 1), "repeat_interleave", x, 3, 1)
        self.check(x.reshape(4, 6), "reshape_like", x, self.values(4, 6))
        self.check(np.roll(x, -5, 2), "roll", x, -5, 2)
        self.check(np.split(x, [1, 3], 2), "split", x, [1, 2, 1], -1)
        self.check(np.split(x, [2], 1), "split", x, 2, 1)
        self.check(like.sum(0), "sum_to", like, (2, 3, 4))
        self.check(np.tile(x, (1, 1, 3)), "tile", x, 3, -1)
        with self.assertRaises(ValueError):
            ops.split(x, 0)

    def test_products(self):
        a, b, c = self.values(2, 3, 4), self.values(2, 4, 5), self.values(5, 3)
        for equation, operands in [("bij,bjk->bik", (a, b)), ("bij,bjk,kl->l", (a, b, c)), ("...i->...", (a,)),
                                   ("bij->jib", (a,))]:
            self.check(np.einsum(equation, *operands), "einsum", equation, *operands, tolerance=1e-4)
        m, v, w = self.values(4, 4), self.values(3), self.values(5)
        self.check(np.diagonal(m, 1), "diagonal", m, 1)
        self.check(np.diag(v, -1), "diagonal_matrix", v, -1)
        self.check(np.inner(a[0], m), "inner", a[0].copy(), m)
        self.check(np.kron(m, c), "kron", m, c)
        self.check(np.outer(v, w), "outer", v, w)
        cube = self.values(3, 4, 2)
        self.check(np.tensordot(a, cube, 2), "tensordot", a, cube, 2, tolerance=1e-4)
        self.check(np.trace(m, 1), "trace", m, 1)
        d = self.random.standard_normal((4, 4)) + 4 * np.eye(4)
        x = self.random.standard_normal((4, 2))
        self.check(x, "lu_solve", *(np.asarray(part) for part in ops.lu(d)), d @ x, tolerance=1e-9)

    def test_convolutions_and_pools(self):
        x, w, bias = self.values(2, 3, 9), self.values(4, 3, 3), self.values(4)
        self.check(convolved(x, w, 2, 1, 1) + bias[:, None], "conv1d", x, w, bias, stride=2, padding=1, tolerance=1e-4)
        x, w = self.values(1, 2, 5, 6, 5), self.values(3, 2, 2, 2, 2)
        self.check(convolved(x, w, 1, 1, 2), "conv3d", x, w, padding=1, dilation=2, tolerance=1e-4)
        x, w = self.values(2, 3, 5), self.values(3, 4, 2)
        self.check(np.einsum("ncl,cok->nolk", x, w).reshape(2, 4, 10), "conv_transpose1d", x, w, stride=2,
                   tolerance=1e-4)
        x, w = self.values(1, 2, 2, 3, 2), self.values(2, 3, 2, 2, 2)
        want = np.einsum("ncdhw,coxyz->nodxhywz", x, w).reshape(1, 3, 4, 6, 4)
        self.check(want, "conv_transpose3d", x, w, stride=2, tolerance=1e-4)
        for shape in [(2, 3, 8), (2, 3, 8, 4), (1, 2, 4, 4, 8)]:
            x = self.values(*shape)
            self.check(windows(x, 2).max(-1), "max_pool", x, 2)
            self.check(windows(x, 4).mean(-1), "avg_pool", x, 4)
            self.check(np.sqrt((windows(x, 2)**2).sum(-1)), "lp_pool", x, 2.0, 2)
            axes = tuple(range(2, len(shape)))
            self.check(x.mean(axes, keepdims=True), "global_avg_pool", x)
            self.check(x.max(axes, keepdims=True), "global_max_pool", x)
            self.check(x.mean(axes, keepdims=True), "adaptive_avg_pool", x, 1)
            self.check(x.max(axes, keepdims=True), "adaptive_max_pool", x, 1)
        x = self.values(2, 8, 3, 5)
        self.check(shuffled(x, 2), "pixel_shuffle", x, 2)
        self.check(x, "pixel_unshuffle", shuffled(x, 2), 2)
        self.check(shuffled(x, 2), "depth_to_space", x, 2, "CRD")
        self.check(x.reshape(2, 2, 2, 2, 3, 5).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 6, 10), "depth_to_space", x, 2)
        y = self.values(1, 2, 4, 6)
        self.check(y.reshape(1, 2, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3), "space_to_depth", y, 2)

    def test_signals(self):
        x = self.values(8, 12)
        with self.subTest("fft2"):
            z = x.astype("c8")
            np.testing.assert_allclose(np.asarray(ops.fft2(z)), np.fft.fft2(x), atol=1e-4)
            np.testing.assert_allclose(np.asarray(ops.ifft2(ops.fft2(z))), x, atol=1e-5)
        self.check(np.hanning(17)[:-1], "hann_window", 16)
        self.check(np.hamming(17)[:-1], "hamming_window", 16)
        signal, window = self.values(64), np.hanning(17)[:-1].astype("f4")
        frames = np.lib.stride_tricks.sliding_window_view(signal, 16)[::4] * window
        want = np.fft.rfft(frames)
        self.check(want, "stft", signal, window, 4, center=False, dtype="c64", tolerance=1e-4)
        self.check(np.stack([want.real, want.imag], -1), "stft", signal, window, 4, False, tolerance=1e-4)
        filters = np.asarray(ops.mel_filters(10, 64, 16000.0))
        self.assertEqual(filters.shape, (10, 33))
        self.assertTrue((filters >= 0).all() and (filters.sum(1) > 0).all())
        self.assertEqual(np.asarray(ops.log_mel_spectrogram(self.values(1600))).shape[0], 80)

    def test_batch_norm_training(self):
        x, weight, bias = self.values(4, 3, 5, 2), self.values(3), self.values(3)
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
        y = (x - mean[:, None, None]) / np.sqrt(variance + 1e-3)[:, None, None]
        self.check([y, mean, variance], "batch_norm_training", x, eps=1e-3, tolerance=1e-4)
        self.check([y * weight[:, None, None] + bias[:, None, None], mean, variance], "batch_norm_training", x, weight, bias,
                   eps=1e-3, tolerance=1e-4)

    def test_norms_and_losses(self):
        x = self.values(2, 3, 4, 5)
        mean, variance = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
        self.check((x - mean) / np.sqrt(variance + 1e-5), "instance_norm", x, tolerance=1e-4)
        self.check(x / np.linalg.norm(x, axis=-1, keepdims=True), "l2_normalize", x)
        padded = np.pad(x**2, [(0, 0), (1, 1), (0, 0), (0, 0)])
        sums = padded[:, :3] + padded[:, 1:4] + padded[:, 2:]
        self.check(x / (1 + 0.1 / 3 * sums)**0.75, "local_response_norm", x, 3, alpha=0.1)
        a, b, p = self.values(4, 3), self.values(4, 3), self.random.random((4, 3)).astype("f4")
        self.check(np.mean(np.log1p(np.exp(a)) - a * p), "binary_cross_entropy", a, p)
        gap = np.abs(a - b)
        self.check(np.mean(np.where(gap < 0.5, 0.5 * gap**2, 0.5 * (gap - 0.25))), "huber_loss", a, b, 0.5)
        self.check(np.sum(p * (np.log(p) - a)) / 4, "kl_divergence", a, p, tolerance=1e-4)
        self.check(gap.mean(), "l1_loss", a, b)

    def test_integers_and_codes(self):
        x = self.random.integers(-128, 128, (4, 32)).astype("i1")
        w = self.random.integers(-128, 128, (5, 32)).astype("i1")
        sums = x.astype("i4") @ w.astype("i4").T
        self.check(sums, "linear_integer", x, w)
        one, zero = np.float32(1), np.int8(0)
        want = np.clip(np.rint(sums * np.float32(0.001)), -128, 127)
        codes = [x, np.asarray(one * np.float32(0.02)), np.asarray(zero), w, np.asarray(np.float32(0.05)),
                 np.asarray(zero), np.asarray(one), np.asarray(zero)]
        self.check(want, "qlinear_linear", *codes, tolerance=1)
        codes[3] = w.T.copy()
        self.check(want, "qlinear_matmul", *codes, tolerance=1)
        images = x.reshape(1, 4, 4, 8)
        filters = self.random.integers(-20, 20, (3, 4, 1, 1)).astype("i1")
        made = np.einsum("nchw,oc->nohw", images.astype("i4"), filters[:, :, 0, 0].astype("i4")) * np.float32(0.001)
        codes[0], codes[3] = images, filters
        self.check(np.clip(np.rint(made), -128, 127), "qlinear_conv2d", *codes, tolerance=1)
        totals = self.random.integers(-9999, 9999, (2, 3)).astype("i4")
        self.check(np.clip(np.rint(totals * np.float32(0.01)), -128, 127), "requantize", totals,
                   np.asarray(np.float32(0.01)), np.asarray(zero), tolerance=1)

    def test_random_numbers(self):
        key = ops.random_key(SEED)
        self.assertEqual(np.asarray(key).shape, np.asarray(ops.random_key(1)).shape)
        a, b = ops.split_key(key)
        uniform = np.asarray(ops.random_uniform(a, (100, 50), 2.0, 3.0))
        np.testing.assert_array_equal(uniform, np.asarray(ops.random_uniform(a, (100, 50), 2.0, 3.0)))
        self.assertTrue(((uniform >= 2) & (uniform < 3)).all() and abs(uniform.mean() - 2.5) < 0.03)
        self.assertFalse((uniform == np.asarray(ops.random_uniform(b, (100, 50), 2.0, 3.0))).all())
        normal = np.asarray(ops.random_normal(ops.fold_in(key, 7), (5000,), 1.0, 2.0))
        self.assertTrue(abs(normal.mean() - 1) < 0.2 and abs(normal.std() - 2) < 0.2)
        whole = np.asarray(ops.random_integers(a, 4000, -3, 4))
        self.assertEqual(sorted(set(whole.tolist())), list(range(-3, 4)))
        self.assertTrue(abs(np.asarray(ops.random_bernoulli(a, (4000,), 0.25)).mean() - 0.25) < 0.05)
        self.assertTrue(abs(np.asarray(ops.random_exponential(a, (4000,), 2.0)).mean() - 0.5) < 0.1)
        self.assertTrue(abs(np.asarray(ops.random_gumbel(a, (4000,))).mean() - 0.577) < 0.15)
        np.testing.assert_array_equal(np.sort(np.asarray(ops.random_permutation(a, 33))), np.arange(33))
        chosen = np.asarray(ops.random_categorical(a, np.tile(np.float32([0, -100, 5]), (500, 1))))
        self.assertFalse((chosen == 1).any())
        drawn = np.asarray(ops.random_multinomial(a, np.float32([1, 2, 0, 4]), 3))
        self.assertEqual(sorted(drawn.tolist()), [0, 1, 3])
        kept = np.asarray(ops.dropout(a, np.ones(4000, "f4"), 0.25))
        self.assertTrue(set(np.round(np.unique(kept), 4)) <= {0, np.float32(1.3333)} and abs(kept.mean() - 1) < 0.1)
        # Recorded, a key is a value: the same numbers.
        with tenon.Graph() as graph:
            recorded = graph.program(ops.random_uniform(graph.input("key", tenon.array(key).type), (4,)))
        np.testing.assert_array_equal(np.asarray(tenon.Session(recorded).forward(a)[0]),
                                      np.asarray(ops.random_uniform(a, (4,))))

    def test_elements(self):
        a = self.values(4, 5)
        b, weight = a + self.values(4, 5) * 1e-5, self.values(4, 5)
        self.check(np.isclose(a, b), "isclose", a, b)
        self.check(a + weight * (b - a), "lerp", a, b, weight)
        self.check(a + 0.25 * (b - a), "lerp", a, b, 0.25)
        odd = np.float32([np.nan, np.inf, -np.inf, 1])
        self.check(np.nan_to_num(odd), "nan_to_num", odd)
        self.check(np.nan_to_num(odd, nan=2, posinf=9), "nan_to_num", odd, 2.0, posinf=9.0)
        p = np.float32([0, 0.5, 2])
        self.check(p * np.float32(math.log(3)), "xlogy", p, np.float32([3, 3, 3]))
        self.check(np.float32([0]), "xlogy", np.float32([0]), np.float32([0]))

    def test_indices(self):
        ids = self.random.integers(0, 6, 20).astype("i4")
        self.check(np.bincount(ids, minlength=6), "bincount", ids, 6)
        x = self.values(4, 5) * (self.random.random((4, 5)) < 0.5)
        x = x.astype("f4")
        self.check(np.count_nonzero(x, 1), "count_nonzero", x, 1)
        self.check(np.count_nonzero(x), "count_nonzero", x)
        places = np.int32([[0, 1], [3, 4], [2, 0]])
        self.check(x[places[:, 0], places[:, 1]], "gather_nd", x, places)
        source, index = self.values(2, 5), np.int32([3, 1])
        want = x.copy()
        np.add.at(want, index, source)
        self.check(want, "index_add", x, index, source)
        want = x.copy()
        want[index] = source
        self.check(want, "index_put", x, index, source)
        mask = x > 0
        self.check(np.where(mask, np.float32(-1), x), "masked_fill", x, mask, -1.0)
        found = np.argwhere(x)
        rows = np.full((30, 2), -1)
        rows[:len(found)] = found
        self.check((rows, len(found)), "nonzero", x, 30)
        self.check(np.abs(x).sum(1), "norm", x, 1.0, 1)
        self.check(np.linalg.norm(x), "norm", x)
        along = self.random.integers(0, 5, (4, 1)).astype("i4")
        want = x.copy()
        np.put_along_axis(want, along, 7, 1)
        self.check(want, "put_along", x, along, np.full((4, 1), 7, "f4"))
        want = x.copy()
        want[places[:, 0], places[:, 1]] = [1, 2, 3]
        self.check(want, "scatter_nd", x, places, np.float32([1, 2, 3]))
        order = np.argsort(x, -1, kind="stable")
        self.check((np.take_along_axis(x, order, -1), order), "sort_with_indices", x)
        largest = np.argsort(-x, -1, kind="stable")[..., :2]
        self.check((np.take_along_axis(x, largest, -1), largest), "topk", x, 2)
        self.check(np.take_along_axis(x, order, -1), "take_along", x, order.astype("i4"))
        added = x.copy()
        np.put_along_axis(added, order, added[..., :1] + np.take_along_axis(x, order, -1), -1)
        self.check(added, "scatter", x, order.astype("i4"), np.broadcast_to(x[..., :1], x.shape), mode="add")
        self.check(x.std(1, ddof=1), "standard_deviation", x, 1)
        some = np.float32(ids)
        values, inverse, counts = np.unique(some, return_inverse=True, return_counts=True)
        room = 8 - len(values)
        self.check((np.pad(values, (0, room)), len(values), inverse.reshape(-1), np.pad(counts, (0, room))), "unique",
                   some, 8)

    def test_masks_and_pages(self):
        slopes = np.asarray(ops.alibi_slopes(8))
        np.testing.assert_allclose(slopes, 2.0**-np.arange(1, 9), rtol=1e-6)
        mask = np.asarray(ops.alibi_mask(slopes, 3, 3))
        self.assertEqual(mask.shape[-2:], (3, 3))
        self.assertTrue(np.isclose(mask.reshape(8, 3, 3)[0, 2, 0], -2 * slopes[0]))
        of = np.asarray(ops.segments_of([2, 1]))
        np.testing.assert_array_equal(of, [0, 0, 1])
        seen = np.asarray(ops.segment_mask(of[None], of[None])).reshape(3, 3)
        np.testing.assert_array_equal(seen == seen[0, 0], of[:, None] == of[None])
        prefix = np.asarray(ops.prefix_mask(2, 4, 4)).reshape(4, 4)
        np.testing.assert_array_equal(prefix == prefix[0, 0], np.tril(np.ones((4, 4), bool)) | (np.arange(4) < 2))
        stream = np.asarray(ops.streaming_mask(2, 1, 5, 5)).reshape(5, 5)
        i, j = np.arange(5)[:, None], np.arange(5)
        np.testing.assert_array_equal(stream == stream[0, 0], (j <= i) & ((i - j < 2) | (j < 1)))
        cache, table = self.values(1, 3, 2, 4, 8), np.int32([[2, 0]])
        layer = np.asarray(np.int64(0))
        pages = np.asarray(ops.pages_of(cache, layer))
        np.testing.assert_array_equal(pages.reshape(3, 4, 2, 8), cache[0].transpose(0, 2, 1, 3))
        rows = np.asarray(ops.gather_pages(cache, layer, table))
        want = np.concatenate([cache[0, 2], cache[0, 0]], 1)
        np.testing.assert_array_equal(rows.reshape(8, 2, 8), want.transpose(1, 0, 2))

    def test_numbers_of_numpy_lists_and_arrays_of_other_libraries_are_operands(self):
        self.check(np.float32([1.5, 0.5]), "lerp", np.float32([1, 0]), np.float32([2, 1]), np.float32(0.5).item())
        np.testing.assert_array_equal(np.asarray(ops.roll([1, 2, 3], 1, 0)), [3, 1, 2])
        np.testing.assert_array_equal(np.asarray(ops.masked_fill(tenon.array([1.0, 2.0]), [True, False], 9.0)), [9, 2])

    def test_methods(self):
        x = self.values(3, 4)
        for kind in (tenon.array, tenon.HostBuffer):
            array = kind(x)
            np.testing.assert_array_equal(np.asarray(array.roll(1, 0)), np.roll(x, 1, 0))
            np.testing.assert_array_equal(np.asarray(array.tile(2, 1)), np.tile(x, (1, 2)))
            np.testing.assert_array_equal(np.asarray(array.masked_fill(x > 0, 5.0)), np.where(x > 0, np.float32(5), x))
            self.assertEqual([part.shape for part in array.split(3, 1)], [(3, 3), (3, 1)])
            self.assertAlmostEqual(float(array.norm()), float(np.linalg.norm(x)), places=5)
            np.testing.assert_array_equal(np.asarray(array.diagonal()), np.diagonal(x))
        program = tenon.export(lambda x: x.roll(1, 0).trace(), x="f32[3, 4]")
        self.assertAlmostEqual(float(tenon.Session(program).forward(x)[0]), float(np.trace(np.roll(x, 1, 0))), places=5)

    def test_threads_share_nothing(self):
        x = self.values(64, 64)
        want = np.einsum("ij,jk->ik", x, x)

        def work(failures):
            for _ in range(50):
                if not np.allclose(np.asarray(ops.einsum("ij,jk->ik", x, x)), want, atol=1e-3):
                    failures.append("einsum")
                if not (np.asarray(ops.roll(x, 3, 0)) == np.roll(x, 3, 0)).all():
                    failures.append("roll")

        failures = []
        threads = [threading.Thread(target=work, args=(failures,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_errors_name_the_builder(self):
        x = self.values(2, 3)
        for call, words in [(lambda: ops.einsum("ij,jk->ik", x, x), "einsum"),
                            (lambda: ops.roll(x, "far", 0), "roll: 'shift' cannot be 'far'"),
                            (lambda: ops.max_pool(self.values(1, 1, 4, 4), 2, stride=(1, 2, 3)), "stride"),
                            (lambda: ops.pixel_shuffle(x, 2), "pixel_shuffle")]:
            with self.assertRaises(tenon.Error) as caught:
                call()
            self.assertIn(words, str(caught.exception))

    def test_every_builder_is_here(self):
        self.assertEqual([name for name in _tenon.builder_names() if not hasattr(ops, name)], [])
        headers = pathlib.Path(__file__).parents[3] / "include/tenon/ops"
        if not headers.is_dir():
            self.skipTest("not in a checkout")
        builder = re.compile(r"^(?:Tensor|std::vector<Tensor>|\w+Result) (\w+)\((?:const|std|DType|double)", re.M)
        names = {name for header in headers.glob("*.hpp") for name in builder.findall(header.read_text())}
        self.assertGreater(len(names), 250)
        # Parts of others, what operators and methods of arrays are, and what takes tags, which Python has not.
        inner = {"complex_like", "make_complex", "scalar_like", "dot", "wkv7_states", "resize_taps", "floor_div",
                 "global_avg_pool2d", "global_max_pool2d"}
        self.assertEqual(sorted(name for name in names - inner if not hasattr(ops, name)), [])


if __name__ == "__main__":
    unittest.main()

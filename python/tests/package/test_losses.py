"""Losses of tenon.ops and their gradients against PyTorch's, which python/tests/record_losses.py recorded."""

import pathlib
import unittest

import numpy as np

import tenon
from tenon import ops

DATA = pathlib.Path(__file__).parents[3] / "tests/builders/data/torch_losses.safetensors"

def ctc(scores, *operands, **options):
    return ops.ctc_loss(ops.log_softmax(scores), *operands, **options)


# A case: the loss, and its arguments after the recorded operands.
CASES = {
    "mse_loss": (ops.mse_loss, {}),
    "l1_loss": (ops.l1_loss, {}),
    "huber_loss": (ops.huber_loss, {"delta": 0.7}),
    "smooth_l1_loss": (ops.smooth_l1_loss, {"beta": 0.6}),
    "smooth_l1_loss_0": (ops.smooth_l1_loss, {"beta": 0.0}),
    "binary_cross_entropy": (ops.binary_cross_entropy, {}),
    "binary_cross_entropy_weighted": (lambda x, t, w, p, **more: ops.binary_cross_entropy(x, t, w, pos_weight=p, **more),
                                      {}),
    "focal_loss": (ops.focal_loss, {}),
    "focal_loss_plain": (ops.focal_loss, {"alpha": -1.0, "gamma": 1.5}),
    "kl_divergence": (ops.kl_divergence, {}),
    "kl_divergence_log": (ops.kl_divergence, {"log_target": True}),
    "gaussian_nll_loss": (ops.gaussian_nll_loss, {"eps": 0.1}),
    "gaussian_nll_loss_full": (lambda v, t, x, **more: ops.gaussian_nll_loss(x, t, v, **more), {"full": True}),
    "poisson_nll_loss": (ops.poisson_nll_loss, {}),
    "poisson_nll_loss_full": (ops.poisson_nll_loss, {"log_input": False, "full": True}),
    "hinge_embedding_loss": (ops.hinge_embedding_loss, {"margin": 0.8}),
    "soft_margin_loss": (ops.soft_margin_loss, {}),
    "margin_ranking_loss": (ops.margin_ranking_loss, {"margin": 0.3}),
    "cosine_embedding_loss": (ops.cosine_embedding_loss, {"margin": 0.1}),
    "triplet_margin_loss": (ops.triplet_margin_loss, {}),
    "triplet_margin_loss_swap": (ops.triplet_margin_loss, {"margin": 0.5, "p": 3.0, "swap": True}),
    "multi_margin_loss": (ops.multi_margin_loss, {}),
    "multi_margin_loss_weighted": (lambda x, y, w, **more: ops.multi_margin_loss(x, y, weight=w, **more),
                                   {"p": 2, "margin": 0.8}),
    "cross_entropy": (ops.cross_entropy, {}),
    "cross_entropy_smooth": (lambda x, y, w, **more: ops.cross_entropy(x, y, weight=w, **more),
                             {"label_smoothing": 0.2}),
    "cross_entropy_images": (lambda x, y, w, **more: ops.cross_entropy(x, y, weight=w, **more),
                             {"label_smoothing": 0.1, "axis": 1}),
    "cross_entropy_soft": (lambda x, y, w, **more: ops.cross_entropy(x, y, weight=w, **more), {"label_smoothing": 0.1}),
    "cross_entropy_soft_images": (ops.cross_entropy, {"axis": 1}),
    "nll_loss": (ops.nll_loss, {}),
    "ctc_loss": (ctc, {"zero_infinity": True}),
    "ctc_loss_infinite": (ctc, {}),
    "ctc_loss_blank": (ctc, {"blank": 3}),
}


class Losses(unittest.TestCase):
    def test_values_and_gradients_are_pytorchs(self):
        data = {name: np.asarray(one) for name, one in tenon.open(DATA).items()}
        self.assertEqual({name.split("/")[0] for name in data}, set(CASES))
        for name, (loss, options) in CASES.items():
            for reduction in ("none", "sum", "mean"):
                key = f"{name}/{reduction}"
                operands = []
                while f"{key}.{len(operands)}" in data:
                    operands.append(data[f"{key}.{len(operands)}"])
                with self.subTest(key):
                    at_once = loss(*operands, reduction=reduction, **options)
                    self.assertEqual(at_once.numpy().shape, data[f"{key}.value"].shape)
                    np.testing.assert_allclose(at_once.numpy(), data[f"{key}.value"], rtol=2e-5, atol=2e-6)

                    def total(*given):
                        made = loss(*given, reduction=reduction, **options)
                        return made.sum(), made

                    (_, made), gradient = tenon.value_and_grad(total, has_aux=True)(*operands)
                    np.testing.assert_allclose(made.numpy(), data[f"{key}.value"], rtol=2e-5, atol=2e-6)
                    np.testing.assert_allclose(gradient.numpy(), data[f"{key}.gradient"], rtol=1e-4, atol=5e-6)

    def test_other_formulas(self):
        random = np.random.default_rng(3)
        x, t = random.normal(size=(4, 6)).astype("f4"), random.choice([-1.0, 1.0], (4, 6)).astype("f4")
        np.testing.assert_allclose(ops.hinge_loss(x, t).item(), np.maximum(0, 1 - x * t).mean(), rtol=1e-5)
        np.testing.assert_allclose(ops.log_cosh_loss(x, 20 * t, reduction="none").numpy(),
                                   np.log(np.cosh((x - 20 * t).astype("f8"))), rtol=1e-5)
        rows = np.exp(random.normal(size=(4, 6)))
        rows = (rows / rows.sum(-1, keepdims=True)).astype("f4")
        want = (rows * (np.log(rows) - x)).sum(-1).mean()
        np.testing.assert_allclose(ops.kl_divergence(x, rows).item(), want, rtol=1e-5)
        np.testing.assert_allclose(ops.kl_divergence(x, rows, reduction="batchmean").item(), want, rtol=1e-5)
        np.testing.assert_allclose(ops.kl_divergence(x[..., None], rows[..., None]).item(), want, rtol=1e-5)

    def test_labels_of_bytes_and_variances_of_rows(self):
        random = np.random.default_rng(6)
        x, labels = random.normal(size=(4, 6)).astype("f4"), np.array([0, 5, 2, 2])
        for name in ("cross_entropy", "nll_loss", "multi_margin_loss"):
            want = getattr(ops, name)(x, labels).item()
            for dtype in ("u1", "i1", "i2", "u2", "u4"):
                self.assertEqual(getattr(ops, name)(x, labels.astype(dtype)).item(), want, (name, dtype))
        target, variance = random.normal(size=(4, 6)).astype("f4"), random.uniform(1, 2, 4).astype("f4")
        whole = np.repeat(variance[:, None], 6, 1)
        self.assertAlmostEqual(ops.gaussian_nll_loss(x, target, variance).item(),
                               ops.gaussian_nll_loss(x, target, whole).item(), 5)

    def test_targets_of_integers_and_words(self):
        x = np.array([[0.5, -1.0], [2.0, 0.0]], "f4")
        whole = np.array([[1, 0], [0, 1]])
        self.assertEqual(ops.binary_cross_entropy(x, whole).item(),
                         ops.binary_cross_entropy(x, whole.astype("f4")).item())
        self.assertEqual(ops.binary_cross_entropy(x, whole == 1).item(),
                         ops.binary_cross_entropy(x, whole.astype("f4")).item())
        self.assertEqual(ops.mse_loss(x, 1, reduction="sum").item(), 0.25 + 4 + 1 + 1)
        for name in ("mse_loss", "binary_cross_entropy", "hinge_loss", "kl_divergence"):
            with self.assertRaisesRegex(ValueError, f"{name}: reduction='median' is none of 'mean', 'sum'"):
                getattr(ops, name)(x, x, reduction="median")
        with self.assertRaisesRegex(tenon.Error, "delta 0 is not above 0"):
            ops.huber_loss(x, x, delta=0.0)
        with self.assertRaisesRegex(tenon.Error, "not one number of their type for each class"):
            ops.cross_entropy(x, np.array([0, 1]), weight=np.ones(3, "f4"))
        with self.assertRaisesRegex(tenon.Error, r"needs \[T, N, C\]"):
            ops.ctc_loss(x, whole, [1, 1], [1, 1])

    def test_labels_out_of_range(self):
        x = np.ones((2, 3), "f4")
        for name in ("cross_entropy", "nll_loss", "multi_margin_loss"):
            loss = getattr(ops, name)
            for call in (lambda: loss(x, [0, 7]), lambda: tenon.Session(tenon.export(
                    loss, "f32[2, 3]", "i64[2]")).forward(x, np.array([0, 7]))):
                with self.assertRaisesRegex(tenon.Error, rf"index 7 outside \[0, 3\), computing '{name}_label"):
                    call()

    def test_ctc_of_many_steps(self):
        """A loss far below the logarithms of f32's smallest numbers, beside the paths counted one by one in f64."""
        random = np.random.default_rng(5)
        scores = random.normal(0, 3, (400, 1, 6))
        log_p = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        labels = random.integers(1, 6, (1, 60))
        states = [0]
        for label in labels[0]:
            states += [int(label), 0]
        now = np.full(len(states), -np.inf)
        now[:2] = log_p[0, 0, states[:2]]
        for t in range(1, 400):
            after = now.copy()
            after[1:] = np.logaddexp(after[1:], now[:-1])
            for s in range(2, len(states)):
                if states[s] and states[s] != states[s - 2]:
                    after[s] = np.logaddexp(after[s], now[s - 2])
            now = after + log_p[t, 0, states]
        want = -np.logaddexp(now[-1], now[-2])
        made = ops.ctc_loss(log_p.astype("f4"), labels, [400], [60], reduction="sum").item()
        self.assertAlmostEqual(made / want, 1, places=5)


class SpecialValues(unittest.TestCase):
    def test_ignored_rows_are_padding_of_any_value(self):
        for bad in -np.inf, np.nan:
            scores, labels = np.array([[bad, 0], [0, 0]], "f4"), np.array([-100, 1], "i4")
            for smoothing in 0.0, 0.1:
                for weight in None, np.array([0.5, 2], "f4"):
                    options = dict(weight=weight, label_smoothing=smoothing)
                    rows = ops.cross_entropy(scores, labels, reduction="none", **options).numpy()
                    self.assertEqual(rows[0], 0)
                    one = ops.cross_entropy(scores[1:], labels[1:], **options).item()
                    self.assertAlmostEqual(ops.cross_entropy(scores, labels, **options).item(), one, places=6)

    def test_infinities(self):
        inf, zero, one = (np.array([x], "f4") for x in (np.inf, 0, 1))
        self.assertEqual(ops.log_cosh_loss(-inf, zero).item(), np.inf)
        self.assertEqual(ops.gaussian_nll_loss(one, zero, inf).item(), np.inf)
        self.assertTrue(np.isnan(ops.kl_divergence(zero, np.full(1, np.nan, "f4"), reduction="sum").item()))
        self.assertEqual(ops.kl_divergence(-inf, zero, reduction="sum").item(), 0)


if __name__ == "__main__":
    unittest.main()

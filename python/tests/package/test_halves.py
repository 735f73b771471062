"""Functions of f16 arrays and their gradients, most of numbers whose squares or sums overflow, against PyTorch's."""

import os
import unittest

import numpy as np

import tenon
from tenon import ops

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

# name: (ours, PyTorch's, shapes, the deviation of normal numbers)
_ROWS = [(4, 33)]
_TWO = [(4, 33), (4, 33)]
_FUNCTIONS = {
    "sum": (lambda x: ops.sum(x, 1), lambda x: x.sum(1), _ROWS, 200),
    "mean": (lambda x: ops.mean(x, 1), lambda x: x.mean(1), _ROWS, 200),
    "std": (lambda x: ops.std(x, 1, ddof=1), lambda x: x.std(1), _ROWS, 200),
    "var": (lambda x: ops.var(x, 1, ddof=1), lambda x: x.var(1), _ROWS, 20),
    "logsumexp": (lambda x: ops.logsumexp(x, 1), lambda x: x.logsumexp(1), _ROWS, 200),
    "softmax": (lambda x: ops.softmax(x), lambda x: x.softmax(-1), _ROWS, 3),
    "log_softmax": (lambda x: ops.log_softmax(x), lambda x: x.log_softmax(-1), _ROWS, 3),
    "cumsum": (lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1), [(4, 300)], 200),
    "cumprod": (lambda x: ops.cumprod(x, 1), lambda x: x.cumprod(1), [(4, 8)], 2),
    "prod": (lambda x: ops.prod(x, 1), lambda x: x.prod(1), [(4, 8)], 2),
    "norm": (lambda x: ops.norm(x, 2.0, 1), lambda x: torch.linalg.vector_norm(x, dim=1), _ROWS, 200),
    "layer_norm": (lambda x: ops.layer_norm(x, eps=1e-5), lambda x: F.layer_norm(x, (33,)), _ROWS, 200),
    "rms_norm": (lambda x: ops.rms_norm(x, eps=1e-5), lambda x: F.rms_norm(x, (33,), eps=1e-5), _ROWS, 200),
    "instance_norm": (lambda x: ops.instance_norm(x), lambda x: F.instance_norm(x), [(2, 3, 5, 6)], 200),
    "avg_pool2d": (lambda x: ops.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2), [(2, 3, 6, 6)], 200),
    "silu": (lambda x: ops.silu(x), lambda x: F.silu(x), _ROWS, 200),
    "gelu": (lambda x: ops.gelu(x), lambda x: F.gelu(x), _ROWS, 200),
    "gelu_tanh": (lambda x: ops.gelu_tanh(x), lambda x: F.gelu(x, approximate="tanh"), _ROWS, 200),
    "mish": (lambda x: ops.mish(x), lambda x: F.mish(x), _ROWS, 200),
    "softplus": (lambda x: ops.softplus(x), lambda x: F.softplus(x), _ROWS, 200),
    "hardswish": (lambda x: ops.hardswish(x), lambda x: F.hardswish(x), _ROWS, 200),
    "mse_loss": (lambda x, y: ops.mse_loss(x, y), lambda x, y: F.mse_loss(x, y), _TWO, 100),
    "mse_loss of many": (lambda x, y: ops.mse_loss(x, y), lambda x, y: F.mse_loss(x, y), [(270, 270)] * 2, 3),
    "l1_loss": (lambda x, y: ops.l1_loss(x, y), lambda x, y: F.l1_loss(x, y), _TWO, 200),
    "huber_loss": (lambda x, y: ops.huber_loss(x, y), lambda x, y: F.huber_loss(x, y), _TWO, 200),
    "cosine_similarity": (lambda x, y: ops.cosine_similarity(x, y), lambda x, y: F.cosine_similarity(x, y), _TWO, 200),
    "hypot": (lambda x, y: ops.hypot(x, y), lambda x, y: torch.hypot(x, y), _TWO, 200),
}


def relative(got, want):
    """The largest difference as a share of the largest number; infinite where what is not finite differs."""
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return np.inf
    return np.abs(got[finite] - want[finite]).max(initial=0) / max(np.abs(want[finite]).max(initial=0), 1e-30)


@unittest.skipUnless(torch, "PyTorch is not installed")
class Halves(unittest.TestCase):
    def test_values_and_gradients(self):
        seed = int(os.environ.get("TENON_TEST_SEED", np.random.SeedSequence().entropy % 2**32))
        print("seed", seed)
        rng = np.random.default_rng(seed)

        def normal(shape, deviation):
            return (rng.standard_normal(shape) * deviation).astype(np.float16)

        for name, (ours, theirs, shapes, deviation) in _FUNCTIONS.items():
            with self.subTest(name):
                arrays = [normal(shape, deviation) for shape in shapes]
                leaves = [torch.tensor(one, requires_grad=True) for one in arrays]
                value = theirs(*leaves)
                self.assertLess(relative(ours(*arrays).numpy().astype("f4"), value.detach().float().numpy()), 4e-3)
                upstream = normal(tuple(value.shape), 0.1) if value.ndim else np.float16(50)
                (value.float() * torch.tensor(upstream).float()).sum().backward()

                def loss(*xs):
                    return (ours(*xs).cast("f32") * tenon.array(upstream).cast("f32")).sum()

                gradients = tenon.grad(loss, argnums=tuple(range(len(arrays))))(*arrays)
                for leaf, gradient in zip(leaves, gradients):
                    self.assertLess(relative(gradient.numpy().astype("f4"), leaf.grad.float().numpy()), 2e-2)


if __name__ == "__main__":
    unittest.main()

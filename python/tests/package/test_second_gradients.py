"""Gradients of gradients of ops that PyTorch does not differentiate twice, against the same computed of its simple ops."""

import unittest

import numpy as np

import tenon
from tenon import ops

try:
    import torch
except ImportError:
    torch = None


def places_of(g, size, padding, align):
    """Pixels along an axis, and zeros padding where they lie outside."""
    at = (g + 1) / 2 * (size - 1) if align else ((g + 1) * size - 1) / 2
    if padding == "reflection":
        low, span = (0, size - 1) if align else (-0.5, size)
        at = (at - low).abs()
        turns = torch.floor(at.detach() / span)
        at = torch.where(turns % 2 == 0, at - turns * span, (turns + 1) * span - at) + low
    return at if padding == "zeros" else at.clamp(0, size - 1)


def sampled(x, grid, padding, align):
    """torch.nn.functional.grid_sample, of gathers."""
    n, c, height, width = x.shape
    column, row = (places_of(grid[..., i], size, padding, align) for i, size in ((0, width), (1, height)))
    left, top = column.detach().floor(), row.detach().floor()
    a, b = column - left, row - top
    flat, y = x.reshape(n, c, -1), 0
    for below, by_row in ((0, 1 - b), (1, b)):
        for behind, by_column in ((0, 1 - a), (1, a)):
            r, k = top + below, left + behind
            inside = (r >= 0) & (r < height) & (k >= 0) & (k < width)
            place = (r.clamp(0, height - 1) * width + k.clamp(0, width - 1)).long().reshape(n, 1, -1).expand(n, c, -1)
            y = y + (by_row * by_column * inside).unsqueeze(1) * flat.gather(2, place).reshape(n, c, *grid.shape[1:3])
    return y


def scanned(x, dt, a, into, out, h):
    """selective_scan: [B, S, J, P] and the last state, of a loop."""
    heads = x.shape[2] // into.shape[2]
    into, out = (one.repeat_interleave(heads, 2) for one in (into, out))
    rows = []
    for s in range(x.shape[1]):
        decay = torch.exp(dt[:, s, :, None] * a)  # [B, J, N]
        h = decay.transpose(1, 2)[..., None] * h + (into[:, s].transpose(1, 2)[..., None]
                                                    * (dt[:, s, :, None] * x[:, s])[:, None])
        rows.append((out[:, s].transpose(1, 2)[..., None] * h).sum(1))
    return torch.stack(rows, 1), h


def mixed(r, w, k, v, a, b, h):
    """wkv7, of a loop."""
    rows = []
    for s in range(r.shape[1]):
        of = [one[:, s].transpose(1, 2)[..., None] for one in (r, w, k, a, b)]
        h = of[1] * h + of[4] * (of[3] * h).sum(1, keepdim=True) + of[2] * v[:, s][:, None]
        rows.append((of[0] * h).sum(1))
    return torch.stack(rows, 1), h


@unittest.skipUnless(torch, "PyTorch is not installed")
class SecondGradients(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(3)

    def compare(self, mine, theirs, values, name):
        """The gradients of sum(weights * first gradients) of sum(cos(results)), by all values."""
        weights = [self.rng.standard_normal(one.shape) for one in values]
        places = tuple(range(len(values)))

        def first(*given):
            def loss(*given):
                made = mine(*given)
                return sum(ops.cos(one).sum() for one in (made if isinstance(made, tuple) else (made,)))

            found = tenon.grad(loss, places)(*given)
            return sum((one * weight).sum() for one, weight in zip(found, weights))

        got = [one.numpy() for one in tenon.grad(first, places)(*values)]
        given = [torch.tensor(one, requires_grad=True) for one in values]
        made = theirs(*given)
        loss = sum(torch.cos(one).sum() for one in (made if isinstance(made, tuple) else (made,)))
        found = torch.autograd.grad(loss, given, create_graph=True)
        total = sum((one * torch.tensor(weight)).sum() for one, weight in zip(found, weights))
        for i, (one, want) in enumerate(zip(got, torch.autograd.grad(total, given), strict=True)):
            want = want.numpy()
            self.assertGreater(np.abs(want).max(), 1e-3, f"{name}, value {i}")
            np.testing.assert_allclose(one, want, rtol=1e-8, atol=1e-8 * np.abs(want).max(), err_msg=f"{name}, value {i}")

    def test_grid_sample(self):
        for align in (False, True):
            for padding in ("zeros", "border", "reflection"):
                for sizes in ((2, 3, 5, 4), (1, 2, 1, 6)):
                    x = self.rng.standard_normal(sizes)
                    grid = self.rng.uniform(-1.6, 1.6, (sizes[0], 3, 4, 2))
                    if padding == "reflection" and sizes[2] == 1:
                        continue  # PyTorch's own gradient there is a NaN's
                    with self.subTest(padding=padding, align=align, sizes=sizes):
                        simple = sampled(torch.tensor(x), torch.tensor(grid), padding, align)
                        own = torch.nn.functional.grid_sample(torch.tensor(x), torch.tensor(grid), "bilinear", padding, align)
                        np.testing.assert_allclose(simple.numpy(), own.numpy(), atol=1e-12)
                        self.compare(lambda x, g: ops.grid_sample(x, g, padding=padding, align_corners=align),
                                     lambda x, g: sampled(x, g, padding, align), [x, grid], padding)

    def test_recurrences(self):
        real = self.rng.standard_normal
        for steps, columns in ((4, 3), (1, 1), (7, 3)):
            values = [real((2, steps, 4, 2)), self.rng.random((2, steps, 4)), -self.rng.random((4, columns)),
                      real((2, steps, 2, 3)), real((2, steps, 2, 3)), real((2, 3, 4, 2))]
            self.compare(lambda *given: self.parts(ops.selective_scan(*given), 3), scanned, values, "selective_scan")
            values = [real((2, steps, 2, 3)) / 2 for _ in range(3)] + [real((2, steps, 2, 4))] + [
                real((2, steps, 2, 3)) / 2 for _ in range(2)] + [real((2, 3, 2, 4))]
            self.compare(lambda *given: self.parts(ops.wkv7(*given), 3), mixed, values, "wkv7")

    @staticmethod
    def parts(made, states):
        return made if isinstance(made, tuple) else (made[:, :-states], made[:, -states:])


if __name__ == "__main__":
    unittest.main()

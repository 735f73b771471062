#!/usr/bin/env python3
"""Writes what PyTorch's losses are, and their gradients, for tests/builders/losses_test.cpp and
python/tests/package/test_losses.py:

    python3 python/tests/record_losses.py tests/builders/data/torch_losses.safetensors

Each case NAME/REDUCTION has its operands, "NAME/REDUCTION.0" and so on, in f32 or i64; ".value"; and ".gradient" of the
sum of the value by the operand 0. PyTorch computes in f64. sigmoid_focal_loss is torchvision's formula. Needs torch,
numpy and safetensors.
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

REDUCTIONS = ("none", "sum", "mean")


def focal(x, t, reduction, alpha, gamma):
    ce = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    p_t = torch.sigmoid(x) * t + (1 - torch.sigmoid(x)) * (1 - t)
    loss = ce * (1 - p_t)**gamma
    if alpha >= 0:
        loss = (alpha * t + (1 - alpha) * (1 - t)) * loss
    return {"none": loss, "sum": loss.sum(), "mean": loss.mean()}[reduction]


def classes_first(x):
    return x.movedim(-1, 1)


def cases(rng):
    """(name, operands, function of the operands and the reduction)"""
    def real(*shape):
        return rng.normal(0, 1.5, shape).astype("f4")

    def share(*shape):
        return rng.uniform(0, 1, shape).astype("f4")

    def signs(*shape):
        return rng.choice([-1.0, 1.0], shape).astype("f4")

    def rows(*shape):
        t = rng.uniform(0.05, 1, shape)
        t[..., 0] = 0
        return (t / t.sum(-1, keepdims=True)).astype("f4")

    def logs(*shape):
        x = rng.normal(0, 1.5, shape)
        return (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype("f4")

    x, t = real(3, 5), real(3, 5)
    yield "mse_loss", [x, t], lambda x, t, r: F.mse_loss(x, t, reduction=r)
    yield "l1_loss", [x, t], lambda x, t, r: F.l1_loss(x, t, reduction=r)
    yield "huber_loss", [x, t], lambda x, t, r: F.huber_loss(x, t, reduction=r, delta=0.7)
    yield "smooth_l1_loss", [x, t], lambda x, t, r: F.smooth_l1_loss(x, t, reduction=r, beta=0.6)
    yield "smooth_l1_loss_0", [x, t], lambda x, t, r: F.smooth_l1_loss(x, t, reduction=r, beta=0.0)
    bce = F.binary_cross_entropy_with_logits
    yield "binary_cross_entropy", [x, share(3, 5)], lambda x, t, r: bce(x, t, reduction=r)
    yield ("binary_cross_entropy_weighted", [x, share(3, 5), share(5), 3 * share(5)],
           lambda x, t, w, p, r: bce(x, t, weight=w, pos_weight=p, reduction=r))
    yield "focal_loss", [x, share(3, 5)], lambda x, t, r: focal(x, t, r, 0.25, 2)
    yield "focal_loss_plain", [x, share(3, 5)], lambda x, t, r: focal(x, t, r, -1, 1.5)
    yield "kl_divergence", [logs(3, 5), rows(3, 5)], lambda x, t, r: F.kl_div(x, t, reduction=r)
    yield "kl_divergence_log", [logs(3, 5), logs(3, 5)], lambda x, t, r: F.kl_div(x, t, reduction=r, log_target=True)
    variance = share(3, 5) * 2
    variance[0, :2] = 0
    yield ("gaussian_nll_loss", [x, t, variance],
           lambda x, t, v, r: F.gaussian_nll_loss(x, t, v, reduction=r, eps=0.1))
    yield ("gaussian_nll_loss_full", [share(3, 5) + 0.1, t, x],
           lambda v, t, x, r: F.gaussian_nll_loss(x, t, v, full=True, reduction=r))
    count = rng.integers(0, 6, (3, 5)).astype("f4")
    yield "poisson_nll_loss", [x, count], lambda x, t, r: F.poisson_nll_loss(x, t, reduction=r)
    yield ("poisson_nll_loss_full", [share(3, 5) + 0.1, count],
           lambda x, t, r: F.poisson_nll_loss(x, t, log_input=False, full=True, reduction=r))
    yield ("hinge_embedding_loss", [x, signs(3, 5)],
           lambda x, t, r: F.hinge_embedding_loss(x, t, margin=0.8, reduction=r))
    yield "soft_margin_loss", [x, signs(3, 5)], lambda x, t, r: F.soft_margin_loss(x, t, reduction=r)
    yield ("margin_ranking_loss", [x, t, signs(3, 5)],
           lambda a, b, y, r: F.margin_ranking_loss(a, b, y, margin=0.3, reduction=r))
    yield ("cosine_embedding_loss", [real(6, 4), real(6, 4), signs(6)],
           lambda a, b, y, r: F.cosine_embedding_loss(a, b, y, margin=0.1, reduction=r))
    triple = [real(6, 4), real(6, 4), real(6, 4)]
    yield "triplet_margin_loss", triple, lambda a, p, n, r: F.triplet_margin_loss(a, p, n, reduction=r)
    yield ("triplet_margin_loss_swap", triple,
           lambda a, p, n, r: F.triplet_margin_loss(a, p, n, margin=0.5, p=3.0, swap=True, reduction=r))

    labels = np.array([0, 3, 4, -100, 2, 1])
    scores, weight = real(6, 5), share(5) + 0.2
    yield ("multi_margin_loss", [scores, np.abs(labels) % 5],
           lambda x, y, r: F.multi_margin_loss(x, y, reduction=r))
    yield ("multi_margin_loss_weighted", [scores, np.abs(labels) % 5, weight],
           lambda x, y, w, r: F.multi_margin_loss(x, y, p=2, margin=0.8, weight=w, reduction=r))
    yield "cross_entropy", [scores, labels], lambda x, y, r: F.cross_entropy(x, y, reduction=r)
    yield ("cross_entropy_smooth", [scores, labels, weight],
           lambda x, y, w, r: F.cross_entropy(x, y, weight=w, label_smoothing=0.2, reduction=r))
    yield ("cross_entropy_images", [real(2, 5, 3, 2), rng.integers(0, 5, (2, 3, 2)), weight],
           lambda x, y, w, r: F.cross_entropy(x, y, weight=w, label_smoothing=0.1, reduction=r))
    yield ("cross_entropy_soft", [scores, rows(6, 5), weight],
           lambda x, y, w, r: F.cross_entropy(x, y, weight=w, label_smoothing=0.1, reduction=r))
    yield ("cross_entropy_soft_images", [real(2, 5, 3), classes_first(torch.tensor(rows(2, 3, 5))).numpy()],
           lambda x, y, r: F.cross_entropy(x, y, reduction=r))
    yield "nll_loss", [logs(6, 5), labels, weight], lambda x, y, w, r: F.nll_loss(x, y, weight=w, reduction=r)

    # Of log_softmax, since PyTorch's gradient by log_p is the one by the scores. The third sequence is too short for its
    # labels (two of them are equal, so that 4 need 5 steps); the fourth is empty; the last one just fits.
    targets = np.array([[1, 2, 2, 3], [4, 4, 0, 0], [1, 1, 2, 3], [0, 0, 0, 0], [2, 3, 3, 1]])
    steps, counts = np.array([8, 6, 4, 3, 5]), np.array([4, 2, 4, 0, 4])
    for name, zero in (("ctc_loss", True), ("ctc_loss_infinite", False)):
        yield (name, [real(8, 5, 5), targets, steps, counts],
               lambda x, y, n, m, r, zero=zero: F.ctc_loss(x.log_softmax(-1), y, n, m, reduction=r, zero_infinity=zero))
    yield ("ctc_loss_blank", [real(7, 2, 4), np.array([[0, 1, 0], [1, 2, 9]]), np.array([7, 5]), np.array([3, 2])],
           lambda x, y, n, m, r: F.ctc_loss(x.log_softmax(-1), y, n, m, blank=3, reduction=r))


def main(path):
    arrays = {}
    for name, operands, function in cases(np.random.default_rng(11)):
        for reduction in REDUCTIONS:
            given = [torch.tensor(one, dtype=torch.float64 if one.dtype == np.float32 else torch.int64)
                     for one in operands]
            given[0].requires_grad_(True)
            value = function(*given, reduction)
            value.sum().backward()
            gradient = given[0].grad
            if name == "ctc_loss_infinite":  # PyTorch has NaN for sequences whose loss is infinite
                gradient = torch.where(gradient.isnan(), 0.0, gradient)
            key = f"{name}/{reduction}"
            arrays |= {f"{key}.{i}": one for i, one in enumerate(operands)}
            arrays |= {f"{key}.value": value.detach().numpy(), f"{key}.gradient": gradient.numpy()}
    save_file({name: np.array(one, order="C") for name, one in arrays.items()}, path)


if __name__ == "__main__":
    main(sys.argv[1])

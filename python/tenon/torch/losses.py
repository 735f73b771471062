"""Losses of classes and of pairs."""

import numpy as np

from ..importing.shaping import broadcast_shape, shaped
from .node import op
from .products import pairwise_distance
from .shapes import permuted


@op("cross_entropy_loss.default")
def cross_entropy(n, self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    logits = n.b.log_softmax(self, axis=0 if self.rank == 1 else 1)
    if target.shape == self.shape and target.dtype == self.dtype:
        return _of_probabilities(n, shaped(logits, self.shape), target, weight, reduction, label_smoothing)
    loss, weights = _picked(n, shaped(logits, self.shape), target, weight, ignore_index)
    made = _reduced(n, loss, weights, reduction)
    if not label_smoothing:
        return made
    axis = 0 if self.rank == 1 else 1
    if weight is not None:
        form = (*weight.shape, *(1 for _ in range(axis + 1, self.rank)))
        logits = shaped(logits * n.b.reshape_to(weight, form), self.shape)
    used = n.b.ne(target, n.value(ignore_index, target.dtype))
    even = shaped(n.b.mean(logits, axis=[axis]), target.shape) * n.value(-1.0, self.dtype)
    even = shaped(n.b.where(used, even, n.value(0.0, self.dtype)), target.shape)
    smooth = _reduced(n, even, weights, reduction)
    return made * n.value(1 - label_smoothing, self.dtype) + smooth * n.value(label_smoothing, self.dtype)


@op("nll_loss.default", "nll_loss_nd.default", "nll_loss_forward.default", "nll_loss2d.default",
    "nll_loss2d_forward.default")
def nll_loss(n, self, target, weight=None, reduction=1, ignore_index=-100):
    loss, weights = _picked(n, self, target, weight, ignore_index)
    made = _reduced(n, loss, weights, reduction)
    return (made, _sum(n, weights)) if "forward" in n.op else made


def _picked(n, x, target, weight, ignore_index):
    """(the negated entry of each target's class, weighted; the weights, 0 where a target is ignored)"""
    if x.rank != target.rank + 1:
        raise n.malformed(f"{x!r} for classes {target!r}")
    rows = permuted(n, x, [0, *range(2, x.rank), 1]) if x.rank > 2 else x
    used = n.b.ne(target, n.value(ignore_index, target.dtype))
    classes = n.b.where(used, target, n.value(0, target.dtype))
    picked = n.b.take_along(rows, n.cast(n.b.unsqueeze(classes, target.rank), "i64"), axis=target.rank)
    picked = n.b.reshape_to(shaped(picked, (*target.shape, 1)), target.shape)
    weights = n.cast(used, x.dtype)
    if weight is not None:
        weights = weights * shaped(n.b.gather(weight, n.cast(classes, "i64"), axis=0), target.shape)
    return shaped(n.b.where(used, n.b.neg(picked) * weights, n.value(0, x.dtype)), target.shape), weights


def _reduced(n, loss, weights, reduction):
    if reduction == 0:
        return loss
    total = _sum(n, loss)
    return total / _sum(n, weights) if reduction == 1 else total


def _sum(n, x):
    return shaped(n.b.sum(x, axis=list(range(x.rank)), keep_dims=False), ()) if x.rank else x


def _of_probabilities(n, logs, target, weight, reduction, smoothing):
    axis = 0 if logs.rank == 1 else 1
    if smoothing:
        target = target * (1 - smoothing) + smoothing / n.known_size(logs, axis)
    terms = logs * target
    if weight is not None:
        terms = terms * n.b.reshape_to(weight, tuple(logs.shape[axis] if i == axis else 1 for i in range(logs.rank)))
    sizes = tuple(one for i, one in enumerate(logs.shape) if i != axis)
    rows = n.b.neg(shaped(n.b.sum(terms, axis=[axis], keep_dims=False), sizes))
    return rows if reduction == 0 else _sum(n, rows) if reduction == 2 else _mean(n, rows)


def _mean(n, x):
    return shaped(n.b.mean(x, axis=list(range(x.rank)), keep_dims=False), ()) if x.rank else x


def _whole(n, x, shape, reduction):
    """Each loss, their mean (1) or their sum (2)."""
    x = shaped(x, shape)
    return x if reduction == 0 else _mean(n, x) if reduction == 1 else _sum(n, x)


@op("binary_cross_entropy.default")
def binary_cross_entropy(n, self, target, weight=None, reduction=1):
    """As PyTorch: the logarithm of 0 is -100; the slope of probabilities that are nearly 0 or 1 is limited."""
    def losses(p):
        return (target - 1.0) * log(n.b.log1p(n.b.neg(p))) - target * log(n.b.log(p))

    def log(x):
        return n.b.maximum(x, n.b.number(-100, self.dtype))
    least, apart = n.value(1e-12, self.dtype), (n.value(1.0, self.dtype) - self) * self
    inside, held = n.b.gt(apart, least), n.b.stop_gradient(self)
    slope = n.b.stop_gradient((self - target) / n.b.maximum(apart, least))
    made = n.b.where(inside, losses(n.b.where(inside, self, n.value(0.5, self.dtype))),
                     losses(held) + slope * (self - held))
    return _whole(n, made if weight is None else made * weight, self.shape, reduction)


@op("binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(n, self, target, weight=None, pos_weight=None, reduction=1):
    no = n.b.softplus(self)  # -log(1 - p); -log(p) is that of -x
    yes = n.b.softplus(n.b.neg(self))
    made = (1.0 - target) * no + target * (yes if pos_weight is None else yes * pos_weight)
    return _whole(n, made if weight is None else made * weight, self.shape, reduction)


@op("kl_div.default")
def kl_div(n, self, target, reduction=1, log_target=False):
    if log_target:
        made = n.b.exp(target) * (target - self)
    else:
        zero = n.b.number(0, target.dtype)
        own = n.b.where(n.b.eq(target, zero), zero, target * n.b.log(target))
        made = own - target * self
    return _whole(n, made, broadcast_shape(self, target), reduction)


@op("soft_margin_loss.default")
def soft_margin(n, self, target, reduction=1):
    return _whole(n, n.b.log1p(n.b.exp(n.b.neg(target * self))), broadcast_shape(self, target), reduction)


@op("hinge_embedding_loss.default")
def hinge(n, self, target, margin=1.0, reduction=1):
    target = n.value(target, self.dtype)
    zero, shape = n.b.number(0, self.dtype), broadcast_shape(self, target)
    far = n.b.where(n.b.ne(target, n.value(1, target.dtype)), n.b.relu(float(margin) - self), zero)
    near = n.b.where(n.b.ne(target, n.value(-1, target.dtype)), self, zero)
    return _whole(n, far + near, shape, reduction)


@op("margin_ranking_loss.default")
def margin_ranking(n, input1, input2, target, margin=0.0, reduction=1):
    made = n.b.neg(n.value(target, input1.dtype)) * (input1 - input2) + float(margin)
    return _whole(n, n.b.relu(made), made.shape, reduction)


@op("multi_margin_loss.default")
def multi_margin(n, self, target, p=1, margin=1, weight=None, reduction=1):
    rows, classes = (self, target) if self.rank == 2 else (
        n.b.reshape_to(self, (1, *self.shape)), n.b.reshape_to(target, (1,)))
    size = n.known_size(rows, 1)
    at = n.b.unsqueeze(n.cast(classes, "i64"), 1)
    own = n.b.take_along(rows, at, axis=1)
    over = n.b.relu(rows - own + float(margin))
    is_own = n.b.eq(n.b.known(np.arange(size).reshape(1, size)), at)
    over = n.b.where(is_own, n.b.number(0, rows.dtype), over if n.integer(p, "p") == 1 else n.b.square(over))
    made = n.b.sum(over, axis=[1], keep_dims=False) / float(size)
    if weight is not None:
        made = made * n.b.gather(weight, n.cast(classes, "i64"), axis=0)
    return _whole(n, n.b.reshape_to(made, target.shape), target.shape, reduction)


@op("triplet_margin_loss.default")
def triplet_margin(n, anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction=1):
    near, far = (pairwise_distance(n, anchor, one, p, eps) for one in (positive, negative))
    if swap:
        far = n.b.minimum(far, pairwise_distance(n, positive, negative, p, eps))
    made = n.b.relu(near - far + float(margin))
    return _whole(n, made, broadcast_shape(anchor, positive, negative)[:-1], reduction)


@op("cosine_embedding_loss.default")
def cosine_embedding(n, input1, input2, target, margin=0.0, reduction=1):
    axis, eps = input1.rank - 1, n.b.number(1e-12, input1.dtype)

    def sums(a, b):
        return n.b.sum(a * b, axis=[axis], keep_dims=False)
    cosine = sums(input1, input2) / n.b.sqrt((sums(input1, input1) + eps) * (sums(input2, input2) + eps))
    zero, target = n.b.number(0, input1.dtype), n.value(target, input1.dtype)
    near = n.b.where(n.b.eq(target, n.value(1, target.dtype)), 1.0 - cosine, zero)
    apart = n.b.where(n.b.eq(target, n.value(-1, target.dtype)), n.b.relu(cosine - float(margin)), zero)
    return _whole(n, near + apart, broadcast_shape(input1, input2)[:-1], reduction)


@op("poisson_nll_loss.default")
def poisson(n, input, target, log_input, full, eps, reduction):
    if full:
        raise n.error("is not supported", "full")
    made = n.b.exp(input) - target * input if log_input else input - target * n.b.log(input + float(eps))
    return _whole(n, made, broadcast_shape(input, target), reduction)

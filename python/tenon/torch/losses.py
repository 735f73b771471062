"""Losses of classes."""

from ..importing.shaping import shaped
from .node import op
from .shapes import permuted


@op("cross_entropy_loss.default")
def cross_entropy(n, self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    logits = n.b.log_softmax(self, axis=0 if self.rank == 1 else 1)
    if target.shape == self.shape and target.dtype == self.dtype:
        raise n.error("probabilities of classes", "target")
    loss, weights = _picked(n, shaped(logits, self.shape), target, weight, ignore_index)
    made = _reduced(n, loss, weights, reduction)
    if not label_smoothing:
        return made
    if weight is not None:
        raise n.error("with weights of classes", "label_smoothing")
    axis = 0 if self.rank == 1 else 1
    even = shaped(n.b.mean(logits, axis=[axis]), target.shape) * n.value(-1.0, self.dtype) * weights
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

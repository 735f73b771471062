"""Losses, with PyTorch's formulas and words: tenon/ops/loss.hpp has them one by one.

reduction: "mean", "sum", or "none", which gives a number for each element or row. Targets of integers and booleans
become the prediction's type.
"""

from .composed import _composed
from .operands import _as_real, _like, common

_NO_LABEL = -2**31  # that no row has


def _checked(name, reduction, more=()):
    known = ("mean", "sum", "none", *more)
    if reduction not in known:
        words = ", ".join(map(repr, known[:-1])) + f" and {known[-1]!r}"
        raise ValueError(f"{name}: reduction={reduction!r} is none of {words}")
    return reduction


def _pair(x, target):
    return common(_as_real(_like(x)), target)


def _beside(x, other):
    """Another operand in the type of x, where it has integers."""
    return None if other is None else common(_like(x), other)[1]


def _labels(labels):
    """Labels in a type that losses take."""
    labels = _like(labels)
    return labels.cast("i64") if labels.dtype.name in ("i8", "i16", "u8", "u16", "u32") else labels


@_composed
def binary_cross_entropy(logits, target, weight=None, positive_weight=None, reduction="mean"):
    """-(t log s + (1 - t) log(1 - s)), s = sigmoid(logits): torch's binary_cross_entropy_with_logits. `weight` is a factor
    of each element, `positive_weight` (torch's pos_weight) one of t."""
    logits, target = _pair(logits, target)
    return (logits, target, _beside(logits, weight), _beside(logits, positive_weight),
            _checked("binary_cross_entropy", reduction))


@_composed
def cosine_embedding_loss(a, b, target, margin=0.0, reduction="mean"):
    """Of each row: 1 - cos(a, b) where the target is 1, else max(0, cos(a, b) - margin)."""
    a, b = _pair(a, b)
    return a, b, _beside(a, target), margin, _checked("cosine_embedding_loss", reduction)


@_composed
def cross_entropy(logits, labels, label_smoothing=0.0, ignore_index=-100, reduction="mean", weight=None, axis=-1):
    """-log softmax(logits)[label], of logits [.., classes] and labels [..], integers in [0, classes), or probabilities in
    the sizes of logits. Rows with the label `ignore_index` do not count (None: there is no such label);
    `label_smoothing` is the share that goes to all classes; `weight` has a factor for each class; `axis` is that of the
    classes, 1 in PyTorch. reduction: "mean" over the rows that count, by their weights; "sum"; or "none", a number for
    each row, 0 where it does not count."""
    reduction = _checked("cross_entropy", reduction)
    return (_as_real(_like(logits)), _labels(labels), float(label_smoothing),
            _NO_LABEL if ignore_index is None else ignore_index, reduction, _beside(logits, weight), axis)


@_composed
def ctc_loss(log_p, labels, steps, counts, blank=0, reduction="mean", zero_infinity=False):
    """torch.nn.functional.ctc_loss of log probabilities [T, N, C] and labels [N, S]; `steps` and `counts` [N] say how many
    steps and labels each sequence has (torch's input_lengths and target_lengths), within [0, T] and [0, S]; others are
    refused. The mean is of losses by the numbers of labels. Losses of sequences too short for their labels are infinite,
    or 0 with `zero_infinity`."""
    whole = [_like(one) for one in (labels, steps, counts)]
    return _like(log_p), *whole, blank, _checked("ctc_loss", reduction), zero_infinity


@_composed
def focal_loss(logits, target, alpha=0.25, gamma=2.0, reduction="mean"):
    """binary_cross_entropy times alpha_t (1 - p_t)^gamma, torchvision's sigmoid_focal_loss, whose reduction is "none"
    where it is not said; alpha below 0: no weights."""
    logits, target = _pair(logits, target)
    return logits, target, alpha, gamma, _checked("focal_loss", reduction)


@_composed
def gaussian_nll_loss(x, target, variance, full=False, eps=1e-6, reduction="mean"):
    """((x - target)^2 / v + log v) / 2, v = max(variance, eps); with `full`, + log(2 pi) / 2. A variance of the sizes of x
    but the last is one of each row."""
    x, target = _pair(x, target)
    variance = _beside(x, variance)
    if tuple(variance.shape) == tuple(x.shape[:-1]) and len(x.shape) > 1:
        variance = variance[..., None]
    return x, target, variance, full, eps, _checked("gaussian_nll_loss", reduction)


@_composed
def hinge_embedding_loss(x, target, margin=1.0, reduction="mean"):
    """x where the target is 1, max(0, margin - x) where it is -1."""
    x, target = _pair(x, target)
    return x, target, margin, _checked("hinge_embedding_loss", reduction)


@_composed
def hinge_loss(x, target, margin=1.0, reduction="mean"):
    """max(0, margin - x target), of targets 1 and -1."""
    x, target = _pair(x, target)
    return x, target, margin, _checked("hinge_loss", reduction)


@_composed
def huber_loss(x, target, delta=1.0, reduction="mean"):
    """d^2 / 2 where d = |x - target| is below delta, else delta (d - delta / 2)."""
    x, target = _pair(x, target)
    return x, target, delta, _checked("huber_loss", reduction)


@_composed
def kl_divergence(log_p, target, reduction="batchmean", log_target=False):
    """target (log(target) - log_p), of log probabilities and probabilities, or with `log_target` logarithms of them:
    torch's kl_div. reduction: "batchmean", the sum divided by the size of the first axis; "mean", over elements; "sum"; or
    "none"."""
    log_p, target = _pair(log_p, target)
    _checked("kl_divergence", reduction, ("batchmean",))
    return log_p, target, None if reduction == "batchmean" else reduction, log_target


@_composed
def l1_loss(x, target, reduction="mean"):
    """|x - target|."""
    x, target = _pair(x, target)
    return x, target, _checked("l1_loss", reduction)


@_composed
def log_cosh_loss(x, target, reduction="mean"):
    """log(cosh(x - target)), without overflow."""
    x, target = _pair(x, target)
    return x, target, _checked("log_cosh_loss", reduction)


@_composed
def margin_ranking_loss(a, b, target, margin=0.0, reduction="mean"):
    """max(0, margin - target (a - b)): the target is 1 where a should be the larger one, -1 where b should."""
    a, b = _pair(a, b)
    return a, b, _beside(a, target), margin, _checked("margin_ranking_loss", reduction)


@_composed
def mse_loss(x, target, reduction="mean"):
    """(x - target)^2."""
    x, target = _pair(x, target)
    return x, target, _checked("mse_loss", reduction)


@_composed
def multi_margin_loss(x, labels, p=1, margin=1.0, weight=None, reduction="mean"):
    """Of each row of x [.., classes]: the sum over the other classes c of max(0, margin - x[label] + x[c])^p, times
    weight[label], divided by the number of classes."""
    return _like(x), _labels(labels), p, margin, _beside(x, weight), _checked("multi_margin_loss", reduction)


@_composed
def nll_loss(log_p, labels, weight=None, ignore_index=-100, reduction="mean", axis=-1):
    """cross_entropy of log probabilities: -weight[label] log_p[label]. The classes are on the last axis, PyTorch's 1."""
    return (_like(log_p), _labels(labels), _beside(log_p, weight), _NO_LABEL if ignore_index is None else ignore_index,
            _checked("nll_loss", reduction), axis)


@_composed
def poisson_nll_loss(x, target, log_input=True, full=False, eps=1e-8, reduction="mean"):
    """e^x - target x, or without log_input x - target log(x + eps); with `full`, plus Stirling's approximation of
    log(target!)."""
    x, target = _pair(x, target)
    return x, target, log_input, full, eps, _checked("poisson_nll_loss", reduction)


@_composed
def smooth_l1_loss(x, target, beta=1.0, reduction="mean"):
    """d^2 / (2 beta) where d = |x - target| is below beta, else d - beta / 2."""
    x, target = _pair(x, target)
    return x, target, beta, _checked("smooth_l1_loss", reduction)


@_composed
def soft_margin_loss(x, target, reduction="mean"):
    """log(1 + e^(-x target)), of targets 1 and -1."""
    x, target = _pair(x, target)
    return x, target, _checked("soft_margin_loss", reduction)


@_composed
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean"):
    """max(0, |anchor - positive| - |anchor - negative| + margin) of each row, of p-norms; with `swap` the second is the
    distance of positive and negative where that is the smaller one."""
    anchor, positive = _pair(anchor, positive)
    return anchor, positive, _beside(anchor, negative), margin, p, eps, swap, _checked("triplet_margin_loss", reduction)

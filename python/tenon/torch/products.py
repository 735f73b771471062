"""Matrix products, attention, convolutions."""

import math

import numpy as np

from ..importing import contraction
from ..importing import sizes as sz
from ..importing.products import multiplied, transposed
from ..importing.shaping import broadcast_shape, repeated, shaped
from ..importing.types import FLOATS
from ..importing.values import Value
from ..importing.windows import Window, conv_transposed, convolved
from .node import in_f32, op
from .pointwise import power_of_size, root
from .shapes import permuted


@op("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default", "linalg_matmul.default")
def matmul(n, self=None, mat2=None, other=None, vec=None, tensor=None, input=None):
    operands = [one for one in (self, input, mat2, other, vec, tensor) if one is not None]
    return multiplied(n, *(n.cast(one, n.dtype) for one in operands))


@op("addmm.default", "baddbmm.default", "addmv.default")
def addmm(n, self, mat1=None, mat2=None, batch1=None, batch2=None, mat=None, vec=None, beta=1, alpha=1):
    a, b = [one for one in (mat1, mat2, batch1, batch2, mat, vec) if one is not None]
    if alpha == 1 and beta == 1 and b.is_known and b.rank == 2 and not a.is_known and self.rank == 1 and \
            self.shape == (b.shape[1],) and a.dtype in FLOATS:
        return shaped(n.b.linear(a, transposed(n, b), bias=self), (a.shape[0], b.shape[1]))
    return (_scaled_sum if alpha in (0, 1) and beta in (0, 1) else in_f32(_scaled_sum))(n, self, a, b, beta, alpha)


def _scaled_sum(n, self, a, b, beta, alpha):
    made = multiplied(n, a, b)
    made = made if alpha == 1 else made * n.value(alpha, made.dtype)
    if beta == 0:
        return made
    added = self if beta == 1 else self * n.value(beta, self.dtype)
    return shaped(made + added, broadcast_shape(made, added))


@op("linear.default")
def linear(n, input, weight, bias=None):
    shape = (*input.shape[:-1], *weight.shape[:-1])
    if weight.rank == 1:
        made = multiplied(n, input, weight)
        return made if bias is None else made + bias
    options = {} if bias is None else {"bias": bias}
    return shaped(n.b.linear(input, weight, **options), shape)


@op("bilinear.default")
def bilinear(n, input1, input2, weight, bias=None):
    made = contraction.einsum(n, "...i,oij,...j->...o", [input1, weight, input2])
    return made if bias is None else made + bias


@op("_trilinear.default")
def trilinear(n, i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim=1):
    product = None
    for one, expand in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for axis in expand:
            one = n.b.unsqueeze(one, axis)
        product = one if product is None else product * one
    return n.b.sum(product, axis=list(sumdim), keep_dims=False) if sumdim else product


@op("tensordot.default")
def tensordot(n, self, other, dims_self, dims_other):
    left, right = n.axes(dims_self, self.rank), n.axes(dims_other, other.rank)
    letters = "abcdefghijklmnopqrstuvwxyz"
    a, b = letters[:self.rank], list(letters[self.rank:self.rank + other.rank])
    for one, place in zip(left, right):
        b[place] = a[one]
    rest = [c for i, c in enumerate(a) if i not in left] + [c for i, c in enumerate(b) if i not in right]
    return contraction.einsum(n, f"{a},{''.join(b)}->{''.join(rest)}", [self, other])


@op("einsum.default")
def einsum(n, equation, tensors, path=None):
    return contraction.einsum(n, equation, [n.cast(one, n.dtype) for one in tensors])


@op("outer.default", "ger.default")
def outer(n, self, vec2):
    return n.b.unsqueeze(n.cast(self, n.dtype), 1) * n.cast(vec2, n.dtype)


# Attention


@op("scaled_dot_product_attention.default", "_scaled_dot_product_flash_attention_for_cpu.default",
    "_scaled_dot_product_attention_math.default")
def attention(n, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
              **_):
    if dropout_p:
        raise n.error("draws random numbers", "dropout_p")
    made = _fused(n, query, key, value, attn_mask, is_causal, scale) or \
        _by_parts(n, query, key, value, attn_mask, is_causal, scale, enable_gqa)
    return made if n.op.startswith("aten.scaled") else (made, *(None for _ in n.metas[1:]))


def _fused(n, q, k, v, mask, causal, scale):
    """The op `attention`, for [B, H, S, D]; None where it does not take the operands."""
    if q.rank != 4 or k.rank != 4 or v.rank != 4 or k.dtype != v.dtype or q.dtype not in FLOATS or q.is_known:
        return None
    if k.shape[1] != v.shape[1] or mask is not None and (mask.rank > 4 or mask.dtype not in ("bool", "f32")):
        return None
    if any(a != b for a, b in ((q.shape[0], k.shape[0]), (k.shape[0], v.shape[0]))) or scale == 0:
        return None
    if not isinstance(q.shape[3], int) or not isinstance(v.shape[3], int) or 0 in (q.shape[3], v.shape[3]):
        return None
    if causal and q.shape[2] != k.shape[2] or not all(isinstance(one.shape[1], int) for one in (q, k)):
        return None
    if not q.shape[1] or not k.shape[1] or q.shape[1] % k.shape[1] or isinstance(scale, (Value, sz.Size)):
        return None
    options = {} if mask is None else {"mask": _added(n, mask, "f32")}
    heads = [permuted(n, one, [0, 2, 1, 3]) for one in (q, k, v)]
    made = n.b.attention(*heads, causal=bool(causal), scale=float(scale or 0.0), **options)
    made = shaped(made, (q.shape[0], q.shape[2], q.shape[1], v.shape[3]))
    return permuted(n, made, [0, 2, 1, 3])


def _added(n, mask, dtype):
    """A mask as what is added to the scores."""
    if mask.dtype != "bool":
        return n.cast(mask, dtype)
    return shaped(n.b.where(mask, n.b.number(0, dtype), n.b.number(-math.inf, dtype)), mask.shape)


def _by_parts(n, q, k, v, mask, causal, scale, grouped):
    if grouped:
        times = n.known_size(q, q.rank - 3) // n.known_size(k, k.rank - 3)
        k, v = (repeated(n, one, one.rank - 3, times, inner=True) for one in (k, v))
    if scale is None:
        width = n.known_size(q, q.rank - 1)
        scale = 1 / math.sqrt(width) if width else 1.0
    order = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
    scores = multiplied(n, q, permuted(n, k, order)) * n.value(scale, q.dtype)
    if causal:
        rows, columns = scores.shape[-2:]
        seen = n.b.le(n.b.iota(columns), n.b.unsqueeze(n.b.iota(rows), 1))
        scores = shaped(scores + _added(n, seen, q.dtype), scores.shape)
    if mask is not None:
        added = _added(n, mask, q.dtype)
        scores = shaped(scores + added, broadcast_shape(scores, added))
    if mask is None and not causal:
        return multiplied(n, shaped(n.b.softmax(scores, axis=scores.rank - 1), scores.shape), v)
    top, zero = n.b.max(scores, axis=[scores.rank - 1], keep_dims=True), n.b.number(0, q.dtype)
    hidden = n.b.eq(top, n.b.number(-math.inf, q.dtype))  # rows that see nothing, whose softmax has no gradient
    scores = shaped(n.b.where(hidden, zero, scores), scores.shape)
    weights = shaped(n.b.softmax(scores, axis=scores.rank - 1), scores.shape)
    return multiplied(n, shaped(n.b.where(hidden, zero, weights), scores.shape), v)


# Convolutions


def _listed(values, rank, default):
    values = [default] if values is None or values == [] else [values] if isinstance(values, int) else list(values)
    return values * rank if len(values) == 1 else values


@op("convolution.default", "conv1d.default", "conv2d.default", "conv3d.default", "conv1d.padding", "conv2d.padding",
    "conv3d.padding", "conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def conv(n, input, weight, bias=None, stride=None, padding=None, dilation=None, transposed=None, output_padding=None,
         groups=1):
    rank = weight.rank - 2
    if not 1 <= rank <= 3 or input.rank not in (rank + 1, rank + 2):
        raise n.malformed(f"{input!r} with {weight!r}")
    n.static(weight, "weight")
    x = input if input.rank == rank + 2 else n.b.unsqueeze(input, 0)
    strides, dilations = _listed(stride, rank, 1), _listed(dilation, rank, 1)
    if "conv_transpose" in n.op or transposed:
        made = _conv_transpose(n, x, weight, bias, strides, dilations, _listed(padding, rank, 0),
                               _listed(output_padding, rank, 0), groups)
    else:
        made = _conv(n, x, weight, bias, strides, dilations, padding, groups)
    return made if input.rank == rank + 2 else n.b.squeeze(made, axis=0)


def _conv(n, x, w, bias, strides, dilations, padding, groups):
    rank = w.rank - 2
    if isinstance(padding, str):
        n.words(padding, "padding", ("valid", "same"))
        totals = [(k - 1) * d if padding == "same" else 0 for k, d in zip(w.shape[2:], dilations)]
        pads = [one // 2 for one in totals] + [one - one // 2 for one in totals]
    else:
        pads = _listed(padding, rank, 0) * 2
    window = Window(n, x, w.shape[2:], strides, dilations, pads)
    made = convolved(n, x, w, bias, window, n.integer(groups, "groups"), n.b.conv2d)
    return shaped(made, (x.shape[0], w.shape[0], *window.sizes))


def _conv_transpose(n, x, w, bias, strides, dilations, pads, extra, groups):
    if not len(strides) == len(dilations) == len(pads) == len(extra) == w.rank - 2 or min(strides + dilations) < 1:
        raise n.malformed(f"stride {strides}, padding {pads}, output_padding {extra}, dilation {dilations}")
    made = conv_transposed(n, x, w, bias, strides, dilations, pads, pads, extra, groups)
    sizes = [sz.add(sz.mul(sz.sub(size, 1), s), (k - 1) * d + 1 + e - 2 * p) for size, s, k, d, e, p in
             zip(x.shape[2:], strides, w.shape[2:], dilations, extra, pads)]
    return shaped(made, (x.shape[0], w.shape[1] * groups, *sizes))


@op("cdist.default", "_cdist_forward.default")
def cdist(n, x1, x2, p=2.0, compute_mode=None):
    if p == 2 and (compute_mode == 1 or not compute_mode and
                   any(n.importer.symbols.order(one.shape[-2], 25) == (1, True) for one in (x1, x2))):
        return _by_product(n, x1, x2)
    apart = n.b.abs(n.b.unsqueeze(x1, x1.rank - 1) - n.b.unsqueeze(x2, x2.rank - 2))
    return _distance(n, apart, p, [apart.rank - 1])


def _by_product(n, x1, x2):
    """Euclidean distances by a matrix product, as torch computes those of more than 25 rows."""
    first, second = (n.b.sum(n.b.square(one), axis=[one.rank - 1], keep_dims=True) for one in (x1, x2))
    squares = shaped(first, (*x1.shape[:-1], 1)) + _turned(n, shaped(second, (*x2.shape[:-1], 1)))
    made = squares - multiplied(n, x1, _turned(n, x2)) * n.value(2.0, x1.dtype)
    return root(n, n.b.maximum(made, n.b.number(0, x1.dtype)))


def _turned(n, x):
    return permuted(n, x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


@op("pdist.default", "_pdist_forward.default")
def pdist(n, self, p=2.0):
    first, second = np.triu_indices(n.known_size(self, 0), 1)
    a, b = (n.b.gather(self, n.b.known(one.astype(np.int64)), axis=0) for one in (first, second))
    if p == 0:
        made = n.b.sum(n.cast(n.b.ne(a, b), self.dtype), axis=[1], keep_dims=False)
    else:
        made = _distance(n, n.b.abs(a - b), p, [1])
    return shaped(made, first.shape)


def _distance(n, apart, p, axes, keepdim=False):
    if p == math.inf:
        return n.b.max(apart, axis=axes, keep_dims=keepdim)
    if p == 2:
        return root(n, n.b.sum(n.b.square(apart), axis=axes, keep_dims=keepdim))
    if p <= 0:
        raise n.error(f"{p}", "p")
    return power_of_size(n, n.b.sum(power_of_size(n, apart, float(p)), axis=axes, keep_dims=keepdim), 1 / p)


@op("pairwise_distance.default")
@in_f32
def pairwise_distance(n, x1, x2, p=2.0, eps=1e-6, keepdim=False):
    apart = n.b.abs(n.cast(x1, n.dtype) - n.cast(x2, n.dtype) + float(eps))
    return _distance(n, apart, p, [apart.rank - 1], keepdim)


@op("dist.default")
@in_f32
def dist(n, self, other, p=2):
    apart = n.b.abs(self - other)
    return _distance(n, apart, p, list(range(apart.rank))) if apart.rank else apart


@op("vdot.default", "inner.default")
def inner(n, self, other):
    a, b = n.cast(self, n.dtype), n.cast(other, n.dtype)
    if "vdot" in n.op and a.dtype == "c64":
        raise n.error("of complex numbers")
    if not a.rank or not b.rank:
        return a * b
    turned = b if b.rank == 1 else permuted(n, n.b.reshape_to(b, (sz.product(b.shape[:-1]), b.shape[-1])), [1, 0])
    return n.b.reshape_to(multiplied(n, a, turned), (*a.shape[:-1], *b.shape[:-1]))


@op("addr.default", "addbmm.default")
def added(n, self, vec1=None, vec2=None, batch1=None, batch2=None, beta=1, alpha=1):
    if vec1 is not None:
        made = n.b.unsqueeze(n.cast(vec1, n.dtype), 1) * n.cast(vec2, n.dtype)
    else:
        made = n.b.sum(multiplied(n, batch1, batch2), axis=[0], keep_dims=False)
    made = made if alpha == 1 else made * n.value(alpha, made.dtype)
    if beta == 0:
        return made
    return made + (n.cast(self, n.dtype) if beta == 1 else n.cast(self, n.dtype) * n.value(beta, n.dtype))


@op("kron.default")
def kron(n, self, other):
    a, b = n.cast(self, n.dtype), n.cast(other, n.dtype)
    rank = max(a.rank, b.rank)
    first, second = ((1,) * (rank - one.rank) + one.shape for one in (a, b))
    spread = [size for one in first for size in (one, 1)], [size for one in second for size in (1, one)]
    made = n.b.reshape_to(a, tuple(spread[0])) * n.b.reshape_to(b, tuple(spread[1]))
    return n.b.reshape_to(made, tuple(sz.mul(one, two) for one, two in zip(first, second)))


@op("linalg_matrix_exp.default", "matrix_exp.default")
def matrix_exp(n, self):
    """exp(A) = (exp(A / 2^s))^(2^s), of which the inner one is a Taylor polynomial: |A / 2^s| is at most 1/2.

    s differs from matrix to matrix and is limited to 24: the result is NaN where the norm is beyond 2^23.
    """
    size = n.known_size(self, self.rank - 1)
    dtype, wide = self.dtype, self if self.dtype in ("f32", "f64") else n.cast(self, "f32")
    n.arange(size, size)
    identity = n.b.broadcast(n.cast(n.b.known(np.eye(size, dtype=np.float32)), wide.dtype), wide.shape)
    rows = (*wide.shape[:-1], 1)
    norm = shaped(n.b.sum(n.b.abs(wide), axis=[wide.rank - 1], keep_dims=True), rows)
    norm = shaped(n.b.max(norm, axis=[wide.rank - 2], keep_dims=True), (*wide.shape[:-2], 1, 1))
    wanted = n.b.ceil(n.b.log2(n.b.maximum(norm, n.b.number(1e-30, wide.dtype)))) + 1
    halvings = n.b.clamp(wanted, min=0.0, max=24.0)
    small = shaped(wide * n.b.exp2(n.b.neg(halvings)), wide.shape)
    made = identity
    for k in range(18 if wide.dtype == "f64" else 10, 0, -1):  # Horner's scheme
        made = shaped(identity + multiplied(n, small, made) * (1 / k), wide.shape)
    for k in range(24):
        squared = multiplied(n, made, made)
        made = shaped(n.b.where(n.b.gt(halvings, n.b.number(float(k), wide.dtype)), squared, made), wide.shape)
    made = n.b.where(n.b.gt(wanted, n.b.number(24.0, wide.dtype)), n.b.number(float("nan"), wide.dtype), made)
    return n.cast(shaped(made, wide.shape), dtype)


@op("linalg_matrix_power.default", "matrix_power.default")
def matrix_power(n, self, n_):
    power = n.integer(n_, "n")
    if power < 0 or power > 2**16:
        raise n.error(f"{power}", "n")
    if not power:
        size = n.known_size(self, self.rank - 1)
        n.arange(size, size)
        return n.b.broadcast(n.cast(n.b.known(np.eye(size, dtype=np.float32)), self.dtype), self.shape)
    made, square = None, self
    while power:
        if power & 1:
            made = square if made is None else multiplied(n, made, square)
        power >>= 1
        square = multiplied(n, square, square) if power else square
    return made


@op("linalg_multi_dot.default", "chain_matmul.default")
def multi_dot(n, tensors=None, matrices=None):
    first, *rest = tensors if matrices is None else matrices
    for one in rest:
        first = multiplied(n, first, one)
    return first


@op("cross.default", "linalg_cross.default")
def cross(n, self, other, dim=-1):
    a, b = n.cast(self, n.dtype), n.cast(other, n.dtype)
    shape = broadcast_shape(a, b)
    a, b = n.b.broadcast(a, shape), n.b.broadcast(b, shape)
    axis = n.axis(-1 if dim is None else dim, a.rank, "dim")
    turned = [[n.b.gather(one, n.b.known(np.array([(i + shift) % 3 for i in range(3)])), axis=axis) for shift in (1, 2)]
              for one in (a, b)]
    return shaped(turned[0][0] * turned[1][1] - turned[0][1] * turned[1][0], shape)


@op("cosine_similarity.default")
@in_f32
def cosine_similarity(n, x1, x2, dim=1, eps=1e-8):
    def sums(a, b):
        product = a * b
        return n.b.sum(product, axis=[n.axis(dim, product.rank, "dim")], keep_dims=False)
    lengths = [n.b.maximum(root(n, sums(one, one)), n.b.number(eps, one.dtype)) for one in (x1, x2)]
    return sums(x1, x2) / (lengths[0] * lengths[1])


@op("mse_loss.default", "l1_loss.default", "smooth_l1_loss.default", "huber_loss.default")
def loss(n, self, target, reduction=1, beta=1.0, delta=1.0):
    apart = n.b.abs(self - target)
    made = {"mse": lambda: n.b.square(apart), "l1_": lambda: apart,
            "smo": lambda: _smooth(n, apart, beta, 1 / beta if beta else 0), "hub": lambda: _smooth(n, apart, delta, 1)
            }[n.op.split(".")[1][:3]]()
    made = shaped(made, broadcast_shape(self, target))
    axes = list(range(made.rank))
    if reduction == 0 or not axes:
        return made
    return (n.b.mean if reduction == 1 else n.b.sum)(made, axis=axes, keep_dims=False)


def _smooth(n, apart, bound, scale):
    """A parabola up to a bound, and its tangent beyond."""
    if bound == 0:
        return apart
    near = n.b.square(apart) * (0.5 * scale)
    far = (apart - 0.5 * bound) * (scale * bound)
    return n.b.where(n.b.lt(apart, float(bound)), near, far)


@op("grouped_mm_fallback.default", domain="transformers")
@op("_grouped_mm.default")
def grouped_product(n, input=None, weight=None, offs=None, self=None, mat2=None, bias=None, out_dtype=None):
    """Rows of x times the matrix of their group, where `offs` are the ends of groups of rows: a mixture of experts."""
    x, matrices = (input, weight) if self is None else (self, mat2)
    if x.rank != 2 or matrices.rank != 3 or offs is None or bias is not None:
        raise n.error(f"of {x!r} and {matrices!r}")
    places = n.b.iota(x.shape[0], "i32")
    groups = n.b.searchsorted(n.cast(offs, "i32"), places, right=True)
    last = n.b.full((), n.known_size(matrices, 0) - 1, groups.dtype)
    made = n.b.grouped_linear(x, permuted(n, matrices, [0, 2, 1]), n.b.minimum(groups, last))
    outside = n.b.unsqueeze(n.b.gt(groups, last), 1)  # rows after the last group
    return shaped(n.b.where(outside, n.b.number(0, x.dtype), made), (x.shape[0], matrices.shape[2]))

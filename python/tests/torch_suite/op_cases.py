"""Every op that tenon.torch takes, on random arrays: exported by PyTorch, FOLDER/NAME.pt2 beside FOLDER/NAME.npz.

    python python/tests/torch_suite/op_cases.py FOLDER [PART OF A NAME...] [--seed N]
    python python/tests/torch_suite/check.py FOLDER

A size that is a word is dynamic: an archive is called at 3, 1 and 5 of it, or, where torch.export wants more, at 5, 7
and 9; NAME_empty has 0 of it, NAME_core is decomposed. Beside the results are gradients of their sum.
"""

import pathlib
import sys
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from networks import record
from torch import nn
from torch.export import Dim

CASES = {}
_TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
          "c64": torch.complex64}


class T:
    """A random array: "B 4 2B", its type, and the range of its numbers."""

    def __init__(self, sizes="B 4", dtype="f32", low=-3, high=3, values=None):
        self.sizes, self.dtype, self.low, self.high = sizes.split(), dtype, low, high
        self.values = values

    def make(self, rng, count):
        sizes = [int(one) if one.isdigit() else int(one[:-1] or 1) * count for one in self.sizes]
        if self.values is not None:
            return torch.tensor(rng.choice(self.values, sizes)).to(_TYPES[self.dtype])
        if self.dtype == "bool":
            return torch.tensor(rng.integers(0, 2, sizes).astype(bool))
        if self.dtype[0] in "iu":
            low = max(self.low, 0) if self.dtype[0] == "u" else self.low
            return torch.tensor(rng.integers(low, self.high, sizes)).to(_TYPES[self.dtype])
        made = rng.uniform(self.low, self.high, sizes)
        if self.dtype == "c64":
            made = made + 1j * rng.uniform(self.low, self.high, sizes)
        return torch.tensor(made).to(_TYPES[self.dtype])

    def dynamic(self, dim):
        return {i: dim if one.isalpha() else int(one[:-1]) * dim for i, one in enumerate(self.sizes)
                if not one.isdigit()}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


def case(name, function, *inputs, empty=True):
    assert name not in CASES, name
    CASES[name] = (function, inputs, empty)


# Single elements

for _name in "abs neg sign floor ceil trunc relu square".split():
    for _type in ("f32", "i32"):
        case(f"{_name}_{_type}", getattr(torch, _name), T("B 5", _type))
for _name in ("sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
              "atanh erf erfc erfinv reciprocal sigmoid lgamma digamma frac round").split():
    case(_name, getattr(torch, _name), T("B 5", low=0.1, high=0.9) if _name != "acosh" else T("B 5", low=1.1, high=4))
for _name in "sqrt exp sigmoid sin".split():
    case(f"{_name}_i64", getattr(torch, _name), T("B 5", "i64", 1, 5))
    case(f"{_name}_f16", getattr(torch, _name), T("B 5", "f16", 1, 5))
for _name in ("silu mish hardsigmoid hardswish relu6 gelu leaky_relu elu celu selu softplus logsigmoid softsign "
              "tanhshrink hardshrink softshrink hardtanh").split():
    case(_name, getattr(F, _name), T("B 7", low=-6, high=6))
case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), T())
case("elu_alpha", lambda x: F.elu(x, 0.3), T())
case("softplus_beta", lambda x: F.softplus(x, 2, 3), T("B 9"))
case("threshold", lambda x: F.threshold(x, 0.5, -2), T())
case("prelu", lambda x, w: F.prelu(x, w), T("B 4 3"), T("4"))
case("glu", lambda x: F.glu(x, 1), T("B 6 2"))
case("round_decimals", lambda x: torch.round(x, decimals=1), T())
case("predicates", lambda x: (x.isnan(), x.isinf(), torch.isfinite(x)), T(values=[0.0, 1.0, np.nan, np.inf, -np.inf]))
case("predicates_i", lambda x: (x.isnan(), x.isinf()), T(dtype="i32"))
case("nan_to_num", lambda x: torch.nan_to_num(x, 1.0), T(values=[0.0, 1.0, np.nan, np.inf, -np.inf]))
case("bitwise_not", lambda x, y: (~x, ~y), T(dtype="i32"), T(dtype="bool"))
case("logical_not", lambda x, y: (torch.logical_not(x), torch.logical_not(y)), T(), T(dtype="i64"))

# Complex numbers, and transforms

for _name in "abs neg sgn square reciprocal sqrt rsqrt exp log sin cos angle real imag conj_physical isnan".split():
    case(f"{_name}_c64", getattr(torch, _name), T("B 5", "c64"))
for _name in "add sub mul div pow eq ne".split():
    case(f"{_name}_c64", getattr(torch, _name), T("B 4", "c64"), T("4", "c64"))
    case(f"{_name}_c64_f32", getattr(torch, _name), T("B 4", "c64"), T("4"))
for _name in "fft ifft rfft fft2 ifft2 rfft2 fftn".split():
    for _norm in ("backward", "ortho", "forward"):
        case(f"fft_{_name}_{_norm}", lambda x, f=getattr(torch.fft, _name), norm=_norm: f(x, norm=norm), T("B 4 6"))
for _norm in ("backward", "ortho", "forward"):
    case(f"fft_irfft_{_norm}", lambda z, norm=_norm: torch.fft.irfft(z, norm=norm), T("B 4 6", "c64"))
    case(f"fft_hfft_{_norm}", lambda z, norm=_norm: (torch.fft.hfft(z, norm=norm), torch.fft.hfft(z, 9, -1, norm)),
         T("B 4 6", "c64"))
    case(f"fft_ihfft_{_norm}", lambda x, norm=_norm: (torch.fft.ihfft(x, norm=norm), torch.fft.ihfft(x, 7, 1, norm)),
         T("B 4 6"))
    case(f"fft_irfft2_{_norm}", lambda z, norm=_norm: torch.fft.irfft2(z, norm=norm), T("B 4 6", "c64"))
case("fft_sizes", lambda z: (torch.fft.fft(z, 9), torch.fft.ifft(z, 3, 1), torch.fft.irfft(z, 7)), T("B 4 6", "c64"))
case("fft_shift", lambda z: (torch.fft.fftshift(z), torch.fft.ifftshift(z, 1)), T("3 4 5", "c64"))
case("complex_parts", lambda z: (torch.view_as_real(z), z.real, z.imag), T("B 4", "c64"))
case("complex_made", lambda x, y: (torch.complex(x, y), torch.polar(x, y)), T("B 4"), T("B 4"))
case("view_as_complex", lambda x, y: torch.view_as_complex(torch.stack([x, y], -1)), T("B 4"), T("B 4"))
case("complex_reductions", lambda z: (z.sum(), z.sum(1), z.mean(0), z.cumsum(1)), T("B 4", "c64"), empty=False)
case("complex_products", lambda z, w: (z @ w, torch.einsum("ij,jk->ki", z, w)), T("B 4", "c64"), T("4 3", "c64"))
case("complex_cast", lambda x, y: (x.to(torch.complex64), x + 1j, y * 2j), T("B 4"), T("B 4", "i64"))
case("stft", lambda x, w: torch.stft(x, 8, 4, window=w, return_complex=True), T("B 32"), T("8", low=0.1), empty=False)

_PAIRS = [("f32", "f32"), ("f32", "i64"), ("i32", "f32"), ("i64", "i32"), ("u8", "i8"), ("f16", "f32"), ("bool", "f32"),
          ("bool", "i64"), ("i16", "u8"), ("f64", "f32"), ("bf16", "f16")]
for _a, _b in _PAIRS:
    for _name in "add mul".split():
        case(f"{_name}_{_a}_{_b}", getattr(torch, _name), T("B 4", _a), T("4", _b))
    case(f"compare_{_a}_{_b}", lambda a, b: (a < b, a == b, a >= b), T("B 4", _a), T("B 1", _b))
    case(f"zero_dim_{_a}_{_b}", lambda a, b: (a + b, a < b), T("B 4", _a), T("", _b))
    case(f"where_{_a}_{_b}", lambda c, a, b: torch.where(c, a, b), T("B 4", "bool"), T("4", _a), T("B 4", _b))
    if "bool" not in (_a, _b):
        case(f"sub_{_a}_{_b}", torch.sub, T("B 4", _a), T("4", _b))
        case(f"maximum_{_a}_{_b}", lambda a, b: (torch.maximum(a, b), torch.minimum(a, b)), T("B 4", _a), T("4", _b))
        case(f"div_{_a}_{_b}", torch.div, T("B 4", _a, 1, 9), T("4", _b, 1, 5))
        for _mode in ("floor", "trunc"):
            case(f"div_{_mode}_{_a}_{_b}", lambda a, b, m=_mode: torch.div(a, b, rounding_mode=m), T("B 4", _a, -9, 9),
                 T("4", _b, 1, 5))
for _type in ("f32", "i64", "i32", "u8", "f16"):
    case(f"scalars_{_type}", lambda x: (x + 1, x * 2.5, 3 - x, x < 1.5, 2 * x, x == 2), T("B 4", _type, 0, 5))
    case(f"remainder_{_type}", lambda a, b: (torch.remainder(a, b), torch.fmod(a, b), a % 3), T("B 4", _type, -9, 9),
         T("4", _type, 1, 5))
    case(f"pow_{_type}", lambda a: (a**2, a**3, a**2.0), T("B 4", _type, 0, 4))
    case(f"clamp_{_type}", lambda a: (a.clamp(1, 3), a.clamp(min=2), a.clamp(max=1.5)), T("B 4", _type, 0, 6))
case("pow", lambda a, b: (a**b, 2**a, a**0.5, a**-1), T(low=0.1), T("4"))
case("pow_i", lambda a, b: (a**b, 2**b), T(dtype="i64", low=1), T("4", "i64", 0, 3))
case("rsub_alpha", lambda a, b: (torch.rsub(a, b, alpha=2), torch.add(a, b, alpha=3), torch.sub(a, b, alpha=0.5)),
     T(), T("4"))
case("floor_divide", lambda a, b: (a // b, a // 2), T(dtype="i64", low=-9, high=9), T("4", "i64", 1, 4))
case("floor_divide_f", lambda a, b: (a // b, a // 0.7), T(low=-9, high=9), T("4", low=0.5, high=4))
_SIGNED = [0.0, -0.0, 0.5, -0.5, 3.0, -3.0, np.inf, -np.inf, np.nan]
case("floor_divide_signs", lambda a, b: (a // b, torch.copysign(torch.ones(()), a // b).where(a // b == 0, torch.zeros(()))),
     T("B 30", values=_SIGNED), T("30", values=_SIGNED))
case("of_two", lambda a, b: (torch.atan2(a, b), torch.hypot(a, b), torch.logaddexp(a, b)), T(), T("4"))
case("fmax", lambda a, b: (torch.fmax(a, b), torch.fmin(a, b)), T(values=[1.0, 2.0, np.nan]), T("4", values=[0.0, 3.0]))
case("logical", lambda a, b: (torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_xor(a, b)),
     T(dtype="i32", low=0, high=2), T("4", "bool"))
case("bitwise", lambda a, b: (a & b, a | b, a ^ b, a & 3), T(dtype="i32", low=0, high=20), T("4", "i32", 0, 20))
case("bitwise_bool", lambda a, b: (a & b, a | b, a ^ b), T(dtype="bool"), T("4", "bool"))
case("shift", lambda a: (a << 2, a >> 1), T(dtype="i32", low=-20, high=20))
case("clamp_tensor", lambda a, b: torch.clamp(a, b, b + 1), T(), T("4"))
case("masked_fill", lambda a, m: (a.masked_fill(m, -1.5), a.masked_fill(m, float("-inf"))), T(), T("B 1", "bool"))
case("where_scalars", lambda c, a: (torch.where(c, a, 0.0), torch.where(c, 1.0, a)), T(dtype="bool"), T())
case("lerp", lambda a, b: torch.lerp(a, b, 0.3), T(), T("4"))
case("addcmul", lambda a, b, c: (torch.addcmul(a, b, c, value=0.5), torch.addcdiv(a, b, c + 5, value=2)), T(), T(), T())
case("casts", lambda a: (a.to(torch.int32), a.to(torch.uint8), a.to(torch.bool), a.half(), a.double(),
                         a.to(torch.bfloat16).float()), T(low=0, high=9))
case("casts_i", lambda a: (a.to(torch.int8), a.float(), a.bool(), a.to(torch.uint8)),
     T(dtype="i64", low=-300, high=300))
case("type_as", lambda a, b: a.type_as(b), T(dtype="i64"), T("4"))

# Creation

case("full", lambda x: (torch.full((2, 3), 1.5), torch.zeros(x.shape[0], 2), torch.ones(3, dtype=torch.int64),
                        torch.full_like(x, 2), torch.zeros_like(x, dtype=torch.int32), x.new_zeros(2, x.shape[0]),
                        torch.empty_like(x) * 0 + x), T())
case("arange", lambda x: (torch.arange(x.shape[0]), torch.arange(1, 7, 2), torch.arange(0, 1, 0.3),
                          torch.arange(2, x.shape[0] + 2), torch.linspace(0, 1, 5), torch.eye(3),
                          torch.arange(0, 2 * x.shape[0], 2)), T())
case("triangles", lambda x: (x.tril(), x.triu(1), x.tril(-1), (x > 0).triu()), T("2 B 4"))

# Sizes and places

case("views", lambda x: (x.view(x.shape[0], -1), x.reshape(-1, 3), x.flatten(), x.flatten(1), x.unflatten(1, (2, 2)),
                         x.view(-1), x.view(2, x.shape[0], 6)), T("B 4 3"))
case("two_dynamic", lambda x: (x.reshape(x.shape[0] * x.shape[1], 4), x.flatten(1), x.view(x.shape[0], -1),
                               x.transpose(0, 1).reshape(-1, 4)), T("B B 4"))
case("permutes", lambda x: (x.permute(2, 0, 1), x.transpose(0, 1), x.movedim(0, 2), x.mT, x[0].t(), x.swapaxes(0, 2)),
     T("B 4 3"), empty=False)
case("unsqueezes", lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x[None, :, None], x.unsqueeze(1).squeeze(1),
                              x[:, :1].squeeze(-1)), T())
case("squeezes", lambda x: (x.squeeze(), x.squeeze(1), x.squeeze(-1), x.squeeze((1, 3))), T("2 1 4 1"))
case("expands", lambda x: (x.expand(2, -1, 4), x.expand(x.shape[0], 4), x.expand_as(torch.zeros(2, x.shape[0], 4)),
                           torch.broadcast_to(x, (3, x.shape[0], 4))), T("B 1"))
case("slices", lambda x: (x[:, 1:3], x[:, ::2], x[:, -2:], x[:, :-1], x[:, 5:9], x[:, 3:1], x.narrow(1, 1, 3)),
     T("B 7"))
case("slices_dynamic", lambda x: (x[1:], x[:-1], x[: x.shape[0] - 1],
                                   x[:x.shape[0] // 2], x[-1:], torch.zeros(x.shape[0] // 2)), T("B 3"),
     empty=False)
case("slices_steps", lambda x: (x[::2], x[1::3]), T("B 3"), empty=False)
case("selects", lambda x: (x[:, 1], x.select(2, -1), x[:, -2]), T("B 4 3"))
case("selects_dynamic", lambda x: (x[-1], x[0], x[x.shape[0] - 1]), T("B 3"), empty=False)
case("splits", lambda x: (*x.split(2, 1), *x.chunk(3, 1), *x.split([1, 4], 1), *x.unbind(1), *x.tensor_split(2, 1)),
     T("B 5"))
case("split_dynamic", lambda x: (*x.view(x.shape[0], 2, 2).unbind(1), *torch.cat([x, x]).split(x.shape[0])), T("B 4"),
     empty=False)
case("diagonals", lambda x: (x.diagonal(), x.diagonal(1, 1, 2), x.diagonal(-2, 1, 2)), T("3 4 5"))
case("diag_embed", lambda x: torch.diag_embed(x), T("2 3"))
case("cats", lambda x, y: (torch.cat([x, y], 1), torch.cat([x, x]), torch.stack([x, x]), torch.stack([x, x], -1),
                           torch.hstack([x, y]), torch.vstack([x, x])), T("B 4"), T("B 2"))
case("cat_types", lambda x, y: torch.cat([x, y], 1), T("B 4"), T("B 2", "i64"))
case("repeats", lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1), x.tile(2), x.repeat_interleave(2, 1),
                           x.repeat_interleave(3)), T())
case("flips", lambda x: (x.flip(0), x.flip([0, 1]), x.fliplr()), T("B 3"))
case("rolls", lambda x: (x.roll(1, 1), x.roll(-5, 1), x.roll((1, 2), (1, 2))), T("B 3 4"))
case("pads", lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 2), value=1.5), F.pad(x, (-1, 1)),
                        F.pad(x, (2, 1), mode="reflect"), F.pad(x, (1, 3), mode="replicate"),
                        F.pad(x, (2, 2), mode="circular")), T("B 3 6"))
case("rrelu", lambda x: (F.rrelu(x), F.rrelu(x, 0.1, 0.5)), T())
case("pads_to_multiples", lambda x: F.pad(x, (0, 8 - x.shape[1] % 8)), T("2 B"), empty=False)
_MATRIX = torch.linspace(-1, 1, 12).reshape(3, 4)
case("narrow_constants", lambda x: (x.bfloat16() @ _MATRIX.bfloat16().T).float() + F.linear(x, _MATRIX), T())
case("pads_2d", lambda x: (F.pad(x, (1, 2, 1, 0), mode="reflect"), F.pad(x, (1, 2, 1, 0), mode="replicate"),
                           F.pad(x, (1, 2, 1, 0), mode="circular")), T("B 2 3 4"))
case("pads_3d", lambda x: (F.pad(x, (1, 1, 1, 0, 2, 0), mode="replicate"), F.pad(x, (1,) * 6, mode="reflect")),
     T("B 1 3 4 3"))
case("pad_types", lambda x, y: (F.pad(x, (1, 1), value=3), F.pad(y, (1, 1), value=1)), T(dtype="i64"), T(dtype="bool"))
case("pixel_shuffle", lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2)),
     T("B 8 4 6"), empty=False)
case("meshgrid", lambda x, y: (*torch.meshgrid(x, y, indexing="ij"), *torch.meshgrid(x, y, indexing="xy")), T("B"),
     T("4"))
case("unfold", lambda x: x.unfold(1, 3, 2), T("B 8"))
case("numel", lambda x: x * x.numel() / x.shape[0] + x.shape[0], T(), empty=False)
case("size_scalars", lambda x: (x.shape[0], x.sum() / x.shape[0], x * (x.shape[0] ** 0.5)), T(), empty=False)
case("meshed_sizes", lambda x: torch.zeros(x.shape[0] + 1, 2 * x.shape[0]), T())

# Reductions

for _type in ("f32", "i32", "bool", "u8", "f16"):
    case(f"sum_{_type}", lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.sum(-1, dtype=torch.float64)),
         T("B 4 3", _type))
    if _type != "bool":
        case(f"prod_{_type}", lambda x: (x.prod(), x.prod(1), x.prod(2, keepdim=True)), T("B 2 2", _type, 1, 3))
        case(f"extremes_{_type}", lambda x: (x.amax(1), x.amin((1, 2)), *x.max(1), *x.min(2, keepdim=True), x.amax(2)),
             T("B 4 3", _type))
        case(f"whole_extremes_{_type}", lambda x: (x.max(), x.min(), x.argmax()), T("B 4 3", _type), empty=False)
case("mean", lambda x: (x.mean(), x.mean(1), x.mean((1, 2), keepdim=True), x.mean(-1)), T("B 4 3"))
case("args", lambda x: (x.argmax(1), x.argmin(-1, keepdim=True)), T("B 7"))
case("any_all", lambda x, y: (x.any(), x.all(1), y.any(1, keepdim=True), y.all()), T(dtype="bool"), T(dtype="i32"))
case("var", lambda x: (x.var(1), x.std(1, unbiased=False), x.var((1, 2), correction=0, keepdim=True),
                       *torch.var_mean(x, 1), *torch.std_mean(x, (1, 2))), T("B 4 3"))
case("var_dynamic", lambda x: (x.var(0, unbiased=False), x.std((0, 1))), T("B 4"), empty=False)
case("logsumexp", lambda x: (x.logsumexp(1), x.logsumexp((1, 2), keepdim=True)), T("B 4 3"))
case("norms", lambda x: (x.norm(), x.norm(dim=1), x.norm(p=1, dim=1), torch.linalg.vector_norm(x, 3, dim=1),
                         torch.linalg.vector_norm(x, float("inf"), dim=(1, 2)), F.normalize(x, dim=1),
                         torch.linalg.norm(x, dim=1)), T("B 4 3"))
case("cumulative", lambda x: (x.cumsum(1), x.cumprod(1), x.cumsum(0)), T())
case("cumulative_i", lambda x, y: (x.cumsum(1), y.cumsum(1)), T(dtype="i32"), T(dtype="bool"))
case("topk", lambda x: (*x.topk(3, 1), *x.topk(2, 1, largest=False), *x.topk(1, -1)), T("B 7"))
case("sort", lambda x: (*x.sort(1), *x.sort(1, descending=True), x.argsort(1)), T("B 7"))
for _type in ("f32", "f16", "f64"):
    case(f"softmax_{_type}", lambda x: (x.softmax(1), x.log_softmax(-1), F.softmax(x, 0)), T("B 4 3", _type))
case("softmax_cast", lambda x: (x.softmax(1, dtype=torch.float32), x.log_softmax(1, dtype=torch.float32)),
     T(dtype="f16"))
case("searchsorted", lambda x: (torch.bucketize(x, torch.tensor([-1.0, 0.0, 2.0])),
                                torch.searchsorted(torch.tensor([-1.0, 0.0, 2.0]), x, right=True)), T())
case("diff", lambda x: (x.diff(dim=1), x.diff()), T("B 5"))
case("one_hot", lambda x: F.one_hot(x, 6), T("B 2", "i64", 0, 6))
case("cross", lambda x, y: (torch.linalg.cross(x, y), F.cosine_similarity(x, y, 1), torch.cdist(x, y)), T("B 3"),
     T("B 3"))
case("losses", lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y, reduction="none"), F.smooth_l1_loss(x, y)), T(), T())
case("cross_entropy", lambda x, y: F.cross_entropy(x, y), T("B 5"), T("B", "i64", 0, 5), empty=False)

# Products

case("matmul", lambda a, b: a @ b, T("B 3 4"), T("4 5"))
case("matmul_vectors", lambda a, b, c: (a @ b, c @ b, torch.dot(b, c[0]), torch.outer(b, b)), T("B 4"), T("4"),
     T("3 4"))
case("matmul_batches", lambda a, b: (a @ b, torch.matmul(a[:, None], b)), T("B 3 4"), T("B 4 2"))
case("bmm", lambda a, b: torch.bmm(a, b), T("B 3 4"), T("B 4 2"))
case("mm_i", lambda a, b: a @ b, T("B 4", "i64"), T("4 3", "i64"))
case("addmm", lambda c, a, b: (torch.addmm(c, a, b), torch.addmm(c, a, b, beta=0.5, alpha=2)), T("5"), T("B 4"),
     T("4 5"))
case("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=2), T("B 3 2"), T("B 3 4"), T("B 4 2"))
case("linear", lambda x, w, b: (F.linear(x, w, b), F.linear(x, w), F.linear(x[:, 0], w)), T("B 3 4"), T("5 4"), T("5"))
case("bilinear", lambda x, y, w: F.bilinear(x, y, w), T("B 3"), T("B 4"), T("2 3 4"))
case("einsum", lambda a, b: (torch.einsum("bij,jk->bik", a, b), torch.einsum("bij->bj", a),
                             torch.einsum("bij,bkj->bik", a, a), torch.einsum("...j,jk->...k", a, b)), T("B 3 4"),
     T("4 5"))
case("tensordot", lambda a, b: torch.tensordot(a, b, 1), T("B 3 4"), T("4 5"))


def _attention(q, k, v, mask):
    return (F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, mask > 0),
            F.scaled_dot_product_attention(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, scale=0.3))


case("sdpa", _attention, T("B 2 3 4"), T("B 2 5 4"), T("B 2 5 4"), T("3 5"))
case("sdpa_causal", lambda q: (F.scaled_dot_product_attention(q, q, q, is_causal=True),
                               F.scaled_dot_product_attention(q[:, :, :2], q, q, is_causal=True)), T("B 2 5 4"))
case("sdpa_grouped", lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), T("B 4 3 8"), T("B 2 5 8"))
case("sdpa_3d", lambda q, k: F.scaled_dot_product_attention(q, k, k), T("B 3 8"), T("B 5 8"))
case("sdpa_length", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), T("2 3 B 4"))
case("sdpa_hidden", lambda q, m: F.scaled_dot_product_attention(q, q, q, m), T("B 2 3 4"), T("3 3", "bool"))

for _rank, _sizes in ((1, "9"), (2, "8 9"), (3, "5 6 7")):
    _conv = getattr(F, f"conv{_rank}d")
    _form = " 3" * _rank
    case(f"conv{_rank}d", lambda x, w, b, c=_conv: (c(x, w, b), c(x, w, stride=2, padding=1), c(x, w, dilation=2),
                                                    c(x, w, padding="same"), c(x, w, padding="valid")),
         T(f"B 4 {_sizes}"), T(f"6 4{_form}"), T("6"))
    case(f"conv{_rank}d_groups", lambda x, w, c=_conv: c(x, w, groups=2, padding=2), T(f"B 4 {_sizes}"),
         T(f"6 2{_form}"))
    case(f"conv{_rank}d_depthwise", lambda x, w, c=_conv: c(x, w, groups=4, padding=1), T(f"B 4 {_sizes}"),
         T(f"4 1{_form}"))
    case(f"conv{_rank}d_one", lambda x, w, c=_conv: c(x, w), T(f"4 {_sizes}"), T(f"6 4{_form}"))
    _back = getattr(F, f"conv_transpose{_rank}d")
    case(f"conv_transpose{_rank}d", lambda x, w, b, c=_back: (c(x, w, b), c(x, w, stride=2, padding=1),
                                                              c(x, w, stride=2, output_padding=1),
                                                              c(x, w, dilation=2, padding=1)),
         T(f"B 4 {_sizes}"), T(f"4 3{_form}"), T("3"))
    case(f"conv_transpose{_rank}d_groups", lambda x, w, c=_back: c(x, w, groups=2, stride=2), T(f"B 4 {_sizes}"),
         T(f"4 3{_form}"))
case("conv2d_dynamic", lambda x, w: (F.conv2d(x, w, padding=1), F.conv2d(x, w, stride=2, padding=1)), T("1 3 B 9"),
     T("4 3 3 3"), empty=False)
case("conv1d_dynamic", lambda x, w: F.conv1d(x, w, padding=1, stride=2), T("2 3 B"), T("4 3 3"), empty=False)

# Norms

case("layer_norm", lambda x, w, b: (F.layer_norm(x, (4,), w, b), F.layer_norm(x, (3, 4)), F.layer_norm(x, (4,), w)),
     T("B 3 4"), T("4"), T("4"))
case("layer_norm_f16", lambda x, w, b: F.layer_norm(x, (4,), w, b), T("B 3 4", "f16"), T("4", "f16"), T("4", "f16"))
case("rms_norm", lambda x, w: (F.rms_norm(x, (4,), w), F.rms_norm(x, (4,), eps=1e-3)), T("B 3 4"), T("4"))
case("group_norm", lambda x, w, b: (F.group_norm(x, 2, w, b), F.group_norm(x, 4)), T("B 4 3 5"), T("4"), T("4"))
case("instance_norm", lambda x, w, b: (F.instance_norm(x), F.instance_norm(x, weight=w, bias=b)), T("B 4 3 5"), T("4"),
     T("4"))
case("batch_norm", lambda x, m, v, w, b: (F.batch_norm(x, m, v, w, b), F.batch_norm(x, m, v)), T("B 4 3"), T("4"),
     T("4", low=0.5), T("4"), T("4"))
case("batch_norm_training", lambda x: F.batch_norm(x, None, None, training=True), T("B 4 3"), empty=False)
case("local_response_norm", lambda x: F.local_response_norm(x, 3), T("B 5 3 4"))

# Pools and images

for _rank, _sizes in ((1, "9"), (2, "8 9"), (3, "5 6 7")):
    _max, _mean = getattr(F, f"max_pool{_rank}d"), getattr(F, f"avg_pool{_rank}d")
    case(f"max_pool{_rank}d", lambda x, p=_max: (p(x, 2), p(x, 3, 2, 1), p(x, 3, 1, dilation=2),
                                                 p(x, 2, ceil_mode=True)), T(f"B 3 {_sizes}"))
    case(f"max_pool{_rank}d_indices", lambda x, p=_max: p(x, 3, 2, 1, return_indices=True), T(f"2 3 {_sizes}"))
    case(f"avg_pool{_rank}d", lambda x, p=_mean: (p(x, 2), p(x, 3, 2, 1), p(x, 3, 2, 1, count_include_pad=False)),
         T(f"B 3 {_sizes}"))
    case(f"avg_pool{_rank}d_ceil", lambda x, p=_mean: (p(x, 2, ceil_mode=True), p(x, 3, 2, 1, True, False)),
         T(f"2 3 {_sizes}"))
    _adapt, _peak = getattr(F, f"adaptive_avg_pool{_rank}d"), getattr(F, f"adaptive_max_pool{_rank}d")
    case(f"adaptive{_rank}d", lambda x, p=_adapt, q=_peak: (p(x, 1), p(x, 3), q(x, 1)), T(f"B 3 {_sizes}"))
    case(f"adaptive_max_pool{_rank}d_places", lambda x, q=_peak: (*q(x, 3, True), *q(x, 2, True)), T(f"B 3 {_sizes}"))
    _peak, _back = getattr(F, f"max_pool{_rank}d"), getattr(F, f"max_unpool{_rank}d")
    case(f"max_unpool{_rank}d", lambda x, p=_peak, u=_back: u(*p(x, 2, return_indices=True), 2, output_size=x.shape),
         T(f"B 3 {_sizes}"))
case("avg_pool2d_divisor", lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=4), T("B 3 8 9"))
for _mode in ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"):
    _sizes = {"linear": "9", "trilinear": "4 5 6"}.get(_mode, "5 6")
    _target = {"linear": [7], "trilinear": [5, 7, 3]}.get(_mode, [7, 4])
    case(f"interpolate_{_mode}", lambda x, m=_mode, s=_target: (
        F.interpolate(x, scale_factor=2.0, mode=m), F.interpolate(x, size=s, mode=m),
        F.interpolate(x, scale_factor=1.4, mode=m), F.interpolate(x, scale_factor=0.6, mode=m)), T(f"B 2 {_sizes}"))
    if "linear" in _mode or "cubic" in _mode:
        case(f"interpolate_{_mode}_aligned", lambda x, m=_mode, s=_target: (
            F.interpolate(x, scale_factor=2.0, mode=m, align_corners=True),
            F.interpolate(x, size=s, mode=m, align_corners=True)), T(f"B 2 {_sizes}"))
case("interpolate_dynamic", lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), T("1 2 B 4"), empty=False)
case("interpolate_smooth", lambda x: (F.interpolate(x, (3, 4), mode="bilinear", antialias=True),
                                      F.interpolate(x, (7, 4), mode="bicubic", antialias=True),
                                      F.interpolate(x, (9, 2), mode="bicubic", antialias=True, align_corners=True),
                                      F.interpolate(x, (3, 9), mode="bilinear", antialias=True, align_corners=True)),
     T("B 2 6 7"))
for _mode in ("bilinear", "nearest"):
    for _padding in ("zeros", "border", "reflection"):
        case(f"grid_sample_{_mode}_{_padding}", lambda x, g, m=_mode, p=_padding: (
            F.grid_sample(x, g, m, p, align_corners=False), F.grid_sample(x, g, m, p, align_corners=True)),
            T("B 2 5 6"), T("B 3 4 2", low=-1.3, high=1.3))
case("unfold2d", lambda x: (F.unfold(x, 3, padding=1), F.unfold(x, (2, 3), stride=2, dilation=2)), T("B 2 7 8"))
case("fold", lambda x: F.fold(x, (5, 6), 2, stride=1), T("B 8 20"))
case("affine_grid", lambda t: F.affine_grid(t, [3, 1, 4, 5], align_corners=False), T("3 2 3"))

# Indices

case("embedding", lambda i, w: (F.embedding(i, w), w[i]), T("B 3", "i64", 0, 6), T("6 4"))
case("embedding_i32", lambda i, w: F.embedding(i, w), T("B 3", "i32", 0, 6), T("6 4"))
case("index_select", lambda x, i: (x.index_select(1, i), x.index_select(0, torch.tensor([0, 0]))), T("B 5"),
     T("4", "i64", 0, 5), empty=False)
case("gather", lambda x, i: (x.gather(1, i), torch.take_along_dim(x, i, 1)), T("B 5"), T("B 3", "i64", 0, 5))
case("scatter", lambda x, i, s: (x.scatter(1, i, s), x.scatter(1, i, 2.5), x.scatter_add(1, i, s),
                                 x.scatter_reduce(1, i, s, "amax")), T("B 5"),
     T("B 2", "i64", values=[0]) , T("B 3"), empty=False)
case("index", lambda x, i, j: (x[i], x[:, j], x[i, j], x[:, j, 1], x[i[:, None], j], x[i, :, j]), T("4 5 3"),
     T("3", "i64", 0, 3), T("3", "i64", 0, 3))
case("index_negative", lambda x, i: (x[:, i], x[i]), T("3 5"), T("B", "i64", -3, 3))
case("index_dynamic", lambda x, i: (x[i], x[:, torch.tensor([0, 2])]), T("B 5"), T("2", "i64", values=[0]), empty=False)
def _put(x, i, v):
    y = x.clone()
    y[:, i] = v[0, 0] * 2
    y[1:, i, None] = 3.0
    return torch.index_put(x, (i,), v), torch.index_put(x, (i,), v, accumulate=True), y


case("index_put", _put, T("4 5"), T("3", "i64", values=[2]), T("3 5", values=[1.5]))
case("index_put_pairs", lambda x, i, v: torch.index_put(x, (i, i), v), T("4 5"), T("1", "i64", 0, 4), T("1"))
case("index_put_mask", lambda x: torch.index_put(x, (x > 0,), torch.tensor(7.0)), T())
case("index_copy", lambda x, i, s: (x.index_copy(1, i, s), x.index_add(1, i, s), x.index_fill(1, i, 3.5)), T("B 5"),
     T("1", "i64", 0, 5), T("B 1"))
case("select_scatter", lambda x, s: (x.select_scatter(s, 1, 2), x.slice_scatter(s[:, None], 1, 1, 2)), T("B 5"), T("B"))
case("slice_scatter", lambda x, s: (x.slice_scatter(s, 1, 0, 6, 3), x.slice_scatter(s, 1, -2)), T("B 6"), T("B 2"))

# Arguments and results

case("same_results", lambda x: (x, x + 0, x, [x.clone()], x.T.T), T())
case("unused", lambda x, y: y * 2, T(), T("4"))
case("constants", lambda x: (torch.tensor([1.0, 2.0]), 3, None, x.shape[1], True, 2.5, torch.tensor(4), x), T())
case("derived", lambda x, y: (x.sum(0) + y.sum(0), x.reshape(2, -1, 4), y.reshape(-1)), T("2B 4"), T("B 4"),
     empty=False)
case("derived_alone", lambda x: (x.reshape(2, -1, 4), x.reshape(-1, 2, 4).sum(1), torch.arange(x.shape[0] // 2)),
     T("2B 4"), empty=False)
case("relations", lambda x: (x[: min(x.shape[0], 64)], x[:, : x.shape[0]].sum() if x.shape[0] > 70 else x * 2), T(),
     empty=False)
case("limited", lambda x: (x[:4], x[:4] + x[:4].sum(0), x[-4:], x[2:5]), T("B 3"), empty=False)


def _quantised(x, w):
    import torch.ao.quantization.fx._decomposed  # noqa: F401: defines the ops
    q = torch.ops.quantized_decomposed
    steps = 0.05, 3, -128, 127, torch.int8
    x = q.dequantize_per_tensor(q.quantize_per_tensor(x, *steps), *steps)
    scales, zeros = torch.tensor([0.02, 0.03, 0.04, 0.05]), torch.zeros(4, dtype=torch.int64)
    w = q.quantize_per_channel(w, scales, zeros, 0, -127, 127, torch.int8)
    w = q.dequantize_per_channel(w, scales, zeros, 0, -127, 127, torch.int8)
    y = F.conv2d(x, w, padding=1).relu()
    return q.dequantize_per_tensor(q.quantize_per_tensor(y, 0.2, 0, 0, 255, torch.uint8), 0.2, 0, 0, 255, torch.uint8)


case("quantised", _quantised, T("B 3 6 5"), T("4 3 3 3", low=-2, high=2))

# Forms of ops that PyTorch's own functions seldom make

aten = torch.ops.aten

case("forms_pointwise", lambda x, y: (
    aten.fix(x), aten.sgn(x), F.tanhshrink(x), aten.clip(x, -1, 1),
    aten.clamp_max(x, 1.0), aten.clamp_max(x, y), aten.clamp_min(x, y), aten.div.Scalar(x, 2.0),
    aten.div.Scalar_mode(x, 2.0, rounding_mode="floor"), aten.floor_divide.Scalar(x, 2), aten.sub.Scalar(x, 1.5),
    aten.subtract(x, y), aten.multiply(x, y), aten.true_divide(x, y + 9), aten.max.other(x, y), aten.min.other(x, y),
    aten.lerp.Tensor(x, y, y), aten.ne(x, y), aten.gt(x, y), aten.remainder.Scalar_Tensor(7, y + 9),
    aten.masked_fill.Tensor(x, x > 0, torch.tensor(2.0)), aten.where.Scalar(x > 0, 1.0, 2.0), aten.to.other(x, y),
    F.huber_loss(x, y, delta=0.7), aten.log_sigmoid_forward(x)[0], aten.detach(x), aten.fill.Tensor(x, y[0])),
    T(), T("4"), empty=False)
case("forms_bits", lambda x, y: (
    aten.bitwise_left_shift.Tensor(x, y), aten.bitwise_right_shift.Tensor(x, y), x | 3, x ^ 5, aten.__or__.Scalar(x, 4),
    aten.bitwise_left_shift.Tensor_Scalar(x, 1), aten.bitwise_right_shift.Tensor_Scalar(x, 1)),
    T(dtype="i32", low=0, high=20), T("4", "i32", 0, 4))
case("forms_shapes", lambda x, y: (
    x.adjoint(), aten.column_stack([y, y]), aten.concat([y, y], 0), aten.concatenate([y, y]), aten.flipud(y),
    aten.eye(3, 4),
    aten.view_as(x[:, :, :], x), aten.reshape_as(x, x), *aten.tensor_split.indices(y, [1, 3], 1),
    *aten.split.sizes(y, [1, 3], 1), *aten.unsafe_split(y, 2, 1), *aten.unsafe_chunk(y, 2, 1),
    aten._unsafe_view(x, [6, 4]),
    aten._reshape_copy(x, [6, 4]), aten.new_full(x, [2], 3.0), aten.ones_like(x),
    *aten.meshgrid([y[0], y[1]])), T("2 3 4"), T("3 4"))
case("forms_pads", lambda x: (aten.reflection_pad1d(x[0], [1, 2]), aten.reflection_pad2d(x, [1, 2, 1, 0]),
                              aten.replication_pad1d(x[0], [1, 2]), aten.replication_pad2d(x, [1, 2, 1, 0]),
                              aten.replication_pad3d(x, [1, 2, 1, 0, 2, 1]),
                              aten.reflection_pad3d(x, [1, 1, 1, 0, 0, 1])),
     T("2 3 4 5"))
case("forms_reductions", lambda x: (
    *aten.aminmax(x, dim=1), aten.all.dims(x > 0, [1]), x.norm(p=2), aten.norm.ScalarOpt_dim(x, 2, [1]), aten.std(x),
    aten.norm.Scalar(x, 1), aten.norm.ScalarOpt_dim_dtype(x, 2, [1], True, dtype=torch.float64), aten.var(x),
    aten.std.correction(x, [1], correction=0), *aten.std_mean.correction(x, [1], correction=1),
    *aten.sort.stable(x, stable=True, dim=1),
    aten.argsort.stable(x, stable=True, dim=1), aten._safe_softmax(x, 1)), T("3 5"))
case("forms_products", lambda a, b, c: (
    aten.mv(a, b), aten.addmv(c, a, b), aten.ger(b, b), aten.linalg_matmul(a, b), aten.cross(a[:, :3], a[:, 1:], 1),
    aten._fused_rms_norm(a, [4], b, 1e-5)[0], aten._prelu_kernel(a, b)), T("3 4"), T("4"), T("3"))
case("forms_attention", lambda q, k: (
    aten._scaled_dot_product_flash_attention_for_cpu(q, k, k)[0], aten._scaled_dot_product_attention_math(q, k, k)[0]),
     T("2 2 3 4"), T("2 2 5 4"))
case("forms_indices", lambda x, i: (
    aten._unsafe_index(x, [i, i]), aten._unsafe_index_put(x, [i], x[:2]), aten.index_fill.int_Tensor(
        x, 0, i, torch.tensor(2.0)), aten.index_reduce(x, 0, i, x[:2], "amax"), aten.scatter.value_reduce(
        x, 0, i[None], 2.0, reduce="add"), aten.scatter.reduce(x, 0, i[None], x[:1, :2], reduce="add")),
     T("4 5"), T("2", "i64", values=[1]))
case("forms_norms", lambda x, w: (
    aten.native_batch_norm(x, w, w, w, w * w + 1, False, 0.1, 1e-5)[0],
    aten._native_batch_norm_legit_functional(x, w, w, w, w * w + 1, True, 0.1, 1e-5),
    aten.native_dropout(x, 0.5, False)[0], aten.feature_dropout(x, 0.5, False), aten.alpha_dropout(x, 0.5, False)),
     T("5 3"), T("3"))
case("forms_upsample", lambda x: (
    aten.upsample_nearest2d(x, [7, 4], 1.4, 0.7), aten.upsample_bilinear2d(x, [7, 4], False, 1.4, 0.7),
    aten.upsample_bicubic2d(x, [10, 12], True), aten._upsample_nearest_exact2d(x, [7, 4]),
    aten.upsample_linear1d(x[0], [9], False), aten.upsample_nearest1d(x[0], [9]),
    aten._upsample_nearest_exact1d(x[0], [9]),
    aten.upsample_nearest3d(x[None], [3, 7, 4]), aten.upsample_trilinear3d(x[None], [3, 7, 4], False),
    aten._upsample_nearest_exact3d(x[None], [3, 7, 4])), T("2 3 5 6"))
case("forms_sizes", lambda x: (
    x * (x.shape[0] % 3 + 1), x[: max(x.shape[0] - 1, 1)], x.sum() * (x.shape[0] ** 0.5),
    torch.zeros(-(-x.shape[0] // 2)), torch.full((2,), x.shape[0])), T("B 4"), empty=False)
case("forms_recurrent", nn.RNN(4, 5, nonlinearity="relu"), T("6 2 4"))
case("item", lambda x: torch.where(x > x.sum().item(), x, -x), T("3 4"))

# In place


def _in_place(x, y):
    x = x.clone()
    x[:, 1] = y[:, 0]
    x[:, 2:4] += 1
    x.view(x.shape[0], 2, 3)[:, 1, 0].mul_(2)
    z = x[:, :2]
    x.add_(1)
    x.transpose(0, 1)[0] = 5
    x.clamp_(max=4)
    w = x.unsqueeze(0)
    w[0, :, 5].fill_(9)
    x[:, 3].zero_()
    return x, z, w


case("in_place", _in_place, T("B 6"), T("B 2"))
case("in_place_parts", lambda x: [one.mul_(i + 1) for i, one in enumerate(x.clone().chunk(3, 1))], T("B 6"))
case("masked_in_place", lambda x: x.clone().masked_fill_(x > 0, 1).relu_().sub_(2), T())

# Recurrent layers

for _kind in ("LSTM", "GRU", "RNN"):
    for _length in (3, 8):
        torch.manual_seed(2)
        _layer = getattr(nn, _kind)(4, 5, 2, batch_first=True, bidirectional=True)
        case(f"{_kind.lower()}_{_length}", _layer, T(f"B {_length} 4"), empty=False)
    case(f"{_kind.lower()}_plain", getattr(nn, _kind)(4, 5, 1, bias=False), T("6 2 4"))
    if _kind == "LSTM":
        case("lstm_projected", nn.LSTM(4, 5, 2, bidirectional=True, proj_size=3), T("6 2 4"))
        case("lstm_projected_plain", nn.LSTM(4, 5, 1, bias=False, proj_size=3, batch_first=True), T("B 3 4"), empty=False)
    case(f"{_kind.lower()}_cell", getattr(nn, f"{_kind}Cell")(4, 5), T("B 4"))

# Branches and loops


def _branch(x):
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


def _loop(x):
    from torch._higher_order_ops import while_loop
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (torch.tensor(0), x))


def _scan(x, y):
    from torch._higher_order_ops import scan

    def step(carry, slices):
        made = torch.tanh(carry + slices[0]) * slices[1].sum()
        return made, (made * 2, slices[0].clone())

    return scan(step, torch.zeros(x.shape[1:]), (x, y)), scan(lambda a, b: (a + b, a * b), torch.ones(x.shape[0]), x,
                                                              dim=1, reverse=True)


def _strided_changes(x):
    y, z = x.clone(), x.t().clone()
    y.as_strided((4,), (6,)).fill_(0.0)
    z.as_strided((2, 2), (1, 7), 3).mul_(2.0)
    return y, z


def _view_changes(x):
    y, z = x.clone(), x.clone()
    y.diagonal().fill_(2)
    y.diagonal(1).add_(3)
    y.movedim(0, 1)[1].zero_()
    y.swapaxes(0, 1)[2:4].t()[:, 0].mul_(3)
    y.unflatten(0, (2, 2))[1, 0].add_(1)
    y.tensor_split(2, 1)[1].sub_(2)
    z.T.unsqueeze(0)[0, 1].neg_()
    z.view(2, 2, 5).diagonal(0, 0, 1).neg_()
    z.mT[1].zero_()
    return y, z


def _conjugate_changes(x):
    y = x.clone()
    y.conj()[0].mul_(2 + 1j)
    y.mT.conj().diagonal().add_(1j)
    return y


def _losses(x, classes, weight):
    def of(**options):
        return F.cross_entropy(x, classes, **options)

    log = x.log_softmax(1)
    return (of(), of(reduction="none"), of(reduction="sum", weight=weight), of(ignore_index=2, weight=weight),
            of(label_smoothing=0.1, ignore_index=1), F.nll_loss(log, classes, weight=weight),
            F.nll_loss(log, classes, reduction="none", ignore_index=0))


class Bag(nn.Module):
    def __init__(self, mode, **options):
        super().__init__()
        self.bag = nn.EmbeddingBag(6, 4, mode=mode, **options)

    def forward(self, ids, starts=None):
        return self.bag(ids, starts)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(5, 3), dim=1)

    def forward(self, x):
        return self.last(self.first(x))


case("view_changes", _view_changes, T("4 5"))
case("conjugate_changes", _conjugate_changes, T("3 3", "c64"))
case("diagonal_scatter", lambda x, y: (torch.diagonal_scatter(x, y, 1), torch.diagonal_scatter(x.T, y, -1)), T("4 5"),
     T("4"))
case("running_extremes", lambda x: (x.cummax(1).values, x.cummin(0)[0]), T("B 5"))
case("losses_of_classes", _losses, T("B 4"), T("B", "i64", 0, 4), T("4", low=0.5), empty=False)
case("losses_of_images", lambda x, y: (F.cross_entropy(x, y), F.nll_loss(x, y, reduction="none")), T("2 4 3 5"),
     T("2 3 5", "i64", 0, 4))
case("losses_of_one", lambda x, y: (F.cross_entropy(x, y), F.nll_loss(x, y)), T("4"), T("", "i64", 0, 4))
case("bag", Bag("mean"), T("B 5", "i64", 0, 6))
case("bag_last", Bag("sum", include_last_offset=True), T("8", "i64", 0, 6), T(values=[0], sizes="2", dtype="i64"))
case("bag_starts", lambda i, w: F.embedding_bag(i, w, torch.tensor([0, 3, 3]), mode="mean"), T("8", "i64", 0, 6),
     T("6 4"))
case("weight_norm", Normed(), T("B 4 7"))
case("affine_grid_open", lambda x: F.affine_grid(x, (x.shape[0], 1, 3, 4), align_corners=False), T("B 2 3"))
case("as_strided", lambda x: (x.as_strided((3, 2), (2, 1)), x.as_strided((2, 3, 2), (4, 2, 1), 1),
                              x.as_strided((4,), (0,)), (x * 2).as_strided((3, 3), (1, 1)), x.as_strided((), (), 7),
                              x.as_strided((2, 0), (3, 1))), T("4 5"))
case("as_strided_views", lambda x: (x.t().as_strided((3, 2), (2, 1)), x[1:].as_strided((2, 2), (1, 2)),
                                    x[2].as_strided((4,), (1,)), x.mT.contiguous().as_strided((6,), (3,))), T("4 5"))
case("as_strided_i64", lambda x: x.as_strided((5, 3), (2, 1)).sum(-1), T("13", "i64"))
case("as_strided_changes", _strided_changes, T("4 5"))
case("repeat_interleave_by", lambda x: (x.repeat_interleave(torch.tensor([2, 0, 3]), 1),
                                        x.repeat_interleave(torch.tensor(2), 1)), T("B 3"))
case("scan", _scan, T("6 3"), T("6 2"))
case("cond", _branch, T("2 4"))
case("cond_open", _branch, T("B 4"))
case("while_loop", _loop, T("2 4"))
case("no_grad", lambda x: Function(lambda y: y * 2)(x).detach() + 1, T())


def export(attempt, module, inputs, rng, folder):
    """Records a case at some counts, which are of a dynamic size; the error of torch.export, or None."""
    name, counts, dim = attempt
    dims = None
    if dim is not None:
        dims = tuple(one.dynamic(dim) for one in inputs)
        dims = (dims,) if isinstance(module, Function) else dims
    calls = [(tuple(one.make(rng, count) for one in inputs), {}) for count in counts]
    try:
        record(name, module, calls, dims, folder)
    except Exception as error:
        return error
    arrays = dict(np.load(folder / f"{name}.npz"))
    if name != "index_put":  # with equal places: PyTorch gives each source the gradient of the one that is kept
        np.savez(folder / f"{name}.npz", **arrays, **gradients(module, calls[0][0]))
    return None


def gradients(module, inputs):
    """The gradients of the sum of all results in f32, as "grad0_I" for input I; none where nothing has one."""
    given = [one.clone().requires_grad_(one.dtype == torch.float32) for one in inputs]
    made = [one for one in torch.utils._pytree.tree_leaves(module(*given))
            if isinstance(one, torch.Tensor) and one.dtype == torch.float32]
    if not any(one.requires_grad for one in made):
        return {}
    sum(one.sum() for one in made).backward()
    return {f"grad0_{i}": one.grad.numpy() for i, one in enumerate(given) if one.grad is not None}


# What is composed of other ops: ties, numbers that are none, empty and single elements

_NANS = [0.0, 1.0, 2.0, -1.0, np.nan]
_INFINITE = [0.0, 1.0, -1.0, np.nan, np.inf, -np.inf]
case("orders", lambda x: (*torch.kthvalue(x, 3), *torch.kthvalue(x, 1, 1, True), torch.msort(x), *torch.median(x, 1),
                          torch.nanmedian(x, 1, True)[0], *torch.nanmedian(x, 1)), T("B 5"))
case("orders_of_ties", lambda x: (torch.kthvalue(x, 3)[0], torch.median(x, 1)[0], torch.nanmedian(x, 1)[0]),
     T("B 6", values=_NANS))
case("orders_i", lambda x: (torch.kthvalue(x, 2)[0], torch.median(x, 1)[0], torch.median(x[0])), T("B 4", "i32"),
     empty=False)
case("median", lambda x, y: (torch.median(x), torch.nanmedian(x), torch.median(y), *torch.median(x[0, 0], 0)),
     T("3 4"), T("3 5", values=_NANS))
case("median_of_none", lambda x: torch.median(x[:0]), T("3 4"))
case("quantiles", lambda x, q: (torch.quantile(x, 0.3, 1), torch.quantile(x, q, 1), torch.quantile(x, q, 0, True),
                                torch.quantile(x, 0.75), torch.quantile(x, q[0])), T("4 5"), T("3", low=0, high=1))
for _mode in ("lower", "higher", "nearest", "midpoint"):
    case(f"quantiles_{_mode}", lambda x, m=_mode: torch.quantile(x, 0.4, 1, interpolation=m), T("B 6"))
case("quantiles_of_nans", lambda x: torch.quantile(x, 0.5, 1), T("B 4", values=_INFINITE))
case("bool_orders", lambda x: (x.sort(dim=1, stable=True)[0], x.sort(dim=1, descending=True, stable=True)[1],
                               *x.cummax(1), *x.cummin(0), torch.argsort(x, dim=1, stable=True)), T("B 6", "bool"))
case("bool_puts", lambda x: (x.index_put((torch.tensor([0, 0]),), x[1], accumulate=True),
                             x.index_add(0, torch.tensor([2]), x[:1]),
                             *(x.scatter_reduce(0, torch.zeros_like(x, dtype=torch.int64), x, mode, include_self=own)
                               for mode, own in (("sum", True), ("prod", True), ("amax", True), ("amin", False)))),
     T("3 4", "bool"))
case("scalar_places", lambda x: (x.sum().scatter(0, torch.tensor(0), 2.0), x[0].gather(0, torch.tensor(2)),
                                 x.sum().sort()[1], x[0].scatter_add(0, torch.tensor(1), x.mean()),
                                 torch.argsort(x.sum())), T("3 4"))
case("numbers_wrap", lambda x, y: (x.masked_fill(x > 1, -1), x > -1, x + -3, x * -2, torch.where(x > 2, x, -1),
                                   x < 300, x == -1, y < 200, y + 200), T("B 5", "u8", 0, 5), T("B 5", "i8"))
case("numbers_cut", lambda x: (x.masked_fill(x > 1, 1.7), x.index_fill(0, torch.tensor([0]), -1.7),
                               torch.full_like(x, 2.9)), T("3 5", "i64"))
case("running_log_sums", lambda x: (x.logcumsumexp(1), (x * 300).logcumsumexp(1)), T("B 9"))
case("running_log_sums_of_none", lambda x: x.logcumsumexp(1), T("B 6", values=_INFINITE))
case("log_sums_of_types", lambda x, y: (torch.logaddexp(x, y), torch.logaddexp(y, x.sum())), T(), T("B 4", "f64"))
case("trapezoids", lambda x: (torch.trapezoid(x), torch.trapezoid(x, dx=0.5, dim=1), torch.trapezoid(x, x[:, 0], dim=0),
                              torch.trapezoid(x, x * 2), torch.cumulative_trapezoid(x), torch.trapz(x[:, :1]),
                              torch.cumulative_trapezoid(x, x[0])), T("5 6"))
case("signs", lambda x, i: (torch.signbit(x), torch.copysign(x + 1, x), torch.copysign(i, -1.5), torch.signbit(i),
                            torch.copysign(x, i)), T(values=[0.0, -0.0, 1.0, -2.0, np.inf, -np.inf]), T("4", "i32"))
case("axes_at_least", lambda x: (torch.atleast_1d(x.sum()), torch.atleast_2d(x[0]), torch.atleast_3d(x[0]),
                                 torch.atleast_3d(x), *torch.atleast_2d(x.sum(), x)), T(), empty=False)
case("axes_at_least_changed", lambda x: [y := x.clone(), torch.atleast_3d(y).mul_(2)][0], T())
case("blocks", lambda x, y: torch.block_diag(x, x[0], y, x.sum()), T("3 4"), T("2 2", "i64"))
case("products_of_sets", lambda x: torch.cartesian_prod(x[:, 0], x[0], x[1]), T("3 4"))
case("axes_moved", lambda x: (torch.movedim(x, (0, -1), (1, 0)), torch.moveaxis(x, (2, 0), (0, 1))), T("B 4 5"))
case("numbers_counted", lambda x: x + torch.bincount(torch.tensor([1, 2, 2, 0]), minlength=4), T())
case("pads_cut", lambda x: (F.pad(x, (-1, 3), mode="reflect"), F.pad(x, (4, -3), mode="reflect"),
                            F.pad(x, (4, -5), mode="replicate"), F.pad(x, (-2, 3), mode="circular"),
                            F.pad(x, (-2, 1), value=2)), T("B 3 5"), empty=False)
case("pads_complex", lambda z: (F.pad(z, (1, 2)), F.pad(z, (1, 2), value=1)), T("B 4", "c64"))
case("norms_complex", lambda z: (torch.linalg.norm(z), z.norm(dim=1), torch.linalg.vector_norm(z, 1, dim=0)),
     T("B 4", "c64"), empty=False)
case("products_complex", lambda z: (z.cumprod(1), z.prod(1), z.prod(1, keepdim=True), z.prod(), z[:, :0].prod(1),
                                    z.var(1), z.std(), *torch.var_mean(z, 0, correction=0)), T("3 5", "c64"))
case("windows_beyond", lambda x: (F.avg_pool1d(x, 3, 3, ceil_mode=True), F.max_pool1d(x, 3, 3, ceil_mode=True),
                                  F.avg_pool1d(x, 3, 2, ceil_mode=True, count_include_pad=False)), T("B 2 2"))
case("windows_beyond_2d", lambda x: (F.avg_pool2d(x, 3, 3, ceil_mode=True), F.max_pool2d(x, 3, 3, ceil_mode=True)),
     T("B 2 2 4"))
case("folds", lambda x, y: (F.fold(x, (4, 5), 2), F.fold(y, (4, 5), 2), torch.narrow_copy(y, 1, 1, 2)), T("B 8 12"),
     T("8 12"))
case("powers_in_a_row", lambda x: x * torch.logspace(0, 1, 4) + torch.tensor([1.0, 2.0, 3.0, x.shape[0]]), T())
case("slices_clipped", lambda x: (x[-4::2], x[:4:3], x[-1:0:2], x[2:1], x[-2:-3:2]), T())
case("running_places", lambda x: (*x.cummax(1), *x.cummin(0), *x.cummax(0)), T("B 5", values=_NANS))
case("running_places_i", lambda x: (*x.cummax(1), *x.cummin(1)), T("B 5", "i64"))
case("without_nans", lambda x: (torch.nansum(x), torch.nansum(x, 1, True), torch.nanmean(x, 1),
                                torch.nansum(x, (0, 1))), T("B 5", values=_NANS))
case("counts", lambda x, i: (torch.count_nonzero(x, 1), torch.count_nonzero(x), torch.count_nonzero(i, (0, 1))),
     T("B 5", values=_NANS), T("B 5", "i32", -1, 2))
case("trace", lambda x, i: (torch.trace(x), torch.trace(i)), T("3 4"), T("4 2", "i32"))
case("histogram", lambda x: (torch.histc(x, 5, -1, 2), torch.histc(x, 3, -0.5, 0.5)), T("B 8"))
case("histogram_of_edges", lambda x: (torch.histc(x, 4, 0, 2), torch.histc(x[:, 0], 1, 0, 1)),
     T("B 9", values=[0.0, 0.5, 1.0, 1.5, 2.0, 2.5, -0.5, np.nan]))
case("histogram_of_range", lambda x: (torch.histc(x, 6), torch.histc(x[:1, :1], 3), torch.histc(x[:0], 2)), T("3 5"))
case("closeness", lambda a, b, i: (torch.isclose(a, b), torch.isclose(a, b, equal_nan=True), torch.isclose(i, i + 1),
                                   torch.isclose(a, a + 1e-9)), T(values=_INFINITE), T(values=_INFINITE),
     T(dtype="i64"))
case("membership", lambda a, b: (torch.isin(a, b), torch.isin(a, 2), torch.isin(a, b, invert=True)), T(dtype="i64"),
     T("5", "i64"))
case("infinities", lambda x, i: (torch.isposinf(x), torch.isneginf(x), torch.isposinf(i), +x), T(values=_INFINITE),
     T(dtype="i32"))
case("angles", lambda x, i: (torch.deg2rad(x), torch.rad2deg(x), torch.deg2rad(i), torch.sinc(x), torch.sinc(i)),
     T(values=[0.0, 0.5, 90.0, -2.0]), T(dtype="i64"))
case("logits", lambda x: (torch.logit(x), torch.logit(x, 0.2), torch.special.ndtr(x), torch.special.expit(x)),
     T(low=0.05, high=0.95))
case("logarithms", lambda x, y: (torch.xlogy(x, y), torch.xlogy(x, 2.0), torch.special.xlog1py(x, y), torch.xlogy(2, y),
                                 torch.special.entr(y)), T(values=[0.0, 1.0, -2.0]), T(values=[0.0, 0.5, np.nan, 3.0]))
case("steps", lambda x, y: torch.heaviside(x, y), T(values=_INFINITE), T())
case("powers", lambda x, i: (torch.float_power(x, 2), torch.float_power(i, x), torch.ldexp(x, i),
                             torch.logaddexp2(x, x + 1)), T(low=0.1), T(dtype="i32", low=1, high=4))
case("longer_names", lambda x, y: (torch.absolute(x), torch.negative(x), torch.arctan(x), torch.greater(x, y),
                                   torch.less_equal(x, y), torch.not_equal(x, y), torch.ravel(x)), T(), T())
for _mode in ("sum", "mean", "max"):
    case(f"bags_{_mode}", lambda i, w, m=_mode: (F.embedding_bag(i, w, torch.tensor([0, 3, 3, 5]), mode=m),
         F.embedding_bag(i, w, torch.tensor([0, 3, 3, 5, 8]), mode=m, include_last_offset=True),
         F.embedding_bag(i, w, torch.tensor([0, 3, 3, 5]), mode=m, padding_idx=1)), T("8", "i64", 0, 3), T("6 4"))
case("bags_of_one_length", lambda i, w: (F.embedding_bag(i, w, mode="sum"), F.embedding_bag(i, w, mode="mean"),
     F.embedding_bag(i.reshape(-1), w, torch.tensor([0, 5, 10, 15]), mode="sum", include_last_offset=True)),
     T("3 5", "i64", 0, 5), T("6 3"))
case("bags_of_rows", lambda i, w: (F.embedding_bag(i, w, mode="max"), F.embedding_bag(i, w, mode="max", padding_idx=2)),
     T("B 4", "i64", 0, 5), T("6 3"))
case("masked_scatter", lambda x, m, s: (x.masked_scatter(m, s), x.masked_scatter(m[:1], s)), T("B 4"), T("B 4", "bool"),
     T("4B 2"), empty=False)
case("masked_scatter_of_none", lambda x, s: x.masked_scatter(x > 9, s[:0]), T("3 4"), T("3"))
case("take_and_put", lambda x, i, s: (x.take(i), x.put(i[:1, :1], s[:1, :1]), x.put(i, s, accumulate=True)), T("3 4"),
     T("2 3", "i64", -12, 12), T("2 3"))
case("diagonals_made", lambda x, y: (torch.diag_embed(x, 1), torch.diag_embed(x, -2), torch.diag_embed(x, 1, 0, 2),
                                     torch.diag(y), torch.diag(y, 1), torch.diag(x), torch.diagflat(x, -1)),
     T("2 3"), T("4"))
case("diagonals_made_dynamic", lambda x: (torch.diag_embed(x, 1), torch.diag_embed(x, -1, -1, 0)), T("B 3"))
case("triangle_indices", lambda x: (x[0] + torch.tril_indices(3, 4, 1), torch.triu_indices(4, 3, -1) + x[0]),
     T("4 1", "i64"))
case("turns", lambda x: (torch.rot90(x), torch.rot90(x, 2), torch.rot90(x, -1, (1, 2)), torch.moveaxis(x, 0, 2),
                         torch.dstack([x[0], x[1]]), torch.dstack([x[0, 0], x[1, 1]])), T("2 3 4"))
for _mode in ("sum", "prod", "mean", "amax", "amin"):
    case(f"combined_{_mode}", lambda x, i, s, m=_mode: (
        x.scatter_reduce(1, i, s, m), x.scatter_reduce(1, i, s, m, include_self=False)), T("B 5"),
        T("B 3", "i64", 0, 5), T("B 3"))
    if _mode != "sum":
        case(f"combined_rows_{_mode}", lambda x, i, s, m=_mode: (
            x.index_reduce(0, i, s, m), x.index_reduce(0, i, s, m, include_self=False)), T("4 3"), T("5", "i64", 0, 4),
            T("5 3"))
case("combined_i", lambda x, i, s: (x.scatter_reduce(1, i, s, "mean"),
                                    x.scatter_reduce(1, i, s, "amax", include_self=False)),
     T("B 5", "i64", -9, 9), T("B 4", "i64", 0, 5), T("B 4", "i64", -9, 9))
for _name in ("mean", "sum", "none"):
    case(f"losses_of_pairs_{_name}", lambda x, y, r=_name: (
        F.binary_cross_entropy(x.sigmoid(), y, reduction=r), F.binary_cross_entropy_with_logits(x, y, reduction=r),
        F.binary_cross_entropy_with_logits(x, y, y + 1, pos_weight=y[0] * 2, reduction=r), F.kl_div(x, y, reduction=r),
        F.kl_div(x, x - 1, reduction=r, log_target=True), F.soft_margin_loss(x, x.sign(), reduction=r),
        F.hinge_embedding_loss(x, (y > 0.5) * 2.0 - 1, reduction=r),
        F.margin_ranking_loss(x, y, x.sign(), 0.5, reduction=r),
        F.poisson_nll_loss(x, y, reduction=r), F.poisson_nll_loss(y, y, log_input=False, reduction=r)),
        T("B 4"), T("B 4", low=0, high=1), empty=_name != "mean")
    case(f"losses_of_probabilities_{_name}", lambda x, y, w, r=_name: (
        F.cross_entropy(x, y.softmax(1), reduction=r), F.cross_entropy(x, y.softmax(1), w, reduction=r),
        F.cross_entropy(x, y.softmax(1), reduction=r, label_smoothing=0.2)), T("B 4 3"), T("B 4 3"),
        T("4", low=0, high=1), empty=False)
case("certain", lambda x: F.binary_cross_entropy(x, x), T(values=[0.0, 1.0]), empty=False)
case("distances_of_pairs", lambda x, y: (F.pdist(x), F.pdist(x, 1.0), F.pdist(x, float("inf")),
                                         F.pairwise_distance(x, y), torch.dist(x, y), torch.dist(x, y, 1),
                                         F.pdist(x[:1])), T("4 3"), T("4 3"))
case("more_products", lambda x, y, z: (torch.inner(x, y), torch.inner(x, y[0]), torch.vdot(x[0], y[0]),
                                       torch.kron(x, y), torch.kron(x[0], y),
                                       torch.addr(z, x[:, 0], y[:, 0], beta=0.5, alpha=2),
                                       torch.linalg.multi_dot([x, y.T, x]), torch.linalg.matrix_power(z, 5),
                                       torch.linalg.matrix_power(z, 0)), T("3 4"), T("3 4"), T("3 3"))
case("matrix_exp", lambda x, y: (torch.linalg.matrix_exp(x), torch.matrix_exp(5 * (x - x.mT)), torch.matrix_exp(x * 1e-4),
                                 torch.matrix_exp(y)), T("B 4 4"), T("3 3", "f64"))
case("fill_diagonal", lambda x, y: (x.clone().fill_diagonal_(7), y.clone().fill_diagonal_(-2.5)), T("4 6"), T("3 3 3"))
case("addbmm", lambda x, a, b: (torch.addbmm(x, a, b), torch.addbmm(x, a, b, beta=0.5, alpha=2)), T("3 5"), T("2 3 4"),
     T("2 4 5"))


def main():
    arguments = sys.argv[1:]
    seed = int(arguments.pop(arguments.index("--seed") + 1)) if "--seed" in arguments else 1
    arguments = [one for one in arguments if one != "--seed"]
    folder, *parts = arguments
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    print(f"seed {seed}", flush=True)
    for name, (function, inputs, empty) in CASES.items():
        if parts and not any(part in name for part in parts):
            continue
        rng = np.random.default_rng(seed)
        module = function if isinstance(function, nn.Module) else Function(function)
        is_open = any(one.dynamic(1) for one in inputs)
        forms = [[(name, (3, 3), None)]]
        if is_open:
            forms = [[(name, (3, 1, 5), Dim("B", min=0, max=64)), (name, (5, 7, 9), Dim.DYNAMIC)]]
        if is_open and empty:
            forms.append([(f"{name}_empty", (0,), None)])
        for attempts in forms:
            for attempt in attempts:
                error = export(attempt, module, inputs, rng, folder)
                if error is None:
                    break
            if error is not None:
                print(f"{attempt[0]}: {type(error).__name__}: {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main()

"""Writes the archives of python/tests/package/exported, and what PyTorch computed of them: expected.npz.

    python python/tests/torch_suite/fixtures.py [NAME...]

Without names all are made; with them, the others stay as they are.
Archives are compressed, and without what tenon.torch does not read: sample inputs, and most of the nodes' metadata.
"""

import json
import pathlib
import re
import sys
import tempfile
import zipfile

import numpy as np
import torch
import torch.nn.functional as F
from networks import Cached, Tagger, record
from torch import nn
from torch.export import Dim

FORMS = {"decoder": ["decoder", "decoder_core"], "encoder": ["encoder_core"], "solved": ["solved", "solved_core"]}
FOLDER = pathlib.Path(__file__).parents[1] / "package/exported"


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.deep, self.wide = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ConvTranspose2d(8, 4, 2, 2)
        self.group, self.last = nn.GroupNorm(2, 4), nn.Linear(16, 3)

    def forward(self, image):
        x = F.max_pool2d(F.hardswish(self.norm(self.first(image))), 3, 2, 1)
        x = F.interpolate(self.group(self.wide(F.silu(self.deep(x)))), scale_factor=1.5, mode="bilinear")
        return self.last(F.adaptive_avg_pool2d(F.pad(x, (1, 0, 2, 1), mode="reflect"), 2).flatten(1))


class Mixed(nn.Module):
    """Types, sizes, views that are changed, nested arguments and results."""

    def forward(self, x, options, scale=None):
        n = x.shape[0]
        small = options["counts"].to(torch.int8)
        types = [x + options["counts"], small + 1.5, small * options["counts"], x > small, x.half() * 2.0, x // 0.7]
        y = x.clone()
        y[:, 1] = 0
        y[:, 2:] += scale
        y.view(n, 2, 2)[:, 1].mul_(2)
        sizes = {"rows": n, "flat": x.reshape(n * 2, 2), "tail": x[n - 1:], "range": torch.arange(n) * n,
                 "mean": x.sum() / n, "same": y[torch.arange(n - 1, -1, -1)]}
        values, places = x.topk(2, 1)
        return types, sizes, (y, values, places, x.cumsum(1), x.var(1), x.sort(1).values, None)


class Spectra(nn.Module):
    """Complex numbers, their transforms, and views of their parts that are changed."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3, dtype=torch.complex64)

    def forward(self, x, z):
        half = torch.fft.rfft(x)
        frames = torch.stft(x, 8, 4, win_length=6, window=torch.hann_window(6), return_complex=True, normalized=True)
        y = z.clone()
        y.real.mul_(2.0)
        torch.view_as_real(y)[..., 1].add_(1.0)
        parts = y, torch.view_as_real(z), torch.view_as_complex(torch.stack([x, x], -1)), torch.polar(x, x), x.angle()
        spectra = half, frames, torch.fft.irfft(half), torch.fft.fft2(z, norm="ortho"), torch.fft.ifft(x, n=7)
        numbers = (self.layer(z), z.conj() * z + 2j - 1.5, 2 / z, z**2, z.abs().log(), torch.sgn(z), z @ z.mT, z.sum(),
                   z == y, z.exp(), z.angle(), torch.where(z.real > 0, z, 0), z.to(torch.complex64).cumsum(1))
        return parts, spectra, numbers


class Branches(nn.Module):
    def forward(self, x):
        from torch._higher_order_ops import while_loop
        y = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        steps, z = while_loop(lambda i, z: z.abs().sum() > 1, lambda i, z: (i + 1, z * 0.5), (torch.tensor(0), x))
        return y, steps, z


class Strided(nn.Module):
    """Places in memory, a scan, and a branch whose result has a size of its own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, table):
        from torch._higher_order_ops import scan
        y = table.t().clone()
        y.as_strided((3,), (7,), 1).fill_(0.5)
        y.unfold(1, 2, 3).mul_(2)
        y.diagonal(1).add_(3)
        windows = table.as_strided((3, 3, 4), (6, 1, 1), 2), table.t().as_strided((4, 3), (2, 1)), y
        last, sums = scan(lambda c, row: (torch.tanh(self.layer(c) + row), c * 2), torch.zeros(4), table[:, :4])
        return windows, last, sums, torch.cond(x.sum() > 0, lambda x: self.layer(x), lambda x: x - 1, (x,))


class Written(nn.Module):
    """Results that are put into other values, views too, and values that are given other sizes."""

    def forward(self, x, y):
        z, wide = torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.float64)
        torch.atan2(x, y, out=z)
        torch.add(x, z, alpha=2, out=wide)
        parts = torch.zeros(2, 3, 4)
        torch.mul(x, y, out=parts[1])
        y = y.clone()
        torch.maximum(x, y, out=y)
        first = (x * 2).resize_(2, 3)
        first.add_(1)
        kept = x * 3
        kept.resize_(12)[1:3].zero_()
        sign = 1 if torch.ops.aten.sym_is_contiguous(x) else -1
        return z, wide, parts, y * sign, first, kept, torch.pow(x.abs(), y, out=torch.empty(3, 4))


class Sized(nn.Module):
    """Ops that need sizes or a mask's values as numbers, views that are changed by name, and named results."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(4, 3))
        self.register_buffer("many", torch.randn(30, 3))

    def forward(self, x, mask):
        rows, _, height, width = x.shape
        y = F.interpolate(x, size=(height + 3, 2 * width), mode="bilinear")
        y = torch.roll(y, (-1, 2), (2, 3)) + torch.eye(2 * width)[:1]
        z = y.square().sum((1, 2)).cumsum(1)
        places = torch.searchsorted(z.contiguous(), z.flip(1)[:, :3].contiguous(), right=True)
        first = z[:1].clone()
        first.unsqueeze_(0).mul_(2)
        first.squeeze_(0).transpose_(0, 1)
        turned = torch.complex(y, -y).adjoint()
        grid = torch.stack([y[:, 0, :3, :4], y[:, 1, :3, :4]], -1)
        volume = F.affine_grid(y[:, 0, :3, :4], [rows, 2, 2, 3, 2], align_corners=False)
        images = (F.grid_sample(x, grid, mode="bicubic", padding_mode="border", align_corners=False),
                  F.grid_sample(x.unsqueeze(2), volume, padding_mode="reflection", align_corners=True))
        apart = torch.cdist(self.many, y[:, 0, :3, :3].reshape(-1, 3))
        return y.amax(2), places, z.max(1), images, apart, (self.table[mask], first[:2], turned[..., 0].imag * 2)


class Solved(nn.Module):
    """Equations and factorisations; decomposed, their assertions are effects in order."""

    def forward(self, a, b):
        a = a @ a.mT + torch.eye(4)
        lower = torch.linalg.cholesky(a)
        u, values, v = torch.linalg.svd(b, full_matrices=False)
        q, r = torch.linalg.qr(b)
        parts = torch.linalg.inv(a), torch.linalg.solve(a, b), torch.linalg.det(a), torch.logdet(a), lower
        rest = (torch.linalg.slogdet(-a), torch.linalg.eigvalsh(a), values, (u * values.unsqueeze(-2)) @ v, q @ r,
                torch.linalg.solve_triangular(lower, b.mT, upper=False, left=False), torch.cholesky_solve(b, lower))
        loss = F.triplet_margin_loss(*a[:, :3].unbind(1))
        return parts, rest, torch.linalg.pinv(b), torch.linalg.matrix_norm(b), loss


@torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
def grouped_product(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """The op by which transformers' mixtures of experts are exported."""
    ends = [0, *offs.tolist()]
    parts = [input[a:b] @ weight[i] for i, (a, b) in enumerate(zip(ends, ends[1:]))]
    return torch.cat([*parts, input.new_zeros(input.shape[0] - ends[-1], weight.shape[2])])


@grouped_product.register_fake
def _(input, weight, offs):
    return input.new_empty(input.shape[0], weight.shape[2])


class Experts(nn.Module):
    """Rows sorted by the expert that each of them chooses, and some that have none."""

    def __init__(self):
        super().__init__()
        self.gate, self.weight = nn.Linear(4, 5), nn.Parameter(torch.randn(3, 6, 4))

    def forward(self, x):
        chosen, order = self.gate(x).argmax(1).sort(stable=True)
        ends = torch.histc(chosen.float(), 3, 0, 2).cumsum(0, dtype=torch.int32)
        made = torch.ops.transformers.grouped_mm_fallback(x[order], self.weight.transpose(1, 2), ends)
        return torch.zeros_like(made).index_copy(0, order, made)


class Edges(nn.Module):
    """Numbers that a type does not have, orders and sums of bool, pads and windows at the edge, slices beyond it."""

    def forward(self, x, small, image):
        hit = x > 0
        wrapped = [small.masked_fill(small > 2, -1), small > -1, small * -2, torch.where(small > 1, small, -3)]
        orders = [*hit.sort(dim=1, stable=True), hit.cummax(1).values, hit.index_add(0, torch.tensor([0]), hit[1:2])]
        edges = [F.pad(image, (-1, 3), mode="reflect"), F.pad(image, (4, -5), mode="replicate"),
                 F.avg_pool1d(image[..., :2], 3, 3, ceil_mode=True)]
        sums = [x.logcumsumexp(1), torch.logaddexp(x, x.double()), torch.trapezoid(x, x[0]), torch.copysign(x, -x)]
        return wrapped, orders, edges, sums, [x[-4::2], x[:4:3], x[-1:0:2], x[2:1]]


class Chosen(nn.Module):
    """Elements and places that a mask chooses."""

    def forward(self, x, mask):
        rows, columns = torch.where(mask)
        return (rows, columns, mask.nonzero(), mask.nonzero(as_tuple=True), x.masked_select(mask),
                x.masked_select(mask[:1]), x[rows])


class Regions(nn.Module):
    """The ops of torchvision: features of boxes, and convolutions whose taps are moved."""

    def __init__(self):
        super().__init__()
        self.offset, self.mask = nn.Conv2d(4, 16, 2), nn.Conv2d(4, 8, 2)
        self.weight, self.bias = nn.Parameter(torch.randn(6, 2, 2, 2)), nn.Parameter(torch.randn(6))

    def forward(self, image, boxes):
        from torchvision import ops
        offset, mask = self.offset(image), self.mask(image).sigmoid()
        moved = [ops.deform_conv2d(image, offset, self.weight, self.bias),
                 ops.deform_conv2d(image, offset[..., ::2, 1:], self.weight[:, :, :1], None, (2, 1), 0, (1, 2),
                                   mask[..., ::2, 1:])]
        parts = [ops.roi_align(image, boxes, (3, 2), 0.5, -1), ops.roi_align(image, boxes, 2, 1.0, 2, True)]
        return moved, parts


def encoder():
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")


def modules():
    """name: (module, calls, dynamic sizes)"""
    few, length = Dim("few", min=1, max=8), Dim("length", min=1, max=12)
    rows = Dim("rows", min=2, max=9)
    spans = [(0, 3), (3, 4), (4, 6)]
    boxes = [[0.0, 1, 2, 5, 4], [0, 0.2, 0, 3, 5.5]]
    steps = [((torch.randint(0, 20, (1, b - a)), torch.arange(a, b)), {}) for a, b in spans]
    mixed = [((torch.randn(n, 4), {"counts": torch.randint(-9, 9, (4,), dtype=torch.int32)}),
              {"scale": torch.tensor(1.5)}) for n in (3, 2, 7)]
    return {
        "convolutions": (Convolutions(), [((torch.randn(n, 3, 16, 16),), {}) for n in (2, 1, 3)], ({0: few},)),
        "decoder": (Cached(1, 8, 2, 8, 20), steps, ({1: length}, {0: length})),
        "tagger": (Tagger("LSTM", 5, 1), [((torch.randint(0, 30, (n, 6)),), {}) for n in (2, 1, 3)], ({0: few},)),
        "encoder": (encoder(), [((torch.randn(n, 5, 8),), {}) for n in (2, 1, 3)], ({0: few},)),
        "mixed": (Mixed(), mixed, ({0: rows}, {"counts": None}, None)),
        "branches": (Branches(), [((torch.full((2, 3), v),), {}) for v in (1.5, -2.5, 0.1)], None),
        "spectra": (Spectra(), [((torch.randn(n, 16), torch.randn(n, 4, dtype=torch.complex64)), {})
                                for n in (2, 1, 3)], ({0: few}, {0: few})),
        "strided": (Strided(), [((torch.randn(n, 4) + v, torch.randn(6, 6)), {}) for n, v in ((2, 3), (1, -3), (4, 3))],
                    ({0: few}, None)),
        "written": (Written(), [((torch.randn(3, 4), torch.randn(3, 4)), {}) for _ in range(2)], None),
        "sized": (Sized(), [((torch.randn(n, 2, h, w), torch.tensor(mask)), {}) for n, h, w, mask in (
            (2, 4, 5, [True, False, True, True]), (1, 3, 6, [False] * 4), (3, 5, 4, [True] * 4))],
            ({0: Dim("some"), 2: Dim("height", min=3, max=9), 3: Dim("width", min=3, max=9)}, None)),
        "experts": (Experts(), [((torch.randn(n, 4),), {}) for n in (9, 1, 20)], ({0: Dim("tokens")},)),
        "solved": (Solved(), [((torch.randn(n, 4, 4), torch.randn(n, 4, 2)), {}) for n in (2, 1, 3)],
                   ({0: Dim("several")}, {0: Dim("several")})),
        "regions": (Regions(), [((torch.randn(1, 4, 4, 6), torch.tensor(boxes[:n])), {}) for n in (2, 1)],
                    (None, {0: Dim.DYNAMIC})),
        "edges": (Edges(), [((torch.randn(n, 5), torch.randint(0, 5, (4,), dtype=torch.uint8),
                              torch.randn(1, 2, 5)), {}) for n in (3, 2, 3)], ({0: Dim.DYNAMIC}, None, None)),
        "chosen": (Chosen(), [((torch.randn(3, 4), torch.rand(3, 4) < share), {}) for share in (0.5, 0.0, 1.0)], None),
    }


def reduced(source, target):
    """An archive without what is not read, and without folders of the machine that it was made on."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w", compresslevel=9) as made:
        for one in archive.infolist():
            data = archive.read(one)
            if "/sample_inputs/" in one.filename:
                continue
            if "/models/" in one.filename:
                document = json.loads(data)
                for graph in graphs(document["graph_module"]["graph"]):
                    for node in graph["nodes"]:
                        trace = node["metadata"].get("stack_trace", "")
                        node["metadata"] = {"stack_trace": re.sub(r'"(/[^"]*)"', without_folders, trace)}
                data = json.dumps(document, separators=(",", ":")).encode()
            name = zipfile.ZipInfo("model/" + one.filename.partition("/")[2])
            made.writestr(name, data, zipfile.ZIP_DEFLATED)


def without_folders(match):
    path = pathlib.PurePath(match[1])
    return f'"/site-packages/{path.name}"' if "site-packages" in path.parts else f'"{path.name}"'


def graphs(graph):
    yield graph
    for node in graph["nodes"]:
        for one in node["inputs"]:
            if "as_graph" in one["arg"]:
                yield from graphs(one["arg"]["as_graph"]["graph"])


def promotions():
    """torch.promote_types of all pairs, as words of Tenon: "f16 i32 f16"."""
    types = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
             "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
             "f64": torch.float64}
    words = {kind: word for word, kind in types.items()}
    return [f"{a} {b} {words[torch.promote_types(types[a], types[b])]}" for a in types for b in types]


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(3)
    names = sys.argv[1:]
    arrays = dict(np.load(FOLDER / "expected.npz")) if names else {"promotions": np.array(promotions())}
    arrays = {key: array for key, array in arrays.items() if key.partition(".")[0] not in names}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, (module, calls, sizes) in modules().items():
            if names and name not in names:
                continue
            record(name, module, calls, sizes, folder)
            for form in FORMS.get(name, [name]):
                reduced(folder / f"{form}.pt2", FOLDER / f"{form}.pt2")
            held = np.load(folder / f"{name}.npz")
            arrays.update({f"{name}.{key}": held[key] for key in held.files})
    np.savez_compressed(FOLDER / "expected.npz", **arrays)


if __name__ == "__main__":
    main()

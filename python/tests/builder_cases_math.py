"""Cases of element-wise builders, activations, einsum, windows and spectra, and of what is taken apart from
decompositions. Expected values come from NumPy in float64."""
import math

import numpy as np

from op_cases import Cases, TOLERANCE, as_type, main, to_double
from op_cases_math import philox

FLOATS = ["f32", "f16", "bf16", "f64"]


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf, otypes=[np.float64])
ACTIVATIONS = {
    "selu": (lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))), {}),
    "celu": (lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha)),
             {"alpha": 1.7}),
    "quick_gelu": (lambda x: x * _sigmoid(1.702 * x), {}),
    "thresholded_relu": (lambda x, alpha: np.where(x > alpha, x, 0), {"alpha": 0.5}),
    "softsign": (lambda x: x / (1 + np.abs(x)), {}),
    "logsigmoid": (lambda x: -np.logaddexp(0, -x), {}),
    "tanhshrink": (lambda x: x - np.tanh(x), {}),
    "softshrink": (lambda x, alpha: np.sign(x) * np.maximum(np.abs(x) - alpha, 0), {"alpha": 0.75}),
    "hardshrink": (lambda x, alpha: np.where(np.abs(x) > alpha, x, 0), {"alpha": 0.75}),
}
GATES = {"swiglu": lambda x: x * _sigmoid(x), "geglu": lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2,
         "reglu": lambda x: np.maximum(x, 0)}
SPECIALS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, np.inf, -np.inf, np.nan, 1e30]


class Maker:
    def __init__(self, cases: Cases):
        self.cases, self.rng, self.small = cases, cases.rng, cases.small

    def rounds(self, most):
        return 1 if self.small else most

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def shape(self, least=1, most=3):
        rank = int(self.rng.integers(least, most + 1))
        shape = tuple(int(self.rng.choice([1, 2, 3, 5, 7])) for _ in range(rank))
        if rank and self.rng.random() < 0.3:
            shape = shape[:-1] + (int(self.rng.choice([15, 16, 17, 33])),)
        return shape

    def reals(self, dtype, shape, low=-3.0, high=3.0):
        return as_type(self.rng.uniform(low, high, shape), dtype)

    def add(self, builder, inputs, y, dtype, attributes=None, factor=8):
        """Results of several roundings: `factor` times the tolerance of one."""
        absolute, relative = TOLERANCE.get(dtype, (0, 0))
        scale = max(1.0, float(np.max(np.abs(y), initial=0, where=np.isfinite(y)))) if absolute else 0
        tolerance = (factor * max(absolute, relative) * scale, factor * relative)
        self.cases.add(builder, inputs, as_type(y, dtype), attributes, tolerance)

    # --- element-wise

    def activations(self):
        for builder, (function, attributes) in ACTIVATIONS.items():
            for _ in range(self.rounds(4)):
                dtype = self.pick(FLOATS)
                x = self.reals(dtype, self.shape())
                self.add(builder, [x], function(to_double(x), **attributes), dtype, attributes)
        for _ in range(self.rounds(4)):
            dtype = self.pick(FLOATS)
            x, slope = self.reals(dtype, (2, 3, 5)), self.reals(dtype, (3, 1))
            y = to_double(x) * np.where(to_double(x) < 0, to_double(slope), 1)
            self.add("prelu", [x, slope], y, dtype)
        for builder, function in GATES.items():
            for _ in range(self.rounds(3)):
                dtype, axis = self.pick(FLOATS), int(self.rng.integers(3))
                x = self.reals(dtype, (2, 4, 6))
                gate, up = np.split(to_double(x), 2, axis)
                self.add(builder, [x], function(gate) * up, dtype, {"axis": axis})

    def pointwise(self):
        for _ in range(self.rounds(4)):
            dtype = self.pick(["f32", "f64"])
            a, b = self.reals(dtype, (4, 1), -9, 9), self.reals(dtype, (7,), 0.5, 4)
            self.add("floor_div", [a, b], np.floor_divide(to_double(a), to_double(b)), dtype)
        a = np.array([7, -7, 7, -7, 0, 9, -128], np.int8)
        b = np.array([2, 2, -2, -2, 3, 3, 5], np.int8)
        self.cases.add("floor_div", [a, b], a // b)
        a, b = np.meshgrid([0.0, 1.0, 2.0, np.nan], [0.0, 0.5, 3.0, np.inf, np.nan])
        y = np.where((a == 0) & ~np.isnan(b), 0, a * np.log(b))
        self.add("xlogy", [a, b], y, "f64")
        for _ in range(self.rounds(3)):
            dtype = self.pick(FLOATS)
            a, b, w = (self.reals(dtype, s) for s in [(3, 5), (5,), (3, 1)])
            y = to_double(a) + to_double(w) * (to_double(b) - to_double(a))
            self.add("lerp", [a, b, w], y, dtype)
        a = np.array([1.0, 1.0, np.inf, np.inf, np.nan, 1e-9, 100.0, 1.0, -np.inf])
        b = np.array([1.0, 1.00002, np.inf, -np.inf, np.nan, 0.0, 100.0005, np.inf, 3.0])
        for equal_nan in [False, True]:
            self.cases.add("isclose", [a, b], np.isclose(a, b, equal_nan=equal_nan), {"equal_nan": equal_nan})
        for dtype in ["f32", "f64", "f16"]:
            x = as_type(SPECIALS, dtype)
            self.cases.add("nan_to_num", [x], np.nan_to_num(x, nan=2), {"nan": 2})

    # --- sums of products

    def einsum(self):
        equations = {
            "ij,jk->ik": [(3, 4), (4, 5)], "ij,jk": [(3, 4), (4, 5)], "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
            "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)], "ij,jk,kl->il": [(3, 4), (4, 5), (5, 2)],
            "ii": [(4, 4)], "ii->i": [(4, 4)], "iji->j": [(3, 5, 3)], "ij->": [(3, 4)], "ji": [(3, 4)],
            "...i,...i->...": [(2, 3, 4), (3, 4)], "...ij,...jk": [(2, 1, 3, 4), (5, 4, 6)], "i...->...": [(3, 2, 4)],
            "i,j->ij": [(3,), (4,)], "i,i": [(5,), (5,)], "ij,ij->ij": [(3, 4), (1, 4)], "ij,kl->ijkl": [(2, 3), (4, 5)],
            "abc,cd,bd->ad": [(2, 3, 4), (4, 5), (3, 5)], "ij,kj->": [(3, 4), (5, 4)], ",ij->ij": [(), (3, 4)],
            "...,...->...": [(3, 1), (1, 4)], "ijk,jil->kl": [(2, 3, 4), (3, 2, 5)], "bn,anm,bm->ba": [(2, 3), (4, 3, 5), (2, 5)],
            "ab,bc->ac": [(0, 3), (3, 2)], "a b , b c -> c a": [(2, 0), (0, 3)],
        }
        for equation, shapes in equations.items():
            dtype = "f32" if self.small else self.pick(["f32", "f64", "i32", "i64"])
            if dtype[0] == "i":
                xs = [self.rng.integers(-9, 10, s).astype(as_type(0, dtype).dtype) for s in shapes]
            else:
                xs = [self.reals(dtype, s) for s in shapes]
            spaceless = equation.replace(" ", "")
            y = np.einsum(spaceless, *[to_double(x) for x in xs])
            self.add("einsum", xs, y, dtype, {"equation": equation})

    def products(self):
        x, y = self.reals("f32", (3, 4)), self.reals("f32", (5, 4))
        a, b = to_double(x), to_double(y)
        self.add("outer", [x, y], np.outer(a, b), "f32")
        self.add("inner", [x, y], np.inner(a, b), "f32")
        self.add("kron", [x, y], np.kron(a, b), "f32")
        z = self.reals("f32", (4, 2, 3))
        self.add("tensordot", [x, z], np.tensordot(a, to_double(z), 1), "f32", {"axes": 1})
        for offset in [0, 1, -1, 3]:
            w = self.reals("f32", (3, 2, 4))
            v = np.diagonal(to_double(w), offset, 0, 2)
            self.add("diagonal", [w], v, "f32", {"offset": offset, "axes": [0, 2]})
            self.add("trace", [w], v.sum(-1), "f32", {"offset": offset, "axes": [0, 2]})

    def random(self):
        key = self.rng.integers(0, 2**32, 2, dtype=np.uint32)
        words = philox(0, 0, [int(k) for k in key], 30).astype(np.float64)
        u = np.floor(words / 2**8) / 2**24
        self.cases.add("random_uniform", [key], as_type(u.reshape(5, 6), "f32"), {"shape": [5, 6], "dtype": "f32"})
        u = (np.floor(words[:15] / 2**5) * 2**26 + np.floor(words[15:] / 2**6)) / 2**53
        self.cases.add("random_uniform", [key], u.reshape(3, 5), {"shape": [3, 5], "dtype": "f64"})
        u = np.floor(words / 2**8) / 2**24
        radius, angle = np.sqrt(-2 * np.log(1 - u[:15])), 2 * np.pi * u[15:]
        normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:29]
        self.add("random_normal", [key], normal, "f32", {"shape": [29], "dtype": "f32"})
        whole = np.floor(words * 10 / 2**32) - 3
        self.cases.add("random_integers", [key], as_type(whole.reshape(2, 15), "i32"), {"shape": [2, 15], "dtype": "i32"})
        x = self.reals("f32", (5, 6))
        y = np.where(u.reshape(5, 6) < 0.25, 0, to_double(x) / 0.75)
        self.add("dropout", [key, x], y, "f32", {"rate": 0.25})
        order = np.argsort(-words, kind="stable")
        self.cases.add("random_permutation", [key], order.astype(np.int32), {"size": 30})

    # --- spectra

    def signal(self):
        for builder, function in {"hann_window": np.hanning, "hamming_window": np.hamming}.items():
            for size in [1, 2, 9]:
                for periodic in [False, True]:
                    y = function(size + 1)[:-1] if periodic and size > 1 else function(size)
                    self.add(builder, [], y, "f64", {"size": size, "periodic": periodic})
        for center in [False, True]:
            x, window = self.reals("f32", (2, 40)), self.reals("f32", (12,))
            y = _stft(to_double(x), to_double(window), 5, center)
            y = np.stack([y.real, y.imag], -1)
            self.add("stft", [x, window], y, "f32", {"hop": 5, "center": center}, 100)
        for scale in ["slaney", "htk"]:
            self.add("mel_filters", [], _mel_filters(5, 64, 8000, 50, 3500, scale), "f32", {"scale": scale})
        x = self.reals("f32", (2, 800), -0.5, 0.5)
        power = np.abs(_stft(to_double(x), np.hanning(401)[:-1], 160, True)[:, :-1]) ** 2
        y = np.log10(np.maximum(_mel_filters(8, 400, 16000, 0, 8000, "slaney") @ np.swapaxes(power, 1, 2), 1e-10))
        y = (np.maximum(y, y.max((1, 2), keepdims=True) - 8) + 4) / 4
        self.add("log_mel_spectrogram", [x], y, "f32", {"mels": 8}, 100)


def _stft(x, window, hop, center):
    n = len(window)
    if center:
        x = np.pad(x, [(0, 0), (n // 2, n // 2)], mode="reflect")
    frames = [x[:, i : i + n] * window for i in range(0, x.shape[1] - n + 1, hop)]
    return np.fft.rfft(np.stack(frames, 1))


def _mel_filters(mels, size, rate, low, high, scale):
    """librosa.filters.mel: Slaney's with area 1, HTK's with height 1."""
    def to_mel(hertz):
        if scale == "htk":
            return 2595 * np.log10(1 + hertz / 700)
        return hertz * 3 / 200 if hertz < 1000 else 15 + np.log(hertz / 1000) / (np.log(6.4) / 27)

    def to_hertz(mel):
        if scale == "htk":
            return 700 * (10 ** (mel / 2595) - 1)
        return mel * 200 / 3 if mel < 15 else 1000 * np.exp((mel - 15) * np.log(6.4) / 27)

    corners = np.array([to_hertz(m) for m in np.linspace(to_mel(low), to_mel(high), mels + 2)])
    bins = np.fft.rfftfreq(size, 1 / rate)
    y = []
    for left, middle, right in zip(corners, corners[1:], corners[2:]):
        triangle = np.maximum(0, np.minimum((bins - left) / (middle - left), (right - bins) / (right - middle)))
        y.append(triangle * (2 / (right - left) if scale == "slaney" else 1))
    return np.array(y)


def generate(cases):
    maker = Maker(cases)
    for family in (maker.activations, maker.pointwise, maker.einsum, maker.products, maker.random,
                   maker.signal):
        family()


if __name__ == "__main__":
    main(generate, __doc__)

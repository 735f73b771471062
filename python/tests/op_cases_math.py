"""Cases of special functions, bits, random bits, Fourier transforms and linear algebra. Expected values come
from NumPy (and math) in float64, rounded once to the output's type."""
import math
import statistics

import numpy as np

from op_cases import Cases, TOLERANCE, as_type, main, to_double

FLOATS = ["f32", "f16", "bf16", "f64"]
INTEGERS = ["i32", "i8", "i16", "i64", "u8", "u16", "u32"]
BROADCASTS = [((3, 4), (3, 4)), ((2, 3, 5), (5,)), ((4, 1), (1, 7)), ((), (3,)), ((0, 3), (1, 3)), ((17,), ())]


def _vectorized(function):
    return np.vectorize(function, otypes=[np.float64])


def _zeta(s, x):
    """Hurwitz's: the terms below x + k = 40, and the Euler-Maclaurin formula to B_6."""
    total = 0.0
    while x < 40:
        total += x**-s
        x += 1
    total += x ** (1 - s) / (s - 1) + x**-s / 2 + s * x ** (-s - 1) / 12
    total -= s * (s + 1) * (s + 2) * x ** (-s - 3) / 720
    return total + s * (s + 1) * (s + 2) * (s + 3) * (s + 4) * x ** (-s - 5) / 30240


def _digamma(x):
    if x < 0:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    total = 0.0
    while x < 40:
        total -= 1 / x
        x += 1
    return total + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _polygamma(order, x):
    if x < 0:
        return (math.pi / math.sin(math.pi * x)) ** 2 - _polygamma(1, 1 - x)
    return (-1) ** (order + 1) * math.factorial(order) * _zeta(order + 1, x)


# name: (function of float64, low, high)
REAL_UNARY = {
    "sinh": (np.sinh, -9, 9), "cosh": (np.cosh, -9, 9), "asinh": (np.arcsinh, -99, 99),
    "acosh": (np.arccosh, 1, 99), "atanh": (np.arctanh, -0.99, 0.99), "erfc": (_vectorized(math.erfc), -3, 5),
    "erfinv": (_vectorized(lambda x: statistics.NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2)), -0.99, 0.99),
    "lgamma": (_vectorized(math.lgamma), 0.01, 50), "digamma": (_vectorized(_digamma), 0.01, 50),
}
SPECIALS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -0.5, np.inf, -np.inf, np.nan, 1e-30, 1e30, -1e30]
BITS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
        "shift_left": np.left_shift, "shift_right": np.right_shift}


def philox(first, stream, key, count):
    """Words of Philox4x32-10 (Salmon et al., 2011) of consecutive counters."""
    mask = 0xFFFFFFFF
    words = []
    for block in range(-(-count // 4)):
        low, high = (first + block) % 2**64, stream % 2**64
        c, k = [low & mask, low >> 32, high & mask, high >> 32], list(key)
        for _ in range(10):
            p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
            k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
        words += c
    return np.array(words[:count], np.uint32)


class Maker:
    def __init__(self, cases: Cases):
        self.cases, self.rng, self.small = cases, cases.rng, cases.small

    def rounds(self, most):
        return 1 if self.small else most

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def shape(self, most=3):
        shape = tuple(int(self.rng.choice([1, 2, 3, 5, 7])) for _ in range(int(self.rng.integers(0, most + 1))))
        if shape and self.rng.random() < 0.4:
            shape = shape[:-1] + (int(self.rng.choice([0, 15, 16, 17, 33])),)
        return shape

    def reals(self, dtype, shape, low=-3.0, high=3.0):
        return as_type(self.rng.uniform(low, high, shape), dtype)

    def integers(self, dtype, shape):
        if dtype == "bool":
            return self.rng.random(shape) < 0.5
        kind = as_type(0, dtype).dtype
        limits = np.iinfo(kind)
        return self.rng.integers(limits.min, limits.max, shape, endpoint=True, dtype=kind)

    def unary(self):
        for op, (function, low, high) in REAL_UNARY.items():
            for dtype in ["f32"] + [self.pick(FLOATS) for _ in range(self.rounds(5))]:
                x = self.reals(dtype, self.shape(), low, high)
                y = function(to_double(x)) if x.shape != (0,) else to_double(x)
                self.cases.add(op, [x], as_type(y, dtype))
        for op in ["sinh", "cosh", "asinh", "acosh", "atanh", "erfc"]:
            x = as_type(SPECIALS, "f64")
            self.cases.add(op, [x], REAL_UNARY[op][0](x))
        x = as_type([-0.5, -1.5, -2.25, -7.75], "f64")
        self.cases.add("lgamma", [x], _vectorized(math.lgamma)(x))
        self.cases.add("digamma", [x], _vectorized(_digamma)(x), None, (1e-11, 1e-11))
        self.cases.add("polygamma", [x], _vectorized(_polygamma)(1, x), {"order": 1}, (1e-11, 1e-11))
        for _ in range(self.rounds(4)):
            dtype, order = self.pick(["f32", "f64"]), int(self.rng.integers(1, 5))
            x = self.reals(dtype, (7,), 0.5, 20)
            y = _vectorized(_polygamma)(order, to_double(x))
            self.cases.add("polygamma", [x], as_type(y, dtype), {"order": order}, (1e-6, 1e-5))

    def binary(self):
        for op, function in {"atan2": np.arctan2, "hypot": np.hypot}.items():
            for _ in range(self.rounds(6)):
                dtype, (left, right) = self.pick(FLOATS), self.pick(BROADCASTS)
                a, b = self.reals(dtype, left), self.reals(dtype, right)
                self.cases.add(op, [a, b], as_type(function(to_double(a), to_double(b)), dtype))
            a, b = np.meshgrid(SPECIALS, SPECIALS)
            self.cases.add(op, [a, b], function(a, b))
        for op, function in BITS.items():
            for _ in range(self.rounds(6)):
                shifts = op.startswith("shift")
                dtype, (left, right) = self.pick(INTEGERS if shifts else INTEGERS + ["bool"]), self.pick(BROADCASTS)
                a, b = self.integers(dtype, left), self.integers(dtype, right)
                if shifts and self.rng.random() < 0.8:
                    b = np.asarray(b % 9, a.dtype)
                self.cases.add(op, [a, b], np.asarray(function(a, b)))
        for dtype in ["i8", "u32", "bool"]:
            x = self.integers(dtype, (9,))
            self.cases.add("bitwise_not", [x], ~x)

    def random(self):
        for dims, number in [([3, 5], None), ([133], np.int64(2**32 - 2)), ([2, 0], np.int32(4)), ([], np.uint32(7))]:
            key = self.integers("u32", (2,))
            stream = int(self.rng.integers(-9, 9))
            words = philox(int(number or 0), stream, [int(k) for k in key], int(np.prod(dims)))
            inputs = [key] if number is None else [key, np.array(number)]
            self.cases.add("random_bits", inputs, words.reshape(dims), {"dims": dims, "stream": stream})

    def spectra(self):
        def parts(z):
            return np.stack([z.real, z.imag], -1)

        sizes = [1, 2, 3, 8, 15, 37, 74] if self.small else [1, 4, 5, 6, 7, 16, 49, 60, 97, 128, 202, 400]
        for size in sizes:
            dtype, axis = self.pick(["f32", "f64"]), int(self.rng.integers(2))
            shape = [size, 3] if axis == 0 else [3, size]
            x = self.reals(dtype, shape + [2])
            z = to_double(x) @ np.array([1, 1j])
            absolute = (1e-5 if dtype == "f32" else 1e-12) * max(4.0, size**0.5)
            for inverse, function in [(False, np.fft.fft), (True, np.fft.ifft)]:
                y = as_type(parts(function(z, axis=axis)), dtype)
                self.cases.add("fft", [x], y, {"axis": axis, "inverse": inverse}, (absolute, 1e-6))
            x = self.reals(dtype, shape)
            y = as_type(parts(np.fft.rfft(to_double(x), axis=axis)), dtype)
            self.cases.add("rfft", [x], y, {"axis": axis}, (absolute, 1e-6))
            shape[axis] = size // 2 + 1
            x = self.reals(dtype, shape + [2])
            y = np.fft.irfft(to_double(x) @ np.array([1, 1j]), size, axis=axis)
            self.cases.add("irfft", [x], as_type(y, dtype), {"axis": axis, "size": size}, (absolute, 1e-6))

    def matrices(self):
        sizes = [1, 3, 6] if self.small else [0, 1, 2, 5, 9, 17, 30]
        for n in sizes:
            dtype = self.pick(["f32", "f64"])
            lead = self.pick([[], [2], [2, 2]])
            tolerance = (1e-4, 1e-4) if dtype == "f32" else (1e-10, 1e-10)
            a = self.rng.uniform(-1, 1, lead + [n, n]) + 3 * np.eye(n) * self.rng.choice([-1, 1])
            a = as_type(a, dtype)
            wide = to_double(a)
            b = self.reals(dtype, lead + [n, 4])
            self.cases.add("solve", [a, b], as_type(np.linalg.solve(wide, to_double(b)), dtype), None, tolerance)
            self.cases.add("det", [a], as_type(np.linalg.det(wide), dtype), None, (tolerance[0] * 10, tolerance[1]))
            y = as_type(np.stack(np.linalg.slogdet(wide), -1), dtype)
            self.cases.add("slogdet", [a], y, None, tolerance)
            for lower in [False, True]:
                transposed, unit = bool(self.rng.integers(2)), bool(self.rng.integers(2))
                used = np.tril(wide) if lower else np.triu(wide)
                if unit:
                    used = used * (1 - np.eye(n)) + np.eye(n)
                used = np.swapaxes(used, -1, -2) if transposed else used
                y = as_type(np.linalg.solve(used, to_double(b)), dtype)
                attributes = {"lower": lower, "transposed": transposed, "unit": unit}
                self.cases.add("triangular_solve", [a, b], y, attributes, tolerance)
            symmetric = (wide + np.swapaxes(wide, -1, -2)) / 2
            definite = as_type(wide @ np.swapaxes(wide, -1, -2), dtype)
            both = to_double(definite)
            y = np.linalg.cholesky((both + np.swapaxes(both, -1, -2)) / 2)
            self.cases.add("cholesky", [definite], as_type(y, dtype), None, tolerance)
            w, v = np.linalg.eigh(symmetric)
            if n:
                largest = np.take_along_axis(v, np.abs(v).argmax(-2)[..., None, :], -2)
                v = v * np.sign(largest)
            y = np.concatenate([w[..., None, :], v], -2)
            self.cases.add("eigh", [a], as_type(y, dtype), None, tolerance)
            m = self.pick([max(n, 1), n + 2, max(n - 1, 1)])
            a = self.reals(dtype, lead + [m, n])
            u, s, v = np.linalg.svd(to_double(a), full_matrices=False)
            if n:
                sign = np.sign(np.take_along_axis(v, np.abs(v).argmax(-1)[..., None], -1))
                u, v = u * np.swapaxes(sign, -1, -2), v * sign
            y = np.concatenate([np.swapaxes(u, -1, -2), s[..., None], v], -1)
            self.cases.add("svd", [a], as_type(y, dtype), None, (50 * tolerance[0], tolerance[1]))


def generate(cases):
    maker = Maker(cases)
    for family in (maker.unary, maker.binary, maker.random, maker.spectra, maker.matrices):
        family()


if __name__ == "__main__":
    main(generate, __doc__)

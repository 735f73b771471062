"""Cases of arithmetic in c64 and u64, which is recorded as ops of f32 and i64, and of transforms of c64. Expected
values come from NumPy, of c64 in complex128."""
import numpy as np

from op_cases import Cases, as_type, main

SPECIALS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, 1e15, np.inf, -np.inf, np.nan]
UNARY = {
    "neg": np.negative, "square": np.square, "reciprocal": np.reciprocal, "sqrt": np.sqrt, "exp": np.exp, "log": np.log,
    "sin": np.sin, "cos": np.cos, "conj": np.conj, "rsqrt": lambda z: 1 / np.sqrt(z),
    "sign": lambda z: z / np.where(z == 0, 1, np.abs(z)),
}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
U64_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "pow": np.power, "minimum": np.minimum,
    "maximum": np.maximum, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}
TOP = 2**64


class Maker:
    def __init__(self, cases: Cases):
        self.cases, self.rng, self.small = cases, cases.rng, cases.small

    def rounds(self, most):
        return 1 if self.small else most

    def shape(self, least=0, most=3):
        return tuple(int(self.rng.choice([0, 1, 2, 3, 5, 17], p=[.05, .15, .2, .25, .25, .1]))
                     for _ in range(int(self.rng.integers(least, most + 1))))

    def real(self, shape, low=-3.0, high=3.0):
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def complex(self, shape):
        return (self.real(shape) + 1j * self.real(shape)).astype(np.complex64)

    def whole(self, shape):
        """Numbers of every length, and those around the ends of i64 and u64."""
        bits = self.rng.integers(0, TOP, shape, np.uint64) >> self.rng.integers(0, 64, shape, np.uint64)
        special = self.rng.choice(np.array([0, 1, 2, TOP // 2 - 1, TOP // 2, TOP // 2 + 1, TOP - 1], np.uint64), shape)
        return np.where(self.rng.random(shape) < .3, special, bits).astype(np.uint64)

    def add(self, builder, inputs, y, attributes=None, factor=10):
        dtype = "c64" if np.iscomplexobj(y) else "f32" if np.asarray(y).dtype.kind == "f" else None
        y = np.asarray(y) if dtype is None else as_type(y, dtype)
        finite = np.abs(y)[np.isfinite(y)] if dtype else np.zeros(0)
        tolerance = (2e-6 * factor * max(1.0, float(np.max(finite, initial=0))), 0) if dtype else (0, 0)
        self.cases.add(builder, inputs, y, attributes, tolerance)

    def parts(self):
        z, x, y = self.complex((2, 3)), self.real((2, 3)), self.real((2, 3))
        self.add("view_as_real", [z], np.stack([z.real, z.imag], -1))
        self.add("view_as_complex", [np.stack([x, y], -1)], (x + 1j * y).astype(np.complex64))
        self.add("view_as_complex", [np.stack([x, y], -1)], (x + 1j * y).T.copy(), {"transposed": True})
        self.add("make_complex", [x, y], x + 1j * y)
        self.add("polar", [x, y], x * np.exp(1j * y.astype("f8")))
        self.add("cast", [x], x.astype(np.complex64))
        self.add("cast", [np.array([True, False])], np.array([1, 0], np.complex64))
        for builder, function in (("real", np.real), ("imag", np.imag), ("abs", np.abs), ("angle", np.angle)):
            self.add(builder, [z], function(z.astype("c16")))
        self.add("real", [x], x)
        self.add("angle", [x], np.angle(x))

    def unary(self):
        for _ in range(self.rounds(8)):
            for builder, function in UNARY.items():
                z = self.complex(self.shape())
                self.add(builder, [z], function(z.astype("c16")))
        grid = np.array([complex(a, b) for a in SPECIALS for b in SPECIALS], np.complex64)
        for builder, function in (("is_nan", np.isnan), ("is_inf", np.isinf), ("is_finite", np.isfinite)):
            self.add(builder, [grid], function(grid))
        self.add("abs", [grid], np.abs(grid), factor=0)
        self.add("angle", [grid], np.angle(grid))
        roots = grid[np.isfinite(grid) & (np.abs(grid) < 10)]
        self.add("sqrt", [roots], np.sqrt(roots.astype("c16")))
        self.add("log", [roots[roots != 0]], np.log(roots[roots != 0].astype("c16")))

    def binary(self):
        for _ in range(self.rounds(8)):
            for builder, function in BINARY.items():
                shape = self.shape()
                other = tuple(n if self.rng.random() < .7 else 1 for n in shape)
                other = other[int(self.rng.integers(len(shape) + 1)):]
                a, b = self.complex(shape), self.complex(other)
                self.add(builder, [a, b], function(a.astype("c16"), b.astype("c16")), factor=40)
                r = self.real(other, .5, 2)
                self.add(builder, [a, r], function(a.astype("c16"), r.astype("f8")))
                self.add(builder, [r, a], function(r.astype("f8"), a.astype("c16")), factor=40)
        a, b = (np.array(one, np.complex64) for one in zip(*(
            (x, y) for x in (0, 1, 1j, 1 - 2j, complex(np.inf, 1)) for y in (0, 2, 2j, 3 - 1j, 1e30 + 1e30j))))
        with np.errstate(all="ignore"):
            self.add("div", [a, b], (a.astype("c16") / b.astype("c16")).astype(np.complex64))
        same = np.array([0, -0.0, 1 + 1j, complex(np.nan, 1), 2], np.complex64)
        for builder, function in (("eq", np.equal), ("ne", np.not_equal)):
            self.add(builder, [same, same[::-1].copy()], function(same, same[::-1]))
            self.add(builder, [same, same.real.copy()], function(same, same.real))
        base, by = np.array([0, 0, 2, 1 + 1j, -1], np.complex64), np.array([0, 2, .5, 1 - 1j, .5], np.complex64)
        self.add("pow", [base, by], np.array([1, 0, *np.power(base[2:].astype("c16"), by[2:].astype("c16"))]))

    def reductions_and_products(self):
        for _ in range(self.rounds(6)):
            z = self.complex((3, int(self.rng.integers(1, 5)), 4))
            for builder, function in (("sum", np.sum), ("mean", np.mean), ("cumsum", np.cumsum)):
                self.add(builder, [z], function(z.astype("c16"), axis=1), {"axis": 1})
            w, m = self.complex((5, 4)), self.real((4, 2))
            bias = self.complex((5,))
            self.add("linear", [z, w, bias], z.astype("c16") @ w.T.astype("c16") + bias)
            for a, b in ((z, w.T.copy()), (z, m), (m.T.copy(), w.T.copy()), (z[0, 0], z[1, 0])):
                self.add("matmul", [a, b], a.astype("c16") @ b.astype("c16"))
            self.add("einsum", [z, w], np.einsum("abk,nk->nb", z.astype("c16"), w.astype("c16")),
                     {"equation": "abk,nk->nb"})
        x, index, source = self.complex((3, 4)), self.rng.integers(0, 3, (2, 4)).astype(np.int32), self.complex((2, 4))
        for mode in ("set", "add"):
            y = x.astype("c16")
            for i, j in np.ndindex(2, 4):
                y[index[i, j], j] = source[i, j] + (y[index[i, j], j] if mode == "add" else 0)
            self.add("scatter", [x, index, source], y, {"mode": mode})

    def transforms(self):
        for size in (1, 2, 5, 6, 16, 31):
            z, x = self.complex((2, size, 3)), self.real((2, size, 3))
            self.add("fft", [z], np.fft.fft(z, axis=1), {"axis": 1}, 100)
            self.add("ifft", [z], np.fft.ifft(z, axis=1), {"axis": 1}, 100)
            half = np.fft.rfft(x, axis=1).astype(np.complex64)
            self.add("rfft", [x], half, {"axis": 1}, 100)
            self.add("irfft", [half], np.fft.irfft(half, size, 1), {"axis": 1, "size": size}, 100)
        z = self.complex((2, 4, 6))
        self.add("fft", [z], np.fft.fft(z), factor=100)
        self.add("fft2", [z], np.fft.fft2(z), factor=100)
        self.add("ifft2", [z], np.fft.ifft2(z), factor=100)

    def moves(self):
        z, other = self.complex((3, 4)), self.complex((3, 4))
        rows = np.array([2, 0, 2], np.int64)
        self.add("where", [z.real > 0, z, other], np.where(z.real > 0, z, other), factor=0)
        self.add("gather", [z, rows], z[rows], factor=0)
        self.add("pad", [z], np.pad(z, ((1, 0), (0, 2)), constant_values=1.5), factor=0)
        self.add("concat", [z, other], np.concatenate([z, other], 1), factor=0)
        self.add("slice", [z], z[:, 3:0:-2].T.copy(), factor=0)

    def whole_numbers(self):
        for _ in range(self.rounds(8)):
            shape = self.shape(1, 3)
            for builder, function in U64_BINARY.items():
                a, b = self.whole(shape), self.whole(shape[-1:])
                self.add(builder, [a, b], function(a, b))
            a, b = self.whole((40,)), self.whole((40,))
            zero = b == 0
            divisor = np.where(zero, 1, b).astype(np.uint64)
            self.add("div", [a, b], np.where(zero, 0, a // divisor).astype(np.uint64))
            for builder in ("remainder", "fmod"):
                self.add(builder, [a, b], np.where(zero, 0, a % divisor).astype(np.uint64))
            by = np.where(self.rng.random(40) < .8, self.rng.integers(0, 70, 40, np.uint64), b).astype(np.uint64)
            inside = np.minimum(by, 63)
            self.add("shift_left", [a, by], np.where(by > 63, 0, a << inside).astype(np.uint64))
            self.add("shift_right", [a, by], np.where(by > 63, 0, a >> inside).astype(np.uint64))
            m = self.whole((3, 7))
            for builder, function in (("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min),
                                      ("cumsum", np.cumsum), ("cumprod", np.cumprod), ("sort", np.sort),
                                      ("cummax", np.maximum.accumulate), ("cummin", np.minimum.accumulate)):
                self.add(builder, [m], function(m, axis=1), {"axis": 1})
            for builder, function in (("argmax", np.argmax), ("argmin", np.argmin)):
                self.add(builder, [m], function(m, axis=1).astype(np.int64), {"axis": 1})
            order = np.argsort(m, axis=1, kind="stable").astype(np.int32)
            self.add("argsort", [m], order, {"axis": 1})
            self.add("topk", [m], np.sort(m, axis=1)[:, :-4:-1], {"k": 3})
            self.add("matmul", [m, m.T.copy()], m @ m.T)
            self.add("neg", [a], np.negative(a))
            self.add("bitwise_not", [a], ~a)
            self.add("abs", [a], a)
            self.add("sign", [a], np.sign(a))
            self.add("square", [a], a * a)
            ascending = np.sort(a)
            self.add("searchsorted", [ascending, b], np.searchsorted(ascending, b).astype(np.int32))
            index = self.rng.integers(0, 3, (2, 7)).astype(np.int32)
            source = self.whole((2, 7))
            for mode, function in (("add", np.add), ("mul", np.multiply), ("min", np.minimum), ("max", np.maximum)):
                y = m.copy()
                for i, j in np.ndindex(2, 7):
                    y[index[i, j], j] = function(y[index[i, j], j], source[i, j])
                self.add("scatter", [m, index, source], y, {"mode": mode})


def generate(cases):
    maker = Maker(cases)
    for family in (maker.parts, maker.unary, maker.binary, maker.reductions_and_products, maker.transforms, maker.moves,
                   maker.whole_numbers):
        family()


if __name__ == "__main__":
    main(generate, __doc__)

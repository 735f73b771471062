"""Cases of the array ops: pointwise, reductions, norms, shapes, indexing. Expected values come from
NumPy (and math, where NumPy has no such function) in float64, rounded once to the output's type."""
import math

import numpy as np

from op_cases import Bf16, Cases, TOLERANCE, as_type, main, to_double

FLOATS = ["f32", "f16", "bf16", "f64"]
INTEGERS = ["i32", "i8", "i16", "i64", "u8", "u16", "u32"]
PLAIN = FLOATS + INTEGERS + ["bool"]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _softplus(x):
    return np.logaddexp(0, x)


# name: (function of float64, low, high)
REAL_UNARY = {
    "neg": (np.negative, -9, 9), "abs": (np.abs, -9, 9), "sign": (np.sign, -2, 2),
    "square": (np.square, -9, 9), "sqrt": (np.sqrt, 0, 99), "rsqrt": (lambda x: 1 / np.sqrt(x), 0.01, 99),
    "reciprocal": (np.reciprocal, 0.1, 9), "exp": (np.exp, -8, 8), "exp2": (np.exp2, -8, 8),
    "expm1": (np.expm1, -2, 2), "log": (np.log, 0.01, 99), "log2": (np.log2, 0.01, 99),
    "log1p": (np.log1p, -0.9, 9), "sin": (np.sin, -9, 9), "cos": (np.cos, -9, 9), "tan": (np.tan, -1.4, 1.4),
    "asin": (np.arcsin, -1, 1), "acos": (np.arccos, -1, 1), "atan": (np.arctan, -9, 9),
    "tanh": (np.tanh, -4, 4), "erf": (_erf, -3, 3), "floor": (np.floor, -9, 9), "ceil": (np.ceil, -9, 9),
    "trunc": (np.trunc, -9, 9), "round": (np.rint, -9, 9), "sigmoid": (_sigmoid, -9, 9),
    "relu": (lambda x: np.maximum(x, 0), -2, 2), "relu6": (lambda x: np.clip(x, 0, 6), -9, 9),
    "silu": (lambda x: x * _sigmoid(x), -9, 9), "gelu": (lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2, -5, 5),
    "gelu_tanh": (lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), -5, 5),
    "softplus": (_softplus, -30, 30), "mish": (lambda x: x * np.tanh(_softplus(x)), -9, 9),
    "hardsigmoid": (lambda x: np.clip(x + 3, 0, 6) / 6, -5, 5),
    "hardswish": (lambda x: x * np.clip(x + 3, 0, 6) / 6, -5, 5),
}
INTEGER_UNARY = {"neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square,
                 "relu": lambda x: np.maximum(x, x.dtype.type(0))}
SPECIALS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, np.inf, -np.inf, np.nan, 1e-30, -1e30]
# Ops whose value at +-inf is 0 * inf or inf / inf are left out: NumPy's formula decides it by accident.
SPECIAL_OPS = ["neg", "abs", "sign", "sqrt", "reciprocal", "exp", "log", "sin", "tanh", "floor", "round",
               "sigmoid", "relu", "relu6", "softplus"]

REAL_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "minimum": np.minimum, "maximum": np.maximum, "remainder": np.remainder, "fmod": np.fmod,
}
INTEGER_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "remainder": np.remainder, "fmod": np.fmod,
    "div": lambda a, b: np.where(b == 0, 0, np.trunc(a.astype(np.float64) / np.where(b == 0, 1, b))),
}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
           "ge": np.greater_equal}
LOGICAL = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}
BROADCASTS = [((3, 4), (3, 4)), ((2, 3, 5), (5,)), ((4, 1), (1, 7)), ((), (3,)), ((0, 3), (1, 3)),
              ((2, 1, 3), (4, 1)), ((17,), ())]


class Maker:
    def __init__(self, cases: Cases):
        self.cases, self.rng, self.small = cases, cases.rng, cases.small

    def rounds(self, most):
        """How many cases of a kind: one or two in the tree, more in a random run."""
        return 1 if self.small else most

    def shape(self, least=0, most=4):
        rank = int(self.rng.integers(least, most + 1))
        sizes = [0, 1, 2, 3, 5, 7] if self.rng.random() < 0.15 else [1, 2, 3, 5, 7]
        shape = tuple(int(self.rng.choice(sizes)) for _ in range(rank))
        if rank and self.rng.random() < 0.3:
            shape = shape[:-1] + (int(self.rng.choice([15, 16, 17, 31, 33])),)
        return shape if np.prod(shape) < 3000 else shape[-1:]

    def array(self, dtype, shape, low=-9.0, high=9.0):
        if dtype == "bool":
            return as_type(self.rng.random(shape) < 0.5, dtype)
        if dtype in FLOATS:
            return as_type(self.rng.uniform(low, high, shape), dtype)
        limits = np.iinfo(as_type(0, dtype).dtype)
        wide = self.rng.random() < 0.5
        low, high = (limits.min, limits.max) if wide else (max(-9, limits.min), 9)
        return self.rng.integers(low, high, shape, endpoint=True, dtype=as_type(0, dtype).dtype)

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def axis(self, shape):
        return int(self.rng.integers(len(shape)))

    # --- pointwise

    def unary(self):
        for op, (function, low, high) in REAL_UNARY.items():
            for _ in range(self.rounds(5)):
                dtype = self.pick(FLOATS)
                x = self.array(dtype, self.shape(), low, high)
                self.cases.add(op, [x], as_type(function(to_double(x)), dtype))
        for op, function in INTEGER_UNARY.items():
            for _ in range(self.rounds(4)):
                x = self.array(self.pick(INTEGERS), self.shape())
                self.cases.add(op, [x], np.asarray(function(x), x.dtype))
        for op in SPECIAL_OPS:
            x = as_type(SPECIALS, "f64")
            self.cases.add(op, [x], REAL_UNARY[op][0](x))
        for _ in range(self.rounds(4)):
            dtype = self.pick(FLOATS)
            x = self.array(dtype, self.shape())
            values, alpha = to_double(x), float(self.rng.uniform(0.01, 2))
            leaky = np.where(values < 0, alpha * values, values)
            self.cases.add("leaky_relu", [x], as_type(leaky, dtype), {"alpha": alpha})
            elu = np.where(values < 0, alpha * np.expm1(np.minimum(values, 0)), values)
            self.cases.add("elu", [x], as_type(elu, dtype), {"alpha": alpha})
            self.cases.add("clamp", [x], as_type(np.clip(values, -1.5, 3), dtype), {"min": -1.5, "max": 3})
            x = self.array("i16", self.shape())
            self.cases.add("clamp", [x], np.clip(x, -1, 3), {"min": -1.5, "max": 3})
        x = as_type(SPECIALS, "f32")
        for op, function in {"is_nan": np.isnan, "is_inf": np.isinf, "is_finite": np.isfinite}.items():
            self.cases.add(op, [x], function(x))
        x = self.array("bool", (9,))
        self.cases.add("logical_not", [x], ~x)

    def binary(self):
        for op, function in REAL_BINARY.items():
            for _ in range(self.rounds(6)):
                dtype, (left, right) = self.pick(FLOATS), self.pick(BROADCASTS)
                low = 0.1 if op == "pow" else -9
                a, b = self.array(dtype, left, low, 5), self.array(dtype, right, -3, 3)
                y = function(to_double(a), to_double(b))
                self.cases.add(op, [a, b], as_type(y, dtype))
            a, b = np.meshgrid(SPECIALS, SPECIALS)
            self.cases.add(op, [as_type(a, "f64"), as_type(b, "f64")], function(a, b))
        for op, function in INTEGER_BINARY.items():
            for _ in range(self.rounds(6)):
                dtype, (left, right) = self.pick(INTEGERS), self.pick(BROADCASTS)
                a, b = self.array(dtype, left), self.array(dtype, right)
                if op == "div" and dtype == "i64":  # beyond 2^53 the formula above is not exact
                    a, b = a % 100000, b % 1000
                y = function(a, b)
                if op == "div" and np.issubdtype(a.dtype, np.signedinteger):
                    low = np.iinfo(a.dtype).min
                    y = np.where((a == low) & (b == -1), low, y)
                self.cases.add(op, [a, b], np.asarray(y).astype(a.dtype))
        a = np.arange(-4, 5, dtype=np.int32).reshape(9, 1)
        b = np.arange(-3, 8, dtype=np.int32)
        power = [[_integer_power(int(x), int(y)) for y in b] for x in a[:, 0]]
        self.cases.add("pow", [a, b], np.array(power, np.int32))

    def compare(self):
        for op, function in COMPARE.items():
            for _ in range(self.rounds(4)):
                dtype, (left, right) = self.pick(PLAIN), self.pick(BROADCASTS)
                a, b = self.array(dtype, left, -1, 1), self.array(dtype, right, -1, 1)
                if isinstance(a, Bf16):
                    self.cases.add(op, [a, b], function(a.to_float(), b.to_float()))
                else:
                    self.cases.add(op, [a, b], np.asarray(function(a, b)))
            a, b = np.meshgrid(SPECIALS, SPECIALS)
            self.cases.add(op, [a, b], function(a, b))
        for op, function in LOGICAL.items():
            left, right = self.pick(BROADCASTS)
            a, b = self.array("bool", left), self.array("bool", right)
            self.cases.add(op, [a, b], np.asarray(function(a, b)))
        for _ in range(self.rounds(6)):
            dtype, (left, right) = self.pick(["f32", "i16", "f64", "bool", "u8"]), self.pick(BROADCASTS)
            a, b = self.array(dtype, left), self.array(dtype, right)
            c = self.array("bool", self.pick([left, right, ()]))
            self.cases.add("where", [c, a, b], np.where(c, a, b))

    def cast(self):
        for _ in range(self.rounds(60)):
            before, after = self.pick(PLAIN), self.pick(PLAIN)
            x = self.array(before, self.shape(), -300, 300)
            self.cases.add("cast", [x], _cast(x, after), {"dtype": after})
        x = as_type([0, -0.0, 0.9, -0.9, 300, -300, 1e30, -1e30, np.inf, -np.inf, np.nan, 65519, 65520], "f32")
        for after in PLAIN:
            self.cases.add("cast", [x], _cast(x, after), {"dtype": after})

    # --- reductions and norms

    def reduce(self):
        for op in ["sum", "mean", "prod", "max", "min", "any", "all"]:
            for _ in range(self.rounds(8)):
                shape = self.shape(0, 4)
                count = int(self.rng.integers(0, len(shape) + 1))
                axes = [int(a) for a in self.rng.permutation(len(shape))[:count]]
                keep = bool(self.rng.random() < 0.5)
                if op in ["max", "min"] and any(shape[a] == 0 for a in axes):
                    continue
                dtype = "bool" if op in ["any", "all"] else self.pick(FLOATS if op == "mean" else FLOATS + INTEGERS)
                x = self.array(dtype, shape, 0.8, 1.2) if op == "prod" else self.array(dtype, shape)
                function = getattr(np, op)
                if dtype in FLOATS:
                    y = as_type(function(to_double(x), axis=tuple(axes), keepdims=keep), dtype)
                elif op in ["sum", "prod"]:
                    y = np.asarray(function(x, axis=tuple(axes), keepdims=keep, dtype=np.int64))
                else:
                    y = np.asarray(function(x, axis=tuple(axes), keepdims=keep), x.dtype)
                absolute, relative = TOLERANCE.get(dtype, (0, 0))
                self.cases.add(op, [x], y, {"axes": axes, "keep_dims": keep}, (100 * absolute, relative))
        for op in ["argmax", "argmin"]:
            for _ in range(self.rounds(8)):
                shape = tuple(max(1, size) for size in self.shape(1, 4))
                axis, keep = self.axis(shape), bool(self.rng.random() < 0.5)
                x = self.array(self.pick(["f32", "f64", "i8", "u32", "i64"]), shape, -2, 2)
                if x.dtype.kind == "f":
                    x = np.round(x).astype(x.dtype)  # ties
                    if self.rng.random() < 0.4:
                        x[self.rng.random(shape) < 0.2] = np.nan
                dtype = self.pick(["i32", "i64"])
                y = getattr(np, op)(x, axis=axis, keepdims=keep)
                self.cases.add(op, [x], as_type(y, dtype), {"axis": axis, "keep_dims": keep, "dtype": dtype})
        for _ in range(self.rounds(8)):
            x = self.array(self.pick(FLOATS + INTEGERS + ["bool"]), self.shape(1, 4))
            axis = self.axis(x.shape)
            if isinstance(x, Bf16) or x.dtype.kind == "f":
                dtype = "bf16" if isinstance(x, Bf16) else {2: "f16", 4: "f32", 8: "f64"}[x.dtype.itemsize]
                y = as_type(np.cumsum(to_double(x), axis=axis), dtype)
                self.cases.add("cumsum", [x], y, {"axis": axis}, (1e-5, TOLERANCE[dtype][1]))
            else:
                self.cases.add("cumsum", [x], np.cumsum(x, axis=axis, dtype=np.int64), {"axis": axis})
        for _ in range(self.rounds(8)):
            x = self.array(self.pick(["f32", "i8", "i64", "f64"]), self.shape(1, 3), -2, 2)
            x = np.round(x).astype(x.dtype) if x.dtype.kind == "f" else x
            axis = self.axis(x.shape)
            k = int(self.rng.integers(0, x.shape[axis] + 1))
            # A stable ascending sort of the reversed array, read backwards: descending, ties by lower index.
            order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
            self.cases.add("topk", [x], as_type(np.take(order, range(k), axis=axis), "i32"), {"k": k, "axis": axis})

    def norms(self):
        for _ in range(self.rounds(10)):
            dtype, weight_dtype = self.pick(FLOATS), self.pick(FLOATS)
            shape = self.shape(1, 4)
            x = self.array(dtype, shape, -4, 5)
            values, eps = to_double(x), float(self.pick([1e-5, 1e-6, 0.0, 0.1]))
            if shape[-1] == 1:
                eps = 0.1  # the variance is 0
            weight, bias = (self.array(weight_dtype, shape[-1:], -2, 2) for _ in range(2))
            absolute, relative = TOLERANCE[dtype]
            tolerance = (max(1e-6, absolute), relative)
            centred = values - values.mean(-1, keepdims=True)
            y = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps)
            for parameters in ([], [weight], [weight, bias]):
                z = y * to_double(weight) if parameters else y
                z = z + to_double(bias) if len(parameters) == 2 else z
                self.cases.add("layer_norm", [x] + parameters, as_type(z, dtype), {"eps": eps}, tolerance)
            y = values / np.sqrt(np.square(values).mean(-1, keepdims=True) + eps)
            self.cases.add("rms_norm", [x], as_type(y, dtype), {"eps": eps}, tolerance)
            self.cases.add("rms_norm", [x, weight], as_type(y * to_double(weight), dtype), {"eps": eps}, tolerance)
        for _ in range(self.rounds(8)):
            dtype, shape = self.pick(FLOATS), self.shape(1, 4)
            x, axis = self.array(dtype, shape, -20, 20), self.axis(shape)
            if 0 in shape:
                y = to_double(x)
            else:
                y = to_double(x) - to_double(x).max(axis, keepdims=True)
                y = y - np.log(np.exp(y).sum(axis, keepdims=True))
            self.cases.add("log_softmax", [x], as_type(y, dtype), {"axis": axis}, (1e-5, TOLERANCE[dtype][1]))
            self.cases.add("softmax", [x], as_type(np.exp(y), dtype), {"axis": axis})

    # --- shapes and indexing

    def bitcasts(self):
        """The same bits as another type of the size, and as bytes."""
        for dtype in ("f32", "i64", "f16", "i8"):
            x = self.array(dtype, self.shape(1, 3))
            size = x.dtype.itemsize
            unsigned = x.view(f"u{size}")
            self.cases.add("bitcast", [x], unsigned, {"dtype": f"u{8 * size}"})
            self.cases.add("bitcast", [unsigned], x, {"dtype": dtype})
            if size > 1:
                parts = np.ascontiguousarray(x[..., None]).view(np.uint8)
                self.cases.add("bitcast", [x], parts, {"dtype": "u8"})
                self.cases.add("bitcast", [parts], x, {"dtype": dtype})

    def moves(self):
        for _ in range(self.rounds(10)):
            x = self.array(self.pick(["f32", "i8", "f16", "i64", "bool"]), self.shape(1, 4))
            axis, size = self.axis(x.shape), 0
            size = x.shape[axis]
            flat = self.pick([[-1], list(x.shape[::-1]), [1, *x.shape], [x.size]]) if x.size else list(x.shape[::-1])
            self.cases.add("reshape", [x], x.reshape(flat), {"dims": flat})
            order = [int(a) for a in self.rng.permutation(x.ndim)]
            self.cases.add("permute", [x], np.ascontiguousarray(x.transpose(order)), {"order": order})
            sizes = self.pick([[1, -1], [-1, 1], [size], [size, 1, 1]])
            shape = [*x.shape[:axis], *[size if s == -1 else s for s in sizes], *x.shape[axis + 1:]]
            self.cases.add("split_axis", [x], x.reshape(shape), {"axis": axis, "sizes": sizes})
            count = int(self.rng.integers(1, x.ndim - axis + 1))
            merged = [*x.shape[:axis], math.prod(x.shape[axis:axis + count]), *x.shape[axis + count:]]
            self.cases.add("merge_axes", [x], x.reshape(merged), {"axis": axis, "count": count})
            at = int(self.rng.integers(0, x.ndim + 1))
            self.cases.add("unsqueeze", [x], np.expand_dims(x, at), {"axis": at})
            self.cases.add("squeeze", [np.expand_dims(x, at)], x, {"axis": at})
            begin = int(self.rng.integers(0, size + 1))
            end, step = int(self.rng.integers(begin, size + 1)), int(self.rng.integers(1, 4))
            part = np.take(x, range(begin, end, step), axis=axis)
            self.cases.add("slice", [x], part, {"axis": axis, "begin": begin, "end": end, "step": step})
            if size:
                tail = np.take(x, range(size - 1, size), axis=axis)
                self.cases.add("slice", [x], tail, {"axis": axis, "begin": -1})
            column = np.take(x, range(0, 1), axis=axis) if size else x
            dims = [2, *x.shape]
            self.cases.add("broadcast_to", [column], np.ascontiguousarray(np.broadcast_to(column, dims)), {"dims": dims})
            like = as_type(np.zeros(dims), "u8")
            self.cases.add("broadcast_to", [column, like], np.ascontiguousarray(np.broadcast_to(column, dims)))
            self.cases.add("reshape", [x, as_type(np.zeros(x.shape[::-1]), "f32")], x.reshape(x.shape[::-1]))
            self.cases.add("stop_gradient", [column], column)
            self.cases.add("after", [column, x], column)
            before, after = ([int(v) for v in self.rng.integers(0, 3, x.ndim)] for _ in range(2))
            padded = np.pad(x, list(zip(before, after)), constant_values=1)
            self.cases.add("pad", [x], padded, {"before": before, "after": after, "value": 1})
            parts = [x, np.take(x, range(begin, end), axis=axis), x]
            self.cases.add("concat", parts, np.concatenate(parts, axis=axis), {"axis": axis})
            if size:
                index = self.rng.integers(0, size, self.shape(0, 2))
                kind = self.pick(["i32", "i64"])
                self.cases.add("gather", [x, as_type(index, kind)], np.take(x, index, axis=axis), {"axis": axis})
                wanted = [*x.shape[:axis], int(self.rng.integers(0, 5)), *x.shape[axis + 1:]]
                index = self.rng.integers(0, size, wanted)
                taken = np.take_along_axis(x, index, axis=axis)
                self.cases.add("take_along", [x, as_type(index, kind)], taken, {"axis": axis})
        for dtype in PLAIN:
            self.cases.add("full", [], as_type(np.full((2, 3), 1), dtype), {"value": 1, "dims": [2, 3], "dtype": dtype})
            if dtype != "bool":
                y = as_type(np.arange(3, 3 + 7 * 5, 7), dtype)
                self.cases.add("iota", [], y, {"size": 5, "start": 3, "step": 7, "dtype": dtype})
                x = as_type(np.zeros((2, 5, 1)), dtype)
                self.cases.add("iota", [x], y, {"axis": 1, "start": 3, "step": 7, "dtype": dtype})

    def derivatives(self):
        for _ in range(self.rounds(5)):
            dtype = self.pick(FLOATS)
            x = self.array(dtype, self.shape(), -5, 5)
            exact = to_double(x)
            slope = (1 + _erf(exact / np.sqrt(2))) / 2 + exact * np.exp(-exact**2 / 2) / np.sqrt(2 * np.pi)
            self.cases.add("gelu_derivative", [x], as_type(slope, dtype))


def _integer_power(x, y):
    if y >= 0:
        return x**y
    return 0 if x == 0 else int(math.trunc(1 / x**-y))


def _cast(x, dtype):
    """Tenon's rules: to integers truncates and saturates, NaN gives 0."""
    exact = to_double(x) if isinstance(x, Bf16) else x
    if dtype == "bool":
        return exact != 0
    if dtype in FLOATS:
        return as_type(exact if exact.dtype.kind != "b" else exact.astype(np.int64), dtype)
    limits = np.iinfo(as_type(0, dtype).dtype)
    if exact.dtype.kind == "f":
        values = [0 if math.isnan(v) else v if math.isinf(v) else int(v) for v in exact.astype(np.float64).reshape(-1)]
    else:
        values = [int(v) for v in exact.reshape(-1)]
    clipped = [int(min(max(v, limits.min), limits.max)) for v in values]
    return np.array(clipped, dtype=limits.dtype).reshape(exact.shape)


def generate(cases):
    maker = Maker(cases)
    for family in (maker.unary, maker.binary, maker.compare, maker.cast, maker.reduce, maker.norms, maker.moves,
                   maker.bitcasts, maker.derivatives):
        family()


if __name__ == "__main__":
    main(generate, __doc__)

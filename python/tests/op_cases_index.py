"""Cases of ops that scatter, rank and accumulate along an axis. Expected values come from NumPy loops
in float64, rounded once to the output's type."""
import numpy as np

from op_cases import Bf16, Cases, TOLERANCE, as_type, main, to_double

FLOATS = ["f32", "f16", "bf16", "f64"]
INTEGERS = ["i32", "i8", "i16", "i64", "u8", "u16", "u32"]
COMBINE = {"set": lambda a, b: b, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


class Maker:
    def __init__(self, cases: Cases):
        self.cases, self.rng, self.small = cases, cases.rng, cases.small

    def rounds(self, most):
        return 2 if self.small else most

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def shape(self, least=1, most=4):
        rank = int(self.rng.integers(least, most + 1))
        sizes = [0, 1, 2, 3, 5, 7] if self.rng.random() < 0.1 else [1, 2, 3, 5, 7]
        shape = tuple(int(self.rng.choice(sizes)) for _ in range(rank))
        if rank and self.rng.random() < 0.3:
            shape = shape[:-1] + (int(self.rng.choice([15, 16, 17, 31, 33])),)
        return shape if np.prod(shape) < 1500 else shape[-1:]

    def array(self, dtype, shape, low=-9.0, high=9.0):
        if dtype == "bool":
            return as_type(self.rng.random(shape) < 0.5, dtype)
        if dtype in FLOATS:
            return as_type(self.rng.uniform(low, high, shape), dtype)
        limits = np.iinfo(as_type(0, dtype).dtype)
        low, high = (limits.min, limits.max) if self.rng.random() < 0.5 else (max(-9, limits.min), 9)
        return self.rng.integers(low, high, shape, endpoint=True, dtype=as_type(0, dtype).dtype)

    def scatter(self):
        for mode in COMBINE:
            for _ in range(self.rounds(30)):
                dtype = self.pick(FLOATS + INTEGERS + (["bool"] if mode == "set" else []))
                shape = self.shape()
                axis = int(self.rng.integers(len(shape)))
                if shape[axis] == 0:
                    continue
                sizes = list(shape)
                if self.rng.random() < 0.3:
                    sizes = [int(self.rng.integers(0, s + 1)) for s in shape]
                sizes[axis] = int(self.rng.choice([0, 1, 3, 8, 20]))
                kind = np.int32 if self.rng.random() < 0.5 else np.int64
                index = self.rng.integers(0, shape[axis], sizes).astype(kind)
                low, high = (0.5, 1.5) if mode == "mul" else (-9, 9)
                x, source = self.array(dtype, shape, low, high), self.array(dtype, tuple(sizes), low, high)
                y = _scatter(x, index, source, axis, COMBINE[mode], dtype)
                attributes = {"axis": axis} if mode == "set" else {"axis": axis, "mode": mode}
                self.cases.add("scatter", [x, index, source], y, attributes)
        x, source = self.array("f32", (40, 9)), self.array("f32", (70, 9))
        index = np.broadcast_to(self.rng.integers(0, 40, (70, 1)), (70, 9)).astype(np.int64)
        self.cases.add("scatter", [x, index, source], _scatter(x, index, source, 0, np.add, "f32"),
                       {"axis": 0, "mode": "add"})
        x, index = as_type([1, np.nan, 3], "f32"), np.array([0, 1, 2, 2], np.int32)
        source = as_type([np.nan, 0, np.inf, np.nan], "f32")
        for mode in ["min", "max"]:
            self.cases.add("scatter", [x, index, source], as_type([np.nan] * 3, "f32"),
                           {"axis": 0, "mode": mode})


    def views(self):
        for _ in range(self.rounds(12)):
            x = self.array(self.pick(FLOATS + INTEGERS + ["bool"]), self.shape())
            axis = int(self.rng.integers(len(x.shape)))
            size, step = x.shape[axis], -int(self.rng.integers(1, 4))
            begin = int(self.rng.integers(-1, size))
            end = int(self.rng.integers(-1, begin + 1))
            stop = None if end < 0 else end
            index = np.arange(size)[begin:stop:step] if begin >= 0 else np.arange(0)
            bits = x.bits if isinstance(x, Bf16) else x
            y = np.take(bits, index, axis)
            if isinstance(x, Bf16):
                y = as_type((y.astype(np.uint32) << 16).view(np.float32), "bf16")
            attributes = {"axis": axis, "begin": begin if begin >= 0 else -size - 1, "step": step}
            if begin < 0:
                attributes["begin"] = -1 if size == 0 else 0
                attributes["end"] = attributes["begin"]
                if size == 0:
                    del attributes["end"]
            elif end >= 0:
                attributes["end"] = end
            self.cases.add("slice", [x], y, attributes)

    def pad(self):
        for mode, name in {"reflect": "reflect", "edge": "edge", "circular": "wrap"}.items():
            for _ in range(self.rounds(12)):
                dtype = self.pick(FLOATS + INTEGERS + ["bool"])
                shape = tuple(max(s, 1) for s in self.shape(1, 3))
                most = [s - 1 if mode == "reflect" else s for s in shape]
                before = [int(self.rng.integers(0, m + 1)) for m in most]
                after = [int(self.rng.integers(0, m + 1)) for m in most]
                x = self.array(dtype, shape)
                values = to_double(x) if dtype in FLOATS else x
                y = as_type(np.pad(values, list(zip(before, after)), mode=name), dtype)
                self.cases.add("pad", [x], y, {"before": before, "after": after, "mode": mode})


    def ranked(self):
        """Sorting: distinct reals (a gradient at equal ones depends on their order), whole numbers with
        equals, and lanes long enough for every way of sorting."""
        shapes = [self.shape() for _ in range(self.rounds(20))] + [(2, 150), (300,), (3, 140, 2)]
        shapes += [] if self.small else [(17000,), (2, 20000), (40000, 2)]
        for shape in shapes:
            dtype, axis = self.pick(FLOATS + INTEGERS), int(self.rng.integers(len(shape)))
            if dtype in FLOATS:
                places = self.rng.permuted(np.broadcast_to(np.arange(shape[axis]), np.moveaxis(
                    np.empty(shape), axis, -1).shape), axis=-1)
                scale = 1.0 if shape[axis] > 60 else 0.25
                x = as_type(np.moveaxis(places, -1, axis) * scale - 3, dtype)
            else:
                x = self.array(dtype, shape)
            descending = bool(self.rng.random() < 0.5)
            self._ranked(x, dtype, axis, descending)
        x = as_type([[3, np.nan, -np.inf, 0, np.inf], [np.nan, 5, 5, np.nan, -1]], "f32")
        for descending in [False, True]:
            self._ranked(x, "f32", 1, descending)

    def _ranked(self, x, dtype, axis, descending):
        values = to_double(x) if dtype in FLOATS else x
        order = _argsort(values, axis, descending)
        y = np.take_along_axis(values, order, axis)
        attributes = {"axis": axis, "descending": descending}
        self.cases.add("sort", [x], as_type(y, dtype) if dtype in FLOATS else y, attributes)
        self.cases.add("argsort", [x], order.astype(np.int32), attributes)

    def searched(self):
        for _ in range(self.rounds(20)):
            dtype, shape = self.pick(FLOATS + INTEGERS), self.shape(1, 3)
            right = bool(self.rng.random() < 0.5)
            ordered = np.sort(to_double(self.array(dtype, shape)) if dtype in FLOATS
                              else self.array(dtype, shape), axis=-1)
            ordered = as_type(ordered, dtype)
            sizes = self.shape(0, 3) if len(shape) == 1 else shape[:-1] + (int(self.rng.integers(0, 20)),)
            values = self.array(dtype, sizes)
            if self.rng.random() < 0.5 and shape[-1] > 0:  # elements of the array themselves
                table = to_double(ordered) if dtype in FLOATS else ordered
                pick = self.rng.integers(0, shape[-1], sizes)
                table = table[pick] if len(shape) == 1 else np.take_along_axis(table, pick, -1)
                values = as_type(table, dtype)
            side = "right" if right else "left"
            rows = to_double(ordered) if dtype in FLOATS else ordered
            wanted = to_double(values) if dtype in FLOATS else values
            if len(shape) == 1:
                y = np.searchsorted(rows, wanted, side)
            else:
                y = np.zeros(sizes)
                for at in np.ndindex(*shape[:-1]):
                    y[at] = np.searchsorted(rows[at], wanted[at], side)
            self.cases.add("searchsorted", [ordered, values], np.asarray(y).astype(np.int32), {"right": right})
        x, values = as_type([1, 2, np.nan, np.nan], "f32"), as_type([np.nan, 2, np.inf], "f32")
        for right in [False, True]:
            y = np.searchsorted(x, values, "right" if right else "left")
            self.cases.add("searchsorted", [x, values], y.astype(np.int32), {"right": right})

    def cumulative(self):
        functions = {"cumprod": np.cumprod, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}
        for op, function in functions.items():
            for _ in range(self.rounds(20) + 1):
                dtype = self.pick(FLOATS + INTEGERS + (["bool"] if op == "cumprod" else []))
                shape = self.shape()
                axis = int(self.rng.integers(len(shape)))
                if op == "cumprod" and dtype in FLOATS:
                    x = self.array(dtype, shape, 0.5, 1.6)
                    x = as_type(to_double(x) * self.rng.choice([-1, 1], shape), dtype)
                else:
                    x = self.array(dtype, shape)
                if dtype in FLOATS:
                    y = as_type(function(to_double(x), axis=axis), dtype)
                elif op == "cumprod":
                    y = np.cumprod(x.astype(np.int64), axis=axis, dtype=np.int64)
                else:
                    y = function(x, axis=axis)
                self.cases.add(op, [x], y, {"axis": axis})
        x = as_type([[2, 0, 3, 0.5], [0, 2, 0, 3], [1.5, 2, 3, 0], [1, 2, 3, 4]], "f64")
        self.cases.add("cumprod", [x], np.cumprod(x, axis=1), {"axis": 1})
        x = as_type([1, 3, np.nan, 2, np.inf], "f32")
        for op, function in functions.items():
            self.cases.add(op, [x], function(x), {"axis": 0})


def _argsort(values, axis, descending):
    """A stable order, descending too; a NaN is largest."""
    if not descending:
        return np.argsort(values, axis=axis, kind="stable")
    size = values.shape[axis]
    backwards = np.flip(np.argsort(np.flip(values, axis), axis=axis, kind="stable"), axis)
    return size - 1 - backwards


def _scatter(x, index, source, axis, combine, dtype):
    real = dtype in FLOATS
    y = to_double(x) if real else np.array(x)
    values = to_double(source) if real else np.array(source)
    for at in np.ndindex(*index.shape):
        to = list(at)
        to[axis] = int(index[at])
        y[tuple(to)] = combine(y[tuple(to)], values[at])
    return as_type(y, dtype) if real else y


def generate(cases):
    maker = Maker(cases)
    maker.scatter()
    maker.views()
    maker.pad()
    maker.ranked()
    maker.searched()
    maker.cumulative()


if __name__ == "__main__":
    main(generate, __doc__)

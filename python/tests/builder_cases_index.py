"""Cases of builders that index, pad, rank and reduce. Expected values come from NumPy in float64."""
import numpy as np

from op_cases import Cases, as_type, main, to_double

FLOATS = ["f32", "f16", "bf16", "f64"]


class Maker:
    def __init__(self, cases: Cases):
        self.cases, self.rng, self.small = cases, cases.rng, cases.small

    def rounds(self, most):
        return 2 if self.small else most

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def shape(self, least=1, most=4):
        rank = int(self.rng.integers(least, most + 1))
        shape = tuple(int(self.rng.choice([1, 2, 3, 5, 7])) for _ in range(rank))
        if rank and self.rng.random() < 0.3:
            shape = shape[:-1] + (int(self.rng.choice([15, 16, 17, 33])),)
        return shape

    def reals(self, dtype, shape, low=-3.0, high=3.0):
        return as_type(self.rng.uniform(low, high, shape), dtype)

    def axis(self, shape):
        return int(self.rng.integers(len(shape)))

    def index(self, size, shape):
        kind = np.int32 if self.rng.random() < 0.5 else np.int64
        return self.rng.integers(0, size, shape).astype(kind)

    # --- views

    def moved(self):
        for _ in range(self.rounds(10)):
            dtype, shape = self.pick(FLOATS), self.shape()
            x = self.reals(dtype, shape)
            axes = [int(a) for a in self.rng.permutation(len(shape))[:int(self.rng.integers(1, len(shape) + 1))]]
            self.cases.add("flip", [x], as_type(np.flip(to_double(x), axes), dtype), {"axes": axes})
            shift, axis = int(self.rng.integers(-9, 10)), self.axis(shape)
            self.cases.add("roll", [x], as_type(np.roll(to_double(x), shift, axis), dtype),
                           {"shift": shift, "axis": axis})
            self.cases.add("flipped_sum", [x], as_type(np.flip(to_double(x), axes).sum(axis, keepdims=True)
                                                       * np.flip(to_double(x), axes), "f64" if dtype == "f64" else "f32"),
                           {"axes": axes, "axis": axis}, (1e-3, 1e-2))

    # --- scatter

    def scatter(self):
        for _ in range(self.rounds(8)):
            dtype, shape = self.pick(FLOATS), self.shape()
            x, axis = self.reals(dtype, shape), self.axis(shape)
            sizes = list(shape)
            sizes[axis] = int(self.rng.integers(1, 2 * shape[axis] + 1))
            index = self.index(shape[axis], sizes)
            source = self.reals(dtype, (sizes[-1],))
            y = to_double(x)
            values = np.broadcast_to(to_double(source), sizes)
            np.put_along_axis(y, index.astype(np.int64), values, axis)
            self.cases.add("put_along", [x, index, source], as_type(y, dtype), {"axis": axis})

    def index_add(self):
        for _ in range(self.rounds(8)):
            dtype, shape = self.pick(FLOATS), self.shape()
            x, axis = self.reals(dtype, shape), self.axis(shape)
            index = self.index(shape[axis], self.shape(0, 2))
            picked = np.take(to_double(x), index, axis)
            source = self.reals(dtype, picked.shape)
            for builder, function in {"index_add": np.add, "index_max": np.maximum}.items():
                y = to_double(x)
                before = (slice(None),) * axis
                function.at(y, before + (index,), to_double(source))
                self.cases.add(builder, [x, index, source], as_type(y, dtype), {"axis": axis})

    def nd(self):
        for _ in range(self.rounds(10)):
            dtype, shape = self.pick(FLOATS), self.shape(2, 4)
            batch = int(self.rng.integers(0, len(shape)))
            selected = int(self.rng.integers(1, len(shape) - batch + 1))
            x, picks = self.reals(dtype, shape), tuple(self.shape(0, 2))
            index = np.stack([self.index(s, shape[:batch] + picks).astype(np.int64)
                              for s in shape[batch:batch + selected]], -1)
            y = np.empty(index.shape[:-1] + shape[batch + selected:])
            for at in np.ndindex(*index.shape[:-1]):
                y[at] = to_double(x)[at[:batch] + tuple(index[at])]
            self.cases.add("gather_nd", [x, index], as_type(y, dtype), {"batch_axes": batch})
            shape_of_rows = y.shape
            if batch == 0:
                for mode, function in {"set": None, "add": np.add, "mul": np.multiply}.items():
                    source, y = self.reals(dtype, shape_of_rows), to_double(x)
                    for at in np.ndindex(*index.shape[:-1]):
                        to = tuple(index[at])
                        value = to_double(source)[at]
                        y[to] = value if function is None else function(y[to], value)
                    self.cases.add("scatter_nd", [x, index, source], as_type(y, dtype), {"mode": mode})
        x, index = self.reals("f32", (4, 3)), np.array([[1], [3], [1]])
        source, y = self.reals("f32", (3, 3)), to_double(x)
        np.add.at(y, index[:, 0], to_double(source))
        self.cases.add("scatter_nd", [x, index, source], as_type(y, "f32"), {"mode": "add"})


def generate(cases):
    maker = Maker(cases)
    maker.moved()
    maker.scatter()
    maker.index_add()
    maker.nd()


if __name__ == "__main__":
    main(generate, __doc__)

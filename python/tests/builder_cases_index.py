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

    def repeats(self):
        for _ in range(self.rounds(8)):
            dtype, shape = self.pick(FLOATS), self.shape()
            x, axis = self.reals(dtype, shape), self.axis(shape)
            parts = int(self.rng.integers(1, 4))
            size = -(-shape[axis] // parts)
            y = np.take(to_double(x), np.arange(min(size, shape[axis])), axis)
            self.cases.add("first_chunk", [x], as_type(y, dtype), {"axis": axis, "parts": parts})


def generate(cases):
    maker = Maker(cases)
    maker.repeats()


if __name__ == "__main__":
    main(generate, __doc__)

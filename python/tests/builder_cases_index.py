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

    # --- reductions

    def reductions(self):
        for _ in range(1 if self.small else 12):
            dtype, shape = self.pick(FLOATS), self.shape()
            axes = tuple(int(a) for a in self.rng.permutation(len(shape))[:int(self.rng.integers(1, len(shape) + 1))])
            keep = bool(self.rng.random() < 0.5)
            x = self.reals(dtype, shape)
            v = to_double(x)
            a = {"axes": list(axes), "keep_dims": keep}
            near = {"f16": (2e-3, 2e-3), "bf16": (2e-2, 2e-2)}.get(dtype, (2e-6, 4e-6))

            def add(name, y, **more):
                self.cases.add(name, [x], as_type(y, dtype), {**a, **more}, near)

            most = v.max(axes, keepdims=True)
            y = np.log(np.exp(v - most).sum(axes, keepdims=True)) + most
            add("logsumexp", y if keep else y.squeeze(axes))
            count = np.prod([shape[i] for i in axes])
            correction = float(self.rng.choice([0, 1, 0.5])) if count > 1 else 0.0
            add("variance", v.var(axes, ddof=correction, keepdims=keep), correction=correction)
            add("standard_deviation", v.std(axes, ddof=correction, keepdims=keep), correction=correction)
            for p in [0, 1, 2, 3, 1.5, 0.5, -1, "inf", "-inf"]:
                if p in [0, "inf", "-inf"]:
                    y = {0: np.sum(v != 0, axes, keepdims=keep), "inf": np.abs(v).max(axes, keepdims=keep),
                         "-inf": np.abs(v).min(axes, keepdims=keep)}[p]
                else:
                    y = np.sum(np.abs(v) ** p, axes, keepdims=keep) ** (1 / p)
                self.cases.add("norm", [x], as_type(y, dtype), {**a, "p": str(p)},
                               (near[0] * 10, near[1] * 4))
            z = self.rng.integers(-1, 2, shape).astype(self.pick([np.float32, np.int8, np.int64, np.bool_]))
            self.cases.add("count_nonzero", [z], np.count_nonzero(z, axes, keepdims=keep).astype(np.int64)
                           if not keep else np.sum(z != 0, axes, keepdims=True).astype(np.int64), a)
            axis = self.axis(shape)
            for name, function in {"last_argmax": np.argmax, "last_argmin": np.argmin}.items():
                z = self.rng.integers(-2, 3, shape).astype(self.pick([np.float32, np.int32]))
                y = shape[axis] - 1 - function(np.flip(z, axis), axis)
                self.cases.add(name, [z], y.astype(np.int32), {"axis": axis})
        for values in [[-np.inf, -np.inf], [np.inf, 0], [1000, 1000], [np.nan, 1]]:
            y = [np.logaddexp(*values)]
            self.cases.add("logsumexp", [as_type(values, "f32")], as_type(y, "f32"),
                           {"axes": [0], "keep_dims": True})

    # --- selection

    def selection(self):
        for _ in range(1 if self.small else 10):
            ids = self.rng.integers(0, 9, self.shape(0, 3)).astype(self.pick([np.int32, np.int64]))
            size = 9 + int(self.rng.integers(0, 5))
            self.cases.add("bincount", [ids], np.bincount(ids.reshape(-1), minlength=size), {"size": size})
            weights = self.reals("f32", ids.shape)
            self.cases.add("bincount", [ids, weights], as_type(np.bincount(
                ids.reshape(-1), to_double(weights).reshape(-1), size), "f32"), {"size": size}, (1e-5, 1e-5))
            self.cases.add("one_hot", [ids], as_type(np.where(ids[..., None] == np.arange(7), 2.5, -1), "f32"),
                           {"classes": 7, "on": 2.5, "off": -1.0})
            shape = self.shape(2, 4)
            dtype, k = self.pick(FLOATS), int(self.rng.integers(-6, 7))
            x = self.reals(dtype, shape)
            v = to_double(x)
            self.cases.add("tril", [x], as_type(np.tril(v, k), dtype), {"k": k})
            self.cases.add("triu", [x], as_type(np.triu(v, k), dtype), {"k": k})
            y = np.apply_along_axis(lambda row: np.diag(row, k), -1, v)
            self.cases.add("diagonal_matrix", [x], as_type(y, dtype), {"k": k})
            n, m = shape[-2:]
            self.cases.add("eye", [x], as_type(np.eye(n, m, k), "f32"), {"rows": n, "columns": m, "k": k})
            mask = self.rng.random(shape[1:]) < 0.4
            self.cases.add("masked_fill", [x, mask], as_type(np.where(mask, -7.5, v), dtype), {"value": -7.5})
            full = np.broadcast_to(mask, shape)
            capacity = max(int(full.sum()) + int(self.rng.integers(-3, 4)), 0)
            chosen = v[full][:capacity]
            y = np.concatenate([chosen, np.full(capacity - len(chosen), 0.5)])
            self.cases.add("masked_select", [x, mask], as_type(y, dtype), {"capacity": capacity})
            y = np.argwhere(full)[:capacity]
            y = np.concatenate([y, np.full((capacity - len(y), len(shape)), -1)]).astype(np.int64)
            number = np.int64(full.sum())
            for z in [np.array(full), as_type(np.where(full, v + 4, 0), "f32")]:
                self.cases.add("nonzero", [z], y, {"capacity": capacity})
                self.cases.add("number_of_nonzero", [z], np.array(number), {"capacity": capacity})
            z = self.rng.integers(-3, 4, shape).astype(self.pick([np.int32, np.float32, np.int8]))
            values, inverse, counts = np.unique(z, return_inverse=True, return_counts=True)
            self.cases.add("unique", [z], np.concatenate([values, [9] * (12 - len(values))]).astype(z.dtype),
                           {"capacity": 12})
            self.cases.add("unique_inverse", [z], inverse.reshape(shape).astype(np.int64), {"capacity": 12})
            self.cases.add("unique_counts", [z], counts[:2].astype(np.int64) if len(counts) > 1 else
                           np.array([counts[0], 0]), {"capacity": 2})


def generate(cases):
    maker = Maker(cases)
    maker.moved()
    maker.scatter()
    maker.index_add()
    maker.nd()
    maker.reductions()
    maker.selection()


if __name__ == "__main__":
    main(generate, __doc__)

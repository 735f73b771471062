"""Cases of losses. Expected values come from NumPy in float64; the formulas are those of PyTorch's
functions of the same names."""
import numpy as np

from op_cases import Cases, as_type, main, to_double


def log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


class Maker:
    def __init__(self, cases: Cases):
        self.cases, self.rng = cases, cases.rng
        self.rounds = 2 if cases.small else 20

    def shape(self):
        return tuple(int(n) for n in self.rng.integers(1, 8, int(self.rng.integers(1, 4))))

    def reals(self, shape, low=-3.0, high=3.0, dtype="f32"):
        return as_type(self.rng.uniform(low, high, shape), dtype)

    def add(self, name, inputs, value, dtype, attributes=None):
        self.cases.add(name, inputs, as_type(np.array(value), dtype), attributes)

    def cross_entropy(self):
        for smoothing in [0.0, 0.1, 1.0]:
            for _ in range(self.rounds):
                dtype = "f64" if self.rng.random() < 0.3 else "f32"
                logits = self.reals(self.shape(), dtype=dtype)
                classes = logits.shape[-1]
                labels = self.rng.integers(0, classes, logits.shape[:-1])
                kept = np.ones(labels.shape, bool)
                if labels.size > 1:
                    labels[(0,) * labels.ndim], kept[(0,) * labels.ndim] = -100, False
                log_p = log_softmax(to_double(logits))
                picked = np.take_along_axis(log_p, np.maximum(labels, 0)[..., None], -1)[..., 0]
                rows = (1 - smoothing) * picked + smoothing * log_p.mean(-1)
                kind = np.int64 if self.rng.random() < 0.5 else np.int32
                self.add("cross_entropy", [logits, labels.astype(kind)], -(rows * kept).sum() / kept.sum(),
                         dtype, {"label_smoothing": smoothing})

    def distances(self):
        for _ in range(self.rounds):
            shape = self.shape()
            x, target = self.reals(shape), self.reals(shape)
            d = np.abs(to_double(x) - to_double(target))
            self.add("mse_loss", [x, target], (d * d).mean(), "f32")
            self.add("l1_loss", [x, target], d.mean(), "f32")
            delta = float(self.rng.uniform(0.2, 2))
            far = delta * (d - 0.5 * delta)
            self.add("huber_loss", [x, target], np.where(d < delta, 0.5 * d * d, far).mean(), "f32",
                     {"delta": delta})

    def probabilities(self):
        for _ in range(self.rounds):
            shape = self.shape()
            x, target = self.reals(shape, -30, 30), self.reals(shape, 0, 1)
            a, t = to_double(x), to_double(target)
            value = -(t * -np.logaddexp(0, -a) + (1 - t) * -np.logaddexp(0, a)).mean()
            self.add("binary_cross_entropy", [x, target], value, "f32")
            log_p = as_type(log_softmax(to_double(self.reals(shape))), "f32")
            t = np.exp(log_softmax(self.rng.normal(size=shape)))
            t[..., 0] = 0
            t = as_type(t, "f32")
            p = to_double(t)
            terms = np.where(p > 0, p * (np.log(np.where(p > 0, p, 1)) - to_double(log_p)), 0)
            self.add("kl_divergence", [log_p, t], terms.sum() / shape[0], "f32")


def generate(cases):
    maker = Maker(cases)
    maker.cross_entropy()
    maker.distances()
    maker.probabilities()


if __name__ == "__main__":
    main(generate, __doc__)

"""Optimisers that are in tenon.train beside Sgd, Adam and Lion. Formulas as in PyTorch's of the same names."""

import dataclasses
import math

from . import _tenon, ops
from ._arrays.operands import EPSILONS
from .build import scan
from .importing.errors import wrong_call
from .programs import programs_of
from .structures import WORDS, Word, filled, form_of, leaves_like, paths_of


def map_arrays(function, structure, *others):
    """function(x, ...) of the arrays of structures that are alike, in the first one's structure."""
    leaves = []
    form = form_of(structure, leaves, WORDS)
    columns = [leaves_like(form, one, "map_arrays: a structure") for one in others]
    made = [function(*row) for row in zip(leaves, *columns)]
    return filled(form, made.__getitem__)


def map_alike(call, function, a, b):
    """map_arrays() of two structures whose arrays have the same sizes: others are refused, which would broadcast."""
    leaves = []
    form = form_of(a, leaves, WORDS)
    _require_sizes(call, _names_of(form), leaves, leaves_like(form, b, f"{call}: a structure"))
    return map_arrays(function, a, b)


def _names_of(form):
    return [".".join(path) or "array" for path in paths_of(form)]


def _require_sizes(call, names, arrays, others):
    for name, one, other in zip(names, arrays, others):
        sizes, found = (list(getattr(x, "shape", ())) for x in (one, other))
        if sizes != found:
            raise wrong_call(call, f"arrays of '{name}' have the sizes {sizes} and {found}")


def arrays_by_name(call, structure):
    """The arrays of a structure by their paths, in order, which are the names of no two."""
    leaves, found = [], {}
    form = form_of(structure, leaves, WORDS)
    for name, array in zip(_names_of(form), leaves):
        if name in found:
            raise wrong_call(call, f"two arrays have the path '{name}'")
        found[name] = array
    return form, found


def scaled(x, scalar):
    """x times a scalar of any floating type."""
    return x * scalar.cast(x.dtype)


def next_ones(function, *structures):
    """A structure for each of the values that the function returns for each array."""
    leaves = []
    form = form_of(structures[0], leaves, WORDS)
    columns = [leaves_like(form, one, "update: gradients or state") for one in structures[1:]]
    if not leaves:
        raise wrong_call("update", "there is no array")
    for one in leaves:
        if not one.dtype.is_floating:
            raise wrong_call("update", f"a parameter is {one.type!r}, which cannot be moved along a gradient")
    names, (gradients, *state) = _names_of(form), columns
    _require_sizes("update", names, leaves, gradients)
    rows = [function(*row) for row in zip(leaves, *columns)]
    for made, before in zip(zip(*rows), (leaves, *state)):
        _require_sizes("update", names, before, made)
    return tuple(filled(form, [row[i] for row in rows].__getitem__) for i in range(len(rows[0])))


def _zeros(parameters):
    return map_arrays(ops.zeros_like, parameters)


def _counted(state):
    """The number of this step: as it is kept, and in f64, in which powers near 1 keep their digits."""
    number = state["number"] + 1.0
    return number, number.cast("f64")


def widened(x):
    """x in f32 where its own type is a half one: squares of numbers from 256 on are infinite in f16."""
    return x.cast("f32") if x.dtype.name in ("f16", "bf16") else x


def _power(base, exponent):
    """base^exponent of a number and a scalar."""
    return ops.exp2(exponent * math.log2(base)) if base > 0 else exponent * 0.0


class Optimizer(Word):
    """Has start(parameters), which makes a state, a dict of structures."""

    def __post_init__(self):
        """Options that no step has are refused, as PyTorch's are."""
        for name, most in (("beta1", 1), ("beta2", 1), ("rho", 1), ("alpha", math.inf), ("momentum", math.inf),
                           ("eps", math.inf), ("weight_decay", math.inf)):
            value = getattr(self, name, 0.0)
            if not 0 <= value < most:
                raise wrong_call(type(self).__name__, f"{name}={value}, expected " + (
                    "at least 0" if most == math.inf else f"a number from 0 to below {most}"))

    def update(self, parameters, gradients, state, rate):
        """(parameters, state) after a step at this rate."""
        def wide(one):  # Python's numbers would be f32
            return _tenon.Buffer(one, "f64") if isinstance(one, (int, float)) else one

        rate = type(rate)(map(wide, rate)) if isinstance(rate, (list, tuple)) else wide(rate)
        return _update(self, parameters, gradients, state, rate)

    def _with_decay(self, p, g):
        return g + self.weight_decay * p if self.weight_decay else g

    def _decayed(self, p, rate):
        return scaled(p, 1.0 - self.weight_decay * rate) if self.weight_decay else p

    def _keeps(self, state):
        """Whether a state has the parts that start() makes."""
        return isinstance(state, dict) and set(state) == self._parts


def scalar(number):
    """A rate in f64, which parameters of f64 need."""
    if getattr(number, "shape", ()):
        raise wrong_call("update", f"the rate has the sizes {list(number.shape)}, expected a number")
    return number.cast("f64") if isinstance(number, _tenon.Tensor) else ops.full((), number, "f64")


def _updated(optimizer, parameters, gradients, state, rate):
    if not optimizer._keeps(state):
        raise wrong_call("update", f"the state of {type(optimizer).__name__} is a dict of {sorted(optimizer._parts)}, as "
                         "start() makes it: update(parameters, gradients, state, rate)")
    if isinstance(rate, (list, tuple)):
        if not isinstance(optimizer, Groups):
            raise wrong_call("update", f"{type(optimizer).__name__} takes one rate, got {len(rate)}; Groups takes several")
        rate = [scalar(one) for one in rate]
    else:
        rate = scalar(rate)
    return optimizer._next(parameters, gradients, state, rate)


_update = programs_of(_updated)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RmsProp(Optimizer):
    """g += weight_decay p; v = alpha v + (1 - alpha) g^2; d = g / (sqrt(v) + eps); p -= rate d, or with momentum
    b = momentum b + d; p -= rate b. With `centered` v - m^2 is in the place of v, m the mean of g as v is of g^2 (Tieleman
    and Hinton, 2012; Graves, arXiv:1308.0850)."""
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    @property
    def _parts(self):
        return {"square", *(["mean"] if self.centered else []), *(["momentum"] if self.momentum else [])}

    def start(self, parameters):
        """The state before the first step."""
        return {part: _zeros(parameters) for part in sorted(self._parts)}

    def _next(self, parameters, gradients, state, rate):
        parts = sorted(self._parts)

        def step(p, g, *held):
            held = dict(zip(parts, held))
            g = self._with_decay(p, g)
            held["square"] = square = self.alpha * held["square"] + (1 - self.alpha) * (g * g)
            if self.centered:
                held["mean"] = mean = self.alpha * held["mean"] + (1 - self.alpha) * g
                square = square - mean * mean
            move = g / (ops.sqrt(square) + self.eps)
            if self.momentum:
                held["momentum"] = move = self.momentum * held["momentum"] + move
            return p - scaled(move, rate), *(held[part] for part in parts)

        after, *held = next_ones(step, parameters, gradients, *(state[part] for part in parts))
        return after, dict(zip(parts, held))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adagrad(Optimizer):
    """g += weight_decay p; s += g^2; p -= rate / (1 + (t - 1) rate_decay) g / (sqrt(s) + eps), s = `initial` before
    (Duchi et al., 2011)."""
    rate_decay: float = 0.0
    weight_decay: float = 0.0
    initial: float = 0.0
    eps: float = 1e-10
    _parts = {"sum", "number"}

    def start(self, parameters):
        """The state before the first step."""
        return {"sum": map_arrays(lambda p: ops.full_like(p, self.initial), parameters), "number": ops.zeros(())}

    def _next(self, parameters, gradients, state, rate):
        number, t = _counted(state)
        rate = rate / (1.0 + (t - 1.0) * self.rate_decay) if self.rate_decay else rate

        def step(p, g, total):
            g = self._with_decay(p, g)
            total = total + g * g
            return p - scaled(g / (ops.sqrt(total) + self.eps), rate), total

        after, total = next_ones(step, parameters, gradients, state["sum"])
        return after, {"sum": total, "number": number}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adadelta(Optimizer):
    """g += weight_decay p; v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g; u = rho u + (1 - rho) d^2;
    p -= rate d (Zeiler, arXiv:1212.5701). PyTorch's rate is 1."""
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    _parts = {"square", "moved"}

    def start(self, parameters):
        """The state before the first step."""
        return {"square": _zeros(parameters), "moved": _zeros(parameters)}

    def _next(self, parameters, gradients, state, rate):
        def step(p, g, square, moved):
            g = self._with_decay(p, g)
            square = self.rho * square + (1 - self.rho) * (g * g)
            move = ops.sqrt(moved + self.eps) / ops.sqrt(square + self.eps) * g
            return p - scaled(move, rate), square, self.rho * moved + (1 - self.rho) * (move * move)

        after, square, moved = next_ones(step, parameters, gradients, state["square"], state["moved"])
        return after, {"square": square, "moved": moved}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adamax(Optimizer):
    """g += weight_decay p; m = b1 m + (1 - b1) g; u = max(b2 u, |g| + eps); p -= rate / (1 - b1^t) m / u
    (Kingma and Ba, arXiv:1412.6980)."""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    _parts = {"mean", "largest", "number"}

    def start(self, parameters):
        """The state before the first step."""
        return {"mean": _zeros(parameters), "largest": _zeros(parameters), "number": ops.zeros(())}

    def _next(self, parameters, gradients, state, rate):
        number, t = _counted(state)
        rate = rate / (1.0 - _power(self.beta1, t))

        def step(p, g, m, u):
            g = self._with_decay(p, g)
            m = self.beta1 * m + (1 - self.beta1) * g
            u = ops.maximum(self.beta2 * u, ops.abs(g) + self.eps)
            return p - scaled(m, rate) / u, m, u

        after, mean, largest = next_ones(step, parameters, gradients, state["mean"], state["largest"])
        return after, {"mean": mean, "largest": largest, "number": number}


@dataclasses.dataclass(frozen=True, kw_only=True)
class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, 2016): mu_t = b1 (1 - 0.96^(t momentum_decay) / 2);
    p -= rate ((1 - mu_t) g / (1 - mu_1 .. mu_t) + mu_t+1 m / (1 - mu_1 .. mu_t+1)) / (sqrt(v / (1 - b2^t)) + eps).
    Weight decay as in Adam."""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 4e-3
    decoupled: bool = False
    _parts = {"mean", "square", "number", "product"}

    def start(self, parameters):
        """The state before the first step."""
        return {"mean": _zeros(parameters), "square": _zeros(parameters), "number": ops.zeros(()),
                "product": ops.ones(())}

    def _next(self, parameters, gradients, state, rate):
        number, t = _counted(state)

        def momentum(t):
            return self.beta1 * (1.0 - 0.5 * _power(0.96, t * self.momentum_decay))

        mu, after_mu = momentum(t), momentum(t + 1.0)
        product = state["product"].cast("f64") * mu
        of_gradient = rate * (1.0 - mu) / (1.0 - product)
        of_mean = rate * after_mu / (1.0 - product * after_mu)
        of_square = ops.rsqrt(1.0 - _power(self.beta2, t))

        def step(p, g, m, v):
            kept = self._decayed(p, rate) if self.decoupled else p
            g = g if self.decoupled else self._with_decay(p, g)
            m = self.beta1 * m + (1 - self.beta1) * g
            v = self.beta2 * v + (1 - self.beta2) * (g * g)
            return kept - (scaled(g, of_gradient) + scaled(m, of_mean)) / (scaled(ops.sqrt(v), of_square) + self.eps), m, v

        after, mean, square = next_ones(step, parameters, gradients, state["mean"], state["square"])
        return after, {"mean": mean, "square": square, "number": number, "product": product.cast("f32")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RAdam(Optimizer):
    """Adam whose first steps, while the variance of v is not known well, move by the mean alone (Liu et al.,
    arXiv:1908.03265). Weight decay as in Adam."""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    _parts = {"mean", "square", "number"}

    def start(self, parameters):
        """The state before the first step."""
        return {"mean": _zeros(parameters), "square": _zeros(parameters), "number": ops.zeros(())}

    def _next(self, parameters, gradients, state, rate):
        number, t = _counted(state)
        of_mean = rate / (1.0 - _power(self.beta1, t))
        power = _power(self.beta2, t)
        most = 2 / (1 - self.beta2) - 1
        length = most - 2.0 * t * power / (1.0 - power)
        is_known = length > 5.0
        share = (length - 4.0) * (length - 2.0) * most / ((most - 4) * (most - 2) * length)
        known = ops.where(is_known, share, 1.0)
        of_known = ops.sqrt(known * (1.0 - power))

        def step(p, g, m, v):
            kept = self._decayed(p, rate) if self.decoupled else p
            g = g if self.decoupled else self._with_decay(p, g)
            m = self.beta1 * m + (1 - self.beta1) * g
            v = self.beta2 * v + (1 - self.beta2) * (g * g)
            move = scaled(m, of_mean)
            return kept - ops.where(is_known, scaled(move, of_known) / (ops.sqrt(v) + self.eps), move), m, v

        after, mean, square = next_ones(step, parameters, gradients, state["mean"], state["square"])
        return after, {"mean": mean, "square": square, "number": number}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asgd(Optimizer):
    """g += weight_decay p; p = (1 - decay e) p - e g, e = rate / (1 + decay rate (t - 1))^power; "average" of the state is
    that of p since step `begin`, and p before (Polyak and Juditsky, 1992; Bottou, 2012)."""
    decay: float = 1e-4
    power: float = 0.75
    begin: float = 1e6
    weight_decay: float = 0.0
    _parts = {"average", "number"}

    def start(self, parameters):
        """The state before the first step."""
        return {"average": _zeros(parameters), "number": ops.zeros(())}

    def _next(self, parameters, gradients, state, rate):
        number, t = _counted(state)
        rate = rate / (1.0 + self.decay * rate * (t - 1.0)) ** self.power
        count = t - 1.0 - self.begin

        def step(p, g, average):
            p = scaled(p, 1.0 - self.decay * rate) - scaled(self._with_decay(p, g), rate)
            moved = average + scaled(p - average, 1.0 / ops.maximum(count, 1.0))
            return p, ops.where(count > 1.0, moved, p)

        after, average = next_ones(step, parameters, gradients, state["average"])
        return after, {"average": average, "number": number}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rprop(Optimizer):
    """p -= s sign(g), where s is the first rate, then s times `grow` where g has the sign of the one before, and times
    `shrink`, without a move, where it has the other sign; within [smallest, largest] (Riedmiller and Braun, 1993). For
    gradients of all data; later rates do not count."""
    shrink: float = 0.5
    grow: float = 1.2
    smallest: float = 1e-6
    largest: float = 50.0
    _parts = {"before", "step"}

    def start(self, parameters):
        """The state before the first step."""
        return {"before": _zeros(parameters), "step": _zeros(parameters)}

    def _next(self, parameters, gradients, state, rate):
        def step(p, g, before, length):
            length = ops.where(length > 0.0, length, rate.cast(p.dtype))
            kept, turned = g * before > 0.0, g * before < 0.0
            factor = ops.where(kept, self.grow, ops.where(turned, self.shrink, 1.0)).cast(p.dtype)
            length = (length * factor).clip(self.smallest, self.largest)
            g = ops.where(turned, ops.zeros_like(g), g)
            return p - length * ops.sign(g), g, length

        after, before, length = next_ones(step, parameters, gradients, state["before"], state["step"])
        return after, {"before": before, "step": length}


def _vector(structure):
    """All arrays in a row, in f64 where one is, else in f32."""
    leaves = []
    form_of(structure, leaves, WORDS)
    leaves = [one.reshape(-1) for one in leaves]
    dtype = "f64" if any(one.dtype == "f64" for one in leaves) else "f32"
    return ops.concat([one.cast(dtype) for one in leaves])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lbfgs(Optimizer):
    """p += rate d, at first min(1, 1 / sum |g|) rate d, where d = -H g: H is the inverse of the Hessian as the last
    `history` moves and the changes of g by them show it (Liu and Nocedal, 1989). A step of PyTorch's LBFGS(max_iter=1),
    without its line search. There is no move where |g| is at most `least_gradient` everywhere, or g d above -`least`. For
    gradients of all data. The state has 2 history + 2 numbers for each parameter."""
    history: int = 10
    least: float = 1e-9
    least_gradient: float = 1e-7
    _parts = {"moves", "changes", "move", "gradient", "scale", "number"}

    def start(self, parameters):
        """The state before the first step."""
        if self.history < 1:
            raise wrong_call("Lbfgs", f"history = {self.history}, expected at least 1")
        zeros = ops.zeros_like(_vector(map_arrays(_array, parameters)))
        rows = ops.zeros((self.history, zeros.shape[0]), zeros.dtype)
        return {"moves": rows, "changes": rows, "move": zeros, "gradient": zeros, "scale": ops.ones((), zeros.dtype),
                "number": ops.zeros(())}

    def _next(self, parameters, gradients, state, rate):
        parameters, gradients = next_ones(lambda p, g: (p, g), parameters, gradients)
        g, move, number = _vector(gradients), state["move"], state["number"] + 1.0
        change = g - state["gradient"]
        curvature = (change * move).sum()
        is_seen = curvature > 1e-10

        def kept(rows, row):
            return ops.where(is_seen, ops.concat([rows[1:], row.reshape(1, -1)]), rows)

        moves, changes = kept(state["moves"], move), kept(state["changes"], change)
        scale = ops.where(is_seen, curvature / (change * change).sum(), state["scale"])
        products = (moves * changes).sum(-1)
        inverses = ops.where(products > 0.0, 1.0 / products, ops.zeros_like(products))

        def back(d, s, y, inverse):
            share = (s * d).sum() * inverse
            return d - share * y, share

        def on(d, s, y, inverse, share):
            return d + s * (share - (y * d).sum() * inverse), None

        d, shares = scan(back, -g, tuple(ops.flip(one, 0) for one in (moves, changes, inverses)))
        d, _ = scan(on, d * scale, (moves, changes, inverses, ops.flip(shares, 0)))
        first = ops.minimum(1.0 / ops.abs(g).sum(), 1.0).cast(d.dtype)
        length = scaled(ops.where(number > 1.0, ops.ones_like(first), first), rate)
        is_moving = ops.logical_and((g * d).sum() <= -self.least, ops.abs(g).max() > self.least_gradient)
        move = ops.where(is_moving, length * d, ops.zeros_like(d))
        begin = 0

        def moved(p):
            nonlocal begin
            begin, at = begin + math.prod(p.shape), begin
            return p + move[at:begin].reshape(p.shape).cast(p.dtype)

        return map_arrays(moved, parameters), {"moves": moves, "changes": changes, "move": move, "gradient": g,
                                               "scale": scale, "number": number}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adafactor(Optimizer):
    """Adam without momentum, of a matrix (the last two axes) with sums of rows and of columns of g^2 only, whose rate is
    relative to the parameter's size (Shazeer and Stern, arXiv:1804.04235), as PyTorch has it:
    rho = min(rate, 1 / sqrt(t)) max(eps, rms(p)); u = g / sqrt(v); p -= rho u / max(1, rms(u) / clip). `smallest` is the
    least root of v; None: the type's epsilon. Weight decay is decoupled."""
    decay: float = -0.8
    smallest: float = None
    eps: float = 1e-3
    clip: float = 1.0
    weight_decay: float = 0.0
    _parts = {"row", "column", "number"}

    def start(self, parameters):
        """The state before the first step, in f32 of f16 and bf16; of vectors the squares are in "row" and "column" is a
        scalar."""
        def of(p):
            return "f32" if p.dtype in ("f16", "bf16") else p.dtype

        def row(p):
            return ops.zeros(p.shape if p.ndim < 2 else (*p.shape[:-1], 1), of(p))

        def column(p):
            return ops.zeros(() if p.ndim < 2 else (*p.shape[:-2], 1, p.shape[-1]), of(p))

        return {"row": map_arrays(lambda p: row(_array(p)), parameters),
                "column": map_arrays(lambda p: column(_array(p)), parameters), "number": ops.zeros(())}

    def _next(self, parameters, gradients, state, rate):
        number, t = _counted(state)
        weight = ops.exp2(ops.log2(t) * self.decay)
        limited = ops.minimum(rate, ops.rsqrt(t))

        def rms(x):
            return ops.sqrt(ops.mean(ops.square(widened(x)))).cast(x.dtype)

        def step(p, g, row, column):
            share = weight.cast(p.dtype)
            least = self.smallest if self.smallest is not None else EPSILONS[p.dtype.name]
            rate_of_p = ops.maximum(rms(p), self.eps) * limited.cast(p.dtype)
            kept = self._decayed(p, rate)
            def moved(old, new):
                return (widened(old) + widened(share) * (new - widened(old))).cast(old.dtype)

            squares = ops.square(widened(g))
            if p.ndim < 2:
                row = moved(row, squares)
                estimate = widened(row)
            else:
                row = moved(row, ops.mean(squares, -1, True))
                column = moved(column, ops.mean(squares, -2, True))
                estimate = widened(row) * widened(column) / ops.maximum(ops.mean(widened(row), -2, True), least)
            move = (widened(g) * ops.rsqrt(ops.maximum(estimate, least * least))).cast(g.dtype)
            return kept - move * (rate_of_p / ops.maximum(rms(move) / self.clip, 1.0)), row, column

        after, row, column = next_ones(step, parameters, gradients, state["row"], state["column"])
        return after, {"row": row, "column": column, "number": number}


def _array(x):
    return x if isinstance(x, (_tenon.Buffer, _tenon.Tensor)) else _tenon.Buffer(x)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Muon(Optimizer):
    """For matrices: m = momentum m + (1 - momentum) g; u = (1 - momentum) g + momentum m, or without nesterov m;
    p = p (1 - rate weight_decay) - rate sqrt(max(1, rows / columns)) o(u), where o makes singular values about 1 by
    `steps` steps of Newton and Schulz (Jordan et al., 2024). Computed in the parameter's type, in PyTorch in bf16. Other
    parameters go to another optimiser: see Groups. `adjust` is "match_rms_adamw" for the rates of AdamW,
    0.2 sqrt(max(rows, columns)) in the place of the root."""
    momentum: float = 0.95
    weight_decay: float = 0.1
    nesterov: bool = True
    steps: int = 5
    coefficients: tuple = (3.4445, -4.775, 2.0315)
    eps: float = 1e-7
    adjust: str = "original"
    _parts = {"momentum"}

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "coefficients", tuple(self.coefficients))  # a list is no part of a program

    def start(self, parameters):
        """The state before the first step."""
        return {"momentum": _zeros(parameters)}

    def _next(self, parameters, gradients, state, rate):
        if self.adjust not in ("original", "match_rms_adamw"):
            raise wrong_call("Muon", f"adjust={self.adjust!r} is neither 'original' nor 'match_rms_adamw'")

        def orthogonal(x):
            a, b, c = self.coefficients
            is_tall = x.shape[0] > x.shape[1]
            x = ops.transpose(x) if is_tall else x
            wide = widened(x)
            x = (wide / ops.maximum(ops.sqrt(ops.sum(wide * wide)), self.eps)).cast(x.dtype)
            for _ in range(self.steps):
                gram = x @ ops.transpose(x)
                x = a * x + (b * gram + c * (gram @ gram)) @ x
            return ops.transpose(x) if is_tall else x

        def step(p, g, m):
            if p.ndim != 2:
                raise wrong_call("Muon", f"a parameter is {p.type!r}, which is no matrix; Groups gives others to another "
                                 "optimiser")
            m = self.momentum * m + (1 - self.momentum) * g
            u = orthogonal((1 - self.momentum) * g + self.momentum * m if self.nesterov else m)
            rows, columns = p.shape
            is_original = self.adjust == "original"
            factor = math.sqrt(max(1, rows / max(1, columns))) if is_original else 0.2 * math.sqrt(max(rows, columns))
            kept = self._decayed(p, rate)
            return kept - factor * scaled(u, rate), m

        after, momentum = next_ones(step, parameters, gradients, state["momentum"])
        return after, {"momentum": momentum}


class Groups(Optimizer):
    """Optimisers of parts of the parameters: each array goes to the first one whose rule takes it.

        Groups((lambda path, p: p.ndim < 2, train.adamw(0.0)),             # biases and norms: no decay
               (lambda path, p: path.startswith("embedding."), train.Adam(), 0.1),   # a tenth of the rate
               (True, train.Muon()))

    A rule is a function of an array's path, "layers.0.weight", and the array, or True. It goes by names, sizes and types:
    it is asked when a state is made, and when update() is recorded for such parameters, not at each call. A number behind
    an optimiser is a factor of the rate. An array that no rule takes stays as it is. The rate of update() may be a tuple
    or list with one for each group.
    """

    def __init__(self, *groups):
        self.groups = tuple((one[0], one[1], one[2] if len(one) > 2 else 1.0) for one in groups)
        for rule, optimizer, factor in self.groups:
            if not isinstance(optimizer, Optimizer) or not (rule is True or callable(rule)):
                raise wrong_call("Groups", "a group is (rule, optimiser) or (rule, optimiser, factor of the rate)")

    def _divided(self, parameters):
        """Of each array, in order, its path and its group, or None."""
        form, arrays = arrays_by_name("Groups", parameters)
        found = []
        for path, one in arrays.items():
            one = _array(one)
            takes = (i for i, (rule, *_) in enumerate(self.groups) if rule is True or rule(path, one))
            found.append((path, next(takes, None)))
        return form, list(arrays.values()), found

    def start(self, parameters):
        """The state before the first step: {"0": that of the first group, ...}, of arrays by their paths."""
        _, leaves, found = self._divided(parameters)
        return {str(i): optimizer.start({path: one for (path, group), one in zip(found, leaves) if group == i})
                for i, (_, optimizer, _) in enumerate(self.groups)}

    def _keeps(self, state):
        return isinstance(state, dict) and set(state) == {str(i) for i in range(len(self.groups))} and \
            all(optimizer._keeps(state[str(i)]) for i, (_, optimizer, _) in enumerate(self.groups))

    @property
    def _parts(self):
        return {str(i) for i in range(len(self.groups))}

    def _next(self, parameters, gradients, state, rate):
        form, leaves, found = self._divided(parameters)
        gradients = leaves_like(form, gradients, "update: gradients")
        rates = rate if isinstance(rate, (list, tuple)) else [rate] * len(self.groups)
        if len(rates) != len(self.groups):
            raise wrong_call("Groups", f"{len(rates)} rates for {len(self.groups)} groups")
        after, states = list(leaves), {}
        for i, (_, optimizer, factor) in enumerate(self.groups):
            at = [j for j, (_, group) in enumerate(found) if group == i]
            if not at:
                states[str(i)] = state[str(i)]
                continue
            names = [found[j][0] for j in at]
            moved, states[str(i)] = optimizer._next(dict(zip(names, (leaves[j] for j in at))),
                                                    dict(zip(names, (gradients[j] for j in at))), state[str(i)],
                                                    rates[i] if factor == 1 else rates[i] * factor)
            for j, name in zip(at, names):
                after[j] = moved[name]
        return filled(form, after.__getitem__), states

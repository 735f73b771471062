"""Optimisers of structures of arrays, rates and checkpoints, with the names and formulas of tenon/train.hpp.

    optimizer = tenon.train.adamw(weight_decay=0.01)
    state = optimizer.start(parameters)
    for i, (x, y) in enumerate(batches):
        loss, gradients = loss_and_gradients(parameters, x, y)      # tenon.value_and_grad(loss)
        gradients, norm = tenon.train.clip_norm(gradients, 1.0)
        parameters, state = optimizer.update(parameters, gradients, state, rate.at(i))
    tenon.train.save("net.safetensors", parameters)

Parameters are an array, or dicts, lists, tuples and dataclasses of arrays. Nothing is changed in place: what comes next
is returned. Each function runs as one program; within tenon.compiled they are recorded with the rest of the step.
"""

import dataclasses
import math
import os

from . import _tenon, ops
from .importing.errors import wrong_call
from .optimizers import (  # noqa: F401
    Adadelta, Adafactor, Adagrad, Adamax, Asgd, Groups, Lbfgs, Muon, NAdam, Optimizer, RAdam, RmsProp, Rprop,
    _counted, _zeros, arrays_by_name, map_alike, map_arrays, next_ones, scalar, scaled, widened,
)
from .programs import programs_of
from .schedules import (  # noqa: F401
    CosineRestarts, ExponentialDecay, MilestoneDecay, OneCycle, PlateauDecay, PolynomialDecay, StepDecay, Warmup,
    WarmupCosine,
)
from .structures import WORDS, filled, form_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sgd(Optimizer):
    """g += weight_decay p; m = momentum m + g; p -= rate m, or with nesterov p -= rate (g + momentum m)."""
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise wrong_call("Sgd", "nesterov=True needs a momentum")

    @property
    def _parts(self):
        return {"momentum"} if self.momentum else set()

    def start(self, parameters):
        """The state before the first step: empty where there is no momentum."""
        return {part: _zeros(parameters) for part in self._parts}

    def _next(self, parameters, gradients, state, rate):
        def step(p, g, *held):
            g = self._with_decay(p, g)
            if not held:
                return (p - scaled(g, rate),)
            m = self.momentum * held[0] + g
            return p - scaled(g + self.momentum * m if self.nesterov else m, rate), m

        after, *held = next_ones(step, parameters, gradients, *state.values())
        return after, dict(zip(state, held))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps). Adam
    adds weight_decay p to g (arXiv:1412.6980); with `decoupled`, as adamw() makes it, p is multiplied by
    1 - rate weight_decay first (arXiv:1711.05101). With `amsgrad` the largest v so far is in the place of v (Reddi et al.,
    2018)."""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    amsgrad: bool = False

    @property
    def _parts(self):
        return {"mean", "square", "number", *(["largest"] if self.amsgrad else [])}

    def start(self, parameters):
        """The state before the first step."""
        return {part: ops.zeros(()) if part == "number" else _zeros(parameters) for part in sorted(self._parts)}

    def _next(self, parameters, gradients, state, rate):
        number, t = _counted(state)

        def correction(beta):
            """1 - beta^t; the power itself would lose the digits that beta, near 1, differs by."""
            return -ops.expm1(t * (math.log(beta) if beta > 0 else -math.inf))

        of_mean = rate / correction(self.beta1)
        of_square = ops.rsqrt(correction(self.beta2))

        parts = ["mean", "square", *(["largest"] if self.amsgrad else [])]

        def step(p, g, m, v, *largest):
            g = g if self.decoupled else self._with_decay(p, g)
            m = self.beta1 * m + (1 - self.beta1) * g
            v = self.beta2 * v + (1 - self.beta2) * (g * g)
            kept = self._decayed(p, rate) if self.decoupled else p
            largest = [ops.maximum(one, v) for one in largest]
            root = ops.sqrt(largest[0] if largest else v)
            return kept - scaled(m, of_mean) / (scaled(root, of_square) + self.eps), m, v, *largest

        after, *held = next_ones(step, parameters, gradients, *(state[part] for part in parts))
        return after, {**dict(zip(parts, held)), "number": number}


def adamw(weight_decay=0.01, **options):
    """Adam with decoupled weight decay."""
    return Adam(weight_decay=weight_decay, decoupled=True, **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lion(Optimizer):
    """p = p (1 - rate weight_decay) - rate sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g (arXiv:2302.06675)."""
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0
    _parts = {"mean"}

    def start(self, parameters):
        """The state before the first step."""
        return {"mean": _zeros(parameters)}

    def _next(self, parameters, gradients, state, rate):
        def step(p, g, m):
            return (self._decayed(p, rate) - scaled(ops.sign(self.beta1 * m + (1 - self.beta1) * g), rate),
                    self.beta2 * m + (1 - self.beta2) * g)

        after, mean = next_ones(step, parameters, gradients, state["mean"])
        return after, {"mean": mean}


def _arrays_of(structure):
    leaves = []
    form_of(structure, leaves, WORDS)
    return leaves


def _norm(gradients):
    """In f64 where an array is."""
    arrays = _arrays_of(gradients)
    if not arrays:
        raise wrong_call("global_norm", "there is no array")
    dtype = "f64" if any(g.dtype == "f64" for g in arrays) else "f32"
    squares = [ops.sum(ops.square(widened(g))).cast(dtype) for g in arrays]
    return ops.sqrt(sum(squares[1:], squares[0]))


def _clipped(gradients, max_norm):
    norm = _norm(gradients)
    factor = ops.minimum(scalar(max_norm).cast(norm.dtype) / (norm + 1e-6), 1.0)
    return map_arrays(lambda g: scaled(g, factor), gradients), norm.cast("f32")


def _averaged(average, parameters, decay):
    share = 1.0 - scalar(decay)
    return map_alike("averaged", lambda a, p: a + scaled(p - a, share), average, parameters)


_average_at_once = programs_of(_averaged)
_norm_at_once = programs_of(lambda gradients: _norm(gradients).cast("f32"))
_clip_at_once = programs_of(_clipped)


def global_norm(gradients):
    """The root of the sum of all squares, an f32 scalar."""
    return _norm_at_once(gradients)


def clip_norm(gradients, max_norm):
    """(The gradients times min(1, max_norm / (their norm + 1e-6)), the norm before.)"""
    return _clip_at_once(gradients, max_norm)


def clip_value(gradients, limit):
    """The gradients within [-limit, limit]: torch's clip_grad_value_."""
    return map_arrays(lambda g: ops.clip(g, -float(limit), float(limit)), gradients)


def averaged(average, parameters, decay=0.999):
    """decay average + (1 - decay) parameters: an exponential moving average of the parameters of all steps, whose
    network is often the better one."""
    return _average_at_once(average, parameters, decay)


def accumulate(a, b):
    """a + b: gradients of several batches before one update."""
    return map_alike("accumulate", lambda x, y: x + y, a, b)


def cast(structure, dtype):
    """Copies of another type, through which gradients pass: bf16 ones of f32 parameters."""
    return map_arrays(lambda x: ops.cast(x, dtype=dtype), structure)


def save(path, structure):
    """Writes the arrays of a structure to a safetensors file, under their paths: "layers.0.w"."""
    _tenon.save_safetensors(os.fspath(path), arrays_by_name("train.save", structure)[1])


def load(path, like):
    """The arrays of a file that save() wrote, in the structure of `like`, whose types they must have."""
    file, (form, named) = _tenon.open(os.fspath(path)), arrays_by_name("train.load", like)
    found = []
    for name, one in named.items():
        array = _tenon.Buffer(file[name]).copy()
        wanted = (one if isinstance(one, _tenon.Buffer) else _tenon.Buffer(one)).type
        if repr(array.type) != repr(wanted):
            raise wrong_call("train.load", f"'{name}' is {array.type!r}, the structure has {wanted!r}")
        found.append(array)
    return filled(form, found.__getitem__)

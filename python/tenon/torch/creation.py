"""Arrays of one number, ranges, triangles."""

import math

import numpy as np

from ..importing import sizes as sz
from ..importing.shaping import shaped, sliced, triangle
from ..importing.types import INTEGERS, NUMPY, check_computed
from ..importing.values import Value
from .node import op, refuse

refuse("draws random numbers", "rand.default", "randn.default", "randint.default", "randint.low", "randperm.default",
       "bernoulli.p", "bernoulli.default", "rand_like.default", "randn_like.default", "multinomial.default",
       "normal_functional.default", "uniform.default", "exponential.default")


@op("full.default", "zeros.default", "ones.default", "empty.memory_format", "new_zeros.default", "new_ones.default",
    "new_full.default", "new_empty.default", "full_like.default", "zeros_like.default", "ones_like.default",
    "empty_like.default", "empty_strided.default", "empty_permuted.default", "new_empty_strided.default")
def full(n, self=None, size=None, fill_value=0, stride=None, physical_layout=None, dtype=None, layout=None,
         device=None, pin_memory=None, memory_format=None, **_):
    number = 1 if "ones" in n.op else fill_value
    sizes = self.shape if size is None else size
    if isinstance(number, (Value, sz.Size)):
        return n.b.broadcast(n.value(number, n.dtype), sizes)
    n.value(number, n.dtype)  # refuses what the type does not have
    return n.b.full(tuple(sizes), number, n.dtype)


@op("scalar_tensor.default")
def scalar_tensor(n, s, dtype=None, layout=None, device=None, pin_memory=None):
    return n.value(s, n.dtype)


@op("arange.default", "arange.start", "arange.start_step")
def arange(n, end, start=0, step=1, dtype=None, layout=None, device=None, pin_memory=None):
    if any(isinstance(one, sz.Size) for one in (start, end, step)):
        if not isinstance(step, int) or step < 1 and step != -1:
            raise n.error(f"{step!r} from {start!r} to {end!r}", "step")
        if step == -1:
            made = n.b.iota(sz.sub(start, end), "i64", 0, -1)
        else:
            made = sliced(n, n.b.iota(sz.sub(end, start)), 0, 0, None, step)
        return n.cast(made if start == 0 else shaped(made + n.b.scalar_size(start), made.shape), n.dtype)
    if any(isinstance(one, Value) for one in (start, end, step)):
        raise n.not_known("bounds that the program computes")
    count = math.ceil((end - start) / step)
    if count < 0:
        raise n.malformed(f"from {start} to {end} in steps of {step}")
    check_computed(n.where, [count])
    kind = NUMPY[n.dtype]
    wide = np.int64 if n.dtype in INTEGERS else np.float64
    return n.b.known((wide(start) + np.arange(count, dtype=wide) * wide(step)).astype(kind))


@op("linspace.default")
def linspace(n, start, end, steps, dtype=None, layout=None, device=None, pin_memory=None):
    check_computed(n.where, [n.integer(steps, "steps")])
    return n.b.known(np.linspace(start, end, steps).astype(NUMPY[n.dtype]))


@op("logspace.default")
def logspace(n, start, end, steps, base=10.0, dtype=None, layout=None, device=None, pin_memory=None):
    check_computed(n.where, [n.integer(steps, "steps")])
    return n.cast(n.b.known(np.power(float(base), np.linspace(start, end, steps))), n.dtype)


@op("tril.default", "triu.default")
def triangular(n, self, diagonal=0):
    return triangle(n, self, n.integer(diagonal, "diagonal"), "triu" in n.op)


@op("fill_diagonal.default")
def fill_diagonal(n, self, fill_value, wrap=False):
    sizes = [n.known_size(self, axis) for axis in range(self.rank)]
    if self.rank < 2 or wrap and sizes[0] > sizes[1] or self.rank > 2 and len(set(sizes)) > 1:
        raise n.error(f"{self!r}", "wrap" if wrap else "self")
    rows = [n.arange(size).reshape([-1 if i == axis else 1 for i in range(self.rank)]) for axis, size in enumerate(sizes)]
    mask = np.ones((1,) * self.rank, bool)
    for one in rows[1:]:
        mask = mask & (one == rows[0])
    return shaped(n.b.where(n.b.known(mask), n.value(fill_value, self.dtype), self), self.shape)


@op("eye.default", "eye.m")
def eye(n, n_, m=None, dtype=None, layout=None, device=None, pin_memory=None):
    columns = n_ if m is None else m
    check_computed(n.where, [n.integer(n_, "n"), n.integer(columns, "m")])
    return n.b.known(np.eye(n_, columns, dtype=NUMPY[n.dtype]))

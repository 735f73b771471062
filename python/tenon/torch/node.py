"""A node of an exported graph as its handler sees it, and the table of handlers."""

import copy
import functools
import math
import re

import numpy as np

from ..importing import node
from ..importing import sizes as sz
from ..importing.shaping import wrapped
from ..importing.types import FLOATS, INTEGERS, NUMPY
from ..importing.values import Value

HANDLERS = {}   # "aten.add.Tensor": function(n, **arguments) that returns a value, or a tuple or list of them
REFUSED = {}    # ops that are known not to be taken: why
VIEWS = set()   # names of ops whose result shares the memory of their first argument
VIEWS_IF_DENSE = {"aten.reshape.default", "aten.reshape_as.default", "aten.flatten.using_ints", "aten.ravel.default",
                  "aten.contiguous.default"}
SAME_IF_EQUAL = {"aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.to.other", "aten.type_as.default",
                 "aten.dropout.default", "aten.float.default"}  # where the types are equal
COPIES_OR_VIEWS = {"aten.resolve_conj.default", "aten.resolve_neg.default"}  # the graph does not say which
_FRAME = re.compile(r'File "(.*)", line (\d+), in (.*)\n\s*(.*)')
_LIBRARIES = re.compile(r"/(site|dist)-packages/|^torch/|^<")


def op(*names, view=False, domain="aten"):
    """Marks the function that reads ops of these names; its parameters have the names of the op's arguments."""

    def mark(function):
        for name in names:
            HANDLERS[f"{domain}.{name}"] = function
            if view:
                VIEWS.add(f"{domain}.{name}")
        return function

    return mark


def in_f32(function):
    """Marks a function of several ops that PyTorch computes as one: of f16 and bf16 in f32, rounded at the end."""

    @functools.wraps(function)
    def rounded(n, *arguments, **named):
        wide = copy.copy(n)
        wide.metas = [one and (_WIDE.get(one[0], one[0]), *one[1:]) for one in n.metas]
        made = function(wide, *(_widened(n, one) for one in arguments),
                        **{name: _widened(n, one) for name, one in named.items()})
        if not isinstance(made, tuple):
            return _narrowed(n, made, n.metas[0])
        return tuple(_narrowed(n, one, meta) for one, meta in zip(made, [*n.metas, None]))

    return rounded


_WIDE = {"f16": "f32", "bf16": "f32"}


def with_exact_numbers(function):
    """Marks a product or quotient: f16 and bf16 by a number, or an array of one, that they would round is computed in f32,
    as PyTorch does. In sums and differences it rounds such numbers."""
    wide = in_f32(function)

    @functools.wraps(function)
    def chosen(n, self, other, **named):
        is_exact = n.dtype not in _WIDE or _is_held(self, n.dtype) and _is_held(other, n.dtype)
        return (function if is_exact else wide)(n, self, other, **named)

    return chosen


def _is_held(x, dtype):
    """Whether a type has a number; of values those without axes may have others."""
    if isinstance(x, (int, float)):
        with np.errstate(over="ignore"):
            return float(np.array(x, NUMPY[dtype])) == x
    return not isinstance(x, Value) or x.rank > 0 or x.dtype not in ("f32", "f64")


def _widened(n, x):
    return n.cast(x, "f32") if isinstance(x, Value) and x.dtype in _WIDE else x


def _narrowed(n, x, meta):
    return n.cast(x, meta[0]) if isinstance(x, Value) and meta and meta[0] in _WIDE and x.dtype == "f32" else x


def refuse(reason, *names, domain="aten"):
    """Says why ops are not taken."""
    REFUSED.update((f"{domain}.{name}", reason) for name in names)


class Node(node.Node):
    """A node: its arguments, and what torch.export says about its results."""

    part = "argument"

    def __init__(self, name, target, trace, importer, metas, wanted=(), source=None):
        super().__init__(target, importer.builder)
        self.name = name
        self.importer = importer
        self.trace = trace
        self.metas = metas  # (type, sizes) of each result that is a tensor, else None
        self.wanted = wanted
        self.source = source  # the record of the first argument, where that is a tensor

    def wants(self, output):
        """Whether the result of this number is used."""
        return output < len(self.wanted) and self.wanted[output]

    @property
    def where(self):
        found = _frame(self.trace)
        return f"{self.op} '{self.name}'" + (" at {}:{} ({})".format(*found) if found else "")

    @property
    def place(self):
        """(file, line) of the module, or the node's name: where the library says that a value comes from."""
        found = _frame(self.trace)
        return (found[0], min(int(found[1]), 2**31 - 1)) if found else (self.name.rpartition("/")[2], 0)

    @property
    def dtype(self):
        """The type of the first result."""
        return self.metas[0][0]

    @property
    def shape(self):
        """The sizes of the first result; None for those that are no expressions of known ones."""
        return self.metas[0][1]

    def value(self, x, dtype=None):
        """A tensor, a number or a size as a value of a type."""
        if isinstance(x, Value):
            made = x
        elif isinstance(x, sz.Size):
            made = self.b.of_sizes(x)
        elif isinstance(x, (bool, int, float, complex)):
            return self.b.number(_fitting(x, dtype or scalar_type(x), self), dtype or scalar_type(x))
        else:
            raise self.malformed(f"{type(x).__name__} where a number or a tensor is needed")
        return made if dtype is None else self.cast(made, dtype)

    def cast(self, x, dtype):
        """torch's conversion: to bool is != 0, floats to integers are cut off."""
        if x.dtype == dtype:
            return x
        if dtype == "bool":
            return self.b.ne(x, self.b.number(0, x.dtype)) if x.sizes is None else \
                self.b.ne(self.b.constant(x), self.b.number(0, "i64"))
        if x.sizes is not None and dtype == "i64":
            return x
        if x.dtype in FLOATS and dtype in INTEGERS:
            x = self.b.trunc(x)
        return wrapped(self, x, dtype)

    def words(self, word, name, allowed):
        """An argument that is one of some words."""
        if word not in allowed:
            raise self.error(f"{word!r} is none of {', '.join(allowed)}", name)
        return word

    def axes(self, dims, rank, name="dim"):
        """Axes counted from the front, each once; all where there are none."""
        if dims is None or isinstance(dims, (list, tuple)) and not dims:
            return list(range(rank))
        dims = [dims] if isinstance(dims, int) else dims
        made = [self.axis(one, rank, name) for one in dims]
        if len(set(made)) != len(made):
            raise self.malformed(f"argument '{name}': {dims}, one of them twice")
        return made if rank else []

    def listed_axes(self, dims, rank):
        """The same of ops for which an empty list is no axis."""
        return [] if isinstance(dims, (list, tuple)) and not dims else self.axes(dims, rank)

    def integer(self, x, name):
        """An argument that has to be known as an integer."""
        if isinstance(x, bool) or not isinstance(x, int):
            raise self.not_known(f"argument '{name}' is {x!r}: give `shapes`") if isinstance(x, (sz.Size, Value)) \
                else self.malformed(f"argument '{name}' is {x!r}")
        return x


def _fitting(x, dtype, n):
    if isinstance(x, complex) and dtype != "c64":
        raise n.malformed(f"{x} as {dtype}")
    if dtype in INTEGERS:
        if isinstance(x, float):
            if not math.isfinite(x):
                raise n.malformed(f"{x} as {dtype}")
            x = int(x)  # cut off, as torch does where an op takes the number in its operand's type
        info = np.iinfo(NUMPY[dtype])
        x = (x - info.min) % (info.max - info.min + 1) + info.min  # wrapped around: uint8 > -1 is uint8 > 255
    return x


def scalar_type(x):
    """The type that torch gives to a number of Python."""
    if isinstance(x, complex):
        return "c64"
    return "bool" if isinstance(x, bool) else "i64" if isinstance(x, (int, sz.Size)) else "f32"


def _frame(trace):
    """(file, line, code) of the innermost frame outside of libraries in a node's stack trace, or None."""
    frames = _FRAME.findall(trace[-20_000:]) if isinstance(trace, str) else []
    if not frames:
        return None
    own = [one for one in frames if not _LIBRARIES.search(one[0])]
    file, line, _, code = (own or frames)[-1]
    return file.rpartition("/")[2], line, code.strip()[:120]


_ORDER = ["bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f8_e4m3", "f8_e5m2", "f16", "bf16",
          "f32", "f64", "c64"]


def _kind(dtype):
    return 0 if dtype == "bool" else 1 if dtype in INTEGERS else 3 if dtype == "c64" else 2


def _joined(a, b):
    """The least type that has all numbers of both, as torch.promote_types."""
    if a == b:
        return a
    if _kind(a) != _kind(b):
        return max(a, b, key=_kind)
    if {a, b} == {"f16", "bf16"}:
        return "f32"
    signed = [one for one in (a, b) if one[0] == "i"]
    unsigned = [one for one in (a, b) if one[0] == "u"]
    if signed and unsigned:
        bits = max(int(signed[0][1:]), 2 * int(unsigned[0][1:]))
        return f"i{min(bits, 64)}"
    return max(a, b, key=_ORDER.index)


def common_type(*operands):
    """The type that torch computes in: arrays come before single values, and those before numbers, within a kind."""
    ranks = [[], [], []]
    for one in operands:
        if isinstance(one, Value):
            ranks[0 if one.rank else 1].append(one.dtype)
        elif one is not None:
            ranks[2].append(scalar_type(one))
    result = None
    for types in ranks:
        best = None
        for one in types:
            best = one if best is None else _joined(best, one)
        if result is None or best is not None and _kind(best) > _kind(result):
            result = best
    return result

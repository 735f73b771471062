"""Sizes and numbers of Python in a graph: their arithmetic, and the assertions about them."""

import math

from ..importing import sizes as sz
from . import expressions
from .node import HANDLERS, op


def _python(*names):
    """Marks the function that reads operators of Python, by position."""

    def mark(function):
        def handler(n, **arguments):
            return function(n, *arguments.values())
        for name in names:
            HANDLERS[name] = handler
        return function

    return mark


def _are_sizes(*operands):
    return all(isinstance(one, (int, sz.Size)) and not isinstance(one, bool) for one in operands)


def _are_numbers(*operands):
    return all(isinstance(one, (int, float)) for one in operands)


def _computed(n, function, a, b):
    """Arithmetic of numbers that the program computes: in f64."""
    return function(n.value(a, "f64"), n.value(b, "f64"))


@_python("_operator.add")
def add(n, a, b):
    return a + b if _are_numbers(a, b) else sz.add(a, b) if _are_sizes(a, b) else _computed(n, n.b.add, a, b)


@_python("_operator.sub")
def sub(n, a, b):
    return a - b if _are_numbers(a, b) else sz.sub(a, b) if _are_sizes(a, b) else _computed(n, n.b.sub, a, b)


@_python("_operator.mul")
def mul(n, a, b):
    return a * b if _are_numbers(a, b) else sz.mul(a, b) if _are_sizes(a, b) else _computed(n, n.b.mul, a, b)


@_python("_operator.floordiv")
def floordiv(n, a, b):
    return a // b if _are_numbers(a, b) else expressions.divided(a, b)


@_python("_operator.mod")
def mod(n, a, b):
    return a % b if _are_numbers(a, b) else expressions.remainder(a, b)


@_python("_operator.truediv", "torch.sym_float_truediv")
def truediv(n, a, b):
    return a / b if _are_numbers(a, b) else _computed(n, n.b.div, a, b)


@_python("_operator.pow")
def power(n, a, b):
    if _are_numbers(a, b):
        return a**b
    if _are_sizes(a) and isinstance(b, int) and 0 <= b <= 8:
        return sz.product([a] * b)
    return _computed(n, n.b.pow, a, b)


@_python("_operator.neg")
def neg(n, a):
    return -a if _are_numbers(a) else sz.sub(0, a)


@_python("math.ceil", "math.floor", "math.trunc", "builtins.int", "torch.sym_int")
def whole(n, a):
    if isinstance(a, float):
        return {"math.ceil": math.ceil, "math.floor": math.floor}.get(n.op, math.trunc)(a)
    if _are_sizes(a):
        return a
    raise n.not_known(f"{n.op} of a number that the program computes: give `shapes`")


@_python("torch.sym_float", "builtins.float")
def real(n, a):
    return float(a) if _are_numbers(a) else n.value(a, "f64")


@_python("torch._sym_sqrt", "math.sqrt", "torch.sym_sqrt")
def root(n, a):
    return math.sqrt(a) if _are_numbers(a) else n.b.sqrt(n.value(a, "f64"))


@_python("torch.sym_max")
def greatest(n, a, b):
    return max(a, b) if _are_numbers(a, b) else n.importer.symbols.extreme(True, [a, b])


@_python("torch.sym_min")
def least(n, a, b):
    return min(a, b) if _are_numbers(a, b) else n.importer.symbols.extreme(False, [a, b])


def _relation(name, numbers, function):
    def handler(n, a, b):
        if _are_numbers(a, b):
            return numbers(a, b)
        if _are_sizes(a, b):
            order, is_strict = n.importer.symbols.order(a, b)
            if order is None or order and not is_strict and numbers(order, 0) != numbers(0, 0):
                return _Open(n.op, a, b)
            return numbers(order, 0)
        return getattr(n.b, function)(n.value(a, "f64"), n.value(b, "f64"))
    _python(f"_operator.{name}")(handler)


class _Open:
    """A relation of sizes that holds for some and not for others; torch.export has it in assertions only."""

    def __init__(self, op, a, b):
        self.parts = op, a, b

    def __repr__(self):
        return f"{self.parts[0]}({self.parts[1]!r}, {self.parts[2]!r})"


for _name, _numbers, _function in (
        ("lt", lambda a, b: a < b, "lt"), ("le", lambda a, b: a <= b, "le"), ("gt", lambda a, b: a > b, "gt"),
        ("ge", lambda a, b: a >= b, "ge"), ("eq", lambda a, b: a == b, "eq"), ("ne", lambda a, b: a != b, "ne")):
    _relation(_name, _numbers, _function)


@_python("_operator.and_", "_operator.or_", "torch.sym_not", "_operator.not_")
def connective(n, *operands):
    if all(isinstance(one, bool) for one in operands):
        return operands[0] and operands[1] if n.op.endswith("and_") else operands[0] or operands[1] \
            if n.op.endswith("or_") else not operands[0]
    return _Open(n.op, operands[0], operands[-1])


@_python("_operator.getitem")
def item(n, values, position):
    return values[position]


@op("sym_size.int")
def sym_size(n, self, dim):
    return self.shape[n.axis(dim, self.rank, "dim")]


@op("sym_numel.default")
def sym_numel(n, self):
    return sz.product(self.shape)


@op("sym_stride.int")
def sym_stride(n, self, dim):
    return sz.product(self.shape[n.axis(dim, self.rank, "dim") + 1:])


@op("sym_storage_offset.default")
def sym_storage_offset(n, self):
    return 0


@op("_assert_scalar.default")
def assert_scalar(n, self, assert_msg=""):
    if self is False:
        raise n.malformed(f"the program's own assertion fails: {assert_msg[:200]}")
    return ()


@op("_assert_tensor_metadata.default", "sym_constrain_range_for_size.default", "sym_constrain_range.default",
    "_assert_async.msg", "_assert_async.default", "_functional_assert_async.msg", "_linalg_check_errors.default",
    "promote_types.default")
def assertion(n, **_):
    return ()


@op("item.default", "_local_scalar_dense.default")
def number_of(n, self):
    if self.is_known:
        return n.number(self, "x")
    if self.dtype in ("i64", "i32") and n.importer.binds_number(n):
        return n.importer.number(n, n.cast(n.b.reshape_to(self, (1,)), "i64"))
    return n.b.reshape_to(self, ())

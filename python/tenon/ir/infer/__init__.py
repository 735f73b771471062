"""The type of an op's result, from the types of its operands: the numbered constraints of
include/tenon/ops, with their codes. Sizes may be names or unknown; only known ones can disagree.
"""
import math
from types import SimpleNamespace

from ..errors import Error, Unsupported
from ..schema import OPS
from ..tensors import INT64_MAX, is_block, is_floating, is_integer, is_linear_object, is_object, is_stored

RULES = {}


def infer(op, types, attributes=None):
    """The result's type. Throws the Error of the constraint that is violated."""
    values = {**OPS[op].defaults, **(attributes or {})}
    for type_ in types:
        if is_object(type_.dtype) and not OPS[op].takes_objects:
            raise Error("UnsupportedDType", f"{op}: takes no {type_}")
    updated = OPS[op].updates_input
    if 0 <= updated < len(types) and is_object(types[updated].dtype) and not is_linear_object(types[updated].dtype):
        raise Error("UnsupportedDType", f"{op}: updates a {types[updated]}, whose objects are shared and never change")
    if op not in RULES:
        raise Unsupported(f"the type of what {op} makes is not known here")
    try:
        made = RULES[op](op, list(types), SimpleNamespace(**values))
        if is_object(made.dtype) and (updated < 0 or types[updated] != made):
            raise Error("UnsupportedDType", f"makes a {made}: only an op that updates one returns it")
        return made
    except Error as error:
        error.message = f"{op}: {error.message}"
        error.args = (error.code, error.message)
        raise


def rule(*names):
    def add(function):
        RULES.update((name, function) for name in names)
        return function
    return add


# --- what rules have in common


def require(condition, code, message, *types):
    if not condition:
        operands = ", ".join(map(str, types))
        raise Error(code, f"{message}: {operands}" if operands else message)


def known(size):
    return isinstance(size, int)


def agree(a, b):
    return a == b or not known(a) or not known(b)


def either(a, b):
    """Of two sizes that agree, the known one."""
    return a if known(a) else b if known(b) else a if a is not None else b


def product(*sizes):
    if not all(map(known, sizes)):
        return None
    return checked(math.prod(sizes))


def checked(size):
    require(-INT64_MAX - 1 <= size <= INT64_MAX, "ShapeOverflow", "a size exceeds 2^63 - 1")
    return size


def floating(*types):
    for type_ in types:
        require(is_floating(type_.dtype), "UnsupportedDType", "needs a floating type", type_)


def number(type_):
    require(is_floating(type_.dtype) or is_integer(type_.dtype), "UnsupportedDType",
            "needs a floating or integer type", type_)


def plain(*types):
    for type_ in types:
        require(not is_block(type_.dtype), "UnsupportedDType", "takes no block type", type_)


def computed(type_):
    plain(type_)
    require(type_.dtype != "c64", "UnsupportedDType", "takes no complex numbers", type_)
    require(not is_stored(type_.dtype), "UnsupportedDType", "does not compute with this type, cast it", type_)


def values(type_):
    require(is_floating(type_.dtype) or is_block(type_.dtype), "UnsupportedDType", "needs a floating or a block type",
            type_)


def index(type_):
    require(type_.dtype in ("i32", "i64"), "UnsupportedDType", "needs i32 or i64", type_)


def dtype(type_, wanted, code="UnsupportedDType"):
    require(type_.dtype == wanted, code, f"needs {wanted}", type_)


def rank(type_, wanted):
    require(type_.rank == wanted, "ShapeMismatch", f"needs rank {wanted}", type_)


def one_dtype(*types):
    require(len({type_.dtype for type_ in types}) <= 1, "ShapeMismatch", "dtypes differ", *types)


def axis_of(type_, axis):
    require(0 <= axis < type_.rank, "AxisOutOfRange", f"axis {axis} out of range", type_)
    return axis


def common(a, i, b, j, what):
    require(agree(a.dims[i], b.dims[j]), "ShapeMismatch", f"{what} differs", a, b)
    return either(a.dims[i], b.dims[j])


def count(types, wanted):
    require(len(types) == wanted, "BadArgument", f"{len(types)} inputs, needs {wanted}")


def one_number(type_):
    return type_.dims in ((), (1,))


def broadcast_size(a, b):
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if known(a) and known(b):
        raise Error("ShapeMismatch", f"sizes {a} and {b} do not broadcast")
    return a if known(a) else b if known(b) else None


def broadcast(*types):
    most = max(type_.rank for type_ in types)
    dims = [1] * most
    for type_ in types:
        for i, size in enumerate(type_.dims, most - type_.rank):
            dims[i] = broadcast_size(dims[i], size)
    return tuple(dims)


def finite(*reals):
    return all(map(math.isfinite, reals))


from . import axes, images, language, linalg, objects, pointwise, products, quantised, shapes  # noqa: E402, F401

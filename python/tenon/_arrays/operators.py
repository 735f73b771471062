"""Operators that are more than one op."""

from .operands import Buffer, Tensor, _floating, _is_whole, _operand, _ops, _public, common


@_public
def true_divide(a, b):
    """a / b; of integers and booleans as f32, or as the other operand's floating type. `ops.div` is the op: of integers
    the whole part."""
    a, b = _operand(a), _operand(b)
    dtype = next((_floating(one) for one in (a, b) if isinstance(one, (Tensor, Buffer)) and not _is_whole(one)), "f32")
    return _ops["div"](*(_ops["cast"](one, dtype=dtype) if isinstance(one, (Tensor, Buffer)) and _is_whole(one) else one
                         for one in (a, b)))


@_public
def floor_divide(a, b):
    """a // b: the quotient rounded down, as Python and numpy have it."""
    a, b = common(a, b)
    rest = a - _ops["remainder"](a, b)
    if all(isinstance(one, (bool, int)) or isinstance(one, (Tensor, Buffer)) and _is_whole(one) for one in (a, b)):
        return _ops["div"](rest, b)
    whole = _ops["round"](_ops["div"](rest, b))
    if isinstance(b, (int, float)):
        return whole if b else _ops["div"](a, float(b))
    return _ops["where"](_ops["eq"](b, 0.0), _ops["div"](a, b), whole)

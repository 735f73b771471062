"""Operators that are more than one op."""

from .operands import Buffer, Tensor, _floating, _is_whole, _operand, _ops, _public, are_booleans, booleans_as_numbers, common


@_public
def true_divide(a, b):
    """a / b; of integers and booleans as f32, or as the other operand's floating type. `ops.div` is the op: of integers
    the whole part."""
    a, b = _operand(a), _operand(b)
    dtype = next((_floating(one) for one in (a, b) if isinstance(one, (Tensor, Buffer)) and not _is_whole(one)), "f32")
    return _ops["div"](*(_ops["cast"](one, dtype=dtype) if isinstance(one, (Tensor, Buffer)) and _is_whole(one) else one
                         for one in (a, b)))


def _floor_divide_whole(a, b):
    """Of integers, by one division: it rounds towards zero, one too much where there is a rest of the other sign than b's.
    Divided by 0 it is 0."""
    where = _ops["where"]
    quotient = _ops["div"](a, b)
    rest = a - quotient * b
    if isinstance(b, (bool, int)):
        return where(rest > 0 if b < 0 else rest < 0, quotient - 1, quotient) if b else quotient
    is_off = _ops["logical_and"](where(b < 0, rest > 0, rest < 0), _ops["ne"](b, 0))
    return where(is_off, quotient - 1, quotient)


@_public
def floor_divide(a, b):
    """a // b: the quotient rounded down, as Python and numpy have it."""
    a, b = common(a, b)
    if are_booleans(a, b):
        a, b = booleans_as_numbers(a, b)
    if all(isinstance(one, (bool, int)) or isinstance(one, (Tensor, Buffer)) and _is_whole(one) for one in (a, b)):
        return _floor_divide_whole(a, b)
    where = _ops["where"]
    quotient, rest = _ops["div"](a, b), _ops["fmod"](a, b)
    whole = _ops["round"](_ops["div"](a - rest, b))
    if isinstance(b, (int, float)):
        if not b:
            return quotient
        is_off = rest > 0.0 if b < 0 else rest < 0.0
    else:
        is_off = where(b < 0.0, rest > 0.0, rest < 0.0)
    whole = where(is_off, whole - 1.0, whole)
    whole = where(_ops["eq"](whole, 0.0), quotient * 0.0, whole)  # the quotient's sign
    return whole if isinstance(b, (int, float)) else where(_ops["eq"](b, 0.0), quotient, whole)

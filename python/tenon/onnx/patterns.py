"""What exporters write as several nodes and Tenon has as one op."""

import math


def number_of(value):
    """The number of a known value of one element, or None."""
    if value.is_known and value.array.size == 1 and value.rank <= 1 and value.is_float:
        return float(value.array.reshape(()))
    return None


def _close(value, number):
    found = number_of(value)
    return found is not None and math.isclose(found, number, rel_tol=1e-3 if value.dtype in ("f16", "bf16") else 1e-6)


def _factors(value, depth=2):
    """The factors of a product, and of products that are its factors."""
    if depth and value.origin and value.origin[0] == "Mul":
        return [one for operand in value.origin[1:] for one in _factors(operand, depth - 1)]
    return [value]


def gelu_of(a, b):
    """x where a * b is 0.5 * x * (1 + erf(x / sqrt(2))), else None."""
    factors = _factors(a) + _factors(b)
    halves = [one for one in factors if _close(one, 0.5)]
    sums = [_erf_of(one) for one in factors]
    rest = [one for one, made in zip(factors, sums) if made is None and not _close(one, 0.5)]
    found = [one for one in sums if one is not None]
    if len(factors) == 3 and len(halves) == len(found) == len(rest) == 1 and rest[0] is found[0]:
        return rest[0]
    return None


def _erf_of(value):
    """x where the value is 1 + erf(x / sqrt(2)), else None."""
    if not value.origin or value.origin[0] != "Add":
        return None
    for one, other in (value.origin[1:], value.origin[:0:-1]):
        if _close(one, 1) and other.origin and other.origin[0] == "Erf" and other.origin[1].origin:
            op, x, scale = (*other.origin[1].origin, None)[:3]
            if op == "Div" and _close(scale, 2**0.5) or op == "Mul" and _close(scale, 0.5**0.5):
                return x
    return None


def quotient(b, x, y):
    """x / y as a product with a number where that is exact, else None."""
    number = number_of(y)
    if number and x.is_float and math.frexp(number)[0] in (0.5, -0.5) and 2**-10 <= abs(number) <= 2**10:
        return b.mul(x, 1 / number)
    return None

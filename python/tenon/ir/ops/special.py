"""Special functions that numpy has not, number by number."""
import math

import numpy as np

from . import REFERENCES, op
from .pointwise import vectorized


def erfinv(x):
    """Newton's method on erfc, which is accurate near 1; the start is Winitzki's (2008)."""
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    size = abs(x)
    if size < 1e-8:
        return x * math.sqrt(math.pi) / 2
    log = math.log1p(-size * size)
    half = 2 / (math.pi * 0.147) + log / 2
    y = math.sqrt(math.sqrt(half * half - log / 0.147) - half)
    for _ in range(6):
        y += (math.erfc(y) - (1 - size)) * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


def lgamma(x):
    if abs(x) == math.inf or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def digamma(x):
    """Recurrence up to 20, then the asymptotic series (Abramowitz and Stegun 6.3.5, 6.3.7, 6.3.18)."""
    x = np.float64(x)  # whose operations give infinities where those of Python's numbers throw
    if x == 0:
        return math.copysign(math.inf, -x)
    if x < 0:
        return math.nan if x == np.floor(x) else digamma(1 - x) - math.pi / np.tan(math.pi * x)
    result = 0.0
    while x < 20:
        result -= 1 / x
        x += 1
    square = 1 / (x * x)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return result + np.log(x) - 1 / (2 * x) - series


def zeta(s, x):
    """Hurwitz's function, x > 0: terms below 20, then Euler and Maclaurin's formula."""
    total = 0.0
    while x < 20:
        total += x**-s
        x += 1
    total += x ** (1 - s) / (s - 1) + x**-s / 2
    factor, term = s, x ** (-s - 1)
    for k, bernoulli in enumerate((1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)):
        total += bernoulli * factor * term
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2)
        term /= x * x
    return total


def derived_digamma(order, x):
    x = np.float64(x)
    if x == 0:
        return math.inf if order % 2 else math.copysign(math.inf, -x)
    if order == 1 and x < 0 and x == np.floor(x):
        return math.inf
    if x < 0:
        if order > 1:
            return math.nan
        return (math.pi / np.sin(math.pi * x)) ** 2 - derived_digamma(1, 1 - x)
    return (-1) ** (order + 1) * math.factorial(order) * zeta(order + 1, x)


REFERENCES.update((function.__name__, ("computes", vectorized(function))) for function in (erfinv, lgamma, digamma))


@op
def polygamma(x, order):
    return vectorized(derived_digamma)(order, x)

"""Sizes that are known as expressions: sums of products of named ones, such as B * S + 1."""
from dataclasses import dataclass

from .errors import malformed

_MAX_TERMS, _MAX_FACTORS, _MAX_TEXT = 64, 8, 1000


class Size:
    """A polynomial of named sizes and quotients of them, with integer coefficients. A known size is an int."""

    __slots__ = ("terms",)

    def __init__(self, terms):
        self.terms = terms  # {sorted tuple of names and Quotients: coefficient}

    @staticmethod
    def named(name):
        return Size({(name,): 1})

    def __eq__(self, other):
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self):
        return hash(frozenset(self.terms.items()))

    def __repr__(self):
        words = []
        for term, count in sorted(self.terms.items(), key=lambda one: (not one[0], str(one[0]))):
            factors = term if count == 1 and term else (count, *term)
            words.append("*".join(map(str, factors)))
        return " + ".join(words)


@dataclass(frozen=True)
class Quotient:
    """dividend // divisor, rounded down, where that is not whole for every size."""

    dividend: object
    divisor: object

    def __str__(self):
        return f"(({self.dividend!r})//({self.divisor!r}))"


def _terms(size):
    if isinstance(size, Size):
        return size.terms
    return {(): size} if size else {}


def _made(terms):
    terms = {term: count for term, count in terms.items() if count}
    if len(terms) > _MAX_TERMS or any(len(term) > _MAX_FACTORS or abs(count) >= 2**63 for term, count in terms.items()):
        raise malformed("sizes", "a size that is too long an expression", "LimitExceeded")
    if not terms:
        return 0
    if set(terms) == {()}:
        return terms[()]
    return Size(terms)


def add(a, b, sign=1):
    terms = dict(_terms(a))
    for term, count in _terms(b).items():
        terms[term] = terms.get(term, 0) + sign * count
    return _made(terms)


def sub(a, b):
    return add(a, b, -1)


def mul(a, b):
    terms = {}
    for left, n in _terms(a).items():
        for right, m in _terms(b).items():
            key = tuple(sorted(left + right, key=str))
            terms[key] = terms.get(key, 0) + n * m
    return _made(terms)


def product(sizes):
    result = 1
    for size in sizes:
        result = mul(result, size)
    return result


def order(a, b):
    """-1, 0 or 1 where a is less than b, equal or greater for all sizes (of at least 0), else None."""
    terms = _terms(sub(a, b))
    if any(not isinstance(name, str) for term in terms for name in term):
        return None
    if all(count >= 0 for count in terms.values()):
        return 1 if terms else 0
    return -1 if all(count <= 0 for count in terms.values()) else None


def divide(a, b):
    """a / b where that is whole for every size; otherwise the quotient, rounded down, as a size of its own name."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else 0
    exact = _exact(a, b)
    if exact is not None:
        return exact
    if isinstance(b, int) and isinstance(a, Size) and list(a.terms.values()) == [1]:
        (factors,) = a.terms
        inner = factors[0] if len(factors) == 1 else None
        if isinstance(inner, Quotient) and isinstance(inner.divisor, int):
            return divide(inner.dividend, inner.divisor * b)  # (x // m) // n is x // (m n)
    made = Quotient(a, b)
    if len(str(made)) > _MAX_TEXT:
        raise malformed("sizes", "a size that is too long an expression", "LimitExceeded")
    return Size.named(made)


def _exact(a, b):
    divisor = _terms(b)
    if len(divisor) != 1:
        return 1 if a == b else None
    (factors, count), = divisor.items()
    terms = {}
    for term, n in _terms(a).items():
        left = list(term)
        for name in factors:
            if name not in left:
                return None
            left.remove(name)
        if n % count:
            return None
        terms[tuple(left)] = n // count
    return _made(terms)

"""Sizes as torch.export writes them, in sympy's notation: Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(1)).

They are read as syntax trees; nothing of them is executed.
"""

import ast
import math

from ..importing import sizes as sz
from ..importing.errors import malformed

_MAX_TEXT, _MAX_DEPTH = 10_000, 50


class Unknown(Exception):
    """An expression that is none of sizes."""


class Symbols(dict):
    """The sizes that symbols stand for; `ranges` are the least and greatest numbers that sizes of a name can be."""

    def __init__(self, *args):
        super().__init__(*args)
        self.ranges = {}

    def order(self, a, b):
        """-1, 0 or 1 where a is less than b, equal or greater for all sizes, else None; whether they always differ."""
        low, high = self._bounds(sz.sub(a, b))
        if low >= 0:
            return (0 if high == 0 else 1), low > 0
        return (-1, high < 0) if high <= 0 else (None, False)

    def _bounds(self, size):
        """The least and the greatest number that an expression can be, or numbers beyond them."""
        if isinstance(size, int):
            return size, size
        low = high = 0
        for term, count in size.terms.items():
            ends = [1, 1]
            for name in term:
                least, most = self.ranges.get(name, (0, math.inf)) if isinstance(name, str) else (None, None)
                if least is None:
                    return -math.inf, math.inf
                ends = [_times(ends[0], least), _times(ends[1], most)]
            ends = sorted(_times(one, count) for one in ends)
            low, high = low + ends[0], high + ends[1]
        return low, high

    def extreme(self, greatest, values):
        """The greatest or least of sizes, where it is the same one for all that the symbols can be; else Unknown."""
        best = values[0]
        for one in values[1:]:
            order, _ = self.order(one, best)
            if order is None:
                raise Unknown
            best = one if (order > 0) == greatest else best
        return best


def evaluate(text, symbols, where):
    """The size: an integer or sz.Size; None for what is no polynomial of known symbols.

    `symbols` are of class Symbols.
    """
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise malformed(where, "a size that is no short text", "LimitExceeded")
    try:
        tree = ast.parse(text, mode="eval").body
        return _value(tree, symbols, 0)
    except Unknown:
        return None
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError):
        raise malformed(where, f"the size {text[:80]!r}") from None


def _times(a, b):
    return a * b if a and b else 0  # 0 times infinity, too


def symbols_of(text):
    """Names of the symbols in an expression."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError):
        return set()
    return {node.args[0].value for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args
            and isinstance(node.func, ast.Name) and node.func.id == "Symbol" and isinstance(node.args[0], ast.Constant)}


def _value(node, symbols, depth):
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return sz.sub(0, _value(node.operand, symbols, depth + 1))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise Unknown
    name = node.func.id
    if name == "Symbol":
        found = symbols.get(node.args[0].value) if node.args and isinstance(node.args[0], ast.Constant) else None
        if found is None:
            raise Unknown
        return found
    values = [_value(one, symbols, depth + 1) for one in node.args]
    if name in ("Max", "Min") and values:
        return symbols.extreme(name == "Max", values)
    if name not in _FUNCTIONS:
        raise Unknown
    return _FUNCTIONS[name](*values)


def _sum(*terms):
    total = 0
    for one in terms:
        total = sz.add(total, one)
    return total


def _power(base, exponent):
    if not isinstance(exponent, int) or not 0 <= exponent <= 8:
        raise Unknown
    return sz.product([base] * exponent)


def divided(a, b):
    """a // b, rounded down."""
    if isinstance(b, int) and b == 0:
        raise Unknown
    if isinstance(a, sz.Size) and isinstance(b, int) and b > 0 and all(count < 0 for count in a.terms.values()):
        return sz.sub(0, sz.divide(sz.add(sz.sub(0, a), b - 1), b))  # the quotient rounded up of what is positive
    return sz.divide(a, b)


def remainder(a, b):
    return sz.sub(a, sz.mul(divided(a, b), b))


_FUNCTIONS = {
    "Integer": lambda number: number, "Add": _sum, "Mul": lambda *factors: sz.product(factors), "Pow": _power,
    "FloorDiv": divided, "CleanDiv": divided, "PythonMod": remainder, "Mod": remainder,
    "CeilToInt": lambda size: size, "TruncToInt": lambda size: size,
}

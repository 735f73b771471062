"""Sizes as torch.export writes them, in sympy's notation: Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(1)).

They are read as syntax trees; nothing of them is executed.
"""

import ast

from ..importing import sizes as sz
from ..importing.errors import malformed

_MAX_TEXT, _MAX_DEPTH = 10_000, 50


class Unknown(Exception):
    """An expression that is none of sizes."""


def evaluate(text, symbols, where):
    """The size: an integer or sz.Size; None for what is no polynomial of known symbols.

    `symbols` are the sizes that symbols stand for.
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
    if name not in _FUNCTIONS:
        raise Unknown
    return _FUNCTIONS[name](*(_value(one, symbols, depth + 1) for one in node.args))


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
    return sz.divide(a, b)


def remainder(a, b):
    return sz.sub(a, sz.mul(divided(a, b), b))


def extreme(greatest, values):
    """The greatest or least of sizes, where it is the same one for all sizes that inputs may have; else Unknown."""
    best = values[0]
    for one in values[1:]:
        order = sz.order(one, best)
        if order is None and isinstance(one, sz.Size) != isinstance(best, sz.Size):
            size, number = (one, best) if isinstance(one, sz.Size) else (best, one)
            if number == 1 and greatest:  # sizes that are named are at least 1 where torch.export writes Max(1, s)
                best = size
                continue
        if order is None:
            raise Unknown
        best = one if (order > 0) == greatest else best
    return best


_FUNCTIONS = {
    "Integer": lambda number: number, "Add": _sum, "Mul": lambda *factors: sz.product(factors), "Pow": _power,
    "FloorDiv": divided, "CleanDiv": divided, "PythonMod": remainder, "Mod": remainder,
    "Max": lambda *values: extreme(True, values), "Min": lambda *values: extreme(False, values),
    "CeilToInt": lambda size: size, "TruncToInt": lambda size: size,
}

"""Every op as a function, of arrays or of tensors of a graph.

On arrays (tenon.Buffer, numpy, DLPack) a function runs at once, on the device of its operands. On tensors of a
graph it is recorded. Both take the op's operands, then its attributes, by position or by name; docs/ops.md
lists them, and `help(tenon.ops.NAME)` shows their defaults. An operand that an op may have, as linear's bias,
is given by its name. Functions that are more than one op, or read better with other arguments, are in
tenon/_functions.py.
"""

from . import _functions, _tenon

globals().update(_tenon.all_ops())
globals().update(_functions.functions)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module 'tenon.ops' has no attribute '{name}'")
    import difflib

    near = difflib.get_close_matches(name, __dir__(), 3, 0.7)
    raise AttributeError(f"tenon.ops has no '{name}'" + (f"; did you mean {' or '.join(map(repr, near))}?" if near else
                                                         "; dir(tenon.ops) lists what it has"))


def __dir__():
    return sorted(name for name in globals() if not name.startswith("_"))


_functions.install()

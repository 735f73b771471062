"""Tenon's programs in Python: read, check, run with numpy, rewrite, print. docs/ir.md shows how.

Nothing compiled is needed, and of other packages only numpy.
"""
import sys

from .diff import diff
from .errors import Error, Unsupported
from .objects import add_object
from .own_ops import add_op
from .parse import load, parse, parse_all
from .program import Function, Instruction, Program, Value, print_program
from .rewrite import compare, pattern, rewrite
from .run import Event, Trace, call, random_inputs, random_weights, run, steps
from .tensors import Array, Type
from .verify import verify
from .weights import read_weights

__all__ = ["Array", "Error", "Event", "Function", "Instruction", "Program", "Trace", "Type", "Unsupported", "Value",
           "add_object", "add_op", "call", "compare", "diff", "load", "module", "parse", "parse_all", "pattern",
           "print_program", "random_inputs", "random_weights", "read_weights", "rewrite", "run", "steps", "verify"]


def module(name, opset=1, weights="", sha256="", entry="forward"):
    """What a program's text calls. `python model.tenon` comes here: it runs the text as `python -m tenon.ir
    run` does, through the loader, and takes the same options."""
    caller = sys._getframe(1).f_globals
    if caller.get("__name__") != "__main__" or "__file__" not in caller:
        raise Error("BadArgument", "a program is read by load(path), not imported")
    from .__main__ import main
    sys.exit(main(["run", caller["__file__"], *sys.argv[1:]]))

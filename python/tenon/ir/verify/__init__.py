"""What makes a program valid: the checks of the C++ library, in its order, each relying on the ones
before. The loader runs them; so must whoever builds or rewrites a program.

Names and operands; recursion and size; updates in place; constants; types (infer.py). Only
contradictions of known sizes are errors: what may hold at run time is accepted.
"""
from ..errors import Error
from .calls import check_calls
from .constants import check_constants
from .linearity import check_linearity
from .structure import check_structure
from .types import Typer

ERRORS = 100


def verify(program):
    """Throws the first error; else sets the types that follow from the parameters' types."""
    errors = findings(program, fill=True)
    if errors:
        raise errors[0]


def findings(program, fill=False):
    """All errors, in the order of the text, up to 100."""
    found = Findings(program)
    check_structure(program, found)
    if not found.errors:
        order = check_calls(program, found)
    if not found.errors:
        check_linearity(program, order, found)
        check_constants(program, found)
        Typer(program, found).run(fill and not found.errors)
    return sorted(found.errors.values(), key=lambda error: (error.line, error.column))


class Findings:
    """At most one error for each spot."""

    def __init__(self, program):
        self.program, self.errors = program, {}

    @property
    def full(self):
        return len(self.errors) >= ERRORS

    def add(self, code, message, line=0, column=0, spot=None):
        spot = (line, column) if line else spot or message
        if not self.full and spot not in self.errors:
            self.errors[spot] = Error(code, message, **self.program.place(line, column))

    def at(self, code, message, instruction, operand=None):
        """At an instruction, or at one of its operands."""
        column = instruction.column
        if operand is not None and operand < len(instruction.columns):
            column = instruction.columns[operand]
        self.add(code, message, instruction.line, column, (id(instruction), operand))

    def at_parameter(self, code, message, function, k):
        self.add(code, message, function.line, function.parameters[k].column, (id(function), k))

    def at_head(self, code, message, function):
        self.add(code, message, function.line, function.column, id(function))

    def at_return(self, code, message, function, k=None):
        columns = function.return_columns
        column = columns[k] if k is not None and k < len(columns) else 5
        self.add(code, message, function.return_line, column, (id(function), "return", k))

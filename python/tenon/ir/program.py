"""A program: functions of instructions, each with one result. `print_program` is the canonical text."""
from dataclasses import dataclass, field
from typing import Optional

from .errors import Error
from .schema import OPS, same_value
from .tensors import Type

TENSOR, TUPLE, SCOPE = "tensor", "tuple", "scope"
HEADER = "# tenon 1.0\nfrom __future__ import annotations\nfrom tenon.ir import *\n"


@dataclass
class Value:
    name: str
    kind: str = TENSOR
    type: Optional[Type] = None  # of a tensor: what the text asserts
    column: int = 0  # of a parameter, in the text


@dataclass
class Instruction:
    """`result = op(operands, attributes)`. kind is "op", "const", "scope", "pack", "item", "repeat" or
    "call"."""

    kind: str
    op: str  # the word in the text: the op, the function called, or the kind itself
    result: Value
    operands: list = field(default_factory=list)  # names of values
    attributes: dict = field(default_factory=dict)  # kind op: all of them, defaults too
    text: str = ""  # const: the constant's name; scope: the prefix
    function: str = ""  # repeat and call: the function
    index: int = 0  # item
    count: int = 0  # repeat
    first: int = 0
    condition: int = -1  # repeat: the item of the carry that ends it; -1: none
    line: int = 0
    column: int = 0
    columns: list = field(default_factory=list)  # of the operands


@dataclass
class Function:
    name: str
    parameters: list = field(default_factory=list)  # of Value
    body: list = field(default_factory=list)  # of Instruction
    results: list = field(default_factory=list)  # names of values
    line: int = 0
    column: int = 0
    return_line: int = 0
    return_columns: list = field(default_factory=list)

    @property
    def values(self):
        """Every value by its name: the parameters, then the results of the body."""
        values = {value.name: value for value in self.parameters}
        values.update((instruction.result.name, instruction.result) for instruction in self.body)
        return values


@dataclass
class Program:
    name: str = "model"
    opset: int = 1
    weights: str = ""  # the companion file of the constants
    sha256: str = ""
    entry: str = "forward"
    functions: list = field(default_factory=list)
    file: str = ""
    lines: list = field(default_factory=list)  # of the text, for messages

    def __getitem__(self, name):
        """The function of a name."""
        for function in self.functions:
            if function.name == name:
                return function
        raise Error("BadReference", f"there is no function '{name}'")

    @property
    def main(self):
        return self[self.entry]

    def place(self, line, column):
        """Where an error is, as keywords of Error."""
        source = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return {"file": self.file, "line": line, "column": column, "source": source}

    def __str__(self):
        return print_program(self)

    # What can be done with a program; the modules import this one.

    def check(self):
        """Throws the first thing that is wrong; also fills in the types that follow."""
        from .verify import verify
        verify(self)
        return self

    def run(self, inputs=None, weights=None, function=None, on_step=None):
        """The results of `function` (by default the entry), a list of Arrays. See run.py."""
        from .run import run
        return run(self, inputs, weights, function, on_step)

    def steps(self, inputs=None, weights=None, function=None):
        """An Event for each instruction, after it has been computed; run() in single steps."""
        from .run import steps
        return steps(self, inputs, weights, function)

    def trace(self, inputs=None, weights=None, function=None):
        """A run whose values are kept: trace["forward.x1"], trace.at(line)."""
        from .run import Trace
        return Trace(self.steps(inputs, weights, function))


def literal(value):
    """An attribute as the text has it."""
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, list):
        return "[" + ", ".join(str(item) for item in value) + "]"
    return repr(value)  # floats print shortest, and as nan, inf and -inf


def string_literal(text):
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(c) or (f"\\x{ord(c):02x}" if c < " " or c == "\x7f" else c)
                         for c in text) + '"'


def print_program(program):
    """The canonical text, byte for byte that of the C++ library."""
    text = [HEADER, f"module({string_literal(program.name)}, opset={program.opset}"]
    for key, value, unless in (("weights", program.weights, ""), ("sha256", program.sha256, ""),
                               ("entry", program.entry, "forward")):
        if value != unless:
            text.append(f", {key}={string_literal(value)}")
    text.append(")\n")
    text.extend(_function(function) for function in program.functions)
    return "".join(text)


def _function(function):
    parameters = [f"{value.name}: {_annotation(value)}" for value in function.parameters]
    lines = [f"\ndef {function.name}({', '.join(parameters)}):"]
    lines += ["    " + print_instruction(instruction) for instruction in function.body]
    lines.append("    return " + ", ".join(function.results))
    return "\n".join(lines) + "\n"


def _annotation(value):
    if value.kind == SCOPE:
        return "Scope"
    return value.type.text() if value.type else "Tensor"


def print_instruction(instruction):
    result = instruction.result
    arguments = list(instruction.operands)
    if instruction.kind == "op":
        for attribute in OPS[instruction.op].attributes:
            value = instruction.attributes.get(attribute.name, attribute.default)
            if not same_value(value, attribute.default):
                arguments.append(f"{attribute.name}={literal(value)}")
    elif instruction.kind in ("const", "scope"):
        arguments.append(string_literal(instruction.text))
    elif instruction.kind == "item":
        arguments.append(str(instruction.index))
    elif instruction.kind == "repeat":
        arguments = [instruction.function, str(instruction.count), *arguments]
        if instruction.first:
            arguments.append(f"first={instruction.first}")
        if instruction.condition >= 0:
            arguments.append(f"condition={instruction.condition}")
    annotation = f": {result.type.text()}" if result.type else ""
    return f"{result.name}{annotation} = {instruction.op}({', '.join(arguments)})"

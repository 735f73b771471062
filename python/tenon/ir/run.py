"""Runs a program with the numpy references, an instruction at a time.

Values have names like "forward.y0". Inside of a function that `m0 = mlp(...)` calls they are
"forward.m0.h0", in iteration 3 of `c1 = repeat(block, ...)` "forward.c1[3].h0".
"""
import zlib
from dataclasses import dataclass

import numpy as np

from .blocks import encode
from .errors import Error
from .objects import find_object, load_object
from .ops import evaluate
from .program import SCOPE, TUPLE, Function, Instruction
from .schema import OPS
from .tensors import NUMPY, Array, Type, array_of, cast, is_block, is_floating, is_object
from .verify.constants import join


@dataclass(frozen=True)
class Event:
    """An instruction that has been computed."""

    name: str  # of its result, with the path to it
    value: object  # an Array; a list of them for a tuple; the prefix of a scope
    operands: list  # their values
    instruction: Instruction
    function: Function

    @property
    def line(self):
        return self.instruction.line


def steps(program, inputs=None, weights=None, function=None):
    """Yields an Event for each instruction; the generator returns the results."""
    called = program[function] if function else program.main
    runner = _Runner(program, weights)
    return (yield from runner.call(called, runner.inputs(called, inputs or {}), called.name))


def run(program, inputs=None, weights=None, function=None, on_step=None):
    """The results, a list of Arrays.

    `inputs` are by name or in order, `weights` a safetensors or GGUF file, a dict by name, or what `random_weights`
    returns; by default the program's companion file. `on_step` is called with each Event.
    """
    stepping = steps(program, inputs, weights, function)
    while True:
        try:
            event = next(stepping)
        except StopIteration as end:
            return end.value
        if on_step:
            on_step(event)


def call(op, *operands, **attributes):
    """One op by itself, of Arrays or of what numpy makes arrays of: call("softmax", x, axis=1)."""
    if op not in OPS:
        raise Error("UnknownOp", f"there is no op '{op}'")
    if not OPS[op].min_inputs <= len(operands) <= OPS[op].max_inputs:
        raise Error("BadArgument",
                    f"{op} takes {OPS[op].min_inputs} to {OPS[op].max_inputs} operands, {len(operands)} given")
    for name, value in attributes.items():
        attribute = OPS[op].attribute(name)
        attributes[name] = attribute and attribute.accepts(value)
        if attributes[name] is None:
            raise Error("BadAttribute", f"{op} has no attribute {name} that could be {value!r}")
    return evaluate(op, [_as_array(operand) for operand in operands], attributes)


class Trace(dict):
    """The values of a run by name, and the run's results."""

    def __init__(self, stepping):
        super().__init__()
        self._lines, self.results = {}, None
        while self.results is None:
            try:
                event = next(stepping)
            except StopIteration as end:
                self.results = end.value
                break
            self[event.name] = event.value
            self._lines.setdefault(event.line, []).append(event.name)

    def at(self, line):
        """The values that a line of the text made, one for each time it ran."""
        return [self[name] for name in self._lines.get(line, [])]


class _Runner:
    def __init__(self, program, weights):
        self.program, self.weights = program, _weights(program, weights)
        self.functions = {function.name: function for function in program.functions}

    def inputs(self, function, given):
        names = [value.name for value in function.parameters]
        if not isinstance(given, dict):
            given = dict(zip(names, given, strict=False)) if len(given) <= len(names) else {"too many": None}
        unknown, missing = set(given) - set(names), [name for name in names if name not in given]
        if unknown or missing:
            wrong = f"no parameter '{sorted(unknown)[0]}'" if unknown else f"'{missing[0]}' is not given"
            raise Error("BadInput", f"{function.name}: {wrong}; it takes {', '.join(names) or 'nothing'}")
        arguments = []
        for value in function.parameters:
            if value.kind == SCOPE:
                arguments.append(str(given[value.name]))
                continue
            plain = given[value.name]
            declared = value.type or _as_array(plain).type
            try:
                arguments.append(array_of(plain, declared))
            except Error as error:
                raise Error(error.code, f"input '{value.name}': {error.message}") from None
        return arguments

    def call(self, function, arguments, path):
        values, sizes = {}, {}
        for value, argument in zip(function.parameters, arguments):
            if value.kind != SCOPE:
                self.require(value, argument, sizes, path, function.line, value.column)
            values[value.name] = argument
        for made in function.body:
            operands = [values[name] for name in made.operands]
            name = f"{path}.{made.result.name}"
            try:
                result = yield from self.step(made, operands, name, sizes)
            except Error as error:
                if error.line:
                    raise
                error.message = f"{path}: {error.message}"
                error.__dict__.update(self.program.place(made.line, made.column))
                raise
            if isinstance(result, Array):
                self.require(made.result, result, sizes, path, made.line, made.column)
            values[made.result.name] = result
            yield Event(name, result, operands, made, function)
        return [values[name] for name in function.results]

    def require(self, value, array, sizes, path, line, column):
        """The type that the text asserts; the names of sizes stand for one number in a call."""
        declared = value.type
        if declared is None:
            return
        fits = declared.dtype == array.dtype and declared.rank == len(array.shape)
        for known, size in zip(declared.dims, array.shape) if fits else ():
            wanted = sizes.setdefault(known, size) if isinstance(known, str) else known
            fits = fits and wanted in (None, size)
        if not fits:
            bound = ", ".join(f"{name} = {size}" for name, size in sizes.items() if name in declared.dims)
            raise Error("ShapeMismatch", f"{path}: '{value.name}' is {array.type}, declared {declared}"
                        + (f" with {bound}" if bound else ""), **self.program.place(line, column))

    def step(self, made, operands, name, sizes):
        if made.kind == "op":
            return evaluate(made.op, operands, made.attributes)
        if made.kind == "const":
            declared = made.result.type
            if declared:
                declared = Type(declared.dtype, [sizes.get(size, size) for size in declared.dims])
            return self.weights(join(operands[0] if operands else "", made.text), declared)
        if made.kind == "scope":
            return join(operands[0] if operands else "", made.text)
        if made.kind == "pack":
            return operands
        if made.kind == "item":
            return operands[0][made.index]
        function = self.functions[made.function]
        if made.kind == "call":
            results = yield from self.call(function, operands, name)
            return results if made.result.kind == TUPLE else results[0]
        carry, scope, *extras = operands
        for i in range(made.first, made.first + made.count):
            if made.condition >= 0 and not carry[made.condition].data:
                break
            index = Array(Type("i64"), np.asarray(i, np.int64))
            carry = yield from self.call(function, [*carry, index, join(scope, str(i)), *extras], f"{name}[{i}]")
        return carry


def _as_array(value):
    found = value if isinstance(value, Array) else find_object(value)
    return found if found is not None else Array(_numpy_type(np.asarray(value)), np.asarray(value))


def _numpy_type(array):
    for dtype, kind in NUMPY.items():
        if array.dtype == kind and dtype not in ("bf16", "f8_e4m3", "f8_e5m2"):
            return Type(dtype, array.shape)
    raise Error("BadInput", f"an array of {array.dtype}")


# --- weights and inputs


def _weights(program, given):
    """A function of a constant's name and declared type, which may be None."""
    if callable(given):
        return given
    if given is None and program.weights:
        import pathlib
        path = pathlib.Path(program.file).parent / program.weights
        if path.is_file():
            given = path
    if given is None:
        given = {}
    if not hasattr(given, "keys"):
        from .weights import read_weights
        given = read_weights(given)

    def find(name, declared):
        if name not in given:
            raise Error("NotFound", f"there is no weight '{name}' among the {len(given)} given")
        value = given[name]
        if declared and is_object(declared.dtype):
            return load_object(declared.dtype, value)
        if isinstance(value, Array):
            return value
        return array_of(np.asarray(value), declared or _numpy_type(np.asarray(value)))

    return find


def random_array(rng, type_):
    """Small numbers: normal ones, and integers that are 0 or 1, so that they may count and pick."""
    shape = type_.dims
    if is_object(type_.dtype):
        raise Error("BadInput", f"no {type_} can be made at random: give one")
    if is_block(type_.dtype):
        return Array(type_, encode(rng.normal(size=shape), type_.dtype))
    values = rng.normal(size=shape) if is_floating(type_.dtype) else rng.integers(0, 2, shape)
    return Array(type_, np.asarray(cast(values, type_.dtype)).reshape(shape))


def random_weights(seed=0, scale=0.2):
    """Weights for a program without its file: each by its declared type, from its name and the seed."""
    def find(name, declared):
        if declared is None or not declared.is_static:
            raise Error("NotFound", f"constant '{name}' has no type from which to make one")
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        array = random_array(rng, declared)
        return Array(declared, cast(array.data * scale, declared.dtype)) if is_floating(declared.dtype) else array

    return find


def random_inputs(program, sizes=None, seed=0, function=None):
    """Inputs by name. `sizes` gives numbers to the named sizes; else they are 2, 3, 4, ... in their order."""
    rng, inputs, sizes = np.random.default_rng(seed), {}, dict(sizes or {})
    parameters = (program[function] if function else program.main).parameters
    known = {size for value in parameters if value.type for size in value.type.dims if isinstance(size, str)}
    for name in sizes:
        if name not in known:
            raise Error("BadInput", f"no input has a size '{name}'; there are {sorted(known) or 'none'}")
    for value in parameters:
        if value.type is None:
            raise Error("BadInput", f"'{value.name}' has no type from which to make an input")
        dims = []
        for size in value.type.dims:
            if isinstance(size, str):
                size = sizes.setdefault(size, 2 + len(sizes))
            dims.append(2 if size is None else size)
        inputs[value.name] = random_array(rng, Type(value.type.dtype, dims))
    return inputs

"""Programs as ONNX models: the program's text, op by op, as nodes of opset 21."""

from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from .. import ir
from ..importing import files
from ..importing.errors import unsupported, wrong_call
from ..importing.types import NUMPY, type_of
from .types import NUMBERS, type_name
from .export_ops import WRITERS

OPSET, IR_VERSION = 21, 10


def save(program, path, weights=None):
    """Writes a program as an ONNX model. `weights` has constants that are not part of the program, by name."""
    files.write(path, to_model(program, weights).SerializeToString())


def to_model(program, weights=None):
    """The onnx.ModelProto of a program. An op that ONNX has no form for is an UnsupportedError that names it."""
    whole = program.unrolled().verify()
    arrays = {name: _plain(one) for name, one in {**whole.folded, **(weights or {})}.items()}
    text = ir.parse(str(whole))
    return Exporter(text, arrays, [name for name, _ in program.results()]).model()


def _plain(array):
    """As a numpy array; block types, which ONNX lacks, as f32."""
    if getattr(getattr(array, "dtype", None), "is_block", False):
        array = array.astype("f32")
    return np.asarray(array.numpy() if hasattr(array, "numpy") else array)


def _used(nodes):
    """The values that nodes read, and those of their subgraphs."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _used(attribute.g.node)


class Exporter:
    """The nodes of one model."""

    def __init__(self, program, arrays, results):
        """`results` are the names that the results had before loops were written out."""
        self.program, self.arrays, self.results = program, arrays, results
        self.function = program.main
        self.values = self.function.values
        self.nodes, self.initializers, self.known, self.scopes, self.tuples = [], [], {}, {}, {}
        self.names = {value.name for value in self.values.values()}
        self.at = None

    def model(self):
        self._body(self.function.body)
        outputs = [self._output(*one) for one in zip(self.function.results, self.results)]
        inputs = [self._info(value.name, value.type) for value in self.function.parameters]
        used = set(_used(self.nodes)) | {one.name for one in outputs}
        kept = [one for one in self.initializers if one.name in used]
        graph = helper.make_graph(self.nodes, self.program.name, inputs, outputs, kept)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
                                  producer_name="tenon")
        if model.ByteSize() >= 2**31:
            raise unsupported("save", "a model of 2 GiB or more needs external data")
        onnx.checker.check_model(model)
        return model

    def error(self, message):
        return unsupported(f"{self.at.op} '{self.at.result.name}'", message)

    def _output(self, value, name):
        """A result: each has its own name, which no input and no other result has."""
        kind = self.values[value].type
        if name not in self.names:  # of an item of a loop
            self.names.add(name)
            self.nodes.append(helper.make_node("Identity", [value], [name]))
            value = name
        elif any(one.name == value for one in self.function.parameters) or self.function.results.count(value) > 1:
            copy = self.fresh(value)
            self.nodes.append(helper.make_node("Identity", [value], [copy]))
            value = copy
        return self._info(value, kind)

    def _info(self, name, kind):
        if kind is None or kind.dtype not in NUMBERS:
            raise unsupported(f"value '{name}'", f"{kind} is no type of ONNX")
        return helper.make_tensor_value_info(name, NUMBERS[kind.dtype], list(kind.dims))

    def _body(self, body):
        for instruction in body:
            self.at = instruction
            if instruction.kind == "const":
                self._constant(instruction)
            elif instruction.kind == "op":
                self._op(instruction)
            elif instruction.kind == "scope":
                self.scopes[instruction.result.name] = self._full_name(instruction)
            elif instruction.kind == "pack":
                self.tuples[instruction.result.name] = instruction.operands
            elif instruction.kind == "item":
                made = self.tuples[instruction.operands[0]][instruction.index]
                self.nodes.append(helper.make_node("Identity", [made], [instruction.result.name]))
            elif instruction.kind == "repeat" and instruction.condition >= 0:
                self._loop(instruction)
            else:
                raise self.error("this has no form here")

    def _loop(self, instruction):
        """A loop with a condition: Loop, whose body is a graph that sees the values around it; of one iteration, If."""
        function = self.program[instruction.function]
        carry, scope, *outer = instruction.operands
        carry, condition = self.tuples[carry], instruction.condition
        body, names = self._renamed(function)
        index, prefix = (names[one.name] for one in function.parameters[len(carry):len(carry) + 2])
        carried = [names[one.name] for one in function.parameters[:len(carry)]]
        extras = [names[one.name] for one in function.parameters[len(carry) + 2:]]
        is_branch = instruction.count == 1
        if is_branch:  # else each iteration would have constants of its own
            self.scopes[prefix] = ".".join(one for one in (self.scopes[scope], str(instruction.first)) if one)
        around, self.nodes = self.nodes, []
        same = [*zip(outer, extras), *(zip(carry, carried) if is_branch else [])]
        self.nodes.extend(helper.make_node("Identity", [one], [other]) for one, other in same)
        if is_branch:
            self.nodes.append(helper.make_node("Identity", [self.array(instruction.first)], [index]))
            step = None
        else:
            step = self.fresh(index)
            self.nodes.append(helper.make_node("Add", [step, self.array(instruction.first)], [index]))
        self._body(body)
        self.at = instruction
        results = [names[one] for one in function.results]
        nodes, self.nodes = self.nodes, around
        made = [self.fresh(instruction.result.name) for _ in carry]
        if is_branch:
            branches = [self._branch(instruction.function, nodes, results, carry),
                        self._branch(f"not_{instruction.function}", [], carry, carry)]
            self.nodes.append(helper.make_node("If", [carry[condition]], made, then_branch=branches[0],
                                               else_branch=branches[1]))
        else:
            before = self.fresh("going")
            inputs = [self._info(step, ir.Type("i64")), self._info(before, ir.Type("bool")),
                      *(self._info(one, self.type(one)) for one in carried)]
            graph = self._branch(instruction.function, nodes, [results[condition], *results],
                                 [carry[condition], *carry], inputs)
            self.nodes.append(helper.make_node(
                "Loop", [self.array(instruction.count), carry[condition], *carry], made, body=graph))
        self.tuples[instruction.result.name] = made

    def _branch(self, name, nodes, results, like, inputs=()):
        """A subgraph with outputs of its own, whose types are those of other values."""
        outputs = [self.fresh(one) for one in results]
        copies = [helper.make_node("Identity", [one], [made]) for one, made in zip(results, outputs)]
        infos = [self._info(made, self.type(one)) for made, one in zip(outputs, like)]
        return helper.make_graph([*nodes, *copies], name, list(inputs), infos)

    def _renamed(self, function):
        """A function's instructions with names that no other value has, and these names by those it has itself."""
        names = {}
        for value in function.values.values():
            names[value.name] = value.name
            if value.name in self.names:
                names[value.name] = self.fresh(value.name)
            self.names.add(names[value.name])
            self.values[names[value.name]] = replace(value, name=names[value.name])
        body = [replace(one, result=self.values[names[one.result.name]], operands=[names[x] for x in one.operands])
                for one in function.body]
        return body, names

    def _full_name(self, instruction):
        """The name of a constant or a scope, with those of the scopes around it."""
        for one in instruction.operands:
            if one not in self.scopes:
                raise self.error("each iteration of a loop with a condition has a weight of its own: no form in ONNX")
        return ".".join([*(self.scopes[one] for one in instruction.operands), instruction.text])

    def _constant(self, instruction):
        name = self._full_name(instruction)
        if name not in self.arrays:
            raise wrong_call("save", f"the constant '{name}' is not given: weights={{{name!r}: ...}}")
        array = self.arrays[name]
        declared = instruction.result.type
        if declared is not None and array.dtype == np.float32:
            instruction.result.type = replace(declared, dtype="f32")  # a block type's before
        try:
            type_of(array)
        except KeyError:
            raise self.error(f"constant '{name}' of {array.dtype}") from None
        self.known[instruction.result.name] = array
        self.initializers.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape),
                                                              instruction.result.name))

    def _op(self, instruction):
        writer = WRITERS.get(instruction.op)
        if writer is None:
            raise self.error("this op has no form in ONNX")
        for name in (*instruction.operands, instruction.result.name):
            kind = self.values[name].type
            if kind is None or kind.dtype not in NUMBERS:
                raise self.error(f"{name} is {kind}, no type of ONNX")
        made = writer(self, *instruction.operands, **instruction.attributes)
        self.nodes.append(helper.make_node("Identity", [made], [instruction.result.name]))
        last = self.nodes[-2] if len(self.nodes) > 1 else None
        if last is not None and list(last.output) == [made] and made not in self.values:
            self.nodes.pop()
            last.output[0] = instruction.result.name

    # For the writers

    def type(self, name):
        return self.values[name].type

    def dtype(self, name):
        return self.type(name).dtype

    def sizes(self, name):
        """Sizes of a value, None where they are not known."""
        return [size if isinstance(size, int) else None for size in self.type(name).dims]

    def rank(self, name):
        return len(self.type(name).dims)

    def result(self):
        return self.type(self.at.result.name)

    def fresh(self, base):
        count = 0
        while f"{base}_{count}" in self.names:
            count += 1
        self.names.add(f"{base}_{count}")
        return f"{base}_{count}"

    def node(self, op, inputs, outputs=1, **attributes):
        """Adds a node, and returns the name of its result, or the names of several."""
        self._check_types(op, inputs)
        names = [self.fresh(self.at.result.name) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def _check_types(self, op, inputs):
        """Refuses operands of the program whose types the op of ONNX does not take."""
        formal = onnx.defs.get_schema(op, OPSET).inputs
        for at, name in enumerate(inputs):
            if name in self.values and self.type(name) is not None:
                dtype = self.dtype(name)
                if f"tensor({type_name(NUMBERS[dtype]).lower()})" not in formal[min(at, len(formal) - 1)].types:
                    raise self.error(f"ONNX's {op} takes no {dtype}")

    def array(self, values, dtype="i64"):
        """An initializer."""
        name = self.fresh("k")
        self.initializers.append(onnx.numpy_helper.from_array(np.asarray(values, NUMPY[dtype]), name))
        return name

    def number(self, value, like):
        return self.array(value, self.dtype(like))

    def cast(self, name, dtype):
        return self.node("Cast", [name], to=NUMBERS[dtype])

    def reshaped(self, name, sizes):
        """Under sizes that are known but for one at most, which is -1."""
        return self.node("Reshape", [name, self.array(sizes)], allowzero=int(0 in sizes and -1 not in sizes))

    def static(self, name):
        sizes = self.sizes(name)
        if None in sizes:
            raise self.error(f"sizes of {name} that are not known: {self.type(name)}")
        return sizes

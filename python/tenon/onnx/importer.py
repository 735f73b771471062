"""Reads a model: its nodes are computed where their operands are known, and recorded in a program otherwise."""

import numpy as np
import onnx

from .. import _tenon, errors
from ..importing.errors import NotKnown, malformed, unsupported, unsupported_type, wrong_call
from ..importing.types import type_of_or_none
from ..importing.values import Builder, Value
from .node import HANDLERS, Node
from .types import CODES, NUMBERS, array_of, code_bits, tenon_type

MAX_DEPTH = 24           # of subgraphs and functions within each other
MAX_NODES = 200_000      # computed or recorded, with those of unrolled loops
_DOMAINS = {"ai.onnx": ""}
_OF_CODES = ("DequantizeLinear", "Cast", "Identity")  # ops that read codes of a few bits


class Scope:
    """Names of a graph's values; those of outer graphs are found, too."""

    def __init__(self, opsets, outer=None):
        self.opsets = opsets
        self.outer = outer
        self.values = {}

    def find(self, name):
        scope = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None


class Importer:
    """The state of reading one model once."""

    def __init__(self, model, folder=None, shapes=None, values=None, packed=None):
        self.model = model
        self.folder = folder
        self.shapes = shapes or {}
        self.fixed = values or {}
        self.packed = packed
        self.builder = Builder()
        self.depth = 0
        self.nodes = 0
        self.functions = {(_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self.input_names = []
        self._plans = {}
        self._symbols = {}  # words for named sizes: the names

    def program(self):
        graph = self.model.graph
        scope = Scope(_opsets(self.model.opset_import))
        self._check_arguments(graph)
        initializers = {one.name for one in graph.initializer}
        for one in graph.input:
            if one.name not in initializers or one.name in self.fixed:
                scope.values[one.name] = self._input(one)
        results = self.run(graph, scope)
        if not results:
            raise malformed("graph", "no outputs")
        for one, output in zip(results, graph.output):
            if not isinstance(one, Value):
                raise unsupported_type(f"output '{output.name}'", "a sequence is no tensor of a program")
        return [self.builder.result(one) for one in results]

    def _check_arguments(self, graph):
        names = {one.name for one in graph.input}
        for name in self.fixed:
            if name not in names:
                raise wrong_call("load", f"values: '{name}' is no input of the model")
        words = names | {d.dim_param for one in graph.input for d in one.type.tensor_type.shape.dim}
        for name in self.shapes:
            if name not in words:
                raise wrong_call("load", f"shapes: '{name}' is neither an input nor a named size of the model")

    def _input(self, proto):
        where = f"input '{proto.name}'"
        if proto.type.WhichOneof("value") != "tensor_type":
            kind = (proto.type.WhichOneof("value") or "no type").replace("_type", "")
            raise unsupported_type(where, f"{kind} is no tensor")
        dtype = tenon_type(proto.type.tensor_type.elem_type, where)
        if proto.name in self.fixed:
            array = np.asarray(self.fixed[proto.name])
            if type_of_or_none(array) != dtype:
                raise wrong_call(where, f"values: {array.dtype} for {dtype}")
            declared = proto.type.tensor_type.shape.dim
            if proto.type.tensor_type.HasField("shape") and proto.name not in self.shapes and (
                    len(declared) != array.ndim or
                    any(one.HasField("dim_value") and one.dim_value != size for one, size in zip(declared, array.shape))):
                sizes = ", ".join(str(one.dim_value) if one.HasField("dim_value") else one.dim_param for one in declared)
                raise wrong_call(where, f"values: {list(array.shape)} for [{sizes}]")
            return self.builder.known(array, inputs=frozenset([proto.name]))
        sizes = self._input_sizes(proto, where)
        self.input_names.append(proto.name)
        tensor = self.builder.graph.input(proto.name, _tenon.Shape(sizes, dtype))
        return Value(self.builder, tensor=tensor, name=proto.name, inputs=frozenset([proto.name]))

    def _input_sizes(self, proto, where):
        given = self.shapes.get(proto.name)
        if given is not None and not isinstance(given, int):
            declared = proto.type.tensor_type
            if declared.HasField("shape") and len(declared.shape.dim) != len(given):
                raise wrong_call("load", f"shapes: {tuple(given)} for '{proto.name}', which has "
                                 f"{len(declared.shape.dim)} axes")
            return tuple(given)
        if not proto.type.tensor_type.HasField("shape"):
            raise NotKnown(where, f"no shape: give shapes={{{proto.name!r}: (...)}}")
        sizes = []
        for axis, dim in enumerate(proto.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                if dim.dim_value < 0:
                    raise malformed(where, f"size {dim.dim_value}", "BadShape")
                sizes.append(dim.dim_value)
            else:
                fixed = self.shapes.get(dim.dim_param)
                sizes.append(fixed if isinstance(fixed, int) else self._symbol(dim.dim_param or (proto.name, axis)))
        return tuple(sizes)

    def _symbol(self, name):
        """The size of this name, or of an input's axis, as a program's text can have it: a word that no other has."""
        text = name if isinstance(name, str) else f"{name[0]}_{name[1]}"
        word = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)
        word = word if word[:1].isalpha() else f"d{word}"  # "_1" is what the builder calls a size
        while self._symbols.setdefault(word, name) != name:
            word += "_"
        return word

    # Graphs

    def run(self, graph, scope):
        """The values of a graph's outputs."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise malformed("graph", f"graphs within graphs, more than {MAX_DEPTH}", "DepthLimit")
        try:
            constants, nodes = self._plan(graph)
            for name, value in constants.items():
                scope.values.setdefault(name, value)
            for node in nodes:
                self._run_node(node, scope)
            return [self._named(one.name, scope, "output") for one in graph.output]
        finally:
            self.depth -= 1

    def _plan(self, graph):
        """A graph's constants, and its nodes that are needed: once for all iterations of a loop."""
        if id(graph) not in self._plans:
            if graph.sparse_initializer:
                raise unsupported("graph", "sparse initializers")
            constants = {one.name: self._initializer(one) for one in graph.initializer}
            nodes = needed(graph.node, [one.name for one in graph.output])
            self._plans[id(graph)] = constants, followed(nodes), graph
        return self._plans[id(graph)][:2]

    def _initializer(self, tensor):
        return self.known(tensor, "initializer", tensor.name)

    def known(self, tensor, where, name):
        """The value of a TensorProto."""
        value = self.builder.known(array_of(tensor, self.folder, where), name=name)
        if code_bits(tensor):
            value.origin = (CODES, code_bits(tensor))
        return value

    def _named(self, name, scope, where):
        value = scope.find(name)
        if value is None:
            raise malformed(where, f"'{name}' is not computed before it is used", "BadReference")
        return value

    def _run_node(self, proto, scope):
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise malformed("graph", f"more than {MAX_NODES} nodes, with those of loops", "LimitExceeded")
        where = f"{proto.op_type} '{proto.name}'"
        inputs = [self._named(name, scope, where) if name else None for name in proto.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        if proto.op_type not in _OF_CODES:
            for one in inputs:
                if isinstance(one, Value) and one.origin and one.origin[0] == CODES:
                    raise unsupported_type(
                        where, f"'{one.name}' has {one.origin[1]} bits, which DequantizeLinear reads")
        results = self._computed(proto, scope, inputs)
        results = results if isinstance(results, tuple) else (results,)
        if len(proto.output) > len(results) and any(proto.output[len(results):]):
            raise unsupported(where, f"output {len(results)}")
        for name, value in zip(proto.output, results):
            if not name:
                continue
            if name in scope.values:
                raise malformed(where, f"'{name}' is computed twice", "DuplicateName")
            scope.values[name] = value

    def _computed(self, proto, scope, inputs):
        domain = _domain(proto.domain)
        function = self.functions.get((domain, proto.op_type, proto.overload))
        if function is not None:
            return self.inline(function, proto, inputs)
        if domain not in scope.opsets:
            raise malformed(f"{proto.op_type} '{proto.name}'", f"the model imports no opset of domain '{domain}'")
        version = scope.opsets[domain]
        node = Node(proto, version, self, scope)
        handler = HANDLERS.get((domain, proto.op_type))
        before, self.builder.graph.place = self.builder.graph.place, node.place
        try:
            if handler is not None:
                return handler(node, *inputs)
            return self._by_schema(node, proto, domain, version, inputs)
        except errors.Error as error:
            raise _at(error, node, inputs) from None
        except (TypeError, AttributeError, IndexError, ValueError, ZeroDivisionError, KeyError, OverflowError,
                MemoryError) as error:
            raise _explained(error, node, inputs) from error
        finally:
            self.builder.graph.place = before

    def _by_schema(self, node, proto, domain, version, inputs):
        """An op as the function that ONNX defines it by."""
        try:
            schema = onnx.defs.get_schema(proto.op_type, version, domain)
        except onnx.defs.SchemaError:
            raise unsupported(node.where, f"no op of this name in opset {version} of domain '{domain}'") from None
        function = _body(schema, proto, inputs, version)
        if function is None:
            raise unsupported(node.where, "this op is not supported")
        return self.inline(_with_defaults(function, schema, proto), proto, inputs, version)

    def inline(self, function, proto, inputs, version=None):
        """A call of a function: of the model, or of ONNX's own, whose opset is `version` where it names none."""
        if len(inputs) > len(function.input):
            raise malformed(proto.op_type, f"{len(inputs)} inputs for a function of {len(function.input)}")
        scope = Scope(_opsets(function.opset_import))
        if version is not None:
            scope.opsets.setdefault("", onnx.defs.onnx_opset_version() if proto.domain else version)
        for name, value in zip(function.input, inputs + [None] * (len(function.input) - len(inputs))):
            scope.values[name] = value
        given = {one.name: one for one in proto.attribute}
        defaults = {one.name: one for one in function.attribute_proto}
        nodes = [_with_attributes(node, {**defaults, **given}) for node in function.node]
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise malformed(proto.op_type, f"functions within functions, more than {MAX_DEPTH}", "DepthLimit")
        try:
            for node in needed(nodes, function.output):
                self._run_function_node(node, scope)
            return tuple(scope.find(name) for name in function.output)
        finally:
            self.depth -= 1

    def _run_function_node(self, node, scope):
        # An input that the call leaves out is an input that the node leaves out.
        missing = [name for name in node.input if name in scope.values and scope.values[name] is None]
        if missing:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = ["" if name in missing else name for name in node.input]
            node = copy
        self._run_node(node, scope)


def needed(nodes, outputs):
    """The nodes that the outputs need, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.isdisjoint(node.output):
            continue
        kept.append(node)
        wanted.update(node.input)
        for attribute in node.attribute:
            for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                wanted.update(_used(graph))
    return kept[::-1]


_FOLLOWERS = {"QuantizeLinear", "Relu", "Clip"}  # that backends compute with what they follow


def followed(nodes):
    """The nodes, with followers right behind what they read, from which others may have parted them."""
    readers = {}
    for at, node in enumerate(nodes):
        if node.op_type in _FOLLOWERS and node.input:
            readers.setdefault(node.input[0], []).append(at)
    places = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    made, done = [], set()

    def emit(at):
        made.append(nodes[at])
        done.add(at)
        for name in nodes[at].output:
            for reader in readers.get(name, []) if name else []:
                others = [places[one] for one in nodes[reader].input if one in places]
                if reader > at and all(one in done for one in others):
                    waiting.append(reader)

    for start in range(len(nodes)):
        waiting = [start]
        while waiting:
            at = waiting.pop(0)
            if at not in done:
                emit(at)
    return made


def _used(graph, depth=0):
    """Every name that a subgraph mentions, which has those of outer graphs that it uses."""
    if depth > MAX_DEPTH:
        raise malformed("graph", f"graphs within graphs, more than {MAX_DEPTH}", "DepthLimit")
    names = {one.name for one in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                names |= _used(inner, depth + 1)
    return names


def _domain(domain):
    return _DOMAINS.get(domain, domain)


def _opsets(imports):
    return {_domain(one.domain): one.version for one in imports}


def _at(error, node, inputs):
    """An error of the library, or of a node inside of this one, with the node's place."""
    if isinstance(error, NotKnown) or error.where.startswith(node.op):
        return error
    if not error.where.startswith(f"{node.place[0]}:0"):
        return type(error)(error.code, error.number, f"{node.where}: {error.where}", error.message)
    message = error.message.partition("; operands")[0]
    return type(error)(error.code, error.number, node.where,
                       f"{message} (operands {', '.join(map(repr, inputs))})")


def _explained(error, node, inputs):
    operands = ", ".join(repr(one) for one in inputs)
    if isinstance(error, TypeError) and "positional argument" in str(error):
        return malformed(node.where, f"{len(inputs)} inputs")
    if any(one is None for one in inputs):
        return malformed(node.where, f"an input is missing among {operands}")
    return malformed(node.where, f"{error} (operands {operands})")


def _body(schema, proto, inputs, version):
    if schema.has_function:
        return schema.function_body
    if schema.has_context_dependent_function:
        types = [_type_proto(one).SerializeToString() if one is not None else b"" for one in inputs]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        if versions:
            try:
                text = schema.get_context_dependent_function_with_opset_version(
                    max(versions), proto.SerializeToString(), types)
            except (RuntimeError, ValueError) as error:
                raise malformed(proto.op_type, f"ONNX's function for it: {str(error)[:200]}") from None
            return onnx.FunctionProto.FromString(text)
    return None


def _type_proto(value):
    sizes = [one if isinstance(one, int) else None for one in value.shape]
    return onnx.helper.make_tensor_type_proto(NUMBERS[value.dtype], sizes)


def _with_defaults(function, schema, proto):
    """The function with the schema's defaults for attributes that the node leaves out."""
    made = onnx.FunctionProto()
    made.CopyFrom(function)
    given = {one.name for one in proto.attribute} | {one.name for one in made.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.type:
            made.attribute_proto.append(attribute.default_value)
    return made


def _with_attributes(node, given):
    """A function's node with the call's attributes in place of references to them."""
    if not any(a.ref_attr_name or a.HasField("g") for a in node.attribute):
        return node
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                made.attribute.append(given[attribute.ref_attr_name])
                made.attribute[-1].name = attribute.name
            continue
        made.attribute.append(attribute)
        if attribute.HasField("g"):
            nodes = [_with_attributes(one, given) for one in attribute.g.node]
            del made.attribute[-1].g.node[:]
            made.attribute[-1].g.node.extend(nodes)
    return made

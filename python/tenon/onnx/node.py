"""A node of a model as its handler sees it, and the table of handlers."""

import numpy as np
import onnx

from ..importing import node
from .types import tenon_type

HANDLERS = {}  # (domain, op): function(node, *values) that returns a value, or a tuple of them
_REQUIRED = object()


def op(*names, domain=""):
    """Marks the function that reads ops of these names."""

    def mark(function):
        for name in names:
            HANDLERS[domain, name] = function
        return function

    return mark


class Node(node.Node):
    """A node: its attributes, and the opset `version` it is of."""

    def __init__(self, proto, version, importer, scope):
        super().__init__(proto.op_type, importer.builder)
        self.proto = proto
        self.version = version
        self.importer = importer
        self.scope = scope
        self._attributes = {one.name: one for one in proto.attribute}

    @property
    def where(self):
        return f"{self.op} '{self.proto.name}'" if self.proto.name else self.op

    @property
    def place(self):
        """(a name, no line): where the library says that a value comes from."""
        return self.where.replace("/", ".")[:200], 0

    def has(self, name):
        return name in self._attributes

    def wants(self, output):
        """Whether the node's output of this number is used."""
        return output < len(self.proto.output) and self.proto.output[output] != ""

    def attribute(self, name, default=_REQUIRED):
        found = self._attributes.get(name)
        if found is None:
            if default is _REQUIRED:
                raise self.malformed(f"attribute '{name}' is missing")
            return default
        return _plain(found, default, self)

    def words(self, name, default, allowed):
        """An attribute that is one of some words."""
        word = self.attribute(name, default)
        if word not in allowed:
            raise self.error(f"{word!r} is none of {', '.join(allowed)}", name)
        return word

    def type(self, name, default=None):
        """An attribute that is an element type: Tenon's word for it."""
        number = self.attribute(name, None)
        return default if number is None else tenon_type(number, f"{self.where}: attribute '{name}'")

    def subgraph(self, name):
        graph = self.attribute(name)
        if not isinstance(graph, onnx.GraphProto):
            raise self.malformed(f"attribute '{name}' is no graph")
        return graph


def _plain(found, default, node):
    kind = onnx.AttributeProto
    if found.ref_attr_name:
        raise node.malformed(f"attribute '{found.name}' refers to '{found.ref_attr_name}' outside of a function")
    if found.type == kind.TENSOR:
        return found.t
    if found.type == kind.GRAPH:
        return found.g
    try:
        value = onnx.helper.get_attribute_value(found)
        if found.type == kind.STRING:
            value = value.decode()
        if found.type == kind.STRINGS:
            value = [one.decode() for one in value]
    except (ValueError, UnicodeDecodeError) as error:
        raise node.malformed(f"attribute '{found.name}': {error}") from None
    if found.type in (kind.FLOATS, kind.INTS):
        value = list(value)
    if found.type == kind.FLOAT:
        value = float(np.float32(value))
    _check_kind(found.name, value, default, node)
    return value


def _check_kind(name, value, default, node):
    if default is None or default is _REQUIRED:
        return
    kinds = (int, float) if isinstance(default, float) else type(default)
    if not isinstance(value, kinds):
        raise node.malformed(f"attribute '{name}' is {type(value).__name__}, not {type(default).__name__}")

"""A node of a model as its handler sees it, and the table of handlers."""

import math

import numpy as np
import onnx

from . import sizes as sz
from .errors import NotKnown, malformed, unsupported
from .types import check_computed, tenon_type
from .values import inputs_of

HANDLERS = {}  # (domain, op): function(node, *values) that returns a value, or a tuple of them
_REQUIRED = object()
_MAX_LIST = 2**16  # numbers in a list of sizes, axes or positions


def op(*names, domain=""):
    """Marks the function that reads ops of these names."""

    def mark(function):
        for name in names:
            HANDLERS[domain, name] = function
        return function

    return mark


class Node:
    """A node: its attributes, the opset `version` it is of, and the builder `b`."""

    def __init__(self, proto, version, importer, scope):
        self.proto = proto
        self.op = proto.op_type
        self.version = version
        self.importer = importer
        self.b = importer.builder
        self.scope = scope
        self._attributes = {one.name: one for one in proto.attribute}

    @property
    def where(self):
        return f"{self.op} '{self.proto.name}'" if self.proto.name else self.op

    def error(self, message, attribute=None):
        """What is not supported; the caller raises it."""
        return unsupported(self.where, f"attribute '{attribute}': {message}" if attribute else message)

    def malformed(self, message):
        return malformed(self.where, message)

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

    def axis(self, axis, rank, name="axis"):
        """An axis that may count from the end, counted from the front."""
        if not -rank <= axis < max(rank, 1):
            raise self.malformed(f"attribute '{name}': axis {axis} of a value of rank {rank}")
        return axis % rank if rank else 0

    def array(self, value, what):
        """A value that has to be known while the model is read."""
        if value.array is not None:
            return value.array
        given = f"give values={{{sorted(value.inputs)[0]!r}: ...}} or `shapes`" if value.inputs else "it is computed"
        raise NotKnown(self.where, f"{what} is not known while the model is read: {given}", value.inputs)

    def integers(self, value, what):
        """A known vector of integers as a list."""
        array = self.array(value, what)
        if array.dtype.kind not in "iu" or array.ndim > 1 or array.size > _MAX_LIST:
            raise self.malformed(f"{what} is {value!r}")
        return [int(one) for one in array.reshape(-1)]

    def sizes(self, value, what):
        """A vector of sizes, integers or sz.Size, as a list."""
        if value.sizes is not None:
            return value.sizes if isinstance(value.sizes, list) else [value.sizes]
        return self.integers(value, what)

    def number(self, value, what):
        array = self.array(value, what)
        if array.size != 1:
            raise self.malformed(f"{what} is {value!r}, not one number")
        return array.reshape(()).item()

    def static(self, value, what="x"):
        """A value's sizes, which have to be known."""
        if value.is_static:
            return value.shape
        raise NotKnown(self.where, f"{what} is {value!r}: give `shapes`", value.inputs)

    def known_size(self, value, axis):
        size = value.shape[axis]
        if isinstance(size, int):
            return size
        raise NotKnown(self.where, f"axis {axis} of {value!r}: give `shapes`", value.inputs)

    def arange(self, *sizes):
        """0, 1, ...: as many numbers as the product of sizes, which a model may have made large."""
        check_computed(self.where, sizes)
        return np.arange(math.prod(sizes))

    def subgraph(self, name):
        graph = self.attribute(name)
        if not isinstance(graph, onnx.GraphProto):
            raise self.malformed(f"attribute '{name}' is no graph")
        return graph

    def known_like(self, array, *values):
        return self.b.known(array, inputs=inputs_of(values))


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


def elements(value):
    return sz.product(value.shape)

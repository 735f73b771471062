"""Reads an exported program: nodes are computed where their operands are known, and recorded in a program otherwise."""

import math

from .. import errors
from ..importing import sizes as sz
from ..importing.errors import NotKnown, malformed, unsupported
from ..importing.values import Builder, Value
from . import expressions
from .archive import dtype_of, get
from .in_place import Views
from .node import HANDLERS, REFUSED, Node
from .records import (
    PLAIN,
    first_tensor,
    functional_name,
    is_in_place,
    is_out,
    last_uses,
    listed,
    name_of,
    needed,
    number,
    output_names,
    target_of,
    trace_of,
    word,
)
from .signature import Signature

MAX_DEPTH = 24          # of graphs within each other
MAX_NODES = 200_000


class Scope:
    """What the names of one graph stand for: values, sizes, numbers, lists."""

    def __init__(self, graph, where):
        self.graph = graph
        self.values = {}
        self.views = {}   # name: (the name that it is a view of, its node)
        self.metas = get(graph, "tensor_values", dict, where)
        self.nodes, self.wanted = needed(graph, HANDLERS.keys() | REFUSED.keys(), where)
        self.changing = any(is_in_place(target_of(node, where)) for node in self.nodes)
        self.last_use = last_uses(graph, self.nodes, where) if self.changing else {}
        self.at = 0         # the place of the node that is computed
        self.doubtful = []  # (a value that may be a copy of another, or share its memory; the other; its node)


class Importer(Signature, Views):
    """The state of reading one program once."""

    def __init__(self, archive, shapes=None, values=None):
        self.archive = archive
        self.where = archive.where
        self.module = get(archive.document, "graph_module", dict, self.where)
        self.graph = get(self.module, "graph", dict, self.where)
        self.shapes = dict(shapes or {})
        self.fixed = dict(values or {})
        self.builder = Builder()
        self.symbols = expressions.Symbols()
        self.nodes = 0
        self.depth = 0
        self.inputs = []      # of signature.Input
        self.ranges = {}
        for name, one in get(archive.document, "range_constraints", dict, self.where).items():
            low, high = (one.get(key) if isinstance(one, dict) else None for key in ("min_val", "max_val"))
            # 2 is what torch writes for a size without a least one: it exports for sizes but 0 and 1, and takes both.
            self.ranges[name] = 0 if low == 2 else low, high
            self.symbols.ranges[word(name)] = (max(low, 0) if type(low) is int else 0,
                                               high if type(high) is int else math.inf)

    def program(self):
        """(results of the program, their names)"""
        signature = get(self.module, "signature", dict, self.where)
        specs = get(signature, "input_specs", list, self.where)
        self.outputs = get(signature, "output_specs", list, self.where)
        self._check_arguments(specs)
        scope = Scope(self.graph, self.where)
        self.mutated = self._mutated(specs)
        self._derived = []
        for spec in specs:
            self._input(spec, scope)
        self._derive_symbols()
        results = self.run(scope)
        return self._results(results, scope)

    # Graphs

    def run(self, scope):
        """The values of a graph's outputs."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise malformed(self.where, f"graphs within graphs, more than {MAX_DEPTH}", "DepthLimit")
        try:
            for scope.at, node in enumerate(scope.nodes):
                self._run_node(node, scope)
            return [self.argument(one, scope, "output") for one in get(scope.graph, "outputs", list, self.where)]
        finally:
            self.depth -= 1

    def subgraph(self, argument, inputs, where):
        """The outputs of a graph that a node has, for these values of its inputs."""
        graph = get(argument, "graph", dict, where)
        scope = Scope(graph, where)
        names = [name_of(one) for one in get(graph, "inputs", list, where)]
        if len(names) != len(inputs):
            raise malformed(where, f"a graph of {len(names)} inputs for {len(inputs)} values")
        scope.values.update(zip(names, inputs))
        return self.run(scope)

    def _run_node(self, node, scope):
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise malformed(self.where, f"more than {MAX_NODES} nodes", "LimitExceeded")
        target = target_of(node, self.where)
        get(node, "outputs", list, target)
        made = self._computed(node, target, scope)
        if is_in_place(target):
            self.write_back(node, target, scope, made[0])
        for name, value in zip(output_names(node), made):
            if not name:
                continue
            if name in scope.values or name in scope.views:
                raise malformed(target, f"'{name}' is computed twice", "DuplicateName")
            scope.values[name] = value
            if scope.changing and self.shares_memory(node, target, scope):
                scope.views[name] = (first_tensor(node), node)

    def _computed(self, node, target, scope):
        """The values of a node's results, in order; lists are flattened."""
        n = Node(node.get("name") or (output_names(node) or ["?"])[0], target, trace_of(node), self,
                 [self.meta_or_none(scope, name) for name in output_names(node)],
                 [name in scope.wanted for name in output_names(node)], scope.metas.get(first_tensor(node)))
        functional = functional_name(target, HANDLERS)
        handler = HANDLERS.get(functional)
        if handler is None:
            is_written_out = "TRAINING" not in self.archive.document.get("verifiers", ["TRAINING"])
            others = "; exported.run_decompositions() may write it in others"
            others = others if target.startswith("aten.") and not is_written_out else ""
            raise unsupported(n.where, REFUSED.get(functional, "this op is not supported" + others))
        arguments = self.arguments(node, scope, n)
        if is_out(target):
            arguments.pop("out", None)
        if is_in_place(target):
            n.metas = [self.meta_or_none(scope, first_tensor(node))] + n.metas[1:]
        before, self.builder.graph.place = self.builder.graph.place, n.place
        try:
            made = handler(n, **arguments)
            made = list(made) if isinstance(made, (tuple, list)) else [made]
            return [self._checked(n, value, meta) for value, meta in zip(made, n.metas + [None] * len(made))]
        except errors.Error as error:
            raise _at(error, n) from None
        except expressions.Unknown:
            raise NotKnown(n.where, "a size that is no expression of the inputs' sizes: give `shapes`") from None
        except (TypeError, AttributeError, IndexError, ValueError, ZeroDivisionError, KeyError, OverflowError,
                MemoryError, RecursionError) as error:
            raise malformed(n.where, f"{error} (arguments {_shown(arguments)})") from error
        finally:
            self.builder.graph.place = before

    def arguments(self, node, scope, n):
        made = {}
        for position, one in enumerate(get(node, "inputs", list, n.where)):
            name = get(one, "name", str, n.where) or f"_{position}"
            try:
                value = self.argument(get(one, "arg", dict, n.where), scope, n.where)
            except errors.UnsupportedError as error:
                raise _at(error, n, f"argument '{name}': ") from None
            if name in made:
                raise malformed(n.where, f"argument '{name}' twice", "DuplicateName")
            made["n_" if name == "n" else name] = value  # `n` is the node
        return made

    def _checked(self, n, value, meta):
        """A result as its meta data says: of its type, with its sizes where they were not known."""
        if not isinstance(value, Value) or meta is None:
            return value
        dtype, sizes = meta
        if value.dtype != dtype:
            value = n.cast(value, dtype)
        if value.rank != len(sizes):
            raise malformed(n.where, f"{value!r} where the file says {dtype}{list(sizes)}", "ShapeMismatch")
        for have, want in zip(value.shape, sizes):
            if isinstance(have, int) and isinstance(want, int) and have != want:
                why = ": it was exported for other sizes of its inputs, such as more than 1" if self.shapes else ""
                raise malformed(n.where, f"{value!r} where the file says {dtype}{list(sizes)}{why}", "ShapeMismatch")
        if value.tensor is not None and tuple(value.shape) != tuple(sizes):
            own = value.tensor.shape
            value.has_shape(tuple(have if isinstance(own[axis], int) else self._open_size(value, axis, want)
                                  for axis, (have, want) in enumerate(zip(value.shape, sizes))))
        return value

    def _open_size(self, value, axis, want):
        """The size of an axis: as the file says, or a name of its own where that is no expression of known sizes."""
        if want is not None:
            return want
        made = sz.Size.named(self.builder.unknown_name())
        self.builder.sources[made] = (value, axis)
        return made

    def binds_number(self, n):
        """Whether the graph uses an integer that it computes as a size."""
        return bool(self._symbols_of(self.graph.get("sym_int_values", {}).get(n.name)))

    def number(self, n, value):
        """An integer that the program computes, i64[1], as a size of its own name."""
        [symbol] = self._symbols_of(self.graph["sym_int_values"][n.name])
        made = self.symbols[symbol] = sz.Size.named(word(symbol))
        self.builder.computed[made] = value
        return made

    # Names

    def find(self, name, scope):
        if name not in scope.values and name in scope.views:
            base, node = scope.views[name]
            self.find(base, scope)
            target = target_of(node, "graph")
            made = [self.find(base, scope)] if is_in_place(target) else self._computed(node, target, scope)
            scope.values.update(zip(output_names(node), made))
        if name not in scope.values:
            raise malformed("graph", f"'{name}' is not computed before it is used", "BadReference")
        return scope.values[name]

    def meta(self, scope, name):
        """(type, sizes) of a tensor; a size that is no expression of known ones is None."""
        where = f"'{name}'"
        record = get(scope.metas, name, dict, where)
        return dtype_of(record.get("dtype"), where), tuple(self.size(one, where)
                                                            for one in get(record, "sizes", list, where))

    def meta_or_none(self, scope, name):
        return self.meta(scope, name) if name in scope.metas else None

    def size(self, entry, where):
        if isinstance(entry, dict) and type(entry.get("as_int")) is int:
            return entry["as_int"]
        return expressions.evaluate(get(get(entry, "as_expr", dict, where), "expr_str", str, where), self.symbols,
                                    where)

    # Arguments

    def argument(self, record, scope, where):
        [(form, body)] = record.items() if isinstance(record, dict) and len(record) == 1 else [(None, None)]
        if form == "as_tensor":
            return self.find(get(body, "name", str, where), scope)
        if form in ("as_tensors", "as_optional_tensors"):
            return [self._optional(one, scope, where) for one in listed(body, where)]
        if form == "as_optional_tensor":
            return self._optional(body, scope, where)
        if form == "as_none":
            return None
        if form in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            return self._symbolic(body, scope, where)
        if form in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return [self._symbolic(one, scope, where) for one in listed(body, where)]
        if form in PLAIN:
            return PLAIN[form](body, where)
        if form == "as_scalar_type":
            return dtype_of(body, where)
        if form in ("as_memory_format", "as_layout", "as_device"):
            return body
        if form == "as_graph":
            return body
        raise unsupported(where, f"{str(form).removeprefix('as_')} as an argument")

    def _optional(self, record, scope, where):
        if isinstance(record, dict) and "as_none" in record:
            return None
        record = record.get("as_tensor", record) if isinstance(record, dict) else record
        return self.find(get(record, "name", str, where), scope)

    def _symbolic(self, record, scope, where):
        if isinstance(record, dict) and "as_name" in record:
            return self.find(get(record, "as_name", str, where), scope)
        for form, kind in (("as_int", int), ("as_float", (float, int, str)), ("as_bool", bool)):
            if isinstance(record, dict) and form in record:
                return number(record[form], where) if form == "as_float" else get(record, form, kind, where)
        raise malformed(where, f"the argument {str(record)[:80]}")


def _at(error, n, before=""):
    """An error of the library with the node's place."""
    if isinstance(error, NotKnown):
        return NotKnown(n.where, error.message, error.inputs)
    if error.where.startswith(n.op):
        return error
    if error.where.startswith("{}:{}".format(*n.place)):
        return type(error)(error.code, error.number, n.where, error.message)
    where = n.where if error.where == n.where else f"{n.where}: {error.where}"
    return type(error)(error.code, error.number, where, before + error.message)


def _shown(arguments):
    return ", ".join(f"{name}={value!r}"[:60] for name, value in arguments.items())[:300]

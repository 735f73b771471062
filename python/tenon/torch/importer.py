"""Reads an exported program: nodes are computed where their operands are known, and recorded in a program otherwise."""

import keyword
import math

import numpy as np

from .. import _tenon, errors
from ..importing import sizes as sz
from ..importing.errors import NotKnown, malformed, unsupported, wrong_call
from ..importing.types import type_of_or_none
from ..importing.values import Builder, Value
from . import expressions
from .archive import dtype_of, get
from .node import HANDLERS, REFUSED, SAME_IF_EQUAL, VIEWS, VIEWS_IF_DENSE, Node

MAX_DEPTH = 24          # of graphs within each other
MAX_NODES = 200_000


class Scope:
    """What the names of one graph stand for: values, sizes, numbers, lists."""

    def __init__(self, graph, where):
        self.graph = graph
        self.values = {}
        self.views = {}   # name: (the name that it is a view of, its node)
        self.metas = get(graph, "tensor_values", dict, where)
        self.nodes, self.wanted = needed(graph, where)
        self.changing = any(is_in_place(_target(node, where)) for node in self.nodes)
        self.doubtful = {}  # name: the node of a value that may be a copy of another, or share its memory


class Importer:
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
        self.inputs = []      # of the program: (name, "user" or "state", place among the user's inputs or buffer)
        self.ranges = {}
        for name, one in get(archive.document, "range_constraints", dict, self.where).items():
            self.ranges[name] = tuple(one.get(key) if isinstance(one, dict) else None for key in ("min_val", "max_val"))
            low, high = self.ranges[name]
            self.symbols.ranges[word(name)] = (max(low, 0) if type(low) is int else 0,
                                               high if type(high) is int else math.inf)

    # Inputs and results

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

    def _check_arguments(self, specs):
        names = {self._name(spec) for spec in specs if "user_input" in spec}
        for name in self.fixed:
            if name not in names:
                raise wrong_call("load", f"values: '{name}' is none of the inputs {', '.join(sorted(names))}")
        words = names | set(self.ranges)
        for name in self.shapes:
            if name not in words:
                raise wrong_call("load", f"shapes: '{name}' is neither an input nor a size of {sorted(words)}")

    def _name(self, spec):
        """The name in the graph of what an input's specification is about."""
        [(kind, body)] = spec.items() if isinstance(spec, dict) and len(spec) == 1 else [(None, None)]
        if not isinstance(body, dict):
            raise malformed(self.where, f"the input {str(spec)[:80]}")
        if kind == "constant_input":
            return get(body, "name", str, self.where)
        argument = get(body, "arg", dict, self.where)
        if kind == "user_input":
            [(_, argument)] = argument.items() if len(argument) == 1 else [(None, {})]
            if not isinstance(argument, dict):
                return ""
            return argument.get("name") or argument.get("as_name") or ""
        return get(argument, "name", str, self.where)

    def _mutated(self, specs):
        """Names of the graph's inputs that it changes, by a result or in place."""
        names = {self._name(spec) for spec in specs}
        found = set()
        owners = {}
        for spec in specs:
            for kind, field in (("buffer", "buffer_name"), ("parameter", "parameter_name")):
                if kind in spec:
                    owners[get(spec[kind], field, str, self.where)] = self._name(spec)
        for spec in self.outputs:
            for kind, field in (("buffer_mutation", "buffer_name"), ("parameter_mutation", "parameter_name")):
                if isinstance(spec, dict) and kind in spec:
                    found.add(owners.get(get(spec[kind], field, str, self.where)))
            if isinstance(spec, dict) and "user_input_mutation" in spec:
                found.add(get(spec["user_input_mutation"], "user_input_name", str, self.where))
        roots = {}
        for node in get(self.graph, "nodes", list, self.where):
            target = _target(node, self.where)
            first = _first_tensor(node)
            if first is None:
                continue
            root = roots.get(first, first)
            if is_in_place(target):
                if root in names:
                    found.add(root)
            if target in VIEWS or target in VIEWS_IF_DENSE or target in SAME_IF_EQUAL or is_in_place(target):
                for name in _output_names(node):
                    roots[name] = root
        return found

    def _input(self, spec, scope):
        name = self._name(spec)
        [(kind, body)] = spec.items()
        if kind == "user_input":
            [(form, argument)] = body["arg"].items()
            scope.values[name] = self._user_input(name, form, argument, scope)
        elif kind in ("parameter", "buffer", "tensor_constant"):
            field = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
            held = get(body, field[kind], str, self.where)
            array = self.archive.weight(held)
            if name in self.mutated:
                tensor = self.builder.graph.input(word(held), _tenon.Shape(array.shape, type_of_or_none(array)))
                scope.values[name] = Value(self.builder, tensor=tensor, name=held)
                self.inputs.append((word(held), "state", held))
            else:
                scope.values[name] = self.builder.known(array, name=held)
        elif kind == "constant_input":
            [(form, number)] = get(body, "value", dict, self.where).items()
            scope.values[name] = None if form == "as_none" else number
            self.inputs.append((word(name), "constant", scope.values[name]))
        else:
            raise unsupported(f"input '{name}'", f"a {kind}")

    def _user_input(self, name, form, argument, scope):
        where = f"input '{name}'"
        position = sum(1 for one in self.inputs if one[1] == "user")
        if name in self.fixed:
            self.inputs.append((word(name), "fixed", None))
            return self._fixed_input(name, form, scope, where)
        if form == "as_tensor":
            dtype, sizes = self.meta(scope, name)
            if sizes is None:
                raise malformed(where, "no sizes")
            value = self._open_input(name, dtype, sizes, where)
        elif form == "as_sym_int":
            value = self._size_input(name, scope, where)
        else:
            raise unsupported(where, f"{form.removeprefix('as_')} is no tensor")
        self.inputs.append((word(name), "user", position))
        return value

    def _fixed_input(self, name, form, scope, where):
        given = self.fixed[name]
        if form == "as_sym_int":
            if not isinstance(given, int):
                raise wrong_call(where, f"values: {given!r} is no integer")
            for symbol in self._symbols_of(scope.graph.get("sym_int_values", {}).get(name)):
                self.symbols.setdefault(symbol, given)
            return given
        array = np.asarray(given)
        dtype, _ = self.meta(scope, name)
        if type_of_or_none(array) != dtype:
            raise wrong_call(where, f"values: {array.dtype} for {dtype}")
        self._bind(name, scope, array.shape, where)
        return self.builder.known(array, inputs=frozenset([name]))

    def _bind(self, name, scope, sizes, where):
        """Gives numbers to the symbols that an input's sizes are."""
        entries = get(get(scope.metas, name, dict, where), "sizes", list, where)
        if len(entries) != len(sizes):
            raise wrong_call(where, f"sizes {tuple(sizes)} for {len(entries)} axes")
        for entry, size in zip(entries, sizes):
            for symbol in self._symbols_of(entry):
                if _is_symbol(entry["as_expr"]["expr_str"]):
                    self.symbols.setdefault(symbol, size)

    def _symbols_of(self, entry):
        if not isinstance(entry, dict) or not isinstance(entry.get("as_expr"), dict):
            return set()
        return expressions.symbols_of(entry["as_expr"].get("expr_str"))

    def _open_input(self, name, dtype, sizes, where):
        given = self.shapes.get(name)
        entries = self.entries(name)
        made = []
        for axis, entry in enumerate(entries):
            size = given[axis] if isinstance(given, (tuple, list)) and axis < len(given) else None
            made.append(self._input_size(entry, size, f"{word(name)}_{axis}", where))
        if given is not None and (isinstance(given, int) or len(given) != len(entries)):
            raise wrong_call(where, f"shapes: {given!r} for {len(entries)} axes")
        tensor = self.builder.graph.input(word(name), _tenon.Shape(tuple(made), dtype))
        value = Value(self.builder, tensor=tensor, name=name, inputs=frozenset([name]))
        value.shape  # its sizes are sources from here on
        self._derived += [(value, axis, entry) for axis, entry in enumerate(entries) if "as_expr" in entry]
        return value

    def graph_names(self):
        """(an input of the program, its name in the graph) for each of the user's inputs."""
        for spec in self.module["signature"]["input_specs"]:
            name = self._name(spec)
            found = next((one for one in self.inputs if one[0] == word(name) and one[1] in ("user", "fixed")), None)
            if found is not None and name in self.graph["tensor_values"]:
                yield found, name

    def entries(self, name):
        return get(get(get(self.graph, "tensor_values", dict, self.where), name, dict, self.where), "sizes", list,
                   self.where)

    def _input_size(self, entry, given, fresh, where):
        """A size of an input as the program has it: a number, or a name."""
        if not isinstance(entry, dict):
            raise malformed(where, f"the size {entry!r}")
        if "as_int" in entry:
            size = entry["as_int"]
            if type(size) is not int or not 0 <= size < 2**40:
                raise malformed(where, f"the size {size!r}", "BadShape")
            if given is not None and given != size:
                raise wrong_call(where, f"shapes: {given} for a size of {size}")
            return size
        text = get(get(entry, "as_expr", dict, where), "expr_str", str, where)
        if _is_symbol(text):
            [symbol] = expressions.symbols_of(text)
            if given is None:
                given = self.shapes.get(symbol)
            self._check_range(symbol, given, where)
            known = self.symbols.setdefault(symbol, given if given is not None else sz.Size.named(word(symbol)))
            if given is not None and known != given:
                raise wrong_call(where, f"shapes: {symbol} is both {known!r} and {given}")
            return known if isinstance(known, int) else word(symbol)
        found = expressions.evaluate(text, self.symbols, where)
        if isinstance(found, int):
            return found
        return given if given is not None else fresh

    def _check_range(self, symbol, given, where):
        low, high = self.ranges.get(symbol, (None, None))
        if given is None:
            return
        if type(given) is not int:
            raise wrong_call(where, f"shapes: {given!r} is no number")
        if isinstance(low, int) and given < low or isinstance(high, int) and given > high:
            raise wrong_call(where, f"{symbol} is {given}, and {low} to {high} were exported")

    def _derive_symbols(self):
        """Inputs whose sizes are expressions such as 2*s0: symbols that no input has as a size follow from them."""
        for value, axis, entry in self._derived:
            text = entry["as_expr"]["expr_str"]
            if _is_symbol(text):
                continue
            for symbol in expressions.symbols_of(text):
                self.symbols.setdefault(symbol, sz.Size.named(word(symbol)))
            size = expressions.evaluate(text, self.symbols, self.where)
            have = value.shape[axis]
            if size is None or isinstance(size, int):
                continue
            if not isinstance(have, int):
                value.has_shape(tuple(size if i == axis else one for i, one in enumerate(value.shape)))
                self._source_of(size, value, axis)

    def _source_of(self, size, value, axis):
        """The symbol s of a size a*s + b, where no input has it: computed from that size."""
        terms = dict(size.terms)
        constant = terms.pop((), 0)
        [((name, *more), factor), *others] = terms.items()
        symbol = sz.Size.named(name) if isinstance(name, str) else None
        if more or others or symbol is None or symbol in self.builder.sources or symbol in self.builder.computed:
            return
        number = (self.builder.scalar_size(size) - constant) / factor
        self.builder.computed[symbol] = self.builder.unsqueeze(number, 0)

    def _size_input(self, name, scope, where):
        """An input that is an integer: a scalar of the program, and a size that it computes with."""
        entry = get(scope.graph, "sym_int_values", dict, where).get(name)
        text = get(get(entry, "as_expr", dict, where), "expr_str", str, where)
        if not _is_symbol(text):
            raise unsupported(where, "an integer that other inputs decide")
        [symbol] = expressions.symbols_of(text)
        tensor = self.builder.graph.input(word(name), _tenon.Shape((), "i64"))
        scalar = Value(self.builder, tensor=tensor, name=name, inputs=frozenset([name]))
        if symbol in self.symbols:
            return self.symbols[symbol]
        made = self.symbols[symbol] = sz.Size.named(word(symbol))
        self.builder.computed[made] = self.builder.unsqueeze(scalar, 0)
        return made

    def _results(self, results, scope):
        if len(results) != len(self.outputs):
            raise malformed(self.where, f"{len(results)} results for {len(self.outputs)} specifications")
        made, names, leaves, states = [], [], [], {}
        argument_names = [_name_of(one) for one in self.graph["outputs"]]
        for spec, value, name in zip(self.outputs, results, argument_names):
            [(kind, body)] = spec.items() if isinstance(spec, dict) and len(spec) == 1 else [(None, None)]
            if kind == "user_output":
                leaves.append(self._leaf(value, name, made, names))
            elif kind in ("buffer_mutation", "parameter_mutation"):
                states[body["buffer_name" if kind[0] == "b" else "parameter_name"]] = value
            elif kind == "user_input_mutation":
                states[get(body, "user_input_name", str, self.where)] = value
            else:
                raise unsupported(self.where, f"a result that is a {kind}")
        self.leaves = leaves
        self.states = {}
        for name in self._state_names():
            value = states[name] if name in states else self.find(self._graph_name(name), scope)
            self.states[name] = len(made)
            made.append(self._result(value))
            names.append(f"{word(name)}_after")
        if not made:
            raise malformed(self.where, "no results that are tensors")
        return made, names

    def _state_names(self):
        held = [one[2] for one in self.inputs if one[1] == "state"]
        users = [one[0] for one in self.inputs if one[1] == "user" and one[0] in {word(m) for m in self.mutated if m}]
        return held + users

    def _graph_name(self, name):
        """The graph's name of a buffer, or of an input."""
        for spec in self.module["signature"]["input_specs"]:
            for kind, field in (("buffer", "buffer_name"), ("parameter", "parameter_name"),
                                ("tensor_constant", "tensor_constant_name")):
                if kind in spec and spec[kind].get(field) == name:
                    return self._name(spec)
        return next(one for one in self.mutated if word(one) == name)

    def _leaf(self, value, name, made, names):
        """A result: the place of a tensor in the program's results, or a constant in a list of one."""
        if isinstance(value, sz.Size):
            value = self.builder.of_sizes(value)
        if not isinstance(value, Value):
            return [value]
        made.append(self._result(value))
        names.append(word(name or f"result{len(made)}"))
        return len(made) - 1

    def _result(self, value):
        tensor = self.builder.tensor(value)
        if tensor.op == "constant":  # a result is computed
            with self.builder.graph:
                tensor = _tenon.all_ops()["stop_gradient"](tensor)
        return tensor

    # Graphs

    def run(self, scope):
        """The values of a graph's outputs."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise malformed(self.where, f"graphs within graphs, more than {MAX_DEPTH}", "DepthLimit")
        try:
            for node in scope.nodes:
                self._run_node(node, scope)
            return [self.argument(one, scope, "output") for one in get(scope.graph, "outputs", list, self.where)]
        finally:
            self.depth -= 1

    def subgraph(self, argument, inputs, where):
        """The outputs of a graph that a node has, for these values of its inputs."""
        graph = get(argument, "graph", dict, where)
        scope = Scope(graph, where)
        names = [_name_of(one) for one in get(graph, "inputs", list, where)]
        if len(names) != len(inputs):
            raise malformed(where, f"a graph of {len(names)} inputs for {len(inputs)} values")
        scope.values.update(zip(names, inputs))
        return self.run(scope)

    def _run_node(self, node, scope):
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise malformed(self.where, f"more than {MAX_NODES} nodes", "LimitExceeded")
        target = _target(node, self.where)
        outputs = [one for one in get(node, "outputs", list, target)]
        made = self._computed(node, target, scope, outputs)
        if is_in_place(target):
            self._write_back(node, target, scope, made[0])
        for name, value in zip(_output_names(node), made):
            if name in scope.values or name in scope.views:
                raise malformed(target, f"'{name}' is computed twice", "DuplicateName")
            scope.values[name] = value
            if scope.changing and self._shares_memory(node, target, scope):
                scope.views[name] = (_first_tensor(node), node)

    def _shares_memory(self, node, target, scope):
        """Whether the results of a node are views of its first argument, as far as changes in place go."""
        if target in VIEWS or is_in_place(target):
            return True
        base, names = _first_tensor(node), _output_names(node)
        if base is None or base not in scope.metas or not names or names[0] not in scope.metas:
            return False
        if target in SAME_IF_EQUAL:
            return self.meta(scope, base)[0] == self.meta(scope, names[0])[0]
        if target not in VIEWS_IF_DENSE:
            return False
        if self._is_dense(base, scope):
            return True
        if target != "aten.contiguous.default":
            scope.doubtful[names[0]] = (base, node)
        return False

    def _is_dense(self, name, scope):
        """Whether a value's elements lie in memory in the order of its axes, one after the other."""
        record = scope.metas[name]
        sizes, strides = (tuple(self._size(one, f"'{name}'") for one in get(record, field, list, f"'{name}'"))
                          for field in ("sizes", "strides"))
        want = 1
        for size, stride in reversed(list(zip(sizes, strides))):
            if size is None or stride is None or size != 1 and stride != want:
                return False
            want = sz.mul(want, size)
        return True

    def _computed(self, node, target, scope, outputs):
        """The values of a node's results, in order; lists are flattened."""
        trace = node.get("metadata", {}).get("stack_trace", "") if isinstance(node.get("metadata"), dict) else ""
        n = Node(node.get("name") or (_output_names(node) or ["?"])[0], target, trace, self,
                 [self._meta_or_none(scope, name) for name in _output_names(node)],
                 [name in scope.wanted for name in _output_names(node)])
        functional = functional_name(target)
        handler = HANDLERS.get(functional)
        if handler is None:
            raise unsupported(n.where, REFUSED.get(functional, "this op is not supported"))
        arguments = self._arguments(node, scope, n)
        if is_in_place(target):
            n.metas = [self._meta_or_none(scope, _first_tensor(node))] + n.metas[1:]
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

    def _arguments(self, node, scope, n):
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
                raise malformed(n.where, f"{value!r} where the file says {dtype}{list(sizes)}", "ShapeMismatch")
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
            for one, value in zip(_output_names(node), self._computed(node, _target(node, ""), scope, [])
                                  if not is_in_place(_target(node, "")) else [self.find(base, scope)]):
                scope.values[one] = value
        if name not in scope.values:
            raise malformed("graph", f"'{name}' is not computed before it is used", "BadReference")
        return scope.values[name]

    def _write_back(self, node, target, scope, new):
        """Puts a value that was changed in place into what it is a view of; other views are computed again."""
        name = _first_tensor(node)
        if name is None:
            raise malformed(target, "no tensor to change in place")
        while name in scope.views:
            base, view = scope.views[name]
            if is_in_place(_target(view, "")):
                name = base
                continue
            new = self._put(view, name, base, scope, new)
            name = base
        self._check_doubtful(name, scope)
        for other in self._views_of(name, scope):
            scope.values.pop(other, None)
        scope.values[name] = new

    def _views_of(self, root, scope):
        return [name for name in scope.views if self._root(name, scope) == root]

    def _root(self, name, scope):
        while name in scope.views:
            name = scope.views[name][0]
        return name

    def _check_doubtful(self, root, scope):
        """Refuses a change of what other values may or may not share the memory of."""
        for name, (base, node) in scope.doubtful.items():
            if root in (self._root(base, scope), self._root(name, scope)):
                raise unsupported(f"{_target(node, '')} '{name}'", "whether it is a copy is not known, and it or its "
                                  "operand is changed in place: export with run_decompositions({})")

    def _put(self, view, name, base, scope, new):
        """The base of a view, with the view's elements replaced."""
        from . import in_place
        target = functional_name(_target(view, ""))
        put = in_place.PUTS.get(target)
        n = Node(view.get("name") or name, target, view.get("metadata", {}).get("stack_trace", ""), self,
                 [self._meta_or_none(scope, base)])
        if put is None:
            raise n.error("its result is changed in place, which is not supported")
        arguments = self._arguments(view, scope, n)
        first, *_ = arguments
        value = arguments.pop(first)
        if not isinstance(value, Value):
            raise n.error("its result is changed in place, which is not supported")
        places = _output_names(view)
        try:
            return put(n, value, new, places.index(name), **arguments)
        except (TypeError, IndexError, ValueError) as error:
            raise malformed(n.where, str(error)) from error

    def meta(self, scope, name):
        """(type, sizes) of a tensor; a size that is no expression of known ones is None."""
        where = f"'{name}'"
        record = get(scope.metas, name, dict, where)
        return dtype_of(record.get("dtype"), where), tuple(self._size(one, where)
                                                            for one in get(record, "sizes", list, where))

    def _meta_or_none(self, scope, name):
        return self.meta(scope, name) if name in scope.metas else None

    def _size(self, entry, where):
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
            return [self._optional(one, scope, where) for one in _listed(body, where)]
        if form == "as_optional_tensor":
            return self._optional(body, scope, where)
        if form == "as_none":
            return None
        if form in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            return self._symbolic(body, scope, where)
        if form in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return [self._symbolic(one, scope, where) for one in _listed(body, where)]
        if form in _PLAIN:
            return _PLAIN[form](body, where)
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
                return _float(record[form], where) if form == "as_float" else get(record, form, kind, where)
        raise malformed(where, f"the argument {str(record)[:80]}")


def needed(graph, where):
    """(the nodes that the outputs need, or that change something, in order; the names that are used)"""
    wanted = {_name_of(one) for one in get(graph, "outputs", list, where)}
    nodes = get(graph, "nodes", list, where)
    changing = any(is_in_place(_target(node, where)) for node in nodes)
    kept = []
    for node in reversed(nodes):
        target = _target(node, where)
        if not changing and not target.startswith("aten._assert") and wanted.isdisjoint(_output_names(node)):
            continue
        kept.append(node)
        for one in get(node, "inputs", list, where):
            wanted.update(_names_of(one.get("arg")) if isinstance(one, dict) else ())
    return kept[::-1], wanted


def word(name):
    """A name as a program's text can have it."""
    made = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)[:200]
    return f"v{made}" if made[:1].isdigit() or not made else f"{made}_" if keyword.iskeyword(made) else made


def functional_name(target):
    """aten.add_.Tensor as aten.add.Tensor."""
    if not is_in_place(target):
        return target
    domain, name, overload = target.split(".")
    return f"{domain}.{name[:-1]}.{overload}"


def is_in_place(target):
    parts = target.split(".")
    return len(parts) == 3 and parts[0] == "aten" and parts[1].endswith("_") and not parts[1].startswith("__")


def _target(node, where):
    """torch.ops.aten.add.Tensor as aten.add.Tensor."""
    return get(node, "target", str, where).removeprefix("torch.ops.")


def _first_tensor(node):
    for one in node.get("inputs", [])[:1]:
        argument = one.get("arg") if isinstance(one, dict) else None
        if isinstance(argument, dict) and isinstance(argument.get("as_tensor"), dict):
            return argument["as_tensor"].get("name")
    return None


def _output_names(node):
    return [name for one in node.get("outputs", []) for name in _names_of(one)]


def _names_of(argument):
    [(form, body)] = argument.items() if isinstance(argument, dict) and len(argument) == 1 else [(None, None)]
    if form == "as_sym_ints":
        return [one.get("as_name") or "" for one in body if isinstance(one, dict)]
    if form in ("as_tensors", "as_optional_tensors"):
        return [_name_of(one if form != "as_tensors" else {"as_tensor": one}) or "" for one in body or []]
    if form == "as_optional_tensor":
        return [_name_of(body) or ""]
    return [_name_of(argument) or ""]


def _name_of(argument):
    """The name in an argument, where it has one."""
    [(_, body)] = argument.items() if isinstance(argument, dict) and len(argument) == 1 else [(None, None)]
    found = (body.get("name") or body.get("as_name")) if isinstance(body, dict) else None
    return found if isinstance(found, str) else None


def _is_symbol(text):
    return isinstance(text, str) and text.startswith("Symbol(") and text.count("(") == 1


def _listed(body, where):
    if not isinstance(body, list):
        raise malformed(where, f"{str(body)[:80]} is no list")
    return body


def _typed(kind):
    def check(body, where):
        if type(body) is not kind:
            raise malformed(where, f"{str(body)[:80]} is no {kind.__name__}")
        return body
    return check


def _all(check):
    return lambda body, where: [check(one, where) for one in _listed(body, where)]


def _float(body, where):
    """A number: those that JSON does not have are words."""
    if isinstance(body, str) and body in ("Infinity", "-Infinity", "NaN"):
        return float(body)
    if isinstance(body, bool) or not isinstance(body, (int, float)):
        raise malformed(where, f"{str(body)[:80]} is no number")
    return float(body)


_PLAIN = {"as_int": _typed(int), "as_ints": _all(_typed(int)), "as_float": _float, "as_floats": _all(_float),
          "as_bool": _typed(bool), "as_bools": _all(_typed(bool)), "as_string": _typed(str),
          "as_strings": _all(_typed(str)), "as_operator": _typed(str), "as_int_lists": _all(_all(_typed(int)))}


def _at(error, n, before=""):
    """An error of the library with the node's place."""
    if isinstance(error, NotKnown):
        return NotKnown(n.where, error.message, error.inputs)
    if error.where.startswith(n.op):
        return error
    if error.where.startswith("graphs.cpp"):  # where the binding records ops
        return type(error)(error.code, error.number, n.where, error.message)
    where = n.where if error.where == n.where else f"{n.where}: {error.where}"
    return type(error)(error.code, error.number, where, before + error.message)


def _shown(arguments):
    return ", ".join(f"{name}={value!r}"[:60] for name, value in arguments.items())[:300]

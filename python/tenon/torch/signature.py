"""Inputs, parameters, buffers and results of an exported program."""

import dataclasses

import numpy as np

from .. import _tenon
from ..importing import sizes as sz
from ..importing.errors import malformed, unsupported, wrong_call
from ..importing.types import type_of_or_none
from ..importing.values import Value
from . import expressions
from .archive import get
from .node import SAME_IF_EQUAL, VIEWS, VIEWS_IF_DENSE
from .records import first_tensor, is_in_place, is_symbol, name_of, output_names, target_of, word


@dataclasses.dataclass
class Input:
    """An input of an exported program that is no constant of the program.

    `kind` is "user" or "state" for those of the program, "fixed" for what `values` gave, "constant" for what the module
    was exported with.
    """

    kind: str
    name: str            # in the program
    held: object = None  # of state: the buffer's name; of a constant: its value
    origin: str = ""     # its name in the graph
    sizes: tuple = ()    # of a tensor: records of its sizes
    dtype: str = ""      # of a tensor


class Signature:
    """The part of the importer that makes inputs of the program, and takes its results."""

    def _check_arguments(self, specs):
        names = {self._name(spec) for spec in specs if "user_input" in spec}
        self._user_names = {word(name) for name in names}
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
        owners = self._owners = {}  # names in the graph of buffers and parameters
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
            target = target_of(node, self.where)
            first = first_tensor(node)
            if first is None:
                continue
            root = roots.get(first, first)
            if is_in_place(target):
                if root in names:
                    found.add(root)
            if target in VIEWS or target in VIEWS_IF_DENSE or target in SAME_IF_EQUAL or is_in_place(target):
                for name in output_names(node):
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
                key = self._unused(held, self._user_names)
                tensor = self.builder.graph.input(key, _tenon.Shape(array.shape, type_of_or_none(array)))
                scope.values[name] = Value(self.builder, tensor=tensor, name=held)
                self.inputs.append(Input("state", key, held, name))
            else:
                scope.values[name] = self.builder.known(array, name=held)
        elif kind == "constant_input":
            [(form, number)] = get(body, "value", dict, self.where).items()
            scope.values[name] = None if form == "as_none" else number
            self.inputs.append(Input("constant", word(name), scope.values[name]))
        elif kind == "token":  # what orders effects, which programs do not have
            scope.values[name] = self.builder.known(np.zeros(0, np.float32))
        else:
            raise unsupported(f"input '{name}'", f"a {kind}")

    def _unused(self, name, reserved=()):
        """A name for an input of the program that no other has."""
        made, taken = word(name), {one.name for one in self.inputs}.union(reserved)
        while made in taken:
            made += "_"
        return made

    def _user_input(self, name, form, argument, scope):
        where = f"input '{name}'"
        if name in self.fixed:
            self.inputs.append(Input("fixed", word(name)))
            return self._fixed_input(name, form, scope, where)
        if form == "as_tensor":
            dtype, sizes = self.meta(scope, name)
            if sizes is None:
                raise malformed(where, "no sizes")
            value = self._open_input(name, dtype, sizes, where)
        elif form == "as_sym_int":
            dtype, value = "i64", self._size_input(name, scope, where)
        else:
            raise unsupported(where, f"{form.removeprefix('as_')} is no tensor")
        entries = self.entries(name) if form == "as_tensor" else ()
        self.inputs.append(Input("user", self._last, origin=name, sizes=entries, dtype=dtype))
        return value

    def _fixed_input(self, name, form, scope, where):
        given = self.fixed[name]
        if form == "as_sym_int":
            if np.ndim(given) or not np.issubdtype(np.asarray(given).dtype, np.integer):
                raise wrong_call(where, f"values: {given!r} is no integer")
            given = int(given)
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
                if is_symbol(entry["as_expr"]["expr_str"]):
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
        self._last = self._unused(name)
        tensor = self.builder.graph.input(self._last, _tenon.Shape(tuple(made), dtype))
        value = Value(self.builder, tensor=tensor, name=name, inputs=frozenset([name]))
        value.shape  # its sizes are sources from here on
        self._derived += [(value, axis, entry) for axis, entry in enumerate(entries) if "as_expr" in entry]
        return value

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
        if is_symbol(text):
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
            if is_symbol(text):
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
        if not is_symbol(text):
            raise unsupported(where, "an integer that other inputs decide")
        [symbol] = expressions.symbols_of(text)
        self._last = self._unused(name)
        tensor = self.builder.graph.input(self._last, _tenon.Shape((), "i64"))
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
        argument_names = [name_of(one) for one in self.graph["outputs"]]
        for spec, value, name in zip(self.outputs, results, argument_names):
            [(kind, body)] = spec.items() if isinstance(spec, dict) and len(spec) == 1 else [(None, None)]
            if kind == "user_output":
                leaves.append(self._leaf(value, name, made, names))
            elif kind in ("buffer_mutation", "parameter_mutation"):
                states[self._owners[body["buffer_name" if kind[0] == "b" else "parameter_name"]]] = value
            elif kind == "token":
                continue
            elif kind == "user_input_mutation":
                states[get(body, "user_input_name", str, self.where)] = value
            else:
                raise unsupported(self.where, f"a result that is a {kind}")
        self.leaves = leaves
        self.states = {}  # names of inputs that are changed: the places of their new values
        changed = [one for one in self.inputs if one.kind == "state"] + \
            [one for one in self.inputs if one.kind == "user" and one.origin in self.mutated]
        for one in changed:
            value = states[one.origin] if one.origin in states else self.find(one.origin, scope)
            self.states[one.name] = len(made)
            made.append(self.builder.result(value))
            names.append(f"{one.name}_after")
        if not made:
            raise malformed(self.where, "no results that are tensors")
        return made, names

    def _leaf(self, value, name, made, names):
        """A result: the place of a tensor in the program's results, or a constant in a list of one."""
        if isinstance(value, sz.Size):
            value = self.builder.of_sizes(value)
        if not isinstance(value, Value):
            return [value]
        made.append(self.builder.result(value))
        names.append(word(name or f"result{len(made)}"))
        return len(made) - 1

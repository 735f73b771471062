"""Archives and programs: load() for one program, Model for calls in the form of the module's own."""

import dataclasses
import json
import math

import numpy as np

from .. import _tenon, errors
from ..importing.errors import NotKnown, malformed, unsupported, wrong_call
from ..importing.kept import Programs, check_options, forward, types_text
from ..importing.types import as_array
from . import expressions, families  # noqa: F401: fills the table of handlers
from .archive import Archive
from .importer import Importer
from .records import is_symbol

_MOST_FIXED = 1024         # elements of an input whose values a Model fixes


def load(source, shapes=None, values=None, optimize=True):
    """The program of an exported module: the path or bytes of a .pt2 archive, or a torch.export.ExportedProgram.

    Inputs and results keep their names; sizes that are dynamic are symbols such as s77. `shapes` fixes sizes, by the
    name of the size or of an input: {"s77": 4, "x": (1, 3)}. `values` makes inputs constants: {"n": 5}. Buffers that
    the module changes are inputs, after the user's, and results named buffer_after. Weights become constants of the
    program (Program.folded). A .pt2 archive is read without torch, and nothing in it is unpickled.
    """
    return _read(Importer(Archive(source), shapes, values), optimize)


def _read(importer, optimize=True):
    try:
        tensors, names = _recorded(importer)
        program = importer.builder.graph.program(tensors)
    finally:
        importer.builder.close()
    program.name = "exported"
    if optimize:
        program, _ = program.optimized()
    program.name_results(names)
    return program


def _recorded(importer):
    try:
        return importer.program()
    except errors.Error:
        raise
    except (TypeError, AttributeError, KeyError, IndexError, ValueError, OverflowError, RecursionError,
            MemoryError) as error:  # a graph that has not the form of the schema
        raise malformed(importer.where, f"the graph: {type(error).__name__}: {error}") from error


class Model:
    """An exported module, to be called with numpy arrays in the place of tensors.

        model = tenon.torch.Model("model.pt2")
        y = model(x, mask=mask)

    Arguments and results are nested as the module's are. Buffers that it changes are kept from call to call, in
    `state`. Sizes outside of the ranges that were exported are refused. `options` are those of tenon.Session.

    Where an op needs a size as a number, or an input's values (of 1024 elements at most), the archive is read again
    for each set of sizes that comes; `fixed` names the inputs whose values are part of these programs. `program` and
    `session` are those of the last call then, and None before the first.
    """

    def __init__(self, source, shapes=None, values=None, **options):
        check_options(options)
        self._archive = Archive(source)
        self._shapes, self._values, self._options = dict(shapes or {}), dict(values or {}), options
        importer = Importer(self._archive, shapes, values)
        self.fixed = set()      # names of inputs
        self._programs = Programs()  # by sizes and fixed values, where there is no open one
        self._open = self.program = self.session = None
        try:
            self._open = self._use(_Read(importer, options))
        except NotKnown as error:
            if not any("as_expr" in entry for one in importer.inputs for entry in one.sizes) and not error.inputs:
                raise
        self.ranges = importer.ranges
        self._users = [one for one in importer.inputs if one.kind != "state"]
        self._states_in = {one.held: one.name for one in importer.inputs if one.kind == "state"}
        signature = importer.module["module_call_graph"][0]["signature"]
        self._in, self._out = (_Tree.read(signature[name], name) for name in ("in_spec", "out_spec"))
        self._first = {name: self._archive.weight(name) for name in self._states_in}
        self.state = dict(self._first)

    def __repr__(self):
        def size(entry):
            text = entry.get("as_expr", {}).get("expr_str", "")
            return str(entry["as_int"]) if "as_int" in entry else "".join(expressions.symbols_of(text)) \
                if is_symbol(text) else "?"

        inputs = types_text((one.name, f"{one.dtype}[{', '.join(map(size, one.sizes))}]")
                            for one in self._users if one.kind == "user")
        return f"Model ({inputs})"

    def reset(self):
        """Gives the state its first values again."""
        self.state = dict(self._first)

    def __call__(self, *args, **kwargs):
        leaves = self._in.flatten(self._in_order(args, kwargs))
        arrays = self._arrays(leaves)
        read = self._open or self._use(self._read_for(arrays))
        given = {name: array for name, array in arrays.items() if name not in read.fixed}
        given.update((self._states_in[name], array) for name, array in self.state.items())
        try:
            results = self._forward(read, given)
        except errors.ArgumentError as error:
            # A slice of a dynamic axis that is shorter than its bounds: where sizes are known, they are clipped.
            if read is not self._open or error.code != "OutOfRange":
                raise
            read = self._read_for(arrays)
            results = self._forward(read, {name: one for name, one in given.items() if name not in read.fixed})
        for name, key in self._states_in.items():
            self.state[name] = results[read.states[key]]
        for one, value in zip(self._users, leaves):  # arrays that the module changes in place
            if one.name in read.states and isinstance(value, np.ndarray):
                new = results[read.states[one.name]]
                if new.shape != value.shape:
                    raise unsupported("Model", f"the module gives input '{one.name}' other sizes in place, {new.shape} "
                                               f"for {value.shape}: give it a copy there, or use load()")
                value[...] = new
        made = [one[0] if isinstance(one, list) else results[one] for one in read.leaves]
        return self._out.unflatten(iter(made))

    @staticmethod
    def _forward(read, given):
        return forward(read.session, **given)

    def _use(self, read):
        self.program, self.session = read.program, read.session
        return read

    def _read_for(self, arrays):
        """What was read for the sizes of these arrays, and for the values of those that are fixed."""
        origins = {one.name: one.origin for one in self._users}
        while True:
            key = tuple((name, one.shape, one.tobytes() if name in self.fixed else b"") for name, one in arrays.items())
            if (held := self._programs.get(key)) is not None:
                return held
            shapes = {origins[name]: one.shape for name, one in arrays.items() if name not in self.fixed and one.ndim}
            values = {origins[name]: arrays[name] for name in self.fixed}
            try:
                importer = Importer(self._archive, {**self._shapes, **shapes}, {**self._values, **values})
                made = _Read(importer, self._options, self.fixed)
            except NotKnown as error:
                new = {name for name in arrays if origins[name] in error.inputs} - self.fixed
                if not new or any(arrays[name].size > _MOST_FIXED for name in new):
                    raise
                self.fixed |= new
                continue
            self._programs.put(key, made, made.program)
            return made

    def _in_order(self, args, kwargs):
        """Arguments as they were exported: those by position may be given by name, too, where each is one array."""
        names = [one.name for one in self._users]
        tuples, words = self._in.parts if len(self._in.parts) == 2 else (None, None)
        if tuples is None or words.keys or any(one.kind != "leaf" for one in tuples.parts) or \
                len(names) != len(tuples.parts):
            return args, kwargs
        if len(args) > len(names) or set(kwargs) != set(names[len(args):]):
            given = [f"{len(args)} in order"] * bool(args) + sorted(kwargs)
            raise wrong_call("Model", f"arguments {', '.join(given) or 'none'}, where the module has "
                                      f"{', '.join(names)}")
        return (*args, *(kwargs[name] for name in names[len(args):])), {}

    def structure(self, leaves):
        """(args, kwargs) of a call, of leaves in order."""
        return self._in.unflatten(iter(leaves))

    def _arrays(self, leaves):
        """The program's inputs by name; sizes that were not exported are refused."""
        arrays, found = {}, {}
        for one, value in zip(self._users, leaves):
            if one.kind == "constant" and one.held is not None and value != one.held:
                raise wrong_call("Model", f"{value!r} where the module was exported with {one.held!r}")
            if one.kind != "user":
                continue
            array = arrays[one.name] = as_array("Model", one.name, value, one.dtype)
            if len(one.sizes) != array.ndim:
                raise wrong_call("Model", f"input '{one.name}' has {array.ndim} axes, not {len(one.sizes)}")
            for axis, (entry, size) in enumerate(zip(one.sizes, array.shape)):
                self._check_size(one.name, axis, entry, size, found)
        return arrays

    def _check_size(self, name, axis, entry, size, found):
        text = entry.get("as_expr", {}).get("expr_str", "")
        if "as_int" in entry:
            if size != entry["as_int"]:
                raise wrong_call("Model", f"input '{name}': {size} elements along axis {axis}, not {entry['as_int']}")
        elif is_symbol(text):
            [symbol] = expressions.symbols_of(text)
            low, high = self.ranges.get(symbol, (None, None))
            low, high = 0 if low is None else low, math.inf if high is None else high
            if not low <= size <= high:
                raise wrong_call("Model", f"input '{name}': {size} elements along axis {axis}, not {low} to {high}")
            if found.setdefault(symbol, size) != size:
                raise wrong_call("Model", f"input '{name}': {size} elements along axis {axis}, and {found[symbol]} "
                                          f"where another input has the same size {symbol}")


class _Read:
    """A program of the module, and where its results go."""

    def __init__(self, importer, options, fixed=()):
        self.program = _read(importer)
        self.session = _tenon.Session(self.program, **options)
        self.leaves, self.states, self.fixed = importer.leaves, importer.states, frozenset(fixed)


@dataclasses.dataclass
class _Tree:
    """The nested structure of arguments or results."""

    kind: str
    keys: list
    parts: list

    @staticmethod
    def read(text, where):
        try:
            version, tree = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise malformed(where, f"{str(text)[:80]} is no structure") from None
        if version != 1:
            raise malformed(where, f"version {version!r}", "UnsupportedVersion")
        return _Tree._of(tree, where, 0)

    @staticmethod
    def _of(tree, where, depth):
        if depth > 50 or not isinstance(tree, dict) or not isinstance(tree.get("children_spec"), list):
            raise malformed(where, f"the structure {str(tree)[:80]}")
        kind = tree.get("type")
        parts = [_Tree._of(one, where, depth + 1) for one in tree["children_spec"]]
        if kind is None:
            return _Tree("leaf", [], [])
        name = "tuple" if str(kind).startswith("torch.return_types.") else str(kind).rpartition(".")[2]
        try:
            keys = json.loads(tree.get("context") or "null") if name not in ("tuple", "list", "namedtuple") else None
        except (ValueError, TypeError, RecursionError):
            keys = None
        if name not in ("tuple", "list", "dict", "OrderedDict", "namedtuple"):
            # A class whose fields are named, such as the results of transformers' models: a dict of them.
            if not isinstance(keys, list) or len(keys) != len(parts) or not all(isinstance(one, str) for one in keys):
                raise unsupported(where, f"a {kind} among arguments or results: use load() and its session")
            name = "dict"
        return _Tree(name, keys or [], parts)

    def flatten(self, value):
        """The leaves of a value of this structure, in order."""
        if self.kind == "leaf":
            return [value]
        if self.keys or self.kind in ("dict", "OrderedDict"):
            if not isinstance(value, dict) or set(value) != set(self.keys):
                raise wrong_call("Model", f"{_named(value)} where the module has {{{', '.join(map(str, self.keys))}}}")
            items = [value[key] for key in self.keys]
        else:
            if not isinstance(value, (tuple, list)) or len(value) != len(self.parts):
                raise wrong_call("Model", f"{_named(value)} where the module has {len(self.parts)}")
            items = value
        return [leaf for part, one in zip(self.parts, items) for leaf in part.flatten(one)]

    def unflatten(self, leaves):
        if self.kind == "leaf":
            return next(leaves)
        made = [part.unflatten(leaves) for part in self.parts]
        if self.kind in ("dict", "OrderedDict"):
            return dict(zip(self.keys, made))
        return made if self.kind == "list" else tuple(made)


def _named(value):
    if isinstance(value, dict):
        return f"{{{', '.join(map(str, value))}}}"
    return f"{len(value)} values" if isinstance(value, (tuple, list)) else type(value).__name__

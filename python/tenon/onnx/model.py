"""Files and models: load() for one program, Model for programs by the sizes that come."""

import keyword
import os
import pathlib
import threading

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from .. import _tenon
from ..errors import ArgumentError, InputError, UnsupportedError
from . import families  # noqa: F401: fills the table of handlers
from ..importing import files
from ..importing.errors import NotKnown, malformed, wrong_call
from ..importing.kept import Programs, check_options, forward, types_text
from ..importing.types import as_array
from .importer import Importer
from .types import NAMES

MIN_OPSET, MAX_OPSET = 7, onnx.defs.onnx_opset_version()
_MOST_FIXED = 1024         # elements of an input whose values a Model fixes
_READ_BEFORE_OPEN = 3      # sets of sizes that have a program each, before one with open sizes is tried


def load(model, shapes=None, values=None, folder=None, optimize=True, packed=None):
    """The program of a model: a path, the bytes of a file, or an onnx.ModelProto.

    Inputs and results keep their names, as far as a program's text can have them; sizes that have a name in the model
    are words, which may differ from run to run. `shapes` fixes sizes, by the name of the size or of an input:
    {"batch": 4, "x": (1, 3, 224, 224)}. `values` makes inputs constants: {"shape": array}. `folder` has the external
    data of a model that is no path. Weights become constants of the program (Program.folded). `packed`: whether those
    of MatMulNBits stay in a block type that holds them, and are multiplied by x in 8 bits; None: where the model says
    so.
    """
    return load_program(*read(model, folder), shapes, values, optimize, packed)


def load_program(proto, folder=None, shapes=None, values=None, optimize=True, packed=None):
    """The same, of a model that has been read."""
    importer = Importer(proto, folder, shapes, values, packed)
    try:
        program = importer.builder.graph.program(importer.program())
    finally:
        importer.builder.close()
    program.name = _word(proto.graph.name) or "model"
    names = [_word(one.name) for one in proto.graph.output]
    if optimize:
        program, _ = program.optimized()
    program.name_results(names)
    return program


def _word(name):
    """A name as a program's text can have it."""
    word = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)[:200]
    return f"v{word}" if word[:1].isdigit() else f"{word}_" if keyword.iskeyword(word) else word


def read(model, folder=None):
    """(ModelProto, the folder of its external data)."""
    if isinstance(model, onnx.ModelProto):
        proto = model
    elif isinstance(model, (bytes, bytearray, memoryview)):
        proto = _parsed(bytes(model), "model")
    else:
        path = pathlib.Path(os.fspath(model))
        proto = _parsed(files.read(path), str(path))
        folder = folder or path.parent
    _check_version(proto)
    return proto, folder


def _parsed(data, where):
    try:
        proto = onnx.ModelProto.FromString(data)
    except (DecodeError, RecursionError, ValueError) as error:
        raise malformed(where, f"no ONNX model: {error}", "BadEncoding") from None
    _check_text(proto, where)
    if not proto.HasField("graph"):
        raise malformed(where, "no ONNX model: it has no graph", "BadMagic")
    return proto


def _check_text(message, where, depth=0):
    """Refuses strings that are no UTF-8, which protobuf hands over as bytes."""
    if depth > 100:
        raise malformed(where, "messages within messages, more than 100", "DepthLimit")
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        for one in [value] if isinstance(value, (str, bytes)) or hasattr(value, "ListFields") else value:
            if field.type == field.TYPE_MESSAGE:
                _check_text(one, where, depth + 1)
            elif not isinstance(one, str):
                raise malformed(where, f"'{field.name}' is no UTF-8: {one[:40]!r}", "BadEncoding")


def _check_version(proto):
    for one in proto.opset_import:
        if one.domain in ("", "ai.onnx") and not MIN_OPSET <= one.version <= MAX_OPSET:
            raise malformed("model", f"opset {one.version}; {MIN_OPSET} to {MAX_OPSET} are read", "UnsupportedVersion")
    for one in (*proto.graph.input, *proto.graph.output):
        if len(one.name) > 2**16:
            raise malformed("model", "a name of more than 65536 bytes", "LimitExceeded")


class Model:
    """A model that is read once for each of the first three sets of its inputs' sizes, so that nothing in it is open.

    Other sizes are run by one program with open sizes, where the model has one; otherwise it is read for each of them.
    Threads may call it at the same time: each runs the one program with memory of its own.

    Where its nodes need values of an input while they are read, such as the sizes that a Reshape is given, the program
    is one for these values, too; that is limited to inputs of 1024 elements. `packed` is load's; `options` are those of
    tenon.Session.
    """

    def __init__(self, model, folder=None, packed=None, **options):
        check_options(options)
        self.proto, self.folder = read(model, folder)
        self.packed, self.options = packed, options
        held = {one.name for one in self.proto.graph.initializer}
        self.inputs = [one.name for one in self.proto.graph.input if one.name not in held]
        self.declared = {one.name: [size.dim_value if size.HasField("dim_value") else size.dim_param or "?"
                                    for size in one.type.tensor_type.shape.dim]
                         for one in self.proto.graph.input if one.type.tensor_type.HasField("shape")}
        self.types = {one.name: NAMES.get(one.type.tensor_type.elem_type) for one in self.proto.graph.input}
        self.outputs = [one.name for one in self.proto.graph.output]
        self.fixed = set()     # names of inputs whose values are part of the programs
        self._programs = Programs()
        self._read = 0         # programs that were read
        self._opening = threading.Lock()
        self._open = None      # a session for all sizes and the inputs' names, or False where there is none

    def __repr__(self):
        inputs = types_text((name, f"{self.types[name]}[{', '.join(map(str, self.declared.get(name, ['...'])))}]")
                            for name in self.inputs)
        return f"Model {self.proto.graph.name!r}: ({inputs}) -> {', '.join(self.outputs)}"

    def run(self, inputs):
        """The results, as numpy arrays, for inputs by name, in order, or for the only one."""
        arrays = self._arrays(inputs)
        session, names = chosen = self.session(arrays)
        try:
            return forward(session, *(arrays[name] for name in names))
        except (ArgumentError, InputError, UnsupportedError):
            if chosen is not self._open:
                raise  # else: what only a program of these sizes can do
        session, names = self._session_of(arrays)
        return forward(session, *(arrays[name] for name in names))

    def __call__(self, *arrays, **named):
        """As run(), for arrays in order, or by name."""
        if arrays and named:
            raise wrong_call("Model", "arrays are given in order or by name, not both")
        return self.run(named or arrays)

    def _arrays(self, inputs):
        if not isinstance(inputs, dict):
            if hasattr(inputs, "shape") and len(self.inputs) == 1:
                inputs = [inputs]
            if len(inputs) != len(self.inputs):
                raise wrong_call("Model.run", f"{len(inputs)} arrays for {len(self.inputs)} inputs")
            inputs = dict(zip(self.inputs, inputs))
        if set(inputs) != set(self.inputs):
            raise wrong_call("Model.run", f"inputs {sorted(inputs)} for {sorted(self.inputs)}")
        arrays = {name: as_array("Model.run", name, one, self.types.get(name)) for name, one in inputs.items()}
        for name, one in arrays.items():
            declared = self.declared.get(name, one.shape)
            if len(declared) != one.ndim:
                raise wrong_call("Model.run", f"input '{name}' has {one.ndim} axes, {one.shape}, where the model "
                                 f"declares {len(declared)}")
            if any(isinstance(size, int) and size != given for size, given in zip(declared, one.shape)):
                raise wrong_call("Model.run", f"input '{name}' has the sizes {list(one.shape)}, where the model "
                                 f"declares [{', '.join(map(str, declared))}]; load(shapes=...) reads it for others")
        return arrays

    def session(self, arrays):
        """(The session for these inputs, the names of what its forward takes.)"""
        return self._programs.get(self._key(arrays)) or self._open_session() or self._session_of(arrays)

    def _open_session(self):
        if self.fixed or self._read < _READ_BEFORE_OPEN:
            return None
        with self._opening:  # one of several threads makes it
            if self._open is None:
                try:
                    program = load_program(self.proto, self.folder, packed=self.packed)
                    self._open = _tenon.Session(program, **self.options), self.inputs
                except (ArgumentError, InputError, UnsupportedError):  # numbers are needed somewhere
                    self._open = False
            return self._open or None

    def _key(self, arrays):
        return tuple((name, arrays[name].shape, arrays[name].tobytes() if name in self.fixed else b"")
                     for name in self.inputs)

    def _session_of(self, arrays):
        """That of a program for these sizes alone."""
        while True:
            key = self._key(arrays)
            if (held := self._programs.get(key)) is not None:
                return held
            try:
                program, names = self._made(arrays)
            except NotKnown as error:
                new = {name for name in error.inputs if name in arrays} - self.fixed
                if not new or any(arrays[name].size > _MOST_FIXED for name in new):
                    raise
                self.fixed |= new
                continue
            made = _tenon.Session(program, **self.options), names
            self._programs.put(key, made, program)
            self._read += 1
            return made

    def _made(self, arrays):
        values = {name: arrays[name] for name in self.fixed}
        shapes = {name: one.shape for name, one in arrays.items() if name not in self.fixed}
        program = load_program(self.proto, self.folder, shapes, values, packed=self.packed)
        return program, [name for name in self.inputs if name not in self.fixed]

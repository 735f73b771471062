"""Writes the type stubs of the built package: _tenon.pyi, ops.pyi and the marker py.typed.

    python3 python/stubs/write_stubs.py FOLDER

`FOLDER` is the package's own folder, such as build/release/python/tenon.
"""

import importlib
import inspect
import pathlib
import re
import sys

import nanobind.stubgen

folder = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(folder.parent))  # pip keeps what a build needs on PYTHONPATH
extension = importlib.import_module("tenon._tenon")


def parameters(function):
    """The parameters of a function of Python's, each of any type."""
    words = []
    for one in inspect.signature(function).parameters.values():
        words.append(str(one.replace(default=one.empty)) + ("" if one.default is one.empty else "=..."))
    return ", ".join(words)


def extension_stub():
    """That of the compiled part; operators and methods come from a base that tenon._functions stands for."""
    stubs = nanobind.stubgen.StubGen(extension, quiet=True)
    stubs.put(extension)
    text = stubs.get()
    own = {kind: set(vars(kind)) for kind in (extension.Buffer, extension.HostBuffer, extension.Tensor)}
    import tenon._functions as functions

    functions.install()
    base = ["class _Operators:"]
    for name, value in vars(extension.Buffer).items():
        if name in own[extension.Buffer] or name in ("__hash__", "__array_ufunc__"):
            continue
        if isinstance(value, property):
            base.append(f"    @property\n    def {name}(self): ...")
        else:
            base.append(f"    def {name}({parameters(value)}): ...")
    for kind in ("Buffer", "HostBuffer", "Tensor"):
        text, count = re.subn(rf"^class {kind}:", f"class {kind}(_Operators):", text, flags=re.M)
        assert count == 1, kind
    return text + "\n" + "\n".join(base) + "\n"


def ops_stub():
    import tenon.ops as ops

    types = {"tuple": "Sequence[int | str]", "DType": "DType | str", "float": "float", "int": "int", "bool": "bool",
             "str": "str"}
    lines = ['"""Every op as a function, of arrays or of tensors of a graph."""', "",
             "from collections.abc import Sequence", "from typing import Any", "", "from ._tenon import DType", ""]
    for name in dir(ops):
        function = getattr(ops, name)
        if isinstance(function, extension.Op):
            words = ["*operands"]
            words += [f"{key[4:]}=None" for key in function.attributes if key.startswith("has_")]
            words += [f"{key}: {types[type(value).__name__]} = ..." for key, value in function.attributes.items()
                      if not key.startswith("has_")]
            lines.append(f"def {name}({', '.join(words)}) -> Any: ...")
        elif inspect.isfunction(function):
            lines.append(f"def {name}({parameters(function)}) -> Any: ...")
    return "\n".join(lines) + "\n"


(folder / "_tenon.pyi").write_text(extension_stub())
(folder / "ops.pyi").write_text(ops_stub())
(folder / "py.typed").write_text("")

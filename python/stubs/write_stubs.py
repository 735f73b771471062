"""Writes the type stubs of the built package, _tenon.pyi, ops.pyi and the marker py.typed, and _op_docs.py: what help()
says of ops.

    python3 python/stubs/write_stubs.py FOLDER

`FOLDER` is the package's own folder, such as build/release/python/tenon. What ops do is read from include/tenon/ops and
docs/ops.md beside this script's folder.
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


STRUCT = re.compile(r'^((?:///.*\n)+)struct \w+ \{\n(?:  .*\n)*?'
                    r'  static constexpr std::string_view name = "(\w+)";', re.MULTILINE)


def op_docs():
    """What each op computes, by name: its struct's comment, or its line in docs/ops.md."""
    root = pathlib.Path(__file__).resolve().parents[2]
    found = {}
    page = root / "docs/ops.md"
    for line in page.read_text("utf-8").splitlines() if page.exists() else ():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if len(cells) > 4 and re.fullmatch(r"`\w+`", cells[1]):
            found[cells[1].strip("`")] = cells[3].replace(r"\|", "|")
    for path in sorted((root / "include/tenon/ops").glob("*.hpp")):
        for comment, name in STRUCT.findall(path.read_text("utf-8")):
            found[name] = "\n".join(line[4:] for line in comment.splitlines())
    return {name: text for name, text in sorted(found.items()) if text}


class Dots:
    def __repr__(self):
        return "..."


def parameters(function):
    """The parameters of a function of Python's, each of any type, and the other names that it takes them by."""
    known = [one if one.default is one.empty else one.replace(default=Dots())
             for one in inspect.signature(function).parameters.values()]
    end = len(known) - any(one.kind == one.VAR_KEYWORD for one in known)
    known[end:end] = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=Dots())
                      for name in getattr(function, "other_names", ())]
    return str(inspect.Signature(known))[1:-1]


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
    docs = op_docs()
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
            if name in docs:
                indented = docs[name].replace("\n", "\n    ")
                lines[-1] = lines[-1].removesuffix(" ...") + f'\n    r"""{indented}"""\n'
        elif inspect.isfunction(function):
            lines.append(f"def {name}({parameters(function)}) -> Any: ...")
    return "\n".join(lines) + "\n"


(folder / "_tenon.pyi").write_text(extension_stub())
(folder / "ops.pyi").write_text(ops_stub())
(folder / "_op_docs.py").write_text(
    '"""What ops do, by name: written by write_stubs.py."""\n\nDOCS = {\n' +
    "".join(f"    {name!r}: {text!r},\n" for name, text in op_docs().items()) + "}\n")
(folder / "py.typed").write_text("")

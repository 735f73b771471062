"""Writes the type stubs of the built package, __init__.pyi, _tenon.pyi, ops.pyi and the marker py.typed, and
_op_docs.py: what help() says of ops.

    python3 python/stubs/write_stubs.py FOLDER [TARGET]

`FOLDER` is the package's own folder, such as build/release/python/tenon, and TARGET another one to write to. What ops do
is read from include/tenon/ops and docs/ops.md beside this script's folder.
"""

import ast
import importlib
import inspect
import pathlib
import re
import sys

import nanobind.stubgen

folder = pathlib.Path(sys.argv[1]).resolve()
target = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else folder
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


# What a method of _Operators gives where it is not an array.
OTHER_RESULTS = {"size": "int", "itemsize": "int", "__setitem__": "None", "__iter__": "Iterator[_Made]",
                 "__divmod__": "tuple[_Made, _Made]", "__rdivmod__": "tuple[_Made, _Made]", "chunk": "Sequence[_Made]",
                 "split": "Sequence[_Made]", "__contains__": "bool", "__index__": "int", "__format__": "str",
                 "tolist": "Any", "_repr_html_": "str", "nonzero": "tuple[_Made, ...]"}
MADE = {"Buffer": "Buffer", "HostBuffer": "Buffer", "Tensor": "Tensor"}  # what operators of each type make
KEPT = {"__eq__", "__ne__", "__hash__"}  # object says what these give


def operators(text):
    """The stub of the compiled part; what operators, nanobind's slots, give is that of their class."""
    made, lines = None, []
    for line in text.splitlines():
        if line.startswith("class "):
            made = MADE.get(re.match(r"class (\w+)", line)[1])
        slot = re.match(r"    def (__\w+__)\(self(?:, value)?(?:, /|, mod=None, /)?\):", line)
        if made and slot and slot[1] not in KEPT:
            line = line.replace("):", f") -> {made}:", 1)
        lines.append(line)
    return "\n".join(lines)


def extension_stub():
    """That of the compiled part; operators and methods come from a base that tenon._functions stands for."""
    stubs = nanobind.stubgen.StubGen(extension, quiet=True)
    stubs.put(extension)
    text = stubs.get()
    own = {kind: set(vars(kind)) for kind in (extension.Buffer, extension.HostBuffer, extension.Tensor)}
    import tenon._functions as functions

    functions.install()
    base = ['_Made = TypeVar("_Made")', "", "class _Operators(Generic[_Made]):"]
    for name, value in vars(extension.Buffer).items():
        if name in own[extension.Buffer] or name in ("__hash__", "__array_ufunc__"):
            continue
        result = OTHER_RESULTS.get(name, "_Made")
        if isinstance(value, property):
            doc = f'\n        r"""{value.__doc__}"""' if value.__doc__ else " ..."
            base.append(f"    @property\n    def {name}(self) -> {result}:{doc}")
        else:
            base += ["    " + line if line else "" for line in function_stub(name, value, result)]
    for kind, made in MADE.items():
        text, count = re.subn(rf"^class {kind}:", f'class {kind}(_Operators["{made}"]):', text, flags=re.M)
        assert count == 1, kind
    text = operators(text)
    text = re.sub(r"(def numpy\(self\)) -> object", r"\1 -> numpy.ndarray", text)
    text = re.sub(r"(def __(float|int|complex)__\(self\)) -> object", r"\1 -> \2", text)
    text = re.sub(r"(def dtype\(self\)) -> object", r"\1 -> DType", text)
    text = text.replace("-> object", "-> Any")
    text = text.replace("__hash__: None = None", "def __hash__(self) -> int: ...")  # tenon._functions sets it
    text = re.sub(r"(def __eq__\(self, \w+): [\w| ]+, /\)", r"\1: object, /)", text)
    head, imports = "from collections.abc", "from typing import Any, Generic, TypeVar, overload\n"
    text = re.sub(r"^from typing import .*\n", imports, text, count=1, flags=re.M)
    assert head in text and imports in text
    return text.replace(imports, imports + "\nimport numpy\n", 1) + "\n" + "\n".join(base) + "\n"


def package_stub():
    """That of the package itself, whose names are read when they are first asked for."""
    import tenon  # not those of its modules that need numpy, which a wheel is built without

    def has_class(module, name):
        tree = ast.parse((folder / f"{module}.py").read_text("utf-8"))
        return any(isinstance(one, ast.ClassDef) and one.name == name for one in tree.body)

    def taken(module, names):
        return [f"from {module} import {name} as {name}" for name in names]

    lines = [f'"""{tenon.__doc__}"""', "", "from typing import Any", ""]
    lines += taken("._tenon", [name for name in tenon._compiled if name != "__version__"])
    lines += taken(".errors", [name for name in tenon.__all__ if hasattr(tenon.errors, name)])
    lines += taken(".", tenon._modules + tenon._optional)
    functions = []
    for name, module in tenon._elsewhere.items():
        if has_class(module, name):
            lines += taken("." + module, [name])
        else:
            functions += ["", *function_stub(name, getattr(tenon, name), FUNCTION_RESULTS.get(name, "Any"))]
    lines += ["", "__version__: str", *(f"{name}: DType" for name in tenon._types)]
    return "\n".join(lines + ["", *function_stub("array", tenon.array, "Buffer"), *functions]) + "\n"


# What functions of the package itself give where it is not what a function of the caller's decides.
FUNCTION_RESULTS = {"export": "Program"}


def function_stub(name, function, result):
    doc = inspect.getdoc(function)
    lines = [f"def {name}({parameters(function)}) -> {result}:" + ("" if doc else " ...")]
    if doc:
        lines += ["    " + line if line else "" for line in f'r"""{doc}"""'.splitlines()]
    return lines


# What functions of tenon.ops give that is not one array. `{}` is the array's type; those that make arrays of none, or give
# objects, are left to "Any".
OPS_RESULTS = dict.fromkeys("eigh histogram lu nonzero qr slogdet sort_with_indices topk".split(), "tuple[{0}, {0}]") | {
    "chunk": "list[{0}]", "split": "tuple[{0}, ...]", "svd": "tuple[{0}, {0}, {0}]",
    "batch_norm_training": "tuple[{0}, {0}, {0}]", "unique": "tuple[{0}, {0}, {0}, {0}]"}
MAKES = re.compile("(alibi_|random_|hamming_|hann_|kv_|streaming_|generator_)|(arange|concat|detokenize|einsum|eye|fold_in|full|"
                   "gather_pages|linspace|mel_filters|ones|pages_of|segments_of|split_key|stack|tokenize|zeros)$")


# Parameters behind the first that may be arrays; only the first three are looked at.
ARRAYS = set("a b c w x y angle bias im index indices labels like logits mask mean negative other positive scale "
             "slope source target value variance weight".split())


def of_arrays(name, words, doc):
    """The stub of a function by its parameters: with a tensor of a graph it gives tensors, of arrays alone arrays."""
    result = OPS_RESULTS.get(name, "{}")
    names = [re.split(r"[:=]", word)[0].strip() for word in words]
    if MAKES.match(name) or "=" in words[0] or not re.fullmatch(r"\w+", names[0]):
        ways = [(words, "Any")]
    else:
        ways = []
        for place in range(3):
            if place and (names[place:place + 1] == [] or names[place] not in ARRAYS or "=" in words[place - 1]):
                break
            operands = [f"{other}: _Operand" for other in names[:place]] + [f"{names[place]}: Tensor"]
            ways.append((operands + words[place + 1:], result.format("Tensor")))
        ways.append(([f"{names[0]}: _Operand", *words[1:]], result.format("Buffer")))
    lines = []
    for words, result in ways:
        lines += ["@overload"] * (len(ways) > 1)
        body = " ..." if lines.count("@overload") > 1 or not doc else '\n    r"""' + doc.replace("\n", "\n    ") + '"""'
        lines.append(f"def {name}({', '.join(words)}) -> {result}:{body}")
    return lines


def op_words(function):
    """The parameters of an op: as many operands as it needs, by position, what else it takes, and its attributes."""
    types = {"tuple": "int | Sequence[int | str]", "DType": "DType | str", "float": "float", "int": "int", "bool": "bool",
             "str": "str"}
    operands = ["x"] if function.min_operands == 1 else list("abc")[:function.min_operands]
    words = [*operands, *["/"] * bool(operands), "*more: Any"]
    words += [f"{key[4:]}=None" for key in function.attributes if key.startswith("has_")]
    return words + [f"{key}: {types[type(value).__name__]} = ..." for key, value in function.attributes.items()
                    if not key.startswith("has_")]


def ops_stub():
    import tenon.ops as ops

    docs = op_docs()
    lines = ['"""Every op as a function, of arrays or of tensors of a graph."""', "",
             "from collections.abc import Sequence", "from typing import Any, Protocol, overload", "", "import numpy", "",
             "from ._tenon import Buffer, DType, HostBuffer, Tensor", "", "class _DLPack(Protocol):",
             "    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...", "",
             "_Operand = Buffer | HostBuffer | _DLPack | numpy.ndarray | numpy.generic | complex | Sequence[Any]", ""]
    for name in dir(ops):
        function = getattr(ops, name)
        if isinstance(function, extension.Op):
            lines += of_arrays(name, op_words(function), docs.get(name))
        elif inspect.isfunction(function):
            lines += of_arrays(name, parameters(function).split(", "), inspect.getdoc(function))
    return "\n".join(lines) + "\n"


(target / "_tenon.pyi").write_text(extension_stub())  # before others install methods
(target / "__init__.pyi").write_text(package_stub())
(target / "ops.pyi").write_text(ops_stub())
(target / "_op_docs.py").write_text(
    '"""What ops do, by name: written by write_stubs.py."""\n\nDOCS = {\n' +
    "".join(f"    {name!r}: {text!r},\n" for name, text in op_docs().items()) + "}\n")
(target / "py.typed").write_text("")

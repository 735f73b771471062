"""The package's type stubs: that they are those of what is built, that they name all that is public, and, where mypy is
installed, that programs as users write them pass."""

import ast
import importlib.util
import inspect
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import tenon
    from tenon import _tenon, ops
except ImportError as error:  # the compiled part is not built for this Python
    raise unittest.SkipTest(str(error)) from None

PACKAGE = pathlib.Path(tenon.__file__).parent
SCRIPT = pathlib.Path(__file__).parents[2] / "stubs/write_stubs.py"
STUBS = {name: (PACKAGE / name).read_text("utf-8") for name in ("__init__.pyi", "_tenon.pyi", "ops.pyi")}

PROGRAM = '''
import numpy
import tenon
from tenon import ops

x = tenon.array(numpy.ones((3, 4), "f"))
y: tenon.Buffer = 2 * x @ x.T - x.sum(0, keepdims=True) / 3
a: numpy.ndarray = y.numpy() + x[0, 1:].numpy()
b: float = x.mean().item() + float(x[0, 0]) + len(x) + x.size + x.shape[0]
print(ops.conv2d(x, x, padding=1, stride=(1, 2)), ops.softmax(x, axis=-1), x.dtype.name, x > 0, [one for one in x])
program: tenon.Program = tenon.export(lambda x: ops.relu(x), x="f32[N]")
[z] = tenon.Session(program, {"w": x}, "cpu", threads=1).forward(x=[1.0, 2.0])
print({x: 1}, z.numpy().sum(), tenon.f32 == z.dtype, tenon.__version__, program.parameters()[0][1])
print(tenon.cond(True, lambda: x, lambda: x).sum(), tenon.grad(lambda q: q, argnums=(0, 1))(x, x)[0])
q, r = ops.qr(numpy.ones((3, 2), "f"))
halves: list[tenon.Buffer] = ops.chunk(ops.where(x > 0, x, 0.0), 2)
print(ops.softmax(q @ r, axis=-1).shape, ops.lerp(x, 1.0, 0.5).numpy().sum(), halves[0].T, ops.eye(3).shape)
def double(x: tenon.Tensor) -> tenon.Tensor:
    mixed: list[tenon.Tensor] = [ops.where(y > 0, y, x), ops.lerp(y, 1.0, x), ops.layer_norm(y, x), ops.prelu(y, x)]
    return x.relu() + ops.add(1.0, x) * ops.svd(x)[1].sum() + ops.softmax(ops.linear(x, x), axis=0)
def answer(model: tenon.LanguageModel) -> str:
    print(model.generate_each(["a"], stop=["x"], max_tokens=8), "".join(model.stream("x", timeout=1.5)))
    return model.generate("x", stop="y", temperature=0.5, draft=tenon.Draft(lookup=8)).text + "x"
tenon.Session(program).forwards(x)      # wrong: no such method
tenon.Sesion(program)                   # wrong: no such name
ops.conv2d(x, x, stride=1.5)            # wrong: no such type
ops.relu(x).rellu()                     # wrong: no such method
def other(x: tenon.Tensor) -> tenon.Buffer:
    return ops.relu(x)                  # wrong: a tensor of a graph
ops.relu()                              # wrong: no operand
'''


def annotations(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            yield node.annotation
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (one.annotation for one in node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
            yield node.returns


class Stubs(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("nanobind"), "nanobind is not installed")
    def test_they_are_those_of_what_is_built(self):
        with tempfile.TemporaryDirectory() as folder:
            no_numpy = ("import runpy, sys; sys.modules['numpy'] = None; sys.argv = sys.argv[1:]; "
                        "runpy.run_path(sys.argv[0], run_name='__main__')")  # as pip builds a wheel
            subprocess.run([sys.executable, "-B", "-c", no_numpy, SCRIPT, PACKAGE, folder], check=True)
            for path in pathlib.Path(folder).iterdir():
                self.assertEqual((PACKAGE / path.name).read_text("utf-8"), path.read_text("utf-8"),
                                 f"{path.name} is stale: build the target tenon_python")

    def test_annotations_are_types_of_python(self):
        for name, text in STUBS.items():
            self.assertNotIn("std::", text)
            for one in annotations(ast.parse(text)):
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    one = ast.parse(one.value, mode="eval").body
                self.assertIsInstance(one, (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Constant,
                                            type(None)), f"{name}: {one and ast.unparse(one)}")

    def test_public_names_are_declared(self):
        def declared(text):
            tree = ast.parse(text)
            names = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
            names |= {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
            return names | {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}

        self.assertEqual(set(tenon.__all__) - declared(STUBS["__init__.pyi"]), set())
        self.assertEqual({name for name in dir(ops) if callable(getattr(ops, name)) and name[0] != "_"}
                         - declared(STUBS["ops.pyi"]), set())
        self.assertEqual({name for name in dir(_tenon) if name[0] != "_"} - declared(STUBS["_tenon.pyi"]), set())

    def test_public_names_have_docstrings(self):
        for kind in (tenon.Buffer, tenon.HostBuffer, tenon.Tensor, tenon.Session, tenon.Program, tenon.LanguageModel,
                     tenon.SentenceEncoder, tenon.Conversation):
            self.assertEqual([], [name for name in dir(kind) if name[0] != "_" and
                                  not inspect.getdoc(inspect.getattr_static(kind, name))], kind)

    def test_methods_of_arrays_give_what_is_declared(self):
        kinds = {"_Made": _tenon.Buffer, "int": int, "str": str, "bool": bool, "Iterator[_Made]": type(iter([]))}
        [base] = [node for node in ast.parse(STUBS["_tenon.pyi"]).body if getattr(node, "name", "") == "_Operators"]
        checked = 0
        for node in base.body:
            x = tenon.array([[2.0, 3.0], [1.0, 5.0]])
            kind = kinds.get(ast.unparse(node.returns))
            needed = len(node.args.args) - len(node.args.defaults) - 1
            if kind is None or needed or re.fullmatch("__(index|iter|invert)__", node.name):
                continue
            value = getattr(x, node.name)
            self.assertIsInstance(value() if callable(value) and not node.decorator_list else value, kind, node.name)
            checked += 1
        self.assertGreater(checked, 40)

    def test_functions_of_arrays_give_what_is_declared(self):
        x, counts = tenon.array([[2.0, 3.0], [1.0, 5.0]]), tenon.array([[0, 1], [1, 0]])
        declared = {node.name: node for node in ast.parse(STUBS["ops.pyi"]).body if isinstance(node, ast.FunctionDef)}
        checked = 0
        for name, node in declared.items():  # of overloads the last one, that of arrays
            result = ast.unparse(node.returns)
            if result == "Any":
                continue
            for operands in ((x,), (counts,), (x, x), (x, counts), (x, 2), (x, x, x), (x > 0, x, x)):
                try:
                    made = getattr(ops, name)(*operands)
                except (tenon.Error, TypeError, ValueError, IndexError):
                    continue
                several = made if isinstance(made, (tuple, list)) else [made]
                self.assertEqual({type(one) for one in several}, {tenon.Buffer}, name)
                kind = type(made).__name__ if several is made else "Buffer"
                self.assertEqual(result.partition("[")[0], kind, name)
                if kind == "tuple" and "..." not in result:
                    self.assertEqual(len(made), result.count("Buffer"), name)
                checked += 1
                break
        self.assertGreater(checked, 200)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_programs_of_users(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "program.py"
            path.write_text(PROGRAM)
            made = subprocess.run([sys.executable, "-m", "mypy", path, "--cache-dir", folder], capture_output=True, text=True,
                                  env=os.environ | {"MYPYPATH": str(PACKAGE.parent)})
            found = {int(one) for one in re.findall(r"program\.py:(\d+): error", made.stdout)}
            wrong = {i for i, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line}
            self.assertEqual(found, wrong, made.stdout + made.stderr)
            self.assertNotIn(".pyi", made.stdout)


if __name__ == "__main__":
    unittest.main()

"""Reads canonical program texts with Python's own parser and writes them again.

Usage: check_program_text.py PRINTER [COUNT]. PRINTER prints random programs, each ended by a line of
four dashes. The texts must be Python, use nothing but the subset that docs/text-ir.md describes, and
come out of this second printer byte for byte: names, order, and every literal as repr spells it.
"""

import ast
import subprocess
import sys

IMPORTS = ["from __future__ import annotations", "from tenon.ir import *"]


class Refused(Exception):
    pass


def require(condition, node):
    if not condition:
        raise Refused(f"line {getattr(node, 'lineno', '?')}: {ast.dump(node)}")


def string(text):
    """A string literal with double quotes; repr would choose the quotes by content."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(c) or (f"\\x{ord(c):02x}" if c < " " or c == "\x7f" else c) for c in text) + '"'


def literal(node):
    if isinstance(node, ast.UnaryOp):
        require(isinstance(node.op, ast.USub), node)
        return "-" + literal(node.operand)
    if isinstance(node, ast.Name):
        require(node.id in ("nan", "inf"), node)
        return node.id
    if isinstance(node, ast.List):
        return "[" + ", ".join(literal(item) for item in node.elts) + "]"
    require(isinstance(node, ast.Constant) and type(node.value) in (int, float, bool, str), node)
    return string(node.value) if isinstance(node.value, str) else repr(node.value)


def type_text(node):
    if isinstance(node, ast.Name):
        return node.id
    require(isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name), node)
    sizes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for size in sizes:
        require(isinstance(size, ast.Name) or (isinstance(size, ast.Constant) and type(size.value) is int), size)
    words = [size.id if isinstance(size, ast.Name) else str(size.value) for size in sizes]
    return f"{node.value.id}[{', '.join(words)}]"


def call(node, known):
    require(isinstance(node, ast.Call) and isinstance(node.func, ast.Name), node)
    words = []
    for i, argument in enumerate(node.args):
        if isinstance(argument, ast.Name):
            require(argument.id in known or (node.func.id == "repeat" and i == 0), argument)
            words.append(argument.id)
        else:
            words.append(literal(argument))
    for keyword in node.keywords:
        require(keyword.arg is not None, node)
        words.append(f"{keyword.arg}={literal(keyword.value)}")
    return f"{node.func.id}({', '.join(words)})"


def function(node):
    require(isinstance(node, ast.FunctionDef) and not node.decorator_list and node.returns is None, node)
    arguments = node.args
    require(not (arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg), node)
    require(not arguments.defaults, node)
    known = {argument.arg for argument in arguments.args}
    require(len(known) == len(arguments.args), node)
    head = ", ".join(f"{argument.arg}: {type_text(argument.annotation)}" for argument in arguments.args)
    lines = [f"def {node.name}({head}):"]
    for statement in node.body[:-1]:
        if isinstance(statement, ast.AnnAssign):
            target, annotation = statement.target, ": " + type_text(statement.annotation)
        else:
            require(isinstance(statement, ast.Assign) and len(statement.targets) == 1, statement)
            target, annotation = statement.targets[0], ""
        require(isinstance(target, ast.Name) and target.id not in known, statement)
        lines.append(f"    {target.id}{annotation} = {call(statement.value, known)}")
        known.add(target.id)
    last = node.body[-1]
    require(isinstance(last, ast.Return), last)
    results = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    for result in results:
        require(isinstance(result, ast.Name) and result.id in known, result)
    lines.append("    return " + ", ".join(result.id for result in results))
    return "\n".join(lines) + "\n"


def canonical(text):
    tree = ast.parse(text)
    module = tree.body[2].value
    header = ["# tenon 1.0", *IMPORTS, call(module, set())]
    require([ast.unparse(node) for node in tree.body[:2]] == IMPORTS, tree)
    return "\n".join(header) + "\n" + "".join("\n" + function(node) for node in tree.body[3:])


def main():
    printed = subprocess.run(sys.argv[1:], check=True, capture_output=True).stdout.decode("utf-8")
    texts = printed.split("----\n")[:-1]
    for text in texts:
        again = canonical(text)
        if again != text:
            sys.exit(f"Python reads and writes\n{again}\nbut the text was\n{text}")
    if not texts:
        sys.exit("no programs")
    print(f"{len(texts)} programs: Python reads them and writes the same bytes")


if __name__ == "__main__":
    main()

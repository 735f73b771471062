"""Rewrites of programs: what a pattern matches is replaced, in the text, and the text is read again.

    @pattern("mul(x, sigmoid(x))")
    def silu(x):
        return "silu(x)"

    program = rewrite(program, silu)

A name in a pattern stands for any value, the same wherever it occurs; `axes=a` binds an attribute and
`axes=[1]` requires it. Attributes that are not mentioned have their defaults. The function gets what it
has parameters for, by name, and returns the expression to take its place, or None to leave it.
"""
import ast
import inspect
from dataclasses import replace

import numpy as np

from .errors import Error
from .parse import as_program, parse
from .program import print_instruction, print_program
from .run import random_inputs, random_weights, run
from .schema import OPS, same_value


class Pattern:
    def __init__(self, text, make):
        self.name, self.make = make.__name__, make
        self.tree = _call(_parsed(text))
        self.parameters = list(inspect.signature(make).parameters)
        names = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        unknown = [name for name in self.parameters if name not in names]
        if unknown:
            raise Error("BadReference", f"{self.name}: '{unknown[0]}' is no name of the pattern {text.strip()}")

    def find(self, function, own=()):
        """The first match: the instruction, those that only it reads and that go with it, and what replaces them:
        statements, and the name of their result. One of instructions that the rule made, `own`, is none."""
        makers = {made.result.name: made for made in function.body}
        uses = {}
        for name in [name for made in function.body for name in made.operands] + function.results:
            uses[name] = uses.get(name, 0) + 1
        for made in function.body:
            for bound, inner in self._match(self.tree, made, makers, {}):
                if all(other.result.name in own for other in (made, *inner)):
                    continue
                if all(uses[other.result.name] == 1 for other in inner):
                    text = self.make(**{name: bound[name] for name in self.parameters})
                    if text is not None:
                        return made, inner, *_expanded(text, bound, made, set(function.values))
        return None

    def _match(self, tree, made, makers, bound):
        """Every way to match: the names that are bound, and the instructions below the root."""
        if made.kind != "op" or made.op != tree.func.id:
            return
        given = {keyword.arg: keyword.value for keyword in tree.keywords}
        bound = dict(bound)
        for attribute in OPS[made.op].attributes:
            value = made.attributes.get(attribute.name, attribute.default)
            wanted = given.get(attribute.name)
            if isinstance(wanted, ast.Name) and wanted.id not in ("inf", "nan"):
                if not same_value(bound.setdefault(wanted.id, value), value):
                    return
            elif not same_value(_value(wanted) if wanted is not None else attribute.default, value):
                return
        orders = [made.operands]
        if OPS[made.op].commutative:
            orders.append([made.operands[1], made.operands[0], *made.operands[2:]])
        for operands in orders:
            if len(operands) == len(tree.args):
                yield from self._operands(tree.args, operands, makers, bound, [])

    def _operands(self, trees, operands, makers, bound, inner):
        if not trees:
            yield bound, inner
            return
        tree, name = trees[0], operands[0]
        if isinstance(tree, ast.Name):
            if bound.get(tree.id, name) == name:
                yield from self._operands(trees[1:], operands[1:], makers, {**bound, tree.id: name}, inner)
        elif name in makers:
            for found, below in self._match(tree, makers[name], makers, bound):
                yield from self._operands(trees[1:], operands[1:], makers, found, [*inner, makers[name], *below])


def pattern(text):
    """Makes a Pattern of a function that returns the replacement."""
    return lambda make: Pattern(text, make)


def rewrite(program, *patterns, check=True, sizes=None, tolerance=1e-4):
    """The program with the patterns applied until none matches; what a pattern made it matches again only
    with an instruction that it did not make, so that this ends. With `check`, it is run before and after
    on random inputs and weights (`sizes` gives numbers to named sizes), and an Error tells which pattern
    changed a result by more than the relative tolerance."""
    result = program = as_program(program)
    for rule in patterns:
        before, own = result, {}
        while (changed := _applied(result, rule, own)) is not None:
            result = changed
        if check and result is not before:
            compare(before, result, sizes, tolerance, rule.name)
    return result


def _applied(program, rule, own):
    """The program after one replacement; None where the pattern matches nothing. `own` has the names of what
    the rule made, by function."""
    for function in program.functions:
        names = own.setdefault(function.name, set())
        found = rule.find(function, names)
        if found:
            root, inner, lines, name = found
            gone = {id(made) for made in inner}
            names.update(line.split(" = ")[0].split(":")[0] for line in lines)
            renamed = {root.result.name: name}
            body = []
            for made in function.body:
                if made is root:
                    body += lines
                elif id(made) not in gone:
                    operands = [renamed.get(operand, operand) for operand in made.operands]
                    body.append(print_instruction(replace(made, operands=operands)))
            body.append("return " + ", ".join(renamed.get(result, result) for result in function.results))
            return parse(_text_with(program, function, body), program.file or program.name)
    return None


def _text_with(program, function, body):
    """The program's text with other lines below the head of a function."""
    head = print_program(replace(program, functions=[]))
    parts = [head]
    for other in program.functions:
        text = print_program(replace(program, functions=[other])).removeprefix(head)
        if other is function:
            text = "\n".join(["", text.split("\n")[1], *("    " + line for line in body), ""])
        parts.append(text)
    return "".join(parts)


def _expanded(text, bound, root, taken):
    """A nested expression as statements, of which the last makes the root's result, and the name of that; for a
    name alone, no statements and what it stands for."""
    lines = []

    def fresh():
        number = 0
        while f"{root.result.name}_{number}" in taken:
            number += 1
        taken.add(f"{root.result.name}_{number}")
        return f"{root.result.name}_{number}"

    def expand(node, name):
        if isinstance(node, ast.Name):
            return bound.get(node.id, node.id)
        node = _call(node, deep=False)
        arguments = [expand(argument, None) for argument in node.args]
        for keyword in node.keywords:
            value = keyword.value
            value = repr(bound[value.id]) if isinstance(value, ast.Name) and value.id in bound else ast.unparse(value)
            arguments.append(f"{keyword.arg}={value.replace(chr(39), chr(34))}")
        name = name or fresh()
        lines.append(f"{name} = {node.func.id}({', '.join(arguments)})")
        return name

    annotation = f": {root.result.type.text()}" if root.result.type else ""
    tree = _parsed(text)
    if isinstance(tree, ast.Name):
        return [], bound.get(tree.id, tree.id)
    expand(tree, root.result.name + annotation)
    return lines, root.result.name


def _parsed(text):
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Error("Syntax", f"{text.strip()[:80]!r} is no expression: {error}") from None


def _call(node, deep=True):
    """Checks that an expression is made of calls, names and literals."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or (deep and node.func.id not in OPS):
        raise Error("Syntax", f"a pattern is a call of an op, not {ast.unparse(node)}")
    for argument in node.args if deep else ():
        if not isinstance(argument, ast.Name):
            _call(argument)
    return node


def _value(node):
    if isinstance(node, ast.Name):
        return float(node.id)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise Error("Syntax", f"{ast.unparse(node)} is no literal") from None


def compare(a, b, sizes=None, tolerance=1e-4, name="the rewrite", seed=0):
    """Runs two programs on the same random inputs and weights; throws where a result differs."""
    inputs = random_inputs(a, sizes, seed)
    results = [run(program, inputs, random_weights(seed)) for program in (a, b)]
    for k, (before, after) in enumerate(zip(*results, strict=True)):
        if before.type != after.type:
            raise Error("Incompatible", f"{name}: result {k} was {before.type} and is {after.type}")
        x, y = (np.asarray(value.numpy(), np.float64) for value in (before, after))
        if not np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True):
            raise Error("Incompatible", f"{name}: result {k} differs by {np.nanmax(np.abs(x - y)):.3g}")

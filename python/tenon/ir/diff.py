"""Where two programs differ in structure: names of values do not count, nor the order of instructions
that do not depend on each other; ops, attributes, types, constants and operands do."""
import difflib
from collections import Counter

from .parse import as_program
from .program import literal, print_instruction


def diff(a, b):
    """Lines like those of a unified diff; none for programs of equal structure. Texts, and programs of the compiled
    part, are read first."""
    a, b = as_program(a), as_program(b)
    lines = []
    for key in ("name", "opset", "weights", "sha256", "entry"):
        before, after = getattr(a, key), getattr(b, key)
        if before != after:
            lines += [f"- module: {key} is {literal(before)}", f"+ module: {key} is {literal(after)}"]
    functions_a, functions_b = ({function.name: function for function in program.functions} for program in (a, b))
    for name in dict.fromkeys([*functions_a, *functions_b]):
        if name not in functions_b:
            lines.append(f"- def {name}: {len(functions_a[name].body)} instructions")
        elif name not in functions_a:
            lines.append(f"+ def {name}: {len(functions_b[name].body)} instructions")
        else:
            lines += _function(functions_a[name], functions_b[name])
    return lines


def _function(a, b):
    rows_a, rows_b = _rows(a), _rows(b)
    if Counter(_computed(rows_a)) == Counter(_computed(rows_b)):
        return []
    # Rows of equal ops are paired; their operands must then be pairs as well.
    matcher = difflib.SequenceMatcher(None, [row[0] for row in rows_a], [row[0] for row in rows_b], autojunk=False)
    blocks, pairs = matcher.get_opcodes(), {}
    for what, i, j, k, l in blocks:
        if what == "equal":
            pairs.update((x[1], y[1]) for x, y in zip(rows_a[i:j], rows_b[k:l]))
        elif what == "replace":  # what follows reads the last of them
            pairs[rows_a[j - 1][1]] = rows_b[l - 1][1]
    lines = []
    for what, i, j, k, l in blocks:
        if what == "equal":
            for x, y in zip(rows_a[i:j], rows_b[k:l]):
                if [pairs.get(name) for name in x[2]] != y[2]:
                    lines += [f"-     {x[3]}", f"+     {y[3]}"]
        else:
            lines += [f"-     {row[3]}" for row in rows_a[i:j]] + [f"+     {row[3]}" for row in rows_b[k:l]]
    return [f"  def {a.name}:", *lines]


def _rows(function):
    """For each parameter, instruction and the return: what it does, its result, operands, and text."""
    rows = [(("parameter", k, value.kind, value.type), value.name, [],
             f"{value.name}: {value.type.text() if value.type else value.kind}")
            for k, value in enumerate(function.parameters)]
    for made in function.body:
        attributes = tuple((name, repr(value)) for name, value in sorted(made.attributes.items()))
        key = (made.op, attributes, made.text, made.function, made.index, made.count, made.first, made.condition,
               made.result.type)
        rows.append((key, made.result.name, made.operands, print_instruction(made)))
    rows.append((("return",), "", function.results, "return " + ", ".join(function.results)))
    return rows


def _computed(rows):
    """What each row computes from the parameters, without names of values."""
    known = {}
    for key, result, operands, _ in rows:
        known[result] = hash((key, *(known[name] for name in operands)))
        yield known[result]

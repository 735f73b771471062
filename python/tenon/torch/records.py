"""The records of a graph's JSON: nodes, arguments, names."""

import keyword
import math

from ..importing.errors import malformed
from .archive import get

# They change no element; where the graph uses their operand later, it names the result.
_VIEWS_IN_PLACE = {f"aten.{name.replace('.', '_.')}": f"aten.{name}" for name in (
    "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "t.default", "swapaxes.default",
    "swapdims.default")} | {"aten.transpose_.default": "aten.transpose.int"}


_PYTORCH_S = ("aten.", "prims.", "profiler.", "higher_order.", "torch.", "_operator.", "builtins.", "math.")


def needed(graph, known, where):
    """(the nodes that the outputs need, or that change something, in order; the names that are used)

    An op of another library, which is not known, may change what it is given: it is kept, to be refused.
    """
    wanted = {name_of(one) for one in get(graph, "outputs", list, where)}
    kept = []
    for node in reversed(get(graph, "nodes", list, where)):
        target = target_of(node, where)
        has_effects = is_in_place(target) or target.startswith("aten._assert") or \
            not target.startswith(_PYTORCH_S) and target not in known
        if not has_effects and wanted.isdisjoint(output_names(node)):
            continue
        kept.append(node)
        for one in get(node, "inputs", list, where):
            wanted.update(names_of(one.get("arg")) if isinstance(one, dict) else ())
    return kept[::-1], wanted


def last_uses(graph, nodes, where):
    """The place of the last of these nodes that takes a value, by name: inf for what the graph takes or gives."""
    found = {name: at for at, node in enumerate(nodes) for one in node.get("inputs", [])
             for name in (names_of(one.get("arg")) if isinstance(one, dict) else ())}
    ends = [one for field in ("inputs", "outputs") for one in get(graph, field, list, where)]
    return found | {name_of(one): math.inf for one in ends}


def word(name):
    """A name as a program's text can have it."""
    made = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)[:200]
    return f"v{made}" if made[:1].isdigit() or not made else f"{made}_" if keyword.iskeyword(made) else made


# Ops in place whose functional op has another overload's name.
_OVERLOADS = {"aten.pow.Tensor": "aten.pow.Tensor_Tensor", "aten.float_power.Tensor": "aten.float_power.Tensor_Tensor",
              "aten.floor_divide.Tensor": "aten.floor_divide.default", "aten.ldexp.default": "aten.ldexp.Tensor"}


def functional_name(target, known=()):
    """aten.add_.Tensor as aten.add.Tensor; aten.add.out as the op of that name that is known."""
    if not is_in_place(target):
        return target
    domain, name, overload = target.split(".")
    if not is_out(target):
        made = f"{domain}.{name[:-1]}.{overload}"
        return _OVERLOADS.get(made, made)
    overloads = [overload.removesuffix("_out")] if overload != "out" else ["default", "Tensor"]
    return next((one for one in (f"{domain}.{name}.{end}" for end in overloads) if one in known), target)


def is_in_place(target):
    """Whether an op changes a tensor that it is given: its first argument, or `out`."""
    parts = target.split(".")
    return len(parts) == 3 and parts[0] == "aten" and not parts[1].startswith("__") and (
        parts[1].endswith("_") and parts[1] != "resize_" or is_out(target))


def is_out(target):
    """Whether an op puts its result into the argument `out`."""
    overload = target.rpartition(".")[2]
    return target.startswith("aten.") and (overload == "out" or overload.endswith("_out"))


def target_of(node, where):
    """torch.ops.aten.add.Tensor as aten.add.Tensor; unsqueeze_ and its like as the views that they give."""
    target = get(node, "target", str, where).removeprefix("torch.ops.")
    return _VIEWS_IN_PLACE.get(target, target)


def trace_of(node):
    """A node's stack trace, where it has one."""
    metadata = node.get("metadata")
    return metadata.get("stack_trace", "") if isinstance(metadata, dict) else ""


def first_tensor(node):
    """The name of a node's first argument, or of what an op puts its result into, where that is a tensor."""
    inputs = node.get("inputs", [])
    if is_out(str(node.get("target")).removeprefix("torch.ops.")):
        inputs = [one for one in inputs if isinstance(one, dict) and one.get("name") == "out"]
    for one in inputs[:1]:
        argument = one.get("arg") if isinstance(one, dict) else None
        if isinstance(argument, dict) and isinstance(argument.get("as_tensor"), dict):
            return argument["as_tensor"].get("name")
    return None


def output_names(node):
    return [name for one in node.get("outputs", []) for name in names_of(one)]


def names_of(argument):
    [(form, body)] = argument.items() if isinstance(argument, dict) and len(argument) == 1 else [(None, None)]
    if form == "as_sym_ints":
        return [one.get("as_name") or "" for one in body if isinstance(one, dict)]
    if form in ("as_tensors", "as_optional_tensors"):
        return [name_of(one if form != "as_tensors" else {"as_tensor": one}) or "" for one in body or []]
    if form == "as_optional_tensor":
        return [name_of(body) or ""]
    return [name_of(argument) or ""]


def name_of(argument):
    """The name in an argument, where it has one."""
    [(_, body)] = argument.items() if isinstance(argument, dict) and len(argument) == 1 else [(None, None)]
    found = (body.get("name") or body.get("as_name")) if isinstance(body, dict) else None
    return found if isinstance(found, str) else None


def is_symbol(text):
    return isinstance(text, str) and text.startswith("Symbol(") and text.count("(") == 1


def listed(body, where):
    if not isinstance(body, list):
        raise malformed(where, f"{str(body)[:80]} is no list")
    return body


def _typed(kind):
    def check(body, where):
        if type(body) is not kind:
            raise malformed(where, f"{str(body)[:80]} is no {kind.__name__}")
        return body
    return check


def _all(check):
    return lambda body, where: [check(one, where) for one in listed(body, where)]


def number(body, where):
    """A number: those that JSON does not have are words."""
    if isinstance(body, str) and body in ("Infinity", "-Infinity", "NaN"):
        return float(body)
    if isinstance(body, bool) or not isinstance(body, (int, float)):
        raise malformed(where, f"{str(body)[:80]} is no number")
    return float(body)


def complex_number(body, where):
    if not isinstance(body, dict):
        raise malformed(where, f"{str(body)[:80]} is no complex number")
    return complex(number(body.get("real"), where), number(body.get("imag"), where))


PLAIN = {"as_int": _typed(int), "as_ints": _all(_typed(int)), "as_float": number, "as_complex": complex_number,
          "as_floats": _all(number),
          "as_bool": _typed(bool), "as_bools": _all(_typed(bool)), "as_string": _typed(str),
          "as_strings": _all(_typed(str)), "as_operator": _typed(str), "as_int_lists": _all(_all(_typed(int)))}

"""Ops of the user's own: a numpy function, and the type of what it makes."""
import re

import numpy as np

from .errors import Error
from .infer import RULES
from .objects import copied
from .ops import REFERENCES
from .schema import OPS, SCHEMA, Attribute, Op
from .tensors import DTYPES, NUMPY, Type, is_block, is_floating, is_object, rounded

_LIBRARY = frozenset(entry["name"] for entry in SCHEMA["ops"])
_ATTRIBUTE_TYPES = {int: "int", float: "real", bool: "bool", str: "word", tuple: "ints", list: "ints"}


def add_op(name, function, infer=None, operands=1, required=None, attributes=None, takes_objects=False, updates=-1):
    """Makes an op known to texts and runs here; `tenon.op` calls it, so that its ops are known.

    `function` is given numpy arrays, then the attributes by name. `infer` is given the operands' Types and the
    attributes, and returns a Type or its text; without it, the result has the first operand's type. `attributes` are
    defaults by name. With `takes_objects`, `function` is given objects as they are; of the operand `updates`, an
    object, it returns what that becomes, or None when it has changed it. An op may be added again.
    """
    if name in _LIBRARY:
        raise Error("DuplicateName", f"'{name}' is another op")
    found = []
    for key, default in (attributes or {}).items():
        if type(default) not in _ATTRIBUTE_TYPES:
            raise Error("BadAttribute", f"{name}: {key} cannot be {default!r}")
        value = list(default) if isinstance(default, (tuple, list)) else default
        found.append(Attribute(key, _ATTRIBUTE_TYPES[type(default)], value))

    def rule(op, types, values):
        made = infer(*types, **_given(vars(values))) if infer else types[max(updates, 0)] if types else None
        type_ = made if isinstance(made, Type) else _parsed(str(made))
        if type_ is None:
            raise Error("BadShape", f"`infer` returned {made!r}, which is no type")
        return type_

    def reference(*arrays, result, **values):
        given = [copied(array.data) if is_object(array.dtype) else array.numpy().copy() for array in arrays]
        made = function(*given, **_given(values))
        if is_object(result.dtype):
            return given[updates] if made is None else made
        made = np.asarray(made)
        wanted = NUMPY[result.dtype]
        if is_block(result.dtype) or made.shape != result.dims:
            raise Error("ShapeMismatch", f"{name}: the function returned {made.shape} for {result}")
        if is_floating(result.dtype) and np.issubdtype(made.dtype, np.floating):
            return rounded(made, result.dtype)
        if made.dtype != wanted:
            raise Error("BadType", f"{name}: the function returned {made.dtype} for {result}")
        return made

    OPS[name] = Op(name, operands if required is None else required, operands, tuple(found),
                   takes_objects=takes_objects, updates_input=updates)
    RULES[name] = rule
    REFERENCES[name] = ("raw", reference)


def _given(values):
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def _parsed(text):
    """The type of a text such as f32[B, 64], or None."""
    parts = re.fullmatch(r"(\w+)(?:\[([\w, ]*)\])?", text)
    if parts is None or parts[1] not in DTYPES:
        return None
    sizes = [size.strip() for size in (parts[2] or "").split(",") if size.strip()]
    return Type(parts[1], [int(size) if size.isdigit() else None if size == "_" else size for size in sizes])

"""What the registry says of every op: schema.json, which tests/ir/op_schema.cpp writes."""
import math
from dataclasses import dataclass

from .tensors import DTYPES, SCHEMA, is_object

OPSET = SCHEMA["opset"]
LANGUAGE = {"Index", "Scope", "const", "item", "module", "pack", "repeat", "scope"}
# Python's keywords and `_`: names that no value, function or size may have.
KEYWORDS = set("""False None True _ and as assert async await break class continue def del elif else except
    finally for from global if import in is lambda nonlocal not or pass raise return try while with
    yield""".split())
KIND_NAMES = {"int": "an integer", "real": "a real number", "bool": "True or False", "word": "a string",
              "dtype": "an element type", "ints": "a list of integers"}


@dataclass(frozen=True)
class Attribute:
    name: str
    type: str  # int, real, bool, word, dtype or ints
    default: object

    def accepts(self, value):
        """The value as the op holds it, or None where it is of another type."""
        kind = type(value)
        if self.type == "real" and kind is int:  # 2^63 is limited to the largest integer
            return float(value) if float(value) == value or value == 2**63 - 1 else None
        if self.type == "dtype":
            return value if kind is str and value in DTYPES and not is_object(value) else None
        wanted = {"int": int, "real": float, "bool": bool, "word": str, "ints": list}[self.type]
        return value if kind is wanted else None


@dataclass(frozen=True)
class Op:
    name: str
    min_inputs: int
    max_inputs: int
    attributes: tuple
    pointwise: bool = False
    commutative: bool = False
    view: bool = False
    selects: bool = False
    takes_objects: bool = False
    updates_input: int = -1  # the operand that the op overwrites and returns

    def attribute(self, name):
        return next((attribute for attribute in self.attributes if attribute.name == name), None)

    @property
    def defaults(self):
        return {attribute.name: attribute.default for attribute in self.attributes}


def _op(entry):
    attributes = []
    for attribute in entry["attributes"]:
        default = attribute["default"]
        if attribute["type"] == "real":
            default = float(default)  # "inf", "-inf" and "nan" are strings in JSON
        attributes.append(Attribute(attribute["name"], attribute["type"], default))
    return Op(**{**entry, "attributes": tuple(attributes)})


OPS = {entry["name"]: _op(entry) for entry in SCHEMA["ops"]}


def same_value(a, b):
    """Equality of attributes: NaN equals NaN, and -0.0 differs from 0.0."""
    if isinstance(a, float) and isinstance(b, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    return a == b

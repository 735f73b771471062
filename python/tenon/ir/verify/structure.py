"""Names, and operands of the right number and kind: each function by itself."""
import re

from ..program import SCOPE, TENSOR, TUPLE
from ..schema import KEYWORDS, LANGUAGE, OPS
from ..tensors import Type

INSTRUCTIONS, ELEMENTS, OPERANDS, CONSTANTS = 1_000_000, 2**40, 16384, 2**20
KINDS = {TENSOR: "a tensor", TUPLE: "a tuple", SCOPE: "a scope"}
INDEX = Type("i64")


def is_name(word):
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", word) is not None and word not in KEYWORDS


def wrong_count(least, most, made):
    """What is wrong with the number of an instruction's operands."""
    taken = f"{least}" if least == most else f"{least} to {most}"
    return f"takes {taken} operand{'' if most == 1 else 's'}, {len(made.operands)} given"


def check_structure(program, found):
    count = sum(len(function.body) + 1 for function in program.functions)
    if count > INSTRUCTIONS:
        return found.add("LimitExceeded", f"{count} instructions; at most {INSTRUCTIONS} are allowed")
    functions = {}
    for function in program.functions:
        if function.name in functions:
            found.at_head("DuplicateName", f"there is another function '{function.name}'", function)
        functions.setdefault(function.name, function)
    for function in program.functions:
        if not found.full:
            StructureChecker(functions, function, found).run()
    if program.entry not in functions:
        return found.add("BadReference", f"there is no function '{program.entry}' to start with", 1, 1)
    main = functions[program.entry]
    for k, value in enumerate(main.parameters):
        if value.kind != TENSOR:
            found.at_parameter("BadType", f"parameter '{value.name}' of '{main.name}' is {KINDS[value.kind]}; "
                                          "a program takes tensors", main, k)


class StructureChecker:
    def __init__(self, functions, function, found):
        self.functions, self.function, self.found = functions, function, found
        self.values, self.tuple_sizes = {}, {}

    def run(self):
        function, found = self.function, self.found
        if not is_name(function.name):
            found.at_head("BadReference", f"'{function.name}' is no name for a function", function)
        elif function.name in OPS or function.name in LANGUAGE:
            what = "an op" if function.name in OPS else "a word of the language"
            found.at_head("DuplicateName", f"a function cannot be called '{function.name}', which is {what}",
                          function)
        if len(function.parameters) > OPERANDS:
            return found.at_head("LimitExceeded",
                                 f"{len(function.parameters)} parameters; at most {OPERANDS} are allowed", function)
        for k, value in enumerate(function.parameters):
            def at_parameter(code, message, k=k):
                found.at_parameter(code, message, function, k)
            self.value(value, at_parameter)
            if value.kind == TUPLE:
                at_parameter("BadType", f"parameter '{value.name}' is a tuple; pass its items")
            self.values[value.name] = value
        for instruction in function.body:
            if found.full:
                return
            self.instruction(instruction)
        if not 1 <= len(function.results) <= OPERANDS:
            found.at_return("BadArgument",
                            f"'{function.name}' returns {len(function.results)} values; 1 to {OPERANDS} are possible",
                            function)
        for k, name in enumerate(function.results):
            value = self.values.get(name)
            if value is None:
                found.at_return("BadReference", f"'{name}' is not defined", function, k)
            elif value.kind != TENSOR:
                found.at_return("BadType", f"'{name}' is {KINDS[value.kind]}; functions return tensors", function, k)

    def value(self, value, complain):
        if not is_name(value.name):
            complain("BadReference", f"'{value.name}' is no name for a value")
        if value.name in self.values:
            complain("DuplicateName", f"'{value.name}' is already defined")
        if value.type is None:
            return
        if value.kind != TENSOR:
            return complain("BadType", f"'{value.name}' is {KINDS[value.kind]} and has no tensor type")
        elements = 1
        for dim in value.type.dims:
            if isinstance(dim, int):
                elements *= dim
                if elements > ELEMENTS:
                    return complain("LimitExceeded", f"'{value.name}' is {value.type}, of more than 2^40 elements")
            elif dim is not None and not is_name(dim):
                complain("BadShape", f"'{dim}' is no name for a size")

    def instruction(self, made):
        found = self.found
        self.value(made.result, lambda code, message: found.at(code, message, made))
        if len(made.operands) > OPERANDS:
            found.at("LimitExceeded", f"{len(made.operands)} operands; at most {OPERANDS} are allowed", made)
        else:
            missing = [k for k, name in enumerate(made.operands) if name not in self.values]
            if missing:
                found.at("BadReference", f"'{made.operands[missing[0]]}' is not defined here", made, missing[0])
            else:
                getattr(self, {"const": "text", "scope": "text"}.get(made.kind, made.kind))(made)
        self.values[made.result.name] = made.result

    def kind(self, name):
        return self.values[name].kind

    def result_kind(self, made, wanted):
        if made.result.kind != wanted:
            self.found.at("BadType",
                          f"'{made.result.name}' is declared as {KINDS[made.result.kind]}, but this makes "
                          f"{KINDS[wanted]}", made)

    def tensors(self, made, why):
        for k, name in enumerate(made.operands):
            if self.kind(name) != TENSOR:
                self.found.at("BadType", f"'{name}' is {KINDS[self.kind(name)]}{why}", made, k)

    def op(self, made):
        op = OPS.get(made.op)
        if op is None:
            return self.found.at("UnknownOp", f"there is no op '{made.op}'", made)
        self.result_kind(made, TENSOR)
        if not op.min_inputs <= len(made.operands) <= op.max_inputs:
            self.found.at("BadArgument", wrong_count(op.min_inputs, op.max_inputs, made), made)
        for name, value in made.attributes.items():
            attribute = op.attribute(name)
            if attribute is None or attribute.accepts(value) is None:
                self.found.at("BadAttribute", f"{op.name} has no attribute {name} that could be {value!r}", made)
        self.tensors(made, ", not a tensor")

    def text(self, made):
        self.result_kind(made, SCOPE if made.kind == "scope" else TENSOR)
        if not made.text:
            self.found.at("BadReference", "an empty name", made)
        if len(made.operands) > 1:
            self.found.at("BadArgument", "takes one scope and one name", made, 1)
        elif made.operands and self.kind(made.operands[0]) != SCOPE:
            self.found.at("BadType", f"'{made.operands[0]}' is {KINDS[self.kind(made.operands[0])]}, not a scope",
                          made, 0)

    def pack(self, made):
        self.result_kind(made, TUPLE)
        if not made.operands:
            self.found.at("BadArgument", "nothing to pack", made)
        self.tensors(made, "; only tensors can be packed")
        self.tuple_sizes[made.result.name] = len(made.operands)

    def item(self, made):
        self.result_kind(made, TENSOR)
        if len(made.operands) != 1:
            return self.found.at("BadArgument", "takes one tuple and one index", made)
        name = made.operands[0]
        if self.kind(name) != TUPLE:
            return self.found.at("BadType", f"'{name}' is {KINDS[self.kind(name)]}, not a tuple", made, 0)
        size = self.tuple_sizes.get(name, 0)
        if size and not 0 <= made.index < size:
            self.found.at("OutOfRange", f"item {made.index} of '{name}', which has {size}", made)

    def callee(self, made):
        function = self.functions.get(made.function)
        if function is None:
            self.found.at("BadReference", f"there is no function '{made.function}'", made)
        return function

    def argument(self, function, k, given, made, operand):
        wanted = function.parameters[k]
        if wanted.kind != given:
            self.found.at("BadType",
                          f"parameter '{wanted.name}' of '{function.name}' is {KINDS[wanted.kind]}, not {KINDS[given]}",
                          made, operand)

    def call(self, made):
        function = self.callee(made)
        if function is None:
            return
        count = len(function.results)
        self.result_kind(made, TENSOR if count == 1 else TUPLE)
        if count > 1:
            self.tuple_sizes[made.result.name] = count
        if len(made.operands) != len(function.parameters):
            return self.found.at("BadArgument",
                                 wrong_count(len(function.parameters), len(function.parameters), made), made)
        for k, name in enumerate(made.operands):
            self.argument(function, k, self.kind(name), made, k)

    def repeat(self, made):
        found, operands = self.found, made.operands
        self.result_kind(made, TUPLE)
        if len(operands) < 2 or self.kind(operands[0]) != TUPLE or self.kind(operands[1]) != SCOPE:
            return found.at("BadArgument", "takes a function, a count, a tuple, a scope and extras", made)
        carried = self.tuple_sizes[made.result.name] = self.tuple_sizes.get(operands[0], 0)
        if not (0 <= made.count <= CONSTANTS and 0 <= made.first <= 2**32):
            found.at("OutOfRange", f"cannot count {made.count} times from {made.first}", made)
        if made.condition < -1 or (carried and made.condition >= carried):
            return found.at("OutOfRange", f"condition {made.condition}: {carried} values are carried", made)
        function = self.callee(made)
        if function is None or not carried:
            return
        extras = operands[2:]
        if len(function.parameters) != carried + 2 + len(extras):
            return found.at("BadArgument",
                            f"'{function.name}' takes {len(function.parameters)} parameters, but {carried} carried "
                            f"values, an index, a scope and {len(extras)} extras are {carried + 2 + len(extras)}", made)
        if len(function.results) != carried:
            found.at("BadArgument",
                     f"'{function.name}' returns {len(function.results)} values, but {carried} are carried", made)
        for k in range(carried + 1):
            self.argument(function, k, TENSOR, made, 0)
        self.argument(function, carried + 1, SCOPE, made, 1)
        for k, name in enumerate(extras):
            self.argument(function, carried + 2 + k, self.kind(name), made, 2 + k)
        index = function.parameters[carried]
        if index.type not in (None, INDEX):
            found.at("BadType",
                     f"parameter '{index.name}' of '{function.name}' counts the repetitions: it is {INDEX}, not "
                     f"{index.type}", made)

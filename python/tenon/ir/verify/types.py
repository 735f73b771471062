"""Types: what is declared agrees with what follows, through calls with the types of their operands."""
from ..errors import Error, Unsupported
from ..infer import infer
from ..program import TENSOR
from ..tensors import Type, is_linear_object
from .constants import may_agree

INDEX = Type("i64")


class Agreement:
    """What all callers pass for one parameter."""

    def __init__(self):
        self.seen, self.type = False, None

    def add(self, type_):
        if not self.seen:
            self.seen, self.type = True, type_
        elif not self.type or not type_ or self.type.rank != type_.rank or self.type.dtype != type_.dtype:
            self.type = None
        else:
            self.type = Type(type_.dtype, [a if a == b else None for a, b in zip(self.type.dims, type_.dims)])


class Typer:
    def __init__(self, program, found):
        self.program, self.found = program, found
        self.functions = {function.name: function for function in program.functions}
        self.passed = {function.name: [Agreement() for _ in function.parameters] for function in program.functions}
        self.called = {}  # results by function and types of the arguments

    def run(self, fill):
        # Errors are those of the declared types; what callers pass is collected on the way.
        entry = self.program.main
        self.type(entry, [value.type for value in entry.parameters])
        for function in self.program.functions:
            if self.found.full:
                return
            if function is entry and not fill:
                continue
            parameters = [value.type for value in function.parameters]
            if function is not entry:
                parameters = [own or passed.type for own, passed in zip(parameters, self.passed[function.name])]
            types = self.type(function, parameters)
            if fill and not self.found.errors:
                for value in function.values.values():
                    if value.kind == TENSOR and value.type is None:
                        value.type = types[value.name]

    def type(self, function, arguments, caller=None):
        """The types of a function's values, for these of its parameters; a list for a tuple. Sizes are the
        function's own, or those of `caller`, the call that gives the arguments, to which their errors belong."""
        types, sizes, outermost = {}, {}, caller is None
        for k, (value, argument) in enumerate(zip(function.parameters, arguments)):
            def complain(code, message, k=k):
                if caller is None:
                    self.found.at_parameter(code, message, function, k)
                else:
                    self.found.at(code, message, caller)
            found = types[value.name] = self.settle(sizes, outermost, value, argument, complain)
            if caller and value.type is None and found and is_linear_object(found.dtype):
                complain("BadType", f"'{value.name}' is a {found}, which a parameter must declare")
        for made in function.body:
            if self.found.full:
                break
            found = self.step(made, types)
            if made.kind not in ("pack", "repeat") and not isinstance(found, list):
                found = self.settle(sizes, outermost, made.result, found,
                                    lambda code, message: self.found.at(code, message, made))
            types[made.result.name] = found
        return types

    def step(self, made, types):
        operands = [types.get(name) for name in made.operands]
        if made.kind == "op":
            if None in operands:
                return None
            try:
                return infer(made.op, operands, made.attributes)
            except Unsupported:
                return None  # an op without a rule: what is declared
            except Error as error:
                return self.found.at(error.code, error.message, made)
        if made.kind == "pack":
            return operands
        if made.kind == "item":
            return operands[0][made.index] if made.index < len(operands[0] or ()) else None
        if made.kind == "call":
            results = self.call(made, operands)
            return results if len(results) != 1 else results[0]
        if made.kind == "repeat":
            return self.repeat(made, operands)
        return None  # const, scope

    def call(self, made, arguments):
        name = made.function
        function = self.functions[name]
        for agreement, argument in zip(self.passed[name], arguments):
            # A caller's sizes have no meaning in the callee, unless it uses the same name.
            if argument:
                argument = Type(argument.dtype, [dim if isinstance(dim, int) else None for dim in argument.dims])
            agreement.add(argument)
        key = (name, *arguments)
        if key not in self.called:
            types = self.type(function, arguments, made)
            self.called[key] = [types.get(result) for result in function.results]
        return list(self.called[key])

    def repeat(self, made, operands):
        carry = list(operands[0] or ())
        if 0 <= made.condition < len(carry) and carry[made.condition] not in (None, Type("bool")):
            self.found.at("BadType",
                          f"its condition, value {made.condition} of the carry, is {carry[made.condition]}, not bool[]",
                          made)
        results = self.call(made, [*carry, INDEX, None, *operands[2:]])
        for k, (before, after) in enumerate(zip(carry, results)):
            if before is None:
                carry[k] = after
            elif after is not None and not may_agree(before, after):
                self.found.at("ShapeMismatch",
                              f"carries {before} as value {k}, but '{made.function}' returns {after}", made)
        return carry

    def settle(self, sizes, outermost, value, actual, complain):
        """The type of a value that is declared and found: what is known from either."""
        declared = value.type
        if declared is None:
            return actual
        if actual and (actual.rank != declared.rank or actual.dtype != declared.dtype):
            complain("ShapeMismatch", f"'{value.name}' is {actual}, declared {declared}")
            return declared
        dims = []
        for i, known in enumerate(declared.dims):
            dim = actual.dims[i] if actual else None
            named = isinstance(known, str)
            if named:
                if known not in sizes:
                    sizes[known] = known if dim is None and outermost else dim
                if not isinstance(sizes[known], int) and isinstance(dim, int):
                    sizes[known] = dim
                known = sizes[known]
            if isinstance(known, int) and isinstance(dim, int) and known != dim:
                given = f" with {declared.dims[i]} = {known}" if named else ""
                complain("ShapeMismatch", f"'{value.name}' is {actual}, declared {declared}{given}")
                return declared
            dims.append(known if isinstance(known, int) or dim is None else dim)
        try:
            return Type(declared.dtype, dims)
        except Error as error:
            return complain(error.code, f"'{value.name}': {error.message}")

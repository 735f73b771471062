"""Constants: one name is one array, however it is named."""
from .calls import reads_scope


def join(prefix, name):
    return f"{prefix}.{name}" if prefix else name


def constant_names(program):
    """(function, instruction, full name) of every constant that the entry function reads, each for
    every iteration of a loop."""
    functions = {function.name: function for function in program.functions}

    def walk(function, scopes):
        for made in function.body:
            names = made.operands
            if made.kind == "const":
                for prefix in scopes[names[0]] if names else [""]:
                    yield function, made, join(prefix, made.text)
            elif made.kind == "scope":
                scopes[made.result.name] = [join(prefix,
                                                 made.text) for prefix in (scopes[names[0]] if names else [""])]
            elif made.kind == "call":
                callee = functions[made.function]
                yield from walk(callee,
                                {value.name: scopes.get(name) for value, name in zip(callee.parameters, names)})
            elif made.kind == "repeat":
                callee = functions[made.function]
                extras = len(callee.parameters) - (len(names) - 2)
                inner = {value.name: scopes.get(name) for value, name in zip(callee.parameters[extras:], names[2:])}
                rounds = range(made.first, made.first + made.count) if reads_scope(callee) else ()
                inner[callee.parameters[extras - 1].name] = [
                    join(prefix, str(i)) for prefix in scopes[names[1]] for i in rounds]
                yield from walk(callee, inner)

    return walk(program.main, {})


def check_constants(program, found):
    first = {}
    for _, made, name in constant_names(program):
        type_ = made.result.type
        if type_ is None:
            continue
        other = first.setdefault(name, made)
        if not may_agree(type_, other.result.type):
            line = f" at line {other.line}" if other.line else ""
            found.at("ShapeMismatch",
                     f"'{made.result.name}' takes constant '{name}' for {type_}, '{other.result.name}'{line} "
                                      f"for {other.result.type}", made)


def may_agree(a, b):
    return a.dtype == b.dtype and a.rank == b.rank and all(
        x == y or not isinstance(x, int) or not isinstance(y, int) for x, y in zip(a.dims, b.dims))

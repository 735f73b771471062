"""Recursion, nesting, and the size of a program with calls inlined."""
INSTRUCTIONS, CALL_DEPTH, CONSTANTS = 1_000_000, 64, 2**20


def _calls(function):
    return [made for made in function.body if made.kind in ("call", "repeat")]


def reads_scope(function):
    """Whether a repeated function reads its scope, which follows what it carries and the index."""
    scope = function.parameters[len(function.results) + 1].name
    return any(scope in made.operands for made in function.body)


def check_calls(program, found):
    """The functions, callees first."""
    functions = {function.name: function for function in program.functions}
    state, order = {}, []
    for root in program.functions:
        if root.name in state:
            continue
        state[root.name] = "open"
        stack = [(root, iter(_calls(root)))]  # not Python's: a hostile text may chain any number
        while stack:
            function, calls = stack[-1]
            made = next(calls, None)
            if made is None:
                state[function.name] = "done"
                order.append(function)
                stack.pop()
            elif state.get(made.function) == "open":
                found.at("Cycle", f"'{made.function}' calls itself", made)
            elif made.function not in state:
                state[made.function] = "open"
                stack.append((functions[made.function], iter(_calls(functions[made.function]))))
    _measure(functions, order, found)
    return order


def _measure(functions, order, found):
    sizes, total = {}, 0
    for function in order:
        if found.full:
            return
        instructions = constants = depth = 0
        for made in function.body:
            instructions += 1
            constants += made.kind in ("const", "scope")
            if made.kind not in ("call", "repeat"):
                continue
            callee = functions[made.function]
            inner = sizes.get(made.function, (0, 0, 0))
            rounds = made.count if made.kind == "repeat" and reads_scope(callee) else 1
            instructions += inner[0] + len(callee.parameters)
            constants += rounds * (1 + inner[1])
            depth = max(depth, inner[2] + 1)
            if depth > CALL_DEPTH:
                found.at("DepthLimit", f"more than {CALL_DEPTH} functions inside each other", made)
            elif constants > CONSTANTS:
                found.at("LimitExceeded", f"loops name more than {CONSTANTS} constants and scopes", made)
            if depth > CALL_DEPTH or constants > CONSTANTS:
                return
            if instructions > INSTRUCTIONS:
                break
        total += instructions
        if total > INSTRUCTIONS:
            found.at_head("LimitExceeded", f"calls inline to more than {INSTRUCTIONS} instructions", function)
        sizes[function.name] = (instructions, constants, depth)

"""Values and gradients of functions of arrays."""

import functools

from . import _tenon, ops
from .build import Graph, _recorded as _of_graph

_kept = 16  # programs of one function: types of arguments


def value_and_grad(function, argnums=0):
    """A function that returns function's value and its gradients with respect to arguments.

        step = tenon.value_and_grad(loss, argnums=(0, 1))
        value, (dw, db) = step(w, b, x)

    `function` is called with tensors and returns a scalar. Its arguments are arrays of any kind, numbers, and dicts,
    lists and tuples of them: a gradient has the structure of its argument. Words, booleans and None are passed on as
    they are. `argnums` is the number of an argument, or a tuple of them.

    The function is recorded at the first call with arguments of these types, and the program runs from then on; what
    it reads besides its arguments is recorded as it is then. Its arrays are on the CPU.

    Of tensors, as in a function that is itself recorded, value and gradients are tensors of the same graph, so that
    they may be differentiated again.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    sessions = {}

    def found_in(form, gradients):
        left = iter(gradients)
        found = tuple(_filled(form[number], lambda _: next(left)) for number in numbers)
        return found[0] if isinstance(argnums, int) else found

    @functools.wraps(function)
    def evaluated(*arguments):
        for number in numbers:
            if not -len(arguments) <= number < len(arguments):
                raise TypeError(f"value_and_grad: there is no argument {number} of {len(arguments)}")
        arrays = []
        form = tuple(_form(argument, arrays) for argument in arguments)
        if any(isinstance(array, _tenon.Tensor) for array in arrays):
            # One may have been computed from another, which its gradient does not follow: hence views of them.
            leaves = [ops.permute(one, tuple(range(len(one.shape)))) for one in _of_graph(arrays)]
            value, *gradients = _differentiated(function, form, leaves, numbers)
            return value, found_in(form, gradients)
        key = (form, tuple(repr(array.type) for array in arrays))
        if key not in sessions:
            if len(sessions) == _kept:
                del sessions[next(iter(sessions))]
            sessions[key] = _recorded(function, form, [array.type for array in arrays], numbers)
        value, *gradients = sessions[key].forward(*arrays)
        return value, found_in(form, gradients)

    return evaluated


def grad(loss, parameters=None, argnums=0):
    """The gradients of a scalar of a graph with respect to other tensors of it, as a list; or of a function, as a function
    of the same arguments, see value_and_grad. `parameters` are the tensors, or instead of argnums the numbers.

        dw, db = tenon.grad(y, [w, b])
        dw = tenon.grad(loss)(w, x)
    """
    if not callable(loss):
        return _tenon.grad(loss, parameters)
    evaluated = value_and_grad(loss, argnums if parameters is None else parameters)

    @functools.wraps(loss)
    def gradients(*arguments):
        return evaluated(*arguments)[1]

    return gradients


def _form(argument, arrays):
    """The structure of an argument, whose arrays are appended to a list."""
    if argument is None or isinstance(argument, (str, bool)):
        return ("as it is", argument)
    if isinstance(argument, dict):
        return ("dict", tuple((key, _form(value, arrays)) for key, value in argument.items()))
    if isinstance(argument, (list, tuple)):
        return (type(argument).__name__ if type(argument) in (list, tuple) else "tuple",
                tuple(_form(value, arrays) for value in argument))
    arrays.append(argument if isinstance(argument, (_tenon.Buffer, _tenon.Tensor)) else _tenon.Buffer(argument))
    return ("array", len(arrays) - 1)


def _filled(form, leaf):
    """A structure with leaf(i) in the place of array i."""
    kind, held = form
    if kind == "array":
        return leaf(held)
    if kind == "dict":
        return {key: _filled(one, leaf) for key, one in held}
    if kind == "as it is":
        return held
    made = [_filled(one, leaf) for one in held]
    return made if kind == "list" else tuple(made)


def _recorded(function, form, types, numbers):
    with Graph() as graph:
        tensors = [graph.input("", one) for one in types]
        results = _differentiated(function, form, tensors, numbers)
    return _tenon.Session(graph.program(results))


def _differentiated(function, form, tensors, numbers):
    """The function's value and its gradients, in order."""
    value = function(*[_filled(one, tensors.__getitem__) for one in form])
    if not isinstance(value, _tenon.Tensor):
        raise TypeError(f"value_and_grad: the function returns {type(value).__name__}, not a scalar made of its "
                        "arguments")
    wanted = []
    for number in numbers:
        _filled(form[number], wanted.append)
    gradients = _tenon.grad(value, [tensors[i] for i in wanted]) if wanted else []
    return (value, *gradients)

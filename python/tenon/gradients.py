"""Values and gradients of functions of arrays."""

import functools
import re
from collections import OrderedDict

from . import _tenon, errors, ops
from .build import Graph, _recorded as _of_graph
from .outer_tensors import holds_tensors
from .structures import WORDS, argument_names, array_of, filled, form_of, keep

_kept = 16  # programs of one function: types of arguments


def value_and_grad(function, argnums=0, has_aux=False, allow_unused=False):
    """A function that returns function's value and its gradients with respect to arguments.

        step = tenon.value_and_grad(loss, argnums=(0, 1))
        value, (dw, db) = step(w, b, x)

    `function` is called with tensors and returns a scalar. Its arguments are arrays of any kind, numbers, and dicts,
    lists, tuples and dataclasses of them: a gradient has the structure of its argument. Words, booleans, functions and
    None are passed on as they are. `argnums` is the number of an argument, or a tuple of them; arguments by name have
    no gradients.

    With `has_aux` the function returns the scalar and a second value, a structure of tensors, and the result is
    ((value, second), gradients).

    Arrays on which the value does not depend, such as those of a frozen layer, are an error, with `allow_unused` their
    gradients are zeros. To train a part of a structure, take it as an argument of its own: it is faster, and an
    optimiser leaves the rest alone.

    The function is recorded at the first call with arguments of these types, and the program runs from then on; what
    it reads besides its arguments is recorded as it is then. Its arrays are on the CPU.

    Of tensors, as in a function that is itself recorded, value and gradients are tensors of the same graph, so that
    they may be differentiated again.
    """
    if not callable(function):
        raise TypeError(f"value_and_grad: {type(function).__name__} is no function")
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    sessions = OrderedDict()

    def result(form, value, gradients, second):
        left = iter(gradients)
        found = tuple(filled(form[number], lambda _: next(left)) for number in numbers)
        return ((value, second) if has_aux else value), found[0] if isinstance(argnums, int) else found

    @functools.wraps(function)
    def evaluated(*arguments, **named):
        for number in numbers:
            if not -len(arguments) <= number < len(arguments):
                raise TypeError(f"value_and_grad: there is no argument {number} of {len(arguments)}")
        arrays = []
        form = tuple(_form(argument, arrays) for argument in arguments)
        named = tuple((word, _form(argument, arrays)) for word, argument in named.items())
        if any(isinstance(array, _tenon.Tensor) for array in arrays) or holds_tensors(function):
            # One may have been computed from another, which its gradient does not follow: hence views of them.
            leaves = [ops.permute(one, tuple(range(len(one.shape)))) for one in _of_graph(arrays)]
            value, gradients, after, others = _differentiated(function, form, named, leaves, numbers, has_aux,
                                                              allow_unused)
            return result(form, value, gradients, filled(after, others.__getitem__))
        key = (form, named, tuple(repr(array.type) for array in arrays))
        held = sessions.pop(key, None)  # no other thread's for the time of the call
        held = held or _recorded(function, form, named, [array.type for array in arrays], numbers, has_aux, allow_unused)
        session, after, count = held
        try:
            value, *rest = session.forward(*arrays)
        finally:
            keep(sessions, key, held, _kept)
        return result(form, value, rest[:count], filled(after, rest[count:].__getitem__))

    return evaluated


def grad(loss, parameters=None, argnums=0, has_aux=False, allow_unused=False):
    """The gradients of a scalar of a graph with respect to other tensors of it, as a list; or of a function, as a function
    of the same arguments, see value_and_grad. `parameters` are the tensors, or instead of argnums the numbers.

        dw, db = tenon.grad(y, [w, b])
        dw = tenon.grad(loss)(w, x)

    With `has_aux` the function of gradients returns (gradients, second). `allow_unused` is as in value_and_grad.
    """
    if not callable(loss):
        return _tenon.grad(loss, parameters, allow_unused)
    evaluated = value_and_grad(loss, argnums if parameters is None else parameters, has_aux, allow_unused)

    @functools.wraps(loss)
    def gradients(*arguments, **named):
        value, found = evaluated(*arguments, **named)
        return (found, value[1]) if has_aux else found

    return gradients


def checkpointed(function):
    """The function as a region of which gradients keep no value but its arguments and results, and compute the others
    again: a deep network takes the memory of one block (torch.utils.checkpoint). The values are the same.

        x = tenon.checkpointed(block)(layer, x)
    """
    if not callable(function):
        raise TypeError(f"checkpointed: {type(function).__name__} is no function")

    @functools.wraps(function)
    def run(*arguments, **named):
        with _tenon._CheckpointedRegion():
            return function(*arguments, **named)

    return run


def _form(argument, arrays):
    """The structure of an argument, whose arrays are appended to a list."""
    first = len(arrays)
    form = form_of(argument, arrays, WORDS)
    arrays[first:] = [array_of(one, "value_and_grad") for one in arrays[first:]]
    return form


def _recorded(function, form, named, types, numbers, has_aux, allow_unused):
    """The session of a function's value, its gradients and what else it returns; the structure of that; and the number
    of gradients."""
    with Graph() as graph:
        names = argument_names(function, form, named)
        tensors = [graph.input(name, one) for name, one in zip(names, types)]
        value, gradients, after, others = _differentiated(function, form, named, tensors, numbers, has_aux, allow_unused)
        others = _of_graph(others)
    return _tenon.Session(graph.program([value, *gradients, *others])), after, len(gradients)


def _differentiated(function, form, named, tensors, numbers, has_aux, allow_unused):
    """The function's value, its gradients in order, and the structure and the leaves of its second value."""
    made = function(*[filled(one, tensors.__getitem__) for one in form],
                    **{word: filled(one, tensors.__getitem__) for word, one in named})
    value, second, leaves = made, None, []
    if has_aux:
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise TypeError(f"value_and_grad: with has_aux the function returns (scalar, second), not "
                            f"{type(made).__name__}")
        value, second = made
    after = form_of(second, leaves, WORDS)
    if not isinstance(value, _tenon.Tensor):
        hint = "; has_aux=True takes a second value" if isinstance(value, (tuple, list)) and not has_aux else ""
        raise TypeError(f"value_and_grad: the function returns {type(value).__name__}, not a scalar made of its "
                        f"arguments{hint}")
    wanted = []
    for number in numbers:
        filled(form[number], wanted.append)
    try:
        gradients = _tenon.grad(value, [tensors[i] for i in wanted], allow_unused) if wanted else []
    except errors.ArgumentError as error:
        names = argument_names(function, form)
        message = re.sub(r"\bparameter (\d+) ", lambda found: f"'{names[wanted[int(found[1])]]}' ", error.message)
        if "does not depend on" in message:
            message += "; with allow_unused=True its gradient is zeros"
        raise type(error)(error.code, error.number, error.where, message) from None
    return value, gradients, after, leaves

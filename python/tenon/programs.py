"""Functions of arrays that run as one program."""

import functools
from collections import OrderedDict

from . import _tenon
from .build import Graph, _recorded
from .outer_tensors import holds_tensors
from .structures import WORDS, argument_names, array_of, filled, form_of, keep

_KEPT = 16  # programs of one function: types of arguments


def compiled(function, donate=()):
    """A function that runs as one program, recorded at the first call with arguments of these types.

        @tenon.compiled
        def step(parameters, x, rate):
            loss, gradients = tenon.value_and_grad(loss_of)(parameters, x)
            return tenon.train.map_arrays(lambda p, g: p - rate * g, parameters, gradients), loss

    Arguments and results are arrays, numbers, and dicts, lists, tuples and dataclasses of them. Numbers are arrays,
    which may have another value at each call; words, booleans, functions and None are parts of the program, and so is
    what the function reads besides its arguments. `donate` is the number of an argument, or a tuple of them, whose
    arrays are given up, so that the program may write its results there (Buffer.donate). Arrays are on the CPU.

    Of tensors, as in a function that is itself recorded, it is recorded with the rest.
    """
    if not callable(function):
        raise TypeError(f"compiled: {type(function).__name__} is no function")
    return programs_of(function, (donate,) if isinstance(donate, int) else tuple(donate))


def programs_of(function, donated=()):
    """The same, by the numbers of arguments."""
    sessions = OrderedDict()

    def recorded(forms, named, types):
        with Graph() as graph:
            names = argument_names(function, forms, named)
            tensors = [graph.input(name, one) for name, one in zip(names, types)]
            made = function(*[filled(one, tensors.__getitem__) for one in forms],
                            **{word: filled(one, tensors.__getitem__) for word, one in named})
            leaves = []
            after = form_of(made, leaves, WORDS)
            if not leaves:
                raise TypeError(f"compiled: {getattr(function, '__name__', 'the function')} returns no array")
            results = _recorded(leaves)
        return _tenon.Session(graph.program(results)), after

    @functools.wraps(function)
    def run(*arguments, **by_name):
        leaves, forms, given_up = [], [], []
        for number, argument in enumerate(arguments):
            forms.append(form_of(argument, leaves, WORDS))
            given_up += [number in donated] * (len(leaves) - len(given_up))
        named = tuple((word, form_of(one, leaves, WORDS)) for word, one in by_name.items())
        given_up += [False] * (len(leaves) - len(given_up))
        if any(isinstance(one, _tenon.Tensor) for one in leaves) or holds_tensors(function):
            return function(*arguments, **by_name)
        arrays = [array_of(one, "compiled") for one in leaves]
        key = (tuple(forms), named, tuple(repr(one.type) for one in arrays))
        held = sessions.pop(key, None)  # no other thread's for the time of the call
        session, after = held = held or recorded(forms, named, [one.type for one in arrays])
        try:
            results = session.forward(*(array.donate() if is_given and array is one else array
                                        for array, one, is_given in zip(arrays, leaves, given_up)))
        finally:
            keep(sessions, key, held, _KEPT)
        return filled(after, results.__getitem__)

    return run

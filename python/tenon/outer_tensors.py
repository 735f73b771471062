"""Tensors of a graph that functions hold: in variables from around them."""

import dataclasses
import functools
import types

from . import _tenon
from .structures import WORDS, filled, form_of


def holds_tensors(function):
    """Whether variables of a function from around it are tensors of a graph that is being recorded."""
    return _tenon.is_recording() and with_outer_tensors(function, [], {}) is not None


def with_outer_tensors(value, outer, seen):
    """A function of tensors that makes the same value with them in the place of the tensors of a graph that it holds,
    which are appended to `outer`; None where it holds none. In functions those of their variables from around them."""
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, types.FunctionType):
        seen[id(value)] = None  # while one refers to itself
        cells = value.__closure__ or ()
        makers = [with_outer_tensors(_content(cell), outer, seen) for cell in cells]

        def make_function(tensors):
            held = tuple(types.CellType(make(tensors)) if make else cell for make, cell in zip(makers, cells))
            made = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, held)
            made.__kwdefaults__ = value.__kwdefaults__
            return made

        seen[id(value)] = make_function if any(makers) else None
        return seen[id(value)]
    if isinstance(value, functools.partial):
        parts = [value.func, *value.args, *value.keywords.values()]
        makers = [with_outer_tensors(one, outer, seen) for one in parts]

        def make_partial(tensors):
            first, *others = [make(tensors) if make else one for make, one in zip(makers, parts)]
            count = len(value.args)
            return functools.partial(first, *others[:count], **dict(zip(value.keywords, others[count:])))

        return make_partial if any(makers) else None
    if not isinstance(value, (_tenon.Tensor, dict, list, tuple)) and not dataclasses.is_dataclass(value):
        return None
    leaves = []
    form, first = form_of(value, leaves, WORDS), len(outer)
    found = {i: first + at for at, i in enumerate(i for i, one in enumerate(leaves) if isinstance(one, _tenon.Tensor))}
    outer += [leaves[i] for i in found]
    return (lambda tensors: filled(form, lambda i: tensors[found[i]] if i in found else leaves[i])) if found else None


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return None

"""Nested dicts, lists, tuples, named tuples and dataclasses of values."""

import sys

from . import _tenon
from .errors import Error


_LEAVES = (_tenon.Buffer, _tenon.Tensor)
WORDS = (str, bool)  # parts of a program, not arrays, among the values of a structure


class Word:
    """An object that is a part of a program, as a word or a function is: hashable, and without arrays."""


def form_of(value, leaves, keeps=()):
    """The structure of a value, whose leaves are appended to a list: what is none of the classes above.

    It is hashable. None, functions and Words are parts of it, and so are values of the classes `keeps`.
    """
    if isinstance(value, _LEAVES):
        leaves.append(value)
        return ("leaf", len(leaves) - 1)
    if value is None or isinstance(value, (Word, *keeps)):
        return ("as it is", value)
    if isinstance(value, dict):
        return ("dict", type(value), tuple((key, form_of(one, leaves, keeps)) for key, one in value.items()))
    if isinstance(value, (list, tuple)):
        return ("sequence", type(value), tuple(form_of(one, leaves, keeps) for one in value))
    dataclasses = sys.modules.get("dataclasses")  # no value is one before it is imported
    if dataclasses and dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ("fields", type(value), tuple((field.name, form_of(getattr(value, field.name), leaves, keeps))
                                             for field in dataclasses.fields(value)))
    if callable(value):
        return ("as it is", value)
    leaves.append(value)
    return ("leaf", len(leaves) - 1)


def filled(form, leaf):
    """A value of this structure, with leaf(i) in the place of leaf i."""
    kind, held, *parts = form
    if kind == "leaf":
        return leaf(held)
    if kind == "as it is":
        return held
    if kind == "dict":
        values = {key: filled(one, leaf) for key, one in parts[0]}
        return values if held is dict else _made(held, values)
    if kind == "fields":
        made = object.__new__(held)
        for name, one in parts[0]:
            object.__setattr__(made, name, filled(one, leaf))
        return made
    values = [filled(one, leaf) for one in parts[0]]
    return held(*values) if hasattr(held, "_fields") else _made(held, values)


def paths_of(form):
    """The path of each leaf, in order: the keys, fields and numbers that lead to it."""
    found = []

    def add(form, path):
        kind, held, *parts = form
        if kind == "leaf":
            found.append(path)
        elif kind == "sequence":
            for i, one in enumerate(parts[0]):
                add(one, (*path, held._fields[i] if hasattr(held, "_fields") else str(i)))
        elif kind in ("dict", "fields"):
            for key, one in parts[0]:
                add(one, (*path, str(key)))

    add(form, ())
    return found


def argument_names(function, forms, named=()):
    """Names for the leaves of a call's arguments, such as "p.layers.0.w": forms by position, and (word, form)."""
    import inspect

    try:
        known = [one.name for one in inspect.signature(function).parameters.values() if one.kind != one.VAR_POSITIONAL]
    except (TypeError, ValueError):
        known = []
    words = [known[i] if i < len(known) else f"argument{i}" for i in range(len(forms))]
    names = [".".join((word, *path)) for word, form in (*zip(words, forms), *named) for path in paths_of(form)]
    is_fit = len(set(names)) == len(names) and max(map(len, names), default=0) < 200
    return names if is_fit else [""] * len(names)  # the graph's own names


def _made(cls, values):
    """As the class that it was where that is made of a list or a dict; else as a plain one."""
    try:
        return cls(values)
    except TypeError:
        return values if isinstance(values, dict) else tuple(values)


def leaves_like(form, value, what):
    """The leaves of a value that has a structure; TypeError where it has another. The keys of a dict may be in another
    order, and a tuple may be a list."""
    leaves = []

    def add(form, one):
        kind, held, *parts = form
        if kind == "leaf":
            fits = form_of(one, leaves)[0] == "leaf"
        elif kind == "as it is":
            fits = one is held or one == held
        elif kind == "dict":
            fits = isinstance(one, dict) and one.keys() == {key for key, _ in parts[0]} and \
                all([add(inner, one[key]) for key, inner in parts[0]])
        elif kind == "fields":
            fits = type(one) is held and all([add(inner, getattr(one, name)) for name, inner in parts[0]])
        else:
            fits = isinstance(one, (list, tuple)) and len(one) == len(parts[0]) and \
                all([add(inner, each) for inner, each in zip(parts[0], one)])
        return fits

    if not add(form, value):
        is_as, made = (filled(one, lambda _: "...") for one in (form, form_of(value, [])))
        raise TypeError(f"{what} is {made!r}, and {is_as!r} before")
    return tuple(leaves)


def array_of(value, where):
    """A leaf as an array; errors name the function that was given it."""
    if isinstance(value, _LEAVES):
        return value
    try:
        return _tenon.Buffer(value)
    except Error as error:
        raise type(error)(error.code, error.number, where, error.message) from None


def keep(sessions, key, session, most):
    """Puts a session back, in an OrderedDict, that was taken out for a call; those used longest ago are left out."""
    sessions[key] = session
    while len(sessions) > most:
        sessions.popitem(last=False)


def is_nested(values):
    """Whether a value is more than a leaf or a tuple or list of leaves."""
    if isinstance(values, (list, tuple)) and not hasattr(values, "_fields"):
        return any(form_of(one, [])[0] != "leaf" for one in values)
    return form_of(values, [])[0] != "leaf"

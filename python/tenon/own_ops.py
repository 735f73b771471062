"""Ops of one's own, computed by numpy."""

import inspect

from . import _tenon


def op(name=None, infer=None, gradient=None, updates=None, objects=False, **attributes):
    """Makes an op of a numpy function: recorded, printed, parsed and run like the library's.

        @tenon.op(limit=1.0)
        def soft_clip(x, limit):
            return x / (1 + abs(x) / limit)

    The function is given arrays of numpy's, then the attributes by name; it returns the result. `attributes` are their
    defaults: numbers, flags, words, types or tuples of integers, at most 8. `infer` is given the operands' types
    (tenon.Shape) and the attributes, and returns the type of the result; without it, that is the first operand's.

    `gradient` is given the operands, the result and the gradient of the loss with respect to it, as tensors, then the
    attributes; it returns the gradients with respect to the operands, made of ops: a tensor for one operand, a tuple
    for several, None where there is none. Without it the op has no gradient.

    With `objects`, operands may be objects of Python's classes (tenon.object_class), which the function is given as
    they are. `updates` is the number of an operand that the op changes and returns: the function changes the object, or
    returns the one that takes its place.

    Such an op runs on the reference backend, one of objects on the CPU's, under the interpreter's lock. It is known by
    its name for as long as the process lives; what was saved with it is read by processes that make it first. A
    definition with the same name, operands and attributes takes the place of an earlier one, in programs that exist,
    too; with others it is refused (DuplicateName). `@tenon.op` without a call is `@tenon.op()`.
    """
    if callable(name):
        return op()(name)

    def make(function):
        takes = [one for one in inspect.signature(function).parameters.values() if one.name not in attributes]
        if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in takes):
            raise ValueError(f"{function.__name__}: an op has a certain number of operands, and attributes by name")
        for one in takes:
            if one.kind is one.KEYWORD_ONLY:
                raise ValueError(f"{function.__name__}: '{one.name}' is given by name only, as attributes, which have "
                                 f"defaults: op({one.name}=...)")
        required = sum(one.default is one.empty for one in takes)
        made = _tenon._make_op(name or function.__name__, function, infer, gradient, required, len(takes),
                               objects or updates is not None, -1 if updates is None else updates, attributes)
        _add_to_ir(made.name, function, infer, required, len(takes), attributes, objects, updates)
        return made

    return make


def _add_to_ir(name, function, infer, required, operands, attributes, objects, updates):
    """To `tenon.ir`, which runs the texts that have the op. It has types as words."""
    from .ir import add_op

    types = [key for key, default in attributes.items() if isinstance(default, _tenon.DType)]

    def given(values):
        return {key: _tenon.DType(value) if key in types else value for key, value in values.items()}

    def result_type(*operand_types, **values):
        return infer(*[_tenon.Shape(one.dims, one.dtype) for one in operand_types], **given(values))

    words = {key: str(value) if key in types else value for key, value in attributes.items()}
    add_op(name, lambda *arrays, **values: function(*arrays, **given(values)), infer and result_type, operands,
           required, words, objects or updates is not None, -1 if updates is None else updates)

"""Ops of one's own, computed by numpy."""

import inspect

from . import _tenon


def op(name=None, infer=None, gradient=None, **attributes):
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

    Such an op runs on the reference backend, under the interpreter's lock. It is known by its name for as long as the
    process lives; what was saved with it is read by processes that make it first. A definition with the same name,
    operands and attributes takes the place of an earlier one, in programs that exist, too; with others it is refused
    (DuplicateName).
    """

    def make(function):
        takes = [one for one in inspect.signature(function).parameters.values() if one.name not in attributes]
        if any(one.kind is one.VAR_POSITIONAL for one in takes):
            raise ValueError(f"{function.__name__}: an op has a certain number of operands")
        required = sum(one.default is one.empty for one in takes)
        return _tenon._make_op(name or function.__name__, function, infer, gradient, required, len(takes),
                               attributes)

    return make

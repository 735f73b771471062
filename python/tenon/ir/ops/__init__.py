"""numpy references of the ops, one function each, by family.

Contracts are in include/tenon/ops. A reference takes the operands and then the attributes by name.
Numbers come as float64 where they are floating (a block type is decoded), else in their own type; what
is returned is rounded once to the type of the result, and wraps where that is an integer type.
"""
import functools

import numpy as np

from ..blocks import decode
from ..errors import Error, Unsupported
from ..infer import infer
from ..schema import OPS
from ..tensors import NUMPY, Array, bytes_shape, is_block, is_floating, is_object, rounded

REFERENCES = {}
ELEMENTS = 2**40  # at most, of one array


def op(function=None, *, name=None, kind="computes"):
    """Registers the reference of the op of the function's name; a trailing underscore is left out, so
    that none hides a function of Python's."""
    if function is None:
        return functools.partial(op, name=name, kind=kind)
    REFERENCES[name or function.__name__.rstrip("_")] = (kind, function)
    return function


moves = functools.partial(op, kind="moves")  # takes and returns elements as they are stored, of any type
raw = functools.partial(op, kind="raw")  # takes Arrays and, as `result`, its type; returns an Array's data


def evaluate(name, operands, attributes):
    """The op's result for these Arrays."""
    type_ = infer(name, [operand.type for operand in operands], attributes)
    if name not in REFERENCES:
        raise Unsupported(f"there is no numpy reference of {name}")
    if type_.elements > ELEMENTS:
        raise Error("LimitExceeded", f"{name} makes {type_}, of more than 2^40 elements")
    kind, function = REFERENCES[name]
    values = {**OPS[name].defaults, **attributes}
    with np.errstate(all="ignore"):
        if kind == "raw":
            data = function(*operands, result=type_, **values)
        elif kind == "moves":
            data = function(*[operand.data for operand in operands], **values)
        else:
            data = function(*map(number, operands), **values)
            is_real = is_floating(type_.dtype)
            data = rounded(data, type_.dtype) if is_real else np.asarray(data).astype(NUMPY[type_.dtype])
    if is_object(type_.dtype):
        return Array(type_, data)
    data = np.asarray(data)
    wanted = bytes_shape(type_) if is_block(type_.dtype) else type_.dims
    if data.shape != wanted:
        raise Error("Internal", f"the reference of {name} returns {data.shape}, not {type_}")
    return Array(type_, data)


def number(operand):
    """The numbers of an array that a reference computes with."""
    if is_block(operand.dtype):
        return decode(operand).astype(np.float64)
    return operand.data.astype(np.float64) if is_floating(operand.dtype) else operand.data


def inside(index, size, what):
    """Throws where an index is not in [0, size)."""
    index = np.asarray(index)
    outside = (index < 0) | (index >= size)
    if outside.any():
        raise Error("OutOfRange", f"{what} {int(index[outside].flat[0])} is not in [0, {size})")
    return index


from . import (  # noqa: E402, F401
    axes, images, language, linalg, objects, pointwise, products, quantised, shapes, special)

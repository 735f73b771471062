"""A node of a model as the functions see it that read its op."""

import math

import numpy as np

from .errors import NotKnown, malformed, unsupported
from .types import check_computed
from .values import inputs_of

_MAX_LIST = 2**16  # numbers in a list of sizes, axes or positions


class Node:
    """What every format has: the op's name, the builder `b`, and the place for errors.

    `part` is the format's word for what a node is given besides values.
    """

    part = "attribute"

    def __init__(self, op, builder):
        self.op = op
        self.b = builder

    @property
    def where(self):
        return self.op

    def error(self, message, part=None):
        """What is not supported; the caller raises it."""
        return unsupported(self.where, f"{self.part} '{part}': {message}" if part else message)

    def malformed(self, message):
        return malformed(self.where, message)

    def not_known(self, message, inputs=()):
        return NotKnown(self.where, message, inputs)

    def axis(self, axis, rank, name="axis"):
        """An axis that may count from the end, counted from the front."""
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise self.malformed(f"{self.part} '{name}': axis {axis} of a value of rank {rank}")
        return axis % rank if rank else 0

    def array(self, value, what):
        """A value that has to be known while the model is read."""
        if value.array is not None:
            return value.array
        given = f"give values={{{sorted(value.inputs)[0]!r}: ...}} or `shapes`" if value.inputs else "it is computed"
        raise self.not_known(f"{what} is not known while the model is read: {given}", value.inputs)

    def integers(self, value, what):
        """A known vector of integers as a list."""
        array = self.array(value, what)
        if array.dtype.kind not in "iu" or array.ndim > 1 or array.size > _MAX_LIST:
            raise self.malformed(f"{what} is {value!r}")
        return [int(one) for one in array.reshape(-1)]

    def sizes(self, value, what):
        """A vector of sizes, integers or sz.Size, as a list."""
        if value.sizes is not None:
            return value.sizes if isinstance(value.sizes, list) else [value.sizes]
        return self.integers(value, what)

    def number(self, value, what):
        array = self.array(value, what)
        if array.size != 1:
            raise self.malformed(f"{what} is {value!r}, not one number")
        return array.reshape(()).item()

    def static(self, value, what="x"):
        """A value's sizes, which have to be known."""
        if value.is_static:
            return value.shape
        raise self.not_known(f"{what} is {value!r}: give `shapes`", value.inputs)

    def spatial(self, value):
        """The sizes of the axes after batch and channels, which have to be known."""
        return tuple(self.known_size(value, axis) for axis in range(2, value.rank))

    def known_size(self, value, axis):
        size = value.shape[axis]
        if isinstance(size, int):
            return size
        raise self.not_known(f"axis {axis} of {value!r}: give `shapes`", value.inputs)

    def arange(self, *sizes):
        """0, 1, ...: as many numbers as the product of sizes, which a model may have made large."""
        check_computed(self.where, sizes)
        return np.arange(math.prod(sizes))

    def known_like(self, array, *values):
        return self.b.known(array, inputs=inputs_of(values))

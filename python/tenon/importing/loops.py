"""A loop over the first axis of values, as one function of the program."""

from .. import build, ops
from .values import Value, inputs_of


def scan(b, body, carry, stacks, steps):
    """(the last carry, the outputs of all steps, stacked): carry, outputs = body(carry, slices) for each step.

    All are lists of values; `steps`, the size of the stacks' first axis, is known, other sizes need not be.
    """
    inputs = inputs_of([*carry, *stacks])
    held = len(carry)
    tensors = [b.tensor(one) for one in stacks]

    def step(index, now):
        slices = [Value(b, tensor=ops.select(one, index), shape=stack.shape[1:])
                  for one, stack in zip(tensors, stacks)]
        return body([Value(b, tensor=one, shape=before.shape) for one, before in zip(now, carry)], slices)

    with b.graph:
        first = ops.full((), 0, "i64")
    example = step(first, [b.tensor(one) for one in carry])[1]
    empty = [b.full((steps, *one.shape), 0, one.dtype) for one in example]
    start = [b.tensor(one) for one in (*carry, *empty)]

    def whole(index, *values):
        after, outputs = step(index, values[:held])
        stacked = (ops.update_slice(one, index, b.tensor(made)) for one, made in zip(values[held:], outputs))
        return *(b.tensor(one) for one in after), *stacked

    with b.body():
        last = build._loop(tuple(start), whole, steps)
    shapes = [one.shape for one in (*carry, *empty)]
    made = [Value(b, tensor=one, inputs=inputs, shape=shape) for one, shape in zip(last, shapes)]
    return made[:held], made[held:]

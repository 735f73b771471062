"""If, Loop and Scan, and sequences, whose lengths are known while a model is read."""

import numpy as np

from .. import build, ops
from ..importing import loops
from ..importing.shaping import sliced
from ..importing.types import check_computed
from ..importing.values import Value, inputs_of
from .node import op
from .types import tenon_type
from .importer import Scope

_UNROLLED = 16     # steps of a Scan up to which its body is written out
_MAX_STEPS = 2**12  # of a loop that is written out
_MOST_STEPS = 2**20  # of a loop of the program
_ENDLESS = 2**31 - 1  # iterations that mean: as long as the condition holds


def _run(n, graph, inputs):
    """A subgraph's outputs for these values of its inputs."""
    scope = Scope(n.scope.opsets, n.scope)
    if len(graph.input) != len(inputs):
        raise n.malformed(f"a body of {len(graph.input)} inputs for {len(inputs)} values")
    for one, value in zip(graph.input, inputs):
        scope.values[one.name] = value
    return n.importer.run(graph, scope)


@op("If")
def branch(n, condition):
    yes, no = n.subgraph("then_branch"), n.subgraph("else_branch")
    if condition.is_known:
        if condition.array.size != 1:
            raise n.malformed(f"a condition of {condition!r}")
        return tuple(_run(n, yes if condition.array.reshape(()) else no, []))
    used = []

    def tensors(graph):
        made = _run(n, graph, [])
        used.extend(one for one in made if isinstance(one, Value))
        if not all(isinstance(one, Value) for one in made):
            raise n.error("a sequence as a result", "then_branch")
        return tuple(n.b.tensor(one) for one in made)

    predicate = n.b.tensor(n.b.reshape_to(condition, ()))
    _same_types(n, condition, tensors(yes), tensors(no))
    with n.b.body():
        made = build.cond(predicate, lambda: tensors(yes), lambda: tensors(no))
    inputs = inputs_of([condition, *used])
    return tuple(Value(n.b, tensor=one, inputs=inputs) for one in made)


def _same_types(n, condition, yes, no):
    for one, other in zip(yes, no):
        if one.type != other.type or not one.type.is_static:
            raise n.not_known(f"results of {one.type} and {other.type}: where the condition is computed, they need one "
                              "type with sizes that are known; give `shapes`, or `values` of the condition's inputs",
                              condition.inputs)


@op("Loop")
def loop(n, limit, going, *carried):
    body = n.subgraph("body")
    gathered = len(body.output) - 1 - len(carried)
    if gathered < 0:
        raise n.malformed(f"a body of {len(body.output)} outputs for {len(carried)} carried values")
    known = (limit is None or limit.is_known) and (going is None or going.is_known)
    if known or gathered:
        return _written_out(n, body, limit, going, carried, gathered)
    return _while(n, body, limit, going, carried)


def _written_out(n, body, limit, going, carried, gathered):
    count = None if limit is None else int(n.number(limit, "the number of iterations"))
    on = True if going is None else bool(n.number(going, "the condition"))
    if not gathered and count is not None and _MAX_STEPS < count < _ENDLESS:
        return _while(n, body, limit, going, carried)
    values, stacks, step = list(carried), [[] for _ in range(gathered)], 0
    while on and (count is None or step < count):
        if step >= _MAX_STEPS:
            if not gathered:
                return _while(n, body, limit, going, carried)
            raise n.error(f"more than {_MAX_STEPS} iterations that are written out")
        made = _run(n, body, [n.b.known(np.int64(step)), n.b.known(np.bool_(True)), *values])
        if not made[0].is_known and not gathered:
            return _while(n, body, limit, going, carried)
        on = bool(n.number(made[0], "the condition after an iteration, which decides the results' sizes,"))
        values = made[1:1 + len(values)]
        for stack, one in zip(stacks, made[1 + len(values):]):
            stack.append(one)
        step += 1
    return (*values, *(_stacked(n, stack, body.output[1 + len(values) + i]) for i, stack in enumerate(stacks)))


def _stacked(n, stack, output):
    if stack:
        return n.b.concat([n.b.unsqueeze(one, 0) for one in stack], 0)
    kind = output.type.tensor_type
    return n.b.full((0, *(d.dim_value for d in kind.shape.dim)), 0, tenon_type(kind.elem_type, n.where))


def _while(n, body, limit, going, carried):
    """A loop whose condition the program computes."""
    if not all(isinstance(one, Value) for one in carried):
        raise n.error("a sequence is carried", "body")
    if limit is not None and limit.is_known and _MOST_STEPS < n.number(limit, "the number of iterations") < _ENDLESS:
        raise n.error(f"more than {_MOST_STEPS} iterations")
    start = n.b.tensor(n.b.known(np.int64(0)))
    first = n.b.known(np.bool_(True)) if going is None else n.b.reshape_to(going, ())
    last = None if limit is None else n.b.tensor(n.b.reshape_to(limit, ()))
    seen = []

    def condition(step, on, *values):
        return on if last is None else ops.logical_and(on, ops.lt(step, last))

    def one_step(step, on, *values):
        inside = [Value(n.b, tensor=one) for one in (step, on, *values)]
        made = _run(n, body, inside)
        seen.extend(made)
        for before, after in zip(inside[2:], made[1:]):
            if after.dtype != before.dtype or after.shape != before.shape:
                raise n.error(f"{before!r} becomes {after!r}: what a loop carries keeps its sizes", "body")
        return ops.add(step, 1), *(n.b.tensor(one) for one in made)

    state = (start, n.b.tensor(first), *(n.b.tensor(one) for one in carried))
    with n.b.body():
        made = build.while_loop(condition, one_step, state, limit=_MOST_STEPS)
    inputs = inputs_of([one for one in (limit, going, *carried) if one is not None])
    return tuple(Value(n.b, tensor=one, inputs=inputs) for one in made[2:])


@op("Scan")
def scan(n, *values):
    body, count = n.subgraph("body"), n.attribute("num_scan_inputs")
    if not 1 <= count <= len(values):
        raise n.malformed(f"attribute 'num_scan_inputs': {count} of {len(values)}")
    if n.version < 9:
        return _scan_of_rows(n, body, values, count)
    states, inputs = values[:-count], values[-count:]
    outputs = len(body.output) - len(states)
    lists = {name: n.attribute(name, [0] * size) for name, size in
             (("scan_input_axes", count), ("scan_input_directions", count), ("scan_output_axes", outputs),
              ("scan_output_directions", outputs))}
    if any(len(one) != size for one, size in zip(lists.values(), (count, count, outputs, outputs))):
        raise n.malformed(f"attributes {lists} for {count} inputs and {outputs} outputs")
    inputs = [_first(n, one, n.axis(axis, one.rank, "scan_input_axes")) for one, axis in
              zip(inputs, lists["scan_input_axes"])]
    inputs = [_turned(n, one) if turned else one for one, turned in zip(inputs, lists["scan_input_directions"])]
    last, stacks = _scanned(n, body, list(states), inputs)
    stacks = [_turned(n, one) if turned else one for one, turned in zip(stacks, lists["scan_output_directions"])]
    stacks = [_moved(n, one, n.axis(axis, one.rank, "scan_output_axes")) for one, axis in
              zip(stacks, lists["scan_output_axes"])]
    return (*last, *stacks)


def _scan_of_rows(n, body, values, count):
    """Opset 8: the first axis of everything numbers the rows of a batch."""
    if values[0] is not None:
        raise n.error("sequence_lens of a batch")
    states, inputs = values[1:-count], values[-count:]
    if any(n.attribute("directions", [0] * count)):
        raise n.error("backwards, of a batch", "directions")
    made = []
    for row in range(n.known_size(inputs[0], 0)):
        at = [n.b.squeeze(sliced(n, one, 0, row, row + 1, 1), axis=0) for one in (*states, *inputs)]
        last, stacks = _scanned(n, body, at[:len(states)], at[len(states):])
        made.append([*last, *stacks])
    return tuple(n.b.concat([n.b.unsqueeze(one, 0) for one in column], 0) for column in zip(*made))


def _scanned(n, body, states, inputs):
    """The last states, and the outputs of all steps, stacked."""
    steps = n.known_size(inputs[0], 0)
    if any(one.shape[0] != steps for one in inputs):
        raise n.malformed(f"axes of different sizes: {inputs}")
    if steps <= _UNROLLED or not states or all(one.is_known for one in (*states, *inputs)):
        return _scan_written_out(n, body, states, inputs, steps)

    def one_step(carry, slices):
        made = _run(n, body, [*carry, *slices])
        return made[:len(states)], made[len(states):]

    return loops.scan(n.b, one_step, states, inputs, steps)


def _scan_written_out(n, body, states, inputs, steps):
    stacks = [[] for _ in range(len(body.output) - len(states))]
    for step in range(steps):
        slices = [n.b.squeeze(sliced(n, one, 0, step, step + 1, 1), axis=0) for one in inputs]
        made = _run(n, body, [*states, *slices])
        states = made[:len(states)]
        for stack, one in zip(stacks, made[len(states):]):
            stack.append(one)
    return states, [_stacked(n, stack, body.output[len(states) + i]) for i, stack in enumerate(stacks)]


def _first(n, x, axis):
    return x if axis == 0 else n.b.permute(x, [axis, *(i for i in range(x.rank) if i != axis)])


def _moved(n, x, axis):
    """The first axis at another place."""
    order = list(range(1, x.rank))
    order.insert(axis, 0)
    return x if axis == 0 else n.b.permute(x, order)


def _turned(n, x):
    return sliced(n, x, 0, -1, None, -1)


# Sequences: lists of values.


@op("SequenceConstruct")
def sequence(n, *values):
    return list(values)


@op("SequenceEmpty")
def sequence_empty(n):
    return []


@op("SequenceLength")
def sequence_length(n, values):
    return n.b.known(np.int64(len(values)))


def _place(n, values, at, room):
    place = int(n.number(at, "the position"))
    if not -room <= place < max(room, 1):
        raise n.malformed(f"position {place} of a sequence of {len(values)}")
    return place + room if place < 0 else place


@op("SequenceAt")
def sequence_at(n, values, at):
    return values[_place(n, values, at, len(values))]


@op("SequenceInsert")
def sequence_insert(n, values, value, at=None):
    place = len(values) if at is None else int(n.number(at, "the position"))
    if not -len(values) <= place <= len(values):
        raise n.malformed(f"position {place} of a sequence of {len(values)}")
    place = place + len(values) if place < 0 else place
    return [*values[:place], value, *values[place:]]


@op("SequenceErase")
def sequence_erase(n, values, at=None):
    place = len(values) - 1 if at is None else _place(n, values, at, len(values))
    return [*values[:place], *values[place + 1:]]


@op("ConcatFromSequence")
def concat_from_sequence(n, values):
    axis = n.attribute("axis")
    if not values:
        raise n.malformed("no values")
    if n.attribute("new_axis", 0):
        axis = n.axis(axis, values[0].rank + 1)
        values = [n.b.unsqueeze(one, axis) for one in values]
    return n.b.concat(values, n.axis(axis, values[0].rank))


@op("SequenceMap")
def sequence_map(n, first, *others):
    body = n.subgraph("body")
    rows = [_run(n, body, [one, *(other[i] if isinstance(other, list) else other for other in others)])
            for i, one in enumerate(first)]
    return tuple([row[i] for row in rows] for i in range(len(body.output)))


@op("SplitToSequence")
def split_to_sequence(n, x, parts=None):
    axis = n.axis(n.attribute("axis", 0), x.rank)
    whole = n.known_size(x, axis)
    if parts is None:
        check_computed(n.where, [whole])
        sizes = [1] * whole
    elif parts.rank == 0:
        step = int(n.number(parts, "the split"))
        if step < 1:
            raise n.malformed(f"parts of {step}")
        check_computed(n.where, [whole // step])
        sizes = [min(step, whole - at) for at in range(0, whole, step)]
    else:
        sizes = n.integers(parts, "the split")
    if sum(sizes) != whole or min(sizes, default=0) < 0:
        raise n.malformed(f"parts of {sizes} for axis {axis} of {x!r}")
    made, begin = [], 0
    for size in sizes:
        part = sliced(n, x, axis, begin, begin + size, 1)
        made.append(part if parts is not None or n.attribute("keepdims", 1) else n.b.squeeze(part, axis=axis))
        begin += size
    return made


@op("OptionalHasElement")
def has_element(n, x=None):
    return n.b.known(np.bool_(x is not None))


@op("Optional", "OptionalGetElement")
def element(n, x=None):
    if x is None:
        raise n.error("an optional without an element")
    return x

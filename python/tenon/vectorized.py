"""Functions of one example for all examples of a batch: vmap.

The function is recorded for one example, and its program is recorded again beside the caller's tensors with one more
axis, the first one, in each value that depends on an example. An op's rule says how (_RULES, by families); an op without
one runs in a loop over the examples.
"""

import functools

from . import _tenon, ops
from .build import Graph, _loop, _recorded, scan
from .errors import Error
from .importing.errors import wrong_call
from .outer_tensors import holds_tensors, with_outer_tensors
from .programs import programs_of
from .structures import WORDS, argument_names, filled, form_of

_ops = _tenon.all_ops()


def _ir():
    """tenon.ir, read when it is used first: type stubs are written without numpy, which it needs."""
    from . import ir

    return ir


def vmap(function, in_axes=0, out_axes=0):
    """A function that is applied to every example of arrays that have one more axis, and returns stacked results.

        norms = tenon.vmap(lambda x: ops.sum(x * x))(rows)
        of_each = tenon.vmap(tenon.grad(loss), in_axes=(None, 0, 0))(weights, x, y)     # gradients of each example

    `in_axes` is the axis of the examples in each argument: an integer, None for an argument that is the same for all, a
    tuple with one for each argument, or structures of them; `out_axes` is where it goes in the results. Arguments by name
    have their examples on axis 0. The whole runs as one program, in which products, norms, convolutions and most other
    ops take all examples at once; ops that have no such form run in a loop over them, and the function's `looped` says
    which these were when it was recorded last. A loop that its values end runs until the last example has ended,
    and those that ended before repeat what another one does.

    In a function that is itself recorded, `function` may use tensors from around it that are variables of that function,
    or in dicts, lists, tuples and dataclasses there; those that it finds otherwise, such as attributes of objects, are
    given as arguments (`in_axes=None`). The number of examples may be a word; the other sizes are known.
    """
    if not callable(function):
        raise TypeError(f"vmap: {type(function).__name__} is no function")
    looped = set()

    @functools.wraps(function)
    def mapped(*arguments, **named):
        axes = _one_for_each(in_axes, arguments)
        leaves, forms, places = [], [], []
        for argument, axis in zip(arguments, axes):
            first = len(leaves)
            forms.append(form_of(argument, leaves, WORDS))
            places += _axes_of_leaves(argument, axis, len(leaves) - first)
        words = tuple((word, form_of(one, leaves, WORDS)) for word, one in named.items())
        places += [0] * (len(leaves) - len(places))
        leaves = list(_recorded(leaves))
        size = _size_of(leaves, places)
        leaves = [one if axis is None else _moved(one, axis, 0) for one, axis in zip(leaves, places)]
        outer = []
        with_outer = with_outer_tensors(function, outer, {})
        of_outer = ("sequence", tuple, tuple(("leaf", len(leaves) + i) for i in range(len(outer))))
        leaves, places = [*leaves, *outer], [*places, *([None] * len(outer))]
        program, after = _example(function, forms, words, leaves, places, with_outer, of_outer)
        looped.clear()
        numbers = None if isinstance(size, int) else ops.iota(next(one for one, axis in zip(leaves, places)
                                                                   if axis is not None), axis=0)
        examples = Examples(program, size, numbers, looped)
        made = examples.results([(one, axis is not None) for one, axis in zip(leaves, places)])
        out = _axes_of_leaves(filled(after, lambda i: made[i][0]), out_axes, len(made))
        results = []
        for (tensor, is_batched), axis in zip(made, out):
            if axis is not None and not is_batched:
                tensor = examples.stretched(tensor)
            elif axis is None and is_batched:
                raise wrong_call("vmap", "a result that depends on the examples has out_axes None")
            results.append(tensor if axis is None else _moved(tensor, 0, axis))
        return filled(after, results.__getitem__)

    run = run_or_recorded(mapped, function)
    run.looped = looped
    return run


def run_or_recorded(applied, function):
    """`applied`, which calls the function, as one program; in a graph, where the function holds tensors of that."""
    program = programs_of(applied)

    @functools.wraps(function)
    def run(*arguments, **named):
        return (applied if holds_tensors(function) else program)(*arguments, **named)

    return run


def _one_for_each(axes, arguments):
    """The axes of each argument."""
    if not isinstance(axes, (tuple, list)):
        return (axes,) * len(arguments)
    if len(axes) != len(arguments):
        raise wrong_call("vmap", f"in_axes={axes!r} for {len(arguments)} arguments")
    return tuple(axes)


def _axes_of_leaves(value, axes, count):
    """An axis, or None, for each leaf of a value: the same for all, or in its structure."""
    if axes is None or isinstance(axes, int):
        return [axes] * count
    found = []

    def add(one, axis):
        if axis is None or isinstance(axis, int):
            leaves = []
            form_of(one, leaves, WORDS)
            found.extend([axis] * len(leaves))
        elif isinstance(axis, dict) and isinstance(one, dict) and axis.keys() == one.keys():
            for key in one:
                add(one[key], axis[key])
        elif isinstance(axis, (tuple, list)) and isinstance(one, (tuple, list)) and len(axis) == len(one):
            for each, of_each in zip(one, axis):
                add(each, of_each)
        else:
            raise wrong_call("vmap", f"axes {axis!r} do not fit the structure of what they are of")

    add(value, axes)
    return found


def _size_of(leaves, places):
    sizes = set()
    for one, axis in zip(leaves, places):
        if axis is None:
            continue
        if not -one.ndim <= axis < one.ndim:
            raise wrong_call("vmap", f"axis {axis} of examples, of {one.type!r}")
        sizes.add(one.shape[axis])
    if len(sizes) != 1 or None in sizes:
        raise wrong_call("vmap", "no argument has examples" if not sizes else
                         f"examples on axes of sizes {sorted(map(str, sizes))}, which are not one")
    return sizes.pop()


def _moved(x, source, target):
    source, target = source % x.ndim, target % x.ndim
    order = [i for i in range(x.ndim) if i != source]
    order.insert(target, source)
    return x if source == target else _ops["permute"](x, order=order)


def _example(function, forms, words, leaves, places, with_outer, of_outer):
    """The program of the function of one example, and the structure of what it returns."""
    with Graph() as graph:
        names = argument_names(function, forms, words)
        names += [""] * (len(leaves) - len(names))
        tensors = []
        for name, one, axis in zip(names, leaves, places):
            sizes = one.shape if axis is None else one.shape[1:]
            tensors.append(graph.input(name, f"{one.dtype.name}[{', '.join(map(str, sizes))}]"))
        try:
            outer = filled(of_outer, tensors.__getitem__)
            of_example = with_outer(outer) if with_outer else function
            made = of_example(*[filled(form, tensors.__getitem__) for form in forms],
                              **{word: filled(form, tensors.__getitem__) for word, form in words})
            found = []
            after = form_of(made, found, WORDS)
            if not found:
                raise TypeError(f"vmap: {getattr(function, '__name__', 'the function')} returns no array")
            results = _recorded(found)
        except Error as error:
            if error.code != "ContextMismatch":
                raise
            raise type(error)(error.code, error.number, error.where, f"{error.message}; a tensor that a function given to "
                              "vmap finds elsewhere than in its variables is an argument of it, with in_axes=None") from None
        return graph.program(results), after


class Examples:
    """The recording of a program for several examples. A value is (tensor, whether its first axis is the examples').
    `size` is their number, or a word, with `numbers` then a tensor of that size."""

    def __init__(self, program, size, numbers, looped):
        self.size, self.numbers, self.looped = size, numbers, looped
        self.program = _ir().parse(str(program)).check()
        self.arrays = program.folded
        self.constants = {}

    def results(self, arguments):
        return self._run(self.program.main, arguments)

    def _run(self, function, arguments):
        values = dict(zip((one.name for one in function.parameters), arguments))
        types = {name: one.type for name, one in function.values.items()}
        for step in function.body:
            values[step.result.name] = self._step(step, values, types)
        return [values[name] for name in function.results]

    def _step(self, step, values, types):
        if step.kind == "scope":
            return None
        if step.kind == "const":
            return self._constant(step.text), False
        operands = [values[name] for name in step.operands]
        if step.kind == "pack":
            return operands
        if step.kind == "item":
            return operands[0][step.index]
        if step.kind == "call":
            made = self._run(self.program[step.function], operands)
            return made if step.result.kind == "tuple" else made[0]
        if step.kind == "repeat":
            return self._repeat(step, operands)
        return self._op(step, operands, [types[name] for name in step.operands])

    def _constant(self, name):
        if name not in self.arrays:
            raise wrong_call("vmap", f"the function has a weight '{name}' that is no array")
        if name not in self.constants:
            self.constants[name] = _recorded((self.arrays[name],))[0]
        return self.constants[name]

    def _op(self, step, operands, types):
        name, attributes = step.op, step.attributes
        op, spec = _ops.get(name), _ir().schema.OPS.get(name)
        if op is None or spec.takes_objects or any(isinstance(one, list) for one in operands):
            raise wrong_call("vmap", f"{name} cannot be applied to several examples")
        flags = [flag for _, flag in operands]
        if not any(flags):
            return op(*(one for one, _ in operands), **attributes), False
        at = Use(self, name, [one for one, _ in operands], flags, [len(one.dims) for one in types], types,
                 dict(attributes), step.result.type)
        rule = _RULES.get(name, _pointwise if spec.pointwise else None)
        made = rule(at) if rule else None
        if made is None:
            self.looped.add(name)
            made = self._in_turn(at)
        return made if isinstance(made, tuple) else (made, True)

    def _in_turn(self, at):
        """The op of one example after the other."""
        stacks = tuple(one for one, flag in zip(at.operands, at.flags) if flag)

        def body(nothing, *slices):
            left = iter(slices)
            given = [next(left) if flag else one for one, flag in zip(at.operands, at.flags)]
            return nothing, _ops[at.name](*given, **at.attributes)

        return scan(body, _recorded((0.0,), stacks)[0], stacks)[1]

    def stretched(self, x):
        """A value that is the same for all examples, for each of them."""
        if self.numbers is None:
            return _ops["broadcast_to"](x, dims=[self.size, *([-1] * x.ndim)])
        return _ops["where"](_behind(self.numbers >= 0, x.ndim), x, x)

    def numbered(self, step, dtype):
        """0, step, 2 step, ... for the examples."""
        if self.numbers is None:
            return ops.iota(size=self.size, step=step, dtype=dtype)
        return ops.iota(self.numbers, axis=0, step=step, dtype=dtype)

    # Loops

    def _flags_after(self, function, flags):
        """Which results depend on the examples."""
        known = dict(zip((one.name for one in function.parameters), flags))
        for step in function.body:
            of_operands = [known.get(name, False) for name in step.operands]
            if step.kind == "pack":
                known[step.result.name] = of_operands
            elif step.kind == "item":
                known[step.result.name] = of_operands[0][step.index]
            elif step.kind == "call":
                made = self._flags_after(self.program[step.function], of_operands)
                known[step.result.name] = made if step.result.kind == "tuple" else made[0]
            elif step.kind == "repeat":
                known[step.result.name] = self._flags_of_loop(step, of_operands)
            else:
                known[step.result.name] = step.op != "iota" and any(of_operands)
        return [known[name] for name in function.results]

    def _flags_of_loop(self, step, of_operands):
        carry, _, *outer = of_operands
        carry, body = list(carry), self.program[step.function]
        while True:
            after = self._flags_after(body, [*carry, False, False, *outer])
            joined = [a or b for a, b in zip(carry, after)]
            if step.condition >= 0 and joined[step.condition]:
                joined = [True] * len(joined)
            if joined == carry:
                return carry
            carry = joined

    def _is_total(self, function):
        """Whether a function takes all values: no op of it refuses some, as gathers do."""
        known = _ir().schema.OPS
        for step in function.body:
            if step.kind in ("call", "repeat"):
                if not self._is_total(self.program[step.function]):
                    return False
            elif step.kind not in ("scope", "const", "pack", "item") and \
                    not (step.op in known and known[step.op].pointwise or step.op in _TOTAL):
                return False
        return True

    def _repeat(self, step, operands):
        carry, _, *outer = operands
        body = self.program[step.function]
        if any(one.kind == "const" and one.operands for one in body.body):
            raise wrong_call("vmap", "the function has layers with weights of a file")
        flags = self._flags_of_loop(step, [[flag for _, flag in carry], False, *(flag for _, flag in outer)])
        first = [self.stretched(one) if wanted and not flag else one
                 for (one, flag), wanted in zip(carry, flags)]

        def after(index, now, around=outer):
            index = index + step.first if step.first else index
            made = self._run(body, [*zip(now, flags), (index, False), (None, False), *around])
            return [self.stretched(one) if wanted and not flag else one for (one, flag), wanted in zip(made, flags)]

        if step.condition < 0 or not flags[step.condition]:
            last = _loop(tuple(first), lambda index, *now: tuple(after(index, now)), step.count, step.condition)
            return list(zip(last, flags))

        is_total = self._is_total(body)

        def goes_on(index, _, *now):
            going = now[step.condition]
            if is_total:
                there = after(index, now)
            else:
                place = _ops["argmax"](going.cast("u8"), axis=0)
                there = after(index, [_where_going(going, place, one) for one in now],
                              [(_where_going(going, place, one) if flag else one, flag) for one, flag in outer])
            made = [_ops["where"](_behind(going, new.ndim - 1), new, old) for new, old in zip(there, now)]
            return ops.any(made[step.condition]), *made

        last = _loop((ops.any(first[step.condition]), *first), goes_on, step.count, 0)[1:]
        return list(zip(last, flags))


def _where_going(going, place, x):
    """What examples have, in the place of those that have ended what the one at `place` has: the body of a loop, or a
    branch, may refuse what it is not run for, such as an index that its condition excludes."""
    return _ops["where"](_behind(going, x.ndim - 1), x, _ops["select"](x, place))


def _behind(x, axes):
    """x with so many axes of size 1 behind it."""
    for _ in range(axes):
        x = _ops["unsqueeze"](x, axis=x.ndim)
    return x


class Use:
    """An op of one example, and the operands for all of them."""

    def __init__(self, examples, name, operands, flags, ranks, types, attributes, result):
        self.examples, self.name, self.operands, self.flags = examples, name, operands, flags
        self.ranks, self.types, self.attributes, self.result = ranks, types, attributes, result

    @property
    def size(self):
        """The number of examples, -1 where it is a word."""
        return -1 if self.examples.numbers is not None else self.examples.size

    def __call__(self, *operands, **changed):
        return _ops[self.name](*operands, **{**self.attributes, **changed})

    def batched(self, i):
        """Operand i with the axis of examples."""
        return self.operands[i] if self.flags[i] else self.examples.stretched(self.operands[i])

    def aligned(self, i, rank):
        """Operand i as numpy's rules broadcast it in an op of `rank` axes."""
        x = self.operands[i]
        for _ in range(rank - self.ranks[i] if self.flags[i] else 0):
            x = _ops["unsqueeze"](x, axis=1)
        return x

    def only_first(self):
        return not any(self.flags[1:])


def _pointwise(at):
    rank = max(at.ranks)
    return at(*(at.aligned(i, rank) for i in range(len(at.operands))))


def _same(at):
    """Ops that take any number of leading axes, alike in all operands."""
    return at(*(at.batched(i) for i in range(len(at.operands))))


def _stacks_of_matrices(at):
    """The same, where matrices of one example do not broadcast."""
    return _same(at) if len(set(at.ranks)) == 1 else None


def _axis(at):
    return at(at.operands[0], axis=at.attributes["axis"] + 1)


def _axes(at):
    return at(at.operands[0], axes=[axis + 1 for axis in at.attributes["axes"]])


def _permute(at):
    return at(at.operands[0], order=[0, *(axis + 1 for axis in at.attributes["order"])])


def _known(at):
    return all(isinstance(size, int) for size in at.result.dims)


def _reshape(at):
    if not _known(at):
        return None
    if not at.flags[0]:  # to the sizes of what depends on the examples
        return _ops["reshape"](at.operands[0], dims=list(at.result.dims)), False
    return _ops["reshape"](at.operands[0], dims=[at.size, *at.result.dims])


def _broadcast_to(at):
    if not _known(at):
        return None
    if not at.flags[0]:
        return _ops["broadcast_to"](at.operands[0], dims=list(at.result.dims)), False
    return _ops["broadcast_to"](at.aligned(0, len(at.result.dims)), dims=[-1, *at.result.dims])


def _concat(at):
    return at(*(at.batched(i) for i in range(len(at.operands))), axis=at.attributes["axis"] + 1)


def _pad(at):
    return at(at.operands[0], before=[0, *at.attributes["before"]], after=[0, *at.attributes["after"]])


def _along(at):
    """take_along and scatter, whose operands have one rank."""
    return at(*(at.batched(i) for i in range(len(at.operands))), axis=at.attributes["axis"] + 1)


def _iota(at):
    return at(at.operands[0], axis=at.attributes["axis"] + 1), False


def _gathered(at, x, index, axis, index_rank, flags):
    """numpy.take of one example along an axis."""
    if not flags[1]:
        return _ops["gather"](x, index, axis=axis + 1)
    if not flags[0]:
        made = _ops["gather"](x, index, axis=axis)
        return _moved(made, axis, 0)
    size = x.shape[axis + 1]
    if not isinstance(size, int):
        return None
    x = _ops["merge_axes"](_moved(x, axis + 1, 1), axis=0, count=2)  # [examples * size, the other axes]
    start = at.examples.numbered(size, "i64")
    index = index if index.dtype.name == "i64" else index.cast("i64")
    index = _ops["gather"](_ops["iota"](size=size, dtype="i64"), index, axis=0)  # refuses those out of range when run
    index = index + _behind(start, index_rank)
    made = _ops["gather"](x, index, axis=0)  # [examples, index, the other axes]
    order = list(range(made.ndim))
    others, placed = order[1 + index_rank:], order[1:1 + index_rank]
    order = [0, *others[:axis], *placed, *others[axis:]]
    return made if order == sorted(order) else _ops["permute"](made, order=order)


def _gather(at):
    return _gathered(at, *at.operands, at.attributes["axis"], at.ranks[1], at.flags)


def _select(at):
    x, index = at.operands
    if not at.flags[1]:  # a view where the index is a loop's
        return _ops["select"](_moved(x, 1, 0), index)
    return _gathered(at, x, index, 0, 0, at.flags)


def _update_slice(at):
    x, index, y = at.batched(0), at.operands[1], at.batched(2)
    rest = at.types[2].dims
    if not all(isinstance(size, int) for size in rest):
        return None
    index = _behind(at.batched(1), 1 + len(rest))
    index = _ops["broadcast_to"](index, dims=[-1, 1, *rest])
    return _ops["scatter"](x, index, _ops["unsqueeze"](y, axis=1), axis=1)  # in place where nothing else needs x


def _embedding(at):
    ids, table = at.operands
    if not at.flags[1]:
        return at(ids, table)
    is_plain = at.types[1].dtype == at.attributes["dtype"]
    return _gathered(at, table, ids, 0, at.ranks[0], at.flags[::-1]) if is_plain else None


def _searchsorted(at):
    if not at.flags[0] and at.ranks[0] == 1:
        return at(*at.operands)
    return _same(at) if at.ranks[0] == at.ranks[1] else None


def _product(a, b, flags, ranks):
    """numpy.matmul of one example."""
    if ranks[0] == 1:
        a = _ops["unsqueeze"](a, axis=a.ndim - 1)
    if ranks[1] == 1:
        b = _ops["unsqueeze"](b, axis=b.ndim)
    rank = max(2, *ranks)
    a, b = (_lifted(one, flag, rank - max(2, own)) for one, flag, own in zip((a, b), flags, ranks))
    made = _ops["matmul"](a, b)
    if ranks[1] == 1:
        made = _ops["squeeze"](made, axis=made.ndim - 1)
    if ranks[0] == 1:
        made = _ops["squeeze"](made, axis=made.ndim - (1 if ranks[1] == 1 else 2))
    return made


def _lifted(x, flag, axes):
    for _ in range(axes if flag else 0):
        x = _ops["unsqueeze"](x, axis=1)
    return x


def _matmul(at):
    return _product(*at.operands, at.flags, at.ranks)


def _linear(at):
    has_bias, has_residual = at.attributes["has_bias"], at.attributes["has_residual"]
    x, w = at.operands[:2]
    if at.flags[0] and not any(at.flags[1:2 + has_bias]):
        return at(*at.operands[:2 + has_bias], *([at.batched(2 + has_bias)] if has_residual else []))
    if not at.flags[1]:
        made = _ops["linear"](x, w)
    elif x.dtype != w.dtype:
        return None
    else:
        made = _product(x, _moved(w, w.ndim - 1, w.ndim - 2), at.flags[:2], at.ranks[:2])
    for i in range(2, 2 + has_bias + has_residual):
        one = _lifted(at.operands[i], at.flags[i], at.ranks[0] - at.ranks[i])
        made = made + (one if one.dtype == made.dtype else one.cast(made.dtype))
    return made


def _norm(at):
    """layer_norm and rms_norm: slices along the last axis, then a weight and a bias."""
    if at.only_first():
        return at(*at.operands)
    made = at(at.operands[0])
    for i, combine in zip(range(1, len(at.operands)), ("mul", "add")):
        one = _lifted(at.operands[i], at.flags[i], at.ranks[0] - at.ranks[i])
        made = _ops[combine](made, one if one.dtype == made.dtype else one.cast(made.dtype))
    return made


def _merged(x):
    return _ops["merge_axes"](x, axis=0, count=2)


def _apart(at, x, own):
    return _ops["split_axis"](x, axis=0, sizes=[at.size, own])


def _of_images(count):
    """Ops on images [N, C, ...], the first `count` operands of them: more of them."""
    def rule(at):
        own = at.result.dims[0]
        if any(at.flags[count:]) or not isinstance(own, int):
            return None
        return _apart(at, at(*(_merged(at.batched(i)) for i in range(count)), *at.operands[count:]), own)

    return rule


def _of_channels(at, i):
    """Operand i, [C], beside x [N, C, ...]."""
    x = _ops["unsqueeze"](at.operands[i], axis=1) if at.flags[i] else at.operands[i]
    return _behind(x, at.ranks[0] - 2)


def _group_norm(at):
    if at.only_first():
        return _of_images(1)(at)
    own = at.types[0].dims[0]
    if at.flags[0] and not isinstance(own, int):
        return None
    made = _apart(at, at(_merged(at.operands[0])), own) if at.flags[0] else at(at.operands[0])
    for i, combine in zip(range(1, len(at.operands)), ("mul", "add")):
        made = _ops[combine](made, _of_channels(at, i))
    return made


def _batch_norm(at):
    if at.only_first():
        return _of_images(1)(at)
    mean, variance = _of_channels(at, 1), _of_channels(at, 2)
    scale = _ops["rsqrt"](variance + at.attributes["eps"])
    made = (at.operands[0] - mean) * scale
    for i, combine in zip(range(3, len(at.operands)), ("mul", "add")):
        made = _ops[combine](made, _of_channels(at, i))
    return made


def _beside_channels(x):
    """[examples, n, c, ...] as [n, examples * c, ...]."""
    return _ops["merge_axes"](_moved(x, 0, 1), axis=1, count=2)


def _convolution(at):
    """More images; of filters that the examples have, groups of channels, one group an example."""
    if at.only_first():
        return _of_images(1)(at)
    channels = at.result.dims[1]
    if not isinstance(channels, int) or at.size < 0:
        return None
    filters = [_merged(at.batched(i)) for i in range(1, len(at.operands))]  # and the bias
    made = at(_beside_channels(at.batched(0)), *filters, groups=at.size * at.attributes["groups"])
    return _moved(_ops["split_axis"](made, axis=1, sizes=[at.size, channels]), 1, 0)


def _filter_gradient(at):
    """A product of windows (im2col) and gradients for each example; with groups of channels, more groups."""
    filters, groups = at.result.dims[0], at.attributes["groups"]
    if not isinstance(filters, int) or at.size < 0:
        return None
    windows = {name: at.attributes[name] for name in ("kernel", "stride", "padding", "dilation")}
    images, of_results = at.types[0].dims, at.types[1].dims
    if groups == 1 and _known(at) and _windows(images[2:], **windows) == tuple(of_results[2:]):
        columns = _ops["unfold2d"](_merged(at.batched(0)), **windows)  # [examples * n, C KH KW, H' W']
        upstream = _ops["merge_axes"](_merged(at.batched(1)), axis=2, count=2)
        made = _ops["matmul"](upstream, _moved(columns, 1, 2))  # [examples * n, O, C KH KW]
        if images[0] != 1:
            made = _ops["sum"](_apart(at, made, images[0]), axes=[1])
        return _ops["reshape"](made, dims=[at.size, *at.result.dims])
    made = at(*(_beside_channels(at.batched(i)) for i in range(2)), groups=at.size * groups)
    return _apart(at, made, filters)


def _windows(sizes, kernel, stride, padding, dilation):
    """How many windows there are along rows and columns; None where that is not known."""
    if not all(isinstance(size, int) for size in sizes):
        return None
    stride, dilation, padding = stride or (1, 1), dilation or (1, 1), padding or (0, 0, 0, 0)
    padding = padding if len(padding) == 4 else (padding[0], padding[0], padding[1], padding[1])
    spans = [sizes[i] + padding[2 * i] + padding[2 * i + 1] - dilation[i] * (kernel[i] - 1) - 1 for i in range(2)]
    return None if min(*spans, *padding) < 0 else tuple(span // step + 1 for span, step in zip(spans, stride))


def _attention(at):
    """q, k and v [B, ...] and a mask that broadcasts to [B, heads, queries, keys]: a larger B."""
    own, a = at.result.dims[0], at.attributes
    if a["has_table"] or any(at.flags[3:]) and not a["has_mask"] or not isinstance(own, int):
        return None
    more = list(at.operands[3:])
    for i in range(3, len(at.operands)):
        is_mask = a["has_mask"] and i == 3 + a["has_position"]
        is_own = at.ranks[i] == 4 and at.types[i].dims[0] != 1 if is_mask else at.ranks[i] == 1 and a["has_position"] and i == 3
        if at.flags[i] and (not is_mask or at.ranks[i] != 4 or at.types[i].dims[0] != own):
            return None
        if at.flags[i] or is_own:
            more[i - 3] = _merged(at.batched(i))
    return _apart(at, at(*(_merged(at.batched(i)) for i in range(3)), *more), own)


def _rope(at):
    """Positions [S], or [B, S]; those with sections of one example only where they are the same for all."""
    x, own, more = at.batched(0), at.types[0].dims[0], list(at.operands[2:])
    has_sections = bool(at.attributes["sections"])
    if any(at.flags[2:]) or not isinstance(own, int) or has_sections and (at.flags[1] or at.ranks[1] != 2):
        return None
    positions = at.operands[1]
    if at.flags[1] and at.ranks[1] == 1:  # [examples, S]: for each row of x
        positions = _ops["unsqueeze"](positions, axis=1)
        positions = _ops["broadcast_to"](positions, dims=[-1, own, -1])
    elif not has_sections and at.ranks[1] == 2:
        positions = at.batched(1)
    positions = _merged(positions) if positions.ndim == 3 and not has_sections else positions
    return _apart(at, at(_merged(x), positions, *more), own)


def _grouped_linear(at):
    x, w, group, *bias = at.operands
    return None if at.flags[1] or any(at.flags[3:]) else at(at.batched(0), w, at.batched(2), *bias)


def _recurrence(shared):
    """More rows, of all operands but those that rows share."""
    def rule(at):
        own = at.result.dims[0]
        if any(flag for i, flag in enumerate(at.flags) if i in shared) or not isinstance(own, int):
            return None
        return _apart(at, at(*(at.operands[i] if i in shared else _merged(at.batched(i))
                               for i in range(len(at.operands)))), own)

    return rule


_TOTAL = set("full reshape broadcast_to permute unsqueeze squeeze merge_axes concat sum mean max min any all softmax matmul "
             "linear".split())  # which take all values, as those of single elements do

_RULES = {
    **dict.fromkeys("glu stop_gradient bitcast cholesky det slogdet eigh svd lu qr resize resize_backward".split(), _same),
    **dict.fromkeys("solve triangular_solve".split(), _stacks_of_matrices),
    **dict.fromkeys("softmax log_softmax cumsum cumprod cummax cummin topk sort argsort argmax argmin fft rfft irfft slice "
                    "split_axis merge_axes unsqueeze squeeze".split(), _axis),
    **dict.fromkeys("sum mean prod max min any all".split(), _axes),
    **dict.fromkeys("max_pool2d avg_pool2d unfold2d fold2d".split(),
                    _of_images(1)),
    **dict.fromkeys("max_pool2d_backward avg_pool2d_backward grid_sample".split(), _of_images(2)),
    **dict.fromkeys("grid_sample_backward grid_sample_grid_backward".split(), _of_images(3)),
    **dict.fromkeys("take_along scatter".split(), _along),
    **dict.fromkeys("layer_norm rms_norm".split(), _norm),
    "conv2d": _convolution, "conv_transpose2d": _convolution, "conv2d_filter_backward": _filter_gradient,
    "group_norm": _group_norm, "batch_norm": _batch_norm,
    "rope": _rope, "grouped_linear": _grouped_linear, "selective_scan": _recurrence({2}), "wkv7": _recurrence(set()),
    "permute": _permute, "reshape": _reshape, "broadcast_to": _broadcast_to, "concat": _concat, "pad": _pad,
    "iota": _iota, "gather": _gather, "select": _select, "update_slice": _update_slice, "embedding": _embedding,
    "searchsorted": _searchsorted, "matmul": _matmul, "linear": _linear, "attention": _attention,
}

"""Programs from Python: a function is run once on tensors of a graph, which records what it does."""

import functools
import itertools
import pathlib

from . import _tenon, errors, ops
from .structures import filled, form_of, is_nested, leaves_like


_MOST_STEPS = 2**20  # of a scan over an axis whose size is a symbol

Graph = _tenon.Graph
Tensor = _tenon.Tensor


def _is_single(values):
    """Whether it is one value: a tensor, an array or a number, and no tuple of them."""
    return isinstance(values, (Tensor, bool, int, float, complex)) or hasattr(values, "shape")


def _tuple(values):
    if _is_single(values):
        return (values,)
    if isinstance(values, (dict, str)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{type(values).__name__} where a tensor, an array or a number is needed, or a tuple of them")
    return tuple(values)


def _spread(structure):
    """The arguments that a body gets for what a loop carries: the parts of a tuple or list, or the whole."""
    is_several = isinstance(structure, (tuple, list)) and not hasattr(structure, "_fields")
    return tuple(structure) if is_several else (structure,)


def _arrays(values):
    """Numbers and arrays of numpy as arrays."""
    return tuple(one if isinstance(one, (Tensor, _tenon.Buffer)) or not _is_single(one) else _tenon.Buffer(one)
                 for one in values)


def _recorded(values, like=()):
    """Numbers and arrays as tensors of the graph that the others are of; a number has the type of what it is like."""
    graph = next((one.graph for one in (*values, *like) if isinstance(one, Tensor)), None) or _tenon._current_graph()
    return tuple(one if isinstance(one, Tensor) else _constant(graph, one, like[i].dtype if i < len(like) else None)
                 for i, one in enumerate(values))


def _constant(graph, value, dtype):
    if isinstance(value, (bool, int, float)):
        dtype = dtype or ("bool" if isinstance(value, bool) else "i64" if isinstance(value, int) else "f32")
        with graph:
            return ops.full((), value, dtype)
    for number in itertools.count():
        try:
            return graph.capture(f"carried{number}", value)
        except errors.Error as error:
            if error.code != "DuplicateName":
                raise


def export(function, *types, name=None, budget_bytes=None, **named):
    """The program of a function.

    `types` are its arguments' types, as text ("f32[B, 64]") or tenon.Shape, by position or by name. A size that
    is a symbol may be another one at each run. The function returns a tensor, or a tuple or list of them. Arrays
    that it uses become constants of the program; weights of a file are `weight(name, type)`. A graph takes 16 MiB,
    some 50,000 ops, or `budget_bytes`.
    """
    import inspect

    called = getattr(function, "__name__", repr(function))
    for one in (*types, *named.values()):
        if not isinstance(one, (str, _tenon.Shape)):
            example = f", such as {_tenon.Buffer(one).type!r}" if hasattr(one, "shape") else \
                "; tenon.compiled() takes structures of arrays" if isinstance(one, (dict, list, tuple)) else ""
            raise TypeError(f"export: {called} is given {type(one).__name__}: types are texts or tenon.Shape{example}")
    with Graph() if budget_bytes is None else Graph(budget_bytes) as graph:
        try:
            known = inspect.signature(function).parameters
            names = [name for name, one in known.items() if one.kind != one.VAR_POSITIONAL]
        except (TypeError, ValueError):
            names = []
        arguments = [graph.input(names[i] if i < len(names) and names[i].isidentifier() else "", one)
                     for i, one in enumerate(types)]
        keywords = {key: graph.input(key, one) for key, one in named.items()}
        results = function(*arguments, **keywords)
    is_one = not isinstance(results, (tuple, list))
    results = (results,) if is_one else tuple(results)
    for one in results:
        if not is_one and isinstance(one, (tuple, list, dict)):
            raise TypeError(f"export: {called} returns a {type(one).__name__} among its results: a program's results "
                            "are tensors in one tuple or list")
        if not isinstance(one, Tensor):
            raise TypeError(f"export: {called} returns {type(one).__name__}, not a tensor of its arguments, or a tuple "
                            "or list of them")
    program = graph.program(results)
    program.name = name or getattr(function, "__name__", "model").strip("<>")
    return program


def call(program, *inputs, weights=None, **named):
    """A program's results beside tensors: a model that was read as a part of a function that is recorded.

        model = tenon.torch.load("model.pt2", optimize=False)
        parameters = {name: model.folded[name] for name in ("head.weight", "head.bias")}
        loss = tenon.value_and_grad(lambda p, x, y: ops.cross_entropy(tenon.call(model, x, weights=p), y))

    `inputs` are in the order of the program's parameters, or by their names. `weights` has tensors for constants of the
    program by their names, the program's own arrays (`program.folded`) among them; the others stay what they are. A
    tensor, or a tuple where there are several results. Types may have other sizes where the program's are symbols.
    """
    parameters = [name for name, _ in program.parameters()]
    values = dict(zip(parameters, inputs))
    for name, one in named.items():
        if name not in parameters or name in values:
            raise TypeError(f"call: the program has no input '{name}'" if name not in parameters else
                            f"call: '{name}' is given twice")
        values[name] = one
    if len(inputs) > len(parameters) or len(values) < len(parameters):
        raise TypeError(f"call: {len(inputs) + len(named)} inputs are given; the program has {parameters}")
    given = dict(weights or {})
    every = (*(values[name] for name in parameters), *given.values())
    graph = next((one.graph for one in every if isinstance(one, Tensor)), None) or _tenon._current_graph()
    if graph is None:
        raise TypeError("call: records a program beside tensors, in a function that export(), compiled() or value_and_grad()"
                        " runs; Session runs a program on arrays")
    used = set(program.constants())
    given.update((name, one) for name, one in program.folded.items() if name not in given and name in used)
    recorded = {name: one if isinstance(one, Tensor) else _captured(graph, name, one) for name, one in given.items()}
    tensors = [one if isinstance(one, Tensor) else _captured(graph, name, one)
               for name, one in ((name, values[name]) for name in parameters)]
    results = _tenon._call(graph, program, tensors, recorded)
    return results[0] if len(results) == 1 else tuple(results)


def _captured(graph, name, value):
    """An array as a constant, of another name where this one is taken."""
    for number in itertools.count():
        try:
            return graph.capture(f"{name}.{number}" if number else name, value)
        except errors.Error as error:
            if error.code != "DuplicateName":
                raise


def weight(name, type):
    """A weight of a file, by its name, in the graph that is being recorded."""
    graph = _tenon._current_graph()
    if graph is None:
        raise RuntimeError("weight(): no graph is being recorded; use it in a function that export() runs")
    return graph.constant(name, type)


def repeat(layers, carry, body):
    """carry = body(layer, index, *carry) for each layer, as one function that the program repeats.

    `layers` are structures of weights (dicts, lists, objects with attributes): their weights are those with numbers
    in their names ("blk.0.up.weight"). Layers that record the same become one function; others get their own.
    A number in the place of layers are as many without weights. `carry` is a tensor or a tuple of them, and what `body`
    returns likewise, or a structure of them (dicts, tuples, dataclasses). On arrays the layers run at once.
    """
    layers = range(layers) if isinstance(layers, int) else layers
    if is_nested(carry):
        leaves = []
        form = form_of(carry, leaves)

        def flat(layer, index, *values):
            made = body(layer, index, *_spread(filled(form, values.__getitem__)))
            return leaves_like(form, made, "repeat: the body's carry")

        return filled(form, repeat(layers, tuple(leaves), flat).__getitem__)
    single, tensors = _is_single(carry), _tuple(carry)
    if _are_arrays(tensors) and _are_arrays(leaf for layer in layers for leaf in _leaves(layer)):
        tensors = _arrays(tensors)
        for i, layer in enumerate(layers):
            tensors = _tuple(body(layer, ops.full((), i, "i64"), *tensors))
        return tensors[0] if single else tensors
    tensors = _recorded(tensors)
    recorder = _tenon._Layers(tensors, tensors[0].graph)
    for layer in layers:
        values, position = recorder.begin(_leaves(layer))
        recorder.end(_recorded(_tuple(body(layer, position, *values)), values))
    results = recorder.finish()
    return results[0] if single else tuple(results)


def _are_arrays(values):
    """Whether none is a tensor of a graph, so that what is to be done can be done at once."""
    return not any(isinstance(one, Tensor) for one in values)


def _loop(carry, body, times, condition=-1):
    """carry = body(index, *carry), `times` times; with a condition, while that item of the carry is true."""
    carry = _recorded(carry)
    recorder = _tenon._Layers(carry, carry[0].graph)
    values, position = recorder.begin([])
    recorder.end(_recorded(tuple(body(position, *values)), values), times, condition)
    return tuple(recorder.finish())


def _require_kept(before, after, what, made="the body returns"):
    """An error that names both types, where arrays or tensors that a loop or a branch returns have others than it was
    given. Sizes that are known in a run only are compared in the run."""
    if len(before) != len(after):
        raise TypeError(f"{what}: {made} {len(after)} values where there were {len(before)}")
    for i, (one, other) in enumerate(zip(before, after)):
        if not all(isinstance(x, (Tensor, _tenon.Buffer)) for x in (one, other)):
            continue
        sizes = all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in zip(one.shape, other.shape))
        if one.dtype != other.dtype or one.ndim != other.ndim or not sizes:
            raise errors.ArgumentError("ShapeMismatch", 11010, what, f"{made} {other.type!r} where value {i} was "
                                                                     f"{one.type!r}")


def while_loop(condition, body, carry, limit=2**20):
    """carry = body(*carry) while condition(*carry), a bool[], is true; at most `limit` times.

    `carry` is a tensor or a tuple of them, whose types stay, and what `body` returns likewise, or a structure of them
    (dicts, tuples, dataclasses); numbers and arrays among them become tensors. Both functions are run once, on tensors,
    and may use outer ones. On arrays the loop runs at once.
    """
    if is_nested(carry):
        leaves = []
        form = form_of(carry, leaves)
        last = while_loop(
            lambda *values: condition(*_spread(filled(form, values.__getitem__))),
            lambda *values: leaves_like(form, body(*_spread(filled(form, values.__getitem__))),
                                         "while_loop: the body's carry"),
            tuple(leaves), limit)
        return filled(form, last.__getitem__)
    single, first = _is_single(carry), _tuple(carry)
    if _are_arrays(first):
        first = _arrays(first)
        going = condition(*first)
        while not isinstance(going, Tensor) and limit and going:
            after = _tuple(body(*first))
            if not _are_arrays(after):  # of tensors that it uses: recorded
                break
            _require_kept(first, after, "while_loop")
            first, limit = after, limit - 1
            going = condition(*first)
        else:
            if not isinstance(going, Tensor):
                return first[0] if single else first
    first = _recorded(first)

    def step(_, going, *values):
        after = _recorded(_tuple(body(*values)), values)
        _require_kept(values, after, "while_loop")
        return condition(*after), *after

    last = _loop((condition(*first), *first), step, limit, 0)[1:]
    return last[0] if single else last


def cond(predicate, yes, no, empty=None, *, carry=None):
    """yes() where the predicate, a bool[], is true, else no(): only that one is computed in a run.

    Both return a tensor, a tuple of them or another structure, of the same types; `empty` may be a tuple of tensors of
    these types to begin with. Where a size has no symbol, what `yes` makes is always computed, for its size. Of a
    predicate that is known, True or an array, one is called. Neither may update a value from outside of it
    (`cache_update`, `update_slice`), but what they are given: with `carry`, a tensor, a tuple of them or another
    structure, they are yes(*carry) and no(*carry), which return values of its types.
    """
    if carry is not None:
        if empty is not None:
            raise TypeError("cond: `empty` and `carry` are both given; what is carried is there to begin with")
        return _cond_of(carry, predicate, yes, no)
    if _are_arrays([predicate]):
        return yes() if predicate else no()
    example = yes()
    if is_nested(example):
        leaves = []
        form = form_of(example, leaves)
        made = cond(predicate, lambda: leaves_like(form, yes(), "cond: what a branch returns"),
                    lambda: leaves_like(form, no(), "cond: what a branch returns"), empty)
        return filled(form, made.__getitem__)
    single = _is_single(example)
    if empty is None:
        empty = tuple(_tenon._zeros_of_type(one) for one in _recorded(_tuple(example)))

    def branch(function):
        def chosen_values(_, chosen, *values):
            made = _tuple(function())
            _require_kept(values, made, "cond", "a branch returns")
            return chosen, *made
        return chosen_values

    after_yes = _loop((predicate, *empty), branch(yes), 1, 0)
    otherwise = (ops.logical_not(predicate), *after_yes[1:])
    last = _loop(otherwise, branch(no), 1, 0)[1:]
    return last[0] if single else last


def _cond_of(carry, predicate, yes, no):
    """What one of two functions makes of a carry."""
    if is_nested(carry):
        leaves = []
        form = form_of(carry, leaves)

        def flat(branch):
            return lambda *values: leaves_like(form, branch(*_spread(filled(form, values.__getitem__))),
                                               "cond: what a branch returns")

        return filled(form, _cond_of(tuple(leaves), predicate, flat(yes), flat(no)).__getitem__)
    if _are_arrays([predicate]):
        return (yes if predicate else no)(*_tuple(carry))
    single, values = _is_single(carry), _recorded(_tuple(carry), (predicate,))
    for runs, branch in ((predicate, yes), (ops.logical_not(predicate), no)):
        def step(_, runs, *now, branch=branch):
            made = _recorded(_tuple(branch(*now)), now)
            _require_kept(now, made, "cond", "a branch returns")
            return runs, *made

        values = _loop((runs, *values), step, 1, 0)[1:]
    return values[0] if single else values


def scan(body, carry, inputs):
    """carry, outputs = body(carry, *slices) for each slice of the inputs' first axis.

    Returns the last carry and the outputs of all steps, stacked. `carry`, `inputs` and the outputs are a tensor, a
    tuple or another structure of them each (dicts, dataclasses), the outputs may be None; numbers and arrays among them
    become tensors. `body` gets a carry in the form that it has. On arrays the steps run at once. An axis whose size is
    a symbol may have 2^20 elements; a run with more fails.
    """
    single, carry_form, input_form, output_form, is_one_output = _is_single(carry), None, None, None, False
    if is_nested(carry):
        leaves = []
        carry_form, carry = form_of(carry, leaves), tuple(leaves)
    if is_nested(inputs):
        leaves = []
        input_form, inputs = form_of(inputs, leaves), tuple(leaves)
    carry, stacks = _tuple(carry), _arrays(_tuple(inputs))
    steps = stacks[0].shape[0] if stacks and stacks[0].ndim else None
    if not stacks or any(not one.ndim or one.shape[0] != steps for one in stacks) or steps is None and len(stacks) > 1:
        raise ValueError(f"scan: the first axes of {[one.type for one in stacks]} are not of one size")
    held = len(carry)

    def of_slices(slices, values):
        nonlocal output_form, is_one_output
        whole = filled(carry_form, values.__getitem__) if carry_form else values[0] if single else tuple(values)
        made = body(whole, *(_spread(filled(input_form, slices.__getitem__)) if input_form else slices))
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise TypeError(f"scan: the body returns {type(made).__name__}, not (carry, outputs)")
        if output_form or is_nested(made[1]):
            leaves = []
            output_form = output_form or form_of(made[1], leaves)
            made = made[0], leaves_like(output_form, made[1], "scan: the body's outputs")
        is_one_output = _is_single(made[1])
        if carry_form:
            return leaves_like(carry_form, made[0], "scan: the body's carry"), made[1]
        if len(_tuple(made[0])) != held:
            raise TypeError(f"scan: the body returns a carry of {len(_tuple(made[0]))} values, not {held}")
        _require_kept(values, _tuple(made[0]), "scan", "the body returns a carry of")
        return _tuple(made[0]), made[1]

    def results(now, outputs):
        """In the forms that carry and outputs have."""
        now = filled(carry_form, now.__getitem__) if carry_form else now[0] if single else now
        if output_form:
            return now, filled(output_form, outputs.__getitem__)
        return now, outputs[0] if is_one_output else outputs

    def step(index, values):
        return of_slices([ops.select(one, index) for one in stacks], values)

    if _are_arrays((*carry, *stacks)):
        if steps:
            first = step(ops.full((), 0, "i64"), _arrays(carry))
        else:
            first = of_slices([ops.zeros(one.shape[1:], one.dtype) for one in stacks], _arrays(carry))
        if _are_arrays(_tuple(first[1])):
            return results(*_scanned(step, _arrays(carry), first, steps))
    carry, stacks = _recorded(carry, stacks), _recorded(stacks, carry)
    example = step(ops.full((), 0, "i64"), carry)[1]
    rows = [_recorded((one,), carry)[0] for one in _tuple(example)]
    is_open = not isinstance(steps, int)
    empty = tuple(_open_zeros(stacks[0], one) if is_open else _tenon._zeros_of_type(one, steps) for one in rows)

    def whole(index, *values):
        now, outputs = step(index, values[:held])
        stacked = (ops.update_slice(one, index, _recorded((made,), values)[0])
                   for one, made in zip(values[held:], _tuple(outputs)))
        return *_recorded(now, values), *stacked

    if is_open:
        count = ops.iota(stacks[0], axis=0, start=1, step=0, dtype="i64").sum()
        count = count + ops.select(ops.zeros((1,), "i64"), ops.cast(count > _MOST_STEPS, dtype="i64"))  # fails beyond
        last = _loop((count > 0, *carry, *empty), lambda index, _, *values: (index + 1 < count, *whole(index, *values)),
                     _MOST_STEPS, 0)[1:]
    else:
        last = _loop((*carry, *empty), whole, steps)
    return results(last[:held], last[held:])


def _open_zeros(stack, row):
    """As many zeros of the type of `row` as `stack` has rows."""
    along = ops.iota(stack, axis=0, start=0, step=0, dtype="i64")
    for _ in range(row.ndim):
        along = ops.unsqueeze(along, axis=-1)
    zeros = _tenon._zeros_of_type(row)
    return ops.where(along != 0, zeros, zeros)


def _scanned(step, carry, first, steps):
    """`first`: what the first step made; of no steps, what one would make."""
    rows, example = [], first[1]
    if steps:
        carry = first[0]
        rows.append(_tuple(example))
    for index in range(1, steps):
        carry, outputs = step(ops.full((), index, "i64"), carry)
        rows.append(_tuple(outputs))
    stacked = tuple(ops.stack(list(column)) for column in zip(*rows)) if steps else tuple(
        ops.zeros((0, *one.shape), one.dtype) for one in _arrays(_tuple(example)))
    return carry, stacked


def compile_to(program, path):
    """Writes a program as C++ and returns the paths of what was written.

    A path that ends in .cpp gets a main() that reads inputs and weights from files; another one is a header with the
    class `Model`. Arrays that are part of the program go to a safetensors file beside it.
    """
    path = pathlib.Path(path)
    path.write_text(program.codegen(with_main=path.suffix in (".cpp", ".cc")), encoding="utf-8")
    if not program.folded:
        return [path]
    weights = path.with_suffix(".safetensors")
    _tenon.save_safetensors(weights, program.folded)
    return [path, weights]


def _leaves(layer):
    if isinstance(layer, Tensor):
        return [layer]
    if isinstance(layer, dict):
        parts = layer.values()
    elif isinstance(layer, (list, tuple)):
        parts = layer
    elif hasattr(layer, "__dict__"):
        parts = vars(layer).values()
    else:
        return []
    return [leaf for part in parts for leaf in _leaves(part)]


def block(function):
    """Marks a function of (layer, index, *carry) as one that `for` loops give to repeat(): block(f)(layers, x)."""

    @functools.wraps(function)
    def run(layers, *carry):
        return repeat(layers, carry[0] if len(carry) == 1 else carry, function)

    return run

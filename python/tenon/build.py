"""Programs from Python: a function is run once on tensors of a graph, which records what it does."""

import functools
import pathlib

from . import _tenon, ops


Graph = _tenon.Graph
Tensor = _tenon.Tensor


def _tuple(values):
    return (values,) if isinstance(values, (Tensor, _tenon.Buffer)) else tuple(values)


def export(function, *types, name=None, **named):
    """The program of a function.

    `types` are its arguments' types, as text ("f32[B, 64]") or tenon.Shape, by position or by name. A size that
    is a word may be another one at each run. The function returns a tensor, or a tuple or list of them. Arrays
    that it uses become constants of the program; weights of a file are `weight(name, type)`.
    """
    import inspect

    called = getattr(function, "__name__", repr(function))
    for one in (*types, *named.values()):
        if not isinstance(one, (str, _tenon.Shape)):
            example = f", such as {_tenon.Buffer(one).type!r}" if hasattr(one, "shape") else ""
            raise TypeError(f"export: {called} is given {type(one).__name__}: types are texts or tenon.Shape{example}")
    with Graph() as graph:
        try:
            names = [p for p in inspect.signature(function).parameters]
        except (TypeError, ValueError):
            names = []
        arguments = [graph.input(names[i] if i < len(names) and names[i].isidentifier() else "", one)
                     for i, one in enumerate(types)]
        keywords = {key: graph.input(key, one) for key, one in named.items()}
        results = function(*arguments, **keywords)
    results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
    for one in results:
        if not isinstance(one, Tensor):
            raise TypeError(f"export: {called} returns {type(one).__name__}, not a tensor of its arguments, or a tuple "
                            "or list of them")
    program = graph.program(results)
    program.name = name or getattr(function, "__name__", "model").strip("<>")
    return program


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
    returns likewise. On arrays the layers run at once.
    """
    layers = range(layers) if isinstance(layers, int) else layers
    tensors = _tuple(carry)
    if _are_arrays(tensors):
        for i, layer in enumerate(layers):
            tensors = _tuple(body(layer, ops.full((), i, "i64"), *tensors))
        return tensors[0] if isinstance(carry, _tenon.Buffer) else tensors
    recorder = _tenon._Layers(tensors, tensors[0].graph)
    for layer in layers:
        values, position = recorder.begin(_leaves(layer))
        recorder.end(_tuple(body(layer, position, *values)))
    results = recorder.finish()
    return results[0] if isinstance(carry, Tensor) else tuple(results)


def _are_arrays(values):
    """Whether none is a tensor of a graph, so that what is to be done can be done at once."""
    return not any(isinstance(one, Tensor) for one in values)


def _loop(carry, body, times, condition=-1):
    """carry = body(index, *carry), `times` times; with a condition, while that item of the carry is true."""
    recorder = _tenon._Layers(carry, carry[0].graph)
    values, position = recorder.begin([])
    recorder.end(tuple(body(position, *values)), times, condition)
    return tuple(recorder.finish())


def while_loop(condition, body, carry, limit=2**20):
    """carry = body(*carry) while condition(*carry), a bool[], is true; at most `limit` times.

    `carry` is a tensor or a tuple of them, whose types stay, and what `body` returns likewise. Both functions are run
    once, on tensors, and may use outer ones. On arrays the loop runs at once.
    """
    first = _tuple(carry)
    if _are_arrays(first) and not isinstance(going := condition(*first), Tensor):
        while limit and going:
            first, limit = _tuple(body(*first)), limit - 1
            going = condition(*first)
        return first[0] if isinstance(carry, _tenon.Buffer) else first

    def step(_, going, *values):
        after = _tuple(body(*values))
        return condition(*after), *after

    last = _loop((condition(*first), *first), step, limit, 0)[1:]
    return last[0] if isinstance(carry, Tensor) else last


def cond(predicate, yes, no, empty=None):
    """yes() where the predicate, a bool[], is true, else no(): only that one is computed in a run.

    Both return a tensor, or a tuple of them, of the same types; `empty` may be a tuple of tensors of these types to
    begin with. Where a size has no symbol, what `yes` makes is always computed, for its size. Of a predicate that is
    known, True or an array, one is called.
    """
    if _are_arrays([predicate]):
        return yes() if predicate else no()
    example = yes()
    if empty is None:
        empty = tuple(_tenon._zeros_of_type(one) for one in _tuple(example))
    after_yes = _loop((predicate, *empty), lambda _, chosen, *values: (chosen, *_tuple(yes())), 1, 0)
    otherwise = (ops.logical_not(predicate), *after_yes[1:])
    last = _loop(otherwise, lambda _, chosen, *values: (chosen, *_tuple(no())), 1, 0)[1:]
    return last[0] if isinstance(example, Tensor) else last


def scan(body, carry, inputs):
    """carry, outputs = body(carry, *slices) for each slice of the inputs' first axis, whose size is known.

    Returns the last carry and the outputs of all steps, stacked. `carry`, `inputs` and the outputs are a tensor or a
    tuple of them each; `body` gets a carry in the form that it has. On arrays the steps run at once.
    """
    stacks = _tuple(inputs)
    steps = stacks[0].shape[0]
    if not isinstance(steps, int) or any(one.shape[0] != steps for one in stacks):
        raise ValueError(f"scan: the first axes of {[one.type for one in stacks]} are not of one size that is known")
    single = isinstance(carry, (Tensor, _tenon.Buffer))
    held = len(_tuple(carry))

    def step(index, values):
        made = body(values[0] if single else tuple(values), *(ops.select(one, index) for one in stacks))
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise TypeError(f"scan: the body returns {type(made).__name__}, not (carry, outputs)")
        return _tuple(made[0]), made[1]

    if steps and _are_arrays((*_tuple(carry), *stacks)):
        return _scanned(step, _tuple(carry), steps, single)
    example = step(ops.full((), 0, "i64"), _tuple(carry))[1]
    empty = tuple(_tenon._zeros_of_type(one, steps) for one in _tuple(example))

    def whole(index, *values):
        now, outputs = step(index, values[:held])
        stacked = (ops.update_slice(one, index, made) for one, made in zip(values[held:], _tuple(outputs)))
        return *now, *stacked

    last = _loop((*_tuple(carry), *empty), whole, steps)
    now, outputs = last[:held], last[held:]
    return now[0] if single else now, outputs[0] if isinstance(example, Tensor) else outputs


def _scanned(step, carry, steps, single):
    rows = []
    for index in range(steps):
        carry, outputs = step(ops.full((), index, "i64"), carry)
        rows.append(outputs)
    is_one = not isinstance(rows[0], (tuple, list))
    stacked = ops.stack(rows) if is_one else tuple(ops.stack(list(column)) for column in zip(*rows))
    return carry[0] if single else carry, stacked


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

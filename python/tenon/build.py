"""Programs from Python: a function is run once on tensors of a graph, which records what it does."""

import functools

from . import _tenon

Graph = _tenon.Graph
Tensor = _tenon.Tensor


def export(function, *types, name=None, **named):
    """The program of a function.

    `types` are its arguments' types, as text ("f32[B, 64]") or tenon.Shape, by position or by name. A size that
    is a word may be another one at each run. The function returns a tensor, or a tuple or list of them. Arrays
    that it uses become constants of the program; weights of a file are `weight(name, type)`.
    """
    import inspect

    with Graph() as graph:
        try:
            names = [p for p in inspect.signature(function).parameters]
        except (TypeError, ValueError):
            names = []
        arguments = [graph.input(names[i] if i < len(names) and names[i].isidentifier() else "", one)
                     for i, one in enumerate(types)]
        keywords = {key: graph.input(key, one) for key, one in named.items()}
        results = function(*arguments, **keywords)
    results = [results] if isinstance(results, Tensor) else list(results)
    for one in results:
        if not isinstance(one, Tensor):
            raise TypeError(f"{function}: returns {type(one).__name__}, not a tensor of its arguments")
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
    `carry` is a tensor or a tuple of them, and what `body` returns likewise.
    """
    single = isinstance(carry, Tensor)
    tensors = [carry] if single else list(carry)
    recorder = _tenon._Layers(tensors, tensors[0].graph)
    for layer in layers:
        values, position = recorder.begin(_leaves(layer))
        results = body(layer, position, *values)
        recorder.end([results] if isinstance(results, Tensor) else list(results))
    results = recorder.finish()
    return results[0] if single else tuple(results)


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

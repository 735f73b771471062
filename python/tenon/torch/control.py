"""torch.cond, while_loop and what else takes graphs."""

from .. import build, ops
from ..importing import sizes as sz
from ..importing.values import Value, inputs_of
from .node import HANDLERS


def _higher_order(*names):
    def mark(function):
        for name in names:
            HANDLERS[f"higher_order.{name}"] = lambda n, **arguments: function(n, *arguments.values())
        return function
    return mark


@_higher_order("cond")
def cond(n, predicate, yes, no, operands):
    if isinstance(predicate, bool) or isinstance(predicate, Value) and predicate.is_known:
        chosen = predicate if isinstance(predicate, bool) else bool(n.number(predicate, "the predicate"))
        return n.importer.subgraph(yes if chosen else no, operands, n.where)
    if not isinstance(predicate, Value):
        raise n.not_known(f"the predicate {predicate!r}: give `shapes`")

    def tensors(graph):
        return tuple(_tensors(n, n.importer.subgraph(graph, operands, n.where)))

    for one, other in zip(tensors(yes), tensors(no)):
        if one.type != other.type or not one.type.is_static:
            raise n.error(f"results of {one.type} and {other.type}: they need one type with sizes that are known; "
                          "give `shapes`")
    with n.b.body():
        made = build.cond(n.b.tensor(n.b.reshape_to(predicate, ())), lambda: tensors(yes), lambda: tensors(no))
    inputs = inputs_of([predicate, *operands])
    return [Value(n.b, tensor=one, inputs=inputs) for one in made]


def _tensors(n, values):
    for one in values:
        one = n.b.of_sizes(one) if isinstance(one, (int, sz.Size)) else one
        if not isinstance(one, Value):
            raise n.error(f"a result that is {one!r}")
        tensor = n.b.tensor(one)
        if tensor.op in ("constant", "input", "full"):  # a result of a function is computed in it
            with n.b.graph:
                tensor = ops.stop_gradient(tensor)
        yield tensor


@_higher_order("while_loop")
def while_loop(n, condition, body, carried, extra=()):
    held = [n.b.of_sizes(one) if isinstance(one, (int, sz.Size)) else one for one in carried]
    if not all(isinstance(one, Value) for one in held):
        raise n.error("carries what is no tensor")
    shapes = [one.shape for one in held]

    def values(tensors):
        return [Value(n.b, tensor=one, shape=shape) for one, shape in zip(tensors, shapes)]

    def going(*tensors):
        [made] = n.importer.subgraph(condition, [*values(tensors), *extra], n.where)
        return n.b.tensor(n.b.reshape_to(n.value(made, "bool"), ()))

    def step(*tensors):
        before = values(tensors)
        made = n.importer.subgraph(body, [*before, *extra], n.where)
        for old, new in zip(before, made):
            if isinstance(new, Value) and (new.dtype != old.dtype or new.shape != old.shape):
                raise n.error(f"{old!r} becomes {new!r}: what a loop carries keeps its sizes")
        return tuple(_tensors(n, made))

    start = tuple(n.b.tensor(n.b.constant(one)) for one in held)
    with n.b.body():
        made = build.while_loop(going, step, start)
    made = (made,) if not isinstance(made, tuple) else made
    return [Value(n.b, tensor=one, shape=shape) for one, shape in zip(made, shapes)]


@_higher_order("wrap_with_set_grad_enabled", "wrap_with_autocast")
def wrapped(n, *arguments):
    graph = next(one for one in arguments if isinstance(one, dict))
    place = next(i for i, one in enumerate(arguments) if isinstance(one, dict))
    return n.importer.subgraph(graph, list(arguments[place + 1:]), n.where)

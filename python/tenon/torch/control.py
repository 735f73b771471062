"""torch.cond, while_loop, scan and what else takes graphs."""

from .. import build, errors, ops
from ..importing import loops
from ..importing import sizes as sz
from ..importing.values import Value, inputs_of
from .node import HANDLERS, refuse


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

    def values(graph):
        return [n.value(one) for one in n.importer.subgraph(graph, operands, n.where)]

    def tensors(graph):
        return tuple(_tensors(n, values(graph)))

    examples = values(yes)
    for one, other in zip(examples, values(no)):
        if one.dtype != other.dtype or one.shape != other.shape:
            raise n.not_known(f"results {one!r} and {other!r}: where the predicate is computed, they need one type and "
                              "the same sizes; give `shapes`, or `values` of the predicate's inputs", predicate.inputs)
    empty = tuple(n.b.tensor(n.b.full(one.shape, 0, one.dtype)) for one in examples)
    with n.b.body():
        try:
            made = build.cond(n.b.tensor(n.b.reshape_to(predicate, ())), lambda: tensors(yes), lambda: tensors(no),
                              empty)
        except errors.ArgumentError as error:
            if error.code != "ShapeMismatch":
                raise
            raise n.not_known(f"the sizes of the branches' results ({error.message}): give `shapes`") from error
    inputs = inputs_of([predicate, *operands])
    return [Value(n.b, tensor=one, inputs=inputs, shape=like.shape) for one, like in zip(made, examples)]


def _tensors(n, values):
    for one in values:
        one = n.b.of_sizes(one) if isinstance(one, (int, sz.Size)) else one
        if not isinstance(one, Value):
            raise n.error(f"a result that is {one!r}")
        tensor = n.b.tensor(one)
        if tensor.op in ("constant", "input", "full"):  # a result of a function is computed in it
            with n.b.graph:
                tensor = ops.permute(tensor, tuple(range(len(one.shape))))  # a view, through which gradients go
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


@_higher_order("scan")
def scan(n, combine, carried, stacks, extra=()):
    held = [n.b.constant(n.value(one)) for one in carried]
    steps = n.known_size(stacks[0], 0) if stacks else 0
    if not steps or any(one.shape[0] != steps for one in stacks):
        raise n.malformed(f"{len(stacks)} inputs of {steps} steps")

    def step(carry, slices):
        made = [n.value(one) for one in n.importer.subgraph(combine, [*carry, *slices, *extra], n.where)]
        for old, new in zip(held, made):
            if new.dtype != old.dtype or new.shape != old.shape:
                raise n.error(f"{old!r} becomes {new!r}: what a scan carries keeps its type and sizes")
        with n.b.graph:
            made = [Value(n.b, tensor=one, inputs=old.inputs, shape=old.shape)
                    for one, old in zip(_tensors(n, made), made)]
        return made[:len(held)], made[len(held):]

    last, outputs = loops.scan(n.b, step, held, stacks, steps)
    return [*last, *outputs]


_DECOMPOSED = "export with run_decompositions()"
refuse(_DECOMPOSED, "associative_scan", "map_impl", domain="higher_order")
refuse(_DECOMPOSED, "lazy_load_decompositions", "_vmap_increment_nesting", domain="torch._functorch.predispatch")


@_higher_order("wrap_with_set_grad_enabled", "wrap_with_autocast")
def wrapped(n, *arguments):
    graph = next(one for one in arguments if isinstance(one, dict))
    place = next(i for i, one in enumerate(arguments) if isinstance(one, dict))
    made = n.importer.subgraph(graph, list(arguments[place + 1:]), n.where)
    if "set_grad_enabled" not in n.op or arguments[0]:
        return made
    return [n.b.stop_gradient(one) if isinstance(one, Value) and one.tensor is not None else one for one in made]


_ASSERTIONS = {"aten._linalg_check_errors.default", "aten._assert_async.msg", "aten._assert_async.default"}


@_higher_order("with_effects")
def with_effects(n, token, operator, *_):
    """An op that is run for its effect, in order: assertions about values, which are left out."""
    if str(operator).removeprefix("torch.ops.") not in _ASSERTIONS:
        raise n.error(f"the effect of {operator}")
    return token

"""Products with Jacobians, Jacobians and Hessians of functions of arrays."""

import functools

from . import _tenon, ops
from .build import _recorded
from .importing.errors import wrong_call
from .programs import programs_of
from .structures import WORDS, filled, form_of, leaves_like
from .vectorized import holds_tensors, run_or_recorded, vmap


def _results(function, primals, what):
    """What the function makes of tensors: its structure and its leaves."""
    leaves = []
    after = form_of(function(*primals), leaves, WORDS)
    if not leaves:
        raise TypeError(f"{getattr(function, '__name__', 'the function')} returns no array")
    leaves = list(_recorded(leaves))
    _check_real(leaves, what, "a result")
    return after, leaves


def _check_real(leaves, what, name):
    for one in leaves:
        if one.dtype == "c64":
            message = f"{name} is {one.type!r}; derivatives are of real numbers: real and imaginary parts, each an array"
            raise wrong_call(what, message)


def _views(primals, what):
    """The structures of several arguments and views of their leaves, which gradients end at."""
    leaves, forms = [], [None] * len(primals)
    for i, one in enumerate(primals):
        forms[i] = form_of(one, leaves, WORDS)
    _check_real(_recorded(leaves), what, "an argument")
    return forms, [ops.permute(one, tuple(range(one.ndim))) for one in _recorded(leaves)]


def _pulled(outputs, cotangents, inputs):
    """The gradients of sum(outputs * cotangents), zeros where nothing depends on an input."""
    pairs = [(y, u) for y, u in zip(outputs, cotangents) if y.dtype.is_floating]
    return _tenon.grad(_total(*zip(*pairs)) if pairs else ops.zeros(()), list(inputs), True)


def _total(xs, ys):
    """The sum of all products of two lists of arrays."""
    terms = [ops.sum(x * y) for x, y in zip(xs, ys)]
    return functools.reduce(lambda a, b: a + (b if b.dtype == a.dtype else b.cast(a.dtype)), terms)


def _pushed(outputs, inputs, tangents):
    """The derivatives of outputs along tangents: gradients are linear in cotangents, whose gradient is asked for
    (Townsend, 2017)."""
    floating = [y for y in outputs if y.dtype.is_floating]
    if not floating or not tangents:
        return [ops.zeros_like(y) for y in outputs]
    cotangents = [ops.zeros_like(y) for y in floating]
    pulled = _pulled(floating, cotangents, inputs)
    made = iter(_tenon.grad(_total(pulled, tangents), cotangents, True))
    return [next(made) if y.dtype.is_floating else ops.zeros_like(y) for y in outputs]


def _tangents(forms, leaves, given, what):
    """The leaves of tangents in the structures of the arguments; those of integers are not used."""
    if len(forms) != len(given):
        raise wrong_call(what, f"{len(given)} tangents for {len(forms)} arguments")
    found = []
    for form, one in zip(forms, given):
        found += leaves_like(form, one, f"{what}: tangents")
    found = _recorded(found, leaves)
    for one, tangent in zip(leaves, found):
        if one.dtype.is_floating and (tuple(one.shape) != tuple(tangent.shape) or one.dtype != tangent.dtype):
            raise wrong_call(what, f"a tangent is {tangent.type!r}, of {one.type!r}")
    return found


def _floating(leaves):
    return [i for i, one in enumerate(leaves) if one.dtype.is_floating]


def jvp(function, primals, tangents):
    """(function(*primals), its derivative along `tangents`): both in the structure of what the function returns.
    `tangents` has an array for each of the arrays of `primals`, a tuple of arguments.

        y, dy = tenon.jvp(f, (x,), (dx,))

    The function is recorded at each call; `tenon.compiled(lambda x, dx: tenon.jvp(f, (x,), (dx,)))` records it once.
    """
    return _program_of(_jvp, function)(tuple(primals), tuple(tangents))


def _jvp(function, primals, tangents):
    forms, leaves = _views(primals, "jvp")
    along = _tangents(forms, leaves, tangents, "jvp")
    after, outputs = _results(function, [filled(form, leaves.__getitem__) for form in forms], "jvp")
    at = _floating(leaves)
    made = _pushed(outputs, [leaves[i] for i in at], [along[i] for i in at])
    return filled(after, outputs.__getitem__), filled(after, made.__getitem__)


def vjp(function, *primals):
    """(function(*primals), pull): pull(cotangents) is a tuple with the gradients of sum(results * cotangents) by each
    argument. `cotangents` has the structure of what the function returns.

        y, pull = tenon.vjp(f, x, w)
        dx, dw = pull(dy)

    Of arrays, the value is computed at once, and once more with the gradients by each call of pull.
    """
    arrays = []
    form_of(primals, arrays, WORDS)
    if not any(isinstance(one, _tenon.Tensor) for one in arrays) and not holds_tensors(function):
        pulled = _program_of(_vjp, function)
        value = programs_of(lambda *primals: function(*primals))(*primals)
        return value, lambda cotangents: pulled(primals, cotangents)
    forms, leaves = _views(primals, "vjp")
    after, outputs = _results(function, [filled(form, leaves.__getitem__) for form in forms], "vjp")

    def pull(cotangents):
        return _pulled_like(forms, leaves, after, outputs, cotangents)

    return filled(after, outputs.__getitem__), pull


def _vjp(function, primals, cotangents):
    return vjp(function, *primals)[1](cotangents)


def _pulled_like(forms, leaves, after, outputs, cotangents):
    given = _recorded(leaves_like(after, cotangents, "vjp: cotangents"), outputs)
    for one, cotangent in zip(outputs, given):
        if tuple(one.shape) != tuple(cotangent.shape):
            raise wrong_call("vjp", f"a cotangent is {cotangent.type!r}, of {one.type!r}")
    made = iter(_pulled(outputs, given, [leaves[i] for i in _floating(leaves)]))
    found = [next(made) if one.dtype.is_floating else ops.zeros_like(one) for one in leaves]
    return tuple(filled(form, found.__getitem__) for form in forms)


def _program_of(transform, function):
    """transform(function, ...) as a function that runs as one program."""
    return run_or_recorded(functools.partial(transform, function), function)


def jacrev(function, argnums=0, has_aux=False):
    """A function of the same arguments: the derivatives of each element of the results by each element of the argument
    `argnums`, or of several (a tuple of them). For an array y in the result and an array x in an argument an array of
    y's and then x's sizes, in the structure of the results, with the structure of the argument in the place of y.

    Row by row of the results, all rows at once (vmap), which suits functions of few results; `jacfwd` goes by the
    elements of arguments. With `has_aux` the function returns (result, second), and the Jacobian is (jacobian, second).
    """
    return _jacobian_of(function, argnums, has_aux, True)


def jacfwd(function, argnums=0, has_aux=False):
    """As jacrev, column by column: for arguments of fewer elements than the results."""
    return _jacobian_of(function, argnums, has_aux, False)


jacobian = jacrev


def _jacobian_of(function, argnums, has_aux, by_rows):
    if not callable(function):
        raise TypeError(f"jacobian: {type(function).__name__} is no function")
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def evaluated(*arguments, **named):
        for number in numbers:
            if not -len(arguments) <= number < len(arguments):
                raise TypeError(f"jacobian: there is no argument {number} of {len(arguments)}")
        at = [number % len(arguments) for number in numbers]
        leaves = []
        forms = [form_of(arguments[i], leaves, WORDS) for i in at]
        leaves = list(_recorded(leaves))
        for one in leaves:
            if not one.dtype.is_floating:
                raise wrong_call("jacobian", f"an argument is {one.type!r}, which has no derivatives")

        whole = (tuple(arguments), dict(named))
        value, second = _called(function, whole, at, forms, leaves, has_aux)
        outputs = []
        after = form_of(value, outputs, WORDS)
        outputs = list(_recorded(outputs, leaves))
        call = functools.partial(_called, function, at=at, forms=forms, has_aux=has_aux)
        blocks = (_rows if by_rows else _columns)(call, whole, leaves, outputs)

        def of_output(i):
            found = tuple(filled(form, lambda j: blocks[i][j]) for form in forms)
            return found[0] if isinstance(argnums, int) else found

        made = filled(after, of_output)
        return (made, second) if has_aux else made

    return run_or_recorded(evaluated, function)


def _places(arrays):
    """Where each of several arrays begins when their elements stand one after the other, and their number."""
    starts, total = [], 0
    for one in arrays:
        starts.append(total)
        for size in one.shape:
            if not isinstance(size, int):
                raise wrong_call("jacobian", f"{one.type!r} has a size that is not known")
        total += _elements(one)
    return starts, total


def _elements(array):
    count = 1
    for size in array.shape:
        count *= size
    return count


def _units(arrays):
    """For each array, along a new first axis, the unit vectors of all elements of the arrays; and where its own begin."""
    starts, total = _places(arrays)
    made = []
    for start, one in zip(starts, arrays):
        numbers = ops.iota(size=total, start=-start)
        made.append(ops.reshape(ops.one_hot(numbers, _elements(one), dtype=one.dtype.name), (total, *one.shape)))
    return made, starts


def _rows(call, whole, leaves, outputs):
    units, starts = _units(outputs)

    def pull(cotangents, leaves, whole):
        views = [ops.permute(one, tuple(range(one.ndim))) for one in leaves]
        found = []
        form_of(call(whole, leaves=views)[0], found, WORDS)
        return tuple(_pulled(_recorded(found), cotangents, views))

    made = vmap(pull, (0, None, None))(tuple(units), tuple(leaves), whole)
    return [[ops.reshape(block[start:start + _elements(one)], (*one.shape, *x.shape))
             for block, x in zip(made, leaves)] for start, one in zip(starts, outputs)]


def _columns(call, whole, leaves, outputs):
    units, starts = _units(leaves)

    def push(tangents, leaves, whole):
        views = [ops.permute(one, tuple(range(one.ndim))) for one in leaves]
        found = []
        form_of(call(whole, leaves=views)[0], found, WORDS)
        return tuple(_pushed(_recorded(found), views, tangents))

    made = vmap(push, (0, None, None), -1)(tuple(units), tuple(leaves), whole)
    return [[ops.reshape(block[..., start:start + _elements(x)], (*one.shape, *x.shape))
             for start, x in zip(starts, leaves)] for block, one in zip(made, outputs)]


def _called(function, whole, at, forms, leaves, has_aux):
    """What the function returns, with other leaves in the arguments that derivatives are by, and its second value."""
    given, named = list(whole[0]), whole[1]
    for i, form in zip(at, forms):
        given[i] = filled(form, leaves.__getitem__)
    made = function(*given, **named)
    if not has_aux:
        return made, ()
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        raise TypeError("jacobian: with has_aux the function returns (result, second)")
    return made


def hessian(function, argnums=0):
    """The second derivatives of a function that returns a scalar: the Jacobian of its gradient. For an argument that is an
    array x, an array of x's sizes twice; of structures, blocks as jacrev has them."""
    from .gradients import grad

    return jacrev(grad(function, argnums=argnums, allow_unused=True), argnums)


def hvp(function, primals, tangents):
    """The Hessian of a function that returns a scalar times `tangents`, without the Hessian: a tuple with a structure for
    each of `primals`.

        [h] = tenon.hvp(loss, (w,), (v,))
    """
    return _program_of(_hvp, function)(tuple(primals), tuple(tangents))


def _hvp(function, primals, tangents):
    forms, leaves = _views(primals, "hvp")
    along = _tangents(forms, leaves, tangents, "hvp")
    _, outputs = _results(function, [filled(form, leaves.__getitem__) for form in forms], "hvp")
    if len(outputs) != 1 or outputs[0].ndim:
        raise wrong_call("hvp", "the function returns no scalar")
    at = _floating(leaves)
    wanted = [leaves[i] for i in at]
    gradients = _tenon.grad(outputs[0], wanted, True)
    made = iter(_pulled(gradients, [along[i] for i in at], wanted))
    found = [next(made) if one.dtype.is_floating else ops.zeros_like(one) for one in leaves]
    return tuple(filled(form, found.__getitem__) for form in forms)

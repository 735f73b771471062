"""Types along axes: reductions, running values, sorting, norms."""
from . import agree, axis_of, computed, dtype, finite, floating, known, number, require, rule
from ..tensors import Type, is_floating


@rule("softmax", "log_softmax")
def _(op, ins, a):
    axis_of(ins[0], a.axis)
    floating(ins[0])
    return ins[0]


@rule("layer_norm", "rms_norm")
def _(op, ins, a):
    x, *parameters = ins
    require(x.rank > 0, "BadShape", "no axis to normalise", x)
    floating(*ins)
    for type_ in parameters:
        require(type_.rank == 1 and agree(type_.dims[0], x.dims[-1]), "ShapeMismatch", "does not fit the last axis",
                type_, x)
    require(a.eps >= 0, "BadAttribute", f"eps is {a.eps}")
    return x


@rule("batch_norm", "group_norm")
def _(op, ins, a):
    x, *parameters = ins
    floating(x)
    require(x.rank >= 2, "ShapeMismatch", "needs rank 2 or more", x)
    for type_ in parameters:
        require(type_.rank == 1 and type_.dtype == x.dtype and agree(type_.dims[0], x.dims[1]), "ShapeMismatch",
                "does not fit the channels", type_, x)
    groups = getattr(a, "groups", 1)
    divides = groups >= 1 and (not known(x.dims[1]) or x.dims[1] % groups == 0)
    require(divides and a.eps >= 0 and finite(a.eps), "BadAttribute", f"{groups} groups, eps {a.eps}", x)
    return x


@rule("sum", "mean", "prod", "max", "min", "any", "all")
def _(op, ins, a):
    x, result = ins[0], ins[0].dtype
    if op in ("any", "all"):
        dtype(x, "bool")
    elif op == "mean":
        floating(x)
    elif op in ("max", "min"):
        number(x)
        for axis in a.axes:
            require(x.dims[axis_of(x, axis)] != 0, "BadShape", f"axis {axis} is empty", x)
    else:
        computed(x)
        result = x.dtype if is_floating(x.dtype) else "i64"
    for i, axis in enumerate(a.axes):
        require(axis_of(x, axis) not in a.axes[:i], "BadArgument", f"axis {axis} twice", x)
    if a.keep_dims:
        return Type(result, [1 if i in a.axes else size for i, size in enumerate(x.dims)])
    return Type(result, [size for i, size in enumerate(x.dims) if i not in a.axes])


@rule("argmax", "argmin")
def _(op, ins, a):
    x = ins[0]
    axis_of(x, a.axis)
    number(x)
    require(a.dtype in ("i32", "i64"), "UnsupportedDType", f"indices are i32 or i64, not {a.dtype}")
    size = x.dims[a.axis]
    require(size != 0, "BadShape", f"axis {a.axis} is empty", x)
    require(a.dtype == "i64" or not known(size) or size <= 2**31, "LimitExceeded", "needs i64 indices", x)
    return Type(a.dtype, x.dims[:a.axis] + ((1,) if a.keep_dims else ()) + x.dims[a.axis + 1:])


@rule("cumsum", "cumprod")
def _(op, ins, a):
    axis_of(ins[0], a.axis)
    computed(ins[0])
    return ins[0] if is_floating(ins[0].dtype) else ins[0].with_dtype("i64")


@rule("cummax", "cummin")
def _(op, ins, a):
    axis_of(ins[0], a.axis)
    number(ins[0])
    return ins[0]


@rule("topk", "sort", "argsort")
def _(op, ins, a):
    x = ins[0]
    size = x.dims[axis_of(x, a.axis)]
    number(x)
    if op == "topk":
        require(a.k >= 0 and (not known(size) or a.k <= size), "OutOfRange", f"k = {a.k} of axis {a.axis}", x)
    require(not known(size) or size <= 2**31, "LimitExceeded", "an axis that i32 cannot count", x)
    if op == "topk":
        return x.with_dtype("i32").with_dim(a.axis, a.k)
    return x if op == "sort" else x.with_dtype("i32")


@rule("searchsorted")
def _(op, ins, a):
    ordered, wanted = ins
    require(ordered.rank > 0, "BadShape", "no axis", ordered)
    number(ordered)
    fits = ordered.dtype == wanted.dtype and (ordered.rank == 1 or ordered.rank == wanted.rank)
    fits = fits and (ordered.rank == 1 or all(map(agree, ordered.dims[:-1], wanted.dims[:-1])))
    require(fits, "ShapeMismatch", "do not fit", *ins)
    require(not known(ordered.dims[-1]) or ordered.dims[-1] < 2**31, "LimitExceeded", "needs i64 indices", ordered)
    return wanted.with_dtype("i32")

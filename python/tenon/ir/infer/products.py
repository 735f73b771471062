"""Types of matrix products."""
from . import (agree, broadcast, common, count, floating, index, number, one_dtype, one_number, rank, require,
               rule, values)
from ..tensors import Type


@rule("matmul", "matmul_integer")
def _(op, ins, a):
    if op == "matmul":
        for type_ in ins:
            number(type_)
        one_dtype(*ins)
        return _matrix_product(*ins, ins[0].dtype)
    require_codes(ins)
    result = _matrix_product(*ins[:2], "i32")
    require_zero_points(ins, ins[1].dims[-1] if ins[1].rank > 1 else 1)
    return result


def _matrix_product(x, w, result):
    require(x.rank and w.rank, "ShapeMismatch", "an operand is a scalar", x, w)
    common(x, -1, w, max(w.rank - 2, 0), "the contracted axis")
    lead = broadcast(Type("f32", x.dims[:-2]), Type("f32", w.dims[:-2]))
    return Type(result, lead + x.dims[-2:-1] + (w.dims[-1:] if w.rank > 1 else ()))


def require_codes(ins):
    for type_ in ins[:2]:
        require(type_.dtype in ("i8", "u8"), "UnsupportedDType", "needs i8 or u8", type_)
    for operand, zero in zip(ins, ins[2:]):
        require(operand.dtype == zero.dtype, "UnsupportedDType", "a zero point of another type", operand, zero)


def require_zero_points(ins, outputs):
    require(len(ins) < 3 or one_number(ins[2]), "ShapeMismatch", "the first zero point is not one number", *ins)
    if len(ins) > 3 and not one_number(ins[3]):
        require(ins[3].rank == 1 and agree(ins[3].dims[0], outputs), "ShapeMismatch",
                "the second zero point is neither one number nor one for each output", *ins)


@rule("linear")
def _(op, ins, a):
    count(ins, 2 + a.has_bias + a.has_residual)
    x, w = ins[:2]
    floating(x)
    values(w)
    require(x.rank >= 1, "ShapeMismatch", "x is a scalar", *ins)
    rank(w, 2)
    common(x, -1, w, 1, "the contracted axis")
    columns = w.dims[0]
    if a.has_bias:
        rank(ins[2], 1)
        floating(ins[2])
        columns = common(w, 0, ins[2], 0, "the output axis")
    y = Type(x.dtype, x.dims[:-1] + (columns,))
    if a.has_residual:
        residual = ins[-1]
        require(residual.rank == y.rank and residual.dtype == y.dtype, "ShapeMismatch", f"residual is not {y}", *ins)
        y = Type(y.dtype, [common(y, i, residual, i, "the residual's shape") for i in range(y.rank)])
    return y


@rule("grouped_linear")
def _(op, ins, a):
    count(ins, 3 + a.has_bias)
    x, w, group = ins[:3]
    floating(x)
    values(w)
    index(group)
    if a.has_bias:
        floating(ins[3])
    require(x.rank >= 2 and group.rank == x.rank - 1, "ShapeMismatch", "group needs all axes of x but the last", *ins)
    rank(w, 3)
    if a.has_bias:
        rank(ins[3], 2)
    common(x, -1, w, 2, "the contracted axis")
    dims = [common(x, i, group, i, "a leading axis") for i in range(x.rank - 2)]
    dims.append(group.dims[-1] if x.dims[-2] == 1 else common(x, -2, group, -1, "the axis of choices"))
    columns = w.dims[1]
    if a.has_bias:
        common(w, 0, ins[3], 0, "the number of groups")
        columns = common(w, 1, ins[3], 1, "the output axis")
    return Type(x.dtype, [*dims, columns])

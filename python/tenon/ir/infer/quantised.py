"""Types between numbers and codes."""
from . import agree, axis_of, dtype, one_number, require, rule
from ..tensors import DTYPES, is_block, is_floating


@rule("quantize")
def _(op, ins, a):
    x = ins[0]
    require(is_block(a.dtype), "BadAttribute", f"dtype {a.dtype} is no block type")
    require(DTYPES[a.dtype].written, "UnsupportedDType",
            f"writing {a.dtype} takes an importance matrix, which the op has not: tenon quantize --imatrix takes one")
    dtype(x, "f32")
    require(x.rank > 0, "ShapeMismatch", "x is a scalar", x)
    return x.with_dtype(a.dtype)


@rule("dequantize")
def _(op, ins, a):
    require(is_floating(a.dtype), "BadAttribute", f"dtype {a.dtype} is not floating")
    require(is_block(ins[0].dtype), "UnsupportedDType", "needs a block type", ins[0])
    return ins[0].with_dtype(a.dtype)


@rule("quantize_linear", "dequantize_linear")
def _(op, ins, a):
    x = ins[0]
    if op == "quantize_linear":
        require(a.dtype in ("i8", "u8"), "BadAttribute", f"dtype {a.dtype}, needs i8 or u8")
        dtype(x, "f32")
        codes, result = a.dtype, a.dtype
    else:
        require(x.dtype in ("i8", "u8", "i32"), "UnsupportedDType", "needs i8, u8 or i32", x)
        codes, result = x.dtype, "f32"
    dtype(ins[1], "f32")
    for zero in ins[2:]:
        dtype(zero, codes)
    for parameter in ins[1:]:
        if not one_number(parameter):
            axis_of(x, a.axis)
            require(parameter.rank == 1 and agree(parameter.dims[0], x.dims[a.axis]), "ShapeMismatch",
                    f"needs one number, or one for each index of axis {a.axis}", parameter, x)
    return x.with_dtype(result)

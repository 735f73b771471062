"""Types of elements in other places, and of values from nothing."""
import math

import numpy as np

from . import agree, axis_of, checked, common, either, index, known, number, one_number, plain, require, rule
from ..tensors import DTYPES, INT64_MAX, MAX_RANK, NUMPY, Type, cast, is_block, is_floating, is_integer


@rule("stop_gradient", "after")
def _(op, ins, a):
    return ins[0]


@rule("bitcast")
def _(op, ins, a):
    x = ins[0]
    for dtype in (x.dtype, a.dtype):
        require(not is_block(dtype) and dtype != "bool", "UnsupportedDType",
                f"{dtype} is no type of single elements of any bits", x)
    own, wanted = DTYPES[x.dtype].bytes, DTYPES[a.dtype].bytes
    if own == wanted:
        return x.with_dtype(a.dtype)
    if own < wanted:
        require(x.rank > 0 and agree(x.dims[-1], wanted // own), "ShapeMismatch",
                f"{a.dtype} needs an innermost axis of {wanted // own}", x)
        return Type(a.dtype, x.dims[:-1])
    require(x.rank < MAX_RANK, "BadShape", f"as {a.dtype}: rank above {MAX_RANK}", x)
    return Type(a.dtype, (*x.dims, own // wanted))


@rule("reshape")
def _(op, ins, a):
    x, dims = ins[0], list(a.dims)
    if len(ins) > 1:
        require(not dims, "BadAttribute", "both dims and an array of sizes", x)
        require(not x.is_static or not ins[1].is_static or x.elements == ins[1].elements, "BadShape",
                "element counts differ", x, ins[1])
        return _keep_innermost(x, list(ins[1].dims))
    require(all(size >= -1 for size in dims) and dims.count(-1) <= 1, "BadShape",
            f"to {dims}: sizes are at least 0, and at most one is -1", x)
    others = checked(math.prod(size for size in dims if size >= 0))
    if -1 in dims:
        require(others != 0, "BadShape", f"to {dims}: -1 beside a size of 0 can be anything", x)
        open_sizes = [size for size in x.dims if not known(size)]
        fixed = math.prod(size for size in x.dims if known(size))
        if open_sizes:
            deduced = open_sizes[0] if len(open_sizes) == 1 and fixed == others else None
        else:
            require(fixed % others == 0, "BadShape", f"does not divide into {dims}", x)
            deduced = fixed // others
        dims[dims.index(-1)] = deduced
    else:
        require(not x.is_static or x.elements == others, "BadShape", f"has not the elements of {dims}", x)
    return _keep_innermost(x, dims)


def _keep_innermost(x, dims):
    if is_block(x.dtype):
        require(x.dims[-1:] == tuple(dims[-1:]), "BadShape", f"to {dims}: blocks run along the innermost axis", x)
    return Type(x.dtype, dims)


def _keep_blocks(x, touches_last):
    require(not (is_block(x.dtype) and touches_last), "UnsupportedDType", "blocks run along the innermost axis", x)


@rule("split_axis")
def _(op, ins, a):
    x, sizes = ins[0], list(a.sizes)
    whole = x.dims[axis_of(x, a.axis)]
    others = checked(math.prod(size for size in sizes if size >= 0))
    require(sizes and min(sizes) >= -1 and sizes.count(-1) <= 1, "BadShape",
            f"into {sizes}: sizes are at least 0, and at most one is -1", x)
    require(-1 not in sizes or others != 0, "BadShape", f"into {sizes}: -1 beside a size of 0 can be anything", x)
    if known(whole):
        require(whole % others == 0 if -1 in sizes else whole == others, "BadShape",
                f"axis {a.axis} does not split into {sizes}", x)
    require(x.rank - 1 + len(sizes) <= MAX_RANK, "BadShape", f"rank above {MAX_RANK}", x)
    _keep_blocks(x, a.axis == x.rank - 1 and len(sizes) != 1)
    rest = whole // others if -1 in sizes and known(whole) else whole if others == 1 else None
    parts = tuple(rest if size == -1 else size for size in sizes)
    return Type(x.dtype, x.dims[:a.axis] + parts + x.dims[a.axis + 1:])


@rule("merge_axes")
def _(op, ins, a):
    x = ins[0]
    require(a.count >= 1, "BadAttribute", f"merges {a.count} axes", x)
    axis_of(x, a.axis)
    end = a.axis + a.count
    require(end <= x.rank, "AxisOutOfRange", f"{a.count} axes from axis {a.axis} on out of range", x)
    _keep_blocks(x, end == x.rank and a.count > 1)
    merged = x.dims[a.axis:end]
    fixed = checked(math.prod(size for size in merged if known(size)))
    open_sizes = [size for size in merged if not known(size)]
    size = None
    if not open_sizes or fixed == 0:
        size = fixed
    elif fixed == 1 and len(open_sizes) == 1:
        size = open_sizes[0]
    return Type(x.dtype, x.dims[:a.axis] + (size,) + x.dims[end:])


@rule("unsqueeze")
def _(op, ins, a):
    x = ins[0]
    require(0 <= a.axis <= x.rank, "AxisOutOfRange", f"axis {a.axis} out of range", x)
    require(x.rank < MAX_RANK, "BadShape", f"rank above {MAX_RANK}", x)
    _keep_blocks(x, a.axis == x.rank)
    return Type(x.dtype, x.dims[:a.axis] + (1,) + x.dims[a.axis:])


@rule("squeeze")
def _(op, ins, a):
    x = ins[0]
    require(agree(x.dims[axis_of(x, a.axis)], 1), "BadShape", f"axis {a.axis} has not size 1", x)
    return Type(x.dtype, x.dims[:a.axis] + x.dims[a.axis + 1:])


@rule("permute")
def _(op, ins, a):
    x = ins[0]
    require(len(a.order) == x.rank, "BadArgument", f"order {a.order} has not one entry per axis", x)
    for i, axis in enumerate(a.order):
        require(axis_of(x, axis) not in a.order[:i], "BadArgument", f"order {a.order} repeats an axis", x)
    _keep_blocks(x, x.rank > 0 and a.order[-1] != x.rank - 1)
    return Type(x.dtype, [x.dims[axis] for axis in a.order])


TO_END = INT64_MAX


def slice_range(a, size):
    """begin and end of a slice of an axis, counted from its first element."""
    begin = a.begin + size if a.begin < 0 else a.begin
    if a.end == TO_END:
        return begin, -1 if a.step < 0 else size
    return begin, a.end + size if a.end < 0 else a.end


@rule("slice")
def _(op, ins, a):
    x = ins[0]
    size = x.dims[axis_of(x, a.axis)]
    require(a.step != 0 and a.step >= -INT64_MAX, "BadAttribute", f"step {a.step}")
    block = DTYPES[x.dtype].block if a.axis == x.rank - 1 else 1
    if not known(size):
        require(block == 1 or (a.begin == 0 and a.end == TO_END and a.step == 1), "UnsupportedDType",
                "parts of blocks", x)
        return x.with_dim(a.axis, _open_slice(a, size))
    begin, end = slice_range(a, size)
    inside = -1 <= end <= begin < size if a.step < 0 else 0 <= begin <= end <= size
    require(inside, "OutOfRange",
            f"[{a.begin}:{'' if a.end == TO_END else a.end}:{a.step}] out of range for axis {a.axis}", x)
    require(block == 1 or (a.step == 1 and begin % block == 0 and end % block == 0), "UnsupportedDType",
            f"cuts blocks of {block}", x)
    return x.with_dim(a.axis, len(range(begin, end, a.step)))


def _open_slice(a, size):
    """The size of a slice of an axis of unknown size: known when both ends count from one side."""
    message = f"[{a.begin}:{a.end}:{a.step}] is no range"
    if a.step < 0:
        if a.begin == -1 and a.end == TO_END:
            return size if a.step == -1 else None
        if a.end == TO_END:
            return None if a.begin < 0 else len(range(a.begin, -1, a.step))
        if (a.begin < 0) != (a.end < 0):
            return None
        require(a.begin >= a.end, "OutOfRange", message)
        return len(range(a.begin, a.end, a.step))
    if a.begin == 0 and a.end == TO_END:
        return size if a.step == 1 else None
    if (a.begin < 0) != (a.end < 0 or a.end == TO_END):
        return None
    end = 0 if a.end == TO_END else a.end
    require(a.begin >= -TO_END and end >= a.begin, "OutOfRange", message)
    return len(range(a.begin, end, a.step))


@rule("broadcast_to")
def _(op, ins, a):
    x, dims = ins[0], a.dims
    plain(x)
    if len(ins) > 1:
        require(not dims, "BadAttribute", "both dims and an array of sizes", x)
        return Type(x.dtype, _broadcast_like(x, ins[1]))
    added = len(dims) - x.rank
    require(added >= 0, "ShapeMismatch", f"to {dims}: fewer sizes than axes", x)
    result = list(dims[:added])
    for i, wanted in enumerate(dims):
        require(wanted >= (0 if i < added else -1), "BadShape", f"to {dims}: a size is negative", x)
        if i >= added:
            own = x.dims[i - added]
            require(wanted < 0 or own == 1 or agree(own, wanted), "ShapeMismatch",
                    f"to {dims}: only axes of size 1 repeat", x)
            result.append(own if wanted == -1 else wanted)
    return Type(x.dtype, result)


def _broadcast_like(x, like):
    added = like.rank - x.rank
    require(added >= 0, "ShapeMismatch", "fewer sizes than axes", x, like)
    for own, wanted in zip(x.dims, like.dims[added:]):
        require(own == 1 or agree(own, wanted), "ShapeMismatch", "only axes of size 1 repeat", x, like)
    return list(like.dims)


@rule("concat")
def _(op, ins, a):
    x = ins[0]
    axis_of(x, a.axis)
    dims = list(x.dims)
    for part in ins[1:]:
        require(part.dtype == x.dtype and part.rank == x.rank, "ShapeMismatch", "types or ranks differ", x, part)
        for i, size in enumerate(part.dims):
            if i == a.axis:
                dims[i] = checked(dims[i] + size) if known(dims[i]) and known(size) else None
            else:
                require(agree(dims[i], size), "ShapeMismatch", f"axis {i} differs", x, part)
                dims[i] = either(dims[i], size)
    return Type(x.dtype, dims)


@rule("pad")
def _(op, ins, a):
    x = ins[0]
    require(len(a.before) == x.rank and len(a.after) == x.rank, "BadArgument", "not one entry per axis", x)
    plain(x)
    modes = ("", "constant", "edge", "reflect", "circular")
    require(a.mode in modes, "BadAttribute", f"no mode '{a.mode}'; there are {', '.join(modes[1:])}")
    dims = list(x.dims)
    for i, (before, after) in enumerate(zip(a.before, a.after)):
        require(before >= 0 and after >= 0, "BadAttribute", "a negative entry", x)
        added, most, size = checked(before + after), max(before, after), dims[i]
        if added == 0:
            continue
        if a.mode not in ("", "constant") and known(size):
            few = size == 0 or (a.mode == "reflect" and most >= size) or (a.mode == "circular" and most > size)
            require(not few, "OutOfRange", f"axis {i} has too few elements", x)
        dims[i] = checked(size + added) if known(size) else None
    return Type(x.dtype, dims)


@rule("gather")
def _(op, ins, a):
    x, at = ins
    axis_of(x, a.axis)
    index(at)
    plain(x)
    return Type(x.dtype, x.dims[:a.axis] + at.dims + x.dims[a.axis + 1:])


@rule("take_along")
def _(op, ins, a):
    x, at = ins
    axis_of(x, a.axis)
    index(at)
    plain(x)
    require(x.rank == at.rank, "ShapeMismatch", "ranks differ", *ins)
    return Type(x.dtype, [at.dims[i] if i == a.axis else common(x, i, at, i, f"axis {i}") for i in range(x.rank)])


@rule("scatter")
def _(op, ins, a):
    x, at, source = ins
    axis_of(x, a.axis)
    index(at)
    plain(x)
    modes = ("", "set", "add", "mul", "min", "max")
    require(a.mode in modes, "BadAttribute", f"no mode '{a.mode}'; there are {', '.join(modes[1:])}")
    if a.mode not in ("", "set"):
        number(x)
    require(at.rank == x.rank and source.rank == x.rank, "ShapeMismatch", "ranks differ", *ins)
    require(source.dtype == x.dtype, "ShapeMismatch", "source is not of x's dtype", *ins)
    for i in range(x.rank):
        require(agree(at.dims[i], source.dims[i]), "ShapeMismatch", "sizes of index and source differ", *ins)
        larger = i != a.axis and known(at.dims[i]) and known(x.dims[i]) and at.dims[i] > x.dims[i]
        require(not larger, "ShapeMismatch", "index is larger than x", *ins)
    return x




@rule("full")
def _(op, ins, a):
    require(all(size >= 0 for size in a.dims), "BadShape", f"sizes {a.dims}")
    require(not is_block(a.dtype), "UnsupportedDType", f"makes no {a.dtype}")
    if not is_floating(a.dtype) and a.dtype not in ("c64", "f8_e4m3", "f8_e5m2"):
        require(float(cast(a.value, a.dtype)) == a.value, "BadAttribute", f"{a.dtype} cannot hold {a.value}")
    return Type(a.dtype, a.dims)


@rule("iota")
def _(op, ins, a):
    require(a.size >= 0, "BadShape", f"size {a.size}")
    require(is_integer(a.dtype) or is_floating(a.dtype), "UnsupportedDType", f"makes no {a.dtype}")
    require(a.size == 0 if ins else a.axis == 0, "BadAttribute", "an axis goes with an array, a size stands alone")
    size = ins[0].dims[axis_of(ins[0], a.axis)] if ins else a.size
    if known(size) and size > 0:
        last = a.start + (size - 1) * a.step
        limits = np.iinfo(NUMPY[a.dtype if is_integer(a.dtype) else "i64"])
        fits = all(limits.min <= value <= limits.max for value in (a.start, last))
        fits = fits and abs(last - a.start) <= INT64_MAX + 1
        require(fits, "BadAttribute", f"{a.dtype} cannot hold {size} values from {a.start} in steps of {a.step}")
    return Type(a.dtype, [size])


@rule("random_bits")
def _(op, ins, a):
    require(1 <= len(ins) - a.like_last <= 2, "BadArgument",
            f"{len(ins)} inputs {'with' if a.like_last else 'without'} a `like`")
    require(ins[0].dtype == "u32" and ins[0].rank == 1 and agree(ins[0].dims[0], 2), "ShapeMismatch",
            "needs a key u32[2]", ins[0])
    if len(ins) - a.like_last > 1:
        require(one_number(ins[1]) and ins[1].dtype in ("i32", "i64", "u32"), "ShapeMismatch",
                "needs one number of i32, i64 or u32 to start from", ins[1])
    if a.like_last:
        return Type("u32", ins[-1].dims)
    require(all(size >= 0 for size in a.dims), "BadShape", f"sizes {a.dims}")
    return Type("u32", a.dims)

"""What tenon.ops has besides single ops, and the operators and methods of arrays and tensors.

Names such as `sum` and `slice` are Python's own in this file: `functions` has ours.
"""

from builtins import complex as _complex
from math import ceil as _ceil
from math import log10 as _math_log10
from math import prod as _prod

from . import _tenon
from .errors import Error

_ops = _tenon.all_ops()
functions = {}


def _public(function):
    functions[function.__name__] = function
    return function


Tensor = _tenon.Tensor
Buffer = _tenon.Buffer
HostBuffer = _tenon.HostBuffer


def _like(x):
    """x as something with a shape: numpy arrays and lists become buffers."""
    return x if isinstance(x, (Tensor, Buffer)) else Buffer(x)


_SIGNED = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
_UNSIGNED = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}
_WHOLE = {"bool", *_SIGNED, *_UNSIGNED}


def _is_whole(x):
    """Whether the elements are integers or booleans."""
    return x.dtype.name in _WHOLE


def _cast(x, dtype):
    return x if x.dtype == dtype else _ops["cast"](x, dtype=dtype)


def _as_real(x):
    """Integers and booleans as f32."""
    return _ops["cast"](x, dtype="f32") if _is_whole(x) else x


# Operators

def _operand(x):
    """A number of Python's, also for one of numpy's, or an array or a tensor."""
    if hasattr(x, "item") and not isinstance(x, (Tensor, Buffer, HostBuffer)) and type(x).__module__ == "numpy" and \
            not hasattr(x, "__len__"):
        x = x.item()
    return x if isinstance(x, (bool, int, float, _complex)) else _like(x)


def _wider(a, b):
    """The type that holds what two of integers or booleans hold; None for u64 beside signed ones."""
    if "bool" in (a, b):
        return b if a == "bool" else a
    for known in (_SIGNED, _UNSIGNED):
        if a in known and b in known:
            return a if known[a] >= known[b] else b
    signed, unsigned = (a, b) if a in _SIGNED else (b, a)
    bits = max(_SIGNED[signed], 2 * _UNSIGNED[unsigned])
    return f"i{bits}" if bits <= 64 else None


def common(a, b):
    """The operands of an operator with one type where that loses nothing of either kind: integers and booleans beside
    floating numbers become those; of two kinds of integers the wider one is taken. Two floating types stay: an op
    refuses them."""
    a, b = _operand(a), _operand(b)
    if not isinstance(a, (Tensor, Buffer)):
        return a, _beside_number(b, a)
    if not isinstance(b, (Tensor, Buffer)):
        return _beside_number(a, b), b
    if a.dtype == b.dtype or not (_is_whole(a) or _is_whole(b)):
        return a, b
    if _is_whole(a) and _is_whole(b):
        dtype = _wider(a.dtype.name, b.dtype.name)
        return (_cast(a, dtype), _cast(b, dtype)) if dtype else (a, b)
    if _is_whole(a):
        return _ops["cast"](a, dtype=_floating(b)), b
    return a, _ops["cast"](b, dtype=_floating(a))


def _floating(x):
    """What integers beside x become."""
    return x.dtype if x.dtype.is_floating and not x.dtype.is_block else "f32"


def _beside_number(x, number):
    if isinstance(number, (float, _complex)):
        return _as_real(x)
    return _cast(x, "i64") if x.dtype == "bool" and not isinstance(number, bool) else x


@_public
def true_divide(a, b):
    """a / b; of integers and booleans as f32, or as the other operand's floating type. `ops.div` is the op: of integers
    the whole part."""
    a, b = _operand(a), _operand(b)
    dtype = next((_floating(one) for one in (a, b) if isinstance(one, (Tensor, Buffer)) and not _is_whole(one)), "f32")
    return _ops["div"](*(_ops["cast"](one, dtype=dtype) if isinstance(one, (Tensor, Buffer)) and _is_whole(one) else one
                         for one in (a, b)))


@_public
def floor_divide(a, b):
    """a // b: the quotient rounded down, as Python and numpy have it."""
    a, b = common(a, b)
    rest = a - _ops["remainder"](a, b)
    if all(isinstance(one, (bool, int)) or isinstance(one, (Tensor, Buffer)) and _is_whole(one) for one in (a, b)):
        return _ops["div"](rest, b)
    whole = _ops["round"](_ops["div"](rest, b))
    if isinstance(b, (int, float)):
        return whole if b else _ops["div"](a, float(b))
    return _ops["where"](_ops["eq"](b, 0.0), _ops["div"](a, b), whole)


def _axes(x, axis):
    """The axes of a reduction as ops take them: all for None."""
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)


def _keeps(keep_dims, keepdims):
    return keep_dims if keepdims is None else keepdims


def _no_out(name, out):
    if out is not None:
        raise TypeError(f"{name}: results are new arrays: no out=")


def _reduction(name):
    op = _ops[name]

    def reduce(x, axis=None, keep_dims=False, *, keepdims=None, dtype=None, out=None):
        _no_out(name, out)
        x = _like(x)
        if dtype is not None:
            x = _cast(x, dtype)
        elif name == "mean":
            x = _as_real(x)
        elif name in ("any", "all") and x.dtype != "bool":
            x = x != 0
        return op(x, axes=_axes(x, axis), keep_dims=_keeps(keep_dims, keepdims))

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = (f"`{name}` over one axis, several, or all (None), of x as `dtype` where that is given. "
                      "`keepdims` is keep_dims, as numpy spells it.")
    return reduce


for _name in ("sum", "mean", "prod", "max", "min", "any", "all"):
    functions[_name] = _reduction(_name)


def _refuse_numpys(name, given, known):
    """TypeError for words that numpy's functions give to methods, so that they find another way."""
    for word in ("kind", "order", "stable", "out", "dtype"):
        if word in given and word not in known:
            raise TypeError(f"{name}() got an unexpected keyword argument {word!r}")


def _along(name):
    op = _ops[name]

    def along(x, axis=-1, **attributes):
        _refuse_numpys(name, attributes, op.attributes)
        x = _like(x)
        if axis is None:  # all elements, in order
            x, axis = flatten(x), 0
        return op(x, axis=axis, **attributes)

    along.__name__ = along.__qualname__ = name
    along.__doc__ = f"`{name}` along an axis, the last one by default, or of all elements in order (None): {op!r}."
    return along


for _name in ("softmax", "log_softmax", "cumsum", "cumprod", "cummax", "cummin", "sort", "argsort"):
    functions[_name] = _along(_name)


def _place(name):
    op = _ops[name]

    def place(x, axis=None, keep_dims=False, *, keepdims=None, dtype="i32", out=None):
        _no_out(name, out)
        x, keep = _like(x), _keeps(keep_dims, keepdims)
        if axis is not None:
            return op(x, axis=axis, keep_dims=keep, dtype=dtype)
        made = op(flatten(x), axis=0, dtype=dtype)
        return reshape(made, (1,) * x.ndim) if keep else made

    place.__name__ = place.__qualname__ = name
    place.__doc__ = f"`{name}` along an axis, or of all elements in order (None), as numpy has it: {op!r}."
    return place


for _name in ("argmax", "argmin"):
    functions[_name] = _place(_name)


def _sizes(dims, more):
    """Sizes that are given as a tuple or one after the other: numbers, and names of those that are not known."""
    given = (dims, *more) if more or isinstance(dims, (int, str)) else dims
    return tuple(int(size) if hasattr(size, "__index__") else size for size in given)


@_public
def reshape(x, dims, *more):
    """The same elements under other sizes, a tuple or one after the other, of which one may be -1; or under those of
    another array."""
    x = _like(x)
    if isinstance(dims, (Tensor, Buffer)):
        return _ops["reshape"](x, dims)
    dims = _sizes(dims, more)
    if all(isinstance(size, int) for size in (*x.shape, *dims)):
        if -1 in dims:
            rest = _prod(d for d in dims if d != -1)
            dims = tuple(_prod(x.shape) // rest if d == -1 and rest else d for d in dims)
        return _ops["reshape"](x, dims=dims)
    return _reshape_open(x, dims)


def _reshape_open(x, dims):
    """Among sizes that are words, or not known: axes are merged, and those of known sizes split. Words stay in order;
    the axis of -1 is made of what is left."""
    given = x

    def fail():
        raise ValueError(f"reshape: {given.type!r} to {dims}: axes that are next to each other are merged, and those "
                         "of known sizes split; words stay in their order")

    wanted = [size for size in dims if size != 1]  # axes of 1 come last
    whole = x = squeeze(x)
    if wanted.count(-1) > 1:
        fail()
    words = [size for size in x.shape if not isinstance(size, int)]
    if -1 in wanted and words == [size for size in wanted if not isinstance(size, int)]:
        rest = _prod(size for size in wanted if isinstance(size, int) and size != -1)
        known = _prod(size for size in x.shape if isinstance(size, int))
        if not rest or known % rest:
            fail()
        wanted[wanted.index(-1)] = known // rest
        if known == rest:
            wanted.remove(1)
    at = wanted.index(-1) if -1 in wanted else len(wanted)
    front, left = _paired(x.shape, wanted[:at])
    back, right = _paired(x.shape[left:][::-1], wanted[at + 1:][::-1])
    if front is None or back is None or (at == len(wanted) and left < x.ndim):
        fail()
    groups = front + ([(x.ndim - left - right, (-1,))] if at < len(wanted) else [])
    groups += [(count, sizes[::-1]) for count, sizes in back[::-1]]
    end = whole.ndim
    for count, sizes in reversed(groups):  # from the last axis, so that the places of the others stay
        end -= count
        if count > 1:
            x = _ops["merge_axes"](x, axis=end, count=count)
        if not count:
            x = _ops["unsqueeze"](x, axis=end)
        elif len(sizes) > 1:
            x = _ops["split_axis"](x, axis=end, sizes=sizes)
    was_left = -1 in dims and -1 not in wanted and len(wanted) < sum(size != 1 for size in dims)
    for place, size in enumerate(dims):
        if size == 1 or (size == -1 and was_left):
            x = _ops["unsqueeze"](x, axis=place)
    return x


def _paired(have, want):
    """Which axes become which, from the front: [(how many, their new sizes), ...] until `want` is used up, and how many
    in all; (None, 0) where they do not fit. No size is 1."""
    groups, i, want = [], 0, list(want)
    while want:
        if i < len(have) and have[i] is not None and have[i] == want[0]:
            groups.append((1, (want.pop(0),)))
            i += 1
            continue
        ours, theirs, begin, sizes = 1, 1, i, []
        while ours != theirs or not sizes:
            is_ours = ours <= theirs
            part = (have[i] if i < len(have) else None) if is_ours else (want[0] if want else None)
            if not isinstance(part, int) or part < 1:
                return None, 0
            if is_ours:
                ours, i = ours * part, i + 1
            else:
                sizes.append(want.pop(0))
                theirs *= part
        groups.append((i - begin, tuple(sizes)))
    return groups, i


@_public
def broadcast_to(x, dims, *more):
    """x again and again along new axes in front and those of size 1: to these sizes, or to those of another array."""
    if isinstance(dims, (Tensor, Buffer)):
        return _ops["broadcast_to"](_like(x), dims)
    return _ops["broadcast_to"](_like(x), dims=_sizes(dims, more))


@_public
def permute(x, order, *more):
    """Axes in another order, a tuple or one after the other."""
    order = (order, *more) if more or isinstance(order, int) else order
    return _ops["permute"](_like(x), order=tuple(order))


@_public
def transpose(x, *axes):
    """All axes in reverse, two of them swapped, or an order of all of them, as a tuple or one after the other."""
    x = _like(x)
    if len(axes) == 1 and axes[0] is not None:
        axes = tuple(axes[0])
        return _ops["permute"](x, order=axes)
    if len(axes) > 2:
        return _ops["permute"](x, order=axes)
    return swapaxes(x, *axes) if len(axes) == 2 else _ops["permute"](x, order=tuple(range(x.ndim))[::-1])


@_public
def swapaxes(x, a, b):
    """Two axes swapped."""
    x = _like(x)
    order = list(range(x.ndim))
    if not (-x.ndim <= a < x.ndim and -x.ndim <= b < x.ndim):
        raise IndexError(f"axes {a} and {b} of {x.type!r}")
    order[a], order[b] = order[b], order[a]
    return _ops["permute"](x, order=tuple(order))


@_public
def flatten(x, first=0, last=-1):
    """Merges axes first..last."""
    x = _like(x)
    if x.ndim == 0:
        return _ops["unsqueeze"](x, axis=0)
    first, last = first % x.ndim, last % x.ndim
    return _ops["merge_axes"](x, axis=first, count=last - first + 1)


@_public
def squeeze(x, axis=None):
    """Without an axis of size 1, several such, or all of them (None)."""
    x = _like(x)
    if axis is None:
        axis = [i for i, size in enumerate(x.shape) if size == 1]
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    for one in sorted((a % x.ndim if -x.ndim <= a < x.ndim else a for a in axes), reverse=True):
        x = _ops["squeeze"](x, axis=one)
    return x


@_public
def chunk(x, count, axis=0):
    """As many parts of an axis, of one size but for the last one."""
    x = _like(x)
    size = x.shape[axis]
    if not isinstance(size, int):
        raise ValueError(f"chunk: axis {axis} of {x.type!r} has a size that is not known")
    if count < 1:
        raise ValueError(f"chunk: {count} parts")
    step = max(-(-size // count), 1)
    return [slice_axis(x, axis, begin, begin + step) for begin in range(0, max(size, 1), step)]


@_public
def concat(arrays, axis=0):
    arrays = [_like(one) for one in arrays]
    return _ops["concat"](*arrays, axis=axis)


@_public
def stack(arrays, axis=0):
    """Arrays of one shape side by side along a new axis."""
    arrays = [_like(one) for one in arrays]
    axis = axis % (arrays[0].ndim + 1)
    return concat([unsqueeze(one, axis) for one in arrays], axis)


@_public
def unsqueeze(x, axis):
    """A new axis of size 1 before `axis`; negative ones count from the end of the result."""
    x = _like(x)
    return _ops["unsqueeze"](x, axis=axis % (x.ndim + 1))


@_public
def slice_axis(x, axis, begin, end=None, step=1):
    """Elements begin, begin + step, ... before `end` of one axis, as Python's slices count them."""
    x = _like(x)
    size = x.shape[axis]
    if isinstance(size, int):
        begin, end, step = slice(begin, end, step).indices(size)
        if begin == end or (begin > end) == (step > 0):
            begin, end, step = 0, 0, 1
        elif end < 0:
            end = _TO_END
    else:  # what counts from the end stays so in the program
        begin = (0 if step > 0 else -1) if begin is None else begin
        end = _TO_END if end is None else end
    return _ops["slice"](x, axis=axis, begin=begin, end=end, step=step)


_TO_END = 2**63 - 1


@_public
def index(x, at):
    """x[at], as numpy has it: integers, slices, None, Ellipsis, arrays or lists of integers, and masks whose values are
    known. Of tensors of a graph, computed indices count from the front."""
    x = _like(x)
    at = _subscripts(x, at if isinstance(at, tuple) else (at,))
    # Beside an array, integers are arrays of no axes, whose places count for where the arrays' axes go.
    arrays, places, axis = [], [], 0
    for place, one in enumerate(at):
        if one is None:
            x = unsqueeze(x, axis)
            axis += 1
        elif isinstance(one, slice):
            if one != slice(None):
                x = slice_axis(x, axis, one.start, one.stop, 1 if one.step is None else one.step)
            axis += 1
        elif isinstance(one, int):
            x = _picked(x, axis, one)
            places.append((place, axis))
        else:
            arrays.append((axis, one))
            places.append((place, axis))
            axis += 1
    if not arrays:
        return x
    together = all(b - a == 1 for (a, _), (b, _) in zip(places, places[1:]))
    return _gathered(x, arrays, places[0][1] if together else 0)


def _subscripts(x, at):
    """One for each axis of x, and Nones: masks as arrays of integers, Ellipsis as slices."""
    found = []
    for one in at:
        if one is None or one is Ellipsis or isinstance(one, slice):
            found.append(one)
        elif isinstance(one, int) and not isinstance(one, bool):
            found.append(one)
        elif not hasattr(one, "shape") and hasattr(one, "__index__") and not isinstance(one, bool):
            found.append(one.__index__())
        else:
            found += _indices(one)
    taken = sum(1 for one in found if one is not None and one is not Ellipsis)
    if taken > x.ndim:
        raise IndexError(f"{taken} indices for {x.type!r}")
    dots = [i for i, one in enumerate(found) if one is Ellipsis]
    if len(dots) > 1:
        raise IndexError("more than one Ellipsis")
    position = dots[0] if dots else len(found)
    return [*found[:position], *[slice(None)] * (x.ndim - taken), *found[position + 1:]]


def _indices(one):
    """An array of integers as it is, a mask as the indices where it is true, one array for each of its axes."""
    if isinstance(one, (str, float, _complex, bool)):
        raise IndexError(f"{one!r} is no subscript: integers, slices, None, Ellipsis and arrays of integers are")
    is_empty_list = isinstance(one, (list, tuple)) and len(one) == 0
    one = functions["zeros"]((0,), "i64") if is_empty_list else _like(one)
    if one.dtype == "bool" and not one.ndim:
        raise IndexError("a bool without axes is no subscript")
    if one.dtype == "bool":
        if isinstance(one, Tensor):
            raise IndexError("a mask decides the result's size by its values, which are not known while a program is "
                             "recorded: use where(), or arrays of numpy's")
        return [Buffer(indices) for indices in one.numpy().nonzero()]
    if not _is_whole(one):
        raise IndexError(f"{one.type!r} is no array of integers")
    return [one if one.dtype in ("i32", "i64") else _cast(one, "i64")]


def _picked(x, axis, at):
    """Element `at` of an axis."""
    size = x.shape[axis]
    if isinstance(size, int):
        if not -size <= at < size:
            raise IndexError(f"index {at} of axis {axis}, which has {size} elements")
        at %= size
    end = at + 1 if at != -1 else _TO_END
    return _ops["squeeze"](_ops["slice"](x, axis=axis, begin=at, end=end), axis=axis)


def _gathered(x, arrays, to):
    """Elements at arrays of integers, [(axis, array), ...], which are broadcast; their axes stand at axis `to`."""
    if len(arrays) == 1:
        axis, one = arrays[0]
        if isinstance(x, Tensor) or isinstance(one, Tensor):
            made = _ops["gather"](x, _from_front(one, x.shape[axis], axis), axis=axis)
        else:
            try:  # most indices count from the front
                made = _ops["gather"](x, one, axis=axis)
            except Error as error:
                if error.code != "OutOfRange":
                    raise
                made = _ops["gather"](x, _from_front(one, x.shape[axis], axis), axis=axis)
        return made if axis == to else _moved(made, axis, one.ndim, to)
    arrays = [(axis, _from_front(one, x.shape[axis], axis)) for axis, one in arrays]
    first = arrays[0][0]
    order = [axis for axis, _ in arrays]
    rest = [axis for axis in range(x.ndim) if axis not in order]
    before = [axis for axis in rest if axis < first]
    x = _ops["permute"](x, order=tuple(before + order + rest[len(before):]))
    sizes = x.shape[first:first + len(order)]
    if not all(isinstance(size, int) for size in sizes[1:]):
        raise IndexError(f"arrays as subscripts of axes of {x.type!r} whose sizes are not known")
    flat, is_valid = None, None
    for size, (_, one) in zip(sizes, arrays):
        one = _cast(one, "i64")
        if isinstance(one, Tensor) and isinstance(size, int):  # what is out of range must not be another's place
            fits = (one >= 0) & (one < size)
            is_valid = fits if is_valid is None else is_valid & fits
        flat = one if flat is None else flat * size + one
    if is_valid is not None:
        flat = _ops["where"](is_valid, flat, -1)
    made = _ops["gather"](_ops["merge_axes"](x, axis=first, count=len(order)), flat, axis=first)
    return made if first == to else _moved(made, first, flat.ndim, to)


def _moved(x, axis, count, to):
    """`count` axes from `axis` on, moved to `to`."""
    moved = list(range(axis, axis + count))
    rest = [one for one in range(x.ndim) if one not in moved]
    return _ops["permute"](x, order=tuple(rest[:to] + moved + rest[to:]))


def _from_front(one, size, axis):
    """Indices whose values are known, as those that count from the front; IndexError where they are out of range."""
    if isinstance(one, Tensor) or 0 in one.shape:
        return one
    values = one.numpy()
    low, high = int(values.min()), int(values.max())
    if isinstance(size, int) and not -size <= low <= high < size:
        raise IndexError(f"index {low if low < -size else high} of axis {axis}, which has {size} elements")
    if low >= 0:
        return one
    if not isinstance(size, int):
        raise IndexError(f"index {low} of axis {axis}, whose size is not known: arrays of indices count from the front")
    return Buffer((values + size * (values < 0)).astype(values.dtype))


@_public
def full(dims, value, dtype="f32"):
    """An array of one value."""
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    if isinstance(value, int) and abs(value) > 2**53:  # the op has it as a real number
        return _ops["broadcast_to"](Buffer(value).astype(dtype), dims=dims)
    return _ops["full"](value=float(value), dims=dims, dtype=dtype)


@_public
def zeros(dims, dtype="f32"):
    return full(dims, 0, dtype)


@_public
def ones(dims, dtype="f32"):
    return full(dims, 1, dtype)


@_public
def full_like(x, value, dtype=None):
    """An array of one value with the sizes of x, also of those that are not known."""
    x = _like(x)
    dtype = dtype or x.dtype
    if all(isinstance(size, int) for size in x.shape):
        return full(x.shape, value, dtype)
    return _ops["broadcast_to"](full((), value, dtype), x)


@_public
def zeros_like(x, dtype=None):
    return full_like(x, 0, dtype)


@_public
def ones_like(x, dtype=None):
    return full_like(x, 1, dtype)


@_public
def eye(size, dtype="f32"):
    """The matrix with ones on its diagonal."""
    places = arange(size)
    return _cast(places[:, None] == places, dtype)


@_public
def one_hot(indices, count, dtype="f32"):
    """1 at each index along a new last axis of `count`, else 0."""
    indices = _like(indices)
    return _cast(indices[..., None] == _ops["iota"](size=count, dtype=indices.dtype), dtype)


@_public
def flip(x, axis=None):
    """x backwards along one axis, several, or all (None)."""
    x = _like(x)
    for one in _axes(x, axis):
        x = slice_axis(x, one, None, None, -1)
    return x


@_public
def tril(x, diagonal=0):
    """The lower triangle of each matrix, up to a diagonal above the main one, or below it; 0 elsewhere."""
    return _triangle(x, diagonal, _ops["le"])


@_public
def triu(x, diagonal=0):
    """The upper triangle, from a diagonal on."""
    return _triangle(x, diagonal, _ops["ge"])


def _triangle(x, diagonal, kept):
    x = _like(x)
    rows, columns = (_ops["iota"](x, axis=axis, dtype="i64") for axis in (x.ndim - 2, x.ndim - 1))
    return _ops["where"](kept(columns - rows[:, None], diagonal), x, zeros_like(x))


@_public
def logsumexp(x, axis=None, keep_dims=False, *, keepdims=None):
    """log(sum(exp(x))) without overflow."""
    x = _as_real(_like(x))
    axes = _axes(x, axis)
    high = functions["max"](x, axes, True)
    high = _ops["where"](_ops["is_finite"](high), high, 0.0)
    made = _ops["log"](functions["sum"](_ops["exp"](x - high), axes, True)) + high
    return made if _keeps(keep_dims, keepdims) else squeeze(made, axes)


@_public
def linspace(start, stop, count, dtype="f32"):
    """`count` numbers from start to stop, which is the last one."""
    step = (stop - start) / (count - 1) if count > 1 else 0.0
    return _ops["iota"](size=count, dtype=dtype) * float(step) + float(start)


@_public
def mse_loss(x, target):
    """The mean of (x - target)^2."""
    return functions["mean"](_ops["square"](_like(x) - target))


@_public
def cross_entropy(logits, labels):
    """The mean of -log softmax(logits)[label], of logits [.., classes] and labels [..], integers in [0, classes)."""
    chosen = _ops["take_along"](functions["log_softmax"](logits), unsqueeze(labels, -1), axis=-1)
    return -functions["mean"](chosen)


@_public
def arange(start, stop=None, step=1, dtype=None):
    """start, start + step, ... before stop; i64, or f32 where a number is not whole."""
    if stop is None:
        start, stop = 0, start
    if isinstance(stop, str) or isinstance(start, str):
        raise TypeError(f"arange: the size {stop!r} is known in a run only: ops.iota(x, axis=...) counts along an axis")
    if _all_whole(start, stop, step):
        size = len(range(start, stop, step))
        return _ops["iota"](size=size, start=start, step=step, dtype=dtype or "i64")
    size = max(_ceil((stop - start) / step), 0)
    return _ops["iota"](size=size, dtype=dtype or "f32") * float(step) + float(start)


def _all_whole(*numbers):
    return all(isinstance(one, int) for one in numbers)


@_public
def view_as_real(z):
    """f32[..., 2] of c64, in the same memory: real and imaginary parts."""
    return _ops["bitcast"](_of_type(z, "c64", "view_as_real"), dtype="f32")


@_public
def view_as_complex(x):
    """c64 of f32[..., 2], in the same memory where that is dense."""
    return _ops["bitcast"](_of_type(x, "f32", "view_as_complex"), dtype="c64")


def _of_type(x, dtype, name):
    x = _like(x)
    if x.dtype != dtype:
        raise TypeError(f"{name}: {x.type!r} is not {dtype}")
    return x


@_public
def complex(re, im):
    """re + im i, of two arrays of f32."""
    return view_as_complex(stack([re, im], -1))


@_public
def polar(magnitude, angle):
    """magnitude * e^(i angle)."""
    magnitude, angle = _like(magnitude), _like(angle)
    return complex(magnitude * _ops["cos"](angle), magnitude * _ops["sin"](angle))


@_public
def real(x):
    """The real parts; x itself if it is real."""
    x = _like(x)
    return view_as_real(x)[..., 0] if x.dtype == "c64" else x


@_public
def imag(x):
    """The imaginary parts; 0 if x is real."""
    x = _like(x)
    return view_as_real(x)[..., 1] if x.dtype == "c64" else zeros_like(x)


@_public
def conj(x):
    x = _like(x)
    return complex(real(x), -imag(x)) if x.dtype == "c64" else x


@_public
def angle(x):
    """The angle in [-pi, pi]; of real numbers 0 or pi."""
    x = _like(x)
    return _ops["atan2"](imag(x), real(x)) if x.dtype == "c64" else _ops["atan2"](0.0, x)


def _transform_axis(dtype, axis):
    """Without an axis: the last one for complex numbers, as numpy has it, and 0 for pairs, as the ops have it."""
    return axis if axis is not None else -1 if dtype == "c64" else 0


@_public
def fft(x, axis=None, inverse=False):
    """The Fourier transform along an axis: of c64, or of pairs, f32[..., 2] or f64[..., 2]."""
    x = _like(x)
    return _ops["fft"](x, axis=_transform_axis(x.dtype, axis), inverse=inverse)


@_public
def ifft(x, axis=None):
    return fft(x, axis, True)


@_public
def rfft(x, axis=None, dtype=None):
    """The transform of real numbers, half of which says all: as pairs, or as complex numbers, `dtype="c64"`."""
    made = _ops["rfft"](_like(x), axis=_transform_axis(dtype, axis))
    return view_as_complex(made) if dtype == "c64" else made


@_public
def irfft(x, size, axis=None):
    """`size` real numbers of the half of their transform."""
    x = _like(x)
    return _ops["irfft"](x, axis=_transform_axis(x.dtype, axis), size=size)


@_public
def linear(x, w, bias=None, residual=None):
    """x times the transpose of w, of [N, K]: y[..., n] = sum_k x[..., k] * w[n, k] + bias[n] + residual[..., n]."""
    return _ops["linear"](_like(x), _like(w), bias=bias, residual=residual)


@_public
def gelu(x, approximate=False):
    return _ops["gelu_tanh" if approximate else "gelu"](_like(x))


@_public
def swiglu(x, y):
    """silu(x) * y."""
    return _ops["silu"](x) * y


@_public
def clip(x, low=None, high=None, *, min=None, max=None, out=None):
    """x within [low, high], which `min` and `max` spell, too; None is no limit. Limits may be arrays."""
    _no_out("clip", out)
    x, low, high = _like(x), low if min is None else min, high if max is None else max
    if all(isinstance(one, float) or isinstance(one, int) and abs(one) <= 2**53 for one in (low, high)):
        return _ops["clamp"](x, min=float(low), max=float(high))
    if low is not None:
        x = _ops["maximum"](x, low)
    return x if high is None else _ops["minimum"](x, high)


@_public
def round(x, decimals=0, out=None):
    """The nearest integer, or multiple of 10^-decimals; halves go to the even one."""
    _no_out("round", out)
    x = _like(x)
    if decimals and x.dtype.is_floating:
        return _ops["round"](x * 10.0**decimals) / 10.0**decimals
    return _ops["round"](x) if x.dtype.is_floating else x


@_public
def log10(x):
    """The logarithm to base 10."""
    return _ops["log2"](_like(x)) * _math_log10(2)


@_public
def pad(x, before=(), after=(), value=0.0, mode=""):
    """Elements around x: how many before and after each axis, as two tuples or as numpy has them, one pair for each
    axis, one for all, or a number for all."""
    x = _like(x)
    if isinstance(before, int) and after == ():
        before = ((before, before),) * x.ndim
    if len(before) == 2 and after == () and all(isinstance(one, int) for one in before):
        before = (tuple(before),) * x.ndim
    if after == () and before and all(isinstance(one, (tuple, list)) and len(one) == 2 for one in before):
        before, after = tuple(zip(*before))
    return _ops["pad"](x, before=tuple(before), after=tuple(after), value=float(value), mode=mode)


@_public
def variance(x, axis=None, correction=1, keep_dims=False):
    """The mean of the squared distances from the mean, of n - correction; correction 0 is numpy's var."""
    x = _like(x)
    axes = _axes(x, axis)
    difference = x - functions["mean"](x, axes, True)
    squares = functions["mean"](difference * difference, axes, keep_dims)
    if correction == 0:
        return squares
    sizes = [x.shape[a] for a in axes]
    if not all(isinstance(size, int) for size in sizes):
        raise ValueError(f"variance: correction {correction} over a size that is not known, of {x.type!r}")
    count = _prod(sizes)
    return squares * (count / (count - correction) if count != correction else float("nan"))


@_public
def var(x, axis=None, ddof=0, keep_dims=False, *, keepdims=None, dtype=None, out=None):
    """The variance, as numpy has it: the squared distances from the mean by n - ddof. PyTorch's default is ddof=1."""
    _no_out("var", out)
    x = _as_real(_like(x)) if dtype is None else _cast(_like(x), dtype)
    return variance(x, axis, ddof, _keeps(keep_dims, keepdims))


@_public
def std(x, axis=None, ddof=0, keep_dims=False, *, keepdims=None, dtype=None, out=None):
    """The square root of var."""
    return _ops["sqrt"](var(x, axis, ddof, keep_dims, keepdims=keepdims, dtype=dtype, out=out))


# Decompositions: the ops give their parts as one array, these functions the parts.

@_public
def eigh(a):
    """(values [.., n], ascending, vectors [.., n, n], in columns) of a symmetric matrix: numpy.linalg.eigh."""
    made = _ops["eigh"](_like(a))
    return made[..., 0, :], made[..., 1:, :]


@_public
def svd(a):
    """(u [.., m, k], values [.., k], descending, v [.., k, n]): a = u diag(values) v, numpy.linalg.svd without
    full_matrices."""
    a = _like(a)
    rows, made = a.shape[-2], _ops["svd"](a)
    return swapaxes(made[..., :rows], -1, -2), made[..., rows], made[..., rows + 1:]


@_public
def qr(a):
    """(q [.., m, k], r [.., k, n]): a = q r, numpy.linalg.qr."""
    a = _like(a)
    rows, made = a.shape[-2], _ops["qr"](a)
    return swapaxes(made[..., :rows], -1, -2), made[..., rows:]


@_public
def lu(a):
    """(factors [.., n, n]: u, and under its diagonal l without its ones; rows i64[.., n]: row i of l u is row
    rows[i] of a)."""
    made = _ops["lu"](_like(a))
    return made[..., 1:, :], _cast(made[..., 0, :], "i64")


@_public
def slogdet(a):
    """(the determinant's sign, the logarithm of its absolute value): numpy.linalg.slogdet."""
    made = _ops["slogdet"](_like(a))
    return made[..., 0], made[..., 1]


@_public
def inverse(a):
    """The inverse of each matrix; infinities or NaN for a singular one."""
    a = _like(a)
    return _ops["solve"](a, _ops["broadcast_to"](eye(a.shape[-1], a.dtype), dims=a.shape))


# numpy's functions of arrays

_PLAIN = ("exp exp2 expm1 log log2 log1p sqrt sin cos tan sinh cosh tanh floor ceil trunc reciprocal").split()
_UFUNCS = {
    **{name: (lambda op: lambda x: op(_as_real(_like(x))))(_ops[name]) for name in _PLAIN},
    **{ours.replace("a", "arc", 1): (lambda op: lambda x: op(_as_real(_like(x))))(_ops[ours])
       for ours in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "absolute": abs, "fabs": abs, "negative": lambda x: -x, "positive": lambda x: +x, "square": _ops["square"],
    "sign": _ops["sign"], "rint": lambda x: functions["round"](x), "log10": lambda x: functions["log10"](x),
    "isnan": _ops["is_nan"], "isinf": _ops["is_inf"], "isfinite": _ops["is_finite"], "invert": lambda x: ~x,
    "conjugate": lambda x: functions["conj"](x), "logical_not": lambda x: _ops["logical_not"](x != 0),
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b, "true_divide": lambda a, b: a / b, "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b, "power": lambda a, b: a**b, "matmul": lambda a, b: a @ b,
    "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b, "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b, "greater": lambda a, b: a > b, "greater_equal": lambda a, b: a >= b,
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
    "left_shift": lambda a, b: a << b, "right_shift": lambda a, b: a >> b,
    **{name: (lambda op: lambda a, b: op(*common(a, b)))(_ops[ours])
       for name, ours in (("maximum", "maximum"), ("minimum", "minimum"), ("fmod", "fmod"), ("arctan2", "atan2"),
                          ("hypot", "hypot"))},
    **{name: (lambda op: lambda a, b: op(_like(a) != 0, _like(b) != 0))(_ops[name])
       for name in ("logical_and", "logical_or", "logical_xor")},
}


def _array_ufunc(self, ufunc, method, *inputs, **options):
    """numpy.exp(x) and such: ours where there is one, which tensors of a graph need; numpy's otherwise."""
    ours = _UFUNCS.get(ufunc.__name__)
    if ours and method == "__call__" and not options:
        return ours(*(_operand(one) for one in inputs))
    if any(isinstance(one, Tensor) for one in inputs):
        raise TypeError(f"numpy.{ufunc.__name__}: a tensor of a graph has no value while it is recorded: use tenon.ops")
    return getattr(ufunc, method)(*(one.numpy() if isinstance(one, (Buffer, HostBuffer)) else one for one in inputs),
                                  **options)


def _no_value(what):
    def refuse(self, *_, **__):
        raise TypeError(f"{what}: {self.type!r} of a graph has no value while it is recorded")
    return refuse


def _length(x):
    if x.ndim and isinstance(x.shape[0], int):
        return x.shape[0]
    raise TypeError(f"{x.type!r} has no length that is known")


def _rows(x):
    """x[0], x[1], ..."""
    if not x.ndim:
        raise TypeError(f"{x.type!r} has no axis to go along")
    if not isinstance(x.shape[0], int):
        raise TypeError(f"the first axis of {x.type!r} is known in a run only: use scan() or while_loop()")
    return (x[i] for i in range(x.shape[0]))


def _set_item(x, at, value):
    raise TypeError("arrays and tensors do not change: x.numpy()[...] = value writes into memory of one's own; "
                    "ops.where(), ops.update_slice() and ops.scatter() make another array")


def _element_count(x):
    if all(isinstance(size, int) for size in x.shape):
        return _prod(x.shape)
    raise TypeError(f"the number of elements of {x.type!r} is known in a run only")


def install():
    """Methods of arrays and tensors, functions of the same names, and the operators that the compiled part lacks."""

    def reflected(op):
        return lambda a, b: op(b, a)

    methods = (
        "reshape permute transpose flatten unsqueeze squeeze swapaxes chunk sum mean prod max min any all var std "
        "softmax log_softmax cumsum cumprod sort argsort argmax argmin clip round variance gelu conj angle broadcast_to"
    ).split()
    plain = "abs neg sign square sqrt rsqrt exp log sin cos tanh sigmoid relu silu floor ceil".split()
    for kind in (Tensor, Buffer, HostBuffer):
        for name in ("and", "or", "xor"):
            function = _logical(f"bitwise_{name}")
            setattr(kind, f"__{name}__", function)
            setattr(kind, f"__r{name}__", reflected(function))
        kind.__hash__ = object.__hash__
        kind.__invert__ = lambda self: _ops["logical_not" if self.dtype == "bool" else "bitwise_not"](self)
        kind.__divmod__ = lambda self, other: (self // other, self % other)
        kind.__rdivmod__ = lambda self, other: (other // self, other % self)
        kind.__round__ = lambda self, decimals=0: functions["round"](self, decimals)
        kind.__getitem__ = index
        kind.__setitem__ = _set_item
        kind.__iter__ = _rows
        kind.__array_ufunc__ = _array_ufunc
        kind.T = property(lambda self: transpose(self))
        kind.mT = property(lambda self: swapaxes(self, -1, -2))
        kind.real = property(real)
        kind.imag = property(imag)
        kind.size = property(_element_count)
        kind.itemsize = property(lambda self: self.dtype.block_bytes)
        for name in methods:
            setattr(kind, name, functions[name])
        kind.clamp, kind.ravel = clip, flatten
        kind.matmul = lambda self, other: self @ other
        for name in plain:
            setattr(kind, name, (lambda op: lambda self, **attributes: op(_like(self), **attributes))(_ops[name]))
    _tenon.Op.__doc__ = property(_op_doc)
    for kind in (Buffer, HostBuffer):
        kind.__contains__ = lambda self, value: (self == value).any().item()
        kind.__index__ = _as_index
        kind.__format__ = lambda self, spec: format(self.item() if spec or not self.ndim else str(self), spec)
        kind.tolist = lambda self: self.numpy().tolist()
        kind.copy = lambda self: self.astype(self.dtype)
        kind._repr_html_ = _array_html
    Tensor.cast = lambda self, dtype: _cast(self, dtype)
    Tensor.astype = Tensor.cast
    Tensor.__len__ = _length
    for name in ("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__complex__"):
        setattr(Tensor, name, _no_value({"__array__": "numpy.asarray"}.get(name, name.strip("_"))))


def _op_doc(op):
    """How an op is called, and what it computes."""
    try:
        from ._op_docs import DOCS
    except ImportError:  # a build of which the stubs have not been written
        DOCS = {}
    called = repr(op)
    return called + "\n\n" + DOCS[op.name] if op.name in DOCS else called


def _as_index(array):
    value = array.item()
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{array.type!r} is no integer")
    return value


def _array_html(array):
    from .pictures import array_html  # and numpy, which not every program needs

    return array_html(array)


def _logical(op):
    of_booleans = _ops[{"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}[op]]
    of_bits = _ops[op]


    def logical(a, b):
        a, b = common(a, b)
        first = a if isinstance(a, (Tensor, Buffer)) else b
        return (of_booleans if first.dtype == "bool" else of_bits)(a, b)

    return logical

"""What operators and functions of arrays take, and of which type they compute."""

from builtins import complex as _complex
from functools import wraps as _wraps

from .. import _tenon

_ops = _tenon.all_ops()
functions = {}
EPSILONS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}  # from 1 to the next larger number


def _public(function):
    functions[function.__name__] = function
    return function


# Arguments, and what the ops, numpy or PyTorch call them.
_OTHER_NAMES = {
    "axis": ("axes", "dim"), "axes": ("axis", "dim"), "order": ("axes", "dims"), "keep_dims": ("keepdims", "keepdim"),
    "dims": ("shape", "size"), "shape": ("dims", "size"), "value": ("fill_value",), "low": ("min", "a_min"),
    "high": ("max", "a_max"), "w": ("weight",), "ddof": ("correction",), "correction": ("ddof",),
    "count": ("repeats", "num"), "groups": ("num_groups",), "kernel": ("kernel_size",),
    "positive_weight": ("pos_weight",), "step": ("dx",),
}


def _spelled(function):
    """The function, which takes its arguments by their other names, too."""
    code = getattr(function, "__wrapped__", function).__code__
    known = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    meant = {other: name for name in known for other in _OTHER_NAMES.get(name, ()) if other not in known}
    if not meant:
        return function

    @_wraps(function)
    def call(*args, **words):
        for word in words.keys() & meant.keys() if words else ():
            if meant[word] in words:
                raise TypeError(f"{function.__name__}: {meant[word]} and {word} are the same argument")
            words[meant[word]] = words.pop(word)
        return function(*args, **words)

    call.other_names = tuple(meant)  # for type stubs
    return call


def take_other_spellings():
    """Once all functions are known."""
    for name, function in functions.items():
        functions[name] = _spelled(function)


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


def are_booleans(a, b):
    """Whether both of two operands are, numbers or arrays."""
    return all(isinstance(one, bool) or isinstance(one, (Tensor, Buffer)) and one.dtype == "bool" for one in (a, b))


def booleans_as_numbers(a, b):
    """Two booleans as i8, the type in which numpy divides them."""
    return tuple(_cast(_like(one), "i8") for one in (a, b))


def _floating(x):
    """What integers beside x become."""
    return x.dtype if x.dtype.is_floating and not x.dtype.is_block else "f32"


def _beside_number(x, number):
    if isinstance(number, (float, _complex)):
        return _as_real(x)
    return _cast(x, "i64") if x.dtype == "bool" and not isinstance(number, bool) else x


def _axes(x, axis):
    """The axes of a reduction as ops take them: all for None."""
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(axis) if hasattr(axis, "__len__") or isinstance(axis, range) else (axis,)


def _axis_of(x, axis, name, rank=None):
    """An axis counted from the front, of x or of what has `rank` axes."""
    rank = x.ndim if rank is None else rank
    if not hasattr(axis, "__index__"):
        raise TypeError(f"{name}: {axis!r} is no axis")
    if not -rank <= axis < rank:
        raise IndexError(f"{name}: axis {axis} out of range for {x.type!r}")
    return axis % rank

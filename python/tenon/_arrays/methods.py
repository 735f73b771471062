"""Methods and operators of arrays and tensors, and what numpy asks of them."""

from math import prod as _prod

from .. import _tenon
from .complex_numbers import imag, real
from .indexing import index
from .operands import (Buffer, HostBuffer, Tensor, _as_real, _axis_of, _cast, _is_whole, _like, _operand, _ops, are_booleans,
                       booleans_as_numbers, common, functions)
from .shaping import swapaxes, transpose

_PLAIN = ("exp exp2 expm1 log log2 log1p sqrt sin cos tan sinh cosh tanh reciprocal").split()
_UFUNCS = {
    **{name: (lambda op: lambda x: op(_as_real(_like(x))))(_ops[name]) for name in _PLAIN},
    **{ours.replace("a", "arc", 1): (lambda op: lambda x: op(_as_real(_like(x))))(_ops[ours])
       for ours in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    **{name: (lambda op: lambda x: x if _is_whole(x) else op(x))(_ops[name]) for name in ("floor", "ceil", "trunc")},
    "absolute": abs, "fabs": abs, "negative": lambda x: -x, "positive": lambda x: +x, "square": _ops["square"],
    "sign": _ops["sign"], "rint": lambda x: functions["round"](x), "log10": lambda x: functions["log10"](x),
    **{f"is{name}": (lambda op: lambda x: op(_as_real(_like(x))))(_ops[f"is_{name}"])
       for name in ("nan", "inf", "finite")}, "invert": lambda x: ~x,
    "conjugate": lambda x: functions["conj"](x), "logical_not": lambda x: _ops["logical_not"](x != 0),
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b, "true_divide": lambda a, b: a / b, "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b, "power": lambda a, b: a**b, "matmul": lambda a, b: a @ b,
    "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b, "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b, "greater": lambda a, b: a > b, "greater_equal": lambda a, b: a >= b,
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
    "left_shift": lambda a, b: a << b, "right_shift": lambda a, b: a >> b,
    "fmod": lambda a, b: _ops["fmod"](*_numbers(*common(a, b))),
    **{name: (lambda op: lambda a, b: op(*map(_as_floating, common(a, b))))(_ops[ours])
       for name, ours in (("arctan2", "atan2"), ("hypot", "hypot"))},
    **{name: (lambda *ops: lambda a, b: _extreme(*ops, *common(a, b)))(_ops[name], _ops[logical])
       for name, logical in (("maximum", "logical_or"), ("minimum", "logical_and"))},
    **{name: (lambda op: lambda a, b: op(_like(a) != 0, _like(b) != 0))(_ops[name])
       for name in ("logical_and", "logical_or", "logical_xor")},
}


def _as_floating(x):
    return x if isinstance(x, (bool, int, float, complex)) else _as_real(x)


def _numbers(a, b):
    return booleans_as_numbers(a, b) if are_booleans(a, b) else (a, b)


def _extreme(op, logical, a, b):
    """numpy.maximum and numpy.minimum, of booleans, too."""
    return (logical if are_booleans(a, b) else op)(a, b)


def _array_ufunc(self, ufunc, method, *inputs, **options):
    """numpy.exp(x) and such: ours where there is one, which tensors of a graph need; numpy's otherwise."""
    ours = _UFUNCS.get(ufunc.__name__)
    if ours and method == "__call__" and not options:
        return ours(*(_operand(one) for one in inputs))
    if any(isinstance(one, Tensor) for one in inputs):
        raise TypeError(f"numpy.{ufunc.__name__}: a tensor of a graph has no value while it is recorded: use tenon.ops")
    return getattr(ufunc, method)(*(one.numpy() if isinstance(one, (Buffer, HostBuffer)) else one for one in inputs),
                                  **options)


def _of_numpy(name, ours=None):
    """Our function for one of numpy's, without those arguments that say where and how numpy computes."""
    function = functions[ours or name] if (ours or name) in functions else _ops[ours or name]

    def call(*args, order=None, out=None, copy=None, **words):
        _check_out(name, out)
        _check_order(name, order)
        return function(*args, **words)

    return call


def _check_out(name, out):
    if out is not None:
        raise TypeError(f"numpy.{name}: a program has no array to write to, out={type(out).__name__}")


def _check_order(name, order):
    if order not in (None, "C", "K", "A"):
        raise TypeError(f"numpy.{name}: order={order!r}: elements of a program are in the order of C; "
                        "ops.permute() gives another one")


def _reshape(a, shape=None, order="C", *, newshape=None, copy=None):
    _check_order("reshape", order)
    return functions["reshape"](a, newshape if shape is None else shape)


def _ravel(a, order="C"):
    _check_order("ravel", order)
    return functions["flatten"](a)


def _concatenate(arrays, axis=0, out=None):
    _check_out("concatenate", out)
    if axis is None:
        arrays, axis = [functions["flatten"](one) for one in arrays], 0
    return functions["concat"](arrays, axis=axis)


def _stack(arrays, axis=0, out=None):
    _check_out("stack", out)
    return functions["stack"](arrays, axis)


def _vstack(arrays):
    arrays = [_like(one) for one in arrays]
    return _concatenate([one if one.ndim > 1 else functions["reshape"](one, (1, -1)) for one in arrays])


def _hstack(arrays):
    arrays = [_like(one) for one in arrays]
    arrays = [one if one.ndim else one[None] for one in arrays]
    return _concatenate(arrays, 0 if arrays and arrays[0].ndim == 1 else 1)


def _diff(a, n=1, axis=-1):
    a = _like(a)
    for _ in range(n):
        after, before = functions["slice_axis"](a, axis, 1), functions["slice_axis"](a, axis, 0, -1)
        a = after != before if a.dtype == "bool" else after - before
    return a


def _take(x, indices, axis=None):
    """numpy.take: elements at indices along an axis, or of all elements in order (None)."""
    x, axis = (functions["flatten"](x), 0) if axis is None else (_like(x), axis)
    return index(x, (slice(None),) * _axis_of(x, axis, "take") + (indices,))


def _nonzero(x):
    """numpy.nonzero: the places of elements that are not 0, an array for each axis."""
    return tuple(Buffer(places) for places in x.numpy().nonzero())


def _where(condition, a, b):
    condition = _like(condition)
    return _ops["where"](condition if condition.dtype == "bool" else condition != 0, *common(a, b))


def _dot(a, b):
    """numpy.dot: the product of two vectors or matrices, or with a number."""
    a, b = _like(a), _like(b)
    if not a.ndim or not b.ndim:
        return a * b
    if b.ndim > 2:
        raise TypeError(f"numpy.dot of {b.type!r}: ops.tensordot() and ops.einsum() say which axes are meant")
    return a @ b


def _norm(x, ord=None, axis=None, keepdims=False):
    x = _like(x)
    if ord is not None and (isinstance(axis, tuple) or axis is None and x.ndim > 1):
        raise TypeError(f"numpy.linalg.norm: norm {ord!r} of matrices: ops.svd() has their singular values")
    return functions["norm"](x, 2.0 if ord is None else float(ord), axis, keepdims)


def _without_out(name, out):
    _check_out(name, out)
    return functions[name]


_FUNCTIONS = {
    **{name: _of_numpy(name) for name in (
        "swapaxes squeeze flip roll tile tril triu broadcast_to outer inner kron einsum tensordot sort "
        "argsort count_nonzero nan_to_num solve cholesky det slogdet zeros_like ones_like full_like").split()},
    **{name: _of_numpy(name, ours) for name, ours in (
        ("expand_dims", "unsqueeze"), ("repeat", "repeat_interleave"), ("take_along_axis", "take_along"),
        ("inv", "inverse"))},
    "reshape": _reshape, "ravel": _ravel, "concatenate": _concatenate, "stack": _stack,
    **{name: (lambda name: lambda *args, out=None, **words: _without_out(name, out)(*args, **words))(name)
       for name in "quantile nanquantile median nanmedian nanmean nansum interp".split()},
    "histogram": lambda a, bins=10, range=None, density=None, weights=None: functions["histogram"](
        a, bins, range, weights, bool(density)),
    "trapezoid": lambda y, x=None, dx=1.0, axis=-1: functions["trapezoid"](y, x, dx, axis),
    "cov": lambda m, *, bias=False, ddof=None: functions["cov"](m, (0 if bias else 1) if ddof is None else ddof),
    "corrcoef": lambda m: functions["corrcoef"](m),
    "vstack": _vstack, "hstack": _hstack, "diff": _diff, "take": _take, "nonzero": lambda x: x.nonzero(),
    "isclose": lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False: functions["isclose"](a, b, rtol, atol, equal_nan),
    "where": _where, "dot": _dot, "norm": _norm,
    "cumsum": lambda x, axis=None: functions["cumsum"](x, axis),
    "cumprod": lambda x, axis=None: functions["cumprod"](x, axis),
    "pad": lambda x, width, mode="constant", constant_values=0: functions["pad"](x, width, (), constant_values, mode),
    "diagonal": lambda x, offset=0, axis1=0, axis2=1: functions["diagonal"](x, offset, axis1, axis2),
    "trace": lambda x, offset=0, axis1=0, axis2=1: functions["trace"](x, offset, axis1, axis2),
}
# numpy.linalg's functions that differ from numpy's of the same name.
_OF_LINALG = {name: (lambda name: lambda x, *, offset=0: functions[name](x, offset))(name)
              for name in ("diagonal", "trace")}


def _array_function(self, function, types, args, words):
    """numpy.concatenate([x, y]) and such of tensors of a graph: ours, or what numpy does by methods alone."""
    name = function.__name__
    ours = function.__module__ == "numpy.linalg" and _OF_LINALG.get(name) or _FUNCTIONS.get(name)
    if ours:
        return ours(*args, **words)
    return function._implementation(*args, **words)


def _no_value(what):
    instead = ": tenon.ops has functions of tensors" if what == "numpy.asarray" else ""

    def refuse(self, *_, **__):
        """Refused: a tensor of a graph has no value while it is recorded."""
        raise TypeError(f"{what}: {self.type!r} of a graph has no value while it is recorded{instead}")
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
    """The number of elements."""
    if all(isinstance(size, int) for size in x.shape):
        return _prod(x.shape)
    raise TypeError(f"the number of elements of {x.type!r} is known in a run only")


def install():
    """Methods of arrays and tensors, functions of the same names, and the operators that the compiled part lacks."""

    def reflected(op):
        return lambda a, b: op(b, a)

    methods = (
        "reshape permute transpose flatten unsqueeze squeeze swapaxes chunk sum mean prod max min any all var std "
        "softmax log_softmax sort argsort argmax argmin clip round variance gelu conj angle broadcast_to split roll "
        "tile repeat_interleave masked_fill norm"
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
        kind.T = property(lambda self: transpose(self), doc="All axes in the opposite order.")
        kind.mT = property(lambda self: swapaxes(self, -1, -2), doc="The last two axes swapped.")
        kind.real = property(real)
        kind.imag = property(imag)
        kind.size = property(_element_count)
        kind.itemsize = property(lambda self: self.dtype.block_bytes, doc="Bytes of an element, or of a block.")
        for name in methods:
            setattr(kind, name, functions[name])
        kind.clamp, kind.ravel = functions["clip"], functions["flatten"]
        for name, make in _AS_NUMPY.items():
            setattr(kind, name, make(name))
        kind.matmul = _matmul
        kind.take, kind.repeat = _take, functions["repeat_interleave"]
        kind.dot, kind.conjugate = _dot, functions["conj"]
        kind.cast = _as_type
        for name in plain:
            setattr(kind, name, _method(name))
    _tenon.Op.__doc__ = property(_op_doc)
    _tenon.Op.__signature__ = property(_op_signature)
    for kind in (Buffer, HostBuffer):
        kind.__contains__ = _contains
        kind.__index__ = _as_index
        kind.__format__ = lambda self, spec: format(self.item() if spec or not self.ndim else str(self), spec)
        kind.tolist, kind.nonzero = _to_list, _nonzero
        kind.copy = _copy
        kind._repr_html_ = _array_html
    Tensor.__array_function__ = _array_function
    Tensor.astype = Tensor.cast
    Tensor.copy = _same
    Tensor.__len__ = _length
    for name in ("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__complex__", "nonzero"):
        setattr(Tensor, name, _no_value({"__array__": "numpy.asarray"}.get(name, name.strip("_"))))


def _cumulative(name):
    def method(x, axis=None, **words):
        if axis is not None or not words.keys() & set(method.other_names):
            words["axis"] = axis
        return functions[name](x, **words)

    method.__doc__ = f"numpy.{name}: along an axis, or of all elements in order (None)."
    method.other_names = ("axes", "dim")
    return method


def _of_two_axes(name):
    def method(x, offset=0, axis1=0, axis2=1):
        return functions[name](x, offset, axis1, axis2)

    method.__doc__ = f"numpy.{name}: of the first two axes by default, where tenon.ops.{name} takes the last two."
    return method


# Methods whose axes are numpy's by default, not those of the function.
_AS_NUMPY = {"cumsum": _cumulative, "cumprod": _cumulative, "diagonal": _of_two_axes, "trace": _of_two_axes}


def _matmul(self, other):
    """self @ other"""
    return self @ other


def _as_type(self, dtype):
    """The elements as another type."""
    return _cast(_like(self), dtype)


def _contains(self, value):
    is_there = self == value
    return is_there if isinstance(is_there, bool) else is_there.any().item()  # bool: of what is no number


def _to_list(self):
    """The values as numbers in nested lists."""
    return self.numpy().tolist()


def _copy(self):
    """The same values in memory of their own."""
    return self.astype(self.dtype)


def _same(self):
    """The tensor itself: tensors do not change."""
    return self


def _method(name):
    op = _ops[name]

    def method(self, **attributes):
        return op(_like(self), **attributes)

    method.__name__, method.__doc__ = name, f"tenon.ops.{name} of these elements."
    return method


def _op_signature(op):
    """For inspect.signature and what shows it: operands, then those that an op may have and attributes, by name."""
    from inspect import Parameter, Signature

    defaults = {name.removeprefix("has_"): None if name.startswith("has_") else value
                for name, value in op.attributes.items()}
    words = [Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in defaults.items()]
    return Signature([Parameter("operands", Parameter.VAR_POSITIONAL), *words])


def _op_doc(op):
    """How an op is called, and what it computes."""
    try:
        from .._op_docs import DOCS
    except ImportError:  # a build of which the stubs have not been written
        DOCS = {}
    called = repr(op)
    return called + "\n\n" + DOCS[op.name] if op.name in DOCS else called


def _as_index(array):
    value = array.item() if array.size == 1 else None
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{array.type!r} is no integer")
    return value


def _array_html(array):
    from ..pictures import array_html  # and numpy, which not every program needs

    return array_html(array)


def _logical(op):
    of_booleans = _ops[{"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}[op]]
    of_bits = _ops[op]

    def logical(a, b):
        a, b = common(a, b)
        first = a if isinstance(a, (Tensor, Buffer)) else b
        return (of_booleans if first.dtype == "bool" else of_bits)(a, b)

    return logical

"""What the nodes of a model compute while it is read: known arrays, vectors of sizes, and tensors of the program."""

import contextlib
import functools
import math

import numpy as np

from .. import _tenon, ops
from .._arrays.operands import _ops
from . import sizes as sz
from .errors import NotKnown
from .types import FLOATS, NUMPY, check_computed, type_of

_GRAPH_BYTES = 1 << 28
_FILLED = FLOATS | {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "bool"}  # what `full` makes
_SMALL = 16  # elements up to which an array of one value stays a constant


class Value:
    """One of: `array`, known while the model is read; `sizes`, i64 numbers that are known as sizes of inputs (a list,
    or a single one); `tensor`, of the program. `inputs` are the model's inputs that it depends on."""

    __slots__ = ("builder", "array", "sizes", "tensor", "name", "inputs", "origin", "_shape")

    def __init__(self, builder, array=None, sizes=None, tensor=None, name="", inputs=frozenset(), shape=None):
        self.builder = builder
        self.array = array
        self.sizes = sizes
        self.tensor = tensor
        self.name = name
        self.inputs = inputs
        self.origin = None  # (op, operands) of those ops that patterns.py looks for
        self._shape = shape

    @property
    def is_known(self):
        return self.array is not None

    @property
    def dtype(self):
        if self.array is not None:
            return type_of(self.array)
        return "i64" if self.sizes is not None else self.tensor.dtype.name

    @property
    def shape(self):
        """Sizes: integers, or sz.Size."""
        if self._shape is None:
            if self.array is not None:
                self._shape = tuple(self.array.shape)
            elif self.sizes is not None:
                self._shape = (len(self.sizes),) if isinstance(self.sizes, list) else ()
            else:
                self._shape = tuple(self._size(i, size) for i, size in enumerate(self.tensor.shape))
        return self._shape

    def has_shape(self, shape):
        """The value, whose sizes are these: expressions of the sizes of inputs, which the value is then a source of."""
        if self.tensor is not None and not all(isinstance(size, int) for size in shape):
            self._shape = tuple(shape)
            for axis, size in enumerate(shape):
                if not isinstance(size, int):
                    self.builder.sources.setdefault(size, (self, axis))
        return self

    def _size(self, axis, size):
        if isinstance(size, int):
            return size
        name = size if isinstance(size, str) else self.builder.unknown_name()
        made = sz.Size.named(name)
        self.builder.sources.setdefault(made, (self, axis))
        return made

    @property
    def rank(self):
        return len(self.shape)

    @property
    def is_float(self):
        return self.dtype in FLOATS

    @property
    def is_static(self):
        return all(isinstance(size, int) for size in self.shape)

    def __repr__(self):
        return f"{self.dtype}[{', '.join(map(repr, self.shape))}]"

    def __add__(self, other):
        return self.builder.add(self, other)

    def __radd__(self, other):
        return self.builder.add(other, self)

    def __sub__(self, other):
        return self.builder.sub(self, other)

    def __rsub__(self, other):
        return self.builder.sub(other, self)

    def __mul__(self, other):
        return self.builder.mul(self, other)

    def __rmul__(self, other):
        return self.builder.mul(other, self)

    def __truediv__(self, other):
        return self.builder.div(self, other)

    def __rtruediv__(self, other):
        return self.builder.div(other, self)

    def __neg__(self):
        return self.builder.neg(self)


class Builder:
    """Records ops in a program, and computes at once what is known. Every op of tenon.ops is a method, of values."""

    def __init__(self):
        self.graph = _tenon.Graph(_GRAPH_BYTES)
        self.sources = {}   # sizes that are not known: (value, axis) that has it
        self.computed = {}  # sizes that the program computes: their values
        self.transposed = {}  # id of a known matrix: (the matrix, its transpose)
        self._unknown = 0
        self._names = {}    # names of constants: how many more were made of each
        self._constants = {}  # id of a known array: (the array, its name in the program)
        self._lifted = [{}]   # for each function that is being recorded, id of what is known: (that, its tensor)

    def __getattr__(self, name):
        return functools.partial(self.call, getattr(ops, name))  # not kept: it would hold the builder in a cycle

    def close(self):
        """When the program is made, or cannot be: values hold their builder, which holds the model's weights and a graph."""
        self.graph = None
        for held in (self.sources, self.computed, self.transposed, self._constants):
            held.clear()
        self._lifted = [{}]

    def unknown_name(self):
        self._unknown += 1
        return f"_{self._unknown}"

    def known(self, array, name="", inputs=frozenset()):
        return Value(self, array=np.asarray(array), name=name, inputs=inputs)

    def constant(self, value):
        """A known value as a constant of the program, which is not computed with while the model is read."""
        return Value(self, tensor=self.tensor(value), name=value.name, inputs=value.inputs)

    def stored(self, array, name=""):
        """An array of a block type as a constant of the program."""
        return Value(self, tensor=self.graph.capture(self._unique(name or "constant"), array), name=name)

    def computed_size(self, value):
        """A number that the program computes, i64[1], as a size without a known expression: a list of one."""
        if value.tensor is None or value.dtype != "i64" or value.shape != (1,):
            return None
        size = sz.Size.named(self.unknown_name())
        self.computed[size] = value
        return [size]

    def number(self, number, dtype):
        return Value(self, array=np.array(number, NUMPY[dtype]))

    def of_sizes(self, sizes, inputs=frozenset()):
        """A vector of sizes, or a single one; known where all are integers."""
        items = sizes if isinstance(sizes, list) else [sizes]
        if all(isinstance(one, int) for one in items):
            return self.known(np.array(sizes, np.int64), inputs=inputs)
        return Value(self, sizes=sizes, inputs=inputs)

    def recorded(self, tensor, *operands):
        return Value(self, tensor=tensor, inputs=inputs_of(operands))

    def largest(self, x, k, axis):
        """The places of the k largest elements: the op, where ops.topk() gives the values, too."""
        return self.call(_ops["topk"], x, k=k, axis=axis)

    def call(self, function, *arguments, **attributes):
        """An op: at once where every value is known, recorded otherwise."""
        values = [one for one in (*arguments, *attributes.values()) if isinstance(one, Value)]
        if values and all(one.is_known for one in values):
            self._check_result(function, arguments, attributes)
            made = function(*map(_array, arguments), **{key: _array(one) for key, one in attributes.items()})
            return Value(self, array=made.numpy(), inputs=inputs_of(values))
        if not values:  # iota and full
            with self.graph:
                return self.recorded(function(*arguments, **attributes))
        made = function(*map(self._operand, arguments), **{key: self._operand(one) for key, one in attributes.items()})
        return self.recorded(made, *values)

    def _check_result(self, function, arguments, attributes):
        """Finds the sizes of what is about to be computed, without computing it."""
        graph = _tenon.Graph(1 << 16)
        graph.place = self.graph.place

        def like(one):
            return graph.input("", _tenon.Shape(one.array.shape, one.dtype)) if isinstance(one, Value) else one

        made = function(*map(like, arguments), **{key: like(one) for key, one in attributes.items()})
        check_computed("constants", made.shape)

    def concat(self, values, axis=0):
        if all(one.is_known for one in values):
            check_computed("Concat", [sum(one.array.size for one in values)])
            return Value(self, array=np.concatenate([one.array for one in values], axis), inputs=inputs_of(values))
        return self.recorded(ops.concat([self.tensor(one) for one in values], axis), *values)

    def _operand(self, argument):
        return self.tensor(argument) if isinstance(argument, Value) else argument

    @contextlib.contextmanager
    def body(self):
        """While a loop's function is recorded: what is known becomes constants of that function."""
        self._lifted.append({})
        sources = dict(self.sources)
        try:
            with self.graph:
                yield
        finally:
            self._lifted.pop()
            self.sources = sources

    def tensor(self, value):
        """A value as a tensor of the program."""
        if value.tensor is not None:
            return value.tensor
        held = value.array if value.array is not None else value
        for lifted in self._lifted:
            if id(held) in lifted:
                return lifted[id(held)][1]
        tensor = self._of_sizes(value) if value.sizes is not None else self._of_array(value)
        self._lifted[-1][id(held)] = (held, tensor)
        return tensor

    def result(self, value):
        """A value as a result of the program, which is computed: a constant is none."""
        tensor = self.tensor(value)
        if tensor.op == "constant":
            with self.graph:
                tensor = _tenon.all_ops()["stop_gradient"](tensor)
        return tensor

    def _of_array(self, value):
        array = value.array
        number = _single_number(array)
        if number is not None:
            with self.graph:
                return ops.full(tuple(array.shape), number, value.dtype)
        if id(array) in self._constants:
            name = self._constants[id(array)][1]
            return self.graph.constant(name, _tenon.Shape(tuple(array.shape), value.dtype))
        name = self._unique(value.name or "constant")
        self._constants[id(array)] = (array, name)
        return self.graph.capture(name, np.ascontiguousarray(array) if array.ndim else np.array(array))

    def _unique(self, name):
        made = name
        while made in self._names:
            self._names[name] += 1
            made = f"{name}_{self._names[name]}"
        self._names[made] = 0
        return made

    def _of_sizes(self, value):
        if isinstance(value.sizes, list):
            parts = [self.unsqueeze(self.scalar_size(one), 0) for one in value.sizes]
            return self.tensor(self.concat(parts, 0))
        return self.tensor(self.scalar_size(value.sizes))

    def scalar_size(self, size):
        """A size as a number that the program computes: i64[]."""
        if isinstance(size, int):
            return self.known(np.int64(size))
        if size in self.computed:
            return self.squeeze(self.computed[size], axis=0)
        if size in self.sources:
            return self.sum(self._steps(size, start=1, step=0, dtype="i64"))
        total = None
        for term, count in size.terms.items():
            part = self.known(np.int64(count))
            for name in term:
                part = part * self._count(name)
            total = part if total is None else total + part
        return total

    def _count(self, name):
        if sz.Size.named(name) in self.computed:
            return self.scalar_size(sz.Size.named(name))
        if sz.Size.named(name) not in self.sources and isinstance(name, sz.Quotient):
            whole, divisor = self.scalar_size(name.dividend), self.scalar_size(name.divisor)
            return (whole - self.remainder(whole, divisor)) / divisor
        return self.sum(self._steps(sz.Size.named(name), start=1, step=0, dtype="i64"))

    def _steps(self, size, **attributes):
        if size not in self.sources:
            self._take_quotient(size)
        value, axis = self.sources[size]
        return self.recorded(ops.iota(self.tensor(value), axis=axis, **attributes), value)

    def _take_quotient(self, size):
        """Makes n // m elements, every m-th of n, so that the size is that of a value."""
        [name, *more] = next(iter(size.terms))
        if sz.Size.named(name) in self.computed:
            inputs = self.computed[sz.Size.named(name)].inputs
            raise NotKnown("sizes", f"{size!r} is a size that values decide: give "
                           + " or ".join(f"values={{{one!r}: ...}}" for one in sorted(inputs)), inputs)
        if len(size.terms) > 1 or more or not isinstance(name, sz.Quotient) or not isinstance(name.divisor, int):
            raise NotKnown("sizes", f"{size!r} is no size of a value: give `shapes`")
        whole = self.iota(name.dividend)
        _slice(self, whole, name.divisor).has_shape((size,))

    def iota(self, size, dtype="i64", start=0, step=1):
        """start, start + step, ...: a vector as long as a size says."""
        if isinstance(size, int):
            check_computed("iota", [size])
            return self.known((start + step * np.arange(size)).astype(NUMPY[dtype]))
        if size in self.sources:
            made = self._steps(size, start=start, step=step, dtype=dtype)
        else:
            made = self._longer_iota(size, dtype, start, step)
        return made.has_shape((size,))

    def _longer_iota(self, size, dtype, start, step):
        check_computed("iota", [max(abs(count) for count in size.terms.values())])
        parts = []
        for term, count in size.terms.items():
            if len(term) > 1 or count < 0 or term and count > _SMALL:
                raise NotKnown("sizes", f"a vector of {size!r} elements: give `shapes`")
            parts += [self._steps(sz.Size.named(term[0]), start=1, step=0, dtype="i64")] * count if term else \
                [self.known(np.ones(count, np.int64))]
        ones = self.concat(parts, 0)
        places = self.cumsum(ones, axis=0) - 1
        return self.cast(places * step + start, dtype)

    def cast(self, value, dtype):
        if value.dtype == dtype:
            return value
        if value.is_known and {value.dtype, dtype} <= {"i64", "i32", "bool"}:
            return self.known(value.array.astype(NUMPY[dtype]), inputs=value.inputs)
        made = self.call(ops.cast, value, dtype=dtype)
        return made.has_shape(value.shape)

    def full(self, shape, number, dtype):
        """An array of one number, of sizes that may be named."""
        if all(isinstance(size, int) for size in shape):
            check_computed("full", shape)
            return self.known(np.broadcast_to(np.array(number, NUMPY[dtype]), shape))
        return self.broadcast(self.known(np.array(number, NUMPY[dtype])), shape)

    def broadcast(self, value, shape):
        """A value repeated to these sizes."""
        shape = tuple(shape)
        if value.shape == shape:
            return value
        if all(isinstance(size, int) for size in shape) and value.is_static:
            return self.broadcast_to(value, dims=shape)
        have = (1,) * (len(shape) - value.rank) + value.shape
        fixed = [size if isinstance(size, int) else 1 for size in shape]
        known = [f if f != 1 and h == 1 else (-1 if not isinstance(h, int) else h) for f, h in zip(fixed, have)]
        result = self.reshape_to(value, have)
        if known != list(have):
            result = self.broadcast_to(result, dims=tuple(known))
        for axis, (size, now) in enumerate(zip(shape, have)):
            if not isinstance(size, int) and now != size:
                result = self._stretched(result, size, axis, len(shape))
        return result.has_shape(shape)

    def _stretched(self, value, size, axis, rank):
        """A value repeated along an axis of 1: added to zeros of that length."""
        along = self.iota(size, "i64", 0, 0)
        for at in range(rank):
            if at != axis:
                along = self.unsqueeze(along, at)
        return self.where(self.cast(along, "bool"), value, value)

    def reshape_to(self, value, shape):
        """The same elements under other sizes, which may be named."""
        shape = tuple(shape)
        if value.shape == shape:
            return value
        if all(isinstance(size, int) for size in shape):
            return self._reshaped(value, shape)
        open_sizes = [i for i, size in enumerate(shape) if not isinstance(size, int)]
        made = self._by_axes(value, shape)
        if made is None and len(open_sizes) == 1:
            dims = tuple(-1 if i in open_sizes else size for i, size in enumerate(shape))
            if 0 not in dims:
                made = self._reshaped(value, dims)
        if made is None:
            raise NotKnown("Reshape", f"{value!r} to {list(shape)}: give `shapes`", value.inputs)
        return made.has_shape(shape)

    def _reshaped(self, value, dims):
        if value.is_known:
            return Value(self, array=value.array.reshape(dims), name=value.name, inputs=value.inputs)
        return self.call(_reshape, value, dims=dims)

    def _by_axes(self, value, shape):
        """A reshape as merges and splits of neighbouring axes, which leave other sizes as they are."""
        groups = _groups(value.shape, shape)
        if groups is None:
            return None
        made, at = value, 0
        for old, new in groups:
            if list(old) == list(new):
                at += len(new)
                continue
            open_new = [size for size in new if not isinstance(size, int)]
            if not old:
                for _ in new:
                    made = self.unsqueeze(made, at)
                    at += 1
                continue
            if len(old) > 1:
                made = self.merge_axes(made, axis=at, count=len(old))
            if not new:
                made = self.squeeze(made, axis=at)
            elif len(open_new) > 1:
                made = self._split_by_places(made, at, new)
            elif len(new) > 1:
                sizes = tuple(size if isinstance(size, int) else -1 for size in new)
                if 0 in sizes:
                    return None
                made = self.split_axis(made, axis=at, sizes=sizes)
            at += len(new)
        return made

    def _split_by_places(self, value, axis, sizes):
        """An axis as several of which more than one has no known size: its elements are picked by their numbers."""
        places = self.known(np.int64(0))
        for i, size in enumerate(sizes):
            along = self.iota(size) * self.scalar_size(sz.product(sizes[i + 1:]))
            for _ in sizes[i + 1:]:
                along = self.unsqueeze(along, along.rank)
            places = places + along
        return self.gather(value, places, axis=axis)


_reshape = _tenon.all_ops()["reshape"]


def _slice(builder, vector, step):
    """Every step-th element, from the one after step - 1 others on."""
    return builder.call(_tenon.all_ops()["slice"], vector, axis=0, begin=step - 1, end=2**63 - 1, step=step)


def _groups(old, new):
    """Neighbouring axes of two shapes that hold the same number of elements: [(old sizes, new sizes)], or None."""
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            groups.append(((old[i],), (new[j],)))
            i, j = i + 1, j + 1
            continue
        if i < len(old) and old[i] == 1:
            groups.append(((1,), ()))
            i += 1
            continue
        if j < len(new) and new[j] == 1:
            groups.append(((), (1,)))
            j += 1
            continue
        group = _balanced(old[i:], new[j:])
        if group is None:
            return None
        groups.append((old[i:i + group[0]], new[j:j + group[1]]))
        i, j = i + group[0], j + group[1]
    return groups


def _balanced(old, new):
    """How many axes of each have the same product, the fewest."""
    products = {}
    total = 1
    for count, size in enumerate(new, 1):
        total = sz.mul(total, size)
        products.setdefault(total, count)
    total = 1
    for count, size in enumerate(old, 1):
        total = sz.mul(total, size)
        if total in products:
            return count, products[total]
    return None


def _array(argument):
    if isinstance(argument, Value):
        return np.ascontiguousarray(argument.array) if argument.array.ndim else np.array(argument.array)
    return argument


def _single_number(array):
    """The number that an array repeats, where `full` is to make it: rewrites look for it, and it takes no space."""
    if 1 < array.size <= _SMALL or not array.size or type_of(array) not in _FILLED:
        return None
    first = array.flat[0]
    number = float(first)
    if not math.isfinite(number) or array.dtype.kind in "iu" and abs(int(first)) > 2**53:
        return None
    if number == 0 and math.copysign(1, number) < 0:
        return None
    if 0 not in array.strides or any(s for s, n in zip(array.strides, array.shape) if n > 1):
        if not np.array_equal(array, np.broadcast_to(first, array.shape)):
            return None
        if number == 0 and array.dtype.kind == "f" and np.signbit(array).any():
            return None
    return number


def inputs_of(values):
    held = [one.inputs for one in values if isinstance(one, Value) and one.inputs]
    if not held:
        return frozenset()
    return held[0] if len(held) == 1 else frozenset().union(*held)



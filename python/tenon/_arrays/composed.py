"""The library's builders that record more than one op, as functions of arrays and of tensors.

Each function gives its arguments as the builder in bindings/builders.cpp takes them, by position.
"""

from collections import OrderedDict
from functools import wraps

from .. import _tenon
from .operands import Buffer, Tensor, _axis_of, _complex, _like, _operand, _ops, _public
from .shaping import concat, flatten, reshape, slice_axis

_sessions = OrderedDict()  # of calls on arrays, by what was recorded; the last ones
_KEPT = 256


def _composed(function):
    name, code = function.__name__, function.__code__
    parameters = code.co_varnames[:code.co_argcount]

    @wraps(function)
    def call(*args, **kwargs):
        return _run(name, function(*args, **kwargs), parameters)

    return _public(call)


def _run(name, given, parameters=()):
    """Recorded beside tensors; of arrays at once, in a session that is kept for their types and the other arguments.
    Errors have the names of parameters, where `given` has as many."""
    is_operand = _tenon.builder_operands(name)
    arrays = []

    def held(value):
        """An operand in the key of a call: arrays by their number."""
        if isinstance(value, (list, tuple)) and any(isinstance(one, (Tensor, Buffer)) or hasattr(one, "shape")
                                                    for one in value):
            return ("several", *(held(one) for one in value))
        value = value if value is None else _operand(value)
        if value is None or isinstance(value, (bool, int, float, _complex)):
            return ("as it is", value)
        arrays.append(value)
        return ("array", len(arrays) - 1)

    def filled(form, leaf):
        if form[0] == "several":
            return [filled(one, leaf) for one in form[1:]]
        return leaf(form[1]) if form[0] == "array" else form[1]

    form = [held(value) if operand else ("as it is", value) for value, operand in zip(given, is_operand)]
    if any(isinstance(array, Tensor) for array in arrays) or (not arrays and _tenon.is_recording()):
        return _tenon.build(name, tuple(filled(one, arrays.__getitem__) for one in form), parameters)
    key = (name, repr(form), tuple(str(array.type) for array in arrays))
    session = _sessions.pop(key, None)  # no other thread's for the time of the call
    if session is None:
        with _tenon.Graph() as graph:
            tensors = [graph.input("", array.type) for array in arrays]
            made = _tenon.build(name, tuple(filled(one, tensors.__getitem__) for one in form), parameters)
            session = _tenon.Session(graph.program(made)), isinstance(made, tuple)
    results = session[0].forward(*arrays)
    _sessions[key] = session
    while len(_sessions) > _KEPT:
        _sessions.popitem(last=False)
    return tuple(results) if session[1] else results[0]


def _each(value, axes):
    """A value for each of the axes, given once or as a tuple; none: ()."""
    if value is None:
        return ()
    return (value,) * axes if isinstance(value, int) else tuple(value)


def _images(x):
    return _like(x).ndim - 2


def _type(shape, dtype="f32"):
    """A type as programs write it."""
    sizes = (shape,) if isinstance(shape, (int, str)) else shape
    return f"{_tenon.DType(dtype).name if isinstance(dtype, str) else dtype}[{', '.join(str(size) for size in sizes)}]"


# Activations


@_composed
def celu(x, alpha=1.0):
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1)): torch's CELU."""
    return x, alpha


@_composed
def geglu(x, axis=-1):
    """gelu(a) * b, where a and b are the first and the second half of x along an axis."""
    return x, axis


@_composed
def hardshrink(x, lambd=0.5):
    """x outside of [-lambd, lambd], else 0."""
    return x, lambd


@_composed
def logsigmoid(x):
    """log(sigmoid(x))."""
    return (x,)


@_composed
def prelu(x, slope):
    """x where it is above 0, else slope * x; slope as ops.where broadcasts it."""
    return x, slope


@_composed
def quick_gelu(x):
    """x * sigmoid(1.702 x)."""
    return (x,)


@_composed
def reglu(x, axis=-1):
    """relu(a) * b of the halves of x along an axis."""
    return x, axis


@_composed
def selu(x):
    """torch's SELU."""
    return (x,)


@_composed
def softshrink(x, lambd=0.5):
    """x moved towards 0 by lambd, 0 within [-lambd, lambd]."""
    return x, lambd


@_composed
def softsign(x):
    """x / (1 + |x|)."""
    return (x,)


@_composed
def tanhshrink(x):
    """x - tanh(x)."""
    return (x,)


@_composed
def thresholded_relu(x, alpha=1.0):
    """x where it is above alpha, else 0."""
    return x, alpha


# Masks of attention, and caches in pages


@_composed
def alibi_mask(slopes, queries, keys, position=None):
    """The mask of ALiBi [heads, queries, keys] of these slopes; position: that of the first query."""
    return slopes, queries, keys, position


@_composed
def alibi_slopes(heads, max_bias=8.0):
    """f32[heads]."""
    return heads, max_bias


@_composed
def prefix_mask(prefix, queries, keys, position=None):
    """Causal, but for the first `prefix` keys (a number, or i32[B]), which all queries see."""
    if isinstance(prefix, int):
        prefix = _ops["full"](value=prefix, dims=(), dtype="i32")
    return prefix, queries, keys, position


@_composed
def segment_mask(of_queries, of_keys):
    """f32[B, 1, S, T]: queries see the keys of their own segment; i32[B, S] and i32[B, T]."""
    return of_queries, of_keys


@_composed
def segments_of(sizes):
    """The number of the segment of each position, for segments of these sizes."""
    return (tuple(sizes),)


@_composed
def streaming_mask(window, first_keys, queries, keys, position=None):
    """Causal within a window, and the first keys always."""
    return window, first_keys, queries, keys, position


@_composed
def gather_pages(cache, layer, table):
    """A layer of a paged cache, its pages in the order of each row's table."""
    return cache, layer, table


@_composed
def pages_of(cache, layer):
    """The pages of a layer of a cache, as attention with a table takes them."""
    return cache, layer


# Shapes


@_composed
def broadcast_like(x, like):
    """x in the sizes of another array."""
    return x, like


@_public
def repeat_interleave(x, count, axis=None):
    """Each slice along an axis `count` times, or each element of all (None): torch.repeat_interleave, numpy.repeat."""
    x, axis = (flatten(x), 0) if axis is None else (x, axis)
    return _run("repeat_interleave", (x, count, axis), ("x", "count", "axis"))


@_composed
def reshape_like(x, like):
    """The same elements in the sizes of another array."""
    return x, like


@_public
def roll(x, shift, axis=None):
    """Moved along an axis by `shift`, what leaves at its end comes in at its beginning; along several, by as many
    shifts; all elements in order (None): numpy.roll."""
    x = _like(x)
    if axis is None:
        return reshape(roll(flatten(x), shift, 0), x.shape)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: shifts {shift} along axes {axis}")
    for one, along in zip(shifts, axes):
        if isinstance(x.shape[_axis_of(x, along, "roll")], int) or not isinstance(one, int):
            x = _run("roll", (x, one, along), ("x", "shift", "axis"))
        elif one:  # of a size that is not known, which has to be as large as the shift
            x = concat([slice_axis(x, along, -one), slice_axis(x, along, 0, -one)], along)
    return x


@_composed
def split(x, sizes, axis=0):
    """Parts of these sizes along an axis, as a tuple; one number: parts of that size, as torch.split makes them."""
    x = _like(x)
    if isinstance(sizes, int):
        total = x.shape[_axis_of(x, axis, "split")]
        if not isinstance(total, int) or sizes < 1:
            raise ValueError(f"split: parts of {sizes} of {x.type!r} along axis {axis}")
        sizes = [min(sizes, total - at) for at in range(0, total, sizes)] or [0]
    return x, tuple(sizes), axis


@_composed
def sum_to(x, shape):
    """The sum over the axes along which an array of `shape` was broadcast to x."""
    x = _like(x)
    return x, _type(shape, x.dtype.name)


@_public
def tile(x, count, axis=None):
    """x `count` times, one after the other along an axis; without one, a count for each of the last axes, as
    numpy.tile has it."""
    if axis is not None:
        return _run("tile", (x, count, axis), ("x", "count", "axis"))
    x = _like(x)
    counts = tuple(count) if hasattr(count, "__len__") else (count,)
    if len(counts) > x.ndim:
        x = reshape(x, (1,) * (len(counts) - x.ndim) + x.shape)
    for place, one in enumerate(counts, x.ndim - len(counts)):
        x = _run("tile", (x, one, place), ("x", "count", "axis")) if one != 1 else x
    return x


# Products


@_composed
def diagonal(x, offset=0, axis1=-2, axis2=-1):
    """The diagonal of two axes, as the last one."""
    return x, offset, axis1, axis2


@_composed
def diagonal_matrix(x, k=0):
    """A matrix with x on its k-th diagonal, for each row of x."""
    return x, k


@_composed
def einsum(equation, *operands):
    """numpy.einsum("bij,bjk->bik", a, b), with "..." for axes that broadcast."""
    return equation, list(operands)


@_composed
def inner(a, b):
    """The sum of products along the last axes."""
    return a, b


@_composed
def kron(a, b):
    """The Kronecker product."""
    return a, b


@_composed
def lu_solve(packed, pivots, b):
    """x of a x = b, from ops.lu(a)."""
    return packed, pivots, b


@_composed
def outer(a, b):
    """All products of an element of a and one of b, vectors."""
    return a, b


@_composed
def tensordot(a, b, axes=2):
    """The sum of products over the last `axes` axes of a and the first ones of b."""
    return a, b, axes


@_composed
def trace(x, offset=0, axis1=-2, axis2=-1):
    """The sum of a diagonal."""
    return x, offset, axis1, axis2


# Convolutions and pools


def _sides(padding):
    return (padding, padding) if isinstance(padding, int) else tuple(padding)


@_composed
def conv1d(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """x [N, C, L], w [O, C / groups, K]; padding: of both sides, or (left, right)."""
    return x, w, bias, stride, *_sides(padding), dilation, groups


@_composed
def conv3d(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """x [N, C, D, H, W], w [O, C / groups, KD, KH, KW]; stride, padding and dilation: one or three numbers."""
    return x, w, bias, _each(stride, 3), _each(padding, 3), _each(dilation, 3), groups


@_composed
def conv_transpose1d(x, w, bias=None, stride=1, padding=0, output_padding=0, dilation=1, groups=1):
    """x [N, C, L], w [C, O / groups, K]; padding: of both sides, or (left, right)."""
    return x, w, bias, stride, *_sides(padding), output_padding, dilation, groups


@_composed
def conv_transpose3d(x, w, bias=None, stride=1, padding=0, output_padding=0, dilation=1, groups=1):
    """x [N, C, D, H, W], w [C, O / groups, KD, KH, KW]; one or three numbers of each kind."""
    return (x, w, bias, _each(stride, 3), _each(padding, 3), _each(output_padding, 3), _each(dilation, 3), groups)


@_composed
def adaptive_avg_pool(x, sizes):
    """Means of windows that make results of these sizes behind N and C."""
    return x, _each(sizes, _images(x))


@_composed
def adaptive_max_pool(x, sizes):
    """Maxima of windows that make results of these sizes behind N and C."""
    return x, _each(sizes, _images(x))


@_composed
def avg_pool(x, kernel, stride=None, padding=0, ceil_mode=False, count_include_pad=False):
    """Means of windows along the axes behind N and C; stride: the kernel's sizes where it is None."""
    axes = _images(x)
    return x, _each(kernel, axes), _each(stride, axes), _each(padding, axes), ceil_mode, count_include_pad


@_composed
def global_avg_pool(x):
    """Means over the axes behind N and C, which stay as axes of 1."""
    return (x,)


@_composed
def global_max_pool(x):
    """Maxima over the axes behind N and C, which stay as axes of 1."""
    return (x,)


@_composed
def lp_pool(x, p, kernel, stride=None, padding=0, ceil_mode=False):
    """(sum |x|^p)^(1/p) of windows."""
    axes = _images(x)
    return x, p, _each(kernel, axes), _each(stride, axes), _each(padding, axes), ceil_mode


@_composed
def max_pool(x, kernel, stride=None, padding=0, dilation=1, ceil_mode=False):
    """Maxima of windows along the axes behind N and C; stride: the kernel's sizes where it is None."""
    axes = _images(x)
    return x, _each(kernel, axes), _each(stride, axes), _each(padding, axes), _each(dilation, axes), ceil_mode


@_composed
def depth_to_space(x, r, mode=None):
    """ONNX's DepthToSpace: mode "CRD", as pixel_shuffle, or "DCR"."""
    return x, r, mode


@_composed
def pixel_shuffle(x, r):
    """[N, C r r, H, W] as [N, C, H r, W r]."""
    return x, r


@_composed
def pixel_unshuffle(x, r):
    """[N, C, H r, W r] as [N, C r r, H, W]."""
    return x, r


@_composed
def space_to_depth(x, r):
    """ONNX's SpaceToDepth of blocks of r x r."""
    return x, r


# Signals


@_composed
def fft2(x):
    """The Fourier transform along the last two axes of c64, or of pairs of f32 along a last axis of 2."""
    return (x,)


@_composed
def ifft2(x):
    """The inverse of fft2."""
    return (x,)


@_composed
def hamming_window(size, periodic=True, dtype="f32"):
    """torch.hamming_window."""
    return size, periodic, dtype


@_composed
def hann_window(size, periodic=True, dtype="f32"):
    """torch.hann_window."""
    return size, periodic, dtype


@_composed
def log_mel_spectrogram(x, mels=80):
    """Whisper's, of samples at 16 kHz."""
    return x, mels


@_composed
def mel_filters(mels, size, rate, low=0.0, high=0.0, htk=False):
    """[mels, size / 2 + 1]: triangles over the bins of a transform of `size` samples at `rate` Hz, between `low` and
    `high` Hz (0: rate / 2), on Slaney's scale or HTK's."""
    return mels, size, rate, low, high, htk


@_composed
def stft(x, window, hop, center=True, dtype=None):
    """The transforms [.., frames, bins] of windowed frames every `hop` samples: c64 if that is the dtype, else pairs
    along a last axis of 2."""
    x = _like(x)
    return x, window, hop, center, dtype or x.dtype.name


# Norms


@_composed
def batch_norm_training(x, weight=None, bias=None, eps=1e-5):
    """(y, mean [C], variance [C]): batch_norm with the statistics of x itself, over all axes but the channels' (axis 1). The
    variance is divided by the number of elements n, and PyTorch's running variance takes variance n / (n - 1)."""
    return x, weight, bias, eps


@_composed
def instance_norm(x, weight=None, bias=None, eps=1e-5):
    """Each channel of each image in its own mean and variance."""
    if weight is None and bias is not None:
        bias = _like(bias)
        weight = _ops["broadcast_to"](_ops["full"](value=1.0, dims=(), dtype=bias.dtype), bias)
    return x, weight, bias, eps


@_composed
def l2_normalize(x, axes=-1, eps=1e-12):
    """x / max(|x|, eps) along axes."""
    return x, axes, eps


@_composed
def local_response_norm(x, size, alpha=1e-4, beta=0.75, k=1.0):
    """torch.nn.LocalResponseNorm."""
    return x, size, alpha, beta, k


# Integers and codes


@_composed
def linear_integer(x, w, x_zero=None, w_zero=None):
    """(x - x_zero) times (w - w_zero) transposed, in i32: x [.., K], w [N, K]."""
    return x, w, x_zero, w_zero


@_composed
def qlinear_linear(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None):
    """A product of codes, rounded to codes: w [N, K]."""
    return x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias


@_composed
def qlinear_matmul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
    """ONNX's QLinearMatMul."""
    return a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero


@_composed
def qlinear_conv2d(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None, stride=1, padding=0, dilation=1,
                   groups=1):
    """ONNX's QLinearConv."""
    return (x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias, _each(stride, 2), _each(padding, 2),
            _each(dilation, 2), groups)


@_composed
def requantize(sums, multiplier, zero_point, axis=1):
    """Sums in i32 as codes of the zero point's type."""
    return sums, multiplier, zero_point, axis


# Random numbers: a key is a value; the same key gives the same numbers on every device


@_composed
def random_key(seed):
    """u32[2]: a key of this seed, an integer."""
    return (seed % 2**64 if isinstance(seed, int) else seed,)


@_composed
def split_key(key, count=2):
    """Keys that have nothing in common, as a tuple."""
    return key, count


@_composed
def fold_in(key, number):
    """A key for this key and a number, such as that of a step."""
    return key, number


@_composed
def dropout(key, x, rate=0.5):
    """0 with probability `rate`, else x / (1 - rate)."""
    return key, x, rate


@_composed
def random_bernoulli(key, shape, p=0.5):
    """True with probability p."""
    return key, _type(shape, "bool"), p


@_composed
def random_categorical(key, logits, axis=-1):
    """Indices along an axis, with probabilities softmax(logits)."""
    return key, logits, axis


@_composed
def random_exponential(key, shape, rate=1.0, dtype="f32"):
    """Of density rate exp(-rate x)."""
    return key, _type(shape, dtype), rate


@_composed
def random_gumbel(key, shape, dtype="f32"):
    """-log(-log(u)) of uniform u."""
    return key, _type(shape, dtype)


@_composed
def random_integers(key, shape, low, high, dtype="i32"):
    """Integers in [low, high)."""
    return key, _type(shape, dtype), low, high


@_composed
def random_multinomial(key, weights, samples, replacement=False):
    """torch.multinomial."""
    return key, weights, samples, replacement


@_composed
def random_normal(key, shape, mean=0.0, deviation=1.0, dtype="f32"):
    """Of a normal distribution."""
    return key, _type(shape, dtype), mean, deviation


@_composed
def random_permutation(key, size):
    """The numbers below `size` in random order."""
    return key, size


@_composed
def random_uniform(key, shape, low=0.0, high=1.0, dtype="f32"):
    """In [low, high)."""
    return key, _type(shape, dtype), low, high


# Element by element


@_composed
def isclose(a, b, relative=1e-5, absolute=1e-8, equal_nan=False):
    """|a - b| <= absolute + relative |b|."""
    return a, b, relative, absolute, equal_nan


@_composed
def lerp(a, b, weight):
    """a + weight (b - a)."""
    return a, b, weight


@_composed
def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    """NaN as `nan`, infinities as the largest and the smallest number of the type, or as these."""
    return x, nan, posinf, neginf


@_composed
def xlogy(a, b):
    """a log(b), and 0 where a is 0."""
    return a, b


# Indices


@_composed
def bincount(ids, size, weights=None):
    """How often each number below `size` occurs, or the sums of its weights."""
    return ids, size, weights


@_composed
def count_nonzero(x, axes=None, keep_dims=False):
    """The number of elements other than 0, along axes; None: of all."""
    return x, axes, keep_dims


@_composed
def gather_nd(x, indices, batch_axes=0):
    """ONNX's GatherND."""
    return x, indices, batch_axes


@_composed
def index_add(x, index, source, axis=0):
    """x with the slices of source added to those that the index names along an axis."""
    return x, index, source, axis


@_composed
def index_put(x, index, source, axis=0, mode=None):
    """x with slices replaced; mode "add", "mul", "min" or "max" combines them."""
    return x, index, source, axis, mode


@_composed
def masked_fill(x, mask, value):
    """`value` where the mask is true, else x."""
    return x, mask, value


@_composed
def nonzero(x, capacity, fill=-1):
    """(indices [capacity, rank], count): where x is not 0, as far as the capacity goes, then `fill`."""
    return x, capacity, fill


@_composed
def norm(x, p=2.0, axes=None, keep_dims=False):
    """(sum |x|^p)^(1/p) along axes; None: of all. p may be infinite."""
    return x, p, axes, keep_dims


@_composed
def put_along(x, index, source, axis=-1):
    """numpy.put_along_axis, as a new array."""
    return x, index, source, axis


@_composed
def scatter_nd(x, indices, source, mode=None):
    """ONNX's ScatterND; mode "add", "mul", "min" or "max" combines."""
    return x, indices, source, mode


@_composed
def sort_with_indices(x, axis=-1, descending=False):
    """(values, indices): torch.sort(stable=True)."""
    return x, axis, descending


@_composed
def standard_deviation(x, axes=None, correction=1.0, keep_dims=False):
    """The root of the variance, divided by the count less `correction`."""
    return x, axes, correction, keep_dims


@_composed
def topk(x, k, axis=-1):
    """(values, indices) of the k largest elements, the largest first and of equals the first: torch.topk."""
    return x, k, axis


@_composed
def unique(x, capacity, fill=0.0):
    """(values [capacity], count, inverse, counts): the distinct elements in order, then `fill`."""
    return x, capacity, fill

"""Every op as a function, of arrays or of tensors of a graph.

On arrays (tenon.Buffer, numpy, DLPack) a function runs at once, on the device of its operands. On tensors of a
graph it is recorded. Both take the op's operands, then its attributes, by position or by name; docs/ops.md
lists them, and `help(tenon.ops.NAME)` shows their defaults. An operand that an op may have, as linear's bias,
is given by its name. Functions that are more than one op, or read better with other arguments, are in
tenon/_functions.py.
"""

from . import _functions, _tenon

globals().update(_tenon.all_ops())
globals().update(_functions.functions)


# What numpy or PyTorch call functions that have another name here.
_CALLED_HERE = {
    theirs: ours for ours, names in {
        "concat": "cat concatenate hstack vstack", "unsqueeze": "expand_dims", "mul": "multiply", "sub": "subtract",
        "true_divide": "divide", "neg": "negative", "pow": "power", "max": "amax", "min": "amin", "reshape": "view",
        "gather": "take index_select", "take_along": "take_along_axis take_along_dim", "permute": "moveaxis movedim",
        "broadcast_to": "expand", "matmul": "bmm mm dot addmm", "abs": "absolute", "inverse": "inv", "is_nan": "isnan",
        "resize": "interpolate upsample", "attention": "scaled_dot_product_attention", "conv2d": "convolution",
        "binary_cross_entropy": "binary_cross_entropy_with_logits", "trunc": "fix",
        "logsumexp": "logaddexp", "focal_loss": "sigmoid_focal_loss", "trapezoid": "trapz",
        "histogram": "histc histogram_bin_edges",
        "unfold2d": "unfold", "fold2d": "fold",
        "kl_divergence": "kl_div", "scatter": "scatter_add scatter_reduce", "silu": "swish",
        "repeat_interleave": "repeat", "hardsigmoid": "hard_sigmoid", "stop_gradient": "detach",
        "logsigmoid": "log_sigmoid", "is_inf": "isinf", "is_finite": "isfinite", "round": "rint around",
        "l2_normalize": "normalize", "arange": "range", "full": "fill", "eq": "equal",
        "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    }.items() for theirs in names.split()
}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module 'tenon.ops' has no attribute '{name}'")
    import difflib

    near = [_CALLED_HERE[name]] if name in _CALLED_HERE else difflib.get_close_matches(name, __dir__(), 3, 0.7)
    raise AttributeError(f"tenon.ops has no '{name}'" + (f"; did you mean {' or '.join(map(repr, near))}?" if near else
                                                         "; dir(tenon.ops) lists what it has"))


def __dir__():
    return sorted(name for name in globals() if not name.startswith("_"))


_functions.install()

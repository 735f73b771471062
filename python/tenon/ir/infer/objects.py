"""Ops on objects."""

from . import agree, finite, require, rule
from ..tensors import Type, is_floating


def of_class(type_, name):
    require(type_.dtype == name, "BadType", f"needs a {name}", type_)


def layer_of_cache(cache, layer):
    of_class(cache, "KvCache")
    require(layer == Type("i64"), "ShapeMismatch", "layer is not i64[]", layer)


@rule("generator_uniform", "generator_skip")
def _(op, types, a):
    of_class(types[0], "Generator")
    require(all(size >= 0 for size in a.dims), "BadShape", "a negative size")
    require(a.dtype in ("f32", "f64"), "UnsupportedDType", f"draws f32 or f64, not {a.dtype}")
    return Type(a.dtype, a.dims) if op == "generator_uniform" else types[0]


@rule("kv_append")
def _(op, types, a):
    cache, layer, keys, values = types
    layer_of_cache(cache, layer)
    require(keys.rank == 4 and values.rank == 4 and is_floating(keys.dtype) and is_floating(values.dtype)
            and all(agree(keys.dims[i], values.dims[i]) for i in range(3)), "ShapeMismatch",
            "needs [B, S, H, D] and [B, S, H, Dv] of floating types", keys, values)
    return cache


@rule("kv_attention")
def _(op, types, a):
    cache, layer, q = types
    layer_of_cache(cache, layer)
    require(q.rank == 4 and q.dtype == "f32", "ShapeMismatch", "queries are f32[B, S, H, D]", q)
    require(a.value_size >= 0 and finite(a.scale), "BadAttribute", f"value_size {a.value_size}, scale {a.scale}")
    return q.with_dim(3, a.value_size) if a.value_size else q


@rule("kv_length")
def _(op, types, a):
    layer_of_cache(*types)
    return Type("i64")


@rule("tokenize", "detokenize")
def _(op, types, a):
    of_class(types[0], "Tokenizer")
    read, made = ("u8", "i32") if op == "tokenize" else ("i32", "u8")
    require(types[1].rank == 1 and types[1].dtype == read, "ShapeMismatch", f"reads {read}[n]", types[1])
    require(a.capacity >= 0, "BadAttribute", f"a capacity of {a.capacity}")
    return Type(made, [a.capacity])

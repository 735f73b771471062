"""The families of ops: importing this puts their handlers into node.HANDLERS."""

from . import (
    complex,
    control,
    creation,
    images,
    indexing,
    linear_algebra,
    losses,
    norms,
    pointwise,
    products,
    quantised,
    recurrent,
    reductions,
    shapes,
    strides,
    symbols,
)

__all__ = ["complex", "control", "creation", "images", "indexing", "linear_algebra", "losses", "norms",
           "pointwise", "products", "quantised", "recurrent", "reductions", "shapes", "strides", "symbols"]

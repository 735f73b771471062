"""The families of ops: importing this puts their handlers into node.HANDLERS."""

from . import (
    complex,
    control,
    creation,
    images,
    indexing,
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

__all__ = ["complex", "control", "creation", "images", "indexing", "losses", "norms", "pointwise", "products",
           "quantised", "recurrent", "reductions", "shapes", "strides", "symbols"]

"""The families of ops: importing this puts their handlers into node.HANDLERS."""

from . import (
    control,
    creation,
    images,
    indexing,
    norms,
    pointwise,
    products,
    quantised,
    recurrent,
    reductions,
    shapes,
    symbols,
)

__all__ = ["control", "creation", "images", "indexing", "norms", "pointwise", "products", "quantised", "recurrent",
           "reductions", "shapes", "symbols"]

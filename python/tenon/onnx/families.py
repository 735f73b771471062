"""The families of ops: importing this puts their handlers into node.HANDLERS."""

from . import (
    control,
    gathers,
    images,
    microsoft,
    norms,
    pointwise,
    products,
    quantised,
    recurrent,
    reductions,
    shapes,
    signal,
)

__all__ = ["control", "gathers", "images", "microsoft", "norms", "pointwise", "products", "quantised", "recurrent",
           "reductions", "shapes", "signal"]

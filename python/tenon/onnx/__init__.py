"""Models in the ONNX format: read as programs, and programs written as models.

    program = tenon.onnx.load("model.onnx")            # an ordinary program, with its weights
    [y] = tenon.Session(program).forward(x)
    model = tenon.onnx.Model("model.onnx")             # reads the file again for each new set of sizes
    [y] = model.run({"x": x})
    tenon.onnx.save(program, "program.onnx")

docs/onnx.md has the ops and what is not supported. Needs PyPI's `onnx`: pip install tenon[onnx].
"""

try:
    import onnx as _onnx
except ImportError as error:
    raise ImportError("tenon.onnx needs the package 'onnx': pip install tenon[onnx]") from error

from .export import save, to_model
from .model import Model, load, load_program

__all__ = ["Model", "load", "load_program", "save", "to_model"]

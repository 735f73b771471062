"""Modules of PyTorch that torch.export has exported, as programs.

    program = tenon.torch.load("model.pt2")            # an ordinary program, with its weights; or an ExportedProgram
    [y] = tenon.Session(program).forward(x)
    model = tenon.torch.Model("model.pt2")             # keeps the module's state, and the form of its arguments
    y = model(x)

An archive of torch.export.save is read without torch, and nothing in it is unpickled. docs/torch.md has the ops and
what is not supported.
"""

from .model import Model, load

__all__ = ["Model", "load"]

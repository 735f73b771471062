"""What the commands python -m tenon.onnx and python -m tenon.torch share."""

import argparse

from .. import ir, save_safetensors


def to_text(program, target):
    """A program as target and, where it has weights, target.safetensors."""
    text = ir.parse(str(program))
    if program.folded:
        beside = target.with_suffix(".safetensors")
        save_safetensors(beside, program.folded)
        text.weights = beside.name
    target.write_text(str(text))


def size(text):
    """NAME=4 or NAME=1,3,224,224."""
    name, _, value = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=SIZE")
    numbers = [int(one) for one in value.split(",")]
    return name, numbers[0] if len(numbers) == 1 else tuple(numbers)

"""What the commands python -m tenon.onnx and python -m tenon.torch share."""

import argparse
import sys

from .. import errors, ir, save_gguf, save_safetensors

# As the tool's: docs of `tenon --help`.
_STATUS = ((errors.ArgumentError, 2), (errors.InputError, 3), (errors.UnsupportedError, 4), (errors.MachineError, 5),
           (errors.EndedEarlyError, 6))


def report(command, error):
    """Prints the error; the exit status that tells whose fault it is."""
    print(f"{command}: {error}", file=sys.stderr)
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 1)


def to_text(program, target):
    """A program as target and, where it has weights, target.safetensors, or target.gguf for block types."""
    text = ir.parse(str(program))
    if program.folded:
        has_blocks = any(one.dtype.is_block for one in program.folded.values())
        beside = target.with_suffix(".gguf" if has_blocks else ".safetensors")
        (save_gguf if has_blocks else save_safetensors)(beside, program.folded)
        text.weights = beside.name
    target.write_text(str(text))


def size(text):
    """NAME=4 or NAME=1,3,224,224."""
    name, _, value = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=SIZE")
    numbers = [int(one) for one in value.split(",")]
    return name, numbers[0] if len(numbers) == 1 else tuple(numbers)

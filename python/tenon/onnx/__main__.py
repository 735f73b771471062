"""python -m tenon.onnx: ONNX models as programs' texts with their weights beside them, and back."""

import argparse
import pathlib
import sys

from .. import Error, ir, open, parse, save_safetensors
from . import load, save


def to_text(source, target, shapes):
    """model.onnx as target and, with its weights, as target.safetensors."""
    program = load(source, shapes)
    text = ir.parse(str(program))
    if program.folded:
        beside = target.with_suffix(".safetensors")
        save_safetensors(beside, program.folded)
        text.weights = beside.name
    target.write_text(str(text))


def to_onnx(source, target):
    text = source.read_text()
    program = parse(text, str(source))
    weights = ir.parse(text).weights
    arrays = {}
    if weights:
        file = open(source.parent / weights)
        arrays = {name: file[name] for name in file}
    save(program, target, arrays)


def size(text):
    """NAME=4 or NAME=1,3,224,224."""
    name, _, value = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=SIZE")
    numbers = [int(one) for one in value.split(",")]
    return name, numbers[0] if len(numbers) == 1 else tuple(numbers)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tenon.onnx", description=__doc__.split(": ")[1])
    parser.add_argument("source", type=pathlib.Path, help="model.onnx, or model.tenon")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="model.tenon (weights go to model.safetensors), or "
                        "model.onnx")
    parser.add_argument("--shape", type=size, action="append", default=[], metavar="NAME=SIZE",
                        help="a named size, or an input's sizes: batch=4, x=1,3,224,224")
    options = parser.parse_args(arguments)
    try:
        if options.source.suffix == ".tenon":
            to_onnx(options.source, options.output or options.source.with_suffix(".onnx"))
        else:
            to_text(options.source, options.output or options.source.with_suffix(".tenon"), dict(options.shape))
    except Error as error:
        print(f"tenon.onnx: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

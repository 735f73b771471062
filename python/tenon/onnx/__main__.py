"""python -m tenon.onnx: ONNX models as programs' texts with their weights beside them, and back."""

import argparse
import pathlib
import sys

from .. import Error, ir, open, parse
from ..importing.command import report, size, to_text
from . import load, save


def to_onnx(source, target):
    text = source.read_text()
    program = parse(text, str(source))
    weights = ir.parse(text).weights
    arrays = {}
    if weights:
        file = open(source.parent / weights)
        arrays = {name: file[name] for name in file}
    save(program, target, arrays)


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
            to_text(load(options.source, dict(options.shape)),
                    options.output or options.source.with_suffix(".tenon"))
    except Error as error:
        return report("tenon.onnx", error)
    return 0


if __name__ == "__main__":
    sys.exit(main())

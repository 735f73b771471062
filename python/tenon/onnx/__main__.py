"""python -m tenon.onnx: ONNX models as programs' texts with their weights beside them, and back."""

import pathlib
import sys

from .. import ir, open, parse
from ..importing import files
from ..importing.command import Parser, size, to_text
from . import load, save


def to_onnx(source, target):
    text = files.read_text(source)
    program = parse(text, str(source))
    weights = ir.parse(text).weights
    files.check_target(target, {"the program": source})
    arrays = {}
    if weights:
        file = open(source.parent / weights)
        files.check_target(target, {"the file of its weights": source.parent / weights})
        arrays = {name: file[name] for name in file}
    save(program, target, arrays)


def work(options):
    if options.source.suffix == ".tenon":
        to_onnx(options.source, options.output or options.source.with_suffix(".onnx"))
    else:
        to_text(load(options.source, dict(options.shape)), options.source,
                options.output or options.source.with_suffix(".tenon"))


def main(arguments=None):
    parser = Parser("python -m tenon.onnx", __doc__.split(": ")[1])
    parser.add_argument("source", type=pathlib.Path, help="model.onnx, or model.tenon")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="model.tenon (weights go to model.safetensors), or "
                        "model.onnx")
    parser.add_argument("--shape", type=size, action="append", default=[], metavar="NAME=SIZE",
                        help="a named size, or an input's sizes: batch=4, x=1,3,224,224")
    return parser.run(arguments, work)


if __name__ == "__main__":
    sys.exit(main())

"""python -m tenon.torch: modules that PyTorch has exported as programs' texts with their weights beside them."""

import pathlib
import sys

from ..importing.command import Parser, size, to_text
from . import load


def work(options):
    to_text(load(options.source, dict(options.shape)), options.source,
            options.output or options.source.with_suffix(".tenon"))


def main(arguments=None):
    parser = Parser("python -m tenon.torch", __doc__.split(": ")[1])
    parser.add_argument("source", type=pathlib.Path, help="model.pt2")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="model.tenon; weights go to model.safetensors")
    parser.add_argument("--shape", type=size, action="append", default=[], metavar="NAME=SIZE",
                        help="a size, or an input's sizes: s77=4, x=1,3,224,224")
    return parser.run(arguments, work)


if __name__ == "__main__":
    sys.exit(main())

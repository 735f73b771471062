"""python -m tenon.torch: modules that PyTorch has exported as programs' texts with their weights beside them."""

import argparse
import pathlib
import sys

from .. import Error
from ..importing.command import report, size, to_text
from . import load


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tenon.torch", description=__doc__.split(": ")[1])
    parser.add_argument("source", type=pathlib.Path, help="model.pt2")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="model.tenon; weights go to model.safetensors")
    parser.add_argument("--shape", type=size, action="append", default=[], metavar="NAME=SIZE",
                        help="a size, or an input's sizes: s77=4, x=1,3,224,224")
    options = parser.parse_args(arguments)
    try:
        to_text(load(options.source, dict(options.shape)), options.output or options.source.with_suffix(".tenon"))
    except Error as error:
        return report("tenon.torch", error)
    return 0


if __name__ == "__main__":
    sys.exit(main())

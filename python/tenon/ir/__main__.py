"""python -m tenon.ir: runs, checks, formats and compares programs."""
import argparse
import os
import pathlib
import sys

import numpy as np

from .diff import diff
from .errors import Error, Unsupported
from .parse import load, parse_all
from .run import random_inputs, random_weights, run
from .tensors import Array

# As the tool `tenon` ends: a wrong call, a malformed text, what there is no reference of.
WRONG_CALL, MALFORMED, UNSUPPORTED = 2, 3, 4


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tenon.ir", description=__doc__.split(": ")[1])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="run with the numpy references")
    command.add_argument("file")
    command.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy",
                         help="else inputs are random")
    command.add_argument("--size", action="append", default=[], metavar="NAME=N",
                         help="a named size of random inputs")
    command.add_argument("--weights", metavar="FILE",
                         help="safetensors or GGUF; default: the companion file, else random ones")
    command.add_argument("--function", help="the function to run; default: the entry")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--trace", action="store_true", help="print every value")
    command.add_argument("--save", metavar="FOLDER", help="write the results there, as .npy")
    command = commands.add_parser("check", help="say what is wrong with a text")
    command.add_argument("files", nargs="+", metavar="FILE")
    command = commands.add_parser("fmt", help="print the canonical text")
    command.add_argument("file")
    command.add_argument("--write", action="store_true", help="into the file")
    command = commands.add_parser("diff", help="say where two programs differ in structure")
    command.add_argument("before")
    command.add_argument("after")
    options = parser.parse_args(arguments)
    try:
        return globals()["_" + options.command](options) or 0
    except Error as error:
        print(error, file=sys.stderr)
        return UNSUPPORTED if isinstance(error,
                                         Unsupported) else WRONG_CALL if error.code == "BadInput" else MALFORMED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _pairs(given, what):
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise Error("BadInput", f"{pair} is no {what}")
        yield name, value


def _run(options):
    program = load(options.file)
    try:
        sizes = {name: int(value) for name, value in _pairs(options.size, "NAME=N")}
    except ValueError as error:
        raise Error("BadInput", f"--size: {error}") from None
    inputs = {}
    for name, path in _pairs(options.input, "NAME=FILE.npy"):
        try:
            inputs[name] = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise Error("BadInput", f"{path}: {error}") from None
    function = program[options.function] if options.function else program.main
    if any(value.name not in inputs for value in function.parameters):
        inputs = {**random_inputs(program, sizes, options.seed, options.function), **inputs}
    weights = options.weights
    if weights is None and not (program.weights and pathlib.Path(options.file).with_name(program.weights).is_file()):
        weights = random_weights(options.seed)
    results = run(program, inputs, weights, options.function, _show if options.trace else None)
    for name, value in zip(function.results, results):
        print(f"{name}: {value!r}")
        if options.save:
            folder = pathlib.Path(options.save)
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"{name}.npy", value.numpy())
    return 0


def _show(event):
    if not isinstance(event.value, Array):
        return
    values = event.value.numpy()
    of = f" {values.min():.6g} .. {values.max():.6g}" if values.size else ""
    print(f"{event.line:5} {event.name}: {event.value.type}{of}")


def _check(options):
    status = 0
    for path in options.files:
        try:
            data = pathlib.Path(path).read_bytes()
        except OSError as error:
            print(f"{path}: {error.strerror}", file=sys.stderr)
            status = MALFORMED
            continue
        program, errors = parse_all(data, path)
        for error in errors:
            print(error, file=sys.stderr)
        if errors:
            status = MALFORMED
        else:
            count = sum(len(function.body) for function in program.functions)
            print(f"{path}: {len(program.functions)} functions, {count} instructions")
    return status


def _fmt(options):
    text = str(load(options.file))
    if options.write:
        pathlib.Path(options.file).write_text(text, "utf-8", newline="\n")
    else:
        sys.stdout.write(text)


def _diff(options):
    lines = diff(load(options.before), load(options.after))
    print(*lines, sep="\n" if lines else "", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

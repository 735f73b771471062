"""What the commands python -m tenon.onnx and python -m tenon.torch share."""

import argparse
import contextlib
import json
import sys
import traceback

from .. import errors, ir, save_gguf, save_safetensors
from . import files

# As the tool's: docs of `tenon --help`.
_STATUS = ((errors.ArgumentError, 2), (errors.InputError, 3), (errors.UnsupportedError, 4), (errors.MachineError, 5),
           (errors.EndedEarlyError, 6))


class Parser(argparse.ArgumentParser):
    """Of a command `python -m PROG SOURCE -o OUTPUT`."""

    def __init__(self, prog, description):
        super().__init__(prog=prog, description=description)
        self.add_argument("--json", action="store_true", help="print an error as JSON, too")

    def error(self, message):
        raise errors.ArgumentError("BadArgument", 11010, "command line", message)

    def run(self, arguments, work):
        """work(options); the exit status."""
        arguments = sys.argv[1:] if arguments is None else arguments
        as_json, command = "--json" in arguments, self.prog.removeprefix("python -m ")
        try:
            with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
                work(self.parse_args(arguments))
            return 0
        except errors.Error as error:
            return report(command, error, as_json)
        except KeyboardInterrupt:
            return report(command, errors.EndedEarlyError("Cancelled", 11012, "import", "interrupted"), as_json)
        except Exception as error:  # of this package: the place is what there is to report
            traceback.print_exc()
            return report(command, errors.InternalError("Internal", 11013, type(error).__name__, str(error)), as_json)


def report(command, error, as_json=False):
    """Prints the error; the exit status that tells whose fault it is."""
    print(f"{command}: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": {"code": error.code, "message": error.message, "where": error.where}}, indent=2))
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 1)


def to_text(program, source, target):
    """A program as target and, where it has weights, target.safetensors, or target.gguf for block types."""
    text = ir.parse(str(program))
    files.check_target(target, {"the model": source})
    files.check_place(target)
    beside = None
    if program.folded:
        has_blocks = any(one.dtype.is_block for one in program.folded.values())
        beside = target.with_suffix(".gguf" if has_blocks else ".safetensors")
        files.check_target(target, {"the file of its weights": beside})
        files.check_target(beside, {"the model": source})
        text.weights = beside.name
    try:
        data = str(text).encode("utf-8")
    except UnicodeEncodeError:
        raise errors.ArgumentError("BadArgument", 11010, str(target), "the text names the file of its weights, and is "
                                   "UTF-8, which that name is not") from None
    if beside:
        (save_gguf if has_blocks else save_safetensors)(beside, program.folded)
    files.write(target, data)


def size(text):
    """NAME=4 or NAME=1,3,224,224."""
    name, _, value = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=SIZE")
    try:
        numbers = [int(one) for one in value.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: {value!r} is no size, and no sizes") from None
    if any(not 0 <= one < 1 << 63 for one in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: a size is in [0, 2^63)")
    return name, numbers[0] if len(numbers) == 1 else tuple(numbers)

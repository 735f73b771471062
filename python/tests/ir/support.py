"""What the tests of tenon.ir share."""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

from tenon.ir import parse_all, print_program  # noqa: E402
from tenon.ir.tensors import NUMPY, Array, Type, bytes_shape, is_block  # noqa: E402
from tenon.ir.weights import from_stored  # noqa: E402

HEADER = ('# tenon 1.0\nfrom __future__ import annotations\nfrom tenon.ir import *\n'
          'module("test", opset=1)\n')


def seeded(test, fallback=None):
    """A random generator, whose seed is printed: TENON_TEST_SEED, or `fallback`, or any."""
    seed = int(os.environ.get("TENON_TEST_SEED") or fallback or random.randrange(10**6))
    print(f"{test}: TENON_TEST_SEED={seed}", flush=True)
    return random.Random(seed)


def library(*arguments, **options):
    """Runs the program of tests/ir/programs_main.cpp."""
    return subprocess.run([os.environ["TENON_IR_PROGRAMS"], *map(str, arguments)], check=True, capture_output=True,
                          **options).stdout


def library_verdicts(texts):
    """What the C++ library makes of texts (bytes): {"text": ...} or {"errors": ...} for each."""
    given = b"".join(b"%d\n%s" % (len(text), text) for text in texts)
    return [json.loads(line) for line in library("check", input=given).splitlines()]


def disagreement(text, verdict):
    """How tenon.ir reads a text (bytes) otherwise than the library, whose verdict is given; None where it does not."""
    program, errors = parse_all(text, "text")
    if "text" not in verdict:
        return None if errors else f"the library says {verdict['errors']}, tenon.ir accepts"
    if errors:
        return f"the library accepts, tenon.ir says {errors[0]}"
    if print_program(program) != verdict["text"]:
        return f"the library prints\n{verdict['text']}\ntenon.ir prints\n{print_program(program)}"
    typed = print_program(program.check())
    return None if typed == verdict["typed"] else f"the library finds\n{verdict['typed']}\ntenon.ir finds\n{typed}"


def random_programs(count, seed):
    """Texts of the C++ library's random programs."""
    environment = {**os.environ, "TENON_TEST_SEED": str(seed)}
    printed = subprocess.run([os.environ["TENON_PRINT_PROGRAMS"], str(count)], env=environment, check=True,
                             capture_output=True).stdout
    return printed.decode().split("----\n")[:-1]


def op_cases(paths=None):
    """(case, operands, expected result) of every case in these files, by default those of tests/ops/data."""
    for path in paths or sorted((ROOT / "tests/ops/data").glob("cases_*.safetensors")):
        data = path.read_bytes()
        length = struct.unpack_from("<Q", data)[0]
        header = json.loads(data[8:8 + length])

        def array(entry):
            type_ = Type(entry["dtype"], entry["shape"])
            begin, end = (8 + length + offset for offset in header[entry["array"]]["data_offsets"])
            if is_block(type_.dtype):
                return Array(type_, np.frombuffer(data[begin:end], np.uint8).reshape(bytes_shape(type_)))
            stored = np.uint16 if type_.dtype == "bf16" else NUMPY[type_.dtype]
            return Array(type_, from_stored(np.frombuffer(data[begin:end], stored), type_.dtype).reshape(type_.dims))

        for case in json.loads(header["__metadata__"]["cases"]):
            yield case, [array(entry) for entry in case["inputs"]], array(case["output"])


def agrees(got, want, absolute=0, relative=0):
    """Whether arrays are equal up to |got - want| <= absolute + relative * |want|; NaN equals NaN."""
    if got.type != want.type:
        return False
    a, b = got.data, want.data
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= absolute + relative * np.abs(b)
    return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())

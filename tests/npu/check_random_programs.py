"""check_random_programs.py GENERATOR [--count N] [--seed S]

Runs GENERATOR (tenon_npu_random_programs), which executes random programs on the simulated NPU, and
checks that every byte they left equals the integer model of npu_reference.py.
"""

import argparse
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError as missing:
    python = os.environ.get("TENON_ORACLE_PYTHON", sys.executable)
    if python != sys.executable and "TENON_ORACLE_RETRIED" not in os.environ:
        os.execve(python, [python, *sys.argv], {**os.environ, "TENON_ORACLE_RETRIED": "1"})
    print(f"SKIPPED: {missing}; set TENON_ORACLE_PYTHON to a Python that has it")
    sys.exit(77)

import npu_reference

HEADER = struct.Struct("<8Q")


def records(path):
    with open(path, "rb") as file:
        while header := file.read(HEADER.size):
            seed, *sizes, ocm_bytes, acc_bytes = HEADER.unpack(header)
            yield seed, [file.read(size) for size in sizes], ocm_bytes, acc_bytes


def check(fields, seed, parts, ocm_bytes, acc_bytes):
    program, weight, source, output, ftmp = parts
    segments = {
        0: np.frombuffer(weight, np.uint8),
        2: np.frombuffer(source, np.uint8),
        3: np.zeros(len(output), np.uint8),
        4: np.zeros(len(ftmp), np.uint8),
    }
    machine = npu_reference.run(fields, program, segments, ocm_bytes, acc_bytes)
    for number, left in ((3, output), (4, ftmp)):
        expected = np.frombuffer(left, np.uint8)
        wrong = np.flatnonzero(segments[number] != expected)
        if wrong.size:
            at = int(wrong[0])
            print(f"seed {seed}: segment {number}: {wrong.size} of {expected.size} bytes differ, first at "
                  f"{at}: device {expected[at]}, reference {segments[number][at]}")
            return None
    return machine.seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("generator")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 40))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    page = pathlib.Path(__file__).parents[2] / "docs" / "npu-isa.md"
    fields = npu_reference.Fields(page.read_text())
    seen = {}
    failures = checked = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "programs"
        # In pieces: ten thousand programs and their data are gigabytes.
        for first in range(0, options.count, 500):
            count = min(500, options.count - first)
            subprocess.run([options.generator, str(path), str(count), str(options.seed + first)],
                           check=True)
            for record in records(path):
                kinds = check(fields, *record)
                checked += 1
                failures += kinds is None
                for kind, times in (kinds or {}).items():
                    seen[kind] = seen.get(kind, 0) + times
    print(f"{checked} programs, {failures} failures; instructions: "
          + ", ".join(f"{kind} {times}" for kind, times in sorted(seen.items())))
    wanted = set(npu_reference.METHODS)
    if options.count >= 200 and not wanted <= set(seen):
        print(f"never seen: {wanted - set(seen)}")
        return 1
    return 1 if failures or checked != options.count else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the program `tenon` and takes apart what it prints."""

import ast
import json
import os
import pathlib
import struct
import subprocess
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
DATA = SOURCE / "tests" / "models" / "data"
LLAMA = DATA / "tiny_llama.gguf"
LLAMA_VOCABULARY = 272

# The exit status of each class of errors, as the README promises them.
WRONG_CALL, MALFORMED, UNSUPPORTED, MACHINE, ENDED_EARLY = 2, 3, 4, 5, 6


def _refuse_constant(word):
    raise ValueError(f"{word} is no JSON")


def read_npy(path):
    """Shape and flat values of a little-endian file of f32."""
    data = pathlib.Path(path).read_bytes()
    assert data[:6] == b"\x93NUMPY", data[:6]
    (length,) = struct.unpack_from("<H", data, 8)
    header = ast.literal_eval(data[10 : 10 + length].decode("ascii"))
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    values = struct.unpack(f"<{(len(data) - 10 - length) // 4}f", data[10 + length :])
    return header["shape"], values


class ToolTest(unittest.TestCase):
    """`tenon` runs the program, `json` what it prints with --json, `refused` a call it must refuse."""

    program = os.environ.get("TENON_TOOL")
    maxDiff = 2000

    def setUp(self):
        self.assertTrue(self.program, "TENON_TOOL names the program to test")

    def tenon(self, *arguments, stdin=b"", status=0, variables=None):
        done = subprocess.run(
            [self.program, *map(_argument, arguments)], env={**os.environ, **(variables or {})},
            input=stdin, capture_output=True, cwd=SOURCE, timeout=300, check=False,
        )
        self.assertEqual(done.returncode, status, (arguments, done.stderr))
        return done

    def peak_bytes(self, *arguments):
        """The most memory that a call takes, mapped files included."""
        if "LSAN_OPTIONS" in os.environ:
            self.skipTest("the address sanitizer keeps memory that the program has freed")
        with subprocess.Popen(
            [self.program, *map(_argument, arguments)], stdout=subprocess.DEVNULL, cwd=SOURCE
        ) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, arguments)
        return usage.ru_maxrss * 1024

    def json(self, *arguments, stdin=b"", status=0):
        """The one JSON object on standard output; anything beside it fails."""
        done = self.tenon(*arguments, "--json", stdin=stdin, status=status)
        result = json.loads(done.stdout.decode("utf-8"), parse_constant=_refuse_constant)
        self.assertIsInstance(result, dict)
        return result

    def refused(self, status, code, *arguments, says="", stdin=b""):
        """One line on standard error, the same as an object with --json, and the exit status."""
        with self.subTest(arguments=[str(a) for a in arguments]):
            plain = self.tenon(*arguments, stdin=stdin, status=status)
            self.assertEqual(plain.stdout, b"")
            line = plain.stderr.decode("utf-8", "replace")
            self.assertEqual(line.count("\n"), 1, line)
            self.assertTrue(line.startswith(f"tenon: {code}: "), line)
            self.assertTrue(line.endswith("\n"), line)
            self.assertIn(says, line)

            done = self.tenon(*arguments, "--json", stdin=stdin, status=status)
            self.assertEqual(done.stderr, plain.stderr)
            result = json.loads(done.stdout.decode("utf-8"))
            self.assertEqual(list(result), ["error"])
            self.assertEqual(list(result["error"]), ["code", "message", "where"])
            error = result["error"]
            self.assertEqual(error["code"], code)
            self.assertIn(error["message"].split("\n")[0], line)
            self.assertTrue(error["message"])
            self.assertTrue(error["where"])


def _argument(value):
    return value if isinstance(value, bytes) else os.fsencode(str(value))

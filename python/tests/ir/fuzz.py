"""Changes programs' texts at random, then reads, checks, prints and runs what comes out with tenon.ir.

    python python/tests/ir/fuzz.py [--cpu-minutes 15] [--seed 1]
    python python/tests/ir/fuzz.py --library           # instead of running: do tenon.ir and the C++ library agree?
    python python/tests/ir/fuzz.py --one SEED          # one case again, and its text

Anything but a result or a tenon.ir.Error is a finding, and so is a case of more than 10 seconds of CPU time. Texts are
those of the tests, the documents and the examples, a program for each committed op case and, where
TENON_PRINT_PROGRAMS is the program tests/core/print_programs.cpp, random programs. --library asks the program that
TENON_IR_PROGRAMS names, tests/ir/programs_main.cpp.
"""

import argparse
import collections
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
import traceback

import support
import text_test
from support import ROOT
from tenon.ir import Error, parse, print_program, random_inputs, random_weights, run, verify

SECONDS, GIGABYTES = 10, 8
WORDS = ["-1", "0", "7", "4294967296", "9223372036854775807", "1e999", "N", "f32[2]", "q4_0[32]", "i64", "bool[0, 3]", "[]",
         "None", "repeat", "item", "scope", "const", "pack", "while_loop", "return", "x", "\u00e9", "\x00", "'", "#"]


def seeds():
    folders = [ROOT / folder for folder in ("examples", "tests", "python/tests")]
    files = [path for folder in folders for path in sorted(folder.rglob("*.tenon")) if path.stat().st_size < 20_000]
    texts = {path.read_text("utf-8") for path in files}
    for page in sorted((ROOT / "docs").glob("*.md")):
        texts.update(re.findall(r"^(# tenon 1\.0\n.*?)^(?:```|''')", page.read_text("utf-8"), re.DOTALL | re.MULTILINE))
    texts.update(text.decode("utf-8", "replace") for text in (*text_test.corpus(), *text_test.case_programs()))
    if "TENON_PRINT_PROGRAMS" in os.environ:
        texts.update(support.random_programs(300, 1))
    return sorted(texts)


def changed(text, other, rng):
    for _ in range(rng.randint(1, 4)):
        lines = text.split("\n")
        kind, line = rng.randrange(8), rng.randrange(len(lines))
        tokens = list(re.finditer(r"\w+|[^\w\s]", text))
        if kind < 4 and tokens:
            at = rng.choice(tokens)
            words = (rng.choice(WORDS), rng.choice(tokens).group(), "", at.group() + " " + at.group())
            text = text[:at.start()] + words[kind] + text[at.end():]
        elif kind == 4:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + chr(rng.choice((0, 9, 10, 34, 92, 127, 233, 0x1F600, rng.randrange(128)))) + text[at:]
        elif kind == 5:
            lines.insert(rng.randrange(len(lines)), lines[line])
            text = "\n".join(lines)
        elif kind == 6:
            del lines[line]
            text = "\n".join(lines)
        else:
            lines.insert(line, rng.choice(other.split("\n")))
            text = "\n".join(lines)
    return text


def case(texts, seed):
    rng = random.Random(seed)
    text, other = rng.choice(texts), rng.choice(texts)
    kind = rng.randrange(3)
    if kind == 0:
        return changed(text, other, rng)
    data = text.encode("utf-8", "surrogateescape")
    for _ in range(rng.randint(1, 3)):
        if kind == 1:
            data = text_test.mutated(data, rng)
        else:
            data = text_test.exchanged(data, rng, other.encode("utf-8", "surrogateescape"))
    return data.decode("utf-8", "surrogateescape")


def read(text):
    program = parse(text)
    verify(program)
    assert print_program(parse(print_program(program))) == print_program(program)
    types = [value.type for value in program.main.parameters if value.type]
    sizes = {size: 2 for type in types for size in type.dims if isinstance(size, str)}
    run(program, random_inputs(program, sizes), random_weights())
    return "run"


def compare(text, verdict):
    return support.disagreement(text, verdict) or ("read" if "text" in verdict else "refused")


def out_of_time(*_):
    raise TimeoutError(f"more than {SECONDS} seconds of CPU time")


def outcome_of(work, *arguments):
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return work(*arguments)
    except Error:
        return "refused"
    except MemoryError:
        return "refused"
    except BaseException:  # noqa: BLE001
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def ran(texts, seeds_of_cases):
    """(seed, outcome) of cases that tenon.ir reads and runs."""
    return [(seed, outcome_of(read, case(texts, seed))) for seed in seeds_of_cases]


def compared(texts, seeds_of_cases):
    """(seed, outcome) of cases that both libraries read."""
    cases = [case(texts, seed).encode("utf-8", "surrogateescape") for seed in seeds_of_cases]
    try:
        verdicts = support.library_verdicts(cases)
    except subprocess.CalledProcessError as error:
        if len(cases) > 1:
            return [found for seed in seeds_of_cases for found in compared(texts, [seed])]
        return [(seeds_of_cases[0], f"the library ended with {error.returncode}: {error.stderr.decode()[-300:]}")]
    return [(seed, outcome_of(compare, *one)) for seed, *one in zip(seeds_of_cases, cases, verdicts, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cpu-minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", type=int)
    parser.add_argument("--library", action="store_true")
    options = parser.parse_args()
    texts = seeds()
    signal.signal(signal.SIGPROF, out_of_time)
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES << 30,) * 2)
    attempt = compared if options.library else ran
    if options.one is not None:
        print(case(texts, options.one), attempt(texts, [options.one])[0][1], sep="\n")
        return 0
    counts, findings, seed = collections.Counter(), 0, options.seed * 10**9
    while time.process_time() < options.cpu_minutes * 60:
        for at, outcome in attempt(texts, range(seed + 1, seed + 201)):
            if outcome in ("run", "read", "refused"):
                counts[outcome] += 1
            else:
                findings += 1
                print(f"seed {at}: {outcome}", flush=True)
        seed += 200
    print(f"{dict(counts)}, {findings} findings, {len(texts)} texts, {time.process_time() / 60:.1f} CPU-minutes")
    return findings != 0


if __name__ == "__main__":
    sys.exit(main())

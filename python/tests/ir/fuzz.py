"""Changes programs' texts at random, then reads, checks, prints and runs what comes out with tenon.ir.

    python python/tests/ir/fuzz.py [--cpu-minutes 15] [--seed 1]
    python python/tests/ir/fuzz.py --one SEED          # one case again, and its text

Anything but a result or a tenon.ir.Error is a finding, and so is a case of more than 10 seconds of CPU time.
"""

import argparse
import pathlib
import random
import re
import resource
import signal
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

from tenon.ir import Error, parse, print_program, random_inputs, random_weights, run, verify  # noqa: E402

SECONDS, GIGABYTES = 10, 8
WORDS = ["-1", "0", "7", "4294967296", "9223372036854775807", "1e999", "N", "f32[2]", "q4_0[32]", "i64", "bool[0, 3]", "[]",
         "None", "repeat", "item", "scope", "const", "pack", "while_loop", "return", "x", "\u00e9", "\x00", "'", "#"]


def seeds():
    folders = [ROOT / folder for folder in ("examples", "tests", "python/tests")]
    files = [path for folder in folders for path in sorted(folder.rglob("*.tenon")) if path.stat().st_size < 20_000]
    return [path.read_text("utf-8") for path in files]


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
    return changed(rng.choice(texts), rng.choice(texts), rng)


def read(text):
    program = parse(text)
    verify(program)
    assert print_program(parse(print_program(program))) == print_program(program)
    sizes = {size: 2 for size in re.findall(r"\b[A-Z]\w*\b", text)}
    run(program, random_inputs(program, sizes), random_weights())


def out_of_time(*_):
    raise TimeoutError(f"more than {SECONDS} seconds of CPU time")


def outcome_of(text):
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        read(text)
        return "run"
    except Error:
        return "refused"
    except MemoryError:
        return "refused"
    except BaseException:  # noqa: BLE001
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cpu-minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", type=int)
    options = parser.parse_args()
    texts = seeds()
    signal.signal(signal.SIGPROF, out_of_time)
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES << 30,) * 2)
    if options.one is not None:
        text = case(texts, options.one)
        print(text, outcome_of(text), sep="\n")
        return 0
    counts, findings, seed = {"run": 0, "refused": 0}, 0, options.seed * 10**9
    while time.process_time() < options.cpu_minutes * 60:
        seed += 1
        outcome = outcome_of(case(texts, seed))
        if outcome in counts:
            counts[outcome] += 1
        else:
            findings += 1
            print(f"seed {seed}: {outcome}", flush=True)
    print(f"{counts}, {findings} findings, {len(texts)} texts, {time.process_time() / 60:.1f} CPU-minutes")
    return findings != 0


if __name__ == "__main__":
    sys.exit(main())

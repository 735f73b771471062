#!/usr/bin/env python3
"""Runs benchmarks and puts what they print into docs/performance.md.

    report.py [SECTION...] [--models FILE.gguf...] [--encoder FOLDER] [--peer-python PATH]
              [--peer "NAME=LLAMA_BENCH [ARGUMENTS]"]... [-t THREADS] [--page docs/performance.md]

A section of the page stands between <!-- NAME --> and <!-- end NAME -->; only those lines are written, with the
machine, the date, the versions and the command. Without sections named, all whose inputs are given are run. Build
with -DTENON_BENCHMARKS=ON first.
"""

import argparse
import datetime
import os
import pathlib
import platform
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release/benchmarks"


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "unknown CPU")


def versions(python):
    """Of the peers that this Python has."""
    names = ("llama-cpp-python", "onnxruntime", "openvino")
    script = ("import importlib.metadata as m\n"
              f"for n in {names!r}:\n"
              "  try: print(n, m.version(n))\n"
              "  except m.PackageNotFoundError: pass")
    return subprocess.run([python, "-c", script], capture_output=True, text=True).stdout.split("\n")[:-1]


def commands(args):
    """What fills each section, as far as its inputs are given."""
    benchmarks = pathlib.Path("benchmarks")
    result = {
        "limits": [str(BUILD / "bench_limits"), "--threads", args.t],
        "gemm": [str(BUILD / "bench_gemm"), "--threads", args.t],
        "ops": [str(BUILD / "bench_ops"), "--threads", args.t],
        "vision": [args.peer_python, benchmarks / "vision.py", "-t", args.t],
    }
    if args.models:
        peers = [part for peer in args.peer for part in ("--peer", peer)]
        result["llm"] = [args.peer_python, benchmarks / "llm.py", *args.models, "-t", args.t, "-r", args.r, *peers]
    if args.encoder:
        result["encoder"] = [args.peer_python, benchmarks / "encoder.py", args.encoder, "-t", args.t]
    return {name: [str(part) for part in command] for name, command in result.items()}


def shown(command):
    """The command as a reader would type it: programs and files by their place in the project or their name."""
    parts = []
    for part in command:
        if "=" in part and "/" in part:
            name, _, rest = part.partition("=")
            words = shlex.split(rest)
            part = f"{name}={' '.join([pathlib.Path(words[0]).name, *words[1:]])}"
        elif part == command[0] and pathlib.Path(part).name.startswith("python"):
            part = "python3"
        elif part.startswith(str(ROOT)):
            part = str(pathlib.Path(part).relative_to(ROOT))
        elif os.path.isabs(part):
            part = pathlib.Path(part).name
        parts.append(part)
    environment = [f"{name}={os.environ[name]}" for name in ("TENON_CPU_ISA", "ONEDNN_MAX_CPU_ISA")
                   if name in os.environ]
    return " ".join(environment + [shlex.quote(part) for part in parts])


def replace(page, name, text):
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    if begin not in page or end not in page:
        sys.exit(f"{name}: the page has no {begin} ... {end}")
    return page[: page.index(begin) + len(begin)] + "\n" + text + page[page.index(end):]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    parser.add_argument("--models", nargs="+", default=[])
    parser.add_argument("--encoder")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("-t", type=int, default=os.cpu_count())
    parser.add_argument("-r", type=int, default=5, help="turns of llm.py")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/performance.md")
    args = parser.parse_args()

    known = commands(args)
    for name in args.sections or known:
        base = name.split("-")[0]  # "llm-avx2" is llm once more, under another environment
        if base not in known:
            sys.exit(f"{name}: no such section, or its inputs are not given (there are: {', '.join(known)})")
        print(f"{name}: {shlex.join(known[base])}", file=sys.stderr)
        done = subprocess.run(known[base], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{name}: exit status {done.returncode}")
        about = ", ".join([cpu_name(), f"{os.cpu_count()} cores", platform.system() + " " + platform.release().split("-")[0],
                           datetime.date.today().isoformat(), *versions(args.peer_python)])
        text = f"{about}\n\n    {shown(known[base])}\n\n```\n{done.stdout.rstrip()}\n```\n"
        # Read again each time: somebody may edit the page while benchmarks run.
        args.page.write_text(replace(args.page.read_text(encoding="utf-8"), name, text), encoding="utf-8")


if __name__ == "__main__":
    main()

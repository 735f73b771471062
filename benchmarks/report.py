#!/usr/bin/env python3
"""Runs benchmarks and puts what they print into the full tables of docs/kernels.md.

    report.py [SECTION...] [--models FILE.gguf...] [--encoder FOLDER] [--peer-python PATH]
              [--peer "NAME=LLAMA_BENCH [ARGUMENTS]"]... [--ggml FOLDER] [-t THREADS] [--page docs/kernels.md]
              [--level ISA] [--machine WORDS]

A section of the page stands between <!-- NAME --> and <!-- end NAME -->; only those lines are written, with the
machine, the date, the versions and the commands. Without sections named, all whose inputs are given are run. Build
with -DTENON_BENCHMARKS=ON first. Sections that end in -avx2 hold Tenon, oneDNN and OpenBLAS to AVX2; peers that
cannot be held are left out of them by giving others (--peer, --peer-python). Tables of another machine than the page's
stand between marks of their own, <!-- NAME, WORDS -->. docs/performance.md is a digest of these tables, edited by hand.
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


AVX2 = {"TENON_CPU_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}


def sections(args):
    """What fills each section, as far as its inputs are given: pairs of an environment and a command."""
    benchmarks = pathlib.Path("benchmarks")
    gemm = [BUILD / "bench_gemm", "--threads"]
    cubes = ["--cube", "1024,2048,4096"]
    vision = [args.peer_python, benchmarks / "vision.py", "-t", args.t]
    result = {
        "limits": [({}, [BUILD / "bench_limits", "--threads", args.t])],
        "gemm": [({}, [*gemm, args.t, "--type", "f32,bf16", *(["--ggml", args.ggml] if args.ggml else [])])],
        "gemm-blocks": [({"DNNL_MAX_CPU_ISA": peer}, [*gemm, args.t, "--type", "blocks", "--rows", "512,2048",
                                                      "--isa", level])
                        for level, peer in levels_here() if args.level in (None, level)],
        "accuracy": [({}, [*gemm, args.t, "--accuracy", "yes", "--type", "blocks", "--isa", level,
                           *(["--ggml", args.ggml] if args.ggml else [])]) for level in ("avx2", "amx")
                     if level == "avx2" or "amx_bf16" in flags_here()],
        "gemm-square": [({}, [*gemm, threads, *cubes]) for threads in (1, args.t)],
        "gemm-square-avx2": [(AVX2, [*gemm, threads, *cubes]) for threads in (1, args.t)],
        "ops": [({}, [BUILD / "bench_ops", "--threads", args.t])],
        "vision": [({}, vision)],
        "vision-avx2": [(AVX2, vision)],
        "vision-int8": [({}, [*vision, "--int8"])],
        "vision-int8-accuracy": [({}, [*vision, "--int8", "--only-prepare"])],
    }
    if args.models:
        peers = [part for peer in args.peer for part in ("--peer", peer)]
        llm = [args.peer_python, benchmarks / "llm.py", *args.models, "-t", args.t, "-r", args.r, *peers]
        result["llm"] = [({}, llm)]
        result["llm-avx2"] = [(AVX2, llm)]
        result["llm-more"] = [({}, [*llm, "-p", "512", "-n", "64", "-d", "0"])]
    if args.encoder:
        encoder = [benchmarks / "encoder.py", args.encoder, "-t", args.t, "--peer-python", args.peer_python]
        result["encoder"] = [({}, [sys.executable, *encoder])]
    return {name: [(environment, [str(part) for part in command]) for environment, command in runs]
            for name, runs in result.items()}


def levels_here():
    """The instruction sets with integer dot products on this machine: Tenon's name and oneDNN's."""
    levels = (("avx2", "avx2", "AVX2"), ("avx512", "avx512bw", "AVX512_CORE"),
              ("avx512_vnni", "avx512_vnni", "AVX512_CORE_VNNI"))
    return [(level, peer) for level, flag, peer in levels if flag in flags_here()]


def flags_here():
    return pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()


def shown(environment, command):
    """The command as a reader would type it: programs and files by their place in the project or their name."""
    parts = []
    for part in command:
        if "=" in part and "/" in part:
            name, _, rest = part.partition("=")
            words = shlex.split(rest)
            part = f"{name}={' '.join([pathlib.Path(words[0]).name, *words[1:]])}"
        elif pathlib.Path(part).name.startswith("python"):
            part = "python3"
        elif part.startswith(str(ROOT)):
            part = str(pathlib.Path(part).relative_to(ROOT))
        elif os.path.isabs(part):
            part = pathlib.Path(part).name
        parts.append(part)
    return " ".join([f"{name}={value}" for name, value in environment.items()] + [shlex.quote(part) for part in parts])


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
    parser.add_argument("--ggml", help="a folder with libggml-cpu.so, for matrix multiplications")
    parser.add_argument("-t", type=int, default=os.cpu_count())
    parser.add_argument("-r", type=int, default=5, help="turns of llm.py")
    parser.add_argument("--level", help="the only instruction set of gemm-blocks")
    parser.add_argument("--machine", help="what marks of this machine's tables say behind the section's name")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/kernels.md")
    args = parser.parse_args()

    known = sections(args)
    for name in args.sections or known:
        if name not in known:
            sys.exit(f"{name}: no such section, or its inputs are not given (there are: {', '.join(known)})")
        about = [cpu_name(), f"{os.cpu_count()} cores", platform.system() + " " + platform.release().split("-")[0],
                 datetime.date.today().isoformat()]
        if any("--peer-python" in command or command[0] == args.peer_python for _, command in known[name]):
            about += versions(args.peer_python)
        text = ", ".join(about) + "\n"
        for environment, command in known[name]:
            print(f"{name}: {shlex.join(command)}", file=sys.stderr)
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
            if done.returncode != 0:
                sys.exit(f"{name}: exit status {done.returncode}")
            text += f"\n    {shown(environment, command)}\n\n```\n{done.stdout.rstrip()}\n```\n"
        marks = name if args.machine is None else f"{name}, {args.machine}"
        # Read again each time: somebody may edit the page while benchmarks run.
        args.page.write_text(replace(args.page.read_text(encoding="utf-8"), marks, text), encoding="utf-8")


if __name__ == "__main__":
    main()

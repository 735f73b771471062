#!/usr/bin/env python3
"""coverage_table.py ROOT: prints a table of the sources below ROOT from llvm-cov's summary (JSON) on stdin.

Least covered first; sources whose every line and branch is reached are counted in the total alone. Sources for
instruction sets that this machine does not have are named, and not counted.
"""
import json
import os
import re
import sys

# What a source's name says of its instruction set (backends/cpu/CMakeLists.txt), and Linux's word for that.
INSTRUCTION_SETS = {"avx_vnni": "avx_vnni", "avx512": "avx512bw", "avx512_vnni": "avx512_vnni", "amx": "amx_int8"}


def instruction_set(name):
    found = re.search(r"(?:^|[/_])(avx_vnni|avx512_vnni|avx512|amx)[_.]", name)
    return INSTRUCTION_SETS[found[1]] if found else None


def machine_has():
    with open("/proc/cpuinfo") as file:
        return set(next((line for line in file if line.startswith("flags")), "").split())


def counts(summary):
    return [summary[what][key] for what in ("lines", "branches") for key in ("count", "covered")]


def row(name, lines, lines_covered, branches, branches_covered):
    def part(count, covered):
        return f"{100 * covered / count if count else 0:6.1f} % of {count:6d}"

    return f"{part(lines, lines_covered)}  {part(branches, branches_covered)}  {name}"


def main():
    sources = {os.path.relpath(file["filename"], sys.argv[1]): counts(file["summary"])
               for file in json.load(sys.stdin)["data"][0]["files"]}
    flags = machine_has()
    not_counted = {}
    for name in sorted(sources):
        needed = instruction_set(name)
        if needed and needed not in flags:
            not_counted.setdefault(needed, {})[name] = sources.pop(name)[0]

    print("lines covered      branches covered   source")
    missed = {name: (lines - lines_covered, branches - branches_covered, name)
              for name, (lines, lines_covered, branches, branches_covered) in sources.items()}
    for name in sorted(sources, key=missed.get, reverse=True):
        if any(missed[name][:2]):
            print(row(name, *sources[name]))
    print(row("all", *map(sum, zip(*sources.values()))))
    for needed, names in not_counted.items():
        print(f"not counted, this machine has no {needed}: {', '.join(names)}: {sum(names.values())} lines")


main()

#!/usr/bin/env python3
"""coverage_table.py ROOT: reads llvm-cov's summary (JSON) from standard input and prints a table of the sources below ROOT.

Least covered first; sources whose every line and branch is reached are counted in the total alone.
"""
import json
import os
import sys


def row(name, summary):
    lines, branches = summary["lines"], summary["branches"]
    missed = lines["count"] - lines["covered"], branches["count"] - branches["covered"]
    return missed, f"{lines['percent']:6.1f} % of {lines['count']:6d}  {branches['percent']:6.1f} % of {branches['count']:6d}  {name}"


def main():
    data = json.load(sys.stdin)["data"][0]
    rows = [row(os.path.relpath(file["filename"], sys.argv[1]), file["summary"]) for file in data["files"]]
    print("lines covered      branches covered   source")
    for missed, text in sorted(rows, reverse=True):
        if any(missed):
            print(text)
    print(row("all", data["totals"])[1])


main()

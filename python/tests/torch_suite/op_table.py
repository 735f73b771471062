"""The table of docs/torch.md: the ops that tenon.torch takes.

    python python/tests/torch_suite/op_table.py --write docs/torch.md
"""

import collections
import pathlib
import re
import sys

import tenon.torch  # noqa: F401: fills the table of handlers
from tenon.torch.node import HANDLERS

FAMILIES = {"pointwise": "single elements", "creation": "made arrays", "shapes": "sizes and places",
            "reductions": "reductions and orders", "products": "products, attention, convolutions",
            "linear_algebra": "equations and factorisations",
            "losses": "losses of classes and of pairs", "norms": "norms",
            "images": "pools and images", "indexing": "indices", "strides": "places in memory",
            "recurrent": "recurrent layers", "quantised": "codes", "complex": "complex numbers and transforms",
            "symbols": "sizes and numbers", "control": "branches and loops"}


def table():
    """Rows of family, op and overloads, in Markdown."""
    families = collections.defaultdict(lambda: collections.defaultdict(list))
    for target, handler in HANDLERS.items():
        parts = target.split(".")
        name = ".".join(parts[1:2] if parts[0] == "aten" else parts[:2])
        families[handler.__module__.rpartition(".")[2]][name].extend(parts[2:])
    lines = ["| family | ops |", "|---|---|"]
    for family, title in FAMILIES.items():
        ops = families.pop(family)
        lines.append(f"| {title} | {', '.join(f'`{name}`' for name in sorted(ops))} |")
    if families:
        raise SystemExit(f"families without a title: {sorted(families)}")
    return "\n".join(lines)


def main():
    if sys.argv[1:2] != ["--write"]:
        print(table())
        return
    page = pathlib.Path(sys.argv[2])
    text = page.read_text()
    page.write_text(re.sub(r"(<!-- ops -->\n).*?(\n<!-- end of ops -->)", lambda m: m[1] + table() + m[2], text,
                           flags=re.S))


if __name__ == "__main__":
    main()

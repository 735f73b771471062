"""The node tests of the package `onnx`, each read by tenon.onnx and run, sorted by what came of them.

    python python/tests/onnx_suite/node_suite.py                # the counts, and every test that did not pass
    python python/tests/onnx_suite/node_suite.py --write docs/onnx.md    # puts the table into the page
"""

import argparse
import collections
import pathlib
import re
import sys
import warnings

import ml_dtypes
import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

import tenon
import tenon.onnx
from tenon.onnx.types import NAMES

OUTCOMES = ("passed", "wrong", "refused", "other types", "crashed")


def types_of(model):
    """Kinds of a model's inputs and results that Tenon does not have."""
    found = set()
    for one in (*model.graph.input, *model.graph.output):
        kind = one.type.WhichOneof("value")
        if kind != "tensor_type":
            found.add(kind.replace("_type", ""))
        elif one.type.tensor_type.elem_type not in NAMES:
            found.add(onnx.TensorProto.DataType.Name(one.type.tensor_type.elem_type).lower())
    return found


def as_array(proto, kind):
    """A test's input or output: an array, or None for a sequence or an optional."""
    if kind.WhichOneof("value") != "tensor_type":
        return None
    return onnx.numpy_helper.to_array(proto) if isinstance(proto, onnx.TensorProto) else np.asarray(proto)


def data_sets(case, model):
    """(inputs by name, expected results) of each of a test's data sets."""
    initial = {one.name for one in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in initial]
    for given, wanted in case.data_sets:
        yield ({one.name: as_array(array, one.type) for one, array in zip(inputs, given)},
               [as_array(array, one.type) for one, array in zip(model.graph.output, wanted)])


def difference(case, got, wanted):
    """What differs, as a sentence: nothing within the test's own tolerances, or the rounding of the largest result."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    if got.dtype.kind in "biu":
        return "" if np.array_equal(got, wanted) else f"{got.ravel()[:4]}, not {wanted.ravel()[:4]}"
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    largest = np.abs(b[np.isfinite(b)]).max(initial=0)
    eps = float(ml_dtypes.finfo(wanted.dtype).eps)
    if np.allclose(a, b, rtol=case.rtol, atol=max(case.atol, eps * largest), equal_nan=True):
        return ""
    return f"{got.ravel()[:4]}, not {wanted.ravel()[:4]}, {np.nanmax(np.abs(a - b)) if a.size else 0:.2g} apart"


def run(case):
    """(outcome, detail, whether values of inputs were fixed)."""
    model = case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")
    foreign = types_of(model)
    if foreign:
        return "other types", ", ".join(sorted(foreign)), False
    try:
        read = tenon.onnx.Model(model)
        for given, wanted in data_sets(case, model):
            for got, want in zip(read.run(given), wanted, strict=True):
                apart = difference(case, got, want)
                if apart:
                    return "wrong", apart, bool(read.fixed)
        return "passed", "", bool(read.fixed)
    except tenon.Error as error:
        return "refused", str(error), False
    except Exception as error:  # noqa: BLE001: whatever it is, it is a finding
        return "crashed", f"{type(error).__name__}: {error}", False


def op_of(case):
    model = case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")
    ops = [node.op_type for node in model.graph.node]
    return ops[0] if len(set(ops)) == 1 else re.sub(r"_.*", "", case.name.removeprefix("test_"))


def table(results):
    """The page's table: counts, then refusals by op and by type."""
    counts = collections.Counter(outcome for outcome, *_ in results.values())
    ours = len(results) - counts["other types"]
    fixed = sum(1 for outcome, _, was_fixed in results.values() if outcome == "passed" and was_fixed)
    lines = [f"| of {len(results)} tests (onnx {onnx.__version__}) | |", "|---|---|",
             f"| of types that Tenon has | {ours} |",
             f"| passed | {counts['passed']}, {100 * counts['passed'] / ours:.1f} % |",
             f"| of these, with values of inputs fixed while the model was read | {fixed} |",
             f"| wrong | {counts['wrong']} |", f"| other exceptions | {counts['crashed']} |",
             f"| refused with a typed error | {counts['refused']} |",
             f"| of other types | {counts['other types']} |", ""]
    refused = collections.Counter()
    for outcome, detail, _ in results.values():
        if outcome == "refused":
            refused[reason(detail)] += 1
    lines += ["| refused | tests |", "|---|---|"]
    lines += [f"| {text} | {count} |" for text, count in sorted(refused.items(), key=lambda one: (-one[1], one[0]))]
    kinds = collections.Counter(detail for outcome, detail, _ in results.values() if outcome == "other types")
    lines += ["", "| types that Tenon does not have | tests |", "|---|---|"]
    lines += [f"| {text} | {count} |" for text, count in sorted(kinds.items(), key=lambda one: (-one[1], one[0]))]
    return "\n".join(lines) + "\n"


def reason(detail):
    """A refusal without the names and sizes of one test."""
    text = re.sub(r"^\w+: ", "", detail)
    text = re.sub(r" '[^']*': ", ": ", text, count=1) if re.match(r"\w+ '", text) else text
    text = re.sub(r"(f8_\w+|[a-z]+\d+)\[[^\]]*\]", r"\1[..]", text).replace("|", "\\|")
    return text if len(text) < 160 else text[:157] + "..."


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--match", default="", help="only tests whose names match this regular expression")
    parser.add_argument("--write", type=pathlib.Path, help="a page whose part between two marks is replaced")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = {}
    for case in load_model_tests(kind="node"):
        if re.search(options.match, case.name):
            results[case.name] = run(case)
    for name, (outcome, detail, _) in sorted(results.items()):
        if outcome not in ("passed", "other types"):
            print(f"{outcome}: {name}: {detail}")
    print(collections.Counter(outcome for outcome, *_ in results.values()))
    if options.write:
        page = options.write.read_text()
        begin, end = "<!-- node tests -->\n", "<!-- end of node tests -->"
        head, rest = page.split(begin)
        options.write.write_text(head + begin + "\n" + table(results) + "\n" + end + rest.split(end)[1])
    return any(outcome in ("wrong", "crashed") for outcome, *_ in results.values())


if __name__ == "__main__":
    sys.exit(main())

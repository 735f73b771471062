"""The node tests again at older opsets, as far as onnx.version_converter takes them there, against ONNX Runtime.

    python python/tests/onnx_suite/older_opsets.py 9 11 13 17 21
"""

import collections
import copy
import sys
import warnings

import node_suite
import numpy as np
import onnx
import onnxruntime
from onnx import version_converter


def older(case, opset):
    """The test at an opset, with what ONNX Runtime computes; None where the converter or ONNX Runtime cannot."""
    model = case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")
    have = [one.version for one in model.opset_import if one.domain == ""]
    if len(model.opset_import) != 1 or not have or have[0] <= opset or node_suite.types_of(model):
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        made = version_converter.convert_version(model, opset)
        made.ir_version = min(made.ir_version, 10)
        onnx.checker.check_model(made)
        session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        given, _ = next(node_suite.data_sets(case, model))
        results = [np.asarray(one) for one in session.run(None, given)]
    except Exception:  # noqa: BLE001: no adapter, or no kernel
        return None
    case = copy.copy(case)
    case.model, case.data_sets = made, [(list(given.values()), results)]
    return case


def main():
    warnings.simplefilter("ignore")
    failed = False
    for opset in map(int, sys.argv[1:]):
        counts = collections.Counter()
        for case in node_suite.load_model_tests(kind="node"):
            made = older(case, opset)
            if made is None:
                continue
            outcome, detail, _ = node_suite.run(made)
            counts[outcome] += 1
            if outcome in ("wrong", "crashed"):
                failed = True
                print(f"opset {opset}: {outcome}: {case.name}: {detail}", flush=True)
        print(opset, dict(counts), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

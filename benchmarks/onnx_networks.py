"""ONNX models by tenon.onnx and by ONNX Runtime: how far the results are apart, and the times, interleaved.

    python python/tests/onnx_suite/torch_networks.py FOLDER     # or any models, each with its inputs in NAME.npz beside it
    python benchmarks/onnx_networks.py FOLDER [--threads 2] [--rounds 15] [--match NAME] [--cpu]

--cpu takes the process's processor time, with one thread: beside other work on the machine it says more.
Also reads each model once with its named sizes left open, and runs that program.
"""

import argparse
import pathlib
import statistics
import time

import numpy as np
import onnx
import onnxruntime

import tenon
import tenon.onnx


def distance(got, wanted):
    """The largest difference, as a share of the largest number."""
    worst = 0.0
    for a, b in zip(got, wanted, strict=True):
        if a.shape != b.shape:
            return float("inf")
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.size:
            worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return worst


def open_sizes(path, arrays, wanted):
    """What the program with symbolic sizes gives, in words."""
    try:
        program = tenon.onnx.load(path)
        got = tenon.Session(program, threads=2).forward(*arrays.values())
        return f"{distance([one.numpy() for one in got], wanted):.1e}"
    except tenon.Error as error:
        return str(error)[:160]


def timed(function, clock):
    start = clock()
    function()
    return (clock() - start) * 1e3


def compare(path, threads, rounds, clock):
    arrays = dict(np.load(path.with_suffix(".npz")))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = theirs.run(None, arrays)
    began = time.perf_counter()
    ours = tenon.onnx.Model(path, threads=threads)
    session, names = ours.session(arrays)
    read = time.perf_counter() - began
    given = [arrays[name] for name in names]
    apart = distance([np.asarray(one.numpy()) for one in session.forward(*given)], wanted)
    pairs = [(timed(lambda: session.forward(*given), clock), timed(lambda: theirs.run(None, arrays), clock))
             for _ in range(rounds)]
    us, them = (statistics.median(column) for column in zip(*pairs))
    opset = next(one.version for one in ours.proto.opset_import if one.domain in ("", "ai.onnx"))
    print(f"| {path.stem} | {opset} | {len(ours.proto.graph.node)} | {apart:.1e} | "
          f"{open_sizes(path, arrays, wanted)} | {us:.2f} | {them:.2f} | {them / us:.2f} | {read:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--match", default="")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    if options.cpu and options.threads != 1:
        parser.error("--cpu: processor time of several threads is no time of a run; --threads 1")
    clock = time.process_time if options.cpu else time.perf_counter
    print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}, {options.threads} threads")
    print("| network | opset | nodes | apart | apart, symbolic sizes | Tenon, ms | ONNX Runtime, ms | speed | to read, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in sorted(options.folder.glob("*.onnx")):
        if options.match in path.stem:
            try:
                compare(path, options.threads, options.rounds, clock)
            except Exception as error:  # noqa: BLE001: the others are still to be compared
                print(f"| {path.stem} | {type(error).__name__}: {str(error)[:300]} |", flush=True)


if __name__ == "__main__":
    main()

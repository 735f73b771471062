#!/usr/bin/env python3
"""A sentence encoder in Tenon, ONNX Runtime and OpenVINO, in one run: f32 and int8.

    encoder.py FOLDER [--tenon PATH] [--peer-python PATH] [-t THREADS] [-r ROUNDS] [--batch 1 32] [--sequence 16 128 256]

All read the same ids without padding and give embeddings of length 1. Runs are interleaved, ROUNDS times for each
shape; medians are printed, and how many times the speed of the faster one Tenon has. "of f32" is Tenon's share
of the machine's multiply-add limit, measured in the same run. The others run in the Python that --peer-python
names (numpy, onnx, onnxruntime, openvino from PyPI), on models that encoder_onnx.py makes from the same folder:
int8 is ONNX Runtime's dynamic quantisation, the same file for both; Tenon's is q8_0, made while loading. Needs
only the standard library here.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent

PEER = r"""
import json, os, statistics, sys, time
kind, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
import numpy as np
if kind == "onnxruntime":
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Idle threads must not take cores from whoever is next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    version = onnxruntime.__version__
    run = lambda feed: session.run(None, feed)[0]
else:
    import openvino
    options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
    version = openvino.__version__.split("-")[0]
    run = lambda feed: request.infer(feed)[0]
print(version, flush=True)
for line in sys.stdin:
    batch, sequence, seconds = line.split()
    batch, sequence, seconds = int(batch), int(sequence), float(seconds)
    ids, value = np.empty(batch * sequence, np.int64), 1000
    for i in range(ids.size):
        ids[i], value = value, 1000 + (value * 7 + 11) % 20000
    feed = {"input_ids": ids.reshape(batch, sequence), "attention_mask": np.ones((batch, sequence), np.int64)}
    result = run(feed)
    times = []
    while len(times) < 3 or sum(times) < seconds:
        start = time.perf_counter()
        run(feed)
        times.append(time.perf_counter() - start)
    print(statistics.median(times), flush=True)
"""


class Child:
    """A program that answers "BATCH SEQUENCE SECONDS" with the seconds of a run."""

    def __init__(self, command):
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hello = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[0]} ended with {self.process.wait()}")
        return line.split()

    def measure(self, batch, sequence, seconds):
        self.process.stdin.write(f"{batch} {sequence} {seconds}\n")
        self.process.stdin.flush()
        return [float(word) for word in self.answer()]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--tenon", default=HERE.parent / "build/release/benchmarks/bench_encoder")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--types", nargs="+", default=["f32", "int8"], choices=["f32", "int8"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--sequence", nargs="+", type=int, default=[16, 128, 256])
    parser.add_argument("-t", type=int, default=os.cpu_count(), help="threads of each")
    parser.add_argument("-r", type=int, default=5, help="rounds")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each in a round")
    args = parser.parse_args()

    for kind in args.types:
        with tempfile.TemporaryDirectory() as temporary:
            model = pathlib.Path(temporary) / "model.onnx"
            make = [args.peer_python, HERE / "encoder_onnx.py", args.folder, model] + (["--int8"] if kind == "int8" else [])
            subprocess.run([str(part) for part in make], check=True, stderr=subprocess.DEVNULL)
            ours = [args.tenon, args.folder, "--threads", args.t, "--serve"] + (["--weights", "q8_0"] if kind == "int8" else [])
            children = {"Tenon": Child(ours)}
            for name in ("onnxruntime", "openvino"):
                children[name] = Child([args.peer_python, "-c", PEER, name, model, args.t])
            limit = float(children["Tenon"].hello[0])
            versions = ", ".join(f"{name} {child.hello[0]}" for name, child in children.items() if name != "Tenon")
            print(f"{kind}, {args.t} threads, f32 limit {limit * 1e-9:.0f} Gop/s, {versions}; ms, medians of {args.r} turns")
            print(f"{'batch':>5}{'sequence':>9}" + "".join(f"{name:>13}" for name in children) + f"{'ratio':>8}{'of f32':>8}")
            for batch, sequence in itertools.product(args.batch, args.sequence):
                times = {name: [] for name in children}
                operations = 0
                for _ in range(args.r):
                    for name, child in children.items():
                        answer = child.measure(batch, sequence, args.seconds)
                        times[name].append(answer[0])
                        if name == "Tenon":
                            operations = answer[1]
                middle = {name: statistics.median(values) for name, values in times.items()}
                best = min(value for name, value in middle.items() if name != "Tenon")
                share = operations / middle["Tenon"] / limit
                print(f"{batch:5}{sequence:9}" + "".join(f"{value * 1e3:13.2f}" for value in middle.values())
                      + f"{best / middle['Tenon']:7.2f}x{share:7.0%}", flush=True)
            for child in children.values():
                child.end()


if __name__ == "__main__":
    main()

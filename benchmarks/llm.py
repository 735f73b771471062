#!/usr/bin/env python3
"""Tenon and llama.cpp on one language-model file, in one run: prefill, decode, start, memory.

    llm.py MODEL.gguf [--tenon PATH] [--peer-python PATH] [-t THREADS] [-p 512] [-n 128] [-r 5]

The two take turns, so that a noisy moment hits both; medians and their ratio are printed. llama.cpp is
used through PyPI's llama-cpp-python (build it for this machine: CMAKE_ARGS=-DGGML_NATIVE=ON pip install
llama-cpp-python), in the Python that --peer-python names. Both read the same tokens, `-p` of them at once
from an empty context, or `-n` one by one from an empty context, which is what llama-bench's pp and tg do.
Needs only the standard library here.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

PEER = r"""
import ctypes, json, sys, time
started = time.perf_counter()
import llama_cpp as L
path, threads, prefill, decode, extra = sys.argv[1], *map(int, sys.argv[2:6])
quiet = L.llama_log_callback(lambda *a: None)  # kept: the library calls it later
L.llama_log_set(quiet, ctypes.c_void_p(0))
L.llama_backend_init()
mp = L.llama_model_default_params()
mp.n_gpu_layers = 0
mp.use_extra_bufts = bool(extra)
model = L.llama_model_load_from_file(path.encode(), mp)
vocab = L.llama_model_get_vocab(model)
size = L.llama_vocab_n_tokens(vocab)
cp = L.llama_context_default_params()
cp.n_ctx = max(prefill, decode, 64)
cp.n_batch = cp.n_ubatch = 512
cp.n_threads = cp.n_threads_batch = threads
ctx = L.llama_init_from_model(model, cp)
load = time.perf_counter() - started

def tokens(n):
    state, out = 1, []
    for _ in range(n):
        state = (state * 1103515245 + 12345) % 2**31
        out.append(state % size)
    return out

def run(ids, step):
    L.llama_memory_clear(L.llama_get_memory(ctx), True)
    start = time.perf_counter()
    for i in range(0, len(ids), step):
        part = ids[i:i + step]
        array = (L.llama_token * len(part))(*part)
        if L.llama_decode(ctx, L.llama_batch_get_one(array, len(part))) != 0:
            raise SystemExit("llama_decode failed")
    L.llama_synchronize(ctx)
    return len(ids) / (time.perf_counter() - start)

run(tokens(1), 1)
first = time.perf_counter() - started
if prefill: run(tokens(prefill), 512)
result = {"load_s": load, "first_token_s": first}
if prefill: result["prefill_tok_s"] = run(tokens(prefill), 512)
if decode:
    run(tokens(min(decode, 8)), 1)
    result["decode_tok_s"] = run(tokens(decode), 1)
import resource
result["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps(result))
"""


def tenon_once(args):
    command = [args.tenon, "bench", args.model, "-p", args.p, "-n", args.n, "-t", args.t, "-r", 1, "--json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def peer_once(args):
    command = [args.peer_python, "-c", PEER, args.model, args.t, args.p, args.n, int(not args.no_repack)]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"llama.cpp failed ({done.returncode}): {done.stderr.strip()[-300:]}\n"
                 "a GCC 12 build crashes in its AMX kernels; --no-repack goes round them")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tenon", default=ROOT / "build/release/tools/tenon")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--no-repack", action="store_true", help="llama.cpp without its repacked and AMX kernels")
    parser.add_argument("-t", type=int, default=os.cpu_count())
    parser.add_argument("-p", type=int, default=512)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("-r", type=int, default=5)
    args = parser.parse_args()

    ours, theirs = [], []
    tenon_once(args), peer_once(args)  # the file's pages are in memory from here on
    for _ in range(args.r):
        ours.append(tenon_once(args))
        theirs.append(peer_once(args))
        time.sleep(0.2)
    print(f"{pathlib.Path(args.model).name}, {args.t} threads, medians of {args.r} runs in turn")
    print(f"{'':16}{'Tenon':>12}{'llama.cpp':>12}{'ratio':>8}")
    rows = [("prefill_tok_s", "prefill tok/s", 1), ("decode_tok_s", "decode tok/s", 1), ("first_token_s", "first token s", -1),
            ("peak_bytes", "peak MiB", -1)]
    for key, title, better in rows:
        if any(key not in run for run in ours + theirs):
            continue
        a = statistics.median(run[key] for run in ours)
        b = statistics.median(run[key] for run in theirs)
        scale = 1 / 2**20 if key == "peak_bytes" else 1
        ratio = a / b if better > 0 else b / a
        print(f"{title:16}{a * scale:12.3f}{b * scale:12.3f}{ratio:7.2f}x")


if __name__ == "__main__":
    main()

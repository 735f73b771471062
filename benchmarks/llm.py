#!/usr/bin/env python3
"""Tenon and its peers on language-model files, in one run: prefill, decode, start, memory.

    llm.py MODEL.gguf... [--peer-python PATH] [--peer "NAME=LLAMA_BENCH [ARGUMENTS]"]...
           [-t THREADS] [-p 128,512,2048] [-n 128] [-d 0,1024] [-r 5]

Prefill reads -p random tokens at once from an empty context; decode reads -n tokens one by one behind
-d others: llama-bench's pp and tg. The engines' runs are interleaved, a process each time, so that noise
hits all of them; medians are printed, and Tenon's ratio to the fastest peer. Behind decode stands the
share of what `bench_limits --read` reads from memory of the size that a token needs: the weights once,
and the keys and values. Starts read one token: with the model's file in the page cache, and in Tenon once
more with packed weights that an earlier start has kept (--packed).

llama.cpp is used through PyPI's llama-cpp-python (build it for this machine: CMAKE_ARGS=-DGGML_NATIVE=ON
pip install llama-cpp-python), in the Python that --peer-python names, or the one that runs this. Further
engines are llama-bench executables, ik_llama.cpp's for one: --peer "ik=PATH -rtr 1".
Needs only the standard library here.
"""

import argparse
import functools
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

PEER = r"""
import ctypes, json, sys, time
import llama_cpp as L
started = time.perf_counter()
path, threads, prefill, decode, depth, extra = sys.argv[1], *map(int, sys.argv[2:7])
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
cp.n_ctx = max(depth + prefill, depth + decode, 64)
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

def read(ids, step):
    start = time.perf_counter()
    for i in range(0, len(ids), step):
        part = ids[i:i + step]
        array = (L.llama_token * len(part))(*part)
        if L.llama_decode(ctx, L.llama_batch_get_one(array, len(part))) != 0:
            raise SystemExit("llama_decode failed")
    L.llama_synchronize(ctx)
    return len(ids) / (time.perf_counter() - start)

def run(ids, step):
    L.llama_memory_clear(L.llama_get_memory(ctx), True)
    if depth: read(tokens(depth), 512)
    return read(ids, step)

read(tokens(1), 1)
result = {"load_s": load, "first_token_s": time.perf_counter() - started}
for key, count, step in ("prefill_tok_s", prefill, 512), ("decode_tok_s", decode, 1):
    if count:
        run(tokens(min(count, 512 if step > 1 else 8)), step)
        result[key] = run(tokens(count), step)
import resource
result["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps(result))
"""


def output_of(command, hint=""):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed ({done.returncode}): {done.stderr.strip()[-300:]}{hint}")
    return done.stdout


class Tenon:
    name = "Tenon"
    tells_start = True

    def __init__(self, args):
        self.path, self.threads = args.tenon, args.t

    def run(self, model, prefill, decode, depth, *more):
        return json.loads(output_of([self.path, "bench", model, "-p", prefill, "-n", decode, "-d", depth,
                                     "-t", self.threads, "-r", 1, "--json", *more]))


class LlamaCpp:
    name = "llama.cpp"
    tells_start = True

    def __init__(self, args):
        self.python, self.threads, self.extra = args.peer_python, args.t, int(not args.no_repack)

    def run(self, model, prefill, decode, depth):
        return json.loads(output_of(
            [self.python, "-c", PEER, model, self.threads, prefill, decode, depth, self.extra],
            "\na GCC 12 build crashes in its AMX kernels; --no-repack goes round them"))


class LlamaBench:
    """An executable with llama-bench's options. Its start and memory are not measured."""
    tells_start = False

    def __init__(self, text, args):
        self.name, _, command = text.partition("=")
        self.command = shlex.split(command)
        if not self.command:
            sys.exit(f"--peer {text}: NAME=PATH is needed")
        self.threads = args.t
        self.has_depth = "--n-depth" in subprocess.run([self.command[0], "--help"], capture_output=True,
                                                       text=True).stdout

    def run(self, model, prefill, decode, depth):
        command = [*self.command, "-m", model, "-t", self.threads, "-r", 1, "-o", "json"]
        if depth and not self.has_depth:  # older ones generate behind a prompt with -gp
            command += ["-p", 0, "-n", 0, "-gp", f"{depth},{decode}"]
        else:
            command += ["-p", prefill, "-n", decode] + (["-d", depth] if depth else [])
        text = output_of(command)
        row = json.loads(text[text.index("["):])[-1]
        return {"prefill_tok_s" if prefill else "decode_tok_s": row["avg_ts"]}


def bytes_per_token(tenon, model, depth, count):
    """What decoding reads for a token, on average: weights, those of experts that it uses, and f16 keys and
    values, or a recurrent model's states."""
    info = json.loads(output_of([tenon, "info", model, "--json"]))
    sizes = {tensor["name"]: tensor["bytes"] for tensor in info["tensors"]}
    weights = sum(sizes.values())
    if "output.weight" in sizes:  # otherwise the embeddings are the output head as well
        weights -= sizes["token_embd.weight"]
    meta = info["metadata"]
    arch = meta["general.architecture"]
    if experts := meta.get(f"{arch}.expert_count"):
        unused = 1 - meta[f"{arch}.expert_used_count"] / experts
        weights -= int(unused * sum(size for name, size in sizes.items() if "_exps." in name))
    width = meta[f"{arch}.embedding_length"]
    if states := meta.get(f"{arch}.ssm.state_size"):
        return weights + meta[f"{arch}.block_count"] * meta[f"{arch}.ssm.inner_size"] * states * 4
    if head := meta.get(f"{arch}.wkv.head_size"):
        return weights + meta[f"{arch}.block_count"] * width * head * 4
    heads = meta[f"{arch}.attention.head_count"]
    kv_heads = meta.get(f"{arch}.attention.head_count_kv", heads)
    head = meta.get(f"{arch}.attention.key_length", width // heads)
    layers, positions = meta[f"{arch}.block_count"], depth + count / 2
    window = meta.get(f"{arch}.attention.sliding_window")
    seen = layers * positions
    if window:  # gemma3: every sixth layer sees all
        seen = layers // 6 * positions + (layers - layers // 6) * min(positions, window)
    return weights + int(seen * kv_heads * head * 2 * 2)


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def reading(args, size):
    """Bytes a second that the machine reads of so many, just now."""
    report = json.loads(output_of([args.limits, "--threads", args.t, "--read", size, "--json"]))
    return report["limits"]["reading"]["all"] * 1e9


def measure(engines, model, args):
    tests = [(f"prefill {count}", "prefill_tok_s", (count, 0, 0)) for count in numbers(args.p)]
    tests += [(f"decode {args.n}" + (f" behind {depth}" if depth else ""), "decode_tok_s", (0, args.n, depth))
              for depth in numbers(args.d) if args.n]
    needed = functools.cache(lambda depth: bytes_per_token(args.tenon, model, depth, args.n))
    print(f"{pathlib.Path(model).name}, {args.t} threads, medians of {args.r} interleaved runs")
    print(f"{'':20}" + "".join(f"{engine.name:>14}" for engine in engines) + f"{'ratio':>9}{'of reading':>12}")
    for title, key, sizes in tests:
        runs = {engine.name: [] for engine in engines}
        shares = []
        for _ in range(args.r):
            for engine in engines:
                result = engine.run(model, *sizes)
                runs[engine.name].append(result[key])
                time.sleep(0.1)
            if key == "decode_tok_s":
                shares.append(runs["Tenon"][-1] * needed(sizes[2]) / reading(args, needed(sizes[2])))
        medians = [statistics.median(runs[engine.name]) for engine in engines]
        line = f"{title:20}" + "".join(f"{value:14.1f}" for value in medians)
        if len(medians) > 1:
            line += f"{medians[0] / max(medians[1:]):8.2f}x"
        if shares:
            line += f"{100 * statistics.median(shares):10.0f} %"
        print(line + "  tokens/s", flush=True)
    measure_starts(engines, model, args)


def measure_starts(engines, model, args):
    """Processes that read one token: their time from the start on, and their memory."""
    print(f"{'':20}{'first token':>14}{'peak memory':>14}")
    with tempfile.TemporaryDirectory() as folder:
        starts = {engine.name: (engine, ()) for engine in engines if engine.tells_start}
        starts["Tenon, kept weights"] = (engines[0], ("--packed", folder))
        results = {name: [] for name in starts}
        for turn in range(args.r + 1):
            for name, (engine, more) in starts.items():
                result = engine.run(model, 1, 0, 0, *more)
                if turn > 0:  # the first one fills the folder
                    results[name].append(result)
    for name, found in results.items():
        first = statistics.median(result["first_token_s"] for result in found)
        peak = statistics.median(result["peak_bytes"] for result in found)
        print(f"{name:20}{first:12.3f} s{peak / 2**20:10.1f} MiB")
    print(f"{'file':20}{'':14}{os.path.getsize(model) / 2**20:10.1f} MiB\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--tenon", default=ROOT / "build/release/tools/tenon")
    parser.add_argument("--limits", default=ROOT / "build/release/benchmarks/bench_limits")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--no-repack", action="store_true", help="llama.cpp without its repacked and AMX kernels")
    parser.add_argument("-t", type=int, default=os.cpu_count())
    parser.add_argument("-p", default="128,512,2048")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("-d", default="0,1024")
    parser.add_argument("-r", type=int, default=5)
    args = parser.parse_args()

    engines = [Tenon(args)]
    if subprocess.run([args.peer_python, "-c", "import llama_cpp"], capture_output=True).returncode == 0:
        engines.append(LlamaCpp(args))
    else:
        print(f"no llama_cpp in {args.peer_python}: llama.cpp is left out", file=sys.stderr)
    engines += [LlamaBench(text, args) for text in args.peer]
    for model in args.models:
        measure(engines, model, args)


if __name__ == "__main__":
    main()

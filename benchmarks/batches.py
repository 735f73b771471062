#!/usr/bin/env python3
"""Times a token in each of several conversations beside llama.cpp, whose batch has as many sequences.

Needs the package tenon and `llama-cpp-python`. Prints tokens per second of all conversations together, medians of
interleaved runs of 8 steps behind `--depth` tokens each:

    benchmarks/batches.py [--threads 2] [--depth 64] [--rounds 7] MODEL.gguf...
"""

import argparse
import ctypes
import pathlib
import statistics
import time

import llama_cpp

import tenon

COUNTS = (1, 2, 4, 8, 16, 32)
STEPS = 8


class LlamaCpp:
    def __init__(self, path, count, depth, threads):
        parameters = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        context = llama_cpp.llama_context_default_params()
        context.n_ctx, context.n_seq_max = count * (depth + STEPS + 8), count
        context.n_batch = max(512, count)
        context.n_threads = context.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.batch = llama_cpp.llama_batch_init(max(512, count), 0, 1)
        self.count, self.depth = count, depth
        for sequence in range(count):
            self.read([(token_at(i, sequence), i, sequence, i == depth - 1) for i in range(depth)])

    def read(self, tokens):
        self.batch.n_tokens = len(tokens)
        for i, (token, position, sequence, is_asked) in enumerate(tokens):
            self.batch.token[i], self.batch.pos[i] = token, position
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
            self.batch.logits[i] = is_asked
        if llama_cpp.llama_decode(self.context, self.batch) != 0:
            raise RuntimeError("llama_decode")
        llama_cpp.llama_synchronize(self.context)

    def run(self):
        begin = time.perf_counter()
        for step in range(STEPS):
            self.read([(token_at(step, i), self.depth + step, i, True) for i in range(self.count)])
        took = time.perf_counter() - begin
        memory = llama_cpp.llama_get_memory(self.context)
        for i in range(self.count):
            llama_cpp.llama_memory_seq_rm(memory, i, self.depth, -1)
        return took


class Tenon:
    def __init__(self, model, count, depth):
        self.model, self.depth = model, depth
        self.each = [model.conversation() for _ in range(count)]
        for sequence, conversation in enumerate(self.each):
            conversation.read([token_at(i, sequence) for i in range(depth)])

    def run(self):
        begin = time.perf_counter()
        for step in range(STEPS):
            self.model.read_each(self.each, [token_at(step, i) for i in range(len(self.each))])
        took = time.perf_counter() - begin
        for conversation in self.each:
            conversation.rewind(self.depth)
        return took


def token_at(position, sequence):
    return (position * 37 + sequence * 101) % 1000 + 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    quiet = llama_cpp.llama_log_callback(lambda *a: None)  # kept: the library calls it later
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    for path in options.models:
        print(f"\n{pathlib.Path(path).stem}\n\n| conversations | llama.cpp | Tenon | ratio |\n|---|---|---|---|")
        ours = tenon.LanguageModel(path, context=options.depth + STEPS + 8, threads=options.threads)
        for count in COUNTS:
            both = LlamaCpp(path, count, options.depth, options.threads), Tenon(ours, count, options.depth)
            times = [[], []]
            for one in both:
                one.run()
            for _ in range(options.rounds):
                for one, taken in zip(both, times):
                    taken.append(one.run())
            theirs, own = (count * STEPS / statistics.median(taken) for taken in times)
            print(f"| {count} | {theirs:.0f} | {own:.0f} | {own / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()

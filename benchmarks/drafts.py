#!/usr/bin/env python3
"""Speculative decoding: tokens per second with drafts and without, on tasks that repeat parts of the prompt and on one
that does not.

    drafts.py MODEL.gguf [--draft SMALLER.gguf] [-t THREADS] [-n 256] [-r 5] [--lookup 8] [--max 3,8,16]
              [--temperature T]

Runs of all ways are interleaved in one process, so that noise hits all of them; medians of the time after the first
token are printed. "same" says how many of the first tokens are those without a draft. Before them stands what rows
cost: the time to read several tokens at once, by that to read one. Needs the Python package `tenon` (PYTHONPATH).
"""

import argparse
import statistics
import time

import tenon

PASSAGE = (
    "The lighthouse at the end of the peninsula had been built in the autumn of 1847, when the timber trade still "
    "brought forty ships a month into the bay. Its keeper, a careful man named Thomas Harrow, wrote down the weather "
    "every evening in a ledger bound in green cloth. He recorded the direction of the wind, the height of the "
    "barometer, the state of the sea, and any vessel that passed within sight of the lamp. After thirty years the "
    "ledgers filled a whole shelf, and scholars who came later to study the climate of the coast found that they were "
    "more reliable than the official records kept in the capital.")
CODE = '''def total_price(items, discount):
    total = 0
    for item in items:
        if item.quantity < 1:
            raise ValueError("quantity must be positive")
        total += item.price * item.quantity
    if discount is not None:
        total -= total * discount
    return total


def print_receipt(items, discount):
    for item in items:
        print(item.name, item.quantity, item.price)
    print("total:", total_price(items, discount))
'''
# What is asked of a model with a chat format, and what one without continues.
TASKS = {
    "copy a text": (f"Repeat this text word for word:\n\n{PASSAGE}", f"{PASSAGE}\n\nThe same text again:\n\n"),
    "edit code": (f"Rename the parameter discount to rebate and print the whole code:\n\n```python\n{CODE}```",
                  f"```python\n{CODE}```\n\nWith the parameter discount renamed to rebate:\n\n```python\n"),
    "tell a story": ("Tell a story of a fox who learns to swim.", "A fox learns to swim. The story:\n\n"),
}


def row_costs(model, tokens):
    """Median times to read so many tokens, in those of one."""
    conversation = model.conversation()
    conversation.read(tokens)
    taken = {rows: [] for rows in (1, 2, 3, 4, 6, 8, 12, 16, 17)}
    for _ in range(16):
        for rows, times in taken.items():
            begin = time.perf_counter()
            conversation.read_all_greedy(tokens[:rows])
            times.append(time.perf_counter() - begin)
            conversation.rewind(len(tokens))
    return {rows: statistics.median(times[2:]) for rows, times in taken.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model")
    parser.add_argument("--draft", help="a smaller model with the same tokens")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("-n", "--tokens", type=int, default=256)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("--lookup", type=int, default=8)
    parser.add_argument("--min-lookup", type=int, default=3)
    parser.add_argument("--min-probability", type=float, default=0.75)
    parser.add_argument("--max", default="3", help="tokens of a draft at most, several after commas")
    parser.add_argument("--temperature", type=float, default=0)
    arguments = parser.parse_args()

    model = tenon.LanguageModel(arguments.model, threads=arguments.threads, context=2048)
    draft = arguments.draft and tenon.LanguageModel(arguments.draft, threads=arguments.threads, context=2048)
    costs = row_costs(model, model.tokenizer.encode(PASSAGE))
    print(f"one token {1e3 * costs[1]:.2f} ms; " +
          ", ".join(f"{rows}: {cost / costs[1]:.2f}" for rows, cost in costs.items()))
    ways = {"no draft": None}
    for most in map(int, arguments.max.split(",")):
        common = dict(max_tokens=most, min_probability=arguments.min_probability, min_lookup=arguments.min_lookup)
        ways[f"lookup, {most}"] = dict(lookup=arguments.lookup, **common)
        if draft:
            ways[f"model, {most}"] = dict(model=draft, **common)
            ways[f"both, {most}"] = dict(model=draft, lookup=arguments.lookup, **common)
    print(f"{'task':14}{'draft':14}{'tokens/s':>10}{'ratio':>7}{'drafted':>9}{'accepted':>10}{'same':>12}")
    for task, (message, text) in TASKS.items():
        try:
            prompt = model.chat_tokens(message)
        except tenon.UnsupportedError:
            prompt = model.tokenizer.encode(text)
        rates, made = {way: [] for way in ways}, {}
        for repetition in range(arguments.repetitions + 1):
            for way, options in ways.items():
                made[way] = model.generate(prompt, max_tokens=arguments.tokens, seed=1, repetition_penalty=1,
                                           temperature=arguments.temperature,
                                           draft=tenon.Draft(**options) if options else None)
                if repetition > 0:
                    rates[way].append((len(made[way].tokens) - 1) / made[way].decode_time)
        plain = made["no draft"].tokens
        for way, result in made.items():
            same = next((i for i, (a, b) in enumerate(zip(plain, result.tokens)) if a != b),
                        min(len(plain), len(result.tokens)))
            rate = statistics.median(rates[way])
            print(f"{task:14}{way:14}{rate:10.1f}{rate / statistics.median(rates['no draft']):7.2f}"
                  f"{result.drafted_tokens:9}{result.accepted_tokens:10}{same:8}/{len(plain)}", flush=True)


if __name__ == "__main__":
    main()

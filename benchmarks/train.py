#!/usr/bin/env python3
"""Training steps of Tenon beside PyTorch, interleaved, in processes of their own:

    python3 benchmarks/train.py --bench build/release/benchmarks/bench_train [--rounds 5] [--threads 2]

prints a table: medians of the rounds' medians, in ms a step. Needs torch. The networks, batches and
optimisers (AdamW, for the transformer with gradients clipped to 1) are the same; values are random.
"""
import argparse
import re
import statistics
import subprocess
import sys
import time

CASES = [("cnn", 8), ("cnn", 64), ("resnet", 8), ("resnet", 64), ("lstm", 8), ("lstm", 64),
         ("transformer", 8), ("transformer", 64)]


def torch_step(network, batch, threads, steps):
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    if network == "cnn":
        model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                              nn.Linear(128, 10))
        x, y = torch.rand(batch, 1, 8, 8), torch.randint(0, 10, (batch,))
        loss_of = lambda: F.cross_entropy(model(x), y)
    elif network == "resnet":
        def normed(inputs, outputs, size, stride):
            return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
                                 nn.BatchNorm2d(outputs, track_running_stats=False))

        class Basic(nn.Module):
            def __init__(self, inputs, outputs, stride):
                super().__init__()
                self.first, self.second = normed(inputs, outputs, 3, stride), normed(outputs, outputs, 3, 1)
                self.shortcut = normed(inputs, outputs, 1, 2) if stride == 2 else nn.Identity()

            def forward(self, x):
                return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))

        model = nn.Sequential(
            normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
            *[Basic(max(64, width // (2 if i == 0 else 1)), width, 2 if i == 0 and width > 64 else 1)
              for width in (64, 128, 256, 512) for i in range(2)],
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
        x, y = torch.rand(batch, 3, 64, 64), torch.randint(0, 1000, (batch,))
        loss_of = lambda: F.cross_entropy(model(x), y)
    elif network == "lstm":
        class Classifier(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.head = nn.LSTM(64, 128), nn.Linear(128, 10)

            def forward(self, x):
                return self.head(self.lstm(x)[1][0][0])

        model = Classifier()
        x, y = torch.rand(128, batch, 64), torch.randint(0, 10, (batch,))
        loss_of = lambda: F.cross_entropy(model(x), y)
    else:
        class Block(nn.Module):
            def __init__(self, width, heads):
                super().__init__()
                self.heads, self.n1, self.n2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
                self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x):
                q, k, v = self.qkv(self.n1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
                x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
                return x + self.down(F.gelu(self.up(self.n2(x))))

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens, self.positions = nn.Embedding(128, 128), nn.Embedding(64, 128)
                self.blocks = nn.Sequential(*[Block(128, 4) for _ in range(4)])
                self.norm, self.head = nn.LayerNorm(128), nn.Linear(128, 128)

            def forward(self, ids):
                x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
                return self.head(self.norm(self.blocks(x)))

        model, ids = Model(), torch.randint(0, 128, (batch, 65))
        loss_of = lambda: F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    times = []
    for step in range(steps + 5):
        begin = time.perf_counter()
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        if network == "transformer":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        if step >= 5:
            times.append(1000 * (time.perf_counter() - begin))
    print(f"median {statistics.median(times):.3f} ms")


def measured(command):
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"median ([0-9.]+) ms", output).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--torch", nargs=2, help=argparse.SUPPRESS)  # one measurement of PyTorch
    options = parser.parse_args()
    if options.torch:
        return torch_step(options.torch[0], int(options.torch[1]), options.threads, options.steps)
    print("| network | batch | Tenon, ms | PyTorch, ms | Tenon / PyTorch |\n|---|---:|---:|---:|---:|")
    for network, batch in CASES:
        steps = str(options.steps if network == "cnn" or (network, batch) == ("transformer", 8) else max(5, options.steps // (4 if batch == 8 or network == "transformer" else 8)))
        common = ["--threads", str(options.threads), "--steps", steps]
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(measured([options.bench, network, "--batch", str(batch), *common]))
            theirs.append(measured([sys.executable, __file__, "--torch", network, str(batch), *common]))
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"| {network} | {batch} | {a:.2f} | {b:.2f} | {a / b:.2f} |")


if __name__ == "__main__":
    main()

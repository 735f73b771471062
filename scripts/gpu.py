#!/usr/bin/env python3
"""For gpu.sh: models of random weights, and the tables of docs/cuda.md.

    gpu.py model SHAPE FILE        a GGUF file in the shape of a known model, which needs numpy
    gpu.py kernels                 what `ncu --csv` wrote of kernels' times, as a table: the longest first
    gpu.py report RESULTS PAGE     what `gpu.sh run` left, as the part of PAGE between <!-- gpu --> and <!-- end gpu -->
"""

import csv
import json
import pathlib
import struct
import sys

# The layers of the models, as their GGUF files say.
SMOLLM2 = dict(arch="llama", layers=30, width=576, heads=9, kv_heads=3, head=64, feed_forward=1536, vocabulary=49152,
               base=100000.0, own_head=False)
GEMMA3 = dict(arch="gemma3", layers=18, width=640, heads=4, kv_heads=1, head=256, feed_forward=2048,
              vocabulary=262144, base=1e6, own_head=False, window=512)
LLAMA_8B = dict(arch="llama", layers=32, width=4096, heads=32, kv_heads=8, head=128, feed_forward=14336,
                vocabulary=128256, base=500000.0, own_head=True)
TINY = dict(arch="llama", layers=2, width=256, heads=4, kv_heads=2, head=64, feed_forward=512, vocabulary=300,
            base=10000.0, own_head=True)
SHAPES = {
    "smollm2-q4_1": (SMOLLM2, "q4_1"),
    "gemma3-q8_0": (GEMMA3, "q8_0"),
    "8b-q4_k_m": (LLAMA_8B, "q4_k_m"),
    "8b-bf16": (LLAMA_8B, "bf16"),
    "tiny-q4_k_m": (TINY, "q4_k_m"),
}
# GGUF's number of a type, elements and bytes of a block, and where a block has its f16 scales.
TYPES = {
    "f32": (0, 1, 4, ()), "q4_1": (3, 32, 20, (0, 2)), "q8_0": (8, 32, 34, (0,)), "q4_k": (12, 256, 144, (0, 2)),
    "q6_k": (14, 256, 210, (208,)), "bf16": (30, 1, 2, ()),
}
ALIGNMENT = 32


# ---- models

def byte_spellings():
    """Byte-level BPE's visible character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) if byte in plain else chr(256 + others.index(byte)) for byte in range(256)]


def tensors_of(shape, mix):
    """Names, rows and columns (0: a vector), and types."""
    def kind(name, layer=0):
        if mix != "q4_k_m":
            return mix
        more = layer % 2 == 0 and name in ("attn_v", "ffn_down")
        return "q6_k" if more or name == "output" else "q4_k"

    width, q, kv = shape["width"], shape["heads"] * shape["head"], shape["kv_heads"] * shape["head"]
    yield "token_embd.weight", shape["vocabulary"], width, kind("token_embd")
    yield "output_norm.weight", width, 0, "f32"
    if shape["own_head"]:
        yield "output.weight", shape["vocabulary"], width, kind("output")
    is_gemma = shape["arch"] == "gemma3"
    for layer in range(shape["layers"]):
        prefix = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm") + (("post_attention_norm", "post_ffw_norm") if is_gemma else ()):
            yield prefix + norm + ".weight", width, 0, "f32"
        for norm in ("attn_q_norm", "attn_k_norm") if is_gemma else ():
            yield prefix + norm + ".weight", shape["head"], 0, "f32"
        for name, rows, columns in (("attn_q", q, width), ("attn_k", kv, width), ("attn_v", kv, width),
                                    ("attn_output", width, q), ("ffn_gate", shape["feed_forward"], width),
                                    ("ffn_up", shape["feed_forward"], width),
                                    ("ffn_down", width, shape["feed_forward"])):
            yield prefix + name + ".weight", rows, columns, kind(name, layer)


def metadata_of(shape):
    arch, bytes_ = shape["arch"], byte_spellings()
    tokens = ["<end>", *bytes_, "th"]
    tokens += [f"<t{i}>" for i in range(len(tokens), shape["vocabulary"])]
    meta = {
        "general.architecture": arch, "general.name": "random weights",
        f"{arch}.context_length": 32768, f"{arch}.embedding_length": shape["width"],
        f"{arch}.block_count": shape["layers"], f"{arch}.feed_forward_length": shape["feed_forward"],
        f"{arch}.attention.head_count": shape["heads"], f"{arch}.attention.head_count_kv": shape["kv_heads"],
        f"{arch}.attention.key_length": shape["head"], f"{arch}.attention.value_length": shape["head"],
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5, f"{arch}.rope.freq_base": shape["base"],
        f"{arch}.vocab_size": shape["vocabulary"],
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] + [1] * (len(tokens) - 1), "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 0,
    }
    if arch == "llama":
        meta["llama.rope.dimension_count"] = shape["head"]
    if "window" in shape:
        meta[f"{arch}.attention.sliding_window"] = shape["window"]
    return meta


def packed_text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def packed_value(value):
    """GGUF's type and bytes: u32, f32, text, and arrays of i32 and text."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + packed_text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(packed_text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def random_blocks(np, random, kind, count, columns):
    """Bytes of so many blocks, whose values deviate about as those of a trained model do."""
    _, elements, size, scales = TYPES[kind]
    deviation = columns ** -0.5
    if kind == "bf16":
        values = (random.standard_normal(count, dtype=np.float32) * np.float32(deviation)).view(np.uint32)
        return (values >> 16).astype(np.uint16).tobytes()
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    steps = {"q4_1": 0.22, "q8_0": 0.0136, "q4_k": 0.0068, "q6_k": 0.00073}[kind] * deviation
    offsets = {"q4_1": -0.22 * 7.5, "q4_k": 0.0068 * 7.5}
    for place, at in enumerate(scales):
        scale = steps if place == 0 else offsets[kind] * deviation
        blocks[:, at:at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    return blocks.tobytes()


def write_model(name, path):
    import numpy as np
    shape, mix = SHAPES[name]
    random = np.random.default_rng(1)
    infos, tensors, offset = [], list(tensors_of(shape, mix)), 0
    for tensor, rows, columns, kind in tensors:
        number, elements, size, _ = TYPES[kind]
        dims = (columns, rows) if columns else (rows,)
        infos.append(packed_text(tensor) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, offset))
        offset += -(-(rows * (columns or 1) // elements * size) // ALIGNMENT) * ALIGNMENT
    meta = metadata_of(shape)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(meta))
    head += b"".join(packed_text(key) + packed_value(value) for key, value in meta.items()) + b"".join(infos)
    partial = pathlib.Path(path).with_suffix(".partial")
    with open(partial, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for _, rows, columns, kind in tensors:
            _, elements, size, _ = TYPES[kind]
            if columns == 0:
                data = np.ones(rows, "<f4").tobytes()
            else:
                # Many weights repeat some: that changes no speed, and writes gigabytes in seconds.
                count, piece = rows * columns // elements, 1 << 18
                some = random_blocks(np, random, kind, min(count, piece), columns)
                data = some * (count // piece) + some[: count % piece * size] if count > piece else some
            file.write(data + bytes(-len(data) % ALIGNMENT))
    partial.rename(path)


def bytes_per_token(name):
    """What a token reads of the weights."""
    shape, mix = SHAPES[name]
    total = 0
    for tensor, rows, columns, kind in tensors_of(shape, mix):
        if tensor != "token_embd.weight" or not shape["own_head"]:
            total += rows * (columns or 1) // TYPES[kind][1] * TYPES[kind][2]
    return total


# ---- kernels

def print_kernels(file):
    """Times of kernels, summed by name and launch."""
    lines = [line for line in file if line.startswith('"')]
    total = {}
    for row in csv.DictReader(lines):
        grid = f"{row['Grid Size']} x {row['Block Size']}"
        scale = {"ns": 1e-3, "us": 1, "usecond": 1, "nsecond": 1e-3}.get(row["Metric Unit"], 1)
        count, time = total.get((row["Kernel Name"], grid), (0, 0.0))
        total[row["Kernel Name"], grid] = (count + 1, time + scale * float(row["Metric Value"].replace(",", "")))
    print(f"{'kernel':40}{'grid x block':32}{'launches':>9}{'us each':>9}{'us in all':>11}")
    for (name, grid), (count, time) in sorted(total.items(), key=lambda item: -item[1][1]):
        print(f"{name.split('(')[0][:39]:40}{grid:32}{count:9}{time / count:9.2f}{time:11.1f}")
    launches, time = (sum(column) for column in zip(*total.values())) if total else (0, 0.0)
    print(f"{'in all':72}{launches:9}{'':9}{time:11.1f}")


# ---- report

MODELS = {  # step of ours, of llama.cpp
    "decode-8b-q4_k_m": ("8b-q4_k_m", "llama-8b-q4_k_m"), "decode-no-overlap": ("8b-q4_k_m", None),
    "decode-digits": ("8b-q4_k_m", None),
    "decode-8b-bf16": ("8b-bf16", None), "prefill-4096": ("8b-bf16", None),
    "decode-smollm2": ("smollm2-q4_1", "llama-smollm2"), "decode-gemma3": ("gemma3-q8_0", None),
}


class Results:
    def __init__(self, folder):
        self.folder = folder

    def text(self, name):
        path = self.folder / name
        return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""

    def steps(self):
        return sorted((path.stem, path.read_text().strip()) for path in self.folder.glob("*.status"))

    def json(self, step):
        """What a step that passed printed, or nothing."""
        return json.loads(self.text(step + ".log")) if self.text(step + ".status") == "passed" else None

    def rows(self, step):
        return (self.json(step) or {"rows": []})["rows"]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def model_rows(results, bandwidth):
    for step, (shape, peer_step) in MODELS.items():
        ours = results.json(step)
        if ours is None:
            continue
        share = ""
        if bandwidth:
            share = f"{100 * ours['decode_tok_s'] * bytes_per_token(shape) / bandwidth:.0f} %"
        peer = {("decode" if row["n_gen"] else "prefill"): row["avg_ts"]
                for row in (results.json(peer_step) if peer_step else None) or []}
        ratio = {key: f"{ours[key + '_tok_s'] / value:.2f}" for key, value in peer.items()}
        decode = (f"{ours['decode_tok_s']:.1f}", share) if ours["decode_tokens"] else ("", "")
        yield (step, shape, *decode, ratio.get("decode", ""), ours["prefill_tokens"], f"{ours['prefill_tok_s']:.0f}",
               ratio.get("prefill", ""), f"{ours['first_token_s']:.2f} s")


def kernel_rows(results):
    def values(*steps):
        return {row["what"]: row["value"] for step in steps for row in results.rows(step)}

    peers = (values("torch-gemm", "torch-attention", "torch-points", "torch-order", "torch-resnet"),
             values("onnx-resnet"))
    for step in ("limits", "gemv", "batch", "gemm", "attention", "points", "order", "resnet"):
        for row in results.rows(step):
            share = f"{100 * row['share']:.0f} %" if "share" in row else ""
            ratios = [f"{row['value'] / peer[row['what']]:.2f}" if row["what"] in peer else "" for peer in peers]
            yield (row["what"], f"{row['value']:.1f} {row['unit']}", share, *ratios)


def report(folder, page):
    results = Results(pathlib.Path(folder))
    steps = results.steps()
    if not steps:
        sys.exit(f"{folder}: no results of `gpu.sh run`")
    limits = {row["what"]: row["value"] for row in results.rows("limits")}
    text = f"Revision {results.text('revision') or 'unknown'}, {results.text('date')}.\n"
    device = results.text("device.log")
    if device:
        text += f"\n```\n{device}\n```\n"
    text += "\n" + table(("step", "outcome"), steps) + "\n"
    models = list(model_rows(results, limits.get("copy on the device", 0) * 1e9))
    if models:
        text += "\n" + table(("step", "random weights in the shape of", "decode, tokens/s", "of bandwidth",
                              "to llama.cpp", "prompt", "tokens/s", "to llama.cpp", "first token"), models) + "\n"
    kernels = list(kernel_rows(results))
    if kernels:
        text += "\n" + table(("what", "reached", "of the limit", "to PyTorch", "to ONNX Runtime"), kernels) + "\n"
    for step in ("kernels-decode", "kernels-digits", "kernels-prefill", "kernels-smollm2"):
        times = results.text(step + ".log").splitlines()
        if results.text(step + ".status") == "passed" and times:
            most = "\n".join(line.rstrip() for line in [*times[:13], times[-1]])
            text += f"\n500 kernels of step `{step}`, with about 2 us of launch each:\n\n```\n{most}\n```\n"
    path = pathlib.Path(page)
    old = path.read_text(encoding="utf-8")
    begin, end = "<!-- gpu -->\n", "<!-- end gpu -->"
    if begin not in old or end not in old:
        sys.exit(f"{page}: no {begin.strip()} ... {end}")
    path.write_text(old[: old.index(begin) + len(begin)] + text + old[old.index(end):], encoding="utf-8")


def main():
    match sys.argv[1:]:
        case ["model", name, path] if name in SHAPES:
            write_model(name, path)
        case ["kernels"]:
            print_kernels(sys.stdin)
        case ["report", folder, page]:
            report(folder, page)
        case _:
            sys.exit(f"{__doc__}\nshapes: {', '.join(SHAPES)}")


if __name__ == "__main__":
    main()

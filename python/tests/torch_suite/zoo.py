"""Networks that nobody chose for Tenon, with random weights, compared with PyTorch: timm, diffusers, audio, detection.

    python python/tests/torch_suite/zoo.py OUT.jsonl [--match REGEX] [--onnx] [--limit SECONDS] [--part 0/2]

Each network has a process of its own, and a line in OUT: how it ended, how far apart the results are at batch 2 and 1
(the largest difference as a share of the largest number), and the medians of both at batch 1, two threads each.
Where PyTorch cannot export an open batch, each batch is exported; parts of transformers that it cannot export at all
are exported in another form (zoo_exportable.py), and compared with what they computed before. Networks that OUT has
already are skipped.

Needs torch, torchvision, timm, and diffusers, transformers, torchaudio, open_clip_torch and segmentation_models_pytorch
for the networks of theirs. Nothing is downloaded. Slow: --match chooses networks by their names.
"""

import argparse
import collections
import faulthandler
import importlib
import io
import json
import math
import os
import pathlib
import re
import signal
import statistics
import sys
import time
import traceback

import numpy as np
import torch
import zoo_exportable
import zoo_transformers  # noqa: F401: adds its networks to NETWORKS
from torch.utils import _pytree as pytree
from zoo_networks import NETWORKS, Called, tensors

import tenon.onnx
import tenon.torch

ALLOWED = 1e-4


def settled(module):
    """A module whose parameters hide nothing (zeros, ones), with statistics as a trained network has them."""
    torch.manual_seed(1)
    with torch.no_grad():
        for one in module.parameters():
            if not one.is_floating_point() or one.numel() < 2 or not (one == one.flatten()[0]).all():
                continue
            value = float(one.flatten()[0])
            if abs(value) < 0.01:
                one.normal_(0.1 if one.ndim == 1 else 0, 0.05)
            else:
                one.normal_(value, 0.1 * abs(value))
        for name, one in module.named_buffers():
            if name.endswith("running_mean"):
                one.normal_(0, 0.1)
            if name.endswith("running_var"):
                one.uniform_(0.7, 1.3)
    return module.eval()


def apart(made, wanted):
    worst = 0.0
    for one, other in zip(made, wanted, strict=True):
        one, other = np.asarray(one).astype("float64"), np.asarray(other).astype("float64")
        if one.shape != other.shape:
            raise ValueError(f"sizes {one.shape}, not {other.shape}")
        if (np.isnan(one) != np.isnan(other)).any() or (np.isinf(one) != np.isinf(other)).any():
            return math.inf
        one, other = (np.nan_to_num(each, posinf=0, neginf=0) for each in (one, other))
        if other.size:
            worst = max(worst, float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-30)))
    return worst


def before_others(on):
    """This process's threads before those of others, where that is allowed."""
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setscheduler(int(thread), os.SCHED_FIFO if on else os.SCHED_OTHER, os.sched_param(50 if on else 0))
        except OSError:
            return


def medians(*runs, count=5):
    kept = [[] for _ in runs]
    for run in runs:
        run()
    before_others(True)
    for _ in range(count):
        for run, held in zip(runs, kept):
            time.sleep(0.005)  # until threads of the other no longer spin
            begin = time.perf_counter()
            run()
            held.append(time.perf_counter() - begin)
    before_others(False)
    return [statistics.median(one) for one in kept]


def open_axes(calls, axis):
    """What is exported with an open batch: {0: axis} for each input whose first sizes differ."""
    return tuple({0: axis} if a.ndim and a.shape[0] != b.shape[0] else None for a, b in zip(*calls))


def torch_model(module, calls, row):
    axes = open_axes(calls, torch.export.Dim("batch", min=1, max=8))
    begin = time.perf_counter()
    try:
        exported = torch.export.export(module, calls[0], dynamic_shapes=(axes,) if isinstance(module, Called) else axes)
        archives = [exported]
    except Exception as error:  # noqa: BLE001: torch's own, of many types
        row["batch"] = f"{type(error).__name__}: {str(error)[:150]}"
        archives = [torch.export.export(module, one) for one in calls]
    row["nodes"], row["export_s"] = len(archives[0].graph.nodes), round(time.perf_counter() - begin, 2)
    begin = time.perf_counter()
    models = [tenon.torch.Model(one, threads=2) for one in archives]
    row["read_s"] = round(time.perf_counter() - begin, 2)
    row["open"] = len(models) == 1 and models[0].session is not None
    runs = [lambda *inputs, model=model: pytree.tree_leaves(model(*inputs)) for model in (models[0], models[-1])]
    return runs, models[-1]


def onnx_model(module, calls, row):
    names = [f"x{i}" for i in range(len(calls[0]))]
    axes = {name: axis for name, axis in zip(names, open_axes(calls, "batch")) if axis}
    file, begin = io.BytesIO(), time.perf_counter()
    torch.onnx.export(module, calls[0], file, dynamo=False, input_names=names, dynamic_axes=axes)
    row["export_s"], begin = round(time.perf_counter() - begin, 2), time.perf_counter()
    model = tenon.onnx.Model(file.getvalue(), threads=2)
    row["read_s"] = round(time.perf_counter() - begin, 2)
    return [lambda *inputs: list(model.run(dict(zip(names, inputs)))) for _ in calls], model


def check(name, onnx, row):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # whose op is exported as one that only torch has
    module, calls = NETWORKS[name]()
    module = settled(module)
    with torch.no_grad():
        wanted = [[one.numpy() for one in tensors(module(*call))] for call in calls]
        row["end"] = "not exported"
        zoo_exportable.exportable(module)
        runs, model = (onnx_model if onnx else torch_model)(module, calls, row)
        arrays = [[one.numpy() for one in call] for call in calls]
        row["end"] = "failed"
        row["apart"] = [apart(run(*inputs), want) for run, inputs, want in zip(runs, arrays, wanted)]
        row["end"] = "equal" if max(row["apart"]) <= ALLOWED else "wrong"
        torch.set_num_threads(2)
        mine, theirs = medians(lambda: runs[1](*arrays[1]), lambda: module(*calls[1]))
        row["ms"], row["torch_ms"], row["times"] = round(mine * 1e3, 2), round(theirs * 1e3, 2), round(mine / theirs, 2)
        program = getattr(model, "program", None)
        if row["times"] > 1 and program is not None and len(program.parameters()) == len(arrays[1]):
            session = tenon.Session(program, threads=2)
            session.enable_time_profile()
            for _ in range(2):
                session.forward(*arrays[1])
            row["ops"] = [[op, count, round(wall * 1e3, 3)] for op, count, wall in tenon.Profile(session).ops[:6]]


def in_a_process(name, options):
    """The line of a network, of a process of its own."""
    begin = time.time()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        row = {"name": name, "end": "not made"}
        faulthandler.dump_traceback_later(options.limit - 5, file=sys.stderr)
        try:
            check(name, options.onnx, row)
        except BaseException as error:  # noqa: BLE001: whatever it is, it is this network's
            if isinstance(error, tenon.Error):
                row["end"] = "refused"
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{pathlib.Path(last.filename).name}:{last.lineno}"
            row["error"] = f"{type(error).__name__}: {str(error)[:600]} ({place})"
        os.write(write, json.dumps(row).encode())
        os._exit(0)
    os.close(write)
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.time() - begin > options.limit:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.05)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    row = json.loads(text) if text else {"name": name, "end": "killed"}
    row["s"] = round(time.time() - begin, 1)
    return row


def summary(rows):
    print(dict(collections.Counter(row["end"] for row in rows)), "of", len(rows))
    for row in rows:
        if row["end"] != "equal" or row["times"] > 1:
            print(json.dumps(row)[:500])


def lines_of(path):
    return [json.loads(one) for one in path.read_text().splitlines()] if path.exists() else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--match", default="")
    parser.add_argument("--onnx", action="store_true", help="by torch.onnx.export in the place of torch.export")
    parser.add_argument("--limit", type=int, default=300, help="seconds for a network")
    parser.add_argument("--part", default="0/1", help="which of how many runs beside each other")
    options = parser.parse_args()
    # Once, before there are processes, with what torch.export imports.
    for library in ("timm", "torchvision", "transformers", "diffusers"):
        try:
            importlib.import_module(library)
        except ImportError:
            print(f"no {library}", flush=True)
    torch.export.export(torch.nn.Linear(2, 2), (torch.ones(3, 2),), dynamic_shapes=({0: torch.export.Dim("n")},))
    # The exact form takes longer than all else.
    torch.nn.init.trunc_normal_ = lambda x, mean=0.0, std=1.0, *_, **__: x.data.normal_(mean, std)
    part, of = map(int, options.part.split("/"))
    done = {row["name"] for row in lines_of(options.out)}
    for name in [one for one in NETWORKS if re.search(options.match, one)][part::of]:
        if name not in done:
            with options.out.open("a") as file:
                file.write(json.dumps(in_a_process(name, options)) + "\n")
    summary(lines_of(options.out))


if __name__ == "__main__":
    main()

"""Changes ONNX models at random and reads them: whatever is not a program is a typed error.

    python python/tests/onnx_suite/fuzz.py --minutes 15 [--seed 1] [--models FOLDER]
    python python/tests/onnx_suite/fuzz.py --one SEED          # one case again

Models are the node tests of the package `onnx`, and files of a folder. They are read in a child process, whose memory
and time for one case are limited; what kills it is a finding, too.
"""

import argparse
import faulthandler
import multiprocessing
import pathlib
import random
import resource
import sys
import time
import traceback
import warnings

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

import tenon
import tenon.onnx

SECONDS, GIGABYTES = 30, 40
MOST_MEGABYTES = 3000
NUMBERS = [0, 1, -1, 2, 3, 7, 8, 9, 255, 2**31 - 1, -2**31, 2**31, 2**32, 2**40, 2**63 - 1, -2**63, 10**6]
WORDS = ["", "constant", "linear", "nearest", "SAME_UPPER", "add", "mul", "\u00e9", "x" * 300, "a,b->c", "...i->i"]


def seeds(folder):
    found = []
    for case in load_model_tests(kind="node"):
        model = case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")
        found.append(model.SerializeToString())
    for path in sorted(pathlib.Path(folder).glob("*.onnx")) if folder else []:
        if path.stat().st_size < 4_000_000:
            found.append(path.read_bytes())
    return found


def changed_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if not data:
            break
        at = rng.randrange(len(data))
        kind = rng.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice((0, 1, 127, 128, 255))
        elif kind == 2:
            del data[at:at + rng.randint(1, 16)]
        elif kind == 3:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 8)))
        else:
            del data[at:]
    return bytes(data)


def graphs_of(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g)


def changed_model(data, other, rng):
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.randint(1, 4)):
        graph = rng.choice(list(graphs_of(model.graph)))
        rng.choice(CHANGES)(model, graph, rng, other)
    return model.SerializeToString()


def change_attribute(model, graph, rng, other):
    nodes = [node for node in graph.node if node.attribute]
    if not nodes:
        return
    one = rng.choice(rng.choice(nodes).attribute)
    kind = rng.randrange(6)
    if kind == 0:
        one.i = rng.choice(NUMBERS)
        one.type = onnx.AttributeProto.INT if rng.random() < 0.3 else one.type
    elif kind == 1 and one.ints:
        one.ints[rng.randrange(len(one.ints))] = rng.choice(NUMBERS)
    elif kind == 2:
        if one.ints and rng.random() < 0.5:
            one.ints.pop()
        else:
            one.ints.extend([rng.choice(NUMBERS)] * rng.choice((1, 1, 2, 40)))
    elif kind == 3:
        one.f = rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    elif kind == 4:
        one.s = rng.choice(WORDS).encode() if rng.random() < 0.9 else b"\xff\xfe"
    else:
        one.type = rng.randrange(0, 15)


def drop_or_add_attribute(model, graph, rng, other):
    if not graph.node:
        return
    node = rng.choice(graph.node)
    if node.attribute and rng.random() < 0.6:
        del node.attribute[rng.randrange(len(node.attribute))]
    else:
        name = rng.choice("axis axes mode pads kernel_shape strides to group keepdims perm".split())
        value = rng.choice((rng.choice(NUMBERS), [rng.choice(NUMBERS)] * 2, rng.choice(WORDS)))
        node.attribute.append(onnx.helper.make_attribute(name, value))


def change_links(model, graph, rng, other):
    if not graph.node:
        return
    node = rng.choice(graph.node)
    names = [name for one in graph.node for name in (*one.input, *one.output)] + [one.name for one in graph.input]
    kind = rng.randrange(5)
    if kind == 0 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*names, "", "nowhere"])
    elif kind == 1:
        node.input.append(rng.choice([*names, ""]))
    elif kind == 2 and node.input:
        node.input.pop()
    elif kind == 3:
        node.output.append(rng.choice([*names, "new", ""]))
    elif node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice([*names, ""])


def change_op(model, graph, rng, other):
    if graph.node:
        node, theirs = rng.choice(graph.node), onnx.ModelProto.FromString(other)
        if theirs.graph.node:
            node.op_type = rng.choice(theirs.graph.node).op_type


def change_nodes(model, graph, rng, other):
    if not graph.node:
        return
    kind = rng.randrange(3)
    if kind == 0:
        del graph.node[rng.randrange(len(graph.node))]
    elif kind == 1:
        graph.node.append(rng.choice(graph.node))
    else:
        theirs = onnx.ModelProto.FromString(other)
        graph.node.extend(theirs.graph.node)


def change_types(model, graph, rng, other):
    values = [*graph.input, *graph.output]
    if not values:
        return
    one = rng.choice(values)
    if one.type.WhichOneof("value") != "tensor_type":
        return
    kind = rng.randrange(4)
    dims = one.type.tensor_type.shape.dim
    if kind == 0:
        one.type.tensor_type.elem_type = rng.randrange(0, 28)
    elif kind == 1 and dims:
        rng.choice(dims).dim_value = rng.choice(NUMBERS)
    elif kind == 2 and dims:
        rng.choice(dims).dim_param = rng.choice(("N", "batch size", "1", "\u00e9", "x" * 400))
    elif dims and rng.random() < 0.5:
        dims.pop()
    else:
        dims.add().dim_value = rng.choice((0, 1, 2, 3))


def change_constants(model, graph, rng, other):
    tensors = [*graph.initializer, *(a.t for node in graph.node for a in node.attribute if a.HasField("t"))]
    if not tensors:
        if graph.input and graph.input[0].type.WhichOneof("value") == "tensor_type":
            name = rng.choice(graph.input).name
            values = [rng.choice(NUMBERS) for _ in range(rng.randint(0, 5))]
            graph.initializer.append(onnx.helper.make_tensor(name, 7, [len(values)], values))
        return
    one = rng.choice(tensors)
    kind = rng.randrange(5)
    if kind == 0:
        one.data_type = rng.randrange(0, 28)
    elif kind == 1:
        one.dims[:] = [rng.choice(NUMBERS) for _ in range(rng.randint(0, 10))]
    elif kind == 2 and one.raw_data:
        one.raw_data = changed_bytes(one.raw_data, rng)
    elif kind == 3 and one.int64_data:
        one.int64_data[rng.randrange(len(one.int64_data))] = rng.choice(NUMBERS)
    else:
        one.data_location = onnx.TensorProto.EXTERNAL
        entry = one.external_data.add()
        entry.key, entry.value = "location", rng.choice(("../../etc/passwd", "/etc/passwd", "w.bin", "", "a\0b"))


def change_versions(model, graph, rng, other):
    if model.opset_import:
        one = rng.choice(model.opset_import)
        if rng.random() < 0.8:
            one.version = rng.choice((*range(7, 29), 0, -1, 2**40))
        else:
            one.domain = rng.choice(("", "ai.onnx", "com.microsoft", "other"))


CHANGES = [change_attribute, change_attribute, drop_or_add_attribute, change_links, change_op, change_nodes,
           change_types, change_constants, change_constants, change_versions]


def case(models, seed):
    rng = random.Random(seed)
    data = rng.choice(models)
    if rng.random() < 0.25:
        return changed_bytes(data, rng)
    return changed_model(data, rng.choice(models), rng)


def read(data, seed):
    """Reads a model with open sizes, then with sizes and values that fit; runs what is small."""
    rng = np.random.default_rng(seed)
    try:
        tenon.onnx.load(data)
    except tenon.Error:
        pass
    model = tenon.onnx.Model(data)
    held = {one.name for one in model.proto.graph.initializer}
    arrays = {}
    for one in model.proto.graph.input:
        if one.name in held:
            continue
        kind = one.type.tensor_type
        if kind.elem_type not in tenon.onnx.types.NAMES:
            return
        sizes = [d.dim_value if d.HasField("dim_value") else 2 for d in kind.shape.dim]
        if len(sizes) > 8 or not all(0 <= size <= 2**16 for size in sizes) or \
                np.prod([float(size) for size in sizes]) > 2**16:
            return
        arrays[one.name] = (rng.standard_normal(sizes) * 3).astype(tenon.onnx.types.NUMPY[
            tenon.onnx.types.NAMES[kind.elem_type]])
    session, names = model.session(arrays)
    shapes = {name: one.shape for name, one in arrays.items() if name not in model.fixed}
    program = tenon.onnx.load(data, shapes, {name: arrays[name] for name in model.fixed})
    if all(one.is_static and one.elements < 2**22 for _, one in program.results()):
        session.forward(*(arrays[name] for name in names))


def child(models, seeds_in, found):
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES << 30, GIGABYTES << 30))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    while True:
        seed = seeds_in.recv()
        if seed is None:
            return
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        outcome = "read"
        try:
            read(case(models, seed), seed)
        except tenon.Error as error:
            outcome = "refused" if error.code != "Internal" else f"Internal: {error}"
        except Exception:  # noqa: BLE001: the finding
            outcome = traceback.format_exc(limit=-4)
        faulthandler.cancel_dump_traceback_later()
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MOST_MEGABYTES << 10:
            found.send((seed, f"more than {MOST_MEGABYTES} MB"))
            return
        found.send((seed, outcome))


def start(models):
    ours, theirs = multiprocessing.Pipe()
    results, sender = multiprocessing.Pipe(False)
    process = multiprocessing.Process(target=child, args=(models, theirs, sender), daemon=True)
    process.start()
    sender.close()
    return process, ours, results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", default="")
    parser.add_argument("--one", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    models = seeds(options.models)
    if options.one is not None:
        try:
            read(case(models, options.one), options.one)
            print("read")
        except tenon.Error as error:
            print("refused:", error)
        return 0
    process, seeds_out, results = start(models)
    counts, findings, seed = {"read": 0, "refused": 0}, 0, options.seed * 10**9
    end = time.monotonic() + options.minutes * 60
    while time.monotonic() < end:
        seed += 1
        seeds_out.send(seed)
        try:
            _, outcome = results.recv()
        except EOFError:
            process.join()
            outcome = f"the process ended: {process.exitcode}"
        if not process.is_alive() or "MB" in outcome:
            process.join()
            process, seeds_out, results = start(models)
        if outcome in counts:
            counts[outcome] += 1
        else:
            findings += 1
            print(f"seed {seed}: {outcome}", flush=True)
    seeds_out.send(None)
    process.join()
    print(f"{counts}, {findings} findings, first seed {options.seed * 10**9 + 1}, "
          f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime / 60:.1f} CPU-minutes")
    return findings != 0


if __name__ == "__main__":
    sys.exit(main())

"""Changes archives at random, byte by byte or within the graph, and reads and runs what comes out.

    python python/tests/torch_suite/fuzz.py FOLDER [--seconds 900] [--seed 1]

Anything but a result or a tenon.Error is a finding.
"""

import argparse
import copy
import functools
import io
import json
import pathlib
import random
import time
import zipfile

import numpy as np

import tenon
import tenon.torch

_NUMBERS = [0, 1, -1, 2, 3, 7, 255, 2**31 - 1, 2**31, -2**31, 2**40, 2**63 - 1, 2**63, -2**70, 0.5, True, None, "x", [],
            {}]


@functools.cache
def parts(path):
    """(the files of an archive, the graph's name, the graph)"""
    with zipfile.ZipFile(path) as archive:
        files = {one.filename: archive.read(one) for one in archive.infolist()}
    name = next(one for one in files if one.endswith("models/model.json"))
    return files, name, json.loads(files[name])


def places(record, found):
    """Every place in a JSON value: (container, key)."""
    items = record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    for key, value in items:
        found.append((record, key))
        places(value, found)
    return found


def changed_graph(document, rng):
    made = copy.deepcopy(document)
    found = places({key: made[key] for key in ("graph_module", "range_constraints")}, [])
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        container, key = rng.choice(found)
        other, at = rng.choice(found)
        try:
            value = other[at]
            kind = rng.randrange(4)
            if kind == 0:
                container[key] = copy.deepcopy(rng.choice(_NUMBERS))
            elif kind == 1:
                container[key] = copy.deepcopy(value)
            elif kind == 2:
                del container[key]
            else:
                similar = [one for one in found if type(one[0]) is type(container) and one[1] == key]
                source, place = rng.choice(similar)
                container[key] = copy.deepcopy(source[place])
        except (KeyError, IndexError):
            continue  # a place that an earlier change took away
    return made


def archive(files):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as target:
        for name, data in files.items():
            target.writestr(name, data)
    return made.getvalue()


def changed(path, rng):
    """The bytes of a changed archive."""
    files, name, document = parts(path)
    if rng.random() < 0.15:
        data = bytearray(archive(files))
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data[:rng.randrange(len(data))] if rng.random() < 0.3 else data)
    files = dict(files)
    if rng.random() < 0.2:
        config = next(one for one in files if one.endswith("weights_config.json"))
        text = json.loads(files[config])
        container, key = rng.choice(places(text, []))
        container[key] = copy.deepcopy(rng.choice(_NUMBERS))
        files[config] = json.dumps(text).encode()
    else:
        files[name] = json.dumps(changed_graph(document, rng)).encode()
    return archive(files)


def arrays_for(program, rng):
    """Small arrays for a program's inputs, or None where they are not small."""
    made = {}
    for name, shape in program.parameters():
        sizes = [one if isinstance(one, int) else rng.choice([1, 2, 3]) for one in shape.dims]
        if np.prod(sizes, dtype=np.float64) > 2**16:
            return None
        values = np.random.default_rng(rng.randrange(2**32)).integers(0, 4, sizes)
        made[name] = tenon.array(values.astype("float32")).astype(shape.dtype.name)
    return made


def attempt(data, rng):
    """What came of an archive: "read", "run", "refused", or the error that is a finding."""
    try:
        program = tenon.torch.load(data)
        arrays = arrays_for(program, rng)
        if arrays is None:
            return "read"
        tenon.Session(program).forward(**arrays)
        return "run"
    except tenon.Error as error:
        return "finding: " + repr(error) if isinstance(error, tenon.InternalError) else "refused"
    except Exception as error:
        return f"finding: {type(error).__name__}: {str(error)[:300]}"


def run(folder, rounds=None, seconds=None, seed=1, report=False):
    """The findings: (round, what, archive)."""
    paths = sorted(pathlib.Path(folder).glob("*.pt2"))
    begin, number, findings, counts = time.monotonic(), 0, [], {}
    while (rounds is None or number < rounds) and (seconds is None or time.monotonic() - begin < seconds):
        rng = random.Random(seed * 1_000_003 + number)
        path = rng.choice(paths)
        data = changed(path, rng)
        started = time.monotonic()
        outcome = attempt(data, rng)
        if time.monotonic() - started > 20:
            outcome = f"finding: took {time.monotonic() - started:.0f} s"
        kind = outcome.partition(":")[0]
        counts[kind] = counts.get(kind, 0) + 1
        if kind == "finding":
            findings.append((number, path.stem, outcome))
            if report:
                print(findings[-1], flush=True)
        number += 1
    if report:
        print(f"seed {seed}: {number} archives, {counts}", flush=True)
    return findings


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    return int(bool(run(options.folder, seconds=options.seconds, seed=options.seed, report=True)))


if __name__ == "__main__":
    raise SystemExit(main())

"""Changes archives at random, byte by byte, within the graph, in what they say of weights and in the zip file's own
records, and reads and runs what comes out.

    python python/tests/torch_suite/fuzz.py FOLDER [--seconds 900] [--seed 1]
    python python/tests/torch_suite/fuzz.py FOLDER --one NUMBER [--seed 1]     # one archive again

Anything but a result or a tenon.Error is a finding, and so are more than 20 seconds, more than 2 GB, and a pickle that
was run.
"""

import argparse
import copy
import functools
import io
import json
import os
import pathlib
import pickle
import random
import resource
import struct
import time
import warnings
import zipfile

import numpy as np

import tenon
import tenon.torch

_NUMBERS = [0, 1, -1, 2, 3, 7, 255, 2**31 - 1, 2**31, -2**31, 2**40, 2**63 - 1, 2**63, -2**70, 0.5, True, None, "x", [],
            {}]
_PATHS = ["../../models/model.json", "/etc/passwd", "\0", ""]
_FIELDS = [0, 1, 8, 99, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]
_UNPICKLED = []


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


def archive(files, more=(), method=zipfile.ZIP_STORED):
    made = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w", method) as target:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, data in (*files.items(), *more):
            target.writestr(name, data)
    return made.getvalue()


def mark_unpickled():
    _UNPICKLED.append(True)


class Canary:
    """What marks that it was unpickled."""

    def __reduce__(self):
        return mark_unpickled, ()


def changed_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data[:rng.randrange(len(data))] if rng.random() < 0.3 else data)


def change_weight(text, entries, files, rng):
    kind = rng.randrange(4)
    if not entries or kind == 0:
        container, key = rng.choice(places(text, []))
        container[key] = copy.deepcopy(rng.choice(_NUMBERS))
    elif kind == 1:
        rng.choice(entries)["path_name"] = rng.choice([rng.choice(entries)["path_name"], *_PATHS])
    elif kind == 2:
        meta = rng.choice(entries)["tensor_meta"]
        for field in ("sizes", "strides"):
            meta[field] = [{"as_int": rng.choice([0, 1, 2, 3, 64, 2**20, 2**40, 2**61])} for _ in meta[field]]
    else:
        rng.choice(entries)["use_pickle"] = True
        files[rng.choice(list(files))] = pickle.dumps(Canary())


def changed_weights(files, rng):
    """What an archive says of its weights, changed: sizes, strides, types, files and pickles."""
    config = rng.choice([one for one in files if one.endswith("_config.json")])
    text = json.loads(files[config])
    entries = list(text["config"].values())
    for _ in range(rng.randint(1, 3)):
        try:
            change_weight(text, entries, files, rng)
        except (KeyError, TypeError):
            continue  # a place that an earlier change took away
    files[config] = json.dumps(text).encode()
    return archive(files)


def changed_zip(files, rng):
    """An archive whose records of a zip file lie: sizes, places, methods, names."""
    names = list(files)
    kind = rng.randrange(4)
    if kind == 0:
        return archive(files, [(rng.choice(names), b"{}")])
    if kind == 1:
        return archive(files | {rng.choice(names): bytes(2**26)}, method=zipfile.ZIP_DEFLATED)
    data = bytearray(archive(files, method=rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])))
    signature, fields = rng.choice([(b"PK\1\2", [8, 10, 16, 20, 24, 28, 30, 42]), (b"PK\3\4", [6, 8, 14, 18, 22, 26]),
                                    (b"PK\5\6", [8, 10, 12, 16, 20])])
    for _ in range(rng.randint(1, 3)):
        starts = [at for at in range(len(data) - 46) if data[at:at + 4] == signature] or [len(data) - 22]
        at = rng.choice(starts) + rng.choice(fields)
        value = rng.choice([*_FIELDS, rng.randrange(len(data)), rng.randrange(2**32)])
        packed = struct.pack("<I", value)[:min(4, len(data) - at)]
        data[at:at + len(packed)] = packed
    return bytes(data)


def changed(path, rng):
    """The bytes of a changed archive."""
    files, name, document = parts(path)
    kind = rng.random()
    if kind < 0.15:
        return changed_bytes(archive(files), rng)
    if kind < 0.3:
        return changed_zip(dict(files), rng)
    if kind < 0.45:
        return changed_weights(dict(files), rng)
    return archive(files | {name: json.dumps(changed_graph(document, rng)).encode()})


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


def archive_of(folder, seed, number):
    """(the generator of a case, its archive's path, the changed archive)"""
    rng = random.Random(seed * 1_000_003 + number)
    path = rng.choice(sorted(pathlib.Path(folder).glob("*.pt2")))
    return rng, path, changed(path, rng)


def judged(data, rng):
    """`attempt`, with what it cost."""
    started = time.monotonic()
    outcome = attempt(data, rng)
    if time.monotonic() - started > 20:
        return f"finding: took {time.monotonic() - started:.0f} s"
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 2 << 20:
        return "finding: more than 2 GB"
    return outcome


def run(folder, rounds=None, seconds=None, seed=1, report=False):
    """The findings: (round, what, archive)."""
    begin, number, findings, counts = time.monotonic(), 0, [], {}
    while (rounds is None or number < rounds) and (seconds is None or time.monotonic() - begin < seconds):
        rng, path, data = archive_of(folder, seed, number)
        outcome = judged(data, rng)
        kind = outcome.partition(":")[0]
        counts[kind] = counts.get(kind, 0) + 1
        if kind == "finding":
            findings.append((number, path.stem, outcome))
            if report:
                print(findings[-1], flush=True)
        number += 1
    if _UNPICKLED:
        findings.append((number, "", "finding: a pickle was run"))
    if report:
        print(f"seed {seed}: {number} archives, {counts}, {findings[-1:]}", flush=True)
    return findings


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", type=int)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    if options.one is not None:
        rng, path, data = archive_of(options.folder, options.seed, options.one)
        print(path.stem, judged(data, rng))
        tenon.torch.load(data)
        return 0
    return int(bool(run(options.folder, seconds=options.seconds, seed=options.seed, report=True)))


if __name__ == "__main__":
    raise SystemExit(main())

"""The archives of torch.export.save: a graph as JSON, and the bytes of weights. Nothing in them is unpickled."""

import io
import json
import math
import os
import pathlib
import zipfile

import numpy as np

from ..errors import Error
from ..importing.errors import malformed, unsupported, unsupported_type
from ..importing.types import NUMPY
from .decomposed import decomposed

MAX_GRAPH = 2**28     # bytes of a graph's text
MAX_WEIGHT = 2**36    # bytes of one weight
MAJOR = 8             # of the schema of torch.export
DTYPES = {1: "u8", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "f16", 7: "f32", 8: "f64", 10: "c64", 12: "bool",
          13: "bf16", 28: "u16", 29: "f8_e4m3", 30: "f8_e5m2", 34: "u32", 35: "u64"}
_PICKLED = ("an archive of an earlier torch, whose weights are pickled; where you trust it, load it with "
            "torch.export.load and save it again")
_CHECKPOINT = ("a file of torch.save or torch.jit.save, which is pickled, and nothing is unpickled; export the module "
               "with torch.export.export(module.eval(), (inputs,)), and torch.export.save that")
_OTHERS = {9: "complex32", 11: "complex128", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz",
           33: "float8_e8m0fnu"}


def dtype_of(number, where):
    """Tenon's word for an element type of torch."""
    if number not in DTYPES or DTYPES[number] not in NUMPY:
        name = _OTHERS.get(number, DTYPES.get(number, f"element type {number!r}"))
        raise unsupported_type(where, f"{name} is no type of Tenon"
                               if number not in DTYPES else f"{name} needs the package ml_dtypes")
    return DTYPES[number]


def get(record, name, kind, where):
    """A field of a JSON object, which has to be of a Python type."""
    if not isinstance(record, dict) or not isinstance(record.get(name), kind):
        raise malformed(where, f"no field '{name}' in {str(record)[:80]}")
    return record[name]


class Archive:
    """An archive: `document` is the graph with what belongs to it."""

    def __init__(self, source):
        self.where, stream = _opened(source)
        try:
            self._zip = zipfile.ZipFile(stream)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
            if _begin(stream) == b"\x80\x02":  # a pickle
                raise unsupported(self.where, _CHECKPOINT) from None
            raise malformed(self.where, f"no archive of torch.export.save: {error}", "BadMagic") from None
        self._files = self._by_name()
        self._arrays = {}  # of weights that were read: tied ones are one array
        self.document = self._document()
        if "byteorder" in self._files and self.bytes("byteorder", 16) != b"little":
            raise unsupported(self.where, "weights in another byte order than little-endian")
        self._weights = self._payloads("weights") | self._payloads("constants")

    def _by_name(self):
        """Names within the archive, without the folder that all of them are in."""
        found = {}
        for one in self._zip.infolist():
            name = one.filename.partition("/")[2] or one.filename
            if name in found:
                raise malformed(self.where, f"'{one.filename}' is there twice", "DuplicateName")
            found[name] = one
        return found

    def _document(self):
        graphs = sorted(name for name in self._files if name.startswith("models/") and name.endswith(".json"))
        if not graphs:
            if any(name.rpartition("/")[2] in ("data.pkl", "constants.pkl") for name in self._files):
                raise unsupported(self.where, _CHECKPOINT)
            if "serialized_exported_program.json" in {name.rpartition("/")[2] for name in self._files}:
                raise unsupported(self.where, _PICKLED)
            raise malformed(self.where, "no archive of torch.export.save: no models/*.json", "BadMagic")
        if len(graphs) > 1:
            raise unsupported(self.where, f"several models: {', '.join(graphs)[:200]}")
        document = self.json(graphs[0])
        version = get(get(document, "schema_version", dict, self.where), "major", int, self.where)
        if version != MAJOR:
            raise malformed(self.where, f"schema {version} of torch.export; {MAJOR} is read", "UnsupportedVersion")
        return document

    def bytes(self, name, limit):
        info = self._files.get(name)
        if info is None:
            raise malformed(self.where, f"'{name}' is not there", "NotFound")
        if info.file_size > limit:
            raise malformed(self.where, f"'{name}' has {info.file_size} bytes", "LimitExceeded")
        try:
            return self._zip.read(info)
        except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError, EOFError,
                zipfile.zlib.error) as error:
            raise malformed(self.where, f"'{name}': {error}", "BadEncoding") from None

    def json(self, name):
        where = f"{self.where}: {name}"
        try:
            return json.loads(self.bytes(name, MAX_GRAPH), object_pairs_hook=lambda pairs: _unique(pairs, where))
        except RecursionError:
            raise malformed(where, "nested too deeply", "DepthLimit") from None
        except ValueError as error:
            if isinstance(error, type(malformed("", ""))):
                raise
            raise malformed(where, f"no JSON: {error}", "BadEncoding") from None

    def _payloads(self, kind):
        names = [name for name in self._files if name.startswith(f"data/{kind}/") and name.endswith("_config.json")]
        if not names and f"data/{kind}/" in {name[:len(kind) + 6] for name in self._files}:
            raise unsupported(self.where, _PICKLED)
        found = {}
        for name in sorted(names):
            config = get(self.json(name), "config", dict, f"{self.where}: {name}")
            found.update({key: (f"data/{kind}/", one) for key, one in config.items()})
        return found

    def weight(self, name):
        """The array of a parameter, buffer or constant."""
        where = f"{self.where}: weight '{name}'"
        if name not in self._weights:
            raise malformed(where, "is not in the archive", "NotFound")
        folder, payload = self._weights[name]
        if get(payload, "use_pickle", bool, where):
            raise unsupported(where, "is pickled, and nothing is unpickled")
        meta = get(payload, "tensor_meta", dict, where)
        dtype = dtype_of(meta.get("dtype"), where)
        if meta.get("layout", 7) != 7:
            raise unsupported(where, f"of layout {meta['layout']}: only strided tensors are read")
        sizes, strides = (_numbers(get(meta, field, list, where), where) for field in ("sizes", "strides"))
        [offset] = _numbers([get(meta, "storage_offset", dict, where)], where)
        path = folder + get(payload, "path_name", str, where)
        key = (path, dtype, *sizes, *strides, offset)
        if key not in self._arrays:
            self._arrays[key] = _strided(self.bytes(path, MAX_WEIGHT), NUMPY[dtype], sizes, strides, offset, where)
        return self._arrays[key]


def _strided(data, dtype, sizes, strides, offset, where):
    if len(sizes) != len(strides):
        raise malformed(where, f"sizes {sizes} and strides {strides}", "BadShape")
    if 0 in sizes:
        return np.zeros(sizes, dtype) if math.prod(one for one in sizes if one) < 2**40 else _too_large(sizes, where)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    if (last + 1) * dtype.itemsize > len(data):
        raise malformed(where, f"{len(data)} bytes for sizes {sizes}, strides {strides} from {offset}", "Truncated")
    usable = len(data) // dtype.itemsize
    flat = np.frombuffer(data, dtype, usable)
    if math.prod(sizes) > max(usable, 2**20) * 4:
        _too_large(sizes, where)
    made = np.lib.stride_tricks.as_strided(flat[offset:], sizes, [one * dtype.itemsize for one in strides])
    return np.ascontiguousarray(made) if sizes else np.array(made)


def _too_large(sizes, where):
    raise malformed(where, f"sizes {sizes}", "LimitExceeded")


def _numbers(entries, where):
    numbers = [one.get("as_int") if isinstance(one, dict) else None for one in entries]
    if len(numbers) > 64 or any(type(one) is not int or not 0 <= one < 2**62 for one in numbers):
        raise malformed(where, f"{str(entries)[:80]} are no numbers", "BadShape")
    return numbers


def _unique(pairs, where):
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise malformed(where, f"the key {twice[:40]!r} twice", "DuplicateName")
    return made


def _opened(source):
    """(What the source is called in errors, a file to read.) A program of torch is saved by torch itself."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "archive", io.BytesIO(source)
    if isinstance(source, (str, os.PathLike)):
        path = pathlib.Path(os.fspath(source))
        if not path.is_file():
            raise malformed(str(path), "no such file", "NotFound")
        return str(path), path
    return "exported program", _saved(source)


def _begin(stream):
    """The first two bytes of a path or file."""
    if isinstance(stream, pathlib.Path):
        with stream.open("rb") as file:
            return file.read(2)
    return stream.getvalue()[:2]


def _saved(program):
    try:
        import torch.export
    except ImportError:  # also where a folder named torch is in the way
        torch = None
    if torch is None or not isinstance(program, torch.export.ExportedProgram):
        raise TypeError(f"{type(program).__name__} is no path, no bytes and no torch.export.ExportedProgram, which "
                        "torch.export.export(module.eval(), (inputs,)) makes of a module")
    try:
        if not _has_vmap(program):
            try:
                return _stream_of(program, torch.export.save)
            except Exception as error:
                if type(error).__name__ != "SerializeError":  # PyTorch's own, of no public module
                    raise
        # What vmap has made cannot be saved, or cannot be read, before ops that change values in place are functional.
        return _stream_of(decomposed(program), torch.export.save)
    except (Error, MemoryError, OSError):
        raise
    except Exception as error:
        what = next(iter(str(error).splitlines()), "")
        raise unsupported("exported program", f"PyTorch cannot save it: {type(error).__name__}: {what}") from error


def _has_vmap(program):
    """Whether a graph marks where vmap begins and ends: the ops between are those of single elements."""
    return any(getattr(node.target, "__module__", None) == "torch._functorch.predispatch"
               for module in program.graph_module.modules() if hasattr(module, "graph") for node in module.graph.nodes)


def _stream_of(program, save):
    stream = io.BytesIO()
    save(program, stream)
    stream.seek(0)
    return stream

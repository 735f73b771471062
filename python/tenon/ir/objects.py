"""Objects as values of programs: of the library's classes, and of one's own.

A class is an element type, and an object an `Array` of it without axes, whose `data` is the object. Here nothing is
updated in place: an op that updates an object returns another.
"""
import copy
import struct
from dataclasses import dataclass
from typing import Any, Callable, Optional

import numpy as np

from .errors import Error, Unsupported
from .schema import LANGUAGE
from .tensors import DTYPES, Array, DType, Type, is_object


@dataclass
class ObjectClass:
    name: str
    type: Any = None  # the class in Python, where there is one
    save: Optional[Callable] = None  # an object as bytes
    load: Optional[Callable] = None


CLASSES = {entry.name: ObjectClass(entry.name) for entry in DTYPES.values() if is_object(entry.name)}
_LIBRARY = frozenset(CLASSES)


def add_object(type, name=None, linear=False, save=None, load=None):
    """Makes a class known to texts and runs here; `tenon.object_class` calls it, so that its classes are known.

    `linear`: its objects change, so that each is used once by what changes it. `save` gives an object's bytes, `load`
    takes them. A class may be added again.
    """
    name = name or type.__name__
    if name in _LIBRARY or name in LANGUAGE or name in DTYPES and not is_object(name):
        raise Error("DuplicateName", f"'{name}' is taken")
    is_name = name.isidentifier() and name.isascii() and name[0].isupper()
    if not is_name or name in ("Tensor", "None", "True", "False"):
        raise Error("BadArgument", f"'{name}' is no name of a class: a capital letter, then letters, digits and _")
    DTYPES[name] = DType(name, "linear object" if linear else "object", 1, 8)
    CLASSES[name] = ObjectClass(name, type, save, load)


def find_object(value):
    """The value as an Array, where it is an object of a class that is known; else None."""
    for one in CLASSES.values():
        if one.type is not None and type(value) is one.type:
            return Array(Type(one.name), value)
    return None


def load_object(name, given):
    """The object that a constant has: itself, or made of its bytes."""
    found = find_object(given)
    if found is not None:
        if found.dtype != name:
            raise Error("ShapeMismatch", f"a {found.type} for a {name}")
        return found
    data = given.data if isinstance(given, Array) else given
    if isinstance(data, np.ndarray):
        if data.dtype != np.uint8 or data.ndim != 1:
            raise Error("BadType", f"a {name} is saved as u8[n], not as {data.dtype} of {data.shape}")
        data = data.tobytes()
    if not isinstance(data, (bytes, bytearray)):
        raise Error("BadType", f"{data!r} is no {name}")
    if CLASSES[name].load is None:
        raise Unsupported(f"objects of class {name} cannot be loaded here")
    return Array(Type(name), CLASSES[name].load(bytes(data)))


class Generator:
    """What the library's Generator is, by numpy's MT19937."""

    def __init__(self, seed):
        self.bits = np.random.RandomState(seed)._bit_generator

    def draw(self, count, dtype):
        if dtype == "f32":
            return (self.bits.random_raw(count) & 0xFFFFFF) * 2.0**-24
        words = self.bits.random_raw(2 * count).reshape(-1, 2)
        return ((words[:, 0] >> 5) * 67108864.0 + (words[:, 1] >> 6)) / 9007199254740992.0

    def save(self):
        state = self.bits.state["state"]
        return (" ".join(map(str, [*state["key"], state["pos"]])) + "\n").encode()

    @classmethod
    def load(cls, data):
        try:
            *key, position = map(int, data.decode().split())
            if len(key) != 624 or not 0 <= position <= 624:
                raise ValueError
            made = cls(0)
            made.bits.state = {"bit_generator": "MT19937", "state": {"key": np.array(key, np.uint32), "pos": position}}
        except (ValueError, OverflowError):
            raise Error("Corrupt", "its bytes are no state of MT19937") from None
        return made


class KvCache:
    """What the library's KvCache is: of each layer, keys and values [B, positions, H, size], or None before any."""

    MAGIC = b"TKVCACH1"

    def __init__(self, layers):
        self.layers = [None] * layers

    def __getitem__(self, layer):
        if not 0 <= layer < len(self.layers):
            raise Error("OutOfRange", f"layer {layer} outside [0, {len(self.layers)})")
        return self.layers[layer]

    def length(self, layer):
        return self[layer][0].shape[1] if self[layer] else 0

    def append(self, layer, keys, values):
        if self[layer] is None:
            self.layers[layer] = (keys, values)
            return
        for before, after in zip(self[layer], (keys, values)):
            if before.shape[::2] != after.shape[::2] or before.shape[3] != after.shape[3]:
                raise Error("ShapeMismatch", f"layer {layer} has {before.shape}, appended is {after.shape}")
        self.layers[layer] = tuple(np.concatenate(pair, 1) for pair in zip(self[layer], (keys, values)))

    def save(self):
        parts = [self.MAGIC, struct.pack("<q", len(self.layers))]
        for layer in self.layers:
            keys, values = layer or (np.zeros((0, 0, 0, 0)),) * 2
            batch, length, heads, size = keys.shape
            parts.append(struct.pack("<5q", batch, heads, size, values.shape[3], length))
            parts += [rows.transpose(0, 2, 1, 3).astype("<f4").tobytes() for rows in (keys, values)]
        return b"".join(parts)

    @classmethod
    def load(cls, data):
        try:
            if not data.startswith(cls.MAGIC):
                raise ValueError
            (count,), at = struct.unpack_from("<q", data, 8), 16
            if not 0 <= count <= len(data) // 40:
                raise ValueError
            made = cls(count)
            for i in range(count):
                batch, heads, size, value_size, length = struct.unpack_from("<5q", data, at)
                at += 40
                layer = []
                for columns in (size, value_size):
                    shape = (batch, heads, length, columns)
                    if min(shape) < 0:
                        raise ValueError
                    numbers = np.frombuffer(data, "<f4", batch * heads * length * columns, at)
                    at += numbers.nbytes
                    layer.append(numbers.reshape(shape).transpose(0, 2, 1, 3).astype(np.float64))
                if batch * heads:
                    made.layers[i] = tuple(layer)
            if at != len(data):
                raise ValueError
        except (ValueError, struct.error, OverflowError, MemoryError):
            raise Error("Corrupt", "its bytes are not those of a saved cache") from None
        return made


def _load_tokenizer(data):
    try:
        from tenon import Tokenizer
    except ImportError:
        raise Unsupported("a Tokenizer needs the compiled part of the package") from None
    return Tokenizer.from_json_text(data.decode("utf-8", "surrogateescape"))


CLASSES["Generator"] = ObjectClass("Generator", Generator, Generator.save, Generator.load)
CLASSES["KvCache"] = ObjectClass("KvCache", KvCache, KvCache.save, KvCache.load)
CLASSES["Tokenizer"] = ObjectClass("Tokenizer", None, None, _load_tokenizer)


def copied(value):
    return copy.deepcopy(value)

"""The programs of a model that is read again for each set of sizes."""

import collections
import threading

import numpy as np

from .. import _tenon
from ..errors import ArgumentError

MOST_PROGRAMS = 64
MOST_BYTES = 2**30  # of weights, which each program has for itself
LEAST_PROGRAMS = 2  # that are kept whatever their weights take


_IDENTITY = """# tenon 1.0
from __future__ import annotations
from tenon.ir import *
module("identity", opset=1)

def forward(x: f32[1]):
    return x
"""


def check_options(options):
    """Refuses what is no option of a session before a model is read and run."""
    if options:
        _tenon.Session(_tenon.parse(_IDENTITY), **options)


def forward(session, *inputs, **named):
    """The results as numpy arrays; of a session that another thread uses, those of a fork of it."""
    try:
        results = session.forward(*inputs, **named)
    except ArgumentError as error:
        if error.code != "Busy":
            raise
        results = session.fork().forward(*inputs, **named)
    return [np.asarray(one.numpy()) for one in results]


def types_text(named):
    """Names and types of inputs or results for a repr()."""
    return ", ".join(f"{name}: {type}" for name, type in named)


class Programs:
    """What was read, by sizes: those used last, limited in number and in the bytes of their weights."""

    def __init__(self):
        self._held = collections.OrderedDict()
        self._lock = threading.Lock()

    def __len__(self):
        return len(self._held)

    def get(self, key):
        """What was read for a key, or None."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(self, key, value, program):
        size = sum(one.nbytes for one in program.folded.values())
        with self._lock:
            self._held[key] = value, size
            while len(self._held) > LEAST_PROGRAMS and (len(self._held) > MOST_PROGRAMS
                                                        or self.weight_bytes > MOST_BYTES):
                self._held.popitem(last=False)

    @property
    def weight_bytes(self):
        return sum(size for _, size in self._held.values())

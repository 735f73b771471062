"""A Hugging Face folder: the settings of its config.json and the tensors of its safetensors files."""

import json
import pathlib

from .. import _tenon, build, ops

_LIMIT = 2**24  # bytes of a JSON file
_required = object()

ACTIVATIONS = {
    "gelu": ops.gelu,
    "gelu_new": ops.gelu_tanh,
    "gelu_pytorch_tanh": ops.gelu_tanh,
    "quick_gelu": lambda x: x * ops.sigmoid(x * 1.702),
    "relu": ops.relu,
    "silu": ops.silu,
    "swish": ops.silu,
}


def fail(code, where, message):
    """Raises the tenon.Error of a code, as the library does."""
    _tenon._raise_error(code, str(where), message)


def read_json(path):
    """The settings in a JSON file."""
    if not path.is_file():
        fail("NotFound", path, "is no file")
    try:
        with open(path, "rb") as file:
            text = file.read(_LIMIT + 1)
    except OSError as error:
        fail("IoError", path, error.strerror)
    if len(text) > _LIMIT:
        fail("LimitExceeded", path, f"more than {_LIMIT} bytes")
    try:
        values = json.loads(text.decode("utf-8-sig"))
    except RecursionError:
        fail("DepthLimit", path, "nested too deeply")
    except UnicodeDecodeError as error:
        fail("BadEncoding", path, f"no UTF-8 at byte {error.start}")
    except ValueError as error:
        fail("Syntax", path, str(error))
    if not isinstance(values, dict):
        fail("BadType", path, "is no object")
    return Config(values, path)


class Config:
    """Settings by key. A key that is missing (null counts as that), of another type or out of range is an error."""

    def __init__(self, values, where):
        self.values, self.where = values, where

    def __contains__(self, key):
        return self.values.get(key) is not None

    def _get(self, key, default, kinds, called):
        if key not in self:
            if default is _required:
                fail("BadKey", self.where, f"no key '{key}'")
            return default
        value = self.values[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            fail("BadType", self.where, f"'{key}' is {value!r:.80}, not {called}")
        return value

    def _limited(self, key, value, low, high):
        if key in self and not low <= value <= high:
            self.refuse(key, f"{low} to {high}")
        return value

    def refuse(self, key, allowed):
        fail("BadHyperparameter", self.where, f"'{key}' is {self.values.get(key)!r:.80}, allowed: {allowed}")

    def integer(self, key, default=_required, low=1, high=2**20):
        return self._limited(key, self._get(key, default, (int,), "an integer"), low, high)

    def real(self, key, default=_required, low=0.0, high=1e30):
        value = self._limited(key, self._get(key, default, (int, float), "a number"), low, high)
        return value if value is None else float(value)

    def flag(self, key, default=_required):
        return self._get(key, default, (bool,), "true or false")

    def word(self, key, default=_required):
        return self._get(key, default, (str,), "a text")

    def words(self, key, count):
        """A list of so many texts, or None where there is no such key."""
        values = self._get(key, None, (list,), "a list")
        if values is not None and (len(values) != count or not all(isinstance(one, str) for one in values)):
            fail("BadType", self.where, f"'{key}' is not {count} texts")
        return values

    def integers(self, key):
        """An integer or a list of them, as a list; empty where there is no such key."""
        values = self._get(key, [], (int, list), "an integer or a list of them")
        values = values if isinstance(values, list) else [values]
        if not all(isinstance(one, int) and not isinstance(one, bool) for one in values):
            fail("BadType", self.where, f"'{key}' is not a list of integers")
        return values

    def section(self, key):
        """Settings in settings; without any where there is no such key."""
        return Config(self._get(key, {}, (dict,), "an object"), f"{self.where}: {key}")

    def activation(self, key, default=_required):
        name = self.word(key, default)
        if name not in ACTIVATIONS:
            fail("Unsupported", self.where, f"'{key}' is '{name:.80}'; known are {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[name]

    def only(self, key, *allowed):
        """Refuses a setting that the model would have to know more for; the first is the default."""
        value = self.values.get(key)
        if value is not None and value not in allowed:
            fail("Unsupported", self.where, f"'{key}' is {value!r:.80}; known: {', '.join(map(repr, allowed))}")


class Model:
    """What all models have: settings, a file of weights, a program, and a session that runs it.

    `options` are those of tenon.Session: threads, exact, ...
    """

    def __init__(self, path, config, file, options):
        self.path, self.config, self.file, self.options = path, config, file, options
        self._weights = self._session = None
        self.read_config(config)

    def read_sizes(self, config):
        """The sizes of layers by the names that most of these files have."""
        self.width = config.integer("hidden_size")
        self.inner = config.integer("intermediate_size")
        self.layers = config.integer("num_hidden_layers", high=512)
        self.heads = config.integer("num_attention_heads", high=2**14)

    @classmethod
    def open(cls, path, *, follow_links=False, **options):
        """The folder's weights in this class, whatever architecture config.json names."""
        model = cls(pathlib.Path(path), read_config(path), open_weights(path, follow_links), options)
        model.check()
        return model

    def check(self):
        """Names, sizes and types of the weights."""
        self.program()

    def weight(self, name, *dims):
        """A tensor of the file, of these sizes: in the program that is being recorded, or else its array."""
        kind = self.file.type(name)
        if kind.dims != dims:
            fail("BadShape", self.file.path, f"tensor '{name}' is {kind}, {self.config.where.name} asks for {dims}")
        if str(kind.dtype) not in ("f16", "bf16", "f32", "f64"):
            fail("UnsupportedDType", self.file.path, f"tensor '{name}' is {kind}, not of floating point")
        return build.weight(name, kind) if _tenon._current_graph() else self.file[name]

    def plain(self, name, *dims):
        """The same in f32, for ops whose operands are of one type."""
        return ops.cast(self.weight(name, *dims), "f32")

    def linear(self, name, outputs, inputs, bias=True):
        """Weight and bias of a layer, for ops.linear(x, *...)."""
        return (self.weight(name + ".weight", outputs, inputs),
                self.weight(name + ".bias", outputs) if bias else None)

    def norm(self, name, size):
        """Weight and bias, for ops.layer_norm(x, *...)."""
        return self.weight(name + ".weight", size), self.weight(name + ".bias", size)

    def program(self):
        """The model as a program, whose text can be read, changed and run."""
        return build.export(self.forward, **self.inputs(), name="forward")

    @property
    def weights(self):
        if self._weights is None:
            self._weights = _tenon.Weights(self.file.weights())
        return self._weights

    def session(self, program=None, **options):
        """A session of the model's program, optimised, or of another one, as it is, with the same weights."""
        return _tenon.Session(program or self.program().optimized()[0], self.weights, **{**self.options, **options})

    def __call__(self, *arrays):
        """The program's results."""
        if self._session is None:
            self._session = self.session()
        return self._session.forward(*arrays)

    def __repr__(self):
        return f"{type(self).__name__} {self.path}: {len(self.file)} tensors"


def read_config(path):
    """The settings of a folder's config.json."""
    path = pathlib.Path(path)
    if not path.is_dir():
        fail("NotFound", path, "is no folder")
    return read_json(path / "config.json")


def open_weights(path, follow_links):
    """A folder's safetensors files."""
    file = _tenon.open(path, follow_links_outside=follow_links)
    if "safetensors" not in file.format:
        fail("Unsupported", file.path, f"a model is built from safetensors files, this is {file.format}")
    return file

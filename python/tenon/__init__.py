"""Tenon: tensors, graphs and models on the CPU and on accelerators.

    import tenon
    x = tenon.array([[1.0, 2.0]])
    y = tenon.ops.softmax(x * 2)          # runs at once
    program = tenon.export(lambda x: tenon.ops.softmax(x * 2), x="f32[B, 2]")
    print(program)                        # a text that tenon.parse() reads
    [z] = tenon.Session(program).forward(x)

`tenon.ir` reads and runs the same texts in plain Python, without the compiled part.
"""

import importlib as _importlib

from .errors import (
    ArgumentError,
    EndedEarlyError,
    Error,
    InputError,
    InternalError,
    MachineError,
    UnsupportedError,
)

# Read when first asked for, so that `import tenon.ir` needs neither numpy's nor the compiled part's time.
_compiled = (
    "AnswerFormat Backend Buffer ChatFormat Comparison Conversation Device DType File Generator Grammar GrammarMatcher Graph HostBuffer KvCache "
    "MemChunk MemRegion Op Program RegRegion Session Shape Tensor TokenConstraint Tokenizer Trace Weights calibrate check compare_activations dtypes "
    "error_codes load_network load_object load_plugin object_buffer object_of object_types open parse quantize "
    "quantize_types read_npy record_activations save_gguf save_network save_object save_safetensors unload_plugin "
    "write_npy __version__"
).split()
_modules = ["ops", "build", "gradients", "objects", "own_ops", "ir", "models", "hf", "pictures", "train"]
_optional = ["onnx", "torch"]  # modules that need packages of their own
_elsewhere = {"export": "build", "repeat": "build", "block": "build", "while_loop": "build", "cond": "build",
              "scan": "build", "call": "build", "compile_to": "build", "object_class": "objects", "op": "own_ops",
              "grad": "gradients", "value_and_grad": "gradients", "checkpointed": "gradients",
              "vmap": "vectorized", "jvp": "transforms", "vjp": "transforms", "jacobian": "transforms",
              "jacrev": "transforms", "jacfwd": "transforms", "hessian": "transforms", "hvp": "transforms",
              "compiled": "programs", "LanguageModel": "models", "BatchedLanguageModel": "models",
              "Draft": "models", "SentenceEncoder": "models", "VisionEncoder": "models", "Profile": "pictures"}
_types = (
    "i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8_e4m3 f8_e5m2 c64"
).split()

__all__ = [
    "ArgumentError", "EndedEarlyError", "Error", "InputError", "InternalError", "MachineError", "UnsupportedError",
    "array", *[name for name in _compiled if name != "__version__"], *_modules, *_elsewhere, *_types,
]


def array(values, dtype=None):
    """An array on the CPU: shares the memory of dense arrays (numpy, DLPack); Python's floats become f32."""
    return _extension().Buffer(values, dtype)


def _extension():
    extension = _importlib.import_module("._tenon", __name__)
    _importlib.import_module(".ops", __name__)  # operators and methods of arrays and tensors
    return extension


def __getattr__(name):
    if name in _modules or name in _optional:
        value = _importlib.import_module("." + name, __name__)
    elif name in _elsewhere:
        value = getattr(_importlib.import_module("." + _elsewhere[name], __name__), name)
    elif name in _types:
        value = _extension().DType(name)
    elif name in _compiled:
        value = getattr(_extension(), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)

#!/usr/bin/env python3
"""Model files written and read by the packages that define their formats.

    io_oracle.py make FOLDER --seed S --count N   random valid files, each with a listing beside it
    io_oracle.py list FILE...                     prints the listing of each file

A listing is what the packages `gguf`, `safetensors` and `numpy` find in a file, a line per item:
    key HEX-OF-NAME TYPE VALUE        numbers in decimal, floats and strings as hex of their bytes,
                                      arrays as COUNT:HASH
    tensor HEX-OF-NAME TYPE DIMS HASH dims outermost first, hash of the bytes
Hashes are FNV-1a of 64 bits. GGUF files are listed in their order, the others sorted. tests/io/oracle_test.cpp makes the same text from what Tenon reads.
"""

import argparse
import pathlib
import struct

import gguf
import numpy as np
import safetensors

VALUE_TYPES = {
    "UINT8": ("u8", "<u1"), "INT8": ("i8", "<i1"), "UINT16": ("u16", "<u2"),
    "INT16": ("i16", "<i2"), "UINT32": ("u32", "<u4"), "INT32": ("i32", "<i4"),
    "FLOAT32": ("f32", "<f4"), "BOOL": ("bool", "?"), "STRING": ("string", None),
    "UINT64": ("u64", "<u8"), "INT64": ("i64", "<i8"), "FLOAT64": ("f64", "<f8"),
}
SAFETENSORS_TYPES = {
    "BOOL": "bool", "U8": "u8", "I8": "i8", "I16": "i16", "U16": "u16", "F16": "f16",
    "BF16": "bf16", "I32": "i32", "U32": "u32", "F32": "f32", "F64": "f64", "I64": "i64",
    "U64": "u64", "F8_E4M3": "f8_e4m3", "F8_E5M2": "f8_e5m2", "C64": "c64",
}
SAFETENSORS_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
                     "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8, "F8_E4M3": 1, "F8_E5M2": 1,
                     "C64": 8}
SAFETENSORS_WORDS = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16",
                     "F16": "float16", "BF16": "bfloat16", "I32": "int32", "U32": "uint32",
                     "F32": "float32", "F64": "float64", "I64": "int64", "U64": "uint64",
                     "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64"}
NPY_TYPES = {"bool": "?", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1",
             "u16": "u2", "u32": "u4", "u64": "u8", "f16": "f2", "f32": "f4", "f64": "f8", "c64": "c8"}
GGUF_TYPES = ["F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
              "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K", "IQ4_NL", "IQ4_XS",
              "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0",
              "MXFP4"]
ALPHABET = "abcxyz._-0129 ä漢😀\"\\\n"


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in bytes(data):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def tensor_line(name, dtype, dims, data):
    return f"tensor {name.encode().hex()} {dtype} [{','.join(map(str, dims))}] {fnv(data)}"


def list_gguf_key(name, field):
    type_name, code = VALUE_TYPES[field.types[-1].name]
    parts = [field.parts[i] for i in field.data]
    if field.types[0] == gguf.GGUFValueType.ARRAY:
        data = b"".join(
            (struct.pack("<Q", len(p)) if code is None else b"") + p.tobytes() for p in parts)
        return f"key {name.encode().hex()} array-of-{type_name} {len(parts)}:{fnv(data)}"
    value = parts[0]
    if code is None or code[1:2] == "f":
        return f"key {name.encode().hex()} {type_name} {value.tobytes().hex() or '-'}"
    return f"key {name.encode().hex()} {type_name} {int(value[0])}"


def list_gguf(path):
    reader = gguf.GGUFReader(path)
    lines = [list_gguf_key(name, field) for name, field in reader.fields.items()
             if not name.startswith("GGUF.")]
    for tensor in reader.tensors:
        dims = [int(d) for d in tensor.shape][::-1]
        lines.append(tensor_line(tensor.name, tensor.tensor_type.name.lower(), dims,
                                 tensor.data.tobytes()))
    return lines


def list_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    lines = []
    with safetensors.safe_open(path, framework="np") as file:
        for key, value in (file.metadata() or {}).items():
            lines.append(f"key {key.encode().hex()} string {value.encode().hex() or '-'}")
    for name, item in safetensors.deserialize(data):
        lines.append(tensor_line(name, SAFETENSORS_TYPES[item["dtype"]], item["shape"], item["data"]))
    return sorted(lines)  # the format's reader promises no order


def list_npy(path):
    array = np.load(path, allow_pickle=False)
    name = next(n for n, code in NPY_TYPES.items() if np.dtype(code) == array.dtype.newbyteorder("="))
    data = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes()
    return [tensor_line("array", name, array.shape, data)]


def listing(path):
    lister = {".gguf": list_gguf, ".safetensors": list_safetensors, ".npy": list_npy}
    return "".join(line + "\n" for line in lister[pathlib.Path(path).suffix](str(path)))


def random_text(rng, longest):
    return "".join(rng.choice(list(ALPHABET), rng.integers(1, longest + 1)))


def random_names(rng, count):
    return list(dict.fromkeys(random_text(rng, 30) for _ in range(count)))


def random_dims(rng, most):
    return [int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 6, rng.integers(0, most + 1))]


def random_number(rng, code):
    return np.frombuffer(rng.bytes(np.dtype(code).itemsize), code)[0]


def add_gguf_key(rng, writer, name):
    kind = str(rng.choice([k for k in VALUE_TYPES]))
    code = VALUE_TYPES[kind][1]
    vtype = gguf.GGUFValueType[kind]

    def value():
        if kind == "STRING":
            return random_text(rng, 40)
        if kind == "BOOL":
            return bool(rng.integers(0, 2))
        return random_number(rng, code).item()

    if rng.random() < 0.3:
        values = [value() for _ in range(rng.integers(1, 20))]
        writer.add_key_value(name, values, gguf.GGUFValueType.ARRAY, sub_type=vtype)
    else:
        writer.add_key_value(name, value(), vtype)


def make_gguf(rng, path):
    writer = gguf.GGUFWriter(path, "tenon")
    if rng.random() < 0.5:
        writer.add_custom_alignment(int(2 ** rng.integers(3, 10)))
    for name in random_names(rng, rng.integers(0, 12)):
        add_gguf_key(rng, writer, name)
    for name in random_names(rng, rng.integers(0, 8)):
        kind = gguf.GGMLQuantizationType[str(rng.choice(GGUF_TYPES))]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        rows = [max(d, 1) for d in random_dims(rng, 3)]
        columns = block * int(rng.integers(1, 4))
        data = np.frombuffer(rng.bytes(int(np.prod(rows)) * columns // block * size), np.uint8)
        writer.add_tensor(name, data.reshape(*rows, columns // block * size), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_safetensors(rng, path):
    tensors = {}
    buffers = []  # the package keeps pointers only
    for name in random_names(rng, rng.integers(0, 10)):
        kind = str(rng.choice(list(SAFETENSORS_TYPES)))
        dims = random_dims(rng, 4)
        size = int(np.prod(dims, dtype=np.int64)) * SAFETENSORS_SIZES[kind]
        data = rng.integers(0, 2 if kind == "BOOL" else 256, size, dtype=np.uint8)
        buffers.append(data)
        tensors[name] = safetensors.TensorSpec(dtype=SAFETENSORS_WORDS[kind], shape=dims,
                                               data_ptr=data.ctypes.data, data_len=size)
    # One pair at most: the package writes them in a random order, and the files are compared whole.
    metadata = {random_text(rng, 9): random_text(rng, 9)} if rng.random() < 0.5 else None
    pathlib.Path(path).write_bytes(safetensors.serialize(tensors, metadata=metadata))


def make_npy(rng, path):
    code = str(rng.choice(list(NPY_TYPES.values())))
    dims = random_dims(rng, 5)
    count = int(np.prod(dims, dtype=np.int64))
    if code == "?":
        array = rng.integers(0, 2, dims).astype(bool)
    else:
        order = str(rng.choice(["<", ">"])) if code[1] != "1" else "|"
        array = np.frombuffer(rng.bytes(count * np.dtype(code).itemsize), order + code).reshape(dims)
    if rng.random() < 0.5:
        array = np.asfortranarray(array)
    with open(path, "wb") as file:
        np.lib.format.write_array(file, array, version=(int(rng.integers(1, 4)), 0))


def make(folder, seed, count):
    rng = np.random.default_rng(seed)
    makers = {"gguf": make_gguf, "safetensors": make_safetensors, "npy": make_npy}
    for suffix, maker in makers.items():
        for i in range(count):
            path = folder / f"{i:03}.{suffix}"
            maker(rng, path)
            path.with_suffix(path.suffix + ".listing").write_text(listing(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make")
    maker.add_argument("folder", type=pathlib.Path)
    maker.add_argument("--seed", type=int, default=1)
    maker.add_argument("--count", type=int, default=6)
    lister = commands.add_parser("list")
    lister.add_argument("files", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "make":
        arguments.folder.mkdir(parents=True, exist_ok=True)
        make(arguments.folder, arguments.seed, arguments.count)
    else:
        for path in arguments.files:
            path.with_suffix(path.suffix + ".listing").write_text(listing(path))


if __name__ == "__main__":
    main()

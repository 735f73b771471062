"""Small model files: a changed copy of a GGUF file, and a BERT encoder with random weights."""

import json
import random
import struct

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def _after_value(data, at, kind):
    if kind == _STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == _ARRAY:
        element, count = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(count):
            at = _after_value(data, at, element)
        return at
    return at + _SIZES[kind]


def _after_string(data, at):
    return _after_value(data, at, _STRING)


def add_text(source, target, key, text):
    """Copies a GGUF file with one more string among its metadata."""
    data = source.read_bytes()
    magic, version, tensors, keys = struct.unpack_from("<4sIQQ", data)
    at = 24
    for _ in range(keys):
        at = _after_string(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        at = _after_value(data, at + 4, kind)
    metadata_end = at
    for _ in range(tensors):
        at = _after_string(data, at)
        (rank,) = struct.unpack_from("<I", data, at)
        at += 4 + 8 * rank + 4 + 8
    key, text = key.encode(), text.encode()
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", _STRING, len(text)) + text
    head = struct.pack("<4sIQQ", magic, version, tensors, keys + 1)
    head += data[24:metadata_end] + entry + data[metadata_end:at]
    target.write_bytes(head + b"\0" * (-len(head) % 32) + data[at + -at % 32 :])


ENCODER_WIDTH = 16
ENCODER_POSITIONS = 12
ENCODER_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "red", "blue", "house", "##s", "car", "."]


def write_safetensors(path, arrays):
    """A safetensors file of {name: (type, shape, bytes)}."""
    header, body = {}, b""
    for name, (kind, shape, data) in arrays.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def make_encoder(folder):
    """Writes model.safetensors, config.json and tokenizer.json of a BERT encoder."""
    width, hidden, layers = ENCODER_WIDTH, 32, 2
    shapes = {
        "embeddings.word_embeddings.weight": (len(ENCODER_PIECES), width),
        "embeddings.position_embeddings.weight": (ENCODER_POSITIONS, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    for layer in range(layers):
        for name, out, into in (
            ("attention.self.query", width, width),
            ("attention.self.key", width, width),
            ("attention.self.value", width, width),
            ("attention.output.dense", width, width),
            ("intermediate.dense", hidden, width),
            ("output.dense", width, hidden),
        ):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (out, into)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (out,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (width,)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (width,)

    draw = random.Random(5)
    arrays = {}
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        mean = 1 if name.endswith("LayerNorm.weight") else 0
        spread = 0.1 if "LayerNorm" in name or name.endswith("bias") else 0.5
        values = struct.pack(f"<{count}f", *(draw.gauss(mean, spread) for _ in range(count)))
        arrays[name] = "F32", shape, values
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "bert", "hidden_size": width, "intermediate_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": 2, "hidden_act": "gelu",
        "vocab_size": len(ENCODER_PIECES), "max_position_embeddings": ENCODER_POSITIONS,
        "layer_norm_eps": 1e-12,
    }))
    special = [
        {"id": i, "content": ENCODER_PIECES[i], "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": True}
        for i in range(4)
    ]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [],
            "special_tokens": {
                "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]},
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100,
                  "vocab": {piece: i for i, piece in enumerate(ENCODER_PIECES)}},
    }))

#!/usr/bin/env python3
"""Writes tiny vision encoders of the Qwen-VL families as GGUF files for llama.cpp's `--mmproj`, and what Hugging Face's
transformers makes of an image with them: in f64, with its own image processor.

Needs what tiny_vision_models.py needs, whose picture it takes.

    OUT/FAMILY.gguf             for qwen2vl, qwen25vl and qwen3vl
    OUT/FAMILY_pixels.npy       f32 [1, 3, height, width], the picture as the image processor prepares it; not of qwen25vl
    OUT/FAMILY_embeddings.npy   f32 [embeddings, 32], of qwen3vl [embeddings, 96]
    OUT/FAMILY_logits.npy       f32 [positions, 272], of the tokens 0, 7, ... 77, then the embeddings, then the tokens 84, 91,
                                ... 154, with tiny_qwen2vl.gguf, or with tiny_qwen3vl.gguf and two layers of DeepStack

    tiny_qwen_vl_models.py --out tests/models/data/vision
"""

import argparse
import pathlib

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from PIL import Image
from tiny_vision_models import DEVIATION, IMAGE_TOKEN, MEAN, TOKENS, load, picture, read, tensor_writers
from transformers import (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig, Qwen2VLForConditionalGeneration,
                          Qwen3VLConfig, Qwen3VLForConditionalGeneration)
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

MERGE, WIDTH, HEADS, HIDDEN, MODEL_WIDTH, EPS = 2, 32, 2, 48, 32, 1e-6
SECTIONS = [3, 3, 2]


class Family:
    def __init__(self, name, projector, patch, layers, pixels, image_size):
        self.name, self.projector, self.patch, self.layers = name, projector, patch, layers
        self.pixels, self.image_size = pixels, image_size
        self.is_second, self.is_third = name == "qwen25vl", name == "qwen3vl"
        self.hidden = 4 * WIDTH if name == "qwen2vl" else HIDDEN
        self.deep = [0, 1] if self.is_third else []


FAMILIES = (
    Family("qwen2vl", "qwen2vl_merger", 4, 2, (512, 100000), 32),
    # Its windows have 112 pixels: two and a part in one direction, one and a part in the other.
    Family("qwen25vl", "qwen2.5vl_merger", 14, 3, (27000, 100000), 560),
    Family("qwen3vl", "qwen3vl_merger", 4, 3, (512, 100000), 24),
)


def write_encoder(path, family):
    rng = np.random.default_rng(len(family.projector))
    file = gguf.GGUFWriter(str(path), "clip")
    file.add_bool("clip.has_vision_encoder", True)
    file.add_string("clip.projector_type", family.projector)
    if family.is_second:
        file.add_bool("clip.use_silu", True)
        file.add_uint32("clip.vision.n_wa_pattern", 3)
    if family.is_third:
        file.add_bool("clip.use_gelu", True)
        file.add_uint32("clip.vision.spatial_merge_size", MERGE)
        file.add_array("clip.vision.is_deepstack_layers", [i in family.deep for i in range(family.layers)])
    for key, value in (("image_size", family.image_size), ("patch_size", family.patch), ("block_count", family.layers),
                       ("embedding_length", WIDTH), ("feed_forward_length", 0 if family.name == "qwen2vl" else HIDDEN),
                       ("attention.head_count", HEADS), ("projection_dim", MODEL_WIDTH),
                       ("image_min_pixels", family.pixels[0]), ("image_max_pixels", family.pixels[1])):
        file.add_uint32("clip.vision." + key, value)
    file.add_float32("clip.vision.attention.layer_norm_epsilon", EPS)
    file.add_array("clip.vision.image_mean", MEAN)
    file.add_array("clip.vision.image_std", DEVIATION)

    tensor, linear = tensor_writers(file, rng)

    def norm(name, width=WIDTH):
        tensor(name + ".weight", (width,), mean=1.0, spread=0.2)
        if not family.is_second:
            tensor(name + ".bias", (width,), spread=0.3)

    square, patch = WIDTH * MERGE ** 2, family.patch
    for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
        tensor(name, (WIDTH, 3, patch, patch), Type.F16, spread=0.6 / patch)
    if family.is_third:
        tensor("v.patch_embd.bias", (WIDTH,), spread=0.3)
        tensor("v.position_embd.weight", ((family.image_size // patch) ** 2, WIDTH), spread=0.5)
    for index in range(family.layers):
        prefix = f"v.blk.{index}."
        norm(prefix + "ln1")
        norm(prefix + "ln2")
        if family.is_third:
            linear(prefix + "attn_qkv", 3 * WIDTH, WIDTH)
        else:
            for name in ("attn_q", "attn_k", "attn_v"):
                linear(prefix + name, WIDTH, WIDTH, Type.Q8_0 if name == "attn_v" else Type.F16)
        linear(prefix + "attn_out", WIDTH, WIDTH)
        if family.is_second:
            linear(prefix + "ffn_gate", family.hidden, WIDTH)
        linear(prefix + "ffn_up", family.hidden, WIDTH)
        linear(prefix + "ffn_down", WIDTH, family.hidden)
        if index in family.deep:
            prefix = f"v.deepstack.{index}."
            norm(prefix + "norm", square)
            linear(prefix + "fc1", square, square)
            linear(prefix + "fc2", MODEL_WIDTH, square)
    norm("v.post_ln")
    linear("mm.0", square, square)
    linear("mm.2", MODEL_WIDTH, square)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def vision_weights(tensors, family, prefix):
    layer = {"ln1": "norm1", "ln2": "norm2", "attn_qkv": "attn.qkv", "attn_out": "attn.proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
    outer = {"v.position_embd": "pos_embed", "v.post_ln": "merger.ln_q", "mm.0": "merger.mlp.0", "mm.2": "merger.mlp.2"}
    if family.is_second:
        layer.update(ffn_up="mlp.up_proj", ffn_down="mlp.down_proj")
    if family.is_third:
        layer.update(ffn_up="mlp.linear_fc1", ffn_down="mlp.linear_fc2")
        outer.update({"v.post_ln": "merger.norm", "mm.0": "merger.linear_fc1", "mm.2": "merger.linear_fc2"})
    weights = {"patch_embed.proj.weight": torch.stack([tensors["v.patch_embd.weight"], tensors["v.patch_embd.weight.1"]], 2)}
    if family.is_third:
        weights["patch_embed.proj.bias"] = tensors["v.patch_embd.bias"]
    for name, values in tensors.items():
        place, kind = name.rsplit(".", 1)
        if place in outer:
            weights[f"{outer[place]}.{kind}"] = values
        elif place.startswith("v.blk."):
            index, part = place.split(".")[2:]
            if part == "attn_q":
                values = torch.cat([tensors[f"v.blk.{index}.attn_{x}.{kind}"] for x in "qkv"])
                part = "attn_qkv"
            if part in layer:
                weights[f"blocks.{index}.{layer[part]}.{kind}"] = values
        elif place.startswith("v.deepstack."):
            index, part = place.split(".")[2:]
            part = {"norm": "norm", "fc1": "linear_fc1", "fc2": "linear_fc2"}[part]
            weights[f"deepstack_merger_list.{family.deep.index(int(index))}.{part}.{kind}"] = values
    return {prefix + name: values for name, values in weights.items()}


def text_weights(tensors, prefix):
    parts = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q_norm": "self_attn.q_norm",
             "attn_k_norm": "self_attn.k_norm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    weights = {prefix + "embed_tokens.weight": tensors["token_embd.weight"], prefix + "norm.weight": tensors["output_norm.weight"]}
    for name, values in tensors.items():
        if name.startswith("blk."):
            _, index, part, kind = name.split(".")
            weights[f"{prefix}layers.{index}.{parts[part]}.{kind}"] = values
    return weights


def model_of(family):
    text = dict(vocab_size=272, hidden_size=MODEL_WIDTH, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=1, head_dim=16, rms_norm_eps=1e-5 if family.is_third else 0.0, rope_theta=1e4,
                rope_scaling={"rope_type": "default", "mrope_section": SECTIONS, "mrope_interleaved": family.is_third},
                max_position_embeddings=1024, tie_word_embeddings=True)
    vision = dict(depth=family.layers, num_heads=HEADS, patch_size=family.patch, spatial_merge_size=MERGE)
    common = dict(text_config=text, image_token_id=IMAGE_TOKEN, video_token_id=270, vision_start_token_id=int(TOKENS[0][-1]),
                  tie_word_embeddings=True)
    if family.is_third:
        vision.update(hidden_size=WIDTH, intermediate_size=family.hidden, out_hidden_size=MODEL_WIDTH,
                      num_position_embeddings=(family.image_size // family.patch) ** 2, deepstack_visual_indexes=family.deep)
        return Qwen3VLForConditionalGeneration(Qwen3VLConfig(vision_config=vision, **common))
    if family.is_second:
        vision.update(hidden_size=WIDTH, intermediate_size=family.hidden, out_hidden_size=MODEL_WIDTH, fullatt_block_indexes=[2])
        return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(vision_config=vision, **common))
    vision.update(embed_dim=WIDTH, hidden_size=MODEL_WIDTH, mlp_ratio=family.hidden // WIDTH)
    return Qwen2VLForConditionalGeneration(Qwen2VLConfig(vision_config=vision, **common))


def prepared(image, family):
    """What the model reads of an image, and its rows and columns of patches."""
    processor = Qwen2VLImageProcessor(min_pixels=family.pixels[0], max_pixels=family.pixels[1], patch_size=family.patch,
                                      merge_size=MERGE, image_mean=MEAN, image_std=DEVIATION)
    made = processor(image, return_tensors="pt")
    return made["pixel_values"], made["image_grid_thw"]


def unfolded(patches, grid, family):
    """The pixels of the first of two equal frames, [1, 3, height, width]."""
    _, rows, columns = (int(n) for n in grid[0])
    side = family.patch
    parts = patches.reshape(rows // MERGE, columns // MERGE, MERGE, MERGE, 3, 2, side, side)
    assert torch.equal(parts[:, :, :, :, :, 0], parts[:, :, :, :, :, 1])
    return parts[:, :, :, :, :, 0].permute(4, 0, 2, 5, 1, 3, 6).reshape(1, 3, rows * side, columns * side)


def expected(image, family, encoder, language_model):
    """Prepared pixels, embeddings and logits."""
    model = model_of(family)
    model.set_attn_implementation("sdpa")  # whose softmax is not in f32
    load(model, {**vision_weights(read(encoder), family, "model.visual."),
                 **text_weights(read(language_model), "model.language_model.")})
    patches, grid = prepared(image, family)
    with torch.no_grad():
        made = model.get_image_features(patches.double(), grid)
        embeddings = torch.cat(made[0] if family.is_third else made)
        if family.is_third:
            embeddings = torch.cat([embeddings, *made[1]], -1)
        ids = np.concatenate([TOKENS[0], np.full(len(embeddings), IMAGE_TOKEN), TOKENS[1]])
        logits = model(input_ids=torch.tensor(ids)[None], pixel_values=patches.double(), image_grid_thw=grid,
                       attention_mask=torch.ones(1, len(ids), dtype=torch.long)).logits[0]
    return unfolded(patches, grid, family), embeddings, logits


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, default="tests/models/data")
    arguments = parser.parse_args()
    image = Image.fromarray(picture())
    for family in FAMILIES:
        encoder = arguments.out / f"{family.name}.gguf"
        write_encoder(encoder, family)
        language_model = arguments.models / f"tiny_{'qwen3vl' if family.is_third else 'qwen2vl'}.gguf"
        pixels, embeddings, logits = expected(image, family, encoder, language_model)
        values = {"embeddings": embeddings, "logits": logits}
        if not family.is_second:
            values["pixels"] = pixels
        for name, array in values.items():
            np.save(arguments.out / f"{family.name}_{name}.npy", np.asarray(array).astype(np.float32))
        print(family.name, pixels.shape, embeddings.shape, logits.shape)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tiny vision encoders as GGUF files for llama.cpp's `--mmproj`, and what Hugging Face's transformers makes of an
image with them: in f64, with its own image processors.

Needs `transformers` (4.57), `torch` and `Pillow` (11; 13 resizes the columns first where that is less work, and rounds between)
beside numpy and gguf.

    OUT/picture.ppm               a picture of 23 x 37 pixels
    OUT/PROJECTOR.gguf            for mlp, gemma3 and idefics3; embeddings of 32 numbers
    OUT/PROJECTOR_pixels.npy      f32 [tiles, 3, 16, 16], the picture as the image processor prepares it
    OUT/PROJECTOR_embeddings.npy  f32 [tiles * 4, 32], its embeddings
    OUT/gemma3_logits.npy         f32 [27, 272], tiny_gemma3.gguf's of the tokens 0, 7, ... 77, then the picture's four
                                  embeddings, then the tokens 84, 91, ... 154

    tiny_vision_models.py --out tests/models/data/vision
"""

import argparse
import pathlib

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize
from PIL import Image
from transformers import (CLIPVisionConfig, Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextConfig, Idefics3Config, LlavaConfig,
                          LlavaForConditionalGeneration, SiglipVisionConfig, SiglipVisionModel)
from transformers.models.gemma3.image_processing_gemma3 import Gemma3ImageProcessor
from transformers.models.idefics3.image_processing_idefics3 import Idefics3ImageProcessor
from transformers.models.idefics3.modeling_idefics3 import Idefics3Connector
from transformers.models.llava.image_processing_llava import LlavaImageProcessor

PICTURE = 37, 23  # height and width
SIDE, PATCH, MERGE = 16, 4, 2
LAYERS, WIDTH, HEADS, HIDDEN, MODEL_WIDTH = 2, 32, 2, 48, 32
LONGEST = 40
MEAN, DEVIATION = [0.5, 0.45, 0.4], [0.5, 0.25, 0.3]
EPS = 1e-6
TOKENS = np.arange(12) * 7, np.arange(12, 23) * 7
IMAGE_TOKEN = 271  # of transformers' input alone, where embeddings replace it


def picture():
    """Smooth and noisy parts, so that filters and their widening matter."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[0 : PICTURE[0], 0 : PICTURE[1]]
    smooth = np.stack([6 * y, 11 * x, 255 - 3 * (x + y)], -1)
    noisy = smooth + rng.integers(-60, 60, smooth.shape) * (x > y)[..., None]
    return noisy.clip(0, 255).astype(np.uint8)


def tensor_writers(file, rng):
    """Functions that add a random tensor, and those of a linear layer, to a file."""
    def tensor(name, shape, kind=Type.F32, mean=0.0, spread=1.0):
        values = (mean + spread * rng.standard_normal(shape)).astype(np.float32)
        file.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def linear(name, out, width, kind=Type.F16):
        tensor(name + ".weight", (out, width), kind, spread=width ** -0.5)
        tensor(name + ".bias", (out,), spread=0.3)

    return tensor, linear


def write_encoder(path, projector):
    rng = np.random.default_rng(len(projector))
    file = gguf.GGUFWriter(str(path), "clip")
    file.add_bool("clip.has_vision_encoder", True)
    file.add_string("clip.projector_type", projector)
    is_mlp = projector == "mlp"  # of a CLIP, whose files are those of the first converter
    file.add_bool("clip.use_gelu", not is_mlp)
    for key, value in (("image_size", SIDE), ("patch_size", PATCH), ("block_count", LAYERS), ("embedding_length", WIDTH),
                       ("feed_forward_length", HIDDEN), ("attention.head_count", HEADS), ("projection_dim", MODEL_WIDTH),
                       ("projector.scale_factor", MERGE)):
        if is_mlp and key in ("projection_dim", "projector.scale_factor"):
            key, value = ("projection_dim", 7) if key == "projection_dim" else ("unread", 0)
        file.add_uint32("clip.vision." + key, value)
    if projector == "idefics3":
        file.add_uint32("clip.vision.preproc_image_size", LONGEST)
    file.add_float32("clip.vision.attention.layer_norm_epsilon", EPS)
    file.add_array("clip.vision.image_mean", MEAN)
    file.add_array("clip.vision.image_std", DEVIATION)

    tensor, linear = tensor_writers(file, rng)

    def norm(name):
        tensor(name + ".weight", (WIDTH,), mean=1.0, spread=0.2)
        tensor(name + ".bias", (WIDTH,), spread=0.3)

    tensor("v.patch_embd.weight", (WIDTH, 3, PATCH, PATCH), Type.F16 if projector == "idefics3" else Type.F32, spread=0.15)
    if is_mlp:
        tensor("v.class_embd", (WIDTH,), spread=0.5)
        norm("v.pre_ln")
    else:
        tensor("v.patch_embd.bias", (WIDTH,), spread=0.3)
    tensor("v.position_embd.weight", ((SIDE // PATCH) ** 2 + is_mlp, WIDTH), spread=0.5)
    # The first converters exchanged the names of these two.
    up, down = ("ffn_down", "ffn_up") if projector in ("gemma3", "mlp") else ("ffn_up", "ffn_down")
    for index in range(LAYERS):
        prefix = f"v.blk.{index}."
        norm(prefix + "ln1")
        norm(prefix + "ln2")
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            linear(prefix + name, WIDTH, WIDTH, Type.Q8_0 if name == "attn_v" else Type.F16)
        linear(prefix + up, HIDDEN, WIDTH)
        linear(prefix + down, WIDTH, HIDDEN)
    if not is_mlp:
        norm("v.post_ln")
    if is_mlp:
        linear("mm.0", 40, WIDTH)
        linear("mm.2", MODEL_WIDTH, 40)
    elif projector == "gemma3":
        tensor("mm.soft_emb_norm.weight", (WIDTH,), mean=1.0, spread=0.2)
        tensor("mm.input_projection.weight", (WIDTH, MODEL_WIDTH), Type.F16, spread=WIDTH ** -0.5)
    else:
        tensor("mm.model.fc.weight", (MODEL_WIDTH, WIDTH * MERGE ** 2), Type.F16, spread=(WIDTH * MERGE ** 2) ** -0.5)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def read(path):
    """The tensors of a file in f64, by name."""
    return {t.name: torch.tensor(dequantize(t.data, t.tensor_type).astype(np.float64).reshape(t.shape[::-1]))
            for t in gguf.GGUFReader(path).tensors}


def vision_weights(tensors, prefix):
    parts = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
    outer = {"v.patch_embd": "embeddings.patch_embedding", "v.position_embd": "embeddings.position_embedding",
             "v.post_ln": "post_layernorm", "v.pre_ln": "pre_layrnorm"}
    is_exchanged = tensors["v.blk.0.ffn_up.weight"].shape[1] == HIDDEN
    if is_exchanged:
        parts["ffn_up"], parts["ffn_down"] = parts["ffn_down"], parts["ffn_up"]
    weights = {}
    if "v.class_embd" in tensors:
        weights[prefix + "embeddings.class_embedding"] = tensors["v.class_embd"]
    for name, values in tensors.items():
        place, kind = name.rsplit(".", 1)
        if place in outer:
            weights[f"{prefix}{outer[place]}.{kind}"] = values
        elif place.startswith("v.blk."):
            index, part = place.split(".")[2:]
            weights[f"{prefix}encoder.layers.{index}.{parts[part]}.{kind}"] = values
    return weights


def text_weights(tensors, prefix):
    """Of Gemma, whose files have 1 added to the weights of norms."""
    parts = {"attn_norm": "input_layernorm", "ffn_norm": "pre_feedforward_layernorm",
             "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
             "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    weights = {prefix + "embed_tokens.weight": tensors["token_embd.weight"],
               prefix + "norm.weight": tensors["output_norm.weight"] - 1}
    for name, values in tensors.items():
        if name.startswith("blk."):
            _, index, part, kind = name.split(".")
            weights[f"{prefix}layers.{index}.{parts[part]}.{kind}"] = values - 1 if "norm" in part else values
    return weights


def vision_config():
    return dict(image_size=SIDE, patch_size=PATCH, num_hidden_layers=LAYERS, hidden_size=WIDTH, intermediate_size=HIDDEN,
                num_attention_heads=HEADS, layer_norm_eps=EPS, hidden_act="gelu_pytorch_tanh")


def load(model, weights, unread=()):
    """`unread`: parts of the model that are not asked."""
    model = model.double().eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    known = ("lm_head.weight", ".vision_model.head.", *unread)  # Gemma's tied head, and SigLIP's
    assert not unexpected and all(any(part in name for part in known) for name in missing), (missing, unexpected)
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    return model


def mlp(image, encoder):
    """The prepared image and its embeddings, of the last but one of three layers."""
    pixels = LlavaImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, do_pad=True,
                                 image_mean=MEAN, image_std=DEVIATION)(image, return_tensors="np")["pixel_values"]
    vision = CLIPVisionConfig(**{**vision_config(), "num_hidden_layers": LAYERS + 1, "hidden_act": "quick_gelu"})
    config = LlavaConfig(vision_config=vision.to_dict(), vision_feature_layer=-2, vision_feature_select_strategy="default",
                         text_config=dict(model_type="llama", hidden_size=MODEL_WIDTH, intermediate_size=8, num_hidden_layers=1,
                                          num_attention_heads=2, vocab_size=8, pad_token_id=0),
                         projector_hidden_act="gelu", image_token_index=7, attn_implementation="eager")
    model = LlavaForConditionalGeneration(config)
    # Its two layers have one width; those of the file differ, so that an exchange would show.
    model.model.multi_modal_projector.linear_1 = torch.nn.Linear(WIDTH, 40)
    model.model.multi_modal_projector.linear_2 = torch.nn.Linear(40, MODEL_WIDTH)
    tensors = read(encoder)
    weights = vision_weights(tensors, "model.vision_tower.vision_model.")
    for index, name in ((0, "linear_1"), (2, "linear_2")):
        for kind in ("weight", "bias"):
            weights[f"model.multi_modal_projector.{name}.{kind}"] = tensors[f"mm.{index}.{kind}"]
    load(model, weights, ("language_model", f"layers.{LAYERS}.", "post_layernorm"))
    with torch.no_grad():
        return pixels, torch.cat(tuple(model.get_image_features(torch.tensor(pixels).double()))).reshape(-1, MODEL_WIDTH)


def gemma3(image, encoder, language_model):
    """The prepared image, its embeddings, and logits."""
    pixels = Gemma3ImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=MEAN, image_std=DEVIATION,
                                  do_pan_and_scan=False)(image, return_tensors="np")["pixel_values"]
    text = Gemma3TextConfig(vocab_size=272, hidden_size=32, intermediate_size=64, num_hidden_layers=7, num_attention_heads=2,
                            num_key_value_heads=1, head_dim=32, query_pre_attn_scalar=32, rms_norm_eps=1e-6, rope_theta=1e6,
                            rope_local_base_freq=1e4, rope_scaling={"rope_type": "linear", "factor": 8.0}, sliding_window=8,
                            max_position_embeddings=1024, attn_implementation="eager")
    config = Gemma3Config(text_config=text.to_dict(), vision_config=SiglipVisionConfig(**vision_config()).to_dict(),
                          mm_tokens_per_image=(SIDE // PATCH // MERGE) ** 2, image_token_index=IMAGE_TOKEN,
                          attn_implementation="eager")
    model = Gemma3ForConditionalGeneration(config)
    tensors = read(encoder)
    load(model, {**vision_weights(tensors, "model.vision_tower.vision_model."),
                 **text_weights(read(language_model), "model.language_model."),
                 # Gemma's norms multiply by 1 and their weight, and the file has 1 added.
                 "model.multi_modal_projector.mm_soft_emb_norm.weight": tensors["mm.soft_emb_norm.weight"] - 1,
                 "model.multi_modal_projector.mm_input_projection_weight": tensors["mm.input_projection.weight"]})
    values = torch.tensor(pixels).double()
    with torch.no_grad():
        embeddings = model.get_image_features(values).reshape(-1, MODEL_WIDTH)
        ids = np.concatenate([TOKENS[0], np.full(len(embeddings), IMAGE_TOKEN), TOKENS[1]])
        kinds = torch.tensor(ids == IMAGE_TOKEN, dtype=torch.long)[None]
        logits = model(input_ids=torch.tensor(ids)[None], pixel_values=values, token_type_ids=kinds,
                       attention_mask=torch.ones(1, len(ids), dtype=torch.long)).logits[0]
    return pixels, embeddings, logits


def idefics3(image, encoder):
    """The prepared image and its embeddings."""
    processor = Idefics3ImageProcessor(size={"longest_edge": LONGEST}, max_image_size={"longest_edge": SIDE},
                                       image_mean=MEAN, image_std=DEVIATION)
    pixels = processor(image, return_tensors="np")["pixel_values"]
    # Idefics3VisionTransformer of 4.57 gives the second patch of a line the position of the first, by a factor of 1 - 1e-6
    # that earlier versions have elsewhere; SigLIP's is the same without that.
    tensors = read(encoder)
    vision = load(SiglipVisionModel(SiglipVisionConfig(vision_use_head=False, attn_implementation="eager", **vision_config())),
                  vision_weights(tensors, "vision_model."))
    connector = load(Idefics3Connector(Idefics3Config(vision_config=vision_config(), scale_factor=MERGE,
                                                      text_config=dict(model_type="llama", hidden_size=MODEL_WIDTH))),
                     {"modality_projection.proj.weight": tensors["mm.model.fc.weight"]})
    with torch.no_grad():
        hidden = vision(torch.tensor(pixels[0]).double()).last_hidden_state
        return pixels[0], connector(hidden).reshape(-1, MODEL_WIDTH)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--language-model", type=pathlib.Path, default="tests/models/data/tiny_gemma3.gguf")
    arguments = parser.parse_args()
    out = arguments.out
    image = Image.fromarray(picture())
    image.save(out / "picture.ppm")

    def save(name, values):
        np.save(out / f"{name}.npy", np.asarray(values).astype(np.float32))

    for projector in ("mlp", "gemma3", "idefics3"):
        encoder = out / f"{projector}.gguf"
        write_encoder(encoder, projector)
        if projector == "gemma3":
            pixels, embeddings, logits = gemma3(image, encoder, arguments.language_model)
            save("gemma3_logits", logits)
        else:
            pixels, embeddings = (mlp if projector == "mlp" else idefics3)(image, encoder)
        save(projector + "_pixels", pixels)
        save(projector + "_embeddings", embeddings)


if __name__ == "__main__":
    main()

"""Models of Hugging Face folders, written in Python: short files to read and to change.

    model = tenon.hf.load("SmolLM2-135M")
    print(model.generate("The capital of France is", max_tokens=8))
    program = model.program()               # its text can be read, changed and run
    session = model.session(program)        # with the folder's weights

A folder has config.json and safetensors files, with their index where they are several, as `save_pretrained` of
`transformers` writes them; that library is not used. The classes have the names of their architectures.
"""

import importlib

from .folder import Model, fail, read_config

# By "architectures" of config.json: the module and its class.
architectures = {
    "LlamaForCausalLM": "llama.Llama",
    "MistralForCausalLM": "llama.Mistral",
    "Qwen2ForCausalLM": "qwen2.Qwen2",
    "Qwen3ForCausalLM": "qwen3.Qwen3",
    "Gemma3ForCausalLM": "gemma3.Gemma3",
    "BertModel": "bert.Bert",
    "BertForMaskedLM": "bert.Bert",
    "BertForSequenceClassification": "bert.Bert",
    "ViTForImageClassification": "vit.ViT",
    "WhisperForConditionalGeneration": "whisper.Whisper",
}
# By "model_type", for folders that name no architecture.
model_types = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "bert": "BertModel",
    "vit": "ViTForImageClassification", "whisper": "WhisperForConditionalGeneration",
}

__all__ = ["load", "Model", "architectures", "model_types"]


def load(path, *, follow_links=False, **options):
    """The model in a folder. `options` are those of tenon.Session: threads, exact, backends, ...

    Names, sizes and types of its weights are checked here; they are mapped when they are first used. `follow_links`:
    an index may name links that lead out of the folder, as in the cache of huggingface_hub.
    """
    return _class(read_config(path)).open(path, follow_links=follow_links, **options)


def _class(config):
    named = config.values.get("architectures") or [model_types.get(config.word("model_type"))]
    name = named[0] if isinstance(named, list) else None
    if not isinstance(name, str) or name not in architectures:
        what = f"architecture {name!r:.80}" if name else f"model_type {config.values.get('model_type')!r:.80}"
        fail("Unsupported", config.where, f"{what}; known are {', '.join(architectures)}")
    module, kind = architectures[name].split(".")
    return getattr(importlib.import_module("." + module, __name__), kind)

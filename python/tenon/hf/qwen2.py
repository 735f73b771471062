"""Qwen2 and Qwen2.5: Llama with biases of queries, keys and values, and windows where config.json asks for them."""

from .llama import Llama


class Qwen2(Llama):
    def parts_with_bias(self, config):
        return ("q_proj", "k_proj", "v_proj")

    def window(self, i):
        config = self.config
        if not config.flag("use_sliding_window", False):
            return 0
        kinds = config.words("layer_types", self.layers)
        slides = kinds[i] == "sliding_attention" if kinds else i >= config.integer("max_window_layers", 28, low=0)
        return config.integer("sliding_window") if slides else 0

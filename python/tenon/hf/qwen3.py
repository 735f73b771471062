"""Qwen3: Llama with norms of each head's queries and keys, and Qwen2's windows."""

from .. import ops
from .llama import Llama
from .qwen2 import Qwen2


class Qwen3(Qwen2):
    def project(self, x, w):
        q, k, v = super().project(x, w)
        return ops.rms_norm(q, w["q_norm"], eps=self.eps), ops.rms_norm(k, w["k_norm"], eps=self.eps), v

    head_norms = ("q_norm", "k_norm")
    parts_with_bias = Llama.parts_with_bias

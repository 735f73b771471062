"""Parts of transformers that torch.export cannot read, in a form that it can, with the same results.

Values decide sizes and branches there: which tokens an expert has, whether a mask hides anything, how far a signal is
padded (from a buffer's number). Results are compared with those of the unchanged network.
"""

import functools

import torch

MIXTURES = {f"{one}SparseMoeBlock" for one in ("Mixtral", "MiniMax", "Qwen2Moe", "Qwen3Moe", "Qwen3Next", "Jamba")}


def weighted(experts, x, chosen, weights):
    """Each of the experts on all tokens, by the weights that the tokens give it; 0 to those that they do not choose."""
    dense = weights.new_zeros(x.shape[0], len(experts)).scatter(1, chosen, weights)
    return sum(expert(x) * dense[:, i:i + 1].to(x.dtype) for i, expert in enumerate(experts))


def mixture(block, x):
    tokens = x.reshape(-1, x.shape[-1])
    logits = (block.router if hasattr(block, "router") else block.gate)(tokens)
    weights, chosen = logits.softmax(-1, dtype=torch.float).topk(block.top_k)
    if getattr(block, "norm_topk_prob", not hasattr(block, "router")):
        weights = weights / weights.sum(-1, keepdim=True)
    made = weighted(block.experts, tokens, chosen, weights)
    if hasattr(block, "shared_expert"):
        made = made + block.shared_expert_gate(tokens).sigmoid() * block.shared_expert(tokens)
    return made.reshape(x.shape), logits


def switch_experts(block, x):
    mask, weights, logits = block.router(x)
    made = sum(expert(x) * mask[..., i:i + 1] for i, expert in enumerate(block.experts.values()))
    return weights * made, (logits, mask.argmax(-1))


def gpt_oss_experts(block, x, router_indices=None, routing_weights=None):
    tokens = x.reshape(-1, x.shape[-1])
    gate, up = (tokens @ block.gate_up_proj + block.gate_up_proj_bias[:, None]).unflatten(-1, (-1, 2)).unbind(-1)
    gate, up = gate.clamp(max=block.limit), up.clamp(-block.limit, block.limit)
    made = (up + 1) * gate * (gate * block.alpha).sigmoid() @ block.down_proj + block.down_proj_bias[:, None]
    return (made * routing_weights.T[..., None]).sum(0).reshape(x.shape)


def pads_of_integers(convolution):
    """A convolution of EnCodec or Mimi with its buffers of one number as integers."""
    for name in ("stride", "kernel_size", "padding_total"):
        number = int(getattr(convolution, name))
        delattr(convolution, name)
        setattr(convolution, name, number)

    def extra(x):
        most = x.shape[-1] - convolution.kernel_size + convolution.padding_total
        return -most % convolution.stride

    convolution._get_extra_padding_for_conv1d = extra


def blocks_of_a_mask(lengths, x):
    """Of Pixtral's images, which see themselves only."""
    image = torch.cat([torch.full((length,), i) for i, length in enumerate(lengths)])
    mask = torch.where(image[:, None] == image, 0.0, torch.finfo(x.dtype).min)
    return mask.expand(x.shape[0], 1, -1, -1)


def exportable(module):
    """Changes a module in place."""
    for one in module.modules():
        kind = type(one).__name__
        if kind in MIXTURES:
            one.forward = functools.partial(mixture, one)
        elif kind == "GptOssExperts":
            one.forward = functools.partial(gpt_oss_experts, one)
        elif kind == "SwitchTransformersSparseMLP":
            one.forward = functools.partial(switch_experts, one)
        elif kind in ("EncodecConv1d", "MimiConv1d"):
            pads_of_integers(one)
        if hasattr(one, "moe") and hasattr(one, "experts"):
            one.moe = functools.partial(weighted, one.experts)
        for name in ("_update_mamba_mask", "_update_linear_attn_mask"):
            if hasattr(one, name):
                setattr(one, name, lambda mask, places: mask)
        if hasattr(one, "_cast_classifier"):
            one._cast_classifier = lambda: None
    if type(getattr(module, "module", None)).__module__.startswith("transformers."):
        from transformers.models.fsmt import modeling_fsmt
        from transformers.models.pixtral import modeling_pixtral
        modeling_fsmt.make_padding_mask = lambda ids, padding_idx=1: ids.eq(padding_idx)
        modeling_pixtral.generate_block_attention_mask = blocks_of_a_mask

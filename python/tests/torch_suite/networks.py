"""Networks of PyTorch with random weights, exported and run: FOLDER/name.pt2 beside FOLDER/name.npz.

    python python/tests/torch_suite/networks.py FOLDER [NAME...]

Needs torch, torchvision and transformers. Every network is written as torch.export.export makes it and, as
name_core.pt2, after run_decompositions(). The arrays are the leaves of inputs and results of several calls in a row,
of other sizes where the network's sizes are dynamic: in0_0, in0_1, ..., out0_0, ...; check.py reads them.
"""

import copy
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree


class ConvNet(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, image):
        return self.network(image)


def torchvision_network(name, size, **options):
    import torchvision

    def make():
        network = getattr(torchvision.models, name)(weights=None, **options)
        for one in network.modules():  # statistics that are not those of a new network
            if isinstance(one, nn.BatchNorm2d):
                nn.init.normal_(one.running_mean, 0, 0.1)
                nn.init.uniform_(one.running_var, 0.8, 1.2)
        calls = [((torch.randn(count, 3, size, size),), {}) for count in (2, 1, 3)]
        return ConvNet(network), calls, ({0: Dim("batch", min=1, max=8)},)

    return make


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([self.block(3, 8), self.block(8, 16), self.block(16, 32)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 4, 2, 1)])
        self.mix = nn.ModuleList([self.block(32, 16), self.block(16, 8)])
        self.last = nn.Conv2d(8, 2, 1)

    @staticmethod
    def block(before, after):
        return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.LeakyReLU(0.1),
                             nn.Conv2d(after, after, 3, padding=1), nn.InstanceNorm2d(after, affine=True), nn.PReLU())

    def forward(self, image):
        kept = []
        for i, one in enumerate(self.down):
            image = one(image if i == 0 else F.max_pool2d(image, 2))
            kept.append(image)
        for i, (up, mix) in enumerate(zip(self.up, self.mix)):
            image = mix(torch.cat([up(image), kept[1 - i]], 1))
        return F.interpolate(self.last(image), scale_factor=1.5, mode="bilinear", align_corners=False)


def unet():
    return UNet(), [((torch.randn(count, 3, 24, 32),), {}) for count in (2, 1, 3)], ({0: Dim("batch", max=8)},)


class Residual(nn.Module):
    """A block of a diffusion network: group norms, a time embedding, attention over places."""

    def __init__(self, before, after, attention):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, before), nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(32, after)
        self.norm2, self.conv2 = nn.GroupNorm(4, after), nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()
        self.norm3 = nn.GroupNorm(4, after) if attention else None
        self.qkv, self.out = nn.Linear(after, 3 * after), nn.Linear(after, after)

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        x = self.conv2(F.silu(self.norm2(y))) + self.skip(x)
        if self.norm3 is None:
            return x
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm3(x).flatten(2).transpose(1, 2)).chunk(3, dim=-1)
        q, k, v = (one.unflatten(2, (2, c // 2)).transpose(1, 2) for one in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, h * w, c)
        return x + self.out(y).transpose(1, 2).reshape(n, c, h, w)


class Diffusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.ModuleList([Residual(8, 16, False), Residual(16, 32, True)])
        self.middle = Residual(32, 32, True)
        self.up = nn.ModuleList([Residual(64, 16, True), Residual(32, 8, False)])
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.norm, self.last = nn.GroupNorm(4, 8), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, image, step):
        rate = torch.exp(-torch.arange(8, dtype=torch.float32) * (np.log(10000) / 8))
        angle = step[:, None].float() * rate[None]
        time = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        x, kept = self.first(image), []
        for one in self.down:
            x = one(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, time)
        for one in self.up:
            x = one(torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), kept.pop()], 1), time)
        return self.last(F.silu(self.norm(x)))


def diffusion():
    calls = [((torch.randn(n, 3, 16, 16), torch.randint(0, 1000, (n,))), {}) for n in (2, 1, 3)]
    batch = Dim("batch", max=8)
    return Diffusion(), calls, ({0: batch}, {0: batch})


class Cached(nn.Module):
    """A GPT-2 with its cache as buffers, which each call updates in place."""

    def __init__(self, layers=2, width=32, heads=4, context=24, words=50):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([nn.ModuleDict({
            "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
            "norm2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
        }) for _ in range(layers)])
        self.norm, self.heads, self.context = nn.LayerNorm(width), heads, context
        for i in range(layers):
            self.register_buffer(f"keys{i}", torch.zeros(1, heads, context, width // heads))
            self.register_buffer(f"values{i}", torch.zeros(1, heads, context, width // heads))

    def forward(self, ids, places):
        x = self.words(ids) + self.places(places)
        mask = torch.arange(self.context)[None, :] <= places[:, None]
        for i, block in enumerate(self.blocks):
            q, k, v = block["qkv"](block["norm1"](x)).split(x.shape[-1], dim=-1)
            q, k, v = (one.view(1, ids.shape[1], self.heads, -1).transpose(1, 2) for one in (q, k, v))
            keys, values = getattr(self, f"keys{i}"), getattr(self, f"values{i}")
            keys[:, :, places] = k
            values.index_copy_(2, places, v)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = x + block["out"](y.transpose(1, 2).reshape(x.shape))
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x)), approximate="tanh"))
        return self.norm(x) @ self.words.weight.T


def gpt2_cached():
    spans = [(0, 5), (5, 6), (6, 7), (7, 10)]
    calls = [((torch.randint(0, 50, (1, end - begin)), torch.arange(begin, end)), {}) for begin, end in spans]
    length = Dim("length", min=1, max=24)
    return Cached(), calls, ({1: length}, {0: length})


class Logits(nn.Module):
    def __init__(self, model, **options):
        super().__init__()
        self.model, self.options = model, options

    def forward(self, input_ids, attention_mask=None):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False, **self.options)[0]


def transformer(kind, mask=True, batch=True, **config):
    def make():
        import transformers
        settings = getattr(transformers, f"{kind[0]}Config")(**config)
        settings._attn_implementation = "sdpa"
        model = getattr(transformers, kind[1])(settings)
        options = {} if kind[0] == "Bert" else {"use_cache": False}
        calls = []
        for n, length in ((2, 7), (1, 3), (3, 11)) if batch else ((1, 7), (1, 3), (1, 11)):
            ids = torch.randint(0, 50, (n, length))
            calls.append(((ids, torch.ones_like(ids)) if mask else (ids,), {}))
        sizes = {1: Dim("length", min=1, max=32)}
        if batch:
            sizes[0] = Dim("batch", min=1, max=16)
        return Logits(model, **options), calls, (sizes, sizes) if mask else (sizes,)

    return make


bert = transformer(("Bert", "BertModel"), vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                   intermediate_size=64, max_position_embeddings=40)
gpt2 = transformer(("GPT2", "GPT2LMHeadModel"), mask=False, batch=False, vocab_size=50, n_embd=32, n_layer=2, n_head=4,
                   n_positions=40)
llama = transformer(("Llama", "LlamaForCausalLM"), mask=False, vocab_size=50, hidden_size=32, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, max_position_embeddings=40)


def whisper_encoder():
    import transformers
    config = transformers.WhisperConfig(d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
                                        num_mel_bins=8, max_source_positions=20, decoder_layers=1,
                                        decoder_attention_heads=4, decoder_ffn_dim=64, vocab_size=60, pad_token_id=0,
                                        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    model = transformers.WhisperModel(config).get_encoder()

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, features):
            return self.model(features, return_dict=False)[0]

    return Encoder(), [((torch.randn(n, 8, 40),), {}) for n in (2, 1, 3)], ({0: Dim("batch", max=8)},)


class Tagger(nn.Module):
    def __init__(self, kind, width=10, layers=2):
        super().__init__()
        self.words = nn.Embedding(30, width + 2)
        self.layers = getattr(nn, kind)(width + 2, width, layers, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * width, 5)

    def forward(self, ids):
        y, state = self.layers(self.words(ids))
        return {"tags": self.tags(y).log_softmax(-1), "state": state}


def tagger(kind):
    def make():
        calls = [((torch.randint(0, 30, (n, 9)),), {}) for n in (2, 1, 3)]
        return Tagger(kind), calls, ({0: Dim("batch", max=8)},)

    return make


class Detector(nn.Module):
    """The structure of DETR: a small convolutional network, an encoder-decoder, queries, boxes."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
        self.queries = nn.Parameter(torch.randn(6, 32))
        self.rows, self.columns = nn.Parameter(torch.randn(8, 16)), nn.Parameter(torch.randn(8, 16))
        self.classes, self.boxes = nn.Linear(32, 5), nn.Linear(32, 4)

    def forward(self, image):
        x = self.backbone(image)
        n, c, h, w = x.shape
        places = torch.cat([self.columns[:w].unsqueeze(0).repeat(h, 1, 1),
                            self.rows[:h].unsqueeze(1).repeat(1, w, 1)], -1).flatten(0, 1).unsqueeze(0)
        y = self.transformer(places + 0.1 * x.flatten(2).permute(0, 2, 1), self.queries.unsqueeze(0).expand(n, -1, -1))
        return {"classes": self.classes(y), "boxes": self.boxes(y).sigmoid()}


def detector():
    return Detector(), [((torch.randn(n, 3, 24, 28),), {}) for n in (2, 1, 3)], ({0: Dim("batch", max=8)},)


def vit():
    return torchvision_network("vit_b_16", 32)()


def small_vit():
    import torchvision
    network = torchvision.models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=7)
    nn.init.normal_(network.heads.head.weight)
    return ConvNet(network), [((torch.randn(n, 3, 32, 32),), {}) for n in (2, 1, 3)], ({0: Dim("batch", max=8)},)


NETWORKS = {
    "resnet18": torchvision_network("resnet18", 64), "mobilenet_v2": torchvision_network("mobilenet_v2", 64),
    "mobilenet_v3": torchvision_network("mobilenet_v3_small", 64),
    "efficientnet": torchvision_network("efficientnet_b0", 64), "unet": unet, "diffusion": diffusion,
    "vit": small_vit, "bert": bert, "gpt2": gpt2, "gpt2_cached": gpt2_cached, "llama": llama,
    "whisper_encoder": whisper_encoder, "lstm_tagger": tagger("LSTM"), "gru_tagger": tagger("GRU"),
    "detector": detector,
}


def as_array(leaf):
    """A leaf as numpy's array; bf16, which numpy does not have, as its bytes."""
    if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bfloat16:
        return leaf.contiguous().view(torch.int16).numpy().view("V2")
    return np.asarray(leaf.resolve_conj() if isinstance(leaf, torch.Tensor) else leaf)


def record(name, model, calls, sizes, folder):
    """The archives of a model and the arrays of its calls."""
    model = model.eval()
    arrays = {}
    with torch.no_grad():
        exported = torch.export.export(copy.deepcopy(model), *calls[0], dynamic_shapes=sizes)
        torch.export.save(exported, folder / f"{name}.pt2")
        torch.export.save(exported.run_decompositions(), folder / f"{name}_core.pt2")
        for i, (args, kwargs) in enumerate(calls):
            for k, one in enumerate(pytree.tree_leaves((args, kwargs))):
                arrays[f"in{i}_{k}"] = as_array(one)
            for k, one in enumerate(pytree.tree_leaves(model(*args, **kwargs))):
                if one is not None:
                    arrays[f"out{i}_{k}"] = as_array(one)
    np.savez(folder / f"{name}.npz", **arrays)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or NETWORKS:
        torch.manual_seed(1)
        try:
            record(name, *NETWORKS[name](), folder)
            print(name, flush=True)
        except Exception as error:  # one network that torch.export refuses does not end the others
            print(f"{name}: {type(error).__name__}: {str(error)[:400]}", flush=True)


if __name__ == "__main__":
    main()

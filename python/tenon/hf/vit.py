"""ViT: classes of images."""

from .. import build, ops
from .folder import Model


class ViT(Model):
    def forward(self, pixels):
        """Images f32[B, channels, size, size]: a score for each class."""
        filters = self.plain("vit.embeddings.patch_embeddings.projection.weight", self.width, self.channels,
                             self.patch, self.patch)
        bias = self.plain("vit.embeddings.patch_embeddings.projection.bias", self.width)
        x = ops.conv2d(pixels, filters, bias=bias, stride=(self.patch, self.patch))
        x = ops.pad(x.flatten(2).permute((0, 2, 1)), before=(0, 1, 0), after=(0, 0, 0))  # a place for the class token
        token = self.plain("vit.embeddings.cls_token", 1, 1, self.width)
        places = self.plain("vit.embeddings.position_embeddings", 1, self.patches + 1, self.width)
        x = x + (places + ops.pad(token, before=(0, 0, 0), after=(0, self.patches, 0)))

        def block(w, index, x):
            h = ops.layer_norm(x, *w["layernorm_before"], eps=self.eps)
            q, k, v = (ops.split_axis(ops.linear(h, *w[part]), axis=2, sizes=(self.heads, self.width // self.heads))
                       for part in ("query", "key", "value"))
            x = ops.linear(ops.attention(q, k, v).flatten(2), *w["attention"], residual=x)
            h = ops.layer_norm(x, *w["layernorm_after"], eps=self.eps)
            return ops.linear(self.activation(ops.linear(h, *w["up"])), *w["down"], residual=x)

        x = build.repeat([self.layer(i) for i in range(self.layers)], x, block)
        x = ops.layer_norm(x[:, 0], *self.norm("vit.layernorm", self.width), eps=self.eps)
        return ops.linear(x, *self.linear("classifier", self.classes, self.width))

    def inputs(self):
        return {"pixels": f"f32[B, {self.channels}, {self.image}, {self.image}]"}

    def read_config(self, config):
        self.read_sizes(config)
        self.image = config.integer("image_size", 224, high=2**14)
        self.patch = config.integer("patch_size", 16, high=2**14)
        self.channels = config.integer("num_channels", 3, high=2**10)
        self.eps = config.real("layer_norm_eps", 1e-12, high=1)
        self.bias = config.flag("qkv_bias", True)
        self.activation = config.activation("hidden_act", "gelu")
        self.patches = (self.image // self.patch) ** 2
        self.classes = len(config.section("id2label").values) or config.integer("num_labels", 2)
        if self.width % self.heads:
            config.refuse("num_attention_heads", f"divisors of {self.width}")
        if self.patch > self.image:
            config.refuse("patch_size", f"1 to {self.image}")

    def layer(self, i):
        name, width = f"vit.encoder.layer.{i}.", self.width
        layer = {part: self.linear(f"{name}attention.attention.{part}", width, width, self.bias)
                 for part in ("query", "key", "value")}
        return {**layer,
                "attention": self.linear(name + "attention.output.dense", width, width),
                "up": self.linear(name + "intermediate.dense", self.inner, width),
                "down": self.linear(name + "output.dense", width, self.inner),
                **{norm: self.norm(name + norm, width) for norm in ("layernorm_before", "layernorm_after")}}

"""Whisper, speech to text: an encoder reads a spectrogram once, a decoder looks at what it made and writes tokens."""

import numpy as np

from .. import build, ops
from .decoder import Generates, continuation, greedy, last, of_layer


class Whisper(Generates):
    def encode(self, spectrogram):
        """f32[1, mels, 2 * places]: keys and values [layers, 1, heads, places, size] that the decoder looks at."""
        x = spectrogram
        for name, inputs, stride in (("conv1", self.mels, 1), ("conv2", self.width, 2)):
            filters = self.plain(f"model.encoder.{name}.weight", self.width, inputs, 3).unsqueeze(2)
            bias = self.plain(f"model.encoder.{name}.bias", self.width)
            x = ops.conv2d(x.unsqueeze(2), filters, bias=bias, stride=(1, stride), padding=(0, 1))
            x = ops.gelu(x).squeeze(axis=2)
        x = x.permute((0, 2, 1)) + self.plain("model.encoder.embed_positions.weight", self.places, self.width)

        def block(w, index, x):
            h = ops.layer_norm(x, *w["self_attn_layer_norm"])
            q, k, v = self.project(h, h, w["self_attn"])
            x = ops.linear(ops.attention(q, k, v).flatten(2), *w["self_attn"]["out_proj"], residual=x)
            return self.feed_forward(x, w)

        layers = [self.layer(f"encoder.layers.{i}", ("self_attn",), self.encoder_inner)
                  for i in range(self.encoder_layers)]
        x = ops.layer_norm(build.repeat(layers, x, block), *self.norm("model.encoder.layer_norm", self.width))

        def look(w, index, keys, values):
            _, k, v = self.project(None, x, w)
            return tuple(ops.update_slice(cache, index, one.permute((0, 2, 1, 3)))
                         for cache, one in ((keys, k), (values, v)))

        layers = [self.attention(f"model.decoder.layers.{i}.encoder_attn") for i in range(self.layers)]
        return build.repeat(layers, self.caches(self.places), look)

    def forward(self, ids, position, keys, values, seen_keys, seen_values):
        """Tokens i32[1, S] at `position`, the caches of those before, and encode()'s: logits, and the caches."""
        table = self.weight("model.decoder.embed_tokens.weight", self.vocabulary, self.width)
        places = self.weight("model.decoder.embed_positions.weight", self.context, self.width)
        positions = ops.iota(ids, axis=1, dtype="i32") + position
        x = ops.embedding(ids, table) + ops.embedding(positions, places)

        def block(w, index, x, keys, values):
            h = ops.layer_norm(x, *w["self_attn_layer_norm"])
            q, k, v = self.project(h, h, w["self_attn"])
            keys = ops.cache_update(keys, index, k, position)
            values = ops.cache_update(values, index, v, position)
            h = ops.attention(q, of_layer(keys, index), of_layer(values, index), position=position, causal=True)
            x = ops.linear(h.flatten(2), *w["self_attn"]["out_proj"], residual=x)
            q, _, _ = self.project(ops.layer_norm(x, *w["encoder_attn_layer_norm"]), None, w["encoder_attn"])
            h = ops.attention(q, of_layer(seen_keys, index), of_layer(seen_values, index))
            x = ops.linear(h.flatten(2), *w["encoder_attn"]["out_proj"], residual=x)
            return self.feed_forward(x, w), keys, values

        layers = [self.layer(f"decoder.layers.{i}", ("self_attn", "encoder_attn"), self.inner)
                  for i in range(self.layers)]
        x, keys, values = build.repeat(layers, (x, keys, values), block)
        x = ops.layer_norm(last(x, ids), *self.norm("model.decoder.layer_norm", self.width))
        head = table if self.ties else self.weight("proj_out.weight", self.vocabulary, self.width)
        return ops.linear(x, head), keys, values

    def project(self, x, seen, w):
        """Queries of x, keys and values of what is seen, [B, S, heads, size]; None of None."""
        return [ops.split_axis(ops.linear(of, *w[part]), axis=2, sizes=(self.heads, self.size))
                if of is not None else None for part, of in (("q_proj", x), ("k_proj", seen), ("v_proj", seen))]

    def feed_forward(self, x, w):
        h = self.activation(ops.linear(ops.layer_norm(x, *w["final_layer_norm"]), *w["fc1"]))
        return ops.linear(h, *w["fc2"], residual=x)

    def caches(self, places):
        """Empty keys and values of all layers."""
        return tuple(ops.zeros((self.layers, 1, self.heads, places, self.size)) for _ in range(2))

    def encoder_program(self):
        """encode() as a program; program() is the decoder's."""
        spectrogram = f"f32[1, {self.mels}, {2 * self.places}]"
        return build.export(self.encode, spectrogram=spectrogram, name="forward")

    def check(self):
        super().check()
        self.encoder_program()

    def inputs(self, cache="f32"):
        caches = f"{cache}[{self.layers}, 1, {self.heads}, T, {self.size}]"
        seen = f"f32[{self.layers}, 1, {self.heads}, {self.places}, {self.size}]"
        return {"ids": "i32[1, S]", "position": "i32[]", "keys": caches, "values": caches, "seen_keys": seen,
                "seen_values": seen}

    def listen(self, spectrogram):
        """encode()'s results."""
        if self._encoder is None:
            self._encoder = self.session(self.encoder_program().optimized()[0])
        return self._encoder.forward(spectrogram)

    def generate(self, spectrogram, prompt, max_tokens=64, choose=greedy):
        """The tokens that follow a prompt of tokens, such as <|startoftranscript|> and a language.

        Tokens that generation_config.json suppresses are not chosen.
        """
        tokens = self.tokens_of(prompt, max_tokens, self.context)
        seen = self.listen(spectrogram)
        keys, values = self.caches(self.context)
        never, not_first = (self.generation.integers(key) for key in ("suppress_tokens", "begin_suppress_tokens"))

        def read(step, position):
            nonlocal keys, values
            logits, keys, values = self([step], position, keys.donate(), values.donate(), *seen)
            logits = logits.numpy()[0].copy()
            for token in never + (not_first if position == 0 else []):
                if 0 <= token < len(logits):
                    logits[token] = -np.inf
            return logits

        return list(continuation(read, tokens, max_tokens, self.generation.integers("eos_token_id"), choose))

    def read_config(self, config):
        self._encoder = None
        self.vocabulary = config.integer("vocab_size", high=2**24)
        self.width = config.integer("d_model")
        self.layers = config.integer("decoder_layers", high=512)
        self.encoder_layers = config.integer("encoder_layers", high=512)
        self.heads = config.integer("decoder_attention_heads", high=2**14)
        self.inner = config.integer("decoder_ffn_dim")
        self.encoder_inner = config.integer("encoder_ffn_dim")
        self.mels = config.integer("num_mel_bins", 80)
        self.places = config.integer("max_source_positions", 1500)
        self.context = config.integer("max_target_positions", 448)
        self.activation = config.activation("activation_function", "gelu")
        self.ties = config.flag("tie_word_embeddings", True)
        self.size = self.width // self.heads
        if self.width % self.heads:
            config.refuse("decoder_attention_heads", f"divisors of {self.width}")
        config.only("encoder_attention_heads", self.heads)

    def attention(self, name):
        return {part: self.linear(f"{name}.{part}", self.width, self.width, part != "k_proj")
                for part in ("q_proj", "k_proj", "v_proj", "out_proj")}

    def layer(self, name, attentions, inner):
        name = f"model.{name}."
        layer = {part: self.attention(name + part) for part in attentions}
        norms = [f"{part}_layer_norm" for part in attentions] + ["final_layer_norm"]
        return {**layer, **{norm: self.norm(name + norm, self.width) for norm in norms},
                "fc1": self.linear(name + "fc1", inner, self.width),
                "fc2": self.linear(name + "fc2", self.width, inner)}

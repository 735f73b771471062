"""What language models share: sizes, caches of keys and values, rotary positions, and generation."""

import functools
import operator

from .. import _tenon, build, ops
from .folder import Model, fail, read_json


def rope_settings(config, size, section="rope_parameters"):
    """Attributes of ops.rope for heads of a size, from config.json in its newer or older form."""
    section = section if section in config else "rope_scaling"
    scaling = config.section(section)
    kind = scaling.word("rope_type", scaling.word("type", "default"))
    part = scaling.real("partial_rotary_factor", config.real("partial_rotary_factor", 1.0, high=1), high=1)
    rope = {"theta": scaling.real("rope_theta", config.real("rope_theta", 10000.0, low=1), low=1),
            "dims": int(size * part)}
    if kind == "default":
        return rope
    if kind not in ("linear", "llama3", "yarn"):
        fail("Unsupported", scaling.where, f"rope_type '{kind:.80}'; known are default, linear, llama3, yarn")
    rope.update(scaling=kind, factor=scaling.real("factor", low=1e-6))
    if kind != "linear":
        context = config.integer("max_position_embeddings", 2048, high=2**31)
        rope["original_context"] = scaling.integer("original_max_position_embeddings", context, high=2**31)
    if kind == "llama3":
        rope.update({key: scaling.real(key, low=1e-6) for key in ("low_freq_factor", "high_freq_factor")})
    if kind == "yarn":
        for key in ("mscale", "mscale_all_dim"):
            scaling.only(key)
        scaling.only("truncate", True)
        rope.update(attention_factor=scaling.real("attention_factor", 0.0),
                    beta_fast=scaling.real("beta_fast", 32.0), beta_slow=scaling.real("beta_slow", 1.0))
    return rope


def continuation(read, prompt, max_tokens, ends, choose):
    """Tokens one after the other: read(tokens, position) gives the logits after them, `choose` takes one."""
    position, step = 0, prompt
    for _ in range(max_tokens):
        logits = read(step, position)
        position += len(step)
        step = [choose(logits)]
        yield step[0]
        if step[0] in ends:
            return


def greedy(logits):
    """The most probable token."""
    return int(logits.argmax())


class Generates(Model):
    """Models that write tokens."""

    @functools.cached_property
    def tokenizer(self):
        return _tenon.Tokenizer.from_json(self.path / "tokenizer.json")

    @functools.cached_property
    def generation(self):
        """Settings of generation_config.json, or of config.json."""
        path = self.path / "generation_config.json"
        return read_json(path) if path.is_file() else self.config

    def tokens_of(self, prompt, max_tokens, context):
        """The tokens of a prompt, a text or tokens, that leave room for `max_tokens`."""
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else [operator.index(token) for token in prompt]
        if not tokens:
            fail("BadArgument", "generate", "a prompt without tokens")
        if max_tokens < 0:
            fail("OutOfRange", "generate", f"max_tokens is {max_tokens}, allowed: 0 and more")
        if len(tokens) + max_tokens > context:
            fail("OutOfRange", "generate", f"{len(tokens)} tokens and {max_tokens} more, at most {context} in all")
        return tokens


class Decoder(Generates):
    """A language model with `layers` caches of `kv_heads` heads of a size.

    A class says what its layers have: `norms` of the width, `head_norms` of queries and keys, `biases`, the parts with
    one; and whether it `ties` the logits to the embedding table where config.json does not say.
    """

    def read_config(self, config):
        self.vocabulary = config.integer("vocab_size", high=2**24)
        self.read_sizes(config)
        self.kv_heads = config.integer("num_key_value_heads", self.heads, high=2**14)
        self.size = config.integer("head_dim", self.width // self.heads or 1)
        self.eps = config.real("rms_norm_eps", 1e-6, high=1)
        self.context = config.integer("max_position_embeddings", 2048, high=2**31)
        if self.heads % self.kv_heads:
            config.refuse("num_key_value_heads", f"divisors of {self.heads} heads")
        config.only("pretraining_tp", 1)

    def inputs(self, batch=1, context="T", cache="f16"):
        caches = f"{cache}[{self.layers}, {batch}, {self.kv_heads}, {context}, {self.size}]"
        return {"ids": f"i32[{batch}, S]", "position": "i32[]", "keys": caches, "values": caches}

    def program(self, batch=1, context="T", cache="f16", every=False):
        """Tokens and caches to logits, and the caches that hold them, too.

        `batch` rows stand at one position. `context` is the size of the caches, a word for one that each run may
        choose. Logits are those after the last token, or with `every` those after each.
        """
        return build.export(functools.partial(self.forward, every=every), name="forward",
                            **self.inputs(batch, context, cache))

    def caches(self, context, batch=1, cache="f16"):
        """Empty caches of keys and of values."""
        return [ops.zeros((self.layers, batch, self.kv_heads, context, self.size), cache) for _ in range(2)]

    def generate(self, prompt, max_tokens=64, choose=greedy):
        """What follows a prompt: text for a text, tokens for tokens. `choose` takes a token by its logits."""
        tokens = list(self.stream(prompt, max_tokens, choose))
        return self.tokenizer.decode(tokens) if isinstance(prompt, str) else tokens

    def stream(self, prompt, max_tokens=64, choose=greedy):
        """The tokens of generate(), one by one."""
        tokens = self.tokens_of(prompt, max_tokens, self.context)
        keys, values = self.caches(min(-(-(len(tokens) + max_tokens) // 256) * 256, self.context))

        def read(step, position):
            nonlocal keys, values
            logits, keys, values = self([step], position, keys.donate(), values.donate())
            return logits.numpy()[0]

        return continuation(read, tokens, max_tokens, self.generation.integers("eos_token_id"), choose)

    def embedding_table(self):
        return self.weight("model.embed_tokens.weight", self.vocabulary, self.width)

    def head(self, table):
        """The matrix of the logits: the embedding table's, where they are tied."""
        tied = self.config.flag("tie_word_embeddings", self.ties)
        return table if tied else self.weight("lm_head.weight", self.vocabulary, self.width)

    def layer(self, i):
        """The weights of layer i, by the names that they have below it."""
        name = f"model.layers.{i}."
        q, kv, bias = self.heads * self.size, self.kv_heads * self.size, self.biases
        parts = {"q_proj": (q, self.width), "k_proj": (kv, self.width), "v_proj": (kv, self.width),
                 "o_proj": (self.width, q)}
        layer = {part: self.linear(f"{name}self_attn.{part}", *dims, bias=part in bias) for part, dims in parts.items()}
        parts = {"gate_proj": (self.inner, self.width), "up_proj": (self.inner, self.width),
                 "down_proj": (self.width, self.inner)}
        for part, dims in parts.items():
            layer[part] = self.linear(f"{name}mlp.{part}", *dims, bias=part in bias)
        for norm in self.norms:
            layer[norm] = self.weight(f"{name}{norm}.weight", self.width)
        for norm in self.head_norms:
            layer[norm] = self.weight(f"{name}self_attn.{norm}.weight", self.size)
        return layer

    def project(self, x, w):
        """Queries, keys and values [B, S, heads, size]."""
        return [ops.split_axis(ops.linear(x, *w[part]), axis=2, sizes=(heads, self.size))
                for part, heads in (("q_proj", self.heads), ("k_proj", self.kv_heads), ("v_proj", self.kv_heads))]


def of_layer(cache, index):
    """One layer's keys or values [B, T, heads, size]."""
    return ops.permute(ops.select(cache, index), (0, 2, 1, 3))


def last(x, ids):
    """What stands at the last token: [B, width] of x [B, S, width]."""
    return ops.gather(x, ops.max(ops.iota(ids, axis=1, dtype="i32")), axis=1)

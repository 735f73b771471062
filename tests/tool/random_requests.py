"""Random requests for `tenon serve`: right ones with every option, wrong ones made of them, and raw connections."""

import base64
import copy
import json
import struct
import zlib

TEXTS = ["", "a", "hand", "in the beginning", "über", "日本語のテキスト", "😀👩‍👩‍👧", "e\u0301\u0300\u0302", "\u202eabc\u202c", "\ufeff", "\u2028",
         "\0", "a\0b", "\x1b[0m", "\r\n\t ", "{{ messages }}", "{% if %}", "<|im_end|>", "</s>", "<s>", "<unk>", "<0x0A>", "\\u0041", '"quoted"',
         "\ufffd", "\ufffe\uffff", "\U0010ffff", "%s%n", "../../etc/passwd", "data: [DONE]\n\n", "<|user|>", "<call>", "{", "[1, 2"]
NUMBERS = [0, -0.0, 1, -1, 2, 3, 0.5, -0.5, 1e-320, 1e300, -1e300, 2**31, -(2**31) - 1, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1,
           2**64, 10**30, 1e308, 5e-324, 127, 128, 129, 20, 21]
SCHEMAS = [
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": -3, "maximum": 12}}, "required": ["n"], "additionalProperties": False},
    {"enum": ["a", 1, None, "ü"]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"type": "string", "pattern": "^[ab]{1,4}$"},
    {"anyOf": [{"const": 7}, {"type": "null"}]},
    {"$defs": {"t": {"type": "object", "properties": {"l": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/t"}]}}, "required": ["l"]}},
     "$ref": "#/$defs/t"},
]
GRAMMARS = ['root ::= "yes" | "no"', 'root ::= [a-c]{2,5}', 'root ::= "ü" root | "."']


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((x * 7 + y * 13) % 256 for x in range(3 * width)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


class Requests:
    """Draws requests: `rng` is a random.Random, `vocabulary` the number of the model's tokens."""

    def __init__(self, rng, vocabulary, images=False, most_tokens=24):
        self.rng, self.vocabulary, self.images, self.most_tokens = rng, vocabulary, images, most_tokens

    def maybe(self, chance=0.3):
        return self.rng.random() < chance

    def text(self):
        rng = self.rng
        kind = rng.randrange(4)
        if kind == 0:
            return rng.choice(TEXTS)
        if kind == 1:
            return "".join(rng.choice(TEXTS) for _ in range(rng.randint(1, 4)))
        if kind == 2:
            return "".join(chr(rng.choice([rng.randint(1, 0x7f), rng.randint(0x80, 0x7ff), rng.randint(0x800, 0xd7ff), rng.randint(0xe000, 0x10ffff)]))
                           for _ in range(rng.randint(0, 12)))
        return "the hand and the word " * rng.randint(0, 8)

    def tokens(self, most=12):
        return [self.rng.randrange(self.vocabulary) for _ in range(self.rng.randint(1, most))]

    def sampling(self):
        rng = self.rng
        choices = {
            "temperature": lambda: rng.choice([0, 0, 0.3, 1, 1.7, 100]), "top_p": lambda: rng.choice([1, 0.9, 0.1, 0]),
            "top_k": lambda: rng.choice([-1, 0, 1, 5, 1000]), "mirostat": lambda: rng.choice([0, 1, 2]), "ignore_eos": lambda: self.maybe(0.5),
            "temperature_last": lambda: self.maybe(0.5), "dry_sequence_breakers": lambda: rng.choice([[], "a", ["th", ":"]]), "min_p": lambda: rng.choice([0, 0.05, 1]), "typical_p": lambda: rng.choice([1, 0.5]),
            "repeat_penalty": lambda: rng.choice([1, 1.1, 2]), "repeat_last_n": lambda: rng.choice([-1, 0, 3, 64]),
            "frequency_penalty": lambda: rng.choice([0, -2, 2, 0.5]), "presence_penalty": lambda: rng.choice([0, -2, 2, 0.5]),
            "dry_multiplier": lambda: rng.choice([0, 0.8]), "logit_bias": lambda: self.bias(), "stop": lambda: self.stop(),
            "n": lambda: rng.randint(1, 3), "user": lambda: self.text(), "model": lambda: self.text(),
        }
        return {name: draw() for name, draw in choices.items() if self.maybe(0.2)} | {"seed": rng.choice([0, 1, 7, -5, 2**40])}

    def bias(self):
        pairs = [(token, self.rng.choice([-100, 5, 0.25])) for token in self.tokens(4)]
        return {str(token): bias for token, bias in pairs} if self.maybe(0.5) else [list(pair) for pair in pairs]

    def stop(self):
        stop = self.rng.choice(["e", "th", " ", "\n", "ü", "\ufffd", "zzzz"])
        return stop if self.maybe(0.5) else [stop, self.rng.choice(["a", "on"])]

    def limit(self, *names):
        return {self.rng.choice(names): self.rng.choice([1, 2, self.most_tokens, self.rng.randint(1, self.most_tokens)])}

    def stream(self):
        body = {}
        if self.maybe(0.5):
            body["stream"] = True
        if self.maybe():
            body["stream_options"] = {"include_usage": self.maybe(0.7)}
        return body

    def form(self):
        """A form of the answer, or none."""
        rng = self.rng
        schema = rng.choice(SCHEMAS)
        return rng.choice([{}, {}, {"response_format": {"type": "text"}}, {"response_format": {"type": "json_object"}}, {"json_schema": schema}, {"guided_json": schema},
                           {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}},
                           {"grammar": rng.choice(GRAMMARS)}])

    def completion(self):
        prompt = self.rng.choice([self.text, self.tokens, lambda: [self.text() for _ in range(self.rng.randint(1, 3))],
                                  lambda: [self.tokens() for _ in range(self.rng.randint(1, 3))], lambda: [self.text(), self.tokens()]])()
        body = {"prompt": prompt, **self.sampling(), **self.limit("max_tokens"), **self.stream(), **self.form()}
        if self.maybe():
            body["logprobs"] = self.rng.choice([0, 1, 5, 20])
        elif self.maybe():
            body["echo"] = True
        return body

    def function(self):
        rng = self.rng
        function = {"name": rng.choice(["weather", "find", "f_1-x"]), "parameters": {"type": "object", "properties": {
            "city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}}
        if self.maybe():
            function["description"] = self.text()
        if self.maybe():
            function["strict"] = True
        return function

    def tools(self):
        """Tools of a chat with the choice among them."""
        rng, function = self.rng, self.function()
        tools = {"tools": [{"type": "function", "function": function}]}
        if self.maybe(0.7):
            tools["tool_choice"] = rng.choice(["auto", "none", "required", {"type": "function", "function": {"name": function["name"]}}])
        if self.maybe():
            tools["parallel_tool_calls"] = self.maybe(0.5)
        return tools

    def message(self, role):
        content = self.text()
        if self.maybe(0.25):
            content = [{"type": "text", "text": self.text()} for _ in range(self.rng.randint(1, 3))]
            if self.images and role == "user":
                content.insert(self.rng.randint(0, len(content)), {"type": "image_url", "image_url": {"url": self.image()}})
        message = {"role": role, "content": content}
        if self.maybe(0.1):
            message["name"] = self.text()
        return message

    def image(self):
        data = png(self.rng.choice([1, 2, 9, 40]), self.rng.choice([1, 3, 17, 40]))
        return "data:image/png;base64," + base64.b64encode(data).decode()

    def messages(self):
        rng, messages = self.rng, []
        if self.maybe():
            messages.append(self.message("system"))
        for _ in range(rng.randint(0, 2)):
            messages.append(self.message("user"))
            if self.maybe(0.2):
                messages += [{"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {
                    "name": "weather", "arguments": rng.choice(['{"city": "Oslo"}', "{}", '{"a": [1, null]}'])}}]},
                    {"role": "tool", "tool_call_id": "call_1", "content": self.text()}]
            messages.append(self.message("assistant"))
        messages.append(self.message("user"))
        if self.maybe(0.1):
            messages.append({"role": "assistant", "content": self.text()})
        return messages

    def chat(self):
        body = {"messages": self.messages(), **self.sampling(), **self.limit("max_tokens", "max_completion_tokens", "n_predict"), **self.stream()}
        if self.maybe(0.4):
            body.update(self.tools())
        if body.get("tool_choice", "auto") in ("auto", "none"):
            body.update(self.form())
        if self.maybe():
            body["logprobs"] = True
            if self.maybe(0.7):
                body["top_logprobs"] = self.rng.choice([0, 1, 20])
        if self.maybe(0.1):
            body["chat_template_kwargs"] = {"enable_thinking": False, "x": self.text()}
        return body

    def response(self):
        rng = self.rng
        items = [{"role": "user", "content": self.text()}]
        if self.maybe():
            items += [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": self.text()}]}]
        if self.maybe():
            items += [{"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
                      {"type": "function_call_output", "call_id": "c", "output": self.text()}]
        if self.maybe():
            items += [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": self.text(), "annotations": []}]},
                      {"role": "developer", "content": [{"type": "input_text", "text": self.text()}]}]
        sampling = self.sampling()
        sampling.pop("n", None)
        body = {"input": self.text() if self.maybe(0.4) else items, **sampling, **self.limit("max_output_tokens")}
        if self.maybe(0.5):
            body["stream"] = True
        if self.maybe():
            body["instructions"] = self.text()
        if self.maybe():
            function = self.function()
            body["tools"] = [{"type": "function", **function}]
            if self.maybe(0.7):
                body["tool_choice"] = rng.choice(["auto", "none", "required", {"type": "function", "name": function["name"]}])
        if self.maybe() and body.get("tool_choice", "auto") in ("auto", "none"):
            body["text"] = {"format": rng.choice([{"type": "text"}, {"type": "json_object"},
                                                  {"type": "json_schema", "name": "x", "schema": rng.choice(SCHEMAS)}])}
        if self.maybe():
            body["include"] = ["message.output_text.logprobs"]
            body["top_logprobs"] = rng.choice([0, 2])
        if self.maybe():
            body["metadata"] = {"a": self.text()}
        if self.maybe():
            body["reasoning"] = {"effort": "low"}
        return body

    def tokenize(self):
        return {"content": self.text(), **({"add_special": self.maybe(0.5)} if self.maybe() else {})}

    def detokenize(self):
        return {"tokens": self.tokens(40)}

    def embedding(self):
        texts = self.text() if self.maybe() else [self.text() for _ in range(self.rng.randint(1, 5))]
        if self.maybe(0.2):  # of the smallest encoder's vocabulary
            texts = [[self.rng.randrange(11) for _ in range(self.rng.randint(1, 5))] for _ in range(self.rng.randint(1, 3))]
        return {"input": texts, **({"encoding_format": self.rng.choice(["float", "base64"])} if self.maybe(0.5) else {})}

    def rerank(self):
        # Longer ones lose their ends, with a warning.
        body = {"query": self.text()[:20], "documents": [self.text()[:20] for _ in range(self.rng.randint(1, 5))]}
        if self.maybe(0.4):
            body["top_n"] = self.rng.randint(1, 9)
        if self.maybe(0.4):
            body["return_documents"] = self.maybe(0.5)
        return body

    # -- wrong ones

    def anything(self, depth=0):
        rng = self.rng
        kind = rng.randrange(8 if depth < 3 else 6)
        if kind < 2:
            return rng.choice(NUMBERS)
        if kind == 2:
            return rng.choice([None, True, False])
        if kind < 5:
            return self.text()
        if kind == 5:
            return rng.choice([[], {}, "x" * rng.choice([100, 5000])])
        if kind == 6:
            return [self.anything(depth + 1) for _ in range(rng.randint(0, 3))]
        return {self.text(): self.anything(depth + 1) for _ in range(rng.randint(0, 3))}

    def changed(self, body):
        """A copy that has another value at one to three places."""
        body = copy.deepcopy(body)
        for _ in range(self.rng.randint(1, 3)):
            self._change(body)
        return body

    def _change(self, value):
        rng = self.rng
        while True:
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            if not keys:
                return
            key = rng.choice(keys)
            if isinstance(value[key], (dict, list)) and value[key] and rng.random() < 0.7:
                value = value[key]
                continue
            what = rng.randrange(6)
            if what == 0:
                del value[key]
            elif what == 1:
                value[key] = copy.deepcopy(value[rng.choice(keys)])
            elif what == 2:
                value[key] = [value[key]]
            elif what == 3 and isinstance(value, list):
                value *= rng.choice([2, 3])
            elif what == 3:
                value[self.text()] = self.anything()
            else:
                value[key] = self.anything()
            return

    def encoded(self, body):
        """JSON in one of its spellings."""
        return json.dumps(body, ensure_ascii=self.maybe(0.5), separators=self.rng.choice([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n")])).encode(
            "utf-8", "surrogatepass")

    def damaged(self, text):
        """Bytes of a body with a few of them changed, repeated or cut."""
        rng, text = self.rng, bytearray(text)
        for _ in range(rng.randint(1, 4)):
            at = rng.randint(0, len(text))
            what = rng.randrange(6)
            if what == 0:
                del text[at:]
            elif what == 1:
                text[at:at] = bytes(rng.choices(b'{}[]",:\\0eE-+.\xff\xc0\x80\xed\xa0\x00 ntf', k=rng.randint(1, 3)))
            elif what == 2:
                del text[at:at + rng.randint(1, 9)]
            elif what == 3:
                text[at:at] = text[at:at + rng.randint(1, 30)]
            elif what == 4:
                text[at:at] = rng.choice([b"[" * 200, b'{"a":' * 200, b"1e999", b"-", b"NaN", b"1" * 400, b'"\\ud800"', b'"\\udc00\\ud800"', b"/* */"])
            elif at < len(text):
                text[at] ^= 1 << rng.randrange(8)
        return bytes(text)

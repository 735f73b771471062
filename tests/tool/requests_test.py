"""Random requests to `tenon serve`: answers do not depend on how and beside what they are asked for; wrong requests are refused.

TENON_TEST_SEED and TENON_TEST_ROUNDS choose other requests, and more of them."""

import concurrent.futures
import http.client
import json
import os
import random
import socket
import struct
import time

import model_files
from harness import LLAMA, LLAMA_VOCABULARY
from random_requests import Requests
from serve_test import ENCODERS, TOOLS, ServeTest

SEED = int(os.environ.get("TENON_TEST_SEED", random.randrange(1 << 30)))
ROUNDS = int(os.environ.get("TENON_TEST_ROUNDS", 30))
TEXT = (str, type(None))
USAGE = {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int, "prompt_tokens_details": {"cached_tokens": int}}
# What OpenAI's clients take for granted of a response.
SHAPES = {
    "/v1/completions": {"id": str, "object": str, "created": int, "model": str, "usage": USAGE, "choices": [
        {"index": int, "text": str, "finish_reason": str, "logprobs": (dict, type(None))}]},
    "/v1/chat/completions": {"id": str, "object": str, "created": int, "model": str, "usage": USAGE, "choices": [
        {"index": int, "message": {"role": str, "content": TEXT}, "finish_reason": str, "logprobs": (dict, type(None))}]},
    "/v1/responses": {"id": str, "object": str, "created_at": int, "model": str, "status": str, "parallel_tool_calls": bool,
                      "tools": [{"type": str, "name": str}], "text": dict, "output": [{"id": str, "type": str}],
                      "usage": {"input_tokens": int, "output_tokens": int, "total_tokens": int,
                                "input_tokens_details": {"cached_tokens": int, "cache_write_tokens": int},
                                "output_tokens_details": {"reasoning_tokens": int}}},
    "/v1/embeddings": {"object": str, "model": str, "data": [{"index": int, "embedding": (list, str)}],
                       "usage": {"prompt_tokens": int, "total_tokens": int}},
    "/v1/rerank": {"model": str, "results": [{"index": int, "relevance_score": float}]},
    "/tokenize": {"tokens": [int]}, "/detokenize": {"content": str},
}
PER_REQUEST = {"id", "created", "created_at", "call_id", "item_id", "usage"}  # what no two answers have in common


def unlike(value, shape, path=""):
    """Where a value has not the members and types of a shape; nothing where it has."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return path
        wrong = (unlike(value.get(name, ...), of, f"{path}.{name}") for name, of in shape.items())
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return path
        wrong = (unlike(item, shape[0], f"{path}[{i}]") for i, item in enumerate(value))
    else:
        return None if isinstance(value, shape) else path
    return next((one for one in wrong if one is not None), None)


def strict_json(text):
    def members(pairs):
        names = [name for name, _ in pairs]
        assert len(set(names)) == len(names), names
        return dict(pairs)

    def constant(word):
        raise ValueError(word)

    return json.loads(text, object_pairs_hook=members, parse_constant=constant)


def lasting(value):
    """What equal requests' answers have in common."""
    if isinstance(value, dict):
        return {name: lasting(member) for name, member in value.items() if name not in PER_REQUEST}
    return [lasting(item) for item in value] if isinstance(value, list) else value


class RandomRequests(ServeTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "chat.gguf"
        model_files.add_text(LLAMA, self.model, "tokenizer.chat_template", TOOLS)
        print(f"TENON_TEST_SEED={SEED}")
        self.rng = random.Random(SEED)
        self.draw = Requests(self.rng, LLAMA_VOCABULARY)
        self.kinds = {"/v1/completions": self.draw.completion, "/v1/chat/completions": self.draw.chat,
                      "/v1/responses": self.draw.response, "/tokenize": self.draw.tokenize, "/detokenize": self.draw.detokenize}

    def drawn(self):
        path = self.rng.choice(list(self.kinds))
        return path, self.kinds[path]()

    def refusal(self, path, status, data, body):
        self.assertIn(status, (400, 413), (path, data, body))
        error = strict_json(data)["error"]
        self.assertEqual(error["type"], "invalid_request_error", (path, body))
        self.assertTrue(isinstance(error["code"], str) and error["message"], (path, body))
        return error

    def whole(self, server, path, body):
        """An answer that is not a stream, or None where the request was refused."""
        status, kind, data = server.ask(path, {**body, "stream": False} if path.startswith("/v1") else body)
        if status != 200:
            self.refusal(path, status, data, body)
            return None
        made = strict_json(data)
        self.assertEqual(kind, "application/json")
        self.assertIsNone(unlike(made, SHAPES[path]), (path, body, made))
        self.check_usage(path, body, made)
        return made

    def check_usage(self, path, body, made):
        if path in ("/v1/completions", "/v1/chat/completions"):
            usage = made["usage"]
            self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"], body)
            self.assertLessEqual(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"], body)

    def streamed(self, server, path, body):
        """The pieces of a stream put together, as the whole answer is."""
        if path == "/v1/responses":
            events = server.response_events(body)
            last, parts = events[-1]["response"], {}
            for event in events:
                if event["type"].endswith((".delta",)):
                    parts[event["output_index"]] = parts.get(event["output_index"], "") + event["delta"]
            for i, item in enumerate(last["output"]):
                self.assertEqual(parts[i], item.get("arguments") or item["content"][0]["text"], body)
            return last
        choices = {}
        for event in server.events(path, body):
            for piece in event["choices"]:
                choice = choices.setdefault(piece["index"], {"index": piece["index"], "finish_reason": None, "logprobs": None})
                self.assertIsNone(choice["finish_reason"], body)
                choice["finish_reason"] = piece["finish_reason"]
                if piece.get("logprobs"):
                    choice["logprobs"] = choice["logprobs"] or {}
                    for name, tokens in piece["logprobs"].items():
                        choice["logprobs"][name] = choice["logprobs"].get(name, []) + tokens
                if path == "/v1/completions":
                    choice["text"] = choice.get("text", "") + piece["text"]
                else:
                    self.add_delta(choice.setdefault("message", {"role": None, "content": ""}), piece["delta"])
        return {"choices": [choices[i] for i in sorted(choices)]}

    def add_delta(self, message, delta):
        for call in delta.pop("tool_calls", ()):
            calls = message.setdefault("tool_calls", [])
            self.assertEqual(call.pop("index"), len(calls))
            calls.append(call)
        for name, text in delta.items():
            message[name] = (message.get(name) or "") + text

    def assert_same(self, made, other, path, body):
        if path in ("/v1/completions", "/v1/chat/completions"):
            made, other = made["choices"], other["choices"]
            for choice in made + other:
                if "message" in choice:
                    choice["message"]["content"] = choice["message"]["content"] or None
        self.assertEqual(lasting(made), lasting(other), (path, body))

    def test_answers_are_the_same_alone_in_pieces_and_beside_others(self):
        with self.serving(self.model, "--parallel", 5) as server:
            asked = []
            for _ in range(ROUNDS):
                path, body = self.drawn()
                body.pop("stream", None)
                made = self.whole(server, path, body)
                if made is not None:
                    asked.append((path, body, made))
            self.assertGreater(len(asked), ROUNDS // 2)

            def again(one):
                path, body, made = one
                is_stream = path.startswith("/v1")
                self.assert_same(self.streamed(server, path, body) if is_stream else self.whole(server, path, body), made, path, body)

            before = server.metrics()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(again, asked))
            # Both rounds had the same tokens.
            server.until_idle()
            metrics = server.metrics()
            self.assertEqual(metrics["answers_failed"], 0)
            for name in ("prompt_tokens", "generated_tokens", "answers_ended"):
                self.assertEqual(metrics[name], 2 * before[name], name)

    def test_wrong_requests_are_refused_and_nothing_else_happens(self):
        def ask(one):
            path, data = one
            status, kind, answer = server.ask(path, data)
            if status != 200:
                self.refusal(path, status, answer, data)
            elif kind == "application/json":
                self.assertIsNone(unlike(strict_json(answer), SHAPES[path]), (path, data, answer))
            else:
                for line in answer.decode().split("\n"):
                    if line.startswith("data: {"):
                        strict_json(line.removeprefix("data: "))
            return status

        jobs = []
        for _ in range(4 * ROUNDS):
            path, body = self.drawn()
            data = self.draw.encoded(self.draw.changed(body) if self.draw.maybe(0.75) else body)
            jobs.append((path, self.draw.damaged(data) if self.draw.maybe(0.25) else data))
        with self.serving(self.model, "--parallel", 5) as server:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                statuses = list(pool.map(ask, jobs))
            self.assertGreater(statuses.count(400), ROUNDS // 2)
            server.until_idle()
            self.assertEqual(server.ask("/v1/completions", {"prompt": "a", "max_tokens": 1})[0], 200)

    def test_encoders(self):
        for name, path, draw in (("bert", "/v1/embeddings", self.draw.embedding), ("xlm_roberta_rank", "/v1/rerank", self.draw.rerank)):
            with self.serving(ENCODERS / f"{name}.gguf") as server:
                for _ in range(ROUNDS):
                    body = draw()
                    made = self.whole(server, path, body)
                    if made is not None:
                        self.assert_same(self.whole(server, path, body), made, path, body)
                    if path == "/v1/rerank":
                        continue  # a document that grows loses its end, and the server prints a warning
                    data = self.draw.encoded(self.draw.changed(body))
                    status, _, answer = server.ask(path, self.draw.damaged(data) if self.draw.maybe() else data)
                    if status != 200:
                        self.refusal(path, status, answer, data)
                    else:
                        self.assertIsNone(unlike(strict_json(answer), SHAPES[path]), (data, answer))

    def test_connections(self):
        """Bodies in chunks, requests without waiting for answers, connections that end anywhere."""
        def head(framing):
            return b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n\r\n"

        def with_length(body):
            return head(b"Content-Length: %d" % len(body)) + body

        def in_chunks(body):
            size = self.rng.randint(1, 9)
            pieces = [body[i:i + size] for i in range(0, len(body), size)] + [b""]
            return head(b"Transfer-Encoding: chunked") + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)

        def answers(*pieces):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
                for piece in pieces:
                    client.sendall(piece)
                answer = b""
                while more := client.recv(1 << 16):
                    answer += more
            return answer

        right, wrong = b'{"prompt": "abc", "max_tokens": 3, "seed": 1}', b'{"prompt": 7}'
        endless = b'{"prompt": "abc", "logit_bias": {"104": 1000}, "stream": true}'
        last = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        with self.serving(self.model, "--ctx", 100000) as server:
            many = [self.rng.choice([with_length, in_chunks])(self.rng.choice([right, wrong])) for _ in range(12)]
            answer = answers(b"".join(many) + last)
            self.assertEqual(answer.count(b"HTTP/1.1 "), 13)
            self.assertEqual(answer.count(b"HTTP/1.1 400"), sum(b"7" in one and b"abc" not in one for one in map(self.joined, many)))
            answer = answers(*(bytes([byte]) for byte in with_length(right) + last))
            self.assertEqual(answer.count(b"HTTP/1.1 200"), 2)
            # A second length is refused, and the connection is closed: it is not certain where a next request would begin.
            for framing in (b"Content-Length: 3\r\nContent-Length: %d" % len(right), b"Content-Length: 3\r\ntransfer-encoding: chunked"):
                answer = answers(head(framing) + right)
                self.assertEqual((answer.count(b"HTTP/1.1 "), answer[:13]), (1, b"HTTP/1.1 400 "))
                self.assertIn(b"more than one length", answer)
            length = b"Content-Length: %d" % len(right)
            for framing, status in (
                    (length.replace(b":", b" :"), 400), (length.replace(b":", b"\t:"), 400), (length.replace(b": ", b":\r\n "), 400),
                    (b"Transfer-Encoding : chunked", 400), (b"transfer-encoding:\r\n chunked", 400), (b"Transfer-Encoding: gzip", 501),
                    (b"Transfer-Encoding: gzip, chunked", 501), (b"Content-Length: %d" % (200 << 20), 413),
                    (b"Content-Length: %d\r\nExpect: 100-continue" % (65 << 20), 413)):
                answer = answers(head(framing) + right + last)
                self.assertEqual((answer.count(b"HTTP/1.1 "), answer[:13]), (1, b"HTTP/1.1 %d " % status), framing)
            for line, status in ((b"http://a/v1/completions", 200), (b"/v1/completions%00", 404), (b"/v1/completions%00/a", 404)):
                answer = answers(with_length(right).replace(b"/v1/completions", line) + last)
                self.assertEqual((answer.count(b"HTTP/1.1 "), answer[:13]), (2 if status == 200 else 1, b"HTTP/1.1 %d " % status), line)
            # A client that sends no more waits for its answer; only what comes before may be seen of that.
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
                client.sendall(with_length(b'{"prompt": "abc", "logit_bias": {"104": 1000}, "max_tokens": 4000}'))
                client.shutdown(socket.SHUT_WR)
                answer = http.client.HTTPResponse(client)
                answer.begin()
                self.assertEqual((answer.status, strict_json(answer.read())["usage"]["completion_tokens"]), (200, 4000))
            for _ in range(ROUNDS):
                data = self.rng.choice([with_length, in_chunks])(self.rng.choice([endless, right]))
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
                    client.sendall(data[:self.rng.randint(0, len(data))] if self.draw.maybe(0.5) else data)
                    if self.draw.maybe():
                        time.sleep(self.rng.random() * 0.02)
                    if self.draw.maybe(0.5):  # a reset in place of an end
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            server.until_idle()
            self.assertEqual(server.ask("/v1/completions", right)[0], 200)

    @staticmethod
    def joined(request):
        """A request without the lines of its chunks."""
        _, _, body = request.partition(b"\r\n\r\n")
        return body if b"chunked" not in request else b"".join(body.split(b"\r\n")[1::2])

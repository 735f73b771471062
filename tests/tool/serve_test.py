"""`tenon serve`: its answers are those of the other commands, whole, streamed and many at once; wrong requests."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import re
import signal
import socket
import struct
import subprocess
import time

import model_files
from commands_test import Folder
from harness import DATA, LLAMA, SOURCE, UNSUPPORTED, WRONG_CALL

ENCODERS = DATA / "encoders"
VISION = DATA / "vision"
# A template whose tools are listed and whose calls are JSON.
TOOLS = ("{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}"
         "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}<call>"
         '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</call>{% endfor %}<end>'
         "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}}}


class Server:
    """A running server."""

    def __init__(self, test, port, key=None):
        self.test, self.port, self.key = test, port, key

    def ask(self, path, body=None, method=None, headers=()):
        """The status, the type and the body of a request's response."""
        status, got, data = self.respond(path, body, method, headers)
        return status, got["Content-Type"], data

    def respond(self, path, body=None, method=None, headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            method = method or ("GET" if body is None else "POST")
            keys = {"Authorization": f"Bearer {self.key}"} if self.key else {}
            connection.request(method, path, data, {**keys, **dict(headers)})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def json(self, path, body=None, status=200, **more):
        got, kind, data = self.ask(path, body, **more)
        self.test.assertEqual((got, kind), (status, "application/json"), data)
        return json.loads(data)

    def events(self, path, body):
        """The data of a stream's events, which ends as it should."""
        status, headers, data = self.respond(path, {**body, "stream": True})
        self.test.assertEqual((status, headers["Content-Type"], headers["Cache-Control"]),
                              (200, "text/event-stream", "no-cache"), data)
        self.test.assertTrue(data.endswith(b"data: [DONE]\n\n"), data[-200:])
        events = [event for event in data.decode().split("\n\n") if event and not event.startswith(":")]
        self.test.assertTrue(all(event.startswith("data: ") for event in events), events)
        return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]

    def response_events(self, body):
        """The events of a streamed response, which are numbered and named as they should be."""
        status, kind, data = self.ask("/v1/responses", {**body, "stream": True})
        self.test.assertEqual((status, kind), (200, "text/event-stream"), data)
        events = []
        for number, text in enumerate(data.decode().removesuffix("\n\n").split("\n\n")):
            name, _, value = text.partition("\n")
            events.append(json.loads(value.removeprefix("data: ")))
            self.test.assertEqual((name, events[-1]["sequence_number"]), ("event: " + events[-1]["type"], number))
        return events

    def error(self, path, body, code, status=400, says="", **more):
        error = self.json(path, body, status, **more)["error"]
        self.test.assertEqual(set(error), {"message", "type", "param", "code"})
        self.test.assertEqual(error["code"], code, error)
        self.test.assertIn(says, error["message"])
        if error["param"] is not None:
            self.test.assertTrue(error["message"].startswith(error["param"] + ": "), error)
        return error

    def metrics(self):
        """The metrics, by their names."""
        status, kind, text = self.ask("/metrics")
        self.test.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"), text)
        values = {}
        for name, type, value in re.findall(
                r"# HELP (\w+) .+\n# TYPE \1 (\w+)\n\1 (\S+)\n", text.decode()):
            self.test.assertEqual(type, "counter" if name.endswith("_total") else "gauge", name)
            values[name.removeprefix("tenon_").removesuffix("_total")] = float(value)
        return values

    def until_idle(self):
        """Waits until no answer is under way."""
        for _ in range(600):
            if self.json("/health")["answers"] == 0:
                return
            time.sleep(0.05)
        self.test.fail("answers do not end")


class ServeTest(Folder):
    @contextlib.contextmanager
    def serving(self, *arguments, key=None):
        command = [self.program, "serve", *map(str, arguments), "--port", "0", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=SOURCE)
        with process:
            try:
                lines = []
                while not lines or lines[-1] not in (b"}\n", b""):
                    lines.append(process.stdout.readline())
                if not lines[-1]:
                    error = process.stderr.read()
                    if b"libmicrohttpd was not found" in error:
                        self.skipTest("built without libmicrohttpd")
                    self.fail(error)
                port = int(json.loads(b"".join(lines))["url"].rpartition(":")[2])
                yield Server(self, port, key)
                process.send_signal(signal.SIGINT)
                _, error = process.communicate(timeout=120)
                self.assertEqual((process.returncode, error), (0, b""))
            finally:
                process.kill()


class Completions(ServeTest):
    def test_answers_are_those_of_generate(self):
        prompt, options = "in the beginning", {"max_tokens": 12, "temperature": 0}
        alone = self.json("generate", LLAMA, "--prompt", prompt, "-n", 12, "--temp", 0, "--logprobs", 2)
        sampled = self.json("generate", LLAMA, "--prompt", prompt, "-n", 12, "--temp", 0.9, "--top-k", 7, "--seed", 42)
        with self.serving(LLAMA, "--alias", "tiny") as server:
            whole = server.json("/v1/completions", {"prompt": prompt, **options, "logprobs": 2})
            self.assertEqual((whole["object"], whole["model"]), ("text_completion", "tiny"))
            (choice,) = whole["choices"]
            self.assertEqual((choice["index"], choice["finish_reason"]), (0, "length"))
            self.assertEqual(choice["text"], alone["text"])
            tokens = len(server.json("/tokenize", {"content": prompt, "add_special": True})["tokens"])
            self.assertEqual(whole["usage"], {"prompt_tokens": tokens, "completion_tokens": 12, "total_tokens": tokens + 12,
                                              "prompt_tokens_details": {"cached_tokens": 0}})
            for i, token in enumerate(alone["logprobs"]):
                self.assertAlmostEqual(choice["logprobs"]["token_logprobs"][i], token["logprob"], places=6)
                self.assertEqual(len(choice["logprobs"]["top_logprobs"][i]), 2)

            events = server.events("/v1/completions", {"prompt": prompt, **options, "stream_options": {"include_usage": True}})
            self.assertEqual("".join(e["choices"][0]["text"] for e in events[:-1]), alone["text"])
            self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")
            self.assertEqual((events[-1]["choices"], events[-1]["usage"]), ([], whole["usage"]))

            other = server.json("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0.9, "top_k": 7,
                                                    "seed": 42})
            self.assertEqual(other["choices"][0]["text"], sampled["text"])

            ids = server.json("/tokenize", {"content": prompt, "add_special": True})["tokens"]
            several = server.json("/v1/completions", {"prompt": [ids, [5]], **options, "n": 2, "echo": True})["choices"]
            self.assertEqual([c["index"] for c in several], [0, 1, 2, 3])
            self.assertTrue(several[0]["text"].endswith(prompt + alone["text"]))
            self.assertEqual(several[0]["text"], several[1]["text"])
            self.assertEqual(several[2]["text"], several[3]["text"])
            self.assertEqual(server.json("/detokenize", {"tokens": ids})["content"].strip(), prompt)

    def test_choices_differ_unless_a_seed_is_given(self):
        with self.serving(LLAMA) as server:
            asked = {"prompt": "abc", "max_tokens": 24, "temperature": 1.5, "top_p": 1, "n": 3}
            made = [{c["text"] for c in server.json("/v1/completions", asked)["choices"]} for _ in range(2)]
            self.assertEqual([len(texts) for texts in made], [3, 3])
            self.assertNotEqual(*made)
            made = [server.json("/v1/completions", {**asked, "seed": 7})["choices"] for _ in range(2)]
            self.assertEqual(*made)
            # Bytes that are no text are told apart.
            (tops,) = server.json("/v1/completions", {"prompt": "abc", "max_tokens": 1, "logprobs": 20})["choices"][0]["logprobs"]["top_logprobs"]
            self.assertEqual(len(tops), 20)
            self.assertTrue(any(re.fullmatch(r"bytes:\\x[0-9a-f]{2}", token) for token in tops), tops)
            # -100 excludes a token for all that counts.
            only = server.json("/v1/completions", {**asked, "n": 1, "logit_bias": {"104": 1000}, "max_tokens": 5,
                                                   "repetition_penalty": 1})
            piece = server.json("/detokenize", {"tokens": [104] * 5})["content"]
            self.assertEqual(only["choices"][0]["text"], piece)

    def test_log_probabilities_come_with_their_tokens(self):
        asked = {"prompt": "in the", "max_tokens": 12, "temperature": 0, "logprobs": 2}
        with self.serving(LLAMA) as server:
            whole = server.json("/v1/completions", asked)["choices"][0]["logprobs"]
            pieces = [e["choices"][0] for e in server.events("/v1/completions", asked)]
            self.assertEqual(sum(len(whole[name]) for name in whole), 48)
            for name in whole:
                self.assertEqual(sum((p["logprobs"][name] for p in pieces), []), whole[name])
            for piece in pieces[:-1]:
                tokens = piece["logprobs"]["tokens"]
                if "\ufffd" not in piece["text"]:
                    self.assertEqual("".join(tokens), piece["text"])

    def test_prompts_that_begin_alike_are_read_once(self):
        common = "in the beginning the hand and the word were one " * 10
        for kept in (0, 16):
            with self.serving(LLAMA, "--keep-prompts", kept) as server:
                made = [server.json("/v1/completions", {"prompt": common + end, "max_tokens": 8, "temperature": 0})
                        for end in ("a", "b", "a")]
                cached = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in made]
                self.assertEqual([count > 0 for count in cached], [False, kept > 0, kept > 0])
                self.assertEqual(made[0]["choices"], made[2]["choices"])
                metrics = server.metrics()
                for metric, usage in (("prompt_tokens", "prompt_tokens"), ("generated_tokens", "completion_tokens")):
                    self.assertEqual(metrics[metric], sum(one["usage"][usage] for one in made))
                self.assertEqual(metrics["prompt_tokens_reused"], sum(cached))
                self.assertEqual((metrics["answers_ended"], metrics["answers_failed"], metrics["answers_under_way"]), (3, 0, 0))
                self.assertGreater(metrics["step_seconds"], 0)
                self.assertGreater(metrics["steps"], 3)
                if kept == 0:
                    alone = [one["choices"] for one in made]
                else:
                    self.assertEqual([one["choices"] for one in made], alone)

    def test_many_at_once(self):
        prompts = [f"number {i} " * (i % 7 + 1) for i in range(24)]
        with self.serving(LLAMA, "--parallel", 5) as server:
            def ask(prompt):
                body = {"prompt": prompt, "max_tokens": 20, "temperature": 0}
                if len(prompt) % 2:
                    return "".join(e["choices"][0]["text"] for e in server.events("/v1/completions", body))
                return server.json("/v1/completions", body)["choices"][0]["text"]

            alone = [ask(prompt) for prompt in prompts]
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                self.assertEqual(list(pool.map(ask, prompts)), alone)

    def test_answers_end_when_clients_go(self):
        endless = {"prompt": "abc", "logit_bias": {"104": 1000}}  # a token that ends nothing
        with self.serving(LLAMA, "--ctx", 100000, "--parallel", 2) as server:
            for stream in (True, False):
                body = json.dumps({**endless, "stream": stream}).encode()
                for _ in range(3):  # one of them waits
                    client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
                    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"
                                   % (len(body), body))
                    if stream:
                        self.assertIn(b"200 OK", client.recv(100))
                    else:
                        time.sleep(0.1)
                    client.close()
                server.until_idle()
            # The end of the server ends an answer, too.
            late = concurrent.futures.ThreadPoolExecutor(1).submit(server.ask, "/v1/completions", endless)
            while server.json("/health")["answers"] == 0:
                time.sleep(0.02)
        self.assertEqual(late.result()[0], 503)


class Chats(ServeTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "chat.gguf"
        model_files.add_text(LLAMA, self.model, "tokenizer.chat_template", TOOLS)

    def test_answers_are_those_of_generate(self):
        asked = {"messages": [{"role": "user", "content": "hand"}], "max_completion_tokens": 10, "temperature": 0}
        alone = self.json("generate", self.model, "--chat", "--prompt", "hand", "-n", 10, "--temp", 0)
        with self.serving(self.model) as server:
            whole = server.json("/v1/chat/completions", {**asked, "logprobs": True, "top_logprobs": 1})
            self.assertEqual(whole["object"], "chat.completion")
            (choice,) = whole["choices"]
            self.assertEqual(choice["message"], {"role": "assistant", "content": alone["text"]})
            self.assertEqual(choice["finish_reason"], "length")
            tokens = choice["logprobs"]["content"]
            self.assertEqual(len(tokens), 10)
            for token in tokens:
                self.assertEqual(bytes(token["bytes"]).decode("utf-8", "replace"), token["token"])
                self.assertEqual(token["top_logprobs"][0]["logprob"], token["logprob"])

            events = server.events("/v1/chat/completions", {**asked, "n": 2})
            for index in (0, 1):
                mine = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
                self.assertEqual(mine[0]["delta"], {"role": "assistant", "content": ""})
                self.assertEqual("".join(c["delta"].get("content", "") for c in mine), alone["text"])
                self.assertEqual([c["finish_reason"] for c in mine], [None] * (len(mine) - 1) + ["length"])

            # Log-probabilities come with their tokens.
            pieces = [e["choices"][0] for e in server.events("/v1/chat/completions", {**asked, "logprobs": True, "top_logprobs": 1})]
            self.assertEqual(sum((p["logprobs"]["content"] for p in pieces[1:]), []), tokens)
            self.assertTrue(all(p["logprobs"]["content"] for p in pieces[1:-1]), pieces)

            parts = [{"type": "text", "text": "ha"}, {"type": "text", "text": "nd"}]
            joined, apart = (server.json("/v1/chat/completions", {**asked, "messages": [{"role": "user", "content": content}]})
                             for content in ("ha\nnd", parts))
            self.assertEqual(joined["choices"], apart["choices"])

            # An answer that has begun is continued as the whole one is; members without a value are none.
            begun = self.json("generate", self.model, "--chat", "--prompt", "hand", "-n", 4, "--temp", 0)["text"]
            rest = server.json("/v1/chat/completions", {**asked, "max_completion_tokens": 6, "messages": [
                *asked["messages"], {"role": "assistant", "content": begun, "refusal": None, "tool_calls": None}]})
            self.assertEqual(rest["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"] + len(
                server.json("/tokenize", {"content": begun})["tokens"]))

    def test_tools_and_schemas(self):
        asked = {"messages": [{"role": "user", "content": "hand"}], "temperature": 1.2, "seed": 3, "tools": [WEATHER],
                 "max_tokens": 400}
        with self.serving(self.model) as server:
            for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
                body = {**asked, "tool_choice": choice, "parallel_tool_calls": False}
                (made,) = server.json("/v1/chat/completions", body)["choices"]
                self.assertEqual((made["finish_reason"], made["message"]["content"]), ("tool_calls", None))
                (call,) = made["message"]["tool_calls"]
                self.assertEqual(call["function"]["name"], "weather")
                self.assertIn(json.loads(call["function"]["arguments"])["city"], ("Oslo", "Rome"))
                events = [e["choices"][0] for e in server.events("/v1/chat/completions", body)]
                (streamed,) = [c for e in events for c in e["delta"].get("tool_calls", ())]
                self.assertEqual((streamed["index"], streamed["function"]), (0, call["function"]))
                self.assertEqual(events[-1]["finish_reason"], "tool_calls")

            # The conversation continues with the call and its result.
            messages = [*asked["messages"], made["message"], {"role": "tool", "tool_call_id": call["id"], "content": "cold"}]
            (last,) = server.json("/v1/chat/completions", {**asked, "messages": messages, "max_tokens": 3})["choices"]
            self.assertEqual(last["finish_reason"], "length")

            schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}},
                      "required": ["n"], "additionalProperties": False}
            for options in ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}},
                            {"response_format": {"type": "json_object", "schema": schema}}, {"json_schema": schema}):
                (made,) = server.json("/v1/chat/completions", {**asked, "tools": [], **options})["choices"]
                self.assertEqual(set(json.loads(made["message"]["content"])), {"n"})
            (made,) = server.json("/v1/chat/completions", {**asked, "tool_choice": "none", "grammar": 'root ::= "yes"'})["choices"]
            self.assertEqual((made["message"]["content"], made["finish_reason"]), ("yes", "stop"))

    def test_responses_are_chat_completions(self):
        sampling = {"temperature": 0, "seed": 3}
        user = [{"role": "user", "content": "hand"}]
        calls = [{"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"city": "Oslo"}'},
                 {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "cold"}]}]
        chat_calls = [{"role": "assistant", "content": "so", "tool_calls": [{"id": "c", "type": "function", "function": {
                          "name": "weather", "arguments": '{"city": "Oslo"}'}}]},
                      {"role": "tool", "name": "weather", "tool_call_id": "c", "content": "cold"}]
        so = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so", "annotations": []}]}
        with self.serving(self.model) as server:
            for asked, messages in (
                    ({"input": "hand"}, user),
                    ({"input": user, "instructions": "be"}, [{"role": "system", "content": "be"}, *user]),
                    ({"input": [{"role": "developer", "content": [{"type": "input_text", "text": "brief"}]}, *user], "instructions": "be"},
                     [{"role": "system", "content": "be\n\nbrief"}, *user]),
                    ({"input": [*user, so, *calls]}, [*user, *chat_calls]),
                    ({"input": [*user, so]}, [*user, {"role": "assistant", "content": "so"}])):
                with self.subTest(asked=asked):
                    chat = server.json("/v1/chat/completions", {"messages": messages, "max_tokens": 10, **sampling})
                    asked = {**asked, **sampling, "max_output_tokens": 10, "include": ["message.output_text.logprobs"]}
                    made = server.json("/v1/responses", asked)
                    self.assertEqual((made["status"], made["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
                    (item,) = made["output"]
                    (part,) = item["content"]
                    self.assertEqual((item["type"], item["status"], part["type"], part["text"], len(part["logprobs"])),
                                     ("message", "incomplete", "output_text", chat["choices"][0]["message"]["content"], 10))
                    self.assertEqual([made["usage"][n] for n in ("input_tokens", "output_tokens", "total_tokens")],
                                     [chat["usage"][n] for n in ("prompt_tokens", "completion_tokens", "total_tokens")])
                    events = server.response_events(asked)
                    self.assertEqual([e["type"] for e in events[:4]], ["response.created", "response.in_progress",
                                     "response.output_item.added", "response.content_part.added"])
                    self.assertEqual("".join(e["delta"] for e in events if e["type"] == "response.output_text.delta"), part["text"])
                    self.assertEqual((events[-1]["type"], events[-1]["response"]["output"][0]["content"]),
                                     ("response.incomplete", [part]))
                    self.assertEqual(events[-2]["item"], events[-1]["response"]["output"][0])

            tool = {"type": "function", **WEATHER["function"]}
            for choice in ("required", {"type": "function", "name": "weather"}):
                asked = {"input": "hand", "tools": [tool], "tool_choice": choice, "parallel_tool_calls": False, "seed": 3}
                (call,) = server.json("/v1/responses", asked)["output"]
                self.assertEqual((call["type"], call["name"]), ("function_call", "weather"))
                self.assertIn(json.loads(call["arguments"])["city"], ("Oslo", "Rome"))
                events = server.response_events(asked)
                self.assertEqual([e["type"] for e in events[2:]],
                                 ["response.output_item.added", "response.function_call_arguments.delta",
                                  "response.function_call_arguments.done", "response.output_item.done", "response.completed"])
                self.assertEqual(events[-1]["response"]["output"][0]["arguments"], call["arguments"])
            schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
            (item,) = server.json("/v1/responses", {"input": "hand", "seed": 3, "text": {
                "format": {"type": "json_schema", "name": "n", "schema": schema}}})["output"]
            self.assertIn(json.loads(item["content"][0]["text"]), ({"n": 1}, {"n": 2}))

            for wrong, code, says in (
                    ({"previous_response_id": "r"}, "Unsupported", "previous_response_id"), ({"background": True}, "Unsupported", "background"),
                    ({"tools": [{"type": "web_search"}]}, "Unsupported", "tools[0].type"), ({"input": 7}, "BadType", "input"),
                    ({"input": [{"type": "item_reference", "id": "x"}]}, "Unsupported", "input[0].type"),
                    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "Unsupported", "input[0].content[0].type"),
                    ({"input": [{"content": "a"}]}, "BadKey", "input[0].role"), ({"input": [{"role": "user", "content": 7}]}, "BadType", "input[0].content"),
                    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a/b"}]}]}, "Unsupported", "input[0].content[0].image_url"),
                    ({"text": {"format": {"type": "x"}}}, "Unsupported", "text.format.type"), ({"reasoning": 7}, "BadType", "reasoning"),
                    ({"text": {"format": {}}}, "BadKey", "text.format.type"), ({"reasoning": {"effort": ["low"]}}, "BadType", "reasoning.effort"),
                    ({"metadata": {"a": 1}}, "BadType", "metadata.a"), ({"tools": [{"type": "function"}]}, "BadKey", "tools[0].name"),
                    ({"input": [{"type": "function_call", "call_id": "c"}]}, "BadKey", "input[0].name"),
                    ({"input": [{"type": "function_call_output"}]}, "BadKey", "input[0].call_id"),
                    ({"max_output_tokens": 0}, "OutOfRange", "max_output_tokens"), ({"truncation": "auto"}, "Unsupported", "truncation"),
                    ({"tool_choice": "required"}, "BadArgument", "tools")):
                with self.subTest(wrong=wrong):
                    request = {"input": "a", **wrong}
                    error = server.error("/v1/responses", request, code, says=says)
                    self.assertIn(re.match(r"\w+", error["param"])[0], request)

    def test_reasoning_is_an_item_of_responses(self):
        template = TOOLS.replace("<|{{ m.role }}|>", "<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}")
        model_files.add_text(LLAMA, self.model, "tokenizer.chat_template", template)
        items = [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]} for text in ("the", "word")]
        with self.serving(self.model, "--grammar", 'root ::= "<think>so</think>" "yes"') as server:
            made = server.json("/v1/responses", {"input": [{"role": "user", "content": "hand"}, *items, {"role": "assistant", "content": "a"},
                                                           {"role": "user", "content": "and"}]})
            self.assertEqual([i["type"] for i in made["output"]], ["reasoning", "message"])
            self.assertEqual([i["content"][0]["text"] for i in made["output"]], ["so", "yes"])
            self.assertGreater(made["usage"]["output_tokens_details"]["reasoning_tokens"], 0)
            self.assertEqual([i["status"] for i in made["output"]], ["completed", "completed"])
            less = made["usage"]["output_tokens"] - 1
            cut = server.json("/v1/responses", {"input": "hand", "max_output_tokens": less, "max_tokens": 99, "logprobs": True})
            self.assertEqual((cut["status"], cut["usage"]["output_tokens"], cut["output"][-1]["status"]), ("incomplete", less, "incomplete"))
            self.assertEqual(made["usage"]["input_tokens"], server.json("/v1/chat/completions", {"messages": [
                {"role": "user", "content": "hand"}, {"role": "assistant", "content": "a", "reasoning_content": "the\nword"},
                {"role": "user", "content": "and"}]})["usage"]["prompt_tokens"])
            types = [e["type"] for e in server.response_events({"input": "hand"})]
            self.assertIn("response.reasoning_text.delta", types)
            self.assertLess(types.index("response.reasoning_text.done"), types.index("response.output_text.delta"))

    def test_images(self):
        model = self.folder / "gemma.gguf"
        model_files.add_text(DATA / "tiny_gemma3.gguf", model, "tokenizer.chat_template", model_files.CHATML)
        picture = VISION / "picture.ppm"
        alone = self.json("generate", model, "--mmproj", VISION / "gemma3.gguf", "--image", picture, "--chat", "--prompt",
                          "\nwhat", "-n", 4, "--temp", 0)
        url = "data:image/x-portable-pixmap;base64," + base64.b64encode(picture.read_bytes()).decode()

        def asked(url):
            return {"temperature": 0, "max_tokens": 4, "messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "what"}]}]}

        with self.serving(model, "--mmproj", VISION / "gemma3.gguf") as server:
            made = server.json("/v1/chat/completions", asked(url))
            self.assertEqual(made["choices"][0]["message"]["content"], alone["text"])
            (item,) = server.json("/v1/responses", {"temperature": 0, "max_output_tokens": 4, "input": [{"role": "user", "content": [
                {"type": "input_image", "image_url": url}, {"type": "input_text", "text": "what"}]}]})["output"]
            self.assertEqual(item["content"][0]["text"], alone["text"])
            server.error("/v1/chat/completions", asked("http://127.0.0.1/a.png"), "Unsupported", says="image_url.url")
            server.error("/v1/chat/completions", asked("data:image/png;base64,%%"), "BadEncoding")
            many = asked(url)
            many["messages"][0]["content"] *= 17
            server.error("/v1/chat/completions", many, "LimitExceeded", says="16 images")
            server.error("/v1/chat/completions", asked("data:image/png;base64,aaaa"), "BadMagic", says="messages[0]")
            # Refused by what the file says of itself, before there is memory for it, and by what is left beside other images.
            bomb = "data:image/x-portable-pixmap;base64," + base64.b64encode(b"P6 8192 8193 255\n").decode()
            server.error("/v1/chat/completions", asked(bomb), "LimitExceeded", says="67108864")
            rest = asked("data:image/x-portable-pixmap;base64," + base64.b64encode(b"P6 8192 8192 255\n").decode())
            server.error("/v1/chat/completions", rest, "Corrupt", says="0 bytes of pixels")
            rest["messages"][0]["content"].insert(0, asked(url)["messages"][0]["content"][0])
            server.error("/v1/chat/completions", rest, "LimitExceeded", says="content[1]")
        with self.serving(self.model) as server:
            server.error("/v1/chat/completions", asked(url), "Unsupported", says="--mmproj")


class Encoders(ServeTest):
    def test_embeddings_are_those_of_embed(self):
        texts = ["in the beginning", "the hand", "x"]
        for model in sorted(ENCODERS.glob("*bert*.gguf"))[:1]:
            alone = self.json("embed", model, *texts)["embeddings"]
            with self.serving(model) as server:
                made = server.json("/v1/embeddings", {"input": texts, "model": "any"})
                self.assertEqual([row["index"] for row in made["data"]], [0, 1, 2])
                self.assertEqual([row["embedding"] for row in made["data"]], alone)
                packed = server.json("/v1/embeddings", {"input": texts[1], "encoding_format": "base64"})["data"]
                bytes_ = base64.b64decode(packed[0]["embedding"], validate=True)
                one = self.json("embed", model, texts[1])["embeddings"][0]
                self.assertEqual(list(struct.unpack(f"<{len(one)}f", bytes_)), [struct.unpack("f", struct.pack("f", v))[0]
                                                                               for v in one])
                ids = [server.json("/tokenize", {"content": text, "add_special": True})["tokens"] for text in texts]
                rows = server.json("/v1/embeddings", {"input": ids})
                self.assertEqual((rows["data"], rows["usage"]), (made["data"], made["usage"]))
                self.assertEqual(server.json("/v1/embeddings", {"input": ids[1]})["data"][0]["embedding"], one)
                server.error("/v1/embeddings", {"input": [5, 10**9]}, "OutOfRange", says="input: token 1000000000")
                server.error("/v1/embeddings", {"input": ["x", [-1]]}, "OutOfRange", says="input[1]: token -1")
                server.error("/v1/embeddings", {"input": [[]]}, "BadInput", says="input[0]")
                server.error("/v1/embeddings", {"input": [[5] * 4000]}, "LimitExceeded", says="input[0]")
                for wrong in (7, {}, [1, "x"], [True], [[1.5]]):
                    server.error("/v1/embeddings", {"input": wrong}, "BadType", says="input")
                server.error("/v1/embeddings", {"input": []}, "BadArgument")
                server.error("/v1/embeddings", {"input": ["x"] * 2049}, "LimitExceeded", says="2048")
                server.error("/v1/embeddings", {"input": "x", "dimensions": 3}, "Unsupported", says="dimensions")
                server.error("/v1/embeddings", {"input": ["x", "the hand " * 2000]}, "LimitExceeded", says="input[1]: has")
                server.error("/v1/chat/completions", {"messages": []}, "not_found", status=404)


    def test_work_ends_when_clients_go(self):
        with self.serving(ENCODERS / "xlm_roberta_rank.gguf") as server:
            text = "the hand " * 200
            begin = time.monotonic()
            server.json("/v1/rerank", {"query": "the", "documents": [text] * 100})
            body = json.dumps({"query": "the", "documents": [text] * 2048}).encode()
            alone = 20 * (time.monotonic() - begin)
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
                    client.sendall(b"POST /v1/rerank HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            time.sleep(0.1)
            begin = time.monotonic()
            server.json("/v1/rerank", {"query": "the", "documents": ["a"]})
            self.assertLess(time.monotonic() - begin, max(alone, 2))
            server.error("/v1/rerank", {"query": text * 9, "documents": ["a"]}, "LimitExceeded", says="query: has")


class Refusals(ServeTest):
    def test_wrong_requests(self):
        with self.serving(LLAMA, "--api-key", "secret", key="secret") as server:
            good = {"prompt": "a", "max_tokens": 1}
            self.assertEqual(server.json("/v1/models")["data"][0]["id"], LLAMA.name)
            server.error("/v1/models", None, "invalid_api_key", 401, headers={"Authorization": "Bearer secre"})
            server.json("/v1/models", headers={"Authorization": "bearer secret"})
            server.error("/v1/none", None, "not_found", 404)
            server.error("/v1/completions", None, "method_not_allowed", 405)
            self.assertEqual(server.respond("/v1/completions")[1]["Allow"], "POST")
            self.assertEqual(server.respond("/health", {})[1]["Allow"], "GET, HEAD")
            self.assertEqual(server.respond("/metrics", headers={"Authorization": "no"})[1]["WWW-Authenticate"], "Bearer")
            status, headers, data = server.respond("/health", method="HEAD")
            self.assertEqual((status, headers["Content-Type"], data), (200, "application/json", b""))
            server.error("/v1/completions", b"{", "Syntax")
            server.error("/v1/completions", b"[" * 100000, "DepthLimit")
            server.error("/v1/completions", b'{"prompt": "\xff"}', "Syntax")
            server.error("/v1/completions", b'{"prompt": "a", "max_tokens": 1}\0 and more', "Syntax", says="zero byte")
            # What is shown of a value ends with a character.
            server.error("/v1/completions", {**good, "temperature": "a" + "\u00fc" * 60}, "BadType", says="\u00fc...")
            server.error("/v1/completions", b"[]", "BadType")
            server.error("/v1/completions", {str(i): 0 for i in range(20000)}, "LimitExceeded", says="members")
            long = {**good, "messages": [{"role": "user", "content": "a"}] * 20000}
            self.assertEqual(server.ask("/v1/completions", long)[0], 200)
            server.error("/v1/completions", {**good, "stop": ["a"] * 33}, "LimitExceeded", says="stop")
            server.error("/v1/completions", {**good, "logit_bias": [[1, 1]] * 1025}, "LimitExceeded", says="logit_bias")
            for window in "repeat_last_n", "repetition_window", "dry_window":
                self.assertEqual(server.ask("/v1/completions", {**good, window: -1})[0], 200)
            server.error("/v1/completions", {}, "BadKey", says="prompt")
            for wrong, code, says in (
                ({"prompt": 7}, "BadType", "prompt"), ({"prompt": []}, "BadType", "prompt"),
                ({"prompt": ["a"] * 9, "n": 128}, "LimitExceeded", "128"), ({"prompt": [[]]}, "BadType", "prompt"), ({"prompt": [1, "a"]}, "BadType", "prompt"),
                ({"prompt": [10**9]}, "OutOfRange", "10000"), ({"temperature": "hot"}, "BadType", '"hot"'),
                ({"temperature": -1}, "BadArgument", "temperature"), ({"top_p": 7}, "BadArgument", "top_p"),
                ({"n": 0}, "OutOfRange", "n: "), ({"n": 1e9}, "OutOfRange", "n: "), ({"max_tokens": 1.5}, "BadType", "max_tokens"),
                ({"max_tokens": 1e300}, "BadType", "max_tokens"), ({"stop": [1]}, "BadType", "stop"),
                ({"stop": ""}, "BadArgument", "stop"), ({"logit_bias": {"x": 1}}, "BadType", "logit_bias"),
                ({"logit_bias": {"5": 1e300}}, "BadArgument", "logit_bias"), ({"logit_bias": [[5, -1e300]]}, "BadArgument", "logit_bias"),
                ({"logit_bias": {"99999": 1}}, "BadArgument", "99999"), ({"stream": 1}, "BadType", "stream"),
                ({"grammar": "root ::= ("}, "Syntax", "grammar: "), ({"json_schema": 7}, "BadType", "json_schema: "),
                ({"response_format": {"type": "json_object", "schema": {"type": "x"}}}, "BadArgument", "response_format.schema: "),
                ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "Unsupported", "json_schema.schema: "),
                ({"repeat_penalty": 0}, "BadArgument", "repeat_penalty"), ({"prompt": [2**63]}, "OutOfRange", str(2**63)),
                 ({"suffix": "x"}, "Unsupported", "suffix"),
                ({"response_format": {"type": "x"}}, "Unsupported", "response_format.type"),
                ({"logit_bias": {str(2**40): 1}}, "BadArgument", str(2**40)), ({"logit_bias": [[-7, 1]]}, "BadArgument", "token -7"),
                ({"functions": [{"name": "f"}]}, "Unsupported", "tools"), ({"structured_outputs": {"json": {}}}, "Unsupported", "response_format"),
                ({"guided_choice": ["a"]}, "Unsupported", "grammar"), ({"samplers": ["top_k"]}, "Unsupported", "samplers"),
                ({"min_tokens": 2}, "Unsupported", "min_tokens"), ({"mirostat": 3}, "OutOfRange", "mirostat"),
                ({"dry_multiplier": 1, "dry_sequence_breakers": ["a" * 65]}, "LimitExceeded", "64 bytes"),
                ({"dry_multiplier": 1, "dry_sequence_breakers": [""]}, "BadArgument", "is empty"),
                ({"logprobs": 500}, "OutOfRange", "logprobs"), ({"prompt": "a" * 9000}, "context_length_exceeded", "tokens"),
            ):
                with self.subTest(wrong=str(wrong)[:60]):
                    error = server.error("/v1/completions", {**good, **wrong}, code, says=says)
                    if says == "128":  # of the prompts and choices together
                        self.assertIsNone(error["param"])
                    else:
                        self.assertIn(re.match(r"\w+", error["param"])[0], wrong)
            server.error("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, "TemplateError",
                         says="--chat-template")
            server.error("/detokenize", {"tokens": [2**40]}, "OutOfRange", says=f"tokens: token {2**40}")
            server.error("/v1/completions", b" " * (64 << 20) + b"  {}", "LimitExceeded", 413)
            self.assertEqual(server.ask("/v1/completions", good)[0], 200)

    def test_wrong_messages(self):
        model = self.folder / "chat.gguf"
        model_files.add_text(LLAMA, model, "tokenizer.chat_template", TOOLS)
        with self.serving(model) as server:
            good = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
            for wrong, code, says in (
                ({"messages": []}, "BadType", "messages"), ({"messages": ["a"]}, "BadType", "messages[0]"),
                ({"messages": [{"content": "a"}]}, "BadKey", "messages[0].role"),
                ({"messages": [{"role": "user", "content": 7}]}, "BadType", "messages[0].content"),
                ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "Unsupported", "messages[0].content[0].type"),
                ({"tools": {}}, "BadType", "tools"), ({"tools": [WEATHER], "tool_choice": "maybe"}, "BadType", "tool_choice"),
                ({"tools": [WEATHER], "tool_choice": {"function": {"name": "no"}}}, "BadArgument", "no"),
                ({"tools": [WEATHER], "tool_choice": "required", "grammar": 'root ::= "a"'}, "BadArgument", "tool_choice"),
                ({"tool_choice": "required"}, "BadArgument", "tool_choice"), ({"chat_template_kwargs": []}, "BadType", "chat_template_kwargs"),
                ({"top_logprobs": 50, "logprobs": True}, "OutOfRange", "top_logprobs"),
                ({"tools": [7]}, "BadType", "tools[0]"), ({"tools": [{"type": "function"}]}, "BadKey", "tools[0].function"),
                ({"tools": [{"type": "x"}]}, "Unsupported", "tools[0].type"), ({"tools": [{"function": {"name": 7}}]}, "BadType", "tools[0].function.name"),
                ({"tools": [{"function": {"name": ""}}]}, "BadArgument", "tools[0].function.name"),
                ({"tools": [{"function": {"name": "a", "parameters": 7}}]}, "BadType", "tools[0].function.parameters"),
                ({"tools": [WEATHER], "tool_choice": {"function": {}}}, "BadKey", "tool_choice.function.name"),
                ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "Unsupported", "allowed_tools"),
                ({"modalities": ["text", "audio"]}, "Unsupported", "audio"),
                ({"tools": [{"function": {"name": "a", "parameters": {"type": "x"}}}], "tool_choice": "required"}, "BadArgument", "tools: "),
                ({"messages": [{"role": "user", "content": "a", "name": 7}]}, "BadType", "messages[0].name"),
                ({"messages": [{"role": "assistant", "tool_calls": 7}]}, "BadType", "messages[0].tool_calls"),
                ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "a"}}]}]}, "BadKey", "messages[0].tool_calls[0].function.arguments"),
            ):
                with self.subTest(wrong=str(wrong)[:80]):
                    error = server.error("/v1/chat/completions", {**good, **wrong}, code, says=says)
                    self.assertIn(re.match(r"\w+", error["param"])[0], wrong)
            self.assertEqual(server.error("/v1/chat/completions", {"messages": [{}]}, "BadKey")["param"], "messages[0].role")
            self.assertIsNone(server.error("/v1/chat/completions", b"{", "Syntax")["param"])

    def test_tokens_as_in_llama_cpp(self):
        for model, tokenizes in ((LLAMA, "generate"), (sorted(ENCODERS.glob("*bert*.gguf"))[0], "embed")):
            with self.subTest(tokenizes), self.serving(model) as server:
                plain = server.json("/tokenize", {"content": "the hand"})["tokens"]
                special = server.json("/tokenize", {"content": "the hand", "add_special": True})["tokens"]
                self.assertEqual(len(special) - len(plain), 2 if tokenizes == "embed" else 0)  # [CLS] and [SEP]
                self.assertEqual(server.json("/detokenize", {"tokens": plain})["content"].strip(), "the hand")
                pieces = server.json("/tokenize", {"content": "the hand", "with_pieces": True})["tokens"]
                self.assertEqual([token["id"] for token in pieces], plain)
                self.assertEqual({type(token["piece"]) for token in pieces}, {str})
                for member in ("add_special", "parse_special", "with_pieces"):
                    server.error("/tokenize", {"content": "a", member: "yes"}, "BadType", says=member)
                server.error("/tokenize", {"content": 7}, "BadType", says="content")
        with self.serving(LLAMA) as server:
            read = server.json("/tokenize", {"content": "<|im_start|>a"})["tokens"]
            kept = server.json("/tokenize", {"content": "<|im_start|>a", "parse_special": False})["tokens"]
            self.assertLess(len(read), len(kept))
            self.assertEqual(kept, self.json("tokenize", LLAMA, "<|im_start|>a", "--no-special")["ids"])
            (*_, byte) = server.json("/tokenize", {"content": "\u4e2d", "with_pieces": True})["tokens"]
            self.assertEqual(byte["piece"], [0xAD])

    def test_pages_of_other_origins(self):
        asked = {"prompt": "a", "max_tokens": 1}
        with self.serving(LLAMA, "--cors", "https://example.org", "--api-key", "secret", key="secret") as server:
            status, headers, data = server.respond("/v1/completions", method="OPTIONS", headers={"Authorization": ""})
            self.assertEqual((status, data), (204, b""))
            self.assertEqual(headers["Access-Control-Allow-Methods"], "GET, POST")
            self.assertEqual(headers["Access-Control-Allow-Headers"], "Authorization, *")
            responses = [("/v1/completions", asked, {}, 200), ("/v1/completions", {**asked, "stream": True}, {}, 200), ("/v1/models", None, {}, 200),
                         ("/v1/completions", {}, {}, 400), ("/none", None, {}, 404), ("/v1/models", None, {"Authorization": "no"}, 401)]
            for path, body, more, wanted in responses:
                status, headers, data = server.respond(path, body, headers=more)
                self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (wanted, "https://example.org"), data)
        with self.serving(LLAMA) as server:
            status, headers, _ = server.respond("/v1/completions", method="OPTIONS")
            self.assertEqual((status, headers["Allow"], headers["Access-Control-Allow-Origin"]), (405, "POST", None))
        for wrong in ("example.org", "https://", "https://a/b", "https://a\nb"):
            self.refused(WRONG_CALL, "BadArgument", "serve", LLAMA, "--cors", wrong, says="--cors")

    def test_models_and_health_by_other_names(self):
        with self.serving(LLAMA, "--alias", "family/tiny") as server:
            (model,) = server.json("/models")["data"]
            self.assertEqual(server.json("/v1/models/family/tiny"), model)
            self.assertEqual(server.json("/v1/health"), server.json("/health"))
            server.error("/v1/models/other", None, "not_found", 404)

    def test_tools_that_the_template_cannot_call(self):
        model = self.folder / "chat.gguf"
        model_files.add_text(LLAMA, model, "tokenizer.chat_template", model_files.CHATML)
        good = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        with self.serving(model) as server:
            for choice in ("auto", "required"):
                server.error("/v1/chat/completions", {**good, "tools": [WEATHER], "tool_choice": choice}, "Unsupported", says="tools: ")
            server.error("/v1/chat/completions", {**good, "tools": [WEATHER]}, "Unsupported", says="shows no calls")
            self.assertEqual(server.ask("/v1/chat/completions", {**good, "tools": [WEATHER], "tool_choice": "none"})[0], 200)
            self.assertEqual(server.ask("/v1/chat/completions", {**good, "tools": []})[0], 200)

    def test_white_space_of_answers(self):
        model = self.folder / "chat.gguf"
        model_files.add_text(LLAMA, model, "tokenizer.chat_template", model_files.CHATML)
        user = {"role": "user", "content": "a"}
        begun = {"role": "assistant", "content": "x = 1"}
        with self.serving(model) as server:
            for messages in ([user], [user, begun]):
                asked = {"messages": messages, "grammar": 'root ::= "    return x \\n"'}
                made = server.json("/v1/chat/completions", asked)["choices"][0]
                self.assertEqual(made["message"]["content"], "    return x \n")
                events = server.events("/v1/chat/completions", asked)
                self.assertEqual("".join(e["choices"][0]["delta"].get("content", "") for e in events), "    return x \n")
                cut = server.json("/v1/chat/completions", {**asked, "stop": "return"})["choices"][0]
                self.assertEqual(cut["message"]["content"], "    ")

    def test_properties_and_templates_as_in_llama_cpp(self):
        model = self.folder / "chat.gguf"
        model_files.add_text(LLAMA, model, "tokenizer.chat_template", TOOLS)
        messages = [{"role": "user", "content": "a"}]
        with self.serving(model, "--alias", "tiny", "--ctx", 200, "--parallel", 3, "--temp", 0.25) as server:
            props = server.json("/props")
            self.assertEqual((props["model_alias"], props["total_slots"], props["chat_template"]), ("tiny", 3, TOOLS))
            settings = props["default_generation_settings"]
            self.assertEqual((settings["n_ctx"], settings["params"]["temperature"]), (200, 0.25))
            self.assertEqual(props["modalities"], {"vision": False, "audio": False})
            for more, wanted in (({}, "<|user|>a<end><|assistant|>"), ({"tools": [WEATHER]}, "[weather]<|user|>a<end><|assistant|>")):
                self.assertEqual(server.json("/apply-template", {"messages": messages, **more}), {"prompt": wanted})
            begun = [*messages, {"role": "assistant", "content": "so"}]
            self.assertEqual(server.json("/apply-template", {"messages": begun})["prompt"], "<|user|>a<end><|assistant|>so")
            long = {"messages": [{"role": "user", "content": "a" * 1000}]}
            self.assertIn("a" * 1000, server.json("/apply-template", long)["prompt"])
            server.error("/apply-template", {"messages": []}, "BadType", says="messages")
        with self.serving(LLAMA) as server:
            self.assertEqual(server.json("/props")["chat_template"], "")
            server.error("/apply-template", {"messages": messages}, "TemplateError")

    def test_seeds_of_64_bits(self):
        with self.serving(LLAMA) as server:
            good = {"prompt": "a", "max_tokens": 4, "temperature": 1}
            texts = [server.json("/v1/completions", {**good, "seed": 2**63 - 1})["choices"][0]["text"] for _ in range(2)]
            self.assertEqual(*texts)
            self.assertEqual(server.ask("/v1/completions", {**good, "seed": -2**63})[0], 200)
            server.error("/v1/completions", {**good, "seed": 2**63}, "OutOfRange", says=f"seed: is {2**63}, and can be at most {2**63 - 1}")
            server.error("/v1/completions", {**good, "seed": 1.5}, "BadType", says="an integer")

    def test_members_of_other_servers(self):
        good = {"prompt": "hand and hand and hand and", "max_tokens": 12, "temperature": 0}
        with self.serving(LLAMA, "--ctx", 600) as server:
            def text(**more):
                return server.json("/v1/completions", {**good, **more})["choices"][0]["text"]

            plain = text()
            # Off, empty or without an effect on the answer.
            for same in ({"min_tokens": 0}, {"functions": []}, {"samplers": None}, {"top_k": -1}, {"ignore_eos": False}, {"user": "a", "metadata": {},
                          "store": True, "service_tier": "auto"}, {"top_p": 0, "temperature": 3}, {"dry_sequence_breakers": ["a"]}):
                penalty = {"repetition_penalty": 1} if "temperature" in same else {}
                self.assertEqual(text(**same, **penalty), plain, same)
            short = server.json("/v1/completions", {"prompt": "a", "n_predict": 3})
            self.assertEqual(short["usage"]["completion_tokens"], 3)
            self.assertEqual(text(guided_json={"enum": [7]}), text(guided_json='{"enum": [7]}'))
            self.assertEqual(json.loads(text(guided_json={"enum": [7]})), 7)
            sampled = {"temperature": 1.5, "seed": 3, "max_tokens": 40}
            self.assertNotEqual(text(**sampled, mirostat=2, mirostat_tau=0.1), text(**sampled))
            self.assertNotEqual(text(**sampled, top_p=0.5, temperature_last=True), text(**sampled, top_p=0.5))
            # DRY has its breakers unless a request says otherwise: colons lose nothing.
            colons = {"logit_bias": {"61": 30}, "max_tokens": 12, "dry_multiplier": 8}
            self.assertEqual(text(**colons), ":" * 12)
            self.assertNotEqual(text(**colons, dry_sequence_breakers=[]), ":" * 12)
            # The end of text ends nothing.
            ends = {"logit_bias": {"2": 1000}, "max_tokens": 20}  # the file's eos_token_id
            self.assertEqual(text(**ends), "")
            made = server.json("/v1/completions", {**good, **ends, "ignore_eos": True})
            self.assertEqual(made["usage"]["completion_tokens"], 20)

    def test_messages_of_developers(self):
        model = self.folder / "chat.gguf"
        for knows in (False, True):
            template = TOOLS + ("{# developer #}" if knows else "")
            model_files.add_text(LLAMA, model, "tokenizer.chat_template", template)
            with self.serving(model) as server:
                used = [server.json("/v1/chat/completions", {"max_tokens": 1, "messages": [
                    {"role": role, "content": "b"}, {"role": "user", "content": "a"}]})["usage"]["prompt_tokens"] for role in ("developer", "system")]
                self.assertEqual(used[0] != used[1], knows)

    def test_wrong_calls(self):
        self.refused(WRONG_CALL, "BadArgument", "serve", LLAMA, "--api-key", "", says="empty")
        self.refused(WRONG_CALL, "BadArgument", "serve", "--api-kye", "a", says="no option '--api-kye'; did you mean '--api-key'?")
        with self.serving(LLAMA) as server:
            done = self.tenon("serve", LLAMA, "--port", server.port, status=5)
            self.assertIn(b"IoError", done.stderr)
        self.refused(WRONG_CALL, "BadArgument", "serve", LLAMA, "--host", "example.org", says="--host")
        self.refused(UNSUPPORTED, "Unsupported", "serve", LLAMA, "--pooling", "rank", says="classifier")

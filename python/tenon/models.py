"""Language models with Python's conveniences: texts, chats and streams."""

import concurrent.futures
import functools
import json
import numbers
import os
import queue
import secrets
import string
import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from . import _tenon
from .errors import ArgumentError, UnsupportedError

Conversation = _tenon.Conversation
ImagePrompt = _tenon.ImagePrompt
image_marker = _tenon.image_marker


@dataclass
class Generated:
    """What a model wrote. `end` says why it stopped: "token", "stop", "grammar", "length", "context",
    "cancelled", "deadline"."""

    text: str
    tokens: list
    end: str
    prompt_tokens: int
    plan_time: float  # seconds, as the other times
    prefill_time: float
    decode_time: float
    drafted_tokens: int = 0  # with a draft: tokens that were guessed ahead,
    accepted_tokens: int = 0  # and those among them that were drawn
    reused_tokens: int = 0  # of a batched model: tokens of the prompt that one before it had read
    choices: list = field(default_factory=list)  # with logprobs: (token, log-probability, [(token, ...), ...])
    # Of chat(): the answer as a message of the conversation, a dict of role, content, and, where it has them,
    # reasoning_content and tool_calls, as OpenAI's API has it.
    message: dict = None


@dataclass
class Draft:
    """How tokens of an answer are guessed ahead, so that the model reads several at once (speculative decoding). The
    answer is the one without, and takes less time where guesses are right.

    `model`: a smaller LanguageModel with the same tokens, or a conversation with one, which may serve several calls;
    it goes on while its tokens are as probable as `min_probability`. `lookup`: guesses are what followed the last
    tokens, up to this many of them and at least `min_lookup`, earlier in the text; 0: none, 8 is a good number for
    answers that repeat parts of the prompt. At most `max_tokens` are guessed at once: up to 3 the CPU gives the bits of
    single tokens, and takes little longer.
    """

    model: object = None
    min_probability: float = 0.75
    lookup: int = 0
    min_lookup: int = 3
    max_tokens: int = 3

    def _options(self):
        options = dict(vars(self))
        if isinstance(self.model, LanguageModel):
            options["model"] = self.model.conversation()
        return options


class _Stream:
    """Pieces of text that a thread makes, and what it returns in the end. May be closed while another thread waits.

    The thread is at most `ahead` pieces ahead of the reader, 0: any number. `notify` is called when there is one more.
    """

    def __init__(self, generate, ahead=16, notify=None):
        self._generate = generate  # of a function that takes text, and of a cancellation
        self._pieces = queue.Queue(maxsize=ahead)
        self._notify = notify
        self._cancellation = _tenon._Cancellation()
        self._closed = threading.Event()
        self._worker = threading.Thread(target=self._work, name="tenon-stream", daemon=True)
        self._worker.start()

    def get(self):
        """(text, None), or (None, the result) in the end, and after close(); raises what the thread raised."""
        return self._raised(self._pieces.get())

    def poll(self):
        """As get(), or None where there is nothing yet."""
        try:
            return self._raised(self._pieces.get_nowait())
        except queue.Empty:
            return None

    @staticmethod
    def _raised(piece):
        if isinstance(piece[1], BaseException):
            raise piece[1]
        return piece

    def close(self):
        self._closed.set()
        self._cancellation.cancel()
        self._worker.join()
        try:
            self._pieces.put_nowait((None, None))
        except queue.Full:
            pass

    def _work(self):
        try:
            self._put((None, self._generate(lambda text: self._put((text, None)), self._cancellation)))
        except BaseException as error:  # noqa: BLE001  raised again where the pieces are read
            self._put((None, error))

    def _put(self, item):
        while not self._closed.is_set():
            try:
                self._pieces.put(item, timeout=0.1)
                return self._notify() if self._notify else None
            except queue.Full:
                pass


def _adapter_pairs(adapters):
    """[(path, scale), ...] of LanguageModel's argument."""
    def is_pair(one):
        return isinstance(one, (list, tuple)) and len(one) == 2 and isinstance(one[1], numbers.Real)

    if adapters is None:
        return []
    is_one = is_pair(adapters) or not isinstance(adapters, (list, tuple))
    pairs = [one if is_pair(one) else (one, 1.0) for one in ([adapters] if is_one else adapters)]
    for path, _ in pairs:
        if not isinstance(path, (str, os.PathLike)):
            raise ArgumentError("BadArgument", 11010, "LanguageModel", f"adapters: {path!r} is neither a path nor a pair "
                                "of a path and a number")
    return [(path, float(scale)) for path, scale in pairs]


class LanguageModel:
    """A decoder-only language model from a GGUF file.

        model = tenon.LanguageModel("model.gguf")
        print(model.generate("The capital of France is").text)
        for piece in model.stream_chat("Hello!"):
            print(piece, end="", flush=True)

    Keyword arguments: context (positions of a conversation), chunk (tokens of a prompt at once), cache (type of the
    KV cache: "f16", "q8_0"), device ("npu://sim"), cpu_fallback, threads, exact, packed_folder (keeps packed weights
    for the next start), adapters (low-rank ones: a GGUF file or a folder of PEFT's, a pair of one and a factor of its
    change, ("adapter.gguf", 0.5), or a list of such, which add up), progress (called with bytes done and in all).
    Safe to use from several threads, each with a conversation of its own.

    `mmproj` is the GGUF file of a vision encoder, as llama.cpp's option, or a VisionEncoder; the model then reads
    images, one thread at a time:

        model = tenon.LanguageModel("model.gguf", mmproj="mmproj.gguf")
        print(model.chat("What is this?", images=[numpy.asarray(PIL.Image.open("cat.jpg"))]).text)
    """

    def __init__(self, path, *, context=0, chunk=512, cache=None, device=None, cpu_fallback=False, threads=0,
                 exact=False, packed_folder=None, adapters=None, progress=None, mmproj=None):
        self._model = _tenon.LanguageModel._load(
            path, context=context, chunk=chunk, cache=cache, device=device, cpu_fallback=cpu_fallback, threads=threads,
            exact=exact, packed_folder=packed_folder, adapters=_adapter_pairs(adapters),
            progress=progress)
        self.vision = mmproj if mmproj is None or isinstance(mmproj, VisionEncoder) else VisionEncoder(
            mmproj, device=device, cpu_fallback=cpu_fallback, threads=threads, exact=exact)

    def __getattr__(self, name):
        if name.startswith("__") or name == "_model":
            raise AttributeError(name)
        return getattr(self._model, name)

    def __repr__(self):
        return repr(self._model)

    def image_prompt(self, prompt, images):
        """A prompt with images, for generate(), stream() and astream().

        `prompt`: text, or messages as for chat(). Each "<__media__>" in it stands for the next of `images`, u8 RGB
        arrays [height, width, 3]; without any, all stand before the text, or the last message of a user's. Needs
        `mmproj`.
        """
        if self.vision is None:
            raise ArgumentError("BadArgument", 11010, "image_prompt", "the model was loaded without mmproj")
        images = list(images)
        if isinstance(prompt, str):
            text = prompt if image_marker in prompt else image_marker * len(images) + prompt
            return self._model._image_prompt(self.vision._encoder, text, images)
        messages = [dict(message) for message in prompt]
        if not any(_has_image(message.get("content", "")) for message in messages):
            users = [message for message in messages if message.get("role") == "user"]
            if users:
                content = users[-1]["content"]
                users[-1]["content"] = [image_marker * len(images), *([content] if isinstance(content, str) else content)]
        return self._model._image_prompt(self.vision._encoder, messages, images)

    def generate(self, prompt, *, images=None, conversation=None, max_tokens=128, stop=(), logprobs=None, timeout=None,
                 emit=None, sample_on_device=False, grammar=None, json_schema=None, draft=None, **sampler):
        """Continues a prompt: text, tokens as chat_tokens() makes them, or an ImagePrompt. Returns Generated.

        `images` are those of image_prompt().

        `sampler`: temperature, top_k, top_p, min_p, repetition_penalty, repetition_window, seed, logit_bias,
        temperature_last; frequency_penalty, presence_penalty; typical_p; top_n_sigma; xtc_probability, xtc_threshold;
        dry_multiplier, dry_base, dry_allowed_length, dry_window, dry_breakers (texts, or lists of tokens);
        dynatemp_range, dynatemp_exponent; mirostat (1 or 2), mirostat_tau, mirostat_eta; adaptive_target,
        adaptive_decay (docs/sampling.md has the formulas). Those left out are the publisher's.

        `emit` is called with pieces of text as they come. `timeout` in seconds ends the text early, without an error.
        `sample_on_device` draws tokens where the model runs, with other random numbers; not with `logprobs`, and not
        with options that docs/sampling.md has for the host alone.

        `grammar` is what the answer may be, a Grammar or a text of llama.cpp's GBNF; `json_schema` instead of it, a
        dict or a text, makes the answer JSON that the schema allows: {} allows any. `grammar_after`, a text or several,
        is what either of them begins after: "</think>" of a model that thinks first. `preserved_tokens` are spellings of
        control tokens that the text has; others it has not. `draft` guesses tokens ahead: a
        Draft.
        """
        prompt = prompt if images is None else self.image_prompt(prompt, images)
        return self._run(prompt, conversation, max_tokens, stop, logprobs, timeout, sample_on_device,
                         _grammar_of(grammar, json_schema), draft, sampler, emit, _tenon._Cancellation())

    def generate_each(self, prompts, *, conversations=None, at_once=64, max_tokens=128, stop=(), logprobs=None,
                      timeout=None, emit=None, grammar=None, json_schema=None, **sampler):
        """Continues several prompts at once, each on its own, as generate() does: a list of Generated.

        A step of the model reads a token for each of them, which takes little longer than for one; at most `at_once`
        are read at a time. `conversations`: one for each prompt. `emit` is called with the number of the prompt and a
        piece of text. Where some fail, the error of the first of them is raised when all have ended.
        """
        if isinstance(prompts, (str, bytes)):
            raise TypeError(f"prompts is {prompts!r:.60}, not several prompts: generate() takes one")
        prompts = list(prompts)
        conversations = [None] * len(prompts) if conversations is None else list(conversations)
        if len(conversations) != len(prompts):
            raise ArgumentError("BadArgument", 11010, "generate_each",
                                f"{len(conversations)} conversations for {len(prompts)} prompts")
        grammar = _grammar_of(grammar, json_schema)
        batch, answers = _tenon._AnswerBatch(self._model, at_once), {}
        for number, (prompt, conversation) in enumerate(zip(prompts, conversations)):
            piece = None if emit is None else functools.partial(emit, number)
            asked = self._asked(prompt, conversation, max_tokens, stop, logprobs, timeout, False, grammar, None, sampler,
                                piece, _tenon._Cancellation())
            answers[batch.add(*asked)] = concurrent.futures.Future()
        while len(batch):
            for id in batch.step():
                _settle(answers[id], batch, id)
        return [answer.result() for answer in answers.values()]

    def batched(self, at_once=64, prompt_bytes=256 << 20):
        """The same model for many callers at once, such as the requests of a server: a BatchedLanguageModel."""
        return BatchedLanguageModel(self, at_once, prompt_bytes)

    def chat(self, messages, **options):
        """As generate(), for messages: dicts of role and content, or one user's text. Generated.message is the answer as
        such a message, with its reasoning and its calls of tools.

        A content is a text, or a list of texts, {"type": "text", "text": ...} and, for the next of `images`,
        {"type": "image"}.

        `tools` are those that the model may call, as OpenAI's API has them: [{"type": "function", "function": {"name": ...,
        "parameters": a JSON schema}}]. `tool_choice` is "auto", "none", "required", or {"type": "function", "function":
        {"name": ...}}; the last two make the answer calls that the schemas allow. Of a model that starts in its reasoning a
        grammar begins behind that. `chat_template_kwargs` are further
        variables of the chat template, {"enable_thinking": False}; `chat_template` is one in place of the model's.
        """
        prompt, answers, options = self._chat(messages, options)
        return _with_message(self.generate(prompt, **options), answers)

    @property
    def chat_format(self):
        """The model's chat template, as a ChatFormat."""
        return self._model._chat_format(False)

    def _answer_format(self, template, values):
        """The ChatFormat of a chat, and its AnswerFormat under these variables; the last ones are kept, since
        AnswerFormat renders samples."""
        key = (template, json.dumps(values))
        kept = self.__dict__.get("_answers")
        if kept is None or kept[0] != key:
            if template is None:
                chat = self._model._chat_format("tools" in values)
            else:
                spelling = {name: self.tokenizer.token(id) for name in ("bos", "eos")
                            if (id := getattr(self.tokenizer, name)) is not None}
                chat = _tenon.ChatFormat(template, bos_token=spelling.get("bos"), eos_token=spelling.get("eos"))
            kept = self.__dict__["_answers"] = (key, chat, _tenon.AnswerFormat(chat, **values))
        return kept[1:]

    def _chat(self, messages, options):
        """The prompt of messages, how answers to it are written, and options for them."""
        if not hasattr(messages, "__iter__"):
            raise TypeError(f"messages is {messages!r:.60}, not a user's text or a list of dicts")
        stop, images = options.pop("stop", ()), options.pop("images", None)
        template, values = options.pop("chat_template", None), dict(options.pop("chat_template_kwargs", None) or {})
        tools, choice = options.pop("tools", None), options.pop("tool_choice", None) or "auto"
        if tools and choice != "none":
            values["tools"] = list(tools)
        chat, answers = self._answer_format(template, values)
        if "tools" in values and not answers.has_calls:
            raise UnsupportedError("Unsupported", 11013, "tools",
                                   "cannot be called: the model's chat template shows no calls of tools")
        options["stop"] = [*([stop] if isinstance(stop, str) else stop), *answers.stop_tokens]
        preserved = options.get("preserved_tokens", ())
        options["preserved_tokens"] = [*([preserved] if isinstance(preserved, str) else preserved),
                                       *answers.preserved_tokens]
        if choice not in ("auto", "none"):
            _require_call(answers, choice, options)
        is_constrained = any(options.get(name) is not None for name in ("grammar", "json_schema"))
        if answers.starts_in_reasoning and is_constrained:
            options.setdefault("grammar_after", answers.reasoning_end)
        if images is None:
            if isinstance(messages, (list, tuple)) and any(
                    _image_parts(message.get("content")) for message in messages if isinstance(message, dict)):
                raise ArgumentError("BadArgument", 11010, "chat", "a message has an image, and there are no images=")
            return chat.tokens(messages, self.tokenizer, **values), answers, options
        if values or template is not None:
            raise ArgumentError("BadArgument", 11010, "chat", "tools and other templates are not for images")
        messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return self.image_prompt(messages, images), answers, options

    def stream(self, prompt, *, conversation=None, max_tokens=128, stop=(), timeout=None, sample_on_device=False,
               grammar=None, json_schema=None, draft=None, **sampler):
        """Pieces of text as they are generated. Closing the generator ends the generation.

        The model works on a thread of its own, a few pieces ahead of the reader. The generator's return value is
        the Generated.
        """
        work = self._started(prompt, conversation, max_tokens, stop, timeout, sample_on_device,
                             _grammar_of(grammar, json_schema), draft, sampler)
        try:
            while True:
                text, end = work.get()
                if text is None:
                    return end
                yield text
        finally:
            work.close()

    async def astream(self, prompt, *, conversation=None, max_tokens=128, stop=(), timeout=None, sample_on_device=False,
                      grammar=None, json_schema=None, draft=None, **sampler):
        """As stream(), for `async for`. Ends the generation when the task is cancelled, too."""
        import asyncio

        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def notify():  # on the thread that works; a thread that waits would be one of asyncio's few
            try:
                loop.call_soon_threadsafe(ready.set)
            except RuntimeError:  # the loop is closed
                pass

        work = self._started(prompt, conversation, max_tokens, stop, timeout, sample_on_device,
                             _grammar_of(grammar, json_schema), draft, sampler, notify)
        try:
            while True:
                ready.clear()
                if (piece := work.poll()) is None:
                    await ready.wait()
                elif piece[0] is None:
                    return
                else:
                    yield piece[0]
        finally:
            await asyncio.to_thread(work.close)

    def stream_chat(self, messages, **options):
        """As stream(), for messages as chat() takes them, with the chat format's stop tokens, which stream() of
        chat_tokens() does not know."""
        prompt, answers, options = self._chat(messages, options)

        def pieces():
            return _with_message((yield from self.stream(prompt, **options)), answers)

        return pieces()

    def astream_chat(self, messages, **options):
        """As stream_chat(), for `async for`; AnswerFormat.read() of all pieces gives the message."""
        prompt, _, options = self._chat(messages, options)
        return self.astream(prompt, **options)

    _ahead = 16  # pieces that a stream may be ahead of its reader

    def _started(self, prompt, conversation, max_tokens, stop, timeout, sample_on_device, grammar, draft, sampler,
                 notify=None):
        return _Stream(lambda emit, cancellation: self._run(prompt, conversation, max_tokens, stop, None, timeout,
                                                            sample_on_device, grammar, draft, sampler, emit,
                                                            cancellation), self._ahead, notify)

    def _run(self, *asked):
        *asked, emit, cancellation = self._asked(*asked)
        if threading.current_thread() is not threading.main_thread():
            return Generated(**self._model._generate(*asked, emit, cancellation))
        # Signals, such as that of Ctrl-C, reach the main thread alone, and while it runs Python's code: another one works.
        work = _Stream(lambda put, cancellation: Generated(**self._model._generate(
            *asked, None if emit is None else put, cancellation)))
        try:
            while True:
                text, end = work.get()
                if text is None:
                    return end
                emit(text)
        finally:
            work.close()

    def _asked(self, prompt, conversation, max_tokens, stop, logprobs, timeout, sample_on_device, grammar, draft, sampler,
               emit, cancellation):
        if isinstance(prompt, str):
            prompt = self._model.tokenizer.encode(prompt)
        elif not isinstance(prompt, ImagePrompt):
            prompt = _several("prompt", prompt, numbers.Integral, "a text, a sequence of tokens or an ImagePrompt")
        _check("max_tokens", max_tokens, numbers.Integral, "an integer")
        _check("logprobs", logprobs, (numbers.Integral, type(None)), "an integer or None")
        _check("timeout", timeout, (numbers.Real, type(None)), "seconds or None")
        _check("conversation", conversation, (Conversation, type(None)), "a conversation or None")
        _check("draft", draft, (Draft, type(None)), "a tenon.Draft or None")
        conversation = conversation or self._model.conversation()
        sampler = dict(sampler)
        several = (("stop", stop), *((name, sampler.pop(name, ())) for name in ("grammar_after", "preserved_tokens")))
        stop, after, preserved = (_several(name, [one] if isinstance(one, str) else one, str,
                                           "a text or a sequence of texts") for name, one in several)
        return (conversation, prompt, max_tokens, stop, logprobs, timeout, sample_on_device, grammar, after, preserved,
                draft._options() if draft else {}, sampler, emit, cancellation)


class BatchedLanguageModel(LanguageModel):
    """A model that answers several callers at once: LanguageModel.batched() makes one.

    Its methods are those of LanguageModel. Calls on different threads, and streams, share the model's steps, in which
    each reads one token ("continuous batching"), so that together they take little longer than the longest of them. At
    most `at_once` are answered at a time, others wait. On the CPU answers are those that the model gives alone. Drafts
    and `sample_on_device` are refused. Streams hold what their readers have not taken: a slow one holds up no other.

    What a prompt has in common with one before it is not read again (Generated.reused_tokens), as long as that is among
    the last `prompt_bytes` of them; 0: none is kept.
    """

    _ahead = 0  # the thread that steps must not wait for a reader

    def __init__(self, model, at_once=64, prompt_bytes=256 << 20):
        self._model, self.vision, self._limits = model._model, model.vision, (at_once, prompt_bytes)
        self._batch = _tenon._AnswerBatch(self._model, *self._limits)
        self._lock = threading.Lock()
        self._waiting = {}  # by the number of the answer: what its caller waits for
        self._worker = None  # steps while somebody waits

    def _run(self, *asked):
        arguments = self._asked(*asked)
        answer = concurrent.futures.Future()
        with self._lock:
            self._waiting[self._batch.add(*arguments)] = answer
            if self._worker is None:
                self._start_worker(arguments[-1])
        try:
            return answer.result()
        except BaseException:
            arguments[-1].cancel()
            raise

    def _start_worker(self, cancellation):
        """Under the lock. Where no thread can be had, nobody waits for the answer, which the next thread drops."""
        self._worker = threading.Thread(target=self._work, name="tenon-batch", daemon=True)
        try:
            self._worker.start()
        except Exception:
            self._worker = None
            cancellation.cancel()
            raise

    def _work(self):
        while True:
            ended, failure = [], None
            try:
                ended = self._batch.step()
            except Exception as error:  # noqa: BLE001  of memory that ran out: all who wait get it
                failure = error
            with self._lock:
                if failure is None:
                    done = [(self._batch, id, self._waiting.pop(id)) for id in ended]
                else:
                    done = [(None, id, answer) for id, answer in self._waiting.items()]
                    self._waiting = {}
                    self._batch = _tenon._AnswerBatch(self._model, *self._limits)
                is_last = not self._waiting
                if is_last:
                    self._worker = None
            for batch, id, answer in done:
                if batch is None:
                    answer.set_exception(failure)
                else:
                    _settle(answer, batch, id)
            if is_last:
                return


def _check(name, value, kinds, expected):
    if not isinstance(value, kinds):
        raise TypeError(f"{name} is {value!r:.60}, not {expected}")


def _several(name, values, kind, expected):
    """A list of an argument's values, each of a kind."""
    if isinstance(values, (str, bytes, bytearray, dict)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} is {values!r:.60}, not {expected}")
    values = list(values)
    for i, value in enumerate(values):
        _check(f"{name}[{i}]", value, kind, expected)
    return values


def _settle(answer, batch, id):
    """Sets a future to an answer of a batch that has ended."""
    try:
        answer.set_result(Generated(**batch.take(id)))
    except Exception as error:  # noqa: BLE001  raised again where it is waited for
        answer.set_exception(error)


def _with_message(generated, answers):
    """The result of a generation with its message, whose calls have ids; a call that was cut is in the text alone."""
    message, _ = answers.read(generated.text)
    for call in message.get("tool_calls", ()):
        call["id"] = call["id"] or "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
    generated.message = message
    return generated


def _require_call(answers, choice, options):
    """Sets the grammar of answers that call a tool."""
    if options.get("grammar") is not None or options.get("json_schema") is not None:
        raise ArgumentError("BadArgument", 11010, "chat", "tool_choice is a grammar of its own")
    try:
        tool = "" if choice == "required" else choice["function"]["name"]
        if choice != "required" and not (tool and isinstance(tool, str)):
            raise KeyError("name")
    except (TypeError, KeyError):
        raise ArgumentError("BadArgument", 11010, "chat", f"tool_choice is {choice!r}") from None
    options["grammar"] = answers.call_grammar(tool=tool, several=not tool)


def _image_parts(content):
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") == "image"]


def _has_image(content):
    if isinstance(content, str):
        return image_marker in content
    return bool(_image_parts(content)) or any(
        _has_image(part.get("text", "") if isinstance(part, dict) else part) for part in content)


def _grammar_of(grammar, json_schema):
    if grammar is not None and json_schema is not None:
        raise ArgumentError("BadArgument", 11010, "generate", "both a grammar and a JSON schema")
    if json_schema is not None:
        return _tenon.Grammar.from_json_schema(json_schema)
    return _tenon.Grammar.parse(grammar) if isinstance(grammar, str) else grammar


class _Encoder:
    """What the encoders share: an object of the extension's class `_class`, as `_encoder`."""

    def __init__(self, path, *, device=None, cpu_fallback=False, threads=0, exact=False, weights=None):
        self._encoder = self._class.load(path, device=device, cpu_fallback=cpu_fallback, threads=threads, exact=exact,
                                         weights=weights)

    @classmethod
    def load(cls, path, **options):
        """As the constructor."""
        return cls(path, **options)

    def __getattr__(self, name):
        if name.startswith("__") or name == "_encoder":
            raise AttributeError(name)
        return getattr(self._encoder, name)

    def __repr__(self):
        return repr(self._encoder)

    def _call(self, name, *given):
        """A method of the extension's object, or where another thread uses that, of a fork of it."""
        try:
            return getattr(self._encoder, name)(*given)
        except ArgumentError as error:
            if error.code != "Busy":
                raise
        return getattr(self._encoder.fork(), name)(*given)

    def fork(self):
        """Another encoder for another thread, which shares the weights."""
        made = type(self).__new__(type(self))
        made._encoder = self._encoder.fork()
        return made


def _strings(texts, what):
    if isinstance(texts, str):
        raise TypeError(f"one {what} where several are expected: put it into a list")
    if not hasattr(texts, "__iter__"):
        raise TypeError(f"{what}s are {type(texts).__name__}, not a sequence of str")
    texts = list(texts)
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{what} {at} is {type(text).__name__}, not str")
    return texts


class Ranked(NamedTuple):
    """A document's place in the list that rerank() was given, and its score."""

    index: int
    score: float


class SentenceEncoder(_Encoder):
    """A sentence encoder or reranker: a GGUF file (BERT, nomic-bert, ModernBERT, EmbeddingGemma, Qwen3's, ...), or a Hugging
    Face folder of BERT's or RoBERTa's with model.safetensors, config.json and tokenizer.json.

        encoder = tenon.SentenceEncoder("all-MiniLM-L6-v2")
        embeddings = encoder.embed(["A cat sits on the mat.", "A kitten rests on a rug."])
        print(encoder.similarity(embeddings, encoder.embed("pets")))

        reranker = tenon.SentenceEncoder("bge-reranker-v2-m3.gguf")
        for found in reranker.rerank("Where does the cat sit?", documents, top=3):
            print(found.score, documents[found.index])

    Keyword arguments: pooling ("none", "mean", "cls", "last" or "rank"; None: as the file says), normalize ("euclidean",
    "none", "taxicab" or "max_int16"), device ("npu://sim"), cpu_fallback, threads, exact, weights (a block type, such as
    "q8_0", to which the layers are quantised). Several threads may call embed(), score() and rerank() at the same time;
    with a fork() of its own each keeps its memory from call to call.
    """

    _class = _tenon.SentenceEncoder

    def __init__(self, path, *, pooling=None, normalize="euclidean", **options):
        self._encoder = self._class.load_as(path, pooling, normalize, **options)

    def embed(self, texts):
        """Embeddings, of length 1 unless `normalize` says otherwise: f32 [texts, width] of several texts, f32 [width] of
        one that is a str."""
        if isinstance(texts, str):
            from . import ops
            return ops.squeeze(self._call("embed", [texts]), axis=0)
        return self._call("embed", _strings(texts, "text"))

    def score(self, query, documents):
        """Of a reranker: how well each document answers the query, f32 [documents], the larger the better."""
        return self._call("score", query, _strings(documents, "document"))

    def rerank(self, query, documents, top=None):
        """The documents by their scores, the best first, and `top` of them at most: a list of Ranked."""
        documents = _strings(documents, "document")
        scores = self.score(query, documents).numpy().tolist()
        order = sorted(range(len(documents)), key=lambda at: -scores[at])
        return [Ranked(at, scores[at]) for at in order[:top]]

    @staticmethod
    def similarity(embeddings, others):
        """Cosine similarities of embeddings and others, f32 [texts, other texts]; without an axis for one text."""
        from . import ops
        return ops.matmul(embeddings, ops.permute(others, order=[1, 0]) if len(others.shape) == 2 else others)


class VisionEncoder(_Encoder):
    """A vision encoder from the GGUF file beside a language model's, as llama.cpp's option --mmproj takes it.

        encoder = tenon.VisionEncoder("mmproj.gguf")
        rows = encoder.encode(pixels)  # f32 [embeddings, width of the language model], of u8 RGB [height, width, 3]

    Keyword arguments: as of SentenceEncoder, and min_embeddings and max_embeddings of an image for families that read
    images of any size. One thread at a time; each further thread takes a fork().
    """

    _class = _tenon.VisionEncoder

    def __init__(self, path, *, min_embeddings=0, max_embeddings=0, **options):
        self._encoder = self._class.load_within(path, min_embeddings, max_embeddings, **options)

"""Language models with Python's conveniences: texts, chats and streams."""

import queue
import threading
from dataclasses import dataclass, field

from . import _tenon

SentenceEncoder = _tenon.SentenceEncoder
Conversation = _tenon.Conversation


@dataclass
class Generated:
    """What a model wrote. `end` says why it stopped: "token", "stop", "length", "context", "cancelled", "deadline"."""

    text: str
    tokens: list
    end: str
    prompt_tokens: int
    plan_time: float  # seconds, as the other times
    prefill_time: float
    decode_time: float
    choices: list = field(default_factory=list)  # with logprobs: (token, log-probability, [(token, ...), ...])


class LanguageModel:
    """A decoder-only language model from a GGUF file.

        model = tenon.LanguageModel("model.gguf")
        print(model.generate("The capital of France is").text)
        for piece in model.stream(model.chat_tokens("Hello!")):
            print(piece, end="", flush=True)

    Keyword arguments: context (positions of a conversation), chunk (tokens of a prompt at once), cache (type of the
    KV cache: "f16", "q8_0"), device ("npu://sim"), cpu_fallback, threads, exact, packed_folder (keeps packed weights
    for the next start), adapters (low-rank ones: a GGUF file or a folder of PEFT's, a pair of one and a factor of its
    change, or a list of such, which add up), progress (called with bytes done and in all). Safe to use from several
    threads, each with a conversation of its own.
    """

    def __init__(self, path, **options):
        adapters = options.pop("adapters", None)
        sources = adapters if isinstance(adapters, list) else [] if adapters is None else [adapters]
        pairs = [source if isinstance(source, tuple) else (source, 1.0) for source in sources]
        self._model = _tenon.LanguageModel._load(path, adapters=pairs, **options)

    def __getattr__(self, name):
        if name.startswith("__") or name == "_model":
            raise AttributeError(name)
        return getattr(self._model, name)

    def __repr__(self):
        return repr(self._model)

    def generate(self, prompt, *, conversation=None, max_tokens=128, stop=(), logprobs=None, timeout=None, emit=None,
                 sample_on_device=False, **sampler):
        """Continues a prompt: text, or tokens as chat_tokens() makes them. Returns Generated.

        `sampler`: temperature, top_k, top_p, min_p, repetition_penalty, repetition_window, seed, logit_bias; those
        left out are the publisher's. `emit` is called with pieces of text as they come. `timeout` in seconds ends
        the text early, without an error. `sample_on_device` draws tokens where the model runs, with other random
        numbers; not with `logprobs`.
        """
        return self._run(prompt, conversation, max_tokens, stop, logprobs, timeout, sample_on_device, sampler, emit,
                         _tenon._Cancellation())

    def chat(self, messages, **options):
        """As generate(), for messages (dicts of role and content, or one user's text)."""
        stop = [*options.pop("stop", ()), *self._model.chat_stop_tokens]
        return self.generate(self.chat_tokens(messages), stop=stop, **options)

    def stream(self, prompt, *, conversation=None, max_tokens=128, stop=(), timeout=None, sample_on_device=False,
               **sampler):
        """Pieces of text as they are generated. Closing the generator ends the generation.

        The model works on a thread of its own, a few pieces ahead of the reader. The generator's return value is
        the Generated.
        """
        pieces = queue.Queue(maxsize=16)
        cancellation = _tenon._Cancellation()
        closed = threading.Event()

        def put(item):
            while not closed.is_set():
                try:
                    return pieces.put(item, timeout=0.1)
                except queue.Full:
                    pass

        def work():
            try:
                result = self._run(prompt, conversation, max_tokens, stop, None, timeout, sample_on_device, sampler,
                                   lambda text: put((text, None)), cancellation)
                put((None, result))
            except BaseException as error:  # noqa: BLE001  raised again where the pieces are read
                put((None, error))

        worker = threading.Thread(target=work, name="tenon-stream", daemon=True)
        worker.start()
        try:
            while True:
                text, end = pieces.get()
                if text is not None:
                    yield text
                elif isinstance(end, BaseException):
                    raise end
                else:
                    return end
        finally:
            closed.set()
            cancellation.cancel()
            worker.join()

    async def astream(self, prompt, **options):
        """As stream(), for `async for`."""
        import asyncio

        pieces = self.stream(prompt, **options)
        done = object()
        try:
            while (piece := await asyncio.to_thread(next, pieces, done)) is not done:
                yield piece
        finally:
            await asyncio.to_thread(pieces.close)

    def _run(self, prompt, conversation, max_tokens, stop, logprobs, timeout, sample_on_device, sampler, emit,
             cancellation):
        tokens = self._model.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        conversation = conversation or self._model.conversation()
        stop = [stop] if isinstance(stop, str) else list(stop)
        return Generated(**self._model._generate(conversation, tokens, max_tokens, stop, logprobs, timeout,
                                                 sample_on_device, sampler, emit, cancellation))

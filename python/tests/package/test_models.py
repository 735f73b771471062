"""Language models, tokenizers and encoders, on real files where there are some."""

import asyncio
import concurrent.futures
import importlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np

import tenon

ROOT = pathlib.Path(__file__).parents[3]
EXAMPLES, TINY = ROOT / "examples", ROOT / "tests/models/data"
sys.path.insert(0, str(EXAMPLES))
FOLDER = pathlib.Path(os.environ.get("TENON_TEST_MODELS", "no-models"))
SMOLLM2 = next(iter(sorted(FOLDER.glob("*mol*.gguf"))), None)
GEMMA3 = next(iter(sorted(FOLDER.glob("*gemma-3*.gguf"))), None)
MINILM = next((path for path in FOLDER.glob("*MiniLM*") if path.is_dir()), None)


@unittest.skipUnless(SMOLLM2, "TENON_TEST_MODELS has no SmolLM2")
class Language(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = tenon.LanguageModel(SMOLLM2, context=512)

    def test_generates(self):
        model = self.model
        self.assertEqual(model.config["architecture"], "llama")
        self.assertIn("SmolLM2", repr(model))
        result = model.generate("The capital of France is", max_tokens=8, temperature=0)
        self.assertIn("Paris", result.text)
        self.assertEqual((result.end, len(result.tokens)), ("length", 8))
        self.assertEqual(model.tokenizer.decode(result.tokens), result.text)
        again = model.generate("The capital of France is", max_tokens=8, temperature=0)
        self.assertEqual(again.tokens, result.tokens)

    def test_contents_in_parts(self):
        whole = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello, you."}]
        parts = [{"role": "system", "content": ["Be brief."]},
                 {"role": "user", "content": [{"type": "text", "text": "Hello,"}, {"type": "text", "text": " you."}]}]
        self.assertEqual(self.model.chat_tokens(parts), self.model.chat_tokens(whole))
        with self.assertRaisesRegex(tenon.ArgumentError, "messages are"):
            self.model.chat({"role": "user", "content": "x"})
        for content, says in (([{"type": "image_url", "image_url": "x"}], "of type 'image_url'"), ([3], "neither"),
                              (3, "'content' of message 0 is neither"), ([{"type": "text"}], "of type 'text'"),
                              ([{"type": "image"}], "no images=")):
            with self.assertRaisesRegex(tenon.ArgumentError, says):
                self.model.chat([{"role": "user", "content": content}])

    def test_reads_step_by_step(self):
        model = self.model
        tokens = model.tokenizer.encode("The capital of France is")
        want = model.generate(tokens, max_tokens=4, temperature=0).tokens
        conversation = model.conversation()
        logits = conversation.read(tokens)
        self.assertEqual(logits.shape, (model.config["vocabulary"],))
        got = [int(logits.argmax())]
        while len(got) < 4:
            got.append(conversation.read_greedy([got[-1]]))
        self.assertEqual(got, want)
        self.assertEqual(conversation.position, len(tokens) + 3)
        conversation.rewind(2)
        every = conversation.read_all(tokens[2:])
        self.assertEqual(int(every[-1].argmax()), want[0])
        with self.assertRaises(tenon.Error) as raised:
            conversation.read([10**6])
        self.assertEqual(raised.exception.code, "OutOfRange")

    def test_draws_tokens_where_the_model_runs(self):
        model = self.model
        options = dict(max_tokens=12, repetition_penalty=1.3, logit_bias={0: float("-inf"), 2: float("-inf")})
        want = model.generate("Once upon a time", temperature=0, **options)
        got = model.generate("Once upon a time", temperature=0, sample_on_device=True, **options)
        self.assertEqual(got.tokens, want.tokens)
        drawn = [model.generate("Once upon a time", temperature=1.5, seed=seed, sample_on_device=True, **options).tokens
                 for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        tokens = model.tokenizer.encode("The capital of France is")
        conversation = model.conversation()
        token = conversation.read_sampled(tokens, temperature=0.5, top_k=1)
        self.assertEqual(token, int(model.conversation().read(tokens).argmax()))
        self.assertIsInstance(conversation.read_sampled([token], history=tokens, repetition_penalty=1.1), int)
        with self.assertRaises(tenon.UnsupportedError):
            model.generate("x", sample_on_device=True, logprobs=1)
        with self.assertRaises(tenon.ArgumentError):
            conversation.read_sampled([1], top_p=2)
        with self.assertRaises(tenon.ArgumentError):
            conversation.read_sampled([1], warmth=2)

    def test_streams(self):
        want = self.model.generate("Once upon a time", max_tokens=12, temperature=0)
        stream = self.model.stream("Once upon a time", max_tokens=12, temperature=0)
        pieces = []
        while True:
            try:
                pieces.append(next(stream))
            except StopIteration as end:
                self.assertEqual(end.value.tokens, want.tokens)
                break
        self.assertEqual("".join(pieces), want.text)
        self.assertGreater(len(pieces), 3)

        async def collect():
            return [piece async for piece in self.model.astream("Once upon a time", max_tokens=12, temperature=0)]

        self.assertEqual("".join(asyncio.run(collect())), want.text)

    def test_a_closed_stream_ends_the_work(self):
        before = threading.active_count()
        stream = self.model.stream("Once upon a time", max_tokens=400, temperature=0)
        next(stream)
        stream.close()
        self.assertEqual(threading.active_count(), before)
        with self.assertRaises(tenon.Error):
            list(self.model.stream("x", max_tokens=4, temperature=-1))
        with self.assertRaises(tenon.ArgumentError):
            self.model.generate("x", warmth=1)

    def test_a_cancelled_task_ends_the_work(self):
        before = threading.active_count()

        async def read(pieces):
            async for piece in self.model.astream("Once upon a time", max_tokens=4000, temperature=0):
                pieces.append(piece)

        async def cancelled():
            pieces = []
            task = asyncio.create_task(read(pieces))
            while len(pieces) < 3:
                await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            with self.assertRaises(TimeoutError):
                await asyncio.wait_for(read(pieces), 0.2)
            async for piece in self.model.astream("Once upon a time", max_tokens=400, temperature=0):
                break
            return pieces

        self.assertGreaterEqual(len(asyncio.run(cancelled())), 3)
        self.assertEqual(threading.active_count(), before)

        async def wrong():
            return [piece async for piece in self.model.astream("x", temperature=-1)]

        with self.assertRaises(tenon.Error):
            asyncio.run(wrong())

    def test_chats(self):
        result = self.model.chat("Say hello.", max_tokens=24, temperature=0)
        self.assertIn(result.end, ("token", "stop", "length"))
        self.assertIn("ello", result.text)
        # One stop text, not a list of its letters.
        stopped = self.model.chat("Say hello.", max_tokens=24, temperature=0, stop="no such text")
        self.assertEqual(stopped.text, result.text)
        tokens = self.model.chat_tokens([{"role": "user", "content": "<|im_end|>"}])
        end = self.model.tokenizer.find("<|im_end|>")
        self.assertEqual(tokens.count(end), self.model.chat_tokens("x").count(end))

    def test_streams_chats(self):
        def streamed(model, **options):
            stream = model.stream_chat("Say hello.", max_tokens=24, temperature=0, **options)
            pieces = []
            while True:
                try:
                    pieces.append(next(stream))
                except StopIteration as end:
                    self.assertEqual(end.value.text, "".join(pieces))
                    return end.value

        class OtherFormat:
            """A format whose turns end with a token that ends no text by itself."""

            def _chat_format(self, has_tools):
                return tenon.ChatFormat(model._chat_format(has_tools).template, eos_token=tokenizer.token(ending))

            def __getattr__(self, name):
                return getattr(model, name)

        model, tokenizer = self.model._model, self.model.tokenizer
        want = self.model.chat("Say hello.", max_tokens=24, temperature=0)
        ending = want.tokens[3]
        self.assertEqual(streamed(self.model).tokens, want.tokens)
        self.assertEqual(streamed(self.model, stop="ello").text, want.text[:want.text.index("ello")])
        other = tenon.LanguageModel.__new__(tenon.LanguageModel)
        other._model, other.vision = OtherFormat(), None
        got = streamed(other)
        self.assertEqual((got.tokens, got.end), (want.tokens[:want.tokens.index(ending)], "token"))
        self.assertTrue(want.text.startswith(got.text))

        async def collect():
            return [piece async for piece in other.astream_chat("Say hello.", max_tokens=24, temperature=0)]

        self.assertEqual("".join(asyncio.run(collect())), got.text)

    def test_ends(self):
        result = self.model.generate("1 2 3 4 5 6", max_tokens=40, temperature=0, stop=" 9")
        self.assertEqual(result.end, "stop")
        self.assertNotIn(" 9", result.text)
        self.assertEqual(self.model.generate("x", max_tokens=500, timeout=0).end, "deadline")
        result = self.model.generate("The", max_tokens=3, temperature=0, logprobs=2)
        self.assertEqual([len(top) for _, _, top in result.choices], [2, 2, 2])

    def test_texts_that_are_no_unicode(self):
        half = "\ud83d"  # of an emoji, as a text that was cut
        for call, says in ((lambda: self.model.generate("x", stop=half), "stop text 0 has a lone surrogate"),
                           (lambda: self.model.generate("x", stop=["a", half]), "stop text 1 has a lone surrogate"),
                           (lambda: self.model.chat(half), "the text has a lone surrogate"),
                           (lambda: self.model.chat([{"role": "user", "content": "x" + half}]),
                            "'content' of message 0 has a lone surrogate, half a character, at 1")):
            with self.assertRaisesRegex(tenon.InputError, says):
                call()
        with self.assertRaises(tenon.ArgumentError):
            self.model.chat([{"role": "user", "content": 5}])


class WrittenInPython(unittest.TestCase):
    """The examples: few lines, a short text, and the tokens of the library's own models."""

    def check(self, module, kind, path, functions):
        lines = (EXAMPLES / f"{module}.py").read_text().splitlines()
        self.assertLess(len(lines), 150)
        file = tenon.open(path)
        model = getattr(importlib.import_module(module), kind)(file, context=64)
        program = tenon.export(model.forward, ids="i32[1, S]", position="i32[]", keys=model.cache, values=model.cache)
        self.assertEqual(len(program.functions), functions)
        text = str(program)
        self.assertLess(len(text.splitlines()), 400)
        library = tenon.LanguageModel(path, context=64)
        prompt = library.tokenizer.encode("The capital of France is")
        want = library.generate(prompt, max_tokens=12, temperature=0).tokens
        self.assertEqual(self.tokens(text, file, model, prompt), want)
        # A text that was changed runs as it is: another activation, the last layer left out.
        activation = re.search(r'activation="(\w+)"', text)[1]
        for changed in (text.replace(f'activation="{activation}"', 'activation="relu"'),
                        re.sub(r"(.*repeat\(\w+, )(\d+)", lambda m: f"{m[1]}{int(m[2]) - 1}", text, flags=re.S)):
            self.assertNotEqual(changed, text)
            self.assertNotEqual(self.tokens(changed, file, model, prompt), want)

    def tokens(self, text, file, model, prompt):
        session = tenon.Session(tenon.parse(text), file.weights())
        shape = tenon.Shape(model.cache).dims
        keys, values = tenon.ops.zeros(shape, "f16"), tenon.ops.zeros(shape, "f16")
        got, position, step = [], 0, prompt
        while len(got) < 12:
            logits, keys, values = session.forward([step], position, keys.donate(), values.donate())
            position += len(step)
            step = [int(logits.numpy()[0].argmax())]
            got += step
        return got

    @unittest.skipUnless(SMOLLM2, "TENON_TEST_MODELS has no SmolLM2")
    def test_smollm2(self):
        self.check("smollm2", "Llama", SMOLLM2, functions=2)  # 30 layers, one function

    @unittest.skipUnless(GEMMA3, "TENON_TEST_MODELS has no Gemma 3")
    def test_gemma3(self):
        self.check("gemma3", "Gemma3", GEMMA3, functions=5)  # local and global layers, of two mixes of types

    def test_usage(self):
        for name in ("smollm2", "gemma3"):
            made = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True)
            self.assertEqual(made.returncode, 1)
            self.assertRegex(made.stderr, rf"^usage: .*{name}.py MODEL.gguf \[PROMPT\]\n$")

    def test_tiny(self):
        for kind, module, name in (("Llama", "smollm2", "llama"), ("Gemma3", "gemma3", "gemma3")):
            path = TINY / f"tiny_{name}.gguf"
            tokens = [7 * i % 272 for i in range(40)]
            own, model_s = tenon.Tokenizer.from_file(path), tenon.LanguageModel(path, context=48, threads=1).tokenizer
            self.assertEqual((len(own), own.decode(tokens)), (len(model_s), model_s.decode(tokens)))
            want = np.load(TINY / f"tiny_{name}_logits.npy")
            file = tenon.open(path)
            model = getattr(importlib.import_module(module), kind)(file, context=48)
            model.cache = model.cache.replace("f16", "f32")
            program = tenon.export(model.forward, ids="i32[1, S]", position="i32[]", keys=model.cache,
                                   values=model.cache)
            session = tenon.Session(program, file.weights(), exact=True)
            dims = tenon.Shape(model.cache).dims
            keys, values = tenon.ops.zeros(dims), tenon.ops.zeros(dims)
            tokens = np.arange(48) * 7 % 272
            for begin, end in ((0, 31), (31, 32), (32, 48)):
                logits, keys, values = session.forward(tokens[None, begin:end].astype("i4"), begin, keys, values)
                np.testing.assert_allclose(logits.numpy()[0], want[end - 1], atol=1e-3)


class Conversations(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.path = pathlib.Path(held.name) / "saved.safetensors"

    def test_fork_save_and_restore(self):
        tokens = [7 * i % 272 for i in range(20)]
        for name in ("llama", "rwkv7", "lfm2"):
            with self.subTest(name):
                model = tenon.LanguageModel(TINY / f"tiny_{name}.gguf", context=64, threads=1)
                conversation = model.conversation()
                conversation.read(tokens[:15])
                fork = conversation.fork()
                conversation.save(self.path)
                restored = model.restore(str(self.path))
                self.assertEqual(restored.tokens, tokens[:15])
                want = conversation.read(tokens[15:])
                fork.read([1, 2])
                self.assertEqual(fork.tokens, tokens[:15] + [1, 2])
                np.testing.assert_array_equal(restored.read(tokens[15:]), want)
                again = model.restore(self.path)
                kept = again.keep_prefix_of(tokens)
                self.assertEqual(kept, 15)
                np.testing.assert_array_equal(again.read(tokens[kept:]), want)
                # What generate() is given as a prompt continues the conversation.
                result = model.generate(tokens[15:], conversation=model.restore(self.path), max_tokens=1, temperature=0)
                self.assertEqual(result.tokens, [int(want.argmax())][: len(result.tokens)])

    def test_adapters_are_those_it_was_saved_with(self):
        folder = self.path.parent / "adapter"
        folder.mkdir()

        def written(layer):
            """A folder of PEFT's for the queries of one layer, of the same numbers whichever it is."""
            factors = {"A": np.full((2, 32), 0.1, "f4"), "B": np.full((32, 2), 0.2, "f4")}
            header, at = {}, 0
            for name, values in factors.items():
                header[f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{name}.weight"] = {
                    "dtype": "F32", "shape": values.shape, "data_offsets": [at, at + values.nbytes]}
                at += values.nbytes
            text = json.dumps(header).encode()
            (folder / "adapter_model.safetensors").write_bytes(
                len(text).to_bytes(8, "little") + text + b"".join(values.tobytes() for values in factors.values()))
            (folder / "adapter_config.json").write_text(json.dumps(
                {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"],
                 "layers_to_transform": [layer]}))

        def model(*factors):
            return tenon.LanguageModel(TINY / "tiny_llama.gguf", context=64, threads=1,
                                       adapters=[(folder, factor) for factor in factors])

        written(0)
        # A pair may be a list, too, and stand alone.
        want = model(0.5).conversation().read([1, 2, 3])
        for adapters in ([[folder, 0.5]], (folder, 0.5), [folder, 0.5], [str(folder), 0.5], ((folder, 0.5),),
                         [(folder, 0.25), [folder, np.float32(0.25)]]):
            with self.subTest(adapters):
                got = tenon.LanguageModel(TINY / "tiny_llama.gguf", context=64, threads=1, adapters=adapters)
                np.testing.assert_allclose(got.conversation().read([1, 2, 3]), want, rtol=1e-3, atol=1e-3)
        for adapters in (1, [1], [folder, "half"], [[folder]], [[folder, 0.5, 1]], [None], [(0.5, folder)]):
            with self.subTest(adapters), self.assertRaises(tenon.Error):
                tenon.LanguageModel(TINY / "tiny_llama.gguf", context=64, threads=1, adapters=adapters)
        conversation = model(0.5).conversation()
        conversation.read([1, 2, 3])
        conversation.save(self.path)
        want = conversation.read([4])
        np.testing.assert_array_equal(model(0.5).restore(self.path).read([4]), want)
        for factors in (), (1.0,), (0.5, 0.5):
            with self.assertRaisesRegex(tenon.InputError, "Incompatible.*other adapters"):
                model(*factors).restore(self.path)
        written(1)
        with self.assertRaisesRegex(tenon.InputError, "Incompatible.*other adapters"):
            model(0.5).restore(self.path)

    def test_what_is_refused(self):
        model = tenon.LanguageModel(TINY / "tiny_llama.gguf", context=64, threads=1)
        conversation = model.conversation()
        conversation.read([1, 2, 3])
        conversation.save(self.path)
        other = tenon.LanguageModel(TINY / "tiny_qwen2.gguf", context=64, threads=1)
        with self.assertRaisesRegex(tenon.InputError, "another model") as raised:
            other.restore(self.path)
        self.assertEqual((raised.exception.code, raised.exception.where), ("Incompatible", str(self.path)))
        self.path.write_bytes(self.path.read_bytes()[:-1])
        with self.assertRaises(tenon.InputError):
            model.restore(self.path)
        with self.assertRaises(tenon.Error) as raised:
            model.restore(self.path.with_name("none"))
        self.assertEqual(raised.exception.code, "NotFound")
        with self.assertRaises(tenon.MachineError):
            conversation.save(self.path.parent / "no" / "folder")
        with self.assertRaises(tenon.ArgumentError):
            conversation.keep_prefix_of([])
        for wrong in (None, 1, ["a"]):
            with self.assertRaises(TypeError):
                conversation.save(wrong)
            with self.assertRaises(TypeError):
                model.restore(wrong)


class Sampling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = tenon.LanguageModel(TINY / "tiny_llama.gguf", context=64, threads=1)

    def tokens(self, **options):
        return self.model.generate("abcabcabc", max_tokens=24, **{"temperature": 1, "repetition_penalty": 1, "seed": 3,
                                                                  **options}).tokens

    def test_options_change_what_is_drawn(self):
        drawn, greedy = self.tokens(), self.tokens(temperature=0)
        self.assertEqual(self.tokens(), drawn)
        for options in ({"typical_p": 0.2}, {"top_n_sigma": 0.3}, {"xtc_probability": 1.0, "xtc_threshold": 0.01},
                        {"frequency_penalty": 2}, {"presence_penalty": -3},
                        {"dry_multiplier": 9, "dry_base": 1.2, "dry_allowed_length": 1, "dry_window": 60},
                        {"dynatemp_range": 1, "dynatemp_exponent": 2}, {"top_p": 0.5, "temperature_last": True},
                        {"mirostat": 1}, {"mirostat": 2, "mirostat_tau": 2, "mirostat_eta": 0.5},
                        {"adaptive_target": 0, "adaptive_decay": 0.5}):
            with self.subTest(options):
                self.assertNotEqual(self.tokens(**options), drawn)
        self.assertEqual(self.tokens(mirostat=2, mirostat_tau=0), greedy)
        self.assertEqual(self.tokens(typical_p=1, top_n_sigma=-1, dry_multiplier=0, xtc_probability=0,
                                     adaptive_target=-1, mirostat=0), drawn)

    def test_breakers(self):
        def tokens(**options):
            return self.tokens(dry_multiplier=20, dry_base=1, dry_allowed_length=1, **options)

        tokenizer, vocabulary = self.model.tokenizer, self.model.config["vocabulary"]
        every = [tokenizer.piece(i) for i in range(vocabulary)]
        self.assertNotEqual(tokens(dry_breakers=[]), self.tokens())
        # A token that is a breaker loses nothing.
        self.assertEqual(tokens(dry_breakers=[[i] for i in range(vocabulary)]), self.tokens())
        self.assertEqual(tokens(dry_breakers=[text for text in every if text]), self.tokens())
        self.assertEqual(tokens(), tokens(dry_breakers=["\n", ":", '"', "*"]))
        for wrong in ("abc", 1, [1], [["a"]], [[]], [""], None):
            with self.subTest(wrong), self.assertRaises(tenon.ArgumentError):
                tokens(dry_breakers=wrong)

    def test_what_is_refused(self):
        for options in ({"typical_p": 0}, {"xtc_probability": 2}, {"mirostat": 3}, {"mirostat": "two"}, {"dry_base": 0.5}):
            with self.subTest(options), self.assertRaisesRegex(tenon.ArgumentError, next(iter(options))):
                self.tokens(**options)
        with self.assertRaisesRegex(tenon.Error, "Unsupported.*typical_p 0.5"):
            self.tokens(typical_p=0.5, sample_on_device=True)
        with self.assertRaisesRegex(tenon.Error, "Unsupported.*mirostat 2"):
            self.model.conversation().read_sampled([1], temperature=1, mirostat=2)


class Drafts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = tenon.LanguageModel(TINY / "tiny_llama.gguf", context=256, threads=1)

    def test_the_answer_is_the_one_without(self):
        model, other = self.model, tenon.LanguageModel(TINY / "tiny_gpt2.gguf", context=256, threads=1)
        kept = model.conversation()
        for sampler in dict(temperature=0), dict(temperature=0.5, seed=7), dict(temperature=0, logprobs=2):
            options = dict(max_tokens=40, logit_bias={0: float("-inf"), 2: float("-inf")}, **sampler)
            want = model.generate("abc abc abc", **options)
            self.assertEqual((want.drafted_tokens, want.accepted_tokens), (0, 0))
            for draft in (tenon.Draft(model=model, min_probability=0), tenon.Draft(model=kept, max_tokens=8),
                          tenon.Draft(model=other), tenon.Draft(lookup=3, min_lookup=1)):
                got = model.generate("abc abc abc", draft=draft, **options)
                self.assertEqual((got.tokens, got.text, got.end), (want.tokens, want.text, want.end))
                self.assertGreater(got.drafted_tokens, 0)
                self.assertLessEqual(got.accepted_tokens, got.drafted_tokens)
        self.assertGreater(kept.position, 11)
        options.pop("logprobs")
        self.assertEqual("".join(model.stream("abc abc abc", draft=tenon.Draft(model=model), **options)), want.text)

    def test_what_is_refused(self):
        model = self.model
        for code, draft in (("BadArgument", tenon.Draft(lookup=-1)), ("BadArgument", tenon.Draft(lookup="three")),
                            ("BadArgument", tenon.Draft(model=model, min_probability=2)),
                            ("BadArgument", tenon.Draft(model=42))):
            with self.assertRaises(tenon.Error) as raised:
                model.generate("abc", draft=draft)
            self.assertEqual(raised.exception.code, code)
        states = tenon.LanguageModel(TINY / "tiny_mamba.gguf", context=64, threads=1)
        with self.assertRaisesRegex(tenon.UnsupportedError, "mamba"):
            states.generate("abc", draft=tenon.Draft(lookup=3))
        with self.assertRaisesRegex(TypeError, "tenon.Draft"):
            model.generate("abc", draft=model)

    def test_vocabularies_that_are_filled_up_differently(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        import gpu

        with tempfile.TemporaryDirectory() as folder:
            def model(tokens):
                path = pathlib.Path(folder) / f"{tokens}.gguf"
                with unittest.mock.patch.dict(gpu.SHAPES, {"tiny": ({**gpu.TINY, "vocabulary": tokens}, "q4_k_m")}):
                    gpu.write_model("tiny", path)
                return tenon.LanguageModel(path, context=256, threads=1, exact=True)

            few, more, many = model(300), model(340), model(500)
            for target, small in (few, more), (more, few):
                options = dict(max_tokens=48, temperature=1, seed=4, logit_bias={0: float("-inf")})
                want = target.generate("th th", **options)
                got = target.generate("th th", draft=tenon.Draft(model=small, min_probability=0), **options)
                self.assertEqual(got.tokens, want.tokens)
                self.assertGreater(got.drafted_tokens, 0)
            with self.assertRaisesRegex(tenon.InputError, "it has 500 tokens, not 300") as raised:
                few.generate("th", draft=tenon.Draft(model=many))
            self.assertEqual(raised.exception.code, "Incompatible")

    def test_the_steps_of_it(self):
        conversation = self.model.conversation()
        every = conversation.read_all([3, 40, 99])
        conversation.rewind(0)
        self.assertEqual(conversation.read_all_greedy([3, 40, 99]), every.argmax(axis=1).tolist())
        conversation.rewind(0)
        token, probability = conversation.read_guess([3, 40, 99])
        self.assertEqual(token, int(every[-1].argmax()))
        weights = np.exp(every[-1].astype(np.float64) - every[-1].max())
        self.assertAlmostEqual(probability, 1 / weights.sum(), places=5)


class ChatTemplates(unittest.TestCase):
    def test_they_are_jinja(self):
        chat = tenon.ChatFormat("{{ bos_token }}{% for m in messages %}[{{ m.role }}:{{ m.content | trim }}]{% endfor %}"
                                "{% if tools %}{{ tools | tojson }}{% endif %}{{ mood }}", bos_token="<s>", mood="!")
        self.assertEqual(chat.format("a "), "<s>[user:a]!")
        self.assertEqual(chat.format([{"role": "x", "content": "ü"}], tools=[{"n": "Ü"}], mood=None),
                         '<s>[x:ü][{"n": "Ü"}]None')
        calls = tenon.ChatFormat("{% for c in messages[0].tool_calls %}{{ c.function.name }}{{ c.function.arguments.n }}"
                                 "{% endfor %}{{ messages[0].content is none }}")
        message = {"role": "assistant", "content": None,
                   "tool_calls": [{"function": {"name": "f", "arguments": {"n": 3}}}]}
        self.assertEqual(calls.format([message]), "f3True")
        self.assertEqual(tenon.ChatFormat("{{ strftime_now('%Y') }}", date="26 Jul 2024").format("x"), "2024")
        self.assertEqual(tenon.ChatFormat("{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}",
                                          eos_token="</s>").stop_tokens, ["<end>", "</s>"])
        with self.assertRaisesRegex(tenon.Error, "line 2: no"):
            tenon.ChatFormat("\n{{ raise_exception('no') }}").format("x")
        with self.assertRaisesRegex(tenon.Error, "endif"):
            tenon.ChatFormat("{% if true %}")

    def test_random_ones_beside_jinja(self):
        sys.path.insert(0, str(ROOT / "python/tests"))
        try:
            import record_chat_templates as recorder
        except ModuleNotFoundError as error:
            if error.name != "jinja2":
                raise
            self.skipTest("jinja2 is not installed")
        made, seed, count = recorder.environment(), int.from_bytes(os.urandom(4), "little"), 0
        for number in range(seed, seed + 100):
            template = recorder.Writer(number).template()
            want = recorder.rendered(made, template, **recorder.VARIABLES)
            if want is not None:
                count += 1
                with self.subTest(number=number, template=template):
                    self.assertEqual(tenon.ChatFormat(template, **recorder.VARIABLES).format("m"), want)
        self.assertGreater(count, 15)


class ToolCalls(unittest.TestCase):
    TEMPLATE = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}<call>"
                "{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}[end]{% endfor %}"
                "{% if add_generation_prompt %}[assistant]{% endif %}")
    TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {
        "count": {"type": "integer"}, "kind": {"enum": ["a", "b"]}}, "required": ["count", "kind"],
        "additionalProperties": False}}} for name in ("take", "give")]

    def test_any_model_calls_tools_when_it_must(self):
        model = tenon.LanguageModel(TINY / "tiny_llama.gguf", context=256, threads=1)
        options = dict(chat_template=self.TEMPLATE, tools=self.TOOLS, max_tokens=200, temperature=1.5)
        for seed in range(5):
            for choice in "required", {"type": "function", "function": {"name": "give"}}:
                got = model.chat("Hi", tool_choice=choice, seed=seed, **options)
                if got.end == "length":  # of calls that go on and on
                    continue
                self.assertEqual((got.message["role"], got.message["content"]), ("assistant", ""))
                self.assertTrue(got.message["tool_calls"])
                ids = set()
                for call in got.message["tool_calls"]:
                    self.assertIn(call["function"]["name"], ["take", "give"] if choice == "required" else ["give"])
                    arguments = json.loads(call["function"]["arguments"])
                    self.assertEqual(set(arguments), {"count", "kind"})
                    self.assertIsInstance(arguments["count"], int)
                    self.assertIn(arguments["kind"], ["a", "b"])
                    ids.add(call["id"])
                self.assertEqual(len(ids), len(got.message["tool_calls"]))
                # Back into the conversation.
                again = model.chat([{"role": "user", "content": "Hi"}, got.message,
                                    {"role": "tool", "content": "3", "tool_call_id": next(iter(ids))}],
                                   **{**options, "max_tokens": 2})
                self.assertEqual(len(again.tokens), 2)
        free = model.chat("Hi", **{**options, "max_tokens": 8})
        self.assertEqual(free.message["content"], free.text)
        stream = model.stream_chat("Hi", **{**options, "max_tokens": 8})
        pieces = []
        while True:
            try:
                pieces.append(next(stream))
            except StopIteration as end:
                self.assertEqual(end.value.message["content"], "".join(pieces))
                break
        with self.assertRaisesRegex(tenon.ArgumentError, "no tool 'x'"):
            model.chat("Hi", tool_choice={"function": {"name": "x"}}, **options)
        with self.assertRaisesRegex(tenon.ArgumentError, "tool_choice"):
            model.chat("Hi", tool_choice="any", **options)
        options["chat_template"], options["max_tokens"] = "{% for m in messages %}{{ m.content }}{% endfor %}", 2
        for choice in "auto", "required":
            with self.assertRaisesRegex(tenon.UnsupportedError, "tools: cannot be called: .* shows no calls of tools"):
                model.chat("Hi", tool_choice=choice, **options)
        self.assertEqual(len(model.chat("Hi", tool_choice="none", **options).tokens), 2)

    def test_answers_are_read_by_the_template(self):
        answers = tenon.AnswerFormat(tenon.ChatFormat(self.TEMPLATE), tools=self.TOOLS)
        message, rest = answers.read('So: <call>take {"count": 3}</call><call>gi', False)
        self.assertEqual((message["content"], rest), ("So:", "<call>gi"))
        self.assertEqual([call["function"] for call in message["tool_calls"]],
                         [{"name": "take", "arguments": '{"count":3}'}])
        self.assertEqual((answers.call_mark, answers.has_calls, answers.has_reasoning), ("<call>", True, False))
        self.assertIn("[end]", answers.stop_tokens)
        self.assertIn("</call>", answers.preserved_tokens)
        matcher = tenon.GrammarMatcher(answers.call_grammar(after="<call>"))
        self.assertTrue(matcher.push('give {"count":1, "kind":"a"}</call>'))


class LateGrammars(unittest.TestCase):
    def test_they_begin_behind_a_text(self):
        model = tenon.LanguageModel(TINY / "tiny_llama.gguf", context=256, threads=1)
        options = dict(max_tokens=120, temperature=2, seed=3, logit_bias={0: float("-inf"), 2: float("-inf")})
        free = model.generate("abc", **options)
        pieces = [model.tokenizer.decode([token]) for token in free.tokens]
        text = next(piece for piece in pieces if piece.isascii() and piece.isalpha())
        end = free.text.index(text) + len(text)
        for after in text, ["never", text]:
            got = model.generate("abc", grammar="root ::= [0-9]{2}", grammar_after=after, **options)
            self.assertEqual((got.text[:end], got.end, len(got.text)), (free.text[:end], "grammar", end + 2))
            self.assertTrue(got.text[end:].isdigit())
        self.assertEqual(model.generate("abc", grammar="root ::= [0-9]", grammar_after="never", **options).text, free.text)
        self.assertEqual("".join(model.stream("abc", json_schema={"type": "null"}, grammar_after=text, **options)),
                         free.text[:end] + "null")
        with self.assertRaisesRegex(tenon.ArgumentError, "without a grammar"):
            model.generate("abc", grammar_after="x")


class Batches(unittest.TestCase):
    PROMPTS = ["abc", "a b c d e", [3, 40, 99], "zz"]

    @classmethod
    def setUpClass(cls):
        cls.model = tenon.LanguageModel(TINY / "tiny_llama.gguf", context=128, threads=1, chunk=4)

    def alone(self, options):
        return [self.model.generate(prompt, **options) for prompt in self.PROMPTS]

    @staticmethod
    def facts(result):
        return result.text, result.tokens, result.end, result.prompt_tokens, result.choices

    def test_several_prompts(self):
        for options in (dict(temperature=0), dict(temperature=1, seed=5, logprobs=2), dict(grammar='root ::= [a-e]{3}')):
            options["max_tokens"] = 20
            want = [self.facts(one) for one in self.alone(options)]
            pieces = {}
            got = self.model.generate_each(self.PROMPTS, at_once=3, **options,
                                           emit=lambda number, text: pieces.setdefault(number, []).append(text))
            self.assertEqual([self.facts(one) for one in got], want)
            self.assertEqual(["".join(pieces.get(i, [])) for i in range(4)], [one.text for one in got])
        self.assertEqual(self.model.generate_each([]), [])
        prefix = self.model.conversation()
        prefix.read([1, 2, 3])
        with_prefix = self.model.generate("abc", conversation=prefix.fork(), max_tokens=9, temperature=0)
        got = self.model.generate_each(["abc"] * 2, conversations=[prefix.fork(), prefix.fork()], max_tokens=9,
                                       temperature=0)
        self.assertEqual([one.tokens for one in got], [with_prefix.tokens] * 2)

    def test_ctrl_c_ends_an_answer(self):
        model = tenon.LanguageModel(TINY / "tiny_llama.gguf", context=30000, threads=1)
        for emit in (None, lambda text: None):
            conversation = model.conversation()
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                model.generate("abc", conversation=conversation, max_tokens=29000, emit=emit,
                               temperature=0, grammar="root ::= [a-z] root")
            timer.join()
            self.assertLess(conversation.position, 25000)

    def test_ctrl_c_ends_long_calls(self):
        model = tenon.LanguageModel(TINY / "tiny_llama.gguf", context=30000, threads=1, chunk=64)
        conversation, tokens = model.conversation(), [5] * 29000
        encoder = tenon.SentenceEncoder(TINY / "encoders/nomic-bert.gguf", threads=1)

        @tenon.compiled
        def long(x):
            for _ in range(300):
                x = tenon.ops.matmul(x, x)
            return x

        x = np.zeros((700, 700), np.float32)
        for call in (lambda: conversation.read(tokens), lambda: long(x), lambda: encoder.embed(["a b c"] * 200000)):
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                call()
            timer.join()
        self.assertLess(conversation.position, 25000)
        self.assertEqual(conversation.position % 64, 0)  # whole chunks; it can be read on
        conversation.read(tokens[:3])
        self.assertEqual(encoder.embed("a b c").shape, encoder.embed(["a b c"]).shape[1:])

    def test_arguments_of_other_types_are_named(self):
        for name, value in (("max_tokens", "5"), ("max_tokens", None), ("stop", 5), ("stop", [5]), ("timeout", "1"),
                            ("logprobs", "a"), ("conversation", 5), ("draft", 5), ("grammar_after", 3)):
            with self.assertRaisesRegex(TypeError, rf"^{name}.* is "):
                self.model.generate("abc", **{name: value})
        for prompt in (None, 5, b"abc", ["a"], {"a": 1}):
            with self.assertRaisesRegex(TypeError, "^prompt.* is .*not a text, a sequence of tokens"):
                self.model.generate(prompt)
        with self.assertRaisesRegex(TypeError, "several prompts"):
            self.model.generate_each("abc")
        for messages in (None, 5):
            with self.assertRaisesRegex(TypeError, "^messages is"):
                self.model.chat(messages)

    def test_errors_of_some(self):
        for what, options in (("no option", dict(warmth=1)), ("max_tokens", dict(max_tokens=-1))):
            with self.assertRaisesRegex(tenon.ArgumentError, what):
                self.model.generate_each(self.PROMPTS, **options)
        with self.assertRaisesRegex(tenon.ArgumentError, "1 conversations for 4 prompts"):
            self.model.generate_each(self.PROMPTS, conversations=[None])
        shared = self.model.conversation()
        with self.assertRaisesRegex(tenon.ArgumentError, "another answer"):
            self.model.generate_each(["a", "b"], conversations=[shared, shared])
        pieces = []

        def emit(number, text):
            if number == 1:
                raise KeyError("hung up")
            pieces.append(number)

        with self.assertRaisesRegex(KeyError, "hung up"):
            self.model.generate_each(self.PROMPTS, max_tokens=20, temperature=0, emit=emit)
        self.assertEqual(set(pieces), {0, 2, 3})

    def test_many_callers(self):
        served = self.model.batched(at_once=3)
        self.assertIn("llama", repr(served))
        options = dict(max_tokens=20, temperature=1, seed=5)
        want = self.alone(options)
        results, texts = [None] * 8, {}

        def call(i):
            if i % 2:
                results[i] = served.generate(self.PROMPTS[i // 2], **options)
            else:
                texts[i] = "".join(served.stream(self.PROMPTS[i // 2], **options))

        for _ in range(2):  # the thread that steps ends, and begins anew
            threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for i in range(8):
                if i % 2:
                    self.assertEqual(self.facts(results[i]), self.facts(want[i // 2]))
                else:
                    self.assertEqual(texts[i], want[i // 2].text)

        async def pieces(prompt):
            return "".join([piece async for piece in served.astream(prompt, **options)])

        async def every():
            return await asyncio.gather(*map(pieces, self.PROMPTS))

        self.assertEqual(asyncio.run(every()), [one.text for one in want])
        stream = served.stream("abc", max_tokens=100, temperature=0, logit_bias={2: float("-inf")})
        next(stream)
        stream.close()
        with self.assertRaisesRegex(tenon.UnsupportedError, "drafts"):
            served.generate("abc", draft=tenon.Draft(lookup=3))
        with self.assertRaisesRegex(KeyError, "hung up"):
            served.generate("abc", emit=lambda text: {}["hung up"], temperature=0)
        self.assertEqual(served.generate("abc", **options).tokens, want[0].tokens)
        with unittest.mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")):
            for _ in range(2):
                with self.assertRaisesRegex(RuntimeError, "new thread"):
                    served.generate("abc", **options)
        self.assertEqual(served.generate("abc", **options).tokens, want[0].tokens)

    def test_prompts_that_begin_alike(self):
        model = tenon.LanguageModel(TINY / "tiny_llama.gguf", context=256, threads=1)
        prompts = [[7] * 90 + [20 + i] * 60 for i in range(3)]
        options = dict(max_tokens=5, temperature=1, seed=5)
        want = [self.facts(model.generate(prompt, **options)) for prompt in prompts]
        for prompt_bytes, reused in ((1 << 20, [0, 90, 90]), (0, [0, 0, 0])):
            served = model.batched(prompt_bytes=prompt_bytes)
            got = [served.generate(prompt, **options) for prompt in prompts]
            self.assertEqual([self.facts(one) for one in got], want)
            self.assertEqual([one.reused_tokens for one in got], reused)
        self.assertEqual([one.reused_tokens for one in model.generate_each(prompts, **options)], [0, 90, 90])

    def test_streams_of_many_tasks_and_of_slow_readers(self):
        served = self.model.batched(at_once=2)
        options = dict(max_tokens=60, temperature=0, grammar="root ::= [a-z] root")
        want = self.model.generate("abc", **options).text

        async def pieces():
            return "".join([piece async for piece in served.astream("abc", **options)])

        async def every():
            asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(2))
            return await asyncio.wait_for(asyncio.gather(*(pieces() for _ in range(12))), 60)

        self.assertEqual(asyncio.run(every()), [want] * 12)  # more than asyncio has threads
        slow = served.stream("abc", **options)
        next(slow)
        other = concurrent.futures.ThreadPoolExecutor(1).submit(served.generate, "abc", **options)
        self.assertEqual(other.result(timeout=60).text, want)
        self.assertEqual(len("".join(slow)), len(want) - 1)

    def test_images_among_others(self):
        picture = (TINY / "vision/picture.ppm").read_bytes()
        pixels = np.frombuffer(picture[len(b"P6\n23 37\n255\n"):], np.uint8).reshape(37, 23, 3)
        model = tenon.LanguageModel(TINY / "tiny_gemma3.gguf", context=128, threads=1, exact=True,
                                    mmproj=TINY / "vision/gemma3.gguf")
        prompts = [model.image_prompt("a <__media__> b", [pixels]), "abc"]
        options = dict(max_tokens=6, temperature=0)
        got = model.generate_each(prompts, **options)
        self.assertEqual([self.facts(one) for one in got],
                         [self.facts(model.generate(prompt, **options)) for prompt in prompts])

    def test_the_steps_of_it(self):
        both = [self.model.conversation() for _ in range(2)]
        both[0].read([3, 40])
        alone = [one.fork() for one in both]
        logits = self.model.read_each(both, [7, 8])
        np.testing.assert_array_equal(logits, np.stack([one.read([token]) for one, token in zip(alone, [7, 8])]))
        self.assertEqual(self.model.read_each_greedy(both, [9, 10]),
                         [one.read_greedy([token]) for one, token in zip(alone, [9, 10])])
        with self.assertRaisesRegex(tenon.ArgumentError, "3 tokens for 2 conversations"):
            self.model.read_each(both, [1, 2, 3])


class Images(unittest.TestCase):
    FOLDER = TINY / "vision"

    @classmethod
    def setUpClass(cls):
        picture = (cls.FOLDER / "picture.ppm").read_bytes()
        header = b"P6\n23 37\n255\n"
        assert picture.startswith(header)
        cls.pixels = np.frombuffer(picture[len(header):], np.uint8).reshape(37, 23, 3)
        cls.model = tenon.LanguageModel(TINY / "tiny_gemma3.gguf", context=128, threads=1, exact=True,
                                        mmproj=cls.FOLDER / "gemma3.gguf")

    def test_embeddings_are_those_of_transformers(self):
        for projector in ("gemma3", "idefics3", "mlp"):
            with self.subTest(projector):
                encoder = tenon.VisionEncoder(self.FOLDER / f"{projector}.gguf", threads=1, exact=True)
                self.assertEqual(encoder.config["projector"], projector)
                self.assertIn(projector, repr(encoder))
                want = np.load(self.FOLDER / f"{projector}_embeddings.npy")
                for made in (encoder, encoder.fork()):
                    rows = made.encode(self.pixels).numpy()
                    np.testing.assert_allclose(rows.reshape(want.shape), want, atol=5e-5)
                turned = encoder.encode(self.pixels[::-1, ::-1]).numpy()  # a view
                np.testing.assert_array_equal(turned, encoder.encode(self.pixels[::-1, ::-1].copy()).numpy())

    def test_images_of_any_size(self):
        for family, text in (("qwen2vl", "qwen2vl"), ("qwen25vl", "qwen2vl")):
            with self.subTest(family):
                model = tenon.LanguageModel(TINY / f"tiny_{text}.gguf", context=128, threads=1, exact=True,
                                            mmproj=self.FOLDER / f"{family}.gguf")
                rows = model.vision.encode(self.pixels)
                want = np.load(self.FOLDER / f"{family}_embeddings.npy")
                np.testing.assert_allclose(rows.numpy(), want, atol=5e-5)
                height, width = model.vision.size_of(*self.pixels.shape[:2])
                self.assertEqual(height * width, len(want))
                conversation = model.conversation()
                conversation.read([7 * i for i in range(12)])
                logits = conversation.read_image(rows, height, width)
                logits = np.stack([logits, conversation.read([84])]).astype(np.float64)
                want = np.load(self.FOLDER / f"{family}_logits.npy")[11 + len(want) : 13 + len(want)].astype(np.float64)
                for made in (logits, want):
                    made -= np.log(np.exp(made).sum(-1, keepdims=True))
                np.testing.assert_allclose(logits, want, atol=2e-3)
                prompt = model.image_prompt("a <__media__> b", [self.pixels])
                self.assertEqual(model.generate(prompt, max_tokens=3, temperature=0).prompt_tokens, len(prompt))
        small = tenon.VisionEncoder(self.FOLDER / "qwen2vl.gguf", threads=1, max_embeddings=6)
        self.assertEqual(small.fork().encode(self.pixels).shape, (3, 32))
        with self.assertRaisesRegex(tenon.Error, "one size"):
            tenon.VisionEncoder(self.FOLDER / "gemma3.gguf", max_embeddings=6)
        with self.assertRaises(tenon.Error):
            self.model.conversation().read_image(np.zeros((4, 32), np.float32), 2, 2)

    def test_generates(self):
        model, options = self.model, {"max_tokens": 6, "temperature": 0}
        prompt = model.image_prompt("a <__media__> b", [self.pixels])
        rows = model.vision.encode(self.pixels)
        self.assertIn("1 of them embeddings", repr(prompt))
        result = model.generate(prompt, **options)
        self.assertEqual(result.prompt_tokens, len(prompt))
        self.assertEqual(model.generate("a <__media__> b", images=[self.pixels], **options).tokens, result.tokens)
        self.assertEqual("".join(model.stream(prompt, **options)), result.text)
        # The same step by step, without the text that Gemma has around an image.
        conversation = model.conversation()
        conversation.read([2])
        mutual = conversation.fork()
        seen = mutual.read_embeddings(rows, mutual=True)
        self.assertEqual(mutual.tokens, [2] + [-2] * rows.shape[0])
        self.assertGreater(np.abs(seen - conversation.read_embeddings(rows)).max(), 1e-4)

    def test_images_without_markers_stand_first(self):
        model = self.model
        first = model.generate("text", images=[self.pixels], max_tokens=4, temperature=0)
        same = model.generate("<__media__>text", images=[self.pixels], max_tokens=4, temperature=0)
        self.assertEqual(first.tokens, same.tokens)

    def test_what_is_refused(self):
        model = self.model
        with self.assertRaisesRegex(tenon.ArgumentError, "2 images for 1 markers"):
            model.image_prompt("<__media__>", [self.pixels] * 2)
        with self.assertRaisesRegex(tenon.ArgumentError, "without mmproj"):
            tenon.LanguageModel(TINY / "tiny_llama.gguf", context=64, threads=1).generate("a", images=[self.pixels])
        for wrong in (self.pixels[0], self.pixels.astype(np.float32)):
            with self.assertRaises(tenon.InputError):
                model.vision.encode(wrong)
        with self.assertRaises(tenon.InputError):
            model.conversation().read_embeddings(np.zeros(3, np.float32))
        with self.assertRaises(tenon.Error):
            tenon.VisionEncoder(TINY / "tiny_llama.gguf")


@unittest.skipUnless(MINILM, "TENON_TEST_MODELS has no MiniLM")
class Encoder(unittest.TestCase):
    def test_embeds(self):
        encoder = tenon.SentenceEncoder(MINILM)
        texts = ["A cat sits on the mat.", "A kitten rests on a rug.", "Stocks fell on Monday."]
        embeddings = encoder.embed(texts).numpy()
        np.testing.assert_allclose((embeddings ** 2).sum(1), 1, rtol=1e-5)
        similar = embeddings @ embeddings.T
        self.assertGreater(similar[0, 1], similar[0, 2] + 0.2)
        np.testing.assert_allclose(encoder.similarity(encoder.embed(texts[:1]), encoder.embed(texts)).numpy(),
                                   similar[:1], atol=1e-5)
        one = encoder.embed(texts[2])
        self.assertEqual(one.shape, (encoder.config["width"],))
        np.testing.assert_allclose(encoder.similarity(encoder.embed(texts), one).numpy(), similar[:, 2], atol=1e-5)
        np.testing.assert_allclose(encoder.embed(iter(texts)).numpy(), embeddings, atol=1e-6)
        self.assertIn(MINILM.name, repr(encoder))
        self.assertIsInstance(encoder.fork(), tenon.SentenceEncoder)
        np.testing.assert_array_equal(encoder.fork().embed(texts).numpy(), embeddings)
        self.assertEqual(encoder.tokens("a"), encoder.tokenizer.encode("a"))
        with self.assertRaises(TypeError):
            encoder.embed([1])
        with self.assertRaisesRegex(tenon.InputError, "text 1 has a lone surrogate"):
            encoder.embed(["a", "\udc80"])
        with self.assertRaises(tenon.ArgumentError):
            encoder.embed([])


class GgufEncoder(unittest.TestCase):
    folder = TINY / "encoders"

    def setUp(self):
        self.records = json.loads((self.folder / "llama_cpp.json").read_text())

    def loaded(self, name, **options):
        return tenon.SentenceEncoder(self.folder / f"{name}.gguf", threads=1, exact=True, **options)

    def test_several_threads(self):
        encoder = self.loaded("nomic-bert")
        texts = ["a cat", "dogs " * 20, "a tree and a house " * 9]
        want = [encoder.embed(text).numpy() for text in texts]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for i, got in [(i % 3, pool.submit(encoder.embed, texts[i % 3])) for i in range(120)]:
                np.testing.assert_array_equal(got.result().numpy(), want[i])
        for wrong in (None, 5):
            with self.assertRaisesRegex(TypeError, "texts are .*, not a sequence of str"):
                encoder.embed(wrong)

    def test_embeddings_are_llama_cpps(self):
        for name in ("nomic-bert", "gemma-embedding", "qwen3_embedding"):
            record = self.records[name]
            encoder = self.loaded(name, normalize="none")
            self.assertEqual(encoder.config["pooling"], record["pooling"])
            made = encoder.embed(record["texts"]).numpy()
            np.testing.assert_allclose(made, record["embeddings"], atol=2e-3)
            np.testing.assert_allclose(encoder.embed(record["texts"][0]).numpy(), made[0], atol=1e-5)
            self.assertEqual([encoder.tokens(text) for text in record["texts"]], record["ids"])
            units = self.loaded(name).embed(record["texts"]).numpy()
            np.testing.assert_allclose((units ** 2).sum(1), 1, rtol=1e-5)
        self.assertIn("qwen3_embedding.gguf", repr(encoder))

    def test_tokens_and_poolings(self):
        record = self.records["bert_tokens"]
        encoder = self.loaded("bert_tokens", normalize="none")
        for text, want in zip(record["texts"], record["embeddings"]):
            np.testing.assert_allclose(encoder.embed_tokens(text).numpy(), want, atol=5e-3)
        mean = self.loaded("bert_tokens", normalize="none", pooling="mean").embed(record["texts"][0]).numpy()
        np.testing.assert_allclose(mean, encoder.embed_tokens(record["texts"][0]).numpy().mean(0), atol=1e-5)
        with self.assertRaisesRegex(tenon.UnsupportedError, "embed_tokens"):
            encoder.embed("a")
        with self.assertRaisesRegex(tenon.ArgumentError, "no pooling 'median'"):
            self.loaded("bert", pooling="median")
        with self.assertRaisesRegex(tenon.ArgumentError, "normalize"):
            self.loaded("bert", normalize="p3")

    def test_rerank(self):
        for name in ("xlm_roberta_rank", "jina-bert-v2_code", "modern-bert_rank", "qwen3_rank"):
            record = self.records[name]
            reranker = self.loaded(name)
            found = reranker.rerank(record["query"], record["documents"])
            order = sorted(range(len(record["scores"])), key=lambda at: -record["scores"][at])
            self.assertEqual([one.index for one in found], order)
            np.testing.assert_allclose([one.score for one in found], [record["scores"][at] for at in order], atol=2e-3)
            self.assertEqual(reranker.rerank(record["query"], record["documents"], top=1), found[:1])
            self.assertEqual([reranker.tokens(record["query"], document) for document in record["documents"]],
                             record["ids"])
            if name != "qwen3_rank":  # whose template it is
                pair = reranker.tokenizer.encode_pair(record["query"], record["documents"][0])
                self.assertEqual(pair, record["ids"][0])
            with self.assertRaises(TypeError):
                reranker.rerank("a", "a document")
            with self.assertRaises(tenon.UnsupportedError):
                reranker.embed("a")

    def test_other_files(self):
        with self.assertRaisesRegex(tenon.UnsupportedError, "ask for a pooling"):
            tenon.SentenceEncoder(TINY / "tiny_llama.gguf")
        with self.assertRaisesRegex(tenon.UnsupportedError, "SentenceEncoder"):
            tenon.LanguageModel(self.folder / "bert.gguf")


class EncoderErrors(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)
        source = pathlib.Path(__file__).parent / "hf/bert"
        for name in ("config.json", "model.safetensors"):
            shutil.copy(source / name, self.folder)
        self.config = json.loads((source / "config.json").read_text())

    def refused(self, code, file, says=""):
        with self.assertRaises(tenon.Error) as raised:
            tenon.SentenceEncoder(self.folder)
        self.assertEqual(raised.exception.code, code)
        self.assertTrue(raised.exception.where.startswith(str(self.folder / file)), raised.exception)
        self.assertIn(says, raised.exception.message)

    def test_name_the_path(self):
        self.refused("NotFound", "model.safetensors", "tokenizer.json")
        for changes, code, says in (({"hidden_size": "x"}, "BadType", "hidden_size"),
                                    ({"model_type": "llama"}, "Unsupported", "llama"),
                                    ({"hidden_act": "nope"}, "Unsupported", "nope"),
                                    ({"num_attention_heads": 10**9}, "BadHyperparameter", "num_attention_heads")):
            (self.folder / "config.json").write_text(json.dumps({**self.config, **changes}))
            self.refused(code, "config.json", says)
        (self.folder / "config.json").write_text(json.dumps({**self.config, "num_hidden_layers": 99}))
        self.refused("BadReference", "model.safetensors", "encoder.layer.")
        (self.folder / "config.json").write_text("{")
        self.refused("Syntax", "config.json")
        (self.folder / "config.json").unlink()
        self.refused("NotFound", "model.safetensors", "config.json")

    def test_wrong_options(self):
        with self.assertRaisesRegex(TypeError, "treads"):
            tenon.SentenceEncoder(self.folder, treads=1)
        with self.assertRaisesRegex(TypeError, "treads"):
            tenon.LanguageModel(self.folder, treads=1)


if __name__ == "__main__":
    unittest.main()

"""What every command does when it is called rightly."""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
import struct
import subprocess
import tempfile
import time
import xml.etree.ElementTree

import model_files
from harness import (
    DATA, ENDED_EARLY, LLAMA, LLAMA_VOCABULARY, MACHINE, MALFORMED, SOURCE, UNSUPPORTED, WRONG_CALL, ToolTest,
    read_npy,
)

COMMANDS = ("chat", "generate", "embed", "rerank", "info", "tokenize", "score", "quantize", "bench", "profile", "graph",
            "run", "check", "fmt", "diff", "codegen", "import", "export", "compare", "devices")


# What an answer of the tiny model needs to go on for minutes: the tokens that would end it are excluded.
ENDLESS = ("--prompt", "abc", "-n", 1000000, "--ctx", 2000000, "--logit-bias", "0=-inf", "--logit-bias", "2=-inf")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def log_softmax(row):
    peak = max(row)
    total = math.log(sum(math.exp(x - peak) for x in row))
    return [x - peak - total for x in row]


class Folder(ToolTest):
    def setUp(self):
        super().setUp()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)


class Help(ToolTest):
    def test_every_command_has_help(self):
        overview = self.tenon("--help").stdout.decode()
        for command in COMMANDS:
            self.assertRegex(overview, rf"(?m)^  {command} ")
            done = self.tenon(command, "--help")
            self.assertEqual(done.stderr, b"")
            self.assertIn(f"Usage: tenon {command}", done.stdout.decode())
            self.assertIn("--json", done.stdout.decode())

    def test_version(self):
        self.assertRegex(self.tenon("--version").stdout.decode(), r"^tenon \d+\.\d+\.\d+\n$")


class Info(Folder):
    def test_lists_tensors_and_metadata(self):
        info = self.json("info", LLAMA)
        self.assertEqual(info["format"], "gguf")
        self.assertEqual(len(info["tensors"]), 22)
        self.assertEqual(info["tensor_bytes"], sum(t["bytes"] for t in info["tensors"]))
        self.assertEqual(info["parameters"], sum(math.prod(t["shape"]) for t in info["tensors"]))
        by_name = {tensor["name"]: tensor for tensor in info["tensors"]}
        self.assertEqual(by_name["token_embd.weight"]["shape"], [LLAMA_VOCABULARY, 32])
        self.assertEqual(info["metadata"]["llama.block_count"], 2)
        self.assertEqual(info["metadata"]["llama.attention.layer_norm_rms_epsilon"], 1e-6)
        self.assertEqual(info["tokenizer"], "272 tokens, chat format none")

    def test_text_says_the_same(self):
        text = self.tenon("info", LLAMA).stdout.decode()
        self.assertRegex(text, r"^tiny_llama\.gguf: gguf, 22 tensors, ")
        self.assertIn("  llama.attention.layer_norm_rms_epsilon = 1e-06\n", text)

    def test_text_of_a_stranger_is_no_command_to_a_terminal(self):
        file = self.folder / "model.gguf"
        key, text = "key\x1b[2J\x9b1m\u202e", "value\x07\x7f\x9b2J\u2066"
        model_files.add_text(LLAMA, file, key, text)
        for arguments in ((), ("--json",)):
            shown = self.tenon("info", file, *arguments).stdout.decode()
            self.assertIn("value", shown)
            for hidden in "\x1b\x07\x7f\x9b\u202e\u2066":
                self.assertNotIn(hidden, shown)
        self.assertEqual(self.json("info", file)["metadata"][key], text)
        self.assertIn("key\\x1b[2J\\u{9b}1m\\u{202e} = ", self.tenon("info", file).stdout.decode())

    def test_many_keys_and_tensors_cost_little(self):
        count = 100_000
        header = {"__metadata__": {f"key {i}": str(i) for i in range(count)}}
        for i in range(count):
            header[f"layer.{i}.weight"] = {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
        text = json.dumps(header).encode()
        file = self.folder / "many.safetensors"
        file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(count))
        least = self.peak_bytes("info", LLAMA)
        for arguments in ((), ("--json",)):
            peak = self.peak_bytes("info", file, *arguments)
            self.assertLess(peak - least, 10 * file.stat().st_size)
        info = self.json("info", file)
        self.assertEqual(len(info["metadata"]), count)
        self.assertEqual(info["tensors"][-1]["name"], f"layer.{count - 1}.weight")


class Devices(ToolTest):
    def test_names_the_cpu(self):
        devices = self.json("devices")
        self.assertIn("cpu:", devices["devices"])
        cpu = next(b for b in devices["backends"] if b["name"] == "cpu")
        self.assertIn("isa", cpu["properties"])
        self.assertRegex(self.tenon("devices").stdout.decode(), "backend cpu, .*isa ")
        self.assertIn("npu:", devices["devices"])
        cpu, npu = self.json("devices", "cpu:", "npu://sim?ocm=1MiB")["devices"]
        self.assertEqual([region["name"] for region in cpu["mem_regions"]], ["host"])
        self.assertEqual(npu["params"]["ocm"], "1MiB")
        self.assertEqual({r["name"]: r["capacity_bytes"] for r in npu["mem_regions"]}["ocm"], 1 << 20)
        self.assertEqual([r["name"] for r in npu["mem_regions"] if r["default"]], ["etm"])
        self.assertIn("npu", npu["reg_regions"])
        self.assertIn("memory etm (default)", self.tenon("devices", "npu://sim").stdout.decode())


class Tokenize(Folder):
    def test_a_long_word_takes_at_most_100_times_its_memory(self):
        file = self.folder / "text.txt"
        file.write_bytes(bytes(97 + i * i % 26 for i in range(2_000_000)))
        least = self.peak_bytes("tokenize", LLAMA, "a")
        for arguments in ((), ("--json",)):
            peak = self.peak_bytes("tokenize", LLAMA, "--file", file, *arguments)
            self.assertLess(peak - least, 100 * file.stat().st_size)

    def ids(self, *arguments, stdin=b""):
        result = self.json("tokenize", LLAMA, *arguments, stdin=stdin)
        self.assertEqual(result["count"], len(result["ids"]))
        self.assertEqual(len(result["tokens"]), len(result["ids"]))
        printed = self.tenon("tokenize", LLAMA, *arguments, stdin=stdin).stdout.decode()
        self.assertEqual([int(word) for word in printed.split()], result["ids"])
        return result["ids"]

    def test_argument_file_and_standard_input_agree(self):
        text = "the <|im_end|> hand, Ωmega\n"
        path = self.folder / "text.txt"
        path.write_text(text, encoding="utf-8")
        ids = self.ids(text)
        self.assertEqual(self.ids("--file", path), ids)
        self.assertEqual(self.ids("--file", "-", stdin=text.encode()), ids)

    def test_special_spellings(self):
        self.assertEqual(self.ids("<|im_start|>a"), [1, 100])
        plain = self.json("tokenize", LLAMA, "<|im_start|>a", "--no-special")
        self.assertNotIn(1, plain["ids"])
        self.assertEqual("".join(plain["tokens"]), "<|im_start|>a")

    def test_texts_that_are_odd(self):
        self.assertEqual(self.ids(""), [])
        self.assertEqual(len(self.ids(b"\xff\xfe")), 2)  # bytes that are no UTF-8
        dashed = self.tenon("tokenize", LLAMA, "--", "-a").stdout.split()
        self.assertEqual([int(word) for word in dashed], self.ids("--file", "-", stdin=b"-a"))


class Generate(Folder):
    def made(self, *arguments, stdin=b""):
        """Greedy, unless the arguments say otherwise."""
        greedy = () if "--temp" in arguments else ("--temp", 0, "--repeat-penalty", 1)
        return self.json("generate", LLAMA, *arguments, *greedy, stdin=stdin)

    def test_greedy_text(self):
        made = self.made("--prompt", "abc", "-n", 8)
        self.assertEqual(made["prompt_tokens"], 3)
        self.assertEqual(len(made["tokens"]), 8)
        self.assertEqual(made["stopped"], "length")
        for key in ("load_s", "map_s", "plan_s", "pack_s", "first_token_s", "prompt_plan_s", "prefill_s",
                    "decode_s", "prefill_tok_s", "decode_tok_s"):
            self.assertGreater(made[key], 0, key)
        parts = sum(made[key] for key in ("map_s", "plan_s", "pack_s", "tokenizer_s"))
        self.assertAlmostEqual(parts, made["load_s"], places=6)
        self.assertAlmostEqual(made["prefill_tok_s"] * made["prefill_s"], 3, places=3)
        again = self.made("--prompt", "abc", "-n", 8, "-t", 1)
        self.assertEqual((again["tokens"], again["text"]), (made["tokens"], made["text"]))
        printed = self.tenon("generate", LLAMA, "--prompt", "abc", "-n", 8)
        self.assertTrue(printed.stdout.endswith(b"\n"))
        self.assertIn(b"tokens/s", printed.stderr)
        self.assertNotIn(b"\r", printed.stderr)  # progress is for terminals

    def test_packed_weights_are_kept(self):
        want = self.made("--prompt", "abc", "-n", 8)["tokens"]
        folder = self.folder / "kept" / "here"
        self.assertEqual(self.made("--prompt", "abc", "-n", 8, "--packed", folder)["tokens"], want)
        (file,) = folder.iterdir()
        self.assertRegex(file.name, r"^tiny_llama\.gguf-[0-9a-f]{16}\.packed$")
        written = file.stat().st_mtime_ns
        self.assertEqual(self.made("--prompt", "abc", "-n", 8, "--packed", folder)["tokens"], want)
        self.assertEqual(file.stat().st_mtime_ns, written)
        file.write_bytes(file.read_bytes()[:-1])  # damaged: packed again
        self.assertEqual(self.made("--prompt", "abc", "-n", 8, "--packed", folder)["tokens"], want)

    def test_prompt_from_a_file_and_from_standard_input(self):
        path = self.folder / "prompt.txt"
        path.write_bytes(b"abc")
        want = self.made("--prompt", "abc", "-n", 4)["tokens"]
        self.assertEqual(self.made("--prompt-file", path, "-n", 4)["tokens"], want)
        self.assertEqual(self.made("--prompt-file", "-", "-n", 4, stdin=b"abc")["tokens"], want)

    def test_no_tokens(self):
        made = self.made("--prompt", "abc", "-n", 0)
        self.assertEqual((made["tokens"], made["text"]), ([], ""))

    def test_context_that_fills_up(self):
        made = self.made("--prompt", "abc", "-n", 50, "--ctx", 4)
        self.assertEqual(made["stopped"], "context full")
        self.assertEqual(len(made["tokens"]), 2)  # one read at position 3, one never read

    def test_a_prompt_cache_reads_tokens_once(self):
        cache = self.folder / "prompt"
        for model in (LLAMA, DATA / "tiny_mamba.gguf", DATA / "tiny_lfm2.gguf"):
            cache.write_bytes(b"")  # as mktemp makes it: there is nothing yet

            def made(prompt, *options):
                return self.json("generate", model, "--prompt", prompt, "-n", 6, "--seed", 3,
                                 "--prompt-cache", cache, *options)

            def counts(result):
                return result["cached_tokens"], result["prompt_tokens"]

            with self.subTest(model=model.name):
                plain = self.json("generate", model, "--prompt", "abc def ghi", "-n", 6, "--seed", 3)
                self.assertNotIn("cached_tokens", plain)
                length = plain["prompt_tokens"]
                first = made("abc def ghi")
                self.assertEqual(counts(first), (0, length))
                written = cache.read_bytes()
                again = made("abc def ghi")
                self.assertEqual(counts(again), (length - 1, 1))
                self.assertEqual(again["tokens"], first["tokens"])
                longer = made("abc def ghi jkl", "--prompt-cache-ro")
                self.assertEqual(counts(longer), (length - 1, 5))
                self.assertEqual(cache.read_bytes(), written)  # nothing new, and read only
                whole = made("abc def ghi", "--prompt-cache-all")
                self.assertEqual(whole["tokens"], first["tokens"])
                self.assertGreater(len(cache.read_bytes()), len(written) if model == LLAMA else 0)
                continued = made("abc def ghi" + whole["text"] + "!", "--prompt-cache-ro")
                if whole["text"].isascii():
                    self.assertGreater(continued["cached_tokens"], length)
                self.assertEqual(counts(made("xyz"))[0], 0)  # another one replaces it
                self.assertEqual(counts(made("xyz"))[1], 1)
                done = self.tenon("generate", model, "--prompt", "xyz", "-n", 1, "--prompt-cache", cache)
                self.assertRegex(done.stderr, rb"prompt 1 tokens after \d+ in the cache")

    def test_an_empty_prompt_continues_what_a_prompt_cache_holds(self):
        cache = self.folder / "prompt"
        for model in (LLAMA, DATA / "tiny_rwkv7.gguf"):
            cache.unlink(missing_ok=True)
            options = ("-n", 9, "--temp", 0, "--repeat-penalty", 1)
            want = self.json("generate", model, "-p", "abc", *options)["tokens"]
            got = []
            for prompt in ("abc", "", ""):
                made = self.json("generate", model, "-p", prompt, "-n", 4, *options[2:],
                                 "--prompt-cache", cache, "--prompt-cache-all")["tokens"]
                got += made[:3]  # the last one is drawn and not read
            self.assertEqual(got, want)
        self.refused(WRONG_CALL, "BadArgument", "generate", LLAMA, "-p", "", "--prompt-cache", self.folder / "none",
                     says="no tokens")

    def test_a_prompt_cache_keeps_what_was_read_in_time(self):
        cache = self.folder / "prompt"
        done = self.json("generate", LLAMA, "--prompt", "abc " * 100, "-n", 2, "--timeout", 1e-6,
                         "--prompt-cache", cache, status=ENDED_EARLY)
        self.assertEqual((done["stopped"], done["tokens"]), ("deadline", []))
        self.assertEqual(done["prompt_tokens"], 0)
        self.assertTrue(cache.exists())
        self.assertEqual(self.made("--prompt", "abc", "-n", 1, "--prompt-cache", cache)["cached_tokens"], 0)

    def test_wrong_prompt_caches_are_refused(self):
        cache = self.folder / "prompt"
        prompt = ("--prompt", "abc", "-n", 1)
        self.made(*prompt, "--prompt-cache", cache)
        good = cache.read_bytes()
        given = ("generate", LLAMA, *prompt, "--prompt-cache", cache)
        self.refused(MALFORMED, "Incompatible", "generate", DATA / "tiny_qwen2.gguf", *prompt,
                     "--prompt-cache", cache, says=str(cache))
        self.refused(MALFORMED, "Incompatible", *given, "--cache", "f32", says="'cache' is 'f16' there, 'f32'")
        self.refused(MALFORMED, "LimitExceeded", *given[:3], "a", *given[4:], "--ctx", 1, says=str(cache))
        self.assertEqual(cache.read_bytes(), good)
        for bytes_, code in ((good[:-1], "BadOffset"), (good[:-1] + bytes([good[-1] ^ 1]), "Corrupt"),
                             (b"no tensors", "BadMagic"), (LLAMA.read_bytes(), "BadMagic")):
            cache.write_bytes(bytes_)
            self.refused(MALFORMED, code, *given, says=cache.name)
            self.assertEqual(cache.read_bytes(), bytes_)  # of the user, whatever it is
        self.refused(MACHINE, "IoError", *given[:-1], self.folder / "no" / "such", says="no folder")
        # Also where the prompt is one token, which leaves nothing to save, and before the model is loaded.
        for model in LLAMA, self.folder / "no model":
            self.refused(MACHINE, "IoError", "generate", model, "-p", "a", "-n", 1, "--prompt-cache",
                         self.folder / "no" / "such", says="no folder")
        self.refused(MACHINE, "IoError", *given[:-1], self.folder, says="names a folder")
        self.refused(WRONG_CALL, "BadArgument", *given[:-1], "", says="--prompt-cache")
        for option in ("--prompt-cache-all", "--prompt-cache-ro"):
            self.refused(WRONG_CALL, "BadArgument", *given[:-2], option, says="requires --prompt-cache")
        self.refused(WRONG_CALL, "BadArgument", *given, "--prompt-cache-all", "--prompt-cache-ro", says="excludes")

    def test_draws_repeat_with_their_seed(self):
        greedy = self.made("--prompt", "abc", "-n", 12)["tokens"]
        for where in (), ("--sample-on-device",):
            def made(*options):
                return self.made("--prompt", "abc", "-n", 12, "--temp", 2, *options, *where)

            first = made("--seed", 7)
            self.assertEqual(made("--seed", 7)["tokens"], first["tokens"])
            self.assertNotEqual(made("--seed", 8)["tokens"], first["tokens"])
            self.assertEqual(made("--top-k", 1, "--repeat-penalty", 1)["tokens"], greedy)
            self.assertEqual(first["options"]["sample_on_device"], bool(where))

    def test_temperature_zero_is_greedy_without_a_penalty(self):
        plain = self.made("--prompt", "abc", "-n", 12, "--temp", 0)
        self.assertEqual(plain["options"]["repetition_penalty"], 1)
        self.assertEqual(plain["tokens"], self.made("--prompt", "abc", "-n", 12)["tokens"])
        given = self.made("--prompt", "abc", "-n", 2, "--temp", 0, "--repeat-penalty", 1.3)
        self.assertEqual(given["options"]["repetition_penalty"], 1.3)

    def test_options_are_echoed(self):
        options = self.json("generate", LLAMA, "--prompt", "a", "-n", 2, "--seed", 7)["options"]
        ours = {"defaults_of": "tenon", "temperature": 0.7, "top_p": 0.95, "repetition_penalty": 1.1}
        self.assertEqual({**options, **ours, "seed": 7, "max_tokens": 2}, options)
        options = self.made("--prompt", "a", "-n", 2, "--temp", 0.5, "--logit-bias", "3=-inf",
                            "--logit-bias", "4=1.5", "--stop", "x", "--ctx", 32)["options"]
        chosen = {"temperature": 0.5, "logit_bias": {"3": "-inf", "4": 1.5}, "stop": ["x"], "context": 32}
        self.assertEqual({**options, **chosen}, options)
        self.assertIn(b"seed 0", self.tenon("generate", LLAMA, "--prompt", "a", "-n", 2).stderr)

    def test_draws_are_as_the_model_advises(self):
        model = self.folder / "model.gguf"
        shutil.copy(LLAMA, model)
        (self.folder / "generation_config.json").write_text('{"temperature": 0.25, "top_k": 5}')
        options = self.json("generate", model, "--prompt", "a", "-n", 1, "--top-k", 9)["options"]
        want = {"defaults_of": "generation_config.json", "temperature": 0.25, "top_k": 9, "top_p": 1}
        self.assertEqual({**options, **want}, options)

    def test_samplers_of_llama_cpp(self):
        def options(*given):
            return self.made("--prompt", "abcabcabc", "-n", 4, "--temp", 1, *given)["options"]

        numbers = {"--typical": "typical_p", "--typical-p": "typical_p", "--top-nsigma": "top_n_sigma",
                   "--xtc-probability": "xtc_probability", "--xtc-threshold": "xtc_threshold",
                   "--frequency-penalty": "frequency_penalty", "--presence-penalty": "presence_penalty",
                   "--dry-multiplier": "dry_multiplier", "--dynatemp-range": "dynatemp_range",
                   "--dynatemp-exp": "dynatemp_exponent", "--mirostat-ent": "mirostat_tau",
                   "--mirostat-lr": "mirostat_eta", "--adaptive-target": "adaptive_target",
                   "--adaptive-decay": "adaptive_decay"}
        for flag, key in numbers.items():
            with self.subTest(flag):
                self.assertEqual(options(flag, 0.25)[key], 0.25)
        counts = {"--repeat-last-n": "repetition_window", "--dry-allowed-length": "dry_allowed_length",
                  "--dry-penalty-last-n": "dry_window", "--mirostat": "mirostat"}
        for flag, key in counts.items():
            with self.subTest(flag):
                self.assertEqual(options(flag, 2)[key], 2)
        self.assertEqual(options("--dry-base", 1.5)["dry_base"], 1.5)
        self.assertTrue(options("--temperature-last")["temperature_last"])
        self.assertEqual(options("--top-n-sigma", -1)["top_n_sigma"], -1)
        # A line feed, a colon, a quotation mark, an asterisk; "an", "and", "a" and " a" before an n.
        for texts, count in (((), 4), (("none",), 0), (("an",), 4), ((r"\n", ":"), 2)):
            given = [word for text in texts for word in ("--dry-sequence-breaker", text)]
            with self.subTest(texts):
                self.assertEqual(options("--dry-multiplier", 1, *given)["dry_breakers"], count)
        self.assertEqual(options()["dry_breakers"], 0)
        self.refused(WRONG_CALL, "BadArgument", "generate", LLAMA, "-p", "a", "--xtc-probability", 2,
                     says="SamplerOptions.xtc_probability: is 2, allowed: 0 to 1")
        self.refused(WRONG_CALL, "BadArgument", "generate", LLAMA, "-p", "a", "--mirostat", 3, says="--mirostat")
        self.refused(UNSUPPORTED, "Unsupported", "generate", LLAMA, "-p", "a", "--mirostat", 2,
                     "--sample-on-device", says="mirostat 2")

    def test_samplers_change_what_is_drawn(self):
        def tokens(*given):
            return self.made("--prompt", "abcabcabc", "-n", 24, "--seed", 3, *given)["tokens"]

        greedy = tokens("--temp", 0)
        # They know the tokens of the prompt and of the answer.
        self.assertNotEqual(tokens("--temp", 0, "--presence-penalty", 5), greedy)
        self.assertNotEqual(tokens("--temp", 0, "--dry-multiplier", 10, "--dry-allowed-length", 1), greedy)
        self.assertEqual(tokens("--temp", 1, "--mirostat", 2, "--mirostat-ent", 0, "--repeat-penalty", 1), greedy)
        self.assertEqual(tokens("--temp", 1, "--top-nsigma", 1e-6, "--repeat-penalty", 1), greedy)
        drawn = tokens("--temp", 1, "--repeat-penalty", 1)
        for changed in (("--typical", 0.2), ("--xtc-probability", 1, "--xtc-threshold", 0.01),
                        ("--dynatemp-range", 1), ("--adaptive-target", 0), ("--mirostat", 1)):
            with self.subTest(changed):
                self.assertNotEqual(tokens("--temp", 1, "--repeat-penalty", 1, *changed), drawn)

    def test_stop_texts(self):
        whole = self.made("--prompt", "abc", "-n", 24)["text"]
        stop = whole[len(whole) // 2 :][:2]
        made = self.made("--prompt", "abc", "-n", 24, "--stop", "never this", "--stop", stop)
        self.assertEqual((made["stopped"], made["text"]), ("stop text", whole[: whole.index(stop)]))

    def test_log_probabilities(self):
        made = self.made("--prompt", "abc", "-n", 3, "--logprobs", 2)
        self.assertEqual([entry["id"] for entry in made["logprobs"]], made["tokens"])
        for entry in made["logprobs"]:
            self.assertEqual(len(entry["top"]), 2)
            self.assertEqual(entry["top"][0]["id"], entry["id"])
            self.assertGreaterEqual(entry["logprob"], entry["top"][1]["logprob"])
            self.assertLess(entry["logprob"], 0)
        self.assertNotIn("logprobs", self.made("--prompt", "abc", "-n", 1))
        refused = self.tenon("generate", LLAMA, "--prompt", "a", "--logprobs", 2, status=WRONG_CALL)
        self.assertIn(b"--logprobs needs --json", refused.stderr)

    def test_grammars(self):
        path, gbnf = self.folder / "answer.gbnf", 'root ::= "yes" | "no"'
        path.write_text(gbnf)
        for given in (("--grammar", gbnf), ("--grammar-file", path)):
            made = self.made("--prompt", "abc", "-n", 9, *given)
            self.assertIn(made["text"], ("yes", "no"))
            self.assertEqual((made["stopped"], made["options"]["grammar"]), ("end of the grammar", gbnf))
        path.write_text('{"enum": [17, "x"]}')
        for given in (("-j", path.read_text()), ("--json-schema-file", path)):
            self.assertIn(self.made("--prompt", "abc", *given)["text"], ("17", '"x"'))
        refused = self.tenon("generate", LLAMA, "--prompt", "a", "--grammar", gbnf, "-j", "{}", status=WRONG_CALL)
        self.assertIn(b"--grammar excludes --json-schema", refused.stderr)
        refused = self.tenon("generate", "no file", "--prompt", "a", "--grammar", "root ::= x", status=MALFORMED)
        self.assertIn(b'BadReference: grammar: 1:10: no rule is named "x"', refused.stderr)
        refused = self.tenon("chat", "no file", "-j", '{"not": {}}', status=UNSUPPORTED)
        self.assertIn(b'the keyword "not"', refused.stderr)

    def test_drafts_change_the_time_and_not_the_answer(self):
        prompt = ("--prompt", "abc abc abc abc", "-n", 40)
        for sampling in ("--temp", 0), ("--temp", 0.5, "--seed", 3, "--repeat-penalty", 1.2):
            plain = self.made(*prompt, *sampling)
            self.assertEqual((plain["drafted_tokens"], plain["accepted_tokens"]), (0, 0))
            ways = {"by a model": ("--model-draft", LLAMA, "--draft-p-min", 0), "by lookup": ("--lookup", 3),
                    "by lookup of two": ("--lookup", 3, "--lookup-min", 1, "--draft-max", 2),
                    "by another model": ("--model-draft", DATA / "tiny_gpt2.gguf", "--lookup", 2)}
            for way, options in ways.items():
                with self.subTest(way, sampling=sampling):
                    made = self.made(*prompt, *sampling, *options)
                    for key in "tokens", "text", "stopped":
                        self.assertEqual(made[key], plain[key])
                    self.assertLessEqual(made["accepted_tokens"], made["drafted_tokens"])
            right = self.made(*prompt, *sampling, *ways["by a model"])
            self.assertGreater(right["accepted_tokens"], 8)
        options = self.made(*prompt, "--model-draft", LLAMA, "--draft-max", 5)["options"]
        self.assertEqual(options, {**options, "model_draft": str(LLAMA), "draft_max": 5, "draft_p_min": 0.75, "lookup": 0})
        summary = self.tenon("generate", LLAMA, *prompt, "--temp", 0, *ways["by a model"]).stderr
        self.assertRegex(summary, rb"tokens/s, \d+ of \d+ drafted ones accepted \(\d+ %\)\n")

    def test_models_that_cannot_draft_are_refused(self):
        prompt = ("--prompt", "abc", "-n", 2)
        mamba = DATA / "tiny_mamba.gguf"
        for options in (LLAMA, "--model-draft", mamba), (mamba, "--lookup", 3), \
                (LLAMA, "--lookup", 3, "--sample-on-device", "--temp", 1):
            error = self.json("generate", *options, *prompt, status=UNSUPPORTED)["error"]
            self.assertEqual(error["code"], "Unsupported")
        other = self.folder / "other.gguf"
        other.write_bytes(LLAMA.read_bytes().replace(b"<|im_start|>", b"<|im_begin|>"))
        refused = self.tenon("generate", LLAMA, "--model-draft", other, *prompt, status=MALFORMED)
        self.assertIn(b"cannot draft for", refused.stderr)
        refused = self.tenon("generate", LLAMA, "--draft-p-min", 0.5, *prompt, status=WRONG_CALL)
        self.assertIn(b"--model-draft", refused.stderr)

    def test_a_bias_excludes_a_token(self):
        first = self.made("--prompt", "abc", "-n", 4)["tokens"][0]
        without = self.made("--prompt", "abc", "-n", 4, "--logit-bias", f"{first}=-inf")["tokens"]
        self.assertNotIn(first, without)

    def test_prompt_that_is_no_utf8(self):
        self.assertEqual(self.made("--prompt", b"a\xffb", "-n", 2)["prompt_tokens"], 3)

    def test_interrupted_it_prints_what_there_is(self):
        arguments = [self.program, "generate", LLAMA, *map(str, ENDLESS), "--json"]
        running = subprocess.Popen(arguments, cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while cpu_seconds(running.pid) < 0.5:  # long after loading
            self.assertIsNone(running.poll())
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=60)
        made = json.loads(out)
        self.assertEqual((running.returncode, made["stopped"]), (ENDED_EARLY, "cancelled"))
        self.assertGreater(len(made["tokens"]), 0)

    def test_measurements_are_interrupted(self):
        tokens = self.folder / "tokens.txt"
        tokens.write_text("1 " * 400_000)
        for command in (("bench", "-r", 1000, "-p", 4000), ("profile", "-n", 1 << 20), ("score", "--file", tokens)):
            with self.subTest(command[0]):
                running = subprocess.Popen([self.program, command[0], str(LLAMA), *map(str, command[1:])], cwd=SOURCE,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                while cpu_seconds(running.pid) < 0.5:  # long after it handles signals
                    self.assertIsNone(running.poll())
                    time.sleep(0.02)
                running.send_signal(signal.SIGINT)
                out, error = running.communicate(timeout=60)
                self.assertEqual((running.returncode, out), (ENDED_EARLY, b""))
                self.assertTrue(error.startswith(b"tenon: Cancelled: "), error)

    def test_far_deadlines_and_minus_one(self):
        made = self.json("generate", LLAMA, "--prompt", "abc", "-n", 3, "--temp", 0, "--timeout", "1e10")
        self.assertEqual((made["stopped"], len(made["tokens"])), ("length", 3))
        made = self.json("generate", LLAMA, "--prompt", "abc", "-n", -1, "--ctx", 40, "--seed", -1, "--repeat-last-n", -1,
                         "--dry-penalty-last-n", -1, "--logit-bias", "258=-inf")
        self.assertIn(made["stopped"], ("context full", "end token"))
        options = made["options"]
        self.assertEqual((options["repetition_window"], options["dry_window"]), (40, 40))
        seeds = {self.json("generate", LLAMA, "--prompt", "a", "-n", 0, "--seed", -1)["options"]["seed"] for _ in range(3)}
        self.assertGreater(len(seeds), 1)

    def test_a_deadline(self):
        made = self.json("generate", LLAMA, *ENDLESS, "--timeout", 0.5, status=ENDED_EARLY)
        self.assertEqual(made["stopped"], "deadline")

    def test_a_terminal_sees_progress(self):
        ours, theirs = os.openpty()
        try:
            subprocess.run([self.program, "generate", LLAMA, "--prompt", "a", "-n", "1"], cwd=SOURCE,
                           stdout=subprocess.PIPE, stderr=theirs, timeout=300, check=True)
            seen = os.read(ours, 65536)
            self.assertIn(b"\rloading 100%", seen)
            # Packing is a part of it, weight by weight.
            self.assertGreater(len(set(re.findall(rb"loading +(\d+)%", seen))), 5)
        finally:
            os.close(theirs)
            os.close(ours)


class Chat(Folder):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "chat.gguf"
        model_files.add_text(LLAMA, self.model, "tokenizer.chat_template", model_files.CHATML)

    def test_turns_from_standard_input(self):
        chat = self.json("chat", self.model, "-n", 6, stdin=b"hand\n\nthe end")
        self.assertEqual([turn["user"] for turn in chat["turns"]], ["hand", "the end"])
        for turn in chat["turns"]:
            self.assertLessEqual(len(turn["tokens"]), 6)
        first = self.json("generate", self.model, "--chat", "--prompt", "hand", "-n", 6)
        self.assertEqual(chat["turns"][0]["assistant"], first["text"])
        self.assertEqual(chat["turns"][0]["prompt_tokens"], first["prompt_tokens"])

    def test_later_turns_read_only_what_is_new(self):
        chat = self.json("chat", self.model, "-n", 1, stdin=b"a\na\n")
        # Template around one message and what ends the answer before it, not the turns before.
        self.assertLess(chat["turns"][1]["prompt_tokens"], 2 * chat["turns"][0]["prompt_tokens"])

    def test_a_system_message_is_read(self):
        plain = self.json("chat", self.model, "-n", 1, stdin=b"a\n")["turns"][0]
        led = self.json("chat", self.model, "-n", 1, "--system", "in the end", stdin=b"a\n")["turns"][0]
        self.assertGreater(led["prompt_tokens"], plain["prompt_tokens"])

    def test_other_templates(self):
        def tokens(*options, model=self.model, status=0):
            command = "generate", model, "--chat", "--prompt", "hand", "-n", 1, *options
            result = self.json(*command, status=status)
            return result["error"] if status else result["prompt_tokens"]

        own = tokens()
        self.assertEqual(tokens("--chat-template", "chatml", model=LLAMA), own)
        self.assertLess(tokens("--chat-template", "{{ messages[0].content }}"), own)
        template = self.folder / "template.jinja"
        template.write_text("{{ messages[0].content }}{{ mood }}")
        plain = tokens("--chat-template-file", template)
        self.assertGreater(tokens("--chat-template-file", template, "--chat-template-kwargs", '{"mood": "in the end"}'), plain)
        self.assertIn("no chat template", tokens(model=LLAMA, status=3)["message"])
        self.assertIn("endif", tokens("--chat-template", "{% if 1 %}", status=3)["message"])
        self.assertEqual(tokens("--chat-template-kwargs", "{", status=3)["code"], "Syntax")
        chat = self.json("chat", LLAMA, "--chat-template", "llama2", "-n", 1, stdin=b"a\n")
        self.assertEqual(len(chat["turns"]), 1)

    def test_text_goes_to_standard_output_and_the_rest_elsewhere(self):
        printed = self.tenon("chat", self.model, "-n", 3, stdin=b"a\n")
        self.assertNotIn(b"tokens/s", printed.stdout)
        self.assertIn(b"tokens/s", printed.stderr)

    def test_raw_turns_go_on_with_one_text(self):
        raw = self.json("chat", self.model, "--raw", "-n", 4, "--temp", 0, stdin=b"hand\n")["turns"][0]
        plain = self.json("generate", self.model, "-n", 4, "--temp", 0, "--prompt", "hand")
        self.assertEqual(raw["assistant"], plain["text"])
        two = self.json("chat", self.model, "--raw", "-n", 4, "--temp", 0, stdin=b"hand\na\n")["turns"]
        self.assertEqual(two[0], {**two[0], "assistant": raw["assistant"]})
        # The second turn reads what was drawn last and what is new, not the text before.
        self.assertLessEqual(two[1]["prompt_tokens"], 3)
        self.assertEqual(self.tenon("chat", LLAMA, "--raw", "-n", 2, stdin=b"a\n").returncode, 0)

    def test_drafts_of_a_chat(self):
        messages = b"hand\nthe end\nhand\n"
        plain = self.json("chat", self.model, "-n", 12, "--temp", 0, stdin=messages)["turns"]
        for options in ("--lookup", 2, "--lookup-min", 1), ("--model-draft", LLAMA, "--draft-p-min", 0):
            turns = self.json("chat", self.model, "-n", 12, "--temp", 0, *options, stdin=messages)["turns"]
            for got, want in zip(turns, plain, strict=True):
                self.assertEqual((got["tokens"], got["prompt_tokens"]), (want["tokens"], want["prompt_tokens"]))
        self.assertGreater(sum(turn["accepted_tokens"] for turn in turns), 0)
        printed = self.tenon("chat", self.model, "-n", 12, "--temp", 0, *options, stdin=messages)
        self.assertIn(b"drafted ones accepted", printed.stderr)

    def test_no_message(self):
        self.assertEqual(self.json("chat", self.model)["turns"], [])

    def test_info_names_the_format(self):
        self.assertEqual(self.json("info", self.model)["tokenizer"], "272 tokens, chat format chatml")


class Score(Folder):
    tokens = [7 * i % LLAMA_VOCABULARY for i in range(48)]

    def rows(self, path):
        shape, values = read_npy(path)
        self.assertEqual(shape[1], LLAMA_VOCABULARY)
        return [values[i * shape[1] : (i + 1) * shape[1]] for i in range(shape[0])]

    def test_logits_are_the_reference_s(self):
        out = self.folder / "logits.npy"
        text = ",".join(map(str, self.tokens))
        score = self.json("score", LLAMA, "--tokens", text, "--out", out, "--precision", "exact")
        self.assertEqual(score["out"], {"path": str(out), "shape": [48, LLAMA_VOCABULARY]})
        got = [log_softmax(row) for row in self.rows(out)]
        want = [log_softmax(row) for row in self.rows(DATA / "tiny_llama_logits.npy")]
        self.assertEqual(len(got), len(want))
        worst = max(abs(g - w) for a, b in zip(got, want) for g, w in zip(a, b))
        self.assertLess(worst, 1e-4)

        mean = statistics.fmean(got[i][self.tokens[i + 1]] for i in range(47))
        best = statistics.fmean(max(got[i]) == got[i][self.tokens[i + 1]] for i in range(47))
        self.assertAlmostEqual(score["mean_log_probability"], mean, places=5)
        self.assertAlmostEqual(score["perplexity"], math.exp(mean * -1), delta=1e-4 * score["perplexity"])
        self.assertAlmostEqual(score["top1_accuracy"], best, places=9)

    def test_last_rows(self):
        out, last = self.folder / "all.npy", self.folder / "last.npy"
        path = self.folder / "tokens.json"
        path.write_text("[5, 6,\n7 8]\n")
        self.json("score", LLAMA, "--file", path, "--out", out)
        score = self.json("score", LLAMA, "--tokens", "5 6 7 8", "--last", 3, "--out", last)
        self.assertEqual(score["out"]["shape"], [3, LLAMA_VOCABULARY])
        self.assertEqual(self.rows(last), self.rows(out)[1:])
        beyond = self.json("score", LLAMA, "--tokens", "5 6 7 8", "--last", 99, "--out", last)
        self.assertEqual(beyond["out"]["shape"], [4, LLAMA_VOCABULARY])

    def test_one_token_predicts_nothing(self):
        score = self.json("score", LLAMA, "--file", "-", stdin=b"5")
        self.assertIsNone(score["perplexity"])
        self.assertEqual(self.tenon("score", LLAMA, "--tokens", "5").stdout, b"1 token: nothing to predict\n")


class Bench(ToolTest):
    def test_medians_of_all_runs(self):
        bench = self.json("bench", LLAMA, "-p", 8, "-n", 4, "-r", 3, "-t", 1)
        self.assertEqual(
            set(bench),
            {"prefill_tokens", "decode_tokens", "depth", "conversations", "prefill_tok_s", "decode_tok_s", "load_s",
             "load", "first_token_s", "peak_bytes", "runs"},
        )
        self.assertGreater(bench["load"]["pack_s"], 0)
        for key in ("prefill_tok_s", "decode_tok_s"):
            self.assertEqual(len(bench["runs"][key]), 3)
            self.assertGreater(min(bench["runs"][key]), 0)
            self.assertEqual(bench[key], statistics.median(bench["runs"][key]))
        self.assertGreater(bench["first_token_s"], bench["load_s"])
        self.assertGreater(bench["peak_bytes"], 1 << 20)

    def test_one_half_alone(self):
        bench = self.json("bench", LLAMA, "-p", 0, "-n", 2, "-r", 1)
        self.assertEqual(bench["runs"]["prefill_tok_s"], [])
        self.assertNotIn(b"prefill", self.tenon("bench", LLAMA, "-p", 0, "-n", 2, "-r", 1).stdout)

    def test_several_conversations(self):
        command = ("bench", LLAMA, "-p", 0, "-n", 3, "-d", 4, "-r", 2, "--conversations", 5)
        bench = self.json(*command)
        self.assertEqual(bench["conversations"], 5)
        self.assertEqual(len(bench["runs"]["decode_tok_s"]), 2)
        self.assertIn(b"in all, 5 conversations at once", self.tenon(*command).stdout)
        self.assertEqual(self.json(*command[:-1], 0, status=2)["error"]["code"], "BadArgument")

    def test_behind_other_tokens(self):
        bench = self.json("bench", LLAMA, "-p", 0, "-n", 2, "-d", 5, "-r", 1)
        self.assertEqual(bench["depth"], 5)
        beyond = self.json("bench", LLAMA, "-p", 0, "-n", 2, "-d", 5, "--ctx", 6, "-r", 1, status=2)
        self.assertEqual(beyond["error"]["code"], "BadArgument")


PROGRAM = """# tenon 1.0
from __future__ import annotations
from tenon.ir import *
module("small", opset=1)

def forward(x: f32[N, 2]):
    w: f32[2] = const("w")
    y: f32[N, 2] = mul(x, w)
    z: f32[N] = sum(y, axes=[1])
    return z
"""


LOOP = """# tenon 1.0
from __future__ import annotations
from tenon.ir import *
module("loop", opset=1)

def block(x: f32[N, 2], i: i64, s: Scope):
    y: f32[N, 2] = add(x, x)
    return y

def forward(x: f32[N, 2]):
    s = scope("layers")
    c = pack(x)
    r = repeat(block, 3, c, s)
    z: f32[N, 2] = item(r, 0)
    return z
"""


WHILE = """# tenon 1.0
from __future__ import annotations
from tenon.ir import *
module("loop", opset=1)

def block(go: bool, x: f32[2, 2], i: i64, s: Scope):
    y: f32[2, 2] = add(x, x)
    m: f32 = max(y, axes=[0, 1])
    h: f32 = full(value=100.0)
    g: bool = lt(m, h)
    return g, y

def forward(x: f32[2, 2]):
    z: f32[2, 2] = neg(x)
    a: f32 = full(value=1.0)
    b: f32 = full(value=2.0)
    g: bool = lt(a, b)
    w: f32[2, 2] = abs(z)
    s = scope("layers")
    c = pack(g, w)
    r = repeat(block, 50, c, s, condition=0)
    y: f32[2, 2] = item(r, 1)
    return y
"""


class Programs(Folder):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "small.tenon"
        self.text.write_text(PROGRAM)
        floats = struct.Struct("<4f").pack
        self.inputs = model_files.write_safetensors(
            self.folder / "inputs.safetensors", {"x": ("F32", [2, 2], floats(1, 2, 3, 4))})
        self.weights = model_files.write_safetensors(
            self.folder / "weights.safetensors", {"w": ("F32", [2], struct.pack("<2f", 10, 1))})

    def test_run(self):
        call = ("run", self.text, "--inputs", self.inputs, "--weights", self.weights)
        printed = self.tenon(*call).stdout.decode()
        self.assertEqual(printed, "z = [12, 34] f32[2]\n")
        stepped = self.tenon(*call, "--steps").stdout.decode()
        self.assertRegex(stepped, r"(?s)^y = mul: .*z = sum: .*z = \[12, 34\]")
        saved = self.folder / "out.safetensors"
        result = self.json(*call, "--save", saved)
        self.assertEqual(result["results"], [{"name": "z", "type": "f32[2]"}])
        self.assertEqual(saved.read_bytes()[-8:], struct.pack("<2f", 12, 34))
        # A value that is returned twice is one array.
        self.text.write_text(PROGRAM.replace("return z", "return z, z"))
        self.assertEqual(len(self.json(*call, "--save", saved)["results"]), 2)
        self.assertEqual(saved.read_bytes()[-8:], struct.pack("<2f", 12, 34))
        # The text may name its weights.
        self.text.write_text(PROGRAM.replace("opset=1", 'opset=1, weights="weights.safetensors"'))
        self.assertEqual(self.tenon("run", self.text, "--inputs", self.inputs).stdout.decode(), printed)
        self.assertIn(b"--inputs", self.tenon("run", self.text, status=WRONG_CALL).stderr)

    def test_breakpoints(self):
        call = ("run", self.text, "--inputs", self.inputs, "--weights", self.weights)
        for where in (9, "z"):
            self.assertEqual(self.tenon(*call, "--break", where).stdout.decode(),
                             f"{self.text}:9: z: f32[N] = sum(y, axes=[1])\n"
                             "  y = [[10,  2],\n       [30,  4]] f32[2, 2]\n  z = [12, 34] f32[2]\n"
                             "z = [12, 34] f32[2]\n")
        both = self.json(*call, "--break", 8, "--break", "z")
        self.assertEqual([(step["line"], step["value"], step["op"], step["type"]) for step in both["steps"]],
                         [(8, "y", "mul", "f32[2, 2]"), (9, "z", "sum", "f32[2]")])
        self.assertEqual(len(self.json(*call, "--steps")["steps"]), 2)
        # Neither a line of a statement nor a value; then a constant, which no step computes.
        for where in (1, 10, 400, "-1", "yy", "main.y"):
            self.refused(WRONG_CALL, "BadArgument", *call, f"--break={where}", says=f"'{where}'")
        self.assertIn(b"--break w: no step", self.tenon(*call, "--break", "w").stderr)

    def test_breakpoints_in_a_loop(self):
        self.text.write_text(LOOP)
        call = ("run", self.text, "--inputs", self.inputs)
        shown = self.tenon(*call, "--break", 7).stdout.decode()
        self.assertEqual(shown.count(f"{self.text}:7: y: f32[N, 2] = add(x, x)\n"), 3)
        self.assertIn("  block_2_y = [[ 8, 16],\n               [24, 32]] f32[2, 2]\n", shown)
        self.assertEqual(self.tenon(*call, "--break", "y").stdout.decode(), shown)
        only = self.tenon(*call, "--break", "block_1_y").stdout.decode()
        self.assertEqual(only.count(":7: "), 1)
        self.assertIn("block_1_y = [[ 4,  8],", only)

    def test_breakpoints_in_a_loop_with_a_condition(self):
        self.text.write_text(WHILE)
        call = ("run", self.text, "--inputs", self.inputs)
        done = self.tenon(*call, "--break", "m", "--break", 7, "--break", "w")
        self.assertEqual(done.stderr, b"")
        # abs may write over its operand, which is shown as it was.
        self.assertIn(f"{self.text}:18: w: f32[2, 2] = abs(z)\n  z = [[-1, -2],\n       [-3, -4]] f32[2, 2]\n"
                      "  w = [[1, 2],", done.stdout.decode())
        shown = done.stdout.decode()
        self.assertGreater(shown.count(f"{self.text}:8: m: f32 = max(y, axes=[0, 1])\n  y = "), 2)

    def test_steps_by_commands(self):
        call = ("run", self.text, "--inputs", self.inputs, "--weights", self.weights, "--step")
        done = self.tenon(*call, stdin=b"p x\np w\np z\nwhat\ns\np y\nc\n").stdout.decode()
        self.assertEqual(done, f"""{self.text}:8: y: f32[N, 2] = mul(x, w)
  x = [[1, 2],
       [3, 4]] f32[2, 2]
  w = [10,  1] f32[2]
  y = [[10,  2],
       [30,  4]] f32[2, 2]
  x = [[1, 2],
       [3, 4]] f32[2, 2]
  w = [10,  1] f32[2]
nothing has been computed under the name 'z'
'what' is none of s, c, p NAME, q
{self.text}:9: z: f32[N] = sum(y, axes=[1])
  y = [[10,  2],
       [30,  4]] f32[2, 2]
  z = [12, 34] f32[2]
  y = [[10,  2],
       [30,  4]] f32[2, 2]
z = [12, 34] f32[2]
""")
        for end in (b"q\n", b""):
            self.assertNotIn(b"z =", self.tenon(*call, stdin=end).stdout)
        at_z = self.tenon(*call, "--break", "z", stdin=b"c\n").stdout.decode()
        self.assertTrue(at_z.startswith(f"{self.text}:9: "), at_z)
        self.assertEqual(self.json(*call, status=WRONG_CALL)["error"]["code"], "BadArgument")

    def test_diff(self):
        self.assertEqual(self.tenon("diff", self.text, self.text).stdout, b"")
        other = self.folder / "other.tenon"
        other.write_text(PROGRAM.replace("y:", "made:").replace("(y,", "(made,"))
        self.assertEqual(self.json("diff", self.text, other), {"equal": True, "lines": []})
        other.write_text(PROGRAM.replace("mul(x, w)", "add(x, w)").replace("small", "large"))
        lines = ['- module: name is "small"', '+ module: name is "large"', "  def forward:",
                 "-     y: f32[N, 2] = mul(x, w)", "+     y: f32[N, 2] = add(x, w)"]
        self.assertEqual(self.tenon("diff", self.text, other, status=7).stdout.decode().splitlines(), lines)
        self.assertEqual(self.json("diff", self.text, other, status=7), {"equal": False, "lines": lines})
        self.tenon("diff", self.text, self.folder / "none.tenon", status=MALFORMED)
        weights = self.folder / "weights.gguf"
        weights.write_bytes(b"GGUF" + bytes(100))
        self.refused(MALFORMED, "BadMagic", "diff", self.text, weights, says="a GGUF file, where a program's text is read")
        self.refused(MALFORMED, "BadMagic", "codegen", weights, says="a GGUF file, where a program's text is read")

    def test_check(self):
        self.assertEqual(self.tenon("check", self.text).stdout.decode(), f"{self.text}: right\n")
        wrong = self.folder / "wrong.tenon"
        wrong.write_text(PROGRAM.replace("mul(x, w)", "mull(x, w)").replace("[1])", "[7])"))
        done = self.tenon("check", self.text, wrong, status=WRONG_CALL)
        self.assertRegex(done.stdout.decode(), rf"(?m)^UnknownOp: {wrong}:8:\d+: .*mull")
        files = self.json("check", wrong, status=WRONG_CALL)["files"]
        self.assertEqual(files[0]["errors"][0]["line"], 8)
        none = self.folder / "none.tenon"
        done = self.tenon("check", none, self.text, status=MALFORMED)
        self.assertEqual(done.stdout.decode().splitlines(),
                         [f"NotFound: {none}: No such file or directory", f"{self.text}: right"])

    def test_fmt(self):
        self.assertEqual(self.tenon("fmt", self.text).stdout.decode(), PROGRAM)
        loose = PROGRAM.replace("mul(x, w)", "mul( x,w )")
        self.text.write_text(loose)
        self.text.chmod(0o640)
        self.assertEqual(self.tenon("fmt", "-", stdin=loose.encode()).stdout.decode(), PROGRAM)
        self.assertEqual(self.text.read_text(), loose)
        self.assertTrue(self.json("fmt", self.text, "--write")["differs"])
        self.assertEqual(self.text.read_text(), PROGRAM)
        self.assertEqual(self.text.stat().st_mode & 0o777, 0o640)
        self.assertFalse(self.json("fmt", self.text, "--write")["differs"])
        self.refused(WRONG_CALL, "BadArgument", "fmt", "--write", "-", says="--write is for a file")

    def test_files_are_replaced_and_nothing_else(self):
        link, beside = self.folder / "link.tenon", self.folder / f"{self.text.name}.tmp"
        link.symlink_to(self.text.name)
        beside.write_text("of somebody else")
        self.text.write_text(PROGRAM.replace("mul(x, w)", "mul( x,w )"))
        self.tenon("fmt", link, "--write")
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.text.read_text(), PROGRAM)
        self.assertEqual(beside.read_text(), "of somebody else")
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.refused(MALFORMED, "NotRegularFile", "codegen", self.text, "-o", pipe, says="not a regular file")
        self.assertTrue(pipe.is_fifo())
        self.refused(MACHINE, "IoError", "codegen", self.text, "-o", self.folder / "no" / "x.hpp",
                     says="No such file or directory")

    def test_codegen(self):
        code = self.tenon("codegen", self.text).stdout.decode()
        self.assertIn("Array y = eager_.run(tenon::Mul{}, std::move(x), w);", code)
        self.assertIn(f'#line 7 "{self.text}"', code)
        self.assertNotIn("int main(", code)
        written = self.folder / "small.cpp"
        self.tenon("codegen", self.text, "--output", written, "--main", "--no-lines")
        self.assertIn("int main(", written.read_text())
        self.assertNotIn("#line", written.read_text())
        self.assertEqual(self.json("codegen", "-", stdin=PROGRAM.encode())["code"],
                         self.tenon("codegen", self.text, "--no-lines").stdout.decode())
        self.assertIn(b"no main()", self.tenon("codegen", self.text, "-o", self.folder / "small.hpp", "--main",
                                               status=WRONG_CALL).stderr)
        self.assertIn(b"small.tenon:8:", self.tenon("codegen", self.wrong_text(), status=WRONG_CALL).stderr)

    def wrong_text(self):
        wrong = self.folder / "small.tenon"
        wrong.write_text(PROGRAM.replace("mul(x, w)", "mull(x, w)"))
        return wrong


class Compare(Folder):
    def write(self, name, arrays):
        return model_files.write_safetensors(self.folder / name, arrays)

    def read(self, path):
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        header.pop("__metadata__", None)
        return {key: (facts["dtype"], facts["shape"],
                      data[8 + size + facts["data_offsets"][0]:8 + size + facts["data_offsets"][1]])
                for key, facts in header.items()}

    def test_what_was_recorded_is_what_is_computed(self):
        inputs = self.write("inputs.safetensors", {"ids": ("I64", [1, 3], struct.pack("<3q", 1, 2, 3))})
        recorded = self.folder / "recorded.safetensors"
        self.tenon("compare", LLAMA, inputs, "--save", recorded)
        arrays = self.read(recorded)
        self.assertGreater(len(arrays), 10)
        self.assertEqual(arrays["ids"][:2], ("I32", [1, 3]))
        done = self.tenon("compare", LLAMA, recorded, "--relative", 0).stdout.decode()
        self.assertIn(f"all {len(arrays) - 1} values are within the tolerance", done)

        layers = self.folder / "layers.safetensors"
        self.tenon("compare", LLAMA, inputs, "--save", layers, "--name", "layer[0]", "--name", "layer[1]")
        arrays = self.read(layers)
        self.assertEqual(set(arrays), {"ids", "layer[0]", "layer[1]"})
        kind, shape, data = arrays["layer[1]"]
        values = list(struct.unpack(f"<{len(data) // 4}f", data))
        values[5] += 10
        arrays["layer[1]"] = kind, shape, struct.pack(f"<{len(values)}f", *values)
        arrays["embedding"] = "F32", [1], struct.pack("<f", 0)
        changed = self.write("changed.safetensors", arrays)
        result = self.json("compare", LLAMA, changed, status=7)
        self.assertEqual((result["first"], result["unknown"]), ("layer[1]", ["embedding"]))
        worst = {value["name"]: value for value in result["values"]}
        self.assertEqual(worst["layer[0]"]["max"], 0)
        self.assertAlmostEqual(worst["layer[1]"]["max"], 10, places=4)
        text = self.tenon("compare", LLAMA, changed, status=7).stdout.decode()
        self.assertRegex(text, r"(?m)^layer\[1\] .* differs$")
        self.assertIn("no step computes embedding\n", text)
        self.assertIn("the first that differs: layer[1]", text)

    def test_texts(self):
        path = self.folder / "net.tenon"
        path.write_text("# tenon 1.0\nfrom __future__ import annotations\nfrom tenon.ir import *\n"
                        'module("net", opset=1)\n\ndef block(x: f32[N, 2], i: i64, s: Scope):\n'
                        '    w: f32[2] = const(s, "w")\n    y = mul(x, w)\n    return y\n\n'
                        'def forward(x: f32[N, 2]):\n    s = scope("l")\n    c = pack(x)\n'
                        "    r = repeat(block, 2, c, s)\n    z = item(r, 0)\n    return z\n")
        floats = lambda *values: ("F32", [len(values)], struct.pack(f"<{len(values)}f", *values))
        weights = self.write("w.safetensors", {"l.0.w": floats(2, 3), "l.1.w": floats(5, 7)})
        inputs = self.write("x.safetensors", {"x": ("F32", [1, 2], floats(1, 1)[2])})
        recorded = self.folder / "recorded.safetensors"
        self.assertIn(b"--weights", self.tenon("compare", path, inputs, "--save", recorded, status=WRONG_CALL).stderr)
        self.tenon("compare", path, inputs, "--weights", weights, "--save", recorded)
        arrays = self.read(recorded)
        self.assertEqual({name: struct.unpack("<2f", one[2]) for name, one in arrays.items()},
                         {"x": (1, 1), "block_0_y": (2, 3), "block_1_y": (10, 21)})
        self.tenon("compare", path, recorded, "--weights", weights, "--relative", 0)
        other = self.write("other.safetensors", {"l.0.w": floats(2, 3), "l.1.w": floats(5, 8)})
        result = self.json("compare", path, recorded, "--weights", other, status=7)
        self.assertEqual(result["first"], "block_1_y")
        self.assertIn(b"a model has its own",
                      self.tenon("compare", LLAMA, recorded, "--weights", other, status=WRONG_CALL).stderr)

    def test_files_that_do_not_fit(self):
        empty = self.write("empty.safetensors", {"x": ("F32", [1], b"abcd")})
        self.assertIn(b"no array 'ids'", self.tenon("compare", LLAMA, empty, status=MALFORMED).stderr)
        ids = ("I64", [1, 2], struct.pack("<2q", 1, 2))
        alone = self.write("alone.safetensors", {"ids": ids, "x": ("F32", [1], b"abcd")})
        self.assertIn(b"no step computes any", self.tenon("compare", LLAMA, alone, status=MALFORMED).stderr)
        small = self.write("small.safetensors", {"ids": ids, "layer[0]": ("F32", [1], b"abcd")})
        self.assertIn(b"layer[0]", self.tenon("compare", LLAMA, small, status=WRONG_CALL).stderr)


class Graph(Folder):
    def test_text_is_the_default(self):
        text = self.tenon("graph", LLAMA).stdout
        self.assertEqual(self.tenon("graph", LLAMA, "--text").stdout, text)
        described = self.json("graph", LLAMA)
        self.assertEqual(described["form"], "text")
        self.assertEqual(described["graph"].encode(), text)
        self.assertLess(described["planned_bytes"], described["activation_bytes"])
        on_cpu = [v for part in described["parts"] if part["backend"] == "cpu" for v in part["values"]]
        elsewhere = [v for part in described["parts"] if part["backend"] != "cpu" for v in part["values"]]
        self.assertTrue(on_cpu)
        self.assertLessEqual(len(elsewhere), 1)  # the sum of integer positions, if anything
        self.assertIn("repeat", described["graph"])

    def test_svg_is_xml(self):
        picture = self.tenon("graph", LLAMA, "--svg").stdout
        root = xml.etree.ElementTree.fromstring(picture)
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        self.assertGreater(len(root.findall("{http://www.w3.org/2000/svg}path")), 10)

    def test_draws_a_text(self):
        path = self.folder / "step.tenon"
        path.write_bytes(self.tenon("graph", LLAMA).stdout)
        self.assertEqual(self.tenon("graph", path, "--svg").stdout, self.tenon("graph", LLAMA, "--svg").stdout)
        self.assertEqual(self.json("graph", path)["graph"], self.json("graph", LLAMA)["graph"])
        # From standard input, behind a byte order mark; a constant's type may be that of its weight.
        text = re.sub(rb'(?m)^(    \w+): [^=]* = const\(', rb"\1 = const(", path.read_bytes())
        self.assertIn(b" = const(", text)
        path.write_bytes(b"\xef\xbb\xbf" + text)
        self.assertEqual(self.tenon("graph", path).stdout, self.tenon("graph", "-", stdin=text).stdout)
        self.assertNotIn("parts", self.json("graph", path))

    def test_saves_a_network(self):
        path = self.folder / "net.json"
        saved = self.json("graph", LLAMA, "--save", path)
        self.assertEqual(saved["raw"], str(self.folder / "net.raw"))
        net = json.loads(path.read_text(encoding="utf-8"))
        self.assertRegex(net["raw"].pop("id"), "^[0-9a-f]{16}$")
        self.assertEqual(net["raw"], {"file": "net.raw", "size_bytes": saved["raw_bytes"]})
        self.assertEqual(os.path.getsize(saved["raw"]), saved["raw_bytes"])
        stored = {c["name"]: c for c in net["constants"]}
        self.assertEqual(len(stored), saved["constants"])
        for tensor in self.json("info", LLAMA)["tensors"]:
            self.assertEqual(stored[tensor["name"]]["type"]["shape"], tensor["shape"])
            self.assertEqual(stored[tensor["name"]]["size_bytes"], tensor["bytes"])
        nodes = [node for f in net["functions"] for node in f["nodes"]]
        self.assertIn("repeat", {node["op"] for node in nodes})
        self.refused(WRONG_CALL, "BadArgument", "run", path, "--weights", LLAMA, says="a network has its own")
        # In a file of its own name, and said in a line.
        line = self.tenon("graph", LLAMA, "--save", path, "--raw", self.folder / "w.bin").stdout
        self.assertIn(b"w.bin", line)
        self.assertEqual(os.path.getsize(self.folder / "w.bin"), saved["raw_bytes"])

    def test_opens_what_it_saved(self):
        path, again = self.folder / "net.json", self.folder / "again.json"
        self.json("graph", LLAMA, "--save", path)
        want, got = self.json("graph", LLAMA), self.json("graph", path)
        self.assertEqual(got["graph"], want["graph"])
        self.assertEqual(got["planned_bytes"], want["planned_bytes"])
        saved = self.json("graph", path, "--save", again)
        self.assertEqual(os.path.getsize(saved["raw"]), os.path.getsize(self.folder / "net.raw"))
        self.assertEqual(self.json("graph", again)["graph"], want["graph"])
        picture = self.tenon("graph", self.folder / "net.json", "--svg").stdout
        xml.etree.ElementTree.fromstring(picture)

    def test_dot_has_its_nodes(self):
        text = self.tenon("graph", LLAMA, "--dot").stdout.decode()
        self.assertRegex(text, r'^digraph "')
        self.assertEqual(text.count("{"), text.count("}"))
        nodes = re.findall(r'^    ("[^"]*") \[label="(?:[^"\\]|\\.)*"\];$', text, re.MULTILINE)
        edges = re.findall(r'^    ("[^"]*") -> ("[^"]*");$', text, re.MULTILINE)
        self.assertEqual(len(nodes), len(set(nodes)))
        self.assertGreater(len(edges), 10)
        self.assertLessEqual({end for edge in edges for end in edge}, set(nodes))


class Profile(Folder):
    def test_lines_say_where_the_time_goes(self):
        trace = self.folder / "trace.json"
        made = self.json("profile", LLAMA, "-p", 24, "-n", 3, "--trace", trace)
        self.assertGreater(made["limits"]["f32_ops"], 0)
        for stage, runs in (("prefill", 1), ("decode", 3)):
            profile = made[stage]
            self.assertEqual(profile["runs"], runs)
            listed = sum(line["seconds"] for line in profile["lines"])
            self.assertLessEqual(listed, profile["seconds"])
            products = [line for line in profile["lines"] if line["op"] == "linear"]
            self.assertTrue(products)
            for line in products:
                self.assertGreater(line["flops"], line["count"])
                self.assertGreater(line["bytes"], line["count"])
                self.assertGreater(line["share_of_limit"], 0)
        names = {event["name"] for event in json.loads(trace.read_text("utf-8"))["traceEvents"]}
        self.assertTrue({line["value"] for line in made["decode"]["lines"]} <= names)

    def test_a_table_for_people(self):
        def table(rows):
            return self.tenon("profile", LLAMA, "-p", 8, "-n", 0, "--rows", rows).stdout.decode()

        text = table(1000)
        self.assertIn("prefill, 8 tokens", text)
        self.assertIn("linear", text)
        self.assertNotIn("decode", text)
        self.assertRegex(table(2), r"\d+ further lines")

    def test_nothing_to_profile(self):
        self.refused(WRONG_CALL, "BadArgument", "profile", LLAMA, "-p", 0, "-n", 0, says="nothing to profile")

    def test_trace_that_cannot_be_written(self):
        # Before the model is opened.
        nowhere = self.folder / "none" / "trace.json"
        self.refused(MACHINE, "IoError", "profile", "none.gguf", "--trace", nowhere, says="No such file")


class Embed(Folder):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "encoder"
        model_files.make_encoder(self.model)

    def test_vectors_of_length_one(self):
        texts = ["a red house", "a blue car.", "a red house"]
        made = self.json("embed", self.model, *texts)
        self.assertEqual((made["count"], made["width"]), (3, model_files.ENCODER_WIDTH))
        for row in made["embeddings"]:
            self.assertAlmostEqual(math.hypot(*row), 1, places=5)
        for a in range(3):
            for b in range(3):
                dot = sum(x * y for x, y in zip(made["embeddings"][a], made["embeddings"][b]))
                self.assertAlmostEqual(made["similarity"][a][b], dot, places=5)
        self.assertAlmostEqual(made["similarity"][0][2], 1, places=5)
        self.assertLess(made["similarity"][0][1], 0.999)
        printed = self.tenon("embed", self.model, *texts).stdout.decode()
        self.assertTrue(printed.startswith("3 embeddings of 16 numbers\n"), printed)

    def test_file_of_lines_and_npy(self):
        path, out = self.folder / "lines.txt", self.folder / "e.npy"
        path.write_bytes(b"a red house\r\na blue car\n" + b"a\n" * 18)
        made = self.json("embed", self.model, "--file", path, "--out", out)
        self.assertEqual(list(made), ["count", "width", "pooling", "out"])  # no matrix of twenty texts
        shape, values = read_npy(out)
        self.assertEqual(shape, (20, 16))
        want = self.json("embed", self.model, "a red house")["embeddings"][0]
        for got, wanted in zip(values[:16], want):
            self.assertAlmostEqual(got, wanted, places=5)

    def test_long_texts_are_cut(self):
        longer = self.json("embed", self.model, "red " * 50)["embeddings"][0]
        warned = self.tenon("embed", self.model, "red " * 50, "red", "blue " * 50).stderr.decode()
        self.assertIn("warning: SentenceEncoder::embed: 2 of 3 texts lost their ends", warned)
        self.assertEqual(self.tenon("embed", self.model, "red").stderr, b"")
        words = model_files.ENCODER_POSITIONS - 2  # beside the classifier and the separator
        want = self.json("embed", self.model, "red " * words)["embeddings"][0]
        for got, wanted in zip(longer, want):
            self.assertAlmostEqual(got, wanted, places=6)

    def test_empty_and_unknown_texts(self):
        made = self.json("embed", self.model, "", "日本語", b"\xff")
        for row in made["embeddings"]:
            self.assertAlmostEqual(math.hypot(*row), 1, places=5)

    def test_gguf_files(self):
        encoders = DATA / "encoders"
        records = json.loads((encoders / "llama_cpp.json").read_text())
        for name in ("nomic-bert", "qwen3_embedding"):
            record = records[name]
            made = self.json("embed", encoders / f"{name}.gguf", *record["texts"], "--precision", "exact", "--normalize",
                             "none")
            self.assertEqual(made["pooling"], record["pooling"])
            self.assertNotIn("similarity", made)
            for got, want in zip(made["embeddings"], record["embeddings"], strict=True):
                for one, other in zip(got, want, strict=True):
                    self.assertAlmostEqual(one, other, delta=1e-4)
        tokens = encoders / "bert_tokens.gguf"
        record = records["bert_tokens"]
        made = self.json("embed", tokens, *record["texts"])
        self.assertEqual([len(rows) for rows in made["token_embeddings"]], [len(ids) for ids in record["ids"]])
        out = self.folder / "tokens.npy"
        self.json("embed", tokens, record["texts"][0], "--out", out)
        self.assertEqual(read_npy(out)[0], (len(record["ids"][0]), 32))
        self.refused(WRONG_CALL, "BadArgument", "embed", tokens, "a", "b", "--out", out, says="of one text")
        one = self.json("embed", tokens, "a red house", "--pooling", "mean")["embeddings"]
        self.assertAlmostEqual(math.hypot(*one[0]), 1, places=5)
        least = self.json("embed", encoders / "bert.gguf", "a", "--normalize", "max_int16")["embeddings"][0]
        self.assertAlmostEqual(max(abs(number) for number in least), 32760, delta=1)

    def test_gguf_files_of_another_kind(self):
        encoders = DATA / "encoders"
        self.refused(UNSUPPORTED, "Unsupported", "embed", encoders / "xlm_roberta_rank.gguf", "a", says="tenon rerank")
        self.refused(UNSUPPORTED, "Unsupported", "embed", DATA / "tiny_llama.gguf", "a", says="tenon generate")
        self.refused(UNSUPPORTED, "Unsupported", "rerank", encoders / "bert.gguf", "-q", "a", "b", says="no classifier")
        for name in ("bert", "modern-bert"):
            self.refused(UNSUPPORTED, "Unsupported", "generate", encoders / f"{name}.gguf", "-p", "a", says="tenon embed")
        self.assertIn("attention", self.tenon("graph", encoders / "bert.gguf").stdout.decode())

    def test_other_commands_take_the_folder(self):
        self.assertEqual(self.json("info", self.model)["format"], "safetensors")
        ids = self.json("tokenize", self.model, "A red Houses")["ids"]
        self.assertEqual(ids, [2, 4, 5, 7, 8, 3])
        svg = self.tenon("graph", self.model, "--svg").stdout
        xml.etree.ElementTree.fromstring(svg)


class Rerank(Folder):
    def test_best_first(self):
        records = json.loads((DATA / "encoders" / "llama_cpp.json").read_text())
        for name in ("xlm_roberta_rank", "qwen3_rank"):
            record, model = records[name], DATA / "encoders" / f"{name}.gguf"
            documents = record["documents"]
            made = self.json("rerank", model, "-q", record["query"], *documents, "--precision", "exact")
            order = sorted(range(len(documents)), key=lambda at: -record["scores"][at])
            self.assertEqual([one["index"] for one in made["results"]], order)
            for one in made["results"]:
                self.assertAlmostEqual(one["score"], record["scores"][one["index"]], delta=1e-3)
                self.assertEqual(one["document"], documents[one["index"]])
            path = self.folder / "documents.txt"
            path.write_text("".join(document + "\n" for document in documents))
            printed = self.tenon("rerank", model, "--query", record["query"], "--file", path, "--top", 2).stdout.decode()
            self.assertEqual([line[12:] for line in printed.splitlines()], [documents[at] for at in order[:2]])

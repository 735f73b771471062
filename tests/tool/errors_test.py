"""Wrong calls and wrong files: one line, one JSON object, an exit status that tells whose fault it is."""

import json
import os
import shutil
import struct
import subprocess
import sys

import model_files
from commands_test import Folder
from harness import LLAMA, MACHINE, MALFORMED, UNSUPPORTED, WRONG_CALL


class WrongCall(Folder):
    def wrong(self, *arguments, says=""):
        self.refused(WRONG_CALL, "BadArgument", *arguments, says=says)

    def test_commands(self):
        self.wrong(says="a command is required")
        self.wrong("genrate", LLAMA, says="there is no command 'genrate'; did you mean 'generate'?")
        self.wrong("zzz", LLAMA, says="there is no command 'zzz' (see")
        self.wrong("generate", LLAMA, "--prmpt", "a", says="there is no option '--prmpt'; did you mean '--prompt'?")
        self.wrong("info", LLAMA, "--jsn=1", says="did you mean '--json'?")
        self.wrong("generate", says="MODEL is required (see `tenon generate --help`)")
        self.wrong("info", LLAMA, "more", says="more")
        self.wrong("info", LLAMA, "--prompt", "a", says="--prompt")

    def test_options_that_exclude_or_need_each_other(self):
        self.wrong("generate", LLAMA, says="--prompt or --prompt-file is required")
        self.wrong("generate", LLAMA, "--prompt", "a", "--prompt-file", "b", says="--prompt-file")
        self.wrong("tokenize", LLAMA, says="TEXT or --file is required")
        self.wrong("tokenize", LLAMA, "a", "--file", "b", says="--file")
        self.wrong("score", LLAMA, says="--tokens or --file is required")
        self.wrong("embed", LLAMA, says="TEXT or --file is required")
        self.wrong("rerank", LLAMA, "a", says="--query is required")
        self.wrong("graph", LLAMA, "--dot", "--svg", says="--svg")

    def test_numbers(self):
        for option, value in (
            ("-t", "x"), ("-t", "-1"), ("-t", "100000"), ("-t", "1.5"), ("-n", "-2"), ("-n", ""),
            ("-n", "99999999999999999999"), ("--ctx", "-1"), ("--ctx", "many"), ("--seed", "-3"),
            ("--precision", "double"), ("--temp", "-1"), ("--temp", "nan"), ("--temp", "hot"),
            ("-t", "-3"), ("--timeout", "-1"), ("--timeout", "nan"), ("--timeout", "+nan"), ("--logprobs", "-1"),
            ("--logit-bias", "5"), ("--logit-bias", "x=1"), ("--logit-bias", "5=nan"), ("--logit-bias", "272=1"), ("--stop", ""),
            ("--top-p", "2"), ("--top-k", "-3"), ("--min-p", "-0.5"), ("--repeat-penalty", "0"),
        ):
            self.wrong("generate", LLAMA, "--prompt", "a", option, value)
        self.wrong("generate", LLAMA, "--prompt", "a", "--device", "foo", says="no URL of a device")
        for option in ("--grammar", "--json-schema"):
            self.wrong("generate", LLAMA, "--prompt", "a", option, "", says="the value is empty")
        self.wrong("bench", LLAMA, "-r", "0")
        self.wrong("score", LLAMA, "--tokens", "1", "--last", "-1")

    def test_prompts(self):
        self.wrong("generate", LLAMA, "--prompt", "", says="the prompt has no tokens")
        self.wrong("score", LLAMA, "--tokens", "", says="no tokens")
        self.refused(MALFORMED, "Syntax", "score", LLAMA, "--tokens", "1,x", says="byte 2")
        self.refused(MALFORMED, "Syntax", "score", LLAMA, "--tokens", "4294967296")
        for token in ("272", "-1", "2147483647"):
            self.refused(WRONG_CALL, "OutOfRange", "score", LLAMA, "--tokens", f"1,{token}", says=token)
        self.wrong("generate", LLAMA, "--prompt", "abcdefgh", "--ctx", "4",
                   says="do not fit a context of 4: shorten it, or give --ctx 9 or more")
        self.wrong("score", LLAMA, "--tokens", "1,2,3,4,5", "--ctx", "4",
                   says="5 tokens do not fit a context of 4: give --ctx 5 or more")
        for arguments in (("-p", "5", "-n", "1"), ("-p", "0", "-n", "5"), ("-p", "2", "-n", "2", "-d", "3")):
            self.wrong("bench", LLAMA, *arguments, "--ctx", "4",
                       says="5 tokens do not fit a context of 4: give --ctx 5 or more")


class WrongFile(Folder):
    def test_files_that_are_not_there(self):
        gone = self.folder / "gone"
        for command in (("info",), ("generate", "--prompt", "a"), ("chat",), ("bench",), ("graph",),
                        ("tokenize", "a"), ("score", "--tokens", "1"), ("embed", "a")):
            self.refused(MALFORMED, "NotFound", command[0], gone, *command[1:], says="gone")
        self.refused(MALFORMED, "NotFound", "generate", LLAMA, "--prompt-file", gone, says="gone")
        self.refused(MALFORMED, "NotFound", "tokenize", LLAMA, "--file", gone)
        self.refused(MALFORMED, "NotFound", "generate", LLAMA, "--prompt", "a", "--lora", ":1", says=":1: ")
        self.refused(WRONG_CALL, "BadArgument", "generate", LLAMA, "--prompt-file", self.folder, says="a folder, where a file is read")
        self.refused(WRONG_CALL, "BadArgument", "generate", LLAMA, "--prompt-file", "", says="empty")
        self.refused(WRONG_CALL, "BadArgument", "info", "", says="empty")

    def test_texts_of_programs(self):
        path = self.folder / "wrong.tenon"
        path.write_text("# tenon 1.0\nfrom __future__ import annotations\nfrom tenon.ir import *\n"
                        'module("m", opset=1)\n\ndef forward(x: f32[N, 4]):\n    z = relu(q)\n    return z\n')
        for command in ("fmt", "codegen", "run", "graph"):
            self.refused(MALFORMED, "BadReference", command, path, says="'q' is not defined z = relu(q)\n")
        for command in ("check", "fmt", "run"):
            self.refused(WRONG_CALL, "BadArgument", command, self.folder, says=f"{self.folder}: a folder")
        path.write_text(path.read_text().replace("z = relu(q)", 'z: f32[4] = const("bias")'))
        self.refused(WRONG_CALL, "BadArgument", "run", path, says="('bias'): give a file of them, --weights")
        self.refused(UNSUPPORTED, "Unsupported", "graph", path, "--save", self.folder / "n.json", says="no tensors")

    def test_texts_without_an_end(self):
        self.refused(MALFORMED, "LimitExceeded", "fmt", "/dev/zero", says="1 GiB")

    def test_folders(self):
        self.refused(MALFORMED, "NotFound", "info", self.folder, says="in this folder")
        shutil.copy(LLAMA, self.folder / "a.gguf")
        self.assertEqual(self.json("info", self.folder)["format"], "gguf")
        shutil.copy(LLAMA, self.folder / "b.gguf")
        self.refused(WRONG_CALL, "BadArgument", "info", self.folder, says="a.gguf, b.gguf")

    def test_files_of_another_kind(self):
        path = self.folder / "notes.gguf"
        path.write_text("not a model at all\n" * 10)
        self.refused(MALFORMED, "BadMagic", "info", path, says="notes.gguf:0")
        path.write_bytes(b"")
        self.refused(MALFORMED, "Truncated", "info", path)
        fifo = self.folder / "pipe"
        os.mkfifo(fifo)
        self.refused(MALFORMED, "NotRegularFile", "info", fifo)

    def test_files_cut_short(self):
        whole = LLAMA.read_bytes()
        path = self.folder / "cut.gguf"
        for size in (3, 4, 7, 23, 24, 100, 700, 3000, 8000, 12000, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            self.refused(MALFORMED, "Truncated", "info", path, says="cut.gguf:")
            saved = self.folder / "net.json"
            self.refused(MALFORMED, "Truncated", "graph", path, "--save", saved, says="cut.gguf:")
            self.assertFalse(saved.exists())

    def test_metadata_that_is_refused(self):
        path = self.folder / "wrong.gguf"
        whole = LLAMA.read_bytes()
        for key, value, says in (
            (b"llama.block_count", 0, "llama.block_count is 0, allowed: 1 to 512"),
            (b"llama.attention.head_count", 3, "llama.attention.head_count"),
            (b"llama.rope.dimension_count", 64, "llama.rope.dimension_count is 64"),
        ):
            at = whole.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4
            path.write_bytes(whole[:at] + struct.pack("<I", value) + whole[at + 4 :])
            self.refused(MALFORMED, "BadHyperparameter", "generate", path, "--prompt", "a", says=says)

        path.write_bytes(whole.replace(struct.pack("<Q", 5) + b"llama", struct.pack("<Q", 5) + b"lamma"))
        self.refused(UNSUPPORTED, "Unsupported", "generate", path, "--prompt", "a", says="'lamma'")

    def test_devices_that_are_none(self):
        self.refused(UNSUPPORTED, "DeviceUnavailable", "devices", "tpu:7", says="'tpu:'")
        self.refused(UNSUPPORTED, "DeviceUnavailable", "devices", "tpu:", says=": tpu: no device is registered")
        self.refused(WRONG_CALL, "OutOfRange", "devices", "npu://sim?ocm=1", says="ocm")
        self.refused(MALFORMED, "DuplicateName", "devices", "npu://sim?ocm=1MiB&ocm=1MiB", says="'ocm'")

    def test_models_of_another_kind(self):
        encoder = self.folder / "encoder"
        model_files.make_encoder(encoder)
        self.refused(UNSUPPORTED, "Unsupported", "embed", LLAMA, "a", says="`tenon generate` runs it")
        self.refused(UNSUPPORTED, "Unsupported", "generate", encoder, "--prompt", "a", says="this is safetensors")
        self.refused(MALFORMED, "TemplateError", "chat", LLAMA, says="--raw")
        self.refused(MALFORMED, "TemplateError", "generate", LLAMA, "--chat", "--prompt", "a", says="--chat")

    def test_encoders_with_wrong_configurations(self):
        encoder = self.folder / "encoder"
        model_files.make_encoder(encoder)
        path = encoder / "config.json"
        right = json.loads(path.read_text())
        for key, value, status, code in (
            ("hidden_size", 0, MALFORMED, "BadHyperparameter"),
            ("hidden_size", "16", MALFORMED, "BadType"),
            ("num_attention_heads", 3, MALFORMED, "BadHyperparameter"),
            ("max_position_embeddings", 4096, MALFORMED, "BadHyperparameter"),
            ("model_type", "gpt9", UNSUPPORTED, "Unsupported"),
        ):
            path.write_text(json.dumps({**right, key: value}))
            self.refused(status, code, "embed", encoder, "a", says=key if key != "model_type" else "gpt9")
        path.write_text("{")
        self.refused(MALFORMED, "Syntax", "embed", encoder, "a", says="config.json")
        path.write_text(json.dumps(right))
        self.refused(WRONG_CALL, "BadArgument", "embed", encoder, "--file", "/dev/null", says="no texts")


class WrongMachine(Folder):
    def test_folders_that_cannot_be_made(self):
        (self.folder / "file").write_bytes(b"")
        self.refused(MACHINE, "IoError", "generate", LLAMA, "--prompt", "a", "--packed",
                     self.folder / "file" / "below", says="below")

    def test_results_that_cannot_be_written(self):
        self.refused(MACHINE, "IoError", "score", LLAMA, "--tokens", "1,2", "--out",
                     self.folder / "none" / "x.npy", says="x.npy")
        with open("/dev/full", "wb") as full:
            for arguments in (["--help"], ["--version"], ["info", "--help"], ["info", LLAMA, "--json"],
                              ["generate", LLAMA, "--prompt", "a", "-n", "1"]):
                done = subprocess.run([self.program, *arguments], stdout=full, stderr=subprocess.PIPE,
                                      timeout=300, check=False)
                self.assertEqual(done.returncode, MACHINE)
                self.assertIn(b"tenon: IoError: standard output: ", done.stderr)

    def test_imports_without_python(self):
        self.refused(UNSUPPORTED, "Unsupported", "import", LLAMA,
                     says="GGUF and safetensors files are read as they are")
        self.refused(UNSUPPORTED, "Unsupported", "export", "model.onnx", "-o", "x.onnx", says="(.tenon) is exported")
        bare = self.folder / "python"
        bare.write_text("#!/bin/sh\nexit 3\n")  # as one without the package answers
        bare.chmod(0o755)
        for python, says in ((self.folder / "none", b"cannot be run (No such file or directory)"),
                             (bare, b"this Python has no package tenon: `pip install .`")):
            done = self.tenon("import", "model.onnx", status=UNSUPPORTED, variables={"TENON_PYTHON": str(python)})
            self.assertIn(says, done.stderr)

    def test_imports_run_no_packages_of_the_current_folder(self):
        installed, downloaded = self.folder / "installed", self.folder / "downloaded"
        for path, text in (
            (downloaded / "tenon" / "__init__.py", "raise SystemExit('the folder runs')"),
            (downloaded / "onnx" / "__init__.py", "raise SystemExit('the folder runs')"),
            (downloaded / "runpy.py", "raise SystemExit('the folder runs')"),
            (installed / "tenon" / "__init__.py", ""), (installed / "onnx" / "__init__.py", ""),
            (installed / "tenon" / "onnx" / "__init__.py", ""),
            (installed / "tenon" / "onnx" / "__main__.py",
             "import os, sys; print(os.path.basename(sys.argv[0]), sys.argv[1:], os.path.basename(os.getcwd()))"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run(
            [self.program, "import", "m.onnx", "-o", "m.tenon"], cwd=downloaded, capture_output=True, timeout=300, check=False,
            env={**os.environ, "TENON_PYTHON": sys.executable, "PYTHONPATH": str(installed)},
        )
        self.assertEqual((done.returncode, done.stdout.decode(), done.stderr.decode()),
                         (0, "__main__.py ['m.onnx', '--output', 'm.tenon'] downloaded\n", ""))

    def test_instruction_sets_that_are_none(self):
        call = ("generate", LLAMA, "--prompt", "a", "-n", "1")
        done = self.tenon(*call, status=WRONG_CALL, variables={"TENON_CPU_ISA": "nonsense"})
        self.assertIn(b"TENON_CPU_ISA: no instruction set 'nonsense'; known are portable", done.stderr)
        self.tenon(*call, variables={"TENON_CPU_ISA": "portable"})

    def test_variables_that_nothing_reads(self):
        done = self.tenon("info", LLAMA, variables={"TENON_CPU_ISO": "avx2"})
        self.assertIn(b"tenon: warning: nothing reads the environment variable 'TENON_CPU_ISO'; did you mean "
                      b"'TENON_CPU_ISA'?\n", done.stderr)
        self.assertEqual(self.tenon("info", LLAMA, variables={"TENON_API_KEY": "k"}).stderr, b"")

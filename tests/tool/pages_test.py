"""What README.md and docs/ show is what is tested: programs, build files, commands, lists."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile

import model_files
from harness import LLAMA, SOURCE, ToolTest

PAGES = [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]
PROJECTS = (SOURCE / "examples/compiled", SOURCE / "examples/first", SOURCE / "examples/own_device",
            SOURCE / "examples/own_op", SOURCE / "tests/package/consumer")


def blocks(page, language):
    """The fenced blocks of a page in one language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", page.read_text("utf-8"))


def all_blocks(language):
    return [(page.name, block) for page in PAGES for block in blocks(page, language)]


class Programs(ToolTest):
    def test_a_whole_program_is_a_file_of_the_examples(self):
        examples = {path.read_text("utf-8") for path in (SOURCE / "examples").rglob("*.cpp")}
        programs = [(name, text) for name, text in all_blocks("cpp") if "int main(" in text]
        self.assertIn("README.md", [name for name, _ in programs])
        for name, text in programs:
            self.assertIn(text, examples, name)

    def test_build_files_show_lines_of_tested_ones(self):
        tested = set()
        for project in PROJECTS:
            for line in (project / "CMakeLists.txt").read_text("utf-8").splitlines():
                line = line.replace(" ${MORE_COMPONENTS}", "").replace("${TENON_SOURCE} tenon", "tenon")
                tested.add(line.strip())
                tested.add(line.strip().replace(f"({project.name} ", "(app "))
        shown = all_blocks("cmake")
        self.assertGreater(len(shown), 3)
        for name, block in shown:
            for line in block.splitlines():
                self.assertIn(line.partition("#")[0].strip(), tested, name)


class Commands(ToolTest):
    def options_of(self, command):
        help_text = self.tenon(*command, "--help").stdout.decode()
        return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", help_text))

    def test_commands_and_options_exist(self):
        spans = [
            (page.name, span)
            for page in PAGES
            for span in re.findall(r"`(?:[A-Z_]+=\S+ )?(tenon [^`\n]+)`", page.read_text("utf-8"))
        ]
        spans += [
            (name, line)
            for name, block in all_blocks("sh")
            for line in block.splitlines()
            if line.startswith("tenon ")
        ]
        self.assertGreater(len(spans), 8)
        known = {}
        for name, span in spans:
            words = shlex.split(span, comments=True)[1:]
            command = () if words[0].startswith("-") else (words[0],)
            if command not in known:
                known[command] = self.options_of(command)
            for word in words:
                if re.match(r"--?[a-zA-Z]", word):
                    self.assertIn(word, known[command], (name, span))

    def start_and_end(self, line, folder, variables):
        """A server says where it is, and ends by Ctrl-C."""
        with subprocess.Popen(["sh", "-c", "exec " + line], cwd=folder, env=variables, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            try:
                said = process.stdout.readline()
                if said:
                    self.assertIn(b"http://127.0.0.1:", said)
                    process.send_signal(signal.SIGINT)
                _, error = process.communicate(timeout=60)
                if b"libmicrohttpd was not found" not in error:
                    self.assertEqual((process.returncode, error), (0, b""))
            finally:
                process.kill()

    def test_shown_commands_run(self):
        """In one folder and in order, by a shell, with the models that the pages name."""
        shown = [
            line for _, block in all_blocks("sh") for line in block.splitlines() if line.startswith("tenon ")
        ]
        self.assertGreater(len(shown), 8)
        path = f"{pathlib.Path(self.program).resolve().parent}:{os.environ['PATH']}"
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for model in ("MODEL.gguf", "model.gguf"):
                model_files.add_text(LLAMA, folder / model, "tokenizer.chat_template", model_files.CHATML)
            model_files.make_encoder(folder / "MODEL_FOLDER")
            for model, target in (("nomic-bert", "ENCODER.gguf"), ("xlm_roberta_rank", "RERANKER.gguf")):
                shutil.copy(SOURCE / f"tests/models/data/encoders/{model}.gguf", folder / target)
            (folder / "lines.txt").write_text("a red house\na blue car\n")
            for file, target in (("idefics3.gguf", "mmproj.gguf"), ("picture.ppm", "picture.ppm")):
                shutil.copy(SOURCE / "tests/models/data/vision" / file, folder / target)
            ids = {"ids": ("I32", [1, 2], struct.pack("<2i", 1, 2))}
            inputs = model_files.write_safetensors(folder / "ids.safetensors", ids)
            self.tenon("compare", folder / "MODEL.gguf", inputs, "--save", folder / "recorded.safetensors")
            has_emulation = b"cuda:" in self.tenon("devices").stdout
            for line in shown:
                with self.subTest(line=line):
                    if "cuda:emulated" in line and not has_emulation:
                        self.skipTest("built without the emulated device")
                    variables = {**os.environ, "PATH": path}
                    if line.startswith("tenon serve "):
                        self.start_and_end(line.replace("8080", "0"), folder, variables)
                        continue
                    done = subprocess.run(
                        ["sh", "-c", line], cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True,
                        timeout=300, check=False,
                    )
                    self.assertEqual(done.returncode, 0, done.stderr)
                    # "# writes net.json and net.raw"
                    for written in re.findall(r"[\w-]+\.\w+", line.partition("# writes")[2]):
                        self.assertGreater((folder / written).stat().st_size, 0, line)


class RefusedTypes(ToolTest):
    """The README's list of element types is the readers' own."""

    def setUp(self):
        super().setUp()
        text = (SOURCE / "README.md").read_text("utf-8")
        (entry,) = re.findall(r"(?s)- Weights of every element type but these(.*?)\n- ", text)
        refused = {
            file: set(re.findall(r"`(\w+)`", types))
            for file, types in re.findall(r"(?m)^ *\| (\w+) \| (.*) \|$", entry)
        }
        self.gguf = refused["GGUF"]
        self.safetensors = refused["safetensors"]
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def refusal(self, path):
        """The reader's message where it refuses the file for its element type, otherwise None."""
        done = subprocess.run([self.program, "info", path], capture_output=True, timeout=300, check=False)
        if done.returncode == 0:
            return None
        message = done.stderr.decode()
        return message if message.startswith("tenon: UnsupportedDType: ") else None

    def test_gguf(self):
        refused = set()
        for number in range(64):
            path = self.folder / "one.gguf"
            name = b"t"
            head = struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + struct.pack("<Q", len(name)) + name
            head += struct.pack("<IQIQ", 1, 256, number, 0)
            path.write_bytes(head + bytes(-len(head) % 32) + bytes(4096))
            found = re.search(r"element type \d+ \((\w+)\)", self.refusal(path) or "")
            if found:
                refused.add(found.group(1))
        self.assertEqual(refused, self.gguf)

    def test_safetensors(self):
        # Every word of the format's enumeration (safetensors 0.8).
        words = (
            "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ"
            " I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64"
        ).split()
        refused = set()
        for word in words:
            path = self.folder / "one.safetensors"
            header = f'{{"t":{{"dtype":"{word}","shape":[0],"data_offsets":[0,0]}}}}'.encode()
            path.write_bytes(struct.pack("<Q", len(header)) + header)
            if self.refusal(path):
                refused.add(word)
        self.assertEqual(refused, self.safetensors)

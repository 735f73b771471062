"""Runs the code of docs/python.md, chat-templates.md, conversations.md, drafts.md, embeddings.md, hf.md, objects.md,
onnx.md, sampling.md, serving.md, tool-calls.md, torch.md and training.md, block after block, as one program each."""

import contextlib
import io
import os
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[3]
DOCS = ROOT / "docs"
TINY = pathlib.Path(__file__).parent / "hf"
TORCH = pathlib.Path(__file__).parent / "exported"
FOLDERS = {"SmolLM2-135M": "llama", "bert-base-uncased": "bert", "vit-base-patch16-224": "vit",
           "whisper-tiny": "whisper"}


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def run_page(self, name, least=4):
        """What the page prints."""
        page = DOCS / name
        text = page.read_text()
        blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S))
        self.assertGreaterEqual(len(blocks), least)
        names = {}
        printed = io.StringIO()
        for block in blocks:
            line = text[: block.start(1)].count("\n")
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * line + block[1], str(page), "exec"), names)
        return printed.getvalue()

    def test_hf(self):
        for name, kind in FOLDERS.items():
            pathlib.Path(name).symlink_to(TINY / kind)
        printed = self.run_page("hf.md")
        for want in ("Llama SmolLM2-135M: ", " lines, ['layer0', 'forward']", "(2, 3, 16) (2, 16)"):
            self.assertIn(want, printed)

    def test_conversations(self):
        pathlib.Path("MODEL.gguf").symlink_to(ROOT / "tests/models/data/tiny_llama.gguf")
        self.assertRegex(self.run_page("conversations.md", 1), r"(\d+) of (\d+) tokens are known")

    def test_grammars(self):
        pathlib.Path("MODEL.gguf").symlink_to(ROOT / "tests/models/data/tiny_llama.gguf")
        self.assertRegex(self.run_page("grammars.md", 1), r'(blue|grey) grammar\n\{\s*"name"')

    def test_chat_templates(self):
        self.assertIn("<user>Hello</>[{\"name\": \"weather\"}]\n['</>']", self.run_page("chat-templates.md", 1))

    def test_tool_calls(self):
        self.assertIn("Let me see. {'name': 'weather', 'arguments': '{\"city\":\"Oslo\"}'}", self.run_page("tool-calls.md", 1))

    def test_embeddings(self):
        encoders = ROOT / "tests/models/data/encoders"
        pathlib.Path("embeddinggemma-300m.gguf").symlink_to(encoders / "gemma-embedding.gguf")
        pathlib.Path("Qwen3-Reranker-0.6B.gguf").symlink_to(encoders / "qwen3_rank.gguf")
        self.assertRegex(self.run_page("embeddings.md", 1), r"(?m)^-?[0-9.e-]+ (On the mat.|Stocks fell on Monday.)$")

    def test_serving(self):
        pathlib.Path("MODEL.gguf").symlink_to(ROOT / "tests/models/data/tiny_llama.gguf")
        self.run_page("serving.md", 1)

    def test_sampling(self):
        pathlib.Path("MODEL.gguf").symlink_to(ROOT / "tests/models/data/tiny_llama.gguf")
        self.assertTrue(self.run_page("sampling.md", 1))

    def test_drafts(self):
        pathlib.Path("MODEL.gguf").symlink_to(ROOT / "tests/models/data/tiny_llama.gguf")
        self.assertRegex(self.run_page("drafts.md", 1), r"\d+ of \d+ drafted tokens were right")

    def test_training(self):
        self.run_page("training.md", 1)

    def test_objects(self):
        self.assertIn("42 42 40", self.run_page("objects.md", 1))

    def test_onnx(self):
        try:
            import onnx
        except ImportError:
            self.skipTest("no package onnx")
        sys.path.insert(0, str(ROOT / "python/tests/onnx_suite"))
        from networks import bert
        onnx.save(bert()[0], "model.onnx")
        printed = self.run_page("onnx.md")
        self.assertTrue(onnx.load("softmax.onnx").graph.node)
        for want in ("i64[batch, sequence]", "(1, 8, 32) set()"):
            self.assertIn(want, printed)

    def test_torch(self):
        for name, archive in (("model", "convolutions"), ("decoder", "decoder")):
            pathlib.Path(f"{name}.pt2").symlink_to(TORCH / f"{archive}.pt2")
        printed = self.run_page("torch.md")
        for want in ("(2, 3)", "(8, 3)", "9 elements along axis 0, not 1 to 8", "(1, 1, 20) ['keys0', 'values0'] True"):
            self.assertIn(want, printed)

    def test_python(self):
        models = sorted(pathlib.Path(os.environ.get("TENON_TEST_MODELS", "no-models")).glob("*mol*.gguf"))
        if models:
            os.environ["TENON_MODEL"] = str(models[0])
        printed = self.run_page("python.md")
        for want in ("Buffer f32[3, 4]", "def forward", "repeat(", "(5, 8)", "linear", "npu", "ShapeMismatch"):
            self.assertIn(want, printed)
        if models:
            self.assertIn("Paris", printed)


if __name__ == "__main__":
    unittest.main()

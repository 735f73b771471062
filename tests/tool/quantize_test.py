"""`tenon quantize`: a model written in other types, which runs."""

from commands_test import Folder
from harness import LLAMA, MACHINE, MALFORMED, UNSUPPORTED, WRONG_CALL


class Quantize(Folder):
    def test_a_quantised_model_runs(self):
        out = self.folder / "out.gguf"
        for kind in ("q8_0", "Q4_K_M", "mxfp4_moe", "f32"):  # in llama.cpp's spelling, too
            made = self.json("quantize", LLAMA, out, "--type", kind, "--requantize", "-t", "2")
            self.assertEqual(made["bytes_after"], self.json("info", out)["tensor_bytes"])
            self.assertGreater(made["converted"], 0)
            tokens = ",".join(str(i % 200) for i in range(40))
            want = self.json("score", LLAMA, "--tokens", tokens)["mean_log_probability"]
            got = self.json("score", out, "--tokens", tokens)["mean_log_probability"]
            self.assertAlmostEqual(got, want, delta=0.05 * abs(want))

    def test_importance(self):
        text, matrix, out = (self.folder / name for name in ("text.txt", "imatrix.gguf", "out.gguf"))
        text.write_text("in the beginning the hand and the word were one, and then they were not")
        made = self.json("imatrix", LLAMA, "-f", text, "-o", matrix, "--chunk", 16)
        self.assertEqual(made["tensors"], 7 * self.json("info", LLAMA)["metadata"]["llama.block_count"])
        twice = self.json("imatrix", LLAMA, "-f", text, "-o", matrix, "--chunk", 16, "--in-file", matrix)
        self.assertEqual(twice["chunks"], 2 * made["chunks"])
        done = self.json("quantize", LLAMA, out, "--type", "iq4_nl", "--requantize", "--imatrix", matrix)
        self.assertEqual(done["weighed"], made["tensors"])
        self.assertEqual(self.json("info", out)["metadata"]["quantize.imatrix.chunks_count"], twice["chunks"])
        tokens = ",".join(str(i % 200) for i in range(40))
        want = self.json("score", LLAMA, "--tokens", tokens)["mean_log_probability"]
        got = self.json("score", out, "--tokens", tokens)["mean_log_probability"]
        self.assertAlmostEqual(got, want, delta=0.05 * abs(want))
        self.refused(MALFORMED, "NotFound", "imatrix", LLAMA, "-f", self.folder / "none.txt", "-o", matrix)
        copy = self.folder / "copy.gguf"
        copy.write_bytes(LLAMA.read_bytes())
        (self.folder / "link.txt").symlink_to(text)
        for read in (copy, text, self.folder / "link.txt"):
            before = read.read_bytes()
            self.refused(WRONG_CALL, "BadArgument", "imatrix", copy, "-f", text, "-o", read, says="another one")
            self.assertEqual(read.read_bytes(), before)
        before = matrix.read_bytes()
        self.refused(WRONG_CALL, "BadArgument", "quantize", LLAMA, matrix, "--type", "q8_0", "--requantize",
                     "--imatrix", matrix, says="importance matrix")
        self.assertEqual(matrix.read_bytes(), before)
        # Before the text is read, which this model would stop at.
        self.refused(MACHINE, "IoError", "imatrix", LLAMA, "-f", text, "-o", self.folder / "no" / "m.gguf",
                     "--chunk", 10**6, says="cannot be created")
        self.refused(WRONG_CALL, "BadArgument", "imatrix", LLAMA, "-f", text, "-o", matrix, "--chunk", 10**6)
        self.refused(WRONG_CALL, "BadArgument", "imatrix", LLAMA, "-o", matrix, says="--file")

    def test_wrong_calls_leave_no_file(self):
        out = self.folder / "out.gguf"
        self.refused(WRONG_CALL, "BadArgument", "quantize", LLAMA, out, "--type", "q9", says="q4_k_m")
        self.refused(WRONG_CALL, "BadArgument", "quantize", LLAMA, out, says="--type")
        self.refused(WRONG_CALL, "BadArgument", "quantize", LLAMA, LLAMA, "--type", "q8_0")
        self.refused(MALFORMED, "NotFound", "quantize", LLAMA, out, "--type", "q8_0", "--imatrix", self.folder / "no")
        self.refused(MALFORMED, "BadMagic", "quantize", LLAMA, out, "--type", "q8_0", "--imatrix", LLAMA)
        self.refused(MALFORMED, "NotFound", "quantize", self.folder / "no.gguf", out, "--type", "q8_0")
        cut = self.folder / "cut.gguf"
        cut.write_bytes(LLAMA.read_bytes()[:-100])
        self.refused(MALFORMED, "Truncated", "quantize", cut, out, "--type", "q8_0")
        self.refused(UNSUPPORTED, "Unsupported", "quantize", LLAMA, out, "--type", "q8_0",
                     says="--requantize")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["cut.gguf"])

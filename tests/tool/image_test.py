"""tenon generate --mmproj: pictures of every format, and calls that it refuses."""

import struct
import subprocess
import zlib

from commands_test import Folder
from harness import DATA, LLAMA, MALFORMED, UNSUPPORTED, WRONG_CALL

VISION = DATA / "vision"
GEMMA = DATA / "tiny_gemma3.gguf"
PICTURE = VISION / "picture.ppm"
HEADER = b"P6\n23 37\n255\n"


def png(width, height, channels, pixels, bits=8):
    """A PNG, RGB or RGBA."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = width * channels * bits // 8
    lines = b"".join(b"\0" + pixels[i * size : (i + 1) * size] for i in range(height))
    head = struct.pack(">IIBBBBB", width, height, bits, {3: 2, 4: 6}[channels], 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) +
            chunk(b"IEND", b""))


class Images(Folder):
    def setUp(self):
        super().setUp()
        self.pixels = PICTURE.read_bytes().removeprefix(HEADER)
        self.assertEqual(len(self.pixels), 23 * 37 * 3)

    def write(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def answer(self, *pictures, prompt="x", model=GEMMA, projector="gemma3"):
        images = [word for picture in pictures for word in ("--image", picture)]
        return self.json("generate", model, "--mmproj", VISION / f"{projector}.gguf", *images, "--prompt", prompt,
                         "-n", "3", "--temp", "0", "--logprobs", "3")

    def refused_picture(self, status, name, path, says):
        self.refused(status, name, "generate", GEMMA, "--mmproj", VISION / "gemma3.gguf", "--image", path, "--prompt", "x",
                     says=says)

    def or_skip(self, library, path):
        """Skips a format that the build does not read, which it must say."""
        done = subprocess.run(
            [self.program, "generate", GEMMA, "--mmproj", VISION / "gemma3.gguf", "--image", path, "--prompt", "x"],
            capture_output=True, timeout=300, check=False,
        )
        if f"was made without {library}".encode() in done.stderr:
            self.assertEqual(done.returncode, UNSUPPORTED)
            self.skipTest(f"built without {library}")

    def test_the_picture_matters_and_its_place(self):
        other = self.write("other.ppm", HEADER + bytes(reversed(self.pixels)))
        first = self.answer(PICTURE)
        self.assertEqual(first["logprobs"], self.answer(PICTURE)["logprobs"])
        self.assertNotEqual(first["logprobs"], self.answer(other)["logprobs"])
        self.assertEqual(first["logprobs"], self.answer(PICTURE, prompt="<__media__>x")["logprobs"])
        self.assertNotEqual(first["logprobs"], self.answer(PICTURE, prompt="x<__media__>")["logprobs"])
        both = self.answer(PICTURE, other)
        self.assertNotEqual(both["logprobs"], self.answer(other, PICTURE)["logprobs"])
        self.assertEqual(both["prompt_tokens"], 2 * first["prompt_tokens"] - 1)

    def test_tiles(self):
        # Seven tiles of four embeddings each, and the text around them in a vocabulary of bytes.
        self.assertGreater(self.answer(PICTURE, model=LLAMA, projector="idefics3")["prompt_tokens"], 7 * 4)

    def test_ppm(self):
        want = self.answer(PICTURE)["logprobs"]
        comments = self.write("comments.ppm", b"P6 # a\n#b\n23\t37#c\n 255 " + self.pixels + b"more")
        self.assertEqual(self.answer(comments)["logprobs"], want)
        for name, data, says in (
            ("short", HEADER + self.pixels[:-1], "2552 bytes of pixels, wanted are 2553"),
            ("empty", b"P6", "without its sizes"),
            ("text", b"P6 a b", "without its sizes"),
            ("cut", b"P6 2 2 255", "without pixels"),
            ("zero", b"P6 0 2 255\n", "no pixels"),
        ):
            self.refused_picture(MALFORMED, "Corrupt", self.write(name, data), says)
        self.refused_picture(UNSUPPORTED, "Unsupported", self.write("deep", b"P6 1 1 65535\n" + bytes(6)), "up to 65535")
        self.refused_picture(MALFORMED, "LimitExceeded", self.write("wide", b"P6 40000 1 255\n" + bytes(120000)), "40000")
        self.refused_picture(MALFORMED, "LimitExceeded", self.write("large", b"P6 20000 20000 255\n"), "268435456 in all")
        self.refused_picture(MALFORMED, "BadMagic", self.write("gif", b"GIF89a"), "no picture of a known format")
        self.refused_picture(MALFORMED, "NotFound", "missing.ppm", "missing.ppm")

    def test_png(self):
        path = self.write("picture.png", png(23, 37, 3, self.pixels))
        self.or_skip("libpng", path)
        want = self.answer(PICTURE)["logprobs"]
        self.assertEqual(self.answer(path)["logprobs"], want)
        clear = b"".join(self.pixels[i : i + 3] + b"\x20" for i in range(0, len(self.pixels), 3))
        self.assertEqual(self.answer(self.write("clear.png", png(23, 37, 4, clear)))["logprobs"], want)
        deep = bytes(byte for value in self.pixels for byte in (value, value))  # value * 257 of 65535
        self.assertEqual(self.answer(self.write("deep.png", png(23, 37, 3, deep, bits=16)))["logprobs"], want)
        whole = path.read_bytes()
        self.refused_picture(MALFORMED, "Corrupt", self.write("cut.png", whole[:-200]), "libpng")
        bomb = png(20000, 20000, 3, b"")
        self.refused_picture(MALFORMED, "LimitExceeded", self.write("bomb.png", bomb), "20000 x 20000")
        damaged = whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]
        self.refused_picture(MALFORMED, "Corrupt", self.write("damaged.png", damaged), "libpng")

    def test_jpeg(self):
        path = VISION / "picture.jpg"  # of quality 95
        self.or_skip("libjpeg", path)
        near, far = self.answer(path)["logprobs"], self.answer(PICTURE)["logprobs"]
        self.assertNotEqual(near, far)
        self.assertAlmostEqual(near[0]["logprob"], far[0]["logprob"], delta=0.2)
        whole = path.read_bytes()
        self.refused_picture(MALFORMED, "Corrupt", self.write("cut.jpg", whole[:900]), "JPEG that is cut or damaged")
        self.refused_picture(MALFORMED, "Corrupt", self.write("none.jpg", whole[:20]), "libjpeg")
        # Progressive, with scans of coefficient 0 only, one after the other.
        at = whole.rindex(b"\xff\xda")
        end = at + 2 + int.from_bytes(whole[at + 2 : at + 4], "big")
        scan = whole[at : end - 2] + b"\0" + whole[end - 1 : -2]
        many = whole[:at].replace(b"\xff\xc0", b"\xff\xc2") + 101 * scan + whole[-2:]
        self.refused_picture(MALFORMED, "LimitExceeded", self.write("many.jpg", many), "more than 100 scans")

    def test_images_of_any_size(self):
        qwen = DATA / "tiny_qwen2vl.gguf"
        images = ("--mmproj", VISION / "qwen2vl.gguf", "--image", PICTURE, "--prompt", "x", "-n", 1)
        as_file = self.json("generate", qwen, *images)["prompt_tokens"]
        more = self.json("generate", qwen, *images, "--image-min-tokens", 60)["prompt_tokens"]
        fewer = self.json("generate", qwen, *images, "--image-max-tokens", 8)["prompt_tokens"]
        self.assertGreaterEqual(more, as_file - 15 + 60)
        self.assertLessEqual(fewer, as_file - 15 + 8)
        self.refused(UNSUPPORTED, "Unsupported", "generate", GEMMA, "--mmproj", VISION / "gemma3.gguf", "--image", PICTURE,
                     "--prompt", "x", "--image-max-tokens", 8, says="one size")
        self.refused(WRONG_CALL, "BadArgument", "generate", qwen, "--prompt", "x", "--image-max-tokens", 8, says="--mmproj")
        self.refused(MALFORMED, "Incompatible", "generate", qwen, "--mmproj", VISION / "gemma3.gguf", "--image", PICTURE,
                     "--prompt", "x", says="positions of images")

    def test_calls(self):
        def wrong(*arguments, says):
            self.refused(WRONG_CALL, "BadArgument", "generate", GEMMA, "--prompt", "x", *arguments, says=says)

        wrong("--image", PICTURE, says="--mmproj")
        wrong("--mmproj", VISION / "gemma3.gguf", says="--image")
        images = ("--mmproj", VISION / "gemma3.gguf", "--image", PICTURE)
        wrong(*images, "--prompt-cache", "file", says="--prompt-cache")
        wrong(*images, "--ctx", "12", says="give --ctx")
        self.refused(UNSUPPORTED, "Unsupported", "generate", GEMMA, "--prompt", "x", "--mmproj", LLAMA, "--image", PICTURE,
                     says="architecture 'llama' without a vision encoder")
        self.refused(WRONG_CALL, "BadArgument", "generate", GEMMA, "--prompt", "<__media__><__media__>", *images,
                     says="1 images for 2 markers")

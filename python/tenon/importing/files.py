"""Files of the importers and the exporter: read and written with the library's errors."""

import os
import pathlib
import threading

from ..errors import ArgumentError, InputError, MachineError


def read(path):
    """The bytes of a file."""
    path = pathlib.Path(path)
    try:
        if path.exists() and not path.is_file():
            raise InputError("NotRegularFile", 11011, str(path), "not a regular file")
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError("NotFound", 11002, str(path), "no such file") from None
    except OSError as error:
        raise MachineError("IoError", 11011, str(path), error.strerror) from None


def read_text(path):
    """A file's text, which is UTF-8."""
    try:
        return read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("BadEncoding", 11003, str(path), f"byte {error.start} is no UTF-8") from None


def write(path, data):
    """Writes or replaces a file, which is never half written. As of the library's writers: a link stays a link, and what
    is no regular file is refused."""
    check_place(path)
    target = pathlib.Path(os.path.realpath(path))
    fresh = target.with_name(f".{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        file = open(fresh, "xb")
        try:
            with file:
                if target.exists():
                    os.chmod(file.fileno(), target.stat().st_mode & 0o7777)
                file.write(data)
            os.replace(fresh, target)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MachineError("IoError", 11011, str(path), f"cannot be written: {error.strerror}") from None


def check_place(path):
    """Refuses what write() refuses."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError("NotRegularFile", 11011, str(path), "exists and is not a regular file")


def check_target(target, others):
    """Refuses to write one file over another that is read, or written, at the same time."""
    for what, path in others.items():
        if os.path.realpath(target) == os.path.realpath(path):
            raise ArgumentError("BadArgument", 11010, str(target), f"is {what}: another name is needed")

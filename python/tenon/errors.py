"""The errors of the library: one class, with subclasses by what has to change."""


class Error(Exception):
    """An error of the library.

    `code` is the code's name ("BadMagic"), `number` its number in device runtimes, `where` the place of the
    fault ("model.gguf:1024", "net.tenon:17:40", "softmax") and `message` the sentence that states the facts.
    """

    def __init__(self, code: str, number: int, where: str, message: str):
        super().__init__(f"{code}: {where}: {message}")
        self.code = code
        self.number = number
        self.where = where
        self.message = message

    def __reduce__(self):
        return type(self), (self.code, self.number, self.where, self.message)


class InputError(Error, ValueError):
    """A file or text is malformed, or is not there."""


class ArgumentError(Error, ValueError):
    """A call was wrong."""


class UnsupportedError(Error, NotImplementedError):
    """This build, machine or device cannot do it."""


class MachineError(Error, RuntimeError):
    """Memory, storage, plugins or devices failed."""


class EndedEarlyError(Error, RuntimeError):
    """A deadline passed, or the work was cancelled."""


class InternalError(Error, RuntimeError):
    """An invariant of the library broke."""

"""The errors of the importer and the exporter, in the classes of tenon.errors."""

from ..errors import ArgumentError, InputError, UnsupportedError


class NotKnown(UnsupportedError):
    """A value is needed while a model is read. `inputs` are the model's inputs that it depends on."""

    def __init__(self, where, message, inputs=()):
        super().__init__("Unsupported", 11013, where, message)
        self.inputs = frozenset(inputs)

    def __reduce__(self):
        return type(self), (self.where, self.message, self.inputs)


def unsupported(where, message):
    return UnsupportedError("Unsupported", 11013, where, message)


def unsupported_type(where, message):
    return UnsupportedError("UnsupportedDType", 11003, where, message)


def malformed(where, message, code="Syntax"):
    return InputError(code, 11003, where, message)


def wrong_call(where, message):
    return ArgumentError("BadArgument", 11010, where, message)

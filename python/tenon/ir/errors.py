"""What is wrong with a text, a program or a run: a code, a message, and the place in the text."""

from ..errors import Error as LibraryError


class Error(LibraryError):
    """`code` is one of the codes of include/tenon/error_codes.def, as they are spelled there. Also a tenon.Error, whose
    `number` only the compiled part knows."""

    def __init__(self, code, message, file="", line=0, column=0, source=""):
        Exception.__init__(self, code, message)
        self.code, self.message = code, message
        self.number = None
        self.file, self.line, self.column, self.source = file, line, column, source

    @property
    def where(self):
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)

    def __reduce__(self):
        return _restored, (type(self), self.code, self.message, self.file, self.line, self.column, self.source)

    def __str__(self):
        text = f"{self.code}: {self.where}: {self.message}" if self.where else f"{self.code}: {self.message}"
        return text + excerpt(self.source, self.column) if self.source else text


class Unsupported(Error):
    """The program is right, but there is no numpy reference for one of its ops or types."""

    def __init__(self, message, **place):
        super().__init__("Unsupported", message, **place)


def _restored(kind, code, message, *place):
    error = kind.__new__(kind)
    Error.__init__(error, code, message, *place)
    return error


def excerpt(source, column, most=120):
    """The source line, cut to `most` characters around the column, and a caret below it."""
    offset = min(max(column - 1, 0), len(source))
    begin = offset - most // 2 if offset > most // 2 and len(source) > most else 0
    end = min(len(source), begin + most)
    shown = "".join(c if " " <= c and c != "\x7f" else "?" for c in source[begin:end])
    before, after = "..." if begin else "", "..." if end < len(source) else ""
    return f"\n{before}{shown}{after}\n{' ' * (offset - begin + len(before))}^"

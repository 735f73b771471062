"""What is wrong with a text, a program or a run: a code, a message, and the place in the text."""


class Error(Exception):
    """`code` is one of the codes of include/tenon/error_codes.def, as they are spelled there."""

    def __init__(self, code, message, file="", line=0, column=0, source=""):
        super().__init__(code, message)
        self.code, self.message = code, message
        self.file, self.line, self.column, self.source = file, line, column, source

    def __str__(self):
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        text = f"{self.code}: {place}: {self.message}" if place else f"{self.code}: {self.message}"
        return text + excerpt(self.source, self.column) if self.source else text


class Unsupported(Error):
    """The program is right, but there is no numpy reference for one of its ops or types."""

    def __init__(self, message, **place):
        super().__init__("Unsupported", message, **place)


def excerpt(source, column, most=120):
    """The source line, cut to `most` characters around the column, and a caret below it."""
    offset = min(max(column - 1, 0), len(source))
    begin = offset - most // 2 if offset > most // 2 and len(source) > most else 0
    end = min(len(source), begin + most)
    shown = "".join(c if " " <= c and c != "\x7f" else "?" for c in source[begin:end])
    before, after = "..." if begin else "", "..." if end < len(source) else ""
    return f"\n{before}{shown}{after}\n{' ' * (offset - begin + len(before))}^"

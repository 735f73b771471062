"""One line: its words, what Python's parser makes of them, and literals."""
import ast
import re

from ..schema import KEYWORDS
from ..tensors import DTYPES, INT64_MAX, MAX_RANK

OPERANDS, NAME_LETTERS, BRACKETS = 16384, 255, 16

_WORD = re.compile(r"""
    (?P<space>[ ]+) | (?P<comment>\#.*) | (?P<string>"(?:[^"\\]|\\.)*") |
    (?P<number>-?(?:0|[1-9][0-9]*)(?P<real>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_.])) |
    (?P<minus>-(?=inf(?![A-Za-z0-9_]))) | (?P<name>[A-Za-z_][A-Za-z0-9_]*) | (?P<mark>[()\[\],:=])
    """, re.VERBOSE | re.DOTALL)
_ESCAPE = re.compile(r"""\\(?:([\\"'nrt])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.?))""", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class Fault(Exception):
    """An error in the line that is read, at an offset in it."""

    def __init__(self, code, offset, message):
        super().__init__(message)
        self.code, self.offset, self.message = code, offset, message


class Word:
    def __init__(self, kind, text, offset):
        self.kind, self.text, self.offset = kind, text, offset


class Argument:
    """name is that of a value, or a word like nan; value is that of a literal."""

    def __init__(self, keyword, name, value, offset, value_offset):
        self.keyword, self.name, self.value = keyword, name, value
        self.offset, self.value_offset = offset, value_offset


def words_of(text):
    """The words of a line, without comments; refuses those that the language has not."""
    words, at, depth = [], 0, 0
    while at < len(text):
        match = _WORD.match(text, at)
        if not match:
            raise Fault("Syntax", at, _strange(text, at))
        kind, word = match.lastgroup, match[0]
        if kind == "real":
            kind = "number"
        if kind == "name" and len(word) > NAME_LETTERS:
            raise Fault("LimitExceeded", at, "a name of more than 255 letters")
        if kind == "number":
            _check_number(word, at)
        if kind == "mark":
            depth += (word in "([") - (word in ")]")
            if depth > BRACKETS:
                raise Fault("DepthLimit", at, f"more than {BRACKETS} brackets inside each other")
        if kind not in ("space", "comment"):
            words.append(Word(kind, word, at))
        at = match.end()
    return words


def _strange(text, at):
    if text[at] == '"':
        return "this string does not end"
    if text[at].isdigit() or text[at] == "-":
        return "this is no number: integers like 12, reals like 1.5 or 1e-05"
    if text[at] == "\t":
        return "tabs are not allowed; use spaces"
    if " " < text[at] < "\x7f":
        return f"'{text[at]}' has no meaning here"
    if text[at] < "\x80":
        return f"byte 0x{ord(text[at]):02X} has no meaning here"
    return f"U+{ord(text[at]):04X} has no meaning here: outside of strings and comments a text is ASCII"


def _check_number(word, at):
    if re.fullmatch(r"-?[0-9]+", word):
        if len(word) > 20 or not -INT64_MAX - 1 <= int(word) <= INT64_MAX:
            raise Fault("Syntax", at, "an integer that 64 bits cannot hold")
        return
    value = float(word)
    vanishes = value == 0 and re.search(r"[1-9]", re.split("[eE]", word)[0])
    if value in (float("inf"), float("-inf")) or vanishes:
        raise Fault("Syntax", at, "a number that no double holds")


def parse_line(text, words, suffix=""):
    """The statement of a line, by Python's parser. It sees the words only: strings are masked, and `[]`
    after a type, which Python does not have, is blank."""
    masked = [" "] * len(text)
    for i, word in enumerate(words):
        after = words[i + 1].text if i + 1 < len(words) else ""
        before = words[i - 1] if i else Word("", "", 0)
        if word.kind == "name" and word.text in KEYWORDS - {"_", "True", "False"} and i > 0:
            raise Fault("Syntax", word.offset, f"'{word.text}' has no meaning here")
        if word.text == "(" and (before.kind != "name" or before.text == "return"):
            raise Fault("Syntax", word.offset, "'(' follows the name of an op or a function")
        is_prefixed = before.kind == "name" and before.offset + len(before.text) == word.offset
        if word.kind == "string" and (before.kind == "string" or is_prefixed):
            raise Fault("Syntax", word.offset, "expected ',' or ')'")
        if word.text == "[" and before.text in ("]", ")"):
            raise Fault("Syntax", word.offset, "'[' has no meaning here")
        if word.text == "," and after in ("", ")", "]"):
            raise Fault("Syntax", word.offset, "nothing follows this ','")
        masked[word.offset:word.offset + len(word.text)] = (
            '"' + "_" * (len(word.text) - 2) + '"' if word.kind == "string" else word.text)
        if (word.text == "]" and before.text == "[" and i > 2 and words[i - 3].text == ":"
                and (words[i - 2].text in DTYPES or words[i - 2].text == "Index")):
            masked[before.offset] = masked[word.offset] = " "
    line = "".join(masked).rstrip(" ") + suffix
    indent = len(line) - len(line.lstrip(" "))
    try:
        # Behind a head, so that columns are those of the line.
        body = ast.parse("if 1:\n" + line).body[0].body if indent else ast.parse(line).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        code = "DuplicateName" if "repeated" in str(error) else "Syntax"
        raise Fault(code, (getattr(error, "offset", None) or 1) - 1,
                    getattr(error, "msg", None) or str(error)) from None
    if len(body) != 1:
        raise Fault("Syntax", indent, "expected one statement")
    if suffix and not isinstance(body[0], ast.FunctionDef):
        raise Fault("Syntax", indent, "expected def name(parameter: type, ...):")
    return body[0]


def arguments_of(call, words):
    """The arguments of a call: names and literals by position, then by keyword."""
    strings = {word.offset: word.text for word in words if word.kind == "string"}
    if len(call.args) + len(call.keywords) > OPERANDS + 64:
        raise Fault("LimitExceeded", call.col_offset, "too many arguments")
    arguments = [("", node, node.col_offset) for node in call.args]
    arguments += [(keyword.arg, keyword.value, keyword.col_offset) for keyword in call.keywords]
    result = []
    for keyword, node, offset in arguments:
        name = value = None
        if isinstance(node, ast.Name):
            name = node.id
        elif isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Name):
            name = "-" + node.operand.id
        else:
            value = _literal(node, strings)
        result.append(Argument(keyword, name, value, offset, node.col_offset))
    return result


def _literal(node, strings):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _unescaped(strings[node.col_offset], node.col_offset)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value
    if isinstance(node, ast.List):
        values = [_literal(item, strings) for item in node.elts]
        for item, value in zip(node.elts, values):
            if type(value) is not int:
                raise Fault("Syntax", item.col_offset, "expected an integer")
        if len(values) > MAX_RANK:
            raise Fault("LimitExceeded", node.col_offset, f"more than {MAX_RANK} numbers in a list")
        return values
    raise Fault("Syntax", node.col_offset, "expected a name or a literal")


def _unescaped(quoted, offset):
    def character(match):
        if match[1]:
            return _ESCAPED.get(match[1], match[1])
        point = int(match[2] or match[3] or match[4] or "110000", 16)
        if match[5] is not None or point > 0x10FFFF or 0xD800 <= point < 0xE000:
            raise Fault("Syntax", offset, "an escape in this string has no meaning")
        return chr(point)

    return _ESCAPE.sub(character, quoted[1:-1])


def require_utf8(text, offset):
    for i, c in enumerate(text):
        if "\ud800" <= c <= "\udfff":
            raise Fault("Syntax", offset + i, f"byte 0x{ord(c) & 0xFF:02X} is not UTF-8 here")

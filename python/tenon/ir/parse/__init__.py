"""Text to Program, through Python's `ast` and a list of what is allowed. Nothing is executed.

A statement is one line, so each line is parsed alone and errors do not hide each other. The words of a
line are looked at first (`words_of`): the text is a subset of Python, and `ast` no longer shows how a
literal was spelled. What stands in a string or a comment never reaches Python's parser.
"""
import ast
import pathlib
import re

from ..errors import Error
from ..program import SCOPE, TENSOR, TUPLE, Function, Program, Value
from ..schema import KEYWORDS, OPSET
from ..tensors import DTYPES, MAX_RANK, Type, is_object
from .line import OPERANDS, Fault, Word, arguments_of, parse_line, require_utf8, words_of
from .statement import StatementBuilder

TEXT_BYTES, LINE_BYTES = 8 << 20, 1 << 20
INSTRUCTIONS, WORD_BYTES, WORDS, ERRORS = 1_000_000, 255, 4096, 100
IMPORTS = ("from __future__ import annotations", "from tenon.ir import *")
MODULE_FORM = 'module("name", opset=1, weights="...", sha256="...", entry="...")'


def load(path):
    """The program of a file."""
    path = pathlib.Path(path)
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        code = "NotFound" if isinstance(error, FileNotFoundError) else "IoError"
        raise Error(code, error.strerror or str(error), file=str(path)) from None


def parse(text, file="program"):
    """The program of a text (str or bytes); throws the first error."""
    program, errors = parse_all(text, file)
    if errors:
        raise errors[0]
    return program


def as_program(one):
    """A Program itself; that of a text, or of a program of the compiled part."""
    return one if isinstance(one, Program) else parse(str(one))


def parse_all(text, file="program"):
    """The program, or None, and every error in the order of the text, up to 100."""
    return Parser(text, file).run()


class Parser:
    def __init__(self, text, file):
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
        self.bytes = len(data)
        lines = data[:TEXT_BYTES + 1].removeprefix(b"\xef\xbb\xbf").split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        lines = [line.removesuffix(b"\r").decode("utf-8", "surrogateescape") for line in lines]
        self.program = Program(file=file, lines=lines)
        self.errors, self.words, self.statements = [], set(), 0
        self.function = None
        self.returned = self.may_have_returned = self.head_is_read = False
        self.names, self.missing, self.defined = {}, [], {}

    def error(self, code, line, offset, message):
        if len(self.errors) < ERRORS:
            self.errors.append(Error(code, message, **self.program.place(line, offset + 1)))

    def run(self):
        if self.bytes > TEXT_BYTES:
            self.error("LimitExceeded", 1, 0, f"a text of {self.bytes} bytes; at most {TEXT_BYTES} are allowed")
            return None, self.errors
        first = self.header()
        if first:
            for self.line in range(first + 1, len(self.program.lines) + 1):
                if len(self.errors) >= ERRORS:
                    break
                try:
                    self.read(self.program.lines[self.line - 1])
                except Fault as fault:
                    self.error(fault.code, self.line, fault.offset, fault.message)
            self.finish_function()
            if not self.errors:
                self.finish_program()
        self.errors.sort(key=lambda error: (error.line, error.column))
        return (None if self.errors else self.program), self.errors

    # --- the lines before the first function

    def header(self):
        """The number of module's line; None after an error."""
        lines = self.program.lines
        version = re.fullmatch(r"# tenon ([0-9]{1,9})\.([0-9]{1,9})", lines[0] if lines else "")
        if not version:
            return self.error("BadMagic", 1, 0, "a program begins with the line '# tenon 1.0'")
        if version[1] != "1":
            return self.error("UnsupportedVersion", 1, 8,
                              f"the text has version {version[0][8:]}; this library reads 1.0")
        imports = list(IMPORTS)
        for number, text in enumerate(lines[1:], 2):
            if not text or text.startswith("#"):
                continue
            if not imports:
                try:
                    self.module(text)
                    return number
                except Fault as fault:
                    return self.error(fault.code, number, fault.offset, fault.message)
            if text != imports.pop(0):
                return self.error("Syntax", number, 0, f"expected '{IMPORTS[1 - len(imports)]}'")
        return self.error("Truncated", max(len(lines), 1), len(lines[-1]), "the text ends before module(...)")

    def module(self, text):
        words = words_of(text)
        call = parse_line(text, words)
        call = call.value if isinstance(call, ast.Expr) else call
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "module"):
            raise Fault("Syntax", 0, "expected module(...)")
        arguments = arguments_of(call, words)
        if not arguments or arguments[0].keyword or any(not argument.keyword for argument in arguments[1:]):
            raise Fault("Syntax", call.col_offset, "expected the model's name")
        seen = set()
        for i, argument in enumerate(arguments):
            key = argument.keyword or "name"
            if key in seen or (i and key == "name"):
                raise Fault("DuplicateName", argument.offset, f"{key} is given twice")
            seen.add(key)
            if key == "opset" and type(argument.value) is int:
                if argument.value != OPSET:
                    raise Fault("UnsupportedVersion", argument.offset,
                                 f"the text has opset {argument.value}; this library knows {OPSET}")
            elif key in ("name", "weights", "sha256", "entry") and isinstance(argument.value, str):
                require_utf8(argument.value, argument.offset)
                setattr(self.program, key, argument.value)
            else:
                raise Fault("Syntax", argument.offset, f"expected {MODULE_FORM}")
        if "opset" not in seen:
            raise Fault("Syntax", 0, 'module("name", opset=1) names the set of ops')

    # --- functions

    def read(self, text):
        if len(text.encode("utf-8", "surrogateescape")) > LINE_BYTES:
            raise Fault("LimitExceeded", 0, f"a line of more than {LINE_BYTES} bytes")
        indent = len(text) - len(text.lstrip(" "))
        if indent == len(text):
            return
        # Even a line with an error opens a function; else all its statements would be reported, too.
        opens = not indent and re.match(r"def(?![A-Za-z0-9_])", text)
        if opens:
            self.finish_function()
            self.function, self.head_is_read = Function("", line=self.line, column=1), False
            self.program.functions.append(self.function)
        require_utf8(text, 0)
        if text[indent] == "#":
            return
        try:
            words = words_of(text)
        except Fault:
            first = re.match(r"[A-Za-z_][A-Za-z0-9_]*", text[indent:])
            if self.function and first:
                self.names[first[0]] = None  # known, with an error
                self.returned |= first[0] == "return"
            self.may_have_returned |= not first
            raise
        if not indent:
            if not opens:
                raise Fault("Syntax", 0, f"expected def, found '{words[0].text[:40]}'")
            return self.head(parse_line(text, words, " pass"), words)
        if indent != 4:
            self.may_have_returned |= words[0].text == "return"
            raise Fault("Syntax", indent, "statements are indented by 4 spaces")
        if not self.function:
            raise Fault("Syntax", indent, "a statement outside a function")
        if self.returned:
            raise Fault("Syntax", indent, "a statement after return")
        if words[0].text == "return":
            self.returned = True
            return self.return_statement(parse_line(text, words))
        if words[0].kind == "name":
            self.define(words[0].text, words[0].offset, None)
        self.statement(parse_line(text, words), words)

    def head(self, node, words):
        function, arguments = self.function, node.args
        function.name, function.column = node.name, words[1].offset + 1
        if node.name in self.defined:
            raise Fault("DuplicateName", words[1].offset,
                         f"'{node.name}' is already defined at line {self.defined[node.name]}")
        self.defined[node.name] = self.line
        if (arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg
                or arguments.defaults or node.returns or node.decorator_list or getattr(node, "type_params", None)):
            raise Fault("Syntax", 0, "expected def name(parameter: type, ...):")
        for parameter in arguments.args:
            if parameter.annotation is None:
                raise Fault("Syntax", parameter.end_col_offset, "expected ':' and a type")
            if len(function.parameters) == OPERANDS:
                raise Fault("LimitExceeded", parameter.col_offset, f"more than {OPERANDS} parameters")
            kind, type_ = self.type(parameter.annotation)
            value = Value(parameter.arg, kind, type_, parameter.col_offset + 1)
            self.define(parameter.arg, parameter.col_offset, value)
            function.parameters.append(value)
        self.head_is_read = True

    def define(self, name, offset, value):
        if name in KEYWORDS:
            raise Fault("Syntax", offset, f"'{name}' is no name for a value")
        known = self.names.get(name)
        if name in self.names:
            line = f" at line {known[1]}" if known else ""
            raise Fault("DuplicateName", offset, f"'{name}' is already defined{line}")
        self.names[name] = (value, self.line)

    def resolve(self, name, offset):
        """False where the name is not defined, or its statement has an error."""
        if name not in self.names:
            self.missing.append((name, self.line, offset))
        return bool(self.names.get(name) and self.names[name][0])

    def return_statement(self, node):
        if not isinstance(node, ast.Return) or node.value is None:
            raise Fault("Syntax", 4, "expected return and names of values")
        results = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        self.function.return_line = self.line
        for result in results:
            if not isinstance(result, ast.Name):
                raise Fault("Syntax", result.col_offset, "expected the name of a value")
            self.resolve(result.id, result.col_offset)
            self.function.results.append(result.id)
            self.function.return_columns.append(result.col_offset + 1)

    def finish_function(self):
        if self.function and self.head_is_read:
            for name, line, offset in self.missing:
                later = self.names.get(name)
                self.error("BadReference", line, offset,
                           f"'{name}' is used before it is defined at line {later[1]}" if later
                           else f"'{name}' is not defined")
        if self.function and not self.returned and not self.may_have_returned:
            self.error("Syntax", self.function.line, self.function.column - 1,
                       f"'{self.function.name}' does not return")
        self.names, self.missing, self.function = {}, [], None
        self.returned = self.may_have_returned = False

    # --- statements

    def statement(self, node, words):
        self.statements += 1
        if self.statements > INSTRUCTIONS:
            raise Fault("LimitExceeded", 4, f"more than {INSTRUCTIONS} statements")
        target = getattr(node, "target", None)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(target, ast.Name):
            raise Fault("Syntax", 4, "expected name = op(...), or name: type = op(...)")
        type_ = None
        if isinstance(node, ast.AnnAssign):
            kind, type_ = self.type(node.annotation)
            if kind != TENSOR or type_ is None:
                raise Fault("BadType", node.annotation.col_offset, "only tensor types are written at statements")
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise Fault("Syntax", call.col_offset if call else len(words[-1].text), "expected an op or a function")
        word, offset = call.func.id, call.func.col_offset
        make = StatementBuilder(self, word, offset, arguments_of(call, words))
        instruction = make.run()
        instruction.line, instruction.column = self.line, offset + 1
        instruction.result = Value(target.id, instruction.result.kind, type_)
        if not make.is_known:
            return  # what it reads has an error, which is reported there
        self.function.body.append(instruction)
        self.names[target.id] = (instruction.result, self.line)

    def type(self, node):
        """Kind of value and type of an annotation."""
        if isinstance(node, ast.Name) and node.id in ("Scope", "Tensor"):
            return (SCOPE if node.id == "Scope" else TENSOR), None
        word, sizes = node, []
        if isinstance(node, ast.Subscript):
            word = node.value
            sizes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not isinstance(word, ast.Name):
            raise Fault("Syntax", node.col_offset, "expected a type")
        dtype = {"Index": "i64"}.get(word.id, word.id)
        if dtype not in DTYPES:
            raise Fault("BadType", node.col_offset, "there is no such type")
        if is_object(dtype) and word is not node:
            raise Fault("Syntax", node.col_offset, f"a {dtype} is an object and has no sizes")
        if len(sizes) > MAX_RANK:
            raise Fault("BadShape", node.col_offset, f"more than {MAX_RANK} axes")
        try:
            return TENSOR, Type(dtype, [self.size(size) for size in sizes])
        except Error as error:
            raise Fault(error.code, node.col_offset, error.message) from None

    def size(self, node):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id == "_":
            return None
        if isinstance(node, ast.Name) and node.id not in KEYWORDS:
            return self.intern(node.id, node.col_offset)
        raise Fault("Syntax", node.col_offset, "expected a size: a number, a name or _")

    def intern(self, word, offset):
        """Counts the different names of sizes and words in attributes."""
        if word not in self.words:
            if len(word.encode()) > WORD_BYTES:
                raise Fault("LimitExceeded", offset, "a word of more than 255 bytes")
            if len(self.words) == WORDS:
                raise Fault("LimitExceeded", offset, f"more than {WORDS} different words")
            self.words.add(word)
        return word

    def finish_program(self):
        """Checks that need all functions."""
        from ..verify import findings
        results = {function.name: len(function.results) for function in self.program.functions}
        for function in self.program.functions:
            for instruction in function.body:
                if instruction.kind == "call" and instruction.function not in results:
                    self.error("UnknownOp", instruction.line, instruction.column - 1,
                               f"there is no op or function '{instruction.function}'")
                elif instruction.kind == "call" and results[instruction.function] != 1:
                    instruction.result.kind = TUPLE
        if not self.errors:
            self.errors = findings(self.program)

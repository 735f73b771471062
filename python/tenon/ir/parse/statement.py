"""The instruction that a call stands for."""
from ..program import SCOPE, TENSOR, TUPLE, Instruction, Value
from ..schema import KIND_NAMES, OPS
from ..tensors import DTYPES, is_object
from .line import Fault

REPEAT_FORM = "repeat(function, count, tuple, scope, ..., first=0, condition=item)"


class StatementBuilder:
    """The instruction of a call."""

    def __init__(self, parser, word, offset, arguments):
        self.parser, self.word, self.offset, self.arguments = parser, word, offset, arguments
        self.is_known = True
        self.made = Instruction("op", word, Value(""))

    def run(self):
        if self.word in ("const", "scope", "pack", "item", "repeat"):
            self.made.kind = self.word
            getattr(self, {"const": "text", "scope": "text"}.get(self.word, self.word))()
        elif self.word in OPS:
            self.op(OPS[self.word])
        else:
            self.call()
        return self.made

    def usage(self, form):
        raise Fault("BadArgument", self.offset, f"expected {form}")

    def operand(self, argument):
        if argument.keyword:
            raise Fault("BadArgument", argument.offset, f"{self.word} has no attribute '{argument.keyword}'")
        if argument.name is None:
            raise Fault("BadArgument", argument.offset, 
                        f"{self.word} takes the names of values here; literals are attributes: name=value")
        self.is_known &= self.parser.resolve(argument.name, argument.offset)
        self.made.operands.append(argument.name)
        self.made.columns.append(argument.offset + 1)

    def op(self, op):
        self.made.attributes = op.defaults
        given = set()
        for argument in self.arguments:
            if argument.keyword:
                self.attribute(op, argument, given)
            else:
                self.operand(argument)
        count, least, most = len(self.made.operands), op.min_inputs, op.max_inputs
        if not least <= count <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise Fault("BadArgument", self.offset, f"{op.name} takes {wanted} operands, {count} given")

    def attribute(self, op, argument, given):
        attribute = op.attribute(argument.keyword)
        if attribute is None:
            known = ", ".join(known.name for known in op.attributes)
            raise Fault("BadAttribute", argument.offset, f"{op.name} has no attribute '{argument.keyword}'"
                         + (f"; it has {known}" if known else ""))
        if attribute.name in given:
            raise Fault("DuplicateName", argument.offset, f"attribute {attribute.name} is given twice")
        given.add(attribute.name)
        value = argument.value
        if argument.name is not None:
            if argument.name not in ("nan", "inf", "-inf"):
                raise Fault("Syntax", argument.offset,
                             f"attribute {attribute.name} is a literal, not the name '{argument.name}'")
            value = float(argument.name)
        if attribute.type == "dtype" and isinstance(value, str) and (value not in DTYPES or is_object(value)):
            raise Fault("BadAttribute", argument.offset, f"there is no type \"{value}\"")
        if attribute.type == "word" and isinstance(value, str):
            self.parser.intern(value, argument.value_offset)
        held = attribute.accepts(value)
        if held is None:
            is_inexact = attribute.type == "real" and type(value) is int
            raise Fault("BadAttribute", argument.value_offset,
                         f"attribute {attribute.name} of {op.name} is {KIND_NAMES[attribute.type]}"
                         + (f", and no double is {value}" if is_inexact else ""))
        self.made.attributes[attribute.name] = held

    def text(self):
        self.made.result.kind = SCOPE if self.word == "scope" else TENSOR
        arguments = self.arguments
        if len(arguments) not in (1, 2) or arguments[-1].keyword or not isinstance(arguments[-1].value, str):
            self.usage(f'{self.word}("name") or {self.word}(scope, "name")')
        for argument in arguments[:-1]:
            self.operand(argument)
        self.made.text = arguments[-1].value

    def pack(self):
        self.made.result.kind = TUPLE
        for argument in self.arguments:
            self.operand(argument)

    def item(self):
        if len(self.arguments) != 2 or self.arguments[1].keyword or type(self.arguments[1].value) is not int:
            self.usage("item(tuple, number)")
        self.operand(self.arguments[0])
        self.made.index = self.arguments[1].value

    def repeat(self):
        made, arguments = self.made, list(self.arguments)
        made.result.kind = TUPLE
        if (len(arguments) < 4 or arguments[0].keyword or arguments[0].name is None or arguments[1].keyword
                or type(arguments[1].value) is not int):
            self.usage(REPEAT_FORM)
        made.function, made.count = arguments[0].name, arguments[1].value
        given = set()
        while arguments[-1].keyword:
            last = arguments.pop()
            is_good = last.keyword in ("first", "condition") and type(last.value) is int and last.keyword not in given
            if not is_good or (last.keyword == "condition" and last.value < 0):
                self.usage(REPEAT_FORM)
            given.add(last.keyword)
            setattr(made, last.keyword, last.value)
        for argument in arguments[2:]:
            self.operand(argument)

    def call(self):
        self.made.kind, self.made.function = "call", self.word
        if any(argument.keyword for argument in self.arguments):
            raise Fault("UnknownOp", self.offset, f"there is no op '{self.word}', and functions take no attributes")
        for argument in self.arguments:
            self.operand(argument)

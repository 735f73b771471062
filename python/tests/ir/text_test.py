"""Texts: both parsers, this one and the library's, accept and refuse the same, and print the same bytes."""
import ast
import re
import time
import unittest

import support
from support import HEADER, ROOT
from tenon.ir import Error, Function, Instruction, Program, Value, parse, parse_all, print_program
from tenon.ir.schema import OPS

DOCUMENT = re.search(r"```python\n(.*?)```", (ROOT / "docs/text-ir.md").read_text("utf-8"), re.DOTALL)[1]
CORE = ("program_parse", "program_verify", "program_print", "control", "lower", "session")
SOURCES = [*(f"tests/core/{name}_test.cpp" for name in CORE), "tests/io/network_test.cpp"]


def literals(source):
    """The string literals of a C++ source, adjacent ones joined."""
    pattern = r'R"\((.*?)\)"|"((?:[^"\\\n]|\\.)*)"|//[^\n]*|\'(?:[^\'\\]|\\.)+\'|([^\s"])'
    joined, result = "", []
    for match in re.finditer(pattern, source, re.DOTALL):
        if match[1] is not None:
            joined += match[1]
        elif match[2] is not None:
            joined += cpp_unescaped(match[2])
        elif match[3] is not None and joined:
            result.append(joined)
            joined = ""
    return result


def cpp_unescaped(text):
    try:
        return ast.literal_eval(f'"{text}"')
    except (SyntaxError, ValueError):
        return text


def corpus():
    """Every text that the C++ tests have, accepted or not, as bytes."""
    texts = {DOCUMENT}
    for source in SOURCES:
        for literal in literals((ROOT / source).read_text("utf-8")):
            if literal.startswith("# tenon"):
                texts.add(literal)
            elif "def " in literal:
                texts.add(HEADER + literal)
            elif "=" in literal or "return" in literal:
                texts.add(HEADER + f"def forward(x: f32[4], i: i64):\n    {literal}\n    return x\n")
    return sorted(text.encode("utf-8", "surrogateescape") for text in texts)


def case_programs():
    """For every committed op case a program of that op."""
    for case, operands, result in support.op_cases():
        op = OPS[case["op"]]
        parameters = [Value(f"x{k}", type=operand.type) for k, operand in enumerate(operands)]
        attributes = {name: op.attribute(name).accepts(value) for name, value in case["attributes"].items()}
        made = Instruction("op", op.name, Value("y", type=result.type), [value.name for value in parameters],
                           attributes)
        yield str(Program("test", functions=[Function("forward", parameters, [made], ["y"])])).encode()


WORDS = rb"""x f32 i64 S _ 4 -1 0 1.5 1e999 1e-999 1e-320 nan inf -inf True None "a" "\x41" "\q" [ ] ( ) , : = [] [1, -2] add
    const repeat def return lambda match axis=1 dtype="f16" # 'a' 1_0 0x1 01 9223372036854775807 9223372036854775808 ; \
    softmax(x) Scope Tensor Index q4_0[32] q4_0[33]""".split() + [b"\t", b"  ", b"\n", b"\r", b"\0", b"\xc3\xa9", b"\xff"]


KINDS = [re.compile(rb"(?<![A-Za-z0-9_.])[0-9]+(?![A-Za-z0-9_.])"), re.compile(rb"(?<=: )[a-z0-9_]+(?=[\[, )])"),
         re.compile(rb"(?<= = )[a-z0-9_]+(?=\()"), re.compile(rb"(?<=[(,\[ ])[A-Za-z][A-Za-z0-9_]*(?=[,)\]])"),
         re.compile(rb"[a-z_]+=(?:[^,()\[\]]+|\[[^\]]*\])(?=[,)])")]


def exchanged(text, random, others):
    """A number, a type, an op, a name or an attribute in place of another; so that what is left is often right, and
    is wrong in its meaning only."""
    kind = random.choice(KINDS)
    places = list(kind.finditer(text))
    found = [match[0] for match in kind.finditer(random.choice([text, text, others]))]
    if not places or not found:
        return text
    place, new = random.choice(places), random.choice(found)
    if kind is KINDS[0] and random.random() < 0.7:
        new = random.choice([b"S", b"T", b"_"] + [b"%d" % max(0, int(place[0]) + by) for by in (-1, 1, 2)])
    if kind is KINDS[4] and random.random() < 0.5:  # one more of them
        return text[:place.end()] + b", " + new + text[place.end():]
    return text[:place.start()] + new + text[place.end():]


def mutated(text, random):
    """One to three changes of words, characters or lines."""
    for _ in range(random.randint(1, 3)):
        kind = random.randrange(6)
        if kind == 0:  # a character
            at = random.randrange(len(text))
            text = text[:at] + bytes([random.choice(b"()[],:=\"#. -_a19\n\\")]) + text[at + random.randint(0, 1):]
        elif kind == 1:  # lines
            lines = text.split(b"\n")
            i, j = random.randrange(len(lines)), random.randrange(len(lines))
            lines[i], lines[j] = random.choice([(lines[j], lines[i]), (lines[j], lines[j]), (b"", lines[j])])
            text = b"\n".join(lines)
        else:  # words
            words = re.findall(rb"[A-Za-z0-9_.]+|\s+|.", text)
            i = random.randrange(len(words))
            other = random.choice([random.choice(WORDS), random.choice(words)])
            words[i:i + random.randint(0, 1)] = [other] if kind < 5 else []
            text = b"".join(words)
        text = text or b"\n"
    return text


class Text(unittest.TestCase):
    def compare(self, texts):
        """Both verdicts of every text; the number of accepted ones, and of refused ones with equal places."""
        accepted = same_first = refused = 0
        for text, theirs in zip(texts, support.library_verdicts(texts), strict=True):
            self.assertIsNone(support.disagreement(text, theirs), text.decode("utf-8", "replace"))
            if "text" in theirs:
                accepted += 1
            else:
                error = parse_all(text, "text")[1][0]
                refused += 1
                same_first += [error.line, error.column, error.code] == theirs["errors"][0]
        return accepted, refused, same_first

    def test_corpus(self):
        texts = corpus()
        accepted, refused, same = self.compare(texts)
        print(f"\ntexts of the C++ tests: {accepted} accepted, {refused} refused, {same} with the same first place")
        self.assertGreater(accepted, 30)
        self.assertGreater(refused, 100)
        self.assertGreater(same, refused * 0.7)

    def test_mutations(self):
        random = support.seeded("mutations")
        good = [text for text in corpus() if not parse_all(text)[1]]
        good += [text.encode() for text in support.random_programs(30, random.randrange(10**9))]
        good += random.sample(list(case_programs()), 200)
        texts = good + [mutated(random.choice(good), random) for _ in range(1500)]
        for _ in range(3000):
            text = random.choice(good)
            for _ in range(random.choice([1, 1, 2, 4])):
                text = exchanged(text, random, random.choice(good))
            texts.append(text)
        accepted, refused, same = self.compare(texts)
        print(f"\n{len(texts)} mutations: {accepted} accepted, {refused} refused, {same} with the same first place")
        self.assertGreater(min(accepted, refused), 100)

    def test_noise(self):
        """Bytes of no meaning, behind a good beginning."""
        random = support.seeded("noise")
        texts = [(HEADER + random.choice(["",
                                          "def forward(x: f32):\n    "])).encode() + random.randbytes(random.randrange(40))
                 for _ in range(1000)]
        accepted, refused, _ = self.compare(texts)
        self.assertEqual(refused, len(texts))

    def test_random_programs_print_the_same(self):
        seed = support.seeded("printing").randrange(10**9)
        texts = support.random_programs(200, seed)
        for text in texts:
            self.assertEqual(print_program(parse(text)), text)
        print(f"\n{len(texts)} random programs print the same bytes")

    def test_document(self):
        self.assertEqual(str(parse(DOCUMENT)), DOCUMENT)

    def test_message(self):
        with self.assertRaises(Error) as raised:
            parse(HEADER + "\ndef forward(kv0: f32[1, 1, 1, 4, 2], i: i64, x: f32[1, 1, 1, 2], pos: i32):\n"
                  "    kv1 = cache_update(kv0, i, x, pos)\n    y = add(kv1, kv0)\n    return y\n", "tiny.tenon")
        self.assertEqual(str(raised.exception),
                         "Alias: tiny.tenon:8:18: 'kv0' was consumed at line 7 by cache_update; use 'kv1'\n"
                         "    y = add(kv1, kv0)\n                 ^")

    def test_a_return_that_cannot_be_read_is_not_missing(self):
        for function, want in (("def forward(x: f32[4]):\n\ty = exp(x)\n\treturn y\n",
                                ["6:1: tabs are not allowed; use spaces", "7:1: tabs are not allowed; use spaces"]),
                               ("def forward(x: f32[4]):\n    y = exp(x)\n   return y\n",
                                ["7:4: statements are indented by 4 spaces"]),
                               ("def forward(x: f32[4]):\n    y\u00a0= exp(x)\n    return x\n",
                                ["6:6: U+00A0 has no meaning here: outside of strings and comments a text is ASCII"])):
            errors = parse_all(HEADER + function, "net")[1]
            self.assertEqual([str(one).splitlines()[0].removeprefix("Syntax: net:") for one in errors], want)

    def test_nothing_is_executed(self):
        for line in ("y = __import__(\"os\")", "y = (lambda: x)()", "y = [exp(x)][0]", "y = x.real",
                     "y = exp(x) if x else x", "import os",
                     "y = f\"{x}\"", "y = exp(*x)", "y: f32[print(1)] = exp(x)", "y: f32[][4] = exp(x)",
                     "y: f32 = const(\"a\" \"b\")", "y: f32 = const(R\"a\")", "y: f32 = const(u\"a\")"):
            with self.assertRaises(Error, msg=line):
                parse(HEADER + f"def forward(x: f32[4]):\n    {line}\n    return x\n")

    def test_limits(self):
        def code(text):
            return parse_all(text)[1][0].code

        def forward(line):
            return HEADER + f"def forward(x: f32[4]):\n    {line}\n    return x\n"

        began = time.monotonic()
        self.assertEqual(code(b"#" * (9 << 20)), "LimitExceeded")
        self.assertEqual(code(forward("y = exp(" + " " * (1 << 20) + "x)")), "LimitExceeded")
        self.assertEqual(code(forward("y = exp(" + "(" * 1000)), "DepthLimit")
        self.assertEqual(code(forward("y" * 256 + " = exp(x)")), "LimitExceeded")
        self.assertEqual(code(forward("y = concat(" + "x, " * 17000 + "x)")), "LimitExceeded")
        self.assertEqual(code(forward("y = " + "not " * 200000 + "x")), "Syntax")
        self.assertEqual(code(forward("y = reshape(x, dims=[1, 1, 1, 1, 1, 1, 1, 1, 4])")), "LimitExceeded")
        self.assertEqual(code(HEADER + "def forward(x: f32[1099511627776, 2]):\n    return x\n"), "LimitExceeded")
        end = "(x: f32):\n    return x\ndef forward(x: f32):\n    y = f0(x)\n    return y\n"
        chain = "".join(f"def f{i}(x: f32):\n    y = f{i + 1}(x)\n    return y\n" for i in range(70))
        self.assertEqual(code(HEADER + chain + "def f70" + end), "DepthLimit")
        doubling = "".join(f"def f{i}(x: f32):\n    y = f{i + 1}(x)\n    z = f{i + 1}(y)\n    return z\n"
                           for i in range(40))
        self.assertEqual(code(HEADER + doubling + "def f40" + end),
                         "LimitExceeded")
        many = "".join(f"def f{i}(x: f32):\n    y = nothing{i}(x)\n    return x\n" for i in range(500))
        self.assertEqual(len(parse_all(HEADER + many)[1]), 100)
        self.assertLess(time.monotonic() - began, 60)


if __name__ == "__main__":
    unittest.main()

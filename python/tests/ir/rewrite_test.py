"""Rewrites, each run before and after, and differences of structure."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from support import HEADER, random_programs, seeded
from tenon.ir import Error, diff, parse, parse_all, pattern, rewrite, verify

GATE = HEADER + """
def forward(x: f32[S, 8], w: f32[8, 8], b: f32[8]):
    g = linear(x, w)
    s = sigmoid(g)
    y: f32[S, 8] = mul(s, g)
    z = add(y, b)
    t = sum(z, axes=[1], keep_dims=True)
    return t, z
"""


@pattern("mul(x, sigmoid(x))")
def silu(x):
    return "silu(x)"


class Rewrite(unittest.TestCase):
    def test_pattern(self):
        before = parse(GATE)
        after = rewrite(before, silu)
        self.assertEqual(str(before), GATE, "a rewrite leaves its argument")
        self.assertEqual(str(after), GATE.replace("    s = sigmoid(g)\n", "").replace("mul(s, g)", "silu(g)"))
        self.assertEqual(str(rewrite(after, silu)), str(after))

    def test_a_wrong_rewrite_is_an_error(self):
        @pattern("mul(x, sigmoid(x))")
        def wrong(x):
            return "relu(x)"

        with self.assertRaises(Error) as raised:
            rewrite(parse(GATE), wrong)
        self.assertEqual(raised.exception.code, "Incompatible")
        self.assertIn("wrong: result 0 differs", str(raised.exception))
        self.assertIn("relu(g)", str(rewrite(parse(GATE), wrong, check=False)))

    def test_attributes_and_nested_replacements(self):
        @pattern("sum(x, axes=a, keep_dims=True)")
        def mean(x, a):
            return f"mul(mean(x, axes=a, keep_dims=True), full(value=8, dims=[1, 1]))" if a == [1] else None

        after = str(rewrite(parse(GATE), mean))
        self.assertIn("    t_0 = mean(z, axes=[1], keep_dims=True)\n    t_1 = full(value=8.0, dims=[1, 1])\n"
                      "    t = mul(t_0, t_1)\n", after)

        @pattern("sum(x, axes=[0])")
        def never(x):
            return "x"

        self.assertEqual(str(rewrite(parse(GATE), never)), GATE)

    def test_a_name_as_replacement(self):
        @pattern("mul(x, full(value=1, dims=d))")
        def times_one(x):
            return "x"

        text = HEADER + """
def forward(x: f32[4]):
    one = full(value=1.0)
    y = mul(one, x)
    z = exp(y)
    return z, y
"""
        self.assertEqual(str(rewrite(parse(text), times_one)), HEADER + """
def forward(x: f32[4]):
    z = exp(x)
    return z, x
""")

    def test_values_that_others_read_stay(self):
        text = GATE.replace("return t, z", "return t, s")
        self.assertEqual(str(rewrite(parse(text), silu)), text)

    def test_in_functions_that_repeat(self):
        text = HEADER + """
def block(x: f32[4], i: i64, s: Scope):
    g = sigmoid(x)
    y = mul(g, x)
    return y

def forward(x: f32[4]):
    s = scope("a")
    c = pack(x)
    d = repeat(block, 3, c, s)
    y = item(d, 0)
    return y
"""
        self.assertIn("    y = silu(x)\n", str(rewrite(parse(text), silu)))

    def test_bad_patterns(self):
        for text in ("x", "x + y", "frobnicate(x)", "mul(x, 3)"):
            with self.assertRaises(Error, msg=text):
                pattern(text)(lambda x: "x")

        @pattern("sigmoid(x)")
        def not_an_op(x):
            return "frobnicate(x)"

        with self.assertRaises(Error) as raised:
            rewrite(parse(GATE), not_an_op)
        self.assertEqual(raised.exception.code, "UnknownOp")


class Diff(unittest.TestCase):
    def test_names_and_order_do_not_count(self):
        other = GATE.replace("g = linear", "h = linear").replace("(g)", "(h)").replace("mul(s, g)", "mul(s, h)")
        self.assertEqual(diff(parse(GATE), parse(other)), [])
        a = parse(HEADER + "def forward(x: f32):\n    a = exp(x)\n    b = sin(x)\n    c = add(a, b)\n    return c\n")
        b = parse(HEADER + "def forward(x: f32):\n    b = sin(x)\n    a = exp(x)\n    c = add(a, b)\n    return c\n")
        self.assertEqual(diff(a, b), [])

    def test_what_differs(self):
        lines = diff(parse(GATE), rewrite(parse(GATE), silu))
        self.assertEqual(lines,
                         ["  def forward:", "-     s = sigmoid(g)", "-     y: f32[S, 8] = mul(s, g)",
                          "+     y: f32[S, 8] = silu(g)"])
        lines = diff(parse(GATE), parse(GATE.replace("axes=[1]", "axes=[0]")))
        self.assertEqual(lines,
                         ["  def forward:", "-     t = sum(z, axes=[1], keep_dims=True)",
                          "+     t = sum(z, axes=[0], keep_dims=True)"])
        lines = diff(parse(GATE), parse(GATE.replace("return t, z", "return t, y")))
        self.assertEqual(lines, ["  def forward:", "-     return t, z", "+     return t, y"])
        lines = diff(parse(GATE), parse(GATE.replace("mul(s, g)", "mul(s, s)")))
        self.assertEqual(lines,
                         ["  def forward:", "-     y: f32[S, 8] = mul(s, g)", "+     y: f32[S, 8] = mul(s, s)"])
        self.assertEqual(diff(parse(GATE), parse(GATE + "\ndef f(x: f32):\n    return x\n")),
                         ["+ def f: 0 instructions"])


    @unittest.skipUnless(os.environ.get("TENON_TOOL"), "TENON_TOOL names no program")
    def test_the_tool_says_the_same(self):
        draw = seeded("diff")
        texts = random_programs(40, draw.randrange(10**6))
        pairs = [*zip(texts, texts[1:]), *((text, changed(text, draw)) for text in texts), (GATE, GATE)]
        equal = 0
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in ("a.tenon", "b.tenon")]
            for pair in pairs:
                if any(parse_all(text.encode())[1] for text in pair):
                    continue
                for path, text in zip(paths, pair):
                    path.write_text(text, "utf-8")
                lines = diff(*map(parse, pair))
                done = subprocess.run([os.environ["TENON_TOOL"], "diff", *paths], capture_output=True, text=True)
                self.assertEqual(done.stdout.splitlines(), lines, pair)
                self.assertEqual(done.returncode, 7 if lines else 0, done.stderr)
                equal += not lines
        self.assertGreater(equal, 1)


def changed(text, draw):
    """The text with a value renamed; mostly with two lines exchanged or an op replaced, too."""
    lines = text.split("\n")
    at = [i for i, line in enumerate(lines) if re.match(r"    \w+(: [^=]*)? = \w", line)]
    name = re.match(r" +(\w+)", lines[draw.choice(at)])[1]
    lines = [re.sub(rf"\b{name}\b", name + "_renamed", line) for line in lines]
    i = draw.choice(at)
    if draw.random() < 0.4 and i + 1 in at:
        lines[i], lines[i + 1] = lines[i + 1], lines[i]
    if draw.random() < 0.7:
        i = draw.choice(at)
        lines[i] = re.sub(r"= (relu|tanh|exp|neg|silu|gelu|abs)\(", "= sigmoid(", lines[i])
    return "\n".join(lines)


class Verify(unittest.TestCase):
    def test_a_program_that_was_changed(self):
        program = parse(GATE)
        program["forward"].body[1].operands = ["later"]
        with self.assertRaises(Error) as raised:
            verify(program)
        self.assertEqual(raised.exception.code, "BadReference")

    def test_types_are_filled_in(self):
        program = parse(GATE).check()
        self.assertIn("    g: f32[S, 8] = linear(x, w)\n", str(program))
        self.assertIn("    t: f32[S, 1] = sum(", str(program))


class Wrong(unittest.TestCase):
    def test_patterns_that_are_none(self):
        for text, make, code in (("relu(", lambda x: "x", "Syntax"), ("relu(x)", lambda y: "y", "BadReference"),
                                 ("relu(0)", lambda: "x", "Syntax"), ("\0", lambda: "x", "Syntax")):
            with self.assertRaises(Error) as raised:
                pattern(text)(make)
            self.assertEqual(raised.exception.code, code)

    def test_texts_are_read(self):
        text = HEADER + "def forward(x: f32[2]):\n    y = relu(x)\n    return y\n"
        made = rewrite(text, pattern("relu(x)")(lambda x: "clamp(x, min=0.0)"))
        self.assertIn("clamp(x, min=0.0)", str(made))
        self.assertTrue(diff(text, made))
        with self.assertRaises(Error):
            rewrite(text, pattern("relu(x)")(lambda x: "clamp(x"))

    def test_replacements_that_contain_their_pattern(self):
        text = HEADER + """
def forward(x: f32[2], w: f32[2]):
    a = relu(x)
    b = relu(a)
    c = mul(b, w)
    d = mul(c, w)
    return d
"""
        bounded = str(rewrite(text, pattern("relu(x)")(lambda x: "relu(clamp(x, max=3.0))"), check=False))
        self.assertEqual((bounded.count("relu("), bounded.count("clamp(")), (2, 2))
        swapped = str(rewrite(text, pattern("mul(x, y)")(lambda x, y: "mul(y, x)")))
        self.assertIn("mul(w, b)", swapped)
        merged = str(rewrite(text.replace("c = mul(b, w)", "c = relu(b)"), pattern("relu(relu(x))")(lambda x: "relu(x)")))
        self.assertEqual(merged.count("relu("), 1)  # of three: what was made is matched with others


if __name__ == "__main__":
    unittest.main()

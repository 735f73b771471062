"""Grammars and JSON schemas, beside llama.cpp's grammars, the `jsonschema` package and Python's expressions."""

import json
import os
import pathlib
import random
import re
import string
import unittest
import zlib

import jsonschema
import numpy as np

import tenon

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = pathlib.Path(os.environ.get("TENON_TEST_MODELS", "no-models"))
SMOLLM2 = next(iter(sorted(FOLDER.glob("*mol*.gguf"))), None)
SEED = int(os.environ.get("TENON_TEST_SEED", random.randrange(1 << 30)))
ROUNDS = int(os.environ.get("TENON_TEST_ROUNDS", 150))


def accepts(grammar, text):
    matcher = tenon.GrammarMatcher(grammar)
    return matcher.push(text) and matcher.may_end


def drawn_text(grammar, rng, characters, length=400):
    """A text of the grammar by random steps; None where it does not end in time."""
    matcher, text = tenon.GrammarMatcher(grammar), ""
    while len(text) < length:
        if matcher.may_end and (not matcher.may_continue or rng.random() < .2 or len(text) > length // 2):
            return text
        # What closes things comes first when the text is long.
        order = rng.sample(characters, len(characters))
        if len(text) > 60:
            order.sort(key=lambda c: c not in "\"}],")
        for character in order:
            if matcher.push(character):
                text += character
                break
        else:
            raise AssertionError(f"no character goes on behind {text!r} in\n{grammar.text}")
    return None


class Schemas:
    """Random schemas of the keywords that are implemented, and random values."""

    def __init__(self, rng):
        self.rng = rng

    def schema(self, depth=0):
        rng = self.rng
        kinds = ["null", "boolean", "integer", "number", "string", "enum", "any"]
        if depth < 3:
            kinds += ["object", "object", "array", "tuple", "anyOf", "types", "allOf", "ref"]
        return getattr(self, "_" + rng.choice(kinds))(depth)

    def _null(self, depth):
        return {"type": "null"}

    def _boolean(self, depth):
        return {"type": "boolean"}

    def _any(self, depth):
        return self.rng.choice([True, {}, {"title": "anything"}])

    def _bounds(self, keywords):
        rng, low = self.rng, self.rng.randint(-120, 120)
        high = low + rng.choice([1, 2, 3, 9, 10, 37, 1000, 12345])
        chosen = rng.choice(["none", "low", "high", "both"])
        bounds = {}
        if chosen in ("low", "both"):
            bounds[rng.choice(keywords[:2])] = low
        if chosen in ("high", "both"):
            bounds[rng.choice(keywords[2:])] = high
        if bounds.get("exclusiveMinimum") == low and bounds.get("exclusiveMaximum") == low + 1:
            del bounds["exclusiveMaximum"]  # between them lies no integer
        return bounds

    def _integer(self, depth):
        return {"type": "integer",
                **self._bounds(["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"])}

    def _number(self, depth):
        return {**self._integer(depth), "type": "number"}

    def _string(self, depth):
        rng = self.rng
        kind = rng.choice(["plain", "length", "format", "pattern"])
        if kind == "length":
            low = rng.randint(0, 4)
            return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 5)}
        if kind == "format":
            return {"type": "string", "format": rng.choice(["date", "uuid", "ipv4", "time", "date-time", "email"])}
        if kind == "pattern":
            return {"type": "string", "pattern": rng.choice([r"^[a-z]+$", r"\d{2,3}", r"^(ab|c)*x?$", r"^\w+-\S.$"])}
        return {"type": "string"}

    def _enum(self, depth):
        rng = self.rng
        values = rng.sample([1, -5, 2.5, "a", "b\"\\", "ü", None, True, [1, "x"], {"k": None}], rng.randint(1, 4))
        return {"const": values[0]} if rng.random() < .3 else {"enum": values}

    def _object(self, depth):
        rng = self.rng
        names = rng.sample(["a", "ab", "abc", "b", "x y", "ü\"", ""], rng.randint(0, 4))
        schema = {"type": "object", "properties": {name: self.schema(depth + 1) for name in names}}
        if names:
            schema["required"] = [name for name in names if rng.random() < .5]
        schema["additionalProperties"] = rng.choice([False, False, self.schema(depth + 1)])
        return schema

    def _array(self, depth):
        low = self.rng.randint(0, 2)
        schema = {"type": "array", "items": self.schema(depth + 1)}
        return {**schema, "minItems": low, "maxItems": low + self.rng.randint(0, 2)} if low else schema

    def _tuple(self, depth):
        items = [self.schema(depth + 1) for _ in range(self.rng.randint(1, 3))]
        more = self.rng.choice([False, self.schema(depth + 1)])
        return {"type": "array", "prefixItems": items, "items": more, "minItems": len(items)}

    def _anyOf(self, depth):
        return {"anyOf": [self.schema(depth + 1) for _ in range(self.rng.randint(1, 3))]}

    def _types(self, depth):
        return {"type": self.rng.sample(["null", "boolean", "string", "integer"], 2), "minimum": 3}

    def _allOf(self, depth):
        part = {"type": "object", "properties": {"p": {"type": "integer"}}, "required": ["p"],
                "additionalProperties": False}
        return {"allOf": [{"properties": {"p": {"minimum": self.rng.randint(-20, 20)}}}, part]}

    def _ref(self, depth):
        return {"$ref": self.rng.choice(["#/$defs/list", "#/$defs/word"])}

    def document(self):
        rest = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/list"}]}
        defs = {"list": {"type": "object", "properties": {"next": rest}, "required": ["next"],
                         "additionalProperties": False},
                "word": {"type": "string", "maxLength": 3}}
        schema = self.schema()
        return schema if isinstance(schema, bool) else {**schema, "$defs": defs}

    def value(self, depth=0):
        rng = self.rng
        kind = rng.randrange(9 if depth < 3 else 6)
        if kind == 0:
            return rng.choice([None, True, False])
        if kind in (1, 2):
            return rng.choice([rng.randint(-150, 150), rng.randint(-5, 5), (2 * rng.randint(-500, 500) + 1) / 8])
        if kind < 6:
            return rng.choice(["a", "b\"\\", "ü", "", "abc", "x-y!", "12", "2024-05-06", "ab" * rng.randint(0, 3)])
        if kind == 6:
            return [self.value(depth + 1) for _ in range(rng.randint(0, 3))]
        names = rng.sample(["a", "ab", "abc", "b", "x y", "ü\"", "", "p", "next", "k"], rng.randint(0, 3))
        return {name: self.value(depth + 1) for name in names}


class JsonSchemas(unittest.TestCase):
    characters = list('{}[]":,truefalsn0123456789-.E \n\\bcpxyküX/_@TZ+') + ["😀"]

    def test_texts_of_random_schemas_are_valid(self):
        print(f"TENON_TEST_SEED={SEED}")
        rng, checked = random.Random(SEED), 0
        for _ in range(ROUNDS):
            schema = Schemas(rng).document()
            grammar = tenon.Grammar.from_json_schema(schema)
            validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker(["ipv4"]))
            for _ in range(4):
                text = drawn_text(grammar, rng, self.characters)
                if text is None:
                    continue
                value = json.loads(text)
                self.assertTrue(validator.is_valid(value), (schema, text))
                checked += 1
        self.assertGreater(checked, ROUNDS)

    def test_what_a_schema_does_not_allow_is_refused(self):
        print(f"TENON_TEST_SEED={SEED}")
        rng, refused = random.Random(SEED), 0
        for _ in range(ROUNDS):
            schemas = Schemas(rng)
            schema = schemas.document()
            grammar = tenon.Grammar.from_json_schema(schema)
            validator = jsonschema.Draft202012Validator(schema)
            for _ in range(20):
                value = schemas.value()
                if not validator.is_valid(value):
                    text = json.dumps(value, ensure_ascii=rng.random() < .5)
                    self.assertFalse(accepts(grammar, text), (schema, text))
                    refused += 1
        self.assertGreater(refused, ROUNDS)

    def test_values_in_the_order_of_the_schema_are_accepted(self):
        print(f"TENON_TEST_SEED={SEED}")
        rng, accepted = random.Random(SEED), 0
        schema = {"type": "object", "additionalProperties": False, "properties": {
            "a": {"type": "integer"}, "b": {"type": ["string", "null"]}, "c": {"type": "array", "items": {}},
            "d": {"type": "number", "minimum": -50, "exclusiveMaximum": 77}, "e": {"enum": [1, "x", None]}}}
        for _ in range(ROUNDS):
            schema["required"] = [name for name in "abcde" if rng.random() < .4]
            grammar = tenon.Grammar.from_json_schema(schema)
            for _ in range(10):
                value = {name: Schemas(rng).value() if rng.random() < .5 else rng.choice([1, "x", None, [], 3.5])
                         for name in "abcde" if rng.random() < .7}
                text = json.dumps(value, separators=rng.choice([(",", ":"), (", ", ": ")]))
                valid = jsonschema.Draft202012Validator(schema).is_valid(value)
                self.assertEqual(accepts(grammar, text), valid, (schema, text))
                accepted += valid
        self.assertGreater(accepted, 0)

    def test_patterns_are_those_of_expressions(self):
        print(f"TENON_TEST_SEED={SEED}")
        rng = random.Random(SEED)
        atoms = ["a", "b", ".", r"\d", r"\w", r"\s", r"\S", "[ab]", "[^a]", "[a-c1-3]", r"\.", "(a|bc)", "(?:ab)",
                 r"\"", r"\\"]
        for _ in range(ROUNDS):
            pattern = "".join(rng.choice(atoms) + rng.choice(["", "", "*", "+", "?", "{2}", "{1,2}", "*?"])
                              for _ in range(rng.randint(1, 4)))
            pattern = rng.choice(["", "^"]) + pattern + rng.choice(["", "$"])
            if rng.random() < .2:
                pattern += "|^x$"
            grammar = tenon.Grammar.from_json_schema({"type": "string", "pattern": pattern})
            expression = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
            for _ in range(25):
                text = "".join(rng.choice('ab c1.3"\\x_') for _ in range(rng.randint(0, 6)))
                self.assertEqual(accepts(grammar, json.dumps(text)), bool(expression.search(text)), (pattern, text))

    def test_schemas_as_texts_keep_their_order(self):
        for schema in ({"properties": {"z": {}, "a": {}}, "required": ["z", "a"]},):
            for form in (schema, json.dumps(schema)):
                grammar = tenon.Grammar.from_json_schema(form)
                self.assertTrue(accepts(grammar, '{"z":1,"a":2}'))
                self.assertFalse(accepts(grammar, '{"a":1,"z":2}'))
        with self.assertRaises(tenon.Error) as raised:
            tenon.Grammar.from_json_schema({"not": {}})
        self.assertEqual(raised.exception.code, "Unsupported")


class Grammars(unittest.TestCase):
    def test_random_grammars_are_those_of_expressions(self):
        print(f"TENON_TEST_SEED={SEED}")
        rng = random.Random(SEED)

        def part(depth):  # as GBNF, and as an expression of Python's
            kind = rng.randrange(4 if depth < 2 else 2)  # Python's time is exponential in the depth
            if kind == 0:
                text = "".join(rng.choice("abü") for _ in range(rng.randint(0, 2)))
                return f'"{text}"', f"(?:{text})"
            if kind == 1:
                chosen = rng.choice(["[ab]", "[^a]", "[a-bü]", "."])
                return chosen, "[\\s\\S]" if chosen == "." else chosen
            parts = [part(depth + 1) for _ in range(rng.randint(1, 3))]
            join = " " if kind == 2 else " | "
            gbnf, regex = join.join(p[0] for p in parts), ("" if kind == 2 else "|").join(p[1] for p in parts)
            repetition = rng.choice(["", "*", "+", "?", "{2}", "{1,3}", "{2,}"])
            return f"({gbnf}){repetition}", f"(?:{regex}){repetition}"

        for _ in range(ROUNDS):
            gbnf, regex = part(0)
            grammar, expression = tenon.Grammar.parse("root ::= " + gbnf), re.compile(regex)
            for _ in range(25):
                text = "".join(rng.choice("aaabbü😀") for _ in range(rng.randint(0, 6)))
                self.assertEqual(accepts(grammar, text), bool(expression.fullmatch(text)), (gbnf, text))

    def test_bytes_and_wrong_use(self):
        matcher = tenon.GrammarMatcher(tenon.Grammar.parse('root ::= "é" "!"?'))
        self.assertTrue(matcher.push(b"\xc3"))
        self.assertFalse(matcher.may_end)
        self.assertTrue(matcher.push(b"\xa9"))
        self.assertTrue(matcher.may_end and matcher.may_continue)
        with self.assertRaises(tenon.Error):
            matcher.push(3)
        with self.assertRaises(tenon.Error) as raised:
            tenon.Grammar.parse("root ::= x")
        self.assertEqual(raised.exception.code, "BadReference")

    @unittest.skipUnless(SMOLLM2, "TENON_TEST_MODELS has no SmolLM2")
    def test_allows_the_tokens_that_llama_cpp_allows(self):
        recorded = json.loads((ROOT / "tests/text/data/grammar_tokens.json").read_text(encoding="utf-8"))
        tokenizer = tenon.LanguageModel(SMOLLM2, context=64).tokenizer
        self.assertEqual(len(tokenizer), recorded["tokens"])
        ends = np.array([tokenizer.is_eog(token) for token in range(len(tokenizer))])
        nul = np.array([tokenizer.piece(token).startswith(b"\0") for token in range(len(tokenizer))])
        for text in recorded["texts"]:
            constraint = tenon.TokenConstraint(tenon.Grammar.parse(text["grammar"]), tokenizer)
            for i, (want, may_end) in enumerate(text["allowed"]):
                allowed = constraint.allowed()[:len(ends)]
                ids = np.nonzero(allowed & ~ends & ~nul)[0].astype("<i4")
                self.assertEqual(zlib.crc32(ids.tobytes()), want, (text, i))
                self.assertEqual((allowed & ends).any(), may_end, (text, i))
                if i < len(text["tokens"]):
                    constraint.push(text["tokens"][i])


@unittest.skipUnless(SMOLLM2, "TENON_TEST_MODELS has no SmolLM2")
class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = tenon.LanguageModel(SMOLLM2, context=512)

    def test_answers_are_what_the_schema_allows(self):
        schema = {"type": "object", "required": ["name", "age", "tags"], "additionalProperties": False, "properties": {
            "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1, "maximum": 30},
            "tags": {"type": "array", "items": {"enum": ["tame", "wild"]}, "maxItems": 2}}}
        for options in ({"temperature": 0}, {"temperature": 1.5, "seed": 3}, {"temperature": 1, "top_k": 3, "seed": 4}):
            result = self.model.chat("Describe a cat in JSON.", json_schema=schema, **options)
            self.assertEqual(result.end, "grammar")
            jsonschema.validate(json.loads(result.text), schema)

    def test_grammars_in_every_form(self):
        gbnf = 'root ::= "yes" | "no"'
        for grammar in (gbnf, tenon.Grammar.parse(gbnf)):
            result = self.model.chat("Is the sky blue?", grammar=grammar, temperature=0)
            self.assertIn(result.text, ("yes", "no"))
        pieces = list(self.model.stream("The sky is", grammar=gbnf, temperature=0))
        self.assertIn("".join(pieces), ("yes", "no"))
        with self.assertRaises(tenon.Error):
            self.model.generate("x", grammar=gbnf, json_schema={})
        with self.assertRaises(tenon.Error):
            self.model.generate("x", grammar=gbnf, sample_on_device=True)


if __name__ == "__main__":
    unittest.main()

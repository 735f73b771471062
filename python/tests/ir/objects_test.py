"""Objects as values: the library's classes, and one's own."""
import copy
import unittest

import numpy as np

from support import HEADER, seeded
from tenon import ir
from tenon.ir import Error, add_object, add_op, call, parse
from tenon.ir.objects import Generator, KvCache


class Ledger:
    def __init__(self, *entries):
        self.entries = list(entries)

    def __eq__(self, other):
        return self.entries == other.entries


class Rates:
    def __init__(self, *rates):
        self.rates = rates


def setUpModule():
    add_object(Ledger, linear=True)
    add_object(Rates, load=lambda data: Rates(*data))
    add_op("book", lambda ledger, x: ledger.entries.append(int(x)), operands=2, updates=0, takes_objects=True)
    add_op("replaced", lambda ledger: Ledger(len(ledger.entries)), updates=0, takes_objects=True)
    add_op("balance", lambda ledger: np.int64(sum(ledger.entries)), infer=lambda _: "i64", takes_objects=True)
    add_op("rate", lambda rates, i: np.int64(rates.rates[i]), infer=lambda *_: "i64", operands=2, takes_objects=True)


LOOP = HEADER + '''
def each(a: Ledger, b: Ledger, i: i64, s: Scope):
    c = book(a, i)
    return b, c

def forward(a: Ledger, b: Ledger):
    r: Rates = const("rates")
    x = balance(a)
    y = rate(r, x)
    a1 = book(a, y)
    c0 = pack(a1, b)
    s0 = scope("s")
    c1 = repeat(each, 3, c0, s0)
    a2 = item(c1, 0)
    b2 = item(c1, 1)
    a3 = replaced(a2)
    return a3, b2, y
'''


class Objects(unittest.TestCase):
    def refused(self, code, text, part=""):
        with self.assertRaises(Error) as caught:
            parse(text)
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertIn(part, str(caught.exception))

    def test_classes_of_ones_own(self):
        program = parse(LOOP)
        self.assertEqual(str(program), LOOP)
        given = [Ledger(1), Ledger(7)]
        a, b, y = program.run(given, {"rates": np.array([10, 20, 30], np.uint8)})
        self.assertEqual((a.data.entries, b.data.entries, int(y.data)), ([2], [1, 20, 0, 2], 20))
        self.assertEqual([one.entries for one in given], [[1], [7]])  # as they were
        again = program.run(given, {"rates": Rates(10, 20)})
        self.assertEqual(again[1].data, b.data)
        self.assertEqual(int(call("balance", Ledger(3, 4)).data), 7)
        self.assertIn("Ledger", repr(a))

    def test_what_is_refused(self):
        self.refused("Alias", LOOP.replace("a3 = replaced(a2)", "a3 = replaced(a1)"), "use an item of 'c1'")
        self.refused("Alias", LOOP.replace("return a3, b2, y", "return a3, a3, y"), "returned twice")
        self.refused("Alias", LOOP.replace("pack(a1, b)", "pack(a1, a1)"), "one object twice")
        self.refused("Alias", LOOP.replace("r: Rates", "r: Ledger"), "which changes")
        self.refused("BadType", LOOP.replace("b: Ledger, i", "b: Tensor, i"), "must declare")
        self.refused("BadType", LOOP.replace("b: Ledger, i", "b: Nothing, i"))
        self.refused("Syntax", LOOP.replace("b: Ledger, i", "b: Ledger[2], i"))
        self.refused("UnsupportedDType", LOOP.replace("balance(a)", "neg(a)"), "takes no Ledger")
        self.refused("UnsupportedDType", LOOP.replace("x = balance(a)", "x = replaced(r)"), "never change")
        program = parse(LOOP)
        for code, inputs, weights in (("ShapeMismatch", [Rates(), Ledger()], {"rates": Rates(1)}),
                                      ("BadType", [3, Ledger()], {"rates": Rates(1)}),
                                      ("BadType", [Ledger(), Ledger()], {"rates": np.zeros(3)})):
            with self.assertRaises(Error) as caught:
                program.run(inputs, weights)
            self.assertEqual(caught.exception.code, code)
        with self.assertRaises(Error):
            ir.random_inputs(program)
        for name in ("Scope", "Generator", "f32", "lower", "No Name", "Tensor"):
            with self.assertRaises(Error):
                add_object(Rates, name)

    def test_generator_is_numpys(self):
        rng = seeded("generator")
        for _ in range(5):
            seed, count = rng.randrange(2**32), rng.randrange(1, 700)
            generator = Generator(seed)
            first = call("generator_uniform", generator, dims=[count], dtype="f64")
            np.testing.assert_array_equal(first.data, np.random.RandomState(seed).random_sample(count))
            after = call("generator_skip", generator, dims=[count], dtype="f64").data
            state = np.random.RandomState(seed)
            state.random_sample(count)
            np.testing.assert_array_equal(call("generator_uniform", after, dims=[2, 3], dtype="f64").data,
                                          state.random_sample((2, 3)))
            self.assertEqual(Generator.load(after.save()).save(), after.save())
        with self.assertRaises(Error):
            Generator.load(b"1 2 3\n")

    def test_cache_attends_as_the_op_does(self):
        rng = np.random.default_rng(seeded("cache").randrange(2**32))
        cache, keys, values = KvCache(2), np.zeros((2, 0, 3, 4), np.float32), np.zeros((2, 0, 3, 5), np.float32)
        for steps in (3, 1, 2):
            k, v = rng.normal(size=(2, steps, 3, 4)), rng.normal(size=(2, steps, 3, 5))
            keys, values = np.float32(np.concatenate([keys, k], 1)), np.float32(np.concatenate([values, v], 1))
            q = np.float32(rng.normal(size=(2, steps, 6, 4)))
            cache = call("kv_append", cache, np.int64(1), np.float32(k), np.float32(v)).data
            got = call("kv_attention", cache, np.int64(1), q, value_size=5)
            want = call("attention", q, keys, values, causal=True)
            np.testing.assert_allclose(got.data, want.data, rtol=1e-5, atol=1e-6)
            self.assertEqual(int(call("kv_length", cache, np.int64(1)).data), keys.shape[1])
            self.assertEqual(int(call("kv_length", cache, np.int64(0)).data), 0)
        saved = cache.save()
        self.assertEqual(KvCache.load(saved).save(), saved)
        for damaged in (b"", saved[:-1], saved + b"x", saved[:8] + b"\xff" * 8 + saved[16:]):
            with self.assertRaises(Error):
                KvCache.load(damaged)
        with self.assertRaises(Error):
            call("kv_append", copy.deepcopy(cache), np.int64(1), np.zeros((2, 1, 4, 4), np.float32),
                 np.zeros((2, 1, 4, 5), np.float32))


if __name__ == "__main__":
    unittest.main()

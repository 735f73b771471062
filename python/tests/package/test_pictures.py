"""What notebooks show."""

import unittest
import xml.etree.ElementTree as xml

import numpy as np

import tenon
from tenon import ops


def cells(array):
    """The texts of a table's cells, row by row."""
    picture = xml.fromstring(f"<p>{array._repr_html_()}</p>")
    return picture.find("code").text, [[cell.text for cell in row] for row in picture.iter("tr")]


class Pictures(unittest.TestCase):
    def test_arrays(self):
        self.assertEqual(cells(tenon.array(np.array([[1.5, -2], [3, np.nan]], "f4"))),
                         ("f32[2, 2]", [["1.5", "-2"], ["3", "nan"]]))
        self.assertEqual(cells(tenon.array(3)), ("i64[]", [["3"]]))
        self.assertEqual(cells(tenon.array([True, False])), ("bool[2]", [["True", "False"]]))
        self.assertEqual(cells(tenon.array([1.0, np.inf]).astype("bf16"))[1], [["1", "inf"]])
        self.assertEqual(cells(tenon.array(np.ones((1, 32), "f4")).astype("q8_0"))[0], "q8_0[1, 32]")
        title, table = cells(tenon.array(np.arange(2 * 3 * 2).reshape(2, 3, 2)))
        self.assertEqual((title, table), ("i64[2, 3, 2], at [0]", [["0", "1"], ["2", "3"], ["4", "5"]]))
        for shape in ((0,), (0, 3), (3, 0), (2, 0, 3)):
            self.assertEqual(sum(len(row) for row in cells(ops.zeros(shape))[1]), 0, shape)
        big = cells(tenon.array(np.arange(10**6, dtype="f4").reshape(1000, 1000)))[1]
        self.assertEqual((len(big), len(big[0]), big[6][0], big[-1][-1]), (13, 13, "...", "1e+06"))

    def test_programs(self):
        program = tenon.export(lambda x: ops.softmax(x * 2.0), x="f32[B, 2]")
        for text in (program.to_svg(), program._repr_svg_()):
            texts = [one.text for one in xml.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
            self.assertIn("softmax0 = softmax : f32[B, 2]", texts)
        self.assertIn("digraph", program.to_dot())
        odd = tenon.export(lambda x: x + tenon.build.weight("<a\x01&\"'>", "f32[2]"), x="f32[2]")
        xml.fromstring(odd.to_svg())

    def test_profiles(self):
        program = tenon.export(lambda x: (x @ x).tanh(), x="f32[N, N]")
        session = tenon.Session(program)
        session.forward(np.ones((4, 4), "f4"))
        with self.assertRaises(tenon.Error) as raised:
            tenon.Profile(session)
        self.assertEqual(raised.exception.code, "CallOrder")
        session = tenon.Session(program)
        session.enable_time_profile()
        session.forward(np.ones((64, 64), "f4"))
        profile = tenon.Profile(session)
        self.assertIn("matmul", {op for op, _, _ in profile.ops})
        self.assertEqual(str(profile), session.profile_table())
        picture = xml.fromstring(profile._repr_svg_())
        self.assertEqual(len(list(picture.iter("{http://www.w3.org/2000/svg}rect"))), len(profile.ops))
        self.assertRegex(repr(profile), r"Profile: [\d.]+ ms in \d+ ops")


if __name__ == "__main__":
    unittest.main()

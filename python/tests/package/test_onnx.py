"""tenon.onnx: node tests of the package `onnx`, networks against ONNX Runtime, control flow, files, errors, export."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy as np

import tenon
from tenon import ops

try:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    import tenon.onnx
except ImportError as error:
    raise unittest.SkipTest(str(error)) from None

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "onnx_suite"))
import networks  # noqa: E402
import node_suite  # noqa: E402
import random_nodes  # noqa: E402


def one_node(op, inputs, domain="", **attributes):
    """A model of one op, and its inputs by name."""
    helper = onnx.helper
    given = {f"x{i}": one for i, one in enumerate(inputs)}
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
              for name, one in given.items()]
    node = helper.make_node(op, list(given), ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", 1, None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), given


def by_runtime(model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Without VNNI its products of u8 and i8 saturate pairs of products at 16 bits otherwise.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def graph_model(nodes, inputs, outputs, initializers=(), opset=17, **options):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **options)


def info(name, sizes, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, sizes)


class NodeTests(unittest.TestCase):
    def test_none_is_wrong(self):
        warnings.simplefilter("ignore")
        results = {case.name: node_suite.run(case) for case in node_suite.load_model_tests(kind="node")}
        bad = {name: detail for name, (outcome, detail, _) in results.items() if outcome in ("wrong", "crashed")}
        self.assertEqual(bad, {})
        ours = [outcome for outcome, *_ in results.values() if outcome != "other types"]
        self.assertGreater(ours.count("passed"), 0.95 * len(ours))


    def test_random_nodes(self):
        for seed in range(1, 500):
            op, model, inputs = random_nodes.case(seed)
            word, detail = random_nodes.outcome(model, inputs)
            self.assertNotIn(word, ("wrong", "crashed"), f"seed {seed}: {op}: {detail}")
            if seed % 2:
                word, detail = random_nodes.outcome(model, inputs, is_open=True)
                self.assertNotIn(word, ("wrong", "crashed"), f"seed {seed}, open sizes: {op}: {detail}")


class Networks(unittest.TestCase):
    def near(self, got, wanted, name, tolerance=1e-4):
        self.assertEqual(len(got), len(wanted))
        for a, b in zip(got, wanted):
            self.assertEqual(a.shape, b.shape, name)
            self.assertLess(np.abs(a - b).max(initial=0), tolerance * max(np.abs(b).max(initial=0), 1), name)

    def test_equal_onnx_runtime(self):
        for name, make in networks.NETWORKS.items():
            model, sizes = make()
            inputs = networks.inputs_of(sizes)
            step = 0.0501 if name == "qdq" else 1e-4  # of codes: one
            self.near(tenon.onnx.Model(model).run(inputs), by_runtime(model, inputs), name, step)

    def test_one_import_for_several_sizes(self):
        others = {"resnet": {"x": (1, 3, 32, 32)}, "mobilenet": {"x": (3, 3, 64, 50)}, "unet": {"x": (2, 2, 44, 32)},
                  "bert": {"ids": (1, 20), "mask": (1, 20)}, "lstm": {"ids": (12, 1)}, "vocoder": {"mel": (2, 10, 30)},
                  "gpt2": {"ids": (1, 1), "past_k": (1, 4, 0, 8), "past_v": (1, 4, 0, 8)}}
        for name, sizes in others.items():
            model, first = networks.NETWORKS[name]()
            session = tenon.Session(tenon.onnx.load(model))
            for one in (first, sizes):
                inputs = networks.inputs_of(one)
                got = [value.numpy() for value in session.forward(**inputs)]
                self.near(got, by_runtime(model, inputs), name)

    def test_other_opsets(self):
        for name, opsets in {"resnet": (9, 11, 22), "bert": (10, 13, 17), "unet": (11, 18), "qdq": (19, 22)}.items():
            for opset in opsets:
                model, sizes = networks.NETWORKS[name](opset)
                inputs = networks.inputs_of(sizes)
                self.near(tenon.onnx.Model(model).run(inputs), by_runtime(model, inputs), f"{name} {opset}",
                          0.0501 if name == "qdq" else 1e-4)

    def test_in_half(self):
        for name in ("mobilenet", "unet", "gpt2", "vocoder"):
            model, sizes = networks.NETWORKS[name]()
            inputs = networks.inputs_of(sizes)
            halves = {key: one.astype("f2") if one.dtype == "f4" else one for key, one in inputs.items()}
            got = tenon.onnx.Model(networks.in_half(model)).run(halves)
            self.assertTrue(all(one.dtype == np.float16 for one in got))
            self.near([one.astype("f4") for one in got], by_runtime(model, inputs), name, 0.02)

    def test_exported_again(self):
        for name in ("resnet", "mobilenet", "unet", "bert", "gpt2", "lstm", "vocoder"):
            model, sizes = networks.NETWORKS[name]()
            program = tenon.onnx.load(model)
            inputs = networks.inputs_of(sizes)
            names = [parameter for parameter, _ in program.parameters()]
            self.assertEqual(names, list(inputs))
            if name == "lstm":  # loops are written out for sizes that are known
                program = tenon.onnx.load(model, shapes={"batch": 3})
            got = by_runtime(tenon.onnx.to_model(program), inputs)
            self.near(got, by_runtime(model, inputs), name)


class Control(unittest.TestCase):
    def check(self, model, *inputs):
        read = tenon.onnx.Model(model)
        for one in inputs:
            for got, want in zip(read.run(one), by_runtime(model, one), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        return read

    def test_if_by_a_value(self):
        yes = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["a"])], "yes", [], [info("a", [3])])
        no = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "no", [], [info("b", [3])])
        nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
                 helper.make_node("Greater", ["s", "zero"], ["c"]),
                 helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)]
        constants = [numpy_helper.from_array(np.float32(v), k) for k, v in (("two", 2), ("zero", 0))]
        model = graph_model(nodes, [info("x", [3])], [info("y", [3])], constants)
        x = np.array([1, 2, 3], np.float32)
        read = self.check(model, {"x": x}, {"x": -x})
        self.assertEqual(read.fixed, set())

    def loop(self, limit, gathered):
        body = [helper.make_node("Mul", ["v", "half"], ["w"]), helper.make_node("Identity", ["w"], ["w2"]),
                helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
                helper.make_node("Greater", ["s", "one"], ["on_after"]) if not gathered else
                helper.make_node("Identity", ["on"], ["on_after"])]
        outputs = [info("on_after", [], TensorProto.BOOL), info("w", [2])] + [info("w2", [2])] * gathered
        constants = [numpy_helper.from_array(np.float32(v), k) for k, v in (("half", 0.5), ("one", 1))]
        graph = helper.make_graph(body, "body", [info("i", [], TensorProto.INT64), info("on", [], TensorProto.BOOL),
                                                 info("v", [2])], outputs, constants)
        node = helper.make_node("Loop", ["n", "", "x"], ["y"] + ["all"] * gathered, body=graph)
        results = [info("y", [2])] + [info("all", [None, 2])] * gathered
        return graph_model([node], [info("n", [], TensorProto.INT64), info("x", [2])], results)

    def test_loop_that_its_values_end(self):
        x = np.array([100, 3], np.float32)
        read = self.check(self.loop(0, 0), *({"n": np.array(n), "x": x} for n in (0, 3, 100)))
        self.assertEqual(read.fixed, set())

    def test_loop_that_gathers(self):
        x = np.array([100, 3], np.float32)
        read = self.check(self.loop(0, 1), *({"n": np.array(n), "x": x} for n in (0, 3, 5)))
        self.assertEqual(read.fixed, {"n"})

    def test_loops_of_many_steps(self):
        """More than are written out: a loop of the program."""
        body = helper.make_graph(
            [helper.make_node("Mul", ["v", "h"], ["w"]), helper.make_node("Identity", ["on"], ["on_after"])], "body",
            [info("i", [], TensorProto.INT64), info("on", [], TensorProto.BOOL), info("v", [2])],
            [info("on_after", [], TensorProto.BOOL), info("w", [2])], [numpy_helper.from_array(np.float32(0.9999), "h")])
        node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
        for count in (5000, 2**40, 2**20 + 1):
            model = graph_model([node], [info("x", [2])], [info("y", [2])], [numpy_helper.from_array(np.array(count), "n")])
            if count == 5000:
                self.check(model, {"x": np.array([100, 3], np.float32)})
            if count == 2**20 + 1:
                self.assertRaisesRegex(tenon.UnsupportedError, "more than 1048576 iter", tenon.onnx.load, model)
            else:
                self.assertIn("condition=0", str(tenon.onnx.load(model)))

    def test_maps_of_sequences(self):
        parts = [helper.make_node("SequenceConstruct", ["e", "k"], ["both"]),
                 helper.make_node("ConcatFromSequence", ["both"], ["o"], axis=0), helper.make_node("Neg", ["e"], ["p"])]
        body = helper.make_graph(parts, "body", [info("e", [2]), info("k", [2])], [info("o", [4]), info("p", [2])])
        nodes = [helper.make_node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0),
                 helper.make_node("SequenceMap", ["s", "k"], ["t", "u"], body=body)]
        nodes += [helper.make_node("ConcatFromSequence", [one], [made], axis=0, new_axis=1) for one, made in ("ty", "uz")]
        model = graph_model(nodes, [info("x", [3, 2]), info("k", [2])], [info("y", [3, 4]), info("z", [3, 2])])
        self.check(model, {"x": np.arange(6, dtype="f").reshape(3, 2), "k": np.array([7, 8], "f")})

    def test_scan(self):
        nodes = [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Mul", ["t", "e"], ["o"])]
        body = helper.make_graph(nodes, "body", [info("s", [2]), info("e", [2])], [info("t", [2]), info("o", [2])])
        for steps in (1, 5, 40):
            node = helper.make_node("Scan", ["s0", "x"], ["last", "all"], body=body, num_scan_inputs=1,
                                    scan_input_directions=[1], scan_output_axes=[1])
            model = graph_model([node], [info("s0", [2]), info("x", [steps, 2])],
                                [info("last", [2]), info("all", [2, steps])])
            rng = np.random.default_rng(steps)
            self.check(model, {"s0": rng.random(2, np.float32), "x": rng.random((steps, 2), np.float32)})

    def test_functions_of_the_model(self):
        function = helper.make_function("own", "twice", ["a"], ["b"], [
            helper.make_node("Constant", [], ["k"]), helper.make_node("Mul", ["a", "k"], ["b"])],
            [helper.make_opsetid("", 17)], ["by"])
        attribute = function.node[0].attribute.add()
        attribute.name, attribute.ref_attr_name, attribute.type = "value_float", "by", onnx.AttributeProto.FLOAT
        node = helper.make_node("twice", ["x"], ["y"], domain="own", by=3.0)
        model = graph_model([node], [info("x", ["N"])], [info("y", ["N"])], functions=[function])
        model.opset_import.append(helper.make_opsetid("own", 1))
        [y] = tenon.onnx.Model(model).run([np.arange(4, dtype=np.float32)])
        np.testing.assert_array_equal(y, [0, 3, 6, 9])


class Calls(unittest.TestCase):
    def reshape(self):
        return graph_model([helper.make_node("Reshape", ["x", "shape"], ["my.y"])],
                           [info("x", ["a", "b"]), info("shape", [2], TensorProto.INT64)], [info("my.y", None)])

    def test_values_that_are_needed(self):
        with self.assertRaisesRegex(tenon.UnsupportedError, "Reshape: the shape .* values={'shape'"):
            tenon.onnx.load(self.reshape())
        program = tenon.onnx.load(self.reshape(), values={"shape": np.array([-1, 2])})
        self.assertEqual(str(program.parameters()), "[('x', f32[a, b])]")
        self.assertEqual([name for name, _ in program.results()], ["my_y"])
        [y] = tenon.Session(program).forward(np.zeros((3, 4), "f"))
        self.assertEqual(y.shape, (6, 2))
        read = tenon.onnx.Model(self.reshape())
        for shape in ([12, 1], [-1, 6]):
            [y] = read.run({"x": np.zeros((3, 4), "f"), "shape": np.array(shape)})
            self.assertEqual(y.shape, np.zeros((3, 4)).reshape(shape).shape)

    def test_backward_slices_of_open_sizes(self):
        def model(start):
            numbers = {"s": start, "e": -2**63, "a": 0, "t": -2}
            constants = [numpy_helper.from_array(np.array([one]), name) for name, one in numbers.items()]
            node = helper.make_node("Slice", ["x", *numbers], ["y"])
            return graph_model([node], [info("x", ["N"])], [info("y", None)], constants)

        session = tenon.Session(tenon.onnx.load(model(-1)))
        for size in (0, 1, 2, 5):
            x = np.arange(size, dtype=np.float32)
            np.testing.assert_array_equal(session.forward(x)[0].numpy(), x[::-2])
        with self.assertRaisesRegex(tenon.UnsupportedError, "backwards from -5"):  # of 4 elements: the first
            tenon.onnx.load(model(-5))
        [y] = tenon.onnx.Model(model(-5)).run([np.arange(4, dtype=np.float32)])
        np.testing.assert_array_equal(y, [0])

    def test_slices_of_lists_of_sizes(self):
        for begin, end, step in ((-3, -2**63, -2), (5, 0, -1), (0, 1, 1), (-9, 9, 2), (1, -9, -1)):
            constants = [numpy_helper.from_array(np.array([one]), name) for name, one in
                         {"b": begin, "e": end, "a": 0, "t": step}.items()]
            nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Slice", ["s", "b", "e", "a", "t"], ["y"])]
            model = graph_model(nodes, [info("x", ["N", "M"])], [info("y", None, TensorProto.INT64)], constants)
            x = np.zeros((2, 3), "f")
            [y] = tenon.Session(tenon.onnx.load(model)).forward(x)
            np.testing.assert_array_equal(y.numpy(), by_runtime(model, {"x": x})[0])

    def test_slices_of_open_sizes_to_the_greatest_integer(self):
        """2^31 - 1 and -2^31 are how TensorFlow's models write an axis's end."""
        far = 2**31 - 1
        for begin, end, step in ((1, far, 1), (0, far, 2), (1, far, 3), (-far - 1, 2**63 - 1, 1), (-1, -far - 1, -1),
                                 (far, -far - 1, -2), (1, 3, -1), (-2, -3, 2), (2, 1, 1)):
            with self.subTest(begin=begin, end=end, step=step):
                constants = [numpy_helper.from_array(np.array([one]), name) for name, one in
                             {"s": begin, "e": end, "a": 0, "t": step}.items()]
                node = helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])
                session = tenon.Session(tenon.onnx.load(
                    graph_model([node], [info("x", ["N", 2])], [info("y", None)], constants)))
                for size in (3, 4, 7):
                    x = np.arange(2 * size, dtype=np.float32).reshape(size, 2)
                    np.testing.assert_array_equal(session.forward(x)[0].numpy(), x[begin:end:step])

    def test_names_of_sizes_stay_apart(self):
        names = {"x": ["a.b"], "y": ["a_b"], "z": [None], "w": ["z_0"], "v": ["_1"]}
        node = helper.make_node("Concat", list(names), ["r"], axis=0)
        program = tenon.onnx.load(graph_model([node], [info(*one) for one in names.items()], [info("r", None)]))
        inputs = [np.full(i, i, "f") for i in range(1, 6)]
        [r] = tenon.Session(program).forward(*inputs)
        np.testing.assert_array_equal(r.numpy(), np.concatenate(inputs))

    def test_pads_that_go_round_more_than_once(self):
        for pads in ([3, 3], [4, 0], [7, 2], [0, 9], [-1, 5]):
            node = helper.make_node("Pad", ["x", "p", "", "a"], ["y"], mode="wrap")
            constants = [numpy_helper.from_array(np.array(one), name) for name, one in (("p", pads), ("a", [1]))]
            model = graph_model([node], [info("x", [2, 3])], [info("y", None)], constants, opset=19)
            inputs = {"x": np.arange(6, dtype="f").reshape(2, 3)}
            np.testing.assert_array_equal(tenon.onnx.Model(model).run(inputs)[0], by_runtime(model, inputs)[0])

    def test_pads_that_cut_off_more_than_there_is(self):
        for size, pads in ((1, [2, -3]), (0, [-1, 2]), (2, [5, -3]), (2, [-3, 5]), (3, [-1, -1]), (2, [-2, 3])):
            node = helper.make_node("Pad", ["x", "p", "v"], ["y"])
            model = graph_model([node], [info("x", [size])], [info("y", None)], [
                numpy_helper.from_array(np.array(pads), "p"), numpy_helper.from_array(np.float32(7), "v")])
            inputs = {"x": np.arange(size, dtype="f")}
            np.testing.assert_array_equal(tenon.onnx.Model(model).run(inputs)[0], by_runtime(model, inputs)[0])

    def test_hardmax_of_nothing(self):
        model, inputs = one_node("Hardmax", [np.zeros((0, 2), "f")], axis=0)
        self.assertEqual(tenon.onnx.Model(model).run(inputs)[0].shape, by_runtime(model, inputs)[0].shape)

    def test_bounds_of_64_bits_without_a_sign(self):
        x, low, high = (np.array(one, np.uint64) for one in ([0, 5, 2**63 + 5], 2, 2**63 + 1))
        model, inputs = one_node("Clip", [x, low, high])
        del model.graph.input[1:]
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT64
        model.graph.initializer.extend(numpy_helper.from_array(one, name) for one, name in ((low, "x1"), (high, "x2")))
        self.assertEqual(tenon.onnx.Model(model).run([x])[0].tolist(), by_runtime(model, {"x0": x})[0].tolist())

    def test_masks_of_dropout(self):
        for opset in (7, 10, 12, 13):
            node = helper.make_node("Dropout", ["x"], ["y", "m"])
            model = graph_model([node], [info("x", [2])], [info("y", [2]), helper.make_empty_tensor_value_info("m")],
                                opset=opset)
            inputs = {"x": np.ones(2, "f")}
            for got, want in zip(tenon.onnx.Model(model).run(inputs), by_runtime(model, inputs), strict=True):
                self.assertEqual(got.dtype, want.dtype)
                np.testing.assert_array_equal(got, want)

    def test_images_whose_open_axes_keep_their_size(self):
        for scales, mode in (((1, 1, 2, 1), "linear"), ((1, 1, 1, 1), "cubic"), ((1, 1, 1, 1), "linear")):
            with self.subTest(scales=scales, mode=mode):
                node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
                model = graph_model([node], [info("x", ["N", 2, 3, "W"])], [info("y", None)],
                                    [numpy_helper.from_array(np.array(scales, np.float32), "s")])
                x = np.random.default_rng(1).standard_normal((2, 2, 3, 5)).astype("f")
                [y] = tenon.Session(tenon.onnx.load(model)).forward(x)
                np.testing.assert_allclose(y.numpy(), tenon.onnx.Model(model).run([x])[0], rtol=1e-5, atol=1e-6)
                self.assertEqual(y.shape, (2, 2, 3 * scales[2], 5))

    def test_models_say_what_they_take(self):
        model = graph_model([helper.make_node("Relu", ["x"], ["y"])], [info("x", ["N", 2])], [info("y", None)], [])
        self.assertEqual(repr(tenon.onnx.Model(model)), f"Model {model.graph.name!r}: (x: f32[N, 2]) -> y")
        with self.assertRaisesRegex(TypeError, "treads"):
            tenon.onnx.Model(model, treads=1)

    def test_quotients_of_sizes_are_cut_off(self):
        nodes = [helper.make_node("Shape", ["x"], ["sizes"]),
                 helper.make_node("Concat", ["sizes", "rest"], ["all"], axis=0),
                 helper.make_node("Div", ["all", "two"], ["y"])]
        numbers = {"rest": [-1, -3, 3], "two": [2]}
        constants = [numpy_helper.from_array(np.array(one), name) for name, one in numbers.items()]
        model = graph_model(nodes, [info("x", ["N", 6])], [info("y", None, TensorProto.INT64)], constants)
        [y] = tenon.Session(tenon.onnx.load(model)).forward(np.zeros((5, 6), "f"))
        np.testing.assert_array_equal(y.numpy(), [2, 3, 0, -1, 1])

    def test_quotients_of_negative_sizes_are_cut_off(self):
        nodes = [helper.make_node("Shape", ["x"], ["sizes"]), helper.make_node("Mul", ["sizes", "minus"], ["below"]),
                 helper.make_node("Div", ["below", "two"], ["a"]), helper.make_node("Div", ["sizes", "minus_two"], ["b"]),
                 helper.make_node("Div", ["below", "minus_two"], ["c"]),
                 helper.make_node("Concat", ["a", "b", "c"], ["y"], axis=0)]
        numbers = {"minus": -1, "two": 2, "minus_two": -2}
        constants = [numpy_helper.from_array(np.array([one]), name) for name, one in numbers.items()]
        model = graph_model(nodes, [info("x", ["N"])], [info("y", None, TensorProto.INT64)], constants)
        session = tenon.Session(tenon.onnx.load(model))
        for size in (5, 6):
            x = np.zeros(size, "f")
            np.testing.assert_array_equal(session.forward(x)[0].numpy(), by_runtime(model, {"x": x})[0])

    def test_values_of_inputs_with_defaults(self):
        """An initializer that is an input, too, is what the input is by default."""
        model = graph_model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", [2]), info("w", [2])],
                            [info("y", [2])], [numpy_helper.from_array(np.array([1, 2], "f"), "w")])
        x, w = np.array([10, 20], "f"), np.array([3, 4], "f")
        for values in ({}, {"w": w}):
            [y] = tenon.Session(tenon.onnx.load(model, values=values)).forward(x)
            np.testing.assert_array_equal(y.numpy(), by_runtime(model, {"x": x, **values})[0])
        for wrong in np.zeros(3, "f"), np.zeros((2, 1), "f"):
            with self.assertRaisesRegex(tenon.ArgumentError, r"input 'w': values: .* for \[2\]"):
                tenon.onnx.load(model, values={"w": wrong})

    def test_sizes_that_are_given(self):
        model, _ = networks.unet()
        program = tenon.onnx.load(model, shapes={"N": 2, "H": 16})
        self.assertEqual(str(program.parameters()[0][1]), "f32[2, 2, 16, 32]")
        program = tenon.onnx.load(model, shapes={"x": (1, 2, 8, 32)})
        self.assertEqual(str(program.results()[0][1]), "f32[1, 1, 8, 32]")
        with self.assertRaisesRegex(tenon.ArgumentError, "'M' is neither"):
            tenon.onnx.load(model, shapes={"M": 2})

    def test_branches_of_other_sizes(self):
        """A Model fixes the inputs that decide which one is taken."""
        yes = helper.make_graph([helper.make_node("Concat", ["x", "x"], ["t"], axis=0)], "yes", [], [info("t", None)])
        no = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "no", [], [info("e", None)])
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)]
        model = graph_model(nodes, [info("c", [], TensorProto.BOOL), info("x", [3])], [info("y", None)])
        read, x = tenon.onnx.Model(model), np.array([1, 2, 3], "f")
        for chosen, want in ((True, [1, 2, 3, 1, 2, 3]), (False, [-1, -2, -3]), (True, [1, 2, 3, 1, 2, 3])):
            np.testing.assert_array_equal(read.run({"c": np.array(chosen), "x": x})[0], want)
        self.assertEqual(read.fixed, {"c"})
        with self.assertRaisesRegex(tenon.UnsupportedError, "f32\\[6\\] and f32\\[3\\].*`values` of the condition"):
            tenon.onnx.load(model)

    def test_products_of_narrow_constants(self):
        """bf16 arrays of Tenon's are views of integers to numpy, which a transpose must not bring back."""
        random = np.random.default_rng(1)
        x, w = (random.standard_normal(sizes).astype("f") for sizes in ((2, 4), (3, 4)))
        nodes = [helper.make_node("Cast", ["w"], ["v"], to=TensorProto.BFLOAT16),
                 helper.make_node("Transpose", ["v"], ["t"], perm=[1, 0]),
                 helper.make_node("Cast", ["x"], ["n"], to=TensorProto.BFLOAT16),
                 helper.make_node("MatMul", ["n", "t"], ["m"]),
                 helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT)]
        model = graph_model(nodes, [info("x", ["N", 4])], [info("y", ["N", 3])], [numpy_helper.from_array(w, "w")])
        [got] = tenon.onnx.Model(model).run(x)
        np.testing.assert_allclose(got, x @ w.T, rtol=3e-2, atol=3e-2)

    def test_wrong_calls(self):
        with self.assertRaisesRegex(tenon.ArgumentError, r"shapes: \(2, 3\) for 'x', which has 4 axes"):
            tenon.onnx.load(networks.unet()[0], shapes={"x": (2, 3)})
        read = tenon.onnx.Model(self.reshape())
        with self.assertRaises(tenon.ArgumentError):
            read.run({"x": np.zeros((3, 4), "f")})
        with self.assertRaises(tenon.ArgumentError):
            read.run([np.zeros((3, 4), "f")])
        with self.assertRaises(tenon.ArgumentError):
            tenon.onnx.load(self.reshape(), values={"shape": np.array([1.5])})
        model, _ = networks.unet()
        read = tenon.onnx.Model(model)
        [name] = read.inputs
        x = np.ones((1, 2, 8, 32), "f")
        [want] = read.run({name: x})
        np.testing.assert_array_equal(read.run({name: x.tolist()})[0], want)
        for wrong, words in ((None, "NoneType is no array of numbers"), ([[1.0], [2.0, 3.0]], "inhomogeneous"),
                             ("x", "str is no array of numbers"), (np.array(["x"]), "<U1 is no type of Tenon")):
            with self.assertRaisesRegex(tenon.ArgumentError, f"input '{name}': .*{words}"):
                read.run({name: wrong})
        for got in (read.run(x), read.run([x]), read(x), read(**{name: x})):
            np.testing.assert_array_equal(got[0], want)
        with self.assertRaisesRegex(tenon.ArgumentError, f"'{name}' has 3 axes, .*declares 4"):
            read.run(x[0])
        with self.assertRaisesRegex(tenon.ArgumentError, r"the sizes \[1, 2, 8, 8\], where .* \[N, 2, H, 32\]"):
            read.run(x[..., :8])

    def test_without_the_package(self):
        code = "import sys; sys.modules['onnx'] = None; import tenon; tenon.onnx"
        made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertIn("ImportError: tenon.onnx needs the package 'onnx': pip install tenon[onnx]", made.stderr)

    def test_texts_keep_programs(self):
        program = tenon.onnx.load(networks.gpt2()[0])
        again = tenon.parse(str(program))
        self.assertEqual(again, program)
        inputs = networks.inputs_of(networks.gpt2()[1])
        a = tenon.Session(program).forward(**inputs)
        b = tenon.Session(again, program.folded).forward(**inputs)
        np.testing.assert_array_equal(a[0].numpy(), b[0].numpy())


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def external(self, location, offset=0, length=16):
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
            weight.external_data.add(key=key, value=value)
        return graph_model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", [4])], [info("y", [4])], [weight])

    def test_external_data(self):
        (self.path / "sub").mkdir()
        numbers = np.arange(6, dtype=np.float32)
        (self.path / "sub/w.bin").write_bytes(numbers.tobytes())
        for offset, want in ((0, numbers[:4]), (8, numbers[2:])):
            onnx.save(self.external("sub/w.bin", offset), self.path / "m.onnx")
            [y] = tenon.onnx.Model(self.path / "m.onnx").run([np.zeros(4, "f")])
            np.testing.assert_array_equal(y, want)

    def test_external_data_stays_in_the_folder(self):
        outside = self.path / "outside.bin"
        outside.write_bytes(bytes(64))
        inner = self.path / "inner"
        inner.mkdir()
        (inner / "link.bin").symlink_to(outside)
        for location in ("../outside.bin", str(outside), "link.bin", "a/../../outside.bin", ""):
            onnx.save(self.external(location), inner / "m.onnx")
            with self.assertRaises(tenon.InputError, msg=location) as caught:
                tenon.onnx.load(inner / "m.onnx")
            self.assertEqual(caught.exception.code, "PathEscape")
        for location in ("a" * 5000, "a/" * 5000):
            onnx.save(self.external(location), inner / "m.onnx")
            with self.assertRaises(tenon.InputError) as caught:
                tenon.onnx.load(inner / "m.onnx")
            self.assertEqual(caught.exception.code, "NotFound")
        (inner / "w.bin").write_bytes(bytes(64))
        for offset, length in ((60, 16), (-4, 16), (0, 12), (0, 2**62)):
            onnx.save(self.external("w.bin", offset, length), inner / "m.onnx")
            with self.assertRaises(tenon.InputError):
                tenon.onnx.load(inner / "m.onnx")

    def test_bad_files(self):
        (self.path / "m.onnx").write_bytes(b"no model")
        for bad in (self.path / "m.onnx", self.path / "none.onnx", b"", b"\xff" * 100):
            with self.assertRaises(tenon.InputError):
                tenon.onnx.load(bad)
        data = networks.resnet()[0].SerializeToString()
        for end in range(0, len(data), len(data) // 50):
            with self.assertRaises(tenon.Error):
                tenon.onnx.load(data[:end])

    def test_errors_name_the_op(self):
        cases = [(helper.make_node("Nowhere", ["x"], ["y"]), "Nowhere"),
                 (helper.make_node("Conv", ["x"], ["y"], name="first"), "Conv 'first': 1 inputs"),
                 (helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0]), "Transpose: attribute 'perm'"),
                 (helper.make_node("RandomUniformLike", ["x"], ["y"]), "RandomUniformLike"),
                 (helper.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=2), "QuantizeLinear: attribute 'axis'"),
                 (helper.make_node("LpPool", ["z"], ["y"], kernel_shape=[2], ceil_mode=1), "LpPool: axis 2 of .*shapes"),
                 (helper.make_node("DFT", ["z"], ["y"], axis=0), "DFT: axis 2 of .*shapes"),
                 (helper.make_node("Add", ["x", "w"], ["y"]), "'w' is not computed")]
        for node, words in cases:
            with self.assertRaisesRegex(tenon.Error, words):
                tenon.onnx.load(graph_model([node], [info("x", [2, 3]), info("s", [2]), info("z", [1, 1, "N"])],
                                            [info("y", None)]))

    def test_sizes_are_limited(self):
        shape = numpy_helper.from_array(np.array([2**20, 2**20]), "s")
        node = helper.make_node("ConstantOfShape", ["s"], ["y"])
        with self.assertRaises(tenon.Error) as caught:
            tenon.onnx.load(graph_model([node], [info("x", [1])], [info("y", None)], [shape]))
        self.assertEqual(caught.exception.code, "LimitExceeded")

    def test_the_command(self):
        from tenon.onnx.__main__ import main
        model, sizes = networks.gpt2()
        onnx.save(model, self.path / "m.onnx")
        self.assertEqual(main([str(self.path / "m.onnx"), "--shape", "batch=2"]), 0)
        program = tenon.parse((self.path / "m.tenon").read_text())
        inputs = networks.inputs_of(sizes)
        file = tenon.open(self.path / "m.safetensors")
        got = tenon.Session(program, {name: file[name] for name in file}).forward(**inputs)
        want = by_runtime(model, inputs)
        np.testing.assert_allclose(got[0].numpy(), want[0], rtol=1e-3, atol=1e-4)
        self.assertEqual(main([str(self.path / "m.tenon"), "-o", str(self.path / "again.onnx")]), 0)
        np.testing.assert_allclose(by_runtime(onnx.load(self.path / "again.onnx"), inputs)[0], want[0], rtol=1e-3,
                                   atol=1e-4)
        self.assertEqual(main([str(self.path / "none.onnx")]), 3)

    def test_the_command_with_weights_of_few_bits(self):
        from tenon.onnx.__main__ import main
        rng = np.random.default_rng(5)
        node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=64, N=3, bits=4,
                                block_size=32, accuracy_level=4)
        weights = [numpy_helper.from_array(one, name) for name, one in (
            ("b", rng.integers(0, 256, (3, 2, 16)).astype("u1")), ("s", np.float16([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])))]
        half = TensorProto.FLOAT16
        model = graph_model([node], [info("x", [2, 64], half)], [info("y", None, half)], weights)
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        onnx.save(model, self.path / "m.onnx")
        self.assertEqual(main([str(self.path / "m.onnx")]), 0)
        self.assertIn("q4_0[3, 64]", (self.path / "m.tenon").read_text())
        file = tenon.open(self.path / "m.gguf")
        program = tenon.parse((self.path / "m.tenon").read_text())
        x = rng.standard_normal((2, 64)).astype("f2")
        [want] = by_runtime(model, {"x": x})
        [got] = tenon.Session(program, {name: file[name] for name in file}).forward(x=x)
        np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=0.04 * np.abs(want).max())
        self.assertEqual(main([str(self.path / "m.tenon"), "-o", str(self.path / "again.onnx")]), 0)
        [again] = by_runtime(onnx.load(self.path / "again.onnx"), {"x": x})
        np.testing.assert_allclose(again, want, rtol=0, atol=0.04 * np.abs(want).max())


class Codes(unittest.TestCase):
    """Weights in INT4 and UINT4, which DequantizeLinear reads."""

    @staticmethod
    def packed(codes):
        flat = (np.atleast_1d(codes).reshape(-1) & 15).astype(np.uint8)
        flat = np.append(flat, np.zeros(len(flat) % 2, np.uint8))
        return (flat[::2] | (flat[1::2] << 4)).tobytes()

    def tensor(self, rng, name, kind, shape, stored, folder=None):
        codes = rng.integers(*((-8, 8) if kind == TensorProto.INT4 else (0, 16)), shape)
        if stored == "numbers":
            return helper.make_tensor(name, kind, shape, codes.reshape(-1).tolist())
        made = helper.make_tensor(name, kind, shape, self.packed(codes), raw=True)
        if stored == "external":
            (folder / "weights.bin").write_bytes(b"\0" * 3 + made.raw_data)
            made.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "weights.bin"), ("offset", 3), ("length", len(made.raw_data))):
                made.external_data.add(key=key, value=str(value))
            made.ClearField("raw_data")
        return made

    def model(self, rng, kind, sizes, per, has_zeros, stored, folder=None):
        block = int(rng.choice([16, 32, 64]))
        shape, attributes = {"block": ((-(-sizes[0] // block), sizes[1]), {"axis": 0, "block_size": block}),
                             "axis": ((sizes[1],), {"axis": 1}), "one": ((), {})}[per]
        scales = rng.uniform(0.01, 0.1, shape).astype("f4")
        weights = [self.tensor(rng, "w", kind, sizes, stored, folder), numpy_helper.from_array(scales, "s")]
        if has_zeros:
            weights.append(self.tensor(rng, "z", kind, shape, "raw"))
        nodes = [helper.make_node("DequantizeLinear", [one.name for one in weights], ["wide"], **attributes),
                 helper.make_node("MatMul", ["x", "wide"], ["y"])]
        return graph_model(nodes, [info("x", [3, sizes[0]])], [info("y", None)], weights, 21)

    def test_weights(self):
        seed = int(os.environ.get("TENON_TEST_SEED", np.random.default_rng().integers(1 << 30)))
        print(f"TENON_TEST_SEED={seed}")
        rng, in_blocks = np.random.default_rng(seed), 0
        options = onnxruntime.SessionOptions()  # with its optimisations it rounds x to 8 bits
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for _ in range(60):
                kind = int(rng.choice([TensorProto.INT4, TensorProto.UINT4]))
                sizes = int(rng.choice([32, 64, 96, 33, 7])), int(rng.choice([1, 3, 16, 20]))
                case = kind, sizes, str(rng.choice(["block", "axis", "one"])), bool(rng.integers(2)), \
                    str(rng.choice(["raw", "numbers", "external"]))
                model = self.model(rng, *case, folder)
                onnx.save(model, folder / "m.onnx")
                x = rng.standard_normal((3, sizes[0])).astype("f4")
                [want] = onnxruntime.InferenceSession(folder / "m.onnx", options).run(None, {"x": x})
                [got] = tenon.onnx.Model(folder / "m.onnx").run([x])
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=str(case))
                [got] = tenon.onnx.Model(folder / "m.onnx", packed=True).run([x])
                np.testing.assert_allclose(got, want, rtol=0, atol=0.05 * np.abs(want).max() + 0.02, err_msg=str(case))
                in_blocks += "q4_" in str(tenon.onnx.load(folder / "m.onnx", packed=True))
        self.assertGreater(in_blocks, 0)

    def test_what_else_they_would_go_to_is_refused(self):
        rng = np.random.default_rng(1)
        weight = self.tensor(rng, "w", TensorProto.INT4, (4, 3), "raw")
        for node in (helper.make_node("Transpose", ["w"], ["y"]), helper.make_node("Shape", ["w"], ["y"]),
                     helper.make_node("QuantizeLinear", ["x", "s", "w"], ["y"])):
            model = graph_model([node], [info("x", [4, 3]), info("s", [])], [info("y", None)], [weight])
            with self.assertRaisesRegex(tenon.Error, "'w' has 4 bits"):
                tenon.onnx.load(model)
        short = helper.make_tensor("w", TensorProto.INT4, (4, 3), bytes(6), raw=True)
        short.raw_data = bytes(5)
        node = helper.make_node("DequantizeLinear", ["w", "s"], ["y"])
        with self.assertRaisesRegex(tenon.Error, "5 bytes"):
            tenon.onnx.load(graph_model([node], [info("s", [])], [info("y", None)], [short]))


class Export(unittest.TestCase):
    """Single ops, by ONNX Runtime and by Tenon."""

    def check(self, function, *inputs, tolerance=1e-5):
        types = [tenon.Shape(one.shape, str(one.dtype)) for one in inputs]
        program = tenon.export(function, *types)
        names = [name for name, _ in program.parameters()]
        got = by_runtime(tenon.onnx.to_model(program), dict(zip(names, inputs)))
        want = [one.numpy() for one in tenon.Session(program).forward(*inputs)]
        for a, b in zip(got, want, strict=True):
            self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype))
            np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance,
                                       atol=tolerance)

    def test_ops(self):
        rng = np.random.default_rng(3)
        x = rng.standard_normal((2, 4, 6)).astype("f") * 2
        positive = np.abs(x) + 0.1
        for name in ("abs neg sin cos tanh erf floor ceil round sign sigmoid relu relu6 silu gelu gelu_tanh softplus "
                     "mish hardsigmoid hardswish leaky_relu elu square exp exp2 trunc is_finite is_nan").split():
            self.check(getattr(ops, name), x)
        for name in "sqrt rsqrt reciprocal log log2".split():
            self.check(getattr(ops, name), positive)
        for name in "add sub mul div minimum maximum eq ne lt le gt ge remainder fmod".split():
            self.check(getattr(ops, name), x, positive[:1])
        for name in "sum mean prod max min argmax argmin cumsum softmax log_softmax sort argsort".split():
            self.check(lambda a, f=getattr(ops, name): f(a, axis=1), x)
        self.check(lambda a: ops.sum(a, axis=(0, 2), keep_dims=True), x)
        self.check(lambda a: ops.topk(a, k=2, axis=2)[1], x)
        self.check(lambda a: a.permute((2, 0, 1)).reshape((6, 8))[1:5:2, ::-1], x)
        self.check(lambda a: ops.merge_axes(ops.split_axis(a, axis=2, sizes=(2, 3)), axis=0, count=2), x)
        self.check(lambda a: ops.pad(a, before=(0, 1, 2), after=(1, 0, 0), mode="reflect"), x[:2])
        self.check(lambda a: ops.pad(a, before=(0, 1, 2), after=(1, 0, 0), value=3.0), x)
        self.check(lambda a: ops.concat([a, ops.full((2, 1, 6), 2.0)], 1), x)
        self.check(lambda a: ops.layer_norm(a, np.arange(6, dtype="f"), np.ones(6, "f")), x)
        self.check(lambda a: ops.rms_norm(a, np.arange(6, dtype="f")), x)
        self.check(lambda a: ops.group_norm(a, groups=2), x)
        self.check(lambda a: ops.cast(a * 100, dtype="i8"), x)
        self.check(lambda a: ops.cast(ops.cast(a * 300, dtype="i32"), dtype="u8"), x)
        self.check(lambda a: ops.clip(a, -1, 1).variance((1,)), x)
        self.check(lambda a, i: ops.gather(a, i, axis=1), x, np.array([[0, 3], [1, 1]]))
        self.check(lambda a, i: ops.scatter(a, i, i.cast("f32"), axis=2, mode="add"), x, np.full((2, 4, 2), 5))
        self.check(lambda a: ops.where(a > 0, a, a * 2) + ops.iota(a, axis=2, dtype="f32"), x)
        self.check(lambda a: ops.glu(a, a, activation="silu"), x)

    def test_products_and_images(self):
        rng = np.random.default_rng(4)
        x = rng.standard_normal((2, 4, 9, 8)).astype("f")
        w = rng.standard_normal((6, 2, 3, 3)).astype("f")
        self.check(lambda a: ops.conv2d(a, w, stride=(2, 1), padding=(1, 0, 2, 1), groups=2), x, tolerance=1e-4)
        self.check(lambda a: ops.conv_transpose2d(a, w[:4], stride=(2, 2), padding=(1, 1), output_padding=(1, 0)), x,
                   tolerance=1e-4)
        self.check(lambda a: ops.max_pool2d(a, kernel=(2, 3), padding=(1, 1)), x)
        self.check(lambda a: ops.avg_pool2d(a, kernel=(3, 2), stride=(1, 2), padding=(1, 0), count_include_pad=True), x)
        self.check(lambda a: ops.resize(a, sizes=(18, 5), mode="linear"), x)
        self.check(lambda a: ops.batch_norm(a, np.ones(4, "f"), np.full(4, 2, "f")), x)
        self.check(lambda a: ops.linear(a, np.ones((3, 8), "f"), bias=np.arange(3, dtype="f")), x, tolerance=1e-4)
        self.check(lambda a: a @ a.mT, x, tolerance=1e-4)
        q = rng.standard_normal((2, 5, 4, 8)).astype("f")
        k = rng.standard_normal((2, 7, 2, 8)).astype("f")
        self.check(lambda a, b: ops.attention(a, b, b, causal=True, softcap=20.0), q, k)

    def test_types_that_ops_of_onnx_lack(self):
        x = np.array([[0, 1, 200]], "u1")
        self.check(ops.neg, x)
        self.check(ops.relu, x)
        for op in (ops.lt, ops.le, ops.gt, ops.ge):
            self.check(lambda a, b, op=op: op(a, b), np.array([True, False]), np.array([[True], [False]]))
        program = tenon.export(lambda a: ops.pow(a, a), "i8[3]")
        with self.assertRaisesRegex(tenon.UnsupportedError, "pow .*: ONNX's Pow takes no i8"):
            tenon.onnx.to_model(program)

    def test_choices_of_bool(self):
        a, b = np.array([True, False]), np.array([[True], [False]])
        self.check(lambda c, a, b: ops.where(c, a, b), np.array([False, True]), a, b)

    def test_integers(self):
        for kind in "i1 u1 i2 u2 i4 u4 i8".split():
            least, most = np.iinfo(kind).min, np.iinfo(kind).max
            x = np.array([[least, most, 0, 1, most // 2, most // 2 + 1]], kind)
            for to in "i8 u8 i16 u16 i32 u32 i64".split():
                self.check(lambda a, to=to: ops.cast(a, dtype=to), x)
            for low, high in ((0, 5), (-3.5, 2**40), (-1e30, 7)):
                self.check(lambda a, low=low, high=high: ops.clamp(a, min=low, max=high), x)
            # ONNX Runtime's ReduceMax of i64 is wrong for some numbers.
            for op in (ops.sum, ops.prod, *(() if kind == "i8" else (ops.max, ops.min))):
                for axes in ([], [0], [1]):
                    self.check(lambda a, op=op, axes=axes: op(a, axis=axes), x)
        for to in ("i16", "u16"):
            self.check(lambda a, to=to: ops.cast(a, dtype=to), np.array([np.nan, np.inf, -1e9, 70000, -3.5], "f"))

    def test_zero_points_of_channels(self):
        x, w = np.arange(32, dtype="u1").reshape(1, 2, 4, 4), np.arange(-8, 16, dtype="i1").reshape(3, 2, 2, 2)
        self.check(lambda a: ops.conv2d_integer(a, w, np.uint8(3), np.full(3, 2, "i1")), x)

    def test_layers_and_weights_of_a_file(self):
        def layer(weights, index, x):
            return x + ops.linear(x, weights["w"]) * ops.cast(index, dtype="f32")

        def model(x):
            layers = [{"w": tenon.build.weight(f"layer.{i}.w", "f32[4, 4]")} for i in range(3)]
            return tenon.repeat(layers, x, layer)

        program = tenon.export(model, x="f32[N, 4]")
        rng = np.random.default_rng(5)
        weights = {f"layer.{i}.w": rng.standard_normal((4, 4)).astype("f") for i in range(3)}
        x = rng.standard_normal((2, 4)).astype("f")
        [want] = tenon.Session(program, weights).forward(x)
        [got] = by_runtime(tenon.onnx.to_model(program, weights), {"x": x})
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5)
        names = [name for name, _ in program.results()]
        self.assertEqual([one.name for one in tenon.onnx.to_model(program, weights).graph.output], names)
        self.assertEqual([name for name, _ in tenon.onnx.load(tenon.onnx.to_model(program, weights)).results()], names)
        with self.assertRaisesRegex(tenon.ArgumentError, "'layer.0.w' is not given"):
            tenon.onnx.to_model(program)

    def test_differences_from_one_keep_their_digits(self):
        near = np.geomspace(1e-12, 0.9, 200)
        x = np.concatenate([near, -near, [0, 1, 5, 80, 1e8, 1e30]]).astype("f4")
        program = tenon.export(lambda x: (ops.expm1(x), ops.log1p(x)), x=f"f32[{len(x)}]")
        with np.errstate(over="ignore"):
            wanted = np.expm1(x), np.log1p(x)
        for got, want in zip(by_runtime(tenon.onnx.to_model(program), {"x": x}), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)
        small = np.geomspace(1e-300, 0.9, 200)
        for dtype, rtol in ("f4", 1e-6), ("f8", 1e-15):
            x = np.concatenate([small, -small, [0, np.finfo(dtype).tiny, 5, 1e30, np.inf, -1, -2, np.nan]]).astype(dtype)
            program = tenon.export(lambda x: ops.log1p(x), x=f"f{8 * x.itemsize}[{len(x)}]")
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(by_runtime(tenon.onnx.to_model(program), {"x": x})[0], np.log1p(x), rtol=rtol)
        program = tenon.export(lambda x, w: ops.conv_transpose2d(x, w, stride=(1, 1), output_padding=(1, 1), dilation=(2, 2)),
                               x="f32[1, 2, 4, 4]", w="f32[2, 3, 3, 3]")
        with self.assertRaisesRegex(tenon.UnsupportedError, "output_padding .* is not below the stride"):
            tenon.onnx.to_model(program)

    def test_programs_that_return_their_inputs(self):
        x = np.arange(6, dtype="f4").reshape(2, 3)
        program = tenon.export(lambda x: (x, x, x + 1.0), x="f32[2, 3]")
        for got, want in zip(by_runtime(tenon.onnx.to_model(program), {"x": x}), (x, x, x + 1), strict=True):
            np.testing.assert_array_equal(got, want)
        [got] = by_runtime(tenon.onnx.to_model(tenon.export(lambda x: x, x="f32[2, 3]")), {"x": x})
        np.testing.assert_array_equal(got, x)

    def test_defaults_and_precision_of_norms(self):
        small, ones = np.array([[[1e-3, 2e-3]]], "f4"), np.ones(2, "f4")
        far = (1e4 + np.arange(4, dtype="f4")).reshape(1, 1, 2, 2)
        for op, domain, inputs in (("SkipLayerNormalization", "com.microsoft", [small, small, ones]),
                                   ("SkipSimplifiedLayerNormalization", "com.microsoft", [small, small, ones]),
                                   ("MeanVarianceNormalization", "", [far])):
            model, given = one_node(op, inputs, domain)
            [got] = tenon.Session(tenon.onnx.load(model)).forward(*inputs)
            np.testing.assert_allclose(got.numpy(), by_runtime(model, given)[0], rtol=1e-3, atol=1e-4, err_msg=op)

    def test_indices_of_further_axes_are_checked(self):
        x, update = np.arange(6, dtype="f4").reshape(2, 3), np.ones(1, "f4")
        for index in ([[0, 3]], [[1, -4]], [[2, 0]]):
            for op, rest in (("GatherND", []), ("ScatterND", [update])):
                model, _ = one_node(op, [x, np.array(index), *rest])
                with self.assertRaises(tenon.Error):
                    tenon.Session(tenon.onnx.load(model)).forward(x, np.array(index), *rest)
        model, given = one_node("GatherND", [x, np.array([[1, -3], [-2, 2]])])
        [got] = tenon.Session(tenon.onnx.load(model)).forward(*given.values())
        np.testing.assert_array_equal(got.numpy(), [3, 2])

    def test_diagonals_of_letters_apart(self):
        for equation, size in (("cac->ca", (3, 2, 3)), ("aba->ab", (3, 2, 3)), ("abba->ab", (2, 3, 3, 2))):
            x = np.arange(np.prod(size), dtype="f4").reshape(size)
            model, given = one_node("Einsum", [x], equation=equation)
            [got] = tenon.Session(tenon.onnx.load(model)).forward(x)
            np.testing.assert_array_equal(got.numpy(), by_runtime(model, given)[0])

    def test_what_has_no_form(self):
        for function, words in ((lambda a: ops.lgamma(a), "lgamma .* no form"),
                                (lambda a: ops.cast(ops.quantize(a, dtype="q8_0"), dtype="f32"), "")):
            with self.assertRaisesRegex(tenon.Error, words):
                tenon.onnx.to_model(tenon.export(function, "f32[2, 32]"))


if __name__ == "__main__":
    unittest.main()

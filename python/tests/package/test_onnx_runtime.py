"""tenon.onnx: ops of the domain com.microsoft, samples of images and open sizes, against ONNX Runtime."""

import concurrent.futures
import gc
import math
import unittest
import unittest.mock

import numpy as np

try:
    import onnxruntime
    from onnx import helper, numpy_helper

    import tenon
    import tenon.onnx
    from tenon import ops
    from tenon.importing import kept
    from tenon.importing.values import Builder, Value
    from tenon.onnx import model as module
except ImportError as error:
    raise unittest.SkipTest(str(error)) from None

RNG = np.random.default_rng(4)


def real(*sizes):
    return RNG.standard_normal(sizes).astype("f4")


def codes(*sizes, dtype="u1"):
    return RNG.integers(-100 if dtype == "i1" else 0, 100 if dtype == "i1" else 256, sizes).astype(dtype)


def kind(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


class Microsoft(unittest.TestCase):
    def check(self, op, given, constants=(), results=1, unused=(), open_axes=(), tolerance=1e-5, first=(),
              **attributes):
        """Compares what a node gives here and in ONNX Runtime, of which tolerance None allows what rounding x to 8 bits
        makes; values are in order, `first` before the inputs and `constants` behind them, and None where they are left
        out. Returns the model."""
        before, constants = dict(first), dict(first) | dict(constants)
        names = [name if array is not None else "" for name, array in [
            *before.items(), *given.items(), *(one for one in constants.items() if one[0] not in before)]]
        given = {name: array for name, array in given.items() if array is not None}
        outputs = [f"y{i}" if i not in unused else "" for i in range(results)]
        node = helper.make_node(op, names, outputs, domain="com.microsoft", **attributes)
        sizes = {name: [f"{name}{i}" if i in open_axes else size for i, size in enumerate(array.shape)]
                 for name, array in given.items()}
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info(name, kind(one), sizes[name]) for name, one in given.items()],
            [helper.make_empty_tensor_value_info(name) for name in outputs if name],
            [numpy_helper.from_array(np.array(one), name) for name, one in dict(constants).items()
             if one is not None])
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17),
                                                                      helper.make_opsetid("com.microsoft", 1)])
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.x64quantprecision", "1")  # no products saturated in pairs
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        wanted, got = session.run(None, given), tenon.onnx.Model(model).run(given)
        for one, want in zip(got, wanted, strict=True):
            self.assertEqual((one.dtype, one.shape), (want.dtype, want.shape), op)
            finite = np.nan_to_num(want, nan=0, posinf=0, neginf=0)
            least = tolerance if tolerance is not None else 0.04 * max(np.abs(finite).max(), 1e-6)
            np.testing.assert_allclose(one, want, rtol=tolerance or 0, atol=least, err_msg=op)
        return model

    def test_activations_norms_and_products(self):
        x, scale, bias = real(2, 5, 16), real(16), real(16)
        self.check("Gelu", {"x": x})
        self.check("FastGelu", {"x": x}, tolerance=1e-3)
        for op in ("BiasGelu", "FastGelu"):
            self.check(op, {"x": x}, {"b": bias}, tolerance=1e-3)
        self.check("QuickGelu", {"x": x}, alpha=1.5)
        self.check("SkipLayerNormalization", {"x": x, "s": real(2, 5, 16)}, {"g": scale, "b": bias, "c": real(16)}, 4,
                   unused=(1, 2), epsilon=1e-3)
        self.check("SkipLayerNormalization", {"x": x, "s": real(2, 5, 16)}, {"g": scale})
        self.check("SkipSimplifiedLayerNormalization", {"x": x, "s": real(2, 5, 16)}, {"g": scale, "c": bias}, 4,
                   unused=(1, 2))
        ids = RNG.integers(0, 5, (2, 3)).astype("i4")
        tables = {"w": real(9, 16), "p": real(4, 16), "t": real(5, 16), "g": scale, "b": bias}
        self.check("EmbedLayerNormalization", {"i": ids, "s": ids}, tables, 2)
        self.check("FusedMatMul", {"a": real(2, 8, 3), "b": real(2, 5, 8)}, transA=1, transB=1, alpha=0.5)
        self.check("FusedMatMul", {"a": real(5, 2, 3), "b": real(2, 3, 4)}, transBatchA=1)
        self.check("FusedMatMul", {"a": real(5, 2, 3), "b": real(4, 2, 3)}, transBatchA=1, transBatchB=1, transB=1)
        self.check("FusedGemm", {"a": real(3, 4)}, {"b": real(4, 5), "c": real(5)}, activation="LeakyRelu",
                   activation_alpha=0.1)
        for activation in ("Softplus", "Softsign"):
            self.check("FusedGemm", {"a": real(3, 4)}, {"b": real(4, 5), "c": real(5)}, activation=activation)
        self.check("FusedConv", {"x": real(1, 3, 6, 6)}, {"w": real(4, 3, 3, 3), "b": real(4)}, activation="Relu")
        self.check("Inverse", {"x": real(2, 3, 3) + 3 * np.eye(3, dtype="f4")}, tolerance=1e-3)

    def test_codes(self):
        scale, zero, more, last = (np.array(one, kind) for one, kind in ((0.02, "f4"), (128, "u1"), (0.03, "f4"),
                                                                         (20, "u1")))
        a, b, image = codes(3, 8), codes(3, 8), codes(2, 4, 5, 6)
        for op in ("QLinearAdd", "QLinearMul"):
            self.check(op, {"a": a, "s": scale, "z": zero, "b": b}, {"t": more, "v": last, "u": more, "w": last},
                       tolerance=1)
        scales = {"s": scale, "z": zero, "t": more, "w": last}
        self.check("QLinearSigmoid", {"a": a}, scales | {"t": np.float32(1 / 256)}, tolerance=1)
        self.check("QLinearLeakyRelu", {"a": a}, scales, alpha=0.2, tolerance=1)
        self.check("QLinearGlobalAveragePool", {"a": image}, scales, tolerance=1)
        self.check("QLinearConcat", {"t": more, "w": last, "a": a}, {"s": scale, "z": zero, "b": b, "u": more,
                                                                     "v": last}, axis=1, tolerance=1)
        self.check("QGemm", {"a": a}, {"s": scale, "z": zero, "b": codes(8, 5), "t": more, "w": last, "c": codes(
            5, dtype="i1").astype("i4"), "u": np.float32(0.3), "v": last}, tolerance=1)
        x, weight = real(3, 8), codes(8, 5, dtype="i1")
        self.check("DynamicQuantizeMatMul", {"x": x}, {"b": weight, "s": scale, "z": np.int8(0), "c": real(5)})
        self.check("MatMulIntegerToFloat", {"a": a}, {"b": weight, "s": scale, "t": more, "z": zero, "w": np.int8(3),
                                                      "c": real(5)})
        lstm = {"w": codes(1, 6, 20, dtype="i1"), "r": codes(1, 5, 20, dtype="i1"), "b": real(1, 40), "l": None,
                "h": None, "c": None, "p": None, "ws": np.array([0.01], "f4"), "wz": np.array([3], "i1"),
                "rs": np.array([0.01], "f4"), "rz": np.array([0], "i1")}
        self.check("DynamicQuantizeLSTM", {"x": real(4, 2, 6)}, lstm, 3, hidden_size=5, tolerance=0.05)
        for zeros in (None, codes(6, 1)):
            packed, scales = codes(6, 2, 16), np.abs(real(12))
            self.check("MatMulNBits", {"x": real(2, 3, 64)}, {"b": packed, "s": scales, "z": zeros}, K=64, N=6, bits=4,
                       block_size=32, tolerance=1e-3)

    def test_weights_of_few_bits_stay_so(self):
        for bits, zeros, block, width, kind in (
                (4, None, 32, 64, "q4_0"), (4, "some", 32, 96, "q4_1"), (4, None, 128, 160, "q4_0"),
                (4, "some", 64, 96, "q4_1"), (2, None, 64, 64, "q4_0"), (2, "some", 32, 64, "q4_1"),
                (8, None, 32, 64, "q8_0"), (8, "some", 32, 64, "f32"), (4, None, 16, 64, "f32"),
                (4, None, 32, 72, "f32")):
            groups = -(-width // block)
            scales = np.abs(real(6, groups)).ravel() * 0.1 + 0.01
            packed = codes(6, groups, block * bits // 8)
            given = None if zeros is None else codes(6, -(-groups * bits // 8))
            with self.subTest(bits=bits, zeros=zeros, block=block, width=width):
                constants = {"b": packed, "s": scales, "z": given}
                size = {"K": width, "N": 6, "bits": bits, "block_size": block}
                x = real(2, 3, width)
                wide = self.check("MatMulNBits", {"x": x}, constants, tolerance=1e-4, **size)
                model = self.check("MatMulNBits", {"x": x}, constants, accuracy_level=4, tolerance=None, **size)
                program = tenon.onnx.load(model)
                for packed in (True, False):
                    kinds = {one.dtype.name for one in tenon.onnx.load(wide, packed=packed).folded.values()}
                    self.assertEqual(kinds, {kind if packed else "f32"})
                self.assertEqual({one.dtype.name for one in program.folded.values()}, {kind})
                exact = tenon.Session(program, exact=True).forward(x=x)[0].numpy()
                [want] = tenon.onnx.Model(wide).run({"x": x})
                np.testing.assert_allclose(exact, want, rtol=0, atol=3e-3 * np.abs(want).max())
                [again] = tenon.onnx.Model(tenon.onnx.to_model(program)).run({"x": x})
                np.testing.assert_allclose(again, exact, rtol=1e-4, atol=1e-4)

    def test_tables_of_few_bits_stay_so(self):
        index = np.array([[1, -3, 4]])
        for bits, zeros, block, half, kind in (
                (4, False, 32, True, "q4_0"), (4, False, 32, False, "f32"), (4, True, 32, False, "f32"),
                (8, False, 64, True, "q8_0"), (2, False, 32, True, "q4_0"), (4, False, 16, True, "f16")):
            scales = (np.abs(real(10, 96 // block + (96 % block > 0))) + 0.1).astype("f2" if half else "f4")
            constants = {"s": scales, "z": codes(10, -(-scales.shape[1] * bits // 8)) if zeros else None}
            attributes = {"block_size": block, "bits": bits, "gather_axis": 0, "quantize_axis": 1}
            with self.subTest(bits=bits, zeros=zeros, block=block, half=half):
                model = self.check("GatherBlockQuantized", {"i": index}, constants, tolerance=1e-5, first={
                    "d": codes(10, 96 * bits // 8)}, **attributes)
                for packed, want in (None, kind), (False, "f16" if half else "f32"):
                    kinds = {one.dtype.name for one in tenon.onnx.load(model, packed=packed).folded.values()}
                    self.assertEqual(kinds - {"i64"}, {want})
                if not half:
                    [got] = tenon.onnx.Model(model, packed=True).run({"i": index})
                    want = tenon.onnx.Model(model).run({"i": index})[0]
                    np.testing.assert_allclose(got, want, rtol=0, atol=1e-3 * np.abs(want).max())

    def test_scales_that_halves_do_not_hold(self):
        packed = codes(2, 1, 16)
        for scale in (1e6, 1e-9, np.nan):
            scales = np.array([1, scale], "f4")
            model = self.check("MatMulNBits", {"x": real(1, 32)}, {"b": packed, "s": scales}, accuracy_level=4,
                               tolerance=None, K=32, N=2, bits=4, block_size=32)
            self.assertEqual([one.dtype.name for one in tenon.onnx.load(model).folded.values()], ["f32"])
        model = self.check("MatMulNBits", {"x": real(1, 64)}, {"b": codes(1, 2, 16), "s": np.array([1, 1e-7], "f4")},
                           accuracy_level=4, tolerance=None, K=64, N=1, bits=4, block_size=32)
        self.assertEqual([one.dtype.name for one in tenon.onnx.load(model).folded.values()], ["q4_0"])  # a small group

    def test_attention(self):
        x, weight, bias = real(2, 5, 16), real(16, 48), real(48)
        for mask in (None, np.array([5, 3], "i4"), np.array([5, 4, 2, 0], "i4"),
                     np.array([[1] * 5, [1, 1, 1, 0, 0]], "i4")):
            for causal in (0, 1):
                self.check("Attention", {"x": x, "w": weight, "b": bias, "m": mask}, num_heads=4, unidirectional=causal,
                           tolerance=1e-3)
        # Codes whose products ONNX Runtime does not saturate in pairs where there is no VNNI.
        self.check("QAttention", {"x": codes(2, 5, 16) // 3, "w": codes(16, 48, dtype="i1"), "b": bias}, {
            "s": np.array(0.02, "f4"), "t": np.array(0.01, "f4"), "m": np.array([5, 3], "i4"), "z": np.array(120, "u1"),
            "v": np.array(2, "i1")}, num_heads=4, tolerance=1e-3)
        heads = {"q": real(2, 1, 16), "k": real(2, 1, 16), "v": real(2, 1, 16)}
        past = {"c": None, "m": None, "e": None, "p": real(2, 4, 3, 4), "o": real(2, 4, 3, 4)}
        self.check("MultiHeadAttention", heads | past, results=3, num_heads=4, open_axes=(2,))
        self.check("MultiHeadAttention", {"q": real(2, 3, 16), "k": real(2, 6, 16), "v": real(2, 6, 16)}, num_heads=2)
        places, angles = np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]]), real(9, 4)
        for interleaved in (0, 1):
            self.check("RotaryEmbedding", {"x": x, "p": places}, {"c": np.cos(angles), "s": np.sin(angles)},
                       interleaved=interleaved, num_heads=2)

    def test_attention_with_a_cache(self):
        angles = real(16, 8)
        tables = {"c": np.cos(angles), "s": np.sin(angles)}
        for batch, rows, before, free, lengths in (
                (1, 5, 0, 0, [4]), (2, 4, 0, 0, [3, 3]), (1, 1, 3, 0, [3]), (1, 1, 3, 4, [3]), (1, 3, 4, 0, [6]),
                (2, 1, 4, 0, [4, 2])):
            given = {"q": real(batch, rows, 64), "k": real(batch, rows, 32), "v": real(batch, rows, 32),
                     "p": real(batch, 2, before + free, 16), "o": real(batch, 2, before + free, 16),
                     "l": np.array(lengths, "i4").reshape(-1, 1), "t": np.array(max(lengths) + 1, "i4")}
            with self.subTest(given["p"].shape, rows=rows):
                self.check("GroupQueryAttention", given, tables, 3, num_heads=4, kv_num_heads=2, do_rotary=1,
                           rotary_interleaved=free // 4, tolerance=1e-4)
                packed = given | {"q": real(batch, rows, 128), "k": None, "v": None}
                self.check("GroupQueryAttention", packed, {}, 3, num_heads=4, kv_num_heads=2, tolerance=1e-4)

    def test_what_is_refused(self):
        x = real(1, 2, 16)
        for op, given, attributes, says in (
                ("Attention", {"a": x, "b": real(16, 48)}, {"do_rotary": 1, "num_heads": 2}, "do_rotary"),
                ("GroupQueryAttention", {"q": x, "k": x, "v": x, "p": None, "o": None, "l": np.ones((1, 1), "i4"),
                                         "t": np.array(2, "i4")}, {"local_window_size": 4}, "local_window_size"),
                ("MatMulBnb4", {"a": x}, {}, "no op of this name")):
            with self.assertRaisesRegex(tenon.UnsupportedError, says):
                names = [name if one is not None else "" for name, one in given.items()]
                node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)
                inputs = [helper.make_tensor_value_info(n, kind(v), v.shape) for n, v in given.items() if v is not None]
                graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, None)])
                tenon.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17),
                                                                        helper.make_opsetid("com.microsoft", 1)]))


class Images(unittest.TestCase):
    def test_grid_sample_of_volumes_and_by_cubics(self):
        for sizes, modes in (((5, 6), ("linear", "cubic")), ((3, 4, 5), ("linear", "nearest"))):
            x, grid = real(2, 3, *sizes), 1.5 * real(2, *sizes[1:], 2, len(sizes))
            for mode in modes:
                for padding in ("zeros", "border", "reflection"):
                    for aligned in (0, 1):
                        node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding,
                                                align_corners=aligned)
                        graph = helper.make_graph([node], "g", [
                            helper.make_tensor_value_info(name, 1, one.shape) for name, one in (("x", x), ("g", grid))],
                            [helper.make_empty_tensor_value_info("y")])
                        model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
                        runtime = onnxruntime.InferenceSession(model.SerializeToString(),
                                                               providers=["CPUExecutionProvider"])
                        [want], [y] = runtime.run(None, {"x": x, "g": grid}), tenon.onnx.Model(model).run([x, grid])
                        np.testing.assert_allclose(y, want, rtol=1e-3, atol=1e-4, err_msg=f"{mode} {padding} {aligned}")


    def test_nearest_elements_of_scales_that_are_rounded(self):
        """Sizes and places are products in f32: 5 elements by 1.4 are 7."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # its types have 6
        for count in (5, 8, 10, 13, 24):
            for scale in (0.3, 0.6, 0.7, 1.3, 1.4, 1.7, 2.2, 2.3, 3.3, 1 / 3):
                for places, rounding in (("asymmetric", "floor"), ("half_pixel", "floor"), ("asymmetric", "ceil")):
                    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode=rounding,
                                            coordinate_transformation_mode=places)
                    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, (1, 1, count))],
                                              [helper.make_empty_tensor_value_info("y")],
                                              [numpy_helper.from_array(np.array([1, 1, scale], "f4"), "s")])
                    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 19)])
                    runtime = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                                           providers=["CPUExecutionProvider"])
                    x = np.arange(count, dtype="f4").reshape(1, 1, -1)
                    [want], [y] = runtime.run(None, {"x": x}), tenon.onnx.Model(model).run([x])
                    np.testing.assert_array_equal(y, want, err_msg=f"{count} {scale} {places} {rounding}")

    def test_nearest_elements_in_opset_10(self):
        """Places are rounded up along axes that become shorter."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        for sizes, scales in (((2, 4), (0.6, 0.6)), ((6, 8), (0.6, 1.5)), ((5, 10), (1, 0.7)), ((6, 3), (2, 0.4)), ((7, 13), (0.9, 0.3)),
                              ((4, 4), (0.5, 0.5)), ((4, 5), (2, 3))):
            node = helper.make_node("Resize", ["x", "s"], ["y"], mode="nearest")
            graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, (1, 1, *sizes))],
                                      [helper.make_empty_tensor_value_info("y")],
                                      [numpy_helper.from_array(np.array([1, 1, *scales], "f4"), "s")])
            model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 10)])
            runtime = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            x = np.arange(math.prod(sizes), dtype="f4").reshape(1, 1, *sizes)
            [want], [y] = runtime.run(None, {"x": x}), tenon.onnx.Model(model).run([x])
            np.testing.assert_array_equal(y, want, err_msg=f"{sizes} {scales}")

    def test_affine_grids(self):
        for count, sizes in ((1, (3, 4)), (2, (3, 4)), (1, (2, 3, 4)), (2, (1, 4))):
            for aligned in (0, 1) if 1 not in sizes else (0,):
                node = helper.make_node("AffineGrid", ["t", "s"], ["y"], align_corners=aligned)
                theta = real(count, len(sizes), len(sizes) + 1)
                graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("t", 1, theta.shape)],
                                          [helper.make_empty_tensor_value_info("y")],
                                          [numpy_helper.from_array(np.array([count, 1, *sizes]), "s")])
                model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
                runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
                [want], [y] = runtime.run(None, {"t": theta}), tenon.onnx.Model(model).run([theta])
                np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6, err_msg=f"{count} {sizes} {aligned}")


class Casts(unittest.TestCase):
    def test_integers_keep_their_lower_bits(self):
        for source in ("i1", "i8", "u4", "u8"):
            limits = np.iinfo(source)
            x = np.array([limits.min, limits.max, limits.max // 2 + 1, limits.min // 3, 5, 0], source)
            for target in ("i1", "i4", "i8", "u1", "u2", "u8"):
                node = helper.make_node("Cast", ["x"], ["y"], to=kind(np.zeros(1, target)))
                graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind(x), x.shape)],
                                          [helper.make_empty_tensor_value_info("y")])
                model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
                runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
                [want], [y] = runtime.run(None, {"x": x}), tenon.onnx.Model(model).run([x])
                np.testing.assert_array_equal(y, want, err_msg=f"{source} to {target}")

    def test_squares_of_halves(self):
        x = np.array([[300, -20, 1000, 3], [1e-4, 2e-4, 1e-4, 5e-4]], "f2")
        for op, attributes in (("ReduceL2", {"axes": [1]}), ("ReduceSumSquare", {"axes": [1]}),
                               ("LpNormalization", {"axis": 1}), ("LpNormalization", {"axis": 1, "p": 1})):
            graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **attributes)], "g",
                                      [helper.make_tensor_value_info("x", kind(x), x.shape)],
                                      [helper.make_empty_tensor_value_info("y")])
            model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
            runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            [want], [y] = runtime.run(None, {"x": x}), tenon.onnx.Model(model).run([x])
            np.testing.assert_allclose(y, want, rtol=1e-3, err_msg=op)

    def test_integers_that_no_double_holds(self):
        for number in (2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1):
            node = helper.make_node("Add", ["x", "c"], ["y"])
            graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 7, [1])],
                                      [helper.make_empty_tensor_value_info("y")],
                                      [numpy_helper.from_array(np.full(200, number), "c")])
            model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
            np.testing.assert_array_equal(tenon.onnx.Model(model).run([np.array([0])])[0], np.full(200, number))

    def test_known_numbers_that_are_not_finite(self):
        """T5 takes integers of log(0) and leaves them aside."""
        nodes = [helper.make_node("Log", ["c"], ["l"]), helper.make_node("Cast", ["l"], ["i"], to=7),
                 helper.make_node("Where", ["x", "i", "z"], ["y"])]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 9, [2])],
                                  [helper.make_empty_tensor_value_info("y")],
                                  [numpy_helper.from_array(np.array([0, 20], "f4"), "c"),
                                   numpy_helper.from_array(np.array([7, 7]), "z")])
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        np.testing.assert_array_equal(tenon.onnx.Model(model).run([np.array([False, True])])[0], [7, 2])


class Kept(unittest.TestCase):
    def model(self):
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, ["n", 8])],
                                  [helper.make_empty_tensor_value_info("y")],
                                  [numpy_helper.from_array(real(8, 8), "w")])
        return tenon.onnx.Model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))

    def test_nothing_is_left_of_reading(self):
        """Nothing waits for the collector: a read program holds its weights once, and no memory of a graph."""
        proto = self.model().proto
        gc.collect()
        gc.disable()
        try:
            kept = [tenon.onnx.load(proto) for _ in range(2)]
            with self.assertRaises(tenon.Error):
                tenon.onnx.load(proto, shapes={"x": (2, 9)})
            left = [one for one in gc.get_objects() if isinstance(one, (Builder, Value))]
        finally:
            gc.enable()
        self.assertEqual((len(kept), left), (2, []))

    def test_several_threads(self):
        nodes = [helper.make_node("MatMul", [f"x{i}", "w"], [f"x{i + 1}"]) for i in range(20)]
        weight = real(128, 128) / 12
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x0", 1, ["n", 128])],
                                  [helper.make_empty_tensor_value_info("x20")], [numpy_helper.from_array(weight, "w")])
        model = tenon.onnx.Model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), threads=1)
        x = real(200, 128)
        want = {rows: model.run([x[:rows]])[0] for rows in (200, 150, 100, 60)}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for rows, got in [(rows, pool.submit(model.run, [x[:rows]])) for rows in (200, 60, 100, 150, 200, 60) * 4]:
                np.testing.assert_array_equal(got.result()[0], want[rows])

    def test_many_sizes_are_run_by_one_program(self):
        model = self.model()
        for rows in (1, 2, 3, 4, 9, 2, 30):
            x = real(rows, 8)
            np.testing.assert_allclose(model.run([x])[0], x @ numpy_helper.to_array(model.proto.graph.initializer[0]),
                                       rtol=1e-4, atol=1e-5)
        self.assertEqual(len(model._programs), 3)
        self.assertIs(model.session({"x": real(5, 8)})[0], model.session({"x": real(6, 8)})[0])

    def test_sizes_that_only_a_program_of_their_own_can_run(self):
        nodes = [helper.make_node("Reshape", ["x", "s"], ["y"]), helper.make_node("Softmax", ["y"], ["z"], axis=-1)]
        for sizes in ([-1, 3], [2, -1]):  # whether 3 divides n is not known; 2 divides none of the last sizes
            graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["n"])],
                                      [helper.make_empty_tensor_value_info("z")],
                                      [numpy_helper.from_array(np.array(sizes), "s")])
            model = tenon.onnx.Model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
            for count in (6, 12, 18, 24, 30, 36):
                x = real(count)
                wide = np.exp(x.reshape(sizes))
                np.testing.assert_allclose(model.run([x])[0], wide / wide.sum(-1, keepdims=True), rtol=1e-4)
            with self.assertRaises(tenon.Error):
                model.run([real(7)])

    @unittest.mock.patch.object(module, "_READ_BEFORE_OPEN", 100)
    def test_programs_are_limited_in_number_and_in_the_bytes_of_their_weights(self):
        for name, limit, left in (("MOST_PROGRAMS", 5, 5), ("MOST_BYTES", 3 * 256, 3), ("MOST_BYTES", 0, 2)):
            with unittest.mock.patch.object(kept, name, limit):
                model = self.model()
                for rows in range(1, 10):
                    model.run([np.ones((rows, 8), "f4")])
                self.assertEqual(len(model._programs), left)

    def test_those_used_last_are_kept(self):
        with unittest.mock.patch.object(kept, "MOST_PROGRAMS", 2):
            model = self.model()
            first, _ = model.session({"x": np.ones((1, 8), "f4")})
            for rows in (2, 1, 3, 1):
                now, _ = model.session({"x": np.ones((rows, 8), "f4")})
            self.assertIs(now, first)


class Open(unittest.TestCase):
    def test_integer_convolution_whose_zero_point_is_computed(self):
        nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["c", "s", "z"]),
                 helper.make_node("ConvInteger", ["c", "w", "z"], ["y"], pads=[1, 2, 1, 1, 0, 1], strides=[1, 2, 1])]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", 2, 4, 5, 3])],
                                  [helper.make_empty_tensor_value_info("y")],
                                  [numpy_helper.from_array(codes(3, 2, 3, 2, 3, dtype="i1"), "w")])
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        session = tenon.Session(tenon.onnx.load(model))
        runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for count in (1, 2):
            x = real(count, 2, 4, 5, 3)
            np.testing.assert_array_equal(session.forward(x)[0].numpy(), runtime.run(None, {"x": x})[0])

    def test_places_of_maxima_of_any_number_of_images(self):
        node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 3], strides=[2, 1], pads=[0, 1, 1, 0])
        graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, ["n", 3, 5, 6])],
                                  [helper.make_empty_tensor_value_info(name) for name in ("y", "i")])
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        session, runtime = tenon.Session(tenon.onnx.load(model)), onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"])
        for count in (1, 4):
            x = real(count, 3, 5, 6)
            for one, want in zip(session.forward(x), runtime.run(None, {"x": x})):
                np.testing.assert_array_equal(one.numpy(), want)

    def test_spectra_of_signals_without_a_last_axis(self):
        node = helper.make_node("STFT", ["x", "step", "window"], ["y"], onesided=1)
        constants = [numpy_helper.from_array(np.array(4), "step"),
                     numpy_helper.from_array(np.hanning(8).astype("f4"), "window")]
        x, results = real(2, 30), []
        for given in (x, x[..., None]):
            graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, given.shape)],
                                      [helper.make_tensor_value_info("y", 1, None)], constants)
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
            results.append(tenon.onnx.Model(model).run([given])[0])
        np.testing.assert_array_equal(*results)
        np.testing.assert_allclose(results[0][:, 1, 3, 0], (x[:, 4:12] * np.hanning(8) * np.cos(
            2 * np.pi * 3 * np.arange(8) / 8)).sum(1), rtol=1e-4, atol=1e-4)


class WrittenLoops(unittest.TestCase):
    """Loops with a condition and branches as Loop and If."""

    def check(self, function, given, weights=None, **types):
        """A program and the model of it give the same for each of the inputs; returns the ops of its main graph."""
        program = tenon.export(function, **types)
        model = tenon.onnx.to_model(program, weights)
        session = tenon.Session(program, weights)
        runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        again = tenon.onnx.Model(model)
        for inputs in given:
            inputs = dict(zip(types, inputs, strict=True))
            wanted = runtime.run(None, inputs)
            for made in ([one.numpy() for one in session.forward(**inputs)], again.run(inputs)):
                for got, want in zip(made, wanted, strict=True):
                    self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))
                    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        return [node.op_type for node in model.graph.node]

    def test_loops_that_values_end(self):
        def root(a):
            return tenon.while_loop(lambda x, before, n: (abs(x - before) > 1e-4).any(),
                                    lambda x, before, n: ((x + a / x) * 0.5, x, n + 1),
                                    (a, a * 2.0, ops.full((), 0, "i64")), limit=20)

        made = self.check(root, [(np.float32([2, 9, 100]),), (np.float32([1, 1, 1]),), (np.float32([1e9, 1, 2]),)],
                          a="f32[3]")
        self.assertEqual(made.count("Loop"), 1)
        self.check(lambda x: tenon.while_loop(lambda x: x < 0.0, lambda x: x + 1.0, x, limit=0),
                   [(np.array(-3, "f4"),)], x="f32[]")

    def test_branches_and_loops_within_loops(self):
        def collatz(n):
            def step(n, steps):
                n = tenon.cond((n % 2) == 0, lambda: n // 2, lambda: n * 3 + 1)
                return n, tenon.while_loop(lambda s: s % 7 != 0, lambda s: s + n, steps + 1, limit=5)

            return tenon.while_loop(lambda n, steps: n != 1, step, (n, ops.full((), 0, "i64")), limit=1000)

        self.check(collatz, [(np.array(n),) for n in (1, 2, 27, 97)], n="i64[]")
        made = self.check(lambda on, x: tenon.cond(on, lambda: (x * 2.0, x.sum()), lambda: (x, x.max())),
                          [(np.array(on), real(4)) for on in (True, False)], on="bool[]", x="f32[4]")
        self.assertEqual(made.count("If"), 2)

    def test_scans_and_updates(self):
        def cumulative(x, start):
            def step(carry, row):
                carry = carry * 0.5 + row
                return carry, carry.sum()

            return tenon.scan(step, start, x)

        self.check(cumulative, [(real(n, 3), real(3)) for n in (1, 5, 12)], x="f32[N, 3]", start="f32[3]")

        def put(on, table, at):
            return tenon.cond(on, lambda now: ops.update_slice(now, at, table[0] * 2.0), lambda now: now, carry=table)

        self.check(put, [(np.array(on), real(4, 2), np.array(3)) for on in (True, False)],
                   on="bool[]", table="f32[4, 2]", at="i64[]")

    def test_weights_within(self):
        rng = np.random.default_rng(2)
        weights = {"blk.0.w": rng.random((3, 3), np.float32) / 4}

        def forward(x):
            w = tenon.build.weight("blk.0.w", "f32[3, 3]")
            return tenon.while_loop(lambda x: x.sum() < 50.0, lambda x: ops.linear(x, w) + x, x, limit=40)

        self.check(forward, [(np.abs(real(3)),), (np.float32([100, 0, 0]),)], weights, x="f32[3]")
        text = """# tenon 1.0
from __future__ import annotations
from tenon.ir import *

module("own", opset=1)

def step(on: bool, x: f32[2], i: i64, s: Scope):
    w: f32[2] = const(s, "w")
    y: f32[2] = add(x, w)
    return on, y

def forward(on: bool, x: f32[2]):
    s0 = scope("blk")
    c0 = pack(on, x)
    c1 = repeat(step, {count}, c0, s0, condition=0)
    y: f32[2] = item(c1, 1)
    return y
"""
        own = {f"blk.{i}.w": np.float32([i + 1, 2]) for i in range(2)}
        with self.assertRaisesRegex(tenon.UnsupportedError, "each iteration .* has a weight of its own"):
            tenon.onnx.to_model(tenon.parse(text.replace("{count}", "2")), own)
        model = tenon.onnx.to_model(tenon.parse(text.replace("{count}", "1")), own)  # a branch
        runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for on, want in ((True, [6, 8]), (False, [5, 6])):
            [got] = runtime.run(None, {"on": np.array(on), "x": np.float32([5, 6])})
            np.testing.assert_array_equal(got, want)


if __name__ == "__main__":
    unittest.main()

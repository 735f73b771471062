"""Arrays: to and from numpy and DLPack without copies, types, lifetimes."""

import gc
import pathlib
import pickle
import tempfile
import types
import unittest
import weakref

import numpy as np

import tenon

SEED = np.random.SeedSequence().entropy


def address(array):
    return array.__array_interface__["data"][0]


class Arrays(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}")
        self.random = np.random.default_rng(SEED)

    def test_memory_of_numpy_is_shared(self):
        for dtype in "bool i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8".split():
            for shape in [(), (1,), (7,), (3, 5), (2, 0, 3), (2, 3, 4, 5)]:
                given = np.asarray(self.random.random(shape) * 100).astype(dtype)
                array = tenon.array(given)
                self.assertEqual(array.shape, shape)
                self.assertEqual(array.dtype.numpy_name, given.dtype.name)
                back = array.numpy()
                np.testing.assert_array_equal(back, given)
                if given.size:
                    self.assertEqual(address(back), address(given))
                    self.assertFalse(back.flags.writeable)

    def test_memory_of_copies_is_ones_own(self):
        for made in (tenon.array([1.0, 2.0]), tenon.array([1, 2]), tenon.array(np.ones((3, 4))[::2, ::2]), tenon.array(3),
                     tenon.array(np.ones(3)).astype("f32"), tenon.array(np.ones(3)).copy(),
                     tenon.Buffer(b"12345678", "i64[]"), tenon.HostBuffer([1, 2])):
            self.assertFalse(made.is_read_only)
            made.numpy()[...] = 7
            self.assertTrue((made == 7).all())

    def test_large_integers(self):
        self.assertEqual(tenon.array([1, 2**63 + 1]).tolist(), [1, 2**63 + 1])
        self.assertEqual(tenon.array([[1, 2**63 + 1]], "u64").tolist(), [[1, 2**63 + 1]])
        self.assertEqual(tenon.array([1, 2**63]).dtype, "u64")
        self.assertEqual(tenon.array([-1, 2**63], "f64").tolist(), [-1.0, 2.0**63])
        self.assertEqual(tenon.array([1.0, 2**63]).dtype, "f32")
        with self.assertRaisesRegex(tenon.Error, "no type holds together"):
            tenon.array([-1, 2**63])

    def test_copies_that_are_asked_for(self):
        given = self.random.random(3).astype("f4")
        for kind in (tenon.Buffer, tenon.HostBuffer):
            shared, own = kind(given), kind([1.0, 2.0])
            for array in (shared, own):
                for copy in (None, False, True):
                    made = np.from_dlpack(array, copy=copy)
                    self.assertEqual(address(made) == address(array.numpy()), copy is not True)
                    made = array.__array__(copy=copy)
                    self.assertEqual(address(made) == address(array.numpy()), copy is not True)
                with self.assertRaises(ValueError):
                    array.__array__("f8", copy=False)
                self.assertEqual(array.__array__("f8", copy=True).dtype, "f8")
            # Consumers before DLPack 1.0, which cannot know that memory is read only, get a copy.
            self.assertIsNotNone(shared.__dlpack__())
            with self.assertRaises(BufferError):
                shared.__dlpack__(copy=False)
            shared.__dlpack__(copy=False, max_version=(1, 0))
            own.__dlpack__(copy=False)

            class Old:  # a consumer's view of it without max_version
                def __init__(self, array):
                    self.array = array

                def __dlpack__(self, **_):
                    return self.array.__dlpack__()

                def __dlpack_device__(self):
                    return self.array.__dlpack_device__()

            self.assertNotEqual(address(np.from_dlpack(Old(shared))), address(given))
            self.assertEqual(address(np.from_dlpack(Old(own))), address(own.numpy()))

    def test_strided_arrays_are_read(self):
        given = self.random.random((6, 8)).astype("f4")
        for view in (given.T, given[::2], given[:, ::-1], given[1:5, 2:7], np.broadcast_to(given[0], (3, 8))):
            np.testing.assert_array_equal(tenon.array(view).numpy(), view)

    def test_conjugations_that_are_only_noted(self):
        given = self.random.random((3, 2)).astype("f4").view("c8")

        class Noted:  # as torch's tensors, whose DLPack has the memory as it is
            def __dlpack__(self, **options):
                return given.__dlpack__(**options)

            def __dlpack_device__(self):
                return given.__dlpack_device__()

            def resolve_conj(self):
                return types.SimpleNamespace(resolve_neg=given.conj)

        for array in (tenon.Buffer(Noted()), tenon.HostBuffer(Noted())):
            np.testing.assert_array_equal(array.numpy(), given.conj())
        try:
            import torch
        except ImportError:
            return
        z = torch.from_numpy(given)
        session = tenon.Session(tenon.export(lambda x: x + 0.0, "f32[3, 1]"))
        for one in (z.conj(), z.conj().imag, z):
            np.testing.assert_array_equal(tenon.Buffer(one).numpy(), one.resolve_conj().resolve_neg().numpy())
        np.testing.assert_array_equal(session.forward(z.conj().imag)[0].numpy(), given.conj().imag)

    def test_misaligned_arrays_are_read(self):
        raw = np.zeros(41, "u1")
        view = raw[1:].view("f4")
        view[:] = self.random.random(10)
        np.testing.assert_array_equal(tenon.array(view).numpy(), view)

    def test_dlpack_both_ways_shares_memory(self):
        given = self.random.random((4, 4)).astype("f4")
        result = tenon.ops.add(given, given)
        through = np.from_dlpack(result)
        self.assertEqual(address(through), address(result.numpy()))
        np.testing.assert_array_equal(through, given + given)
        self.assertEqual(result.__dlpack_device__(), (1, 0))

        class OnlyDlpack:
            def __dlpack__(self, **options):
                return given.__dlpack__(**options)

            def __dlpack_device__(self):
                return given.__dlpack_device__()

        self.assertEqual(address(tenon.array(OnlyDlpack()).numpy()), address(given))

    def test_memory_lives_as_long_as_it_is_used(self):
        given = np.arange(1000, dtype="f4")
        died = weakref.ref(given)
        array = tenon.array(given)
        del given
        gc.collect()
        self.assertIsNotNone(died())
        view = array.numpy()
        del array
        gc.collect()
        self.assertEqual(view[999], 999)
        del view
        gc.collect()
        self.assertIsNone(died())

        result = tenon.ops.exp(np.zeros(10, "f4")).numpy()
        gc.collect()
        np.testing.assert_array_equal(result, np.ones(10))

    def test_narrow_floats(self):
        import ml_dtypes

        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            given = self.random.standard_normal((3, 4)).astype(getattr(ml_dtypes, name))
            array = tenon.array(given)
            self.assertEqual(array.dtype, tenon.DType(name))
            back = array.numpy()
            self.assertEqual(back.dtype, given.dtype)
            np.testing.assert_array_equal(back.view("u1"), given.view("u1"))
            self.assertEqual(address(back), address(given))
            wide = array.astype("f32").numpy()
            np.testing.assert_array_equal(wide, given.astype("f4"))
            np.testing.assert_array_equal(tenon.array(wide).astype(name).numpy().view("u1"), given.view("u1"))

    def test_block_types(self):
        given = self.random.standard_normal((2, 64)).astype("f4")
        blocks = tenon.array(given).astype("q8_0")
        self.assertEqual((blocks.shape, blocks.nbytes), ((2, 64), 2 * 2 * 34))
        np.testing.assert_allclose(blocks.astype("f32").numpy(), given, atol=0.03)
        with self.assertRaises(tenon.Error) as raised:
            blocks.numpy()
        self.assertEqual(raised.exception.code, "UnsupportedDType")

    def test_numbers_and_lists(self):
        self.assertEqual(tenon.array([1.5, 2]).dtype, "f32")
        self.assertEqual(tenon.array([1, 2]).dtype, "i64")
        self.assertEqual(tenon.array([[True], [False]]).shape, (2, 1))
        self.assertEqual(tenon.array([1, 2], "f16").dtype, tenon.f16)
        self.assertEqual(tenon.array(2.5).item(), 2.5)
        self.assertIs(tenon.array(True).item(), True)
        self.assertEqual(int(tenon.array(7)), 7)
        with self.assertRaises(tenon.Error) as raised:
            tenon.array([object()])
        self.assertEqual(raised.exception.code, "UnsupportedDType")
        with self.assertRaises(tenon.Error) as raised:
            tenon.array([1, 2]).item()
        self.assertEqual(raised.exception.code, "BadShape")

    def test_pickles(self):
        given = self.random.random((3, 3)).astype("f4")
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(tenon.array(given))).numpy(), given)
        blocks = tenon.array(self.array_of_blocks()).astype("q4_k")
        for array in (blocks, blocks.to_host(), tenon.array(given.T), tenon.array(np.zeros((0, 3), "f4"))):
            copy = pickle.loads(pickle.dumps(array))
            self.assertEqual((type(copy), copy.type, copy.tobytes()), (type(array), array.type, array.tobytes()))
        for value in (tenon.f16, tenon.DType("q4_k"), tenon.Shape("f32[B, 3]")):
            self.assertEqual(pickle.loads(pickle.dumps(value)), value)

    def array_of_blocks(self):
        return self.random.standard_normal((2, 256)).astype("f4")

    def test_types_and_shapes(self):
        self.assertEqual(tenon.DType("float32"), tenon.f32)
        self.assertEqual(tenon.f32, "f32")
        self.assertEqual(tenon.DType(np.float64), tenon.f64)
        self.assertEqual(tenon.DType(np.dtype("int8")), tenon.i8)
        self.assertEqual({tenon.f32: 1}[tenon.DType("f32")], 1)
        self.assertEqual(repr(tenon.Shape((2, "S", None), "i8")), "i8[2, S, _]")
        self.assertEqual(tenon.Shape("i8[2, S, _]").dims, (2, "S", None))
        self.assertEqual(tenon.Shape("f32[]").dims, ())
        self.assertEqual(tenon.Shape((2, 3)).elements, 6)
        self.assertEqual(tenon.Shape("f32"), tenon.Shape((), "f32"))  # a scalar, as programs spell it
        self.assertEqual(tenon.Shape("f32[ 2 , B ]").dims, (2, "B"))
        for wrong in ("f32[1 2]", "f32[A B]", ["N]"], ["2"], [""], ["A B"], "f99", "f99[2]", "f32[2", "f32[2,,3]", "f32[,]", "[2]", "f32[-1]", "f32[2*B]", "f32[2B]"):
            with self.assertRaises(tenon.Error, msg=wrong):
                tenon.Shape(wrong)
        for wrong in ((-1, 3), (2**63 - 1, -(2**62) - 1)):
            with self.assertRaises(tenon.InputError):
                tenon.Shape(wrong)

    def test_devices(self):
        device = tenon.Device.open("npu://sim")
        given = self.random.random((5, 5)).astype("f4")
        array = tenon.array(given).to(device)
        self.assertEqual(array.device.url, device.url)
        np.testing.assert_array_equal(array.numpy(), given)
        np.testing.assert_array_equal(array.to("cpu:").numpy(), given)
        region = device.mem_region()
        chunk = region.malloc(256)
        self.assertEqual(region.usage["used_bytes"] >= 256, True)
        chunk.write(b"hello", 3)
        self.assertEqual(chunk.read(3, 5), b"hello")
        for offset, size in ((0, 257), (256, 1), (2**63, 2)):
            with self.assertRaises(tenon.Error):
                chunk.read(offset, size)
        chunk.free()
        held = tenon.Device.open("cpu:").mem_region().malloc(64)
        array = held.buffer("f32[4]").numpy()
        with self.assertRaisesRegex(tenon.Error, "arrays are in this memory"):
            held.free()
        array[:] = 1  # it is still there
        del array
        held.free()
        with self.assertRaises(tenon.Error) as raised:
            chunk.read(0, 1)
        self.assertEqual(raised.exception.code, "StaleHandle")
        self.assertIn("npu", tenon.Device.schemes())
        with self.assertRaises(tenon.UnsupportedError) as raised:
            tenon.Device.open("nothing://here")
        self.assertEqual(raised.exception.code, "DeviceUnavailable")

    def test_errors_keep_their_facts(self):
        with self.assertRaises(tenon.InputError) as raised:
            tenon.open("no/such/file.gguf")
        error = raised.exception
        self.assertEqual((error.code, error.number), ("NotFound", 11002))
        self.assertIn("file.gguf", error.where)
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(copy), str(copy), copy.code), (type(error), str(error), error.code))
        self.assertIsInstance(error, ValueError)
        self.assertIn("NotFound", tenon.error_codes)


class Habits(unittest.TestCase):
    """What users of numpy try."""

    def test_as_python_s_own(self):
        x = tenon.array(np.arange(6, dtype="f4").reshape(2, 3))
        self.assertEqual(x.tolist(), [[0, 1, 2], [3, 4, 5]])
        self.assertTrue(3.0 in x and 7.0 not in x)
        self.assertEqual("abc"[tenon.array(1)], "b")
        for wrong in (tenon.array(1.0), tenon.array(True)):
            with self.assertRaisesRegex(TypeError, "is no integer"):
                "abc"[wrong]
        self.assertEqual(f"{tenon.array(3.14159):.2f} {tenon.array(2)}", "3.14 2")
        self.assertEqual((x.reshape(3, 2).shape, x.reshape(-1).shape, x.permute(1, 0).shape), ((3, 2), (6,), (3, 2)))

    def test_weights_of_a_path(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "w.safetensors")
            tenon.save_safetensors(path, {"w": np.array([2, 3], "f4")})
            program = tenon.export(lambda x: x * tenon.build.weight("w", "f32[2]"), x="f32[2]")
            for given in (path, str(path)):
                self.assertEqual(tenon.Session(program, given).forward([1.0, 2.0])[0].tolist(), [2, 6])
            with self.assertRaises(tenon.InputError):
                tenon.Session(program, folder + "/none.gguf")

    def test_narrow_floats_in_plain_python(self):
        program = tenon.export(lambda x: x * 2.0, x="bf16[N]")
        x = tenon.array([1.0, 2.5]).astype("bf16")
        for given in (x, x.numpy()):
            [y] = tenon.ir.parse(str(program)).run([given])
            self.assertEqual((y.numpy().tolist(), str(y.type)), ([2, 5], "bf16[2]"))

    def test_other_byte_orders_and_types(self):
        np.testing.assert_array_equal(tenon.array(np.array([1, 2.5], ">f4")).numpy(), np.array([1, 2.5], "f4"))
        np.testing.assert_array_equal(tenon.array(np.array([[1, 2]], ">i8").T).numpy(), [[1], [2]])
        fields = np.zeros(3, [("a", "u1"), ("b", "<f4"), ("c", ">i2")])  # elements 7 bytes apart
        fields["b"], fields["c"] = [1, 2.5, -1], [3, 2, 1]
        np.testing.assert_array_equal(tenon.array(fields["b"]).numpy(), fields["b"])
        np.testing.assert_array_equal(tenon.array(fields["c"]).numpy(), fields["c"])
        with self.assertRaisesRegex(tenon.InputError, "astype\\('complex64'\\)"):
            tenon.array(np.array([1j]))
        with self.assertRaisesRegex(TypeError, r"^mean\(\) got"):
            tenon.array([1.0]).mean(sideways=0)


if __name__ == "__main__":
    unittest.main()

"""CUDA devices: what is said without one, and arrays shared through DLPack, on the emulated device."""

import gc
import unittest

import numpy as np

import tenon
from tenon import ops


class Foreign:
    """An array of another library: hands out what a tenon.Buffer does, and notes what it is asked."""

    def __init__(self, buffer):
        self.buffer = buffer

    def __dlpack_device__(self):
        return self.buffer.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.buffer.__dlpack__(**options)


class WithoutADevice(unittest.TestCase):
    def test_opening_one_says_why(self):
        for url in ("cuda:99", "cuda:first"):
            for open_device in (tenon.Device, tenon.Device.open, tenon.Backend):
                with self.assertRaises(tenon.UnsupportedError) as caught:
                    open_device(url)
                self.assertEqual(caught.exception.code, "DeviceUnavailable")

    def test_arrays_of_one_are_refused_by_name(self):
        class Array:
            def __dlpack_device__(self):
                return 2, 99

        with self.assertRaises(tenon.UnsupportedError):
            tenon.array(Array())


def emulated():
    try:
        return tenon.Device.open("cuda:emulated")
    except tenon.UnsupportedError:
        return None


@unittest.skipIf(emulated() is None, "no emulated CUDA device in this build")
class Emulated(unittest.TestCase):
    def setUp(self):
        self.device = emulated()

    def test_ops_and_copies(self):
        x = tenon.array(np.arange(6, dtype="f4").reshape(2, 3)).to(self.device)
        self.assertEqual(x.region, "device")
        np.testing.assert_array_equal((x * 2).numpy(), np.arange(6).reshape(2, 3) * 2)
        self.assertEqual(ops.exp(x).device.url, "cuda:emulated")

    def test_one_url_is_one_device(self):
        self.assertEqual(tenon.array([1.0]).to("cuda:emulated").device.url, self.device.url)
        before = self.device.mem_region().usage["used_bytes"]
        kept = tenon.array([1.0]).to("cuda:emulated")
        self.assertGreater(self.device.mem_region().usage["used_bytes"], before)
        del kept

    def test_memory_is_shared_with_another_library(self):
        x = tenon.array(np.arange(12, dtype="f4").reshape(3, 4)).to(self.device)
        self.assertEqual(x.__dlpack_device__(), (2, 255))
        used = self.device.mem_region().usage["used_bytes"]
        for stream in (None, 1, 2, -1):
            x.__dlpack__(stream=stream)
        shared = tenon.array(Foreign(x))
        self.assertEqual(self.device.mem_region().usage["used_bytes"], used)
        self.assertEqual(shared.device.url, self.device.url)
        np.testing.assert_array_equal(shared.numpy(), x.numpy())
        np.testing.assert_array_equal((shared + 1).numpy(), np.arange(12).reshape(3, 4) + 1)
        del x
        gc.collect()
        np.testing.assert_array_equal(shared.numpy(), np.arange(12).reshape(3, 4))

    def test_shapes_and_types(self):
        for given in (np.float32(3), np.zeros((0, 3), "f4"), np.arange(7, dtype="i8"), np.ones((1, 2, 3), "f2")):
            x = tenon.array(np.asarray(given)).to(self.device)
            back = tenon.array(Foreign(x))
            self.assertEqual(back.shape, x.shape)
            self.assertEqual(back.dtype, x.dtype)
            np.testing.assert_array_equal(back.numpy(), given)

    def test_the_cpu_does_not_get_its_memory(self):
        x = tenon.array([1.0, 2.0]).to(self.device)
        with self.assertRaises((BufferError, TypeError, ValueError, RuntimeError)):
            np.from_dlpack(x)
        with self.assertRaises(BufferError):
            x.__dlpack__(copy=True)


if __name__ == "__main__":
    unittest.main()

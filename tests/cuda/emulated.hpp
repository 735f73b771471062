// An emulated CUDA device, with everything registered that a session on it may use.
#pragma once

#include "emulation/emulation.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/cuda.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>

#include <cstdlib>
#include <string>

namespace tenon::testing {

/// `keys`: "?memory=..." and others of register_emulation() and docs/cuda.md. By default kernels
/// compute everything.
inline DevicePtr emulated_device(const std::string& keys = "?libraries=off") {
  register_cpu_backend();
  register_reference_backend();
  register_cuda_backend();
  cuda::register_emulation();
  return Device::open("cuda:emulated" + keys);
}

/// Of tests that a GPU passes, too: the device of TENON_TEST_CUDA_DEVICE, or an emulated one.
/// `keys` are those of the latter, and take the place of the former's.
inline DevicePtr test_device(const std::string& keys = "?libraries=off") {
  const char* const url = std::getenv("TENON_TEST_CUDA_DEVICE");
  DevicePtr emulated = emulated_device(keys);
  if (url == nullptr) return emulated;
  static const DevicePtr kept = Device::open(url);  // making a context takes long
  const std::string given(url);
  return Device::open(keys == "?libraries=off" ? given : given.substr(0, given.find('?')) + keys);
}

}  // namespace tenon::testing

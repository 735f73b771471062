// An emulated CUDA device, with everything registered that a session on it may use.
#pragma once

#include "emulation/emulation.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/cuda.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>

#include <cstdlib>
#include <optional>
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
/// `keys` take the place of those of that device's URL; without, an emulated one has no libraries.
inline DevicePtr test_device(const std::optional<std::string>& keys = std::nullopt) {
  const char* const url = std::getenv("TENON_TEST_CUDA_DEVICE");
  DevicePtr emulated = emulated_device(keys.value_or("?libraries=off"));
  if (url == nullptr) return emulated;
  static const DevicePtr kept = Device::open(url);  // making a context takes long
  const std::string given(url);
  return Device::open(keys ? given.substr(0, given.find('?')) + *keys : given);
}
/// Whether test_device() is a GPU.
inline bool has_gpu() { return std::getenv("TENON_TEST_CUDA_DEVICE") != nullptr; }

}  // namespace tenon::testing

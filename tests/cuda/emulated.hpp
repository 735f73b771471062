// An emulated CUDA device, with everything registered that a session on it may use.
#pragma once

#include "emulation/emulation.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/cuda.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>

#include <string>

namespace tenon::testing {

/// `keys`: "?memory=..." and others of register_emulation().
inline DevicePtr emulated_device(const std::string& keys = "") {
  register_cpu_backend();
  register_reference_backend();
  register_cuda_backend();
  cuda::register_emulation();
  return Device::open("cuda:emulated" + keys);
}

}  // namespace tenon::testing

#pragma once

#include <tenon/device.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

// What an NPU of one's own must do, tried. Depends on no test framework: link tenon::npu_testkit
// and check that the list of findings is empty.
namespace tenon::testkit {

struct NpuCheckOptions {
  /// How long one command or one run of a network may take before that is a finding.
  std::chrono::milliseconds patience{30000};
  /// Random networks of each kind that are compared bit by bit.
  int networks = 3;
  std::uint64_t seed = 1;
};

/// Tries an NPU as docs/npu-device.md and docs/npu-isa.md describe it, and says what is wrong, one
/// sentence each with what was expected, what was found, and the section; none when all holds:
/// - regions, capability registers, values after a reset, read-only and reserved registers;
/// - memory over its whole extent, by the regions and by host DMA where there is one;
/// - the ring: fences, interrupts, copies, timestamps, its end, waits of several threads;
/// - errors: damaged programs, illegal instructions, accesses out of range, bad commands, each with
///   its code and place, and recovery by a reset of each level;
/// - random convolutions, products, element-wise ops and pools, bit by bit what the CPU computes in
///   integers; several backends, sessions, forks and threads at once;
/// - a child of fork() that is refused.
/// A part without which the next cannot be tried ends the check. The device must have no backend
/// (Errc::busy) and loses its memory's contents; afterwards it is as after a reset of level 2.
std::vector<std::string> check_npu(const DevicePtr& device, const NpuCheckOptions& options = {});

}  // namespace tenon::testkit

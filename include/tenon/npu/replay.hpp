#pragma once

#include <tenon/device.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace tenon::npu {

struct ReplayOptions {
  /// Maximal time to wait for each fence, interrupt, transfer or fault of the trace.
  std::chrono::milliseconds timeout{5000};
  /// Number of differences after which the replay ends.
  std::size_t max_differences = 20;
};

/// A difference between the device and the trace.
struct ReplayDifference {
  std::size_t line = 0;  ///< line of the trace, counted from 1
  std::string what;      ///< such as "fence is 1, was 2"
};

struct ReplayReport {
  std::size_t lines = 0;
  std::size_t register_writes = 0;
  std::size_t registers_compared = 0;
  std::size_t registers_skipped = 0;  ///< reads that depend on time: positions, states, cycles
  std::size_t waits = 0;              ///< for fences, interrupts, transfers, faults
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_compared = 0;
  std::vector<ReplayDifference> differences;
  bool gave_up = false;  ///< at `max_differences`

  bool matches() const noexcept { return differences.empty(); }
};

/// Replays the trace of a driver (`npu://sim?trace=FILE`) on an NPU: writes the same registers and
/// memory in the same order, compares everything that the driver read, and waits where the driver
/// waited. The device must be in its power-up state, and its memories at the addresses of
/// docs/npu-device.md.
///
/// Errors: Errc::bad_argument for a device that is not an NPU; Errc::syntax, naming "trace:line",
/// for an invalid line; Errc::device_lost; those of the device's memory and registers.
ReplayReport replay(Device& device, std::istream& trace, const ReplayOptions& options = {});

}  // namespace tenon::npu

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
  /// How long the device may take for each fence, interrupt, transfer or fault of the trace.
  std::chrono::milliseconds timeout{5000};
  /// Where a replay gives up.
  std::size_t max_differences = 20;
};

/// What the device did otherwise than the trace says.
struct ReplayDifference {
  std::size_t line = 0;  ///< of the trace, from 1
  std::string what;      ///< such as "fence is 1, was 2"
};

struct ReplayReport {
  std::size_t lines = 0;
  std::size_t register_writes = 0;
  std::size_t registers_compared = 0;
  std::size_t registers_skipped = 0;  ///< those that depend on time: positions, states, cycles
  std::size_t waits = 0;              ///< for fences, interrupts, transfers, faults
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_compared = 0;
  std::vector<ReplayDifference> differences;
  bool gave_up = false;  ///< at `max_differences`

  bool matches() const noexcept { return differences.empty(); }
};

/// Drives an NPU as a trace (`npu://sim?trace=FILE`) says its driver drove another: the same writes
/// to registers and memory, in that order, and a comparison of everything that the driver read.
/// Where the driver waited for the device, so does the replay. The device has to be as after
/// power-up, and its memories have to begin at the addresses of docs/npu-device.md.
///
/// Errors: Errc::bad_argument for a device that is no NPU; Errc::syntax naming "trace:line" for a
/// line that is none; Errc::device_lost; what memory and registers of the device report.
ReplayReport replay(Device& device, std::istream& trace, const ReplayOptions& options = {});

}  // namespace tenon::npu

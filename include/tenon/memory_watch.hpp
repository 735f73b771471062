#pragma once

#include <cstdint>

namespace tenon {

/// Additional interface of a backend on a device that others can reset, by which a session learns
/// that what it put into the device's memory may be gone.
class MemoryWatch {
 public:
  virtual ~MemoryWatch() = default;
  /// Another number whenever somebody else may have cleared the memory since the last call. A
  /// session asks before it copies inputs to the device, and after it has read the results: where
  /// the numbers differ, the run fails.
  virtual std::uint64_t memory_epoch() const = 0;
};

}  // namespace tenon

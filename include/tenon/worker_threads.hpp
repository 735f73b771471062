#pragma once

#include <cstdint>
#include <functional>

namespace tenon {

/// What a backend is, too, whose threads its callers may use for work of their own between runs: the CPU's.
class WorkerThreads {
 public:
  virtual ~WorkerThreads() = default;

  /// Calls `run` with each number in [0, count), on the backend's threads and the calling one, and returns when all calls
  /// have. It must not throw.
  virtual void share(std::int64_t count, const std::function<void(std::int64_t)>& run) const = 0;
};

}  // namespace tenon

#pragma once

#include "driver/driver.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tenon::cuda {

/// Copies between a device and memory of the CPU that is not pinned, in pieces through pinned
/// memory: while the device copies one, the CPU copies the next. Large copies have several lanes, a
/// thread and a stream each, since one thread does not keep the bus busy. Thread-safe.
class Staging {
 public:
  explicit Staging(DriverPtr driver, std::uint64_t piece_bytes = std::uint64_t{4} << 20);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void write(Address to, const void* from, std::uint64_t bytes);
  void read(void* to, Address from, std::uint64_t bytes);

 private:
  /// A stream, and pinned memory for two pieces.
  class Lane;
  /// Calls copy() for the pieces first, first + step, ... below `bytes`, on one lane or several.
  using Copy = std::function<void(Lane& lane, std::uint64_t first, std::uint64_t step)>;
  void run(std::uint64_t bytes, const Copy& copy);
  void run_lane(std::uint64_t first, std::uint64_t step, const Copy& copy);

  DriverPtr driver_;
  std::uint64_t piece_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> free_;
};

}  // namespace tenon::cuda

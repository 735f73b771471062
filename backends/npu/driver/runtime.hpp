// The device as the driver uses it: command ring, fences, interrupts, deadlines, recovery.
#pragma once

#include <tenon/backends/npu.hpp>
#include <tenon/device.hpp>
#include <tenon/memory.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <npu/isa/caps.hpp>
#include <npu/isa/control.hpp>
#include <npu/isa/registers.hpp>
#include <npu/isa/structures.hpp>

namespace tenon::npu {

/// Bytes that have to be in device memory: kept here too, so that damage is found and mended.
class DeviceImage {
 public:
  DeviceImage() = default;
  /// Allocates and uploads. Empty bytes take no memory.
  DeviceImage(MemRegion& region, std::vector<std::byte> bytes);

  bool is_empty() const noexcept { return bytes_.empty(); }
  std::uint64_t address() const { return chunk_.begin().addr(); }
  std::uint64_t size() const noexcept { return bytes_.size(); }
  void upload() const;
  /// Whether device memory holds these bytes.
  bool is_intact() const;

 private:
  std::vector<std::byte> bytes_;
  std::uint32_t crc_ = 0;
  MemChunk chunk_;
};

/// What the device answered to commands.
struct Outcome {
  enum class Kind : std::uint8_t { done, timeout, fault, removed };
  Kind kind = Kind::done;
  isa::ErrorCode error = isa::ErrorCode::none;
  int run = -1;  ///< which of the RUN commands was worked on; -1: none yet
  /// Instructions that LD, EX and ST held then; all ones: none. A fault's own comes first.
  std::array<std::uint32_t, 3> held{isa::gone, isa::gone, isa::gone};
  std::string message;  ///< what happened, with registers
};

class Runtime {
 public:
  explicit Runtime(DevicePtr device);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const isa::Caps& caps() const noexcept { return caps_; }
  const DevicePtr& device() const noexcept { return device_; }
  MemRegion& memory() const { return device_->mem_region("etm"); }

  // What follows needs the lock: one job at a time.
  std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }
  State state() {
    if (is_gone()) state_ = State::removed;
    return state_;
  }
  void set_state(State state) noexcept { state_ = state; }
  Counters& counters() noexcept { return counters_; }

  /// Submits the commands and waits for them.
  Outcome run(std::span<const isa::Descriptor> commands, std::chrono::nanoseconds deadline);
  /// Halts, resets and sets up the ring anew. False when the device is gone.
  bool reset();

  std::uint64_t counter(std::uint32_t offset) const;  ///< a latched 64-bit counter
  std::uint32_t read(std::uint32_t reg) const;
  void write(std::uint32_t reg, std::uint32_t value) const;
  void latch_counters() const { write(isa::reg::perf_latch, 1); }

  /// Registers that tell what the engines were at.
  std::string dump() const;

 private:
  void set_up();
  void submit(std::span<const isa::Descriptor> commands);
  Outcome wait(std::uint32_t fence, std::chrono::steady_clock::time_point until);
  Outcome fault() const;
  bool is_gone() const { return read(isa::reg::id) == isa::gone; }

  DevicePtr device_;
  isa::DeviceControl& control_;
  RegRegion& registers_;
  isa::Caps caps_;
  MemChunk ring_;
  std::uint32_t tail_ = 0;
  std::uint32_t fence_ = 0;  // the last one asked for
  mutable std::mutex mutex_;
  State state_ = State::open;
  Counters counters_;
};

}  // namespace tenon::npu

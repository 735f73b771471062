#pragma once

#include "sim_random_program.hpp"

#include <tenon/device.hpp>
#include <tenon/npu/isa/caps.hpp>
#include <tenon/npu/isa/control.hpp>
#include <tenon/npu/isa/program.hpp>
#include <tenon/npu/isa/registers.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tenon::npu::testing {

/// A simulated device with its five segments and a command ring: what a driver would set up.
class Rig {
 public:
  explicit Rig(const std::string& params = "", std::uint64_t segment_bytes = 1 << 20);
  Rig(DevicePtr opened, std::uint64_t segment_bytes);

  struct Outcome {
    isa::ErrorCode error = isa::ErrorCode::none;
    bool stuck = false;
    bool removed = false;
    bool finished() const noexcept { return error == isa::ErrorCode::none && !stuck && !removed; }
  };
  /// Puts the program into segment instr, runs it and a fence, and waits for either end.
  Outcome run(const isa::Program& program);
  Outcome run(const std::vector<std::byte>& assembled);
  /// Appends descriptors, without ringing; then ring() and wait().
  void push(const isa::Descriptor& descriptor);
  void ring();
  Outcome wait();

  /// Soft reset, and everything set up anew; what DDR holds stays.
  void recover();

  void fill(isa::Segment segment, const std::vector<std::byte>& bytes, std::uint64_t offset = 0);
  std::vector<std::byte> contents(isa::Segment segment) const;
  void write_ocm(std::uint64_t offset, const std::vector<std::byte>& bytes);
  std::vector<std::byte> read_ocm(std::uint64_t offset, std::uint64_t size) const;

  std::uint32_t reg(std::uint32_t offset) const;
  void set(std::uint32_t offset, std::uint32_t value);
  void simctl(std::uint32_t offset, std::uint32_t value);
  /// Latches, and reads a 64-bit counter.
  std::uint64_t counter(std::uint32_t offset);

  DevicePtr device;
  isa::DeviceControl& control;
  isa::Caps caps;
  RegRegion& npu;
  std::array<MemChunk, 5> segments;
  MemChunk queue;
  std::uint32_t tail = 0;
  std::uint32_t next_fence = 0;

 private:
  void set_up();
};

/// Puts what a random program reads into its segments, and zeros where it writes; takes its
/// results.
void prepare(Rig& rig, const RandomProgram& made);
std::vector<std::byte> output_of(Rig& rig, const RandomProgram& made);

/// `count` random bytes.
std::vector<std::byte> random_bytes(std::uint64_t seed, std::size_t count);

}  // namespace tenon::npu::testing

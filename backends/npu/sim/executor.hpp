#pragma once

#include "faults.hpp"
#include "footprint.hpp"
#include "hazards.hpp"
#include "kernels.hpp"
#include "memory.hpp"

#include <tenon/npu/isa/enums.hpp>
#include <tenon/npu/isa/instruction.hpp>

#include <atomic>
#include <cstdint>

namespace tenon::npu::sim {

/// What stops the device: thrown by what found it, caught where the ring is run.
struct Stop {
  isa::ErrorCode code = isa::ErrorCode::none;
  std::uint32_t engine = 0;  ///< as in error_info
  std::uint16_t layer = 0;
  std::uint64_t address = 0;
  std::uint32_t pc = 0;
  std::uint32_t pc2 = 0;
};
std::uint32_t engine_number(isa::Engine engine) noexcept;

/// Executes single instructions: bounds, records, hazards, injected faults, and the arithmetic.
class Executor {
 public:
  Executor(Memory& memory, Faults& faults, const Options& options, const std::atomic<bool>& abort);

  void start_program(const Segments& segments) {
    segments_ = segments;
    hazards_.start_program();
  }
  void take_token(isa::Engine engine, const Clock& clock) { hazards_.take(engine, clock); }
  void drained() { hazards_.join_all(); }

  struct Outcome {
    bool never_ends = false;  ///< its transfer timed out
    Clock clock{};            ///< what its tokens carry
  };
  /// Checks an instruction and records its accesses. Throws Stop before anything is written.
  Outcome begin(std::uint32_t pc, const isa::Instruction& instruction);
  /// The number of pieces of its work; it has ended when all of them were done, in order. Throws
  /// Stop and Aborted.
  std::uint64_t pieces(const isa::Instruction& instruction) const {
    return kernels_.pieces(instruction, segments_);
  }
  void work(std::uint32_t pc, const isa::Instruction& instruction, Part part);

  void set_strict(bool strict) noexcept { strict_ = strict; }
  /// OCM and ACC hold nothing that was written, or what the host wrote.
  void forget_written() { hazards_.forget_written(); }
  void mark_ocm_written(std::uint64_t offset, std::uint64_t size) {
    hazards_.mark_written({Space::ocm, 0, true, offset, size});
  }

 private:
  [[noreturn]] void stop(isa::ErrorCode code, std::uint64_t address, std::uint32_t other = 0) const;
  void check_bounds(const isa::Instruction& instruction) const;
  void check_order(isa::Engine engine, const isa::Instruction& instruction);
  void check_records(const isa::Instruction& instruction) const;
  void check_record(const std::byte* record, std::uint64_t address) const;
  void flip_output(const isa::Instruction& instruction);

  Memory& memory_;
  Faults& faults_;
  Kernels kernels_;
  Hazards hazards_;
  Segments segments_{};
  bool m8_;
  std::atomic<bool> strict_;
  Stop where_;  // of the instruction being executed
};

}  // namespace tenon::npu::sim

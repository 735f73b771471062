#pragma once

#include "memory.hpp"

#include <tenon/npu/isa/instruction.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon::npu::sim {

/// The place of a segment.
struct Window {
  std::uint64_t base = 0;
  std::uint64_t size = 0;
};
using Segments = std::array<Window, 5>;

/// Thrown by long work when the device is reset or taken away under it.
struct Aborted {};

/// A range of an instruction's work: pieces [first, first + count).
struct Part {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// What instructions compute: docs/npu-isa.md as code. Addresses have been checked before, and the
/// records of a Requant too.
class Kernels {
 public:
  Kernels(Memory& memory, const std::atomic<bool>& abort) : memory_(memory), abort_(abort) {}

  /// How many pieces an instruction is done in, one after the other: beats of 64 bytes of a
  /// transfer, pixels of a sum, lines of the vector unit. At least 1.
  std::uint64_t pieces(const isa::Instruction& instruction, const Segments& segments) const;
  /// Does some pieces; those of the front end have none that do anything.
  void execute(const isa::Instruction& instruction, const Segments& segments, Part part);

 private:
  void run(const isa::Load& i, const Segments& segments, Part part);
  void run(const isa::LoadP& i, const Segments& segments, Part part);
  void run(const isa::Gemm& i, const Segments& segments, Part part);
  void run(const isa::Conv& i, const Segments& segments, Part part);
  void run(const isa::Depthwise& i, const Segments& segments, Part part);
  void run(const isa::Requant& i, const Segments& segments, Part part);
  void run(const isa::Elementwise& i, const Segments& segments, Part part);
  void run(const isa::Pool& i, const Segments& segments, Part part);
  void run(const isa::Store& i, const Segments& segments, Part part);
  void run(const isa::Convert& i, const Segments& segments, Part part);
  void run(const isa::Common&, const Segments&, Part) {}

  void check_abort() const {
    if (abort_.load(std::memory_order_relaxed)) throw Aborted{};
  }
  const std::int8_t* line(std::uint64_t index) const noexcept {
    return reinterpret_cast<const std::int8_t*>(memory_.ocm().data()) + index * isa::line_bytes;
  }
  std::int8_t* line(std::uint64_t index) noexcept {
    return reinterpret_cast<std::int8_t*>(memory_.ocm().data()) + index * isa::line_bytes;
  }
  std::int32_t* acc_row(std::uint64_t row) noexcept {
    return memory_.acc().data() + row * isa::lanes;
  }
  /// Multiplies `rows` gathered rows (a_) by the gathered second operand (b_), block by block, and
  /// adds the result to ACC or stores it there.
  void multiply(const isa::Common& common, std::uint64_t first_row, std::uint64_t rows,
                std::uint64_t k, std::uint64_t n, std::uint64_t acc_row_index,
                std::uint64_t acc_block_stride);

  Memory& memory_;
  const std::atomic<bool>& abort_;
  // Operands widened to 16 bits, kept for their capacity: a_ is rows x k, b_ blocks x k x 32.
  std::vector<std::int16_t> a_;
  std::vector<std::int16_t> b_;
  std::vector<std::byte> staging_;
  std::vector<std::byte> other_staging_;
};

}  // namespace tenon::npu::sim

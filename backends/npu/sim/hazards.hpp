#pragma once

#include "footprint.hpp"

#include <tenon/npu/isa/instruction.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace tenon::npu::sim {

/// What an engine knows to have ended: of each engine, that many instructions.
using Clock = std::array<std::uint32_t, isa::engine_count>;

/// Finds accesses that no token orders, and reads of unwritten memory.
///
/// A vector clock per engine follows the tokens; each line of OCM and of DDR and each row of ACC
/// remembers the instruction that wrote it last and, per engine, the one that read it last. An
/// access is ordered when the engine's clock covers those it must come after.
class Hazards {
 public:
  Hazards(std::uint64_t ocm_bytes, std::uint64_t acc_bytes);

  /// A program begins: what was before is ordered before all of it.
  void start_program();
  /// A drain ended: likewise.
  void join_all();
  /// Begins instruction `pc` on `engine`; returns what its tokens carry.
  const Clock& begin(isa::Engine engine, std::uint32_t pc);
  /// Takes a token that carries `clock`; before begin() of the instruction that takes it.
  void take(isa::Engine engine, const Clock& clock);

  /// The pc of an instruction that this access races with, if there is one. DDR ranges count from
  /// address 0. Then enter() records the access.
  bool races(isa::Engine engine, const Range& range, std::uint32_t& other_pc) const;
  void enter(isa::Engine engine, const Range& range);

  /// Offset of the first byte of an OCM or ACC range that nothing has written; size when all was.
  std::uint64_t first_unwritten(const Range& range) const;
  void mark_written(const Range& range);
  void forget_written();

 private:
  struct Line {
    std::uint32_t write = 0;  // clock of the writer, 0: none
    std::uint8_t writer = 0;
    std::array<std::uint32_t, isa::engine_count> reads{};
  };
  static constexpr std::uint64_t line_bytes = 32;
  static constexpr std::uint64_t page_lines = 128;
  using Page = std::array<Line, page_lines>;

  const Line* find(const Range& range, std::uint64_t index) const;
  Line& line(const Range& range, std::uint64_t index);
  bool races(isa::Engine engine, const Line& line, bool write, std::uint32_t& other_pc) const;

  std::array<Clock, isa::engine_count> clocks_{};
  std::array<std::uint32_t, isa::engine_count> bases_{};  // clocks when pcs_ was cleared
  std::array<std::vector<std::uint32_t>, isa::engine_count>
      pcs_;  // by clock, since the program began
  std::vector<Line> ocm_;
  std::vector<Line> acc_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> ddr_;
  std::vector<std::uint32_t> ocm_written_;  // a bit per byte, 32 bytes a word
  std::vector<bool> acc_written_;           // per row
};

}  // namespace tenon::npu::sim

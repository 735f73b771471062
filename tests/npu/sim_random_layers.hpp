#pragma once

#include "sim_random_program.hpp"

#include <tenon/npu/isa/instruction.hpp>

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace tenon::npu::testing {

/// A layer: how many tiles of output rows there are at most, what is loaded once, and what one tile
/// [first, first + rows) does. Offsets in OCM are lines; buffers alternate between tiles.
struct Layer {
  std::uint32_t out_rows = 1;
  std::vector<isa::Instruction> constants;  // LD, once
  struct Buffers {
    std::uint32_t in, out, acc;
  };
  std::function<void(std::uint32_t first, std::uint32_t rows, const Buffers&,
                     std::vector<isa::Instruction>& load, std::vector<isa::Instruction>& compute,
                     std::vector<isa::Instruction>& store)>
      tile;
};

inline constexpr std::uint32_t constant_line = 0;           // constants: 64 KiB
inline constexpr std::uint32_t in_line[2] = {2048, 4096};   // inputs: 64 KiB each
inline constexpr std::uint32_t out_line[2] = {6144, 7168};  // outputs: 32 KiB each
inline constexpr std::uint32_t acc_half =
    random_acc_bytes / isa::acc_row_bytes / 2;  // and half of ACC

constexpr std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

/// Draws layers of random kinds and shapes, and the data they read.
class LayerMaker {
 protected:
  explicit LayerMaker(std::uint64_t seed);

  Layer draw_layer();

  std::uint32_t any_bits() { return static_cast<std::uint32_t>(random_()); }
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  std::uint32_t between(std::uint32_t lo, std::uint32_t hi) { return lo + below(hi - lo + 1); }
  std::int32_t signed_between(std::int32_t lo, std::int32_t hi) {
    return lo + static_cast<std::int32_t>(below(static_cast<std::uint32_t>(hi - lo + 1)));
  }

  std::uint32_t add_weights(std::uint32_t bytes, bool no_minimum = true);
  std::uint32_t add_records(std::uint32_t channels, std::uint32_t sum_bits);
  isa::Load load(std::uint32_t segment, std::uint32_t offset, std::uint32_t line,
                 std::uint32_t bytes);
  /// Somewhere in the input where `bytes` fit.
  std::uint32_t input_at(std::uint32_t bytes);
  std::uint32_t output_at(std::uint32_t bytes);
  void limits(std::int32_t& lo, std::int32_t& hi);
  isa::Requant requant(std::uint32_t channels, std::uint32_t param_line);
  /// Blocks of `rows` rows of `row_lines` lines from OCM to their places in the output.
  void store_blocks(std::vector<isa::Instruction>& to, std::uint32_t line, std::uint32_t blocks,
                    std::uint32_t block_lines, std::uint32_t rows, std::uint32_t row_lines,
                    std::uint32_t offset, std::uint32_t block_bytes, std::uint32_t first_row);

  RandomProgram result_;
  std::uint32_t out_end_ = 0;

 private:
  /// Input rows that output rows [first, first + rows) need, as a tile and its padding.
  struct Halo {
    std::uint32_t first, rows, pad;
  };
  static Halo halo(std::uint32_t first, std::uint32_t rows, std::uint32_t stride,
                   std::uint32_t extent, std::uint32_t pad, std::uint32_t in_h);
  Layer convolution();
  Layer product();
  Layer depthwise();
  Layer pool();
  /// A tile with padding on all sides and gaps between its rows, copied line by line.
  Layer movement();
  Layer elementwise();

  std::mt19937_64 random_;
};

}  // namespace tenon::npu::testing

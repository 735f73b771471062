#include "integer_math.hpp"

#include <tenon/npu/isa/instruction.hpp>

#include <cmath>

// The rules of the instruction set that widths of fields do not already say. docs/npu-isa.md states
// each with its instruction.

namespace tenon::npu::isa {
namespace {

constexpr std::uint32_t max_kernel = 11;
constexpr std::uint32_t max_depthwise_kernel = 7;
constexpr std::uint32_t max_window = 15;
constexpr std::uint32_t max_shift = 47;
constexpr std::int32_t min_multiplier = -32767;

bool is_segment(std::uint32_t value) noexcept { return is_value<Segment>(value); }
bool is_place(std::uint32_t value) noexcept { return is_segment(value) || value == ocm_place; }

std::string_view rule(const Load& i) noexcept {
  if (!is_segment(i.segment)) return "segment 0 to 4";
  const std::uint64_t width = std::uint64_t{i.pad_left} + i.row_bytes + i.pad_right;
  if (i.pad_top + i.rows + i.pad_bottom > 1 && i.ocm_stride < width) {
    return "ocm_stride at least pad_left + row_bytes + pad_right";
  }
  return {};
}

std::string_view rule(const LoadP& i) noexcept {
  if (!is_segment(i.segment)) return "segment 0 to 4";
  if (i.offset % 8 != 0) return "offset a multiple of 8";
  return {};
}

/// Whether the blocks of an output lie apart: an overlapping one would be written twice.
bool blocks_apart(std::uint32_t blocks, std::uint64_t stride, std::uint64_t size) noexcept {
  return blocks == 1 || stride >= size;
}

std::string_view rule(const Gemm& i) noexcept {
  if (i.a_log2c > 5) return "at most 32 channels per pixel";
  if (!blocks_apart(blocks_of(i.n), i.acc_block_stride, i.m)) return "acc_block_stride at least m";
  return {};
}

std::string_view rule(const Conv& i) noexcept {
  if (i.in_log2c > 5) return "at most 32 channels per pixel";
  if (i.kernel_h > max_kernel || i.kernel_w > max_kernel) return "kernel at most 11";
  const std::uint64_t c = std::uint64_t{1} << i.in_log2c;
  const std::uint64_t padded = round_up(i.in_channels, c);
  if (padded * i.kernel_h * i.kernel_w > max_reduction) return "a sum of at most 131072 products";
  if (!blocks_apart(blocks_of(i.out_channels), i.acc_block_stride,
                    std::uint64_t{i.out_h} * i.out_w)) {
    return "acc_block_stride at least out_h * out_w";
  }
  return {};
}

std::string_view rule(const Depthwise& i) noexcept {
  if (i.kernel_h > max_depthwise_kernel || i.kernel_w > max_depthwise_kernel) {
    return "kernel at most 7";
  }
  if (!blocks_apart(i.blocks, i.acc_block_stride, std::uint64_t{i.out_h} * i.out_w)) {
    return "acc_block_stride at least out_h * out_w";
  }
  return {};
}

/// Lines that a tile spans, from its first to its last.
std::uint64_t span_of(std::uint64_t rows, std::uint64_t columns, std::uint64_t stride) noexcept {
  return (rows - 1) * stride + columns;
}

std::string_view rule(const Requant& i) noexcept {
  if (i.h > 1 && i.out_row_stride < i.w) return "out_row_stride at least w";
  if (!blocks_apart(blocks_of(i.channels), i.out_block_stride,
                    span_of(i.h, i.w, i.out_row_stride))) {
    return "out_block_stride at least the lines of a block";
  }
  if (i.lo > i.hi) return "lo at most hi";
  if (!i.has(Flag::leaky) && i.neg_m != 0) return "neg_m only with leaky";
  return {};
}

std::string_view rule(const Elementwise& i) noexcept {
  if (!is_value<EwFunction>(i.function)) return "function 0 to 4";
  if (i.lo > i.hi) return "lo at most hi";
  if (i.s > max_shift) return "shift at most 47";
  if (i.rows > 1 && i.out_row_stride <= (i.columns - 1) * std::uint64_t{i.out_step}) {
    return "out_row_stride beyond the last line of a row";
  }
  if (i.m1 < min_multiplier || i.m2 < min_multiplier) return "multipliers at least -32767";
  switch (static_cast<EwFunction>(i.function)) {
    case EwFunction::mul:
      if (i.m2 != 0) return "mul: m2 is 0";
      break;
    case EwFunction::lut:
      if (i.m1 != 0 || i.m2 != 0 || i.s != 0 || i.lo != -128 || i.hi != 127) {
        return "lut: m1, m2 and s are 0, lo is -128, hi is 127";
      }
      if (i.b_row_stride != 0 || i.b_step != 0) return "lut: the table has no strides";
      break;
    case EwFunction::clamp:
      if (i.b_line != 0 || i.b_row_stride != 0 || i.b_step != 0) {
        return "clamp: there is no second operand";
      }
      break;
    case EwFunction::add:
    case EwFunction::max:
      break;
  }
  return {};
}

std::string_view rule(const Pool& i) noexcept {
  if (i.kernel_h > max_window || i.kernel_w > max_window) return "window at most 15";
  if (i.stride_h > max_window || i.stride_w > max_window) return "stride at most 15";
  if (i.m == 0) return "multiplier at least 1";
  if (i.out_h > 1 && i.out_row_stride < i.out_w) return "out_row_stride at least out_w";
  if (!blocks_apart(i.blocks, i.out_block_stride, span_of(i.out_h, i.out_w, i.out_row_stride))) {
    return "out_block_stride at least the lines of a block";
  }
  if (i.s > max_shift) return "shift at most 47";
  if (i.lo > i.hi) return "lo at most hi";
  return {};
}

std::string_view rule(const Store& i) noexcept {
  if (!is_segment(i.segment)) return "segment 0 to 4";
  if (i.rows > 1 && i.ddr_stride < i.row_bytes) return "ddr_stride at least row_bytes";
  return {};
}

std::string_view rule(const Convert& i) noexcept {
  if (!is_place(i.plain_place) || !is_place(i.blocked_place)) return "a segment 0 to 4, or 7";
  if (i.log2c > 5) return "at most 32 channels per pixel";
  const auto mode = static_cast<CvtMode>(i.mode);
  const bool moves = mode == CvtMode::block || mode == CvtMode::unblock;
  if (!moves && i.plain_offset % 4 != 0) return "plain_offset a multiple of 4";
  if (i.blocked_offset % (1U << i.log2c) != 0) return "blocked_offset a multiple of c";
  if (i.channels > 1U << i.log2c && i.block_stride < i.pixels)
    return "block_stride at least pixels";
  if (moves && i.has(Flag::per_channel)) return "per_channel only with a scale";
  if (!i.has(Flag::per_channel) && i.scale_line != 0) return "scale_line only with per_channel";
  if (moves || i.has(Flag::per_channel)) {
    if (i.scale != 0 || std::signbit(i.scale)) return "scale is +0 here";
  } else if (!(std::isfinite(i.scale) && i.scale > 0)) {
    return "a finite scale above zero";
  }
  return {};
}

std::string_view rule(const Common&) noexcept { return {}; }

template <class Type>
std::string_view any_rule(const Type& i) noexcept {
  if ((i.flags & ~Type::allowed_flags) != 0) return "a flag that the instruction does not have";
  if (Type::engine == Engine::all && i.deps != Deps{}) return "no tokens where all engines drain";
  return rule(i);
}

}  // namespace

std::string_view broken_rule(const Instruction& instruction) noexcept {
  return std::visit([](const auto& value) { return any_rule(value); }, instruction);
}

}  // namespace tenon::npu::isa

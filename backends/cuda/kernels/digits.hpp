// Rows of numbers as fixed-point numbers of four digits to the base 256, from -128 to 127: what
// tensor cores multiply with codes of 8 bits. Of 256 elements at a time, the step of such products,
// the largest is near 2^30, so that an element differs from its digits by less than 2^-30 of it:
// products are f32 arithmetic, whose sums are exact within a step.
//
// Digits of a step lie in planes of one digit each, by the elements' order.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/eights.hpp"
#include "kernels/values.hpp"

#include <cstdint>

namespace tenon::cuda {

inline constexpr std::uint32_t digits_of_number = 4;

/// What a lane has of a step of a row: eight elements' digits, by planes, and sums.
struct LaneDigits {
  std::uint32_t planes[digits_of_number][2];
  /// A number is `unit` times the sum of digit d times 256^d. A NaN where a number is not finite.
  float unit;
  float sum;  ///< of the 32 elements of four lanes
};

/// Four words as four planes of their bytes.
TENON_DEVICE void turn_bytes(const std::uint32_t (&words)[4], std::uint32_t (&planes)[4]) {
  const std::uint32_t low01 = choose_bytes(words[0], words[1], 0x5140u);
  const std::uint32_t low23 = choose_bytes(words[2], words[3], 0x5140u);
  const std::uint32_t high01 = choose_bytes(words[0], words[1], 0x7362u);
  const std::uint32_t high23 = choose_bytes(words[2], words[3], 0x7362u);
  planes[0] = choose_bytes(low01, low23, 0x5410u);
  planes[1] = choose_bytes(low01, low23, 0x7632u);
  planes[2] = choose_bytes(high01, high23, 0x5410u);
  planes[3] = choose_bytes(high01, high23, 0x7632u);
}

/// Of eight elements a lane; for whole warps.
TENON_DEVICE LaneDigits digits_of(const Thread& thread, const float (&values)[8]) {
  std::uint32_t largest = 0;
  LaneDigits digits{};
  TENON_UNROLL for (std::uint32_t i = 0; i < 8; ++i) {
    const std::uint32_t magnitude = float_to_bits(values[i]) & 0x7FFFFFFFu;
    if (magnitude > largest) largest = magnitude;
    digits.sum += values[i];
  }
  digits.sum += thread.shuffle_xor(digits.sum, 1);
  digits.sum += thread.shuffle_xor(digits.sum, 2);
  largest = thread.highest(largest);
  // The exponent of a power of two above the largest, at least 2^-97, times 2^30 and its inverse.
  const std::uint32_t exponent = largest >> 23 > 30 ? largest >> 23 : 30;
  const bool is_finite = exponent != 255;
  const float scale = is_finite ? bits_to_float((283 - exponent) << 23) : 0.0f;
  digits.unit = bits_to_float(is_finite ? (exponent - 29) << 23 : 0x7FC00000u);
  TENON_UNROLL for (std::uint32_t half = 0; half < 2; ++half) {
    std::uint32_t words[4], planes[4];
    TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) {
      const float value = is_finite ? values[4 * half + i] * scale : 0.0f;
      // Lower bytes are read as signed ones: what that takes off is added before.
      words[i] = (static_cast<std::uint32_t>(round_to_integer(value)) + 0x00808080u) ^ 0x00808080u;
    }
    turn_bytes(words, planes);
    TENON_UNROLL for (std::uint32_t d = 0; d < digits_of_number; ++d) {
      digits.planes[d][half] = planes[d];
    }
  }
  return digits;
}

/// A lane's eight elements, from element k of a row on; zeros behind its end.
TENON_DEVICE void load_for_digits(DType dtype, Address row, std::uint32_t k, std::uint32_t depth,
                                  bool is_aligned, float (&values)[8]) {
  TENON_UNROLL for (std::uint32_t i = 0; i < 8; ++i) values[i] = 0.0f;
  if (k < depth) load_eight(dtype, row, k, depth, is_aligned, values);
}
TENON_DEVICE bool has_aligned_eights(Address x, std::int64_t x_step, std::uint32_t depth) {
  return depth % 8 == 0 && (x | static_cast<Address>(x_step)) % 16 == 0;
}

/// A step of a row in device memory: planes, and what scales them.
struct alignas(16) DigitsOfStep {
  std::uint32_t planes[digits_of_number][digit_step / 4];
  float sums[digit_step / 32];
  float unit;
  float unused[7];
};
static_assert(sizeof(DigitsOfStep) == digit_bytes);

/// A warp's digits as the i-th of an array of DigitsOfStep.
TENON_DEVICE void store_digits(const Thread& thread, const LaneDigits& digits, Address to,
                               std::uint32_t i) {
  const std::uint32_t lane = lane_of(thread);
  auto* const out = global<DigitsOfStep>(to) + i;
  TENON_UNROLL for (std::uint32_t d = 0; d < digits_of_number; ++d) {
    reinterpret_cast<Words2*>(out->planes[d])[lane] = {{digits.planes[d][0], digits.planes[d][1]}};
  }
  if (lane % 4 == 0) out->sums[lane / 4] = digits.sum;
  if (lane == 0) out->unit = digits.unit;
}

/// A warp per step of a row: y[row, step] is a DigitsOfStep.
TENON_DEVICE void digits_of_rows(const Thread& thread, const DigitArgs& args) {
  wait_for_earlier();
  const std::uint32_t steps = (args.depth + digit_step - 1) / digit_step;
  const std::uint32_t i = thread.block() * (thread.count() / warp_size) + warp_of(thread);
  if (i >= steps * args.rows) return;
  const std::uint32_t row = i / steps, step = i - row * steps, lane = lane_of(thread);
  const Address x = args.x + static_cast<Address>(row * args.x_step);
  float values[8];
  load_for_digits(args.x_dtype, x, step * digit_step + 8 * lane, args.depth,
                  has_aligned_eights(args.x, args.x_step, args.depth), values);
  store_digits(thread, digits_of(thread, values), args.y, i);
}

}  // namespace tenon::cuda

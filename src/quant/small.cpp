// tq1_0 and tq2_0: three levels under one scale for 256 elements. mxfp4: floats of four bits under a
// power of two for 32.

#include "codecs.hpp"
#include "codes.hpp"
#include "fit.hpp"
#include "half.hpp"
#include "levels.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

namespace tenon::quant {
namespace {

constexpr int ternary_block = 256, mx_block = 32;

template <class Block>
void decode_ternary(const Block& block, float* out) noexcept {
  std::uint8_t codes[ternary_block];
  unpack_codes(block, codes);
  const float d = widen(block.d);
  for (int i = 0; i < ternary_block; ++i) out[i] = d * static_cast<float>(codes[i] - 1);
}

/// The scale of least squared error, and the codes under it: the k largest magnitudes, whose mean
/// is the scale, reduce the error by (their sum)^2 / k.
std::uint16_t fit_ternary(const float* in, std::uint8_t (&codes)[ternary_block]) noexcept {
  float sorted[ternary_block];
  for (int i = 0; i < ternary_block; ++i) sorted[i] = std::fabs(in[i]);
  std::sort(sorted, sorted + ternary_block, std::greater<>());
  double sum = 0, most = -1, scale = 0;
  for (int k = 0; k < ternary_block; ++k) {
    sum += sorted[k];
    const double gain = sum * sum / (k + 1);
    if (gain > most) {
      most = gain;
      scale = sum / (k + 1);
    }
  }
  const std::uint16_t d = to_half(static_cast<float>(scale)).bits;
  for (int i = 0; i < ternary_block; ++i) {
    codes[i] = static_cast<std::uint8_t>(nearest(ratio(in[i], widen(d)), -1, 1) + 1);
  }
  return d;
}

/// `length` digits to the base 3, `step` apart, as the byte whose 256th part starts with them.
std::uint8_t digit_byte(const std::uint8_t* codes, int step, int length) noexcept {
  unsigned value = 0;
  for (int digit = 0; digit < 5; ++digit) {
    value = value * 3 + (digit < length ? codes[digit * step] : 0u);
  }
  return static_cast<std::uint8_t>((value * 256 + 242) / 243);
}

/// The nearest of mxfp4's values.
int mx_code(double value) noexcept {
  const double magnitude = std::fabs(value);
  int code = 0;
  for (int i = 0; i < 7; ++i) code += magnitude > 0.5 * (mxfp4_values[i] + mxfp4_values[i + 1]);
  return code != 0 && value < 0 ? code + 8 : code;
}

double mx_scale(int exponent) noexcept { return std::ldexp(1.0, exponent - 128); }

double mx_error(const float* in, int exponent) noexcept {
  const double scale = mx_scale(exponent);
  double sum = 0;
  for (int i = 0; i < mx_block; ++i) {
    const double x = in[i] / scale;
    const double difference = x - mxfp4_values[mx_code(x)];
    sum += difference * difference;
  }
  return sum * scale * scale;
}

}  // namespace

void decode(const BlockTQ1_0& block, float* out) noexcept { decode_ternary(block, out); }
void decode(const BlockTQ2_0& block, float* out) noexcept { decode_ternary(block, out); }

void decode(const BlockMXFP4& block, float* out) noexcept {
  const float d = to_float(bfloat16{mxfp4_scale(block.exponent)});
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(mxfp4_values[block.nibbles[i] & 15]);
    out[16 + i] = d * static_cast<float>(mxfp4_values[block.nibbles[i] >> 4]);
  }
}

void encode(const float* in, BlockTQ1_0& block) noexcept {
  std::uint8_t codes[ternary_block];
  block.d = fit_ternary(in, codes);
  for (int i = 0; i < 32; ++i) block.digits[i] = digit_byte(codes + i, 32, 5);
  for (int i = 0; i < 16; ++i) block.digits[32 + i] = digit_byte(codes + 160 + i, 16, 5);
  for (int i = 0; i < 4; ++i) block.last[i] = digit_byte(codes + 240 + i, 4, 4);
}

void encode(const float* in, BlockTQ2_0& block) noexcept {
  std::uint8_t codes[ternary_block];
  block.d = fit_ternary(in, codes);
  pack_crumbs<0>(codes, block.crumbs);
}

void encode(const float* in, BlockMXFP4& block) noexcept {
  float largest = 0;
  for (int i = 0; i < mx_block; ++i) largest = std::max(largest, std::fabs(in[i]));
  block = {};
  if (largest == 0) return;
  // 12 is the largest value: between it and half of it, the largest element is not cut off.
  const int top = std::ilogb(largest) - 3 + 128;
  double least = INFINITY;
  for (int exponent = std::max(top - 1, 0); exponent <= std::min(top + 2, 254); ++exponent) {
    const double error = mx_error(in, exponent);
    if (error < least) {
      least = error;
      block.exponent = static_cast<std::uint8_t>(exponent);
    }
  }
  std::uint8_t codes[mx_block];
  const double scale = mx_scale(block.exponent);
  for (int i = 0; i < mx_block; ++i) codes[i] = static_cast<std::uint8_t>(mx_code(in[i] / scale));
  pack_nibbles<16>(codes, block.nibbles);
}

}  // namespace tenon::quant

// Few levels under one scale: tq1_0 and tq2_0, q1_0 and q2_0. Floats of four bits: mxfp4, under a power of
// two for 32, and nvfp4, under a float of eight bits for 16.

#include "base/half_bits.hpp"
#include "codecs.hpp"
#include "codes.hpp"
#include "fit.hpp"
#include "levels.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

namespace tenon::quant {
namespace {

constexpr int ternary_block = 256, mx_block = 32, nv_group = 16;

template <class Block>
void decode_ternary(const Block& block, float* out) noexcept {
  std::uint8_t codes[ternary_block];
  unpack_codes(block, codes);
  const float d = widen_half(block.d);
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
    codes[i] = static_cast<std::uint8_t>(nearest(ratio(in[i], widen_half(d)), -1, 1) + 1);
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

/// The nearest of the values of mxfp4 and nvfp4.
int fp4_code(double value) noexcept {
  const double magnitude = std::fabs(value);
  int code = 0;
  for (int i = 0; i < 7; ++i) code += magnitude > 0.5 * (mxfp4_values[i] + mxfp4_values[i + 1]);
  return code != 0 && value < 0 ? code + 8 : code;
}

double mx_scale(int exponent) noexcept { return std::ldexp(1.0, exponent - 128); }

/// The squared error of some elements under a scale.
double fp4_error(const float* in, int count, double scale) noexcept {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    const double x = ratio(in[i], scale);
    const double difference = in[i] - scale * mxfp4_values[fp4_code(x)];
    sum += difference * difference;
  }
  return sum;
}

template <class Block>
void decode_codes(const Block& block, int step, int offset, float* out) noexcept {
  std::uint8_t codes[Block::size];
  unpack_codes(block, codes);
  const float d = widen_half(block.d);
  for (int i = 0; i < Block::size; ++i) out[i] = d * static_cast<float>(step * codes[i] - offset);
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

void decode(const BlockNVFP4& block, float* out) noexcept {
  for (int g = 0; g < 4; ++g) {
    const float d = widen_half(nvfp4_scale(block.scales[g]));
    std::uint8_t codes[nv_group];
    unpack_nibbles<8>(block.nibbles + 8 * g, codes);
    for (int i = 0; i < nv_group; ++i) *out++ = d * static_cast<float>(mxfp4_values[codes[i]]);
  }
}

void decode(const BlockQ1_0& block, float* out) noexcept { decode_codes(block, 2, 1, out); }
void decode(const BlockQ2_0& block, float* out) noexcept { decode_codes(block, 1, 1, out); }

void encode(const Elements& in, BlockTQ1_0& block) noexcept {
  std::uint8_t codes[ternary_block];
  block.d = fit_ternary(in.x.data(), codes);
  for (int i = 0; i < 32; ++i) block.digits[i] = digit_byte(codes + i, 32, 5);
  for (int i = 0; i < 16; ++i) block.digits[32 + i] = digit_byte(codes + 160 + i, 16, 5);
  for (int i = 0; i < 4; ++i) block.last[i] = digit_byte(codes + 240 + i, 4, 4);
}

void encode(const Elements& in, BlockTQ2_0& block) noexcept {
  std::uint8_t codes[ternary_block];
  block.d = fit_ternary(in.x.data(), codes);
  pack_crumbs<0>(codes, block.crumbs);
}

void encode(const Elements& elements, BlockMXFP4& block) noexcept {
  const float* const in = elements.x.data();
  float largest = 0;
  for (int i = 0; i < mx_block; ++i) largest = std::max(largest, std::fabs(in[i]));
  block = {};
  if (largest == 0) return;
  // 12 is the largest value: between it and half of it, the largest element is not cut off.
  const int top = std::ilogb(largest) - 3 + 128;
  double least = INFINITY;
  for (int exponent = std::max(top - 1, 0); exponent <= std::min(top + 2, 254); ++exponent) {
    const double error = fp4_error(in, mx_block, mx_scale(exponent));
    if (error < least) {
      least = error;
      block.exponent = static_cast<std::uint8_t>(exponent);
    }
  }
  std::uint8_t codes[mx_block];
  const double scale = mx_scale(block.exponent);
  for (int i = 0; i < mx_block; ++i) codes[i] = static_cast<std::uint8_t>(fp4_code(in[i] / scale));
  pack_nibbles<16>(codes, block.nibbles);
}

void encode(const Elements& elements, BlockNVFP4& block) noexcept {
  const float* in = elements.x.data();
  block = {};
  for (int g = 0; g < 4; ++g, in += nv_group) {
    float largest = 0;
    for (int i = 0; i < nv_group; ++i) largest = std::max(largest, std::fabs(in[i]));
    if (largest == 0) continue;
    // From the smallest scale under which 12, the largest value, is not cut off; below it some elements
    // are, and above it up to the scale under which that element is 8.
    int top = 1;
    while (top < 0x7E && 12 * widen_half(nvfp4_scale(static_cast<std::uint8_t>(top))) < largest)
      ++top;
    double least = INFINITY;
    for (int code = std::max(top - 6, 1); code <= std::min(top + 5, 0x7E); ++code) {
      const auto byte = static_cast<std::uint8_t>(code);
      const double error = fp4_error(in, nv_group, widen_half(nvfp4_scale(byte)));
      if (error < least) {
        least = error;
        block.scales[g] = byte;
      }
    }
    const double scale = widen_half(nvfp4_scale(block.scales[g]));
    std::uint8_t codes[nv_group];
    for (int i = 0; i < nv_group; ++i)
      codes[i] = static_cast<std::uint8_t>(fp4_code(in[i] / scale));
    pack_nibbles<8>(codes, block.nibbles + 8 * g);
  }
}

/// With the signs given, the mean magnitude is the scale of least squared error.
void encode(const Elements& elements, BlockQ1_0& block) noexcept {
  const float* const in = elements.x.data();
  block = {};
  double sum = 0;
  for (int i = 0; i < BlockQ1_0::size; ++i) {
    sum += std::fabs(in[i]);
    if (in[i] >= 0)
      block.bits[i / 8] = static_cast<std::uint8_t>(block.bits[i / 8] | 1u << (i % 8));
  }
  block.d = to_half(static_cast<float>(sum / BlockQ1_0::size)).bits;
}

/// The scale may be negative: the longer end of -d to 2 d lies where the block has its extreme.
void encode(const Elements& elements, BlockQ2_0& block) noexcept {
  const float* const in = elements.x.data();
  block = {};
  block.d = to_half(fit_scale<Integers<-1, 2>>({elements.x})).bits;
  for (int i = 0; i < BlockQ2_0::size; ++i) {
    const auto code = static_cast<unsigned>(nearest(ratio(in[i], widen_half(block.d)), -1, 2) + 1);
    block.crumbs[i / 4] = static_cast<std::uint8_t>(block.crumbs[i / 4] | code << (i % 4 * 2));
  }
}

}  // namespace tenon::quant

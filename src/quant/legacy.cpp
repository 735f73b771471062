// The types with one scale for 32 elements: q4_0, q4_1, q5_0, q5_1, q8_0. Without importances the
// encoders follow the arithmetic of `gguf.quants` step by step, in f32, since their bytes must be the same.

#include "base/half_bits.hpp"
#include "codecs.hpp"
#include "codes.hpp"
#include "fit.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

namespace tenon::quant {
namespace {

constexpr int block_elements = 32;

template <class Block>
void unpack_five_bits(const Block& block, std::uint8_t (&codes)[block_elements]) noexcept {
  unpack_nibbles<16>(block.nibbles, codes);
  for (int i = 0; i < block_elements; ++i) {
    const unsigned bit = (unsigned{block.high[i / 8]} >> (i % 8)) & 1u;
    codes[i] = static_cast<std::uint8_t>(codes[i] | (bit << 4));
  }
}

template <class Block>
void pack_five_bits(const std::uint8_t (&codes)[block_elements], Block& block) noexcept {
  pack_nibbles<16>(codes, block.nibbles);
  for (int byte = 0; byte < 4; ++byte) {
    unsigned bits = 0;
    for (int i = 0; i < 8; ++i) bits |= ((codes[byte * 8 + i] >> 4) & 1u) << i;
    block.high[byte] = static_cast<std::uint8_t>(bits);
  }
}

/// The element of largest magnitude, the first of them where several are equal.
float extreme(const float* in) noexcept {
  float best = in[0];
  for (int i = 1; i < block_elements; ++i) {
    if (std::fabs(in[i]) > std::fabs(best)) best = in[i];
  }
  return best;
}

/// 1 / scale, and 0 where that is no finite number: the block then rounds to zeros.
float inverse(float scale) noexcept {
  const float reciprocal = 1.0f / scale;
  return std::isfinite(reciprocal) ? reciprocal : 0.0f;
}

/// The integer part as a code of at most `high`; a NaN or a negative value becomes 0.
std::uint8_t truncate(float value, float high) noexcept {
  return static_cast<std::uint8_t>(value > 0.0f ? std::min(value, high) : 0.0f);
}

/// Codes around the middle of the range, the extreme element at code 0; returns the scale.
float encode_symmetric(const float* in, int middle,
                       std::uint8_t (&codes)[block_elements]) noexcept {
  const float d = extreme(in) / static_cast<float>(-middle);
  const float factor = inverse(d);
  const float offset = static_cast<float>(middle) + 0.5f;
  const float high = static_cast<float>(2 * middle - 1);
  for (int i = 0; i < block_elements; ++i) codes[i] = truncate(in[i] * factor + offset, high);
  return d;
}

/// With importances: codes around `middle` under the scale of least error.
template <int middle>
std::uint16_t fit_symmetric(const Elements& in, std::uint8_t (&codes)[block_elements]) noexcept {
  const auto d = to_half(fit_scale<Integers<-middle, middle - 1>>(in)).bits;
  for (std::size_t i = 0; i < block_elements; ++i) {
    const int level = nearest(ratio(in.x[i], widen_half(d)), -middle, middle - 1);
    codes[i] = static_cast<std::uint8_t>(level + middle);
  }
  return d;
}

struct ScaleAndMin {
  std::uint16_t d, m;  ///< as f16
};

/// Codes 0 to `high` between the smallest and the largest element.
ScaleAndMin encode_affine(const float* in, int high,
                          std::uint8_t (&codes)[block_elements]) noexcept {
  const auto [least, most] = std::minmax_element(in, in + block_elements);
  const float m = *least;
  const float d = (*most - m) / static_cast<float>(high);
  const float factor = inverse(d);
  for (int i = 0; i < block_elements; ++i) {
    codes[i] = truncate((in[i] - m) * factor + 0.5f, static_cast<float>(high));
  }
  return {to_half(d).bits, to_half(m).bits};
}

/// With importances: codes 0 to `high` under the scale and the min of least error.
ScaleAndMin fit_with_min(const Elements& in, int high,
                         std::uint8_t (&codes)[block_elements]) noexcept {
  // A min that is taken off cannot lift values: below the largest one there is nothing to lift.
  const auto [least, most] = std::ranges::minmax(in.x);
  if (!std::isfinite(least - most)) return encode_affine(in.x.data(), high, codes);
  float below[block_elements];
  for (std::size_t i = 0; i < block_elements; ++i) below[i] = in.x[i] - most;
  const Affine fit = fit_affine({below, in.importance}, high);
  const auto d = to_half(static_cast<float>(fit.scale)).bits;
  const auto m = to_half(static_cast<float>(most - fit.min)).bits;
  const Affine stored{widen_half(d), -widen_half(m)};
  for (std::size_t i = 0; i < block_elements; ++i) {
    codes[i] = static_cast<std::uint8_t>(affine_code(in.x[i], stored, high));
  }
  return {d, m};
}

}  // namespace

void decode(const BlockQ4_0& block, float* out) noexcept {
  const float d = widen_half(block.d);
  std::uint8_t codes[block_elements];
  unpack_nibbles<16>(block.nibbles, codes);
  for (int i = 0; i < block_elements; ++i) out[i] = d * static_cast<float>(codes[i] - 8);
}

void decode(const BlockQ4_1& block, float* out) noexcept {
  const float d = widen_half(block.d), m = widen_half(block.m);
  std::uint8_t codes[block_elements];
  unpack_nibbles<16>(block.nibbles, codes);
  for (int i = 0; i < block_elements; ++i) out[i] = d * static_cast<float>(codes[i]) + m;
}

void decode(const BlockQ5_0& block, float* out) noexcept {
  const float d = widen_half(block.d);
  std::uint8_t codes[block_elements];
  unpack_five_bits(block, codes);
  for (int i = 0; i < block_elements; ++i) out[i] = d * static_cast<float>(codes[i] - 16);
}

void decode(const BlockQ5_1& block, float* out) noexcept {
  const float d = widen_half(block.d), m = widen_half(block.m);
  std::uint8_t codes[block_elements];
  unpack_five_bits(block, codes);
  for (int i = 0; i < block_elements; ++i) out[i] = d * static_cast<float>(codes[i]) + m;
}

void decode(const BlockQ8_0& block, float* out) noexcept {
  const float d = widen_half(block.d);
  for (int i = 0; i < block_elements; ++i) out[i] = d * static_cast<float>(block.q[i]);
}

void encode(const Elements& in, BlockQ4_0& block) noexcept {
  std::uint8_t codes[block_elements];
  block.d = in.importance == nullptr ? to_half(encode_symmetric(in.x.data(), 8, codes)).bits
                                     : fit_symmetric<8>(in, codes);
  pack_nibbles<16>(codes, block.nibbles);
}

void encode(const Elements& in, BlockQ4_1& block) noexcept {
  std::uint8_t codes[block_elements];
  const auto [d, m] = in.importance == nullptr ? encode_affine(in.x.data(), 15, codes)
                                               : fit_with_min(in, 15, codes);
  block.d = d;
  block.m = m;
  pack_nibbles<16>(codes, block.nibbles);
}

void encode(const Elements& in, BlockQ5_0& block) noexcept {
  std::uint8_t codes[block_elements];
  block.d = in.importance == nullptr ? to_half(encode_symmetric(in.x.data(), 16, codes)).bits
                                     : fit_symmetric<16>(in, codes);
  pack_five_bits(codes, block);
}

void encode(const Elements& in, BlockQ5_1& block) noexcept {
  std::uint8_t codes[block_elements];
  const auto [d, m] = in.importance == nullptr ? encode_affine(in.x.data(), 31, codes)
                                               : fit_with_min(in, 31, codes);
  block.d = d;
  block.m = m;
  pack_five_bits(codes, block);
}

// KV caches are quantised to these blocks: both loops are written so that compilers vectorise them.
void encode(const Elements& elements, BlockQ8_0& block) noexcept {
  const float* const in = elements.x.data();
  constexpr int lanes = 8;
  float largest[lanes] = {};
  for (int i = 0; i < block_elements; i += lanes) {
    for (int j = 0; j < lanes; ++j) {
      const float magnitude = std::fabs(in[i + j]);
      largest[j] = largest[j] > magnitude ? largest[j] : magnitude;
    }
  }
  const float d = *std::ranges::max_element(largest) / 127.0f;
  const float factor = inverse(d);
  block.d = to_half(d).bits;
  for (int i = 0; i < block_elements; ++i) {
    // Halves go away from zero, as std::round has it: the float below a half is added, since a half
    // would carry what is just below one up as well. |in| * factor may pass 127 by a few ulps,
    // never by half a step.
    const float code = in[i] * factor;
    block.q[i] = static_cast<std::int8_t>(
        static_cast<std::int32_t>(code + std::copysign(0x1.fffffep-2f, code)));
  }
}

}  // namespace tenon::quant

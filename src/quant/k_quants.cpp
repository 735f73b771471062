// The types with a second level of scales: blocks of 256 elements in sub-blocks of 16 or 32.

#include "base/half_bits.hpp"
#include "codecs.hpp"
#include "codes.hpp"
#include "fit.hpp"

#include <tenon/dtype.hpp>

#include <cmath>
#include <cstring>

namespace tenon::quant {
namespace {

constexpr int super_block = 256;

/// y = scale_b (q - offset).
template <int sub_block>
void scale_codes(const std::uint8_t (&codes)[super_block], int offset, const float* scales,
                 float* out) noexcept {
  for (int b = 0; b < super_block / sub_block; ++b) {
    const float scale = scales[b];
    for (int i = b * sub_block; i < (b + 1) * sub_block; ++i) {
      out[i] = scale * static_cast<float>(codes[i] - offset);
    }
  }
}

/// y = scale_b q - min_b.
template <int sub_block>
void scale_codes(const std::uint8_t (&codes)[super_block], const float* scales, const float* mins,
                 float* out) noexcept {
  for (int b = 0; b < super_block / sub_block; ++b) {
    const float scale = scales[b], min = mins[b];
    for (int i = b * sub_block; i < (b + 1) * sub_block; ++i) {
      out[i] = scale * static_cast<float>(codes[i]) - min;
    }
  }
}

/// q4_k and q5_k differ in their codes only.
template <class Block>
void decode_with_mins(const Block& block, float* out) noexcept {
  std::uint8_t codes[super_block], scales[8], mins[8];
  unpack_codes(block, codes);
  unpack_scales_q4k(block.scales, scales, mins);
  const float d = widen_half(block.d), dmin = widen_half(block.dmin);
  float scale[8], min[8];
  for (int b = 0; b < 8; ++b) {
    scale[b] = d * static_cast<float>(scales[b]);
    min[b] = dmin * static_cast<float>(mins[b]);
  }
  scale_codes<32>(codes, scale, min, out);
}

/// Codes of [low, high] under the fitted scales, stored from 0 up.
template <std::size_t count>
void encode_codes(const float* in, const BlockScales<count>& fit, int low, int high,
                  std::uint8_t (&codes)[super_block]) noexcept {
  constexpr int sub_block = super_block / static_cast<int>(count);
  for (int i = 0; i < super_block; ++i) {
    const double scale = fit.scale(i / sub_block);
    codes[i] = static_cast<std::uint8_t>(nearest(ratio(in[i], scale), low, high) - low);
  }
}

template <std::size_t count>
void encode_codes(const float* in, const BlockAffine<count>& fit, int high,
                  std::uint8_t (&codes)[super_block]) noexcept {
  constexpr int sub_block = super_block / static_cast<int>(count);
  for (int i = 0; i < super_block; ++i) {
    const Affine pair = fit.pair(i / sub_block);
    codes[i] = static_cast<std::uint8_t>(affine_code(in[i], pair, high));
  }
}

void pack_scales_q4k(const BlockAffine<8>& fit, std::uint8_t (&packed)[12]) noexcept {
  for (int b = 0; b < 4; ++b) {
    const auto low_s = static_cast<unsigned>(fit.scales[b]);
    const auto low_m = static_cast<unsigned>(fit.mins[b]);
    const auto high_s = static_cast<unsigned>(fit.scales[4 + b]);
    const auto high_m = static_cast<unsigned>(fit.mins[4 + b]);
    packed[b] = static_cast<std::uint8_t>(low_s | (high_s >> 4 << 6));
    packed[4 + b] = static_cast<std::uint8_t>(low_m | (high_m >> 4 << 6));
    packed[8 + b] = static_cast<std::uint8_t>((high_s & 15u) | ((high_m & 15u) << 4));
  }
}

void pack_scales_q3k(const BlockScales<16>& fit, std::uint8_t (&packed)[12]) noexcept {
  std::memset(packed, 0, sizeof packed);
  for (int b = 0; b < 16; ++b) {
    const unsigned stored = static_cast<unsigned>(fit.scales[b] + 32);
    auto& low = packed[b % 8];
    auto& high = packed[8 + b % 4];
    low = static_cast<std::uint8_t>(low | ((stored & 15u) << (b / 8 * 4)));
    high = static_cast<std::uint8_t>(high | ((stored >> 4) << (b / 4 * 2)));
  }
}

template <class Block>
void pack_nibble_pairs(const std::uint8_t (&codes)[super_block], Block& block) noexcept {
  for (int pair = 0; pair < 4; ++pair) {
    pack_nibbles<32>(codes + pair * 64, block.nibbles + pair * 32);
  }
}

}  // namespace

void decode(const BlockQ2K& block, float* out) noexcept {
  std::uint8_t codes[super_block];
  unpack_codes(block, codes);
  const float d = widen_half(block.d), dmin = widen_half(block.dmin);
  float scale[16], min[16];
  for (int b = 0; b < 16; ++b) {
    scale[b] = d * static_cast<float>(block.scales[b] & 15);
    min[b] = dmin * static_cast<float>(block.scales[b] >> 4);
  }
  scale_codes<16>(codes, scale, min, out);
}

void decode(const BlockQ3K& block, float* out) noexcept {
  std::uint8_t codes[super_block];
  unpack_codes(block, codes);
  std::int8_t scales[16];
  unpack_scales_q3k(block.scales, scales);
  const float d = widen_half(block.d);
  float scale[16];
  for (int b = 0; b < 16; ++b) scale[b] = d * static_cast<float>(scales[b]);
  scale_codes<16>(codes, 4, scale, out);
}

void decode(const BlockQ4K& block, float* out) noexcept { decode_with_mins(block, out); }

void decode(const BlockQ5K& block, float* out) noexcept { decode_with_mins(block, out); }

void decode(const BlockQ6K& block, float* out) noexcept {
  std::uint8_t codes[super_block];
  unpack_codes(block, codes);
  const float d = widen_half(block.d);
  float scale[16];
  for (int b = 0; b < 16; ++b) scale[b] = d * static_cast<float>(block.scales[b]);
  scale_codes<16>(codes, 32, scale, out);
}

void decode(const BlockQ8K& block, float* out) noexcept {
  for (int i = 0; i < super_block; ++i) out[i] = block.d * static_cast<float>(block.q[i]);
}

void encode(const Elements& in, BlockQ2K& block) noexcept {
  const auto fit = fit_affines<16>(in, 3, 15);
  std::uint8_t codes[super_block];
  encode_codes(in.x.data(), fit, 3, codes);
  block.d = fit.d;
  block.dmin = fit.dmin;
  for (int b = 0; b < 16; ++b) {
    block.scales[b] = static_cast<std::uint8_t>(fit.scales[b] | (fit.mins[b] << 4));
  }
  pack_crumbs<0>(codes, block.crumbs);
}

void encode(const Elements& in, BlockQ3K& block) noexcept {
  const auto fit = fit_scales<Integers<-4, 3>, 16>(in, -32, 31);
  std::uint8_t codes[super_block];
  encode_codes(in.x.data(), fit, -4, 3, codes);
  block.d = fit.d;
  pack_scales_q3k(fit, block.scales);
  pack_crumbs<0>(codes, block.crumbs);
  pack_high_bits<2>(codes, block.high);
}

void encode(const Elements& in, BlockQ4K& block) noexcept {
  const auto fit = fit_affines<8>(in, 15, 63);
  std::uint8_t codes[super_block];
  encode_codes(in.x.data(), fit, 15, codes);
  block.d = fit.d;
  block.dmin = fit.dmin;
  pack_scales_q4k(fit, block.scales);
  pack_nibble_pairs(codes, block);
}

void encode(const Elements& in, BlockQ5K& block) noexcept {
  const auto fit = fit_affines<8>(in, 31, 63);
  std::uint8_t codes[super_block];
  encode_codes(in.x.data(), fit, 31, codes);
  block.d = fit.d;
  block.dmin = fit.dmin;
  pack_scales_q4k(fit, block.scales);
  pack_high_bits<4>(codes, block.high);
  pack_nibble_pairs(codes, block);
}

void encode(const Elements& in, BlockQ6K& block) noexcept {
  const auto fit = fit_scales<Integers<-32, 31>, 16>(in, -128, 127);
  std::uint8_t codes[super_block];
  encode_codes(in.x.data(), fit, -32, 31, codes);
  block.d = fit.d;
  for (int b = 0; b < 16; ++b) block.scales[b] = static_cast<std::int8_t>(fit.scales[b]);
  for (int half = 0; half < 2; ++half) {
    pack_nibbles<64>(codes + half * 128, block.nibbles + half * 64);
  }
  pack_crumbs<4>(codes, block.crumbs);
}

void encode(const Elements& elements, BlockQ8K& block) noexcept {
  const float* const in = elements.x.data();
  float largest = 0;
  for (int i = 0; i < super_block; ++i) largest = std::fmax(largest, std::fabs(in[i]));
  block.d = largest / 127.0f;
  for (int group = 0; group < 16; ++group) {
    int sum = 0;
    for (int i = group * 16; i < group * 16 + 16; ++i) {
      const int q = nearest(ratio(in[i], block.d), -127, 127);
      block.q[i] = static_cast<std::int8_t>(q);
      sum += q;
    }
    block.sums[group] = static_cast<std::int16_t>(sum);
  }
}

}  // namespace tenon::quant

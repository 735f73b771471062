// iq4_nl and iq4_xs: sixteen unevenly spaced levels under one scale for 32 elements.

#include "base/half_bits.hpp"
#include "codecs.hpp"
#include "codes.hpp"
#include "fit.hpp"

#include <tenon/dtype.hpp>

namespace tenon::quant {
namespace {

constexpr int sub_block = 32;

/// The levels as a codebook for `fit_scale`.
struct Levels {
  static constexpr int low = -127, high = 113;

  static std::uint8_t code(double value) noexcept {
    int code = 0;
    for (int i = 0; i < 15; ++i) code += value > 0.5 * (iq4_values[i] + iq4_values[i + 1]);
    return static_cast<std::uint8_t>(code);
  }
  static double level(double value) noexcept { return iq4_values[code(value)]; }
};

void pack_levels(const float* in, double scale, std::uint8_t* nibbles) noexcept {
  std::uint8_t codes[sub_block];
  for (int i = 0; i < sub_block; ++i) codes[i] = Levels::code(ratio(in[i], scale));
  pack_nibbles<16>(codes, nibbles);
}

void decode_levels(const std::uint8_t* nibbles, float scale, float* out) noexcept {
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(iq4_values[nibbles[i] & 15]);
    out[16 + i] = scale * static_cast<float>(iq4_values[nibbles[i] >> 4]);
  }
}

}  // namespace

void decode(const BlockIQ4NL& block, float* out) noexcept {
  decode_levels(block.nibbles, widen_half(block.d), out);
}

void decode(const BlockIQ4XS& block, float* out) noexcept {
  const float d = widen_half(block.d);
  std::int8_t scales[8];
  unpack_scales_iq4xs(block, scales);
  for (int b = 0; b < 8; ++b) {
    decode_levels(block.nibbles + 16 * b, d * static_cast<float>(scales[b]), out + sub_block * b);
  }
}

void encode(const Elements& in, BlockIQ4NL& block) noexcept {
  block.d = to_half(fit_scale<Levels>(in)).bits;
  pack_levels(in.x.data(), widen_half(block.d), block.nibbles);
}

void encode(const Elements& in, BlockIQ4XS& block) noexcept {
  const auto fit = fit_scales<Levels, 8>(in, -32, 31);
  block.d = fit.d;
  block.scales_high = 0;
  for (auto& byte : block.scales_low) byte = 0;
  for (int b = 0; b < 8; ++b) {
    const unsigned stored = static_cast<unsigned>(fit.scales[b] + 32);
    block.scales_low[b / 2] =
        static_cast<std::uint8_t>(block.scales_low[b / 2] | ((stored & 15u) << (b % 2 * 4)));
    block.scales_high = static_cast<std::uint16_t>(block.scales_high | ((stored >> 4) << (2 * b)));
    pack_levels(in.x.data() + sub_block * b, fit.scale(b), block.nibbles + 16 * b);
  }
}

}  // namespace tenon::quant

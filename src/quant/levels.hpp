#pragma once

#include "blocks.hpp"
#include "grids.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

/// The types whose elements are one of at most sixteen levels under an integer scale:
/// y = d unit scale_b levels[code], exact in f32 but for the last product.
namespace tenon::quant {

struct Levels {
  std::int8_t at[16];
  float unit;
};

/// Levels of iq1: eight times -1, 0 or 1, and 1 more or, from 4 on, less.
inline constexpr Levels iq1_levels = {{-7, 1, 9, 0, -9, -1, 7}, 0.125f};
/// Levels of iq2 and iq3: magnitudes and then the same negated.
inline constexpr Levels iq2_levels = {{8, 25, 43, 0, -8, -25, -43}, 0.125f};
inline constexpr Levels iq3_xxs_levels = {
    {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}, 0.25f};
inline constexpr Levels iq3_s_levels = {
    {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}, 1.0f};

constexpr const Levels& levels_of(const BlockIQ1S&) { return iq1_levels; }
constexpr const Levels& levels_of(const BlockIQ1M&) { return iq1_levels; }
constexpr const Levels& levels_of(const BlockIQ2XXS&) { return iq2_levels; }
constexpr const Levels& levels_of(const BlockIQ2XS&) { return iq2_levels; }
constexpr const Levels& levels_of(const BlockIQ2S&) { return iq2_levels; }
constexpr const Levels& levels_of(const BlockIQ3XXS&) { return iq3_xxs_levels; }
constexpr const Levels& levels_of(const BlockIQ3S&) { return iq3_s_levels; }

/// A block of such a type: numbers of levels, and the scale of each sixteen elements.
struct LevelCodes {
  std::uint16_t d;
  std::int8_t scales[16];
  std::uint8_t codes[256];
};

constexpr std::int8_t odd(unsigned scale) { return static_cast<std::int8_t>(2 * scale + 1); }

inline unsigned nibble_at(const std::uint8_t* nibbles, int i) noexcept {
  return (unsigned{nibbles[i / 2]} >> (i % 2 * 4)) & 15u;
}

/// Eight signs from the seven stored ones: their number is even.
inline unsigned even_signs(unsigned seven) noexcept {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1u) << 7;
}

/// The little-endian word of sub-block b of iq2_xxs and iq3_xxs.
inline std::uint32_t word_at(const std::uint8_t* bytes) noexcept {
  std::uint32_t word;
  std::memcpy(&word, bytes, 4);
  return word;
}

/// `count` codes of an entry with `bits` bits each, and their signs from bit `bits` on.
template <int bits, int count>
inline void put_entry(unsigned entry, unsigned signs, std::uint8_t* codes) noexcept {
  for (int i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(((entry >> (bits * i)) & ((1u << bits) - 1u)) |
                                         ((signs >> i) & 1u) << bits);
  }
}

inline void unpack(const BlockIQ1S& block, LevelCodes& out) noexcept {
  out.d = block.d;
  for (int e = 0; e < 32; ++e) {
    const unsigned high = block.high[e / 4];
    const unsigned entry = block.codes[e] | ((high >> (e % 4 * 3)) & 7u) << 8;
    put_entry<2, 8>(iq1_grid[entry], high >> 15 != 0 ? 255u : 0u, out.codes + 8 * e);
  }
  for (int b = 0; b < 16; ++b) out.scales[b] = odd((unsigned{block.high[b / 2]} >> 12) & 7u);
}

inline void unpack(const BlockIQ1M& block, LevelCodes& out) noexcept {
  unsigned d = 0;
  for (int i = 0; i < 4; ++i) d |= (unsigned{block.scales[i]} >> 12) << (4 * i);
  out.d = static_cast<std::uint16_t>(d);
  for (int e = 0; e < 32; ++e) {
    const unsigned high = nibble_at(block.high, e);
    const unsigned entry = block.codes[e] | (high & 7u) << 8;
    put_entry<2, 8>(iq1_grid[entry], high >> 3 != 0 ? 255u : 0u, out.codes + 8 * e);
  }
  for (int b = 0; b < 16; ++b) {
    out.scales[b] = odd((unsigned{block.scales[b / 4]} >> (b % 4 * 3)) & 7u);
  }
}

inline void unpack(const BlockIQ2XXS& block, LevelCodes& out) noexcept {
  out.d = block.d;
  for (int b = 0; b < 8; ++b) {
    const std::uint32_t word = word_at(block.codes + 8 * b + 4);
    out.scales[2 * b] = out.scales[2 * b + 1] = odd(word >> 28);
    for (int i = 0; i < 4; ++i) {
      put_entry<2, 8>(iq2_xxs_grid[block.codes[8 * b + i]], even_signs((word >> (7 * i)) & 127u),
                      out.codes + 32 * b + 8 * i);
    }
  }
}

inline void unpack(const BlockIQ2XS& block, LevelCodes& out) noexcept {
  out.d = block.d;
  for (int e = 0; e < 32; ++e) {
    const unsigned code = block.codes[e];
    put_entry<2, 8>(iq2_xs_grid[code & 511u], even_signs(code >> 9), out.codes + 8 * e);
  }
  for (int b = 0; b < 16; ++b) out.scales[b] = odd(nibble_at(block.scales, b));
}

inline void unpack(const BlockIQ2S& block, LevelCodes& out) noexcept {
  out.d = block.d;
  for (int e = 0; e < 32; ++e) {
    const unsigned high = (unsigned{block.high[e / 4]} >> (e % 4 * 2)) & 3u;
    put_entry<2, 8>(iq2_s_grid[block.codes[e] | high << 8], block.signs[e], out.codes + 8 * e);
  }
  for (int b = 0; b < 16; ++b) out.scales[b] = odd(nibble_at(block.scales, b));
}

inline void unpack(const BlockIQ3XXS& block, LevelCodes& out) noexcept {
  out.d = block.d;
  for (int b = 0; b < 8; ++b) {
    const std::uint32_t word = word_at(block.signs + 4 * b);
    out.scales[2 * b] = out.scales[2 * b + 1] = odd(word >> 28);
    for (int i = 0; i < 8; ++i) {
      const unsigned signs = even_signs((word >> (i / 2 * 7)) & 127u) >> (i % 2 * 4);
      put_entry<3, 4>(iq3_xxs_grid[block.codes[8 * b + i]], signs, out.codes + 32 * b + 4 * i);
    }
  }
}

inline void unpack(const BlockIQ3S& block, LevelCodes& out) noexcept {
  out.d = block.d;
  for (int e = 0; e < 64; ++e) {
    const unsigned high = (unsigned{block.high[e / 8]} >> (e % 8)) & 1u;
    const unsigned signs = unsigned{block.signs[e / 2]} >> (e % 2 * 4);
    put_entry<3, 4>(iq3_s_grid[block.codes[e] | high << 8], signs, out.codes + 4 * e);
  }
  for (int b = 0; b < 16; ++b) out.scales[b] = odd(nibble_at(block.scales, b / 2));
}

/// Codes 0 to 3 of the ternary types, 1 above their values.
inline void unpack_codes(const BlockTQ1_0& block, std::uint8_t* codes) noexcept {
  const auto digits = [&](const std::uint8_t* bytes, int count, int length) {
    unsigned power = 1;
    for (int digit = 0; digit < length; ++digit, power *= 3) {
      for (int i = 0; i < count; ++i) {
        *codes++ = static_cast<std::uint8_t>(((bytes[i] * power) & 255u) * 3 >> 8);
      }
    }
  };
  digits(block.digits, 32, 5);
  digits(block.digits + 32, 16, 5);
  digits(block.last, 4, 4);
}

inline void unpack_codes(const BlockTQ2_0& block, std::uint8_t* codes) noexcept {
  for (int e = 0; e < 256; ++e) {
    codes[e] = static_cast<std::uint8_t>(
        (unsigned{block.crumbs[e / 128 * 32 + e % 32]} >> (e % 128 / 32 * 2)) & 3u);
  }
}

inline void unpack_codes(const BlockQ1_0& block, std::uint8_t* codes) noexcept {
  for (int e = 0; e < 128; ++e) {
    codes[e] = static_cast<std::uint8_t>((unsigned{block.bits[e / 8]} >> (e % 8)) & 1u);
  }
}

inline void unpack_codes(const BlockQ2_0& block, std::uint8_t* codes) noexcept {
  for (int e = 0; e < 64; ++e) {
    codes[e] = static_cast<std::uint8_t>((unsigned{block.crumbs[e / 4]} >> (e % 4 * 2)) & 3u);
  }
}

/// The sixteen levels of mxfp4 and nvfp4.
inline constexpr std::int8_t mxfp4_values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};

/// The upper half of an mxfp4 block's scale 2^(exponent - 128) as f32; the lower one is zero.
constexpr std::uint16_t mxfp4_scale(std::uint8_t exponent) noexcept {
  const unsigned bits = exponent < 2 ? 0x20u << exponent : (exponent - 1u) << 7;
  return static_cast<std::uint16_t>(bits);
}

/// The bits of an nvfp4 scale as f16, which has all of them: m 2^-10, or (1 + m / 8) 2^(e - 8).
constexpr std::uint16_t nvfp4_scale(std::uint8_t byte) noexcept {
  if (byte == 0 || byte == 0x7Fu) return 0;
  unsigned exponent = byte >> 3 & 15u, mantissa = byte & 7u;
  if (exponent == 0) {
    if (mantissa == 0) return 0;
    for (exponent = 1; mantissa < 8; mantissa *= 2) --exponent;
    mantissa &= 7u;
  }
  return static_cast<std::uint16_t>((exponent + 7u) << 10 | mantissa << 7);
}

}  // namespace tenon::quant

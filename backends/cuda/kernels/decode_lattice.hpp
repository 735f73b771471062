// Blocks of the iq1, iq2 and iq3 types, whose elements come in eights or fours from a lattice.
#pragma once

#include "kernels/decode.hpp"
#include "quant/grids.hpp"

#include <cstdint>

namespace tenon::cuda {

TENON_CONSTANT auto iq1_lattice = quant::iq1_grid;
TENON_CONSTANT auto iq2_xxs_lattice = quant::iq2_xxs_grid;
TENON_CONSTANT auto iq2_xs_lattice = quant::iq2_xs_grid;
TENON_CONSTANT auto iq2_s_lattice = quant::iq2_s_grid;
TENON_CONSTANT auto iq3_xxs_lattice = quant::iq3_xxs_grid;
TENON_CONSTANT auto iq3_s_lattice = quant::iq3_s_grid;

/// std::array's own functions are not the device's.
template <class Lattice>
TENON_DEVICE unsigned entry_of(const Lattice& lattice, unsigned i) {
  return reinterpret_cast<const std::uint16_t*>(&lattice)[i];
}

TENON_DEVICE unsigned nibble_at(const std::uint8_t* nibbles, unsigned i) {
  return nibbles[i / 2] >> (i % 2 * 4) & 15u;
}
TENON_DEVICE unsigned word_at(const std::uint8_t* bytes) {
  return bytes[0] | unsigned{bytes[1]} << 8 | unsigned{bytes[2]} << 16 | unsigned{bytes[3]} << 24;
}
/// Eight signs from the seven stored ones: their number is even.
TENON_DEVICE unsigned even_signs(unsigned seven) {
  unsigned parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 1u) << 7;
}
/// d * unit * (2 code + 1).
TENON_DEVICE float odd_scale(std::uint16_t d, float unit, unsigned code) {
  return widen_half(d) * unit * static_cast<float>(2 * code + 1);
}

/// Two-bit codes for -1, 0 and 1, an eighth more or, with `is_less`, less.
TENON_DEVICE void put_iq1(float scale, unsigned entry, bool is_less, float* out) {
  for (unsigned i = 0; i < 8; ++i) {
    const int level = 8 * static_cast<int>(entry >> (2 * i) & 3u) - 8 + (is_less ? -1 : 1);
    out[i] = scale * static_cast<float>(level);
  }
}
/// Two-bit codes for 8, 25 and 43.
TENON_DEVICE void put_iq2(float scale, unsigned entry, unsigned signs, float* out) {
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned code = entry >> (2 * i) & 3u;
    const int level = static_cast<int>(8 + 17 * code + (code == 2 ? 1 : 0));
    out[i] = scale * static_cast<float>((signs >> i & 1u) != 0 ? -level : level);
  }
}
/// Three-bit codes in two entries, for first + step * code, or for code 7 `last`.
struct Iq3Levels {
  int first, step, last;
};
TENON_DEVICE void put_iq3(float scale, const unsigned (&entries)[2], unsigned signs,
                          const Iq3Levels& levels, float* out) {
  for (unsigned i = 0; i < 8; ++i) {
    const int code = static_cast<int>(entries[i / 4] >> (i % 4 * 3) & 7u);
    const int level = code == 7 ? levels.last : levels.first + levels.step * code;
    out[i] = scale * static_cast<float>((signs >> i & 1u) != 0 ? -level : level);
  }
}

TENON_DEVICE void decode(const quant::BlockIQ1S& block, unsigned e, float* out) {
  const unsigned eight = e / 8, high = block.high[e / 32];
  const unsigned entry = block.codes[eight] | (high >> (eight % 4 * 3) & 7u) << 8;
  put_iq1(odd_scale(block.d, 0.125f, high >> 12 & 7u), entry_of(iq1_lattice, entry),
          high >> 15 != 0, out);
}
TENON_DEVICE void decode(const quant::BlockIQ1M& block, unsigned e, float* out) {
  unsigned d = 0;
  for (unsigned i = 0; i < 4; ++i) d |= unsigned{block.scales[i]} >> 12 << (4 * i);
  const unsigned eight = e / 8, b = e / 16, high = nibble_at(block.high, eight);
  const unsigned scale = block.scales[b / 4] >> (b % 4 * 3) & 7u;
  put_iq1(odd_scale(static_cast<std::uint16_t>(d), 0.125f, scale),
          entry_of(iq1_lattice, block.codes[eight] | (high & 7u) << 8), high >> 3 != 0, out);
}
TENON_DEVICE void decode(const quant::BlockIQ2XXS& block, unsigned e, float* out) {
  const unsigned eight = e / 8 % 4;
  const std::uint8_t* const codes = block.codes + e / 32 * 8;
  const unsigned word = word_at(codes + 4);
  put_iq2(odd_scale(block.d, 0.125f, word >> 28), entry_of(iq2_xxs_lattice, codes[eight]),
          even_signs(word >> (7 * eight) & 127u), out);
}
TENON_DEVICE void decode(const quant::BlockIQ2XS& block, unsigned e, float* out) {
  const unsigned code = block.codes[e / 8];
  put_iq2(odd_scale(block.d, 0.125f, nibble_at(block.scales, e / 16)),
          entry_of(iq2_xs_lattice, code & 511u), even_signs(code >> 9), out);
}
TENON_DEVICE void decode(const quant::BlockIQ2S& block, unsigned e, float* out) {
  const unsigned eight = e / 8, high = block.high[eight / 4] >> (eight % 4 * 2) & 3u;
  put_iq2(odd_scale(block.d, 0.125f, nibble_at(block.scales, e / 16)),
          entry_of(iq2_s_lattice, block.codes[eight] | high << 8), block.signs[eight], out);
}
TENON_DEVICE void decode(const quant::BlockIQ3XXS& block, unsigned e, float* out) {
  const unsigned word = word_at(block.signs + e / 32 * 4);
  const unsigned entries[2] = {entry_of(iq3_xxs_lattice, block.codes[e / 4]),
                               entry_of(iq3_xxs_lattice, block.codes[e / 4 + 1])};
  put_iq3(odd_scale(block.d, 0.25f, word >> 28), entries,
          even_signs(word >> (e / 8 % 4 * 7) & 127u), {4, 8, 62}, out);
}
TENON_DEVICE void decode(const quant::BlockIQ3S& block, unsigned e, float* out) {
  const auto entry = [&](unsigned four) {
    const unsigned high = block.high[four / 8] >> (four % 8) & 1u;
    return entry_of(iq3_s_lattice, block.codes[four] | high << 8);
  };
  const unsigned entries[2] = {entry(e / 4), entry(e / 4 + 1)};
  put_iq3(odd_scale(block.d, 1.0f, nibble_at(block.scales, e / 32)), entries, block.signs[e / 8],
          {1, 2, 15}, out);
}

}  // namespace tenon::cuda

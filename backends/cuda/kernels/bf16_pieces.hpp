// Weights as pairs of bf16, sixteen elements of a row at a time, from wide loads: what tensor cores
// multiply. Codes become floats without conversions: a code's byte is a part of the mantissa of a
// power of two, and one multiply-add scales and moves it. Products below are exact in f32, or off by
// 2^-17 of a block's scale.
#pragma once

#include "kernels/weights.hpp"

#include <cmath>
#include <cstdint>

namespace tenon::cuda {

// Loads in the order in which they are written, none before those that wait_for_earlier() is for.
TENON_DEVICE std::uint32_t load_word(Address at) {
#if defined(__CUDA_ARCH__)
  std::uint32_t word;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(at));
  return word;
#else
  return *global<const std::uint32_t>(at);
#endif
}
TENON_DEVICE std::uint32_t load_short(Address at) {
#if defined(__CUDA_ARCH__)
  std::uint16_t bits;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(bits) : "l"(at));
  return bits;
#else
  return *global<const std::uint16_t>(at);
#endif
}
TENON_DEVICE Words4 load_aligned_words(Address at) {
  const FourWords words = load_words(at);
  return {{words.word[0], words.word[1], words.word[2], words.word[3]}};
}

/// Sixteen bytes at a multiple of two. Words4 that are read lie in memory that the bytes lie in, too.
TENON_DEVICE Words4 load_shifted_words(Address at) {
  const auto odd = static_cast<unsigned>(at % 4);  // 0 or 2
  const Address begin = at - odd;
  Words4 words;
  std::uint32_t last = odd != 0 ? load_short(at + 14) : 0;
  TENON_UNROLL for (int i = 3; i >= 0; --i) {
    const std::uint32_t word = load_word(begin + 4 * static_cast<Address>(i));
    words.at[i] = funnel_shift(word, last, 8 * odd);
    last = word;
  }
  return words;
}
TENON_DEVICE Words4 load_words(Address at, bool is_aligned) {
  return is_aligned ? load_aligned_words(at) : load_shifted_words(at);
}

/// Byte i as a float, and 2^15 more.
TENON_DEVICE float lifted_code(std::uint32_t codes, unsigned i) {
#if defined(__CUDA_ARCH__)
  return bits_to_float(__byte_perm(codes, 0x47000000u, 0x7404u | i << 4));
#else
  return bits_to_float(0x47000000u | (codes >> (8 * i) & 255u) << 8);
#endif
}

/// An element is a float that its code is a part of, times `factor`, plus `base`.
struct Scaling {
  float factor, base;
};
/// code * scale + offset, of fraction_of_byte(code).
TENON_DEVICE Scaling scaling_of(float scale, float offset) {
  return {256 * scale, offset - 128 * scale};
}

TENON_DEVICE float scaled(float code, const Scaling& by) { return fmaf(code, by.factor, by.base); }

/// Eight codes below 128 in two words.
TENON_DEVICE void scale_codes(std::uint32_t first, std::uint32_t second, const Scaling& scaling,
                              std::uint32_t (&pairs)[4]) {
  TENON_UNROLL for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t codes = i < 2 ? first : second;
    const unsigned at = i % 2 * 2;
    pairs[i] = narrow_pair(scaled(fraction_of_byte(codes, at), scaling),
                           scaled(fraction_of_byte(codes, at + 1), scaling));
  }
}

/// Elements k to k + 15, and k + 32 to k + 47, of a row; k is 0 or 16 modulo 64. `load` reads them,
/// zeros behind the row's end; `is_aligned`: rows, and blocks whose size allows that, begin at
/// multiples of 16. `pairs` gives elements 8 `half` to 8 `half` + 7 of one of the two, which has
/// `scaling(piece)`. Pieces that need few registers are loaded ahead. A row of k-quants ends with a
/// block.
template <class Type>
struct Pieces;

template <>
struct Pieces<quant::BlockQ4_0> {
  static constexpr bool are_loaded_ahead = true;
  Words4 nibbles[2];
  std::uint32_t d[2];
  unsigned shift;

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t depth, bool /*is_aligned*/) {
    shift = k % 32 / 4;
    TENON_UNROLL for (unsigned piece = 0; piece < 2; ++piece) {
      const std::uint32_t number = k / 32 + piece;
      const Address block = row + Address{number} * sizeof(quant::BlockQ4_0);
      const bool is_inside = number * 32 < depth;
      d[piece] = is_inside ? load_short(block) : 0;
      nibbles[piece] = is_inside ? load_shifted_words(block + 2) : Words4{};
    }
  }
  TENON_DEVICE Scaling scaling(unsigned piece) const {
    const float scale = widen_half(static_cast<std::uint16_t>(d[piece]));
    return scaling_of(scale, -8 * scale);
  }
  TENON_DEVICE void pairs(unsigned piece, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    const Words4& words = nibbles[piece];
    const auto codes = [&](unsigned i) { return words.at[2 * half + i] >> shift & 0x0F0F0F0Fu; };
    scale_codes(codes(0), codes(1), scaling, out);
  }
};

template <>
struct Pieces<quant::BlockQ8_0> {
  static constexpr bool are_loaded_ahead = true;
  Words4 codes[2];
  std::uint32_t d[2];

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t depth, bool /*is_aligned*/) {
    TENON_UNROLL for (unsigned piece = 0; piece < 2; ++piece) {
      const std::uint32_t number = k / 32 + piece;
      const Address block = row + Address{number} * sizeof(quant::BlockQ8_0);
      const bool is_inside = number * 32 < depth;
      d[piece] = is_inside ? load_short(block) : 0;
      codes[piece] = is_inside ? load_shifted_words(block + 2 + k % 32) : Words4{};
    }
  }
  TENON_DEVICE Scaling scaling(unsigned piece) const {
    const float scale = widen_half(static_cast<std::uint16_t>(d[piece]));
    return {scale, -32896 * scale};  // 2^15, and 128 that makes codes positive
  }
  TENON_DEVICE void pairs(unsigned piece, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    TENON_UNROLL for (unsigned i = 0; i < 2; ++i) {
      const std::uint32_t four = codes[piece].at[2 * half + i] ^ 0x80808080u;
      TENON_UNROLL for (unsigned j = 0; j < 2; ++j) {
        out[2 * i + j] = narrow_pair(scaled(lifted_code(four, 2 * j), scaling),
                                     scaled(lifted_code(four, 2 * j + 1), scaling));
      }
    }
  }
};

/// Scale and min of sub-block b of q4_k and q5_k, from the first words of a block.
TENON_DEVICE ScaleAndMin scale_and_min(const Words4& head, unsigned b) {
  const unsigned shift = b % 4 * 8;
  const std::uint32_t first = head.at[1] >> shift, second = head.at[2] >> shift;
  const std::uint32_t third = head.at[3] >> shift;
  const bool is_split = b >= 4;
  const unsigned scale = is_split ? (third & 15u) | (first >> 2 & 48u) : first & 63u;
  const unsigned min = is_split ? (third >> 4 & 15u) | (second >> 2 & 48u) : second & 63u;
  return {widen_half(static_cast<std::uint16_t>(head.at[0])) * static_cast<float>(scale),
          widen_half(static_cast<std::uint16_t>(head.at[0] >> 16)) * static_cast<float>(min)};
}

template <>
struct Pieces<quant::BlockQ4K> {
  static constexpr bool are_loaded_ahead = true;
  Words4 head, nibbles;
  unsigned first;  ///< sub-block

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t /*depth*/, bool is_aligned) {
    const unsigned e = k % 256;
    const Address block = row + Address{k / 256} * sizeof(quant::BlockQ4K);
    first = e / 32;
    head = load_words(block, is_aligned);
    nibbles = load_words(block + 16 + e / 64 * 32 + e % 32, is_aligned);
  }
  TENON_DEVICE Scaling scaling(unsigned piece) const {
    const ScaleAndMin of = scale_and_min(head, first + piece);
    return scaling_of(of.scale, -of.min);
  }
  TENON_DEVICE void pairs(unsigned piece, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    const auto codes = [&](unsigned i) {
      return (nibbles.at[2 * half + i] >> (4 * piece) & 0x0F0F0F0Fu);
    };
    scale_codes(codes(0), codes(1), scaling, out);
  }
};

template <>
struct Pieces<quant::BlockQ5K> {
  static constexpr bool are_loaded_ahead = true;
  Words4 head, high, nibbles;
  unsigned first;

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t /*depth*/, bool is_aligned) {
    const unsigned e = k % 256;
    const Address block = row + Address{k / 256} * sizeof(quant::BlockQ5K);
    first = e / 32;
    head = load_words(block, is_aligned);
    high = load_words(block + 16 + e % 32, is_aligned);
    nibbles = load_words(block + 48 + e / 64 * 32 + e % 32, is_aligned);
  }
  TENON_DEVICE Scaling scaling(unsigned piece) const {
    const ScaleAndMin of = scale_and_min(head, first + piece);
    return scaling_of(of.scale, -of.min);
  }
  TENON_DEVICE void pairs(unsigned piece, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    const auto codes = [&](unsigned i) {
      const std::uint32_t low = nibbles.at[2 * half + i] >> (4 * piece) & 0x0F0F0F0Fu;
      const std::uint32_t bits = high.at[2 * half + i] >> (first + piece) & 0x01010101u;
      return low | bits << 4;
    };
    scale_codes(codes(0), codes(1), scaling, out);
  }
};

template <>
struct Pieces<quant::BlockQ6K> {
  static constexpr bool are_loaded_ahead = true;
  Words4 nibbles[2], crumbs;
  std::uint32_t d, scales[2];
  unsigned shift;  ///< of the nibbles: 0 or 4

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t /*depth*/,
                         bool /*is_aligned*/) {
    const unsigned e = k % 256;
    const Address block = row + Address{k / 256} * sizeof(quant::BlockQ6K);
    shift = e / 64 % 2 * 4;
    d = load_short(block + 208);
    crumbs = load_shifted_words(block + 128 + e / 128 * 32 + e % 32);
    TENON_UNROLL for (unsigned piece = 0; piece < 2; ++piece) {
      nibbles[piece] = load_shifted_words(block + e / 128 * 64 + e % 32 + 32 * piece);
      // Two scales, of which the piece has one.
      const unsigned at = e / 16 + 2 * piece;
      scales[piece] = load_short(block + 192 + at / 2 * 2) << (at % 2 == 0 ? 24 : 16);
    }
  }
  TENON_DEVICE Scaling scaling(unsigned piece) const {
    const auto code = static_cast<std::int32_t>(scales[piece]) >> 24;
    const float scale = widen_half(static_cast<std::uint16_t>(d)) * static_cast<float>(code);
    return scaling_of(scale, -32 * scale);
  }
  TENON_DEVICE void pairs(unsigned piece, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    const auto codes = [&](unsigned i) {
      const std::uint32_t low = nibbles[piece].at[2 * half + i] >> shift & 0x0F0F0F0Fu;
      const std::uint32_t high = crumbs.at[2 * half + i] >> (shift + 2 * piece) & 0x03030303u;
      return low | high << 4;
    };
    scale_codes(codes(0), codes(1), scaling, out);
  }
};

/// f16 and bf16, as they lie; the depth is a multiple of 8.
template <class Type>
struct PlainPieces {
  static constexpr bool are_loaded_ahead = false;
  Words4 halves[2][2];

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t depth, bool is_aligned) {
    TENON_UNROLL for (unsigned piece = 0; piece < 2; ++piece) {
      TENON_UNROLL for (unsigned half = 0; half < 2; ++half) {
        const std::uint32_t at = k + 32 * piece + 8 * half;
        halves[piece][half] = at < depth ? load_words(row + 2 * Address{at}, is_aligned) : Words4{};
      }
    }
  }
  TENON_DEVICE Scaling scaling(unsigned /*piece*/) const { return {}; }
};
template <>
struct Pieces<PlainBf16> : PlainPieces<PlainBf16> {
  TENON_DEVICE void pairs(unsigned piece, unsigned half, const Scaling& /*scaling*/,
                          std::uint32_t (&out)[4]) const {
    TENON_UNROLL for (unsigned i = 0; i < 4; ++i) out[i] = halves[piece][half].at[i];
  }
};
template <>
struct Pieces<PlainF16> : PlainPieces<PlainF16> {
  TENON_DEVICE void pairs(unsigned piece, unsigned half, const Scaling& /*scaling*/,
                          std::uint32_t (&out)[4]) const {
    TENON_UNROLL for (unsigned i = 0; i < 4; ++i) {
      const std::uint32_t pair = halves[piece][half].at[i];
      out[i] = narrow_pair(widen_half(static_cast<std::uint16_t>(pair)),
                           widen_half(static_cast<std::uint16_t>(pair >> 16)));
    }
  }
};

}  // namespace tenon::cuda

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

/// Sixteen bytes at a multiple of 16, or of 2, as they are loaded: nothing waits for them before
/// `word`. Words that are read lie in memory that the bytes lie in, too.
template <bool is_aligned>
struct SixteenBytes {
  Words4 words;

  TENON_DEVICE void load(Address at) { words = load_words(at); }
  TENON_DEVICE std::uint32_t word(unsigned i) const { return words.at[i]; }
};
template <>
struct SixteenBytes<false> {
  std::uint32_t words[5];
  unsigned shift;  ///< 16 where they begin in the midst of a word

  TENON_DEVICE void load(Address at) {
    const auto odd = static_cast<unsigned>(at % 4);
    TENON_UNROLL for (unsigned i = 0; i < 4; ++i) words[i] = load_word(at - odd + 4 * i);
    words[4] = load_short(at + 14);
    shift = 8 * odd;
  }
  TENON_DEVICE std::uint32_t word(unsigned i) const {
    return funnel_shift(words[i], words[i + 1], shift);
  }
};

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

/// Elements k to k + 15 of a row, of which `pairs` gives eight from 8 `half` on; k is a multiple of 16.
/// `load` does not wait for what it loads. Behind the row's end, which is that of a block or a multiple
/// of 8, all are 0. `may_be_aligned`: blocks begin at multiples of 16 where rows do, and with
/// `is_aligned` all of them do.
template <class Type, bool is_aligned>
struct SixteenOf;

/// Where the block of 32 elements from k on begins, or the last one.
template <class Type>
TENON_DEVICE Address block_of(Address row, std::uint32_t k, std::uint32_t depth) {
  return row + Address{(k < depth ? k : depth - 1) / Type::size} * sizeof(Type);
}
TENON_DEVICE float scale_inside(std::uint32_t d, std::uint32_t k, std::uint32_t depth) {
  return k < depth ? widen_half(static_cast<std::uint16_t>(d)) : 0.0f;
}

template <bool is_aligned>
struct SixteenOf<quant::BlockQ4_0, is_aligned> {
  static constexpr bool may_be_aligned = false;
  SixteenBytes<false> nibbles;
  std::uint32_t d;

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t depth) {
    const Address block = block_of<quant::BlockQ4_0>(row, k, depth);
    d = load_short(block);
    nibbles.load(block + 2);
  }
  TENON_DEVICE Scaling scaling(std::uint32_t k, std::uint32_t depth) const {
    const float scale = scale_inside(d, k, depth);
    return scaling_of(scale, -8 * scale);
  }
  TENON_DEVICE void pairs(std::uint32_t k, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    const auto codes = [&](unsigned i) {
      return nibbles.word(2 * half + i) >> (k % 32 / 4) & 0x0F0F0F0Fu;
    };
    scale_codes(codes(0), codes(1), scaling, out);
  }
};

template <bool is_aligned>
struct SixteenOf<quant::BlockQ8_0, is_aligned> {
  static constexpr bool may_be_aligned = false;
  SixteenBytes<false> codes;
  std::uint32_t d;

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t depth) {
    const Address block = block_of<quant::BlockQ8_0>(row, k, depth);
    d = load_short(block);
    codes.load(block + 2 + k % 32);
  }
  TENON_DEVICE Scaling scaling(std::uint32_t k, std::uint32_t depth) const {
    const float scale = scale_inside(d, k, depth);
    return {scale, -32896 * scale};  // 2^15, and 128 that makes codes positive
  }
  TENON_DEVICE void pairs(std::uint32_t /*k*/, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    TENON_UNROLL for (unsigned i = 0; i < 2; ++i) {
      const std::uint32_t four = codes.word(2 * half + i) ^ 0x80808080u;
      TENON_UNROLL for (unsigned j = 0; j < 2; ++j) {
        out[2 * i + j] = narrow_pair(scaled(lifted_code(four, 2 * j), scaling),
                                     scaled(lifted_code(four, 2 * j + 1), scaling));
      }
    }
  }
};

/// Scale and min of sub-block b of q4_k and q5_k, from the first words of a block.
template <bool is_aligned>
TENON_DEVICE Scaling scaling_of_sub_block(const SixteenBytes<is_aligned>& head, unsigned b) {
  const unsigned shift = b % 4 * 8;
  const std::uint32_t first = head.word(1) >> shift, second = head.word(2) >> shift;
  const std::uint32_t third = head.word(3) >> shift;
  const bool is_split = b >= 4;
  const unsigned scale = is_split ? (third & 15u) | (first >> 2 & 48u) : first & 63u;
  const unsigned min = is_split ? (third >> 4 & 15u) | (second >> 2 & 48u) : second & 63u;
  const float d = widen_half(static_cast<std::uint16_t>(head.word(0)));
  const float dmin = widen_half(static_cast<std::uint16_t>(head.word(0) >> 16));
  return scaling_of(d * static_cast<float>(scale), -dmin * static_cast<float>(min));
}

template <bool is_aligned>
struct SixteenOf<quant::BlockQ4K, is_aligned> {
  static constexpr bool may_be_aligned = true;
  SixteenBytes<is_aligned> head, nibbles;

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t depth) {
    const unsigned e = k % 256;
    const Address block = block_of<quant::BlockQ4K>(row, k, depth);
    head.load(block);
    nibbles.load(block + 16 + e / 64 * 32 + e % 32);
  }
  TENON_DEVICE Scaling scaling(std::uint32_t k, std::uint32_t /*depth*/) const {
    return scaling_of_sub_block(head, k % 256 / 32);
  }
  TENON_DEVICE void pairs(std::uint32_t k, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    const auto codes = [&](unsigned i) {
      return nibbles.word(2 * half + i) >> (k / 32 % 2 * 4) & 0x0F0F0F0Fu;
    };
    scale_codes(codes(0), codes(1), scaling, out);
  }
};

template <bool is_aligned>
struct SixteenOf<quant::BlockQ5K, is_aligned> {
  static constexpr bool may_be_aligned = true;
  SixteenBytes<is_aligned> head, high, nibbles;

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t depth) {
    const unsigned e = k % 256;
    const Address block = block_of<quant::BlockQ5K>(row, k, depth);
    head.load(block);
    high.load(block + 16 + e % 32);
    nibbles.load(block + 48 + e / 64 * 32 + e % 32);
  }
  TENON_DEVICE Scaling scaling(std::uint32_t k, std::uint32_t /*depth*/) const {
    return scaling_of_sub_block(head, k % 256 / 32);
  }
  TENON_DEVICE void pairs(std::uint32_t k, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    const auto codes = [&](unsigned i) {
      const std::uint32_t low = nibbles.word(2 * half + i) >> (k / 32 % 2 * 4) & 0x0F0F0F0Fu;
      const std::uint32_t bits = high.word(2 * half + i) >> (k % 256 / 32) & 0x01010101u;
      return low | bits << 4;
    };
    scale_codes(codes(0), codes(1), scaling, out);
  }
};

template <bool is_aligned>
struct SixteenOf<quant::BlockQ6K, is_aligned> {
  static constexpr bool may_be_aligned = false;
  SixteenBytes<false> nibbles, crumbs;
  std::uint32_t d, scales;  ///< two scales, of which the piece has one

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t depth) {
    const unsigned e = k % 256;
    const Address block = block_of<quant::BlockQ6K>(row, k, depth);
    nibbles.load(block + e / 128 * 64 + e % 64);
    crumbs.load(block + 128 + e / 128 * 32 + e % 32);
    scales = load_short(block + 192 + e / 32 * 2);
    d = load_short(block + 208);
  }
  TENON_DEVICE Scaling scaling(std::uint32_t k, std::uint32_t /*depth*/) const {
    const std::uint32_t on_top = scales << (k / 16 % 2 == 0 ? 24 : 16);
    const float scale = widen_half(static_cast<std::uint16_t>(d)) *
                        static_cast<float>(static_cast<std::int32_t>(on_top) >> 24);
    return scaling_of(scale, -32 * scale);
  }
  TENON_DEVICE void pairs(std::uint32_t k, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    const auto codes = [&](unsigned i) {
      const std::uint32_t low = nibbles.word(2 * half + i) >> (k / 64 % 2 * 4) & 0x0F0F0F0Fu;
      const std::uint32_t high = crumbs.word(2 * half + i) >> (k / 32 % 4 * 2) & 0x03030303u;
      return low | high << 4;
    };
    scale_codes(codes(0), codes(1), scaling, out);
  }
};

/// f16 and bf16, as they lie.
template <bool is_aligned>
struct PlainSixteen {
  static constexpr bool may_be_aligned = true;
  SixteenBytes<is_aligned> halves[2];

  TENON_DEVICE void load(Address row, std::uint32_t k, std::uint32_t depth) {
    TENON_UNROLL for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t at = k + 8 * half;
      halves[half].load(row + 2 * Address{at < depth ? at : depth - 8});
    }
  }
  TENON_DEVICE Scaling scaling(std::uint32_t k, std::uint32_t depth) const {
    return {k < depth ? 1.0f : 0.0f, k + 8 < depth ? 1.0f : 0.0f};
  }
  static TENON_DEVICE bool is_inside(const Scaling& scaling, unsigned half) {
    return (half == 0 ? scaling.factor : scaling.base) != 0;
  }
};
template <bool is_aligned>
struct SixteenOf<PlainBf16, is_aligned> : PlainSixteen<is_aligned> {
  TENON_DEVICE void pairs(std::uint32_t /*k*/, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    TENON_UNROLL for (unsigned i = 0; i < 4; ++i) {
      out[i] = this->is_inside(scaling, half) ? this->halves[half].word(i) : 0;
    }
  }
};
template <bool is_aligned>
struct SixteenOf<PlainF16, is_aligned> : PlainSixteen<is_aligned> {
  TENON_DEVICE void pairs(std::uint32_t /*k*/, unsigned half, const Scaling& scaling,
                          std::uint32_t (&out)[4]) const {
    TENON_UNROLL for (unsigned i = 0; i < 4; ++i) {
      const std::uint32_t pair = this->is_inside(scaling, half) ? this->halves[half].word(i) : 0;
      out[i] = narrow_pair(widen_half(static_cast<std::uint16_t>(pair)),
                           widen_half(static_cast<std::uint16_t>(pair >> 16)));
    }
  }
};

}  // namespace tenon::cuda

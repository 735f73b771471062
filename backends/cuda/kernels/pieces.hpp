// What a lane multiplies at once of a row of weights that a warp has copied to shared memory: codes
// as floats, and what they are scaled by.
//
// Piece<Type>:
//   elements    of a lane; a warp's 32 pieces are a slice of the row
//   segments    of equal size: element i is codes[i] * scales[s] + offsets[s], s its segment
//   alignment   of the slice's first byte in shared memory, 16 or 1
//   slice_bytes of a slice
//   bytes(k)    from a row's first byte to that of element k, where a block may begin
//   place(p, q) where piece p of a slice has its elements 4 q to 4 q + 3
//   read(words, at, p, left, out)   piece p of the slice at byte `at`, of `left` elements
#pragma once

#include "kernels/weights.hpp"

#include <cstdint>

namespace tenon::cuda {

template <std::uint32_t element_count, std::uint32_t segment_count, bool with_offsets>
struct PieceValues {
  float codes[element_count], scales[segment_count], offsets[segment_count];
};

/// Word i of shared memory.
template <class Words>
TENON_DEVICE std::uint32_t word_of(const Words& words, std::uint32_t i) {
  return words[i / 4].at[i % 4];
}
/// `count` words from byte `at` on, and of the same place two bytes.
template <std::uint32_t count, class Words>
TENON_DEVICE void read_words(const Words& words, std::uint32_t at, std::uint32_t (&out)[count]) {
  std::uint32_t low = word_of(words, at / 4);
  TENON_UNROLL for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t high = word_of(words, at / 4 + i + 1);
    out[i] = funnel_shift(low, high, at % 4 * 8);
    low = high;
  }
}
template <class Words>
TENON_DEVICE float read_half(const Words& words, std::uint32_t at) {
  return widen_half(static_cast<std::uint16_t>(word_of(words, at / 4) >> (at % 4 * 8)));
}

/// The code of `bits` bits from bit `at` on, less `zero`: in the mantissa of a power of two, which
/// is then taken off. Both are exact.
template <std::uint32_t bits>
TENON_DEVICE float code_at(std::uint32_t word, std::uint32_t at, std::uint32_t zero) {
  const std::uint32_t moved = at + bits > 23 ? 16 : 0, place = at - moved;
  const std::uint32_t mask = ((1u << bits) - 1) << place, power = (150 - place) << 23;
  const float value = bits_to_float((word >> moved & mask) | power);
  return value - static_cast<float>((1u << (23 - place)) + zero);
}

/// Codes of a byte each, less `zero`.
template <std::uint32_t bits>
TENON_DEVICE void put_bytes(std::uint32_t word, std::uint32_t zero, float* codes) {
  TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) codes[j] = code_at<bits>(word, 8 * j, zero);
}
/// Low nibbles as codes 4 i and on, high ones 16 behind.
template <std::uint32_t count>
TENON_DEVICE void put_nibbles(const std::uint32_t (&words)[count], std::uint32_t zero,
                              float* codes) {
  TENON_UNROLL for (std::uint32_t i = 0; i < count; ++i) {
    TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
      codes[4 * i + j] = code_at<4>(words[i], 8 * j, zero);
      codes[4 * count + 4 * i + j] = code_at<4>(words[i], 8 * j + 4, zero);
    }
  }
}

/// Blocks of any type, decoded eight elements at a time.
template <class Type>
struct Piece {
  static constexpr std::uint32_t elements = 32, segments = 2, alignment = 1;
  static constexpr bool is_plain = false, has_offsets = false;
  static constexpr std::uint32_t slice_bytes = warp_size * elements / Type::size * sizeof(Type);
  using Values = PieceValues<elements, segments, has_offsets>;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) {
    return k / static_cast<std::uint32_t>(Type::size) * static_cast<std::uint32_t>(sizeof(Type));
  }
  static TENON_DEVICE std::uint32_t place(std::uint32_t p, std::uint32_t q) {
    return elements * p + 4 * q;
  }
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, std::uint32_t p,
                                std::uint32_t /*left*/, Values& out) {
    constexpr std::uint32_t size = Type::size;
    const std::uint8_t* const first = reinterpret_cast<const std::uint8_t*>(&words[at / 16]);
    const std::uint8_t* const block = first + at % 16 + bytes(elements * p);
    TENON_UNROLL for (std::uint32_t i = 0; i < elements; i += 8) {
      decode(*reinterpret_cast<const Type*>(block), elements * p % size + i, out.codes + i);
    }
    out.scales[0] = out.scales[1] = 1.0f;
  }
};

/// Blocks of 32, with 4 bits of each code where q4_0 has them. `head`: bytes in front of these.
template <class Type, bool with_offsets>
struct NibblePiece {
  static constexpr std::uint32_t elements = 32, segments = 2, alignment = 1;
  static constexpr bool is_plain = false, has_offsets = with_offsets;
  static constexpr std::uint32_t slice_bytes = 32 * sizeof(Type);
  using Values = PieceValues<elements, segments, has_offsets>;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) { return k / 32 * block_bytes; }
  static TENON_DEVICE std::uint32_t place(std::uint32_t p, std::uint32_t q) {
    return elements * p + 4 * q;
  }

 protected:
  static constexpr std::uint32_t block_bytes = sizeof(Type);
  template <class Words>
  static TENON_DEVICE void read_scales(const Words& words, std::uint32_t at, Values& out) {
    out.scales[0] = out.scales[1] = read_half(words, at);
    if (has_offsets) out.offsets[0] = out.offsets[1] = read_half(words, at + 2);
  }
};

template <class Type, bool with_offsets, std::uint32_t zero>
struct FourBitPiece : NibblePiece<Type, with_offsets> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, std::uint32_t p,
                                std::uint32_t /*left*/,
                                typename NibblePiece<Type, with_offsets>::Values& out) {
    at += p * sizeof(Type);
    std::uint32_t nibbles[4];
    read_words(words, at + sizeof(Type) - 16, nibbles);
    put_nibbles(nibbles, zero, out.codes);
    FourBitPiece::read_scales(words, at, out);
  }
};
template <>
struct Piece<quant::BlockQ4_0> : FourBitPiece<quant::BlockQ4_0, false, 8> {};
template <>
struct Piece<quant::BlockQ4_1> : FourBitPiece<quant::BlockQ4_1, true, 0> {};

template <class Type, bool with_offsets, std::uint32_t zero>
struct FiveBitPiece : NibblePiece<Type, with_offsets> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, std::uint32_t p,
                                std::uint32_t /*left*/,
                                typename NibblePiece<Type, with_offsets>::Values& out) {
    at += p * sizeof(Type);
    std::uint32_t parts[5];  // the high bits, and nibbles
    read_words(words, at + sizeof(Type) - 20, parts);
    TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t nibbles = parts[i + 1];
      const std::uint32_t low = (nibbles & 0x0F0F0F0Fu) | fifth_bits(parts[0] >> (4 * i));
      const std::uint32_t high =
          (nibbles >> 4 & 0x0F0F0F0Fu) | fifth_bits(parts[0] >> (16 + 4 * i));
      put_bytes<5>(low, zero, out.codes + 4 * i);
      put_bytes<5>(high, zero, out.codes + 16 + 4 * i);
    }
    FiveBitPiece::read_scales(words, at, out);
  }

 private:
  /// The lowest four bits, each as bit 4 of a byte.
  static TENON_DEVICE std::uint32_t fifth_bits(std::uint32_t bits) {
    return (bits & 15u) * 0x02040810u & 0x10101010u;
  }
};
template <>
struct Piece<quant::BlockQ5_0> : FiveBitPiece<quant::BlockQ5_0, false, 16> {};
template <>
struct Piece<quant::BlockQ5_1> : FiveBitPiece<quant::BlockQ5_1, true, 0> {};

template <>
struct Piece<quant::BlockQ8_0> : NibblePiece<quant::BlockQ8_0, false> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, std::uint32_t p,
                                std::uint32_t /*left*/, Values& out) {
    at += p * block_bytes;
    std::uint32_t codes[8];
    read_words(words, at + 2, codes);
    TENON_UNROLL for (std::uint32_t i = 0; i < 8; ++i) {
      put_bytes<8>(codes[i] ^ 0x80808080u, 128, out.codes + 4 * i);
    }
    read_scales(words, at, out);
  }
};

/// Blocks of 256 whose piece p has 16 bytes of nibbles, 32 (p / 2) + 16 (p % 2) and on: elements of
/// two sub-blocks of 32. `head`: bytes in front of the nibbles, 16 of which are scales as q4_k's.
template <class Type>
struct PairPiece {
  static constexpr std::uint32_t elements = 32, segments = 2, alignment = 16;
  static constexpr bool is_plain = false, has_offsets = true;
  static constexpr std::uint32_t slice_bytes = 4 * sizeof(Type);
  using Values = PieceValues<elements, segments, has_offsets>;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) { return k / 256 * block_bytes; }
  static TENON_DEVICE std::uint32_t place(std::uint32_t p, std::uint32_t q) {
    return p / 2 * 64 + p % 2 * 16 + q / 4 * 32 + q % 4 * 4;
  }

 protected:
  static constexpr std::uint32_t block_bytes = sizeof(Type);
  /// Of sub-blocks 2 c and 2 c + 1.
  static TENON_DEVICE void put_scales(const Words4& head, std::uint32_t c, Values& out) {
    const bool is_low = c < 2;
    const std::uint32_t own = is_low ? 0x3F3F3F3Fu : 0x0F0F0F0Fu;
    const std::uint32_t shared = is_low ? 0u : 0x30303030u;
    const std::uint32_t scales =
        ((is_low ? head.at[1] : head.at[3]) & own) | (head.at[1] >> 2 & shared);
    const std::uint32_t mins =
        ((is_low ? head.at[2] : head.at[3] >> 4) & own) | (head.at[2] >> 2 & shared);
    const float d = widen_half(static_cast<std::uint16_t>(head.at[0]));
    const float min = -widen_half(static_cast<std::uint16_t>(head.at[0] >> 16));
    const std::uint32_t from = c % 2 * 16;
    TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
      out.scales[i] = d * code_at<6>(scales >> from, 8 * i, 0);
      out.offsets[i] = min * code_at<6>(mins >> from, 8 * i, 0);
    }
  }
};

template <>
struct Piece<quant::BlockQ4K> : PairPiece<quant::BlockQ4K> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, std::uint32_t p,
                                std::uint32_t /*left*/, Values& out) {
    const std::uint32_t block = at / 16 + p / 8 * (block_bytes / 16);
    put_scales(words[block], p % 8 / 2, out);
    put_nibbles(words[block + 1 + p % 8].at, 0, out.codes);
  }
};
template <>
struct Piece<quant::BlockQ5K> : PairPiece<quant::BlockQ5K> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, std::uint32_t p,
                                std::uint32_t /*left*/, Values& out) {
    const std::uint32_t block = at / 16 + p / 8 * (block_bytes / 16), c = p % 8 / 2;
    put_scales(words[block], c, out);
    const Words4 bits = words[block + 1 + p % 2], nibbles = words[block + 3 + p % 8];
    TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t fifth = bits.at[i] >> (2 * c), four = nibbles.at[i];
      put_bytes<5>((four & 0x0F0F0F0Fu) | (fifth << 4 & 0x10101010u), 0, out.codes + 4 * i);
      put_bytes<5>((four >> 4 & 0x0F0F0F0Fu) | (fifth << 3 & 0x10101010u), 0,
                   out.codes + 16 + 4 * i);
    }
  }
};

/// Blocks of 256 whose piece p has eight elements, from 8 (p % 4) on, of each of four sub-blocks of
/// 32 behind element 128 (p / 4).
template <class Type, bool with_offsets>
struct QuarterPiece {
  static constexpr std::uint32_t elements = 32, segments = 4, alignment = 1;
  static constexpr bool is_plain = false, has_offsets = with_offsets;
  static constexpr std::uint32_t slice_bytes = 4 * sizeof(Type);
  using Values = PieceValues<elements, segments, has_offsets>;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) { return k / 256 * block_bytes; }
  static TENON_DEVICE std::uint32_t place(std::uint32_t p, std::uint32_t q) {
    return p / 4 * 128 + p % 4 * 8 + q / 2 * 32 + q % 2 * 4;
  }

 protected:
  static constexpr std::uint32_t block_bytes = sizeof(Type);
};

template <>
struct Piece<quant::BlockQ6K> : QuarterPiece<quant::BlockQ6K, false> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, std::uint32_t p,
                                std::uint32_t /*left*/, Values& out) {
    const std::uint32_t half = p % 8 / 4, from = p % 4 * 8;
    at += p / 8 * block_bytes;
    std::uint32_t first[2], second[2], crumbs[2], scales[2];
    read_words(words, at + half * 64 + from, first);
    read_words(words, at + half * 64 + 32 + from, second);
    read_words(words, at + 128 + half * 32 + from, crumbs);
    TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint32_t codes[4] = {
          (first[i] & 0x0F0F0F0Fu) | (crumbs[i] << 4 & 0x30303030u),
          (second[i] & 0x0F0F0F0Fu) | (crumbs[i] << 2 & 0x30303030u),
          (first[i] >> 4 & 0x0F0F0F0Fu) | (crumbs[i] & 0x30303030u),
          (second[i] >> 4 & 0x0F0F0F0Fu) | (crumbs[i] >> 2 & 0x30303030u)};
      TENON_UNROLL for (std::uint32_t m = 0; m < 4; ++m) {
        put_bytes<6>(codes[m], 32, out.codes + 8 * m + 4 * i);
      }
    }
    // Bytes 2 m + from / 16 of eight.
    read_words(words, at + 192 + half * 8, scales);
    const float d = read_half(words, at + 208);
    TENON_UNROLL for (std::uint32_t m = 0; m < 4; ++m) {
      const std::uint32_t pair = (scales[m / 2] ^ 0x80808080u) >> (m % 2 * 16);
      out.scales[m] = d * code_at<8>(pair >> (from / 16 * 8), 0, 128);
    }
  }
};

template <>
struct Piece<quant::BlockQ2K> : QuarterPiece<quant::BlockQ2K, true> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, std::uint32_t p,
                                std::uint32_t /*left*/, Values& out) {
    const std::uint32_t half = p % 8 / 4, from = p % 4 * 8;
    at += p / 8 * block_bytes;
    std::uint32_t scales[2], crumbs[2], factors[1];
    read_words(words, at + half * 8, scales);
    read_words(words, at + 16 + half * 32 + from, crumbs);
    read_words(words, at + 80, factors);
    const float d = widen_half(static_cast<std::uint16_t>(factors[0]));
    const float min = -widen_half(static_cast<std::uint16_t>(factors[0] >> 16));
    TENON_UNROLL for (std::uint32_t m = 0; m < 4; ++m) {
      TENON_UNROLL for (std::uint32_t i = 0; i < 8; ++i) {
        out.codes[8 * m + i] = code_at<2>(crumbs[i / 4], i % 4 * 8 + 2 * m, 0);
      }
      const std::uint32_t pair = scales[m / 2] >> (m % 2 * 16) >> (from / 16 * 8);
      out.scales[m] = d * code_at<4>(pair, 0, 0);
      out.offsets[m] = min * code_at<4>(pair, 4, 0);
    }
  }
};

template <>
struct Piece<quant::BlockQ3K> : QuarterPiece<quant::BlockQ3K, false> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, std::uint32_t p,
                                std::uint32_t /*left*/, Values& out) {
    const std::uint32_t half = p % 8 / 4, from = p % 4 * 8;
    at += p / 8 * block_bytes;
    std::uint32_t bits[2], crumbs[2], scales[3];
    read_words(words, at + from, bits);
    read_words(words, at + 32 + half * 32 + from, crumbs);
    read_words(words, at + 96, scales);
    const float d = read_half(words, at + 108);
    TENON_UNROLL for (std::uint32_t m = 0; m < 4; ++m) {
      TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
        const std::uint32_t high = bits[i] >> (4 * half) >> m << 2 & 0x04040404u;
        put_bytes<3>((crumbs[i] >> (2 * m) & 0x03030303u) | high, 4, out.codes + 8 * m + 4 * i);
      }
      // Scale 8 half + 2 m + from / 16: a nibble of eight bytes, two bits of four.
      const std::uint32_t nibble =
          scales[m / 2] >> (m % 2 * 16) >> (from / 16 * 8 + 4 * half) & 15u;
      const std::uint32_t two =
          scales[2] >> (m % 2 * 16) >> (from / 16 * 8 + 4 * half) >> (m / 2 * 2);
      out.scales[m] = d * code_at<6>(nibble | (two & 3u) << 4, 0, 32);
    }
  }
};

/// Plain types: 16 bytes of a row at a time, of `parts` places 32 lanes apart.
template <class Type, std::uint32_t element_bytes, std::uint32_t parts>
struct PlainPiece {
  static constexpr std::uint32_t in_words = 16 / element_bytes, elements = parts * in_words;
  static constexpr std::uint32_t segments = 2, alignment = 16;
  static constexpr bool is_plain = true, has_offsets = false;
  static constexpr std::uint32_t slice_bytes = warp_size * parts * 16;
  using Values = PieceValues<elements, segments, has_offsets>;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) { return k * element_bytes; }
  static TENON_DEVICE std::uint32_t place(std::uint32_t p, std::uint32_t q) {
    return (4 * q / in_words * warp_size + p) * in_words + 4 * q % in_words;
  }
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, std::uint32_t p,
                                std::uint32_t left, Values& out) {
    TENON_UNROLL for (std::uint32_t part = 0; part < parts; ++part) {
      const Words4 four = words[at / 16 + part * warp_size + p];
      TENON_UNROLL for (std::uint32_t i = 0; i < in_words; ++i) {
        out.codes[part * in_words + i] = element(Type(), four, i);
      }
    }
    if (left < warp_size * elements) {
      TENON_UNROLL for (std::uint32_t i = 0; i < elements; ++i) {
        if (place(p, i / 4) + i % 4 >= left) out.codes[i] = 0.0f;
      }
    }
    out.scales[0] = out.scales[1] = 1.0f;
  }

 private:
  static TENON_DEVICE float element(PlainF32, const Words4& four, std::uint32_t i) {
    return bits_to_float(four.at[i]);
  }
  static TENON_DEVICE float element(PlainF16, const Words4& four, std::uint32_t i) {
    return widen_half(static_cast<std::uint16_t>(four.at[i / 2] >> (i % 2 * 16)));
  }
  static TENON_DEVICE float element(PlainBf16, const Words4& four, std::uint32_t i) {
    return bits_to_float(i % 2 == 0 ? four.at[i / 2] << 16 : four.at[i / 2] & 0xFFFF0000u);
  }
};
template <>
struct Piece<PlainF32> : PlainPiece<PlainF32, 4, 2> {};
template <>
struct Piece<PlainF16> : PlainPiece<PlainF16, 2, 2> {};
template <>
struct Piece<PlainBf16> : PlainPiece<PlainBf16, 2, 2> {};

}  // namespace tenon::cuda

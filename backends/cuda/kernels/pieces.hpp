// What a lane multiplies at once of a row of weights that a warp has copied to shared memory: codes
// as floats, and what they are scaled by.
//
// Piece<Type>:
//   elements    of a lane; a warp's 32 pieces are a slice of the row
//   segments    of equal size, which are summed up by themselves
//   form        how an element is made of its code; s is its segment
//   zero        what is taken off codes
//   slice_bytes, alignment   of a slice; of its first byte in shared memory, 16 or 1
//   is_padded   whether zeros are read behind a row's end
//   bytes(k)    from a row's first byte to that of element k, where a block begins
//   place(p, q) where piece p of a slice has its elements 4 q to 4 q + 3
//   Lane(p)     what `read` needs of a lane's number
//   read(words, at, lane, out)   the lane's piece of the slice at address `at`
#pragma once

#include "kernels/weights.hpp"

#include <cstdint>

namespace tenon::cuda {

enum class PieceForm {
  plain,    ///< code
  scaled,   ///< factor code
  shifted,  ///< factor code + offset
  scales,   ///< factor scales[s] code
  mins,     ///< factor scales[s] code + offset mins[s]
};

template <std::uint32_t element_count, std::uint32_t segment_count>
struct PieceValues {
  float codes[element_count], scales[segment_count], mins[segment_count], factor, offset;
};

/// Words of shared memory that begin at any byte: `shift` bits behind an aligned address.
struct WordsAt {
  std::uint32_t first, shift;
};
TENON_DEVICE WordsAt words_at(std::uint32_t at) { return {at / 4 * 4, at % 4 * 8}; }
/// `count` words from byte `from` on, a multiple of 4.
template <std::uint32_t count, class Words>
TENON_DEVICE void read_words(const Words& words, WordsAt at, std::uint32_t from,
                             std::uint32_t (&out)[count]) {
  std::uint32_t low = words.word(at.first + from);
  TENON_UNROLL for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t high = words.word(at.first + from + 4 * (i + 1));
    out[i] = funnel_shift(low, high, at.shift);
    low = high;
  }
}
template <class Words>
TENON_DEVICE float read_half(const Words& words, WordsAt at, std::uint32_t from) {
  return widen_half(static_cast<std::uint16_t>(words.word(at.first + from) >> at.shift));
}

/// The code of `bits` bits from bit `at` on, less `zero`: in the mantissa of a power of two, which
/// is then taken off. Both are exact. With `flips` the code's highest bit is the opposite.
template <std::uint32_t bits>
TENON_DEVICE float code_at(std::uint32_t word, std::uint32_t at, std::uint32_t zero,
                           bool flips = false) {
  const std::uint32_t moved = at + bits > 23 ? 16 : 0, place = at - moved;
  const std::uint32_t mask = ((1u << bits) - 1) << place, power = (150 - place) << 23;
  const std::uint32_t flipped = flips ? 1u << (bits - 1) << place : 0;
  const float value = bits_to_float(masked_xor(word >> moved, mask, power | flipped));
  return value - static_cast<float>((1u << (23 - place)) + zero);
}

/// Codes of a byte each, less `zero`.
template <std::uint32_t bits>
TENON_DEVICE void put_bytes(std::uint32_t word, std::uint32_t zero, float* codes,
                            bool flips = false) {
  TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
    codes[j] = code_at<bits>(word, 8 * j, zero, flips);
  }
}
/// Codes q of `bits` bits as (2^bits + q) / 2^(bits + 1), from bytes with q in bits 7 - bits to 6. What
/// has to be taken off is of the codes' own size, so that it costs little precision to do so later.
TENON_DEVICE void put_fractions(std::uint32_t word, float* codes) {
  TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) codes[j] = fraction_of_byte(word, j);
}
/// Low nibbles as codes 4 i and on, high ones 16 behind.
TENON_DEVICE void put_nibbles(const std::uint32_t (&words)[4], float* codes) {
  TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) {
    put_fractions(words[i] << 3 & 0x78787878u, codes + 4 * i);
    put_fractions(words[i] >> 1 & 0x78787878u, codes + 16 + 4 * i);
  }
}
inline constexpr float nibble_unit = 32.0f, five_bit_unit = 64.0f;
/// What is taken off, in such units.
constexpr float zero_of_fractions(float unit, float zero) { return 0.5f + zero / unit; }

/// Blocks of any type, decoded eight elements at a time.
template <class Type>
struct Piece {
  static constexpr std::uint32_t elements = 32, segments = 2, alignment = 1;
  static constexpr PieceForm form = PieceForm::plain;
  static constexpr bool is_padded = false;
  static constexpr float zero = 0.0f;
  static constexpr std::uint32_t slice_bytes = warp_size * elements / Type::size * sizeof(Type);
  using Values = PieceValues<elements, segments>;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) {
    return k / static_cast<std::uint32_t>(Type::size) * static_cast<std::uint32_t>(sizeof(Type));
  }
  static TENON_DEVICE std::uint32_t place(std::uint32_t p, std::uint32_t q) {
    return elements * p + 4 * q;
  }
  struct Lane {
    std::uint32_t block, from;
    explicit TENON_DEVICE Lane(std::uint32_t p)
        : block(bytes(elements * p)), from(elements * p % static_cast<std::uint32_t>(Type::size)) {}
  };
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    const Type& block = *reinterpret_cast<const Type*>(words.bytes(at + lane.block));
    TENON_UNROLL for (std::uint32_t i = 0; i < elements; i += 8) {
      decode(block, lane.from + i, out.codes + i);
    }
  }
};

/// Blocks of 32: an f16, with offsets a second one, and codes at their end.
template <class Type, PieceForm piece_form>
struct SmallBlockPiece {
  static constexpr std::uint32_t elements = 32, segments = 2, alignment = 1;
  static constexpr PieceForm form = piece_form;
  static constexpr bool is_padded = false;
  static constexpr float zero = 0.0f;
  static constexpr std::uint32_t slice_bytes = 32 * sizeof(Type);
  using Values = PieceValues<elements, segments>;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) { return k / 32 * block_bytes; }
  static TENON_DEVICE std::uint32_t place(std::uint32_t p, std::uint32_t q) {
    return elements * p + 4 * q;
  }
  struct Lane {
    std::uint32_t block;
    explicit TENON_DEVICE Lane(std::uint32_t p) : block(kept(p * block_bytes)) {}
  };

 protected:
  static constexpr std::uint32_t block_bytes = sizeof(Type);
  template <class Words>
  static TENON_DEVICE void read_factors(const Words& words, std::uint32_t at, Values& out) {
    out.factor = read_half(words, words_at(at), 0);
    if (form == PieceForm::shifted) out.offset = read_half(words, words_at(at + 2), 0);
  }
};

template <class Type, PieceForm piece_form, int code_zero>
struct FourBitPiece : SmallBlockPiece<Type, piece_form> {
  using Lane = typename SmallBlockPiece<Type, piece_form>::Lane;
  static constexpr float zero = zero_of_fractions(nibble_unit, code_zero);
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                PieceValues<32, 2>& out) {
    at += lane.block;
    std::uint32_t nibbles[4];
    read_words(words, words_at(at + sizeof(Type) - 16), 0, nibbles);
    put_nibbles(nibbles, out.codes);
    FourBitPiece::read_factors(words, at, out);
    out.factor *= nibble_unit;
  }
};
template <>
struct Piece<quant::BlockQ4_0> : FourBitPiece<quant::BlockQ4_0, PieceForm::scaled, 8> {};
template <>
struct Piece<quant::BlockQ4_1> : FourBitPiece<quant::BlockQ4_1, PieceForm::shifted, 0> {};

template <class Type, PieceForm piece_form, int code_zero>
struct FiveBitPiece : SmallBlockPiece<Type, piece_form> {
  static constexpr float zero = zero_of_fractions(five_bit_unit, code_zero);
  using Lane = typename SmallBlockPiece<Type, piece_form>::Lane;
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                PieceValues<32, 2>& out) {
    at += lane.block;
    std::uint32_t parts[5];  // the high bits, and nibbles
    read_words(words, words_at(at + sizeof(Type) - 20), 0, parts);
    TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t low = parts[i + 1] << 2 & 0x3C3C3C3Cu;
      const std::uint32_t high = parts[i + 1] >> 2 & 0x3C3C3C3Cu;
      put_fractions(low | fifth_bits(parts[0] >> (4 * i)), out.codes + 4 * i);
      put_fractions(high | fifth_bits(parts[0] >> (16 + 4 * i)), out.codes + 16 + 4 * i);
    }
    FiveBitPiece::read_factors(words, at, out);
    out.factor *= five_bit_unit;
  }

 private:
  /// The lowest four bits, each as bit 6 of a byte.
  static TENON_DEVICE std::uint32_t fifth_bits(std::uint32_t bits) {
    return (bits & 15u) * 0x08102040u & 0x40404040u;
  }
};
template <>
struct Piece<quant::BlockQ5_0> : FiveBitPiece<quant::BlockQ5_0, PieceForm::scaled, 16> {};
template <>
struct Piece<quant::BlockQ5_1> : FiveBitPiece<quant::BlockQ5_1, PieceForm::shifted, 0> {};

template <>
struct Piece<quant::BlockQ8_0> : SmallBlockPiece<quant::BlockQ8_0, PieceForm::scaled> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    at += lane.block;
    std::uint32_t codes[8];
    read_words(words, words_at(at + 2), 0, codes);
    TENON_UNROLL for (std::uint32_t i = 0; i < 8; ++i) {
      put_bytes<8>(codes[i], 128, out.codes + 4 * i, true);
    }
    read_factors(words, at, out);
  }
};

/// Levels of sixteen codes, a byte each.
struct LevelTable {
  std::uint32_t words[4];
};
TENON_DEVICE LevelTable iq4_table() {
  return {{0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u}};
}
TENON_DEVICE LevelTable mxfp4_table() {
  return {{0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu}};
}

/// Levels of nibbles, in the order of `put_nibbles`. Four at a time: those of the lower and of the
/// upper half of the table, and of each pair the one that bit 3 says.
TENON_DEVICE void put_levels(const std::uint32_t (&words)[4], const LevelTable& table,
                             float* codes) {
  TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint32_t places = words[i] & 0x77777777u;
    const std::uint32_t halves = (words[i] >> 1 & 0x44444444u) | 0x32103210u;
    TENON_UNROLL for (std::uint32_t pair = 0; pair < 2; ++pair) {
      const std::uint32_t place = places >> (16 * pair);
      const std::uint32_t levels =
          choose_bytes(choose_bytes(table.words[0], table.words[1], place),
                       choose_bytes(table.words[2], table.words[3], place), halves >> (16 * pair));
      TENON_UNROLL for (std::uint32_t j = 0; j < 2; ++j) {
        codes[4 * i + 2 * pair + j] = code_at<8>(levels, 16 * j, 128, true);
        codes[16 + 4 * i + 2 * pair + j] = code_at<8>(levels, 16 * j + 8, 128, true);
      }
    }
  }
}

template <>
struct Piece<quant::BlockIQ4NL> : SmallBlockPiece<quant::BlockIQ4NL, PieceForm::scaled> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    at += lane.block;
    std::uint32_t nibbles[4];
    read_words(words, words_at(at + 2), 0, nibbles);
    put_levels(nibbles, iq4_table(), out.codes);
    read_factors(words, at, out);
  }
};
template <>
struct Piece<quant::BlockMXFP4> : SmallBlockPiece<quant::BlockMXFP4, PieceForm::scaled> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    at += lane.block;
    std::uint32_t nibbles[4];
    read_words(words, words_at(at + 1), 0, nibbles);
    put_levels(nibbles, mxfp4_table(), out.codes);
    out.factor = mxfp4_scale(words.word(at / 4 * 4) >> (at % 4 * 8) & 255u);
  }
};
/// Blocks of 256, of which a piece is a sub-block of 32.
template <>
struct Piece<quant::BlockIQ4XS> : SmallBlockPiece<quant::BlockIQ4XS, PieceForm::scaled> {
  static constexpr std::uint32_t slice_bytes = 4 * block_bytes;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) { return k / 256 * block_bytes; }
  struct Lane {
    std::uint32_t block, b;
    explicit TENON_DEVICE Lane(std::uint32_t p)
        : block(kept(p / 8 * block_bytes)), b(kept(p % 8)) {}
  };
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    const WordsAt block = words_at(at + lane.block);
    std::uint32_t head[2], nibbles[4];
    read_words(words, block, 0, head);
    read_words(words, block, 8 + 16 * lane.b, nibbles);
    put_levels(nibbles, iq4_table(), out.codes);
    const std::uint32_t low = head[1] >> (4 * lane.b) & 15u;
    const std::uint32_t high = head[0] >> (16 + 2 * lane.b) & 3u;
    out.factor =
        widen_half(static_cast<std::uint16_t>(head[0])) * code_at<6>(low | high << 4, 0, 32);
  }
};

/// Blocks of 256 whose piece p has 16 bytes of nibbles, 32 (p / 2) + 16 (p % 2) and on: elements of
/// two sub-blocks of 32. In front are 16 bytes with scales as q4_k's.
template <class Type>
struct PairPiece {
  static constexpr std::uint32_t elements = 32, segments = 2, alignment = 16;
  static constexpr PieceForm form = PieceForm::mins;
  static constexpr bool is_padded = false;
  static constexpr float zero = 0.0f;
  static constexpr std::uint32_t slice_bytes = 4 * sizeof(Type);
  using Values = PieceValues<elements, segments>;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) { return k / 256 * block_bytes; }
  static TENON_DEVICE std::uint32_t place(std::uint32_t p, std::uint32_t q) {
    return p / 2 * 64 + p % 2 * 16 + q / 4 * 32 + q % 4 * 4;
  }

  /// Scales and mins are bytes whose lower parts, or all of them, are in the first words, the others
  /// in the fourth: how the two of the lane are found there.
  struct Lane {
    std::uint32_t block, p, shift, high_shift, high_mask, low_mask;
    explicit TENON_DEVICE Lane(std::uint32_t number)
        : block(kept(number / 8 * block_bytes)),
          p(kept(number % 8)),
          shift(kept(p / 2 % 2 * 16)),
          high_shift(kept(shift + (p < 4 ? 0 : 2))),
          high_mask(kept(p < 4 ? 0x3F3F : 0x3030)),
          low_mask(kept(p < 4 ? 0 : 0x0F0F)) {}
  };

 protected:
  static constexpr std::uint32_t block_bytes = sizeof(Type);
  static TENON_DEVICE void put_scales(const Words4& head, const Lane& lane, Values& out) {
    const std::uint32_t scales = (head.at[1] >> lane.high_shift & lane.high_mask) |
                                 (head.at[3] >> lane.shift & lane.low_mask);
    const std::uint32_t mins = (head.at[2] >> lane.high_shift & lane.high_mask) |
                               (head.at[3] >> (lane.shift + 4) & lane.low_mask);
    out.factor = widen_half(static_cast<std::uint16_t>(head.at[0]));
    out.offset = -widen_half(static_cast<std::uint16_t>(head.at[0] >> 16));
    TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
      out.scales[i] = static_cast<float>(scales >> (8 * i) & 255u);
      out.mins[i] = static_cast<float>(mins >> (8 * i) & 255u);
    }
  }
};

template <>
struct Piece<quant::BlockQ4K> : PairPiece<quant::BlockQ4K> {
  static constexpr float zero = zero_of_fractions(nibble_unit, 0);
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    at += lane.block;
    put_scales(words.words(at), lane, out);
    put_nibbles(words.words(at + 16 + 16 * lane.p).at, out.codes);
    out.factor *= nibble_unit;
  }
};
template <>
struct Piece<quant::BlockQ5K> : PairPiece<quant::BlockQ5K> {
  static constexpr float zero = zero_of_fractions(five_bit_unit, 0);
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    at += lane.block;
    put_scales(words.words(at), lane, out);
    const Words4 bits = words.words(at + 16 + 16 * (lane.p % 2));
    const Words4 nibbles = words.words(at + 48 + 16 * lane.p);
    TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t fifth = bits.at[i] >> (lane.p / 2 * 2), four = nibbles.at[i];
      put_fractions((four << 2 & 0x3C3C3C3Cu) | (fifth << 6 & 0x40404040u), out.codes + 4 * i);
      put_fractions((four >> 2 & 0x3C3C3C3Cu) | (fifth << 5 & 0x40404040u), out.codes + 16 + 4 * i);
    }
    out.factor *= five_bit_unit;
  }
};

/// Blocks of 256 whose piece p has eight elements, from 8 (p % 4) on, of each of four sub-blocks of
/// 32 behind element 128 (p / 4).
template <class Type, PieceForm piece_form>
struct QuarterPiece {
  static constexpr std::uint32_t elements = 32, segments = 4, alignment = 1;
  static constexpr PieceForm form = piece_form;
  static constexpr bool is_padded = false;
  static constexpr float zero = 0.0f;
  static constexpr std::uint32_t slice_bytes = 4 * sizeof(Type);
  using Values = PieceValues<elements, segments>;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) { return k / 256 * block_bytes; }
  static TENON_DEVICE std::uint32_t place(std::uint32_t p, std::uint32_t q) {
    return p / 4 * 128 + p % 4 * 8 + q / 2 * 32 + q % 2 * 4;
  }
  /// The half of the block, the byte where the lane's eight begin, and by how much its scales have to
  /// be shifted: those of the upper sub-blocks of 16 are a byte behind.
  struct Lane {
    std::uint32_t block, half, from, shift;
    explicit TENON_DEVICE Lane(std::uint32_t p)
        : block(kept(p / 8 * block_bytes)),
          half(kept(p % 8 / 4)),
          from(kept(p % 4 * 8)),
          shift(kept(p % 4 / 2 * 8)) {}
  };

 protected:
  static constexpr std::uint32_t block_bytes = sizeof(Type);
};

template <>
struct Piece<quant::BlockQ6K> : QuarterPiece<quant::BlockQ6K, PieceForm::scales> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    const WordsAt block = words_at(at + lane.block);
    std::uint32_t first[2], second[2], crumbs[2], scales[2];
    read_words(words, block, 64 * lane.half + lane.from, first);
    read_words(words, block, 64 * lane.half + lane.from + 32, second);
    read_words(words, block, 32 * lane.half + lane.from + 128, crumbs);
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
    read_words(words, block, 8 * lane.half + 192, scales);
    out.factor = read_half(words, block, 208);
    TENON_UNROLL for (std::uint32_t m = 0; m < 4; ++m) {
      const std::uint32_t pair = scales[m / 2] >> lane.shift;
      out.scales[m] = static_cast<float>(static_cast<std::int8_t>(pair >> (m % 2 * 16)));
    }
  }
};

template <>
struct Piece<quant::BlockQ2K> : QuarterPiece<quant::BlockQ2K, PieceForm::mins> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    const WordsAt block = words_at(at + lane.block);
    std::uint32_t scales[2], crumbs[2], factors[1];
    read_words(words, block, 8 * lane.half, scales);
    read_words(words, block, 32 * lane.half + lane.from + 16, crumbs);
    read_words(words, block, 80, factors);
    out.factor = widen_half(static_cast<std::uint16_t>(factors[0]));
    out.offset = -widen_half(static_cast<std::uint16_t>(factors[0] >> 16));
    TENON_UNROLL for (std::uint32_t m = 0; m < 4; ++m) {
      TENON_UNROLL for (std::uint32_t i = 0; i < 8; ++i) {
        out.codes[8 * m + i] = code_at<2>(crumbs[i / 4], i % 4 * 8 + 2 * m, 0);
      }
      const std::uint32_t pair = scales[m / 2] >> lane.shift >> (m % 2 * 16);
      out.scales[m] = code_at<4>(pair, 0, 0);
      out.mins[m] = code_at<4>(pair, 4, 0);
    }
  }
};

template <>
struct Piece<quant::BlockQ3K> : QuarterPiece<quant::BlockQ3K, PieceForm::scales> {
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    const WordsAt block = words_at(at + lane.block);
    std::uint32_t bits[2], crumbs[2], scales[3];
    read_words(words, block, lane.from, bits);
    read_words(words, block, 32 * lane.half + lane.from + 32, crumbs);
    read_words(words, block, 96, scales);
    out.factor = read_half(words, block, 108);
    TENON_UNROLL for (std::uint32_t m = 0; m < 4; ++m) {
      TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
        const std::uint32_t high = bits[i] >> (4 * lane.half) >> m << 2 & 0x04040404u;
        put_bytes<3>((crumbs[i] >> (2 * m) & 0x03030303u) | high, 4, out.codes + 8 * m + 4 * i);
      }
      // Scale 8 half + 2 m and one more: a nibble of eight bytes, two bits of four.
      const std::uint32_t shift = lane.shift + 4 * lane.half;
      const std::uint32_t nibble = scales[m / 2] >> shift >> (m % 2 * 16) & 15u;
      const std::uint32_t two = scales[2] >> shift >> (m % 2 * 16 + m / 2 * 2);
      out.scales[m] = code_at<6>(nibble | (two & 3u) << 4, 0, 32);
    }
  }
};

/// Plain types: 16 bytes of a row at a time, of `parts` places 32 lanes apart.
template <class Type, std::uint32_t element_bytes, std::uint32_t parts>
struct PlainPiece {
  static constexpr std::uint32_t in_words = 16 / element_bytes, elements = parts * in_words;
  static constexpr std::uint32_t segments = 2, alignment = 16;
  static constexpr PieceForm form = PieceForm::plain;
  static constexpr bool is_padded = true;
  static constexpr float zero = 0.0f;
  static constexpr std::uint32_t slice_bytes = warp_size * parts * 16;
  using Values = PieceValues<elements, segments>;
  static TENON_DEVICE std::uint32_t bytes(std::uint32_t k) { return k * element_bytes; }
  static TENON_DEVICE std::uint32_t place(std::uint32_t p, std::uint32_t q) {
    return (4 * q / in_words * warp_size + p) * in_words + 4 * q % in_words;
  }
  struct Lane {
    std::uint32_t from;
    explicit TENON_DEVICE Lane(std::uint32_t p) : from(kept(16 * p)) {}
  };
  template <class Words>
  static TENON_DEVICE void read(const Words& words, std::uint32_t at, const Lane& lane,
                                Values& out) {
    TENON_UNROLL for (std::uint32_t part = 0; part < parts; ++part) {
      const Words4 four = words.words(at + 16 * part * warp_size + lane.from);
      TENON_UNROLL for (std::uint32_t i = 0; i < in_words; ++i) {
        out.codes[part * in_words + i] = element(Type(), four, i);
      }
    }
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

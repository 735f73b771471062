// Weights whose elements are codes of up to 8 bits times scales, for products with digits
// (digits.hpp) in tensor cores: how 256 elements of 16 columns, which a warp has copied to shared
// memory, become fragments.
//
// CodeStep<Type>:
//   bytes        of 256 elements of a column
//   is_aligned   whether they begin at multiples of 16 bytes where columns do
//   in_halves    the order of elements in a fragment, see StepDigits
//   multiply(thread, words, at, blocks, digits, out)
//                adds to out[p][i] the products of rows 2 p and 2 p + 1 with column g + 8 i of lane
//                4 g + t, whose elements begin at address at[i] and have `blocks` blocks of 32. It is
//                the lane's part: two digits of row 2 p + t / 2, and half of what is added to codes.
#pragma once

#include "kernels/digits.hpp"
#include "kernels/pieces.hpp"
#include "kernels/tensor_core.hpp"

#include <cstdint>

namespace tenon::cuda {

/// What lane 4 g + t has of a step of rows, in pairs of them. A fragment's elements may be in any order
/// that both operands have: words 2 j and 2 j + 1 have elements 32 j + 8 t and on; in halves, word j has
/// elements 16 j + 4 t and on.
template <std::uint32_t pairs>
struct StepDigits {
  std::uint32_t words[pairs][16];  ///< digit g % 4 of row 2 p + g / 4
  float sums[pairs][4];  ///< of row 2 p + t / 2: elements of the blocks of 32 from 4 (t % 2) on
  float unit[pairs];     ///< of that row's digits 2 (t % 2)
};

/// Two digits' sums, in units of the lower one's.
TENON_DEVICE float value_of(std::int32_t low, std::int32_t high) {
  return multiply_add(static_cast<float>(high), 256.0f, static_cast<float>(low));
}
/// Four codes below 128, less `zero`.
TENON_DEVICE std::uint32_t codes_less(std::uint32_t codes, std::uint32_t zero) {
  return ((codes | 0x80808080u) - zero * 0x01010101u) ^ 0x80808080u;
}
TENON_DEVICE std::int32_t signed_byte(std::uint32_t word, std::uint32_t i) {
  return static_cast<std::int32_t>(word << (24 - 8 * i)) >> 24;
}
TENON_DEVICE float float_of_byte(std::uint32_t word, std::uint32_t i) {
  return static_cast<float>(word >> (8 * i) & 255u);
}

/// Sums of integers: of digits times codes times scales.
template <std::uint32_t pairs>
struct ScaledSums {
  std::int32_t of[pairs][4] = {};

  /// Of two words of digits, from `first` on; or of one, and the fragment's upper half is zeros.
  template <std::uint32_t count>
  TENON_DEVICE void add(const Thread& thread, const FragmentA& codes,
                        const StepDigits<pairs>& digits, std::uint32_t first,
                        const std::int32_t (&scales)[2]) {
    TENON_UNROLL for (std::uint32_t p = 0; p < pairs; ++p) {
      FragmentOfCodes product;
      const std::uint32_t second = count == 2 ? digits.words[p][first + 1] : 0;
      multiply_codes(thread, codes, {{digits.words[p][first], second}}, product);
      TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) {
        of[p][i] += scales[i / 2] * product.sums[i];
      }
    }
  }
  TENON_DEVICE void put(const StepDigits<pairs>& digits, const float (&factors)[2],
                        float (&out)[pairs][2]) const {
    TENON_UNROLL for (std::uint32_t p = 0; p < pairs; ++p) {
      TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
        const float value = value_of(of[p][2 * i], of[p][2 * i + 1]);
        out[p][i] = multiply_add(factors[i] * digits.unit[p], value, out[p][i]);
      }
    }
  }
};

/// Blocks of 256 with scales and mins of 6 bits for each 32, as q4_k. `Codes(words, at, t)` has those of
/// a column: pair(p, half, out) puts two words of elements 64 p + 32 half and on.
template <class Type, class Codes>
struct ScaledStep {
  static constexpr std::uint32_t bytes = sizeof(Type);
  static constexpr bool is_aligned = true, in_halves = false;

  template <class Words, std::uint32_t pairs>
  static TENON_DEVICE void multiply(const Thread& thread, const Words& words,
                                    const std::uint32_t (&at)[2], std::uint32_t /*blocks*/,
                                    const StepDigits<pairs>& digits, float (&out)[pairs][2]) {
    const std::uint32_t t = lane_of(thread) % 4;
    std::uint32_t scales[2][2], mins[2];
    float factors[2], offsets[2];
    TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
      const Words4 head = words.words(at[i]);
      scales[i][0] = head.at[1] & 0x3F3F3F3Fu;
      scales[i][1] = (head.at[3] & 0x0F0F0F0Fu) | (head.at[1] >> 2 & 0x30303030u);
      mins[i] = t % 2 == 0 ? head.at[2] & 0x3F3F3F3Fu
                           : (head.at[3] >> 4 & 0x0F0F0F0Fu) | (head.at[2] >> 2 & 0x30303030u);
      factors[i] = widen_half(static_cast<std::uint16_t>(head.at[0]));
      offsets[i] = -widen_half(static_cast<std::uint16_t>(head.at[0] >> 16));
    }
    ScaledSums<pairs> sums;
    const Codes codes[2] = {Codes(words, at[0], t), Codes(words, at[1], t)};
    TENON_UNROLL for (std::uint32_t p = 0; p < 4; ++p) {
      const Words2 nibbles[2] = {codes[0].nibbles(words, p), codes[1].nibbles(words, p)};
      TENON_UNROLL for (std::uint32_t half = 0; half < 2; ++half) {
        const std::uint32_t j = 2 * p + half;
        FragmentA fragment;
        std::int32_t of_block[2];
        TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
          of_block[i] = static_cast<std::int32_t>(scales[i][j / 4] >> (j % 4 * 8) & 255u);
          TENON_UNROLL for (std::uint32_t k = 0; k < 2; ++k) {
            fragment.pairs[2 * k + i] = codes[i].four(nibbles[i].at[k], j, k);
          }
        }
        sums.template add<2>(thread, fragment, digits, 2 * j, of_block);
      }
    }
    sums.put(digits, factors, out);
    TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
      float four[4];
      TENON_UNROLL for (std::uint32_t b = 0; b < 4; ++b) four[b] = float_of_byte(mins[i], b);
      TENON_UNROLL for (std::uint32_t p = 0; p < pairs; ++p) {
        float sum = 0.0f;
        TENON_UNROLL for (std::uint32_t b = 0; b < 4; ++b) {
          sum = multiply_add(four[b], digits.sums[p][b], sum);
        }
        out[p][i] = multiply_add(offsets[i], sum, out[p][i]);
      }
    }
  }
};

template <std::uint32_t from>
struct NibblesOfColumn {
  std::uint32_t at;
  template <class Words>
  TENON_DEVICE NibblesOfColumn(const Words& /*words*/, std::uint32_t column, std::uint32_t t)
      : at(column + from + 8 * t) {}
  template <class Words>
  TENON_DEVICE Words2 nibbles(const Words& words, std::uint32_t p) const {
    return words.two(at + 32 * p);
  }
  TENON_DEVICE std::uint32_t four(std::uint32_t word, std::uint32_t j, std::uint32_t /*k*/) const {
    return word >> (j % 2 * 4) & 0x0F0F0F0Fu;
  }
};
struct FiveBitsOfColumn : NibblesOfColumn<48> {
  Words2 high;  ///< bit j of a byte is the fifth of its code of block j
  template <class Words>
  TENON_DEVICE FiveBitsOfColumn(const Words& words, std::uint32_t column, std::uint32_t t)
      : NibblesOfColumn<48>(words, column, t), high(words.two(column + 16 + 8 * t)) {}
  TENON_DEVICE std::uint32_t four(std::uint32_t word, std::uint32_t j, std::uint32_t k) const {
    const std::uint32_t fifth = j < 4 ? high.at[k] << (4 - j) : high.at[k] >> (j - 4);
    return NibblesOfColumn<48>::four(word, j, k) | (fifth & 0x10101010u);
  }
};

template <class Type>
struct CodeStep;
template <>
struct CodeStep<quant::BlockQ4K> : ScaledStep<quant::BlockQ4K, NibblesOfColumn<16>> {};
template <>
struct CodeStep<quant::BlockQ5K> : ScaledStep<quant::BlockQ5K, FiveBitsOfColumn> {};

/// Scales of 8 bits for each 16 elements, of which a fragment has no others.
template <>
struct CodeStep<quant::BlockQ6K> {
  static constexpr std::uint32_t bytes = sizeof(quant::BlockQ6K);
  static constexpr bool is_aligned = false, in_halves = true;

  template <class Words, std::uint32_t pairs>
  static TENON_DEVICE void multiply(const Thread& thread, const Words& words,
                                    const std::uint32_t (&at)[2], std::uint32_t /*blocks*/,
                                    const StepDigits<pairs>& digits, float (&out)[pairs][2]) {
    const std::uint32_t t = lane_of(thread) % 4;
    WordsAt column[2];
    std::uint32_t scales[2][4];
    float factors[2];
    TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
      read_words(words, words_at(at[i]), 192, scales[i]);
      factors[i] = read_half(words, words_at(at[i]), 208);
      column[i] = words_at(at[i] + 4 * t);
    }
    ScaledSums<pairs> sums;
    TENON_UNROLL for (std::uint32_t h = 0; h < 2; ++h) {
      TENON_UNROLL for (std::uint32_t u = 0; u < 2; ++u) {
        std::uint32_t nibbles[2][2], crumbs[2];
        TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
          std::uint32_t word[1];
          TENON_UNROLL for (std::uint32_t k = 0; k < 2; ++k) {
            read_words(words, column[i], 64 * h + 32 * k + 16 * u, word);
            nibbles[i][k] = word[0];
          }
          read_words(words, column[i], 128 + 32 * h + 16 * u, word);
          crumbs[i] = word[0];
        }
        TENON_UNROLL for (std::uint32_t m = 0; m < 4; ++m) {
          const std::uint32_t block = 8 * h + 2 * m + u;
          FragmentA fragment{};
          std::int32_t of_block[2];
          TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
            const std::uint32_t low = nibbles[i][m % 2] >> (m / 2 * 4) & 0x0F0F0F0Fu;
            const std::uint32_t high = m < 2 ? crumbs[i] << (4 - 2 * m) : crumbs[i] >> (2 * m - 4);
            fragment.pairs[i] = codes_less(low | (high & 0x30303030u), 32);
            of_block[i] = signed_byte(scales[i][block / 4], block % 4);
          }
          sums.template add<1>(thread, fragment, digits, block, of_block);
        }
      }
    }
    sums.put(digits, factors, out);
  }
};

/// Blocks of 32 with a scale of their own, and in some an offset. `Codes::put(words, block, t, out)`
/// has the codes of 4 t and on, and of those 16 behind.
template <class Type, class Codes, bool has_offsets>
struct SmallBlockStep {
  static constexpr std::uint32_t bytes = 8 * sizeof(Type);
  static constexpr bool is_aligned = false, in_halves = true;

  template <class Words, std::uint32_t pairs>
  static TENON_DEVICE void multiply(const Thread& thread, const Words& words,
                                    const std::uint32_t (&at)[2], std::uint32_t blocks,
                                    const StepDigits<pairs>& digits, float (&out)[pairs][2]) {
    const std::uint32_t t = lane_of(thread) % 4;
    TENON_UNROLL for (std::uint32_t j = 0; j < 8; ++j) {
      if (j >= blocks) break;
      FragmentA fragment;
      float factors[2], offsets[2];
      TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
        const std::uint32_t block = at[i] + j * static_cast<std::uint32_t>(sizeof(Type));
        std::uint32_t codes[2];
        Codes::put(words, block, t, codes);
        fragment.pairs[i] = codes[0];
        fragment.pairs[2 + i] = codes[1];
        factors[i] = Codes::factor(words, block);
        offsets[i] =
            has_offsets && t % 2 == j / 4 ? read_half(words, words_at(block + 2), 0) : 0.0f;
      }
      TENON_UNROLL for (std::uint32_t p = 0; p < pairs; ++p) {
        FragmentOfCodes product;
        multiply_codes(thread, fragment, {{digits.words[p][2 * j], digits.words[p][2 * j + 1]}},
                       product);
        TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
          const float value = value_of(product.sums[2 * i], product.sums[2 * i + 1]);
          out[p][i] = multiply_add(factors[i] * digits.unit[p], value, out[p][i]);
          if (has_offsets) {
            out[p][i] = multiply_add(offsets[i], digits.sums[p][j % 4], out[p][i]);
          }
        }
      }
    }
  }
};

struct CodesOfSmallBlock {
  template <class Words>
  static TENON_DEVICE float factor(const Words& words, std::uint32_t block) {
    return read_half(words, words_at(block), 0);
  }
};
/// Nibbles of elements 4 t and on, and in their upper halves of those 16 behind.
template <std::uint32_t from, std::uint32_t zero>
struct FourBitCodes : CodesOfSmallBlock {
  template <class Words>
  static TENON_DEVICE void put(const Words& words, std::uint32_t block, std::uint32_t t,
                               std::uint32_t (&out)[2]) {
    std::uint32_t nibbles[1];
    read_words(words, words_at(block + from + 4 * t), 0, nibbles);
    TENON_UNROLL for (std::uint32_t k = 0; k < 2; ++k) {
      out[k] = nibbles[0] >> (4 * k) & 0x0F0F0F0Fu;
      if (zero != 0) out[k] = codes_less(out[k], zero);
    }
  }
};
template <std::uint32_t from, std::uint32_t zero>
struct FiveBitCodes : CodesOfSmallBlock {
  template <class Words>
  static TENON_DEVICE void put(const Words& words, std::uint32_t block, std::uint32_t t,
                               std::uint32_t (&out)[2]) {
    std::uint32_t bits[1], nibbles[1];
    read_words(words, words_at(block + from), 0, bits);
    read_words(words, words_at(block + from + 4 + 4 * t), 0, nibbles);
    TENON_UNROLL for (std::uint32_t k = 0; k < 2; ++k) {
      // Four bits, each as bit 4 of a byte.
      const std::uint32_t four = bits[0] >> (16 * k + 4 * t) & 15u;
      out[k] = (nibbles[0] >> (4 * k) & 0x0F0F0F0Fu) | (four * 0x02040810u & 0x10101010u);
      if (zero != 0) out[k] = codes_less(out[k], zero);
    }
  }
};
struct EightBitCodes : CodesOfSmallBlock {
  template <class Words>
  static TENON_DEVICE void put(const Words& words, std::uint32_t block, std::uint32_t t,
                               std::uint32_t (&out)[2]) {
    TENON_UNROLL for (std::uint32_t k = 0; k < 2; ++k) {
      std::uint32_t codes[1];
      read_words(words, words_at(block + 2 + 16 * k + 4 * t), 0, codes);
      out[k] = codes[0];
    }
  }
};
template <>
struct CodeStep<quant::BlockQ4_0> : SmallBlockStep<quant::BlockQ4_0, FourBitCodes<2, 8>, false> {};
template <>
struct CodeStep<quant::BlockQ4_1> : SmallBlockStep<quant::BlockQ4_1, FourBitCodes<4, 0>, true> {};
template <>
struct CodeStep<quant::BlockQ5_0> : SmallBlockStep<quant::BlockQ5_0, FiveBitCodes<2, 16>, false> {};
template <>
struct CodeStep<quant::BlockQ5_1> : SmallBlockStep<quant::BlockQ5_1, FiveBitCodes<4, 0>, true> {};
template <>
struct CodeStep<quant::BlockQ8_0> : SmallBlockStep<quant::BlockQ8_0, EightBitCodes, false> {};

/// Levels of eight nibbles, as bytes: of lower and of upper ones (put_levels in pieces.hpp).
TENON_DEVICE void levels_of(std::uint32_t word, const LevelTable& table, std::uint32_t (&out)[2]) {
  const std::uint32_t places = word & 0x77777777u;
  const std::uint32_t halves = (word >> 1 & 0x44444444u) | 0x32103210u;
  std::uint32_t levels[2];
  TENON_UNROLL for (std::uint32_t pair = 0; pair < 2; ++pair) {
    const std::uint32_t place = places >> (16 * pair);
    levels[pair] =
        choose_bytes(choose_bytes(table.words[0], table.words[1], place),
                     choose_bytes(table.words[2], table.words[3], place), halves >> (16 * pair));
  }
  out[0] = choose_bytes(levels[0], levels[1], 0x6420u);
  out[1] = choose_bytes(levels[0], levels[1], 0x7531u);
}
struct Iq4Codes : CodesOfSmallBlock {
  template <class Words>
  static TENON_DEVICE void put(const Words& words, std::uint32_t block, std::uint32_t t,
                               std::uint32_t (&out)[2]) {
    std::uint32_t nibbles[1];
    read_words(words, words_at(block + 2 + 4 * t), 0, nibbles);
    levels_of(nibbles[0], iq4_table(), out);
  }
};
struct Mxfp4Codes {
  template <class Words>
  static TENON_DEVICE float factor(const Words& words, std::uint32_t block) {
    return mxfp4_scale(words.word(block / 4 * 4) >> (block % 4 * 8) & 255u);
  }
  template <class Words>
  static TENON_DEVICE void put(const Words& words, std::uint32_t block, std::uint32_t t,
                               std::uint32_t (&out)[2]) {
    std::uint32_t nibbles[1];
    read_words(words, words_at(block + 1 + 4 * t), 0, nibbles);
    levels_of(nibbles[0], mxfp4_table(), out);
  }
};
template <>
struct CodeStep<quant::BlockIQ4NL> : SmallBlockStep<quant::BlockIQ4NL, Iq4Codes, false> {};
template <>
struct CodeStep<quant::BlockMXFP4> : SmallBlockStep<quant::BlockMXFP4, Mxfp4Codes, false> {};

/// Blocks of 256 with scales of 6 bits for each 32.
template <>
struct CodeStep<quant::BlockIQ4XS> {
  static constexpr std::uint32_t bytes = sizeof(quant::BlockIQ4XS);
  static constexpr bool is_aligned = false, in_halves = true;

  template <class Words, std::uint32_t pairs>
  static TENON_DEVICE void multiply(const Thread& thread, const Words& words,
                                    const std::uint32_t (&at)[2], std::uint32_t /*blocks*/,
                                    const StepDigits<pairs>& digits, float (&out)[pairs][2]) {
    const std::uint32_t t = lane_of(thread) % 4;
    std::uint32_t head[2][2];
    float factors[2];
    TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
      read_words(words, words_at(at[i]), 0, head[i]);
      factors[i] = widen_half(static_cast<std::uint16_t>(head[i][0]));
    }
    ScaledSums<pairs> sums;
    TENON_UNROLL for (std::uint32_t j = 0; j < 8; ++j) {
      FragmentA fragment;
      std::int32_t of_block[2];
      TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
        std::uint32_t nibbles[1], codes[2];
        read_words(words, words_at(at[i] + 4 * t), 8 + 16 * j, nibbles);
        levels_of(nibbles[0], iq4_table(), codes);
        fragment.pairs[i] = codes[0];
        fragment.pairs[2 + i] = codes[1];
        const std::uint32_t low = head[i][1] >> (4 * j) & 15u;
        const std::uint32_t high = head[i][0] >> (16 + 2 * j) & 3u;
        of_block[i] = static_cast<std::int32_t>(low | high << 4) - 32;
      }
      sums.template add<2>(thread, fragment, digits, 2 * j, of_block);
    }
    sums.put(digits, factors, out);
  }
};

}  // namespace tenon::cuda

#pragma once

// Levels of the types whose codes are numbers of them: dependency-free facts of the formats.
#include "quant/levels.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

/// Bytes of a packed panel: 16 rows of W, k outermost.
///
/// A panel of f32 or f16 is [K][16] elements. One of bf16 is [K / 2][16][2], pairs of k side by
/// side as AMX tiles take them; an odd K is padded with zeros.
///
/// A panel of a block type is a sequence of records: the scales of some groups of 32 elements of k,
/// then their codes. Reading a matrix is reading one stream, which hardware prefetches best: with the
/// scales of a panel in a section of their own decode read at half the speed (AMD Zen 4). Scales of a
/// record take whole cache lines, filled up with zeros.
///
/// Scales, one level, per 64 elements (q1_0 q2_0 q4_0 q5_0 q8_0 iq4_nl mxfp4):
///   f16 d[2][16] (mxfp4: bf16), for each 32 elements. An odd last group has a record of its own.
/// Scales, one level, per 32 elements: f16 d[2][16], for each 16 elements (nvfp4); f16 d[16] and
///   m[16] (q4_1 q5_1).
/// Scales, two levels, per 256 elements (q2_k ... q6_k, iq1_s ... iq4_xs):
///   f16 d[16], and f16 dmin[16] if the type has mins, then per sub-block (32 or 16 elements)
///   i8 scale[16], and u8 min[16] if the type has mins (q2_k: one byte, scale low, min high
///   nibble).
///
/// Codes, per 32 elements of k: eight vectors of 64 bytes, vector j holding elements 4 j to 4 j + 3
/// of row r in bytes 4 r to 4 r + 3 - what integer dot-product instructions of any width take.
/// Codes are unsigned, `offset` above their value, and are split into bit planes:
///   8 bits  eight vectors as they are
///   4 bits  byte i of line l is vector l in the low and vector l + 4 in the high nibble; l in 0..3
///   2 bits  bits 2 (j % 4) and up of line j / 4 are vector j
///   1 bit   bit j of the one line is vector j
/// A 5-bit code is a 4-bit plane and then a 1-bit plane, 6-bit 4 + 2, 3-bit 2 + 1.
///
/// Codes of iq1 to iq4, mxfp4 and nvfp4 are numbers of the type's levels (see `codebook`): 3-bit for iq1
/// and iq2, whose scales are stored for each 16 elements, else 4-bit. tq1_0 and tq2_0 are stored as
/// q2_k, with all scales and mins 1. q1_0 is stored as q2_0, with codes 0 and 2.
namespace tenon::cpu {

/// The version of this layout: files of packed weights with another number are rebuilt.
inline constexpr int packed_layout = 3;

struct BlockFormat {
  int low_bits;     ///< bits of the first plane: 2, 4 or 8
  int high_bits;    ///< bits of the second plane: 0, 1 or 2
  int offset;       ///< value of a code is code - offset (after the codebook, if there is one)
  int group;        ///< elements that share a scale: 32 or 16
  bool two_levels;  ///< i8 scales under an f16 per 256 elements
  bool has_min;     ///< w = scale * code + min (one level) or - min (two levels)
  bool codebook;    ///< codes index sixteen levels, which are then offset by 128
  bool wide_scale = false;  ///< d is a bf16

  constexpr int bits() const { return codebook ? 8 : low_bits + high_bits; }
  /// Whether code - offset times its scale of the second level takes a byte, whatever the two are:
  /// q2_k 0 to 45, q3_k -124 to 128.
  constexpr bool scaled_codes_fit() const { return two_levels && low_bits == 2 && !codebook; }
  constexpr int code_bytes() const { return 64 * (low_bits + high_bits); }  ///< per 32 elements
  /// Elements of a record.
  constexpr int span() const { return two_levels ? 256 : has_min || group == 16 ? 32 : 64; }
  constexpr int scale_bytes() const {  ///< of a record
    if (!two_levels) return 64;
    const bool shared_byte = low_bits == 2 && has_min;
    const int bytes = (has_min ? 64 : 32) + 256 / group * (has_min && !shared_byte ? 32 : 16);
    return (bytes + 63) / 64 * 64;
  }
  constexpr int record_bytes() const { return scale_bytes() + span() / 32 * code_bytes(); }
  /// Bytes from the panel's start to the record of element k, and to the codes of its group of 32.
  constexpr std::int64_t record_at(std::int64_t k) const { return k / span() * record_bytes(); }
  constexpr std::int64_t codes_at(std::int64_t k) const {
    return record_at(k) + scale_bytes() + k % span() / 32 * code_bytes();
  }
  constexpr std::int64_t panel_bytes(std::int64_t inputs) const {
    return (inputs + span() - 1) / span() * scale_bytes() + inputs / 32 * code_bytes();
  }
};

constexpr BlockFormat block_format(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return {4, 0, 8, 32, false, false, false};
    case DType::q4_1:
      return {4, 0, 0, 32, false, true, false};
    case DType::q5_0:
      return {4, 1, 16, 32, false, false, false};
    case DType::q5_1:
      return {4, 1, 0, 32, false, true, false};
    case DType::q8_0:
      return {8, 0, 128, 32, false, false, false};
    case DType::q2_k:
    case DType::tq1_0:
    case DType::tq2_0:
      return {2, 0, 0, 16, true, true, false};
    case DType::q3_k:
      return {2, 1, 4, 16, true, false, false};
    case DType::q4_k:
      return {4, 0, 0, 32, true, true, false};
    case DType::q5_k:
      return {4, 1, 0, 32, true, true, false};
    case DType::q6_k:
      return {4, 2, 32, 16, true, false, false};
    case DType::iq4_nl:
      return {4, 0, 128, 32, false, false, true};
    case DType::iq4_xs:
    case DType::iq3_xxs:
    case DType::iq3_s:
      return {4, 0, 128, 32, true, false, true};
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq1_s:
    case DType::iq1_m:
      return {2, 1, 128, 16, true, false, true};
    case DType::mxfp4:
      return {4, 0, 128, 32, false, false, true, true};
    case DType::nvfp4:
      return {4, 0, 128, 16, false, false, true};
    case DType::q1_0:
    case DType::q2_0:
      return {2, 0, 1, 32, false, false, false};
    default:
      return {};
  }
}

/// What the codes of a type stand for: levels, 128 added, and a factor of the scale d.
struct Codebook {
  std::uint8_t codes[16];
  float unit;
};

constexpr Codebook codebook_of(const std::int8_t (&levels)[16], float unit = 1.0f) {
  Codebook book{{}, unit};
  for (int i = 0; i < 16; ++i) book.codes[i] = static_cast<std::uint8_t>(levels[i] + 128);
  return book;
}
constexpr Codebook codebook_of(const quant::Levels& levels) {
  return codebook_of(levels.at, levels.unit);
}

inline constexpr Codebook iq4_codebook = codebook_of(quant::iq4_values);
inline constexpr Codebook iq3_s_codebook = codebook_of(quant::iq3_s_levels);
inline constexpr Codebook iq3_xxs_codebook = codebook_of(quant::iq3_xxs_levels);
inline constexpr Codebook iq2_codebook = codebook_of(quant::iq2_levels);
inline constexpr Codebook iq1_codebook = codebook_of(quant::iq1_levels);
inline constexpr Codebook mxfp4_codebook = codebook_of(quant::mxfp4_values);

/// Of a type whose format says so; any other gets iq4's. Static, since kernels of one instruction
/// set each must not share it.
static inline const Codebook& codebook(DType dtype) {
  switch (dtype) {
    case DType::iq3_s:
      return iq3_s_codebook;
    case DType::iq3_xxs:
      return iq3_xxs_codebook;
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
      return iq2_codebook;
    case DType::iq1_s:
    case DType::iq1_m:
      return iq1_codebook;
    case DType::mxfp4:
    case DType::nvfp4:
      return mxfp4_codebook;
    default:
      return iq4_codebook;
  }
}

}  // namespace tenon::cpu

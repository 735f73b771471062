#pragma once

// Ranges of a panel unpacked to a byte per code, for many rows. Included after a header of simd/.
#include "../integer_math.hpp"
#include "panel_body.hpp"

#include <type_traits>

namespace tenon::cpu {
namespace {

constexpr std::int64_t max_groups = 24;  // of 32 unpacked at once: 12 KiB of a panel's codes

/// Groups of 32 that are unpacked at once: as few pieces as possible, of about equal size, of whole
/// records.
TENON_INLINE std::int64_t groups_at_once(std::int64_t groups) {
  if (groups <= max_groups) return groups < 1 ? 1 : groups;  // a step, even where there is nothing
  const std::int64_t pieces = ceil_div(groups, max_groups);
  return round_up(ceil_div(groups, pieces), 8);
}

/// Codes of a range of a panel, a byte each.
struct UnpackedCodes {
  static constexpr bool streams = false;  // they are in cache
  static constexpr int code_bytes = 512;

  const std::uint8_t* code_section;
  int part;
  std::int64_t first_group;

  TENON_INLINE static const Codebook* book_of(const LinearOperands&) { return nullptr; }

  TENON_INLINE const std::uint8_t* codes(std::int64_t g, int i) const {
    return code_section + (g + i - first_group) * code_bytes + part * (4 * Simd::lanes);
  }
  template <int j, class Weights>
  TENON_INLINE static Weights weights(const std::uint8_t* codes, const Codebook*) {
    return Weights::load(codes + 64 * j, max_groups * code_bytes);
  }
};

/// The same with scales in f32 and the operands of Simd::scaled.
template <int bits_, int offset_, int group_, bool has_min_>
struct UnpackedPanel : UnpackedCodes {
  static constexpr int bits = bits_;
  static constexpr int offset = offset_;
  static constexpr int group = group_;
  static constexpr int min_group = group_;
  static constexpr bool has_min = has_min_;
  static constexpr bool integer_scales = false;
  static constexpr int groups_per_record = 1;
  static constexpr int subs = 32 / group;
  static constexpr int starts = subs;  // initial values of dot products per 32 elements

  const float* scales;
  const float* shifts;
  const float* mins;

  struct Record {
    const float* scales;
    const float* shifts;
    const float* mins;
    TENON_INLINE Scaling scaling(int i) const {
      return {Simd::load_float(scales + 16 * i), Simd::load_float(shifts + 16 * i)};
    }
    TENON_INLINE Float min(int i) const { return Simd::load_float(mins + 16 * i); }
  };
  TENON_INLINE Record record(std::int64_t g) const {
    const std::int64_t at = (g - first_group) * (16 * subs) + part * Simd::lanes;
    return {scales + at, shifts + at, mins + at};
  }
};

/// The same for a type with integer scales. Where dot products of full bytes are as fast, codes are
/// stored times their scale plus `offset`, and negated together with the record's scale if there is
/// an offset; elsewhere scales are stored beside the codes.
template <int bits_, int offset_, int min_group_, bool has_min_>
struct UnpackedRecords : UnpackedCodes {
  static constexpr bool scaled_codes = !Simd::makes_bytes_signed;
  static constexpr int bits = scaled_codes ? 8 : bits_;
  static constexpr int offset = scaled_codes && offset_ != 0 ? 128 : offset_;
  static constexpr int group = scaled_codes ? 32 : min_group_;
  static constexpr int min_group = min_group_;
  static constexpr bool has_min = has_min_;
  static constexpr bool integer_scales = true;
  static constexpr int groups_per_record = 8;
  static constexpr int starts = 1;  // one for all codes or a pair

  const float* scales;          ///< of a record
  const std::int32_t* factors;  ///< of a group three vectors: as Record has them
  const float* mins;

  struct Record {
    const float* scales;
    const std::int32_t* factors;
    const float* mins;
    TENON_INLINE Float whole() const { return Simd::load_float(scales); }
    TENON_INLINE Words factor_twice(int i) const {
      return Simd::load_words(factors + 16 * (i / 2 * 3 + i % 2));
    }
    TENON_INLINE Words both_factors(int i) const {
      return Simd::load_words(factors + 16 * (i * 3 + 2));
    }
    TENON_INLINE Float min(int i) const { return Simd::load_float(mins + 16 * i); }
  };
  TENON_INLINE Record record(std::int64_t g) const {
    const std::int64_t at_group = g - first_group, lane = part * Simd::lanes;
    return {scales + at_group / groups_per_record * 16 + lane, factors + at_group * (3 * 16) + lane,
            mins + at_group * (16 * 32 / min_group) + lane};
  }
};

template <class Packed>
using UnpackedOf = std::conditional_t<
    Packed::integer_scales,
    UnpackedRecords<Packed::bits, Packed::offset, Packed::group, Packed::has_min>,
    UnpackedPanel<Packed::bits, Packed::offset, Packed::group, Packed::has_min>>;

}  // namespace
}  // namespace tenon::cpu

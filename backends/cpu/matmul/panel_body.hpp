#pragma once

// How kernel bodies read packed panels. Included after a header of simd/, by the sources of one
// instruction set each; everything here is in an anonymous namespace for the reason matmul_kernels.hpp
// gives.
#include "matmul_kernels.hpp"
#include "panel_layout.hpp"
#include "tile_sums.hpp"

#include <utility>

namespace tenon::cpu {
namespace {

using Int = Simd::Int;
using Words = Simd::Words;

TENON_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// Vector `j` of the plane of `bits` bits at `plane`, shifted left by `up`.
template <int bits, int j, int up>
TENON_INLINE Int plane_vector(const std::uint8_t* plane) {
  constexpr int per_line = 8 / bits;
  constexpr int line = bits == 4 ? j % 4 : j / per_line;
  constexpr int down = bits * (bits == 4 ? j / 4 : j % per_line) - up;
  Int v = Simd::load(plane + 64 * line);
  if constexpr (down > 0) v = Simd::template shift_right<down>(v);
  if constexpr (down < 0) v = Simd::template shift_left<-down>(v);
  return Simd::bit_and(v, Simd::set1(((1 << bits) - 1) << up));
}

/// The operands of Simd::scaled.
struct Scaling {
  Float scale, shift;
};

/// Reads a packed panel of a block type. `part` selects 16 / parts of its rows.
template <DType dtype>
struct PackedPanel {
  static constexpr BlockFormat format = block_format(dtype);
  static constexpr int bits = format.bits();
  static constexpr int offset = format.offset;
  static constexpr int group = format.group;
  static constexpr int min_group = format.group;
  static constexpr bool has_min = format.has_min;
  /// Scales of the second level multiply sums in integers, and d those of a record.
  static constexpr bool integer_scales = format.scaled_codes_fit();
  static constexpr int groups_per_record = format.span() / 32;  // groups of 32
  /// Codes are bytes, and scales have one level.
  static constexpr bool is_bytes = format.low_bits == 8 && !format.two_levels;
  static constexpr bool streams = true;  // from memory, each byte once or a few times
  // Constants, so that no build calls BlockFormat's functions, which this file must not emit.
  static constexpr int code_bytes = format.code_bytes();
  static constexpr int starts = 32 / group;  // initial values of dot products per 32 elements
  static constexpr int scale_bytes = format.scale_bytes();
  static constexpr int even_bytes = format.record_bytes() / groups_per_record;  // of a group
  static_assert(even_bytes * groups_per_record == format.record_bytes());

  const std::uint8_t* start;
  const Codebook* book;
  int part;

  /// The panel at `start` of a type that kernels of `dtype` compute with.
  TENON_INLINE static PackedPanel at(const std::uint8_t* start, const LinearOperands& job,
                                     int part) {
    return {start, book_of(job), part};
  }
  TENON_INLINE static const Codebook* book_of(const LinearOperands& job) {
    return format.codebook ? &codebook(job.dtype) : nullptr;
  }

  /// Of the i-th group of the record that begins with group g.
  TENON_INLINE const std::uint8_t* codes(std::int64_t g, int i) const {
    return start + g * even_bytes + scale_bytes + i * code_bytes + part * (4 * Simd::lanes);
  }

  /// Where to prefetch from: as g runs over groups and into the next panel, it covers all bytes of
  /// the panels evenly.
  TENON_INLINE const std::uint8_t* evenly(std::int64_t g) const { return start + g * even_bytes; }

  /// Codes 4 j to 4 j + 3 of a group; where the format has levels, those of `book`.
  template <int j>
  TENON_INLINE static Int vector(const std::uint8_t* codes, const Codebook* book) {
    if constexpr (format.low_bits == 8) {
      return Simd::load(codes + 64 * j);
    } else {
      Int code = plane_vector<format.low_bits, j, 0>(codes);
      if constexpr (format.high_bits != 0) {
        code = Simd::bit_or(
            code, plane_vector<format.high_bits, j, format.low_bits>(codes + 64 * format.low_bits));
      }
      if constexpr (format.codebook) return Simd::look_up(Simd::load_table(book->codes), code);
      return code;
    }
  }

  template <int j, class Weights>
  TENON_INLINE static Weights weights(const std::uint8_t* codes, const Codebook* book) {
    return Weights::of(vector<j>(codes, book));
  }

  /// Scale and min of the groups of one record.
  struct Record {
    Float d, dmin;             ///< where there are two levels or mins
    const std::uint8_t* subs;  ///< scales of groups

    TENON_INLINE Float whole() const { return d; }
    /// Index i counts groups of `group` elements from the start of the record.
    TENON_INLINE Words factor(int i) const {
      if constexpr (has_min) return Simd::words_of_low_nibbles(subs + 16 * i);
      return Simd::words_of_i8(subs + 16 * i);
    }
    /// In both halves of each lane.
    TENON_INLINE Words factor_twice(int i) const {
      const Words f = factor(i);
      return Simd::pair_words(f, f);
    }
    /// Of both parts of 32 elements.
    TENON_INLINE Words both_factors(int i) const {
      return Simd::pair_words(factor(2 * i), factor(2 * i + 1));
    }
    TENON_INLINE Float scale(int i) const {
      if constexpr (!format.two_levels && has_min) return d;
      if constexpr (format.wide_scale) return Simd::load_bf16(subs + 32 * i);
      if constexpr (!format.two_levels) return Simd::load_f16(subs + 32 * i);
      constexpr int stride = has_min && group == 32 ? 32 : 16;
      if constexpr (has_min && group == 16) {
        return Simd::mul(d, Simd::load_low_nibbles(subs + stride * i));
      }
      return Simd::mul(d, Simd::load_i8(subs + stride * i));
    }
    TENON_INLINE Scaling scaling(int i) const {
      const Float s = scale(i);
      return {s, Simd::shift_of(s)};
    }
    TENON_INLINE Float min(int i) const {
      if constexpr (!format.two_levels) return dmin;
      if constexpr (group == 16) return Simd::mul(dmin, Simd::load_high_nibbles(subs + 16 * i));
      return Simd::mul(dmin, Simd::load_u8(subs + 32 * i + 16));
    }
  };

  /// The one that begins with group g.
  TENON_INLINE Record record(std::int64_t g) const {
    const std::uint8_t* p = start + g * even_bytes;
    Record r;
    if constexpr (!format.two_levels && !has_min) {
      r.subs = p + part * (2 * Simd::lanes);
      return r;
    }
    r.d = Simd::load_f16(p + part * (2 * Simd::lanes));
    if constexpr (format.codebook && format.two_levels) {
      r.d = Simd::mul(r.d, Simd::broadcast(&book->unit));
    }
    if constexpr (has_min) {
      r.dmin = Simd::load_f16(p + 32 + part * (2 * Simd::lanes));
      if constexpr (format.two_levels) r.dmin = Simd::sub(Simd::zero_float(), r.dmin);
    }
    r.subs = p + (has_min ? 64 : 32) + part * Simd::lanes;
    return r;
  }
};

/// Groups of the record that begins with group g, of those before `last`: of a record of two there
/// may be one.
template <class Panel>
TENON_INLINE int groups_of_record(std::int64_t g, std::int64_t last) {
  if constexpr (Panel::groups_per_record != 2) return Panel::groups_per_record;
  return last - g < 2 ? 1 : 2;
}

/// Calls f.template operator()<type>() for a block type, where kernels of `type` are those that
/// compute with its panels.
template <class F>
TENON_INLINE void with_block_kernel(DType dtype, F&& f) {
  switch (dtype) {
    case DType::q4_0:
      return f.template operator()<DType::q4_0>();
    case DType::q4_1:
      return f.template operator()<DType::q4_1>();
    case DType::q5_0:
      return f.template operator()<DType::q5_0>();
    case DType::q5_1:
      return f.template operator()<DType::q5_1>();
    case DType::q8_0:
      return f.template operator()<DType::q8_0>();
    case DType::q2_k:
    case DType::tq1_0:
    case DType::tq2_0:
      return f.template operator()<DType::q2_k>();
    case DType::q3_k:
      return f.template operator()<DType::q3_k>();
    case DType::q4_k:
      return f.template operator()<DType::q4_k>();
    case DType::q5_k:
      return f.template operator()<DType::q5_k>();
    case DType::q6_k:
      return f.template operator()<DType::q6_k>();
    case DType::iq4_nl:
      return f.template operator()<DType::iq4_nl>();
    case DType::iq4_xs:
    case DType::iq3_xxs:
    case DType::iq3_s:
      return f.template operator()<DType::iq4_xs>();
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq1_s:
    case DType::iq1_m:
      return f.template operator()<DType::iq2_xs>();
    case DType::mxfp4:
      return f.template operator()<DType::mxfp4>();
    case DType::nvfp4:
      return f.template operator()<DType::nvfp4>();
    case DType::q1_0:
    case DType::q2_0:
      return f.template operator()<DType::q2_0>();
    default:
      return;
  }
}

template <class F, int... j>
TENON_INLINE void unroll(std::integer_sequence<int, j...>, F&& f) {
  (f.template operator()<j>(), ...);
}

/// Calls f.template operator()<j>() for j = 0 .. count - 1.
template <int count, class F>
TENON_INLINE void unroll(F&& f) {
  unroll(std::make_integer_sequence<int, count>(), f);
}

/// y = sum + bias + residual for a vector of row `row` at column n.
TENON_INLINE void write_vector(const LinearOperands& job, std::int64_t row, std::int64_t n,
                               Float sum) {
  if (job.bias != nullptr) sum = Simd::add(sum, Simd::load_float(job.bias + n));
  if (job.residual != nullptr) {
    sum = Simd::add(sum, Simd::load_float(job.residual + row * job.residual_stride + n));
  }
  Simd::store_float(job.y + row * job.y_stride + n, sum);
}

/// y = sums + bias + residual for one panel; `sums` are [rows][width] with this panel's 16 at the
/// start.
TENON_INLINE void write_rows(const LinearOperands& job, std::int64_t panel, std::int64_t first_row,
                             std::int64_t rows, const float* sums, std::int64_t width) {
  const std::int64_t n = 16 * panel;
  const std::int64_t count = smaller(16, job.outputs - n);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t row = first_row + r;
    const float* c = sums + r * width;
    if (count == 16) {
      for (int at = 0; at < 16; at += Simd::lanes) {
        write_vector(job, row, n + at, Simd::load_float(c + at));
      }
      continue;
    }
    float* y = job.y + row * job.y_stride + n;
    for (std::int64_t i = 0; i < count; ++i) {
      float v = c[i];
      if (job.bias != nullptr) v += job.bias[n + i];
      if (job.residual != nullptr) v += job.residual[row * job.residual_stride + n + i];
      y[i] = v;
    }
  }
}

/// Applies the activation to panels that have just been written.
TENON_INLINE void activate(const LinearOperands& job, std::int64_t panel, std::int64_t panels,
                           std::int64_t first_row, std::int64_t rows) {
  if (job.activation.run == nullptr) return;
  const std::int64_t column = 16 * panel;
  job.activation.run(job.activation.function, job.y + first_row * job.y_stride + column,
                     job.y_stride, rows, smaller(16 * panels, job.outputs - column),
                     job.activation.parameters);
}

}  // namespace
}  // namespace tenon::cpu

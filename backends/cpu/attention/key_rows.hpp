#pragma once

// Keys and values as the sources of one instruction set read them: rows of f32, of f16, or of
// q8_0's blocks, evenly spaced or in pages. Included after a header of simd/.
#include "attention_kernels.hpp"
#include "quant/blocks.hpp"

#include <tenon/dtype.hpp>

namespace tenon::cpu {
namespace {

/// `load` widens `Simd::lanes` columns of a row from column d on, `one` a single column. A row of
/// blocks is loaded at multiples of `lanes`, so that a vector never spans two of them.
struct FloatRows {
  using Element = float;
  static constexpr std::int64_t columns = 1;  ///< that an element holds
  TENON_INLINE static Simd::Float load(const Element* row, std::int64_t d) {
    return Simd::load_float(row + d);
  }
  TENON_INLINE static float one(const Element* row, std::int64_t d) { return row[d]; }
};

struct HalfRows {
  using Element = std::uint16_t;
  static constexpr std::int64_t columns = 1;
  TENON_INLINE static Simd::Float load(const Element* row, std::int64_t d) {
    return Simd::load_f16(row + d);
  }
  TENON_INLINE static float one(const Element* row, std::int64_t d) {
    return to_float(half{row[d]});
  }
};

struct BlockRows {
  using Element = quant::BlockQ8_0;
  static constexpr std::int64_t columns = Element::size;
  TENON_INLINE static Simd::Float load(const Element* row, std::int64_t d) {
    const Element& block = row[d / columns];
    return Simd::mul(Simd::load_i8(block.q + d % columns), Simd::broadcast_f16(&block.d));
  }
  TENON_INLINE static float one(const Element* row, std::int64_t d) {
    const Element& block = row[d / columns];
    return to_float(half{block.d}) * static_cast<float>(block.q[d % columns]);
  }
};

/// Some rows of keys or values of one kv_head: evenly spaced, or each at a place of its own.
template <class Rows>
struct Stream {
  using Element = typename Rows::Element;
  const Element* first;
  std::int64_t step;  ///< elements from row to row
  std::int64_t count;
  const Element* const* places;  ///< of each row; null: evenly spaced

  TENON_INLINE const Element* row(std::int64_t j) const {
    return places == nullptr ? first + j * step : places[j];
  }
  /// Columns [d, d + width) of row j.
  TENON_INLINE void prefetch(std::int64_t j, std::int64_t d, std::int64_t width) const {
    if (j >= count) return;
    const auto* begin = reinterpret_cast<const char*>(row(j) + d / Rows::columns);
    const auto* const end = reinterpret_cast<const char*>(row(j) + (d + width) / Rows::columns);
    for (; begin < end; begin += 64) __builtin_prefetch(begin);
  }
};

/// Rows `keys` of `array`, all of them seen. `places`: memory for one of each row in pages.
template <class Rows>
Stream<Rows> stream_of(const AttentionJob& job, const KeyArray& array, std::int64_t kv_head,
                       KeyRange keys, const typename Rows::Element** places) {
  const auto* const base =
      reinterpret_cast<const typename Rows::Element*>(array.data) + kv_head * array.head;
  const std::int64_t count = keys.end - keys.begin;
  if (job.pages == nullptr) return {base + keys.begin * array.row, array.row, count, nullptr};
  for (std::int64_t j = 0; j < count;) {
    const std::int64_t at = (keys.begin + j) % job.page_size;
    const auto* const page =
        base + std::int64_t{job.pages[(keys.begin + j) / job.page_size]} * array.page;
    for (std::int64_t i = at; i < job.page_size && j < count; ++i, ++j) {
      places[j] = page + i * array.row;
    }
  }
  return {base, array.row, count, places};
}

/// Calls use(rows of the job's type).
template <class Use>
TENON_INLINE void with_key_type(const AttentionJob& job, Use use) {
  switch (job.kv) {
    case KeyType::f32:
      return use(FloatRows());
    case KeyType::f16:
      return use(HalfRows());
    case KeyType::q8_0:
      return use(BlockRows());
  }
}

}  // namespace
}  // namespace tenon::cpu

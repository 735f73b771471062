#pragma once

// Keys and values as the sources of one instruction set read them: rows of f32, of f16, or of
// q8_0's blocks. Included after a header of simd/.
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

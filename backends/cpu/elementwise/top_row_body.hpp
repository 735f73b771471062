#pragma once

// The few greatest numbers of a row. Included after simd/avx2.hpp or simd/avx512.hpp.
//
// The row is divided into 64 groups, or 256 for more than 56 numbers. The k-th greatest of the groups'
// maxima is a threshold that at least k numbers reach, and in an unordered row few others: for k = 40
// about 62 in all, for k = 100 about 127, whatever the length. These candidates are ranked by counting, for each, the greater ones. No branch
// depends on a single number.
#include "../integer_math.hpp"
#include "top_row.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

using Float = Simd::Float;
using Whole = decltype(Float{} < Float{});  // 32-bit integers
constexpr std::int64_t lanes = Simd::lanes;
constexpr std::int64_t groups = 64, many_groups = 256, few_places = 56;
constexpr std::int64_t max_candidates = 256;

/// Adds one where a > b.
TENON_INLINE Whole count_greater(Whole sum, Whole a, Whole b) {
#if defined(__AVX512F__)
  const __m512i x = reinterpret_cast<__m512i>(a), y = reinterpret_cast<__m512i>(b);
  const __m512i old = reinterpret_cast<__m512i>(sum);
  return reinterpret_cast<Whole>(
      _mm512_mask_add_epi32(old, _mm512_cmpgt_epi32_mask(x, y), old, _mm512_set1_epi32(1)));
#else
  return sum - (a > b);
#endif
}

/// A bit for each of 64 numbers that is not below the threshold; a NaN is not.
TENON_INLINE std::uint64_t reaching(const float* x, Float bar) {
  std::uint64_t bits = 0;
  for (int v = 0; v < groups / lanes; ++v) {
    const Float value = Simd::load_float(x + v * lanes);
#if defined(__AVX512F__)
    const auto some = static_cast<std::uint32_t>(_mm512_cmp_ps_mask(value, bar, _CMP_NLT_UQ));
#else
    const auto some =
        static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(value, bar, _CMP_NLT_UQ)));
#endif
    bits |= static_cast<std::uint64_t>(some) << (v * lanes);
  }
  return bits;
}

/// Integers in the order of the numbers: zeros equal, a NaN above all, and none the last one.
TENON_INLINE Whole in_order(Float x) {
  const Float plain = x + Float{};  // -0 becomes 0
  const Whole bits = reinterpret_cast<Whole>(plain);
  const Whole key = bits ^ ((bits >> 31) & 0x7FFFFFFF);
  return x == x ? key : Whole{} + 0x7FFFFFFE;
}

/// Only whole groups of numbers: the threshold need not take all into account.
TENON_INLINE float bar_of(const float* x, std::int64_t size, std::int64_t k) {
  constexpr int vectors = groups / lanes;
  constexpr float lowest = -__builtin_inff(), highest = __builtin_inff();
  Float best[vectors];
  for (Float& value : best) value = Simd::broadcast(&lowest);
  for (std::int64_t i = 0; i + groups <= size; i += groups) {
    for (int v = 0; v < vectors; ++v) {
      best[v] = Simd::max(Simd::load_float(x + i + v * lanes), best[v]);  // skips a NaN
    }
  }
  alignas(64) std::int32_t keys[groups];
  Whole key[vectors], before[vectors] = {};
  for (int v = 0; v < vectors; ++v) {
    key[v] = in_order(best[v]);
    __builtin_memcpy(keys + v * lanes, &key[v], sizeof key[v]);
  }
  for (const std::int32_t other : keys) {
    for (int v = 0; v < vectors; ++v) before[v] = count_greater(before[v], Whole{} + other, key[v]);
  }
  // The least number that fewer than k exceed.
  Float least = Simd::broadcast(&highest);
  for (int v = 0; v < vectors; ++v) {
    least = Simd::min(
        least, before[v] < static_cast<std::int32_t>(k) ? best[v] : Simd::broadcast(&highest));
  }
  float values[lanes];
  Simd::store_float(values, least);
  float bar = highest;
  for (const float value : values) bar = value < bar ? value : bar;
  return bar;
}

/// How many of the keys exceed another.
TENON_INLINE std::int64_t count_above(const std::int32_t* keys, std::int32_t other) {
  Whole sum{};
  for (std::int64_t i = 0; i < many_groups; i += lanes) {
    Whole key;
    __builtin_memcpy(&key, keys + i, sizeof key);
    sum = count_greater(sum, key, Whole{} + other);
  }
  std::int64_t count = 0;
  for (int i = 0; i < lanes; ++i) count += sum[i];
  return count;
}

/// The same of 256 groups, whose k-th greatest is found bit by bit: its leading 22 bits, as a number
/// below it will do. A NaN, which all numbers count as reaching, where that is -inf.
TENON_INLINE float bar_of_many(const float* x, std::int64_t size, std::int64_t k) {
  constexpr int together = 8;  // in registers
  constexpr float lowest = -__builtin_inff();
  constexpr std::uint32_t sign = 0x80000000u;
  alignas(64) std::int32_t keys[many_groups];
  for (std::int64_t first = 0; first < many_groups; first += together * lanes) {
    Float best[together];
    for (Float& value : best) value = Simd::broadcast(&lowest);
    for (std::int64_t i = first; i + many_groups - first <= size; i += many_groups) {
      for (int v = 0; v < together; ++v) {
        best[v] = Simd::max(Simd::load_float(x + i + v * lanes), best[v]);  // skips a NaN
      }
    }
    for (int v = 0; v < together; ++v) {
      const Whole key = in_order(best[v]);
      __builtin_memcpy(keys + first + v * lanes, &key, sizeof key);
    }
  }
  std::uint32_t bar = 0;
  for (int bit = 31; bit >= 10; --bit) {
    const std::uint32_t higher = bar | std::uint32_t{1} << bit;
    const std::int64_t reaching = count_above(keys, static_cast<std::int32_t>((higher ^ sign) - 1));
    if (reaching >= k) bar = higher;
    if (reaching == k) break;
  }
  bar ^= sign;
  bar ^= (bar & sign) != 0 ? ~sign : 0;  // back from the order of integers
  float value;
  __builtin_memcpy(&value, &bar, sizeof value);
  return value;
}

/// The positions of the numbers that reach the threshold; stops where there are too many.
class Reaching {
 public:
  TENON_INLINE Reaching(const float* x, std::int64_t size, float limit) {
    const Float bar = Simd::broadcast(&limit);
    std::int64_t i = 0;
    for (; i + groups <= size && count_ <= max_candidates; i += groups) {
      add(i, reaching(x + i, bar));
    }
    if (i == size || count_ > max_candidates) return;
    float rest[groups];
    for (std::int64_t j = 0; j < groups; ++j) rest[j] = i + j < size ? x[i + j] : 0.0f;
    add(i, reaching(rest, bar) & ((std::uint64_t{1} << (size - i)) - 1));
  }

  std::int64_t count() const { return count_; }
  std::int32_t operator[](std::int64_t i) const { return places_[i]; }

 private:
  /// Four of 64 are always written, without a branch; more are rare.
  TENON_INLINE void add(std::int64_t first, std::uint64_t bits) {
    constexpr std::uint64_t last = std::uint64_t{1} << 63;
    std::int32_t* const to = places_ + count_;
    const int found = __builtin_popcountll(bits);
    count_ += found;
    const auto put = [&](int i) {
      to[i] = static_cast<std::int32_t>(first + __builtin_ctzll(bits | last));
      bits &= bits - 1;
    };
    for (int i = 0; i < 4; ++i) put(i);
    for (int i = 4; i < found; ++i) put(i);
  }

  std::int64_t count_ = 0;
  std::int32_t places_[max_candidates + groups + 4];
};

bool find_top_row(const float* x, std::int64_t size, std::int64_t k,
                  std::int32_t* places) noexcept {
  const bool are_few = k <= few_places;
  if (size < (are_few ? groups : many_groups)) return false;
  const Reaching reaching(x, size, are_few ? bar_of(x, size, k) : bar_of_many(x, size, k));
  const std::int64_t count = reaching.count();
  if (count > max_candidates) return false;

  alignas(64) std::int32_t keys[max_candidates];
  const std::int64_t filled = round_up(count, lanes);
  for (std::int64_t i = 0; i < filled; i += lanes) {
    float values[lanes];
    for (std::int64_t j = 0; j < lanes; ++j) values[j] = x[reaching[i + j < count ? i + j : 0]];
    const Whole key = in_order(Simd::load_float(values));
    __builtin_memcpy(keys + i, &key, sizeof key);
  }

  std::int32_t ranked[max_candidates];
  Whole lane{};
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  for (std::int64_t i = 0; i < count; i += lanes) {
    Whole key, rank{};
    __builtin_memcpy(&key, keys + i, sizeof key);
    // An equal one counts if it stands before: one that is less by one, among whole numbers.
    std::int64_t j = 0;
    for (; j < i; ++j) rank = count_greater(rank, Whole{} + keys[j], key - 1);
    for (; j < i + lanes && j < count; ++j) {
      const Whole is_before = lane > static_cast<std::int32_t>(j - i);
      rank = count_greater(rank, Whole{} + keys[j], key + is_before);
    }
    for (; j < count; ++j) rank = count_greater(rank, Whole{} + keys[j], key);
    std::int32_t ranks[lanes];
    __builtin_memcpy(ranks, &rank, sizeof rank);
    for (std::int64_t n = 0; n < lanes && i + n < count; ++n) ranked[ranks[n]] = reaching[i + n];
  }
  for (std::int64_t i = 0; i < k; ++i) places[i] = ranked[i];
  return true;
}

}  // namespace
}  // namespace tenon::cpu

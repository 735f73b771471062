#include "matmul_kernels.hpp"

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

namespace tenon::cpu::avx2 {
namespace {

// Below this 127 / a overflows: such elements count as zero.
constexpr float smallest = 1e-36f;

constexpr std::int64_t prefetch_distance = 512;  // elements

inline std::uint32_t largest_lane(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
}

inline std::int32_t sum_lanes(__m128i v) {
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4E));
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xB1));
  return _mm_cvtsi128_si32(v);
}

inline float from_bits(std::uint32_t bits) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
}

/// Eight quads, `step` bytes apart.
inline void store_quads(__m256i quads, std::int8_t* out, std::int64_t step) {
  if (step == 4) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), quads);
    return;
  }
  alignas(32) std::int32_t each[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(each), quads);
  for (int i = 0; i < 8; ++i) __builtin_memcpy(out + i * step, each + i, 4);
}

/// Codes in memory order from x times `inverse`.
inline __m256i rounded(const float* x, __m256 inverse) {
  const __m256i q0 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
  const __m256i q1 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inverse));
  const __m256i q2 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16), inverse));
  const __m256i q3 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 24), inverse));
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(q0, q1), _mm256_packs_epi32(q2, q3));
  // Packing works within 128-bit lanes; this puts the quads back in order.
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/// In each lane the largest |x| of four elements that lie 8 apart, as integers: there NaN >
/// infinity > numbers.
inline __m256i magnitudes(const float* x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const auto bits = [&](int i) {
    return _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), magnitude);
  };
  return _mm256_max_epu32(_mm256_max_epu32(bits(0), bits(8)), _mm256_max_epu32(bits(16), bits(24)));
}

/// Sums of quads of codes.
inline __m256i quad_sums(__m256i codes) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

constexpr int at_once = 8;  // groups, whose numbers then fill a vector

/// The largest lanes of eight vectors.
inline __m256i largest_lanes(const __m256i (&v)[at_once]) {
  __m256i two[4], four[2];
  for (int i = 0; i < 4; ++i) {
    two[i] = _mm256_max_epu32(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                              _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  }
  for (int i = 0; i < 2; ++i) {
    four[i] = _mm256_max_epu32(_mm256_unpacklo_epi64(two[2 * i], two[2 * i + 1]),
                               _mm256_unpackhi_epi64(two[2 * i], two[2 * i + 1]));
  }
  return _mm256_max_epu32(_mm256_permute2x128_si256(four[0], four[1], 0x20),
                          _mm256_permute2x128_si256(four[0], four[1], 0x31));
}

/// Stores a number of each of eight groups, `step` apart.
inline void scatter(__m256i numbers, void* to, std::int64_t step) {
  alignas(32) std::int32_t each[at_once];
  _mm256_store_si256(reinterpret_cast<__m256i*>(each), numbers);
  for (int i = 0; i < at_once; ++i) {
    __builtin_memcpy(static_cast<std::byte*>(to) + 4 * i * step, each + i, 4);
  }
}

/// Eight groups from the g-th on.
inline void quantize_groups(const QuantizeJob& job, std::int64_t g) {
  const float* const x = job.x + 32 * g;
  const std::int64_t at = job.step * g;
  __m256i largest_of[at_once];
  for (int i = 0; i < at_once; ++i) {
    // The hardware prefetcher stops at each page. Behind the end of this row is usually the next
    // one.
    __builtin_prefetch(x + 32 * i + prefetch_distance);
    __builtin_prefetch(x + 32 * i + prefetch_distance + 16);
    largest_of[i] = magnitudes(x + 32 * i);
  }
  const __m256i bits = largest_lanes(largest_of);
  const __m256 largest = _mm256_castsi256_ps(bits);
  const __m256 is_small = _mm256_cmp_ps(largest, _mm256_set1_ps(smallest), _CMP_LT_OQ);
  const __m256 steps = _mm256_set1_ps(127.0f);
  const __m256 scale = _mm256_andnot_ps(is_small, _mm256_div_ps(largest, steps));
  alignas(32) float inverse[at_once];
  _mm256_store_ps(inverse, _mm256_andnot_ps(is_small, _mm256_div_ps(steps, largest)));
  const __m256i infinite = _mm256_cmpgt_epi32(bits, _mm256_set1_epi32(0x7F7FFFFF));
  const auto not_finite = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(infinite)));

  __m256i sums[at_once];
  for (int i = 0; i < at_once; ++i) {
    const __m256i codes = (not_finite >> i & 1u) != 0
                              ? _mm256_set1_epi8(1)
                              : rounded(x + 32 * i, _mm256_broadcast_ss(inverse + i));
    store_quads(codes, job.to.codes + 32 * (at + i * job.step), 4 * job.step);
    sums[i] = quad_sums(codes);
  }
  // Of every vector the sums of its two halves.
  const __m256i first =
      _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
  const __m256i last =
      _mm256_hadd_epi32(_mm256_hadd_epi32(sums[4], sums[5]), _mm256_hadd_epi32(sums[6], sums[7]));
  const __m256i low = _mm256_permute2x128_si256(first, last, 0x20);
  const __m256i high = _mm256_permute2x128_si256(first, last, 0x31);
  const __m256i all = _mm256_add_epi32(low, high), zero = _mm256_setzero_si256();
  const auto scaled = [&](__m256i numbers) {
    return _mm256_castps_si256(_mm256_mul_ps(scale, _mm256_cvtepi32_ps(numbers)));
  };
  const RowNumbers& to = job.to;
  scatter(_mm256_castps_si256(scale), to.scales + at, job.step);
  scatter(scaled(all), to.sums + at, job.step);
  scatter(_mm256_sub_epi32(zero, all), to.negative_sums + at, job.step);
  scatter(scaled(low), to.half_sums + 2 * at, 2 * job.step);
  scatter(scaled(high), to.half_sums + 2 * at + job.step, 2 * job.step);
  scatter(_mm256_sub_epi32(zero, low), to.negative_half_sums + 2 * at, 2 * job.step);
  scatter(_mm256_sub_epi32(zero, high), to.negative_half_sums + 2 * at + job.step, 2 * job.step);
}

/// The g-th group.
inline void quantize_group(const QuantizeJob& job, std::int64_t g) {
  const float* x = job.x + 32 * g;
  const std::int64_t at = job.step * g;
  const std::uint32_t bits = largest_lane(magnitudes(x));
  const float largest = from_bits(bits);
  const bool finite = bits < 0x7F800000u;
  __m256i codes = _mm256_set1_epi8(1);
  if (finite) codes = rounded(x, _mm256_set1_ps(largest >= smallest ? 127.0f / largest : 0.0f));
  store_quads(codes, job.to.codes + 32 * at, 4 * job.step);
  const __m256i quads = quad_sums(codes);
  const std::int32_t low = sum_lanes(_mm256_castsi256_si128(quads));
  const std::int32_t high = sum_lanes(_mm256_extracti128_si256(quads, 1));
  const float scale = finite && largest < smallest ? 0.0f : largest / 127.0f;
  job.to.scales[at] = scale;
  job.to.sums[at] = scale * static_cast<float>(low + high);
  job.to.negative_sums[at] = -(low + high);
  job.to.half_sums[2 * at] = scale * static_cast<float>(low);
  job.to.half_sums[2 * at + job.step] = scale * static_cast<float>(high);
  job.to.negative_half_sums[2 * at] = -low;
  job.to.negative_half_sums[2 * at + job.step] = -high;
}

}  // namespace

void quantize(const QuantizeJob& job) noexcept {
  const std::int64_t groups = job.inputs / 32;
  std::int64_t g = 0;
  for (; g + at_once <= groups; g += at_once) quantize_groups(job, g);
  for (; g < groups; ++g) quantize_group(job, g);
}

}  // namespace tenon::cpu::avx2

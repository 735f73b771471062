#include "kernels.hpp"

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

}  // namespace

void quantize(const QuantizeJob& job) noexcept {
  const std::int64_t groups = job.inputs / 32;
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  // Packing works within 128-bit lanes; this puts the quads back in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (std::int64_t g = 0; g < groups; ++g) {
    const float* x = job.x + 32 * g;
    const std::int64_t at = job.step * g;
    // Hardware stops at each page; past the end of this row lies, as a rule, the next one.
    __builtin_prefetch(x + prefetch_distance);
    __builtin_prefetch(x + prefetch_distance + 16);
    const __m256 x0 = _mm256_loadu_ps(x), x1 = _mm256_loadu_ps(x + 8);
    const __m256 x2 = _mm256_loadu_ps(x + 16), x3 = _mm256_loadu_ps(x + 24);
    // Of |x| as integers, where NaN > infinity > numbers.
    const __m256i m0 = _mm256_and_si256(_mm256_castps_si256(x0), magnitude);
    const __m256i m1 = _mm256_and_si256(_mm256_castps_si256(x1), magnitude);
    const __m256i m2 = _mm256_and_si256(_mm256_castps_si256(x2), magnitude);
    const __m256i m3 = _mm256_and_si256(_mm256_castps_si256(x3), magnitude);
    const std::uint32_t bits =
        largest_lane(_mm256_max_epu32(_mm256_max_epu32(m0, m1), _mm256_max_epu32(m2, m3)));
    const float largest = from_bits(bits);
    const bool finite = bits < 0x7F800000u;

    __m256i codes = _mm256_set1_epi8(1);
    if (finite) {
      const __m256 inverse = _mm256_set1_ps(largest >= smallest ? 127.0f / largest : 0.0f);
      const __m256i q0 = _mm256_cvtps_epi32(_mm256_mul_ps(x0, inverse));
      const __m256i q1 = _mm256_cvtps_epi32(_mm256_mul_ps(x1, inverse));
      const __m256i q2 = _mm256_cvtps_epi32(_mm256_mul_ps(x2, inverse));
      const __m256i q3 = _mm256_cvtps_epi32(_mm256_mul_ps(x3, inverse));
      const __m256i packed =
          _mm256_packs_epi16(_mm256_packs_epi32(q0, q1), _mm256_packs_epi32(q2, q3));
      codes = _mm256_permutevar8x32_epi32(packed, order);
    }
    store_quads(codes, job.to.codes + 32 * at, 4 * job.step);

    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
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
}

}  // namespace tenon::cpu::avx2

#pragma once

// Vectors of f32 rounded to f16, to nearest even. Included after a header of simd/, by the sources of one
// instruction set each.
#include "math_body.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

#if defined(__F16C__)
TENON_INLINE void store_f16(std::uint16_t* y, Float v) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), _mm512_cvtps_ph(v, nearest));
#else
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), _mm256_cvtps_ph(v, nearest));
#endif
}
#endif

}  // namespace
}  // namespace tenon::cpu

#pragma once

// 256-bit vectors for the kernel bodies. Included once by each AVX2 source, nowhere else.
#include <cstdint>
#include <type_traits>

#include <immintrin.h>

#define TENON_INLINE [[gnu::always_inline]] inline

namespace tenon::cpu {
namespace {

struct Simd {
  static constexpr int lanes = 8;
#if defined(__AVXVNNI__)
  static constexpr int tile_rows = 6;  // rows of x that an integer tile takes at once
#else
  static constexpr int tile_rows = 4;
#endif
  static constexpr int tile_panels = 1;
#if defined(__AVXVNNI__)
  static constexpr bool makes_bytes_signed = false;  // 8-bit codes, in Dot
#else
  static constexpr bool makes_bytes_signed = true;
#endif
  static constexpr int dense_rows = 6;
  static constexpr int dense_panels = 1;
  using Int = __m256i;
  using Words = __m256i;  // of 32 bits
  using Float = __m256;

  TENON_INLINE static Int load(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  TENON_INLINE static void store(void* p, Int v) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), v);
  }
  TENON_INLINE static Int set1(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
  TENON_INLINE static Int bit_and(Int a, Int b) { return _mm256_and_si256(a, b); }
  TENON_INLINE static Int bit_or(Int a, Int b) { return _mm256_or_si256(a, b); }
  template <int n>
  TENON_INLINE static Int shift_right(Int a) {
    return _mm256_srli_epi16(a, n);
  }
  template <int n>
  TENON_INLINE static Int shift_left(Int a) {
    return _mm256_slli_epi16(a, n);
  }
  TENON_INLINE static Int load_table(const void* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  TENON_INLINE static Int look_up(Int table, Int index) {
    return _mm256_shuffle_epi8(table, index);
  }

  TENON_INLINE static Int add_bytes(Int a, Int b) { return _mm256_add_epi8(a, b); }
  /// Each byte times its lane's factor, of which the low byte.
  TENON_INLINE static Int mul_bytes(Int a, Words factor) {
    const __m256i low_byte = _mm256_set1_epi16(255), halves = pair_words(factor, factor);
    const __m256i even = _mm256_mullo_epi16(a, halves);
    const __m256i odd = _mm256_mullo_epi16(_mm256_andnot_si256(low_byte, a), halves);
    return _mm256_or_si256(_mm256_and_si256(even, low_byte), odd);
  }

  /// A vector of codes as Dot takes it, and its form in scratch memory.
  struct Codes {
    Int codes;
    TENON_INLINE static Codes of(Int codes) { return {codes}; }
    TENON_INLINE static Codes load(const std::uint8_t* p, std::int64_t) { return {Simd::load(p)}; }
    TENON_INLINE void store(std::uint8_t* p, std::int64_t) const { Simd::store(p, codes); }
  };

  /// Four bytes in every lane.
  TENON_INLINE static Int broadcast_quad(const std::int8_t* p) {
    int quad;
    __builtin_memcpy(&quad, p, 4);
    return _mm256_set1_epi32(quad);
  }
  /// offset * *p in every lane; offset is a power of two.
  template <int offset>
  TENON_INLINE static Words broadcast_times(const std::int32_t* p) {
    constexpr int shift = __builtin_ctz(static_cast<unsigned>(offset));
    return _mm256_slli_epi32(_mm256_set1_epi32(*p), shift);
  }

  TENON_INLINE static Float to_float(Int v) { return _mm256_cvtepi32_ps(v); }
  TENON_INLINE static Float zero_float() { return _mm256_setzero_ps(); }
  TENON_INLINE static Float broadcast(const float* p) { return _mm256_set1_ps(*p); }
  TENON_INLINE static Float load_float(const float* p) { return _mm256_loadu_ps(p); }
  TENON_INLINE static void store_float(float* p, Float v) { _mm256_storeu_ps(p, v); }
  TENON_INLINE static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  TENON_INLINE static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  TENON_INLINE static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  TENON_INLINE static Float div(Float a, Float b) { return _mm256_div_ps(a, b); }
  TENON_INLINE static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  /// The second operand where one is NaN.
  TENON_INLINE static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  TENON_INLINE static Float min(Float a, Float b) { return _mm256_min_ps(a, b); }
  TENON_INLINE static float sum(Float a) {
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
  }
  /// The sums of four vectors, to out[0..4).
  TENON_INLINE static void store_sums(float* out, Float a, Float b, Float c, Float d) {
    const Float all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
  /// v[i] lane j = v[j] lane i.
  TENON_INLINE static void transpose(Float (&v)[lanes]) {
    Float t[lanes];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 8; i += 4) {
      v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
      v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      t[i] = _mm256_permute2f128_ps(v[i], v[4 + i], 0x20);
      t[4 + i] = _mm256_permute2f128_ps(v[i], v[4 + i], 0x31);
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) v[i] = t[i];
  }
  /// 2^n where `a` is n + 1.5 * 2^23 and n is in [-127, 127]; 2^-127 counts as 0.
  TENON_INLINE static Float power_of_two(Float a) {
    const __m256i biased = _mm256_add_epi32(_mm256_castps_si256(a), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  TENON_INLINE static Float load_f16(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  TENON_INLINE static Float load_bf16(const void* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  TENON_INLINE static Float broadcast_f16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<std::int16_t>(*p)));
  }
  /// Of pairs of bf16 the first numbers, the second ones.
  TENON_INLINE static Float load_even_bf16(const void* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(load(p), 16));
  }
  TENON_INLINE static Float load_odd_bf16(const void* p) {
    return _mm256_castsi256_ps(_mm256_and_si256(load(p), _mm256_set1_epi32(-0x10000)));
  }
  /// The initial value of integer sums for `scaled`: the bits of 1.5 * 2^23 as f32. A sum below
  /// 2^22 in magnitude added to it gives the bits of 1.5 * 2^23 + sum, so no conversion is needed.
  static constexpr std::int32_t sum_base = 0x4B400000;
  /// For `scaled`: minus sum_base, as f32, times the scale. Exact for scales of at most 22 bits.
  TENON_INLINE static Float shift_of(Float scale) {
    return _mm256_mul_ps(scale, _mm256_set1_ps(-12582912.0f));
  }
  /// (sum - sum_base) * scale, rounded once.
  TENON_INLINE static Float scaled(Words sum, Float scale, Float shift) {
    return _mm256_fmadd_ps(_mm256_castsi256_ps(sum), scale, shift);
  }
  TENON_INLINE static Words set_words(std::int32_t v) { return _mm256_set1_epi32(v); }
  TENON_INLINE static Words zero_words() { return _mm256_setzero_si256(); }
  TENON_INLINE static Words load_words(const std::int32_t* p) { return load(p); }
  TENON_INLINE static void store_words(std::int32_t* p, Words v) { store(p, v); }
  TENON_INLINE static Words add_words(Words a, Words b) { return _mm256_add_epi32(a, b); }
  /// The lower 16 bits of both, as pairs.
  TENON_INLINE static Words pair_words(Words low, Words high) {
    const __m256i low_half = _mm256_set1_epi32(0xFFFF);
    return _mm256_or_si256(_mm256_and_si256(low, low_half), _mm256_slli_epi32(high, 16));
  }
  /// Multiplies 16-bit halves and adds the two products of each lane.
  TENON_INLINE static Words sum_products(Words a, Words b) { return _mm256_madd_epi16(a, b); }
  /// c + a * b where a and b fit 16 bits.
  TENON_INLINE static Words add_product(Words a, Words b, Words c) {
    const __m256i low_half = _mm256_and_si256(b, _mm256_set1_epi32(0xFFFF));
#if defined(__AVXVNNI__)
    return _mm256_dpwssd_avx_epi32(c, a, low_half);
#else
    return _mm256_add_epi32(c, _mm256_madd_epi16(a, low_half));
#endif
  }
  TENON_INLINE static Words words_of_i8(const void* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  TENON_INLINE static Words words_of_low_nibbles(const void* p) {
    const __m128i v = _mm_loadl_epi64(static_cast<const __m128i*>(p));
    return _mm256_cvtepu8_epi32(_mm_and_si128(v, _mm_set1_epi8(15)));
  }
  TENON_INLINE static Float load_i8(const void* p) { return to_float(words_of_i8(p)); }
  TENON_INLINE static Float load_u8(const void* p) {
    return to_float(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
  }
  TENON_INLINE static Float load_low_nibbles(const void* p) {
    return to_float(words_of_low_nibbles(p));
  }
  TENON_INLINE static Float load_high_nibbles(const void* p) {
    const __m128i v = _mm_srli_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(p)), 4);
    return to_float(_mm256_cvtepu8_epi32(_mm_and_si128(v, _mm_set1_epi8(15))));
  }
  /// Byte `byte` of every lane's four, as a number.
  template <int byte>
  TENON_INLINE static Float byte_to_float(Int v) {
    return to_float(_mm256_and_si256(_mm256_srli_epi32(v, 8 * byte), _mm256_set1_epi32(255)));
  }
};

#if defined(__AVXVNNI__)

/// In every lane, the sum over `steps` quads of four unsigned codes times four activations, plus
/// the initial value that Start loads from `from`.
template <int bits, class Start, int steps>
struct Dot {
  using Weights = Simd::Codes;
  __m256i sum;
  TENON_INLINE void start(const std::int32_t* from) { sum = Start::load(from); }
  template <int step>
  TENON_INLINE void add(const Weights& w, __m256i quad) {
    sum = _mm256_dpbusd_avx_epi32(sum, w.codes, quad);
  }
  TENON_INLINE __m256i total() const { return sum; }
};

#else

/// Eight-bit codes made signed: |w|, and w for its sign.
struct SignedCodes {
  __m256i magnitude, value;
  TENON_INLINE static SignedCodes of(__m256i codes) {
    const __m256i w = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    return {_mm256_abs_epi8(w), w};
  }
  /// `apart` bytes from one copy to the next.
  TENON_INLINE static SignedCodes load(const std::uint8_t* p, std::int64_t apart) {
    return {Simd::load(p), Simd::load(p + apart)};
  }
  TENON_INLINE void store(std::uint8_t* p, std::int64_t apart) const {
    Simd::store(p, magnitude);
    Simd::store(p + apart, value);
  }
  TENON_INLINE __m256i products(__m256i quad) const {
    return _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(quad, value));
  }
};

/// As above, from 16-bit sums of pairs: a pair of b-bit codes times [-127, 127] stays within 254
/// (2^b - 1), so `span` of them fit. Eight-bit codes are made signed: |w| times sign(w) x.
template <int bits, class Start, int steps>
struct Dot {
  using Weights = std::conditional_t<bits == 8, SignedCodes, Simd::Codes>;
  static constexpr int span = bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
  __m256i sum;
  __m256i pairs;
  const std::int32_t* from;
  TENON_INLINE void start(const std::int32_t* at) { from = at; }
  template <int step>
  TENON_INLINE void add(const Weights& w, __m256i quad) {
    __m256i product;
    if constexpr (bits == 8) {
      product = w.products(quad);
    } else {
      product = _mm256_maddubs_epi16(w.codes, quad);
    }
    pairs = step % span == 0 ? product : _mm256_add_epi16(pairs, product);
    // Without these, GCC spills all products to memory and adds them at the end.
    if constexpr (span > 1) asm("" : "+x"(pairs));
    if constexpr (step % span == span - 1 && step != steps - 1) {
      sum = step < span ? widened() : _mm256_add_epi32(sum, widened());
      asm("" : "+x"(sum));
    }
  }
  TENON_INLINE __m256i total() const {
    __m256i all = widened();
    if constexpr (steps > span) all = _mm256_add_epi32(sum, all);
    if constexpr (!Start::is_zero) {
      all = _mm256_add_epi32(all, Start::load(from));
    }
    return all;
  }
  TENON_INLINE __m256i widened() const { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
  /// The sums of pairs times the factors in the halves of a lane, without Start's initial value.
  TENON_INLINE __m256i scaled(__m256i factor) const {
    static_assert(steps <= span);
    return _mm256_madd_epi16(pairs, factor);
  }
};

#endif

}  // namespace
}  // namespace tenon::cpu

#pragma once

// 512-bit vectors for the kernel bodies. Included once by each AVX-512 source, nowhere else.
#include <cstdint>
#include <type_traits>

#include <immintrin.h>

#define TENON_INLINE [[gnu::always_inline]] inline

namespace tenon::cpu {
namespace {

struct Simd {
  static constexpr int lanes = 16;
  static constexpr int tile_rows = 6;    // rows of x that an integer tile takes at once
  static constexpr int tile_panels = 2;  // and panels of W
#if defined(__AVX512VNNI__)
  static constexpr bool makes_bytes_signed = false;  // 8-bit codes, in Dot
#else
  static constexpr bool makes_bytes_signed = true;
#endif
  static constexpr int dense_rows = 12;  // the same for f32 tiles of two panels
  static constexpr int dense_panels = 2;
  using Int = __m512i;
  using Words = __m512i;  // of 32 bits
  using Float = __m512;

  TENON_INLINE static Int load(const void* p) { return _mm512_loadu_si512(p); }
  TENON_INLINE static void store(void* p, Int v) { _mm512_storeu_si512(p, v); }
  TENON_INLINE static Int set1(int byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
  TENON_INLINE static Int bit_and(Int a, Int b) { return _mm512_and_si512(a, b); }
  TENON_INLINE static Int bit_or(Int a, Int b) { return _mm512_or_si512(a, b); }
  template <int n>
  TENON_INLINE static Int shift_right(Int a) {
    return _mm512_srli_epi16(a, n);
  }
  template <int n>
  TENON_INLINE static Int shift_left(Int a) {
    return _mm512_slli_epi16(a, n);
  }
  TENON_INLINE static Int load_table(const void* p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  TENON_INLINE static Int look_up(Int table, Int index) {
    return _mm512_shuffle_epi8(table, index);
  }

  TENON_INLINE static Int add_bytes(Int a, Int b) { return _mm512_add_epi8(a, b); }
  /// Each byte times its lane's factor, of which the low byte.
  TENON_INLINE static Int mul_bytes(Int a, Words factor) {
    const __m512i low_byte = _mm512_set1_epi16(255), halves = pair_words(factor, factor);
    const __m512i even = _mm512_mullo_epi16(a, halves);
    const __m512i odd = _mm512_mullo_epi16(_mm512_andnot_si512(low_byte, a), halves);
    return _mm512_or_si512(_mm512_and_si512(even, low_byte), odd);
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
    return _mm512_set1_epi32(quad);
  }
  /// offset * *p in every lane; offset is a power of two.
  template <int offset>
  TENON_INLINE static Words broadcast_times(const std::int32_t* p) {
    constexpr auto shift = static_cast<unsigned>(__builtin_ctz(static_cast<unsigned>(offset)));
    return _mm512_slli_epi32(_mm512_set1_epi32(*p), shift);
  }

  TENON_INLINE static Float to_float(Int v) { return _mm512_cvtepi32_ps(v); }
  TENON_INLINE static Float zero_float() { return _mm512_setzero_ps(); }
  TENON_INLINE static Float broadcast(const float* p) { return _mm512_set1_ps(*p); }
  TENON_INLINE static Float load_float(const float* p) { return _mm512_loadu_ps(p); }
  TENON_INLINE static void store_float(float* p, Float v) { _mm512_storeu_ps(p, v); }
  TENON_INLINE static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  TENON_INLINE static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  TENON_INLINE static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  TENON_INLINE static Float div(Float a, Float b) { return _mm512_div_ps(a, b); }
  TENON_INLINE static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  /// The second operand where one is NaN.
  TENON_INLINE static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  TENON_INLINE static Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
  TENON_INLINE static float sum(Float a) { return _mm512_reduce_add_ps(a); }
  /// The sums of four vectors, to out[0..4).
  TENON_INLINE static void store_sums(float* out, Float a, Float b, Float c, Float d) {
    const Float ab = add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    const Float cd = add(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
    Float all = add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
    all = add(all, _mm512_permute_ps(all, 0x4E));
    all = add(all, _mm512_permute_ps(all, 0xB1));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, all)));
  }
  /// v[i] lane j = v[j] lane i.
  TENON_INLINE static void transpose(Float (&v)[lanes]) {
    Float t[lanes];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 16; i += 4) {
      v[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      v[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
      v[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      v[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      t[i] = _mm512_shuffle_f32x4(v[i], v[4 + i], 0x88);
      t[4 + i] = _mm512_shuffle_f32x4(v[i], v[4 + i], 0xDD);
      t[8 + i] = _mm512_shuffle_f32x4(v[8 + i], v[12 + i], 0x88);
      t[12 + i] = _mm512_shuffle_f32x4(v[8 + i], v[12 + i], 0xDD);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      v[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
      v[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xDD);
      v[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
      v[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xDD);
    }
  }
  /// 2^n where `a` is n + 1.5 * 2^23 and n is in [-127, 127]; 2^-127 counts as 0.
  TENON_INLINE static Float power_of_two(Float a) {
    const __m512i biased = _mm512_add_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }
  TENON_INLINE static Float load_f16(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  TENON_INLINE static Float load_bf16(const void* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  TENON_INLINE static Float broadcast_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<std::int16_t>(*p)));
  }
  /// Of pairs of bf16 the first numbers, the second ones.
  TENON_INLINE static Float load_even_bf16(const void* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(load(p), 16));
  }
  TENON_INLINE static Float load_odd_bf16(const void* p) {
    return _mm512_castsi512_ps(_mm512_and_si512(load(p), _mm512_set1_epi32(-0x10000)));
  }
  /// The initial value of integer sums for `scaled`: the bits of 1.5 * 2^23 as f32. A sum below
  /// 2^22 in magnitude added to it gives the bits of 1.5 * 2^23 + sum, so no conversion is needed.
  static constexpr std::int32_t sum_base = 0x4B400000;
  /// For `scaled`: minus sum_base, as f32, times the scale. Exact for scales of at most 22 bits.
  TENON_INLINE static Float shift_of(Float scale) {
    return _mm512_mul_ps(scale, _mm512_set1_ps(-12582912.0f));
  }
  /// (sum - sum_base) * scale, rounded once.
  TENON_INLINE static Float scaled(Words sum, Float scale, Float shift) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(sum), scale, shift);
  }
  TENON_INLINE static Words set_words(std::int32_t v) { return _mm512_set1_epi32(v); }
  TENON_INLINE static Words zero_words() { return _mm512_setzero_si512(); }
  TENON_INLINE static Words load_words(const std::int32_t* p) { return load(p); }
  TENON_INLINE static void store_words(std::int32_t* p, Words v) { store(p, v); }
  TENON_INLINE static Words add_words(Words a, Words b) { return _mm512_add_epi32(a, b); }
  /// The lower 16 bits of both, as pairs.
  TENON_INLINE static Words pair_words(Words low, Words high) {
    const __m512i low_half = _mm512_set1_epi32(0xFFFF);
    return _mm512_or_si512(_mm512_and_si512(low, low_half), _mm512_slli_epi32(high, 16));
  }
  /// Multiplies 16-bit halves and adds the two products of each lane.
  TENON_INLINE static Words sum_products(Words a, Words b) { return _mm512_madd_epi16(a, b); }
  /// c + a * b where a and b fit 16 bits.
  TENON_INLINE static Words add_product(Words a, Words b, Words c) {
    const __m512i low_half = _mm512_and_si512(b, _mm512_set1_epi32(0xFFFF));
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(c, a, low_half);
#else
    return _mm512_add_epi32(c, _mm512_madd_epi16(a, low_half));
#endif
  }
  TENON_INLINE static Words words_of_i8(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  TENON_INLINE static Words words_of_low_nibbles(const void* p) {
    const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm512_cvtepu8_epi32(_mm_and_si128(v, _mm_set1_epi8(15)));
  }
  TENON_INLINE static Float load_i8(const void* p) { return to_float(words_of_i8(p)); }
  TENON_INLINE static Float load_u8(const void* p) {
    return to_float(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
  }
  TENON_INLINE static Float load_low_nibbles(const void* p) {
    return to_float(words_of_low_nibbles(p));
  }
  TENON_INLINE static Float load_high_nibbles(const void* p) {
    const __m128i v = _mm_srli_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)), 4);
    return to_float(_mm512_cvtepu8_epi32(_mm_and_si128(v, _mm_set1_epi8(15))));
  }
  /// Byte `byte` of every lane's four, as a number.
  template <int byte>
  TENON_INLINE static Float byte_to_float(Int v) {
    if constexpr (byte == 3) return to_float(_mm512_srli_epi32(v, 24));
    return to_float(_mm512_and_si512(_mm512_srli_epi32(v, 8 * byte), _mm512_set1_epi32(255)));
  }
};

#if defined(__AVX512VNNI__)

/// In every lane, the sum over `steps` quads of four unsigned codes times four activations, plus
/// the initial value that Start loads from `from`.
template <int bits, class Start, int steps>
struct Dot {
  using Weights = Simd::Codes;
  __m512i sum;
  TENON_INLINE void start(const std::int32_t* from) { sum = Start::load(from); }
  template <int step>
  TENON_INLINE void add(const Weights& w, __m512i quad) {
    sum = _mm512_dpbusd_epi32(sum, w.codes, quad);
  }
  TENON_INLINE __m512i total() const { return sum; }
};

#else

/// Eight-bit codes made signed: |w|, and w for its sign.
struct SignedCodes {
  __m512i magnitude;
  __mmask64 negative;
  TENON_INLINE static SignedCodes of(__m512i codes) {
    const __m512i w = _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
    return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
  }
  /// `apart` bytes from one copy to the next.
  TENON_INLINE static SignedCodes load(const std::uint8_t* p, std::int64_t apart) {
    return {Simd::load(p), _mm512_movepi8_mask(Simd::load(p + apart))};
  }
  TENON_INLINE void store(std::uint8_t* p, std::int64_t apart) const {
    Simd::store(p, magnitude);
    Simd::store(p + apart, _mm512_movm_epi8(negative));
  }
  TENON_INLINE __m512i products(__m512i quad) const {
    const __m512i signed_quad = _mm512_mask_sub_epi8(quad, negative, _mm512_setzero_si512(), quad);
    return _mm512_maddubs_epi16(magnitude, signed_quad);
  }
};

/// As above, from 16-bit sums of pairs: a pair of b-bit codes times [-127, 127] stays within 254
/// (2^b - 1), so `span` of them fit. Eight-bit codes are made signed: |w| times sign(w) x.
template <int bits, class Start, int steps>
struct Dot {
  using Weights = std::conditional_t<bits == 8, SignedCodes, Simd::Codes>;
  static constexpr int span = bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
  __m512i sum;
  __m512i pairs;
  const std::int32_t* from;
  TENON_INLINE void start(const std::int32_t* at) { from = at; }
  template <int step>
  TENON_INLINE void add(const Weights& w, __m512i quad) {
    __m512i product;
    if constexpr (bits == 8) {
      product = w.products(quad);
    } else {
      product = _mm512_maddubs_epi16(w.codes, quad);
    }
    pairs = step % span == 0 ? product : _mm512_add_epi16(pairs, product);
    // Without these, GCC spills all products to memory and adds them at the end.
    if constexpr (span > 1) asm("" : "+v"(pairs));
    if constexpr (step % span == span - 1 && step != steps - 1) {
      sum = step < span ? widened() : _mm512_add_epi32(sum, widened());
      asm("" : "+v"(sum));
    }
  }
  TENON_INLINE __m512i total() const {
    __m512i all = widened();
    if constexpr (steps > span) all = _mm512_add_epi32(sum, all);
    if constexpr (!Start::is_zero) {
      all = _mm512_add_epi32(all, Start::load(from));
    }
    return all;
  }
  TENON_INLINE __m512i widened() const { return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)); }
  /// The sums of pairs times the factors in the halves of a lane, without Start's initial value.
  TENON_INLINE __m512i scaled(__m512i factor) const {
    static_assert(steps <= span);
    return _mm512_madd_epi16(pairs, factor);
  }
};

#endif

}  // namespace
}  // namespace tenon::cpu

#pragma once

// 128-bit vectors for the kernel bodies in the vector extension that GCC and Clang share, which
// compiles to instructions of the baseline. Included once by each portable source.
#include <cstdint>

#define TENON_INLINE [[gnu::always_inline]] inline

namespace tenon::cpu {
namespace {

using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using Halves8 = std::int16_t __attribute__((vector_size(16)));
using UnsignedHalves8 = std::uint16_t __attribute__((vector_size(16)));
using Halves4 = std::uint16_t __attribute__((vector_size(8)));
using Words4 = std::int32_t __attribute__((vector_size(16)));
using UnsignedWords4 = std::uint32_t __attribute__((vector_size(16)));
using Floats4 = float __attribute__((vector_size(16)));
using SmallBytes4 = std::uint8_t __attribute__((vector_size(4)));
using SignedBytes4 = std::int8_t __attribute__((vector_size(4)));

template <class T>
TENON_INLINE T load_as(const void* p) {
  T v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

struct Simd {
  static constexpr int lanes = 4;
  static constexpr int tile_rows = 4;
  static constexpr int tile_panels = 1;
  static constexpr bool makes_bytes_signed = false;  // 8-bit codes, in Dot
  static constexpr int dense_rows = 3;
  static constexpr int dense_panels = 1;
  using Int = Bytes16;
  using Words = Words4;
  using Float = Floats4;

  TENON_INLINE static Int load(const void* p) { return load_as<Int>(p); }
  TENON_INLINE static void store(void* p, Int v) { __builtin_memcpy(p, &v, sizeof v); }
  TENON_INLINE static Int set1(int byte) { return Int{} + static_cast<std::uint8_t>(byte); }
  TENON_INLINE static Int bit_and(Int a, Int b) { return a & b; }
  TENON_INLINE static Int bit_or(Int a, Int b) { return a | b; }
  // By 16 bits like the other instruction sets: callers mask the bits from the adjacent byte.
  template <int n>
  TENON_INLINE static Int shift_right(Int a) {
    return reinterpret_cast<Int>(reinterpret_cast<Halves8>(a) >> n);
  }
  template <int n>
  TENON_INLINE static Int shift_left(Int a) {
    return reinterpret_cast<Int>(reinterpret_cast<Halves8>(a) << n);
  }
  TENON_INLINE static Int load_table(const void* p) { return load_as<Int>(p); }
  TENON_INLINE static Int look_up(Int table, Int index) {
    Int v;
    for (int i = 0; i < 16; ++i) v[i] = table[index[i]];
    return v;
  }

  TENON_INLINE static Int add_bytes(Int a, Int b) { return a + b; }
  /// Each byte times its lane's factor, of which the low byte.
  TENON_INLINE static Int mul_bytes(Int a, Words factor) {
    const auto halves = reinterpret_cast<UnsignedHalves8>(pair_words(factor, factor));
    const auto pairs = reinterpret_cast<UnsignedHalves8>(a);
    return reinterpret_cast<Int>((pairs * halves & 0xFF) | (pairs & 0xFF00) * halves);
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
    const auto quad = load_as<std::int32_t>(p);
    return reinterpret_cast<Int>(Words4{quad, quad, quad, quad});
  }

  /// factor * *p in every lane.
  template <int factor>
  TENON_INLINE static Words broadcast_times(const std::int32_t* p) {
    return Words{} + factor * *p;
  }

  TENON_INLINE static Float to_float(Words4 v) { return __builtin_convertvector(v, Float); }
  TENON_INLINE static Float zero_float() { return Float{}; }
  TENON_INLINE static Float broadcast(const float* p) { return Float{*p, *p, *p, *p}; }
  TENON_INLINE static Float load_float(const float* p) { return load_as<Float>(p); }
  TENON_INLINE static void store_float(float* p, Float v) { __builtin_memcpy(p, &v, sizeof v); }
  TENON_INLINE static Float mul(Float a, Float b) { return a * b; }
  TENON_INLINE static Float add(Float a, Float b) { return a + b; }
  TENON_INLINE static Float sub(Float a, Float b) { return a - b; }
  TENON_INLINE static Float div(Float a, Float b) { return a / b; }
  TENON_INLINE static Float fma(Float a, Float b, Float c) { return a * b + c; }
  /// The second operand where one is NaN.
  TENON_INLINE static Float max(Float a, Float b) { return a > b ? a : b; }
  TENON_INLINE static Float min(Float a, Float b) { return a < b ? a : b; }
  TENON_INLINE static float sum(Float a) { return (a[0] + a[2]) + (a[1] + a[3]); }
  /// The sums of four vectors, to out[0..4).
  TENON_INLINE static void store_sums(float* out, Float a, Float b, Float c, Float d) {
    out[0] = sum(a), out[1] = sum(b), out[2] = sum(c), out[3] = sum(d);
  }
  /// v[i] lane j = v[j] lane i.
  TENON_INLINE static void transpose(Float (&v)[lanes]) {
    const Float t[lanes] = {v[0], v[1], v[2], v[3]};
    for (int i = 0; i < lanes; ++i) v[i] = Float{t[0][i], t[1][i], t[2][i], t[3][i]};
  }
  /// 2^n where `a` is n + 1.5 * 2^23 and n is in [-127, 127]; 2^-127 counts as 0.
  TENON_INLINE static Float power_of_two(Float a) {
    return reinterpret_cast<Float>((reinterpret_cast<UnsignedWords4>(a) + 127u) << 23);
  }
  TENON_INLINE static Float load_f16(const void* p) {
    const auto h = __builtin_convertvector(load_as<Halves4>(p), UnsignedWords4);
    const UnsignedWords4 magnitude = (h & 0x7FFFu) << 13;
    // A product with 2^112 moves the exponent's bias, exactly, for subnormals too.
    const Float finite = reinterpret_cast<Float>(magnitude) * 0x1p112f;
    const auto special = reinterpret_cast<UnsignedWords4>(magnitude >= (31u << 23)) & 0x7F800000u;
    return reinterpret_cast<Float>(reinterpret_cast<UnsignedWords4>(finite) | special |
                                   (h & 0x8000u) << 16);
  }
  TENON_INLINE static Float load_bf16(const void* p) {
    return reinterpret_cast<Float>(__builtin_convertvector(load_as<Halves4>(p), UnsignedWords4)
                                   << 16);
  }
  TENON_INLINE static Float broadcast_f16(const std::uint16_t* p) {
    const std::uint16_t four[4] = {*p, *p, *p, *p};
    return load_f16(four);
  }
  /// Of pairs of bf16 the first numbers, the second ones.
  TENON_INLINE static Float load_even_bf16(const void* p) {
    return reinterpret_cast<Float>(load_as<UnsignedWords4>(p) << 16);
  }
  TENON_INLINE static Float load_odd_bf16(const void* p) {
    return reinterpret_cast<Float>(load_as<UnsignedWords4>(p) & 0xFFFF0000u);
  }
  /// As with the other instruction sets, but without an fma there is nothing to gain.
  static constexpr std::int32_t sum_base = 0;
  TENON_INLINE static Float shift_of(Float scale) { return scale; }
  TENON_INLINE static Float scaled(Words sum, Float scale, Float) { return to_float(sum) * scale; }
  TENON_INLINE static Words set_words(std::int32_t v) { return Words{} + v; }
  TENON_INLINE static Words zero_words() { return Words{}; }
  TENON_INLINE static Words load_words(const std::int32_t* p) { return load_as<Words>(p); }
  TENON_INLINE static void store_words(std::int32_t* p, Words v) {
    __builtin_memcpy(p, &v, sizeof v);
  }
  TENON_INLINE static Words add_words(Words a, Words b) { return a + b; }
  /// The lower 16 bits of both, as pairs.
  TENON_INLINE static Words pair_words(Words low, Words high) {
    return (low & 0xFFFF) | reinterpret_cast<Words>(reinterpret_cast<UnsignedWords4>(high) << 16);
  }
  /// Multiplies 16-bit halves and adds the two products of each lane.
  TENON_INLINE static Words sum_products(Words a, Words b) {
    return (a >> 16) * (b >> 16) + low_half(a) * low_half(b);
  }
  /// c + a * b where a and b fit 16 bits.
  TENON_INLINE static Words add_product(Words a, Words b, Words c) { return c + a * b; }
  TENON_INLINE static Words words_of_i8(const void* p) {
    return __builtin_convertvector(load_as<SignedBytes4>(p), Words4);
  }
  TENON_INLINE static Words words_of_low_nibbles(const void* p) {
    return __builtin_convertvector(load_as<SmallBytes4>(p), Words4) & 15;
  }
  TENON_INLINE static Float load_i8(const void* p) { return to_float(words_of_i8(p)); }
  TENON_INLINE static Float load_u8(const void* p) {
    return to_float(__builtin_convertvector(load_as<SmallBytes4>(p), Words4));
  }
  TENON_INLINE static Float load_low_nibbles(const void* p) {
    return to_float(words_of_low_nibbles(p));
  }
  TENON_INLINE static Float load_high_nibbles(const void* p) {
    return to_float(__builtin_convertvector(load_as<SmallBytes4>(p), Words4) >> 4);
  }
  /// Byte `byte` of every lane's four, as a number.
  template <int byte>
  TENON_INLINE static Float byte_to_float(Int v) {
    return to_float((reinterpret_cast<Words4>(v) >> (8 * byte)) & 255);
  }

 private:
  TENON_INLINE static Words low_half(Words v) {
    return reinterpret_cast<Words>(reinterpret_cast<UnsignedWords4>(v) << 16) >> 16;
  }
};

/// In every lane, the sum over `steps` quads of four unsigned codes times four activations, plus
/// the initial value that Start loads from `from`.
template <int bits, class Start, int steps>
struct Dot {
  using Weights = Simd::Codes;
  Words4 sum;

  TENON_INLINE void start(const std::int32_t* from) { sum = Start::load(from); }
  // A product of an 8-bit code fits into 16 bits; two of narrower codes fit together.
  template <int step>
  TENON_INLINE void add(const Weights& w, Bytes16 quad) {
    const auto pairs = reinterpret_cast<Halves8>(w.codes), x = reinterpret_cast<Halves8>(quad);
    const Halves8 even = (pairs & 255) * ((x << 8) >> 8);
    const Halves8 odd = ((pairs >> 8) & 255) * (x >> 8);
    if constexpr (bits == 8) {
      sum += both_halves(even) + both_halves(odd);
    } else {
      sum += both_halves(even + odd);
    }
  }
  TENON_INLINE Words4 total() const { return sum; }

 private:
  TENON_INLINE static Words4 both_halves(Halves8 v) {
    const auto words = reinterpret_cast<Words4>(v);
    return (words >> 16) + ((words << 16) >> 16);
  }
};

}  // namespace
}  // namespace tenon::cpu

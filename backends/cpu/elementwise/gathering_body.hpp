#pragma once

// Templates that fold rows and columns of elements. Included after a header of simd/, by the sources of one instruction set
// each.
#include "independent.hpp"
#include "trigonometry_body.hpp"
#include "typed.hpp"

#include <cstdint>
#include <type_traits>
#include <utility>

namespace tenon::cpu {
namespace {

/// The unsigned type of the same width, in which overflow is defined.
template <class T>
struct WrappingType {
  using Type = T;
};
template <>
struct WrappingType<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct WrappingType<std::int64_t> {
  using Type = std::uint64_t;
};

template <class T>
constexpr bool is_number = false;
template <>
constexpr bool is_number<std::int32_t> = true;
template <>
constexpr bool is_number<std::int64_t> = true;
template <>
constexpr bool is_number<float> = true;
template <>
constexpr bool is_number<double> = true;

/// Functions of two sums, or of vectors of them.
struct AddSums {
  template <class Sum>
  [[gnu::always_inline]] Sum operator()(Sum p, Sum q) const {
    if constexpr (is_number<Sum>) {
      using U = typename WrappingType<Sum>::Type;
      return static_cast<Sum>(static_cast<U>(p) + static_cast<U>(q));
    } else {
      return p + q;
    }
  }
};
struct MultiplySums {
  template <class Sum>
  [[gnu::always_inline]] Sum operator()(Sum p, Sum q) const {
    if constexpr (is_number<Sum>) {
      using U = typename WrappingType<Sum>::Type;
      return static_cast<Sum>(static_cast<U>(p) * static_cast<U>(q));
    } else {
      return p * q;
    }
  }
};
/// p > q ? p : q, of which GCC 12 makes a comparison and a choice where there is one instruction.
template <class V>
TENON_INLINE V larger_of(V p, V q) {
  return p > q ? p : q;
}
template <class V>
TENON_INLINE V smaller_of(V p, V q) {
  return p < q ? p : q;
}
#if defined(__AVX512F__)
TENON_INLINE Doubles larger_of(Doubles p, Doubles q) { return _mm512_max_pd(p, q); }
TENON_INLINE Doubles smaller_of(Doubles p, Doubles q) { return _mm512_min_pd(p, q); }
TENON_INLINE Float larger_of(Float p, Float q) { return _mm512_max_ps(p, q); }
TENON_INLINE Float smaller_of(Float p, Float q) { return _mm512_min_ps(p, q); }
#elif defined(__AVX2__)
TENON_INLINE Doubles larger_of(Doubles p, Doubles q) { return _mm256_max_pd(p, q); }
TENON_INLINE Doubles smaller_of(Doubles p, Doubles q) { return _mm256_min_pd(p, q); }
TENON_INLINE Float larger_of(Float p, Float q) { return _mm256_max_ps(p, q); }
TENON_INLINE Float smaller_of(Float p, Float q) { return _mm256_min_ps(p, q); }
#endif
struct LargerSum {
  template <class Sum>
  [[gnu::always_inline]] Sum operator()(Sum p, Sum q) const {
    const Sum larger = larger_of(p, q);
    return p != p ? p : larger;
  }
};
struct SmallerSum {
  template <class Sum>
  [[gnu::always_inline]] Sum operator()(Sum p, Sum q) const {
    const Sum smaller = smaller_of(p, q);
    return p != p ? p : smaller;
  }
};

/// What sums of T are kept in.
template <class T>
struct KeptIn {
  using Type = T;
};
template <>
struct KeptIn<std::int32_t> {
  using Type = std::int64_t;
};
template <>
struct KeptIn<float> {
  using Type = double;
};
template <class T>
struct Kept {
  using Type = T;
};

/// run(f, Kept<Sum>) with the function of two sums; extremes are kept in T itself.
template <class T, class Run>
[[gnu::always_inline]] inline void with_gathering(Gathering op, const Run& run) {
  using Sum = typename KeptIn<T>::Type;
  switch (op) {
    case Gathering::sum:
      return run(AddSums{}, Kept<Sum>{});
    case Gathering::product:
      return run(MultiplySums{}, Kept<Sum>{});
    case Gathering::max:
      return run(LargerSum{}, Kept<T>{});
    case Gathering::min:
      return run(SmallerSum{}, Kept<T>{});
  }
}

/// A vector of the instruction set's width, of sums or of as many elements.
template <class T>
struct SumsOf;
template <>
struct SumsOf<std::int64_t> {
  using Type = std::int64_t __attribute__((vector_size(4 * Simd::lanes)));
};
template <>
struct SumsOf<double> {
  using Type = Doubles;
};
template <>
struct SumsOf<std::int32_t> {
  using Type = std::int32_t __attribute__((vector_size(4 * Simd::lanes)));
};
template <>
struct SumsOf<float> {
  using Type = Float;
};
/// As many elements of T as a vector has sums.
template <class T, class Sum>
struct AddendsOf : SumsOf<T> {};
template <>
struct AddendsOf<float, double> {
  using Type = FewFloats;
};
template <>
struct AddendsOf<std::int32_t, std::int64_t> {
  using Type = std::int32_t __attribute__((vector_size(2 * Simd::lanes)));
};

/// Elements of f16 and bf16 as they are stored.
enum class F16Bits : std::uint16_t {};
enum class Bf16Bits : std::uint16_t {};
template <class T>
constexpr bool is_half = std::is_same_v<T, F16Bits> || std::is_same_v<T, Bf16Bits>;

/// As many halves as a vector has lanes.
template <class T>
TENON_INLINE Float load_halves(const T* x) {
  return std::is_same_v<T, F16Bits> ? Simd::load_f16(x) : Simd::load_bf16(x);
}
/// Half as many.
template <class T>
TENON_INLINE FewFloats load_few_halves(const T* x) {
#if defined(__AVX512F__)
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  if constexpr (std::is_same_v<T, F16Bits>) return _mm256_cvtph_ps(bits);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
#elif defined(__AVX2__)
  const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x));
  if constexpr (std::is_same_v<T, F16Bits>) return _mm_cvtph_ps(bits);
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(bits), 16));
#else
  T padded[Simd::lanes] = {};
  __builtin_memcpy(padded, x, sizeof padded / 2);
  const Float all = load_halves(padded);
  FewFloats few;
  __builtin_memcpy(&few, &all, sizeof few);
  return few;
#endif
}

/// As many elements as a vector has sums, as these, with fewer instructions than compilers convert a loop's with.
template <class T, class Sum>
TENON_INLINE typename SumsOf<Sum>::Type load_as_sums(const T* x) {
  if constexpr (is_half<T> && sizeof(Sum) == sizeof(double)) {
    return widened(load_few_halves(x));
  } else if constexpr (is_half<T>) {
    return load_halves(x);
  } else {
    typename AddendsOf<T, Sum>::Type some;
    __builtin_memcpy(&some, x, sizeof some);
    if constexpr (sizeof(T) == sizeof(Sum)) {
      return some;
    } else if constexpr (static_cast<T>(0.5) != 0) {
      return widened(some);
    } else {
      return __builtin_convertvector(some, typename SumsOf<Sum>::Type);
    }
  }
}
template <class T, class Sum>
TENON_INLINE Sum as_sum(T x) {
  if constexpr (is_half<T>) {
    T padded[Simd::lanes] = {x};
    return static_cast<Sum>(load_halves(padded)[0]);
  } else {
    return static_cast<Sum>(x);
  }
}

template <int width>
struct Width {};

/// `width` columns of `rows` rows.
template <int width, class T, class Sum, class F>
[[gnu::always_inline]] inline void accumulate_block(const char* x, std::int64_t rows,
                                                    std::int64_t step, Sum* sums, F f) {
  constexpr int each = static_cast<int>(sizeof(Doubles) / sizeof(Sum)), vectors = width / each;
  if constexpr (vectors > 0) {
    typename SumsOf<Sum>::Type part[static_cast<unsigned>(vectors)];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) part[v] = load_as_sums<Sum, Sum>(sums + v * each);
    for (std::int64_t r = 0; r < rows; ++r, x += step) {
      const auto* row = reinterpret_cast<const T*>(x);
      for (int v = 0; v < vectors; ++v) part[v] = f(part[v], load_as_sums<T, Sum>(row + v * each));
    }
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) __builtin_memcpy(sums + v * each, part + v, sizeof part[v]);
    return;
  }
  Sum part[static_cast<unsigned>(width)];
  for (int i = 0; i < width; ++i) part[i] = sums[i];
  for (std::int64_t r = 0; r < rows; ++r, x += step) {
    const auto* row = reinterpret_cast<const T*>(x);
    for (int i = 0; i < width; ++i) part[i] = f(part[i], as_sum<T, Sum>(row[i]));
  }
  for (int i = 0; i < width; ++i) sums[i] = part[i];
}

template <class T, class Sum, class F>
[[gnu::always_inline]] inline void accumulate_columns_of(const void* x, std::int64_t columns,
                                                         std::int64_t rows, std::int64_t step,
                                                         Sum* sums, F f) {
  constexpr int wide = 32;
  // Sums stay in registers while some rows are read; of many columns only a few, since rows may be pages apart.
  const std::int64_t together = columns <= wide ? rows : 8;
  const auto* const from = static_cast<const char*>(x);
  for (std::int64_t r = 0; r < rows; r += together) {
    const std::int64_t some = rows - r < together ? rows - r : together;
    std::int64_t c = 0;
    const auto take = [&]<int width>(Width<width>) {
      const char* const at = from + r * step + c * static_cast<std::int64_t>(sizeof(T));
      accumulate_block<width, T>(at, some, step, sums + c, f);
      c += width;
    };
    while (c + wide <= columns) take(Width<wide>{});
    if (c + 16 <= columns) take(Width<16>{});
    if (c + 8 <= columns) take(Width<8>{});
    if (c + 4 <= columns) take(Width<4>{});
    while (c < columns) take(Width<1>{});
  }
}

/// The last `count` elements of a row, less than load_as_sums() reads, and zeros behind them.
template <class T, class Sum>
TENON_INLINE typename SumsOf<Sum>::Type load_last_as_sums(const T* x, std::int64_t count) {
  constexpr std::int64_t each = sizeof(typename SumsOf<Sum>::Type) / sizeof(Sum);
  T padded[static_cast<unsigned>(each)] = {};
  std::int64_t i = 0;
#pragma GCC unroll 6
  for (std::int64_t some = each / 2; some > 0; some /= 2) {
    if ((count & some) == 0) continue;
    __builtin_memcpy(padded + i, x + i, sizeof(T) * static_cast<std::size_t>(some));
    i += some;
  }
  return load_as_sums<T, Sum>(padded);
}
template <class V, int... i>
TENON_INLINE V counted(std::integer_sequence<int, i...>) {
  return V{i...};
}
/// y in the first `count` lanes, x in the others.
template <class Sum, class V>
TENON_INLINE V first_lanes(std::int64_t count, V y, V x) {
  using Lanes = decltype(V{} < V{});
  using Lane = std::conditional_t<sizeof(Sum) == 8, std::int64_t, std::int32_t>;
  const auto numbers = counted<Lanes>(std::make_integer_sequence<int, sizeof(V) / sizeof(Sum)>());
  return numbers < static_cast<Lane>(count) ? y : x;
}

/// Element i belongs to result i mod `few`; rows of less elements are folded in order.
template <int few, class T, class Sum, class F>
void fold_typed_rows_of(const void* x, std::int64_t step, std::int64_t rows, std::int64_t count,
                        Sum* sums, F f) {
  using Sums = typename SumsOf<Sum>::Type;
  constexpr int each = static_cast<int>(sizeof(Sums) / sizeof(Sum)), vectors = few / each;
  const auto* from = static_cast<const char*>(x);
  for (std::int64_t r = 0; r < rows; ++r, from += step) {
    const auto* const row = reinterpret_cast<const T*>(from);
    if (count < few) {
      auto sum = as_sum<T, Sum>(row[0]);
      for (std::int64_t i = 1; i < count; ++i) sum = f(sum, as_sum<T, Sum>(row[i]));
      sums[r] = sum;
      continue;
    }
    // Loops are unrolled by name, or GCC 12 keeps the sums in memory.
    Sums part[static_cast<unsigned>(vectors)];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) part[v] = load_as_sums<T, Sum>(row + v * each);
    std::int64_t i = few;
    for (; i + few <= count; i += few) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) {
        part[v] = f(part[v], load_as_sums<T, Sum>(row + i + v * each));
      }
    }
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v, i += each) {
      if (i + each <= count) {
        part[v] = f(part[v], load_as_sums<T, Sum>(row + i));
      } else if (i < count) {
        const Sums last = load_last_as_sums<T, Sum>(row + i, count - i);
        part[v] = first_lanes<Sum>(count - i, f(part[v], last), part[v]);
      }
    }
#pragma GCC unroll 5
    for (int half = vectors / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
      for (int v = 0; v < half; ++v) part[v] = f(part[v], part[v + half]);
    }
    Sum sum[static_cast<unsigned>(each)];
    __builtin_memcpy(sum, part, sizeof part[0]);
    for (int half = each / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) sum[j] = f(sum[j], sum[j + half]);
    }
    sums[r] = sum[0];
  }
}

}  // namespace
}  // namespace tenon::cpu

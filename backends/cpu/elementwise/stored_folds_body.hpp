#pragma once

// Sums and extremes of narrow types. Included after a header of simd/, by the sources of one instruction set each.
#include "gathering_body.hpp"
#include "stored_folds.hpp"

#include <cstdint>
#include <type_traits>

namespace tenon::cpu {
namespace {

/// A bool as it is stored.
enum class Truth : std::uint8_t {};

/// An element as a number of 32 bits.
template <class T>
[[gnu::always_inline]] inline auto number_of(T x) {
  if constexpr (std::is_same_v<T, Truth>) {
    return std::uint32_t{static_cast<std::uint8_t>(x) != 0};
  } else if constexpr (std::is_signed_v<T>) {
    return std::int32_t{x};
  } else {
    return std::uint32_t{x};
  }
}

/// As many elements as 32 bits hold the sum of, whatever they are.
template <class T>
constexpr std::int64_t safe_count = sizeof(T) == 1 ? std::int64_t{1} << 23 : std::int64_t{1} << 15;

#if defined(__AVX2__)
/// Bytes are summed by eights in one instruction, as unsigned ones.
template <class T>
TENON_INLINE __m256i unsigned_bytes(const T* x) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  if constexpr (std::is_same_v<T, Truth>) return _mm256_min_epu8(bytes, _mm256_set1_epi8(1));
  if constexpr (std::is_signed_v<T>) return _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
  return bytes;
}
template <class T>
TENON_INLINE std::int64_t sum_bytes(const T* x, std::int64_t count) {
  constexpr std::int64_t width = 32;
  const __m256i zero = _mm256_setzero_si256();
  __m256i first = zero, second = zero;
  std::int64_t i = 0;
  for (; i + 2 * width <= count; i += 2 * width) {
    first = _mm256_add_epi64(first, _mm256_sad_epu8(unsigned_bytes(x + i), zero));
    second = _mm256_add_epi64(second, _mm256_sad_epu8(unsigned_bytes(x + i + width), zero));
  }
  std::int64_t parts[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(parts), _mm256_add_epi64(first, second));
  std::int64_t sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  if constexpr (std::is_signed_v<T>) sum -= 128 * i;
  for (; i < count; ++i) sum += number_of(x[i]);
  return sum;
}
#endif

template <class T>
std::int64_t sum_row(const T* x, std::int64_t count) {
#if defined(__AVX2__)
  if constexpr (sizeof(T) == 1) return sum_bytes(x, count);
#endif
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; i += safe_count<T>) {
    const std::int64_t some = count - i < safe_count<T> ? count - i : safe_count<T>;
    decltype(number_of(T{})) part = 0;
    for (std::int64_t j = 0; j < some; ++j) part += number_of(x[i + j]);
    sum += part;
  }
  return sum;
}

/// Sums of whole numbers.
template <class T>
struct WholeSum {
  using Sum = std::int64_t;
  static Sum row(const T* x, std::int64_t count) { return sum_row(x, count); }
  template <std::int64_t width>
  [[gnu::always_inline]] static void add_columns(const char* x, std::int64_t rows,
                                                 std::int64_t step, Sum* sums) {
    for (std::int64_t r = 0; r < rows; r += safe_count<T>) {
      const std::int64_t some = rows - r < safe_count<T> ? rows - r : safe_count<T>;
      decltype(number_of(T{})) part[static_cast<unsigned>(width)] = {};
      for (std::int64_t i = 0; i < some; ++i, x += step) {
        const auto* row = reinterpret_cast<const T*>(x);
        TENON_INDEPENDENT for (std::int64_t c = 0; c < width; ++c) part[c] += number_of(row[c]);
      }
      for (std::int64_t c = 0; c < width; ++c) sums[c] += part[c];
    }
  }
};

/// Of whole numbers, the greater ones or the smaller ones.
template <class T, bool greater>
struct WholeExtreme {
  using Sum = std::int32_t;
  template <class V>
  [[gnu::always_inline]] static V better(V p, V q) {
    if constexpr (greater) return p > q ? p : q;
    return p < q ? p : q;
  }
  static Sum row(const T* x, std::int64_t count) {
    constexpr std::int64_t unit = sizeof(T);
    if (count * unit >= 128) return row_of<128 / unit>(x, count);
    if (count * unit >= 16) return row_of<16 / unit>(x, count);
    T best = x[0];
    for (std::int64_t i = 1; i < count; ++i) best = better(best, x[i]);
    return best;
  }
  /// Of `width` elements or more; the last ones may be looked at twice.
  template <std::int64_t width>
  [[gnu::always_inline]] static Sum row_of(const T* x, std::int64_t count) {
    T part[static_cast<unsigned>(width)];
    __builtin_memcpy(part, x + count - width, sizeof part);
    for (std::int64_t i = 0; i + width < count; i += width) {
      TENON_INDEPENDENT for (std::int64_t j = 0; j < width; ++j) {
        part[j] = better(part[j], x[i + j]);
      }
    }
#pragma GCC unroll 7
    for (std::int64_t half = width / 2; half > 0; half /= 2) {
      TENON_INDEPENDENT for (std::int64_t j = 0; j < half; ++j) {
        part[j] = better(part[j], part[j + half]);
      }
    }
    return part[0];
  }
  template <std::int64_t width>
  [[gnu::always_inline]] static void add_columns(const char* x, std::int64_t rows,
                                                 std::int64_t step, Sum* sums) {
    T part[static_cast<unsigned>(width)];
    __builtin_memcpy(part, x, sizeof part);
    for (std::int64_t r = 1; r < rows; ++r) {
      const auto* row = reinterpret_cast<const T*>(x + r * step);
      TENON_INDEPENDENT for (std::int64_t c = 0; c < width; ++c) part[c] = better(part[c], row[c]);
    }
    for (std::int64_t c = 0; c < width; ++c) sums[c] = better(sums[c], Sum{part[c]});
  }
};

template <class T, class Fold>
void run_rows(const void* x, std::int64_t step, std::int64_t rows, std::int64_t count,
              void* sums) noexcept {
  const auto* from = static_cast<const char*>(x);
  auto* const to = static_cast<typename Fold::Sum*>(sums);
  for (std::int64_t r = 0; r < rows; ++r, from += step) {
    to[r] = Fold::row(reinterpret_cast<const T*>(from), count);
  }
}

template <class T, class Fold>
void run_columns(const void* x, std::int64_t columns, std::int64_t rows, std::int64_t step,
                 void* sums) noexcept {
  constexpr std::int64_t wide = 64, narrow = 8;
  constexpr std::int64_t unit = sizeof(T);
  const auto* from = static_cast<const char*>(x);
  auto* const to = static_cast<typename Fold::Sum*>(sums);
  if (rows == 0) return;
  std::int64_t c = 0;
  for (; c + wide <= columns; c += wide) {
    Fold::template add_columns<wide>(from + c * unit, rows, step, to + c);
  }
  for (; c + narrow <= columns; c += narrow) {
    Fold::template add_columns<narrow>(from + c * unit, rows, step, to + c);
  }
  for (; c < columns; ++c) Fold::template add_columns<1>(from + c * unit, rows, step, to + c);
}

/// Of f16 and bf16.
template <class T, class Sum, class F>
void run_half_rows(const void* x, std::int64_t step, std::int64_t rows, std::int64_t count,
                   void* sums) noexcept {
  fold_typed_rows_of<16, T>(x, step, rows, count, static_cast<Sum*>(sums), F{});
}
template <class T, class Sum, class F>
void run_half_columns(const void* x, std::int64_t columns, std::int64_t rows, std::int64_t step,
                      void* sums) noexcept {
  accumulate_columns_of<T>(x, columns, rows, step, static_cast<Sum*>(sums), F{});
}

template <class T, class Fold>
constexpr StoredFold whole_fold{run_rows<T, Fold>, run_columns<T, Fold>};
template <class T, class Sum, class F>
constexpr StoredFold half_fold{run_half_rows<T, Sum, F>, run_half_columns<T, Sum, F>};

template <class T>
const StoredFold* find_whole(Gathering op) noexcept {
  switch (op) {
    case Gathering::sum:
      return &whole_fold<T, WholeSum<T>>;
    case Gathering::max:
      return &whole_fold<T, WholeExtreme<T, true>>;
    case Gathering::min:
      return &whole_fold<T, WholeExtreme<T, false>>;
    case Gathering::product:
      break;
  }
  return nullptr;
}
template <class T>
const StoredFold* find_half(Gathering op) noexcept {
  switch (op) {
    case Gathering::sum:
      return &half_fold<T, double, AddSums>;
    case Gathering::max:
      return &half_fold<T, float, LargerSum>;
    case Gathering::min:
      return &half_fold<T, float, SmallerSum>;
    case Gathering::product:
      break;
  }
  return nullptr;
}

const StoredFold* find_stored_fold(DType dtype, Gathering op) noexcept {
  switch (dtype) {
    case DType::boolean:
      return op == Gathering::sum ? &whole_fold<Truth, WholeSum<Truth>> : nullptr;
    case DType::i8:
      return find_whole<std::int8_t>(op);
    case DType::u8:
      return find_whole<std::uint8_t>(op);
    case DType::i16:
      return find_whole<std::int16_t>(op);
    case DType::u16:
      return find_whole<std::uint16_t>(op);
    case DType::f16:
      return find_half<F16Bits>(op);
    case DType::bf16:
      return find_half<Bf16Bits>(op);
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace tenon::cpu

#pragma once

// Sums of whole numbers of narrow types. Included after a header of simd/, by the sources of one instruction set each.
#include "independent.hpp"
#include "stored_sums.hpp"

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
std::int64_t run_row(const void* from, std::int64_t count) noexcept {
  const auto* x = static_cast<const T*>(from);
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

template <std::int64_t width, class T>
[[gnu::always_inline]] inline void add_columns(const char* x, std::int64_t rows, std::int64_t step,
                                               std::int64_t* sums) {
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

template <class T>
void run_columns(const void* from, std::int64_t columns, std::int64_t rows, std::int64_t step,
                 std::int64_t* sums) noexcept {
  constexpr std::int64_t wide = 64, narrow = 8;
  const auto* x = static_cast<const char*>(from);
  constexpr std::int64_t unit = sizeof(T);
  std::int64_t c = 0;
  for (; c + wide <= columns; c += wide) add_columns<wide, T>(x + c * unit, rows, step, sums + c);
  for (; c + narrow <= columns; c += narrow) {
    add_columns<narrow, T>(x + c * unit, rows, step, sums + c);
  }
  for (; c < columns; ++c) add_columns<1, T>(x + c * unit, rows, step, sums + c);
}

template <class T>
constexpr StoredSums sums_of{run_row<T>, run_columns<T>};

const StoredSums* find_stored_sums(DType dtype) noexcept {
  switch (dtype) {
    case DType::boolean:
      return &sums_of<Truth>;
    case DType::i8:
      return &sums_of<std::int8_t>;
    case DType::u8:
      return &sums_of<std::uint8_t>;
    case DType::i16:
      return &sums_of<std::int16_t>;
    case DType::u16:
      return &sums_of<std::uint16_t>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace tenon::cpu

#include "array/transpose.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tenon {
namespace {

constexpr std::int64_t line = 64;  // bytes
/// Lines of a row of `from` that are read before the next rows: a page of them.
constexpr std::int64_t near = 64;
/// Bytes from which on a copy does not stay in cache.
constexpr std::int64_t large = 2 << 20;

/// 16 bytes in the vector extension that GCC and Clang share.
template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(16)));
};
template <class T>
using Vector = typename VectorOf<T>::Type;
template <class T>
constexpr std::size_t lanes = 16 / sizeof(T);

/// a0 b0 a1 b1 ... of the lower or upper halves.
template <class T, std::size_t first, std::size_t... i>
[[gnu::always_inline]] inline Vector<T> interleave(Vector<T> a, Vector<T> b,
                                                   std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (first + i / 2 + i % 2 * lanes<T>)...);
}

/// A square of as many vectors as each has lanes. Interleaving row i with row i + n / 2 rotates the
/// bits of an element's place by one, so that log2(n) times of it exchange row and column.
template <class T>
[[gnu::always_inline]] inline void transpose_square(const std::byte* from, std::int64_t from_step,
                                                    std::byte* to, std::int64_t to_step) {
  constexpr std::size_t n = lanes<T>;
  constexpr auto all = std::make_index_sequence<n>();
  Vector<T> rows[n], mixed[n];
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(&rows[i], from + static_cast<std::int64_t>(i) * from_step, 16);
  }
  for (std::size_t step = 1; step < n; step *= 2) {
    for (std::size_t i = 0; i < n / 2; ++i) {
      mixed[2 * i] = interleave<T, 0>(rows[i], rows[i + n / 2], all);
      mixed[2 * i + 1] = interleave<T, n / 2>(rows[i], rows[i + n / 2], all);
    }
    for (std::size_t i = 0; i < n; ++i) rows[i] = mixed[i];
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(to + static_cast<std::int64_t>(i) * to_step, &rows[i], 16);
  }
}

/// Squares of vectors, the last of either side overlapping the one before it. Some columns after
/// the others, so that lines of `from` stay in cache from row to row.
template <class T>
void transpose_elements(const std::byte* from, std::int64_t from_step, std::byte* to,
                        std::int64_t to_step, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t unit = sizeof(T), side = 32;
  constexpr auto n = static_cast<std::int64_t>(lanes<T>);
  if (rows >= n && columns >= n) {
    for (std::int64_t j = 0; j < columns; j += n) {
      const std::int64_t column = std::min(j, columns - n);
      for (std::int64_t i = 0; i < rows; i += n) {
        const std::int64_t row = std::min(i, rows - n);
        transpose_square<T>(from + column * from_step + row * unit, from_step,
                            to + row * to_step + column * unit, to_step);
      }
    }
    return;
  }
  for (std::int64_t first = 0; first < columns; first += side) {
    const std::int64_t end = std::min(first + side, columns);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = first; j < end; ++j) {
        std::memcpy(to + i * to_step + j * unit, from + j * from_step + i * unit, sizeof(T));
      }
    }
  }
}

/// Writes whole cache lines of `to` at once: rows at a distance of a power of two map to few cache
/// sets, so that partially written lines would be evicted in between.
struct ThroughCache {
  static void expect(std::byte* to) { __builtin_prefetch(to, 1); }
  static void write(std::byte* to, const std::byte* from) { std::memcpy(to, from, line); }
  static void finish() {}
};

#if defined(__SSE2__)
/// Non-temporal stores, which do not load the lines into caches first: twice as fast where `to` is
/// large. `to` is aligned to a cache line.
struct PastCache {
  static void expect(std::byte*) {}
  static void write(std::byte* to, const std::byte* from) {
    for (std::int64_t at = 0; at < line; at += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + at)));
    }
  }
  static void finish() { _mm_sfence(); }
};
#else
using PastCache = ThroughCache;
#endif

/// A square tile of one cache line each way, through a buffer that stays in cache.
template <class T, class Lines>
void transpose_lines(const std::byte* from, std::int64_t from_step, std::byte* to,
                     std::int64_t to_step) {
  constexpr std::int64_t unit = sizeof(T), side = line / unit;
  constexpr auto n = static_cast<std::int64_t>(lanes<T>);
  for (std::int64_t i = 0; i < side; ++i) Lines::expect(to + i * to_step);
  alignas(line) std::byte square[static_cast<std::size_t>(side * line)];
  for (std::int64_t j = 0; j < side; j += n) {
    for (std::int64_t i = 0; i < side; i += n) {
      transpose_square<T>(from + j * from_step + i * unit, from_step, square + i * line + j * unit,
                          line);
    }
  }
  for (std::int64_t i = 0; i < side; ++i) Lines::write(to + i * to_step, square + i * line);
}

/// `rows` and `columns` are whole lines.
template <class T, class Lines>
void transpose_whole(const std::byte* from, std::int64_t from_step, std::byte* to,
                     std::int64_t to_step, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t unit = sizeof(T), side = line / unit;
  for (std::int64_t first = 0; first < rows; first += near * side) {
    const std::int64_t end = std::min(first + near * side, rows);
    for (std::int64_t j = 0; j < columns; j += side) {
      for (std::int64_t i = first; i < end; i += side) {
        transpose_lines<T, Lines>(from + j * from_step + i * unit, from_step,
                                  to + i * to_step + j * unit, to_step);
      }
    }
  }
  Lines::finish();
}

template <class T>
void transpose_of(const std::byte* from, std::int64_t from_step, std::byte* to,
                  std::int64_t to_step, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t unit = sizeof(T), side = line / unit;
  const std::int64_t whole_rows = rows / side * side, whole_columns = columns / side * side;
  const bool has_lines = reinterpret_cast<std::uintptr_t>(to) % line == 0 && to_step % line == 0;
  if (has_lines && whole_rows * whole_columns >= large / unit) {
    transpose_whole<T, PastCache>(from, from_step, to, to_step, whole_rows, whole_columns);
  } else {
    transpose_whole<T, ThroughCache>(from, from_step, to, to_step, whole_rows, whole_columns);
  }
  // What is left, widened to whole vectors where there are as many.
  constexpr auto n = static_cast<std::int64_t>(lanes<T>);
  const auto start = [](std::int64_t whole, std::int64_t all) {
    return whole == all ? all : std::min(whole, std::max<std::int64_t>(all - n, 0));
  };
  const std::int64_t column = start(whole_columns, columns), row = start(whole_rows, rows);
  transpose_elements<T>(from + column * from_step, from_step, to + column * unit, to_step,
                        whole_rows, columns - column);
  transpose_elements<T>(from + row * unit, from_step, to + row * to_step, to_step, rows - row,
                        columns);
}

}  // namespace

void transpose(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
               std::int64_t rows, std::int64_t columns, std::int64_t unit) noexcept {
  switch (unit) {
    case 1:
      return transpose_of<std::uint8_t>(from, from_step, to, to_step, rows, columns);
    case 2:
      return transpose_of<std::uint16_t>(from, from_step, to, to_step, rows, columns);
    case 4:
      return transpose_of<std::uint32_t>(from, from_step, to, to_step, rows, columns);
    default:
      return transpose_of<std::uint64_t>(from, from_step, to, to_step, rows, columns);
  }
}

}  // namespace tenon

#include "array/reversed.hpp"

#include <cstring>

namespace tenon {
namespace {

/// 16 bytes in the vector extension that GCC and Clang share.
template <class T>
struct SixteenBytes {
  typedef T Type __attribute__((vector_size(16)));
};
using Bytes = SixteenBytes<std::uint8_t>::Type;
using Shorts = SixteenBytes<std::uint16_t>::Type;
using Words = SixteenBytes<std::uint32_t>::Type;
using Longs = SixteenBytes<std::uint64_t>::Type;

[[gnu::always_inline]] inline Longs reversed(Longs v) {
  return __builtin_shufflevector(v, v, 1, 0);
}
[[gnu::always_inline]] inline Words reversed(Words v) {
  return __builtin_shufflevector(v, v, 3, 2, 1, 0);
}
/// In steps that are instructions of SSE2: within either half, then these.
[[gnu::always_inline]] inline Shorts reversed(Shorts v) {
  v = __builtin_shufflevector(v, v, 3, 2, 1, 0, 4, 5, 6, 7);
  v = __builtin_shufflevector(v, v, 0, 1, 2, 3, 7, 6, 5, 4);
  return reinterpret_cast<Shorts>(reversed(reinterpret_cast<Longs>(v)));
}
[[gnu::always_inline]] inline Bytes reversed(Bytes v) {
  const Shorts pairs = reversed(reinterpret_cast<Shorts>(v));
  return reinterpret_cast<Bytes>(pairs << 8 | pairs >> 8);
}

template <class T>
constexpr std::int64_t in_vector = 16 / static_cast<std::int64_t>(sizeof(T));

/// The in_vector elements up to `last`.
template <class T>
[[gnu::always_inline]] inline void copy_vector(const std::byte* last, std::byte* to) {
  typename SixteenBytes<T>::Type v;
  std::memcpy(&v, last - (in_vector<T> - 1) * static_cast<std::int64_t>(sizeof(T)), sizeof v);
  v = reversed(v);
  std::memcpy(to, &v, sizeof v);
}

/// At least in_vector elements; the last vector may repeat some.
template <class T>
[[gnu::always_inline]] inline void copy_long(const std::byte* from, std::byte* to,
                                             std::int64_t count) {
  constexpr std::int64_t unit = sizeof(T);
  std::int64_t i = 0;
  for (; i + in_vector<T> <= count; i += in_vector<T>)
    copy_vector<T>(from - i * unit, to + i * unit);
  if (i == count) return;
  i = count - in_vector<T>;
  copy_vector<T>(from - i * unit, to + i * unit);
}

template <class T>
void copy_rows(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
               std::int64_t rows, std::int64_t count) {
  constexpr std::int64_t unit = sizeof(T), at_once = 64;
  if (count >= in_vector<T>) {
    for (std::int64_t r = 0; r < rows; ++r) {
      copy_long<T>(from + r * from_step, to + r * to_step, count);
    }
    return;
  }
  // Column by column, of as few rows as stay in cache: a loop for each row takes longer to begin than to run.
  for (std::int64_t r = 0; r < rows; r += at_once) {
    const std::int64_t end = rows - r < at_once ? rows : r + at_once;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::byte* const x = from - i * unit;
      std::byte* const y = to + i * unit;
      for (std::int64_t row = r; row < end; ++row) {
        std::memcpy(y + row * to_step, x + row * from_step, sizeof(T));
      }
    }
  }
}

}  // namespace

void copy_reversed_rows(const std::byte* from, std::int64_t from_step, std::byte* to,
                        std::int64_t to_step, std::int64_t rows, std::int64_t count,
                        std::int64_t unit) noexcept {
  switch (unit) {
    case 1:
      return copy_rows<std::uint8_t>(from, from_step, to, to_step, rows, count);
    case 2:
      return copy_rows<std::uint16_t>(from, from_step, to, to_step, rows, count);
    case 4:
      return copy_rows<std::uint32_t>(from, from_step, to, to_step, rows, count);
    default:
      return copy_rows<std::uint64_t>(from, from_step, to, to_step, rows, count);
  }
}

void copy_reversed(const std::byte* from, std::byte* to, std::int64_t count,
                   std::int64_t unit) noexcept {
  copy_reversed_rows(from, 0, to, 0, 1, count, unit);
}

}  // namespace tenon

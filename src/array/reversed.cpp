#include "array/reversed.hpp"

#include <cstring>
#include <utility>

namespace tenon {
namespace {

/// 16 bytes in the vector extension that GCC and Clang share.
template <class T>
struct SixteenBytes {
  typedef T Type __attribute__((vector_size(16)));
};

template <class Vector, std::size_t... i>
[[gnu::always_inline]] inline Vector reversed(Vector v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, (sizeof...(i) - 1 - i)...);
}

template <class T>
void copy_reversed_elements(const std::byte* from, std::byte* to, std::int64_t count) {
  using Vector = typename SixteenBytes<T>::Type;
  constexpr std::int64_t unit = sizeof(T), lanes = 16 / unit;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Vector v;
    std::memcpy(&v, from - (i + lanes - 1) * unit, sizeof v);
    v = reversed(v, std::make_index_sequence<static_cast<std::size_t>(lanes)>());
    std::memcpy(to + i * unit, &v, sizeof v);
  }
  for (; i < count; ++i) std::memcpy(to + i * unit, from - i * unit, sizeof(T));
}

}  // namespace

void copy_reversed(const std::byte* from, std::byte* to, std::int64_t count,
                   std::int64_t unit) noexcept {
  switch (unit) {
    case 1:
      return copy_reversed_elements<std::uint8_t>(from, to, count);
    case 2:
      return copy_reversed_elements<std::uint16_t>(from, to, count);
    case 4:
      return copy_reversed_elements<std::uint32_t>(from, to, count);
    default:
      return copy_reversed_elements<std::uint64_t>(from, to, count);
  }
}

}  // namespace tenon

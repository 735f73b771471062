#pragma once

#include <cstdint>

namespace tenon::cuda {

/// An address in device memory. `global<T>()` makes a pointer of it, in kernels only.
using Address = std::uint64_t;

/// What a thread loads at once: 8 or 16 bytes, aligned to their size.
struct alignas(8) Words2 {
  std::uint32_t at[2];
};
struct alignas(16) Words4 {
  std::uint32_t at[4];
};

}  // namespace tenon::cuda

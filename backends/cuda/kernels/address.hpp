#pragma once

#include <cstdint>

namespace tenon::cuda {

/// An address in device memory. `global<T>()` makes a pointer of it, in kernels only.
using Address = std::uint64_t;

}  // namespace tenon::cuda

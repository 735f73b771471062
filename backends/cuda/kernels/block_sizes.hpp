// How many threads work on what part of a product: kernels and the host agree on it.
#pragma once

#include <cstdint>

namespace tenon::cuda {

inline constexpr std::uint32_t gemv_rows = 8;  ///< rows that a warp multiplies at once
inline constexpr std::uint32_t gemv_threads = 128;
inline constexpr std::uint32_t tile_rows = 64, tile_columns = 64, tile_depth = 32;
inline constexpr std::uint32_t tile_threads = 256;

inline constexpr std::uint32_t attention_threads = 128;
inline constexpr std::uint32_t max_head = 256;  ///< elements of a query, and of a value

}  // namespace tenon::cuda

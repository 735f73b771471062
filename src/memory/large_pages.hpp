#pragma once

#include <cstddef>

namespace tenon {

/// The size of a large page on the systems that have them.
inline constexpr std::size_t large_page_bytes = std::size_t{2} << 20;

/// Asks the system to back this memory with large pages at the first access. A hint, without effect
/// where it is refused.
void prefer_large_pages(void* begin, std::size_t size_bytes) noexcept;

/// The same for memory in use: the system moves accessed pages into large pages now, which also
/// allocates the memory between them. Takes about as long as copying the bytes.
void move_to_large_pages(void* begin, std::size_t size_bytes) noexcept;

}  // namespace tenon

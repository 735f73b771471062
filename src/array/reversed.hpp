// Copies in the opposite order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon {

/// `count` elements of 1, 2, 4 or 8 bytes, side by side: `from` is the address of the last one, which becomes the first of
/// `to`. No alignment is asked for. They do not overlap.
void copy_reversed(const std::byte* from, std::byte* to, std::int64_t count,
                   std::int64_t unit) noexcept;

/// The same of `rows` rows, `from_step` and `to_step` bytes apart.
void copy_reversed_rows(const std::byte* from, std::int64_t from_step, std::byte* to,
                        std::int64_t to_step, std::int64_t rows, std::int64_t count,
                        std::int64_t unit) noexcept;

}  // namespace tenon

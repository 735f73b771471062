// Copies that turn rows into columns.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon {

/// Row i of `to`, `rows` of them `to_step` bytes apart, becomes column i of `from`, whose rows are
/// `from_step` bytes apart: elements of 1, 2, 4 or 8 bytes, side by side within rows of either. No
/// alignment is asked for. `from` and `to` do not overlap.
void transpose(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
               std::int64_t rows, std::int64_t columns, std::int64_t unit) noexcept;

}  // namespace tenon

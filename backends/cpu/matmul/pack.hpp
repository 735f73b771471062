#pragma once

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {

/// Up to 16 rows as files store them.
struct PanelSource {
  const std::byte* rows;
  std::size_t row_bytes;
  int count;  ///< rows present; the panel's others become zeros
  std::int64_t inputs;
};

/// Interleave rows into one panel; bytes as in panel_layout.hpp.
void pack_plain_panel(DType dtype, const PanelSource& source, std::byte* panel) noexcept;
void pack_block_panel(DType dtype, const PanelSource& source, std::byte* panel) noexcept;

/// One row of a panel as f32.
void unpack_plain_row(DType dtype, const std::byte* panel, int lane, std::int64_t inputs,
                      float* out) noexcept;
void unpack_block_row(DType dtype, const std::byte* panel, int lane, std::int64_t inputs,
                      float* out) noexcept;

}  // namespace tenon::cpu

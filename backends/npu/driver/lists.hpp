// Attributes of windows: lists that may be empty.
#pragma once

#include "graph.hpp"

#include <tenon/op.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::npu {

inline std::int64_t value_or(const IntList& list, std::size_t index, std::int64_t otherwise) {
  return list.empty() ? otherwise : list[index];
}

/// Rows above the image and columns left of it: lists are [top, bottom, left, right] or [h, w].
inline void set_padding(Window& window, const IntList& padding) {
  window.top = value_or(padding, 0, 0);
  window.left = value_or(padding, padding.size() == 4 ? 2 : 1, 0);
}

}  // namespace tenon::npu

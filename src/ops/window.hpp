// A window that slides over the two last axes of an image: convolutions and pools share its
// attributes, checks and arithmetic.
#pragma once

#include <tenon/attributes.hpp>
#include <tenon/op.hpp>
#include <tenon/shape.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tenon {

/// One axis of a window. Tap i of output o is input o * stride + i * dilation - before.
struct WindowAxis {
  std::int64_t taps = 1;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t before = 0;  ///< padding
  std::int64_t after = 0;

  /// Input elements from the first tap to the last, both counted.
  std::int64_t extent() const { return checked_add(checked_multiply(taps - 1, dilation), 1); }
  std::int64_t input(std::int64_t output, std::int64_t tap) const noexcept {
    return output * stride + tap * dilation - before;
  }

  struct Taps {
    std::int64_t begin;
    std::int64_t end;
  };
  /// The taps of an output that fall on the input's `size` elements, not on padding.
  Taps taps_inside(std::int64_t output, std::int64_t size) const noexcept {
    const std::int64_t first = input(output, 0);
    const std::int64_t begin = first >= 0 ? 0 : (-first - 1) / dilation + 1;
    const std::int64_t end = first >= size ? 0 : std::min(taps, (size - 1 - first) / dilation + 1);
    return {begin, std::max(begin, end)};
  }
};

using Window = std::array<WindowAxis, 2>;  ///< rows, columns

/// Two values (rows, columns), or the default where the list is empty.
inline std::array<std::int64_t, 2> pair_of(std::string_view op, std::string_view attribute,
                                           const IntList& values, std::int64_t absent,
                                           std::int64_t least) {
  if (values.empty()) return {absent, absent};
  if (values.size() != 2 || values[0] < least || values[1] < least) {
    fail(Errc::bad_attribute, op,
         fmt::format("{} [{}] needs two values of at least {}", attribute,
                     fmt::join(values.span(), ", "), least));
  }
  return {values[0], values[1]};
}

/// Reads the attributes; Errc::bad_attribute for lists of another length, a stride or dilation
/// below 1, and a negative padding.
inline Window read_window_lists(std::string_view op, std::array<std::int64_t, 2> taps,
                                const IntList& stride, const IntList& padding,
                                const IntList& dilation,
                                std::array<std::int64_t, 2> default_stride = {1, 1}) {
  const auto strides = stride.empty() ? default_stride : pair_of(op, "stride", stride, 1, 1);
  const auto dilations = pair_of(op, "dilation", dilation, 1, 1);
  std::array<std::int64_t, 4> pads{};  // top, bottom, left, right
  if (padding.size() == 4) {
    for (std::size_t i = 0; i < 4; ++i) pads[i] = padding[i];
  } else {
    const auto both = pair_of(op, "padding", padding, 0, 0);
    pads = {both[0], both[0], both[1], both[1]};
  }
  Window window;
  for (std::size_t i = 0; i < 2; ++i) {
    WindowAxis& axis = window[i];
    axis = {taps[i], strides[i], dilations[i], pads[2 * i], pads[2 * i + 1]};
    if (axis.before < 0 || axis.after < 0) {
      fail(Errc::bad_attribute, op,
           fmt::format("padding {} or {} is negative", axis.before, axis.after));
    }
  }
  if (is_static(taps[0]) && is_static(taps[1])) checked_multiply(taps[0], taps[1]);
  return window;
}

/// As above, and Errc::bad_attribute for a padding that hides a whole window.
inline Window read_window(std::string_view op, std::array<std::int64_t, 2> taps,
                          const IntList& stride, const IntList& padding, const IntList& dilation,
                          std::array<std::int64_t, 2> default_stride = {1, 1}) {
  const Window window = read_window_lists(op, taps, stride, padding, dilation, default_stride);
  for (const WindowAxis& axis : window) {
    if (!is_static(axis.taps)) continue;  // a symbolic kernel: checked again once it is known
    if (axis.before >= axis.extent() || axis.after >= axis.extent()) {
      fail(Errc::bad_attribute, op,
           fmt::format("padding {} or {} is not smaller than the window's extent {}", axis.before,
                       axis.after, axis.extent()));
    }
  }
  return window;
}

/// Output size along one axis; Errc::bad_shape where the window does not fit into the padded input.
inline std::int64_t window_outputs(std::string_view op, const WindowAxis& axis, std::int64_t size,
                                   const std::string& operands) {
  if (!is_static(axis.taps)) return unknown_dim;
  const std::int64_t padding = checked_add(axis.before, axis.after);
  if (!is_static(size)) {
    return axis.stride == 1 && padding == axis.extent() - 1 ? size : unknown_dim;
  }
  const std::int64_t slack = checked_add(size, padding) - axis.extent();
  if (slack < 0) {
    fail(Errc::bad_shape, op,
         fmt::format("a window of extent {} exceeds {} elements with {} of padding: {}",
                     axis.extent(), size, padding, operands));
  }
  return slack / axis.stride + 1;
}

}  // namespace tenon

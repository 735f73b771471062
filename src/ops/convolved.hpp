// The types of convolutions: what those of floating and of integer operands share.
#pragma once

#include "ops/rows.hpp"
#include "ops/window.hpp"

#include <tenon/shape.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon {

/// `attributes` has stride, padding and dilation.
template <class Op>
Window convolution_window(std::string_view op, const Op& attributes, const Shape& w) {
  return read_window(op, {w[2], w[3]}, attributes.stride, attributes.padding, attributes.dilation);
}

/// Groups that divide the channels (Errc::bad_attribute), and as many channels in `w` as in a group
/// of `x` (Errc::shape_mismatch).
inline void check_channels(std::string_view op, std::int64_t groups, const Shape& x, const Shape& w,
                           const std::string& operands) {
  const bool divides = groups >= 1 && (!is_static(x[1]) || x[1] % groups == 0) &&
                       (!is_static(w[0]) || w[0] % groups == 0);
  if (!divides) {
    fail(Errc::bad_attribute, op,
         fmt::format("{} groups do not divide the channels: {}", groups, operands));
  }
  if (is_static(x[1]) && !sizes_agree(x[1] / groups, w[1])) {
    fail(Errc::shape_mismatch, op,
         fmt::format("w has {} channels a group, x has {} / {}: {}", w[1], x[1], groups, operands));
  }
}

/// The result's axes; its channels are `channels`, with the tag of x's where they have none.
/// Errors: those of `read_window` and `window_outputs`; Errc::bad_shape for a kernel without
/// elements, Errc::shape_mismatch for two axes with one tag.
template <class Op>
Shape convolved(std::string_view op, const Op& attributes, const Shape& x, const Shape& w,
                Axis channels, const std::string& operands) {
  if (w[2] == 0 || w[3] == 0) {
    fail(Errc::bad_shape, op, fmt::format("the kernel has no elements: {}", operands));
  }
  const Window window = convolution_window(op, attributes, w);
  if (channels.tag.empty()) channels.tag = x.tag(1);
  const std::vector<Axis> axes{x.axis_at(0),
                               channels,
                               {x.tag(2), window_outputs(op, window[0], x[2], operands)},
                               {x.tag(3), window_outputs(op, window[1], x[3], operands)}};
  require_distinct_tags(op, axes, operands);
  return {std::span<const Axis>(axes), x.dtype()};
}

}  // namespace tenon

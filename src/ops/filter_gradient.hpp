// What gradients and forms along other axes of convolutions share.
#pragma once

#include "ops/window.hpp"

#include <tenon/attributes.hpp>
#include <tenon/tensor.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace tenon {

/// Errc::unsupported where axes of `shape` from `first` on are not known.
void require_known_sizes(std::string_view op, const Shape& shape, int first);

/// The gradient of a filter [O, C / groups, KH, KW] that slides over `image` [N, C, H, W], where
/// `outputs` [N, O, H', W'] is the gradient of what it gives: conv2d_filter_backward, or sums of
/// products for each tap where every channel is a group. Sizes but those of the filter may be
/// symbolic. The last `unused` rows and columns of the padded image begin no window's stride: the
/// windows before them are as many as `outputs` has.
Tensor filter_gradient(std::string_view op, const Tensor& image, const Tensor& outputs,
                       const Window& window, std::int64_t groups,
                       std::array<std::int64_t, 2> unused = {});

/// The window of a convolution along three axes: that along the first, and lists for the others.
struct Volume {
  WindowAxis depth;
  IntList plane_stride, plane_padding, plane_dilation;
};
/// Lists of three values, or empty. Errc::bad_attribute for another length and for values out of
/// range along the first axis.
Volume read_volume(std::string_view op, std::int64_t taps, const IntList& stride,
                   const IntList& padding, const IntList& dilation);

}  // namespace tenon

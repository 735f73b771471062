// Numpy broadcasting: shapes are aligned at the innermost axis, and size 1 broadcasts.
#pragma once

#include <tenon/host_view.hpp>
#include <tenon/shape.hpp>

#include <span>
#include <string_view>

namespace tenon {

/// The common shape of the inputs, with this dtype. An axis gets the tag that any input gives it.
/// Two symbolic sizes give unknown_dim, unless they are the same symbol. Errc::shape_mismatch,
/// naming all inputs, for sizes that differ, two tags on one axis, and one tag on two axes.
Shape broadcast_shapes(std::string_view op, std::span<const Shape> in, DType dtype);

/// `in` broadcast to the sizes of `out`: repeated axes have stride 0.
HostView broadcast_view(const HostView& in, const Shape& out);

}  // namespace tenon

// Numpy broadcasting: sizes are aligned at the innermost axis, and 1 stretches.
#pragma once

#include <tenon/host_view.hpp>
#include <tenon/shape.hpp>

#include <span>
#include <string_view>

namespace tenon {

/// The common shape of the inputs, with this dtype. An axis takes the tag that any input gives it.
/// Errc::shape_mismatch names every input, for sizes that differ, for two tags on one axis and for
/// one tag on two axes. Where two sizes are not known yet, the result is not known either, unless
/// it is the same symbol.
Shape broadcast_shapes(std::string_view op, std::span<const Shape> in, DType dtype);

/// `in` stretched to the sizes of `out`: axes that repeat step by 0.
HostView broadcast_view(const HostView& in, const Shape& out);

}  // namespace tenon

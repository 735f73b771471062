// Zeros in the sizes of a type of which no value is at hand. Private to the core.
#pragma once

#include "graph/graph_impl.hpp"

#include <cstdint>
#include <source_location>

namespace tenon::detail {

/// Whether each size of the shape is static or that of an axis of an input or constant of the
/// function, among its nodes up to `last`.
bool has_known_sizes(const GraphFunction& function, const Node* last, const Shape& shape);

/// Zeros [count, sizes of shape] of its dtype, in the current function, in which `beside` is and the
/// sizes are known.
Tensor zeros_of_shape(const Tensor& beside, const Shape& shape, std::int64_t count,
                      const std::source_location& where);

/// A value of the shape's sizes and of any elements, for ops of which only sizes count; none where a
/// size is not that of an axis of an input or constant of the current function or one around it.
Tensor of_sizes(const Tensor& beside, const Shape& shape, const std::source_location& where);

}  // namespace tenon::detail

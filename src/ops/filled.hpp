// Constants in the sizes of another value, which may be symbolic: for gradients.
#pragma once

#include <tenon/ops/axes.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/where.hpp>
#include <tenon/tensor.hpp>

#include <source_location>

namespace tenon {

/// `value` in the sizes of x, without memory of its own where they are known.
inline Tensor filled_like(const Tensor& x, double value, DType dtype,
                          const std::source_location& where = std::source_location::current()) {
  const Full op{.value = value, .dims = {}, .dtype = dtype};
  const Tensor scalar = record_beside(x, op_def<Full>(), &op, where);
  if (x.shape(where).is_static()) return broadcast_to(scalar, x.shape(where).dims(), where);
  Tensor all;  // true everywhere: broadcast_to takes no symbols
  for (int axis = 0; axis < x.rank(where); ++axis) {
    const Tensor index = iota(x, axis, i64, 0, 1, where).with_tags({});
    const Tensor column = eq(index, index, where);
    all = all.is_empty() ? column : logical_and(unsqueeze(all, -1, {}, where), column, where);
  }
  return tenon::where(all, scalar, scalar, where);
}
inline Tensor filled_like(const Tensor& x, double value) {
  return filled_like(x, value, x.dtype());
}

}  // namespace tenon

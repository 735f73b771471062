// Constants in the sizes of another value, which may be symbolic: for gradients.
#pragma once

#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/tensor.hpp>

#include <source_location>

namespace tenon {

/// `value` in the sizes of x, without memory of its own.
inline Tensor filled_like(const Tensor& x, double value, DType dtype,
                          const std::source_location& where = std::source_location::current()) {
  const Full op{.value = value, .dims = {}, .dtype = dtype};
  return broadcast_like(record_beside(x, op_def<Full>(), &op, where), x, where);
}
inline Tensor filled_like(const Tensor& x, double value) {
  return filled_like(x, value, x.dtype());
}

/// The size of an axis as a scalar: of one that is not known, a sum.
inline Tensor size_along(const Tensor& x, std::int64_t axis, DType dtype) {
  const std::int64_t size = x.dim(axis);
  if (is_static(size)) {
    const Full op{.value = static_cast<double>(size), .dims = {}, .dtype = dtype};
    return record_beside(x, op_def<Full>(), &op, std::source_location::current());
  }
  return cast(sum(filled_like(iota(x, axis, i64), 1)), dtype);
}

}  // namespace tenon

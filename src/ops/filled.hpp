// Constants in the sizes of another value, which may be symbolic: for gradients.
#pragma once

#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/tensor.hpp>

#include <source_location>

namespace tenon {

/// `value` in the sizes of x, without memory of its own.
inline Tensor filled_like(const Tensor& x, double value, DType dtype,
                          const std::source_location& where = std::source_location::current()) {
  const Full op{.value = value, .dims = {}, .dtype = dtype};
  return broadcast_to(record_beside(x, op_def<Full>(), &op, where), x.shape(where).dims(), where);
}
inline Tensor filled_like(const Tensor& x, double value) {
  return filled_like(x, value, x.dtype());
}

}  // namespace tenon

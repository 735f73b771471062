#include "nn/steps.hpp"

#include <tenon/ops.hpp>

namespace tenon::nn {

Tensor of_type(const Tensor& x, DType type, const std::source_location& where) {
  return x.dtype() == type ? x : cast(x, type, where);
}

Tensor last_steps(const Tensor& x, std::int64_t count, const Tensor& lengths,
                  const std::source_location& where) {
  if (lengths.is_empty()) return slice(x, 1, -count, to_end, 1, where);
  const std::int64_t rows = lengths.dim(0, where);
  const Tensor first = split_axis(lengths.with_tags({}), 0, {rows, 1, 1}, where);
  const Tensor steps = unsqueeze(iota(count, i32, 0, 1, where), 1, {}, where);
  return take_along(
      x, broadcast_to(add(first, steps, where), {rows, count, x.dim(2, where)}, where), 1, where);
}

}  // namespace tenon::nn

#include <tenon/nn/pooling.hpp>
#include <tenon/ops.hpp>

namespace tenon::nn {

Tensor mean_pool(const Tensor& x, const Tensor& mask, const std::source_location& where) {
  const Tensor weights = unsqueeze(mask, 2, {}, where);  // [B, S, 1]
  const Tensor total = sum(mul(x, weights, where), {1}, false, where);
  const Tensor count =
      maximum(sum(weights, {1}, false, where), scalar_like(weights, 1e-9, where), where);
  return div(total, count, where);
}

Tensor first_pool(const Tensor& x, const std::source_location& where) {
  return squeeze(slice(x, 1, 0, 1, 1, where), 1, where);
}

Tensor last_pool(const Tensor& x, const Tensor& mask, const std::source_location& where) {
  const Tensor count = cast(sum(mask, {1}, true, where), i32, where);
  const Tensor index = unsqueeze(sub(count, scalar_like(count, 1, where), where), 2, {}, where);
  const Tensor rows = broadcast_to(index, {mask.dim(0, where), 1, x.dim(2, where)}, where);
  return squeeze(take_along(x, rows, 1, where), 1, where);  // of [B, 1, D]
}

Tensor normalize(const Tensor& x, double eps, const std::source_location& where) {
  const Tensor length = sqrt(sum(square(x, where), {-1}, true, where), where);
  return div(x, maximum(length, scalar_like(x, eps, where), where), where);
}

}  // namespace tenon::nn

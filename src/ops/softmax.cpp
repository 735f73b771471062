#include "ops/builder.hpp"
#include "ops/exp_sum.hpp"
#include "ops/gradient.hpp"
#include "ops/support.hpp"

#include <tenon/ops/softmax.hpp>

#include <cmath>

namespace tenon {

TENON_DEFINE_OP(softmax, Softmax);

Shape Softmax::infer(std::span<const Shape> in) const {
  checked_axis(name, axis, in[0]);  // C1
  require_floating(name, in[0]);    // C2
  return in[0];
}

void Softmax::reference(std::span<const HostView> in, const HostView& out) const {
  const std::int64_t n = in[0].shape[static_cast<int>(axis)];
  for_each_lane(in[0], out, static_cast<int>(axis), [n](Lane x, Lane y) {
    const ExpSum all(x, n);
    for (std::int64_t i = 0; i < n; ++i) y.store(i, std::exp(x.load(i) - all.peak) / all.sum);
  });
}

std::vector<Tensor> Softmax::gradient(const Backward& at) const {
  const Tensor weighted = at.upstream * at.output;
  return {weighted - at.output * sum(weighted, axis, true)};
}

Tensor softmax(const Tensor& x, const AxisRef& axis, const std::source_location& where) {
  return record(Softmax{.axis = axis_of(x, axis, Softmax::name, where)}, {x}, where);
}

}  // namespace tenon

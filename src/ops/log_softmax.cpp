#include "ops/builder.hpp"
#include "ops/exp_sum.hpp"
#include "ops/gradient.hpp"
#include "ops/support.hpp"

#include <tenon/ops/log_softmax.hpp>
#include <tenon/ops/unary.hpp>

#include <cmath>

namespace tenon {

TENON_DEFINE_OP(log_softmax, LogSoftmax);

Shape LogSoftmax::infer(std::span<const Shape> in) const {
  checked_axis(name, axis, in[0]);  // C1
  require_floating(name, in[0]);    // C2
  return in[0];
}

void LogSoftmax::reference(std::span<const HostView> in, const HostView& out) const {
  const std::int64_t n = in[0].shape[static_cast<int>(axis)];
  for_each_lane(in[0], out, static_cast<int>(axis), [n](Lane x, Lane y) {
    const ExpSum all(x, n);
    const double shift = std::log(all.sum);
    for (std::int64_t i = 0; i < n; ++i) y.store(i, x.load(i) - all.peak - shift);
  });
}

std::vector<Tensor> LogSoftmax::gradient(const Backward& at) const {
  return {at.upstream - exp(at.output) * sum(at.upstream, axis, true)};
}

Tensor log_softmax(const Tensor& x, const AxisRef& axis, const std::source_location& where) {
  return record(LogSoftmax{.axis = axis_of(x, axis, LogSoftmax::name, where)}, {x}, where);
}

}  // namespace tenon

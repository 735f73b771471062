#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/pointwise.hpp"
#include "ops/support.hpp"

#include <tenon/ops/cumsum.hpp>
#include <tenon/ops/slice.hpp>

namespace tenon {

TENON_DEFINE_OP(cumsum, Cumsum);

Shape Cumsum::infer(std::span<const Shape> in) const {
  checked_axis(name, axis, in[0]);  // C1
  require_computed(name, in[0]);    // C2
  return is_floating(in[0].dtype()) ? in[0] : in[0].with_dtype(i64);
}

void Cumsum::reference(std::span<const HostView> in, const HostView& out) const {
  const DType from = in[0].shape.dtype();
  const std::int64_t count = in[0].shape[static_cast<int>(axis)];
  for_each_lane(in[0], out, static_cast<int>(axis), [&](Lane x, Lane y) {
    if (is_floating(from)) {
      double sum = 0;
      for (std::int64_t i = 0; i < count; ++i) y.store(i, sum += x.load(i));
    } else {
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        sum = wrapping_add(sum, load_as_int64(from, x.base + i * x.step));
        store_int64(i64, y.base + i * y.step, sum);
      }
    }
  });
}

std::vector<Tensor> Cumsum::gradient(const Backward& at) const {
  // Sums from the end: sum - cumsum + g would cancel.
  return {flip(tenon::cumsum(flip(at.upstream, axis), axis), axis)};
}

Tensor cumsum(const Tensor& x, const AxisRef& axis, const std::source_location& where) {
  return record(Cumsum{.axis = axis_of(x, axis, Cumsum::name, where)}, {x}, where);
}

}  // namespace tenon

#include "array/size_text.hpp"
#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/support.hpp"

#include <tenon/ops/gather.hpp>
#include <tenon/ops/topk.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(topk, Topk);

Shape Topk::infer(std::span<const Shape> in) const {
  const int along = checked_axis(name, axis, in[0]);  // C1
  require_number(name, in[0]);                        // C2
  const std::int64_t size = in[0][along];
  if (k < 0 || (is_static(size) && k > size)) {  // C3
    fail(Errc::out_of_range, name,
         fmt::format("k = {} of axis {} of {}", size_text(k), axis, to_string(in[0])));
  }
  if (size > std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1) {  // C4
    fail(Errc::limit_exceeded, name,
         fmt::format("axis {} of {} needs i64 indices", axis, to_string(in[0])));
  }
  return in[0].with_dtype(i32).with_dim(along, k);
}

namespace {

/// Puts the indices of the k largest of `values` first, in order.
template <class Value>
void rank_largest(const std::vector<Value>& values, std::vector<std::int64_t>& order,
                  std::int64_t k) {
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::partial_sort(order.begin(), order.begin() + k, order.end(),
                    [&](std::int64_t a, std::int64_t b) {
                      const Value x = values[static_cast<std::size_t>(a)],
                                  y = values[static_cast<std::size_t>(b)];
                      if constexpr (std::is_floating_point_v<Value>) {
                        if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
                      }
                      return x > y || (!(y > x) && a < b);
                    });
}

}  // namespace

void Topk::reference(std::span<const HostView> in, const HostView& out) const {
  const auto along = static_cast<int>(axis);
  const DType from = in[0].shape.dtype();
  if (k == 0) return;
  const auto count = static_cast<std::size_t>(in[0].shape[along]);
  std::vector<double> reals(count);
  std::vector<std::int64_t> integers(count), order(count);
  for_each_lane(in[0], out, along, [&](Lane x, Lane y) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte* element = x.base + static_cast<std::int64_t>(i) * x.step;
      if (is_integer(from)) {
        integers[i] = load_as_int64(from, element);
      } else {
        reals[i] = load_as_double(from, element);
      }
    }
    if (is_integer(from)) {
      rank_largest(integers, order, k);
    } else {
      rank_largest(reals, order, k);
    }
    for (std::int64_t i = 0; i < k; ++i) {
      store_int64(i32, y.base + i * y.step, order[static_cast<std::size_t>(i)]);
    }
  });
}

TopkResult topk(const Tensor& x, std::int64_t k, const AxisRef& axis,
                const std::source_location& where) {
  const int at = axis_of(x, axis, Topk::name, where);
  const Tensor indices = record(Topk{.k = k, .axis = at}, {x}, where);
  return {take_along(x, indices, at, where), indices};
}

}  // namespace tenon

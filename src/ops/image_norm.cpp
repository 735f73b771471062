#include "ops/builder.hpp"
#include "ops/filter_gradient.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/image_norm.hpp>
#include <tenon/ops/pool2d.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/unary.hpp>

#include <string_view>
#include <vector>

namespace tenon {
namespace {

void require_channels(std::string_view op, const Tensor& x, const std::source_location& where) {
  if (x.rank(where) >= 2) return;
  fail_at(where, Errc::shape_mismatch, op,
          fmt::format("x needs rank 2 or more, got {}", to_string(x.shape())));
}

}  // namespace

Tensor l2_normalize(const Tensor& x, const AxisList& axes, double eps,
                    const std::source_location& where) {
  const Tensor squares = sum(square(x, where), axes, true, where);
  const Tensor least = scalar_like(x, eps * eps, where);
  return div(x, sqrt(maximum(squares, least, where), where), where);
}

Tensor local_response_norm(const Tensor& x, std::int64_t size, double alpha, double beta, double k,
                           const std::source_location& where) {
  constexpr std::string_view name = "local_response_norm";
  require_channels(name, x, where);
  if (size < 1) fail_at(where, Errc::bad_attribute, name, fmt::format("a window of {}", size));
  const int rank = x.rank();
  if (rank > 3) located(where, name, [&] { require_known_sizes(name, x.shape(), 2); });
  Tensor squares = unsqueeze(square(x.with_tags({}), where), 1, {}, where);  // [N, 1, C, ...]
  if (rank == 2) squares = unsqueeze(squares, -1, {}, where);
  if (rank > 3) squares = merge_axes(squares, 3, -1, {}, where);
  Tensor means = avg_pool2d(squares,
                            {.kernel = {size, 1},
                             .stride = {1, 1},
                             .padding = {(size - 1) / 2, size / 2, 0, 0},
                             .count_include_pad = true},
                            where);
  means = squeeze(means, 1, where);  // [N, C, positions]
  if (rank == 2) means = squeeze(means, 2, where);
  for (int i = rank - 1; i > 2; --i) {
    means = split_axis(means, 2, {-1, x.dim(i)}, where);
  }
  const Tensor base =
      add(mul(means, scalar_like(x, alpha, where), where), scalar_like(x, k, where), where);
  return div(x, pow(base, scalar_like(x, beta, where), where), where);
}

}  // namespace tenon

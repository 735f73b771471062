#include "ops/builder.hpp"
#include "ops/gradient.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/batch_norm.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/unary.hpp>

#include <array>
#include <cmath>
#include <string_view>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(batch_norm, BatchNorm);

namespace {

/// [C] as [C, 1, ...], so that it broadcasts along x's channels.
Tensor along_channels(std::string_view op, const Tensor& row, const Tensor& x,
                      const std::source_location& where) {
  const Shape& shape = row.shape(where);
  if (shape.rank() != 1 || !sizes_agree(shape[0], x.dim(1))) {
    fail_at(where, Errc::shape_mismatch, op,
            fmt::format("{} for the channels of {}", to_string(shape), to_string(x.shape())));
  }
  Tensor result = row;
  for (int i = 2; i < x.rank(); ++i) result = unsqueeze(result, -1, {}, where);
  return result;
}

}  // namespace

Shape BatchNorm::infer(std::span<const Shape> in) const {
  const Shape& x = in[0];
  require_floating(name, x);  // C1
  if (x.rank() < 2) {         // C2
    fail(Errc::shape_mismatch, name, fmt::format("x needs rank 2 or more, got {}", to_string(x)));
  }
  for (const Shape& row : in.subspan(1)) {
    if (row.rank() != 1 || row.dtype() != x.dtype() || !sizes_agree(row[0], x[1])) {
      fail(Errc::shape_mismatch, name,
           fmt::format("{} for the channels of {}", to_string(row), to_string(x)));
    }
  }
  if (!(eps >= 0) || !std::isfinite(eps)) {  // C3
    fail(Errc::bad_attribute, name, fmt::format("eps {}", eps));
  }
  return x;
}

void BatchNorm::reference(std::span<const HostView> in, const HostView& out) const {
  const DType dtype = out.shape.dtype();
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    const auto of_channel = [&](std::size_t i, double absent) {
      return i < in.size() ? load_as_double(dtype, in[i].at(std::array{index[1]})) : absent;
    };
    const double scale = of_channel(3, 1) / std::sqrt(of_channel(2, 1) + eps);
    const double centred = load_as_double(dtype, in[0].at(index)) - of_channel(1, 0);
    store_double(dtype, out.at(index), centred * scale + of_channel(4, 0));
  });
}

std::vector<Tensor> BatchNorm::gradient(const Backward& at) const {
  const auto compose = [&](std::span<const Tensor> in) {
    const auto along = [&](const Tensor& row) {
      return along_channels(name, row, in[0], std::source_location::current());
    };
    Tensor scale = rsqrt(in[2] + eps);
    if (in.size() > 3) scale = scale * in[3];
    const Tensor y = (in[0] - along(in[1])) * along(scale);
    return in.size() > 4 ? y + along(in[4]) : y;
  };
  return widened_gradient(
      at, [&](const Backward& wide) { return gradient_of_composition(wide, compose); });
}

Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight,
                  const Tensor& bias, double eps, const std::source_location& where) {
  const BatchNorm op{.eps = eps};
  if (weight.is_empty() && !bias.is_empty()) {
    fail_at(where, Errc::bad_argument, BatchNorm::name, "a bias without a weight");
  }
  if (weight.is_empty()) return record(op, {x, mean, variance}, where);
  if (bias.is_empty()) return record(op, {x, mean, variance, weight}, where);
  return record(op, {x, mean, variance, weight, bias}, where);
}

BatchNormTraining batch_norm_training(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                      double eps, const std::source_location& where) {
  constexpr std::string_view name = "batch_norm_training";
  if (x.rank(where) < 2) {
    fail_at(where, Errc::shape_mismatch, name,
            fmt::format("x needs rank 2 or more, got {}", to_string(x.shape())));
  }
  const DType dtype = x.dtype();
  const auto has_type = [&](const Tensor& y) { return y.is_empty() || y.dtype() == dtype; };
  if ((dtype == f16 || dtype == bf16) && has_type(weight) && has_type(bias)) {
    const auto wide = [&](const Tensor& y) { return y.is_empty() ? y : cast(y, f32, where); };
    const BatchNormTraining made =
        batch_norm_training(wide(x), wide(weight), wide(bias), eps, where);
    return {cast(made.y, dtype, where), cast(made.mean, dtype, where),
            cast(made.variance, dtype, where)};
  }
  std::vector<AxisRef> axes{0};
  for (int i = 2; i < x.rank(); ++i) axes.emplace_back(i);
  const AxisList others{std::span<const AxisRef>(axes)};
  const Tensor centre = mean(x, others, false, where);
  const Tensor centred = sub(x, along_channels(name, centre, x, where), where);
  const Tensor variance = mean(square(centred, where), others, false, where);
  Tensor scale = rsqrt(add(variance, scalar_like(variance, eps, where), where), where);
  if (!weight.is_empty()) scale = mul(scale, weight, where);
  Tensor y = mul(centred, along_channels(name, scale, x, where), where);
  if (!bias.is_empty()) y = add(y, along_channels(name, bias, x, where), where);
  return {y, centre, variance};
}

}  // namespace tenon

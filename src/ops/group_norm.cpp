#include "ops/builder.hpp"
#include "ops/gradient.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/group_norm.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/ops/reshape.hpp>
#include <tenon/ops/unary.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(group_norm, GroupNorm);

Shape GroupNorm::infer(std::span<const Shape> in) const {
  const Shape& x = in[0];
  require_floating(name, x);  // C1
  if (x.rank() < 2) {         // C2
    fail(Errc::shape_mismatch, name, fmt::format("x needs rank 2 or more, got {}", to_string(x)));
  }
  for (const Shape& weight : in.subspan(1)) {
    const bool is_good =
        weight.rank() == 1 && weight.dtype() == x.dtype() && sizes_agree(weight[0], x[1]);
    if (!is_good) {
      fail(Errc::shape_mismatch, name,
           fmt::format("weights {} for x {}", to_string(weight), to_string(x)));
    }
  }
  const bool divides = groups >= 1 && (!is_static(x[1]) || x[1] % groups == 0);
  if (!divides || !(eps >= 0) || !std::isfinite(eps)) {  // C3
    fail(Errc::bad_attribute, name,
         fmt::format("{} groups, eps {} for {}", groups, eps, to_string(x)));
  }
  return x;
}

void GroupNorm::reference(std::span<const HostView> in, const HostView& out) const {
  const Shape& x = in[0].shape;
  const DType dtype = x.dtype();
  const std::int64_t channels = x[1] / groups;
  const auto weight = [&](std::size_t i, std::int64_t channel, double absent) {
    return i < in.size() ? load_as_double(dtype, in[i].at(std::array{channel})) : absent;
  };
  for (std::int64_t n = 0; n < x[0]; ++n) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const Shape part = x.with_dim(0, 1).with_dim(1, channels);
      const auto for_each = [&](auto&& visit) {
        for_each_index(part, [&](std::span<const std::int64_t> index) {
          std::array<std::int64_t, max_rank> at{};
          std::ranges::copy(index, at.begin());
          at[0] = n;
          at[1] += group * channels;
          visit(std::span<const std::int64_t>(at.data(), index.size()));
        });
      };
      const auto count = static_cast<double>(part.elements());
      double sum = 0, squares = 0;
      for_each([&](auto at) { sum += load_as_double(dtype, in[0].at(at)); });
      const double mean = sum / count;
      for_each([&](auto at) {
        const double centred = load_as_double(dtype, in[0].at(at)) - mean;
        squares += centred * centred;
      });
      const double scale = 1.0 / std::sqrt(squares / count + eps);
      for_each([&](auto at) {
        const double value = (load_as_double(dtype, in[0].at(at)) - mean) * scale;
        store_double(dtype, out.at(at), value * weight(1, at[1], 1) + weight(2, at[1], 0));
      });
    }
  }
}

std::vector<Tensor> GroupNorm::gradient(const Backward& at) const {
  const int rank = at.inputs[0].rank();
  const auto along_channels = [&](Tensor row) {
    for (int i = 2; i < rank; ++i) row = unsqueeze(row, -1);
    return row;
  };
  const auto compose = [&](std::span<const Tensor> in) {
    const Tensor grouped = merge_axes(split_axis(in[0], 1, {groups, -1}), 2, -1);
    const Tensor centred = grouped - mean(grouped, {-1}, true);
    const Tensor variance = mean(square(centred), {-1}, true);
    Tensor y = centred * rsqrt(variance + eps);
    y = reshape_like(y, in[0]);
    if (in.size() > 1) y = y * along_channels(in[1]);
    if (in.size() > 2) y = y + along_channels(in[2]);
    return y;
  };
  return widened_gradient(
      at, [&](const Backward& wide) { return gradient_of_composition(wide, compose); });
}

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps, const std::source_location& where) {
  const GroupNorm op{.groups = groups, .eps = eps};
  if (weight.is_empty() && !bias.is_empty()) {
    fail_at(where, Errc::bad_argument, GroupNorm::name, "a bias without a weight");
  }
  if (weight.is_empty()) return record(op, {x}, where);
  if (bias.is_empty()) return record(op, {x, weight}, where);
  return record(op, {x, weight, bias}, where);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                     const std::source_location& where) {
  const Shape& shape = x.shape(where);
  if (shape.rank() < 2) {
    fail_at(where, Errc::shape_mismatch, "instance_norm",
            fmt::format("x needs rank 2 or more, got {}", to_string(shape)));
  }
  if (!is_static(shape[1])) {
    fail_at(where, Errc::unsupported, "instance_norm",
            fmt::format("the channels of {} are not known", to_string(shape)));
  }
  return group_norm(x, shape[1], weight, bias, eps, where);
}

}  // namespace tenon

#include "ops/checks.hpp"
#include "ops/gradient.hpp"
#include "ops/support.hpp"

#include <tenon/ops/norm.hpp>
#include <tenon/ops/unary.hpp>

#include <cmath>

namespace tenon {
namespace {

Shape infer_norm(std::string_view op, double eps, std::span<const Shape> in) {
  if (in[0].rank() == 0) {  // C1
    fail(Errc::bad_shape, op, fmt::format("{} has no axis to normalise", to_string(in[0])));
  }
  for (const Shape& shape : in) require_floating(op, shape);  // C2
  const Axis last = in[0].axis_at(in[0].rank() - 1);
  for (const Shape& shape : in.subspan(1)) {  // C3
    if (shape.rank() != 1 || !sizes_agree(shape[0], last.size) ||
        (!shape.tag(0).empty() && !last.tag.empty() && shape.tag(0) != last.tag)) {
      fail(Errc::shape_mismatch, op,
           fmt::format("{} does not fit the last axis of {}", to_string(shape), to_string(in[0])));
    }
  }
  if (!(eps >= 0)) fail(Errc::bad_attribute, op, fmt::format("eps is {}", eps));  // C4
  return in[0];
}

/// The only slice of a vector, or, for an input that is not there, nothing.
Lane parameter(std::span<const HostView> in, std::size_t i) {
  if (i >= in.size()) return {nullptr, 0, f32};
  return {in[i].data, in[i].strides[0], in[i].shape.dtype()};
}

/// Calls normalise(x, y, n) for each slice along the last axis, which has n elements.
template <class Normalise>
void for_each_row(const HostView& x, const HostView& y, Normalise&& normalise) {
  const int last = x.shape.rank() - 1;
  for_each_lane(x, y, last, [&](Lane row, Lane out) { normalise(row, out, x.shape[last]); });
}

}  // namespace

TENON_DEFINE_OP(layer_norm, LayerNorm);

Shape LayerNorm::infer(std::span<const Shape> in) const { return infer_norm(name, eps, in); }

void LayerNorm::reference(std::span<const HostView> in, const HostView& out) const {
  const Lane weight = parameter(in, 1), bias = parameter(in, 2);
  for_each_row(in[0], out, [&](Lane x, Lane y, std::int64_t n) {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x.load(i);
    const double mean = sum / static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) squares += (x.load(i) - mean) * (x.load(i) - mean);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (std::int64_t i = 0; i < n; ++i) {
      double value = (x.load(i) - mean) * scale;
      if (weight.base != nullptr) value *= weight.load(i);
      if (bias.base != nullptr) value += bias.load(i);
      y.store(i, value);
    }
  });
}

TENON_DEFINE_OP(rms_norm, RmsNorm);

Shape RmsNorm::infer(std::span<const Shape> in) const { return infer_norm(name, eps, in); }

void RmsNorm::reference(std::span<const HostView> in, const HostView& out) const {
  const Lane weight = parameter(in, 1);
  for_each_row(in[0], out, [&](Lane x, Lane y, std::int64_t n) {
    double squares = 0;
    for (std::int64_t i = 0; i < n; ++i) squares += x.load(i) * x.load(i);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (std::int64_t i = 0; i < n; ++i) {
      y.store(i, x.load(i) * scale * (weight.base != nullptr ? weight.load(i) : 1.0));
    }
  });
}

namespace {

/// The gradients of y = z * w + b, with z the normalised x and [D] the shape of w and b, but for
/// that of z, which becomes x's in `to_x(gradient of z)`.
template <class ToX>
std::vector<Tensor> norm_gradients(const Backward& at, const Tensor& z, ToX&& to_x) {
  const DType dtype = at.upstream.dtype();
  const bool scales = at.inputs.size() > 1;
  std::vector<Tensor> result;
  result.push_back(to_x(scales ? at.upstream * cast(at.inputs[1], dtype) : at.upstream));
  if (scales) {
    const Shape& w = at.inputs[1].shape();
    result.push_back(cast(sum_to(at.upstream * z, w), w.dtype()));
  }
  if (at.inputs.size() > 2) {
    const Shape& b = at.inputs[2].shape();
    result.push_back(cast(sum_to(at.upstream, b), b.dtype()));
  }
  return result;
}

}  // namespace

std::vector<Tensor> LayerNorm::gradient(const Backward& narrow) const {
  return widened_gradient(narrow, [&](const Backward& at) {
    const Tensor& x = at.inputs[0];
    const Tensor centred = x - mean(x, -1, true);
    const Tensor scale = rsqrt(mean(square(centred), -1, true) + eps);
    const Tensor z = centred * scale;
    return norm_gradients(at, z, [&](const Tensor& g) {
      return scale * (g - mean(g, -1, true) - z * mean(g * z, -1, true));
    });
  });
}

std::vector<Tensor> RmsNorm::gradient(const Backward& narrow) const {
  return widened_gradient(narrow, [&](const Backward& at) {
    const Tensor& x = at.inputs[0];
    const Tensor scale = rsqrt(mean(square(x), -1, true) + eps);
    const Tensor z = x * scale;
    return norm_gradients(at, z,
                          [&](const Tensor& g) { return scale * (g - z * mean(g * z, -1, true)); });
  });
}

Tensor layer_norm(const Tensor& x, double eps, const std::source_location& where) {
  return record(LayerNorm{.eps = eps}, {x}, where);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, double eps,
                  const std::source_location& where) {
  return record(LayerNorm{.eps = eps}, {x, weight}, where);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                  const std::source_location& where) {
  return record(LayerNorm{.eps = eps}, {x, weight, bias}, where);
}

Tensor rms_norm(const Tensor& x, double eps, const std::source_location& where) {
  return record(RmsNorm{.eps = eps}, {x}, where);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps,
                const std::source_location& where) {
  return record(RmsNorm{.eps = eps}, {x, weight}, where);
}

}  // namespace tenon

#include "ops/builder.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/glu.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

namespace tenon {
namespace {

Tensor halves_gated(const Tensor& x, const AxisRef& axis, Name activation, std::string_view op,
                    const std::source_location& where) {
  const int at = axis_of(x, axis, op, where);
  const std::int64_t size = x.shape(where)[at];
  if (!is_static(size) || size % 2 != 0) {
    fail_at(where, Errc::bad_argument, op,
            fmt::format("needs an axis of even size, got axis {} of {}", at,
                        to_string(x.shape(where))));
  }
  return glu(slice(x, at, 0, size / 2, 1, where), slice(x, at, size / 2, to_end, 1, where),
             activation, where);
}

}  // namespace

Tensor selu(const Tensor& x, const std::source_location& where) {
  // The constants of the paper's appendix, as ONNX and PyTorch have them.
  const Tensor scale = scalar_like(x, 1.0507009873554804934193349852946, where);
  return mul(elu(x, 1.6732632423543772848170429916717, where), scale, where);
}

Tensor celu(const Tensor& x, double alpha, const std::source_location& where) {
  if (!(alpha > 0)) {
    fail_at(where, Errc::bad_argument, "celu", fmt::format("alpha {} is not above 0", alpha));
  }
  if (alpha == 1.0) return elu(x, 1.0, where);
  const Tensor zero = scalar_like(x, 0, where), scale = scalar_like(x, alpha, where);
  const Tensor below = mul(elu(div(x, scale, where), 1.0, where), scale, where);
  return tenon::where(lt(x, zero, where), below, x, where);
}

Tensor prelu(const Tensor& x, const Tensor& slope, const std::source_location& where) {
  const Tensor above = gt(x, scalar_like(x, 0, where), where);  // at 0 the slope, as leaky_relu
  return tenon::where(above, x, mul(x, slope, where), where);
}

Tensor quick_gelu(const Tensor& x, const std::source_location& where) {
  return mul(x, sigmoid(mul(x, scalar_like(x, 1.702, where), where), where), where);
}

Tensor thresholded_relu(const Tensor& x, double alpha, const std::source_location& where) {
  const Tensor above = gt(x, scalar_like(x, alpha, where), where);
  return tenon::where(above, x, scalar_like(x, 0, where), where);
}

Tensor softsign(const Tensor& x, const std::source_location& where) {
  return div(x, add(abs(x, where), scalar_like(x, 1, where), where), where);
}

Tensor logsigmoid(const Tensor& x, const std::source_location& where) {
  return neg(softplus(neg(x, where), where), where);
}

Tensor tanhshrink(const Tensor& x, const std::source_location& where) {
  return sub(x, tanh(x, where), where);
}

Tensor softshrink(const Tensor& x, double lambda, const std::source_location& where) {
  const Tensor near = le(abs(x, where), scalar_like(x, lambda, where), where);
  const Tensor rest = sub(x, clamp(x, -lambda, lambda, where), where);
  return tenon::where(near, scalar_like(x, 0, where), rest, where);  // at lambda the slope is 0
}

Tensor hardshrink(const Tensor& x, double lambda, const std::source_location& where) {
  const Tensor near = le(abs(x, where), scalar_like(x, lambda, where), where);
  return tenon::where(near, scalar_like(x, 0, where), x, where);
}

Tensor swiglu(const Tensor& x, const AxisRef& axis, const std::source_location& where) {
  return halves_gated(x, axis, "silu", "swiglu", where);
}
Tensor geglu(const Tensor& x, const AxisRef& axis, const std::source_location& where) {
  return halves_gated(x, axis, "gelu", "geglu", where);
}
Tensor reglu(const Tensor& x, const AxisRef& axis, const std::source_location& where) {
  return halves_gated(x, axis, "relu", "reglu", where);
}

}  // namespace tenon

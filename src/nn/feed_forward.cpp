#include <tenon/error.hpp>
#include <tenon/nn/feed_forward.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/statistics.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

#include <limits>

#include <fmt/format.h>

namespace tenon::nn {

Tensor activate(const Tensor& x, Name activation, const std::source_location& where) {
  const std::string_view word = activation.text();
  if (word == "silu") return silu(x, where);
  if (word == "gelu") return gelu(x, where);
  if (word == "gelu_tanh") return gelu_tanh(x, where);
  if (word == "quick_gelu") return quick_gelu(x, where);
  if (word == "relu") return relu(x, where);
  if (word == "relu_squared") return square(relu(x, where), where);
  if (word == "sigmoid") return sigmoid(x, where);
  throw Error(
      Errc::bad_attribute, where,
      fmt::format(
          "no activation '{}'; there are silu, gelu, gelu_tanh, quick_gelu, relu, relu_squared, "
          "sigmoid",
          word));
}

Tensor xielu(const Tensor& x, const Xielu& options, const std::source_location& where) {
  const auto number = [&](double value) { return scalar_like(x, value, where); };
  const Tensor low = expm1(minimum(x, number(options.eps), where), where);
  const Tensor curved =
      tenon::where(gt(x, number(0), where), mul(square(x, where), number(options.positive), where),
                   mul(sub(low, x, where), number(options.negative), where), where);
  return add(curved, mul(x, number(options.beta), where), where);
}

Tensor above_cutoff(const Tensor& x, double cutoff, const std::source_location& where) {
  const Tensor deviation = standard_deviation(x, {-1}, 1, true, where);
  const Tensor edge =
      add(mean(x, {-1}, true, where), mul(deviation, scalar_like(x, cutoff, where), where), where);
  return relu(sub(x, edge, where), where);
}

Tensor gated(const Tensor& gate, const Tensor& up, Name activation,
             const std::source_location& where) {
  if (activation.text() != "swiglu_oai") return glu(gate, up, activation, where);
  constexpr double limit = 7;
  const Tensor open =
      quick_gelu(clamp(gate, -std::numeric_limits<double>::infinity(), limit, where), where);
  const Tensor bounded = clamp(up, -limit, limit, where);
  return mul(open, add(bounded, scalar_like(bounded, 1, where), where), where);
}

}  // namespace tenon::nn

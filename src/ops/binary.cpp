#include "graph/graph_impl.hpp"
#include "ops/broadcast.hpp"
#include "ops/checks.hpp"
#include "ops/gradient.hpp"
#include "ops/pointwise.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/unary.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace tenon {
namespace {

double propagate_nan(double a, double b, double chosen) noexcept {
  return std::isnan(a) ? a : std::isnan(b) ? b : chosen;
}

}  // namespace

template <class Op>
Shape BinaryOp<Op>::infer(std::span<const Shape> in) const {
  require_same_dtype(Op::name, in);                      // C1
  require_number(Op::name, in[0]);                       // C2
  return broadcast_shapes(Op::name, in, in[0].dtype());  // C3
}

template <class Op>
void BinaryOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView a = broadcast_view(in[0], out.shape), b = broadcast_view(in[1], out.shape);
  if (is_integer(out.shape.dtype())) {
    zip_integers(a, b, out, [](std::int64_t x, std::int64_t y) { return Op::of_integer(x, y); });
  } else {
    zip_reals(a, b, out, [](double x, double y) { return Op::of(x, y); });
  }
}

/// `partial_gradients(op, at)`, declared beside the formula, records them at the broadcast shape.
template <class Op>
std::vector<Tensor> BinaryOp<Op>::gradient(const Backward& at) const {
  const std::array<Tensor, 2> parts = partial_gradients(static_cast<const Op&>(*this), at);
  return {sum_to(parts[0], at.inputs[0].shape()), sum_to(parts[1], at.inputs[1].shape())};
}

/// Of minimum and maximum: equal operands share the gradient, as in PyTorch and JAX.
std::array<Tensor, 2> chosen_gradients(const Backward& at, const Tensor& first_is_chosen) {
  const Tensor &g = at.upstream, none = scalar_like(g, 0), half = g * 0.5;
  const Tensor is_tie = eq(at.inputs[0], at.inputs[1]);
  return {where(is_tie, half, where(first_is_chosen, g, none)),
          where(is_tie, half, where(first_is_chosen, none, g))};
}

/// After the formulas: the descriptor and the builder.
#define TENON_DEFINE_BINARY(id, Struct)                                            \
  template struct BinaryOp<Struct>;                                                \
  TENON_DEFINE_OP(id, Struct);                                                     \
  Tensor id(const Tensor& a, const Tensor& b, const std::source_location& where) { \
    return record(Struct{}, {a, b}, where);                                        \
  }                                                                                \
  static_assert(true, "lets the use end in a semicolon")

double Add::of(double a, double b) noexcept { return a + b; }
std::int64_t Add::of_integer(std::int64_t a, std::int64_t b) noexcept { return wrapping_add(a, b); }
std::array<Tensor, 2> partial_gradients(const Add&, const Backward& at) {
  return {at.upstream, at.upstream};
}
TENON_DEFINE_BINARY(add, Add);

double Sub::of(double a, double b) noexcept { return a - b; }
std::int64_t Sub::of_integer(std::int64_t a, std::int64_t b) noexcept {
  return wrapping_subtract(a, b);
}
std::array<Tensor, 2> partial_gradients(const Sub&, const Backward& at) {
  return {at.upstream, -at.upstream};
}
TENON_DEFINE_BINARY(sub, Sub);

double Mul::of(double a, double b) noexcept { return a * b; }
std::int64_t Mul::of_integer(std::int64_t a, std::int64_t b) noexcept {
  return wrapping_multiply(a, b);
}
std::array<Tensor, 2> partial_gradients(const Mul&, const Backward& at) {
  return {at.upstream * at.inputs[1], at.upstream * at.inputs[0]};
}
TENON_DEFINE_BINARY(mul, Mul);

double Div::of(double a, double b) noexcept { return a / b; }
std::int64_t Div::of_integer(std::int64_t a, std::int64_t b) noexcept {
  if (b == 0) return 0;
  return b == -1 ? wrapping_subtract(0, a) : a / b;  // the most negative value by -1 would trap
}
std::array<Tensor, 2> partial_gradients(const Div&, const Backward& at) {
  const Tensor first = at.upstream / at.inputs[1];
  return {first, -(first * at.output)};
}
TENON_DEFINE_BINARY(div, Div);

double Pow::of(double a, double b) noexcept { return std::pow(a, b); }
std::int64_t Pow::of_integer(std::int64_t a, std::int64_t b) noexcept {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  std::int64_t result = 1;
  for (; b > 0; b >>= 1, a = wrapping_multiply(a, a)) {
    if ((b & 1) != 0) result = wrapping_multiply(result, a);
  }
  return result;
}
namespace {

/// A number that was recorded as such: the 2 of x^2.
std::optional<double> recorded_number(const Tensor& x) {
  const Node* node = &GraphAccess::node(x);
  while (node->captured != nullptr) node = node->captured;
  if (node->kind != Node::Kind::op || node->op != &op_def<Full>() || node->shape.rank() != 0) {
    return std::nullopt;
  }
  return static_cast<const Full*>(node->attributes)->value;
}

/// The derivative of a^b by a.
Tensor slope_of_power(const Tensor& a, const Tensor& b, const Tensor& zero) {
  const std::optional<double> number = recorded_number(b);
  if (!number) return where(eq(b, zero), zero, b * pow(a, b - 1));  // 0 * 0^-1 is 0 here
  if (*number == 0) return zero;
  if (*number == 1) return scalar_like(a, 1);
  if (*number == 2) return 2 * a;
  return *number * pow(a, scalar_like(a, *number - 1));
}

}  // namespace

std::array<Tensor, 2> partial_gradients(const Pow&, const Backward& at) {
  const Tensor &a = at.inputs[0], &b = at.inputs[1], &g = at.upstream;
  const Tensor zero = scalar_like(g, 0);
  const Tensor slope = slope_of_power(a, b, zero);
  const Tensor is_constant = logical_and(eq(a, zero), ge(b, zero));  // 0^b; 0^-b falls to it
  const Tensor logarithm = where(is_constant, zero, log(a));
  return {g * slope, g * at.output * logarithm};
}
TENON_DEFINE_BINARY(pow, Pow);

double Minimum::of(double a, double b) noexcept { return propagate_nan(a, b, b < a ? b : a); }
std::int64_t Minimum::of_integer(std::int64_t a, std::int64_t b) noexcept { return std::min(a, b); }
std::array<Tensor, 2> partial_gradients(const Minimum&, const Backward& at) {
  return chosen_gradients(at, lt(at.inputs[0], at.inputs[1]));
}
TENON_DEFINE_BINARY(minimum, Minimum);

double Maximum::of(double a, double b) noexcept { return propagate_nan(a, b, a < b ? b : a); }
std::int64_t Maximum::of_integer(std::int64_t a, std::int64_t b) noexcept { return std::max(a, b); }
std::array<Tensor, 2> partial_gradients(const Maximum&, const Backward& at) {
  return chosen_gradients(at, gt(at.inputs[0], at.inputs[1]));
}
TENON_DEFINE_BINARY(maximum, Maximum);

double Remainder::of(double a, double b) noexcept {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
std::int64_t Remainder::of_integer(std::int64_t a, std::int64_t b) noexcept {
  const std::int64_t rest = Fmod::of_integer(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
std::array<Tensor, 2> partial_gradients(const Remainder&, const Backward& at) {
  return {at.upstream, -(at.upstream * floor(at.inputs[0] / at.inputs[1]))};
}
TENON_DEFINE_BINARY(remainder, Remainder);

double Fmod::of(double a, double b) noexcept { return std::fmod(a, b); }
std::int64_t Fmod::of_integer(std::int64_t a, std::int64_t b) noexcept {
  return b == 0 || b == -1 ? 0 : a % b;  // the most negative value by -1 would trap
}
std::array<Tensor, 2> partial_gradients(const Fmod&, const Backward& at) {
  return {at.upstream, -(at.upstream * trunc(at.inputs[0] / at.inputs[1]))};
}
TENON_DEFINE_BINARY(fmod, Fmod);

}  // namespace tenon

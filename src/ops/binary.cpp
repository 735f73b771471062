#include "ops/broadcast.hpp"
#include "ops/checks.hpp"
#include "ops/pointwise.hpp"

#include <tenon/ops/binary.hpp>

#include <algorithm>
#include <cmath>

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
TENON_DEFINE_BINARY(add, Add);

double Sub::of(double a, double b) noexcept { return a - b; }
std::int64_t Sub::of_integer(std::int64_t a, std::int64_t b) noexcept {
  return wrapping_subtract(a, b);
}
TENON_DEFINE_BINARY(sub, Sub);

double Mul::of(double a, double b) noexcept { return a * b; }
std::int64_t Mul::of_integer(std::int64_t a, std::int64_t b) noexcept {
  return wrapping_multiply(a, b);
}
TENON_DEFINE_BINARY(mul, Mul);

double Div::of(double a, double b) noexcept { return a / b; }
std::int64_t Div::of_integer(std::int64_t a, std::int64_t b) noexcept {
  if (b == 0) return 0;
  return b == -1 ? wrapping_subtract(0, a) : a / b;  // the most negative value by -1 would trap
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
TENON_DEFINE_BINARY(pow, Pow);

double Minimum::of(double a, double b) noexcept { return propagate_nan(a, b, b < a ? b : a); }
std::int64_t Minimum::of_integer(std::int64_t a, std::int64_t b) noexcept { return std::min(a, b); }
TENON_DEFINE_BINARY(minimum, Minimum);

double Maximum::of(double a, double b) noexcept { return propagate_nan(a, b, a < b ? b : a); }
std::int64_t Maximum::of_integer(std::int64_t a, std::int64_t b) noexcept { return std::max(a, b); }
TENON_DEFINE_BINARY(maximum, Maximum);

double Remainder::of(double a, double b) noexcept {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
std::int64_t Remainder::of_integer(std::int64_t a, std::int64_t b) noexcept {
  const std::int64_t rest = Fmod::of_integer(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
TENON_DEFINE_BINARY(remainder, Remainder);

double Fmod::of(double a, double b) noexcept { return std::fmod(a, b); }
std::int64_t Fmod::of_integer(std::int64_t a, std::int64_t b) noexcept {
  return b == 0 || b == -1 ? 0 : a % b;  // the most negative value by -1 would trap
}
TENON_DEFINE_BINARY(fmod, Fmod);

}  // namespace tenon

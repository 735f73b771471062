#pragma once

#include <tenon/op.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

// Hyperbolic functions, the error function's relatives and the gamma function's; contract: UnaryOp.

/// The hyperbolic sine.
struct Sinh : UnaryOp<Sinh> {
  static constexpr std::string_view name = "sinh";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Sinh);

/// The hyperbolic cosine.
struct Cosh : UnaryOp<Cosh> {
  static constexpr std::string_view name = "cosh";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Cosh);

/// The inverse of sinh.
struct Asinh : UnaryOp<Asinh> {
  static constexpr std::string_view name = "asinh";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Asinh);

/// The inverse of cosh, in [0, inf]; NaN below 1.
struct Acosh : UnaryOp<Acosh> {
  static constexpr std::string_view name = "acosh";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Acosh);

/// The inverse of tanh; infinite at -1 and 1, NaN beyond.
struct Atanh : UnaryOp<Atanh> {
  static constexpr std::string_view name = "atanh";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Atanh);

/// 1 - erf(x), accurate where that is small.
struct Erfc : UnaryOp<Erfc> {
  static constexpr std::string_view name = "erfc";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Erfc);

/// The inverse of erf; infinite at -1 and 1, NaN beyond. Giles, Approximating the erfinv function
/// (2010), then three steps of Halley's method: within a few ulp of f64.
struct Erfinv : UnaryOp<Erfinv> {
  static constexpr std::string_view name = "erfinv";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Erfinv);

/// log |gamma(x)|; +inf at 0, -1, -2, ..
struct Lgamma : UnaryOp<Lgamma> {
  static constexpr std::string_view name = "lgamma";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Lgamma);

/// The derivative of lgamma. As in SciPy -inf at +0, +inf at -0 and NaN at -1, -2, ..
/// Abramowitz and Stegun, 6.3.5 (recurrence), 6.3.7 (reflection) and 6.3.18 (series).
struct Digamma : UnaryOp<Digamma> {
  static constexpr std::string_view name = "digamma";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Digamma);

/// The derivative of digamma of order `order` >= 1: (-1)^(order + 1) order! zeta(order + 1, x),
/// zeta being Hurwitz's function. Infinite at 0, -1, -2, .. for order 1 and at 0 for others; NaN
/// for negative x where the order is above 1.
///
/// Errors    C2 order below 1 or above 100    Errc::bad_attribute
struct Polygamma {
  static constexpr std::string_view name = "polygamma";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 1};
  std::int64_t order = 1;
  static constexpr auto fields = FieldList{field("order", &Polygamma::order)};

  double of(double x) const noexcept;
  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Polygamma);

Tensor sinh(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor cosh(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor asinh(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor acosh(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor atanh(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor erfc(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor erfinv(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor lgamma(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor digamma(const Tensor& x,
               const std::source_location& where = std::source_location::current());
/// `polygamma(0, x)` is digamma(x).
Tensor polygamma(std::int64_t order, const Tensor& x,
                 const std::source_location& where = std::source_location::current());

}  // namespace tenon

#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Base of the ops of one operand: y_i = f(x_i).
///
/// Input     x: any shape; f16, bf16, f32 or f64; ops with `of_integer` take integer types as well
/// Output    y: shape, tags and dtype of x; may share x's buffer
/// Errors    C1 dtype of x not one of these    Errc::unsupported_dtype
/// Numerics  reference in f64, rounded once to the dtype; integers in i64, modulo 2^bits
template <class Op>
struct UnaryOp {
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 1};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};

/// -x. Integers wrap: the most negative value stays as it is, and an unsigned x gives 2^bits - x.
struct Neg : UnaryOp<Neg> {
  static constexpr std::string_view name = "neg";
  static double of(double x) noexcept;
  static std::int64_t of_integer(std::int64_t x) noexcept;
};
TENON_DECLARE_OP(Neg);

/// |x|. The most negative integer stays as it is.
struct Abs : UnaryOp<Abs> {
  static constexpr std::string_view name = "abs";
  static double of(double x) noexcept;
  static std::int64_t of_integer(std::int64_t x) noexcept;
};
TENON_DECLARE_OP(Abs);

/// -1, 0 or 1; a NaN stays a NaN.
struct Sign : UnaryOp<Sign> {
  static constexpr std::string_view name = "sign";
  static double of(double x) noexcept;
  static std::int64_t of_integer(std::int64_t x) noexcept;
};
TENON_DECLARE_OP(Sign);

/// x * x. Integers wrap.
struct Square : UnaryOp<Square> {
  static constexpr std::string_view name = "square";
  static double of(double x) noexcept;
  static std::int64_t of_integer(std::int64_t x) noexcept;
};
TENON_DECLARE_OP(Square);

/// The square root; NaN below zero.
struct Sqrt : UnaryOp<Sqrt> {
  static constexpr std::string_view name = "sqrt";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Sqrt);

/// 1 / sqrt(x); +inf at zero.
struct Rsqrt : UnaryOp<Rsqrt> {
  static constexpr std::string_view name = "rsqrt";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Rsqrt);

/// 1 / x.
struct Reciprocal : UnaryOp<Reciprocal> {
  static constexpr std::string_view name = "reciprocal";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Reciprocal);

/// e^x.
struct Exp : UnaryOp<Exp> {
  static constexpr std::string_view name = "exp";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Exp);

/// 2^x.
struct Exp2 : UnaryOp<Exp2> {
  static constexpr std::string_view name = "exp2";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Exp2);

/// e^x - 1, accurate near zero.
struct Expm1 : UnaryOp<Expm1> {
  static constexpr std::string_view name = "expm1";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Expm1);

/// The natural logarithm; -inf at zero, NaN below.
struct Log : UnaryOp<Log> {
  static constexpr std::string_view name = "log";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Log);

/// The logarithm to base 2.
struct Log2 : UnaryOp<Log2> {
  static constexpr std::string_view name = "log2";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Log2);

/// log(1 + x), accurate near zero.
struct Log1p : UnaryOp<Log1p> {
  static constexpr std::string_view name = "log1p";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Log1p);

/// The sine of x radians.
struct Sin : UnaryOp<Sin> {
  static constexpr std::string_view name = "sin";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Sin);

/// The cosine of x radians.
struct Cos : UnaryOp<Cos> {
  static constexpr std::string_view name = "cos";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Cos);

/// The tangent of x radians.
struct Tan : UnaryOp<Tan> {
  static constexpr std::string_view name = "tan";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Tan);

/// The arc sine, in [-pi/2, pi/2]; NaN outside [-1, 1].
struct Asin : UnaryOp<Asin> {
  static constexpr std::string_view name = "asin";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Asin);

/// The arc cosine, in [0, pi]; NaN outside [-1, 1].
struct Acos : UnaryOp<Acos> {
  static constexpr std::string_view name = "acos";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Acos);

/// The arc tangent, in [-pi/2, pi/2].
struct Atan : UnaryOp<Atan> {
  static constexpr std::string_view name = "atan";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Atan);

/// The hyperbolic tangent.
struct Tanh : UnaryOp<Tanh> {
  static constexpr std::string_view name = "tanh";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Tanh);

/// The error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
struct Erf : UnaryOp<Erf> {
  static constexpr std::string_view name = "erf";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Erf);

/// The largest integer not above x.
struct Floor : UnaryOp<Floor> {
  static constexpr std::string_view name = "floor";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Floor);

/// The smallest integer not below x.
struct Ceil : UnaryOp<Ceil> {
  static constexpr std::string_view name = "ceil";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Ceil);

/// x without its fraction.
struct Trunc : UnaryOp<Trunc> {
  static constexpr std::string_view name = "trunc";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Trunc);

/// The nearest integer; halves go to the even one, as in NumPy and ONNX.
struct Round : UnaryOp<Round> {
  static constexpr std::string_view name = "round";
  static double of(double x) noexcept;
};
TENON_DECLARE_OP(Round);

Tensor neg(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor abs(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor sign(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor square(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor sqrt(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor rsqrt(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor reciprocal(const Tensor& x,
                  const std::source_location& where = std::source_location::current());
Tensor exp(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor exp2(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor expm1(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor log(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor log2(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor log1p(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor sin(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor cos(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor tan(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor asin(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor acos(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor atan(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor tanh(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor erf(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor floor(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor ceil(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor trunc(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor round(const Tensor& x, const std::source_location& where = std::source_location::current());

}  // namespace tenon

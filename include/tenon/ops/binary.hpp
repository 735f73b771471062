#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// What the arithmetic ops of two operands share: y_i = f(a_i, b_i) with numpy broadcasting.
///
/// Inputs    a, b: same dtype, any floating or integer type; shapes are aligned at the innermost
///           axis, and size 1 broadcasts
/// Output    y: the broadcast shape, same dtype; an axis keeps the tag that either input gives it;
///           may share the buffer of an input of its shape
/// Errors    C1 dtypes differ                                  Errc::shape_mismatch
///           C2 dtype neither floating nor integer             Errc::unsupported_dtype
///           C3 sizes or tags of an axis differ                Errc::shape_mismatch
/// Numerics  reference in f64, rounded once. Integers compute in i64 and keep the result modulo
///           2^bits; nothing traps: division and remainders by zero give 0
template <class Op>
struct BinaryOp {
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 3};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};

/// A BinaryOp whose operands may be swapped.
template <class Op>
struct CommutativeOp : BinaryOp<Op> {
  static constexpr OpTraits traits{.pointwise = true, .commutative = true, .in_place_inputs = 3};
};

/// a + b.
struct Add : CommutativeOp<Add> {
  static constexpr std::string_view name = "add";
  static double of(double a, double b) noexcept;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(Add);

/// a - b.
struct Sub : BinaryOp<Sub> {
  static constexpr std::string_view name = "sub";
  static double of(double a, double b) noexcept;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(Sub);

/// a * b.
struct Mul : CommutativeOp<Mul> {
  static constexpr std::string_view name = "mul";
  static double of(double a, double b) noexcept;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(Mul);

/// a / b. Integers divide towards zero, as in C++ and ONNX; by zero gives 0, and the most negative
/// value by -1 gives itself.
struct Div : BinaryOp<Div> {
  static constexpr std::string_view name = "div";
  static double of(double a, double b) noexcept;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(Div);

/// a to the power b, as C's pow. A negative integer exponent gives what truncating the real result
/// gives: 0 unless |a| is 1; 0 to a negative power is 0.
struct Pow : BinaryOp<Pow> {
  static constexpr std::string_view name = "pow";
  static double of(double a, double b) noexcept;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(Pow);

/// The smaller of a and b; NaN if either is NaN.
struct Minimum : CommutativeOp<Minimum> {
  static constexpr std::string_view name = "minimum";
  static double of(double a, double b) noexcept;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(Minimum);

/// The larger of a and b; NaN if either is NaN.
struct Maximum : CommutativeOp<Maximum> {
  static constexpr std::string_view name = "maximum";
  static double of(double a, double b) noexcept;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(Maximum);

/// a - b * floor(a / b): the sign of the divisor, as Python's % and torch.remainder. By zero: NaN,
/// or 0 for integers.
struct Remainder : BinaryOp<Remainder> {
  static constexpr std::string_view name = "remainder";
  static double of(double a, double b) noexcept;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(Remainder);

/// a - b * trunc(a / b): the sign of the dividend, as C's % and fmod. By zero: NaN, or 0 for
/// integers.
struct Fmod : BinaryOp<Fmod> {
  static constexpr std::string_view name = "fmod";
  static double of(double a, double b) noexcept;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(Fmod);

Tensor add(const Tensor& a, const Tensor& b,
           const std::source_location& where = std::source_location::current());
Tensor sub(const Tensor& a, const Tensor& b,
           const std::source_location& where = std::source_location::current());
Tensor mul(const Tensor& a, const Tensor& b,
           const std::source_location& where = std::source_location::current());
Tensor div(const Tensor& a, const Tensor& b,
           const std::source_location& where = std::source_location::current());
Tensor pow(const Tensor& a, const Tensor& b,
           const std::source_location& where = std::source_location::current());
Tensor minimum(const Tensor& a, const Tensor& b,
               const std::source_location& where = std::source_location::current());
Tensor maximum(const Tensor& a, const Tensor& b,
               const std::source_location& where = std::source_location::current());
Tensor remainder(const Tensor& a, const Tensor& b,
                 const std::source_location& where = std::source_location::current());
Tensor fmod(const Tensor& a, const Tensor& b,
            const std::source_location& where = std::source_location::current());

}  // namespace tenon

#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// What the ops on bits share: y_i = f(a_i, b_i) with numpy broadcasting.
///
/// Inputs    a, b: same dtype, integer; bitwise_and, _or and _xor take bool as well
/// Output    y: the broadcast shape, same dtype; tags as of BinaryOp; may share the buffer of an
///           input of its shape
/// Errors    C1 dtypes differ                    Errc::shape_mismatch
///           C2 another dtype                    Errc::unsupported_dtype
///           C3 sizes or tags of an axis differ  Errc::shape_mismatch
/// Numerics  exact. No gradient
template <class Op>
struct BitwiseOp {
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 3};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// The bits that both operands have.
struct BitwiseAnd : BitwiseOp<BitwiseAnd> {
  static constexpr std::string_view name = "bitwise_and";
  static constexpr bool takes_bool = true;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(BitwiseAnd);

/// The bits that an operand has.
struct BitwiseOr : BitwiseOp<BitwiseOr> {
  static constexpr std::string_view name = "bitwise_or";
  static constexpr bool takes_bool = true;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(BitwiseOr);

/// The bits that one operand has, and not both.
struct BitwiseXor : BitwiseOp<BitwiseXor> {
  static constexpr std::string_view name = "bitwise_xor";
  static constexpr bool takes_bool = true;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(BitwiseXor);

/// a * 2^b modulo 2^bits. As in numpy, a negative b or one of at least the number of bits shifts
/// everything out: 0.
struct ShiftLeft : BitwiseOp<ShiftLeft> {
  static constexpr std::string_view name = "shift_left";
  static constexpr bool takes_bool = false;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(ShiftLeft);

/// a / 2^b rounded down: the sign is shifted in. A negative b, or one of at least the number of
/// bits, gives 0 or, for a negative a, -1.
struct ShiftRight : BitwiseOp<ShiftRight> {
  static constexpr std::string_view name = "shift_right";
  static constexpr bool takes_bool = false;
  static std::int64_t of_integer(std::int64_t a, std::int64_t b) noexcept;
};
TENON_DECLARE_OP(ShiftRight);

/// Every bit of an integer the other way; of a bool, the other value.
///
/// Input     x: integer or bool
/// Output    y: shape, tags and dtype of x; may share x's buffer
/// Errors    C1 another dtype    Errc::unsupported_dtype
struct BitwiseNot {
  static constexpr std::string_view name = "bitwise_not";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 1};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(BitwiseNot);

Tensor bitwise_and(const Tensor& a, const Tensor& b,
                   const std::source_location& where = std::source_location::current());
Tensor bitwise_or(const Tensor& a, const Tensor& b,
                  const std::source_location& where = std::source_location::current());
Tensor bitwise_xor(const Tensor& a, const Tensor& b,
                   const std::source_location& where = std::source_location::current());
Tensor shift_left(const Tensor& a, const Tensor& b,
                  const std::source_location& where = std::source_location::current());
Tensor shift_right(const Tensor& a, const Tensor& b,
                   const std::source_location& where = std::source_location::current());
Tensor bitwise_not(const Tensor& x,
                   const std::source_location& where = std::source_location::current());

}  // namespace tenon

#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// Base of the logical ops of two operands, with numpy broadcasting.
///
/// Inputs    a, b: bool
/// Output    y: the broadcast shape, bool; may share the buffer of an input of its shape
/// Errors    C1 an input is not bool               Errc::unsupported_dtype
///           C2 sizes or tags of an axis differ    Errc::shape_mismatch
template <class Op>
struct LogicalOp {
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.pointwise = true, .commutative = true, .in_place_inputs = 3};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// Both are true.
struct LogicalAnd : LogicalOp<LogicalAnd> {
  static constexpr std::string_view name = "logical_and";
};
TENON_DECLARE_OP(LogicalAnd);

/// At least one is true.
struct LogicalOr : LogicalOp<LogicalOr> {
  static constexpr std::string_view name = "logical_or";
};
TENON_DECLARE_OP(LogicalOr);

/// Exactly one is true.
struct LogicalXor : LogicalOp<LogicalXor> {
  static constexpr std::string_view name = "logical_xor";
};
TENON_DECLARE_OP(LogicalXor);

/// True where x is false.
///
/// Input     x: bool
/// Output    y: shape of x, bool; may share x's buffer
/// Errors    C1 x is not bool    Errc::unsupported_dtype
struct LogicalNot {
  static constexpr std::string_view name = "logical_not";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 1};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(LogicalNot);

Tensor logical_and(const Tensor& a, const Tensor& b,
                   const std::source_location& where = std::source_location::current());
Tensor logical_or(const Tensor& a, const Tensor& b,
                  const std::source_location& where = std::source_location::current());
Tensor logical_xor(const Tensor& a, const Tensor& b,
                   const std::source_location& where = std::source_location::current());
Tensor logical_not(const Tensor& x,
                   const std::source_location& where = std::source_location::current());

}  // namespace tenon

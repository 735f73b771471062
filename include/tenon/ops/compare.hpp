#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// Base of the comparisons: y_i = (a_i op b_i) with numpy broadcasting.
///
/// Inputs    a, b: same dtype, any plain type
/// Output    y: the broadcast shape, bool; an axis keeps the tag that either input gives it
/// Errors    C1 dtypes differ                      Errc::shape_mismatch
///           C2 a block type, u64 or 8-bit floats  Errc::unsupported_dtype
///           C3 sizes or tags of an axis differ    Errc::shape_mismatch
/// Numerics  exact; a NaN is unequal to everything and unordered; false < true
template <class Op>
struct CompareOp {
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.pointwise = true};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// a == b.
struct Eq : CompareOp<Eq> {
  static constexpr std::string_view name = "eq";
  static constexpr OpTraits traits{.pointwise = true, .commutative = true};
};
TENON_DECLARE_OP(Eq);

/// a != b.
struct Ne : CompareOp<Ne> {
  static constexpr std::string_view name = "ne";
  static constexpr OpTraits traits{.pointwise = true, .commutative = true};
};
TENON_DECLARE_OP(Ne);

/// a < b.
struct Lt : CompareOp<Lt> {
  static constexpr std::string_view name = "lt";
};
TENON_DECLARE_OP(Lt);

/// a <= b.
struct Le : CompareOp<Le> {
  static constexpr std::string_view name = "le";
};
TENON_DECLARE_OP(Le);

/// a > b.
struct Gt : CompareOp<Gt> {
  static constexpr std::string_view name = "gt";
};
TENON_DECLARE_OP(Gt);

/// a >= b.
struct Ge : CompareOp<Ge> {
  static constexpr std::string_view name = "ge";
};
TENON_DECLARE_OP(Ge);

Tensor eq(const Tensor& a, const Tensor& b,
          const std::source_location& where = std::source_location::current());
Tensor ne(const Tensor& a, const Tensor& b,
          const std::source_location& where = std::source_location::current());
Tensor lt(const Tensor& a, const Tensor& b,
          const std::source_location& where = std::source_location::current());
Tensor le(const Tensor& a, const Tensor& b,
          const std::source_location& where = std::source_location::current());
Tensor gt(const Tensor& a, const Tensor& b,
          const std::source_location& where = std::source_location::current());
Tensor ge(const Tensor& a, const Tensor& b,
          const std::source_location& where = std::source_location::current());

}  // namespace tenon

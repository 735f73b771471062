#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// Base of the ops that classify each element (NaN, infinite, finite).
///
/// Input     x: any shape; f16, bf16, f32 or f64
/// Output    y: shape and tags of x, bool
/// Errors    C1 dtype of x not floating    Errc::unsupported_dtype
template <class Op>
struct PredicateOp {
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// Whether x is a NaN.
struct IsNan : PredicateOp<IsNan> {
  static constexpr std::string_view name = "is_nan";
};
TENON_DECLARE_OP(IsNan);

/// Whether x is +inf or -inf.
struct IsInf : PredicateOp<IsInf> {
  static constexpr std::string_view name = "is_inf";
};
TENON_DECLARE_OP(IsInf);

/// Whether x is neither infinite nor a NaN.
struct IsFinite : PredicateOp<IsFinite> {
  static constexpr std::string_view name = "is_finite";
};
TENON_DECLARE_OP(IsFinite);

Tensor is_nan(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor is_inf(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor is_finite(const Tensor& x,
                 const std::source_location& where = std::source_location::current());

}  // namespace tenon

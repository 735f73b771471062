#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// Base of argmax and argmin: the index of the extreme element along an axis.
///
/// Input     x: rank >= 1; any floating or integer type
/// Output    y: x without `axis`, or with size 1 there when `keep_dims`; `dtype`. The first index
///           among equals; a NaN counts as the extreme, so the first NaN wins
/// Errors    C1 axis outside [0, rank)                       Errc::axis_out_of_range
///           C2 dtype of x neither floating nor integer      Errc::unsupported_dtype
///           C3 `dtype` not i32 or i64                       Errc::unsupported_dtype
///           C4 the axis is empty                            Errc::bad_shape
///           C5 `dtype` cannot count the axis                Errc::limit_exceeded
template <class Op>
struct ArgReduceOp {
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.reduction = true};
  std::int64_t axis = 0;
  bool keep_dims = false;
  DType dtype = i32;
  static constexpr auto fields =
      FieldList{field("axis", &ArgReduceOp::axis), field("keep_dims", &ArgReduceOp::keep_dims),
                field("dtype", &ArgReduceOp::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// Index of the largest element.
struct Argmax : ArgReduceOp<Argmax> {
  static constexpr std::string_view name = "argmax";
};
TENON_DECLARE_OP(Argmax);

/// Index of the smallest element.
struct Argmin : ArgReduceOp<Argmin> {
  static constexpr std::string_view name = "argmin";
};
TENON_DECLARE_OP(Argmin);

Tensor argmax(const Tensor& x, const AxisRef& axis = -1, bool keep_dims = false, DType dtype = i32,
              const std::source_location& where = std::source_location::current());
Tensor argmin(const Tensor& x, const AxisRef& axis = -1, bool keep_dims = false, DType dtype = i32,
              const std::source_location& where = std::source_location::current());

/// Which of several extreme elements, or of several NaN, is meant.
enum class Ties : std::uint8_t { first, last };

Tensor argmax(const Tensor& x, const AxisRef& axis, Ties ties, bool keep_dims = false,
              DType dtype = i32,
              const std::source_location& where = std::source_location::current());
Tensor argmin(const Tensor& x, const AxisRef& axis, Ties ties, bool keep_dims = false,
              DType dtype = i32,
              const std::source_location& where = std::source_location::current());

}  // namespace tenon

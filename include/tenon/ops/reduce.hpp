#pragma once

#include <tenon/axis_list.hpp>
#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Base of the ops that reduce axes to one element. Without axes, each element is reduced alone.
///
/// Input     x: see each op
/// Output    y: x without `axes`, or with size 1 there when `keep_dims`; other axes keep their tags
/// Errors    C1 an axis outside [0, rank)                  Errc::axis_out_of_range
///           C2 an axis named twice                        Errc::bad_argument
///           C3 a dtype the op does not take               Errc::unsupported_dtype
///           C4 max and min of an axis of size 0           Errc::bad_shape
/// Numerics  reference in f64, in row-major order, rounded once; integers in i64, modulo 2^bits
template <class Op>
struct ReduceOp {
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.reduction = true};
  IntList axes{};
  bool keep_dims = false;
  static constexpr auto fields =
      FieldList{field("axes", &ReduceOp::axes), field("keep_dims", &ReduceOp::keep_dims)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};

/// The sum; 0 for an empty axis. Takes any plain type; integers and bool give i64.
struct Sum : ReduceOp<Sum> {
  static constexpr std::string_view name = "sum";
};
TENON_DECLARE_OP(Sum);

/// The arithmetic mean; NaN for an empty axis. Floating types only.
struct Mean : ReduceOp<Mean> {
  static constexpr std::string_view name = "mean";
};
TENON_DECLARE_OP(Mean);

/// The product; 1 for an empty axis. Takes any plain type; integers and bool give i64.
struct Prod : ReduceOp<Prod> {
  static constexpr std::string_view name = "prod";
};
TENON_DECLARE_OP(Prod);

/// The largest element; NaN if any is NaN. Floating and integer types; y has x's dtype.
struct Max : ReduceOp<Max> {
  static constexpr std::string_view name = "max";
};
TENON_DECLARE_OP(Max);

/// The smallest element; NaN if any is NaN. Floating and integer types; y has x's dtype.
struct Min : ReduceOp<Min> {
  static constexpr std::string_view name = "min";
};
TENON_DECLARE_OP(Min);

/// Whether any element is true; false for an empty axis. bool only.
struct Any : ReduceOp<Any> {
  static constexpr std::string_view name = "any";
};
TENON_DECLARE_OP(Any);

/// Whether all elements are true; true for an empty axis. bool only.
struct All : ReduceOp<All> {
  static constexpr std::string_view name = "all";
};
TENON_DECLARE_OP(All);

Tensor sum(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
           const std::source_location& where = std::source_location::current());
Tensor mean(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
            const std::source_location& where = std::source_location::current());
Tensor prod(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
            const std::source_location& where = std::source_location::current());
Tensor max(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
           const std::source_location& where = std::source_location::current());
Tensor min(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
           const std::source_location& where = std::source_location::current());
Tensor any(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
           const std::source_location& where = std::source_location::current());
Tensor all(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
           const std::source_location& where = std::source_location::current());

/// The sum over what broadcasting x to another shape repeats: x has the shape that `shape`
/// broadcasts to, y has `shape`'s sizes. The opposite of broadcast_to. Errc::shape_mismatch when
/// `shape` does not broadcast to x's.
Tensor sum_to(const Tensor& x, const Shape& shape,
              const std::source_location& where = std::source_location::current());

}  // namespace tenon

#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Base of cumprod, cummax and cummin: running products, maxima and minima along an axis,
/// y_i = f(x_0, .., x_i). See cumsum for sums.
///
/// Input     x: rank >= 1; cumprod: any plain type; cummax and cummin: any floating or integer type
/// Output    y: sizes and tags of x, and its dtype; cumprod of integers and bool gives i64
/// Errors    C1 axis outside [0, rank)                  Errc::axis_out_of_range
///           C2 a dtype that the op does not take       Errc::unsupported_dtype
/// Numerics  reference keeps the running value in f64; integers in i64, modulo 2^64. From a NaN on,
///           every result is NaN
template <class Op>
struct CumulativeOp {
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.in_place_inputs = 1};
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("axis", &CumulativeOp::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};

/// y_i = x_0 * .. * x_i. Its gradient is exact where factors are zero.
struct Cumprod : CumulativeOp<Cumprod> {
  static constexpr std::string_view name = "cumprod";
};
TENON_DECLARE_OP(Cumprod);

/// The largest of x_0 .. x_i. Its gradient goes to the last of equal ones.
struct Cummax : CumulativeOp<Cummax> {
  static constexpr std::string_view name = "cummax";
};
TENON_DECLARE_OP(Cummax);

/// The smallest of x_0 .. x_i. Its gradient goes to the last of equal ones.
struct Cummin : CumulativeOp<Cummin> {
  static constexpr std::string_view name = "cummin";
};
TENON_DECLARE_OP(Cummin);

Tensor cumprod(const Tensor& x, const AxisRef& axis = -1,
               const std::source_location& where = std::source_location::current());
Tensor cummax(const Tensor& x, const AxisRef& axis = -1,
              const std::source_location& where = std::source_location::current());
Tensor cummin(const Tensor& x, const AxisRef& axis = -1,
              const std::source_location& where = std::source_location::current());

}  // namespace tenon

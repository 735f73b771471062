#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Running sums along an axis: y_i = x_0 + .. + x_i.
///
/// Input     x: rank >= 1, any plain type
/// Output    y: shape and tags of x; integers and bool give i64
/// Errors    C1 axis outside [0, rank)    Errc::axis_out_of_range
///           C2 a block type, u64 or f8   Errc::unsupported_dtype
/// Numerics  reference keeps the running sum in f64; integers in i64, modulo 2^64
struct Cumsum {
  static constexpr std::string_view name = "cumsum";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.in_place_inputs = 1};
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("axis", &Cumsum::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Cumsum);

Tensor cumsum(const Tensor& x, const AxisRef& axis = -1,
              const std::source_location& where = std::source_location::current());

}  // namespace tenon

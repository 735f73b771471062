#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <limits>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// x limited to [min, max]; a NaN stays a NaN. Integers stay within the integers of that interval.
///
/// Input     x: any shape; any floating or integer type
/// Output    y: shape, tags and dtype of x; may share x's buffer
/// Errors    C1 dtype of x neither floating nor integer    Errc::unsupported_dtype
///           C2 min > max, or one of them a NaN            Errc::bad_attribute
///           C3 no integer of x's type is in [min, max]    Errc::bad_attribute
struct Clamp {
  static constexpr std::string_view name = "clamp";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 1};
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  static constexpr auto fields = FieldList{field("min", &Clamp::min), field("max", &Clamp::max)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Clamp);

Tensor clamp(const Tensor& x, double min, double max,
             const std::source_location& where = std::source_location::current());

}  // namespace tenon

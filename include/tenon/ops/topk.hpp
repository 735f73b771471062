#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// Indices of the k largest elements along an axis, largest first; among equals the lower index
/// first. A NaN counts as larger than any number.
///
/// Input     x: rank >= 1; any floating or integer type
/// Output    y: x with size k along `axis`; i32
/// Errors    C1 axis outside [0, rank)                       Errc::axis_out_of_range
///           C2 dtype of x neither floating nor integer      Errc::unsupported_dtype
///           C3 k not in [0, size of axis]                   Errc::out_of_range
///           C4 an axis that i32 cannot count                Errc::limit_exceeded
struct Topk {
  static constexpr std::string_view name = "topk";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{};
  std::int64_t k = 1;
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("k", &Topk::k), field("axis", &Topk::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(Topk);

struct TopkResult {
  Tensor values;   ///< of x's dtype
  Tensor indices;  ///< i32
};

TopkResult topk(const Tensor& x, std::int64_t k, const AxisRef& axis = -1,
                const std::source_location& where = std::source_location::current());

}  // namespace tenon

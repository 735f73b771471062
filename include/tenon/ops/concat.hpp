#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Arrays one after the other along an axis.
///
/// Inputs    1 to 4096 arrays of one type and rank >= 1, with equal sizes outside `axis`
/// Output    y: that type; `axis` has the sum of the sizes; an axis keeps the tag that any input
///           gives it
/// Errors    C1 axis outside [0, rank)                              Errc::axis_out_of_range
///           C2 types or ranks differ                               Errc::shape_mismatch
///           C3 sizes outside the axis, or tags, differ             Errc::shape_mismatch
struct Concat {
  static constexpr std::string_view name = "concat";
  static constexpr int min_inputs = 1, max_inputs = 4096;
  static constexpr OpTraits traits{};
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("axis", &Concat::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Concat);

/// Errc::bad_argument for no arrays.
Tensor concat(std::initializer_list<Tensor> parts, const AxisRef& axis,
              const std::source_location& where = std::source_location::current());
Tensor concat(std::span<const Tensor> parts, const AxisRef& axis,
              const std::source_location& where = std::source_location::current());

/// Arrays of one shape along a new axis, which stands at `axis` of the result (negative counts from
/// its end) and is called `tag`. Errc::bad_argument for no arrays.
Tensor stack(std::initializer_list<Tensor> parts, std::int64_t axis = 0, Name tag = {},
             const std::source_location& where = std::source_location::current());
Tensor stack(std::span<const Tensor> parts, std::int64_t axis = 0, Name tag = {},
             const std::source_location& where = std::source_location::current());

}  // namespace tenon

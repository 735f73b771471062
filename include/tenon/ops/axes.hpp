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

/// Splits one axis into several, row-major, without moving elements. Other axes keep their sizes,
/// tags and symbols.
///
/// Input     x: rank >= 1, any type
/// Output    y: x with `axis` replaced by `sizes` (no tags); a view. One size may be -1: it is
///           computed from the others
/// Errors    C1 axis outside [0, rank)                             Errc::axis_out_of_range
///           C2 no sizes, a size below -1, or two of -1            Errc::bad_shape
///           C3 the sizes do not multiply to the axis              Errc::bad_shape
///           C4 -1 beside a size of 0                              Errc::bad_shape
///           C5 rank above max_rank                                Errc::bad_shape
///           C6 the innermost axis of a block type                 Errc::unsupported_dtype
struct SplitAxis {
  static constexpr std::string_view name = "split_axis";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.view = true};
  std::int64_t axis = 0;
  IntList sizes{};
  static constexpr auto fields =
      FieldList{field("axis", &SplitAxis::axis), field("sizes", &SplitAxis::sizes)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
};
TENON_DECLARE_OP(SplitAxis);

/// Merges `count` adjacent axes into one, row-major. Other axes stay as they are.
///
/// Input     x: any type
/// Output    y: x with axes [axis, axis + count) replaced by one of their product, without a tag; a
///           view where x's strides allow it
/// Errors    C1 axis, or axis + count - 1, outside [0, rank)       Errc::axis_out_of_range
///           C2 count below 1                                      Errc::bad_attribute
///           C3 the innermost axis of a block type, with others    Errc::unsupported_dtype
struct MergeAxes {
  static constexpr std::string_view name = "merge_axes";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.view = true};
  std::int64_t axis = 0;
  std::int64_t count = 1;
  static constexpr auto fields =
      FieldList{field("axis", &MergeAxes::axis), field("count", &MergeAxes::count)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
};
TENON_DECLARE_OP(MergeAxes);

/// Inserts an axis of size 1.
///
/// Input     x: rank < max_rank, any type
/// Output    y: x with an axis of size 1 before `axis`; a view
/// Errors    C1 axis outside [0, rank]                             Errc::axis_out_of_range
///           C2 rank above max_rank                                Errc::bad_shape
///           C3 behind the innermost axis of a block type          Errc::unsupported_dtype
struct Unsqueeze {
  static constexpr std::string_view name = "unsqueeze";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.view = true};
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("axis", &Unsqueeze::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
};
TENON_DECLARE_OP(Unsqueeze);

/// Removes an axis of size 1.
///
/// Input     x: rank >= 1, any type
/// Output    y: x without `axis`; a view
/// Errors    C1 axis outside [0, rank)                             Errc::axis_out_of_range
///           C2 its size is not 1                                  Errc::bad_shape
struct Squeeze {
  static constexpr std::string_view name = "squeeze";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.view = true};
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("axis", &Squeeze::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
};
TENON_DECLARE_OP(Squeeze);

/// `split_axis(x, "d", {{"h", 8}, {"hd", -1}})`.
Tensor split_axis(const Tensor& x, const AxisRef& axis, std::initializer_list<Axis> sizes,
                  const std::source_location& where = std::source_location::current());

/// Merges axes `first` to `last`, both included, into one called `tag`:
/// `merge_axes(x, "h", "hd", "d")`.
Tensor merge_axes(const Tensor& x, const AxisRef& first, const AxisRef& last, Name tag = {},
                  const std::source_location& where = std::source_location::current());

/// As merge_axes; a scalar becomes a vector of one element.
Tensor flatten(const Tensor& x, const AxisRef& first = 0, const AxisRef& last = -1,
               const std::source_location& where = std::source_location::current());

/// The new axis stands at `axis` of the result; negative counts from the end of the result, so -1
/// appends.
Tensor unsqueeze(const Tensor& x, std::int64_t axis, Name tag = {},
                 const std::source_location& where = std::source_location::current());

Tensor squeeze(const Tensor& x, const AxisRef& axis,
               const std::source_location& where = std::source_location::current());

}  // namespace tenon

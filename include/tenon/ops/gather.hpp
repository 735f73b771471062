#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Slices of x picked along an axis: numpy.take. y[.., i.., ..] = x[.., index[i..], ..].
///
/// Inputs    x: rank >= 1, any plain type; index: any shape, i32 or i64, each in [0, size of axis)
/// Output    y: x with `axis` replaced by the axes of index, tags included
/// Errors    C1 axis outside [0, rank)                       Errc::axis_out_of_range
///           C2 index not i32 or i64                         Errc::unsupported_dtype
///           C3 x of a block type (see embedding)            Errc::unsupported_dtype
///           C4 rank above max_rank, or a tag twice          Errc::bad_shape
///           when run: an index out of range                 Errc::out_of_range
struct Gather {
  static constexpr std::string_view name = "gather";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.picked_inputs = 1};
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("axis", &Gather::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Gather);

/// One element of each slice along an axis, or several: numpy.take_along_axis.
/// y[.., i, ..] = x[.., index[.., i, ..], ..].
///
/// Inputs    x: rank >= 1, any plain type; index: x's sizes but for `axis`, i32 or i64, each in
///           [0, size of axis)
/// Output    y: sizes of index, dtype of x; tags of either
/// Errors    C1 axis outside [0, rank)                       Errc::axis_out_of_range
///           C2 index not i32 or i64                         Errc::unsupported_dtype
///           C3 x of a block type                            Errc::unsupported_dtype
///           C4 ranks, sizes outside the axis or tags differ Errc::shape_mismatch
///           when run: an index out of range                 Errc::out_of_range
struct TakeAlong {
  static constexpr std::string_view name = "take_along";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.picked_inputs = 1};
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("axis", &TakeAlong::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(TakeAlong);

Tensor gather(const Tensor& x, const Tensor& index, const AxisRef& axis = 0,
              const std::source_location& where = std::source_location::current());
Tensor take_along(const Tensor& x, const Tensor& index, const AxisRef& axis = -1,
                  const std::source_location& where = std::source_location::current());

}  // namespace tenon

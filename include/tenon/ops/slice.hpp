#pragma once

#include <tenon/axis_list.hpp>
#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Every `step`-th element of one axis, from `begin` up to but not including `end`. Negative
/// `begin` and `end` count from the end of the axis, as in Python, and are recorded as such: x[-1:]
/// is the last element for every size. With a negative step, the elements from `begin` down to but
/// not including `end`: slice(x, axis, -1, to_end, -1) is x[::-1].
///
/// Input     x: rank >= 1, any type
/// Output    y: x with `axis` shortened; a view
/// Errors    C1 axis outside [0, rank)                                Errc::axis_out_of_range
///           C2 not 0 <= begin <= end <= size, or, with a negative step, not
///              -1 <= end <= begin < size, once they count from the first element (nothing is
///              clipped); a begin or end that is a symbol             Errc::out_of_range
///           C3 step 0 or -2^63                                       Errc::bad_attribute
///           C4 parts of blocks, for a block type                     Errc::unsupported_dtype
struct Slice {
  static constexpr std::string_view name = "slice";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.view = true};
  std::int64_t axis = 0;
  std::int64_t begin = 0;
  std::int64_t end = to_end;
  std::int64_t step = 1;
  static constexpr auto fields =
      FieldList{field("axis", &Slice::axis), field("begin", &Slice::begin),
                field("end", &Slice::end), field("step", &Slice::step)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
};
TENON_DECLARE_OP(Slice);

Tensor slice(const Tensor& x, const AxisRef& axis, std::int64_t begin, std::int64_t end = to_end,
             std::int64_t step = 1,
             const std::source_location& where = std::source_location::current());

/// x with the order of its elements reversed along these axes, all by default: numpy.flip. A view.
/// Errors as for slice; Errc::bad_argument for an axis twice.
Tensor flip(const Tensor& x, const AxisList& axes = {},
            const std::source_location& where = std::source_location::current());

/// x moved by `shift` places towards the end of an axis, elements that leave it coming in again at
/// its other end: numpy.roll. Errc::bad_argument when the size is not known.
Tensor roll(const Tensor& x, std::int64_t shift, const AxisRef& axis,
            const std::source_location& where = std::source_location::current());

/// Splits an axis into consecutive slices of these sizes. Errc::bad_argument for no sizes, a
/// negative one, or sizes that do not add up to the axis.
std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> sizes,
                          const AxisRef& axis,
                          const std::source_location& where = std::source_location::current());
std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, const AxisRef& axis,
                          const std::source_location& where = std::source_location::current());

/// `parts` slices of equal size along an axis; the last is shorter when the size does not divide,
/// and there may be fewer parts, as in torch.chunk. Errc::bad_argument when `parts` is below 1 or
/// the size is not known.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t parts, const AxisRef& axis,
                          const std::source_location& where = std::source_location::current());

}  // namespace tenon

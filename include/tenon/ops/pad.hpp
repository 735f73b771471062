#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Pads x: `before[i]` elements before axis i's first and `after[i]` after its last. They are, by
/// `mode`: constant: `value`; edge: the nearest element of x; reflect: x mirrored at its first and
/// last element, which are not repeated; circular: x repeated. As numpy.pad (circular: wrap).
///
/// Input     x: any plain type
/// Output    y: tags and dtype of x
/// Errors    C1 not one entry of before and after per axis    Errc::bad_argument
///           C2 a negative entry                              Errc::bad_attribute
///           C3 a block type                                  Errc::unsupported_dtype
///           C4 a size beyond 2^63 - 1                        Errc::shape_overflow
///           C5 mode none of constant, edge, reflect, circular           Errc::bad_attribute
///           C6 more padding than x has elements: reflect: size - 1 at most, circular: size, edge:
///              any number of a size that is not 0                       Errc::out_of_range
/// Numerics  `value` is converted to x's dtype as by cast
struct Pad {
  static constexpr std::string_view name = "pad";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{};
  IntList before{};
  IntList after{};
  double value = 0;
  Name mode{};  ///< empty: constant
  static constexpr auto fields =
      FieldList{field("before", &Pad::before), field("after", &Pad::after),
                field("value", &Pad::value), field("mode", &Pad::mode)};

  /// What `mode` names; C5.
  enum class Mode : std::uint8_t { constant, edge, reflect, circular };
  Mode padding() const;
  /// The element of an axis of `size` elements that stands at `place`, which is below 0 before the
  /// first and not below `size` after the last. For modes other than constant.
  static std::int64_t source_of(Mode mode, std::int64_t place, std::int64_t size) noexcept;

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Pad);

/// One entry per axis: `pad(x, {0, 1}, {0, 1})`.
Tensor pad(const Tensor& x, const IntList& before, const IntList& after, double value = 0,
           const std::source_location& where = std::source_location::current());
Tensor pad(const Tensor& x, const IntList& before, const IntList& after, Name mode,
           const std::source_location& where = std::source_location::current());
/// One axis.
Tensor pad(const Tensor& x, const AxisRef& axis, std::int64_t before, std::int64_t after,
           double value = 0, const std::source_location& where = std::source_location::current());
Tensor pad(const Tensor& x, const AxisRef& axis, std::int64_t before, std::int64_t after, Name mode,
           const std::source_location& where = std::source_location::current());

}  // namespace tenon

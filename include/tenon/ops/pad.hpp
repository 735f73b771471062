#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

namespace tenon {

/// Pads x with `value`: `before[i]` elements before axis i's first and `after[i]` after its last.
///
/// Input     x: any plain type
/// Output    y: tags and dtype of x
/// Errors    C1 not one entry of before and after per axis    Errc::bad_argument
///           C2 a negative entry                              Errc::bad_attribute
///           C3 a block type                                  Errc::unsupported_dtype
///           C4 a size beyond 2^63 - 1                        Errc::shape_overflow
/// Numerics  `value` is converted to x's dtype as by cast
struct Pad {
  static constexpr std::string_view name = "pad";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{};
  IntList before{};
  IntList after{};
  double value = 0;
  static constexpr auto fields = std::tuple{
      field("before", &Pad::before), field("after", &Pad::after), field("value", &Pad::value)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Pad);

/// One entry per axis: `pad(x, {0, 1}, {0, 1})`.
Tensor pad(const Tensor& x, const IntList& before, const IntList& after, double value = 0,
           const std::source_location& where = std::source_location::current());
/// One axis.
Tensor pad(const Tensor& x, const AxisRef& axis, std::int64_t before, std::int64_t after,
           double value = 0, const std::source_location& where = std::source_location::current());

}  // namespace tenon

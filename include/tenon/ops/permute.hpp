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

/// The axes in another order: axis i of the result is axis `order[i]` of x.
///
/// Input     x: any type
/// Output    y: a view; axes keep their tags
/// Errors    C1 not one entry of order per axis               Errc::bad_argument
///           C2 an entry outside [0, rank)                    Errc::axis_out_of_range
///           C3 an entry twice                                Errc::bad_argument
///           C4 the innermost axis of a block type moves      Errc::unsupported_dtype
struct Permute {
  static constexpr std::string_view name = "permute";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.view = true};
  IntList order{};
  static constexpr auto fields = FieldList{field("order", &Permute::order)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
};
TENON_DECLARE_OP(Permute);

/// `permute(x, {0, 2, 1})` or `permute(x, {"b", "h", "s", "d"})`.
Tensor permute(const Tensor& x, std::initializer_list<AxisRef> order,
               const std::source_location& where = std::source_location::current());
Tensor permute(const Tensor& x, std::span<const AxisRef> order,
               const std::source_location& where = std::source_location::current());

/// Swaps two axes, by default the last two.
Tensor transpose(const Tensor& x, const AxisRef& a = -2, const AxisRef& b = -1,
                 const std::source_location& where = std::source_location::current());

}  // namespace tenon

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

/// x repeated along axes of size 1 and along new outer axes, without copying.
///
/// Inputs    x: any plain type; like: optional; only its shape counts
/// Output    y: `dims`, where -1 keeps x's size, or the sizes of `like`, which may be symbolic; a
///           view. Axes keep x's tags
/// Errors    C1 fewer sizes than axes, or a size of x that is neither 1 nor the requested one
///                                                       Errc::shape_mismatch
///           C2 a size below -1, or -1 for a new axis    Errc::bad_shape
///           C3 a block type                             Errc::unsupported_dtype
///           C4 both dims and `like`                     Errc::bad_attribute
struct BroadcastTo {
  static constexpr std::string_view name = "broadcast_to";
  static constexpr int min_inputs = 1, max_inputs = 2;
  static constexpr OpTraits traits{.view = true};
  IntList dims{};
  static constexpr auto fields = FieldList{field("dims", &BroadcastTo::dims)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
};
TENON_DECLARE_OP(BroadcastTo);

/// `broadcast_to(x, {4, -1})`; tags written beside sizes replace x's.
Tensor broadcast_to(const Tensor& x, std::initializer_list<Axis> dims,
                    const std::source_location& where = std::source_location::current());
Tensor broadcast_to(const Tensor& x, std::span<const std::int64_t> dims,
                    const std::source_location& where = std::source_location::current());

/// x in the sizes of `like`, which may be symbolic.
Tensor broadcast_like(const Tensor& x, const Tensor& like,
                      const std::source_location& where = std::source_location::current());

/// Each element `count` times in a row along an axis: [a, b] gives [a, a, b, b].
Tensor repeat_interleave(const Tensor& x, std::int64_t count, const AxisRef& axis,
                         const std::source_location& where = std::source_location::current());

/// The whole array `count` times one after the other along an axis: [a, b] gives [a, b, a, b].
Tensor tile(const Tensor& x, std::int64_t count, const AxisRef& axis,
            const std::source_location& where = std::source_location::current());

}  // namespace tenon

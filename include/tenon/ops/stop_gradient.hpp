#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// x itself, through which no gradient passes (tenon/grad.hpp).
///
/// Input     x: any shape, any type
/// Output    y: x; a view
struct StopGradient {
  static constexpr std::string_view name = "stop_gradient";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.view = true};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(StopGradient);

Tensor stop_gradient(const Tensor& x,
                     const std::source_location& where = std::source_location::current());

}  // namespace tenon

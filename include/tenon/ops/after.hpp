#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// x itself, as a value that there is not before `event` has been computed. What is computed from
/// it is computed behind the event, and is not shared with what is computed from x: so gradients
/// compute values again (checkpointed() in tenon/grad.hpp).
///
/// Inputs    x: any shape, any type; event: any value
/// Output    y: x; a view
struct After {
  static constexpr std::string_view name = "after";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.view = true};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(After);

Tensor after(const Tensor& x, const Tensor& event,
             const std::source_location& where = std::source_location::current());

}  // namespace tenon

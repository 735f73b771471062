#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Gated linear unit: y = activation(gate) * up, element by element.
///
/// Inputs    gate, up: one shape and dtype; f16, bf16, f32 or f64
/// Output    y: that shape and dtype; may share either buffer
/// Attribute activation: silu, gelu, gelu_tanh, relu or sigmoid, as the ops of these names compute
/// Errors    C1 another word, or none                 Errc::bad_attribute
///           C2 a dtype that is not floating          Errc::unsupported_dtype
///           C3 shapes, dtypes or tags that differ    Errc::shape_mismatch
/// Source    Shazeer, GLU Variants Improve Transformer (2020)
struct Glu {
  static constexpr std::string_view name = "glu";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 0b11};
  Name activation{};
  static constexpr auto fields = FieldList{field("activation", &Glu::activation)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Glu);

Tensor glu(const Tensor& gate, const Tensor& up, Name activation = "silu",
           const std::source_location& where = std::source_location::current());

}  // namespace tenon

#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Softmax along one axis: y_i = exp(x_i - m) / sum_j exp(x_j - m), m = max_j x_j.
///
/// Input     x: rank >= 1; f16, bf16, f32 or f64
/// Output    y: shape and dtype of x; may share x's buffer
/// Errors    C1 axis outside [0, rank)       Errc::axis_out_of_range
///           C2 dtype of x not floating      Errc::unsupported_dtype
/// Numerics  reference in f64; a slice with a NaN or +inf, or of -inf only, is NaN throughout
/// Source    shifted form: Goodfellow et al., Deep Learning (2016), section 4.1
struct Softmax {
  static constexpr std::string_view name = "softmax";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.in_place_inputs = 1};
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("axis", &Softmax::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Softmax);

/// `axis` by index (negative counts from the end) or tag.
Tensor softmax(const Tensor& x, const AxisRef& axis = -1,
               const std::source_location& where = std::source_location::current());

}  // namespace tenon

#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// The logarithm of softmax along one axis: y_i = x_i - m - log sum_j exp(x_j - m), m = max_j x_j.
///
/// Input     x: rank >= 1; f16, bf16, f32 or f64
/// Output    y: shape and dtype of x; may share x's buffer
/// Errors    C1 axis outside [0, rank)       Errc::axis_out_of_range
///           C2 dtype of x not floating      Errc::unsupported_dtype
/// Numerics  reference in f64; a slice with a NaN or +inf, or of -inf only, is NaN throughout
struct LogSoftmax {
  static constexpr std::string_view name = "log_softmax";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.in_place_inputs = 1};
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("axis", &LogSoftmax::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(LogSoftmax);

/// `axis` by index (negative counts from the end) or tag.
Tensor log_softmax(const Tensor& x, const AxisRef& axis = -1,
                   const std::source_location& where = std::source_location::current());

}  // namespace tenon
